"""A run with a solver that learns row by row: what feeds it, what is told about it, and what comes of it."""

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Batch, Float32s, Int64s
from streamsvm.checkpoint import Tree
from streamsvm.config import Settings
from streamsvm.errors import DataError, DivergedError
from streamsvm.features.autoscale import AutoScaling
from streamsvm.features.scaling import Scaling
from streamsvm.feed import Visit
from streamsvm.holdout import Holdout
from streamsvm.judging import once, wanted
from streamsvm.mapping import supports_of
from streamsvm.model import Model
from streamsvm.progress import Progress
from streamsvm.progressive import Progressive
from streamsvm.report.recording import Recording
from streamsvm.runs import OnlineRun, make_online, make_problem
from streamsvm.score_sample import ScoreSample
from streamsvm.scoring import Offset, losses_of, score_rows
from streamsvm.solvers import OnlineSolver
from streamsvm.solvers.base import LOSS, SEEN, UNIT, WEIGHT, WRONG, T, row_order


class Best(NamedTuple):
    """The weights of the pass with the smallest loss on held-out rows, and that loss and error."""

    number: int
    loss: float
    error: float
    weights: Float32s
    bias: Offset


def solver_options(settings: Settings, initial: Model | None = None) -> dict[str, Any]:
    """The solver's own settings, as its constructor takes them."""
    options: dict[str, Any] = settings.solver.model_dump(exclude={"name", "passes", "init", "early_stop", "revisit"})
    if options.get("eta0") == "auto":
        options["eta0"] = initial.online.get("eta0") if initial else None
    return options


class TrainingRun(OnlineRun):
    """One training run: a solver, and what is told about it."""

    def __init__(self, settings: Settings, *others: Any) -> None:
        super().__init__(settings, *others)
        self.best: Best | None = None
        self.held_out: list[dict[str, float]] = []  # loss and error on held-out rows after each pass
        self.best_sample: ScoreSample | None = None  # of held-out rows, by the weights of that pass
        self.passes_done = 0
        self.objective: float | None = None
        self._told = False

    def start(self) -> None:
        self.solver = self._watched(self._new_solver(), self.listener.note)
        self.holdout = self.new_holdout()
        self._told = False

    def new_holdout(self) -> Holdout:
        many, held = self.feed.classes.many, self.settings.data.holdout
        samples = [ScoreSample(many=many)] if held and wanted(self.settings) else None
        return Holdout([self.solver.problem.loss], self.rule, samples)

    def _watched(self, solver: OnlineSolver, note: Callable[[str], None]) -> OnlineSolver:
        """The solver, with someone who sees rows before they are learned, where the model is judged by these."""
        if not self.settings.data.holdout and wanted(self.settings) and once(self.settings):
            solver.watch = Progressive(many=self.feed.classes.many)
        return solver

    def _new_solver(self) -> OnlineSolver:
        settings = self.settings
        problem = make_problem(settings, settings.loss, self.feed.l2(), settings.penalty.l1 or 0.0)
        options = solver_options(settings, self.initial)
        make = partial(make_online, settings, self.feed, settings.solver.name, problem, **options)
        memory = self._share(make().bytes_for(1))
        solver = make(dim=self.feed.width, memory=memory)
        solver.revisit = settings.solver.passes == 1 and getattr(settings.solver, "revisit", False)
        if self.initial is not None:
            self._continue_from(self.initial, solver)
        return solver

    def _share(self, solver_bytes: int) -> int:
        """The solver's part of the memory, when other things have as many entries as it has weights."""
        others = self.feed.scaling.bytes_for(1) if self.feed.scaling is not None else 0
        others += 4 if self.settings.solver.early_stop else 0
        left = max(self.memory - self.feed.map_bytes, 1 << 20)
        return left * solver_bytes // (solver_bytes + others)

    def _continue_from(self, model: Model, solver: OnlineSolver) -> None:
        self.refuse_other_features(model)
        if solver.supports() is not None:
            learner: Any = solver
            learner.start_from(model.weights, model.bias, supports_of(self.settings, model))
        else:
            scaling = self.feed.scaling
            if isinstance(scaling, AutoScaling):
                solver.start_from(*scaling.unfold(model.weights, model.bias))
            else:
                solver.start_from(model.learned_weights() if scaling is not None else model.weights, model.bias)
        solver.scalars[T] = float(model.online.get("t", 0.0))
        solver.scalars[UNIT] = float(model.online.get("unit", 1.0))

    # The passes.

    def learn(self) -> None:
        self.learn_passes()
        if self._stalled and self.best is not None:
            self.listener.note(
                f"stopped after pass {self.passes_done}: the loss on held-out rows was least in pass "
                f"{self.best.number}, whose weights are kept"
            )
        self.solver.finish()
        self.report_bad_rows()
        if self.solver.scalars[SEEN] == 0:
            raise DataError("there is no row to learn from")
        self._measure_objective()

    @property
    def unfinished(self) -> bool:
        return super().unfinished and not self._stalled

    @property
    def _stalled(self) -> bool:
        patience = self.settings.solver.early_stop
        return bool(patience) and self.best is not None and self.passes_done - self.best.number >= (patience or 0)

    def begin_pass(self) -> None:
        self.solver.begin_pass(self.number)
        self.holdout.begin_pass()

    def learn_visit(self, visit: Visit) -> None:
        solver, (batch, order, held) = self.solver, visit
        solver.admit(len(self.feed.classes.names))
        try:
            if held is None:
                self._learn(batch, order)
            else:
                for piece in self.holdout.pieces(batch, order, held):
                    self._learn(*piece)
                    if self.holdout.full:
                        self.holdout.measure([solver.scores])
        except DivergedError as error:
            raise DivergedError(f"{self.passes.stream.tally.origin.url}: {error}") from error
        self._tell_step_size()

    def _learn(self, batch: Batch, order: Int64s | None) -> None:
        """Learn rows; where a report is wanted in pieces, which changes nothing but how often it has a look."""
        solver, listener = self.solver, self.listener
        if not isinstance(listener, Recording):
            solver.learn(batch, order)
            return
        rows, start = row_order(batch, order), 0
        while start < len(rows):
            seen = int(solver.scalars[SEEN])
            stop = min(start + listener.next_look(seen) - seen, len(rows))
            solver.learn(batch, rows[start:stop])
            listener.keep(self.progress())
            start = stop

    def end_pass(self) -> None:
        self.solver.end_pass()
        self.passes_done = self.number
        if isinstance(self.listener, Recording):
            self.listener.keep(self.progress())
        self._tell_step_size()
        self._look_at_held_out(self.number)

    def _look_at_held_out(self, number: int) -> None:
        if not self.settings.data.holdout:
            return
        self.measure_held_out()
        loss, error = self.holdout.figures()
        if loss is None or error is None:
            self.listener.note("warning: no row is held out; data.holdout is larger than the number of rows")
            return
        self.listener.note(
            f"pass {number}: loss {loss:.5f}, error {100 * error:.2f} % on {self.holdout.examples:,} held-out rows"
        )
        self.held_out.append({"pass": number, "loss": loss, "error": error})
        if self.best is None or loss < self.best.loss or not self.settings.solver.early_stop:
            if self.holdout.samples and self.settings.solver.early_stop:
                self.best_sample = self.holdout.samples[0].newest(self.holdout.examples)
            kept = self.solver.weights() if self.settings.solver.early_stop else (self.solver.vector[:0], 0.0)
            self.best = Best(number, loss, error, *kept)

    def measure_held_out(self) -> None:
        """At the end of a pass: have the held-out rows scored, or those that still wait."""
        self.holdout.measure([self.solver.scores])

    def _measure_objective(self) -> None:
        """The objective over all rows that were learned, if asked for: one more reading."""
        if not self.settings.run.objective:
            return
        if not self.feed.fixed_weights:
            self.listener.note("warning: no objective: with running class weights a row has no fixed weight")
            return
        kept, solver = self._kept(), self.solver
        scores = solver.scorer() if kept is None else partial(score_rows, weights=kept[0], bias=kept[1])
        total = weight = 0.0
        with closing(self.feed.visits(self.passes_done + 1)) as visits:
            for batch, _, held in chain.from_iterable(map(self.feed.mapped_visits, visits)):
                rows = batch if held is None else batch._replace(weights=batch.weights * ~held)
                loss, c, _ = losses_of(scores(rows), rows, solver.problem.loss, self.rule)
                total, weight = total + loss, weight + c
        mean = total / weight
        self.objective = solver.objective(mean) if kept is None else solver.problem.objective(*kept, mean)

    def finished(self) -> tuple[OnlineSolver, Scaling | AutoScaling | None]:
        """A copy of the solver that has learned the rows that wait: to be scaled or scored, or for a step size."""
        copy = self._watched(self._new_solver(), lambda text: None)
        copy.restore(self.solver.state())
        copy.admit(len(self.feed.classes.names))
        visit, scaling = self.feed.settled()
        if visit is not None:
            held = np.zeros(visit.batch.rows, np.bool_) if visit.held is None else visit.held
            copy.learn(visit.batch, np.flatnonzero(~held))
        copy.end_pass()
        return copy, scaling

    # What is told.

    def _tell_step_size(self) -> None:
        if not self._told and self.solver.step_size is not None:
            self._told = True
            known = self.initial is not None and self.initial.online.get("eta0") is not None
            chosen = getattr(self.settings.solver, "eta0", None) == "auto" and not known
            how = "chosen by trial on the first rows" if chosen else "as given"
            self.listener.note(f"step size eta0 = {self.solver.step_size:g}, {how}")

    def progress(self) -> Progress:
        scalars = self.solver.scalars
        weight = float(scalars[WEIGHT])
        return Progress(
            pass_number=self.number,
            passes=self.settings.solver.passes,
            examples=int(scalars[SEEN]),
            bytes=self.feed.bytes,
            features=self.feed.features,
            loss=float(scalars[LOSS]) / weight if weight else None,
            error=float(scalars[WRONG]) / weight if weight else None,
            weight=weight,
            seconds=time.perf_counter() - self.started,
            fraction=self.passes.fraction,
        )

    # Going on later.

    def state(self) -> Tree:
        state: Tree = {
            "passes_done": self.passes_done,
            "told": self._told,
            "solver": self.solver.state(),
            "holdout": self.holdout.state(),
            "held_out": self.held_out.copy(),
        }
        if self.best is not None:
            state["best"] = {**self.best._asdict(), "weights": self.best.weights.copy()}
        if self.best_sample is not None:
            state["best_sample"] = self.best_sample.state()
        return state

    def restore(self, state: Tree) -> None:
        self.passes_done, self._told = state["passes_done"], state["told"]
        self.held_out = list(state["held_out"])
        if "watch" not in state["solver"]:
            self.solver.watch = None
        elif self.solver.watch is None:  # rows may wait there to be learned, whatever is wanted now
            self.solver.watch = Progressive(many=self.feed.classes.many)
        self.solver.restore(state["solver"])
        self.holdout.restore(state["holdout"])
        if "best" in state:
            self.best = Best(**{**state["best"], "weights": np.array(state["best"]["weights"])})
        if "best_sample" in state:
            self.best_sample = ScoreSample()
            self.best_sample.restore(state["best_sample"])

    # After the last row.

    def _kept(self) -> tuple[Float32s, Offset] | None:
        """The weights of the best pass, if they are wanted."""
        if self.best is None or not self.settings.solver.early_stop:
            return None
        return self.best.weights, self.best.bias

    def _weights(self) -> tuple[Float32s, Offset]:
        kept = self._kept()
        return self.solver.weights() if kept is None else kept

    def _bound(self) -> float | None:
        """The lower bound of the objective that some solvers know after whole passes."""
        return self.solver.lower_bound() if self.feed.fixed_weights else None

    def _gap(self) -> float | None:
        bound = self._bound() if self.objective is not None else None
        if bound is None or self.objective is None:
            return None
        return (self.objective - bound) / self.objective if self.objective > 0.0 else 0.0

    def judged(self) -> ScoreSample | None:
        """Scores of rows that were not learned when they were scored, with classes as the model has them."""
        sample = self.holdout.samples[0] if self.holdout.samples else None
        if self.best_sample is not None:
            sample = self.best_sample
        if isinstance(self.solver.watch, Progressive):
            sample = self.solver.watch.recent()
        return self.to_judge_by(sample)

    def model(self) -> Model:
        model = self.model_of(self.settings, self.solver, self._weights())
        model.provenance |= {"passes": self.passes_done, "objective": self.objective, "gap": self._gap()}
        return model

    def result(self) -> dict[str, Any]:
        final = self.progress()
        return {
            "examples": final.examples,
            "passes": self.passes_done,
            "features": final.features,
            "dim": self.solver.weight_count,
            "seconds": final.seconds,
            "loss": final.loss,
            "error": final.error,
            "objective": self.objective,
            "dual": self._bound(),
            "gap": self._gap(),
            "solver": self.solver.name,
            "l2": self.solver.problem.l2,
            "l1": self.solver.problem.penalty.l1,
            "eta0": self.solver.step_size,
            "zeros": int((self._weights()[0] == 0.0).sum()) if self.solver.problem.penalty.l1 else None,
            "holdout": self._held_out(),
            "bad_rows": self.passes.stream.tally.bad_rows,
            "model": None,
        }

    def _held_out(self) -> dict[str, Any] | None:
        if self.best is None:
            return None
        return {
            "every": self.settings.data.holdout,
            "examples": self.holdout.examples,
            "loss": self.best.loss,
            "error": self.best.error,
            "pass": self.best.number,
            "by_pass": self.held_out,
        }
