"""Notices in the first rows what ruins online learning: a single class, and features of very different size."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamsvm.batch import Batch

FIRST_ROWS = 1000  # rows after which a single class is suspicious
LARGE = 1000.0  # values beyond this make the other features learn slowly


class FirstRows:
    """Looks at the coded rows of a first pass and warns once of each trouble, naming the remedy."""

    def __init__(self, note: Callable[[str], None], *, shuffled: bool, scaled: bool, names: Sequence[str] = ()) -> None:
        self._note = note
        self._names = names  # of the first features, where they have any
        self._shuffled = shuffled
        self._seen = 0
        self._code: float | None = None
        self._one_class_done = False
        self._sized = FIRST_ROWS if scaled else 0  # rows whose values have been looked at

    def look(self, batch: Batch) -> None:
        self._look_at_labels(batch)
        if self._sized < FIRST_ROWS:
            self._look_at_values(batch.slice(0, min(batch.rows, FIRST_ROWS - self._sized)))

    def end(self) -> None:
        if not self._one_class_done and self._seen > 1:
            self._warn_of_class(f"all {self._seen} rows", hopeless=True)

    def state(self) -> dict[str, Any]:
        """What has been looked at: of a pass that goes on later no warning is lost, and none comes twice."""
        code = None if self._one_class_done else self._code  # which may be NaN, and no longer matters
        return {"seen": self._seen, "code": code, "one_class_done": self._one_class_done, "sized": self._sized}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state` was taken."""
        self._seen, self._code = state["seen"], state["code"]
        self._one_class_done, self._sized = state["one_class_done"], state["sized"]

    def _look_at_labels(self, batch: Batch) -> None:
        if self._one_class_done:
            return
        labels = batch.labels[: FIRST_ROWS - self._seen]
        if self._code is None and len(labels):
            self._code = float(labels[0])
        if not bool(np.all(labels == self._code)):
            self._one_class_done = True
            return
        self._seen += len(labels)
        if self._seen >= FIRST_ROWS:
            self._warn_of_class(f"the first {self._seen} rows")

    def _warn_of_class(self, which: str, *, hopeless: bool = False) -> None:
        self._one_class_done = True
        remedy = "a larger --shuffle" if self._shuffled else "--shuffle 100000 (data.shuffle)"
        advice = "there is nothing to tell apart" if hopeless else f"if the data is sorted by class, use {remedy}"
        self._note(f"warning: {which} have one class; {advice}")

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
