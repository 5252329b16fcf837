"""Scores of rows and what they cost, against NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.batch import Batch
from streamsvm.losses import LOSSES, make_loss
from streamsvm.scoring import codes_of, loss_sums, losses_of, score_rows


def made(rows: int, classes: int, seed: int) -> tuple[Batch, "np.ndarray", "np.ndarray"]:
    """Sparse rows with class codes and weights, the same as a matrix, and weights [feature, class]."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(rows, 12)).astype(np.float32) * (rng.random((rows, 12)) < 0.5)
    places = [np.flatnonzero(row) for row in matrix]
    values = [row[place] for row, place in zip(matrix, places, strict=True)]
    batch = Batch(
        np.append(0, np.cumsum([len(place) for place in places])).astype(np.int64),
        np.concatenate([*places, np.empty(0)]).astype(np.uint32),
        np.concatenate([*values, np.empty(0)]).astype(np.float32),
        rng.integers(0, classes, rows).astype(np.float32),
        rng.choice([0.0, 1.0, 2.5], rows).astype(np.float32),
    )
    return batch, matrix, rng.normal(size=(12, classes)).astype(np.float32)


@given(st.integers(0, 20), st.integers(1, 9), st.integers(0, 12), st.integers(0, 99))
def test_scores_of_several_classes(rows: int, classes: int, known: int, seed: int) -> None:
    batch, matrix, weights = made(rows, classes, seed)
    bias = np.arange(classes) * 0.5
    expected = matrix[:, :known].astype(float) @ weights[:known].astype(float) + bias
    np.testing.assert_allclose(score_rows(batch, weights[:known], bias), expected, rtol=1e-12, atol=1e-12)
    for k in range(classes):
        one = score_rows(batch, np.ascontiguousarray(weights[:known, k]), float(bias[k]))
        np.testing.assert_allclose(one, expected[:, k], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_losses_of_several_classes(loss: str, classes: int) -> None:
    batch, _, weights = made(60, classes, 5)
    bias, term = np.linspace(-1, 1, classes), make_loss(loss)
    scores = score_rows(batch, weights, bias)
    for rule in ("ova", "crammer_singer"):
        total = wrong = 0.0
        for row, label, c in zip(scores, batch.labels.astype(int), batch.weights.astype(float), strict=True):
            others = [row[k] for k in range(classes) if k != label]
            if rule == "ova":
                value = sum(term.value(row[k], 1.0 if k == label else -1.0) for k in range(classes))
            else:
                value = term.value(row[label] - max(others), 1.0)
            total += c * value
            wrong += c * (int(np.argmax(row)) != label)
        found = loss_sums(batch, term, weights, bias, rule)
        assert found == losses_of(scores, batch, term, rule)
        assert found.loss == pytest.approx(total) and found.wrong == wrong
        assert found.weight == pytest.approx(batch.weights.sum(dtype=float))


def test_ties_go_to_the_first_class_and_zero_is_negative() -> None:
    assert codes_of(np.array([[1.0, 1.0], [0.0, 2.0], [-0.0, 0.0]])).tolist() == [0, 1, 0]
    assert codes_of(np.array([0.0, -0.0, 1e-300, -1.0])).tolist() == [0, 0, 1, 0]


def test_two_classes_cost_the_same_either_way() -> None:
    batch, _, weights = made(50, 2, 1)
    vector = np.ascontiguousarray(weights[:, 0])
    for loss in LOSSES:
        one = loss_sums(batch, make_loss(loss), vector, 0.25)
        other = losses_of(score_rows(batch, vector, 0.25), batch, make_loss(loss))
        assert one.loss == pytest.approx(other.loss) and one[1:] == pytest.approx(other[1:])
