"""JSON lines to cells: one object a line, nested objects flattened to `user.id`.

The kernel walks the bytes once. Most lines have the keys of the line before, in the same order, so the bytes of a key
are compared with those of the key that was there last time; only a key that is new at its place is hashed and looked
up. Strings are searched eight bytes at a time. What no recipe wants is walked too, because a line is taken only if all
of it is JSON.

Texts are unescaped where they stand, which never needs more room than the escapes did. So a row is read only once, and
what needs Python (a number between two float32, a category such as 5.0) is put on a list of odd cells, for later.

If a key comes again, it replaces all that its path held, also what was below it: {"a": {"b": 1}, "a": {}} has no a.b.
What is replaced must have been right all the same.
Beyond RFC 8259, and as Python writes them, NaN is a value that is missing, and Infinity may stand where nobody looks.
"""

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Bytes, Int64s
from streamsvm.cells import INDICES, NUMBER, NUMBERS, TEXT, WORD, WORDS, Cells, Want, category_text
from streamsvm.errors import ConfigError
from streamsvm.hashing import MISSING, hash_bytes, murmur3, word_from, word_of
from streamsvm.io.decimals import (
    HARD,
    NOT_A_NUMBER,
    PADDING,
    TOO_LARGE,
    first_digits,
    long_decimal,
    non_digits,
    read_number,
    short_decimal,
)
from streamsvm.io.parsed import LINE, SHOWN, Fault, found, quoted
from streamsvm.jit import cold, inlined, kernel, load8, load32, load64, trailing_zeros

LISTS = (NUMBERS, WORDS, INDICES)
DEPTH = 64  # of objects and arrays in each other

# What a value is, or what is wrong with it, as the kernel tells.
OK, NOTHING, STRING, WHOLE, DECIMAL, TRUE, FALSE, FULL = range(8)
NO_OBJECT, NO_KEY, NO_COLON, NO_COMMA, NO_ITEM_COMMA, NO_END, BAD_VALUE, BAD_ESCAPE, CONTROL, TOO_DEEP = range(8, 18)
NESTED, NO_NUMBER, RANGE, INFINITE, NO_ITEM, NO_INDEX = range(18, 24)  # right in JSON, wrong for what is wanted
FIRST_FAULT = NO_OBJECT

ROW, LINES, ITEMS, ODDS, ENTRY, REACHED = range(6)  # what the kernel counts, in `state`
AT, LENGTH, PARENT, FOUND = range(4)  # of a key seen on an earlier line; the length is with the closing quote
LIKELY = 1024  # such keys at most
NEAR = 8  # where the likely key is not there, so many after it are tried
ODD_CELLS = 4096  # Python is asked at the latest when there are so many, and one row's more

_MESSAGES = {
    NO_OBJECT: "a line is a JSON object, but this one starts with {}",
    NO_KEY: "expected a key in double quotes, found {}",
    NO_COLON: "expected a colon after the key, found {}",
    NO_COMMA: "expected ',' or '}}' after the value, found {}",
    NO_ITEM_COMMA: "expected ',' or ']' after the item, found {}",
    NO_END: "expected nothing after the object, found {}",
    BAD_VALUE: "{} is not a JSON value",
    BAD_ESCAPE: "{} is not an escape that JSON knows",
    TOO_DEEP: f"more than {DEPTH} objects and arrays in each other",
    NO_NUMBER: "{} is not a number",
    RANGE: "{} does not fit in single precision (largest is 3.4e38)",
    INFINITE: "{}: numbers must be finite",
    NO_ITEM: "{}: an item of a list cannot be missing",
    NO_INDEX: "{} is not an index: a whole number from 0 to 2^32 - 1",
}
_KINDS = {NUMBER: "a number", WORD: "a category", TEXT: "a text"}
_KINDS |= {NUMBERS: "numbers", WORDS: "categories", INDICES: "indices"}
_BOM = b"\xef\xbb\xbf"
_TOKEN = re.compile(rb'"[^"\n]{0,%d}|[^][\s,:{}"]{1,%d}|.|\n' % (4 * SHOWN, 4 * SHOWN), re.DOTALL)
_ABSENT = ("NaN", "nan", "NA", "N/A", "n/a", "null", "NULL", "None")
_ABSENT_WORDS = np.array([int.from_bytes(word.encode(), "little") | len(word) << 32 for word in _ABSENT], np.uint64)
_LARGEST = float(np.finfo(np.float32).max)
_OVERFLOW = np.frombuffer(str(2**128 - 2**103 - 2**74).encode(), np.uint8)  # from here on, float32(float) is infinite

_ONES, _TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_QUOTES, _SLASHES, _SPACES = np.uint64(0x22) * _ONES, np.uint64(0x5C) * _ONES, np.uint64(0x20) * _ONES
_NEWLINES = np.uint64(0x0A) * _ONES
_FIRST = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)  # the bits of the first n bytes of a word
_TRUE, _FALSE, _NULL, _NAN = (np.uint64(int.from_bytes(w, "little")) for w in (b"true", b"fals", b"null", b"NaN"))
_INFINITY = np.uint64(int.from_bytes(b"Infinity", "little"))


class Keys(NamedTuple):
    """Paths and where to find them: entry `table[hash & mask]` or the next that is the same, -1 where there is none."""

    names: Bytes
    begins: Int64s
    table: Int64s
    twins: Int64s  # of each want: the next one of the same path, or -1


class Columns(NamedTuple):
    """Where the cells of each want go."""

    kinds: Int64s
    seeds: npt.NDArray[np.uint32]
    of_numbers: npt.NDArray[np.bool_]
    slots: Int64s
    spelled_slots: Int64s
    numbers: npt.NDArray[np.float32]
    words: npt.NDArray[np.uint32]
    starts: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]
    lines: npt.NDArray[np.int32]


class Room(NamedTuple):
    """What the kernel remembers between rows, and what is left to Python."""

    state: Int64s
    seen: Int64s  # of each entry: a stamp of the row that had it last
    likely: Int64s
    path: Bytes
    pool: npt.NDArray[np.uint32]  # the items of lists; numbers by their bits
    odd: Int64s  # place, row, item or -1, start, length


class ParsedCells(NamedTuple):
    lines: int
    faults: list[Fault]


class Fields:
    """Which key path is which want. Entries are the wants and, after them, the objects that hold some of them."""

    def __init__(self, wants: tuple[Want, ...]) -> None:
        self.wants = wants
        wanted = [want.name for want in wants]
        above = {path[:end]: None for path in wanted for end in range(len(path)) if path[end] == "."}
        self.paths = (*wanted, *(path for path in above if path not in set(wanted)))
        encoded = [path.encode("utf-8", "surrogatepass") for path in self.paths]
        self.longest = max(map(len, encoded), default=0)
        names = np.frombuffer(b"".join(encoded) + bytes(PADDING), np.uint8)
        begins = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        table = np.full(2 << len(encoded).bit_length(), -1, np.int64)
        twins = np.full(len(wants), -1, np.int64)
        for entry, name in enumerate(encoded):
            place = hash_bytes(name) & len(table) - 1
            while table[place] >= 0 and encoded[table[place]] != name:
                place = place + 1 & len(table) - 1
            first = int(table[place])
            if first < 0:
                table[place] = entry
            else:
                self._refuse_lists(first, entry)
                twins[first], twins[entry] = entry, twins[first]
        for array in (begins, table, twins):
            array.setflags(write=False)
        self.keys = Keys(names, begins, table, twins)

    def _refuse_lists(self, *places: int) -> None:
        """Several wants may share the value of a field, but not if one of them is a list."""
        if any(self.wants[place].kind in LISTS for place in places):
            raise ConfigError(f"field {self.wants[places[0]].name} is a list: it cannot be something else as well")


def parse(text: Bytes, start: int, stop: int, fields: Fields, cells: Cells, skip: int = 0) -> ParsedCells:
    """All rows of `text[start:stop]`, which ends in a newline and has PADDING more bytes behind it.

    Up to `skip` malformed lines are left out; one more ends the batch. The text is changed.
    """
    faults: list[Fault] = []
    if text[start : min(start + 3, stop)].tobytes() == _BOM:
        start += 3
    cells.reserve(int(count_lines(text[start:stop])))
    columns = Columns(
        cells.kinds, cells.seeds, cells.of_numbers, cells.slots, cells.spelled_slots,
        cells.numbers, cells.words, cells.starts, cells.lengths, cells.lines,
    )  # fmt: skip
    room = _make_room(fields, cells, stop - start)
    spelled = bytearray()  # categories that are not spelled as they were written
    while start < stop:
        status, position = parse_lines(text, start, stop, fields.keys, columns, room)
        if status == OK:
            break
        if status == FULL:
            _settle(text, stop, fields.wants, columns, room, spelled)
            room = _with_room_for(room, _odd_at_most(len(fields.wants), len(found(LINE, text, position))))
            start = position
            continue
        row, lines, _, _, entry, reached = room.state.tolist()
        faults.append(Fault(position, lines, row, _explain(text, fields, status, position, entry)))
        if len(faults) > skip:
            break
        room.state[LINES] += 1
        start = reached + len(found(LINE, text, reached))
    _settle(text, stop, fields.wants, columns, room, spelled)
    _hand_over(text, stop, cells, room, spelled)
    return ParsedCells(int(room.state[LINES]), faults)


def _make_room(fields: Fields, cells: Cells, size: int) -> Room:
    """Room for any `size` bytes of text: an item of a list takes two of them. The pool is the one of the last text."""
    lists = [slot for want, slot in zip(fields.wants, cells.slots, strict=True) if want.kind in LISTS]
    pool = cells.data[lists[0]].view(np.uint32) if lists else np.empty(0, np.uint32)
    if lists and len(pool) <= size // 2:
        pool = np.empty(size // 2 + 1, np.uint32)
    return Room(
        np.zeros(6, np.int64),
        np.zeros(len(fields.paths), np.int64),
        np.empty((LIKELY, 4), np.int64),
        np.empty(fields.longest + PADDING, np.uint8),
        pool,
        np.empty((ODD_CELLS + len(fields.wants), 5), np.int64),
    )


def _odd_at_most(wants: int, size: int) -> int:
    """How many odd cells a line of `size` bytes can have."""
    return wants + size // 2 + 1


def _with_room_for(room: Room, odd: int) -> Room:
    return room if odd <= len(room.odd) else room._replace(odd=np.empty((odd, 5), np.int64))


def _settle(text: Bytes, stop: int, wants: tuple[Want, ...], columns: Columns, room: Room, spelled: bytearray) -> None:
    """Do what the kernel left to Python: numbers that need all their digits, categories that are numbers."""
    known: dict[tuple[bytes, int], tuple[int, bytes]] = {}
    gaps = set()
    for place, row, item, start, length in room.odd[: room.state[ODDS]].tolist():
        want, slot, also = wants[place], columns.slots[place], columns.spelled_slots[place]
        token = text[start : start + length].tobytes()
        if want.kind == NUMBER:
            columns.numbers[slot, row] = float(token)
        elif want.kind == NUMBERS:
            room.pool.view(np.float32)[item] = float(token)
        else:
            word, name = known.get((token, want.seed)) or known.setdefault((token, want.seed), _category(token, want))
            if want.kind == WORD:
                columns.words[slot, row] = word
            else:
                room.pool[item] = word
                if word == MISSING:
                    gaps.add((slot, row))
            if also >= 0:
                columns.starts[also, row], columns.lengths[also, row] = stop + len(spelled), len(name)
                spelled += name
    for slot, row in gaps:  # no item of a list is missing
        span = room.pool[columns.starts[slot, row] :][: columns.lengths[slot, row]]
        kept = span[span != MISSING]
        span[: len(kept)] = kept
        columns.lengths[slot, row] = len(kept)
    room.state[ODDS] = 0


def _category(token: bytes, want: Want) -> tuple[int, bytes]:
    """The word of a category that may be a number, and how it is spelled."""
    try:
        name = category_text(token.decode("utf-8", "surrogatepass")).encode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        name = token
    return word_from(name, want.seed), name


def _hand_over(text: Bytes, stop: int, cells: Cells, room: Room, spelled: bytearray) -> None:
    """Tell the cells where their spans point to."""
    cells.rows = int(room.state[ROW])
    names = np.concatenate((text[:stop], np.frombuffer(spelled, np.uint8))) if spelled else text
    data: dict[int, npt.NDArray[np.generic]] = {TEXT: text, NUMBERS: room.pool.view(np.float32)}
    data |= {WORDS: room.pool, INDICES: room.pool}
    for want, slot, also in zip(cells.wants, cells.slots, cells.spelled_slots, strict=True):
        if want.kind in data:
            cells.data[slot] = data[want.kind]
        elif also >= 0:
            cells.data[also] = names


def _explain(text: Bytes, fields: Fields, status: int, position: int, entry: int) -> str:
    """A sentence about a line, with the field that it is about."""
    token = found(_TOKEN, text, position).removeprefix(b'"' if status >= NESTED else b"")
    shown = quoted(token[: 6 if status == BAD_ESCAPE else None].decode("utf-8", "backslashreplace"))
    byte = int(text[position])
    if byte == 10:
        message = "the line ends before its object does: an object stands on one line"
    elif status == NESTED:
        message = f"expected {_KINDS[fields.wants[entry].kind]}, found an {'object' if byte == 123 else 'array'}"
    elif status == CONTROL:
        message = f"the control character {byte:#04x} must be written as an escape"
    else:
        message = _MESSAGES[status].format(shown)
    return f"field {fields.paths[entry]!r}: {message}" if entry >= 0 else message


@kernel
def count_lines(text):
    """How many newlines there are: no more rows than that."""
    lines = 0
    for byte in text:
        lines += byte == 10
    return lines


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
        stops = (((quote - _ONES) & ~quote) | ((slash - _ONES) & ~slash) | ((word - _SPACES) & ~word)) & _TOPS
        if stops != np.uint64(0):
            return position + (trailing_zeros(stops) >> 3)
        position += 8


@cold
def line_stop(text, position):
    """Where the next newline is."""
    while True:
        word = load64(text, position) ^ _NEWLINES
        stops = (word - _ONES) & ~word & _TOPS
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
    if four & _FIRST[3] == _NAN:
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
def blank(c):
    return c == 32 or 9 <= c <= 13


@cold
def number_of_text(text, start, length):
    """The number that a text spells: status, value (NaN if missing), whether it is hard, start, length."""
    end = start + length
    while start < end and blank(load8(text, start)):
        start += 1
    while start < end and blank(load8(text, end - 1)):
        end -= 1
    length = end - start
    if length <= 4:
        key = (load32(text, start) & _FIRST[length]) | np.uint64(length) << np.uint64(32)
        absent = length == 0
        for word in _ABSENT_WORDS:
            absent = absent or word == key
        if absent:
            return OK, np.float32(np.nan), False, start, 0
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


@cold
def find_entry(text, start, parent, names, begins, table, path):
    """Look a key up: status, where it ends (at its quote) or is wrong, its entry or -1, and whether it has escapes."""
    limit = len(path)
    at = np.int64(0)
    if parent >= 0:
        for i in range(begins[parent], begins[parent + 1]):
            at = put(path, at, limit, load8(names, i))
        at = put(path, at, limit, 46)
    end = string_stop(text, start)
    for i in range(start, end):
        at = put(path, at, limit, load8(text, i))
    escaped = load8(text, end) != 34
    if escaped:
        status, end, at = finish_string(text, end, path, at, limit)
        if status != OK:
            return status, end, -1, True
    if at > limit:
        return OK, end, -1, escaped
    place = np.int64(murmur3(path, 0, at, 0)) & (len(table) - 1)
    while table[place] >= 0:
        entry = table[place]
        begin = begins[entry]
        if begins[entry + 1] - begin == at:
            same = 0
            while same < at and names[begin + same] == path[same]:
                same += 1
            if same == at:
                return OK, end, entry, escaped
        place = (place + 1) & (len(table) - 1)
    return OK, end, -1, escaped


@inlined
def is_likely(text, position, likely, guess, parent):
    """Whether the key at `position` is the one that was seen as number `guess`."""
    if likely[guess, PARENT] != parent:
        return False
    at, length = likely[guess, AT], likely[guess, LENGTH]
    while length > 8:
        if load64(text, at) != load64(text, position):
            return False
        at += 8
        position += 8
        length -= 8
    return (load64(text, at) ^ load64(text, position)) & _FIRST[length] == np.uint64(0)


@cold
def likely_near(text, position, likely, known, guess, parent):
    """Which of the next keys of earlier lines is the one at `position`, -1 if none: some may be left out on a line."""
    for other in range(guess + 1, min(guess + NEAR, known)):
        if is_likely(text, position, likely, other, parent):
            return other
    return -1


@cold
def learn_key(likely, known, guess, at, length, parent, entry):
    """Remember a key as number `guess`; those from there on move up."""
    for i in range(known, guess, -1):
        for j in range(4):
            likely[i, j] = likely[i - 1, j]
    likely[guess, AT], likely[guess, LENGTH], likely[guess, PARENT], likely[guess, FOUND] = at, length, parent, entry


@cold
def forget(entry, wants, names, begins, seen, stamp, odd, odds, state):
    """Take back what a row had at an entry and below, because the key comes again: how many wants that were."""
    begin, length = begins[entry], begins[entry + 1] - begins[entry]
    forgotten = 0
    for other in range(len(seen)):
        first, last = begins[other], begins[other + 1]
        below = seen[other] == stamp and (
            last - first == length or (last - first > length and names[first + length] == 46)
        )
        for i in range(length):
            below = below and names[first + i] == names[begin + i]
        if below:
            seen[other] = 0
            forgotten += other < wants
    kept = odds
    for i in range(odds, state[ODDS]):
        if seen[odd[i, 0]] == stamp:
            for j in range(5):
                odd[kept, j] = odd[i, j]
            kept += 1
    state[ODDS] = kept
    return forgotten


@kernel
def parse_lines(text, begin, stop, keys, columns, room):
    """Rows of text[begin:stop] as cells: status, and the position of the fault or of the row to go on with.

    FULL asks for room for odd cells, before a row.
    """
    names, begins, table, twins = keys
    kinds, seeds, of_numbers, slots, spelled_slots, numbers, words, starts, lengths, lines = columns
    state, seen, likely, path, pool, odd = room
    wants = len(kinds)
    lists = False
    for kind in kinds:
        lists = lists or kind >= NUMBERS
    parents = np.empty(DEPTH + 1, np.int64)
    known = np.int64(0)  # keys seen
    position = begin
    while position < stop:
        position = skip_blanks(text, position)
        if load8(text, position) == 10:
            position += 1
            state[LINES] += 1
            continue
        items, odds = state[ITEMS], state[ODDS]
        size = line_stop(text, position) - position if lists else 0
        if odds + wants + size // 2 + 1 > len(odd):
            return FULL, position
        row = state[ROW]
        stamp = position + 1
        status = OK if load8(text, position) == 123 else NO_OBJECT
        entry = parent = np.int64(-1)
        depth = np.int64(1)
        guess = np.int64(0)
        filled = 0
        opened = True
        if status == OK:
            position = skip_blanks(text, position + 1)
        while status == OK:  # after a value or an opening brace: to the next
            c = load8(text, position)
            entry = np.int64(-1)
            if c == 125:
                position = skip_blanks(text, position + 1)
                depth -= 1
                if depth == 0:
                    break
                parent = parents[depth]
                opened = False
                continue
            if not opened:
                if c != 44:
                    status = NO_COMMA
                    break
                position = skip_blanks(text, position + 1)
            opened = False
            if load8(text, position) != 34:
                status = NO_KEY
                break
            position += 1

            hit = guess < known and is_likely(text, position, likely, guess, parent)
            if not hit:
                near = likely_near(text, position, likely, known, guess, parent)
                hit = near >= 0
                guess = near if hit else guess
            if hit:
                entry = likely[guess, FOUND]
                position += likely[guess, LENGTH]
                guess += 1
            else:
                status, end, entry, escaped = find_entry(text, position, parent, names, begins, table, path)
                if status != OK:
                    position = end
                    break
                if not escaped and known < LIKELY:
                    learn_key(likely, known, guess, position, end + 1 - position, parent, entry)
                    known += 1
                    guess += 1
                position = end + 1
            if load8(text, position) != 58:
                position = skip_blanks(text, position)
                if load8(text, position) != 58:
                    status = NO_COLON
                    break
            position = skip_blanks(text, position + 1)

            if entry >= 0:
                if seen[entry] == stamp:
                    filled -= forget(entry, wants, names, begins, seen, stamp, odd, odds, state)
                seen[entry] = stamp
            if entry < 0 or entry >= wants:
                if entry >= 0 and load8(text, position) == 123:
                    if depth == DEPTH:
                        status = TOO_DEEP
                        break
                    parents[depth] = parent
                    depth += 1
                    parent = entry
                    opened = True
                    position = skip_blanks(text, position + 1)
                    continue
                status, after = skip_value(text, position, depth)
                if status != OK:
                    position = after
                    break
                position = skip_blanks(text, after)
                continue

            kind, slot, twin = kinds[entry], slots[entry], twins[entry]
            if kind >= NUMBERS:
                filled += 1
                first = state[ITEMS]
                status, after = read_list(
                    text, position, entry, row, kind, seeds[entry], of_numbers[entry], pool, odd, state
                )
                if status != OK:
                    position = after
                    break
                starts[slot, row] = first
                lengths[slot, row] = state[ITEMS] - first
                position = skip_blanks(text, after)
                continue
            if kind == NUMBER and twin < 0:
                number, after = usual_number(text, position)
                if after > 0:
                    filled += 1
                    numbers[slot, row] = number
                    position = skip_blanks(text, after)
                    continue
            what, start, length, after = read_token(text, position)
            place = entry
            if what >= FIRST_FAULT:
                status = what
            while place >= 0 and status == OK:
                filled += 1
                seen[place] = stamp
                slot = slots[place]
                if kinds[place] == NUMBER:
                    status, value, hard, at, digits = number_of_token(text, what, start, length)
                    numbers[slot, row] = value
                    if hard:
                        put_odd(odd, state, place, row, -1, at, digits)
                    slot = np.int64(-1)
                elif kinds[place] == WORD:
                    if is_odd(text, what, start, length, of_numbers[place]):
                        put_odd(odd, state, place, row, -1, start, length)
                    else:
                        words[slot, row] = word_of(text, start, length, seeds[place])
                    slot = spelled_slots[place]
                if slot >= 0:
                    starts[slot, row] = start
                    lengths[slot, row] = length
                place = twins[place]
            if status != OK:
                state[REACHED] = after
                position = position if status >= NO_NUMBER else start
                break
            position = skip_blanks(text, after)

        if status == OK and load8(text, position) != 10:
            status = NO_END
        if status != OK:
            state[ITEMS], state[ODDS], state[ENTRY] = items, odds, entry
            state[REACHED] = max(state[REACHED], position)
            return status, position
        if filled < wants:
            for place in range(wants):
                if seen[place] == stamp:
                    continue
                slot = slots[place]
                if kinds[place] == NUMBER:
                    numbers[slot, row] = np.nan
                    continue
                if kinds[place] == WORD:
                    words[slot, row] = MISSING
                    slot = spelled_slots[place]
                if slot >= 0:
                    starts[slot, row] = 0
                    lengths[slot, row] = 0
        lines[row] = state[LINES]
        position += 1
        state[ROW] += 1
        state[LINES] += 1
    return OK, position
