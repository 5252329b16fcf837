"""Streams and passes as the settings describe them."""

from collections.abc import Callable, Mapping

from streamsvm.cache_place import Lasting, lasting_path
from streamsvm.checkpoint import Checkpoints
from streamsvm.config import BatchSettings, Settings, expand, load_settings
from streamsvm.dialects import serving_dialect, training_plan
from streamsvm.io.compression import Limits
from streamsvm.io.parts import STDIN, Access, use_access
from streamsvm.io.source import Source
from streamsvm.io.urls import is_local
from streamsvm.model import Model, load_model
from streamsvm.passes import Passes
from streamsvm.stream import SHARES, Reading, Stream

FIXED_MEMORY = 24 << 20  # buffers and machine code that every run has


def reach_storage(settings: Settings) -> None:
    """Open urls as the settings say, from now on: data, models and checkpoints alike."""
    use_access(Access(settings.storage_options or {}, expand, settings.data.retries, settings.run.memory))


def make_limits(settings: Settings) -> Limits:
    """What decompression may take."""
    return Limits(min(Limits().window, settings.run.memory // 3), settings.data.max_expansion)


def make_source(settings: Settings, urls: tuple[str, ...]) -> Source:
    reach_storage(settings)
    return Source([expand(url) for url in urls], limits=make_limits(settings), max_line=settings.data.max_line)


def make_reading(settings: Settings) -> Reading:
    threads = settings.run.threads
    copies = 2 if settings.checkpoint.dir else 1
    return Reading(memory=settings.run.memory, threads=0 if threads == "auto" else threads, copies=copies)


def buffer_rows(settings: Settings) -> int:
    """Rows in the shuffle buffer of the first pass."""
    shuffle = settings.data.shuffle
    return 0 if shuffle == "auto" else shuffle


def memory_for_solvers(settings: Settings) -> int:
    """What reading and shuffling leave of the budget, half of it if checkpoints are made from copies."""
    shares = 2 if buffer_rows(settings) else 1
    left = settings.run.memory - shares * (settings.run.memory // SHARES) - FIXED_MEMORY - memory_ahead(settings)
    return max(left // 2 if settings.checkpoint.dir else left, 1 << 20)


def memory_ahead(settings: Settings) -> int:
    """What is fetched of remote data before it is read."""
    if all(is_local(url) or url == STDIN for url in settings.data.train or ()):
        return 0
    from streamsvm.io.remote import Depth

    return Depth.of_memory(settings.run.memory).ahead


def whole_data(settings: Settings) -> bool:
    """Whether the solver goes over all rows again and again, and so needs them in the cache."""
    return isinstance(settings.solver, BatchSettings)


def looks_ahead(settings: Settings, stream: Stream) -> bool:
    """Whether all rows are to be in the cache before the first is learned: for the solver, or for a sample of them."""
    from_sample = settings.mapped and settings.solver.init is None and not stream.source.endless
    return whole_data(settings) or from_sample


def memory_for_batch_solver(settings: Settings, rows: int, width: int, classes: int = 0) -> int:
    """What is left when reading is over, less what the copies of a checkpoint take; with more than two classes more."""
    copies = max(1, classes) * (8 * rows + 12 * width) if settings.checkpoint.dir else 0
    return max(settings.run.memory - FIXED_MEMORY - copies, 1 << 20)


def initial_model(settings: Settings) -> Model | None:
    """The model that learning goes on from, if the settings name one."""
    return load_model(expand(settings.solver.init)) if settings.solver.init else None


def training_stream(settings: Settings, note: Callable[[str], None] = lambda text: None) -> Stream:
    data = settings.data
    source = make_source(settings, data.train or ())
    if settings.checkpoint.dir:
        source.refuse_if_read_once()
    dialect, features = training_plan(settings, source, initial_model(settings), note)
    return Stream(
        source,
        dialect,
        skip_bad=data.on_bad_row == "skip",
        max_bad_rows=data.max_bad_rows,
        limit=data.limit,
        sample=data.sample,
        shuffle=buffer_rows(settings),
        seed=settings.run.seed,
        reading=make_reading(settings),
        features=features,
    )


def training_passes(
    settings: Settings, stream: Stream, checkpoints: Checkpoints, note: Callable[[str], None]
) -> Passes:
    return Passes(
        stream,
        cache=expand(settings.run.cache),
        passes=max(settings.solver.passes + settings.run.objective, 2 if looks_ahead(settings, stream) else 1),
        mix_later=settings.data.shuffle != 0,
        holdout=settings.data.holdout,
        lasting=lasting_cache(checkpoints),
        note=note,
    )


def lasting_cache(checkpoints: Checkpoints) -> Lasting | None:
    """The temporary cache of a run with checkpoints, which outlives the process."""
    if not checkpoints.wanted:
        return None
    return Lasting(lasting_path(checkpoints.place, local=checkpoints.local), checkpoints.identity)


def test_stream(
    settings: Settings, source: Source, model: Model, *, labelled: bool = True, keep: tuple[str, ...] = ()
) -> Stream:
    """Data for a trained model: features as the model's recipe makes them, unknown ones accepted."""
    return Stream(
        source,
        serving_dialect(settings, source, model, labelled=labelled, keep=keep),
        skip_bad=settings.data.on_bad_row == "skip",
        max_bad_rows=settings.data.max_bad_rows,
        limit=settings.data.limit if labelled is False else None,
        reading=make_reading(settings),
    )


def feature_overrides(features: Mapping[str, object] | None) -> dict[str, object]:
    """What becomes of the columns of a table, given as `features:` has it, as overrides for `load_settings`."""
    return {f"features.{name}": value for name, value in (features or {}).items()}


def open_stream(
    urls: str | list[str],
    *,
    format: str = "auto",
    label: str | None = None,
    features: Mapping[str, object] | None = None,
    model: Model | None = None,
    labelled: bool = True,
    hash_bits: int | None = None,
    limit: int | None = None,
    sample: float | None = None,
    shuffle: int = 0,
    seed: int = 0,
    memory: int = 1_000_000_000,
    threads: int = 0,
) -> Stream:
    """Batches of sparse rows from paths, globs, directories, urls or `-`, in any format that `streamsvm train` reads.

    Labels are as written; those that are texts are numbered by `stream.features.label_classes`. `label` is the column
    of the label in a table, `features` what becomes of the others (`{"categorical": ["ad"], "ignore": ["id"]}`). With a
    `model` features are made as it has learned them. With `labelled=False` rows may come without a label. `limit` reads
    the first rows only, `sample` keeps a share of what is read, `shuffle` mixes that in a buffer of so many rows.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "tiny.svm")
    >>> with open(path, "w") as file:
    ...     _ = file.write("+1 1:0.5 7:2\\n-1 3:1\\n")
    >>> for batch in open_stream(path):
    ...     print(batch.labels, batch.indices)
    [ 1. -1.] [1 7 3]

    A table becomes rows in the same way; here site is hashed:

    >>> path = os.path.join(tempfile.mkdtemp(), "tiny.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write("click,price,site\\nyes,2.5,news\\nno,,mail\\n")
    >>> stream = open_stream(path, label="click", hash_bits=8)
    >>> [batch.labels.tolist() for batch in stream], stream.features.label_classes, stream.features.names
    ([[1.0, 0.0]], ['no', 'yes'], ('price', 'price is missing'))
    """
    given: dict[str, object] = {
        "data.train": urls,
        "data.format": format,
        "data.label": label,
        "data.limit": limit,
        "data.sample": sample,
        "data.shuffle": shuffle,
        "features.hash_bits": hash_bits,
        "run.seed": seed,
        "run.threads": threads or "auto",
        **feature_overrides(features),
    }
    settings = load_settings(overrides=given, environ={})
    run = settings.run.model_copy(update={"memory": memory})  # any number will do here
    settings = settings.model_copy(update={"run": run})
    if model is not None:
        return test_stream(settings, make_source(settings, settings.data.train or ()), model, labelled=labelled)
    stream = training_stream(settings)
    if not labelled:
        stream.dialect = stream.dialect._replace(labelled=False)
    return stream
