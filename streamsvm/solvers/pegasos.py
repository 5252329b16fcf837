"""pegasos: primal estimated sub-gradient solver, with mini-batches and projection.

    minimise     l2/2 ||w||^2 + mean of c_i loss(w.x_i + b, y_i)
    each k rows  t += r/k;  eta = 1 / (l2 t);  w *= 1 - eta l2 r/k;  w -= eta/k sum of c slope x   (r = sum of c)
                 then, with `project`, w *= min(1, 1 / (sqrt(l2) ||w||))

    Shalev-Shwartz, Singer, Srebro 2007; Shalev-Shwartz, Singer, Srebro, Cotter 2011.
    Cost per row: two walks over its features.

A mini-batch goes on across batches and passes; the sum waits as (index, amount) pairs. A last partial one is divided by
k all the same. ||v||^2 is kept up to date with every change, so the projection costs nothing. There is no step size to
choose. Choose it to compare with the literature; `asgd` needs fewer rows.
"""

import numpy as np

from streamsvm.batch import Batch, Float32s, Int64s
from streamsvm.jit import inlined, kernel
from streamsvm.rows import rescale, row_dot, safe_rate
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

NORM2, WAITING, BATCH_ROWS, BATCH_WEIGHT, BATCH_SLOPE = range(OWN, OWN + 5)


class Pegasos(OnlineSolver):
    name = "pegasos"
    columns = 1
    own_scalars = 5
    has_step_size = False

    def __init__(
        self,
        problem: Problem,
        *,
        batch_size: int = 1,
        project: bool = True,
        dim: int = 0,
        memory: int | None = None,
    ) -> None:
        super().__init__(problem, dim=dim, memory=memory)
        self.batch_size = batch_size
        self.project = project
        self._waiting_indices = np.empty(0, np.uint32)
        self._waiting_values = np.empty(0, np.float32)

    def run(self, batch: Batch, order: Int64s | None = None) -> int:
        loss, l2, bias = self.problem
        self._make_room(batch.features)
        return int(
            pegasos_pass(
                batch, row_order(batch, order), loss, l2, bias, self.batch_size, self.project,
                self.vector, self.scalars, self._waiting_indices, self._waiting_values,
            )
        )  # fmt: skip

    def finish(self) -> None:
        """Close the last, partial mini-batch."""
        close_batch(
            self.problem.l2, self.problem.bias, self.batch_size, self.project,
            self.vector, self.scalars, self._waiting_indices, self._waiting_values,
        )  # fmt: skip
        super().finish()

    def weights(self) -> tuple[Float32s, float]:
        return self.vector[: self.width] * self.scalars[SCALE].astype("float32"), float(self.scalars[BIAS])

    def start_from(self, weights: Float32s, bias: float) -> None:
        self._reserve(len(weights))
        self.vector[: len(weights)] = weights
        self.scalars[BIAS] = bias
        self.scalars[NORM2] = float(np.dot(weights.astype(np.float64), weights))

    def state(self) -> State:
        used = int(self.scalars[WAITING])
        waiting = {"waiting.indices": self._waiting_indices[:used], "waiting.values": self._waiting_values[:used]}
        return super().state() | {name: array.copy() for name, array in waiting.items()}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._waiting_indices = np.array(state["waiting.indices"], np.uint32)
        self._waiting_values = np.array(state["waiting.values"], np.float32)

    def _make_room(self, more: int) -> None:
        used = int(self.scalars[WAITING])
        if used + more > len(self._waiting_indices):
            self._waiting_indices = np.append(self._waiting_indices[:used], np.empty(2 * more, np.uint32))
            self._waiting_values = np.append(self._waiting_values[:used], np.empty(2 * more, np.float32))


@inlined
def take_step(l2, bias, batch_size, project, vector, scalars, waiting_indices, waiting_values):
    """One update from everything that waits."""
    share = scalars[BATCH_WEIGHT] / batch_size
    scalars[T] += share
    eta = 1.0 / (l2 * scalars[T])
    scale, norm2 = scalars[SCALE] * (1.0 - eta * l2 * share), scalars[NORM2]
    if scale < SMALLEST_SCALE:
        rescale(vector, scale)
        scale, norm2 = 1.0, 0.0
        for j in range(len(vector)):
            norm2 += np.float64(vector[j]) * np.float64(vector[j])
    factor = np.float32(-eta / batch_size / scale)
    for k in range(int(scalars[WAITING])):
        j = waiting_indices[k]
        before = vector[j]
        after = before + factor * waiting_values[k]
        norm2 += np.float64(after) * np.float64(after) - np.float64(before) * np.float64(before)
        vector[j] = after
    b = scalars[BIAS] * (1.0 - eta * l2 * share * bias.decay) - eta / batch_size * scalars[BATCH_SLOPE] * bias.gain
    if project:
        length2 = scale * scale * norm2
        if bias.decay * bias.gain > 0.0:
            length2 += b * b / bias.gain
        if length2 * l2 > 1.0:
            shorter = 1.0 / np.sqrt(length2 * l2)
            scale *= shorter
            if bias.decay > 0.0:
                b *= shorter
    scalars[SCALE], scalars[NORM2], scalars[BIAS] = scale, norm2, b
    scalars[WAITING] = scalars[BATCH_ROWS] = scalars[BATCH_WEIGHT] = scalars[BATCH_SLOPE] = 0.0


@kernel
def close_batch(l2, bias, batch_size, project, vector, scalars, waiting_indices, waiting_values):
    if scalars[BATCH_WEIGHT] > 0.0:
        take_step(l2, bias, batch_size, project, vector, scalars, waiting_indices, waiting_values)


@kernel
def pegasos_pass(batch, order, loss, l2, bias, batch_size, project, vector, scalars, waiting_indices, waiting_values):
    indptr, indices, values, labels, weights = batch
    for i in order:
        c = float(weights[i])
        if c == 0.0:
            continue
        label = 2.0 * labels[i] - 1.0
        score = scalars[SCALE] * row_dot(vector, indices, values, indptr[i], indptr[i + 1]) + scalars[BIAS]
        if not abs(score) < LARGEST_SCORE:
            return i
        scalars[WEIGHT] += c
        scalars[LOSS] += c * loss.value(score, label)
        if (score > 0.0) != (label > 0.0):
            scalars[WRONG] += c

        slope = c * loss.slope(score, label)
        if slope != 0.0:
            eta = 1.0 / (l2 * (scalars[T] + 1.0))  # the step is the mean of k steps, each of them safe by itself
            slope *= safe_rate(c * eta, loss, slope / c, values, indptr[i], indptr[i + 1], bias.gain) / (c * eta)
            waiting = int(scalars[WAITING])
            for k in range(indptr[i], indptr[i + 1]):
                waiting_indices[waiting] = indices[k]
                waiting_values[waiting] = np.float32(slope) * values[k]
                waiting += 1
            scalars[WAITING] = waiting
        scalars[BATCH_SLOPE] += slope
        scalars[BATCH_WEIGHT] += c
        scalars[BATCH_ROWS] += 1.0
        if scalars[BATCH_ROWS] >= batch_size:
            take_step(l2, bias, batch_size, project, vector, scalars, waiting_indices, waiting_values)
    return -1
