"""Rows that are in memory, or that somebody else makes, as a stream: batches as they come, on the caller's thread.

Rows that are all there are their own cache: later passes take them where they are. Batches of an iterator can be had
once, so that several passes write them to a cache file on the way, as those of standard input.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from streamsvm.batch import Batch, Batches
from streamsvm.errors import SourceError
from streamsvm.interrupts import check
from streamsvm.io.grouped_rows import MemoryRows
from streamsvm.io.source import Source
from streamsvm.shuffle import sampled
from streamsvm.stream import UNKNOWN, Features, Reading, Stream, Tally

PIECE = 1 << 13  # rows of a batch that are handed on at a time


class MemorySource(Source):
    """Batches without a place on a disk: there is nothing that could be looked up again."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        super().__init__([])
        self.batches = batches

    @property
    def repeatable(self) -> bool:
        return not isinstance(self.batches, Iterator)

    @property
    def size(self) -> int | None:
        """Bytes of rows that are all there."""
        return sum(map(size_of, self.batches)) if isinstance(self.batches, list) else None

    def fingerprint(self) -> None:
        return None

    def identity(self) -> list[list[Any]]:
        raise SourceError(self._not_again())

    def refuse_if_read_once(self) -> None:
        raise SourceError(self._not_again())

    def _not_again(self) -> str:
        return "rows in memory are gone with the process, so a run on them cannot be resumed; save them as a file first"

    def opened(self) -> Iterator[Batch]:
        """The batches from the first on; SourceError if they cannot be had again."""
        if self._spent and not self.repeatable:
            raise SourceError("an iterator of batches can be read only once")
        self._spent = True
        return iter(self.batches)


class MemoryStream(Stream):
    """A stream of batches that are made elsewhere: a list of them, an iterator, or anything that can be iterated."""

    def __init__(
        self,
        batches: Iterable[Batch],
        *,
        limit: int | None = None,
        sample: float | None = None,
        shuffle: int = 0,
        seed: int = 0,
        reading: Reading = Reading(),
        features: Features = UNKNOWN,
    ) -> None:
        super().__init__(
            MemorySource(batches),
            limit=limit,
            sample=sample,
            shuffle=shuffle,
            seed=seed,
            reading=reading,
            features=features,
        )

    def in_memory(self) -> MemoryRows | None:
        """All rows, if they are one batch, and all of them are wanted."""
        assert isinstance(self.source, MemorySource)
        batches = self.source.batches
        whole = isinstance(batches, list) and len(batches) == 1 and self.limit is None and self.sample is None
        return MemoryRows(batches[0]) if whole else None  # type: ignore[index]

    def in_order(self, done: Tally | None = None) -> Batches:
        assert isinstance(self.source, MemorySource)
        tally = self.tally = Tally()
        for given in self.source.opened():
            for start in range(0, given.rows, PIECE):
                check()
                left = given.rows - start if self.limit is None else self.limit - tally.rows
                batch = given.slice(start, min(start + PIECE, start + left, given.rows))
                tally.rows += batch.rows
                tally.bytes += size_of(batch)
                if self.sample is not None:
                    batch = sampled(batch, self.sample, self.seed, tally.rows - batch.rows)
                if batch.rows:
                    yield batch
                if tally.rows == self.limit:
                    return


def size_of(batch: Batch) -> int:
    """Bytes that the rows take."""
    return 8 * batch.features + 16 * batch.rows
