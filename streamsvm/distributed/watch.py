"""What the driver hears of its workers while it waits: who is there, who did what, and how far an exchange has come.

A worker tells every half second, and when a piece of work ends. What it tells is kept in sums (crew.py), and never
decides anything but whether a worker is silent.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from streamsvm.crew import Crew, Member
from streamsvm.progress import Together

NAMED = 3  # workers that are named when several come or go at once
QUIET = 10.0  # seconds until it is said why nothing may have been heard yet


class Learned(NamedTuple):
    """What an online solver has learned so far of a shard in this pass."""

    seen: int
    weight: float
    loss: float
    wrong: float


class Beat(NamedTuple):
    """What a worker has told: of which shard, what was read since it told last, and how long that took."""

    shard: int
    worker: str
    rows: int
    bytes: int
    seconds: float = 0.0
    learned: tuple[int, float, float, float] | None = None
    run: str = ""  # of which job


class Watch:
    """All that was heard, and how much was exchanged."""

    def __init__(self) -> None:
        self.crew = Crew()
        self.runs: set[str] = {""}  # whose work is counted: others may have the same workers do something
        self.sent = 0  # bytes of vectors that went to workers and came from them
        self.rounds = 0  # exchanges: all shards have answered with a vector, and these were added
        self.rows = 0  # of the exchange that is under way: what all shards have gone over by now
        self._most = 0  # of them
        self._learned: dict[int, Learned] = {}
        self._begun = time.monotonic()
        self._heard = False

    def hear(self, beat: Beat, at: float) -> None:
        """`at` is by `time.perf_counter()`."""
        self._heard = True
        if beat.run not in self.runs:
            return
        self.crew.hear(beat.worker, beat.shard, beat.rows, beat.bytes, beat.seconds, at)
        self.rows = min(self.rows + beat.rows, self._most)
        if beat.learned is not None:
            told, before = Learned(*beat.learned), self._learned.get(beat.shard)
            if before is None or told.seen > before.seen:  # less when the shard is learned again, by another worker
                self._learned[beat.shard] = told

    @contextmanager
    def exchange(self, rows: int) -> Iterator[None]:
        """While it goes on, `rows` grows, up to so many."""
        self.rows, self._most = 0, rows
        self._learned.clear()
        try:
            yield
            self.rounds += 1
        finally:
            self.rows = self._most = 0
            self._learned.clear()

    @property
    def learned(self) -> Learned | None:
        """What all shards have learned of the pass that is under way."""
        told = self._learned.values()
        return Learned(*map(sum, zip(*told, strict=True))) if told else None

    @property
    def together(self) -> Together:
        return Together(self.crew.present, self.rounds, self.sent)

    # What is said.

    def attend(self, threads: Mapping[str, int], known: set[str]) -> list[str]:
        """These workers are there now: what is to be said of those that came or went, but for the known ones."""
        came, gone = self.crew.attend(threads, time.perf_counter())
        there, left = len(threads), "is left" if len(threads) == 1 else "are left"
        lost = [member for member in gone if member.address not in known]
        said = []
        if lost:
            said.append(f"warning: {_named(lost)} gone: shards go to others, of which {there} {left}")
        if came:
            said.append(f"{_named(came, 'has', 'have')} come: there are {there} now")
        return said

    def why_quiet(self) -> str | None:
        """What may be said, once, when nothing was heard for long."""
        if self._heard or time.monotonic() - self._begun < QUIET:
            return None
        self._heard = True
        return "waiting for the workers: each machine compiles kernels once, which takes a minute or so"


def hanging(workers: Mapping[str, Any], silent: Iterable[str], timeout: float) -> list[str]:
    """Which of the silent workers are to be put out, by what the scheduler knows of all.

    Some may be silent because they wait for data that another has, which hangs. So those go first whose pulse was last
    felt long before that of others; then those at work; else they cannot reach each other, and all go.
    """
    known = {name: workers[name] for name in sorted(silent) if name in workers}
    latest = max((told["last_seen"] for told in workers.values()), default=0.0)
    without_pulse = [name for name, told in known.items() if latest - told["last_seen"] > timeout / 2]
    at_work = [name for name, told in known.items() if told["metrics"].get("task_counts", {}).get("executing")]
    return without_pulse or at_work or list(known)


def _named(members: list[Member], one: str = "is", many: str = "are") -> str:
    """worker 2 (10.0.0.7:4321) is, or: 5 workers, worker 2 (10.0.0.7:4321) among them, are"""
    if len(members) <= NAMED:
        return f"{' and '.join(map(str, members))} {one if len(members) == 1 else many}"
    return f"{len(members)} workers, {members[0]} among them, {many}"
