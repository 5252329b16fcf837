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
from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Batch, Int64s
from streamsvm.checkpoint import Checkpoints, Tree
from streamsvm.config import SOLVER_SETTINGS, PenaltySettings, Settings
from streamsvm.errors import ConfigError, DataError, DivergedError
from streamsvm.feed import Feed, Visit
from streamsvm.holdout import Holdout, Scores
from streamsvm.judging import judge, wanted
from streamsvm.model import Model
from streamsvm.online_training import solver_options
from streamsvm.passes import Passes
from streamsvm.progress import Listener, Progress, Silent
from streamsvm.report.writing import recorded
from streamsvm.runs import OnlineRun, make_online, make_problem
from streamsvm.score_sample import ScoreSample
from streamsvm.solvers import SOLVERS, OnlineSolver, make_solver
from streamsvm.solvers.base import LOSS, WEIGHT, WRONG
from streamsvm.solvers.side_by_side import SideBySide
from streamsvm.training import Outcome, checkpointed, finish

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
    """Try every candidate that `settings.tune` describes, save the best model, evaluate it on the test data.

    With `settings.checkpoint` a search that was killed can go on later, as `train` can.

    >>> from streamsvm import load_settings, tune
    >>> given = {"data.train": "examples/data/a9a.train.svm.gz", "output.model": None, "tune.candidates": 4}
    >>> model, result = tune(load_settings(overrides=given))
    >>> len(result["candidates"]), result["l2"] in [candidate["l2"] for candidate in result["candidates"]]
    (4, True)
    """
    settings.refuse_cluster("tune")
    if not settings.data.holdout:
        settings = settings.model_copy(update={"data": settings.data.model_copy(update={"holdout": DEFAULT_HOLDOUT})})
    candidates = candidates_of(settings)
    listener = recorded(settings, listener)
    with checkpointed(settings, "tune", listener) as (passes, checkpoints):
        run = _Tuning(settings, candidates, passes, checkpoints, listener, time.perf_counter())
        run.learn()
    chosen_settings, model, result, sample = run.outcome()
    return finish("tune", chosen_settings, model, result, passes.stream, listener, sample)


def candidates_of(settings: Settings) -> list[Candidate]:
    """All combinations; ConfigError if a solver cannot minimise one of the penalties."""
    tuned, penalty = settings.tune, settings.penalty
    if tuned.solver is None and settings.solver.name not in SOLVERS:
        raise ConfigError(
            f"solver {settings.solver.name} cannot be tuned side by side: use train --path, or --solver with one of "
            f"{', '.join(SOLVERS)}"
        )
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
        if settings.multiclass_rule not in SOLVER_SETTINGS[candidate.solver].rules:
            raise ConfigError(f"multiclass: solver {candidate.solver} cannot learn by {settings.multiclass_rule}")
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
        solver = SOLVER_SETTINGS[candidate.solver](passes=solver.passes)
    return settings.model_copy(update={"penalty": penalty, "loss": candidate.loss, "solver": solver})


class Single:
    """A candidate that shares no kernel with others."""

    def __init__(self, solver: OnlineSolver) -> None:
        self._solver = solver
        self.candidates = 1
        self.diverged = False

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
    """All candidates that still take part, in groups that share a kernel."""

    def __init__(
        self, settings: Settings, feed: Feed, candidates: Sequence[Candidate], memory: int, dim: int = 0
    ) -> None:
        self._settings = settings
        self._feed = feed
        self._plan = _grouped(candidates) if not feed.classes.many else [[candidate] for candidate in candidates]
        self.candidates = [candidate for group in self._plan for candidate in group]
        self._kept = list(range(len(self.candidates)))  # which of all candidates these are
        bytes_each = [self._group(group).bytes_for(1) for group in self._plan]
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


class _Tuning(OnlineRun):
    """One search: the contest, and what is told about it."""

    def __init__(
        self,
        settings: Settings,
        candidates: list[Candidate],
        passes: Passes,
        checkpoints: Checkpoints,
        listener: Listener,
        started: float,
    ) -> None:
        super().__init__(settings, passes, checkpoints, listener, started)
        several_losses = len({candidate.loss for candidate in candidates}) > 1
        self.by = settings.tune.by if settings.tune.by != "auto" else "error" if several_losses else "loss"
        self.all = candidates
        self.contest = Contest(settings, self.feed, candidates, self.memory, self.feed.width)

    def start(self) -> None:
        self.contest.close()
        self.contest = Contest(self.settings, self.feed, self.all, self.memory, self.feed.width)
        self.holdout = self._new_holdout()
        self.standings: dict[Candidate, Standing] = {}
        self.examples = 0

    def _new_holdout(self) -> Holdout:
        candidates = self.contest.candidates
        losses = [make_problem(self.settings, c.loss, c.l2, c.l1).loss for c in candidates]
        samples = [ScoreSample(many=self.feed.classes.many) for _ in candidates]
        return Holdout(
            losses, self.rule, samples if any(wanted(chosen(self.settings, c)) for c in candidates) else None
        )

    def learn(self) -> None:
        self.listener.note(f"{len(self.all)} candidates, all in one reading of the data")
        try:
            self.learn_passes()
            self.contest.finish()
        finally:
            self.contest.close()
        if not self.examples:
            raise DataError("there is no row to learn from")
        if all(standing.loss is None for standing in self.standings.values()):
            raise DivergedError("all candidates diverged: scale the features (--scale maxabs), or try larger --l2")

    def begin_pass(self) -> None:
        self.contest.begin_pass(self.number)
        self.holdout.begin_pass()

    def learn_visit(self, visit: Visit) -> None:
        batch, order, held = visit
        assert held is not None
        self.contest.admit(len(self.feed.classes.names))
        for piece in self.holdout.pieces(batch, order, held):
            self.contest.learn(*piece)
            self.examples += len(piece[1])
            if self.holdout.full:
                self.holdout.measure(self.contest.models())

    def end_pass(self) -> None:
        contest, holdout = self.contest, self.holdout
        contest.end_pass()
        holdout.measure(contest.models())
        for k, (candidate, figures) in enumerate(zip(contest.candidates, contest.figures(), strict=True)):
            self.standings[candidate] = Standing(self.number, *figures, *holdout.figures(k))
        if not holdout.examples and self.examples:
            every = self.settings.data.holdout
            raise DataError(f"fewer rows than data.holdout ({every}): nothing is held out to compare candidates with")
        if self.number < self.settings.solver.passes:
            self._retire(self.number)

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

    def progress(self) -> Progress:
        """Of the candidate that is ahead so far."""
        figures = [(loss, error) for _, loss, error in self.contest.figures() if loss is not None]
        loss, error = min(figures, key=lambda pair: pair[0] or 0.0) if figures else (None, None)
        return Progress(
            pass_number=self.number,
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

    # Going on later.

    def model(self) -> Model:
        """Of the candidate that is ahead so far."""
        losses = [math.inf if loss is None else loss for _, loss, _ in self.contest.figures()]
        places = [k for k, alive in enumerate(self.contest.alive) if alive]
        return self._model(min(places, key=lambda k: losses[k])) if places else self.nothing_learned()

    def _model(self, place: int) -> Model:
        settings, solver = chosen(self.settings, self.contest.candidates[place]), self.contest.solver(place)
        return self.model_of(settings, solver, solver.weights())

    def state(self) -> Tree:
        places = {candidate: k for k, candidate in enumerate(self.all)}
        return {
            "examples": self.examples,
            "standings": [[places[candidate], *standing] for candidate, standing in self.standings.items()],
            "contest": self.contest.state(),
            "holdout": self.holdout.state(),
        }

    def restore(self, state: Tree) -> None:
        self.examples = state["examples"]
        self.standings = {self.all[k]: Standing(*figures) for k, *figures in state["standings"]}
        self.contest.restore(state["contest"])
        self.holdout = self._new_holdout()
        self.holdout.restore(state["holdout"])

    # After the last row.

    def outcome(self) -> tuple[Settings, Model, dict[str, Any], ScoreSample | None]:
        place = self._order()[0]
        best, model = self.contest.candidates[place], self._model(place)
        settings, samples = chosen(self.settings, best), self.holdout.samples
        sample = self.to_judge_by(samples[place]) if samples else None
        judge(model, sample, settings, self.listener.note)
        return settings, model, self._result(best, model.dim), sample

    def _result(self, best: Candidate, dim: int) -> dict[str, Any]:
        standing = self.standings[best]
        return {
            "examples": self.examples,
            "passes": self.settings.solver.passes,
            "features": self.feed.features,
            "dim": dim,
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
