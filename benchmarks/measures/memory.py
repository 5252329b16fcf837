"""Does streamsvm keep to `--memory`, and does it stay there when the rows quadruple?

Counted is RssAnon above that of an idle interpreter with the same imports, as the promise is worded.
"""

import subprocess
import sys
from dataclasses import replace

from bench import Bench, Check, Section, ratio
from data import bytes_of
from process import PeerFailedError, memory_of

IDLE = """
import sys, importlib
for name in ("numpy", "numba", "pyarrow", "streamsvm", "streamsvm.cli", "streamsvm.training", "streamsvm.model"):
    try:
        importlib.import_module(name)
    except ImportError:
        pass
print("ready", flush=True)
sys.stdin.read()
"""


def memory(bench: Bench) -> Section:
    budget = bytes_of(bench.budget) / 1e6
    section = Section(
        "memory",
        f"Memory of streamsvm with --memory {bench.budget}",
        ["run", "peak RssAnon MB", "above idle MB", "VmHWM MB"],
        notes=["idle: an interpreter with the same imports; RssAnon leaves out mapped files, VmHWM does not"],
    )
    ours = bench.streamsvm
    if ours is None:
        section.notes.append("streamsvm cannot run here")
        return section
    idle = _idle_anon() / 1e6
    section.rows.append(["idle interpreter", idle, 0.0, None])
    tight = replace(ours, name="streamsvm-tight", options=(*ours.options, "--memory", bench.budget))
    peaks = []
    times = bench.big.rows / bench.main.rows
    runs = [
        (bench.main, 1, "main file, 1 pass"),
        (bench.big, 1, f"{times:.1f}x the rows, 1 pass"),
        (bench.main, 3, "main file, 3 passes"),
    ]
    for data, passes, name in runs:
        bench.say(f"  {name}")
        try:
            done = bench.train(tight, data, passes, sample_memory=True)
        except PeerFailedError as error:
            section.notes.append(f"{name}: {error}")
            continue
        peaks.append(done.peak_anon / 1e6 - idle)
        section.rows.append([name, done.peak_anon / 1e6, peaks[-1], done.peak_resident / 1e6])
    if len(peaks) == len(runs):
        section.raw = {"idle_mb": idle, "above_idle_mb": dict(zip([run[2] for run in runs], peaks, strict=True))}
        most = max(peaks)
        section.checks += [
            Check(f"memory above idle, budget {bench.budget}", most, budget, "MB", at_least=False),
            Check(f"memory at {times:.1f}x the rows", ratio(peaks[1], peaks[0]), 1.1, at_least=False),
        ]
    return section


def _idle_anon() -> int:
    process = subprocess.Popen([sys.executable, "-c", IDLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin and process.stdout
    process.stdout.readline()
    anon, _ = memory_of(process.pid)
    process.stdin.close()
    process.wait()
    process.stdout.close()
    return anon
