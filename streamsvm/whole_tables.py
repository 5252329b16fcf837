"""Tables read with all their columns, as records: from files of records, and from blocks of CSV and JSON lines.

The first file decides the columns and their types; others must have the same. As with readers.py, pieces are read on
one thread and made records on others, and tokens bound how many are on their way.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from streamsvm.config import Settings
from streamsvm.dialects import HEAD, csv_options
from streamsvm.errors import DataError
from streamsvm.io.csv import cut_rows
from streamsvm.io.decimals import PADDING
from streamsvm.io.partitions import partition_columns, with_fields, with_partitions
from streamsvm.io.source import BEGINNING, Block, Source, last_newline
from streamsvm.pool import Tokens
from streamsvm.reading import make_reading
from streamsvm.stream import SHARES
from streamsvm.tables import CsvOptions

STORED = ("parquet", "arrow")
COST = 8  # bytes in flight for a byte of text: itself, its record, and the text made of that
SMALLEST_BLOCK, LARGEST_BLOCK = 1 << 16, 1 << 21


class Piece(NamedTuple):
    """Some rows of a table on their way, as they are stored."""

    shown: str
    line: int  # of the file, of its first row
    size: int  # stored bytes, about
    stored: Any  # a record, or the bytes of whole lines
    buffer: bytearray | None = None
    names: tuple[str, ...] = ()  # the columns of this file, in their order
    part: int = 0  # the number of the file


class WholeTable:
    """A table that is read with all its columns: `pieces` on the thread that reads, `record` on those that work."""

    def __init__(self, settings: Settings, source: Source, format: str) -> None:
        reading = make_reading(settings)
        self.workers = reading.workers
        memory = settings.run.memory // SHARES // COST
        self.block = max(SMALLEST_BLOCK, min(LARGEST_BLOCK, memory // (self.workers + 3)))
        self._room = settings.run.memory // SHARES // (self.workers + 3)
        self.tokens = Tokens(max(memory, 3 * self.block) if format not in STORED else self.workers + 3)
        self._source = source
        self._format = format
        self._csv = csv_options(settings, source) if format == "csv" else CsvOptions()
        self._stored_schema = self._first_schema(settings)
        self._partitions = {
            name: values
            for name, values in partition_columns(source.parts).items()
            if name not in self._stored_schema.names
        }
        self.schema = with_fields(self._stored_schema, self._partitions)
        self._reader = self._make_reader()

    def _first_schema(self, settings: Settings) -> Any:
        from streamsvm.io.records import Wanted, csv_names, csv_schema, json_schema, plain_schema, stored_schema

        part, features, csv = self._source.parts[0], settings.features, self._csv
        wanted = Wanted(
            frozenset(features.numeric or ()), frozenset([*(features.categorical or ()), *(features.text or ())])
        )
        if self._format in STORED:
            return plain_schema(stored_schema(part, self._format))
        text = self._source.head(HEAD)
        if self._format == "jsonl":
            return json_schema(text, part.shown, wanted)
        names = csv_names(text, csv.delimiter, csv.quote)[0] if csv.header else list(csv.fields)
        return csv_schema(text, names, csv.delimiter, csv.quote, csv.header, wanted, csv.decimal)

    def _make_reader(self) -> Any:
        from streamsvm.io.records import CsvTable, JsonTable

        if self._format == "csv":
            return CsvTable(self._stored_schema, self._csv.delimiter, self._csv.quote, self._csv.decimal)
        return JsonTable(self._stored_schema) if self._format == "jsonl" else None

    def pieces(self) -> Iterator[Piece]:
        return self._stored() if self._format in STORED else self._blocks()

    def _stored(self) -> Iterator[Piece]:
        from streamsvm.io.records import refuse_other_columns, stored_records, stored_schema

        for number, part in enumerate(self._source.parts):
            schema = stored_schema(part, self._format)
            refuse_other_columns(schema.names, self._stored_schema.names, part.shown)
            for found in stored_records(part, self._format, schema, self._room):
                self.tokens.take(1)
                yield Piece(part.shown, found.first + 1, found.size, found.record, part=number)

    def _blocks(self) -> Iterator[Piece]:
        names: tuple[str, ...] = ()
        line = 1
        for block in self._source.blocks(self.block, self, lambda: self.tokens.stopped, BEGINNING, self._cut):
            skipped = 0
            if block.origin.offset == 0:
                line = 1
                names, skipped = self._begin(block)
            text = memoryview(block.buffer)[skipped : block.size]
            header = bytes(block.buffer[:skipped]).count(b"\n")
            yield Piece(block.origin.url, line + header, block.size, text, block.buffer, names, block.part)
            line += block.buffer.count(b"\n", 0, block.size)

    def _begin(self, block: Block) -> tuple[tuple[str, ...], int]:
        """The columns of a file of text, and how many bytes of its first block are no rows."""
        from streamsvm.io.records import csv_names, refuse_other_columns

        mark = 3 if block.buffer.startswith(b"\xef\xbb\xbf") else 0
        if self._format == "jsonl" or not self._csv.header:
            return tuple(self._stored_schema.names), mark
        text = bytes(memoryview(block.buffer)[: block.size])
        names, size, _ = csv_names(text, self._csv.delimiter, self._csv.quote)
        refuse_other_columns(names, self._stored_schema.names, block.origin.url)
        return tuple(names), size

    def _cut(self, buffer: bytearray, filled: int) -> int:
        if self._format != "csv":
            return last_newline(buffer, filled)
        return cut_rows(buffer, filled, self._csv.delimiter, self._csv.quote)

    # Buffers of text.

    def take(self, size: int) -> bytearray:
        self.tokens.take(size)
        return bytearray(size + 1 + PADDING)

    def give_back(self, buffer: bytearray) -> None:
        self.tokens.give_back(len(buffer) - 1 - PADDING)

    def release(self, piece: Piece) -> None:
        if piece.buffer is None:
            self.tokens.give_back(1)
        else:
            self.give_back(piece.buffer)

    def record(self, piece: Piece) -> tuple[Any, list[Any]]:
        """The rows of a piece, and what is wrong with some."""
        record, wrong = self._stored_record(piece)
        return with_partitions(record, {name: values[piece.part] for name, values in self._partitions.items()}), wrong

    def _stored_record(self, piece: Piece) -> tuple[Any, list[Any]]:
        from streamsvm.io.records import conformed

        try:
            if self._reader is None:
                return conformed(piece.stored, self._stored_schema), []
            if self._format == "csv":
                found: tuple[Any, list[Any]] = self._reader.record(piece.stored, list(piece.names))
                return found
            found = self._reader.record(piece.stored)
            return found
        except DataError as error:
            raise DataError(f"{piece.shown}:{piece.line}: {error}") from error
