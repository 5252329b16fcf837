"""Reading over a network: one pass over the main file from disk, from a web server on this machine, and from one that
lets every request wait for 50 ms. Another process serves it (`tests/range_server.py`), which takes its part of the
processors: on two of them, parsing has less than from disk. Everything is counted, starting up too.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bench import Bench, Check, Section, failures, ratio
from peers import StreamSvm
from process import Run, interleave, run, warm_pages

SERVER = Path(__file__).resolve().parents[2] / "tests" / "range_server.py"
LATENCIES = {"http": 0.0, "http, 50 ms a request": 0.05}
TARGETS = {"http": 0.8, "http, 50 ms a request": 0.7}
DISK = "file"


def remote(bench: Bench) -> Section:
    data = bench.main
    section = Section(
        "remote",
        f"One pass over {data.megabytes:.0f} MB, from disk and over loopback http, everything counted",
        ["from", "best s", "worst/best", "MB/s", "CPU s", "of the file's rate"],
    )
    ours = bench.streamsvm
    if ours is None:
        section.notes.append("streamsvm cannot run here")
        return section
    best: dict[str, Run] = {}

    def timed(name: str, url: str) -> float:
        done = _trained(ours, url, bench.work / "remote.model")
        if name not in best or done.seconds < best[name].seconds:
            best[name] = done
        return done.seconds

    warm_pages(data.svm)
    with ExitStack() as servers:
        urls = {name: servers.enter_context(_served(data.svm, latency)) for name, latency in LATENCIES.items()}
        jobs = {name: partial(timed, name, url) for name, url in {DISK: str(data.svm), **urls}.items()}
        timings = interleave(jobs, bench.repeat, bench.say)
    section.notes += failures(timings)
    section.raw = {name: timing.seconds for name, timing in timings.items()}
    if DISK not in best:
        return section
    for name, done in best.items():
        share = ratio(timings[DISK].best, timings[name].best)
        rate = data.megabytes / done.seconds
        section.rows.append([name, done.seconds, timings[name].spread, rate, done.cpu_seconds, share])
        if name in TARGETS:
            section.checks.append(Check(f"{name}, against the file", share, TARGETS[name]))
    return section


def _trained(ours: StreamSvm, url: str, model: Path) -> Run:
    return run(ours.command("train", url, "-o", str(model), "--json", *ours.options))


@contextmanager
def _served(path: Path, latency: float) -> Iterator[str]:
    """The url of a file, while another process serves it."""
    command = [sys.executable, str(SERVER), str(path), str(latency)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/rows.svm"
        server.kill()
