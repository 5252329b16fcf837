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
from made_rows import dense, equal_weights, made_up, run_passes

from streamsvm.batch import Batch
from streamsvm.losses import LOSSES, Loss, make_loss
from streamsvm.penalties import L2
from streamsvm.solvers import SOLVERS, Asgd, OnlineSolver, Pegasos, Sgd
from streamsvm.solvers.asgd import ALPHA, BETA
from streamsvm.solvers.base import SCALE, SMALLEST_SCALE, Problem, make_bias

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


def dot(vector: Vector, row: Row) -> float:
    """In double, over four lanes."""
    lanes = [0.0] * 4
    products = (vector[row.indices].astype(float) * row.values.astype(float)).tolist()
    whole = len(products) // 4 * 4
    for k, product in enumerate(products):
        lanes[k % 4 if k < whole else 0] += product
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])


def bounded(eta: float, loss: Loss, slope: float, row: Row, gain: float) -> float:
    """safe_rate: a steep step ends where the row's loss is least."""
    if loss.bend() == 0.0 or abs(slope) <= loss.bend():
        return eta
    norm2 = 0.0
    for value in row.values.astype(float).tolist():
        norm2 += value * value
    return min(eta, 1.0 / (loss.bend() * (norm2 + gain)))


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
        slope = loss.slope(score, row.label)
        step = slope * bounded(row.weight * eta, loss, slope, row, bias.gain)
        v[row.indices] += np.float32(-step / scale) * row.values
        b -= step * bias.gain
    return v * np.float32(scale), b


def pegasos_twin(problem: Problem, k: int, project: bool, rows: list[Row]) -> tuple[Vector, float]:
    loss, (l2,), bias = problem
    v, scale, norm2, t, b = np.zeros(WIDTH, np.float32), 1.0, 0.0, 0.0, 0.0
    for start in range(0, len(rows), k):
        waiting, slopes, weight = [], 0.0, 0.0
        for row in rows[start : start + k]:
            score = scale * dot(v, row) + b
            slope = row.weight * loss.slope(score, row.label)
            if slope:
                longest = row.weight * (1.0 / (l2 * (t + 1.0)))
                slope *= bounded(longest, loss, slope / row.weight, row, bias.gain) / longest
                waiting += list(zip(row.indices.tolist(), np.float32(slope) * row.values, strict=True))
            slopes += slope
            weight += row.weight
        t += weight / k
        eta = 1.0 / (l2 * t)
        scale *= 1.0 - eta * l2 * (weight / k)
        if scale < SMALLEST_SCALE:
            v, scale, norm2 = v * np.float32(scale), 1.0, 0.0
            for weight_of_feature in v.astype(float).tolist():
                norm2 += weight_of_feature * weight_of_feature
        for j, amount in waiting:
            before = float(v[j])
            v[j] += np.float32(-eta / k / scale) * amount
            norm2 += float(v[j]) * float(v[j]) - before * before
        b = b * (1.0 - eta * l2 * (weight / k) * bias.decay) - eta / k * slopes * bias.gain
        length2 = scale * scale * norm2 + (b * b / bias.gain if bias.decay else 0.0)
        if project and length2 * l2 > 1.0:
            scale *= 1.0 / np.sqrt(length2 * l2)
            b *= 1.0 / np.sqrt(length2 * l2) if bias.decay else 1.0
    return v * np.float32(scale), b


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
@pytest.mark.parametrize("l2", [1e-2, 1e-5])
def test_pegasos_equals_its_twin_to_the_last_bit(loss: Loss, bias: Any, k: int, project: bool, l2: float) -> None:
    problem = Problem(loss, L2(l2), bias)
    solver = run_passes(Pegasos(problem, batch_size=k, project=project, dim=WIDTH), [ROWS], 3)
    expected, expected_b = pegasos_twin(problem, k, project, rows_of(ROWS, 3))
    assert solver.weights()[0].tobytes() == expected.tobytes() and solver.weights()[1] == expected_b


# But for rounding.


def dense_steps(problem: Problem, x: Vector, row: Row, state: tuple[Vector, float], eta: float) -> tuple[Vector, float]:
    """w *= 1 - c eta l2;  w -= c eta slope x, and the bias as one more feature."""
    loss, (l2,), bias = problem
    w, b = state
    slope = loss.slope(float(w @ x) + b, row.label)
    step = bounded(row.weight * eta, loss, slope, row, bias.gain) * slope
    shrink = 1.0 - row.weight * eta * l2
    return shrink * w - step * x, (shrink if bias.decay else 1.0) * b - step * bias.gain


def sgd_formula(problem: Problem, eta0: float, batch: Batch, passes: int) -> tuple[Vector, float]:
    w, b, t = np.zeros(WIDTH), 0.0, 0.0
    matrix = dense(batch, WIDTH)[batch.weights > 0]
    for x, row in zip(np.tile(matrix, (passes, 1)), rows_of(batch, passes), strict=True):
        t += row.weight
        w, b = dense_steps(problem, x, row, (w, b), 1.0 / (problem.l2 * t + 1.0 / eta0))
    return w, b


def asgd_formula(problem: Problem, eta0: float, batch: Batch, passes: int) -> tuple[Vector, float]:
    """mean = (1 - mu) mean + mu w with mu = 4 / (t + 3); a row of weight c averages in c times."""
    w, b, t = np.zeros(WIDTH), 0.0, 0.0
    mean, mean_b = w, b
    matrix = dense(batch, WIDTH)[batch.weights > 0]
    for x, row in zip(np.tile(matrix, (passes, 1)), rows_of(batch, passes), strict=True):
        eta = eta0 * (1.0 + problem.l2 * eta0 * (t + row.weight)) ** -0.75
        w, b = dense_steps(problem, x, row, (w, b), eta)
        for _ in range(int(row.weight)):
            t += 1.0
            mu = 4.0 / (t + 3.0)
            mean, mean_b = (1.0 - mu) * mean + mu * w, (1.0 - mu) * mean_b + mu * b
    return mean, mean_b


def pegasos_formula(problem: Problem, k: int, batch: Batch, passes: int) -> tuple[Vector, float]:
    loss, (l2,), bias = problem
    w, b, t = np.zeros(WIDTH), 0.0, 0.0
    rows = list(zip(np.tile(dense(batch, WIDTH)[batch.weights > 0], (passes, 1)), rows_of(batch, passes), strict=True))
    for start in range(0, len(rows), k):
        chosen = rows[start : start + k]
        share = sum(row.weight for _, row in chosen) / k
        gradient, slopes = np.zeros(WIDTH), 0.0
        for x, row in chosen:
            slope = loss.slope(float(w @ x) + b, row.label)
            longest = row.weight / (l2 * (t + 1.0))
            slope *= row.weight * bounded(longest, loss, slope, row, bias.gain) / longest
            gradient += slope * x
            slopes += slope
        t += share
        w = (1.0 - share / t) * w - gradient / (l2 * t * k)
        b = (1.0 - share / t * bias.decay) * b - slopes * bias.gain / (l2 * t * k)
        length = np.sqrt(w @ w + (b * b / bias.gain if bias.decay else 0.0))
        shorter = min(1.0, 1.0 / (np.sqrt(l2) * length)) if length else 1.0
        w, b = shorter * w, (shorter if bias.decay else 1.0) * b
    return w, b


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


@pytest.mark.parametrize("name", ["sgd", "asgd", "pegasos"])
def test_the_scaled_form_is_written_out_before_it_gets_too_small(name: str) -> None:
    """With a strong penalty the scale shrinks fast: it must come back, and nothing may be lost with it."""
    problem = Problem(make_loss("logistic"), L2(4.0), PENALISED)
    solver: OnlineSolver
    if name == "sgd":
        solver, expected = Sgd(problem, eta0=1e4, dim=WIDTH), sgd_formula(problem, 1e4, SHORT, 20)
    elif name == "asgd":
        solver, expected = Asgd(problem, eta0=0.2, dim=WIDTH), asgd_formula(problem, 0.2, SHORT, 20)
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
    close(solver, expected, 2e-4)


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
from streamsvm.penalties import L2
from streamsvm.solvers import SOLVERS
from streamsvm.solvers.base import Problem

assert DISABLED == (sys.argv[1] == "plain")
results = {}
for name, solver in SOLVERS.items():
    for loss in LOSSES:
        trained = run_passes(solver(Problem(make_loss(loss), L2(1e-2))), [made_up(70, 40, seed=11)])
        results[f"{name}-{loss}"] = np.append(*trained.weights())
        results[f"{name}-{loss}-scalars"] = trained.scalars
np.savez(sys.argv[2], **results)
"""


def test_the_same_sources_run_without_the_compiler(tmp_path: Path) -> None:
    """NUMBA_DISABLE_JIT=1 is for debuggers and coverage, and a second oracle for everything, step sizes included."""
    here = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    results = []
    for how in ("compiled", "plain"):
        environment = os.environ | {"PYTHONPATH": here, "NUMBA_DISABLE_JIT": str(int(how == "plain"))}
        command = [sys.executable, "-W", "error", "-c", PLAIN, how, str(tmp_path / f"{how}.npz")]
        subprocess.run(command, env=environment, check=True, timeout=250)
        with np.load(tmp_path / f"{how}.npz") as stored:
            results.append(dict(stored))
    assert len(results[0]) == 2 * len(LOSSES) * len(SOLVERS)
    for name, compiled in results[0].items():
        assert np.allclose(compiled, results[1][name], rtol=1e-5, atol=1e-6 * np.abs(compiled).max()), name
