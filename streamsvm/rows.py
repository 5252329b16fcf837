"""What kernels do with one sparse row. Sums are in double over four lanes: exact enough for long rows, and fast.

Positions are unsigned, because for signed ones numba checks at every access whether they count from the end.
"""

import numpy as np

from streamsvm.jit import cold, inlined, prefetch
from streamsvm.lanes import each_lane, load_double, store_lanes, zero_lanes

ZERO, ONE, TWO, THREE, FOUR = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
BYTE, HALF, LOW = np.uint64(0xFF), np.uint64(32), np.uint64(0xFFFFFFFF)

CACHED = 1 << 17  # numbers that a core's own cache holds: with fewer, asking for them early only costs
AHEAD = 2  # rows
QUAD = (0,) * 4
LONG = np.uint64(16)  # features from which on it is worth to look whether indices are neighbours
FARTHEST = 2.0**40  # that a step may move the score of a row, where it is not implicit: no number overflows
SHORT = 80  # features of a row up to which counting smaller ones beats a radix sort


@inlined
def fetch_ahead(vector, indptr, indices, order, place, shift):
    """Ask memory for the numbers of a row to come, in a vector so large that each of them is far away."""
    if len(vector) > CACHED and place + AHEAD < len(order):
        i = order[place + AHEAD]
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            prefetch(vector, np.uint64(indices[k]) << shift)


@inlined
def strided_dot(vector, indices, values, a, b, shift):
    """Sum of vector[indices[k] << shift] * values[k] for a <= k < b: over the first of 2^shift numbers a feature."""
    first = second = third = fourth = 0.0
    k, end = np.uint64(a), np.uint64(b)
    while k + FOUR <= end:
        first += np.float64(vector[np.uint64(indices[k]) << shift]) * np.float64(values[k])
        second += np.float64(vector[np.uint64(indices[k + ONE]) << shift]) * np.float64(values[k + ONE])
        third += np.float64(vector[np.uint64(indices[k + TWO]) << shift]) * np.float64(values[k + TWO])
        fourth += np.float64(vector[np.uint64(indices[k + THREE]) << shift]) * np.float64(values[k + THREE])
        k += FOUR
    while k < end:
        first += np.float64(vector[np.uint64(indices[k]) << shift]) * np.float64(values[k])
        k += ONE
    return (first + second) + (third + fourth)


@inlined
def row_dot(vector, indices, values, a, b):
    """Sum of vector[indices[k]] * values[k] for a <= k < b.

    Where indices are neighbours (as they rise, the first and the last one tell), the same four sums are made in one
    register, to the last bit. All is in one function, because numba counts references to arrays that a branch hands on.
    """
    first = second = third = fourth = 0.0
    k, end = np.uint64(a), np.uint64(b)
    j = end - k
    if j >= LONG and np.uint64(indices[end - ONE]) - np.uint64(indices[k]) == j - ONE:
        j = np.uint64(indices[k])
        sums = zero_lanes(QUAD)
        while k + FOUR <= end:
            sums = sums + load_double(vector, j, QUAD) * load_double(values, k, QUAD)
            j += FOUR
            k += FOUR
        first, second, third, fourth = each_lane(sums)
    while k + FOUR <= end:
        first += np.float64(vector[indices[k]]) * np.float64(values[k])
        second += np.float64(vector[indices[k + ONE]]) * np.float64(values[k + ONE])
        third += np.float64(vector[indices[k + TWO]]) * np.float64(values[k + TWO])
        fourth += np.float64(vector[indices[k + THREE]]) * np.float64(values[k + THREE])
        k += FOUR
    while k < end:
        first += np.float64(vector[indices[k]]) * np.float64(values[k])
        k += ONE
    return (first + second) + (third + fourth)


@inlined
def row_axpy(vector, indices, values, a, b, factor):
    """vector[indices[k]] += factor * values[k], in the vector's own precision."""
    small = np.float32(factor)
    for k in range(np.uint64(a), np.uint64(b)):
        vector[indices[k]] += small * values[k]


@inlined
def row_add(vector, indices, values, a, b, factor):
    """vector[indices[k]] += factor * values[k], in double; four at a time where indices are neighbours."""
    k, end = np.uint64(a), np.uint64(b)
    j = end - k
    if j >= LONG and np.uint64(indices[end - ONE]) - np.uint64(indices[k]) == j - ONE:
        j = np.uint64(indices[k])
        while k + FOUR <= end:
            store_lanes(vector, j, load_double(vector, j, QUAD) + load_double(values, k, QUAD) * factor)
            j += FOUR
            k += FOUR
    while k < end:
        vector[indices[k]] += factor * np.float64(values[k])
        k += ONE


@inlined
def measured_axpy(vector, indices, values, a, b, factor):
    """row_axpy, to the last bit; returns the squares of all numbers that it rounded, products and sums, together."""
    small = np.float32(factor)
    first = second = third = fourth = np.float32(0.0)
    k, end = np.uint64(a), np.uint64(b)
    while k + FOUR <= end:
        step1, step2 = small * values[k], small * values[k + ONE]
        step3, step4 = small * values[k + TWO], small * values[k + THREE]
        after1 = vector[indices[k]] + step1
        vector[indices[k]] = after1
        after2 = vector[indices[k + ONE]] + step2
        vector[indices[k + ONE]] = after2
        after3 = vector[indices[k + TWO]] + step3
        vector[indices[k + TWO]] = after3
        after4 = vector[indices[k + THREE]] + step4
        vector[indices[k + THREE]] = after4
        first += after1 * after1 + step1 * step1
        second += after2 * after2 + step2 * step2
        third += after3 * after3 + step3 * step3
        fourth += after4 * after4 + step4 * step4
        k += FOUR
    while k < end:
        step1 = small * values[k]
        after1 = vector[indices[k]] + step1
        vector[indices[k]] = after1
        first += after1 * after1 + step1 * step1
        k += ONE
    return (np.float64(first) + np.float64(second)) + (np.float64(third) + np.float64(fourth))


@inlined
def pair_axpy(pairs, indices, values, a, b, factor, other):
    """pairs[2 j] += factor x and pairs[2 j + 1] += other x at the row's features j."""
    small, small_other = np.float32(factor), np.float32(other)
    for k in range(np.uint64(a), np.uint64(b)):
        j = np.uint64(indices[k]) << ONE
        pairs[j] += small * values[k]
        pairs[j + ONE] += small_other * values[k]


@inlined
def row_norm2(values, a, b):
    """Sum of squares."""
    first = second = third = fourth = 0.0
    k, end = np.uint64(a), np.uint64(b)
    while k + FOUR <= end:
        first += np.float64(values[k]) * np.float64(values[k])
        second += np.float64(values[k + ONE]) * np.float64(values[k + ONE])
        third += np.float64(values[k + TWO]) * np.float64(values[k + TWO])
        fourth += np.float64(values[k + THREE]) * np.float64(values[k + THREE])
        k += FOUR
    while k < end:
        first += np.float64(values[k]) * np.float64(values[k])
        k += ONE
    return (first + second) + (third + fourth)


@inlined
def vector_norm2(vector):
    """Sum of squares, one after the other: to the last bit the same, however many zeros follow."""
    total = 0.0
    for j in range(len(vector)):
        total += np.float64(vector[j]) * np.float64(vector[j])
    return total


@inlined
def rescale(vector, factor):
    """vector *= factor, everywhere: how a small scale is brought back to one."""
    small = np.float32(factor)
    for j in range(len(vector)):
        vector[j] *= small


@inlined
def rebase(pairs, scale, alpha, beta):
    """Write w and its mean out: afterwards scale = 1, alpha = 0, beta = 1."""
    s, a, b = np.float32(scale), np.float32(alpha), np.float32(beta)
    for j in range(0, len(pairs), 2):
        pairs[j + 1] = a * pairs[j] + b * pairs[j + 1]
        pairs[j] *= s


@inlined
def implicit_slope(slope, eta, loss, score, label, values, a, b, gain):
    """The slope where a step of size eta along it ends (losses.py).

    With the slope where it begins, one long or heavy row after a quiet beginning can make the weights explode.
    """
    return slope * loss.share(score, label, eta * (row_norm2(values, a, b) + gain))


@inlined
def safe_rate(eta, loss, slope, values, a, b, gain):
    """eta, or less where it would overshoot: a steep step goes no further than to where the row's loss is least.

    For steps that are not implicit. Only losses with unbounded slopes need it (squared hinge), and there only rows on
    the wrong side. Without it one long row after a quiet beginning can make the weights explode.
    """
    bend = loss.bend()
    if bend > 0.0 and abs(slope) > bend:
        eta = min(eta, 1.0 / (bend * (row_norm2(values, a, b) + gain)))
    return eta


@inlined
def capped_slope(slope, stiffness):
    """The slope, or less where a step along it would move the row's own score by more than FARTHEST.

    For solvers that prove a bound with the hinge loss: as long as steps are those of their papers, it is tight.
    """
    return slope * (FARTHEST / stiffness) if stiffness > FARTHEST else slope


@cold
def sort_row(indices, values, room):
    """Sort a row by index and add up twins, in the order in which they were written; returns the new length.

    `room` is scratch: two uint64 a feature, whose content does not matter.
    """
    count = len(indices)
    rising = True
    for i in range(1, count):
        rising &= indices[i] > indices[i - 1]
    if rising:
        return count
    return sort_by_counting(indices, values, room) if count <= SHORT else sort_by_digits(indices, values, room)


@inlined
def sort_by_counting(indices, values, room):
    """An index belongs where as many are smaller: quadratic, but without branches, and several at a time.

    Twins claim the same place, so the sum of all places tells whether there are any.
    """
    count = len(indices)
    scratch = room.view(np.uint32)
    written, parts = scratch[:count], scratch[count : 2 * count].view(np.float32)
    places, taken = scratch[2 * count : 3 * count], scratch[3 * count : 4 * count]
    for i in range(count):
        written[i] = indices[i]
    for i in range(count):
        parts[i] = values[i]
    total = 0
    for i in range(count):
        index = written[i]
        place = np.uint32(0)
        for j in range(count):
            place += np.uint32(written[j] < index)
        indices[place], values[place] = index, parts[i]
        places[i] = place
        total += place
    if total == count * (count - 1) // 2:
        return count
    return add_up_places(indices, values, parts, places, taken)


@cold
def add_up_places(indices, values, parts, places, taken):
    """Give each place the sum of the parts that belong there, and close the gaps; returns how many places there are."""
    taken[:] = 0
    for i in range(len(parts)):
        place = places[i]
        values[place] = values[place] + parts[i] if taken[place] else parts[i]
        taken[place] = 1
    kept = 0
    for place in range(len(taken)):
        indices[kept], values[kept] = indices[place], values[place]
        kept += np.int64(taken[place])
    return kept


@cold
def sort_by_digits(indices, values, room):
    """A radix sort of index and value together, by those bytes of the indices in which they differ."""
    count = len(indices)
    here, there = room[:count], room[count : 2 * count]
    raw = values.view(np.uint32)
    differing = np.uint64(0)
    for i in range(count):
        here[i] = (np.uint64(indices[i]) << HALF) | np.uint64(raw[i])
        differing |= here[i] ^ here[0]
    places = np.empty(256, np.int64)
    for shift in range(32, 64, 8):
        if (differing >> np.uint64(shift)) & BYTE == ZERO:
            continue
        places[:] = 0
        for i in range(count):
            places[(here[i] >> np.uint64(shift)) & BYTE] += 1
        place = 0
        for digit in range(256):
            place += places[digit]
            places[digit] = place - places[digit]
        for i in range(count):
            digit = (here[i] >> np.uint64(shift)) & BYTE
            there[places[digit]] = here[i]
            places[digit] += 1
        here, there = there, here
    kept = -1
    for i in range(count):
        index = np.uint32(here[i] >> HALF)
        raw[i] = np.uint32(here[i] & LOW)
        if kept >= 0 and indices[kept] == index:
            values[kept] += values[i]
        else:
            kept += 1
            indices[kept], values[kept] = index, values[i]
    return kept + 1
