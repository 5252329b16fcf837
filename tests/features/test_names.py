"""Names of hashed features: every name that rows have, under the index that its feature has, however rows are cut."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm import load_model, load_settings, train
from streamsvm.batch import concatenate
from streamsvm.cli.inspect import describe, render
from streamsvm.errors import ModelError
from streamsvm.features.names import Names, bucket_names, token_names
from streamsvm.hashing import seed_of, word_from
from streamsvm.io.names_file import load_names
from streamsvm.io.urls import names_place
from streamsvm.reading import training_stream
from streamsvm.weight_names import weight_names

ROWS = [
    {"y": 1, "ad": "a1", "user": "u1", "age": 17.0, "n": 3.5, "title": "New York, new"},
    {"y": 0, "ad": "a2", "user": "", "age": 18.0, "n": 0.0, "title": ""},
    {"y": 1, "ad": "a1", "user": "u2", "age": 55.0, "n": -1.0, "title": "york"},
    {"y": 0, "ad": "ünï cödé", "user": "u1", "age": 30.0, "n": 2.0, "title": "ÜBER new"},
]
FEATURES = {
    "features.names": True,
    "features.hash_bits": 20,
    "features.bucketize": {"age": [18, 30]},
    "features.text": ["title"],
    "features.ngrams": 2,
    "features.interactions": [["ad", "user"], ["ad", "n"]],
    "data.label": "y",
}
EXPECTED = {
    "ad=a1", "ad=a2", "ad=ünï cödé", "user=u1", "user=u2", "age=(-inf, 18)", "age=[18, 30)", "age=[30, inf)",
    "title:new", "title:york", "title:new york", "title:york new", "title:Über", "title:Über new",
    "ad=a1 * user=u1", "ad=a1 * user=u2", "ad=ünï cödé * user=u1", "ad=a1 * n", "ad=ünï cödé * n",
}  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return str(path)


def settings_for(path: str, **more: Any) -> Any:
    return load_settings(overrides={"data.train": path, "output.model": None, **FEATURES, **more})


def test_every_feature_of_a_table_has_its_name(table: str) -> None:
    stream = training_stream(settings_for(table))
    rows = concatenate([batch.copy() for batch in stream])
    named = stream.named()
    assert named is not None
    assert set(named.names) == EXPECTED and len(named.names) == len(EXPECTED)
    assert set(named.indices.tolist()) | {0} == set(rows.indices.tolist())
    index = dict(zip(named.names, named.indices.tolist(), strict=True))
    word = word_from("a1", seed_of("ad"))
    assert index["ad=a1"] == 2 + word % 2**20  # after n, and what says that it is missing
    assert dict(zip(named.names, named.signs.tolist(), strict=True))["ad=a1"] == (-1 if word >> 31 else 1)


def test_names_do_not_change_what_is_learned(table: str, tmp_path: Path) -> None:
    with_names, without = (train(settings_for(table, **{"features.names": names})).model for names in (True, False))
    assert np.array_equal(with_names.weights, without.weights)


def test_vw_text_has_names_with_namespaces(tmp_path: Path) -> None:
    path = tmp_path / "rows.vw"
    path.write_text("1 |a x:2 y |b x\n-1 | plain |b x z\n")
    stream = training_stream(load_settings(overrides={"data.train": str(path), "features.names": True}))
    rows = concatenate([batch.copy() for batch in stream])
    named = stream.named()
    assert named is not None
    assert sorted(named.names) == ["a^x", "a^y", "b^x", "b^z", "plain"]
    assert set(named.indices.tolist()) == set(rows.indices.tolist())


@given(
    st.lists(st.lists(st.integers(0, 12), min_size=3, max_size=3), max_size=40), st.integers(1, 8), st.integers(1, 30)
)
def test_fresh_words_do_not_depend_on_how_rows_are_cut(rows: list[list[int]], cut: int, most: int) -> None:
    words = np.array(rows, np.uint32).reshape(-1, 3).T.copy()
    tags = np.array([1, 2, 3])
    whole, pieces = Names(most), Names(most)
    found = whole.fresh(words, tags).tolist()
    for place in found:
        whole.add(int(words[place % 3, place // 3]), "")
    seen: list[int] = []
    for first in range(0, words.shape[1], cut):
        part = np.ascontiguousarray(words[:, first : first + cut])
        for place in pieces.fresh(part, tags).tolist():
            seen.append(first * 3 + place)
            pieces.add(int(part[place % 3, place // 3]), "")
    expected: list[int] = []
    known: set[tuple[int, int]] = set()
    for place in range(words.size):
        key = (place % 3, int(words[place % 3, place // 3]))
        if key[1] and key not in known and len(known) < most:
            known.add(key)
            expected.append(place)
    assert found == seen == expected


def test_many_names_make_the_table_grow() -> None:
    names = Names()
    words = np.arange(1, 300_001, dtype=np.uint32)
    assert len(names.fresh(words[None, :], np.array([7]))) == 300_000
    for word in words.tolist():
        names.add(word, "")
    assert len(names.fresh(words[None, :], np.array([7]))) == 0
    assert len(names.fresh(words[None, :], np.array([8]))) == 300_000


def test_names_go_on_where_they_stood(table: str) -> None:
    first = training_stream(settings_for(table))
    for _ in first:
        pass
    assert first.names is not None
    other = Names()
    other.restore(first.names.state())
    assert other.named(1, 255).names == first.names.named(1, 255).names
    assert len(other.fresh(np.array([[word_from("a1", seed_of("ad"))]], np.uint32), np.array([1]))) == 0


def test_buckets_and_tokens_are_called_as_they_are() -> None:
    assert bucket_names((18.0,)) == ["(-inf, 18)", "[18, inf)"]
    assert token_names(b"A b_1, c", 3) == ["a", "b_1", "a b_1", "c", "b_1 c", "a b_1 c"]


# Beside the model.


def test_inspect_shows_weights_by_name_and_tells_of_collisions(table: str, tmp_path: Path) -> None:
    model_file = str(tmp_path / "m.safetensors")
    train(settings_for(table, **{"output.model": model_file, "features.hash_bits": 3, "solver.passes": 3}))
    model = load_model(model_file)
    assert Path(names_place(model_file)).exists() and model.recipe["names"]["count"] == len(EXPECTED)
    names = weight_names(model, model_file, pytest.fail)
    figures = names.figures(model.weights)
    assert figures["share_of_weight"] == 1.0 and figures["collisions"] >= 6 and figures["names"] == len(EXPECTED) + 2
    shown = render(describe(model_file, 9, pytest.fail))
    assert "share" in shown and " | " in shown and "n\n" in shown + "\n"


def test_a_single_name_is_shown_with_its_own_sign(table: str, tmp_path: Path) -> None:
    model_file = str(tmp_path / "m.safetensors")
    train(settings_for(table, **{"output.model": model_file}))
    model = load_model(model_file)
    names = weight_names(model, model_file, pytest.fail)
    for name, column in (("ad=a1", "ad"), ("user=u2", "user"), ("user=u1", "user")):
        word = word_from(name.partition("=")[2], seed_of(column))
        index = 2 + word % 2**20
        assert names.of(index) == name and names.sign(index) == (-1 if word >> 31 else 1)
    top = describe(model_file, 50, pytest.fail)["top"]
    shown = {entry["name"]: entry["weight"] for entry in top}
    assert shown["ad=a2"] < 0 < shown["ad=a1"]  # whatever their signs: a2 was never clicked, a1 always


def test_names_of_another_model_are_not_believed(table: str, tmp_path: Path) -> None:
    model_file = str(tmp_path / "m.safetensors")
    train(settings_for(table, **{"output.model": model_file}))
    place = Path(names_place(model_file))
    place.write_bytes(place.read_bytes() + b"x")
    model = load_model(model_file)
    with pytest.raises(ModelError, match="not the names that were saved"):
        load_names(model_file, model.recipe["names"])
    place.unlink()
    told: list[str] = []
    names = weight_names(model, model_file, told.append)
    assert names.of(0) == "n" and names.of(1) == "n is missing"
    assert len(told) == 1 and "cannot be read" in told[0]


def test_names_are_found_in_the_source_when_rows_come_from_a_cache(table: str, tmp_path: Path) -> None:
    model_file, cache = str(tmp_path / "m.safetensors"), str(tmp_path / "rows.arrow")
    more = {"output.model": model_file, "run.cache": cache, "solver.passes": 2}
    train(settings_for(table, **more))
    first = load_model(model_file).recipe["names"]
    train(settings_for(table, **more))
    assert load_model(model_file).recipe["names"] == first
