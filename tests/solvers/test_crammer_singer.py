"""Crammer-Singer by sgd and asgd: against a slow twin, LIBLINEAR's optimum, and its own promises."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_rows import ROOM, bits, cut, dense, made_up, run_passes
from tiers import examples

from streamsvm.batch import Batch
from streamsvm.errors import DivergedError
from streamsvm.losses import LOSSES, make_loss
from streamsvm.penalties import make_penalty
from streamsvm.scoring import loss_sums
from streamsvm.solvers.asgd import ROOT_ROWS
from streamsvm.solvers.base import Problem, make_bias
from streamsvm.solvers.many import CRAMMER_SINGER, ManyClasses

WIDTH = 30
BOTH = pytest.mark.parametrize("name", list(CRAMMER_SINGER))


def made_classes(rows: int, classes: int, *, seed: int = 0, noise: float = 0.3) -> Batch:
    """Rows with weights that vary, and classes that one direction for each tells apart."""
    batch, rng = made_up(rows, WIDTH, seed=seed), np.random.default_rng(seed + 100)
    scores = dense(batch, WIDTH) @ rng.normal(size=(WIDTH, classes)) + noise * rng.normal(size=(rows, classes))
    return batch._replace(labels=scores.argmax(axis=1).astype(np.float32))


def in_order_of_appearance(batch: Batch) -> Batch:
    codes: dict[float, float] = {}
    labels = [codes.setdefault(code, float(len(codes))) for code in batch.labels.tolist()]
    return batch._replace(labels=np.array(labels, np.float32))


def problem(loss: str = "hinge", l2: float = 0.02, bias: str = "penalised") -> Problem:
    return Problem(make_loss(loss), make_penalty(l2), make_bias(bias, 1.5))


def twin(name: str, given: Problem, batch: Batch, classes: int, eta0: float, *, found: bool) -> tuple[Any, Any]:
    """Weights, bias and loss by the formulas, in double; w, b and their means stand as they are."""
    loss, penalty, bias = given
    l2, rows = penalty.l2, dense(batch, WIDTH)
    w, b = np.zeros((WIDTH, classes)), np.zeros(classes)
    mean_w, mean_b, t, total = w.copy(), b.copy(), 0.0, 0.0
    known = 0 if found else classes
    for x, y, c in zip(rows, batch.labels.astype(int), batch.weights.astype(float), strict=True):
        if c == 0.0:
            continue
        known = max(known, y + 1)
        scores = x @ w + b
        rivals = [k for k in range(known) if k != y]
        t += c
        slow = eta0 * min((1.0 + l2 * eta0 * t) ** -0.75, (1.0 + t / ROOT_ROWS) ** -0.5)
        eta = 1.0 / (l2 * (t + 1.0 / (l2 * eta0))) if name == "sgd" else slow
        w *= 1.0 - c * eta * l2
        b *= 1.0 - c * eta * l2 * bias.decay
        if rivals:
            r = max(rivals, key=lambda k: (scores[k], -k))
            margin = scores[y] - scores[r]
            total += c * loss.value(margin, 1.0)
            slope, rate = loss.slope(margin, 1.0), c * eta
            slope *= loss.share(margin, 1.0, 2.0 * rate * (x @ x + bias.gain))  # two classes move
            w[:, y] -= rate * slope * x
            w[:, r] += rate * slope * x
            b[y] -= rate * slope * bias.gain
            b[r] += rate * slope * bias.gain
        keep = 1.0 if name == "sgd" else mass(t - c) / mass(t)
        mean_w, mean_b = keep * mean_w + (1.0 - keep) * w, keep * mean_b + (1.0 - keep) * b
    return ((w, b) if name == "sgd" else (mean_w, mean_b)), total


def mass(t: float) -> float:
    from streamsvm.schedules import PolynomialDecay

    return float(PolynomialDecay().mass(t))


@BOTH
@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize("bias", ["penalised", "free", "none"])
@pytest.mark.parametrize("found", [False, True], ids=["declared", "found"])
def test_the_twin_agrees(name: str, loss: str, bias: str, found: bool) -> None:
    batch, given = made_classes(90, 4, seed=2), problem(loss, bias=bias)
    batch = in_order_of_appearance(batch) if found else batch
    solver = CRAMMER_SINGER[name](given, eta0=0.05, classes=0 if found else 4)
    if found:
        solver.admit(4)
    solver.begin_pass(1)
    solver.learn(batch)
    (weights, biases), total = twin(name, given, batch, 4, 0.05, found=found)
    learned, offset = solver.weights()
    full = np.zeros((WIDTH, 4))
    full[: len(learned)] = learned
    np.testing.assert_allclose(full, weights, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(offset, biases, rtol=2e-4, atol=2e-5)
    assert solver.scalars[5] == pytest.approx(total, rel=1e-4)


@BOTH
def test_many_passes_come_to_liblinears_optimum(name: str) -> None:
    train = pytest.importorskip("liblinear.liblinearutil")
    batch = made_classes(200, 4, seed=5)
    batch = batch._replace(weights=np.ones(200, np.float32))
    l2 = 0.01
    given = Problem(make_loss("hinge"), make_penalty(l2), make_bias("penalised", 1.0))
    solver = run_passes(CRAMMER_SINGER[name](given, classes=4), [batch], 400)
    weights, bias = solver.weights()
    sums = loss_sums(batch, given.loss, weights, bias, "crammer_singer")
    objective = given.objective(weights, bias, sums.loss / sums.weight)
    rows = [{j + 1: float(v) for j, v in enumerate(row) if v} for row in dense(batch, WIDTH)]
    model = train.train(batch.labels.tolist(), rows, f"-s 4 -c {1 / (l2 * 200)} -B 1 -e 1e-6 -q")
    table = np.array([[model.get_decfun_coef(j + 1, k) for k in range(4)] for j in range(model.nr_feature)])
    offset = np.array([model.get_decfun_bias(k) for k in range(4)])
    order = np.argsort(model.get_labels())
    best, best_offset = table[:, order].astype(np.float32), offset[order]
    sums = loss_sums(batch, given.loss, best, best_offset, "crammer_singer")
    least = given.objective(best, best_offset, sums.loss / sums.weight)
    assert least * (1 - 1e-3) <= objective <= least * (1.01 if name == "asgd" else 1.06)


@BOTH
@examples(25)
@given(st.lists(st.integers(0, 120), max_size=6), st.integers(1, 6), st.booleans(), st.sets(st.integers(0, 6)))
def test_cuts_and_stops_change_nothing(
    name: str, points: list[int], classes: int, found: bool, stops: set[int]
) -> None:
    batch = made_classes(120, classes, seed=7)
    batch = in_order_of_appearance(batch) if found else batch

    def make() -> ManyClasses:
        return CRAMMER_SINGER[name](problem("squared_hinge"), eta0=0.1, classes=0 if found else classes)

    whole = make()
    whole.admit(classes)
    whole.learn(batch)
    solver, known = make(), 0
    for number, piece in enumerate(cut(batch, points)):
        known = max(known, int(piece.labels.max(initial=-1)) + 1)
        if found:
            solver.admit(known)
        solver.learn(piece)
        if number in stops:
            state, solver = solver.state(), make()
            solver.restore(state)
            assert bits(solver.state(), ROOM) == bits(state, ROOM)
    for left, right in zip(solver.weights(), whole.weights(), strict=True):
        assert np.array_equal(left, right)
    assert solver.scalars[:8].tolist() == whole.scalars[:8].tolist()


@BOTH
def test_one_class_alone_has_no_rival(name: str) -> None:
    batch = made_classes(50, 3)._replace(labels=np.zeros(50, np.float32))
    solver = CRAMMER_SINGER[name](problem(), eta0=0.1)
    solver.admit(1)
    solver.learn(batch)
    weights, bias = solver.weights()
    assert not weights.any() and not bias.any() and solver.scalars[5] == 0.0


@BOTH
def test_numbers_that_overflow_are_told(name: str) -> None:
    """Steps do not, as they are implicit; so these are the weights to begin with."""
    batch = made_classes(200, 3)
    huge = batch._replace(values=batch.values * np.float32(1e18))
    weights, _ = run_passes(CRAMMER_SINGER[name](problem(), eta0=1e30, classes=3), [huge], 2).weights()
    assert np.isfinite(weights).all()
    solver = CRAMMER_SINGER[name](problem(), eta0=1e30, classes=3)
    solver.start_from(np.full((WIDTH, 3), 1e18, np.float32), np.zeros(3))
    with pytest.raises(DivergedError, match="at row"):
        run_passes(solver, [huge])
