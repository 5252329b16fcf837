"""Arrow IPC files (Feather version 2 among them) and Arrow streams to record batches, from any row on."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pyarrow as pa

from streamsvm.errors import SourceError
from streamsvm.io.parquet import DAMAGE, GROWTH, TablePiece, fitting_rows, refuse_twins
from streamsvm.io.parts import Part, open_part
from streamsvm.io.urls import is_local, reason

MAGIC = b"ARROW1"


def arrow_schema(part: Part) -> pa.Schema:
    with _readers(part) as (schema, _):
        return schema


def arrow_pieces(
    part: Part,
    columns: list[str],
    rows: int,
    start: int = 0,
    room: int = 1 << 62,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[TablePiece]:
    """The rows of a file from row `start` on, those of large record batches in several pieces.

    A piece has up to `rows` rows, and fewer where they would take more than `room` bytes on their way.
    """
    with _readers(part, stopped) as (schema, records):
        refuse_twins(schema.names, columns, part)
        kept = [name for name in schema.names if any(c == name or c.startswith(f"{name}.") for c in columns)]
        first = number = 0
        try:
            for number, record in enumerate(records):
                record.validate()
                cost = record.nbytes / max(record.num_rows, 1)
                most = fitting_rows(rows, GROWTH * record.select(kept).nbytes / max(record.num_rows, 1), room)
                for at in range(max(0, start - first), record.num_rows, most):
                    piece = record.slice(at, most).select(kept)
                    yield TablePiece(piece, first + at, number, int(cost * piece.num_rows))
                first += record.num_rows
        except DAMAGE as error:
            raise SourceError(f"{part.shown}: record batch {number}: {reason(error, part.url)}") from error


@contextmanager
def _readers(
    part: Part, stopped: Callable[[], bool] = lambda: False
) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """The schema, and the record batches as they are asked for."""
    if part.size is not None and is_local(part.url):
        yield _reader(part, lambda: pa.memory_map(part.url.split("://", 1)[-1]))
        return
    with closing(open_part(part, stopped=stopped)) as raw:
        yield _reader(part, lambda: pa.PythonFile(raw, mode="r"))


def _reader(part: Part, open_it: Callable[[], pa.NativeFile]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    try:
        file = open_it()
        if part.size is not None:
            if file.read(len(MAGIC)) == MAGIC:
                reader = pa.ipc.open_file(file)
                return _named(reader.schema), (reader.get_batch(k) for k in range(reader.num_record_batches))
            file.seek(0)
        stream = pa.ipc.open_stream(file)
        return _named(stream.schema), iter(stream)
    except DAMAGE as error:
        raise SourceError(f"{part.shown}: cannot read this Arrow file: {reason(error, part.url)}") from error


def _named(schema: pa.Schema) -> pa.Schema:
    """The schema, if Python can read its names."""
    assert schema.names is not None
    return schema
