"""bmrm: bundle method; the risk is known by planes that touch it from below, and their minimum is where to look next.

    minimise   P(w) = l2/2 ||w||^2 + R(w),      R(w) = mean of c_i loss(w.x_i + b, y_i)
    reading    a = gradient of R at w,  b = R(w) - a.w:      R >= a.w + b everywhere
    model      maximise  D = sum of x_t b_t - ||sum of x_t a_t||^2 / (2 l2)  over mixtures x of all planes so far
    next       w = -1/l2 sum of x_t a_t;      D <= min P <= the best P so far

    A. Smola, S. Vishwanathan, Q. Le, "Bundle methods for machine learning", 2007; C. H. Teo et al., "Bundle methods for
    regularized risk minimization", 2010. With hinge it is SVMperf (T. Joachims, 2006).
    Cost: one reading of the data for each plane, and a vector of doubles for each plane that is kept.

That R is never below 0 is a plane too. `risk.dual` is b without the cancellation. Planes that were in no mixture for a
while are dropped; if there is still no room, the two of the least weight become one, their mean, which holds as well
and in the same mixture gives the same D. Planes do not depend on l2, so another penalty begins with all of them.
Choose it for data that is read slowly and features that are few: the number of readings hardly depends on the rows.
"""

from typing import ClassVar

import numpy as np

from streamsvm.batch import Float32s, Float64s
from streamsvm.errors import ModelError
from streamsvm.groups import Groups
from streamsvm.jit import kernel
from streamsvm.solvers.base import Problem, State
from streamsvm.solvers.batch import ALONE, BatchSolver, Figures, Surroundings
from streamsvm.solvers.simplex_qp import best_mixture
from streamsvm.solvers.sums import sums_over

SHARES = 4  # of the memory: planes, a copy of them for a state, buffers of sums, and the rest
FEWEST, MOST = 4, 1000  # planes, whatever the memory
LONGEST_IDLE = 50  # solutions in which a plane had no weight
ROUNDING = 2.0**-50  # of a sum, relative; it grows with the root of the number of rows


class Planes:
    """What is known of the risk: R(w) >= a.w + b for each plane; the first says R >= 0, and has no vector."""

    def __init__(self, size: int, most: int) -> None:
        self.size, self.most = size, most
        self.vectors: list[Float64s] = []
        self.offsets = np.zeros(1)
        self.gram = np.zeros((1, 1))
        self.mixture = np.ones(1)
        self.idle = np.zeros(1, np.int64)

    def add(self, vector: Float64s, offset: float) -> None:
        if len(self.vectors) >= self.most:
            self._make_room()
        row = np.array([0.0, *(dot(other, vector) for other in self.vectors), dot(vector, vector)])
        gram = np.zeros((len(row), len(row)))
        gram[:-1, :-1] = self.gram
        gram[-1], gram[:, -1] = row, row
        self.gram = gram
        self.vectors.append(vector)
        self.offsets = np.append(self.offsets, offset)
        self.mixture = np.append(self.mixture, 0.0)
        self.idle = np.append(self.idle, 0)

    def mix(self, l2: float) -> None:
        """The best mixture; planes that are of no use for long are dropped."""
        self.mixture, _ = best_mixture(self.gram / l2, self.offsets, self.mixture)
        self.idle = np.where(self.mixture > 0.0, 0, self.idle + 1)
        self.idle[0] = 0
        if self.idle.max() > LONGEST_IDLE:
            self._keep(self.idle <= LONGEST_IDLE)

    def minimiser(self, l2: float) -> Float64s:
        """The weights at which the model is least."""
        point = np.zeros(self.size)
        for share, vector in zip(self.mixture[1:], self.vectors, strict=True):
            if share > 0.0:
                point -= share / l2 * vector
        return point

    def bound(self, l2: float, point: Float64s, rows: int) -> float:
        """D, of which no more is claimed than is certain in spite of rounding."""
        norm2 = float(dot(point, point))
        linear = float(np.sum(self.mixture * self.offsets))
        lengths = float(np.sum(self.mixture * np.sqrt(np.diag(self.gram))))
        size = float(np.sum(self.mixture * np.abs(self.offsets))) + np.sqrt(norm2) * lengths
        return float(linear - 0.5 * l2 * norm2 - ROUNDING * np.sqrt(rows + 1.0) * size)

    def _make_room(self) -> None:
        """Without the plane that was idle longest; or else with one in place of the two of the least weight."""
        if self.idle.max() > 0:
            self._keep(np.arange(len(self.idle)) != np.argmax(self.idle))
            return
        first, second = np.sort(1 + np.argsort(self.mixture[1:], kind="stable")[:2])
        weight = self.mixture[first] + self.mixture[second]
        shares = self.mixture[[first, second]] / weight
        merged = shares[0] * self.vectors[first - 1] + shares[1] * self.vectors[second - 1]
        offset = float(np.sum(shares * self.offsets[[first, second]]))
        self._keep(~np.isin(np.arange(len(self.idle)), (first, second)))
        self.add(merged, offset)
        self.mixture[-1] = weight

    def _keep(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        self.vectors = [vector for vector, kept in zip(self.vectors, chosen[1:], strict=True) if kept]
        self.offsets, self.mixture, self.idle = self.offsets[chosen], self.mixture[chosen], self.idle[chosen]
        self.gram = self.gram[chosen][:, chosen]

    def state(self) -> State:
        return {
            "vectors": np.array(self.vectors).reshape(len(self.vectors), self.size),
            "offsets": self.offsets.copy(),
            "gram": self.gram.copy(),
            "mixture": self.mixture.copy(),
            "idle": self.idle.copy(),
        }

    def restore(self, state: State) -> None:
        self.vectors = [np.array(vector, np.float64) for vector in state["vectors"]]
        self.offsets = np.array(state["offsets"], np.float64)
        self.gram = np.array(state["gram"], np.float64)
        self.mixture = np.array(state["mixture"], np.float64)
        self.idle = np.array(state["idle"], np.int64)


class Bmrm(BatchSolver):
    name: ClassVar[str] = "bmrm"
    weight_bytes = 8 * 12

    def __init__(self, problem: Problem, groups: Groups, around: Surroundings = ALONE) -> None:
        super().__init__(problem, groups, around)
        size, share = groups.width + 1, around.memory // SHARES
        self._sums = sums_over(groups, problem, share, around.tick)
        self._planes = Planes(size, min(MOST, max(FEWEST, share // (8 * size))))
        self._point: Float64s = np.zeros(size)  # where to read next
        self._best: Float64s = np.zeros(size)
        self._loss = self._error = np.inf  # of the best weights; not known before the first reading
        self._lower = 0.0

    def described(self) -> str:
        planes = self._planes
        return f"{super().described()}; {planes.most:,} planes at most ({8e-6 * planes.most * planes.size:,.1f} MB)"

    def learn(self) -> None:
        if self._loss < np.inf and self._enough(self._figures()):
            return
        while True:
            self._iterate()
            if self._enough(self._figures()):
                return

    def _iterate(self) -> None:
        """All that changes the state comes after the reading: a state asked for meanwhile is that of before."""
        risk = self._sums.risk(self._point)
        self.passes += 1
        if self._penalty(self._point) + risk.loss < self._objective():
            self._best, self._loss, self._error = self._point, float(risk.loss), float(risk.error)
        self._planes.add(risk.gradient, risk.dual)
        self._solve()

    def _solve(self) -> None:
        l2 = self.problem.l2
        self._planes.mix(l2)
        self._point = self._planes.minimiser(l2)
        self._lower = max(self._lower, self._planes.bound(l2, self._point, self.groups.rows))

    def _objective(self) -> float:
        return self._penalty(self._best) + self._loss

    def _figures(self) -> Figures:
        objective = self._objective()
        return Figures(objective, min(self._lower, objective), self._loss, self._error)

    def with_penalty(self, l2: float) -> None:
        super().with_penalty(l2)
        self._lower = 0.0
        if self._planes.vectors:
            self._solve()

    def vector(self) -> Float64s:
        return np.array(self._best)

    def start_from(self, weights: Float32s, bias: float) -> None:
        self._point = self._best = self._extended(weights, bias)
        self._loss = self._error = np.inf
        self.figures = None

    def state(self) -> State:
        return {
            "planes": self._planes.state(),
            "point": self._point.copy(),
            "best": self._best.copy(),
            "scalars": np.array([self._loss, self._error, self._lower]),
            "passes": self.passes,
        }

    def restore(self, state: State) -> None:
        if state["point"].shape != self._point.shape:
            raise ModelError(f"the weights saved are not those of solver {self.name} on these rows")
        self._planes.restore(state["planes"])
        self._point, self._best = np.array(state["point"], np.float64), np.array(state["best"], np.float64)
        self._loss, self._error, self._lower = (float(number) for number in state["scalars"])
        self.passes = int(state["passes"])
        self.figures = None


@kernel
def dot(left, right):
    """The sum of products, in an order that is always the same."""
    first = second = third = fourth = 0.0
    end = len(left) // 4 * 4
    for k in range(0, end, 4):
        first += left[k] * right[k]
        second += left[k + 1] * right[k + 1]
        third += left[k + 2] * right[k + 2]
        fourth += left[k + 3] * right[k + 3]
    for k in range(end, len(left)):
        first += left[k] * right[k]
    return (first + second) + (third + fourth)
