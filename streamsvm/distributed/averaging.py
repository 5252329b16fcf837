"""A run with an online solver on a cluster: every shard makes a pass by itself, and their weights are averaged.

    pass 1       each shard learns its own rows from zero, or from the initial model;  w = mean of w_k, by their weight
    pass 2, ...  each shard goes on from that mean, with its own clock

    M. Zinkevich, M. Weimer, A. Smola, L. Li, "Parallelized stochastic gradient descent", 2010; further rounds as in
    R. McDonald, K. Hall, G. Mann, "Distributed training strategies for the structured perceptron", 2010.

One pass costs one exchange of weights. The mean of models of 1/K of the data each is a little worse than one model of
all of it after the same single pass; a second or third one brings it back. All shards have the step size that the first
chose on its first rows, if none is given. Loss and error are those of rows before they were learned, by their shard.
"""

from typing import Any

import numpy as np

from streamsvm.batch import Float32s
from streamsvm.checkpoint import Tree
from streamsvm.config import Settings
from streamsvm.distributed import work
from streamsvm.distributed.cluster import ClusterLostError
from streamsvm.distributed.feed import ClusterFeed
from streamsvm.distributed.fitting import HOLD_OUT
from streamsvm.distributed.groups import ShardedGroups
from streamsvm.distributed.passes import ClusterPasses
from streamsvm.distributed.team import Each
from streamsvm.errors import ConfigError
from streamsvm.judging import asked, wanted
from streamsvm.offered import KERNEL
from streamsvm.online_training import Best, TrainingRun
from streamsvm.score_sample import ScoreSample
from streamsvm.scoring import Offset, losses_of
from streamsvm.solvers import OnlineSolver
from streamsvm.solvers.base import LOSS, SEEN, STEP, WEIGHT, WRONG, T


class ClusterTraining(TrainingRun):
    """The same story, in which a pass is made by all shards at once."""

    passes: ClusterPasses
    needs_cache = True

    def __init__(self, settings: Settings, *others: Any) -> None:
        if settings.solver.name in KERNEL:
            raise ConfigError(f"solver {settings.solver.name} works on one machine: its supports cannot be averaged")
        if asked(settings) and not settings.data.holdout:
            raise ConfigError(HOLD_OUT)
        super().__init__(settings, *others)
        self._clocks: list[float] = []
        self._held_rows = 0
        self._sample: ScoreSample | None = None

    def new_feed(self) -> ClusterFeed:
        return ClusterFeed(self.settings, self.passes, self.listener.note, self.initial, self.memory)

    def start(self) -> None:
        self._groups = ShardedGroups(self.passes.team, self.feed.state(), self.passes.stream.features.width)
        self._clocks = [0.0] * self.passes.team.count
        super().start()

    def _watched(self, solver: OnlineSolver, note: Any) -> OnlineSolver:
        return solver

    def make_passes(self) -> None:
        listener = self.listener
        self.passes.team.cluster.heard = lambda rows, read: listener.progress(self.progress())
        try:
            while self.unfinished:
                self._pass()
                self._tick(self._groups.rows)
        except ClusterLostError:
            self._checkpoints.keep(self._snapshot)
            raise

    def _pass(self) -> None:
        team, solver = self.passes.team, self.solver
        begin = None
        if self.number > 1 or self.initial is not None:
            begin = team.cluster.share(solver.weights(), 4 * self._groups.width)
        if self.number == 1 and self.initial is not None:
            self._clocks = [float(solver.scalars[T])] * team.count
        eta0 = solver.step_size
        if eta0 is None and solver.has_step_size:
            eta0 = team.ask_first(work.first_step_size, solver.problem)
        solver.begin_pass(self.number)
        size = 8 * self._groups.width
        total, told = team.add(work.learn_pass, self.number, solver.problem, begin, Each(self._clocks), eta0, size=size)
        self._take(total, told)
        self.end_pass()
        self.number += 1

    def _take(self, total: Any, told: list[work.Learned]) -> None:
        """The mean of the shards' weights, and the sums of what they have seen."""
        solver = self.solver
        weight = sum(one.weight for one in told)
        seen = int(solver.scalars[SEEN]) + sum(one.seen for one in told)
        mean: Float32s = (total / max(weight, 1e-300)).astype(np.float32)
        bias: Offset = sum(one.bias for one in told) / max(weight, 1e-300)
        solver.admit(len(self.feed.classes.names))
        solver.start_from(mean, bias if np.ndim(bias) else float(bias))
        scalars = solver.scalars
        scalars[SEEN], scalars[WEIGHT] = seen, weight
        scalars[LOSS], scalars[WRONG] = sum(one.loss for one in told), sum(one.wrong for one in told)
        if told[0].step_size is not None:
            scalars[STEP] = told[0].step_size
        scalars[T] = sum(one.clock for one in told)
        self._clocks = [one.clock for one in told]
        self.feed.features += sum(one.features for one in told)
        self.feed.bytes += 8 * sum(one.features for one in told)
        self.listener.progress(self.progress())

    def _look_at_held_out(self, number: int) -> None:
        if not self.settings.data.holdout:
            return
        team, (weights, bias) = self.passes.team, self.solver.weights()
        sample = ScoreSample(many=self.feed.classes.many) if wanted(self.settings) else None
        total = weight = wrong = 0.0
        count = 0
        for groups in team.ask(work.held_out, team.cluster.share(weights), bias):
            for rows in groups:
                one, c, bad = losses_of(rows.scores, rows, self.solver.problem.loss, self.rule)
                total, weight, wrong, count = total + one, weight + c, wrong + bad, count + len(rows.labels)
                if sample is not None:
                    sample.add(rows.scores, rows.labels, rows.weights)
        if not weight:
            self.listener.note("warning: no row is held out; data.holdout is larger than the number of rows")
            return
        loss, error = total / weight, wrong / weight
        self.listener.note(f"pass {number}: loss {loss:.5f}, error {100 * error:.2f} % on {count:,} held-out rows")
        self.held_out.append({"pass": number, "loss": loss, "error": error})
        self._held_rows = count
        if self.best is None or loss < self.best.loss or not self.settings.solver.early_stop:
            self._sample = sample
            kept = (weights, bias) if self.settings.solver.early_stop else (weights[:0], 0.0)
            self.best = Best(number, loss, error, *kept)

    def _measure_objective(self) -> None:
        if not self.settings.run.objective:
            return
        team, (weights, bias) = self.passes.team, self._weights()
        found = team.ask(work.losses, team.cluster.share(weights), bias, self.solver.problem, self.rule)
        mean = sum(one[0] for one in found) / max(sum(one[1] for one in found), 1e-300)
        self.objective = self.solver.problem.objective(weights, bias, mean)

    def _bound(self) -> float | None:
        return None  # a mean of several iterates is none of them

    def judged(self) -> ScoreSample | None:
        return self.to_judge_by(self._sample)

    def _held_out(self) -> dict[str, Any] | None:
        found = super()._held_out()
        return None if found is None else found | {"examples": self._held_rows}

    # Going on later.

    def state(self) -> Tree:
        return super().state() | {"clocks": list(self._clocks), "held_rows": self._held_rows}

    def restore(self, state: Tree) -> None:
        super().restore(state)
        self._clocks, self._held_rows = list(state["clocks"]), state["held_rows"]
