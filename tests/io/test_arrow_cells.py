"""Arrow arrays to cells: every type that can be a feature, wherever it lies in memory; and damaged ones."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_twin import category, single, word
from tiers import examples

from streamsvm.cells import INDICES, NUMBER, NUMBERS, TEXT, WORD, WORDS, Cells, Want
from streamsvm.errors import DataError
from streamsvm.hashing import seed_of
from streamsvm.io.arrow_cells import ArrowCells, column_of, numbers_of

SEED = seed_of("a")
KINDS = {NUMBER: "number", WORD: "word", TEXT: "text", NUMBERS: "numbers", WORDS: "words", INDICES: "indices"}


def filled(array, kind: int, *, number: bool = False, name: str = "a", spelled: bool = False):
    """The cells of a column, and which rows are wrong."""
    record = array if isinstance(array, pa.RecordBatch) else pa.record_batch([array], names=[name])
    wants = (Want(name, kind, seed_of(name), number),)
    cells = Cells(wants, spelled=spelled)
    wrong = ArrowCells(wants).fill(record, cells)
    return cells, wrong


def numbers(array) -> list[bytes]:
    cells, wrong = filled(array, NUMBER)
    assert wrong == []
    return [number.tobytes() for number in cells.number(0)]


def words(array, *, number: bool = False) -> list[int]:
    cells, wrong = filled(array, WORD, number=number)
    assert wrong == []
    return cells.word(0).tolist()


def spans(array, kind: int, **options) -> list:
    cells, wrong = filled(array, kind, **options)
    assert wrong == []
    starts, lengths, data = cells.spans(0)
    found = [data[s : s + n] for s, n in zip(starts, lengths, strict=True)]
    return [item.tobytes() for item in found] if kind == TEXT else [item.tolist() for item in found]


def slices(array):
    """The array, and the same values at other offsets of larger arrays."""
    yield array
    double = pa.concat_arrays([array, array])
    yield double.slice(len(array))
    yield pa.concat_arrays([array.slice(len(array) - 1), array, array]).slice(1, len(array))


# Numbers.

WHOLES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


@pytest.mark.parametrize("kind", WHOLES, ids=str)
def test_whole_numbers(kind):
    info = np.iinfo(kind.to_pandas_dtype())
    values = [0, 1, None, 7, int(info.max), int(info.min), int(info.max) - 1, None]
    for array in slices(pa.array(values, kind)):
        assert numbers(array) == [single(value).tobytes() for value in values]
        assert words(array) == words(array, number=True) == [word(category(v, True), SEED) for v in values]
        assert spans(array, TEXT) == [category(value, True).encode() for value in values]
    assert numbers(pa.array(values, kind).dictionary_encode()) == [single(value).tobytes() for value in values]
    assert words(pa.array(values, kind).dictionary_encode()) == [word(category(v, True), SEED) for v in values]


@examples(100)
@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_whole_numbers_are_rounded_as_texts_are(values):
    assert numbers(pa.array(values, pa.int64())) == [np.float32(float(str(value))).tobytes() for value in values]


def test_a_whole_number_between_two_singles():
    """Rounded at once to single it would be another number than by way of double."""
    (found,) = numbers(pa.array([9007199791611905], pa.int64()))
    assert found == np.float32(float("9007199791611905")).tobytes() != np.int64(9007199791611905).astype("f4").tobytes()


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_numbers(kind):
    values = [0.0, -0.0, 1.5, None, float("nan"), -7.0, 0.1, 65504.0]
    array = pa.array(np.array([np.nan if v is None else v for v in values], kind.to_pandas_dtype()), kind)
    with_null = pa.concat_arrays([array, pa.nulls(1, kind)])
    for found in slices(array):
        held = [np.float32(x) for x in array.to_numpy()]
        assert np.array_equal([np.frombuffer(n, "f4")[0] for n in numbers(found)], held, equal_nan=True)
    assert np.isnan(np.frombuffer(numbers(with_null)[-1], "f4")[0])
    expected = [word(category(value, True), SEED) for value in values]  # 0.1 is written so whatever the precision
    assert words(array, number=True) == expected and words(with_null)[-1] == 0


def test_categories_of_any_precision_are_those_of_a_text():
    singles = np.array([0.1, 1 / 3, 1e-20, 3.4e38, 16777216.0, 1e10], np.float32)
    texts = [str(number) for number in singles]
    assert words(pa.array(singles), number=True) == words(pa.array(texts), number=True)
    assert words(pa.array([0.1, 1 / 3, 1e300, 2.0**53, 2.0**54])) == words(
        pa.array(["0.1", repr(1 / 3), "1e300", str(2**53), "18014398509481984.0"]), number=True
    )


def test_infinities_are_left_to_the_assembly():
    assert numbers(pa.array([np.inf, -np.inf, 1e39]))[0] == np.float32(np.inf).tobytes()


@pytest.mark.parametrize("kind", [pa.decimal128(38, 18), pa.decimal256(40, 2), pa.decimal128(5, -1)], ids=str)
def test_decimals(kind):
    texts = (
        ["10", "-70", None, "12340"] if kind.scale < 0 else ["1.50", "-7", None, "0.1", "12345678901234567890.12", "9"]
    )
    if kind.precision == 5:
        kind = pa.decimal128(7, 0)
    values = [None if text is None else decimal.Decimal(text) for text in texts]
    try:
        array = pa.array(values, kind)
    except pa.ArrowInvalid:
        values = [None if v is None else v.quantize(decimal.Decimal("0.01")) for v in values]
        array = pa.array(values, kind)
    assert numbers(array) == [single(None if v is None else float(v)).tobytes() for v in values]
    expected = [None if v is None else int(v) if v == int(v) else float(v) for v in values]
    assert words(array, number=True) == [word(category(v, True), SEED) for v in expected]


@examples(60)
@given(st.lists(st.integers(-(10**37), 10**37), min_size=1))
def test_decimals_are_exact(units):
    values = [decimal.Decimal(unit).scaleb(-18) for unit in units]
    assert numbers(pa.array(values, pa.decimal128(38, 18))) == [single(float(v)).tobytes() for v in values]


def test_truth():
    for array in slices(pa.array([True, None, False, True])):
        assert numbers(array) == [single(v).tobytes() for v in (1, None, 0, 1)]
        assert words(array) == [word(text, SEED) for text in ("true", "", "false", "true")]
        assert spans(array, TEXT) == [b"true", b"", b"false", b"true"]


# Texts.

STRINGS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()]


@pytest.mark.parametrize("kind", [*STRINGS, pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_texts(kind):
    texts = ["a", None, "", "é, zwei", "x" * 40, "7", "07", "a"]
    for array in slices(pa.array(texts, kind)):
        assert words(array) == [word(text or "", SEED) for text in texts]
        assert words(array, number=True) == [word(category(text, True), SEED) for text in texts]
        assert spans(array, TEXT) == [(text or "").encode() for text in texts]
        cells, _ = filled(array, WORD, spelled=True)
        assert [cells.spelled(0, row) for row in range(8)] == [(text or "").encode() for text in texts]
        cells, _ = filled(array, WORD, number=True, spelled=True)
        assert cells.spelled(0, 6) == b"7"


def test_texts_of_one_length():
    array = pa.array([b"abc", None, b"07 "], pa.binary(3))
    assert words(array) == [word(text, SEED) for text in (b"abc", b"", b"07 ")]
    assert words(array, number=True)[2] == word("7", SEED)


@pytest.mark.parametrize("kind", STRINGS, ids=str)
def test_texts_that_are_numbers(kind):
    texts = ["1", " 1.5 ", "", None, "NA", "?", "1e3", "true", "False", "\t7\n", "-0"]
    assert numbers(pa.array(texts, kind)) == [single(text).tobytes() for text in texts]
    assert numbers(pa.array(texts, kind).dictionary_encode() if "view" not in str(kind) else pa.array(texts)) == [
        single(text).tobytes() for text in texts
    ]


@pytest.mark.parametrize("bad", ["x", "inf", "1_0", "１", "NAN", "0x1", "1 2"])
def test_texts_that_are_no_numbers(bad):
    cells, wrong = filled(pa.array(["1", bad, None, bad, "2"]), NUMBER)
    assert wrong == [(row, f"column a: {bad!r} is not a number") for row in (1, 3)]
    assert np.array_equal(cells.number(0), [1, np.nan, np.nan, np.nan, 2], equal_nan=True)
    with pytest.raises(DataError, match="is not a number"):
        numbers_of(pa.array([bad]), "a")


def test_bytes_that_are_no_utf8():
    array = pa.array([b"\xff\xfe", b"7.0", b"\xff1"], pa.binary()).view(pa.string())
    assert words(array) == [word(text, SEED) for text in (b"\xff\xfe", b"7.0", b"\xff1")]
    assert words(array, number=True) == [word(text, SEED) for text in (b"\xff\xfe", b"7", b"\xff1")]
    _, wrong = filled(array, NUMBER)
    assert [row for row, _ in wrong] == [0, 2] and "\\\\xff" in wrong[0][1]


# Dictionaries.


@pytest.mark.parametrize("index, size", [(pa.int8(), 128), (pa.uint8(), 256), (pa.int16(), 300), (pa.int64(), 5)])
def test_full_dictionaries_with_nulls(index, size):
    codes = pa.array([size - 1, None, 0], index)
    array = pa.DictionaryArray.from_arrays(codes, pa.array([f"v{k}" for k in range(size)]))
    assert words(array) == [word(f"v{size - 1}", SEED), 0, word("v0", SEED)]


def test_dictionaries_with_nulls_and_twins_in_them():
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3, None]), pa.array(["a", None, "", "a"]))
    assert words(array) == [word("a", SEED), 0, 0, word("a", SEED), 0]
    nothing = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), pa.array([], pa.string()))
    assert words(nothing) == [0, 0]
    assert [np.isnan(np.frombuffer(number, "f4")[0]) for number in numbers(nothing)] == [True, True]


def test_a_dictionary_that_changes_between_batches():
    wants = (Want("a", WORD, SEED),)
    reader, cells = ArrowCells(wants), Cells(wants)
    for texts in (["a", "b"], ["b", "a"], ["a", "b"], ["c", "d"]):
        array = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(texts))
        for _ in range(2):
            reader.fill(pa.record_batch([array], names=["a"]), cells)
            assert cells.word(0).tolist() == [word(text, SEED) for text in texts]


def test_codes_that_lead_nowhere():
    array = pa.DictionaryArray.from_arrays(pa.array([0, 7]), pa.array(["a"]), safe=False)
    with pytest.raises(DataError, match="column a: "):
        words(array)


# Nested and missing columns.


def test_nested_fields():
    inner = pa.array([{"id": 1, "tag": {"t": "x"}}, None, {"id": None, "tag": None}, {"id": 4, "tag": {"t": ""}}])
    for array in slices(inner):
        record = pa.record_batch([array], names=["user"])
        found, _ = filled(record, NUMBER, name="user.id")
        assert np.array_equal(found.number(0), [1, np.nan, np.nan, 4], equal_nan=True)
        found, _ = filled(record, WORD, name="user.tag.t")
        assert found.word(0).tolist() == [word("x", seed_of("user.tag.t")), 0, 0, 0]
    assert column_of(record, "user.nobody") is None and column_of(record, "user.id.x") is None
    dotted = pa.record_batch([pa.array([5]), pa.array([{"id": 7}])], names=["user.id", "user"])
    assert filled(dotted, NUMBER, name="user.id")[0].number(0).tolist() == [5]


def test_absent_columns():
    record = pa.record_batch([pa.array([1, 2])], names=["b"])
    for kind in KINDS:
        wants = (Want("a", kind, SEED),)
        with pytest.raises(DataError, match=r"there is no column a \(there are b\)"):
            ArrowCells(wants).fill(record, Cells(wants))
        cells = Cells(wants)
        assert ArrowCells(wants, frozenset("a")).fill(record, cells) == []
        if kind == NUMBER:
            assert np.isnan(cells.number(0)).all()
        elif kind == WORD:
            assert cells.word(0).tolist() == [0, 0]
        else:
            _, lengths, data = cells.spans(0)
            assert lengths.tolist() == [0, 0] and data.dtype == (
                np.uint8 if kind == TEXT else "f4" if kind == NUMBERS else "u4"
            )


# Lists.


@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
def test_lists(make):
    whole = [[1, 2], None, [], [3], [2**32 - 1, 0]]
    for array in slices(pa.array(whole, make(pa.int64()))):
        assert spans(array, INDICES) == [items or [] for items in whole]
        assert spans(array, NUMBERS) == [[float(np.float32(x)) for x in items or []] for items in whole]
        assert spans(array, WORDS, number=True) == [[word(str(x), SEED) for x in items or []] for items in whole]
    texts = [["a", None, ""], None, [], ["b", "a"]]
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        for array in slices(pa.array(texts, make(kind))) if "view" not in str(kind) else [pa.array(texts, make(kind))]:
            assert spans(array, WORDS) == [[word(x or "", SEED) for x in items or []] for items in texts]
    real = [[0.5, -1.0], None, [], [float("nan"), None]]
    for array in slices(pa.array(real, make(pa.float64()))):
        found = spans(array, NUMBERS)
        assert found[:3] == [[0.5, -1], [], []] and np.isnan(found[3]).all()


def test_lists_of_one_length():
    values = [[1.0, 2.0], None, [3.0, 4.0]]
    for array in slices(pa.array(values, pa.list_(pa.float32(), 2))):
        assert spans(array, NUMBERS) == [items or [] for items in values]


def test_single_values_count_as_lists_of_one():
    assert spans(pa.array(["a", None, ""]), WORDS) == [[word("a", SEED)], [], [0]]
    assert spans(pa.array([3, None]), INDICES) == [[3], []]
    assert spans(pa.array([1.5, None]), NUMBERS) == [[1.5], []]


def test_what_lies_behind_a_null_list_is_nobodys():
    child = pa.array([-1, -2, 5])
    array = pa.ListArray.from_arrays(pa.array([0, 2, 3]), child, mask=pa.array([True, False]))
    assert spans(array, INDICES) == [[], [5]]


def test_wrong_indices():
    _, wrong = filled(pa.array([[1], [-2, 3], None, [], [2**32], [4, None]]), INDICES)
    assert [row for row, _ in wrong] == [1, 4, 5]
    assert wrong[0][1] == "column a: -2 is not an index: a whole number from 0 to 2^32 - 1" and "null" in wrong[2][1]
    _, wrong = filled(pa.array([["1"], ["2", "x"], ["y"]]), NUMBERS)
    assert [row for row, _ in wrong] == [1, 2]
    with pytest.raises(DataError, match="column a: indices are whole numbers, not double"):
        filled(pa.array([[1.5]]), INDICES)


# What is refused.

MOMENT = datetime.datetime(2024, 5, 6, 7, 8, 9)
TIMES = [
    pa.array([MOMENT], pa.timestamp("ns")),
    pa.array([MOMENT], pa.timestamp("us", "UTC")),
    pa.array([MOMENT.date()], pa.date32()),
    pa.array([MOMENT.date()], pa.date64()),
    pa.array([MOMENT.time()], pa.time64("us")),
    pa.array([datetime.timedelta(1)], pa.duration("s")),
]


@pytest.mark.parametrize("array", TIMES, ids=lambda array: str(array.type))
def test_times(array):
    for kind in (NUMBER, WORD):
        with pytest.raises(DataError, match=r"column a: .*; name it in features\.ignore, or make columns of the parts"):
            filled(array, kind)
    if not pa.types.is_duration(array.type):
        assert spans(array, TEXT)[0]  # as a column that is handed on


OTHERS = [pa.array([[1]]), pa.array([{"b": 1}]), pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))]


@pytest.mark.parametrize("kind", KINDS, ids=KINDS.get)
@pytest.mark.parametrize("array", OTHERS, ids=lambda array: str(array.type))
def test_other_types(array, kind):
    if pa.types.is_list(array.type) and kind in (NUMBERS, WORDS, INDICES):
        return
    with pytest.raises(DataError, match="column a: "):
        filled(array, kind)


def test_null_columns():
    assert words(pa.nulls(2)) == [0, 0] and spans(pa.nulls(2), TEXT) == [b"", b""]
    assert np.isnan([np.frombuffer(n, "f4")[0] for n in numbers(pa.nulls(2))]).all()
    for kind in (NUMBERS, WORDS, INDICES):
        assert spans(pa.nulls(2), kind) == [[], []]


def test_no_rows():
    for array in (
        pa.array([], pa.string()),
        pa.array([], pa.int8()),
        pa.array([], pa.string_view()),
        pa.array(["a"])[1:],
    ):
        assert words(array) == []
    for array in (pa.array([], pa.list_(pa.int64())), pa.array([[1]])[1:]):
        assert spans(array, INDICES) == []


@pytest.mark.parametrize("offsets", [[0, 9, 3], [0, 2, 99], [5, 2, 3], [-1, 2, 3]])
def test_offsets_that_lead_out_of_the_data(offsets):
    """Arrow itself only looks at the first and the last one."""
    data = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(b"abc")]
    for kind in (WORD, TEXT):
        with pytest.raises((DataError, pa.ArrowInvalid)):
            filled(pa.Array.from_buffers(pa.string(), 2, data), kind)
    with pytest.raises((DataError, pa.ArrowInvalid)):
        filled(pa.Array.from_buffers(pa.list_(pa.int64()), 2, data[:2], children=[pa.array([1, 2, 3])]), INDICES)
