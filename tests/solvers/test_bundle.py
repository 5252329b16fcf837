"""bmrm and ocas: planes below the risk, the best mixture of them, a search along lines, and bounds that are true."""

import itertools
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_rows import batch_of, bits, cut, dense, made_up, spoil
from tiers import examples

from streamsvm.batch import Batch, empty_batch
from streamsvm.errors import ConfigError, ModelError
from streamsvm.groups import Groups, MemoryGroups
from streamsvm.losses import LOSSES, Hinge, Logistic, Loss, SmoothedHinge, SquaredHinge, make_loss
from streamsvm.penalties import L1, L2
from streamsvm.solvers.base import Bias, Problem, State, make_bias
from streamsvm.solvers.batch import Figures, Limits, Surroundings
from streamsvm.solvers.bmrm import FEWEST, Bmrm
from streamsvm.solvers.ocas import Look, Ocas, lowest
from streamsvm.solvers.simplex_qp import best_mixture

Array = np.ndarray[Any, Any]
Function = Callable[[float], float]
BOTH = pytest.mark.parametrize("kind", [Bmrm, Ocas], ids=["bmrm", "ocas"])
EVERY_LOSS = pytest.mark.parametrize("loss", [make_loss(name) for name in LOSSES], ids=list(LOSSES))
BIASES = pytest.mark.parametrize("bias", [make_bias("penalised", 1.5), make_bias("none", 1.0)], ids=["bias", "none"])

WIDTH = 12
ROWS = made_up(200, WIDTH, seed=5, longest=6, noise=1.0)


# What is true, in NumPy: nothing here knows of groups, kernels or planes.


def losses_of(loss: Loss, margins: Array) -> tuple[Array, Array, Array]:
    """Values, slopes and curvatures by the margin."""
    if isinstance(loss, Logistic):
        away = 1.0 / (1.0 + np.exp(np.minimum(margins, 700.0)))
        return np.logaddexp(0.0, -margins), -away, away * (1.0 - away)
    if not isinstance(loss, (Hinge, SquaredHinge, SmoothedHinge)):  # a new one, taken at its word
        return tuple(np.array([f(margin, 1.0) for margin in margins]) for f in (loss.value, loss.slope, loss.curvature))
    short = np.maximum(1.0 - margins, 0.0)
    inside = (short > 0.0).astype(float)
    if isinstance(loss, SquaredHinge):
        return short**2, -2.0 * short, 2.0 * inside
    if isinstance(loss, SmoothedHinge):
        near = inside * (short < 1.0)
        return np.where(short < 1.0, short**2 / 2.0, short - 0.5), -np.minimum(short, 1.0), near
    return short, -inside, np.zeros_like(short)


class Truth:
    """A problem on rows that are dense."""

    def __init__(self, rows: Batch, problem: Problem) -> None:
        self.problem = problem
        width = max(rows.width, 0)
        ends = np.full((rows.rows, 1), np.sqrt(problem.bias.gain))
        self.signs = 2.0 * rows.labels.astype(float) - 1.0
        self.plain = np.hstack([dense(rows, width), ends])
        self.matrix = self.signs[:, None] * self.plain
        self.weights = rows.weights.astype(float)
        self.shares = self.weights / max(self.weights.sum(), 1e-300)

    def risk(self, vector: Array) -> float:
        return float(self.shares @ losses_of(self.problem.loss, self.matrix @ vector)[0])

    def primal(self, vector: Array) -> float:
        return float(0.5 * self.problem.l2 * vector @ vector + self.risk(vector))

    def error(self, vector: Array) -> float:
        return float(self.shares @ ((self.plain @ vector > 0.0) != (self.signs > 0.0)))

    def optimum(self) -> float:
        return self.primal(self._by_interior_points() if isinstance(self.problem.loss, Hinge) else self._by_newton())

    def _by_interior_points(self) -> Array:
        """The dual of the hinge loss: a quadratic problem in a box."""
        matrix, l2 = self.matrix[self.shares > 0.0], self.problem.l2
        high = self.shares[self.shares > 0.0]
        product = matrix @ matrix.T / l2
        x, lower, upper = high / 2.0, np.ones(len(high)), np.ones(len(high))
        for _ in range(80):
            room = high - x
            gap = x @ lower + room @ upper
            if gap < 1e-13 * x.sum() or min(x.min(), room.min()) < 1e-30:
                break
            mu = 0.05 * gap / len(x)
            force = 1.0 - product @ x + mu / x - mu / room
            try:
                step = np.linalg.solve(product + np.diag(lower / x + upper / room), force)
            except np.linalg.LinAlgError:  # equal rows, at the end
                break
            moves = (step, mu / x - lower - lower / x * step, mu / room - upper + upper / room * step, -step)
            values = (x, lower, upper, room)
            shrinking = [(-v[m < 0.0] / m[m < 0.0]).min(initial=1.0) for v, m in zip(values, moves, strict=True)]
            eta = min(1.0, 0.99 * min(shrinking))
            x, lower, upper = (v + eta * m for v, m in zip(values[:3], moves[:3], strict=True))
        return matrix.T @ x / l2

    def _by_newton(self) -> Array:
        l2, vector = self.problem.l2, np.zeros(self.plain.shape[1])
        for _ in range(100):
            _, slopes, bends = losses_of(self.problem.loss, self.matrix @ vector)
            gradient = l2 * vector + self.matrix.T @ (self.shares * slopes)
            hessian = l2 * np.eye(len(vector)) + self.matrix.T @ ((self.shares * bends)[:, None] * self.matrix)
            step, eta = np.linalg.solve(hessian, -gradient), 1.0
            while self.primal(vector + eta * step) > self.primal(vector) + 1e-4 * eta * gradient @ step and eta > 1e-12:
                eta /= 2.0
            vector = vector + eta * step
        return vector


PENALISED = Bias()


@lru_cache(typed=True)
def optimum_for(loss: Loss, l2: float, bias: Bias) -> float:
    return Truth(ROWS, problem_of(loss, l2, bias)).optimum()


def optimum_of(problem: Problem) -> float:
    """Of ROWS; terms of two kinds can be equal as tuples."""
    return optimum_for(problem.loss, problem.l2, problem.bias)


def problem_of(loss: Loss, l2: float = 0.01, bias: Bias = PENALISED) -> Problem:
    return Problem(loss, L2(l2), bias)


def groups_of(rows: Batch = ROWS, count: int = 7, threads: int = 1) -> MemoryGroups:
    """Groups of different sizes, one of them empty."""
    points = np.random.default_rng(rows.rows).integers(0, rows.rows + 1, count - 1).tolist()
    return MemoryGroups(cut(rows, [*points, points[0]]), threads=threads)


def make(
    kind: type[Bmrm], problem: Problem, groups: Groups, *, tol: float = 1e-6, passes: int = 2000, **around: Any
) -> tuple[Bmrm, list[Figures]]:
    told: list[Figures] = []
    limits = Limits(tol, passes, around.pop("seconds", None))
    return kind(problem, groups, Surroundings(limits=limits, tell=told.append, **around)), told


def solved(kind: type[Bmrm], problem: Problem, groups: Groups, **around: Any) -> tuple[Bmrm, list[Figures]]:
    solver, told = make(kind, problem, groups, **around)
    solver.learn()
    return solver, told


def check(solver: Bmrm, told: Sequence[Figures], truth: Truth, best: float) -> None:
    """Nothing that was told is beyond the optimum, and the last of it is true of the weights."""
    figures, vector = told[-1], solver.vector()
    assert solver.figures == figures
    assert figures.objective == pytest.approx(truth.primal(vector), rel=1e-10, abs=1e-14)
    assert figures.loss == pytest.approx(truth.risk(vector), rel=1e-10, abs=1e-14)
    assert figures.error == pytest.approx(truth.error(vector), rel=1e-12, abs=1e-12)
    for one in told:
        assert one.dual is not None and 0.0 <= one.dual <= best * (1.0 + 1e-14)
        assert one.objective >= best * (1.0 - 1e-7)  # the peer stops short of the optimum, too
    for earlier, later in itertools.pairwise(told):
        assert later.objective <= earlier.objective and (later.dual or 0.0) >= (earlier.dual or 0.0)


# The optimum.


@BOTH
@EVERY_LOSS
@BIASES
@pytest.mark.parametrize("l2", [1.0, 0.01])
def test_the_optimum_is_reached_between_bounds_that_are_true(
    kind: type[Bmrm], loss: Loss, bias: Bias, l2: float
) -> None:
    problem = problem_of(loss, l2, bias)
    solver, told = solved(kind, problem, groups_of(), tol=1e-6)
    check(solver, told, Truth(ROWS, problem), optimum_of(problem))
    assert told[-1].gap is not None and told[-1].gap <= 1e-6 and solver.passes == len(told) < 1000
    if not bias.gain:
        assert solver.vector()[-1] == 0.0
    assert solver.weights()[1] == pytest.approx(solver.vector()[-1] * 1.5, rel=1e-12)


@BOTH
@EVERY_LOSS
def test_planes_are_below_the_risk_everywhere(kind: type[Bmrm], loss: Loss) -> None:
    """Those that were merged, too; and they touch it: together they leave little room at the optimum."""
    problem = problem_of(loss)
    truth = Truth(ROWS, problem)
    for memory in (1 << 30, 1):
        solver, told = solved(kind, problem, groups_of(), tol=1e-3, memory=memory)
        planes = solver.state()["planes"]
        for scale in (0.0, 0.1, 1.0, 10.0):
            for direction in np.random.default_rng(1).normal(size=(20, WIDTH + 1)):
                point = solver.vector() + scale * direction
                model = planes["vectors"] @ point + planes["offsets"][1:]
                assert model.max() <= truth.risk(point) * (1.0 + 1e-12) + 1e-13
        lowest_loss = max(0.0, (planes["vectors"] @ solver.vector() + planes["offsets"][1:]).max())
        assert lowest_loss == pytest.approx(told[-1].loss, rel=0.02)
        assert planes["gram"][1:, 1:] == pytest.approx(planes["vectors"] @ planes["vectors"].T, rel=1e-12, abs=1e-15)


@EVERY_LOSS
@pytest.mark.parametrize("l2", [0.1, 1e-4])
def test_ocas_needs_fewer_readings_the_smaller_the_penalty(loss: Loss, l2: float) -> None:
    problem = problem_of(loss, l2)
    passes = [solved(kind, problem, groups_of(), tol=1e-3)[0].passes for kind in (Bmrm, Ocas)]
    assert passes[1] <= (1.1 if l2 == 0.1 else 0.6) * passes[0]


@EVERY_LOSS
def test_ocas_goes_to_the_optimum_of_each_line(loss: Loss) -> None:
    """NumPy finds nothing lower between the weights before and those after, nor beyond."""
    problem = problem_of(loss, 1e-3)
    truth = Truth(ROWS, problem)
    solver, told = make(Ocas, problem, groups_of(), passes=1)
    before: Array | None = None
    for passes in range(1, 15):
        solver.around = solver.around._replace(limits=Limits(0.0, passes))
        solver.learn()
        after = solver.vector()
        if before is not None and not np.array_equal(before, after):
            values = [truth.primal(before + k * (after - before)) for k in (0.0, 0.5, 0.999, 1.0, 1.001, 1.5)]
            assert min(values) >= values[3] * (1.0 - 1e-13) and values[0] > values[3] < values[5]
            for k in (0.999, 1.001):
                assert truth.primal(before + k * (after - before)) > values[3] * (1.0 - 1e-13)
        before = after
    assert len(told) == 14 + 13  # each time what is known is told first


@pytest.mark.parametrize("l2", [1e-7, 1e-5, 1e3, 1e9])
@BOTH
def test_bounds_are_true_for_tiny_and_for_huge_penalties(kind: type[Bmrm], l2: float) -> None:
    problem = problem_of(SquaredHinge(), l2)
    solver, told = solved(kind, problem, groups_of(), tol=1e-4, passes=300)
    check(solver, told, Truth(ROWS, problem), optimum_of(problem))
    assert told[-1].gap is not None and (told[-1].gap <= 1e-4 or (l2 < 1e-4 and kind is Bmrm))


@BOTH
def test_bounds_are_true_for_features_of_any_size(kind: type[Bmrm]) -> None:
    """Nor do sums of large numbers that cancel make them too good."""
    scales = np.float32(10.0) ** np.arange(-6, 6, dtype=np.float32)
    rows = ROWS._replace(values=ROWS.values * scales[ROWS.indices])
    problem = problem_of(Logistic(), 1e-6)
    truth = Truth(rows, problem)
    solver, told = solved(kind, problem, groups_of(rows), tol=0.0, passes=150)
    check(solver, told, truth, min(told[-1].objective, truth.optimum()))


@BOTH
def test_a_bound_that_is_at_the_optimum_is_not_above_it(kind: type[Bmrm]) -> None:
    """With a gap of nothing but rounding, in either direction."""
    problem = problem_of(SquaredHinge(), 0.1)
    solver, told = solved(kind, problem, groups_of(), tol=0.0, passes=150)
    truth = Truth(ROWS, problem)
    vector = truth._by_newton().astype(np.longdouble)
    short = np.maximum(1.0 - truth.matrix.astype(np.longdouble) @ vector, 0.0)
    shares = truth.weights.astype(np.longdouble) / np.sum(truth.weights.astype(np.longdouble))
    best = np.longdouble(0.5) * np.longdouble(0.1) * (vector @ vector) + shares @ short**2
    assert told[-1].dual is not None and best * (1.0 - 1e-11) < told[-1].dual <= best
    assert told[-1].objective >= best * (1.0 - 1e-14)


# Threads, groups, memory.


def result(solver: Bmrm) -> tuple[bytes, Figures | None, int, dict[str, Any]]:
    return solver.vector().tobytes(), solver.figures, solver.passes, bits(solver.state())


@BOTH
def test_threads_change_nothing(kind: type[Bmrm], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.solvers.sums.PIECE", 16)
    problem = problem_of(Logistic(), 1e-3)
    one, two, five = (
        result(solved(kind, problem, groups_of(count=20, threads=threads), tol=1e-4)[0]) for threads in (1, 2, 5)
    )
    assert one == two == five


@BOTH
def test_groups_of_one_row_and_one_group_of_all(kind: type[Bmrm]) -> None:
    problem = problem_of(Hinge())
    for groups in (MemoryGroups([ROWS]), MemoryGroups(cut(ROWS, range(1, ROWS.rows)))):
        solver, told = solved(kind, problem, groups, tol=1e-4)
        check(solver, told, Truth(ROWS, problem), optimum_of(problem))


@BOTH
@EVERY_LOSS
def test_a_few_planes_are_enough(kind: type[Bmrm], loss: Loss) -> None:
    problem = problem_of(loss, 0.03)
    solver, told = make(kind, problem, groups_of(), tol=1e-3, memory=1)
    most = []
    solver.around = solver.around._replace(tell=lambda figures: most.append(len(solver.state()["planes"]["vectors"])))
    solver._planes.most = FEWEST
    solver.learn()
    assert solver.figures is not None and solver.figures.gap is not None and solver.figures.gap <= 1e-3
    assert max(most) == FEWEST and (solver.figures.dual or 0.0) <= optimum_of(problem)
    roomy, _ = solved(kind, problem, groups_of(), tol=1e-3)
    assert solver.passes >= roomy.passes


@BOTH
def test_memory_is_what_bounds_the_planes(kind: type[Bmrm]) -> None:
    size = 8 * (WIDTH + 1)
    for planes in (5, 9):
        solver, told = solved(kind, problem_of(Hinge(), 1e-3), groups_of(), tol=1e-3, memory=4 * planes * size)
        assert len(solver.state()["planes"]["vectors"]) == planes
        check(solver, told, Truth(ROWS, problem_of(Hinge(), 1e-3)), optimum_of(problem_of(Hinge(), 1e-3)))
    assert f"{planes} planes at most" in solver.described()


class OnDisk(MemoryGroups):
    """With a place for files."""

    def __init__(self, batches: Sequence[Batch], scratch: Path) -> None:
        super().__init__(batches)
        self._scratch = scratch


def test_scores_go_to_files_that_leave_no_trace(tmp_path: Path) -> None:
    problem = problem_of(Hinge())
    batches = cut(ROWS, [50, 120])
    memory = 4 * 3 * 4 * (ROWS.rows - 1)
    here, there = MemoryGroups(batches), OnDisk(batches, tmp_path)
    kept, mapped = (make(Ocas, problem, groups, memory=memory)[0] for groups in (here, there))
    for solver in (kept, mapped):
        solver.learn()
    assert isinstance(mapped._scores, np.memmap) and not isinstance(kept._scores, np.memmap)  # type: ignore[attr-defined]
    assert result(mapped) == result(kept) and not list(tmp_path.iterdir())


# Going on.


def interrupted(kind: type[Bmrm], problem: Problem, start: Callable[[Bmrm], None], tol: float) -> list[State]:
    """States asked for in every tick and in every report of a run."""
    states: list[State] = []
    solver, _ = make(kind, problem, groups_of(count=3, threads=2), tol=tol)

    def hear(_: Any) -> None:
        states.append(solver.state())

    solver.around = solver.around._replace(tell=hear)
    solver._sums._tick = hear
    start(solver)
    solver.learn()
    return [*states, solver.state()]


@BOTH
@pytest.mark.parametrize("warm", [False, True])
def test_learning_goes_on_bit_for_bit_from_any_tick(kind: type[Bmrm], warm: bool) -> None:
    problem = problem_of(SmoothedHinge(), 0.01)

    def start(solver: Bmrm) -> None:
        if warm:
            solver.start_from(np.linspace(-1, 1, WIDTH, dtype=np.float32), 0.5)

    *states, last = interrupted(kind, problem, start, 1e-4)
    end, whole = bits(last), int(last["passes"])
    assert len(states) > 4 * whole > 30
    for state in [*states[:9], *states[9::13], states[-1]]:
        solver, told = make(kind, problem, groups_of(count=3), tol=1e-4)
        solver.restore(state)
        assert bits(solver.state()) == bits(state)
        spoil(state)
        solver.learn()
        assert bits(solver.state()) == end and solver.figures == told[-1]
    assert len(told) == 1 and solver.passes == whole  # it had ended; nothing was read again


@BOTH
def test_a_state_of_other_rows_is_refused(kind: type[Bmrm]) -> None:
    solver, _ = solved(kind, problem_of(Hinge()), groups_of(), tol=0.1)
    wider = groups_of(made_up(200, WIDTH + 3, seed=1))
    with pytest.raises(ModelError, match="are not those of"):
        make(kind, problem_of(Hinge()), wider)[0].restore(solver.state())


@BOTH
@EVERY_LOSS
def test_known_weights_are_a_beginning(kind: type[Bmrm], loss: Loss) -> None:
    problem = problem_of(loss, 1e-3)
    cold, _ = solved(kind, problem, groups_of(), tol=1e-6)
    warm, told = make(kind, problem, groups_of(), tol=1e-3)
    warm.start_from(*cold.weights())
    assert warm.weights()[0] == pytest.approx(cold.weights()[0])
    warm.learn()
    assert told[0].objective <= optimum_of(problem) * (1.0 + 2e-6)
    check(warm, told, Truth(ROWS, problem), optimum_of(problem))
    far, told = make(kind, problem, groups_of(), tol=1e-3)
    far.start_from(np.full(WIDTH + 5, 50.0, np.float32), -20.0)  # and one feature more than there are
    far.learn()
    check(far, told, Truth(ROWS, problem), optimum_of(problem))
    assert told[0].objective > 2.0 * told[-1].objective and (told[-1].gap or 0.0) <= 1e-3


@BOTH
@EVERY_LOSS
@pytest.mark.parametrize("ways", [(0.03, 0.01, 0.001), (0.001, 0.01, 0.1)], ids=["down", "up"])
def test_planes_serve_another_penalty(kind: type[Bmrm], loss: Loss, ways: tuple[float, ...]) -> None:
    solver, told = solved(kind, problem_of(loss, ways[0]), groups_of(), tol=1e-3)
    again = fresh = 0
    for l2 in ways[1:]:
        told.clear()
        solver.with_penalty(l2)
        assert solver.figures is None and solver.passes == 0
        solver.learn()
        problem = problem_of(loss, l2)
        check(solver, told, Truth(ROWS, problem), optimum_of(problem))
        assert told[-1].gap is not None and told[-1].gap <= 1e-3
        assert len(told) == solver.passes + 1  # the first from what is known without reading
        again += solver.passes
        fresh += solved(kind, problem, groups_of(), tol=1e-3)[0].passes
    assert again <= fresh and (again < fresh or kind is Ocas)


@BOTH
def test_another_penalty_before_learning_keeps_the_beginning(kind: type[Bmrm]) -> None:
    solver, told = make(kind, problem_of(Hinge(), 1.0), groups_of(), passes=1)
    solver.start_from(np.ones(WIDTH, np.float32), 0.25)
    solver.with_penalty(0.01)
    solver.learn()
    assert solver.vector() == pytest.approx([*np.ones(WIDTH), 0.25])
    assert told[0].objective == pytest.approx(Truth(ROWS, problem_of(Hinge())).primal(solver.vector()), rel=1e-12)


@BOTH
def test_one_can_begin_again_elsewhere(kind: type[Bmrm]) -> None:
    """With what is known of the risk, but not with the best weights."""
    solver, told = solved(kind, problem_of(Hinge()), groups_of(), tol=1e-3)
    solver.start_from(np.full(WIDTH, 5.0, np.float32), 0.0)
    assert solver.figures is None
    bound, passes = told[-1].dual, solver.passes
    told.clear()
    solver.learn()
    assert told[0].objective == pytest.approx(
        Truth(ROWS, problem_of(Hinge())).primal(np.append(np.full(WIDTH, 5.0), 0))
    )
    assert (told[0].dual or 0.0) >= (bound or 0.0) and told[-1].gap is not None and told[-1].gap <= 1e-3
    assert solver.passes < 2 * passes


# Limits, and what is refused.


@BOTH
def test_limits(kind: type[Bmrm]) -> None:
    problem = problem_of(Hinge(), 1e-3)
    solver, told = solved(kind, problem, groups_of(), tol=0.0, passes=7)
    assert solver.passes == len(told) == 7
    solver, told = solved(kind, problem, groups_of(), tol=0.0, seconds=0.0)
    assert len(told) == 1
    solver, told = solved(kind, problem, groups_of(), tol=0.0, seconds=1e9, started=time.perf_counter() - 2e9)
    assert len(told) == 1
    solver, told = solved(kind, problem, groups_of(), tol=0.2)
    gaps = [one.gap for one in told if one.gap is not None]
    assert gaps[-1] <= 0.2 and min(gaps[:-1]) > 0.2


@BOTH
def test_every_reading_is_counted_and_heard(kind: type[Bmrm]) -> None:
    heard: list[int] = []
    solver, _ = solved(kind, problem_of(Hinge()), groups_of(), tol=1e-2, tick=heard.append)
    assert sum(heard) == solver.passes * ROWS.rows


@BOTH
def test_a_free_bias_is_refused(kind: type[Bmrm]) -> None:
    with pytest.raises(ConfigError, match=f"solver {kind.name} cannot have a free bias.*inside the penalty, or none"):
        kind(problem_of(Hinge(), bias=make_bias("free", 1.0)), groups_of())
    with pytest.raises(ConfigError, match="cannot minimise penalty l1"):
        kind(Problem(Hinge(), L1(0.1)), groups_of())


# Unusual rows.

UNUSUAL = {
    "one class": batch_of([{0: 1.0}, {1: 2.0}, {0: 0.5, 1: 1.0}], [1, 1, 1]),
    "the other class": batch_of([{0: 1.0}, {1: 2.0}, {0: 0.5, 1: 1.0}], [0, 0, 0]),
    "one row": batch_of([{2: 3.0}], [1]),
    "empty rows": batch_of([{}, {0: 1.0}, {}, {0: -1.0}], [1, 1, 0, 0]),
    "no features": batch_of([{}, {}, {}], [1, 0, 1]),
    "equal rows": batch_of([{0: 1.0, 3: -1.0}] * 5 + [{0: 1.0, 3: -1.0}] * 3, [1] * 5 + [0] * 3),
    "separable": batch_of([{0: 1.0}, {0: 2.0, 1: 1.0}, {0: -1.0}, {0: -3.0, 1: 1.0}], [1, 1, 0, 0]),
    "some without weight": batch_of([{0: 1.0}, {1: 1.0}, {0: 1e6}], [1, 0, 0], [1.0, 2.0, 0.0]),
    "long rows": batch_of([{0: 1e4, 1: 1.0}, {0: -2e4}, {1: 1.0}], [0, 0, 1]),
}


@BOTH
@EVERY_LOSS
@BIASES
@pytest.mark.parametrize("rows", list(UNUSUAL.values()), ids=list(UNUSUAL))
def test_unusual_rows(kind: type[Bmrm], loss: Loss, bias: Bias, rows: Batch) -> None:
    for l2 in (1e-7, 1e-2, 1e4):
        problem = problem_of(loss, l2, bias)
        solver, told = solved(kind, problem, groups_of(rows, 3), tol=1e-5, passes=400)
        truth = Truth(rows, problem)
        check(solver, told, truth, min(told[-1].objective, truth.optimum()))
        rounded = kind is Bmrm and l2 < 1e-6 and rows is UNUSUAL["long rows"]  # the model's minimum is not that sharp
        assert told[-1].gap is not None and (told[-1].gap <= 1e-5 or rounded)


@BOTH
@BIASES
@pytest.mark.parametrize("rows", [empty_batch(), batch_of([{0: 1.0}, {2: 1.0}], [1, 0], [0.0, 0.0])])
def test_where_nothing_is_to_be_learned_weights_are_zero(kind: type[Bmrm], bias: Bias, rows: Batch) -> None:
    for groups in (MemoryGroups([rows]), MemoryGroups([rows, rows], threads=2), MemoryGroups([])):
        solver, told = make(kind, problem_of(Hinge(), 0.1, bias), groups)
        solver.start_from(np.ones(3, np.float32), 1.0)
        solver.learn()
        assert told[-1] == Figures(0.0, 0.0, 0.0, 0.0) and told[-1].gap == 0.0 and solver.passes <= 3
        assert not solver.vector().any()


@BOTH
def test_rows_without_weight_change_nothing(kind: type[Bmrm]) -> None:
    """But for the order of sums, which they are part of."""
    kept = [i for i in range(ROWS.rows) if ROWS.weights[i] > 0.0]
    without = [ROWS.slice(i, i + 1) for i in kept]
    labels = np.where(ROWS.weights > 0.0, ROWS.labels, 1.0 - ROWS.labels).astype(np.float32)
    problem = problem_of(Logistic())
    first, second, third = (
        solved(kind, problem, MemoryGroups(batches), tol=1e-6)[0]
        for batches in ([ROWS], [ROWS._replace(labels=labels)], without)
    )
    assert result(first) == result(second) and third.vector() == pytest.approx(first.vector(), abs=1e-3)


# The mixture of planes.


def brute_force(gram: Array, offsets: Array) -> float:
    """The best value over all supports; each is a system of equations."""
    n, best = len(offsets), -np.inf
    for count in range(1, n + 1):
        for support in itertools.combinations(range(n), count):
            chosen = list(support)
            system = np.ones((count + 1, count + 1))
            system[:count, :count], system[count, count] = gram[np.ix_(chosen, chosen)], 0.0
            x = np.linalg.lstsq(system, np.append(offsets[chosen], 1.0), rcond=1e-12)[0][:count]
            if (x >= -1e-9).all() and abs(x.sum() - 1.0) < 1e-9:
                x = np.maximum(x, 0.0) / np.maximum(x, 0.0).sum()
                best = max(best, float(offsets[chosen] @ x - 0.5 * x @ gram[np.ix_(chosen, chosen)] @ x))
    return best


@given(st.integers(1, 6), st.integers(0, 4), st.integers(0, 2**32 - 1), st.booleans())
@examples(100)
def test_no_support_has_a_better_mixture(n: int, rank: int, seed: int, repeated: bool) -> None:
    rng = np.random.default_rng(seed)
    vectors, offsets = rng.normal(size=(n, rank)), rng.normal(size=n)
    if repeated:
        chosen = rng.integers(0, n, size=n)
        vectors, offsets = vectors[chosen], offsets[chosen]
    gram = vectors @ vectors.T
    x, gap = best_mixture(gram, offsets, rng.random(n) * (rng.random(n) < 0.5))
    value = offsets @ x - 0.5 * x @ gram @ x
    assert (x >= 0.0).all() and x.sum() == pytest.approx(1.0, abs=1e-14)
    assert value == pytest.approx(brute_force(gram, offsets), abs=1e-9) and gap < 1e-13


@given(
    st.integers(1, 60),
    st.integers(0, 40),
    st.integers(0, 2**32 - 1),
    st.floats(-5.0, 5.0),
    st.sampled_from(["plain", "repeated", "nearly repeated", "far from zero"]),
)
@examples(200)
def test_no_gradient_is_steeper_than_those_in_use(n: int, rank: int, seed: int, power: float, how: str) -> None:
    rng = np.random.default_rng(seed)
    vectors, offsets = rng.normal(size=(n, rank)) * 10.0**power, rng.normal(size=n)
    if "repeated" in how:
        chosen = rng.integers(0, n, size=n)
        vectors, offsets = vectors[chosen], offsets[chosen]
    if how == "nearly repeated":
        vectors, offsets = vectors * (1.0 + 1e-9 * rng.normal(size=(n, 1))), offsets + 1e-9 * rng.normal(size=n)
    if how == "far from zero":
        vectors = vectors + 1e3 * 10.0**power
    gram = vectors @ vectors.T
    x, gap = best_mixture(gram, offsets, rng.random(n) * (rng.random(n) < 0.5))
    slopes = offsets - gram @ x
    rounding = np.abs(offsets).max() + (np.abs(gram) @ x).max()
    assert (x >= 0.0).all() and x.sum() == pytest.approx(1.0, abs=1e-14)
    assert slopes.max() - x @ slopes <= 1e-13 * rounding and gap <= 1e-13 * rounding
    assert gap == pytest.approx(slopes.max() - x @ slopes, abs=1e-13 * rounding)


def test_a_mixture_can_begin_anywhere() -> None:
    rng = np.random.default_rng(2)
    vectors, offsets = rng.normal(size=(40, 25)), rng.normal(size=40)
    gram = vectors @ vectors.T
    best, _ = best_mixture(gram, offsets, np.ones(40))
    kept = best.copy()
    for start in (np.zeros(40), np.eye(40)[7], best, -np.ones(40), np.full(40, np.nan)):
        with np.errstate(invalid="ignore"):
            x, _ = best_mixture(gram, offsets, start)
        assert x == pytest.approx(best, abs=1e-12)
    assert np.array_equal(kept, best)  # what is given is not written to


# The search along a line.


def looking(values: Function, slopes: Function, looks: list[float]) -> Callable[[float], Look]:
    def look(k: float) -> Look:
        looks.append(k)
        return Look(k, values(k), slopes(k), 0.0, 0.0)

    return look


@given(
    st.lists(st.tuples(st.floats(-3.0, 3.0), st.floats(0.01, 2.0), st.booleans()), min_size=1, max_size=30),
    st.floats(1e-6, 1.0),
    st.floats(-20.0, 20.0),
)
@examples(200)
def test_the_lowest_point_of_a_line(terms: list[tuple[float, float, bool]], bend: float, center: float) -> None:
    """Of kinks and squares beside each other, against a bisection of the slope."""

    def value(k: float) -> float:
        rest = sum(max(0.0, a * (c - k)) if left else a * max(0.0, k - c) ** 2 for c, a, left in terms)
        return 1.0 + 0.5 * bend * (k - center) ** 2 + rest

    def slope(k: float) -> float:
        rest = sum((-a if k < c else 0.0) if left else 2.0 * a * max(0.0, k - c) for c, a, left in terms)
        return bend * (k - center) + rest

    low, high = 0.0, 1e3
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (middle, high) if slope(middle) < 0.0 else (low, middle)
    looks: list[float] = []
    found = lowest(looking(value, slope, looks))
    assert found.objective == value(found.k) and found.k >= 0.0
    assert found.objective <= min(value(low), value(high), value(0.0)) * (1.0 + 1e-13)
    assert len(looks) <= 75


def test_a_line_that_only_rises_is_not_followed() -> None:
    looks: list[float] = []
    assert lowest(looking(lambda k: 1.0 + k, lambda k: 1.0, looks)).k == 0.0 and looks == [0.0]


def test_a_line_that_falls_forever_is_left_at_some_point() -> None:
    looks: list[float] = []
    found = lowest(looking(lambda k: 1.0 / (1.0 + k), lambda k: -1.0 / (1.0 + k) ** 2, looks))
    assert np.isfinite(found.k) and found.objective < 1e-6


def test_a_smooth_line_is_searched_in_a_few_looks() -> None:
    looks: list[float] = []
    found = lowest(looking(lambda k: 1.0 + np.cosh(k - 0.3), lambda k: np.sinh(k - 0.3), looks))
    assert found.k == pytest.approx(0.3, abs=1e-6) and len(looks) <= 9
