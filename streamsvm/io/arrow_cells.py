"""Arrow record batches to cells: every Arrow type that can be a number, a category, a text or a list of them.

Strings are hashed where they lie, in Arrow's own buffers. Of dictionary-encoded columns each value is hashed once, and
once only while the batches of a file share their dictionary. Everything that cannot be a feature is refused, naming the
column and what to do.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.batch import Bytes, Float32s
from streamsvm.cells import (
    INDICES,
    NUMBER,
    TEXT,
    WORD,
    WORDS,
    Cells,
    Int32s,
    Uint32s,
    Want,
    category_text,
    number_text,
)
from streamsvm.errors import DataError
from streamsvm.hashing import MISSING, word_from, word_of
from streamsvm.jit import kernel

Spans = tuple[Int32s, Int32s, Bytes]
Dictionary = tuple[Any, Uint32s]


class ArrowCells:
    """Fills cells from record batches; several threads may, each its own cells."""

    def __init__(self, wants: tuple[Want, ...], optional: frozenset[str] = frozenset()) -> None:
        self.wants = wants
        self._optional = optional  # columns that may be absent
        self._hashed: dict[int, Dictionary] = {}  # the last dictionary of each want, and its words

    def fill(self, record: pa.RecordBatch, cells: Cells) -> None:
        """The cells of all rows of a record batch."""
        rows = record.num_rows
        cells.reserve(rows)
        cells.rows = rows
        cells.lines[:rows] = np.arange(rows)
        for place, want in enumerate(self.wants):
            array = column_of(record, want.name)
            if array is None:
                if want.name not in self._optional:
                    raise DataError(f"there is no column {want.name} (there are {_names(record.schema)})")
                array = pa.nulls(rows)
            try:
                self._fill(place, want, array, cells)
            except (pa.ArrowException, OverflowError) as error:
                raise DataError(f"column {want.name}: {' '.join(str(error).split())[:200]}") from error

    def _fill(self, place: int, want: Want, array: pa.Array, cells: Cells) -> None:
        slot, rows = int(cells.slots[place]), cells.rows
        if want.kind == NUMBER:
            cells.numbers[slot, :rows] = numbers_of(array, want.name)
        elif want.kind == WORD:
            cells.words[slot, :rows] = self._words(place, want, array)
            if cells.spelled_slots[place] >= 0:
                _set_spans(cells, int(cells.spelled_slots[place]), spelled(array, want))
        elif want.kind == TEXT:
            _set_spans(cells, slot, spelled(array, want))
        else:
            _set_spans(cells, slot, self._items(place, want, array))

    def _words(self, place: int, want: Want, array: pa.Array) -> Uint32s:
        if pa.types.is_null(array.type):
            return np.zeros(len(array), np.uint32)
        if not pa.types.is_dictionary(array.type):
            if _is_text(array.type) and not want.number:
                return hashed(array, want.seed)
            if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
                return hashed(array.cast(pa.string()), want.seed)
            array = array.dictionary_encode()
        words = np.append(self._dictionary_words(place, want, array.dictionary), np.uint32(MISSING))
        codes = array.indices.fill_null(len(words) - 1) if array.indices.null_count else array.indices
        return np.asarray(words[codes.to_numpy(zero_copy_only=False)])

    def _dictionary_words(self, place: int, want: Want, values: pa.Array) -> Uint32s:
        known = self._hashed.get(place)
        if known is not None and _same(known[0], values):
            return known[1]
        if _is_text(values.type) and not want.number:
            words = hashed(values, want.seed)
        else:
            texts = [category(value, want) for value in values.to_pylist()]
            words = np.array([word_from(text, want.seed) for text in texts], np.uint32)
        self._hashed[place] = values, words
        return words

    def _items(self, place: int, want: Want, array: pa.Array) -> tuple[Int32s, Int32s, npt.NDArray[Any]]:
        """The items of a list column, one after the other, and where those of each row are."""
        if pa.types.is_null(array.type):
            return np.zeros(len(array), np.int32), np.zeros(len(array), np.int32), np.empty(0, np.float32)
        if not is_list(array.type):
            offsets, items = np.arange(len(array) + 1, dtype=np.int32), array
            lengths = np.where(_valid(array), 1, 0).astype(np.int32)
        else:
            if pa.types.is_fixed_size_list(array.type):
                array = array.cast(pa.list_(array.type.value_type))
            offsets = array.offsets.to_numpy()
            items = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
            offsets = (offsets - offsets[0]).astype(np.int32)
            lengths = np.where(_valid(array), np.diff(offsets), 0).astype(np.int32)
        if want.kind == WORDS:
            return offsets[:-1], lengths, self._words(place, want, items)
        if want.kind == INDICES:
            return offsets[:-1], lengths, indices_of(items, want.name)
        return offsets[:-1], lengths, numbers_of(items, want.name).astype(np.float32, copy=False)


def column_of(record: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column, or the field of a nested one that a dotted name leads to; None if there is none, or several."""
    found = record.schema.get_all_field_indices(name)
    if len(found) == 1:
        return record.column(found[0])
    parent, _, child = name.rpartition(".")
    above = column_of(record, parent) if parent else None
    if above is None or not pa.types.is_struct(above.type) or above.type.get_field_index(child) < 0:
        return None
    return pc.struct_field(above, above.type.get_field_index(child))


def _names(schema: pa.Schema) -> str:
    names = [field.name for field in schema]
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


def _same(one: pa.Array, other: pa.Array) -> bool:
    """Whether two dictionaries are the same memory."""
    return (
        len(one) == len(other)
        and one.offset == other.offset
        and one.type == other.type
        and [b and b.address for b in one.buffers()] == [b and b.address for b in other.buffers()]
    )


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    simple = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return simple or is_bytes(kind)


def is_bytes(kind: pa.DataType) -> bool:
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return bool(binary or pa.types.is_binary_view(kind))


def _valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    valid: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def numbers_of(array: pa.Array, name: str) -> npt.NDArray[Any]:
    """The numbers of a column, NaN where there is none."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        array, kind = array.dictionary_decode(), kind.value_type
    if pa.types.is_null(kind):
        return np.full(len(array), np.nan, np.float32)
    if pa.types.is_temporal(kind):
        raise DataError(f"column {name}: {kind} is no number; {TIME_HINT}")
    if _is_text(kind):
        return _spelled_numbers(array, name)
    if pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
    elif pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise DataError(f"column {name}: {kind} is no number")
    with np.errstate(over="ignore"):  # an infinity is refused later
        found: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return found.astype(np.float32) if found.dtype == np.float64 else found


TIME_HINT = "name it in features.ignore, or make columns of the parts that matter, such as the hour or the weekday"


def _spelled_numbers(array: pa.Array, name: str) -> Float32s:
    """Numbers that are texts, as a file of texts would have them."""
    from streamsvm.io.csv import MISSING_WORDS

    known: dict[Any, float] = {None: np.nan, "": np.nan, **{word.decode(): np.nan for word in MISSING_WORDS}}
    encoded = array.dictionary_encode()
    numbers = np.empty(len(encoded.dictionary) + 1, np.float32)
    for k, text in enumerate(encoded.dictionary.to_pylist()):
        text = (text.decode("utf-8", "replace") if isinstance(text, bytes) else text).strip()
        try:
            with np.errstate(over="ignore"):
                numbers[k] = known[text] if text in known else float(text)
        except ValueError as error:
            raise DataError(f"column {name}: {text[:60]!r} is not a number") from error
    numbers[-1] = np.nan
    codes = encoded.indices.fill_null(len(numbers) - 1).to_numpy(zero_copy_only=False)
    return np.asarray(numbers[codes])


def indices_of(array: pa.Array, name: str) -> Uint32s:
    if not pa.types.is_integer(array.type):
        raise DataError(f"column {name}: indices are whole numbers, not {array.type}")
    if array.null_count:
        raise DataError(f"column {name}: an index is missing")
    found = array.to_numpy(zero_copy_only=False)
    if len(found) and (found.min() < 0 or found.max() > 0xFFFFFFFF):
        raise DataError(f"column {name}: an index is negative, or does not fit into 32 bits")
    return np.asarray(found, np.uint32)


def category(value: Any, want: Want) -> str | bytes:
    """The text of a value that is a category."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return category_text(value) if want.number else value
    if isinstance(value, bytes):
        return value
    if isinstance(value, (int, float)):
        return number_text(value)
    try:
        return number_text(float(value))
    except (TypeError, ValueError) as error:
        raise DataError(f"column {want.name}: {type(value).__name__} cannot be a category; {TIME_HINT}") from error


def spelled(array: pa.Array, want: Want) -> Spans:
    """The texts of a column."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.int32), np.zeros(len(array), np.int32), np.empty(0, np.uint8)
    if not _is_text(kind) or (want.number and want.kind == WORD):
        array = pa.array([category(value, want) for value in array.to_pylist()], pa.string())
    return spans_of(array)


def spans_of(array: pa.Array) -> Spans:
    """Starts, lengths and bytes of an array of strings, without copying them; nulls have no length."""
    kind = array.type
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    if not (wide or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        array = array.cast(pa.large_binary())
        wide = True
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int64 if wide else np.int32)[array.offset : array.offset + len(array) + 1]
    first = int(ends[0]) if len(ends) else 0
    text = np.frombuffer(data, np.uint8)[first:] if data is not None and data.size else np.empty(0, np.uint8)
    if len(ends) and int(ends[-1]) - first >= 1 << 31:
        raise DataError("more than 2 GB of text in one batch of rows")
    lengths = np.diff(ends).astype(np.int32)
    if array.null_count:
        lengths[~_valid(array)] = 0
    return (ends[:-1] - first).astype(np.int32), lengths, text


def _set_spans(cells: Cells, slot: int, spans: tuple[Int32s, Int32s, npt.NDArray[Any]]) -> None:
    starts, lengths, cells.data[slot] = spans
    cells.starts[slot, : cells.rows] = starts
    cells.lengths[slot, : cells.rows] = lengths


def hashed(array: pa.Array, seed: int) -> Uint32s:
    """The words of an array of strings."""
    words = np.empty(len(array), np.uint32)
    hash_spans(*spans_of(array), np.uint32(seed), words)
    return words


@kernel
def hash_spans(starts, lengths, text, seed, words):
    for i in range(len(starts)):
        words[i] = word_of(text, starts[i], lengths[i], seed)
