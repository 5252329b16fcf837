"""What kernel learners are: online solvers whose weights are coefficients of rows that they keep, the supports.

    f(x) = sum over b of coefficient_b k(s_b, x) + bias

They learn from rows of `dim` numbers each, all of a size (missing ones are zeros), and keep `budget` supports at most
(upkeep.py). `vector` holds the supports, in tiles (similarity.py), then the coefficients without their common scale,
then k(s_b, s_b): all that the future depends on, beside the scalars. A row that is a support already, to the last bit,
adds to that one's coefficient, so that later passes over few rows need no more supports than there are rows.

The last iterate is noisy, so with `average` (and an upkeep that leaves no gaps) the model has the mean of all of them,
newer ones more, as in pegasos.py: its coefficients are kept beside the others, and change with them when supports go.

A model is an `Expansion`: it scores rows as the solver does, bit for bit.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Batch, Float32s, Float64s
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.jit import inlined
from streamsvm.solvers.base import BIAS, SCALE, OnlineSolver, Problem, State, trial_from
from streamsvm.solvers.similarity import (
    TILE,
    Similarity,
    expansion_pass,
    make_similarity,
    own_likenesses,
    squared_length,
)
from streamsvm.solvers.upkeep import COUNT, MEAN_BIAS, UPKEEP

LASTING = ("merge", "project")  # with these a support that goes leaves its mark; else a mean would have gaps
BESIDE = 3  # numbers of a support beside its features: its coefficient, the mean of that, its likeness to itself


class Expansion(NamedTuple):
    """A function that was learned: what scores rows."""

    similarity: Similarity
    points: Float32s  # the supports in tiles
    coefficients: Float32s
    bias: float
    dim: int

    def scores(self, batch: Batch) -> Float64s:
        out = np.empty(batch.rows)
        expansion_pass(batch, self.similarity, self.points, self.coefficients, self.bias, self.dim, out)
        return out


def expansion_of(similarity: Similarity, supports: Float32s, coefficients: Float32s, bias: float) -> Expansion:
    """Of supports [support, feature] and their coefficients, as a solver gives them."""
    return Expansion(similarity, tiled(supports), coefficients, bias, supports.shape[1])


def tiled(supports: Float32s) -> Float32s:
    """Supports [support, feature] side by side in tiles, the last of which is filled up with zeros."""
    count, dim = supports.shape
    whole = np.zeros((room_for(count), dim), np.float32)
    whole[:count] = supports
    return np.ascontiguousarray(whole.reshape(-1, TILE, dim).transpose(0, 2, 1)).reshape(-1)


def untiled(points: Float32s, dim: int) -> Float32s:
    """The inverse, with what fills up the last tile."""
    return np.ascontiguousarray(points.reshape(-1, dim, TILE).transpose(0, 2, 1)).reshape(-1, dim)


def room_for(supports: int) -> int:
    """So many in whole tiles."""
    return -(-supports // TILE) * TILE


def rows_of(supports: Float32s) -> Batch:
    """Supports as rows."""
    count, dim = supports.shape
    indices = np.tile(np.arange(dim, dtype=np.uint32), count)
    return Batch(
        np.arange(count + 1, dtype=np.int64) * dim,
        indices,
        supports.reshape(-1),
        np.zeros(count, np.float32),
        np.ones(count, np.float32),
    )


class KernelSolver(OnlineSolver):
    """Learns supports and coefficients; what a step is its subclasses say."""

    own_scalars = 4

    def __init__(
        self,
        problem: Problem,
        *,
        dim: int,
        gamma: float = 1.0,
        kernel: str = "rbf",
        degree: int = 3,
        coef0: float = 1.0,
        budget: int = 500,
        upkeep: str = "merge",
        average: bool = True,
        eta0: float | None = None,
        memory: int | None = None,
    ) -> None:
        self.similarity = make_similarity(kernel, gamma, coef0, degree)
        self.budget = budget
        self.way = UPKEEP[upkeep]
        self.averaged = average and upkeep in LASTING
        self._options: dict[str, Any] = {"dim": dim, "gamma": gamma, "kernel": kernel, "degree": degree}
        self._options |= {"coef0": coef0, "budget": budget, "upkeep": upkeep, "average": average}
        super().__init__(problem, eta0=eta0, dim=dim, memory=memory)

    def columns_for(self) -> int:
        """Supports, with one too many, in whole tiles."""
        return room_for(self.budget + 1)

    def fresh(self, eta0: float) -> "KernelSolver":
        return type(self)(self.problem, eta0=eta0, **self._options)

    # What was learned.

    @property
    def count(self) -> int:
        return int(self.scalars[COUNT])

    def weights(self) -> tuple[Float32s, float]:
        """The coefficients of the supports, and the bias."""
        _, coefficients, means, _ = self._arrays()
        if self.averaged:
            return means[: self.count].copy(), float(self.scalars[MEAN_BIAS])
        return coefficients[: self.count] * self.scalars[SCALE].astype("float32"), float(self.scalars[BIAS])

    def supports(self) -> Float32s:
        """[support, feature], in a new array."""
        points = self._arrays()[0]
        rows: Float32s = untiled(points[: room_for(self.count) * self.dim], self.dim)[: self.count].copy()
        return rows

    def expansion(self) -> Expansion:
        """All that scores depend on, as it stands; to be used before the next row is learned."""
        coefficients, bias = self.weights()
        return Expansion(self.similarity, self._arrays()[0], coefficients, bias, self.dim)

    def scorer(self) -> Callable[[Batch], Float64s]:
        return self.expansion().scores

    @property
    def weight_count(self) -> int:
        return self.count

    def few_scores(self, batch: Batch) -> Float64s:
        return self.scores(batch)

    def objective(self, mean_loss: float) -> float:
        similarity, points, coefficients, bias, dim = self.expansion()
        share = self.problem.norm2(coefficients[:0], bias)
        norm2 = float(squared_length(similarity, points, coefficients, dim)) + share
        return 0.5 * self.problem.l2 * norm2 + mean_loss

    def start_from(self, weights: Float32s, bias: float, supports: Float32s | None = None) -> None:
        """Put known supports with their coefficients in place of none."""
        given = np.empty((0, self.dim), np.float32) if supports is None else supports
        if given.shape != (len(weights), self.dim):
            raise ModelError(f"the model does not have {len(weights)} supports of {self.dim} numbers each")
        if len(weights) > self.budget:
            raise ConfigError(f"the model has {len(weights)} supports: set solver.budget to {len(weights)} or more")
        points, coefficients, means, selves = self._arrays()
        self.vector[:] = 0.0
        points[: room_for(len(weights)) * self.dim] = tiled(given)
        coefficients[: len(weights)] = means[: len(weights)] = weights
        selves[: len(weights)] = own_likenesses(rows_of(given), self.similarity, self.dim)
        self.scalars[[COUNT, SCALE, BIAS, MEAN_BIAS]] = len(weights), 1.0, bias, bias

    # Step sizes.

    def reaches(self, rows: Batch) -> Float64s:
        reaches: Float64s = own_likenesses(rows, self.similarity, self.dim).astype(np.float64)
        return reaches

    def trial_of(self, rows: Batch) -> tuple[OnlineSolver, Batch]:
        """A mean of iterates says more about a step size than the last of them, whatever is wanted in the end."""
        return type(self)(self.problem, eta0=1.0, **self._options | {"average": True, "upkeep": "merge"}), rows

    # Going on later.

    def state(self) -> State:
        return super().state() | {"vector": self.vector.copy(), "beyond": self.vector[:0].copy(), "room": self.dim}

    def restore(self, state: State) -> None:
        fits = len(state["vector"]) == len(self.vector) and len(state["scalars"]) == len(self.scalars)
        if not fits or state["scalars"][COUNT] > self.budget:
            raise ModelError(f"the numbers saved are not those of solver {self.name} with these settings")
        self.vector = np.array(state["vector"], np.float32)
        self.scalars = np.array(state["scalars"], np.float64)
        self._trial = trial_from(state)
        if self.watch is not None:
            self.watch.restore(state["watch"])

    # How it is done.

    def _arrays(self) -> tuple[Float32s, Float32s, Float32s, Float32s]:
        """Points, coefficients without their scale, their means, and likenesses of supports to themselves."""
        end = self.dim * self.columns
        coefficients, means, selves = self.vector[end:].reshape(BESIDE, self.columns)
        return self.vector[:end], coefficients, means, selves

    def _reserve(self, width: int) -> None:
        if width > self.dim:
            raise DataError(f"index {width - 1} is out of range: rows have {self.dim} numbers")
        if not len(self.vector):
            if not self._affordable(self.dim):
                self._refuse(self.dim)
            self.vector = np.zeros((self.dim + BESIDE) * self.columns, np.float32)

    def bytes_for(self, width: int) -> int:
        """The solver's state and the model made from it."""
        return 4 * ((width + BESIDE) * self.columns + (width + 1) * self.budget)

    def _refuse(self, width: int) -> None:
        assert self.memory is not None
        needed, left = self.bytes_for(width) / 1e6, self.memory / 1e6
        most = max(1, self.memory // (8 * (width + BESIDE)) - TILE)
        raise ConfigError(
            f"{self.budget} supports of {width} numbers: solver {self.name} would need {needed:,.1f} MB, but the "
            f"memory budget leaves {left:,.1f} MB; set solver.budget to {most} or less, or raise --memory"
        )


@inlined
def gentle_rate(eta, loss, slope, reach):
    """rows.safe_rate where `reach` is how much a step of 1 changes the row's own score."""
    bend = loss.bend()
    if bend > 0.0 and abs(slope) > bend:
        eta = min(eta, 1.0 / (bend * reach))
    return eta
