"""Tables: dense Parquet beside what reads it, and clicks in four formats beside Vowpal Wabbit."""

import sys
from functools import partial
from math import nan
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

from bench import Bench, Cell, Check, Section, ratio
from clicks import COLUMNS, Clicks, clicks
from dense import dense_file
from measures.paces import QUARTER, Job, Pace, can_run, paced
from peers import StreamSvm
from peers.peer import WORKERS
from peers.streamsvm_cli import objects
from peers.vowpal import DRIVER
from process import Command, PeerFailedError, run
from scoring import auc, log_loss

SOLVER = "asgd"
BITS = 22
BATCHES = (65536, 16384)  # rows; the quicker of them is the yardstick
WARM_ROWS = 1000
OURS = {f"streamsvm {kind}": kind for kind in ("parquet", "tsv", "jsonl", "vw")}
TARGETS = {"parquet": 3.0, "tsv": 3.0}  # times as fast as vw


def tables_dense(bench: Bench) -> Section:
    """Parquet to a model, against `iter_batches` alone."""
    section = Section(
        "tables_dense",
        f"Parquet with 30 float columns, {bench.dense_rows} rows, in M rows/s",
        ["program", "quarter s", "all s", "worst/best", "whole process", "slope", "own clock"],
        notes=["own clock: inside the process, imports left out"],
    )
    rows = (bench.dense_rows // QUARTER, bench.dense_rows)
    few, every = (dense_file(bench.folder, count) for count in rows)
    programs = {f"iter_batches {batch}": partial(_iter_batches, batch) for batch in BATCHES}
    ours, small = bench.streamsvm, dense_file(bench.folder, WARM_ROWS)
    if ours and can_run(section, "streamsvm", _train_dense(bench, ours, small)):
        programs["streamsvm"] = partial(_train_dense, bench, ours)
    jobs = {name: (Job(make(few), few, rows[0]), Job(make(every), every, rows[1])) for name, make in programs.items()}
    paces = paced(bench, section, jobs)
    for name, pace in paces.items():
        rates = [rate / 1e6 for rate in (pace.whole, pace.steady, ratio(rows[1], pace.own_seconds))]
        section.rows.append([name, pace.few.best, pace.all.best, pace.all.spread, *rates])
    if found := paces.pop("streamsvm", None):
        section.checks += _shares(found, list(paces.values()))
    return section


def _shares(ours: Pace, readers: list[Pace]) -> list[Check]:
    """Against the quicker reader."""
    whole = ratio(ours.whole, max((pace.whole for pace in readers), default=nan))
    steady = ratio(ours.steady, max((pace.steady for pace in readers if pace.steady == pace.steady), default=nan))
    return [
        Check("dense Parquet to a model, slope, against iter_batches", 100 * steady, 85.0, "%"),
        Check("dense Parquet to a model, whole process, against iter_batches", 100 * whole, 85.0, "%"),
    ]


def _iter_batches(batch: int, file: Path) -> Command:
    return Command([sys.executable, str(WORKERS / "parquet_rate.py"), str(file), str(batch)])


def _train_dense(bench: Bench, ours: StreamSvm, file: Path) -> Command:
    model = str(bench.work / "dense.safetensors")
    words = ["--solver", SOLVER, "--passes", "1", "--label", "label", "--json", "--quiet"]
    return ours.command("train", str(file), "-o", model, *words)


class Quality(NamedTuple):
    """On test rows."""

    log_loss: float = nan
    auc: float = nan

    def cells(self) -> list[Cell]:
        return [f"{value:.5f}" if value == value else None for value in self]


def tables_clicks(bench: Bench) -> Section:
    """A click table to a model, and how good the model is: streamsvm from each format, vw from its own."""
    section = Section(
        "tables_clicks",
        f"{bench.click_rows} rows of clicks to a model, 2^{BITS} weights, logistic loss, {SOLVER}",
        ["program", "s", "worst/best", "rows/s", "MB/s", "x vw", "rows/s, slope", "x vw", "log loss", "AUC"],
        notes=["MB/s: of the file that was read; log loss and AUC: on the rows that follow, which drifted on"],
    )
    counts = (WARM_ROWS, bench.click_rows // QUARTER, bench.click_rows)
    small, quarter, whole = (clicks(bench.folder, count) for count in counts)
    programs = ["vw"] if bench.peer("vw") else []
    programs += OURS if bench.streamsvm else []
    able = [name for name in programs if can_run(section, name, _train(bench, name, small).command)]
    jobs = {name: (_train(bench, name, quarter), _train(bench, name, whole)) for name in able}
    paces = paced(bench, section, jobs)
    quality = {name: _quality(bench, section, name, whole) for name in paces}
    _fill(section, paces, quality, whole)
    section.raw["quality"] = {name: one._asdict() for name, one in quality.items()}
    section.raw["truth"] = whole.truth
    return section


def _fill(section: Section, paces: dict[str, Pace], quality: dict[str, Quality], table: Clicks) -> None:
    """The table, with what the truth and a constant attain, and the promises."""
    vw = paces.get("vw")
    times: dict[str, tuple[float, float]] = {}
    for name, pace in paces.items():
        times[name] = (ratio(pace.whole, vw.whole), ratio(pace.steady, vw.steady)) if vw else (nan, nan)
        speed = [
            pace.all.best,
            pace.all.spread,
            pace.whole,
            pace.megabytes,
            times[name][0],
            pace.steady,
            times[name][1],
        ]
        section.rows.append([name, *speed, *quality[name].cells()])
    truth = table.truth["test"]
    bounds = {
        "the truth": Quality(truth["log_loss"], truth["auc"]),
        "a constant": Quality(truth["constant_log_loss"], 0.5),
    }
    section.rows += [[name, *[None] * 7, *bound.cells()] for name, bound in bounds.items()]
    for name, kind in OURS.items():
        if vw and name in paces:
            section.checks += _promises(kind, *times[name], quality[name], quality["vw"])


def _promises(kind: str, whole: float, steady: float, ours: Quality, theirs: Quality) -> list[Check]:
    worse = 100.0 * (ratio(ours.log_loss, theirs.log_loss) - 1.0)
    better = 100.0 * (ours.auc - theirs.auc)
    checks = [
        Check(f"clicks from {kind}, log loss above that of vw", worse, 0.0, "%", at_least=False),
        Check(f"clicks from {kind}, AUC above that of vw", better, 0.0, "points"),
    ]
    if kind in TARGETS:
        checks.insert(0, Check(f"clicks from {kind}, whole process, against vw", whole, TARGETS[kind]))
        checks.insert(1, Check(f"clicks from {kind}, slope, against vw", steady, TARGETS[kind]))
    return checks


def _model(bench: Bench, name: str, table: Clicks) -> Path:
    return bench.work / f"{table.name}-{name.replace(' ', '-')}.safetensors"


def _train(bench: Bench, name: str, table: Clicks) -> Job:
    """VW text holds logarithms already, and has its label in front."""
    kind, model = OURS.get(name, "vw"), str(_model(bench, name, table))
    file = table.path("train", kind)
    if name == "vw":
        return Job(_vw("-d", str(file), "-b", str(BITS), "--loss_function", "logistic", "-f", model), file, table.rows)
    assert bench.streamsvm
    words = ["--solver", SOLVER, "--loss", "logistic", "--set", f"features.hash_bits={BITS}"]
    if kind != "vw":
        words += ["--label", "label", "--set", 'features.log1p=["I*"]']
    if kind == "tsv":
        words += ["--set", f"data.columns=[{','.join(COLUMNS)}]"]
    command = bench.streamsvm.command("train", str(file), *words, "-o", model, "--json", "--quiet")
    return Job(command, file, table.rows)


def _vw(*words: str) -> Command:
    return Command([sys.executable, "-c", DRIVER, *words, "--no_stdin", "--quiet"])


def _quality(bench: Bench, section: Section, name: str, table: Clicks) -> Quality:
    """Of the model that the last run on all rows left."""
    try:
        return _vw_quality(bench, table) if name == "vw" else _our_quality(bench, name, table)
    except (PeerFailedError, ValueError, KeyError) as error:
        section.notes.append(f"{name} on test rows: {error}")
        return Quality()


def _our_quality(bench: Bench, name: str, table: Clicks) -> Quality:
    assert bench.streamsvm
    model, test = _model(bench, name, table), table.path("test", OURS[name])
    told = objects(run(bench.streamsvm.command("evaluate", str(model), str(test), "--json")).output)[-1]
    if told["examples"] != table.truth["test"]["rows"]:
        raise ValueError(f"{told['examples']} of {table.truth['test']['rows']} rows were read")
    return Quality(float(told["log_loss"]), float(told["auc"]))


def _vw_quality(bench: Bench, table: Clicks) -> Quality:
    """Its predictions are margins."""
    predictions = bench.work / "clicks-vw.predictions"
    test = table.path("test", "vw")
    run(_vw("-d", str(test), "-t", "-i", str(_model(bench, "vw", table)), "-p", str(predictions)))
    scores = np.loadtxt(predictions)
    labels = pq.read_table(table.path("test", "parquet"), columns=["label"])["label"].to_numpy()
    return Quality(log_loss(scores, labels), auc(scores, labels))
