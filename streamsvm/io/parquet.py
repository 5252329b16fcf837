"""Parquet files to record batches: the wanted columns only, a few thousand rows at a time, from any row on.

Row groups are read with `ParquetFile.iter_batches`, which holds no more than it hands out, each on one thread: where
there are several, readers.py has several row groups read at a time. Columns of strings that the file has dictionary-
encoded stay so, because hashing a dictionary is much less work than hashing a column.

A remote file is told which ranges will be read (`Table.plan`): the wanted columns of the row groups to come. They are
fetched before Arrow asks for them, several at a time, in the order in which rows are made of them.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from streamsvm.errors import DataError, SourceError
from streamsvm.io.parts import Part, open_part
from streamsvm.io.urls import is_local, reason

READ_AHEAD = 1 << 20
DAMAGE = (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError)  # what a broken file makes Arrow raise
FEWEST_ROWS = 64  # in a piece
CELL_BYTES = 40  # that a value takes on its way: as Arrow has it, as a cell, and as a feature
AT_ONCE = 8  # pieces that are decoded at once
DECODED_SHARE = 4  # of what a value takes on its way, Arrow's form of it is this part
GROWTH = 10  # how much more memory a value takes on its way than it does in Arrow


class TablePiece(NamedTuple):
    """Rows of a file of records, and where they are in it."""

    record: pa.RecordBatch
    first: int  # rows of the file before it
    group: int  # row group, or record batch
    size: int  # stored bytes, about


@contextmanager
def opened(
    part: Part, *, random: bool = False, stopped: Callable[[], bool] = lambda: False, share: int = 1
) -> Iterator[tuple[Any, Any]]:
    """Something that Arrow can read at any place, and the remote file behind it, if it is one."""
    if part.size is None:
        raise SourceError(f"{part.shown}: Parquet and Arrow files need a file, not a stream: save it first")
    if is_local(part.url):
        yield pa.OSFile(part.url.split("://", 1)[-1]), None
        return
    with closing(open_part(part, stopped=stopped, random=random, share=share)) as raw:
        yield pa.PythonFile(raw, mode="r"), raw


class Table(pq.ParquetFile):  # type: ignore[misc]
    """A Parquet file."""

    remote: Any = None  # the file behind it, if that is a remote one

    def plan(self, groups: "list[Group]", columns: list[str]) -> None:
        """What will be read, after what was planned before: these columns of these row groups, group by group."""
        if self.remote is not None:
            spans = (_spans(self.metadata.row_group(group.number), columns, self.remote.range) for group in groups)
            self.remote.plan(span for group in spans for span in group)


@contextmanager
def open_parquet(
    part: Part,
    words: frozenset[str] = frozenset(),
    *,
    metadata: Any = None,
    stopped: Callable[[], bool] = lambda: False,
    share: int = 1,
) -> Iterator[Table]:
    """The file, with its dictionaries for the columns `words`; `metadata` if it was read before.

    `stopped` and `share` are as in `open_part`.
    """
    with opened(part, random=True, stopped=stopped, share=share) as (file, remote):
        try:
            known = metadata if metadata is not None else pq.read_metadata(file)
            dictionaries = sorted(words & _dictionaries(known))
            table = Table(file, metadata=known, read_dictionary=dictionaries or None, buffer_size=READ_AHEAD)
        except DAMAGE as error:
            _refuse_other_kinds(file, part)
            raise SourceError(f"{part.shown}: cannot read this Parquet file: {reason(error, part.url)}") from error
        table.remote = remote
        yield table


def _refuse_other_kinds(file: Any, part: Part) -> None:
    """SourceError, if it does not even begin like a Parquet file."""
    file.seek(0)
    head = bytes(file.read(12))
    if head and not head.startswith(b"PAR1"):
        raise SourceError(
            f"{part.shown}: cannot read this Parquet file: it begins with {head!r}; leave out --format, or give it the "
            "ending of what it is (.svm, .csv, .jsonl, ...)"
        )


def _spans(group: Any, columns: list[str], most: int) -> list[tuple[int, int]]:
    """The ranges of a row group that hold the columns, in the order in which they are needed.

    Rows are made of all columns at a time, so what lies in the middle of one is needed with the middles of the others.
    Columns that lie side by side are fetched together while they are small.
    """
    spans = sorted(_span(chunk) for chunk in _wanted(group, columns))
    merged: list[tuple[int, int]] = []
    for start, stop in spans:
        if merged and merged[-1][1] == start and stop - merged[-1][0] <= most:
            merged[-1] = merged[-1][0], stop
        else:
            merged.append((start, stop))
    pieces = [
        ((at - start) / (stop - start), at, min(at + most, stop))
        for start, stop in merged
        for at in range(start, stop, most)
    ]
    return [(start, stop) for _, start, stop in sorted(pieces)]


def _span(chunk: Any) -> tuple[int, int]:
    dictionary = chunk.dictionary_page_offset if chunk.has_dictionary_page else 0
    start = min(chunk.data_page_offset, dictionary or chunk.data_page_offset)
    return start, start + chunk.total_compressed_size


def _dictionaries(metadata: Any) -> set[str]:
    """Columns of strings that have a dictionary in the first row group."""
    if not metadata.num_row_groups:
        return set()
    group = metadata.row_group(0)
    columns = [group.column(k) for k in range(group.num_columns)]
    return {c.path_in_schema for c in columns if c.physical_type == "BYTE_ARRAY" and c.has_dictionary_page}


def parquet_schema(part: Part) -> pa.Schema:
    with open_parquet(part) as file:
        return file.schema_arrow


def refuse_twins(names: list[str], columns: list[str], part: Part) -> None:
    """DataError if two columns have the name of one that is wanted."""
    for name in columns:
        if names.count(name) > 1:
            raise DataError(f"{part.shown}: two columns are called {name}")


def fitting_rows(rows: int, cost: float, room: int) -> int:
    """How many rows a piece may have, of which each takes `cost` bytes on its way."""
    return min(rows, max(FEWEST_ROWS, int(room / max(cost, 1.0))))


def _cost(group: Any, columns: list[str]) -> float:
    """Bytes that a row of a row group takes on its way; a list counts as many values as it has items."""
    wanted = _wanted(group, columns)
    size = sum(CELL_BYTES * chunk.num_values + GROWTH // 3 * chunk.total_uncompressed_size for chunk in wanted)
    return float(size / group.num_rows)


def _wanted(group: Any, columns: list[str]) -> list[Any]:
    chunks = [group.column(k) for k in range(group.num_columns)]
    return [c for c in chunks if any(c.path_in_schema == n or c.path_in_schema.startswith(f"{n}.") for n in columns)]


class Group(NamedTuple):
    """A row group: its number, the rows of the file before it, how many it has, and what a row takes."""

    number: int
    first: int
    rows: int
    cost: float  # bytes of a row on its way
    stored: float  # bytes of a row in the file

    @property
    def size(self) -> float:
        """Bytes of all its rows, as Arrow has them."""
        return self.rows * self.cost / DECODED_SHARE


def parquet_groups(part: Part, file: Table, columns: list[str], start: int = 0, end: int | None = None) -> list[Group]:
    """The row groups of a file that have rows from row `start` on, and begin before row `end`."""
    try:
        groups = _groups(file, columns, start)
        return groups if end is None else [group for group in groups if group.first < end]
    except DAMAGE as error:
        raise SourceError(f"{part.shown}: cannot read this Parquet file: {reason(error, part.url)}") from error


def _groups(file: Table, columns: list[str], start: int) -> list[Group]:
    found = []
    before = 0
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        if before + group.num_rows > start:
            stored = sum(group.column(k).total_compressed_size for k in range(group.num_columns))
            found.append(Group(number, before, group.num_rows, _cost(group, columns), stored / group.num_rows))
        before += group.num_rows
    return found


def parquet_pieces(
    part: Part, columns: list[str], words: frozenset[str], rows: int, start: int = 0, room: int = 1 << 62
) -> Iterator[TablePiece]:
    """The rows of a file from row `start` on.

    A piece has up to `rows` rows, and fewer where they would take more than `room` bytes on their way.
    """
    with open_parquet(part, words) as file:
        refuse_twins(file.schema_arrow.names, columns, part)
        groups = parquet_groups(part, file, columns, start)
        file.plan(groups[:1], columns)
        unplanned = groups[1:]
        for group in groups:
            for piece in group_pieces(part, file, group, columns, rows, start, room):
                yield piece
                if unplanned:  # whoever comes back reads on
                    file.plan(unplanned, columns)
                    unplanned = []


def group_pieces(
    part: Part, file: Table, group: Group, columns: list[str], rows: int, start: int, room: int
) -> Iterator[TablePiece]:
    """The rows of a row group from row `start` of the file on.

    Several pieces are decoded at once, and share what they have in common: Arrow makes the dictionary of a column anew
    for every batch, however few rows that has.
    """
    most = fitting_rows(rows, group.cost, room)
    first = group.first
    try:
        records = file.iter_batches(
            batch_size=most * AT_ONCE, row_groups=[group.number], columns=columns, use_threads=False
        )
        for record in records:
            for at in range(max(0, start - first), record.num_rows, most):
                piece = record.slice(at, most)
                yield TablePiece(piece, first + at, group.number, int(group.stored * piece.num_rows))
            first += record.num_rows
        if file.remote is not None:
            file.remote.forget(_spans(file.metadata.row_group(group.number), columns, file.remote.range))
    except DAMAGE as error:
        raise SourceError(f"{part.shown}: row group {group.number}, row {first}: {reason(error, part.url)}") from error
