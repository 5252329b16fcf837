"""Cells: the values of a table's rows, as every table format hands them to the feature recipe.

A recipe wants some columns, each as one kind of cell; a parser fills one array a column and knows nothing of features:

    NUMBER   numbers[slot, row]    float32, NaN where missing
    WORD     words[slot, row]      the hash of a category (hashing.py), MISSING where there is none
    TEXT     a span of bytes       data[slot][starts[slot, row]:][:lengths[slot, row]]
    NUMBERS  a span of float32     the items of a list
    WORDS    a span of hashes      the items of a list
    INDICES  a span of uint32      the items of a list of whole numbers from 0 to 2^32 - 1

The rules that make formats agree: a null, an empty text and NaN are missing; an infinite number is a fault. A category
is always a text. Where it is written as a number its text is `number_text` of that number, so 7, 7.0 and 07 are the
same; true and false are those words. A column that held numbers when the recipe was made (`Want.number`) has its texts
read as numbers too.

In a column of numbers some texts say that there is none: an empty one, and MISSING_WORDS, whatever blanks are around
them. Elsewhere they are texts like others, so that NA is a country and None a name.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Bytes, Float32s
from streamsvm.jit import cold, inlined, load8, load32

SKIP, NUMBER, WORD, TEXT, NUMBERS, WORDS, INDICES = range(7)
Int32s = npt.NDArray[np.int32]
Uint32s = npt.NDArray[np.uint32]
LARGEST_WHOLE = 2.0**53
MISSING_WORDS = ("NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "#N/A", "-", "?")  # of up to 4 letters
_MISSING_WORDS = np.array([int.from_bytes(w.encode(), "little") | len(w) << 32 for w in MISSING_WORDS], np.uint64)
SPANS = (TEXT, NUMBERS, WORDS, INDICES)
_ITEMS: dict[int, type[np.generic]] = {TEXT: np.uint8, NUMBERS: np.float32, WORDS: np.uint32, INDICES: np.uint32}


class Want(NamedTuple):
    """A column that the recipe needs, and as what."""

    name: str  # of a nested field: user.id
    kind: int
    seed: int = 0  # of the hash of a WORD or of WORDS
    number: bool = False  # whether the words are numbers
    date: bool = False  # whether the texts are dates, those of Arrow as they are in their own time zone


class Cells:
    """Room for the cells of a piece of a table, used again for the next one.

    Slots are counted in the order of the wants, for each array by itself. With `spelled`, WORD columns have spans too,
    after all others, so that names can be told: `spelled_slot` of the want, and bytes in `data`.
    """

    def __init__(self, wants: tuple[Want, ...], *, spelled: bool = False) -> None:
        self.wants = wants
        self.rows = self.capacity = 0
        self.kinds = np.array([want.kind for want in wants], np.int64)
        self.seeds = np.array([want.seed for want in wants], np.uint32)
        self.of_numbers = np.array([want.number for want in wants], np.bool_)
        self.slots = np.zeros(len(wants), np.int64)
        self.spelled_slots = np.full(len(wants), -1, np.int64)
        counts = {NUMBER: 0, WORD: 0, "span": 0}
        for place, want in enumerate(wants):
            array = "span" if want.kind in SPANS else want.kind
            self.slots[place] = counts[array]
            counts[array] += 1
        for place, want in enumerate(wants):
            if spelled and want.kind == WORD:
                self.spelled_slots[place] = counts["span"]
                counts["span"] += 1
        self._counts = counts[NUMBER], counts[WORD], counts["span"]
        self.data: list[npt.NDArray[Any]] = [np.empty(0, _ITEMS[w.kind]) for w in wants if w.kind in SPANS]
        self.data += [np.empty(0, np.uint8)] * (counts["span"] - len(self.data))
        self.reserve(0)

    def reserve(self, rows: int) -> None:
        """Make room for so many rows; what was there is lost.

        Columns are an odd number of cache lines apart, so that the cells of a row do not compete for the same ones.
        """
        numbers, words, spans = self._counts
        if rows > self.capacity or not self.capacity:
            rows += (48 - rows) % 1024
            self.capacity = rows
            self.lines: Int32s = np.zeros(rows, np.int32)
            self.numbers: Float32s = np.empty((numbers, rows), np.float32)
            self.words: Uint32s = np.empty((words, rows), np.uint32)
            self.starts: Int32s = np.empty((spans, rows), np.int32)
            self.lengths: Int32s = np.empty((spans, rows), np.int32)

    def line(self, row: int) -> int:
        """The line of the piece, counted from 0, on which a row begins."""
        return int(self.lines[row])

    def number(self, place: int) -> Float32s:
        """The numbers of the want at `place`."""
        return self.numbers[self.slots[place], : self.rows]

    def word(self, place: int) -> Uint32s:
        return self.words[self.slots[place], : self.rows]

    def spans(self, place: int) -> tuple[Int32s, Int32s, npt.NDArray[Any]]:
        """Starts, lengths and data of the want at `place`."""
        slot = self.slots[place]
        return self.starts[slot, : self.rows], self.lengths[slot, : self.rows], self.data[slot]

    def spelled(self, place: int, row: int) -> bytes:
        """How the WORD of a row was written, where that is kept."""
        slot = self.spelled_slots[place]
        start, length = int(self.starts[slot, row]), int(self.lengths[slot, row])
        text: Bytes = self.data[slot]
        return text[start : start + length].tobytes()


def number_text(number: float) -> str:
    """The text of a number that is a category: whole ones without a point, others with as few digits as tell them.

    >>> number_text(7.0), number_text(-0.0), number_text(0.1), number_text(float("nan"))
    ('7', '0', '0.1', '')
    """
    if math.isnan(number):
        return ""
    if isinstance(number, int) or (abs(number) <= LARGEST_WHOLE and float(number).is_integer()):
        return str(int(number))
    return repr(float(number))


def category_text(text: str) -> str:
    """The text of a category in a column of numbers: that of the number it spells, or as it is if it spells none.

    >>> category_text("007"), category_text("7.0"), category_text("12345678901234567890"), category_text("n/a")
    ('7', '7', '12345678901234567890', 'n/a')
    """
    stripped = text.strip()
    digits = stripped[1:] if stripped[:1] in ("-", "+") else stripped
    if digits.isascii() and digits.isdigit():
        return ("-" if stripped[0] == "-" else "") + digits.lstrip("0") if digits.strip("0") else "0"
    try:
        return number_text(float(stripped)) if "_" not in stripped else text
    except ValueError:
        return text


@inlined
def is_blank(c):
    """Whether a byte is one of those that may stand around a number: space, tab, line ends."""
    return c == 32 or 9 <= c <= 13


@cold
def is_missing(text, start, length):
    """Whether a text in a column of numbers says that there is none; three bytes after it must be there to be read."""
    while length > 0 and is_blank(load8(text, start)):
        start += 1
        length -= 1
    while length > 0 and is_blank(load8(text, start + length - 1)):
        length -= 1
    if length == 0:
        return True
    if length > 4:
        return False
    letters = load32(text, start) & ((np.uint64(1) << np.uint64(8 * length)) - np.uint64(1))
    word = letters | np.uint64(length) << np.uint64(32)
    found = False
    for missing in _MISSING_WORDS:
        found |= word == missing
    return found
