"""Small made-up problems, and what the tests of solvers do with them again and again."""

from collections.abc import Collection, Iterable, Sequence
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


def climbing() -> Batch:
    """Half of these rows have ever larger indices, past the room set aside, twice; the others have the same again.

    They weigh more and more: scales get small and are written out, also when the vector does not grow any longer.
    """
    places = [*range(8, 59), *(8 + 7 * k % 51 for k in range(51))]
    rows = [
        {j % 7: 0.3 + 0.01 * i, 37 * j: 0.5 * (-1) ** i, 37 * j + 40: 1.0 - 0.003 * i} for i, j in enumerate(places)
    ]
    weights = [1.4**i if i % 9 != 5 else 0.0 for i in range(len(rows))]
    return batch_of(rows, [float(i % 3 == 0) for i in range(len(rows))], weights)


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


ROOM = ("room", "beyond")  # what a state says about memory to spare, on which no number depends


def flat(state: State, without: Collection[str] = ()) -> dict[str, Any]:
    """The arrays and numbers of a state and of its parts by their paths, but for those of these names."""
    found: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, dict):
            found |= {f"{name}.{path}": inner for path, inner in flat(value, without).items()}
        elif name not in without:
            found[name] = value
    return found


def bits(state: State, without: Collection[str] = ()) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """A state in a form in which == means equal bit for bit."""
    arrays = {path: np.asarray(value) for path, value in flat(state, without).items()}
    return {path: (array.dtype.str, array.shape, array.tobytes()) for path, array in arrays.items()}


def spoil(state: State) -> None:
    """Scribble on all arrays of a state: they are copies, or somebody will notice."""
    for value in flat(state).values():
        if isinstance(value, np.ndarray):
            value[...] = 77
