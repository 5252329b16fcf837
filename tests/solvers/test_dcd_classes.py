"""dcd for several classes: the optima of LIBLINEAR and of binary dcd, slow twins, and a proof that NumPy finds true."""

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from certificates import Array, Rows, dual, liblinear_vector, liblinearutil, primal, rows_of
from hypothesis import given
from hypothesis import strategies as st
from made_rows import batch_of, cut, dense, equal_weights, made_up, select
from scipy.sparse import csr_matrix
from test_dcd import BOTH, ENOUGH, EVERY_LOSS, ROOMY, TINY, Given, Learned, pieces
from tiers import examples

from streamsvm.batch import Batch, empty_batch
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.groups import Groups, MemoryGroups
from streamsvm.losses import Hinge, Logistic, Loss, SmoothedHinge, SquaredHinge, make_loss
from streamsvm.penalties import L1, L2
from streamsvm.scoring import loss_sums
from streamsvm.solvers.base import Bias, Problem, make_bias
from streamsvm.solvers.batch import Limits, Surroundings
from streamsvm.solvers.blocks import Block
from streamsvm.solvers.class_solvers import make_class_solver
from streamsvm.solvers.dcd import Dcd
from streamsvm.solvers.dcd_ova import ova_sweep

RULES = ("ova", "crammer_singer")
EVERY_RULE = pytest.mark.parametrize("rule", RULES)
PENALISED = Bias()


def classes_of(rows: int, classes: int, *, width: int = 30, seed: int = 0, noise: float = 0.7) -> Batch:
    """Made-up rows, some without features, some of weight 0; the largest of some linear scores is the class."""
    batch = made_up(rows, width, seed=seed)
    rng = np.random.default_rng(seed + classes)
    scores = dense(batch, width) @ rng.normal(size=(width, classes)) + noise * rng.normal(size=(rows, classes))
    return batch._replace(labels=scores.argmax(axis=1).astype(np.float32))


def problem_of(cost: float, batch: Batch, loss: Loss | None = None, bias: Bias = PENALISED) -> Problem:
    """In LIBLINEAR's scale."""
    return Problem(loss or Hinge(), L2(1.0 / (cost * float(batch.weights.sum(dtype=np.float64)))), bias)


# What NumPy says.


def against(rows: Rows, batch: Batch, k: int) -> Rows:
    """The rows of class k against all others."""
    return rows._replace(signs=np.where(batch.labels == k, 1.0, -1.0))


def singer_losses(scores: Array, codes: Array, margin: float) -> Array:
    ahead = scores - scores[np.arange(len(codes)), codes][:, None] + margin
    ahead[np.arange(len(codes)), codes] = 0.0
    return ahead.max(axis=1)


def class_primal(rule: str, batch: Batch, problem: Problem, table: Array) -> float:
    rows = rows_of(batch, len(table) - 1, problem)
    if rule == "ova":
        return sum(primal(against(rows, batch, k), problem, table[:, k]) for k in range(table.shape[1]))
    assert isinstance(problem.loss, Hinge)
    found = singer_losses(rows.matrix @ table, batch.labels.astype(int), problem.loss.margin)
    return float(problem.l2 / 2.0 * (table**2).sum() + rows.weights @ found / rows.weights.sum())


def class_dual(rule: str, batch: Batch, problem: Problem, alpha: Array) -> float:
    rows = rows_of(batch, batch.width, problem)
    if rule == "ova":
        return sum(dual(against(rows, batch, k), problem, alpha[:, k]) for k in range(alpha.shape[1]))
    assert isinstance(problem.loss, Hinge)
    codes, total = batch.labels.astype(int), rows.weights.sum()
    own = alpha[np.arange(len(codes)), codes]
    others = alpha.copy()
    others[np.arange(len(codes)), codes] = 0.0
    assert np.abs(alpha.sum(axis=1)).max(initial=0.0) < 1e-12 and (others <= 0.0).all() and (own <= 1.0).all()
    table = rows.matrix.T @ (rows.weights[:, None] * alpha) / (problem.l2 * total)
    return float(problem.loss.margin * (rows.weights @ own) / total - problem.l2 / 2.0 * (table**2).sum())


class Solved(Learned):
    def __init__(self, rule: str, problem: Problem, groups: Groups, classes: int, **given: Any) -> None:
        self.rule = rule
        super().__init__(lambda around: make_class_solver(rule, problem, groups, around, classes), **given)

    def check(self, batch: Batch, *, precision: float = 1e-10) -> None:
        """The figures are those of NumPy, and nothing that was told is beyond what can be."""
        problem, figures, table = self.solver.problem, self.figures, self.solver.vector()
        assert figures.dual is not None and figures.gap is not None
        assert table.shape == (batch.width + 1, self.solver.classes)
        least = class_primal(self.rule, batch, problem, table)
        assert figures.objective == pytest.approx(least, rel=precision)
        proven = max(class_dual(self.rule, batch, problem, np.array(self.solver.alpha)), 0.0)
        assert figures.dual == pytest.approx(proven, rel=precision, abs=1e-14)
        self.check_told()


def solved(rule: str, batch: Batch, classes: int, cost: float = 1.0, loss: Loss | None = None, **given: Any) -> Solved:
    bias = given.pop("bias", PENALISED)
    one = Solved(rule, problem_of(cost, batch, loss, bias), Given(pieces(batch)), classes, **given)
    if given.get("learn", True):
        one.check(batch)
    return one


# Other solvers.


@pytest.mark.parametrize("name", ["hinge", "squared_hinge", "logistic"])
@pytest.mark.parametrize("classes", [3, 10])
def test_each_class_has_the_optimum_of_liblinear_and_of_dcd(name: str, classes: int) -> None:
    batch = equal_weights(classes_of(300, classes))
    tol, loss = 1e-5, make_loss(name)
    found = solved("ova", batch, classes, 0.3, loss, tol=tol)
    problem, table = found.solver.problem, found.solver.vector()
    rows = rows_of(batch, batch.width, problem)
    slack = tol * found.figures.objective  # of all classes together, and so of each
    for k in range(classes):
        own = against(rows, batch, k)
        ours = primal(own, problem, table[:, k])
        assert ours <= primal(own, problem, liblinear_vector(own, problem, name, 1e-8)) + slack * (1.0 + 1e-6)
        binary = batch._replace(labels=(batch.labels == k).astype(np.float32))
        other = Dcd(problem, Given(pieces(binary)), Surroundings(limits=Limits(1e-6, ENOUGH)))
        other.learn()
        assert other.figures is not None and ours == pytest.approx(
            other.figures.objective, abs=slack * 1.01 + 1e-6 * ours
        )
        distance = np.linalg.norm(table[:, k] - other.vector())  # P grows with it at least as the penalty does
        assert distance <= 1.01 * (math.sqrt(2.0 * slack / problem.l2) + math.sqrt(2e-6 * ours / problem.l2))


def liblinear_singer(batch: Batch, problem: Problem, classes: int) -> Array:
    """The weights that LIBLINEAR finds for rows of equal weight."""
    cost, scale = 1.0 / (problem.l2 * batch.rows), math.sqrt(problem.bias.gain)
    options = f"-s 4 -c {cost!r} -e 1e-9 -B {scale or -1} -q"
    model = liblinearutil.train(batch.labels.astype(float), csr_matrix(dense(batch, batch.width)), options)
    table = np.zeros((batch.width + 1, classes))
    for place, label in enumerate(model.get_labels()):
        found, bias = model.get_decfun(place)
        table[: len(found), int(label)], table[-1, int(label)] = found, bias / scale if scale else 0.0
    return table


@BOTH
@pytest.mark.parametrize("cost", [0.01, 0.5])
@pytest.mark.parametrize("classes", [3, 17])
def test_crammer_singer_has_the_optimum_of_liblinear(classes: int, cost: float, memory: int) -> None:
    batch = equal_weights(classes_of(300, classes))
    tol = 1e-6 if memory == ROOMY else 1e-4
    for bias in (make_bias("penalised", 1.0), make_bias("none", 1.0)):
        found = solved("crammer_singer", batch, classes, cost, tol=tol, memory=memory, bias=bias)
        problem = found.solver.problem
        theirs = class_primal("crammer_singer", batch, problem, liblinear_singer(batch, problem, classes))
        assert found.solver.converged and found.figures.objective <= theirs / (1.0 - tol) * (1.0 + 1e-9)
        assert all(one.dual is not None and one.dual <= theirs * (1.0 + 1e-9) for one in found.told)


def binary(batch: Batch, l2: float) -> float:
    solver = Dcd(Problem(Hinge(), L2(l2)), Given([batch]), Surroundings(limits=Limits(1e-6, ENOUGH)))
    solver.learn()
    assert solver.figures is not None
    return solver.figures.objective


def test_two_classes_are_the_binary_problem() -> None:
    """Twice, with weights of opposite signs, or with half the penalty: then w is the difference of two."""
    batch = made_up(300)
    l2 = problem_of(1.0, batch).l2
    twice, singer = solved("ova", batch, 2, tol=1e-6), solved("crammer_singer", batch, 2, tol=1e-6)
    assert twice.figures.objective == pytest.approx(2.0 * binary(batch, l2), rel=2e-6)
    table = twice.solver.vector()
    assert np.linalg.norm(table[:, 0] + table[:, 1]) <= 3.0 * math.sqrt(2e-6 * twice.figures.objective / l2)
    assert singer.figures.objective == pytest.approx(binary(batch, l2 / 2.0), rel=2e-6)
    np.testing.assert_allclose(singer.solver.vector().sum(axis=1), 0.0, atol=1e-12)


# The proof, whatever is solved.


@EVERY_LOSS
@BOTH
@pytest.mark.parametrize("kind", ["penalised", "none"])
def test_the_figures_are_those_of_numpy(loss: Loss, memory: int, kind: str) -> None:
    batch, classes = classes_of(700, 5), 5
    for rule in RULES if isinstance(loss, Hinge) else RULES[:1]:
        found = solved(rule, batch, classes, 2.0, loss, memory=memory, tol=1e-3, bias=make_bias(kind, 2.5))
        figures, problem = found.figures, found.solver.problem
        assert found.solver.converged and figures.gap is not None and figures.gap <= 1e-3
        table = found.solver.vector()
        scores = rows_of(batch, 30, problem).matrix @ table
        wrong = scores.argmax(axis=1) != batch.labels
        assert figures.error == pytest.approx(batch.weights @ wrong / batch.weights.sum(dtype=float), rel=1e-6)
        penalty = problem.l2 / 2.0 * (table**2).sum()
        assert figures.loss + penalty == pytest.approx(figures.objective, rel=1e-12)
        weights, offset = found.solver.weights()
        assert weights.dtype == np.float32 and weights.shape == (30, classes)
        assert offset.dtype == np.float64 and offset.shape == (classes,) and (not offset.any()) == (kind == "none")
        total, weight, missed = loss_sums(batch, loss, weights, offset, rule)  # as a model is judged
        assert total / weight == pytest.approx(figures.loss, rel=1e-4)
        assert missed / weight == pytest.approx(figures.error, abs=2e-3)


@EVERY_RULE
@BOTH
@pytest.mark.parametrize("classes", [1, 2, 3, 4, 5, 8, 9, 17, 100])
def test_any_number_of_classes(rule: str, memory: int, classes: int) -> None:
    batch = classes_of(300, classes, noise=0.1)
    found = solved(rule, batch, classes, 0.5, tol=1e-3, memory=memory)
    assert found.solver.converged and f"{classes} classes" in found.solver.described()
    if classes > 5:
        assert len(set(batch.labels.tolist())) > classes / 2


@EVERY_RULE
def test_classes_without_rows(rule: str) -> None:
    batch = classes_of(300, 3)._replace(labels=np.full(300, 2.0, np.float32))
    for classes in (3, 12):
        assert solved(rule, batch, classes, tol=1e-5).figures.error < 0.02


def test_any_shares_prove_a_bound() -> None:
    """The dual of Crammer and Singer, by brute force: no weights are below what any dual variables say."""
    rng = np.random.default_rng(0)
    batch = classes_of(40, 4, width=10)
    for margin in (1.0, 0.3):
        problem = problem_of(1.0, batch, Hinge(margin))
        best = solved("crammer_singer", batch, 4, loss=Hinge(margin), tol=1e-9)
        tables = [best.solver.vector(), *(rng.normal(size=(11, 4)) * 10.0 ** rng.uniform(-2, 1) for _ in range(200))]
        least = min(class_primal("crammer_singer", batch, problem, table) for table in tables)
        assert least == pytest.approx(best.figures.objective, rel=1e-12)
        for _ in range(200):
            shares = rng.dirichlet(np.full(4, 10.0 ** rng.uniform(-2, 1)), size=40)
            alpha = np.eye(4)[batch.labels.astype(int)] - shares
            assert class_dual("crammer_singer", batch, problem, alpha) <= least * (1.0 + 1e-9)
        assert class_dual("crammer_singer", batch, problem, np.array(best.solver.alpha)) >= least * (1.0 - 2e-9)


@pytest.mark.parametrize("classes", [2, 5, 23])
@pytest.mark.parametrize("cost", [1e-3, 0.1, 1.0, 50.0])
def test_one_row_is_solved_in_one_step(classes: int, cost: float) -> None:
    batch = batch_of([{0: 1.0, 2: -2.0}], [1.0], [3.0])
    found = solved("crammer_singer", batch, classes, cost, passes=1, tol=1e-11)
    assert found.solver.converged and found.solver.passes == 1


# Slow twins.


def ova_step(loss: Any, alpha: Array, scores: Array, own: int, u: float, q: float) -> tuple[Array, float]:
    """New dual variables and the gap that is seen; that of the sum is the sum of gaps."""
    moved, seen = alpha.copy(), 0.0
    for k, score in enumerate(scores):
        margin = score if k == own else -score
        seen += u * (loss.value(margin, 1.0) + alpha[k] * margin - loss.dual_value(alpha[k]))
        with np.errstate(divide="ignore"):
            moved[k] = loss.dual_step(alpha[k], margin, q)
    return moved, seen


def singer_step(loss: Any, alpha: Array, scores: Array, own: int, u: float, q: float) -> tuple[Array, float]:
    """The nearest point of the simplex, by sorting."""
    whole = np.eye(len(scores))[own]
    v = scores + loss.margin * (1.0 - whole)
    seen = u * (v.max() - (whole - alpha) @ v)
    if q == 0.0:
        return whole - np.eye(len(scores))[v.argmax()], seen
    target = whole - alpha + v / q
    falling = np.sort(target)[::-1]
    levels = (np.cumsum(falling) - 1.0) / np.arange(1, len(falling) + 1)
    level = levels[np.flatnonzero(falling > levels)[-1]]
    return whole - np.maximum(target - level, 0.0), seen


def never_rest(monkeypatch: pytest.MonkeyPatch, calm: float = 1e9) -> None:
    for module in ("dcd_ova", "dcd_cs"):
        monkeypatch.setattr(f"streamsvm.solvers.{module}.CALM", calm)


@pytest.mark.parametrize("classes", [3, 5, 11])
@pytest.mark.parametrize("kind", ["penalised", "none"])
@pytest.mark.parametrize(
    ("rule", "loss"),
    [*(("ova", loss) for loss in (Hinge(), SquaredHinge(), SmoothedHinge(), Logistic())), ("crammer_singer", Hinge())],
    ids=str,
)
def test_passes_are_those_of_a_slow_twin(
    rule: str, loss: Loss, kind: str, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows in their order, before any of them rests; the gap that is seen decides when to scan."""
    monkeypatch.setattr(Block, "mix", lambda block, seed: None)
    never_rest(monkeypatch)
    batch = classes_of(60, classes)
    problem = problem_of(0.7, batch, loss, make_bias(kind, 1.5))
    solver = Solved(rule, problem, Given(pieces(batch)), classes, learn=False).solver
    solver._load()
    rows = rows_of(batch, 30, problem)
    matrix, total = rows.matrix.toarray(), rows.weights.sum()
    alpha, signs = np.zeros((60, classes)), np.where(np.arange(classes) == batch.labels[:, None], 1.0, -1.0)
    signs = signs if rule == "ova" else np.ones_like(signs)
    table = np.zeros((31, classes))
    step = ova_step if rule == "ova" else singer_step
    for _ in range(3):
        seen = 0.0
        for i in np.flatnonzero(rows.weights):
            u = rows.weights[i] / (problem.l2 * total)
            q = u * (matrix[i] @ matrix[i])
            moved, one = step(loss, alpha[i], matrix[i] @ table, int(batch.labels[i]), u, q)
            table += u * np.outer(matrix[i], signs[i] * (moved - alpha[i]))
            alpha[i], seen = moved, seen + problem.l2 * one
        proven = class_dual(rule, batch, problem, alpha)
        assert solver._pass() == pytest.approx(seen / (proven + seen), rel=1e-8)
        np.testing.assert_allclose(np.array(solver.alpha), alpha, atol=1e-9)
        np.testing.assert_allclose(solver._w[:, :classes], table, atol=1e-9)
        assert not solver._w[:, classes:].any()


CODE = """
import sys
import numpy as np
from test_dcd_classes import RULES, classes_of, solved
from streamsvm.jit import DISABLED

assert DISABLED == (sys.argv[1] == "plain")
for rule in RULES:
    for memory in (1 << 30, 1):
        found = solved(rule, classes_of(40, 5), 5, tol=1e-2, memory=memory)
        print(repr(found.figures), found.solver.passes, np.array(found.solver.alpha).sum().hex())
"""


def test_plain_python_does_the_same(tmp_path: Path) -> None:
    """NUMBA_DISABLE_JIT=1 is a second oracle, to the last bit."""
    here, printed = os.pathsep.join(path for path in sys.path if path), []
    for how in ("plain", "compiled"):
        environment = os.environ | {"PYTHONPATH": here, "NUMBA_DISABLE_JIT": str(int(how == "plain"))}
        printed.append(
            subprocess.run(
                [sys.executable, "-c", CODE, how],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
    assert printed[0] == printed[1] and printed[0].count("Figures") == 4


# Rows of all kinds.


def both(
    rule: str, batch: Batch, classes: int = 3, cost: float = 1.0, *, tol: float = 1e-6, **given: Any
) -> list[Solved]:
    """Solved in memory and by blocks, and checked."""
    found = [solved(rule, batch, classes, cost, memory=memory, tol=tol, **given) for memory in (ROOMY, TINY)]
    assert all(one.solver.converged for one in found)
    return found


@EVERY_RULE
def test_empty_rows_and_rows_of_weight_zero(rule: str) -> None:
    rows: list[dict[int, float]] = [{}, {0: 1.0}, {}, {1: -2.0}, {0: 1e6}, {}]
    batch = batch_of(rows, [1.0, 1.0, 0.0, 2.0, 0.0, 1.0], [1.0, 2.0, 0.5, 1.0, 0.0, 3.0])
    for bias in (make_bias("penalised", 1.0), make_bias("none", 1.0)):
        one = both(rule, batch, bias=bias, tol=1e-9)[0]
        other = both(rule, select(batch, [0, 1, 2, 3, 5]), bias=bias, tol=1e-9)[0]
        assert one.figures.objective == pytest.approx(other.figures.objective, rel=1e-8)


@EVERY_RULE
def test_no_features_at_all(rule: str) -> None:
    batch = batch_of([{}, {}, {}], [1.0, 2.0, 0.0])
    for bias in (make_bias("penalised", 1.0), make_bias("none", 1.0)):
        for found in both(rule, batch, bias=bias):
            assert found.solver.weights()[0].shape == (0, 3)
    assert found.figures.objective == pytest.approx(3.0 if rule == "ova" else 1.0)


@EVERY_RULE
def test_nothing_to_learn_from(rule: str) -> None:
    """Whoever makes groups of a cache refuses that; a solver makes no number that is none."""
    for batches in ([], [empty_batch()], [batch_of([{0: 1.0}, {}], [0.0, 2.0], [0.0, 0.0])]):
        found = Solved(rule, Problem(Hinge(), L2(0.1)), Given(batches), 3)
        assert found.figures.objective == found.figures.dual == 0.0 and not found.solver.vector().any()


@EVERY_RULE
def test_a_row_of_weight_two_is_the_row_twice(rule: str) -> None:
    batch, times = classes_of(120, 4), np.arange(120) % 4
    weighted = batch._replace(weights=times.astype(np.float32))
    repeated = equal_weights(select(batch, np.repeat(np.arange(120), times).tolist()))
    one, other = both(rule, weighted, 4, 0.3, tol=1e-6), both(rule, repeated, 4, 0.3, tol=1e-6)
    assert one[0].figures.objective == pytest.approx(other[0].figures.objective, rel=2e-6)
    slack = 2.0 * math.sqrt(2e-6 * one[0].figures.objective / one[0].solver.problem.l2)
    assert np.linalg.norm(one[0].solver.vector() - other[0].solver.vector()) <= 1.01 * slack


@EVERY_RULE
@pytest.mark.parametrize("size", [1e-20, 1e-6, 1e6, 1e12, 1e25, 3e38])
def test_features_of_any_size_give_numbers(rule: str, size: float) -> None:
    """Not all of them are learned quickly, but figures stay figures, and the proof stays one."""
    batch = equal_weights(classes_of(60, 3))
    values = batch.values * np.float32(size) if size < 1e30 else np.sign(batch.values) * np.float32(size)
    large = batch._replace(values=values)
    for memory in (ROOMY, TINY):
        found = Solved(rule, problem_of(1.0, large), Given(pieces(large)), 3, memory=memory, tol=1e-3, passes=30)
        assert found.solver._possible(np.array(found.solver.alpha))
        assert math.isfinite(found.figures.objective) and np.isfinite(found.solver.vector()).all()
        duals = [one.dual for one in found.told if one.dual is not None]
        assert 0.0 <= duals[-1] <= found.figures.objective * (1.0 + 1e-12)
        assert all(b >= a * (1.0 - 1e-12) for a, b in pairwise(duals))


@st.composite
def any_rows(draw: st.DrawFn) -> Batch:
    value = st.sampled_from([1.0, -1.0, 0.5, 2.0, -3.0, 1e-3])
    rows = draw(st.lists(st.dictionaries(st.integers(0, 4), value, max_size=4), min_size=1, max_size=14))
    repeats = draw(st.sampled_from([1, 1, 5]))
    codes = draw(st.lists(st.integers(0, 4).map(float), min_size=len(rows), max_size=len(rows)))
    weights = draw(st.lists(st.sampled_from([1.0, 1.0, 0.0, 0.25, 3.0]), min_size=len(rows), max_size=len(rows)))
    return batch_of(rows * repeats, codes * repeats, [1.0, *weights[1:]] * repeats)


@given(
    batch=any_rows(),
    what=st.sampled_from(
        [("ova", Hinge()), ("ova", SquaredHinge()), ("ova", SmoothedHinge()), ("ova", Logistic())]
        + 3 * [("crammer_singer", Hinge())]
    ),
    cost=st.sampled_from([1e-4, 0.1, 1.0, 30.0]),
    bias=st.sampled_from([make_bias("penalised", 1.0), make_bias("penalised", 0.1), make_bias("none", 1.0)]),
    memory=st.sampled_from([ROOMY, TINY]),
    threads=st.integers(1, 3),
    passes=st.sampled_from([1, 3, 300]),
    points=st.lists(st.integers(0, 70), max_size=3),
    classes=st.sampled_from([5, 6, 9]),
)
@examples(60)
def test_any_rows_any_problem(
    batch: Batch, what: tuple[str, Loss], cost: float, bias: Bias, memory: int, threads: int, passes: int,
    points: list[int], classes: int,
) -> None:  # fmt: skip
    rule, loss = what
    groups = Given(cut(batch, [min(point, batch.rows) for point in points]), threads=threads)
    problem = problem_of(cost, batch, loss, bias)
    found = Solved(rule, problem, groups, classes, memory=memory, passes=passes, tol=1e-4)
    found.check(batch, precision=1e-9)
    assert found.solver.converged or found.solver.passes == passes


# The same bits.


@pytest.mark.parametrize(
    ("rule", "loss"), [("ova", Hinge()), ("ova", Logistic()), ("crammer_singer", Hinge())], ids=str
)
@BOTH
def test_neither_threads_nor_time_change_a_bit(
    rule: str, loss: Loss, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = classes_of(1000, 19)
    problem = problem_of(0.1, batch, loss)
    expected = Solved(rule, problem, Given(pieces(batch, 25), threads=1), 19, memory=memory, tol=1e-2).bits
    monkeypatch.setattr("streamsvm.solvers.dcd_ova.ALONE_BELOW", 0)
    for threads in (2, 3, 5):
        rng = np.random.default_rng(threads)
        pauses = (rng.random(26) * 0.003 * (rng.random(26) < 0.2)).tolist()
        late = Given(pieces(batch, 25), threads=threads, before=lambda n, pauses=pauses: time.sleep(pauses[n]))  # type: ignore[misc]
        assert Solved(rule, problem, late, 19, memory=memory, tol=1e-2).bits == expected


def test_parts_are_learned_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only where there is enough to do."""
    batch, used = classes_of(300, 19), set()
    problem = problem_of(0.1, batch)

    def noted(*given: Any) -> None:
        used.add(threading.current_thread().name)
        ova_sweep(*given)

    monkeypatch.setattr("streamsvm.solvers.dcd_ova.ova_sweep", noted)
    Solved("ova", problem, Given([batch], threads=3), 19, tol=1e-1)
    assert used == {"MainThread"}
    used.clear()
    monkeypatch.setattr("streamsvm.solvers.dcd_ova.ALONE_BELOW", 0)
    Solved("ova", problem, Given([batch], threads=3), 19, tol=1e-1)
    assert used and all(name.startswith("streamsvm-work") for name in used)


def test_a_part_of_the_classes_does_not_know_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes 0 to 7 have the same numbers whether others follow or not; only the order of rows that rest differs."""
    never_rest(monkeypatch)
    batch = classes_of(400, 8)
    problem = problem_of(0.5, batch)
    one = Solved("ova", problem, Given([batch]), 8, passes=9, tol=1e-12)
    other = Solved("ova", problem, Given([batch]), 13, passes=9, tol=1e-12)
    assert np.array_equal(one.solver.alpha, np.array(other.solver.alpha)[:, :8])
    assert np.array_equal(one.solver._w, other.solver._w[:, :8])


@EVERY_RULE
def test_the_seed_decides(rule: str) -> None:
    batch = classes_of(600, 5)
    one, same, other = (solved(rule, batch, 5, seed=seed, tol=1e-4) for seed in (1, 1, 2))
    assert one.bits == same.bits != other.bits
    assert one.figures.objective == pytest.approx(other.figures.objective, rel=2e-4)


# Another penalty, other beginnings.


@BOTH
@pytest.mark.parametrize(
    ("rule", "loss"), [("ova", Hinge()), ("ova", SquaredHinge()), ("crammer_singer", Hinge())], ids=str
)
def test_another_penalty_is_learned_from_where_it_stands(rule: str, loss: Loss, memory: int) -> None:
    batch = classes_of(500, 5)
    warm = solved(rule, batch, 5, 0.01, loss, memory=memory, tol=1e-3)
    for cost in (0.1, 1.0, 0.3):
        problem = problem_of(cost, batch, loss)
        warm.solver.with_penalty(problem.l2)
        assert warm.solver.figures is None and warm.solver.passes == 0
        warm.told.clear()
        warm.solver.learn()
        warm.check(batch)
        cold = solved(rule, batch, 5, cost, loss, memory=memory, tol=1e-3)
        assert warm.solver.problem.l2 == problem.l2 and warm.solver.converged
        assert warm.figures.objective == pytest.approx(cold.figures.objective, rel=1.1e-3)


@BOTH
@pytest.mark.parametrize(
    ("rule", "loss"), [("ova", SquaredHinge()), ("ova", Logistic()), ("crammer_singer", Hinge())], ids=str
)
def test_known_weights_save_passes(rule: str, loss: Loss, memory: int) -> None:
    batch, bias = classes_of(500, 5), make_bias("penalised", 2.0)
    given: dict[str, Any] = {"cost": 3.0, "loss": loss, "bias": bias, "memory": memory, "tol": 1e-2}
    cold = solved(rule, batch, 5, **given)
    warm = solved(rule, batch, 5, learn=False, **given)
    warm.solver.start_from(*solved(rule, batch, 5, **given | {"tol": 1e-4, "memory": ROOMY}).solver.weights())
    warm.solver.learn()
    warm.check(batch)
    assert warm.solver.converged and warm.solver.passes < cold.solver.passes


@EVERY_LOSS
@BOTH
@pytest.mark.parametrize("length", [0, 50])
def test_whatever_weights_it_begins_with_the_proof_is_true(loss: Loss, memory: int, length: int) -> None:
    """Also a model of fewer features, or of more, and not a good one."""
    batch, rng = classes_of(300, 5), np.random.default_rng(7)
    for rule in RULES if isinstance(loss, Hinge) else RULES[:1]:
        found = solved(rule, batch, 5, loss=loss, memory=memory, tol=1e-3, learn=False)
        found.solver.start_from(rng.normal(size=(length, 5)).astype(np.float32), rng.normal(size=5))
        found.solver.learn()
        found.check(batch)
        assert found.solver.converged


# Going on later.


@BOTH
@pytest.mark.parametrize(
    ("rule", "loss"), [("ova", Hinge()), ("ova", Logistic()), ("crammer_singer", Hinge())], ids=str
)
def test_a_state_taken_at_any_tick_is_a_valid_proof(rule: str, loss: Loss, memory: int) -> None:
    batch = classes_of(300, 5)
    states: list[dict[str, Any]] = []
    ticks = [0]

    def tick(rows: int) -> None:
        ticks[0] += 1
        if ticks[0] % 7 == 2 and len(states) < 8:
            states.append(running.solver.state())

    running = solved(rule, batch, 5, loss=loss, memory=memory, passes=12, tol=1e-12, tick=tick, learn=False)
    running.solver.learn()
    assert len(states) >= 3 and states[-1]["alpha"].any()
    for state in states:
        before = state["alpha"].tobytes()
        resumed = solved(rule, batch, 5, loss=loss, memory=memory, passes=1, tol=1e-12, learn=False)
        resumed.solver.restore(state)
        if state["passes"]:
            resumed.solver.learn()  # a look at what it stands for; no pass may follow
            assert resumed.solver.passes == state["passes"] and len(resumed.told) == 1
            proven = max(class_dual(rule, batch, resumed.solver.problem, np.array(state["alpha"])), 0.0)
            assert resumed.figures.dual == pytest.approx(proven, rel=1e-10)
            resumed.check(batch)
        further = solved(rule, batch, 5, loss=loss, memory=memory, tol=1e-2, learn=False)
        further.solver.restore(state)
        further.solver.learn()
        further.check(batch)
        assert further.solver.converged and further.solver.passes >= state["passes"]
        assert state["alpha"].tobytes() == before  # it is a copy


@EVERY_RULE
@BOTH
@pytest.mark.parametrize("call", [1, 6, 30])
def test_it_can_be_stopped_where_it_ticks(rule: str, memory: int, call: int) -> None:
    """And goes on: here or elsewhere."""
    batch = classes_of(500, 5)
    calls = [0]

    def tick(rows: int) -> None:
        calls[0] += 1
        if calls[0] == call:
            raise KeyboardInterrupt

    stopped = solved(rule, batch, 5, memory=memory, tick=tick, tol=1e-3, learn=False)
    with pytest.raises(KeyboardInterrupt):
        stopped.solver.learn()
    resumed = solved(rule, batch, 5, memory=memory, tol=1e-3, learn=False)
    resumed.solver.restore(stopped.solver.state())
    for one in (resumed, stopped):
        one.solver.learn()
        one.check(batch)
        assert one.solver.converged


@EVERY_RULE
def test_dual_variables_may_be_in_a_file(rule: str, tmp_path: Path) -> None:
    batch = classes_of(500, 9)
    problem = problem_of(1.0, batch)
    found = Solved(rule, problem, Given(pieces(batch), scratch=tmp_path), 9, memory=TINY, tol=1e-2)
    for column, shape in ((found.solver.alpha, (500, 9)), (found.solver.rests, (500, 2))):
        assert isinstance(column, np.memmap) and column.shape == shape
    assert isinstance(found.solver.state()["alpha"], np.memmap) and list(tmp_path.iterdir()) == []
    found.check(batch)
    assert found.bits == Solved(rule, problem, Given(pieces(batch)), 9, memory=TINY, tol=1e-2).bits


SPOILT: dict[str, Callable[[Array], Any]] = {
    "nan": lambda alpha: np.where(np.arange(len(alpha))[:, None] == 5, np.nan, alpha),
    "beyond": lambda alpha: np.where(np.arange(len(alpha))[:, None] == 5, 1.0 + 1e-9, alpha),
    "below": lambda alpha: np.where(np.arange(len(alpha))[:, None] == 5, -1.0 - 1e-9, alpha),
    "inf": lambda alpha: np.where(np.arange(len(alpha))[:, None] == 5, np.inf, alpha),
    "short": lambda alpha: alpha[:-1],
    "one class": lambda alpha: alpha[:, :1],
    "flat": lambda alpha: alpha.reshape(-1),
    "empty": lambda alpha: alpha[:0],
}


@EVERY_RULE
@pytest.mark.parametrize("how", SPOILT)
def test_dual_variables_that_cannot_be_are_refused(rule: str, how: str) -> None:
    found = solved(rule, classes_of(100, 3), 3, tol=1e-3)
    state = found.solver.state()
    with pytest.raises(ModelError, match="the dual variables saved are not those of these rows"):
        found.solver.restore({**state, "alpha": SPOILT[how](state["alpha"])})
    assert np.array_equal(found.solver.alpha, state["alpha"])


@pytest.mark.parametrize("row", [[0.5, -0.5, 0.1], [0.5, -0.4, 0.0], [-0.5, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0][:3]])
def test_shares_that_are_none_are_refused(row: list[float]) -> None:
    """Their sum, their signs, and whose they are."""
    batch = batch_of([{0: 1.0}, {1: 1.0}], [0.0, 2.0])
    solver = Solved("crammer_singer", problem_of(1.0, batch), Given([batch]), 3, learn=False).solver
    state = {"alpha": np.array([row, [0.0, 0.0, 0.0]]), "passes": 1}
    if not any(row):
        solver.restore(state)
        return
    with pytest.raises(ModelError):
        solver.restore(state)


# Limits, memory and refusals.


@EVERY_RULE
@BOTH
@pytest.mark.parametrize("passes", [1, 10, 11])
def test_passes_are_not_exceeded(rule: str, memory: int, passes: int) -> None:
    found = solved(rule, classes_of(500, 5), 5, 100.0, memory=memory, passes=passes, tol=1e-15)
    assert found.solver.passes == passes and not found.solver.converged


@EVERY_RULE
def test_scans_are_made_when_the_gap_seems_small_enough(rule: str) -> None:
    """Neither one after each pass nor only when ten have gone by; a looser tolerance needs fewer passes."""
    counts, scans = [], []
    for tol in (1e-1, 1e-2, 1e-3):
        found = solved(rule, classes_of(700, 5), 5, 0.1, tol=tol)
        counts.append(found.solver.passes)
        scans.append(len(found.told))
    assert counts == sorted(counts) and any(count % 10 for count in counts)
    assert all(many <= 2 + count / 4 for many, count in zip(scans, counts, strict=True))


@EVERY_RULE
def test_the_memory_decides_how_it_goes_about_it(rule: str) -> None:
    """Tables of weights and dual variables of all classes are part of what is used."""
    batch = classes_of(2000, 10)
    groups, problem = Given(pieces(batch)), problem_of(1.0, batch)
    tables, duals, features = 32 * 31 * 16, 2000 * (8 * 10 + 2 + 1), 8 * batch.features + 44 * 2000
    least = tables + duals + features
    for memory, said in ((least, "all 2,000 rows stay in memory"), (least - 1, "blocks of")):
        found = Solved(rule, problem, groups, 10, memory=memory, learn=False).solver
        assert said in found.described() and found.described().startswith("10 classes, ")
    assert type(found).weight_bytes_for(10) == 16 * 40 and type(found).weight_bytes_for(3) == 4 * 40


@EVERY_RULE
def test_what_it_cannot_do_is_refused(rule: str) -> None:
    groups, around = MemoryGroups([classes_of(10, 3)]), Surroundings()
    with pytest.raises(ConfigError, match="solver dcd cannot minimise penalty l1"):
        make_class_solver(rule, Problem(Hinge(), L1(0.1)), groups, around, 3)
    with pytest.raises(ConfigError, match="solver dcd cannot have a free bias"):
        make_class_solver(rule, Problem(Hinge(), L2(0.1), make_bias("free", 1.0)), groups, around, 3)
    with pytest.raises(ConfigError, match="needs classes, not 0"):
        make_class_solver(rule, Problem(Hinge(), L2(0.1)), groups, around, 0)
    solver = make_class_solver(rule, Problem(Hinge(), L2(0.1)), groups, around, 3)
    for weights in (np.zeros((30, 2), np.float32), np.zeros(30, np.float32)):
        with pytest.raises(ModelError, match="not those of 3 classes"):
            solver.start_from(weights, np.zeros(2))


def test_crammer_singer_has_one_loss() -> None:
    groups = MemoryGroups([classes_of(10, 3)])
    for loss in (SquaredHinge(), SmoothedHinge(), Logistic()):
        with pytest.raises(ConfigError, match=f"Crammer-Singer needs loss hinge, not {type(loss).__name__}"):
            make_class_solver("crammer_singer", Problem(loss, L2(0.1)), groups, Surroundings(), 3)
    with pytest.raises(ConfigError, match="by rule all_pairs; rules: ova, crammer_singer"):
        make_class_solver("all_pairs", Problem(Hinge(), L2(0.1)), groups, Surroundings(), 3)


@EVERY_RULE
@BOTH
@pytest.mark.parametrize("threads", [1, 3])
def test_a_group_that_cannot_be_read_ends_it(rule: str, memory: int, threads: int) -> None:
    batch = classes_of(500, 3)
    count = [0]

    def before(number: int) -> None:
        count[0] += 1
        if count[0] == 5:
            raise DataError("the disk is gone")

    groups = Given(pieces(batch), threads=threads, before=before)
    with pytest.raises(DataError, match="the disk is gone"):
        Solved(rule, problem_of(1.0, batch), groups, 3, memory=memory)


@EVERY_RULE
@BOTH
def test_rows_that_rest_too_early_are_woken(rule: str, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With whatever threshold, a tight tolerance is reached: a scan looks at all rows."""
    batch = equal_weights(classes_of(400, 4, noise=0.0))
    for calm in (1e-6, 1e3):
        never_rest(monkeypatch, calm)
        found = solved(rule, batch, 4, tol=1e-5, memory=memory)
        assert found.solver.converged
        assert (np.array(found.solver.rests) != 0).mean() > (0.5 if calm < 1.0 else -1.0)
