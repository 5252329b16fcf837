"""Sums over all rows: those of NumPy, the same bits whatever the threads, and an end after every error."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from certificates import Array, Rows, dual_values, losses, rows_of
from made_rows import batch_of, cut, made_up

from streamsvm.batch import Batch
from streamsvm.errors import DataError
from streamsvm.groups import Groups, MemoryGroups
from streamsvm.losses import LOSSES, Hinge, Logistic, Loss, SmoothedHinge, SquaredHinge, make_loss
from streamsvm.penalties import L2
from streamsvm.solvers.base import Bias, Problem, make_bias
from streamsvm.solvers.sums import Sums

WIDTH = 30
ROOMY = 1 << 20
PENALISED = Bias()
BIASES = {"penalised": make_bias("penalised", 2.0), "free": make_bias("free", 0.5), "none": make_bias("none", 1.0)}
EVERY_LOSS = pytest.mark.parametrize("loss", [make_loss(name) for name in LOSSES], ids=list(LOSSES))
EVERY_BIAS = pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES)
SMOOTH = pytest.mark.parametrize("loss", [SquaredHinge(), SmoothedHinge(), Logistic(), Logistic(2.5)], ids=str)


class Problems:
    """Rows in groups, the same rows in NumPy, and some weights."""

    def __init__(
        self,
        loss: Loss,
        bias: Bias = PENALISED,
        *,
        rows: int = 300,
        pieces: int = 9,
        threads: int = 2,
        memory: int = ROOMY,
    ) -> None:
        self.problem = Problem(loss, L2(0.1), bias)
        whole = made_up(rows, WIDTH)
        rng = np.random.default_rng(5)
        self.batches = cut(whole, rng.integers(0, rows, pieces - 1).tolist())
        self.rows = rows_of(whole, WIDTH, self.problem)
        self.groups = MemoryGroups(self.batches, threads=threads)
        self.sums = Sums(self.groups, self.problem, memory)
        self.vector = rng.normal(size=WIDTH + 1)
        self.vector[-1] *= bias.gain > 0.0

    @property
    def scores(self) -> Array:
        return np.asarray(self.rows.matrix @ self.vector)


def curvatures(loss: Loss, rows: Rows, scores: Array) -> Array:
    """Of all rows, times their weights; of a logistic loss by its derivative, of others by what they are made of."""
    margins = rows.signs * scores
    if isinstance(loss, Logistic):
        share = 1.0 / (1.0 + np.exp(loss.scale * margins))
        return rows.weights * loss.scale**2 * share * (1.0 - share)
    assert not isinstance(loss, Hinge)
    if isinstance(loss, SquaredHinge):
        return rows.weights * 2.0 * (margins < loss.margin)
    short = loss.margin - margins
    return rows.weights * ((short > 0.0) & (short < loss.width)) / loss.width


def slopes(loss: Loss, margins: Array) -> Array:
    """By central differences of a function written elsewhere, and so not quite exact."""
    step = 1e-6
    return (losses(loss, margins + step) - losses(loss, margins - step)) / (2.0 * step)


@EVERY_LOSS
@EVERY_BIAS
def test_the_risk_is_that_of_numpy(loss: Loss, bias: Bias) -> None:
    made = Problems(loss, bias)
    scores = np.full(300, np.nan)
    risk = made.sums.risk(made.vector, scores)
    matrix, signs, weights = made.rows
    margins, total = signs * made.scores, weights.sum()
    np.testing.assert_allclose(scores, made.scores, rtol=1e-12, atol=1e-12)
    assert risk.loss == pytest.approx(weights @ losses(loss, margins) / total, rel=1e-12)
    assert risk.error == pytest.approx(weights @ ((made.scores > 0) != (signs > 0)) / total, rel=1e-12)
    alpha = -slopes(loss, margins)
    np.testing.assert_allclose(risk.gradient, matrix.T @ (weights * signs * -alpha) / total, rtol=1e-6, atol=1e-8)
    assert risk.dual == pytest.approx(
        weights @ dual_values(loss, np.clip(alpha, 0.0, loss.ceiling())) / total, rel=1e-5
    )
    without = made.sums.risk(made.vector)
    assert without.gradient.tobytes() == risk.gradient.tobytes() and without[:2] + without[3:] == risk[:2] + risk[3:]
    assert made.sums.readings == 2


@EVERY_LOSS
def test_the_slopes_prove_as_much_as_the_weights_cost(loss: Loss) -> None:
    """Loss = dual value - alpha y s, row by row, so the sums agree too: exactly, not by differences."""
    made = Problems(loss)
    risk = made.sums.risk(made.vector)
    assert risk.loss == pytest.approx(risk.dual + risk.gradient @ made.vector, rel=1e-12)


@SMOOTH
@EVERY_BIAS
def test_products_and_the_diagonal_are_those_of_the_hessian(loss: Loss, bias: Bias) -> None:
    made = Problems(loss, bias)
    matrix = made.rows.matrix.toarray()
    hessian = matrix.T @ (curvatures(loss, made.rows, made.scores)[:, None] * matrix) / made.rows.weights.sum()
    direction = np.random.default_rng(2).normal(size=WIDTH + 1)
    for _ in range(2):
        np.testing.assert_allclose(
            made.sums.product(made.scores, direction), hessian @ direction, rtol=1e-11, atol=1e-13
        )
        np.testing.assert_allclose(made.sums.diagonal(made.scores), np.diag(hessian), rtol=1e-11, atol=1e-13)
    assert made.sums.readings == 4


@SMOOTH
def test_a_part_of_the_rows_gives_the_mean_of_that_part(loss: Loss) -> None:
    made = Problems(loss)
    chosen = [7, 1, 4]
    part = np.concatenate([np.arange(made.groups.starts[n], made.groups.starts[n + 1]) for n in chosen])
    matrix, bends = made.rows.matrix.toarray()[part], curvatures(loss, made.rows, made.scores)[part]
    hessian = matrix.T @ (bends[:, None] * matrix) / made.rows.weights[part].sum()
    found = made.sums.product(made.scores, made.vector, chosen)
    np.testing.assert_allclose(found, hessian @ made.vector, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(made.sums.diagonal(made.scores, chosen), np.diag(hessian), rtol=1e-11, atol=1e-13)


@EVERY_BIAS
def test_the_combination_is_that_of_numpy(bias: Bias) -> None:
    made = Problems(Hinge(), bias)
    alpha = np.random.default_rng(3).uniform(size=300) * (np.arange(300) % 4 > 0)
    expected = made.rows.matrix.T @ (made.rows.weights * alpha * made.rows.signs) / made.rows.weights.sum()
    np.testing.assert_allclose(made.sums.combination(alpha), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("buffers", [0, 1, 3, 16, 1000])
def test_neither_threads_nor_their_speed_change_a_bit(buffers: int) -> None:
    def found(threads: int) -> list[bytes]:
        made = Problems(Logistic(), rows=900, pieces=60, threads=threads, memory=8 * (WIDTH + 1) * buffers)
        risk = made.sums.risk(made.vector)
        vectors = [risk.gradient, np.array([risk.loss, risk.error, risk.dual])]
        vectors += [made.sums.product(made.scores, made.vector), made.sums.diagonal(made.scores)]
        vectors += [made.sums.combination(np.abs(made.scores) / 100.0)]
        return [vector.tobytes() for vector in vectors]

    assert found(1) == found(2) == found(5)


def test_rows_are_told_group_by_group() -> None:
    told: list[int] = []
    made = Problems(Hinge())
    sums = Sums(made.groups, made.problem, ROOMY, told.append)
    sums.combination(np.ones(300))
    assert told == [batch.rows for batch in made.batches]


def test_nothing_is_divided_by_nothing() -> None:
    problem = Problem(Logistic(), L2(0.1))
    for groups in (MemoryGroups([]), MemoryGroups([batch_of([{0: 1.0}, {}], [0.0, 1.0], [0.0, 0.0])])):
        sums = Sums(groups, problem, ROOMY)
        vector, scores = np.ones(groups.width + 1), np.zeros(groups.rows)
        risk = sums.risk(vector)
        assert risk.loss == risk.error == risk.dual == 0.0 and not risk.gradient.any()
        assert not sums.product(scores, vector).any() and not sums.diagonal(scores).any()
        assert not sums.combination(scores).any()


def test_empty_rows_have_the_bias_alone() -> None:
    problem = Problem(SquaredHinge(), L2(0.1), make_bias("penalised", 3.0))
    sums = Sums(MemoryGroups([batch_of([{}, {}, {}], [0.0, 1.0, 1.0])]), problem, ROOMY)
    assert sums.size == 1 and sums.bias(np.array([0.1])) == pytest.approx(0.3)
    risk = sums.risk(np.array([0.1]))
    assert risk.loss == pytest.approx((1.3**2 + 2 * 0.7**2) / 3) and risk.error == pytest.approx(1 / 3)
    assert risk.gradient == pytest.approx([3.0 * (2 * 1.3 - 4 * 0.7) / 3])


# Errors, and many threads.


class Unreliable(MemoryGroups):
    """Groups that cannot all be read, or only with a delay."""

    def __init__(self, batches: Sequence[Batch], *, threads: int, bad: int = -1, wait: Callable[[int], float]) -> None:
        super().__init__(batches, threads=threads)
        self._bad = bad
        self._wait = wait

    def group(self, number: int) -> Batch:
        time.sleep(self._wait(number))
        if number == self._bad:
            raise DataError(f"group {number} cannot be read")
        return super().group(number)


def ends(work: Callable[[], Any]) -> list[BaseException]:
    """The error with which work ends, on another thread: it is not waited for without end."""
    errors: list[BaseException] = []

    def attempt() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive(), "does not end"
    return errors


UNREADABLE = [(bad, *sizes) for bad in (0, 5, 19) for sizes in ((1, 1), (1, 5), (2, 2), (16, 5))]


def unreadable(bad: int, buffers: int, threads: int) -> str:
    """What is said where a group cannot be read."""
    made = Problems(Hinge(), pieces=20)
    groups = Unreliable(made.batches, threads=threads, bad=bad, wait=lambda n: 0.02 * (n == bad))
    sums = Sums(groups, made.problem, 8 * (WIDTH + 1) * buffers)
    (error,) = ends(lambda: sums.risk(made.vector))
    return str(error)


def test_a_group_that_cannot_be_read_ends_the_sum(tmp_path: Path) -> None:
    """Others may be waiting for their turn after it. In a process of its own: threads that wait for ever stay there."""
    here = Path(__file__).parent
    script = f"""
import os, sys, warnings
warnings.simplefilter("ignore")
sys.path[:0] = [{str(here)!r}, {str(here.parent)!r}]
from test_sums import UNREADABLE, unreadable
try:
    for case in UNREADABLE:
        print(*case, unreadable(*case), flush=True)
finally:
    os._exit(0)
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    expected = [f"{bad} {buffers} {threads} group {bad} cannot be read" for bad, buffers, threads in UNREADABLE]
    assert done.stdout.splitlines() == expected, done.stderr


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_listener_that_fails_ends_the_sum_and_the_next_one_is_right(threads: int) -> None:
    made = Problems(Hinge(), pieces=20)
    expected = Sums(made.groups, made.problem, 1).combination(np.ones(300))
    calls: list[int] = []

    def tick(rows: int) -> None:
        calls.append(rows)
        if len(calls) == 4:
            raise KeyboardInterrupt

    groups: Groups = MemoryGroups(made.batches, threads=threads)
    sums = Sums(groups, made.problem, 1, tick)
    (error,) = ends(lambda: sums.combination(np.ones(300)))
    assert isinstance(error, KeyboardInterrupt)
    assert sums.combination(np.ones(300)).tobytes() == expected.tobytes()


@pytest.mark.parametrize("buffers", [1, 2, 16])
def test_turns_are_kept_by_many_threads(buffers: int) -> None:
    """Groups come late in a random way, again and again, and no sum is another one."""
    made = Problems(Logistic(), rows=600, pieces=80)
    memory = 8 * (WIDTH + 1) * buffers
    expected = Sums(made.groups, made.problem, memory).risk(made.vector)
    rng = np.random.default_rng(buffers)
    for _ in range(4):
        late = (rng.random(80) * 0.004 * (rng.random(80) < 0.3)).tolist()
        groups = Unreliable(made.batches, threads=12, wait=late.__getitem__)
        risk = Sums(groups, made.problem, memory).risk(made.vector)
        assert risk.gradient.tobytes() == expected.gradient.tobytes() and risk[:2] == expected[:2]
