"""adagrad for several classes: see solvers/adagrad.py for the update, and solver.py here for the classes.

Rows whose slope is zero use nothing, and slopes differ by class, so that every class has clocks of its own. For feature
j and n lanes w is at [4 n j + k], the root of the squared slopes at [4 n j + n + k], and the time of the last use, in
double, at [2 n j + n + k] of the same memory. Without a penalty there are no clocks, and 2 n numbers for each feature.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Batch, Float32s, Float64s, Int64s
from streamsvm.jit import inlined, kernel
from streamsvm.lanes import choose, in_single, load_lanes, root_of, size_of, spread_lanes, store_lanes, zero_lanes
from streamsvm.rows import ONE, TWO, ZERO
from streamsvm.scoring import Offset
from streamsvm.solvers.adagrad import BIAS_ROOT, DELTA, GIVEN, Adagrad, fade, paid
from streamsvm.solvers.base import BIAS, LOSS, OWN, STEP, WEIGHT, WRONG, T
from streamsvm.solvers.many.lane_rows import (
    best_class,
    fetch_classes,
    gathered_dots,
    part_slopes,
    put_part,
    row_part,
    soft_lanes,
    steep_shares,
    tame,
)
from streamsvm.solvers.many.solver import SCRATCH, ManyClasses
from streamsvm.solvers.own_steps import longest_row

SCORE, SLOPE, SHARE = range(OWN + 2, OWN + 5)
NUMBERS = OWN + 2 + SCRATCH


class AdagradClasses(ManyClasses):
    plain = Adagrad
    apart = (BIAS, BIAS_ROOT, LOSS)

    def run(self, batch: Batch, order: Int64s | None = None) -> int:
        if self.scalars[GIVEN]:
            self._place_known()
        loss, penalty, bias = self.problem
        visits, part = self._visits(batch, order)
        terms = loss, penalty.l1, penalty.l2, bias, part
        arrays = self.vector, self._clocks(), self.scalars, self.numbers.reshape(-1)
        return int(adagrad_classes(batch, visits, *terms, *arrays))

    def weights(self) -> tuple[Float32s, Offset]:
        table, *clocks = self._used()
        weights, bias = table[:, 0, : self.classes].copy(), self.numbers[BIAS, : self.classes].copy()
        if clocks and not self.scalars[GIVEN]:
            write_weights(self.problem.penalty.l1, self.problem.l2, table, clocks[0], self.scalars, weights)
        return weights, bias

    def turn_back(self, before: float, after: float) -> None:
        if self.scalars[GIVEN]:
            return
        (table, *clocks), penalty = self._used(), self.problem.penalty
        times = clocks[0] if clocks else None
        fade(penalty.l1, penalty.l2, float(self.scalars[STEP]), table, times, before, after)
        self.numbers[BIAS_ROOT] *= math.sqrt(after / before)

    def _place_known(self) -> None:
        for k in range(self.classes):
            solver = self.one(k)
            assert isinstance(solver, Adagrad)
            solver._place_known()
            self._put(k, solver)
        self.scalars[GIVEN] = 0.0

    def _clocks(self) -> Float64s | None:
        return self.vector.view(np.float64) if self._one.columns == 4 else None

    def _tables(self, vector: Float32s, lanes: int) -> list[npt.NDArray[Any]]:
        (table,) = super()._tables(vector, lanes)
        if self._one.columns == 2:
            return [table]
        return [table[:, :2], vector.view(np.float64).reshape(-1, 2, lanes)[:, 1:]]

    def _total(self) -> float:
        return float(np.sum(self._used()[0], dtype=np.float64))


@kernel
def write_weights(l1, l2, table, clocks, scalars, weights):
    t, eta0 = scalars[T], scalars[STEP]
    l1, l2, delta = np.float32(l1), np.float32(l2), np.float32(DELTA / eta0)
    for j in range(len(weights)):
        for k in range(weights.shape[1]):
            since = np.float32(eta0 * (t - clocks[j, 0, k]))
            weights[j, k] = paid(table[j, 0, k], table[j, 1, k] + delta, since, l1, l2)


@inlined
def gather_due(vector, clocks, indices, a, size, stride, lane, part, n, terms, w):
    """The weights of the row's features in one part of the lanes, after they have paid, side by side in w."""
    eta0, t, l1, l2, delta = terms
    for k in range(size):
        j = np.uint64(indices[a + k]) * stride
        found = load_lanes(vector, j + lane, part)
        if clocks is not None:
            roots = load_lanes(vector, j + n + lane, part)
            since = in_single(eta0 * (t - load_lanes(clocks, (j >> ONE) + n + lane, part)))
            found = soft_lanes(found, since * (size_of(found) * l2 + l1) / (roots + delta + since * l2))
        store_lanes(w, k * np.uint64(len(part)), found)


@inlined
def use(vector, clocks, indices, values, a, size, stride, lane, part, n, c, terms, w, numbers):
    """r_j and w_j after the row, in lanes whose slope is not zero; the others keep their roots, as in ftrl.py."""
    eta0, t, _, _, delta = terms
    slopes = row_part(SLOPE, lane, part, n, numbers)
    moving, parts = slopes != 0.0, in_single(math.sqrt(c) * slopes)
    steps = in_single(row_part(SHARE, lane, part, n, numbers) * eta0 * slopes)
    for k in range(size):
        j = np.uint64(indices[a + k]) * stride
        clock = (j >> ONE) + n + lane
        before, roots = load_lanes(vector, j + lane, part), load_lanes(vector, j + n + lane, part)
        used = zero_lanes(part)
        if clocks is not None:
            used = load_lanes(clocks, clock, part)
        g = parts * values[a + k]
        grown = root_of(roots * roots + g * g)
        before = choose(moving, load_lanes(w, k * np.uint64(len(part)), part), before)
        store_lanes(vector, j + lane, before - steps * values[a + k] / (grown + delta))
        store_lanes(vector, j + n + lane, grown)
        if clocks is not None:
            store_lanes(clocks, clock, choose(moving, t, used))


@kernel
def adagrad_classes(batch, order, loss, l1, l2, bias, part, vector, clocks, scalars, numbers):
    indptr, indices, values, labels, weights = batch
    n, last_scalar = np.uint64(len(numbers) // NUMBERS), len(scalars) - 1
    stride = n << ONE if clocks is None else n << TWO
    t, eta0, known = scalars[T], scalars[STEP], int(scalars[last_scalar])
    seen, wrong, bad = scalars[WEIGHT], scalars[WRONG], -1
    longest = longest_row(indptr)
    w, roots = np.empty(longest * len(part), np.float32), np.empty(longest, np.float32)
    delta = DELTA / eta0
    for place in range(len(order)):
        i = order[place]
        c = np.float64(weights[i])
        if c == 0.0:
            continue
        first, own = np.uint64(indptr[i]), int(labels[i])
        size = np.uint64(indptr[i + 1]) - first
        terms = eta0, t, np.float32(l1), np.float32(l2), np.float32(delta)
        shrink = c * eta0 * l2 * bias.decay
        for lane in range(ZERO, n, np.uint64(len(part))):
            gather_due(vector, clocks, indices, first, size, stride, lane, part, n, terms, w)
            scores = gathered_dots(w, values, first, size, part)
            if lane == ZERO:
                fetch_classes(vector, indptr, indices, order, place + 1, stride)
            b, b_root = row_part(BIAS, lane, part, n, numbers), row_part(BIAS_ROOT, lane, part, n, numbers)
            scores = scores + b
            if not tame(scores):
                bad = i
            put_part(SCORE, lane, n, numbers, scores)
            moving, steep = part_slopes(loss, own, c, lane, part, n, SCORE, SLOPE, LOSS, numbers)

            if moving > 0:
                slopes = row_part(SLOPE, lane, part, n, numbers)
                b_root = choose(slopes != 0.0, root_of(b_root * b_root + c * slopes * slopes * bias.gain), b_root)
                b_reach = eta0 * bias.gain / (b_root + delta)
                put_part(SHARE, lane, n, numbers, spread_lanes(c, part))
                if steep > 0:
                    put_part(SHARE, lane, n, numbers, b_reach)
                    row = indices, values, first, size
                    rates = 1.0 / eta0, delta / eta0
                    steep_shares(vector, *row, stride, lane, part, n, c, loss, rates, roots, SLOPE, SHARE, numbers)
                use(vector, clocks, indices, values, first, size, stride, lane, part, n, c, terms, w, numbers)
                b = b - row_part(SHARE, lane, part, n, numbers) * slopes * b_reach
                put_part(BIAS_ROOT, lane, n, numbers, b_root)
            put_part(BIAS, lane, n, numbers, b - b * shrink / (b_root + delta + shrink))
        if bad >= 0:
            break
        t += c
        seen += c
        if best_class(known, n, SCORE, numbers) != own:
            wrong += c
        known = max(known, own + 1)
    scalars[T], scalars[last_scalar] = t, known
    scalars[WEIGHT], scalars[WRONG] = seen, wrong
    return bad
