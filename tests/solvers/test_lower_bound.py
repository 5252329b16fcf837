"""The lower bound that sgd and pegasos prove on the way: never above the optimum, close to it, None where unproven.

The optimum is always stood in for by the objective of some weights, in double precision: that cannot be below it.
"""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from made_rows import batch_of, bits, cut, dense, equal_weights, made_up, run_passes, select

from streamsvm import open_stream
from streamsvm.batch import Batch, Int64s, concatenate
from streamsvm.jit import inlined, kernel
from streamsvm.losses import Hinge, Logistic, SmoothedHinge, SquaredHinge
from streamsvm.penalties import L2
from streamsvm.rows import measured_axpy, row_axpy
from streamsvm.solvers import SOLVERS, Asgd, OnlineSolver, Pegasos, Sgd, base, pegasos, sgd
from streamsvm.solvers.base import PASS, ROUNDING, SCALE, WEIGHT, Bias, Problem, T, make_bias, objective_on

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own, at import
    liblinear = pytest.importorskip("liblinear.liblinearutil")
scipy_sparse = pytest.importorskip("scipy.sparse")

Array = np.ndarray[Any, Any]


# The optimum, three times: by coordinate ascent, by LIBLINEAR, and in one line where every row violates its margin.


@inlined
def dot(left, right):
    total = 0.0
    for j in range(len(left)):
        total += left[j] * right[j]
    return total


@kernel
def coordinate_ascent(matrix, signs, weights, l2, tolerance, sweeps):
    """The least primal value met while the dual is maximised, one alpha at a time, and the gap that is left."""
    rows, width = matrix.shape
    total = weights.sum()
    alpha, w = np.zeros(rows), np.zeros(width)
    best, gap = np.inf, np.inf
    for sweep in range(sweeps):
        for i in range(rows):
            norm2, upper = dot(matrix[i], matrix[i]), weights[i] / (l2 * total)
            wanted = upper  # a row of length zero: its loss is 1 whatever w is
            if norm2 > 0.0:
                wanted = alpha[i] + (1.0 - signs[i] * dot(matrix[i], w)) / norm2
            new = min(max(wanted, 0.0), upper)
            for j in range(width):
                w[j] += (new - alpha[i]) * signs[i] * matrix[i, j]
            alpha[i] = new
        if sweep % 8 == 7:
            value = 0.5 * l2 * dot(w, w)
            dual = l2 * alpha.sum() - value
            for i in range(rows):
                value += weights[i] / total * max(0.0, 1.0 - signs[i] * dot(matrix[i], w))
            best = min(best, value)
            gap = best - dual
            if gap <= tolerance * best:
                break
    return best, gap


def with_bias(batch: Batch, scale: float) -> Array:
    """The rows in double precision, and the bias as one more feature."""
    return np.column_stack([dense(batch, max(batch.width, 1)), np.full(batch.rows, scale)])


def signs_of(batch: Batch) -> Array:
    return 2.0 * batch.labels.astype(float) - 1.0


def primal(matrix: Array, batch: Batch, l2: float, w: Array) -> float:
    weights = batch.weights.astype(float)
    losses = np.maximum(0.0, 1.0 - signs_of(batch) * (matrix @ w))
    return float(0.5 * l2 * (w @ w) + weights @ losses / weights.sum())


def liblinear_optimum(batch: Batch, l2: float, scale: float, tolerance: float = 1e-10) -> float:
    """By LIBLINEAR, which knows no weights: a row of weight 3 is given three times."""
    repeated = select(batch, np.repeat(np.arange(batch.rows), batch.weights.astype(int)).tolist())
    columns = repeated.indices.astype(np.int64)
    matrix = scipy_sparse.csr_matrix(
        (repeated.values.astype(float), columns, repeated.indptr), (repeated.rows, max(batch.width, 1))
    )
    options = f"-s 3 -c {1.0 / (l2 * repeated.rows):.17g} -B {scale or -1} -e {tolerance} -q"
    w, b = liblinear.train(signs_of(repeated), matrix, options).get_decfun()
    solution = np.append(w[: matrix.shape[1]], b / scale if scale else 0.0)
    rows = scipy_sparse.hstack([matrix, np.full((repeated.rows, 1), scale)]).tocsr()
    # With one class only LIBLINEAR does not say which; either way it is a primal value.
    return min(primal(rows, equal_weights(repeated), l2, sign * solution) for sign in (1.0, -1.0))


def optimum_of_violations(batch: Batch, l2: float) -> float:
    """Every row violates its margin, and w is the sum of them all: the dual has all alpha at their bounds."""
    matrix, total = dense(batch, batch.width), float(batch.weights.sum())
    w = (batch.weights * signs_of(batch)) @ matrix / (l2 * total)
    assert (signs_of(batch) * (matrix @ w)).max() < 1.0
    return primal(matrix, batch, l2, w)


# Problems of every kind.


class Case(NamedTuple):
    batch: Batch
    l2: float
    scale: float  # of the bias; 0 where there is none
    passes: int


def random_case(rng: np.random.Generator, *, whole_weights: bool = False) -> Case:
    rows, width = int(rng.integers(1, 26)), int(rng.integers(1, 6))
    matrix = rng.normal(size=(rows, width)) * 10.0 ** rng.uniform(-1.0, 1.0)
    matrix[rng.random(matrix.shape) < rng.choice([0.0, 0.5, 0.9])] = 0.0  # rows without features among them
    codes = (matrix @ rng.normal(size=width) + rng.normal(size=rows) > rng.choice([-1.0, 0.0, 1.0])).astype(float)
    if rng.random() < 0.15:
        codes[:] = rng.integers(2)
    if rng.random() < 0.3:
        again = rng.integers(0, rows, size=rows)
        matrix, codes = matrix[again], codes[again]
    kinds = [[1.0], [0.0, 1.0, 2.0, 3.0]] if whole_weights else [[1.0], [0.0, 0.1, 0.5, 1.0, 3.0], [0.01, 0.3]]
    weights = rng.choice(kinds[rng.integers(len(kinds))], size=rows)
    weights[rng.integers(rows)] = 1.0 if whole_weights else rng.choice([0.3, 1.0])  # not all are zero
    features = [{int(j): float(row[j]) for j in np.flatnonzero(row)} for row in matrix]
    l2 = 10.0 ** rng.uniform(-3.0, 1.0)
    scale = 0.0 if rng.random() < 0.3 else float(rng.uniform(0.3, 3.0))
    return Case(batch_of(features, codes.tolist(), weights.tolist()), l2, scale, int(rng.integers(1, 6)))


def hinge(l2: float, scale: float) -> Problem:
    return Problem(Hinge(), L2(l2), make_bias("penalised" if scale else "none", scale))


def random_solver(rng: np.random.Generator, name: str, case: Case) -> OnlineSolver:
    problem = hinge(case.l2, case.scale)
    if name == "sgd":
        return Sgd(problem, eta0=10.0 ** rng.uniform(-4.0, 8.0))
    size = int(rng.integers(1, 8))
    return Pegasos(problem, batch_size=size, project=bool(rng.integers(2)), average=bool(rng.integers(2)))


def bounds_on_the_way(rng: np.random.Generator, solver: OnlineSolver, case: Case) -> Iterator[float]:
    """After each pass, in a new order each; mini-batches are open then. And at the end, when they are closed."""
    for number in range(1, case.passes + 1):
        order: Int64s = rng.permutation(case.batch.rows)
        solver.begin_pass(number)
        at = int(rng.integers(case.batch.rows + 1))
        solver.learn(case.batch, order[:at])
        solver.learn(case.batch, order[at:])
        solver.end_pass()
        bound = solver.lower_bound()
        assert bound is not None
        yield bound
    solver.finish()
    bound = solver.lower_bound()
    assert bound is not None
    yield bound


def check(rng: np.random.Generator, case: Case, best: float) -> list[bool]:
    """No bound of either solver is above the optimum; says of both whether the last is within a hundredth of it."""
    close = []
    for name in ("sgd", "pegasos"):
        solver = random_solver(rng, name, case)
        bounds = list(bounds_on_the_way(rng, solver, case))
        assert min(bounds) >= 0.0 and max(bounds) <= best, (name, vars(solver), case, bounds, best)
        close.append(bounds[-1] > 0.99 * best)
    return close


def test_no_bound_is_above_the_optimum() -> None:
    solved, close = [], []
    for seed in range(2000):
        rng = np.random.default_rng(seed)
        case = random_case(rng)
        weights = case.batch.weights.astype(float)
        matrix, signs = with_bias(case.batch, case.scale), signs_of(case.batch)
        best, gap = coordinate_ascent(matrix, signs, weights, case.l2, 1e-10, 2000)
        close.append(check(rng, case, best))
        solved.append(gap <= 1e-9 * best)
    assert np.mean(solved) > 0.9  # otherwise there would be room above the optimum
    assert np.mean(close, axis=0).min() > 0.3


def test_no_bound_is_above_what_liblinear_finds() -> None:
    close = []
    for seed in range(200):
        rng = np.random.default_rng(10_000 + seed)
        case = random_case(rng, whole_weights=True)
        close.append(check(rng, case, liblinear_optimum(case.batch, case.l2, case.scale)))
    assert np.mean(close, axis=0).min() > 0.3


def test_both_references_agree() -> None:
    """LIBLINEAR stops after a number of sweeps, so it is not always there; but never below."""
    ratios = []
    for seed in range(100):
        batch, l2, scale, _ = random_case(np.random.default_rng(10_000 + seed), whole_weights=True)
        weights = batch.weights.astype(float)
        best, gap = coordinate_ascent(with_bias(batch, scale), signs_of(batch), weights, l2, 1e-10, 2000)
        ratios.append(liblinear_optimum(batch, l2, scale) / (best - gap))
    assert min(ratios) > 1.0 - 1e-9 and np.mean(np.array(ratios) < 1.0 + 1e-6) > 0.8


# Where there is a bound.

ROWS = made_up(80, 12, seed=3, noise=1.0)
MAKERS = {
    "sgd": lambda problem: Sgd(problem, eta0=0.3),
    "sgd, step size by trial": lambda problem: Sgd(problem),
    "pegasos": lambda problem: Pegasos(problem),
    "pegasos of 7": lambda problem: Pegasos(problem, batch_size=7, average=True),
}
EVERY_MAKER = pytest.mark.parametrize("make", list(MAKERS.values()), ids=list(MAKERS))


def optimum(batch: Batch, l2: float, scale: float) -> float:
    weights = batch.weights.astype(float)
    best, gap = coordinate_ascent(with_bias(batch, scale), signs_of(batch), weights, l2, 1e-10, 20_000)
    assert gap < 1e-8
    return float(best)


@EVERY_MAKER
def test_in_the_middle_of_a_later_pass_there_is_none(make: Any) -> None:
    """Some rows were visited more often than others; in the first pass it is the bound of what was seen."""
    solver = make(hinge(0.1, 1.0))
    assert solver.lower_bound() is None  # nothing learned, nothing proven
    solver.begin_pass(1)
    for seen, piece in zip((40, 80), cut(ROWS, [40]), strict=True):
        solver.learn(piece)
        if solver._trial is None:
            bound = solver.lower_bound()
            assert bound is not None and bound <= optimum(ROWS.slice(0, seen), 0.1, 1.0)
    solver.end_pass()
    after_one = solver.lower_bound()
    assert after_one is not None
    solver.begin_pass(2)
    for piece in cut(ROWS, [1, 40, 79])[:3]:
        solver.learn(piece)
        assert solver.lower_bound() is None
    solver.learn(ROWS.slice(79, 80))
    after_two = solver.lower_bound()
    assert after_two is not None and after_one < after_two <= optimum(ROWS, 0.1, 1.0)


@EVERY_MAKER
def test_it_survives_a_restart_and_changes_nothing(make: Any) -> None:
    solver = run_passes(make(hinge(0.1, 1.0)), [ROWS], 2)
    before = bits(solver.state())
    bound = solver.lower_bound()
    other = make(hinge(0.1, 1.0))
    other.restore(solver.state())
    assert bound is not None and other.lower_bound() == bound and bits(solver.state()) == before


def test_how_rows_are_cut_does_not_change_it() -> None:
    for make in MAKERS.values():
        whole, parts = (run_passes(make(hinge(0.1, 1.0)), cut(ROWS, at), 3) for at in ([], [3, 3, 50]))
        assert whole.lower_bound() == parts.lower_bound()


@EVERY_MAKER
def test_it_is_none_where_nothing_is_proven(make: Any) -> None:
    """The same figures, as they would be of another problem."""
    penalised, none, free = (make_bias(kind, 1.5) for kind in ("penalised", "none", "free"))
    trained = run_passes(make(Problem(Hinge(), L2(0.1), penalised)), [ROWS], 2)

    def bound(loss: Any, bias: Bias) -> float | None:
        solver = make(Problem(loss, L2(0.1), bias))
        solver.restore(trained.state())
        value: float | None = solver.lower_bound()
        return value

    assert bound(Hinge(), penalised) is not None and bound(Hinge(), none) is not None
    assert bound(Hinge(), make_bias("penalised", 0.0)) is not None
    assert bound(Hinge(), free) is None
    for loss in (Hinge(2.0), Hinge(0.5), SquaredHinge(), SmoothedHinge(), Logistic()):
        assert bound(loss, penalised) is None


@EVERY_MAKER
def test_it_is_none_after_a_warm_start(make: Any) -> None:
    for begin in (np.ones(12, np.float32), np.zeros(12, np.float32), np.empty(0, np.float32)):
        solver = make(hinge(0.1, 1.0))
        solver.start_from(begin, 0.5)
        assert run_passes(solver, [ROWS], 2).lower_bound() is None
        other = make(hinge(0.1, 1.0))
        other.restore(solver.state())
        assert other.lower_bound() is None


def test_asgd_has_none() -> None:
    assert Asgd(hinge(0.1, 1.0), eta0=0.1).lower_bound() is None
    assert {name for name, solver in SOLVERS.items() if "lower_bound" in vars(solver)} == {"sgd", "pegasos"}


def test_rows_that_say_nothing() -> None:
    """Without features and without a bias every loss is 1, and the bound knows it."""
    silent = batch_of([{}, {}, {4: 0.0}], [1, 0, 1], [1.0, 0.5, 0.0])
    for make in (lambda: Sgd(hinge(0.1, 0.0), eta0=0.01), lambda: Pegasos(hinge(0.1, 0.0), batch_size=3)):
        assert run_passes(make(), [silent], 3).lower_bound() == pytest.approx(1.0, abs=1e-6)
        assert run_passes(make(), [silent.slice(2, 3)], 3).lower_bound() is None  # weight 0: there is no problem


# How close it is.


@pytest.mark.parametrize(
    ("make", "gaps"),
    [
        (lambda problem: Sgd(problem), (0.055, 0.014, 0.004)),
        (lambda problem: Pegasos(problem), (0.075, 0.018, 0.005)),
        (lambda problem: Pegasos(problem, batch_size=7, project=False), (0.09, 0.021, 0.006)),
    ],
    ids=["sgd", "pegasos", "pegasos of 7"],
)
def test_it_closes_in_on_the_optimum(make: Any, gaps: tuple[float, ...]) -> None:
    rows = equal_weights(made_up(2000, 30, seed=5))
    rows = rows._replace(values=rows.values / 3)  # about one long
    best = liblinear_optimum(rows, 1e-2, 1.0)
    found = []
    for passes, gap in zip((1, 5, 20), gaps, strict=True):
        bound = run_passes(make(hinge(1e-2, 1.0)), [rows], passes).lower_bound()
        assert bound is not None and best * (1.0 - gap) <= bound <= best
        found.append(best - bound)
    assert found[0] > 2.5 * found[1] > 6.25 * found[2]


def test_small_steps_do_not_leave_it_near_zero() -> None:
    """t0 = 1 / (l2 eta0) is then far larger than the number of rows, and all alpha far below their bounds."""
    best = optimum(ROWS, 0.1, 1.0)
    for eta0 in (1e-3, 1e-5, 1e-9):
        bound = run_passes(Sgd(hinge(0.1, 1.0), eta0=eta0), [ROWS], 3).lower_bound()
        assert bound is not None and 0.3 * best < bound <= best


A9A = Path(__file__).parents[2] / "examples/data/a9a.train.svm.gz"


@pytest.mark.skipif(not A9A.exists(), reason="the sources come without examples")
def test_on_real_data() -> None:
    rows = concatenate([batch.copy() for batch in open_stream(str(A9A))])
    rows = rows._replace(labels=(rows.labels > 0).astype(np.float32))
    assert rows.rows == 32_561
    for l2, within in ((1e-3, {"sgd": 0.06, "pegasos": 0.1}), (1e-4, {"sgd": 0.12, "pegasos": 0.3})):
        best = liblinear_optimum(rows, l2, 1.0, tolerance=0.01)
        for name, gap in within.items():
            solver = run_passes(SOLVERS[name](hinge(l2, 1.0)), [rows], 3)
            bound = solver.lower_bound()
            assert bound is not None and best * (1.0 - gap) <= bound <= best, (l2, name, bound, best)
            assert best <= objective_on(solver.problem, rows, *solver.weights())


# Why it is None elsewhere: the same figures, without asking whether the conditions hold, exceed the optimum.


def unguarded(solver: OnlineSolver) -> float:
    """The dual value of the solver's figures, whatever they mean."""
    visited = solver.scalars[T]
    if isinstance(solver, Pegasos):
        visited = visited * solver.plan.batch_size + solver.scalars[pegasos.BATCH_WEIGHT]
    solver.scalars[WEIGHT] = visited / solver.scalars[PASS]
    bound = solver.lower_bound()
    assert bound is not None
    return bound


def often_exceeded(name: str, learn: Callable[[np.random.Generator, Any, Case], None]) -> None:
    """Among random problems, learned as the test wants to, some must have a `bound` above the optimum."""
    exceeded = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        case = random_case(rng)
        weights = case.batch.weights.astype(float)
        best, _ = coordinate_ascent(
            with_bias(case.batch, case.scale), signs_of(case.batch), weights, case.l2, 1e-6, 2000
        )
        solver = random_solver(rng, name, case)
        learn(rng, solver, case)
        exceeded += unguarded(solver) > 1.01 * best
    assert exceeded >= 3, exceeded


BOTH = pytest.mark.parametrize("name", ["sgd", "pegasos"])


@BOTH
def test_needed_a_start_at_zero(name: str) -> None:
    """Weights that are wrong raise alpha, and cancel what that adds to w."""

    def learn(rng: np.random.Generator, solver: Any, case: Case) -> None:
        total = case.batch.weights.sum()
        sums = (case.batch.weights * signs_of(case.batch)) @ dense(case.batch, case.batch.width)
        solver.start_from((-sums / (case.l2 * total)).astype(np.float32), 0.0)
        solver.scalars[{"sgd": sgd, "pegasos": pegasos}[name].ALPHAS] = 0.0
        solver.scalars[T] = total
        run_passes(solver, [case.batch], case.passes)

    often_exceeded(name, learn)


@BOTH
def test_needed_whole_passes(name: str) -> None:
    def learn(rng: np.random.Generator, solver: Any, case: Case) -> None:
        run_passes(solver, [case.batch, case.batch.slice(0, case.batch.rows // 3)], case.passes)

    often_exceeded(name, learn)


@BOTH
def test_needed_weights_that_do_not_change(name: str) -> None:
    def learn(rng: np.random.Generator, solver: Any, case: Case) -> None:
        for number in range(1, case.passes + 1):
            solver.begin_pass(number)
            factors = 1.0 + 3.0 * case.batch.labels * (number % 2)  # classes balanced in one pass, not in the next
            solver.learn(case.batch._replace(weights=(factors * case.batch.weights).astype(np.float32)))
            solver.end_pass()
        solver.finish()

    often_exceeded(name, learn)


def test_needed_a_last_mini_batch_divided_by_k() -> None:
    """Divided by its own size, its rows count for more than others."""

    def learn(rng: np.random.Generator, solver: Pegasos, case: Case) -> None:
        for number in range(1, case.passes + 1):
            solver.begin_pass(number)
            solver.learn(case.batch)
            plan = solver.plan
            solver.plan = plan._replace(batch_size=int(solver.scalars[pegasos.BATCH_ROWS]) or 1)
            solver.finish()
            solver.plan = plan

    often_exceeded("pegasos", learn)


def test_needed_open_mini_batches_to_be_counted() -> None:
    """At the end of a pass their rows are visited, but not in the clock: alpha is too large by as much."""

    def learn(rng: np.random.Generator, solver: Pegasos, case: Case) -> None:
        solver.learn(case.batch)
        if solver.scalars[T] > 0.0:
            solver.scalars[pegasos.BATCH_WEIGHT] = 0.0

    often_exceeded("pegasos", learn)


@BOTH
def test_needed_a_bias_that_is_penalised(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One class only: a free bias removes all losses and costs nothing."""
    problem = Problem(Hinge(), L2(0.1), make_bias("free", 1.0))
    monkeypatch.setattr(Problem, "provable", True)
    rows = batch_of([{0: 1.0}] * 5, [1] * 5)
    assert objective_on(problem, rows, np.zeros(1, np.float32), 1.0) == 0.0
    assert unguarded(run_passes(SOLVERS[name](problem), [rows], 3)) > 0.01


@BOTH
def test_needed_a_margin_of_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(Hinge(0.1), L2(0.1), make_bias("none", 1.0))
    monkeypatch.setattr(Problem, "provable", True)
    at_zero = objective_on(problem, ROWS, np.zeros(12, np.float32), 0.0)
    assert unguarded(run_passes(SOLVERS[name](problem), [ROWS], 3)) > at_zero


# Single precision.

VALUES = {
    "ones": np.ones(20),
    "one number": np.full(20, 0.7),
    "long rows": np.full(20, 777.7),
    "random": np.random.default_rng(1).uniform(0.5, 1.0, 20),
    "random and long": np.random.default_rng(2).uniform(500.0, 1000.0, 20),
    "some of them short": np.where(np.arange(20) < 2, 1.0, 1e-3),
}
STEADY = {
    "sgd": lambda problem: Sgd(problem, eta0=0.3 / problem.l2),
    "sgd from t0 near 0": lambda problem: Sgd(problem, eta0=1e6 / problem.l2),
    "pegasos": lambda problem: Pegasos(problem),
    "pegasos of 3": lambda problem: Pegasos(problem, batch_size=3, project=False),
    "pegasos, averaged": lambda problem: Pegasos(problem, batch_size=2, average=True),
}


@pytest.mark.parametrize("make", list(STEADY.values()), ids=list(STEADY))
def test_two_thousand_passes_do_not_round_it_above_the_optimum(make: Any) -> None:
    """A strong penalty: all rows violate their margin, always, and nothing but rounding parts bound and optimum."""
    for name, values in VALUES.items():
        rows = batch_of([{0: float(value), 1: -0.3 * float(value)} for value in values], [1] * 20)
        l2 = 4.0 * float(values.max()) ** 2
        best = optimum_of_violations(rows, l2)
        solver = make(hinge(l2, 0.0))
        many = concatenate([rows] * 50)  # in one call, to be quick
        for number in range(1, 41):
            solver.begin_pass(number)
            solver.learn(many)
            bound = solver.lower_bound()
            assert bound is not None and 0.98 * best < bound <= best, (name, number, bound, best)


def test_without_an_allowance_for_rounding_it_does_exceed_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a thousand times more than a relative error of the final weights could excuse."""
    monkeypatch.setattr(base, "ROUNDING", 0.0)
    rows = concatenate([batch_of([{0: 1.0}] * 20, [1] * 20)] * 2000)
    bound = run_passes(Sgd(hinge(4.0, 0.0), eta0=0.075), [rows], 10).lower_bound()
    assert bound is not None and bound > 1.0005 * optimum_of_violations(rows, 4.0)


@BOTH
def test_steps_too_small_to_be_stored(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One heavy row, then thousands that change no bit of w, though together they should: the worst of rounding."""
    rows = batch_of([{0: 1.0}] + [{0: 0.99 * 2.0**-12}] * 4096, [1] * 4097, [4096.0] + [1.0] * 4096)
    best = optimum_of_violations(rows, 4.0)
    solver = run_passes(SOLVERS[name](hinge(4.0, 0.0), **({"eta0": 0.25} if name == "sgd" else {})), [rows])
    assert np.log2(solver.vector[0]) in (10.0, -2.0)  # what the first row left there
    bound = solver.lower_bound()
    assert bound is not None and (1.0 - 1e-4) * best < bound <= best
    monkeypatch.setattr(base, "ROUNDING", 0.5 * ROUNDING)
    half = solver.lower_bound()
    assert half is not None and half > best


@BOTH
@pytest.mark.parametrize("spread", [0.0, 3.0], ids=["like features", "unlike features"])
@pytest.mark.parametrize("by_class", [False, True], ids=["mixed", "sorted by class"])
def test_weights_are_no_further_from_the_exact_sum_than_allowed(name: str, by_class: bool, spread: float) -> None:
    """Row by row beside the solver: the same sum in double precision, and the squares of all that was rounded."""
    rng = np.random.default_rng(4)
    features = rng.normal(size=(300, 6)) * 10.0 ** rng.uniform(-spread, spread, size=(300, 6))
    codes = np.arange(300) < 150 if by_class else rng.integers(0, 2, 300)
    weights = rng.choice([0.3, 1.0, 2.7], size=300)
    weights[:10] = 1e-7  # so that v, not zero any more, is written out at the next row, which has no features
    features[10] = 0.0
    made = [{j: x for j, x in enumerate(row) if x} for row in features.tolist()]
    rows = batch_of(made, codes.astype(float).tolist(), weights.tolist())
    matrix, signs, l2, eta0 = dense(rows, 6), signs_of(rows), 0.05, 3e6
    problem = hinge(l2, 0.0)
    solver = Sgd(problem, eta0=eta0) if name == "sgd" else Pegasos(problem, project=False)
    t0, roundings = (1.0 / (l2 * eta0), 1.0) if name == "sgd" else (0.0, 2.0)
    module: Any = {"sgd": sgd, "pegasos": pegasos}[name]
    exact, alphas, squares, ratios, rewritten = np.zeros(6), 0.0, 0.0, [], 0
    for i in np.tile(np.arange(300), 5):
        scale = solver.scalars[SCALE]
        solver.learn(rows.slice(i, i + 1))
        step = float(rows.weights[i]) / (l2 * (solver.scalars[T] + t0))
        shrink = 1.0 - step * l2
        exact, alphas, squares = shrink * exact, shrink * alphas, shrink * shrink * squares
        if solver.scalars[SCALE] > 1.001 * shrink * scale:
            rewritten += bool(exact.any())
            squares += 2.0 * exact @ exact
        if solver.scalars[module.ALPHAS] > alphas + 0.5 * step:  # a violation
            moved = step * signs[i] * matrix[i]
            exact, alphas = exact + moved, alphas + step
            squares += exact @ exact * bool(moved.any()) + roundings**2 * moved @ moved
        size = solver.scalars[SCALE]
        distance = float(np.linalg.norm(size * solver.vector[:6].astype(float) - exact))
        allowed = ROUNDING * size * np.sqrt(solver.scalars[module.WRITES] * solver.scalars[module.WRITTEN])
        ratios.append(distance / max(allowed, 1e-300))
        assert size * size * solver.scalars[module.WRITTEN] == pytest.approx(squares, rel=1e-3)
    assert solver.scalars[module.ALPHAS] == pytest.approx(alphas, rel=1e-9)
    assert rewritten == 1 and max(ratios) <= 1.0, max(ratios)


def test_squares_that_overflow_prove_nothing() -> None:
    solver = run_passes(Sgd(hinge(1e-38, 0.0), eta0=5e37), [batch_of([{0: 1e-18}], [1])])
    assert np.isinf(solver.scalars[sgd.WRITTEN]) and solver.lower_bound() is None


@kernel
def plain_and_measured(plain, measured, indices, values, a, b, factor):
    row_axpy(plain, indices, values, a, b, factor)
    return measured_axpy(measured, indices, values, a, b, factor)


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 8, 103])
def test_a_measured_step_is_the_same_step(length: int) -> None:
    rng = np.random.default_rng(length)
    vector, values = rng.normal(size=500).astype(np.float32), rng.normal(size=length + 5).astype(np.float32)
    indices = np.sort(rng.choice(500, size=length + 5, replace=False)).astype(np.uint32)
    plain, measured = vector.copy(), vector.copy()
    squares = plain_and_measured(plain, measured, indices, values, 2, 2 + length, 0.3)
    row = indices[2 : 2 + length]
    steps = np.float32(0.3) * values[2 : 2 + length]
    assert plain.tobytes() == measured.tobytes() and np.array_equal(plain[row], vector[row] + steps)
    assert squares == pytest.approx(float((plain[row] ** 2).sum() + (steps**2).sum()), rel=1e-5)
