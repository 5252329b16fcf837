"""Passes: which rows come in which order, cached or not, and what becomes of the cache."""

import os
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from held_out import held_out
from libsvm_twin import collect, row, rows_of, twin

from streamsvm import cache_place
from streamsvm import passes as passes_room
from streamsvm import shuffle as shuffle_room
from streamsvm.batch import Batch
from streamsvm.errors import ConfigError, DataError, ModelError, SourceError
from streamsvm.io import cache as cache_room
from streamsvm.io.libsvm import Dialect
from streamsvm.io.source import Source
from streamsvm.passes import Passes, marked
from streamsvm.stream import Reading, Stream

LINES = [b"%d %s" % (i % 2, b" ".join(b"%d:0.%d" % (j * 7 + i, i + 1) for j in range(i % 9))) for i in range(60)]
TEXT = b"\n".join(LINES)
ROWS = twin(TEXT)[0]


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    for room in (cache_room, passes_room):
        monkeypatch.setattr(room, "GROUP_ROWS", 8)
        monkeypatch.setattr(room, "GROUP_FEATURES", 40)


@pytest.fixture
def environment() -> dict[str, str]:
    """That of the run, with its kernels."""
    return dict(os.environ)


@pytest.fixture
def home(tmp_path, monkeypatch, environment):
    """Where temporary caches go. Kernels stay where they are: they were found when numba was set up."""
    monkeypatch.setenv("STREAMSVM_CACHE_DIR", str(tmp_path / "home"))
    return tmp_path / "home" / "passes"


@pytest.fixture
def path(put):
    return put("rows.svm", TEXT)


def stream(*paths, block_size=200, **options):
    return Stream(Source(list(paths)), reading=Reading(threads=2, block_size=block_size), **options)


def read(rows) -> list:
    with closing(rows) as batches:
        return collect(batches)


def all_passes(made: Passes, count: int) -> list[list]:
    with made:
        return [read(made.batches(number)) for number in range(1, count + 1)]


class Notes(list):
    __call__ = list.append


# The order of rows.


@pytest.mark.parametrize("cache", ["auto", "off", "file"])
@pytest.mark.parametrize("block_size", [30, 100_000])
def test_without_shuffle_every_pass_is_the_source(path, home, tmp_path, cache, block_size):
    place = str(tmp_path / "c.arrow") if cache == "file" else cache
    for _ in range(2):
        assert all_passes(Passes(stream(path, block_size=block_size), cache=place, passes=3), 3) == [ROWS] * 3


def test_with_shuffle(path, home, tmp_path):
    """Pass 1 is the same whether or not a cache was there before; later passes each have an order of their own."""

    def orders(block_size, cache, seed=1):
        shuffled = stream(path, block_size=block_size, shuffle=10, seed=seed)
        return all_passes(Passes(shuffled, cache=cache, passes=3), 3)

    place = str(tmp_path / "c.arrow")
    once = orders(200, "auto")
    assert all(sorted(rows) == sorted(ROWS) for rows in once)
    assert len({tuple(rows) for rows in [ROWS, *once]}) == 4
    assert orders(200, place) == once, "written"
    assert os.path.exists(place)
    assert orders(200, place) == once, "read"
    assert orders(50, "auto") == orders(10_000, place) == once
    assert orders(200, "off")[0] == once[0]
    others = orders(200, "auto", seed=2)
    assert not any(rows in once for rows in others)


def test_shuffled_groups_move_and_so_do_their_rows(path, home, tmp_path, monkeypatch):
    """A pass over the cache takes group after group in a random order, and the rows of each in another."""
    monkeypatch.setattr(shuffle_room, "RUN", 2)
    place = tmp_path / "c.arrow"
    with Passes(stream(path, shuffle=5), cache=str(place), passes=2) as made:
        read(made.batches(1))
        found = [rows_of(batch) for batch in made.batches(2)]
    cache = cache_room.Cache(place)
    groups = [rows_of(cache.group(number)) for number in range(cache.groups)]
    cache.close()
    order = [next(i for i, group in enumerate(groups) if sorted(group) == sorted(rows)) for rows in found]
    assert sorted(order) == list(range(len(groups))) != order
    assert sum(rows != groups[i] for i, rows in zip(order, found, strict=True)) > len(groups) // 2


def test_the_cache_is_used(path, home, monkeypatch):
    """The source is opened for the first pass and never again."""
    opened = []
    blocks = Source.blocks
    monkeypatch.setattr(Source, "blocks", lambda self, *rest: opened.append(1) or blocks(self, *rest))
    all_passes(Passes(stream(path), passes=4), 4)
    assert opened == [1]
    all_passes(Passes(stream(path), cache="off", passes=2), 2)
    assert opened == [1, 1, 1]


def test_fill(path, home, tmp_path):
    with Passes(stream(path, shuffle=7), passes=2) as made:
        assert made.will_cache and not made.cached
        made.fill()
        assert made.cached
        made.fill()
        assert made.summary() == (60, {0.0: 30.0, 1.0: 30.0})
        first = read(made.batches(1))
    with Passes(stream(path, shuffle=7), passes=2) as made:
        assert read(made.batches(1)) == first


def test_weights_go_through_the_cache(put, home):
    text = b"1 2.5 1:1\n-1 2:1\n1 0 3:1\n-1 0.125\n" * 10 + b"-1 3 1:1"
    with Passes(stream(put("weighted.svm", text), block_size=50), passes=3) as made:
        assert [read(made.batches(number)) for number in (1, 2, 3)] == [twin(text)[0]] * 3
        assert made.summary() == (41, {-1.0: 14.25, 1.0: 25.0})


@pytest.mark.parametrize("shuffle", [0, 7])
def test_the_same_sample_in_every_pass(path, home, tmp_path, shuffle):
    """Cached, read from the cache, or read from the source again."""

    def orders(cache, **options):
        return all_passes(
            Passes(stream(path, sample=0.3, shuffle=shuffle, seed=4, **options), cache=cache, passes=3), 3
        )

    kept = read(stream(path, sample=0.3, seed=4).in_order())
    assert 5 < len(kept) < 40
    once = orders("auto")
    assert all(sorted(rows) == sorted(kept) for rows in once)
    place = str(tmp_path / "c.arrow")
    assert orders(place) == orders(place) == orders("auto", block_size=33) == once
    uncached = orders("off")
    assert uncached[0] == once[0] and all(sorted(rows) == sorted(kept) for rows in uncached)
    with Passes(stream(path, sample=0.3, shuffle=shuffle, seed=4), cache=place) as made:
        rows, labels = made.summary()
        assert rows == len(kept) == sum(labels.values())


def test_the_fraction_of_a_pass(path, home):
    with Passes(stream(path), passes=2) as made:
        for number in (1, 2):
            seen = []
            with closing(made.batches(number)) as batches:
                for _ in batches:
                    seen.append(made.fraction)
            assert seen == sorted(seen) and 0 < seen[0] < 0.5 and seen[-1] == 1.0


@pytest.mark.parametrize("cache", ["auto", "off"])
def test_an_abandoned_pass(path, home, threads, cache):
    with Passes(stream(path, block_size=30), cache=cache, passes=2) as made:
        rows = made.batches(1)
        next(rows)
        rows.close()
        assert threads() == [] and not made.cached and (cache == "off" or os.listdir(home) == [])
        assert read(made.batches(1)) == ROWS
        rows = made.batches(2)
        next(rows)
        del rows
        assert threads() == []
        assert read(made.batches(2)) == ROWS


def test_an_error_in_the_source(put, home, threads):
    path = put("bad.svm", TEXT + b"\nspam\n")
    with Passes(stream(path, block_size=30), passes=2) as made:
        with pytest.raises(DataError, match="bad.svm:61: 'spam'"):
            read(made.batches(1))
        assert os.listdir(home) == [] and threads() == []


# Where the cache is, and for how long.


def test_one_pass_needs_no_cache(path, home, tmp_path):
    with Passes(stream(path), passes=1) as made:
        assert not made.will_cache
        assert read(made.batches(1)) == ROWS
    assert not home.exists()
    all_passes(Passes(stream(path), cache=str(tmp_path / "kept"), passes=1), 1)
    assert (tmp_path / "kept").exists()


def test_a_temporary_cache_goes_with_the_run(path, home):
    with Passes(stream(path), passes=2) as made:
        read(made.batches(1))
        (name,) = os.listdir(home)
        assert name.startswith(f"{os.getpid()}-") and home.stat().st_mode & 0o777 == 0o700
        read(made.batches(2))
    assert os.listdir(home) == []


def test_a_temporary_cache_goes_with_an_exception(path, home):
    with pytest.raises(ZeroDivisionError), Passes(stream(path), passes=2) as made:
        read(made.batches(1))
        assert len(os.listdir(home)) == 1
        for _ in made.batches(2):
            raise ZeroDivisionError
    assert os.listdir(home) == []
    with pytest.raises(ZeroDivisionError), Passes(stream(path, block_size=30), passes=2) as made:
        for _ in made.batches(1):
            raise ZeroDivisionError
    assert os.listdir(home) == []


def test_leftovers_of_the_dead(path, home):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    home.mkdir(parents=True)
    host = cache_place._host()
    dead = [f"{gone.pid}-{host}-a.arrow", f".{gone.pid}-{host}-a.arrow.{gone.pid}.part", f"{10**30}-{host}-a.arrow"]
    alive = [f"{os.getpid()}-{host}-a.arrow", f".{os.getpid()}-{host}-a.arrow.1.part", f"1-{host}-a.arrow", "notes.txt"]
    alive.append(f"{gone.pid}-otherbox-a.arrow")
    for name in dead + alive:
        (home / name).write_bytes(b"x")
    (home / f"{gone.pid}-folder").mkdir()
    Passes(stream(path), passes=2)
    assert sorted(os.listdir(home)) == sorted([*alive, f"{gone.pid}-folder"])


def test_directories_of_the_dead(home, tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    own = [home / f"{pid}-{cache_place._host()}-a.files" for pid in (gone.pid, os.getpid())]
    for folder in own:
        (folder / "worker").mkdir(parents=True)
        (folder / "worker/rows.arrow").write_bytes(b"x")
    other = tmp_path / "other"
    other.mkdir()
    (home / f"{gone.pid}-{cache_place._host()}-b.files").symlink_to(other)
    with cache_place.temporary_directory() as made:
        (made / "rows.arrow").write_bytes(b"x")
        assert sorted(home.iterdir()) == sorted([own[1], made]) and other.is_dir()
    assert list(home.iterdir()) == [own[1]]


KILLED = """
import os, signal, sys
from streamsvm.io.source import Source
from streamsvm.passes import Passes
from streamsvm.stream import Stream
os.environ["STREAMSVM_CACHE_DIR"] = sys.argv[3]  # kernels are found where they were
with Passes(Stream(Source([sys.argv[1]])), passes=2, cache=sys.argv[2]) as passes:
    for batch in passes.batches(1):
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.full
def test_a_killed_run(path, home, tmp_path, environment):
    """Its temporary cache is removed by the next run; a cache with a name does not have it yet."""
    for cache in ("auto", str(tmp_path / "named")):
        command = [sys.executable, "-c", KILLED, path, cache, str(home.parent)]
        assert subprocess.run(command, env=environment).returncode == -9
    assert len(os.listdir(home)) == 1 and not (tmp_path / "named").exists()
    assert all_passes(Passes(stream(path), passes=2), 2) == [ROWS] * 2
    assert os.listdir(home) == []


def test_no_place_for_a_temporary_cache(path, home, monkeypatch):
    home.parent.mkdir()
    home.write_bytes(b"a file is in the way")
    notes = Notes()
    assert all_passes(Passes(stream(path), passes=2, note=notes), 2) == [ROWS] * 2
    assert len(notes) == 1 and "cannot hold a cache: it is not writable; every pass reads the source again" in notes[0]
    home.unlink()
    monkeypatch.setattr(cache_place.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    assert all_passes(Passes(stream(path), passes=2, note=notes), 2) == [ROWS] * 2
    assert len(notes) == 2 and "it has no room" in notes[1]


# Full disks.


@pytest.mark.parametrize("step", ["open", "write", "finish"])
def test_a_full_disk(path, home, tmp_path, monkeypatch, step, threads):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    usual = getattr(cache_room.CacheWriter, step)
    calls = []

    def sometimes(self, *arguments):
        calls.append(1)
        return full() if len(calls) > (2 if step == "write" else 0) else usual(self, *arguments)

    monkeypatch.setattr(cache_room.CacheWriter, step, sometimes)
    notes = Notes()
    assert all_passes(Passes(stream(path), passes=3, note=notes), 3) == [ROWS] * 3
    assert len(notes) == 1 and "No space left on device; later passes read the source again" in notes[0]
    assert os.listdir(home) == []
    calls.clear()
    with Passes(stream(path), cache=str(tmp_path / "c"), passes=2) as made:
        with pytest.raises(SourceError, match="c: cannot write the cache: No space left on device; name another place"):
            read(made.batches(1))
        assert threads() == []
    assert sorted(os.listdir(tmp_path)) == ["home", "rows.svm"]


def test_a_full_disk_while_filling(path, home, monkeypatch):
    """Where the cache is needed to go on, there is no way round it."""
    notes = []
    monkeypatch.setattr(cache_room.CacheWriter, "write", lambda self, batch: (_ for _ in ()).throw(OSError(28, "full")))
    with Passes(stream(path), passes=2, note=notes.append) as made:
        for _ in range(2):
            with pytest.raises(SourceError, match="no cache could be written"):
                made.fill()
    assert len(notes) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("rows", [10, 20_000])
def test_a_really_full_disk(put, home, monkeypatch, rows):
    """Errors come out of pyarrow, early or only when the last bytes are flushed."""
    monkeypatch.setattr(cache_room, "open", lambda path, mode: open("/dev/full", mode), raising=False)  # noqa: SIM115
    path = put("rows", b"1 1:1 2:2 3:3\n" * rows)
    notes = Notes()
    first, second = all_passes(Passes(stream(path, block_size=100_000), passes=2, note=notes), 2)
    assert len(first) == len(second) == rows
    assert len(notes) == 1 and "No space left on device" in notes[0]


def test_an_unwritable_place(path, home, put):
    below_a_file = put("file", b"") + "/c.arrow"
    with (
        Passes(stream(path), cache=below_a_file, passes=2) as made,
        pytest.raises(SourceError, match="cannot write the cache: .*; name another place with --cache"),
    ):
        read(made.batches(1))


# Stale caches.


@pytest.fixture
def kept(path, tmp_path):
    place = str(tmp_path / "kept.arrow")
    all_passes(Passes(stream(path), cache=place, passes=2), 2)
    return place


def refusal(kept, made: Stream) -> str:
    before = Path(kept).read_bytes()
    with pytest.raises(ModelError) as caught:
        Passes(made, cache=kept, passes=2)
    assert Path(kept).read_bytes() == before
    return str(caught.value)


def test_a_good_cache_is_taken(path, kept):
    with Passes(stream(path), cache=kept) as made:
        assert made.cached and made.summary() == (60, {0.0: 30.0, 1.0: 30.0})
    assert os.path.exists(kept)


def test_touched_modified_replaced(path, kept, put):
    os.utime(path, ns=(10**18, 10**18))
    assert f"stale cache: {path} has changed since it was made; delete it, or name another" in refusal(
        kept, stream(path)
    )
    Path(path).write_bytes(TEXT + b"\n1 1:1\n")
    assert f"{path} has changed" in refusal(kept, stream(path))
    os.replace(put("new", TEXT), path)
    assert f"{path} has changed" in refusal(kept, stream(path))


def test_other_files(path, kept, put):
    assert "made from other files" in refusal(kept, stream(put("b", TEXT)))
    assert "made from other files" in refusal(kept, stream(path, path))


@pytest.mark.parametrize(
    "options, named",
    [
        ({"limit": 5}, "data.limit was None and is now 5"),
        ({"skip_bad": True}, "data.on_bad_row was raise and is now skip"),
        ({"dialect": Dialect(mask=7)}, "hash mask and index limit"),
        ({"dialect": Dialect(limit=1000)}, "hash mask and index limit"),
        ({"sample": 0.5}, "data.sample was None and is now 0.5"),
    ],
)
def test_other_options(path, kept, options, named):
    assert named in refusal(kept, stream(path, **options))


def test_another_sample(path, tmp_path):
    place = str(tmp_path / "sampled.arrow")
    all_passes(Passes(stream(path, sample=0.5, seed=1), cache=place), 1)
    with Passes(stream(path, sample=0.5, seed=1, shuffle=5), cache=place) as made:
        assert made.cached
    assert "seed of data.sample was 1 and is now 2" in refusal(place, stream(path, sample=0.5, seed=2))
    assert "data.sample was 0.5 and is now 0.25" in refusal(place, stream(path, sample=0.25, seed=1))
    assert "data.sample was 0.5 and is now None" in refusal(place, stream(path, seed=1))
    assert "data.sample was 0.5 and is now None" in refusal(place, stream(path, sample=1.0, seed=1))


def test_other_groups(path, kept, monkeypatch):
    monkeypatch.setattr(passes_room, "GROUP_ROWS", 9)
    assert "group size was [8, 40] and is now [9, 40]" in refusal(kept, stream(path))


@pytest.mark.parametrize("options", [{"shuffle": 5}, {"seed": 9}, {"block_size": 33}, {"sample": 1.0, "seed": 9}])
def test_options_that_do_not_change_the_rows(path, kept, options):
    with Passes(stream(path, **options), cache=kept) as made:
        assert made.cached


def test_a_damaged_cache(path, kept):
    whole = Path(kept).read_bytes()
    Path(kept).write_bytes(whole[: len(whole) // 2])
    assert "not a cache, or damaged or truncated" in refusal(kept, stream(path))
    Path(kept).write_bytes(b"")
    assert "not a cache, or damaged or truncated" in refusal(kept, stream(path))


def test_damage_inside(path, kept, threads):
    """Found when the group is loaded, on the thread that reads ahead."""
    whole = bytearray(Path(kept).read_bytes())
    values = twin(LINES[8])[0][0][1]
    place = whole.find(values)
    assert place > 0
    whole[place : place + len(values)] = bytes(len(values))
    Path(kept).write_bytes(whole)
    with Passes(stream(path), cache=kept) as made, pytest.raises(ModelError, match="group 1 of the cache is damaged"):
        read(made.batches(1))
    assert threads() == []


def test_a_source_without_a_stamp(home, tmp_path, path):
    """Its cache lives as long as the run, also where a place was named; one that is there already is not trusted."""
    import fsspec

    filesystem = fsspec.filesystem("memory")
    filesystem.pipe_file("/rows", TEXT)
    info = filesystem.info
    filesystem.info = lambda name, **rest: {"name": name, "size": len(TEXT), "type": "file"}
    try:
        place = tmp_path / "c.arrow"
        assert all_passes(Passes(stream("memory://rows"), cache=str(place), passes=2), 2) == [ROWS] * 2
        assert not place.exists()
        all_passes(Passes(stream(path), cache=str(place)), 1)
        assert "cannot be told; delete it" in refusal(str(place), stream("memory://rows"))
    finally:
        filesystem.info = info
        filesystem.rm("/rows")


# Standard input.


@pytest.fixture
def stdin(monkeypatch):
    reader, writer = os.pipe()
    monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"fileno": lambda self: reader})())
    os.write(writer, TEXT)
    os.close(writer)
    yield
    os.close(reader)


def test_several_passes_over_standard_input(stdin, home):
    assert all_passes(Passes(stream("-"), passes=3), 3) == [ROWS] * 3
    assert os.listdir(home) == []


def test_standard_input_with_a_named_cache(stdin, tmp_path):
    """For this run only: nobody could tell later what it was made of."""
    assert all_passes(Passes(stream("-"), cache=str(tmp_path / "c"), passes=2), 2) == [ROWS] * 2
    assert not (tmp_path / "c").exists()


def test_standard_input_without_a_cache(stdin, home):
    with pytest.raises(ConfigError, match="standard input can be read only once: several passes need a cache"):
        Passes(stream("-"), cache="off", passes=2)
    assert all_passes(Passes(stream("-"), cache="off", passes=1), 1) == [ROWS]


def test_standard_input_and_a_full_disk(stdin, home, monkeypatch):
    """What has been read is gone, so there is nothing to fall back to."""

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_room.CacheWriter, "write", full)
    with (
        Passes(stream("-"), passes=2) as made,
        pytest.raises(SourceError, match="No space left on device; name another"),
    ):
        read(made.batches(1))


def test_standard_input_and_no_room(stdin, home, monkeypatch):
    monkeypatch.setattr(cache_place.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with pytest.raises(SourceError, match="cannot hold the cache that several passes need: it has no room"):
        Passes(stream("-"), passes=2)


def test_standard_input_is_not_started_over(stdin, home):
    """A first pass that was broken off has used up rows; the next must not go on as if they had never been."""
    with Passes(stream("-", block_size=30), passes=2) as made:
        rows = made.batches(1)
        next(rows)
        rows.close()
        with pytest.raises(SourceError, match="standard input can be read only once"):
            made.fill()


def test_rows_are_there_while_they_are_looked_at(path, home):
    """Groups are loaded ahead; the one in hand must not change."""
    with Passes(stream(path, shuffle=3), passes=2) as made:
        read(made.batches(1))
        for batch in made.batches(2):
            before = rows_of(batch)
            threading.Event().wait(0.002)
            assert rows_of(batch) == before


def test_no_rows(put, home):
    assert all_passes(Passes(stream(put("empty", b"# nothing\n\n")), passes=3), 3) == [[]] * 3
    assert all_passes(Passes(stream(put("one", b"1 1:1")), passes=2), 2) == [[row(1, [1], [1])]] * 2


@pytest.mark.parametrize("every", range(2, 20))
def test_held_out_rows_are_marked_however_rows_are_cut(every):
    """numpy 2.4 negates the wrong ones of x[::4] in place."""
    rows = np.arange(300)
    for first, size in ((0, 300), (3, 17), (10, 100), (7, 1), (5, 0)):
        weights = np.where(rows[:size] % 3, 1.0, 0.0).astype(np.float32)
        empty = np.empty(0, np.float32)
        batch = Batch(np.zeros(size + 1, np.int64), empty.astype(np.uint32), empty, weights, weights)
        held = np.signbit(marked(batch, first, every).weights)
        assert held.tolist() == held_out(first + size, every)[first:].tolist()
