"""The kernels of side_by_side.py: sgd_pass and asgd_pass for several candidates, one lane each.

Lane k does what the plain kernel does, operation by operation, so that its numbers are the same to the last bit; where
the plain kernel skips a step of size zero, a lane adds zeros. `numbers` holds a row of lanes for each number: first
the scalars of the plain solver, then those below. It is one array at constant distances, so that the compiler can turn
loops over lanes into vector instructions; `count`, which it does not know, keeps it from unrolling them instead.
"""

import numpy as np

from streamsvm.jit import cold, inlined, kernel
from streamsvm.lanes import add_lanes, add_multiples, add_products, fetch, load_small, store_lanes, zero_lanes
from streamsvm.rows import FOUR, ONE, THREE, TWO, ZERO, capped_slope, row_norm2
from streamsvm.schedules import InverseTime, SlowDecay
from streamsvm.solvers.asgd import ALPHA, BETA, MEAN_BIAS, ROOT_ROWS, SMALLEST_BETA
from streamsvm.solvers.base import BIAS, LARGEST_SCORE, LOSS, OWN, SCALE, SMALLEST_SCALE, STEP, WEIGHT, WRONG, T

# Rows of `numbers` after the scalars of the plain solvers. LIVE is 1 in lanes that learn, else 0; FELL the row at which
# a candidate diverged; the rest is scratch.
L2, T0, LIVE, FELL, SCORE, SLOPE, RATE, FACTOR, OTHER, NUMBERS = range(OWN + 3, OWN + 13)

LINE = np.uint64(16)  # float32 numbers in a cache line
FAR = 1 << 19  # numbers in a vector that the fast caches cannot hold; for a smaller one asking ahead costs a fifth more


@inlined
def lanes_dot(vector, indices, values, a, b, stride, offset, like):
    """rows.strided_dot for each lane: the same four sums in the same order."""
    first = second = third = fourth = zero_lanes(like)
    k, end = np.uint64(a), np.uint64(b)
    while k + FOUR <= end:
        first = add_products(first, vector, np.uint64(indices[k]) * stride + offset, values[k])
        second = add_products(second, vector, np.uint64(indices[k + ONE]) * stride + offset, values[k + ONE])
        third = add_products(third, vector, np.uint64(indices[k + TWO]) * stride + offset, values[k + TWO])
        fourth = add_products(fourth, vector, np.uint64(indices[k + THREE]) * stride + offset, values[k + THREE])
        k += FOUR
    while k < end:
        first = add_products(first, vector, np.uint64(indices[k]) * stride + offset, values[k])
        k += ONE
    return add_lanes(add_lanes(first, second), add_lanes(third, fourth))


@inlined
def scores(vector, indices, values, a, b, stride, lanes, part, count, numbers):
    """Put each lane's score into its row; returns in how many lanes that learn it overflows.

    Four sums for more than eight lanes do not fit into the registers, so the row is walked once for each `part`.
    """
    n = len(lanes)
    for offset in range(ZERO, np.uint64(n), np.uint64(len(part))):
        sums = lanes_dot(vector, indices, values, a, b, stride, offset, part)
        store_lanes(numbers, np.uint64(SCORE * n) + offset, sums)
    wild = 0
    for k in range(count):
        score = numbers[SCALE * n + k] * numbers[SCORE * n + k] + numbers[BIAS * n + k]
        numbers[SCORE * n + k] = score
        wild += 0 if abs(score) < LARGEST_SCORE or numbers[LIVE * n + k] == 0.0 else 1
    return wild


@inlined
def fetch_row(vector, indptr, indices, order, place, stride):
    """Ask for the weights of the row at `place`, if there is one: they arrive while this row's losses are computed."""
    if len(vector) > FAR and place < len(order):
        i = order[place]
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            for offset in range(ZERO, stride, LINE):
                fetch(vector, np.uint64(indices[k]) * stride + offset)


@inlined
def losses(loss, label, c, n, count, numbers):
    """Count the losses and take the slopes, zero in lanes that rest; returns how many move."""
    moving = 0
    for k in range(count):
        score = numbers[SCORE * n + k]
        value, slope = loss.value(score, label), loss.slope(score, label)  # together, so that exp is called once
        slope = slope if numbers[LIVE * n + k] != 0.0 else 0.0
        numbers[LOSS * n + k] += c * value
        numbers[WRONG * n + k] += c if (score > 0.0) != (label > 0.0) else 0.0
        numbers[SLOPE * n + k] = slope
        moving += 1 if slope != 0.0 else 0
    return moving


@inlined
def implicit_slopes(loss, label, values, a, b, gain, n, count, numbers):
    """rows.implicit_slope for each lane."""
    norm2 = row_norm2(values, a, b) + gain
    for k in range(count):
        numbers[SLOPE * n + k] *= loss.share(numbers[SCORE * n + k], label, numbers[RATE * n + k] * norm2)


@inlined
def capped_slopes(values, a, b, gain, n, count, numbers):
    """rows.capped_slope for each lane."""
    norm2 = row_norm2(values, a, b) + gain
    for k in range(count):
        numbers[SLOPE * n + k] = capped_slope(numbers[SLOPE * n + k], numbers[RATE * n + k] * norm2)


@inlined
def share(n, numbers, t, seen):
    """Write down what all lanes have in common."""
    for k in range(n):
        numbers[T * n + k], numbers[WEIGHT * n + k] = t, seen


@cold
def rescale_lanes(vector, n, numbers):
    """rows.rescale for the lanes that need it."""
    scales = np.ones(n, np.float32)
    for k in range(n):
        if numbers[SCALE * n + k] < SMALLEST_SCALE:
            scales[k] = numbers[SCALE * n + k]
            numbers[SCALE * n + k] = 1.0
    for j in range(0, len(vector), n):
        for k in range(n):
            vector[j + k] *= scales[k]


@cold
def rebase_lanes(vector, n, numbers):
    """rows.rebase for the lanes that need it."""
    scales, alphas, betas = np.ones(n, np.float32), np.zeros(n, np.float32), np.ones(n, np.float32)
    for k in range(n):
        scale, beta = numbers[SCALE * n + k], numbers[BETA * n + k]
        if scale < SMALLEST_SCALE or beta < SMALLEST_BETA:
            scales[k], alphas[k], betas[k] = scale, numbers[ALPHA * n + k], beta
            numbers[SCALE * n + k], numbers[ALPHA * n + k], numbers[BETA * n + k] = 1.0, 0.0, 1.0
    for j in range(0, len(vector), 2 * n):
        for k in range(n):
            vector[j + n + k] = alphas[k] * vector[j + k] + betas[k] * vector[j + n + k]
            vector[j + k] *= scales[k]


@kernel
def sgd_lanes(batch, order, loss, bias, provable, lanes, part, vector, numbers):
    """Returns the place in `order` at which a lane overflowed, all before it being learned, or -1."""
    indptr, indices, values, labels, weights = batch
    n, count = len(lanes), len(numbers) // NUMBERS
    stride = np.uint64(n)
    t, seen = numbers[T * n], numbers[WEIGHT * n]
    for place in range(len(order)):
        i = order[place]
        c = float(weights[i])
        if c == 0.0:
            continue
        first, last = indptr[i], indptr[i + 1]
        label = 2.0 * labels[i] - 1.0
        if scores(vector, indices, values, first, last, stride, lanes, part, count, numbers) > 0:
            share(n, numbers, t, seen)
            return place
        fetch_row(vector, indptr, indices, order, place + 1, stride)
        seen += c
        moving = losses(loss, label, c, n, count, numbers)

        t += c
        small = 0
        for k in range(count):
            l2 = numbers[L2 * n + k]
            eta = InverseTime(l2, numbers[T0 * n + k]).rate(t)
            scale = numbers[SCALE * n + k] * (1.0 - c * eta * l2)
            numbers[SCALE * n + k] = scale
            numbers[BIAS * n + k] *= 1.0 - c * eta * l2 * bias.decay
            numbers[RATE * n + k] = c * eta
            small += 1 if scale < SMALLEST_SCALE and numbers[LIVE * n + k] != 0.0 else 0
        if small > 0:
            rescale_lanes(vector, n, numbers)
        if moving > 0:
            if provable:
                capped_slopes(values, first, last, bias.gain, n, count, numbers)
            else:
                implicit_slopes(loss, label, values, first, last, bias.gain, n, count, numbers)
            for k in range(count):
                step = numbers[SLOPE * n + k] * numbers[RATE * n + k]
                numbers[FACTOR * n + k] = -step / numbers[SCALE * n + k]
                numbers[BIAS * n + k] -= step * bias.gain
            factors = load_small(numbers, np.uint64(FACTOR * n), lanes)
            for k in range(np.uint64(first), np.uint64(last)):
                add_multiples(vector, np.uint64(indices[k]) * stride, factors, values[k])
    share(n, numbers, t, seen)
    return -1


@kernel
def asgd_lanes(batch, order, loss, average, bias, lanes, part, vector, numbers):
    """Returns the place in `order` at which a lane overflowed, all before it being learned, or -1."""
    indptr, indices, values, labels, weights = batch
    n, count = len(lanes), len(numbers) // NUMBERS
    stride = np.uint64(2 * n)
    t, seen = numbers[T * n], numbers[WEIGHT * n]
    for place in range(len(order)):
        i = order[place]
        c = float(weights[i])
        if c == 0.0:
            continue
        first, last = indptr[i], indptr[i + 1]
        label = 2.0 * labels[i] - 1.0
        if scores(vector, indices, values, first, last, stride, lanes, part, count, numbers) > 0:
            share(n, numbers, t, seen)
            return place
        fetch_row(vector, indptr, indices, order, place + 1, stride)
        seen += c
        moving = losses(loss, label, c, n, count, numbers)

        keep = average.mass(t) / average.mass(t + c)
        t += c
        small = 0
        for k in range(count):
            l2 = numbers[L2 * n + k]
            eta = SlowDecay(l2, numbers[STEP * n + k], ROOT_ROWS).rate(t)
            scale = numbers[SCALE * n + k] * max(0.0, 1.0 - c * eta * l2)
            numbers[SCALE * n + k] = scale
            numbers[BIAS * n + k] *= max(0.0, 1.0 - c * eta * l2 * bias.decay)
            numbers[RATE * n + k] = c * eta
            tiny = scale < SMALLEST_SCALE or numbers[BETA * n + k] < SMALLEST_BETA
            small += 1 if tiny and numbers[LIVE * n + k] != 0.0 else 0
        if small > 0:
            rebase_lanes(vector, n, numbers)
        if moving > 0:
            implicit_slopes(loss, label, values, first, last, bias.gain, n, count, numbers)
            for k in range(count):
                step, scale = numbers[SLOPE * n + k] * numbers[RATE * n + k], numbers[SCALE * n + k]
                numbers[FACTOR * n + k] = -step / scale
                numbers[OTHER * n + k] = numbers[ALPHA * n + k] / numbers[BETA * n + k] * step / scale
                numbers[BIAS * n + k] -= step * bias.gain
            factors = load_small(numbers, np.uint64(FACTOR * n), lanes)
            others = load_small(numbers, np.uint64(OTHER * n), lanes)
            for k in range(np.uint64(first), np.uint64(last)):
                j = np.uint64(indices[k]) * stride
                add_multiples(vector, j, factors, values[k])
                add_multiples(vector, j + np.uint64(n), others, values[k])
        for k in range(count):
            numbers[ALPHA * n + k] = keep * numbers[ALPHA * n + k] + (1.0 - keep) * numbers[SCALE * n + k]
            numbers[BETA * n + k] *= keep
            numbers[MEAN_BIAS * n + k] = keep * numbers[MEAN_BIAS * n + k] + (1.0 - keep) * numbers[BIAS * n + k]
    share(n, numbers, t, seen)
    return -1
