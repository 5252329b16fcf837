"""norma: online learning with kernels, which forgets.

    minimise   l2/2 ||f||^2 + mean of c_i loss(f(x_i) + b, y_i)
    each row   t += c;  eta = eta0 / sqrt(1 + t / 1000), or eta0 always with steps: constant
               f *= 1 - c eta l2;  f -= c eta slope k(x, .)
               then, with `average`, mean = (1 - mu) mean + mu f,  with mu = 4 / (t + 3) for a row of weight 1

    Kivinen, Smola, Williamson, "Online learning with kernels", 2004. Cost per row: that of comparing it with all
    supports, up to `budget` of them, and once more where it becomes one.

f is a sum over supports (support.py), kept as scale times coefficients, so that shrinking costs nothing. A row of a
slope other than zero joins them, and upkeep.py sees to it that they do not get too many. eta0 is chosen by trial on the
first rows, judged by rows that the trial did not see.
With constant steps a coefficient fades by 1 - eta0 l2 with each row after its own: f follows what changes. Where the
solver is told to forget (OnlineSolver.forget) steps stay as long as they are then, and coefficients fade by no less
than one part in as many rows as are to be remembered.
Choose it for streams where a linear model is not enough and a step size must be found; `kernel_pegasos` has none.
"""

from typing import Any

import numpy as np

from streamsvm.batch import Batch, Int64s
from streamsvm.jit import inlined, kernel
from streamsvm.rows import rescale
from streamsvm.schedules import Constant, InverseRoot, PolynomialDecay, Schedule
from streamsvm.solvers.base import (
    BIAS,
    LARGEST_SCORE,
    LOSS,
    SCALE,
    SMALLEST_SCALE,
    STEP,
    WEIGHT,
    WRONG,
    Problem,
    T,
    row_order,
)
from streamsvm.solvers.similarity import expansion, likenesses, own_likeness, spread_row
from streamsvm.solvers.support import KernelSolver, gentle_rate
from streamsvm.solvers.upkeep import COUNT, FADE, MEAN_BIAS, merge_losses, take_in

STEPS = ("root", "constant")


class Norma(KernelSolver):
    name = "norma"

    def __init__(self, problem: Problem, *, steps: str = "root", **options: Any) -> None:
        super().__init__(problem, **options)
        self.steps = steps
        self._options["steps"] = steps

    def schedule(self) -> Schedule:
        eta0 = float(self.scalars[STEP])
        return Constant(eta0) if self.steps == "constant" else InverseRoot(eta0)

    def turn_back(self, before: float, after: float) -> None:
        self.scalars[FADE] = 1.0 / after

    def run(self, batch: Batch, order: Int64s | None = None) -> int:
        loss, penalty, bias = self.problem
        terms = loss, self.similarity, self.schedule(), penalty.l2, bias, self.averaged
        upkeep = self.way, self.budget, merge_losses()
        return int(norma_pass(batch, row_order(batch, order), *terms, *upkeep, self.dim, self._arrays(), self.scalars))


@inlined
def average_in(means, coefficients, count, keep, scale):
    """means = keep means + (1 - keep) scale coefficients"""
    old, new = np.float32(keep), np.float32((1.0 - keep) * scale)
    for k in range(count):
        means[k] = old * means[k] + new * coefficients[k]


@kernel
def norma_pass(
    batch, order, loss, similarity, schedule, l2, bias, averaged, way, budget, table, dim, supports, scalars
):
    indptr, indices, values, labels, weights = batch
    points, coefficients, means, selves = supports
    average = PolynomialDecay(1.0)
    scale, t, b, fade = scalars[SCALE], scalars[T], scalars[BIAS], scalars[FADE]
    seen, total, wrong = scalars[WEIGHT], scalars[LOSS], scalars[WRONG]
    row, alone = np.zeros(dim, np.float32), np.empty(1, np.float32)
    likes, powers = np.empty(len(coefficients), np.float32), np.empty(len(coefficients), np.int32)
    for place in range(len(order)):
        i = order[place]
        c = float(weights[i])
        if c == 0.0:
            continue
        label = 2.0 * labels[i] - 1.0
        spread_row(indices, values, indptr[i], indptr[i + 1], row)
        count = int(scalars[COUNT])
        likenesses(similarity, points, row, count, likes, powers)
        score = scale * expansion(coefficients, likes, count) + b
        if not abs(score) < LARGEST_SCORE:
            return i
        seen += c
        total += c * loss.value(score, label)
        if (score > 0.0) != (label > 0.0):
            wrong += c

        keep = average.mass(t) / average.mass(t + c)
        t += c
        eta = schedule.rate(t)
        decay = c * max(eta * l2, fade)
        scale *= max(0.0, 1.0 - decay)
        b *= max(0.0, 1.0 - decay * bias.decay)
        if scale < SMALLEST_SCALE:
            rescale(coefficients, scale)
            scale = 1.0
        slope = loss.slope(score, label)
        if slope != 0.0:
            own = own_likeness(similarity, row, alone, powers)
            step = slope * gentle_rate(c * eta, loss, slope, own + bias.gain)
            take_in(similarity, way, budget, table, supports, scalars, row, own, -step / scale, likes, powers)
            b -= step * bias.gain
        if averaged:
            average_in(means, coefficients, int(scalars[COUNT]), keep, scale)
            scalars[MEAN_BIAS] = keep * scalars[MEAN_BIAS] + (1.0 - keep) * b
    scalars[SCALE], scalars[T], scalars[BIAS] = scale, t, b
    scalars[WEIGHT], scalars[LOSS], scalars[WRONG] = seen, total, wrong
    return -1
