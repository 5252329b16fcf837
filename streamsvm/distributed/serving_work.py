"""What workers do for `evaluate` and `predict`: score the rows of a shard, or write its predictions.

Nothing stays open between two tasks. A part of the output has its name when all of it is there, so a task that is done
again, because a worker was lost, merely writes the same part once more.
"""

import time
from contextlib import closing
from typing import NamedTuple

import numpy as np

from streamsvm.batch import Int64s
from streamsvm.distributed.job import BEAT, Job, guarded, shard_stream, tell
from streamsvm.evaluate import Scored, scored
from streamsvm.io.files import written_atomically
from streamsvm.model import Model
from streamsvm.predicting import Layout, write_predictions
from streamsvm.stream import Stream


class Read(NamedTuple):
    """What was read of a shard."""

    rows: int
    bytes: int
    bad_rows: int
    faults: list[str]  # the first ones


class Texts(NamedTuple):
    """A column of texts on its way: each different one once, and which one every row has."""

    different: list[str]
    places: Int64s

    @classmethod
    def packed(cls, column: list[str] | None) -> "Texts | None":
        if column is None:
            return None
        known: dict[str, int] = {}
        places = np.fromiter((known.setdefault(text, len(known)) for text in column), np.int64, len(column))
        return cls(list(known), places)

    def unpacked(self) -> list[str]:
        return [self.different[place] for place in self.places.tolist()]


class Packed(NamedTuple):
    """Rows that were scored, on their way to the one who measures."""

    rows: Scored  # without its texts
    values: Texts | None
    texts: Texts | None

    @classmethod
    def of(cls, rows: Scored) -> "Packed":
        """A copy, because the memory of rows is used again for later ones."""
        plain = Scored(rows.scores, rows.labels.copy(), rows.weights.copy())
        return cls(plain, Texts.packed(rows.values), Texts.packed(rows.texts))

    def unpacked(self) -> Scored:
        values, texts = (column.unpacked() if column is not None else None for column in (self.values, self.texts))
        return self.rows._replace(values=values, texts=texts)


class ScoredShard(NamedTuple):
    """All rows of a shard, in order."""

    pieces: list[Packed]
    read: Read


class _Beats:
    """Tells the driver of a shard from time to time: a worker that is silent for long is given up."""

    def __init__(self, number: int, stream: Stream) -> None:
        self._number = number
        self._stream = stream
        self._heard = time.monotonic()
        self._rows = self._bytes = 0

    def tick(self, rows: int) -> None:
        self._rows += rows
        if time.monotonic() - self._heard >= BEAT:
            self.beat()

    def beat(self) -> None:
        read = self._stream.tally.bytes
        tell(self._number, self._rows, read - self._bytes)
        self._heard, self._rows, self._bytes = time.monotonic(), 0, read

    def read(self) -> Read:
        """All of it, at the end."""
        self.beat()
        tally = self._stream.tally
        return Read(tally.rows, tally.bytes, tally.bad_rows, tally.faults)


@guarded
def score_shard(job: Job, number: int, by: str | None, unknown_classes: str) -> ScoredShard:
    """The rows of a shard as the model of the job scores them."""
    model, stream = model_of(job), shard_stream(job, number)
    beats, pieces = _Beats(number, stream), []
    with closing(scored(model, stream, by=by, unknown_classes=unknown_classes)) as found:
        for rows in found:
            pieces.append(Packed.of(rows))
            beats.tick(len(rows.labels))
    return ScoredShard(pieces, beats.read())


@guarded
def predict_shard(job: Job, number: int, layout: Layout, output: str) -> Read:
    """Write the predictions of a shard as a part of the output; the first part of a table in text has its header."""
    model, stream = model_of(job), shard_stream(job, number)
    beats = _Beats(number, stream)
    with written_atomically(part_name(output, number)) as out:
        write_predictions(model, stream, layout, out, begins=number == 0, tick=beats.tick)
    return beats.read()


def model_of(job: Job) -> Model:
    assert job.initial is not None
    return job.initial


def part_name(output: str, number: int) -> str:
    """out/part-00003.csv of out/part-*.csv and 3

    >>> part_name("out/part-*.csv", 3)
    'out/part-00003.csv'
    """
    before, _, after = output.rpartition("*")
    return f"{before}{number:05d}{after}"
