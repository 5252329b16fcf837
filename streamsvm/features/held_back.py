"""The first rows of a pass, held back until there are enough of them to decide how features are scaled.

They are counted as those on which step sizes are tried (solvers/base.py), so that both are decided by the same rows,
and the rows that go on at once are cut exactly where the last of them is: how rows are cut into batches has no part in
it.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Batch, Int64s, concatenate, empty_batch
from streamsvm.shuffle import taken

ROWS = 8192
FEATURES = 1 << 20  # or fewer rows, once they have this many features;
FEWEST = 1000  # but not fewer than these

Bools = npt.NDArray[np.bool_]


class Rows(NamedTuple):
    """Rows in their order, and which of them are not to be learned from (None: none)."""

    batch: Batch
    held: Bools | None

    @property
    def learned(self) -> Batch:
        """Those that are to be learned from, and have a weight."""
        kept = self.batch.weights > 0.0
        if self.held is not None:
            kept &= ~self.held
        return self.batch if kept.all() else taken(self.batch, np.flatnonzero(kept))


class HeldBack:
    """Rows that wait, in their order."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._held: list[Bools] = []
        self._rows = 0
        self._features = 0

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self._batches)

    @property
    def enough(self) -> bool:
        return self._rows >= ROWS or (self._features >= FEATURES and self._rows >= FEWEST)

    def take(self, batch: Batch, order: Int64s | None, held: Bools | None) -> Rows | None:
        """Keep rows until there are enough; returns those that are too many, if any."""
        lengths = np.diff(batch.indptr)
        order = np.arange(batch.rows) if order is None else order
        counted = batch.weights[order] > 0.0
        if held is not None:
            counted &= ~held[order]
        rows = self._rows + np.cumsum(counted)
        features = self._features + np.cumsum(lengths[order] * counted)
        full = (rows >= ROWS) | ((features >= FEATURES) & (rows >= FEWEST))
        stop = int(np.argmax(full)) + 1 if full.any() else len(order)
        if stop:
            self._batches.append(taken(batch, order[:stop]))
            self._held.append(np.zeros(stop, np.bool_) if held is None else held[order[:stop]])
            self._rows, self._features = int(rows[stop - 1]), int(features[stop - 1])
        rest = order[stop:]
        return Rows(taken(batch, rest), None if held is None else held[rest]) if len(rest) else None

    def release(self) -> Rows:
        """All that wait; nothing does afterwards."""
        rows = self.waiting()
        self.__init__()  # type: ignore[misc]
        return rows

    def waiting(self) -> Rows:
        held = np.concatenate(self._held) if self._held else np.zeros(0, np.bool_)
        return Rows(concatenate(self._batches) if self._batches else empty_batch(), held if held.any() else None)

    def state(self) -> dict[str, Any]:
        """Everything that the future depends on, copied."""
        batch, held = self.waiting()
        return {"batch": batch._asdict(), "held": np.zeros(batch.rows, np.bool_) if held is None else held}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state` was taken."""
        self.__init__()  # type: ignore[misc]
        batch = Batch(**state["batch"]).copy()
        if batch.rows:
            self.take(batch, None, np.array(state["held"], np.bool_))
