"""Log loss, Brier score, calibration error and the reliability table, against scikit-learn and a twin."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from streamsvm.evaluate import Metrics
from streamsvm.metrics.reliability import Reliability
from streamsvm.model import Model

sklearn_metrics = pytest.importorskip("sklearn.metrics")

CHANCES = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.5, 1e-300, 1 - 1e-16, 0.1, 0.3, 0.7]))
ROWS = st.lists(st.tuples(CHANCES, st.integers(0, 1), st.sampled_from([1.0, 0.25, 3.0])), min_size=1, max_size=40)


def measured(probabilities: Any, labels: Any, weights: Any) -> dict[str, Any]:
    found = Reliability()
    whole = np.zeros(len(labels), np.int64)
    found.see(probabilities, labels.astype(np.float32), weights.astype(np.float32), whole)
    return found.result()


def calibration_error(chances: Any, observed: Any, weights: Any, bins: int) -> tuple[float, list[Any]]:
    """Weights, mean probabilities and shares of bins, one after the other."""
    places = np.minimum((chances * 30).astype(int) // (30 // bins), bins - 1)
    table, error = [], 0.0
    for place in range(bins):
        mine = places == place
        weight = weights[mine].sum()
        if not weight:
            table.append([0.0, None, None])
            continue
        means = np.average(chances[mine], weights=weights[mine]), np.average(observed[mine], weights=weights[mine])
        table.append([weight, *means])
        error += weight / weights.sum() * abs(means[0] - means[1])
    return error, table


def assert_calibrated(result: dict[str, Any], chances: Any, observed: Any, weights: Any) -> None:
    assert result["ece"] == pytest.approx(calibration_error(chances, observed, weights, 15)[0], abs=1e-12)
    expected = calibration_error(chances, observed, weights, 10)[1]
    assert len(result["reliability"]) == 10
    for place, (one, (weight, *means)) in enumerate(zip(result["reliability"], expected, strict=True)):
        assert (one["from"], one["to"]) == (round(place / 10, 6), round((place + 1) / 10, 6))
        assert one["weight"] == pytest.approx(weight)
        if weight:
            assert [one["probability"], one["observed"]] == pytest.approx(means)
        else:
            assert one["probability"] is one["observed"] is None


@examples(80)
@given(ROWS)
def test_two_classes(rows: list[tuple[float, int, float]]) -> None:
    chances, labels, weights = (np.array(column, float) for column in zip(*rows, strict=True))
    result = measured(chances, labels, weights)
    log_loss = sklearn_metrics.log_loss(labels, chances, sample_weight=weights, labels=[0, 1])
    assert result["log_loss"] == pytest.approx(log_loss, rel=1e-9, abs=1e-12)
    assert result["brier"] == pytest.approx(np.average((chances - labels) ** 2, weights=weights), abs=1e-15)
    assert_calibrated(result, chances, labels, weights)


def test_brier_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    chances, labels, weights = rng.random(100), rng.integers(0, 2, 100), rng.random(100).astype(np.float32)
    expected = sklearn_metrics.brier_score_loss(labels, chances, sample_weight=weights)
    assert measured(chances, labels, weights)["brier"] == pytest.approx(expected)


@examples(60)
@given(st.integers(0, 2**32 - 1), st.integers(3, 6), st.integers(1, 40), st.floats(0.1, 30))
def test_many_classes(seed: int, classes: int, count: int, sharpness: float) -> None:
    rng = np.random.default_rng(seed)
    chances = np.exp(rng.normal(size=(count, classes)) * sharpness)
    chances /= chances.sum(axis=1, keepdims=True)
    labels, weights = rng.integers(0, classes, count), rng.choice([1.0, 0.5, 2.0], count)
    result = measured(chances, labels, weights)
    log_loss = sklearn_metrics.log_loss(labels, chances, sample_weight=weights, labels=range(classes))
    assert result["log_loss"] == pytest.approx(log_loss, rel=1e-9, abs=1e-12)
    off = ((chances - np.eye(classes)[labels]) ** 2).sum(axis=1)
    assert result["brier"] == pytest.approx(np.average(off, weights=weights), abs=1e-15)
    right = (chances.argmax(axis=1) == labels).astype(float)
    assert_calibrated(result, chances.max(axis=1), right, weights)


def test_rows_of_weight_0_and_parts() -> None:
    found = Reliability(3)
    chances, labels = np.array([0.25, 0.75, 0.9]), np.array([0, 1, 0], np.float32)
    found.see(chances, labels, np.array([1, 2, 0], np.float32), np.array([0, 2, 0]))
    assert found.result(0)["brier"] == found.result(2)["brier"] == 0.0625
    assert found.result(1) == {"log_loss": None, "brier": None, "ece": None, "reliability": None}


def test_probabilities_that_are_none_do_no_harm() -> None:
    """Whatever a calibration says, kernels stay inside their arrays."""
    for chance in (np.nan, -3.0, 7.0, np.inf):
        measured(np.array([chance]), np.zeros(1), np.ones(1))
        measured(np.full((1, 3), chance), np.zeros(1), np.ones(1))


@pytest.mark.parametrize("many", [False, True])
def test_only_models_with_probabilities_have_these_figures(many: bool) -> None:
    scores = np.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]]) if many else np.array([1.0, -2.0])
    labels, weights = np.array([1, 0], np.float32), np.ones(2, np.float32)
    shape: tuple[Any, ...] = ((2, 3), np.zeros(3), [1, 2, 3]) if many else (2, 0.0, [-1, 1])
    for loss in ("hinge", "logistic"):
        model = Model(np.zeros(shape[0], np.float32), shape[1], shape[2], loss)
        metrics = Metrics(model)
        metrics.update(scores, labels, weights)
        result = metrics.result()
        if loss == "hinge":
            assert result["log_loss"] is result["brier"] is result["ece"] is result["reliability"] is None
        else:
            chances = model.probabilities(scores)
            expected = sklearn_metrics.log_loss(labels, chances, labels=range(3 if many else 2))
            assert result["log_loss"] == pytest.approx(expected)
            assert many or result["log_loss"] == pytest.approx(result["loss"])
