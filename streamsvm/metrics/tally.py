"""What is decided, and what that costs: loss, error, confusion, precision, recall, F1, top k.

    precision   right / predicted         of the rows that are given a class, the share that have it
    recall      right / support           of the rows that have a class, the share that are given it
    F1          2 right / (predicted + support)
    top k       share of rows with fewer than k classes ahead of their own

A share of nothing is 0. Macro F1 is the mean over classes that some row has or is given; micro F1 pools all decisions,
which for one class a row is the accuracy. The loss is that of scoring.py. What is ahead is decided as the class is: by
scores less thresholds, and of equal ones the lower code.
"""

from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Float32s, Float64s, Int64s
from streamsvm.jit import kernel
from streamsvm.losses import Loss

TOP = (2, 3, 5)
MOST_CONFUSED = 1000  # classes
WEIGHT, LOSS, WRONG, TOP_FIRST = range(4)  # then the weights of rows whose class is among the first 2, 3, 5
RIGHT, PREDICTED, SUPPORT = range(3)


class Decided(NamedTuple):
    """Rows as they were scored and decided."""

    scores: Float64s  # [row], or [row, class]
    predicted: Int64s
    labels: Float32s
    weights: Float32s


class Tally:
    """Sums for each part of the rows: for all of them, or for each slice."""

    def __init__(
        self, loss: Loss, classes: int, parts: int = 1, *, rule: str = "ova", thresholds: Float64s | None = None
    ) -> None:
        self.parts = parts
        self._loss = loss
        self._ova = rule == "ova"
        self._thresholds: Float64s = np.zeros(classes) if thresholds is None else thresholds
        self._examples: Float64s = np.zeros(parts)
        self._sums: Float64s = np.zeros((parts, TOP_FIRST + len(TOP)))
        self._counts: Float64s = np.zeros((parts, 3, classes))

    def see(self, rows: Decided, parts: Int64s) -> None:
        sums = self._examples, self._sums, self._counts
        if rows.scores.ndim == 1:
            pair_tally(*rows, parts, self._loss, *sums)
        else:
            class_tally(*rows, parts, self._thresholds, self._loss, self._ova, *sums)

    def weight(self, part: int = 0) -> float:
        return float(self._sums[part, WEIGHT])

    def examples(self, part: int = 0) -> int:
        return int(self._examples[part])

    def loss(self, part: int = 0) -> float | None:
        return self._mean(part, LOSS)

    def error(self, part: int = 0) -> float | None:
        return self._mean(part, WRONG)

    def _mean(self, part: int, what: int) -> float | None:
        weight = self._sums[part, WEIGHT]
        return float(self._sums[part, what] / weight) if weight else None

    def among_first(self, part: int = 0) -> dict[str, float | None]:
        """By k, which is below the number of classes."""
        classes = self._counts.shape[2]
        return {str(k): self._mean(part, TOP_FIRST + place) for place, k in enumerate(TOP) if k < classes}

    def by_class(self, part: int = 0) -> "ByClass":
        right, predicted, support = self._counts[part]
        f1 = _share(2.0 * right, predicted + support)
        return ByClass(_share(right, predicted), _share(right, support), f1, right, predicted, support)


class Confusion:
    """Weights of rows by [true, predicted] class; not of very many classes."""

    def __init__(self, classes: int) -> None:
        self._weights: Float64s | None = np.zeros((classes, classes)) if classes <= MOST_CONFUSED else None

    def see(self, rows: Decided) -> None:
        if self._weights is not None:
            confusion_pass(rows.predicted, rows.labels, rows.weights, self._weights)

    def result(self) -> list[list[float]] | None:
        return None if self._weights is None else self._weights.tolist()


class ByClass(NamedTuple):
    """Figures of each class."""

    precision: Float64s
    recall: Float64s
    f1: Float64s
    right: Float64s
    predicted: Float64s
    support: Float64s

    @property
    def macro_f1(self) -> float | None:
        present = (self.predicted > 0.0) | (self.support > 0.0)
        return float(self.f1[present].mean()) if present.any() else None

    def of(self, code: int) -> dict[str, Any]:
        return {
            "precision": float(self.precision[code]),
            "recall": float(self.recall[code]),
            "f1": float(self.f1[code]),
            "support": float(self.support[code]),
        }


def _share(part: Float64s, whole: Float64s) -> Float64s:
    return np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0.0)


@kernel
def pair_tally(scores, predicted, labels, weights, parts, loss, examples, sums, counts):
    for i in range(len(labels)):
        c, part, own = np.float64(weights[i]), parts[i], 1 if labels[i] > 0.5 else 0
        examples[part] += 1
        if c == 0.0:
            continue
        sums[part, WEIGHT] += c
        sums[part, LOSS] += c * loss.value(scores[i], 2.0 * own - 1.0)
        if predicted[i] == own:
            counts[part, RIGHT, own] += c
        else:
            sums[part, WRONG] += c
        counts[part, PREDICTED, predicted[i]] += c
        counts[part, SUPPORT, own] += c


@kernel
def class_tally(scores, predicted, labels, weights, parts, thresholds, loss, ova, examples, sums, counts):
    for i in range(len(labels)):
        c, part, own = np.float64(weights[i]), parts[i], np.int64(labels[i])
        examples[part] += 1
        if c == 0.0:
            continue
        row = scores[i]
        rival, ahead, value, mine = -np.inf, 0, 0.0, row[own] - thresholds[own]
        for k in range(len(row)):
            if k != own:
                rival = max(rival, row[k])
                other = row[k] - thresholds[k]
                ahead += 1 if other > mine or (other == mine and k < own) else 0
            if ova:
                value += loss.value(row[k], 1.0 if k == own else -1.0)
        if not ova and len(row) > 1:
            value = loss.value(row[own] - rival, 1.0)
        sums[part, WEIGHT] += c
        sums[part, LOSS] += c * value
        for j in range(len(TOP)):
            sums[part, TOP_FIRST + j] += c if ahead < TOP[j] else 0.0
        if predicted[i] == own:
            counts[part, RIGHT, own] += c
        else:
            sums[part, WRONG] += c
        counts[part, PREDICTED, predicted[i]] += c
        counts[part, SUPPORT, own] += c


@kernel
def confusion_pass(predicted, labels, weights, confusion):
    for i in range(len(labels)):
        confusion[np.int64(labels[i]), predicted[i]] += weights[i]
