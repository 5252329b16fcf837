"""LIBLINEAR's dual coordinate descent (-s 3), all rows in RAM, to its default tolerance: `workers/liblinear_fit.py`."""

import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from data import Dataset
from peers.compiler import build, compiler
from peers.peer import WORKERS
from process import Command, run


class Solved(NamedTuple):
    """A model on disk and the problem it is meant to solve; `cost` is C."""

    loss: str
    cost: float
    model: Path


class LibLinear:
    name = "liblinear"
    settings = "-s 3 -c 1 -B 1, to its default tolerance however many passes that takes"

    def __init__(self, work: Path) -> None:
        self._work = work
        self._reader: str | None = None

    def available(self) -> str | None:
        return None if importlib.util.find_spec("liblinear") else "liblinear-official is not installed (extra: bench)"

    def train(self, data: Dataset, model: Path, passes: int) -> Command:
        return self.fit(data, model, "-s 3 -c 1")

    def fit(self, data: Dataset, model: Path, options: str) -> Command:
        """As `train`, with options of its own program."""
        return self._worker("train", str(data.svm), str(model), options)

    def curve(self, data: Dataset, model: Path, options: str, tolerances: Sequence[float]) -> Command:
        """One reading, then a model MODEL-TOLERANCE for each of its tolerances; prints the seconds of each."""
        return self._worker("curve", str(data.svm), str(model), options, ",".join(map(repr, tolerances)))

    def objectives(self, data: Dataset, solved: Sequence[Solved], limit: float | None = None) -> list[float]:
        """The primal objective of models of any program, computed in NumPy by `workers/objective.py`."""
        words = [f"{one.loss}:{one.cost!r}:{one.model}" for one in solved]
        command = Command([sys.executable, str(WORKERS / "objective.py"), self.reader, str(data.svm), *words])
        return [float(value) for value in json.loads(run(command, limit=limit).output)]

    def choose(self, data: Dataset, model: Path, options: str, every: int, costs: Sequence[float]) -> dict[str, Any]:
        """Train with the C that does best on every n-th row; says which it was. Other options than those of `train`."""
        grid = ",".join(map(repr, costs))
        told = run(self._worker("choose", str(data.svm), str(model), options, str(every), grid)).output
        return dict(json.loads(told))

    def test_error(self, model: Path, test: Dataset) -> float:
        return float(json.loads(run(self._worker("test", str(test.svm), str(model))).output)["error"])

    @property
    def reader(self) -> str:
        if self._reader is None:  # without a compiler the package's own reader, several times slower
            self._reader = str(build("liblinear_reader.c", self._work, shared=True)) if compiler() else "none"
        return self._reader

    def _worker(self, mode: str, *words: str) -> Command:
        return Command([sys.executable, str(WORKERS / "liblinear_fit.py"), mode, self.reader, *words])
