"""How alike two rows are: the kernels of kernel learners, as terms. (In this package a `kernel` is a compiled pass.)

    rbf          k(s, x) = exp(-gamma ||s - x||^2)
    polynomial   k(s, x) = (gamma s.x + coef0)^degree
    linear       k(s, x) = s.x

Each is a function of a sum over features: `part` is one feature's share of it, for numbers or for lanes of them; `of`
makes k of the sum, in double; `finish` does that to an array of sums in single precision, in place. `merges` says
whether two supports can become one between them.

Supports are stored in tiles: 32 of them side by side, feature by feature, so that a row is compared with 32 at a time,
and memory is read from the first number to the last.

    points   | s_0[0] ... s_31[0] | s_0[1] ... s_31[1] | ... | s_32[0] ... s_63[0] | ...
"""

import math
from typing import Any, NamedTuple

import numpy as np

from streamsvm.exponentials import BINARY, exponentials
from streamsvm.jit import expose, inlined, kernel
from streamsvm.lanes import load_lanes, spread_lanes, store_lanes
from streamsvm.rows import ONE

TILE = 32  # supports
WIDE = np.uint64(TILE)
HALF_TILE = np.uint64(TILE // 2)
LANES = tuple(range(TILE // 2))  # as many numbers as are worked on together

NOTHING = np.float32(0.0)


class Rbf(NamedTuple):
    """exp(-gamma ||s - x||^2)"""

    gamma: float

    def part(self, one, other):
        apart = one - other
        return apart * apart

    def of(self, total):
        return math.exp(-self.gamma * total)

    def finish(self, totals, powers, count):
        exponentials(totals, powers, -self.gamma * BINARY, count)

    def merges(self):
        return True


class Polynomial(NamedTuple):
    """(gamma s.x + coef0)^degree"""

    gamma: float
    coef0: float
    degree: int

    def part(self, one, other):
        return one * other

    def of(self, total):
        return (self.gamma * total + self.coef0) ** self.degree

    def finish(self, totals, powers, count):
        gamma, coef0 = np.float32(self.gamma), np.float32(self.coef0)
        bases = powers.view(np.float32)
        for b in range(count):
            bases[b] = gamma * totals[b] + coef0
        totals[:count] = bases[:count]
        for _ in range(1, self.degree):
            for b in range(count):
                totals[b] *= bases[b]

    def merges(self):
        return False


class Linear(NamedTuple):
    """s.x"""

    gain: float = 1.0

    def part(self, one, other):
        return one * other

    def of(self, total):
        return total

    def finish(self, totals, powers, count):
        pass

    def merges(self):
        return False


Similarity = Rbf | Polynomial | Linear
SIMILARITIES = ("rbf", "polynomial", "linear")


def make_similarity(name: str, gamma: float, coef0: float = 1.0, degree: int = 3) -> Similarity:
    made: dict[str, Any] = {"rbf": Rbf(gamma), "polynomial": Polynomial(gamma, coef0, degree), "linear": Linear()}
    similarity: Similarity = made[name]
    return similarity


def _part(self, one, other):
    return getattr(self.instance_class, "part", None)


def _of(self, total):
    return getattr(self.instance_class, "of", None)


def _finish(self, totals, powers, count):
    return getattr(self.instance_class, "finish", None)


def _merges(self):
    return getattr(self.instance_class, "merges", None)


expose("part", _part)
expose("of", _of)
expose("finish", _finish)
expose("merges", _merges)


@inlined
def likenesses(similarity, points, row, count, likes, powers):
    """likes[b] = k(s_b, row) for all supports, and for what fills up the last tile."""
    dim, end = np.uint64(len(row)), np.uint64(count)
    tile = np.uint64(0)
    while tile < end:
        first = second = spread_lanes(NOTHING, LANES)
        place = tile * dim
        for j in range(dim):
            x = row[j]
            first = first + similarity.part(load_lanes(points, place, LANES), x)
            second = second + similarity.part(load_lanes(points, place + HALF_TILE, LANES), x)
            place += WIDE
        store_lanes(likes, tile, first)
        store_lanes(likes, tile + HALF_TILE, second)
        tile += WIDE
    similarity.finish(likes, powers, np.int64(tile))


@inlined
def own_likeness(similarity, row, alone, powers):
    """k(row, row), to the last bit what `likenesses` says of a support that is this row; `alone` has room for it."""
    total = NOTHING
    for j in range(np.uint64(len(row))):
        total += similarity.part(row[j], row[j])
    alone[0] = total
    similarity.finish(alone, powers, 1)
    return alone[0]


@inlined
def expansion(coefficients, likes, count):
    """Sum of coefficient_b likes_b, in double over four lanes."""
    first = second = third = fourth = 0.0
    b, end = np.uint64(0), np.uint64(count)
    while b + np.uint64(4) <= end:
        first += np.float64(coefficients[b]) * np.float64(likes[b])
        second += np.float64(coefficients[b + ONE]) * np.float64(likes[b + ONE])
        third += np.float64(coefficients[b + np.uint64(2)]) * np.float64(likes[b + np.uint64(2)])
        fourth += np.float64(coefficients[b + np.uint64(3)]) * np.float64(likes[b + np.uint64(3)])
        b += np.uint64(4)
    while b < end:
        first += np.float64(coefficients[b]) * np.float64(likes[b])
        b += ONE
    return (first + second) + (third + fourth)


@inlined
def first_place(support, dim):
    """Where a support's first feature is stored; the next ones follow, a tile apart."""
    return (support // TILE) * TILE * dim + support % TILE


@inlined
def put_support(points, support, row):
    place = first_place(support, len(row))
    for j in range(len(row)):
        points[place + TILE * j] = row[j]


@inlined
def get_support(points, support, row):
    place = first_place(support, len(row))
    for j in range(len(row)):
        row[j] = points[place + TILE * j]


@inlined
def spread_row(indices, values, a, b, row):
    """A sparse row in full."""
    row[:] = NOTHING
    for k in range(np.uint64(a), np.uint64(b)):
        row[indices[k]] = values[k]


@kernel
def expansion_pass(batch, similarity, points, coefficients, bias, dim, out):
    """Scores of rows; features beyond `dim` are ignored."""
    indptr, indices, values, labels, weights = batch
    count = len(coefficients)
    room = (count + TILE - 1) // TILE * TILE
    row, likes, powers = np.zeros(dim, np.float32), np.empty(room, np.float32), np.empty(room, np.int32)
    for i in range(len(labels)):
        first, last = indptr[i], indptr[i + 1]
        while last > first and indices[last - 1] >= dim:  # the largest come last
            last -= 1
        spread_row(indices, values, first, last, row)
        likenesses(similarity, points, row, count, likes, powers)
        out[i] = expansion(coefficients, likes, count) + bias


@kernel
def squared_length(similarity, points, coefficients, dim):
    """||f||^2 = sum over a and b of coefficient_a coefficient_b k(s_a, s_b)"""
    count = len(coefficients)
    room = (count + TILE - 1) // TILE * TILE
    row, likes, powers = np.zeros(dim, np.float32), np.empty(room, np.float32), np.empty(room, np.int32)
    total = 0.0
    for b in range(count):
        get_support(points, b, row)
        likenesses(similarity, points, row, count, likes, powers)
        total += np.float64(coefficients[b]) * expansion(coefficients, likes, count)
    return total


@kernel
def own_likenesses(batch, similarity, dim):
    """k(x, x) of each row."""
    indptr, indices, values, labels, weights = batch
    row, alone, powers = np.zeros(dim, np.float32), np.empty(1, np.float32), np.empty(1, np.int32)
    out = np.empty(len(labels), np.float32)
    for i in range(len(labels)):
        spread_row(indices, values, indptr[i], indptr[i + 1], row)
        out[i] = own_likeness(similarity, row, alone, powers)
    return out
