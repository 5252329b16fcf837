"""What kernels do with one sparse row and the weights of several classes, which lie side by side in lanes.

`numbers` is one array with a row of `n` lanes for each number of a class; SCORE, SLOPE, ... are rows of it. The length
of the tuple `part` is how many lanes are worked on at a time. Every lane does what rows.py does, in the same order.

Some kernels do all steps for one part of the lanes, from `lane` on, before they come to the next: what a row needs
again is then still near. The functions for them are named after the part.
"""

import math

import numpy as np

from streamsvm.jit import inlined
from streamsvm.lanes import (
    add_lanes,
    add_multiples,
    add_products,
    all_lanes,
    any_lane,
    choose,
    least,
    load_lanes,
    load_small,
    most,
    size_of,
    spread_lanes,
    store_lanes,
    zero_lanes,
)
from streamsvm.rows import FOUR, ONE, THREE, TWO, ZERO, capped_slope, row_norm2
from streamsvm.solvers.base import LARGEST_SCORE
from streamsvm.solvers.own_steps import grow, safe_share
from streamsvm.solvers.side_by_side_kernels import fetch_row, lanes_dot

WIDEST = np.uint64(128)  # numbers of a feature beyond which asking for them early floods the memory


@inlined
def fetch_classes(vector, indptr, indices, order, place, stride):
    """Ask for the weights of the row at `place`, if a feature has few of them."""
    if stride <= WIDEST:
        fetch_row(vector, indptr, indices, order, place, stride)


@inlined
def class_dots(vector, indices, values, a, b, stride, part, n, row, numbers):
    """numbers[row] = w_k.x / scale for each lane k."""
    for offset in range(ZERO, np.uint64(n), np.uint64(len(part))):
        sums = lanes_dot(vector, indices, values, a, b, stride, offset, part)
        store_lanes(numbers, np.uint64(row * n) + offset, sums)


@inlined
def finish_scores(scale, n, score, bias, numbers):
    """numbers[score] = scale numbers[score] + numbers[bias]; returns in how many lanes that overflows."""
    wild = 0
    for k in range(n):
        found = scale * numbers[score * n + k] + numbers[bias * n + k]
        numbers[score * n + k] = found
        wild += 0 if abs(found) < LARGEST_SCORE else 1
    return wild


@inlined
def best_class(known, n, score, numbers):
    """The class with the largest score among those seen so far, the first of equal ones; -1 if there is none."""
    best, most = -1, -np.inf
    for k in range(min(known, n)):
        if numbers[score * n + k] > most:
            best, most = k, numbers[score * n + k]
    return best


@inlined
def class_slopes(loss, own, c, n, score, slope, losses, numbers):
    """Count the losses of all lanes and take their slopes; returns in how many of them something is to be learned."""
    moving = 0
    for k in range(n):
        label = 1.0 if k == own else -1.0
        value, found = loss.value(numbers[score * n + k], label), loss.slope(numbers[score * n + k], label)
        numbers[losses * n + k] += c * value
        numbers[slope * n + k] = found
        moving += 1 if found != 0.0 else 0
    return moving


@inlined
def class_steps(rate, loss, own, capped, values, a, b, gain, n, score, slope, step, numbers):
    """numbers[step] = the rate times rows.implicit_slope, or rows.capped_slope."""
    stiffness = rate * (row_norm2(values, a, b) + gain)
    for k in range(n):
        if capped:
            numbers[step * n + k] = rate * capped_slope(numbers[slope * n + k], stiffness)
            continue
        share = loss.share(numbers[score * n + k], 1.0 if k == own else -1.0, stiffness)
        numbers[step * n + k] = rate * (numbers[slope * n + k] * share)


@inlined
def class_axpy(vector, indices, values, a, b, stride, column, part, n, row, numbers):
    """vector[column + k of feature j] += numbers[row][k] x_j; parts of lanes in which nothing moves are left out."""
    for offset in range(ZERO, np.uint64(n), np.uint64(len(part))):
        if any_lane(load_lanes(numbers, np.uint64(row * n) + offset, part) != 0.0):
            factors = load_small(numbers, np.uint64(row * n) + offset, part)
            for k in range(np.uint64(a), np.uint64(b)):
                add_multiples(vector, np.uint64(indices[k]) * stride + column + offset, factors, values[k])


@inlined
def soft_lanes(value, amount):
    """penalties.soft for each lane."""
    return value - least(most(value, -amount), amount)


@inlined
def place_of(row, n, lane):
    """Where lane `lane` of a row of numbers is."""
    return np.uint64(row) * np.uint64(n) + lane


@inlined
def row_part(row, lane, part, n, numbers):
    """Some lanes of a row of numbers."""
    return load_lanes(numbers, place_of(row, n, lane), part)


@inlined
def put_part(row, lane, n, numbers, lanes):
    store_lanes(numbers, place_of(row, n, lane), lanes)


@inlined
def tame(scores):
    """Whether all of these scores are numbers to go on with."""
    return all_lanes(size_of(scores) < LARGEST_SCORE)


@inlined
def part_slopes(loss, own, c, lane, part, n, score, slope, losses, numbers):
    """class_slopes for one part of the lanes."""
    moving = steep = 0
    bend = loss.bend()
    for k in range(lane, lane + np.uint64(len(part))):
        label = 1.0 if k == np.uint64(own) else -1.0
        found = numbers[place_of(score, n, k)]
        value, found = loss.value(found, label), loss.slope(found, label)  # together, so that exp is called once
        numbers[place_of(losses, n, k)] += c * value
        numbers[place_of(slope, n, k)] = found
        moving += 1 if found != 0.0 else 0
        steep += 1 if bend > 0.0 and abs(found) > bend else 0
    return moving, steep


@inlined
def gathered_dots(w, values, a, size, part):
    """own_steps.gathered_dot for each lane of a part; w has the part's weights for the row's features, one by one."""
    width = np.uint64(len(part))
    first = second = third = fourth = zero_lanes(part)
    k = ZERO
    while k + FOUR <= size:
        first = add_products(first, w, k * width, values[a + k])
        second = add_products(second, w, (k + ONE) * width, values[a + k + ONE])
        third = add_products(third, w, (k + TWO) * width, values[a + k + TWO])
        fourth = add_products(fourth, w, (k + THREE) * width, values[a + k + THREE])
        k += FOUR
    while k < size:
        first = add_products(first, w, k * width, values[a + k])
        k += ONE
    return add_lanes(add_lanes(first, second), add_lanes(third, fourth))


@inlined
def steep_shares(vector, indices, values, a, size, stride, lane, part, n, c, loss, rates, roots, slope, share, numbers):
    """numbers[share] = own_steps.safe_share in lanes that are steep, where numbers[share] has the reach of the bias.

    A feature's roots are in its second column. They are gathered as they will be, since few classes are steep at once.
    """
    bend = loss.bend()
    inverse, more = rates
    for k in range(lane, lane + np.uint64(len(part))):
        steepness = numbers[place_of(slope, n, k)]
        reach, safe = numbers[place_of(share, n, k)], c
        if bend > 0.0 and abs(steepness) > bend:
            for f in range(size):
                roots[f] = vector[np.uint64(indices[a + f]) * stride + n + k]
            grow(roots, math.sqrt(c) * steepness, values, a, size)
            safe = safe_share(c, loss, steepness, values, a, size, roots, inverse, more, reach)
        numbers[place_of(share, n, k)] = safe


@inlined
def implicit_slopes(eta, loss, own, values, a, b, gain, lane, part, n, score, slope, numbers):
    """rows.implicit_slope for one part of the lanes."""
    stiffness = eta * (row_norm2(values, a, b) + gain)
    for k in range(lane, lane + np.uint64(len(part))):
        label = 1.0 if k == np.uint64(own) else -1.0
        numbers[place_of(slope, n, k)] *= loss.share(numbers[place_of(score, n, k)], label, stiffness)
    return row_part(slope, lane, part, n, numbers)


@inlined
def safe_rates(rate, loss, slopes, steep, values, a, b, gain, part):
    """rows.safe_rate for each lane of a part in which so many are steep."""
    rates = spread_lanes(np.float64(rate), part)
    if steep > 0:
        bend = loss.bend()
        least_rate = min(rate, 1.0 / (bend * (row_norm2(values, a, b) + gain)))
        rates = choose(size_of(slopes) > bend, least_rate, rates)
    return rates
