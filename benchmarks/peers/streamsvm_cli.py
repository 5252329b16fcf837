"""streamsvm itself, as a user runs it: the installed command line, with `--json`."""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data import Dataset
from process import Command, PeerFailedError, run


@dataclass(frozen=True)
class StreamSvm:
    cache: Path  # compiled kernels, and the rows of further passes
    name: str = "streamsvm"
    options: tuple[str, ...] = ()

    @property
    def settings(self) -> str:
        return " ".join(("streamsvm train", *self.options, "else its defaults"))

    def available(self) -> str | None:
        if not self._program:
            return "the streamsvm command is not installed"
        try:
            run(self.command("--help"))
        except PeerFailedError as error:
            return str(error)
        return None

    def train(self, data: Dataset, model: Path, passes: int) -> Command:
        return self.command("train", str(data.svm), "-o", str(model), "--passes", str(passes), "--json", *self.options)

    def test_error(self, model: Path, test: Dataset) -> float:
        return float(objects(run(self.command("evaluate", str(model), str(test.svm), "--json")).output)[-1]["error"])

    def solvers(self) -> list[str]:
        """The names of all its solvers."""
        told = run(Command([sys.executable, "-c", "from streamsvm.solvers import SOLVERS; print(*SOLVERS)"])).output
        return told.split()

    def command(self, *words: str) -> Command:
        return Command([str(self._program), *words], {"STREAMSVM_CACHE_DIR": str(self.cache)})

    @property
    def _program(self) -> str | None:
        return shutil.which("streamsvm", path=str(Path(sys.executable).parent)) or shutil.which("streamsvm")


def objects(output: str) -> list[dict[str, Any]]:
    """The JSON lines of a run; the result is the last."""
    found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    if not found:
        raise ValueError("streamsvm printed no JSON object")
    return found


def pass_ends(output: str) -> list[float]:
    """Seconds at which each pass ended, from the progress lines: the last line that still names the pass."""
    ends: dict[int, float] = {}
    for line in objects(output):
        if "pass" in line and "seconds" in line:
            ends[int(line["pass"])] = float(line["seconds"])
    return [ends[number] for number in sorted(ends)]
