"""sgd for several classes: see solvers/sgd.py for the update, and solver.py here for how classes stand side by side.

All classes shrink alike, so that one scale serves them all: w_k = scale v_k.
"""

from typing import Any

from streamsvm.batch import Batch, Float32s, Int64s
from streamsvm.jit import kernel
from streamsvm.rows import rescale
from streamsvm.schedules import InverseTime
from streamsvm.scoring import Offset
from streamsvm.solvers.base import BIAS, LOSS, OWN, SCALE, SMALLEST_SCALE, STEP, WEIGHT, WRONG, T
from streamsvm.solvers.many.lane_rows import (
    best_class,
    class_axpy,
    class_dots,
    class_slopes,
    class_steps,
    fetch_classes,
    finish_scores,
)
from streamsvm.solvers.many.solver import SCRATCH, ManyClasses
from streamsvm.solvers.sgd import ALPHAS, Sgd

SCORE, SLOPE, MOVE, FACTOR = range(OWN + 3, OWN + 7)
NUMBERS = OWN + 3 + SCRATCH


class SgdClasses(ManyClasses):
    plain = Sgd
    apart = (BIAS, LOSS)

    def run(self, batch: Batch, order: Int64s | None = None) -> int:
        visits, part = self._visits(batch, order)
        arrays = self.vector, self.scalars, self.numbers.reshape(-1)
        return int(self._kernel()(batch, visits, *self._terms(), part, *arrays))

    def _terms(self) -> tuple[Any, ...]:
        loss, penalty, bias = self.problem
        return loss, self._schedule(), penalty.l2, bias, self.problem.provable

    def _kernel(self) -> Any:
        return sgd_classes

    def _schedule(self) -> InverseTime:
        return InverseTime(self.problem.l2, 1.0 / (self.problem.l2 * float(self.scalars[STEP])))

    def weights(self) -> tuple[Float32s, Offset]:
        table = self.vector[: self.width * self.lanes].reshape(-1, self.lanes)[:, : self.classes]
        return table * self.scalars[SCALE].astype("float32"), self.numbers[BIAS, : self.classes].copy()

    def start_from(self, weights: Float32s, bias: Offset) -> None:
        super().start_from(weights, bias)
        self.scalars[ALPHAS] = 0.0  # there is no bound for several classes


@kernel
def sgd_classes(batch, order, loss, schedule, l2, bias, provable, part, vector, scalars, numbers):
    indptr, indices, values, labels, weights = batch
    n = len(numbers) // NUMBERS
    stride, last_scalar = n, len(scalars) - 1
    scale, t, known = scalars[SCALE], scalars[T], int(scalars[last_scalar])
    seen, wrong, bad = scalars[WEIGHT], scalars[WRONG], -1
    for place in range(len(order)):
        i = order[place]
        c = float(weights[i])
        if c == 0.0:
            continue
        first, last, own = indptr[i], indptr[i + 1], int(labels[i])
        class_dots(vector, indices, values, first, last, stride, part, n, SCORE, numbers)
        fetch_classes(vector, indptr, indices, order, place + 1, stride)
        if finish_scores(scale, n, SCORE, BIAS, numbers) > 0:
            bad = i
            break
        seen += c
        if best_class(known, n, SCORE, numbers) != own:
            wrong += c
        known = max(known, own + 1)
        moving = class_slopes(loss, own, c, n, SCORE, SLOPE, LOSS, numbers)

        t += c
        eta = schedule.rate(t)
        scale *= 1.0 - c * eta * l2
        for k in range(n):
            numbers[BIAS * n + k] *= 1.0 - c * eta * l2 * bias.decay
        if scale < SMALLEST_SCALE:
            rescale(vector, scale)
            scale = 1.0
        if moving > 0:
            class_steps(c * eta, loss, own, provable, values, first, last, bias.gain, n, SCORE, SLOPE, MOVE, numbers)
            for k in range(n):
                numbers[FACTOR * n + k] = -numbers[MOVE * n + k] / scale
                numbers[BIAS * n + k] -= numbers[MOVE * n + k] * bias.gain
            class_axpy(vector, indices, values, first, last, stride, 0, part, n, FACTOR, numbers)
    scalars[SCALE], scalars[T], scalars[last_scalar] = scale, t, known
    scalars[WEIGHT], scalars[WRONG] = seen, wrong
    return bad
