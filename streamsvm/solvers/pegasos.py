"""pegasos: primal estimated sub-gradient solver, with mini-batches, projection and averaging.

    minimise     l2/2 ||w||^2 + mean of c_i loss(w.x_i + b, y_i)
    each k rows  t += r/k;  eta = 1 / (l2 t);  w *= 1 - eta l2 r/k;  w -= eta/k sum of c slope x   (r = sum of c)
                 then, with `project`, w *= min(1, 1 / (sqrt(l2) ||w||))
                 then, with `average`, mean = (1 - mu) mean + mu w,  with mu = 4 / (t + 3) for a full mini-batch

    Shalev-Shwartz, Singer, Srebro 2007; Shalev-Shwartz, Singer, Srebro, Cotter 2011; Shamir, Zhang 2013.
    Cost per row: two walks over its features.

A mini-batch goes on across batches and passes; the sum waits as (index, amount) pairs. A last partial one is divided by
k all the same. ||v||^2 is kept up to date with every change, so the projection costs nothing; the mean is kept as in
asgd.py, and the lower bound as in sgd.py. There is no step size to choose. Choose it to compare with the literature;
`asgd` needs fewer rows.
"""

from typing import NamedTuple

import numpy as np

from streamsvm.batch import Batch, Float32s, Int64s
from streamsvm.jit import inlined, kernel
from streamsvm.rows import fetch_ahead, implicit_slope, rebase, rescale, strided_dot
from streamsvm.schedules import PolynomialDecay
from streamsvm.solvers.base import (
    BIAS,
    LARGEST_SCORE,
    LOSS,
    OWN,
    SCALE,
    SMALLEST_SCALE,
    WEIGHT,
    WRONG,
    OnlineSolver,
    Problem,
    State,
    T,
    row_order,
)

NORM2, WAITING, BATCH_ROWS, BATCH_WEIGHT, BATCH_SLOPE, BATCH_ALPHAS = range(OWN, OWN + 6)
ALPHAS, WRITES, WRITTEN, ALPHA, BETA, MEAN_BIAS = range(OWN + 6, OWN + 12)
SMALLEST_BETA = 1e-6
LONGEST_LEAP = 100.0  # times 1 / sqrt(l2)


class Plan(NamedTuple):
    """How steps are taken: rows in each, whether to project, and the shift from a feature to its numbers."""

    batch_size: int
    project: bool
    shift: np.uint64


class Pegasos(OnlineSolver):
    name = "pegasos"
    own_scalars = 12
    has_step_size = False

    def __init__(
        self,
        problem: Problem,
        *,
        batch_size: int = 1,
        project: bool = True,
        average: bool = False,
        dim: int = 0,
        memory: int | None = None,
    ) -> None:
        self.plan = Plan(batch_size, project, np.uint64(average))
        super().__init__(problem, dim=dim, memory=memory)
        self._waiting = np.empty(0, np.uint32), np.empty(0, np.float32)

    def columns_for(self) -> int:
        return 1 << int(self.plan.shift)

    def run(self, batch: Batch, order: Int64s | None = None) -> int:
        loss, penalty, bias = self.problem
        self._make_room(batch.features)
        arrays = self.vector, self.scalars, *self._waiting
        return int(
            pegasos_pass(
                batch, row_order(batch, order), loss, penalty.l2, bias, self.problem.provable, self.plan, *arrays
            )
        )

    def finish(self) -> None:
        """Close the last, partial mini-batch."""
        close_batch(self.problem.l2, self.problem.bias, self.plan, self.vector, self.scalars, *self._waiting)
        super().finish()

    def weights(self) -> tuple[Float32s, float]:
        if not self.plan.shift:
            return self._last()
        alpha, beta = self.scalars[ALPHA].astype("float32"), self.scalars[BETA].astype("float32")
        pairs = self.vector[: 2 * self.width]
        return alpha * pairs[0::2] + beta * pairs[1::2], float(self.scalars[MEAN_BIAS])

    def lower_bound(self) -> float | None:
        clock = self.scalars[T] * self.plan.batch_size
        visited = clock + self.scalars[BATCH_WEIGHT]  # the rows of an open mini-batch have no part in w yet
        written = self.scalars[SCALE] * np.sqrt(self.scalars[WRITES] * self.scalars[WRITTEN])
        return self._dual_value(self.scalars[ALPHAS], clock, visited, written, *self._last())

    def forget(self, rows: float) -> None:
        """The clock counts mini-batches."""
        super().forget(rows / self.plan.batch_size)

    def turn_back(self, before: float, after: float) -> None:
        self.scalars[ALPHAS] = np.nan

    def start_from(self, weights: Float32s, bias: float) -> None:
        self._reserve(len(weights))
        self.vector[: self.columns * len(weights) : self.columns] = weights
        self.scalars[BIAS] = self.scalars[MEAN_BIAS] = bias
        self.scalars[NORM2] = float(np.dot(weights.astype(np.float64), weights))
        self.scalars[ALPHA] = 1.0
        self.scalars[ALPHAS] = np.nan

    def state(self) -> State:
        used = int(self.scalars[WAITING])
        indices, values = self._waiting
        return super().state() | {"waiting": {"indices": indices[:used].copy(), "values": values[:used].copy()}}

    def restore(self, state: State) -> None:
        super().restore(state)
        waiting = state["waiting"]
        self._waiting = np.array(waiting["indices"], np.uint32), np.array(waiting["values"], np.float32)

    def _last(self) -> tuple[Float32s, float]:
        """The last iterate, not averaged."""
        v = self.vector[: self.columns * self.width : self.columns]
        return v * self.scalars[SCALE].astype("float32"), float(self.scalars[BIAS])

    def _make_room(self, more: int) -> None:
        used = int(self.scalars[WAITING])
        indices, values = self._waiting
        if used + more > len(indices):
            self._waiting = (
                np.append(indices[:used], np.empty(2 * more, np.uint32)),
                np.append(values[:used], np.empty(2 * more, np.float32)),
            )


@inlined
def leaps(l2, rate, scalars, waiting_values):
    """Whether a step may be so long that, projected, the mean as a difference of v and u would drown in rounding."""
    squares = 0.0
    for place in range(int(scalars[WAITING])):
        squares += np.float64(waiting_values[place]) * np.float64(waiting_values[place])
    return l2 * rate * rate * scalars[BATCH_ROWS] * squares > LONGEST_LEAP * LONGEST_LEAP


@inlined
def take_step(l2, bias, plan, vector, scalars, waiting_indices, waiting_values):
    """One update from everything that waits."""
    k = plan.batch_size
    share = scalars[BATCH_WEIGHT] / k
    average = PolynomialDecay(1.0)
    keep = average.mass(scalars[T]) / average.mass(scalars[T] + share)
    scalars[T] += share
    eta = 1.0 / (l2 * scalars[T])
    shrink = max(0.0, 1.0 - eta * l2 * share)  # rounding makes less than zero of the first
    scale, alpha, beta, norm2 = scalars[SCALE] * shrink, scalars[ALPHA], scalars[BETA], scalars[NORM2]
    leap = plan.shift and plan.project and leaps(l2, eta / k, scalars, waiting_values)
    if scale < SMALLEST_SCALE or leap or (plan.shift and beta < SMALLEST_BETA):
        if plan.shift:
            rebase(vector, scale, alpha, beta)
        else:
            rescale(vector, scale)
        scalars[WRITTEN] *= scale * scale
        scale, alpha, beta, norm2 = 1.0, 0.0, 1.0, 0.0
        for j in range(0, len(vector), 1 << np.int64(plan.shift)):
            norm2 += np.float64(vector[j]) * np.float64(vector[j])
        scalars[WRITES] += 1.0
        scalars[WRITTEN] += 2.0 * norm2
    written = 0.0
    factor = np.float32(-eta / k / scale)
    other = np.float32(alpha / beta * eta / k / scale) if plan.shift else np.float32(0.0)
    for place in range(int(scalars[WAITING])):
        j = np.uint64(waiting_indices[place]) << plan.shift
        before, step = vector[j], factor * waiting_values[place]
        after = before + step
        after2 = np.float64(after) * np.float64(after)
        norm2 += after2 - np.float64(before) * np.float64(before)
        written += after2 + 4.0 * np.float64(step) * np.float64(step)  # twice rounded, as c x and as a step
        vector[j] = after
        if plan.shift:
            vector[j + plan.shift] += other * waiting_values[place]
    scalars[WRITTEN] += written
    b = scalars[BIAS] * (1.0 - eta * l2 * share * bias.decay) - eta / k * scalars[BATCH_SLOPE] * bias.gain
    alphas = scalars[ALPHAS] * shrink + eta / k * scalars[BATCH_ALPHAS]
    if plan.project:
        length2 = scale * scale * norm2
        if bias.decay * bias.gain > 0.0:
            length2 += b * b / bias.gain
        if length2 * l2 > 1.0:
            shorter = 1.0 / np.sqrt(length2 * l2)
            scale *= shorter
            alphas *= shorter
            if bias.decay > 0.0:
                b *= shorter
    scalars[SCALE], scalars[NORM2], scalars[BIAS], scalars[ALPHAS] = scale, norm2, b, alphas
    scalars[ALPHA], scalars[BETA] = keep * alpha + (1.0 - keep) * scale, keep * beta
    scalars[MEAN_BIAS] = keep * scalars[MEAN_BIAS] + (1.0 - keep) * b
    scalars[WAITING] = scalars[BATCH_ROWS] = scalars[BATCH_WEIGHT] = scalars[BATCH_SLOPE] = scalars[BATCH_ALPHAS] = 0.0


@kernel
def close_batch(l2, bias, plan, vector, scalars, waiting_indices, waiting_values):
    if scalars[BATCH_WEIGHT] > 0.0:
        take_step(l2, bias, plan, vector, scalars, waiting_indices, waiting_values)


@kernel
def pegasos_pass(batch, order, loss, l2, bias, provable, plan, vector, scalars, waiting_indices, waiting_values):
    indptr, indices, values, labels, weights = batch
    for place in range(len(order)):
        i = order[place]
        fetch_ahead(vector, indptr, indices, order, place, plan.shift)
        c = float(weights[i])
        if c == 0.0:
            continue
        first, last = indptr[i], indptr[i + 1]
        label = 2.0 * labels[i] - 1.0
        score = scalars[SCALE] * strided_dot(vector, indices, values, first, last, plan.shift) + scalars[BIAS]
        if not abs(score) < LARGEST_SCORE:
            return i
        scalars[WEIGHT] += c
        scalars[LOSS] += c * loss.value(score, label)
        if (score > 0.0) != (label > 0.0):
            scalars[WRONG] += c

        slope = loss.slope(score, label)
        if slope != 0.0:
            if not provable:
                eta = 1.0 / (l2 * (scalars[T] + 1.0))  # a step is the mean of k steps, each of them implicit by itself
                slope = implicit_slope(slope, c * eta, loss, score, label, values, first, last, bias.gain)
            slope *= c
            waiting = int(scalars[WAITING])
            for k in range(first, last):
                waiting_indices[waiting] = indices[k]
                waiting_values[waiting] = np.float32(slope) * values[k]
                waiting += 1
            scalars[WAITING] = waiting
            scalars[WRITES] += 1.0
        scalars[BATCH_SLOPE] += slope
        scalars[BATCH_ALPHAS] -= slope * label
        scalars[BATCH_WEIGHT] += c
        scalars[BATCH_ROWS] += 1.0
        if scalars[BATCH_ROWS] >= plan.batch_size:
            take_step(l2, bias, plan, vector, scalars, waiting_indices, waiting_values)
    return -1
