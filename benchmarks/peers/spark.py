"""Spark's LinearSVC on this machine (`workers/spark_svc.py`), by a Python with pyspark: this one, or SPARK_PYTHON."""

import json
import os
import shutil
import sys
from pathlib import Path

from data import Dataset
from peers.peer import WORKERS
from process import Command, PeerFailedError, Run, run


class Spark:
    """It solves one problem only, hinge with an L2 penalty, so it is no peer of the other measures."""

    name = "spark"

    def __init__(self, cores: int = 2, memory: str = "8g") -> None:
        self._python = os.environ.get("SPARK_PYTHON", sys.executable)
        self._where = [f"local[{cores}]", memory]
        self.settings = f"LinearSVC(fitIntercept=False, standardization=False, tol=0), local[{cores}], driver {memory}"

    def available(self) -> str | None:
        if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
            return "no java on this machine"
        try:
            run(Command([self._python, "-c", "import pyspark.ml, numpy"]))
        except (PeerFailedError, OSError) as error:
            return f"no pyspark: {error}. Name a Python that has it with SPARK_PYTHON"
        return None

    def version(self) -> str:
        return run(Command([self._python, "-c", "import pyspark; print(pyspark.__version__)"])).output.strip()

    def fit(self, data: Dataset, model: Path, features: int, l2: float, iterations: int, limit: float) -> Run:
        """From text to weights on disk, the Java machine and all."""
        words = [str(data.svm), str(model), str(features), repr(l2), str(iterations), *self._where]
        env = {"PYSPARK_PYTHON": self._python, "PYTHONPATH": ""}
        return run(Command([self._python, str(WORKERS / "spark_svc.py"), *words], env), limit=limit)


def objectives(done: Run) -> list[float]:
    """After 0, 1, 2, ... iterations, as Spark tells them."""
    told = next(line for line in reversed(done.output.splitlines()) if line.startswith("{"))
    return [float(value) for value in json.loads(told)["objectives"]]
