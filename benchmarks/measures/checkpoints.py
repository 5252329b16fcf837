"""What checkpoints cost: a long run with 2^22 weights, without them, with one every 10 s, and with one every second.

What one every 10 s costs is hard to tell from the machine's noise in whole runs. So the check is on an estimate: the
cost of a single checkpoint in the run that takes many, as a share of 10 s. It spreads what a run pays once (the cache
brought to disk, the wait for the last checkpoint) over many; the run with one every 10 s, which does not, stands beside
it and is to be read too. Processor time is told: writing happens on a thread that competes with parsing.
"""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench import Bench, Check, Section, failures
from process import Run, interleave

BITS = 22
INTERVALS = {"without": None, "every 10 s": "10s", "every second": "1s"}


def checkpoints(bench: Bench) -> Section:
    section = Section(
        "checkpoints",
        f"What checkpoints of 2^{BITS} weights cost",
        ["run", "s", "processor s", "checkpoints", "s for each", "% of 10 s", "worst/best"],
    )
    ours = bench.streamsvm
    if ours is None:
        section.notes.append("streamsvm cannot run here")
        return section
    passes = 4 if bench.quick else 60
    place = bench.work / "checkpoints"
    best: dict[str, Run] = {}
    taken: dict[str, int] = {}

    def timed(name: str, every: str | None) -> float:
        shutil.rmtree(place, ignore_errors=True)
        options = ("--checkpoint", str(place), "--every", every) if every else ()
        peer = replace(ours, options=(*ours.options, "--hash-bits", str(BITS), *options))
        done = bench.train(peer, bench.main, passes)
        if name not in best or done.seconds < best[name].seconds:
            best[name], taken[name] = done, _count(place)
        return done.seconds

    jobs = {name: partial(timed, name, every) for name, every in INTERVALS.items()}
    timings = interleave(jobs, bench.repeat, bench.say)
    shutil.rmtree(place, ignore_errors=True)
    section.notes += failures(timings)
    section.raw = {name: timing.seconds for name, timing in timings.items()}
    if section.notes:
        return section
    plain = best["without"]
    for name, timing in timings.items():
        done, count = best[name], taken[name]
        each = (done.seconds - plain.seconds) / count if count else None
        share = 100 * each / 10 if each is not None else None
        section.rows.append([name, done.seconds, done.cpu_seconds, float(count), each, share, timing.spread])
    often = section.rows[-1]
    assert isinstance(often[5], float)
    section.checks.append(Check("one more checkpoint, estimated, % of 10 s", often[5], 2.0, "%", at_least=False))
    return section


def _count(place: Path) -> int:
    """How many were written: they are numbered."""
    numbers = [int(path.stem.split("-")[1]) for path in place.glob("checkpoint-*.safetensors")]
    return max(numbers) + 1 if numbers else 0
