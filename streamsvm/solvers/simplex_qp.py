"""A small quadratic problem, solved to the last digits: which mixture of cutting planes is best.

    maximise   b.x - 1/2 x'Gx      over   x >= 0,  sum of x = 1          (G positive semidefinite, some hundreds wide)

An active set: x moves to the optimum of those that are positive; whatever becomes 0 on the way leaves, and then the one
with the steepest gradient enters, until none is steeper than the others. On the simplex sigma x'11'x is a constant, so
G + sigma 11' may stand for G: a Cholesky factor of its active part, which grows by a row and shrinks by rotations, gives
each direction in s^2 steps (P. Wolfe, "Finding the nearest point in a polytope", 1976). Rows that depend on others
make the factor singular: a pivot is never smaller than a tiny share of its diagonal, and as the length of a step is
taken from G itself, the direction along which G is flat then leads to where another x becomes 0.
Gradients are computed anew from x in each step, so that errors of the factor do not stay.
"""

import numpy as np

from streamsvm.batch import Float64s
from streamsvm.jit import kernel

SMALLEST_PIVOT = 1e-14  # relative to the diagonal
ROUNDING = 4.0 * 2.0**-52


def best_mixture(gram: Float64s, offsets: Float64s, start: Float64s) -> tuple[Float64s, float]:
    """The x that makes b.x - 1/2 x'Gx largest, from a guess; and a bound of how much larger it could be."""
    x = np.maximum(start, 0.0)
    total = float(x.sum())
    if not 0.0 < total < np.inf:
        x[:] = 0.0
        x[np.argmax(offsets - 0.5 * np.diag(gram))] = total = 1.0
    x /= total
    return x, float(active_set(gram, offsets, x))


@kernel
def active_set(gram, offsets, x):
    """Improves x in place; returns the largest gradient less the mean one, which no x can gain more than."""
    n = len(x)
    spread = 0.0
    for i in range(n):
        spread += gram[i, i] / n
    spread = spread if spread > 0.0 else 1.0
    active, factor = np.empty(n, np.int64), np.empty((n, n))
    count = 0
    for i in range(n):
        if x[i] > 0.0:
            count = grow(gram, spread, active, factor, count, i)
    slopes, ones, direction = np.empty(n), np.empty(n), np.empty(n)
    entered, idle = -1, 0
    gap = np.inf
    for _ in range(20 * n + 100):
        rounding = gradient(gram, offsets, x, active, count, slopes)
        mean = mean_slope(slopes, x, active, count)
        for a in range(count):
            direction[a], ones[a] = slopes[active[a]] - mean, 1.0
        solve(factor, count, direction)
        solve(factor, count, ones)
        share = total(direction, count) / total(ones, count)
        for a in range(count):
            direction[a] -= share * ones[a]

        length, blocking = step(gram, slopes, mean, x, active, count, direction)
        for a in range(count):
            x[active[a]] = max(0.0, x[active[a]] + length * direction[a])
        if blocking >= 0:
            i = active[blocking]
            x[i] = 0.0
            count = shrink(active, factor, count, blocking)
            if i == entered and length == 0.0:  # rounding alone made it look steep
                break
            continue

        rounding = gradient(gram, offsets, x, active, count, slopes)
        mean = mean_slope(slopes, x, active, count)
        steepest, before = np.argmax(slopes), gap
        gap = slopes[steepest] - mean
        if gap <= rounding:
            break
        idle = idle + 1 if gap >= before else 0
        if idle > 5:
            break
        if x[steepest] == 0.0 and not contains(active, count, steepest):
            entered = steepest
            count = grow(gram, spread, active, factor, count, steepest)
    whole = 0.0
    for i in range(n):
        whole += x[i]
    for i in range(n):
        x[i] /= whole
    gradient(gram, offsets, x, active, count, slopes)
    return max(0.0, slopes[np.argmax(slopes)] - mean_slope(slopes, x, active, count))


@kernel
def gradient(gram, offsets, x, active, count, slopes):
    """slopes = b - Gx; returns what rounding can have done to them."""
    largest = 0.0
    for i in range(len(x)):
        total = size = 0.0
        for a in range(count):
            term = gram[i, active[a]] * x[active[a]]
            total += term
            size += abs(term)
        slopes[i] = offsets[i] - total
        largest = max(largest, abs(offsets[i]) + size)
    return ROUNDING * largest


@kernel
def mean_slope(slopes, x, active, count):
    total = weight = 0.0
    for a in range(count):
        total += x[active[a]] * slopes[active[a]]
        weight += x[active[a]]
    return total / weight


@kernel
def step(gram, slopes, mean, x, active, count, direction):
    """How far to go: to the optimum along the direction, or to where the first x becomes 0, and which."""
    gain = curvature = 0.0
    for a in range(count):
        gain += (slopes[active[a]] - mean) * direction[a]
        for b in range(count):
            curvature += direction[a] * gram[active[a], active[b]] * direction[b]
    if not gain > 0.0:
        return 0.0, -1
    length = gain / curvature if curvature > 0.0 else np.inf
    blocking = -1
    for a in range(count):
        if direction[a] < 0.0 and x[active[a]] < -direction[a] * length:
            length, blocking = x[active[a]] / -direction[a], a
    return (length, blocking) if length < np.inf else (0.0, -1)


@kernel
def contains(active, count, i):
    for a in range(count):
        if active[a] == i:
            return True
    return False


@kernel
def total(numbers, count):
    result = 0.0
    for a in range(count):
        result += numbers[a]
    return result


@kernel
def solve(factor, count, right):
    """right = (L L')^-1 right, in place."""
    for a in range(count):
        for b in range(a):
            right[a] -= factor[a, b] * right[b]
        right[a] /= factor[a, a]
    for a in range(count - 1, -1, -1):
        right[a] /= factor[a, a]
        for b in range(a):
            right[b] -= factor[a, b] * right[a]


@kernel
def grow(gram, spread, active, factor, count, i):
    """One more row of L, for i."""
    rest = gram[i, i] + spread
    smallest = SMALLEST_PIVOT * rest
    for a in range(count):
        value = gram[i, active[a]] + spread
        for b in range(a):
            value -= factor[count, b] * factor[a, b]
        factor[count, a] = value / factor[a, a]
        rest -= factor[count, a] * factor[count, a]
    factor[count, count] = np.sqrt(max(rest, smallest))
    active[count] = i
    return count + 1


@kernel
def shrink(active, factor, count, place):
    """L without the row at a place: the rows below move up, and rotations of two columns make it a triangle again."""
    for a in range(place, count - 1):
        active[a] = active[a + 1]
        factor[a, : a + 2] = factor[a + 1, : a + 2]
    for a in range(place, count - 1):
        length = np.hypot(factor[a, a], factor[a, a + 1])
        cosine, sine = factor[a, a] / length, factor[a, a + 1] / length
        factor[a, a] = length
        for b in range(a + 1, count - 1):
            left, right = factor[b, a], factor[b, a + 1]
            factor[b, a] = cosine * left + sine * right
            factor[b, a + 1] = cosine * right - sine * left
    return count - 1
