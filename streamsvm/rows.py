"""What kernels do with one sparse row. Sums are in double over four lanes: exact enough for long rows, and fast."""

import numpy as np

from streamsvm.jit import inlined


@inlined
def row_dot(vector, indices, values, a, b):
    """Sum of vector[indices[k]] * values[k] for a <= k < b."""
    first = second = third = fourth = 0.0
    k = a
    while k + 4 <= b:
        first += np.float64(vector[indices[k]]) * np.float64(values[k])
        second += np.float64(vector[indices[k + 1]]) * np.float64(values[k + 1])
        third += np.float64(vector[indices[k + 2]]) * np.float64(values[k + 2])
        fourth += np.float64(vector[indices[k + 3]]) * np.float64(values[k + 3])
        k += 4
    while k < b:
        first += np.float64(vector[indices[k]]) * np.float64(values[k])
        k += 1
    return (first + second) + (third + fourth)


@inlined
def row_axpy(vector, indices, values, a, b, factor):
    """vector[indices[k]] += factor * values[k], in the vector's own precision."""
    small = np.float32(factor)
    for k in range(a, b):
        vector[indices[k]] += small * values[k]


@inlined
def row_norm2(values, a, b):
    """Sum of squares."""
    total = 0.0
    for k in range(a, b):
        total += np.float64(values[k]) * np.float64(values[k])
    return total


@inlined
def rescale(vector, factor):
    """vector *= factor, everywhere: how a small scale is brought back to one."""
    small = np.float32(factor)
    for j in range(len(vector)):
        vector[j] *= small


@inlined
def safe_rate(eta, loss, slope, values, a, b, gain):
    """eta, or less where it would overshoot: a steep step goes no further than to where the row's loss is least.

    Only losses with unbounded slopes need it (squared hinge), and there only rows on the wrong side. Without it one
    long row after a quiet beginning can make the weights explode.
    """
    bend = loss.bend()
    if bend > 0.0 and abs(slope) > bend:
        eta = min(eta, 1.0 / (bend * (row_norm2(values, a, b) + gain)))
    return eta
