"""Dates to features: every spelling, every day, in every format the same; against Python's own calendar."""

import datetime
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from streamsvm import StreamSVC, load_settings, open_stream, train
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.features.dates import CATEGORIES, PARTS, date_features, part_names, part_words, seconds_of
from streamsvm.features.recipe import Recipe

NAMES = part_names("t", PARTS)


def told(texts, parts=PARTS, edges=(0.0, 86400.0)):
    """The features of each text, by name; None of what is no date."""
    spelled = [text.encode() for text in texts]
    lengths = np.array([len(text) for text in spelled], np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int32)
    data = np.frombuffer(b"".join(spelled), np.uint8)
    begins, words, values, wrong = date_features(data, starts, lengths, part_words("t", parts), edges)
    return [
        None if wrong[k] else {NAMES[int(words[j])]: float(values[j]) for j in range(begins[k], begins[k + 1])}
        for k in range(len(texts))
    ]


def expected(when, parts=CATEGORIES):
    found = {"hour": when.hour, "weekday": when.weekday(), "day": when.day, "month": when.month}
    return {f"t.{part}={found[part]}": 1.0 for part in parts}


@given(st.datetimes(min_value=datetime.datetime(1, 1, 1), max_value=datetime.datetime(9999, 12, 31)), st.data())
@examples(300)
def test_all_days_and_times_are_those_of_the_calendar(when, data):
    form = data.draw(st.sampled_from(["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d"]))
    zone = data.draw(st.sampled_from(["", "Z", "+02:00", "-0530", " +01", "z", " UTC"])) if "H" in form else ""
    text = when.strftime(form).zfill(len(when.strftime(form))) + zone
    text = f"{when.year:04}{text[text.index('-') :]}"
    there = datetime.datetime.fromisoformat(text.removesuffix(zone).strip() if zone else text)
    (found,) = told([text])
    seconds = (there - datetime.datetime(1970, 1, 1)).total_seconds()
    assert found.pop("t.time") == pytest.approx(np.float32(seconds / 86400.0), rel=1e-6)
    assert found == expected(there)
    assert seconds_of(text) == (pytest.approx(seconds), True, there.time() != datetime.time())


@given(
    st.text("0123456789-:TZ+. ", max_size=24) | st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T?[0-9:]*Z?", fullmatch=True)
)
@examples(300)
def test_both_readers_agree_on_what_is_a_date(text):
    (found,) = told([text])
    if found or found is None:
        assert (found is None) == (seconds_of(text) is None)


def test_what_is_no_date():
    wrong = ["2024-02-30", "2023-02-29", "2024-13-01", "2024-00-10", "2024-01-00", "2024-1-1", "20240131", "1.2.2024"]
    wrong += [
        "2024-01-31T24:00",
        "2024-01-31T08:60",
        "2024-01-31T08",
        "2024-01-31x",
        "2024-01-31T08:00+2",
        "0000-01-01",
    ]
    wrong += ["8:30", "08:30pm", "now", "2024-01-31 08:00 CET", "2024-01-31T", "-", "é"]
    assert [text for text, found in zip(wrong, told(wrong), strict=True) if found is not None] == ["-"]
    assert told(["", "NA", "null", " "]) == [{}] * 4
    assert told([" 2024-02-29 "], ("day",)) == [{"t.day=29": 1.0}] and told(["23:59:60"], ("hour",)) == [
        {"t.hour=23": 1.0}
    ]


# Tables.

ROWS = 240
START = datetime.datetime(2024, 1, 30, 5, 30)
TIMES = [START + datetime.timedelta(hours=7 * k) for k in range(ROWS)]
LABELS = [int(time.hour >= 12) for time in TIMES]


def frame():
    return pd.DataFrame({"label": LABELS, "t": TIMES, "x": [k % 7 / 4 for k in range(ROWS)]})


def written(path, kind):
    """The same table in a format; where the dates stay, or are texts."""
    table = frame()
    if kind == "csv":
        table.to_csv(path / "t.csv", index=False)
    elif kind == "jsonl":
        lines = [{**row, "t": row["t"].isoformat()} for row in table.to_dict("records")]
        (path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    elif kind == "zones":
        table["t"] = [time.strftime("%Y-%m-%dT%H:%M:%S+0200") for time in TIMES]
        table.to_csv(path / "t.zones", index=False)
    else:
        column = table["t"].dt.tz_localize("Asia/Tokyo") if kind == "tz" else table["t"]
        column = column.astype(str) if kind == "text" else column
        pq.write_table(pa.Table.from_pandas(table.assign(t=column), preserve_index=False), path / f"t.{kind}")
    return str(path / f"t.{kind}")


FORMATS = {"csv": "csv", "jsonl": "jsonl", "zones": "csv", "parquet": "parquet", "tz": "parquet", "text": "parquet"}


@pytest.mark.whole
def test_all_formats_make_the_same_of_dates(tmp_path):
    found = {}
    for kind, format in FORMATS.items():
        given = {"data.train": written(tmp_path, kind), "data.format": format, "output.model": None}
        model, result = train(load_settings(overrides=given, environ={}))
        assert result["error"] < 0.3, kind
        found[kind] = (model.recipe, model.weights.tobytes(), model.bias)
    assert all(one == found["csv"] for one in found.values())
    column = Recipe.of_model(found["csv"][0]).columns[0]
    assert (column.name, column.kind, column.parts) == ("t", "date", ("hour", "weekday", "day", "month"))


def test_frames_too():
    table = frame()
    for data in (table, pl.from_pandas(table), table.assign(t=table["t"].astype(str))):
        model = StreamSVC(solver="asgd").fit(data[["t", "x"]], LABELS)
        assert model.score(data[["t", "x"]], LABELS) > 0.9


def test_the_time_as_a_number_only_on_demand(tmp_path):
    path = written(tmp_path, "parquet")
    stream = open_stream(path, features={"dates": {"t": ["time"]}, "ignore": ["x"]})
    values = np.concatenate([batch.copy().values for batch in stream])
    assert len(values) >= ROWS - 1 and abs(values).max() == pytest.approx(1.0, abs=1e-3)
    model = train(load_settings(overrides={"data.train": path, "output.model": None, "features.dates": "t"})).model
    assert Recipe.of_model(model.recipe).columns[0].parts == PARTS
    with pytest.raises(ConfigError, match=r"features.dates: t must have some of hour, weekday, day, month, time"):
        load_settings(overrides={"features.dates": {"t": ["year"]}})


def test_a_text_that_is_no_date_is_a_bad_row(tmp_path):
    rows = [f"{label},{time}" for label, time in zip(LABELS, TIMES, strict=True)]
    rows[99] = "1,31.1.2024"
    (tmp_path / "t.csv").write_text("\n".join(["label,t", *rows]) + "\n")
    given = {"data.train": str(tmp_path / "t.csv"), "output.model": None}
    with pytest.raises(
        DataError, match=r"t.csv:101: column t: '31.1.2024' is no date such as 2024-01-31 or 2024-01-31T08"
    ):
        train(load_settings(overrides=given, environ={}))
    result = train(load_settings(overrides={**given, "data.on_bad_row": "skip"}, environ={})).result
    assert result["examples"] == ROWS - 1


def test_names_and_interactions_of_dates(run, tmp_path):
    path = written(tmp_path, "csv")
    code, out, err = run("train", path, "-o", "m.safetensors", "--names", "--interactions", "t*x")
    assert code == 0 and "t: a date, of which hour, weekday, day, month are features (features.dates)" in err
    assert "t.hour=" in run("inspect", "m.safetensors")[1]
    out = run("inspect", path)[1]
    assert "hour, weekday, day and month" in out and "t: a date, of which" in out
    assert run("convert", path, "t.vw")[0] == 0 and run("convert", path, "t.svm")[0] == 0


def test_recipes_with_wrong_parts_are_refused():
    recipe = Recipe.from_json(json.loads(json.dumps({
        "columns": [{"name": "t", "kind": "date", "parts": ["hour"]}], "label": "y", "label_classes": None,
        "weight": None, "hash_bits": 10, "interactions": [], "ngrams": 1, "hash": "murmur3_32 signed",
    })))  # fmt: skip
    assert recipe.columns[0].parts == ("hour",) and Recipe.from_json(recipe.as_json()) == recipe
    for wrong in ({"parts": ["year"]}, {"parts": []}, {"edges": [1.0]}, {"kind": "word"}):
        stored = recipe.as_json()
        stored["columns"][0] |= wrong
        with pytest.raises(ModelError, match="features cannot be understood"):
            Recipe.from_json(stored)
