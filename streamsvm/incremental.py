"""Learning that goes on with every batch that it is given: a training run in one pass whose rows come by hand.

The model after any number of batches is the one that `train` gives on all their rows in one pass, however they are cut.
"""

import time
from typing import Any

from streamsvm.batch import Batch
from streamsvm.checkpoint import Checkpoints, Tree
from streamsvm.config import Settings
from streamsvm.judging import judge
from streamsvm.memory_stream import MemoryStream
from streamsvm.model import Model
from streamsvm.online_training import TrainingRun
from streamsvm.passes import Passes
from streamsvm.progress import Listener, Silent
from streamsvm.progressive import Progressive
from streamsvm.reading import make_reading
from streamsvm.solvers.base import SEEN
from streamsvm.stream import Features


class Incremental(TrainingRun):
    """A run with an online solver; `features` says how many weights there are, and which classes."""

    def __init__(
        self, settings: Settings, features: Features, listener: Listener = Silent(), initial: Model | None = None
    ) -> None:
        stream = MemoryStream([], seed=settings.run.seed, reading=make_reading(settings), features=features)
        checkpoints = Checkpoints(settings, "train", stream.source, listener.note)
        passes = Passes(stream, cache="off")
        super().__init__(settings, passes, checkpoints, listener, time.perf_counter(), initial)
        self.feed.prepare(lambda rows: None)
        self.start()
        self.begin_pass()
        self.feed.begin_pass(1)

    @property
    def rows(self) -> int:
        """That were given so far."""
        return int(self.solver.scalars[SEEN])

    def learn_rows(self, batch: Batch) -> None:
        """Predict each row, then learn from it."""
        self.learn_mapped(self.feed.visit(batch))

    def model(self) -> Model:
        solver, scaling = self.finished()
        model = self.model_of(self.settings, solver, solver.weights(), scaling)
        watch = solver.watch
        sample = watch.recent() if isinstance(watch, Progressive) else None
        judge(model, self.to_judge_by(sample), self.settings, lambda text: None)
        return model

    # Going on in another process.

    def saved(self) -> dict[str, Any]:
        """All that the future depends on, as plain values and arrays."""
        settings, features = self.settings.model_dump(), self.passes.stream.features._asdict()
        return {"settings": settings, "features": features, "feed": self.feed.state(), "own": self.state()}

    @classmethod
    def revived(cls, saved: Tree, initial: Model | None = None) -> "Incremental":
        """The run that `saved` was taken of."""
        run = cls(Settings.model_validate(saved["settings"]), Features(**saved["features"]), initial=initial)
        run.feed.restore(saved["feed"], inside=True)
        run.restore(saved["own"])
        return run
