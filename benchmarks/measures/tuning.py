"""What does a search cost? `tune` with many penalties against `train` with one, both from text to a model on disk."""

from functools import partial

from bench import Bench, Check, Section, failures, ratio
from data import Dataset
from peers import StreamSvm
from process import interleave, run, warm_pages

COUNTS = (4, 16, 32)  # penalties tried
PROMISED = 16
MOST = 3.0  # times one training
ONE = "train"


def tuning(bench: Bench) -> Section:
    data = bench.main
    section = Section(
        "tuning",
        f"Many penalties in one reading of {data.megabytes:.0f} MB, everything counted",
        ["command", "best s", "worst/best", "MB/s", "of one training"],
        notes=["all keep every 10th row from learning and measure on it; solver, loss and range of l2 by default"],
    )
    ours = bench.streamsvm
    if ours is None:
        section.notes.append("streamsvm cannot run here")
        return section
    commands = {ONE: ["train", "--holdout", "10"]}
    commands |= {f"tune, {count} penalties": ["tune", "--candidates", str(count)] for count in COUNTS}
    for words in commands.values():  # compiles what is missing
        _seconds(bench, ours, words, bench.small)
    jobs = {name: partial(_seconds, bench, ours, words, data) for name, words in commands.items()}
    timings = interleave(jobs, bench.repeat, bench.say)
    section.notes += failures(timings)
    section.raw = {name: timing.seconds for name, timing in timings.items()}
    times = {name: ratio(timing.best, timings[ONE].best) for name, timing in timings.items()}
    for name, timing in timings.items():
        if timing.seconds:
            section.rows.append([name, timing.best, timing.spread, data.megabytes / timing.best, times[name]])
    value = times[f"tune, {PROMISED} penalties"]
    section.checks.append(Check(f"tune with {PROMISED} penalties, of one training", value, MOST, at_least=False))
    return section


def _seconds(bench: Bench, ours: StreamSvm, words: list[str], data: Dataset) -> float:
    warm_pages(data.svm)
    model = bench.work / "tuning.model"
    model.unlink(missing_ok=True)
    return run(ours.command(words[0], str(data.svm), *words[1:], "-o", str(model), "--json")).seconds
