"""What solvers share that climb on the dual variables of one row after the other: where the rows are, and when to scan.

    pass    learn from all rows that do not rest, in memory or block by block; tells the gap as it was seen row by row
    scan    a reading at fixed weights on all cores: the exact gap, and which rows may rest until the next one

What fits into the memory is loaded once. More is read block by block, groups in a new random order each pass, the next
block while one is learned from, rows in a new random order inside; rows with dual variables strictly between their
bounds are copied to a part of the memory where they stay for another pass, and learned from again after every block.
"""

import math
from abc import abstractmethod
from collections.abc import Generator, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Batch, Float64s
from streamsvm.errors import ModelError
from streamsvm.groups import Column, Groups, MemoryGroups
from streamsvm.shuffle import mixed, random_order
from streamsvm.solvers.base import Problem, State
from streamsvm.solvers.batch import BatchSolver, Figures, Surroundings
from streamsvm.solvers.blocks import PAIR_BYTES, ROW_BYTES, Block, loaded
from streamsvm.solvers.units import measure_block

PARTS = 4  # of the memory: a block learned from, one being loaded, rows that stay, and those that will stay next
SWEEPS = 2  # over a block that had to be loaded
PIECE = 1 << 16  # rows between two ticks, or
PIECES = 16  # of a block, if that is less
ADD_AFTER = 4  # features for each weight before w is added to the mean again
FORGET = 0.5  # what the mean keeps of earlier passes with each new one
SCAN_AFTER = 10  # passes at most
SCAN_AT = 10.0  # or when the gap seems to be so many times smaller than at the last scan, or as small as wanted
SEEMS = 1.25  # the gap seen row by row is of weights that jump about, and so larger than that of their mean
LOOK = 1 << 12  # rows whose dual variables are copied to look at them
TABLES = 32  # bytes for each weight: w, its mean, the better one, and the model that is made of it

RESTS, STAYS = np.uint8(1), np.uint8(2)  # marks of rows that need not be loaded

Bools = npt.NDArray[np.bool_]
Piece = tuple[int, int]  # places in a block's order, from and to


class Plan(NamedTuple):
    """How memory is used: all rows stay in it, or there are blocks of so many rows and features."""

    resident: bool
    rows: int
    features: int
    sweeps: int  # over each block that is loaded


class Descent(BatchSolver):
    """A solver with dual variables `alpha`, one for each row or `each`; weights are arrays of this shape."""

    _dual: Any  # D of alpha; where classes are learned one by one, of each

    def __init__(
        self,
        problem: Problem,
        groups: Groups,
        around: Surroundings,
        shape: tuple[int, ...],
        each: int | None = None,
    ) -> None:
        super().__init__(problem, groups, around)
        self._free = self._left = around.memory - TABLES * math.prod(shape)
        self.alpha = self._column(np.float64, 4, each)
        self.marks = self._column(np.uint8, 16)
        self._row_features = float(groups.features.sum()) / max(groups.rows, 1)  # in the mean
        self._w = np.zeros(shape)
        self._best = self._w  # those that the figures speak of
        self._sum = np.zeros(shape)  # of w at several moments, and
        self._added = 0.0  # how many they were
        self._learned = 0.0  # features since the last of them
        self._begun = False  # whether there is anything to scan before the first pass
        self._stale = False  # whether w must be recomputed from alpha
        self._readable = groups  # where a scan reads: the groups, or the same rows in memory
        self._home: Block | None = None  # all rows, if they stay
        self._units = np.ones(1)  # of the features, and of that of the bias
        self._blocks: list[Block] = []  # else those that are loaded
        self._staying: list[Block] = []  # rows that stay, and those that will next

    def _column(self, kind: type[np.generic], share: int, each: int | None = None) -> Column:
        """A column of the groups, in memory if it takes no more than its share."""
        column = self.groups.column(kind, self._free // share, each)
        if not isinstance(column, np.memmap):
            self._left -= column.nbytes
        return column

    # What a solver must say.

    @abstractmethod
    def _begin_pass(self) -> None: ...

    @abstractmethod
    def _learn(self, block: Block, pieces: Sequence[Piece], first: bool, mark: bool) -> Generator[None, None, None]:
        """Learn from rows of the block's order, piece by piece; rows that come to rest leave it, and are marked if
        wanted. What is seen row by row is added up in the first sweep only."""

    @abstractmethod
    def _end_pass(self) -> float:
        """The relative gap as it was seen."""

    @abstractmethod
    def scan_means(self) -> Float64s:
        """What a reading at fixed weights adds up, divided by the weight of all rows; and which of them may rest."""

    @abstractmethod
    def figures_of(self, means: Float64s, combined: Float64s | None = None) -> Figures:
        """The exact figures that these means tell of the weights that stand, or of their mean if that is better.

        `combined` are the weights that alpha makes, where those that stand are others."""

    @abstractmethod
    def rest_beyond(self) -> Float64s:
        """The slopes beyond which rows at a bound may rest."""

    @abstractmethod
    def let_rest_beyond(self, slopes: Float64s) -> None: ...

    @abstractmethod
    def _recompute(self) -> None:
        """w from alpha."""

    @abstractmethod
    def _between(self, alpha: Float64s) -> Bools:
        """Which rows are strictly between their bounds; none, if rows are never at a bound."""

    @abstractmethod
    def _possible(self, alpha: Float64s) -> bool:
        """Whether dual variables are within their bounds."""

    # What a solver may say.

    def _seeming(self, times: float) -> float:
        """How many times larger the gap will seem than it is, where it seemed so at the last scan."""
        return SEEMS

    # Memory.

    @property
    def _rest(self) -> int:
        """Bytes that are left for rows."""
        return max(self._left, 1 << 16)

    @cached_property
    def plan(self) -> Plan:
        rows, features = self.groups.rows, int(self.groups.features.sum())
        if PAIR_BYTES * features + ROW_BYTES * rows <= self._rest:
            return Plan(True, rows, features, 1)
        room = max(1, int(self._rest / PARTS / (PAIR_BYTES * self._row_features + ROW_BYTES)))
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

    # Learning.

    def learn(self) -> None:
        self._load()
        if self._stale:
            self._recompute()
            self._best, self._stale = self._w, False
        if self._begun and self._enough(self._scanned()):
            return
        self._begun = True
        gap, seems = 1.0, SEEMS
        while True:
            wanted = seems * max(self.around.limits.tol, gap / SCAN_AT)
            for _ in range(SCAN_AFTER):
                seen = self._pass()
                if seen <= wanted or self._over():
                    break
            if self._enough(self._scanned()):
                return
            assert self.figures is not None and self.figures.gap is not None
            seems = self._seeming(seen / max(self.figures.gap, 1e-300))
            gap = min(gap, self.figures.gap)

    def _scanned(self) -> Figures:
        figures = self.figures_of(self.scan_means())
        if self._home is not None:
            self._home.choose(self.marks)
        return figures

    def _pass(self) -> float:
        """Learn from all rows that do not rest; returns the relative gap as it was seen row by row."""
        self.passes += 1
        self._sum *= FORGET
        self._added *= FORGET
        self._begin_pass()
        seed = mixed(self.around.seed, self.passes)
        if self._home is not None:
            self._sweep(self._home, seed)
        else:
            self._pass_of_blocks(seed)
        return self._end_pass()

    def _pass_of_blocks(self, seed: int) -> None:
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
                    self._sweep(block, mixed(seed, done, sweep), first=sweep == 0)
                    if sweep == 0 and staying.active:
                        self._sweep(staying, mixed(seed, done, SWEEPS), first=done == 0, mark=False)
                self._keep(block, next_staying)
                done += 1
                if self._over():
                    break
        if not done:  # all rows that are awake stay in memory
            for sweep in range(self.plan.sweeps):
                self._sweep(staying, mixed(seed, done, sweep), first=sweep == 0, mark=False)
        self.marks[staying.numbers[: staying.rows]] &= ~STAYS
        self.marks[next_staying.numbers[: next_staying.rows]] |= STAYS
        self._staying = [next_staying, staying]

    def _keep(self, block: Block, staying: Block, every: int = 1) -> None:
        """Copy rows of a block between their bounds, or every so-manieth, to those that stay, if there is room."""
        pieces = (block.numbers[a : min(a + LOOK, block.rows)] for a in range(0, block.rows, LOOK))
        between = [self._between(self.alpha[numbers]) for numbers in pieces]
        chosen = np.flatnonzero(np.concatenate(between)) if between else np.empty(0, np.int64)
        staying.take(block.batch, block.numbers, chosen[self.passes % every :: every])

    def _sweep(self, block: Block, seed: int, *, first: bool = True, mark: bool = True) -> None:
        """Learn from the rows in the block's order once."""
        block.mix(seed)
        size = min(PIECE, 1 + block.active // PIECES)
        pieces = [(start, min(start + size, block.active)) for start in range(0, block.active, size)]
        with closing(self._learn(block, pieces, first, mark)) as learned:
            for (start, stop), _ in zip(pieces, learned, strict=True):
                self._average((stop - start) * self._row_features)
                self.around.tick(stop - start)

    def _average(self, features: float) -> None:
        """Add w to the mean, if so many features have been learned since that it is worth its cost."""
        self._learned += features
        if self._learned >= ADD_AFTER * (self.groups.width + 1):
            self._learned = 0.0
            self._sum += self._w
            self._added += 1.0

    @property
    def weight_table(self) -> Float64s:
        """The weights that stand."""
        return self._w

    # A part of the rows, while others learn from other parts: weights are then those that all agree upon. They are
    # given and returned as they are; inside they are in the units of the features (units.py).

    @property
    def dual(self) -> float:
        """D of the dual variables, as the last figures have it."""
        return float(np.sum(self._dual))

    def measure_in(self, units: Float64s) -> None:
        """Each feature, and at the end that of the bias, in these units."""
        if np.array_equal(units, self._units):
            return
        rows: Any = self.groups
        factors, bias = units / self._units, self.problem.bias
        rows.units[:] = units[:-1]
        if self._home is not None:
            measure_block(self._home, factors)
        self.problem = self.problem._replace(bias=bias._replace(gain=bias.gain * float(factors[-1]) ** 2))
        self._units = units

    def _own(self, vector: Float64s) -> Float64s:
        """Units, in the shape of weights."""
        return self._units.reshape(-1, *(1,) * (vector.ndim - 1))

    def take_up(self, vector: Float64s, alpha: Float64s | None, rest_beyond: Float64s | None) -> None:
        """Stand at these weights, with these dual variables where they are others, and no row at rest."""
        self._load()
        self._w[:] = vector / self._own(vector)
        self._best = self._w
        self._sum[:], self._added = 0.0, 0.0
        if alpha is not None:
            self.alpha[:] = alpha
        if rest_beyond is not None:
            self.let_rest_beyond(rest_beyond)
        self.marks[:] = 0

    def climb(self, start: Float64s, made: int, passes: int) -> Float64s:
        """So many passes from these weights, after `made` others; returns by how much they have moved."""
        self._w[:] = start / self._own(start)
        before = self._w.copy()
        self.passes = made
        if self._home is not None:
            self._home.choose(self.marks)
        for block in self._staying:
            block.clear()
        for _ in range(passes):
            self._pass()
        moved: Float64s = (self._w - before) * self._own(start)
        return moved

    def combined(self) -> Float64s:
        """The weights that the dual variables of these rows make."""
        self._load()
        self._recompute()
        combined: Float64s = self._w / self._own(self._w)
        return combined

    # Going on later, or elsewhere.

    def with_penalty(self, l2: float) -> None:
        self._w *= self.problem.l2 / l2
        self._sum[:], self._added = 0.0, 0.0
        super().with_penalty(l2)

    def state(self) -> State:
        held = 0 if isinstance(self.alpha, np.memmap) else self.alpha.nbytes
        alpha = self.groups.column(np.float64, held, *self.alpha.shape[1:])
        alpha[:] = self.alpha
        return {"alpha": alpha, "passes": self.passes}

    def restore(self, state: State) -> None:
        alpha: Any = state["alpha"]
        if alpha.shape != self.alpha.shape or not self._possible(alpha):
            raise ModelError("the dual variables saved are not those of these rows")
        self.alpha[:] = alpha
        self.passes = int(state["passes"])
        self._begun = self._stale = True
