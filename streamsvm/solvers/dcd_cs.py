"""dcd for several classes at once, as Crammer and Singer put it: the right class ahead of every other by a margin.

    minimise   P(w) = l2/2 sum over k of ||w_k||^2 + mean of c_i max(0, 1 + largest s_ik with k != y_i - s_iy_i)
    maximise   D(alpha) = mean of c_i alpha_iy_i - l2/2 sum over k of ||w_k(alpha)||^2
               sum over k of alpha_ik = 0,   alpha_ik <= (1 where k = y_i, else 0);   D(alpha) <= P* <= P(w)
               w_k(alpha) = sum of u_i alpha_ik x_i,   u_i = c_i / (l2 N)
    each row   p_k = (1 where k = y_i, else 0) - alpha_ik;   v_k = s_ik + (0 where k = y_i, else 1)
               p' = the point of the simplex that is nearest to p + v / q,   q = u_i ||x_i||^2
               alpha_ik' = alpha_ik + p_k - p_k';   w_k += u_i (alpha_ik' - alpha_ik) x_i

    p_i is a share of row i for each class: the loss is the largest v_k - s_iy_i, and any mean of the v_k is below it.
    K. Crammer, Y. Singer, "On the algorithmic implementation of multiclass kernel-based vector machines", 2001; one
    row after the other: S. S. Keerthi et al., "A sequential dual method for large scale multi-class linear SVMs", 2008.
    Cost per row: two walks over its features for each part of eight classes, one where nothing changes.

The nearest point is max(0, d_k - level) / q, where d_k = v_k + q p_k: classes below the level are left out until none
is. A row is as it should be when all classes with a share have the largest v. A part of the classes without a share
whose v are far below may rest, and with them all of the row if one class has all of it.

Choose it where classes compete: it often needs fewer rows than one-versus-all, and has hinge as its only loss.
"""

import math
from collections.abc import Generator, Sequence

import numpy as np

from streamsvm.batch import Batch, Float64s
from streamsvm.errors import ConfigError
from streamsvm.groups import Groups
from streamsvm.jit import inlined, kernel
from streamsvm.lanes import load_lanes, store_lanes
from streamsvm.losses import Hinge
from streamsvm.solvers.base import Problem
from streamsvm.solvers.batch import ALONE, Figures, Surroundings
from streamsvm.solvers.blocks import Block
from streamsvm.solvers.dcd import AHEAD, STRIP, fetch_row
from streamsvm.solvers.dcd_classes import CALM, ClassDescent, part_adds, part_scores, settle
from streamsvm.solvers.descent import RESTS, Bools, Piece

SMALL = 1e-12  # differences of v that are those of rounding
ROUNDED = 1e-9  # by how much the dual variables of a row may miss zero in their sum

# What a sweep adds up: the gap of the rows as they were found, what the dual gained, and the largest violation.
SEEN, GAINED, WORST = range(3)


class DcdCs(ClassDescent):
    rule = "Crammer-Singer"
    signed = False

    def __init__(self, problem: Problem, groups: Groups, around: Surroundings = ALONE, classes: int = 2) -> None:
        if not isinstance(problem.loss, Hinge):
            raise ConfigError(
                f"{self.rule} needs loss hinge, not {type(problem.loss).__name__}; one-versus-all has all"
            )
        super().__init__(problem, groups, around, classes)
        self._dual = self._bound = 0.0  # D of alpha, and the largest that was found
        self._rest_beyond = math.inf  # how far v must be below the largest for a class to rest
        self._sums = np.zeros(3)

    # Learning.

    def _begin_pass(self) -> None:
        self._sums[:] = 0.0

    def _learn(self, block: Block, pieces: Sequence[Piece], first: bool, mark: bool) -> Generator[None, None, None]:
        problem = self.problem
        for start, stop in pieces:
            cs_sweep(
                block.batch, block.order, start, stop, block.numbers, block.norms, problem.loss, self._cost,
                problem.bias.gain, self.like, self._rest_beyond, first, mark, self._w.reshape(-1), self.alpha,
                self.rests, self._sums,
            )  # fmt: skip
            yield
        if mark:
            block.active = int(settle(block.order, block.active, block.numbers, self.rests, self.marks, RESTS))

    def _end_pass(self) -> float:
        seen, gained, worst = self._sums.tolist()
        self._rest_beyond = CALM * worst if worst > 0.0 else math.inf
        self._dual += self.problem.l2 * gained
        seen *= self.problem.l2
        return float(seen / max(self._dual + seen, 1e-300))

    def _between(self, alpha: Float64s) -> Bools:
        between: Bools = ((alpha != 0.0) & (np.abs(alpha) < 1.0)).any(axis=1)
        return between

    def scan_means(self) -> Float64s:
        return self._scanned_sums(cs_scan, self._mean(), self._rest_beyond, count=5)

    def figures_of(self, means: Float64s, combined: Float64s | None = None) -> Figures:
        mean = self._mean()
        loss, error, dual, mean_loss, mean_error = means.tolist()
        penalty, mean_penalty = float(self._penalties(self._w).sum()), float(self._penalties(mean).sum())
        self._dual = dual - (penalty if combined is None else float(self._penalties(combined).sum()))
        self._bound = max(self._bound, self._dual)
        self._best = mean
        if mean_penalty + mean_loss < penalty + loss:
            return Figures(mean_penalty + mean_loss, self._bound, mean_loss, mean_error)
        self._best[:] = self._w
        return Figures(penalty + loss, self._bound, loss, error)

    def rest_beyond(self) -> Float64s:
        return np.array(self._rest_beyond)

    def let_rest_beyond(self, slopes: Float64s) -> None:
        self._rest_beyond = float(slopes)

    # Going on later, or elsewhere.

    def with_penalty(self, l2: float) -> None:
        self._bound = 0.0
        super().with_penalty(l2)

    def _guess(self, batch: Batch, alpha: Float64s) -> None:
        cs_alphas(batch, self.problem.loss, self.problem.bias.gain, self.like, self._w.reshape(-1), alpha)

    def _possible(self, alpha: Float64s) -> bool:
        groups = self.groups
        return all(
            bool(cs_possible(groups.marks(number)[0], groups.of(number, alpha))) for number in range(groups.count)
        )


@kernel
def cs_sweep(
    batch, order, start, stop, numbers, norms, loss, cost, gain, like, beyond, first, mark, vector, alphas, rests,
    sums,
):  # fmt: skip
    """Learn from rows order[start:stop]; where parts of the classes may rest they are marked, if wanted."""
    indptr, indices, values, labels, weights = batch
    n, parts, classes = len(like), rests.shape[1], alphas.shape[1]
    stride, root = np.uint64(n * parts), math.sqrt(gain)
    v, factors, gaps, awake = np.empty(n * parts), np.zeros(n * parts), np.empty(classes), np.empty(classes, np.int64)
    for place in range(start, stop):
        i = order[place]
        if place + AHEAD < stop:
            fetch_row(indptr, indices, values, order[place + AHEAD])
        c, number, own = np.float64(weights[i]), numbers[i], np.int64(labels[i])
        if c == 0.0:
            continue
        a, b, u = indptr[i], indptr[i + 1], cost * c
        count = 0
        for part in range(parts):
            if rests[number, part] == 0:
                scores = part_scores(vector, indices, values, a, b, stride, np.uint64(part * n), root, like)
                store_lanes(v, np.uint64(part * n), scores)
                for k in range(part * n, min(part * n + n, classes)):
                    awake[count] = k
                    count += 1
        if count == 0:
            continue
        top, bottom, mean = -math.inf, math.inf, 0.0
        for k in awake[:count]:
            v[k] += 0.0 if k == own else loss.margin
            share = (1.0 if k == own else 0.0) - alphas[number, k]
            top = max(top, v[k])
            bottom = min(bottom, v[k]) if share > 0.0 else bottom
            mean += share * v[k]
        if first:
            sums[SEEN] += u * (top - mean)
            sums[WORST] = max(sums[WORST], top - bottom)
        moving = top - bottom > SMALL * (1.0 + abs(top))
        if moving:
            q = u * (norms[i] + gain)
            sums[GAINED] += u * step(v, alphas[number], own, q, awake[:count], gaps, factors)
            for part in range(parts):
                changed = False
                for k in range(part * n, part * n + n):
                    changed |= factors[k] != 0.0
                    factors[k] *= u
                if changed:
                    lanes = load_lanes(factors, np.uint64(part * n), like)
                    part_adds(vector, indices, values, a, b, stride, np.uint64(part * n), root, lanes)
                    factors[part * n : part * n + n] = 0.0
        if mark and beyond < math.inf:
            near = put_to_rest(v, alphas[number], own, top - beyond, n, rests[number])
            if near == 1 and not moving:
                rests[number] = 1


@inlined
def step(v, alphas, own, q, awake, gaps, factors):
    """Move the shares of the classes that are awake to the best ones; alpha' - alpha are the factors of w. Returns what
    the dual gains."""
    top = -math.inf
    for k in awake:
        top = max(top, v[k] + q * ((1.0 if k == own else 0.0) - alphas[k]))
    count = 0
    for k in awake:
        gap = v[k] + q * ((1.0 if k == own else 0.0) - alphas[k]) - top
        if gap > -q:  # no share is larger than 1
            gaps[count] = gap
            count += 1
    level = simplex_level(gaps, count, q)
    others, left = 0.0, 1.0
    for k in awake:
        gap = v[k] + q * ((1.0 if k == own else 0.0) - alphas[k]) - top
        if q > 0.0:
            share = min(1.0, max(0.0, gap - level) / q)
        else:  # nothing holds it back: all to the first of the best
            share = left if gap == 0.0 else 0.0
            left -= share
        factors[k] = share
        others += 0.0 if k == own else share
    gained = 0.0
    for k in awake:
        moved = 0.0 - factors[k]
        if k == own:  # 1 - share, but exact where that is small
            moved = min(1.0, others) if factors[k] > 0.0 else 1.0
        change = moved - alphas[k]
        gained -= change * (v[k] + 0.5 * q * change)
        alphas[k] = moved
        factors[k] = change
    return gained


@inlined
def simplex_level(gaps, count, q):
    """The level above which the first `count` gaps sum up to q, the largest of them being 0; they are overwritten."""
    kept, level = 0, 0.0
    while kept < count and q > 0.0:
        count = kept if kept > 0 else count
        total = 0.0
        for k in range(count):
            total += gaps[k]
        level = (total - q) / count
        kept = 0
        for k in range(count):
            if gaps[k] > level:
                gaps[kept] = gaps[k]
                kept += 1
    return level


@inlined
def put_to_rest(v, alphas, own, far, n, rests):
    """Mark parts in which no class has a share, or v above `far`; returns how many classes have one or the other."""
    near = 0
    for part in range(len(rests)):
        if rests[part] == 0:
            before = near
            for k in range(part * n, min(part * n + n, len(alphas))):
                share = (1.0 if k == own else 0.0) - alphas[k]
                near += 1 if share > 0.0 or v[k] >= far else 0
            rests[part] = 1 if near == before else 0
    return near


@kernel
def cs_scan(batch, loss, gain, like, vector, mean, alphas, rests, marks, beyond, sums):
    """Marks parts and rows that may rest; sums of c loss, of c of the rows that are given another class and of c
    dual_value(alpha), and the first two for the mean of w."""
    indptr, indices, values, labels, weights = batch
    n, parts, classes = len(like), rests.shape[1], alphas.shape[1]
    stride, root = np.uint64(n * parts), math.sqrt(gain)
    scores, mean_scores = np.empty(n * parts), np.empty(n * parts)
    for i in range(len(labels)):
        marks[i] |= RESTS
        rests[i] = 1
        c, own = np.float64(weights[i]), np.int64(labels[i])
        if c == 0.0:
            continue
        for part in range(parts):
            offset, a, b = np.uint64(part * n), indptr[i], indptr[i + 1]
            store_lanes(scores, offset, part_scores(vector, indices, values, a, b, stride, offset, root, like))
            store_lanes(mean_scores, offset, part_scores(mean, indices, values, a, b, stride, offset, root, like))
        short, wrong = judged(scores, own, classes, loss.margin)
        mean_short, mean_wrong = judged(mean_scores, own, classes, loss.margin)
        sums[0] += c * short
        sums[1] += c * wrong
        sums[2] += c * loss.margin * alphas[i, own]
        sums[3] += c * mean_short
        sums[4] += c * mean_wrong
        top = scores[own] + short
        for k in range(classes):
            scores[k] += 0.0 if k == own else loss.margin
        rests[i] = 0
        if beyond < math.inf and put_to_rest(scores, alphas[i], own, top - beyond, n, rests[i]) == 1:
            rests[i] = 1
        else:
            marks[i] &= ~RESTS


@inlined
def judged(scores, own, classes, margin):
    """The loss of a row, and whether it is given another class."""
    best, rival = 0, -math.inf
    for k in range(classes):
        best = k if scores[k] > scores[best] else best
        rival = max(rival, scores[k]) if k != own else rival
    return max(0.0, margin + rival - scores[own]), best != own


@kernel
def cs_alphas(batch, loss, gain, like, vector, alphas):
    """Shares for the classes of the largest v, and for those in a narrow strip below."""
    indptr, indices, values, labels, weights = batch
    n, classes = len(like), alphas.shape[1]
    parts = -(-classes // n)
    stride, root = np.uint64(n * parts), math.sqrt(gain)
    v, factors, gaps, every = np.empty(n * parts), np.zeros(n * parts), np.empty(classes), np.arange(classes)
    for i in range(len(labels)):
        own = np.int64(labels[i])
        for part in range(parts):
            offset, a, b = np.uint64(part * n), indptr[i], indptr[i + 1]
            store_lanes(v, offset, part_scores(vector, indices, values, a, b, stride, offset, root, like))
        for k in range(classes):
            v[k] += 0.0 if k == own else loss.margin
            alphas[i, k] = 1.0 if k == own else 0.0  # no share yet
        step(v, alphas[i], own, STRIP, every, gaps, factors)


@kernel
def cs_possible(labels, alphas):
    """Whether dual variables are within their bounds."""
    for i in range(len(labels)):
        total = 0.0
        for k in range(alphas.shape[1]):
            total += alphas[i, k]
            least, most = (0.0, 1.0) if k == np.int64(labels[i]) else (-1.0, 0.0)
            if not least <= alphas[i, k] <= most:
                return False
        if not abs(total) <= ROUNDED:
            return False
    return True
