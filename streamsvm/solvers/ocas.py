"""ocas: a bundle method that goes down a line in each iteration, and so never gets worse.

    minimise   P(w) = l2/2 ||w||^2 + mean of c_i loss(w.x_i + b, y_i)
    model      w_t = where the planes so far are least, as in bmrm;      D <= min P
    reading    a plane at  w_c = w + theta (w_t - w),  where w are the best weights so far, and the scores of w_c
    search     w = w + k (w_c - w)  with the k >= 0 that makes P least: on two scores for each row, without features
    next       theta = 2 k theta + mu, at most 1:  beyond the optimum on the line, if the next line is like this one

    V. Franc, S. Sonnenburg, "Optimized cutting plane algorithm for support vector machines", 2008.
    Cost: one reading for each plane, as bmrm, and some ten walks over two columns of numbers, one for each row.

In the paper w_c is chosen after a search on the way to w_t, a tenth of the rest beyond it, and needs a second reading.
Here it is guessed before, and the search goes beyond it if it must: half of the readings for as many iterations. And it
is nearer to the optimum on the line, which is often at a hundredth of the way: fewer iterations.
Choose it over bmrm, which needs a multiple of the readings where l2 is small; bmrm keeps nothing for each row.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from streamsvm.batch import Float32s, Float64s
from streamsvm.groups import Groups
from streamsvm.solvers.base import Problem, State
from streamsvm.solvers.batch import ALONE, Surroundings
from streamsvm.solvers.bmrm import SHARES, Bmrm, dot
from streamsvm.solvers.sums import Other, Risk

BEYOND, MU = 2.0, 0.01
COLUMNS = 3
FARTHEST = 1e9  # no line is followed beyond
MOST_LOOKS = 60
EXACT = 2.0**-46  # of the objective: what a sum over many rows is good for


class Look(NamedTuple):
    """What is seen from one point of a line."""

    k: float
    objective: float
    slope: float
    loss: float
    error: float


class Ocas(Bmrm):
    name: ClassVar[str] = "ocas"

    def __init__(self, problem: Problem, groups: Groups, around: Surroundings = ALONE) -> None:
        super().__init__(problem, groups, around)
        share = around.memory // SHARES // COLUMNS
        self._scores = groups.column(np.float64, share)  # of the best weights
        self._ahead = groups.column(np.float64, share)  # of those that are read
        self._marks = groups.column(np.float32, share)  # c_i y_i
        self._theta = 1.0

    def _iterate(self) -> None:
        known, best = self._loss < np.inf, self._best
        read = best + self._theta * (self._point - best) if known else self._point
        risk = self._read(read)
        self.passes += 1
        if known:
            self._go_down(read - best)
        else:
            self._best, self._loss, self._error = read, float(risk.loss), float(risk.error)
        self._planes.add(risk.gradient, risk.dual)
        self._solve()

    def _read(self, read: Float64s) -> Risk:
        """The risk of some weights; and the columns, for them and for the best ones, in the same reading."""
        return self._sums.risk(read, self._ahead, Other(self._best, self._scores, self._marks))

    def _go_down(self, direction: Float64s) -> None:
        """To the optimum on the line through the best weights and those just read, if that is better at all."""
        found = lowest(self._view(direction))
        point = self._best + found.k * direction
        if not self._penalty(point) + found.loss < self._objective():
            self._theta = MU
            return
        self._best, self._loss, self._error = point, found.loss, found.error
        self._theta = min(1.0, BEYOND * found.k * self._theta + MU)

    def _view(self, direction: Float64s) -> Callable[[float], Look]:
        """A function that looks around at best + k direction."""
        l2, flat = self.problem.l2, self._penalty(self._best)
        rise, bend = l2 * float(dot(self._best, direction)), l2 * float(dot(direction, direction))

        def look(k: float) -> Look:
            mean, slope, wrong = self._sums.look(self._scores, self._ahead, self._marks, k).tolist()
            return Look(k, flat + k * (rise + 0.5 * k * bend) + mean, rise + k * bend + slope, mean, wrong)

        return look

    def start_from(self, weights: Float32s, bias: float) -> None:
        super().start_from(weights, bias)
        self._theta = 1.0

    def state(self) -> State:
        return super().state() | {"theta": self._theta}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._theta = float(state["theta"])


def lowest(look: Callable[[float], Look]) -> Look:
    """Where a convex function is least for k >= 0, known by its values and slopes.

    Between two points the function lies above both tangents, and where these meet is how low it may be. As long as that
    makes slopes much smaller, the next point is where the last two say that the slope is 0, as on a smooth function.
    Else it is where the tangents meet, which is the optimum if there is a kink, or the middle, by turns.
    """
    low = look(0.0)
    if not low.slope < 0.0:
        return low
    high = look(1.0)
    while high.slope < 0.0 and high.k < FARTHEST:
        low, high = high, look(2.0 * high.k)
    before, last = low, high
    for turn in range(MOST_LOOKS):
        best = low if low.objective < high.objective else high
        fall = high.slope * (high.k - low.k) - (high.objective - low.objective)
        meet = low.k + fall / (high.slope - low.slope)
        floor = low.objective + low.slope * (meet - low.k)
        if best.objective - floor <= EXACT * best.objective:
            break
        middle = 0.5 * (low.k + high.k)
        k = meet if turn % 2 else middle
        if turn == 0 or abs(last.slope) < 0.2 * abs(before.slope):
            k = last.k - last.slope * (last.k - before.k) / (last.slope - before.slope)
        if not low.k < k < high.k:
            k = middle
            if not low.k < k < high.k:
                break
        before, last = last, look(k)
        low, high = (last, high) if last.slope < 0.0 else (low, last)
    return low if low.objective < high.objective else high
