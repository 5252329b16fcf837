"""What `inspect` tells of data, whatever its format, and that it still knows models, checkpoints and caches."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from streamsvm.cli.inspect import kind_of


def clicks(rows: int = 400) -> pa.Table:
    return pa.table(
        {
            "day": [f"2024-01-{1 + k % 28:02d}" for k in range(rows)],
            "click": [k % 4 == 0 for k in range(rows)],
            "ad": [f"ad{k % 6}" if k % 10 else None for k in range(rows)],
            "price": [k / 8 for k in range(rows)],
            "hour": [k % 24 for k in range(rows)],
            "tags": [["x", "y"][: k % 3] for k in range(rows)],
        }
    )


def described(run: Any, *arguments: str) -> dict[str, Any]:
    code, out, err = run("inspect", *arguments, "--json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_table(run: Any) -> None:
    pq.write_table(clicks(), "clicks.parquet", row_group_size=150, compression="zstd")
    found = described(run, "clicks.parquet", "--set", "features.ignore=day")
    assert (found["kind"], found["format"], found["rows"], found["groups"]) == ("data", "parquet", 400, 3)
    assert found["compression"] == ["zstd"] and found["problem"] is None and found["label"] == "click"
    columns = {column["name"]: column for column in found["columns"]}
    assert {name: column["becomes"] for name, column in columns.items()} == {
        "day": "nothing", "click": "label", "ad": "category", "price": "number", "hour": "number", "tags": "categories"
    }  # fmt: skip
    assert columns["ad"]["missing"] == pytest.approx(0.1) and columns["ad"]["examples"] == ["ad1", "ad2", "ad3"]
    assert columns["price"]["type"] == "double" and columns["ad"]["type"] == "string"
    assert found["labels"] == {"0": 300, "1": 100} and found["sampled"] == 400
    first, second, _ = found["first_rows"]
    assert first == {"label": "1", "features": []}
    shown = {feature["name"]: feature for feature in second["features"]}
    assert shown["price"]["value"] == 0.125 and shown["price"]["index"] == 0 and shown["hour"]["value"] == 1
    assert shown["ad=ad1"]["index"] > 1 and shown["ad=ad1"]["value"] == 1

    code, out, _ = run("inspect", "clicks.parquet", "--set", "features.ignore=day")
    assert code == 0 and "clicks.parquet, parquet, 400 rows in 3 row groups, zstd" in out
    assert "labels   click: 0 75.0 % (300), 1 25.0 % (100); of 400 rows" in out
    assert f"price=0.125  hour=1  tags=x ({shown['tags=x']['index']})  ad=ad1 ({shown['ad=ad1']['index']})" in out


def test_what_stands_in_the_way_is_told_with_all_the_rest(run: Any) -> None:
    pq.write_table(clicks(), "clicks.parquet")
    found = described(run, "clicks.parquet")
    assert found["problem"] is None
    assert {column["name"]: column["becomes"] for column in found["columns"]}["day"] == "weekday, day and month"
    assert {column["name"]: column["becomes"] for column in found["columns"]}["ad"] == "category"
    pq.write_table(clicks().rename_columns(["day", "was", "ad", "price", "hour", "tags"]), "b.parquet")
    assert "which column is the label?" in described(run, "b.parquet", "--set", "features.ignore=day")["problem"]
    code, out, _ = run("inspect", "b.parquet", "--set", "features.ignore=day")
    assert code == 0 and "problem  which column is the label?" in out and "price" in out
    assert described(run, "b.parquet", "--label", "was", "--set", "features.ignore=day")["labels"]["1"] == 100


def test_text_tables(run: Any) -> None:
    Path("a.csv").write_text("yes;1.5;red\nno;;blue\n" * 20)
    found = described(run, "a.csv", "--columns", "y,size,colour", "--label", "y")
    assert (found["delimiter"], found["header"], found["labels"]) == (";", False, {"no": 20, "yes": 20})
    assert [column["missing"] for column in found["columns"]] == [0.0, 0.5, 0.0]
    assert "semicolon between fields, without a header" in run("inspect", "a.csv", "--label", "c1")[1]
    Path("a.jsonl").write_text('{"label": 1, "user": {"id": "u1", "age": 30}}\n{"label": 0}\n')
    found = described(run, "a.jsonl")
    assert [column["name"] for column in found["columns"]] == ["label", "user.id", "user.age"]
    assert {feature["name"] for feature in found["first_rows"][0]["features"]} == {"user.id=u1", "user.age"}


def test_rows(run: Any) -> None:
    Path("a.svm").write_text("+1 3:0.5 7:2\n-1 9:1\n+1 1:1\nbad\n")
    found = described(run, "a.svm")
    assert (found["sampled"], found["bad_rows"], found["largest_index"], found["most_features"]) == (3, 1, 9, 2)
    assert found["features_per_row"] == pytest.approx(4 / 3) and found["labels"] == {"-1": 1, "1": 2}
    out = run("inspect", "a.svm")[1]
    assert "  1 | 3:0.5  7:2\n  -1 | 9:1\n" in out and "bad      1 malformed rows" in out and "a.svm:4" in out
    Path("a.vw").write_text("1 |user u1 age:30\n-1 |user u2\n")
    found = described(run, "a.vw")
    assert {f["name"]: f["value"] for f in found["first_rows"][0]["features"]} == {"user^u1": 1, "user^age": 30}


def test_what_a_file_is_decides_its_content(run: Any) -> None:
    Path("data.svm").write_text("1 1:1\n-1 2:1\n" * 50)
    assert run("train", "data.svm", "-o", "model.bin", "-q", "--cache", "rows.arrow", "--passes", "2")[0] == 0
    pyarrow.feather.write_feather(clicks(), "clicks.arrow")
    Path("parts").mkdir()
    pq.write_table(clicks().drop_columns("day"), "parts/0.parquet")
    pq.write_table(clicks().drop_columns("day"), "parts/1.parquet")
    kinds = {name: kind_of(name) for name in ("model.bin", "rows.arrow", "clicks.arrow", "data.svm", "parts")}
    assert kinds == {
        "model.bin": "model", "rows.arrow": "cache", "clicks.arrow": "data", "data.svm": "data", "parts": "data"
    }  # fmt: skip
    assert described(run, "model.bin")["kind"] == "model" and described(run, "rows.arrow")["kind"] == "cache"
    assert described(run, "clicks.arrow", "--set", "features.ignore=day")["rows"] == 400
    assert described(run, "parts")["rows"] == 800 and len(described(run, "parts/*.parquet")["files"]) == 2
    assert run("inspect", "missing.csv")[0] == 3
