"""Writing tables and text: Parquet, Arrow, CSV, JSON lines, and plain bytes, compressed or not.

Every writer takes pieces in order and needs memory for a few of them only. Whoever opens the file gives it its name
when all is written (io/files.py).
"""

import io
from abc import ABC, abstractmethod
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamsvm.batch import Batch
from streamsvm.errors import ConfigError
from streamsvm.io.cell_text import csv_columns, csv_header, csv_lines, json_lines, plain
from streamsvm.io.compression import compressed

ROW_GROUP_BYTES = 64 << 20  # of a Parquet file, as Arrow has them
ROW_GROUP_ROWS = 1 << 20


class Sink(io.RawIOBase):
    """A file that forgets what is written after it was given up: writers want to write an end, whatever happens."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out: IO[bytes] | None = out
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, text: Any) -> int:
        size = memoryview(text).nbytes
        if self._out is not None:
            self._out.write(text)
        self._size += size
        return size

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        if self._out is not None:
            self._out.flush()

    def give_up(self) -> None:
        self._out = None


class Writer(ABC):
    """Pieces, one after the other. At the end of a `with` block the file is finished, or given up after an error."""

    def __init__(self, out: IO[bytes]) -> None:
        self.sink = Sink(out)

    @abstractmethod
    def write(self, piece: Any) -> None: ...

    @abstractmethod
    def finish(self) -> None:
        """Write what is left, and the end of the file; the file itself stays open."""

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self.sink.give_up()
        try:
            self.finish()
        except Exception:
            if kind is None:
                raise


class ParquetTable(Writer):
    """Row groups of some 64 MB, or of what the memory allows."""

    def __init__(self, out: IO[bytes], schema: pa.Schema, memory: int = 1 << 30) -> None:
        super().__init__(out)
        self._writer = pq.ParquetWriter(self.sink, schema, compression="zstd")
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = self._rows = 0
        self._most = max(1 << 20, min(ROW_GROUP_BYTES, memory // 12))

    def write(self, piece: pa.RecordBatch) -> None:
        self._waiting.append(piece)
        self._bytes += piece.nbytes
        self._rows += piece.num_rows
        if self._bytes >= self._most or self._rows >= ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema), row_group_size=self._rows)
        self._waiting = []
        self._bytes = self._rows = 0

    def finish(self) -> None:
        self._flush()
        self._writer.close()


class ArrowTable(Writer):
    def __init__(self, out: IO[bytes], schema: pa.Schema) -> None:
        super().__init__(out)
        self._writer = pa.ipc.new_file(pa.PythonFile(self.sink, mode="w"), schema)

    def write(self, piece: pa.RecordBatch) -> None:
        self._writer.write_batch(piece)

    def finish(self) -> None:
        self._writer.close()


class TextOut(Writer):
    """Bytes, compressed as the name of the file says."""

    def __init__(self, out: IO[bytes], codec: str | None = None) -> None:
        super().__init__(out)
        self._out = compressed(self.sink, codec) if codec else self.sink
        self._codec = codec

    def write(self, piece: bytes | memoryview) -> None:
        self._out.write(piece)

    def flush(self) -> None:
        """For whoever waits at the other end of a pipe."""
        self._out.flush()

    def finish(self) -> None:
        if self._codec:
            self._out.close()
        self.sink.flush()


class TextTable(Writer):
    """Records as lines of text, for those that have them as records."""

    def __init__(
        self, out: IO[bytes], codec: str | None, schema: pa.Schema, format: str, delimiter: str, *, begins: bool = True
    ) -> None:
        self._out = TextOut(out, codec)
        self.sink = self._out.sink
        self._lines = line_maker(schema, format, delimiter)
        # Written with the first rows, which may not be readable; a file that goes on with another has none.
        self._start = text_start(schema, format, delimiter) if begins else b""

    def write(self, piece: pa.RecordBatch) -> None:
        self._begin()
        self._out.write(self._lines(piece))
        self._out.flush()

    def _begin(self) -> None:
        self._out.write(self._start)
        self._start = b""

    def finish(self) -> None:
        self._begin()
        self._out.finish()


def text_start(schema: pa.Schema, format: str, delimiter: str) -> bytes:
    """What stands before the first row."""
    return csv_header(csv_columns(schema), delimiter) if format == "csv" else b""


def line_maker(schema: pa.Schema, format: str, delimiter: str) -> Any:
    """Makes lines of text from records of this schema."""
    if format == "jsonl":
        return json_lines
    columns = csv_columns(schema)
    return lambda record: csv_lines(record, columns, delimiter)


def table_writer(
    out: IO[bytes],
    schema: pa.Schema,
    format: str,
    *,
    codec: str | None,
    delimiter: str = ",",
    memory: int = 1 << 30,
    begins: bool = True,
) -> Writer:
    """Writes a table in one of the four formats. Text that does not begin a table, but goes on with it, has no header.

    So the parts of a table in text can be put together as they are; those of other formats are tables themselves.
    """
    if format == "parquet":
        return ParquetTable(out, schema, memory)
    if format == "arrow":
        return ArrowTable(out, schema)
    return TextTable(out, codec, schema, format, delimiter, begins=begins)


# Rows as a table.


def rows_schema() -> pa.Schema:
    """Columns label, weight, indices and values, as a cache has them."""
    return pa.schema(
        [
            pa.field("label", pa.float32(), nullable=False),
            pa.field("weight", pa.float32(), nullable=False),
            pa.field("indices", pa.list_(pa.field("item", pa.uint32(), nullable=False)), nullable=False),
            pa.field("values", pa.list_(pa.field("item", pa.float32(), nullable=False)), nullable=False),
        ]
    )


def rows_record(batch: Batch) -> pa.RecordBatch:
    """A copy of the rows."""
    rows = batch.take(0, batch.rows)
    schema = rows_schema()
    offsets = pa.array(rows.indptr.astype(np.int32))
    lists = [
        pa.ListArray.from_arrays(offsets, pa.array(items), type=schema.field(name).type)
        for name, items in (("indices", rows.indices), ("values", rows.values))
    ]
    return pa.record_batch([pa.array(rows.labels), pa.array(rows.weights), *lists], schema=schema)


# Predictions as a table.


def column_types(part: Any, format: str, names: tuple[str, ...]) -> dict[str, pa.DataType]:
    """The types that columns have in a file of records, where they can be made from texts again; else strings."""
    from streamsvm.io.records import stored_schema
    from streamsvm.io.sampling import leaves

    if format not in ("parquet", "arrow"):
        return dict.fromkeys(names, pa.string())
    stored = {name: plain(pa.nulls(0, kind)).type for name, kind in leaves(stored_schema(part, format))}
    for name in names:
        if pa.types.is_nested(stored.get(name, pa.string())):
            raise ConfigError(f"--keep {name}: the column holds lists; only numbers, texts and times can be kept")
    return {name: _spellable(stored.get(name, pa.string())) for name in names}


def _spellable(kind: pa.DataType) -> pa.DataType:
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    times = pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None)
    return kind if numbers or times or pa.types.is_decimal(kind) else pa.string()


def prediction_schema(kept: dict[str, pa.DataType], numbers: dict[str, str]) -> pa.Schema:
    """The kept columns, then those of the model: `whole`, `number` or `text` each."""
    kinds = {"whole": pa.int64(), "number": pa.float64(), "text": pa.string()}
    return pa.schema([*kept.items(), *((name, kinds[kind]) for name, kind in numbers.items())])


def prediction_record(schema: pa.Schema, columns: list[Any]) -> pa.RecordBatch:
    """Texts become what the schema says; empty ones are missing."""
    arrays = []
    for field, column in zip(schema, columns, strict=True):
        if isinstance(column, list) and not pa.types.is_string(field.type):
            arrays.append(pa.array([text or None for text in column], pa.string()).cast(field.type))
        else:
            given = [text or None for text in column] if isinstance(column, list) else column
            arrays.append(pa.array(given, field.type))
    return pa.record_batch(arrays, schema=schema)
