"""A run with an exact solver on a cluster: the driver decides and proves, the workers read and learn."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from streamsvm.batch import Float32s, Float64s
from streamsvm.config import Settings
from streamsvm.distributed import work
from streamsvm.distributed.cluster import ClusterLostError
from streamsvm.distributed.cocoa import Cocoa
from streamsvm.distributed.feed import ClusterFeed
from streamsvm.distributed.groups import ShardedGroups
from streamsvm.distributed.passes import ClusterPasses
from streamsvm.distributed.storage import dual_storage
from streamsvm.errors import ConfigError
from streamsvm.fitting import Fitting
from streamsvm.groups import Groups
from streamsvm.judging import cross_fitted
from streamsvm.scoring import Offset
from streamsvm.solvers import make_batch_solver, make_class_solver
from streamsvm.solvers.base import Problem
from streamsvm.solvers.batch import BatchSolver, Surroundings

HOLD_OUT = "on a cluster probabilities and thresholds are learned on held-out rows: add --holdout 10"


class ClusterFitting(Fitting):
    """The same story; rows, groups and sums are those of all shards."""

    passes: ClusterPasses

    def __init__(self, settings: Settings, *others: Any) -> None:
        if cross_fitted(settings):
            raise ConfigError(HOLD_OUT)
        super().__init__(settings, *others)

    def new_feed(self) -> ClusterFeed:
        return ClusterFeed(self.settings, self.passes, self.listener.note, self.initial, self.memory)

    def new_groups(self) -> Groups:
        return ShardedGroups(self.passes.team, self.feed.state(), self.passes.stream.features.width)

    def new_solver(self, name: str, problem: Problem, groups: Any, around: Surroundings, classes: int) -> BatchSolver:
        if name != "dcd":
            return super().new_solver(name, problem, groups, around, classes)
        make: Any = partial(make_batch_solver, "dcd")
        if classes:
            make = partial(_class_descent, self.rule, classes)
        storage = dual_storage(self.settings, self.passes.team)
        return Cocoa(problem, groups, around, make, storage=storage, classes=classes)

    def make_passes(self) -> None:
        """A cluster that is lost ends the run, after a last checkpoint: all that is committed is here."""
        team, listener = self.passes.team, self.listener
        team.cluster.heard = lambda rows, read: listener.progress(self.progress())
        try:
            super().make_passes()
        except ClusterLostError:
            self._checkpoints.keep(self._snapshot)
            raise
        if isinstance(self.solver, Cocoa) and not self._checkpoints.wanted:
            self.solver.finish()

    def held_out_scores(self, weights: Float32s, bias: Offset) -> Iterator[tuple[Float64s, Any]]:
        team = self.passes.team
        for groups in team.ask(work.held_out, team.cluster.share(weights), bias):
            for rows in groups:
                yield rows.scores, rows


def _class_descent(rule: str, classes: int, problem: Problem, groups: Groups, around: Surroundings) -> BatchSolver:
    return make_class_solver(rule, problem, groups, around, classes)
