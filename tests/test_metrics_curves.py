"""Curves and spreads of scores, against scikit-learn and against sums over all rows."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_curve, roc_auc_score, roc_curve

from streamsvm.evaluate import Metrics, measure_scores
from streamsvm.metrics import class_ranking, ranking
from streamsvm.metrics.class_ranking import ClassRankings
from streamsvm.metrics.curves import (
    FIRST_POINTS,
    GRID,
    MOST_POINTS,
    curve_of,
    quantiles,
    shapes_of_classes,
    shapes_of_pair,
    spread_of,
)
from streamsvm.metrics.ranking import PairRanking, rows_by_score
from streamsvm.model import Model


def pair(count: int, seed: int = 0, digits: int = 9) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    labels = (rng.random(count) < 0.3).astype(np.float32)
    scores = np.round(rng.standard_normal(count) + labels, digits)
    return scores, labels, rng.choice([0.5, 1.0, 3.0], count).astype(np.float32)


@given(
    st.lists(st.tuples(st.integers(-5, 5), st.booleans(), st.sampled_from([0.5, 1.0, 2.0])), min_size=2, max_size=60),
    st.integers(4, 40),
)
def test_every_point_is_one_of_scikit_learns(rows: list[tuple[int, bool, float]], most: int) -> None:
    scores = np.array([float(score) for score, _, _ in rows])
    own, weights = np.array([own for _, own, _ in rows]), np.array([c for _, _, c in rows], np.float32)
    curve = curve_of(rows_by_score(scores, own, weights), most)
    if own.all() or not own.any():
        assert curve is None
        return
    assert curve is not None
    false_positives, recall, thresholds = roc_curve(own, scores, sample_weight=weights, drop_intermediate=False)
    known = dict(zip(thresholds.tolist(), zip(false_positives, recall, strict=True), strict=True))
    precision, _, cuts = precision_recall_curve(own, scores, sample_weight=weights)
    precise = dict(zip(cuts.tolist(), precision.tolist(), strict=False))
    assert (curve.false_positives[0], curve.recall[0]) == (0.0, 0.0)
    for score, x, y, share in zip(*(column[1:].tolist() for column in curve), strict=True):
        assert (x, y) == pytest.approx(known[score]) and share == pytest.approx(precise[score])
    assert curve.recall[-1] == curve.false_positives[-1] == 1.0


@pytest.mark.parametrize("binned", [False, True])
def test_the_curve_is_short_and_close(monkeypatch: pytest.MonkeyPatch, binned: bool) -> None:
    if binned:
        monkeypatch.setattr(ranking, "EXACT_ROWS", 1000)
    scores, labels, weights = pair(50_000)
    seen = PairRanking()
    for start in range(0, 50_000, 700):
        seen.see(*(column[start : start + 700] for column in (scores, labels, weights)))
    assert (seen.rows is None) == binned
    curve = curve_of(seen.by_score())
    assert curve is not None and len(curve.recall) <= MOST_POINTS + FIRST_POINTS + 2
    assert (np.diff(curve.recall) >= 0.0).all() and (np.diff(curve.false_positives) >= 0.0).all()
    assert (np.diff(curve.scores) <= 0.0).all()
    steps = np.maximum(np.diff(curve.recall), np.diff(curve.false_positives))
    assert steps.max() <= 2.0 * 2.0 / MOST_POINTS
    exact = roc_auc_score(labels, scores, sample_weight=weights)
    assert np.trapezoid(curve.recall, curve.false_positives) == pytest.approx(exact, abs=2e-4)
    place = len(curve.scores) // 2
    taken = scores >= curve.scores[place]
    assert curve.recall[place] == pytest.approx(
        weights[taken & (labels > 0)].sum() / weights[labels > 0].sum(), abs=1e-3
    )


def test_bins_know_their_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "EXACT_ROWS", 8)
    scores = np.concatenate([-np.geomspace(1e3, 1e-3, 50), [0.0], np.geomspace(1e-3, 1e3, 50)])
    seen = PairRanking()
    seen.see(scores, (scores > 0).astype(np.float32), np.ones(101, np.float32))
    found = seen.by_score()
    assert np.allclose(found.scores, scores, rtol=1e-2, atol=1e-30) and len(found.scores) == 101
    assert found.positive.sum() == 50 and found.negative.sum() == 51

    monkeypatch.setattr(class_ranking, "EXACT_NUMBERS", 3 * 200)
    rng = np.random.default_rng(1)
    many, codes = rng.standard_normal((5000, 3)), rng.integers(0, 3, 5000).astype(np.float32)
    classes = ClassRankings(3)
    classes.see(many, codes, np.ones(5000, np.float32))
    for code in range(3):
        found = classes.by_score(code)
        assert found.positive.sum() == (codes == code).sum() and found.negative.sum() == (codes != code).sum()
        for share in (0.05, 0.5, 0.95):
            exact = np.quantile(many[:, code], share)
            near = quantiles(found.scores, found.positive + found.negative, (share,))[0]
            assert near == pytest.approx(exact, abs=0.02)


def test_spread_and_quantiles() -> None:
    scores, labels, weights = pair(4000, digits=2)
    rows = rows_by_score(scores, labels > 0.5, weights)
    spread = spread_of(rows)
    assert spread is not None
    assert spread.negative.sum() == pytest.approx(1.0) and spread.positive.sum() == pytest.approx(1.0)
    assert len(spread.edges) == len(spread.negative) + 1 and (np.diff(spread.edges) > 0.0).all()
    middles = 0.5 * (spread.edges[1:] + spread.edges[:-1])
    mean = np.average(scores[labels > 0.5], weights=weights[labels > 0.5])
    assert (middles * spread.positive).sum() == pytest.approx(mean, abs=0.05)
    same = spread_of(rows_by_score(np.zeros(4), np.array([True, False] * 2), np.ones(4, np.float32)))
    assert same is not None and same.edges[0] < 0.0 < same.edges[-1]
    assert spread_of(rows_by_score(np.arange(3.0), np.ones(3, bool), np.ones(3, np.float32))) is None
    assert quantiles(np.arange(5.0), np.array([1.0, 0.0, 0.0, 0.0, 3.0]), (0.2, 0.25, 0.3, 1.0)).tolist() == [
        0,
        0,
        4,
        4,
    ]


def test_few_classes_have_a_curve_each_and_many_a_mean() -> None:
    rng = np.random.default_rng(4)
    for classes in (4, 15):
        codes = rng.integers(0, classes - 1, 3000)  # the last class has no row
        scores = rng.standard_normal((3000, classes)) + 2.0 * np.eye(classes)[codes]
        seen = ClassRankings(classes)
        seen.see(scores, codes.astype(np.float32), np.ones(3000, np.float32))
        shapes = shapes_of_classes(seen.by_score, np.bincount(codes, minlength=classes).astype(float))
        assert [one.code for one in shapes.ranges] == list(range(classes - 1))
        assert all(one.own[2] > one.others[2] for one in shapes.ranges)
        if classes == 4:
            assert list(shapes.curves) == [0, 1, 2] and shapes.mean is None
            continue
        assert not shapes.curves and shapes.mean is not None and shapes.mean.classes == 14
        areas = [roc_auc_score(codes == code, scores[:, code]) for code in range(14)]
        assert np.trapezoid(shapes.mean.recall[0], GRID) == pytest.approx(np.mean(areas), abs=5e-3)
        low, high = shapes.mean.recall[1:]
        assert (low <= high).all() and low.mean() < shapes.mean.recall[0].mean() < high.mean()


def test_scores_that_were_made_before_are_measured_as_a_stream_is() -> None:
    scores, labels, weights = pair(500)
    model = Model(np.zeros(1, np.float32), 0.0, [-1, 1], "logistic")
    whole = Metrics(model)
    whole.update(scores, labels, weights)
    found = measure_scores(model, scores, labels, weights)
    assert found is not None and found.figures == whole.result()
    assert (
        found.metrics.shapes().curves[1].recall.tolist()
        == shapes_of_pair(rows_by_score(scores, labels > 0.5, weights)).curves[1].recall.tolist()
    )
    many = Model(np.zeros((1, 3), np.float32), np.zeros(3), [0, 1, 2], "hinge")
    rows = np.random.default_rng(0).standard_normal((6, 3))
    rows[:2, 2] = np.nan  # a class that came later
    found = measure_scores(many, rows, np.arange(6, dtype=np.float32) % 3, np.ones(6, np.float32))
    assert found is not None and found.figures["examples"] == 4
    assert measure_scores(many, rows[:2], np.zeros(2, np.float32), np.ones(2, np.float32)) is None
