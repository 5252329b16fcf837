"""What parsers of text hand over, whatever the format: rows, how many lines they took, and what is wrong with some."""

import re
from typing import NamedTuple

from streamsvm.batch import Batch, Bytes

SHOWN = 60  # characters of an offending token in a message
NUMERAL = re.compile(rb"[+-]?[0-9]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?")  # what `decimals.read_number` reads
LINE = re.compile(rb"[^\n]*\n")


class Fault(NamedTuple):
    """A malformed row: where in its block it stands, and what is wrong with it."""

    position: int  # of the offending byte
    line: int
    row: int  # good rows before it
    message: str


class Parsed(NamedTuple):
    batch: Batch
    lines: int
    faults: list[Fault]
    kept: list[list[str]] | None = None  # columns of a table that were asked for, row by row


class ParsedCells(NamedTuple):
    """What a parser of tables says; the rows are in the cells that it was given."""

    lines: int
    faults: list[Fault]


def found(pattern: re.Pattern[bytes], text: Bytes, position: int) -> bytes:
    """What `pattern` matches at `position`."""
    match = pattern.match(text.data, position)
    assert match is not None
    return match.group()


def quoted(token: str) -> str:
    """A token of the data as a message shows it."""
    return repr(token if len(token) <= SHOWN else token[: SHOWN - 3] + "...")
