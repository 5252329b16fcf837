"""Candidates that learn from the same rows, each as if it were alone.

Those that differ in penalty.l2 alone share a kernel that keeps the weights of a feature for all of them in one cache
line (solvers/side_by_side.py); the others learn one by one, on threads. Each is, bit for bit, what `train` would give
with its settings. One that diverges is left out, and does not disturb the others.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from streamsvm.batch import Batch, Int64s
from streamsvm.checkpoint import Tree
from streamsvm.config import SOLVER_SETTINGS, PenaltySettings, Settings
from streamsvm.errors import DivergedError
from streamsvm.feed import Feed
from streamsvm.holdout import Scores
from streamsvm.online_training import solver_options
from streamsvm.runs import make_online, make_problem
from streamsvm.solvers import OnlineSolver
from streamsvm.solvers.base import LOSS, WEIGHT, WRONG
from streamsvm.solvers.side_by_side import SideBySide


class Candidate(NamedTuple):
    """One set of settings that is tried."""

    solver: str
    loss: str
    l2: float
    l1: float


def chosen(settings: Settings, candidate: Candidate) -> Settings:
    """The settings with which `train` does what the candidate did."""
    penalty = PenaltySettings(l2=candidate.l2, l1=candidate.l1 or None)
    solver: Any = settings.solver
    if solver.name != candidate.solver:
        solver = SOLVER_SETTINGS[candidate.solver](passes=solver.passes)
    if getattr(solver, "revisit", False):  # how often would be asked for each candidate by itself
        solver = solver.model_copy(update={"revisit": False})
    return settings.model_copy(update={"penalty": penalty, "loss": candidate.loss, "solver": solver})


class Single:
    """A candidate that shares no kernel with others."""

    def __init__(self, solver: OnlineSolver) -> None:
        self._solver = solver
        self.candidates = 1
        self.diverged = False

    def take_up(self, k: int, solver: OnlineSolver) -> None:
        self._solver = solver

    def stop(self, k: int) -> None:
        self.diverged = True

    def reserve(self, width: int) -> None:
        self._solver._reserve(width)

    def admit(self, classes: int) -> None:
        self._solver.admit(classes)

    def learn(self, batch: Batch, order: Int64s | None = None) -> None:
        self._unless_diverged(self._solver.learn, batch, order)

    def begin_pass(self, number: int) -> None:
        self._solver.begin_pass(number)

    def end_pass(self) -> None:
        self._unless_diverged(self._solver.end_pass)

    def finish(self) -> None:
        self._unless_diverged(self._solver.finish)

    def _unless_diverged(self, step: Any, *arguments: Any) -> None:
        if not self.diverged:
            try:
                step(*arguments)
            except DivergedError:
                self.diverged = True

    @property
    def alive(self) -> list[bool]:
        return [not self.diverged]

    @property
    def step_sizes(self) -> list[float | None]:
        return [self._solver.step_size]

    def figures(self) -> Any:
        return self._solver.scalars[None, [WEIGHT, LOSS, WRONG]]

    def keep(self, which: Sequence[int]) -> None:
        assert list(which) == [0]

    def solver(self, k: int) -> OnlineSolver:
        return self._solver

    def bytes_for(self, width: int) -> int:
        return self._solver.bytes_for(width)

    def state(self) -> Tree:
        return {"diverged": self.diverged, "solver": self._solver.state()}

    def restore(self, state: Tree) -> None:
        self.diverged = state["diverged"]
        self._solver.restore(state["solver"])


class Contest:
    """All candidates that still take part, in groups that share a kernel.

    `beside` are bytes that something else takes for each feature, of the same memory.
    """

    def __init__(
        self,
        settings: Settings,
        feed: Feed,
        candidates: Sequence[Candidate],
        memory: int,
        dim: int = 0,
        *,
        beside: int = 0,
        threads: int | None = None,
    ) -> None:
        self._settings = settings
        self._feed = feed
        self._plan = _grouped(candidates) if not feed.classes.many else [[candidate] for candidate in candidates]
        self.candidates = [candidate for group in self._plan for candidate in group]
        self._kept = list(range(len(self.candidates)))  # which of all candidates these are
        bytes_each = [self._group(group).bytes_for(1) for group in self._plan]
        self._groups = [
            self._group(group, dim=dim, memory=memory * share // (sum(bytes_each) + beside))
            for group, share in zip(self._plan, bytes_each, strict=True)
        ]
        self._pool = ThreadPoolExecutor(min(len(self._groups), threads or os.cpu_count() or 1), "streamsvm-tune")

    def close(self) -> None:
        self._pool.shutdown()

    def _group(self, group: Sequence[Candidate], **more: Any) -> SideBySide | Single:
        first = group[0]
        options = solver_options(chosen(self._settings, first))
        problems = [make_problem(self._settings, c.loss, c.l2, c.l1) for c in group]
        if len(group) > 1:
            return SideBySide(first.solver, problems, **options, **more)
        return Single(make_online(self._settings, self._feed, first.solver, problems[0], **options, **more))

    def _each(self, step: str, *arguments: Any) -> None:
        if len(self._groups) == 1:
            getattr(self._groups[0], step)(*arguments)
        else:
            list(self._pool.map(lambda group: getattr(group, step)(*arguments), self._groups))

    def admit(self, classes: int) -> None:
        """So many classes are known now."""
        for group in self._groups:
            if isinstance(group, Single):
                group.admit(classes)

    def learn(self, batch: Batch, order: Int64s | None) -> None:
        self._each("learn", batch, order)

    def begin_pass(self, number: int) -> None:
        self._each("begin_pass", number)

    def end_pass(self) -> None:
        self._each("end_pass")

    def finish(self) -> None:
        self._each("finish")

    def models(self) -> Iterator[Scores | None]:
        """What scores rows, of every candidate, one at a time; None if it diverged."""
        for group in self._groups:
            for k, alive in enumerate(group.alive):
                yield group.solver(k).scores if alive else None

    @property
    def alive(self) -> list[bool]:
        """False for a candidate that diverged."""
        return [alive for group in self._groups for alive in group.alive]

    def solver(self, place: int) -> OnlineSolver:
        """A candidate as a plain solver."""
        group, k = self._at(place)
        return group.solver(k)

    def take_up(self, place: int, solver: OnlineSolver) -> None:
        """A candidate goes on as this plain solver: what `solver` gave, taken back."""
        group, k = self._at(place)
        group.take_up(k, solver)

    def stop(self, place: int) -> None:
        """A candidate diverged elsewhere."""
        group, k = self._at(place)
        group.stop(k)

    def _at(self, place: int) -> tuple[SideBySide | Single, int]:
        for group in self._groups:
            if place < group.candidates:
                return group, place
            place -= group.candidates
        raise IndexError(place)

    def reserve(self, width: int) -> None:
        """Room for so many features, refused before it is allocated when it exceeds the memory."""
        for group in self._groups:
            group.reserve(width)

    @property
    def step_sizes(self) -> list[float | None]:
        return [eta0 for group in self._groups for eta0 in group.step_sizes]

    def figures(self) -> Iterator[tuple[float | None, float | None, float | None]]:
        """Step size, progressive loss and error of each candidate; None where it diverged or saw nothing."""
        for group in self._groups:
            for alive, eta0, sums in zip(group.alive, group.step_sizes, group.figures(), strict=True):
                weight, loss, wrong = (float(value) for value in sums)
                yield (eta0, loss / weight, wrong / weight) if alive and weight else (eta0, None, None)

    def keep(self, which: Sequence[int]) -> None:
        """Let the others retire."""
        first, groups = 0, []
        for group in self._groups:
            inside = [k - first for k in sorted(which) if first <= k < first + group.candidates]
            first += group.candidates
            if inside:
                group.keep(inside)
                groups.append(group)
        self._groups = groups
        self.candidates = [self.candidates[k] for k in sorted(which)]
        self._kept = [self._kept[k] for k in sorted(which)]

    def state(self) -> Tree:
        """Everything that the future depends on, copied."""
        return {"kept": list(self._kept), "groups": {str(i): group.state() for i, group in enumerate(self._groups)}}

    def restore(self, state: Tree) -> None:
        """Go on where `state` was taken; nobody has retired yet here."""
        self.keep(state["kept"])
        for i, group in enumerate(self._groups):
            group.restore(state["groups"][str(i)])


def _grouped(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Candidates that share a kernel stand together: same solver, same loss, L2 penalty alone."""
    groups: dict[Any, list[Candidate]] = {}
    for candidate in candidates:
        shares = candidate.solver in SideBySide.SOLVERS and not candidate.l1 and candidate.l2
        key = (candidate.solver, candidate.loss) if shares else candidate
        groups.setdefault(key, []).append(candidate)
    return list(groups.values())
