"""One problem, solved from text to a model by streamsvm and by others: who needs how long, and how much memory.

Others run to their own tolerance. What objective they reach is computed afterwards, outside the clock, and streamsvm is
given the loosest tolerance of a fixed ladder with which it ends at least as low: first in steps of about 3, then at 0.7
and 0.5 of the last that was too loose. Then all take turns.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import inf, nan
from pathlib import Path
from typing import Any, NamedTuple

from bench import Bench
from data import Dataset
from peers import StreamSvm
from peers.liblinear_dual import LibLinear, Solved
from peers.streamsvm_cli import objects
from process import Command, PeerFailedError, Timing, interleave, run, warm_pages

GAPS = (1e-1, 1e-2, 1e-3)
LADDER = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
BETWEEN = (0.7, 0.5)
PAIR_BYTES, ROW_BYTES = 8, 16  # of parsed rows, as streamsvm keeps them
LEAST_MEMORY = 32_000_000  # that streamsvm takes for an answer
SAME = 1e-6  # objectives this close are the same, relatively


class Problem(NamedTuple):
    name: str
    data: Dataset
    loss: str
    cost: float

    def __str__(self) -> str:
        return f"{self.name}, {self.loss}, C={self.cost:g}" if self.name else f"{self.loss}, C={self.cost:g}"


class Ours(NamedTuple):
    """streamsvm with one solver and one budget."""

    name: str
    solver: str
    memory: str


class Rival(NamedTuple):
    """Another program, and how it is run for a model at a given place."""

    name: str
    command: Callable[[Path], Command]
    limit: float  # seconds, then it is given up
    matched: bool = True  # whether streamsvm is to reach its objective
    again: bool = True  # whether it runs in every round


class Reached(NamedTuple):
    """How one run of streamsvm ended."""

    seconds: float
    objective: float
    dual: float
    gap: float


@dataclass
class Entry:
    """What is known of one program: the runs to its own tolerance, or those to a rival's objective."""

    name: str
    solver: str = ""
    timing: Timing = field(default_factory=Timing)
    peak: float = 0.0  # RssAnon in MB, the most of all runs
    objective: float = nan
    gap: float = nan  # relative, from the best bound that is known
    tol: float = nan
    rival: str = ""  # whose objective was to be reached
    to_gap: dict[float, float] = field(default_factory=dict)  # seconds, one run each


def quarter_budget(data: Dataset) -> tuple[int, float]:
    """A budget of a quarter of the parsed rows, and how many times it the rows then are: small data fits the least."""
    rows = PAIR_BYTES * data.features + ROW_BYTES * data.rows
    budget = max(rows // 4, LEAST_MEMORY)
    return budget, rows / budget


def exact(ours: StreamSvm, problem: Problem, how: Ours, model: Path, *words: str) -> Command:
    """A run of an exact solver."""
    fixed = ["--solver", how.solver, "--loss", problem.loss, "--C", repr(problem.cost), "--memory", how.memory]
    return ours.command("train", str(problem.data.svm), *fixed, "-o", str(model), "--json", *words)


def warm(bench: Bench, ours: StreamSvm, how: Ours, loss: str, *, tight: bool = False) -> None:
    """Compile what a solver needs: on 1000 rows and, if asked, on as many as do not fit the least budget."""
    model = bench.work / "warm.model"
    small = Problem("", bench.small, loss, 1.0)
    run(exact(ours, small, how, model, "--tol", "1e-2", "--time", "5s"))
    if tight:
        little = how._replace(memory=f"{LEAST_MEMORY // 10**6}MB")
        rows = str(2 * LEAST_MEMORY // (PAIR_BYTES * bench.main.features // bench.main.rows + ROW_BYTES))
        large = small._replace(data=bench.main)
        run(exact(ours, large, little, model, "--limit", rows, "--tol", "1e-1", "--passes", "12"))


class Contest:
    """Call `settle`; what it returns is the entries in the order of a table."""

    def __init__(self, bench: Bench, problem: Problem, judge: LibLinear) -> None:
        assert bench.streamsvm
        self._bench, self._problem, self._judge, self._ours = bench, problem, judge, bench.streamsvm
        self.limit = 20.0  # seconds of a run of streamsvm; twice those of the slowest of the others if that is more
        self._tried: dict[tuple[Ours, float], Reached] = {}
        self._peaks: dict[str, float] = {}  # of streamsvm, whatever the tolerance
        self.notes: list[str] = []
        self.disagreement = 0.0  # of the two computations of an objective, relative, the largest

    def settle(self, rivals: list[Rival], contenders: list[Ours]) -> list[Entry]:
        warm_pages(self._problem.data.svm)
        entries = [entry for rival in rivals if (entry := self._first_run(rival))]
        ran = {entry.name for entry in entries}
        rivals = [rival for rival in rivals if rival.name in ran]
        self.limit = max([self.limit, *(2.0 * entry.timing.best for entry in entries)])
        gaps = {how: self._to_gaps(how) for how in contenders}
        self._judge_all(entries, contenders)
        jobs: dict[str, Callable[[], float]] = {}
        for how in contenders:
            matched = [entry for entry, rival in zip(entries[: len(rivals)], rivals, strict=True) if rival.matched]
            for theirs in matched or [Entry("")]:
                entry = Entry(how.name, how.solver, rival=theirs.name, to_gap=gaps[how])
                entries.append(entry)
                entry.tol = self._tolerance(how, theirs.objective)
                if entry.tol != entry.tol and theirs.name:
                    said = f"does not come down to {theirs.objective:.7g} in {self.limit:.0f} s"
                    self.notes.append(f"{self._problem}: {how.name} {said}")
                elif entry.tol == entry.tol:
                    entry.objective = self._tried[how, entry.tol].objective
                    jobs[f"{how.name}, tol {entry.tol:g}"] = partial(self._matched, how, entry.tol)
        self._rounds(jobs, rivals, entries)
        dual = max((reached.dual for reached in self._tried.values()), default=nan)
        for entry in entries:
            entry.peak = self._peaks.get(entry.name, entry.peak)
            entry.gap = max((entry.objective - dual) / entry.objective, 0.0)
        return entries

    # Others.

    def _model(self, name: str) -> Path:
        return self._bench.work / f"contest-{name.replace(' ', '')}.model"

    def _first_run(self, rival: Rival) -> Entry | None:
        entry = Entry(rival.name)
        try:
            entry.timing.seconds.append(self._rival_seconds(rival, entry))
        except PeerFailedError as error:
            self._say(f"  {self._problem}: {rival.name}: FAILED: {error}")
            self.notes.append(f"{self._problem}: {rival.name}: {error}")
            return None
        self._say(f"  {self._problem}: {rival.name}: {entry.timing.best:.3f} s")
        return entry

    def _rival_seconds(self, rival: Rival, entry: Entry) -> float:
        done = run(rival.command(self._model(rival.name)), sample_memory=True, limit=rival.limit)
        entry.peak = max(entry.peak, done.peak_anon / 1e6)
        return done.seconds

    def _judge_all(self, entries: list[Entry], contenders: list[Ours]) -> None:
        """The objectives of all models so far, by one reading; streamsvm's say whether two programs agree."""
        problem = self._problem
        latest = {how: tol for how, tol in self._tried}
        ours = [how for how in contenders if how in latest]
        models = [self._model(entry.name) for entry in entries] + [self._model(how.name) for how in ours]
        found = self._judge.objectives(problem.data, [Solved(problem.loss, problem.cost, model) for model in models])
        for entry, objective in zip(entries, found, strict=False):
            entry.objective = objective
        for how, objective in zip(ours, found[len(entries) :], strict=True):
            told = self._tried[how, latest[how]].objective
            self.disagreement = max(self.disagreement, abs(told / objective - 1.0))

    # streamsvm.

    def _try(self, how: Ours, tol: float) -> Reached:
        words = ["--tol", repr(tol), "--passes", "100000", "--time", f"{self.limit:.0f}s"]
        done = run(exact(self._ours, self._problem, how, self._model(how.name), *words), sample_memory=True)
        told: dict[str, Any] = objects(done.output)[-1]
        self._peaks[how.name] = max(self._peaks.get(how.name, 0.0), done.peak_anon / 1e6)
        dual, gap = told["dual"], told["gap"]
        bound = (-inf, inf) if dual is None or gap is None else (float(dual), float(gap))
        return Reached(done.seconds, float(told["objective"]), *bound)

    def _tried_once(self, how: Ours, tol: float) -> Reached:
        if (how, tol) not in self._tried:
            reached = self._tried[how, tol] = self._try(how, tol)
            self._say(
                f"  {self._problem}: {how.name}: tol {tol:g}: {reached.seconds:.3f} s, gap {reached.gap:.1e}, "
                f"objective {reached.objective:.7g}   (looking)"
            )
        return self._tried[how, tol]

    def _to_gaps(self, how: Ours) -> dict[float, float]:
        """Seconds to each of the gaps, one run each; none below one that was not reached in time."""
        seconds: dict[float, float] = {}
        for tol in GAPS[:2] if self._bench.quick else GAPS:
            try:
                reached = self._tried_once(how, tol)
            except (PeerFailedError, ValueError, KeyError) as error:
                self.notes.append(f"{self._problem}: {how.name}: {error}")
                return {}
            if reached.gap > tol:
                self.notes.append(f"{self._problem}: {how.name}: gap {reached.gap:.1e} after {self.limit:.0f} s")
                return seconds
            seconds[tol] = reached.seconds
        return seconds

    def _tolerance(self, how: Ours, target: float) -> float:
        """The loosest of the ladder with which a run ends at the target or below; not a number if none does."""
        if target != target or not any(one == how for one, _ in self._tried):
            return nan
        above = inf
        for tol in LADDER[::2] if self._bench.quick else LADDER:
            reached = self._tried_once(how, tol)
            late = reached.gap > tol  # its time was over, which is no way to stop
            if late or reached.objective <= target:
                finer = [float(f"{above * part:.1e}") for part in BETWEEN if above < inf and not self._bench.quick]
                return next((one for one in finer if self._low(how, one, target)), nan if late else tol)
            above = tol
        return nan

    def _low(self, how: Ours, tol: float, target: float) -> bool:
        reached = self._tried_once(how, tol)
        return reached.gap <= tol and reached.objective <= target

    def _matched(self, how: Ours, tol: float) -> float:
        """A run on the clock; it must end where the one before ended."""
        reached = self._try(how, tol)
        if reached.objective > self._tried[how, tol].objective * (1.0 + SAME):
            raise ValueError(
                f"another end than before: objective {reached.objective!r}, gap {reached.gap:.1e} after "
                f"{reached.seconds:.1f} s; has the package been edited meanwhile, so that kernels were compiled?"
            )
        return reached.seconds

    def _rounds(self, jobs: dict[str, Callable[[], float]], rivals: list[Rival], entries: list[Entry]) -> None:
        """All take turns; others had their first turn already."""
        named = {entry.name: entry for entry in entries}
        theirs = {rival.name: partial(self._rival_seconds, rival, named[rival.name]) for rival in rivals if rival.again}
        rounds = [interleave(jobs, 1, self._say), interleave({**theirs, **jobs}, self._bench.repeat - 1, self._say)]
        for timings in rounds:
            for entry in entries:
                label = f"{entry.name}, tol {entry.tol:g}" if entry.solver else entry.name
                timing = timings.get(label, Timing())
                entry.timing.seconds += timing.seconds
                entry.timing.failure = entry.timing.failure or timing.failure

    def _say(self, text: str) -> None:
        self._bench.say(text)
