"""`streamsvm evaluate` as a user meets it: slices by a column, classes that the model does not know, the output."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from streamsvm.metrics import slices
from streamsvm.model import Model

SITES = ["a.com", "b, with comma", None, "Ωμέγα\nsite"]


@pytest.fixture
def table(run: Any) -> pa.Table:
    """A table whose label is a text, in three formats, and a model of it."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal(400)
    site = rng.integers(0, 4, 400)
    y = np.where(x + rng.standard_normal(400) * (0.1 + site) > 0, "yes", "no")
    columns = {"y": y, "x": x, "w": rng.choice([0.5, 1.0, 2.0], 400), "site": [SITES[k] for k in site]}
    table = pa.table({**columns, "number": site.astype(float)})
    pq.write_table(table, "t.parquet")
    for name in ("t.csv", "t.jsonl"):
        assert run("convert", "t.parquet", name)[0] == 0
    train = ("train", "t.parquet", "--label", "y", "--weight", "w", "--ignore", "site,number", "--loss", "logistic")
    assert run(*train, "-q", "-o", "m.st")[0] == 0
    return table


def figures(run: Any, *arguments: str) -> dict[str, Any]:
    code, out, err = run("evaluate", *arguments, "--json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.jsonl"])
def test_slices_are_what_their_rows_alone_give(run: Any, table: pa.Table, name: str) -> None:
    whole = figures(run, "m.st", name, "--by", "site")
    assert whole["by"] == "site" and set(whole["slices"]) == {"a.com", "b, with comma", "(missing)", SITES[3]}
    weights = [one["weight"] for one in whole["slices"].values()]
    assert weights == sorted(weights, reverse=True) and sum(weights) == pytest.approx(sum(table["w"].to_pylist()))
    for value, one in whole["slices"].items():
        mine = pa.array([text == (None if value == "(missing)" else value) for text in table["site"].to_pylist()])
        pq.write_table(table.filter(mine), "part.parquet")
        alone = figures(run, "m.st", "part.parquet")
        assert one.keys() == {"examples", "weight", "error", "loss", "auc", "auc_error", "f1", "brier", "ece"}
        for key in one.keys() - {"weight"}:
            assert one[key] == alone[key], (value, key)
    plain = figures(run, "m.st", name)
    assert {key: whole[key] for key in plain} == plain and whole.keys() - plain.keys() == {"by", "slices"}


def test_slices_by_numbers_by_a_feature_and_by_the_label(run: Any, table: pa.Table) -> None:
    assert list(sorted(figures(run, "m.st", "t.parquet", "--by", "number")["slices"])) == ["0", "1", "2", "3"]
    assert len(figures(run, "m.st", "t.parquet", "--by", "x")["slices"]) == 400
    by_label = figures(run, "m.st", "t.csv", "--by", "y", "--unknown-classes", "skip")
    assert set(by_label["slices"]) == {"no", "yes"} and by_label["slices"]["no"]["auc"] is None
    assert sum(one["examples"] for one in by_label["slices"].values()) == 400


def test_further_values_are_counted_together(run: Any, table: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "MOST_SLICES", 5)
    found = figures(run, "m.st", "t.parquet", "--by", "x")["slices"]
    assert len(found) == 6 and found["(others)"]["examples"] == 395 and next(iter(found)) == "(others)"
    assert slices.slices_for(10**7) == 3


def test_slices_of_many_classes(run: Any, table: pa.Table) -> None:
    model = Model(np.array([[1.0, 0.0, -1.0]], np.float32), np.zeros(3), ["no", "yes", "maybe"], "logistic")
    columns = [{"name": "x", "kind": "number"}]
    recipe = {"format": "table", "columns": columns, "label": "y", "label_classes": ["no", "yes", "maybe"]}
    model.recipe = {
        **recipe,
        "weight": None,
        "hash_bits": None,
        "interactions": [],
        "ngrams": 1,
        "hash": "murmur3_32 signed",
    }
    model.save("many.st")
    found = figures(run, "many.st", "t.parquet", "--by", "site")
    for one in found["slices"].values():
        assert one.keys() == {"examples", "weight", "error", "loss", "macro_f1", "brier", "ece"}
    assert sum(one["error"] * one["weight"] for one in found["slices"].values()) == pytest.approx(found["error"] * 400)
    code, out, _ = run("evaluate", "many.st", "t.parquet", "--by", "site")
    assert code == 0 and "macro F1" in out and "top 2" in out and "Ωμέγα site" in out


def test_what_has_no_columns_has_no_slices(run: Any, table: pa.Table) -> None:
    Path("a.svm").write_text("1 1:1\n-1 2:1\n" * 50)
    assert run("train", "a.svm", "-q", "-o", "a.st")[0] == 0
    code, out, err = run("evaluate", "a.st", "a.svm", "--by", "site")
    assert (code, out) == (2, "") and err.startswith("streamsvm: --by site: libsvm data has no columns")
    code, _, err = run("evaluate", "m.st", "t.csv", "--by", "nope")
    assert code == 4 and "there is no column nope" in err


# Classes that the model does not know.


def test_unknown_classes_that_are_texts(run: Any, table: pa.Table) -> None:
    texts = table["y"].to_pylist()
    strange = [f"new {k % 3}" if k % 4 == 0 else texts[k % 400] for k in range(6000)]  # 1500: more than bad rows may be
    longer = pa.concat_tables([table] * 15).set_column(0, "y", pa.array(strange))
    pq.write_table(longer, "u.parquet")
    pc.write_csv(longer, "u.csv")
    known = longer.filter(pa.array([not text.startswith("new") for text in strange]))
    pq.write_table(known, "known.parquet")
    clean = figures(run, "m.st", "known.parquet", "--by", "site")
    for name in ("u.parquet", "u.csv"):
        code, _, err = run("evaluate", "m.st", name)
        assert code == 4 and "is not one of the classes (no, yes)" in err
        found = figures(run, "m.st", name, "--by", "site", "--unknown-classes", "skip")
        assert found.pop("unknown_class_rows") == 1500
        assert found.pop("unknown_classes") == {"new 0": 500, "new 1": 500, "new 2": 500}
        assert found == clean
    code, out, _ = run("evaluate", "m.st", "u.csv", "--unknown-classes", "skip")
    assert code == 0 and "left out 1,500 rows of unknown classes: new 0 500, new 1 500, new 2 500" in out


def test_labels_that_are_missing_are_an_error_all_the_same(run: Any, table: pa.Table) -> None:
    lines = Path("t.csv").read_text().splitlines()
    Path("u.csv").write_text("\n".join([lines[0], "strange" + lines[1][lines[1].index(",") :], ",1,1,a.com,1"]) + "\n")
    code, _, err = run("evaluate", "m.st", "u.csv", "--unknown-classes", "skip")
    assert code == 4 and "row 2 has no label" in err
    Path("u.csv").write_text("x,w,site,number\n1,1,a.com,1\n")
    assert run("evaluate", "m.st", "u.csv", "--unknown-classes", "skip")[0] == 4


def test_unknown_classes_that_are_numbers(run: Any) -> None:
    Path("a.svm").write_text("1 1:1\n-1 2:1\n" * 50)
    Path("u.svm").write_text("1 1:1\n-1 2:1\n5 2:1\n" * 2000)
    assert run("train", "a.svm", "-q", "-o", "a.st")[0] == 0
    code, _, err = run("evaluate", "a.st", "u.svm")
    assert code == 4 and "row 3: label 5 is not one of the classes (-1, 1)" in err and "--unknown-classes skip" in err
    found = figures(run, "a.st", "u.svm", "--unknown-classes", "skip")
    assert (found["examples"], found["error"], found["unknown_class_rows"]) == (4000, 0.0, 2000)
    assert found["unknown_classes"] == {"5": 2000}
    assert "unknown_class_rows" not in figures(run, "a.st", "a.svm")
    code, _, err = run("evaluate", "a.st", "a.svm", "--unknown-classes", "ignore")
    assert code == 2 and "--unknown-classes: must be raise or skip, not 'ignore'" in err


# What is printed.


def test_what_is_printed(run: Any, table: pa.Table) -> None:
    code, out, _ = run("evaluate", "m.st", "t.csv", "--by", "site")
    assert code == 0 and max(map(len, out.splitlines())) <= 100
    first, second, third = out.splitlines()[:3]
    assert first.startswith("loss 0.") and first.endswith(" on 400 examples") and ", AUC 0." in first
    assert second.startswith("log loss 0.") and ", Brier 0." in second and ", calibration error 0." in second
    assert third.startswith("average precision 0.") and ", precision 0." in third and ", F1 0." in third
    assert "true / predicted" in out and "reliability, of class yes" in out
    assert out.splitlines()[-5].split() == [
        "site",
        "examples",
        "weight",
        "error",
        "loss",
        "AUC",
        "F1",
        "Brier",
        "calib.",
        "error",
    ]
    code, out, _ = run("train", "t.csv", "--label", "y", "--test", "t.csv", "--loss", "logistic", "-q")
    test = next(line for line in out.splitlines() if line.startswith("test "))
    assert "Brier 0." in test and "calibration error 0." in test and test.endswith("on 400 examples")


def test_help_shows_slices(run: Any) -> None:
    code, out, _ = run("evaluate", "--help")
    assert (
        code == 0
        and "--by site" in " ".join(out.split())
        and "whose class the model does not know" in " ".join(out.split())
    )
