"""From products of rows and landmarks to how near they are, in single precision and in vector registers.

gaussian     exp(-gamma ||x - p||^2),   ||x - p||^2 = ||x||^2 + ||p||^2 - 2 x.p,   never below 0
polynomial   (gamma x.p + coef0)^degree
"""

import numpy as np

from streamsvm.batch import Float32s
from streamsvm.exponentials import BINARY, exponentials
from streamsvm.jit import inlined, kernel

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


@kernel
def gaussian_pass(products, rows, lengths, gamma):
    powers = np.empty(products.shape[1], np.int32)
    for i in range(len(products)):
        row, own = products[i], length_of(rows[i])
        for k in range(np.uint64(len(row))):
            row[k] = max(own + lengths[k] - TWO * row[k], ZERO)
        exponentials(row, powers, -gamma * BINARY, np.uint64(len(row)))


@kernel
def polynomial_pass(products, gamma, coef0, degree):
    for i in range(len(products)):
        row = products[i]
        for k in range(np.uint64(len(row))):
            base = gamma * row[k] + coef0
            power = base
            for _ in range(degree - 1):
                power *= base
            row[k] = power
