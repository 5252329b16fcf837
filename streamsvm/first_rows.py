"""Notices in the first rows what ruins online learning: rows sorted by class, and features of very different size."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamsvm.batch import Batch

FIRST_ROWS = 1000  # rows after which a single class is suspicious
FEW_RUNS = 10  # of rows with one class after the other, in which rows of two classes hardly come by chance,
COMMON = 50  # if there are so many of each
LARGE = 1000.0  # values beyond this make the other features learn slowly


class FirstRows:
    """Looks at the coded rows of a first pass and warns once of each trouble, naming the remedy."""

    def __init__(self, note: Callable[[str], None], *, shuffled: bool, scaled: bool, names: Sequence[str] = ()) -> None:
        self._note = note
        self._names = names  # of the first features, where they have any
        self._shuffled = shuffled
        self._seen = 0
        self._code: float | None = None  # of the row before
        self._counts: dict[float, int] = {}
        self._runs = 0
        self._labels_done = False
        self._sized = FIRST_ROWS if scaled else 0  # rows whose values have been looked at

    def look(self, batch: Batch) -> None:
        self._look_at_labels(batch)
        if self._sized < FIRST_ROWS:
            self._look_at_values(batch.slice(0, min(batch.rows, FIRST_ROWS - self._sized)))

    def end(self) -> None:
        if not self._labels_done and self._seen > 1 and len(self._counts) == 1:
            self._warn(f"all {self._seen} rows have one class", hopeless=True)

    def state(self) -> dict[str, Any]:
        """What has been looked at: of a pass that goes on later no warning is lost, and none comes twice."""
        code = None if self._labels_done else self._code  # which may be NaN, and no longer matters
        counts = [] if self._labels_done else [list(pair) for pair in self._counts.items()]
        return {
            "seen": self._seen, "code": code, "counts": counts, "runs": self._runs, "labels_done": self._labels_done,
            "sized": self._sized,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state` was taken."""
        self._seen, self._code, self._runs = state["seen"], state["code"], state["runs"]
        self._counts = {code: count for code, count in state["counts"]}
        self._labels_done, self._sized = state["labels_done"], state["sized"]

    def _look_at_labels(self, batch: Batch) -> None:
        if self._labels_done:
            return
        labels = batch.labels[: FIRST_ROWS - self._seen]
        for code in np.nan_to_num(labels, nan=-1.0).tolist():  # rows without a label are a class of their own
            self._runs += code != self._code
            self._counts[code] = self._counts.get(code, 0) + 1
            self._code = code
        self._seen += len(labels)
        if self._seen >= FIRST_ROWS:
            self._judge_labels()

    def _judge_labels(self) -> None:
        self._labels_done = True
        counts = sorted(self._counts.values(), reverse=True)
        if len(counts) == 1:
            self._warn(f"the first {self._seen} rows have one class")
        elif counts[1] >= COMMON and self._runs <= FEW_RUNS:
            self._warn(f"the first {self._seen} rows are sorted by class, and what is learned last is known best")

    def _warn(self, what: str, *, hopeless: bool = False) -> None:
        self._labels_done = True
        remedy = "a larger --shuffle" if self._shuffled else "--shuffle 100000 (data.shuffle)"
        advice = "there is nothing to tell apart" if hopeless else f"if the data is sorted by class, use {remedy}"
        self._note(f"warning: {what}; {advice}")

    def _look_at_values(self, batch: Batch) -> None:
        self._sized += batch.rows
        start = int(batch.indptr[0])
        values = np.abs(batch.values[start : int(batch.indptr[-1])])
        if len(values) and float(values.max()) > LARGE:
            self._sized = FIRST_ROWS
            index = int(batch.indices[start + int(np.argmax(values))])
            what = f"column {self._names[index]}" if index < len(self._names) else f"index {index}"
            self._note(
                f"warning: {what} has values as large as {values.max():.3g}; features of such size learn slowly "
                "or not at all beside small ones: use --scale maxabs (features.scale)"
            )
