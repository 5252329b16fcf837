"""Scaling by itself: what `scale: auto` does for solvers that learn row by row.

    dense features    z = (x - mean) / deviation, running, by Welford's update with weights (West 1979); a feature is
                      dense if nine of ten of the first rows have it, or a table says that it is missing there
    all others        z = x f; f brings those of quite another size (25 times or more in their squares) to the usual one

Sparse rows, of which less than half is dense, are left as they are where nothing in them is large beside the rest, or
where they are about as long as 1: text, its most frequent words included, and categories. If something is, it alone is
brought to the size of the rest.

What is dense, and f, are decided by the first rows (feed.py holds up to 8192 back until then), so that the first step
is made on scaled rows already. Means and deviations go on with the stream: a column that only grows stays near 1. In
the first rows a value beyond 8 deviations counts as one of 8, over and over until none is left; afterwards it does so
once, when it comes. A row with one huge value does not make all others small.

A dense feature that is absent from a row is a 0, and becomes -mean / deviation; rows get longer by these. Where a table
says that a number is missing, z is 0, the mean. Constant features become 0. Without a bias nothing is centred.

`fold` turns weights of z into those of features as written, and the bias into that which goes with them:

    w_j = v_j / s_j,   b = b_z - sum of w_j mean_j,   and the weight of `j is missing` gets w_j mean_j more

with w_j as it is rounded, so that what is rounded is multiplied by x - mean and not by x: around 1.6e9, the size of a
time in seconds, a rounded weight alone would move the score by more than the deviation.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Batch, Float32s, Float64s, Int64s, Uint32s
from streamsvm.jit import inlined, kernel, quick

State = dict[str, Any]
Offset = Any  # the bias: a float, or an array with one for each class

DENSE = 0.9  # of the rows
BAND = 25.0  # between the mean squares of features that are of one size
CLIP = 8.0  # deviations
CLIP_FROM = 16.0  # rows of the usual weight, before which nothing is known of deviations
ROUNDS = 100  # of clipping the first rows
SMALLEST = 1e-6  # deviation, relative to the mean, below which it is rounding
ALL_ROWS = 1 << 16  # that are counted one by one; of those after them every EVERY-th, which counts for all
EVERY = 8
LARGEST = np.finfo(np.float32).max
LARGEST_FACTOR = 2.0**100


class Moments(NamedTuple):
    """What is known of features in some rows: of each, over the rows that have it, weight, mean, squared distances."""

    features: Uint32s  # rising
    weight: Float64s
    mean: Float64s
    distances: Float64s
    missing: Float64s  # weight of the rows in which a table says that it is missing
    total: float  # weight of all rows


class Running(NamedTuple):
    """The dense features as they stand; `numbers` are weight, mean, squared distances, and the factor for now."""

    features: Uint32s
    numbers: Float64s  # [feature, 4]
    indicators: Int64s  # index of the feature that says it is missing, or -1
    counted: Int64s  # [1]: rows


class OwnFactors(NamedTuple):
    """Features that have a factor of their own, and a table to find them in, by open addressing; -1 is an empty place.

    An index may be near 2^32: memory goes by how many they are.
    """

    features: Uint32s
    factors: Float32s
    table: Int64s  # places in `features`; twice as many as there are features, or more


def own_factors(features: Uint32s, factors: Float32s) -> OwnFactors:
    table = np.full(1 << (2 * len(features)).bit_length(), -1, np.int64)
    fill_table(features, table)
    return OwnFactors(features, factors, table)


class Pairs(NamedTuple):
    """Room for rows, as they come out."""

    indptr: Int64s
    indices: Uint32s
    values: Float32s


def pairs_for(rows: int, pairs: int) -> Pairs:
    return Pairs(np.empty(rows, np.int64), np.empty(pairs, np.uint32), np.empty(pairs, np.float32))


class AutoScaling:
    """`decide` by the first rows, then `apply` to all; memory goes by the features of the first rows alone."""

    kind = "auto"

    def __init__(self, *, limit: int | None, centred: bool, indicators: Int64s | None = None) -> None:
        self._limit = limit  # features from here on are hashed: they have no size of their own
        self._centred = centred
        self._indicators = np.empty(0, np.int64) if indicators is None else indicators  # of features 0, 1, 2, ...
        self.decided = self.frozen = False
        self._take(np.empty(0, np.uint32), np.empty((0, 4)))
        self._own = own_factors(np.empty(0, np.uint32), np.empty(0, np.float32))
        self._usual = 1.0  # factor of features that have none of their own
        self._size = 1.0  # of dense features, scaled
        self._out = pairs_for(0, 0)

    def _take(self, features: Uint32s, numbers: Float64s) -> None:
        known = features < len(self._indicators)
        indicators = np.full(len(features), -1, np.int64)
        indicators[known] = self._indicators[features[known]]
        self._running = Running(features, numbers, indicators, np.zeros(1, np.int64))

    @classmethod
    def of_model(
        cls, scale: Float32s, centre: Float64s | None, indicators: Int64s | None, usual: float
    ) -> "AutoScaling":
        """Frozen, as a stored model has it; `usual` is the factor of features that have none of their own."""
        scaling = cls(limit=None, centred=centre is not None, indicators=indicators)
        centres = np.zeros(0) if centre is None else centre
        dense = np.flatnonzero(centres).astype(np.uint32)
        numbers = np.zeros((len(dense), 4))
        numbers[:, 1], numbers[:, 3] = centres[dense], scale[dense]
        scaling._take(dense, numbers)
        scaling._usual = usual
        strange = np.flatnonzero(scale != np.float32(usual)).astype(np.uint32)
        scaling._own = own_factors(strange, scale[strange])
        scaling.decided = scaling.frozen = True
        return scaling

    @property
    def usual(self) -> float:
        """The factor of features that have none of their own."""
        return self._usual

    @property
    def idle(self) -> bool:
        """Whether everything is left as it is."""
        return not (len(self._running.features) or len(self._own.features) or self._usual != 1.0)

    # What is dense, and what is of another size.

    def decide(self, rows: Batch) -> None:
        """By the first rows: those that are to be learned from, with a weight."""
        self.decide_by(moments_of(rows, self._indicators))

    def decide_by(self, moments: Moments) -> None:
        """By what is known of all rows, or of the first."""
        self.decided = True
        if not moments.total > 0.0:
            return
        own = moments.features < (moments.features.max(initial=0) + 1 if self._limit is None else self._limit)
        dense = own & (moments.weight + moments.missing > DENSE * moments.total)
        squares = moments.distances + np.square(moments.mean) * moments.weight
        sized = (moments.weight > 0.0) & (squares > 0.0)
        sizes = squares / np.maximum(moments.weight, 1e-300)
        if self._sparse(moments, dense):
            usual = _median(sizes[sized], moments.weight[sized])
            of_length_one = _comparable(float(squares.sum()) / moments.total)
            if of_length_one or (_comparable(usual) and not (own & (sizes > BAND * usual)).any()):
                return
            self._usual = _to_one(usual)
            self._size = float(np.sqrt(usual)) * self._usual
            dense &= ~_comparable(sizes / usual)
        elif (others := sized & ~dense).any():
            usual = _median(sizes[others], moments.weight[others])
            self._usual = _to_one(usual)
        self._take_dense(moments, dense)
        others = sized & ~dense & own
        if others.any():
            strange = others & ~_comparable(sizes / usual)
            self._take_strange(moments.features[strange], np.sqrt(usual / sizes[strange]))

    def _sparse(self, moments: Moments, dense: Any) -> bool:
        """Whether rows are mostly features that other rows lack; a table's numbers are always looked at as such."""
        table = len(self._indicators) > 0 or self._limit is not None
        return not table and float(moments.weight[dense].sum()) < 0.5 * float(moments.weight.sum())

    def _take_dense(self, moments: Moments, dense: Any) -> None:
        """Absent rows are a second group, with mean 0 and no distances; the two together have (Chan et al. 1983)"""
        n, mean = moments.weight[dense], moments.mean[dense]
        rows = moments.total - moments.missing[dense]
        numbers = np.zeros((len(n), 4))
        numbers[:, 0] = rows
        if self._centred:
            share = n / np.maximum(rows, 1e-300)
            numbers[:, 1] = mean * share
            numbers[:, 2] = moments.distances[dense] + np.square(mean) * n * (1.0 - share)
        else:
            numbers[:, 2] = moments.distances[dense] + np.square(mean) * n
        numbers[:, 3] = [factor_for(*row[:3], self._size) for row in numbers]
        self._take(moments.features[dense].copy(), numbers)

    def _take_strange(self, features: Uint32s, factors: Float64s) -> None:
        """Features of another size are brought to the usual one."""
        if len(features):
            self._own = own_factors(features, _bounded(self._usual * factors).astype(np.float32))

    def freeze(self) -> None:
        """From now on means and deviations stay as they are."""
        self.frozen = True

    @property
    def summary(self) -> str:
        """What is done to the features, and why."""
        dense, own = len(self._running.features), len(self._own.features)
        sizes = self._size / self._running.numbers[:, 3][self._running.numbers[:, 3] > 0.0]
        parts = []
        if dense:
            what = "standardised" if self._centred else "divided by their size"
            reach = f", of sizes from {sizes.min():.2g} to {sizes.max():.2g}" if len(sizes) > 1 else ""
            parts.append(f"{dense:,} dense feature{'s' if dense > 1 else ''} {what}{reach}")
        if own:
            parts.append(f"{own:,} sparse one{'s' if own > 1 else ''} brought to the size of the others")
        if self._usual != 1.0:
            parts.append(f"sparse ones multiplied by {self._usual:.3g}")
        return "; ".join(parts)

    # Rows.

    def apply(self, batch: Batch, counted: Float32s | None = None) -> Batch:
        """The batch scaled, valid until the next call. Unless frozen, its rows are counted on the way, by `counted`.

        That are their weights, 0 for rows that are to be left out.
        """
        assert self.decided
        if self.idle:
            return batch
        room = batch.features + batch.rows * len(self._running.features)
        if batch.rows + 1 > len(self._out.indptr) or room > len(self._out.indices):
            self._out = pairs_for(1 << max(10, batch.rows.bit_length()), 1 << max(10, room.bit_length()))
        return self._scaled(batch, None if self.frozen else counted, self._out)

    def scaled(self, batch: Batch) -> Batch:
        """The batch scaled by what is known, in new arrays; any thread may ask."""
        if self.idle:
            return batch
        room = batch.features + batch.rows * len(self._running.features)
        return self._scaled(batch, None, pairs_for(batch.rows + 1, room))

    def _scaled(self, batch: Batch, counted: Float32s | None, out: Pairs) -> Batch:
        weights = np.zeros(batch.rows, np.float32) if counted is None else counted
        how = self._running, self._own, self._usual, self._size, self._centred
        end = int(scale_rows(batch, weights, *how, *out))
        return batch._replace(indptr=out.indptr[: batch.rows + 1], indices=out.indices[:end], values=out.values[:end])

    # Weights.

    def factors(self, width: int) -> Float32s:
        """What features 0 .. width - 1 are multiplied by, in a new array."""
        factors = np.full(width, self._usual, np.float32)
        known = self._own.features < width
        factors[self._own.features[known]] = self._own.factors[known]
        inside = self._running.features < width
        found = self._running.numbers[inside, 3]
        factors[self._running.features[inside]] = np.where(found > 0.0, found, 1.0)
        return factors

    def centres(self, width: int) -> Float64s | None:
        """What is taken off features 0 .. width - 1 before that; None if nothing is."""
        if not self._centred or not len(self._running.features):
            return None
        centres = np.zeros(width)
        inside = self._running.features < width
        centres[self._running.features[inside]] = self._running.numbers[inside, 1]
        return centres

    def fold(self, weights: Float32s, bias: Any) -> tuple[Float32s, Any]:
        """Weights and bias for features as written: the same scores."""
        factors = self.factors(len(weights))
        with np.errstate(over="ignore", under="ignore"):
            folded = weights * (factors[:, None] if weights.ndim == 2 else factors)
        np.clip(folded, -LARGEST, LARGEST, out=folded)
        return self._moved(folded, bias, -1.0)

    def unfold(self, weights: Float32s, bias: Any) -> tuple[Float32s, Any]:
        """What `fold` was given, from what it gave."""
        moved, bias = self._moved(weights.copy(), bias, 1.0)
        factors = self.factors(len(weights))
        return moved / (factors[:, None] if weights.ndim == 2 else factors), bias

    def _moved(self, folded: Float32s, bias: Any, sign: float) -> tuple[Float32s, Any]:
        features, numbers, indicators, _ = self._running
        inside = features < len(folded)
        means = numbers[inside, 1]
        parts = folded[features[inside]].astype(np.float64) * (means[:, None] if folded.ndim == 2 else means)
        marked = (indicators[inside] >= 0) & (indicators[inside] < len(folded))
        folded[indicators[inside][marked]] -= (sign * parts[marked]).astype(np.float32)
        moved = bias + sign * parts.sum(axis=0)
        return folded, moved if folded.ndim == 2 else float(moved)

    def known(self, width: int) -> int:
        """Of so many features, how many come before those that all have the usual factor of 1; else all."""
        last = max(self._running.features.max(initial=0), self._own.features.max(initial=0))
        return min(width, int(last) + 1) if self._usual == 1.0 else width

    def bytes_for(self, width: int) -> int:
        """Memory goes by the first rows, not by the number of features."""
        return 0

    # Going on later.

    def copy(self) -> "AutoScaling":
        other = AutoScaling(limit=self._limit, centred=self._centred, indicators=self._indicators)
        other.restore(self.state())
        return other

    def state(self) -> State:
        """Everything that the future depends on, copied."""
        running = self._running
        return {
            "decided": self.decided, "frozen": self.frozen, "usual": self._usual, "size": self._size,
            "own": self._own.features, "factors": self._own.factors,
            "features": running.features.copy(), "numbers": running.numbers.copy(), "counted": running.counted.copy(),
        }  # fmt: skip

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        self.decided, self.frozen = bool(state["decided"]), bool(state["frozen"])
        self._usual, self._size = float(state["usual"]), float(state["size"])
        self._own = own_factors(np.array(state["own"], np.uint32), np.array(state["factors"], np.float32))
        self._take(np.array(state["features"], np.uint32), np.array(state["numbers"], np.float64).reshape(-1, 4))
        self._running.counted[:] = state["counted"]


def _comparable(square: Any) -> Any:
    """Whether a mean square is that of numbers about as large as 1."""
    return (square > 1.0 / BAND) & (square < BAND)


def _to_one(square: float) -> float:
    """The factor that brings features of this mean square to 1, if they are not near it."""
    return 1.0 if _comparable(square) else float(_bounded(1.0 / np.sqrt(square)))


def _bounded(factor: Any) -> Any:
    return np.clip(factor, 1.0 / LARGEST_FACTOR, LARGEST_FACTOR)


def _median(sizes: Float64s, weights: Float64s) -> float:
    order = np.argsort(sizes, kind="stable")
    total = np.cumsum(weights[order])
    return float(sizes[order][np.searchsorted(total, 0.5 * total[-1])])


def moments_of(rows: Batch, indicators: Int64s) -> Moments:
    """What is known of the features of some rows, without what is far out in them."""
    first, last = int(rows.indptr[0]), int(rows.indptr[-1])
    indices, values = rows.indices[first:last], rows.values[first:last]
    weights = np.repeat(rows.weights, np.diff(rows.indptr)).astype(np.float64)
    order = np.argsort(indices, kind="stable")
    features, starts = np.unique(indices[order], return_index=True)
    total = float(rows.weights.sum(dtype=np.float64))
    found = np.zeros((len(features), 3))
    few = DENSE * total  # features with more of the rows than that are looked at around their mean, others around 0
    clipped_moments(values[order], weights[order], np.append(starts, len(indices)), few, found)
    missing = np.zeros(len(features))
    marks = indicators[features[features < len(indicators)]]  # features rise, so that these come first
    places = np.searchsorted(features, np.maximum(marks, 0))
    there = (marks >= 0) & (places < len(features))
    there[there] = features[places[there]] == marks[there]
    missing[: len(marks)][there] = found[places[there], 0]
    weight, mean, distances = found.T.copy()
    return Moments(features, weight, mean, distances, missing, total)


def merged(parts: Sequence[Moments]) -> Moments:
    """What is known of the rows of all parts together (Chan et al. 1983)."""
    features = np.unique(np.concatenate([part.features for part in parts]))
    weight, mean, distances, missing = np.zeros((4, len(features)))
    for part in parts:
        at = np.searchsorted(features, part.features)
        both = weight[at] + part.weight
        share, move = part.weight / np.maximum(both, 1e-300), part.mean - mean[at]
        distances[at] += part.distances + np.square(move) * weight[at] * share
        mean[at] += move * share
        weight[at] = both
        missing[at] += part.missing
    return Moments(features, weight, mean, distances, missing, sum(part.total for part in parts))


@kernel
def clipped_moments(values, weights, starts, few, out):
    """Weight, mean and squared distances of each stretch; values far out count as if they were not so far."""
    for j in range(len(starts) - 1):
        a, b = starts[j], starts[j + 1]
        n, low, high = 0.0, -np.inf, np.inf
        for k in range(a, b):
            n += weights[k]
        mean = distances = 0.0
        for _ in range(ROUNDS):
            mean = 0.0
            for k in range(a, b):
                mean += weights[k] * min(max(np.float64(values[k]), low), high)
            mean /= max(n, 1e-300)
            distances = squares = 0.0
            far = False
            for k in range(a, b):
                x = min(max(np.float64(values[k]), low), high)
                distances += weights[k] * (x - mean) * (x - mean)
                squares += weights[k] * x * x
            center = mean if n > few else 0.0
            reach = CLIP * np.sqrt((distances if n > few else squares) / max(n, 1e-300))
            for k in range(a, b):
                x = min(max(np.float64(values[k]), low), high)
                far = far or abs(x - center) > reach * (1.0 + 1e-9)
            if not far or reach == 0.0:
                break
            low, high = center - reach, center + reach
        out[j, 0], out[j, 1], out[j, 2] = n, mean, distances


@inlined
def factor_for(n, mean, distances, size):
    """size / deviation; 0 for a constant feature."""
    deviation = max(np.sqrt(distances / n), SMALLEST * abs(mean)) if n > 0.0 and distances > 0.0 else 0.0
    return min(size / deviation, LARGEST_FACTOR) if deviation > 0.0 else 0.0


@inlined
def count_value(numbers, d, x, c, size, centred):
    """Welford's update; a value far out counts as one that is not so far."""
    n, mean, distances = numbers[d, 0], numbers[d, 1], numbers[d, 2]
    distance = x - mean
    if n >= CLIP_FROM and distances > 0.0:
        most = CLIP * np.sqrt(distances / n)
        distance = min(max(distance, -most), most)
    after = n + c
    if centred:
        move = distance * (c / after)
        numbers[d, 1] = mean + move
        numbers[d, 2] = distances + n * distance * move
    else:
        numbers[d, 2] = distances + c * distance * distance
    numbers[d, 0] = after
    numbers[d, 3] = factor_for(numbers[d, 0], numbers[d, 1], numbers[d, 2], size)


@inlined
def place_of(feature, table):
    """Where to look for a feature first."""
    return np.int64((np.uint64(feature) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & (len(table) - 1)


@quick
def fill_table(features, table):
    for i in range(len(features)):
        place = place_of(features[i], table)
        while table[place] >= 0:
            place = (place + 1) & (len(table) - 1)
        table[place] = i


@inlined
def factor_of(own, feature, usual):
    features, factors, table = own
    place = place_of(feature, table)
    while table[place] >= 0:
        if features[table[place]] == feature:
            return factors[table[place]]
        place = (place + 1) & (len(table) - 1)
    return usual


@kernel
def scale_rows(batch, counted, running, own, usual, size, centred, out_indptr, out_indices, out_values):
    """Count each row, then scale it; returns how many pairs there are."""
    indptr, indices, values, labels, weights = batch
    dense, numbers, indicators, rows = running
    count, most, small = len(dense), np.float64(LARGEST), np.float32(usual)
    absent = np.zeros(count, np.bool_)
    lowest = highest = np.int64(-1)
    for d in range(count):
        if indicators[d] >= 0:
            lowest = indicators[d] if lowest < 0 else min(lowest, indicators[d])
            highest = max(highest, indicators[d])
    place = 0
    out_indptr[0] = 0
    for i in range(len(labels)):
        c = 0.0
        if counted[i] > 0.0:
            rows[0] += 1
            if rows[0] <= ALL_ROWS:
                c = np.float64(counted[i])
            elif rows[0] % EVERY == 0:
                c = np.float64(counted[i]) * EVERY
        k, last, d = indptr[i], indptr[i + 1], 0
        if highest >= 0:
            mark_absent(indices, k, last, indicators, lowest, highest, absent)
        while k < last or d < count:
            if d == count or (k < last and indices[k] < dense[d]):
                x = np.float64(values[k]) * np.float64(factor_of(own, indices[k], small))
                out_indices[place], out_values[place] = indices[k], min(max(x, -most), most)
                place += 1
                k += 1
                continue
            x, lacking = 0.0, absent[d]
            if k < last and indices[k] == dense[d]:
                x, lacking = np.float64(values[k]), False
                k += 1
            if not lacking:
                if c > 0.0:
                    count_value(numbers, d, x, c, size, centred)
                if numbers[d, 3] > 0.0:
                    z = (x - numbers[d, 1]) * numbers[d, 3]
                    out_indices[place], out_values[place] = dense[d], min(max(z, -most), most)
                    place += 1
            d += 1
        out_indptr[i + 1] = place
    return place


@inlined
def mark_absent(indices, first, last, indicators, lowest, highest, absent):
    """Which dense features a row says are missing."""
    for d in range(len(absent)):
        absent[d] = False
    for k in range(first, last):
        j = np.int64(indices[k])
        if lowest <= j <= highest:
            for d in range(len(indicators)):
                if indicators[d] == j:
                    absent[d] = True
