"""Confusion, precision, recall, F1 and top k, against scikit-learn."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from streamsvm.evaluate import Metrics
from streamsvm.metrics import tally
from streamsvm.model import Model

sklearn_metrics = pytest.importorskip("sklearn.metrics")


def model_of(classes: int) -> Model:
    if classes == 2:
        return Model(np.zeros(2, np.float32), 0.0, ["no", "yes"], "hinge")
    return Model(np.zeros((2, classes), np.float32), np.zeros(classes), list(range(10, 10 + classes)), "hinge")


def measured(scores: Any, labels: Any, weights: Any) -> dict[str, Any]:
    metrics = Metrics(model_of(2 if scores.ndim == 1 else scores.shape[1]))
    metrics.update(scores, labels.astype(np.float32), weights.astype(np.float32))
    return metrics.result()


@st.composite
def rows(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Scores with ties, codes of only some of the classes, and weights, some of them 0."""
    classes, count, seed = draw(st.integers(2, 7)), draw(st.integers(1, 40)), draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(count, classes) if classes > 2 else count).round(draw(st.integers(0, 6)))
    labels = rng.integers(0, draw(st.integers(1, classes)), count)
    return scores, labels, rng.choice([1.0, 1.0, 0.25, 3.0, 0.0], count)


@examples(80)
@given(rows())
def test_figures_are_scikit_learns(given_rows: tuple[Any, Any, Any]) -> None:
    scores, labels, weights = given_rows
    classes = 2 if scores.ndim == 1 else scores.shape[1]
    result = measured(scores, labels, weights)
    assert result["examples"] == len(labels)
    there = weights > 0
    if not there.any():
        assert result["error"] is result["macro_f1"] is result["micro_f1"] is None
        return
    true, c = labels[there], weights[there]
    predicted = (scores > 0).astype(int)[there] if classes == 2 else scores.argmax(axis=1)[there]
    confusion = sklearn_metrics.confusion_matrix(true, predicted, labels=range(classes), sample_weight=c)
    assert np.allclose(result["confusion"], confusion)
    assert result["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(true, predicted, sample_weight=c))
    assert result["error"] == pytest.approx(1.0 - result["accuracy"])
    expected = sklearn_metrics.precision_recall_fscore_support(
        true, predicted, labels=range(classes), sample_weight=c, zero_division=0
    )
    for key, column in zip(("precision", "recall", "f1", "support"), expected, strict=True):
        assert [one[key] for one in result["per_class"]] == pytest.approx(column.tolist())
    for average in ("macro", "micro"):
        f1 = sklearn_metrics.f1_score(true, predicted, average=average, sample_weight=c, zero_division=0)
        assert result[f"{average}_f1"] == pytest.approx(f1)
    assert [one["class"] for one in result["per_class"]] == result["classes"]
    if classes == 2:
        assert [result[key] for key in ("precision", "recall", "f1")] == pytest.approx([one[1] for one in expected[:3]])


def test_classes_that_nobody_has_or_is_given_are_left_out_of_macro_f1() -> None:
    scores = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, -1.0]])
    result = measured(scores, np.array([0, 0]), np.ones(2))
    assert result["macro_f1"] == pytest.approx((2 / 3 + 0.0) / 2)
    assert result["per_class"][2] == {
        "class": 12, "precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0.0,
        "auc": None, "auc_error": None, "average_precision": None, "average_precision_error": None,
    }  # fmt: skip


@pytest.mark.parametrize("classes", [3, 4, 5, 6, 9])
def test_top_k_is_scikit_learns(classes: int) -> None:
    rng = np.random.default_rng(classes)
    scores, labels, weights = rng.normal(size=(80, classes)), rng.integers(0, classes, 80), rng.random(80)
    top = measured(scores, labels, weights)["top_k"]
    assert list(top) == [str(k) for k in (2, 3, 5) if k < classes]
    c = weights.astype(np.float32)
    for k, share in top.items():
        expected = sklearn_metrics.top_k_accuracy_score(
            labels, scores, k=int(k), sample_weight=c, labels=range(classes)
        )
        assert share == pytest.approx(expected)


def test_of_equal_scores_the_lower_code_is_ahead() -> None:
    for label, expected in ((0, 1.0), (1, 1.0), (2, 0.0), (3, 0.0)):
        result = measured(np.zeros((1, 4)), np.array([label]), np.ones(1))
        assert result["top_k"]["2"] == expected
        assert result["top_k"]["3"] == (1.0 if label < 3 else 0.0) and result["accuracy"] == (
            1.0 if label == 0 else 0.0
        )


def test_very_many_classes_have_no_confusion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "MOST_CONFUSED", 4)
    result = measured(np.eye(5), np.arange(5), np.ones(5))
    assert result["confusion"] is None and result["macro_f1"] == 1.0
    assert measured(np.eye(4), np.arange(4), np.ones(4))["confusion"] == np.eye(4).tolist()
