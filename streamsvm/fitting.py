"""A run with a solver that goes over all rows again and again, until the optimum is proven to be close.

    source --> cache --> groups --> solver, for one penalty or for several, each from where the one before ended

The cache is filled before anything is learned: then the number of rows, the classes and all weights are known.
"""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streamsvm import interrupts
from streamsvm.batch import Batch, Float32s
from streamsvm.cached_groups import CachedGroups
from streamsvm.checkpoint import Tree
from streamsvm.config import Settings
from streamsvm.errors import ConfigError, DataError
from streamsvm.fold_groups import FoldGroups
from streamsvm.groups import Groups
from streamsvm.holdout import Holdout
from streamsvm.judging import cross_fitted, wanted
from streamsvm.losses import smooth
from streamsvm.model import Model
from streamsvm.passes import held_rows
from streamsvm.progress import Progress
from streamsvm.reading import make_reading, memory_for_batch_solver
from streamsvm.runs import Run, make_problem
from streamsvm.score_sample import ScoreSample
from streamsvm.scoring import Offset, score_rows
from streamsvm.solvers import BATCH_SOLVERS, class_weight_bytes, make_batch_solver, make_class_solver
from streamsvm.solvers.base import Problem, row_order, weighty
from streamsvm.solvers.batch import BatchSolver, Figures, Limits, Surroundings

if TYPE_CHECKING:
    from streamsvm.features.maps.base import RowMap

FEW_FEATURES = 1000  # with fewer, and
MANY_ROWS = 20  # times as many rows, newton is the quicker one
PER_DECADE = 2  # penalties of a path
FOLDS = 5  # of the rows, of which one at a time is left out to be scored
ENOUGH_ROWS, ENOUGH_FOR_CLASS = 20_000, 500  # that are scored, and for each class; fewer folds will do for that


class Step(NamedTuple):
    """What came of one penalty."""

    l2: float
    passes: int
    objective: float
    dual: float | None
    gap: float | None
    loss: float
    error: float
    held_out_loss: float | None
    held_out_error: float | None


class Best(NamedTuple):
    """The weights to keep, and which step they are of."""

    number: int
    weights: Float32s
    bias: Offset


class Facts(NamedTuple):
    """What a result tells of the data and of who learned from it."""

    solver: str
    rows: int
    features: int
    width: int
    weight: float
    penalties: int


def ready_groups(raw: CachedGroups, map: "RowMap | None", tick: Callable[[int], None]) -> Groups:
    """The groups, mapped where there is a map."""
    if map is None:
        return raw
    from streamsvm.mapped_groups import MappedGroups

    return MappedGroups(raw, map, tick)


def held_out_rows(groups: Any, number: int) -> Batch:
    """The held-out rows of a group, without the others."""
    rows = groups.held_out(number)
    return weighty(rows, row_order(rows, None))


class Fitting(Run):
    """One run: a solver, and what is told about it."""

    needs_cache = starts_with_rows = True

    def __init__(self, settings: Settings, *others: Any) -> None:
        super().__init__(settings, *others)
        self.solver: BatchSolver | None = None  # before all rows are known, and after a run that had learned all
        self.facts: Facts | None = None
        self.steps: list[Step] = []  # that are done
        self.best: Best | None = None
        self.rows_read = 0
        self.sample: ScoreSample | None = None  # scores of the held-out rows, by the weights that are kept
        self._going_on = False  # whether the solver stands where a checkpoint was taken

    # Before the first pass.

    def start(self) -> None:
        self.groups = self.new_groups()
        self.l2s = self._penalties()
        name = self._solver_name()
        self.solver = self._make_solver(name, self.groups, self.l2s[0], self._read, self._told)
        groups = self.groups
        features = int(groups.features.sum())
        self.facts = Facts(name, groups.rows, features, groups.width, groups.weight, len(self.l2s))
        self.listener.note(f"{name}: {self.solver.described()}")

    def new_groups(self) -> Groups:
        """All rows, mapped where there is a map."""
        width, threads = self.passes.stream.features.width, make_reading(self.settings).workers
        raw = CachedGroups(self.feed, self.passes, dim=width, threads=threads, tick=self._survey)
        raw.refuse_if_empty()
        return ready_groups(raw, self.feed.map, self._survey)

    def _make_solver(
        self,
        name: str,
        groups: Groups,
        l2: float,
        tick: Callable[[int], None],
        tell: Callable[[Figures], None] = lambda figures: None,
    ) -> BatchSolver:
        settings = self.settings
        classes = len(self.feed.classes.names) if self.feed.classes.many else 0
        memory = memory_for_batch_solver(settings, groups.rows, groups.width, classes)
        memory -= self.feed.scaling.bytes_for(groups.width) if self.feed.scaling is not None else 0
        memory = max(memory - self.feed.map_bytes, 1 << 20)
        self._refuse_if_too_wide(name, memory, classes)
        around = Surroundings(
            memory=memory,
            seed=settings.run.seed,
            limits=Limits(settings.solver.tol, settings.solver.passes, settings.solver.time),  # type: ignore[union-attr]
            tick=tick,
            tell=tell,
            note=self.listener.note,
            started=self.started,
        )
        return self.new_solver(name, make_problem(settings, settings.loss, l2, 0.0), groups, around, classes)

    def new_solver(
        self, name: str, problem: Problem, groups: Groups, around: Surroundings, classes: int
    ) -> BatchSolver:
        """The solver of that name, for so many classes if there are more than two, else 0."""
        if classes:
            return make_class_solver(self.rule, problem, groups, around, classes)
        options = self.settings.solver.model_dump(exclude={"name", "passes", "init", "tol", "time"})
        return make_batch_solver(name, problem, groups, around, **options)

    def _penalties(self) -> list[float]:
        """The values of l2, from the largest on: small weights are learned soonest, and are a good place to begin."""
        path = self.settings.penalty.path
        if path is None:
            return [self.feed.l2()]
        if not isinstance(path, str):
            return sorted(path, reverse=True)
        low, high = (float(end) for end in path.split(".."))
        count = max(2, round(PER_DECADE * math.log10(high / low)) + 1)
        return [float(f"{value:.3g}") for value in np.geomspace(high, low, count)]

    def _solver_name(self) -> str:
        settings, groups = self.settings, self.groups
        if self.feed.classes.many and settings.solver.name not in ("dcd", "auto"):
            count = len(self.feed.classes.names)
            raise ConfigError(
                f"solver {settings.solver.name} cannot learn more than two classes, and there are {count}: use dcd, or "
                "an online solver such as asgd"
            )
        if settings.solver.name != "auto":
            return settings.solver.name
        size = f"{groups.rows:,} rows with {groups.width:,} features"
        if self.feed.classes.many:
            name, why = "dcd", f"there are {len(self.feed.classes.names)} classes"
        elif settings.bias.kind == "free":
            name, why = "newton", "it can have a free bias"
        elif smooth(settings.loss) and groups.width <= FEW_FEATURES and groups.rows >= MANY_ROWS * groups.width:
            name, why = "newton", f"{size} are many rows and few features"
        elif smooth(settings.loss):
            name, why = "dcd", f"{size} are too many features for newton, or too few rows"
        else:
            name, why = "dcd", f"loss {settings.loss} is not smooth"
        self.listener.note(f"solver {name}, because {why}")
        return name

    def _refuse_if_too_wide(self, name: str, memory: int, classes: int) -> None:
        """ConfigError or DataError, before anything is allocated, if the weights alone exceed the budget."""
        each = class_weight_bytes(classes) if classes else BATCH_SOLVERS[name].weight_bytes
        if each * self.groups.width <= memory:
            return
        bits = max(1, (memory // each).bit_length() - 1)
        needed, given = each * self.groups.width / 1e6, self.feed.width
        cause = f"{given} weights" if given else f"index {self.groups.width - 1}"
        cause += f" for each of {classes} classes" if classes else ""
        raise (ConfigError if given else DataError)(
            f"{cause}: solver {name} would need {needed:,.0f} MB, but the memory budget leaves {memory / 1e6:,.0f} MB; "
            f"set features.hash_bits: {bits} (--hash-bits {bits}), or raise --memory"
        )

    # The passes.

    def learn(self) -> None:
        self.learn_passes()
        self.report_bad_rows()
        for step in self.steps:
            if step.gap is not None and step.gap > self._tol:
                of = f" with l2 {step.l2:g}" if len(self.steps) > 1 else ""
                self.listener.note(
                    f"warning: stopped after {step.passes} passes{of} at a gap of {step.gap:.2g}, above the tolerance "
                    f"of {self._tol:g}; more passes or time, or scaled features, may help"
                )

    @property
    def _tol(self) -> float:
        return float(self.settings.solver.tol)  # type: ignore[union-attr]

    @property
    def unfinished(self) -> bool:
        return self._steps_left or (self.sample is None and cross_fitted(self.settings))

    @property
    def _steps_left(self) -> bool:
        return self.facts is None or len(self.steps) < self.facts.penalties

    @property
    def preparing(self) -> bool:
        return super().preparing or self.facts is None

    def make_passes(self) -> None:
        assert self.solver is not None
        if self.initial is not None and not self._going_on and self._steps_left:
            self.refuse_other_features(self.initial)
            self.solver.start_from(self.initial.learned_weights(), self.initial.bias)
        while self._steps_left:
            l2 = self.l2s[len(self.steps)]
            if l2 != self.solver.problem.l2:
                self.solver.with_penalty(l2)
            self.solver.learn()
            self._end_step()
        if self.unfinished:
            self.solver = None  # its memory is wanted again
            self.sample = self._left_out_scores()

    def _left_out_scores(self) -> ScoreSample:
        """Learn again without a part of the rows, from where the best weights are, and score those; and so on."""
        assert self.best is not None and self.facts is not None
        sample = ScoreSample(many=self.feed.classes.many)
        wanted = max(ENOUGH_ROWS, ENOUGH_FOR_CLASS * len(self.feed.classes.names))
        folds = min(FOLDS, -(-wanted * FOLDS // max(self.groups.rows, 1)))
        self.listener.note(f"learning again {folds} times, each time without a fifth of the rows, to judge by those")
        for fold in range(folds):
            groups = FoldGroups(self.groups, fold, FOLDS)
            solver = self._make_solver(self.facts.solver, groups, self.steps[self.best.number].l2, self._survey)
            solver.start_from(self.best.weights, self.best.bias)
            solver.learn()
            weights, bias = solver.weights()
            for number in range(groups.count):
                rows = groups.left_out(number)
                sample.add(score_rows(rows, weights, bias), rows.labels, rows.weights)
                self._survey(rows.rows)
        return sample

    def _end_step(self) -> None:
        solver = self.solver
        assert solver is not None and solver.figures is not None
        weights, bias = solver.weights()
        loss, error, sample = self._held_out(weights, bias)
        figures = solver.figures
        step = Step(
            solver.problem.l2, solver.passes, figures.objective, figures.dual, figures.gap, figures.loss, figures.error,
            loss, error,
        )  # fmt: skip
        least = min((old.held_out_loss for old in self.steps if old.held_out_loss is not None), default=math.inf)
        if self.best is None or (loss is not None and loss < least):
            self.best, self.sample = Best(len(self.steps), weights, bias), sample
        self.steps.append(step)
        if len(self.l2s) > 1:
            said = f"l2 {step.l2:g}: objective {step.objective:.6g}, {step.passes} passes"
            said += f", gap {max(step.gap, 0.0):.2g}" if step.gap is not None else ""
            if loss is not None and error is not None:
                said += f"; held out: loss {loss:.5f}, error {100 * error:.2f} %"
            self.listener.note(said)

    def _held_out(self, weights: Float32s, bias: Offset) -> tuple[float | None, float | None, ScoreSample | None]:
        """Loss and error of the rows that were not learned, and their scores, as far as they are of use."""
        if not self.settings.data.holdout:
            return None, None, None
        problem = make_problem(self.settings, self.settings.loss, 1.0, 0.0)
        samples = [ScoreSample(many=self.feed.classes.many)] if wanted(self.settings) else None
        holdout = Holdout([problem.loss], self.rule, samples)
        self.measure_held_out(holdout, weights, bias)
        loss, error = holdout.figures()
        if loss is None:
            self.listener.note("warning: no row is held out; data.holdout is larger than the number of rows")
            return None, None, None
        return loss, error, samples[0] if samples else None

    def measure_held_out(self, holdout: Holdout, weights: Float32s, bias: Offset) -> None:
        """Have all held-out rows scored by these weights."""
        scores = partial(score_rows, weights=weights, bias=bias)
        for number in range(self.groups.count):
            holdout.measure_rows(held_out_rows(self.groups, number), [scores])
            self._read(0)

    # What is told.

    def _survey(self, rows: int) -> None:
        interrupts.check()

    def _read(self, rows: int) -> None:
        interrupts.check()
        self.rows_read += rows
        if self.solver is not None:
            self.number = max(1, self._passes_made + self.solver.passes)
            self.listener.progress(self.progress())
            self._tick(rows)

    def _told(self, figures: Figures) -> None:
        self.listener.progress(self.progress())

    def progress(self) -> Progress:
        assert self.facts is not None
        known = self.solver.figures if self.solver is not None else self._known()
        rows = self.rows_by_now()
        share = rows / max(self.facts.rows, 1)
        return Progress(
            pass_number=self._passes_made + (self.solver.passes if self.solver is not None and self._steps_left else 0),
            passes=self.settings.solver.passes,
            examples=rows,
            bytes=int(share * 8 * self.facts.features),
            features=int(share * self.facts.features),
            loss=known.loss if known else None,
            error=known.error if known else None,
            weight=self.facts.weight,
            seconds=time.perf_counter() - self.started,
            fraction=share % 1.0,
            objective=known.objective if known else None,
            dual=known.dual if known else None,
            gap=known.gap if known else None,
        )

    def rows_by_now(self) -> int:
        """All that were read, with those of a piece of work that is under way, as far as these are known."""
        return self.rows_read

    @property
    def _passes_made(self) -> int:
        """Of the steps that are done."""
        return sum(step.passes for step in self.steps)

    # Going on later.

    def state(self) -> Tree:
        assert self.facts is not None
        state: Tree = {
            "rows_read": self.rows_read,
            "steps": [list(step) for step in self.steps],
            "facts": list(self.facts),
        }
        if self._steps_left:
            assert self.solver is not None
            state |= {"l2": self.solver.problem.l2, "solver": self.solver.state()}
        if self.best is not None:
            state["best"] = {**self.best._asdict(), "weights": self.best.weights.copy()}
        if self.sample is not None:
            state["sample"] = self.sample.state()
        return state

    def restore(self, state: Tree) -> None:
        self.rows_read = state["rows_read"]
        self.facts = Facts(*state["facts"])
        self.steps = [Step(*step) for step in state["steps"]]
        if "best" in state:
            self.best = Best(**{**state["best"], "weights": np.array(state["best"]["weights"])})
        if "sample" in state:
            self.sample = ScoreSample()
            self.sample.restore(state["sample"])
        if "solver" in state:
            assert self.solver is not None
            if state["l2"] != self.solver.problem.l2:
                self.solver.with_penalty(state["l2"])
            self.solver.restore(state["solver"])
            self._going_on = True

    def judged(self) -> ScoreSample | None:
        """Scores of rows that were held out, or left out."""
        return self.to_judge_by(self.sample)

    # After the last pass.

    def _known(self) -> Step | Figures | None:
        """What is known of the weights that are kept, or of those so far."""
        return self._step() or (self.solver.figures if self.solver is not None else None)

    def _step(self) -> Step | None:
        """The one whose weights are kept."""
        return self.steps[self.best.number] if self.best is not None else None

    def model(self) -> Model:
        assert self.facts is not None
        step, known, passes = self._step(), self._known(), self._passes_made
        if step is not None and self.best is not None:
            learned, l2 = (self.best.weights, self.best.bias), step.l2
        else:
            assert self.solver is not None
            learned, l2, passes = self.solver.weights(), self.solver.problem.l2, self.solver.passes
        provenance = {
            "examples": self.rows_read,
            "passes": passes,
            "l2": l2,
            "l1": 0.0,
            "eta0": None,
            "objective": known.objective if known is not None else None,
            "gap": known.gap if known is not None else None,
        }
        return self.model_with(learned, provenance, {"solver": self.facts.solver, "t": 0.0, "eta0": None})

    def result(self) -> dict[str, Any]:
        step, now = self._step(), self.progress()
        assert step is not None and self.facts is not None
        return {
            "examples": now.examples,
            "passes": self._passes_made,
            "features": now.features,
            "dim": self.facts.width,
            "seconds": now.seconds,
            "loss": step.loss,
            "error": step.error,
            "objective": step.objective,
            "dual": step.dual,
            "gap": step.gap,
            "tol": self._tol,
            "solver": self.facts.solver,
            "l2": step.l2,
            "l1": 0.0,
            "eta0": None,
            "zeros": None,
            "holdout": self._held_out_figures(step),
            "path": [one._asdict() for one in self.steps] if self.facts.penalties > 1 else None,
            "bad_rows": self.passes.stream.tally.bad_rows,
            "model": None,
        }

    def _held_out_figures(self, step: Step) -> dict[str, Any] | None:
        if step.held_out_loss is None:
            return None
        assert self.facts is not None
        every = self.settings.data.holdout or 1
        return {
            "every": every,
            "examples": held_rows(self.facts.rows, every),
            "loss": step.held_out_loss,
            "error": step.held_out_error,
            "pass": step.passes,
        }
