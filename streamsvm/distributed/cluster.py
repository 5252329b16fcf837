"""Work on shards, done by the workers of a Dask cluster, which may die, hang, or come later.

A task is a function of what it is given; what it leaves on a worker (rows in memory, a cache file) only makes the next
one quicker. So whatever is lost with a worker is done again by another. Each shard has a home, the worker that has its
rows; homes are planned by size, again when workers come or go. Results are added in the order of shards, in a tree of
fixed shape: neither the number of workers nor who is first changes one bit.

Three kinds of trouble are told apart: a worker that dies (Dask runs its tasks elsewhere), one that hangs (no word for
`timeout` seconds: it is put out, and its tasks run elsewhere), and a scheduler that is gone (ClusterLostError).
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from streamsvm import interrupts
from streamsvm.crew import host_and_port
from streamsvm.distributed.joining import GONE, meet, refuse_other_scheduler
from streamsvm.distributed.watch import Beat, Watch, hanging
from streamsvm.errors import ConfigError, DataError, SourceError, StreamSvmError

TOPIC = "streamsvm-progress"
POLL = 0.25  # seconds between two looks at signals and clocks
ATTEMPTS = 5  # to have a task done
ARITY = 8  # results that are added in one task
PATIENCE = 30.0  # seconds to wait for workers, and for a scheduler that does not answer
FAREWELL = 5.0  # seconds to wait for workers that are told of the end
LOOK = 2.0  # seconds between two looks at who is there
LARGE = 1 << 20  # bytes from which on values are sent once to each worker, and not with each task

OWN_DISK = "start the worker with --local-directory on a larger disk"  # where its directory is full

Heard = Callable[[int, int], None]  # rows and bytes that some worker has read since


class ClusterLostError(SourceError):
    """The scheduler is gone, or all workers are."""


class Failure(NamedTuple):
    """An expected error, on its way from a worker."""

    kind: str
    message: str
    worker: str = ""

    def raised(self, elsewhere: bool) -> StreamSvmError:
        """The error; what a worker `elsewhere` could not do is told with its name, since it may be its own fault."""
        import streamsvm.errors

        kind: type[StreamSvmError] = getattr(streamsvm.errors, self.kind, SourceError)
        if not elsewhere or not self.worker or issubclass(kind, DataError):
            return kind(self.message)
        same = "; paths must mean the same on all machines: a shared file system, or a bucket"
        shared = kind is SourceError and not self.message.endswith(OWN_DISK)
        return kind(f"{self.message} (on worker {self.worker}{same if shared else ''})")


class Shared:
    """A value for many tasks: sent to each worker once, and again when it got lost; a small one with each task."""

    def __init__(self, value: Any, small: bool = False) -> None:
        self.value = value
        self.small = small
        self.future: Any = None


class Cluster:
    """Workers, and how to have something done by them."""

    def __init__(
        self, client: Any, at: str, timeout: float | None, note: Callable[[str], None], home: Path | None = None
    ) -> None:
        self._client = client
        self.home = home  # a directory that all workers see, if they are on this machine
        self._at = at
        self._timeout = timeout
        self._note = note
        self._beats: deque[tuple[float, Beat]] = deque()
        self._homes: dict[int, str] = {}
        self._known: tuple[str, ...] = ()  # workers for which homes were planned
        self._put_out: set[str] = set()
        self._strangers: set[str] = set()  # of those put out, the ones that came without what tasks need
        self._met: set[str] = set()
        self.sizes: Mapping[int, int] = {}  # bytes of each shard
        self.watch = Watch()
        self._looked = time.monotonic()
        self._heard_of: dict[str, float] = {}  # when each worker was last heard of
        self.heard: Heard = lambda rows, bytes: None
        client.subscribe_topic(TOPIC, self._hear)
        self._attend(self.threads())

    @property
    def sent(self) -> int:
        """Bytes of vectors that went to workers and came from them."""
        return self.watch.sent

    @sent.setter
    def sent(self, size: int) -> None:
        self.watch.sent = size

    def leave(self) -> None:
        with suppress(Exception):
            self._client.unsubscribe_topic(TOPIC)

    # Workers.

    def threads(self) -> dict[str, int]:
        """The workers that are there, and how many tasks each can do at a time."""
        workers = self._workers()
        return {name: int(told["nthreads"]) for name, told in workers.items() if name not in self._put_out}

    def _workers(self) -> dict[str, Any]:
        """What the scheduler knows of each worker; of none where it is gone."""
        try:
            found = self._client.scheduler_info(n_workers=-1)
        except TypeError:  # older versions list all of them anyway
            found = self._client.scheduler_info()
        workers: dict[str, Any] = found.get("workers", {})
        return workers

    def threads_of_host(self) -> int:
        """Tasks that the busiest machine may do at a time: so many share its cores."""
        hosts: dict[str, int] = {}
        for name, threads in self.threads().items():
            host = host_and_port(name).rsplit(":", 1)[0]
            hosts[host] = hosts.get(host, 0) + threads
        return max(hosts.values(), default=1)

    def _plan_homes(self) -> None:
        """Large shards first, each to the worker that has least for each of its threads; homes that stand stay."""
        self._meet()
        threads = self.threads()
        if tuple(sorted(threads)) == self._known:
            return
        self._known = tuple(sorted(threads))
        self._attend(threads)
        if not threads:
            return
        share = sum(self.sizes.values()) / sum(threads.values())
        load = dict.fromkeys(sorted(threads), 0.0)
        homes: dict[int, str] = {}
        for shard in sorted(self.sizes, key=lambda number: (-self.sizes[number], number)):
            kept = self._homes.get(shard)
            if kept in load and load[kept] < share * threads[kept] * 1.001:
                homes[shard] = kept
            else:
                homes[shard] = min(load, key=lambda name: (load[name] / threads[name], name))
            load[homes[shard]] += max(self.sizes[shard], 1)
        self._homes = homes

    def _attend(self, threads: Mapping[str, int]) -> None:
        """Take note of who is there, and say who has come or gone, but for those of which it was said."""
        for said in self.watch.attend(threads, {host_and_port(name) for name in self._put_out}):
            self._note(said)

    def _look_around(self) -> None:
        """See who is there, now and then, while others work; a scheduler that is slow to answer is left alone."""
        if time.monotonic() - self._looked < LOOK:
            return
        if (said := self.watch.why_quiet()) is not None:
            self._note(said)
        with suppress(Exception):
            told = self._client.sync(self._client.scheduler.identity, n_workers=-1, callback_timeout=LOOK)
            there = {name: int(one["nthreads"]) for name, one in told["workers"].items() if name not in self._put_out}
            self._attend(there)
        self._looked = time.monotonic()

    def _meet(self) -> None:
        """Ask new workers what they have; one that does not fit ends a run that begins, and is left out of another."""
        new = [name for name in self.threads() if name not in self._met] if self.home is None else []
        if not new:
            return
        if not self._met:
            refuse_other_scheduler(self._client, self._at)
        strangers, told = meet(self._client, sorted(new), PATIENCE)
        if strangers and not self._met:
            more = f" (and {len(strangers) - 1} more)" if len(strangers) > 1 else ""
            raise ConfigError(f"{self._at}: {next(iter(strangers.values()))}{more}")
        for text in [*told, *(f"warning: {why}: it gets no work" for why in strangers.values())]:
            self._note(text)
        self._met.update(new)
        self._put_out.update(strangers)
        self._strangers.update(strangers)

    def _hear(self, event: Any) -> None:
        """Runs on a thread of Dask's; what is heard is looked at by the one that waits."""
        with suppress(Exception):
            self._beats.append((time.perf_counter(), Beat(*event[1])))

    # Work.

    def share(self, value: Any, size: int = 0) -> Shared:
        """A value that many tasks will need; `size` bytes count as sent to each worker."""
        self.sent += size * max(len(self.threads()), 1)
        return Shared(value, small=0 < size < LARGE)

    def each(self, work: Callable[..., Any], calls: Mapping[int, Sequence[Any]]) -> list[Any]:
        """`work(*arguments)` for each shard, on its home if possible; the results in the order of the shards."""

        def attempt() -> list[Any]:
            return self._gathered(self._done(work, calls))

        return self._refused_if_failed(self._until_done(attempt))

    def summed(
        self, work: Callable[..., Any], calls: Mapping[int, Sequence[Any]], size: int, rows: int = 0
    ) -> tuple[Any, list[Any]]:
        """The same for work that returns a vector and something small: the sum of the vectors, and the rest.

        `rows` are those that all shards together go over for it.
        """
        submit = self._client.submit

        def attempt() -> tuple[Any, list[Any]]:
            order = self._done(work, calls)
            if size < LARGE:
                pairs = self._refused_if_failed(self._gathered(order))
                return _added_in_tree([vector for vector, _ in pairs]), [rest for _, rest in pairs]
            told = self._refused_if_failed(self._gathered([submit(_second, future, pure=False) for future in order]))
            level = [submit(_first, future, pure=False) for future in order]
            while len(level) > 1:
                level = [submit(_added, level[at : at + ARITY], pure=False) for at in range(0, len(level), ARITY)]
            return self._gathered(level)[0], told

        self.sent += size * (len(calls) + 1)
        with self.watch.exchange(rows):
            vector, told = self._until_done(attempt)
        return vector, told

    def everywhere(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Have something done on each worker, beside what it does; nobody waits long for one that does not answer."""
        there, ask = list(self.threads()), self._client._run
        self._client.sync(ask, work, *arguments, workers=there, on_error="ignore", callback_timeout=FAREWELL)

    def _refused_if_failed(self, results: list[Any]) -> list[Any]:
        """The results; an error that a worker met is raised here."""
        for result in results:
            if isinstance(result, Failure):
                raise result.raised(elsewhere=self.home is None)
        return results

    def _until_done(self, attempt: Callable[[], Any]) -> Any:
        for _ in range(ATTEMPTS):
            try:
                return attempt()
            except _AgainError:
                self._note("warning: results got lost with a worker: what it did is done again")
        raise ClusterLostError(f"{self._at}: results were lost {ATTEMPTS} times in a row")

    def _gathered(self, futures: list[Any]) -> list[Any]:
        self._wait(futures)
        try:
            results: list[Any] = self._client.gather(futures)
            return results
        except Exception as error:
            self._refuse_if_lost(error)
            raise _AgainError from error

    def _done(self, work: Callable[..., Any], calls: Mapping[int, Sequence[Any]]) -> list[Any]:
        """A future for each shard that has its result, in their order."""
        done: dict[int, Any] = {}
        for attempt in range(1, ATTEMPTS + 1):
            self._plan_homes()
            waiting = {shard: self._submit(work, shard, calls[shard]) for shard in sorted(calls) if shard not in done}
            self._wait(list(waiting.values()), {future.key: shard for shard, future in waiting.items()})
            for shard, future in waiting.items():
                if future.status == "finished":
                    done[shard] = future
                elif future.status == "error":
                    error = future.exception()
                    if type(error).__name__ not in GONE:
                        raise error
            if len(done) == len(calls):
                return [done[shard] for shard in sorted(done)]
            self._refuse_if_lost(None)
            if attempt < ATTEMPTS:
                self._note(f"warning: {len(calls) - len(done)} of {len(calls)} shards got lost on the way; again")
                time.sleep(POLL * attempt)
        raise ClusterLostError(f"{self._at}: workers were lost {ATTEMPTS} times in a row while they did the same")

    def _submit(self, work: Callable[..., Any], shard: int, arguments: Sequence[Any]) -> Any:
        home = self._homes.get(shard)
        sent = [self._sent(argument) for argument in arguments]
        try:
            return self._client.submit(
                work,
                *sent,
                pure=False,
                **self._at_home(home),
            )
        except Exception as error:
            self._refuse_if_lost(error)
            raise

    def _at_home(self, home: str | None) -> dict[str, Any]:
        """Who may do a task: the home of its shard, else any worker that is no stranger."""
        if self._strangers:
            return {"workers": list(self.threads()), "allow_other_workers": False}
        return {"workers": [home] if home is not None else None, "allow_other_workers": home is not None}

    def _sent(self, shared: Any) -> Any:
        """What stands for an argument in a task."""
        if isinstance(shared, list):
            return [self._sent(one) for one in shared]
        if not isinstance(shared, Shared):
            return shared
        if shared.small:
            return shared.value
        if shared.future is None or shared.future.status not in ("finished", "pending"):
            try:
                to = list(self.threads()) if self._strangers else None
                shared.future = self._client.scatter([shared.value], broadcast=True, hash=False, workers=to)[0]
            except Exception as error:
                self._refuse_if_lost(error)
                shared.future = self._client.scatter([shared.value], broadcast=False, hash=False, workers=to)[0]
        return shared.future

    def _wait(self, futures: list[Any], shards: Mapping[str, int] | None = None) -> None:
        """Until none of them is on its way any more; workers that are silent for too long are put out."""
        ready: SimpleQueue[Any] = SimpleQueue()
        for future in futures:
            future.add_done_callback(ready.put)
        last = dict.fromkeys((shards or {}).values(), time.monotonic())
        while True:
            interrupts.check()
            self._listen(last)
            self._look_around()
            pending = [future for future in futures if future.status == "pending"]
            if not pending:
                self._listen(last)
                return
            if self._client.status != "running" and not self._comes_back():
                raise ClusterLostError(f"{self._at}: the Dask scheduler does not answer any more")
            if shards:
                self._put_out_silent(pending, shards, last)
            with suppress(Empty):
                ready.get(timeout=POLL)

    def _listen(self, last: dict[int, float]) -> None:
        while self._beats:
            at, beat = self._beats.popleft()
            last[beat.shard] = self._heard_of[beat.worker] = time.monotonic()
            self.watch.hear(beat, at)
            if beat.run in self.watch.runs:
                self.heard(beat.rows, beat.bytes)

    def _comes_back(self) -> bool:
        """Whether the connection is there again before patience ends."""
        until = time.monotonic() + min(PATIENCE, self._timeout or PATIENCE)
        while time.monotonic() < until:
            if self._client.status == "running":
                return True
            if self._client.status in ("closed", "closing"):
                return False
            interrupts.check()
            time.sleep(POLL)
        return False

    def _put_out_silent(self, pending: list[Any], shards: Mapping[str, int], last: dict[int, float]) -> None:
        if self._timeout is None:
            return
        late = {shards[future.key] for future in pending if future.key in shards}
        late = {shard for shard in late if time.monotonic() - last[shard] > self._timeout}
        if not late:
            return
        busy = self._client.processing()
        keys = {future.key: shards[future.key] for future in pending if shards.get(future.key) in late}
        since = time.monotonic() - self._timeout
        silent = {
            name
            for name, working in busy.items()
            if self._heard_of.get(name, 0.0) < since and any(str(key) in map(str, working) for key in keys)
        }
        for shard in late:
            last[shard] = time.monotonic()
        self._heard_of |= dict.fromkeys(silent, time.monotonic())  # who stays has as much time again
        for name in hanging(self._workers(), silent - self._put_out, self._timeout):
            called = self.watch.crew.called(name)
            self._note(f"warning: {called} has been silent for {self._timeout:,.0f} s: its shards go to others")
            self._put_out.add(name)
            if not self.threads():
                raise ClusterLostError(f"{self._at}: no worker is left that answers")
            self._remove(name)

    def _remove(self, name: str) -> None:
        """Have the scheduler, which may not know this package, count on a worker no longer; it lives, or hangs, on."""
        why = f"streamsvm-silent-{time.time()}"
        self._client.sync(self._client.scheduler.unregister, address=name, stimulus_id=why, close=False)

    def _refuse_if_lost(self, error: BaseException | None) -> None:
        if self._client.status != "running" and not self._comes_back():
            raise ClusterLostError(f"{self._at}: the Dask scheduler does not answer any more") from error
        until = time.monotonic() + PATIENCE
        while not self.threads():
            if time.monotonic() > until:
                raise ClusterLostError(f"{self._at}: no worker is left") from error
            interrupts.check()
            time.sleep(POLL)


class _AgainError(Exception):
    """Results got lost before they were here."""


def _first(pair: Any) -> Any:
    return None if isinstance(pair, Failure) else pair[0]


def _second(pair: Any) -> Any:
    return pair if isinstance(pair, Failure) else pair[1]


def _added_in_tree(vectors: list[Any]) -> Any:
    """The sum, as tasks would add up vectors that are large: the same to the last bit."""
    while len(vectors) > 1:
        vectors = [_added(vectors[at : at + ARITY]) for at in range(0, len(vectors), ARITY)]
    return vectors[0]


def _added(vectors: Sequence[Any]) -> Any:
    total = vectors[0].copy()
    for vector in vectors[1:]:
        total += vector
    return total
