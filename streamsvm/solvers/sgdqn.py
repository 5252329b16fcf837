"""sgdqn: stochastic gradient descent with a step size B_j for each feature, found from secants (quasi-Newton).

    minimise   l2/2 ||w||^2 + mean of c_i loss(w.x_i + b, y_i)
    each row   t += c;  1/B_j += c l2;  w_j -= c B_j (l2 w_j + slope x_j),  for all j;  1/B_j begins at 1/eta0
    at every skip-th row, after its step, for its features, with W the weight of the last `skip` rows
               1/B_j += W (r_j - l2),  r_j = l2 + (change of slope) x_j / (change of w_j), at least l2, at most 100 l2

    Bordes, Bottou, Gallinari 2009, with the erratum of 2010. Cost per row: two walks over its features, divisions in
    the first of them; two more at every skip-th row.

Stored as v_j = eta0 w_j / B_j and the curvature found beyond l2, extra_j: eta0 / B_j = growth + extra_j, where growth =
1 + l2 eta0 t is one number for all. Then shrinking costs nothing: since 1/B_j grows by just c l2, a row only does
v_j -= c eta0 slope x_j at its own features. This is the update above and no approximation of it. The change of w_j in
r_j is that of the slope's step, -c B_j slope x_j; where the slope is 0 or did not change, r_j = l2. The bias is one
more feature, with a B of its own.
Choose it for hinge losses on sparse rows whose features differ much in frequency. A secant takes a whole row's
curvature for each feature's own, so that with smooth losses steps soon get too short; there `asgd` is better.
"""

import math
from typing import NamedTuple

import numpy as np

from streamsvm.batch import Batch, Float32s, Int64s
from streamsvm.jit import inlined, kernel
from streamsvm.rows import ONE, fetch_ahead
from streamsvm.solvers.base import (
    BIAS,
    LARGEST_SCORE,
    LOSS,
    OWN,
    STEP,
    WEIGHT,
    WRONG,
    OnlineSolver,
    Problem,
    T,
    row_order,
)

KNOWN, EXTRA_BIAS, ROWS_SINCE, WEIGHT_SINCE = range(OWN, OWN + 4)
STEEPEST = 100.0  # r_j is at most this many times l2
NEXT = 1.001 * 2.0**-24  # of a float32: more than half a unit in its last place, less than 3/2
GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)  # its multiples wander evenly through the fractions


class Plan(NamedTuple):
    """How steps are taken: the first step size, what shrinks, and the rows from one secant to the next."""

    eta0: float
    l2: float
    skip: int


class Sgdqn(OnlineSolver):
    name = "sgdqn"
    own_scalars = 4
    walks = True
    exempt = dict.fromkeys(
        (
            "test_a_free_bias_approaches_scikit_learns_unpenalised_intercept",
            "test_repeating_a_row_and_doubling_its_weight_lead_to_the_same_place",
        ),
        "a secant takes a whole row's curvature for each feature's own: steps soon get short, and the end comes late",
    )

    def __init__(
        self,
        problem: Problem,
        *,
        eta0: float | None = None,
        skip: int = 16,
        dim: int = 0,
        memory: int | None = None,
    ) -> None:
        self.skip = skip
        super().__init__(problem, eta0=eta0, dim=dim, memory=memory)

    def columns_for(self) -> int:
        return 2

    def fresh(self, eta0: float) -> "Sgdqn":
        return Sgdqn(self.problem, eta0=eta0, skip=self.skip)

    def run(self, batch: Batch, order: Int64s | None = None) -> int:
        if self.scalars[KNOWN]:
            self.scalars[KNOWN] = 0.0
            self.vector[0::2] *= np.float32(self._growth())
        loss, penalty, bias = self.problem
        plan = Plan(float(self.scalars[STEP]), penalty.l2, self.skip)
        return int(sgdqn_pass(batch, row_order(batch, order), loss, plan, bias, self.vector, self.scalars))

    def weights(self) -> tuple[Float32s, float]:
        pairs = self.vector[: 2 * self.width]
        growth = np.float32(1.0 if self.scalars[KNOWN] else self._growth())
        return pairs[0::2] / (pairs[1::2] + growth), float(self.scalars[BIAS])

    def start_from(self, weights: Float32s, bias: float) -> None:
        """Kept as they are until the first row: only then the clock and the step size are certain."""
        self._reserve(len(weights))
        self.vector[0 : 2 * len(weights) : 2] = weights
        self.scalars[BIAS] = bias
        self.scalars[KNOWN] = 1.0

    def turn_back(self, before: float, after: float) -> None:
        """1/B_j of all features is as if fewer rows had come."""
        if not self.scalars[KNOWN]:  # else v is not in use yet
            fade(self.vector.reshape(-1, 2, 1), self.problem.l2 * float(self.scalars[STEP]), before, after)
            self.scalars[EXTRA_BIAS] *= after / before

    def _growth(self) -> float:
        return 1.0 + self.problem.l2 * float(self.scalars[STEP]) * float(self.scalars[T])


@kernel
def fade(table, rate, before, after):
    """extra_j shrinks as growth = 1 + rate t does, and v_j so that w_j stays."""
    kept, growth, new_growth = after / before, 1.0 + rate * before, 1.0 + rate * after
    for j in range(len(table)):
        for k in range(table.shape[2]):
            v, extra = np.float64(table[j, 0, k]), np.float64(table[j, 1, k])
            if v != 0.0 or extra != 0.0:
                less = np.float32(extra * kept)
                table[j, 0, k] = np.float32(v * ((new_growth + np.float64(less)) / (growth + extra)))
                table[j, 1, k] = less


@inlined
def scaled_dot(pairs, indices, values, a, b, growth):
    """Sum of v_j / (growth + extra_j) * x_j: the row's w.x."""
    total = 0.0
    for k in range(np.uint64(a), np.uint64(b)):
        j = np.uint64(indices[k]) << ONE
        total += np.float64(pairs[j]) / (growth + np.float64(pairs[j + ONE])) * np.float64(values[k])
    return total


@inlined
def scaled_norm2(pairs, indices, values, a, b, growth):
    """Sum of x_j^2 / (growth + extra_j): how far a step of one moves the row's score."""
    total = 0.0
    for k in range(np.uint64(a), np.uint64(b)):
        j = np.uint64(indices[k]) << ONE
        total += np.float64(values[k]) * np.float64(values[k]) / (growth + np.float64(pairs[j + ONE]))
    return total


@inlined
def first_axpy(pairs, indices, values, a, b, factor):
    """v_j += factor x_j."""
    small = np.float32(factor)
    for k in range(np.uint64(a), np.uint64(b)):
        pairs[np.uint64(indices[k]) << ONE] += small * values[k]


@inlined
def rounded(value, old, turn):
    """value, not smaller than old, in single precision: up or down by turns, where nearest would often be old again.

    After 10^8 rows changes are smaller than a unit in the last place. Shifted by `turn`, which wanders evenly from -1/2
    to 1/2 of that unit, they add up to what they are.
    """
    near = np.float64(np.float32(value))
    unit = np.float64(np.float32(near * (1.0 + NEXT))) - near
    new = np.float32(value + turn * unit)
    return old if abs(new) < abs(old) else new


@inlined
def stiffen(pairs, indices, values, a, b, growth, slack, most, turn):
    """extra_j += min(most, slack eta0 / B_j) at the row's features; w_j stays as it is."""
    for k in range(np.uint64(a), np.uint64(b)):
        if values[k] != 0.0:
            j = np.uint64(indices[k]) << ONE
            v, extra = pairs[j], pairs[j + ONE]
            before = growth + np.float64(extra)
            pairs[j + ONE] = rounded(np.float64(extra) + min(most, slack * before), extra, turn)
            pairs[j] = rounded(np.float64(v) * ((growth + np.float64(pairs[j + ONE])) / before), v, turn)


@kernel
def sgdqn_pass(batch, order, loss, plan, bias, vector, scalars):
    indptr, indices, values, labels, weights = batch
    eta0, l2, skip = plan
    t, b, extra_b = scalars[T], scalars[BIAS], scalars[EXTRA_BIAS]
    rows_since, weight_since = scalars[ROWS_SINCE], scalars[WEIGHT_SINCE]
    seen, total, wrong = scalars[WEIGHT], scalars[LOSS], scalars[WRONG]
    for place in range(len(order)):
        i = order[place]
        fetch_ahead(vector, indptr, indices, order, place, ONE)
        c = float(weights[i])
        if c == 0.0:
            continue
        first, last = indptr[i], indptr[i + 1]
        label = 2.0 * labels[i] - 1.0
        score = scaled_dot(vector, indices, values, first, last, 1.0 + l2 * eta0 * t) + b
        if not abs(score) < LARGEST_SCORE:
            return i
        seen += c
        total += c * loss.value(score, label)
        if (score > 0.0) != (label > 0.0):
            wrong += c

        t += c
        growth = 1.0 + l2 * eta0 * t
        rate_b = eta0 / (growth + extra_b)
        b *= 1.0 - c * l2 * rate_b * bias.decay
        slope, bend = loss.slope(score, label), loss.bend()
        share = c
        if bend > 0.0 and abs(slope) > bend:  # see safe_rate in rows.py
            reach = eta0 * scaled_norm2(vector, indices, values, first, last, growth) + rate_b * bias.gain
            share = min(c, 1.0 / (bend * reach))
        if slope != 0.0:
            first_axpy(vector, indices, values, first, last, -share * eta0 * slope)
            b -= share * rate_b * slope * bias.gain

        rows_since += 1.0
        weight_since += c
        if rows_since >= skip:
            if slope != 0.0:
                after = loss.slope(scaled_dot(vector, indices, values, first, last, growth) + b, label)
                slack = weight_since * (slope - after) / (slope * share)
                most = weight_since * (STEEPEST - 1.0) * l2 * eta0
                if slack > 0.0:
                    stiffen(vector, indices, values, first, last, growth, slack, most, GOLDEN * t % 1.0 - 0.5)
                    extra_b += min(most, slack * (growth + extra_b))
            rows_since = weight_since = 0.0
    scalars[T], scalars[BIAS], scalars[EXTRA_BIAS] = t, b, extra_b
    scalars[ROWS_SINCE], scalars[WEIGHT_SINCE] = rows_since, weight_since
    scalars[WEIGHT], scalars[LOSS], scalars[WRONG] = seen, total, wrong
    return -1
