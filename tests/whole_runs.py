"""What tests of whole training runs share."""

from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.training import Outcome

A9A = str(Path(__file__).parents[1] / "examples/data/a9a.train.svm.gz")


class Notes:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def progress(self, now: Any) -> None:
        pass


def bits(outcome: Outcome) -> bytes:
    return outcome.model.weights.tobytes() + np.float64(outcome.model.bias).tobytes()


def lines(rows: int, *, seed: int = 0, noise: float = 0.5, features: int = 30) -> list[str]:
    """Rows of six features, separable but for the noise, with a quarter of them positive."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal(features)
    text = []
    for _ in range(rows):
        chosen = np.sort(rng.choice(features, 6, replace=False))
        values = rng.standard_normal(6).round(4)
        label = "1" if truth[chosen] @ values + noise * rng.standard_normal() > 1.5 else "-1"
        text.append(label + " " + " ".join(f"{j + 1}:{v}" for j, v in zip(chosen, values, strict=True)))
    return text
