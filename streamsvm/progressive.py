"""Rows that are scored before they are learned from: what probabilities are learned from where no row is held out.

    row 512   576   648   729  ...   32768  (1024 rows)  36864  (1024 rows)  41472 ...
        |-----|-----|-----|--- ...   |----|              |----|

The rows come in windows, at numbers that grow by an eighth each time. The rows of a window wait until it is complete,
are scored with the weights as they stand, those that a model would have, and are learned then: so every score is that
of a row that was never seen, and nothing else changes. There are few windows, and only the weights of their features
are looked at, so that all this costs next to nothing, however many rows and weights there are. Those of the last seven
eighths of the rows count in the end: the first ones were scored by weights that knew little.

Everything is counted in rows (those of weight 0 do not count): how rows are cut into batches has no part in it.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from streamsvm.batch import Batch, Float64s, Int64s, concatenate
from streamsvm.score_sample import ScoreSample
from streamsvm.shuffle import taken

FIRST = 512  # rows before the first window
GROWTH = 8  # a window begins when there are an eighth more rows than at the last
MOST = 1024  # rows of a window
FEATURES = 1 << 20  # or fewer rows, once they have this many features
AT_ONCE = 1 << 20  # numbers of a solver that are copied at a time
OLD = 8  # windows that began before this part of all rows do not count


class Scoring(Protocol):
    """A solver that is asked for scores."""

    columns: int

    def few_scores(self, batch: Batch) -> Float64s: ...


def scored(rows: Batch, solver: Scoring) -> Iterator[tuple[Batch, Float64s]]:
    """The rows, whose `indptr` begins with 0, in parts; each with its scores by the weights as they stand."""
    most = max(1, AT_ONCE // solver.columns)
    ends = np.searchsorted(rows.indptr, np.arange(0, rows.features, most), "right") - 1
    edges = sorted({0, *ends.tolist(), rows.rows})
    for a, b in pairwise(edges):
        part = rows if len(edges) == 2 else rows.take(a, b)
        yield part, solver.few_scores(part)


class Progressive:
    """Fills a sample with the scores of rows on their way to a solver."""

    def __init__(self, *, many: bool) -> None:
        self.sample = ScoreSample(many=many)
        self._rows = 0  # that came, but for those that wait
        self._start, self._end = FIRST, FIRST + FIRST // GROWTH
        self._waiting: list[Batch] = []
        self._windows: list[tuple[int, int]] = []  # where each began, and its rows

    def pieces(self, batch: Batch, order: Int64s, solver: Scoring) -> Iterator[tuple[Batch, Int64s | None]]:
        """The rows to learn now, in their order; those of a window come when it is complete."""
        while len(order):
            inside = self._rows + self._held >= self._start
            stop = self._until(batch, order, self._end if inside else self._start)
            if not inside:
                self._rows += int(np.count_nonzero(batch.weights[order[:stop]]))
                yield batch, order[:stop]
            else:
                self._waiting.append(taken(batch, order[:stop]))
                full = sum(part.features for part in self._waiting) >= FEATURES
                if full or self._rows + self._held >= self._end:
                    yield from self.flush(solver)
            order = order[stop:]

    def flush(self, solver: Scoring) -> Iterator[tuple[Batch, Int64s | None]]:
        """Score the rows that wait, and let them be learned; the window ends here."""
        if not self._waiting:
            return
        rows, count = concatenate(self._waiting), self._held
        self._waiting = []
        for part, scores in scored(rows, solver):
            self.sample.add(scores, part.labels, part.weights)
        self._windows.append((self._start, count))
        self._rows += count
        self._start = max(self._start + self._start // GROWTH, self._rows)
        self._end = self._start + min(MOST, self._start // GROWTH)
        yield rows, None

    def take(self, scores: Float64s, rows: Batch) -> None:
        """These scores of rows, which were not learned for them, count instead of all so far."""
        self.sample.clear()
        self.sample.add(scores, rows.labels, rows.weights)
        self._windows = [(self._rows, rows.rows)]

    @property
    def _held(self) -> int:
        return sum(int(np.count_nonzero(part.weights)) for part in self._waiting)

    def _until(self, batch: Batch, order: Int64s, number: int) -> int:
        """How many of the rows come before there are so many in all; within a window, or until it has its features."""
        counts = self._rows + self._held + np.cumsum(batch.weights[order] != 0.0)
        stop = int(np.searchsorted(counts, number)) + 1
        if self._rows + self._held >= self._start:
            features = sum(part.features for part in self._waiting) + np.cumsum(np.diff(batch.indptr)[order])
            stop = min(stop, int(np.searchsorted(features, FEATURES)) + 1)
        return min(stop, len(order))

    def recent(self) -> ScoreSample:
        """The scores that count."""
        counted = sum(rows for start, rows in self._windows if start >= self._rows // OLD)
        return self.sample.newest(counted)

    def state(self) -> dict[str, Any]:
        """Everything that the future depends on, copied."""
        return {
            "rows": self._rows,
            "start": self._start,
            "end": self._end,
            "windows": [list(window) for window in self._windows],
            "waiting": concatenate(self._waiting)._asdict(),
            "sample": self.sample.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state` was taken."""
        self._rows, self._start, self._end = int(state["rows"]), int(state["start"]), int(state["end"])
        self._windows = [(int(start), int(rows)) for start, rows in state["windows"]]
        waiting = Batch(**state["waiting"]).copy()
        self._waiting = [waiting] if waiting.rows else []
        self.sample.restore(state["sample"])
