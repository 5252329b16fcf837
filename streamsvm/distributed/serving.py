"""`evaluate` and `predict` on a cluster.

    evaluate    workers: scores, labels and weights of their shards --> driver: the figures, shards in their order
    predict     workers: a part of the output for each shard, numbered in the order of the data

Figures are made by the same code, from the same rows in the same order, as on one machine: they are the same to the
last bit. Parts of text that are put together in the order of their numbers are the file that one machine writes.

The driver has the scores of some shards at a time, about 16 bytes a row, and of many classes 8 bytes for each. Shards
are small enough for that, but a file that cannot be cut (shards.py) is one, however large.
"""

import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from streamsvm.config import Settings, expand, load_settings
from streamsvm.distributed.cluster import Cluster
from streamsvm.distributed.job import Job
from streamsvm.distributed.opening import opened_cluster
from streamsvm.distributed.serving_work import Read, ScoredShard, part_name, predict_shard, score_shard
from streamsvm.distributed.shards import plan_shards
from streamsvm.distributed.storage import refuse_unseen
from streamsvm.distributed.team import worker_settings
from streamsvm.errors import ConfigError, DataError, SourceError
from streamsvm.evaluate import Measured, Measuring
from streamsvm.io.files import local_path, names_in, refuse_unwritable, remove
from streamsvm.io.source import Source
from streamsvm.io.urls import is_local, redact_url
from streamsvm.model import Model
from streamsvm.predicting import Wish, layout_of, table_target
from streamsvm.reading import make_source, test_stream
from streamsvm.stream import SHOWN_FAULTS, UNKNOWN, Stream, Tally

SHARD_BYTES = 64 << 20  # stored, of a shard, where files can be cut
FEW_CLASSES = 4  # beyond, shards are smaller, since every row has a score for each class
AHEAD = 2  # shards in flight for each thread of the cluster

Note = Callable[[str], None]


def _silent(text: str) -> None:
    return None


class Serving:
    """The shards of some data for a model, and what was read of them so far."""

    def __init__(self, cluster: Cluster, settings: Settings, model: Model, stream: Stream, note: Note) -> None:
        self._cluster = cluster
        self._note = note
        self._most_bad = settings.data.max_bad_rows
        self.tally = Tally()
        source = stream.source
        self.threads = max(sum(cluster.threads().values()), 1)
        self.count = self._planned(settings, model, source, stream)

    def _planned(self, settings: Settings, model: Model, source: Source, stream: Stream) -> int:
        classes = len(model.bias) if model.many else 1
        most = SHARD_BYTES // max(classes // FEW_CLASSES, 1)
        wanted = settings.cluster.shards or max(self.threads, -(-(source.size or 0) // most))
        shards = plan_shards(source, stream.dialect, wanted)
        kept = worker_settings(settings)
        kept = kept.model_copy(update={"data": kept.data.model_copy(update={"sample": None})})  # all rows are served
        name, sharing = f"serve-{secrets.token_hex(6)}", self._cluster.threads_of_host()
        job = Job(name, kept, stream.dialect, UNKNOWN, tuple(shards), model, sharing=sharing)
        self._job = self._cluster.share(job)
        return len(shards)

    def answers(self, task: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
        """What each shard answers, in their order; so many are asked at a time that the answers fit into memory."""
        window = AHEAD * self.threads
        for start in range(0, self.count, window):
            stop = min(start + window, self.count)
            calls = {number: [self._job, number, *arguments] for number in range(start, stop)}
            yield from self._cluster.each(task, calls)
            if self.count > window:
                self._note(f"{stop} of {self.count} shards, {self.tally.rows:,} rows")

    def count_read(self, read: Read) -> None:
        """Add what was read of a shard; DataError if more rows were bad in all than may be."""
        tally = self.tally
        tally.rows += read.rows
        tally.bytes += read.bytes
        tally.bad_rows += read.bad_rows
        tally.faults = [*tally.faults, *read.faults][:SHOWN_FAULTS]
        if tally.bad_rows > self._most_bad:
            raise DataError(
                f"{read.faults[-1]} (more than {self._most_bad} bad rows skipped, in all shards: data.max_bad_rows)"
            )


def measure_on(
    cluster: Cluster,
    settings: Settings,
    model: Model,
    source: Source,
    *,
    by: str | None = None,
    unknown_classes: str = "raise",
    note: Note = _silent,
) -> tuple[Measured, Tally]:
    """What `evaluate.measure` finds out about a model, and what was read for it."""
    stream = test_stream(settings, source, model, keep=(by,) if by is not None else ())
    serving = Serving(cluster, settings, model, stream, note)
    measuring = Measuring(model, by=by, unknown_classes=unknown_classes)
    shard: ScoredShard
    for shard in serving.answers(score_shard, by, unknown_classes):
        for piece in shard.pieces:
            measuring.see(piece.unpacked())
        serving.count_read(shard.read)
    return measuring.result(), serving.tally


def predict_on(
    cluster: Cluster,
    settings: Settings,
    model: Model,
    source: Source,
    output: str | None,
    wish: Wish,
    note: Note = _silent,
) -> Tally:
    """Write predictions as numbered parts, and say what was read; after an error there are no parts."""
    output = refuse_unnumbered(output)
    if settings.data.limit is not None:
        raise ConfigError("data.limit: not on a cluster, where shards are read all at once")
    stream = test_stream(settings, source, model, labelled=False, keep=wish.keep)
    layout = layout_of(model, source, settings, wish, table_target(output, wish.keep))
    refuse_old_parts(output)
    serving = Serving(cluster, settings, model, stream, note)
    try:
        for number, read in enumerate(serving.answers(predict_shard, layout, output)):
            serving.count_read(read)
            if number < serving.threads:  # later parts come from the same workers
                refuse_unseen(part_name(output, number), "--output")
    except BaseException:
        for number in range(serving.count):
            with suppress(Exception):
                remove(part_name(output, number))
        raise
    last = redact_url(part_name(output, serving.count - 1))
    note(f"{serving.tally.rows:,} rows in {serving.count} parts, up to {last}")
    return serving.tally


def refuse_unnumbered(output: str | None) -> str:
    """Where parts go, seen from anywhere; ConfigError if there is no place for a number in their name."""
    if output is None or output.rsplit("/", 1)[-1].count("*") != 1 or output.count("*") != 1:
        given = f", not {redact_url(output)}" if output else ""
        raise ConfigError(
            "--output: on a cluster predictions are written in parts, one for each shard: give their name with a * in "
            f"place of the number, as in -o out/part-*.csv{given}; all workers must see the directory, or bucket"
        )
    return str(local_path(output).absolute()) if is_local(output) else output


def refuse_old_parts(output: str) -> None:
    """SourceError if some parts are there already: with fewer new ones, old and new rows would be mixed."""
    refuse_unwritable(part_name(output, 0))
    place, _, name = output.rpartition("/")
    pattern = re.escape(name).replace(re.escape("*"), r"\d{5,}")
    found = next((one for one in sorted(names_in(place or "/")) if re.fullmatch(pattern, one)), None)
    if found is not None:
        shown = redact_url(f"{place}/{found}")
        raise SourceError(f"{shown}: there are parts of this name already; remove them, or choose another name")


# For those who have a Dask client.


def evaluate_on(
    client: Any,
    model: Model,
    urls: str | list[str],
    *,
    by: str | None = None,
    unknown_classes: str = "raise",
    overrides: Mapping[str, object] = {},
) -> dict[str, Any]:
    """The figures that `streamsvm evaluate` prints, of data that all workers of a `distributed.Client` can read.

    `overrides` are settings, as in {"data.on_bad_row": "skip"}.
    """
    settings = load_settings(overrides=overrides)
    with opened_cluster("", client, settings.cluster.timeout, _silent) as cluster:
        source = make_source(settings, _several(urls))
        measured, tally = measure_on(cluster, settings, model, source, by=by, unknown_classes=unknown_classes)
    return measured.figures | ({"bad_rows": tally.bad_rows} if tally.bad_rows else {})


def write_predictions_on(
    client: Any,
    model: Model,
    urls: str | list[str],
    output: str,
    *,
    keep: tuple[str, ...] = (),
    scores: bool = False,
    probabilities: bool = False,
    overrides: Mapping[str, object] = {},
) -> int:
    """Write what `streamsvm predict` does, in parts such as `out/part-*.csv`; returns the number of rows read."""
    settings = load_settings(overrides=overrides)
    with opened_cluster("", client, settings.cluster.timeout, _silent) as cluster:
        source = make_source(settings, _several(urls))
        return predict_on(cluster, settings, model, source, expand(output), Wish(keep, scores, probabilities)).rows


def _several(urls: str | list[str]) -> tuple[str, ...]:
    return (urls,) if isinstance(urls, str) else tuple(urls)
