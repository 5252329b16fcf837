"""Held-out rows: kept from the solver, scored by it, a bounded number at a time.

They wait in a buffer of a fixed size, counted in rows and features. When it is full, and at the end of a pass, the
weights as they stand then score them. So the figures depend on the order of rows alone, the memory is bounded, and
scoring needs no second reading of the data.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Batch, Float64s, Int64s, concatenate
from streamsvm.errors import ModelError
from streamsvm.losses import Loss
from streamsvm.score_sample import ScoreSample
from streamsvm.scoring import losses_of
from streamsvm.shuffle import taken
from streamsvm.solvers.base import row_order

HELD_ROWS = 8192
HELD_FEATURES = 1 << 20

Bools = npt.NDArray[np.bool_]
Scores = Callable[[Batch], Float64s]  # of rows, by a model as it stands


class Holdout:
    """Sums of weight, loss and wrongly classified weight over held-out rows, for one model or for several."""

    def __init__(self, losses: Sequence[Loss], rule: str = "ova", samples: Sequence[ScoreSample] | None = None) -> None:
        self.losses = list(losses)
        self._rule = rule
        self.samples = list(samples) if samples is not None else None  # of each model, if its scores are wanted
        self._waiting: list[Batch] = []
        self._sums: Float64s = np.zeros((len(losses), 3))
        self._measured = 0

    def begin_pass(self) -> None:
        self._sums[:] = 0.0
        self._measured = 0
        for sample in self.samples or ():
            sample.clear()

    def pieces(self, batch: Batch, order: Int64s | None, held: Bools) -> Iterator[tuple[Batch, Int64s]]:
        """The rows to learn, cut where the buffer is full: ask `full` after each piece, and `measure` then."""
        order = row_order(batch, order)
        lengths = np.diff(batch.indptr)
        start = 0
        while start < len(order):
            stop = start + self._room(lengths, order[start:], held)
            rows = order[start:stop]
            kept = held[rows]
            if kept.any():
                self._waiting.append(taken(batch, rows[kept]))
            yield batch, rows[~kept]
            start = stop

    @property
    def full(self) -> bool:
        rows, features = self._held()
        return rows >= HELD_ROWS or features >= HELD_FEATURES

    def measure(self, models: Iterable[Scores | None]) -> None:
        """Let each model score what waits, and forget it; None is a model that diverged."""
        if not self._waiting:
            return
        rows = concatenate(self._waiting)
        self._waiting = []
        self.measure_rows(rows, models)

    def measure_rows(self, rows: Batch, models: Iterable[Scores | None]) -> None:
        """Let each model score rows that were not learned, from whoever has them; None is a model that diverged."""
        self._measured += rows.rows
        for k, model in enumerate(models):
            if model is None:
                self._sums[k] = np.nan
                continue
            scores = model(rows)
            total, weight, wrong = losses_of(scores, rows, self.losses[k], self._rule)
            self._sums[k] += (weight, total, wrong)
            if self.samples is not None:
                self.samples[k].add(scores, rows.labels, rows.weights)

    def take(self, rows: int, sums: Float64s) -> None:
        """Add what others have measured: so many rows, and the `sums` of each model."""
        self._measured += rows
        self._sums += sums

    def keep(self, which: Sequence[int]) -> None:
        """Drop the other models."""
        self.losses = [self.losses[k] for k in which]
        self.samples = [self.samples[k] for k in which] if self.samples is not None else None
        self._sums = self._sums[list(which)]

    @property
    def examples(self) -> int:
        """Rows measured in this pass."""
        return self._measured

    @property
    def sums(self) -> Float64s:
        """Weight, loss and wrongly classified weight of this pass's rows, for each model."""
        sums: Float64s = self._sums.copy()
        return sums

    def figures(self, model: int = 0) -> tuple[float | None, float | None]:
        """Mean loss and error of this pass."""
        weight, loss, wrong = self._sums[model].tolist()
        return (loss / weight, wrong / weight) if weight else (None, None)

    def state(self) -> dict[str, Any]:
        """Everything that the future depends on, copied."""
        return {
            "models": len(self.losses),
            "measured": self._measured,
            "sums": self._sums.copy(),
            "waiting": concatenate(self._waiting)._asdict(),
            "samples": {str(k): sample.state() for k, sample in enumerate(self.samples or ())},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state` was taken, with the losses of the models that were kept until then."""
        if state["models"] != len(self.losses):
            raise ModelError(f"the held-out figures saved are of {state['models']} models, not of {len(self.losses)}")
        waiting = Batch(**state["waiting"]).copy()
        self._waiting = [waiting] if waiting.rows else []
        self._sums = np.array(state["sums"], np.float64)
        self._measured = int(state["measured"])
        for k, sample in enumerate(self.samples or ()):
            if str(k) in state["samples"]:  # or else none were wanted before
                sample.restore(state["samples"][str(k)])

    def _held(self) -> tuple[int, int]:
        return sum(batch.rows for batch in self._waiting), sum(batch.features for batch in self._waiting)

    def _room(self, lengths: Int64s, order: Int64s, held: Bools) -> int:
        """How many rows may come before the buffer is full."""
        rows, features = self._held()
        kept = held[order]
        filled = (rows + np.cumsum(kept) >= HELD_ROWS) | (features + np.cumsum(lengths[order] * kept) >= HELD_FEATURES)
        return int(np.argmax(filled)) + 1 if filled.any() else len(order)
