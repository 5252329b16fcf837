"""Predictions as a table: kept columns, their types, all formats, and what is refused."""

import csv
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

NAMES = ["plain", 'with "quotes", and', "two\nlines", None, "Ωμέγα"]


@pytest.fixture
def trained(run: Any) -> pa.Table:
    """A table, a model of it, and the table in other formats."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal(300)
    table = pa.table(
        {
            "id": np.arange(300) + 2**60,
            "name": [NAMES[k % 5] for k in range(300)],
            "y": ["no" if v < 0 else "yes" for v in x],
            "x": x,
            "ad": [f"ad{k % 7}" for k in range(300)],
            "at": [datetime(2024, 1, 1 + k % 30, k % 24) for k in range(300)],
        }
    )
    pq.write_table(table, "t.parquet")
    for name in ("t.csv", "t.jsonl"):
        assert run("convert", "t.parquet", name)[0] == 0
    train = ("train", "t.parquet", "--label", "y", "--ignore", "id,name,at", "--loss", "logistic", "-q", "-o", "m.st")
    assert run(*train, "--hash-bits", "12")[0] == 0
    return table


def plain(run: Any, name: str, *more: str) -> list[str]:
    code, out, err = run("predict", "m.st", name, *more)
    assert code == 0, err
    return str(out).splitlines()


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.jsonl"])
def test_csv_to_standard_output(run: Any, trained: pa.Table, name: str) -> None:
    labels, scores = plain(run, name), plain(run, name, "--scores")
    code, out, _ = run("predict", "m.st", name, "--keep", "id, name,ad,y", "--scores")
    assert code == 0
    rows = list(csv.DictReader(out.splitlines(keepends=True)))
    assert list(rows[0]) == ["id", "name", "ad", "y", "prediction", "score"]
    for column in ("id", "name", "ad", "y"):  # ad is a feature too
        assert [row[column] for row in rows] == [str(v) if v is not None else "" for v in trained[column].to_pylist()]
    assert [row["prediction"] for row in rows] == labels
    assert [float(row["score"]) for row in rows] == [float(score) for score in scores]


@pytest.mark.parametrize("output", ["p.parquet", "p.arrow", "p.jsonl", "p.tsv", "p.csv.gz"])
def test_files(run: Any, trained: pa.Table, output: str) -> None:
    labels, probabilities = plain(run, "t.parquet"), plain(run, "t.parquet", "--probabilities")
    code, out, err = run("predict", "m.st", "t.parquet", "--keep", "id,at", "--probabilities", "--scores", "-o", output)
    assert (code, out) == (0, ""), err
    assert run("convert", output, "back.parquet")[0] == 0
    found = pq.read_table("back.parquet")
    assert found.schema.names == ["id", "at", "prediction", "score", "probability"]
    assert found["id"].to_pylist() == trained["id"].to_pylist()
    assert found["prediction"].to_pylist() == labels
    assert found["probability"].to_pylist() == [float(value) for value in probabilities]
    if output != "p.jsonl":
        assert found["at"].to_pylist() == trained["at"].to_pylist()
    if output == "p.parquet":
        assert [str(kind) for kind in pq.read_schema("p.parquet").types[:3]] == ["int64", "timestamp[us]", "string"]


def test_without_keep(run: Any, trained: pa.Table) -> None:
    labels = plain(run, "t.csv")
    assert run("predict", "m.st", "t.csv", "-o", "p.csv")[0] == 0
    assert Path("p.csv").read_text().splitlines() == ["prediction", *labels]
    assert run("predict", "m.st", "t.csv", "-o", "labels.txt")[0] == 0
    assert Path("labels.txt").read_text().splitlines() == labels


def test_classes_that_are_numbers_stay_numbers(run: Any) -> None:
    Path("a.svm").write_text("1 1:1\n-1 2:1\n" * 50)
    assert run("train", "a.svm", "-q", "-o", "m.st")[0] == 0
    assert run("predict", "m.st", "a.svm", "-o", "p.parquet")[0] == 0
    assert pq.read_table("p.parquet")["prediction"].to_pylist() == [1, -1] * 50
    assert run("predict", "m.st", "a.svm", "-o", "p.jsonl")[0] == 0
    assert json.loads(Path("p.jsonl").read_text().splitlines()[0]) == {"prediction": 1}
    code, _, err = run("predict", "m.st", "a.svm", "--keep", "id")
    assert code == 2 and "libsvm data has no columns" in err


def test_rows_that_are_skipped_are_skipped_with_what_was_kept(run: Any, trained: pa.Table) -> None:
    lines = Path("t.jsonl").read_text().splitlines()[:6]
    lines[2] = lines[2][:20]
    Path("bad.jsonl").write_text("\n".join(lines) + "\n")
    code, out, err = run("predict", "m.st", "bad.jsonl", "--keep", "id", "--on-bad-row", "skip")
    assert code == 0 and "skipped 1 malformed rows" in err
    assert [line.split(",")[0] for line in out.splitlines()[1:]] == [str(2**60 + k) for k in (0, 1, 3, 4, 5)]


def test_what_is_refused(run: Any, trained: pa.Table) -> None:
    code, out, err = run("predict", "m.st", "t.csv", "--keep", "nope")
    assert (code, out) == (4, "") and "there is no column nope" in err
    code, _, err = run("predict", "m.st", "t.parquet", "--keep", "nope", "-o", "p.parquet")
    assert code == 4 and "there is no column nope" in err and not Path("p.parquet").exists()
    assert run("predict", "m.st", "t.csv", "--keep", "id,id")[0] == 2
    pq.write_table(trained.append_column("tags", pa.array([["a"]] * 300)), "lists.parquet")
    code, _, err = run("predict", "m.st", "lists.parquet", "--keep", "tags")
    assert code == 2 and "--keep tags: the column holds lists" in err
    pq.write_table(trained.rename_columns(["prediction", *trained.schema.names[1:]]), "clash.parquet")
    code, _, err = run("predict", "m.st", "clash.parquet", "--keep", "prediction")
    assert code == 2 and "the table has a column of this name already" in err
    assert run("predict", "m.st", "t.csv", "--scores", "--probabilities")[0] == 2


def test_settings(run: Any, trained: pa.Table) -> None:
    assert len(plain(run, "t.csv", "--set", "data.limit=3")) == 3
    code, _, err = run("evaluate", "m.st", "t.csv", "--set", "data.delimiter=;")
    assert code != 0 and "no column" in err
    assert run("evaluate", "m.st", "t.csv", "--set", "data.delimiter=,", "--json")[0] == 0
    assert run("predict", "m.st", "t.csv", "--set", "data.nope=1")[0] == 2
