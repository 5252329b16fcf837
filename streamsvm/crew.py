"""Who works on a run, and how much each did when: what is known of the workers of a cluster.

    beat: this worker went over so many rows, in the last so many seconds  -->  its sums, and rows in slots of time

All slots are of the same width. When time has filled them, each two become one, twice as wide: so a run of seconds and
one of days take the same memory, which is about 4 KB a worker. Nothing here changes a run.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SLOTS = 240
FIRST_WIDTH = 0.25  # seconds
MOST = 1000  # workers that are told apart; all later ones are counted together
OTHERS = "others"


class Worker(NamedTuple):
    """What a worker did. Times are seconds from the beginning of the run."""

    name: str  # such as worker 1
    address: str  # host:port
    threads: int
    shards: int  # that it worked on
    rows: int  # that it went over, all passes
    bytes: int  # of files that it has read
    busy: float  # seconds, all threads together
    idle: float
    came: float
    gone: float | None  # None: it was there to the end
    late: bool  # whether it came when others had begun


class Record(NamedTuple):
    """What became of a crew: its workers, and the rows a second of each in slots of time."""

    workers: list[Worker]
    edges: list[float]  # of the slots, in seconds from the beginning of the run; the last one has a width of its own
    rates: list[list[float]]
    busy_threads: list[float]  # of all of them, in each slot

    @property
    def there(self) -> list[Worker]:
        """Those that were there in the end."""
        return [worker for worker in self.workers if worker.gone is None]

    @property
    def busy(self) -> float:
        """The share of their time that workers were busy."""
        busy = sum(worker.busy for worker in self.workers)
        return busy / max(busy + sum(worker.idle for worker in self.workers), 1e-9)


class Member:
    """A worker, as far as it is known by now; times are those of `time.perf_counter()`."""

    def __init__(self, name: str, address: str, came: float, late: bool) -> None:
        self.name = name
        self.address = address
        self.came = came
        self.late = late
        self.gone: float | None = None
        self.threads = 1 if address else 0
        self.shards: set[int] = set()
        self.rows = self.bytes = 0
        self.busy = 0.0
        self.slots: NDArray[np.float64] = np.zeros(SLOTS)  # rows in each

    def __str__(self) -> str:
        return f"{self.name} ({self.address})"


class Crew:
    """All workers that were ever heard of."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._end: float | None = None
        self._width = FIRST_WIDTH
        self._members: dict[str, Member] = {}
        self._busy: NDArray[np.float64] = np.zeros(SLOTS)  # seconds of work, of all of them together
        self.present = 0  # workers that are there
        self.threads = 0  # that they have

    def attend(self, threads: Mapping[str, int], at: float) -> tuple[list[Member], list[Member]]:
        """These are there now, each with so many threads: who has come, and who is gone."""
        first, came = not self._members, []
        self.present, self.threads = len(threads), sum(threads.values())
        for name, count in threads.items():
            known, member = name in self._members, self._member(name, at, late=not first)
            if member.name != OTHERS:
                member.threads = count
                if not known or member.gone is not None:
                    member.gone = None
                    came.append(member)
        missing = [member for name, member in self._members.items() if name not in threads and name != OTHERS]
        gone = [member for member in missing if member.gone is None]
        for member in gone:
            member.gone = at
        return ([] if first else came), gone

    def hear(self, name: str, shard: int, rows: int, size: int, seconds: float, at: float) -> None:
        """A worker has told what it did in the last seconds."""
        member = self._member(name, at, late=True)
        member.shards.add(shard)
        member.rows += rows
        member.bytes += size
        member.busy += seconds
        stop = max(at - self._begin, 0.0)
        while stop >= SLOTS * self._width:
            self._widen()
        self._spread(member.slots, rows, stop - seconds, stop)
        self._spread(self._busy, seconds, stop - seconds, stop)

    def called(self, name: str) -> str:
        """What a worker is called, by its whole address."""
        return str(self._members[name]) if name in self._members else host_and_port(name)

    def end(self) -> None:
        """The run is over."""
        self._end = time.perf_counter()

    def record(self, started: float) -> Record:
        """All of it, in seconds from the beginning of the run."""
        end = self._end if self._end is not None else time.perf_counter()
        workers = []
        for member in self._members.values():
            there = max((member.gone if member.gone is not None else end) - member.came, 0.0)
            workers.append(
                Worker(
                    member.name,
                    member.address,
                    member.threads,
                    len(member.shards),
                    member.rows,
                    member.bytes,
                    member.busy,
                    max(member.threads * there - member.busy, 0.0),
                    member.came - started,
                    None if member.gone is None else member.gone - started,
                    member.late,
                )  # fmt: skip
            )
        edges = self._edges(end)
        rates = [_by_second(member.slots, edges) for member in self._members.values()]
        return Record(workers, (edges + self._begin - started).tolist(), rates, _by_second(self._busy, edges))

    def _edges(self, end: float) -> NDArray[np.float64]:
        """Of the slots that have begun, from the first one on; one that has hardly begun joins that before."""
        begun = min(max((end - self._begin) / self._width, 1.0), float(SLOTS))
        edges = np.arange(round(begun) + 1.0)
        edges[-1] = begun
        return edges * self._width

    def _member(self, name: str, at: float, *, late: bool) -> Member:
        if name not in self._members:
            if len(self._members) >= MOST:
                return self._members.setdefault(OTHERS, Member(OTHERS, "", at, late))
            called = f"worker {len(self._members) + 1}"
            self._members[name] = Member(called, host_and_port(name), at, late)
        return self._members[name]

    def _spread(self, slots: NDArray[np.float64], amount: float, start: float, stop: float) -> None:
        """What was done in a stretch of time into its slots, in each its part."""
        start, last = max(start, 0.0), int(stop / self._width)
        first = int(start / self._width)
        if first >= last:
            slots[last] += amount
            return
        edges = np.concatenate([[start], np.arange(first + 1, last + 1) * self._width, [stop]])
        slots[first : last + 1] += amount * np.diff(edges) / (stop - start)

    def _widen(self) -> None:
        self._width *= 2.0
        for slots in (self._busy, *(member.slots for member in self._members.values())):
            slots[: SLOTS // 2] = slots[::2] + slots[1::2]
            slots[SLOTS // 2 :] = 0.0


def _by_second(slots: NDArray[np.float64], edges: NDArray[np.float64]) -> list[float]:
    """What was done in each second between two edges; what slots have beyond the last one counts before it."""
    count = len(edges) - 1
    amounts = slots[:count].copy()
    amounts[-1] += slots[count:].sum()
    found: list[float] = (amounts / np.diff(edges)).tolist()
    return found


def host_and_port(address: str) -> str:
    """An address as it is shown: without its protocol, and without what may stand before an @.

    >>> host_and_port("tcp://10.0.0.7:4321"), host_and_port("tls://me:secret@[::1]:80"), host_and_port("inproc://a/1/2")
    ('10.0.0.7:4321', '[::1]:80', 'a/1/2')
    """
    return address.split("://", 1)[-1].rsplit("@", 1)[-1]
