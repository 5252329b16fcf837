"""Where many passes lead: to the optimum that LIBLINEAR and scikit-learn find for the same objective, not below it."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_rows import dense, equal_weights, made_up, run_passes

from streamsvm import open_stream
from streamsvm.batch import concatenate
from streamsvm.losses import LOSSES, make_loss
from streamsvm.penalties import L2
from streamsvm.solvers import SOLVERS, OnlineSolver, Sgdqn, Zhang
from streamsvm.solvers.base import Problem, make_bias, objective_on

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own, at import
    liblinear = pytest.importorskip("liblinear.liblinearutil")
sklearn_linear = pytest.importorskip("sklearn.linear_model")
scipy_sparse = pytest.importorskip("scipy.sparse")
sklearn_svm = pytest.importorskip("sklearn.svm")

WIDTH = 25
ROWS = equal_weights(made_up(600, WIDTH, seed=21, longest=8, noise=1.5))
MATRIX, SIGNS = dense(ROWS, WIDTH), 2.0 * ROWS.labels.astype(float) - 1.0
KINDS = {"hinge": 3, "squared_hinge": 2, "logistic": 0}  # LIBLINEAR's -s
BIASES = {"penalised": 1.0, "none": -1.0, "penalised, scale 3": 3.0}  # and its -B

Solution = tuple[np.ndarray[Any, Any], float]


def problem_of(loss: str, l2: float, bias: float) -> Problem:
    return Problem(make_loss(loss), L2(l2), make_bias("none" if bias < 0 else "penalised", max(bias, 0.0)))


def liblinear_solution(loss: str, l2: float, bias: float) -> Solution:
    """w and b of LIBLINEAR at C = 1 / (l2 N), solved tightly."""
    rows = [{j + 1: float(x) for j, x in enumerate(row)} for row in MATRIX]
    options = f"-s {KINDS[loss]} -c {1.0 / (l2 * ROWS.rows):.17g} -B {bias} -e 1e-8 -q"
    model = liblinear.train(SIGNS.tolist(), rows, options)
    w, b = model.get_decfun()
    return np.array(w[:WIDTH]), float(b)


def liblinear_objective(loss: str, c: float, bias: float, solution: Solution) -> float:
    """1/2 ||w||^2 + C sum of losses, written down once more from LIBLINEAR's documentation."""
    w, b = solution
    short = np.maximum(0.0, 1.0 - SIGNS * (MATRIX @ w + b))
    sums = {
        "hinge": short.sum(),
        "squared_hinge": (short**2).sum(),
        "logistic": np.logaddexp(0.0, -SIGNS * (MATRIX @ w + b)).sum(),
    }
    return float(0.5 * (w @ w + ((b / bias) ** 2 if bias > 0 else 0.0)) + c * sums[loss])


@pytest.mark.parametrize("loss", list(KINDS))
@pytest.mark.parametrize("bias", list(BIASES.values()), ids=list(BIASES))
def test_objectives_are_l2_times_liblinears(loss: str, bias: float) -> None:
    l2 = 0.03
    problem = problem_of(loss, l2, bias)
    w, b = liblinear_solution(loss, l2, bias)
    ours = objective_on(problem, ROWS, w.astype(np.float32), b)
    theirs = liblinear_objective(loss, 1.0 / (l2 * ROWS.rows), bias, (w, b))
    assert ours == pytest.approx(l2 * theirs, rel=1e-5)
    for direction in np.random.default_rng(0).normal(size=(20, WIDTH)):  # it is this objective's optimum
        assert objective_on(problem, ROWS, (w + 0.01 * direction).astype(np.float32), b) > ours


@pytest.mark.parametrize("loss", list(KINDS))
@pytest.mark.parametrize("bias", list(BIASES.values()), ids=list(BIASES))
@pytest.mark.parametrize(
    ("name", "options", "passes", "within"),
    [
        ("asgd", {}, 60, 0.003),
        ("sgd", {}, 200, 0.004),
        ("pegasos", {}, 200, 0.004),
        ("pegasos", {"batch_size": 10, "project": False}, 200, 0.004),
        ("pegasos", {"average": True}, 60, 0.003),
        ("sgdqn", {}, 200, 0.01),
        ("sgdqn", {"skip": 1}, 200, 0.004),
        ("zhang", {"eta0": 0.003}, 200, 0.003),
    ],
    ids=["asgd", "sgd", "pegasos", "pegasos of 10", "pegasos averaged", "sgdqn", "sgdqn of 1", "zhang"],
)
def test_many_passes_approach_liblinears_optimum_from_above(
    name: str, options: dict[str, Any], passes: int, within: float, loss: str, bias: float
) -> None:
    l2 = 0.03
    problem = problem_of(loss, l2, bias)
    best = l2 * liblinear_objective(loss, 1.0 / (l2 * ROWS.rows), bias, liblinear_solution(loss, l2, bias))
    weights, b = run_passes(SOLVERS[name](problem, **options), [ROWS], passes).weights()
    reached = objective_on(problem, ROWS, weights, b)
    assert best * (1.0 - 1e-6) <= reached <= best * (1.0 + within)
    once = objective_on(problem, ROWS, *run_passes(SOLVERS[name](problem, **options), [ROWS]).weights())
    assert reached < once


def test_a_constant_step_keeps_its_distance() -> None:
    """The mean of zhang settles, further from the optimum the longer the steps; more passes do not help."""
    l2 = 0.03
    problem = problem_of("hinge", l2, 1.0)
    best = l2 * liblinear_objective("hinge", 1.0 / (l2 * ROWS.rows), 1.0, liblinear_solution("hinge", l2, 1.0))
    gaps = [
        [objective_on(problem, ROWS, *run_passes(Zhang(problem, eta0=eta0), [ROWS], passes).weights()) / best - 1.0]
        for eta0 in (0.1, 0.01)
        for passes in (200, 400)
    ]
    (long, long_later), (short, short_later) = np.reshape(gaps, (2, 2)).tolist()
    assert long > 5 * short > 0 and long_later == pytest.approx(long, rel=0.1) and short_later < 2 * short


def free_bias_gap(solver: type[OnlineSolver], **options: Any) -> tuple[float, float]:
    """How far above scikit-learn's objective, and how far from its unpenalised intercept."""
    l2 = 0.03
    problem = Problem(make_loss("logistic"), L2(l2), make_bias("free", 1.0))
    peer = sklearn_linear.LogisticRegression(C=1.0 / (l2 * ROWS.rows), tol=1e-10, max_iter=1000).fit(MATRIX, SIGNS)
    best = objective_on(problem, ROWS, peer.coef_[0].astype(np.float32), float(peer.intercept_[0]))
    weights, b = run_passes(solver(problem, **options), [ROWS], 200).weights()
    return objective_on(problem, ROWS, weights, b) / best - 1.0, abs(b - float(peer.intercept_[0]))


@pytest.mark.parametrize("name", list(SOLVERS))
def test_a_free_bias_approaches_scikit_learns_unpenalised_intercept(name: str) -> None:
    gap, distance = free_bias_gap(SOLVERS[name])
    assert -1e-6 <= gap <= 0.003 and distance < 0.1


def weighted_gap(solver: type[OnlineSolver], **options: Any) -> float:
    """How far above the objective that scikit-learn reaches with sample_weight."""
    l2 = 0.03
    weights = np.random.default_rng(5).choice([0.0, 0.5, 1.0, 3.0], size=ROWS.rows).astype(np.float32)
    rows = ROWS._replace(weights=weights)
    problem = Problem(make_loss("squared_hinge"), L2(l2))
    peer = sklearn_svm.LinearSVC(C=1.0 / (l2 * weights.sum()), tol=1e-8, max_iter=100_000, dual=False)
    peer.fit(MATRIX, SIGNS, sample_weight=weights)
    best = objective_on(problem, rows, peer.coef_[0].astype(np.float32), float(peer.intercept_[0]))
    return objective_on(problem, rows, *run_passes(solver(problem, **options), [rows], 100).weights()) / best - 1.0


@pytest.mark.parametrize("name", list(SOLVERS))
def test_weights_mean_what_scikit_learn_means_by_sample_weight(name: str) -> None:
    assert -1e-6 <= weighted_gap(SOLVERS[name]) <= 0.004


def test_those_exempt_from_this_approach_it_with_care() -> None:
    """Every row's curvature looked at, or a small constant step."""
    assert -1e-6 <= weighted_gap(Zhang, eta0=0.005) <= 0.004
    gap, distance = free_bias_gap(Zhang, eta0=0.005)
    assert -1e-6 <= gap <= 0.003 and distance < 0.05
    gap, distance = free_bias_gap(Sgdqn, skip=1)
    assert -1e-6 <= gap <= 0.006 and distance < 0.1


@pytest.mark.parametrize("name", list(SOLVERS))
def test_repeating_a_row_and_doubling_its_weight_lead_to_the_same_place(name: str) -> None:
    """Counting rows instead of weights would minimise another problem."""
    double = np.arange(ROWS.rows) % 3 == 0
    heavy = ROWS._replace(weights=np.where(double, 2, 1).astype(np.float32))
    repeated = [piece for i in range(ROWS.rows) for piece in [ROWS.slice(i, i + 1)] * (2 if double[i] else 1)]
    problem = Problem(make_loss("logistic"), L2(0.05))
    passes = 400 if name == "adagrad" else 100  # its steps get shorter by themselves: the end comes late
    first, b = run_passes(SOLVERS[name](problem), [heavy], passes).weights()
    second, other_b = run_passes(SOLVERS[name](problem), [concatenate(repeated)], passes).weights()
    assert np.abs(first - second).max() < 0.03 * np.abs(first).max() and abs(b - other_b) < 0.03


A9A = Path(__file__).parents[2] / "examples/data/a9a.train.svm.gz"


@pytest.mark.skipif(not A9A.exists(), reason="the sources come without examples")
@pytest.mark.parametrize("loss", list(KINDS))
def test_real_data_lead_to_liblinears_optimum_too(loss: str) -> None:
    """The first rows of a9a, as they are read from the file."""
    rows = concatenate([batch.copy() for batch in open_stream(str(A9A), limit=4000)])
    assert rows.rows == 4000
    rows = rows._replace(labels=(rows.labels > 0).astype(np.float32))
    l2 = 1e-3
    problem = problem_of(loss, l2, 1.0)
    columns = rows.indices.astype(np.int64)
    matrix = scipy_sparse.csr_matrix((rows.values.astype(float), columns, rows.indptr))
    options = f"-s {KINDS[loss]} -c {1.0 / (l2 * rows.rows):.17g} -B 1 -e 1e-6 -q"
    w, b = liblinear.train(2.0 * rows.labels.astype(float) - 1.0, matrix, options).get_decfun()
    best = objective_on(problem, rows, np.array(w, np.float32)[: rows.width], float(b))
    weights, b = run_passes(SOLVERS["asgd"](problem), [rows], 100).weights()
    assert best * (1.0 - 1e-5) <= objective_on(problem, rows, weights, b) <= best * 1.005


def test_one_pass_of_the_default_is_close_already() -> None:
    """On a stream long enough one pass of asgd needs no tuning."""
    rows = equal_weights(made_up(6000, WIDTH, seed=22, noise=1.0))
    l2 = 1e-3
    for loss in LOSSES:
        problem = Problem(make_loss(loss), L2(l2))
        once = objective_on(problem, rows, *run_passes(SOLVERS["asgd"](problem), [rows]).weights())
        often = objective_on(problem, rows, *run_passes(SOLVERS["asgd"](problem), [rows], 20).weights())
        assert often <= once * 1.0005 and once <= often * 1.02, loss
