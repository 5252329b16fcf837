"""Converting: round trips between all formats, what is refused, and what an interrupted run leaves behind."""

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from signals import heard, wait_for

from streamsvm import load_model, open_stream
from streamsvm.config import load_settings
from streamsvm.converting import convert, target_of
from streamsvm.errors import ConfigError, DataError, SourceError
from streamsvm.io.cell_text import csv_lines, json_lines
from streamsvm.io.row_text import number_texts
from streamsvm.io.source import Source


def settings(*sets: str) -> Any:
    return load_settings([], sets=list(sets))


def converted(source: str | list[str], target: Path | str, *sets: str, to: str = "auto") -> dict[str, Any]:
    inputs = (source,) if isinstance(source, str) else tuple(source)
    return convert(settings(*sets), inputs, target_of(str(target), to))


def sparse_text(rows: int = 300) -> str:
    rng = np.random.default_rng(3)
    lines = []
    for i in range(rows):
        indices = np.sort(rng.choice(2**20, i % 7, replace=False))
        values = rng.standard_normal(len(indices)).astype(np.float32) * np.float32(10.0) ** rng.integers(-20, 20)
        weight = f" {rng.random():.3f}" if i % 3 == 0 else ""
        lines.append(
            f"{1 if i % 2 else -1}{weight}" + "".join(f" {j}:{v}" for j, v in zip(indices, values, strict=True))
        )
    return "\n".join(lines) + "\n"


def table(rows: int = 500) -> pa.Table:
    """Columns of many types, with what is hard to write: missing values, quotes, newlines, other alphabets."""
    rng = np.random.default_rng(5)
    names = ["plain", 'say "yes", twice', "two\nlines", "naïve – Ωμέγα", " ", "back\\slash\ttab", None, "", "a:b|c"]
    x = rng.standard_normal(rows)
    return pa.table(
        {
            "id": pa.array(np.arange(rows) + 2**53 + 1),
            "click": pa.array((x + 0.3 * rng.standard_normal(rows) > 0).astype(np.int8)),
            "name": pa.array([names[k] for k in rng.integers(0, len(names), rows)]),
            "ad": pa.array([f"ad{k}" for k in rng.integers(0, 9, rows)]).dictionary_encode(),
            "x": pa.array(x, mask=rng.random(rows) < 0.1),
            "small": pa.array((x * 1e-8).astype(np.float32)),
            "whole": pa.array(np.round(x)),
            "ok": pa.array(x > 0, mask=rng.random(rows) < 0.1),
            "geo": pa.array([{"city": f"c{k % 5}", "at": {"lat": float(k) / 3}} for k in range(rows)]),
        }
    )


def flat(found: pa.Table) -> pa.Table:
    while any(pa.types.is_struct(kind) for kind in found.schema.types):
        found = found.flatten()
    return found


def same_values(one: pa.Table, other: pa.Table) -> None:
    one, other = flat(one), flat(other)
    assert one.schema.names == other.schema.names
    for name in one.schema.names:
        left, right = one[name].combine_chunks(), other[name].combine_chunks()
        left = left.dictionary_decode() if pa.types.is_dictionary(left.type) else left
        if pa.types.is_floating(left.type):
            left = pc.if_else(pc.is_nan(left), None, left)
        assert left.equals(right.cast(left.type)), name


def rows_of(path: Path) -> list[Any]:
    with_rows = [batch.copy() for batch in open_stream(str(path))]
    return [np.concatenate([getattr(b, n) for b in with_rows]) for n in ("indices", "values", "labels", "weights")]


# Numbers.


def test_numbers_have_the_fewest_digits_that_give_them_back() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 20_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    short = (rng.integers(-(10**6), 10**6, 5000) / 10.0 ** rng.integers(0, 8, 5000)).astype(np.float32)
    odd = np.array([0, -0.0, 1, 1e-5, 16777216, 97474816, 1e12, 3.4028235e38, 1e-45, 123456.7], np.float32)
    powers = np.array([2.0**k for k in range(-149, 128)], np.float32)
    numbers = np.concatenate([bits[np.isfinite(bits)], short, odd, powers, -powers])
    texts = number_texts(numbers)
    assert np.array([np.float32(text) for text in texts]).tobytes() == numbers.tobytes()

    def digits(text: str) -> int:
        return len(text.lstrip("-").split("e")[0].replace(".", "").strip("0"))

    fewest = [digits(np.format_float_scientific(number, unique=True, trim="-")) for number in numbers]
    assert [digits(text) for text in texts] == fewest
    assert number_texts(np.array([0.1, 7, -2.5e-7, 1e20, 0.00012], np.float32)) == [
        "0.1",
        "7",
        "-2.5e-7",
        "1e20",
        "0.00012",
    ]


# Rows.


@pytest.mark.parametrize("between", ["rows.parquet", "rows.arrow", "rows.jsonl", "rows.jsonl.gz", "rows.svm.zst"])
def test_rows_come_back(tmp_path: Path, between: str) -> None:
    (tmp_path / "a.svm").write_text(sparse_text())
    assert converted(str(tmp_path / "a.svm"), tmp_path / between)["rows"] == 300
    converted(str(tmp_path / between), tmp_path / "b.svm")
    for one, other in zip(rows_of(tmp_path / "a.svm"), rows_of(tmp_path / "b.svm"), strict=True):
        assert one.tobytes() == other.tobytes()


def test_rows_as_tables_and_text(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("+1 3:0.5 7:2\n-1 2.5 1:1e-10\n")
    a = str(tmp_path / "a.svm")
    converted(a, tmp_path / "a.parquet")
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == [
        {"label": 1.0, "weight": 1.0, "indices": [3, 7], "values": [0.5, 2.0]},
        {"label": -1.0, "weight": 2.5, "indices": [1], "values": [pytest.approx(1e-10)]},
    ]
    converted(a, tmp_path / "a.jsonl")
    assert (tmp_path / "a.jsonl").read_text() == (
        '{"label":1,"weight":1,"indices":[3,7],"values":[0.5,2]}\n'
        '{"label":-1,"weight":2.5,"indices":[1],"values":[1e-10]}\n'
    )
    converted(a, tmp_path / "a.vw")
    assert (tmp_path / "a.vw").read_text() == "1 | 3:0.5 7:2\n-1 2.5 | 1:1e-10\n"
    with pytest.raises(ConfigError, match=r"CSV cannot hold the rows of libsvm data; write jsonl, parquet"):
        converted(a, tmp_path / "a.csv")
    assert not (tmp_path / "a.csv").exists()


def test_a_cache_is_a_table_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.svm").write_text(sparse_text())
    from streamsvm.io.cache import CacheWriter

    writer = CacheWriter(tmp_path / "cache.arrow", None)
    writer.open()
    for batch in open_stream(str(tmp_path / "a.svm")):
        writer.write(batch)
    writer.finish()
    converted(str(tmp_path / "cache.arrow"), tmp_path / "b.svm")
    assert rows_of(tmp_path / "a.svm")[1].tobytes() == rows_of(tmp_path / "b.svm")[1].tobytes()


# Tables.


@pytest.mark.parametrize("between", ["t.csv", "t.tsv.gz", "t.jsonl", "t.arrow", "t.feather", "t.jsonl.xz", "t.csv.bz2"])
def test_tables_come_back(tmp_path: Path, between: str) -> None:
    pq.write_table(table(), tmp_path / "a.parquet")
    converted(str(tmp_path / "a.parquet"), tmp_path / between)
    converted(str(tmp_path / between), tmp_path / "b.parquet")
    back = pq.read_table(tmp_path / "b.parquet")
    same_values(table(), back)
    if "csv" not in between and "tsv" not in between:
        assert back.schema.names == table().schema.names  # nested as it was


def test_csv_is_what_the_csv_module_reads(tmp_path: Path) -> None:
    record = table(200).combine_chunks().to_batches()[0]
    text = bytes(csv_lines(record, ["name", "whole", "geo.city"], ",")).decode()
    rows = list(csv.reader(text.splitlines(keepends=True)))
    assert rows == [[row["name"] or "", f"{row['whole']:.1f}", row["geo"]["city"]] for row in record.to_pylist()]


def test_json_is_what_the_json_module_reads() -> None:
    found = table(200).append_column("list", pa.array([[1.5, None], [], None, [2.0]] * 50))
    record = found.combine_chunks().to_batches()[0]
    rows = [json.loads(line) for line in bytes(json_lines(record)).decode().splitlines()]
    expected = record.to_pylist()
    small = np.array([row.pop("small") for row in rows], np.float32)
    assert small.tolist() == [row.pop("small") for row in expected]
    assert rows == expected


@pytest.mark.parametrize("memory", ["1GB", "32MB"])
def test_many_blocks_and_files_keep_their_order(tmp_path: Path, memory: str) -> None:
    found = table(20_000)
    pq.write_table(found.slice(0, 7000), tmp_path / "a.parquet", row_group_size=3000)
    pq.write_table(found.slice(7000), tmp_path / "b.parquet")
    parts = [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]
    assert converted(parts, tmp_path / "all.csv", f"run.memory={memory}")["rows"] == 20_000
    converted(str(tmp_path / "all.csv"), tmp_path / "back.parquet", f"run.memory={memory}")
    same_values(found, pq.read_table(tmp_path / "back.parquet"))


def test_limit(tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / "a.parquet")
    for name in ("a.csv", "a.jsonl", "a.arrow", "a.vw", "a.svm"):
        sets = ["data.limit=7", "features.ignore=id"]
        assert converted(str(tmp_path / "a.parquet"), tmp_path / name, *sets)["rows"] == 7
    assert (tmp_path / "a.vw").read_text().count("\n") == 7 == (tmp_path / "a.jsonl").read_text().count("\n")


def test_the_same_model_from_every_format(tmp_path: Path, run: Any) -> None:
    found = table(3000).drop_columns(["ok"])  # which is true or false in Parquet, and a text in CSV
    pq.write_table(found, tmp_path / "t.parquet")
    models = []
    for name in ("t.parquet", "t.jsonl", "t.csv", "t.arrow"):
        if name != "t.parquet":
            assert run("convert", "t.parquet", name)[0] == 0
        assert run("train", name, "--label", "click", "--ignore", "id", "-q", "-o", "m.st")[0] == 0
        models.append(load_model("m.st"))
    assert run("convert", "t.parquet", "t.svm", "--label", "click", "--set", "features.ignore=id")[0] == 0
    for name, label in (("t.parquet", ["--label", "click", "--ignore", "id"]), ("t.svm", [])):
        # of indices nobody knows which are numbers, and so they would be scaled otherwise
        assert run("train", name, *label, "--scale", "none", "-q", "-o", "m.st")[0] == 0
        models.append(load_model("m.st"))
    for first, *others in (models[:4], models[4:]):
        assert np.count_nonzero(first.weights) > 20
        for other in others:
            width = other.dim
            assert other.bias == first.bias and other.weights.tobytes() == first.weights[:width].tobytes()
            assert not first.weights[width:].any()


def test_vw_text_has_names(tmp_path: Path) -> None:
    rows = [
        {"y": "yes", "w": 2.0, "n o": 1.5, "word": "a b:c|d", "tags": ["x", "y z"], "vec": [1.0, 2.0]},
        {"y": "no", "w": 1.0, "n o": None, "word": None, "tags": [], "vec": [0.5, -1.0]},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    converted(str(tmp_path / "a.parquet"), tmp_path / "a.vw", "data.label=y", "data.weight=w")
    assert (tmp_path / "a.vw").read_text() == (
        "1 2 |n n_o:1.5 vec[0]:1.0 vec[1]:2.0 |c word=a_b_c_d tags=x tags=y_z\n0 |n vec[0]:0.5 vec[1]:-1.0 |c\n"
    )
    assert sum(batch.rows for batch in _vw_stream(tmp_path / "a.vw")) == 2


def _vw_stream(path: Path) -> Any:
    from streamsvm.io import vw
    from streamsvm.stream import Stream

    return Stream(Source([str(path)]), vw.Dialect())


# Types of text.


def test_types_are_those_of_the_first_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "zip,count,share,day,at,flag,big,none\n"
        "01234,1,0.5,2024-01-31,2024-01-31 10:00:00,true,12345678901234567890,\n"
        "99999,-2,3,2024-02-01,2024-02-01T11:30:00.25,false,1,\n"
    )
    converted(str(tmp_path / "a.csv"), tmp_path / "a.parquet")
    found = pq.read_table(tmp_path / "a.parquet")
    assert [str(kind) for kind in found.schema.types] == [
        "string", "int64", "double", "date32[day]", "timestamp[us]", "bool", "string", "string"
    ]  # fmt: skip
    assert found["zip"].to_pylist() == ["01234", "99999"] and found["none"].null_count == 2


def test_a_number_that_is_missing_later_is_missing(tmp_path: Path) -> None:
    lines = [f"{k},{k / 4}" for k in range(6000)] + ["NA,null", "7, 8.5"]
    (tmp_path / "a.csv").write_text("a,b\n" + "\n".join(lines) + "\n")
    converted(str(tmp_path / "a.csv"), tmp_path / "a.parquet")
    assert pq.read_table(tmp_path / "a.parquet").slice(6000).to_pylist() == [{"a": None, "b": None}, {"a": 7, "b": 8.5}]


def test_what_does_not_fit_is_named_or_skipped(tmp_path: Path) -> None:
    lines = [f"{k},x" for k in range(6000)] + ["1.5,x", "1,2,3", "8,y"]
    path = str(tmp_path / "a.csv")
    Path(path).write_text("a,b\n" + "\n".join(lines) + "\n")
    with pytest.raises(
        DataError, match=r"a\.csv:6002: column a: '1\.5' is not a whole number, .*features\.categorical=a"
    ):
        converted(path, tmp_path / "a.parquet")
    assert os.listdir(tmp_path) == ["a.csv"]
    done = converted(path, tmp_path / "a.parquet", "data.on_bad_row=skip")
    assert (done["rows"], done["bad_rows"]) == (6001, 2) and "a.csv:6003: the row has 3 fields" in done["faults"][1]
    assert pq.read_table(tmp_path / "a.parquet")["b"].to_pylist()[-2:] == ["x", "y"]
    converted(path, tmp_path / "b.parquet", "data.on_bad_row=skip", "features.numeric=a")
    assert pq.read_table(tmp_path / "b.parquet")["a"].to_pylist()[-2:] == [1.5, 8.0]


def test_json_that_changes_later(tmp_path: Path) -> None:
    lines = ['{"a": 1, "b": {"c": "x"}}'] * 6000
    late = ['{"a": 2.0, "b": {"c": 5}}', '{"a": 2.5}', '{"a": 1, "d": 1}', "{", '{"b": null}']
    path = str(tmp_path / "a.jsonl")
    Path(path).write_text("\n".join(lines + late) + "\n")
    with pytest.raises(DataError, match=r"a\.jsonl:6002: field a: 2\.5 is not a whole number"):
        converted(path, tmp_path / "a.parquet")
    done = converted(path, tmp_path / "a.parquet", "data.on_bad_row=skip")
    assert (done["rows"], done["bad_rows"]) == (6002, 3) and "field d is in none of the first rows" in done["faults"][1]
    assert pq.read_table(tmp_path / "a.parquet").slice(6000).to_pylist() == [
        {"a": 2, "b": {"c": "5"}},
        {"a": None, "b": None},
    ]


def test_files_must_have_the_same_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "b.csv").write_text("b,a\n3,4\n")
    (tmp_path / "c.csv").write_text("a,c\n1,2\n")
    ab, ac = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")], [str(tmp_path / "a.csv"), str(tmp_path / "c.csv")]
    converted(ab, tmp_path / "ab.jsonl")
    assert (tmp_path / "ab.jsonl").read_text() == '{"a":1,"b":2}\n{"a":4,"b":3}\n'
    with pytest.raises(DataError, match=r"c\.csv: there is no column b, which the first file has"):
        converted(ac, tmp_path / "ac.jsonl")
    pq.write_table(pa.table({"a": pa.array([1, 2], pa.int64())}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": pa.array([3], pa.int32())}), tmp_path / "2.parquet")
    pq.write_table(pa.table({"a": pa.array([3.5])}), tmp_path / "3.parquet")
    one, two, three = (str(tmp_path / f"{k}.parquet") for k in (1, 2, 3))
    converted([one, two], tmp_path / "12.arrow")
    with pytest.raises(DataError, match=r"3\.parquet:1: column a is double, and int64 in the first file"):
        converted([one, three], tmp_path / "13.arrow")


def test_lists_do_not_go_to_csv(tmp_path: Path) -> None:
    pq.write_table(pa.table({"tags": [["a"], []]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="column tags holds lists, which CSV cannot have; write jsonl"):
        converted(str(tmp_path / "a.parquet"), tmp_path / "a.csv")
    converted(str(tmp_path / "a.parquet"), tmp_path / "a.jsonl")
    assert (tmp_path / "a.jsonl").read_text() == '{"tags":["a"]}\n{"tags":[]}\n'


@pytest.mark.parametrize("name", ["e.csv", "e.jsonl", "e.parquet", "e.arrow"])
def test_a_table_without_rows(tmp_path: Path, name: str) -> None:
    pq.write_table(table(1).slice(0, 0), tmp_path / "a.parquet")
    assert converted(str(tmp_path / "a.parquet"), tmp_path / name)["rows"] == 0
    if name == "e.csv":
        assert (tmp_path / name).read_text() == "id,click,name,ad,x,small,whole,ok,geo.city,geo.at.lat\n"


# Names of outputs.


def test_targets() -> None:
    assert target_of("a/b.svm.gz")[1:3] == ("libsvm", "gzip")
    assert target_of("b.tsv.zst") == ("b.tsv.zst", "csv", "zstd", "\t")
    assert target_of("out", "parquet").format == "parquet"
    for name, words in (
        ("out", "the name does not say which format"),
        ("out.parquet.gz", "parquet files are not compressed"),
        ("out.csv.lz4", "as .gz, .zst, .bz2 or .xz only"),
    ):
        with pytest.raises(ConfigError, match=words):
            target_of(name)


def test_a_forgotten_output_costs_no_input(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("x\n1\n")
    with pytest.raises(ConfigError, match=r"b\.csv: this file is there already, and has the format of the input"):
        converted(str(tmp_path / "a.csv"), tmp_path / "b.csv")
    (tmp_path / "c.jsonl").write_text("old")
    converted(str(tmp_path / "a.csv"), tmp_path / "c.jsonl")
    assert (tmp_path / "c.jsonl").read_text() == '{"x":1}\n'


# As a command.


def test_the_command(run: Any) -> None:
    Path("a.svm").write_text(sparse_text())
    code, out, err = run("convert", "a.svm", "a.parquet")
    assert code == 0 and out.startswith("converted 300 rows of libsvm") and "a.parquet (parquet, " in out
    assert "rows/s" in err
    code, out, err = run("convert", "a.parquet", "b.svm.gz", "--json", "--quiet")
    assert (code, err) == (0, "") and json.loads(out)["rows"] == 300 and len(out.splitlines()) == 1
    assert gzip.decompress(Path("b.svm.gz").read_bytes()).count(b"\n") == 300
    code, out, err = run("convert", "a.parquet", "-", "--to", "jsonl", "--limit", "2")
    assert code == 0 and [json.loads(line)["label"] for line in out.splitlines()] == [-1, 1] and "converted 2" in err
    assert run("convert", "a.svm", "a.csv")[0] == 2
    assert run("convert", "missing.svm", "x.csv")[0] == 3
    Path("bad.svm").write_text("1 3a:1\n")
    code, _, err = run("convert", "bad.svm", "x.jsonl")
    assert code == 4 and "bad.svm:1" in err and not Path("x.jsonl").exists()
    code, _, err = run("convert", "a.svm", "x.jsonl", "--to", "xml")
    assert code == 2 and "--to xml: must be one of auto, libsvm" in err


def test_labels_that_are_texts_are_told(run: Any) -> None:
    Path("a.csv").write_text("y,x\n" + "no,1\nyes,2\n" * 20)
    code, _, err = run("convert", "a.csv", "a.svm", "--label", "y")
    assert code == 0 and "labels are written as numbers: 0 for no, 1 for yes" in err
    assert Path("a.svm").read_text().startswith("0 0:1\n1 0:2\n")


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_an_interrupted_run_leaves_nothing(tmp_path: Path, number: int) -> None:
    code = "from streamsvm.cli import main; main()"
    for name in ("out.parquet", "out.jsonl.gz"):
        arguments = [sys.executable, "-c", code, "convert", "-", str(tmp_path / name), "--format", "csv"]
        with heard():
            process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"a,b\n" + b"1,x\n" * 200_000)
        process.stdin.flush()
        wait_for(lambda: process.poll() is not None or list(tmp_path.iterdir()))  # noqa: B023
        assert [path.name.endswith(".part") for path in tmp_path.iterdir()] == [True]
        process.send_signal(number)
        errors = process.communicate(timeout=60)[1].decode()
        assert process.returncode == 128 + number and "was not written" in errors
        assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full(run: Any) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    Path("a.svm").write_text(sparse_text())
    code, _, err = run("convert", "a.svm", "/dev/full", "--to", "jsonl")
    assert code == 3 and "/dev/full: cannot write" in err


def test_a_missing_file_is_a_source_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        converted(str(tmp_path / "nothing.svm"), tmp_path / "a.parquet")
