"""streamsvm: support vector machines, linear or with a map, on data that does not fit in memory.

The rooms, in the order data travels:

    io/source       paths, globs, urls, standard input (io/parts) -> blocks of whole lines; io/compression inflates them
    io/remote       objects in buckets and on web servers, fetched ahead in ranges (io/remote_parts, io/*_ranges)
    io/libsvm, vw   blocks -> batches of sparse rows, in numba (io/decimals reads the numbers)
    io/csv, jsonl   blocks -> cells, the values of a table's rows; io/parquet and io/arrow_* the same of records
    features/       cells -> batches, by a recipe (planning makes it of the first rows, assembly applies it, names keeps
                    what hashed features are called); hashing has the hash that all formats share
    readers         which of these a source needs; dialects decides that, once for training and by the model ever after
    pool, stream    several threads parse, batches come out in order; shuffle mixes them on the way
    memory_stream   batches that are in memory, or that somebody else makes (array_rows, frames)
    io/cache        batches -> an Arrow file that later passes map into memory; passes decides which pass reads what
                    (io/grouped_rows: rows in memory are their own cache)
    feed            what solvers want of a batch: class codes (classes), weights (weighting), scale (features/scaling),
                    which rows are held out (holdout)
    features/maps/  rows -> mapped rows, from which a linear solver learns what a kernel machine would: spread brings
                    columns to one size, make chooses and makes a map; mapping decides from which rows
    groups          all rows of finite data, for solvers that go over them again and again (cached_groups);
                    mapped_groups has them mapped, each made when it is asked for
    solvers/        one algorithm per file; losses, penalties, schedules and rows are what their kernels are made of;
                    solvers/many has the online ones for more than two classes, lanes what these share; norma and
                    kernel_pegasos keep rows (support, similarity), and upkeep sees to it that they stay few
    judging         scores of rows that were not learned (progressive, holdout, fold_groups), kept in a score_sample:
                    calibration makes probabilities of them, thresholds says where to decide
    model           weights and how they came about; scoring has the scores, evaluate and metrics/ measure them
    report/         a run as a page: it listens, draws what metrics/ measured, and writes one HTML file
    checkpoint      all of the above as it stands, in one file (io/tensors, io/generations), to go on from after a kill
    io/log_source   logs that are still being written: io/follow reads them, io/logs has the files of each through its
                    rotations, io/marks how far each was read and what it is known by
    training        the whole story on one screen, online_training that of solvers that learn row by row, fitting that
                    of solvers with a proof, tuning that of many candidates at once (contest has them, tuning_run says
                    who goes on), following that of logs without an end, with recent figures, drift and exposition,
                    incremental that of batches given by hand (runs has what they share)
    distributed/    training, tuning, evaluating and predicting on the workers of a Dask cluster (its own page has its
                    rooms)
    config          what all of this may be (offered has the names); reading turns it into streams
    exchange        models for other programs
    cli, estimators who asks for it: the command line, and users of scikit-learn

    >>> from streamsvm import StreamSVC, follow, load_model, open_stream, train, tune
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from streamsvm.config import Settings, load_settings
    from streamsvm.estimators.hasher import TableHasher
    from streamsvm.estimators.svc import StreamSVC
    from streamsvm.following import follow
    from streamsvm.model import Model, load_model
    from streamsvm.reading import open_stream
    from streamsvm.stream import Stream
    from streamsvm.training import train
    from streamsvm.tuning import tune

_HOMES = {
    "Model": "model",
    "Settings": "config",
    "Stream": "stream",
    "StreamSVC": "estimators.svc",
    "TableHasher": "estimators.hasher",
    "follow": "following",
    "load_model": "model",
    "load_settings": "config",
    "open_stream": "reading",
    "train": "training",
    "tune": "tuning",
}

__all__ = [
    "Model",
    "Settings",
    "Stream",
    "StreamSVC",
    "TableHasher",
    "__version__",
    "follow",
    "load_model",
    "load_settings",
    "open_stream",
    "train",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that `import streamsvm` stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module 'streamsvm' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"streamsvm.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
