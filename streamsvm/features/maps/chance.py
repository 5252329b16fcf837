"""The random numbers of feature maps, the same to the last bit on every machine: a model keeps the seed alone.

Bits come from SplitMix64 (`shuffle.next_random`). What is made of them takes +, -, *, / and the square root only, which
all machines round alike; logarithms and cosines of a C library they do not.

    uniform     in (0, 1), both ends left out
    ln x        2 (s + s^3/3 + s^5/5 + ...) + e ln 2,   x = m 2^e,   s = (m - 1) / (m + 1),   |s| < 0.172
    normal      Marsaglia's polar method: two at a time, from a point in the unit circle
    length      of n normal numbers: its square is -2 ln(u_1 ... u_(n/2)), and the square of one more if n is odd
"""

import math

import numpy as np

from streamsvm.batch import Float64s
from streamsvm.jit import inlined, kernel
from streamsvm.shuffle import mixed, next_random

SMALL = 2.0**-53
HALF_ROOT = 0.7071067811865476
LN2 = 0.6931471805599453
TERMS = 13  # of the series; the next one is below 1e-20
TOGETHER = 16  # uniform numbers whose product cannot vanish
_1, _11 = np.uint64(1), np.uint64(11)


def normals(count: int, *seeds: int) -> Float64s:
    """So many numbers of mean 0 and variance 1."""
    made = np.empty(count + 1)
    fill_normals(np.uint64(mixed(*seeds)), made)
    return made[:count]


def lengths(count: int, n: int, *seeds: int) -> Float64s:
    """The lengths of so many vectors of n normal numbers each."""
    made = np.empty(count)
    fill_lengths(np.uint64(mixed(*seeds)), n, made)
    return made


@inlined
def uniform(bits):
    """A number in (0, 1) from 64 random bits."""
    return np.float64((bits >> _11) | _1) * SMALL


@inlined
def logarithm(x):
    """ln x of a positive number."""
    part, exponent = math.frexp(x)
    if part < HALF_ROOT:
        part *= 2.0
        exponent -= 1
    s = (part - 1.0) / (part + 1.0)
    square, total = s * s, 0.0
    for n in range(2 * TERMS - 1, -1, -2):
        total = total * square + 1.0 / n
    return 2.0 * s * total + exponent * LN2


@inlined
def normal_pair(state):
    """The next state, and two normal numbers."""
    while True:
        state, bits = next_random(state)
        x = 2.0 * uniform(bits) - 1.0
        state, bits = next_random(state)
        y = 2.0 * uniform(bits) - 1.0
        square = x * x + y * y
        if 0.0 < square < 1.0:
            break
    factor = math.sqrt(-2.0 * logarithm(square) / square)
    return state, factor * x, factor * y


@kernel
def fill_normals(state, out):
    """In pairs; the last one of an odd number of places stays as it is."""
    for k in range(0, len(out) - 1, 2):
        state, out[k], out[k + 1] = normal_pair(state)


@kernel
def fill_lengths(state, n, out):
    for k in range(len(out)):
        square = 0.0
        for start in range(0, n // 2, TOGETHER):
            product = 1.0
            for _ in range(start, min(start + TOGETHER, n // 2)):
                state, bits = next_random(state)
                product *= uniform(bits)
            square -= 2.0 * logarithm(product)
        if n % 2:
            state, x, _ = normal_pair(state)
            square += x * x
        out[k] = math.sqrt(square)
