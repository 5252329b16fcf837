"""What tests of whole training runs share."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm.io.cache
import streamsvm.readers
from streamsvm.training import Outcome

A9A = str(Path(__file__).parents[1] / "examples/data/a9a.train.svm.gz")


class Notes:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def progress(self, now: Any) -> None:
        pass


class KilledError(Exception):
    """The process is gone, between two batches, without a word."""


class Life(Notes):
    """A listener that ends its run after so many batches, at once or by a signal, and does something after some."""

    def __init__(
        self,
        batches: int | None = None,
        *,
        politely: bool = False,
        events: Mapping[int, Callable[[], None]] = {},  # noqa: B006  (never changed)
    ) -> None:
        super().__init__()
        self._batches = batches
        self._politely = politely
        self._events = events
        self._count = 0

    def progress(self, now: Any) -> None:
        self._count += 1
        if self._count in self._events:
            self._events[self._count]()
        if self._count == self._batches:
            if not self._politely:
                raise KilledError
            os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def few_rows_a_piece() -> Iterator[pytest.MonkeyPatch]:
    """Blocks and groups of few rows, so that a short run has many places to stop at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streamsvm.readers, "SMALLEST_BLOCK", 2000)
        patch.setattr(streamsvm.readers, "LARGEST_BLOCK", 2000)
        patch.setattr(streamsvm.io.cache, "GROUP_ROWS", 70)
        yield patch


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


def class_lines(
    rows: int,
    *,
    labels: Sequence[float],
    seed: int = 0,
    noise: float = 0.3,
    width: int = 30,
    longest: int = 8,
    shares: Sequence[float] | None = None,
) -> list[str]:
    """Rows whose classes are told apart by one direction for each, but for the noise; all as often, or by shares."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((width, len(labels)))
    text = []
    for code in rng.choice(len(labels), size=rows, p=shares).tolist():
        while True:
            chosen = np.sort(rng.choice(width, longest, replace=False))
            values = rng.standard_normal(longest).round(4)
            scores = values @ truth[chosen] + noise * rng.standard_normal(len(labels))
            if int(np.argmax(scores)) == code:
                break
        text.append(f"{labels[code]} " + " ".join(f"{j + 1}:{v}" for j, v in zip(chosen, values, strict=True)))
    return text
