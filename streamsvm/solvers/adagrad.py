"""adagrad: every feature has a step size of its own, which falls with the slopes it has seen.

    minimise   l2/2 ||w||^2 + l1 ||w||_1 + mean of c_i loss(w.x_i + b, y_i)
    at use     w_j = soft(w_j, s l1) / (1 + s l2),  with s = r_j times the weight of the rows since j was last used
    each row   G_j += c (slope x_j)^2;  r_j = eta0 / (delta + sqrt(G_j));  w_j -= c r_j slope x_j;  t += c

    Duchi, Hazan, Singer, "Adaptive subgradient methods", 2011 (composite mirror descent).
    Cost per row: four walks over its features, a root and two divisions for each; 16 bytes for each feature, 8 without
    a penalty.

Between two uses of a feature r_j does not change, so that its penalty is due in one proximal step at the next use.
That has the right fixed points for rare features too: w_j rests where the penalty of k rows balances the one gradient
among them, l2 w_j + mean gradient = 0. Rows whose slope is zero use nothing. The root of G_j is what is stored, beside
w_j and the time of the last use; that is in double, because in single precision clocks stand still after 10^7 rows.
eta0 is about as far as weights go, and is chosen by trial on the first rows. Without delta every rare feature would
begin with a step of that length; delta = 1 / (64 eta0), in the unit of slopes, whatever the scale of the features.
Choose it where features differ much in frequency or scale: one pass is often better than with `asgd`.
"""

import math

import numpy as np

from streamsvm.batch import Batch, Float32s, Float64s, Int64s
from streamsvm.jit import inlined, kernel
from streamsvm.penalties import soft
from streamsvm.rows import ONE, TWO, fetch_ahead
from streamsvm.solvers.base import (
    BIAS,
    LARGEST_SCORE,
    LOSS,
    OWN,
    STEP,
    WEIGHT,
    WRONG,
    OnlineSolver,
    T,
    row_order,
)
from streamsvm.solvers.own_steps import gathered_dot, grow, known_root, longest_row, safe_share

BIAS_ROOT, GIVEN = OWN, OWN + 1
DELTA = 1.0 / 64.0  # times 1 / eta0; 0.005 to 0.06 are about as good


class Adagrad(OnlineSolver):
    name = "adagrad"
    worse_by = 0.01  # steps get shorter by themselves, and far more rows follow than a trial has
    penalties = ("l2", "l1", "elastic_net", "none")
    own_scalars = 2
    walks = True

    def columns_for(self) -> int:
        return 2 if self.problem.penalty.kind == "none" else 4

    @staticmethod
    def guess(norm2: float) -> float:
        return float(1.0 / math.sqrt(norm2))

    def run(self, batch: Batch, order: Int64s | None = None) -> int:
        if self.scalars[GIVEN]:
            self._place_known()
        loss, penalty, bias = self.problem
        terms = loss, penalty.l1, penalty.l2, bias
        return int(adagrad_pass(batch, row_order(batch, order), *terms, self.vector, self._clocks(), self.scalars))

    def weights(self) -> tuple[Float32s, float]:
        weights = np.empty(self.width, np.float32)
        penalty = self.problem.penalty
        write_weights(penalty.l1, penalty.l2, self.vector, self._clocks(), self.scalars, weights)
        return weights, float(self.scalars[BIAS])

    def start_from(self, weights: Float32s, bias: float) -> None:
        self._reserve(len(weights))
        self.vector[: self.columns * len(weights) : self.columns] = weights
        self.scalars[BIAS] = bias
        self.scalars[GIVEN] = 1.0

    def turn_back(self, before: float, after: float) -> None:
        """G_j of all features is as if fewer rows had come."""
        if self.scalars[GIVEN]:  # roots are not in use yet
            return
        clocks, penalty = self._clocks(), self.problem.penalty
        table = self.vector.reshape(-1, self.columns, 1)[:, :2]
        times = None if clocks is None else clocks.reshape(-1, 2, 1)[:, 1:]
        fade(penalty.l1, penalty.l2, float(self.scalars[STEP]), table, times, before, after)
        self.scalars[BIAS_ROOT] *= math.sqrt(after / before)

    def _place_known(self) -> None:
        """Known weights were just used when the first row comes, and move no faster than those of sgd would."""
        t, eta0 = float(self.scalars[T]), float(self.scalars[STEP])
        known = self.vector[:: self.columns] != 0.0
        least = eta0 * self.problem.l2 * t
        self.vector[1 :: self.columns][known] = known_root(t, int(known.sum())) + least
        clocks = self._clocks()
        if clocks is not None:
            clocks[1::2][known] = t
        self.scalars[BIAS_ROOT] = known_root(t, 1) + least if self.scalars[BIAS] else 0.0
        self.scalars[GIVEN] = 0.0

    def _clocks(self) -> Float64s | None:
        """The same memory as numbers of 8 bytes: every second is the time at which a feature was last used."""
        return self.vector.view(np.float64) if self.columns == 4 else None

    def _total(self) -> float:
        return float(sum(np.sum(self.vector[part :: self.columns], dtype=np.float64) for part in (0, 1)))


@inlined
def paid(w, root, since, l1, l2):
    """soft(w, s l1) / (1 + s l2) with s = since / root; all of it as one amount to take off, which can be exactly 0."""
    return soft(w, since * (abs(w) * l2 + l1) / (root + since * l2))


@kernel
def fade(l1, l2, eta0, table, clocks, before, after):
    """Everyone pays; then G_j shrinks, and times of last use are put back with the clock."""
    l1, l2, delta = np.float32(l1), np.float32(l2), np.float32(DELTA / eta0)
    shrink = np.float32(math.sqrt(after / before))
    for j in range(len(table)):
        for k in range(table.shape[2]):
            root = table[j, 1, k]
            if root == 0.0:  # never used
                continue
            if clocks is not None:
                since = np.float32(eta0 * (before - clocks[j, 0, k]))
                table[j, 0, k] = paid(table[j, 0, k], root + delta, since, l1, l2)
                clocks[j, 0, k] = after
            table[j, 1, k] = root * shrink


@kernel
def write_weights(l1, l2, vector, clocks, scalars, weights):
    t, eta0 = scalars[T], scalars[STEP]
    l1, l2, delta = np.float32(l1), np.float32(l2), np.float32(DELTA / eta0)
    for j in range(len(weights)):
        if clocks is None:
            weights[j] = vector[2 * j]
        elif scalars[GIVEN]:
            weights[j] = vector[4 * j]
        else:
            since = np.float32(eta0 * (t - clocks[2 * j + 1]))
            weights[j] = paid(vector[4 * j], vector[4 * j + 1] + delta, since, l1, l2)


@inlined
def gather(vector, clocks, indices, a, size, eta0, t, w, roots, since):
    """A row's numbers side by side; `since` is eta0 times the time since a feature was used."""
    for k in range(size):
        if clocks is None:
            j = np.uint64(indices[a + k]) << ONE
        else:
            j = np.uint64(indices[a + k]) << TWO
            since[k] = np.float32(eta0 * (t - clocks[(j >> ONE) + ONE]))
        w[k] = vector[j]
        roots[k] = vector[j + ONE]


@inlined
def scatter(vector, clocks, indices, a, size, t, w, roots):
    for k in range(size):
        if clocks is None:
            j = np.uint64(indices[a + k]) << ONE
        else:
            j = np.uint64(indices[a + k]) << TWO
            clocks[(j >> ONE) + ONE] = t
        vector[j] = w[k]
        vector[j + ONE] = roots[k]


@kernel
def adagrad_pass(batch, order, loss, l1, l2, bias, vector, clocks, scalars):
    indptr, indices, values, labels, weights = batch
    t, b, b_root, eta0 = scalars[T], scalars[BIAS], scalars[BIAS_ROOT], scalars[STEP]
    seen, total, wrong = scalars[WEIGHT], scalars[LOSS], scalars[WRONG]
    longest = longest_row(indptr)
    w, roots, since = np.empty(longest, np.float32), np.empty(longest, np.float32), np.empty(longest, np.float32)
    delta = DELTA / eta0
    small_l1, small_l2, small_delta = np.float32(l1), np.float32(l2), np.float32(delta)
    for place in range(len(order)):
        i = order[place]
        fetch_ahead(vector, indptr, indices, order, place, ONE if clocks is None else TWO)
        c = np.float64(weights[i])  # numba's float() would stay in single precision
        if c == 0.0:
            continue
        first = np.uint64(indptr[i])
        size = np.uint64(indptr[i + 1]) - first
        label = 2.0 * labels[i] - 1.0
        gather(vector, clocks, indices, first, size, eta0, t, w, roots, since)
        if clocks is not None:
            for k in range(size):
                w[k] = paid(w[k], roots[k] + small_delta, since[k], small_l1, small_l2)
        score = gathered_dot(w, values, first, size) + b
        if not abs(score) < LARGEST_SCORE:
            return i
        seen += c
        total += c * loss.value(score, label)
        if (score > 0.0) != (label > 0.0):
            wrong += c

        slope = loss.slope(score, label)
        if slope != 0.0:
            grow(roots, math.sqrt(c) * slope, values, first, size)
            b_root = math.sqrt(b_root * b_root + c * slope * slope * bias.gain)
            b_reach = eta0 * bias.gain / (b_root + delta)
            share = safe_share(c, loss, slope, values, first, size, roots, 1.0 / eta0, delta / eta0, b_reach)
            step = np.float32(share * eta0 * slope)
            for k in range(size):
                w[k] -= step * values[first + k] / (roots[k] + small_delta)
            scatter(vector, clocks, indices, first, size, t, w, roots)
            b -= share * slope * b_reach
        t += c
        shrink = c * eta0 * l2 * bias.decay
        b -= b * shrink / (b_root + delta + shrink)
    scalars[T], scalars[BIAS], scalars[BIAS_ROOT] = t, b, b_root
    scalars[WEIGHT], scalars[LOSS], scalars[WRONG] = seen, total, wrong
    return -1
