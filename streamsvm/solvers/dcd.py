"""dcd: coordinate descent on the dual problem, block by block, with a proof of how far the optimum is.

    minimise   P(w) = l2/2 ||w||^2 + mean of c_i loss(w.x_i + b, y_i)
    maximise   D(alpha) = mean of c_i dual_value(alpha_i) - l2/2 ||w(alpha)||^2,     0 <= alpha_i <= ceiling
               w(alpha) = sum of u_i alpha_i y_i x_i,   u_i = c_i / (l2 N);    D(alpha) <= P* <= P(w) for all alpha, w
    each row   alpha' = loss.dual_step(alpha_i, y_i s_i, u_i ||x_i||^2);   w += u_i (alpha' - alpha_i) y_i x_i

    C.-J. Hsieh et al., "A dual coordinate descent method for large-scale linear SVM", 2008; logistic: H.-F. Yu, F.-L.
    Huang, C.-J. Lin, 2011; blocks: H.-F. Yu et al., "Large linear classification when data cannot fit in memory", 2010;
    rows that stay in memory: S. Matsushima et al., "Linear support vector machines via dual cached loops", 2012.
    Cost per row: two walks over its features, one where nothing changes.

alpha is a share of the customary dual variable's bound, so it means the same whatever l2 is. What fits into the memory
is loaded once. More is read block by block, groups in a new random order each pass, the next block while one is learned
from, rows in a new random order inside; rows with alpha strictly between its bounds are copied to a part of the memory
where they stay for another pass, and learned from again after every block. Rows at a bound that they would not leave
are left out (`resting`) until the next scan. A scan is a reading at fixed weights on all cores: it gives P and the gap,
exactly, and finds out anew which rows may rest. It is made when the gap that was seen row by row is small enough. w
jumps about while D rises; a mean of w from the last passes does not, and is given instead where its P is smaller.

Nothing depends on time or threads; block size and the rows that stay depend on the memory, so a run with another
budget ends at another point within the same tolerance. alpha alone says where a run stands: w is recomputed from it.

Choose it for exact answers on sparse rows with many features. With few features and many rows `newton` is quicker.
"""

import math
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Batch, Float32s, Float64s
from streamsvm.errors import ModelError
from streamsvm.groups import Groups, MemoryGroups
from streamsvm.jit import inlined, kernel, prefetch
from streamsvm.rows import row_add, row_dot
from streamsvm.shuffle import mixed, random_order
from streamsvm.solvers.base import Problem, State
from streamsvm.solvers.batch import ALONE, BatchSolver, Figures, Surroundings
from streamsvm.solvers.blocks import PAIR_BYTES, ROW_BYTES, Block, loaded
from streamsvm.solvers.sums import Sums

PARTS = 4  # of the memory: a block learned from, one being loaded, rows that stay, and those that will stay next
SWEEPS = 2  # over a block that had to be loaded
PIECE = 1 << 16  # rows between two ticks, or
PIECES = 16  # of a block, if that is less
ADD_AFTER = 4  # features for each weight before w is added to the mean again
FORGET = 0.5  # what the mean keeps of earlier passes with each new one
SCAN_AFTER = 10  # passes at most
SCAN_AT = 10.0  # or when the gap seems to be so many times smaller than at the last scan, or as small as wanted
SEEMS = 1.25  # the gap seen row by row is of weights that jump about, and so larger than that of their mean
AHEAD = np.int64(2)  # rows whose memory is asked for early
LINE = np.uint64(16)  # numbers of 4 bytes in a cache line

# What a sweep adds up: the gap of the rows as they were found, what the dual gained, and the steepest slopes that were
# found in the directions in which alpha may move.
SEEN, GAINED, HIGHEST, LOWEST = range(4)


STRIP = 0.1  # of margins in which rows are between their bounds, for all that weights tell: wider or narrower is slower

RESTS, STAYS = np.uint8(1), np.uint8(2)  # marks of rows that need not be loaded


class Plan(NamedTuple):
    """How memory is used: all rows stay in it, or there are blocks of so many rows and features."""

    resident: bool
    rows: int
    features: int
    sweeps: int  # over each block that is loaded


class Dcd(BatchSolver):
    name = "dcd"

    def __init__(self, problem: Problem, groups: Groups, around: Surroundings = ALONE) -> None:
        super().__init__(problem, groups, around)
        left = around.memory - 32 * (groups.width + 1)  # w, its mean, the better one, and the model that is made of it
        self.alpha = groups.column(np.float64, left // 4)
        self.marks = groups.column(np.uint8, left // 16)
        left -= sum(column.nbytes for column in (self.alpha, self.marks) if not isinstance(column, np.memmap))
        self._left = max(left, 1 << 16)
        self._row_features = float(groups.features.sum()) / max(groups.rows, 1)  # in the mean
        self.plan = self._planned()
        self._w = np.zeros(groups.width + 1)
        self._best = self._w  # those that the figures speak of
        self._sum = np.zeros(groups.width + 1)  # of w at several moments, and
        self._added = 0.0  # how many they were
        self._learned = 0.0  # features since the last of them
        self._dual = self._bound = 0.0  # D of alpha, and the largest that was found
        self._rest_beyond = (math.inf, -math.inf)  # slopes of rows that may rest at a bound
        self._begun = False  # whether there is anything to scan before the first pass
        self._stale = False  # whether w must be recomputed from alpha
        self._readable = groups  # where a scan reads: the groups, or the same rows in memory
        self._home: Block | None = None  # all rows, if they stay
        self._blocks: list[Block] = []  # else those that are loaded
        self._staying: list[Block] = []  # rows that stay, and those that will next

    def _planned(self) -> Plan:
        rows, features = self.groups.rows, int(self.groups.features.sum())
        if PAIR_BYTES * features + ROW_BYTES * rows <= self._left:
            return Plan(True, rows, features, 1)
        room = max(1, int(self._left / PARTS / (PAIR_BYTES * self._row_features + ROW_BYTES)))
        return Plan(False, room, max(1, int(room * self._row_features)), SWEEPS)

    def described(self) -> str:
        """What memory is used for, in words."""
        plan = self.plan
        size = (PAIR_BYTES * plan.features + ROW_BYTES * plan.rows) / 1e6
        if plan.resident:
            return f"all {plan.rows:,} rows stay in memory ({size:,.1f} MB)"
        return (
            f"about {-(-self.groups.rows // plan.rows):,} blocks of {plan.rows:,} rows ({size:,.1f} MB), "
            f"{plan.sweeps} sweeps over each; as many rows between their bounds stay in memory"
        )

    # Learning.

    def learn(self) -> None:
        self._load()
        if self._stale:
            self._recompute()
        if self._begun and self._enough(self._scan()):
            return
        self._begun = True
        gap = 1.0
        while True:
            wanted = SEEMS * max(self.around.limits.tol, gap / SCAN_AT)
            for _ in range(SCAN_AFTER):
                if self._pass() <= wanted or self._over():
                    break
            if self._enough(self._scan()):
                return
            assert self.figures is not None and self.figures.gap is not None
            gap = min(gap, self.figures.gap)

    def _load(self) -> None:
        plan, groups = self.plan, self.groups
        if self._home is not None or self._blocks:
            return
        if not plan.resident:
            self._blocks = [Block(plan.rows, plan.features) for _ in range(2)]
            self._staying = [Block(plan.rows, plan.features) for _ in range(2)]
            return
        home = Block(plan.rows, plan.features)
        home.rows = plan.rows
        first_feature = np.append(0, np.cumsum(groups.features))

        def work(number: int, batch: Batch) -> None:
            home.place(batch, int(groups.starts[number]), int(first_feature[number]))

        with closing(groups.mapped(work)) as placed:
            for _ in placed:
                self.around.tick(0)
        home.choose(self.marks)
        edges = groups.starts.tolist()
        pieces = [home.batch.slice(a, b) for a, b in zip(edges, edges[1:], strict=False)]
        self._home, self._readable = home, MemoryGroups(pieces, threads=groups.threads)

    def _pass(self) -> float:
        """Learn from all rows that do not rest; returns the relative gap as it was seen row by row."""
        self.passes += 1
        self._sum *= FORGET
        self._added *= FORGET
        sums = np.array([0.0, 0.0, -math.inf, math.inf])
        seed = mixed(self.around.seed, self.passes)
        if self._home is not None:
            self._sweep(self._home, seed, sums)
        else:
            self._pass_of_blocks(seed, sums)
        high, low = float(sums[HIGHEST]), float(sums[LOWEST])
        self._rest_beyond = (high if high > 0.0 else math.inf, low if low < 0.0 else -math.inf)
        self._dual += self.problem.l2 * float(sums[GAINED])
        seen = self.problem.l2 * float(sums[SEEN])
        return seen / max(self._dual + seen, 1e-300)

    def _pass_of_blocks(self, seed: int, sums: Float64s) -> None:
        staying, next_staying = self._staying
        staying.choose(self.marks, RESTS)
        next_staying.clear()
        self._keep(staying, next_staying, every=2)  # the others make room, so that each row meets all others in time
        order = random_order(self.groups.count, seed).tolist()
        done = 0
        with closing(loaded(self.groups, order, self.marks, self._blocks)) as blocks:
            for block in blocks:
                block.choose(self.marks)
                for sweep in range(self.plan.sweeps):
                    self._sweep(block, mixed(seed, done, sweep), sums, first=sweep == 0)
                    if sweep == 0 and staying.active:
                        self._sweep(staying, mixed(seed, done, SWEEPS), sums, first=done == 0, marks=False)
                self._keep(block, next_staying)
                done += 1
                if self._over():
                    break
        if not done:  # all rows that are awake stay in memory
            for sweep in range(self.plan.sweeps):
                self._sweep(staying, mixed(seed, done, sweep), sums, first=sweep == 0, marks=False)
        self.marks[staying.numbers[: staying.rows]] &= ~STAYS
        self.marks[next_staying.numbers[: next_staying.rows]] |= STAYS
        self._staying = [next_staying, staying]

    def _keep(self, block: Block, staying: Block, every: int = 1) -> None:
        """Copy rows of a block between their bounds, or every so-manieth, to those that stay, if there is room."""
        loss: Any = self.problem.loss
        if math.isfinite(loss.dual_slope(0.0)):  # else rows are never at a bound
            alpha = self.alpha[block.numbers[: block.rows]]
            chosen = np.flatnonzero((alpha > 0.0) & (alpha < loss.ceiling()))
            staying.take(block.batch, block.numbers, chosen[self.passes % every :: every])

    def _sweep(self, block: Block, seed: int, sums: Float64s, *, first: bool = True, marks: bool = True) -> None:
        """Learn from the rows in the block's order once; those that come to rest leave it, and are marked if wanted."""
        block.mix(seed)
        problem, kept = self.problem, 0
        cost = 1.0 / (problem.l2 * max(self.groups.weight, 1e-300))
        high, low = self._rest_beyond
        piece = min(PIECE, 1 + block.active // PIECES)
        for start in range(0, block.active, piece):
            stop = min(start + piece, block.active)
            kept = dcd_sweep(
                block.batch, block.order, start, stop, kept, block.numbers, block.norms, problem.loss, cost,
                problem.bias.gain, high, low, first, marks, self._w, self.alpha, self.marks, sums,
            )  # fmt: skip
            self._average((stop - start) * self._row_features)
            self.around.tick(stop - start)
        block.active = int(kept)

    def _average(self, features: float) -> None:
        """Add w to the mean, if so many features have been learned since that it is worth its cost."""
        self._learned += features
        if self._learned >= ADD_AFTER * len(self._w):
            self._learned = 0.0
            self._sum += self._w
            self._added += 1.0

    def _scan(self) -> Figures:
        """Exact figures over all rows, and which of them may rest."""
        loss, l2 = self.problem.loss, self.problem.l2
        root = math.sqrt(self.problem.bias.gain)
        high, low = self._rest_beyond
        groups = self._readable
        mean = self._sum / self._added if self._added else self._w
        biases = float(self._w[-1]) * root, float(mean[-1]) * root

        def work(number: int, batch: Batch) -> tuple[int, tuple[float, ...]]:
            alpha, marks = groups.of(number, self.alpha), groups.of(number, self.marks)
            return batch.rows, scan_pass(batch, loss, self._w, mean, *biases, alpha, marks, high, low)

        total = np.zeros(5)
        with closing(groups.mapped(work)) as results:
            for rows, sums in results:
                total += sums
                self.around.tick(rows)
        if self._home is not None:
            self._home.choose(self.marks)
        losses, errors, duals, mean_losses, mean_errors = (total / max(self.groups.weight, 1e-300)).tolist()
        norm = 0.5 * l2 * float(np.sum(self._w * self._w))
        mean_norm = 0.5 * l2 * float(np.sum(mean * mean))
        self._dual = duals - norm
        self._bound = max(self._bound, self._dual)
        if mean_norm + mean_losses < norm + losses:
            self._best = mean
            return Figures(mean_norm + mean_losses, self._bound, mean_losses, mean_errors)
        self._best = self._w.copy()
        return Figures(norm + losses, self._bound, losses, errors)

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
        self._w *= self.problem.l2 / l2
        self._sum[:], self._added, self._bound = 0.0, 0.0, 0.0
        super().with_penalty(l2)

    def _recompute(self) -> None:
        sums = Sums(self._readable, self.problem, self._left // PARTS, self.around.tick)
        combined = sums.combination(self.alpha) / self.problem.l2  # as wide as the rows in memory, which may be less
        self._w = np.zeros(self.groups.width + 1)
        self._w[: len(combined) - 1], self._w[-1] = combined[:-1], combined[-1]
        self._best = self._w
        self._stale = False

    def state(self) -> State:
        alpha = self.groups.column(np.float64, 0 if isinstance(self.alpha, np.memmap) else self.alpha.nbytes)
        alpha[:] = self.alpha
        return {"alpha": alpha, "passes": self.passes}

    def restore(self, state: State) -> None:
        alpha, loss = state["alpha"], self.problem.loss
        ceiling: float = loss.ceiling()  # type: ignore[no-untyped-call]
        if alpha.shape != self.alpha.shape or not bool(np.all((alpha >= 0.0) & (alpha <= ceiling) & (alpha < np.inf))):
            raise ModelError("the dual variables saved are not those of these rows")
        self.alpha[:] = alpha
        self.passes = int(state["passes"])
        self._begun = self._stale = True


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
            fetch_row(indptr, indices, values, order[place + AHEAD])
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


@kernel
def scan_pass(batch, loss, vector, mean, bias, mean_bias, alphas, marks, high, low):
    """Marks rows that may rest; sums of c loss, of c of the rows on the wrong side and of c dual_value(alpha), and the
    first two for the mean of w."""
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
        score_of_mean = row_dot(mean, indices, values, indptr[i], indptr[i + 1]) + mean_bias
        mean_total += c * loss.value(score_of_mean, label)
        mean_wrong += c * ((score_of_mean > 0.0) != (label > 0.0))
        dual += c * loss.dual_value(alphas[i])
        margin = label * score
        slope = margin - loss.dual_slope(alphas[i])
        if not ((alphas[i] == 0.0 and slope > high) or (alphas[i] == ceiling and slope < low)):
            marks[i] &= ~RESTS
    return total, wrong, dual, mean_total, mean_wrong


@kernel
def alpha_pass(batch, loss, vector, bias, jumps, alphas):
    """alpha = -y slope(score); where slopes jump, in a narrow strip of margins around the jump what lies in between."""
    indptr, indices, values, labels, weights = batch
    for i in range(len(labels)):
        a, b = indptr[i], indptr[i + 1]
        margin = (2.0 * labels[i] - 1.0) * (row_dot(vector, indices, values, a, b) + bias)
        alphas[i] = loss.dual_step(0.5 * loss.ceiling(), margin, STRIP) if jumps else -loss.slope(margin, 1.0)
