"""dcd: coordinate descent on the dual problem, block by block, with a proof of how far the optimum is.

    minimise   P(w) = l2/2 ||w||^2 + mean of c_i loss(w.x_i + b, y_i)
    maximise   D(alpha) = mean of c_i dual_value(alpha_i) - l2/2 ||w(alpha)||^2,     0 <= alpha_i <= ceiling
               w(alpha) = sum of u_i alpha_i y_i x_i,   u_i = c_i / (l2 N);    D(alpha) <= P* <= P(w) for all alpha, w
    each row   alpha' = loss.dual_step(alpha_i, y_i s_i, u_i ||x_i||^2);   w += u_i (alpha' - alpha_i) y_i x_i

    C.-J. Hsieh et al., "A dual coordinate descent method for large-scale linear SVM", 2008; logistic: H.-F. Yu, F.-L.
    Huang, C.-J. Lin, 2011; blocks: H.-F. Yu et al., "Large linear classification when data cannot fit in memory", 2010;
    rows that stay in memory: S. Matsushima et al., "Linear support vector machines via dual cached loops", 2012.
    Cost per row: two walks over its features, one where nothing changes.

alpha is a share of the customary dual variable's bound, so it means the same whatever l2 is. Rows are in memory or read
block by block (descent.py). Rows at a bound that they would not leave are left out (`resting`) until the next scan. A
scan is a reading at fixed weights on all cores: it gives P and the gap, exactly, and finds out anew which rows may
rest. It is made when the gap that was seen row by row is small enough. w jumps about while D rises; a mean of w from
the last passes does not, and is given instead where its P is smaller.

Nothing depends on time or threads; block size and the rows that stay depend on the memory, so a run with another
budget ends at another point within the same tolerance. alpha alone says where a run stands: w is recomputed from it.

Choose it for exact answers on sparse rows with many features. With few features and many rows `newton` is quicker.
"""

import math
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from streamsvm.batch import Batch, Float32s, Float64s
from streamsvm.groups import Groups
from streamsvm.jit import inlined, kernel, prefetch
from streamsvm.rows import ONE, row_add, row_dot
from streamsvm.solvers.base import Problem
from streamsvm.solvers.batch import ALONE, Figures, Surroundings
from streamsvm.solvers.blocks import Block
from streamsvm.solvers.descent import PARTS, RESTS, Bools, Descent, Piece
from streamsvm.solvers.sums import Sums

AHEAD = np.int64(2)  # rows whose memory is asked for early
LINE = np.uint64(16)  # numbers of 4 bytes in a cache line

# What a sweep adds up: the gap of the rows as they were found, what the dual gained, and the steepest slopes that were
# found in the directions in which alpha may move.
SEEN, GAINED, HIGHEST, LOWEST = range(4)


STRIP = 0.1  # of margins in which rows are between their bounds, for all that weights tell: wider or narrower is slower


class Dcd(Descent):
    name = "dcd"

    def __init__(self, problem: Problem, groups: Groups, around: Surroundings = ALONE) -> None:
        super().__init__(problem, groups, around, (groups.width + 1,))
        self._dual = self._bound = 0.0  # D of alpha, and the largest that was found
        self._rest_beyond = (math.inf, -math.inf)  # slopes of rows that may rest at a bound
        self._sums = np.zeros(4)

    # Learning.

    def _begin_pass(self) -> None:
        self._sums[:] = 0.0, 0.0, -math.inf, math.inf

    def _learn(self, block: Block, pieces: Sequence[Piece], first: bool, mark: bool) -> Generator[None, None, None]:
        problem, kept = self.problem, 0
        cost = 1.0 / (problem.l2 * max(self.groups.weight, 1e-300))
        high, low = self._rest_beyond
        for start, stop in pieces:
            kept = dcd_sweep(
                block.batch, block.order, start, stop, kept, block.numbers, block.norms, problem.loss, cost,
                problem.bias.gain, high, low, first, mark, self._w, self.alpha, self.marks, self._sums,
            )  # fmt: skip
            yield
        block.active = int(kept)

    def _end_pass(self) -> float:
        seen, gained, high, low = self._sums.tolist()
        self._rest_beyond = (high if high > 0.0 else math.inf, low if low < 0.0 else -math.inf)
        self._dual += self.problem.l2 * gained
        seen = self.problem.l2 * seen
        return float(seen / max(self._dual + seen, 1e-300))

    def _between(self, alpha: Float64s) -> Bools:
        loss: Any = self.problem.loss
        if not math.isfinite(loss.dual_slope(0.0)):
            return np.zeros(len(alpha), np.bool_)
        between: Bools = (alpha > 0.0) & (alpha < loss.ceiling())
        return between

    def scan_means(self) -> Float64s:
        loss = self.problem.loss
        root = math.sqrt(self.problem.bias.gain)
        high, low = self._rest_beyond
        groups, mean = self._readable, self._mean()
        both = mean is not self._w
        biases = float(self._w[-1]) * root, float(mean[-1]) * root

        def work(number: int, batch: Batch) -> tuple[int, tuple[float, ...]]:
            alpha, marks = groups.of(number, self.alpha), groups.of(number, self.marks)
            return batch.rows, scan_pass(batch, loss, self._w, mean, *biases, both, alpha, marks, high, low)

        total = np.zeros(5)
        with closing(groups.mapped(work)) as results:
            for rows, sums in results:
                total += sums
                self.around.tick(rows)
        return total / max(self.groups.weight, 1e-300)

    def figures_of(self, means: Float64s, combined: Float64s | None = None) -> Figures:
        mean = self._mean()
        losses, errors, duals, mean_losses, mean_errors = means.tolist()
        norm, mean_norm = self._half_norm(self._w), self._half_norm(mean)
        self._dual = duals - (norm if combined is None else self._half_norm(combined))
        self._bound = max(self._bound, self._dual)
        if mean_norm + mean_losses < norm + losses:
            self._best = mean
            return Figures(mean_norm + mean_losses, self._bound, mean_losses, mean_errors)
        self._best = self._w.copy()
        return Figures(norm + losses, self._bound, losses, errors)

    def _half_norm(self, vector: Float64s) -> float:
        return 0.5 * self.problem.l2 * float(np.sum(vector * vector))

    def _mean(self) -> Float64s:
        """The mean of w at several moments."""
        return self._sum / self._added if self._added else self._w

    def rest_beyond(self) -> Float64s:
        return np.array(self._rest_beyond)

    def let_rest_beyond(self, slopes: Float64s) -> None:
        high, low = slopes.tolist()
        self._rest_beyond = high, low

    # What is learned.

    def vector(self) -> Float64s:
        return self._best

    def start_from(self, weights: Float32s, bias: float) -> None:
        """alpha as the slopes at these weights say; where a slope jumps, in between, close to the jump."""
        vector = self._extended(weights, bias)
        offset = float(vector[-1]) * math.sqrt(self.problem.bias.gain)
        jumps = not hasattr(self.problem.loss, "curvature")

        def work(number: int, batch: Batch) -> int:
            alpha = self.groups.of(number, self.alpha)
            alpha_pass(batch, self.problem.loss, vector, offset, jumps, alpha)
            return batch.rows

        with closing(self.groups.mapped(work)) as done:
            for rows in done:
                self.around.tick(rows)
        self._begun = self._stale = True

    def with_penalty(self, l2: float) -> None:
        self._bound = 0.0
        super().with_penalty(l2)

    def _recompute(self) -> None:
        sums = Sums(self._readable, self.problem, self._rest // PARTS, self.around.tick)
        combined = sums.combination(self.alpha) / self.problem.l2  # as wide as the rows in memory, which may be less
        combined *= self._readable.weight / max(self.groups.weight, 1e-300)  # and these may be a part of all
        self._w = np.zeros(self.groups.width + 1)
        self._w[: len(combined) - 1], self._w[-1] = combined[:-1], combined[-1]

    def _possible(self, alpha: Float64s) -> bool:
        loss: Any = self.problem.loss
        return bool(np.all((alpha >= 0.0) & (alpha <= loss.ceiling()) & (alpha < np.inf)))


@kernel
def dcd_sweep(
    batch, order, start, stop, kept, numbers, norms, loss, cost, gain, high, low, first, mark,
    vector, alphas, marks, sums,
):  # fmt: skip
    """Learn from rows order[start:stop]; those that do not rest move to order[kept:], whose end is returned."""
    indptr, indices, values, labels, weights = batch
    root = math.sqrt(gain)
    last = len(vector) - 1
    bias = vector[last] * root
    ceiling = loss.ceiling()
    seen = gained = 0.0
    highest, lowest = sums[HIGHEST], sums[LOWEST]
    for place in range(start, stop):
        i = order[place]
        if place + AHEAD < stop:
            fetch_alike(indptr, indices, values, order[place + AHEAD], i)
        c = np.float64(weights[i])
        if c == 0.0:
            continue
        a, b = indptr[i], indptr[i + 1]
        label = 2.0 * labels[i] - 1.0
        margin = label * (row_dot(vector, indices, values, a, b) + bias)
        alpha = alphas[numbers[i]]
        u = cost * c
        if first:
            seen += u * (loss.value(margin, 1.0) + alpha * margin - loss.dual_value(alpha))
        slope = margin - loss.dual_slope(alpha)
        if (alpha == 0.0 and slope > high) or (alpha == ceiling and slope < low):
            if mark:
                marks[numbers[i]] |= RESTS
            continue
        order[kept] = i
        kept += 1
        if (alpha == 0.0 and slope >= 0.0) or (alpha == ceiling and slope <= 0.0):
            highest, lowest = max(highest, 0.0), min(lowest, 0.0)
            continue
        highest, lowest = max(highest, slope), min(lowest, slope)
        stiffness = u * (norms[i] + gain)
        moved = loss.dual_step(alpha, margin, stiffness)
        step = moved - alpha
        if step != 0.0:
            alphas[numbers[i]] = moved
            gained += u * (loss.dual_value(moved) - loss.dual_value(alpha) - step * (margin + 0.5 * step * stiffness))
            row_add(vector, indices, values, a, b, u * step * label)
            bias += u * step * label * gain
    if root > 0.0:
        vector[last] = bias / root
    sums[GAINED] += gained
    if first:
        sums[SEEN] += seen
        sums[HIGHEST], sums[LOWEST] = highest, lowest
    return kept


@inlined
def fetch_row(indptr, indices, values, i):
    """Ask memory for a row to come: rows in random order are far from each other."""
    k, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
    while k < end:
        prefetch(indices, k)
        prefetch(values, k)
        k += LINE


@inlined
def fetch_alike(indptr, indices, values, i, now):
    """The same, but where the indices of row `now` are neighbours those of row i most likely are: then row_dot looks
    at the first and the last one only."""
    k, end = np.uint64(indptr[now]), np.uint64(indptr[now + 1])
    step = LINE
    if end > k and np.uint64(indices[end - ONE]) - np.uint64(indices[k]) == end - k - ONE:
        step = max(end - k - ONE, LINE)
    k, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
    for place in range(k, end, step):
        prefetch(indices, place)
    for place in range(k, end, LINE):
        prefetch(values, place)


@kernel
def scan_pass(batch, loss, vector, mean, bias, mean_bias, both, alphas, marks, high, low):
    """Marks rows that may rest; sums of c loss, of c of the rows on the wrong side and of c dual_value(alpha), and the
    first two for the mean of w, if that is another one."""
    indptr, indices, values, labels, weights = batch
    ceiling = loss.ceiling()
    total = wrong = dual = mean_total = mean_wrong = 0.0
    for i in range(len(labels)):
        c = np.float64(weights[i])
        marks[i] |= RESTS
        if c == 0.0:
            continue
        label = 2.0 * labels[i] - 1.0
        score = row_dot(vector, indices, values, indptr[i], indptr[i + 1]) + bias
        total += c * loss.value(score, label)
        wrong += c * ((score > 0.0) != (label > 0.0))
        if both:
            score_of_mean = row_dot(mean, indices, values, indptr[i], indptr[i + 1]) + mean_bias
            mean_total += c * loss.value(score_of_mean, label)
            mean_wrong += c * ((score_of_mean > 0.0) != (label > 0.0))
        dual += c * loss.dual_value(alphas[i])
        margin = label * score
        slope = margin - loss.dual_slope(alphas[i])
        if not ((alphas[i] == 0.0 and slope > high) or (alphas[i] == ceiling and slope < low)):
            marks[i] &= ~RESTS
    if not both:
        mean_total, mean_wrong = total, wrong
    return total, wrong, dual, mean_total, mean_wrong


@kernel
def alpha_pass(batch, loss, vector, bias, jumps, alphas):
    """alpha = -y slope(score); where slopes jump, in a narrow strip of margins around the jump what lies in between."""
    indptr, indices, values, labels, weights = batch
    for i in range(len(labels)):
        a, b = indptr[i], indptr[i + 1]
        margin = (2.0 * labels[i] - 1.0) * (row_dot(vector, indices, values, a, b) + bias)
        alphas[i] = loss.dual_step(0.5 * loss.ceiling(), margin, STRIP) if jumps else -loss.slope(margin, 1.0)
