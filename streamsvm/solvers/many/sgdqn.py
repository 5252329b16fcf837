"""sgdqn for several classes: see solvers/sgdqn.py for the update, and solver.py here for the classes.

The clock, and so growth, is the same for all classes; secants, and so the curvature found, are not. For feature j and n
lanes v is at [2 n j + k], extra at [2 n j + n + k].
"""

import numpy as np

from streamsvm.batch import Batch, Float32s, Int64s
from streamsvm.jit import cold, inlined, kernel
from streamsvm.lanes import (
    add_multiples,
    choose,
    in_double,
    in_single,
    least,
    load_lanes,
    size_of,
    spread_lanes,
    store_lanes,
    zero_lanes,
)
from streamsvm.rows import ONE, ZERO
from streamsvm.scoring import Offset
from streamsvm.solvers.base import BIAS, LOSS, OWN, STEP, WEIGHT, WRONG, T
from streamsvm.solvers.many.lane_rows import (
    best_class,
    fetch_classes,
    part_slopes,
    place_of,
    put_part,
    row_part,
    tame,
)
from streamsvm.solvers.many.solver import SCRATCH, ManyClasses
from streamsvm.solvers.sgdqn import (
    EXTRA_BIAS,
    GOLDEN,
    KNOWN,
    NEXT,
    ROWS_SINCE,
    STEEPEST,
    WEIGHT_SINCE,
    Plan,
    Sgdqn,
    fade,
)

SCORE, SLOPE, SHARE, SLACK = range(OWN + 4, OWN + 8)
NUMBERS = OWN + 4 + SCRATCH


class SgdqnClasses(ManyClasses):
    plain = Sgdqn
    apart = (BIAS, EXTRA_BIAS, LOSS)
    lanes_by = 4  # numbers in double fill the registers, so that fewer lanes at a time are as quick

    def run(self, batch: Batch, order: Int64s | None = None) -> int:
        if self.scalars[KNOWN]:
            self.scalars[KNOWN] = 0.0
            (table,) = self._used()
            table[:, 0] *= np.float32(self._growth())
        loss, penalty, bias = self.problem
        visits, part = self._visits(batch, order)
        assert isinstance(self._one, Sgdqn)
        plan = Plan(float(self.scalars[STEP]), penalty.l2, self._one.skip)
        arrays = self.vector, self.scalars, self.numbers.reshape(-1)
        return int(sgdqn_classes(batch, visits, loss, plan, bias, part, *arrays))

    def weights(self) -> tuple[Float32s, Offset]:
        table = self._used()[0][:, :, : self.classes]
        growth = np.float32(1.0 if self.scalars[KNOWN] else self._growth())
        return table[:, 0] / (table[:, 1] + growth), self.numbers[BIAS, : self.classes].copy()

    def turn_back(self, before: float, after: float) -> None:
        if not self.scalars[KNOWN]:
            fade(self._used()[0], self.problem.l2 * float(self.scalars[STEP]), before, after)
            self.numbers[EXTRA_BIAS] *= after / before

    def _growth(self) -> float:
        return 1.0 + self.problem.l2 * float(self.scalars[STEP]) * float(self.scalars[T])


@inlined
def scaled_dots(vector, indices, values, a, b, lane, part, n, growth):
    """sgdqn.scaled_dot for each lane."""
    total = zero_lanes(part)
    for k in range(a, b):
        j = np.uint64(indices[k]) * (n << ONE) + lane
        v, extra = in_double(load_lanes(vector, j, part)), in_double(load_lanes(vector, j + n, part))
        total = total + v / (growth + extra) * np.float64(values[k])
    return total


@inlined
def scaled_norms(vector, indices, values, a, b, lane, part, n, growth):
    """sgdqn.scaled_norm2 for each lane."""
    total = zero_lanes(part)
    for k in range(a, b):
        extra = in_double(load_lanes(vector, np.uint64(indices[k]) * (n << ONE) + n + lane, part))
        total = total + np.float64(values[k]) * np.float64(values[k]) / (growth + extra)
    return total


@inlined
def rounded_lanes(value, old, turn):
    """sgdqn.rounded for each lane."""
    near = in_double(in_single(value))
    unit = in_double(in_single(near * (1.0 + NEXT))) - near
    new = in_single(value + turn * unit)
    return choose(size_of(new) < size_of(old), old, new)


@inlined
def stiffen_lanes(vector, indices, values, a, b, lane, part, n, growth, slacks, largest, turn):
    """sgdqn.stiffen for each lane that has a slack."""
    for k in range(a, b):
        if values[k] != 0.0:
            j = np.uint64(indices[k]) * (n << ONE) + lane
            v, extra = load_lanes(vector, j, part), load_lanes(vector, j + n, part)
            before = growth + in_double(extra)
            more = least(spread_lanes(largest, part), slacks * before)
            stiffer = rounded_lanes(in_double(extra) + more, extra, turn)
            moved = rounded_lanes(in_double(v) * ((growth + in_double(stiffer)) / before), v, turn)
            store_lanes(vector, j, choose(slacks > 0.0, moved, v))
            store_lanes(vector, j + n, choose(slacks > 0.0, stiffer, extra))


@cold
def find_secants(loss, own, weight, plan, row, lane, part, n, growth, turn, vector, numbers):
    """What the change of slopes says about the curvature, in one part of the lanes."""
    indices, values, first, last = row
    scores = scaled_dots(vector, indices, values, first, last, lane, part, n, growth)
    put_part(SCORE, lane, n, numbers, scores + row_part(BIAS, lane, part, n, numbers))
    largest, bent = weight * (STEEPEST - 1.0) * plan.l2 * plan.eta0, False
    for k in range(lane, lane + np.uint64(len(part))):
        slope, slack = numbers[place_of(SLOPE, n, k)], 0.0
        if slope != 0.0:
            after = loss.slope(numbers[place_of(SCORE, n, k)], 1.0 if k == np.uint64(own) else -1.0)
            slack = weight * (slope - after) / (slope * numbers[place_of(SHARE, n, k)])
        numbers[place_of(SLACK, n, k)] = slack
        if slack > 0.0:
            extra_b = numbers[place_of(EXTRA_BIAS, n, k)]
            numbers[place_of(EXTRA_BIAS, n, k)] = extra_b + min(largest, slack * (growth + extra_b))
            bent = True
    if bent:
        slacks = row_part(SLACK, lane, part, n, numbers)
        stiffen_lanes(vector, indices, values, first, last, lane, part, n, growth, slacks, largest, turn)


@kernel
def sgdqn_classes(batch, order, loss, plan, bias, part, vector, scalars, numbers):
    indptr, indices, values, labels, weights = batch
    eta0, l2, skip = plan
    n, last_scalar, bend = np.uint64(len(numbers) // NUMBERS), len(scalars) - 1, loss.bend()
    t, known = scalars[T], int(scalars[last_scalar])
    rows_since, weight_since = scalars[ROWS_SINCE], scalars[WEIGHT_SINCE]
    seen, wrong, bad = scalars[WEIGHT], scalars[WRONG], -1
    for place in range(len(order)):
        i = order[place]
        c = float(weights[i])
        if c == 0.0:
            continue
        first, last, own = np.uint64(indptr[i]), np.uint64(indptr[i + 1]), int(labels[i])
        before = 1.0 + l2 * eta0 * t
        t += c
        growth = 1.0 + l2 * eta0 * t
        rows_since += 1.0
        weight_since += c
        for lane in range(ZERO, n, np.uint64(len(part))):
            sums = scaled_dots(vector, indices, values, first, last, lane, part, n, before)
            if lane == ZERO:
                fetch_classes(vector, indptr, indices, order, place + 1, n << ONE)
            b = row_part(BIAS, lane, part, n, numbers)
            scores = sums + b
            if not tame(scores):
                bad = i
            put_part(SCORE, lane, n, numbers, scores)
            moving, steep = part_slopes(loss, own, c, lane, part, n, SCORE, SLOPE, LOSS, numbers)

            rates_b = eta0 / (growth + row_part(EXTRA_BIAS, lane, part, n, numbers))
            b = b * (1.0 - c * l2 * rates_b * bias.decay)
            if moving > 0:
                slopes, shares = row_part(SLOPE, lane, part, n, numbers), spread_lanes(np.float64(c), part)
                if steep > 0:
                    reach = eta0 * scaled_norms(vector, indices, values, first, last, lane, part, n, growth)
                    safe = least(shares, 1.0 / (bend * (reach + rates_b * bias.gain)))
                    shares = choose(size_of(slopes) > bend, safe, shares)
                put_part(SHARE, lane, n, numbers, shares)
                factors = in_single(-shares * eta0 * slopes)
                for k in range(first, last):
                    add_multiples(vector, np.uint64(indices[k]) * (n << ONE) + lane, factors, values[k])
                b = b - shares * rates_b * slopes * bias.gain
            put_part(BIAS, lane, n, numbers, b)
            if moving > 0 and rows_since >= skip:
                row = indices, values, first, last
                turn = GOLDEN * t % 1.0 - 0.5
                find_secants(loss, own, weight_since, plan, row, lane, part, n, growth, turn, vector, numbers)
                put_part(SCORE, lane, n, numbers, scores)
        if bad >= 0:
            break
        if rows_since >= skip:
            rows_since = weight_since = 0.0
        seen += c
        if best_class(known, n, SCORE, numbers) != own:
            wrong += c
        known = max(known, own + 1)
    scalars[T], scalars[last_scalar] = t, known
    scalars[ROWS_SINCE], scalars[WEIGHT_SINCE] = rows_since, weight_since
    scalars[WEIGHT], scalars[WRONG] = seen, wrong
    return bad
