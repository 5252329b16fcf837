"""folos, adagrad and ftrl: twins without any laziness, exact zeros, the optimum of L1 and elastic net, long streams.

Formula twins are dense and in float64: folos applies its penalty to all features at every row. Exact twins have the
kernel's dtypes and order of operations.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from made_rows import batch_of, bits, cut, dense, equal_weights, made_up, run_passes
from test_twins import BIASES, NONE, PENALISED, ROWS, WIDTH, Row, Vector, bounded, close, dot, rows_of

from streamsvm.batch import Batch
from streamsvm.errors import DivergedError
from streamsvm.losses import Logistic, Loss, SquaredHinge, make_loss
from streamsvm.penalties import Penalty, make_penalty
from streamsvm.schedules import InverseRoot
from streamsvm.solvers import SOLVERS, Adagrad, Folos, Ftrl, OnlineSolver
from streamsvm.solvers.adagrad import BIAS_ROOT, DELTA
from streamsvm.solvers.base import LOSS, SCALE, SMALLEST_SCALE, STEP, Bias, Problem, T, make_bias, objective_on
from streamsvm.solvers.folos import DEBT
from streamsvm.solvers.ftrl import SLIGHT
from streamsvm.solvers.sgdqn import GOLDEN, NEXT

sklearn_linear = pytest.importorskip("sklearn.linear_model")
sklearn_svm = pytest.importorskip("sklearn.svm")

NAMES = ["folos", "adagrad", "ftrl"]
EVERY_SOLVER = pytest.mark.parametrize("name", NAMES)
PAIRS = {"l2": (0.02, 0.0), "l1": (0.0, 0.05), "elastic_net": (0.01, 0.06), "none": (0.0, 0.0)}
EVERY_PENALTY = pytest.mark.parametrize("kind", list(PAIRS))
SMOOTH_LOSS = pytest.mark.parametrize("loss", [make_loss("logistic"), make_loss("squared_hinge")])
Solution = tuple[Vector, float]


def soft(value: Vector, amount: Any) -> Vector:
    return np.sign(value) * np.maximum(0.0, np.abs(value) - amount)


def problem_of(loss: Loss, kind: str, bias: Bias = PENALISED) -> Problem:
    return Problem(loss, make_penalty(*PAIRS[kind]), bias)


# The formulas, in float64 and without laziness.


def folos_formula(problem: Problem, eta0: float, batch: Batch, passes: int) -> Solution:
    loss, penalty, bias = problem
    w, b, t = np.zeros(WIDTH), 0.0, 0.0
    matrix = dense(batch, WIDTH)[batch.weights > 0]
    for x, row in zip(np.tile(matrix, (passes, 1)), rows_of(batch, passes), strict=True):
        t += row.weight
        eta = 1.0 / (penalty.l2 * t + 1.0 / eta0) if penalty.l2 else eta0 / np.sqrt(1.0 + t / 1000.0)
        slope = loss.slope(float(w @ x) + b, row.label)
        step = slope * bounded(row.weight * eta, loss, slope, row, bias.gain)
        w, b = w - step * x, b - step * bias.gain
        w = soft(w, row.weight * eta * penalty.l1) / (1.0 + row.weight * eta * penalty.l2)
        b /= 1.0 + row.weight * eta * penalty.l2 * bias.decay
    return w, b


def shared(c: float, loss: Loss, slope: float, reach: float) -> float:
    """c, or less where one unit of it moves the score by slope times reach."""
    return min(c, 1.0 / (loss.bend() * reach)) if loss.bend() and abs(slope) > loss.bend() else c


def adagrad_formula(problem: Problem, eta0: float, batch: Batch, passes: int, lazy: bool = True) -> Solution:
    """The penalty at each use; or for l1, whose steps add up, at every row for all features."""
    loss, penalty, bias = problem
    w, squares, last = np.zeros(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH)
    b, b_squares, t, delta = 0.0, 0.0, 0.0, DELTA / eta0

    def paid(upto: float) -> Vector:
        s = eta0 / (delta + np.sqrt(squares)) * (upto - last)
        return soft(w, s * penalty.l1) / (1.0 + s * penalty.l2)

    for row in rows_of(batch, passes):
        x = np.zeros(WIDTH)
        x[row.indices] = row.values
        at = row.indices if lazy else slice(None)
        now = paid(t)
        slope = loss.slope(float(now @ x) + b, row.label)
        if slope or not lazy:
            w[at], last[at] = now[at], t
            squares += row.weight * (slope * x) ** 2
            b_squares += row.weight * slope * slope * bias.gain
            rates, b_rate = eta0 / (delta + np.sqrt(squares)), eta0 / (delta + np.sqrt(b_squares))
            step = slope * shared(row.weight, loss, slope, float(x * x @ rates) + bias.gain * b_rate)
            w -= step * rates * x
            b -= step * b_rate * bias.gain
        t += row.weight
        b /= 1.0 + row.weight * eta0 / (delta + np.sqrt(b_squares)) * penalty.l2 * bias.decay
    return paid(t), b


def ftrl_formula(problem: Problem, eta0: float, batch: Batch, passes: int, beta: float = 1.0) -> Solution:
    """As in the paper, with t l1 and t l2, and the bias as one more feature of value sqrt(gain)."""
    loss, penalty, bias = problem
    size = math.sqrt(bias.gain)
    z, n, t = np.zeros(WIDTH + 1), np.zeros(WIDTH + 1), 0.0
    l1, l2 = np.full(WIDTH + 1, penalty.l1), np.full(WIDTH + 1, penalty.l2)
    l1[-1], l2[-1] = 0.0, penalty.l2 * bias.decay

    def weights() -> Vector:
        return np.where(np.abs(z) <= t * l1, 0.0, -(z - np.sign(z) * t * l1) / ((beta + np.sqrt(n)) / eta0 + t * l2))

    for row in rows_of(batch, passes):
        x = np.zeros(WIDTH + 1)
        x[row.indices] = row.values
        x[-1] = size
        w = weights()
        slope = loss.slope(float(w @ x), row.label)
        grown = n + row.weight * (slope * x) ** 2
        sigma = (np.sqrt(grown) - np.sqrt(n)) / eta0
        reach = float(x * x @ (1.0 / ((beta + np.sqrt(grown)) / eta0 + t * penalty.l2)))
        z += slope * shared(row.weight, loss, slope, reach) * x - sigma * w
        n = grown
        t += row.weight
    return weights()[:-1], float(weights()[-1]) * size


FORMULAS: dict[str, Callable[..., Solution]] = {
    "folos": folos_formula,
    "adagrad": adagrad_formula,
    "ftrl": ftrl_formula,
}
STEPS = {"folos": 0.1, "adagrad": 0.3, "ftrl": 0.3}


@EVERY_SOLVER
@EVERY_PENALTY
@SMOOTH_LOSS
@BIASES
def test_solvers_are_their_formulas(name: str, kind: str, loss: Loss, bias: Bias) -> None:
    problem = problem_of(loss, kind, bias)
    solver = run_passes(SOLVERS[name](problem, eta0=STEPS[name], dim=WIDTH), [ROWS], 2)
    expected = FORMULAS[name](problem, STEPS[name], ROWS, 2)
    close(solver, expected, 5e-5)
    weights = solver.weights()[0]
    assert np.array_equal(weights == 0.0, expected[0] == 0.0)
    assert (0 < np.mean(weights == 0.0) < 1) == (problem.penalty.l1 > 0)
    assert not np.signbit(weights[weights == 0.0]).any()


@pytest.mark.parametrize("kind", ["l1", "elastic_net"])
def test_late_payment_is_exact(kind: str) -> None:
    """folos keeps l1 in double: nothing but the last rounding tells it from a penalty on all features at each row."""
    problem = problem_of(SquaredHinge(), kind)
    weights, b = run_passes(Folos(problem, eta0=0.1, dim=WIDTH), [ROWS], 20).weights()
    expected, expected_b = folos_formula(problem, 0.1, ROWS, 20)
    assert np.allclose(weights, expected, rtol=1e-7, atol=1e-12) and b == pytest.approx(expected_b, rel=1e-10)


def test_one_late_step_of_adagrad_is_as_many_steps_in_time() -> None:
    problem = problem_of(make_loss("logistic"), "l1")
    solver = run_passes(Adagrad(problem, eta0=0.3, dim=WIDTH), [ROWS], 2)
    close(solver, adagrad_formula(problem, 0.3, ROWS, 2, lazy=False), 5e-5)


def test_ftrl_has_its_beta_in_trials_too() -> None:
    problem = problem_of(make_loss("logistic"), "elastic_net")
    solver = Ftrl(problem, eta0=0.3, beta=7.0, dim=WIDTH)
    assert solver.fresh(0.5).beta == 7.0 and solver.fresh(0.5).step_size == 0.5
    close(run_passes(solver, [ROWS], 2), ftrl_formula(problem, 0.3, ROWS, 2, beta=7.0), 5e-5)
    assert np.isfinite(run_passes(Ftrl(problem, beta=0.0), [ROWS]).weights()[0]).all()


# To the last bit.


def soft32(value: Vector, amount: Any) -> Vector:
    return value - np.minimum(np.maximum(value, -amount), amount)


def gathered(w: Vector, row: Row) -> float:
    vector = np.zeros(WIDTH, np.float32)
    vector[row.indices] = w
    return dot(vector, row)


def reach_of(row: Row, roots: Vector, inverse: float, more: float, b_reach: float) -> float:
    for x, root in zip(row.values.astype(float).tolist(), roots.astype(float).tolist(), strict=True):
        b_reach += x * x / (root * inverse + more)
    return b_reach


def adagrad_twin(problem: Problem, eta0: float, rows: list[Row]) -> Solution:
    loss, penalty, bias = problem
    l1, l2, delta = np.float32(penalty.l1), np.float32(penalty.l2), np.float32(DELTA / eta0)
    w, root, last = np.zeros(WIDTH, np.float32), np.zeros(WIDTH, np.float32), np.zeros(WIDTH)
    t, b, b_root, wide = 0.0, 0.0, 0.0, DELTA / eta0

    def paid(at: Any) -> Vector:
        since = (eta0 * (t - last[at])).astype(np.float32)
        return soft32(w[at], since * (np.abs(w[at]) * l2 + l1) / (root[at] + delta + since * l2))

    for row in rows:
        now = paid(row.indices)
        slope = loss.slope(gathered(now, row) + b, row.label)
        if slope:
            g = np.float32(math.sqrt(row.weight) * slope) * row.values
            root[row.indices] = np.sqrt(root[row.indices] * root[row.indices] + g * g)
            b_root = math.sqrt(b_root * b_root + row.weight * slope * slope * bias.gain)
            b_reach = eta0 * bias.gain / (b_root + wide)
            reach = reach_of(row, root[row.indices], 1.0 / eta0, wide / eta0, b_reach)
            share = shared(row.weight, loss, slope, reach)
            w[row.indices] = now - np.float32(share * eta0 * slope) * row.values / (root[row.indices] + delta)
            last[row.indices] = t
            b -= share * slope * b_reach
        t += row.weight
        shrink = row.weight * eta0 * penalty.l2 * bias.decay
        b -= b * shrink / (b_root + wide + shrink)
    return paid(slice(None)), b


def by_turns(exact: Any, turn: float) -> Vector:
    """Exact numbers in single precision, up or down as `turn`, a part of the unit in the last place, says."""
    near = exact.astype(np.float32).astype(float)
    unit = (near * (1.0 + NEXT)).astype(np.float32).astype(float) - near
    found: Vector = (exact + turn * unit).astype(np.float32)
    return found


def ftrl_twin(problem: Problem, eta0: float, rows: list[Row]) -> Solution:
    loss, penalty, bias = problem
    z, root = np.zeros(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
    t, b, b_z, b_root, speed = 0.0, 0.0, 0.0, 0.0, np.float32(1.0 / eta0)

    def weights(at: Any) -> Vector:
        slack = np.float32(1.0 / eta0 + t * penalty.l2)
        return soft32(z[at], np.float32(t * penalty.l1)) / (root[at] * speed + slack)

    for row in rows:
        w = weights(row.indices)
        slack = float(np.float32(1.0 / eta0 + t * penalty.l2))
        slope = loss.slope(gathered(w, row) + b, row.label)
        t += row.weight
        if slope:
            turn, at = GOLDEN * t % 1.0 - 0.5, row.indices
            before, g = root[at], np.float32(math.sqrt(row.weight) * slope) * row.values
            grown_b = math.sqrt(b_root * b_root + row.weight * slope * slope * bias.gain)
            nearest = np.sqrt(before * before + g * g)
            reach = reach_of(row, nearest, 1.0 / eta0, slack, bias.gain / (grown_b / eta0 + slack))
            step = slope * shared(row.weight, loss, slope, reach)
            growth = g * g / np.maximum(before + nearest, np.float32(1e-37))
            grown = np.maximum(by_turns(before.astype(float) + growth.astype(float), turn), before)
            root[at] = np.where(nearest - before < SLIGHT * before, grown, nearest)
            move = w * ((root[at] - before) * speed) - np.float32(step) * row.values
            slight = (np.abs(move) < SLIGHT * np.abs(z[at])) & (move != 0.0)
            z[at] = np.where(slight, by_turns(z[at].astype(float) + move.astype(float), turn), z[at] + move)
            b_z += (grown_b - b_root) / eta0 * b - step * bias.gain
            b_root = grown_b
        b = b_z / ((1.0 + b_root) / eta0 + t * penalty.l2 * bias.decay)
    return weights(slice(None)), b


@BIASES
@pytest.mark.parametrize("eta0", [0.3, 5.0])
@pytest.mark.parametrize("kind", ["elastic_net", "none"])
@pytest.mark.parametrize("name", ["adagrad", "ftrl"])
def test_own_steps_equal_their_twin_to_the_last_bit(name: str, bias: Bias, eta0: float, kind: str) -> None:
    problem = problem_of(SquaredHinge(), kind, bias)
    weights, b = run_passes(SOLVERS[name](problem, eta0=eta0, dim=WIDTH), [ROWS], 3).weights()
    twin = {"adagrad": adagrad_twin, "ftrl": ftrl_twin}[name]
    expected, expected_b = twin(problem, eta0, rows_of(ROWS, 3))
    assert weights.tobytes() == expected.astype(np.float32).tobytes() and b == expected_b


# What weights() says is what the next row meets, and what a state holds.


@EVERY_SOLVER
@pytest.mark.parametrize("kind", ["elastic_net", "l1"])
def test_the_next_row_is_scored_with_the_weights_told(name: str, kind: str) -> None:
    problem = problem_of(make_loss("logistic"), kind)
    solver = SOLVERS[name](problem, eta0=0.5, dim=WIDTH)
    for i in range(60):
        row = ROWS.slice(i, i + 1)
        weights, b = solver.weights()
        told = objective_on(Problem(problem.loss, make_penalty(0.0)), row, weights, b)
        before = float(solver.scalars[LOSS])
        solver.learn(row)
        if row.weights[0]:
            assert (solver.scalars[LOSS] - before) / row.weights[0] == pytest.approx(told, rel=2e-5)


@EVERY_SOLVER
@pytest.mark.parametrize("kind", ["elastic_net", "l1", "none"])
def test_cuts_stops_and_growth_change_nothing(name: str, kind: str) -> None:
    problem = problem_of(make_loss("squared_hinge"), kind)
    straight = run_passes(SOLVERS[name](problem, eta0=0.5), [ROWS], 2)
    stopped = SOLVERS[name](problem, eta0=0.5)
    for number in (1, 2):
        stopped.begin_pass(number)
        for piece in cut(ROWS, range(7, ROWS.rows, 41)):
            stopped.learn(piece)
            state = stopped.state()
            stopped = SOLVERS[name](problem, eta0=0.5)
            stopped.restore(state)
    stopped.finish()
    assert bits(stopped.state()) == bits(straight.state())
    far = batch_of([{5000: 1.0, 3: 0.5}], [1])
    stopped.learn(far)
    roomy = SOLVERS[name](problem, eta0=0.5, dim=6000)
    run_passes(roomy, [ROWS], 2)
    roomy.learn(far)
    assert stopped.weights()[0].tobytes() == roomy.weights()[0][:5001].tobytes()


def test_a_feature_takes_no_more_room_than_its_problem_needs() -> None:
    sizes = {
        name: [SOLVERS[name](problem_of(Logistic(), kind), dim=1000).vector.nbytes // 1000 for kind in PAIRS]
        for name in NAMES
    }
    assert sizes == {"folos": [4, 16, 16, 4], "adagrad": [16, 16, 16, 8], "ftrl": [8, 8, 8, 8]}  # l2, l1, both, none


def test_adagrad_without_a_penalty_is_adagrad_with_almost_none() -> None:
    results = [
        run_passes(Adagrad(Problem(Logistic(), make_penalty(l2)), eta0=0.5, dim=WIDTH), [ROWS], 2).weights()
        for l2 in (0.0, 1e-30)
    ]
    assert results[0][0].tobytes() == results[1][0].tobytes() and results[0][1] == results[1][1]


# Known weights.


@EVERY_SOLVER
@EVERY_PENALTY
@pytest.mark.parametrize("t", [0.0, 1e5])
def test_known_weights_stand_at_the_time_learning_goes_on(name: str, kind: str, t: float) -> None:
    """A row without features teaches nothing, and one row's penalty is little: the weights are still what was given."""
    known = np.random.default_rng(4).normal(size=WIDTH).astype(np.float32)
    known[::3] = 0.0
    solver = SOLVERS[name](problem_of(Logistic(), kind, NONE), eta0=0.1)
    solver.start_from(known, 0.5)
    solver.scalars[T] = t
    assert solver.weights()[0].tobytes() == known.tobytes() and solver.weights()[1] == 0.5
    solver.learn(batch_of([{}], [1], [0.01]))
    weights, b = solver.weights()
    assert np.allclose(weights, known, rtol=1e-4, atol=1e-4) and b == pytest.approx(0.5, rel=1e-6)
    assert np.all(weights[::3] == 0.0)


@pytest.mark.parametrize("name", ["adagrad", "ftrl"])
def test_known_weights_take_shorter_steps_the_later_it_is(name: str) -> None:
    moves = []
    for t in (0.0, 100.0 * 100.0 * WIDTH):
        solver = SOLVERS[name](problem_of(Logistic(), "none"), eta0=0.1)
        solver.start_from(np.ones(WIDTH, np.float32), 0.0)
        solver.scalars[T] = t
        solver.learn(batch_of([{3: 1.0}], [0]))
        moves.append(1.0 - float(solver.weights()[0][3]))
    assert 30.0 < moves[0] / moves[1] < 300.0 and moves[1] > 0.0


@EVERY_SOLVER
def test_learning_goes_on_from_known_weights(name: str) -> None:
    """What was learned before is not lost, and what is new is still learned."""
    problem = Problem(Logistic(), make_penalty(1e-3, 1e-4))
    batch = equal_weights(made_up(2000, WIDTH, seed=31, noise=0.5))
    first, second = batch.slice(0, 1000), batch.slice(1000, 2000)
    before = run_passes(SOLVERS[name](problem), [first], 5)

    def going_on(rows: Batch, passes: int) -> float:
        after = SOLVERS[name](problem, eta0=before.step_size)
        after.start_from(*before.weights())
        after.scalars[T] = before.scalars[T]
        return objective_on(problem, rows, *run_passes(after, [rows], passes).weights())

    assert going_on(second, 1) < objective_on(problem, second, *before.weights())
    turned = second._replace(labels=1.0 - second.labels)
    assert going_on(turned, 5) < 0.6 * objective_on(problem, turned, *before.weights())


# Numbers that are too large, and numbers that only look so.


@EVERY_SOLVER
@EVERY_PENALTY
def test_a_last_row_that_overflows_is_not_a_model(name: str, kind: str) -> None:
    solver, rows = SOLVERS[name](problem_of(Logistic(), kind), eta0=1e6), batch_of([{0: 1.0}, {1: 3e38}], [1, 0])
    with pytest.raises(DivergedError, match=r"diverged in pass 1 at row \d with step size 1e\+06"):
        run_passes(solver, [rows])


@pytest.mark.parametrize("name", ["folos", "adagrad"])
def test_the_halves_of_a_double_are_not_numbers(name: str) -> None:
    """The lower half of a clock or a debt may look like a NaN in single precision; that is no divergence."""
    solver = run_passes(SOLVERS[name](problem_of(Logistic(), "elastic_net"), eta0=0.1), [ROWS])
    looks_bad = np.array([0x3F8000007FC00000], np.uint64).view(np.float64)  # a little more than 0.0078
    solver.vector.view(np.float64)[1 : 2 * WIDTH : 2] = looks_bad
    assert np.isnan(solver.vector).any()
    solver.end_pass()
    assert np.isfinite(solver.weights()[0]).all()


def test_weights_before_a_step_size_is_known_are_zero() -> None:
    for name in NAMES:
        solver = SOLVERS[name](problem_of(Logistic(), "elastic_net"))
        solver.learn(ROWS.slice(0, 20))
        assert solver.step_size is None and not solver.weights()[0].any()


# Sparse truth.


def mostly_irrelevant(rows: int, seed: int) -> Batch:
    """Ten features of 300 decide."""
    rng = np.random.default_rng(seed)
    truth = np.where(np.arange(10) % 2 == 0, 2.0, -2.0)
    matrix = np.hstack([rng.normal(size=(rows, 10)), np.zeros((rows, 290))])
    for i in range(rows):
        matrix[i, 10 + rng.choice(290, size=12, replace=False)] = rng.normal(size=12)
    codes = (matrix[:, :10] @ truth + 0.5 * rng.normal(size=rows) > 0).astype(float)
    features = [{int(j): float(row[j]) for j in np.flatnonzero(row)} for row in matrix]
    return batch_of(features, codes.tolist())


def error(solver: OnlineSolver, batch: Batch, width: int = 300) -> float:
    weights, b = solver.weights()
    return float(np.mean((dense(batch, width) @ weights + b > 0) != (batch.labels > 0)))


@EVERY_SOLVER
@pytest.mark.parametrize("pair", [(0.0, 0.01), (1e-4, 0.01)], ids=["l1", "elastic net"])
def test_what_does_not_matter_gets_a_weight_of_exactly_zero(name: str, pair: tuple[float, float]) -> None:
    train, test = mostly_irrelevant(1500, 1), mostly_irrelevant(500, 2)
    sparse = run_passes(SOLVERS[name](Problem(Logistic(), make_penalty(*pair)), dim=300), [train], 8)
    plain = run_passes(SOLVERS[name](Problem(Logistic(), make_penalty(1e-4)), dim=300), [train], 8)
    weights = sparse.weights()[0]
    assert np.mean(weights == 0.0) > 0.5 and np.all(weights[:10] != 0.0)
    assert np.mean(plain.weights()[0] == 0.0) < 0.01
    assert error(sparse, test) < min(0.12, error(plain, test) + 0.01)


# The optimum.

SMALL = equal_weights(made_up(500, 25, seed=41, longest=8, noise=1.5))
MATRIX, SIGNS = dense(SMALL, 25), 2.0 * SMALL.labels.astype(float) - 1.0


@lru_cache(typed=True)
def reference(loss: Loss, penalty: Penalty, bias: Bias) -> float:
    """The lowest objective, by accelerated proximal gradient steps over all rows; the bias is a feature of its own."""
    size = math.sqrt(bias.gain)
    matrix = np.hstack([MATRIX, np.full((len(MATRIX), 1), size)])
    curvature = (2.0 if isinstance(loss, SquaredHinge) else 0.25) * np.linalg.norm(matrix, 2) ** 2 / len(matrix)
    l1, l2 = np.full(26, penalty.l1), np.full(26, penalty.l2)
    l1[-1], l2[-1] = 0.0, penalty.l2 * bias.decay

    def gradient(w: Vector) -> Vector:
        scores = matrix @ w
        if isinstance(loss, SquaredHinge):
            slopes = -2.0 * SIGNS * np.maximum(0.0, 1.0 - SIGNS * scores)
        else:
            slopes = -SIGNS / (1.0 + np.exp(SIGNS * scores))
        return matrix.T @ slopes / len(matrix)

    w = ahead = np.zeros(26)
    for k in range(1500):
        eta = 1.0 / curvature
        following = soft(ahead - eta * gradient(ahead), eta * l1) / (1.0 + eta * l2)
        ahead = following + k / (k + 3.0) * (following - w)
        w = following
    return objective_on(Problem(loss, penalty, bias), SMALL, w[:-1].astype(np.float32), float(w[-1]) * size)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_the_reference_is_what_liblinear_finds(loss: str) -> None:
    l1 = 0.01
    problem = Problem(make_loss(loss), make_penalty(0.0, l1), NONE)
    options: dict[str, Any] = {"C": 1.0 / (l1 * SMALL.rows), "fit_intercept": False, "tol": 1e-8, "max_iter": 20_000}
    peer: Any
    if loss == "logistic":
        peer = sklearn_linear.LogisticRegression(solver="liblinear", l1_ratio=1.0, random_state=0, **options)
    else:
        peer = sklearn_svm.LinearSVC(penalty="l1", dual=False, random_state=0, **options)
    peer.fit(MATRIX, SIGNS)
    assert objective_on(problem, SMALL, peer.coef_[0].astype(np.float32), 0.0) == pytest.approx(
        reference(*problem), rel=1e-5
    )


@EVERY_SOLVER
@SMOOTH_LOSS
@pytest.mark.parametrize("pair", [(0.0, 0.01), (0.02, 0.01), (0.02, 0.0)], ids=["l1", "elastic net", "l2"])
@pytest.mark.parametrize("kind", ["penalised", "free", "none"])
def test_many_passes_approach_the_optimum_from_above(
    name: str, loss: Loss, pair: tuple[float, float], kind: str
) -> None:
    problem = Problem(loss, make_penalty(*pair), make_bias(kind, 1.5))
    best = reference(*problem)
    reached = objective_on(problem, SMALL, *run_passes(SOLVERS[name](problem), [SMALL], 100).weights())
    assert best * (1.0 - 1e-6) <= reached <= best * 1.004


@EVERY_SOLVER
def test_rare_features_end_where_frequent_ones_would(name: str) -> None:
    """A feature in one row of fifty: its penalty counts in all of them. Known optimum of a problem of one feature."""
    l2, l1 = 0.002, 0.001
    problem = Problem(Logistic(), make_penalty(l2, l1), NONE)
    rows = [{0: 1.0} if i % 50 == 7 else {1: 1.0} for i in range(400)]
    batch = batch_of(rows, [float(i % 50 == 7 or i % 2 == 0) for i in range(400)])
    weights, _ = run_passes(SOLVERS[name](problem, eta0=0.5), [batch], 400).weights()
    low, high = 0.0, 10.0
    for _ in range(60):  # l2 w + l1 = mean gradient, which falls with w
        middle = 0.5 * (low + high)
        low, high = (middle, high) if l2 * middle + l1 < 0.02 / (1.0 + math.exp(middle)) else (low, middle)
    assert low > 1.0 and weights[0] == pytest.approx(low, rel=0.03) and abs(weights[1]) < 0.2


# Long streams.


def test_debts_of_a_hundred_million_rows_are_exact() -> None:
    """What one feature owes for a thousand rows, after 10^8: nothing is lost to the size of the sums."""
    for l2, scale in ((0.0, 1.0), (1e-6, 0.02)):
        solver = Folos(Problem(Logistic(), make_penalty(l2, 1e-6), NONE), eta0=0.5, dim=2)
        t, schedule = 1e8, solver.schedule()
        rate = schedule.rate(t)
        debt = 1e8 * rate * 1e-6 / scale  # as many rows owe
        solver.scalars[[T, DEBT, SCALE]] = t, debt, scale
        solver.vector.view(np.float64)[:] = [3.0, debt, 0.0, 0.0]
        before = float(solver.weights()[0][0])
        assert before == pytest.approx(3.0 * scale)
        solver.learn(batch_of([{1: 1e-3}] * 1000, [float(i % 2) for i in range(1000)]))
        w = 3.0 * scale
        for row in range(1, 1001):
            w = (w - schedule.rate(t + row) * 1e-6) / (1.0 + schedule.rate(t + row) * l2)
        owed = solver.scalars[DEBT] - debt
        exact, size = 0.0, scale
        for row in range(1, 1001):
            exact += schedule.rate(t + row) * 1e-6 / size
            size /= 1.0 + schedule.rate(t + row) * l2
        assert owed == pytest.approx(exact, rel=1e-6)
        assert solver.weights()[0][0] == pytest.approx(w, rel=1e-6)


def test_clocks_of_a_hundred_million_rows_are_exact() -> None:
    """A feature used again after three rows pays for three, not for the nearest number of single precision."""
    l2, l1, eta0, t = 0.05, 0.01, 0.5, 1e8
    solver = Adagrad(Problem(Logistic(), make_penalty(l2, l1), NONE), eta0=eta0, dim=2)
    solver.vector[[0, 1]] = 0.75, 2.0
    solver.scalars[T] = t + 3.0
    solver.vector.view(np.float64)[1] = t
    s = 3.0 * eta0 / (2.0 + DELTA / eta0)
    w = (0.75 - s * l1) / (1.0 + s * l2)
    assert solver.weights()[0][0] == pytest.approx(w, rel=1e-6)
    solver.learn(batch_of([{0: 1.5}], [0]))
    slope = 1.0 / (1.0 + math.exp(-1.5 * w))
    rate = eta0 / (math.sqrt(4.0 + (1.5 * slope) ** 2) + DELTA / eta0)
    w = (w - rate * 1.5 * slope - rate * l1) / (1.0 + rate * l2)
    assert solver.weights()[0][0] == pytest.approx(w, rel=1e-6)
    assert solver.vector.view(np.float64)[1] == t + 3.0 and solver.scalars[BIAS_ROOT] == 0.0


def test_thresholds_of_a_hundred_million_rows_are_exact() -> None:
    l2, l1, eta0, t = 1e-7, 1e-6, 0.5, 1e8
    solver = Ftrl(Problem(Logistic(), make_penalty(l2, l1), NONE), eta0=eta0, dim=2)
    z, root = 150.0, 40.0
    solver.vector[[0, 1]] = z, root
    solver.scalars[T] = t
    w = (z - t * l1) / ((1.0 + root) / eta0 + t * l2)
    assert solver.weights()[0][0] == pytest.approx(w, rel=1e-6)
    solver.learn(batch_of([{0: 1.5}], [0]))
    g = 1.5 / (1.0 + math.exp(-1.5 * w))
    grown = math.sqrt(root * root + g * g)
    z -= g - (grown - root) / eta0 * w
    assert solver.vector[0] == pytest.approx(z, rel=1e-6)
    w = (z - (t + 1.0) * l1) / ((1.0 + grown) / eta0 + (t + 1.0) * l2)
    assert solver.weights()[0][0] == pytest.approx(w, rel=1e-6)


def test_ftrl_adds_up_changes_below_a_unit_in_the_last_place() -> None:
    """As after 10^9 rows: a z (of feature 0) and a root (of 1) that single precision would not change, in doubles."""
    eta0, l2, t, rows = 0.5, 1e-7, 1e9, 40_000
    solver = Ftrl(Problem(Logistic(), make_penalty(l2), NONE), eta0=eta0, dim=2)
    z, roots, x = np.array([-20_000.0, 0.0]), np.array([10_000.0, 10_000.0]), np.array([1e-3, 1.0])
    solver.vector[:] = z[0], roots[0], z[1], roots[1]
    solver.scalars[T] = t
    labels = np.minimum(np.arange(rows) % 4, 1)
    solver.learn(batch_of([{0: 1e-3, 1: 1.0}] * rows, labels.tolist()))
    for row in range(rows):
        w = z / ((1.0 + roots) / eta0 + (t + row) * l2)
        g = (1.0 / (1.0 + math.exp(-float(w @ x))) - labels[row]) * x
        grown = np.sqrt(roots**2 + g**2)
        z, roots = z - g + (grown - roots) / eta0 * w, grown
    assert abs(solver.vector[3] - roots[1]) < 0.02 * (roots[1] - 10_000.0)
    assert abs(solver.vector[0] - z[0]) < 0.02 * (z[0] + 20_000.0) and z[0] > -19_999.0


def test_folos_is_written_out_before_its_scale_gets_too_small() -> None:
    """With a strong penalty the scale falls fast; everyone pays then, and nothing is lost."""
    for l1 in (0.0, 0.001):
        problem = Problem(Logistic(), make_penalty(4.0, l1), PENALISED)
        batch = ROWS.slice(0, 60)._replace(weights=(1.5 ** np.arange(60.0)).astype(np.float32))
        solver = Folos(problem, eta0=1e4, dim=WIDTH)
        scales = []
        for i in range(batch.rows):
            solver.learn(batch.slice(i, i + 1))
            scales.append(float(solver.scalars[SCALE]))
        assert np.sum(np.diff(scales) > 0) >= 1 and min(scales) >= SMALLEST_SCALE
        close(solver, folos_formula(problem, 1e4, batch, 1), 1e-4)


def test_the_schedule_without_l2_falls_with_the_root_of_time() -> None:
    assert InverseRoot(0.5).rate(0.0) == 0.5 and InverseRoot(0.5).rate(3000.0) == 0.25
    assert InverseRoot(0.5, 10.0).rate(990.0) == pytest.approx(0.05)
    folos = Folos(Problem(Logistic(), make_penalty(0.0, 0.1)), eta0=0.5)
    assert folos.schedule() == InverseRoot(0.5) and folos.scalars[STEP] == 0.5
    assert Folos(Problem(Logistic(), make_penalty(0.1)), eta0=0.5).schedule().rate(0.0) == pytest.approx(0.5)
