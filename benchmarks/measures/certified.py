"""How long until an answer is proven to be good, from text, and how that compares with LIBLINEAR and LinearSVC?

Hinge and squared hinge, each with several C. `certified` is about a large file: once with a budget that all rows fit
into, once with a quarter of what they take. `certified_real` is about small sets, where everything fits and a good part
of the time is start-up.
"""

from functools import partial
from math import exp, log, nan
from pathlib import Path

from bench import Bench, Cell, Check, Section, ratio
from data import Dataset
from measures.contest import GAPS, SAME, Contest, Entry, Ours, Problem, Rival, quarter_budget, warm
from measures.real_sets import FEW_FEATURES, training_sets
from peers import StreamSvm
from peers.liblinear_dual import LibLinear
from peers.scikit import ScikitLearn
from process import Command, PeerFailedError

FITS, TIGHT = "dcd, all in memory", "dcd, rows are {:.1f}x the budget"
ENOUGH = "2GB"
FASTER = {"fits": 2.0, "tight": 1.5}  # than LIBLINEAR, to its own objective
SMALLER = 0.25  # of LIBLINEAR's memory, when the rows are four times the budget
DUAL = {"hinge": "-s 3", "squared_hinge": "-s 1"}  # LIBLINEAR's, by coordinate descent
PRIMAL = "-s 2"  # LIBLINEAR's Newton, for the squared hinge
PATIENCE, LITTLE_PATIENCE = 400.0, 20.0  # seconds for LIBLINEAR, and for LinearSVC
COLUMNS = ["problem", "program", *(f"s to {gap:g}" for gap in GAPS), "s to its objective", "tol", "gap", "worst/best"]
COLUMNS += ["times as fast", "MB", "of its MB"]
NOTES = [
    "s to 0.1 ...: one run with --tol 0.1 ...; s to its objective: best of all rounds, with the loosest tolerance that "
    "ends as low as liblinear at its default",
    "gap: of the answer, relative, at most: from the best bound that the runs here proved",
    "MB: the most RssAnon of the whole process, interpreter and all",
]


def certified(bench: Bench) -> Section:
    """The main file, with two budgets."""
    section = Section(
        "certified", f"Proven answers from {bench.main.megabytes:.0f} MB of text", COLUMNS, notes=[*NOTES]
    )
    programs = _programs(bench, section)
    if programs is None:
        return section
    ours, judge, _ = programs
    budget, times = quarter_budget(bench.main)
    fits, tight = Ours(FITS, "dcd", _enough(bench.main)), Ours(TIGHT.format(times), "dcd", f"{budget // 1000}KB")
    _warm(bench, section, ours, [fits], tight=True)
    disagreements: list[float] = []
    by_kind: dict[str, dict[str, float]] = {"fits": {}, "tight": {}, "memory": {}}
    for problem in _problems(bench, "", bench.main):
        contest = Contest(bench, problem, judge)
        rivals = [_liblinear(judge, problem, DUAL[problem.loss])]
        entries = _settled(section, problem, contest, rivals, [fits, tight])
        disagreements.append(contest.disagreement)
        for kind, how in (("fits", fits), ("tight", tight)):
            theirs, mine = _pair(entries, how)
            by_kind[kind][str(problem)] = _faster(theirs, mine, contest.limit)
            if kind == "tight":
                by_kind["memory"][str(problem)] = ratio(mine.peak, theirs.peak) if mine.peak else nan
    section.checks = _checks(by_kind, times) + [_agreement(disagreements)]
    if times < 3.9:
        section.notes.append(f"the rows are only {times:.1f}x the least budget: nothing is promised for that")
    return section


def certified_real(bench: Bench) -> Section:
    """Small sets, LinearSVC too. No targets: the time is start-up for the most part."""
    section = Section("certified_real", "Proven answers on small sets, from text", COLUMNS, notes=[*NOTES])
    programs = _programs(bench, section)
    if programs is None:
        return section
    ours, judge, scikit = programs
    section.notes.append(f"LinearSVC: its defaults (tol 1e-4, max_iter 1000), one run of at most {LITTLE_PATIENCE:g} s")
    dcd, newton = Ours("dcd", "dcd", ENOUGH), Ours("newton", "newton", ENOUGH)
    able = _warm(bench, section, ours, [dcd, newton])
    disagreements: list[float] = []
    faster: dict[str, float] = {}
    for name, data in training_sets(bench):
        for problem in _problems(bench, name, data):
            few = name in FEW_FEATURES and problem.loss == "squared_hinge"
            rivals = [_liblinear(judge, problem, kind) for kind in (DUAL[problem.loss], *([PRIMAL] if few else []))]
            if scikit:
                command = partial(_linear_svc, scikit, problem)
                rivals.append(Rival("LinearSVC", command, LITTLE_PATIENCE, matched=False, again=False))
            contest = Contest(bench, problem, judge)
            contenders = [dcd, *([newton] if few and newton in able else [])]
            entries = _settled(section, problem, contest, rivals, contenders)
            disagreements.append(contest.disagreement)
            faster |= {
                f"{problem}, {mine.name}": ratio(_named(entries, mine.rival).timing.best, mine.timing.best)
                for mine in entries
                if mine.solver and mine.timing.seconds
            }
    if faster:
        where = min(faster, key=faster.__getitem__)
        section.notes.append(
            f"to liblinear's objective, start-up and all: {_mean(list(faster.values())):.2f}x as fast in the geometric "
            f"mean of {len(faster)}, {faster[where]:.2f}x at worst ({where})"
        )
    section.checks = [_agreement(disagreements)]
    return section


def _programs(bench: Bench, section: Section) -> tuple[StreamSvm, LibLinear, ScikitLearn | None] | None:
    ours, judge, scikit = bench.streamsvm, bench.peer("liblinear"), bench.peer("sklearn")
    if ours is None or not isinstance(judge, LibLinear):
        section.notes = ["needs streamsvm and liblinear"]
        return None
    return ours, judge, scikit if isinstance(scikit, ScikitLearn) else None


def _warm(
    bench: Bench, section: Section, ours: StreamSvm, contenders: list[Ours], *, tight: bool = False
) -> list[Ours]:
    """Those that run here, compiled."""
    able = []
    for how in contenders:
        try:
            for loss in bench.losses:
                if how.solver != "newton" or loss == "squared_hinge":
                    warm(bench, ours, how, loss, tight=tight)
        except PeerFailedError as error:
            section.notes.append(f"{how.name} is left out: {error}")
            bench.say(f"  {how.name} is left out: {error}")
        else:
            able.append(how)
    return able


def _problems(bench: Bench, name: str, data: Dataset) -> list[Problem]:
    return [Problem(name, data, loss, cost) for loss in bench.losses for cost in bench.costs]


def _enough(data: Dataset) -> str:
    """A budget into which all rows fit, whatever the file."""
    budget, times = quarter_budget(data)
    return f"{max(2000, round(2 * times * budget / 1e6))}MB"


def _liblinear(judge: LibLinear, problem: Problem, kind: str) -> Rival:
    options = f"{kind} -c {problem.cost!r}"
    return Rival(f"liblinear {kind}", lambda model: judge.fit(problem.data, model, options), PATIENCE)


def _linear_svc(scikit: ScikitLearn, problem: Problem, model: Path) -> Command:
    return scikit.linear_svc(problem.data, model, problem.loss, problem.cost)


def _settled(
    section: Section, problem: Problem, contest: Contest, rivals: list[Rival], contenders: list[Ours]
) -> list[Entry]:
    """Hold one contest: rows of the table, notes and raw numbers."""
    entries: list[Entry] = []
    try:
        entries = contest.settle(rivals, contenders)
    except (PeerFailedError, ValueError, KeyError) as error:
        contest.notes.append(f"{problem}: {error}")
    section.notes += contest.notes
    several = len({entry.rival for entry in entries if entry.solver}) > 1
    for entry in entries:
        theirs = _named(entries, entry.rival or entry.name)
        name = f"{entry.name}, to {entry.rival}" if several and entry.solver else entry.name
        gaps: list[Cell] = [entry.to_gap.get(gap) for gap in GAPS]
        timing = entry.timing
        faster = ratio(theirs.timing.best, timing.best) if entry.solver else None
        smaller = entry.peak / theirs.peak if entry.solver and theirs.peak and entry.peak else None
        own = [timing.best, _power(entry.tol), _power(entry.gap), timing.spread]
        section.rows.append([str(problem), name, *gaps, *own, faster, entry.peak or None, smaller])
    section.raw[str(problem)] = [vars(entry) | {"timing": vars(entry.timing)} for entry in entries]
    return entries


def _power(number: float) -> str | None:
    return None if number != number else f"{number:.1e}" if number else "0"


def _named(entries: list[Entry], name: str) -> Entry:
    return next((entry for entry in entries if entry.name == name), Entry(name))


def _pair(entries: list[Entry], how: Ours) -> tuple[Entry, Entry]:
    mine = _named(entries, how.name)
    return _named(entries, mine.rival), mine


def _faster(theirs: Entry, mine: Entry, limit: float) -> float:
    """Times as fast; of who did not get there, the most it can be."""
    given_up = mine.tol != mine.tol and bool(mine.to_gap)
    return ratio(theirs.timing.best, limit if given_up else mine.timing.best)


def _mean(values: list[float]) -> float:
    """Geometric; not a number where there is none."""
    known = [value for value in values if value == value]
    return exp(sum(map(log, known)) / len(known)) if known and len(known) == len(values) else nan


def _checks(by_kind: dict[str, dict[str, float]], times: float) -> list[Check]:
    """Each problem, then the worst and the mean, of each promise."""
    words = {"fits": "all in memory: faster than liblinear", "tight": "rows 4x the budget: faster than liblinear"}
    checks = []
    for kind, what in words.items():
        if kind == "fits" or times >= 3.9:
            found = by_kind[kind]
            named = found | {"worst": min(_all(found), default=nan), "geometric mean": _mean([*found.values()])}
            checks += [Check(f"{what}, {name}", value, FASTER[kind]) for name, value in named.items()]
    if times >= 3.9:
        most = max(_all(by_kind["memory"]), default=nan)
        checks.append(Check("rows 4x the budget: liblinear's memory, worst", most, SMALLER, at_least=False))
    return checks


def _all(found: dict[str, float]) -> list[float]:
    """The numbers; none where one is missing, because the worst is then unknown."""
    values = [*found.values()]
    return values if all(value == value for value in values) else []


def _agreement(disagreements: list[float]) -> Check:
    """Two programs compute the objective of the same weights."""
    most = max(disagreements, default=nan)
    return Check("objectives by NumPy and by streamsvm differ, 1e-6", most / SAME, 1.0, "ppm", at_least=False)
