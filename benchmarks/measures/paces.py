"""How fast programs go through a table: each on a quarter of the rows and on all, by turns.

Whole processes are compared, and the slopes between the two sizes, which start-up cannot touch.
"""

import json
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench import Bench, Section, failures, ratio
from process import Command, PeerFailedError, Timing, interleave, run, warm_pages

QUARTER = 4


class Job(NamedTuple):
    """A program on one file."""

    command: Command
    file: Path
    rows: int


class Pace(NamedTuple):
    """How a program did on a quarter of the rows, and on all."""

    job: Job  # on all
    few: Timing
    all: Timing
    own_seconds: float  # on all, by the clock inside the program

    @property
    def whole(self) -> float:
        """Rows/s, everything counted."""
        return ratio(self.job.rows, self.all.best)

    @property
    def steady(self) -> float:
        """Rows/s by the slope."""
        return ratio(self.job.rows - self.job.rows // QUARTER, self.all.best - self.few.best)

    @property
    def megabytes(self) -> float:
        """MB/s of the file that was read, everything counted."""
        return ratio(self.job.file.stat().st_size / 1e6, self.all.best)


def paced(bench: Bench, section: Section, jobs: dict[str, tuple[Job, Job]]) -> dict[str, Pace]:
    """All jobs, round after round; programs that failed are left out and noted."""
    own: dict[str, list[float]] = {name: [] for name in jobs}
    tasks = {
        f"{name}, {job.rows} rows": partial(_seconds, job, own[name] if job is pair[1] else [])
        for name, pair in jobs.items()
        for job in pair
    }
    timings = interleave(tasks, bench.repeat, bench.say)
    section.notes += failures(timings)
    section.raw |= {name: timing.seconds for name, timing in timings.items()}
    found = {}
    for name, (quarter, whole) in jobs.items():
        few, every = (timings[f"{name}, {job.rows} rows"] for job in (quarter, whole))
        if few.seconds and every.seconds:
            found[name] = Pace(whole, few, every, min(own[name], default=float("nan")))
    return found


def _seconds(job: Job, own: list[float]) -> float:
    """One run; a program that counts its rows must have seen them all."""
    warm_pages(job.file)
    done = run(job.command)
    lines = [json.loads(line) for line in done.output.splitlines() if line.startswith("{")]
    if lines:
        seen = lines[-1].get("examples", lines[-1].get("rows"))
        if seen != job.rows:
            raise ValueError(f"{seen} of {job.rows} rows were read")
        own.append(float(lines[-1]["seconds"]))
    return done.seconds


def can_run(section: Section, name: str, command: Command) -> bool:
    """Try a program on a few rows, which also compiles what it needs; if it fails, the section says why."""
    try:
        run(command)
    except PeerFailedError as error:
        section.notes.append(f"{name} is left out: {error}")
        return False
    return True
