"""A run with many candidates: the contest, what decides it, and what is told about it.

Every n-th row is held out and decides. With several passes the worse half retires after each (successive halving).
"""

import math
import time
from typing import Any, NamedTuple

from streamsvm.checkpoint import Checkpoints, Tree
from streamsvm.config import Settings
from streamsvm.contest import Candidate, Contest, chosen
from streamsvm.errors import DataError, DivergedError
from streamsvm.feed import Visit
from streamsvm.holdout import Holdout
from streamsvm.judging import judge, wanted
from streamsvm.model import Model
from streamsvm.passes import Passes
from streamsvm.progress import Listener, Progress
from streamsvm.runs import OnlineRun, make_problem
from streamsvm.score_sample import ScoreSample


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


class TuningRun(OnlineRun):
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
        self.contest = self.new_contest()

    def new_contest(self) -> Contest:
        """All candidates, before the first row."""
        return Contest(self.settings, self.feed, self.all, self.memory, self.feed.width)

    def start(self) -> None:
        self.contest.close()
        self.contest = self.new_contest()
        self.holdout = self.new_holdout()
        self.standings: dict[Candidate, Standing] = {}
        self.examples = 0

    def new_holdout(self) -> Holdout:
        """What measures the candidates that still take part."""
        candidates = self.contest.candidates
        samples = [ScoreSample(many=self.feed.classes.many) for _ in candidates] if self.keeps_scores else None
        return Holdout([make_problem(self.settings, c.loss, c.l2, c.l1).loss for c in candidates], self.rule, samples)

    @property
    def keeps_scores(self) -> bool:
        """Whether scores of held-out rows are of use for some of the candidates."""
        return any(wanted(chosen(self.settings, candidate)) for candidate in self.all)

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
        self.measure_held_out()
        for k, (candidate, figures) in enumerate(zip(contest.candidates, contest.figures(), strict=True)):
            self.standings[candidate] = Standing(self.number, *figures, *holdout.figures(k))
        if not holdout.examples and self.examples:
            every = self.settings.data.holdout
            raise DataError(f"fewer rows than data.holdout ({every}): nothing is held out to compare candidates with")
        if self.number < self.settings.solver.passes:
            self._retire(self.number)

    def measure_held_out(self) -> None:
        """At the end of a pass: have the held-out rows scored that still wait."""
        self.holdout.measure(self.contest.models())

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
        self.holdout = self.new_holdout()
        self.holdout.restore(state["holdout"])

    # After the last row.

    def outcome(self) -> tuple[Settings, Model, dict[str, Any], ScoreSample | None]:
        place = self._order()[0]
        best, model = self.contest.candidates[place], self._model(place)
        settings, sample = chosen(self.settings, best), self.to_judge_by(self.sample_of(place))
        judge(model, sample, settings, self.listener.note)
        return settings, model, self._result(best, model.dim), sample

    def sample_of(self, place: int) -> ScoreSample | None:
        """Scores of the held-out rows by a candidate, if they are of use."""
        return self.holdout.samples[place] if self.holdout.samples else None

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
