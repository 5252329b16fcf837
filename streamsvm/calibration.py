"""From scores to probabilities (a stub, to be written)."""

from typing import Any

import numpy as np

from streamsvm.batch import Float64s


class Calibration:
    def probabilities(self, scores: Float64s) -> Float64s: ...

    def metadata(self) -> dict[str, Any]: ...

    def arrays(self) -> dict[str, Any]: ...

    @classmethod
    def stored(cls, metadata: Any, arrays: Any, columns: int) -> "Calibration | None":
        return None


def logistic(scores: Float64s) -> Float64s:
    """The probabilities that the logistic loss means; of several classes those of each, made to add up to 1."""
    found: Float64s = np.exp(-np.logaddexp(0.0, -scores))
    return found if scores.ndim == 1 else found / found.sum(axis=1, keepdims=True)
