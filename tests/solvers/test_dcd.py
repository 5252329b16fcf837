"""dcd: LIBLINEAR's optimum, and a proof that NumPy finds to be true, whatever the memory, the threads and the rows."""

import math
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from certificates import Array, Rows, dual, liblinear_vector, primal, rows_of
from hypothesis import given
from hypothesis import strategies as st
from made_rows import batch_of, cut, equal_weights, made_up, select
from signals import SOON
from tiers import examples
from whole_runs import A9A

from streamsvm import open_stream
from streamsvm.batch import Batch, concatenate, empty_batch
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.groups import Groups
from streamsvm.losses import LOSSES, Hinge, Logistic, Loss, SmoothedHinge, SquaredHinge, make_loss
from streamsvm.penalties import L1, L2, ElasticNet
from streamsvm.solvers.base import Bias, Problem, make_bias
from streamsvm.solvers.batch import Figures, Limits, Surroundings
from streamsvm.solvers.dcd import Dcd

ROOMY, TINY = 1 << 30, 1  # bytes: all rows stay in memory, or as few at a time as can be
EVERY_LOSS = pytest.mark.parametrize("loss", [make_loss(name) for name in LOSSES], ids=list(LOSSES))
BOTH = pytest.mark.parametrize("memory", [ROOMY, TINY], ids=["resident", "blocks"])
ENOUGH = 5000  # passes
PENALISED = Bias()


class Given(Groups):
    """Batches as groups: on some threads, with a place for files, slow or broken in a way that is told."""

    def __init__(
        self,
        batches: Sequence[Batch],
        *,
        threads: int = 2,
        scratch: Path | None = None,
        before: Callable[[int], None] = lambda number: None,
    ) -> None:
        self._batches = list(batches)
        self._before = before
        starts = np.cumsum([0, *(batch.rows for batch in batches)], dtype=np.int64)
        features = np.array([batch.features for batch in batches], np.int64)
        width = max((batch.width for batch in batches), default=0)
        weight = sum(float(batch.weights.sum(dtype=np.float64)) for batch in batches)
        super().__init__(starts, features, width, weight, threads=threads, scratch=scratch)

    def group(self, number: int) -> Batch:
        self._before(number)
        return self._batches[number]


def pieces(batch: Batch, count: int = 7) -> list[Batch]:
    """Groups of different sizes, one of them empty."""
    points = np.random.default_rng(batch.rows).integers(0, batch.rows + 1, count - 1).tolist()
    return cut(batch, [*points, points[0]])


def problem_of(loss: Loss, cost: float, weight: float, bias: Bias = PENALISED) -> Problem:
    """In LIBLINEAR's scale."""
    return Problem(loss, L2(1.0 / (cost * weight)), bias)


class Learned:
    """A solver that has learned, and what it told; `make` is given what is around it."""

    def __init__(
        self,
        make: Callable[[Surroundings], Any],
        *,
        tol: float = 1e-6,
        passes: int = ENOUGH,
        memory: int = ROOMY,
        seed: int = 0,
        learn: bool = True,
        **around: Any,
    ) -> None:
        self.told: list[Figures] = []
        limits = Limits(tol, passes, around.pop("seconds", None))
        self.solver = make(Surroundings(memory=memory, seed=seed, limits=limits, tell=self.told.append, **around))
        if learn:
            self.solver.learn()

    @property
    def figures(self) -> Figures:
        assert self.solver.figures is not None
        found: Figures = self.solver.figures
        return found

    @property
    def bits(self) -> tuple[bytes, bytes, Figures]:
        return np.array(self.solver.alpha).tobytes(), self.solver.vector().tobytes(), self.figures

    def check_told(self) -> None:
        """Nothing that was told is beyond what can be."""
        for one in self.told:
            assert one.dual is not None and one.gap is not None
            assert one.dual <= min(f.objective for f in self.told) * (1.0 + 1e-12) and one.gap >= -1e-12


class Solved(Learned):
    def __init__(self, problem: Problem, groups: Groups, **given: Any) -> None:
        super().__init__(lambda around: Dcd(problem, groups, around), **given)

    def check(self, rows: Rows, *, precision: float = 1e-10) -> None:
        """The figures are those of NumPy, and nothing that was told is beyond what can be."""
        problem, figures = self.solver.problem, self.figures
        assert figures.dual is not None and figures.gap is not None
        least = primal(rows, problem, self.solver.vector())
        assert figures.objective == pytest.approx(least, rel=precision)
        assert figures.dual == pytest.approx(dual(rows, problem, np.array(self.solver.alpha)), rel=precision, abs=1e-15)
        assert figures.gap == (figures.objective - figures.dual) / figures.objective
        self.check_told()


# LIBLINEAR.


def sparse_rows(matrix: Array, codes: Array) -> Batch:
    filled = matrix != 0.0
    return Batch(
        np.append(0, np.cumsum(filled.sum(axis=1))),
        np.nonzero(filled)[1].astype(np.uint32),
        matrix[filled].astype(np.float32),
        codes.astype(np.float32),
        np.ones(len(matrix), np.float32),
    )


def text_like() -> Batch:
    """Few rows, many features, most of them rare; rows of length one."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(3.0 / np.arange(1, 2001) ** 0.8, (400, 2000)).astype(float)
    counts[:, 0] += 1.0
    truth = rng.normal(size=2000)
    rows = counts / np.sqrt((counts**2).sum(axis=1, keepdims=True))
    return sparse_rows(rows, rows @ truth + 0.1 * rng.normal(size=400) > 0.0)


def few_features() -> Batch:
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(500, 6)) * [1.0, 0.3, 2.0, 1.0, 0.1, 1.0]
    return sparse_rows(matrix, matrix @ rng.normal(size=6) + 0.8 * rng.normal(size=500) > 0.3)


def separable() -> Batch:
    rng = np.random.default_rng(2)
    matrix = rng.normal(size=(300, 10))
    score = matrix @ rng.normal(size=10)
    return sparse_rows(matrix[np.abs(score) > 0.7], score[np.abs(score) > 0.7] > 0.0)


def unbalanced() -> Batch:
    rng = np.random.default_rng(3)
    matrix = rng.normal(size=(600, 12)) * (rng.random((600, 12)) < 0.4)
    return sparse_rows(matrix, matrix @ rng.normal(size=12) + rng.normal(size=600) > 3.0)


@lru_cache
def a9a() -> Batch:
    whole = concatenate([batch.copy() for batch in open_stream(A9A)])
    return whole._replace(labels=(whole.labels > 0).astype(np.float32))


DATA: dict[str, Callable[[], Batch]] = {
    "text": text_like,
    "few features": few_features,
    "separable": separable,
    "unbalanced": unbalanced,
}


def compared(batch: Batch, name: str, cost: float, *, tol: float, memory: int = ROOMY, **given: Any) -> None:
    """What is found and what is told, against LIBLINEAR's weights: no weights can be below the dual."""
    problem = problem_of(make_loss(name), cost, batch.rows)
    solved = Solved(problem, Given(pieces(batch)), tol=tol, memory=memory, **given)
    rows = rows_of(batch, batch.width, problem)
    solved.check(rows)
    theirs = primal(rows, problem, liblinear_vector(rows, problem, name, 1e-8))
    if name != "hinge":
        theirs = min(theirs, primal(rows, problem, liblinear_vector(rows, problem, name, 1e-8, dual=False)))
    assert all(one.dual is not None and one.dual <= theirs * (1.0 + 1e-9) for one in solved.told)
    if given.get("passes", ENOUGH) == ENOUGH:
        assert solved.solver.converged and solved.figures.objective <= theirs / (1.0 - tol) * (1.0 + 1e-9)


@pytest.mark.parametrize("cost", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("name", ["hinge", "squared_hinge", "logistic"])
@pytest.mark.parametrize("data", DATA)
def test_the_optimum_is_that_of_liblinear(data: str, name: str, cost: float) -> None:
    """With few features and much noise a large C takes too many passes; what is proven until then must be true."""
    slow = {"passes": 200} if cost > 1.0 and data in ("few features", "unbalanced") else {}
    compared(DATA[data](), name, cost, tol=1e-4 if cost > 1.0 else 1e-8, **slow)


@pytest.mark.parametrize("cost", [1e-3, 1.0])
@pytest.mark.parametrize("name", ["hinge", "squared_hinge", "logistic"])
@pytest.mark.parametrize("data", ["text", "unbalanced"])
def test_block_by_block_it_is_the_same_optimum(data: str, name: str, cost: float) -> None:
    compared(DATA[data](), name, cost, tol=1e-5, memory=TINY)


@pytest.mark.parametrize("name", ["hinge", "squared_hinge", "logistic"])
def test_on_real_data(name: str) -> None:
    compared(a9a(), name, 0.1, tol=1e-3)


@pytest.mark.parametrize("name", ["hinge", "logistic"])
def test_what_is_told_early_on_real_data_is_true_too(name: str) -> None:
    """A large C is slow; the proof is a loose one then, but not a wrong one. Blocks have their own way."""
    for memory in (ROOMY, TINY):
        compared(a9a().take(0, 5000), name, 100.0, tol=1e-12, passes=12, memory=memory)


# The proof, whatever is solved.


@EVERY_LOSS
@BOTH
@pytest.mark.parametrize("kind", ["penalised", "none"])
def test_the_figures_are_those_of_numpy(loss: Loss, memory: int, kind: str) -> None:
    batch = made_up(900)
    bias = make_bias(kind, 2.5)
    problem = problem_of(loss, 2.0, float(batch.weights.sum()), bias)
    solved = Solved(problem, Given(pieces(batch)), memory=memory, tol=1e-4)
    rows = rows_of(batch, 30, problem)
    solved.check(rows)
    assert solved.solver.converged and solved.figures.gap is not None and solved.figures.gap <= 1e-4
    wrong = (rows.matrix @ solved.solver.vector() > 0.0) != (rows.signs > 0.0)
    assert solved.figures.error == pytest.approx(rows.weights @ wrong / rows.weights.sum(), rel=1e-12)
    penalty = problem.l2 / 2.0 * solved.solver.vector() @ solved.solver.vector()
    assert solved.figures.loss + penalty == pytest.approx(solved.figures.objective, rel=1e-12)
    weights, offset = solved.solver.weights()
    scores = rows.matrix[:, :-1] @ weights.astype(float) + offset
    np.testing.assert_allclose(scores, rows.matrix @ solved.solver.vector(), rtol=1e-4, atol=1e-4)
    assert (offset == 0.0) == (kind == "none")


def test_the_memory_decides_how_it_goes_about_it() -> None:
    batch = equal_weights(made_up(900))
    groups = Given(pieces(batch))
    problem = problem_of(Hinge(), 1.0, 900.0)
    said = [Solved(problem, groups, memory=memory, learn=False).solver.described() for memory in (ROOMY, TINY)]
    assert said[0].startswith("all 900 rows stay in memory (") and "blocks of" in said[1]


@EVERY_LOSS
def test_blocks_need_no_more_passes_than_their_gap_is_worth(loss: Loss) -> None:
    """A pass over blocks sees every row that is awake as often as one in memory, or more often."""
    batch = made_up(900)
    problem = problem_of(loss, 2.0, float(batch.weights.sum()), make_bias("penalised", 2.5))
    resident = Solved(problem, Given(pieces(batch)), tol=1e-4)
    blocks = Solved(problem, Given(pieces(batch)), tol=1e-4, memory=TINY, passes=2 * resident.solver.passes)
    assert resident.solver.converged and blocks.solver.converged


@pytest.mark.parametrize("rows", [4, 60])
def test_blocks_of_one_row(rows: int) -> None:
    """Rows so long that no block holds two of them."""
    rng = np.random.default_rng(rows)
    matrix = rng.normal(size=(rows, 2500))
    batch = sparse_rows(matrix, rng.random(rows) < 0.5)
    for loss in (Hinge(), SquaredHinge(), Logistic()):
        problem = problem_of(loss, 1e-4, rows)
        solved = Solved(problem, Given(pieces(batch)), memory=TINY, tol=1e-5)
        assert solved.solver.converged and f"{rows} blocks of 1 rows" in solved.solver.described()
        solved.check(rows_of(batch, 2500, problem))


def test_one_row_longer_than_a_block() -> None:
    short = equal_weights(made_up(900, 30))
    long = batch_of([{3 * j: 1.0 + j % 5 for j in range(9000)}], [1.0])
    for place in (0, 700):
        batch = concatenate([short.take(0, place), long, short.take(place, 900)])
        for loss in (Hinge(), Logistic()):
            problem = problem_of(loss, 1.0, 901.0)
            solved = Solved(problem, Given(pieces(batch)), memory=TINY, tol=1e-4)
            assert solved.solver.converged and "blocks of" in solved.solver.described()
            solved.check(rows_of(batch, batch.width, problem))


def test_dual_variables_may_be_in_a_file(tmp_path: Path) -> None:
    batch = made_up(900)
    problem = problem_of(Hinge(), 1.0, float(batch.weights.sum()))
    solved = Solved(problem, Given(pieces(batch), scratch=tmp_path), memory=TINY, tol=1e-3)
    assert isinstance(solved.solver.alpha, np.memmap) and list(tmp_path.iterdir()) == []
    assert isinstance(solved.solver.state()["alpha"], np.memmap)
    solved.check(rows_of(batch, 30, problem))
    assert solved.bits == Solved(problem, Given(pieces(batch)), memory=TINY, tol=1e-3).bits


# Rows of all kinds.


def both(batch: Batch, loss: Loss, cost: float = 1.0, bias: Bias = PENALISED, tol: float = 1e-6) -> list[Solved]:
    """Solved in memory and by blocks, and checked."""
    problem = problem_of(loss, cost, float(batch.weights.sum(dtype=np.float64)), bias)
    found = [Solved(problem, Given(pieces(batch, 3)), memory=memory, tol=tol) for memory in (ROOMY, TINY)]
    for one in found:
        assert one.solver.converged
        one.check(rows_of(batch, batch.width, problem))
    return found


@EVERY_LOSS
def test_empty_rows_and_rows_of_weight_zero(loss: Loss) -> None:
    rows: list[dict[int, float]] = [{}, {0: 1.0}, {}, {1: -2.0}, {0: 1e6}, {}]
    batch = batch_of(rows, [1.0, 1.0, 0.0, 0.0, 0.0, 1.0], [1.0, 2.0, 0.5, 1.0, 0.0, 3.0])
    for bias in (make_bias("penalised", 1.0), make_bias("none", 1.0)):
        both(batch, loss, bias=bias)
        without = select(batch, [0, 1, 2, 3, 5])
        one, other = both(batch, loss, bias=bias, tol=1e-9)[0], both(without, loss, bias=bias, tol=1e-9)[0]
        assert one.figures.objective == pytest.approx(other.figures.objective, rel=1e-8)


@EVERY_LOSS
def test_no_features_at_all(loss: Loss) -> None:
    batch = batch_of([{}, {}, {}], [1.0, 1.0, 0.0])
    for bias in (make_bias("penalised", 1.0), make_bias("none", 1.0)):
        for solved in both(batch, loss, bias=bias):
            assert solved.solver.groups.width == 0 and len(solved.solver.weights()[0]) == 0
    assert solved.figures.objective == pytest.approx(loss.value(0.0, 1.0))


@EVERY_LOSS
@pytest.mark.parametrize("code", [0.0, 1.0])
def test_one_class_only(loss: Loss, code: float) -> None:
    batch = equal_weights(made_up(200))._replace(labels=np.full(200, code, np.float32))
    for solved in both(batch, loss, tol=1e-5):
        assert solved.figures.error < 0.02


@EVERY_LOSS
def test_nothing_to_learn_from(loss: Loss) -> None:
    """Whoever makes groups of a cache refuses that; a solver makes no number that is none."""
    for batches in ([], [empty_batch()], [batch_of([{0: 1.0}, {}], [0.0, 1.0], [0.0, 0.0])]):
        solved = Solved(Problem(loss, L2(0.1)), Given(batches))
        assert solved.figures.objective == solved.figures.dual == 0.0 and not solved.solver.vector().any()


@EVERY_LOSS
def test_a_row_of_weight_two_is_the_row_twice(loss: Loss) -> None:
    batch = made_up(150)
    times = np.arange(150) % 4
    weighted = batch._replace(weights=times.astype(np.float32))
    repeated = equal_weights(select(batch, np.repeat(np.arange(150), times).tolist()))
    one, other = both(weighted, loss, tol=1e-9), both(repeated, loss, tol=1e-9)
    assert one[0].figures.objective == pytest.approx(other[0].figures.objective, rel=1e-8)
    np.testing.assert_allclose(one[0].solver.vector(), other[0].solver.vector(), atol=2e-3)


@EVERY_LOSS
def test_weights_count_by_their_proportions(loss: Loss) -> None:
    """With l2 and not C: a sum of weights is divided by itself."""
    batch = made_up(150)
    found = []
    for factor in (1.0, 64.0):
        weighted = batch._replace(weights=batch.weights * np.float32(factor))
        found.append(Solved(Problem(loss, L2(0.01)), Given([weighted])))
    assert found[0].figures.objective == pytest.approx(found[1].figures.objective, rel=1e-12)


@EVERY_LOSS
def test_duplicate_rows(loss: Loss) -> None:
    """The same row in both classes, and many times in one."""
    batch = batch_of([{0: 1.0, 3: -1.0}] * 40 + [{1: 2.0}] * 10, [float(i % 3 == 0) for i in range(50)])
    for cost in (0.01, 10.0):
        both(batch, loss, cost, tol=1e-4)


@EVERY_LOSS
@pytest.mark.parametrize("size", [1e-20, 1e-6, 1e6, 1e12, 1e25, 3e38])
def test_features_of_any_size_give_numbers(loss: Loss, size: float) -> None:
    """Not all of them are learned quickly, but figures stay figures, and the proof stays one."""
    batch = equal_weights(made_up(60))
    values = batch.values * np.float32(size) if size < 1e30 else np.sign(batch.values) * np.float32(size)
    large = batch._replace(values=values)
    for memory in (ROOMY, TINY):
        solved = Solved(problem_of(loss, 1.0, 60.0), Given(pieces(large)), memory=memory, tol=1e-3, passes=30)
        figures, alpha = solved.figures, np.array(solved.solver.alpha)
        assert (alpha >= 0.0).all() and (alpha <= loss.ceiling()).all()
        assert figures.dual is not None and math.isfinite(figures.objective) and math.isfinite(figures.dual)
        assert np.isfinite(solved.solver.vector()).all()
        duals = [one.dual for one in solved.told if one.dual is not None]
        assert 0.0 <= duals[-1] <= figures.objective * (1.0 + 1e-12)
        assert all(b >= a * (1.0 - 1e-12) for a, b in pairwise(duals))


@st.composite
def any_rows(draw: st.DrawFn) -> Batch:
    value = st.sampled_from([1.0, -1.0, 0.5, 2.0, -3.0, 1e-3])
    rows = draw(st.lists(st.dictionaries(st.integers(0, 4), value, max_size=4), min_size=1, max_size=14))
    repeats = draw(st.sampled_from([1, 1, 5]))
    codes = draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=len(rows), max_size=len(rows)))
    weights = draw(st.lists(st.sampled_from([1.0, 1.0, 0.0, 0.25, 3.0]), min_size=len(rows), max_size=len(rows)))
    return batch_of(rows * repeats, codes * repeats, [1.0, *weights[1:]] * repeats)


@given(
    batch=any_rows(),
    loss=st.sampled_from([Hinge(), SquaredHinge(), SmoothedHinge(), Logistic(), Hinge(0.5), SmoothedHinge(1.0, 0.2)]),
    cost=st.sampled_from([1e-4, 0.1, 1.0, 30.0]),
    bias=st.sampled_from([make_bias("penalised", 1.0), make_bias("penalised", 0.1), make_bias("none", 1.0)]),
    memory=st.sampled_from([ROOMY, TINY]),
    threads=st.integers(1, 3),
    passes=st.sampled_from([1, 3, 300]),
    points=st.lists(st.integers(0, 70), max_size=3),
    seed=st.integers(0, 3),
)
@examples(60)
def test_any_rows_any_problem(
    batch: Batch, loss: Loss, cost: float, bias: Bias, memory: int, threads: int, passes: int, points: list[int],
    seed: int,
) -> None:  # fmt: skip
    problem = problem_of(loss, cost, float(batch.weights.sum()), bias)
    groups = Given(cut(batch, [min(point, batch.rows) for point in points]), threads=threads)
    solved = Solved(problem, groups, memory=memory, passes=passes, tol=1e-4, seed=seed)
    solved.check(rows_of(batch, batch.width, problem), precision=1e-9)
    assert solved.solver.converged or solved.solver.passes == passes


# The same bits.


@pytest.mark.parametrize("loss", [Hinge(), Logistic()], ids=str)
@BOTH
def test_neither_threads_nor_time_change_a_bit(loss: Loss, memory: int) -> None:
    batch = made_up(1200)
    problem = problem_of(loss, 0.3, float(batch.weights.sum()))
    expected = Solved(problem, Given(pieces(batch, 25), threads=1), memory=memory, tol=1e-3).bits
    for threads in (2, 5):
        rng = np.random.default_rng(threads)
        pauses = (rng.random(26) * 0.003 * (rng.random(26) < 0.2)).tolist()
        late = Given(pieces(batch, 25), threads=threads, before=lambda n, pauses=pauses: time.sleep(pauses[n]))  # type: ignore[misc]
        assert Solved(problem, late, memory=memory, tol=1e-3).bits == expected


def test_a_slow_consumer_changes_nothing() -> None:
    """Blocks are loaded far ahead, or just in time."""
    batch = made_up(1200)
    problem = problem_of(Hinge(), 1.0, float(batch.weights.sum()))
    groups = Given(pieces(batch, 25))
    expected = Solved(problem, groups, memory=TINY, tol=1e-2).bits
    slow = Solved(problem, groups, memory=TINY, tol=1e-2, tick=lambda rows: time.sleep(0.0002))
    assert slow.bits == expected


@BOTH
def test_the_seed_decides(memory: int) -> None:
    batch = made_up(1200)
    groups, problem = Given(pieces(batch, 25)), problem_of(Logistic(), 1.0, float(batch.weights.sum()))
    one, same, other = (Solved(problem, groups, memory=memory, seed=seed, tol=1e-4) for seed in (1, 1, 2))
    assert one.bits == same.bits != other.bits
    assert one.figures.objective == pytest.approx(other.figures.objective, rel=2e-4)


def test_how_rows_are_cut_into_groups_changes_nothing_in_memory() -> None:
    batch = made_up(600)
    problem = problem_of(Hinge(), 1.0, float(batch.weights.sum()))
    found = [Solved(problem, Given(cut(batch, points))).solver for points in ([], [1], [100, 100, 350])]
    assert len({solver.vector().tobytes() for solver in found}) == 1


# Another penalty, other beginnings.


@EVERY_LOSS
@BOTH
def test_another_penalty_is_learned_from_where_it_stands(loss: Loss, memory: int) -> None:
    batch = made_up(700)
    weight = float(batch.weights.sum())
    path = [problem_of(loss, cost, weight) for cost in (0.01, 0.1, 3.0, 0.3)]
    warm = Solved(path[0], Given(pieces(batch)), memory=memory, tol=1e-4)
    for problem in path[1:]:
        warm.solver.with_penalty(problem.l2)
        assert warm.solver.figures is None and warm.solver.passes == 0
        warm.told.clear()
        warm.solver.learn()
        warm.check(rows_of(batch, 30, problem))
        cold = Solved(problem, Given(pieces(batch)), memory=memory, tol=1e-4)
        assert warm.solver.problem.l2 == problem.l2 and warm.solver.converged
        assert warm.figures.objective == pytest.approx(cold.figures.objective, rel=1.1e-4)


def test_the_same_penalty_again_needs_few_passes() -> None:
    """Dual variables stay as they are; what else made the last weights better may have to be found again."""
    batch = made_up(700)
    solved = Solved(problem_of(Hinge(), 1.0, float(batch.weights.sum())), Given([batch]), tol=1e-4)
    solved.solver.with_penalty(solved.solver.problem.l2)
    solved.solver.learn()
    assert solved.solver.passes <= 30 and solved.solver.converged


@pytest.mark.parametrize("loss", [SquaredHinge(), Logistic()], ids=str)
@BOTH
def test_known_weights_save_passes(loss: Loss, memory: int) -> None:
    batch = made_up(700)
    problem = problem_of(loss, 3.0, float(batch.weights.sum()), make_bias("penalised", 2.0))
    cold = Solved(problem, Given(pieces(batch)), memory=memory, tol=1e-4)
    warm = Solved(problem, Given(pieces(batch)), memory=memory, tol=1e-4, learn=False)
    warm.solver.start_from(*Solved(problem, Given(pieces(batch)), tol=1e-4).solver.weights())
    warm.solver.learn()
    warm.check(rows_of(batch, 30, problem))
    assert warm.solver.passes < cold.solver.passes


@EVERY_LOSS
@BOTH
@pytest.mark.parametrize("length", [0, 50])
def test_whatever_weights_it_begins_with_the_proof_is_true(loss: Loss, memory: int, length: int) -> None:
    """Also a model of fewer features, or of more, and not a good one."""
    batch = made_up(700)
    problem = problem_of(loss, 1.0, float(batch.weights.sum()))
    solved = Solved(problem, Given(pieces(batch)), memory=memory, tol=1e-4, learn=False)
    solved.solver.start_from(np.random.default_rng(7).normal(size=length).astype(np.float32), -3.0)
    solved.solver.learn()
    solved.check(rows_of(batch, 30, problem))
    assert solved.solver.converged


# Going on later.


@EVERY_LOSS
@BOTH
def test_a_state_taken_anywhere_is_a_valid_proof(loss: Loss, memory: int) -> None:
    batch = made_up(900)
    problem = problem_of(loss, 1.0, float(batch.weights.sum()))
    rows = rows_of(batch, 30, problem)
    states: list[dict[str, Any]] = []
    running = Solved(problem, Given(pieces(batch)), memory=memory, passes=12, tol=1e-12, learn=False)
    around = running.solver.around
    ticks = [0]

    def tick(rows: int) -> None:
        ticks[0] += 1
        if ticks[0] % 7 == 2 and len(states) < 6:
            states.append(running.solver.state())

    running.solver = Dcd(problem, running.solver.groups, around._replace(tick=tick))
    running.solver.learn()
    assert len(states) >= 3 and states[-1]["alpha"].any()
    for state in states:
        before = state["alpha"].tobytes()
        resumed = Solved(problem, Given(pieces(batch)), memory=memory, passes=1, tol=1e-12, learn=False)
        resumed.solver.restore(state)
        if state["passes"]:
            resumed.solver.learn()  # a look at what it stands for; no pass may follow
            assert resumed.solver.passes == state["passes"] and len(resumed.told) == 1
            assert resumed.figures.dual == pytest.approx(dual(rows, problem, state["alpha"]), rel=1e-10)
            resumed.check(rows)
        further = Solved(problem, Given(pieces(batch)), memory=memory, tol=1e-3, learn=False)
        further.solver.restore(state)
        further.solver.learn()
        further.check(rows)
        assert further.solver.converged and further.solver.passes >= state["passes"]
        assert state["alpha"].tobytes() == before  # it is a copy


def test_what_ended_needs_few_passes_when_it_goes_on() -> None:
    batch = made_up(700)
    problem = problem_of(Hinge(), 1.0, float(batch.weights.sum()))
    first = Solved(problem, Given(pieces(batch)), tol=1e-4)
    state = first.solver.state()
    for memory in (ROOMY, TINY):  # it may have become less
        again = Solved(problem, Given(pieces(batch)), memory=memory, tol=1.01e-4, learn=False)
        again.solver.restore(state)
        again.solver.learn()
        assert first.solver.passes <= again.solver.passes <= first.solver.passes + 30 and again.solver.converged
        assert again.told[0].dual is not None and first.figures.dual is not None
        assert again.told[0].dual == pytest.approx(first.figures.dual, rel=1e-12)
        assert again.figures.objective == pytest.approx(first.figures.objective, rel=1e-4)


@EVERY_LOSS
@pytest.mark.parametrize(
    "spoil",
    [
        lambda alpha: np.where(np.arange(len(alpha)) == 5, np.nan, alpha),
        lambda alpha: np.where(np.arange(len(alpha)) == 5, -1e-9, alpha),
        lambda alpha: np.where(np.arange(len(alpha)) == 5, np.inf, alpha),
        lambda alpha: np.where(np.arange(len(alpha)) == 5, -np.inf, alpha),
        lambda alpha: alpha[:-1],
        lambda alpha: np.append(alpha, 0.0),
        lambda alpha: alpha[None, :],
        lambda alpha: alpha[:0],
    ],
    ids=["nan", "negative", "inf", "minus inf", "short", "long", "matrix", "empty"],
)
def test_dual_variables_that_cannot_be_are_refused(loss: Loss, spoil: Callable[[Array], Array]) -> None:
    batch = made_up(100)
    solved = Solved(problem_of(loss, 1.0, float(batch.weights.sum())), Given([batch]))
    state = solved.solver.state()
    with pytest.raises(ModelError, match="the dual variables saved are not those of these rows"):
        solved.solver.restore({**state, "alpha": spoil(state["alpha"])})
    assert np.array_equal(solved.solver.alpha, state["alpha"])


@pytest.mark.parametrize("loss", [Hinge(), SmoothedHinge(), Logistic()], ids=str)
def test_dual_variables_beyond_the_ceiling_are_refused(loss: Loss) -> None:
    batch = made_up(100)
    solved = Solved(problem_of(loss, 1.0, float(batch.weights.sum())), Given([batch]), learn=False)
    with pytest.raises(ModelError):
        solved.solver.restore({"alpha": np.full(100, 1.0 + 1e-9), "passes": 1})


# Limits and refusals.


@BOTH
@pytest.mark.parametrize("passes", [1, 2, 10, 11, 25])
def test_passes_are_not_exceeded(memory: int, passes: int) -> None:
    batch = made_up(700)
    solved = Solved(
        problem_of(Hinge(), 100.0, float(batch.weights.sum())), Given(pieces(batch)), memory=memory, passes=passes,
        tol=1e-15,
    )  # fmt: skip
    assert solved.solver.passes == passes and not solved.solver.converged
    solved.check(rows_of(batch, 30, solved.solver.problem))


@BOTH
def test_time_is_not_exceeded_by_much(memory: int) -> None:
    batch = made_up(3000)
    problem = problem_of(Hinge(), 1e4, float(batch.weights.sum()))
    for seconds in (0.0, 0.3):
        begun = time.perf_counter()
        solved = Solved(problem, Given(pieces(batch)), memory=memory, tol=1e-15, passes=10**9, seconds=seconds)
        assert seconds <= time.perf_counter() - begun < SOON
        assert solved.solver.passes >= 1 and not solved.solver.converged
        solved.check(rows_of(batch, 30, problem))


def test_time_may_have_begun_earlier() -> None:
    batch = made_up(300)
    problem = problem_of(Hinge(), 1e4, float(batch.weights.sum()))
    earlier = time.perf_counter() - 100.0
    solved = Solved(problem, Given([batch]), tol=1e-15, passes=10**9, seconds=50.0, started=earlier)
    assert solved.solver.passes == 1


def test_the_tolerance_is_reached_and_not_missed_by_far() -> None:
    """Looser ones need fewer passes."""
    batch = made_up(700)
    problem = problem_of(Logistic(), 1.0, float(batch.weights.sum()))
    found = [Solved(problem, Given(pieces(batch)), tol=tol) for tol in (1e-1, 1e-3, 1e-6, 1e-10)]
    assert all((one.figures.gap or 0.0) <= tol for one, tol in zip(found, (1e-1, 1e-3, 1e-6, 1e-10), strict=True))
    counts = [one.solver.passes for one in found]
    assert counts == sorted(counts) and counts[0] < counts[-1] < ENOUGH


@pytest.mark.parametrize("penalty", [L1(0.1), ElasticNet(0.1, 0.1), L2(0.0)], ids=str)
def test_penalties_that_it_cannot_have(penalty: Any) -> None:
    with pytest.raises(ConfigError, match="solver dcd cannot minimise penalty (l1|elastic_net|none)"):
        Dcd(Problem(Hinge(), penalty), Given([made_up(10)]))


def test_a_free_bias_is_refused() -> None:
    with pytest.raises(ConfigError, match="solver dcd cannot have a free bias"):
        Dcd(Problem(Hinge(), L2(0.1), make_bias("free", 1.0)), Given([made_up(10)]))


@BOTH
@pytest.mark.parametrize("threads", [1, 3])
def test_a_group_that_cannot_be_read_ends_it(memory: int, threads: int) -> None:
    batch = made_up(900)
    count = [0]

    def before(number: int) -> None:
        count[0] += 1
        if count[0] == 5:
            raise DataError("the disk is gone")

    groups = Given(pieces(batch), threads=threads, before=before)
    with pytest.raises(DataError, match="the disk is gone"):
        Solved(problem_of(Hinge(), 1.0, float(batch.weights.sum())), groups, memory=memory)


@BOTH
@pytest.mark.parametrize("call", [1, 6, 30])
def test_it_can_be_stopped_where_it_ticks(memory: int, call: int) -> None:
    """And goes on from what it had."""
    batch = made_up(900)
    problem = problem_of(Hinge(), 1.0, float(batch.weights.sum()))
    calls = [0]

    def tick(rows: int) -> None:
        calls[0] += 1
        if calls[0] == call:
            raise KeyboardInterrupt

    solved = Solved(problem, Given(pieces(batch)), memory=memory, tick=tick, learn=False)
    with pytest.raises(KeyboardInterrupt):
        solved.solver.learn()
    state = solved.solver.state()
    assert calls[0] == call
    resumed = Solved(problem, Given(pieces(batch)), memory=memory, tol=1e-4, learn=False)
    resumed.solver.restore(state)
    resumed.solver.learn()
    resumed.check(rows_of(batch, 30, problem))
    assert resumed.solver.converged
