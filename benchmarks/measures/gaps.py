"""How the gap falls with time, for every solver: the picture that papers of this field print (`gap_picture.py`).

The gap is (P - D) / P: how far the objective is above the least possible, at most, relative to itself. A solver that
proves a bound D is drawn by its own gap. The others, LIBLINEAR among them, are drawn by the best bound that any solver
here proved. Time is that of the whole process, from text.

    exact     one run down to a tiny tolerance; it tells each gap that it knows. dcd knows few of them early, as a look
              costs it a reading, so three runs with loose tolerances fill the gaps
    online    a run for each number of passes, the reading for the objective included
    LIBLINEAR one reading, a fit for each tolerance; each point is the reading and one fit
"""

import json
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

from bench import Bench, Check, Section
from measures.certified import DUAL, ENOUGH
from measures.contest import Ours, Problem, exact, quarter_budget, warm
from peers import StreamSvm
from peers.liblinear_dual import LibLinear, Solved
from peers.streamsvm_cli import objects
from process import PeerFailedError, Run, run, warm_pages

SMALLEST = 1e-6
EARLY = (0.3, 0.1, 0.01)  # tolerances of the runs that fill the gaps of dcd
SECONDS = 30  # of an exact solver
PASSES = (1, 2, 4, 8, 16)
ONLINE = {"hinge": ("sgd", "pegasos", "asgd"), "squared_hinge": ("sgd", "asgd")}
TOLERANCES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.001)  # of LIBLINEAR
SHOWN = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)


class Point(NamedTuple):
    seconds: float
    objective: float
    dual: float | None


class Curve(NamedTuple):
    """`kind` is proven, measured (with a bound of others) or peer."""

    kind: str
    points: list[tuple[float, float]]  # seconds and gap


def gap_curves(bench: Bench) -> Section:
    section = Section(
        "gap",
        f"Gap against time, C=1, {bench.main.megabytes:.0f} MB of text",
        ["solver", "bound", *(f"s to {gap:g}" for gap in SHOWN), "least gap", "after s"],
        notes=["bound: proven by the solver itself, or the best that any proved; one run each, nothing interleaved"],
    )
    ours, judge = bench.streamsvm, bench.peer("liblinear")
    if ours is None:
        section.notes.append("streamsvm cannot run here")
        return section
    warm_pages(bench.main.svm)
    for loss in bench.losses:
        problem = Problem("", bench.main, loss, 1.0)
        found = _exact_curves(bench, ours, problem, section)
        found |= _online_curves(bench, ours, problem, section)
        if isinstance(judge, LibLinear):
            found |= _liblinear_curve(bench, judge, problem, section)
        dual = max((point.dual for points in found.values() for point in points if point.dual is not None), default=nan)
        curves = {name: _curve(name, points, dual) for name, points in found.items()}
        section.rows += [_row(loss, name, curve) for name, curve in curves.items()]
        section.raw[loss] = {
            "best_bound": dual,
            "curves": {name: curve._asdict() for name, curve in curves.items()},
            "points": {name: [point._asdict() for point in points] for name, points in found.items()},
        }
        section.checks.append(_bound_holds(loss, found, dual))
    section.raw["megabytes"] = bench.main.megabytes
    return section


def _exact_curves(bench: Bench, ours: StreamSvm, problem: Problem, section: Section) -> dict[str, list[Point]]:
    budget, times = quarter_budget(bench.main)
    contenders = [Ours("dcd", "dcd", ENOUGH), Ours(f"dcd, rows {times:.2g}x budget", "dcd", f"{budget // 1000}KB")]
    contenders += [Ours(solver, solver, ENOUGH) for solver in ("newton", "bmrm", "ocas")]
    seconds = 3 if bench.quick else SECONDS
    found: dict[str, list[Point]] = {}
    for how in contenders:
        if how.solver == "newton" and problem.loss == "hinge":
            continue  # it needs a curvature
        tolerances = (SMALLEST,) if bench.quick else (*EARLY, SMALLEST)
        try:
            warm(bench, ours, how, problem.loss, tight=how.memory != ENOUGH)
            for tol in tolerances if how.solver == "dcd" else (SMALLEST,):
                words = ["--tol", repr(tol), "--passes", "100000", "--time", f"{seconds}s"]
                done = run(exact(ours, problem, how, bench.work / "gap.model", *words), limit=4.0 * seconds + 60)
                found.setdefault(how.name, []).extend(_told(done))
        except (PeerFailedError, ValueError, KeyError) as error:
            section.notes.append(f"{problem.loss}, {how.name}: {error}")
        _say(bench, problem, how.name, found)
    return found


def _online_curves(bench: Bench, ours: StreamSvm, problem: Problem, section: Section) -> dict[str, list[Point]]:
    """They are told l2 rather than C, which would have them count the rows first."""
    l2 = repr(1.0 / (problem.cost * problem.data.rows))
    shared = ["--loss", problem.loss, "--l2", l2, "--objective", "-o", str(bench.work / "gap.model"), "--json"]
    found: dict[str, list[Point]] = {}
    for solver in ONLINE[problem.loss][: 1 if bench.quick else None]:
        try:
            for passes in ("1", "2"):  # compiles
                run(ours.command("train", str(bench.small.svm), "--solver", solver, "--passes", passes, *shared))
            for number in PASSES[:2] if bench.quick else PASSES:
                words = ["--solver", solver, "--passes", str(number), *shared]
                done = run(ours.command("train", str(problem.data.svm), *words))
                found.setdefault(solver, []).append(
                    _point(objects(done.output)[-1], 0.0)._replace(seconds=done.seconds)
                )
        except (PeerFailedError, ValueError, KeyError) as error:
            section.notes.append(f"{problem.loss}, {solver}: {error}")
        _say(bench, problem, solver, found)
    return found


def _liblinear_curve(bench: Bench, judge: LibLinear, problem: Problem, section: Section) -> dict[str, list[Point]]:
    kind = DUAL[problem.loss]
    name, model = f"liblinear {kind}", bench.work / "gap-liblinear"
    tolerances = TOLERANCES[:3] if bench.quick else TOLERANCES
    try:
        done = run(judge.curve(problem.data, model, f"{kind} -c {problem.cost!r}", tolerances))
        fits: dict[str, float] = json.loads(done.output)
        models = [Path(f"{model}-{tolerance}") for tolerance in fits]
        objectives = judge.objectives(problem.data, [Solved(problem.loss, problem.cost, one) for one in models])
    except (PeerFailedError, ValueError) as error:
        section.notes.append(f"{problem.loss}, {name}: {error}")
        return {}
    reading = done.seconds - sum(fits.values())
    found = {
        name: [Point(reading + spent, at, None) for spent, at in zip(fits.values(), objectives, strict=True)],
    }
    _say(bench, problem, name, found)
    return found


def _told(done: Run) -> list[Point]:
    """Every gap that a run knew; what the process did before its own clock began is added."""
    lines = objects(done.output)
    before = done.seconds - float(lines[-1]["seconds"])
    return [_point(line, before) for line in lines if line.get("gap") is not None]


def _point(line: dict[str, Any], before: float) -> Point:
    dual = line.get("dual")
    return Point(before + float(line["seconds"]), float(line["objective"]), None if dual is None else float(dual))


def _curve(name: str, points: list[Point], dual: float) -> Curve:
    """The least gap so far at each moment; a solver that proves is held to its own bound."""
    proven = all(point.dual is not None for point in points)
    kind = "peer" if name.startswith("liblinear") else "proven" if proven else "measured"
    gaps = [
        (
            point.seconds,
            (point.objective - (point.dual if proven and point.dual is not None else dual)) / point.objective,
        )
        for point in sorted(points)
    ]
    kept: list[tuple[float, float]] = []
    for seconds, gap in gaps:
        if kind == "peer" or not kept or gap < kept[-1][1]:
            kept.append((seconds, gap))
    return Curve(kind, kept)


def _bound_holds(loss: str, found: dict[str, list[Point]], dual: float) -> Check:
    """No weights of any program may have an objective below a proven bound; values of 4 bytes blur that a little."""
    least = min((point.objective for points in found.values() for point in points), default=nan)
    above = max((dual - least) / least, 0.0)
    return Check(f"{loss}: best bound above the least objective of all", 1e6 * above, 1.0, "ppm", at_least=False)


def _row(loss: str, name: str, curve: Curve) -> list[str | float | None]:
    first = [next((seconds for seconds, gap in curve.points if gap <= shown), None) for shown in SHOWN]
    seconds, gap = min(curve.points, key=lambda point: point[1], default=(nan, nan))
    return [f"{loss}, {name}", curve.kind if curve.kind != "peer" else "measured", *first, f"{gap:.1e}", seconds]


def _say(bench: Bench, problem: Problem, name: str, found: dict[str, list[Point]]) -> None:
    points = found.get(name, [])
    last = f", objective {points[-1].objective:.7g} after {points[-1].seconds:.1f} s" if points else ""
    bench.say(f"  {problem.loss}, {name}: {len(points)} points{last}")
