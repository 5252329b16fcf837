"""How good probabilities are: log loss, Brier score, calibration error, and a table to see where they go wrong.

    log loss              mean of -log p_y, p_y kept away from 0 and 1 by 2.2e-16, as scikit-learn does
    Brier score           two classes: mean of (p - y)^2;  more: mean over rows of the sum over k of (p_k - 1[y = k])^2
    calibration error     sum over 15 bins of equal width of p:  share of rows in it * |mean p - observed share|
    reliability table     of 10 such bins: weight, mean p, observed share

For two classes p is the probability of the second one, and what is observed is that class. For more p is that of the
most probable class, and what is observed is that it is the right one.
"""

from typing import Any

import numpy as np

from streamsvm.batch import Float32s, Float64s, Int64s
from streamsvm.jit import kernel

FINE = 30  # bins that can be put together to 15 and to 10
ERROR_BINS, TABLE_BINS = 15, 10
LEAST = float(np.finfo(np.float64).eps)
WEIGHT, LOG_LOSS, BRIER = range(3)
NOTHING = {"log_loss": None, "brier": None, "ece": None, "reliability": None}


class Reliability:
    """Sums for each part of the rows: for all of them, or for each slice."""

    def __init__(self, parts: int = 1) -> None:
        self._sums: Float64s = np.zeros((parts, 3))
        self._bins: Float64s = np.zeros((parts, FINE, 3))  # weight, sum of probabilities, of what was observed

    def see(self, probabilities: Float64s, labels: Float32s, weights: Float32s, parts: Int64s) -> None:
        run = pair_reliability if probabilities.ndim == 1 else class_reliability
        run(probabilities, labels, weights, parts, self._sums, self._bins)

    def clear(self, part: int) -> None:
        """Forget the rows of a part."""
        self._sums[part] = 0.0
        self._bins[part] = 0.0

    def together(self) -> "Reliability":
        """All parts as one."""
        other = Reliability()
        other._sums[0], other._bins[0] = self._sums.sum(axis=0), self._bins.sum(axis=0)
        return other

    def state(self) -> dict[str, Any]:
        """Everything that the future depends on, copied."""
        return {"sums": self._sums.copy(), "bins": self._bins.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state` was taken, with as many parts."""
        self._sums[:], self._bins[:] = state["sums"], state["bins"]

    def result(self, part: int = 0) -> dict[str, Any]:
        weight, log_loss, brier = self._sums[part].tolist()
        if not weight:
            return dict(NOTHING)
        merged = _merged(self._bins[part], ERROR_BINS)
        off = float(np.abs(merged[:, 1] - merged[:, 2]).sum()) / weight
        return {
            "log_loss": log_loss / weight,
            "brier": brier / weight,
            "ece": off,
            "reliability": _table(_merged(self._bins[part], TABLE_BINS)),
        }


def _merged(bins: Float64s, count: int) -> Float64s:
    merged: Float64s = bins.reshape(count, FINE // count, 3).sum(axis=1)
    return merged


def _table(bins: Float64s) -> list[dict[str, float | None]]:
    width = 1.0 / len(bins)
    return [
        {
            "from": round(place * width, 6),
            "to": round((place + 1) * width, 6),
            "weight": weight,
            "probability": chance / weight if weight else None,
            "observed": observed / weight if weight else None,
        }
        for place, (weight, chance, observed) in enumerate(bins.tolist())
    ]


@kernel
def pair_reliability(probabilities, labels, weights, parts, sums, bins):
    for i in range(len(labels)):
        c, part, chance = np.float64(weights[i]), parts[i], probabilities[i]
        if c == 0.0:
            continue
        observed = 1.0 if labels[i] > 0.5 else 0.0
        right = chance if observed else 1.0 - chance
        sums[part, WEIGHT] += c
        sums[part, LOG_LOSS] -= c * np.log(min(max(right, LEAST), 1.0 - LEAST))
        sums[part, BRIER] += c * (chance - observed) ** 2
        row = bins[part, min(max(np.int64(chance * FINE), 0), FINE - 1)]
        row[0] += c
        row[1] += c * chance
        row[2] += c * observed


@kernel
def class_reliability(probabilities, labels, weights, parts, sums, bins):
    for i in range(len(labels)):
        c, part, own = np.float64(weights[i]), parts[i], np.int64(labels[i])
        if c == 0.0:
            continue
        best, off = 0, 0.0
        for k in range(probabilities.shape[1]):
            chance = probabilities[i, k]
            off += (chance - 1.0) ** 2 if k == own else chance**2
            if chance > probabilities[i, best]:
                best = k
        top = probabilities[i, best]
        sums[part, WEIGHT] += c
        sums[part, LOG_LOSS] -= c * np.log(min(max(probabilities[i, own], LEAST), 1.0 - LEAST))
        sums[part, BRIER] += c * off
        row = bins[part, min(max(np.int64(top * FINE), 0), FINE - 1)]
        row[0] += c
        row[1] += c * top
        row[2] += c if best == own else 0.0
