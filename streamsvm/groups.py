"""All the rows of finite data, in groups: what solvers are given that read it again and again.

A group can be had at any time, in any order, on any thread, with class codes for labels and c_i for weights (0: a row
that is not to be learned from). Groups come from the cache, mapped into memory, or stand in memory already. A `column`
holds a number for each row, or several, in memory or, where there is no room, in a file that is mapped and leaves no
trace.
"""

import math
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Batch, Float32s, Int64s
from streamsvm.errors import SourceError
from streamsvm.interrupts import check
from streamsvm.pool import worked_ahead

AHEAD = 2  # groups for each thread that are worked on, or wait for their turn

Result = TypeVar("Result")
Column = npt.NDArray[Any]


class Groups(ABC):
    """Rows in groups; `starts` has the number of the first row of each, and at its end that of all rows."""

    def __init__(
        self,
        starts: Int64s,
        features: Int64s,
        width: int,
        weight: float,
        *,
        threads: int = 1,
        scratch: Path | None = None,
    ) -> None:
        self.starts = starts
        self.features = features  # (index, value) pairs of each group
        self.width = width  # the largest index plus one
        self.weight = weight  # N, the sum of c_i
        self.threads = threads
        self._scratch = scratch

    @abstractmethod
    def group(self, number: int) -> Batch:
        """The rows of a group; any thread may ask."""

    def marks(self, number: int) -> tuple[Float32s, Float32s]:
        """Class codes and weights of a group's rows, without their features."""
        batch = self.group(number)
        return batch.labels, batch.weights

    @property
    def count(self) -> int:
        return len(self.starts) - 1

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    def of(self, number: int, column: Column) -> Column:
        """The part of a column that belongs to a group."""
        return column[self.starts[number] : self.starts[number + 1]]

    def mapped(
        self,
        work: Callable[[int, Batch], Result],
        numbers: Sequence[int] | None = None,
        failed: Callable[[int], None] = lambda number: None,
    ) -> Generator[Result, None, None]:
        """`work(number, rows)` for all groups, or those asked for, on all threads; the results come in order.

        Close it: threads wait as long as results are left. `failed` is told of a group that cannot be read, for
        those whose work waits for that of others.
        """
        asked = range(self.count) if numbers is None else numbers

        def read_and_work(number: int) -> Result:
            try:
                batch = self.group(number)
            except BaseException:
                failed(number)
                raise
            return work(number, batch)

        if len(asked) == 1:  # threads would take longer to start than a small group takes
            check()
            yield read_and_work(asked[0])
            return
        with closing(worked_ahead(asked, read_and_work, AHEAD * self.threads, self.threads)) as results:
            yield from results

    def column(self, kind: type[np.generic], memory: int, each: int | None = None) -> Column:
        """A number for each row, all zero: in memory if they fit into so many bytes, else in a mapped file.

        With `each` there are so many numbers for each row, [row, each].
        """
        shape = (self.rows,) if each is None else (self.rows, each)
        size = math.prod(shape) * np.dtype(kind).itemsize
        if size <= memory or self._scratch is None or not size:
            return np.zeros(shape, kind)
        try:
            with tempfile.TemporaryFile(dir=self._scratch) as file:
                os.posix_fallocate(file.fileno(), 0, size)  # a full disk is found now, not at a later write
                return np.memmap(file, kind, "r+", shape=shape)
        except OSError as error:
            numbers = "a number" if each is None else f"{each} numbers"
            raise SourceError(
                f"{self._scratch}: no room for {numbers} for each row: {error.strerror or error}"
            ) from error


class MemoryGroups(Groups):
    """Batches in memory, each a group."""

    def __init__(self, batches: Sequence[Batch], *, threads: int = 1) -> None:
        self._batches = list(batches)
        starts = np.cumsum([0, *(batch.rows for batch in batches)], dtype=np.int64)
        features = np.array([batch.features for batch in batches], np.int64)
        width = max((batch.width for batch in batches), default=0)
        weight = sum(float(batch.weights.sum(dtype=np.float64)) for batch in batches)
        super().__init__(starts, features, width, weight, threads=threads)

    def group(self, number: int) -> Batch:
        return self._batches[number]
