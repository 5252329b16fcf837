"""Columns of Arrow records to text: lines of CSV, of JSON and of VW text, whole columns at a time.

Each column becomes an array of strings, and Arrow joins those of a row. A number has the fewest digits that give it
back. Whole numbers of a column with fractions keep their point (7.0), so that whoever reads them sees what they are.
"""

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.errors import DataError
from streamsvm.io.arrow_cells import column_of, is_bytes, is_list, numbers_of
from streamsvm.io.sampling import leaves

_SPECIAL = r'["\\\x00-\x1f]'  # in a JSON string
_FORBIDDEN = r"[ \t:|\r\n]"  # in names and values of VW text
INFINITE = "1e999"  # JSON has no word for it, but this is read as infinite


def bytes_of(texts: pa.Array) -> memoryview:
    """The bytes of an array of strings, one after the other."""
    if not len(texts):
        return memoryview(b"")
    _, offsets, data = texts.buffers()
    wide = pa.types.is_large_string(texts.type)
    ends = np.frombuffer(offsets, np.int64 if wide else np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return memoryview(data)[int(ends[0]) : int(ends[-1])] if data is not None else memoryview(b"")


def joined(*parts: Any) -> pa.Array:
    """Texts put together row by row; where one is missing, the row is missing."""
    return pc.binary_join_element_wise(*parts, "")


def plain(array: pa.Array) -> pa.Array:
    """Without dictionary, run lengths, or views."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return plain(array.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return plain(pc.run_end_decode(array))
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return array.cast(pa.string())
    return array


def simple_texts(array: pa.Array, name: str) -> pa.Array:
    """Numbers, texts and times as strings, null where they are missing; not a number is missing too."""
    array = plain(array)
    kind = array.type
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.string())
    if pa.types.is_floating(kind):
        return _fraction_texts(array)
    if pa.types.is_duration(kind):
        array = array.cast(pa.int64())
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid as error:
        if not is_bytes(kind):
            raise
        raise DataError(f"column {name} has bytes that are no text (UTF-8)") from error
    except pa.ArrowNotImplementedError as error:
        raise DataError(f"column {name}: {kind} cannot be written as text") from error


def _fraction_texts(array: pa.Array) -> pa.Array:
    texts = (array.cast(pa.float32()) if pa.types.is_float16(array.type) else array).cast(pa.string())
    nan = pc.is_nan(array)
    if pc.any(nan).as_py():
        texts = pc.if_else(nan, None, texts)
    whole = pc.match_substring_regex(texts, "^-?[0-9]+$")
    return pc.if_else(whole, joined(texts, ".0"), texts) if pc.any(whole).as_py() else texts


def _is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind))


# CSV.


def csv_header(names: list[str], delimiter: str) -> bytes:
    fields = _quoted(pa.array(names, pa.string()), delimiter).to_pylist()
    return (delimiter.join(fields) + "\n").encode()


def csv_columns(schema: pa.Schema) -> list[str]:
    """The columns of a schema for CSV, nested ones with dotted names; DataError where one is a list."""
    found = leaves(schema)
    for name, kind in found:
        if _is_nested(kind):
            raise DataError(f"column {name} holds lists, which CSV cannot have; write jsonl, parquet or arrow instead")
    names = [name for name, _ in found]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"two columns would be called {twice}")
    return names


def csv_lines(record: pa.RecordBatch, columns: list[str], delimiter: str) -> memoryview:
    fields = []
    for name in columns:
        array = column_of(record, name)
        assert array is not None
        texts = simple_texts(array, name)
        fields.append((_quoted(texts, delimiter) if _may_need_quotes(array.type) else texts).fill_null(""))
    if len(fields) == 1:  # an empty line would be no row
        fields = [pc.if_else(pc.equal(fields[0], ""), '""', fields[0])]
    lines = pc.binary_join_element_wise(*fields, delimiter) if len(fields) > 1 else fields[0]
    return bytes_of(joined(lines, "\n"))


def _may_need_quotes(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _may_need_quotes(kind.value_type)
    return not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _quoted(texts: pa.Array, delimiter: str) -> pa.Array:
    """Texts in quotes where they need them; empty ones have them too, because without quotes they are missing."""
    special = pc.or_(pc.match_substring_regex(texts, f'["\r\n{re.escape(delimiter)}]'), pc.equal(texts, ""))
    if not pc.any(special).as_py():
        return texts
    return pc.if_else(special, joined('"', pc.replace_substring(texts, '"', '""'), '"'), texts)


# JSON lines.


def json_lines(record: pa.RecordBatch) -> memoryview:
    fields = list(zip(record.schema.names, record.columns, strict=True))
    return bytes_of(joined(_object_texts(fields, len(record), ""), "\n"))


def _object_texts(fields: list[tuple[str, pa.Array]], rows: int, above: str) -> pa.Array:
    parts: list[Any] = []
    for number, (name, array) in enumerate(fields):
        parts += ["," if number else "{", f"{json.dumps(name, ensure_ascii=False)}:", _json_texts(array, above + name)]
    return joined(*parts, "}") if parts else pa.array(["{}"] * rows, pa.string())


def _json_texts(array: pa.Array, name: str) -> pa.Array:
    """JSON values; none is missing, they are null instead."""
    array = plain(array)
    kind = array.type
    if pa.types.is_struct(kind):
        fields = list(zip([field.name for field in kind], array.flatten(), strict=True))
        texts = _object_texts(fields, len(array), f"{name}.")
        return pc.if_else(array.is_null(), "null", texts) if array.null_count else texts
    if is_list(kind):
        items = joined_lists(array, _json_texts(array.flatten(), name), ",")
        return joined("[", items, "]").fill_null("null")
    if _is_nested(kind):
        return pa.array([json.dumps(value, default=str, ensure_ascii=False) for value in array.to_pylist()])
    texts = simple_texts(array, name)
    if pa.types.is_floating(kind):
        infinite = pc.is_inf(array)
        if pc.any(infinite).as_py():
            texts = pc.if_else(infinite, pc.if_else(pc.greater(array, 0), INFINITE, f"-{INFINITE}"), texts)
    elif not (pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind)):
        texts = texts if pa.types.is_duration(kind) else _json_strings(texts)
    return texts.fill_null("null")


def _json_strings(texts: pa.Array) -> pa.Array:
    special = pc.match_substring_regex(texts, _SPECIAL)
    quoted = joined('"', texts, '"')
    if not pc.any(special).as_py():
        return quoted
    mask = special.fill_null(False)
    escaped = [json.dumps(text, ensure_ascii=False) for text in texts.filter(mask).to_pylist()]
    return pc.replace_with_mask(quoted, mask, pa.array(escaped, pa.string()))


def joined_lists(lists: pa.Array, items: pa.Array, between: str) -> pa.Array:
    """The texts of the items of each list, joined; missing where the list is."""
    lengths = pc.list_value_length(lists)
    offsets = np.concatenate([[0], np.cumsum(lengths.fill_null(0).to_numpy())]).astype(np.int32)
    texts = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), items.fill_null("")), between)
    return pc.if_else(lengths.is_null(), None, texts) if lengths.null_count else texts


# VW text.


def vw_name(name: str) -> str:
    """A name as VW text can have it."""
    return re.sub(_FORBIDDEN, "_", name) or "_"


def vw_numbers(array: pa.Array, name: str) -> pa.Array:
    """` name:number` of each row, nothing where it is missing; DataError where one is infinite."""
    return joined(f" {vw_name(name)}:", _finite(array, name)).fill_null("")


def vw_words(array: pa.Array, name: str) -> pa.Array:
    """` name=value` of each row, or of each item of a list; nothing where it is missing."""
    array = plain(array)
    if is_list(array.type):
        return joined_lists(array, vw_words(array.flatten(), name), "").fill_null("")
    texts = pc.replace_substring_regex(simple_texts(array, name), _FORBIDDEN, "_")
    return pc.if_else(pc.equal(texts, ""), "", joined(f" {vw_name(name)}=", texts)).fill_null("")


def vw_vector(array: pa.Array, name: str) -> pa.Array:
    """` name[0]:number name[1]:number ...` of each row."""
    array = plain(array)
    lengths = pc.list_value_length(array).fill_null(0).to_numpy()
    places = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    names = pa.array([f" {vw_name(name)}[{k}]:" for k in range(int(lengths.max(initial=0)))], pa.string())
    return joined_lists(array, joined(names.take(pa.array(places)), _finite(array.flatten(), name)), "").fill_null("")


def vw_text(array: pa.Array, name: str) -> pa.Array:
    """` |name words of a text` of each row."""
    texts = pc.replace_substring_regex(simple_texts(array, name), "[:|]", "_")
    return joined(f" |{vw_name(name)} ", pc.replace_substring_regex(texts, r"[\s]+", " ")).fill_null("")


def _finite(array: pa.Array, name: str) -> pa.Array:
    """Texts of numbers, of those too that are texts or truth values."""
    array = plain(array)
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type) or pa.types.is_null(array.type)):
        array = pa.array(numbers_of(array, name), from_pandas=True)
    if pa.types.is_floating(array.type) and pc.any(pc.is_inf(array)).as_py():
        raise DataError(f"column {name}: numbers must be finite")
    return simple_texts(array, name)


def vw_labels(array: pa.Array, name: str, classes: tuple[str, ...] | None) -> pa.Array:
    """The label of each row as a number: of a label that is a text, its place among the classes."""
    array = plain(array)
    if classes is not None:
        return pc.index_in(simple_texts(array, name), pa.array(classes, pa.string())).cast(pa.string())
    return pc.replace_substring_regex(_finite(array, name), r"\.0$", "")


def vw_weights(array: pa.Array, name: str) -> pa.Array:
    """` weight` of each row, nothing where it is 1."""
    texts = pc.replace_substring_regex(_finite(array, name), r"\.0$", "")
    return pc.if_else(pc.equal(texts, "1"), "", joined(" ", texts))


def vw_pairs(indices: pa.Array, values: pa.Array | None, name: str) -> pa.Array:
    """` index:value` of each item of two lists."""
    texts = simple_texts(plain(indices).flatten(), name)
    if values is not None:
        texts = joined(texts, ":", _finite(plain(values).flatten(), name))
    return joined_lists(plain(indices), joined(" ", texts), "").fill_null("")


def missing_rows(texts: pa.Array) -> list[int]:
    """The rows that have no text."""
    found: list[int] = (
        np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False)).tolist() if texts.null_count else []
    )
    return found


def without_missing(texts: pa.Array) -> pa.Array:
    return texts.drop_null() if texts.null_count else texts
