"""Groups of rows: in any order on any thread, errors that come out, columns without a trace, the cache as visits."""

import gzip
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from held_out import held_out
from whole_runs import lines

import streamsvm.io.cache
from streamsvm.batch import Batch, concatenate
from streamsvm.cached_groups import CachedGroups
from streamsvm.config import Settings, load_settings
from streamsvm.errors import DataError, SourceError
from streamsvm.feed import Feed
from streamsvm.groups import Groups, MemoryGroups
from streamsvm.passes import Passes
from streamsvm.reading import training_stream

THREADS = pytest.mark.parametrize("threads", [1, 2, 5])


def crew() -> list[str]:
    """The names of this package's threads that are running."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("streamsvm")]


def batch_of(rows: int, first: int = 0) -> Batch:
    """Rows with one feature, whose value is the row's number."""
    return Batch(
        np.arange(rows + 1),
        np.arange(rows, dtype=np.uint32) % 7,
        np.arange(first, first + rows).astype(np.float32),
        np.arange(rows).astype(np.float32) % 2,
        np.full(rows, 0.5, np.float32),
    )


def made(sizes: list[int], threads: int = 1) -> MemoryGroups:
    starts = np.cumsum([0, *sizes]).tolist()
    return MemoryGroups([batch_of(n, a) for n, a in zip(sizes, starts, strict=False)], threads=threads)


class Elsewhere(Groups):
    """Groups of the same rows that have a place for files, take their time, and may fail."""

    def __init__(self, count: int, *, threads: int, scratch: Path | None = None, bad: int = -1) -> None:
        super().__init__(
            np.arange(0, 3 * count + 1, 3), np.full(count, 3), 7, 1.5 * count, threads=threads, scratch=scratch
        )
        self._bad = bad
        self.asked: list[int] = []
        self.names: set[str] = set()

    def group(self, number: int) -> Batch:
        self.asked.append(number)
        self.names.add(threading.current_thread().name)
        time.sleep(0.002 * ((number * 7) % 3))
        if number == self._bad:
            raise DataError(f"group {number} cannot be read")
        return batch_of(3, 3 * number)


# Groups in memory.


def test_what_is_known_of_all_rows() -> None:
    groups = made([4, 0, 9, 1])
    assert (groups.count, groups.rows, groups.width, groups.weight) == (4, 14, 7, 7.0)
    assert groups.starts.tolist() == [0, 4, 4, 13, 14] and groups.features.tolist() == [4, 0, 9, 1]
    assert groups.of(2, np.arange(14)).tolist() == list(range(4, 13)) and not len(groups.of(1, np.arange(14)))
    labels, weights = groups.marks(2)
    assert labels.tolist() == [0, 1] * 4 + [0] and weights.tolist() == [0.5] * 9


def test_a_part_of_a_column_is_the_column() -> None:
    groups, column = made([4, 9]), np.zeros(13)
    groups.of(1, column)[:] = 7.0
    assert column.tolist() == [0.0] * 4 + [7.0] * 9


def test_no_groups_at_all() -> None:
    groups = MemoryGroups([])
    assert (groups.count, groups.rows, groups.width, groups.weight) == (0, 0, 0, 0.0)
    assert list(groups.mapped(lambda number, batch: number)) == [] and len(groups.column(np.float64, 0)) == 0


# Work on all of them.


@THREADS
def test_results_come_in_order_whatever_takes_long(threads: int) -> None:
    groups = Elsewhere(30, threads=threads)

    def work(number: int, batch: Batch) -> tuple[int, float]:
        time.sleep(0.003 * (number % 2))
        return number, float(batch.values[0])

    assert list(groups.mapped(work)) == [(n, 3.0 * n) for n in range(30)]
    assert sorted(groups.asked) == list(range(30)) and len(groups.names) <= threads
    assert threading.current_thread().name not in groups.names


@THREADS
def test_some_groups_in_the_order_asked_for(threads: int) -> None:
    groups = Elsewhere(30, threads=threads)
    assert list(groups.mapped(lambda n, batch: (n, batch.rows), [7, 3, 3, 29])) == [(7, 3), (3, 3), (3, 3), (29, 3)]
    assert list(groups.mapped(lambda n, batch: n, [])) == [] and len(groups.asked) == 4


def test_threads_work_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=20)
    groups = Elsewhere(3, threads=3)
    assert list(groups.mapped(lambda n, batch: together.wait() >= 0)) == [True] * 3


def test_no_more_groups_are_taken_than_wait_to_be_used() -> None:
    groups = Elsewhere(200, threads=2)
    with closing(groups.mapped(lambda n, batch: n)) as results:
        assert next(results) == 0
        time.sleep(0.1)
        assert len(groups.asked) <= 5


@THREADS
@pytest.mark.parametrize("bad", [0, 1, 13, 29])
def test_an_error_of_work_comes_out_in_its_place(threads: int, bad: int) -> None:
    def work(number: int, batch: Batch) -> int:
        if number == bad:
            raise KeyError(number)
        return number

    found = []
    with pytest.raises(KeyError, match=str(bad)):
        for number in Elsewhere(30, threads=threads).mapped(work):
            found.append(number)
    assert found == list(range(bad)) and crew() == []


@THREADS
def test_an_error_of_reading_comes_out_too(threads: int) -> None:
    groups = Elsewhere(30, threads=threads, bad=11)
    with pytest.raises(DataError, match="group 11 cannot be read"):
        list(groups.mapped(lambda n, batch: n))
    assert crew() == []
    assert len(groups.asked) <= 12 + 2 * threads


@THREADS
def test_whoever_stops_listening_leaves_no_thread(threads: int) -> None:
    with closing(Elsewhere(30, threads=threads).mapped(lambda n, batch: n)) as results:
        for number in results:
            if number == 5:
                break
        assert crew() != []
    assert crew() == []


# One number for each row.


@pytest.mark.parametrize("kind", [np.float64, np.uint8])
def test_a_column_is_in_memory_if_there_is_room(tmp_path: Path, kind: type[np.generic]) -> None:
    groups = Elsewhere(40, threads=1, scratch=tmp_path)
    size = 120 * np.dtype(kind).itemsize
    small, large = groups.column(kind, size - 1), groups.column(kind, size)
    assert isinstance(small, np.memmap) and not isinstance(large, np.memmap)
    for column in (small, large):
        assert column.dtype == kind and column.shape == (120,) and not column.any()
        groups.of(3, column)[:] = 5
        assert column.astype(int).tolist() == [0] * 9 + [5] * 3 + [0] * 108


def test_a_column_in_a_file_leaves_no_trace(tmp_path: Path) -> None:
    groups = Elsewhere(40, threads=1, scratch=tmp_path)
    column, other = groups.column(np.float64, 0), groups.column(np.float64, 0)
    column[:] = 3.0
    assert list(tmp_path.iterdir()) == [] and not other.any() and (column == 3.0).all()


def test_without_a_place_for_files_a_column_is_in_memory() -> None:
    assert not isinstance(made([4]).column(np.float64, 0), np.memmap)


@pytest.mark.skipif(os.name != "posix", reason="permissions")
def test_a_column_that_finds_no_room_says_where(tmp_path: Path) -> None:
    groups = Elsewhere(40, threads=1, scratch=tmp_path / "gone")
    with pytest.raises(SourceError, match=r"gone: no room for a number for each row: "):
        groups.column(np.float64, 0)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs posix_fallocate")
def test_a_full_disk_is_found_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is only made longer has no room on disk: a number written to it later would end the process."""

    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(SourceError, match="no room for a number for each row: No space left on device"):
        Elsewhere(40, threads=1, scratch=tmp_path).column(np.float64, 0)
    assert list(tmp_path.iterdir()) == []


# The cache.


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamsvm.io.cache, "GROUP_ROWS", 70)


@contextmanager
def cached(path: str, threads: int = 2, **given: Any) -> Iterator[tuple[Settings, Feed, Passes]]:
    """What a run has after its cache was filled."""
    overrides = {"data.train": path, "solver.name": "dcd"} | {k.replace("__", "."): v for k, v in given.items()}
    settings = load_settings(overrides=overrides, environ={})
    stream = training_stream(settings)
    with Passes(stream, passes=2, mix_later=False, holdout=settings.data.holdout) as passes:
        feed = Feed(settings, passes, lambda text: None, None, 1 << 26)
        feed.prepare(lambda rows: None, whole=True)
        yield settings, feed, passes


def groups_of(feed: Feed, passes: Passes, **given: Any) -> CachedGroups:
    usual: dict[str, Any] = {"dim": 0, "threads": 2, "tick": lambda rows: None}
    return CachedGroups(feed, passes, **(usual | given))


def visited(feed: Feed) -> tuple[Batch, np.ndarray[Any, Any]]:
    """All rows as an online solver sees them in a second pass, and which are held out."""
    batches, held = [], []
    with closing(feed.visits(2)) as visits:
        for batch, order, out in visits:
            assert order is None
            batches.append(batch.copy())
            held.append(np.zeros(batch.rows, bool) if out is None else out)
    return concatenate(batches), np.concatenate(held)


def as_written(rows: list[str], labels: tuple[str, str]) -> list[str]:
    """The same rows with other labels."""
    return [labels[row[0] == "1"] + row[row.index(" ") :] for row in rows]


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "held out": {"data__holdout": 7},
    "weights by class": {"data__class_weights": {"1": 3.0, "2": 0.25}},
    "balanced": {"data__class_weights": "balanced", "data__holdout": 3},
    "largest value": {"features__scale": "maxabs"},
    "deviation": {"features__scale": "standard", "data__holdout": 5, "data__class_weights": "balanced"},
    "folded": {"features__hash_bits": 3},
    "some": {"data__limit": 333, "data__sample": 0.6},
}


@pytest.mark.parametrize("way", WAYS)
@THREADS
def test_groups_of_the_cache_are_what_visits_bring(tmp_path: Path, way: str, threads: int) -> None:
    text = "\n".join(as_written(lines(1000), ("1", "2"))) + "\n"
    path = tmp_path / "rows.svm.gz"
    path.write_bytes(gzip.compress(text.encode()))
    with cached(str(path), **WAYS[way]) as (settings, feed, passes):
        groups = groups_of(feed, passes, threads=threads, dim=settings.features.given_width)
        expected, held = visited(feed)
        found = concatenate(list(groups.mapped(lambda number, batch: batch.copy())))
        assert groups.count > 1 and groups.rows == expected.rows == len(held)
        for name in ("indptr", "indices", "values", "labels"):
            assert np.array_equal(getattr(found, name), getattr(expected, name)), name
        assert np.array_equal(found.weights, np.where(held, np.float32(0.0), expected.weights))
        assert groups.width == (settings.features.given_width or expected.width)
        assert groups.weight == pytest.approx(float(found.weights.sum(dtype=np.float64)), rel=1e-12)
        assert groups.features.sum() == expected.features and set(found.labels.tolist()) == {0.0, 1.0}
        for number in range(groups.count):
            labels, weights = groups.marks(number)
            batch = groups.group(number)
            assert np.array_equal(labels, batch.labels) and np.array_equal(weights, batch.weights)
        if settings.data.holdout:
            every = settings.data.holdout
            assert np.array_equal(held, held_out(groups.rows, every))
            kept = concatenate([groups.held_out(number).copy() for number in range(groups.count)])
            assert np.array_equal(kept.weights, np.where(held, expected.weights, np.float32(0.0)))


def test_rows_are_told_while_they_are_surveyed(write: Callable[..., str]) -> None:
    told: list[int] = []
    with cached(write(lines(300))) as (_, feed, passes):
        groups = groups_of(feed, passes, tick=told.append)
        assert sum(told) == groups.rows == 300 and len(told) == groups.count == 5


def test_a_survey_can_be_stopped(write: Callable[..., str]) -> None:
    def stop(rows: int) -> None:
        raise KeyboardInterrupt

    with cached(write(lines(300))) as (_, feed, passes):
        with pytest.raises(KeyboardInterrupt):
            groups_of(feed, passes, tick=stop)
        assert crew() == []


def test_groups_can_be_had_again_and_again(write: Callable[..., str]) -> None:
    """On several threads at once, scaled each time in arrays of their own."""
    with cached(write(lines(700)), features__scale="standard") as (_, feed, passes):
        groups = groups_of(feed, passes, threads=4)
        first = [groups.group(number).copy() for number in range(groups.count)]
        for _ in range(3):
            for number, batch in enumerate(groups.mapped(lambda n, batch: batch)):
                assert all(np.array_equal(a, b) for a, b in zip(batch.copy(), first[number], strict=True))


@pytest.mark.parametrize(
    ("rows", "given", "says"),
    [
        ([], {}, "there is no row to learn from"),
        (["1 1:1", "-1 2:1"], {"data__holdout": 2, "data__class_weights": {"1": 0, "-1": 1}},
         "there is no row to learn from, or all weights are 0"),
    ],
)  # fmt: skip
def test_nothing_to_learn_from(write: Callable[..., str], rows: list[str], given: dict[str, Any], says: str) -> None:
    with cached(write(rows), **given) as (_, feed, passes), pytest.raises(DataError) as caught:
        groups_of(feed, passes).refuse_if_empty()
    assert str(caught.value) == says


def test_a_column_stands_beside_the_cache(write: Callable[..., str]) -> None:
    with cached(write(lines(300))) as (_, feed, passes):
        groups = groups_of(feed, passes)
        before = sorted(passes.scratch.iterdir())
        column = groups.column(np.float64, 0)
        column[:] = 1.0
        assert isinstance(column, np.memmap) and sorted(passes.scratch.iterdir()) == before
