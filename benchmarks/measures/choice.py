"""Is each exact solver the quicker one where theory says so? newton and dcd to a gap of 1e-3, squared hinge, C = 1.

newton works per reading, and readings are cheap where features are few; dcd works per row, and gains most where rows
are sparse and features many. Compared is the whole process; `inside` is what the program itself counts, from after its
imports to the answer.
"""

from functools import partial
from typing import Any

from bench import Bench, Check, Section, failures, ratio
from data import Dataset
from measures.contest import Ours, Problem, exact, warm
from measures.real_sets import FEW_FEATURES, training_sets
from peers import StreamSvm
from peers.streamsvm_cli import objects
from process import PeerFailedError, interleave, run, warm_pages

TOL, LOSS, SECONDS = 1e-3, "squared_hinge", 60
SOLVERS = ("newton", "dcd")


def choice(bench: Bench) -> Section:
    section = Section(
        "choice",
        f"newton and dcd from text to a gap of {TOL:g}, {LOSS}, C=1",
        ["data", "features", *(f"{solver} s" for solver in SOLVERS), *(f"{solver} inside" for solver in SOLVERS)],
    )
    section.columns += [*(f"{solver} passes" for solver in SOLVERS), "quicker inside", "times"]
    ours = bench.streamsvm
    if ours is None:
        section.notes.append("streamsvm cannot run here")
        return section
    contenders = [Ours(solver, solver, "2GB") for solver in SOLVERS]
    try:
        for how in contenders:
            warm(bench, ours, how, LOSS)
    except PeerFailedError as error:
        section.notes.append(str(error))
        return section
    sets = [*training_sets(bench), (f"generated, {bench.main.megabytes:.0f} MB", bench.main)]
    for name, data in sets:
        _compare(bench, ours, section, contenders, name, data)
    section.notes.append(f"few features: {', '.join(FEW_FEATURES)}; a run of more than {SECONDS} s is given up")
    return section


def _compare(bench: Bench, ours: StreamSvm, section: Section, contenders: list[Ours], name: str, data: Dataset) -> None:
    problem = Problem(name, data, LOSS, 1.0)
    inside: dict[str, list[float]] = {how.name: [] for how in contenders}
    told: dict[str, dict[str, Any]] = {}

    def timed(how: Ours) -> float:
        words = ["--tol", repr(TOL), "--passes", "100000", "--time", f"{SECONDS}s"]
        done = run(exact(ours, problem, how, bench.work / "choice.model", *words))
        told[how.name] = result = objects(done.output)[-1]
        if result["gap"] is None or result["gap"] > TOL:
            raise ValueError(f"{how.name} on {name}: not done after {SECONDS} s, gap {result['gap']}")
        inside[how.name].append(float(result["seconds"]))
        return done.seconds

    warm_pages(data.svm)
    bench.say(f"  {name}")
    timings = interleave({how.name: partial(timed, how) for how in contenders}, bench.repeat, bench.say)
    section.notes += failures(timings)
    best = {solver: min(inside[solver], default=float(SECONDS)) for solver in SOLVERS}
    quicker = min(best, key=best.__getitem__)
    times = ratio(max(best.values()), best[quicker])
    passes = [int(told[solver]["passes"]) if solver in told else None for solver in SOLVERS]
    width = next((int(one["dim"]) - 1 for one in told.values()), None)
    clocks = [*(timings[solver].best for solver in SOLVERS), *best.values()]
    section.rows.append([name, width, *clocks, *passes, quicker, times])
    section.raw[name] = {"seconds": {solver: timings[solver].seconds for solver in SOLVERS}, "inside": inside}
    expected, other = SOLVERS if name in FEW_FEATURES else SOLVERS[::-1]
    value = ratio(best[other], best[expected]) if any(inside.values()) else float("nan")
    what = f"{name}: {expected} quicker than {other}, inside"
    section.checks.append(Check(what, value, 1.0))
