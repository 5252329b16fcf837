"""dcd on many machines: shards learn by themselves in rounds, and come to agree (agreement.py has the formulas).

    round     every shard makes a few passes of dcd on its rows, and tells what that adds to the weights of all
    scan      every shard adds up its losses and dual values at the weights agreed upon: P, D and the gap are exact

Bytes of a round: the weights to each worker, and as many back from each shard, added in a tree.

Weights and the names of what shards have in storage (versions.py) are committed together, here, after every round. What
is done by a worker that is lost before that never happened; what is committed can be taken up by any other.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from streamsvm.batch import Float32s, Float64s
from streamsvm.distributed import dual_work
from streamsvm.distributed.agreement import Metric
from streamsvm.distributed.cluster import Shared
from streamsvm.distributed.groups import NoRows, ShardedGroups
from streamsvm.distributed.storage import refuse_unseen
from streamsvm.distributed.team import Each
from streamsvm.distributed.versions import remove_versions
from streamsvm.errors import ModelError, SourceError
from streamsvm.io.files import in_directory
from streamsvm.io.parts import looked_up
from streamsvm.io.urls import is_local
from streamsvm.progress import several
from streamsvm.scoring import Offset
from streamsvm.solvers.base import Problem, State
from streamsvm.solvers.batch import BatchSolver, Figures, Surroundings
from streamsvm.solvers.descent import Descent

KEPT = 3  # states of which the dual variables stay in storage: the last two checkpoints, and one that is being written


class ShardedDcd(BatchSolver):
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
        self._shared: Shared | None = None
        self._agreed: Float64s = np.zeros_like(self._view.weight_table)
        self._combined = self._agreed  # the weights that the dual variables of all shards make
        self._anchor: Float64s | None = None  # what shards take for their memories in the next round
        self._metric = Metric(self._team.count, problem.l2)
        self._chosen_for = 0  # the round after which that was chosen
        self._squares: Float64s | None = None
        self._best: Figures | None = None  # the least objective that was found,
        self._best_weights = self._agreed  # and whose it is
        self._versions: list[str | None] = [None] * self._team.count
        self._resting: list[Any] = [None] * self._team.count
        self._kept: list[list[str | None]] = []  # versions that states speak of
        self._runs = [self._team.name]  # whose files these may be
        self._begun = False
        self._seen = False  # whether what workers write has been seen here

    # Learning.

    def learn(self) -> None:
        cluster = self._team.cluster
        if self._squares is None:
            size = 8 * (self.groups.width + 1)
            total, _ = self._team.add(dual_work.squares, size=size)
            self._squares = total / self.groups.weight
            cluster.sent += size * len(cluster.threads())
        self._shared_squares = cluster.share(self._squares)
        if self._begun and self._enough(self._scanned()):
            return
        while True:
            self._climb()
            if self._enough(self._scanned()):
                return

    def _climb(self) -> None:
        assert self._squares is not None
        size, metric = self._agreed.nbytes, self._metric
        anchor = None if self._anchor is None else self._team.cluster.share(self._anchor, size)
        moved, told = self._team.add(
            dual_work.climb, self._standings(), self._sent(), anchor, metric, self._shared_squares, self._storage,
            self._sweeps, size=size, rows=self._sweeps * self.groups.rows,
        )  # fmt: skip
        self._combined = self._combined + moved
        self._agreed = metric.towards(self._agreed, self._combined, metric.units(self._squares))
        self._metric, self._anchor, self._shared = metric._replace(before=metric.firmness), None, None
        self._round += 1
        self._versions = [one.version for one in told]
        self._resting = [one.rest_beyond for one in told]
        self._refuse_unseen(told)
        self._begun = True
        self.passes += self._sweeps
        self.around.tick(self._sweeps * self.groups.rows)
        self._clear()

    def _sent(self) -> Shared:
        """The weights agreed upon, on their way to all workers, once for a scan and the round after it."""
        if self._shared is None:
            self._shared = self._team.cluster.share(self._agreed, self._agreed.nbytes)
        return self._shared

    def _scanned(self) -> Figures:
        found = self._team.ask(dual_work.scan, self._standings(), self._sent(), self._storage)
        view = self._view
        view.take_up(self._agreed, None, None)
        now = view.figures_of(np.sum(found, axis=0), self._combined)
        apart = 0.5 * self.problem.l2 * float(np.sum(np.square(self._agreed - self._combined)))
        if self._round > max(self._chosen_for, 1):
            self._chosen_for = self._round
            self._metric = self._metric.after(self._round, apart, now.objective - view.dual - apart)
        if self._best is None or now.objective < self._best.objective:
            self._best, self._best_weights = now, self._agreed
        self.around.tick(0)
        return self._best._replace(dual=now.dual)

    def _standings(self) -> Each:
        problem = self.problem
        return Each(
            [
                dual_work.Standing(self._round, problem.l2, self._classes, version, resting)
                for version, resting in zip(self._versions, self._resting, strict=True)
            ]
        )

    def _refuse_unseen(self, told: list[dual_work.Climbed]) -> None:
        """SourceError if dual variables went where only the worker sees them; asked once, after the first round."""
        if not self._seen:
            urls = [in_directory(self._storage, one.version) for one in told]
            looked_up(lambda url: refuse_unseen(url, "cluster.storage"), urls, remote=not is_local(self._storage))
            self._seen = True

    def _clear(self) -> None:
        """Remove dual variables of old rounds, but those that a checkpoint may speak of."""
        wanted = [name for state in self._kept for name in state] + self._versions
        for run in self._runs:
            remove_versions(self._storage, run, [name for name in wanted if name is not None])

    def finish(self) -> None:
        """Nobody will go on from here: remove all dual variables, as far as they can be reached."""
        for run in self._runs:
            with suppress(SourceError):
                remove_versions(self._storage, run)

    # What is learned.

    def vector(self) -> Float64s:
        self._view.take_up(self._best_weights, None, None)
        return self._view.vector()

    def weights(self) -> tuple[Float32s, Any]:
        self._view.take_up(self._best_weights, None, None)
        return self._view.weights()

    def described(self) -> str:
        size = self._agreed.nbytes / 1e6
        return (
            f"{several(self.groups.rows, 'row')} in {several(self._team.count, 'shard')} on "
            f"{several(len(self._team.cluster.threads()), 'worker')}; {several(self._sweeps, 'sweep')} a round, then "
            f"{size:,.1f} MB to each worker and from each shard"
        )

    def start_from(self, weights: Float32s, bias: Offset) -> None:
        """Dual variables as these weights suggest them, in all shards."""
        self._combined, told = self._team.add(
            dual_work.begin_from, self._standings(), self._team.cluster.share(weights), bias, self._storage,
            size=self._agreed.nbytes,
        )  # fmt: skip
        self._versions = [one.version for one in told]
        self._agree_anew(self._combined)
        self._begun = True

    def with_penalty(self, l2: float) -> None:
        self._combined = self._combined * (self.problem.l2 / l2)
        self._view.with_penalty(l2)
        self._resting = [None] * self._team.count
        self._metric, self._best = self._metric._replace(l2=l2), None
        self._agree_anew(self._combined)
        super().with_penalty(l2)

    def _agree_anew(self, weights: Float64s) -> None:
        """Let all shards begin at these weights, which their dual variables make."""
        self._agreed = self._anchor = self._best_weights = weights
        self._metric, self._shared = self._metric._replace(before=self._metric.firmness), None

    # Going on later.

    def state(self) -> State:
        self._kept = [*self._kept[1 - KEPT :], list(self._versions)]
        return {
            "agreed": self._agreed.copy(),
            "combined": self._combined.copy(),
            "anchored": self._anchor is not None,
            "metric": list(self._metric),
            "chosen_for": self._chosen_for,
            "squares": np.zeros(0) if self._squares is None else self._squares,
            "best": None if self._best is None else list(self._best),
            "best_weights": self._best_weights.copy(),
            "round": self._round,
            "versions": list(self._versions),
            "begun": self._begun,
            "passes": self.passes,
            "runs": list(self._runs),
            "resting": {f"{number:05}": np.asarray(one) for number, one in enumerate(self._resting) if one is not None},
        }

    def restore(self, state: State) -> None:
        if state["agreed"].shape != self._agreed.shape or len(state["versions"]) != self._team.count:
            raise ModelError("the weights and shards saved are not those of this run")
        self._agreed, self._combined, self._best_weights = (
            np.array(state[name], np.float64) for name in ("agreed", "combined", "best_weights")
        )
        self._anchor = self._agreed if state["anchored"] else None
        self._metric, self._chosen_for = Metric(*state["metric"]), int(state["chosen_for"])
        self._squares = np.array(state["squares"]) if len(state["squares"]) else None
        self._best = None if state["best"] is None else Figures(*state["best"])
        self._round, self.passes, self._begun = int(state["round"]), int(state["passes"]), bool(state["begun"])
        self._versions = list(state["versions"])
        self._runs = [*state["runs"], self._team.name]
        saved = state.get("resting", {})
        self._resting = [
            np.array(saved[name]) if (name := f"{number:05}") in saved else None for number in range(self._team.count)
        ]
        self._kept = [list(self._versions)]
