"""Thresholds against every cut there is, and against no thresholds at all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score
from tiers import examples

from streamsvm import thresholds as room
from streamsvm.batch import Float64s
from streamsvm.score_sample import ScoreSample
from streamsvm.scoring import codes_of
from streamsvm.thresholds import choose_thresholds

BY = st.sampled_from(["f1", "cost"])


def sample_of(scores: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> ScoreSample:
    sample = ScoreSample(scores.shape[1] if scores.ndim == 2 else 1)
    sample.add(scores, codes.astype(np.float32), weights.astype(np.float32))
    return sample


def value(sample: ScoreSample, thetas: Float64s, by: str, costs: Float64s) -> float:
    """What is to be large, counted class by class from the decisions of a model."""
    scores = np.nan_to_num(sample.scores().astype(np.float64), nan=-np.inf)
    given_to, codes, weights = codes_of(scores - thetas), sample.codes().astype(int), sample.weights()
    if by == "cost":
        return -float(np.sum(weights * costs[codes] * (given_to != codes), dtype=np.float64))
    figures = []
    for k in sorted(set(codes.tolist()) if sample.many else {1}):
        right = np.sum(weights[(given_to == k) & (codes == k)], dtype=np.float64)
        both = np.sum(weights[given_to == k], dtype=np.float64) + np.sum(weights[codes == k], dtype=np.float64)
        figures.append(2 * right / both if both else 0.0)
    return float(np.mean(figures))


def cuts(margins: np.ndarray) -> list[float]:
    """A number in each gap between different margins, and beyond both ends."""
    seen = np.unique(margins[np.isfinite(margins)])
    if not len(seen):
        return [0.0]
    return [seen[0] - 1.0, *((seen[1:] + seen[:-1]) / 2).tolist(), seen[-1] + 1.0]


@st.composite
def samples(draw: st.DrawFn, classes: int | None = None) -> ScoreSample:
    """A few rows of small whole scores, so that there are ties, with some weights; some scores may not be there."""
    classes = classes or draw(st.integers(2, 4))
    rows, rng = draw(st.integers(1, 14)), np.random.default_rng(draw(st.integers(0, 10**6)))
    most = draw(st.integers(1, 6))
    scores = rng.integers(-most, most + 1, (rows, classes)).astype(np.float64)
    if draw(st.booleans()):
        scores += rng.normal(size=scores.shape)
    if draw(st.booleans()):
        scores[rng.random(scores.shape) < 0.2] = np.nan
        scores[rng.random(rows) < 0.3] = np.nan
    codes = rng.integers(0, draw(st.integers(1, classes)), rows)
    weights = rng.choice([0.5, 1.0, 2.0], rows) if draw(st.booleans()) else np.ones(rows)
    return sample_of(scores, codes, weights)


@examples(300)
@given(samples(2), BY, st.tuples(st.floats(0, 9), st.floats(0, 9)))
def test_two_classes_are_cut_where_no_other_cut_is_better(
    many: ScoreSample, by: str, prices: tuple[float, float]
) -> None:
    sample, costs = sample_of(many.scores()[:, 1].astype(float), many.codes(), many.weights()), np.array(prices)
    thetas = choose_thresholds(sample, by, costs)
    assert thetas.shape == (1,) and thetas.dtype == np.float64 and np.isfinite(thetas).all()
    found = value(sample, thetas, by, costs)
    best = max(value(sample, np.array([theta]), by, costs) for theta in [0.0, *cuts(sample.scores())])
    assert found == pytest.approx(best, abs=1e-6)
    if thetas[0] != 0.0:
        assert found > value(sample, np.zeros(1), by, costs) and thetas[0] not in sample.scores()


@examples(300)
@given(samples(), BY, st.lists(st.floats(0, 9), min_size=4, max_size=4))
def test_no_threshold_alone_can_be_moved_for_the_better(sample: ScoreSample, by: str, prices: list[float]) -> None:
    costs = np.array(prices)[: sample.columns]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "ROUNDS", 100)
        thetas = choose_thresholds(sample, by, costs)
    assert thetas.shape == (sample.columns,) and np.isfinite(thetas).all()
    found = value(sample, thetas, by, costs)
    scores = np.nan_to_num(sample.scores().astype(np.float64), nan=-np.inf)
    for k in range(sample.columns):
        others = np.delete(scores - thetas, k, axis=1).max(axis=1)
        margins = scores[np.isfinite(others), k] - others[np.isfinite(others)]
        for theta in cuts(margins):
            trial = thetas.copy()
            trial[k] = theta
            assert value(sample, trial, by, costs) <= found + 1e-6


@given(samples(), BY, st.lists(st.floats(0, 9), min_size=4, max_size=4))
def test_never_worse_than_no_thresholds(sample: ScoreSample, by: str, prices: list[float]) -> None:
    costs = np.array(prices)[: sample.columns]
    thetas = choose_thresholds(sample, by, costs)
    gain = value(sample, thetas, by, costs) - value(sample, np.zeros(sample.columns), by, costs)
    assert gain >= 0.0 and (gain > 0.0 or not thetas.any())


@given(st.integers(0, 10**6), BY)
def test_one_sweep_is_the_best_of_all_cuts(seed: int, by: str) -> None:
    """The first class in its first turn, the others being as they are."""
    rng = np.random.default_rng(seed)
    sample = sample_of(rng.integers(-3, 4, (12, 3)).astype(float), rng.integers(0, 3, 12), rng.choice([0.5, 1, 2], 12))
    costs = rng.random(3)
    goal, scores = room._goal(sample, by, costs), sample.scores()
    rivals = 1 + scores[:, 1:].argmax(axis=1)
    others = scores[:, 1:].max(axis=1).astype(np.float64)
    own = scores[:, 0].astype(np.float64)
    theta = room._best_threshold(0, 0.0, room.Duel(own, others, rivals, own - others), goal)
    tried = [value(sample, np.array([cut, 0.0, 0.0]), by, costs) for cut in [0.0, *cuts(own - others)]]
    assert value(sample, np.array([theta, 0.0, 0.0]), by, costs) == pytest.approx(max(tried), abs=1e-9)


def noisy(rows: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores with a bias against some classes, of which the first is common and the last is rare."""
    rng = np.random.default_rng(seed)
    codes = np.floor(classes * rng.random(rows) ** 2).astype(int)
    scores = rng.normal(size=(rows, classes)) + np.linspace(1, -1, classes)
    scores[np.arange(rows), codes] += 1.5
    return scores, codes


def test_macro_f1_as_scikit_learn_counts_it_and_on_other_rows_too() -> None:
    scores, codes = noisy(4000, 6)
    thetas = choose_thresholds(sample_of(scores, codes, np.ones(4000)), "f1")
    for seed, more in ((0, 0.06), (1, 0.05)):
        scores, codes = noisy(4000, 6, seed)
        before = f1_score(codes, scores.argmax(axis=1), average="macro")
        assert f1_score(codes, (scores - thetas).argmax(axis=1), average="macro") > before + more


def test_what_costs_more_is_missed_less() -> None:
    scores, codes = noisy(3000, 4)
    sample = sample_of(scores, codes, np.ones(3000))
    missed = []
    for cost in (1.0, 10.0, 1000.0):
        thetas = choose_thresholds(sample, "cost", np.array([1.0, 1.0, 1.0, cost]))
        missed.append(np.mean((scores - thetas).argmax(axis=1)[codes == 3] != 3))
    assert missed[0] > missed[1] > missed[2] and missed[2] < 0.01


def test_a_weight_is_a_number_of_rows() -> None:
    scores, codes = noisy(500, 3)
    times = np.random.default_rng(1).integers(1, 4, 500)
    repeated = sample_of(np.repeat(scores, times, axis=0), np.repeat(codes, times), np.ones(times.sum()))
    for by in ("f1", "cost"):
        weighted = choose_thresholds(sample_of(scores, codes, times), by, np.ones(3))
        np.testing.assert_allclose(weighted, choose_thresholds(repeated, by, np.ones(3)))


@pytest.mark.parametrize("by", ["f1", "cost"])
def test_nothing_to_choose_from(by: str) -> None:
    for sample in (ScoreSample(), ScoreSample(3), ScoreSample(many=True)):
        costs = np.ones(sample.columns if sample.many else 2)
        assert choose_thresholds(sample, by, costs).tolist() == [0.0] * sample.columns
    absent = sample_of(np.array([1.0, -1.0]), np.zeros(2), np.ones(2))
    assert choose_thresholds(absent, "f1").tolist() == [0.0]


@pytest.mark.parametrize("size", [1e-40, 1.0, 1e30, 3e38])
def test_ends_are_just_beyond_and_finite(size: float) -> None:
    scores, codes = np.array([-0.5, -0.9, 1.0, 0.2]) * size, np.array([1, 1, 0, 0])
    all_first = choose_thresholds(sample_of(scores, codes, np.ones(4)), "cost", np.array([1.0, 0.0]))
    assert np.float32(size) < all_first[0] < 1.01 * size
    all_second = choose_thresholds(sample_of(scores, codes, np.ones(4)), "cost", np.array([0.0, 1.0]))
    assert -0.91 * size < all_second[0] < np.float32(-0.9 * size)
    same = choose_thresholds(sample_of(np.full(4, size), codes, np.ones(4)), "cost", np.array([1.0, 0.0]))
    assert np.float32(size) < same[0] < np.inf


def test_costs_are_needed_for_all_classes() -> None:
    scores, codes = noisy(50, 3)
    sample = sample_of(scores, codes, np.ones(50))
    for by, costs in (("cost", None), ("cost", np.ones(2)), ("accuracy", np.ones(3))):
        with pytest.raises(ValueError, match="by cost with costs of 3 classes"):
            choose_thresholds(sample, by, costs)
