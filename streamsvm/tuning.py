"""Many penalties, solvers and losses trained side by side in one reading of the data; the best becomes the model.

Parsing is what costs, so all candidates learn each batch while it is there. Those that differ in penalty.l2 alone share
a kernel that keeps the weights of a feature for all of them in one cache line (solvers/side_by_side.py); the others
learn one by one, on threads. Each candidate is exactly what `train` would give with its settings. Every n-th row is
held out and decides. With several passes the worse half retires after each (successive halving).
"""

import math
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Batch, Float32s, Int64s
from streamsvm.config import SOLVER_SETTINGS, PenaltySettings, Settings
from streamsvm.errors import ConfigError, DataError, DivergedError
from streamsvm.feed import Feed, StartOver
from streamsvm.holdout import Holdout
from streamsvm.passes import Passes
from streamsvm.progress import Listener, Progress, Silent
from streamsvm.reading import make_source, memory_for_solvers, training_passes
from streamsvm.solvers import OnlineSolver, make_solver
from streamsvm.solvers.base import LOSS, WEIGHT, WRONG
from streamsvm.solvers.side_by_side import SideBySide
from streamsvm.training import Outcome, finish, make_model, make_problem, solver_options

DEFAULT_HOLDOUT = 10


class Candidate(NamedTuple):
    """One set of settings that is tried."""

    solver: str
    loss: str
    l2: float
    l1: float


class Standing(NamedTuple):
    """How a candidate did in the last pass that it took part in."""

    passes: int
    eta0: float | None
    loss: float | None
    error: float | None
    held_out_loss: float | None
    held_out_error: float | None

    def rank(self, by: str) -> float:
        """What the best has least of, by held-out rows, to four digits; infinite for a candidate that diverged."""
        figure = self.held_out_error if by == "error" else self.held_out_loss
        return float(f"{figure:.4g}") if figure is not None and math.isfinite(figure) else math.inf


def tune(settings: Settings, listener: Listener = Silent()) -> Outcome:
    """Try every candidate that `settings.tune` describes, save the best model, evaluate it on the test data."""
    if not settings.data.train:
        raise ConfigError("there is no training data: name a file, or set data.train")
    started = time.perf_counter()
    if not settings.data.holdout:
        settings = settings.model_copy(update={"data": settings.data.model_copy(update={"holdout": DEFAULT_HOLDOUT})})
    candidates = candidates_of(settings)
    passes = training_passes(settings, listener.note)
    if settings.data.test:
        make_source(settings, settings.data.test)
    with passes:
        run = _Tuning(settings, candidates, passes, listener, started)
        run.learn()
    return finish(*run.outcome())


def candidates_of(settings: Settings) -> list[Candidate]:
    """All combinations; ConfigError if a solver cannot minimise one of the penalties."""
    tuned, penalty = settings.tune, settings.penalty
    if penalty.C is not None:
        raise ConfigError("penalty.C cannot be tuned: tune.l2 names the penalties to try")
    if settings.solver.init is not None:
        raise ConfigError("solver.init cannot be used here: all candidates of tune begin at zero")
    if settings.solver.early_stop is not None:
        raise ConfigError("solver.early_stop cannot be used here: in tune the worse half retires after each pass")
    l2s = grid(tuned.l2, tuned.candidates) if tuned.l2 is not None else [penalty.l2 or 0.0]
    l1s = grid(tuned.l1, tuned.candidates) if tuned.l1 is not None else [penalty.l1 or 0.0]
    found = [
        Candidate(solver, loss, l2, l1)
        for solver in tuned.solver or (settings.solver.name,)
        for loss in tuned.loss or (settings.loss,)
        for l1 in l1s
        for l2 in l2s
    ]
    for candidate in found:
        make_solver(candidate.solver, make_problem(settings, candidate.loss, candidate.l2, candidate.l1))
    return found


def grid(spec: str | tuple[float, ...], count: int) -> list[float]:
    """The values of a list, or `count` values of a range, evenly spaced on a log scale, to three digits."""
    if not isinstance(spec, str):
        return list(spec)
    low, high = (float(end) for end in spec.split(".."))
    values = np.geomspace(low, high, count) if count > 1 else [math.sqrt(low * high)]
    return list(dict.fromkeys(float(f"{value:.3g}") for value in values))


def chosen(settings: Settings, candidate: Candidate) -> Settings:
    """The settings with which `train` does what the candidate did."""
    penalty = PenaltySettings(l2=candidate.l2, l1=candidate.l1 or None)
    solver: Any = settings.solver
    if solver.name != candidate.solver:
        solver = SOLVER_SETTINGS[candidate.solver](passes=solver.passes, early_stop=solver.early_stop)
    return settings.model_copy(update={"penalty": penalty, "loss": candidate.loss, "solver": solver})


class Single:
    """A candidate that shares no kernel with others."""

    def __init__(self, solver: OnlineSolver) -> None:
        self._solver = solver
        self.candidates = 1
        self.diverged = False

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


class Contest:
    """All candidates that still take part, in groups that share a kernel."""

    def __init__(self, settings: Settings, candidates: Sequence[Candidate], memory: int) -> None:
        self._settings = settings
        self._plan = _grouped(candidates)
        self.candidates = [candidate for group in self._plan for candidate in group]
        bytes_each = [self._group(group).bytes_for(1) for group in self._plan]
        dim = settings.features.given_width
        self._groups = [
            self._group(group, dim=dim, memory=memory * share // sum(bytes_each))
            for group, share in zip(self._plan, bytes_each, strict=True)
        ]
        self._pool = ThreadPoolExecutor(min(len(self._groups), os.cpu_count() or 1), "streamsvm-tune")

    def close(self) -> None:
        self._pool.shutdown()

    def _group(self, group: Sequence[Candidate], **more: Any) -> SideBySide | Single:
        first = group[0]
        options = solver_options(chosen(self._settings, first))
        problems = [make_problem(self._settings, c.loss, c.l2, c.l1) for c in group]
        if len(group) > 1:
            return SideBySide(first.solver, problems, **options, **more)
        return Single(make_solver(first.solver, problems[0], **options, **more))

    def _each(self, step: str, *arguments: Any) -> None:
        if len(self._groups) == 1:
            getattr(self._groups[0], step)(*arguments)
        else:
            list(self._pool.map(lambda group: getattr(group, step)(*arguments), self._groups))

    def learn(self, batch: Batch, order: Int64s | None) -> None:
        self._each("learn", batch, order)

    def begin_pass(self, number: int) -> None:
        self._each("begin_pass", number)

    def end_pass(self) -> None:
        self._each("end_pass")

    def finish(self) -> None:
        self._each("finish")

    def models(self) -> Iterator[tuple[Float32s, float] | None]:
        """Weights and bias of every candidate, one at a time; None if it diverged."""
        for group in self._groups:
            for k, alive in enumerate(group.alive):
                yield group.solver(k).weights() if alive else None

    def solver(self, place: int) -> OnlineSolver:
        """A candidate as a plain solver."""
        for group in self._groups:
            if place < group.candidates:
                return group.solver(place)
            place -= group.candidates
        raise IndexError(place)

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


def _grouped(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Candidates that share a kernel stand together: same solver, same loss, L2 penalty alone."""
    groups: dict[Any, list[Candidate]] = {}
    for candidate in candidates:
        shares = candidate.solver in SideBySide.SOLVERS and not candidate.l1 and candidate.l2
        key = (candidate.solver, candidate.loss) if shares else candidate
        groups.setdefault(key, []).append(candidate)
    return list(groups.values())


class _Tuning:
    """One search: the contest, what feeds it, and what is told about it."""

    def __init__(
        self, settings: Settings, candidates: list[Candidate], passes: Passes, listener: Listener, started: float
    ) -> None:
        self.settings = settings
        self.passes = passes
        self.listener = listener
        self.started = started
        several_losses = len({candidate.loss for candidate in candidates}) > 1
        self.by = settings.tune.by if settings.tune.by != "auto" else "error" if several_losses else "loss"
        self.memory = memory_for_solvers(settings)
        self.feed = Feed(settings, passes, listener.note, None, self.memory)
        self.all = candidates
        self.examples = 0
        self._begin()

    def _begin(self) -> None:
        self.contest = Contest(self.settings, self.all, self.memory)
        losses = [make_problem(self.settings, c.loss, c.l2, c.l1).loss for c in self.contest.candidates]
        self.holdout = Holdout(losses)
        self.standings: dict[Candidate, Standing] = {}
        self.examples = 0

    def learn(self) -> None:
        number, last = 1, self.settings.solver.passes
        self.listener.note(f"{len(self.contest.candidates)} candidates, all in one reading of the data")
        try:
            while number <= last:
                try:
                    self._pass(number)
                except StartOver:
                    self.contest.close()
                    self._begin()
                    continue
                if number < last:
                    self._retire(number)
                number += 1
            self.contest.finish()
        finally:
            self.contest.close()
        if not self.examples:
            raise DataError("there is no row to learn from")
        if all(standing.loss is None for standing in self.standings.values()):
            raise DivergedError("all candidates diverged: scale the features (--scale maxabs), or try larger --l2")

    def _pass(self, number: int) -> None:
        contest, holdout = self.contest, self.holdout
        contest.begin_pass(number)
        holdout.begin_pass()
        with closing(self.feed.visits(number)) as visits:
            for batch, order, held in visits:
                assert held is not None
                for piece in holdout.pieces(batch, order, held):
                    contest.learn(*piece)
                    self.examples += len(piece[1])
                    if holdout.full:
                        holdout.measure(contest.models())
                self.listener.progress(self._progress(number))
        contest.end_pass()
        holdout.measure(contest.models())
        for k, (candidate, figures) in enumerate(zip(contest.candidates, contest.figures(), strict=True)):
            self.standings[candidate] = Standing(number, *figures, *holdout.figures(k))
        if not holdout.examples and self.examples:
            every = self.settings.data.holdout
            raise DataError(f"fewer rows than data.holdout ({every}): nothing is held out to compare candidates with")

    def _retire(self, number: int) -> None:
        """The better half goes on."""
        count = len(self.contest.candidates)
        keep = sorted(self._order()[: -(-count // 2)])
        if len(keep) < count:
            self.contest.keep(keep)
            self.holdout.keep(keep)
            self.listener.note(f"pass {number}: the better {len(keep)} of {count} candidates go on")

    def _order(self) -> list[int]:
        """Places in the contest, best first; of equals the one with the larger penalty."""
        ranks = [self.standings[candidate].rank(self.by) for candidate in self.contest.candidates]
        places = range(len(ranks))
        return sorted(places, key=lambda k: (ranks[k], -self.contest.candidates[k].l1, -self.contest.candidates[k].l2))

    def _progress(self, number: int) -> Progress:
        """Of the candidate that is ahead so far."""
        figures = [(loss, error) for _, loss, error in self.contest.figures() if loss is not None]
        loss, error = min(figures, key=lambda pair: pair[0] or 0.0) if figures else (None, None)
        return Progress(
            pass_number=number,
            passes=self.settings.solver.passes,
            examples=self.examples,
            bytes=self.feed.bytes,
            features=self.feed.features,
            loss=loss,
            error=error,
            weight=0.0,
            seconds=time.perf_counter() - self.started,
            fraction=self.passes.fraction,
        )

    # After the last row.

    def outcome(self) -> tuple[Settings, Any, dict[str, Any]]:
        place = self._order()[0]
        best = self.contest.candidates[place]
        solver = self.contest.solver(place)
        settings = chosen(self.settings, best)
        model = make_model(settings, self.feed, self.passes, solver, solver.weights())
        return settings, model, self._result(best, solver)

    def _result(self, best: Candidate, solver: OnlineSolver) -> dict[str, Any]:
        standing = self.standings[best]
        return {
            "examples": self.examples,
            "passes": self.settings.solver.passes,
            "features": self.feed.features,
            "dim": solver.width,
            "seconds": time.perf_counter() - self.started,
            "solver": best.solver,
            "loss_kind": best.loss,
            "l2": best.l2,
            "l1": best.l1,
            **standing._asdict(),
            "by": self.by,
            "holdout": self.settings.data.holdout,
            "held_out_examples": self.holdout.examples,
            "candidates": [
                {"solver": c.solver, "loss_kind": c.loss, "l2": c.l2, "l1": c.l1}
                | self.standings[c]._asdict()
                | {"best": c == best}
                for c in self.all
            ],
            "bad_rows": self.passes.stream.tally.bad_rows,
            "model": None,
        }
