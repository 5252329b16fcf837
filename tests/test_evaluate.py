"""Figures of a model on a stream, wherever it is cut; the figures themselves are in test_metrics_*.py."""

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

import streamsvm
from streamsvm.batch import Batch, empty_batch
from streamsvm.errors import ConfigError, DataError
from streamsvm.evaluate import Metrics, evaluate
from streamsvm.losses import LOSSES, make_loss
from streamsvm.metrics import class_ranking, ranking
from streamsvm.model import Model
from streamsvm.scoring import losses_of

SCORES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, 1e-60, -1e-60, 1e38, -1e38, 1e200, -1e200]),
    st.floats(-3, 3).map(lambda score: round(score, 2)),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(0.999, 1.001),
)
ROWS = st.lists(st.tuples(SCORES, st.integers(0, 1), st.sampled_from([1.0, 0.0, 0.25, 3.0])), min_size=1, max_size=40)


def measured(rows: list[tuple[float, int, float]], loss: str = "hinge") -> dict[str, Any]:
    scores, codes, weights = (np.array(column, float) for column in zip(*rows, strict=True))
    metrics = Metrics(model_of(loss))
    metrics.update(scores, codes.astype(np.float32), weights.astype(np.float32))
    return metrics.result()


def batch_of(labels: list[float], values: list[float], weights: list[float] | None = None) -> Batch:
    """Rows with one feature, index 1."""
    count = len(labels)
    return Batch(
        np.arange(count + 1, dtype=np.int64),
        np.ones(count, np.uint32),
        np.array(values, np.float32),
        np.array(labels, np.float32),
        np.ones(count, np.float32) if weights is None else np.array(weights, np.float32),
    )


def model_of(loss: str = "hinge", classes: list[Any] | None = None, bias: float = 0.5) -> Model:
    """score = 2 x + bias"""
    return Model(np.array([9.0, 2.0], np.float32), bias, [-1, 1] if classes is None else classes, loss)


@pytest.mark.parametrize("loss", list(LOSSES))
@examples(40)
@given(ROWS)
def test_error_confusion_and_loss_are_weighted_means(loss: str, rows: list[tuple[float, int, float]]) -> None:
    rows = [(float(np.clip(score, -1e30, 1e30)), code, weight) for score, code, weight in rows]
    result = measured(rows, loss)
    total = sum(weight for _, _, weight in rows)
    assert result["examples"] == len(rows)
    if not total:
        assert result["accuracy"] is result["error"] is result["loss"] is result["auc"] is None
        return
    confusion = np.zeros((2, 2))
    for score, code, weight in rows:
        confusion[code, int(score > 0)] += weight
    assert np.allclose(result["confusion"], confusion)
    assert result["error"] == pytest.approx((confusion[0, 1] + confusion[1, 0]) / total)
    assert result["accuracy"] == pytest.approx(1.0 - result["error"])
    expected = sum(weight * make_loss(loss).value(score, 2.0 * code - 1.0) for score, code, weight in rows) / total
    assert result["loss"] == pytest.approx(expected)


def fed(model: Model, columns: tuple[Any, ...], edges: list[int], values: list[str] | None = None) -> dict[str, Any]:
    """The figures of rows that come in pieces."""
    metrics = Metrics(model, None if values is None else "site")
    for a, b in zip(edges, edges[1:], strict=False):
        scores, labels, weights = (column[a:b].copy() for column in columns)
        metrics.update(scores, labels, weights, None if values is None else values[a:b])
    return metrics.result()


@pytest.mark.parametrize("exact", [4, 1000])
@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
@examples(15)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 60), max_size=5))
def test_figures_do_not_depend_on_how_rows_are_cut(
    exact: int, classes: int, loss: str, seed: int, points: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(60, classes) if classes > 2 else 60).round(rng.integers(0, 4))
    columns = scores, rng.integers(0, classes, 60).astype(np.float32), rng.choice([0, 0.3, 1, 7], 60).astype(np.float32)
    values = [str(rng.integers(0, 5)) for _ in range(60)]
    model = model_of(loss) if classes == 2 else many_classes(classes, loss)
    with mock.patch.object(ranking, "EXACT_ROWS", exact), mock.patch.object(class_ranking, "EXACT_NUMBERS", exact * 7):
        whole = fed(model, columns, [0, 60], values)
        assert fed(model, columns, [0, *sorted(points), 60], values) == whole
        assert fed(model, columns, list(range(61)), values) == whole
        assert exact < 60 or whole["auc_error"] == 0


def compiled(model: Model) -> None:
    """Have all kernels in place, so that compiling them takes no memory later."""
    with mock.patch.object(ranking, "EXACT_ROWS", 1), mock.patch.object(class_ranking, "EXACT_NUMBERS", 1):
        scores, ones = np.zeros((3, len(model.classes)) if model.many else 3), np.ones(3, np.float32)
        fed(model, (scores, ones, ones), [0, 3], ["x"] * 3)


def growth(metrics: Metrics, classes: int, rows: int, pieces: int, values: list[str] | None) -> tuple[int, int]:
    """What more rows like the first take in memory after some of them, and the most that all took."""
    compiled(metrics._model)
    rng = np.random.default_rng(0)
    scores = rng.normal(size=rows if classes == 2 else (rows, classes))
    labels, weights = rng.integers(0, classes, rows).astype(np.float32), np.ones(rows, np.float32)
    sizes = []
    tracemalloc.start()
    try:
        for piece in range(pieces):
            metrics.update(scores, labels, weights, values)
            if piece in (pieces // 4, pieces - 1):
                sizes.append(taken_by_package())
        return sizes[-1] - sizes[0], tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def taken_by_package() -> int:
    """Bytes that lines of the package hold: threads of other tests may come by memory meanwhile."""
    own = tracemalloc.Filter(True, str(Path(streamsvm.__file__).parent / "*"))
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([own]).traces)


@pytest.mark.parametrize("classes", [2, 5])
def test_memory_does_not_grow_with_rows(classes: int) -> None:
    metrics = Metrics(model_of("squared_hinge") if classes == 2 else many_classes(classes))
    more, most = growth(metrics, classes, 100_000, 30, None)
    assert metrics.examples == 3_000_000 and metrics.result()["auc_error"] > 0
    assert more < 10_000 and most < 24 << 20


def test_memory_does_not_grow_with_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "EXACT_ROWS", 30_000)
    metrics = Metrics(model_of("logistic"), "site")
    more, most = growth(metrics, 2, 20_000, 12, [f"{'site' * 1000} {k % 7000}" for k in range(20_000)])
    assert len(metrics.result()["slices"]) == 1 and more < 10_000 and most < 48 << 20
    metrics = Metrics(model_of("logistic"), "site")
    more, most = growth(metrics, 2, 20_000, 12, [str(k) for k in range(20_000)])
    found = metrics.result()["slices"]
    assert len(found) == 1001 and next(iter(found)) == "(others)" and found["(others)"]["examples"] == 12 * 19_000
    assert more < 10_000 and most < 48 << 20


def test_a_thousand_classes_fit_into_64_mb() -> None:
    metrics = Metrics(many_classes(1000, "hinge"))
    compiled(many_classes(1000, "hinge"))
    rng = np.random.default_rng(0)
    tracemalloc.start()
    try:
        for _ in range(3):
            scores = rng.normal(size=(500, 1000))
            metrics.update(scores, rng.integers(0, 1000, 500).astype(np.float32), np.ones(500, np.float32))
        assert 40 << 20 < tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert 0 < metrics.result()["auc_error"] < 0.01


def many_classes(classes: int, loss: str = "hinge", rule: str = "ova", thresholds: Any = None) -> Model:
    """A model whose scores come from elsewhere."""
    bias = np.arange(classes) * 0.1
    names: list[Any] = [f"c{code}" for code in range(classes)]
    return Model(np.zeros((2, classes), np.float32), bias, names, loss, rule, thresholds=thresholds)


@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize("rule", ["ova", "crammer_singer"])
def test_the_loss_of_many_classes_goes_by_the_rule(loss: str, rule: str) -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(50, 4)).round(1)
    rows = batch_of(rng.integers(0, 4, 50).tolist(), [0.0] * 50, rng.random(50).tolist())
    metrics = Metrics(many_classes(4, loss, rule))
    metrics.update(scores, rows.labels, rows.weights)
    sums = losses_of(scores, rows, make_loss(loss), rule)
    result = metrics.result()
    assert result["loss"] == pytest.approx(sums.loss / sums.weight)
    assert result["error"] == pytest.approx(sums.wrong / sums.weight)


def test_thresholds_decide() -> None:
    model = model_of("hinge")
    model.thresholds = np.array([1.0])
    metrics = Metrics(model)
    metrics.update(np.array([0.5, 1.5]), np.array([0, 1], np.float32), np.ones(2, np.float32))
    assert metrics.result()["error"] == 0.0
    metrics = Metrics(many_classes(3, thresholds=np.array([0.0, 5.0, 0.0])))
    metrics.update(np.array([[1.0, 4.0, 2.0]] * 2), np.array([2, 0], np.float32), np.ones(2, np.float32))
    result = metrics.result()
    assert result["error"] == 0.5 and result["top_k"] == {"2": 1.0}  # class 1 comes last
    assert result["loss"] == ((2.0 + 5.0 + 0.0) + (0.0 + 5.0 + 3.0)) / 2  # of the scores themselves


# A model on a stream.


def test_a_model_on_a_stream_of_labels_as_written() -> None:
    batches = [batch_of([1, -1], [1.0, 1.0]), empty_batch(), batch_of([-1], [-3.0], [2.0])]  # scores 2.5, 2.5, -5.5
    result = evaluate(model_of(), batches)
    assert result["examples"] == 3 and result["classes"] == [-1, 1]
    assert result["confusion"] == [[2.0, 1.0], [0.0, 1.0]]
    assert result["error"] == 0.25 and result["accuracy"] == 0.75
    assert result["loss"] == pytest.approx(3.5 / 4)
    assert result["auc"] == pytest.approx((2 + 0.5) / 3)  # 2.5 and 2.5 are a tie


def test_the_order_of_the_models_classes_decides_which_is_positive() -> None:
    rows = [batch_of([1, 2], [1.0, -1.0])]
    assert evaluate(model_of(classes=[2, 1]), rows)["error"] == 0.0
    assert evaluate(model_of(classes=[1, 2]), rows)["error"] == 1.0


def test_features_beyond_the_model_are_ignored() -> None:
    wide = batch_of([1], [1.0])._replace(indices=np.array([2**32 - 2], np.uint32))
    assert evaluate(model_of(), [wide])["loss"] == 0.5  # the bias alone


def test_one_class_has_no_auc() -> None:
    result = evaluate(model_of("logistic"), [batch_of([1, 1], [0.1, 0.2])])
    assert result["auc"] is None and result["auc_error"] is None and result["log_loss"] > 0


def test_no_rows_are_an_error() -> None:
    for stream in ([], [empty_batch()]):
        with pytest.raises(DataError, match="no row to evaluate"):
            evaluate(model_of(), stream)


def test_labels_of_other_classes_are_an_error() -> None:
    with pytest.raises(DataError, match=r"label 3 is not one of the classes \(-1, 1\)"):
        evaluate(model_of(), [batch_of([1, 3], [0.0, 0.0])])


def test_rows_without_a_label_are_an_error_not_a_class() -> None:
    with pytest.raises(DataError, match="row 4 has no label"):
        evaluate(model_of(), [batch_of([1, -1], [0, 0]), batch_of([1, float("nan")], [0, 0])])


def test_the_stream_is_closed_when_evaluation_fails() -> None:
    closed = []

    def stream() -> Iterator[Batch]:
        try:
            yield batch_of([7], [0.0])
            yield batch_of([1], [0.0])
        finally:
            closed.append(True)

    rows = stream()
    with pytest.raises(DataError):
        evaluate(model_of(), rows)
    assert closed == [True]


# Classes that the model does not know, and rows of many pieces.


def test_rows_of_unknown_classes_are_left_out_on_demand() -> None:
    batches = [batch_of([1, 3, -1], [1.0, 9.0, -1.0]), batch_of([7, 7, 1], [0.0, 0.0, 1.0])]
    with pytest.raises(DataError, match=r"row 2: label 3 is not one of the classes \(-1, 1\).*--unknown-classes skip"):
        evaluate(model_of(), batches)
    with pytest.raises(DataError, match="row 4: label 7"):
        evaluate(model_of(), [batch_of([1, -1, -1], [1.0, 9.0, -1.0]), batches[1]])
    result = evaluate(model_of(), batches, unknown_classes="skip")
    assert result["unknown_class_rows"] == 3 and result["unknown_classes"] == {"7": 2, "3": 1}
    clean = [batch_of([1, -1], [1.0, -1.0]), batch_of([1], [1.0])]
    assert {key: result[key] for key in evaluate(model_of(), clean)} == evaluate(model_of(), clean)
    with pytest.raises(DataError, match="no row to evaluate"):
        evaluate(model_of(), [batch_of([5], [1.0])], unknown_classes="skip")
    with pytest.raises(DataError, match="row 3 has no label"):
        evaluate(model_of(), [batch_of([5, 1, float("nan")], [1.0, 1.0, 1.0])], unknown_classes="skip")


def test_unknown_classes_that_are_told_are_bounded() -> None:
    rows = batch_of([1, *range(1000, 3000)], [0.0] * 2001)
    result = evaluate(model_of(), [rows], unknown_classes="skip")
    assert result["unknown_class_rows"] == 2000 and len(result["unknown_classes"]) == 100


def test_large_batches_are_scored_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(np.array([[0, 0, 0], [1, -1, 0.5]], np.float32), np.array([0.1, 0.2, 0.3]), [1, 2, 3], "hinge")
    rng = np.random.default_rng(0)
    rows = batch_of(rng.integers(1, 4, 500).tolist(), rng.normal(size=500).tolist())
    whole = evaluate(model, [rows])
    monkeypatch.setattr("streamsvm.evaluate.PIECE", 3 * 64)
    scored: list[int] = []
    plain = Model.scores
    monkeypatch.setattr(Model, "scores", lambda self, batch: (scored.append(batch.rows), plain(self, batch))[1])
    assert evaluate(model, [rows]) == whole and max(scored) == 64 and sum(scored) == 500


def test_a_stream_that_keeps_no_columns_has_no_slices() -> None:
    with pytest.raises(ConfigError, match="does not keep column site"):
        evaluate(model_of(), [batch_of([1], [1.0])], by="site")


@pytest.mark.parametrize("classes", [2, 4])
def test_all_figures_can_be_written_as_json(classes: int) -> None:
    model = model_of("logistic") if classes == 2 else many_classes(classes, "logistic")
    scores = np.random.default_rng(0).normal(size=(9, classes) if classes > 2 else 9)
    result = fed(model, (scores, np.arange(9, dtype=np.float32) % classes, np.ones(9, np.float32)), [0, 9], ["x"] * 9)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    keys = {"examples", "accuracy", "error", "loss", "auc", "auc_error", "average_precision", "average_precision_error"}
    keys |= {"log_loss", "brier", "ece", "reliability", "confusion", "classes", "per_class", "macro_f1", "micro_f1"}
    assert result.keys() == keys | {"by", "slices"} | ({"precision", "recall", "f1"} if classes == 2 else {"top_k"})


def test_rows_without_weight_count_for_nothing_but_themselves() -> None:
    result = fed(model_of("logistic"), (np.ones(3), np.ones(3, np.float32), np.zeros(3, np.float32)), [0, 3], ["x"] * 3)
    assert result["examples"] == 3 and result["slices"]["x"]["examples"] == 3
    for key in ("accuracy", "error", "loss", "auc", "average_precision", "log_loss", "brier", "ece", "macro_f1"):
        assert result[key] is None
    assert json.loads(json.dumps(result, allow_nan=False)) == result
