"""Kernel learners: slow twins, the support vector machine of scikit-learn, and a budget that is kept at little loss."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_rows import batch_of, bits, cut, made_up, run_passes, spoil
from sklearn.metrics import pairwise
from sklearn.svm import SVC
from tiers import examples

from streamsvm.batch import Batch
from streamsvm.errors import ConfigError, DataError, DivergedError, ModelError
from streamsvm.losses import LOSSES, Hinge, Loss, SquaredHinge, make_loss
from streamsvm.penalties import L2
from streamsvm.progressive import Progressive
from streamsvm.solvers import Pegasos
from streamsvm.solvers import base as solver_base
from streamsvm.solvers.base import Bias, Problem, T, make_bias
from streamsvm.solvers.kernel_solvers import KERNEL_SOLVERS, KernelSolver, make_kernel_solver
from streamsvm.solvers.similarity import SIMILARITIES, make_similarity, squared_length
from streamsvm.solvers.support import expansion_of, rows_of, tiled, untiled
from streamsvm.solvers.upkeep import LIKES, SHARES, UPKEEP, merge_losses

Array = np.ndarray[Any, Any]
PENALISED, FREE, NONE = (make_bias(kind, 1.5) for kind in ("penalised", "free", "none"))
EVERY_SOLVER = pytest.mark.parametrize("name", list(KERNEL_SOLVERS))
EVERY_UPKEEP = pytest.mark.parametrize("upkeep", list(UPKEEP))
GAMMA = 0.7
HINGE = Hinge()


def dense_batch(rows: Array, codes: Any, weights: Any = None) -> Batch:
    made = rows_of(np.ascontiguousarray(rows, np.float32))
    weighted = made.weights if weights is None else np.asarray(weights, np.float32)
    return made._replace(labels=np.asarray(codes, np.float32), weights=weighted)


def rings(count: int, seed: int = 0, *, dim: int = 3, turned: bool = False) -> Batch:
    """No plane tells these classes apart: those near the middle from those around them; weights vary."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, dim)).astype(np.float32)
    inside = (rows * rows).sum(axis=1) < 0.8 * dim
    return dense_batch(rows, inside != turned, rng.choice([1.0, 1.0, 0.5, 2.0, 0.0], size=count))


ROWS = rings(300)
TEST = rings(2000, 1)._replace(weights=np.ones(2000, np.float32))


def made(name: str, *, loss: Loss = HINGE, l2: float = 1e-3, bias: Bias = PENALISED, **options: Any) -> KernelSolver:
    if name == "norma":
        options = {"eta0": 0.5} | options
    return make_kernel_solver(name, Problem(loss, L2(l2), bias), **{"dim": 3, "gamma": GAMMA} | options)


def matrix(batch: Batch, dim: int = 3) -> Array:
    whole = np.zeros((batch.rows, dim))
    for i in range(batch.rows):
        a, b = batch.indptr[i], batch.indptr[i + 1]
        whole[i, batch.indices[a:b]] = batch.values[a:b]
    return whole


def error(solver: KernelSolver, batch: Batch) -> float:
    return float(np.mean((solver.scores(batch) > 0) != (batch.labels > 0.5)))


def alike(kernel: str, left: Array, right: Array, degree: int = 3, coef0: float = 1.0) -> Array:
    if kernel == "rbf":
        found = pairwise.rbf_kernel(left, right, gamma=GAMMA)
    elif kernel == "polynomial":
        found = pairwise.polynomial_kernel(left, right, gamma=GAMMA, degree=degree, coef0=coef0)
    else:
        found = pairwise.linear_kernel(left, right)
    return np.asarray(found)


# Kernels.


@pytest.mark.parametrize("kernel", SIMILARITIES)
@pytest.mark.parametrize(("count", "dim"), [(1, 1), (31, 5), (33, 40), (70, 3)])
def test_kernels_are_those_of_scikit_learn(kernel: str, count: int, dim: int) -> None:
    rng = np.random.default_rng(count)
    supports, rows = (rng.normal(size=(n, dim)).astype(np.float32) for n in (count, 23))
    coefficients = rng.normal(size=count).astype(np.float32)
    similarity = make_similarity(kernel, GAMMA, 0.5, 4)
    found = expansion_of(similarity, supports, coefficients, 0.25).scores(dense_batch(rows, np.zeros(23)))
    likes = alike(kernel, rows.astype(float), supports.astype(float), 4, 0.5)
    assert np.allclose(found, likes @ coefficients + 0.25, rtol=0, atol=3e-6 * np.abs(likes).sum(axis=1).max())
    norm2 = coefficients @ alike(kernel, supports.astype(float), supports.astype(float), 4, 0.5) @ coefficients
    assert squared_length(similarity, tiled(supports), coefficients, dim) == pytest.approx(norm2, rel=1e-3)
    assert np.array_equal(untiled(tiled(supports), dim)[:count], supports)


def test_far_rows_are_not_alike_and_equal_ones_are() -> None:
    """The exponential is exact at 0, within a millionth where it counts, and nothing far away, however far."""
    apart = np.append(np.linspace(0.0, 12.0, 400), [30.0, 1e10, 1e30]).astype(np.float32)
    one = np.ones(1, np.float32)
    scores = expansion_of(make_similarity("rbf", 1.0), np.zeros((1, 1), np.float32), one, 0.0).scores(
        dense_batch(apart[:, None], np.zeros(len(apart)))
    )
    exact = np.exp(-(apart.astype(float) ** 2))
    near = exact > 1e-9
    assert scores[0] == 1.0 and (np.abs(scores - exact)[near] < 2e-6 * exact[near]).all()
    assert (scores[~near] < 1.1e-9).all()


def test_rows_may_be_sparse() -> None:
    whole = dense_batch(np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), [1, 0, 1])
    sparse = batch_of([{1: 2.0}, {0: 1.0}, {}], [1, 0, 1])
    states = [bits(run_passes(made("norma"), [rows], 3).state()) for rows in (whole, sparse)]
    assert states[0] == states[1]
    wide = batch_of([{1: 2.0, 7: 5.0}], [1])
    solver = run_passes(made("norma"), [whole])
    assert solver.scores(wide)[0] == solver.scores(sparse)[0]
    with pytest.raises(DataError, match="index 7 is out of range: rows have 3 numbers"):
        solver.learn(wide)


# Twins: the formulas on all rows in double, without a budget.


def twin(name: str, problem: Problem, eta0: float, rows: Batch, passes: int, average: bool) -> tuple[Array, float]:
    """Coefficients of all rows, and the bias."""
    loss, (l2,), bias = problem
    likes = alike("rbf", matrix(rows), matrix(rows))
    f, b, t = np.zeros(rows.rows), 0.0, 0.0
    mean, mean_b = f.copy(), 0.0
    for i in [i for _ in range(passes) for i in range(rows.rows) if rows.weights[i]]:
        c, label = float(rows.weights[i]), 2.0 * rows.labels[i] - 1.0
        slope = loss.slope(f @ likes[i] + b, label)
        keep = mass(t) / mass(t + c)
        t += c
        eta = eta0 / np.sqrt(1.0 + t / 1000.0) if name == "norma" else 1.0 / (l2 * t)
        rate = c * eta
        if loss.bend() and abs(slope) > loss.bend():
            rate = min(rate, 1.0 / (loss.bend() * (1.0 + bias.gain)))
        f *= 1.0 - c * eta * l2
        f[i] -= rate * slope
        b = b * (1.0 - c * eta * l2 * bias.decay) - rate * slope * bias.gain
        mean, mean_b = keep * mean + (1.0 - keep) * f, keep * mean_b + (1.0 - keep) * b
    return (mean, mean_b) if average else (f, b)


def mass(t: float) -> float:
    return t * (t + 1.0) * (t + 2.0) * (t + 3.0)


@EVERY_SOLVER
@pytest.mark.parametrize("loss", [make_loss(kind) for kind in LOSSES], ids=list(LOSSES))
@pytest.mark.parametrize(("bias", "average"), [(PENALISED, True), (FREE, False), (NONE, True)])
def test_solvers_equal_their_twins(name: str, loss: Loss, bias: Bias, average: bool) -> None:
    rows = ROWS.slice(0, 60)
    problem = Problem(loss, L2(0.2), bias)  # with less the first steps of pegasos make much of the least rounding
    solver = run_passes(made(name, loss=loss, l2=0.2, bias=bias, average=average), [rows], 3)
    coefficients, b = twin(name, problem, 0.5, rows, 3, average)
    expected = alike("rbf", matrix(TEST), matrix(rows)) @ coefficients + b
    scores = solver.scores(TEST)
    assert np.abs(scores - expected).max() < 1e-5 * max(1.0, np.abs(expected).max())
    assert solver.count <= np.count_nonzero(rows.weights)
    assert np.array_equal(expansion_of(solver.similarity, solver.supports(), *solver.weights()).scores(TEST), scores)


@pytest.mark.parametrize("average", [True, False])
def test_with_the_linear_kernel_pegasos_is_pegasos(average: bool) -> None:
    rows = made_up(200, 12, seed=3)
    problem = Problem(Hinge(), L2(0.05), PENALISED)
    linear = run_passes(Pegasos(problem, project=False, average=average), [rows], 3)
    kernel = make_kernel_solver("kernel_pegasos", problem, dim=12, gamma=1.0, kernel="linear", average=average)
    run_passes(kernel, [rows], 3)
    assert kernel.count < kernel.budget
    assert np.allclose(kernel.scores(rows), linear.scores(rows), rtol=0, atol=1e-4)
    weights, bias = linear.weights()
    assert np.allclose(kernel.weights()[0] @ kernel.supports(), weights, rtol=0, atol=1e-4)
    assert kernel.objective(0.5) == pytest.approx(problem.objective(weights, bias, 0.5), rel=1e-4)


@pytest.mark.parametrize(("kernel", "l2"), [("rbf", 0.02), ("polynomial", 0.5)])
def test_pegasos_comes_to_the_support_vector_machine(kernel: str, l2: float) -> None:
    rows = ROWS.slice(0, 120)._replace(weights=np.ones(120, np.float32))
    points, labels = matrix(rows), 2.0 * rows.labels - 1.0
    likes = alike(kernel, points, points, degree=2)
    solver = made("kernel_pegasos", l2=l2, bias=NONE, kernel=kernel, degree=2)
    run_passes(solver, [rows], 400)
    peer = dual_without_bias(likes, labels, 1.0 / (l2 * 120))
    losses = [float(np.maximum(0.0, 1.0 - labels * scores).mean()) for scores in (solver.scores(rows), likes @ peer)]
    best = 0.5 * l2 * peer @ likes @ peer + losses[1]
    assert best * 0.9999 < solver.objective(losses[0]) < 1.002 * best
    assert np.abs(solver.scores(rows) - likes @ peer).max() < 0.05


def dual_without_bias(likes: Array, labels: Array, ceiling: float) -> Array:
    """Coefficients of the support vector machine without a bias: coordinate descent on its dual."""
    alpha = np.zeros(len(labels))
    for _ in range(500):
        for i in range(len(labels)):
            margin = labels[i] * (likes[i] @ (alpha * labels))
            alpha[i] = min(ceiling, max(0.0, alpha[i] + (1.0 - margin) / likes[i, i]))
    return alpha * labels


def test_with_a_free_bias_the_decisions_are_those_of_scikit_learn() -> None:
    rows = ROWS.slice(0, 120)._replace(weights=np.ones(120, np.float32))
    peer = SVC(C=1.0 / (0.02 * 120), gamma=GAMMA, tol=1e-6).fit(matrix(rows), rows.labels)
    solver = run_passes(made("kernel_pegasos", l2=0.02, bias=FREE), [rows], 600)
    assert np.abs(solver.scores(TEST) - peer.decision_function(matrix(TEST))).max() < 0.15
    assert np.mean((solver.scores(TEST) > 0) == peer.predict(matrix(TEST))) > 0.98


# The budget.


@EVERY_SOLVER
@EVERY_UPKEEP
@pytest.mark.parametrize("kernel", SIMILARITIES)
def test_the_budget_is_kept(name: str, upkeep: str, kernel: str) -> None:
    for budget in (1, 2, 31, 32):
        solver = made(name, budget=budget, upkeep=upkeep, kernel=kernel, l2=0.1)
        for piece in cut(ROWS, range(0, 300, 7)):
            solver.learn(piece)
            assert solver.count <= budget
        coefficients, bias = solver.weights()
        assert solver.supports().shape == (budget, 3) and len(coefficients) == budget
        assert np.isfinite(solver.scores(TEST)).all() and np.isfinite(bias)


def test_twins_merge_exactly() -> None:
    """A support that is met again takes the step; two that became equal by merging lose nothing by it."""
    rows = np.array([[0.25, -1.0, 3.0], [5.0, 5.0, 5.0]])
    once = made("norma", average=False, bias=NONE, l2=1e-9)
    once.learn(dense_batch(rows[[0]], [1]))
    again = made("norma", average=False, bias=NONE, l2=1e-9)
    again.learn(dense_batch(rows[[0, 0]], [1, 1]))
    assert again.count == once.count == 1
    assert again.weights()[0][0] == pytest.approx(2.0 * once.weights()[0][0], rel=1e-3)
    solver = made("norma", average=False, bias=NONE, budget=2, l2=1e-9)
    solver.start_from(np.array([0.3, 0.4], np.float32), 0.0, rows[[0, 0]].astype(np.float32))
    solver.learn(dense_batch(rows[[1]], [1]))
    order = np.argsort(solver.weights()[0])
    assert solver.weights()[0][order] == pytest.approx([0.4998, 0.7], abs=1e-3)
    assert np.array_equal(solver.supports()[order], rows[::-1].astype(np.float32))
    assert solver.weights()[0].max() == pytest.approx(0.7, rel=1e-6)


@pytest.mark.parametrize("apart", [0.1, 0.5, 1.0, 1.7, 3.0])
@pytest.mark.parametrize(("a", "other"), [(0.5, 1.0), (1.0, 1.0), (-0.2, -3.0), (2.0, 0.3)])
@pytest.mark.parametrize("average", [False, True])
def test_a_merge_is_the_best_there_is(a: float, other: float, apart: float, average: bool) -> None:
    """The change of f, squared, against all places between the two with their best coefficient."""
    similarity = make_similarity("rbf", GAMMA)
    between = np.linspace(0.0, apart, 2001)
    kept = a * np.exp(-GAMMA * between**2) + other * np.exp(-GAMMA * (apart - between) ** 2)
    whole = a * a + other * other + 2.0 * a * other * np.exp(-GAMMA * apart**2)
    least = (whole - kept**2).min()
    table = merge_losses()
    m = min(abs(a), abs(other)) / abs(a + other)
    like = np.exp(-GAMMA * apart**2)
    looked_up = table[round(2 * SHARES * m), round(LIKES * like)] * (a + other) ** 2
    assert looked_up == pytest.approx(least, abs=0.02 * (a + other) ** 2)
    # The third row is far away and has the largest coefficient; after so many rows it does not change the mean.
    solver = made("norma", average=average, steps="constant", bias=NONE, budget=2, l2=1e-12, eta0=10.0)
    supports = np.zeros((2, 3), np.float32)
    supports[1, 0] = apart
    solver.start_from(np.array([a, other], np.float32), 0.0, supports)
    solver.scalars[T] = 1e12
    solver.learn(dense_batch(np.array([[0.0, 50.0, 0.0]]), [float(a > 0.0)]))
    near = np.abs(solver.supports()[:, 1]) < 1.0
    assert near.sum() == 1 and solver.count == 2
    point, coefficient = solver.supports()[near][0], float(solver.weights()[0][near][0])
    three = np.vstack([supports, point]).astype(np.float32)
    change = squared_length(similarity, tiled(three), np.array([a, other, -coefficient], np.float32), 3)
    assert change == pytest.approx(least, abs=1e-5 * whole)


@pytest.mark.parametrize("upkeep", ["project", "merge"])
@pytest.mark.parametrize(("average", "weights"), [(False, [4.0, -1.0, 0.0]), (True, [-1.0, -6.0, 0.0])])
def test_a_projection_loses_no_more_than_its_neighbours_cannot_say(
    upkeep: str, average: bool, weights: list[float]
) -> None:
    """Of three linear supports in a plane any two say all of the third; after so many rows a mean stays as it is."""
    options: dict[str, Any] = {"kernel": "linear", "upkeep": upkeep, "average": average, "steps": "constant"}
    solver = made("norma", **options, bias=NONE, budget=2, l2=1e-12, eta0=10.0)
    solver.start_from(np.array([2.0, -3.0], np.float32), 0.0, np.array([[1, 0, 0], [1, 2, 0]], np.float32))
    solver.scalars[T] = 1e12
    solver.learn(dense_batch(np.array([[0.5, 0.5, 0.0]]), [1]))
    assert solver.count == 2 and 1.0 not in solver.supports()[:, 0][solver.supports()[:, 1] == 0.0]
    assert np.allclose(solver.weights()[0] @ solver.supports(), weights, atol=1e-4)


def test_the_oldest_goes_first_and_the_smallest_where_that_is_wanted() -> None:
    rows = np.arange(1, 8)[:, None] * np.array([[10.0, 0.0, 0.0]])
    solver = made("norma", upkeep="oldest", budget=3, bias=NONE)
    run_passes(solver, [dense_batch(rows, np.ones(7))])
    assert sorted(solver.supports()[:, 0].tolist()) == [50.0, 60.0, 70.0]
    solver = made("norma", upkeep="smallest", budget=3, bias=NONE, l2=1e-9)
    run_passes(solver, [dense_batch(rows, np.ones(7), [3.0, 1.0, 5.0, 2.0, 4.0, 1.0, 0.5])])
    assert sorted(solver.supports()[:, 0].tolist()) == [10.0, 30.0, 50.0]


@EVERY_SOLVER
@pytest.mark.parametrize(("upkeep", "worse"), [("merge", 0.02), ("project", 0.04), ("smallest", 0.2), ("oldest", 0.25)])
def test_a_budget_costs_little(name: str, upkeep: str, worse: float) -> None:
    rows = rings(6000, 5)
    free = run_passes(made(name, budget=6000, l2=1e-4), [rows])
    tight = run_passes(made(name, budget=50, upkeep=upkeep, l2=1e-4), [rows])
    assert free.count > 300 and tight.count == 50
    assert error(free, TEST) < 0.05
    assert error(tight, TEST) < error(free, TEST) + worse


# What every online solver promises.


@EVERY_SOLVER
@EVERY_UPKEEP
@examples(10)
@given(
    points=st.lists(st.integers(0, 300), max_size=5),
    stop=st.integers(0, 5),
    loss=st.sampled_from(["hinge", "logistic"]),
)
def test_cuts_and_stops_change_nothing(name: str, upkeep: str, points: list[int], stop: int, loss: str) -> None:
    def make() -> KernelSolver:
        solver = made(name, budget=20, upkeep=upkeep, loss=make_loss(loss), l2=1e-2)
        solver.watch = Progressive(many=False)
        return solver

    whole, parts = make(), make()
    whole.learn(ROWS)
    whole.end_pass()
    for place, piece in enumerate(cut(ROWS, points)):
        parts.learn(piece)
        if place == stop:
            state, parts = parts.state(), make()
            parts.restore(state)
            spoil(state)
    parts.end_pass()
    assert bits(whole.state()) == bits(parts.state())


@pytest.mark.parametrize("upkeep", ["merge", "oldest"])
def test_a_step_size_is_chosen_and_cuts_do_not_change_it(upkeep: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver_base, "TRIAL_ROWS", 200)
    states = []
    for points in ([], [3, 150, 151, 250]):
        solver = made("norma", eta0=None, upkeep=upkeep, budget=40)
        for place, piece in enumerate(cut(ROWS, points)):
            solver.learn(piece)
            if place == 1:
                state, solver = solver.state(), made("norma", eta0=None, upkeep=upkeep, budget=40)
                solver.restore(state)
        solver.finish()
        states.append(bits(solver.state()))
    assert states[0] == states[1]
    assert solver.step_size is not None and 0.1 < solver.step_size < 64.0


def test_a_chosen_step_size_is_a_good_one() -> None:
    rows = rings(9000, 7)
    auto = run_passes(made("norma", eta0=None, budget=100, l2=1e-5), [rows])
    errors = [
        error(run_passes(made("norma", eta0=eta, budget=100, l2=1e-5), [rows]), TEST) for eta in (0.02, 0.5, 16.0)
    ]
    assert error(auto, TEST) < min(errors) + 0.01


def test_rows_of_weight_zero_are_not_there() -> None:
    with_them, without = (made("kernel_pegasos", budget=30) for _ in range(2))
    with_them.learn(ROWS)
    for i in np.flatnonzero(ROWS.weights):
        without.learn(ROWS.slice(int(i), int(i) + 1))
    assert np.array_equal(with_them.vector, without.vector)


def test_a_state_of_other_settings_is_refused() -> None:
    state = run_passes(made("norma", budget=30), [ROWS]).state()
    for other in (made("norma", budget=300), made("norma", budget=20), made("norma", budget=30, dim=4)):
        with pytest.raises(ModelError, match="not those of solver norma with these settings"):
            other.restore(state)


def test_known_supports_are_gone_on_from() -> None:
    first = run_passes(made("kernel_pegasos", budget=60), [ROWS])
    second = made("kernel_pegasos", budget=60)
    second.start_from(*first.weights(), first.supports())
    assert np.array_equal(second.scores(TEST), first.scores(TEST))
    second.scalars[T] = first.scalars[T]
    second.learn(ROWS)
    assert error(second, TEST) < error(first, TEST) + 0.03 < 0.2
    with pytest.raises(ConfigError, match="the model has 60 supports: set solver.budget to 60 or more"):
        made("kernel_pegasos", budget=59).start_from(*first.weights(), first.supports())
    with pytest.raises(ModelError, match="60 supports of 4 numbers"):
        made("kernel_pegasos", dim=4).start_from(*first.weights(), first.supports())


@EVERY_SOLVER
def test_memory_is_asked_for_before_it_is_taken(name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"500 supports of 100000 numbers: solver .* set solver\.budget to \d+ or"
    ) as no:
        made(name, dim=100_000, memory=100_000_000)
    found = re.search(r"budget to (\d+)", str(no.value))
    assert found
    assert made(name, dim=100_000, memory=100_000_000, budget=int(found[1])).count == 0


@EVERY_SOLVER
def test_divergence_names_pass_row_and_step_size(name: str) -> None:
    loud = dense_batch(np.full((4, 3), 1e18), [1, 0, 1, 0])
    solver = made(name, kernel="linear", l2=1e-4)
    with pytest.raises(DivergedError, match=r"diverged in pass 1 at row [234] with step size (?!0:)\S+: .*penalty\.l2"):
        run_passes(solver, [loud])
    with pytest.raises(DivergedError, match=r"diverged in pass 1 at row \d with step size"):
        run_passes(made(name, l2=1e-38, eta0=1e38) if name == "norma" else made(name, l2=1e-38), [ROWS.slice(0, 9)])


@EVERY_SOLVER
@pytest.mark.parametrize("loss", [SquaredHinge(), make_loss("logistic")])
def test_steep_losses_and_long_rows_do_not_explode(name: str, loss: Loss) -> None:
    rows = ROWS._replace(values=ROWS.values * np.float32(30.0))
    solver = run_passes(made(name, loss=loss, kernel="polynomial", degree=2, l2=1e-2, budget=40, eta0=1.0)
                        if name == "norma" else made(name, loss=loss, l2=1e-2, budget=40), [rows])  # fmt: skip
    assert np.isfinite(solver.scores(TEST)).all()


# What changes is followed.


def fed(solver: KernelSolver, rows: Batch, forget: int | None) -> KernelSolver:
    for a in range(0, rows.rows, 250):
        solver.learn(rows.slice(a, min(a + 250, rows.rows)))
        if forget is not None:
            solver.forget(forget)
    return solver


@EVERY_SOLVER
@pytest.mark.parametrize("average", [True, False])
def test_a_moving_target_is_followed(name: str, average: bool) -> None:
    before, after = rings(20_000, 2), rings(2_000, 3, turned=True)
    flipped = TEST._replace(labels=1.0 - TEST.labels)
    nimble, stubborn = (
        fed(made(name, l2=1e-4, budget=100, average=average), before, forget) for forget in (1000, None)
    )
    assert error(nimble, TEST) < 0.14 and error(stubborn, TEST) < 0.08
    old = np.abs(nimble.scores(TEST)).mean()
    fed(nimble, after, 1000)
    fed(stubborn, after, None)
    assert error(nimble, flipped) < 0.14
    assert not average or error(stubborn, flipped) > 0.2
    assert old > 0.3


@EVERY_SOLVER
def test_what_is_old_fades(name: str) -> None:
    """Rows of a far place, all on the right side of the margin, teach nothing: what was learned before them fades."""
    solver = fed(made(name, l2=1e-6, bias=NONE, average=False), ROWS, 100)
    before = np.abs(solver.scores(TEST)).mean()
    far = dense_batch(np.full((300, 3), 40.0), np.ones(300))
    for a in range(0, 300, 50):
        solver.learn(far.slice(a, a + 50))
        solver.forget(100)
    after = np.abs(solver.scores(TEST)).mean()
    assert 0.5 * np.exp(-3.0) < after / before < 2.0 * np.exp(-3.0)


def test_constant_steps_forget_by_themselves() -> None:
    """By 1 - eta0 l2 with each row."""
    solver = made("norma", steps="constant", eta0=0.5, l2=0.02, bias=NONE, average=False)
    solver.learn(dense_batch(np.zeros((1, 3)), [1]))
    assert solver.weights()[0] == pytest.approx([0.5], rel=1e-6)
    solver.learn(dense_batch(np.full((40, 3), 40.0), np.ones(40), np.full(40, 2.0)))
    assert solver.weights()[0][0] == pytest.approx(0.5 * 0.98**40, rel=1e-5)
    rooted = made("norma", eta0=0.5, l2=0.02, bias=NONE, average=False)
    rooted.learn(dense_batch(np.zeros((1, 3)), [1]))
    rooted.learn(dense_batch(np.full((4000, 3), 40.0), np.ones(4000)))
    assert rooted.weights()[0][0] > 10.0 * 0.5 * 0.99**4000


def test_both_take_the_same_options() -> None:
    for name in KERNEL_SOLVERS:
        solver = made(name, kernel="polynomial", degree=2, coef0=0.0, upkeep="oldest", average=True)
        assert not solver.averaged and solver.budget == 500 and solver.name == name
        other = solver.fresh(0.25)
        assert type(other) is type(solver) and other.similarity == solver.similarity and other.way == solver.way
