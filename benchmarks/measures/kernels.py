"""`map="rbf"`, with nothing else said, beside LIBSVM with its RBF kernel (scikit-learn's SVC) and a linear model.

All learn from the same rows in memory, each in a process of its own, ours with its kernels compiled before the clock
runs. LIBSVM has a C and a gamma that are known to be good for the set; ours chooses everything by itself. Where LIBSVM
cannot learn all rows in its time, it gets as many as it can, twice as many each time, and its time for all of them is
carried on by how it grew over the last doubling, though at most with the square of the rows. Its accuracy is then the
one of the literature for all rows (C.-J. Lin's comparison for covtype with seven classes; as good for two).
"""

import json
import math
import sys
from pathlib import Path
from typing import Any, NamedTuple

from bench import Bench, Check, Section, ratio
from data import Pair
from measures.real_sets import COVTYPE, labelled_sets
from process import Command, PeerFailedError, run

WORKER = Path(__file__).resolve().parents[1] / "workers" / "kernel_fit.py"
PATIENCE, HURRIED = 600.0, 5.0  # seconds of LIBSVM for each set
FIRST_ROWS = 10_000


class Task(NamedTuple):
    """A set, which of its classes, what LIBSVM is to have, and the share of the gap that is to be closed."""

    name: str
    source: str
    choice: str
    svc: dict[str, float]
    wanted: float
    known: float | None = None  # accuracy of an RBF kernel on all rows, where LIBSVM cannot have them


TASKS = (
    Task("ijcnn1", "ijcnn1", "all", {"C": 32.0, "gamma": 2.0}, 0.9),
    Task("MNIST 3 against 8", "mnist", "3,8", {"C": 10.0, "gamma": 0.02}, 0.9),
    Task("MNIST, 10 classes", "mnist", "all", {"C": 10.0, "gamma": 0.02}, 0.9),
    Task("covtype, 2 against the rest", COVTYPE, "2", {"C": 10.0, "gamma": 32.0}, 0.6, 0.9611),
    Task("covtype, 7 classes", COVTYPE, "all", {"C": 10.0, "gamma": 32.0}, 0.6, 0.9611),
    Task("a9a", "a9a", "all", {"C": 1.0, "gamma": 0.05}, 0.0),
)


def kernels(bench: Bench) -> Section:
    section = Section(
        "kernels",
        "kernel accuracy at streaming cost: map rbf, LIBSVM with RBF, a linear model",
        [
            "data",
            "linear",
            "RBF",
            "map rbf",
            "gap closed",
            "LIBSVM s",
            "of rows",
            "all rows, s",
            "ours s",
            "theirs / ours",
            "predict s, theirs",
            "ours",
            "memory MB, theirs",
            "ours",
        ],
    )
    if bench.real is None:
        section.notes.append("not measured: it needs --real DIR")
        return section
    pairs = {pair.name: pair for pair in labelled_sets(bench, sorted({task.source for task in TASKS}))}
    for task in TASKS:
        pair = pairs.get(task.source)
        if pair is None or pair.skipped or pair.train is None:
            section.notes.append(f"{task.name} is left out: {pair.skipped if pair else 'in a hurry'}")
            continue
        bench.say(f"  {task.name}")
        try:
            _measure(bench, section, task, pair)
        except PeerFailedError as error:
            section.notes.append(f"{task.name}: {error}")
    return section


def _measure(bench: Bench, section: Section, task: Task, pair: Pair) -> None:
    ours = _fit(task, pair, "ours", {"rounds": bench.repeat})
    linear = _fit(task, pair, "linear", {})
    svc, all_rows = _libsvm(task, pair, ours["rows"], HURRIED if bench.quick else PATIENCE)
    rbf = svc["accuracy"] if svc["rows"] == ours["rows"] or task.known is None else task.known
    gap = rbf - linear["accuracy"]
    closed = (ours["accuracy"] - linear["accuracy"]) / gap if gap > 0.0 else math.nan
    times = ratio(all_rows, ours["fit"])
    section.rows.append(
        [
            task.name, 100 * linear["accuracy"], 100 * rbf, 100 * ours["accuracy"], 100 * closed, svc["fit"],
            svc["rows"] / ours["rows"], all_rows, ours["fit"], times, svc["predict"], ours["predict"],
            svc["memory"] / 1e6, ours["memory"] / 1e6,
        ]
    )  # fmt: skip
    section.raw[task.name] = {"ours": ours, "svc": svc, "linear": linear, "all rows": all_rows}
    bench.say(f"    {100 * closed:.1f} % of the gap closed, {times or math.nan:.1f} times as fast")
    if task.wanted:
        section.checks.append(Check(f"{task.name}: gap closed", 100 * closed, 100 * task.wanted, "%"))
        section.checks.append(Check(f"{task.name}: LIBSVM's time for all rows / ours", times or math.nan, 20.0))


def _libsvm(task: Task, pair: Pair, rows: int, patience: float) -> tuple[dict[str, Any], float]:
    """The largest run that it could make in time, and its time for all rows."""
    count, before = min(FIRST_ROWS, rows), None
    while True:
        found = _fit(task, pair, "svc", task.svc, 0 if count >= rows else count)
        if found["rows"] >= rows:
            return found, found["fit"]
        growth = math.log2(found["fit"] / before["fit"]) if before is not None else 2.0
        growth = min(max(growth, 1.0), 2.0)
        all_rows = found["fit"] * (rows / found["rows"]) ** growth
        if found["fit"] * 2.0**growth > patience:
            return found, all_rows
        count, before = rows if all_rows <= patience else 2 * count, found


def _fit(task: Task, pair: Pair, who: str, options: dict[str, Any], rows: int = 0) -> dict[str, Any]:
    assert pair.train is not None and pair.test is not None
    files = [str(pair.train.svm), str(pair.test.svm)]
    arguments = [*files, task.choice, who, str(rows), json.dumps(options)]
    done = run(Command([sys.executable, str(WORKER), *arguments]), limit=4 * PATIENCE)
    told: dict[str, Any] = json.loads(done.output.strip().splitlines()[-1])
    return told
