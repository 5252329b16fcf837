"""Are probabilities as good as scikit-learn's? Brier score, calibration error and log loss on test rows of real sets.

    sklearn      CalibratedClassifierCV(LinearSVC(), method=sigmoid | isotonic), which fits five times
    streamsvm    dcd, C = 1, --calibrate platt | isotonic: squared hinge, which is LinearSVC's problem
    one pass     `streamsvm train`, online, probabilities learned on the way from rows before they are learned from

Brier score and calibration error are defined in `scoring.py`, which computes sklearn's. streamsvm's are those of its
`evaluate`, and `scoring.py` must come to the same from what its `predict` writes.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench import Bench, Cell, Check, Section, ratio
from data import Dataset, Pair, labels_of, relabelled
from measures.real_sets import SORTED, labelled_sets
from peers import StreamSvm
from peers.scikit import ScikitLearn
from peers.streamsvm_cli import objects
from process import Command, PeerFailedError, run
from scoring import brier, calibration_error, log_loss_of

SETS = ("a9a", "ijcnn1", "spamassassin", "mnist", "20newsgroups")
THEIRS = {"sklearn sigmoid": "sigmoid", "sklearn isotonic": "isotonic"}
RIVALS = {"dcd, platt": "sklearn sigmoid", "dcd, isotonic": "sklearn isotonic"}
EXACT = ("--solver", "dcd", "--C", "1", "--calibrate")
OURS: dict[str, tuple[str, ...]] = {
    "dcd, platt": (*EXACT, "platt"),
    "dcd, isotonic": (*EXACT, "isotonic"),
    "one pass": (),
}
MIX = ("--shuffle", "20000")
ALLOWED = 1.0  # % that a Brier score may be above that of sklearn
SAME = 1e-6  # figures this close are the same, relatively
PATIENCE = 1800.0  # seconds; then a program is stopped
FEW = 10  # classes of the rows to warm up with


class Quality(NamedTuple):
    """Of the probabilities of the test rows, and the seconds that learning took."""

    brier: float
    ece: float
    log_loss: float
    seconds: float

    def cells(self) -> list[Cell]:
        return [*(f"{value:.5f}" for value in self[:3]), self.seconds]


def probabilities(bench: Bench) -> Section:
    section = Section(
        "probabilities",
        "Probabilities of test rows, C = 1, squared hinge",
        ["data", "classes", "program", "Brier", "ECE", "log loss", "s"],
        notes=[
            "ECE: expected calibration error, 15 bins of equal width; of many classes that of the most probable",
            "s: one run; of sklearn reading and fitting by its own clock, of streamsvm the whole process",
            f"one pass: default settings; {', '.join(SORTED)}, sorted by class, with {' '.join(MIX)}",
        ],
    )
    ours, theirs = bench.streamsvm, bench.peer("sklearn")
    if ours is None or bench.real is None:
        section.notes = ["needs --real DIR" if ours else "streamsvm cannot run here"]
        return section
    scikit = theirs if isinstance(theirs, ScikitLearn) else None
    if not bench.quick:
        _warm(bench, ours)
    disagreements: list[float] = []
    for pair in labelled_sets(bench, SETS):
        if pair.skipped:
            section.notes.append(f"{pair.name} is left out: {pair.skipped}")
        else:
            disagreements += _compare(bench, section, pair, ours, scikit)
    most = max(disagreements, default=float("nan"))
    section.checks.append(
        Check("Brier and ECE by NumPy and by streamsvm differ, 1e-6", most / SAME, 1.0, "ppm", at_least=False)
    )
    return section


def _warm(bench: Bench, ours: StreamSvm) -> None:
    """Compile what is missing. Who cannot run will say so on each set."""
    for data in (bench.small, relabelled(bench.folder, bench.small, FEW)):
        for words in OURS.values():
            with suppress(PeerFailedError):
                run(_train(ours, data, words, str(bench.work / "warm.model")))


def _train(ours: StreamSvm, data: Dataset, words: tuple[str, ...], model: str) -> Command:
    return ours.command("train", str(data.svm), *words, "-o", model, "--json", "--quiet")


def _compare(bench: Bench, section: Section, pair: Pair, ours: StreamSvm, scikit: ScikitLearn | None) -> list[float]:
    """One set; returns how far two computations of streamsvm's figures are apart, relatively."""
    assert pair.test
    classes, labels = np.unique(labels_of(pair.test), return_inverse=True)
    found: dict[str, Quality] = {}
    disagreements: list[float] = []
    jobs: dict[str, Callable[[], Quality]] = {}
    if scikit:
        jobs |= {name: partial(_sklearn, bench, scikit, pair, method, labels) for name, method in THEIRS.items()}
    for name, words in OURS.items():
        mixed = MIX if name == "one pass" and pair.name in SORTED else ()
        jobs[name] = partial(_streamsvm, bench, ours, pair, (*words, *mixed), labels, disagreements)
    for name, job in jobs.items():
        try:
            found[name] = job()
        except (PeerFailedError, ValueError, KeyError) as error:
            section.notes.append(f"{pair.name}: {name}: {error}")
            bench.say(f"  {pair.name}: {name}: FAILED: {error}")
        else:
            section.rows.append([pair.name, len(classes), name, *found[name].cells()])
            bench.say(f"  {pair.name}: {name}: Brier {found[name].brier:.5f}, ECE {found[name].ece:.5f}")
    section.raw[pair.name] = {name: one._asdict() for name, one in found.items()}
    section.checks += [_check(pair, name, rival, found) for name, rival in RIVALS.items() if scikit]
    return disagreements


def _check(pair: Pair, name: str, rival: str, found: dict[str, Quality]) -> Check:
    what, worse = f"{pair.name}: Brier of {name}, above that of {rival}", float("nan")
    if {name, rival} <= found.keys():
        worse = 100.0 * (ratio(found[name].brier, found[rival].brier) - 1.0)
    return Check(what, worse, ALLOWED, "%", at_least=False, note=f"no worse, {ALLOWED:g} % allowed")


def _sklearn(bench: Bench, scikit: ScikitLearn, pair: Pair, method: str, labels: np.ndarray) -> Quality:
    assert pair.train and pair.test
    out = bench.work / f"probabilities-{pair.name}-{method}.npy"
    told = json.loads(run(scikit.calibrated_svc(pair.train, pair.test, method, out), limit=PATIENCE).output)
    return _scored(np.load(out), labels, float(told["seconds"]))


def _streamsvm(
    bench: Bench, ours: StreamSvm, pair: Pair, words: tuple[str, ...], labels: np.ndarray, disagreements: list[float]
) -> Quality:
    assert pair.train and pair.test
    model, test = str(bench.work / "probabilities.model"), str(pair.test.svm)
    trained = run(_train(ours, pair.train, words, model), limit=PATIENCE)
    told = objects(run(ours.command("evaluate", model, test, "--json")).output)[-1]
    if told["brier"] is None:
        raise ValueError("the model has no probabilities")
    quality = Quality(float(told["brier"]), float(told["ece"]), float(told["log_loss"]), trained.seconds)
    again = _scored(_predicted(ours, model, test, bench.work / "probabilities.txt"), labels, trained.seconds)
    disagreements += [abs(ratio(one, other) - 1.0) for one, other in zip(quality[:3], again[:3], strict=True)]
    return quality


def _predicted(ours: StreamSvm, model: str, test: str, out: Path) -> np.ndarray:
    """A column for each class; of two classes the second is written."""
    run(ours.command("predict", model, test, "--probabilities", "-o", str(out)))
    written = np.loadtxt(out, ndmin=2)
    return np.hstack([1.0 - written, written]) if written.shape[1] == 1 else written


def _scored(found: np.ndarray, labels: np.ndarray, seconds: float) -> Quality:
    if found.shape != (labels.size, labels.max() + 1):
        raise ValueError(f"probabilities of shape {found.shape} for {labels.size} rows and {labels.max() + 1} classes")
    return Quality(brier(found, labels), calibration_error(found, labels), log_loss_of(found, labels), seconds)
