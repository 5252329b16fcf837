"""LIBSVM text to batches: `label [weight] [qid:n] index:value index:value ... [# comment]`, one row a line.

A number without a colon straight after the label is the row's weight, at least 0; without one a row weighs 1. Rows
may come without a label where that is allowed (predict): they start with `index:value`, and have no weight either.

The kernel walks the bytes once. Eight bytes are looked at in one word, so the usual token (`123:0.123456`) costs two
loads and no loop; everything unusual (long numbers, exponents, tabs, comments) takes the general path beside it.
Rows whose indices are not strictly increasing are sorted and their duplicates added up before the row is closed.
"""

import re
from typing import NamedTuple

import numpy as np

from streamsvm.batch import Batch, Bytes, Float32s, Int64s, Uint32s
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

# How a row can be wrong, as the kernel reports it.
OK = 0
BAD_LABEL, NO_LABEL, LABEL_RANGE, BAD_TOKEN, BAD_VALUE, VALUE_RANGE, INDEX_RANGE = range(1, 8)
NEGATIVE_WEIGHT, WEIGHT_RANGE = range(8, 10)

LARGEST_INDEX = 2**32 - 1
LARGEST_LABEL = 2.0**24  # labels travel as float32: beyond this two classes could become one

_TOKEN = re.compile(rb"[^ \t\r\n]{0,%d}" % (4 * SHOWN))


class Dialect(NamedTuple):
    """What the parser may accept: a recipe, part of a cache's fingerprint."""

    labelled: bool = True  # False: a row may start with its first feature (predict)
    limit: int = LARGEST_INDEX + 1  # indices must be below this
    mask: int = LARGEST_INDEX  # ANDed to every index: hash_bits on LIBSVM text


def index_mask(hash_bits: int | None) -> int:
    """The mask that keeps the low `hash_bits` bits of an index, or all of them."""
    return (1 << hash_bits) - 1 if hash_bits else LARGEST_INDEX


class Rows(NamedTuple):
    """Room for the rows of a block, used again for the next one."""

    indptr: Int64s
    indices: Uint32s
    values: Float32s
    labels: Float32s
    weights: Float32s
    keys: list[np.ndarray]  # scratch for sorting rows, made when first needed


def bytes_per_text_byte() -> int:
    """The most memory a block's rows can take, per byte of text: `1:1 ` is a feature, `1\\n` is a row."""
    return 2 + 8


def make_rows(size: int) -> Rows:
    """Room for any `size` bytes of text. The memory is only touched as far as rows fill it."""
    rows, features = size // 2 + 1, size // 4 + 1
    return Rows(
        np.zeros(rows + 1, np.int64),
        np.empty(features, np.uint32),
        np.empty(features, np.float32),
        np.empty(rows, np.float32),
        np.empty(rows, np.float32),
        [],
    )


def parse(text: Bytes, start: int, stop: int, dialect: Dialect, out: Rows, skip: int = 0) -> Parsed:
    """All rows of `text[start:stop]`, which ends in a newline and has PADDING more bytes behind it.

    Up to `skip` malformed rows are left out; one more ends the batch.
    """
    faults: list[Fault] = []
    row = feature = lines = 0
    while start < stop:
        status, start, row, feature, more = _parse_exactly(text, start, stop, row, feature, dialect, out)
        lines += more
        if status == OK:
            break
        message, after = _explain(text, status, start)
        faults.append(Fault(start, lines, row, message))
        if len(faults) > skip:
            break
        lines += 1
        start = after
    batch = Batch(
        out.indptr[: row + 1], out.indices[:feature], out.values[:feature], out.labels[:row], out.weights[:row]
    )
    return Parsed(batch, lines, faults)


def _parse_exactly(
    text: Bytes, start: int, stop: int, row: int, feature: int, dialect: Dialect, out: Rows
) -> tuple[int, int, int, int, int]:
    """Run the kernel; where it met hard numbers, let Python's float decide them and run it again."""
    at, decided = np.empty(0, np.int64), np.empty(0, np.float32)
    known = 0
    while True:
        keys = out.keys[0] if out.keys else np.empty(0, np.uint64)
        status, position, rows, features, lines, hard, wanted = parse_rows(
            text, start, stop, row, feature, dialect.labelled, dialect.limit, dialect.mask,
            out.indptr, out.indices, out.values, out.labels, out.weights, keys, at, decided, known,
        )  # fmt: skip
        if wanted > len(keys):
            out.keys[:] = [np.empty(wanted, np.uint64)]
        elif hard == known:
            return status, position, rows, features, lines
        elif hard > len(at):
            at, decided = np.empty(hard, np.int64), np.empty(hard, np.float32)
            known = 0
        else:
            with np.errstate(over="ignore"):  # the kernel refuses an infinity
                for i in range(hard):
                    decided[i] = float(found(NUMERAL, text, int(at[i])))
            known = hard


def _explain(text: Bytes, status: int, position: int) -> tuple[str, int]:
    """A sentence about the row, and where the next line starts."""
    token = found(_TOKEN, text, position).decode("utf-8", "backslashreplace")
    shown = quoted(token)
    lowered = token.lower()
    if "nan" in lowered or "inf" in lowered:
        message = f"{shown}: numbers must be finite"
    else:
        message = {
            BAD_LABEL: f"{shown} is not a label: a row starts with a number",
            NO_LABEL: f"the row has no label: it starts with {shown}",
            LABEL_RANGE: f"label {shown} is too large: class labels must be within 2^24",
            BAD_TOKEN: f"{shown} is not index:value",
            BAD_VALUE: f"{shown} is not index:value: the value is not a number",
            VALUE_RANGE: f"{shown}: the value does not fit in single precision (largest is 3.4e38)",
            INDEX_RANGE: f"{shown}: the index is too large for this model or for 32 bits",
            NEGATIVE_WEIGHT: f"{shown}: a number after the label is the weight of the row, and must not be negative",
            WEIGHT_RANGE: f"{shown}: the weight of the row does not fit in single precision (largest is 3.4e38)",
        }[status]
    return message, position + len(found(LINE, text, position))


@inlined
def skip_line(text, position):
    while text[position] != 10:
        position += 1
    return position


@inlined
def starts_qid(text, position):
    """Whether `qid:` stands at `position`."""
    return load64(text, position) & np.uint64(0xFFFFFFFF) == np.uint64(0x3A646971)


@cold
def read_weight(text, start, hard, hard_at, hard_value, hard_known):
    """A row's weight at `start`: what is wrong with it, its value, the position after it, and hard numbers met.

    BAD_TOKEN says that no number stands there by itself: it may be index:value.
    """
    status, value, position = read_number(text, start)
    c = text[position]
    if status == NOT_A_NUMBER or not (c == 32 or c == 9 or c == 10 or c == 13 or c == 35):
        return BAD_TOKEN, value, start, hard
    if status == HARD:
        if hard < hard_known:
            value = hard_value[hard]
        elif hard < len(hard_at):
            hard_at[hard] = start
        hard += 1
    fault = OK
    if status == TOO_LARGE or np.isinf(value):
        fault = WEIGHT_RANGE
    elif value < 0.0:
        fault = NEGATIVE_WEIGHT
    return fault, np.abs(value), position, hard  # -0 is 0


@cold
def read_index(text, position):
    """Any index at `position`, as far as it fits 32 bits, and the position after its colon, or -1."""
    index = np.uint64(0)
    start = position
    digit = np.int64(text[position]) - 48
    while 0 <= digit <= 9:
        if index <= np.uint64(LARGEST_INDEX):
            index = index * np.uint64(10) + np.uint64(digit)
        position += 1
        digit = np.int64(text[position]) - 48
    if position == start or text[position] != 58:
        position = -2
    return index, position + 1


@kernel
def parse_rows(
    text, start, stop, row, feature, labelled, limit, mask,
    indptr, indices, values, labels, weights, keys, hard_at, hard_value, hard_known,
):  # fmt: skip
    """Rows of text[start:stop] appended after `row` rows and `feature` features.

    Returns status, position (of the fault, or the end), rows, features, lines walked, hard numbers met, and how many
    keys sorting wanted. `hard_value` has the answers to the first `hard_known` hard numbers, found by an earlier run.
    """
    position = start
    lines = 0
    hard = 0
    wanted = 0
    upper = np.uint64(limit)
    bits = np.uint64(mask)
    while position < stop:
        begun = feature  # the row's first feature
        c = text[position]
        while c == 32 or c == 9 or c == 13:
            position += 1
            c = text[position]
        if c == 10 or c == 35:
            position = skip_line(text, position) + 1
            lines += 1
            continue

        token = position
        status, value, position = read_number(text, position)
        c = text[position]
        if status == HARD:
            if hard < hard_known:
                value = hard_value[hard]
            elif hard < len(hard_at):
                hard_at[hard] = token
            hard += 1
            status = NUMBER
        if status == NUMBER and (c == 32 or c == 9 or c == 10 or c == 13 or c == 35):
            if np.abs(value) > LARGEST_LABEL:
                return LABEL_RANGE, token, row, begun, lines, hard, wanted
            labels[row] = value
            bare = True
        elif c == 58 or starts_qid(text, token):
            if labelled:
                return NO_LABEL, token, row, begun, lines, hard, wanted
            labels[row] = np.nan
            bare = False
            position = token
        elif status == TOO_LARGE:
            return LABEL_RANGE, token, row, begun, lines, hard, wanted
        else:
            return BAD_LABEL, token, row, begun, lines, hard, wanted

        weights[row] = 1.0
        least = np.uint64(0)  # what the next index must reach for the row to be sorted
        unsorted = False
        while True:
            # Usual tokens, one after the other: `index:value ` with up to 7 index digits and d or d.dddd as value.
            while True:
                word = load64(text, position)
                stops = non_digits(word)
                count = trailing_zeros(stops) >> 3
                if stops == np.uint64(0) or load8(text, position + count) != 58 or count == 0:
                    break
                index = first_digits(word, count)
                after = position + count + 1
                negative = load8(text, after) == 45
                if negative:
                    after += 1
                whole = load8(text, after) - 48
                number = np.float64(whole)
                after += 1
                if load8(text, after) == 46:
                    word = load64(text, after + 1)
                    stops = non_digits(word)
                    count = trailing_zeros(stops) >> 3
                    if stops == np.uint64(0):
                        number, count = long_decimal(text, after + 1, np.uint64(whole), word)
                    elif count > 0:
                        number = short_decimal(np.uint64(whole), first_digits(word, count), count)
                    if count == 0:
                        break
                    after += 1 + count
                end = load8(text, after)
                if end > 32 or whole < 0 or whole > 9 or index >= upper:
                    break
                index &= bits
                indices[feature] = np.uint32(index)
                values[feature] = -number if negative else number
                feature += 1
                unsorted |= index < least
                least = index + np.uint64(1)
                position = after + 1
                if end != 32:
                    position = after
                    break

            c = load8(text, position)
            if c == 10:
                break
            if c == 32 or c == 9 or c == 13:
                position += 1
                continue
            if c == 35:
                position = skip_line(text, position)
                break
            token = position
            if bare and feature == begun:  # the label was the last token
                bare = False
                fault, value, position, hard = read_weight(text, token, hard, hard_at, hard_value, hard_known)
                if fault == OK:
                    weights[row] = value
                    continue
                if fault != BAD_TOKEN:
                    return fault, token, row, begun, lines, hard, wanted
            if starts_qid(text, position):
                while text[position] > 32 and text[position] != 35:
                    position += 1
                continue
            index, position = read_index(text, position)
            if position < 0:
                return BAD_TOKEN, token, row, begun, lines, hard, wanted
            if index >= upper:
                return INDEX_RANGE, token, row, begun, lines, hard, wanted
            at = position
            status, value, position = read_number(text, at)
            if status == HARD:
                if hard < hard_known:
                    value = hard_value[hard]
                elif hard < len(hard_at):
                    hard_at[hard] = at
                hard += 1
            c = load8(text, position)
            if status == NOT_A_NUMBER or (c > 32 and c != 35):
                return BAD_VALUE, token, row, begun, lines, hard, wanted
            if status == TOO_LARGE or np.isinf(value):
                return VALUE_RANGE, token, row, begun, lines, hard, wanted
            index &= bits
            indices[feature] = np.uint32(index)
            values[feature] = value
            feature += 1
            unsorted |= index < least
            least = index + np.uint64(1)

        if unsorted:
            count = feature - begun
            if 2 * count <= len(keys):
                feature = begun + sort_row(indices[begun:feature], values[begun:feature], keys)
                for i in range(begun, feature):
                    if np.isinf(values[i]):
                        return VALUE_RANGE, token, row, begun, lines, hard, wanted
            wanted = max(wanted, 2 * count)
        position += 1
        lines += 1
        row += 1
        indptr[row] = feature
    return OK, position, row, feature, lines, hard, wanted
