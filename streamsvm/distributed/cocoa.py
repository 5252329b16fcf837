"""dcd on many machines: each shard climbs on its own dual variables, and all add up how they moved the weights.

    round     every shard k runs a few passes of dcd on its rows against  w + K (what it has moved w by so far)
              w += sum of what each shard has moved it by                                      (CoCoA+, gamma = 1)
    scan      every shard adds up its losses and dual values at the same w: P, D and the gap are exact, over all rows

    C. Ma, V. Smith, M. Jaggi, M. I. Jordan, P. Richtarik, M. Takac, "Adding vs. averaging in distributed primal-dual
    optimization", 2015.

Hinge needs one thing more. Let the margins of one shard's rows between their bounds lean to one side, and those of
another to the other side: each would move what all rows have in common, the bias or a frequent word, and both moves
cancel. What would help is to shift y alpha of all such rows of one shard up and of the other down. But for a shard
alone that is a huge move of what is in common, so it takes steps of 1 / rows, for thousands of rounds. So K numbers,
one shift for each shard, are chosen here before every round, such that D would be largest along them:

    G t = g,   G_kl = l2 q_k.q_l,   q_k = mean of c x over such rows of shard k / l2,   g_k = mean of c y (1 - margin)

On rows like RCV1's, two shards then prove a gap of 1e-3 after 33 rounds; without it they prove 5e-3 after 40, and still
after 400. A smooth loss needs none of it. It is left out where the q_k of all shards would not fit into the driver's
memory.

With K shards a step must be safe even if all shards move the same way: rows count K times, which is dcd with l2 / K,
and what a shard has moved w by is divided by K. That is all that distinguishes a shard's solver from one that is alone.
Bytes of a round: w to each worker, and as many back from each shard, added in a tree.

Weights and the names of all dual variables (versions.py) are committed together, here, after every round. What is done
by a worker that is lost before that never happened; what is committed can be taken up by any other.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from streamsvm.batch import Float32s, Float64s
from streamsvm.distributed import work
from streamsvm.distributed.groups import NoRows, ShardedGroups
from streamsvm.distributed.team import Each
from streamsvm.distributed.versions import remove_versions
from streamsvm.errors import ModelError
from streamsvm.scoring import Offset
from streamsvm.solvers.base import Problem, State
from streamsvm.solvers.batch import BatchSolver, Figures, Surroundings
from streamsvm.solvers.descent import Descent

RIDGE = 1e-12  # of the trace, so that equations of shards without such rows have a solution
FARTHEST = 0.1  # that a dual variable is shifted by
KEPT = 3  # states of which the dual variables stay in storage: the last two checkpoints, and one that is being written


class Cocoa(BatchSolver):
    """The driver's part: it commits weights, and knows the exact figures."""

    name = "dcd"

    def __init__(
        self,
        problem: Problem,
        groups: ShardedGroups,
        around: Surroundings,
        make: Callable[[Problem, Any, Surroundings], Descent],
        *,
        storage: str,
        classes: int = 0,
    ) -> None:
        super().__init__(problem, groups, around)
        self._team = groups.team
        self._view = make(problem, NoRows(groups), around)  # makes figures and models of what shards have found
        self._storage = storage
        self._classes = classes
        self._sweeps = self._team.settings.cluster.sweeps
        self._round = 0
        self._w: Float64s = np.zeros_like(self._view.weight_table)
        self._versions: list[str | None] = [None] * self._team.count
        self._resting: list[Any] = [None] * self._team.count
        self._kept: list[list[str | None]] = []  # versions that states speak of
        self._runs = [self._team.name]  # whose files these may be
        self._begun = False
        room = self._w.nbytes * self._team.count <= around.memory // 4
        self._leaning = not classes and not hasattr(problem.loss, "curvature") and self._team.count > 1 and room
        self._shifts = np.zeros(self._team.count)
        self._towards = self._w  # the weights from which to learn next

    # Learning.

    def learn(self) -> None:
        if self._begun and self._enough(self._scanned()):
            return
        while True:
            self._climb()
            if self._enough(self._scanned()):
                return

    def _climb(self) -> None:
        size = self._w.nbytes * (1 if self._towards is self._w else 2)
        sent = self._team.cluster.share((self._w, self._towards), size)
        moved, told = self._team.add(
            work.climb, self._standings(), sent, Each(self._shifts.tolist()), self._storage, self._sweeps,
            size=self._w.nbytes,
        )  # fmt: skip
        self._w = self._towards = self._towards + moved
        self._shifts = np.zeros(self._team.count)
        self._round += 1
        self._versions = [one.version for one in told]
        self._resting = [one.rest_beyond for one in told]
        self._begun = True
        self.passes += self._sweeps
        self.around.tick(self._sweeps * self.groups.rows)
        self._clear()

    def _scanned(self) -> Figures:
        sent = self._team.cluster.share(self._w, self._w.nbytes)
        found = self._team.ask(work.scan, self._standings(), sent, self._storage, self._leaning)
        self._view.take_up(self._w, None, None)
        figures = self._view.figures_of(np.sum([one.means for one in found], axis=0))
        if self._leaning:
            self._straighten(found)
        self.around.tick(0)
        return figures

    def _straighten(self, found: list[work.Scanned]) -> None:
        """Choose the shifts that make D largest, were no dual variable at a bound."""
        l2 = self.problem.l2
        self._team.cluster.sent += self._w.nbytes * len(found)
        rows = np.array([one.rows for one in found]) / l2
        products = l2 * np.array([[float(np.sum(a * b)) for b in rows] for a in rows])
        products += RIDGE * np.trace(products) * np.eye(len(rows))
        lean = np.array([one.lean for one in found])
        shifts = np.linalg.solve(products, lean) if products.any() else np.zeros(len(rows))
        self._shifts = np.clip(shifts, -FARTHEST, FARTHEST)
        self._towards = self._w + np.sum(self._shifts[:, None] * rows, axis=0)

    def _standings(self) -> Each:
        problem = self.problem
        return Each(
            [
                work.Standing(self._round, problem.l2, self._team.count, self._classes, version, resting)
                for version, resting in zip(self._versions, self._resting, strict=True)
            ]
        )

    def _clear(self) -> None:
        """Remove dual variables of old rounds, but those that a checkpoint may speak of."""
        wanted = [name for state in self._kept for name in state] + self._versions
        for run in self._runs:
            remove_versions(self._storage, run, [name for name in wanted if name is not None])

    def finish(self) -> None:
        """Nobody will go on from here: remove all dual variables."""
        for run in self._runs:
            remove_versions(self._storage, run)

    # What is learned.

    def vector(self) -> Float64s:
        return self._view.vector()

    def weights(self) -> tuple[Float32s, Any]:
        return self._view.weights()

    def described(self) -> str:
        size = self._w.nbytes / 1e6
        return (
            f"{self.groups.rows:,} rows in {self._team.count} shards on {len(self._team.cluster.threads())} workers; "
            f"{self._sweeps} sweeps a round, then {size:,.1f} MB to each worker and from each shard"
        )

    def start_from(self, weights: Float32s, bias: Offset) -> None:
        """Dual variables as these weights suggest them, in all shards."""
        self._w, told = self._team.add(
            work.begin_from, self._standings(), self._team.cluster.share(weights), bias, self._storage,
            size=self._w.nbytes,
        )  # fmt: skip
        self._towards = self._w
        self._versions = [one.version for one in told]
        self._begun = True

    def with_penalty(self, l2: float) -> None:
        self._w = self._towards = self._w * (self.problem.l2 / l2)
        self._shifts = np.zeros(self._team.count)
        self._view.with_penalty(l2)
        self._resting = [None] * self._team.count
        super().with_penalty(l2)

    # Going on later.

    def state(self) -> State:
        self._kept = [*self._kept[1 - KEPT :], list(self._versions)]
        return {
            "w": self._w.copy(),
            "round": self._round,
            "versions": list(self._versions),
            "begun": self._begun,
            "shifts": self._shifts.copy(),
            "towards": self._towards.copy(),
            "passes": self.passes,
            "runs": list(self._runs),
            "resting": {f"{number:05}": np.asarray(one) for number, one in enumerate(self._resting) if one is not None},
        }

    def restore(self, state: State) -> None:
        if state["w"].shape != self._w.shape or len(state["versions"]) != self._team.count:
            raise ModelError("the weights and shards saved are not those of this run")
        self._w = np.array(state["w"], np.float64)
        self._round, self.passes, self._begun = int(state["round"]), int(state["passes"]), bool(state["begun"])
        self._versions = list(state["versions"])
        self._shifts = np.array(state["shifts"], np.float64)
        self._towards = np.array(state["towards"], np.float64) if self._shifts.any() else self._w
        self._runs = [*state["runs"], self._team.name]
        saved = state.get("resting", {})
        self._resting = [
            np.array(saved[name]) if (name := f"{number:05}") in saved else None for number in range(self._team.count)
        ]
        self._kept = [list(self._versions)]
