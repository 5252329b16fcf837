"""What is drawn of a ranking: ROC and precision-recall curves and the spread of scores, in a few hundred numbers each.

    operating point     rows that score s or more are taken for positive; for each s that some row has
        recall              share of the positive rows that are taken (the true positive rate)
        false positives     share of the negative rows that are taken (the false positive rate)
        precision           share of the rows taken that are positive

Of all operating points those are kept between which neither curve moves much: none that is left out is further than
2 / `most` from a neighbour that was kept, in false positives as in recall. The first few are kept anyway, because
precision jumps there. Of more than a few classes there is a mean over classes instead of a curve for each.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from streamsvm.batch import Float64s, Int64s
from streamsvm.metrics.ranking import ByScore

MOST_POINTS, FIRST_POINTS = 300, 24
MOST_CURVES = 10  # classes that have a curve each
MOST_AVERAGED = 1000  # classes that a mean is made of, those with most rows
MOST_RANGES = 20  # classes whose scores are shown
GRID: Float64s = np.linspace(0.0, 1.0, 101)
SPREAD_BINS = 48
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)


class Curve(NamedTuple):
    """Operating points from the highest score on; before them stands the one that takes no row."""

    scores: Float64s
    false_positives: Float64s
    recall: Float64s
    precision: Float64s


class MeanCurve(NamedTuple):
    """Over classes: the mean, and the values that a tenth of the classes are below, and above; at places of GRID."""

    classes: int
    recall: Float64s  # [3, place] by false positives
    precision: Float64s  # [3, place] by recall


class Spread(NamedTuple):
    """Shares of the negative and of the positive rows by score; what is beyond the edges counts in the last bins."""

    edges: Float64s
    negative: Float64s
    positive: Float64s


class Range(NamedTuple):
    """Scores of a class, below which SHARES of the rows are: of its own rows, and of all others."""

    code: int
    own: Float64s
    others: Float64s


class Shapes(NamedTuple):
    """What is drawn of a model's scores; nothing where rows are of one class only."""

    curves: dict[int, Curve]
    mean: MeanCurve | None
    spread: Spread | None  # of two classes
    ranges: list[Range]  # of more


def curve_of(rows: ByScore, most: int = MOST_POINTS) -> Curve | None:
    """The curve of rows; None where they are all on one side."""
    positives, negatives = float(rows.positive.sum()), float(rows.negative.sum())
    if not positives or not negatives:
        return None
    taken, wrongly = np.cumsum(rows.positive[::-1]), np.cumsum(rows.negative[::-1])
    recall, false_positives = np.minimum(taken / positives, 1.0), np.minimum(wrongly / negatives, 1.0)
    recall[-1] = false_positives[-1] = 1.0
    kept = _kept(recall, false_positives, most)
    precision = taken[kept] / (taken[kept] + wrongly[kept])
    points = rows.scores[::-1][kept], false_positives[kept], recall[kept], precision
    before = points[0][0], 0.0, 0.0, precision[0]
    return Curve(*(np.concatenate([[first], column]) for first, column in zip(before, points, strict=True)))


def _kept(recall: Float64s, false_positives: Float64s, most: int) -> Int64s:
    """Places of points that tell the whole curve: the last one in each cell that one of the two coordinates crosses."""
    cells = np.floor(np.stack([recall, false_positives]) * (most // 2))
    last = np.append((np.diff(cells, axis=1) > 0.0).any(axis=0), True)
    last[:FIRST_POINTS] = True
    return np.flatnonzero(last)


def mean_curve(curves: Sequence[Curve]) -> MeanCurve | None:
    if not curves:
        return None
    recall = np.stack([np.interp(GRID, curve.false_positives, curve.recall) for curve in curves])
    places = [np.searchsorted(curve.recall, GRID).clip(max=len(curve.recall) - 1) for curve in curves]
    precision = np.stack([curve.precision[place] for curve, place in zip(curves, places, strict=True)])
    return MeanCurve(len(curves), _mean_and_tenths(recall), _mean_and_tenths(precision))


def _mean_and_tenths(values: Float64s) -> Float64s:
    return np.stack([values.mean(axis=0), *np.quantile(values, (0.1, 0.9), axis=0)])


def spread_of(rows: ByScore, bins: int = SPREAD_BINS) -> Spread | None:
    """Where the scores of both sides are; the outermost thousandth of the rows does not stretch the picture."""
    both = rows.negative + rows.positive
    if not rows.positive.any() or not rows.negative.any():
        return None
    low, high = (float(quantiles(rows.scores, both, (share,))[0]) for share in (0.001, 0.999))
    if not high > low:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, bins + 1)
    inside = np.clip(rows.scores, low, high)
    negative, positive = (np.histogram(inside, edges, weights=side)[0] for side in (rows.negative, rows.positive))
    return Spread(edges, negative / negative.sum(), positive / positive.sum())


def quantiles(scores: Float64s, weights: Float64s, shares: Sequence[float] = SHARES) -> Float64s:
    """The lowest of the scores, which are in order, at or below which there are these shares of the weight."""
    running = np.cumsum(weights)
    places = np.searchsorted(running, np.array(shares) * running[-1])
    found: Float64s = scores[np.minimum(places, len(scores) - 1)]
    return found


def shapes_of_pair(rows: ByScore) -> Shapes:
    curve = curve_of(rows)
    return Shapes({1: curve} if curve is not None else {}, None, spread_of(rows), [])


def shapes_of_classes(by_score: Callable[[int], ByScore], support: Float64s) -> Shapes:
    """Of each class against all others; `support` is the weight of its rows."""
    heaviest = np.argsort(-support, kind="stable")
    few = len(support) <= MOST_CURVES
    curves: dict[int, Curve] = {}
    ranges: list[Range] = []
    for rank, code in enumerate(heaviest[:MOST_AVERAGED].tolist()):
        rows = by_score(code)
        curve = curve_of(rows, MOST_POINTS // 2)
        if curve is None:
            continue
        curves[code] = curve
        if rank < MOST_RANGES:
            sides = (quantiles(rows.scores, side) for side in (rows.positive, rows.negative))
            ranges.append(Range(code, *sides))
    ranges.sort(key=lambda one: one.code)
    mean = mean_curve(list(curves.values())) if not few else None
    return Shapes(dict(sorted(curves.items())) if few else {}, mean, None, ranges)
