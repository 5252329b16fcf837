"""More than two classes: how good and how quick are the answers, beside LIBLINEAR's, and what does a class cost?

    one against all    LIBLINEAR -s 3    dcd, hinge                                C = 1, each to its tolerance
    Crammer-Singer     LIBLINEAR -s 4    dcd, hinge, --multiclass crammer_singer   likewise
    online             one pass with defaults; five passes of asgd, hinge, --multiclass crammer_singer

`classes` goes from the text of real sets to a model and tests it outside the clock. `classes_pace` asks how much longer
one pass takes over the same rows when they have ten classes, or a hundred, instead of two.
"""

from collections.abc import Callable
from functools import partial
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from bench import Bench, Cell, Check, Section, failures, ratio
from data import Dataset, Pair, relabelled
from measures.paces import can_run
from measures.real_sets import COVTYPE, SORTED, labelled_sets
from peers import Peer, StreamSvm
from peers.liblinear_dual import LibLinear
from peers.streamsvm_cli import objects
from process import Command, PeerFailedError, Timing, interleave, run, warm_pages

SETS = ("mnist", COVTYPE, "20newsgroups")
THEIRS = {"liblinear -s 3": "-s 3 -c 1", "liblinear -s 4": "-s 4 -c 1"}
OVA, CRAMMER_SINGER = THEIRS  # the programs that stand for the two rules
EXACT = ("--solver", "dcd", "--loss", "hinge", "--C", "1", "--tol", "1e-2")
JOINT = ("--multiclass", "crammer_singer")
ASGD = ("--solver", "asgd", "--loss", "hinge", "--passes", "5")
MIX = ("--shuffle", "20000")
PATIENCE = 600.0  # seconds; then a program is stopped
LONG = 60.0  # seconds; who takes longer runs once
MOST_POINTS = 0.5  # between dcd and LIBLINEAR
MOST_TIMES, PROMISED, MANY = 4.0, 10, 100  # ten classes against two; no promise for a hundred
DEFAULT = "asgd"


class Program(NamedTuple):
    """How streamsvm is run."""

    name: str
    words: tuple[str, ...]
    rival: str  # LIBLINEAR's solver of the same rule
    exact: bool = False
    mixes: bool = False  # only of use where rows are sorted by class: an online solver forgets the first ones


PROGRAMS = (
    Program("dcd", EXACT, OVA, exact=True),
    Program("dcd, crammer_singer", (*EXACT, *JOINT), CRAMMER_SINGER, exact=True),
    Program("one pass", (), OVA),
    Program("one pass, mixed", MIX, OVA, mixes=True),
    Program("5 passes, crammer_singer", (*ASGD, *JOINT), CRAMMER_SINGER),
    Program("5 passes, crammer_singer, mixed", (*ASGD, *JOINT, *MIX), CRAMMER_SINGER, mixes=True),
)


def every_class(bench: Bench) -> Section:
    section = Section(
        "classes",
        "Real sets with many classes, from text to a model",
        ["data", "program", "accuracy %", "best s", "worst/best", "times as fast"],
        notes=[
            "liblinear: -c 1 -B 1, to its default tolerance; times as fast: as liblinear with the same rule",
            f"one pass: default settings; 5 passes: {' '.join(ASGD)}; mixed: {' '.join(MIX)}",
            f"whoever takes more than {PATIENCE:g} s is stopped; whoever takes more than {LONG:g} s runs once",
        ],
    )
    ours, theirs = bench.streamsvm, bench.peer("liblinear")
    if ours is None or bench.real is None:
        section.notes = ["needs --real DIR" if ours else "streamsvm cannot run here"]
        return section
    able = list(PROGRAMS)
    if not bench.quick:
        small, model = relabelled(bench.folder, bench.small, PROMISED), bench.work / "warm.model"
        able = [one for one in PROGRAMS if can_run(section, one.name, _train(ours, small, model, one.words))]
    for pair in labelled_sets(bench, SETS):
        if pair.skipped:
            section.notes.append(f"{pair.name} is left out: {pair.skipped}")
        else:
            programs = [one for one in able if pair.name in SORTED or not one.mixes]
            _compare(bench, section, pair, ours, theirs if isinstance(theirs, LibLinear) else None, programs)
    return section


def _compare(
    bench: Bench, section: Section, pair: Pair, ours: StreamSvm, theirs: LibLinear | None, programs: list[Program]
) -> None:
    """One set: all programs by turns, then what their models are worth."""
    assert pair.train
    train = pair.train
    bench.say(f"  {pair.name}: {train.rows} rows, {train.megabytes:.0f} MB")
    warm_pages(train.svm)
    testers: dict[str, Peer] = {}
    jobs: dict[str, Callable[[], float]] = {}
    if theirs:
        for name, options in THEIRS.items():
            testers[name] = theirs
            jobs[name] = partial(_liblinear, theirs.fit(train, _model(bench, pair, name), options))
    for one in programs:
        testers[one.name] = ours
        jobs[one.name] = partial(_streamsvm, one, _train(ours, train, _model(bench, pair, one.name), one.words))
    timings = _rounds(bench, jobs)
    section.notes += [f"{pair.name}: {failure}" for failure in failures(timings)]
    right = {
        name: value
        for name, tester in testers.items()
        if timings[name].seconds and (value := _accuracy(bench, section, pair, name, tester)) is not None
    }
    rivals = {one.name: timings.get(one.rival, Timing()) for one in programs}
    for name, timing in timings.items():
        if timing.seconds:
            shown = f"{right[name]:.2f}" if name in right else None
            faster = _faster(rivals[name], timing) if name in rivals else None
            section.rows.append([pair.name, name, shown, timing.best, timing.spread, faster])
    section.checks += [_check(pair, one, right) for one in PROGRAMS if one.exact and theirs]
    section.raw[pair.name] = {"accuracy": right, "seconds": {name: one.seconds for name, one in timings.items()}}


def _accuracy(bench: Bench, section: Section, pair: Pair, name: str, tester: Peer) -> float | None:
    """Of the model that the last run left, in %, on test rows."""
    assert pair.test
    try:
        return 100.0 * (1.0 - tester.test_error(_model(bench, pair, name), pair.test))
    except (PeerFailedError, ValueError, KeyError) as error:
        section.notes.append(f"{pair.name}: {name} on test rows: {error}")
        return None


def _faster(theirs: Timing, mine: Timing) -> Cell:
    """Times as fast; if the other was stopped, the least it can be."""
    if theirs.failure and "stopped" in theirs.failure and not theirs.seconds:
        return f"> {PATIENCE / mine.best:.3g}"
    return ratio(theirs.best, mine.best)


def _check(pair: Pair, one: Program, right: dict[str, float]) -> Check:
    what = f"{pair.name}: accuracy of {one.name}, away from {one.rival}"
    if {one.name, one.rival} <= right.keys():
        mine, others = right[one.name], right[one.rival]
        note = f"{mine:.2f} % and {others:.2f} %"
        return Check(what, abs(mine - others), MOST_POINTS, "points", at_least=False, note=note)
    return Check(what, float("nan"), MOST_POINTS, "points", at_least=False)


def _rounds(bench: Bench, jobs: dict[str, Callable[[], float]]) -> dict[str, Timing]:
    """All by turns; after the first round only those that are soon done, and none in a hurry."""
    timings = interleave(jobs, 1, bench.say)
    soon = {name: job for name, job in jobs.items() if timings[name].best < LONG and not bench.quick}
    for name, timing in interleave(soon, bench.repeat - 1, bench.say).items():
        timings[name].seconds += timing.seconds
        timings[name].failure = timing.failure
    return timings


def _liblinear(command: Command) -> float:
    return run(command, limit=PATIENCE).seconds


def _streamsvm(one: Program, command: Command) -> float:
    """One run; an exact solver must have come as near as it was told to."""
    done = run(command, limit=PATIENCE)
    told = objects(done.output)[-1]
    if one.exact:
        gap, objective = told["gap"], told["objective"]
        if objective is not None and not isfinite(objective):
            raise ValueError("the objective is not a number")
        if gap is not None and gap > told["tol"]:
            raise ValueError(f"it ended with a gap of {gap:.1e}")
    return done.seconds


def _train(ours: StreamSvm, data: Dataset, model: Path, words: tuple[str, ...]) -> Command:
    return ours.command("train", str(data.svm), *words, "-o", str(model), "--json", "--quiet")


def _model(bench: Bench, pair: Pair, name: str) -> Path:
    return bench.work / f"classes-{pair.name}-{name.replace(' ', '')}.model"


def class_pace(bench: Bench) -> Section:
    """One pass over rows with two classes, and over the same with ten and with a hundred."""
    data = bench.main
    section = Section(
        "classes_pace",
        f"One pass over {data.megabytes:.0f} MB with many classes, from text to a model, everything counted",
        ["solver", "classes", "best s", "worst/best", "MB/s", "of two classes"],
        notes=[f"the same rows, labelled anew by relabel.py; one against all; {DEFAULT} is the default solver"],
    )
    ours = bench.streamsvm
    if ours is None:
        section.notes.append("streamsvm cannot run here")
        return section
    others = [] if bench.quick else [solver for solver in ours.solvers() if solver != DEFAULT]
    files = {count: relabelled(bench.folder, data, count) if count > 2 else data for count in (2, PROMISED, MANY)}
    cases = [(DEFAULT, count) for count in files] + [(solver, count) for solver in others for count in (2, PROMISED)]
    model = bench.work / "pace.model"
    jobs: dict[str, Callable[[], float]] = {}
    for solver, count in cases:
        small = relabelled(bench.folder, bench.small, count) if count > 2 else bench.small
        name, words = f"{solver}, {count} classes", ("--solver", solver)
        if can_run(section, name, _train(ours, small, model, words)):
            jobs[name] = partial(_pace, _train(ours, files[count], model, words), files[count])
    timings = interleave(jobs, bench.repeat, bench.say)
    section.notes += failures(timings)
    section.raw = {name: timing.seconds for name, timing in timings.items()}
    times: dict[str, float] = {}
    for solver, count in cases:
        timing, pair = (timings.get(f"{solver}, {classes} classes", Timing()) for classes in (count, 2))
        times[f"{solver} {count}"] = longer = ratio(timing.best, pair.best)
        if timing.seconds:
            rate = files[count].megabytes / timing.best
            section.rows.append([solver, count, timing.best, timing.spread, rate, longer if count > 2 else None])
    what = f"one pass with {PROMISED} classes, of one with two"
    section.checks.append(Check(what, times[f"{DEFAULT} {PROMISED}"], MOST_TIMES, at_least=False))
    return section


def _pace(command: Command, data: Dataset) -> float:
    """One run, which must have seen all rows."""
    warm_pages(data.svm)
    done = run(command)
    seen = objects(done.output)[-1]["examples"]
    if seen != data.rows:
        raise ValueError(f"{seen} of {data.rows} rows were read")
    return done.seconds
