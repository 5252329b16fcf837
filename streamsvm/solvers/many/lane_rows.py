"""What kernels do with one sparse row and the weights of several classes, which lie side by side in lanes.

`numbers` is one array with a row of `n` lanes for each number of a class; SCORE, SLOPE, ... are rows of it. The length
of the tuple `part` is how many lanes are worked on at a time. Every lane does what rows.py does, in the same order.
"""

import numpy as np

from streamsvm.jit import inlined
from streamsvm.lanes import add_multiples, load_small, store_lanes
from streamsvm.rows import ZERO, row_norm2
from streamsvm.solvers.base import LARGEST_SCORE
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
    for k in range(known):
        if numbers[score * n + k] > most:
            best, most = k, numbers[score * n + k]
    return best


@inlined
def class_slopes(loss, own, c, n, score, slope, losses, numbers):
    """Count the losses of all lanes and take their slopes; returns in how many of them something is to be learned,
    and in how many the slope is steep."""
    moving = steep = 0
    bend = loss.bend()
    for k in range(n):
        label = 1.0 if k == own else -1.0
        value, found = loss.value(numbers[score * n + k], label), loss.slope(numbers[score * n + k], label)
        numbers[losses * n + k] += c * value
        numbers[slope * n + k] = found
        moving += 1 if found != 0.0 else 0
        steep += 1 if bend > 0.0 and abs(found) > bend else 0
    return moving, steep


@inlined
def class_steps(rate, loss, steep, values, a, b, gain, n, slope, step, numbers):
    """numbers[step] = slope times the rate, or a smaller one where rows.safe_rate says so."""
    bend = loss.bend()
    least = rate
    if steep > 0:
        least = min(rate, 1.0 / (bend * (row_norm2(values, a, b) + gain)))
    for k in range(n):
        found = numbers[slope * n + k]
        numbers[step * n + k] = found * (least if bend > 0.0 and abs(found) > bend else rate)


@inlined
def class_axpy(vector, indices, values, a, b, stride, column, part, n, row, numbers):
    """vector[column + k of feature j] += numbers[row][k] x_j; parts of lanes in which nothing moves are left out."""
    width = np.uint64(len(part))
    for offset in range(ZERO, np.uint64(n), width):
        moves = False
        for k in range(np.uint64(row * n) + offset, np.uint64(row * n) + offset + width):
            moves |= numbers[k] != 0.0
        if moves:
            factors = load_small(numbers, np.uint64(row * n) + offset, part)
            for k in range(np.uint64(a), np.uint64(b)):
                add_multiples(vector, np.uint64(indices[k]) * stride + column + offset, factors, values[k])
