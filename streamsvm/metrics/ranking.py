"""How well scores rank rows: the area under the ROC curve (AUC), and average precision. Weights count as copies.

    AUC                 share of the pairs of a positive and a negative row whose positive one scores higher; ties half
    average precision   sum over distinct scores s, from the top, of
                        share of positive rows that score s  *  precision of the rows that score s or more
                        (as in scikit-learn: nothing is interpolated)

Both are exact while the rows fit into memory. Beyond, rows are counted in bins of scores, and those of a bin are taken
to have the same score. What that can be off is known, because only the order inside bins is not:

    AUC                 a pair inside a bin counts one half instead of 0 or 1:  half the share of such pairs
    average precision   T and F are the positive and the negative weight above a bin, p and n those in it. At best its
                        positive rows are on top, and score the same:
                            p (T + p) / (T + p + F)
                        at worst they are at the bottom, and all scores differ; however p is spread over rows, that is
                        at least the integral of (T + x) / (T + x + F + n) over x from 0 to p:
                            p - (F + n) log(1 + p / (T + F + n))
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Float32s, Float64s
from streamsvm.jit import inlined, kernel

EXACT_ROWS = 1 << 18
BIN_BITS = 19

Columns = tuple[npt.NDArray[Any], ...]


class Ranks(NamedTuple):
    """Both figures, and how far each can be from the exact one; None where rows are of one class only."""

    auc: float | None = None
    auc_error: float | None = None
    average_precision: float | None = None
    average_precision_error: float | None = None


class ByScore(NamedTuple):
    """Weights of negative and positive rows by their score, or by the bin that it is in; from the lowest score on."""

    scores: Float64s  # of a bin its middle
    negative: Float64s
    positive: Float64s


def ranks_of(negative: Float64s, positive: Float64s, *, binned: bool) -> Ranks:
    """The figures of weights in groups of rows with the same score, or in bins; from the lowest score on."""
    there = (negative > 0.0) | (positive > 0.0)
    negative, positive = negative[there], positive[there]
    negatives, positives = float(negative.sum()), float(positive.sum())
    if not negatives or not positives:
        return Ranks()
    below = _before(np.cumsum(negative))
    same = 0.5 * float((positive * negative).sum())
    pairs = negatives * positives
    auc = min((float((positive * below).sum()) + same) / pairs, 1.0)
    area, doubt = _average_precision(negative[::-1], positive[::-1], positives)
    return Ranks(auc, same / pairs if binned else 0.0, area, doubt if binned else 0.0)


def _average_precision(negative: Float64s, positive: Float64s, weight: float) -> tuple[float, float]:
    """From the highest score on: average precision, and how far it is at most from that of any order inside groups."""
    there = positive > 0.0
    above, above_or_in = _before(np.cumsum(positive))[there], np.cumsum(positive)[there]
    others, others_or_in = _before(np.cumsum(negative))[there], np.cumsum(negative)[there]
    positive = positive[there]
    value = float((positive * above_or_in / (above_or_in + others_or_in)).sum()) / weight
    best = float((positive * above_or_in / (above_or_in + others)).sum()) / weight
    share = np.divide(positive, above + others_or_in, out=np.zeros(len(positive)), where=others_or_in > 0.0)
    worst = float((positive - others_or_in * np.log1p(share)).sum()) / weight
    return min(value, 1.0), max(best - value, value - worst, 0.0)


def _before(running: Float64s) -> Float64s:
    """Running sums without the last addend."""
    return np.concatenate([[0.0], running[:-1]])


def ranks_of_rows(scores: Float64s, own: npt.NDArray[np.bool_], weights: Float32s) -> Ranks:
    """The exact figures; `own` are the positive rows."""
    if own.all() or not own.any():
        return Ranks()
    _, negative, positive = rows_by_score(scores, own, weights)
    return ranks_of(negative, positive, binned=False)


def rows_by_score(scores: Float64s, own: npt.NDArray[np.bool_], weights: Float32s) -> ByScore:
    """Rows with the same score together; `own` are the positive rows."""
    if not len(scores):
        return ByScore(*np.zeros((3, 0)))
    order = np.argsort(scores, kind="stable")
    ordered, weighed = scores[order], weights[order].astype(np.float64)
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    positive = np.add.reduceat(np.where(own[order], weighed, 0.0), starts)
    negative = np.add.reduceat(np.where(own[order], 0.0, weighed), starts)
    return ByScore(ordered[starts].astype(np.float64), negative, positive)


class RowsThenBins:
    """Rows as they are, until one more comes than fits; from then on bins, into which those kept go first."""

    def __init__(self, *room: npt.NDArray[Any]) -> None:
        self._room: Columns | None = room  # a column each; the last one has the weights
        self._rows = 0

    def see(self, *columns: npt.NDArray[Any]) -> None:
        weights = columns[-1]
        if not weights.all():
            columns = tuple(column[weights > 0.0] for column in columns)
        if self._room is not None:
            stop = min(self._rows + len(columns[-1]), len(self._room[-1]))
            taken = stop - self._rows
            for room, column in zip(self._room, columns, strict=True):
                room[self._rows : stop] = column[:taken]
            self._rows = stop
            if taken == len(columns[-1]):
                return
            columns = tuple(column[taken:] for column in columns)
            kept, self._room = self._room, None
            self.begin_bins(*kept)
            self.count(*kept)
        self.count(*columns)

    @property
    def rows(self) -> Columns | None:
        """The columns of all rows; None if there were too many."""
        return None if self._room is None else tuple(column[: self._rows] for column in self._room)

    def begin_bins(self, *kept: Any) -> None:
        """Make bins, for scores like those of the rows kept so far."""
        raise NotImplementedError

    def count(self, *columns: Any) -> None:
        """Put rows into bins."""
        raise NotImplementedError


class PairRanking(RowsThenBins):
    """Of two classes. Bins have equal relative width: they are float32 numbers that share their upper 19 bits."""

    def __init__(self) -> None:
        super().__init__(np.empty(EXACT_ROWS), np.empty(EXACT_ROWS, np.float32), np.empty(EXACT_ROWS, np.float32))
        self._bins: Float64s = np.empty((2, 0))

    def begin_bins(self, *kept: Any) -> None:
        self._bins = np.zeros((2, 1 << BIN_BITS))

    def count(self, *columns: Any) -> None:
        bin_pass(*columns, self._bins)

    def result(self) -> list[Ranks]:
        """Of the second class against the first."""
        if self.rows is None:
            return [ranks_of(*self._bins, binned=True)]
        scores, labels, weights = self.rows
        return [ranks_of_rows(scores, labels > 0.5, weights)]

    def by_score(self, code: int = 1) -> ByScore:
        """What curves are drawn from; `code` is that of the second class, the only one that is told from others."""
        if self.rows is not None:
            scores, labels, weights = self.rows
            return rows_by_score(scores, labels > 0.5, weights)
        places = np.flatnonzero(self._bins.any(axis=0))
        return ByScore(_bin_middles(places), *self._bins[:, places])


def _bin_middles(places: npt.NDArray[np.int64]) -> Float64s:
    """The scores in the middle of bins: the way of `bit_order` back."""
    shift = 32 - BIN_BITS
    ordered = (places << shift) + (1 << (shift - 1))
    bits = np.where(ordered >= 0x80000000, ordered - 0x80000000, 0xFFFFFFFF - ordered)
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


@inlined
def bit_order(bits):
    """Bit patterns of float32 numbers as integers in the order of the numbers."""
    pattern = np.int64(bits)
    return pattern + 0x80000000 if pattern < 0x80000000 else 0xFFFFFFFF - pattern


@kernel
def bin_pass(scores, labels, weights, bins):
    single = np.empty(1, np.float32)
    bits = single.view(np.uint32)
    for i in range(len(scores)):
        single[0] = scores[i] + 0.0  # -0.0 is 0.0
        bins[1 if labels[i] > 0.5 else 0, bit_order(bits[0]) >> (32 - BIN_BITS)] += weights[i]
