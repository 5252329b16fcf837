"""Models: scores, predictions as text, and files that are whole or refused."""

import errno
import hashlib
import json
import os
import pickle
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from streamsvm.batch import Batch, empty_batch
from streamsvm.calibration import Calibration, fit_calibration
from streamsvm.errors import ModelError, SourceError
from streamsvm.io import tensors
from streamsvm.model import MODEL, Model, load_model
from streamsvm.score_sample import ScoreSample

Put = Callable[[str, bytes], str]


def small_model(**changes: Any) -> Model:
    parts: dict[str, Any] = {
        "weights": np.array([0.0, 1.5, -2.25, 1e-40, 3e38], np.float32),
        "bias": 0.1,
        "classes": [-1, 1],
        "loss": "logistic",
        "recipe": {"format": "libsvm", "hash_bits": None, "dim": None},
        "config": {"loss": "logistic", "data": {"train": ["s3://bucket/é.svm"]}},
        "provenance": {"examples": 7, "l2": 1e-5},
        "online": {"t": 7.0, "eta0": 0.5},
    }
    return Model(**(parts | changes))


def rows_of(rows: list[dict[int, float]]) -> Batch:
    return Batch(
        np.cumsum([0] + [len(row) for row in rows], dtype=np.int64),
        np.array([index for row in rows for index in row], np.uint32),
        np.array([value for row in rows for value in row.values()], np.float32),
        np.full(len(rows), np.nan, np.float32),
        np.ones(len(rows), np.float32),
    )


def scaled_model(**changes: Any) -> Model:
    """One whose features were scaled in training."""
    recipe = {"format": "libsvm", "hash_bits": None, "dim": None, "scale": "maxabs"}
    scale = np.array([1.0, 0.25, 3.0, 1e-39, 2.0**100], np.float32)
    return small_model(**({"recipe": recipe, "scale": scale} | changes))


def learned_calibration(kind: str, columns: int) -> Calibration:
    """One learned from made-up scores of two classes (one column) or of as many as there are columns."""
    rng = np.random.default_rng(columns)
    codes = rng.integers(0, max(columns, 2), 80)
    scores = rng.normal(size=(80, max(columns, 2)))
    scores[np.arange(80), codes] += 1.0
    sample = ScoreSample(columns)
    sample.add(scores if columns > 1 else scores[:, 1], codes.astype(np.float32), np.ones(80, np.float32))
    found = fit_calibration(kind, sample, "progressive")
    assert found is not None
    return found


def decided_model(**changes: Any) -> Model:
    """Two classes with probabilities and a threshold."""
    found = {"loss": "hinge", "calibration": learned_calibration("platt", 1), "thresholds": np.array([0.25])}
    return small_model(**(found | changes))


def many_model(**changes: Any) -> Model:
    """Three classes with probabilities and thresholds."""
    parts = {
        "weights": np.array([[0.0, 1.5, -2.0], [1.0, 0.5, 3e38]], np.float32),
        "bias": np.array([0.1, -0.2, 1e-300]),
        "classes": ["ham", "spam", "é"],
        "loss": "hinge",
        "rule": "crammer_singer",
        "calibration": learned_calibration("isotonic", 3),
        "thresholds": np.array([0.5, 0.0, -1e-3]),
    }
    return small_model(**(parts | changes))


def same_scale(a: Model, b: Model) -> bool:
    if a.scale is None or b.scale is None:
        return a.scale is b.scale
    return a.scale.dtype == b.scale.dtype == np.float32 and a.scale.tobytes() == b.scale.tobytes()


def same(a: Model, b: Model) -> bool:
    rest = ("classes", "loss", "rule", "recipe", "config", "provenance", "online")
    arrays = [{name: (array.shape, array.tobytes()) for name, array in one.arrays().items()} for one in (a, b)]
    return (
        same_scale(a, b)
        and a.weights.dtype == b.weights.dtype == np.float32
        and a.many == b.many
        and arrays[0] == arrays[1]
        and a.metadata()["calibration"] == b.metadata()["calibration"]
        and all(getattr(a, name) == getattr(b, name) for name in rest)
    )


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "small.safetensors"
    small_model().save(str(path))
    return path


@pytest.fixture(params=[small_model, scaled_model])
def any_saved(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "small.safetensors"
    request.param().save(str(path))
    return path


# Scores and predictions.


def test_scores_are_weights_times_features_plus_bias_and_unseen_features_are_ignored() -> None:
    beyond = np.array([5.0, 1.5, -2.25, 777.0], np.float32)
    model = small_model(weights=beyond[:3])
    batch = rows_of([{1: 2.0, 2: 1.0}, {}, {0: 1.0, 3: 1e30, 2**32 - 2: 7.0}, {3: 1.0}])
    assert model.scores(batch).tolist() == [3.0 - 2.25 + 0.1, 0.1, 5.1, 0.1]
    assert model.dim == 3
    assert small_model(weights=np.empty(0, np.float32)).scores(batch).tolist() == [0.1] * 4


def test_a_slice_of_a_batch_is_scored_by_its_own_rows() -> None:
    model = small_model(weights=np.arange(3, dtype=np.float32), bias=0.0)
    batch = rows_of([{1: 1.0}, {2: 1.0}, {1: 3.0, 2: 1.0}])
    assert model.scores(batch.slice(1, 3)).tolist() == [2.0, 5.0]


@pytest.mark.parametrize(
    ("classes", "names"),
    [([-1, 1], ["-1", "1"]), ([2, 1], ["2", "1"]), ([0.5, 0.1], ["0.5", "0.1"]), (["+1", "2.0"], ["+1", "2.0"])],
)
def test_predicted_labels_are_written_as_the_user_wrote_them(classes: list[Any], names: list[str]) -> None:
    model = small_model(weights=np.ones(2, np.float32), bias=0.0, classes=classes)
    text = model.prediction_text(rows_of([{1: -1.0}, {1: 2.0}, {}]))
    assert text.decode() == f"{names[0]}\n{names[1]}\n{names[0]}\n"  # a score of zero is not positive


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), max_size=20), st.floats(-1e6, 1e6))
def test_scores_as_text_are_exact(values: list[float], bias: float) -> None:
    model = small_model(weights=np.array([0.0, 0.7], np.float32), bias=bias)
    batch = rows_of([{1: value} for value in values])
    lines = model.prediction_text(batch, "scores").decode().splitlines()
    assert [float(line) for line in lines] == model.scores(batch).tolist()


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=20))
def test_probabilities_are_those_of_the_second_class(values: list[float]) -> None:
    model = small_model(weights=np.array([0.0, 1.0], np.float32), bias=0.0)
    batch = rows_of([{1: value} for value in values])
    lines = [float(line) for line in model.prediction_text(batch, "probabilities").decode().splitlines()]
    for value, probability in zip(values, lines, strict=True):
        assert 0.0 <= probability <= 1.0
        if abs(value) < 700:
            assert probability == pytest.approx(1.0 / (1.0 + np.exp(-value)), rel=1e-12)
        else:
            assert probability == pytest.approx(float(value > 0), abs=1e-300)


@pytest.mark.parametrize("what", ["labels", "scores", "probabilities"])
@pytest.mark.parametrize("make", [small_model, decided_model, many_model])
def test_no_rows_are_no_lines(what: str, make: Callable[[], Model]) -> None:
    assert make().prediction_text(empty_batch(), what) == b""
    assert make().prediction_text(rows_of([{}]), what).count(b"\n") == 1


def test_thresholds_decide_and_calibration_makes_probabilities() -> None:
    batch = rows_of([{1: 0.05}, {1: 0.2}, {}])
    model = decided_model(thresholds=np.array([0.2]))
    assert model.scores(batch) == pytest.approx([0.175, 0.4, 0.1])
    assert model.prediction_text(batch) == b"-1\n1\n-1\n" and small_model().prediction_text(batch) == b"1\n1\n1\n"
    assert model.calibration is not None
    expected = model.calibration.probabilities(model.scores(batch)).tolist()
    assert [float(line) for line in model.prediction_text(batch, "probabilities").split()] == expected
    with pytest.raises(ModelError, match="train it with --calibrate platt"):
        decided_model(calibration=None).prediction_text(batch, "probabilities")


def test_many_classes_are_predicted_by_thresholds_and_have_a_probability_each() -> None:
    model, batch = many_model(weights=np.eye(3, dtype=np.float32), bias=np.zeros(3)), rows_of([{0: 1.0}, {0: 0.4}, {}])
    assert model.prediction_text(batch).decode().split() == ["ham", "é", "é"]
    model.thresholds = None
    assert model.prediction_text(batch).decode().split() == ["ham"] * 3
    lines = model.prediction_text(batch, "probabilities").decode().splitlines()
    rows = np.array([[float(figure) for figure in line.split(" ")] for line in lines])
    assert rows.shape == (3, 3)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-12)
    assert rows[0, 0] > rows[1, 0]
    assert model.prediction_text(batch, "scores").splitlines()[0] == b"1.0 0.0 0.0"


# Round trips.


def test_a_saved_model_is_loaded_bit_for_bit(saved: Path) -> None:
    assert same(load_model(str(saved)), small_model())


@pytest.mark.parametrize("kind", ["platt", "isotonic"])
@pytest.mark.parametrize("make", [decided_model, many_model])
def test_probabilities_and_thresholds_come_back_bit_for_bit(
    tmp_path: Path, make: Callable[..., Model], kind: str
) -> None:
    path = str(tmp_path / "decided.safetensors")
    columns = 3 if make is many_model else 1
    for changes in ({}, {"thresholds": None}, {"calibration": None}, {"thresholds": None, "calibration": None}):
        model = make(**({"calibration": learned_calibration(kind, columns)} | changes))
        model.save(path)
        found = load_model(path)
        assert same(found, model)
        batch = rows_of([{0: 0.3, 1: -7.0}, {}, {1: 1e-3}])
        scores = model.scores(batch)
        assert found.scores(batch).tobytes() == scores.tobytes()
        assert found.codes(scores).tolist() == model.codes(scores).tolist()
        if model.probable:
            assert found.probabilities(scores).tobytes() == model.probabilities(scores).tobytes()


@examples(40)
@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=30),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(
        st.one_of(st.integers(-(2**53), 2**53), st.floats(-1e6, 1e6), st.text()), min_size=2, max_size=2, unique_by=str
    ),
    st.dictionaries(st.text(), st.one_of(st.none(), st.booleans(), st.text(), st.floats(-9, 9))),
    st.sampled_from([None, 1e-45, 0.3, 3e38]),
)
def test_whatever_is_saved_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    weights: list[float],
    bias: float,
    classes: list[Any],
    extra: Any,
    factor: float | None,
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    model = small_model(
        weights=np.array(weights, np.float32), bias=bias, classes=classes, recipe=extra, config=extra, provenance=extra
    )
    model.scale = None if factor is None else np.full(len(weights), factor, np.float32)
    model.save(str(path))
    assert same(load_model(str(path)), model)


def test_factors_are_a_tensor_of_their_own_and_only_where_there_are_any(saved: Path, tmp_path: Path) -> None:
    assert set(safetensors.numpy.load_file(saved)) == {"bias", "weights"}
    path = tmp_path / "scaled.safetensors"
    scaled_model().save(str(path))
    assert same(load_model(str(path)), scaled_model())
    tensors = safetensors.numpy.load_file(path)
    scale = scaled_model().scale
    assert scale is not None and tensors["scale"].tobytes() == scale.tobytes()
    assert set(tensors) == {"bias", "weights", "scale"}
    with safetensors.safe_open(path, "numpy") as opened:
        assert opened.metadata()["format_version"] == "1"


def test_learned_weights_are_those_of_scaled_features() -> None:
    assert small_model().learned_weights().tobytes() == small_model().weights.tobytes()
    learned, scale = np.array([0.0, 1.5, -2.25], np.float32), np.array([7.0, 1e-3, 1e20], np.float32)
    model = small_model(weights=learned * scale, scale=scale)
    np.testing.assert_allclose(model.learned_weights(), learned, rtol=2e-7)
    assert model.learned_weights().dtype == np.float32


def test_scores_need_no_scaling() -> None:
    batch = rows_of([{1: 0.3, 2: -7.0}, {4: 1e-3}])
    assert scaled_model().scores(batch).tobytes() == small_model().scores(batch).tobytes()


@pytest.mark.parametrize(
    ("scale", "says"),
    [
        (np.ones(4, np.float32), r"scale is float32 \[4\], and there are 5 weights"),
        (np.ones(0, np.float32), r"scale is float32 \[0\], and there are 5 weights"),
        (np.array([1, 1, 0, 1, 1], np.float32), "not positive"),
        (np.array([1, 1, -1, 1, 1], np.float32), "not positive"),
        (np.array([1, 1, np.nan, 1, 1], np.float32), "not positive"),
        (np.array([1, 1, np.inf, 1, 1], np.float32), "not positive"),
    ],
)
def test_factors_that_do_not_fit_the_weights_are_refused(tmp_path: Path, scale: Any, says: str) -> None:
    path = str(tmp_path / "odd.safetensors")
    small_model(scale=scale).save(path)
    with pytest.raises(ModelError, match=rf"odd\.safetensors: damaged model \(.*{says}"):
        load_model(path)


def test_any_safetensors_reader_opens_the_file(saved: Path) -> None:
    tensors = safetensors.numpy.load_file(saved)
    assert tensors["weights"].tobytes() == small_model().weights.tobytes()
    assert tensors["bias"].tolist() == [0.1]
    with safetensors.safe_open(saved, "numpy") as opened:
        metadata = opened.metadata()
    assert metadata["format"] == "streamsvm-model" and metadata["format_version"] == "1"
    assert json.loads(metadata["classes"]) == [-1, 1] and metadata["loss"] == "logistic"
    assert len(metadata["checksum"]) == 64


def test_the_same_model_makes_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    small_model().save(str(tmp_path / "again.safetensors"))
    assert (tmp_path / "again.safetensors").read_bytes() == saved.read_bytes()


def test_strided_and_big_endian_weights_are_saved_as_they_are(tmp_path: Path) -> None:
    path = str(tmp_path / "strided.safetensors")
    weights = np.arange(10, dtype=np.float32)
    small_model(weights=weights[::2]).save(path)
    assert load_model(path).weights.tolist() == [0, 2, 4, 6, 8]
    small_model(weights=weights.astype(">f4")).save(path)
    assert load_model(path).weights.tolist() == weights.tolist()


def test_models_travel_through_buckets() -> None:
    url = "memory://models/small.safetensors"
    small_model().save(url)
    assert same(load_model(url), small_model())
    small_model(bias=2.0).save(url)
    assert load_model(url).bias == 2.0


def test_saving_makes_missing_directories_and_replaces_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "model.safetensors"
    small_model().save(str(path))
    small_model(bias=3.0).save(str(path))
    assert load_model(str(path)).bias == 3.0 and [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_loaded_model_scores_like_the_saved_one(saved: Path) -> None:
    batch = rows_of([{1: 0.3, 2: -7.0}, {4: 1e-3}])
    assert load_model(str(saved)).scores(batch).tobytes() == small_model().scores(batch).tobytes()


def test_inspect_shows_how_features_were_scaled(saved: Path, tmp_path: Path) -> None:
    from streamsvm.cli.inspect import describe, render

    assert describe(str(saved), 3)["scale"] is None and "scaled" not in render(describe(str(saved), 3))
    path = str(tmp_path / "scaled.safetensors")
    scaled_model(scale=np.array([1.0, 0.25, 3.0, 1e-3, 2.5e6], np.float32)).save(path)
    found = describe(path, 3)
    assert found["scale"] == {"kind": "maxabs", "smallest": float(np.float32(1e-3)), "largest": 2.5e6}
    assert "\nscaled   maxabs, factors 0.001 to 2.5e+06, part of the weights\n" in render(found)
    scaled_model(weights=np.empty(0, np.float32), scale=np.empty(0, np.float32)).save(path)
    assert "factors 1 to 1" in render(describe(path, 3))


# Files that are not models.


@pytest.mark.full
@pytest.mark.parametrize("flip", [0xFF, 0x01, 0x80, 0x20])
def test_no_byte_can_change_unnoticed(any_saved: Path, flip: int) -> None:
    content = any_saved.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= flip
        any_saved.write_bytes(damaged)
        with pytest.raises(ModelError, match=r"small\.safetensors: "):
            load_model(str(any_saved))


def test_no_truncation_is_a_model(any_saved: Path) -> None:
    content = any_saved.read_bytes()
    for length in range(len(content)):
        any_saved.write_bytes(content[:length])
        with pytest.raises(ModelError, match=r"small\.safetensors: (truncated|damaged|not a model)"):
            load_model(str(any_saved))
    for tail in (b"\0", b" ", content):
        any_saved.write_bytes(content + tail)
        with pytest.raises(ModelError):
            load_model(str(any_saved))


@examples(200)
@given(st.data())
def test_damaged_spans_are_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "span.safetensors"
    data.draw(st.sampled_from([small_model, scaled_model, many_model]))().save(str(path))
    content = path.read_bytes()
    start = data.draw(st.integers(0, len(content)))
    stop = data.draw(st.integers(start, min(start + 80, len(content))))
    damaged = content[:start] + data.draw(st.binary(max_size=80)) + content[stop:]
    path.write_bytes(damaged)
    if damaged != content:
        with pytest.raises(ModelError):
            load_model(str(path))


@examples(200)
@given(st.binary(max_size=300))
def test_bytes_are_not_a_model(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.safetensors"
    for prefix in (b"", struct.pack("<Q", len(content)), struct.pack("<Q", max(0, len(content) - 8))):
        path.write_bytes(prefix + content)
        with pytest.raises(ModelError):
            load_model(str(path))


def with_metadata(**changes: str) -> bytes:
    """A safetensors file like a model, with metadata of our choice and nothing to make up for it."""
    metadata = {
        "format": "streamsvm-model",
        "format_version": "1",
        "checksum": "0" * 64,
        "streamsvm": "0.1.0",
        "loss": "hinge",
        "classes": "[-1, 1]",
        "recipe": "{}",
        "config": "{}",
        "provenance": "{}",
        "online": "{}",
    }
    tensors = {"weights": np.zeros(3, np.float32), "bias": np.zeros(1)}
    return safetensors.numpy.save(tensors, metadata | changes)


class Trap:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('a model file was unpickled')",)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a model: the file has only 0 bytes"),
        (b"abc", "not a model: the file has only 3 bytes"),
        (b"+1 1:0.5 2:1\n-1 3:1\n" * 20, "not a streamsvm model"),
        (b"weights: [1, 2]\n" * 5, "not a streamsvm model"),
        (pickle.dumps(Trap()), "not a streamsvm model"),
        (b"\x1f\x8b" + b"\0" * 200, "truncated|not a streamsvm model"),
        (safetensors.numpy.save({"weights": np.zeros(3, np.float32)}), "not a streamsvm model"),
        (safetensors.numpy.save({"weights": np.zeros(3, np.float32)}, {"format": "pt"}), "not a streamsvm model"),
        (with_metadata(format="other"), "not a streamsvm model"),
        (with_metadata(format_version="2"), r"format version 2; this is \S+, which reads versions up to 1: upgrade"),
        (with_metadata(format_version="2", streamsvm="9.9"), "written by streamsvm 9.9 in format version 2"),
        (with_metadata(format_version="1000000000000"), "upgrade streamsvm"),
        (with_metadata(format_version="9" * 5000), "ersion"),
        (with_metadata(format_version="²"), "ersion"),
        (with_metadata(format_version="one"), "ersion"),
        (with_metadata(format_version=""), "ersion"),
        (with_metadata(format_version="-1"), "ersion"),
        (with_metadata(), "checksum does not match"),
        (with_metadata(checksum=""), "no checksum"),
        (with_metadata(checksum="é" * 64), "checksum"),
        (struct.pack("<Q", 2) + b"[]" + b"\0" * 50, "not a streamsvm model"),
        (struct.pack("<Q", 50_000) + b"[" * 50_000, "not a streamsvm model"),
        (struct.pack("<Q", 2**63) + b"{}" * 50, "not a streamsvm model"),
    ],
)
def test_other_files_are_refused_with_the_reason(put: Put, content: bytes, says: str) -> None:
    path = put("other.safetensors", content)
    with pytest.raises(ModelError, match=rf"other\.safetensors: .*({says})"):
        load_model(path)


@pytest.mark.parametrize(
    "metadata",
    [
        '"\\ud800' + "0" * 63 + '"',  # 64 characters that no encoding can write
        '{"a": 1}',
        "null",
        "7",
    ],
)
def test_a_checksum_of_strange_characters_is_refused(put: Put, metadata: str) -> None:
    fields = f'"format":"streamsvm-model","format_version":"1","checksum":{metadata}'
    header = f'{{"__metadata__":{{{fields}}}}}'.encode()
    with pytest.raises(ModelError, match="checksum"):
        load_model(put("strange.safetensors", struct.pack("<Q", len(header)) + header))


def test_a_valid_checksum_over_impossible_contents_is_still_refused(put: Put) -> None:
    """As a later version might write them, or somebody who computes checksums."""
    import hashlib

    for changes in ({"classes": "[-1, 1"}, {"recipe": "\0"}, {"online": "nope"}):
        content = with_metadata(**changes)
        digest = hashlib.sha256(content).hexdigest().encode()
        path = put("signed.safetensors", content.replace(b"0" * 64, digest))
        with pytest.raises(ModelError, match="damaged model"):
            load_model(path)
    plain = {"weights": np.zeros(3, np.float32), "bias": np.zeros(1)}
    for arrays in (
        {"bias": np.zeros(1)},
        plain | {"scale": np.ones(3)},
        plain | {"scale": np.ones((1, 3), np.float32)},
    ):
        content = safetensors.numpy.save(arrays, safetensors_metadata(with_metadata()))
        digest = hashlib.sha256(content).hexdigest().encode()
        with pytest.raises(ModelError, match="damaged model"):
            load_model(put("signed.safetensors", content.replace(b"0" * 64, digest)))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"weights": np.array([1.0, np.nan], np.float32)}, "weights or bias are not finite"),
        ({"bias": np.array([np.inf])}, "weights or bias are not finite"),
        ({"weights": np.array([1, 2], np.int32)}, "weights are int32"),
        ({"classes": "[1]"}, "there are 1 classes"),
        ({"classes": "[1, 1]"}, "two classes are the same"),
        ({"classes": "[1, null]"}, "None is no class"),
        ({"classes": "[true, false]"}, "True is no class"),
        ({"classes": '{"a": 1}'}, "classes is not a list"),
        ({"loss": "hing"}, "loss is 'hing', which is unknown"),
        ({"rule": "ovo"}, "rule is 'ovo', which is unknown"),
        ({"recipe": "[]"}, "recipe is not a mapping"),
        ({"recipe": '{"format": "pickle"}'}, "features of format 'pickle' are unknown"),
        ({"recipe": '{"dim": 1099511627776}'}, "recipe: dim is 1099511627776"),
        ({"recipe": '{"dim": 1}'}, "there are 2 weights, and at most 1 features"),
        ({"recipe": '{"dim": "3"}'}, "recipe: dim is '3'"),
        ({"recipe": '{"hash_bits": 99}'}, "recipe: hash_bits is 99"),
        ({"recipe": '{"hash_bits": true}'}, "recipe: hash_bits is True"),
        ({"recipe": '{"format": "vw"}'}, "recipe: VW text needs hash_bits"),
        ({"recipe": '{"format": "vw", "hash_bits": 9, "interactions": [[1]]}'}, "recipe: interactions"),
        ({"recipe": '{"names": 3}'}, "recipe: names is int"),
        ({"recipe": '{"format": "table"}'}, "features cannot be understood"),
        ({"config": '"x"'}, "config is not a mapping"),
        ({"provenance": "3"}, "provenance is not a mapping"),
        ({"online": "[1]"}, "online is not a mapping"),
        ({"calibration": '"platt"'}, "calibration is not a mapping"),
        ({"classes": None}, "classes is missing"),
    ],
)
def test_crafted_models_are_refused_when_they_are_read(tmp_path: Path, changed: Any, says: str) -> None:
    model = small_model(weights=np.array([1.0, 2.0], np.float32), classes=[0, 1], recipe={})
    content = {**model.metadata(), **model.arrays(), **changed}
    texts = {name: text for name, text in content.items() if isinstance(text, str)}
    arrays = {name: array for name, array in content.items() if isinstance(array, np.ndarray)}
    path = tmp_path / "crafted.safetensors"
    plain = {name: array.astype(np.float32) if array.dtype == np.int32 else array for name, array in arrays.items()}
    with path.open("wb") as out:
        tensors.save(MODEL, texts, plain, out.write)
    if plain["weights"].dtype != arrays["weights"].dtype:
        signed = path.read_bytes().replace(b'"F32"', b'"I32"')
        stored = json.loads(signed[8 : 8 + int.from_bytes(signed[:8], "little")])["__metadata__"]["checksum"].encode()
        blank = signed.replace(stored, b"0" * 64)
        path.write_bytes(blank.replace(b"0" * 64, hashlib.sha256(blank).hexdigest().encode()))
    with pytest.raises(ModelError, match="crafted.safetensors: damaged model") as caught:
        load_model(str(path))
    assert says in str(caught.value) and len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("make", [decided_model, many_model])
def test_damage_under_a_valid_checksum_is_refused_with_the_reason(tmp_path: Path, make: Callable[[], Model]) -> None:
    path = tmp_path / "signed.safetensors"
    model = make()
    metadata, arrays = model.metadata(), model.arrays()

    def load(**changed: Any) -> Model:
        """With other arrays (None: without it), or with other metadata of the calibration."""
        texts = metadata | ({"calibration": changed.pop("metadata")} if "metadata" in changed else {})
        kept = {name: array for name, array in (arrays | changed).items() if array is not None}
        with path.open("wb") as out:
            tensors.save(MODEL, texts, kept, out.write)
        return load_model(str(path))

    assert same(load(), model)
    columns = len(arrays["bias"])
    for text in ("nope", "7", '"platt"', '{"kind": "platt", "rows": 3}', '{"kind": "spline"}', "[" * 9):
        with pytest.raises(ModelError, match=r"signed\.safetensors: damaged model \(.+\)"):
            load(metadata=text)
    for name in arrays:
        if name.startswith("calibration."):
            with pytest.raises(ModelError, match=rf"damaged model \({name} is missing"):
                load(**{name: None})
            right = arrays[name]
            broken = right * np.nan if right.dtype == np.float64 else -right
            for wrong in (right[:-1], broken, right[None], right.astype(np.float32)):
                with pytest.raises(ModelError, match=r"damaged model \(.+\)"):
                    load(**{name: wrong})
    for wrong in (
        np.zeros(columns + 1),
        np.full(columns, np.nan),
        np.zeros(columns, np.float32),
        np.zeros((1, columns)),
    ):
        with pytest.raises(ModelError, match="damaged model .*thresholds"):
            load(thresholds=wrong)
    for changed in ({"bias": np.zeros(2)}, {"weights": np.zeros((2, 2), np.float32)}, {"weights": np.zeros((1, 1, 3))}):
        with pytest.raises(ModelError, match="damaged model .*(bias|classes)"):
            load(**changed)


def safetensors_metadata(content: bytes) -> dict[str, str]:
    (length,) = struct.unpack("<Q", content[:8])
    metadata: dict[str, str] = json.loads(content[8 : 8 + length])["__metadata__"]
    return metadata


def test_a_missing_file_and_a_directory_are_source_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.safetensors", tmp_path):
        with pytest.raises(SourceError, match=str(path)):
            load_model(str(path))
    with pytest.raises(SourceError, match=r"memory://models/missing"):
        load_model("memory://models/missing.safetensors")


def test_secrets_in_a_url_are_not_shown() -> None:
    with pytest.raises(SourceError) as caught:
        load_model("memory://user:secret@models/missing.safetensors?key=hidden")
    assert "secret" not in str(caught.value) and "hidden" not in str(caught.value)


# Saving that fails.


class Broken:
    """A model whose weights cannot be written to the end."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def pieces(self, kind: Any, metadata: Any, arrays: Any, checksum: str) -> Any:
        yield b"half of a"
        if checksum != "0" * 64:
            raise self.error


@pytest.mark.parametrize("before", [b"an older model", None], ids=["replacing", "new"])
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), SourceError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (RuntimeError("bug"), RuntimeError),
    ],
)
def test_half_a_file_never_gets_the_final_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[Exception], before: bytes | None
) -> None:
    path = tmp_path / "model.safetensors"
    if before is not None:
        path.write_bytes(before)
    monkeypatch.setattr(tensors, "_pieces", Broken(error).pieces)
    with pytest.raises(raised):
        small_model().save(str(path))
    assert [entry.name for entry in tmp_path.iterdir()] == ([path.name] if before is not None else [])
    if before is not None:
        assert path.read_bytes() == before


def test_the_final_name_appears_when_the_file_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    seen = []
    pieces = tensors._pieces

    def watched(*arguments: Any) -> Any:
        for piece in pieces(*arguments):
            seen.append(path.exists())
            yield piece

    monkeypatch.setattr(tensors, "_pieces", watched)
    small_model().save(str(path))
    assert len(seen) == 8 and not any(seen) and path.exists()


def test_a_failing_rename_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(SourceError, match="cannot write: Permission denied"):
        small_model().save(str(tmp_path / "model.safetensors"))
    assert list(tmp_path.iterdir()) == []


def test_a_failing_upload_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.implementations.memory import MemoryFile

    real = MemoryFile.write

    def half(self: Any, data: bytes) -> int:
        real(self, bytes(data)[:50])
        raise OSError(errno.ECONNRESET, "Connection reset by peer")

    monkeypatch.setattr(MemoryFile, "write", half)
    with pytest.raises(SourceError, match="cannot write"):
        small_model().save("memory://models/broken.safetensors")
    assert not fsspec.filesystem("memory").exists("/models/broken.safetensors")


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    places = [tmp_path / "file" / "model.safetensors", tmp_path]
    if sys.platform.startswith("linux"):
        places.append(Path("/proc/nobody/model.safetensors"))
    if hasattr(os, "geteuid") and os.geteuid() != 0:  # root may write anywhere
        (tmp_path / "closed").mkdir(mode=0o500)
        places.append(tmp_path / "closed" / "model.safetensors")
    for place in places:
        with pytest.raises(SourceError, match="cannot write"):
            small_model().save(str(place))
    assert {entry.name for entry in tmp_path.iterdir()} <= {"file", "closed"}


def test_saving_needs_no_second_copy_of_the_weights(tmp_path: Path) -> None:
    import tracemalloc

    weights = np.zeros(2_000_000, np.float32)
    model = small_model(weights=weights, scale=np.ones_like(weights))
    tracemalloc.start()
    try:
        model.save(str(tmp_path / "large.safetensors"))
        assert tracemalloc.get_traced_memory()[1] < model.weights.nbytes // 2
    finally:
        tracemalloc.stop()
