"""Parts of a source: some of its files, or of large ones the lines, or rows, between two places.

    source --plan--> spans of about the same size, each cut where a line or a row group begins --> SpanSource

Several machines read a source in this way, each its own spans, and together every row once. Where a file cannot be
begun in the middle (compressed text, CSV in which quotes may hide newlines), it is read as a whole by one of them.
"""

from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

from streamsvm.io.compression import HEAD, Limits, promised, sniff
from streamsvm.io.parts import Part, open_part
from streamsvm.io.source import Position, Source, _Input

PIECE = 1 << 18  # bytes read at a time to find a newline, or to count them

Cut = Callable[[Part, int], int]  # where a part may be cut, near a byte of it: bytes of text, or rows; 0: at its start


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
    before = number = 0
    for piece in range(1, count):
        wanted = piece * total // count
        while number < len(parts) - 1 and before + (parts[number].size or 0) <= wanted:
            before += parts[number].size or 0
            number += 1
        part, inside = parts[number], wanted - before
        place = cut(part, inside)
        if place:
            edges.append((number, place, wanted))
        elif 2 * inside < (part.size or 0):
            edges.append((number, 0, before))
        else:
            edges.append((number + 1, 0, before + (part.size or 0)))
    places = sorted({(0, 0, 0), *edges, (len(parts), 0, total)})
    pieces = [_between(parts, a, b) for a, b in zip(places, places[1:], strict=False)]
    return [spans for spans in pieces if spans]


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


def next_line(part: Part, offset: int) -> int:
    """Where the first line begins at or after a byte of a plain text; 0 if none does, or if it is not plain."""
    if not offset or part.size is None or promised(part.shown):
        return 0
    with closing(open_part(part)) as raw:
        if sniff(raw.read(HEAD)):
            return 0
        raw.seek(offset - 1)
        at = offset - 1
        while piece := raw.read(PIECE):
            found = piece.find(b"\n")
            if found >= 0:
                return at + found + 1 if at + found + 1 < part.size else 0
            at += len(piece)
    return 0


def next_row_group(part: Part, offset: int) -> int:
    """The row at which the row group begins that is nearest to a byte of a Parquet file; 0 if that is the first."""
    from streamsvm.io.parquet import open_parquet

    rows = stored = best = 0
    with open_parquet(part) as file:
        sizes = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        near = float(offset)
        for group in sizes:
            stored += sum(group.column(k).total_compressed_size for k in range(group.num_columns))
            rows += group.num_rows
            if rows < file.metadata.num_rows and abs(stored - offset) < near:
                best, near = rows, abs(stored - offset)
    return best


def never(part: Part, offset: int) -> int:
    """For files that can only be read as a whole."""
    return 0
