"""Whole runs on tables: the same model and the same scores whatever the format, and every message on the way."""

import csv
import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from libsvm_twin import collect, rows_of
from table_twin import twin
from whole_runs import Notes, bits

from streamsvm import load_settings, train
from streamsvm.errors import ConfigError, DataError, ModelError, StreamSvmError
from streamsvm.features.recipe import Column, Recipe
from streamsvm.model import load_model
from streamsvm.reading import make_source, test_stream, training_stream
from streamsvm.stream import Reading, Tally

test_stream.__test__ = False  # type: ignore[attr-defined]  # it is none
FORMATS = ("csv", "parquet", "arrow", "jsonl")


def settings(path: Any, **given: Any):
    overrides = {"data.train": str(path), "output.model": None, "penalty.l2": 1e-3}
    return load_settings(overrides={**overrides, **{k.replace("__", "."): v for k, v in given.items()}}, environ={})


def run(path: Any, notes: Notes | None = None, **given: Any):
    return train(settings(path, **given), notes or Notes())


def planned(path: Any, **given: Any):
    """The recipe and the rows of a training stream, and what was said."""
    notes: list[str] = []
    stream = training_stream(settings(path, **given), notes.append)
    return stream.dialect.recipe, collect(stream), notes


def scores(model, path: Any, labelled: bool = False, **given: Any) -> np.ndarray:
    chosen = settings(path, **given)
    stream = test_stream(chosen, make_source(chosen, (str(path),)), model, labelled=labelled)
    return np.concatenate([model.scores(batch) for batch in stream] or [np.empty(0)])


def made_rows(count: int, seed: int = 0) -> list[dict]:
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        x, k, s = rng.gauss(0, 1), rng.randrange(6), rng.choice(["a", "b", "é, c", 'd "e"', "f\ng", None])
        label = "yes" if x + (k == 3) - (s == "a") + rng.gauss(0, 0.3) > 0 else "no"
        text = " ".join(rng.choice(["Good", "bad", "über", "7_x"]) for _ in range(rng.randrange(5)))
        row = {
            "label": label,
            "x": rng.choice([x, x, x, None]),
            "n": rng.choice([0, 17, 2**40 + 1, -3]),
            "k": k,
            "s": s,
        }
        rows.append({**row, "t": text, "b": rng.random() < 0.5, "age": rng.choice([3, 18, 44, None])})
    return rows


ROWS = made_rows(600)
WISHES: dict[str, Any] = {
    "features.text": ["t"],
    "features.log1p": ["n"],
    "features.numeric": ["b"],
    "features.bucketize": {"age": [18, 30]},
    "features.interactions": [["k", "s"], ["x", "k"], ["t", "s"]],
    "features.ngrams": 2,
    "features.hash_bits": 12,
}
GIVEN = {key.replace(".", "__"): value for key, value in WISHES.items()}


def write(folder: Path, rows: list[dict], format: str, name: str = "rows", **options: Any) -> str:
    path = folder / f"{name}.{format}"
    if format == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, **{"row_group_size": 170, **options})
    elif format == "arrow":
        feather.write_feather(pa.Table.from_pylist(rows), str(path), chunksize=130)
    elif format == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return str(path)


# The promise.


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("formats")
    return {format: write(folder, ROWS, format) for format in FORMATS}


@pytest.fixture(scope="module")
def trained(written):
    return {format: run(written[format], **GIVEN) for format in FORMATS}


def test_all_formats_have_the_rows_of_the_twin(written):
    for format in FORMATS:
        recipe, rows, _ = planned(written[format], **GIVEN)
        assert rows == twin(ROWS, recipe)[0], format
        assert recipe.label_classes == ("no", "yes") and recipe.hash_bits == 12


def test_the_same_model_from_every_format(trained):
    recipes = [outcome.model.recipe for outcome in trained.values()]
    assert all(recipe == recipes[0] for recipe in recipes)
    assert len({bits(outcome) for outcome in trained.values()}) == 1
    assert trained["csv"].model.classes == ["no", "yes"]


@pytest.mark.parametrize("trained_on", FORMATS)
def test_the_same_scores_whatever_the_rows_come_in(tmp_path, trained, trained_on):
    rows = made_rows(200, seed=1)
    unlabelled = [{key: row[key] for key in reversed(row) if key != "label"} for row in rows]
    model = trained[trained_on].model
    found = {format: scores(model, write(tmp_path, unlabelled, format)) for format in FORMATS}
    assert all(found[format].tobytes() == found["csv"].tobytes() for format in FORMATS)
    assert len(found["csv"]) == 200 and found["csv"].std() > 0.1
    labelled = scores(model, write(tmp_path, rows, "csv", "labelled"), labelled=True)
    assert labelled.tobytes() == found["csv"].tobytes()
    one_by_one = [scores(model, write(tmp_path, [row], "jsonl", "one"))[0] for row in unlabelled[:5]]
    assert one_by_one == found["csv"][:5].tolist()


def test_a_model_on_disk_reads_tables(tmp_path, trained, written):
    path = str(tmp_path / "m.model")
    trained["parquet"].model.save(path)
    assert (
        scores(load_model(path), written["csv"]).tobytes() == scores(trained["csv"].model, written["arrow"]).tobytes()
    )


@pytest.mark.parametrize("format", FORMATS)
def test_how_it_is_read_changes_nothing(written, format):
    chosen = settings(written[format], **GIVEN)
    expected = collect(training_stream(chosen))
    for block_size, threads, memory in ((1, 1, 10**9), (100, 3, 10**6), (1000, 2, 1), (0, 4, 10**7)):
        stream = training_stream(chosen)
        stream.reading = Reading(memory=memory, threads=threads, block_size=block_size)
        assert collect(stream) == expected


@pytest.mark.parametrize("format", FORMATS)
def test_going_on(written, format, monkeypatch):
    monkeypatch.setattr("streamsvm.readers.MOST_ROWS", 64)
    chosen = settings(written[format], **GIVEN)
    whole = training_stream(chosen)
    whole.reading = Reading(threads=2, block_size=3000)
    batches, tallies = [], []
    for batch in whole:
        batches.append(rows_of(batch))
        tallies.append(whole.tally.state())
    assert len(batches) > 5
    for k, tally in enumerate(tallies):
        again = training_stream(chosen)
        again.reading = Reading(threads=1, block_size=3000)
        assert [row for batch in again.in_order(Tally.restored(tally, again.source)) for row in rows_of(batch)] == sum(
            batches[k + 1 :], []
        )


@pytest.mark.parametrize("format", FORMATS)
def test_several_passes_over_a_cache(tmp_path, written, format):
    cache = str(tmp_path / "cache.arrow")
    once = run(written[format], solver__passes=2, run__cache=cache, **GIVEN)
    again = run(written[format], solver__passes=2, run__cache=cache, **GIVEN)
    assert bits(once) == bits(again)
    with pytest.raises(StreamSvmError, match="cache"):
        run(written[format], solver__passes=2, run__cache=cache, **{**GIVEN, "features__hash_bits": 13})


def test_scaling_leaves_hashed_features_alone(trained, written):
    model = run(written["csv"], features__scale="standard", **GIVEN).model
    dense = Recipe.of_model(model.recipe).dense
    assert model.scale is not None and (model.scale[dense:] == 1).all() and (model.scale[:dense] != 1).any()


def test_learning_on_from_another_format(tmp_path, trained, written):
    first = str(tmp_path / "first.model")
    trained["csv"].model.save(first)
    found = [run(written[format], solver__init=first) for format in ("csv", "parquet", "arrow", "jsonl")]
    assert len({bits(outcome) for outcome in found}) == 1
    assert found[0].model.recipe == trained["csv"].model.recipe


# Plans.


def test_automatic_kinds(tmp_path):
    rows = [
        {
            "y": k % 2,
            "amount": k / 3,
            "count": k,
            "month": k % 12,
            "country": ["NA", "DE"][k % 2],
            "flag": k % 2,
            "gap": "NA" if k % 3 else k,
        }
        for k in range(200)
    ]
    recipe, found, notes = planned(write(tmp_path, rows, "csv"))
    assert {c.name: (c.kind, c.number) for c in recipe.columns} == {
        "amount": ("number", False), "month": ("word", True), "country": ("word", False),
        "flag": ("number", False), "gap": ("number", False),
    }  # fmt: skip
    assert found == twin(rows, recipe)[0]
    assert notes[0].startswith("count: whole numbers that grow by 1 from row to row, ignored; --numeric count keeps it")
    assert notes[1:] == ["features: 3 numeric (amount, flag, gap), 2 categorical (month, country); label y"]


def test_lists_in_records(tmp_path):
    rows = [
        {"y": k % 2, "tags": ["a", "b"][: k % 3], "ids": [k % 5] * (k % 4), "v": [k / 7, 0.0, 1.0]} for k in range(60)
    ]
    for format in ("parquet", "arrow", "jsonl"):
        recipe, found, _ = planned(write(tmp_path, rows, format))
        assert [(c.kind, c.width) for c in recipe.columns] == [("words", 1), ("words", 1), ("vector", 3)]
        assert found == twin(rows, recipe)[0], format
    model = run(write(tmp_path, rows, "parquet")).model
    with pytest.raises(
        ModelError, match="the model was trained on lists in column tags, which CSV cannot hold; use JSON"
    ):
        scores(model, write(tmp_path, [{"tags": "a", "ids": 1, "v": 1}], "csv", "other"))


def test_nested_records(tmp_path):
    rows = [{"y": k % 2, "user.id": k % 9, "user.geo.c": "ab"[k % 2]} for k in range(120)]
    nested = [{"y": r["y"], "user": {"id": r["user.id"], "geo": {"c": r["user.geo.c"]}}} for r in rows]
    expected = None
    for format in ("parquet", "arrow", "jsonl"):
        recipe, found, _ = planned(write(tmp_path, nested, format), features__interactions=[["user.id", "user.geo.c"]])
        assert found == twin(rows, recipe)[0] and expected in (None, recipe)
        expected = recipe
    recipe, found, _ = planned(write(tmp_path, rows, "csv"), features__interactions=[["user.id", "user.geo.c"]])
    assert (recipe, found) == (expected, twin(rows, recipe)[0])


def test_tiny_row_groups_are_looked_at_together(tmp_path):
    rows = [{"label": "no" if k < 150 else "yes", "s": f"v{k % 3}"} for k in range(200)]
    recipe, found, _ = planned(write(tmp_path, rows, "parquet", row_group_size=1))
    assert recipe.label_classes == ("no", "yes") and len(found) == 200


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_times(tmp_path, format):
    path = tmp_path / f"a.{format}"
    table = pa.table({"y": [0, 1], "when": pa.array([10**18 + 1, 0], pa.timestamp("ns")), "x": [1.0, 2.0]})
    pq.write_table(table, path) if format == "parquet" else feather.write_feather(table, str(path))
    assert planned(path)[0].columns[0] == Column("when", "date", parts=("hour", "weekday", "day", "month"))
    assert [c.name for c in planned(path, features__ignore=["when"])[0].columns] == ["x"]
    texts = write(tmp_path, [{"y": 0, "day": "2024-01-02"}, {"y": 1, "day": "2024-01-03"}], format, "texts")
    assert planned(texts)[0].columns == (Column("day", "date", parts=("weekday", "day", "month")),)


def test_labels_of_every_kind(tmp_path):
    for format in FORMATS:
        for values, classes in (
            ([0, 1], [0, 1]),
            ([-1.0, 1.0], [-1, 1]),
            (["b", "a"], ["a", "b"]),
            (["01", "x"], ["01", "x"]),
        ):
            rows = [{"label": values[k % 2], "x": k / 10 - k % 2 * 5} for k in range(50)]
            assert run(write(tmp_path, rows, format)).model.classes == classes, (format, values)
    truth = [{"label": k % 2 == 0, "x": 1.0 + k % 2} for k in range(50)]
    for format in ("parquet", "arrow", "jsonl"):
        assert run(write(tmp_path, truth, format)).model.classes == [0, 1]
    model = run(write(tmp_path, truth, "parquet")).model
    assert len(scores(model, write(tmp_path, truth, "csv"), labelled=True)) == 50  # True and False are 1 and 0


def test_a_binary_label(tmp_path):
    pq.write_table(pa.table({"label": [b"no", b"yes"] * 9, "x": range(18)}), tmp_path / "a.parquet")
    assert run(tmp_path / "a.parquet").model.classes == ["no", "yes"]


def test_what_pandas_writes_by_default(tmp_path):
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame([{"label": k % 2, "x": k / 9} for k in range(30)]).to_csv(tmp_path / "a.csv")
    recipe, found, notes = planned(tmp_path / "a.csv")
    assert [c.name for c in recipe.columns] == ["x"] and len(found) == 30
    assert "a column without a name is left out" in notes[0]


# CSV with and without headers.


def headerless(rows: int) -> bytes:
    return b"".join(b"%d,%d.5,%s\n" % (k % 2, k, b"ab"[k % 2 : k % 2 + 1]) for k in range(rows))


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_no_header(put, bom):
    path = put("a.csv", bom + headerless(40))
    recipe, found, _ = planned(path)
    assert recipe.label == "c1" and [(c.name, c.kind) for c in recipe.columns] == [("c2", "number"), ("c3", "word")]
    assert len(found) == 40
    model = run(path).model
    assert model.recipe["fields"] == ["c1", "c2", "c3"]
    whole = scores(model, path)
    unlabelled = put("b.csv", bom + b"".join(line.split(b",", 1)[1] + b"\n" for line in headerless(40).splitlines()))
    assert scores(model, unlabelled).tobytes() == whole.tobytes()
    named = put("c.csv", b"c3,c2\n" + b"".join(b"%s,%d.5\n" % (b"ab"[k % 2 : k % 2 + 1], k) for k in range(40)))
    assert scores(model, named).tobytes() == whole.tobytes()


def test_names_for_columns(put):
    path = put("a.csv", headerless(40))
    recipe, _, _ = planned(path, data__columns=["target", "amount", "kind"])
    assert recipe.label == "target" and [c.name for c in recipe.columns] == ["amount", "kind"]
    with pytest.raises(ConfigError, match="data.columns: 2 names, but the first row has 3 fields"):
        planned(path, data__columns=["a", "b"])
    with pytest.raises(ConfigError, match="which column is the label"):
        planned(path, data__columns=["a", "b", "c"])


def test_headers_on_demand(put):
    path = put("a.csv", b"label,b\n" + b"yes,p\nno,q\n" * 20)
    assert len(planned(path)[1]) == 40
    assert planned(path, data__header=False, data__label="c2", data__classes=["b", "p", "q"])[0].label == "c2"
    numbers = put("b.csv", b"1,2\n" + b"0,3\n1,4\n" * 20)
    assert planned(numbers, data__header=True, data__label="1")[0].columns[0].name == "2"
    with pytest.raises(DataError, match=r"c\.csv:1: two columns are called x; give them different names; if"):
        planned(put("c.csv", b"label,x,x\n1,2,3\n"), data__header=True)
    with pytest.raises(DataError, match=r"d\.csv: there is no column to learn from"):
        planned(put("d.csv", b""))


@pytest.mark.parametrize(
    "delimiter, asked", [(b"\t", "auto"), (b";", "auto"), (b"|", "auto"), (b"~", "~"), (b" ", "space"), (b"\t", "tab")]
)
def test_delimiters(put, delimiter, asked):
    lines = [b"label,x,s", *(b'%d,%d.5,"a%s%d"' % (k % 2, k, b"\n" if k % 7 == 0 else b"", k % 3) for k in range(30))]
    path = put("a.csv", b"\n".join(lines).replace(b",", delimiter))
    recipe, found, _ = planned(path, data__delimiter=asked)
    rows = [{"label": k % 2, "x": k + 0.5, "s": f"a{chr(10) if k % 7 == 0 else ''}{k % 3}"} for k in range(30)]
    assert found == twin(rows, recipe)[0]


def test_quotes_as_text(put):
    path = put("a.csv", b"label,s\n" + b'1,"a\n0,b"\n' * 10)
    recipe, found, _ = planned(path, data__quote=False, data__on_bad_row="skip", data__header=True)
    assert len(found) == 20 and recipe.label == "label"


def test_a_glob_whose_files_differ(tmp_path):
    rows = [{"label": k % 2, "x": k / 5, "s": "ab"[k % 2]} for k in range(30)]
    write(tmp_path, rows, "csv", "0")
    write(tmp_path, [{key: row[key] for key in ("s", "label", "x")} for row in rows], "csv", "1")
    recipe, found, _ = planned(tmp_path / "*.csv")
    assert found == twin(rows * 2, recipe)[0]
    write(tmp_path, [{"label": 1, "x": 2}], "csv", "2")
    with pytest.raises(DataError, match=r"2\.csv: there is no column s"):
        planned(tmp_path / "*.csv")
    assert (
        planned(tmp_path / "*.csv", data__missing_columns="absent")[1]
        == twin([*rows, *rows, {"label": 1, "x": 2}], recipe)[0]
    )


def test_bad_rows_are_skipped_and_counted(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("label,x,s\n" + "1,2,a\n0,oops,b\n0,3\n0,4,c\n" * 20)
    with pytest.raises(DataError, match=rf"^{path}:3: column x: 'oops' is not a number$"):
        planned(path, features__numeric=["x"])
    recipe, found, _ = planned(path, features__numeric=["x"], data__on_bad_row="skip")
    assert len(found) == 40
    with pytest.raises(DataError, match=r":6[0-9]: .*more than 30 bad rows skipped"):
        planned(path, features__numeric=["x"], data__on_bad_row="skip", data__max_bad_rows=30)


def test_weights(tmp_path):
    rows = [{"label": k % 2, "w": k % 3 / 2, "x": k / 5} for k in range(60)]
    for format in FORMATS:
        recipe, found, _ = planned(write(tmp_path, rows, format), data__weight="w")
        assert recipe.weight == "w" and found == twin(rows, recipe)[0]


@pytest.mark.skipif(os.name != "posix", reason="named pipes")
def test_csv_from_standard_input(tmp_path):
    """Its beginning is looked at, and comes again; a row that is on its way is not mistaken for a whole one."""
    code = (
        "from streamsvm import load_settings\nfrom streamsvm.reading import training_stream\n"
        "s = load_settings(overrides={'data.train': '-', 'data.format': 'csv'}, environ={})\n"
        "stream = training_stream(s)\n"
        "print(stream.dialect.recipe.label_classes, sum(b.rows for b in stream))"
    )
    text = "label,s\n" + "yes,a\nno,b\n" * 50
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(text + "y")
        process.stdin.flush()
        process.stdin.write("es,c\n")
        process.stdin.close()
        assert process.stdout.read() == "('no', 'yes') 101\n"


# Indices.


def test_sparse_tables_and_libsvm_text_are_one(tmp_path, put):
    rng = random.Random(0)
    rows = []
    for k in range(200):
        chosen = sorted(rng.sample(range(50), 6))
        rows.append(
            {"label": 2 * (k % 2) - 1, "indices": chosen, "values": [round(rng.gauss(k % 2, 1), 3) for _ in chosen]}
        )
    pairs = [" ".join(f"{i}:{v}" for i, v in zip(row["indices"], row["values"], strict=True)) for row in rows]
    text = put("a.svm", "".join(f"{row['label']} {pair}\n" for row, pair in zip(rows, pairs, strict=True)).encode())
    found = {format: run(write(tmp_path, rows, format)) for format in ("parquet", "arrow", "jsonl")}
    expected = run(text)
    for format, outcome in found.items():
        assert bits(outcome) == bits(expected) and outcome.model.recipe == expected.model.recipe, format
        assert (
            scores(outcome.model, text).tobytes() == scores(expected.model, str(tmp_path / f"rows.{format}")).tobytes()
        )
    hashed = run(str(tmp_path / "rows.parquet"), features__hash_bits=4)
    assert bits(hashed) == bits(run(text, features__hash_bits=4))
    with pytest.raises(DataError, match=r"features.dim: 40"):
        run(str(tmp_path / "rows.parquet"), features__dim=40)
    with pytest.raises(ModelError, match="cannot be used on csv data"):
        scores(expected.model, put("b.csv", b"a,b\n1,2\n"))


def test_dimensions_are_for_indices(tmp_path):
    with pytest.raises(ConfigError, match="features.dim: this table has 2 weights"):
        run(write(tmp_path, [{"label": 0, "x": 1.0}, {"label": 1, "x": 2.0}], "csv"), features__dim=9)


# Other ways in.


def test_compressed_csv(tmp_path, trained, written):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(Path(written["csv"]).read_bytes()))
    assert bits(run(path, **GIVEN)) == bits(trained["csv"])


def test_remote_tables(bucket, trained, written):
    for format in FORMATS:
        with bucket.open(f"/data/a.{format}", "wb") as file:
            file.write(Path(written[format]).read_bytes())
        assert bits(run(f"memory://data/a.{format}", **GIVEN)) == bits(trained["csv"])


def test_a_model_of_columns_says_what_is_missing(tmp_path, trained):
    path = write(tmp_path, [{"x": 1.0, "n": 2}], "csv")
    with pytest.raises(DataError, match=r"rows\.csv: there is no column k and 4 more \(there are x, n\)"):
        scores(trained["csv"].model, path)
    assert len(scores(trained["csv"].model, path, data__missing_columns="absent")) == 1


# Numbers that are missing.

FAR = [
    {"y": int(k % 3 == 0), "a": None if k % 3 == 0 else (-1) ** k * (5.25 + k % 7), "b": float(k % 5)}
    for k in range(400)
]


@pytest.mark.parametrize("format", FORMATS)
def test_a_missing_number_is_a_feature(tmp_path, format):
    """Label 1 is where it is missing, which no line between smaller and larger numbers can tell."""
    path = write(tmp_path, FAR, format)
    recipe, rows, _ = planned(path, data__label="y")
    assert rows == twin(FAR, recipe)[0] and recipe.dense_names() == ["a", "b", "a is missing", "b is missing"]
    model, result = run(path, data__label="y", solver="dcd")
    assert model.dim == 4 and model.weights[3] == 0.0 and result["error"] == 0.0
    plain, result = run(path, data__label="y", solver="dcd", features__missing="zero")
    assert plain.dim == 2 and not any("missing" in column for column in plain.recipe["columns"])
    assert result["error"] > 0.3


def test_a_file_without_a_column_has_it_missing_in_every_row(tmp_path):
    model = run(write(tmp_path, FAR, "csv"), data__label="y", solver="dcd").model
    other = write(tmp_path, [{"b": 1.0}], "csv", "other")
    assert scores(model, other, data__missing_columns="absent") == scores(
        model, write(tmp_path, [{"a": None, "b": 1.0}], "csv", "empty")
    )


def test_fields_that_most_lines_lack_are_sparse(tmp_path):
    """A null is not a field that is not there."""
    rows = [{"y": k % 2, "often": 1.0 + k, "null": None if k % 4 else 2.0 + k} for k in range(40)]
    for k in range(0, 40, 3):
        rows[k]["seldom"] = 1.0 + k
    recipe, found, _ = planned(write(tmp_path, rows, "jsonl"), data__label="y")
    assert {c.name for c in recipe.columns if c.missing} == {"often", "null"}
    assert found == twin(rows, recipe)[0]


def test_a_model_goes_on_with_what_it_has(tmp_path):
    """Also where columns are named again, which makes the recipe anew."""
    first, path = str(tmp_path / "first.model"), write(tmp_path, FAR, "csv")
    for missing, dim in (("zero", 2), ("indicator", 4)):
        run(path, data__label="y", features__missing=missing).model.save(first)
        for named in ({}, {"features__numeric": ["a", "b"], "data__label": "y"}):
            assert run(path, solver__init=first, **named).model.dim == dim


def test_a_stream_tells_which_indices_are_numbers_and_what_says_that_they_are_missing(tmp_path):
    rows = [{"y": k % 2, "s": "ab"[k % 2], "a": k + 0.5, "v": [1.0, k]} for k in range(9)]
    stream = training_stream(settings(write(tmp_path, rows, "parquet"), data__label="y"), Notes().note)
    numbers = stream.features.numbers
    assert numbers.indices.tolist() == [0, 1, 2] and numbers.indicators.tolist() == [3, 4, 4]
    assert stream.features.dense == 5 and stream.features.names[3:] == ("a is missing", "v is missing")
    put = tmp_path / "rows.svm"
    put.write_text("1 1:1\n-1 2:1\n")
    assert training_stream(settings(put), Notes().note).features.numbers is None


def test_the_recipe_in_a_model(trained):
    stored = {k: v for k, v in trained["csv"].model.recipe.items() if k not in ("format", "fields", "scale", "names")}
    recipe = Recipe.from_json(json.loads(json.dumps(stored)))
    assert recipe.label == "label" and len(trained["csv"].model.weights) == recipe.width
