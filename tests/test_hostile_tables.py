"""The same table in every format gives the same recipe, the same rows and the same scores, or the same refusal.

Tables are drawn with all that people have in them: few rows and many, numbers that are whole or not, missing ones,
truth values, ids, dates, words, and cells that do not belong where they stand.
"""

import csv
import io
import json
import math
import string

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
from streamsvm.dialects import frame_plan
from streamsvm.errors import StreamSvmError
from streamsvm.features.recipe import Recipe
from streamsvm.frames import FrameReader
from streamsvm.io.frames import records_of
from streamsvm.tables import TableDialect

NAMES = ("a", "b col", "user_id", "id", "Preis", "Ünï", "x.y", "index", "when", "a,b", 'q"q')
DIRTY = ("12a", "$5", "1,000.5", "1_000", "0x1F", "x", "1 2", "--1", "n\\a", "é", "5 %")
WORDS = ("red", "green", "NA", "None", "true", "1a", "", "Köln", "a,b", 'say "x"', "x\ny", " pad ", "-", "nan")
FORMATS = ("csv", "semicolon", "jsonl", "parquet", "arrow")
whole = st.integers(-(2**31), 2**31) | st.integers(0, 12)
number = st.floats(-1e6, 1e6).map(lambda x: round(x, 4) + 0.0) | st.sampled_from(
    [0.5, -0.25, 1e-7, 123456.75, 1e10 + 0.5]
)


@st.composite
def column(draw, rows):
    """The cells of a column: of one kind, some missing, and in a column of numbers a few that are dirty."""
    kinds = ("whole", "few", "number", "bool", "word", "counter", "id", "date", "time", "dirty")
    kind = draw(st.sampled_from(kinds))
    if kind == "counter":
        return [7 + 3 * k for k in range(rows)]
    if kind == "id":
        return [f"u{k * 7919 % 10007}x" for k in range(rows)]
    cells = {
        "whole": whole,
        "few": st.integers(1, 5),
        "number": number,
        "dirty": number,
        "bool": st.booleans(),
        "word": st.sampled_from(WORDS) | st.text(string.ascii_letters + "äß:;'", max_size=6),
        "date": st.dates().map(str),
        "time": st.datetimes().map(lambda t: t.replace(microsecond=0).isoformat(" ")),
    }[kind]
    few = draw(st.lists(cells, min_size=2, max_size=12))
    places = np.random.default_rng(draw(st.integers(0, 2**16))).integers(0, len(few), rows)
    found = [few[place] for place in places]
    if kind == "number" and all(value == int(value) for value in found):
        found[0] = 0.5
    for _ in range(draw(st.integers(0, 3))):
        found[draw(st.integers(0, rows - 1))] = None
    if kind == "dirty":  # a column of numbers with mistakes in it is one of texts to all typed formats
        found = [None if value is None else repr(float(value)) for value in found]
        for _ in range(draw(st.integers(1, 3))):
            found[draw(st.integers(0, rows - 1))] = draw(st.sampled_from(DIRTY))
    return found


@st.composite
def table(draw):
    rows = draw(st.sampled_from((12, 40, 150, 400)))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    return {"label": [k % 2 for k in range(rows)], **{name: draw(column(rows)) for name in names}}


def csv_text(columns, delimiter):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        cells = ["" if cell is None else str(cell).lower() if isinstance(cell, bool) else cell for cell in row]
        writer.writerow([text_of(cell) for cell in cells])
    return out.getvalue()


def text_of(cell):
    return repr(cell) if isinstance(cell, float) else str(cell)


def arrow_of(columns):
    return pa.table({name: pa.array(cells) for name, cells in columns.items()})


def written(directory, columns, format):
    path = directory / f"t.{'csv' if format == 'semicolon' else format}"
    if format in ("csv", "semicolon"):
        path.write_text(csv_text(columns, ";" if format == "semicolon" else ","), encoding="utf-8", newline="")
    elif format == "jsonl":
        rows = zip(*columns.values(), strict=True)
        lines = [json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) for row in rows]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    elif format == "parquet":
        pq.write_table(arrow_of(columns), path, row_group_size=64)
    else:
        with pa.ipc.new_file(path, arrow_of(columns).schema) as out:
            out.write_table(arrow_of(columns), max_chunksize=50)
    return str(path)


def refusal(error):
    """What is refused, without the place, which each format names in its own way."""
    text = str(error)
    for mark in ("column ", "field '"):
        if mark in text:
            name = text[text.index(mark) + len(mark) :]
            return name.split(":")[0].rstrip("'")
    return text.split(": ", 1)[-1]


def outcome(path):
    """Recipe and rows as training reads them, and the scores of a model; or what is refused."""
    notes = []
    try:
        given = {"data.train": path, "data.label": "label", "output.model": None}
        model = train(load_settings(overrides=given, environ={}), Heard(notes)).model
        recipe = Recipe.of_model(model.recipe)
        rows = [batch.copy() for batch in open_stream(path, model=model)]
        scores = np.concatenate([model.scores(batch) for batch in rows])
        features = [
            np.concatenate([getattr(batch, name) for batch in rows]) for name in ("indices", "values", "labels")
        ]
        told = sorted(note for note in notes if ", ignored; " in note or ": a date, of which" in note)
        return recipe, [array.tobytes() for array in (*features, scores)], told
    except StreamSvmError as error:
        assert len(str(error).splitlines()) == 1
        return type(error).__name__, refusal(error)


class Heard:
    def __init__(self, notes):
        self.note = notes.append

    def progress(self, now):
        pass

    def end(self):
        pass


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@given(table())
@examples(150)
def test_a_table_is_the_same_in_every_format(directory, columns):
    found = {format: outcome(written(directory, columns, format)) for format in FORMATS}
    for format in FORMATS[1:]:
        assert found[format] == found["csv"], format


@given(table())
@examples(150)
def test_frames_are_read_as_files_are(directory, columns):
    expected = outcome(written(directory, columns, "parquet"))
    features = {name: cells for name, cells in columns.items() if name != "label"}
    frames = [pl.DataFrame(features, strict=False), arrow_of(features), pd.DataFrame(features)]
    for frame in frames:
        try:
            records = records_of(frame)
            plan = frame_plan(load_settings(environ={}), records, lambda text: None)
            assert isinstance(plan.dialect, TableDialect)
            rows = FrameReader(plan.dialect).rows(records)
        except StreamSvmError as error:
            assert expected == (type(error).__name__, refusal(error))
            continue
        recipe = plan.dialect.recipe
        assert not isinstance(expected[0], str), expected
        assert (recipe.columns, recipe.hash_bits) == (expected[0].columns, expected[0].hash_bits)
        assert [rows.indices.tobytes(), rows.values.tobytes()] == expected[1][:2]
        assert math.isfinite(float(np.abs(rows.values).sum()))


def test_frames_of_numbers_are_predicted_as_arrays_too_and_whole_numbers_can_stay_numbers():
    draw = np.random.default_rng(3)
    frame = pd.DataFrame({"x": draw.normal(size=200), "month": draw.integers(1, 13, 200)})
    labels = (frame["x"] > 0).astype(int)
    floats = frame.assign(month=frame["month"] + 0.5)
    named, plain = StreamSVC().fit(floats, labels), StreamSVC().fit(floats.to_numpy(), labels)
    with pytest.warns(UserWarning, match="valid feature names"):
        scores = named.decision_function(floats.to_numpy())
    assert scores.tobytes() == named.decision_function(floats).tobytes()
    assert scores.tobytes() == plain.decision_function(floats.to_numpy()).tobytes()
    kinds = [column["kind"] for column in StreamSVC().fit(frame, labels).model_.recipe["columns"]]
    assert kinds == ["number", "word"]
    numeric = StreamSVC(features={"numeric": ["*"]}).fit(frame, labels)
    array = StreamSVC().fit(frame.to_numpy(), labels)
    assert numeric.decision_function(frame).tobytes() == array.decision_function(frame.to_numpy()).tobytes()
    with pytest.warns(UserWarning, match="n: whole numbers that grow by 1 from row to row, ignored; --numeric n keeps"):
        StreamSVC().fit(frame.assign(n=range(200)), labels)
