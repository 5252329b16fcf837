"""Every kernel against a slow, clear twin in NumPy.

Twins of the first kind have the kernel's dtypes and order of operations, and agree to the last bit. Those of the second
kind are the formulas of the module's docstring on dense float64 vectors, without any scaling trick; they agree but for
rounding, after a hundred passes too.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from made_rows import batch_of, dense, equal_weights, made_up, run_passes

from streamsvm.batch import Batch
from streamsvm.losses import LOSSES, Loss, make_loss
from streamsvm.penalties import L2
from streamsvm.rows import FARTHEST
from streamsvm.solvers import SOLVERS, Asgd, OnlineSolver, Pegasos, Sgd, Sgdqn, Zhang
from streamsvm.solvers.asgd import ALPHA, BETA, ROOT_ROWS
from streamsvm.solvers.base import SCALE, SMALLEST_SCALE, Problem, T, make_bias
from streamsvm.solvers.pegasos import LONGEST_LEAP, SMALLEST_BETA
from streamsvm.solvers.sgdqn import EXTRA_BIAS, GOLDEN, NEXT, rounded

WIDTH = 40
ROWS = made_up(300, WIDTH, seed=11, longest=13)
PENALISED, FREE, NONE = (make_bias(kind, 1.5) for kind in ("penalised", "free", "none"))
BIASES = pytest.mark.parametrize("bias", [PENALISED, FREE, NONE], ids=["penalised", "free", "none"])
EVERY_LOSS = pytest.mark.parametrize("loss", [make_loss(name) for name in LOSSES], ids=list(LOSSES))
EXACT_LOSS = pytest.mark.parametrize("loss", [make_loss(name) for name in ("hinge", "squared_hinge")])
Vector = np.ndarray[Any, Any]


class Row(NamedTuple):
    indices: Vector
    values: Vector
    label: float
    weight: float


def rows_of(batch: Batch, passes: int) -> list[Row]:
    edges = list(zip(batch.indptr, batch.indptr[1:], strict=False))
    labels, weights = (2.0 * batch.labels - 1.0).tolist(), batch.weights.tolist()
    one = [Row(batch.indices[a:b], batch.values[a:b], labels[i], weights[i]) for i, (a, b) in enumerate(edges)]
    return [row for row in one * passes if row.weight]


def over_lanes(products: Vector) -> float:
    """Their sum in double, over four lanes."""
    lanes = [0.0] * 4
    whole = len(products) // 4 * 4
    for k, product in enumerate(products.tolist()):
        lanes[k % 4 if k < whole else 0] += product
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])


def dot(vector: Vector, row: Row) -> float:
    return over_lanes(vector[row.indices].astype(float) * row.values.astype(float))


def stiffness(eta: float, row: Row, gain: float) -> float:
    """How far a step of size eta along a slope of one moves the row's own score."""
    return eta * (over_lanes(row.values.astype(float) ** 2) + gain)


def implicit(loss: Loss, score: float, row: Row, eta: float, gain: float) -> float:
    """The slope where a step along it ends."""
    return loss.slope(score, row.label) * loss.share(score, row.label, stiffness(eta, row, gain))


def bounded(eta: float, loss: Loss, slope: float, row: Row, gain: float) -> float:
    """safe_rate: a steep step ends where the row's loss is least."""
    if loss.bend() == 0.0 or abs(slope) <= loss.bend():
        return eta
    return min(eta, 1.0 / (loss.bend() * stiffness(1.0, row, gain)))


def proving(problem: Problem, score: float, row: Row, eta: float) -> float:
    """The slope where the step begins, if that is to prove a bound, and no step is so long that numbers overflow."""
    if not problem.provable:
        return implicit(problem.loss, score, row, eta, problem.bias.gain)
    moved = stiffness(eta, row, problem.bias.gain)
    return problem.loss.slope(score, row.label) * (FARTHEST / moved if moved > FARTHEST else 1.0)


# To the last bit.


def sgd_twin(problem: Problem, eta0: float, rows: list[Row]) -> tuple[Vector, float]:
    loss, (l2,), bias = problem
    v, scale, t, b = np.zeros(WIDTH, np.float32), 1.0, 0.0, 0.0
    for row in rows:
        score = scale * dot(v, row) + b
        t += row.weight
        eta = 1.0 / (l2 * (t + 1.0 / (l2 * eta0)))
        scale *= 1.0 - row.weight * eta * l2
        b *= 1.0 - row.weight * eta * l2 * bias.decay
        if scale < SMALLEST_SCALE:
            v, scale = v * np.float32(scale), 1.0
        step = row.weight * eta * proving(problem, score, row, row.weight * eta)
        v[row.indices] += np.float32(-step / scale) * row.values
        b -= step * bias.gain
    return v * np.float32(scale), b


def pegasos_twin(problem: Problem, k: int, project: bool, rows: list[Row], average: bool) -> tuple[Vector, float]:
    loss, (l2,), bias = problem
    v, scale, norm2, t, b = np.zeros(WIDTH, np.float32), 1.0, 0.0, 0.0, 0.0
    u, alpha, beta, mean_b = np.zeros(WIDTH, np.float32), 0.0, 0.0, 0.0  # mean = alpha v + beta u
    for start in range(0, len(rows), k):
        waiting, slopes, weight = [], 0.0, 0.0
        for row in rows[start : start + k]:
            score = scale * dot(v, row) + b
            slope = loss.slope(score, row.label)
            if slope and not problem.provable:
                slope = implicit(loss, score, row, row.weight * (1.0 / (l2 * (t + 1.0))), bias.gain)
            slope *= row.weight
            if slope:
                waiting += list(zip(row.indices.tolist(), np.float32(slope) * row.values, strict=True))
            slopes += slope
            weight += row.weight
        keep = mass(t) / mass(t + weight / k)
        t += weight / k
        eta = 1.0 / (l2 * t)
        scale *= 1.0 - eta * l2 * (weight / k)
        squares = 0.0
        for _, amount in waiting:
            squares += float(amount) * float(amount)
        leap = project and l2 * (eta / k) ** 2 * len(rows[start : start + k]) * squares > LONGEST_LEAP**2
        if scale < SMALLEST_SCALE or (average and (beta < SMALLEST_BETA or leap)):
            u, alpha, beta = np.float32(alpha) * v + np.float32(beta) * u, 0.0, 1.0
            v, scale, norm2 = v * np.float32(scale), 1.0, 0.0
            for weight_of_feature in v.astype(float).tolist():
                norm2 += weight_of_feature * weight_of_feature
        for j, amount in waiting:
            before = float(v[j])
            v[j] += np.float32(-eta / k / scale) * amount
            norm2 += float(v[j]) * float(v[j]) - before * before
            if average:
                u[j] += np.float32(alpha / beta * eta / k / scale) * amount
        b = b * (1.0 - eta * l2 * (weight / k) * bias.decay) - eta / k * slopes * bias.gain
        length2 = scale * scale * norm2 + (b * b / bias.gain if bias.decay else 0.0)
        if project and length2 * l2 > 1.0:
            scale *= 1.0 / np.sqrt(length2 * l2)
            b *= 1.0 / np.sqrt(length2 * l2) if bias.decay else 1.0
        alpha, beta, mean_b = keep * alpha + (1.0 - keep) * scale, keep * beta, keep * mean_b + (1.0 - keep) * b
    return (np.float32(alpha) * v + np.float32(beta) * u, mean_b) if average else (v * np.float32(scale), b)


def mass(t: float) -> float:
    """Of polynomial decay: mass(t - 1) / mass(t) = 1 - 4 / (t + 3)."""
    return t * (t + 1.0) * (t + 2.0) * (t + 3.0)


class SgdqnTwin:
    """With single the kernel's own arithmetic; in double the same steps, without rounding by turns."""

    def __init__(self, problem: Problem, eta0: float, skip: int, single: bool = True) -> None:
        self.problem, self.eta0, self.skip = problem, eta0, skip
        self.real: Any = np.float32 if single else np.float64
        self.v, self.extra = np.zeros(WIDTH, self.real), np.zeros(WIDTH, self.real)
        self.t = self.b = self.extra_b = self.weight_since = 0.0
        self.rows_since = 0

    def growth(self) -> float:
        return 1.0 + self.problem.l2 * self.eta0 * self.t

    def weights(self) -> tuple[Vector, float]:
        return self.v / (self.extra + self.real(self.growth())), self.b

    def dot(self, row: Row) -> float:
        total = 0.0
        for j, x in zip(row.indices.tolist(), row.values.tolist(), strict=True):
            total += float(self.v[j]) / (self.growth() + float(self.extra[j])) * x
        return total

    def learn(self, row: Row) -> None:
        loss, (l2,), bias = self.problem
        slope = loss.slope(self.dot(row) + self.b, row.label)
        self.t += row.weight
        rate_b = self.eta0 / (self.growth() + self.extra_b)
        self.b *= 1.0 - row.weight * l2 * rate_b * bias.decay
        share = row.weight
        if loss.bend() > 0.0 and abs(slope) > loss.bend():
            norm2 = 0.0
            for j, x in zip(row.indices.tolist(), row.values.tolist(), strict=True):
                norm2 += x * x / (self.growth() + float(self.extra[j]))
            share = min(share, 1.0 / (loss.bend() * (self.eta0 * norm2 + rate_b * bias.gain)))
        self.v[row.indices] += self.real(-share * self.eta0 * slope) * row.values
        self.b -= share * rate_b * slope * bias.gain
        self.rows_since += 1
        self.weight_since += row.weight
        if self.rows_since == self.skip:
            if slope:
                self.stiffen(row, slope, loss.slope(self.dot(row) + self.b, row.label), share)
            self.rows_since, self.weight_since = 0, 0.0

    def stiffen(self, row: Row, slope: float, after: float, share: float) -> None:
        slack = self.weight_since * (slope - after) / (slope * share)
        most = self.weight_since * 99.0 * self.problem.l2 * self.eta0
        if slack <= 0.0:
            return
        for j, x in zip(row.indices.tolist(), row.values.tolist(), strict=True):
            if x:
                before = self.growth() + float(self.extra[j])
                self.extra[j] = self.rounded(float(self.extra[j]) + min(most, slack * before), self.extra[j])
                grown = (self.growth() + float(self.extra[j])) / before
                self.v[j] = self.rounded(float(self.v[j]) * grown, self.v[j])
        self.extra_b += min(most, slack * (self.growth() + self.extra_b))

    def rounded(self, value: float, old: Any) -> Any:
        if self.real is np.float64:
            return value
        near = float(np.float32(value))
        unit = float(np.float32(near * (1.0 + NEXT))) - near
        new = np.float32(value + (GOLDEN * self.t % 1.0 - 0.5) * unit)
        return max(new, old, key=abs)


@EXACT_LOSS
@BIASES
@pytest.mark.parametrize(("l2", "eta0"), [(1e-2, 0.25), (1.0, 1e5), (1e-6, 0.01)])
def test_sgd_equals_its_twin_to_the_last_bit(loss: Loss, bias: Any, l2: float, eta0: float) -> None:
    problem = Problem(loss, L2(l2), bias)
    weights, b = run_passes(Sgd(problem, eta0=eta0, dim=WIDTH), [ROWS], 3).weights()
    expected, expected_b = sgd_twin(problem, eta0, rows_of(ROWS, 3))
    assert weights.tobytes() == expected.tobytes() and b == expected_b


@EXACT_LOSS
@BIASES
@pytest.mark.parametrize(("k", "project"), [(1, True), (1, False), (7, True), (64, False)])
@pytest.mark.parametrize("average", [False, True], ids=["last", "mean"])
@pytest.mark.parametrize("l2", [1e-2, 1e-5])
def test_pegasos_equals_its_twin_to_the_last_bit(
    loss: Loss, bias: Any, k: int, project: bool, average: bool, l2: float
) -> None:
    problem = Problem(loss, L2(l2), bias)
    solver = run_passes(Pegasos(problem, batch_size=k, project=project, average=average, dim=WIDTH), [ROWS], 3)
    expected, expected_b = pegasos_twin(problem, k, project, rows_of(ROWS, 3), average)
    assert solver.weights()[0].tobytes() == expected.tobytes() and solver.weights()[1] == expected_b


@EXACT_LOSS
@BIASES
@pytest.mark.parametrize(("l2", "eta0"), [(1e-2, 0.25), (0.1, 1e3), (1e-6, 1.0)])
@pytest.mark.parametrize("skip", [1, 5, 16])
def test_sgdqn_equals_its_twin_to_the_last_bit(loss: Loss, bias: Any, l2: float, eta0: float, skip: int) -> None:
    problem = Problem(loss, L2(l2), bias)
    rows = ROWS._replace(values=np.where(np.arange(len(ROWS.values)) % 7 == 0, np.float32(0), ROWS.values))
    solver = run_passes(Sgdqn(problem, eta0=eta0, skip=skip, dim=WIDTH), [rows], 2)
    twin = SgdqnTwin(problem, eta0, skip)
    for row in rows_of(rows, 2):
        twin.learn(row)
    assert solver.vector[1::2].tobytes() == twin.extra.tobytes() and twin.extra.any()
    assert solver.weights()[0].tobytes() == twin.weights()[0].tobytes()
    assert solver.weights()[1] == twin.b and solver.scalars[EXTRA_BIAS] == twin.extra_b


# But for rounding.


def dense_steps(
    problem: Problem, x: Vector, row: Row, state: tuple[Vector, float], eta: float, *, proof: bool = False
) -> tuple[Vector, float]:
    """w *= 1 - c eta l2;  w -= c eta slope x, and the bias as one more feature."""
    loss, (l2,), bias = problem
    w, b = state
    score, longest = float(w @ x) + b, row.weight * eta
    slope = proving(problem, score, row, longest) if proof else implicit(loss, score, row, longest, bias.gain)
    step = longest * slope
    shrink = 1.0 - row.weight * eta * l2
    return shrink * w - step * x, (shrink if bias.decay else 1.0) * b - step * bias.gain


def sgd_formula(problem: Problem, eta0: float, batch: Batch, passes: int) -> tuple[Vector, float]:
    w, b, t = np.zeros(WIDTH), 0.0, 0.0
    matrix = dense(batch, WIDTH)[batch.weights > 0]
    for x, row in zip(np.tile(matrix, (passes, 1)), rows_of(batch, passes), strict=True):
        t += row.weight
        w, b = dense_steps(problem, x, row, (w, b), 1.0 / (problem.l2 * t + 1.0 / eta0), proof=True)
    return w, b


class SgdqnFormula:
    """Every weight shrinks at every row, with its own B_j written out."""

    def __init__(self, problem: Problem, eta0: float, skip: int) -> None:
        self.problem, self.skip = problem, skip
        self.w, self.b, self.rows_since, self.weight_since = np.zeros(WIDTH), 0.0, 0, 0.0
        self.inverse, self.inverse_b = np.full(WIDTH, 1.0 / eta0), 1.0 / eta0  # 1 / B_j

    def learn(self, x: Vector, row: Row) -> None:
        loss, (l2,), bias = self.problem
        slope = loss.slope(float(self.w @ x) + self.b, row.label)
        self.inverse += row.weight * l2
        self.inverse_b += row.weight * l2
        share = row.weight
        if loss.bend() and abs(slope) > loss.bend():
            share = min(share, 1.0 / (loss.bend() * (x @ (x / self.inverse) + bias.gain / self.inverse_b)))
        change, change_b = -share * slope * x / self.inverse, -share * slope * bias.gain / self.inverse_b
        self.w += change - row.weight * l2 / self.inverse * self.w
        self.b += change_b - row.weight * l2 / self.inverse_b * self.b * bias.decay
        self.rows_since += 1
        self.weight_since += row.weight
        if self.rows_since == self.skip:
            turned = loss.slope(float(self.w @ x) + self.b, row.label) - slope
            moved = change != 0.0
            curvature = np.clip(l2 + turned * x[moved] / change[moved], l2, 100.0 * l2)
            self.inverse[moved] += self.weight_since * (curvature - l2)
            if change_b:  # the constant feature is sqrt(gain), and its weight b / sqrt(gain)
                self.inverse_b += self.weight_since * float(np.clip(turned * bias.gain / change_b, 0.0, 99.0 * l2))
            self.rows_since, self.weight_since = 0, 0.0

    def learn_all(self, batch: Batch, passes: int) -> "SgdqnFormula":
        matrix = dense(batch, WIDTH)[batch.weights > 0]
        for x, row in zip(np.tile(matrix, (passes, 1)), rows_of(batch, passes), strict=True):
            self.learn(x, row)
        return self


def zhang_formula(problem: Problem, eta0: float, batch: Batch, passes: int) -> tuple[Vector, float]:
    """The plain mean of all iterates, each as often as its row's weight says."""
    w, b = np.zeros(WIDTH), 0.0
    weights, iterates, biases = [], [], []
    matrix = dense(batch, WIDTH)[batch.weights > 0]
    for x, row in zip(np.tile(matrix, (passes, 1)), rows_of(batch, passes), strict=True):
        w, b = dense_steps(problem, x, row, (w, b), eta0)
        weights.append(row.weight)
        iterates.append(w)
        biases.append(b)
    return np.average(iterates, axis=0, weights=weights), float(np.average(biases, weights=weights))


def asgd_formula(problem: Problem, eta0: float, batch: Batch, passes: int) -> tuple[Vector, float]:
    """mean = (1 - mu) mean + mu w with mu = 4 / (t + 3); a row of weight c averages in c times."""
    w, b, t = np.zeros(WIDTH), 0.0, 0.0
    mean, mean_b = w, b
    matrix = dense(batch, WIDTH)[batch.weights > 0]
    for x, row in zip(np.tile(matrix, (passes, 1)), rows_of(batch, passes), strict=True):
        after = t + row.weight
        eta = eta0 * min((1.0 + problem.l2 * eta0 * after) ** -0.75, (1.0 + after / ROOT_ROWS) ** -0.5)
        w, b = dense_steps(problem, x, row, (w, b), eta)
        for _ in range(int(row.weight)):
            t += 1.0
            mu = 4.0 / (t + 3.0)
            mean, mean_b = (1.0 - mu) * mean + mu * w, (1.0 - mu) * mean_b + mu * b
    return mean, mean_b


def pegasos_formula(problem: Problem, k: int, batch: Batch, passes: int, average: bool = False) -> tuple[Vector, float]:
    """With `average` all weights must be 1 and k divide the rows: then mu = 4 / (t + 3) at each step."""
    loss, (l2,), bias = problem
    w, b, t = np.zeros(WIDTH), 0.0, 0.0
    mean, mean_b = w, b
    rows = list(zip(np.tile(dense(batch, WIDTH)[batch.weights > 0], (passes, 1)), rows_of(batch, passes), strict=True))
    for start in range(0, len(rows), k):
        chosen = rows[start : start + k]
        share = sum(row.weight for _, row in chosen) / k
        gradient, slopes = np.zeros(WIDTH), 0.0
        for x, row in chosen:
            score, longest = float(w @ x) + b, row.weight / (l2 * (t + 1.0))
            slope = row.weight * (
                loss.slope(score, row.label) if problem.provable else implicit(loss, score, row, longest, bias.gain)
            )
            gradient += slope * x
            slopes += slope
        t += share
        w = (1.0 - share / t) * w - gradient / (l2 * t * k)
        b = (1.0 - share / t * bias.decay) * b - slopes * bias.gain / (l2 * t * k)
        length = np.sqrt(w @ w + (b * b / bias.gain if bias.decay else 0.0))
        shorter = min(1.0, 1.0 / (np.sqrt(l2) * length)) if length else 1.0
        w, b = shorter * w, (shorter if bias.decay else 1.0) * b
        mu = 4.0 / (t + 3.0)
        mean, mean_b = (1.0 - mu) * mean + mu * w, (1.0 - mu) * mean_b + mu * b
    return (mean, mean_b) if average else (w, b)


def whole_weights(batch: Batch) -> Batch:
    """Weights 0, 1, 2, 3: such that a row of weight c can be averaged c times."""
    return batch._replace(weights=(np.arange(batch.rows) % 4).astype(np.float32))


def close(solver: OnlineSolver, expected: tuple[Vector, float], tolerance: float) -> None:
    weights, b = solver.weights()
    size = np.abs(expected[0]).max()
    assert size > 0.01  # otherwise there is nothing to compare
    assert np.abs(weights - expected[0]).max() < tolerance * size
    assert abs(b - expected[1]) < tolerance * max(size, abs(expected[1]))


@EVERY_LOSS
@BIASES
@pytest.mark.parametrize("batch", [equal_weights(ROWS), whole_weights(ROWS)], ids=["weight one", "weights 0 to 3"])
def test_asgd_is_the_naive_average_of_its_iterates(loss: Loss, bias: Any, batch: Batch) -> None:
    problem = Problem(loss, L2(1e-2), bias)
    close(run_passes(Asgd(problem, eta0=0.1), [batch], 3), asgd_formula(problem, 0.1, batch, 3), 2e-5)


@EVERY_LOSS
@BIASES
def test_sgd_is_its_formula(loss: Loss, bias: Any) -> None:
    problem = Problem(loss, L2(1e-2), bias)
    close(run_passes(Sgd(problem, eta0=0.1), [ROWS], 2), sgd_formula(problem, 0.1, ROWS, 2), 2e-5)


@EVERY_LOSS
@BIASES
@pytest.mark.parametrize("k", [1, 7])
def test_pegasos_is_its_formula(loss: Loss, bias: Any, k: int) -> None:
    problem = Problem(loss, L2(0.1), bias)
    close(run_passes(Pegasos(problem, batch_size=k), [ROWS], 2), pegasos_formula(problem, k, ROWS, 2), 1e-4)


@EVERY_LOSS
@BIASES
@pytest.mark.parametrize("k", [1, 5])
def test_pegasos_gives_the_naive_average_of_its_iterates(loss: Loss, bias: Any, k: int) -> None:
    problem, rows = Problem(loss, L2(0.1), bias), equal_weights(ROWS)
    solver = run_passes(Pegasos(problem, batch_size=k, average=True), [rows], 3)
    close(solver, pegasos_formula(problem, k, rows, 3, average=True), 1e-4)


@EVERY_LOSS
@BIASES
def test_zhang_is_the_plain_mean_of_its_iterates(loss: Loss, bias: Any) -> None:
    problem = Problem(loss, L2(1e-2), bias)
    close(run_passes(Zhang(problem, eta0=0.1), [ROWS], 2), zhang_formula(problem, 0.1, ROWS, 2), 2e-5)


@EVERY_LOSS
@BIASES
@pytest.mark.parametrize("skip", [1, 16])
@pytest.mark.parametrize("l2", [1e-2, 1e-4])
def test_sgdqn_is_its_formula(loss: Loss, bias: Any, skip: int, l2: float) -> None:
    """Shrinking without touching a feature is exact: in double precision only rounding tells the two apart."""
    problem = Problem(loss, L2(l2), bias)
    formula = SgdqnFormula(problem, 0.1, skip).learn_all(ROWS, 2)
    twin = SgdqnTwin(problem, 0.1, skip, single=False)
    for row in rows_of(ROWS, 2):
        twin.learn(row)
    weights, b = twin.weights()
    assert np.abs(weights - formula.w).max() < 1e-11 * np.abs(formula.w).max() and abs(b - formula.b) < 1e-11
    assert np.allclose((twin.growth() + twin.extra) / 0.1, formula.inverse, rtol=1e-11)
    close(run_passes(Sgdqn(problem, eta0=0.1, skip=skip), [ROWS], 2), (formula.w, formula.b), 1e-4)


SHORT = equal_weights(made_up(90, WIDTH, seed=12))
SMOOTH = Problem(make_loss("logistic"), L2(0.05), PENALISED)


def test_a_hundred_passes_of_sgd_do_not_drift() -> None:
    """Scaled and written out again many times, w stays what the formula says."""
    solver = run_passes(Sgd(SMOOTH, eta0=4000.0, dim=WIDTH), [SHORT], 100)
    close(solver, sgd_formula(SMOOTH, 4000.0, SHORT, 100), 2e-4)


def test_a_hundred_passes_of_asgd_do_not_drift() -> None:
    solver = run_passes(Asgd(SMOOTH, eta0=0.5, dim=WIDTH), [SHORT], 100)
    close(solver, asgd_formula(SMOOTH, 0.5, SHORT, 100), 2e-4)


def test_a_hundred_passes_of_pegasos_do_not_drift() -> None:
    solver = run_passes(Pegasos(SMOOTH, batch_size=2, dim=WIDTH), [SHORT], 100)
    close(solver, pegasos_formula(SMOOTH, 2, SHORT, 100), 2e-4)


def test_a_hundred_passes_of_zhang_do_not_drift() -> None:
    """A constant step makes the scale small again and again.

    With a loss whose implicit step is written down: a logistic one is solved for to 0.1 %, rounding decides when.
    """
    problem = Problem(make_loss("smoothed_hinge"), L2(0.05), PENALISED)
    solver = run_passes(Zhang(problem, eta0=0.5, dim=WIDTH), [SHORT], 100)
    close(solver, zhang_formula(problem, 0.5, SHORT, 100), 2e-4)


def test_the_mean_of_pegasos_survives_steps_that_are_projected_far_back() -> None:
    """Unscaled features: nearly all of a step is taken back at once, and the mean must not be what is left of it."""
    rows = SHORT._replace(values=SHORT.values * np.float32(1e6))
    problem = Problem(make_loss("hinge"), L2(0.1), PENALISED)
    solver = run_passes(Pegasos(problem, batch_size=2, average=True, dim=WIDTH), [rows], 3)
    weights, _ = solver.weights()
    expected, _ = pegasos_formula(problem, 2, rows, 3, average=True)
    assert np.abs(weights - expected).max() < 1e-4 * np.abs(expected).max()


def test_a_hundred_passes_of_pegasos_averaged_do_not_drift() -> None:
    solver = run_passes(Pegasos(SMOOTH, batch_size=2, average=True, dim=WIDTH), [SHORT], 100)
    close(solver, pegasos_formula(SMOOTH, 2, SHORT, 100, average=True), 2e-4)


@pytest.mark.parametrize("skip", [1, 16])
def test_a_hundred_passes_of_sgdqn_do_not_drift(skip: int) -> None:
    formula = SgdqnFormula(SMOOTH, 40.0, skip).learn_all(SHORT, 100)
    close(run_passes(Sgdqn(SMOOTH, eta0=40.0, skip=skip, dim=WIDTH), [SHORT], 100), (formula.w, formula.b), 2e-4)


# After very many rows.


def late(skip: int, extra: float) -> tuple[Sgdqn, SgdqnFormula]:
    """sgdqn as if 10^8 rows had gone by, its curvatures gathered all the way."""
    problem, eta0, t = Problem(make_loss("logistic"), L2(1e-4), PENALISED), 0.5, 1e8
    known = np.linspace(-1.0, 1.0, WIDTH).astype(np.float32)
    solver, formula = Sgdqn(problem, eta0=eta0, skip=skip, dim=WIDTH), SgdqnFormula(problem, eta0, skip)
    solver.start_from(known, 0.5)
    solver.scalars[T] = t
    growth = 1.0 + eta0 * problem.l2 * t
    gathered = extra * eta0 * problem.l2 * t
    solver.run(SHORT.slice(0, 0))  # the known weights take their place
    solver.vector[0::2] *= np.float32((growth + gathered) / growth)
    solver.vector[1::2] = np.float32(gathered)
    solver.scalars[EXTRA_BIAS] = float(np.float32(gathered))
    formula.w, formula.b = solver.weights()[0].astype(float), 0.5
    formula.inverse[:] = formula.inverse_b = (growth + float(np.float32(gathered))) / eta0
    return solver, formula


@pytest.mark.parametrize("extra", [0.0, 99.0])
def test_a_step_of_sgdqn_after_a_hundred_million_rows_is_that_of_the_formula(extra: float) -> None:
    solver, formula = late(1 << 30, extra)
    before, b_before = formula.w.copy(), formula.b
    row = batch_of([{j: 0.1 * (j + 1) for j in range(WIDTH)}], [0])
    solver.learn(row)
    formula.learn_all(row, 1)
    moved = solver.weights()[0].astype(float) - before
    assert np.all(np.abs(moved) > 0) and np.allclose(moved, formula.w - before, rtol=0.02, atol=1.2e-7)
    assert solver.weights()[1] - b_before == pytest.approx(formula.b - b_before, rel=1e-6)


@pytest.mark.parametrize("extra", [1.0, 99.0])
def test_curvature_found_after_a_hundred_million_rows_still_counts(extra: float) -> None:
    """Each change is a fraction of a unit in float32's last place. Lost, or made with w_j changed, it would show."""
    solver, formula = late(1, extra)
    before, w_before = formula.inverse.copy(), formula.w.copy()
    gathered = solver.vector[1::2].astype(float)
    run_passes(solver, [SHORT], 100)
    formula.learn_all(SHORT, 100)
    expected = (formula.inverse - before - 1e-4 * 100 * SHORT.rows) * 0.5
    touched = expected > 0
    found = solver.vector[1::2].astype(float) - gathered
    assert touched.sum() > 20 and np.allclose(found[touched], expected[touched], rtol=0.25)
    assert found.sum() == pytest.approx(expected.sum(), rel=0.02)
    moved, expected_move = solver.weights()[0] - w_before, formula.w - w_before
    assert np.abs(moved - expected_move).max() < 0.06 * np.abs(expected_move).max()


@pytest.mark.parametrize("start", [1.0, -1.0, 495_000.0, 2.0**20 - 3.0, -3e-5])
@pytest.mark.parametrize("change", [0.01, 0.16, 0.5, 1.3])
@pytest.mark.parametrize("skip", [1, 16])
def test_changes_smaller_than_single_precision_add_up(start: float, change: float, skip: int) -> None:
    value, unit = np.float32(start), float(np.spacing(np.float32(abs(start)))) * np.sign(start)
    for number in range(2000):
        turn = GOLDEN * (1e8 + skip * number) % 1.0 - 0.5
        value = np.float32(rounded(float(value) + change * unit, value, turn))
    assert (float(value) - start) / unit == pytest.approx(2000 * change, abs=8.0)
    assert rounded(0.0, np.float32(0.0), 0.4) == 0.0 and not np.isfinite(rounded(4e38, np.float32(3e38), 0.4))


# A row of weight two.


@pytest.mark.parametrize("against", [True, False], ids=["both violate", "none violates"])
@pytest.mark.parametrize("bias", [PENALISED, NONE], ids=["penalised", "none"])
def test_a_row_of_weight_two_is_the_row_given_twice_where_shrinking_telescopes(against: bool, bias: Any) -> None:
    """Steps of 1 / (l2 t) add up exactly while the slope stays the same; those of asgd and zhang shrink differently."""
    problem = Problem(make_loss("hinge"), L2(0.5), bias)
    first = equal_weights(ROWS).slice(0, 40)
    solvers: list[OnlineSolver] = [Sgd(problem, eta0=0.1), Pegasos(problem, project=False), Sgdqn(problem, eta0=0.1)]
    for solver in solvers:
        solver.learn(first)
        weights, _ = solver.weights()
        strongest = int(np.abs(weights).argmax())
        side = bool(weights[strongest] > 0)
        row = batch_of([{strongest: 1.0 if against else 100.0, 35: 0.1}], [float(side != against)], [2.0])
        other = type(solver)(problem, **({"project": False} if isinstance(solver, Pegasos) else {"eta0": 0.1}))
        other.restore(solver.state())
        before = solver.weights()[0]
        solver.learn(row)
        other.learn(equal_weights(row))
        other.learn(equal_weights(row))
        once, b = solver.weights()
        twice, other_b = other.weights()
        assert np.abs(once - before).max() > 1e-3 and np.allclose(once, twice, rtol=1e-6, atol=1e-8), solver.name
        assert b == pytest.approx(other_b, rel=1e-12) and solver.scalars[T] == other.scalars[T]
        bound, other_bound = solver.lower_bound(), other.lower_bound()
        assert (bound is None) == (other_bound is None) == (solver.name == "sgdqn")
        assert bound is None or bound == pytest.approx(other_bound, rel=1e-5)


# Written out again.


@pytest.mark.parametrize("name", ["sgd", "asgd", "pegasos", "zhang"])
def test_the_scaled_form_is_written_out_before_it_gets_too_small(name: str) -> None:
    """With a strong penalty the scale shrinks fast: it must come back, and nothing may be lost with it."""
    problem = Problem(make_loss("logistic"), L2(4.0), PENALISED)
    solver: OnlineSolver
    if name == "sgd":
        solver, expected = Sgd(problem, eta0=1e4, dim=WIDTH), sgd_formula(problem, 1e4, SHORT, 20)
    elif name == "asgd":
        solver, expected = Asgd(problem, eta0=0.2, dim=WIDTH), asgd_formula(problem, 0.2, SHORT, 20)
    elif name == "zhang":
        solver, expected = Zhang(problem, eta0=0.02, dim=WIDTH), zhang_formula(problem, 0.02, SHORT, 20)
    else:
        solver, expected = Pegasos(problem, dim=WIDTH), pegasos_formula(problem, 1, SHORT, 20)
    smallest, rises, before = 1.0, 0, 1.0
    for number in range(1, 21):
        solver.begin_pass(number)
        for i in range(SHORT.rows):
            solver.learn(SHORT.slice(i, i + 1))
            scale = float(solver.scalars[SCALE])
            rises += scale > before
            smallest, before = min(smallest, scale), scale
        solver.end_pass()
    solver.finish()
    assert SMALLEST_SCALE <= smallest < 0.1 and (rises >= 1 or name == "pegasos")
    close(solver, expected, 5e-4 if name == "zhang" else 2e-4)  # a plain mean forgets no early rounding


def test_asgd_rewrites_its_basis_again_and_again() -> None:
    """Over many rows beta falls below its bound more than once, and the mean survives it."""
    solver = Asgd(SMOOTH, eta0=0.5, dim=WIDTH)
    smallest, rises, before = 1.0, 0, 0.0
    for number in range(1, 61):
        solver.begin_pass(number)
        for i in range(0, SHORT.rows, 5):
            solver.learn(SHORT.slice(i, i + 5))
            beta = float(solver.scalars[BETA])
            rises += beta > before
            smallest, before = min(smallest, beta), beta
    assert rises >= 3 and smallest > 1e-7 and 0 < solver.scalars[ALPHA] <= 2
    close(solver, asgd_formula(SMOOTH, 0.5, SHORT, 60), 2e-4)


# The same sources without the compiler.


PLAIN = """
import sys, numpy as np
from made_rows import made_up, run_passes
from streamsvm.jit import DISABLED
from streamsvm.losses import LOSSES, make_loss
from streamsvm.penalties import make_penalty
from streamsvm.solvers import SOLVERS
from streamsvm.solvers.base import Problem

assert DISABLED == (sys.argv[1] == "plain")
strengths = {"l2": (1e-2, 0.0), "l1": (0.0, 1e-3), "elastic_net": (1e-2, 1e-3), "none": (0.0, 0.0)}
results = {}
for name, solver in SOLVERS.items():
    for kind in solver.penalties:
        for loss in LOSSES if kind == "l2" else ["squared_hinge"]:
            problem = Problem(make_loss(loss), make_penalty(*strengths[kind]))
            trained = run_passes(solver(problem), [made_up(40, 30, seed=11)])
            results[f"{name}-{loss}-{kind}"] = np.append(*trained.weights())
            results[f"{name}-{loss}-{kind}-scalars"] = trained.scalars
np.savez(sys.argv[2], **results)
"""


def test_the_same_sources_run_without_the_compiler(tmp_path: Path) -> None:
    """NUMBA_DISABLE_JIT=1 is for debuggers and coverage, and a second oracle for everything, step sizes included."""
    here = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    results = []
    for how in ("compiled", "plain"):
        environment = os.environ | {"PYTHONPATH": here, "NUMBA_DISABLE_JIT": str(int(how == "plain"))}
        command = [sys.executable, "-W", "error", "-c", PLAIN, how, str(tmp_path / f"{how}.npz")]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=250)
        with np.load(tmp_path / f"{how}.npz") as stored:
            results.append(dict(stored))
    assert len(results[0]) >= 2 * len(LOSSES) * len(SOLVERS)
    for name, compiled in results[0].items():
        assert np.allclose(compiled, results[1][name], rtol=1e-5, atol=1e-6 * np.abs(compiled).max()), name
