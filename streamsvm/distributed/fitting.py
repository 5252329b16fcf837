"""A run with an exact solver on a cluster: the driver decides and proves, the workers read and learn."""

from functools import partial
from typing import Any

from streamsvm.batch import Float32s
from streamsvm.config import Settings
from streamsvm.distributed.cluster import ClusterLostError
from streamsvm.distributed.dcd import ShardedDcd
from streamsvm.distributed.groups import ShardedGroups
from streamsvm.distributed.held_out import measure_on_workers
from streamsvm.distributed.runs import ClusterRun
from streamsvm.distributed.storage import dual_storage
from streamsvm.errors import ConfigError
from streamsvm.fitting import Fitting
from streamsvm.groups import Groups
from streamsvm.holdout import Holdout
from streamsvm.judging import cross_fitted
from streamsvm.progress import Progress
from streamsvm.scoring import Offset
from streamsvm.solvers import make_batch_solver, make_class_solver
from streamsvm.solvers.base import Problem
from streamsvm.solvers.batch import BatchSolver, Surroundings

HOLD_OUT = "on a cluster probabilities and thresholds are learned on held-out rows: add --holdout 10"


class ClusterFitting(ClusterRun, Fitting):
    """The same story; rows, groups and sums are those of all shards."""

    def __init__(self, settings: Settings, *others: Any) -> None:
        if cross_fitted(settings):
            raise ConfigError(HOLD_OUT)
        super().__init__(settings, *others)

    def new_groups(self) -> Groups:
        return ShardedGroups(self.passes.team, self.feed.state(), self.passes.stream.features.width)

    def new_solver(self, name: str, problem: Problem, groups: Any, around: Surroundings, classes: int) -> BatchSolver:
        if name != "dcd":
            return super().new_solver(name, problem, groups, around, classes)
        make: Any = partial(make_batch_solver, "dcd")
        if classes:
            make = partial(_class_descent, self.rule, classes)
        storage = dual_storage(self.settings, self.passes.team)
        return ShardedDcd(problem, groups, around, make, storage=storage, classes=classes)

    def make_passes(self) -> None:
        """A cluster that is lost ends the run, after a last checkpoint: all that is committed is here."""
        self.show_as_heard()
        try:
            super().make_passes()
        except ClusterLostError:
            self._checkpoints.keep(self._snapshot)
            raise
        finally:
            if isinstance(self.solver, ShardedDcd) and not self._checkpoints.wanted:
                self.solver.finish()

    def measure_held_out(self, holdout: Holdout, weights: Float32s, bias: Offset) -> None:
        team = self.passes.team
        measure_on_workers(team, holdout, [team.share_model(weights, bias)])

    # What is told.

    def rows_by_now(self) -> int:
        return self.rows_read + self.watch.rows

    def progress(self) -> Progress:
        return super().progress()._replace(cluster=self.watch.together)

    def result(self) -> dict[str, Any]:
        return super().result() | {"cluster": self.figures_of_cluster()}


def _class_descent(rule: str, classes: int, problem: Problem, groups: Groups, around: Surroundings) -> BatchSolver:
    return make_class_solver(rule, problem, groups, around, classes)
