"""The classic SVM-SGD loop in plain C (`workers/svmsgd.c`): the rate a further pass over RAM should reach."""

import json
from pathlib import Path
from statistics import mean

from data import Dataset
from peers.compiler import build, compiler
from process import Command, run

L2 = 1e-5


class SvmSgd:
    name = "svmsgd.c"
    settings = f"our own C loop, hinge, l2 {L2:g}, float64 weights, rows in RAM, cc -O3 -march=native"

    def __init__(self, work: Path) -> None:
        self._work = work
        self._program: Path | None = None

    def available(self) -> str | None:
        return None if compiler() else "no C compiler (cc) on this machine"

    def pass_seconds(self, data: Dataset, passes: int) -> float:
        """The mean of the passes after the first, which is (T(N) - T(1)) / (N - 1) without the reading."""
        self._program = self._program or build("svmsgd.c", self._work)
        done = run(Command([str(self._program), str(data.svm), str(max(passes, 2)), str(L2)]))
        return float(mean(json.loads(done.output)["pass_seconds"][1:]))
