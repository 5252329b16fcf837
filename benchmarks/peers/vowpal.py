"""Vowpal Wabbit: the C++ driver of the vowpalwabbit wheel, run on a file by its own reader and learner threads.

The wheel has no `vw` program, but its extension module holds the whole driver: constructed with `-d FILE`, its
`run_parser` reads, learns and makes all passes inside C++, as the program would. The module is imported alone, because
the Python package around it would add imports the program does not have.
"""

import importlib.util
import sys
import tempfile
from pathlib import Path

from data import Dataset
from process import Command, run

DRIVER = "import sys, pylibvw; vw = pylibvw.vw(sys.argv[1:]); vw.run_parser(); vw.finish()"


class VowpalWabbit:
    name = "vw"
    settings = "--loss_function hinge -b 18 --no_stdin --quiet, else its defaults; further passes -c -k --holdout_off"

    def available(self) -> str | None:
        return None if importlib.util.find_spec("pylibvw") else "vowpalwabbit is not installed (extra: bench)"

    def train(self, data: Dataset, model: Path, passes: int) -> Command:
        options = ["--loss_function", "hinge", "-b", "18", "-f", str(model)]
        if passes > 1:
            cache = str(model.with_suffix(".cache"))
            options += ["--cache_file", cache, "-k", "--passes", str(passes), "--holdout_off"]
        return self._driver("-d", str(data.vw), *options)

    def test_error(self, model: Path, test: Dataset) -> float:
        with tempfile.NamedTemporaryFile("r", suffix=".predictions") as scores:
            run(self._driver("-d", str(test.vw), "-t", "-i", str(model), "-p", scores.name))
            wrong = total = 0
            with open(test.vw) as rows:
                for row, score in zip(rows, scores, strict=True):
                    wrong += row.startswith("-") == (float(score) > 0)
                    total += 1
        return wrong / total

    def _driver(self, *options: str) -> Command:
        return Command([sys.executable, "-c", DRIVER, *options, "--no_stdin", "--quiet"])
