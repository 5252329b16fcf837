"""A small quadratic problem, solved to the last digits: which mixture of cutting planes is best.

    maximise   b.x - 1/2 x'Gx      over   x >= 0,  sum of x = 1          (G positive semidefinite, some hundreds wide)

An active set: x moves to the optimum of those that are positive; whatever becomes 0 on the way leaves, and then the one
with the steepest gradient enters, until none is steeper than the others. On the simplex x'11'x is a constant, so that
G + sigma 11' may stand for G: a Cholesky factor of its active part, which grows by a row and shrinks by rotations,
gives each direction in s^2 steps (P. Wolfe, "Finding the nearest point in a polytope", 1976). One that depends on the
active ones enters in exchange for another: x moves along the direction in which G is flat until an x becomes 0.
Gradients and lengths of steps are taken from x and G themselves, so that errors of the factor do not stay.
"""

import numpy as np

from streamsvm.batch import Float64s
from streamsvm.jit import kernel

DEPENDENT = 1e-13  # a pivot no larger than this share of the diagonal is nothing but rounding
ROUNDING = 2.0**-50
MOST_STALLS = 5  # steps that seem to gain nothing; they may still, where G is large, as gradients cancel before x does
MOST_FACTORS = 5


def best_mixture(gram: Float64s, offsets: Float64s, start: Float64s) -> tuple[Float64s, float]:
    """The x that makes b.x - 1/2 x'Gx largest, from a guess; and a bound of how much larger it could be."""
    x = np.maximum(start, 0.0)
    if not 0.0 < float(x.sum()) < np.inf:
        x[:] = 0.0
        x[np.argmax(offsets - 0.5 * np.diag(gram))] = 1.0
    for _ in range(MOST_FACTORS):
        gap, done = active_set(gram, offsets, x)
        if done:
            break
    return x, float(gap)


@kernel
def active_set(gram, offsets, x):
    """Improves x in place; returns the largest gradient less the mean one, which no x can gain more than.

    And whether that is all: not if one that depends on the active ones has become positive beside them.
    """
    n = len(x)
    spread = np.trace(gram) / n
    spread = spread if spread > 0.0 else 1.0
    active, factor = np.empty(n, np.int64), np.empty((n, n))
    slopes, ones, direction = np.empty(n), np.empty(n), np.empty(n)
    count = 0
    for i in range(n):
        if x[i] > 0.0:
            if grown(gram, spread, active, factor, count, i):
                count += 1
            else:
                x[i] = 0.0
    x /= np.sum(x)
    entered, gap, stalls = -1, np.inf, 0
    for _ in range(20 * n + 100):
        mean, rounding = gradient(gram, offsets, x, slopes)
        for a in range(count):
            direction[a], ones[a] = slopes[active[a]] - mean, 1.0
        solve(factor, count, direction)
        solve(factor, count, ones)
        direction[:count] -= ones[:count] * (np.sum(direction[:count]) / np.sum(ones[:count]))
        length, blocking = move(gram, slopes, mean, x, active, count, direction)
        if blocking >= 0:
            if length == 0.0 and active[blocking] == entered:  # rounding alone made it look steep
                break
            count = shrink(active, factor, count, blocking)
            continue

        mean, rounding = gradient(gram, offsets, x, slopes)
        entered, before = np.argmax(slopes), gap
        gap = slopes[entered] - mean
        stalls = stalls + 1 if gap >= before or gap <= rounding else 0
        if gap <= 0.0 or stalls > MOST_STALLS:
            break
        if x[entered] == 0.0:
            count = enter(gram, offsets, spread, x, active, factor, count, entered, slopes, direction)
            if count < 0:
                break
    mean, rounding = gradient(gram, offsets, x, slopes)
    return max(0.0, np.max(slopes) - mean), count >= 0


@kernel
def enter(gram, offsets, spread, x, active, factor, count, i, slopes, direction):
    """Makes i active, in exchange for another if it must be; returns how many are, or -1 where that gains nothing."""
    while not grown(gram, spread, active, factor, count, i):
        direction[:count] = -factor[count, :count]
        direction[count] = 1.0
        solve_upper(factor, count, direction)
        mean, _ = gradient(gram, offsets, x, slopes)
        _, blocking = move(gram, slopes, mean, x, active, count + 1, direction)
        if blocking < 0:
            return -1
        count = shrink(active, factor, count, blocking)
    return count + 1


@kernel
def gradient(gram, offsets, x, slopes):
    """slopes = b - Gx; returns their mean, and what rounding can have done to them."""
    mean = largest = 0.0
    for i in range(len(x)):
        total = size = 0.0
        for j in range(len(x)):
            total += gram[i, j] * x[j]
            size += abs(gram[i, j]) * x[j]
        slopes[i] = offsets[i] - total
        mean += x[i] * slopes[i]
        largest = max(largest, abs(offsets[i]) + size)
    return mean, ROUNDING * largest


@kernel
def move(gram, slopes, mean, x, active, count, direction):
    """To the optimum along the direction, or to where the first x becomes 0: returns how far, and where that stands."""
    gain = curvature = 0.0
    for a in range(count):
        gain += (slopes[active[a]] - mean) * direction[a]
        for b in range(count):
            curvature += direction[a] * gram[active[a], active[b]] * direction[b]
    length, blocking = (gain / curvature if curvature > 0.0 else np.inf), -1
    if not gain > 0.0:
        return 0.0, -1
    for a in range(count):
        if direction[a] < 0.0 and x[active[a]] < -direction[a] * length:
            length, blocking = x[active[a]] / -direction[a], a
    if length == np.inf:
        return 0.0, -1
    for a in range(count):
        x[active[a]] = max(0.0, x[active[a]] + length * direction[a])
    if blocking >= 0:
        x[active[blocking]] = 0.0
    x /= np.sum(x)
    return length, blocking


@kernel
def solve(factor, count, right):
    """right = (L L')^-1 right, in place."""
    for a in range(count):
        for b in range(a):
            right[a] -= factor[a, b] * right[b]
        right[a] /= factor[a, a]
    solve_upper(factor, count, right)


@kernel
def solve_upper(factor, count, right):
    """right = L'^-1 right, in place."""
    for a in range(count - 1, -1, -1):
        right[a] /= factor[a, a]
        for b in range(a):
            right[b] -= factor[a, b] * right[a]


@kernel
def grown(gram, spread, active, factor, count, i):
    """Writes the row of L for i; False if it depends on those above."""
    rest = gram[i, i] + spread
    smallest = DEPENDENT * rest
    for a in range(count):
        value = gram[i, active[a]] + spread
        for b in range(a):
            value -= factor[count, b] * factor[a, b]
        factor[count, a] = value / factor[a, a]
        rest -= factor[count, a] * factor[count, a]
    active[count] = i
    factor[count, count] = np.sqrt(max(rest, smallest))
    return rest > smallest


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
