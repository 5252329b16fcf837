"""The passes of a run: the source first, the cache after it.

    pass 1       source -> (cache writer) -> shuffle buffer -> solver, or from the cache in the same order if it exists
                 rows that are in memory are their own cache
    pass 2, ...  cache groups, mapped into memory and read ahead; groups, and runs of 16 rows inside them, in a new
                 seeded order each pass, because rows that always come in the same order pull the weights in circles

Which rows come in which order depends on the source and the settings alone, not on whether a cache was there before.
`state` says how far a pass has come, `restore` goes on from there: in the source, with the unfinished cache where it is
still there, or in a complete one. Where neither is (another machine), the cache is written again first.
"""

from collections.abc import Callable, Generator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.batch import Batch, Batches, Int64s
from streamsvm.cache_place import Lasting, choose_path, remove_unfinished
from streamsvm.errors import ConfigError, ModelError, SourceError
from streamsvm.io.files import download, sync_file, upload
from streamsvm.io.grouped_rows import GROUP_FEATURES, GROUP_ROWS, GroupedRows
from streamsvm.io.urls import is_local, redact_url
from streamsvm.jit import kernel, quick
from streamsvm.pool import worked_ahead
from streamsvm.readers import fingerprint_of
from streamsvm.shuffle import ShuffleBuffer, below, mixed, next_random, random_order, runs_in_random_order, taken
from streamsvm.stream import Stream, Tally

if TYPE_CHECKING:
    from streamsvm.io.cache import CacheWriter

GROUPS_AHEAD = 4
Note = Callable[[str], None]
Tick = Callable[[int], None]  # called after each batch, with its number of rows
Visits = Generator[tuple[Batch, Int64s | None], None, None]
State = dict[str, Any]


class Passes:
    """Batches of every pass over one source. Use as a context manager: a temporary cache is removed at the end.

    Later passes come in random order with `mix_later`, or, when that is left open, if the first pass is shuffled.
    With `holdout`, one of every so many rows of the source has the sign bit of its weight set, the same in each pass.
    With `lasting`, a cache survives a run that does not end well, finished or not.
    """

    remedy = "name another place with --cache"  # where the disk is full

    def __init__(
        self,
        stream: Stream,
        *,
        cache: str = "auto",
        passes: int = 1,
        mix_later: bool | None = None,
        holdout: int | None = None,
        lasting: Lasting | None = None,
        note: Note = lambda text: None,
    ) -> None:
        self.stream = stream
        self._lasting = lasting
        self._mix_later = stream.shuffle > 0 if mix_later is None else mix_later
        self._holdout = holdout
        self._note = note
        self._temporary = cache == "auto"
        self._url = None if cache in ("auto", "off") or is_local(cache) else cache  # of which the cache is a copy
        self._cache: GroupedRows | None = stream.in_memory()
        self._path = choose_path(cache, passes, stream, lasting, note) if self._cache is None else None
        self._writer: CacheWriter | None = None  # while the cache is being written
        self._unsynced = False  # whether a complete cache is to be brought to disk with the next checkpoint
        self._taken_up = False  # whether the next writing goes on with what an interrupted run has written
        self._buffer: ShuffleBuffer | None = None
        self._rows = 0  # of this pass that were handed on, where they come in order
        self._groups_done = 0  # of this pass, where groups come in random order
        self._restored: State | None = None  # where the next reading begins
        self.fraction = 0.0  # of the current pass, where known
        if self._path is None and passes > 1 and not stream.repeatable:
            raise ConfigError("standard input can be read only once: several passes need a cache, but the cache is off")
        self._open_if_there()

    def __enter__(self) -> "Passes":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Remove a temporary cache, unless the run may go on later."""
        if self._cache is not None:
            self._cache.close()
        if self._writer is not None:
            self._writer.leave()
        if self._lasting is not None and kind is not None:
            return
        if self._path is not None and (self._temporary or self._url or self.stream.source.fingerprint() is None):
            self._path.unlink(missing_ok=True)

    # The plan.

    @property
    def cached(self) -> bool:
        """Whether all rows are in the cache already."""
        return self._cache is not None

    @property
    def will_cache(self) -> bool:
        return self._path is not None or self._cache is not None

    @property
    def filling(self) -> bool:
        """Whether an interrupted `fill` is to be ended before anything else."""
        return self._taken_up

    def summary(self) -> tuple[int, dict[float, float]]:
        """Rows of a complete cache, and the weight of the rows with each label."""
        assert self._cache is not None
        rows, _, labels = self._cache.summary()
        return rows, labels

    def starts(self) -> Int64s:
        """The number of the first row of each group of a complete cache, and at the end that of all rows."""
        assert self._cache is not None
        starts: Int64s = self._cache.starts()
        return starts

    def group(self, number: int) -> Batch:
        """A group of a complete cache, its held-out rows marked; any thread may ask."""
        assert self._cache is not None
        batch: Batch = self._cache.group(number)
        return marked(batch, int(self._cache.first_rows()[number]), self._holdout)

    @property
    def scratch(self) -> Path | None:
        """Where a complete cache is, and other files of its size may be; None where all is in memory."""
        return self._path.parent if self._path is not None else None

    def fill(self, tick: Tick = lambda rows: None) -> None:
        """Write the cache without learning, to find the classes or to count the rows; SourceError if it cannot be."""
        if self._cache is None and self._path is not None:
            with closing(self._caching(self._source_rows())) as batches:
                for batch in batches:
                    tick(batch.rows)
        if self._cache is None:
            raise SourceError(
                "the data must be cached to find its classes or to count its rows, but no cache could be written: "
                "name another place with --cache, or set data.classes and data.rows"
            )

    def visits(self, number: int) -> Visits:
        """Pass `number`, counted from 1: batches, each with the order in which its rows come, None for as they are."""
        if number > 1 and self._cache is not None and self._mix_later:
            yield from self._mixed_groups(number)
        else:
            with closing(self._in_order(number)) as batches:
                for batch in batches:
                    yield batch, None

    def batches(self, number: int) -> Batches:
        """The rows of pass `number` in the order in which they come."""
        with closing(self.visits(number)) as visits:
            for batch, order in visits:
                yield batch if order is None else taken(batch, order)

    def _in_order(self, number: int) -> Batches:
        restored = self._restored or {}
        self._rows = restored.get("rows", 0)
        buffer = None
        if self._cache is not None:
            rows = self._cached_rows()
            if number == 1:
                buffer = self.stream.shuffle_buffer(mixed(self.stream.seed, number))
        else:
            source = self._source_rows()
            rows = self._caching(source) if number == 1 and self._path is not None else self._following(source)
            buffer = self.stream.shuffle_buffer(mixed(self.stream.seed, number))
        self._restored = None
        self._buffer = buffer
        rows = self._marked(rows)
        if buffer is None:
            return rows
        if "shuffle" in restored:
            buffer.restore(restored["shuffle"])
        return buffer.shuffled(rows)

    def _marked(self, batches: Batches) -> Batches:
        """The batches, counted, with their held-out rows marked."""
        with closing(batches):
            for batch in batches:
                first = self._rows
                self._rows += batch.rows
                yield marked(batch, first, self._holdout)

    # Going on later.

    @property
    def resumable(self) -> bool:
        """Whether reading can go on from here: not between the rows before a bad one and the complaint about it."""
        return self.stream.tally.whole

    def state(self) -> State:
        """How far this pass has come; the rows of a batch that is being learned count as handed on."""
        state: State = {
            "caching": self.will_cache,
            "rows": self._rows,
            "groups": self._groups_done,
            "tally": self.stream.tally.state(),
        }
        if self._buffer is not None:
            state["shuffle"] = self._buffer.state()
        if self.stream.names is not None:
            state["names"] = self.stream.names.state()
        if self._writer is not None and not self._try(lambda: state.update(writer=self._written())):
            self._drop_writer()
            state["caching"] = False
        return state

    def _written(self) -> State:
        assert self._writer is not None
        return self._writer.state()

    def sync(self) -> Callable[[], None]:
        """What brings the cache, as far as `state` speaks of it, to disk; may be called on another thread."""
        writer, path = self._writer, self._path if self._unsynced else None

        def sync() -> None:
            try:
                if writer is not None:
                    writer.sync()
                elif path is not None:
                    sync_file(path)
                    self._unsynced = False
            except OSError as error:
                raise SourceError(f"{self._path}: cannot write the cache: {error.strerror or error}") from error

        return sync

    def restore(self, state: State, tick: Tick, *, inside: bool) -> None:
        """Begin the next pass where `state` was taken, if that was `inside` one; with the cache that there was.

        If that is gone it is written again, and `tick` is called after each batch.
        """
        self.stream.tally = Tally.restored(state["tally"], self.stream.source)
        if self.stream.names is not None:
            self.stream.names.restore(state["names"])
        if not state["caching"]:
            self._path = None
        elif self._path is None:
            raise SourceError("the run that was interrupted had a cache, and needs one to go on; see --cache")
        elif not self._take_up(state):
            self._note("the cache of the interrupted run is not here any more: reading the data to make it again")
            self.fill(tick)
        self._restored = state if inside else None

    def restore_filling(self, state: State) -> None:
        """Begin the next `fill` where `state` was taken, if what was written then is still there."""
        if self._path is not None and self._take_up(state) and self._cache is None:
            self._restored = state
            if self.stream.names is not None:
                self.stream.names.restore(state["names"])

    def _take_up(self, state: State) -> bool:
        """Find the cache as it was when the state was taken, finished or not; False if it is gone.

        One that was finished later is cut back to what was on disk then: what was written after that may be lost after
        a power cut, and bad rows in the rest of the source are to be counted. A cache that is kept is on disk whole.
        """
        if "writer" in state and self._cache is not None and (self._temporary or self.stream.skip_bad):
            assert self._path is not None
            self._cache.close()
            self._cache = None
            self._path.rename(self._path.with_name(state["writer"]["part"]))
        return self._cache is not None or self._go_on_writing(state)

    def _go_on_writing(self, state: State) -> bool:
        """Take up the unfinished cache of the interrupted run; False if that cannot be."""
        if "writer" not in state:
            return False
        writer = self._new_writer()
        with suppress(OSError):
            if writer.go_on(state["writer"]):
                self._writer = writer
                self._taken_up = True
        return self._taken_up

    # Where rows come from.

    def _following(self, batches: Batches) -> Batches:
        """The batches, with the fraction of the source read so far."""
        size = self.stream.source.size
        with closing(batches):
            for batch in batches:
                self.fraction = min(1.0, self.stream.tally.bytes / size) if size else 0.0
                yield batch

    def _source_rows(self) -> Batches:
        """The rows of the source, or the rest of them."""
        restored, self._restored = self._restored, None
        return self.stream.in_order(Tally.restored(restored["tally"], self.stream.source) if restored else None)

    def _cached_rows(self) -> Batches:
        """The rows of the cache in their order, from the one on that comes next."""
        assert self._cache is not None
        group, row = self._cache.groups_from(self._rows)
        with closing(self._groups(np.arange(group, self._cache.groups), group)) as batches:
            for batch in batches:
                yield batch.slice(row, batch.rows) if row else batch
                row = 0

    def _new_writer(self) -> "CacheWriter":
        from streamsvm.io.cache import CacheWriter

        assert self._path is not None
        return CacheWriter(self._path, self._fingerprint(), durable=not self._temporary)

    def _caching(self, batches: Batches) -> Batches:
        """The batches, each written to the cache before it is handed on."""
        assert self._path is not None
        writing = self._taken_up
        self._taken_up = False
        writer = self._writer if writing and self._writer is not None else self._new_writer()
        if not writing:
            if self._writer is not None:
                self._writer.abandon()
            elif self._lasting is not None and self._temporary:
                remove_unfinished(self._path)
            writing = self._try(writer.open)
        self._writer = writer if writing else None
        try:
            with closing(self._following(batches)) as rows:
                for batch in rows:
                    if self._writer is not None and not self._try(writer.write, batch):
                        self._drop_writer()
                    yield batch
            if self._writer is not None:
                if self._try(writer.finish):
                    self._writer = None
                    self._unsynced = self._temporary
                    self._open(self._path, fresh=True)
                    self._send()
                else:
                    self._drop_writer()
        finally:
            if self._lasting is None:  # else a checkpoint may still be taken
                self._drop_writer()

    def _send(self) -> None:
        """Bring a complete cache to the url where it is to be kept."""
        if self._url is None or self._path is None or self.stream.source.fingerprint() is None:
            return
        self._note(f"sending the cache to {redact_url(self._url)}")
        with open(self._path, "rb") as file:
            upload(file, self._url)

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None

    def _try(self, step: Callable[..., None], *arguments: Batch) -> bool:
        """A step of writing. A full disk ends a temporary cache, not the run, if the source can be read again."""
        try:
            step(*arguments)
            return True
        except OSError as error:
            reason = f"{self._path}: cannot write the cache: {error.strerror or error}"
            if not self._temporary or not self.stream.repeatable:
                raise SourceError(f"{reason}; {self.remedy}") from error
            self._note(f"{reason}; later passes read the source again, in its order")
            self._path = None
            return False

    def _mixed_groups(self, number: int) -> Visits:
        """The groups in a random order, and in each the runs of rows, which stay where they are."""
        assert self._cache is not None
        seed = mixed(self.stream.seed, number)
        groups = random_order(self._cache.groups, seed)
        first_rows = self._cache.first_rows() if self._holdout else np.zeros(len(groups), np.int64)
        restored, self._restored, self._buffer = self._restored, None, None
        self._groups_done = restored["groups"] if restored else 0
        groups = groups[self._groups_done :]
        with closing(self._groups(groups, self._groups_done)) as batches:
            for group, batch in zip(groups.tolist(), batches, strict=True):
                self._groups_done += 1
                rows = marked(batch, int(first_rows[group]), self._holdout)
                yield rows, runs_in_random_order(batch.rows, mixed(seed, group))

    def _groups(self, order: Int64s, before: int) -> Batches:
        """Groups of the cache, loaded ahead on another thread, after so many others of this pass."""
        assert self._cache is not None
        cache = self._cache

        def load(group: int) -> Batch:
            batch: Batch = cache.group(group)
            touch(batch.indices, batch.values)
            return batch

        with closing(worked_ahead(order.tolist(), load, GROUPS_AHEAD, threads=1)) as groups:
            for done, batch in enumerate(groups, 1):
                self.fraction = (before + done) / (before + len(order))
                yield batch

    # The cache file.

    def _fingerprint(self) -> dict[str, object] | None:
        source: object = self.stream.source.fingerprint()
        resumed_only = self._lasting is not None and (self._temporary or source is None)
        if resumed_only:
            assert self._lasting is not None
            source = self._lasting.identity
        if source is None:
            return None
        stream = self.stream
        sampling = {"data.sample": stream.sample, "seed of data.sample": stream.seed}
        bad_rows = {"data.on_bad_row": "skip" if stream.skip_bad else "raise"}
        return {
            "source": source,
            "group size": [GROUP_ROWS, GROUP_FEATURES],
            **fingerprint_of(stream.dialect),
            "data.limit": stream.limit,
            **({} if resumed_only else bad_rows),  # a run may go on with bad rows skipped
            **(sampling if stream.sample is not None else {}),
        }

    def _open(self, path: Path, *, fresh: bool = False) -> None:
        from streamsvm.io.cache import Cache as Opened

        cache = Opened(path)
        if not fresh:
            try:
                cache.refuse_if_stale(self._fingerprint())
            except ModelError:
                cache.close()
                raise
        self._cache = cache

    def _open_if_there(self) -> None:
        """Use a cache that exists. One that was left by a run like this, and turns out to be another, is removed."""
        if self._path is None:
            return
        if self._url is not None and not self._path.exists() and download(self._url, self._path):
            self._note(f"the cache was fetched from {redact_url(self._url)}")
        if not self._path.exists():
            return
        try:
            self._open(self._path)
        except ModelError as error:
            if self._url is not None:
                self._path.unlink()
                raise ModelError(str(error).replace(str(self._path), redact_url(self._url))) from None
            if not (self._temporary and self._lasting is not None):
                raise
            self._path.unlink()


def marked(batch: Batch, first: int, every: int | None) -> Batch:
    """The batch, whose first row has this number in the source, with one of every so many weights negative."""
    if not every:
        return batch
    weights = batch.weights.copy()
    negate_one_of(weights, first, every)
    return batch._replace(weights=weights)


def held_rows(rows: int, every: int) -> int:
    """How many of the first so many rows of a source are held out."""
    last = np.ones(rows % every, np.float32)
    negate_one_of(last, rows - rows % every, every)
    return rows // every + int(np.count_nonzero(last < 0.0))


@quick
def negate_one_of(weights, first, every):
    """Set the sign bit of one weight in each run of so many rows, at a place that looks random: data may have a period.

    `first` is the number of the first row; which rows these are depends on their numbers alone.
    """
    for run in range(first // every, (first + len(weights) - 1) // every + 1):
        _, bits = next_random(np.uint64(run) * np.uint64(every))
        place = run * every + below(bits, every) - first
        if 0 <= place < len(weights):
            weights[place] = -weights[place]


@kernel
def touch(indices, values):
    """Read a number of every page, so that the pages are there when the solver comes."""
    total = np.float32(0.0)
    for k in range(0, len(indices), 1024):
        total += np.float32(indices[k]) + values[k]
    return total
