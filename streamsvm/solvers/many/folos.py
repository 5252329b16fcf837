"""folos for several classes: see solvers/folos.py for the update, and solver.py here for the classes.

All classes shrink alike and owe alike, so that one scale and one debt serve them all. For feature j and n lanes v is at
[n j + k]. With l1 numbers are in double, v at [2 n j + k] and what is paid at [2 n j + n + k], since classes pay when
their slope is not zero.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Batch, Float32s, Float64s, Int64s
from streamsvm.jit import cold, inlined, kernel
from streamsvm.lanes import add_multiples, choose, in_single, load_lanes, store_lanes, zero_lanes
from streamsvm.penalties import soft
from streamsvm.rows import ONE, TWO, ZERO, rescale
from streamsvm.schedules import Schedule
from streamsvm.scoring import Offset
from streamsvm.solvers.base import BIAS, LOSS, OWN, SCALE, SMALLEST_SCALE, STEP, WEIGHT, WRONG, T
from streamsvm.solvers.folos import DEBT, Folos
from streamsvm.solvers.many.lane_rows import (
    best_class,
    fetch_classes,
    part_slopes,
    put_part,
    row_part,
    safe_rates,
    soft_lanes,
    tame,
)
from streamsvm.solvers.many.solver import SCRATCH, ManyClasses
from streamsvm.solvers.side_by_side_kernels import lanes_dot

SCORE, SLOPE = range(OWN + 1, OWN + 3)
NUMBERS = OWN + 1 + SCRATCH


class FolosClasses(ManyClasses):
    plain = Folos
    apart = (BIAS, LOSS)
    lanes_by = 4  # numbers in double fill the registers, so that fewer lanes at a time are as quick

    def run(self, batch: Batch, order: Int64s | None = None) -> int:
        loss, penalty, bias = self.problem
        visits, part = self._visits(batch, order)
        terms = loss, self._schedule(), penalty, bias, part
        arrays = self.vector, self._pairs(), self.scalars, self.numbers.reshape(-1)
        return int(folos_classes(batch, visits, *terms, *arrays))

    def weights(self) -> tuple[Float32s, Offset]:
        weights = np.empty((self.width, self.classes), np.float32)
        (table,) = self._used()
        if self.problem.penalty.l1:
            write_weights(table, self.scalars, weights)
        else:
            np.multiply(table[:, 0, : self.classes], np.float32(self.scalars[SCALE]), out=weights)
        return weights, self.numbers[BIAS, : self.classes].copy()

    def _schedule(self) -> Schedule:
        assert isinstance(self._one, Folos)
        self._one.scalars[STEP] = self.scalars[STEP]
        return self._one.schedule()

    def _pairs(self) -> Float64s | None:
        """v and what is paid, with l1."""
        return self.vector.view(np.float64) if self.problem.penalty.l1 else None

    def _tables(self, vector: Float32s, lanes: int) -> list[npt.NDArray[Any]]:
        if self.problem.penalty.l1:
            return [vector.view(np.float64).reshape(-1, 2, lanes)]
        return super()._tables(vector, lanes)

    def _total(self) -> float:
        return float(np.sum(self.weights()[0], dtype=np.float64))


@kernel
def write_weights(table, scalars, weights):
    scale, debt = scalars[SCALE], scalars[DEBT]
    for j in range(len(weights)):
        for k in range(weights.shape[1]):
            weights[j, k] = np.float32(scale * soft(table[j, 0, k], debt - table[j, 1, k]))


@inlined
def settled_dots(pairs, indices, values, a, b, lane, part, n, debt):
    """folos.settled_dot for each lane."""
    total = zero_lanes(part)
    for k in range(a, b):
        j = np.uint64(indices[k]) * (n << ONE) + lane
        v, paid = load_lanes(pairs, j, part), load_lanes(pairs, j + n, part)
        total = total + soft_lanes(v, debt - paid) * np.float64(values[k])
    return total


@inlined
def settled_steps(pairs, indices, values, a, b, lane, part, n, factors, moving, debt):
    """folos.settled_axpy for each lane that moves."""
    for k in range(a, b):
        j = np.uint64(indices[k]) * (n << ONE) + lane
        v, paid = load_lanes(pairs, j, part), load_lanes(pairs, j + n, part)
        v = choose(moving, soft_lanes(v, debt - paid), v)
        store_lanes(pairs, j, v + factors * np.float64(values[k]))
        store_lanes(pairs, j + n, choose(moving, debt, paid))


@inlined
def plain_steps(vector, indices, values, a, b, lane, n, factors):
    """rows.row_axpy for each lane."""
    for k in range(a, b):
        add_multiples(vector, np.uint64(indices[k]) * n + lane, factors, values[k])


@cold
def settle_classes(pairs, n, scale, debt):
    """folos.settle for all lanes."""
    for j in range(0, len(pairs), 2 * n):
        for k in range(j, j + n):
            pairs[k] = scale * soft(pairs[k], debt - pairs[k + n])
            pairs[k + n] = 0.0


@kernel
def folos_classes(batch, order, loss, schedule, penalty, bias, part, vector, pairs, scalars, numbers):
    indptr, indices, values, labels, weights = batch
    n, last_scalar = np.uint64(len(numbers) // NUMBERS), len(scalars) - 1
    scale, t, debt, known = scalars[SCALE], scalars[T], scalars[DEBT], int(scalars[last_scalar])
    seen, wrong, bad = scalars[WEIGHT], scalars[WRONG], -1
    for place in range(len(order)):
        i = order[place]
        c = float(weights[i])
        if c == 0.0:
            continue
        first, last, own = np.uint64(indptr[i]), np.uint64(indptr[i + 1]), int(labels[i])
        t += c
        eta = schedule.rate(t)
        shrink = penalty.shrink(c * eta * bias.decay)
        for lane in range(ZERO, n, np.uint64(len(part))):
            if pairs is None:
                sums = lanes_dot(vector, indices, values, first, last, n, lane, part)
            else:
                sums = settled_dots(pairs, indices, values, first, last, lane, part, n, debt)
            if lane == ZERO:
                fetch_classes(vector, indptr, indices, order, place + 1, n if pairs is None else n << TWO)
            b = row_part(BIAS, lane, part, n, numbers)
            scores = scale * sums + b
            if not tame(scores):
                bad = i
            put_part(SCORE, lane, n, numbers, scores)
            moving, steep = part_slopes(loss, own, c, lane, part, n, SCORE, SLOPE, LOSS, numbers)

            if moving > 0:
                slopes = row_part(SLOPE, lane, part, n, numbers)
                steps = slopes * safe_rates(c * eta, loss, slopes, steep, values, first, last, bias.gain, part)
                if pairs is None:
                    plain_steps(vector, indices, values, first, last, lane, n, in_single(-steps / scale))
                else:
                    factors = -steps / scale
                    settled_steps(pairs, indices, values, first, last, lane, part, n, factors, slopes != 0.0, debt)
                b = b - steps * bias.gain
            put_part(BIAS, lane, n, numbers, b * shrink)
        if bad >= 0:
            break
        seen += c
        if best_class(known, n, SCORE, numbers) != own:
            wrong += c
        known = max(known, own + 1)
        debt += penalty.threshold(c * eta) / scale
        scale *= penalty.shrink(c * eta)
        if scale < SMALLEST_SCALE:
            if pairs is None:
                rescale(vector, scale)
            else:
                settle_classes(pairs, np.int64(n), scale, debt)
            scale, debt = 1.0, 0.0
    scalars[SCALE], scalars[T], scalars[DEBT], scalars[last_scalar] = scale, t, debt, known
    scalars[WEIGHT], scalars[WRONG] = seen, wrong
    return bad
