"""AUC and average precision: exact ones against scikit-learn, binned ones within their bounds."""

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tiers import examples

from streamsvm.metrics import class_ranking, ranking
from streamsvm.metrics.class_ranking import ClassRankings, Grid, SliceRankings, bins_for, macro
from streamsvm.metrics.ranking import PairRanking, Ranks, ranks_of

sklearn_metrics = pytest.importorskip("sklearn.metrics")

SCORES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, 1e-60, -1e-60, 1e38, -1e38, 1e200, -1e200, 5e-324]),
    st.floats(-3, 3).map(lambda score: round(score, 2)),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(0.999, 1.001),
)
WEIGHTS = st.sampled_from([1.0, 0.0, 0.25, 3.0, 1e-20, 1e20])
ROWS = st.lists(st.tuples(SCORES, st.integers(0, 1), WEIGHTS), min_size=1, max_size=40)
Rows = list[tuple[float, int, float]]


def columns_of(rows: Rows) -> tuple[Any, Any, Any]:
    scores, codes, weights = zip(*rows, strict=True)
    return np.array(scores), np.array(codes, np.float32), np.array(weights, np.float32)


def pair(scores: Any, codes: Any, weights: Any, exact: int = ranking.EXACT_ROWS) -> Ranks:
    with mock.patch.object(ranking, "EXACT_ROWS", exact):
        found = PairRanking()
        found.see(scores, codes, weights)
        return found.result()[0]


def reference(scores: Any, codes: Any, weights: Any) -> tuple[float, float] | None:
    """What scikit-learn says."""
    if set(codes[weights > 0].tolist()) != {0.0, 1.0}:
        return None
    with np.errstate(all="ignore"):
        return (
            sklearn_metrics.roc_auc_score(codes, scores, sample_weight=weights.astype(float)),
            sklearn_metrics.average_precision_score(codes, scores, sample_weight=weights.astype(float)),
        )


def assert_within(found: Ranks, exact: tuple[float, float] | None) -> None:
    if exact is None:
        assert found == Ranks()
        return
    assert found.auc is not None and found.average_precision is not None
    assert 0.0 <= found.auc <= 1.0 and 0.0 <= found.average_precision <= 1.0
    assert found.auc_error is not None and found.average_precision_error is not None
    assert abs(found.auc - exact[0]) <= found.auc_error + 1e-9
    assert abs(found.average_precision - exact[1]) <= found.average_precision_error + 1e-9


@examples(120)
@given(ROWS)
@example([(0.0, 1, 1.0), (-0.0, 0, 1.0)])
@example([(-0.0, 1, 1.0), (0.0, 0, 1.0), (0.0, 1, 3.0)])
@example([(1e-60, 1, 1.0), (-1e-60, 0, 1.0)])
@example([(0.5, 1, 1.0), (0.5, 0, 1.0), (0.5, 1, 1.0)])
@example([(1.0, 1, 0.0), (2.0, 0, 1.0)])
def test_rows_that_fit_are_ranked_as_scikit_learn_does(rows: Rows) -> None:
    columns = columns_of(rows)
    found = pair(*columns)
    assert_within(found, reference(*columns))
    assert found.auc_error in (0.0, None) and found.average_precision_error in (0.0, None)


@examples(200)
@given(ROWS, st.integers(1, 10))
@example([(1e-60, 1, 1.0), (-1e-60, 0, 1.0)], 1)
@example([(1e-60, 0, 1.0), (-1e-60, 1, 1.0)], 1)
@example([(0.0, 1, 1.0), (-0.0, 0, 1.0)], 1)
@example([(1.0, 1, 1.0), (1.0 + 1e-9, 0, 1.0), (1.0 + 2e-9, 1, 1.0)], 1)
@example([(1.0, 0, 1.0), (1.0 + 1e-9, 1, 1.0), (1.0 + 2e-9, 1, 1.0), (1.0 + 3e-9, 0, 1.0)], 1)
def test_bins_keep_within_their_bounds(rows: Rows, exact: int) -> None:
    columns = columns_of(rows)
    assert_within(pair(*columns, exact), reference(*columns))


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1), st.sampled_from([1.0, 0.5, 4.0])), max_size=30))
def test_no_order_inside_bins_is_beyond_the_bounds(rows: list[tuple[int, int, float]]) -> None:
    """Bins of made-up scores; the best and the worst order in each, and one at random."""
    places, codes, weights = (np.array(column) for column in zip((0, 0, 1.0), (0, 1, 1.0), *rows, strict=True))
    counted = np.zeros((2, 5))
    np.add.at(counted, (codes.astype(int), places.astype(int)), weights)
    found = ranks_of(*counted, binned=True)
    inside = np.random.default_rng(len(rows)).permutation(len(places)) / len(places) / 2
    apart = np.arange(len(places)) / 1e6  # no two scores are the same
    for shift in (0.5 * codes, -0.5 * codes, 0.5 * codes + apart, apart - 0.5 * codes, inside):
        assert_within(found, reference(places + shift, codes, weights))


def test_bounds_are_reached() -> None:
    """One bin with a positive and a negative row: either order is possible, and both are half a pair away."""
    found = ranks_of(np.array([1.0]), np.array([1.0]), binned=True)
    assert found[:2] == (0.5, 0.5)
    assert found.average_precision == 0.5 and found.average_precision_error == 0.5
    found = ranks_of(np.array([1.0, 0.0]), np.array([0.0, 1.0]), binned=True)
    assert found == Ranks(1.0, 0.0, 1.0, 0.0)


@pytest.mark.parametrize("positive", [1, 3, 10, 100])
@pytest.mark.parametrize("negative", [1, 5])
def test_the_worst_order_is_within_the_bound_and_close_to_it(positive: int, negative: int) -> None:
    """A negative row on top; then a bin in which all positive rows are below the negative ones."""
    found = ranks_of(np.array([negative, 1.0]), np.array([positive, 0.0]), binned=True)
    precision = np.mean([j / (j + negative + 1) for j in range(1, positive + 1)])
    best = positive / (positive + 1)
    assert found.average_precision == pytest.approx(positive / (positive + negative + 1))
    away = max(found.average_precision - precision, best - found.average_precision)
    assert away - 1e-12 <= found.average_precision_error <= 1.5 * away


def test_rows_of_weight_0_take_no_room() -> None:
    columns = np.arange(20.0), (np.arange(20) % 2).astype(np.float32), (np.arange(20) < 5).astype(np.float32)
    found = pair(*columns, 5)
    assert found.auc_error == 0.0 and found[::2] == pytest.approx(reference(*columns))
    assert pair(columns[0] * 1e-9 + 1.0, *columns[1:], 4).auc_error > 0.0
    assert pair(columns[0] * 1e-9 + 1.0, *columns[1:], 5).auc_error == 0.0


def test_bins_are_fine_where_scores_differ() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, size=20_000).astype(np.float32)
    scores = rng.normal(size=20_000) + codes
    found = pair(scores, codes, np.ones(20_000, np.float32), 100)
    assert_within(found, reference(scores, codes, np.ones(20_000)))
    assert 0.0 < found.auc_error < 1e-4 and 0.0 < found.average_precision_error < 1e-3
    rounded = np.round(scores)  # ties are groups in scikit-learn too
    found = pair(rounded, codes, np.ones(20_000, np.float32), 100)
    assert found[::2] == pytest.approx(reference(rounded, codes, np.ones(20_000)), abs=1e-12)


@pytest.mark.parametrize("score", [0.0, -0.0, 3.25, -1e30])
def test_constant_scores_tell_nothing(score: float) -> None:
    columns = np.full(3, score), np.array([0, 1, 1], np.float32), np.ones(3, np.float32)
    assert pair(*columns) == Ranks(0.5, 0.0, pytest.approx(2 / 3), 0.0)
    assert pair(*columns, 1)[:2] == (0.5, 0.5)


@pytest.mark.parametrize("exact", [1, 100])
def test_perfect_and_reversed_orders(exact: int) -> None:
    ones = np.ones(2, np.float32)
    for scores in ([-1.0, 1.0], [-1e300, 1e300], [1e-30, 1e30], [-2.0, -1.0]):
        assert pair(np.array(scores), np.array([0, 1], np.float32), ones, exact) == Ranks(1.0, 0.0, 1.0, 0.0)
        assert pair(np.array(scores), np.array([1, 0], np.float32), ones, exact).auc == 0.0


# Many classes.


def classes_of(scores: Any, codes: Any, weights: Any, numbers: int) -> list[Ranks]:
    with mock.patch.object(class_ranking, "EXACT_NUMBERS", numbers):
        found = ClassRankings(scores.shape[1])
        found.see(scores, codes, weights)
        return found.result()


@pytest.mark.parametrize("numbers", [1, 12, 60, 1 << 20])
@examples(30)
@given(st.lists(st.tuples(st.lists(SCORES, min_size=3, max_size=3), st.integers(0, 2), WEIGHTS), min_size=1))
def test_each_class_against_all_others(numbers: int, rows: list[tuple[list[float], int, float]]) -> None:
    scores, codes, weights = columns_of(rows)  # type: ignore[arg-type]
    found = classes_of(scores, codes, weights, numbers)
    exact = [reference(scores[:, k].copy(), (codes == k).astype(float), weights) for k in range(3)]
    for one, known in zip(found, exact, strict=True):
        assert_within(one, known)
    told = [known for known in exact if known is not None]
    assert_within(macro(found), tuple(np.mean(told, axis=0)) if told else None)  # type: ignore[arg-type]


@pytest.mark.parametrize("tails", ["normal", "heavy"])
@pytest.mark.parametrize("classes", [4, 40])
def test_bins_made_to_measure_know_the_area_well(classes: int, tails: str) -> None:
    rng = np.random.default_rng(classes)
    rows = 20_000
    codes = rng.integers(0, classes, rows).astype(np.float32)
    scores = 0.3 * (rng.normal(size=(rows, classes)) if tails == "normal" else rng.standard_t(2, (rows, classes))) - 1.0
    scores[np.arange(rows), codes.astype(int)] += 1.0
    weights = rng.choice([0.5, 1.0, 2.0], rows).astype(np.float32)
    found = classes_of(scores, codes, weights, rows)  # 1 / classes of the rows make the bins
    for code, one in enumerate(found):
        assert_within(one, reference(scores[:, code].copy(), (codes == code).astype(float), weights))
    whole = macro(found)
    assert whole.auc_error is not None and 0.0 < whole.auc_error < 1e-3
    assert whole.average_precision_error is not None and 0.0 < whole.average_precision_error < 0.01


@examples(100)
@given(st.lists(SCORES, min_size=1, max_size=30), st.lists(SCORES, min_size=1, max_size=60))
def test_bins_are_in_the_order_of_scores_whatever_they_were_made_for(first: list[float], more: list[float]) -> None:
    bins = 32
    grid = Grid.fitted(np.array(first)[:, None], bins)
    assert np.isfinite(grid.low).all() and grid.first[0, -1] + grid.parts[0, -1] <= bins
    scores = np.sort(np.array([*more, *first, -1.7e308, 1.7e308]))
    counted = np.zeros((len(scores), bins, 2))
    rows = np.arange(len(scores))
    class_ranking.slice_bin_pass(
        scores, rows, np.zeros(len(rows), np.float32), np.ones(len(rows), np.float32), grid, counted
    )
    assert counted.sum() == len(scores)
    assert (np.diff(counted[:, :, 0].argmax(axis=1)) >= 0).all()


def test_bins_take_a_bounded_amount_of_memory() -> None:
    for classes in (3, 10, 100, 512, 1000, 10_000, 100_000):
        bins = bins_for(classes)
        assert bins % 2 == 0 and 16 <= bins <= 4096 and 20 * bins * classes <= 48 << 20
    assert bins_for(512) == 4096 and bins_for(1000) > 2048


def test_scores_that_are_all_the_same_at_first() -> None:
    scores = np.zeros((300, 2))
    scores[100:] = np.random.default_rng(0).normal(size=(200, 2))
    codes = (np.arange(300) % 2).astype(np.float32)
    found = classes_of(scores, codes, np.ones(300, np.float32), 100)
    for code, one in enumerate(found):
        assert_within(one, reference(scores[:, code].copy(), (codes == code).astype(float), np.ones(300)))


# Slices.


@pytest.mark.parametrize("exact", [1, 20, 1000])
def test_slices_are_ranked_by_themselves(exact: int) -> None:
    rng = np.random.default_rng(exact)
    places, codes = rng.integers(0, 5, 400), rng.integers(0, 2, 400).astype(np.float32)
    places[places == 3] = 2
    codes[places == 1] = 1.0
    scores, weights = rng.normal(size=400).round(1) + codes, rng.choice([0.0, 1.0, 2.5], 400).astype(np.float32)
    with mock.patch.object(ranking, "EXACT_ROWS", exact):
        rankings = SliceRankings(9)
        for a in range(0, 400, 37):
            rankings.see(scores[a : a + 37], places[a : a + 37], codes[a : a + 37], weights[a : a + 37])
        found = rankings.result(6)
    assert len(found) == 6 and found[1] == found[3] == found[5] == Ranks()
    for place in (0, 2, 4):
        mine = places == place
        assert_within(found[place], reference(scores[mine], codes[mine], weights[mine]))
        assert found[place].auc_error == 0.0 if exact == 1000 else found[place].auc_error > 0.0
