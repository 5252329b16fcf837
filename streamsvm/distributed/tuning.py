"""A search on a cluster: every shard makes a pass with all candidates side by side, and each of them is averaged.

    driver: who is still in --> workers: a pass over each shard, parsed once --> driver: the mean of each candidate
            the worse half retires <-- workers: loss and error of each mean on held-out rows <--

Each candidate is, bit for bit, what `train` on a cluster gives with its settings, the same shards and the same seed:
its step size is the one that the first shard chose, its weights are the same sums in the same order. One that diverges
on some shard has diverged. To and fro goes what so many runs of `train` would take, but the rows are read once.
"""

from typing import Any

from streamsvm.checkpoint import Tree
from streamsvm.contest import Candidate, Contest, chosen
from streamsvm.distributed.averaging import AveragedRun, take_mean
from streamsvm.distributed.cluster import Shared
from streamsvm.distributed.held_out import measure_on_workers
from streamsvm.distributed.team import Each
from streamsvm.distributed.tuning_work import bytes_beside, first_steps, learn_contest
from streamsvm.distributed.work import step_of
from streamsvm.holdout import Holdout
from streamsvm.judging import wanted
from streamsvm.progress import Progress
from streamsvm.runs import make_problem
from streamsvm.score_sample import ScoreSample
from streamsvm.solvers import SOLVERS
from streamsvm.tuning_run import TuningRun


class ClusterTuning(AveragedRun, TuningRun):
    """The same search, in which a pass is made by all shards at once."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._clocks: dict[Candidate, list[float]] = {}  # of each shard
        self._sent: dict[Candidate, Shared] = {}  # the weights as they stand

    @property
    def looks_back(self) -> bool:
        return super().looks_back or self.keeps_scores

    def new_contest(self) -> Contest:
        classes = len(self.feed.classes.names) if self.feed.classes.many else 1
        beside = bytes_beside(len(self.all), classes)
        return Contest(self.settings, self.feed, self.all, self.memory, self.feed.width, beside=beside)

    def new_holdout(self) -> Holdout:
        return Holdout([self._loss(candidate) for candidate in self.contest.candidates], self.rule)

    def _loss(self, candidate: Candidate) -> Any:
        return make_problem(self.settings, candidate.loss, candidate.l2, candidate.l1).loss

    def _shared(self, place: int) -> Shared:
        candidate = self.contest.candidates[place]
        if candidate not in self._sent:
            self._sent[candidate] = self.passes.team.share_model(*self.contest.solver(place).weights())
        return self._sent[candidate]

    @property
    def _alive(self) -> list[int]:
        """The places of those that have not diverged."""
        return [place for place, alive in enumerate(self.contest.alive) if alive]

    # A pass.

    def learn_pass(self) -> None:
        contest, team = self.contest, self.passes.team
        contest.reserve(self.groups.width)
        self._choose_step_sizes()
        places = self._alive
        if not places:
            return
        candidates = [contest.candidates[place] for place in places]
        begins = [self._shared(place) if self.number > 1 else None for place in places]
        clocks = [self._clocks.get(candidate, [0.0] * team.count) for candidate in candidates]
        steps = [step_of(contest.solver(place)) for place in places]
        total, told = team.add(
            learn_contest,
            self.number,
            candidates,
            begins,
            Each(list(zip(*clocks, strict=True))),
            steps,
            size=8 * self.weight_count * len(places),
            rows=self.groups.rows,
        )
        self._sent.clear()
        for at, place in enumerate(places):
            learned = [one.learned[at] for one in told if one.learned[at] is not None]
            if len(learned) < len(told):
                contest.stop(place)
                continue
            solver = contest.solver(place)
            take_mean(solver, total[at], learned, len(self.feed.classes.names))
            contest.take_up(place, solver)
            self._clocks[candidates[at]] = [one.clock for one in learned]
        self.examples += sum(one.rows for one in told)
        self.count(told)

    def _choose_step_sizes(self) -> None:
        """Those that have none yet get the one that the first shard chooses."""
        contest = self.contest
        open_ones = [
            place
            for place in self._alive
            if contest.step_sizes[place] is None and SOLVERS[contest.candidates[place].solver].has_step_size
        ]
        if not open_ones:
            return
        found = self.passes.team.ask_first(first_steps, [contest.candidates[place] for place in open_ones])
        for place, step in zip(open_ones, found, strict=True):
            if step.size is not None:
                solver = contest.solver(place)
                solver.take_step_size(step.size, step.unit)
                contest.take_up(place, solver)

    def measure_held_out(self) -> None:
        self.holdout.begin_pass()
        models = [self._shared(place) if alive else None for place, alive in enumerate(self.contest.alive)]
        measure_on_workers(self.groups.team, self.holdout, models)

    def sample_of(self, place: int) -> ScoreSample | None:
        candidate = self.contest.candidates[place]
        if not wanted(chosen(self.settings, candidate)):
            return None
        return self.held_out_scores(self._loss(candidate), self._shared(place))

    # What is told.

    def progress(self) -> Progress:
        return self.under_way(super().progress())

    def _result(self, best: Candidate, dim: int) -> dict[str, Any]:
        return super()._result(best, dim) | {"cluster": self.figures_of_cluster()}

    # Going on later.

    def state(self) -> Tree:
        places = {candidate: k for k, candidate in enumerate(self.all)}
        clocks = [[places[candidate], *clocks] for candidate, clocks in self._clocks.items()]
        return super().state() | {"clocks": clocks}

    def restore(self, state: Tree) -> None:
        super().restore(state)
        self._clocks = {self.all[k]: clocks for k, *clocks in state["clocks"]}
