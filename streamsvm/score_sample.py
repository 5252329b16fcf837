"""The most recent rows that were scored before they were learned from, or that were held out: scores, classes, weights.

Calibration and thresholds are learned from them. The memory is bounded: the sample keeps the last `room` rows, more of
them where a row has few scores. Which rows these are depends on the order of rows alone, not on how they were cut into
calls. They lie in a ring, in which a new row takes the place of the oldest one.

Classes may be found while the sample fills. A class that was not there when a row was scored has NaN for it. A larger
number of classes has a smaller room, so of the rows that are too many the oldest are forgotten.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Float32s, Float64s, Int64s
from streamsvm.errors import ModelError

NUMBERS = 1 << 22  # scores that are kept, of all classes together
FEWEST, MOST = 1024, 65536  # rows, whatever the number of classes
LARGEST = float(np.finfo(np.float32).max)


def room_for(columns: int) -> int:
    """How many rows are kept that have so many scores each."""
    return min(max(NUMBERS // max(columns, 1), FEWEST), MOST)


class ScoreSample:
    """A ring of rows with one score (two classes), or with one for each class (`many`). Scores are kept as float32."""

    def __init__(self, columns: int = 1, *, many: bool = False) -> None:
        self.columns = columns
        self.many = many or columns > 1
        self._filled = 0  # rows in the ring, of which those beyond `room` do not count any longer
        self._end = 0  # where the next row goes
        self._lay_out()

    @property
    def room(self) -> int:
        return room_for(self.columns)

    @property
    def rows(self) -> int:
        return min(self._filled, self.room)

    def add(self, scores: Float64s, codes: Float32s, weights: Float32s) -> None:
        """Rows in their order: [row] or [row, class]. Those of weight 0 and those without a class are not kept."""
        kept = np.flatnonzero((weights > 0.0) & ~np.isnan(codes))
        classes = int(codes[kept].max(initial=0.0)) + 1
        if scores.ndim == 2:
            self._become_many()
            self.grow(max(scores.shape[1], classes))
        elif self.many or classes > 2:
            raise ValueError(f"one score a row, and {max(classes, self.columns)} classes")
        kept = kept[-self.room :]
        given = scores[kept] if self.many else scores[kept, None]
        places = (self._end + np.arange(len(kept))) % len(self._codes)
        self._scores[places, : given.shape[1]] = np.clip(given, -LARGEST, LARGEST)
        self._scores[places, given.shape[1] :] = np.nan
        self._codes[places] = codes[kept]
        self._weights[places] = weights[kept]
        self._end = (self._end + len(kept)) % len(self._codes)
        self._filled = min(self._filled + len(kept), len(self._codes))

    def grow(self, columns: int) -> None:
        """Make room for more classes; rows that are here have NaN for them. Two classes that had one score get two."""
        if columns <= self.columns:
            return
        self._become_many()
        self.columns = max(columns, self.columns)
        if self.columns > self._scores.shape[1]:
            self._lay_out(self.state())

    def clear(self) -> None:
        self._filled = self._end = 0

    def scores(self) -> Float32s:
        """[row] or [row, class], the oldest row first; a copy, as are the others."""
        found: Float32s = self._scores[self._places(self.rows), : self.columns]
        return found if self.many else found[:, 0].copy()

    def codes(self) -> Float32s:
        return self._codes[self._places(self.rows)]

    def weights(self) -> Float32s:
        return self._weights[self._places(self.rows)]

    def newest(self, rows: int) -> "ScoreSample":
        """The last so many rows."""
        other = ScoreSample(many=self.many)
        other.restore(self._state_of(self._places(min(rows, self.rows))))
        return other

    def unweighted(self, factors: Float64s) -> "ScoreSample":
        """The same rows, with the weights of each class divided by its factor."""
        other = ScoreSample(many=self.many)
        state = self.state()
        by_row = np.append(factors, np.ones(max(0, self.columns + 1)))[state["codes"].astype(np.int64)]
        weights = state["weights"] / np.where(by_row > 0.0, by_row, 1.0)
        other.restore(state | {"weights": weights.astype(np.float32)})
        return other

    def reordered(self, places: Sequence[int] | Int64s) -> "ScoreSample":
        """The same rows where the class that had code c has code places[c]."""
        to = np.asarray(places, np.int64)
        classes = self.columns if self.many else 2
        if sorted(to.tolist()) != list(range(classes)):
            raise ValueError(f"{to.tolist()} is no order of {classes} classes")
        state = self.state()
        state["codes"] = to[state["codes"].astype(np.int64)].astype(np.float32)
        if self.many:
            state["scores"][:, to] = self.scores()
        elif to[0] == 1:
            state["scores"] = -state["scores"]
        other = ScoreSample(many=self.many)
        other.restore(state)
        return other

    def state(self) -> dict[str, Any]:
        """Everything that the future depends on, copied."""
        return self._state_of(self._places(self.rows))

    def _state_of(self, places: Int64s) -> dict[str, Any]:
        return {
            "columns": self.columns,
            "many": self.many,
            "scores": self._scores[places, : self.columns],
            "codes": self._codes[places],
            "weights": self._weights[places],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state` was taken."""
        columns, rows = int(state["columns"]), len(state["codes"])
        shapes = [state[name].shape for name in ("scores", "codes", "weights")]
        if rows > room_for(columns) or shapes != [(rows, columns), (rows,), (rows,)]:
            raise ModelError(f"the scores saved do not fit together: {columns} columns, and arrays of {shapes}")
        self.columns, self.many = columns, bool(state["many"])
        self._lay_out(state)

    def _become_many(self) -> None:
        """One score that tells two classes apart speaks for the second of them, and its opposite for the first."""
        if self.many:
            return
        self.many = True
        if self._filled:
            self.columns = 2
            state = self.state()
            state["scores"] = np.hstack([-state["scores"], state["scores"]])
            self._lay_out(state)

    def _lay_out(self, state: dict[str, Any] | None = None) -> None:
        """A new ring that begins with these rows; some columns more than needed, so that few classes need another."""
        width = self.columns + self.columns // 4
        self._scores: Float32s = np.empty((self.room, width), np.float32)
        self._codes: Float32s = np.empty(self.room, np.float32)
        self._weights: Float32s = np.empty(self.room, np.float32)
        self._filled = self._end = 0
        if state is not None:
            self._filled = rows = len(state["codes"])
            self._end = rows % self.room
            self._scores[:rows] = np.nan
            self._scores[:rows, : state["scores"].shape[1]] = state["scores"]
            self._codes[:rows] = state["codes"]
            self._weights[:rows] = state["weights"]

    def _places(self, rows: int) -> npt.NDArray[np.int64]:
        """Where the last so many rows lie, the oldest first."""
        return (self._end - rows + np.arange(rows)) % len(self._codes)
