"""From a source to rows, piece by piece: what is read on one thread, and what is made of it on others.

    text (libsvm, vw, csv, jsonl)    Source --blocks of whole lines--> parse
    records (parquet, arrow)         record batches of some columns --> cells --> rows

A Reader serves one pass. `pieces` runs on the thread that reads, `parse` on any of those that work, `release` on the
caller's, when the rows of the piece are no longer needed. The memory of pieces is used again for later ones.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from streamsvm.batch import Bytes, empty_batch
from streamsvm.cells import WORD
from streamsvm.errors import DataError
from streamsvm.features.names import Names, see_vw
from streamsvm.io import csv, jsonl, libsvm, vw
from streamsvm.io.decimals import PADDING
from streamsvm.io.foreign import refuse_other_encoding
from streamsvm.io.marks import Marks
from streamsvm.io.parsed import Parsed
from streamsvm.io.partitions import with_partitions
from streamsvm.io.parts import Part
from streamsvm.io.source import Block, Origin, Position, Source, last_newline
from streamsvm.pool import Tokens, worked_ahead
from streamsvm.tables import Room, TableDialect, TableRows, clear, fill, refuse_absent

SMALLEST_BLOCK, LARGEST_BLOCK = 1 << 16, 1 << 21
MOST_ROWS = 16384  # in a piece of a file of records
HEADER = 1 << 24  # bytes in which the header of a file of text must end
FILES = 64  # of which the columns are known at a time

Dialect = libsvm.Dialect | vw.Dialect | TableDialect


class Piece(Protocol):
    """Some rows on their way."""

    @property
    def origin(self) -> Origin: ...
    @property
    def size(self) -> int: ...  # stored bytes, or those of text
    @property
    def after(self) -> Position | Marks: ...
    @property
    def part(self) -> int: ...  # the number of its file


Some = TypeVar("Some", bound=Piece)


class Reader(ABC, Generic[Some]):
    """One pass over a source."""

    tokens: Tokens

    @abstractmethod
    def pieces(self, start: Any) -> Iterator[Some]:
        """The pieces from a position on that the source has given."""

    @abstractmethod
    def parse(self, piece: Some) -> Parsed: ...

    @abstractmethod
    def release(self, piece: Some) -> None: ...

    @abstractmethod
    def place(self, piece: Some, line: int) -> str:
        """How a message names a line of the file."""

    @abstractmethod
    def note_names(self, piece: Some, names: Names) -> None:
        """Collect the names of hashed features, after `parse` and before `release`."""


# Text.


class TextFormat(ABC):
    """How blocks of lines become rows."""

    cost: int  # the most memory that rows take, per byte of text

    def cut(self, buffer: bytearray, filled: int) -> int:
        """Where the last whole line of the first `filled` bytes ends; 0 if none does."""
        return last_newline(buffer, filled)

    @abstractmethod
    def room(self, size: int) -> Any:
        """Memory for the rows of any `size` bytes of text."""

    def begin(self, source: Source, block: Block) -> Any:
        """What `parse` must know of the file that the block is from; called for one block after the other."""
        return None

    @staticmethod
    def keys(source: Source, block: Block) -> dict[str, str | None]:
        """The columns that stand in the names of the file's directories."""
        return dict(source.parts[block.part].keys) if block.part < len(source.parts) else {}

    @abstractmethod
    def parse(self, text: Bytes, block: Block, known: Any, room: Any, skip: int) -> Parsed: ...

    def note_names(self, text: Bytes, room: Any, names: Names) -> None:
        """Collect the names of hashed features in a block that has been parsed, where there are any."""
        return None


class LibsvmText(TextFormat):
    cost = libsvm.bytes_per_text_byte()

    def __init__(self, dialect: libsvm.Dialect) -> None:
        self._dialect = dialect

    def room(self, size: int) -> libsvm.Rows:
        return libsvm.make_rows(size)

    def parse(self, text: Bytes, block: Block, known: None, room: libsvm.Rows, skip: int) -> Parsed:
        return libsvm.parse(text, 0, block.size, self._dialect, room, skip)


class VwText(TextFormat):
    cost = vw.bytes_per_text_byte()

    def __init__(self, dialect: vw.Dialect) -> None:
        self._dialect = dialect

    def room(self, size: int) -> vw.Rows:
        return vw.make_rows(size)

    def parse(self, text: Bytes, block: Block, known: None, room: vw.Rows, skip: int) -> Parsed:
        return vw.parse(text, 0, block.size, self._dialect, room, skip)

    def note_names(self, text: Bytes, room: vw.Rows, names: Names) -> None:
        see_vw(text, room, names)


class JsonText(TextFormat):
    cost = 10

    def __init__(self, dialect: TableDialect) -> None:
        self._table = TableRows(dialect)
        self._fields = jsonl.Fields(self._table.wants)

    def room(self, size: int) -> Room:
        return self._table.room()

    def begin(self, source: Source, block: Block) -> dict[int, str | None]:
        if block.origin.offset == 0 and not self._table.dialect.raw and not source.endless:
            with memoryview(block.buffer) as view:
                refuse_other_encoding(bytes(view[: block.size]), block.origin.url)
        keys = self.keys(source, block)
        return {place: keys[want.name] for place, want in enumerate(self._table.wants) if want.name in keys}

    def parse(self, text: Bytes, block: Block, known: dict[int, str | None], room: Room, skip: int) -> Parsed:
        lines, faults = jsonl.parse(text, 0, block.size, self._fields, room.cells, skip)
        fill(room.cells, known, room.cells.rows)
        return self._table.finish(room, lines, faults, skip)

    def note_names(self, text: Bytes, room: Room, names: Names) -> None:
        self._table.note_names(room, names)


class CsvFile(NamedTuple):
    """What is known of a CSV file: where its columns are, and how long its header is."""

    layout: csv.Layout
    absent: list[int]  # wants that it does not have
    keys: dict[int, str | None]  # those that the names of its directories have
    header: int  # bytes of this block that are the header
    header_lines: int


EMPTY = csv.Layout((), np.empty(0, np.int64), np.empty(0, np.int64))


class CsvText(TextFormat):
    def __init__(self, dialect: TableDialect) -> None:
        self._table = TableRows(dialect)
        self._options = dialect.csv
        self.cost = 12 + 12 * len(dialect.recipe.interactions) // max(len(dialect.recipe.columns), 1)
        self._files: dict[int, CsvFile] = {}  # by their number

    def cut(self, buffer: bytearray, filled: int) -> int:
        return csv.cut_rows(buffer, filled, self._options.delimiter, self._options.quote)

    def room(self, size: int) -> Room:
        return self._table.room()

    def begin(self, source: Source, block: Block) -> CsvFile:
        """The columns of the block's file, which its first block has, or which must be looked up."""
        file = self._files.pop(block.part, None)
        begins = block.origin.offset == 0 or (file is not None and file.layout is EMPTY)
        if begins:
            with memoryview(block.buffer) as view:
                text = bytes(view[: min(block.size, HEADER)])
            if not self._table.dialect.raw and not source.endless:
                refuse_other_encoding(text, block.origin.url)
            file = self._looked_at(block.origin.url, text, self.keys(source, block))
        elif file is None:
            file = self._looked_at(block.origin.url, source.head(HEADER, block.part), self.keys(source, block))
        self._files[block.part] = file
        if len(self._files) > FILES:
            del self._files[next(iter(self._files))]
        return file if begins else file._replace(header=0, header_lines=0)

    def _looked_at(self, shown: str, text: bytes, keys: dict[str, str | None]) -> CsvFile:
        options = self._options
        names, header, lines = csv.first_row(text, options.delimiter, options.quote)
        if not text.removeprefix(csv.BOM).strip(b"\r\n"):
            return CsvFile(EMPTY, [], {}, len(text), text.count(b"\n"))
        wanted = [want.name for want in self._table.wants]
        continued = bool(options.fields) and not set(names) & set(wanted)  # a log that goes on without its header
        if not options.header or continued:
            names, header, lines = self._headerless(len(names)), len(csv.BOM) if text.startswith(csv.BOM) else 0, 0
        absent = [place for place, name in enumerate(wanted) if name not in names]
        twice = next((name for name in wanted if names.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"{shown}: two columns are called {twice}")
        try:
            refuse_absent([wanted[k] for k in absent if wanted[k] not in keys], names, self._table.optional)
        except DataError as error:
            raise DataError(f"{shown}: {error}") from None
        features = wanted[: self._table.kept.start]
        places = [features.index(name) if name in features else -1 for name in names]
        kept = [wanted.index(name, len(features)) if name in wanted[len(features) :] else -1 for name in names]
        layout = csv.Layout(
            tuple(names),
            np.array(places, np.int64),
            np.array(kept, np.int64),
            options.delimiter,
            options.quote,
            options.decimal,
        )
        return CsvFile(layout, absent, {k: keys[wanted[k]] for k in absent if wanted[k] in keys}, header, lines)

    def _headerless(self, count: int) -> list[str]:
        """The names of the columns; those of the training data, also where only its label is left out."""
        fields = list(self._options.fields) or [f"c{k}" for k in range(1, count + 1)]
        label = self._table.dialect.recipe.label
        if len(fields) == count + 1 and not self._table.dialect.labelled and label in fields:
            fields.remove(label)
        return fields

    def parse(self, text: Bytes, block: Block, known: CsvFile, room: Room, skip: int) -> Parsed:
        lines, faults = csv.parse(text, known.header, block.size, known.layout, room.cells, skip)
        clear(room.cells, known.absent, room.cells.rows)
        fill(room.cells, known.keys, room.cells.rows)
        if known.header_lines:
            faults = [fault._replace(line=fault.line + known.header_lines) for fault in faults]
            room.cells.lines[: room.cells.rows] += known.header_lines
        return self._table.finish(room, lines + known.header_lines, faults, skip)

    def note_names(self, text: Bytes, room: Room, names: Names) -> None:
        self._table.note_names(room, names)


class Slot:
    """The memory of one block: its text, and the rows parsed from it."""

    def __init__(self, size: int, format: TextFormat) -> None:
        self.size = size
        self.text = bytearray(size + 1 + PADDING)
        self.array: Bytes = np.frombuffer(self.text, np.uint8)
        self.room = format.room(size + 1)


class _Slots:
    """Slots by their text buffer: bounded by tokens, one a byte; free ones of the usual size are kept."""

    def __init__(self, block_size: int, tokens: Tokens, format: TextFormat) -> None:
        self._block_size = block_size
        self._tokens = tokens
        self._format = format
        self._free: list[Slot] = []
        self._taken: dict[int, Slot] = {}

    def take(self, size: int) -> bytearray:
        self._tokens.take(size)
        slot = self._free.pop() if size == self._block_size and self._free else Slot(size, self._format)
        self._taken[id(slot.text)] = slot
        return slot.text

    def of(self, buffer: bytearray) -> Slot:
        return self._taken[id(buffer)]

    def give_back(self, buffer: bytearray) -> None:
        slot = self._taken.pop(id(buffer))
        if slot.size == self._block_size:
            self._free.append(slot)
        self._tokens.give_back(slot.size)


class TextPiece(NamedTuple):
    block: Block
    known: Any  # of its file

    @property
    def origin(self) -> Origin:
        return self.block.origin

    @property
    def size(self) -> int:
        return self.block.size

    @property
    def after(self) -> Position | Marks:
        return self.block.after

    @property
    def part(self) -> int:
        return self.block.part


def block_plan(memory: int, threads: int, cost: int, block_size: int = 0) -> tuple[int, int]:
    """The size of blocks, and how many bytes of text may be in flight, where rows take `cost` bytes for each."""
    text = memory // (1 + cost)
    block = block_size or min(LARGEST_BLOCK, max(SMALLEST_BLOCK, text // (threads + 3)))
    return block, max(text, block * 3)


class TextReader(Reader[TextPiece]):
    """Blocks of whole lines, each parsed by itself."""

    def __init__(
        self, source: Source, format: TextFormat, *, memory: int, threads: int, block_size: int, skip: int
    ) -> None:
        self._block_size, in_flight = block_plan(memory, threads, format.cost, block_size)
        self.tokens = Tokens(in_flight)
        self._source = source
        self._format = format
        self._skip = skip
        self._slots = _Slots(self._block_size, self.tokens, format)

    def pieces(self, start: Any) -> Iterator[TextPiece]:
        stopped = lambda: self.tokens.stopped  # noqa: E731
        for block in self._source.blocks(self._block_size, self._slots, stopped, start, self._format.cut):
            yield TextPiece(block, self._format.begin(self._source, block) if block.size else None)

    def parse(self, piece: TextPiece) -> Parsed:
        if not piece.size:
            return Parsed(empty_batch(), 0, [])
        slot = self._slots.of(piece.block.buffer)
        return self._format.parse(slot.array, piece.block, piece.known, slot.room, self._skip)

    def release(self, piece: TextPiece) -> None:
        self._slots.give_back(piece.block.buffer)

    def place(self, piece: TextPiece, line: int) -> str:
        return f"{piece.origin.url}:{line}"

    def note_names(self, piece: TextPiece, names: Names) -> None:
        if not piece.size:
            return
        slot = self._slots.of(piece.block.buffer)
        self._format.note_names(slot.array, slot.room, names)


# Records.


class RecordPiece(NamedTuple):
    origin: Origin
    size: int
    after: Position
    record: Any
    group: int
    room: Room
    part: int


class RecordReader(Reader[RecordPiece]):
    """Record batches of the columns that are wanted."""

    def __init__(self, source: Source, dialect: TableDialect, *, memory: int, threads: int, skip: int) -> None:
        from streamsvm.io.arrow_cells import ArrowCells
        from streamsvm.io.parquet import AT_ONCE, CELL_BYTES, DECODED_SHARE, fitting_rows

        self._source = source
        self._dialect = dialect
        self._table = TableRows(dialect)
        self._columns = sorted({want.name for want in self._table.wants})
        self._cells = ArrowCells(self._table.wants, self._table.optional)
        self._skip = skip
        in_flight = threads + 3
        self._decoders = max(1, threads // 2)
        width = sum(column.width for column in dialect.recipe.columns) + 2 * len(dialect.recipe.interactions) + 3
        self._memory = memory
        self._room = memory // (in_flight + AT_ONCE // DECODED_SHARE)  # of a piece, beside those decoded at once
        self._rows = fitting_rows(MOST_ROWS, CELL_BYTES * width, self._room)
        self.tokens = Tokens(in_flight)
        self._free: list[Room] = []

    def pieces(self, start: Any) -> Iterator[RecordPiece]:
        for number in self._source.parts_from(start):
            part = self._source.parts[number]
            keys = {name: text for name, text in part.keys if name in self._columns}
            rows = start.offset if number == start.part else self._source.first_position(number).offset
            end = self._source.end_of(number)
            for found in self._records(number, rows, end):
                if end is not None and found.first >= end:
                    break
                self.tokens.take(1)
                room = self._free.pop() if self._free else self._table.room()
                after = Position(number, found.first + found.record.num_rows)
                record = with_partitions(found.record, keys) if keys else found.record
                yield RecordPiece(
                    Origin(part.shown, found.first, 0), found.size, after, record, found.group, room, number
                )
                if self.tokens.stopped:
                    return

    def _records(self, number: int, start: int, end: int | None) -> Iterator[Any]:
        part = self._source.parts[number]
        if self._dialect.format == "parquet":
            return self._parquet(part, start, end)
        from streamsvm.io.arrow_table import arrow_pieces

        return arrow_pieces(part, self._columns, self._rows, start, self._room, lambda: self.tokens.stopped)

    def _parquet(self, part: Part, start: int, end: int | None) -> Iterator[Any]:
        """The pieces of a Parquet file, up to the row group that begins at row `end`.

        Several row groups are decoded at a time if there are threads and room for it. With two threads there are not:
        then one reads, while the other makes rows and the caller learns.
        """
        from streamsvm.io.parquet import group_pieces, open_parquet, parquet_groups, refuse_twins

        words = frozenset(want.name for want in self._table.wants if want.kind == WORD and not want.number)
        stopped = lambda: self.tokens.stopped  # noqa: E731
        with open_parquet(part, words, stopped=stopped) as file:
            refuse_twins(file.schema_arrow.names, self._columns, part)
            groups = parquet_groups(part, file, self._columns, start, end)
            largest = max((group.size for group in groups), default=0)
            if self._decoders == 1 or len(groups) == 1 or largest * (self._decoders + 1) > self._memory:
                file.plan(groups, self._columns)
                for group in groups:
                    yield from group_pieces(part, file, group, self._columns, self._rows, start, self._room)
                return
            metadata = file.metadata

        def decode(group: Any) -> list[Any]:
            with open_parquet(part, words, metadata=metadata, stopped=stopped, share=self._decoders) as opened:
                opened.plan([group], self._columns)
                return list(group_pieces(part, opened, group, self._columns, self._rows, start, self._room))

        with closing(worked_ahead(groups, decode, self._decoders + 1, self._decoders)) as decoded:
            for pieces in decoded:
                yield from pieces

    def parse(self, piece: RecordPiece) -> Parsed:
        try:
            wrong = self._cells.fill(piece.record, piece.room.cells)
        except DataError as error:  # a column of another type, which is no matter of single rows
            raise DataError(f"{self.place(piece, piece.origin.offset + 1)}: {error}") from error
        return self._table.finish(piece.room, piece.record.num_rows, [], self._skip, wrong)

    def release(self, piece: RecordPiece) -> None:
        self._free.append(piece.room)
        self.tokens.give_back(1)

    def place(self, piece: RecordPiece, line: int) -> str:
        what = "row group" if self._dialect.format == "parquet" else "record batch"
        return f"{piece.origin.url}: {what} {piece.group}, row {line}"

    def note_names(self, piece: RecordPiece, names: Names) -> None:
        self._table.note_names(piece.room, names)


def make_reader(
    source: Source, dialect: Dialect, *, memory: int, threads: int, block_size: int = 0, skip: int = 0
) -> Reader[Any]:
    """What reads a source in its format, with so much memory for pieces in flight."""
    if isinstance(dialect, TableDialect) and dialect.format in ("parquet", "arrow"):
        return RecordReader(source, dialect, memory=memory, threads=threads, skip=skip)
    format: TextFormat
    if isinstance(dialect, libsvm.Dialect):
        format = LibsvmText(dialect)
    elif isinstance(dialect, vw.Dialect):
        format = VwText(dialect)
    else:
        format = CsvText(dialect) if dialect.format == "csv" else JsonText(dialect)
    return TextReader(source, format, memory=memory, threads=threads, block_size=block_size, skip=skip)


def fingerprint_of(dialect: Dialect) -> dict[str, Any]:
    """What of a dialect decides which rows come out."""
    if isinstance(dialect, libsvm.Dialect):
        return {"format": "libsvm", "hash mask and index limit": [dialect.mask, dialect.limit]}
    if isinstance(dialect, vw.Dialect):
        crossed = [list(names) for names in dialect.interactions]
        return {"format": "vw", "hash bits": dialect.hash_bits, "interactions": crossed}
    return dialect.fingerprint()
