"""Stream: a re-iterable of Batches. Bytes become rows on several threads; rows arrive in order on the caller's thread.

    Source --blocks--> parse pool --batches, in order--> limit --> sample --> shuffle buffer --> whoever iterates

Iterating opens the source, leaving the loop closes it, iterating again starts over. The memory of a block (text and
parsed rows) is one Slot; slots are recycled, and their total size is what bounds the reader. The order of the rows
that come out depends on the source, `limit`, `sample`, `shuffle` and the seed alone: never on block size, threads or
memory. Rows are numbered before a sample is taken: `limit` and the tally count what was read, kept or not.
"""

import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

from streamsvm.batch import Batch, Batches, Int64s
from streamsvm.errors import ConfigError, DataError
from streamsvm.features.names import Named, Names
from streamsvm.features.recipe import Numbers, numbers_of
from streamsvm.io import libsvm
from streamsvm.io.grouped_rows import GroupedRows
from streamsvm.io.marks import Marks
from streamsvm.io.parsed import Parsed
from streamsvm.io.source import BEGINNING, Origin, Position, Source
from streamsvm.pool import available_cores, ordered
from streamsvm.readers import Dialect, Piece, Reader, make_reader
from streamsvm.shuffle import ShuffleBuffer, sampled

SHARES = 4  # a quarter of the memory budget goes to blocks in flight, another to a shuffle buffer
SHOWN_FAULTS = 5


class Reading(NamedTuple):
    """How to read: none of it changes what is read."""

    memory: int = 1_000_000_000
    threads: int = 0  # 0: one for each core
    block_size: int = 0  # 0: chosen from the memory
    copies: int = 1  # of the rows in a shuffle buffer that must fit into its share of the memory

    @property
    def workers(self) -> int:
        return self.threads or available_cores()


class Features(NamedTuple):
    """What is known of the features of the rows, beyond the rows themselves."""

    recipe: dict[str, Any] = {}  # how they are made, as a model keeps it
    width: int = 0  # the number of weights they need; 0 if that grows with the data
    dense: int | None = None  # so many come first that have an index of their own; None if all have
    names: tuple[str, ...] = ()  # of the features that come first, where they are columns of a table
    label_classes: list[Any] | None = None  # all of them, if known; of texts rows have the places in this list
    labels: tuple[float, ...] = ()  # that are numbers: the different ones of the first rows

    @property
    def numbers(self) -> Numbers | None:
        """Which features are numbers of a table, and which say that one is missing; None where there is no table."""
        return numbers_of(self.recipe)

    @property
    def indicators(self) -> Int64s | None:
        """Of feature 0, 1, ...: the index of the one that says it is missing, or -1; None where there is no table."""
        return self.numbers.indicators if self.numbers is not None else None


UNKNOWN = Features()


class Tally:
    """What one pass has read so far: how much, and up to where."""

    def __init__(self, beginning: Position | Marks = BEGINNING) -> None:
        self.bytes = 0
        self.rows = 0
        self.bad_rows = 0
        self.faults: list[str] = []
        self.origin = Origin("", 0, 1)
        self.position = beginning
        self.ahead: dict[str, int] = {}  # rows after it that were handed on: the limit was inside a block of that log
        self.whole = True  # False when the last rows are only those before a bad one: there is no going on from here

    def state(self) -> dict[str, Any]:
        """All of it, as plain values."""
        return {**vars(self), "faults": list(self.faults), "ahead": dict(self.ahead)}

    @classmethod
    def restored(cls, state: dict[str, Any], source: Source) -> "Tally":
        tally = cls()
        position = source.position_of(state["position"])
        vars(tally).update(state, origin=Origin(*state["origin"]), position=position)
        tally.faults = list(state["faults"])
        ahead = state["ahead"]  # a number where there is but one log, as runs wrote it that did not follow any
        tally.ahead = dict(ahead) if isinstance(ahead, dict) else {"": ahead} if ahead else {}
        return tally


class Stream:
    """Batches of a source, with labels as they are written in it.

    >>> from streamsvm import open_stream
    >>> stream = open_stream("examples/data/a9a.train.svm.gz", limit=1000)
    >>> sum(batch.rows for batch in stream), stream.tally.rows, stream.repeatable
    (1000, 1000, True)
    """

    def __init__(
        self,
        source: Source,
        dialect: Dialect = libsvm.Dialect(),
        *,
        skip_bad: bool = False,
        max_bad_rows: int = 1000,
        limit: int | None = None,
        sample: float | None = None,
        shuffle: int = 0,
        seed: int = 0,
        reading: Reading = Reading(),
        features: Features = UNKNOWN,
    ) -> None:
        if sample is not None and not 0.0 < sample <= 1.0:
            raise ConfigError(f"data.sample: the share of rows to keep must be above 0 and at most 1, not {sample:g}")
        self.source = source
        self.dialect = dialect
        self.skip_bad = skip_bad
        self.max_bad_rows = max_bad_rows
        self.limit = limit
        self.sample = float(sample) if sample is not None and sample < 1.0 else None
        self.shuffle = shuffle
        self.seed = seed
        self.reading = reading
        self.features = features
        self.tally = Tally(source.beginning)
        self.names = Names() if getattr(dialect, "spelled", False) else None  # of hashed features, if they are wanted
        self.kept: list[list[str]] = []  # of the last batch: the columns that the dialect keeps, as texts

    @property
    def repeatable(self) -> bool:
        return self.source.repeatable

    def __iter__(self) -> Batches:
        return self.batches(seed=self.seed)

    def batches(self, *, seed: int) -> Batches:
        """One pass; `seed` is that of the shuffle buffer."""
        buffer = self.shuffle_buffer(seed)
        return self.in_order() if buffer is None else buffer.shuffled(self.in_order())

    def named(self) -> Named | None:
        """The names that were collected, by index."""
        if self.names is None or not self.features.recipe.get("hash_bits"):
            return None
        return self.names.named(self.features.dense or 0, (1 << self.features.recipe["hash_bits"]) - 1)

    def in_memory(self) -> GroupedRows | None:
        """All rows, where they are in memory anyway."""
        return None

    def shuffle_buffer(self, seed: int) -> ShuffleBuffer | None:
        """The buffer that the rows of a pass go through, if there is one."""
        memory = self.reading.memory // SHARES // self.reading.copies
        return ShuffleBuffer(self.shuffle, seed, memory) if self.shuffle else None

    def in_order(self, done: Tally | None = None) -> Batches:
        """One pass in the order of the source, whatever `shuffle` says; the rest of one, if some of it is done."""
        self.tally = done or Tally(self.source.beginning)
        if self.limit is not None and self.tally.rows >= self.limit:
            return
        reader = self._reader()
        start = self.tally.position

        def produce() -> Iterator[Piece]:
            return reader.pieces(start)

        def work(piece: Piece) -> tuple[Piece, Parsed]:
            return piece, reader.parse(piece)

        with closing(ordered(produce, work, reader.tokens, self.reading.workers)) as pieces:
            for piece, parsed in pieces:
                batch, error = self._account(reader, piece, parsed)
                if self.names is not None:
                    reader.note_names(piece, self.names)
                self.kept = [column[: batch.rows] for column in parsed.kept or ()]
                self.tally.whole = error is None
                if self.sample is not None:
                    batch = sampled(batch, self.sample, self.seed, self.tally.rows - batch.rows)
                if batch.rows or self.source.endless:
                    yield batch
                if error:
                    raise error
                if self.tally.rows == self.limit:
                    return
                reader.release(piece)

    def _reader(self) -> Reader[Any]:
        return make_reader(
            self.source,
            self.dialect,
            memory=self.reading.memory // SHARES,
            threads=self.reading.workers,
            block_size=self.reading.block_size,
            skip=(sys.maxsize if self.source.endless else self.max_bad_rows) if self.skip_bad else 0,
        )

    def _account(self, reader: Reader[Any], piece: Piece, parsed: Parsed) -> tuple[Batch, DataError | None]:
        """Count the piece and number its lines: its rows up to the limit, and what is wrong with the row after them."""
        tally = self.tally
        batch, faults = parsed.batch, parsed.faults
        begins = piece.origin.offset == self.source.first_position(piece.part).offset
        first = piece.origin.line or (1 if begins else tally.origin.line)
        if piece.size:
            tally.origin = Origin(piece.origin.url, piece.origin.offset + piece.size, first + parsed.lines)
        log = piece.after.last if isinstance(piece.after, Marks) else ""
        before, ahead = tally.position, tally.ahead.pop(log, 0) if piece.size else 0
        done = min(ahead, batch.rows)
        tally.position = piece.after
        tally.bytes += piece.size
        if ahead:  # by the run before, up to its limit
            batch = batch.slice(done, batch.rows)
            faults = [fault._replace(row=fault.row - done) for fault in faults if fault.row >= ahead]
            tally.ahead |= {log: ahead - done} if ahead > done else {}
        if self.limit is not None and batch.rows >= self.limit - tally.rows:
            left = self.limit - tally.rows
            if batch.rows > left:
                tally.position, tally.ahead = before, {**tally.ahead, log: done + left}
            batch = batch.slice(0, left)
            faults = [fault for fault in faults if fault.row < batch.rows]
        for fault in faults:
            line = first + fault.line + self.source.lines_before(piece.part)
            message = f"{reader.place(piece, line)}: {fault.message}"
            if not self.skip_bad:
                return self._counted(batch), DataError(message)
            if tally.bad_rows >= self.max_bad_rows and not (self.source.endless and tally.bad_rows <= tally.rows):
                more = f" (more than {self.max_bad_rows} bad rows skipped: data.max_bad_rows)"
                return self._counted(batch.slice(0, fault.row)), DataError(message + more)
            tally.bad_rows += 1
            if len(tally.faults) < SHOWN_FAULTS:
                tally.faults.append(message)
        return self._counted(batch), None

    def _counted(self, batch: Batch) -> Batch:
        self.tally.rows += batch.rows
        return batch
