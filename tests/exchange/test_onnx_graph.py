"""ONNX graphs give, in onnxruntime, what the model gives."""

import json
from typing import Any

import numpy as np
import onnxruntime
import pytest
from exchange_models import curves, labels_of, many, rows_for, table, two

from streamsvm.errors import ModelError
from streamsvm.exchange import save_onnx, to_onnx, to_sklearn
from streamsvm.model import Model


def session(graph: Any) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])


def run(graph: Any, rows: Any) -> dict[str, Any]:
    """What a runtime makes of rows, by the names of the outputs."""
    runtime = session(graph)
    names = [output.name for output in runtime.get_outputs()]
    return dict(zip(names, runtime.run(None, {"features": np.asarray(rows, np.float32)}), strict=True))


def same(model: Model, first: int = 1, **options: Any) -> dict[str, Any]:
    batch, dense = rows_for(model.dim, rows=500)
    found = run(to_onnx(model, **options), dense[:, first:])
    scores = model.scores(batch)
    reach = np.abs(dense) @ np.abs(model.weights.astype(np.float64)) + np.abs(model.bias)
    assert found["scores"].dtype == np.float32 and found["scores"].shape == scores.shape
    assert (np.abs(found["scores"] - scores) <= 1e-6 * reach).all()
    assert found["label"].tolist() == labels_of(model, batch)
    assert ("probabilities" in found) == model.probable
    if model.probable:
        # At the scores that the graph has: a steep curve makes much of their last digits.
        expected = model.probabilities(found["scores"].astype(np.float64))
        expected = expected if model.many else np.stack([1 - expected, expected], axis=1)
        assert found["probabilities"].dtype == np.float32
        np.testing.assert_allclose(found["probabilities"], expected, atol=2e-6)
        np.testing.assert_allclose(found["probabilities"].sum(axis=1), 1.0, atol=1e-6)
    return found


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge", "smoothed_hinge", "logistic"])
@pytest.mark.parametrize("make", [two, many])
def test_scores_labels_and_probabilities_are_those_of_the_model(make: Any, loss: str) -> None:
    same(make(loss=loss))


@pytest.mark.parametrize("kind", ["platt", "isotonic"])
def test_calibration_is_part_of_the_graph(kind: str) -> None:
    same(two(calibration=curves(kind, 1)))
    same(many(calibration=curves(kind, 4)))
    same(many(count=2, calibration=curves(kind, 2), classes=["no", "yes"]))


def test_a_curve_of_one_corner_is_flat_and_a_wall_is_steep() -> None:
    flat = curves("isotonic", 1)
    flat = type(flat)("isotonic", type(flat.curves)(np.array([0, 1]), np.array([0.5]), np.array([0.3])), 9, "held-out")
    assert same(two(calibration=flat))["probabilities"][0].tolist() == pytest.approx([0.7, 0.3])
    corners = np.array([-1.0, 0.25, 0.25 + 1e-12, 2.0])
    wall = type(flat.curves)(np.array([0, 4]), corners, np.array([0.1, 0.2, 0.8, 0.9]))
    steep = two(calibration=type(flat)("isotonic", wall, 9, "held-out"))
    same(steep)
    row = np.zeros((1, 11))
    steep.bias = 0.25 + 1e-3
    assert run(to_onnx(steep), row)["probabilities"][0, 1] == pytest.approx(0.8, abs=1e-3)


def test_thresholds_decide() -> None:
    plain, bent = same(two()), same(two(thresholds=np.array([1.5])))
    assert plain["label"].tolist() != bent["label"].tolist() and (plain["scores"] == bent["scores"]).all()
    same(many(thresholds=np.array([1.0, -2.0, 0.5, 0.0])))


def test_scores_far_away_have_probabilities_that_add_up() -> None:
    model = many(loss="logistic")
    model.weights *= 1000
    found = run(to_onnx(model), rows_for(12)[1][:, 1:])
    assert np.isfinite(found["probabilities"]).all()
    np.testing.assert_allclose(found["probabilities"].sum(axis=1), 1.0, atol=1e-6)


def test_labels_have_the_type_that_they_have_in_the_data() -> None:
    assert same(two(classes=[2, 1]))["label"].dtype == np.int64
    assert same(two(classes=[0.5, 1.0]))["label"].dtype == np.float32
    assert same(two(classes=["ham", "é"]))["label"].dtype == object
    assert same(many(classes=["a", "b", "c", "d"]))["label"].dtype == object


def test_any_number_of_rows_can_be_given() -> None:
    runtime = session(to_onnx(two(loss="logistic")))
    for rows in (0, 1, 7):
        found = runtime.run(None, {"features": np.zeros((rows, 11), np.float32)})
        assert [len(output) for output in found] == [rows] * 3
    assert runtime.get_inputs()[0].shape == ["n", 11]


def test_columns_begin_with_index_1_or_0() -> None:
    same(two(), first=0, zero_based=True)
    model = two()
    model.weights[0] = 3.0
    same(model, first=0)
    same(two(recipe={"format": "other"}), first=0)
    assert dict((p.key, p.value) for p in to_onnx(two()).metadata_props)["first_index"] == "1"


def test_numbers_of_a_table_may_be_missing_and_logarithms_are_taken() -> None:
    columns = [{"name": "age", "kind": "number"}, {"name": "visits", "kind": "log1p"}]
    model = table([*columns, {"name": "v", "kind": "vector", "width": 2}], [0.5, 2.0, 3.0, -1.0])
    graph = to_onnx(model)
    found = run(graph, [[1.0, 20.0, 0.5, 2.0], [np.nan, -20.0, np.nan, 0.0], [0.0, np.nan, 0.0, 0.0]])
    log = np.log1p(20.0)
    expected = [0.5 + 2 * log + 1.5 - 2 + 0.25, -2 * log + 0.25, 0.25]
    np.testing.assert_allclose(found["scores"], expected, rtol=1e-6)
    described = {p.key: p.value for p in graph.metadata_props}
    assert json.loads(described["columns"]) == ["age", "visits", "v[0]", "v[1]"]


def test_what_is_missing_has_its_weight_in_the_graph() -> None:
    columns = [{"name": "age", "kind": "number", "missing": "indicator"}, {"name": "n", "kind": "number"}]
    columns += [{"name": "v", "kind": "vector", "width": 2, "missing": "indicator"}]
    graph = to_onnx(table(columns, [0.5, 2.0, 3.0, -1.0, 10.0, 100.0]))
    found = run(graph, [[1.0, 2.0, 0.5, 2.0], [np.nan, np.nan, 1.0, 0.0], [0.0, 1.0, np.nan, np.nan]])
    np.testing.assert_allclose(found["scores"], [0.5 + 4 + 1.5 - 2 + 0.25, 10 + 3 + 0.25, 2 + 100 + 0.25], rtol=1e-6)
    assert json.loads({p.key: p.value for p in graph.metadata_props}["columns"]) == ["age", "n", "v[0]", "v[1]"]
    with pytest.raises(ModelError, match="the features of a table are counted from 0: leave out zero_based"):
        to_onnx(table(columns, [0.0, 2.0, 3.0, -1.0, 10.0, 100.0]), zero_based=False)


def test_a_table_of_numbers_is_scored_alike(tmp_path: Any) -> None:
    """From the file to the scores: what the reader makes of cells is what the graph makes of columns."""
    from streamsvm import load_settings, train
    from streamsvm.config import expand
    from streamsvm.reading import make_source, test_stream

    rng = np.random.default_rng(3)
    cells = rng.normal(size=(400, 3)).round(3) * [1.0, 30.0, 5.0]
    labels = (cells @ [1.0, 0.02, -0.1] > 0).astype(int)
    lines = ["y,a,b,c", *(f"{y},{a},{b},{c}" for y, (a, b, c) in zip(labels, cells, strict=True))]
    lines[5] = "1,,3,2"
    path = tmp_path / "numbers.csv"
    path.write_text("\n".join(lines) + "\n")
    given = {"data.train": str(path), "data.label": "y", "features.log1p": "b", "output.model": None}
    settings = load_settings(overrides=given)
    model = train(settings).model
    stream = test_stream(settings, make_source(settings, (expand(str(path)),)), model)
    scores = np.concatenate([model.scores(batch) for batch in stream])
    cells = np.array([[float(cell or "nan") for cell in line.split(",")[1:]] for line in lines[1:]])
    order = [{"a": 0, "b": 1, "c": 2}[c["name"]] for c in model.recipe["columns"]]
    found = run(to_onnx(model), cells[:, order])
    np.testing.assert_allclose(found["scores"], scores, rtol=1e-5, atol=1e-5)


def test_what_has_no_operator_is_refused() -> None:
    word = [{"name": "ad", "kind": "word"}]
    for model, told in (
        (table(word, np.zeros(16), recipe={"hash_bits": 4}), "hashed"),
        (two(recipe={"format": "vw", "hash_bits": 4, "interactions": []}), "hashed"),
        (two(recipe={"format": "libsvm", "hash_bits": 4, "dim": None}), r"folded into 2\^4"),
        (two(dim=0), "nothing is learned yet"),
    ):
        with pytest.raises(ModelError, match=told):
            to_onnx(model)


def test_graphs_are_like_those_of_skl2onnx(tmp_path: Any) -> None:
    skl2onnx = pytest.importorskip("skl2onnx")
    for model, kind in ((two(loss="logistic"), "LogisticRegression"), (many(), "LinearSVC"), (two(), "LinearSVC")):
        dense = rows_for(model.dim)[1][:, 1:]
        estimator = to_sklearn(model, kind)
        options = {id(estimator): {"zipmap": False}} if kind == "LogisticRegression" else {}
        theirs = session(skl2onnx.to_onnx(estimator, dense[:1], options=options))
        label, values = theirs.run(None, {theirs.get_inputs()[0].name: dense})
        ours = run(to_onnx(model), dense)
        assert label.tolist() == ours["label"].tolist()
        found = ours["probabilities"] if model.loss == "logistic" else ours["scores"].reshape(len(dense), -1)
        np.testing.assert_allclose(values.reshape(len(dense), -1)[:, -found.shape[1] :], found, atol=1e-5)


def test_a_graph_is_written_whole(tmp_path: Any) -> None:
    path = tmp_path / "m.onnx"
    save_onnx(two(), str(path))
    runtime = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [output.name for output in runtime.get_outputs()] == ["label", "scores"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.onnx"]
