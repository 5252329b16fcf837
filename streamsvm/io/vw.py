"""Vowpal Wabbit text to batches: `[label [importance [base]]] [tag]|[namespace[:scale]] name[:value] ... |...` a row.

A token that touches the first `|`, or begins with ', is a tag, as VW has it; tag and base are ignored. Every feature is
hashed under its namespace (hashing.py). Interactions are made here too, because only here a row's namespaces are
known: `(a, b)` adds the product of every feature of a with every one of b. Namespaces are told apart by their hash.

The kernel walks the bytes once, eight at a time, and hashes a name from the same words in which it looks for its end.
Values of usual length are read in place; whatever is unusual (tabs, exponents, control characters) has a general path
beside it. A row that lacks something, be it room or the value of a hard number, is left at its start: Python provides
and the kernel reads the row again. Until a row is closed `indices` has its words and `values` their unsigned values.
"""

import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Batch, Bytes, Int64s, Uint32s
from streamsvm.hashing import cross, finished, mixed_in, murmur3, scrambled, seed_of, sign_of
from streamsvm.io.decimals import (
    HARD,
    NOT_A_NUMBER,
    NUMBER,
    TOO_LARGE,
    first_digits,
    load8,
    load64,
    long_decimal,
    non_digits,
    read_number,
    short_decimal,
    trailing_zeros,
)
from streamsvm.io.parsed import LINE, NUMERAL, SHOWN, Fault, Parsed, found, quoted
from streamsvm.jit import cold, inlined, kernel
from streamsvm.rows import sort_row

# What the kernel reports: all is well, what a row lacks, or how it is wrong.
OK, FULL, UNDECIDED = range(3)
NO_BAR, NO_LABEL, BAD_LABEL, LABEL_RANGE, BAD_WEIGHT, NEGATIVE_WEIGHT, WEIGHT_RANGE, BAD_BASE, SURPLUS = range(3, 12)
NO_NAME, BAD_VALUE, VALUE_RANGE, SUM_RANGE, TOO_MANY = range(12, 17)

LARGEST_LABEL = 2.0**24  # labels travel as float32: beyond this two classes could become one
LARGEST_ROW = 1 << 24  # features, interactions included

_TOKEN = re.compile(rb"[^ \t\r\n]{0,%d}" % (4 * SHOWN))
_NOT_FINITE = re.compile(r"(.*:)?[+-]?(nan|inf|infinity)(\||$)", re.IGNORECASE | re.DOTALL)

Int32s = npt.NDArray[np.int32]


class Dialect(NamedTuple):
    """What the parser may accept and what it makes of it: a recipe, part of a cache's fingerprint."""

    labelled: bool = True  # False: a row may come without a label (predict)
    hash_bits: int = 22
    interactions: tuple[tuple[str, ...], ...] = ()  # pairs or triples of namespaces
    spelled: bool = False  # whether names are noted too


class Rows:
    """Room for the rows of a block, used again for the next one; interactions and long rows make it grow.

    With `spelled`, the first so many entries of `word`, `name_start` ... say where in the text of the good rows each
    feature is written, and where its namespace.
    """

    def __init__(self, size: int) -> None:
        self._make(size)
        self.keys = np.empty(1 << 10, np.uint64)  # scratch for crossing and sorting rows
        self.slots: Int32s = np.empty(0, np.int32)  # of the features of a row: which crossed namespace has it
        self.hard_at = np.empty(0, np.int64)
        self.hard_value = np.empty(0, np.float32)
        self.spelled = 0
        self.word = np.empty(0, np.uint32)
        self.name_start, self.name_length, self.space_start, self.space_length = _spans(0)

    def _make(self, size: int) -> None:
        rows, features = size // 2 + 1, size // 2 + 1
        self.indptr = np.zeros(rows + 1, np.int64)
        self.labels = np.empty(rows, np.float32)
        self.weights = np.empty(rows, np.float32)
        self.indices = np.empty(features, np.uint32)
        self.values = np.empty(features, np.float32)

    def prepare(self, size: int, dialect: Dialect) -> None:
        """See to it that `size` bytes of text fit, as far as that can be known beforehand."""
        most = size // 2 + 1
        if most > len(self.labels):
            self._make(size)
        if dialect.interactions and most > len(self.slots):
            self.slots = np.empty(most, np.int32)
        if dialect.spelled and most > len(self.word):
            self.word = np.empty(most, np.uint32)
            self.name_start, self.name_length, self.space_start, self.space_length = _spans(most)
        self.spelled = 0

    def grow(self, used: int, wanted: int) -> None:
        """Room for `wanted` features after `used` ones, which stay, and for the sorting of so many."""
        if used + wanted > len(self.indices):
            room = max(used + wanted, len(self.indices) * 3 // 2)
            indices, values = np.empty(room, np.uint32), np.empty(room, np.float32)
            indices[:used], values[:used] = self.indices[:used], self.values[:used]
            self.indices, self.values = indices, values
        if 2 * wanted > len(self.keys):
            self.keys = np.empty(3 * wanted, np.uint64)

    def decide(self, text: Bytes, count: int) -> int:
        """The values of the hard numbers that the kernel has noted; how many of `count`."""
        noted = count if count <= len(self.hard_at) else 0
        with np.errstate(over="ignore"):  # the kernel refuses an infinity
            for i in range(noted):
                self.hard_value[i] = float(found(NUMERAL, text, int(self.hard_at[i])))
        if not noted:
            self.hard_at, self.hard_value = np.empty(count, np.int64), np.empty(count, np.float32)
        return noted


def _spans(size: int) -> tuple[Int32s, Int32s, Int32s, Int32s]:
    return np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int32)


def bytes_per_text_byte() -> int:
    """The most memory a block's rows can take, per byte of text: a feature is `a `, and has two keys in a long row.

    Rows by themselves, `|\\n`, take 8; names, where they are noted, 10 more.
    """
    return 4 + 8


def make_rows(size: int) -> Rows:
    """Room for any `size` bytes of text without interactions. Memory is only touched as far as rows fill it."""
    return Rows(size)


@lru_cache(maxsize=16)
def crossings(interactions: tuple[tuple[str, ...], ...]) -> tuple[Uint32s, Int64s]:
    """The hashes of all namespaces that are crossed, and the slots of each interaction among them, -1 for no third."""
    names = list(dict.fromkeys(name for names in interactions for name in names))
    slots = [[*map(names.index, names_of), -1][:3] for names_of in interactions]
    return np.array([seed_of(name) for name in names], np.uint32), np.array(slots, np.int64).reshape(-1, 3)


def parse(text: Bytes, start: int, stop: int, dialect: Dialect, out: Rows, skip: int = 0) -> Parsed:
    """All rows of `text[start:stop]`, which ends in a newline and has PADDING more bytes behind it.

    Up to `skip` malformed rows are left out; one more ends the batch.
    """
    faults: list[Fault] = []
    row = feature = lines = known = 0
    seeds, crossed = crossings(dialect.interactions)
    out.prepare(stop - start, dialect)
    while start < stop:
        status, start, row, feature, out.spelled, more, wanted = parse_rows(
            text, start, stop, row, feature, out.spelled, dialect.labelled, (1 << dialect.hash_bits) - 1,
            out.indptr, out.indices, out.values, out.labels, out.weights, out.keys, seeds, crossed, out.slots,
            out.hard_at, out.hard_value, known, dialect.spelled,
            out.word, out.name_start, out.name_length, out.space_start, out.space_length,
        )  # fmt: skip
        lines += more
        known = 0
        if status == FULL:
            out.grow(feature, wanted)
        elif status == UNDECIDED:
            known = out.decide(text, wanted)
        elif status != OK:
            message, after = _explain(text, status, start)
            faults.append(Fault(int(start), lines, row, message))
            if len(faults) > skip:
                break
            lines += 1
            start = after
    batch = Batch(
        out.indptr[: row + 1], out.indices[:feature], out.values[:feature], out.labels[:row], out.weights[:row]
    )
    return Parsed(batch, lines, faults)


def _explain(text: Bytes, status: int, position: int) -> tuple[str, int]:
    """A sentence about the row, and where the next line starts."""
    token = found(_TOKEN, text, position).decode("utf-8", "backslashreplace")
    shown = quoted(token)
    space = token.startswith("|")
    wanted, what = ("|namespace:scale", "scale") if space else ("name:value", "value")
    if status in (BAD_LABEL, BAD_WEIGHT, BAD_BASE, BAD_VALUE) and _NOT_FINITE.match(token):
        message = f"{shown}: numbers must be finite"
    else:
        message = {
            NO_BAR: f"no | in the row that starts with {shown}: a row of VW text is `label | features`",
            NO_LABEL: f"the row has no label: it starts with {shown}" + ("" if space else ", a tag"),
            BAD_LABEL: f"{shown} is not a label: a row starts with a number",
            LABEL_RANGE: f"label {shown} is too large: class labels must be within 2^24",
            BAD_WEIGHT: f"{shown} is not an importance: after the label comes the weight of the row, a number",
            NEGATIVE_WEIGHT: f"{shown}: the importance of a row must not be negative",
            WEIGHT_RANGE: f"{shown}: the importance does not fit in single precision (largest is 3.4e38)",
            BAD_BASE: f"{shown} is not a base: the third number of a row is an initial prediction",
            SURPLUS: f"{shown} is too much: before the | come label, importance, base and tag",
            NO_NAME: f"{shown}: a {what} needs a name before its colon",
            BAD_VALUE: f"{shown} is not {wanted}: the {what} is not a number",
            VALUE_RANGE: f"{shown}: the {what} does not fit in single precision (largest is 3.4e38)",
            SUM_RANGE: "values of the row, added up or multiplied, do not fit in single precision (largest is 3.4e38)",
            TOO_MANY: f"the row has more than {LARGEST_ROW} features, interactions included",
        }[status]
    return message, position + len(found(LINE, text, position))


_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONES = np.uint64(0x0101010101010101)
_TOP_BITS = np.uint64(0x8080808080808080)
_PRINTED = np.uint64(0x2121212121212121)
_COLONS = np.uint64(0x3A3A3A3A3A3A3A3A)
_BARS = np.uint64(0x7C7C7C7C7C7C7C7C)


@inlined
def name_stops(word):
    """The top bit of every byte of `word` that may end a name: colon, bar, space and all control characters.

    The lowest set bit is always right. Bits above it may be wrong, because a byte can borrow from the next.
    """
    colons, bars = word ^ _COLONS, word ^ _BARS
    low = (word - _PRINTED) & ~word
    return (low | ((colons - _ONES) & ~colons) | ((bars - _ONES) & ~bars)) & _TOP_BITS


@inlined
def hash_end(h, word, count, length):
    """The word of a name of `length` bytes, of which the last `count` (below 8) are the first ones of `word`."""
    if count >= 4:
        h = mixed_in(h, word & _LOW)
        word >>= _HALF
        count -= 4
    h ^= scrambled(word & ((np.uint64(1) << np.uint64(8 * count)) - np.uint64(1)))
    return np.uint32(max(finished(h ^ np.uint64(length)), np.uint64(1)))


@inlined
def short_value(text, position):
    """A number of usual length at `position` and the position after it, which is 0 if `read_number` has to do it."""
    negative = load8(text, position) == 45
    if negative:
        position += 1
    word = load64(text, position)
    stops = non_digits(word)
    count = trailing_zeros(stops) >> 3
    if stops == np.uint64(0) or count == 0:
        return 0.0, 0
    whole = first_digits(word, count)
    number = np.float64(np.int64(whole))
    position += count
    if load8(text, position) == 46:
        word = load64(text, position + 1)
        stops = non_digits(word)
        count = trailing_zeros(stops) >> 3
        if stops == np.uint64(0):
            if whole > np.uint64(9):
                return 0.0, 0
            number, count = long_decimal(text, position + 1, whole, word)
        elif count > 0:
            number = short_decimal(whole, first_digits(word, count), count)
        if count == 0:
            return 0.0, 0
        position += 1 + count
    return (-number if negative else number), position


@inlined
def is_blank(c):
    return c == 32 or c == 9 or c == 13


@cold
def end_of_name(text, position):
    while not (is_blank(text[position]) or text[position] == 10 or text[position] == 58 or text[position] == 124):
        position += 1
    return position


@cold
def end_of_blanks(text, position):
    while is_blank(text[position]):
        position += 1
    return position


@cold
def read_exactly(text, position, hard, hard_at, hard_value, known):
    """`read_number`, where hard numbers are noted and, once known, decided; also how many the row has had so far."""
    status, value, after = read_number(text, position)
    if status == HARD:
        if hard < known:
            value = hard_value[hard]
        elif hard < len(hard_at):
            hard_at[hard] = position
        hard += 1
        status = TOO_LARGE if np.isinf(value) else NUMBER
    return status, value, after, hard


@cold
def read_head(text, start, labelled, hard_at, hard_value, known):
    """What stands before the first bar: fault, position of the bar (or fault), label, weight, hard numbers met."""
    label, weight = np.float32(np.nan), np.float32(1.0)
    hard = numbers = 0
    bar = start
    while text[bar] != 124:
        if text[bar] == 10:
            return NO_BAR, start, label, weight, hard
        bar += 1
    position = start
    while position < bar:
        end = position
        while end < bar and not is_blank(text[end]):
            end += 1
        after = end_of_blanks(text, end)
        if end == bar or (text[position] == 39 and after == bar):  # a tag
            break
        if numbers == 3:
            return SURPLUS, position, label, weight, hard
        status, value, stopped, hard = read_exactly(text, position, hard, hard_at, hard_value, known)
        if status == NOT_A_NUMBER or stopped != end:
            return (BAD_LABEL, BAD_WEIGHT, BAD_BASE)[numbers], position, label, weight, hard
        if numbers == 0:
            if status == TOO_LARGE or np.abs(value) > LARGEST_LABEL:
                return LABEL_RANGE, position, label, weight, hard
            label = value
        elif numbers == 1:
            if status == TOO_LARGE:
                return WEIGHT_RANGE, position, label, weight, hard
            if value < 0.0:
                return NEGATIVE_WEIGHT, position, label, weight, hard
            weight = np.abs(value)  # -0 is 0
        numbers += 1
        position = after
    if labelled and numbers == 0:
        return NO_LABEL, start, label, weight, hard
    return OK, bar, label, weight, hard


@cold
def read_named(text, start, seed, hard, hard_at, hard_value, known):
    """`name:number` or `name`: fault, position after it, hash and length of the name, number, hard numbers met."""
    end = end_of_name(text, start)
    length = end - start
    h = murmur3(text, start, length, seed)
    fault, value = OK, np.float32(1.0)
    if text[end] == 58:
        status, value, end, hard = read_exactly(text, end + 1, hard, hard_at, hard_value, known)
        c = text[end]
        if length == 0:
            fault = NO_NAME
        elif status == NOT_A_NUMBER or not (is_blank(c) or c == 10 or c == 124):
            fault = BAD_VALUE
        elif status == TOO_LARGE:
            fault = VALUE_RANGE
    return fault, end, h, length, value, hard


@inlined
def combinations(counts, slots):
    """How many features an interaction makes, as a float because it can be very large."""
    first, second, third = slots
    n = np.float64(counts[first])
    total = n * (n + 1.0) / 2.0 if second == first else n * np.float64(counts[second])
    if third >= 0:
        if third == first and third == second:
            total = total * (n + 2.0) / 3.0
        elif third == first:
            total *= (n + 1.0) / 2.0
        elif third == second:
            total *= (np.float64(counts[second]) + 1.0) / 2.0
        else:
            total *= np.float64(counts[third])
    return total


@cold
def count_row(slots, simple, crossed, counts):
    """The features of a row with all interactions; `counts` gets those of each crossed namespace."""
    counts[:] = 0
    for i in range(simple):
        if slots[i] >= 0:
            counts[slots[i]] += 1
    total = np.float64(simple)
    for k in range(len(crossed)):
        total += combinations(counts, (crossed[k, 0], crossed[k, 1], crossed[k, 2]))
    return total


@cold
def cross_row(indices, values, slots, simple, crossed, counts, keys):
    """Append the interactions of the row's first `simple` features; returns how many features there are then.

    Where a namespace is named again, its features are taken from the one chosen before on: each pair once.
    """
    starts = np.zeros(len(counts), np.int64)
    for s in range(1, len(counts)):
        starts[s] = starts[s - 1] + counts[s - 1]
    ends = starts.copy()
    words, numbers = keys[:simple].view(np.uint32), keys[simple : 2 * simple].view(np.float32)
    for i in range(simple):  # features of a namespace side by side, in the order written
        s = slots[i]
        if s >= 0:
            words[ends[s]], numbers[ends[s]] = indices[i], values[i]
            ends[s] += 1
    feature = simple
    for k in range(len(crossed)):
        first, second, third = crossed[k, 0], crossed[k, 1], crossed[k, 2]
        for i in range(starts[first], ends[first]):
            for j in range(i if second == first else starts[second], ends[second]):
                word, value = cross(words[i], words[j]), numbers[i] * numbers[j]
                if third < 0:
                    indices[feature], values[feature] = word, value
                    feature += value != 0.0
                    continue
                begin = j if third == second else i if third == first else starts[third]
                for m in range(begin, ends[third]):
                    product = value * numbers[m]
                    indices[feature], values[feature] = cross(word, words[m]), product
                    feature += product != 0.0
    return feature


@cold
def close_row(indices, values, bits, keys):
    """Words become indices in order, values get their signs; the length of the row, or -1 if not all are finite."""
    for i in range(len(indices)):
        values[i] *= sign_of(indices[i])
        indices[i] &= bits
    kept = sort_row(indices, values, keys)
    for i in range(kept):
        if not np.isfinite(values[i]):
            return -1
    return kept


@kernel
def parse_rows(
    text, start, stop, row, feature, noted, labelled, mask,
    indptr, indices, values, labels, weights, keys, seeds, crossed, slots,
    hard_at, hard_value, known, spelled, spelled_word, name_start, name_length, space_start, space_length,
):  # fmt: skip
    """Rows of text[start:stop] appended after `row` rows, `feature` features and `noted` names.

    Returns status, position (of the fault, of the row that lacks something, or the end), rows, features, names, lines
    walked, and what is lacking: features of room, or hard numbers. Of those the first row's first `known` are decided.
    """
    position = start
    lines = 0
    bits = np.uint32(mask)
    counts = np.zeros(len(seeds), np.int64)
    while position < stop:
        position = end_of_blanks(text, position)
        if text[position] == 10:
            position += 1
            lines += 1
            continue
        begun, begun_noted, opened = feature, noted, position
        if feature + ((stop - position) >> 1) >= len(indices):
            return FULL, opened, row, begun, begun_noted, lines, ((stop - position) >> 1) + 1
        fault, position, labels[row], weights[row], hard = read_head(text, opened, labelled, hard_at, hard_value, known)
        if fault != OK:
            return fault, position, row, begun, begun_noted, lines, 0

        seed, scale = np.uint64(0), np.float32(1.0)
        slot = -1
        space = space_size = 0
        while True:
            # A usual feature: a name, hashed as it is walked over, and a value of a few digits or none.
            token = position
            h = seed
            word = load64(text, position)
            stops = name_stops(word)
            while stops == np.uint64(0):
                h = mixed_in(mixed_in(h, word & _LOW), word >> _HALF)
                position += 8
                word = load64(text, position)
                stops = name_stops(word)
            count = trailing_zeros(stops) >> 3
            position += count
            size = position - token
            hashed = hash_end(h, word, count, size)
            number = 1.0
            c = load8(text, position)
            if c == 58:
                number, position = short_value(text, position + 1)
                c = load8(text, position)
            value = np.float32(number)

            if size == 0 or position == 0 or (c != 32 and c != 10):
                position = token
                c = load8(text, position)
                if c == 10:
                    break
                if is_blank(c):
                    position += 1
                    continue
                space_follows = c == 124
                fault, position, h, size, value, hard = read_named(
                    text, token + space_follows, np.uint64(0) if space_follows else seed,
                    hard, hard_at, hard_value, known,
                )  # fmt: skip
                if fault != OK:
                    return fault, token, row, begun, begun_noted, lines, 0
                if space_follows:
                    seed, scale, space, space_size = h, value, token + 1, size
                    slot = -1
                    for s in range(len(seeds)):
                        if seeds[s] == seed:
                            slot = s
                    continue
                hashed = np.uint32(max(h, np.uint64(1)))

            value *= scale
            if np.isinf(value):
                return VALUE_RANGE, token, row, begun, begun_noted, lines, 0
            if spelled:
                spelled_word[noted] = hashed
                name_start[noted], name_length[noted] = token, size
                space_start[noted], space_length[noted] = space, space_size
                noted += 1
            if len(seeds) > 0:
                slots[feature - begun] = slot
            indices[feature] = hashed
            values[feature] = value
            feature += value != 0.0

        if hard > known:
            return UNDECIDED, opened, row, begun, begun_noted, lines, hard
        simple = feature - begun
        many = count_row(slots, simple, crossed, counts) if len(seeds) > 0 else np.float64(simple)
        if many > LARGEST_ROW:
            return TOO_MANY, opened, row, begun, begun_noted, lines, 0
        total = np.int64(many)
        if 2 * total > len(keys) or begun + total >= len(indices):
            return FULL, opened, row, begun, begun_noted, lines, total + 1
        if len(seeds) > 0:
            total = cross_row(indices[begun:], values[begun:], slots, simple, crossed, counts, keys)
        total = close_row(indices[begun : begun + total], values[begun : begun + total], bits, keys)
        if total < 0:
            return SUM_RANGE, opened, row, begun, begun_noted, lines, 0
        feature = begun + total
        known = 0
        position += 1
        lines += 1
        row += 1
        indptr[row] = feature
    return OK, position, row, feature, noted, lines, 0
