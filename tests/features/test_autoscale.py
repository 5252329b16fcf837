"""Scaling by itself: against a slow twin, and what it promises of cuts, outliers, constants, weights and models."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from held_out import held_out
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from streamsvm import StreamSVC, load_settings, train
from streamsvm.batch import Batch
from streamsvm.features.autoscale import (
    BAND,
    CLIP,
    CLIP_FROM,
    DENSE,
    AutoScaling,
    Moments,
    merged,
    moments_of,
)
from streamsvm.features.held_back import HeldBack
from streamsvm.model import Model, load_model
from streamsvm.scoring import score_rows

NONE = np.empty(0, np.int64)
Matrix = np.ndarray[Any, Any]
EPOCH = 1.6e9


def batch_of(matrix: Matrix, weights: Any = None, labels: Any = None) -> Batch:
    """The numbers that are not zero; nan stands for a number that is absent, and is not written."""
    there = ~np.isnan(matrix) & (matrix != 0.0)
    rows = len(matrix)
    return Batch(
        np.append(0, np.cumsum(there.sum(axis=1))),
        np.nonzero(there)[1].astype(np.uint32),
        matrix[there].astype(np.float32),
        np.zeros(rows, np.float32) if labels is None else np.asarray(labels, np.float32),
        np.ones(rows, np.float32) if weights is None else np.asarray(weights, np.float32),
    )


def dense_of(batch: Batch, width: int) -> Matrix:
    matrix = np.zeros((batch.rows, width))
    rows = np.repeat(np.arange(batch.rows), np.diff(batch.indptr))
    matrix[rows, batch.indices[batch.indptr[0] : batch.indptr[-1]]] = batch.values[batch.indptr[0] : batch.indptr[-1]]
    return matrix


def decided(rows: Batch, *, centred: bool = True, limit: int | None = None, indicators: Any = None) -> AutoScaling:
    scaling = AutoScaling(limit=limit, centred=centred, indicators=indicators)
    scaling.decide(rows)
    return scaling


def numbers(rows: int, seed: int = 0, centred_at: float = 0.0) -> Matrix:
    """Columns of sizes from a thousandth to a million, all of them dense."""
    rng = np.random.default_rng(seed)
    return centred_at + rng.normal(size=(rows, 5)) * [1e-3, 1.0, 30.0, 1e3, 1e6] + [0.0, 2.0, -5.0, 0.0, 1e6]


# What is decided.


@pytest.mark.parametrize("centred", [True, False])
def test_dense_features_are_standardised(centred: bool) -> None:
    matrix = numbers(500)
    scaling = decided(batch_of(matrix), centred=centred)
    scaled = dense_of(scaling.scaled(batch_of(matrix)), 5)
    written = matrix.astype(np.float32).astype(float)
    centre = written.mean(axis=0) if centred else np.zeros(5)
    deviation = np.sqrt(np.square(written - centre).mean(axis=0))
    assert np.allclose(scaled, (written - centre) / deviation, rtol=1e-5, atol=1e-6)
    found = scaling.centres(5)
    assert (found is None) if not centred else np.allclose(found, centre, rtol=1e-9, atol=1e-9)
    assert np.allclose(scaling.factors(5), 1.0 / deviation, rtol=1e-6)
    assert ("standardised" if centred else "divided by their size") in scaling.summary


def test_a_feature_is_dense_if_nearly_all_rows_have_it() -> None:
    rng = np.random.default_rng(1)
    matrix = rng.uniform(1.0, 2.0, size=(1000, 3))
    matrix[: int((1.0 - DENSE) * 1000) - 5, 1] = 0.0
    matrix[: int((1.0 - DENSE) * 1000) + 5, 2] = 0.0
    factors = decided(batch_of(matrix)).factors(3)
    assert (factors[:2] != 1.0).all() and factors[2] == 1.0
    scaled = dense_of(decided(batch_of(matrix)).scaled(batch_of(matrix)), 3)
    assert np.allclose(scaled[:, :2].mean(axis=0), 0.0, atol=1e-5)  # absent numbers are zeros, and counted as such
    assert np.allclose(scaled[:, :2].std(axis=0), 1.0, atol=1e-4)
    assert np.array_equal(scaled[:, 2], matrix[:, 2].astype(np.float32))


SPARSE = {
    "words": lambda rng, there: there * rng.integers(1, 4, size=there.shape),
    "categories": lambda rng, there: there * 1.0,
    "rows of length one": lambda rng, there: there / np.maximum(np.sqrt(there.sum(axis=1, keepdims=True)), 1.0),
}


@pytest.mark.parametrize("kind", list(SPARSE))
def test_sparse_features_of_one_size_are_left_alone(kind: str) -> None:
    rng = np.random.default_rng(2)
    there = (rng.uniform(size=(600, 80)) < 0.1).astype(float)
    rows = batch_of(SPARSE[kind](rng, there))
    scaling = decided(rows)
    assert scaling.idle and scaling.summary == "" and scaling.apply(rows, rows.weights) is rows
    assert scaling.centres(80) is None and (scaling.factors(80) == 1.0).all()


def test_a_sparse_feature_of_another_size_is_brought_to_the_usual_one() -> None:
    rng = np.random.default_rng(3)
    matrix = (rng.uniform(size=(2000, 50)) < 0.2) * rng.uniform(0.5, 1.5, size=(2000, 50))
    matrix[:, 7] *= 1e4
    matrix[:, 9] *= 1e-4
    matrix[:, 11] *= 0.8 * np.sqrt(BAND)  # near enough
    factors = decided(batch_of(matrix)).factors(50)
    usual = np.median([np.sqrt(np.square(column[column > 0]).mean()) for column in matrix.T])
    for j in (7, 9):
        column = matrix[matrix[:, j] > 0, j]
        assert factors[j] * np.sqrt(np.square(column).mean()) == pytest.approx(usual, rel=0.05)
    others = np.delete(factors, [7, 9])
    assert (others == 1.0).all()


def test_hashed_features_have_no_size_of_their_own() -> None:
    rng = np.random.default_rng(4)
    matrix = (rng.uniform(size=(2000, 50)) < 0.2) * rng.uniform(0.5, 1.5, size=(2000, 50))
    matrix[:, 30] = 1e4 * rng.uniform(1.0, 2.0, 2000)
    assert decided(batch_of(matrix)).factors(50)[30] != 1.0
    assert decided(batch_of(matrix), limit=20).factors(50)[30] == decided(batch_of(matrix), limit=20).factors(50)[31]


def test_constant_features_become_zero() -> None:
    matrix = np.column_stack([np.full(300, 1.0), np.full(300, 1000.0), np.random.default_rng(5).normal(size=300)])
    scaled = dense_of(decided(batch_of(matrix)).scaled(batch_of(matrix)), 3)
    assert not scaled[:, :2].any() and scaled[:, 2].std() == pytest.approx(1.0, rel=1e-5)


def test_without_rows_or_weights_nothing_is_scaled() -> None:
    assert decided(batch_of(np.zeros((0, 3)))).idle
    assert decided(batch_of(numbers(20), np.zeros(20))).idle


# One huge value.


@pytest.mark.parametrize(("huge", "rows"), [(1e4, 100), (-1e4, 100), (1e20, 3000), (3e38, 3000), (-3e38, 3000)])
def test_a_row_with_huge_values_does_not_make_all_others_small(huge: float, rows: int) -> None:
    matrix = np.random.default_rng(6).normal(size=(rows, 4)) + 3.0
    spoiled = matrix.copy()
    spoiled[rows // 2] = huge
    factors, usual = decided(batch_of(spoiled)).factors(4), decided(batch_of(matrix)).factors(4)
    assert (factors > (0.5 if rows == 100 else 0.95) * usual).all() and (factors <= 1.1 * usual).all()


def test_a_huge_value_that_comes_later_counts_as_eight_deviations() -> None:
    matrix = np.random.default_rng(7).normal(size=(1000, 1))
    scaling = decided(batch_of(matrix))
    before = scaling.factors(1)[0]
    late = batch_of(np.array([[1e30]]))
    scaling.apply(late, late.weights)
    deviation = 1.0 / before
    mean = (CLIP * deviation + 1000 * matrix.mean()) / 1001
    assert scaling.centres(1)[0] == pytest.approx(mean, rel=0.01)
    assert scaling.factors(1)[0] == pytest.approx(before / np.sqrt(1.0 + CLIP**2 / 1001), rel=0.01)


# Going on with the stream.


class Twin:
    """Means and squared distances of dense features, row by row; absent numbers are zeros, nan is not counted."""

    def __init__(self, scaling: AutoScaling, width: int) -> None:
        self.n, self.mean, self.distances = np.zeros((3, width))
        state = scaling.state()
        self.n[state["features"]] = state["numbers"][:, 0]
        self.mean[state["features"]] = state["numbers"][:, 1]
        self.distances[state["features"]] = state["numbers"][:, 2]

    def learn(self, row: Matrix, weight: float) -> Matrix:
        """Count a row, then scale it."""
        for j, x in enumerate(row.tolist()):
            if weight and not np.isnan(x):
                far = x - self.mean[j]
                if self.n[j] >= CLIP_FROM and self.distances[j] > 0.0:
                    most = CLIP * np.sqrt(self.distances[j] / self.n[j])
                    far = min(max(far, -most), most)
                after = self.n[j] + weight
                self.mean[j] += far * weight / after
                self.distances[j] += self.n[j] * far * far * weight / after
                self.n[j] = after
        scaled: Matrix = np.where(np.isnan(row), 0.0, (row - self.mean) / np.sqrt(self.distances / self.n))
        return scaled


def test_rows_after_the_first_are_counted_and_scaled_as_the_twin_says() -> None:
    first, later = numbers(200, seed=8), numbers(300, seed=9)
    later[::7, 1] = 0.0
    later[17, 2] = 1e9
    later[40:, 3] *= 50.0
    weights = np.random.default_rng(10).choice([0.0, 0.5, 1.0, 7.0], size=300).astype(np.float32)
    scaling = decided(batch_of(first))
    twin = Twin(scaling, 5)
    written = later.astype(np.float32).astype(float)
    expected = np.array([twin.learn(row, float(c)) for row, c in zip(written, weights, strict=True)])
    found = dense_of(scaling.apply(batch_of(later), weights), 5)
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert np.allclose(scaling.centres(5), twin.mean, rtol=1e-9)
    scaling.freeze()
    before = scaling.factors(5)
    scaling.apply(batch_of(later), weights)
    assert np.array_equal(scaling.factors(5), before)


def test_a_column_that_only_grows_stays_near_one() -> None:
    rows = 60_000
    counter = np.arange(rows, dtype=float)[:, None]
    scaling = decided(batch_of(counter[:1000]))
    scaled = np.concatenate(
        [
            dense_of(scaling.apply(part, part.weights), 1)
            for part in (batch_of(counter[a : a + 500]) for a in range(1000, rows, 500))
        ]
    )
    assert 0.5 < np.abs(scaled[-1000:]).mean() < 4.0 and np.abs(scaled).max() < 20.0


def parts(rows: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, rows), max_size=6)


@examples(30)
@given(parts(250))
def test_cuts_into_batches_change_nothing(places: list[int]) -> None:
    whole, cut = decided(batch_of(numbers(60))), decided(batch_of(numbers(60)))
    later = batch_of(numbers(250, seed=11), np.random.default_rng(12).uniform(0.0, 2.0, 250))
    expected = dense_of(whole.apply(later, later.weights), 5)
    edges = sorted({0, *places, 250})
    found = [
        dense_of(cut.apply(part, part.weights), 5)
        for part in (later.slice(a, b) for a, b in zip(edges, edges[1:], strict=False))
    ]
    assert np.array_equal(np.concatenate(found), expected)
    for key, value in whole.state().items():
        assert np.array_equal(value, cut.state()[key]), key


def test_a_state_goes_on_to_the_last_bit() -> None:
    later = batch_of(numbers(100, seed=13))
    straight = decided(batch_of(numbers(60)))
    resumed = AutoScaling(limit=None, centred=True)
    resumed.restore(straight.state())
    copied = straight.copy()
    for scaling in (straight, resumed, copied):
        scaling.apply(later, later.weights)
    for other in (resumed, copied):
        assert all(np.array_equal(value, other.state()[key]) for key, value in straight.state().items())


# Where a table says that a number is missing.

INDICATORS = np.array([2, 3], np.int64)  # of the numbers 0 and 1


def with_gaps(rows: int) -> Matrix:
    """Numbers far from zero; a third of the second column is missing, which feature 3 says."""
    rng = np.random.default_rng(14)
    matrix = np.column_stack([rng.normal(5.0, 1.0, rows), rng.normal(50.0, 2.0, rows), np.zeros(rows), np.zeros(rows)])
    gaps = rng.uniform(size=rows) < 0.33
    matrix[gaps, 1], matrix[gaps, 3] = np.nan, 1.0
    return matrix


def test_missing_numbers_are_at_the_mean_and_not_counted() -> None:
    matrix = with_gaps(900)
    scaling = decided(batch_of(matrix), indicators=INDICATORS)
    there = ~np.isnan(matrix[:, 1])
    assert scaling.centres(4)[1] == pytest.approx(matrix[there, 1].mean(), rel=1e-5)
    assert 1.0 / scaling.factors(4)[1] == pytest.approx(matrix[there, 1].std(), rel=1e-4)
    scaled = dense_of(scaling.scaled(batch_of(matrix)), 4)
    assert not scaled[~there, 1].any() and scaled[there, 1].std() == pytest.approx(1.0, rel=1e-4)


# Weights.


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 1024.0, 1e6])
def test_the_unit_of_weights_changes_nothing_but_rounding(unit: float) -> None:
    matrix, later = numbers(200), numbers(300, seed=15)
    weights = np.random.default_rng(16).uniform(0.5, 2.0, size=500)
    one, other = decided(batch_of(matrix, weights[:200])), decided(batch_of(matrix, weights[:200] * unit))
    found = dense_of(one.apply(batch_of(later), weights[200:].astype(np.float32)), 5)
    assert np.allclose(
        found,
        dense_of(other.apply(batch_of(later), (weights[200:] * unit).astype(np.float32)), 5),
        rtol=2e-3,
        atol=1e-3,
    )
    assert np.allclose(one.factors(5), other.factors(5), rtol=1e-3)


# Weights of features as written.


FOLDED = [numbers(400), numbers(400, centred_at=EPOCH), with_gaps(400)]


@pytest.mark.parametrize("matrix", FOLDED, ids=["numbers", "times", "gaps"])
@pytest.mark.parametrize("classes", [0, 3])
def test_folded_weights_give_raw_rows_the_scores_of_scaled_ones(matrix: Matrix, classes: int) -> None:
    """Around 1.6e9 too, where a float32 has steps of 128: what is rounded is multiplied by x - mean."""
    width = matrix.shape[1]
    indicators = INDICATORS if width == 4 else None
    rows = batch_of(matrix)
    scaling = decided(rows, indicators=indicators)
    rng = np.random.default_rng(17)
    weights = rng.normal(size=(width, classes) if classes else width).astype(np.float32)
    bias = rng.normal(size=classes) if classes else 0.3
    expected = score_rows(scaling.scaled(rows), weights, bias)
    folded, moved = scaling.fold(weights, bias)
    assert np.abs(score_rows(rows, folded, moved) - expected).max() < 2e-5 * np.abs(expected).max()
    again, back = scaling.unfold(folded, moved)
    constant = scaling.factors(width) == 0.0
    assert np.allclose(again[~constant], weights[~constant], rtol=1e-5) and np.allclose(back, bias, atol=1e-4)
    stored = AutoScaling.of_model(scaling.factors(width), scaling.centres(width), indicators, scaling.usual)
    assert stored.frozen
    found, known = dense_of(stored.scaled(rows), width), dense_of(scaling.scaled(rows), width)
    assert np.allclose(found, known, rtol=1e-6)  # factors are stored in single precision


# What shards count.


def test_moments_of_parts_come_together() -> None:
    rng = np.random.default_rng(18)
    matrix = rng.normal(3.0, 2.0, size=(400, 6))
    matrix[rng.uniform(size=matrix.shape) < 0.3] = 0.0
    matrix[:250, 5] = 0.0  # only some parts have it
    weights = rng.uniform(0.5, 2.0, size=400)
    whole = moments_of(batch_of(matrix, weights), NONE)
    edges = (0, 100, 250, 250, 400)
    some = [moments_of(batch_of(matrix[a:b], weights[a:b]), NONE) for a, b in zip(edges, edges[1:], strict=False)]
    together = merged(some)
    for name in Moments._fields:
        assert np.allclose(getattr(together, name), getattr(whole, name), rtol=1e-9), name


# Rows that wait.


def test_rows_are_held_back_until_there_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.features.held_back.ROWS", 50)
    rows = batch_of(numbers(90), np.where(np.arange(90) % 3 == 0, 0.0, 1.0))  # those without weight do not count
    ends = set()
    for cut in (7, 30, 89):
        held, taken, rest = HeldBack(), 0, None
        for a in range(0, 90, cut):
            if held.enough:
                break
            part = rows.slice(a, min(a + cut, 90))
            rest = held.take(part, None, None)
            taken = min(a + cut, 90) - (rest.batch.rows if rest else 0)
        ends.add(taken)
        assert held.enough and held.release().batch.rows == taken and not held.rows
    assert ends == {75}


# Whole runs.


def lines(matrix: Matrix, labels: Any) -> str:
    def number(x: float) -> str:
        return np.format_float_positional(np.float32(x), trim="-")

    return "".join(
        f"{int(label)} {' '.join(f'{j + 1}:{number(x)}' for j, x in enumerate(row) if x)}\n"
        for row, label in zip(matrix, labels, strict=True)
    )


def problem(rows: int, seed: int = 0) -> tuple[Matrix, Any]:
    """Two good columns among ugly ones: huge, constant, times of day in seconds, a counter."""
    rng = np.random.default_rng(seed)
    good = rng.normal(size=(rows, 2))
    labels = np.where(good @ [1.0, -1.0] + 0.3 * rng.normal(size=rows) > 0, 1, -1)
    ugly = np.column_stack(
        [1e4 * rng.normal(size=rows), np.full(rows, 50.0), EPOCH + 1e6 * rng.uniform(size=rows), np.arange(rows) + 1.0]
    )
    return np.column_stack([good * [0.01, 100.0], ugly]), labels


def run(path: Path, **given: Any) -> Any:
    dotted = {name.replace("__", "."): value for name, value in given.items()}
    return train(load_settings(overrides={"data.train": str(path), "output.model": None, **dotted}))


def same(one: Model, other: Model) -> None:
    assert one.weights.tobytes() == other.weights.tobytes() and one.bias == other.bias
    assert one.scale is not None and other.scale is not None and one.scale.tobytes() == other.scale.tobytes()
    assert one.centre is not None and other.centre is not None and one.centre.tobytes() == other.centre.tobytes()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """9000 rows in one file and in two; 300 rows."""
    home = tmp_path_factory.mktemp("ugly")
    text = lines(*problem(9000)).splitlines(keepends=True)
    (home / "all.svm").write_text("".join(text))
    (home / "test.svm").write_text(lines(*problem(2000, seed=1)))
    (home / "few.svm").write_text("".join(text[:300]))
    return home


@pytest.mark.parametrize("solver", ["asgd", "sgd", "adagrad"])
def test_ugly_columns_do_not_spoil_a_default_run(files: Path, solver: str) -> None:
    found = run(files / "all.svm", solver=solver, data__test=str(files / "test.svm"))
    raw = run(files / "all.svm", solver=solver, data__test=str(files / "test.svm"), features__scale="none")
    assert found.result["test"]["error"] < 0.12 < 0.25 < raw.result["test"]["error"]
    assert found.model.recipe["scale"] == "auto" and found.model.centre is not None and raw.model.scale is None


@pytest.mark.parametrize("solver", ["dcd", "newton", "norma"])
def test_exact_solvers_and_kernels_do_not_scale(files: Path, solver: str) -> None:
    found = run(files / "few.svm", solver=solver, solver__passes=2)
    assert found.model.scale is None and found.model.centre is None and "scale" not in found.model.recipe


@pytest.mark.parametrize(("threads", "memory"), [(1, "64MB"), (2, "1GB")])
def test_how_rows_are_read_changes_nothing(files: Path, threads: int, memory: str) -> None:
    """Also across the border where rows stop waiting."""
    given = {"run__threads": threads, "run__memory": memory}
    same(run(files / "all.svm", **given).model, run(files / "all.svm").model)


def test_rows_that_come_one_by_one_or_many_at_once_are_the_same(files: Path) -> None:
    """By partial_fit, whose batches are as small as anybody likes, across the border."""
    matrix, labels = problem(9000)
    edges = [0, 1, 2, 700, 8191, 8192, 8193, 8200, 9000]
    parts, whole = StreamSVC(), StreamSVC()
    for a, b in zip(edges, edges[1:], strict=False):
        parts.partial_fit(matrix[a:b], labels[a:b], classes=[-1, 1])
    whole.partial_fit(matrix, labels, classes=[-1, 1])
    assert parts.coef_.tobytes() == whole.coef_.tobytes() and parts.intercept_ == whole.intercept_


def test_held_out_rows_are_not_counted(tmp_path: Path) -> None:
    """Whatever they are: scales are those of the others."""
    matrix, labels = problem(600)
    models = []
    for factor in (1.0, 1e6):
        path = tmp_path / f"{factor:.0f}.svm"
        spoiled = matrix.copy()
        spoiled[held_out(600, 5)] *= factor
        path.write_text(lines(spoiled, labels))
        models.append(run(path, data__holdout=5).model)
    same(*models)


def test_init_goes_on_with_the_scales_of_the_model(files: Path, tmp_path: Path) -> None:
    """Twice the same, to the bit; weights that are unfolded and folded again are what they were, but for rounding."""
    path = tmp_path / "m.safetensors"
    first = run(files / "few.svm", output__model=str(path)).model
    again = [run(files / "all.svm", solver__init=str(path)).model for _ in range(2)]
    same(*again)
    assert np.array_equal(again[0].scale, first.scale) and np.array_equal(again[0].centre, first.centre)
    assert np.array_equal(load_model(str(path)).centre, first.centre)
    raw = run(files / "few.svm", features__scale="none", output__model=str(path)).model
    assert raw.scale is None and run(files / "few.svm", solver__init=str(path)).model.scale is None  # it has none


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_multiplying_all_weights_changes_nothing_but_rounding(tmp_path: Path, unit: float) -> None:
    matrix, labels = problem(400)
    models = []
    for size in (1.0, unit):
        path = tmp_path / f"{size:g}.vw"
        rows = [
            f"{int(label)} {size * (1 + i % 3):.9g} | {' '.join(f'c{j}:{x:.9g}' for j, x in enumerate(row))}\n"
            for i, (row, label) in enumerate(zip(matrix, labels, strict=True))
        ]
        path.write_text("".join(rows))
        models.append(run(path).model)
    one, other = models
    assert np.allclose(one.weights, other.weights, rtol=0.02, atol=1e-3 * np.abs(one.weights).max())
