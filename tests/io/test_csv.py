"""CSV against Python's reader and the slow twin, every malformed row, every place where a block can end, and fuzz."""

import csv
import gzip
import io
import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from libsvm_twin import FENCE, collect, rows_of
from table_twin import ABSENT, headerless, same_as_twin, single, stream, twin
from tiers import examples

from streamsvm.cells import NUMBER, TEXT, WORD, Cells, Want
from streamsvm.errors import DataError
from streamsvm.features.recipe import Column, Recipe
from streamsvm.hashing import seed_of, word_from
from streamsvm.io.csv import NO_QUOTE, Layout, first_row, last_row_end, parse, rows_of_text, split_row
from streamsvm.io.decimals import PADDING
from streamsvm.io.source import Source
from streamsvm.readers import CsvText
from streamsvm.stream import Tally
from streamsvm.tables import CsvOptions, TableDialect

RECIPE = Recipe((Column("x", "number"), Column("s", "word"), Column("t", "text")), label="y", hash_bits=20)
NAMES = ["y", "s", "x", "t"]
HARD = "1.00000017881393421514957253748434595763683319091796875"


def text_of(rows, names=NAMES, end="\n", **options) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, names, lineterminator=end, restval="", **options)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode("utf-8", "surrogateescape")


def cells_of(text: bytes, kinds: dict[str, int], *, number=False, skip=10**9, quote=34, delimiter=44):
    """Cells of a text without a header, with nothing but PADDING bytes behind it, and what is wrong with it."""
    text = text if text.endswith(b"\n") else text + b"\n"
    cells = Cells(tuple(Want(name, kind, seed_of(name), number) for name, kind in kinds.items()))
    places = np.arange(len(kinds))
    layout = Layout(tuple(kinds), places, np.full(len(kinds), -1), delimiter, quote)
    held = FENCE.hold(text + b'7,"1.5e30\n"x,99"'[:PADDING])
    lines, faults = parse(held, 0, len(text), layout, cells, skip)
    return cells, lines, faults


def numbers(text: str, **options) -> list[float]:
    cells, _, faults = cells_of(text.encode(), {"x": NUMBER}, **options)
    assert faults == []
    return cells.number(0).tolist()


def texts(text: bytes, columns: int = 1, **options) -> list[list[bytes]]:
    cells, _, faults = cells_of(text, {f"c{k}": TEXT for k in range(columns)}, **options)
    assert faults == []
    spans = [cells.spans(k) for k in range(columns)]
    return [[d[s[i] : s[i] + n[i]].tobytes() for s, n, d in spans] for i in range(cells.rows)]


# Numbers.


@pytest.mark.parametrize(
    "spelled",
    ["0", "-0", "7", "+7", "-7", "007", "7.", ".5", "-.5", "0.1", "1e3", "1E+3", "1e-3", "12345678"]
    + ["1234567.1234567", "12345678.12345678", "0.00000001", "1e-45", "1e-46", "3.4028235e38", "16777217", HARD]
    + ["123456789012345678", "9007199791611905", "1" * 400 + "e-380", "0." + "0" * 60 + "1e50", "1e-400", "0e999"],
)  # fmt: skip
def test_numbers_in_all_spellings(spelled):
    value = np.float32(float(spelled))
    for around in ("{}", " {}", "{} ", "  {}  ", '"{}"', '" {}"', "\t{}\t"):
        assert np.float32(numbers(around.format(spelled) + "\n")[0]).tobytes() == value.tobytes(), around
    assert numbers(f"{spelled}\r\n{spelled}") == [value, value]


@examples(300)
@given(st.from_regex(r"[+-]?([0-9]{1,20}\.?[0-9]{0,20}|\.[0-9]{1,20})([eE][+-]?[0-9]{1,2})?", fullmatch=True))
def test_any_number(spelled):
    with np.errstate(over="ignore"):
        value = np.float32(float(spelled))
    if np.isfinite(value):
        assert np.float32(numbers(spelled)[0]).tobytes() == value.tobytes()


@pytest.mark.parametrize("absent", [*ABSENT, "  ", " NA ", '""', '"NA"', '" "', "\t", "- ", '"\n"'])
def test_missing_numbers(absent):
    cells, _, faults = cells_of(f"{absent},1\r\n2,{absent}\n".encode(), {"x": NUMBER, "z": NUMBER})
    assert faults == [] and np.isnan([cells.number(0)[0], cells.number(1)[1]]).all()
    assert [cells.number(0)[1], cells.number(1)[0]] == [2, 1]


@pytest.mark.parametrize(
    "word, value", [("true", 1), ("True", 1), ("TRUE", 1), ("false", 0), ("False", 0), (" true", 1)]
)
def test_truth_is_a_number(word, value):
    assert numbers(f'{word}\n"{word}"\n') == [value, value]


@pytest.mark.parametrize(
    "bad", ["x", "1x", "1 2", "--1", "1e", "1e+", ".", "+", "e5", "inf", "Infinity", "0x10", "1_0", "1.2.3", "na"]
    + ["truex", "None1", "1é", "'1'", "1;2", "NAN", "tru", "falsey", "1\x00", "\xa01", "１"],
)  # fmt: skip
def test_what_is_no_number(bad):
    for form in (bad, f'"{bad}"', f" {bad} "):
        cells, lines, faults = cells_of(f"1\n{form}\n2\n".encode(), {"x": NUMBER})
        shown = f"column x: {(bad if form[0] != ' ' else form)!r} is not a number"
        assert [(fault.line, fault.row, fault.message) for fault in faults] == [(1, 1, shown)]
        assert cells.number(0).tolist() == [1, 2] and lines == 3


@pytest.mark.parametrize("huge", ["1e39", "-1e39", "3.4028236e38", "1" * 40, "1e99999999999"])
def test_numbers_beyond_single_precision(huge):
    _, _, faults = cells_of(f"{huge},1".encode(), {"x": NUMBER, "y": NUMBER})
    if faults:  # else it is so close to the border that only the assembly finds out
        message = f"column x: {huge!r} does not fit in single precision (largest is 3.4e38)"
        assert [fault.message for fault in faults] == [message]


def test_a_number_on_the_border_is_refused_in_the_end(put):
    border = "340282356779733661637539395458142568447.99999999999999999999999999999999999999999999999999"
    over = "340282356779733661637539395458142568448"
    recipe = Recipe((Column("x", "number"),), label="y")
    for spelled in (border, over):
        rows = [{"y": 1, "x": spelled}, {"y": 0, "x": "1"}]
        same_as_twin(put("a.csv", text_of(rows, ["y", "x"])), recipe, "csv", rows)


# Texts and quotes.


@pytest.mark.parametrize(
    "text, expected",
    {
        b"a\n": [[b"a"]],
        b"a": [[b"a"]],
        b"a\r\nb\r\n": [[b"a"], [b"b"]],
        b"a\rb\n": [[b"a\rb"]],
        b"\n\n\r\na\n\n": [[b"a"]],
        b'"a"\n': [[b"a"]],
        b'"a"\r\n': [[b"a"]],
        b'""\n': [[b""]],
        b'""""\n': [[b'"']],
        b'"a""b"\n': [[b'a"b']],
        b'"a\nb"\n"c\r\nd"\n': [[b"a\nb"], [b"c\r\nd"]],
        b'"\n\n"\n': [[b"\n\n"]],
        b'a"b\n': [[b'a"b']],
        b'a""b"\n': [[b'a""b"']],
        b' "a"\n': [[b' "a"']],
        b'"a,b"\n': [[b"a,b"]],
        b'"a,""\n""\n,"\n': [[b'a,"\n"\n,']],
        b" a \n": [[b" a "]],
        b"\xff\x00\xfe\n": [[b"\xff\x00\xfe"]],
        b"\r\r\n": [[b"\r"]],
    }.items(),
)
def test_texts(text, expected):
    assert texts(text) == expected


def test_without_quotes_a_quote_is_text():
    assert texts(b'"a,b"\n"\n', 1, quote=NO_QUOTE, delimiter=59) == [[b'"a,b"'], [b'"']]
    assert texts(b'"a,b"\n', 2, quote=NO_QUOTE) == [[b'"a', b'b"']]


FIELDS = st.text(st.sampled_from('ab7,;".\r\n é\t-'), max_size=8)


@examples(300)
@given(st.lists(st.lists(FIELDS, min_size=3, max_size=3), max_size=6), st.booleans(), st.booleans())
def test_what_python_writes(rows, always, short):
    """Python's writer quotes what it must; its rows are ours."""
    out = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if always else csv.QUOTE_MINIMAL
    csv.writer(out, lineterminator="\n" if always and short else "\r\n", quoting=quoting).writerows(rows)
    written = out.getvalue()
    assert texts(written.encode(), 3) == [[field.encode() for field in row] for row in rows]
    assert [fields for fields, _ in rows_of_text(written.encode(), 44, 34)] == rows
    assert [row for row in csv.reader(io.StringIO(written, newline="")) if row] == rows


@examples(200)
@given(st.text(st.sampled_from('ab,"\r\n'), max_size=30))
def test_any_text_is_cut_the_same_everywhere(text):
    """The kernel, the search for the end of a row, and the splitter in Python agree on what rows there are."""
    data = text.encode() + b"\n"
    rows = [row for row, _ in rows_of_text(data, 44, 34)]
    for row, (_, end) in zip(rows, rows_of_text(data, 44, 34), strict=True):
        assert last_row_end(np.frombuffer(data, np.uint8), end, 44, 34) == end
        assert len(row) >= 1
    for columns in (1, 2, 3):
        cells, lines, faults = cells_of(data, {f"c{k}": TEXT for k in range(columns)})
        whole = sum(end <= len(data) for _, end in rows_of_text(data, 44, 34))
        assert lines == data.count(b"\n") or any("never closed" in fault.message for fault in faults)
        assert cells.rows + len(faults) >= whole


@pytest.mark.parametrize(
    "row", ["", ",", ",,", "a,,b", '"a,b",c', '"a""b"', '"a"b,c', '"', '"a', '",', 'a,"b,c', '"",']
)
def test_split_row_is_pythons(row):
    assert split_row(row, ",", 34) == (next(csv.reader([row]), None) or [""])
    assert split_row(row, ",", NO_QUOTE) == row.split(",")


# Categories.


def word(text: str, seed: int) -> int:
    return word_from(text, seed)


def test_categories_that_are_numbers():
    """07, 7.0 and 7 are the same in a column of numbers, and nowhere else."""
    spelled = [
        "7",
        "07",
        "7.0",
        "+7",
        " 7 ",
        '"7"',
        "70e-1",
        "1e3",
        "1000",
        "-0",
        "0",
        "n/a",
        "1.50",
        "12345678901234567890",
    ]
    expected = ["7"] * 7 + ["1000", "1000", "0", "0", "n/a", "1.5", "12345678901234567890"]
    text = "\n".join(spelled).encode()
    cells, _, _ = cells_of(text, {"s": WORD}, number=True)
    assert cells.word(0).tolist() == [word(text, seed_of("s")) for text in expected]
    cells, _, _ = cells_of(text, {"s": WORD})
    assert cells.word(0).tolist() == [word(text.strip('"'), seed_of("s")) for text in spelled]


def test_missing_categories():
    cells, _, _ = cells_of(b'\n,\n"",NA\nnan,\n', {"s": WORD, "u": WORD})
    assert (cells.word(0) == 0).tolist() == [True, True, False] and (cells.word(1) == 0).tolist() == [True, False, True]
    assert cells.word(1)[1] == word("NA", seed_of("u"))
    cells, _, _ = cells_of(b"nan\nNaN\n", {"s": WORD}, number=True)
    assert cells.word(0).tolist() == [0, 0]


def test_more_odd_fields_than_fit_at_once():
    rows = [f"{k}.0,{HARD},0{k}" for k in range(9000)]
    cells, _, _ = cells_of("\n".join(rows).encode(), {"s": WORD, "x": NUMBER, "u": WORD}, number=True)
    assert cells.word(0).tolist() == [word(str(k), seed_of("s")) for k in range(9000)]
    assert cells.word(2).tolist() == [word(str(k), seed_of("u")) for k in range(9000)]
    assert set(cells.number(1).tolist()) == {1 + 2**-22}


def test_long_fields():
    long = b"x" * (1 << 20)
    quoted = b'"' + b'y""\n,' * (1 << 18) + b'"'
    found = texts(long + b"," + quoted + b"\na,b\n", 2)
    assert found == [[long, b'y"\n,' * (1 << 18)], [b"a", b"b"]]
    _, _, faults = cells_of(long + b"\n", {"x": NUMBER})
    assert len(faults[0].message) < 120 and "xxx...' is not a number" in faults[0].message


# Faults.


@pytest.mark.parametrize(
    "bad, message",
    {
        b"1": "the row has only 1 of 3 fields",
        b"1,a\r": "the row has only 2 of 3 fields",
        b'"1"': "the row has only 1 of 3 fields",
        b'1,"a\nb"': "the row has only 2 of 3 fields",
        b"1,a,b,": "the row has more than 3 fields",
        b'1,a,b,"c\nd"': "the row has more than 3 fields",
        b'1,a,b,"c\n""\nd",e,"\n"': "the row has more than 3 fields",
        b"z,a,b": "column x: 'z' is not a number",
        b'z,"a\n1,2,3\n","\nb"': "column x: 'z' is not a number",
        b'"z\n9,9,9\n""",a,b': "column x: 'z\\n9,9,9\\n\"' is not a number",
        b'"a, b",a,b': "column x: 'a, b' is not a number",
        b"1e99,a,b": "column x: '1e99' does not fit in single precision (largest is 3.4e38)",
        b'1,"a"x,b': "column s: text after a closing quote: 'x,b'",
        b'1,"a" ,"b\n\n"': "column s: text after a closing quote: ' ,\"b'",
        b'1,"a""b"c"d,"e\nf"': "column s: text after a closing quote: 'c\"d,\"e'",
        b'"1"2,a,b': "column x: text after a closing quote: '2,a,b'",
    }.items(),
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_bad_rows(bad, message, end):
    """One fault, on the line where the row begins; rows around it are as they should be."""
    before = b'1,"p\nq",r' + end + end
    text = before + bad + end + b"2,u,v" + end
    cells, lines, faults = cells_of(text, {"x": NUMBER, "s": WORD, "t": TEXT})
    assert [(fault.line, fault.row, fault.message) for fault in faults] == [(3, 1, message)]
    assert cells.number(0).tolist() == [1, 2] and lines == text.count(b"\n")
    assert cells.lines[:2].tolist() == [0, 3 + bad.count(b"\n") + 1]
    cells, _, faults = cells_of(text, {"x": NUMBER, "s": WORD, "t": TEXT}, skip=0)
    assert len(faults) == 1 and cells.rows == 1


def test_a_quote_that_is_never_closed():
    text = b'1,a\n2,"b ""c""\n3,d\nx,e\n4,f\n'
    cells, lines, faults = cells_of(text, {"x": NUMBER, "t": TEXT})
    assert [(fault.line, fault.row) for fault in faults] == [(1, 1), (3, 2)] and lines == 5
    assert faults[0].message == 'column t: a quote is opened and never closed: \'"b ""c""\''
    assert cells.number(0).tolist() == [1, 3, 4]
    starts, lengths, data = cells.spans(1)
    assert [data[s : s + n].tobytes() for s, n in zip(starts, lengths, strict=True)] == [b"a", b"d", b"f"]


def test_a_bad_row_with_a_quote_that_is_never_closed():
    cells, lines, faults = cells_of(b'z,"b\n3,d\n4,"\n', {"x": NUMBER, "t": TEXT})
    assert len(faults) == 1 and cells.rows == 0 and lines == 3  # the quote is closed, far away
    cells, lines, faults = cells_of(b'z,"b\n3,d\n4,e\n', {"x": NUMBER, "t": TEXT})
    assert len(faults) == 1 and cells.number(0).tolist() == [3, 4] and lines == 3


@pytest.mark.parametrize("skip", [0, 1, 2, 3])
def test_skip_limits(put, skip):
    text = text_of([{"y": k % 2, "x": "z" if k % 3 == 1 else k, "s": "a\nb", "t": ""} for k in range(9)])
    path = put("a.csv", text)
    found = stream(path, RECIPE, skip=skip)
    if skip == 3:
        assert len(collect(found)) == 6 and found.tally.bad_rows == 3
        assert found.tally.faults == [f"{path}:{line}: column x: 'z' is not a number" for line in (4, 10, 16)]
    else:
        more = rf":{[4, 10, 16][skip]}: column x: 'z' is not a number \(more than {skip} bad rows skipped"
        with pytest.raises(DataError, match=more):
            collect(found)
        assert found.tally.rows == skip * 2 + 1


def test_faults_of_the_text_and_of_its_values_come_in_order(put):
    recipe = Recipe((Column("x", "number"),), label="y", weight="w")
    path = put("a.csv", b"y,x,w\n1,1,1\n,1,1\n1,z,1\n1,1,-1\n1\n1,2,1\n99999999,1,1\n0,3,1\n")
    found = stream(path, recipe, skip=9)
    assert len(collect(found)) == 3
    assert [fault.removeprefix(path) for fault in found.tally.faults] == [
        ":3: column y: the row has no label, or one beyond 2^24",
        ":4: column x: 'z' is not a number",
        ":5: column w: a weight is a number from 0 on",
        ":6: the row has only 1 of 3 fields",
        ":8: column y: the row has no label, or one beyond 2^24",
    ]
    for skip, line in enumerate((3, 4, 5, 6, 8)):
        found = stream(path, recipe, skip=skip)
        with pytest.raises(DataError, match=f":{line}: "):
            collect(found)
        assert found.tally.rows == (1 if line < 8 else 2)


# Streams: every block size, files that differ, and going on.

VALUES = st.fixed_dictionaries(
    {
        "y": st.sampled_from(["0", "1", "-1", "2.0"]),
        "s": st.text(st.sampled_from('ab",\n\r é'), max_size=5),
        "x": st.sampled_from(["", "1", "-2.5", "NA", "0", "1e-3", " 3 ", "bad", "1e99", HARD]),
        "t": st.text(st.sampled_from('aB 7_",.\n'), max_size=12),
    }
)


@examples(60)
@given(
    st.lists(VALUES, max_size=8), st.sampled_from(["\n", "\r\n"]), st.integers(1, 90),
    st.booleans(), st.booleans(), st.permutations(NAMES),
)  # fmt: skip
def test_tables_against_the_twin(tmp_path_factory, rows, end, block_size, bom, final, names):
    text = text_of(rows, names, end, quoting=csv.QUOTE_ALL if end == "\n" else csv.QUOTE_MINIMAL)
    text = (b"\xef\xbb\xbf" if bom else b"") + (text if final else text.removesuffix(end.encode()))
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(text)
    same_as_twin(str(path), RECIPE, "csv", rows, block_size=block_size)


QUOTED = [
    {"y": k % 2, "s": ["a\nb", "c,d", 'e"f', "\r\n", '"', ""][k % 6], "x": k / 4, "t": "x\n" * (k % 5)}
    for k in range(40)
]


def test_every_block_size(put):
    """Quotes and newlines in them fall on every border of a block."""
    text = text_of(QUOTED[:14])
    path = put("a.csv", text)
    expected, bad = twin(QUOTED[:14], RECIPE)
    assert not bad
    for block_size in range(1, len(text) + 3):
        assert collect(stream(path, RECIPE, block_size=block_size, threads=1 + block_size % 2)) == expected, block_size


def test_every_block_size_with_bad_rows(put):
    lines = [
        b"y,s,x,t\n",
        b'1,"a\n",1,b\n',
        b'1,"a\n",z,"b\n\n"\n',
        b'1,"a"q,"\n",","\n',
        b"1\n",
        b'1,a,1,"\n",\n',
        b"\n",
    ]
    lines += [b'0,"""\n""",2,t\n', b"0,a,3,never\n", b'0,"a,4,never\n', b"0,b,5,t\n"]
    path = put("a.csv", b"".join(lines))
    found = stream(path, RECIPE, skip=99)
    rows, faults = collect(found), found.tally.faults
    assert len(rows) == 4 and found.tally.bad_rows == 5
    assert [int(fault.removeprefix(path).split(":")[1]) for fault in faults] == [4, 8, 10, 11, 17]
    for block_size in range(1, 130):
        found = stream(path, RECIPE, skip=99, block_size=block_size)
        assert collect(found) == rows and found.tally.faults == faults, block_size


@pytest.mark.parametrize("memory", [1, 10**6, 10**9])
@pytest.mark.parametrize("threads", [1, 3])
def test_threads_and_memory(put, threads, memory):
    same_as_twin(put("a.csv", text_of(QUOTED * 50)), RECIPE, "csv", QUOTED * 50, threads=threads, memory=memory)


def test_compressed(put):
    path = put("a.csv.gz", gzip.compress(text_of(QUOTED)))
    same_as_twin(path, RECIPE, "csv", QUOTED, block_size=50)


@pytest.mark.parametrize("names", [["gz", gzip.compress], ["csv", bytes]])
def test_going_on_after_any_batch(put, names):
    """Another reading that begins at a position has exactly the rest, with the header looked up."""
    ending, compress = names
    first, second = (put(f"{k}.csv.{ending}", compress(text_of(QUOTED, n))) for k, n in enumerate([NAMES, NAMES[::-1]]))
    recipe = RECIPE
    whole = stream([first, second], recipe, block_size=64)
    tallies, batches = [], []
    for batch in whole:
        batches.append(rows_of(batch))
        tallies.append(whole.tally.state())
    assert len(batches) > 20 and sum(batches, []) == twin(QUOTED * 2, recipe)[0]
    for k in range(0, len(batches), 3):
        again = stream([first, second], recipe, block_size=200)
        found = [row for batch in again.in_order(Tally.restored(tallies[k], again.source)) for row in rows_of(batch)]
        assert found == sum(batches[k + 1 :], []), k
        assert again.tally.rows == 80 and again.tally.origin.line == whole.tally.origin.line


def test_a_header_in_another_order(put):
    rows = QUOTED[:3]
    paths = [put("a.csv", text_of(rows)), put("b.csv", text_of(rows, ["t", "x", "more", "y", "s"]))]
    same_as_twin(paths, RECIPE, "csv", rows * 2)


def test_a_file_without_a_column(put):
    rows = [{"y": 1, "s": "a", "x": 2}]
    paths = [put("a.csv", text_of(rows)), put("b.csv", text_of(rows, ["y", "s", "x"]))]
    with pytest.raises(
        DataError, match=r"b\.csv: there is no column t \(there are y, s, x\); data.missing_columns: abs"
    ):
        collect(stream(paths, RECIPE))
    same_as_twin(paths, RECIPE, "csv", rows * 2, absent=True)
    lacks_all = put("c.csv", b"y,other\n1,2\n")
    with pytest.raises(DataError, match=r"c\.csv: there is no column x and 2 more \(there are y, other\)"):
        collect(stream(lacks_all, RECIPE))
    same_as_twin(lacks_all, RECIPE, "csv", [{"y": 1}], absent=True)
    with pytest.raises(DataError, match="there is no column y"):
        collect(stream(put("d.csv", text_of(rows, ["s", "x", "t"], extrasaction="ignore")), RECIPE, absent=True))


def test_two_columns_of_one_name(put):
    with pytest.raises(DataError, match=r"a\.csv: two columns are called x"):
        collect(stream(put("a.csv", b"y,x,s,x,t\n1,2,3,4,5\n"), RECIPE))
    assert len(collect(stream(put("b.csv", b"y,x,s,u,t,u\n1,2,3,4,5,6\n"), RECIPE))) == 1


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_without_a_header(put, bom):
    recipe = Recipe((Column("c2", "number"), Column("c3", "word")), label="c1", hash_bits=8)
    text = bom + b'1,2,"a\nb"\n-1,,c\n'
    rows = [{"c1": 1, "c2": 2, "c3": "a\nb"}, {"c1": -1, "c3": "c"}]
    for block_size in (0, 1, 9, 20):
        same_as_twin(put("a.csv", text), recipe, "csv", rows, csv=headerless("c1", "c2", "c3"), block_size=block_size)
    unlabelled = stream(put("b.csv", bom + b"2,a\n,c\n"), recipe, csv=headerless("c1", "c2", "c3"), labelled=False)
    assert [row[1:] for row in collect(unlabelled)] == [
        row[1:] for row in twin([{"c2": 2, "c3": "a"}, {"c3": "c"}], recipe, labelled=False)[0]
    ]


@pytest.mark.parametrize("header", [b'\xef\xbb\xbf"y\n",x\n', b'\r\n\n"y\n",x\r\n', b'"y\n","x"\n'])
def test_names_with_newlines(put, header):
    recipe = Recipe((Column("x", "number"),), label="y\n")
    path = put("a.csv", header + b"1,2\n0,z\n")
    for block_size in range(1, 30):
        found = stream(path, recipe, block_size=block_size, skip=1)
        assert collect(found) == twin([{"y\n": 1, "x": 2}], recipe)[0]
        assert found.tally.faults == [f"{path}:{header.count(10) + 2}: column x: 'z' is not a number"]


def test_without_the_label(put):
    rows = [{"s": "a", "x": 1, "t": "b"}, {"s": "", "x": "", "t": ""}]
    path = put("a.csv", text_of(rows, ["t", "s", "x"]))
    expected, _ = twin(rows, RECIPE, labelled=False)
    assert collect(stream(path, RECIPE, labelled=False)) == expected
    labelled = put("b.csv", text_of([{**rows[0], "y": "?"}, {**rows[1], "y": ""}]))
    assert collect(stream(labelled, RECIPE, labelled=False)) == expected


def test_columns_that_are_kept(put):
    path = put("a.csv", b'y,id,x,s,t\n1,"a ""1""\n",2,p,\n1,b,z,q,\n0,c, 07 ,NA,u\n')
    found = stream(path, RECIPE, skip=5, keep=("id", "x", "s"))
    assert [rows_of(batch) and found.kept for batch in found] == [[['a "1"\n', "c"], ["2", " 07 "], ["p", "NA"]]]
    with pytest.raises(DataError, match="there is no column nid"):
        collect(stream(path, RECIPE, keep=("nid",)))


def test_empty_files(put):
    for text in (b"", b"\n\n", b"y,s,x,t", b"y,s,x,t\n", b"\xef\xbb\xbfy,s,x,t\r\n\r\n"):
        for block_size in (0, 1):
            assert collect(stream(put("a.csv", text), RECIPE, block_size=block_size)) == []


def test_many_columns(put):
    names = [f"n{k}" for k in range(300)]
    recipe = Recipe(
        tuple(Column(n, "word" if k % 2 else "number") for k, n in enumerate(names)), label="y", hash_bits=9
    )
    rows = [{"y": 1, **{n: (i + k) % 5 or "" for k, n in enumerate(names)}} for i in range(20)]
    same_as_twin(put("a.csv", text_of(rows, ["y", *names])), recipe, "csv", rows)


# Fuzz.


def test_truncation_of_every_byte(put):
    text = text_of(QUOTED[:8], end="\r\n")
    for end in range(len(text)):
        cells_of(text[:end], {"y": NUMBER, "s": WORD, "x": NUMBER, "t": TEXT})


def test_corruption_of_every_byte():
    text = text_of(QUOTED[:8]).split(b"\n", 1)[1]
    for place in range(len(text)):
        for byte in b'",\n\r\x00\xff9.-':
            broken = text[:place] + bytes([byte]) + text[place + 1 :]
            cells, lines, faults = cells_of(broken, {"y": NUMBER, "s": WORD, "x": NUMBER, "t": TEXT})
            assert lines == (broken + b"\n" * (broken[-1:] != b"\n")).count(b"\n")
            starts, lengths, data = cells.spans(3)
            assert (starts >= 0).all() and (lengths >= 0).all() and (starts + lengths <= len(data)).all()


@examples(300)
@given(st.binary(max_size=60), st.integers(1, 4))
@example(b'"' * 33, 1)
@example(b"," * 40, 2)
def test_any_bytes(text, columns):
    kinds = dict(zip("abcd"[:columns], (NUMBER, WORD, TEXT, NUMBER), strict=False))
    cells, lines, _ = cells_of(text, kinds, number=len(text) % 2 == 0)
    assert lines == (text if text.endswith(b"\n") else text + b"\n").count(b"\n")
    assert cells.rows <= lines


def test_damaged_files_do_the_same_in_every_block(put):
    rng = random.Random(1)
    text = text_of(QUOTED[:10])
    for _ in range(60):
        broken = bytearray(text)
        for _ in range(rng.randrange(1, 5)):
            broken[rng.randrange(8, len(text))] = rng.choice(b'",\n\r9x')
        path = put("a.csv", bytes(broken))
        results = []
        for block_size in (0, 1, 17, 64):
            found = stream(path, RECIPE, skip=10**6, block_size=block_size)
            results.append((collect(found), found.tally.bad_rows, found.tally.faults, found.tally.origin.line))
        assert all(result == results[0] for result in results), bytes(broken)


def test_first_row():
    assert first_row(b"", 44, 34) == ([], 0, 0)
    assert first_row(b"\n\r\na,b", 44, 34) == (["a", "b"], 6, 2)
    assert first_row(b'\xef\xbb\xbf"a\nb",c\r\n1,2\n', 44, 34) == (["a\nb", "c"], 12, 2)
    assert first_row(b'"a', 44, 34) == ([], 0, 0)
    assert first_row(b"x" * 200_000 + b",b\n", 44, 34)[0][1] == "b"


def test_the_cost_grows_with_interactions():
    plain = CsvText(TableDialect("csv", RECIPE)).cost
    crossed = CsvText(TableDialect("csv", Recipe(RECIPE.columns, interactions=(("x", "s"),) * 9, hash_bits=9))).cost
    assert crossed > plain


def test_positions_are_offsets(put):
    path = put("a.csv", text_of(QUOTED))
    source = Source([path])
    found = stream(path, RECIPE, block_size=100)
    offsets = [found.tally.position.offset for _ in found]
    assert offsets[:-1] == sorted(offsets[:-1]) and source.size is not None and offsets[-2] < source.size


def test_single_precision_is_that_of_the_twin():
    assert np.isnan(single("NA")) and single(" 1e3 ") == 1000 and single("true") == 1


def test_options_have_defaults():
    assert CsvOptions() == (44, 34, True, (), 46)
