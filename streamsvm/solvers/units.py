"""Features in units of their own: the same rows, in which steps along some features are shorter than along others.

    x'_j = t_j x_j,   w'_j = w_j / t_j:    scores are the same, and a step that adds u x' to w' adds u t_j^2 x_j to w_j

Units are powers of two, so nothing is rounded: rows that were measured anew many times are, to the last bit, those that
were measured once.
"""

import numpy as np

from streamsvm.batch import Batch, Float64s
from streamsvm.groups import Groups
from streamsvm.jit import kernel
from streamsvm.solvers.blocks import Block, norms_pass

SMALLEST, LARGEST = -60, 60  # exponents, so that no value of 4 bytes is lost


def powers_of_two(paces: Float64s) -> Float64s:
    """Units in which steps along each feature are about so many times as long: the same on any machine."""
    _, exponents = np.frexp(paces)
    units: Float64s = np.ldexp(1.0, np.clip(exponents >> 1, SMALLEST, LARGEST))
    return units


class Measured(Groups):
    """Rows of other groups, their features in units that can be changed."""

    def __init__(self, groups: Groups) -> None:
        super().__init__(
            groups.starts, groups.features, groups.width, groups.weight, threads=groups.threads, scratch=groups._scratch
        )
        self._groups = groups
        self.units = np.ones(groups.width)

    def group(self, number: int) -> Batch:
        batch = self._groups.group(number)
        values = np.array(batch.values)
        measure(batch.indices, values, self.units)
        return batch._replace(values=values)


def measure_block(block: Block, factors: Float64s) -> None:
    """Change the units of rows in memory by these factors."""
    batch = block.batch
    measure(batch.indices[: batch.indptr[-1]], batch.values, factors)
    norms_pass(batch, block.norms)


def sum_of_squares(groups: Groups) -> Float64s:
    """The sum of c x^2 over all rows, for each feature, and at the end that of c."""
    total = np.zeros(groups.width + 1)
    for number in range(groups.count):
        squares_pass(groups.group(number), total)
    return total


@kernel
def measure(indices, values, factors):
    for k in range(len(indices)):
        values[k] *= factors[indices[k]]


@kernel
def squares_pass(batch, total):
    indptr, indices, values, labels, weights = batch
    for i in range(len(labels)):
        c = np.float64(weights[i])
        total[-1] += c
        for k in range(indptr[i], indptr[i + 1]):
            value = np.float64(values[k])
            total[indices[k]] += c * value * value
