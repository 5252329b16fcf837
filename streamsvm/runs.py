"""What `train` and `tune` have in common: passes over the data, from the beginning or from a checkpoint.

    prepare --> pass 1 --> pass 2 ... --> learned        a checkpoint can be taken anywhere, between two batches

A run is stopped and goes on where everything behind the parse pool is whole: the solver has learned the rows that were
handed on, and what hands rows on counts them as gone. `state` and `restore` of each part speak of such moments only.
"""

import time
from abc import ABC, abstractmethod
from contextlib import closing
from typing import Any

import numpy as np

from streamsvm.checkpoint import Checkpoints, Snapshot, Tree, kept_config, understood
from streamsvm.config import Settings
from streamsvm.errors import ModelError
from streamsvm.feed import Feed, StartOver, Visit
from streamsvm.model import Model
from streamsvm.passes import Passes
from streamsvm.progress import Listener, Progress
from streamsvm.reading import memory_for_solvers


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
        self.memory = memory_for_solvers(settings)
        self.feed = Feed(settings, passes, listener.note, initial, self.memory)
        self.number = 1  # of the pass that is being made, or comes next
        self._inside = False  # whether it has begun
        self._checkpoints = checkpoints

    # What a run must say.

    @abstractmethod
    def start(self) -> None:
        """Make solvers that have learned nothing yet."""

    @abstractmethod
    def begin_pass(self) -> None: ...

    @abstractmethod
    def learn_visit(self, visit: Visit) -> None:
        """Learn the rows of a batch."""

    @abstractmethod
    def end_pass(self) -> None: ...

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
        """Go on where `state` was taken; after `start`."""

    @property
    def unfinished(self) -> bool:
        """Whether another pass is to be made."""
        return self.number <= self.settings.solver.passes

    # The passes.

    def learn_passes(self) -> None:
        resumed = self._resumed()  # stopped while that goes on, the checkpoint is still the one to go on from
        if resumed and not self.unfinished:
            return
        with self._checkpoints.at_interruption(self._snapshot):
            if not resumed:
                self.feed.prepare(self._tick)
                self.start()
            while self.unfinished:
                try:
                    self._pass()
                except StartOver:  # the cache is full now, and knows all classes
                    self._inside = False
                    self.start()
        self._checkpoints.keep(self._snapshot)

    def _pass(self) -> None:
        if not self._inside:
            self.begin_pass()
        self._inside = True
        with closing(self.feed.visits(self.number, self._tick)) as visits:
            for visit in visits:
                self.learn_visit(visit)
                self.listener.progress(self.progress())
                self._tick(visit.batch.rows)
        self.end_pass()
        self._inside = False
        self.number += 1

    # Going on later.

    def _tick(self, rows: int) -> None:
        if self.feed.preparing:
            self._show_reading(rows)
        if self.passes.resumable:
            self._checkpoints.tick(rows, self._snapshot)

    def _show_reading(self, rows: int) -> None:
        """Progress without figures: data is read, but not to learn from it."""
        read, seconds = self.passes.stream.tally.bytes, time.perf_counter() - self.started
        passes, fraction = self.settings.solver.passes, self.passes.fraction
        self.listener.progress(Progress(self.number, passes, 0, read, 0, None, None, 0.0, seconds, fraction))

    def _snapshot(self) -> Snapshot:
        stage = "prepare" if self.feed.preparing else "learn" if self._inside or self.unfinished else "learned"
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
            recipe=self.feed.recipe(),
            config=kept_config(self.settings),
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
        if standing["stage"] != "learned" or self.settings.run.objective:
            self.passes.restore(state["passes"], self._show_reading, inside=self._inside)
        self.feed.restore(state["feed"], inside=self._inside)
        self.start()
        self.restore(state["own"])
