"""newton: against a dense twin and LIBLINEAR, its certificate, its limits, and that nothing but the rows decides."""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from made_rows import batch_of, bits, cut, dense, equal_weights, made_up, spoil
from sklearn.datasets import make_classification

from streamsvm.batch import Batch, Float64s
from streamsvm.errors import ConfigError, ModelError
from streamsvm.groups import MemoryGroups
from streamsvm.losses import LOSSES, Hinge, Logistic, SmoothedHinge, SquaredHinge, make_loss
from streamsvm.offered import SMOOTH_LOSSES
from streamsvm.penalties import L1, L2
from streamsvm.solvers.base import Problem, make_bias
from streamsvm.solvers.batch import Figures, Limits, Surroundings
from streamsvm.solvers.newton import Newton, to_edge

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own, at import
    liblinear = pytest.importorskip("liblinear.liblinearutil")

WIDTH = 30
ROWS = made_up(400, WIDTH, seed=3, noise=1.0)
SMOOTH = [name for name, kind in LOSSES.items() if hasattr(kind, "curvature")]


def problem_of(loss: str, l2: float = 1e-2, bias: str = "penalised", scale: float = 1.0) -> Problem:
    return Problem(make_loss(loss), L2(l2), make_bias(bias, scale))


def groups_of(rows: Batch = ROWS, count: int = 7, threads: int = 1) -> MemoryGroups:
    return MemoryGroups(cut(rows, [rows.rows * k // count for k in range(1, count)]), threads=threads)


class Heard:
    """What a solver told, with the passes made until then."""

    def __init__(self) -> None:
        self.figures: list[Figures] = []
        self.passes: list[int] = []
        self.notes: list[str] = []
        self.solver: Newton | None = None

    def tell(self, figures: Figures) -> None:
        assert self.solver is not None
        self.figures.append(figures)
        self.passes.append(self.solver.passes)


def newton(
    problem: Problem, groups: MemoryGroups | None = None, *, sample: float = 1.0, **around: Any
) -> tuple[Newton, Heard]:
    heard = Heard()
    limits = Limits(around.pop("tol", 1e-8), around.pop("passes", 5000), around.pop("seconds", None))
    surroundings = Surroundings(limits=limits, tell=heard.tell, note=heard.notes.append, **around)
    heard.solver = Newton(problem, groups or groups_of(), surroundings, hessian_sample=sample)
    return heard.solver, heard


class Twin:
    """The same problem in dense matrices, written down once more."""

    def __init__(self, problem: Problem, rows: Batch, width: int) -> None:
        self.loss = problem.loss
        extra = np.full((rows.rows, 1), np.sqrt(problem.bias.gain))
        self.matrix = np.hstack([dense(rows, width), extra])
        self.signs, self.c = 2.0 * rows.labels.astype(float) - 1.0, rows.weights.astype(float)
        self.l2 = np.full(width + 1, problem.l2)
        self.l2[-1] *= problem.bias.decay

    def derivatives(self, w: Float64s) -> tuple[float, Float64s, Float64s]:
        """P, its gradient and its Hessian."""
        margins = self.signs * (self.matrix @ w)
        if isinstance(self.loss, Logistic):
            down = 1.0 / (1.0 + np.exp(np.clip(margins, -700, 700)))
            losses, slopes, bends = np.logaddexp(0.0, -margins), -down, down * (1.0 - down)
        elif not isinstance(self.loss, (SquaredHinge, SmoothedHinge)):  # a new one, taken at its word
            terms = (self.loss.value, self.loss.slope, self.loss.curvature)
            losses, slopes, bends = (np.array([term(margin, 1.0) for margin in margins]) for term in terms)
        else:
            short = np.maximum(0.0, 1.0 - margins)
            losses, slopes, bends = short**2, -2.0 * short, 2.0 * (short > 0)
            if isinstance(self.loss, SmoothedHinge):
                losses = np.where(short < 1.0, short**2 / 2.0, short - 0.5)
                slopes, bends = -np.minimum(1.0, short), 1.0 * ((short > 0.0) & (short < 1.0))
        share = self.c / self.c.sum()
        gradient = self.l2 * w + self.matrix.T @ (share * slopes * self.signs)
        hessian = np.diag(self.l2) + (self.matrix.T * (share * bends)) @ self.matrix
        return float(0.5 * (self.l2 * w) @ w + share @ losses), gradient, hessian

    def optimum(self) -> tuple[float, Float64s]:
        """Newton's method with backtracking, and a trace of the identity where a curvature is missing."""
        w = np.zeros(len(self.l2))
        value, gradient, hessian = self.derivatives(w)
        for _ in range(500):
            step = -np.linalg.solve(hessian + (1e-3 * np.linalg.norm(gradient) + 1e-14) * np.eye(len(w)), gradient)
            k = 1.0
            while k > 1e-12 and self.derivatives(w + k * step)[0] > value + 1e-4 * k * gradient @ step:
                k /= 2.0
            if k <= 1e-12:
                break
            w = w + k * step
            value, gradient, hessian = self.derivatives(w)
        assert np.linalg.norm(gradient) < 1e-9
        return value, w


# Where it leads.


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("bias", ["penalised", "none", "penalised, scale 3"])
@pytest.mark.parametrize("l2", [1e-4, 1e-2, 1.0])
def test_it_finds_the_optimum_between_its_bounds_and_never_rises(loss: str, bias: str, l2: float) -> None:
    problem = problem_of(loss, l2, bias.split(",")[0], 3.0 if "3" in bias else 1.0)
    best, w = Twin(problem, ROWS, WIDTH).optimum()
    solver, heard = newton(problem)
    solver.learn()
    assert solver.converged and solver.figures is heard.figures[-1] and len(heard.figures) > 1
    assert heard.figures[-1].gap <= 1e-8 and heard.passes[-1] == solver.passes == solver._sums.readings
    for figures in heard.figures:
        assert figures.dual is not None and figures.dual <= best * (1.0 + 1e-14) and best <= figures.objective + 1e-15
    objectives, duals = zip(*[(told.objective, told.dual) for told in heard.figures], strict=True)
    assert all(np.diff(objectives) < 0.0) and all(np.diff(duals) >= 0.0)
    assert np.abs(solver.vector() - w).max() < 1e-3 * max(1.0, np.abs(w).max())


@pytest.mark.parametrize("loss", SMOOTH)
def test_figures_are_those_of_the_vector(loss: str) -> None:
    problem = problem_of(loss)
    twin = Twin(problem, ROWS, WIDTH)
    solver, _ = newton(problem, tol=1e-2)
    solver.learn()
    figures, vector = solver.figures, solver.vector()
    assert figures is not None
    objective, gradient, _ = twin.derivatives(vector)
    assert figures.objective == pytest.approx(objective, rel=1e-12)
    assert all(type(number) is float for number in figures) and type(solver.converged) is bool
    assert figures.dual == pytest.approx(objective - gradient @ gradient / (2.0 * problem.l2), rel=1e-9)
    assert figures.loss == pytest.approx(objective - 0.5 * problem.l2 * vector @ vector, rel=1e-9)
    wrong = (twin.matrix @ vector > 0.0) != (twin.signs > 0.0)
    assert figures.error == pytest.approx(twin.c @ wrong / twin.c.sum(), rel=1e-9)
    weights, bias = solver.weights()
    assert (
        weights.dtype == np.float32 and np.array_equal(weights, vector[:-1].astype(np.float32)) and bias == vector[-1]
    )


@pytest.mark.parametrize("loss", SMOOTH)
def test_a_free_bias_is_that_of_the_twin_and_nothing_is_claimed_of_it(loss: str) -> None:
    problem = problem_of(loss, bias="free", scale=2.0)
    best, w = Twin(problem, ROWS, WIDTH).optimum()
    solver, heard = newton(problem, tol=1e-6)
    assert not solver.converged
    solver.learn()
    assert solver.converged and all(figures.dual is None for figures in heard.figures)
    assert best <= solver.figures.objective <= best * (1.0 + 1e-6)  # type: ignore[union-attr]
    assert np.abs(solver.vector() - w).max() < 1e-3
    steepest = np.linalg.norm(Twin(problem, ROWS, WIDTH).derivatives(np.zeros(WIDTH + 1))[1])
    gradients = [np.linalg.norm(Twin(problem, ROWS, WIDTH).derivatives(solver.vector())[1])]
    assert gradients[-1] <= 1e-6 * steepest
    rough, _ = newton(problem, tol=1e-1)
    rough.learn()
    length = np.linalg.norm(Twin(problem, ROWS, WIDTH).derivatives(rough.vector())[1])
    assert 1e-3 * steepest < length <= 1e-1 * steepest and rough.passes < solver.passes


@pytest.mark.parametrize(("loss", "kind"), [("squared_hinge", 2), ("logistic", 0)])
def test_liblinear_finds_the_same_weights(loss: str, kind: int) -> None:
    rows = equal_weights(ROWS)
    l2 = 1e-2
    solver, _ = newton(problem_of(loss, l2), groups_of(rows), tol=1e-10)
    solver.learn()
    features = [{j + 1: float(x) for j, x in enumerate(row)} for row in dense(rows, WIDTH)]
    options = f"-s {kind} -c {1.0 / (l2 * rows.rows):.17g} -B 1 -e 1e-8 -q"
    w, b = liblinear.train((2.0 * rows.labels.astype(float) - 1.0).tolist(), features, options).get_decfun()
    assert solver.vector() == pytest.approx(np.array([*w[:WIDTH], b]), abs=1e-4)


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("l2", [1e-8, 1e-5, 1e2])
@pytest.mark.parametrize("factor", [1.0, 1e3])
def test_extreme_penalties_and_unscaled_features(loss: str, l2: float, factor: float) -> None:
    unscaled = ROWS.values * np.where(ROWS.indices % 2, np.float32(factor), np.float32(1.0))
    solver, heard = newton(problem_of(loss, l2), groups_of(ROWS._replace(values=unscaled)), tol=1e-4, passes=400)
    solver.learn()
    objectives = [told.objective for told in heard.figures]
    assert solver.converged and not heard.notes and all(np.diff(objectives) < 0.0)


@pytest.mark.parametrize(("loss", "l2"), [("squared_hinge", 1e-5), ("smoothed_hinge", 1e-5), ("logistic", 1e-8)])
def test_separable_rows(loss: str, l2: float) -> None:
    """Few rows matter in the end, and which ones is found step by step; LIBLINEAR too takes hundreds of steps.

    With a trust region that follows each step closely, 3000 readings were not enough.
    """
    rows = made_up(60, 40, seed=5, noise=0.0)
    solver, heard = newton(problem_of(loss, l2), groups_of(rows, 2), tol=1e-4, passes=1500)
    solver.learn()
    objectives, duals = zip(*[(told.objective, told.dual) for told in heard.figures], strict=True)
    assert solver.converged and all(np.diff(objectives) < 0.0) and all(np.diff(duals) >= 0.0)
    assert solver.figures.error == 0.0 and solver.figures.objective < 1e-3  # type: ignore[union-attr]


EDGES: dict[str, Batch] = {
    "no rows": batch_of([], []),
    "no weight": batch_of([{0: 1.0}, {1: 2.0}], [0, 1], [0.0, 0.0]),
    "one class": batch_of([{0: 1.0}, {1: 2.0}, {0: -1.0, 2: 1.0}], [1, 1, 1]),
    "empty rows": batch_of([{}, {}, {}], [0, 1, 1]),
    "one row": batch_of([{2: 3.0}], [0]),
    "the same row in both classes": batch_of([{0: 1.0}] * 4, [0, 1, 1, 1]),
    "duplicates": batch_of([{0: 1.0, 1: 1.0}, {1: -1.0}] * 5, [0, 1] * 5),
}


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("bias", ["penalised", "free", "none"])
@pytest.mark.parametrize("case", list(EDGES))
def test_small_and_odd_data(loss: str, bias: str, case: str) -> None:
    rows = EDGES[case]
    problem = problem_of(loss, 0.1, bias)
    for start in (0.0, 2.0):
        solver, heard = newton(problem, MemoryGroups(cut(rows, range(1, rows.rows))), tol=1e-6)
        if start:
            solver.start_from(np.full(rows.width, start, np.float32), start)
        solver.learn()
        assert solver.converged and not heard.notes and solver.passes < 200
        if rows.weights.sum() > 0.0 and (case, bias) not in {("one class", "free"), ("one row", "free")}:
            best = Twin(problem, rows, rows.width).optimum()[0] if bias == "penalised" else None
            reached = Twin(problem, rows, rows.width).derivatives(solver.vector())[0]
            assert solver.figures.objective == pytest.approx(reached, abs=1e-12)  # type: ignore[union-attr]
            assert best is None or reached <= best * (1.0 + 1e-6)


def test_rows_of_weight_0_and_the_cut_into_groups_change_little_or_nothing() -> None:
    problem = problem_of("logistic")
    whole, _ = newton(problem, groups_of(count=1), tol=1e-12)
    whole.learn()
    single, _ = newton(problem, MemoryGroups([ROWS.slice(i, i + 1) for i in range(ROWS.rows)]), tol=1e-12)
    single.learn()
    assert whole.vector() == pytest.approx(single.vector(), abs=1e-6)
    weightless = ROWS.weights == 0.0
    assert weightless.any()
    other = ROWS._replace(labels=np.where(weightless, 1.0 - ROWS.labels, ROWS.labels).astype(np.float32))
    flipped, _ = newton(problem, groups_of(other, count=1), tol=1e-12)
    flipped.learn()
    assert np.array_equal(flipped.vector(), whole.vector())


# How it gets there.


@pytest.mark.parametrize("loss", SMOOTH)
def test_products_are_differences_of_gradients(loss: str) -> None:
    """Rows near a kink of the slope are left out: there both one-sided curvatures are right."""
    problem = problem_of(loss, bias="free", scale=1.5)
    rng = np.random.default_rng(0)
    w, d = rng.normal(size=(2, WIDTH + 1))
    margins = Twin(problem, ROWS, WIDTH).matrix @ w * (2.0 * ROWS.labels - 1.0)
    near = (np.abs(margins) < 1e-3) | (np.abs(margins - 1.0) < 1e-3)
    rows = ROWS._replace(weights=np.where(near, np.float32(0.0), ROWS.weights))
    solver, _ = newton(problem, groups_of(rows))
    solver._risk(w, solver._scores)
    small = 1e-6
    up, down = (solver._gradient(v, solver._risk(v, solver._tried)) for v in (w + small * d, w - small * d))
    product = solver._sums.product(solver._scores, d) + solver._decay(d)
    assert product == pytest.approx((up - down) / (2 * small), abs=1e-8)
    assert solver._decay(d)[-1] == 0.0


def test_the_line_through_two_scores_has_its_least_point_where_the_objective_has() -> None:
    for loss in SMOOTH:
        problem = problem_of(loss)
        twin = Twin(problem, ROWS, WIDTH)
        rng = np.random.default_rng(1)
        w, s = rng.normal(size=WIDTH + 1), np.zeros(WIDTH + 1)
        for scale in (1e-3, 1.0, 1e5):
            s = -scale * twin.derivatives(w)[1]
            solver, _ = newton(problem)
            solver._now = solver._now._replace(vector=w)
            solver._risk(w, solver._scores)
            solver._risk(w + s, solver._tried)
            readings = solver._sums.readings
            k = solver._least(s, twin.derivatives(w)[1] @ s)
            slope, before = (twin.derivatives(v)[1] @ s for v in (w + k * s, w))
            assert abs(slope) <= 0.0101 * abs(before) and solver._sums.readings == readings


def test_the_edge_of_the_trust_region() -> None:
    rng = np.random.default_rng(2)
    s, d = 0.1 * rng.normal(size=(2, 5))
    m = rng.uniform(0.5, 2.0, 5)
    for sign in (1.0, -1.0):
        tau = to_edge(s, sign * d, m, 3.0)
        assert tau > 0.0 and np.sqrt(((s + tau * sign * d) ** 2 * m).sum()) == pytest.approx(3.0)
    assert to_edge(s, d, m, np.inf) == np.inf


def test_steps_stay_in_the_trust_region_which_follows_them() -> None:
    for loss in SMOOTH:
        solver, _ = newton(problem_of(loss, 1e-4), passes=1)
        solver.learn()
        gradient = solver._gradient(solver.vector(), solver._known)  # type: ignore[arg-type]
        m = np.linspace(1.0, 2.0, WIDTH + 1)
        free = solver._conjugate(gradient, m, np.inf, 0.0, None)
        assert not free.cut and free.length == pytest.approx(np.sqrt((free.s**2 * m).sum()))
        for share in (0.9, 1e-3):
            step = solver._conjugate(gradient, m, share * free.length, 0.0, None)
            assert step.cut and step.length == pytest.approx(share * free.length)
            hessian = Twin(solver.problem, ROWS, WIDTH).derivatives(solver.vector())[2]
            assert step.gain == pytest.approx(-gradient @ step.s - 0.5 * step.s @ hessian @ step.s)
            assert 0.0 < step.gain < free.gain
    solver, _ = newton(problem_of("smoothed_hinge", 1e-8), passes=3)  # no curvature at zero: the first step is absurd
    solver.learn()
    assert solver._now.steps == 1 and solver._now.radius < np.inf
    first = solver._now.radius
    assert first < 1e-2 * 1e6 * np.sqrt(solver.problem.l2) * np.linalg.norm(gradient) / solver.problem.l2


def counted(monkeypatch: pytest.MonkeyPatch, changes: dict[str, float], **case: Any) -> int:
    for name, value in changes.items():
        monkeypatch.setattr(f"streamsvm.solvers.newton.{name}", value)
    solver, _ = newton(**case)
    solver.learn()
    assert solver.converged
    return solver.passes


def test_what_saves_readings_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them at ten times the scale of some features, where conjugate gradients need many directions."""
    rows = ROWS._replace(values=ROWS.values * np.where(ROWS.indices % 3 == 0, np.float32(10.0), np.float32(1.0)))
    case: dict[str, Any] = {"problem": problem_of("squared_hinge", 1e-4), "groups": groups_of(rows), "tol": 1e-4}
    usual = counted(monkeypatch, {}, **case)
    with monkeypatch.context() as patch:
        assert usual < counted(patch, {"DIAGONAL": 0.0}, **case)
    with monkeypatch.context() as patch:
        assert usual < counted(patch, {"SHORT": 0.0}, **case)


def test_a_step_in_the_wrong_place_is_put_right_by_the_line_search() -> None:
    """Smoothed hinge has no curvature at zero: the first step is far too long, but not in vain."""
    solver, heard = newton(problem_of("smoothed_hinge", 1e-5), tol=1e-6)
    solver.learn()
    assert heard.passes[1] <= 5 and heard.figures[1].objective < 0.8 * heard.figures[0].objective


# What may not matter.


def learned(problem: Problem, threads: int, **options: Any) -> tuple[Any, ...]:
    solver, heard = newton(problem, groups_of(count=23, threads=threads), **options)
    solver.learn()
    return bits(solver.state()), heard.figures, heard.passes


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("sample", [1.0, 0.3])
def test_threads_do_not_change_a_bit(loss: str, sample: float) -> None:
    one, two, five = (learned(problem_of(loss), threads, sample=sample, tol=1e-5) for threads in (1, 2, 5))
    assert one == two == five


def interrupted_at(problem: Problem, moments: Sequence[int], make: Callable[..., tuple[Newton, Heard]]) -> list[Any]:
    """States asked for at some ticks of a run, and what it led to."""
    ticks = 0
    states: list[Any] = []

    def tick(rows: int) -> None:
        nonlocal ticks
        ticks += 1
        if ticks in moments:
            states.append(solver.state())

    solver, _ = make(problem, tick=tick)
    solver.learn()
    assert len(states) == len(moments)
    return [*states, solver]


@pytest.mark.parametrize(
    ("loss", "bias", "sample"),
    [
        ("squared_hinge", "penalised", 1.0),
        ("logistic", "free", 1.0),
        ("smoothed_hinge", "none", 1.0),
        ("logistic", "penalised", 0.4),
    ],
)
def test_a_state_from_any_moment_leads_to_the_same_end(loss: str, bias: str, sample: float) -> None:
    problem = problem_of(loss, 1e-3, bias)
    start = np.linspace(-1, 1, WIDTH).astype(np.float32)

    def make(problem: Problem, **around: Any) -> tuple[Newton, Heard]:
        solver, heard = newton(problem, sample=sample, tol=1e-7, seed=5, **around)
        solver.start_from(start, 0.5)
        return solver, heard

    *states, whole = interrupted_at(problem, [1, 8, 16, 50, 101, 145], make)
    assert len({state["passes"] for state in states}) >= 3
    for state in [*states, whole.state()]:
        again, heard = newton(problem, sample=sample, tol=1e-7, seed=5)
        again.restore(state)
        assert again.passes == state["passes"] and bits(again.state()) == bits(state)
        spoil(state)
        again.learn()
        assert bits(again.state()) == bits(whole.state())
        assert again.passes == whole.passes and again.figures == whole.figures
    assert whole.figures is not None and whole.converged


def test_a_state_is_a_copy_and_belongs_to_rows_of_the_same_width() -> None:
    solver, _ = newton(problem_of("logistic"), passes=12)
    solver.learn()
    before = bits(solver.state())
    spoil(solver.state())
    solver.vector()[:] = 77.0
    assert bits(solver.state()) == before
    other, _ = newton(problem_of("logistic"), groups_of(made_up(20, 9)))
    with pytest.raises(ModelError, match="newton"):
        other.restore(solver.state())


# Where it begins, and where it must stop.


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("bias", ["penalised", "free"])
def test_a_model_is_a_good_beginning(loss: str, bias: str) -> None:
    problem = problem_of(loss, 1e-3, bias, 2.0)
    first, _ = newton(problem, tol=1e-8)
    first.learn()
    again, heard = newton(problem, tol=1e-5)
    again.start_from(*first.weights())
    assert again.vector() == pytest.approx(first.vector(), rel=1e-6)
    again.learn()
    assert again.converged and again.passes <= (2 if bias == "free" else 1) + 4 < first.passes / 4
    wider = np.append(first.weights()[0], np.float32(5.0))
    again.start_from(wider, first.weights()[1])
    assert len(again.vector()) == WIDTH + 1


def test_a_solver_that_was_used_begins_anew() -> None:
    start = np.ones(WIDTH, np.float32), 1.0
    fresh, _ = newton(problem_of("logistic"), tol=1e-3)
    used, _ = newton(problem_of("logistic"), tol=1e-3)
    used.learn()
    begun = used.state()
    passes = used.passes
    for solver in (fresh, used):
        solver.start_from(*start)
        assert solver.figures is None
        solver.learn()
    assert np.array_equal(fresh.vector(), used.vector()) and used.passes == passes + fresh.passes
    used.restore(begun)
    used.learn()
    assert used.passes == passes and np.array_equal(used.vector(), begun["vector"])
    assert used.figures.objective == pytest.approx(  # type: ignore[union-attr]
        Twin(problem_of("logistic"), ROWS, WIDTH).derivatives(begun["vector"])[0], rel=1e-12
    )


@pytest.mark.parametrize("bias", ["penalised", "free"])
def test_another_penalty_goes_on_from_what_was_learned(bias: str) -> None:
    for loss in SMOOTH:
        solver, heard = newton(problem_of(loss, 1e-2, bias), tol=1e-6)
        solver.learn()
        known = solver.vector()
        solver.with_penalty(0.8e-2)
        assert np.array_equal(solver.vector(), known) and solver.figures is None and not solver.converged
        solver.learn()
        fresh, _ = newton(problem_of(loss, 0.8e-2, bias), tol=1e-6)
        fresh.learn()
        assert solver.converged and solver.passes < fresh.passes
        assert solver.figures.objective == pytest.approx(fresh.figures.objective, rel=2e-6)  # type: ignore[union-attr]
        restored, _ = newton(problem_of(loss, 0.8e-2, bias), tol=1e-6)
        restored.restore(solver.state())
        restored.learn()
        assert (restored.passes, restored.figures) == (solver.passes, solver.figures)


def test_with_another_penalty_a_bound_is_found_anew() -> None:
    """That of a larger one would be too high."""
    solver, heard = newton(problem_of("logistic", 1.0), tol=1e-9)
    solver.learn()
    solver.with_penalty(1e-4)
    solver.learn()
    best, _ = Twin(problem_of("logistic", 1e-4), ROWS, WIDTH).optimum()
    assert heard.figures[-1].dual <= best < solver.figures.objective * (1 + 1e-12)  # type: ignore[operator,union-attr]


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("bias", ["penalised", "free"])
def test_passes_are_limited_also_within_a_step(loss: str, bias: str) -> None:
    for passes in range(1, 30):
        solver, heard = newton(problem_of(loss, 1e-4, bias), tol=0.0, passes=passes)
        solver.learn()
        assert passes <= solver.passes <= passes + 2 and heard.passes[-1] == solver.passes == solver._sums.readings
        assert passes < 6 or heard.figures[-1].objective < heard.figures[0].objective


def test_time_is_limited_also_within_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which each of 7 groups takes a second."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def tick(rows: int) -> None:
        clock[0] += 1.0

    for seconds, passes in ((5.0, 1), (20.0, 3), (27.0, 4), (34.0, 5)):
        clock[0] = 0.0
        solver, heard = newton(problem_of("logistic", 1e-4), tol=0.0, seconds=seconds, tick=tick, started=0.0)
        solver.learn()
        assert solver.passes == heard.passes[-1]
        assert passes < solver.passes <= passes + 2 if passes > 1 else solver.passes == 1  # one or two to know a step


@pytest.mark.full
def test_with_no_tolerance_it_ends_where_double_precision_does() -> None:
    for bias in ("penalised", "free"):
        for loss in SMOOTH:
            solver, heard = newton(problem_of(loss, 1e-3, bias), tol=0.0)
            solver.learn()
            assert solver.passes < 2000 and (solver.converged or "double precision" in heard.notes[0])
            objectives = np.array([told.objective for told in heard.figures])
            assert np.all(np.diff(objectives) <= 1e-14 * objectives[1:])
            assert bias == "free" or solver.figures.gap < 1e-11  # type: ignore[operator,union-attr]


# A share of the groups.


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("sample", [0.01, 0.3])
def test_with_a_share_of_the_hessian_it_arrives_too(loss: str, sample: float) -> None:
    problem = problem_of(loss, 1e-2)
    best, _ = Twin(problem, ROWS, WIDTH).optimum()
    solver, heard = newton(problem, groups_of(count=10), sample=sample, tol=1e-5)
    solver.learn()
    assert solver.converged and best <= solver.figures.objective <= best * (1 + 1e-5)  # type: ignore[union-attr]
    assert all(np.diff([told.objective for told in heard.figures]) < 0.0)


def test_a_share_is_of_the_groups_and_another_in_each_step() -> None:
    rows_read: list[int] = []
    solver, _ = newton(problem_of("logistic"), groups_of(count=20), sample=0.1, tol=1e-3, seed=1, tick=rows_read.append)
    chosen = []
    for step in range(30):
        solver._now = solver._now._replace(steps=step)
        numbers = solver._sampled()
        assert numbers is not None and len(set(numbers)) == 2 and numbers == solver._sampled() == sorted(numbers)
        chosen.append(tuple(numbers))
    assert len(set(chosen)) > 20 and {number for pair in chosen for number in pair} == set(range(20))
    other, _ = newton(problem_of("logistic"), groups_of(count=20), sample=0.1, seed=2)
    assert other._sampled() != list(chosen[0])
    solver._now = solver._now._replace(steps=0)
    solver.learn()
    assert sum(rows_read) < 0.7 * solver.passes * ROWS.rows
    every, _ = newton(problem_of("logistic"), groups_of(count=2), sample=0.9)
    assert every._sampled() is None
    least, _ = newton(problem_of("logistic"), groups_of(count=20), sample=0.001)
    assert len(least._sampled() or []) == 1


def test_a_short_gradient_where_the_objective_is_higher_proves_that_the_weights_that_stand_are_good_enough() -> None:
    """The last step may lead to such a place, and the bound from there is the better one. It used to be the end."""
    for seed in range(4):
        values, labels = make_classification(3000, 10, random_state=seed, weights=[0.9], flip_y=0.1)
        rows = batch_of([dict(enumerate(row)) for row in values.tolist()], labels)
        for loss in SMOOTH:
            solver, heard = newton(problem_of(loss, 1.0 / 3000), groups_of(rows, 1), tol=1e-3)
            solver.learn()
            assert heard.figures[-1].gap is not None and heard.figures[-1].gap <= 1e-3, (seed, loss, heard.notes)


# What it refuses.


def test_a_loss_without_curvature_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(ConfigError, match=f"newton.*hinge has none: use {' or '.join(SMOOTH)}"):
        newton(Problem(Hinge(), L2(0.1)))
    assert sorted(SMOOTH_LOSSES, key=list(LOSSES).index) == SMOOTH and "hinge" not in SMOOTH


def test_other_penalties_and_shares_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="penalty l1"):
        newton(Problem(SquaredHinge(), L1(0.1)))
    for sample in (0.0, -0.5, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="hessian_sample"):
            newton(problem_of("logistic"), sample=sample)


def test_little_memory_makes_columns_go_to_a_file_and_changes_no_result(tmp_path: Any) -> None:
    groups = groups_of()
    groups._scratch = tmp_path
    small, _ = newton(problem_of("logistic"), groups, memory=0)
    usual, _ = newton(problem_of("logistic"))
    assert isinstance(small._scores, np.memmap) and not isinstance(usual._scores, np.memmap)
    small.learn()
    usual.learn()
    assert small.vector() == pytest.approx(usual.vector(), abs=1e-5)
