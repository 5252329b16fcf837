"""What dcd_ova and dcd_cs share: the weights of all classes side by side, and rows that rest in some of the classes.

A table of weights has a line for each feature, the last one for the bias, and in it a lane for each class. Lanes are
padded to whole parts of as many numbers as a cache line has; those without a class stay zero. Kernels walk over the
features of a row once for each part. A row whose dual variables in a part need not be looked at rests in this part
until the next scan (`rests`, a byte for each row and part), and rests altogether if it does so in all of them.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from contextlib import closing
from typing import Any, ClassVar

import numpy as np

from streamsvm.batch import Batch, Float32s, Float64s
from streamsvm.errors import ConfigError, ModelError
from streamsvm.groups import Groups
from streamsvm.jit import inlined, kernel
from streamsvm.lanes import load_lanes
from streamsvm.scoring import Offset
from streamsvm.solvers.base import Problem
from streamsvm.solvers.batch import Surroundings
from streamsvm.solvers.descent import TABLES, Descent
from streamsvm.wide_lanes import add_wide_multiples, add_wide_products, lanes_add, lanes_dot

FEW, LANES = 4, 8  # lanes of the only part of so few classes, and of a part of more
CACHE_LINE = 64  # bytes
PIECE = 1 << 12  # features, or rows, that are looked at together
CALM = 0.1  # of the steepest slope of a pass: with more against a move rows rest, some of them too early, until a scan


def lanes_for(classes: int) -> int:
    """Numbers of a part."""
    return FEW if classes <= FEW else LANES


def parts_for(classes: int) -> int:
    return max(1, -(-classes // lanes_for(classes)))


class ClassDescent(Descent):
    """Dual variables are [row, class], weights [feature, lane]."""

    name = "dcd"
    rule: ClassVar[str]
    signed: ClassVar[bool]  # whether alpha belongs to labels -1 and 1, and not to a sum over classes

    def __init__(self, problem: Problem, groups: Groups, around: Surroundings, classes: int) -> None:
        if classes < 1:
            raise ConfigError(f"solver {self.name} by {self.rule} needs classes, not {classes}")
        self.classes = classes
        self.parts = parts_for(classes)
        self.like = (0,) * lanes_for(classes)  # its length is known when kernels are compiled
        shape = (groups.width + 1, self.parts * len(self.like))
        super().__init__(problem, groups, around, shape, classes)
        self.rests = self._column(np.uint8, 16, self.parts)
        self._w = self._best = aligned_zeros(shape)

    @staticmethod
    def weight_bytes_for(classes: int) -> int:
        """Bytes that it needs at least for each feature: the tables, and models made of them."""
        return (TABLES + 8) * parts_for(classes) * lanes_for(classes)

    def described(self) -> str:
        return f"{self.classes} classes, {self.rule}; {super().described()}"

    # What a solver must say.

    @abstractmethod
    def _guess(self, batch: Batch, alpha: Float64s) -> None:
        """Dual variables of rows as the weights in w suggest them."""

    # What is learned.

    def vector(self) -> Float64s:
        """[feature, class], in the last line the weights of the bias' feature."""
        return self._best[:, : self.classes]

    def weights(self) -> tuple[Float32s, Offset]:
        """[feature, class] and [class]"""
        found = self.vector()
        return found[:-1].astype(np.float32), found[-1] * math.sqrt(self.problem.bias.gain)

    def start_from(self, weights: Float32s, bias: Offset) -> None:
        """alpha as the slopes at these weights say; where a slope jumps, in between, close to the jump."""
        if weights.shape[1:] != (self.classes,):
            raise ModelError(f"the weights to begin with are not those of {self.classes} classes")
        kept, root = min(len(weights), self.groups.width), math.sqrt(self.problem.bias.gain)
        self._w[:] = 0.0
        self._w[:kept, : self.classes] = weights[:kept]
        self._w[-1, : self.classes] = np.asarray(bias) / root if root else 0.0

        def work(number: int, batch: Batch) -> int:
            self._guess(batch, self.groups.of(number, self.alpha))
            return batch.rows

        with closing(self.groups.mapped(work)) as done:
            for rows in done:
                self.around.tick(rows)
        self._begun = self._stale = True

    def _recompute(self) -> None:
        """Groups are read on all threads, but added one after the other: there may be no room for a second table."""
        groups, gain = self._readable, self.problem.bias.gain
        self._w[:] = 0.0
        with closing(groups.mapped(lambda number, batch: (number, batch))) as read:
            for number, batch in read:
                alpha = groups.of(number, self.alpha)
                combine_pass(batch, alpha, self._cost, gain, self.signed, self.like, self._w.reshape(-1))
                self.around.tick(batch.rows)

    # What solvers share.

    def _seeming(self, times: float) -> float:
        return min(max(times, 1.0), 2.0)

    @property
    def _cost(self) -> float:
        """u of a row of weight 1."""
        return 1.0 / (self.problem.l2 * max(self.groups.weight, 1e-300))

    def _penalties(self, table: Float64s) -> Float64s:
        """l2/2 ||w_k||^2 of each class."""
        pieces = (table[a : a + PIECE, : self.classes] for a in range(0, len(table), PIECE))
        squares = sum((np.square(piece).sum(axis=0) for piece in pieces), np.zeros(self.classes))
        return 0.5 * self.problem.l2 * squares

    def _mean(self) -> Float64s:
        """The mean of w at several moments, in a new table."""
        return self._sum / self._added if self._added else self._w.copy()

    def _scanned_sums(self, scan: Callable[..., None], table: Float64s, *given: Any, count: int) -> Float64s:
        """What a kernel adds up over all rows, for w and another table, in `count` means."""
        groups, problem = self._readable, self.problem
        tables = self._w.reshape(-1), table.reshape(-1)

        def work(number: int, batch: Batch) -> tuple[int, Float64s]:
            sums = np.zeros(count)
            own = (groups.of(number, column) for column in (self.alpha, self.rests, self.marks))
            scan(batch, problem.loss, problem.bias.gain, self.like, *tables, *own, *given, sums)
            return batch.rows, sums

        total = np.zeros(count)
        with closing(groups.mapped(work)) as results:
            for rows, sums in results:
                total += sums
                self.around.tick(rows)
        return total / max(self.groups.weight, 1e-300)


def aligned_zeros(shape: tuple[int, ...]) -> Float64s:
    """Each part of a table in a cache line of its own, so that threads that learn from others are not disturbed."""
    size = math.prod(shape)
    room: Any = np.zeros(size + CACHE_LINE // 8)
    start = -room.ctypes.data % CACHE_LINE // 8
    table: Float64s = room[start : start + size].reshape(shape)
    return table


@inlined
def part_scores(vector, indices, values, a, b, stride, offset, root, like):
    """w_k.x + b_k of the classes whose lanes begin at `offset`."""
    scores = lanes_dot(vector, indices, values, a, b, stride, offset, like)
    return add_wide_products(scores, vector, np.uint64(len(vector)) - stride + offset, root)


@inlined
def part_adds(vector, indices, values, a, b, stride, offset, root, factors):
    """w_k += factor_k x, and the same for the bias."""
    lanes_add(vector, indices, values, a, b, stride, offset, factors)
    add_wide_multiples(vector, np.uint64(len(vector)) - stride + offset, factors, root)


@kernel
def settle(order, active, numbers, rests, marks, mark):
    """Leave rows that rest in all parts out of the order, and mark them; returns how many there are now."""
    kept = 0
    for place in range(active):
        i = order[place]
        awake = False
        for part in range(rests.shape[1]):
            awake |= rests[numbers[i], part] == 0
        if awake:
            order[kept] = i
            kept += 1
        else:
            marks[numbers[i]] |= mark
    return kept


@kernel
def combine_pass(batch, alphas, cost, gain, signed, like, vector):
    """w_k += u alpha_k x, or u alpha_k y_k x, for each row."""
    indptr, indices, values, labels, weights = batch
    n, classes = len(like), alphas.shape[1]
    parts = -(-classes // n)
    root = math.sqrt(gain)
    factors = np.zeros(n)
    for i in range(len(labels)):
        u = cost * np.float64(weights[i])
        own = np.int64(labels[i])
        for part in range(parts):
            moving = False
            for k in range(min(n, classes - part * n)):
                factor = u * alphas[i, part * n + k]
                factors[k] = -factor if signed and part * n + k != own else factor
                moving |= factor != 0.0
            if moving:
                lanes = load_lanes(factors, np.uint64(0), like)
                stride, offset = np.uint64(parts * n), np.uint64(part * n)
                part_adds(vector, indices, values, indptr[i], indptr[i + 1], stride, offset, root, lanes)
            factors[:] = 0.0
