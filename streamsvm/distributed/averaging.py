"""A run with an online solver on a cluster: every shard makes a pass by itself, and their weights are averaged.

    pass 1       each shard learns its own rows from zero, or from the initial model;  w = mean of w_k, by their weight
    pass 2, ...  each shard goes on from that mean, with its own clock

    M. Zinkevich, M. Weimer, A. Smola, L. Li, "Parallelized stochastic gradient descent", 2010; further rounds as in
    R. McDonald, K. Hall, G. Mann, "Distributed training strategies for the structured perceptron", 2010.

One pass costs one exchange of weights. The mean of models of 1/K of the data each is a little worse than one model of
all of it after the same single pass; a second or third one brings it back. All shards have the step size that the first
chose on its first rows, if none is given. Loss and error are those of rows before they were learned, by their shard.
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from streamsvm.batch import Float32s, Float64s
from streamsvm.checkpoint import Tree
from streamsvm.config import Settings
from streamsvm.distributed import work
from streamsvm.distributed.cluster import ClusterLostError, Shared
from streamsvm.distributed.fitting import HOLD_OUT
from streamsvm.distributed.groups import ShardedGroups
from streamsvm.distributed.held_out import measure_on_workers
from streamsvm.distributed.runs import ClusterRun
from streamsvm.distributed.team import Each
from streamsvm.errors import ConfigError
from streamsvm.holdout import Holdout
from streamsvm.judging import asked, wanted
from streamsvm.losses import Loss
from streamsvm.offered import KERNEL
from streamsvm.online_training import TrainingRun
from streamsvm.progress import Progress
from streamsvm.runs import OnlineRun
from streamsvm.score_sample import ScoreSample
from streamsvm.scoring import Offset
from streamsvm.solvers import OnlineSolver
from streamsvm.solvers.base import LOSS, SEEN, STEP, UNIT, WEIGHT, WRONG, T


def take_mean(solver: OnlineSolver, total: Float64s, told: Sequence[work.Learned], classes: int) -> None:
    """Give a solver the mean of the shards' weights, whose sum is `total`, and the sums of what they have seen."""
    weight = sum(one.weight for one in told)
    seen = int(solver.scalars[SEEN]) + sum(one.seen for one in told)
    mean: Float32s = (total / max(weight, 1e-300)).astype(np.float32)
    bias: Offset = sum(one.bias for one in told) / max(weight, 1e-300)
    solver.admit(classes)
    solver.start_from(mean, bias if np.ndim(bias) else float(bias))
    scalars = solver.scalars
    scalars[SEEN], scalars[WEIGHT] = seen, weight
    scalars[LOSS], scalars[WRONG] = sum(one.loss for one in told), sum(one.wrong for one in told)
    if told[0].step.size is not None:
        scalars[[STEP, UNIT]] = told[0].step
    scalars[T] = sum(one.clock for one in told)


class AveragedRun(ClusterRun, OnlineRun):
    """A run whose passes are made by all shards at once. Between two of them all that was learned is with the driver.

    `_inside` says here that the shards have made the pass, and what they have learned is yet to be measured.
    """

    needs_cache = True

    @abstractmethod
    def learn_pass(self) -> None:
        """Have a pass made by all shards, and take what they have learned."""

    @cached_property
    def groups(self) -> ShardedGroups:
        """All rows as they are learned from; made when they are first wanted."""
        return ShardedGroups(self.passes.team, self.feed.state(), self.passes.stream.features.width)

    @property
    def weight_count(self) -> int:
        """Of all classes together."""
        classes = self.feed.classes
        return self.groups.width * (len(classes.names) if classes.many else 1)

    @property
    def unfinished(self) -> bool:
        return self._inside or super().unfinished

    def make_passes(self) -> None:
        """A cluster that is lost ends the run, after a last checkpoint."""
        self.show_as_heard()
        try:
            while self.unfinished:
                self._pass()
                self._tick(self.groups.rows)
        except ClusterLostError:
            self._checkpoints.keep(self._snapshot)
            raise

    def _pass(self) -> None:
        if not self._inside:
            self.begin_pass()
            self.learn_pass()
            self._inside = True
            self.listener.progress(self.progress())
        self.end_pass()
        self._inside = False
        self.number += 1

    def count(self, told: Sequence[work.Passed]) -> None:
        """What the shards have read in a pass."""
        features = sum(one.features for one in told)
        self.feed.features += features
        self.feed.bytes += 8 * features

    def under_way(self, now: Progress) -> Progress:
        """Where the pass stands that all shards are making: what they have told of it so far."""
        told, seen = self.watch.learned, self.watch.rows
        if told is not None:
            seen = told.seen
            loss, error = (told.loss / told.weight, told.wrong / told.weight) if told.weight else (None, None)
            now = now._replace(loss=loss, error=error, weight=told.weight)
        if seen:
            share = seen / max(self.groups.rows, 1)
            features = int(share * int(self.groups.features.sum()))
            now = now._replace(
                examples=now.examples + seen,
                bytes=now.bytes + 8 * features,
                features=now.features + features,
                fraction=min(share, 1.0),
            )
        return now._replace(cluster=self.watch.together)

    def held_out_scores(self, loss: Loss, model: Shared) -> ScoreSample:
        """Scores of all held-out rows by a model."""
        sample = ScoreSample(many=self.feed.classes.many)
        measure_on_workers(self.groups.team, Holdout([loss], self.rule, [sample]), [model])
        return sample


class ClusterTraining(AveragedRun, TrainingRun):
    """The same story, in which a pass is made by all shards at once."""

    def __init__(self, settings: Settings, *others: Any) -> None:
        if settings.solver.name in KERNEL:
            raise ConfigError(f"solver {settings.solver.name} works on one machine: its supports cannot be averaged")
        if asked(settings) and not settings.data.holdout:
            raise ConfigError(HOLD_OUT)
        super().__init__(settings, *others)
        self._clocks: list[float] = []
        self._sent: Shared | None = None  # the weights as they stand

    @property
    def looks_back(self) -> bool:
        return super().looks_back or self._keeps_scores

    @property
    def _keeps_scores(self) -> bool:
        """Whether scores of held-out rows are to be asked for in the end, by the weights that are kept."""
        return bool(self.settings.data.holdout) and wanted(self.settings)

    def new_holdout(self) -> Holdout:
        return Holdout([self.solver.problem.loss], self.rule)

    def _watched(self, solver: OnlineSolver, note: Any) -> OnlineSolver:
        return solver

    def _shared(self) -> Shared:
        if self._sent is None:
            self._sent = self.passes.team.share_model(*self.solver.weights())
        return self._sent

    def learn_pass(self) -> None:
        team, solver, size = self.passes.team, self.solver, 8 * self.weight_count
        begin = self._shared() if self.number > 1 or self.initial is not None else None
        if self.number == 1:
            self._clocks = [float(solver.scalars[T])] * team.count
        step = work.step_of(solver)
        if step.size is None and solver.has_step_size:
            step = team.ask_first(work.first_step, solver.problem)
        total, told = team.add(
            work.learn_pass, self.number, solver.problem, begin, Each(self._clocks), step,
            size=size, rows=self.groups.rows,
        )  # fmt: skip
        learned = [one.learned[0] for one in told]
        take_mean(solver, total, learned, len(self.feed.classes.names))
        self._clocks = [one.clock for one in learned]
        self._sent = None
        self.count(told)

    def measure_held_out(self) -> None:
        self.holdout.begin_pass()
        measure_on_workers(self.groups.team, self.holdout, [self._shared()])

    def _measure_objective(self) -> None:
        if not self.settings.run.objective:
            return
        team, (weights, bias) = self.groups.team, self._weights()
        found = team.ask(work.losses, team.cluster.share(weights, weights.nbytes), bias, self.solver.problem, self.rule)
        mean = sum(one[0] for one in found) / max(sum(one[1] for one in found), 1e-300)
        self.objective = self.solver.problem.objective(weights, bias, mean)

    def _bound(self) -> float | None:
        return None  # a mean of several iterates is none of them

    def judged(self) -> ScoreSample | None:
        if self.best is None or not self._keeps_scores:
            return None
        model = self.passes.team.share_model(*self._weights())
        return self.to_judge_by(self.held_out_scores(self.solver.problem.loss, model))

    # What is told.

    def progress(self) -> Progress:
        return self.under_way(super().progress())

    def result(self) -> dict[str, Any]:
        return super().result() | {"cluster": self.figures_of_cluster()}

    # Going on later.

    def state(self) -> Tree:
        return super().state() | {"clocks": list(self._clocks)}

    def restore(self, state: Tree) -> None:
        super().restore(state)
        self._clocks = list(state["clocks"])
