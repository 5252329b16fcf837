"""dcd for several classes, each against all others: a binary problem for each class, all of them in the same passes.

    minimise   the sum over k of P_k(w_k) = l2/2 ||w_k||^2 + mean of c_i loss(w_k.x_i + b_k, y_ik)
               y_ik = 1 where row i is of class k, else -1;   predict the class of the largest score
    each row   alpha' = loss.dual_step(alpha_ik, y_ik s_ik, u_i ||x_i||^2);   w_k += u_i (alpha' - alpha_ik) y_ik x_i

    for all k, as dcd does it for one. Problems do not know of each other, so the sum of their duals is a bound of the
    sum, and parts of the classes can be learned on different threads without a change of a single bit.
    Cost per row: two walks over its features for each part of eight classes in which something changes.

Steps of eight classes take little longer than that of one: a row's features are read once for all of them. A class does
not stop before the others: the classes that are easy pay for those that are not, and the gap is that of the sum.

Choose it for exact answers on sparse rows with many features; classes by the dozen cost little more than one.
"""

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from streamsvm.batch import Batch, Float64s, Int64s
from streamsvm.groups import Groups
from streamsvm.jit import inlined, kernel
from streamsvm.lanes import load_lanes, store_lanes
from streamsvm.pool import Tokens, ordered
from streamsvm.solvers.base import Problem
from streamsvm.solvers.batch import ALONE, Figures, Surroundings
from streamsvm.solvers.blocks import Block
from streamsvm.solvers.dcd import AHEAD, STRIP, fetch_row
from streamsvm.solvers.dcd_classes import CALM, PIECE, ClassDescent, aligned_zeros, part_adds, part_scores, settle
from streamsvm.solvers.descent import RESTS, Bools, Piece

CHUNK = 128  # rows that a thread learns from for all its classes before the next ones: they are in its cache meanwhile
ALONE_BELOW = 1 << 18  # features of a sweep: with fewer, threads wait for each other longer than they work

# Numbers of each lane: whether it has a class, the slopes beyond which rows may rest, the steepest ones of this pass,
# the gap as it was seen, and what the dual gained. The others are scratch. Those of a part are neighbours.
USED, HIGH, LOW, HIGHEST, LOWEST, SEEN, GAINED, SCORE, ALPHA, FACTOR, NUMBERS = range(11)


class DcdOva(ClassDescent):
    rule = "one-versus-all"
    signed = True

    def __init__(self, problem: Problem, groups: Groups, around: Surroundings = ALONE, classes: int = 2) -> None:
        super().__init__(problem, groups, around, classes)
        self._dual = np.zeros(classes)  # D of alpha for each class,
        self._bound = np.zeros(classes)  # and the largest that was found
        self._numbers = aligned_zeros((self.parts, NUMBERS, len(self.like)))
        self._numbers[:, HIGH], self._numbers[:, LOW] = math.inf, -math.inf
        self._numbers[:, USED] = (np.arange(self.parts * len(self.like)) < classes).reshape(self.parts, -1)

    # Learning.

    def _begin_pass(self) -> None:
        self._numbers[:, HIGHEST : GAINED + 1] = 0.0

    def _learn(self, block: Block, pieces: Sequence[Piece], first: bool, mark: bool) -> Generator[None, None, None]:
        problem, batch = self.problem, block.batch

        def work(task: tuple[Piece, Int64s]) -> None:
            (start, stop), parts = task
            ova_sweep(
                batch, block.order, start, stop, block.numbers, block.norms, problem.loss, self._cost,
                problem.bias.gain, self.like, parts, first, mark, self._w.reshape(-1), self.alpha, self.rests,
                self._numbers.reshape(-1),
            )  # fmt: skip

        yield from together(work, pieces, self._shares(block.active))
        if mark:
            block.active = int(settle(block.order, block.active, block.numbers, self.rests, self.marks, RESTS))

    def _shares(self, rows: int) -> list[Int64s]:
        """The parts for each thread."""
        threads = min(self.groups.threads, self.parts) if rows * self._row_features > ALONE_BELOW else 1
        return [np.arange(thread, self.parts, threads) for thread in range(threads)]

    def _end_pass(self) -> float:
        high, low, l2 = self._numbers[:, HIGHEST], self._numbers[:, LOWEST], self.problem.l2
        self._numbers[:, HIGH] = np.where(high > 0.0, CALM * high, math.inf)
        self._numbers[:, LOW] = np.where(low < 0.0, CALM * low, -math.inf)
        gained, seen_by_class = (self._numbers[:, what].reshape(-1)[: self.classes] for what in (GAINED, SEEN))
        self._dual += l2 * gained
        seen = l2 * float(seen_by_class.sum())
        return seen / max(float(self._dual.sum()) + seen, 1e-300)

    def _between(self, alpha: Float64s) -> Bools:
        loss: Any = self.problem.loss
        if not math.isfinite(loss.dual_slope(0.0)):
            return np.zeros(len(alpha), np.bool_)
        between: Bools = ((alpha > 0.0) & (alpha < loss.ceiling())).any(axis=1)
        return between

    def scan_means(self) -> Float64s:
        return self._scanned_sums(ova_scan, self._mean(), self._numbers.reshape(-1), count=3 * self.classes + 2)

    def figures_of(self, means: Float64s, combined: Float64s | None = None) -> Figures:
        mean, k = self._mean(), self.classes
        losses, mean_losses, duals, (error, mean_error) = np.split(means, [k, 2 * k, 3 * k])
        penalties, mean_penalties = self._penalties(self._w), self._penalties(mean)
        self._dual = duals - (penalties if combined is None else self._penalties(combined))
        self._bound = np.maximum(self._bound, self._dual)
        bound, loss, mean_loss = (float(each.sum()) for each in (self._bound, losses, mean_losses))
        objective, mean_objective = loss + float(penalties.sum()), mean_loss + float(mean_penalties.sum())
        self._best = mean
        if mean_objective < objective:
            return Figures(mean_objective, bound, mean_loss, float(mean_error))
        self._best[:] = self._w
        return Figures(objective, bound, loss, float(error))

    def rest_beyond(self) -> Float64s:
        slopes: Float64s = self._numbers[:, HIGH : LOW + 1].copy()
        return slopes

    def let_rest_beyond(self, slopes: Float64s) -> None:
        self._numbers[:, HIGH : LOW + 1] = slopes

    # Going on later, or elsewhere.

    def with_penalty(self, l2: float) -> None:
        self._bound[:] = 0.0
        super().with_penalty(l2)

    def _guess(self, batch: Batch, alpha: Float64s) -> None:
        jumps = not hasattr(self.problem.loss, "curvature")
        ova_alphas(batch, self.problem.loss, self.problem.bias.gain, self.like, self._w.reshape(-1), jumps, alpha)

    def _possible(self, alpha: Float64s) -> bool:
        loss: Any = self.problem.loss
        ceiling = loss.ceiling()
        pieces = (alpha[a : a + PIECE] for a in range(0, len(alpha), PIECE))
        return all(bool(np.all((one >= 0.0) & (one <= ceiling) & (one < np.inf))) for one in pieces)


def together(
    work: Callable[[tuple[Piece, Int64s]], None], pieces: Sequence[Piece], shares: Sequence[Int64s]
) -> Generator[None, None, None]:
    """Do all shares of the work on a piece, each on a thread of its own, before the next piece is begun."""
    if len(shares) == 1 or not pieces:
        for piece in pieces:
            work((piece, shares[0]))
            yield
        return
    tokens = Tokens(len(shares))

    def produce() -> Iterator[tuple[Piece, Int64s]]:
        for piece in pieces:
            for share in shares:
                tokens.take(1)
                yield piece, share

    with closing(ordered(produce, work, tokens, len(shares))) as done:
        for _ in pieces:
            for _ in shares:
                next(done)
            yield
            tokens.give_back(len(shares))


@kernel
def ova_sweep(
    batch, order, start, stop, numbers, norms, loss, cost, gain, like, parts, first, mark, vector, alphas, rests,
    lanes,
):  # fmt: skip
    """Learn from rows order[start:stop], for the classes of these parts."""
    indptr, indices, values, labels, weights = batch
    n, stride = len(like), np.uint64(len(like) * rests.shape[1])
    root = math.sqrt(gain)
    for begin in range(start, stop, CHUNK):
        for part in parts:
            offset, base = np.uint64(part * n), part * NUMBERS * n
            count = min(n, alphas.shape[1] - part * n)
            for place in range(begin, min(begin + CHUNK, stop)):
                i = order[place]
                if part == parts[0] and place + AHEAD < stop:
                    fetch_row(indptr, indices, values, order[place + AHEAD])
                c, number = np.float64(weights[i]), numbers[i]
                if c == 0.0 or rests[number, part] != 0:
                    continue
                a, b = indptr[i], indptr[i + 1]
                scores = part_scores(vector, indices, values, a, b, stride, offset, root, like)
                store_lanes(lanes, np.uint64(base + SCORE * n), scores)
                for k in range(count):
                    lanes[base + ALPHA * n + k] = alphas[number, part * n + k]
                u = cost * c
                own = np.int64(labels[i]) - part * n
                awake, moving = steps(loss, u, u * (norms[i] + gain), own, first, base, n, lanes)
                if mark and awake == 0:
                    rests[number, part] = 1
                if moving > 0:
                    for k in range(count):
                        alphas[number, part * n + k] = lanes[base + ALPHA * n + k]
                    factors = load_lanes(lanes, np.uint64(base + FACTOR * n), like)
                    part_adds(vector, indices, values, a, b, stride, offset, root, factors)


@inlined
def steps(loss, u, stiffness, own, first, base, n, lanes):
    """A step in each lane of a part; returns how many do not rest, and how many move.

    Without branches, and with all numbers in one array at constant distances, this becomes vector instructions.
    """
    awake = moving = 0
    ceiling = loss.ceiling()
    for k in range(n):
        sign = 1.0 if k == own else -1.0
        margin = sign * lanes[base + SCORE * n + k]
        alpha = lanes[base + ALPHA * n + k]
        value, slope = loss.dual_value(alpha), margin - loss.dual_slope(alpha)
        unused, low, high = lanes[base + USED * n + k] == 0.0, alpha == 0.0, alpha == ceiling
        rest = unused | (low & (slope > lanes[base + HIGH * n + k])) | (high & (slope < lanes[base + LOW * n + k]))
        stuck = unused | (low & (slope >= 0.0)) | (high & (slope <= 0.0))
        moved = alpha if stuck else loss.dual_step(alpha, margin, stiffness)
        step = moved - alpha
        awake += 0 if rest else 1
        moving += 0 if step == 0.0 else 1
        lanes[base + ALPHA * n + k] = moved
        lanes[base + FACTOR * n + k] = sign * u * step
        lanes[base + GAINED * n + k] += u * (loss.dual_value(moved) - value - step * (margin + 0.5 * step * stiffness))
        lanes[base + SEEN * n + k] += first * u * (loss.value(margin, 1.0) + alpha * margin - value)
        steep = 0.0 if stuck else first * slope
        lanes[base + HIGHEST * n + k] = max(lanes[base + HIGHEST * n + k], steep)
        lanes[base + LOWEST * n + k] = min(lanes[base + LOWEST * n + k], steep)
    return awake, moving


@kernel
def ova_scan(batch, loss, gain, like, vector, mean, alphas, rests, marks, lanes, sums):
    """Marks parts and rows that may rest; for each class the sums of c loss, for w and for its mean, and of c
    dual_value(alpha), then those of c of the rows that are given another class, for w and for its mean."""
    indptr, indices, values, labels, weights = batch
    n, parts, classes = len(like), rests.shape[1], alphas.shape[1]
    stride, root = np.uint64(n * parts), math.sqrt(gain)
    ceiling = loss.ceiling()
    scores, mean_scores = np.empty(n), np.empty(n)
    for i in range(len(labels)):
        marks[i] |= RESTS
        rests[i] = 1
        c, own = np.float64(weights[i]), np.int64(labels[i])
        if c == 0.0:
            continue
        a, b = indptr[i], indptr[i + 1]
        best, largest, mean_best, mean_largest = 0, -math.inf, 0, -math.inf
        for part in range(parts):
            offset, base = np.uint64(part * n), part * NUMBERS * n
            found = part_scores(vector, indices, values, a, b, stride, offset, root, like)
            store_lanes(scores, np.uint64(0), found)
            found = part_scores(mean, indices, values, a, b, stride, offset, root, like)
            store_lanes(mean_scores, np.uint64(0), found)
            for k in range(min(n, classes - part * n)):
                j = part * n + k
                label = 1.0 if j == own else -1.0
                sums[j] += c * loss.value(scores[k], label)
                sums[classes + j] += c * loss.value(mean_scores[k], label)
                sums[2 * classes + j] += c * loss.dual_value(alphas[i, j])
                if scores[k] > largest:
                    best, largest = j, scores[k]
                if mean_scores[k] > mean_largest:
                    mean_best, mean_largest = j, mean_scores[k]
                slope = label * scores[k] - loss.dual_slope(alphas[i, j])
                low = alphas[i, j] == 0.0 and slope > lanes[base + HIGH * n + k]
                high = alphas[i, j] == ceiling and slope < lanes[base + LOW * n + k]
                if not (low or high):
                    rests[i, part] = 0
                    marks[i] &= ~RESTS
        sums[3 * classes] += c * (best != own)
        sums[3 * classes + 1] += c * (mean_best != own)


@kernel
def ova_alphas(batch, loss, gain, like, vector, jumps, alphas):
    """alpha = -y slope(score); where slopes jump, in a narrow strip of margins around the jump what lies in between."""
    indptr, indices, values, labels, weights = batch
    n, classes = len(like), alphas.shape[1]
    parts = -(-classes // n)
    stride, root = np.uint64(n * parts), math.sqrt(gain)
    scores = np.empty(n)
    for i in range(len(labels)):
        a, b = indptr[i], indptr[i + 1]
        for part in range(parts):
            found = part_scores(vector, indices, values, a, b, stride, np.uint64(part * n), root, like)
            store_lanes(scores, np.uint64(0), found)
            for k in range(min(n, classes - part * n)):
                j = part * n + k
                margin = scores[k] if j == np.int64(labels[i]) else -scores[k]
                guess = loss.dual_step(0.5 * loss.ceiling(), margin, STRIP) if jumps else -loss.slope(margin, 1.0)
                alphas[i, j] = guess
