"""Step sizes chosen on real first rows: with outliers, weights, one class first; and few rows, learned well."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from made_rows import batch_of, bits, dense, equal_weights, made_up, run_passes

from streamsvm.batch import Batch, concatenate
from streamsvm.losses import LOSSES, make_loss
from streamsvm.penalties import L2
from streamsvm.progressive import Progressive
from streamsvm.shuffle import taken
from streamsvm.solvers import SOLVERS, OnlineSolver, step_size
from streamsvm.solvers import base as solver_base
from streamsvm.solvers.base import LOSS, SEEN, UNIT, WEIGHT, WRONG, Problem, T, make_bias
from streamsvm.solvers.step_size import choose_step_size, choose_visits

STEPPED = [name for name, solver in SOLVERS.items() if solver.has_step_size]
EVERY_SOLVER = pytest.mark.parametrize("name", STEPPED)
FIRST = equal_weights(made_up(1200, 20, seed=31, noise=1.0))
FEW = equal_weights(made_up(150, 12, seed=32, noise=0.5))


def make(name: str = "asgd", loss: str = "hinge", l2: float = 1e-4) -> OnlineSolver:
    return SOLVERS[name](Problem(make_loss(loss), L2(l2), make_bias("penalised", 1.0)))


def chosen(solver: OnlineSolver, rows: Batch) -> float:
    run_passes(solver, [rows])
    assert solver.step_size is not None
    return solver.step_size


def error(solver: OnlineSolver, rows: Batch) -> float:
    weights, bias = solver.weights()
    scores = dense(rows, rows.width)[:, : len(weights)] @ weights.astype(float) + bias
    return float(np.mean((scores > 0.0) != (rows.labels > 0.0)))


# First rows as they come.


@EVERY_SOLVER
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic"])
@pytest.mark.parametrize("place", [0, 7, 1199])
def test_one_huge_row_does_not_decide(name: str, loss: str, place: int) -> None:
    values = FIRST.values.copy()
    values[FIRST.indptr[place] : FIRST.indptr[place + 1]] *= 1e4
    usual, spoiled = chosen(make(name, loss), FIRST), chosen(make(name, loss), FIRST._replace(values=values))
    assert 0.1 < spoiled / usual < 10.0


@pytest.mark.parametrize("name", sorted({*STEPPED} - {"adagrad", "ftrl"}))  # whose steps such a row makes short
def test_one_row_that_weighs_a_thousand_does_not_decide(name: str) -> None:
    weights = FIRST.weights.copy()
    weights[5] = 1000.0
    solver, usual = make(name, "squared_hinge"), make(name, "squared_hinge")
    run_passes(solver, [FIRST._replace(weights=weights)])
    assert error(solver, FIRST) < error(run_passes(usual, [FIRST]), FIRST) + 0.05


@EVERY_SOLVER
def test_the_order_of_classes_does_not_decide(name: str) -> None:
    """Rows are tried in a random order, so that one class first is no other problem than both mixed."""
    by_class = taken(FIRST, np.argsort(FIRST.labels, kind="stable"))
    assert 0.2 < chosen(make(name), by_class) / chosen(make(name), FIRST) < 5.0


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 1e6])
@EVERY_SOLVER
def test_the_unit_of_weights_changes_nothing_but_rounding(name: str, unit: float) -> None:
    weights = np.random.default_rng(33).choice([0.5, 1.0, 2.0], size=FIRST.rows).astype(np.float32)
    one = run_passes(make(name), [FIRST._replace(weights=weights)])
    other = run_passes(make(name), [FIRST._replace(weights=weights * np.float32(unit))])
    assert other.step_size == one.step_size
    assert other.scalars[UNIT] == pytest.approx(float(one.scalars[UNIT]) * unit, rel=1e-6)
    assert other.scalars[T] == pytest.approx(float(one.scalars[T]), rel=1e-5)
    assert np.allclose(other.weights()[0], one.weights()[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["asgd", "sgd"])
@pytest.mark.parametrize("ugly", ["as they are", "huge row", "sorted", "weights"])
def test_the_choice_is_nearly_the_best_of_a_grid(name: str, ugly: str) -> None:
    """By the loss of rows that come later."""
    rows, test = FIRST, equal_weights(made_up(1200, 20, seed=31, noise=1.0)).slice(600, 1200)
    rows = rows.slice(0, 600)
    if ugly == "huge row":
        values = rows.values.copy()
        values[rows.indptr[3] : rows.indptr[4]] *= 1e4
        rows = rows._replace(values=values)
    elif ugly == "sorted":
        rows = taken(rows, np.argsort(rows.labels, kind="stable"))
    elif ugly == "weights":
        rows = rows._replace(weights=np.random.default_rng(34).exponential(size=600).astype(np.float32))
    mixed = taken(rows, np.random.default_rng(35).permutation(600))
    later = concatenate([rows, mixed])

    def cost(solver: OnlineSolver) -> float:
        run_passes(solver, [later])
        return solver_base.objective_on(Problem(make_loss("logistic"), L2(0.0)), test, *solver.weights())

    problem = make(name, "logistic").problem
    grid = [cost(SOLVERS[name](problem, eta0=2.0**power)) for power in range(-10, 7)]
    assert cost(make(name, "logistic")) < 1.10 * min(grid)


# Few rows.


def revisited(solver: OnlineSolver, rows: Batch, watch: Any = None) -> OnlineSolver:
    solver.revisit, solver.watch = True, watch
    return run_passes(solver, [rows])


@pytest.mark.parametrize("loss", list(LOSSES))
def test_few_rows_are_learned_better_when_they_are_visited_again(loss: str) -> None:
    test = equal_weights(made_up(2000, 12, seed=32, noise=0.5)).slice(150, 2000)
    once, often = run_passes(make("asgd", loss), [FEW]), revisited(make("asgd", loss), FEW)
    assert often.scalars[T] == once.scalars[T] and not np.array_equal(often.weights()[0], once.weights()[0])
    assert error(often, test) <= error(once, test) + 0.005

    def cost(solver: OnlineSolver) -> float:
        return solver_base.objective_on(Problem(make_loss(loss), L2(0.0)), test, *solver.weights())

    assert cost(often) < 1.04 * cost(once)


def test_rows_that_teach_nothing_are_not_visited_often() -> None:
    noise = FEW._replace(labels=np.random.default_rng(36).integers(0, 2, FEW.rows).astype(np.float32))
    solver = make()
    fresh = partial(solver.fresh, choose_step_size(solver, noise))
    assert choose_visits(solver, noise, fresh).passes <= 4 < choose_visits(solver, FEW, fresh).passes


def test_what_is_told_is_what_rows_cost_when_they_first_came() -> None:
    once, often = run_passes(make(), [FEW]), revisited(make(), FEW)
    for number in (WEIGHT, LOSS, WRONG, SEEN):
        assert often.scalars[number] == once.scalars[number]


def test_how_often_is_asked_once_and_by_the_order_of_rows_alone() -> None:
    whole, parts = make(), make()
    for solver, pieces in ((whole, [FEW]), (parts, [FEW.slice(0, 31), FEW.slice(31, 90), FEW.slice(90, 150)])):
        solver.revisit = True
        run_passes(solver, pieces)
    assert bits(whole.state()) == bits(parts.state())
    clock = float(whole.scalars[T])
    whole.end_pass()
    assert whole.scalars[T] == clock


@pytest.mark.parametrize("rows", [1, 2, 5, 19])
def test_very_few_rows_are_visited_once(rows: int) -> None:
    assert revisited(make(), FEW.slice(0, rows)).scalars[T] == rows


def test_more_rows_than_are_tried_are_visited_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver_base, "TRIAL_ROWS", 100)
    assert revisited(make(), FEW).scalars[T] == FEW.rows


def test_scores_of_rows_that_were_left_out_are_those_for_probabilities() -> None:
    """All rows have one, by weights that were learned from others, and as far from zero as those of new rows."""
    watch = Progressive(many=False)
    revisited(make("asgd", "logistic"), FEW, watch)
    sample = watch.recent()
    assert sample.rows == FEW.rows
    order, scores = np.argsort(sample.codes(), kind="stable"), sample.scores()
    assert sample.codes()[order].tolist() == sorted(FEW.labels.tolist())
    assert 0.5 < np.mean((scores > 0.0) == (sample.codes() > 0.0)) < 1.0


def test_each_row_is_left_out_once() -> None:
    visits = step_size.choose_visits(make(), FEW, lambda: make().fresh(0.1))
    assert sorted(visits.rows.tolist()) == list(range(FEW.rows)) and len(visits.scores) == FEW.rows
    assert visits.passes in step_size.VISITS


def test_rows_without_features_are_visited_too() -> None:
    solver = revisited(make(), batch_of([{}] * 60, [1] * 60))
    assert solver.weights()[1] > 0.0
