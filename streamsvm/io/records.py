"""Tables as records with all their columns: what a file of records has, and what blocks of CSV and JSON lines hold.

The types of text are those of its first rows. A block is read by Arrow in one go; only where that fails, because a
number is written as NA, a line is damaged, or a field is new, it is read again piece by piece, to make the best of it
or to say which row is wrong.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from streamsvm.cells import MISSING_WORDS
from streamsvm.errors import DataError
from streamsvm.io.arrow_cells import is_list
from streamsvm.io.arrow_table import arrow_pieces, arrow_schema
from streamsvm.io.cell_text import plain
from streamsvm.io.csv import COMMA, POINT, first_row, plain_number
from streamsvm.io.first_lines import first_lines
from streamsvm.io.parquet import TablePiece, open_parquet, parquet_pieces, parquet_schema
from streamsvm.io.parts import Part
from streamsvm.io.sampling import first_fields

MOST_ROWS = 1 << 14  # in a piece of a file of records
_TYPES = (
    (re.compile(r"-?(0|[1-9][0-9]{0,18})"), pa.int64()),
    (re.compile(r"-?(0|[1-9][0-9]*)?\.[0-9]+([eE][+-]?[0-9]+)?|-?[1-9][0-9]*\.?[eE][+-]?[0-9]+|nan"), pa.float64()),
    (re.compile(r"true|false"), pa.bool_()),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"), pa.date32()),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"), pa.timestamp("us")),
)
_TYPE_HINT = "as the first rows have them; --set features.{}={} reads this column as {}"


class BadRow(NamedTuple):
    """A row that is left out: its line in the block, counted from 0, and what is wrong with it."""

    line: int
    message: str


class Wanted(NamedTuple):
    """Columns whose type the user decides, whatever the first rows say."""

    numbers: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()

    def kind(self, name: str) -> pa.DataType | None:
        return pa.float64() if name in self.numbers else pa.string() if name in self.texts else None


# Files of records.


def stored_schema(part: Part, format: str) -> pa.Schema:
    return parquet_schema(part) if format == "parquet" else arrow_schema(part)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema without dictionaries, which are a way to store values, and without what pandas notes in it."""
    return pa.schema([pa.field(f.name, plain(pa.nulls(0, f.type)).type, f.nullable) for f in schema])


def stored_records(part: Part, format: str, schema: pa.Schema, room: int) -> Iterator[TablePiece]:
    """All columns, as many rows at a time as take up to `room` bytes on their way."""
    if format == "parquet":
        return parquet_pieces(part, schema.names, frozenset(), MOST_ROWS, room=room)
    return arrow_pieces(part, schema.names, MOST_ROWS, room=room)


def conformed(record: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A record of another file with the columns of the first: in their order, and cast where nothing is lost."""
    arrays = []
    for field in schema:
        array = plain(record.column(record.schema.get_field_index(field.name)))
        try:
            arrays.append(array if array.type == field.type else array.cast(field.type))
        except pa.ArrowException as error:
            message = f"column {field.name} is {array.type}, and {field.type} in the first file"
            raise DataError(f"{message}: {_one_line(error)}") from error
    return pa.record_batch(arrays, schema=pa.schema([f.with_nullable(True) for f in schema]))


def refuse_other_columns(names: list[str], first: list[str], shown: str) -> None:
    """DataError if a file has other columns than the first."""
    missing, new = [n for n in first if n not in names], [n for n in names if n not in first]
    if missing:
        raise DataError(f"{shown}: there is no column {missing[0]}, which the first file has")
    if new:
        raise DataError(f"{shown}: column {new[0]} is not in the first file")
    if len(set(names)) != len(names):
        raise DataError(f"{shown}: two columns are called {next(n for n in names if names.count(n) > 1)}")


class Facts(NamedTuple):
    """What files of records say of themselves."""

    rows: int
    groups: int
    compression: list[str]


def stored_facts(parts: list[Part], format: str) -> Facts:
    rows = groups = 0
    codecs: set[str] = set()
    for part in parts:
        if format == "parquet":
            with open_parquet(part) as file:
                rows += file.metadata.num_rows
                groups += file.metadata.num_row_groups
                for k in range(min(file.metadata.num_row_groups, 1)):
                    group = file.metadata.row_group(k)
                    codecs |= {group.column(j).compression.lower() for j in range(group.num_columns)}
        else:
            for piece in arrow_pieces(part, [], 1 << 40):
                rows += piece.record.num_rows
                groups += 1
    return Facts(rows, groups, sorted(codecs))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


# CSV.


def csv_schema(
    text: bytes, names: list[str], delimiter: int, quote: int, header: bool, wanted: Wanted, decimal: int = POINT
) -> pa.Schema:
    """A type for each column: what all of its first values are, and a text if that is nothing special."""
    rows = first_fields(text, delimiter, quote, header)
    fields = []
    for place, name in enumerate(names):
        values = {row[place] for row in rows if place < len(row) and row[place]}
        values = {plain_number(value) for value in values} if decimal == COMMA else values
        fields.append(pa.field(name, wanted.kind(name) or _csv_type(values)))
    return pa.schema(fields)


def _csv_type(values: set[str]) -> pa.DataType:
    for number, (pattern, kind) in enumerate(_TYPES):
        patterns = [pattern, _TYPES[0][0]] if number == 1 else [pattern]
        if values and all(any(one.fullmatch(value) for one in patterns) for value in values):
            fits = number > 0 or all(-(1 << 63) <= int(value) < 1 << 63 for value in values)
            return kind if fits else pa.string()
    return pa.string()


class CsvTable:
    """Blocks of CSV as records."""

    def __init__(self, schema: pa.Schema, delimiter: int, quote: int, decimal: int = POINT) -> None:
        self.schema = schema
        self._decimal = chr(decimal)
        self._delimiter = chr(delimiter)
        self._quote = chr(quote) if quote >= 0 else False

    def record(self, text: memoryview, names: list[str]) -> tuple[pa.RecordBatch, list[BadRow]]:
        """The good rows of a block, whose columns are in the order of `names`, and what is wrong with others."""
        bad: list[BadRow] = []
        if not len(text) or not bytes(text[:4096]).strip(b"\r\n") and not bytes(text).strip(b"\r\n"):
            return no_rows(self.schema), bad
        try:
            return self._read(text, names, dict(zip(self.schema.names, self.schema.types, strict=True)), bad), bad
        except (pa.ArrowException, ValueError):
            bad.clear()
        try:
            texts = self._read(text, names, dict.fromkeys(self.schema.names, pa.string()), bad)
        except (pa.ArrowException, ValueError) as error:
            raise DataError(f"cannot read this as CSV: {_one_line(error)}") from error
        return self._converted(texts, bad)

    def _read(
        self, text: memoryview, names: list[str], types: dict[str, pa.DataType], bad: list[BadRow]
    ) -> pa.RecordBatch:
        def odd(row: Any) -> str:
            bad.append(BadRow((row.number or 1) - 1, f"the row has {row.actual_columns} fields, not {len(names)}"))
            return "skip"

        table = pyarrow.csv.read_csv(
            pa.BufferReader(pa.py_buffer(text)),
            pyarrow.csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=names),
            pyarrow.csv.ParseOptions(
                delimiter=self._delimiter, quote_char=self._quote, newlines_in_values=True, invalid_row_handler=odd
            ),
            pyarrow.csv.ConvertOptions(
                column_types=types,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=["true"],
                false_values=["false"],
                decimal_point=self._decimal,
                include_columns=self.schema.names,
            ),
        )
        return table.combine_chunks().to_batches()[0] if len(table) else no_rows(table.schema)

    def _converted(self, texts: pa.RecordBatch, bad: list[BadRow]) -> tuple[pa.RecordBatch, list[BadRow]]:
        """Texts as what the schema says. Words such as NA stand for numbers that are missing."""
        arrays: list[pa.Array] = []
        wrong: dict[int, str] = {}
        absent = pa.array(MISSING_WORDS)
        for field, array in zip(self.schema, texts.columns, strict=True):
            if not pa.types.is_string(field.type):
                array = pc.utf8_trim_whitespace(array)
                array = pc.if_else(pc.is_in(array, absent), None, array)
                if self._decimal == "," and pa.types.is_floating(field.type):
                    array = pa.array([None if text is None else plain_number(text) for text in array.to_pylist()])
                array, unfit = _cast(array, field.type)
                for row, value in unfit:
                    hint = _TYPE_HINT.format("categorical", field.name, "texts")
                    wrong.setdefault(row, f"column {field.name}: {value[:60]!r} is not {_NAMES[field.type]}, {hint}")
            arrays.append(array)
        record = pa.record_batch(arrays, schema=self.schema)
        if wrong:
            record = record.take(pa.array([row for row in range(len(record)) if row not in wrong], pa.int64()))
            before = [row.line for row in bad]  # rows that are not among the texts
            for row, message in wrong.items():
                bad.append(BadRow(row + sum(line <= row for line in before), message))
            bad.sort()
        return record, bad


_NAMES = {
    pa.int64(): "a whole number",
    pa.float64(): "a number",
    pa.bool_(): "true or false",
    pa.date32(): "a date",
    pa.timestamp("us"): "a time",
}


def _cast(texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, list[tuple[int, str]]]:
    """Texts as values of a kind, and those that are none."""
    try:
        return texts.cast(kind), []
    except pa.ArrowException:
        pass
    values, unfit = texts.to_pylist(), []
    for row, value in enumerate(values):
        try:
            pa.scalar(value, pa.string()).cast(kind)
        except pa.ArrowException:
            unfit.append((row, value))
            values[row] = None
    return pa.array(values, pa.string()).cast(kind), unfit


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)


def csv_names(text: bytes, delimiter: int, quote: int) -> tuple[list[str], int, int]:
    """The names in the header of a file, and how many bytes and lines it takes."""
    return first_row(text, delimiter, quote)


# JSON lines.


def json_schema(text: bytes, shown: str, wanted: Wanted) -> pa.Schema:
    """A type for each field: that of its first values, and a text where they have no type in common."""
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(first_lines(text), 1):
        try:
            found = json.loads(line)
            if not isinstance(found, dict):
                raise ValueError
            rows.append(found)
        except (ValueError, RecursionError):
            if number == 1:
                raise DataError(f"{shown}:1: this is not a JSON object: {line[:60]!r}") from None
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.schema([(n, wanted.kind(n) or _json_type([row.get(n) for row in rows])) for n in names])


def _json_type(values: list[Any]) -> pa.DataType:
    try:
        return _without_nulls(pa.array(values).type)
    except (pa.ArrowException, OverflowError):
        return pa.string()


def _without_nulls(kind: pa.DataType) -> pa.DataType:
    """The type with texts where nothing is known yet."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _without_nulls(field.type)) for field in kind])
    if is_list(kind):
        return pa.list_(_without_nulls(kind.value_type))
    return pa.string() if pa.types.is_null(kind) else kind


class JsonTable:
    """Blocks of JSON lines as records."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def record(self, text: memoryview) -> tuple[pa.RecordBatch, list[BadRow]]:
        """The good lines of a block, and what is wrong with the others."""
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(pa.py_buffer(text)),
                pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
                pyarrow.json.ParseOptions(explicit_schema=self.schema, unexpected_field_behavior="error"),
            ).select(self.schema.names)
            return table.combine_chunks().to_batches()[0] if len(table) else no_rows(self.schema), []
        except (pa.ArrowException, ValueError, KeyError):
            return self._line_by_line(bytes(text))

    def _line_by_line(self, text: bytes) -> tuple[pa.RecordBatch, list[BadRow]]:
        rows, bad = [], []
        whole = pa.struct(list(self.schema))
        for number, line in enumerate(text.removeprefix(b"\xef\xbb\xbf").split(b"\n")):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
                if not isinstance(value, dict):
                    raise ValueError("this is not a JSON object")
                rows.append(_fitted(value, whole, ""))
            except (ValueError, RecursionError) as error:
                bad.append(BadRow(number, _one_line(error) + ("" if str(error).startswith("field") else _shown(line))))
        return pa.RecordBatch.from_pylist(rows, schema=self.schema), bad


def _shown(line: bytes) -> str:
    return f": {line[:60].decode('utf-8', 'replace')!r}"


def _fitted(value: Any, kind: pa.DataType, name: str) -> Any:
    """A value as its column has it; ValueError if that cannot be."""
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, dict):
        types = {field.name: field.type for field in kind}
        for key in value:
            if key not in types:
                new = f"{name}.{key}".lstrip(".")
                raise ValueError(f"field {new} is in none of the first rows; put a row with all fields first")
        return {key: _fitted(value[key], types[key], f"{name}.{key}".lstrip(".")) for key in value}
    if is_list(kind) and isinstance(value, list):
        return [_fitted(item, kind.value_type, name) for item in value]
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if pa.types.is_floating(kind) and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if pa.types.is_integer(kind) and isinstance(value, (int, float)) and not isinstance(value, bool):
        if float(value).is_integer() and abs(value) < 1 << 63:
            return int(value)
        raise ValueError(
            f"field {name}: {value} is not a whole number, {_TYPE_HINT.format('numeric', name, 'numbers')}"
        )
    if pa.types.is_boolean(kind) and isinstance(value, bool):
        return value
    raise ValueError(f"field {name}: {json.dumps(value)[:60]} is not {kind}, as the first rows have it")
