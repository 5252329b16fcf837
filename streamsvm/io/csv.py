"""CSV and TSV text to cells. The kernel walks the bytes once, and hashes or reads each field while it is at hand.

A field may stand in quotes, with "" for a quote inside, and with newlines; other quotes are part of the text. Rows must
have as many fields as there are columns. Blank lines are skipped. Blocks are cut at ends of rows: where a block has no
quote at all, that is the last newline; else the quotes are followed from the block's beginning (`last_row_end`).

Numbers may be missing, as cells.py says. Texts are never missing but where they are empty.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from streamsvm.batch import Bytes, Int64s
from streamsvm.cells import NUMBER, SKIP, TEXT, WORD, Cells, category_text, is_blank, is_missing
from streamsvm.hashing import word_from, word_of
from streamsvm.io.decimals import (
    HARD,
    NOT_A_NUMBER,
    TOO_LARGE,
    first_digits,
    load8,
    load64,
    non_digits,
    read_number,
    short_decimal,
    trailing_zeros,
)
from streamsvm.io.decimals import NUMBER as PLAIN
from streamsvm.io.parsed import LINE, NUMERAL, Fault, ParsedCells, found, quoted
from streamsvm.io.source import last_newline
from streamsvm.jit import cold, inlined, kernel

OK, FULL, BAD_NUMBER, NUMBER_RANGE, TOO_FEW, TOO_MANY, OPEN_QUOTE, AFTER_QUOTE = range(8)
NO_QUOTE = -1
POINT, COMMA = 46, 44
BOM = b"\xef\xbb\xbf"
ODD = 4096  # fields at a time that Python must decide
_FIELD = re.compile(rb"[^\n]{0,240}")
_COMMA_NUMBER = re.compile(r"[+-]?([0-9]+,[0-9]*|,[0-9]+)([eE][+-]?[0-9]+)?")
_TRUE, _FALSE = np.uint64(int.from_bytes(b"true", "little")), np.uint64(int.from_bytes(b"false", "little"))
_LOWER = np.uint64(0x2020202020202020)
_ONES, _TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)


class Layout(NamedTuple):
    """Which field of a row is which want; -1 for those that nobody wants."""

    names: tuple[str, ...]
    places: Int64s
    kept: Int64s  # wants that get the text of a field beside that, or -1
    delimiter: int = 44
    quote: int = 34  # NO_QUOTE: quotes are text
    decimal: int = POINT


def parse(text: Bytes, start: int, stop: int, layout: Layout, cells: Cells, skip: int = 0) -> ParsedCells:
    """The rows of `text[start:stop]`, which ends in a newline and has PADDING more bytes behind it.

    Up to `skip` malformed rows are left out; one more ends them. Quoted texts are unescaped in place. A row that is
    left out ends where `row_ends` says, whatever is wrong with it: that is what blocks are cut by.
    """
    cells.reserve(int(np.count_nonzero(text[start:stop] == 10)))
    cells.data = [text for _ in cells.data]
    odd = np.empty((ODD + len(layout.places), 4), np.int64)
    fault = np.zeros(4, np.int64)  # field, position, length, newlines in quotes before it
    faults: list[Fault] = []
    row = line = 0
    while start < stop:
        status, start, row, line, oddities = parse_fields(
            text, start, stop, layout.delimiter, layout.quote, layout.decimal, layout.places, layout.kept, cells.kinds,
            cells.slots, cells.seeds, cells.of_numbers, cells.spelled_slots, cells.numbers, cells.words, cells.starts,
            cells.lengths, cells.lines, row, line, odd, fault,
        )  # fmt: skip
        _decide(text, odd[:oddities], cells, layout.decimal)
        if status in (FULL, OK):
            continue
        faults.append(Fault(int(fault[1]), line, row, _explain(text, status, fault, layout)))
        if len(faults) > skip:
            break
        end = _row_end(text, start, stop, layout)
        line += int(fault[3] + np.count_nonzero(text[start:end] == 10))
        start = end
    cells.rows = row
    return ParsedCells(line, faults)


def _row_end(text: Bytes, start: int, stop: int, layout: Layout) -> int:
    """Where the row ends whose rest is at `start`, inside a field: with the line, if a quote in it is never closed."""
    size = int(row_ends(text[start:stop], stop - start, layout.delimiter, layout.quote, 1, False)[0])
    return start + (size or len(found(LINE, text, start)))


def first_row(text: bytes, delimiter: int, quote: int) -> tuple[list[str], int, int]:
    """The fields of the first row, and how many bytes and lines it takes with what is before it."""
    for fields, end in rows_of_text(text, delimiter, quote):
        return fields, min(end, len(text)), text.count(b"\n", 0, end)
    return [], 0, 0


def rows_of_text(text: bytes, delimiter: int, quote: int) -> Iterator[tuple[list[str], int]]:
    """The fields of each row, and where it ends; up to a quote that is never closed. Blank lines are no rows."""
    text = text if text.endswith(b"\n") else text + b"\n"
    array = np.frombuffer(text, np.uint8)
    start = len(BOM) if text.startswith(BOM) else 0
    while start < len(text):
        size = int(row_ends(array[start:], len(text) - start, delimiter, quote, 1, True)[0])
        if not size:
            return
        row = text[start : start + size - 1].removesuffix(b"\r").decode("utf-8", "replace")
        start += size
        if row:
            yield split_row(row, chr(delimiter), quote), start


def split_row(row: str, delimiter: str, quote: int) -> list[str]:
    """The fields of a row, without their quotes."""
    mark = chr(quote) if quote >= 0 else ""
    if not mark or mark not in row:
        return row.split(delimiter)
    fields: list[str] = []
    at = 0
    while at <= len(row):
        inside, at = _unquoted(row, at + 1, mark) if row.startswith(mark, at) else ("", at)
        end = row.find(delimiter, at)
        end = len(row) if end < 0 else end
        fields.append(inside + row[at:end])
        at = end + 1
    return fields


def _unquoted(row: str, start: int, mark: str) -> tuple[str, int]:
    """The text in quotes, and the place after them."""
    end = row.find(mark, start)
    while end >= 0 and row.startswith(mark, end + 1):
        end = row.find(mark, end + 2)
    end = len(row) if end < 0 else end
    return row[start:end].replace(mark * 2, mark), min(end + 1, len(row))


def _decide(text: Bytes, odd: Int64s, cells: Cells, decimal: int) -> None:
    """What the kernel left open: numbers with very many digits, and categories that are numbers in unusual spelling."""
    for place, row, start, length in odd.tolist():
        slot = cells.slots[place]
        if cells.kinds[place] == NUMBER:
            with np.errstate(over="ignore"):  # an infinity is refused later
                numeral = found(NUMERAL, text, start)
                cells.numbers[slot, row] = np.float32(float(numeral))
            if decimal != POINT and b"." in numeral:  # as any_number has left it
                text[start + numeral.index(b".")] = decimal
        else:
            spelled = text[start : start + length].tobytes().decode("utf-8", "surrogateescape")
            spelled = category_text(plain_number(spelled) if decimal == COMMA else spelled)
            word = word_from(spelled.encode("utf-8", "surrogateescape"), int(cells.seeds[place]))
            cells.words[slot, row] = word


def plain_number(text: str) -> str:
    """A number with a decimal comma as others write it; all else as it is.

    >>> plain_number("5,5"), plain_number(" -1,25e3"), plain_number("1,2,3"), plain_number("1.5"), plain_number("a,b")
    ('5.5', ' -1.25e3', '1,2,3', '1.5', 'a,b')
    """
    return text.replace(",", ".") if _COMMA_NUMBER.fullmatch(text.strip()) else text


def _explain(text: Bytes, status: int, fault: Int64s, layout: Layout) -> str:
    """A sentence about the row."""
    count = len(layout.names)
    field, position, length = fault[:3].tolist()
    if status == TOO_FEW:
        return f"the row has only {field} of {count} fields"
    if status == TOO_MANY:
        return f"the row has more than {count} fields"
    name = layout.names[field]
    token = text[position : position + min(length, 240)].tobytes() if length else found(_FIELD, text, position)
    shown = quoted(token.decode("utf-8", "backslashreplace").rstrip("\r"))
    return {
        BAD_NUMBER: f"column {name}: {shown} is not a number",
        NUMBER_RANGE: f"column {name}: {shown} does not fit in single precision (largest is 3.4e38)",
        OPEN_QUOTE: f"column {name}: a quote is opened and never closed: {shown}",
        AFTER_QUOTE: f"column {name}: text after a closing quote: {shown}",
    }[status]


@inlined
def zero_bytes(word):
    """The top bit of each byte of `word` that is 0; right up to the lowest one, which is all that is used."""
    return (word - _ONES) & ~word & _TOPS


@inlined
def field_end(text, position, delimiters, newlines):
    """Where the field that goes through `position` ends: at a delimiter or a newline."""
    while True:
        word = load64(text, position)
        hits = zero_bytes(word ^ delimiters) | zero_bytes(word ^ newlines)
        if hits != np.uint64(0):
            return position + (trailing_zeros(hits) >> 3)
        position += 8


@cold
def unquote(text, position, stop, quote):
    """The text in quotes that opens at `position`, unescaped in place: start, length, position after it, newlines.

    The position is -1 if the quote is never closed.
    """
    start = position + 1
    at = start
    newlines = doubled = 0
    while at < stop:
        c = load8(text, at)
        if c == quote:
            if load8(text, at + 1) != quote:
                break
            doubled += 1
            at += 1
        newlines += c == 10
        at += 1
    if at >= stop:
        return start, 0, -1, newlines
    if doubled > 0:  # only now: a text that goes on for ever must stay as it is
        k = to = start
        while k < at:
            c = text[k]
            text[to] = c
            to += 1
            k += 2 if c == quote else 1
    return start, at - start - doubled, at + 1, newlines


@cold
def any_number(text, start, length, decimal):
    """A number between spaces, or true or false: status, value, and where it stands.

    Another sign than the point becomes one while it is read, and stays one in a number that is left to Python.
    """
    end = start + length
    while start < end and is_blank(load8(text, start)):
        start += 1
    while start < end and is_blank(load8(text, end - 1)):
        end -= 1
    comma = -1
    if decimal != POINT:
        for k in range(start, end):
            if load8(text, k) == POINT:
                return NOT_A_NUMBER, np.float32(0.0), start
            if comma < 0 and load8(text, k) == decimal:
                comma = k
        if comma >= 0:
            text[comma] = POINT
    status, value, after = read_number(text, start)
    if comma >= 0 and (status != HARD or after != end):
        text[comma] = decimal
    if after == end and status != NOT_A_NUMBER:
        return status, value, start
    letters = load64(text, start) | _LOWER
    if end - start == 4 and letters & np.uint64(0xFFFFFFFF) == _TRUE:
        return PLAIN, np.float32(1.0), start
    if end - start == 5 and letters & np.uint64(0xFFFFFFFFFF) == _FALSE:
        return PLAIN, np.float32(0.0), start
    return NOT_A_NUMBER, value, start


@inlined
def plain_whole(text, start, length):
    """Whether a text is a whole number as it is written by default: 0, 17, -3."""
    negative = length > 1 and load8(text, start) == 45
    first = load8(text, start + negative)
    if length - negative > 18 or (first == 48 and length > 1):
        return False
    for k in range(start + negative, start + length):
        digit = load8(text, k) - 48
        if digit < 0 or digit > 9:
            return False
    return True


@kernel
def parse_fields(
    text, start, stop, delimiter, quote, decimal, places, kept, kinds, slots, seeds, of_numbers, spelled_slots,
    numbers, words, starts, lengths, lines, row, line, odd, fault,
):  # fmt: skip
    """Rows of text[start:stop] as cells from `row` on, `line` lines after the beginning.

    Returns status, position (of the next row, or where the rest of a bad one is), rows, the line of that position or
    bad row, and how many fields of `odd` wait for Python to decide them: (place, row, start, length) each.
    """
    position = start
    oddities = 0
    fields = len(places)
    delimiters = np.uint64(delimiter) * _ONES
    newlines = np.uint64(10) * _ONES
    point = decimal if decimal != delimiter else 0
    while position < stop:
        c = load8(text, position)
        if c == 10 or (c == 13 and load8(text, position + 1) == 10):
            position += 1 if c == 10 else 2
            line += 1
            continue
        if oddities + fields > len(odd):
            return FULL, position, row, line, oddities
        lines[row] = line
        more_lines = 0
        for j in range(fields):
            place = places[j]
            kind = kinds[place] if place >= 0 else SKIP
            begun = position
            c = load8(text, position)
            known = False
            length = 0
            value = np.float32(np.nan)
            if kind == NUMBER:
                # The usual number: up to seven digits, a point and up to seven more.
                negative = c == 45
                after = position + 1 if negative else position
                word = load64(text, after)
                stops = non_digits(word)
                count = trailing_zeros(stops) >> 3
                if stops != np.uint64(0) and count > 0:
                    whole = first_digits(word, count)
                    number = np.float64(np.int64(whole))
                    after += count
                    if load8(text, after) == point:
                        word = load64(text, after + 1)
                        stops = non_digits(word)
                        count = trailing_zeros(stops) >> 3
                        if stops != np.uint64(0) and count > 0:
                            number = short_decimal(whole, first_digits(word, count), count)
                            after += 1 + count
                    c = load8(text, after)
                    known = c == delimiter or c == 10
                    if known:
                        value = np.float32(-number if negative else number)
                        position = after
                elif c == delimiter or c == 10:
                    known = True
            if not known:
                if c == quote and load8(text, begun) == quote:
                    begun, length, position, more = unquote(text, begun, stop, quote)
                    if position < 0:
                        fault[0], fault[1], fault[2], fault[3] = j, begun - 1, 0, more_lines
                        return OPEN_QUOTE, begun - 1, row, line, oddities
                    more_lines += more
                    if load8(text, position) == 13 and load8(text, position + 1) == 10:
                        position += 1
                    c = load8(text, position)
                    if c != delimiter and c != 10:
                        fault[0], fault[1], fault[2], fault[3] = j, position, 0, more_lines
                        return AFTER_QUOTE, position, row, line, oddities
                else:
                    position = field_end(text, begun, delimiters, newlines)
                    c = load8(text, position)
                    length = position - begun
                    if c == 10 and length > 0 and load8(text, position - 1) == 13:
                        length -= 1
                if kind == NUMBER:
                    if not is_missing(text, begun, length):
                        status, value, at = any_number(text, begun, length, decimal)
                        if status in (NOT_A_NUMBER, TOO_LARGE) or np.isinf(value):
                            fault[0], fault[1], fault[2], fault[3] = j, begun, length, more_lines
                            wrong = BAD_NUMBER if status == NOT_A_NUMBER else NUMBER_RANGE
                            return wrong, position, row, line, oddities
                        if status == HARD:
                            odd[oddities, 0], odd[oddities, 1], odd[oddities, 2], odd[oddities, 3] = place, row, at, 0
                            oddities += 1
                elif kind == WORD:
                    slot = slots[place]
                    words[slot, row] = word_of(text, begun, length, seeds[place])
                    if of_numbers[place] and length > 0 and not plain_whole(text, begun, length):
                        odd[oddities, 0], odd[oddities, 1] = place, row
                        odd[oddities, 2], odd[oddities, 3] = begun, length
                        oddities += 1
                    slot = spelled_slots[place]
                    if slot >= 0:
                        starts[slot, row] = begun
                        lengths[slot, row] = length
                elif kind == TEXT:
                    starts[slots[place], row] = begun
                    lengths[slots[place], row] = length
            if kind == NUMBER:
                numbers[slots[place], row] = value
            if kept[j] >= 0:
                slot = slots[kept[j]]
                starts[slot, row] = begun
                lengths[slot, row] = position - begun if known else length
            if c == 10:
                if j + 1 < fields:
                    fault[0], fault[1], fault[2], fault[3] = j + 1, begun, 0, more_lines
                    return TOO_FEW, position, row, line, oddities
                break
            position += 1
        if c != 10:
            fault[0], fault[1], fault[2], fault[3] = fields, position, 0, more_lines
            return TOO_MANY, position - (fields > 0), row, line, oddities
        position += 1
        line += 1 + more_lines
        row += 1
    return OK, position, row, line, oddities


@kernel
def row_ends(text, stop, delimiter, quote, count, fresh):
    """The position after the `count`-th newline of text[:stop] that ends a row, or after the last; 0 if there is none.

    Also returns how many there are up to there. `fresh` says whether the text begins with a field, or inside one.
    """
    end = 0
    ends = 0
    position = 0
    while position < stop and ends != count:
        c = text[position]
        if fresh and c == quote:
            position += 1
            while position < stop:
                if text[position] == quote:
                    if position + 1 < stop and text[position + 1] == quote:
                        position += 1
                    else:
                        break
                position += 1
            fresh = False
        elif c == 10:
            end = position + 1
            ends += 1
            fresh = True
        else:
            fresh = c == delimiter
        position += 1
    return end, ends


def last_row_end(text: Bytes, stop: int, delimiter: int, quote: int) -> int:
    """Where the last whole row of text[:stop] ends; 0 if none does."""
    begun = len(BOM) if text[: len(BOM)].tobytes() == BOM else 0
    end = int(row_ends(text[begun:], stop - begun, delimiter, quote, -1, True)[0])
    return begun + end if end else 0


def cut_rows(buffer: bytearray, filled: int, delimiter: int, quote: int) -> int:
    """Where the last whole row of the first `filled` bytes ends; 0 if none does. Quotes are followed if any are."""
    if quote < 0 or buffer.find(quote, 0, filled) < 0:
        return last_newline(buffer, filled)
    return last_row_end(np.frombuffer(buffer, np.uint8), filled, delimiter, quote)
