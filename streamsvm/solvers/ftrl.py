"""ftrl: follow the regularised leader with a step size of its own for every feature (FTRL-Proximal).

    minimise   l2/2 ||w||^2 + l1 ||w||_1 + mean of c_i loss(w.x_i + b, y_i)
    weights    w_j = soft(z_j, t l1) / ((beta + sqrt(n_j)) / eta0 + t l2),  with t the weight of all rows so far
    each row   g = slope x_j;  sigma = (sqrt(n_j + c g^2) - sqrt(n_j)) / eta0;  z_j -= c g - sigma w_j;  n_j += c g^2

    McMahan et al., "Ad click prediction: a view from the trenches", 2013; McMahan 2011.
    Cost per row: three walks over its features, a root and a division for each; 8 bytes for each feature.

z_j is minus the sum of gradients, corrected for steps that become shorter, and n_j the sum of their squares. Weights
follow from these and from t, so that the penalty of rows in which a feature does not occur costs nothing. The paper has
l1 and l2 where t l1 and t l2 stand here: its penalty fades as rows come in, ours means the same as in other solvers.
The root of n_j is what is stored. A small beta lets rare features begin with long steps. After 10^8 rows a change of
z_j, or of the root, is smaller than a unit in the last place, and plain single precision would lose it: both are
rounded up or down by turns (sgdqn.rounded), so that changes add up to what they are after 10^9 rows too.
Choose it for sparse models of very many features; with l1 it keeps far fewer weights than `folos` at the same error.
"""

import math
from typing import Any

import numpy as np

from streamsvm.batch import Batch, Float32s, Int64s
from streamsvm.jit import inlined, kernel
from streamsvm.penalties import soft
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
from streamsvm.solvers.own_steps import gathered_dot, known_root, longest_row, safe_share
from streamsvm.solvers.sgdqn import GOLDEN, NEXT, rounded

BIAS_Z, BIAS_ROOT, GIVEN = OWN, OWN + 1, OWN + 2
TINY = 1e-30  # with beta = 0 a weight never seen is 0 / TINY
SLIGHT = np.float32(
    2.0**-19
)  # of a number: a change of less than so much, 32 units in the last place, is not just added


class Ftrl(OnlineSolver):
    name = "ftrl"
    worse_by = 0.01  # steps get shorter by themselves, and far more rows follow than a trial has
    penalties = ("l2", "l1", "elastic_net", "none")
    own_scalars = 3
    walks = True

    def __init__(
        self,
        problem: Problem,
        *,
        eta0: float | None = None,
        beta: float = 1.0,
        dim: int = 0,
        memory: int | None = None,
    ) -> None:
        self.beta = beta
        super().__init__(problem, eta0=eta0, dim=dim, memory=memory)

    def columns_for(self) -> int:
        return 2

    def fresh(self, eta0: float) -> "Ftrl":
        return Ftrl(self.problem, eta0=eta0, beta=self.beta)

    def run(self, batch: Batch, order: Int64s | None = None) -> int:
        if self.scalars[GIVEN]:
            self._place_known()
        loss, penalty, bias = self.problem
        terms = loss, penalty.l1, penalty.l2, self.beta, bias
        return int(ftrl_pass(batch, row_order(batch, order), *terms, self.vector, self.scalars))

    def weights(self) -> tuple[Float32s, float]:
        bias = float(self.scalars[BIAS])
        if self.scalars[GIVEN] or not self.scalars[STEP]:  # z is not in use yet
            return self.vector[: 2 * self.width : 2].copy(), bias
        weights = np.empty(self.width, np.float32)
        write_weights(self.problem.penalty.l1, self.problem.l2, self.beta, self.vector, self.scalars, weights)
        return weights, bias

    def start_from(self, weights: Float32s, bias: float) -> None:
        self._reserve(len(weights))
        self.vector[: 2 * len(weights) : 2] = weights
        self.scalars[BIAS] = bias
        self.scalars[GIVEN] = 1.0

    def turn_back(self, before: float, after: float) -> None:
        """n_j of all features is as if fewer rows had come."""
        if self.scalars[GIVEN]:  # z is not in use yet
            return
        penalty, eta0 = self.problem.penalty, float(self.scalars[STEP])
        fade(penalty.l1, penalty.l2, self.beta, eta0, self.vector.reshape(-1, 2, 1), before, after)
        self.scalars[BIAS_ROOT] *= math.sqrt(after / before)
        self.scalars[BIAS_Z] = self.scalars[BIAS] * self.hold(eta0, after, self.scalars[BIAS_ROOT])

    def hold(self, eta0: float, t: float, root: Any) -> Any:
        """What z of the bias is divided by at time t."""
        return (self.beta + root) / eta0 + t * self.problem.l2 * self.problem.bias.decay + TINY

    def _place_known(self) -> None:
        """Put z in place of known weights, such that it means them at the time t at which the first row comes."""
        t, eta0, bias = (float(self.scalars[place]) for place in (T, STEP, BIAS))
        z, roots = self.vector[0::2], self.vector[1::2]
        known = z != 0.0
        root = known_root(t, int(known.sum()))
        z *= np.float32((self.beta + root) / eta0 + t * self.problem.l2)
        z += np.sign(z) * np.float32(t * self.problem.penalty.l1)
        roots[known] = root
        b_root = known_root(t, 1) if bias else 0.0
        self.scalars[BIAS_ROOT] = b_root
        self.scalars[BIAS_Z] = bias * ((self.beta + b_root) / eta0 + t * self.problem.l2 * self.problem.bias.decay)
        self.scalars[GIVEN] = 0.0


@kernel
def fade(l1, l2, beta, eta0, table, before, after):
    """n_j shrinks, and z_j so that w_j stays; where w_j = 0, |z_j| keeps its share of the threshold t l1."""
    slack, threshold = beta / eta0 + before * l2 + TINY, before * l1
    new_slack, new_threshold = beta / eta0 + after * l2 + TINY, after * l1
    shrink = np.float32(math.sqrt(after / before))
    for j in range(len(table)):
        for k in range(table.shape[2]):
            z, root = np.float64(table[j, 0, k]), table[j, 1, k]
            if root == 0.0 and z == 0.0:
                continue
            new_root = root * shrink
            w = soft(z, threshold) / (np.float64(root) / eta0 + slack)
            if w == 0.0:
                z *= after / before
            else:
                z = w * (np.float64(new_root) / eta0 + new_slack) + math.copysign(new_threshold, w)
            table[j, 0, k], table[j, 1, k] = np.float32(z), new_root


@kernel
def write_weights(l1, l2, beta, vector, scalars, weights):
    t, eta0 = scalars[T], scalars[STEP]
    threshold, slack, speed = np.float32(t * l1), np.float32(beta / eta0 + t * l2 + TINY), np.float32(1.0 / eta0)
    for j in range(len(weights)):
        weights[j] = soft(vector[2 * j], threshold) / (vector[2 * j + 1] * speed + slack)


@inlined
def add_slight(longer, roots, part, values, a, size, turn):
    """longer[k] = sqrt(root^2 + g^2) where g^2 adds little: g^2 / (root + longer[k]), in which no digit is lost."""
    for k in range(size):
        root, g = roots[k], part * values[a + k]
        if longer[k] - root < SLIGHT * root:
            longer[k] = rounded(np.float64(root) + np.float64(g * g / (root + longer[k])), root, turn)


@inlined
def moved(z, move, turn):
    """z + move; if that is slight, up or down by turns as sgdqn.rounded, but no move leaves it as it is."""
    if abs(move) < SLIGHT * abs(z) and move != np.float32(0.0):
        value = np.float64(z) + np.float64(move)
        near = np.float64(np.float32(value))
        unit = np.float64(np.float32(near * (1.0 + NEXT))) - near
        return np.float32(value + turn * unit)
    return z + move


@kernel
def ftrl_pass(batch, order, loss, l1, l2, beta, bias, vector, scalars):
    indptr, indices, values, labels, weights = batch
    t, b, b_z, b_root, eta0 = scalars[T], scalars[BIAS], scalars[BIAS_Z], scalars[BIAS_ROOT], scalars[STEP]
    seen, total, wrong = scalars[WEIGHT], scalars[LOSS], scalars[WRONG]
    longest = longest_row(indptr)
    w, z = np.empty(longest, np.float32), np.empty(longest, np.float32)
    roots, longer = np.empty(longest, np.float32), np.empty(longest, np.float32)
    speed = np.float32(1.0 / eta0)
    for place in range(len(order)):
        i = order[place]
        fetch_ahead(vector, indptr, indices, order, place, ONE)
        c = np.float64(weights[i])  # numba's float() would stay in single precision
        if c == 0.0:
            continue
        first = np.uint64(indptr[i])
        size = np.uint64(indptr[i + 1]) - first
        label = 2.0 * labels[i] - 1.0
        for k in range(size):
            j = np.uint64(indices[first + k]) << ONE
            z[k] = vector[j]
            roots[k] = vector[j + ONE]
        threshold, slack = np.float32(t * l1), np.float32(beta / eta0 + t * l2 + TINY)
        for k in range(size):
            w[k] = soft(z[k], threshold) / (roots[k] * speed + slack)
        score = gathered_dot(w, values, first, size) + b
        if not abs(score) < LARGEST_SCORE:
            return i
        seen += c
        total += c * loss.value(score, label)
        if (score > 0.0) != (label > 0.0):
            wrong += c

        t += c
        slope = loss.slope(score, label)
        if slope != 0.0:
            part, turn = np.float32(math.sqrt(c) * slope), GOLDEN * t % 1.0 - 0.5
            slight = False
            for k in range(size):
                g = part * values[first + k]
                longer[k] = np.float32(math.sqrt(roots[k] * roots[k] + g * g))
                slight |= longer[k] - roots[k] < SLIGHT * roots[k]
            grown_b = math.sqrt(b_root * b_root + c * slope * slope * bias.gain)
            b_reach = bias.gain / (grown_b / eta0 + slack)
            step = slope * safe_share(c, loss, slope, values, first, size, longer, 1.0 / eta0, slack, b_reach)
            small = np.float32(step)
            if slight:
                add_slight(longer, roots, part, values, first, size, turn)
            for k in range(size):
                w[k] = w[k] * ((longer[k] - roots[k]) * speed) - small * values[first + k]
            for k in range(size):
                j = np.uint64(indices[first + k]) << ONE
                vector[j] = moved(z[k], w[k], turn)
                vector[j + ONE] = longer[k]
            b_z += (grown_b - b_root) / eta0 * b - step * bias.gain
            b_root = grown_b
        b = b_z / ((beta + b_root) / eta0 + t * l2 * bias.decay + TINY)
    scalars[T], scalars[BIAS], scalars[BIAS_Z], scalars[BIAS_ROOT] = t, b, b_z, b_root
    scalars[WEIGHT], scalars[LOSS], scalars[WRONG] = seen, total, wrong
    return -1
