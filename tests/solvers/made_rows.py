"""Small made-up problems, and what the tests of solvers do with them again and again."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from streamsvm.batch import Batch
from streamsvm.solvers.base import OnlineSolver, State

Row = dict[int, float]


def batch_of(rows: Sequence[Row], codes: Sequence[float], weights: Sequence[float] | None = None) -> Batch:
    """Rows {index: value} with class codes 0 and 1."""
    indices = [index for row in rows for index in sorted(row)]
    values = [row[index] for row in rows for index in sorted(row)]
    return Batch(
        np.cumsum([0] + [len(row) for row in rows], dtype=np.int64),
        np.array(indices, np.uint32),
        np.array(values, np.float32),
        np.array(codes, np.float32),
        np.array([1.0] * len(rows) if weights is None else weights, np.float32),
    )


def made_up(rows: int, width: int = 30, *, seed: int = 0, longest: int = 9, noise: float = 0.3) -> Batch:
    """Rows of 0 .. longest features whose classes a hyperplane tells apart, but for the noise; weights vary."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=width)
    features: list[Row] = []
    codes = []
    for _ in range(rows):
        chosen = rng.choice(width, size=rng.integers(0, longest + 1), replace=False)
        row = {int(j): float(np.float32(rng.normal())) for j in chosen}
        score = sum(truth[j] * value for j, value in row.items()) + noise * rng.normal() + 0.2
        features.append(row)
        codes.append(float(score > 0))
    weights = rng.choice([1.0, 1.0, 1.0, 0.5, 2.0, 0.0], size=rows)
    return batch_of(features, codes, weights.tolist())


def equal_weights(batch: Batch) -> Batch:
    return batch._replace(weights=np.ones(batch.rows, np.float32))


def select(batch: Batch, rows: Sequence[int]) -> Batch:
    """Some rows, in the order asked for."""
    taken = [batch.take(row, row + 1) for row in rows]
    return Batch(
        np.cumsum([0] + [one.features for one in taken], dtype=np.int64),
        *(np.concatenate([column[:0]] + [one[k] for one in taken]) for k, column in enumerate(batch) if k > 0),
    )


def cut(batch: Batch, points: Iterable[int]) -> list[Batch]:
    """The batch in pieces that share its memory; equal points make empty pieces."""
    edges = [0, *sorted(points), batch.rows]
    return [batch.slice(a, b) for a, b in zip(edges, edges[1:], strict=False)]


def dense(batch: Batch, width: int) -> np.ndarray[Any, Any]:
    """The rows as a float64 matrix."""
    matrix = np.zeros((batch.rows, width))
    for i in range(batch.rows):
        a, b = batch.indptr[i], batch.indptr[i + 1]
        matrix[i, batch.indices[a:b]] = batch.values[a:b]
    return matrix


def run_passes(solver: OnlineSolver, batches: list[Batch], passes: int = 1) -> OnlineSolver:
    """What train does: whole passes, then the end."""
    for number in range(1, passes + 1):
        solver.begin_pass(number)
        for batch in batches:
            solver.learn(batch)
        solver.end_pass()
    solver.finish()
    return solver


def bits(state: State) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """A state in a form in which == means equal bit for bit."""
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in state.items()}
