"""Parts of a source: some of its files, or of large ones the lines, or rows, between two places.

    source --plan--> spans of about the same size, each cut where a line or a row group begins --> SpanSource

Several machines read a source in this way, each its own spans, and together every row once. Where a file cannot be
begun in the middle (compressed text, CSV in which quotes may hide newlines), it is read as a whole by one of them.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from streamsvm.io.compression import HEAD, Limits, promised, sniff
from streamsvm.io.parts import LOOKUPS, Part, looked_up, open_part
from streamsvm.io.source import Position, Source, _Input
from streamsvm.io.urls import is_local

PIECE = 1 << 18  # bytes read at a time to find a newline, or to count them

AT_A_TIME = 16  # places that are looked for in a part while it is open

# Where a part may be cut, near some bytes of it: bytes of text, or rows; 0: at its start.
Cut = Callable[[Part, Sequence[int]], list[int]]


class Span(NamedTuple):
    """What is read of a part: from a byte of its text, or a row, up to another; None: to the end."""

    part: Part
    start: int = 0
    stop: int | None = None
    size: int = 0  # stored bytes, about


class SpanSource(Source):
    """The lines, or rows, of some spans, as a source."""

    def __init__(
        self,
        spans: tuple[Span, ...],
        *,
        records: bool = False,
        limits: Limits = Limits(),
        max_line: int = 16_000_000,
    ) -> None:
        super().__init__([], limits=limits, max_line=max_line)
        self.parts = [span.part for span in spans]
        self._spans = spans
        self._records = records  # whether places are rows, and not bytes
        self._lines: dict[int, int] = {}
        self.beginning = self.first_position(0)

    @property
    def size(self) -> int:
        return sum(span.size for span in self._spans)

    def fingerprint(self) -> list[list[Any]] | None:
        whole = super().fingerprint()
        if whole is None:
            return None
        return [[*of_part, span.start, span.stop] for of_part, span in zip(whole, self._spans, strict=True)]

    def first_position(self, number: int) -> Position:
        return Position(number, self._spans[number].start if number < len(self._spans) else 0)

    def end_of(self, number: int) -> int | None:
        return self._spans[number].stop

    def _opened(self, number: int, begin: Position, stopped: Callable[[], bool], raw: Any = None) -> _Input:
        stop = self.end_of(number) if begin.offset >= self._spans[number].start else None
        return _Input(self.parts[number], begin, self.limits, stopped, raw, stop)

    def lines_before(self, number: int) -> int:
        """Counted by reading that far, which is done only where a message is to name a line."""
        start = self._spans[number].start
        if self._records or not start:
            return start
        if number not in self._lines:
            with closing(open_part(self.parts[number])) as raw:
                self._lines[number] = _newlines(raw, start)
        return self._lines[number]


def _newlines(raw: Any, size: int) -> int:
    found = 0
    while size and (piece := raw.read(min(size, PIECE))):
        found += piece.count(b"\n")
        size -= len(piece)
    return found


def plan_spans(parts: list[Part], count: int, cut: Cut) -> list[tuple[Span, ...]]:
    """All parts in at most `count` pieces of about the same size, in their order; none is empty."""
    total = sum(part.size or 0 for part in parts)
    edges: list[tuple[int, int, int]] = []  # part, place in it, and stored bytes of all parts before it
    for wanted, place in _cut_all(parts, _even(parts, count, total), cut):
        number, inside, before = wanted
        size = parts[number].size or 0
        if place:
            edges.append((number, place, before + inside))
        elif 2 * inside < size:
            edges.append((number, 0, before))
        else:
            edges.append((number + 1, 0, before + size))
    places = sorted({(0, 0, 0), *edges, (len(parts), 0, total)})
    pieces = [_between(parts, a, b) for a, b in zip(places, places[1:], strict=False)]
    return [spans for spans in pieces if spans]


class _Wanted(NamedTuple):
    """A place at which pieces of the same size would meet."""

    part: int
    inside: int  # stored bytes of the part before it
    before: int  # stored bytes of all parts before that one


def _even(parts: list[Part], count: int, total: int) -> list[_Wanted]:
    found = []
    before = number = 0
    for piece in range(1, count):
        wanted = piece * total // count
        while number < len(parts) - 1 and before + (parts[number].size or 0) <= wanted:
            before += parts[number].size or 0
            number += 1
        found.append(_Wanted(number, wanted - before, before))
    return found


def _cut_all(parts: list[Part], wanted: list[_Wanted], cut: Cut) -> list[tuple[_Wanted, int]]:
    """Where to cut instead: parts are opened once for some places in them, and several remote ones at a time."""
    some: list[list[_Wanted]] = []
    for one in wanted:
        if not some or some[-1][0].part != one.part or len(some[-1]) == AT_A_TIME:
            some.append([])
        some[-1].append(one)
    remote = not all(is_local(part.url) for part in parts)
    found = looked_up(lambda few: cut(parts[few[0].part], [one.inside for one in few]), some, remote=remote)
    return [pair for few, places in zip(some, found, strict=True) for pair in zip(few, places, strict=True)]


def _between(parts: list[Part], start: tuple[int, int, int], stop: tuple[int, int, int]) -> tuple[Span, ...]:
    spans = []
    for number in range(start[0], min(stop[0] + 1, len(parts))):
        first = start[1] if number == start[0] else 0
        last = stop[1] if number == stop[0] else None
        if last != 0 and (last is None or last > first):
            spans.append(Span(parts[number], first, last))
    sizes = [float(span.part.size or 0) if (span.start, span.stop) == (0, None) else 0.0 for span in spans]
    rest, cut = (stop[2] - start[2]) - sum(sizes), sizes.count(0.0)
    return tuple(span._replace(size=int(size or rest / cut)) for span, size in zip(spans, sizes, strict=True))


def next_lines(part: Part, offsets: Sequence[int]) -> list[int]:
    """Where the first line begins at or after each byte of a plain text; 0 where none does, or if it is not plain."""
    if part.size is None or promised(part.shown):
        return [0 for _ in offsets]
    with closing(open_part(part, share=LOOKUPS)) as raw:
        plain = not sniff(raw.read(HEAD))
        return [_next_line(raw, offset, part.size) if plain and offset else 0 for offset in offsets]


def _next_line(raw: Any, offset: int, size: int) -> int:
    at = offset - 1
    raw.seek(at)
    while piece := raw.read(PIECE):
        found = piece.find(b"\n")
        if found >= 0:
            return at + found + 1 if at + found + 1 < size else 0
        at += len(piece)
    return 0


def next_row_groups(part: Part, offsets: Sequence[int]) -> list[int]:
    """The row at which the row group begins that is nearest to each byte of a Parquet file; 0 where it is the first."""
    from streamsvm.io.parquet import open_parquet

    ends: list[tuple[int, int]] = [(0, 0)]  # stored bytes up to a row group, and rows
    with open_parquet(part) as file:
        about = file.metadata
        for group in map(about.row_group, range(about.num_row_groups)):
            size = sum(group.column(k).total_compressed_size for k in range(group.num_columns))
            ends.append((ends[-1][0] + size, ends[-1][1] + group.num_rows))
        ends = [end for end in ends if end[1] < about.num_rows] or ends[:1]
    return [min(ends, key=lambda end: abs(end[0] - offset))[1] for offset in offsets]


def never(part: Part, offsets: Sequence[int]) -> list[int]:
    """For files that can only be read as a whole."""
    return [0 for _ in offsets]
