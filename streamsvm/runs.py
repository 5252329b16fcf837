"""What all runs have in common: passes over the data, from the beginning or from a checkpoint.

    prepare --> pass 1 --> pass 2 ... --> learned        a checkpoint can be taken anywhere, between two batches

A run is stopped and goes on where everything behind the parse pool is whole: the solver has learned the rows that were
handed on, and what hands rows on counts them as gone. `state` and `restore` of each part speak of such moments only.
`OnlineRun` is one whose solvers see batch after batch; others learn from all rows in their own way.
"""

import time
from abc import ABC, abstractmethod
from contextlib import closing
from typing import Any

import numpy as np

from streamsvm import __version__
from streamsvm.batch import Float32s
from streamsvm.checkpoint import Checkpoints, Snapshot, Tree, kept_config, understood
from streamsvm.config import Settings
from streamsvm.errors import ConfigError, ModelError
from streamsvm.features.autoscale import AutoScaling
from streamsvm.features.scaling import Scaling
from streamsvm.feed import Feed, StartOver, Visit
from streamsvm.losses import make_loss
from streamsvm.mapping import learner_map
from streamsvm.model import Model
from streamsvm.offered import KERNEL
from streamsvm.passes import Passes
from streamsvm.penalties import make_penalty
from streamsvm.progress import Listener, Progress
from streamsvm.reading import memory_for_solvers
from streamsvm.score_sample import ScoreSample
from streamsvm.scoring import Offset
from streamsvm.solvers import make_kernel_solver, make_many, make_solver
from streamsvm.solvers.base import SEEN, UNIT, OnlineSolver, Problem, T, make_bias


class Run(ABC):
    """Something that learns in passes: what feeds it, what is told about it, how it goes on after a stop."""

    def __init__(
        self,
        settings: Settings,
        passes: Passes,
        checkpoints: Checkpoints,
        listener: Listener,
        started: float,
        initial: Model | None = None,
    ) -> None:
        self.settings = settings
        self.passes = passes
        self.listener = listener
        self.started = started
        self.initial = initial  # the model to begin with
        self.memory = memory_for_solvers(settings)
        self.feed = self.new_feed()
        self.number = 1  # of the pass that is being made, or comes next
        self._inside = False  # whether it has begun
        self._checkpoints = checkpoints
        self.rule = settings.multiclass_rule

    # What a run must say.

    @abstractmethod
    def start(self) -> None:
        """Make solvers that have learned nothing yet."""

    @abstractmethod
    def make_passes(self) -> None:
        """Learn from the rows, from where the run stands to the end."""

    @abstractmethod
    def model(self) -> Model:
        """The model as it stands."""

    @abstractmethod
    def progress(self) -> Progress: ...

    @abstractmethod
    def state(self) -> Tree:
        """What the future depends on beside the feed and its passes, copied."""

    @abstractmethod
    def restore(self, state: Tree) -> None:
        """Go on where `state` was taken; after `start`, but for a run that starts with rows and has learned all."""

    @property
    @abstractmethod
    def unfinished(self) -> bool:
        """Whether another pass is to be made."""

    # What a run may say.

    def new_feed(self) -> Feed:
        """What feeds it, before anything is known."""
        return Feed(self.settings, self.passes, self.listener.note, self.initial, self.memory)

    needs_cache = False  # whether all rows must be in the cache before the first is learned
    starts_with_rows = False  # whether `start` needs them there

    @property
    def looks_back(self) -> bool:
        """Whether rows are wanted again when all is learned."""
        return self.settings.run.objective

    @property
    def preparing(self) -> bool:
        """Whether nothing can be learned yet."""
        return self.feed.preparing

    # The passes.

    def learn_passes(self) -> None:
        resumed = self._resumed()  # stopped while that goes on, the checkpoint is still the one to go on from
        if resumed and not self.unfinished:
            return
        with self._checkpoints.at_interruption(self._snapshot):
            if not resumed:
                self.feed.prepare(self._tick, whole=self.needs_cache)
                self.start()
            self.make_passes()
        self._checkpoints.keep(self._snapshot)

    # Going on later.

    def _tick(self, rows: int) -> None:
        if self.feed.preparing:
            self._show_reading(rows)
        if self.passes.resumable:
            self._checkpoints.tick(rows, self._snapshot)

    def _show_reading(self, rows: int) -> None:
        self.listener.progress(self.reading())

    def reading(self) -> Progress:
        """Progress without figures: data is read, but not to learn from it."""
        read, seconds = self.passes.stream.tally.bytes, time.perf_counter() - self.started
        passes, fraction = self.settings.solver.passes, self.passes.fraction
        return Progress(self.number, passes, 0, read, 0, None, None, 0.0, seconds, fraction)

    def _snapshot(self) -> Snapshot:
        stage = "prepare" if self.preparing else "learn" if self._inside or self.unfinished else "learned"
        standing: dict[str, Any] = {
            "stage": stage,
            "pass": self.number,
            "passes": self.settings.solver.passes,
            "inside": self._inside,
            "examples": 0,
            "seconds": time.perf_counter() - self.started,
        }
        state: Tree = {"standing": standing, "passes": self.passes.state()}
        if stage == "prepare":
            return Snapshot(self.nothing_learned(), state, self.passes.sync())
        now = self.progress()
        standing |= {"examples": now.examples, "fraction": now.fraction, "loss": now.loss, "error": now.error}
        state |= {"feed": self.feed.state(), "own": self.state()}
        return Snapshot(self.model(), state, self.passes.sync())

    def nothing_learned(self) -> Model:
        """A model without weights."""
        return Model(
            np.zeros(0, np.float32),
            0.0,
            self.feed.classes.names or [-1, 1],
            self.settings.loss,
            rule=self.rule,
            recipe=self.feed.recipe(),
            map=self.feed.map,
            config=kept_config(self.settings),
        )

    def model_with(
        self,
        learned: tuple[Float32s, Offset],
        provenance: Tree,
        online: Tree,
        settings: Settings | None = None,
        scaling: Scaling | AutoScaling | None = None,
    ) -> Model:
        """A model of these weights and bias, for the features as written, with how it came about."""
        settings, (weights, bias) = settings or self.settings, learned
        scaling = self.feed.scaling if scaling is None else scaling
        sources = [part.shown for part in self.passes.stream.source.parts]
        names, places = self.feed.classes.names, self.feed.classes.places()
        if self.feed.classes.growing:
            weights, bias = weights[:, places], bias[places]
        scale, centre = None, None
        if isinstance(scaling, AutoScaling):
            if not scaling.idle:
                known = scaling.known(len(weights))
                scale, centre = scaling.factors(known), scaling.centres(known)
                online = {**online, "usual_factor": scaling.usual}
                weights, bias = scaling.fold(weights, bias)
        elif scaling is not None:
            scale, weights = scaling.factors(len(weights)), scaling.fold(weights)
        return Model(
            weights=weights,
            bias=bias,
            classes=[names[place] for place in places] or [-1, 1],
            loss=settings.loss,
            rule=self.rule,
            scale=scale,
            centre=centre,
            recipe=self.feed.recipe(scaling),
            map=self.feed.map,
            config=kept_config(settings),
            provenance={"streamsvm": __version__, "sources": sources, **provenance},
            online=online,
        )

    def to_judge_by(self, sample: ScoreSample | None) -> ScoreSample | None:
        """Scores with the classes in the order in which a model has them, weighted as the data is, not as its classes.

        Probabilities are to be those of the data, whatever weight its classes were given in learning.
        """
        classes, weights = self.feed.classes, self.feed.class_weights
        if sample is None:
            return None
        if weights is not None:
            sample = sample.unweighted(weights.factors)
        if classes.growing:
            sample.grow(len(classes.names))
            sample = sample.reordered(np.argsort(classes.places()))
        return sample

    def report_bad_rows(self) -> None:
        tally = self.passes.stream.tally
        if tally.bad_rows:
            self.listener.note(f"skipped {tally.bad_rows} malformed rows: {'; '.join(tally.faults)}")

    def refuse_other_features(self, model: Model) -> None:
        """ModelError if the model to begin with has its features made in another way."""
        recipe = {key: value for key, value in model.recipe.items() if key != "names"}
        if recipe.get("scale") == "auto" and self.feed.scaling is None:
            del recipe["scale"]  # its weights are those of features as written
        if recipe != self.feed.recipe():
            raise ModelError(
                f"the initial model has features {recipe}, this run has {self.feed.recipe()}; they must agree"
            )

    def _resumed(self) -> bool:
        """Go on from a checkpoint; False if there is none, or one from before learning, where `prepare` goes on."""
        state, self._checkpoints.state = self._checkpoints.state, None  # its memory is wanted again soon
        if state is None:
            return False
        with understood(self._checkpoints.found):
            self.started -= state["standing"]["seconds"]
            if state["standing"]["stage"] == "prepare":
                self.passes.restore_filling(state["passes"])
                return False
            try:
                self._restore(state)
            except ModelError as error:
                raise ModelError(f"{self._checkpoints.found}: {error}") from error
            return True

    def _restore(self, state: Tree) -> None:
        standing = state["standing"]
        self.number, self._inside = standing["pass"], standing["inside"]
        if standing["stage"] != "learned" or self.looks_back:
            self.passes.restore(state["passes"], self._show_reading, inside=self._inside)
        self.feed.restore(state["feed"], inside=self._inside)
        if standing["stage"] != "learned" or not self.starts_with_rows:
            self.start()
        self.restore(state["own"])


class OnlineRun(Run):
    """A run whose solvers learn row by row, in the order in which rows are handed on."""

    @abstractmethod
    def begin_pass(self) -> None: ...

    @abstractmethod
    def learn_visit(self, visit: Visit) -> None:
        """Learn the rows of a batch."""

    def learn_mapped(self, visit: Visit) -> None:
        """Learn the rows of a batch, mapped where there is a map; a run stops between two batches only."""
        with closing(self.feed.mapped_visits(visit)) as visits:
            for mapped in visits:
                self.learn_visit(mapped)

    @abstractmethod
    def end_pass(self) -> None: ...

    @property
    def unfinished(self) -> bool:
        return self.number <= self.settings.solver.passes

    def make_passes(self) -> None:
        while self.unfinished:
            try:
                self._pass()
            except StartOver:  # the cache is full now, and knows all classes
                self._inside = False
                self.start()

    def _pass(self) -> None:
        if not self._inside:
            self.begin_pass()
        self._inside = True
        with closing(self.feed.visits(self.number, self._tick)) as visits:
            for visit in visits:
                self.learn_mapped(visit)
                self.listener.progress(self.progress())
                self._tick(self.feed.rows_since())
        self.end_pass()
        self._inside = False
        self.number += 1

    def model_of(
        self,
        settings: Settings,
        solver: OnlineSolver,
        learned: tuple[Float32s, Offset],
        scaling: Scaling | AutoScaling | None = None,
    ) -> Model:
        """The model that a solver has learned; `scaling` is how its rows were scaled, if not as the feed says."""
        provenance = {
            "examples": int(solver.scalars[SEEN]),
            "passes": settings.solver.passes,
            "l2": solver.problem.l2,
            "l1": solver.problem.penalty.l1,
            "eta0": solver.step_size,
            "objective": None,
            "gap": None,
        }
        t, unit = float(solver.scalars[T]), float(solver.scalars[UNIT])
        online = {"solver": solver.name, "t": t, "eta0": solver.step_size, "unit": unit}
        model = self.model_with(learned, provenance, online, settings, scaling)
        supports = solver.supports()
        if supports is not None and self.feed.map is not None:
            model.map = learner_map(settings, self.feed.map, supports)
        return model


def make_online(settings: Settings, feed: Feed, name: str, problem: Problem, **options: Any) -> OnlineSolver:
    """The solver of that name for the classes that the rows have, or may turn out to have."""
    classes = feed.classes
    if name in KERNEL:
        if feed.map is None:
            raise ConfigError(
                f"solver {name} must see some rows before it begins: train a model on rows that are there already, and "
                "go on with it (--init)"
            )
        if classes.many:
            raise ConfigError(f"solver {name} learns two classes, and there are {len(classes.names)}: use --map rbf")
        return make_kernel_solver(name, problem, gamma=1.0, **{**options, "dim": feed.map.width})
    if not classes.many:
        return make_solver(name, problem, **options)
    return make_many(settings.multiclass_rule, name, problem, classes=feed.declared_count, **options)


def make_problem(settings: Settings, loss: str, l2: float, l1: float) -> Problem:
    return Problem(make_loss(loss), make_penalty(l2, l1), make_bias(settings.bias.kind, settings.bias.scale))
