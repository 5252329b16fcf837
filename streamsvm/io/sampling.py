"""The first rows of a table as Python values, to find out what its columns are."""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from streamsvm.errors import DataError, SourceError
from streamsvm.io.arrow_cells import column_of, is_bytes, is_list, iso_texts
from streamsvm.io.csv import rows_of_text
from streamsvm.io.first_lines import ROWS, TEXT, first_lines
from streamsvm.io.parts import Part
from streamsvm.io.urls import reason

CELLS = 500_000

Columns = dict[str, list[Any]]


def first_records(part: Part, format: str) -> tuple[Columns, dict[str, str]]:
    """Columns of a file of records, nested ones by dotted names, and what the schema says of each."""
    from streamsvm.io.arrow_table import arrow_pieces, arrow_schema
    from streamsvm.io.parquet import parquet_pieces, parquet_schema

    if part.size is None:
        raise SourceError(f"{part.shown}: {format} data is looked at before it is read: save it as a file first")
    schema = parquet_schema(part) if format == "parquet" else arrow_schema(part)
    try:
        kinds = {name: _kind(kind) for name, kind in leaves(schema)}
    except UnicodeDecodeError as error:
        raise SourceError(f"{part.shown}: the file is damaged: {reason(error)}") from error
    rows = _enough(len(kinds))
    if format == "parquet":
        pieces = parquet_pieces(part, schema.names, frozenset(), rows)
    else:
        pieces = arrow_pieces(part, schema.names, rows)

    def sound() -> Iterator[pa.RecordBatch]:
        for piece in pieces:
            _refuse_damaged(piece.record, part)
            yield piece.record

    return _first_rows(sound(), kinds), kinds


def first_values(records: list[pa.RecordBatch]) -> tuple[Columns, dict[str, str]]:
    """The same of records in memory, of which there is one at least."""
    kinds = {name: _kind(kind) for name, kind in leaves(records[0].schema)}
    return _first_rows(iter(records), kinds), kinds


def _enough(columns: int) -> int:
    """How many rows are looked at."""
    return max(20, min(ROWS, CELLS // max(columns, 1)))


def _first_rows(records: Iterator[pa.RecordBatch], kinds: dict[str, str]) -> Columns:
    columns: Columns = {name: [] for name in kinds}
    rows = _enough(len(kinds))
    for record in records:
        for name, kind in kinds.items():
            if kind != "other":
                array = column_of(record.slice(0, rows), name)
                columns[name] += _values(_dates(array, name) if kind == "time" else array)
        rows -= record.num_rows
        if rows <= 0:
            break
    return columns


def _dates(array: pa.Array, name: str) -> pa.Array:
    try:
        return iso_texts(array)
    except pa.ArrowException as error:
        raise DataError(f"column {name}: {reason(error)}; use --ignore {name}") from error


def _refuse_damaged(record: pa.RecordBatch, part: Part) -> None:
    """Python trusts what Arrow files say of themselves."""
    try:
        record.validate(full=True)
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise SourceError(f"{part.shown}: the file is damaged: {reason(error)}") from error


def _values(array: pa.Array) -> list[Any]:
    """As Python has them; texts are not always what they should be."""
    try:
        found: list[Any] = array.to_pylist()
        return found
    except UnicodeDecodeError:
        decoded = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        return decoded.cast(pa.large_binary()).to_pylist() if not is_list(decoded.type) else []


def leaves(schema: Any, prefix: str = "") -> list[tuple[str, pa.DataType]]:
    """The columns of a schema, those of nested ones with dotted names."""
    found = []
    for field in schema:
        name = f"{prefix}{field.name}"
        found += leaves(field.type, f"{name}.") if pa.types.is_struct(field.type) else [(name, field.type)]
    return found


def _kind(kind: pa.DataType) -> str:
    """The kind of a column as features/planning.py names it, where the type alone tells; else nothing."""
    if pa.types.is_dictionary(kind):
        return _kind(kind.value_type)
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind):
        return "whole"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_temporal(kind):
        return "other" if pa.types.is_duration(kind) or pa.types.is_interval(kind) else "time"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or is_bytes(kind):
        return "text"
    if is_list(kind):
        return {"bool": "wholes", "whole": "wholes", "number": "numbers", "text": "texts"}.get(
            _kind(kind.value_type), "other"
        )
    return "nothing" if pa.types.is_null(kind) else "other"


def first_objects(text: bytes, shown: str) -> tuple[Columns, frozenset[str]]:
    """Fields of the first lines of JSON, nested ones by dotted names, and which of them over half of the lines lack."""
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(first_lines(text), 1):
        try:
            found = json.loads(line)
            rows.append(dict(flattened(found)))
        except (ValueError, AttributeError, RecursionError):
            if number == 1:
                what = f"this is not a JSON object: {line[:60]!r}"
                if line.lstrip().startswith("["):
                    what = "this is not a JSON object but a list; put each object on a line: jq -c '.[]'"
                raise DataError(f"{shown}:1: {what}") from None
    there = Counter(name for row in rows for name in row)
    rare = frozenset(name for name, lines in there.items() if 2 * lines < len(rows))
    return {name: [row.get(name) for row in rows] for name in there}, rare


def flattened(value: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, inner in value.items():
        name = f"{prefix}{key}"
        found += flattened(inner, f"{name}.") if isinstance(inner, dict) else [(name, inner)]
    return found


def first_fields(text: bytes, delimiter: int, quote: int, header: bool, whole: bool = True) -> list[list[str]]:
    """The first rows of CSV, without the header; `whole` says that a text that is not long is all there is."""
    end = len(text) if len(text) < TEXT and whole else text.rfind(b"\n") + 1 or len(text)
    rows = [fields for fields, _ in islice(rows_of_text(text[:end], delimiter, quote), ROWS + header)]
    return rows[1:] if header else rows
