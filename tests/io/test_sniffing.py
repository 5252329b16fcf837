"""Formats by name and by content, delimiters and headers; and the first rows of files, as Python has them."""

import gzip
import os
import threading

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from streamsvm.errors import ConfigError, DataError, SourceError
from streamsvm.io.sampling import first_fields, first_objects, first_records
from streamsvm.io.sniffing import delimiter_of, ending_of, format_of, format_of_text, has_header, quote_of, single_byte
from streamsvm.io.source import Source

NAMES = {
    "a.parquet": "parquet", "a.pq": "parquet", "a.arrow": "arrow", "a.feather": "arrow", "a.csv": "csv",
    "a.tsv.gz": "csv",
    "a.jsonl": "jsonl", "a.ndjson.zst": "jsonl", "a.json": "jsonl", "a.svm": "libsvm", "a.libsvm.bz2": "libsvm",
    "a.vw": "vw",
    "part-0.2024.CSV": "csv",
}  # fmt: skip


@pytest.mark.parametrize("name, format", NAMES.items())
def test_formats_by_name(put, name, format):
    assert format_of(Source([put(name, b"whatever")])) == format
    assert format_of(Source([put(name, b"whatever")]), "vw") == "vw"


def test_endings():
    assert [ending_of(name) for name in ("a/b.c/d", "a.gz", "x.csv.gz", "s3://b.c/x.tar.gz", ".csv")] == [
        "",
        "gz",
        "csv",
        "tar",
        "csv",
    ]


TEXTS = {
    b"1 3:0.5\n": "libsvm", b"+1 qid:3 7:1\n": "libsvm", b"1\n0\n": "libsvm", b"": "libsvm", b"# c\n1 2:3\n": "libsvm",
    b"1 |a x:2 y\n": "vw", b"-1 2.5 'tag|ns f\n": "vw", b"1 | a b\n0 | c\n": "vw", b"|a x\n": "vw",
    b'{"a": 1}\n': "jsonl", b'  {"a": 1}\n': "jsonl", b'\xef\xbb\xbf{"a": 1}': "jsonl",
    b"a,b\n1,2\n": "csv", b"a\tb\n": "csv", b"a;b\n": "csv", b"a|b\n1|2\n": "csv", b"12:30,5\n": "csv",
    b"1,2,3\n": "csv",
}  # fmt: skip


@pytest.mark.parametrize("text, format", TEXTS.items())
def test_formats_by_content(put, text, format):
    assert format_of_text(text) == format
    assert format_of(Source([put("data", text)])) == format
    if text:
        assert format_of(Source([put("data.gz", gzip.compress(text))])) == format


def test_binary_formats_by_content(tmp_path):
    table = pa.table({"a": [1]})
    pq.write_table(table, tmp_path / "p")
    feather.write_feather(table, str(tmp_path / "f"))
    with pa.ipc.new_stream(str(tmp_path / "s"), table.schema) as writer:
        writer.write_table(table)
    assert [format_of(Source([str(tmp_path / name)])) for name in "pfs"] == ["parquet", "arrow", "arrow"]


# CSV.


@pytest.mark.parametrize(
    "text, name, delimiter",
    [
        (b"a,b\n1,2\n", "a.csv", ","),
        (b"a;b\n1,5;2,5\n", "a.csv", ";"),
        (b"a\tb\n1\t2\n", "a.csv", "\t"),
        (b"a|b|c\n1|2|3\n", "a.csv", "|"),
        (b"a,b\n", "a.tsv", "\t"),
        (b"a,b\n", "a.tab.gz", "\t"),
        (b"a\n1\n", "a.csv", ","),
        (b"", "a.csv", ","),
        (b'a;b\n"x\ny,z\n";1\n"u";2\n', "a.csv", ";"),  # rows, not lines
        (b'"a,b,c";d\n"1,2,3";4\n', "a.csv", ";"),
        (b'a\tb\n"1,2\t3,4"\t5\n', "a.csv", "\t"),
        (b"a;b;c\n1;2;3\n4", "a.csv", ";"),  # the last row goes on
        (b"\xef\xbb\xbfa;b\n", "a.csv", ";"),
    ],
)
def test_delimiters(text, name, delimiter):
    assert chr(delimiter_of(text, name)) == delimiter


def test_delimiters_where_quotes_are_text():
    text = b'a;b\n"x;1\ny;2"\n'
    assert chr(delimiter_of(text, "a.csv", quote_of(False))) == ";"
    assert quote_of(True) == 34


@pytest.mark.parametrize(
    "fields, header",
    [
        (["a", "b"], True),
        (["a", "1"], False),
        (["a", "a"], True),
        (["a", ""], False),
        (["", ""], False),
        (["", "a", "b"], True),
    ]
    + [(["1e3", "b"], False), (["nan", "b"], False), (["a b", "c"], True), ([" a", "a"], True), (["", "1"], False)],
)
def test_headers(fields, header):
    assert has_header(fields) is header


def test_a_name_above_numbers_makes_a_header_although_others_are_missing():
    assert has_header(["a", "b", ""], [["1", "x", ""], ["2", "y"]])
    assert not has_header(["a", "b", ""], [["z", "x", ""], ["2", "y", ""]])


def test_delimiters_as_people_write_them():
    assert [single_byte(text) for text in ("tab", "\\t", "\t", "comma", ";", "pipe", "space")] == [
        9,
        9,
        9,
        44,
        59,
        124,
        32,
    ]
    for bad in ("", ",,", "é", '"', "\n", "a", "5", ".", "-"):
        with pytest.raises(ConfigError, match="data.delimiter: "):
            single_byte(bad)


def test_first_fields():
    text = b'\xef\xbb\xbfa,b\r\n1,"x\ny"\r\n\r\n2,z'
    assert first_fields(text, 44, 34, True) == [["1", "x\ny"], ["2", "z"]]
    assert first_fields(text, 44, 34, False)[0] == ["a", "b"]
    assert first_fields(text, 44, 34, True, whole=False) == [["1", "x\ny"]]  # the rest is on its way
    assert first_fields(b"a,b\n" + b"1," + b"x" * 200_000 + b"\n2,y\n", 44, 34, True)[1] == ["2", "y"]
    assert first_fields(b'a,b\n1,2\n3,"open\n' * 3, 44, 34, True)[0] == ["1", "2"]
    assert len(first_fields(b"a\n" + b"1\n" * 9000, 44, 34, True)) == 2000


def test_first_objects():
    text = b'{"a": 1, "u": {"id": 2, "v": {"w": []}}}\n\nbad\n{"b": null}\n'
    assert first_objects(text, "f")[0] == {"a": [1, None], "u.id": [2, None], "u.v.w": [[], None], "b": [None, None]}
    for text in (b"[1]\n", b"nonsense\n"):
        with pytest.raises(DataError, match="f:1: this is not a JSON object"):
            first_objects(text, "f")


def part_of(path):
    return Source([str(path)]).parts[0]


def test_first_records(tmp_path):
    table = pa.table({"a": pa.array([1, None, 3]), "t": pa.array([0, 1, 2], pa.timestamp("ns")), "u": [{"id": 1}] * 3})
    table = table.append_column("m", pa.array([[("k", 1)]] * 3, pa.map_(pa.string(), pa.int64())))
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    columns, kinds = first_records(part_of(tmp_path / "a.parquet"), "parquet")
    times = [f"1970-01-01 00:00:00.00000000{k}" for k in range(3)]
    assert columns == {"a": [1, None, 3], "t": times, "u.id": [1, 1, 1], "m": []}  # of as many row groups as it takes
    assert kinds == {"a": "whole", "t": "time", "u.id": "whole", "m": "other"}
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table, 1)
    assert first_records(part_of(tmp_path / "a.arrow"), "arrow") == (columns, kinds)


def test_no_more_records_than_needed(tmp_path):
    pq.write_table(pa.table({"a": range(20_000)}), tmp_path / "a.parquet", row_group_size=3000)
    columns, _ = first_records(part_of(tmp_path / "a.parquet"), "parquet")
    assert columns["a"] == list(range(2000))


def test_first_records_that_are_no_utf8(tmp_path):
    array = pa.array([b"\xff", b"a"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"s": array}), tmp_path / "a.parquet")
    assert first_records(part_of(tmp_path / "a.parquet"), "parquet")[0] == {"s": [b"\xff", b"a"]}


def test_first_records_of_nothing(tmp_path):
    pq.write_table(pa.table({"a": pa.array([], pa.list_(pa.float32()))}), tmp_path / "a.parquet")
    assert first_records(part_of(tmp_path / "a.parquet"), "parquet") == ({"a": []}, {"a": "numbers"})


@pytest.mark.skipif(os.name != "posix", reason="named pipes")
def test_records_cannot_be_looked_at_twice_on_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: open(pipe, "wb").close())
    part = part_of(pipe)
    for format in ("parquet", "arrow"):
        with pytest.raises(SourceError, match="save it as a file first"):
            first_records(part, format)
    writer.start()
    open(pipe, "rb").close()
    writer.join()
