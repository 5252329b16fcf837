"""Probabilities from scores: sigmoids and curves against scipy and scikit-learn, and what is odd about data."""

import json
import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss, log_loss
from tiers import examples

from streamsvm import calibration as room
from streamsvm.calibration import Calibration, Sigmoids, corners, fit_calibration, logistic, pool, sigmoid
from streamsvm.score_sample import ScoreSample

KINDS = ["platt", "isotonic"]


def sample_of(scores: Any, codes: Any, weights: Any = None) -> ScoreSample:
    scores = np.asarray(scores, np.float64)
    sample = ScoreSample(scores.shape[1] if scores.ndim == 2 else 1)
    weights = np.ones(len(scores)) if weights is None else np.asarray(weights)
    sample.add(scores, np.asarray(codes).astype(np.float32), weights.astype(np.float32))
    return sample


def fitted(kind: str, scores: Any, codes: Any, weights: Any = None) -> Calibration:
    found = fit_calibration(kind, sample_of(scores, codes, weights), "progressive")
    assert found is not None
    return found


def noisy(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores as float32 holds them, and classes of which their probability is no sigmoid."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=rows).astype(np.float32).astype(np.float64)
    return scores, rng.random(rows) < 0.05 + 0.8 * np.clip(scores + 0.5, 0, 1)


def many(rows: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, classes, rows)
    scores = rng.normal(size=(rows, classes)) - 1.0
    scores[np.arange(rows), codes] += 2.0
    return scores, codes


class Given(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose rows are their scores."""

    def __init__(self, classes: int = 2) -> None:
        self.classes = classes

    def fit(self, rows: Any, labels: Any) -> "Given":
        self.classes_ = np.arange(self.classes)
        return self

    def decision_function(self, rows: Any) -> Any:
        return rows[:, 0] if self.classes == 2 else rows

    def predict(self, rows: Any) -> Any:
        return np.zeros(len(rows), int)


def peer(kind: str, scores: Any, codes: Any, weights: Any, asked: Any) -> Any:
    """What scikit-learn makes of the same scores."""
    classes = scores.shape[1] if scores.ndim == 2 else 2
    model = Given(classes).fit(None, None)
    method = {"platt": "sigmoid", "isotonic": "isotonic"}[kind]
    calibrated = CalibratedClassifierCV(FrozenEstimator(model), method=method)
    with warnings.catch_warnings():  # that the classifier, which is fitted, has no use for weights
        warnings.simplefilter("ignore")
        calibrated.fit(scores.reshape(len(scores), -1), codes, sample_weight=weights)
    found = calibrated.predict_proba(asked.reshape(len(asked), -1))
    return found[:, 1] if classes == 2 else found


# Sigmoids.


def platt_value(ab: Any, scores: Any, positive: Any, weights: Any) -> float:
    """Platt's objective, written down once more."""
    ours, others = weights[positive].sum(), weights[~positive].sum()
    targets = np.where(positive, (ours + 1) / (ours + 2), 1 / (others + 2))
    z = ab[0] * scores + ab[1]
    return float(np.sum(weights * (targets * np.logaddexp(0, -z) + (1 - targets) * np.logaddexp(0, z))))


@examples(30)
@given(st.integers(0, 10**6), st.integers(1, 60), st.sampled_from([1e-3, 1.0, 30.0]), st.sampled_from([0.3, 2.0, 50.0]))
def test_no_other_sigmoid_is_better(seed: int, rows: int, size: float, apart: float) -> None:
    """Also of few rows, of one class, of classes that scores tell apart, and with heavy tails."""
    rng = np.random.default_rng(seed)
    positive = rng.random(rows) < rng.choice([0.0, 0.1, 0.5, 1.0])
    scores = size * (rng.standard_t(1.5, rows) + apart * positive + 5 * rng.normal())
    weights = rng.choice([0.25, 1.0, 3.0], rows)
    a, b = sigmoid(scores, positive, weights)
    assert a >= 0.0 and math.isfinite(a) and math.isfinite(b)
    found = platt_value((a, b), scores, positive, weights)
    spread = np.ptp(scores) or 1.0
    for start in ((0.0, 0.0), (a * spread, b + a * scores.mean())):
        best = minimize(
            lambda ab: platt_value((ab[0] / spread, ab[1] - ab[0] / spread * scores.mean()), scores, positive, weights),
            start,
            method="L-BFGS-B",
            bounds=[(0, None), (None, None)],
        )
        assert found <= best.fun + 1e-9 * max(1.0, best.fun)


@pytest.mark.parametrize("weighted", [False, True])
def test_platt_is_that_of_scikit_learn(weighted: bool) -> None:
    scores, positive = noisy(3000)
    weights = np.random.default_rng(1).choice([0.5, 1.0, 2.0], 3000) if weighted else np.ones(3000)
    weights = weights / weights.mean()
    asked = np.linspace(-4, 4, 50)
    found = fitted("platt", scores, positive, weights).probabilities(asked)
    np.testing.assert_allclose(found, peer("platt", scores, positive, weights, asked), atol=2e-6)


@pytest.mark.parametrize("huge", [1e3, 1e30])
def test_a_sigmoid_is_learned_without_scores_far_out_and_holds_no_further_than_it_was_learned(huge: float) -> None:
    """A row of one class with a huge score says little of others, and new rows like it are not certain."""
    scores, positive = noisy(3000)
    usual, asked = fitted("platt", scores, positive), np.linspace(-3, 3, 20)
    odd = fitted("platt", np.append(scores, huge), np.append(positive, False))
    np.testing.assert_allclose(odd.probabilities(asked), usual.probabilities(asked), atol=0.02)
    for found in (usual, odd):
        assert isinstance(found.curves, Sigmoids)
        far = found.probabilities(np.array([-1e300, float(found.curves.lows[0]), float(found.curves.highs[0]), 1e300]))
        assert far[0] == far[1] < 0.05 and far[2] == far[3] > 0.5
        assert -50.0 < found.curves.lows[0] < -3.0 and 3.0 < found.curves.highs[0] < 50.0


def test_a_stored_sigmoid_without_bounds_holds_everywhere() -> None:
    """As models of version 0.1 have it."""
    arrays = {"calibration.slopes": np.ones(1), "calibration.offsets": np.zeros(1)}
    found = Calibration.stored(GOOD, arrays, 1)
    assert found is not None and found.probabilities(np.array([30.0]))[0] == pytest.approx(1 - np.exp(-30.0), rel=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_many_classes_are_those_of_scikit_learn(kind: str) -> None:
    scores, codes = many(2000, 4)
    scores = scores.astype(np.float32).astype(np.float64)
    asked, _ = many(300, 4, seed=1)
    found = fitted(kind, scores, codes).probabilities(asked)
    theirs = peer(kind, scores, codes, None, asked)
    np.testing.assert_allclose(found, theirs, atol=2e-6 if kind == "platt" else 0.25)
    assert np.mean(np.abs(found - theirs)) < (1e-6 if kind == "platt" else 0.015)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)


def test_scores_that_say_nothing_or_the_opposite_have_no_slope() -> None:
    positive = np.arange(40) % 4 == 0
    for scores in (np.zeros(40), np.full(40, 1e30), np.full(40, -0.1), np.where(positive, -1.0, 1.0)):
        a, b = sigmoid(scores, positive, np.ones(40))
        assert a == 0.0
        assert logistic(np.array([b]))[0] == pytest.approx((10 * 11 / 12 + 30 / 32) / 40, rel=1e-9)
        curve = fitted("isotonic", scores, positive)
        assert curve.probabilities(np.array([-9.0, 9.0])) == pytest.approx([10.5 / 41] * 2)


@pytest.mark.parametrize("size", [1e-30, 1e-10, 1e10, 1e30])
@pytest.mark.parametrize("kind", KINDS)
def test_the_size_of_scores_does_not_matter(kind: str, size: float) -> None:
    scores, positive = noisy(500)
    asked = np.linspace(-3, 3, 20)
    plain = fitted(kind, scores, positive).probabilities(asked)
    scaled = fitted(kind, scores * size, positive)
    np.testing.assert_allclose(scaled.probabilities(asked * size), plain, atol=1e-6)
    for extreme in (1e300, np.inf):
        low, high = scaled.probabilities(np.array([-extreme, extreme]))
        assert 0.0 <= low < plain.min() + 1e-6 and plain.max() - 1e-6 < high <= 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_classes_that_scores_tell_apart_are_likely_but_not_certain(kind: str) -> None:
    scores = np.concatenate([np.linspace(-2, -1, 30), np.linspace(1, 2, 30)])
    found = fitted(kind, scores, scores > 0).probabilities(scores)
    assert (found[:30] < 0.1).all() and (found[30:] > 0.9).all() and 0.0 < found.min() < found.max() < 1.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_only_the_ratios_of_weights_matter(kind: str, factor: float) -> None:
    scores, positive = noisy(400)
    weights, asked = np.random.default_rng(1).choice([0.5, 1.0, 2.0], 400), np.linspace(-3, 3, 20)
    plain = fitted(kind, scores, positive, weights).probabilities(asked)
    np.testing.assert_allclose(fitted(kind, scores, positive, weights * factor).probabilities(asked), plain, atol=1e-5)


# Curves.


@examples(200)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=30))
def test_pooling_is_isotonic_regression(bins: list[tuple[int, int]]) -> None:
    weight = np.array([float(w) for w, _ in bins])
    ours = np.array([float(min(w, p)) for w, p in bins])
    expected = IsotonicRegression().fit_transform(np.arange(len(bins)), ours / weight, sample_weight=weight)
    first, total = np.arange(len(bins)), weight.sum()
    blocks = pool(weight, ours, first, 0.0)
    assert first[0] == 0 and weight[:blocks].sum() == pytest.approx(total)
    sizes = np.diff(np.append(first[:blocks], len(bins)))
    np.testing.assert_allclose(np.repeat(ours[:blocks] / weight[:blocks], sizes), expected, atol=1e-12)
    blocks = pool(weight[:blocks], ours[:blocks], first, 1.0)
    assert (np.diff((ours[:blocks] + 0.5) / (weight[:blocks] + 1.0)) > 0.0).all()
    assert weight[:blocks].sum() == pytest.approx(total)


@given(st.integers(0, 10**6), st.integers(2, 40), st.booleans())
def test_with_a_bin_for_each_score_a_curve_is_isotonic_regression(seed: int, rows: int, tied: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 9, rows).astype(float) if tied else rng.normal(size=rows)
    positive = rng.random(rows) < 0.5
    weights = rng.choice([0.5, 1.0, 2.0], rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "BINS", 10**9)
        patch.setattr(room, "BIN_ROWS", 0)
        there, heights = corners(scores, positive, 1e12 * weights)  # so that half a row more is nothing
    asked = np.linspace(-4, 10, 200)
    expected = IsotonicRegression(out_of_bounds="clip").fit(scores, positive, sample_weight=weights).predict(asked)
    np.testing.assert_allclose(np.interp(asked, there, heights), expected, atol=1e-9)


def test_a_curve_is_no_worse_than_isotonic_regression_on_other_rows() -> None:
    for rows in (1000, 20_000):
        scores, positive = noisy(rows)
        asked, truth = noisy(20_000, seed=1)
        found = fitted("isotonic", scores, positive).probabilities(asked)
        theirs = peer("isotonic", scores, positive, None, asked)
        assert brier_score_loss(truth, found) < brier_score_loss(truth, theirs) * 1.01
        assert log_loss(truth, found) < log_loss(truth, theirs)
    sigmoids = fitted("platt", scores, positive).probabilities(asked)
    assert log_loss(truth, found) < 0.95 * log_loss(truth, sigmoids)


@pytest.mark.parametrize(
    ("rows", "every", "bins"),
    [(60_000, 2, 508), (2000, 2, 62), (2000, 200, 500), (100, 2, 12), (25, 3, 8)],  # of 118, 32, 4, 8 and 3 rows
)
def test_bins_are_neither_too_many_nor_too_small(
    monkeypatch: pytest.MonkeyPatch, rows: int, every: int, bins: int
) -> None:
    made = []
    fill_bins = room.fill_bins

    def watched(scores: Any, positive: Any, weights: Any, least: float, means: Any, weight: Any, ours: Any) -> int:
        count = int(fill_bins(scores, positive, weights, least, means, weight, ours))
        assert (weight[:count] >= least).all() and weight[:count].sum() == pytest.approx(rows)
        assert ours[:count].sum() == positive.sum() and (np.diff(means[:count]) > 0.0).all()
        made.append(count)
        return count

    monkeypatch.setattr(room, "fill_bins", watched)
    corners(np.random.default_rng(0).normal(size=rows), np.arange(rows) % every == 0, np.ones(rows))
    assert made == [bins]


def test_blocks_that_fall_by_half_a_row_are_pooled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """399.5 of 401, and then 2.5 of 3."""
    monkeypatch.setattr(room, "BINS", 10**9)
    monkeypatch.setattr(room, "BIN_ROWS", 1)
    scores, positive = np.repeat([0.0, 1.0, 2.0], [10, 400, 2]), np.ones(412, np.bool_)
    positive[:11] = False
    there, heights = corners(scores, positive, np.ones(412))
    assert there.tolist() == [0.0, 1.0, 2.0]
    assert heights == pytest.approx([0.5 / 11, 401.5 / 403, 401.5 / 403], rel=1e-12)


def test_equal_scores_have_one_probability_and_curves_rise() -> None:
    rng = np.random.default_rng(2)
    for _ in range(30):
        scores, positive = rng.integers(0, 6, 300).astype(float), rng.random(300) < rng.random()
        weights = rng.choice([0.01, 1.0, 100.0], 300)
        there, heights = corners(scores, positive, weights)
        assert (np.diff(there) > 0).all() and (np.diff(heights) >= 0).all()
        assert heights.min() > 0.0 and heights.max() < 1.0 and scores.min() <= there[0] <= there[-1] <= scores.max()


# Many classes, and few rows.


@pytest.mark.parametrize("kind", KINDS)
def test_too_little_to_learn_from(kind: str) -> None:
    scores, positive = noisy(19)
    assert fit_calibration(kind, ScoreSample(), "progressive") is None
    assert fit_calibration(kind, sample_of(scores, np.arange(19) % 2), "progressive") is None
    assert fit_calibration(kind, sample_of(noisy(50)[0], np.ones(50)), "progressive") is None
    assert fit_calibration(kind, sample_of(many(50, 3)[0], np.ones(50)), "progressive") is None
    assert fit_calibration(kind, sample_of(np.arange(20), np.arange(20) % 2), "held-out") is not None
    for wrong in (("sigmoid", "held-out"), (kind, "training")):
        with pytest.raises(ValueError, match="no calibration is called"):
            fit_calibration(wrong[0], sample_of(np.arange(20), np.arange(20) % 2), wrong[1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_that_is_not_in_the_sample_is_unlikely(kind: str) -> None:
    scores, codes = many(500, 4)
    codes[codes == 3] = 0
    for absent in (scores[:, 3], np.full(500, np.nan)):
        scores[:, 3] = absent
        calibration = fitted(kind, scores, codes)
        asked, _ = many(200, 4, seed=1)
        found = calibration.probabilities(asked)
        assert (found[:, 3] < 0.02).all() and (found > 0.0).all()
        np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_from_before_a_class_was_there_are_left_out_for_it(kind: str) -> None:
    scores, codes = many(600, 3)
    scores[:300, 2] = np.nan
    found = fitted(kind, scores, codes).curves
    one = fitted(kind, scores[300:, 2], codes[300:] == 2).curves
    if kind == "platt":
        assert [part[2] for part in found] == [part[0] for part in one]
    else:
        np.testing.assert_array_equal(found[1][found[0][2] :], one[1])
        np.testing.assert_array_equal(found[2][found[0][2] :], one[2])


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_sample_makes_the_same_bits(kind: str) -> None:
    scores, codes = many(400, 3)
    arrays = [fitted(kind, scores, codes).arrays() for _ in range(2)]
    assert all(arrays[0][name].tobytes() == arrays[1][name].tobytes() for name in arrays[0])


# Probabilities that add up.


@given(st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3))
def test_probabilities_add_up_to_one_whatever_the_scores(row: list[float]) -> None:
    scores = np.array([row])
    platt = Calibration(
        "platt", room.Sigmoids.everywhere(np.array([1.0, 0.0, 1e9]), np.array([0.0, -800.0, 5.0])), 20, "held-out"
    )
    for found in (logistic(scores), platt.probabilities(scores)):
        assert found.sum() == pytest.approx(1.0, rel=1e-12) and (found >= 0.0).all()
    if np.abs(row).max() < 500:
        expected = 1 / (1 + np.exp(-scores))
        np.testing.assert_allclose(logistic(scores), expected / expected.sum(), rtol=1e-10, atol=1e-300)


def test_where_every_probability_is_next_to_nothing_the_largest_scores_win() -> None:
    scores = np.array([[-1e5, -1e4, -1e4], [-1e308, -1e308, -1e308], [-np.inf, -np.inf, -5e3], [-np.inf] * 3])
    expected = [[0, 0.5, 0.5], [1 / 3] * 3, [0, 0, 1], [1 / 3] * 3]
    np.testing.assert_allclose(logistic(scores), expected, rtol=1e-12)
    np.testing.assert_allclose(logistic(np.array([[-1000.0, -1001.0]])), [[1 / (1 + np.exp(-1)), 1 / (1 + np.e)]])
    steep = Calibration("platt", room.Sigmoids.everywhere(np.full(3, 1e200), np.zeros(3)), 20, "held-out")
    np.testing.assert_allclose(steep.probabilities(scores), expected, rtol=1e-12)
    assert logistic(np.empty((0, 3))).shape == (0, 3) and logistic(np.empty(0)).shape == (0,)


# As parts of a model.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [1, 3])
def test_what_is_stored_is_what_was_learned(kind: str, columns: int) -> None:
    scores, codes = noisy(300) if columns == 1 else many(300, 3)
    learned = fitted(kind, scores, codes)
    metadata, arrays = json.loads(json.dumps(learned.metadata())), learned.arrays()
    assert metadata == {"kind": kind, "rows": 300, "on": "progressive"}
    assert all(name.startswith("calibration.") for name in arrays)
    assert {array.dtype for array in arrays.values()} <= {np.dtype(np.float64), np.dtype(np.int64)}
    found = Calibration.stored(metadata, {"weights": np.zeros(3, np.float32), **arrays}, columns)
    assert found is not None and found.metadata() == metadata
    assert found.probabilities(scores).tobytes() == learned.probabilities(scores).tobytes()
    for wrong in {1, 2, 4} - {columns}:
        with pytest.raises(ValueError, match=f"{wrong} scores"):
            Calibration.stored(metadata, arrays, wrong)
    for name in arrays:
        with pytest.raises(ValueError, match=f"{name} is missing"):
            Calibration.stored(metadata, {key: array for key, array in arrays.items() if key != name}, columns)
        with pytest.raises(ValueError, match=f"{name} is missing, or not of type"):
            Calibration.stored(metadata, arrays | {name: arrays[name].astype(np.float32)}, columns)
        with pytest.raises(ValueError):
            Calibration.stored(metadata, arrays | {name: arrays[name][None]}, columns)
    assert Calibration.stored(None, arrays, columns) is None


GOOD = {"kind": "platt", "rows": 20, "on": "held-out"}


@pytest.mark.parametrize(
    "metadata",
    [
        "platt", 7, [], {}, GOOD | {"kind": "spline"}, GOOD | {"kind": []}, GOOD | {"kind": None},
        GOOD | {"rows": -1}, GOOD | {"rows": "20"}, GOOD | {"rows": True}, GOOD | {"rows": None},
        GOOD | {"on": "training"}, GOOD | {"on": None}, {"kind": "platt"},
    ],
)  # fmt: skip
def test_metadata_that_makes_no_sense_is_refused(metadata: Any) -> None:
    arrays = {"calibration.slopes": np.ones(1), "calibration.offsets": np.zeros(1)}
    assert Calibration.stored(GOOD, arrays, 1) is not None
    with pytest.raises(ValueError, match="calibration"):
        Calibration.stored(metadata, arrays, 1)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("slopes", [-1e-9, 1.0])]
    + [(name, wrong) for name in ("slopes", "offsets") for wrong in ([np.nan, 1], [np.inf, 1], [1], [], [1, 1, 1])]
    + [(name, wrong) for name in ("lows", "highs") for wrong in ([np.nan, 1], [1], [])]
    + [("lows", [0.0, 7.0]), ("highs", [-7.0, 1.0])],
)
def test_sigmoids_that_make_no_sense_are_refused(name: str, wrong: list[float]) -> None:
    arrays = {
        "calibration.slopes": np.ones(2),
        "calibration.offsets": np.array([-1.0, 0.0]),
        "calibration.lows": np.full(2, -5.0),
        "calibration.highs": np.full(2, 5.0),
    }
    assert Calibration.stored(GOOD, arrays, 2) is not None
    with pytest.raises(ValueError, match="sigmoids"):
        Calibration.stored(GOOD, arrays | {f"calibration.{name}": np.array(wrong, np.float64)}, 2)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("starts", [0, 2, 4]), ("starts", [1, 2, 5]), ("starts", [0, 0, 5]), ("starts", [0, 5, 5]), ("starts", [0, 5]),
        ("starts", [0, 6, 5]), ("starts", [0, -1, 5]), ("starts", []), ("starts", [0, 2**62, 5]),
        ("scores", [0, 0, 0, 1, 2]), ("scores", [0, 1, 3, 2, 4]), ("scores", [0, 1, 0, 1, np.nan]),
        ("scores", [0, 1, 0, 1, np.inf]), ("scores", [0, 1, 0, 1]), ("scores", []),
        ("probabilities", [0.2, 0.1, 0.1, 0.2, 0.3]), ("probabilities", [0.1, 0.2, 0.3, 0.2, 0.4]),
        ("probabilities", [0.0, 0.2, 0.1, 0.2, 0.3]), ("probabilities", [0.1, 0.2, 0.1, 0.2, 1.0]),
        ("probabilities", [np.nan, 0.2, 0.1, 0.2, 0.3]), ("probabilities", [0.1, 0.2, 0.1, 0.2]),
    ],
)  # fmt: skip
def test_curves_that_make_no_sense_are_refused(name: str, wrong: list[float]) -> None:
    metadata = GOOD | {"kind": "isotonic"}
    arrays = {
        "calibration.starts": np.array([0, 2, 5]),
        "calibration.scores": np.array([0.0, 1.0, -1.0, 0.0, 1.0]),
        "calibration.probabilities": np.array([0.1, 0.9, 0.2, 0.2, 0.3]),
    }
    assert Calibration.stored(metadata, arrays, 2) is not None
    array = np.array(wrong, arrays[f"calibration.{name}"].dtype)
    with pytest.raises(ValueError, match="curves"):
        Calibration.stored(metadata, arrays | {f"calibration.{name}": array}, 2)
