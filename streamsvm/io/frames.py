"""Data frames (pandas, polars, and whatever else speaks Arrow) as record batches."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.errors import DataError
from streamsvm.io.urls import reason

ROWS = 8192  # of a record batch


def is_frame(data: Any) -> bool:
    """Whether this is a table with named columns, and no array."""
    return hasattr(data, "__arrow_c_stream__") or (hasattr(data, "columns") and hasattr(data, "dtypes"))


def records_of(frame: Any) -> list[pa.RecordBatch]:
    """All rows of a frame, in record batches of which there is one at least; an index is left out."""
    try:
        if hasattr(frame, "dtypes") and hasattr(frame, "iloc"):  # pandas, whose own way would add the index
            table = pa.Table.from_pandas(frame, preserve_index=False)
        else:
            table = pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"the frame cannot be read as a table: {reason(error)}") from error
    table = table.replace_schema_metadata(None)
    twice = next((name for name in table.column_names if table.column_names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"two columns are called {twice}")
    records: list[pa.RecordBatch] = table.unify_dictionaries().combine_chunks().to_batches(max_chunksize=ROWS)
    return records or [pa.RecordBatch.from_pylist([], schema=table.schema)]


def is_table(frame: Any) -> bool:
    """Whether columns have names of their own, and are stored value by value; other frames are arrays in disguise."""
    if not hasattr(frame, "iloc"):
        return True
    names = list(frame.columns)
    return bool(names) and all(isinstance(name, str) for name in names) and not hasattr(frame, "sparse")


def only_numbers(frame: Any) -> bool:
    """Whether all columns are numbers."""
    if hasattr(frame, "iloc"):
        kinds = [getattr(kind, "kind", "O") for kind in frame.dtypes]
        return all(kind in "biuf" for kind in kinds)
    schema = pa.schema(frame) if hasattr(frame, "__arrow_c_schema__") else pa.table(frame).schema
    return all(_is_number(kind) for kind in schema.types)


def has_gaps(frame: Any) -> bool:
    """Whether a value of a frame of numbers is missing: a null, or NaN."""
    if hasattr(frame, "iloc"):
        return bool(frame.isna().to_numpy().any())
    columns = pa.table(frame).columns
    floats = [column for column in columns if pa.types.is_floating(column.type)]
    return any(column.null_count for column in columns) or any(pc.any(pc.is_nan(c)).as_py() for c in floats)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))
