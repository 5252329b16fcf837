"""What a pass costs with each solver, nothing but the solver on the clock (`workers/pass_rate.py`).

Rows are in memory, once with the indices they have, once spread over 2^24 weights: then every access misses the caches.
"""

import json
import sys
from functools import partial
from statistics import mean
from typing import Any

from bench import Bench, Check, Section, failures, ratio
from data import Dataset, generated
from peers import InRam, StreamSvm
from peers.peer import WORKERS
from process import Command, interleave, run

ROWS = 100_000
TRIES = 3  # passes in each process, of which the mean counts, as for svmsgd.c
BOTTOU = 360.0  # M features/s that Bottou's svmsgd is known to reach
CASES = ("natural", "spread")
PLAIN, CLASSIC = "svmsgd.c", "sgd hinge"


def pass_rates(bench: Bench) -> Section:
    data = generated(bench.main.svm.parent, min(ROWS, bench.main.rows))
    section = Section(
        "rates",
        f"A pass over {data.rows} rows in memory, M features/s",
        ["solver", "bytes per weight", "natural", "worst/best", "spread over 2^24", "worst/best"],
        notes=["natural: a further pass; spread: a first pass, all weights far from the caches, all rows take a step"],
    )
    ours, plain = bench.streamsvm, bench.peer(PLAIN)
    if ours is None:
        section.notes.append("streamsvm cannot run here")
        return section
    variants = _variants(ours)
    told: dict[str, dict[str, Any]] = {}

    def timed(variant: str, case: str) -> float:
        told[f"{variant}, {case}"] = one = _passes(ours, variant, case, data)
        return float(mean(one["seconds"]))

    jobs = {f"{variant}, {case}": partial(timed, variant, case) for case in CASES for variant in variants}
    if isinstance(plain, InRam):
        jobs[PLAIN] = partial(plain.pass_seconds, data, TRIES + 1)
    timings = interleave(jobs, bench.repeat, bench.say)
    section.notes += failures(timings)
    section.raw = {name: timing.seconds for name, timing in timings.items()}
    rates = {name: ratio(one["features"] / 1e6, timings[name].best) for name, one in told.items()}
    for variant in variants:
        natural, spread = (f"{variant}, {case}" for case in CASES)
        size = told.get(natural, {}).get("bytes_per_weight")
        cells = [rates.get(natural), timings[natural].spread, rates.get(spread), timings[spread].spread]
        section.rows.append([variant, size, *cells])
    if PLAIN in timings:
        rates[PLAIN] = ratio(data.features / 1e6, timings[PLAIN].best)
        section.rows.append([f"{PLAIN} hinge", 8, rates[PLAIN], timings[PLAIN].spread, None, None])
    if f"{CLASSIC}, natural" in rates:
        rate = rates[f"{CLASSIC}, natural"]
        times = ratio(rate, rates.get(PLAIN, 0.0))
        note = f"{PLAIN} here: {rates[PLAIN]:.0f} M/s, so {times:.2f}x" if PLAIN in rates else ""
        what = "sgd, hinge: a pass in memory, against Bottou's svmsgd"
        section.checks.append(Check(what, rate, BOTTOU, "M/s", note=note))
    return section


def _variants(ours: StreamSvm) -> list[str]:
    """All solvers with the default loss; sgd also with the loss that its classic rivals have."""
    return [f"{solver} squared_hinge" for solver in ours.solvers()] + [CLASSIC]


def _passes(ours: StreamSvm, variant: str, case: str, data: Dataset) -> dict[str, Any]:
    eta0 = "1" if variant == CLASSIC else "auto"  # as svmsgd.c has, so that as many rows take a step
    words = [*variant.split(), eta0, case, str(data.svm), str(TRIES)]
    argv = [sys.executable, str(WORKERS / "pass_rate.py"), *words]
    return dict(json.loads(run(Command(argv, {"STREAMSVM_CACHE_DIR": str(ours.cache)})).output))
