"""Arrow record batches to cells: every Arrow type that can be a number, a category, a text or a list of them.

Strings are hashed where they lie, in Arrow's own buffers. Of dictionary-encoded columns each value is hashed once, and
once only while the batches of a file share their dictionary. A type that cannot be a feature is refused, naming the
column and what to do; a value that is wrong by itself, such as a text that is no number, is a fault of its row.
"""

import decimal
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.batch import Bytes, Float32s
from streamsvm.cells import (
    INDICES,
    LARGEST_WHOLE,
    MISSING_WORDS,
    NUMBER,
    NUMBERS,
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
from streamsvm.io.parsed import quoted
from streamsvm.jit import kernel

Spans = tuple[Int32s, Int32s, Bytes]
Dictionary = tuple[Any, Uint32s]
Wrong = list[tuple[int, str]]  # rows, or items of lists, and what is wrong with them
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_BLANK = " \t\n\v\f\r"


class ArrowCells:
    """Fills cells from record batches; several threads may, each its own cells."""

    def __init__(self, wants: tuple[Want, ...], optional: frozenset[str] = frozenset()) -> None:
        self.wants = wants
        self._optional = optional  # columns that may be absent
        self._hashed: dict[int, Dictionary] = {}  # the last dictionary of each want, and its words

    def fill(self, record: pa.RecordBatch, cells: Cells) -> Wrong:
        """The cells of all rows of a record batch; which rows have values that will not do."""
        rows = record.num_rows
        wrong: Wrong = []
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
                wrong += self._fill(place, want, array, cells)
            except (pa.ArrowException, OverflowError, IndexError, ValueError) as error:
                raise DataError(f"column {want.name}: {' '.join(str(error).split())[:200]}") from error
        return wrong

    def _fill(self, place: int, want: Want, array: pa.Array, cells: Cells) -> Wrong:
        slot, rows = int(cells.slots[place]), cells.rows
        wrong: Wrong = []
        if want.kind == NUMBER:
            cells.numbers[slot, :rows], wrong = checked_numbers(array, want.name)
        elif want.kind == WORD:
            cells.words[slot, :rows] = self._words(place, want, array)
            if cells.spelled_slots[place] >= 0:
                _set_spans(cells, int(cells.spelled_slots[place]), spelled(array, want))
        elif want.kind == TEXT:
            _set_spans(cells, slot, spelled(array, want))
        else:
            starts, lengths, data, wrong = self._items(place, want, array)
            _set_spans(cells, slot, (starts, lengths, data))
        return wrong

    def _words(self, place: int, want: Want, array: pa.Array) -> Uint32s:
        if pa.types.is_null(array.type):
            return np.zeros(len(array), np.uint32)
        if not pa.types.is_dictionary(array.type):
            if _is_text(array.type) and not want.number:
                return hashed(array, want.seed)
            if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
                return hashed(array.cast(pa.string()), want.seed)
            array = array.dictionary_encode()
        if array.indices.null_count == len(array):  # the dictionary may be empty
            return np.zeros(len(array), np.uint32)
        words = self._dictionary_words(place, want, array.dictionary)
        found = np.empty(len(array), np.uint32)
        codes = array.indices.fill_null(0) if array.indices.null_count else array.indices
        if not look_up(words, codes.to_numpy(zero_copy_only=False), found):
            raise IndexError("a value is not in the dictionary")
        if array.indices.null_count:
            found[~_valid(array.indices)] = MISSING
        return found

    def _dictionary_words(self, place: int, want: Want, values: pa.Array) -> Uint32s:
        known = self._hashed.get(place)
        if known is not None and _same(known[0], values):
            return known[1]
        if _is_text(values.type) and not want.number:
            words = hashed(values, want.seed)
        else:
            words = np.array([word_from(text, want.seed) for text in categories(values, want)], np.uint32)
        self._hashed[place] = values, words
        return words

    def _items(self, place: int, want: Want, array: pa.Array) -> tuple[Int32s, Int32s, npt.NDArray[Any], Wrong]:
        """The items of a list column, one after the other, and where those of each row are."""
        if pa.types.is_null(array.type):
            none = np.zeros(len(array), np.int32)
            return none, none, np.empty(0, np.float32 if want.kind == NUMBERS else np.uint32), []
        if not is_list(array.type):
            offsets, items = np.arange(len(array) + 1, dtype=np.int32), array
            lengths = np.where(_valid(array), 1, 0).astype(np.int32)
        else:
            if pa.types.is_fixed_size_list(array.type):
                array = array.cast(pa.list_(array.type.value_type))
            offsets = array.offsets.to_numpy()
            _refuse_damaged(offsets, len(array.values))
            items = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
            offsets = (offsets - offsets[0]).astype(np.int32)
            lengths = np.where(_valid(array), np.diff(offsets), 0).astype(np.int32)
        if want.kind == WORDS:
            return offsets[:-1], lengths, self._words(place, want, items), []
        found, wrong = indices_of(items, want.name) if want.kind == INDICES else checked_numbers(items, want.name)
        dtype = np.uint32 if want.kind == INDICES else np.float32
        return offsets[:-1], lengths, found.astype(dtype, copy=False), _wrong_rows(wrong, offsets, lengths)


def _wrong_rows(wrong: Wrong, offsets: Int32s, lengths: Int32s) -> Wrong:
    """The rows of items that are wrong; what lies behind a list that is null is nobody's."""
    rows = [(int(np.searchsorted(offsets, item, "right")) - 1, message) for item, message in wrong]
    return [(row, message) for row, message in rows if lengths[row]]


def _refuse_damaged(offsets: npt.NDArray[Any], size: int) -> None:
    """Kernels believe what offsets say: refuse those that lead out of the data."""
    if len(offsets) and (offsets[0] < 0 or offsets[-1] > size or (offsets[1:] < offsets[:-1]).any()):
        raise DataError("the file is damaged: offsets lead out of the data")


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
    """The numbers of a column, NaN where there is none; DataError if a text is no number."""
    numbers, wrong = checked_numbers(array, name)
    if wrong:
        raise DataError(wrong[0][1])
    return numbers


def checked_numbers(array: pa.Array, name: str) -> tuple[npt.NDArray[Any], Wrong]:
    """The numbers of a column, NaN where there is none; rounded to double, then to single, as those of a text are."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        array, kind = array.dictionary_decode(), kind.value_type
    if pa.types.is_null(kind):
        return np.full(len(array), np.nan, np.float32), []
    if pa.types.is_temporal(kind):
        raise DataError(f"column {name}: {kind} is no number; {TIME_HINT}")
    if _is_text(kind):
        return _spelled_numbers(array, name)
    if pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
    elif pa.types.is_decimal(kind):
        array = array.cast(pa.string()).cast(pa.float64())  # at once it would not be the nearest double
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise DataError(f"column {name}: {kind} is no number")
    with np.errstate(over="ignore"):  # an infinity is refused later
        found: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
        if found.dtype in (np.int64, np.uint64):
            found = found.astype(np.float64)
        return found.astype(np.float32) if found.dtype == np.float64 else found, []


TIME_HINT = "name it in features.ignore, or make columns of the parts that matter, such as the hour or the weekday"


def _spelled_numbers(array: pa.Array, name: str) -> tuple[Float32s, Wrong]:
    """Numbers that are texts, as a file of texts would have them."""
    known = {"": np.nan, "true": 1.0, "false": 0.0, **dict.fromkeys(MISSING_WORDS, np.nan)}
    encoded = array.cast(pa.large_binary()).dictionary_encode()
    numbers = np.full(len(encoded.dictionary) + 1, np.nan, np.float32)
    bad: dict[int, str] = {}
    for k, spelled in enumerate(encoded.dictionary.to_pylist()):
        text = spelled.decode("utf-8", "backslashreplace").strip(_BLANK)
        with np.errstate(over="ignore"):
            if text in known or text.lower() in ("true", "false"):
                numbers[k] = known.get(text, known.get(text.lower()))
            elif _NUMBER.fullmatch(text):
                numbers[k] = np.float32(float(text))
            else:
                bad[k] = f"column {name}: {quoted(text)} is not a number"
    codes = encoded.indices.fill_null(len(numbers) - 1).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(np.isin(codes, list(bad))) if bad else ()
    return np.asarray(numbers[codes]), [(int(row), bad[int(codes[row])]) for row in rows]


def indices_of(array: pa.Array, name: str) -> tuple[npt.NDArray[Any], Wrong]:
    if not pa.types.is_integer(array.type):
        raise DataError(f"column {name}: indices are whole numbers, not {array.type}")
    valid = _valid(array)
    found = (array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False)
    if valid.all() and (not len(found) or (found.min() >= 0 and found.max() <= 0xFFFFFFFF)):
        return found, []
    bad = ~valid | (found < 0) | (found > 0xFFFFFFFF)
    message = f"column {name}: {{}} is not an index: a whole number from 0 to 2^32 - 1"
    wrong = [(int(k), message.format(found[k] if valid[k] else "null")) for k in np.flatnonzero(bad)]
    return np.where(bad, 0, found), wrong


def categories(values: pa.Array, want: Want) -> list[bytes]:
    """The texts of values that are categories."""
    kind = values.type
    if _is_text(kind):
        found = values.cast(pa.large_binary()).to_pylist()
    elif pa.types.is_float16(kind) or pa.types.is_float32(kind):
        found = [_as_written(value, np.dtype(kind.to_pandas_dtype()).type) for value in values.to_pylist()]
    else:
        found = values.to_pylist()
    return [category(value, want) for value in found]


def _as_written(value: float | None, precision: Any) -> float | None:
    """The number that a text has for one of less than double precision: 0.1 is written 0.1 in all of them."""
    if value is None or (abs(value) <= LARGEST_WHOLE and value == int(value)):
        return value
    return float(str(precision(value)))


def category(value: Any, want: Want) -> bytes:
    """The text of a value that is a category."""
    if value is None:
        return b""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, bytes):
        text = value.decode("utf-8", "surrogateescape")
        return category_text(text).encode("utf-8", "surrogateescape") if want.number else value
    if isinstance(value, decimal.Decimal):
        value = int(value) if value == int(value) else float(value)
    if not isinstance(value, (int, float)):
        raise DataError(f"column {want.name}: {type(value).__name__} cannot be a category; {TIME_HINT}")
    return number_text(value).encode()


def spelled(array: pa.Array, want: Want) -> Spans:
    """The texts of a column."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.int32), np.zeros(len(array), np.int32), np.empty(0, np.uint8)
    if want.kind == TEXT and pa.types.is_temporal(kind):
        array = iso_texts(array) if want.date else array.cast(pa.string())
    elif not _is_text(kind) or (want.number and want.kind == WORD):
        array = pa.array(categories(array, want), pa.large_binary())
    return spans_of(array)


def iso_texts(array: pa.Array) -> pa.Array:
    """Dates and times as ISO has them: those with a time zone as a clock there shows them."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_timestamp(array.type) and array.type.tz is not None:
        array = pc.local_timestamp(array)
    return array.cast(pa.string())


def spans_of(array: pa.Array) -> Spans:
    """Starts, lengths and bytes of an array of strings, without copying them; nulls have no length."""
    if not len(array):
        return np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.uint8)
    kind = array.type
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    if not (wide or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        array = array.cast(pa.large_binary())
        wide = True
    _, offsets, data = array.buffers()
    count = array.offset + len(array) + 1
    ends = np.frombuffer(offsets, np.int64 if wide else np.int32, count)[array.offset :]
    _refuse_damaged(ends, data.size if data is not None else 0)
    first = int(ends[0])
    text = np.frombuffer(data, np.uint8)[first:] if data is not None and data.size else np.empty(0, np.uint8)
    if int(ends[-1]) - first >= 1 << 31:
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


@kernel
def look_up(words, codes, out):
    """The word of each code; whether all codes are there."""
    sound = True
    for i in range(len(codes)):
        code = np.uint64(codes[i])
        known = code < np.uint64(len(words))
        sound &= known
        out[i] = words[code] if known else MISSING
    return sound
