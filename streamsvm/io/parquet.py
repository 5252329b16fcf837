"""Parquet files to record batches: the wanted columns only, a few thousand rows at a time, from any row on.

Row groups are read one after the other with `ParquetFile.iter_batches`, which holds no more than it hands out. Columns
of strings that the file has dictionary-encoded stay so, because hashing a dictionary is much less work than a column.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from streamsvm.errors import DataError, SourceError
from streamsvm.io.parts import Part, open_part
from streamsvm.io.urls import is_local, reason

READ_AHEAD = 1 << 20
FEWEST_ROWS = 64  # in a piece
CELL_BYTES = 40  # that a value takes on its way: as Arrow has it, as a cell, and as a feature
GROWTH = 10  # how much more memory a value takes on its way than it does in Arrow


class TablePiece(NamedTuple):
    """Rows of a file of records, and where they are in it."""

    record: pa.RecordBatch
    first: int  # rows of the file before it
    group: int  # row group, or record batch
    size: int  # stored bytes, about
    last: bool = False  # whether the file ends with it


def opened(part: Part) -> Any:
    """Something that Arrow can read at any place."""
    if is_local(part.url) and part.size is not None:
        return pa.OSFile(part.url.split("://", 1)[-1])
    if part.size is None:
        raise SourceError(f"{part.shown}: Parquet and Arrow files need a file, not a stream: save it first")
    return pa.PythonFile(open_part(part), mode="r")


def open_parquet(part: Part, words: frozenset[str] = frozenset()) -> pq.ParquetFile:
    try:
        plain = pq.ParquetFile(opened(part), buffer_size=READ_AHEAD)
        dictionaries = sorted(words & _dictionaries(plain))
        if not dictionaries:
            return plain
        plain.close()
        return pq.ParquetFile(opened(part), read_dictionary=dictionaries, buffer_size=READ_AHEAD)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{part.shown}: cannot read this Parquet file: {reason(error, part.url)}") from error


def _dictionaries(file: pq.ParquetFile) -> set[str]:
    """Columns of strings that have a dictionary in the first row group."""
    if not file.metadata.num_row_groups:
        return set()
    group = file.metadata.row_group(0)
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
    chunks = [group.column(k) for k in range(group.num_columns)]
    wanted = [c for c in chunks if any(c.path_in_schema == n or c.path_in_schema.startswith(f"{n}.") for n in columns)]
    size = sum(CELL_BYTES * chunk.num_values + GROWTH // 3 * chunk.total_uncompressed_size for chunk in wanted)
    return float(size / group.num_rows)


def parquet_pieces(
    part: Part, columns: list[str], words: frozenset[str], rows: int, start: int = 0, room: int = 1 << 62
) -> Iterator[TablePiece]:
    """The rows of a file from row `start` on.

    A piece has up to `rows` rows, and fewer where they would take more than `room` bytes on their way.
    """
    with open_parquet(part, words) as file:
        refuse_twins(file.schema_arrow.names, columns, part)
        before = 0
        for group in range(file.metadata.num_row_groups):
            found = file.metadata.row_group(group)
            if before + found.num_rows > start:
                stored = sum(found.column(k).total_compressed_size for k in range(found.num_columns))
                most = fitting_rows(rows, _cost(found, columns), room)
                yield from _group_pieces(part, file, group, columns, most, before, start, stored / found.num_rows)
            before += found.num_rows


def _group_pieces(
    part: Part, file: pq.ParquetFile, group: int, columns: list[str], rows: int, first: int, start: int, cost: float
) -> Iterator[TablePiece]:
    try:
        for record in file.iter_batches(batch_size=rows, row_groups=[group], columns=columns, use_threads=False):
            skipped = max(0, min(record.num_rows, start - first))
            if skipped < record.num_rows:
                kept = record.slice(skipped)
                yield TablePiece(kept, first + skipped, group, int(cost * kept.num_rows))
            first += record.num_rows
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{part.shown}: row group {group}, row {first}: {reason(error, part.url)}") from error
