"""A listener that keeps what it hears, in a bounded number of points, and passes it on.

    all points  --every 1st, 2nd, 4th, ...-->  at most MOST of them; when they are full every second one is dropped

So a run of seconds and one of days have histories of the same size, evenly spaced, and the last point is always there.
Points where the proven gap is known anew are kept apart, and so are the ends of passes. Nothing here changes a run.
"""

import re
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from streamsvm.crew import Record
from streamsvm.progress import Listener, Progress

MOST = 1000
MOST_NOTES = 200
FIRST_LOOK, LOOKS = 64, 25
Item = TypeVar("Item")


class Point(NamedTuple):
    """Where a run stood, and the memory that was its own (RssAnon, in bytes), where that can be known."""

    now: Progress
    memory: int | None


class Thinned(Generic[Item]):
    """Items of which there may be very many: some of them, evenly spaced."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._kept: list[Item] = []
        self._every = 1
        self._seen = 0

    def add(self, make: Callable[[], Item]) -> None:
        """The next item, which is made only if it is kept."""
        if self._seen % self._every == 0:
            if len(self._kept) == self._most:
                self._kept = self._kept[::2]
                self._every *= 2
            if self._seen % self._every == 0:
                self._kept.append(make())
        self._seen += 1

    def items(self) -> list[Item]:
        return list(self._kept)


def memory_now() -> int | None:
    """Bytes that are this process's own, mapped files left out; None where the system does not tell."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            found = re.search(r"^RssAnon:\s+(\d+) kB", status.read(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


class Recording:
    """What happened in a run. `command` is what was typed, fit to be shown."""

    def __init__(self, listener: Listener, command: str = "") -> None:
        self._listener = listener
        self.command = command
        self.resumed = False  # whether only the last part of the run is recorded
        self.crew: Record | None = None  # the workers of a cluster, after a run on one
        self.notes: list[str] = []
        self.notes_left_out = 0
        self._points: Thinned[Point] = Thinned()
        self._proofs: Thinned[Progress] = Thinned()
        self._ends: Thinned[Progress] = Thinned()
        self._last: Progress | None = None
        self._known: tuple[float | None, float | None, float | None] = (None, None, None)

    def note(self, text: str) -> None:
        if len(self.notes) < MOST_NOTES:
            self.notes.append(text)
        else:
            self.notes_left_out += 1
        self._listener.note(text)

    def progress(self, now: Progress) -> None:
        self._listener.progress(now)
        self.keep(now)

    def keep(self, now: Progress) -> None:
        """Where a run stands, for the curves of the report alone."""
        last = self._last
        if last is not None and now.examples < last.examples:  # it begins again, now that it knows all classes
            self._points, self._proofs, self._ends = Thinned(), Thinned(), Thinned()
        elif last is not None and now.pass_number != last.pass_number and last.loss is not None:
            self._ends.add(lambda: last)
        self._points.add(lambda: Point(now, memory_now()))
        known = (now.objective, now.dual, now.gap)
        if now.objective is not None and known != self._known:
            self._known = known
            self._proofs.add(lambda: now)
        self._last = now

    def next_look(self, examples: int) -> int:
        """The number of examples at which to look next: a twenty-fifth more, so that every curve is a curve."""
        return max(FIRST_LOOK, examples + examples // LOOKS)

    # What was heard.

    @property
    def points(self) -> list[Point]:
        points = self._points.items()
        if self._last is not None and points[-1].now is not self._last:
            points.append(Point(self._last, memory_now()))
        return points

    @property
    def proofs(self) -> list[Progress]:
        """Where something new was known of the distance from the optimum."""
        proofs = self._proofs.items()
        last = self._last
        if last is not None and proofs and (last.objective, last.gap) != (proofs[-1].objective, proofs[-1].gap):
            proofs.append(last)
        return proofs

    @property
    def ends(self) -> list[Progress]:
        """The ends of passes, that of the last one too."""
        ends = self._ends.items()
        if self._last is not None and self._last.loss is not None:
            ends.append(self._last)
        return ends
