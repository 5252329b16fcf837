"""The passes of a run: the source first, the cache after it.

    pass 1       source -> (cache writer) -> shuffle buffer -> solver, or from the cache in the same order if it exists
    pass 2, ...  cache groups, mapped into memory and read ahead; groups, and runs of 16 rows inside them, in a new
                 seeded order each pass, because rows that always come in the same order pull the weights in circles

Which rows come in which order depends on the source and the settings alone, not on whether a cache was there before.
"""

import hashlib
import os
import secrets
import shutil
import socket
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.batch import Batch, Batches, Int64s
from streamsvm.errors import ConfigError, ModelError, SourceError
from streamsvm.jit import kernel
from streamsvm.places import private_directory, user_cache_directory
from streamsvm.pool import Tokens, ordered
from streamsvm.shuffle import mixed, random_order, runs_in_random_order, taken
from streamsvm.stream import Stream

if TYPE_CHECKING:
    from streamsvm.io.cache import Cache

GROUPS_AHEAD = 4
SPARE_SPACE = 64 << 20
Note = Callable[[str], None]
Visits = Generator[tuple[Batch, Int64s | None], None, None]


class Passes:
    """Batches of every pass over one source. Use as a context manager: a temporary cache is removed at the end.

    Later passes come in random order with `mix_later`, or, when that is left open, if the first pass is shuffled.
    With `holdout`, every so-manieth row of the source has the sign bit of its weight set, the same rows in each pass.
    """

    def __init__(
        self,
        stream: Stream,
        *,
        cache: str = "auto",
        passes: int = 1,
        mix_later: bool | None = None,
        holdout: int | None = None,
        note: Note = lambda text: None,
    ) -> None:
        self.stream = stream
        self._mix_later = stream.shuffle > 0 if mix_later is None else mix_later
        self._holdout = holdout
        self._note = note
        self._temporary = cache == "auto"
        self._path = self._choose_path(cache, passes)
        self._cache: Cache | None = None
        self.fraction = 0.0  # of the current pass, where known
        if self._path is None and passes > 1 and not stream.repeatable:
            raise ConfigError("standard input can be read only once: several passes need a cache, but the cache is off")
        if self._path is not None and self._path.exists():
            self._open(self._path)

    def __enter__(self) -> "Passes":
        return self

    def __exit__(self, *_: object) -> None:
        if self._cache is not None:
            self._cache.close()
        if self._path is not None and (self._temporary or self.stream.source.fingerprint() is None):
            self._path.unlink(missing_ok=True)

    # The plan.

    @property
    def cached(self) -> bool:
        """Whether all rows are in the cache already."""
        return self._cache is not None

    @property
    def will_cache(self) -> bool:
        return self._path is not None

    def summary(self) -> tuple[int, dict[float, float]]:
        """Rows of a complete cache, and the weight of the rows with each label."""
        assert self._cache is not None
        rows, _, labels = self._cache.summary()
        return rows, labels

    def fill(self) -> None:
        """Write the cache without learning, to find the classes or to count the rows; SourceError if it cannot be."""
        if self._cache is None and self._path is not None:
            with closing(self._caching(self.stream.in_order())) as batches:
                for _ in batches:
                    pass
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
        stream = self.stream
        if self._cache is not None:
            rows = self._marked(self._groups(np.arange(self._cache.groups)))
            if number > 1:
                return rows
        elif number == 1 and self._path is not None:
            rows = self._marked(self._caching(stream.in_order()))
        else:
            rows = self._marked(self._following(stream.in_order()))
        return stream.mixed_up(rows, mixed(stream.seed, number))

    def _marked(self, batches: Batches) -> Batches:
        """The batches, with their held-out rows marked."""
        row = 0
        with closing(batches):
            for batch in batches:
                yield marked(batch, row, self._holdout)
                row += batch.rows

    # Where rows come from.

    def _following(self, batches: Batches) -> Batches:
        """The batches, with the fraction of the source read so far."""
        size = self.stream.source.size
        with closing(batches):
            for batch in batches:
                self.fraction = min(1.0, self.stream.tally.bytes / size) if size else 0.0
                yield batch

    def _caching(self, batches: Batches) -> Batches:
        """The batches, each written to the cache before it is handed on."""
        from streamsvm.io.cache import CacheWriter

        assert self._path is not None
        writer = CacheWriter(self._path, self._fingerprint(), durable=not self._temporary)
        try:
            writing = self._try(writer.open)
            with closing(self._following(batches)) as rows:
                for batch in rows:
                    if writing and not (writing := self._try(writer.write, batch)):
                        writer.abandon()
                    yield batch
            if writing and self._try(writer.finish):
                self._open(self._path, fresh=True)
        finally:
            writer.abandon()

    def _try(self, step: Callable[..., None], *arguments: Batch) -> bool:
        """A step of writing. A full disk ends a temporary cache, not the run, if the source can be read again."""
        try:
            step(*arguments)
            return True
        except OSError as error:
            reason = f"{self._path}: cannot write the cache: {error.strerror or error}"
            if not self._temporary or not self.stream.repeatable:
                raise SourceError(f"{reason}; name another place with --cache") from error
            self._note(f"{reason}; later passes read the source again, in its order")
            self._path = None
            return False

    def _mixed_groups(self, number: int) -> Visits:
        """The groups in a random order, and in each the runs of rows, which stay where they are."""
        assert self._cache is not None
        seed = mixed(self.stream.seed, number)
        groups = random_order(self._cache.groups, seed)
        first_rows = self._cache.first_rows() if self._holdout else np.zeros(len(groups), np.int64)
        with closing(self._groups(groups)) as batches:
            for group, batch in zip(groups.tolist(), batches, strict=True):
                rows = marked(batch, int(first_rows[group]), self._holdout)
                yield rows, runs_in_random_order(batch.rows, mixed(seed, group))

    def _groups(self, order: Int64s) -> Batches:
        """Groups of the cache, loaded ahead on another thread."""
        assert self._cache is not None
        cache = self._cache
        tokens = Tokens(GROUPS_AHEAD)

        def produce() -> Iterator[int]:
            for group in order.tolist():
                tokens.take(1)
                yield group

        def load(group: int) -> Batch:
            batch: Batch = cache.group(group)
            touch(batch.indices, batch.values)
            return batch

        with closing(ordered(produce, load, tokens, threads=1)) as groups:
            for done, batch in enumerate(groups, 1):
                self.fraction = done / len(order)
                yield batch
                tokens.give_back(1)

    # The cache file.

    def _fingerprint(self) -> dict[str, object] | None:
        source = self.stream.source.fingerprint()
        if source is None:
            return None
        from streamsvm.io.cache import GROUP_FEATURES, GROUP_ROWS

        stream = self.stream
        sampling = {"data.sample": stream.sample, "seed of data.sample": stream.seed}
        return {
            "source": source,
            "group size": [GROUP_ROWS, GROUP_FEATURES],
            "format": "libsvm",
            "hash mask and index limit": [stream.dialect.mask, stream.dialect.limit],
            "data.limit": stream.limit,
            "data.on_bad_row": "skip" if stream.skip_bad else "raise",
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

    def _choose_path(self, cache: str, passes: int) -> Path | None:
        if cache == "off" or (cache == "auto" and passes == 1):
            return None
        if cache != "auto":
            return Path(cache)
        try:
            home = user_cache_directory() / "passes"
        except RuntimeError:
            home = Path(".streamsvm-cache")
        reason = "it is not writable"
        if private_directory(home):
            _remove_leftovers(home)
            size = (self.stream.source.size or 0) * (1 if not self.stream.limit else 0)
            if shutil.disk_usage(home).free >= size + SPARE_SPACE:
                return home / f"{os.getpid()}-{_host()}-{secrets.token_hex(4)}.arrow"
            reason = f"it has no room for about {size / 1e9:.1f} GB"
        if not self.stream.repeatable:
            raise SourceError(f"{home}: cannot hold the cache that several passes need: {reason}; use --cache PATH")
        self._note(f"{home}: cannot hold a cache: {reason}; every pass reads the source again (see --cache)")
        return None


def marked(batch: Batch, first: int, every: int | None) -> Batch:
    """The batch, whose first row has this number in the source, with every so-manieth weight negative."""
    if not every:
        return batch
    weights = batch.weights.copy()
    held = weights[every - 1 - first % every :: every]
    np.negative(held, out=held)
    return batch._replace(weights=weights)


def _remove_leftovers(home: Path) -> None:
    """Caches of runs that were killed: their process is gone. Those of other machines are left to them."""
    for path in home.iterdir():
        owner, _, rest = path.name.lstrip(".").partition("-")
        if owner.isdecimal() and rest.startswith(f"{_host()}-") and not _alive(int(owner)):
            with suppress(OSError):
                path.unlink()


def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _alive(process: int) -> bool:
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


@kernel
def touch(indices, values):
    """Read a number of every page, so that the pages are there when the solver comes."""
    total = np.float32(0.0)
    for k in range(0, len(indices), 1024):
        total += np.float32(indices[k]) + values[k]
    return total
