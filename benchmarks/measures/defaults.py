"""Is `streamsvm train` with nothing tuned as good as its simplest rivals, on ordinary data and on ugly data?

    streamsvm        one pass, default settings, rows in mixed order; probabilities as `predict` gives them
    vw, vw-hinge     Vowpal Wabbit, logistic and hinge loss, one pass, its defaults
    sgd, sgd-scaled  SGDClassifier, one epoch, its defaults; without and with a StandardScaler before it
    logreg(-scaled)  LogisticRegression, at most 30,000 rows: what a linear model attains
    boosted          HistGradientBoostingClassifier, with --upper: what trees attain

A set is ok if the error is within 1 point and the log loss within 5 % or 0.005 of the best of vw and sgd, or within two
standard errors of the difference on the same rows, whichever is largest. Files and the figures of peers are kept beside
the other generated files, so that a second run only runs streamsvm.
"""

import hashlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from bench import Bench, Cell, Check, Section
from peers.peer import WORKERS
from peers.streamsvm_cli import objects
from process import Command, PeerFailedError, run
from scoring import auc, calibration_error, log_losses_of
from sets import SETS, Kept, NoFileError, prepared
from sets.rows import test_codes

WORKER = WORKERS / "default_peers.py"
VW, SGD = ("vw", "vw-hinge"), ("sgd", "sgd-scaled")
RIVALS = (*VW, *SGD)
PEERS = (*RIVALS, "logreg", "logreg-scaled")
UPPER = "boosted"
POINT, LOSS_SHARE, LOSS_LEAST = 0.01, 0.05, 0.005


class Quality(NamedTuple):
    """What a program made of the test rows of a set."""

    wrong: np.ndarray  # of each row
    losses: np.ndarray | None  # of each row, where there are probabilities
    auc: float
    ece: float

    @property
    def error(self) -> float:
        return float(self.wrong.mean())

    @property
    def log_loss(self) -> float:
        return float("nan") if self.losses is None else float(self.losses.mean())


class Distance(NamedTuple):
    """How far a mean is above the best rival's, and how far it may be."""

    above: float
    allowed: float
    rival: str

    @property
    def ok(self) -> bool:
        return self.above <= self.allowed


def defaults(bench: Bench) -> Section:
    names = _wanted(bench)
    peers = [*PEERS, *[UPPER] * bench.choice.upper]
    section = Section(
        "defaults",
        "One pass with nothing tuned: test error in %, log loss, AUC, calibration error",
        ["set", "ours", *peers, "above best", "allowed", "loss", "vw", "above", "allowed", "AUC", "vw",
         "ECE", "vw", "verdict"],
        notes=["fresh sets (*) are not looked at while constants are chosen", "above best: of vw and sgd; in points"],
        decimals=2,
    )  # fmt: skip
    if bench.streamsvm is None or bench.real is None:
        section.notes = ["needs --data DIR" if bench.streamsvm else "streamsvm cannot run here"]
        return section
    found = list(_prepared(bench, section, names, peers))
    for one, told in zip(found, _ours(bench, found), strict=False):
        _judge(bench, section, one, told, peers)
    _close(section)
    return section


def _wanted(bench: Bench) -> list[str]:
    choice = bench.choice
    chosen = choice.sets or tuple(SETS)
    return [name for name in SETS if name in chosen and choice.fresh in (None, SETS[name].fresh)]


def _prepared(bench: Bench, section: Section, names: list[str], peers: list[str]) -> Iterator[Kept]:
    """The files of each set, and what the peers make of it."""
    assert bench.real
    for name in names:
        try:
            one = prepared(name, bench.real, bench.folder / "defaults")
        except NoFileError as error:
            section.notes.append(f"{name} is left out: {error}")
            continue
        missing = [peer for peer in peers if not _figures(one, peer).exists()]
        if missing:
            bench.say(f"  {name}: {', '.join(missing)}")
            targets = [f"{peer}={_figures(one, peer)}" for peer in missing]
            try:
                told = objects(run(Command([sys.executable, str(WORKER), str(one.folder), *targets])).output)
                section.notes += [f"{name}: {line['system']}: {line['failure']}" for line in told if line["failure"]]
            except PeerFailedError as error:
                section.notes.append(f"{name}: {error}")
        yield one


def _figures(one: Kept, peer: str) -> Path:
    """Named by what the peers were told to do too: a change of their worker is a change of their figures."""
    return one.folder / f"{peer}-{hashlib.sha256(WORKER.read_bytes()).hexdigest()[:8]}.npz"


def _ours(bench: Bench, found: list[Kept]) -> Iterator[dict[str, Any]]:
    """streamsvm on all sets in one process, each as soon as it is done."""
    jobs = [
        {"name": one.name, "train": str(one.path("train")), "test": str(one.path("test")), "words": one.words}
        for one in found
    ]
    argv = [sys.executable, str(WORKERS / "default_train.py"), str(bench.work), *bench.choice.train_options]
    environment = {"STREAMSVM_CACHE_DIR": str(bench.work / "cache"), **os.environ}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(jobs))
        process.stdin.close()
        for line in process.stdout:
            yield json.loads(line)


def _judge(bench: Bench, section: Section, one: Kept, told: dict[str, Any], peers: list[str]) -> None:
    codes = test_codes(one.folder)
    every = {peer: _peer_quality(one, peer, codes) for peer in peers}
    rivals = {peer: quality for peer, quality in every.items() if peer in RIVALS and quality is not None}
    mark = "*" if SETS[one.name].fresh else ""
    errors: list[Cell] = [100 * quality.error if quality else None for quality in every.values()]
    if "failure" in told or not rivals:
        reason = told.get("failure", "no peer could learn it")
        section.notes.append(f"{one.name}: {reason}")
        section.rows.append([one.name + mark, None, *errors, *[None] * 10, "FAILED"])
        section.raw[one.name] = {"failure": reason, "ok": False}
        return
    ours = _our_quality(one, bench.work / f"{one.name}.parquet", codes)
    error, loss = _error_distance(ours, rivals), _loss_distance(ours, rivals)
    verdict = " ".join(["error"] * (not error.ok) + ["loss"] * (loss is not None and not loss.ok)) or "ok"
    vw = rivals.get("vw")
    section.rows.append([
        one.name + mark, 100 * ours.error, *errors, 100 * error.above, 100 * error.allowed,
        *_loss_cells(ours, vw, loss), _cell(ours.auc), _cell(vw and vw.auc), _cell(ours.ece), _cell(vw and vw.ece),
        verdict,
    ])  # fmt: skip
    section.raw[one.name] = {
        "fresh": SETS[one.name].fresh,
        "ok": verdict == "ok",
        "error": error._asdict(),
        "loss": loss._asdict() if loss else None,
        "figures": {name: _as_json(quality) for name, quality in {"streamsvm": ours, **every}.items() if quality},
        "train": told,
    }
    theirs = 100 * rivals[error.rival].error
    bench.say(f"  {one.name}: {100 * ours.error:.2f} %, {error.rival} {theirs:.2f} %: {verdict}")


def _error_distance(ours: Quality, rivals: dict[str, Quality]) -> Distance:
    best = min(rivals, key=lambda name: rivals[name].error)
    noise = _two_errors(ours.wrong.astype(float) - rivals[best].wrong)
    return Distance(ours.error - rivals[best].error, max(POINT, noise), best)


def _loss_distance(ours: Quality, rivals: dict[str, Quality]) -> Distance | None:
    """None where ours, or every rival, has no probabilities."""
    probable = {name: quality for name, quality in rivals.items() if quality.losses is not None}
    if not probable or ours.losses is None:
        return None
    best = min(probable, key=lambda name: probable[name].log_loss)
    theirs = probable[best].losses
    assert theirs is not None
    allowed = max(LOSS_SHARE * probable[best].log_loss, LOSS_LEAST, _two_errors(ours.losses - theirs))
    return Distance(ours.log_loss - probable[best].log_loss, allowed, best)


def _two_errors(differences: np.ndarray) -> float:
    """Two standard errors of the mean."""
    return float(2.0 * differences.std() / np.sqrt(differences.size))


def _peer_quality(one: Kept, peer: str, codes: np.ndarray) -> Quality | None:
    path = _figures(one, peer)
    if not path.exists():
        return None
    with np.load(path) as stored:
        return _quality(stored["codes"], stored["scores"], stored["probabilities"], codes)


def _our_quality(one: Kept, predicted: Path, codes: np.ndarray) -> Quality:
    """Of a table of predictions. Of two classes the probability is that of the second."""
    table = pq.read_table(predicted)
    written = table["prediction"].to_numpy().astype(np.int64)
    names = [name for name in table.column_names if name.startswith("probability")]
    probable = np.column_stack([table[name].to_numpy() for name in names]) if names else np.zeros(0)
    if one.classes > 2:
        return _quality(written, np.zeros(0), probable, codes)
    if names:
        probable = np.column_stack([1.0 - probable[:, 0], probable[:, 0]])
    return _quality((written > 0).astype(np.int64), table["score"].to_numpy(), probable, codes)


def _quality(predicted: np.ndarray, scores: np.ndarray, probable: np.ndarray, codes: np.ndarray) -> Quality:
    losses = log_losses_of(probable, codes) if probable.size else None
    ece = calibration_error(probable, codes) if probable.size else float("nan")
    return Quality(predicted != codes, losses, auc(scores, codes) if scores.size else float("nan"), ece)


def _loss_cells(ours: Quality, vw: Quality | None, loss: Distance | None) -> list[Cell]:
    above = [_cell(loss.above), _cell(loss.allowed)] if loss else [None, None]
    return [_cell(ours.log_loss), _cell(vw.log_loss) if vw else None, *above]


def _cell(value: float | None) -> str | None:
    return None if value is None or value != value else f"{value:.4f}"


def _as_json(quality: Quality) -> dict[str, float]:
    return {"error": quality.error, "log_loss": quality.log_loss, "auc": quality.auc, "ece": quality.ece}


def _close(section: Section) -> None:
    """How many sets are ok, and whether the median set is better than with either rival."""
    judged = list(section.raw.values())
    done = [one["figures"] for one in judged if "figures" in one]
    good = sum(one["ok"] for one in judged)
    section.checks.append(Check("sets that are ok", good, len(judged), f"of {len(judged)}"))
    if not done:
        return
    ranks = []
    for title, rivals in (("vw", VW), ("sgd", SGD)):
        behind = [100 * (_least(one, rivals) - one["streamsvm"]["error"]) for one in done]
        what = f"median set: error below that of {title}"
        section.checks.append(Check(what, statistics.median(behind), 0.0, "points"))
    for one in done:
        ours = one["streamsvm"]["error"]
        ranks.append(1 + sum(_least(one, rivals) < ours for rivals in (VW, SGD)))
    mean = 100 * statistics.mean(one["streamsvm"]["error"] for one in done)
    section.notes.append(
        f"{good} of {len(judged)} ok; rank among ours, vw and sgd: median {statistics.median(ranks):g}, mean "
        f"{statistics.mean(ranks):.2f}; mean error {mean:.3f} %"
    )


def _least(figures: dict[str, dict[str, float]], rivals: tuple[str, ...]) -> float:
    return min((figures[name]["error"] for name in rivals if name in figures), default=float("inf"))
