"""JSON lines to cells: one object a line, nested objects flattened to `user.id`.

The kernel walks the bytes once, value by value (json_values.py). Most lines have the keys of the line before, in the
same order, so the bytes of a key are compared with those of the key that was there last time; only a key that is new at
its place is hashed and looked up.

Texts are unescaped where they stand. So a row is read only once, and what needs Python is put on a list of odd cells,
which are settled when there are many, and at the end.

If a key comes again, it replaces all that its path held, also what was below it: {"a": {"b": 1}, "a": {}} has no a.b.
What is replaced must have been right all the same.
"""

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Bytes, Int64s
from streamsvm.cells import INDICES, NUMBER, NUMBERS, TEXT, WORD, WORDS, Cells, Want, category_text
from streamsvm.errors import ConfigError
from streamsvm.hashing import MISSING, hash_bytes, murmur3, word_from, word_of
from streamsvm.io.decimals import PADDING
from streamsvm.io.json_values import (
    BAD_ESCAPE,
    BAD_VALUE,
    CONTROL,
    DEPTH,
    ENTRY,
    FIRST_BYTES,
    FIRST_FAULT,
    FULL,
    INFINITE,
    ITEMS,
    LINES,
    NESTED,
    NO_COLON,
    NO_COMMA,
    NO_END,
    NO_INDEX,
    NO_ITEM,
    NO_ITEM_COMMA,
    NO_KEY,
    NO_NUMBER,
    NO_OBJECT,
    ODDS,
    OK,
    ONES,
    RANGE,
    REACHED,
    ROW,
    TOO_DEEP,
    TOPS,
    finish_string,
    is_odd,
    number_of_token,
    put,
    put_odd,
    read_list,
    read_token,
    skip_blanks,
    skip_value,
    string_stop,
    usual_number,
)
from streamsvm.io.parsed import LINE, SHOWN, Fault, ParsedCells, found, quoted
from streamsvm.jit import cold, inlined, kernel, load8, load64, trailing_zeros

LISTS = (NUMBERS, WORDS, INDICES)
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
_NEWLINES = np.uint64(0x0A) * ONES


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


@cold
def line_stop(text, position):
    """Where the next newline is."""
    while True:
        word = load64(text, position) ^ _NEWLINES
        stops = (word - ONES) & ~word & TOPS
        if stops != np.uint64(0):
            return position + (trailing_zeros(stops) >> 3)
        position += 8


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
    return (load64(text, at) ^ load64(text, position)) & FIRST_BYTES[length] == np.uint64(0)


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
