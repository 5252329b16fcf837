"""The kernels of assembly.py: checking cells, and making sorted sparse rows of them."""

import numpy as np

from streamsvm.hashing import MISSING, cross, sign_of
from streamsvm.jit import inlined, kernel, quick
from streamsvm.rows import FOUR, ONE, THREE, TWO, ZERO, sort_row

TILE = np.uint64(64)  # rows that are turned from columns into rows at a time

LOGARITHMS = np.log1p(np.arange(1024.0)).astype(np.float32)

# Where the features of a column are found, for the long way.
ONE_NUMBER, ONE_WORD, MANY_NUMBERS, MANY_WORDS, MANY_PAIRS = range(5)
OVERFLOWN = 2  # in `bad`


@quick
def encode_words(words, known, labels, bad, labelled):
    """Codes of the words among the known ones; whether a row has none."""
    faulty = False
    for i in range(len(words)):
        code = -1
        for k in range(len(known)):
            if words[i] == known[k]:
                code = k
        labels[i] = np.float32(code) if code >= 0 else np.float32(np.nan)
        if code < 0 and labelled:
            bad[i] = 1
            faulty = True
    return faulty


@quick
def check_labels(numbers, labels, bad, largest, labelled):
    """Copy labels; whether a row has none that will do."""
    faulty = False
    for i in range(len(numbers)):
        labels[i] = numbers[i]
        if labelled and not abs(numbers[i]) <= largest:
            bad[i] = 1
            faulty = True
    return faulty


@quick
def check_weights(numbers, weights, bad):
    faulty = False
    for i in range(len(numbers)):
        weights[i] = abs(numbers[i])  # -0 is 0
        if not (numbers[i] >= 0.0 and numbers[i] < np.inf):
            bad[i] = 1
            faulty = True
    return faulty


@kernel
def has_infinite(numbers, slots, rows):
    """Whether a number of these columns is infinite; told from the bits, many at a time."""
    bits = numbers.view(np.uint32)
    found = False
    for j in range(len(slots)):
        column = bits[slots[j]]
        for i in range(rows):
            found |= (column[i] & np.uint32(0x7FFFFFFF)) == np.uint32(0x7F800000)
    return found


@kernel
def is_full(numbers, slots, rows):
    """Whether every number of these columns is there, and none is 0: then all rows have the same features."""
    bits = numbers.view(np.uint32)
    for j in range(len(slots)):
        column = bits[slots[j]]
        full = True
        for i in range(rows):
            size = column[i] & np.uint32(0x7FFFFFFF)
            full &= (size != np.uint32(0)) & (size < np.uint32(0x7F800000))
        if not full:
            return False
    return True


@kernel
def log_numbers(numbers):
    """log(1 + x) of each number, with the sign of x; those of small counts are known."""
    known = len(LOGARITHMS)
    for i in range(len(numbers)):
        number = numbers[i]
        if 0.0 <= number < known and number == np.float32(np.int32(number)):
            numbers[i] = LOGARITHMS[np.int32(number)]
        else:
            size = np.log1p(np.float64(abs(number)))
            numbers[i] = np.float32(size) if number >= 0.0 else np.float32(-size)


@kernel
def bucket_words(numbers, edges, words, out):
    """The word of the bucket of each number: how many edges are at most that number."""
    for i in range(len(numbers)):
        out[i] = MISSING
        if numbers[i] == numbers[i]:
            low, high = 0, len(edges)
            while low < high:
                middle = (low + high) // 2
                if edges[middle] <= numbers[i]:
                    low = middle + 1
                else:
                    high = middle
            out[i] = words[low]


@kernel
def hash_indices(data, seed, out):
    for k in range(len(data)):
        out[k] = cross(seed, data[k])


@kernel
def check_spans(starts, lengths, data, widths, may_lack, wrong):
    """What is wrong with lists of numbers: 1 their length, 2 a missing item, 3 one too large; whether any is."""
    faulty = False
    for i in range(len(starts)):
        code = 0
        largest = np.float32(0.0)
        missing = False
        for k in range(starts[i], starts[i] + lengths[i]):
            size = abs(data[k])
            largest = size if size > largest else largest
            missing |= size != size
        if lengths[i] != widths[i] and not (may_lack and lengths[i] == 0):
            code = 1
        elif missing:
            code = 2
        elif largest == np.inf:
            code = 3
        wrong[i] = code
        faulty |= code != 0
    return faulty


@quick
def rows_beyond(starts, lengths, data, limit, bad):
    """Rows with an index of at least `limit`, which are bad."""
    found = np.zeros(len(starts), np.uint8)
    for i in range(len(starts)):
        for k in range(starts[i], starts[i] + lengths[i]):
            if data[k] >= limit and not bad[i]:
                found[i] = bad[i] = 1
    return found


@kernel
def align_values(starts, counts, other_starts, values, out):
    for i in range(len(starts)):
        for k in range(counts[i]):
            out[starts[i] + k] = values[other_starts[i] + k]


@kernel
def assemble_dense(rows, numbers, slots, indptr, indices, values):
    """Rows that all have the same features: a few rows and four columns at a time, which keeps to the cache."""
    width, count = np.uint64(len(slots)), np.uint64(rows)
    first = ZERO
    while first < count:
        last = min(first + TILE, count)
        j = ZERO
        while j + FOUR <= width:
            one, two = numbers[slots[j]], numbers[slots[j + ONE]]
            three, four = numbers[slots[j + TWO]], numbers[slots[j + THREE]]
            for i in range(first, last):
                k = i * width + j
                values[k] = one[i]
                values[k + ONE] = two[i]
                values[k + TWO] = three[i]
                values[k + THREE] = four[i]
            j += FOUR
        while j < width:
            one = numbers[slots[j]]
            for i in range(first, last):
                values[i * width + j] = one[i]
            j += ONE
        first = last
    for i in range(count):
        indptr[i + ONE] = (i + ONE) * width
        for j in range(width):
            indices[i * width + j] = j


@kernel
def assemble_plain(
    rows, bad, faulty, numbers, number_slots, marks, words, word_slots, first, mask, keys,
    indptr, indices, values, labels, weights,
):  # fmt: skip
    """Rows of numbers and of `marks` of missing ones, in the order of indices, and of single words, which are sorted.

    A mark is the index of a column's indicator, or -1.
    """
    feature = np.int64(0)
    kept = 0
    bits = np.uint32(mask)
    for i in range(rows):
        if faulty and bad[i]:
            continue
        missing = 0
        for j in range(len(number_slots)):
            value = numbers[number_slots[j], i]
            indices[feature] = j
            values[feature] = value
            feature += (value == value) & (value != np.float32(0.0))
            missing += value != value
        if missing:
            for j in range(len(number_slots)):
                value = numbers[number_slots[j], i]
                indices[feature] = marks[j]
                values[feature] = np.float32(1.0)
                feature += (value != value) & (marks[j] >= 0)
        begun = feature
        for j in range(len(word_slots)):
            word = words[word_slots[j], i]
            indices[feature] = np.uint32(first) + (word & bits)
            values[feature] = sign_of(word)
            feature += word != MISSING
        feature = begun + sort_row(indices[begun:feature], values[begun:feature], keys)
        labels[kept], weights[kept] = labels[i], weights[i]
        kept += 1
        indptr[kept] = feature
    return kept


@kernel
def count_features(counts, more, crossed, bad, limit):
    """An upper bound of the features of all good rows, and that of the longest; rows beyond the limit are bad.

    A row may have `more` features than its columns count, and those of interactions.
    """
    total = longest = np.int64(0)
    for i in range(len(bad)):
        if bad[i]:
            continue
        row = np.int64(more)
        for j in range(len(counts)):
            row += counts[j, i]
        for k in range(len(crossed)):
            product = counts[crossed[k, 0], i] * counts[crossed[k, 1], i]
            if crossed[k, 2] >= 0:
                product = min(product, 1 << 31) * counts[crossed[k, 2], i]
            row += product
        if row > limit:
            bad[i] = 1
            continue
        total += row
        longest = max(longest, row)
    return total, longest


@kernel
def assemble_all(
    rows, bad, kinds, starts, counts, firsts, words, values_in, dense_firsts, marks, crossed, base, mask, keys,
    indptr, indices, values, labels, weights,
):  # fmt: skip
    """Rows of everything: the features of each column, then those of the interactions, sorted and added up.

    A column without a number in a row, or with an empty vector, has the index in `marks` there, if that is one.
    """
    feature = np.int64(0)
    kept = 0
    bits = np.uint32(mask)
    for i in range(rows):
        if bad[i]:
            continue
        begun = feature
        for j in range(len(kinds)):
            at = firsts[j] + starts[j, i]
            if marks[j] >= 0 and counts[j, i] == 0 and (kinds[j] == MANY_NUMBERS or values_in[at] != values_in[at]):
                indices[feature] = marks[j]
                values[feature] = np.float32(1.0)
                feature += 1
            for k in range(counts[j, i]):
                word, value = words[at + k], values_in[at + k]
                if dense_firsts[j] >= 0:
                    if value == value and value != 0.0:
                        indices[feature] = dense_firsts[j] + k
                        values[feature] = value
                        feature += 1
                elif word != MISSING and value == value and value != 0.0:
                    indices[feature] = np.uint32(base) + (word & bits)
                    values[feature] = value * sign_of(word)
                    feature += 1
        for c in range(len(crossed)):
            left, middle, right = crossed[c, 0], crossed[c, 1], crossed[c, 2]
            for p in range(counts[left, i]):
                one, one_value = element(kinds, firsts, starts, words, values_in, left, i, p)
                for q in range(p if left == middle else 0, counts[middle, i]):
                    two, two_value = element(kinds, firsts, starts, words, values_in, middle, i, q)
                    if one == MISSING or two == MISSING:
                        continue
                    both, product = cross(one, two), one_value * two_value
                    if right < 0:
                        if product != 0.0 and product == product:
                            indices[feature] = np.uint32(base) + (both & bits)
                            values[feature] = product * sign_of(both)
                            feature += 1
                        continue
                    for r in range(q if middle == right else 0, counts[right, i]):
                        three, three_value = element(kinds, firsts, starts, words, values_in, right, i, r)
                        whole = product * three_value
                        if three != MISSING and whole != 0.0 and whole == whole:
                            every = cross(both, three)
                            indices[feature] = np.uint32(base) + (every & bits)
                            values[feature] = whole * sign_of(every)
                            feature += 1
        feature = begun + sort_row(indices[begun:feature], values[begun:feature], keys)
        if infinite_row(values, begun, feature):
            bad[i] = OVERFLOWN
            feature = begun
            continue
        labels[kept], weights[kept] = labels[i], weights[i]
        kept += 1
        indptr[kept] = feature
    return kept


@inlined
def element(kinds, firsts, starts, words, values_in, j, i, k):
    """The k-th feature of column j in row i, as interactions see it: elements of a vector have words of their own."""
    at = firsts[j] + starts[j, i] + k
    word = words[at]
    if kinds[j] == MANY_NUMBERS:
        word = cross(word, np.uint32(k + 1))
    return word, values_in[at]


@inlined
def infinite_row(values, begun, end):
    """Whether a row has a number that is too large."""
    largest = np.float32(0.0)
    for k in range(begun, end):
        size = abs(values[k])
        largest = size if size > largest else largest
    return largest == np.inf


@kernel
def assemble_sparse(rows, bad, starts, lengths, data, values_in, mask, keys, indptr, indices, values, labels, weights):
    """Rows whose indices are used as written."""
    feature = np.int64(0)
    kept = 0
    bits = np.uint32(mask)
    for i in range(rows):
        if bad[i]:
            continue
        begun = feature
        for k in range(starts[i], starts[i] + lengths[i]):
            if values_in[k] == values_in[k]:
                indices[feature] = data[k] & bits
                values[feature] = values_in[k]
                feature += 1
        feature = begun + sort_row(indices[begun:feature], values[begun:feature], keys)
        if infinite_row(values, begun, feature):
            bad[i] = OVERFLOWN
            feature = begun
            continue
        labels[kept], weights[kept] = labels[i], weights[i]
        kept += 1
        indptr[kept] = feature
    return kept
