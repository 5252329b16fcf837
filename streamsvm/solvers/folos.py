"""folos: a gradient step, then the penalty's own proximal step; finds weights that are exactly zero.

    minimise   l2/2 ||w||^2 + l1 ||w||_1 + mean of c_i loss(w.x_i + b, y_i)
    each row   t += c;  eta = 1 / (l2 (t + t0)), or eta0 / sqrt(1 + t / 1000) without l2;  w -= c eta slope x
               w_j = sign(w_j) max(0, |w_j| - c eta l1);  w *= 1 / (1 + c eta l2)

    Duchi, Singer, "Efficient online and batch learning using forward backward splitting", 2009.
    Cost per row: two walks over its features; with l1 16 bytes for each feature, otherwise 4.

Only the row's features are touched. Stored as w = scale v, so that shrinking costs nothing. `debt` sums what L1 has
taken from every |v_j| so far, and each feature remembers how much of that it has `paid`; the rest is due when the
feature is used next. Thresholds add up, so that late payment is exact. Both are in double: in single precision whole
steps would be lost after 10^7 rows. t0 = 1 / (l2 eta0); eta0 is chosen by trial on the first rows.
Choose it for a sparse model with few settings; `ftrl` finds better ones where some features are frequent, others rare.
"""

import numpy as np

from streamsvm.batch import Batch, Float32s, Float64s, Int64s
from streamsvm.jit import cold, inlined, kernel
from streamsvm.penalties import soft
from streamsvm.rows import ONE, ZERO, fetch_ahead, rescale, row_axpy, row_dot, safe_rate
from streamsvm.schedules import InverseRoot, InverseTime, Schedule
from streamsvm.solvers.base import (
    BIAS,
    LARGEST_SCORE,
    LOSS,
    OWN,
    SCALE,
    SMALLEST_SCALE,
    STEP,
    WEIGHT,
    WRONG,
    OnlineSolver,
    T,
    row_order,
)

DEBT = OWN


class Folos(OnlineSolver):
    name = "folos"
    penalties = ("l2", "l1", "elastic_net", "none")
    own_scalars = 1

    def columns_for(self) -> int:
        return 4 if self.problem.penalty.l1 else 1

    def run(self, batch: Batch, order: Int64s | None = None) -> int:
        loss, penalty, bias = self.problem
        terms = loss, self.schedule(), penalty, bias
        return int(folos_pass(batch, row_order(batch, order), *terms, self._numbers(), self.scalars))

    def schedule(self) -> Schedule:
        l2, eta0 = self.problem.l2, float(self.scalars[STEP])
        return InverseTime(l2, 1.0 / (l2 * eta0)) if l2 else InverseRoot(eta0)

    def weights(self) -> tuple[Float32s, float]:
        weights = np.empty(self.width, np.float32)
        write_weights(self.problem.penalty, self._numbers(), self.scalars, weights)
        return weights, float(self.scalars[BIAS])

    def start_from(self, weights: Float32s, bias: float) -> None:
        self._reserve(len(weights))
        stride = 2 if self.problem.penalty.l1 else 1
        self._numbers()[: stride * len(weights) : stride] = weights
        self.scalars[BIAS] = bias

    def _total(self) -> float:
        return float(np.sum(self.weights()[0], dtype=np.float64))

    def _numbers(self) -> Float32s | Float64s:
        """v, or with l1 v and what is paid, for each feature."""
        return self.vector.view(np.float64) if self.problem.penalty.l1 else self.vector


@kernel
def write_weights(penalty, vector, scalars, weights):
    scale, debt = scalars[SCALE], scalars[DEBT]
    for j in range(len(weights)):
        if penalty.zeros():
            weights[j] = np.float32(scale * soft(vector[2 * j], debt - vector[2 * j + 1]))
        else:
            weights[j] = np.float32(scale) * np.float32(vector[j])


@inlined
def settled_dot(pairs, indices, values, a, b, debt):
    """Sum of v_j x_j at the row's features j, with what v_j still owes taken off."""
    total = 0.0
    for k in range(np.uint64(a), np.uint64(b)):
        j = np.uint64(indices[k]) << ONE
        total += soft(pairs[j], debt - pairs[j + ONE]) * np.float64(values[k])
    return total


@inlined
def settled_axpy(pairs, indices, values, a, b, factor, debt):
    """v_j += factor x_j at the row's features j, after they have paid."""
    for k in range(np.uint64(a), np.uint64(b)):
        j = np.uint64(indices[k]) << ONE
        pairs[j] = soft(pairs[j], debt - pairs[j + ONE]) + factor * np.float64(values[k])
        pairs[j + ONE] = debt


@cold
def settle(pairs, scale, debt):
    """Everyone pays, and w is written out: afterwards scale = 1 and debt = 0."""
    for j in range(0, len(pairs), 2):
        pairs[j] = scale * soft(pairs[j], debt - pairs[j + 1])
        pairs[j + 1] = 0.0


@kernel
def folos_pass(batch, order, loss, schedule, penalty, bias, vector, scalars):
    indptr, indices, values, labels, weights = batch
    scale, t, b, debt = scalars[SCALE], scalars[T], scalars[BIAS], scalars[DEBT]
    seen, total, wrong = scalars[WEIGHT], scalars[LOSS], scalars[WRONG]
    for place in range(len(order)):
        i = order[place]
        fetch_ahead(vector, indptr, indices, order, place, ONE if penalty.zeros() else ZERO)
        c = float(weights[i])
        if c == 0.0:
            continue
        first, last = indptr[i], indptr[i + 1]
        label = 2.0 * labels[i] - 1.0
        if penalty.zeros():
            score = scale * settled_dot(vector, indices, values, first, last, debt) + b
        else:
            score = scale * row_dot(vector, indices, values, first, last) + b
        if not abs(score) < LARGEST_SCORE:
            return i
        seen += c
        total += c * loss.value(score, label)
        if (score > 0.0) != (label > 0.0):
            wrong += c

        t += c
        eta = schedule.rate(t)
        slope = loss.slope(score, label)
        if slope != 0.0:
            step = slope * safe_rate(c * eta, loss, slope, values, first, last, bias.gain)
            if penalty.zeros():
                settled_axpy(vector, indices, values, first, last, -step / scale, debt)
            else:
                row_axpy(vector, indices, values, first, last, -step / scale)
            b -= step * bias.gain
        debt += penalty.threshold(c * eta) / scale
        scale *= penalty.shrink(c * eta)
        b *= penalty.shrink(c * eta * bias.decay)
        if scale < SMALLEST_SCALE:
            if penalty.zeros():
                settle(vector, scale, debt)
            else:
                rescale(vector, scale)
            scale, debt = 1.0, 0.0
    scalars[SCALE], scalars[T], scalars[BIAS], scalars[DEBT] = scale, t, b, debt
    scalars[WEIGHT], scalars[LOSS], scalars[WRONG] = seen, total, wrong
    return -1
