"""Run one command in its own process: wall clock, and on request its memory, sampled from /proc every 10 ms.

Also the order of runs: on a noisy machine peers take turns, round after round, and the best run of each is compared.
"""

import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SAMPLE_SECONDS = 0.01


class PeerFailedError(RuntimeError):
    """A peer's process ended badly; the message is its last words."""


@dataclass(frozen=True)
class Command:
    """What to run. The environment is added to ours."""

    argv: list[str]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """One finished process. Memory in bytes, 0 where it was not sampled."""

    seconds: float
    cpu_seconds: float
    output: str
    peak_anon: int = 0  # RssAnon: memory that is the process's own, mapped files left out
    peak_resident: int = 0  # VmHWM: everything, kept by the kernel


@dataclass
class Timing:
    """The runs of one job, or why there are none."""

    seconds: list[float] = field(default_factory=list)
    failure: str | None = None

    @property
    def best(self) -> float:
        return min(self.seconds, default=float("nan"))

    @property
    def spread(self) -> float:
        """Worst over best: what the machine's noise amounts to."""
        return max(self.seconds) / self.best if self.seconds else float("nan")


def run(command: Command, *, sample_memory: bool = False, limit: float | None = None) -> Run:
    """Run to the end, from a folder of its own; a failure is raised with the last lines of standard error.

    Whoever is not done after `limit` seconds is ended, which is a failure too.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.perf_counter()
        process = subprocess.Popen(
            command.argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=tempfile.gettempdir(),
            env={**os.environ, **command.env},
        )
        peak = [0, 0]
        over = threading.Event()
        watcher = threading.Thread(target=_watch, args=(process.pid, over, peak))
        if sample_memory:
            watcher.start()
        patience = threading.Timer(limit or 0.0, process.kill)
        if limit:
            patience.start()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        patience.cancel()
        over.set()
        if sample_memory:
            watcher.join()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        output = out.read().decode(errors="replace")
        if limit and seconds >= limit:
            raise PeerFailedError(f"{Path(command.argv[0]).name} was stopped after {limit:g} s")
        if process.returncode:
            err.seek(0)
            raise PeerFailedError(_last_words(command, process.returncode, err.read().decode(errors="replace")))
    return Run(seconds, usage.ru_utime + usage.ru_stime, output, *peak)


def memory_of(pid: int) -> tuple[int, int]:
    """(RssAnon, VmHWM) of a live process in bytes; zeros once it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0, 0
    found = dict(re.findall(r"^(RssAnon|VmHWM):\s+(\d+) kB", status, re.MULTILINE))
    return int(found.get("RssAnon", 0)) * 1024, int(found.get("VmHWM", 0)) * 1024


def _watch(pid: int, over: threading.Event, peak: list[int]) -> None:
    """Raise `peak` to the largest (RssAnon, VmHWM) seen until told that it is over."""
    while not over.wait(SAMPLE_SECONDS):
        peak[:] = map(max, peak, memory_of(pid))


def _last_words(command: Command, code: int, errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    name = Path(command.argv[0]).name
    return f"{name} ended with status {code}: {lines[-1] if lines else 'nothing on standard error'}"


def warm_pages(*paths: Path) -> None:
    """Read the files once, so that no run pays for the disk and all find the pages in memory."""
    buffer = bytearray(1 << 23)
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def interleave(
    jobs: Mapping[str, Callable[[], float]], repeat: int, say: Callable[[str], None] = print
) -> dict[str, Timing]:
    """Round robin: every job once, then all again. A job returns its seconds; one that fails is not tried again."""
    timings = {name: Timing() for name in jobs}
    for round_number in range(repeat):
        for name, job in jobs.items():
            timing = timings[name]
            if timing.failure:
                continue
            try:
                timing.seconds.append(job())
            except (PeerFailedError, ValueError, KeyError, OSError) as error:
                timing.failure = str(error) or type(error).__name__
                say(f"  {name}: FAILED: {timing.failure}")
            else:
                say(f"  {name}: {timing.seconds[-1]:.3f} s   (round {round_number + 1})")
    return timings
