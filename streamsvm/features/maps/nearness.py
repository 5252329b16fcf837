"""From products of rows and landmarks to how near they are, in single precision and in vector registers.

gaussian     exp(-gamma ||x - p||^2),   ||x - p||^2 = ||x||^2 + ||p||^2 - 2 x.p,   never below 0
polynomial   (gamma x.p + coef0)^degree
"""

from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Float32s
from streamsvm.exponentials import exponential_lanes
from streamsvm.features.maps.product import LIKE, put
from streamsvm.jit import inlined, kernel
from streamsvm.lanes import load_lanes, most

ZERO, TWO = np.float32(0.0), np.float32(2.0)


def squared_lengths(rows: Float32s) -> Float32s:
    out = np.empty(len(rows), np.float32)
    lengths_pass(rows, out)
    return out


@inlined
def length_of(row):
    total = ZERO
    for k in range(len(row)):
        total += row[k] * row[k]
    return total


@kernel
def lengths_pass(rows, out):
    for i in range(len(rows)):
        out[i] = length_of(rows[i])


class Gaussian(NamedTuple):
    """What becomes of a product with landmarks; `own` are the squared lengths of rows, `lengths` of landmarks."""

    width: int
    own: Float32s
    lengths: Float32s  # filled up to whole panels
    factor: Any  # float32: -gamma, for powers of two

    def write(self, out, row, column, lanes, room, spare):
        distances = most(self.own[row] + load_lanes(self.lengths, column, LIKE) - TWO * lanes, ZERO)
        nearness = exponential_lanes(distances, self.factor)
        put(out, row * np.uint64(self.width) + column, nearness, room, spare)


class Polynomial(NamedTuple):
    width: int
    gamma: Any  # float32, as the next one
    coef0: Any
    degree: int

    def write(self, out, row, column, lanes, room, spare):
        base = self.gamma * lanes + self.coef0
        power = base
        for _ in range(self.degree - 1):
            power = power * base
        put(out, row * np.uint64(self.width) + column, power, room, spare)
