"""How good a model is, measured on a stream in bounded memory.

AUC comes from two histograms of scores, one for each class, with bins of equal relative width (float32 bit patterns in
order). Pairs that fall into one bin count half; `auc_error` bounds what that can be off: half the share of such pairs.
"""

from collections.abc import Generator, Iterable
from contextlib import closing, nullcontext
from typing import Any

import numpy as np

from streamsvm.batch import Batch, Float32s, Float64s
from streamsvm.errors import DataError
from streamsvm.jit import kernel
from streamsvm.losses import Logistic, Loss, make_loss
from streamsvm.model import Model

BIN_BITS = 19


class Metrics:
    """Sums over rows; `result` turns them into figures."""

    def __init__(self, loss: Loss) -> None:
        self._loss = loss
        self._confusion: Float64s = np.zeros((2, 2))
        self._sums: Float64s = np.zeros(3)  # weight, loss, log loss
        self._bins: Float64s = np.zeros((2, 1 << BIN_BITS))
        self.examples = 0

    def update(self, scores: Float64s, labels: Float32s, weights: Float32s) -> None:
        measure_pass(scores, labels, weights, self._loss, Logistic(), self._confusion, self._sums, self._bins)
        self.examples += len(scores)

    def result(self) -> dict[str, Any]:
        weight, loss, log_loss = self._sums.tolist()
        if not weight:
            return {"examples": self.examples, "accuracy": None, "error": None, "loss": None, "auc": None}
        wrong = float(self._confusion[0, 1] + self._confusion[1, 0])
        auc, doubt = self._auc()
        return {
            "examples": self.examples,
            "accuracy": 1.0 - wrong / weight,
            "error": wrong / weight,
            "loss": loss / weight,
            "auc": auc,
            "auc_error": doubt,
            "log_loss": log_loss / weight if isinstance(self._loss, Logistic) else None,
            "confusion": self._confusion.tolist(),
        }

    def _auc(self) -> tuple[float | None, float | None]:
        negative, positive = self._bins
        pairs = float(negative.sum() * positive.sum())
        if not pairs:
            return None, None
        below = np.cumsum(negative) - negative
        same = float(positive @ negative)
        return (float(positive @ below) + 0.5 * same) / pairs, 0.5 * same / pairs


def evaluate(model: Model, stream: Iterable[Batch]) -> dict[str, Any]:
    """The model's metrics over all rows; labels as written."""
    classes = model.class_map()
    metrics = Metrics(make_loss(model.loss))
    rows = iter(stream)
    with closing(rows) if isinstance(rows, Generator) else nullcontext():
        for batch in rows:
            coded = classes.encode(batch)
            if np.isnan(coded.labels).any():
                row = metrics.examples + int(np.argmax(np.isnan(coded.labels))) + 1
                raise DataError(f"row {row} has no label: there is nothing to compare the prediction with")
            metrics.update(model.scores(coded), coded.labels, coded.weights)
    if not metrics.examples:
        raise DataError("there is no row to evaluate on")
    return metrics.result() | {"classes": model.classes}


@kernel
def measure_pass(scores, labels, weights, loss, logistic, confusion, sums, bins):
    """Confusion [true, predicted], sums of weight and losses, and the histograms of scores."""
    single = np.empty(1, np.float32)
    bits = single.view(np.uint32)
    for i in range(len(scores)):
        c = weights[i]
        score = scores[i]
        true = 1 if labels[i] > 0.5 else 0
        label = 2.0 * true - 1.0
        confusion[true, 1 if score > 0.0 else 0] += c
        sums[0] += c
        sums[1] += c * loss.value(score, label)
        sums[2] += c * logistic.value(score, label)
        single[0] = score + 0.0  # -0.0 is 0.0
        pattern = np.int64(bits[0])
        place = pattern + 0x80000000 if pattern < 0x80000000 else 0xFFFFFFFF - pattern
        bins[true, place >> (32 - BIN_BITS)] += c
