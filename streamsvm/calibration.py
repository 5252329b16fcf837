"""Calibration: from scores to probabilities, by a sigmoid or by any rising curve, learned from scored rows.

    platt      p(s) = 1 / (1 + exp(-z)),  z = a s + b,  a >= 0,  scores far out counting as the last of the others
               minimises  sum over i of c_i (log(1 + exp(-z_i)) + (1 - t_i) z_i)  by Newton's method with backtracking;
               t_i = (N+ + 1) / (N+ + 2) if row i is positive, else 1 / (N- + 2), where N+ and N- are the weights of
               positive and of other rows: also where scores tell all rows apart, the best a is a number
               (Platt 1999; Lin, Lin, Weng 2007)
    isotonic   neighbouring scores make a bin; neighbouring bins are pooled while the share of positives falls from one
               to the next (Ayer et al. 1955; Zadrozny, Elkan 2002); p(s) goes in straight lines from the mean score of
               a bin to that of the next one, and is constant beyond the first and the last

A bin has sqrt(min(N+, N-)) rows: enough against noise, and not so many that those of a rare class are lost among them;
no more than 32, unless there would be over 512 bins. A block of pooled bins counts half a positive and half a negative
row more than it has, so that no probability is 0 or 1; where a curve falls by that, it is pooled again. Weights are
relative: c_i is the weight of a row divided by their mean.

With more than two classes each has a curve of its own, learned with its rows as the positive ones from all rows that
have a score for it; the probabilities of a row are divided by their sum. Platt has two numbers to learn, and suits a
few hundred rows; isotonic wants thousands, and then follows curves that are no sigmoids.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Float64s, Int64s
from streamsvm.jit import inlined, kernel
from streamsvm.score_sample import ScoreSample

ON = ("progressive", "held-out", "left-out")  # rows that were learned from after they were scored, or never
FEWEST_ROWS = 20
BINS, BIN_ROWS = 512, 32
FAR_OUT = 5e-3  # of the scores on either side do not say how far a sigmoid holds:
BEYOND = 4.0  # times the range of the others, on either side of it; one huge score proves nothing
LARGEST = 1e300  # scores beyond are as good as this one, and can be multiplied and added

Arrays = Mapping[str, npt.NDArray[Any]]
Bools = npt.NDArray[np.bool_]


def logistic(scores: Float64s) -> Float64s:
    """The probabilities that the logistic loss means; of several classes those of each, made to add up to 1."""
    logs: Float64s = -np.logaddexp(0.0, -np.clip(scores, -LARGEST, LARGEST))
    if scores.ndim == 1:
        return np.exp(logs)
    found = np.exp(logs - logs.max(axis=1, keepdims=True))  # the largest is 1, so the sum is not 0
    return np.asarray(found / found.sum(axis=1, keepdims=True))


class Sigmoids(NamedTuple):
    """a and b, one of each for every column of scores, and between which scores they hold."""

    slopes: Float64s
    offsets: Float64s
    lows: Float64s
    highs: Float64s

    @classmethod
    def everywhere(cls, slopes: Float64s, offsets: Float64s) -> "Sigmoids":
        """Without bounds."""
        return cls(slopes, offsets, np.full(slopes.shape, -LARGEST), np.full(slopes.shape, LARGEST))

    def probabilities(self, scores: Float64s) -> Float64s:
        with np.errstate(over="ignore"):
            return logistic(np.clip(scores, self.lows, self.highs) * self.slopes + self.offsets)

    def check(self, columns: int) -> None:
        if not self.slopes.shape == self.offsets.shape == self.lows.shape == self.highs.shape == (columns,):
            raise ValueError(f"sigmoids of {self.slopes.size} and {self.offsets.size} numbers for {columns} scores")
        if not (self.lows <= self.highs).all():
            raise ValueError("sigmoids that hold nowhere")
        if not (np.isfinite(self.slopes).all() and np.isfinite(self.offsets).all() and (self.slopes >= 0.0).all()):
            raise ValueError("sigmoids that fall, or that are no numbers")


class Lines(NamedTuple):
    """Corners of curves: those of column k are `starts[k]:starts[k + 1]` of the other arrays."""

    starts: Int64s
    scores: Float64s
    heights: Float64s

    def probabilities(self, scores: Float64s) -> Float64s:
        if scores.ndim == 1:
            return np.interp(scores, self.scores, self.heights)
        found = np.empty(scores.shape)
        for k, (a, b) in enumerate(pairwise(self.starts)):
            found[:, k] = np.interp(scores[:, k], self.scores[a:b], self.heights[a:b])
        found /= found.sum(axis=1, keepdims=True)
        return found

    def check(self, columns: int) -> None:
        starts, corners = self.starts, self.scores.size
        if not self.scores.shape == self.heights.shape == (corners,):
            raise ValueError(f"curves of {corners} scores and {self.heights.size} probabilities")
        if starts.shape != (columns + 1,) or starts[0] != 0 or starts[-1] != corners or (np.diff(starts) < 1).any():
            raise ValueError(f"curves that do not begin and end as those of {columns} scores do")
        if not (np.isfinite(self.scores).all() and ((self.heights > 0.0) & (self.heights < 1.0)).all()):
            raise ValueError("curves that are no numbers, or no probabilities between 0 and 1")
        for a, b in pairwise(starts):
            if (np.diff(self.scores[a:b]) <= 0.0).any() or (np.diff(self.heights[a:b]) < 0.0).any():
                raise ValueError("curves that fall")


CURVES: dict[str, type[Sigmoids] | type[Lines]] = {"platt": Sigmoids, "isotonic": Lines}
# What the arrays of a curve are called in a model; models of version 0.1 have no bounds.
NAMES = {
    "platt": ("calibration.slopes", "calibration.offsets", "calibration.lows", "calibration.highs"),
    "isotonic": ("calibration.starts", "calibration.scores", "calibration.probabilities"),
}


@dataclass(frozen=True)
class Calibration:
    """Curves from scores to probabilities, and which rows they were learned from."""

    kind: str  # platt or isotonic
    curves: Sigmoids | Lines
    rows: int
    on: str  # one of ON

    def probabilities(self, scores: Float64s) -> Float64s:
        """[row]: of the second class; [row, class]: of each, and they add up to 1."""
        return self.curves.probabilities(scores)

    def metadata(self) -> dict[str, Any]:
        return {"kind": self.kind, "rows": self.rows, "on": self.on}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return dict(zip(NAMES[self.kind], self.curves, strict=True))

    @classmethod
    def stored(cls, metadata: Any, arrays: Arrays, columns: int) -> "Calibration | None":
        """What a model with so many scores a row has, if anything; ValueError says what makes no sense."""
        if metadata is None:
            return None
        if not isinstance(metadata, dict) or metadata.get("kind") not in list(NAMES):
            raise ValueError(f"calibration of an unknown kind: {str(metadata)[:60]}")
        kind, rows, on = metadata["kind"], metadata.get("rows"), metadata.get("on")
        if type(rows) is not int or rows < 0 or on not in ON:
            raise ValueError(f"calibration on {str(rows)[:20]} rows that are {str(on)[:20]}")
        if kind == "platt" and arrays.keys().isdisjoint(NAMES[kind][2:]):
            slopes, offsets = (arrays.get(name, np.empty(0)) for name in NAMES[kind][:2])
            arrays = {**arrays, **dict(zip(NAMES[kind][2:], Sigmoids.everywhere(slopes, offsets)[2:], strict=True))}
        for name in NAMES[kind]:
            wanted = np.int64 if name == "calibration.starts" else np.float64
            if name not in arrays or arrays[name].dtype != wanted:
                raise ValueError(f"{name} is missing, or not of type {wanted.__name__}")
        curves = CURVES[kind](*(arrays[name] for name in NAMES[kind]))
        curves.check(columns)
        return cls(kind, curves, rows, on)


# Learning the curves.


def fit_calibration(kind: str, sample: ScoreSample, on: str) -> Calibration | None:
    """The curves that suit a sample of scored rows; None where there are too few rows, or rows of one class alone."""
    if kind not in NAMES or on not in ON:
        raise ValueError(f"no calibration is called {kind} on {on}")
    codes, weights = sample.codes(), sample.weights().astype(np.float64)
    if sample.rows < FEWEST_ROWS or (codes == codes[0]).all():
        return None
    weights /= weights.mean()
    scores = sample.scores()
    columns = enumerate(scores.T) if sample.many else [(1, scores)]
    problems = (_problem(column.astype(np.float64), codes == code, weights) for code, column in columns)
    if kind == "platt":
        found = np.array([bounded_sigmoid(*problem) for problem in problems])
        return Calibration(kind, Sigmoids(*found.T.copy()), sample.rows, on)
    parts = [corners(*problem) for problem in problems]
    starts = np.cumsum([0] + [len(there) for there, _ in parts])
    return Calibration(kind, Lines(starts, *np.concatenate(parts, axis=1)), sample.rows, on)


def _problem(scores: Float64s, positive: Bools, weights: Float64s) -> tuple[Float64s, Bools, Float64s]:
    """The rows that have a score for a class; where none of its own has, its scores say nothing."""
    there = ~np.isnan(scores)
    if not (positive & there).any():
        return np.zeros(len(scores)), np.zeros(len(scores), np.bool_), weights
    return scores[there], positive[there], weights[there]


def bounded_sigmoid(scores: Float64s, positive: Bools, weights: Float64s) -> tuple[float, float, float, float]:
    """Platt's a and b, and between which scores they hold: those far out count as the last that are not."""
    low, high = (float(end) for end in np.quantile(scores, (FAR_OUT, 1.0 - FAR_OUT)))
    low, high = low - BEYOND * (high - low), high + BEYOND * (high - low)
    return *sigmoid(np.clip(scores, low, high), positive, weights), low, high


def sigmoid(scores: Float64s, positive: Bools, weights: Float64s) -> tuple[float, float]:
    """Platt's a and b."""
    ours, others = float(weights[positive].sum()), float(weights[~positive].sum())
    targets = np.where(positive, (ours + 1.0) / (ours + 2.0), 1.0 / (others + 2.0))
    low, high = float(scores.min()), float(scores.max())
    centre, reach = (low + high) / 2.0, (high - low) / 2.0
    if reach > 0.0:
        start = math.log((ours + 1.0) / (others + 1.0))
        a, b = newton((scores - centre) / reach, targets, weights, start)
        if a > 0.0:
            return a / reach, b - a * (centre / reach)
    mean = float(np.average(targets, weights=weights))
    return 0.0, math.log(mean / (1.0 - mean))


def corners(scores: Float64s, positive: Bools, weights: Float64s) -> tuple[Float64s, Float64s]:
    """Scores, and the probabilities there, between which an isotonic curve is straight."""
    order = np.argsort(scores, kind="stable")
    rarer = min(weights[positive].sum(), weights[~positive].sum())
    least = max(weights.sum() / BINS, min(math.sqrt(rarer), BIN_ROWS))
    means, weight, ours = np.empty((3, len(scores)))
    bins = fill_bins(scores[order], positive[order], weights[order], least, means, weight, ours)
    first = np.arange(bins)
    blocks = pool(weight[:bins], ours[:bins], first, 0.0)
    blocks = pool(weight[:blocks], ours[:blocks], first, 1.0)
    last = np.append(first[1:blocks], bins) - 1
    heights = np.maximum.accumulate((ours[:blocks] + 0.5) / (weight[:blocks] + 1.0))
    ends = np.stack([first[:blocks], last], axis=1)
    kept = np.stack([np.ones(blocks, np.bool_), last > first[:blocks]], axis=1)
    return means[ends[kept]], np.stack([heights, heights], axis=1)[kept]


@kernel
def newton(scores, targets, weights, start):
    """a and b for scores in [-1, 1]."""
    a, b, total = 0.0, start, weights.sum()
    value = sigmoid_value(scores, targets, weights, a, b)
    for _ in range(100):
        slope_a = slope_b = bend_ab = 0.0
        bend_aa = bend_bb = 1e-12 * total  # so that there is a step even if all rows have nearly the same score
        for i in range(len(scores)):
            score = scores[i]
            z = a * score + b
            small = np.exp(-abs(z))
            p = 1.0 / (1.0 + small) if z >= 0.0 else small / (1.0 + small)
            slope = weights[i] * (p - targets[i])
            bend = weights[i] * small / (1.0 + small) ** 2
            slope_a += slope * score
            slope_b += slope
            bend_aa += bend * score * score
            bend_ab += bend * score
            bend_bb += bend
        determinant = bend_aa * bend_bb - bend_ab * bend_ab
        step_a = (bend_ab * slope_b - bend_bb * slope_a) / determinant
        step_b = (bend_ab * slope_a - bend_aa * slope_b) / determinant
        gain = -(slope_a * step_a + slope_b * step_b)
        if gain <= 1e-13 * total:  # less than can be measured, and so near that a whole step is right
            return a + step_a, b + step_b
        size, lower = 1.0, np.inf
        while size >= 1e-10:
            lower = sigmoid_value(scores, targets, weights, a + size * step_a, b + size * step_b)
            if lower <= value - 1e-4 * size * gain:
                break
            size /= 2.0
        if not lower < value:
            break
        a, b, value = a + size * step_a, b + size * step_b, lower
    return a, b


@inlined
def sigmoid_value(scores, targets, weights, a, b):
    total = 0.0
    for i in range(len(scores)):
        z = a * scores[i] + b
        total += weights[i] * (np.log1p(np.exp(-abs(z))) + max(0.0, -z) + (1.0 - targets[i]) * z)
    return total


@kernel
def fill_bins(scores, positive, weights, least, means, weight, ours):
    """Rows in the order of their scores into bins that weigh `least`, equal scores into the same; returns how many."""
    bins, rest = -1, weights.sum()
    low = above = 0.0
    for i in range(len(scores)):
        if bins < 0 or (scores[i] > scores[i - 1] and weight[bins] >= least and rest >= least):
            bins += 1
            low, above, weight[bins], ours[bins] = scores[i], 0.0, 0.0, 0.0
        c = weights[i]
        weight[bins] += c
        ours[bins] += c if positive[i] else 0.0
        above += c * (scores[i] - low)
        means[bins] = min(low + above / weight[bins], scores[i])
        rest -= c
    return bins + 1


@kernel
def pool(weight, ours, first, extra):
    """Join neighbours, at the front of the arrays, until the share of positives rises; returns how many are left.

    Each has `extra` rows more, half of them positive. first[k] is the bin with which the k-th begins.
    """
    blocks = 0
    for i in range(len(weight)):
        c, p, begin = weight[i], ours[i], first[i]
        while blocks > 0 and (ours[blocks - 1] + extra / 2.0) * (c + extra) >= (p + extra / 2.0) * (
            weight[blocks - 1] + extra
        ):
            blocks -= 1
            c, p, begin = c + weight[blocks], p + ours[blocks], first[blocks]
        weight[blocks], ours[blocks], first[blocks] = c, p, begin
        blocks += 1
    return blocks
