"""What every task of a run must know, and what a worker has open of its shards.

A `Job` goes to each worker once. A shard is opened where it is first asked for: its rows are parsed into a cache file
in the worker's own directory, and stay open for later tasks. Everything that is open can be made again from the job, so
a shard that comes to another worker is merely slower there, once.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from streamsvm.cached_groups import CachedGroups
from streamsvm.config import Settings
from streamsvm.distributed.cluster import OWN_DISK, TOPIC, Failure
from streamsvm.distributed.shards import Shard
from streamsvm.errors import SourceError, StreamSvmError
from streamsvm.feed import Feed
from streamsvm.fitting import ready_groups
from streamsvm.groups import Groups
from streamsvm.io.files import local_path
from streamsvm.io.spans import Span, SpanSource
from streamsvm.io.urls import is_local
from streamsvm.model import Model
from streamsvm.passes import Passes
from streamsvm.pool import available_cores
from streamsvm.readers import Dialect
from streamsvm.reading import make_limits, make_reading, memory_for_solvers, reach_storage
from streamsvm.shuffle import mixed
from streamsvm.solvers.descent import Descent
from streamsvm.solvers.sums import Sums
from streamsvm.stream import Features, Stream
from streamsvm.tables import TableDialect

BEAT = 0.5  # seconds between two words of a worker about a shard
WORTH_TELLING = 0.02  # seconds of work
RECORDS = ("parquet", "arrow")


class Facts(NamedTuple):
    """What is known of all shards together, before anything is learned."""

    feed: dict[str, Any]  # the state of the driver's feed: classes, weights, scales, the map
    width: int
    weight: float  # N, the sum of c_i


class Job(NamedTuple):
    """A run: the same for all shards."""

    name: str
    settings: Settings
    dialect: Dialect
    features: Features
    shards: tuple[Shard, ...]
    initial: Model | None = None
    facts: Facts | None = None
    sharing: int = 1  # tasks that may run at a time on one machine, and so share its cores


class ShardPasses(Passes):
    """The passes over a shard, whose cache is in the worker's own directory."""

    remedy = OWN_DISK


class OpenShard:
    """A shard on a worker: its rows in a cache, and what solvers have made of it."""

    def __init__(self, job: Job, number: int, home: Path) -> None:
        self.number = number
        self._run = job.name
        settings = settings_here(job)
        self.settings = settings.model_copy(
            update={"run": settings.run.model_copy(update={"seed": mixed(settings.run.seed, number) >> 1})}
        )
        self.stream = shard_stream(job, number)
        self._stack = contextlib.ExitStack()
        path = home / f"{job.name}-{number}.arrow"
        passes = ShardPasses(
            self.stream,
            cache=str(path),
            passes=2,
            mix_later=settings.data.shuffle != 0,
            holdout=settings.data.holdout,
        )
        self.passes = self._stack.enter_context(passes)
        self._stack.callback(path.unlink, missing_ok=True)
        self.feed = Feed(self.settings, self.passes, lambda text: None, job.initial, memory_for_solvers(settings))
        self.groups: Any = None
        self.solver: Descent | None = None
        self.standing: tuple[str, int] | None = None  # whose dual variables the solver has, and what it has scanned
        self.memory: Any = None  # beside these dual variables
        self.rest_beyond: Any = None  # of a solver that has not learned yet
        self.sums: Sums | None = None
        self.columns: dict[str, tuple[int, Any]] = {}  # numbers for each row, and which version of them
        self.learned: tuple[int, float, float, float] | None = None  # by an online solver, so far in this pass
        self._told = time.monotonic()
        self._rows = self._bytes = 0

    def close(self) -> None:
        self.groups = self.solver = self.sums = None
        self.columns.clear()
        self._stack.close()

    # What is made once.

    def filled(self) -> Passes:
        """The passes, with all rows in the cache."""
        if not self.passes.cached:
            self.passes.fill(self.tick)
            self.beat()
        return self.passes

    def ready(self, facts: Facts) -> Any:
        """The groups, coded and weighted as the facts about all shards say."""
        if self.groups is None:
            self.filled()
            self.feed.restore(facts.feed, inside=False)
            self.groups = groups_of(self)
        if facts.width:
            self.groups.width, self.groups.weight = facts.width, facts.weight
        return self.groups

    # What is told.

    def tick(self, rows: int) -> None:
        """Called while work goes on: tells the driver from time to time."""
        self._rows += rows
        if time.monotonic() - self._told >= BEAT:
            self.beat()

    def beat(self) -> None:
        read, now = max(self.stream.tally.bytes, self._bytes), time.monotonic()
        tell(self.number, self._rows, read - self._bytes, now - self._told, self.learned, self._run)
        self._told, self._rows, self._bytes = now, 0, read

    @contextlib.contextmanager
    def working(self, since: float) -> Iterator["OpenShard"]:
        """A task has the shard, since some moment; what it did is told when it lets go, if that is worth a word."""
        self._told = since
        try:
            yield self
        finally:
            self.learned = None
            if self._rows or time.monotonic() - self._told >= WORTH_TELLING:
                self.beat()


def groups_of(shard: OpenShard) -> Groups:
    """The rows of a shard in groups, mapped where there is a map."""
    width, threads = shard.stream.features.width, make_reading(shard.settings).workers
    raw = CachedGroups(shard.feed, shard.passes, dim=width, threads=threads, tick=shard.tick)
    return ready_groups(raw, shard.feed.map, shard.tick)


def shard_stream(job: Job, number: int) -> Stream:
    """The rows of a shard as they are written."""
    settings, data = settings_here(job), job.settings.data
    reach_storage(settings)
    refuse_other_files(job.shards[number].spans)
    records = isinstance(job.dialect, TableDialect) and job.dialect.format in RECORDS
    source = SpanSource(job.shards[number].spans, records=records, limits=make_limits(settings), max_line=data.max_line)
    return Stream(
        source,
        job.dialect,
        skip_bad=data.on_bad_row == "skip",
        max_bad_rows=data.max_bad_rows,
        sample=data.sample,
        seed=mixed(settings.run.seed, number) >> 1,
        reading=make_reading(settings),
        features=job.features,
    )


def settings_here(job: Job) -> Settings:
    """The settings of a job on this machine: as many threads as there are cores for each task."""
    run = job.settings.run
    if run.threads != "auto":
        return job.settings
    own = max(1, available_cores() // job.sharing)
    return job.settings.model_copy(update={"run": run.model_copy(update={"threads": own})})


def refuse_other_files(spans: tuple[Span, ...]) -> None:
    """SourceError if a file of this machine is not as long as the one of that name which the driver has seen."""
    for part in {span.part for span in spans}:
        if is_local(part.url) and part.size is not None:
            with contextlib.suppress(OSError):  # told when it is opened
                size = local_path(part.url).stat().st_size
                if size != part.size:
                    raise SourceError(f"{part.shown}: has {size:,} bytes here, not {part.size:,} as for the driver")


# What this process has open.

_open: dict[tuple[str, int], OpenShard] = {}
_locks: dict[tuple[str, int], threading.RLock] = {}
_guard = threading.Lock()


@contextlib.contextmanager
def open_shard(job: Job, number: int) -> Iterator[OpenShard]:
    """A shard, opened if it is not; one task at a time has it."""
    key = (job.name, number)
    with _guard:
        lock = _locks.setdefault(key, threading.RLock())
    with lock:
        since = time.monotonic()
        if key not in _open:
            close_others(job.name)
            _open[key] = OpenShard(job, number, worker_directory())
        with _open[key].working(since) as shard:
            yield shard


def close_others(name: str) -> None:
    """Let go of the shards of other runs, which have ended, or will open them again."""
    for key in [key for key in _open if key[0] != name]:
        _open.pop(key).close()


def close_all(name: str) -> None:
    """A run has ended."""
    for key in [key for key in _open if key[0] == name]:
        _open.pop(key).close()


def worker_directory() -> Path:
    """Where this worker may keep files; they go when it goes."""
    from distributed import get_worker

    home = Path(get_worker().local_directory) / "streamsvm"
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    return home


def tell(
    shard: int,
    rows: int,
    size: int,
    seconds: float = 0.0,
    learned: tuple[int, float, float, float] | None = None,
    run: str = "",
) -> None:
    """Tell the driver what was read of a shard, how long that took, and what an online solver has learned of it."""
    from distributed import get_worker

    with contextlib.suppress(Exception):
        worker = get_worker()
        worker.log_event(TOPIC, (shard, worker.address, int(rows), int(size), seconds, learned, run))


def this_worker() -> str:
    """The worker that runs this, and its machine, as people may look for them."""
    from distributed import get_worker

    return f"{get_worker().address} on {socket.gethostname()}"


def guarded(work: Callable[..., Any]) -> Callable[..., Any]:
    """Work whose expected errors come back as values: not every exception survives the way."""
    from functools import wraps

    @wraps(work)
    def run(*arguments: Any) -> Any:
        try:
            return work(*arguments)
        except StreamSvmError as error:
            kind = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "streamsvm.errors")
            return Failure(kind, str(error), this_worker())

    return run
