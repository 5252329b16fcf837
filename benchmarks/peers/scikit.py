"""scikit-learn: `load_svmlight_file`, then `SGDClassifier` with as many passes as asked (`workers/sklearn_sgd.py`)."""

import importlib.util
import json
import sys
from pathlib import Path

from data import Dataset
from peers.peer import WORKERS
from process import Command, run


class ScikitLearn:
    name = "sklearn"
    settings = "load_svmlight_file float32, SGDClassifier(hinge, max_iter = passes, tol=None), else its defaults"

    def available(self) -> str | None:
        return None if importlib.util.find_spec("sklearn") else "scikit-learn is not installed (extra: bench)"

    def train(self, data: Dataset, model: Path, passes: int) -> Command:
        return self._worker("train", str(data.svm), str(model), str(passes))

    def test_error(self, model: Path, test: Dataset) -> float:
        return float(json.loads(run(self._worker("test", str(test.svm), str(model))).output)["error"])

    def pass_seconds(self, data: Dataset, passes: int) -> float:
        """(fit with N passes - fit with one) / (N - 1), both after one reading of the file."""
        times = json.loads(run(self._worker("passes", str(data.svm), str(passes))).output)
        return float(times["many"] - times["one"]) / (passes - 1)

    def linear_svc(self, data: Dataset, model: Path, loss: str, cost: float) -> Command:
        """LinearSVC from text to a model, to its own tolerance, which is stricter than LIBLINEAR's."""
        return Command([sys.executable, str(WORKERS / "linear_svc.py"), str(data.svm), str(model), loss, repr(cost)])

    def calibrated_svc(self, train: Dataset, test: Dataset, method: str, out: Path) -> Command:
        """LinearSVC with probabilities from five folds, its defaults; those of the test rows go to `out`, an .npy."""
        argv = [sys.executable, str(WORKERS / "calibrated_svc.py"), str(train.svm), str(test.svm), method, str(out)]
        return Command(argv)

    def _worker(self, *words: str) -> Command:
        return Command([sys.executable, str(WORKERS / "sklearn_sgd.py"), *words])
