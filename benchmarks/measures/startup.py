"""What it costs to begin: `--help`, 1000 rows with compiled kernels at hand, and the very first run without them."""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench import Bench, Check, Section, failures, ratio
from data import Dataset
from peers import StreamSvm
from process import Command, interleave, run

IMPORTS = "import numba, pyarrow"


def start_up(bench: Bench) -> Section:
    small, data = bench.small, bench.main
    cold_small, cold_main = "train 1000 rows, cold", f"train {data.megabytes:.0f} MB, cold"
    section = Section(
        "startup",
        "Start-up of streamsvm",
        ["command", "best s", "worst/best"],
        notes=["cold: an empty STREAMSVM_CACHE_DIR, so every kernel is compiled; never part of another measure"],
    )
    ours = bench.streamsvm
    imports = Command([sys.executable, "-c", IMPORTS])
    jobs: dict[str, Callable[[], float]] = {IMPORTS: lambda: run(imports).seconds}
    if ours:
        jobs["streamsvm --help"] = lambda: run(ours.command("--help")).seconds
        jobs["train 1000 rows, warm"] = lambda: bench.train(ours, small).seconds
        jobs[cold_small] = partial(_cold, bench, ours, small)
    timings = interleave(jobs, bench.repeat, bench.say)
    if ours:
        timings |= interleave({cold_main: partial(_cold, bench, ours, data)}, 1, bench.say)
    section.notes += failures(timings)
    section.raw = {name: timing.seconds for name, timing in timings.items()}
    for name, timing in timings.items():
        if timing.seconds:
            section.rows.append([name, timing.best, timing.spread])
    if ours:
        base = timings[IMPORTS].best
        for name, most in (("streamsvm --help", 0.5), ("train 1000 rows, warm", 2.5)):
            section.checks.append(
                Check(f"{name}, of '{IMPORTS}'", ratio(timings[name].best, base), most, at_least=False)
            )
    return section


def _cold(bench: Bench, ours: StreamSvm, data: Dataset) -> float:
    with tempfile.TemporaryDirectory(dir=bench.work) as empty:
        return bench.train(replace(ours, name="streamsvm-cold", cache=Path(empty)), data).seconds
