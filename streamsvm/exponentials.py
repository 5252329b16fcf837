"""exp of many numbers of at most 0, in single precision and in vector registers: the machine's own would be most of the
work of a kernel.

2^t is 2^(t rounded), made from its bits, times a power series of what is left, which is at most 1/2 away from 0. The
relative error is that of t, below 1e-6 where the result is worth anything; below 2^-126 it is 2^-126.
"""

import math

import numpy as np

from streamsvm.jit import inlined
from streamsvm.lanes import most, two_to

BINARY = math.log2(math.e)  # of exp
LOWEST = np.float32(-126.0)  # the exponent of the smallest number that has all its digits
ROUNDER = np.float32(1.5 * 2.0**23)  # a number to which adding rounds to whole ones
SERIES = [np.float32(math.log(2.0) ** n / math.factorial(n)) for n in range(8)]
S0, S1, S2, S3, S4, S5, S6, S7 = SERIES
OFFSET, SHIFT = np.int32(127), np.int32(23)  # where the exponent of a float32 stands


@inlined
def exponentials(totals, powers, factor, count):
    """totals = 2^(factor totals), where that is 1 or less; `powers` (int32) is scratch."""
    small = np.float32(factor)
    whole = powers.view(np.float32)
    for b in range(count):
        t = max(totals[b] * small, LOWEST)
        rounded = (t + ROUNDER) - ROUNDER
        r = t - rounded
        powers[b] = (np.int32(rounded) + OFFSET) << SHIFT
        totals[b] = ((((((S7 * r + S6) * r + S5) * r + S4) * r + S3) * r + S2) * r + S1) * r + S0
    for b in range(count):
        totals[b] *= whole[b]


@inlined
def exponential_lanes(totals, factor):
    """2^(factor totals) of float32 lanes, where that is 1 or less: the same bits."""
    t = most(totals * factor, LOWEST)
    rounded = (t + ROUNDER) - ROUNDER
    r = t - rounded
    return (((((((S7 * r + S6) * r + S5) * r + S4) * r + S3) * r + S2) * r + S1) * r + S0) * two_to(rounded)
