"""Rows of a click table as text: the same pieces for every format, only their words differ.

tsv     0<tab>5<tab><tab>...<tab>68fd1e64<newline>              nothing between two tabs: missing
vw      -1 |i I1:1.7918 ... |c C1=68fd1e64 ...                  log1p of the counts; what is missing is left out
jsonl   {"label":0,"I1":5,...,"C1":"68fd1e64",...}              what is missing is left out
"""

import math
from typing import NamedTuple

import numpy as np

from click_rows import CATEGORIES, NUMBERS, Rows
from generate import kernel, put_number

MOST_BYTES = 800  # in a row
DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


class Words(NamedTuple):
    """What stands around the values."""

    labels: tuple[str, str]  # 0 and 1, with what opens a row
    number: str  # before a count; {} is the name of the column
    between: str  # between counts and categories
    category: str  # before a category
    after: str  # behind a category
    end: str
    logarithms: bool = False
    gaps: bool = False  # whether a missing value leaves its words behind


FORMATS = {
    "tsv": Words(("0", "1"), "\t", "", "\t", "", "\n", gaps=True),
    "vw": Words(("-1 |i", "1 |i"), " {}:", " |c", " {}=", "", "\n", logarithms=True),
    "jsonl": Words(('{"label":0', '{"label":1'), ',"{}":', "", ',"{}":"', '"', "}\n"),
}


def text_of(rows: Rows, words: Words) -> np.ndarray:
    """The bytes of a block."""
    numbers = [words.number.format(name) for name in NUMBERS]
    categories = [words.category.format(name) + "\0" * 8 + words.after for name in CATEGORIES]
    pieces = [piece.encode() for piece in (*words.labels, *numbers, words.between, *categories, words.end)]
    ends = np.cumsum([0, *map(len, pieces)])
    letters = np.frombuffer(b"".join(pieces), np.uint8)
    text = np.empty(len(rows.labels) * MOST_BYTES, np.uint8)
    hole = len(words.after) + 8  # from the end of a category's piece back to where its digits go
    flags = (words.logarithms, words.gaps)
    size = write_text(rows.counts, rows.values, rows.labels, letters, ends, hole, *flags, text)
    return text[:size]


def hex_text(values: np.ndarray) -> np.ndarray:
    """Eight letters for each value, one after the other."""
    text = np.empty(8 * values.size, np.uint8)
    write_hex(values, text)
    return text


# ---- kernels ----


@kernel
def put_hex(text, at, value):
    for place in range(8):
        text[at + place] = DIGITS[(value >> np.uint32(28 - 4 * place)) & np.uint32(15)]


@kernel
def put_logarithm(text, at, count):
    """log1p with four decimals."""
    number = int(math.log1p(count) * 1e4 + 0.5)
    at = put_number(text, at, number // 10000)
    text[at] = 46
    for place in range(at + 4, at, -1):
        text[place] = 48 + number % 10
        number //= 10
    return at + 5


@kernel
def put_piece(text, at, letters, ends, piece):
    for place in range(ends[piece], ends[piece + 1]):
        text[at] = letters[place]
        at += 1
    return at


@kernel
def write_text(counts, values, labels, letters, ends, hole, logarithms, gaps, text):
    """All rows; returns the number of bytes."""
    at = 0
    many = len(counts)
    for i in range(labels.size):
        at = put_piece(text, at, letters, ends, labels[i])
        for j in range(many):
            count = counts[j, i]
            if count >= 0 or gaps:
                at = put_piece(text, at, letters, ends, 2 + j)
            if count >= 0:
                at = put_logarithm(text, at, count) if logarithms else put_number(text, at, count)
        at = put_piece(text, at, letters, ends, 2 + many)
        for k in range(len(values)):
            value = values[k, i]
            if value:
                at = put_piece(text, at, letters, ends, 3 + many + k)
                put_hex(text, at - hole, value)
            elif gaps:
                at = put_piece(text, at, letters, ends, 3 + many + k) - 8
        at = put_piece(text, at, letters, ends, 3 + many + len(values))
    return at


@kernel
def write_hex(values, text):
    for i in range(values.size):
        put_hex(text, 8 * i, values[i])
