"""What `adagrad` and `ftrl` share: a step size of its own for every feature, eta0 over the root of its squared slopes.

A square root and a division for each feature would be most of the work. So a row's features are first gathered into
short arrays, where such loops become vector instructions, and scattered again at the end. Roots are kept in single
precision: they stop growing after 10^7 slopes of one size, and steps stop shrinking where they are 4000 times shorter
than at first.
"""

import math

import numpy as np

from streamsvm.jit import inlined
from streamsvm.rows import FOUR, ONE, THREE, TWO


def known_root(t: float, known: int) -> float:
    """The root to begin with where weights are known but not how they were learned, after t rows.

    Rows of length one would have left t / known in the sum of squares of each feature, on the average; t in the bias's.
    """
    return math.sqrt(max(1.0, t / max(1, known)))


@inlined
def longest_row(indptr):
    longest = 0
    for i in range(len(indptr) - 1):
        longest = max(longest, indptr[i + 1] - indptr[i])
    return longest


@inlined
def gathered_dot(w, values, a, size):
    """Sum of w[k] * values[a + k], in double over four lanes."""
    first = second = third = fourth = 0.0
    k = np.uint64(0)
    while k + FOUR <= size:
        first += np.float64(w[k]) * np.float64(values[a + k])
        second += np.float64(w[k + ONE]) * np.float64(values[a + k + ONE])
        third += np.float64(w[k + TWO]) * np.float64(values[a + k + TWO])
        fourth += np.float64(w[k + THREE]) * np.float64(values[a + k + THREE])
        k += FOUR
    while k < size:
        first += np.float64(w[k]) * np.float64(values[a + k])
        k += ONE
    return (first + second) + (third + fourth)


@inlined
def grow(roots, slope, values, a, size):
    """roots[k] = sqrt(roots[k]^2 + (slope x)^2)"""
    small = np.float32(slope)
    for k in range(size):
        g = small * values[a + k]
        roots[k] = np.float32(math.sqrt(roots[k] * roots[k] + g * g))


@inlined
def safe_share(c, loss, slope, values, a, size, roots, inverse, more, b_reach):
    """c, or less where steps of c slope x / (root * inverse + more) would overshoot.

    A steep step goes no further than to where the row's loss is least. Losses of bounded slope need no bound: the roots
    have grown by the row's own slopes, so that no weight moves by more than sqrt(c) times eta0.
    """
    bend = loss.bend()
    if bend > 0.0 and abs(slope) > bend:
        reach = b_reach
        for k in range(size):
            x = np.float64(values[a + k])
            reach += x * x / (np.float64(roots[k]) * inverse + more)
        c = min(c, 1.0 / (bend * reach))
    return c
