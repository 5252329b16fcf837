"""A group of candidates that share cache lines: where side_by_side.py keeps its numbers, and how they meet the kernels.

For feature j and n lanes, sgd keeps v at [j n + k], asgd keeps v at [2 n j + k] and u at [2 n j + n + k].
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Batch, Float32s, Float64s, Int64s
from streamsvm.schedules import PolynomialDecay
from streamsvm.solvers.asgd import BETA
from streamsvm.solvers.base import BEFORE, LARGEST_SCORE, SCALE, SEEN, STEP, Problem, State
from streamsvm.solvers.side_by_side_kernels import FELL, L2, LINE, LIVE, NUMBERS, SCORE, T0, asgd_lanes, sgd_lanes

FEATURES = 1 << 12  # whose weights are moved or added up at a time
MOST_SUMS = 8  # lanes whose row sums fit into the registers


class Group:
    """`vector` has the weights of all lanes, `columns` numbers each; `numbers` has a row of lanes for each scalar.

    Lanes without a candidate learn nothing, as do those that diverged.
    """

    def __init__(self, columns: int, lanes: int) -> None:
        self.columns = columns
        self.lanes = lanes
        self.stride = columns * lanes  # numbers for each feature
        self.vector: Float32s = np.empty(0, np.float32)
        self.numbers: Float64s = np.zeros((NUMBERS, lanes))
        self.numbers[[SCALE, BETA, L2, T0]] = 1.0  # nothing is divided by zero in lanes without a candidate

    @property
    def room(self) -> int:
        """For how many features there is memory."""
        return len(self.vector) // self.stride

    @property
    def table(self) -> npt.NDArray[Any]:
        """The weights as [feature, column, lane], not copied."""
        return self.vector[: self.room * self.stride].reshape(-1, self.columns, self.lanes)

    @property
    def live(self) -> npt.NDArray[np.bool_]:
        live: npt.NDArray[np.bool_] = self.numbers[LIVE] != 0.0
        return live

    def grow(self, room: int) -> None:
        if room > self.room:
            grown = aligned(room * self.stride)
            grown[: len(self.vector)] = self.vector
            self.vector = grown

    def state(self, width: int) -> State:
        """Everything that the future depends on, copied; see base.py for `beyond` and `room`."""
        return {
            "vector": self.vector[: width * self.stride].copy(),
            "beyond": self.vector[width * self.stride : (width + 1) * self.stride].copy(),
            "room": self.room,
            "numbers": self.numbers[:SCORE].copy(),
        }

    def restore(self, state: State, room: int) -> None:
        """Go on where `state` was taken, with this much room."""
        width = len(state["vector"]) // self.stride
        self.vector = aligned(room * self.stride)
        self.vector[: width * self.stride] = state["vector"]
        if room > width:
            self.vector.reshape(room, self.stride)[width:] = state["beyond"]
        self.numbers[:SCORE] = state["numbers"]

    def begin_schedules(self) -> None:
        """t0 where the step size is known, as Sgd.run computes it."""
        known = self.numbers[STEP] > 0.0
        self.numbers[T0, known] = 1.0 / (self.numbers[L2, known] * self.numbers[STEP, known])

    def learn(self, problem: Problem, batch: Batch, order: Int64s) -> None:
        """Rows in order; a lane whose scores overflow stops before that row, the others go on with it."""
        while self.live.any() and (place := self._run(problem, batch, order)) >= 0:
            wild = ~(np.abs(self.numbers[SCORE]) < LARGEST_SCORE)
            self._stop(wild, int(order[place]) + 1)
            order = order[place:]

    def _run(self, problem: Problem, batch: Batch, order: Int64s) -> int:
        loss, _, bias = problem
        lanes = (0,) * self.lanes
        state = lanes, lanes[:MOST_SUMS], self.vector, self.numbers.reshape(-1)
        if self.columns == 2:
            return int(asgd_lanes(batch, order, loss, PolynomialDecay(), bias, *state))
        return int(sgd_lanes(batch, order, loss, bias, problem.provable, *state))

    def check(self) -> None:
        """Stop the lanes whose weights have overflowed."""
        with np.errstate(invalid="ignore"):
            totals = sum(
                self.table[a : a + FEATURES].sum(axis=(0, 1), dtype=np.float64) for a in range(0, self.room, FEATURES)
            )
            self._stop(~np.isfinite(totals + np.zeros(self.lanes)), 0)

    def _stop(self, which: npt.NDArray[np.bool_], row: int) -> None:
        """The row counts from the end of the last batch, as in OnlineSolver._learn."""
        stopping = which & self.live
        self.numbers[FELL, stopping] = self.numbers[SEEN, stopping] - self.numbers[BEFORE, stopping] + row
        self.numbers[LIVE, stopping] = 0.0


def narrow(old: list[Group], lanes: list[int], which: list[tuple[int, int]], width: int) -> list[Group]:
    """New groups of so many lanes for the candidates at `which` (group, lane), in the memory of the old ones.

    A new group is no wider than the old one whose memory it takes, so it writes no further than has been read.
    """
    new = [Group(group.columns, count) for group, count in zip(old, lanes, strict=False)]
    tables = [group.table for group in old]
    for group, last in zip(new, old, strict=False):
        group.vector = last.vector
    targets = [(group, lane) for group in new for lane in range(group.lanes)][: len(which)]
    for (group, lane), (i, k) in zip(targets, which, strict=True):
        group.numbers[:, lane] = old[i].numbers[:, k]
    for a in range(0, width, FEATURES):
        b = min(a + FEATURES, width)
        pieces = [tables[i][a:b, :, k].copy() for i, k in which]
        for group in new:
            group.table[a:b] = 0.0
        for (group, lane), piece in zip(targets, pieces, strict=True):
            group.table[a:b, :, lane] = piece
    for group in new:
        group.vector[width * group.stride :] = 0.0
    return new


def aligned(size: int) -> Float32s:
    """Zeros that begin at a cache line."""
    line = int(LINE)
    raw = np.zeros(size + line, np.float32)
    start = -(raw.ctypes.data // raw.itemsize) % line
    return raw[start : start + size]
