"""Figures of a model on a stream, against scikit-learn."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamsvm.batch import Batch, empty_batch
from streamsvm.errors import DataError
from streamsvm.evaluate import Metrics, evaluate
from streamsvm.losses import LOSSES, make_loss
from streamsvm.model import Model

sklearn_metrics = pytest.importorskip("sklearn.metrics")

SCORES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, 1e-60, -1e-60, 1e38, -1e38, 1e200, -1e200]),
    st.floats(-3, 3).map(lambda score: round(score, 2)),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(0.999, 1.001),
)
ROWS = st.lists(st.tuples(SCORES, st.integers(0, 1), st.sampled_from([1.0, 0.0, 0.25, 3.0])), min_size=1, max_size=40)


def measured(rows: list[tuple[float, int, float]], loss: str = "hinge") -> dict[str, Any]:
    scores, codes, weights = (np.array(column, float) for column in zip(*rows, strict=True))
    metrics = Metrics(make_loss(loss))
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


@settings(max_examples=100)
@given(ROWS)
@example([(0.0, 1, 1.0), (-0.0, 0, 1.0)])
@example([(-0.0, 1, 1.0), (0.0, 0, 1.0), (0.0, 1, 3.0)])
@example([(1e-60, 1, 1.0), (-1e-60, 0, 1.0)])
@example([(0.5, 1, 1.0), (0.5, 0, 1.0), (0.5, 1, 1.0)])
def test_auc_is_scikit_learns_within_its_own_error(rows: list[tuple[float, int, float]]) -> None:
    result = measured(rows)
    scores, codes, weights = zip(*rows, strict=True)
    if {code for code, weight in zip(codes, weights, strict=True) if weight} != {0, 1}:
        assert result["auc"] is None and result.get("auc_error") is None
        return
    exact = sklearn_metrics.roc_auc_score(codes, scores, sample_weight=weights)
    assert abs(result["auc"] - exact) <= result["auc_error"] + 1e-9
    assert 0.0 <= result["auc"] <= 1.0


def test_the_error_of_auc_is_small_where_scores_differ_and_exact_for_ties() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, size=5000)
    scores = rng.normal(size=5000) + codes
    rows = list(zip(scores.tolist(), codes.tolist(), [1.0] * 5000, strict=True))
    result = measured(rows)
    assert result["auc_error"] < 1e-3
    assert result["auc"] == pytest.approx(sklearn_metrics.roc_auc_score(codes, scores), abs=1e-4)
    tied = [(float(round(score)), code, weight) for score, code, weight in rows]
    exact = sklearn_metrics.roc_auc_score(codes, np.round(scores))
    assert measured(tied)["auc"] == pytest.approx(exact, abs=1e-12)  # ties count half there too


@pytest.mark.parametrize("score", [0.0, -0.0, 3.25, -1e30])
def test_constant_scores_tell_nothing(score: float) -> None:
    result = measured([(score, 0, 1.0), (score, 1, 1.0), (score, 1, 1.0)])
    assert result["auc"] == 0.5 and result["auc_error"] == 0.5


def test_perfect_and_reversed_orders() -> None:
    assert measured([(-1.0, 0, 1.0), (1.0, 1, 1.0)])["auc"] == 1.0
    assert measured([(-1.0, 1, 1.0), (1.0, 0, 1.0)])["auc"] == 0.0
    assert measured([(-1e300, 0, 1.0), (1e300, 1, 1.0)])["auc"] == 1.0


@pytest.mark.parametrize("loss", list(LOSSES))
@settings(max_examples=40)
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


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(-20, 20), st.integers(0, 1), st.floats(0.125, 4, width=32)), min_size=2))
def test_log_loss_is_scikit_learns_and_only_for_logistic(rows: list[tuple[float, int, float]]) -> None:
    scores, codes, weights = zip(*rows, strict=True)
    probabilities = 1.0 / (1.0 + np.exp(-np.array(scores)))
    expected = sklearn_metrics.log_loss(codes, probabilities, sample_weight=weights, labels=[0, 1])
    result = measured(rows, "logistic")
    assert result["log_loss"] == pytest.approx(expected, rel=1e-5, abs=1e-8)
    assert result["loss"] == pytest.approx(result["log_loss"])
    assert measured(rows, "hinge")["log_loss"] is None and measured(rows, "squared_hinge")["log_loss"] is None


@settings(max_examples=40)
@given(ROWS, st.lists(st.integers(0, 40), max_size=4))
def test_figures_do_not_depend_on_how_rows_are_cut(rows: list[tuple[float, int, float]], points: list[int]) -> None:
    edges = [0, *sorted(min(point, len(rows)) for point in points), len(rows)]
    metrics = Metrics(make_loss("logistic"))
    for a, b in zip(edges, edges[1:], strict=False):
        part = np.array(rows[a:b], float).reshape(-1, 3)
        metrics.update(part[:, 0].copy(), part[:, 1].astype(np.float32), part[:, 2].astype(np.float32))
    assert metrics.result() == measured(rows, "logistic")


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


def test_memory_does_not_grow_with_rows() -> None:
    metrics = Metrics(make_loss("hinge"))
    size = sum(array.nbytes for array in vars(metrics).values() if isinstance(array, np.ndarray))
    for seed in range(3):
        scores = np.random.default_rng(seed).normal(size=10_000)
        metrics.update(scores, (scores > 0).astype(np.float32), np.ones(10_000, np.float32))
    assert sum(array.nbytes for array in vars(metrics).values() if isinstance(array, np.ndarray)) == size < 20 << 20
