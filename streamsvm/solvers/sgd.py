"""sgd: plain stochastic gradient descent.

    minimise   l2/2 ||w||^2 + mean of c_i loss(w.x_i + b, y_i)
    each row   t += c;  eta = 1 / (l2 (t + t0));  w *= 1 - c eta l2;  w -= c eta slope x

    L. Bottou, "Stochastic gradient descent examples", 2007. Cost per row: two walks over its features.

Stored as w = scale v, so that shrinking costs nothing. t0 = 1 / (l2 eta0); eta0 is chosen by trial on the first rows.
With hinge, w = sum of alpha_i y_i x_i with alpha_i <= c_i / (l2 N) after whole passes; the sum of all alpha, carried
along in one number, gives a lower bound of the objective, if it is known what rounding can have done to w. To measure
that costs a few percent, and is left out where there is no bound.
Choose it when memory is tight: one number for each feature. After one pass `asgd` is usually better.
"""

from typing import Any

import numpy as np

from streamsvm.batch import Batch, Float32s, Int64s
from streamsvm.jit import kernel
from streamsvm.rows import (
    ZERO,
    capped_slope,
    fetch_ahead,
    implicit_slope,
    measured_axpy,
    rescale,
    row_axpy,
    row_dot,
    row_norm2,
    vector_norm2,
)
from streamsvm.schedules import InverseTime
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
    Problem,
    T,
    row_order,
)

# For the lower bound: the sum of the dual variables of w; how often v was written, and the squares of what was rounded.
ALPHAS, WRITES, WRITTEN = range(OWN, OWN + 3)


class Sgd(OnlineSolver):
    name = "sgd"
    own_scalars = 3

    def __init__(self, problem: Problem, **more: Any) -> None:
        super().__init__(problem, **more)
        if problem.provable:  # bounds are tight sooner if steps begin somewhat longer, and later if they are far so
            self.worse_by, self.doublings = 0.03, 1

    def run(self, batch: Batch, order: Int64s | None = None) -> int:
        loss, penalty, bias = self.problem
        schedule = InverseTime(penalty.l2, 1.0 / (penalty.l2 * float(self.scalars[STEP])))
        arrays = self.vector, self.scalars
        return int(
            sgd_pass(batch, row_order(batch, order), loss, schedule, penalty.l2, bias, self.problem.provable, *arrays)
        )

    def lower_bound(self) -> float | None:
        t, eta0 = self.scalars[T], self.scalars[STEP]
        t0 = 1.0 / (self.problem.l2 * eta0) if eta0 else 0.0
        written = self.scalars[SCALE] * np.sqrt(self.scalars[WRITES] * self.scalars[WRITTEN])
        return self._dual_value(self.scalars[ALPHAS], t + t0, t, written, *self.weights())

    def turn_back(self, before: float, after: float) -> None:
        self.scalars[ALPHAS] = np.nan

    def weights(self) -> tuple[Float32s, float]:
        return self.vector[: self.width] * self.scalars[SCALE].astype("float32"), float(self.scalars[BIAS])

    def start_from(self, weights: Float32s, bias: float) -> None:
        self._reserve(len(weights))
        self.vector[: len(weights)] = weights
        self.scalars[BIAS] = bias
        self.scalars[ALPHAS] = np.nan


@kernel
def sgd_pass(batch, order, loss, schedule, l2, bias, provable, vector, scalars):
    indptr, indices, values, labels, weights = batch
    scale, t, b = scalars[SCALE], scalars[T], scalars[BIAS]
    seen, total, wrong = scalars[WEIGHT], scalars[LOSS], scalars[WRONG]
    alphas, writes, written = scalars[ALPHAS], scalars[WRITES], scalars[WRITTEN]
    for place in range(len(order)):
        i = order[place]
        fetch_ahead(vector, indptr, indices, order, place, ZERO)
        c = float(weights[i])
        if c == 0.0:
            continue
        first, last = indptr[i], indptr[i + 1]
        label = 2.0 * labels[i] - 1.0
        score = scale * row_dot(vector, indices, values, first, last) + b
        if not abs(score) < LARGEST_SCORE:
            return i
        seen += c
        total += c * loss.value(score, label)
        if (score > 0.0) != (label > 0.0):
            wrong += c

        t += c
        eta = schedule.rate(t)
        scale *= 1.0 - c * eta * l2
        alphas *= 1.0 - c * eta * l2
        b *= 1.0 - c * eta * l2 * bias.decay
        if scale < SMALLEST_SCALE:
            rescale(vector, scale)
            writes += 1.0
            written = scale * scale * written + 2.0 * vector_norm2(vector)
            scale = 1.0
        slope = loss.slope(score, label)
        if slope != 0.0:
            if provable:
                step = c * eta * capped_slope(slope, c * eta * (row_norm2(values, first, last) + bias.gain))
                writes += 1.0
                written += measured_axpy(vector, indices, values, first, last, -step / scale)
            else:
                step = c * eta * implicit_slope(slope, c * eta, loss, score, label, values, first, last, bias.gain)
                row_axpy(vector, indices, values, first, last, -step / scale)
            b -= step * bias.gain
            alphas -= step * label
    scalars[SCALE], scalars[T], scalars[BIAS] = scale, t, b
    scalars[WEIGHT], scalars[LOSS], scalars[WRONG] = seen, total, wrong
    scalars[ALPHAS], scalars[WRITES], scalars[WRITTEN] = alphas, writes, written
    return -1
