"""Rankings side by side: of each of many classes against all others, or of two classes in each slice of the data.

As in ranking.py rows are kept while they fit. Beyond, there is less room for bins than two classes have, so they are
made to measure, from the first rows, those that were kept. Half of the bins are cells of equal width that cover these
scores, and half as much again on either side: so the top is well resolved, where the rows of a rare class are. The
other half are spent on cells with many rows, which are cut into more bins, evenly: so no bin has a large share of the
rows. Then the AUC of data that goes on as it began is known to 1 / bins or so; in any case the error bounds are those
of ranking.py, and count what really is in the bins.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Float64s
from streamsvm.jit import inlined, kernel
from streamsvm.metrics import ranking
from streamsvm.metrics.ranking import ByScore, Ranks, RowsThenBins, ranks_of, ranks_of_rows, rows_by_score

EXACT_NUMBERS = 1 << 20  # rows x classes
BIN_BYTES = 48 << 20
MOST_BINS, FEWEST_BINS, SLICE_BINS = 1 << 12, 1 << 4, 1 << 11


def bins_for(classes: int) -> int:
    """How many bins each class has: one takes 16 bytes for its two sides, and 4 for half a cell."""
    return min(max(BIN_BYTES // (20 * classes) & ~1, FEWEST_BINS), MOST_BINS)


class Grid(NamedTuple):
    """Cells of equal width, cut into bins; of several rankings side by side."""

    low: Float64s  # [ranking]
    per_cell: Float64s  # [ranking], 1 / width
    first: npt.NDArray[np.int32]  # [ranking, cell], the first bin
    parts: npt.NDArray[np.int32]  # [ranking, cell], how many bins it is cut into

    @classmethod
    def fitted(cls, scores: Float64s, bins: int) -> "Grid":
        """Bins for scores like these, [row, ranking]."""
        rankings, cells = scores.shape[1], bins // 2
        grid = cls(np.empty(rankings), np.empty(rankings), *np.ones((2, rankings, cells), np.int32))
        for place in range(rankings):
            grid._fit(place, scores[:, place], bins)
        return grid

    def _fit(self, place: int, scores: Float64s, bins: int) -> None:
        cells = self.parts.shape[1]
        low, high = float(scores.min()), float(scores.max())
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            reach = 0.5 * high - 0.5 * low or 0.5 * abs(high) or 0.5
            self.low[place] = max(low - reach, -np.finfo(np.float64).max)
            self.per_cell[place] = 0.25 * cells / reach
            cell = np.nan_to_num((scores - self.low[place]) * self.per_cell[place])
        rows = np.bincount(np.clip(cell, 0, cells - 1).astype(np.int64), minlength=cells)
        self.parts[place] += (bins - cells) * rows // len(scores)
        self.first[place] = np.cumsum(self.parts[place]) - self.parts[place]

    def middles(self, place: int) -> Float64s:
        """The scores in the middle of the bins of a ranking."""
        parts = self.parts[place]
        cell = np.repeat(np.arange(len(parts)), parts)
        inside = np.arange(len(cell)) - np.repeat(self.first[place], parts)
        middles: Float64s = self.low[place] + (cell + (inside + 0.5) / parts[cell]) / self.per_cell[place]
        return middles


class ClassRankings(RowsThenBins):
    """Each class against all others, by its own score."""

    def __init__(self, classes: int) -> None:
        self._classes = classes
        rows = max(EXACT_NUMBERS // classes, 1)
        super().__init__(np.empty((rows, classes)), np.empty(rows, np.float32), np.empty(rows, np.float32))
        self._grid: Grid | None = None
        self._bins: Float64s = np.empty((0, 0, 2))

    def begin_bins(self, *kept: Any) -> None:
        bins = bins_for(self._classes)
        self._grid = Grid.fitted(kept[0], bins)
        self._bins = np.zeros((self._classes, bins, 2))

    def count(self, *columns: Any) -> None:
        class_bin_pass(*columns, self._grid, self._bins)

    def result(self) -> list[Ranks]:
        if self.rows is None:
            return [ranks_of(sides[:, 0], sides[:, 1], binned=True) for sides in self._bins]
        scores, labels, weights = self.rows
        return [ranks_of_rows(scores[:, code], labels == code, weights) for code in range(self._classes)]

    def by_score(self, code: int) -> ByScore:
        """What curves of a class against all others are drawn from."""
        if self.rows is not None:
            scores, labels, weights = self.rows
            return rows_by_score(scores[:, code], labels == code, weights)
        assert self._grid is not None
        middles = self._grid.middles(code)
        sides = self._bins[code, : len(middles)]
        there = sides.any(axis=1)
        return ByScore(middles[there], sides[there, 0], sides[there, 1])


def macro(ranks: list[Ranks]) -> Ranks:
    """The means over classes that have rows on both sides; so are the bounds."""
    told = [rank for rank in ranks if rank.auc is not None]
    return Ranks(*(float(np.mean(column)) for column in zip(*told, strict=True))) if told else Ranks()


class SliceRankings(RowsThenBins):
    """Two classes, in each slice of the data; slices share the edges of the bins."""

    def __init__(self, slices: int) -> None:
        rows = ranking.EXACT_ROWS
        kinds = (np.float64, np.int64, np.float32, np.float32)  # score, slice, label, weight
        super().__init__(*(np.empty(rows, kind) for kind in kinds))
        self._slices = slices
        self._grid: Grid | None = None
        self._bins: Float64s = np.empty((0, 0, 2))

    def begin_bins(self, *kept: Any) -> None:
        self._grid = Grid.fitted(kept[0][:, None], SLICE_BINS)
        self._bins = np.zeros((self._slices, SLICE_BINS, 2))

    def count(self, *columns: Any) -> None:
        slice_bin_pass(*columns, self._grid, self._bins)

    def result(self, slices: int) -> list[Ranks]:
        """Of the first slices; the others have no rows."""
        if self.rows is None:
            return [ranks_of(sides[:, 0], sides[:, 1], binned=True) for sides in self._bins[:slices]]
        scores, places, labels, weights = self.rows
        order = np.argsort(places, kind="stable")
        stops = np.searchsorted(places[order], np.arange(slices), side="right")
        return [
            ranks_of_rows(scores[rows], labels[rows] > 0.5, weights[rows]) for rows in np.split(order, stops)[:slices]
        ]


@inlined
def bin_of(low, per_cell, first, parts, score):
    """A higher score never has a lower bin: every step keeps the order, rounded or not."""
    at = (score - low) * per_cell
    at = at if at > 0.0 else 0.0
    cell = min(np.int64(min(at, 1e9)), len(parts) - 1)
    return first[cell] + min(np.int64(min(at - cell, 1.0) * parts[cell]), parts[cell] - 1)


@kernel
def class_bin_pass(scores, labels, weights, grid, bins):
    low, per_cell, first, parts = grid
    for i in range(len(labels)):
        own, row = np.int64(labels[i]), scores[i]
        for k in range(len(row)):
            place = bin_of(low[k], per_cell[k], first[k], parts[k], row[k])
            bins[k, place, 1 if k == own else 0] += weights[i]


@kernel
def slice_bin_pass(scores, slices, labels, weights, grid, bins):
    low, per_cell, first, parts = grid
    for i in range(len(labels)):
        place = bin_of(low[0], per_cell[0], first[0], parts[0], scores[i])
        bins[slices[i], place, 1 if labels[i] > 0.5 else 0] += weights[i]
