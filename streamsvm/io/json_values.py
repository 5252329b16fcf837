"""One JSON value, read from the bytes where it stands: blanks, strings and escapes, numbers, words, lists.

Every function takes a position in the text and tells what it found there, or what is wrong, and where to go on. Strings
are searched eight bytes at a time and unescaped in place, which never needs more room than the escapes did. A value
that nobody wants is walked too (`skip_value`), because a line is taken only if all of it is JSON.

What needs Python (a number between two float32, a category such as 5.0) is put on a list of odd cells, for later.
Beyond RFC 8259, and as Python writes them, NaN is a value that is missing, and Infinity may stand where nobody looks.
"""

import numpy as np

from streamsvm.cells import INDICES, NUMBERS, WORDS, is_blank, is_missing
from streamsvm.hashing import MISSING, word_of
from streamsvm.io.decimals import (
    HARD,
    NOT_A_NUMBER,
    TOO_LARGE,
    first_digits,
    long_decimal,
    non_digits,
    read_number,
    short_decimal,
)
from streamsvm.jit import cold, inlined, load8, load32, load64, trailing_zeros

DEPTH = 64  # of objects and arrays in each other

# What a value is, or what is wrong with it.
OK, NOTHING, STRING, WHOLE, DECIMAL, TRUE, FALSE, FULL = range(8)
NO_OBJECT, NO_KEY, NO_COLON, NO_COMMA, NO_ITEM_COMMA, NO_END, BAD_VALUE, BAD_ESCAPE, CONTROL, TOO_DEEP = range(8, 18)
NESTED, NO_NUMBER, RANGE, INFINITE, NO_ITEM, NO_INDEX = range(18, 24)  # right in JSON, wrong for what is wanted
FIRST_FAULT = NO_OBJECT

ROW, LINES, ITEMS, ODDS, ENTRY, REACHED = range(6)  # what is counted while a text is read, in `state`

_LARGEST = float(np.finfo(np.float32).max)
_OVERFLOW = np.frombuffer(str(2**128 - 2**103 - 2**74).encode(), np.uint8)  # from here on, float32(float) is infinite

ONES, TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
FIRST_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)  # the bits of the first n bytes of a word
_QUOTES, _SLASHES, _SPACES = np.uint64(0x22) * ONES, np.uint64(0x5C) * ONES, np.uint64(0x20) * ONES
_TRUE, _FALSE, _NULL, _NAN = (np.uint64(int.from_bytes(w, "little")) for w in (b"true", b"fals", b"null", b"NaN"))
_INFINITY = np.uint64(int.from_bytes(b"Infinity", "little"))


@inlined
def skip_blanks(text, position):
    c = load8(text, position)
    while c == 32 or c == 9 or c == 13:
        position += 1
        c = load8(text, position)
    return position


@inlined
def string_stop(text, position):
    """Where the next quote, backslash or control character is."""
    while True:
        word = load64(text, position)
        quote, slash = word ^ _QUOTES, word ^ _SLASHES
        stops = (((quote - ONES) & ~quote) | ((slash - ONES) & ~slash) | ((word - _SPACES) & ~word)) & TOPS
        if stops != np.uint64(0):
            return position + (trailing_zeros(stops) >> 3)
        position += 8


@cold
def four_hex_digits(text, position):
    """Their value, -1 if they are not."""
    code = 0
    for i in range(position, position + 4):
        c = load8(text, i)
        if 48 <= c <= 57:
            code = code * 16 + c - 48
        elif 97 <= c | 32 <= 102:
            code = code * 16 + (c | 32) - 87
        else:
            return -1
    return code


@cold
def escaped_code(text, position):
    """The character of the escape at `position`, -1 if it is none, and the position after it.

    Half of a pair that stands alone is a character of its own, as in Python's json.
    """
    c = load8(text, position + 1)
    if c == 117:
        code = four_hex_digits(text, position + 2)
        position += 6
        if 0xD800 <= code < 0xDC00 and load8(text, position) == 92 and load8(text, position + 1) == 117:
            low = four_hex_digits(text, position + 2)
            if 0xDC00 <= low < 0xE000:
                return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00), position + 6
        return code, position
    code = -1
    if c == 34 or c == 92 or c == 47:
        code = c
    elif c == 98:
        code = 8
    elif c == 102:
        code = 12
    elif c == 110:
        code = 10
    elif c == 114:
        code = 13
    elif c == 116:
        code = 9
    return code, position + 2


@inlined
def put(out, at, limit, byte):
    if at < limit:
        out[at] = np.uint8(byte)
    return at + 1


@cold
def finish_string(text, position, out, at, limit):
    """A string from its first quote, backslash or control character on, its bytes unescaped to `out[at:limit]`.

    Returns status, where it ends (at its quote) or is wrong, and the end of its bytes, also of those that did not fit.
    A quote follows them, because `out` may be the text itself, and then digits could be left behind them.
    """
    while True:
        c = load8(text, position)
        if c == 34:
            put(out, at, limit, 34)
            return OK, position, at
        if c < 32:
            return CONTROL, position, at
        if c != 92:
            at = put(out, at, limit, c)
            position += 1
            continue
        code, after = escaped_code(text, position)
        if code < 0:
            return BAD_ESCAPE, position, at
        position = after
        if code < 0x80:
            at = put(out, at, limit, code)
            continue
        if code < 0x800:
            at = put(out, at, limit, 0xC0 | code >> 6)
        else:
            if code < 0x10000:
                at = put(out, at, limit, 0xE0 | code >> 12)
            else:
                at = put(out, at, limit, 0xF0 | code >> 18)
                at = put(out, at, limit, 0x80 | (code >> 12 & 0x3F))
            at = put(out, at, limit, 0x80 | (code >> 6 & 0x3F))
        at = put(out, at, limit, 0x80 | (code & 0x3F))


@cold
def digits_stop(text, position):
    while True:
        stops = non_digits(load64(text, position))
        if stops != np.uint64(0):
            return position + (trailing_zeros(stops) >> 3)
        position += 8


@cold
def read_bare(text, position):
    """A value without quotes or brackets: what it is, and where it ends. A WHOLE is written in the one way there is."""
    word = load64(text, position)
    four = load32(text, position)
    if four == _TRUE:
        return TRUE, position + 4
    if four == _FALSE and load8(text, position + 4) == 101:
        return FALSE, position + 5
    if four == _NULL:
        return NOTHING, position + 4
    if four & FIRST_BYTES[3] == _NAN:
        return NOTHING, position + 3
    if word == _INFINITY:
        return INFINITE, position + 8
    start = position
    negative = load8(text, position) == 45
    if negative:
        position += 1
        if load64(text, position) == _INFINITY:
            return INFINITE, position + 8
    after = digits_stop(text, position)
    zero = load8(text, position) == 48
    what = DECIMAL if zero and negative else WHOLE
    if zero and after > position + 1:  # the digits behind are no part of it
        return what, position + 1
    if after == position:
        return BAD_VALUE, start
    position = after
    if load8(text, position) == 46:
        what = DECIMAL
        after = digits_stop(text, position + 1)
        if after == position + 1:
            return BAD_VALUE, start
        position = after
    if load8(text, position) | 32 == 101:
        what = DECIMAL
        position += 1
        sign = load8(text, position)
        if sign == 43 or sign == 45:
            position += 1
        after = digits_stop(text, position)
        if after == position:
            return BAD_VALUE, start
        position = after
    return what, position


@cold
def unusual_token(text, position):
    """See `read_token`."""
    c = load8(text, position)
    if c == 34:
        end = string_stop(text, position + 1)
        status, end, at = finish_string(text, end, text, end, len(text))
        if status != OK:
            return status, end, 0, end
        length = at - position - 1
        return (STRING if length > 0 else NOTHING), position + 1, length, end + 1
    if c == 123 or c == 91:
        return NESTED, position, 0, position
    what, end = read_bare(text, position)
    return what, position, (0 if what == NOTHING else end - position), end


@inlined
def read_token(text, position):
    """A value that is no object or array: what it is, start and length of its text, and the position after it.

    If it is a fault: which, where it is, 0, and how far the text was looked at and may have changed.
    """
    if load8(text, position) == 34:
        end = string_stop(text, position + 1)
        if load8(text, end) == 34 and end > position + 1:
            return STRING, position + 1, end - position - 1, end + 1
    return unusual_token(text, position)


@cold
def skip_value(text, position, depth):
    """A value that nobody wants: status, and the position after it or of the fault."""
    arrays = np.uint64(0)  # one bit a level, the innermost lowest
    level = 0
    while True:
        c = load8(text, position)
        opened = c == 123 or c == 91
        if opened:
            if depth + level == DEPTH:
                return TOO_DEEP, position
            level += 1
            arrays = (arrays << np.uint64(1)) | np.uint64(c == 91)
            position += 1
        elif c == 34:
            position = string_stop(text, position + 1)
            if load8(text, position) != 34:
                status, position, _ = finish_string(text, position, text, position, position)
                if status != OK:
                    return status, position
            position += 1
        else:
            what, position = read_bare(text, position)
            if what == BAD_VALUE:
                return what, position
        while level > 0:  # after a value or an opening bracket: to the next value
            position = skip_blanks(text, position)
            c = load8(text, position)
            array = arrays & np.uint64(1) != np.uint64(0)
            if c == (93 if array else 125):
                level -= 1
                arrays >>= np.uint64(1)
                opened = False
                position += 1
                continue
            if not opened:
                if c != 44:
                    return (NO_ITEM_COMMA if array else NO_COMMA), position
                position = skip_blanks(text, position + 1)
            if not array:
                status, position = skip_key(text, position)
                if status != OK:
                    return status, position
            break
        if level == 0:
            return OK, position


@cold
def skip_key(text, position):
    """A key with its colon: status, and the position of the value or of the fault."""
    if load8(text, position) != 34:
        return NO_KEY, position
    position = string_stop(text, position + 1)
    if load8(text, position) != 34:
        status, position, _ = finish_string(text, position, text, position, position)
        if status != OK:
            return status, position
    position = skip_blanks(text, position + 1)
    if load8(text, position) != 58:
        return NO_COLON, position
    return OK, skip_blanks(text, position + 1)


@inlined
def usual_number(text, position):
    """A number of up to 7 digits, and 7 or 16 more behind a point; and the position after it, 0 if it is another."""
    negative = load8(text, position) == 45
    start = position + negative
    word = load64(text, start)
    stops = non_digits(word)
    count = trailing_zeros(stops) >> 3
    if stops == np.uint64(0) or count == 0 or (count > 1 and load8(text, start) == 48):
        return 0.0, 0
    whole = first_digits(word, count)
    number = np.float64(np.int64(whole))
    after = start + count
    if load8(text, after) == 46:
        word = load64(text, after + 1)
        stops = non_digits(word)
        digits = trailing_zeros(stops) >> 3
        if stops == np.uint64(0):
            if count > 1:
                return 0.0, 0
            number, digits = long_decimal(text, after + 1, whole, word)
        elif digits > 0:
            number = short_decimal(whole, first_digits(word, digits), digits)
        if digits == 0:
            return 0.0, 0
        after += 1 + digits
    c = load8(text, after)
    if c | 32 == 101 or 48 <= c <= 57:
        return 0.0, 0
    return (-number if negative else number), after


@cold
def overflows(text, position):
    """Whether the number at `position`, which is next to the border, is beyond it: its digits tell."""
    i = 0
    while True:
        c = load8(text, position)
        if c | 32 == 101 or not (48 <= c <= 57 or c == 43 or c == 45 or c == 46):
            return i == len(_OVERFLOW)
        if 48 <= c <= 57 and (i > 0 or c != 48):
            if i == len(_OVERFLOW):
                return True
            if c != _OVERFLOW[i]:
                return c > _OVERFLOW[i]
            i += 1
        position += 1


@cold
def number_of_text(text, start, length):
    """The number that a text spells: status, value (NaN if missing), whether it is hard, start, length."""
    if is_missing(text, start, length):
        return OK, np.float32(np.nan), False, start, 0
    end = start + length
    while is_blank(load8(text, start)):
        start += 1
    while is_blank(load8(text, end - 1)):
        end -= 1
    length = end - start
    status, value, after = read_number(text, start)
    if status == NOT_A_NUMBER or after != end:
        return NO_NUMBER, value, False, start, length
    hard = status == HARD
    if hard and np.abs(value) == _LARGEST:
        hard = False
        if overflows(text, start):
            status = TOO_LARGE
    if status == TOO_LARGE:
        return RANGE, value, False, start, length
    return OK, value, hard, start, length


@cold
def number_of_token(text, what, start, length):
    """The number that a value is: status, value (NaN if missing), whether it is hard, where its digits are."""
    if what == NOTHING:
        return OK, np.float32(np.nan), False, start, 0
    if what == TRUE:
        return OK, np.float32(1.0), False, start, 0
    if what == FALSE:
        return OK, np.float32(0.0), False, start, 0
    return number_of_text(text, start, length)


@cold
def index_of_token(text, what, start, length):
    """The index that a value is, -1 if it is none."""
    index = np.int64(0)
    if what != WHOLE or length > 10 or load8(text, start) == 45:
        return np.int64(-1)
    for i in range(start, start + length):
        index = index * 10 + load8(text, i) - 48
    return index if index < 1 << 32 else np.int64(-1)


@cold
def is_whole(text, start, length):
    """Whether a text is a whole number as it should be written."""
    negative = load8(text, start) == 45
    first = load8(text, start + negative)
    if first == 48:
        return length == 1
    return 49 <= first <= 57 and digits_stop(text, start + negative) == start + length


@inlined
def is_odd(text, what, start, length, of_numbers):
    """Whether Python has to say how this category is spelled."""
    return what == DECIMAL or (what == STRING and of_numbers and not is_whole(text, start, length))


@inlined
def put_odd(odd, state, place, row, item, start, length):
    n = state[ODDS]
    odd[n, 0], odd[n, 1], odd[n, 2], odd[n, 3], odd[n, 4] = place, row, item, start, length
    state[ODDS] += 1


@cold
def read_list(text, position, place, row, kind, seed, of_numbers, pool, odd, state):
    """A list, or a value that counts as a list of one, to the pool: status, and the position after it or of a fault."""
    floats = pool.view(np.float32)
    many = load8(text, position) == 91
    if many:
        position = skip_blanks(text, position + 1)
        if load8(text, position) == 93:
            return OK, position + 1
    while True:
        item = state[ITEMS]
        odd_one = False
        number, after = usual_number(text, position) if kind == NUMBERS else (0.0, 0)
        what, start, length = WHOLE, position, 0
        if after > 0:
            floats[item] = number
        else:
            what, start, length, after = read_token(text, position)
            status = what if what >= FIRST_FAULT else OK
            if status == OK and kind == NUMBERS:
                status, value, odd_one, start, length = number_of_token(text, what, start, length)
                floats[item] = value
                what = NOTHING if np.isnan(value) else what
            elif status == OK and what != NOTHING and kind == INDICES:
                index = index_of_token(text, what, start, length)
                status = NO_INDEX if index < 0 else OK
                pool[item] = np.uint32(index & 0xFFFFFFFF)
            elif status == OK and what != NOTHING:
                odd_one = is_odd(text, what, start, length, of_numbers)
                pool[item] = MISSING if odd_one else word_of(text, start, length, seed)
            if status == OK and what == NOTHING and many and kind != WORDS:
                status = NO_ITEM
            if status != OK:
                state[REACHED] = after
                return status, (position if status >= NO_NUMBER else start)
        if odd_one:
            put_odd(odd, state, place, row, item, start, length)
        if what != NOTHING:
            state[ITEMS] += 1
        if not many:
            return OK, after
        position = skip_blanks(text, after)
        c = load8(text, position)
        if c == 93:
            return OK, position + 1
        if c != 44:
            return NO_ITEM_COMMA, position
        position = skip_blanks(text, position + 1)
