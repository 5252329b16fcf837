"""asgd: stochastic gradient descent with averaged iterates; the default.

    minimise   l2/2 ||w||^2 + mean of c_i loss(w.x_i + b, y_i)
    each row   t += c;  eta = eta0 min((1 + l2 eta0 t)^-0.75, (1 + t / 6144)^-0.5)
               w *= max(0, 1 - c eta l2);  w -= c eta slope x, an implicit step: the slope where it ends
               mean = (1 - mu) mean + mu w,  with mu = 4 / (t + 3) for a row of weight one

    Polyak, Juditsky 1992; W. Xu 2011; polynomial-decay averaging: Shamir, Zhang 2013.
    Cost per row: two walks over its features.

Averaging that forgets polynomially needs no guess of when to begin and no length of the stream. It stays sparse because
both vectors live in one basis: w = scale v and mean = alpha v + beta u; a step touches v and u at the row's features
only, and they are neighbours in memory. For a row of weight c the c-fold product of (1 - mu) is taken, so that weight 0
changes nothing. Choose it nearly always: one pass is close to the optimum without any tuning.
"""

from streamsvm.batch import Batch, Float32s, Int64s
from streamsvm.jit import kernel
from streamsvm.rows import ONE, fetch_ahead, implicit_slope, pair_axpy, rebase, strided_dot
from streamsvm.schedules import Average, PolynomialDecay, Schedule, SlowDecay
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

ALPHA, BETA, MEAN_BIAS = OWN, OWN + 1, OWN + 2
SMALLEST_BETA = 1e-6
ROOT_ROWS = 6144.0  # rows, of the usual weight, before steps get much shorter


class Asgd(OnlineSolver):
    name = "asgd"
    own_scalars = 3

    def columns_for(self) -> int:
        return 2

    def run(self, batch: Batch, order: Int64s | None = None) -> int:
        schedule, average = self.terms()
        loss, penalty, bias = self.problem
        return int(
            asgd_pass(
                batch, row_order(batch, order), loss, schedule, average, penalty.l2, bias, self.vector, self.scalars
            )
        )

    def terms(self) -> tuple[Schedule, Average]:
        """The step sizes, and how iterates are averaged."""
        return SlowDecay(self.problem.l2, float(self.scalars[STEP]), ROOT_ROWS), PolynomialDecay()

    def weights(self) -> tuple[Float32s, float]:
        pairs = self.vector[: 2 * self.width]
        alpha, beta = self.scalars[ALPHA].astype("float32"), self.scalars[BETA].astype("float32")
        return alpha * pairs[0::2] + beta * pairs[1::2], float(self.scalars[MEAN_BIAS])

    def start_from(self, weights: Float32s, bias: float) -> None:
        self._reserve(len(weights))
        self.vector[0 : 2 * len(weights) : 2] = weights
        self.scalars[BIAS] = self.scalars[MEAN_BIAS] = bias
        self.scalars[ALPHA] = 1.0


@kernel
def asgd_pass(batch, order, loss, schedule, average, l2, bias, vector, scalars):
    indptr, indices, values, labels, weights = batch
    scale, t, b = scalars[SCALE], scalars[T], scalars[BIAS]
    alpha, beta, mean_b = scalars[ALPHA], scalars[BETA], scalars[MEAN_BIAS]
    seen, total, wrong = scalars[WEIGHT], scalars[LOSS], scalars[WRONG]
    for place in range(len(order)):
        i = order[place]
        fetch_ahead(vector, indptr, indices, order, place, ONE)
        c = float(weights[i])
        if c == 0.0:
            continue
        first, last = indptr[i], indptr[i + 1]
        label = 2.0 * labels[i] - 1.0
        score = scale * strided_dot(vector, indices, values, first, last, ONE) + b
        if not abs(score) < LARGEST_SCORE:
            return i
        seen += c
        total += c * loss.value(score, label)
        if (score > 0.0) != (label > 0.0):
            wrong += c

        keep = average.mass(t) / average.mass(t + c)
        t += c
        eta = schedule.rate(t)
        scale *= max(0.0, 1.0 - c * eta * l2)
        b *= max(0.0, 1.0 - c * eta * l2 * bias.decay)
        if scale < SMALLEST_SCALE or beta < SMALLEST_BETA:
            rebase(vector, scale, alpha, beta)
            scale, alpha, beta = 1.0, 0.0, 1.0
        slope = loss.slope(score, label)
        if slope != 0.0:
            step = c * eta * implicit_slope(slope, c * eta, loss, score, label, values, first, last, bias.gain)
            pair_axpy(vector, indices, values, first, last, -step / scale, alpha / beta * step / scale)
            b -= step * bias.gain
        alpha = keep * alpha + (1.0 - keep) * scale
        beta *= keep
        mean_b = keep * mean_b + (1.0 - keep) * b
    scalars[SCALE], scalars[T], scalars[BIAS] = scale, t, b
    scalars[ALPHA], scalars[BETA], scalars[MEAN_BIAS] = alpha, beta, mean_b
    scalars[WEIGHT], scalars[LOSS], scalars[WRONG] = seen, total, wrong
    return -1
