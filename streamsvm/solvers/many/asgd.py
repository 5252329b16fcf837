"""asgd and zhang for several classes: see solvers/asgd.py for the update, and solver.py here for the classes.

All classes shrink and are averaged alike, so that one basis serves them all: w_k = scale v_k and mean_k = alpha v_k +
beta u_k. For feature j and n lanes v is at [2 n j + k], u at [2 n j + n + k].
"""

from typing import Any

import numpy as np

from streamsvm.batch import Batch, Float32s, Int64s
from streamsvm.jit import cold, kernel
from streamsvm.schedules import Average, Schedule
from streamsvm.scoring import Offset
from streamsvm.solvers.asgd import ALPHA, BETA, MEAN_BIAS, SMALLEST_BETA, Asgd
from streamsvm.solvers.base import BIAS, LOSS, OWN, SCALE, SMALLEST_SCALE, WEIGHT, WRONG, T
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
from streamsvm.solvers.zhang import Zhang

SCORE, SLOPE, MOVE, FACTOR, OTHER = range(OWN + 3, OWN + 8)
NUMBERS = OWN + 3 + SCRATCH


class AsgdClasses(ManyClasses):
    plain = Asgd
    apart = (BIAS, MEAN_BIAS, LOSS)

    def run(self, batch: Batch, order: Int64s | None = None) -> int:
        loss, penalty, bias = self.problem
        visits, part = self._visits(batch, order)
        arrays = self.vector, self.scalars, self.numbers.reshape(-1)
        return int(self._kernel()(batch, visits, loss, *self._terms(), penalty.l2, bias, part, *arrays))

    def _kernel(self) -> Any:
        return asgd_classes

    def _terms(self) -> tuple[Schedule, Average]:
        self._one.scalars[:] = self.scalars[:-1]
        assert isinstance(self._one, Asgd)
        return self._one.terms()

    def weights(self) -> tuple[Float32s, Offset]:
        alpha, beta = self.scalars[ALPHA].astype("float32"), self.scalars[BETA].astype("float32")
        pairs = self.vector[: self.width * self.columns].reshape(-1, 2, self.lanes)[:, :, : self.classes]
        return alpha * pairs[:, 0] + beta * pairs[:, 1], self.numbers[MEAN_BIAS, : self.classes].copy()


class ZhangClasses(AsgdClasses):
    plain = Zhang


@cold
def rebase_classes(vector, n, scale, alpha, beta):
    """rows.rebase for all lanes."""
    s, a, b = np.float32(scale), np.float32(alpha), np.float32(beta)
    for j in range(0, len(vector), 2 * n):
        for k in range(j, j + n):
            vector[k + n] = a * vector[k] + b * vector[k + n]
            vector[k] *= s


@kernel
def asgd_classes(batch, order, loss, schedule, average, l2, bias, part, vector, scalars, numbers):
    indptr, indices, values, labels, weights = batch
    n = len(numbers) // NUMBERS
    stride, last_scalar = 2 * n, len(scalars) - 1
    scale, t, known = scalars[SCALE], scalars[T], int(scalars[last_scalar])
    alpha, beta = scalars[ALPHA], scalars[BETA]
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

        keep = average.mass(t) / average.mass(t + c)
        t += c
        eta = schedule.rate(t)
        scale *= max(0.0, 1.0 - c * eta * l2)
        for k in range(n):
            numbers[BIAS * n + k] *= max(0.0, 1.0 - c * eta * l2 * bias.decay)
        if scale < SMALLEST_SCALE or beta < SMALLEST_BETA:
            rebase_classes(vector, n, scale, alpha, beta)
            scale, alpha, beta = 1.0, 0.0, 1.0
        if moving > 0:
            class_steps(c * eta, loss, own, False, values, first, last, bias.gain, n, SCORE, SLOPE, MOVE, numbers)
            for k in range(n):
                step = numbers[MOVE * n + k]
                numbers[FACTOR * n + k] = -step / scale
                numbers[OTHER * n + k] = alpha / beta * step / scale
                numbers[BIAS * n + k] -= step * bias.gain
            class_axpy(vector, indices, values, first, last, stride, 0, part, n, FACTOR, numbers)
            class_axpy(vector, indices, values, first, last, stride, n, part, n, OTHER, numbers)
        alpha = keep * alpha + (1.0 - keep) * scale
        beta *= keep
        for k in range(n):
            numbers[MEAN_BIAS * n + k] = keep * numbers[MEAN_BIAS * n + k] + (1.0 - keep) * numbers[BIAS * n + k]
    scalars[SCALE], scalars[T], scalars[last_scalar] = scale, t, known
    scalars[ALPHA], scalars[BETA] = alpha, beta
    scalars[WEIGHT], scalars[WRONG] = seen, wrong
    return bad
