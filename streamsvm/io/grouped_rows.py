"""Rows in groups, as later passes ask for them: those of a cache file (cache.py), or rows that are in memory anyway.

A group takes rows up to GROUP_ROWS rows and GROUP_FEATURES features (a longer row is a group of its own), so groups
depend on the rows alone, not on where they are kept.
"""

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np

from streamsvm.batch import Batch, Int64s
from streamsvm.errors import ModelError
from streamsvm.jit import quick

GROUP_ROWS = 8192
GROUP_FEATURES = 1 << 20


class GroupedRows(ABC):
    """Complete rows, each group a batch; any thread may ask for one."""

    shown = "the rows"  # what they are called in errors

    @property
    @abstractmethod
    def groups(self) -> int: ...

    @abstractmethod
    def group(self, number: int) -> Batch: ...

    @cached_property
    @abstractmethod
    def edges(self) -> Int64s:
        """The first row of each group, and at the end the number of all rows."""

    @abstractmethod
    def close(self) -> None:
        """Nobody asks any more."""

    def _marks(self, number: int) -> Batch:
        """A group of which only labels, weights and `indptr` are looked at."""
        return self.group(number)

    def starts(self) -> Int64s:
        """The number of the first row of each group, and at the end that of all rows."""
        return self.edges

    def first_rows(self) -> Int64s:
        """The number, in the source, of the first row of each group."""
        return self.edges[:-1]

    def groups_from(self, row: int) -> tuple[int, int]:
        """The group that holds a row, and the row's place in it; the number of groups, and 0, after the last row."""
        rows = int(self.edges[-1])
        if not 0 <= row <= rows:
            raise ModelError(f"{self.shown}: row {row} is asked for, but the cache has {rows}; delete it and run again")
        group = int(np.searchsorted(self.edges, row, side="right")) - 1
        return group, row - int(self.edges[group])

    def summary(self) -> tuple[int, int, dict[float, float]]:
        """Rows, features, and for each label the weight of its rows, added up in double, in the order of the rows.

        Labels and weights are read once, the features themselves not at all.
        """
        rows = features = 0
        known, totals = np.empty(0, np.float32), np.empty(0, np.float64)
        for number in range(self.groups):
            batch = self._marks(number)
            rows += batch.rows
            features += batch.features
            row = add_weights(batch.labels, batch.weights, 0, known, totals)
            while row >= 0:
                label = batch.labels[row] + np.float32(0.0)  # -0 is 0
                place = np.searchsorted(known, label)
                known, totals = np.insert(known, place, label), np.insert(totals, place, 0.0)
                row = add_weights(batch.labels, batch.weights, row, known, totals)
        return rows, features, dict(zip(known.tolist(), totals.tolist(), strict=True))


class MemoryRows(GroupedRows):
    """The rows of a batch that stays in memory; `indptr` begins with 0."""

    def __init__(self, rows: Batch) -> None:
        self._rows = rows

    @property
    def groups(self) -> int:
        return len(self.edges) - 1

    def close(self) -> None:
        pass  # whoever has the rows keeps them

    def group(self, number: int) -> Batch:
        """Its arrays share memory with those of all rows."""
        start, stop = self.edges[number], self.edges[number + 1]
        rows = self._rows
        a, b = rows.indptr[start], rows.indptr[stop]
        return Batch(
            rows.indptr[start : stop + 1] - a,
            rows.indices[a:b],
            rows.values[a:b],
            rows.labels[start:stop],
            rows.weights[start:stop],
        )

    @cached_property
    def edges(self) -> Int64s:
        indptr, edges = self._rows.indptr, [0]
        while edges[-1] < self._rows.rows:
            start = edges[-1]
            fitting = int(np.searchsorted(indptr, indptr[start] + GROUP_FEATURES, side="right")) - 1
            edges.append(max(start + 1, min(fitting, start + GROUP_ROWS)))
        return np.array(edges, np.int64)


@quick
def add_weights(labels, weights, first, known, totals):
    """Add the weights of rows from `first` on to the totals of their labels, of which the sorted `known` ones have one.

    Returns the first row whose label is not known, or -1.
    """
    for i in range(first, len(labels)):
        label = labels[i]
        low, high = 0, len(known)
        while low < high:
            middle = (low + high) // 2
            if known[middle] < label:
                low = middle + 1
            else:
                high = middle
        if low == len(known) or known[low] != label:
            return i
        totals[low] += weights[i]
    return -1
