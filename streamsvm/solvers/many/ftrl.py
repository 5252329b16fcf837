"""ftrl for several classes: see solvers/ftrl.py for the update, and solver.py here for how classes stand side by side.

For feature j and n lanes z is at [2 n j + k], the root of the squared slopes at [2 n j + n + k]. Weights follow from
them at every use, here twice for each row: that is cheaper than to keep a long row's weights for all classes.
"""

import math

import numpy as np

from streamsvm.batch import Batch, Float32s, Int64s
from streamsvm.jit import inlined, kernel
from streamsvm.lanes import choose, in_double, in_single, load_lanes, root_of, size_of, spread_lanes, store_lanes
from streamsvm.penalties import soft
from streamsvm.rows import ONE, ZERO
from streamsvm.scoring import Offset
from streamsvm.solvers.base import BIAS, LOSS, OWN, STEP, WEIGHT, WRONG, T
from streamsvm.solvers.ftrl import BIAS_ROOT, BIAS_Z, GIVEN, SLIGHT, TINY, Ftrl, fade
from streamsvm.solvers.many.lane_rows import (
    best_class,
    fetch_classes,
    gathered_dots,
    part_slopes,
    put_part,
    row_part,
    soft_lanes,
    steep_shares,
    tame,
)
from streamsvm.solvers.many.sgdqn import rounded_lanes
from streamsvm.solvers.many.solver import SCRATCH, ManyClasses
from streamsvm.solvers.own_steps import longest_row
from streamsvm.solvers.sgdqn import GOLDEN, NEXT

SCORE, SLOPE, SHARE = range(OWN + 3, OWN + 6)
NUMBERS = OWN + 3 + SCRATCH


class FtrlClasses(ManyClasses):
    plain = Ftrl
    apart = (BIAS, BIAS_Z, BIAS_ROOT, LOSS)

    def run(self, batch: Batch, order: Int64s | None = None) -> int:
        if self.scalars[GIVEN]:
            self._place_known()
        loss, penalty, bias = self.problem
        visits, part = self._visits(batch, order)
        terms = loss, penalty.l1, penalty.l2, self._beta, bias
        return int(ftrl_classes(batch, visits, *terms, part, self.vector, self.scalars, self.numbers.reshape(-1)))

    def weights(self) -> tuple[Float32s, Offset]:
        (table,) = self._used()
        weights, bias = table[:, 0, : self.classes].copy(), self.numbers[BIAS, : self.classes].copy()
        if not self.scalars[GIVEN] and self.scalars[STEP]:  # else z is not in use yet
            write_weights(self.problem.penalty.l1, self.problem.l2, self._beta, table, self.scalars, weights)
        return weights, bias

    @property
    def _beta(self) -> float:
        assert isinstance(self._one, Ftrl)
        return self._one.beta

    def turn_back(self, before: float, after: float) -> None:
        if self.scalars[GIVEN]:
            return
        assert isinstance(self._one, Ftrl)
        penalty, eta0 = self.problem.penalty, float(self.scalars[STEP])
        fade(penalty.l1, penalty.l2, self._beta, eta0, self._used()[0], before, after)
        self.numbers[BIAS_ROOT] *= math.sqrt(after / before)
        self.numbers[BIAS_Z] = self.numbers[BIAS] * self._one.hold(eta0, after, self.numbers[BIAS_ROOT])

    def _place_known(self) -> None:
        for k in range(self.classes):
            solver = self.one(k)
            assert isinstance(solver, Ftrl)
            solver._place_known()
            self._put(k, solver)
        self.scalars[GIVEN] = 0.0


@kernel
def write_weights(l1, l2, beta, table, scalars, weights):
    t, eta0 = scalars[T], scalars[STEP]
    threshold, slack, speed = np.float32(t * l1), np.float32(beta / eta0 + t * l2 + TINY), np.float32(1.0 / eta0)
    for j in range(len(weights)):
        for k in range(weights.shape[1]):
            weights[j, k] = soft(table[j, 0, k], threshold) / (table[j, 1, k] * speed + slack)


@inlined
def gather_led(vector, indices, a, size, lane, part, n, terms, w):
    """The weights of the row's features in one part of the lanes, side by side in w."""
    threshold, slack, speed = terms
    for k in range(size):
        j = np.uint64(indices[a + k]) * (n << ONE) + lane
        z, roots = load_lanes(vector, j, part), load_lanes(vector, j + n, part)
        store_lanes(w, k * np.uint64(len(part)), soft_lanes(z, threshold) / (roots * speed + slack))


@inlined
def grown_roots(roots, squares, turn):
    """sqrt(root^2 + square) for each lane, with ftrl.add_slight."""
    grown = root_of(roots * roots + squares)
    slight = rounded_lanes(in_double(roots) + in_double(squares / (roots + grown)), roots, turn)
    return choose(grown - roots < SLIGHT * roots, slight, grown)


@inlined
def moved_lanes(z, moves, turn):
    """ftrl.moved for each lane."""
    value = in_double(z) + in_double(moves)
    near = in_double(in_single(value))
    unit = in_double(in_single(near * (1.0 + NEXT))) - near
    slight = choose(moves != np.float32(0.0), in_single(value + turn * unit), z)
    return choose(size_of(moves) < SLIGHT * size_of(z), slight, z + moves)


@inlined
def lead_on(vector, indices, values, a, size, lane, part, n, c, speed, turn, w, numbers):
    """z_j -= c g - sigma w_j and n_j += c g^2, in lanes whose slope is not zero; in the others a root stays as it is,
    since sqrt(r^2) = r for every float32 r that is a root of one."""
    stride, width = n << ONE, np.uint64(len(part))
    slopes = row_part(SLOPE, lane, part, n, numbers)
    moving, parts = slopes != 0.0, in_single(math.sqrt(c) * slopes)
    steps = in_single(slopes * row_part(SHARE, lane, part, n, numbers))
    for k in range(size):
        j = np.uint64(indices[a + k]) * stride + lane
        z, roots = load_lanes(vector, j, part), load_lanes(vector, j + n, part)
        g = parts * values[a + k]
        grown = grown_roots(roots, g * g, turn)
        moves = load_lanes(w, k * width, part) * ((grown - roots) * speed) - steps * values[a + k]
        store_lanes(vector, j, choose(moving, moved_lanes(z, moves, turn), z))
        store_lanes(vector, j + n, grown)


@kernel
def ftrl_classes(batch, order, loss, l1, l2, beta, bias, part, vector, scalars, numbers):
    indptr, indices, values, labels, weights = batch
    n, last_scalar = np.uint64(len(numbers) // NUMBERS), len(scalars) - 1
    t, eta0, known = scalars[T], scalars[STEP], int(scalars[last_scalar])
    seen, wrong, bad = scalars[WEIGHT], scalars[WRONG], -1
    longest = longest_row(indptr)
    w, roots = np.empty(longest * len(part), np.float32), np.empty(longest, np.float32)
    speed = np.float32(1.0 / eta0)
    for place in range(len(order)):
        i = order[place]
        c = np.float64(weights[i])
        if c == 0.0:
            continue
        first, own = np.uint64(indptr[i]), int(labels[i])
        size = np.uint64(indptr[i + 1]) - first
        threshold, slack = np.float32(t * l1), np.float32(beta / eta0 + t * l2 + TINY)
        t += c
        turn = GOLDEN * t % 1.0 - 0.5
        for lane in range(ZERO, n, np.uint64(len(part))):
            terms = threshold, slack, speed
            gather_led(vector, indices, first, size, lane, part, n, terms, w)
            scores = gathered_dots(w, values, first, size, part)
            if lane == ZERO:
                fetch_classes(vector, indptr, indices, order, place + 1, n << ONE)
            b, b_z = row_part(BIAS, lane, part, n, numbers), row_part(BIAS_Z, lane, part, n, numbers)
            b_root = row_part(BIAS_ROOT, lane, part, n, numbers)
            scores = scores + b
            if not tame(scores):
                bad = i
            put_part(SCORE, lane, n, numbers, scores)
            moving, steep = part_slopes(loss, own, c, lane, part, n, SCORE, SLOPE, LOSS, numbers)

            if moving > 0:
                slopes = row_part(SLOPE, lane, part, n, numbers)
                grown_b = root_of(b_root * b_root + c * slopes * slopes * bias.gain)
                put_part(SHARE, lane, n, numbers, spread_lanes(c, part))
                if steep > 0:
                    put_part(SHARE, lane, n, numbers, bias.gain / (grown_b / eta0 + np.float64(slack)))
                    row = indices, values, first, size
                    rates = 1.0 / eta0, slack
                    steep_shares(vector, *row, n << ONE, lane, part, n, c, loss, rates, roots, SLOPE, SHARE, numbers)
                lead_on(vector, indices, values, first, size, lane, part, n, c, speed, turn, w, numbers)
                steps = slopes * row_part(SHARE, lane, part, n, numbers)
                b_z = choose(slopes != 0.0, b_z + ((grown_b - b_root) / eta0 * b - steps * bias.gain), b_z)
                b_root = choose(slopes != 0.0, grown_b, b_root)
                put_part(BIAS_Z, lane, n, numbers, b_z)
                put_part(BIAS_ROOT, lane, n, numbers, b_root)
            put_part(BIAS, lane, n, numbers, b_z / ((beta + b_root) / eta0 + t * l2 * bias.decay + TINY))
        if bad >= 0:
            break
        seen += c
        if best_class(known, n, SCORE, numbers) != own:
            wrong += c
        known = max(known, own + 1)
    scalars[T], scalars[last_scalar] = t, known
    scalars[WEIGHT], scalars[WRONG] = seen, wrong
    return bad
