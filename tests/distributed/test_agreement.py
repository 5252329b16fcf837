"""How shards come to agree: the recursion against ADMM as the textbook has it, and rows in units against plain ones."""

import numpy as np
import pytest

from streamsvm.batch import Batch
from streamsvm.distributed.agreement import Metric
from streamsvm.groups import MemoryGroups
from streamsvm.losses import Hinge
from streamsvm.penalties import make_penalty
from streamsvm.solvers.base import Bias, Problem
from streamsvm.solvers.batch import Surroundings
from streamsvm.solvers.dcd import Dcd
from streamsvm.solvers.units import Measured, powers_of_two, sum_of_squares

L2, DIM, SHARDS = 0.1, 6, 3


class Springs:
    """Shards whose losses are quadratic, so that each can be solved exactly: f_k(v) = v.A_k v / 2 - b_k.v"""

    def __init__(self, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        roots = random.normal(size=(SHARDS, DIM, DIM))
        self.firm = np.einsum("kij,klj->kil", roots, roots) / SHARDS
        self.pull = random.normal(size=(SHARDS, DIM))

    def near(self, k: int, point: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """argmin f_k(v) + |v - point|^2 / 2, each square times its weight"""
        return np.linalg.solve(self.firm[k] + np.diag(weight), self.pull[k] + weight * point)

    def dual(self, k: int, v: np.ndarray) -> np.ndarray:
        """The weights that the dual variables of a shard make."""
        return (self.pull[k] - self.firm[k] @ v) / L2

    def optimum(self) -> np.ndarray:
        return np.linalg.solve(self.firm.sum(0) + L2 * np.eye(DIM), self.pull.sum(0))


def textbook(springs: Springs, metrics: list[Metric], squares: np.ndarray) -> list[np.ndarray]:
    """z after each round of over-relaxed consensus ADMM, scaled form."""
    z, u, before, found = np.zeros(DIM), np.zeros((SHARDS, DIM)), None, []
    for metric in metrics:
        rho = L2 / np.square(metric.units(squares))
        if before is not None:
            u *= before / rho
        v = np.array([springs.near(k, z - u[k], rho) for k in range(SHARDS)])
        relaxed = metric.relaxation * v + (1.0 - metric.relaxation) * z
        z = rho * (relaxed + u).sum(0) / (L2 + SHARDS * rho)
        u, before = u + relaxed - z, rho
        found.append(z)
    return found


def ours(springs: Springs, metrics: list[Metric], squares: np.ndarray) -> list[np.ndarray]:
    z, memories, combined, found = np.zeros(DIM), np.zeros((SHARDS, DIM)), np.zeros(DIM), []
    own = np.zeros((SHARDS, DIM))  # what the dual variables of each shard make
    for metric in metrics:
        units = metric.units(squares)
        paces = np.square(units)
        for k in range(SHARDS):
            memory = metric.recalled(memories[k], z, units, squares)
            start = 2.0 * z - memory
            v = springs.near(k, start - paces * own[k], L2 / paces)  # v = start + paces (own of v - own)
            memories[k], own[k] = metric.remembered(memory, z, v - start), springs.dual(k, v)
        combined = own.sum(0)
        z = metric.towards(z, combined, units)
        found.append(z)
    return found


@pytest.mark.parametrize("changing", [False, True])
def test_it_is_admm(changing: bool) -> None:
    springs, squares = Springs(), np.random.default_rng(1).uniform(0.0, 5.0, DIM)
    firmness = [0.3] * 12 if not changing else [0.3, 0.3, 0.6, 1.2, 1.2, 5.0, 0.1, 0.1, 0.3, 0.3, 0.3, 0.3]
    before = [0.3, *firmness]
    metrics = [Metric(SHARDS, L2, now, then) for now, then in zip(firmness, before, strict=False)]
    for mine, theirs in zip(ours(springs, metrics, squares), textbook(springs, metrics, squares), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)


def test_it_ends_at_the_optimum() -> None:
    springs, squares = Springs(), np.einsum("kii->i", Springs().firm)
    found = ours(springs, [Metric(SHARDS, L2, 1.0, 1.0)] * 300, squares)
    np.testing.assert_allclose(found[-1], springs.optimum(), atol=1e-8)


def test_firmness_follows_the_larger_part_of_the_gap() -> None:
    metric = Metric(SHARDS, L2)
    assert metric.after(3, apart=1.0, lacking=0.1).firmness < metric.firmness
    assert metric.after(3, apart=0.01, lacking=1.0).firmness > metric.firmness
    assert metric.after(3, apart=1.0, lacking=1.0) == metric
    early, late = (metric.after(rounds, apart=1.0, lacking=0.0).firmness for rounds in (2, 50))
    assert early < late < metric.firmness


def test_one_shard_alone_takes_plain_steps() -> None:
    metric, squares = Metric(1, L2), np.array([0.0, 1.0, 1e9])
    units = metric.units(squares)
    assert units.tolist() == [1.0, 1.0, 1.0]
    combined = np.array([3.0, -1.0, 0.5])
    np.testing.assert_array_equal(metric.towards(np.zeros(3), combined, units), combined)


# Features in units of their own.


def rows(seed: int = 0, count: int = 300) -> Batch:
    random = np.random.default_rng(seed)
    dense = np.where(random.random((count, DIM)) < 0.6, random.normal(size=(count, DIM)), 0.0).astype(np.float32)
    labels = (dense.sum(1) + random.normal(size=count) > 0.0).astype(np.float32)
    places = np.nonzero(dense)
    indptr = np.append(0, np.cumsum((dense != 0).sum(1))).astype(np.int64)
    weights = random.uniform(0.5, 2.0, count).astype(np.float32)
    return Batch(indptr, places[1].astype(np.uint32), dense[places], labels, weights)


def descent(batch: Batch) -> Dcd:
    problem = Problem(Hinge(), make_penalty(1e-2, 0.0), Bias(1.0, 1.0))
    return Dcd(problem, Measured(MemoryGroups([batch.slice(0, 100), batch.slice(100, batch.rows)])))


def test_units_are_powers_of_two() -> None:
    paces = np.array([1e-300, 1e-3, 0.9, 1.0, 2.0, 4.0, 8.0, 17.0, 1e300])
    mantissas, _ = np.frexp(powers_of_two(paces))
    assert np.all(mantissas == 0.5)
    near = powers_of_two(paces[1:-1]) ** 2 / paces[1:-1]
    assert np.all((near >= 0.5) & (near <= 2.0))


def test_steps_in_units_are_longer_by_their_squares() -> None:
    """One pass in units against the same pass in NumPy, row by row, with plain features."""
    batch, units = rows(), np.array([1.0, 2.0, 0.5, 4.0, 0.25, 1.0, 0.5])
    solver = descent(batch)
    start = np.random.default_rng(3).normal(size=DIM + 1)
    solver.take_up(start, None, None)
    solver.measure_in(units)
    moved = solver.climb(start, 0, 1)
    added = np.zeros(DIM + 1)
    cost = 1.0 / (1e-2 * float(batch.weights.sum(dtype=np.float64)))
    for i in range(batch.rows):
        a, b = batch.indptr[i], batch.indptr[i + 1]
        sign = 2.0 * float(batch.labels[i]) - 1.0
        row = np.zeros(DIM + 1)
        row[batch.indices[a:b]], row[-1] = batch.values[a:b], 1.0
        added += cost * float(batch.weights[i]) * solver.alpha[i] * sign * row
    assert np.count_nonzero(solver.alpha) > 20
    np.testing.assert_allclose(moved, added * np.square(units), rtol=1e-9, atol=1e-12)


def test_measuring_often_is_measuring_once() -> None:
    batch, random = rows(), np.random.default_rng(5)
    often, once = descent(batch), descent(batch)
    for solver in (often, once):
        solver.take_up(np.zeros(DIM + 1), None, None)
    for _ in range(10):
        units = 2.0 ** random.integers(-5, 6, DIM + 1)
        often.measure_in(units)
    once.measure_in(units)
    start = random.normal(size=DIM + 1)
    np.testing.assert_array_equal(often.climb(start, 4, 3), once.climb(start, 4, 3))
    np.testing.assert_array_equal(often.alpha, once.alpha)
    for solver in (often, once):
        solver.take_up(start, None, None)
    means = often.scan_means()
    np.testing.assert_array_equal(means, once.scan_means())
    plain = descent(batch)
    plain.take_up(start, once.alpha, None)
    np.testing.assert_array_equal(means, plain.scan_means())


def test_blocks_that_are_loaded_are_measured_too() -> None:
    batch, units = rows(count=4000), np.array([1.0, 2.0, 0.5, 4.0, 0.25, 1.0, 0.5])
    problem = Problem(Hinge(), make_penalty(1e-2, 0.0), Bias(1.0, 1.0))
    pieces = [batch.slice(a, a + 500) for a in range(0, 4000, 500)]
    solver = Dcd(problem, Measured(MemoryGroups(pieces)), Surroundings(memory=1 << 17))
    assert not solver.plan.resident
    solver.take_up(np.zeros(DIM + 1), None, None)
    solver.measure_in(units)
    moved = solver.climb(np.zeros(DIM + 1), 0, 2)
    combined = solver.combined()
    np.testing.assert_allclose(moved, combined * np.square(units), rtol=1e-9, atol=1e-12)


def test_sum_of_squares() -> None:
    batch = rows()
    total = sum_of_squares(MemoryGroups([batch]))
    weights = np.repeat(batch.weights.astype(np.float64), np.diff(batch.indptr))
    expected = np.bincount(batch.indices, weights * batch.values.astype(np.float64) ** 2, DIM)
    np.testing.assert_allclose(total[:-1], expected, rtol=1e-12)
    assert total[-1] == pytest.approx(batch.weights.sum(dtype=np.float64))
