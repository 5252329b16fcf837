"""The cache: rows come back bit for bit in groups that the rows alone decide, and a bad file is refused."""

import io
import itertools
import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from libsvm_twin import rows_of
from tiers import examples

from streamsvm.batch import Batch
from streamsvm.errors import DataError, ModelError
from streamsvm.io import arrow_file
from streamsvm.io import cache as room
from streamsvm.io.cache import Cache, CacheWriter

MARK = {"source": [["a", 1, "mtime 1"]], "data.limit": None}


def made(lengths, seed=0) -> Batch:
    random = np.random.default_rng(seed)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    indices = np.concatenate(
        [np.empty(0), *(np.sort(random.choice(9999, n, replace=False)) * 429_000 for n in lengths)]
    )
    return Batch(
        indptr,
        indices.astype(np.uint32),
        random.normal(size=indptr[-1]).astype(np.float32),
        random.integers(-1, 2, len(lengths)).astype(np.float32),
        random.random(len(lengths)).astype(np.float32),
    )


def write(path, batch, points=(), mark=MARK) -> Path:
    writer = CacheWriter(path, mark)
    writer.open()
    edges = [0, *sorted(points), batch.rows]
    for i, (start, stop) in enumerate(zip(edges, edges[1:], strict=False)):
        writer.write(batch.slice(start, stop) if i % 2 else batch.take(start, stop))
    writer.finish()
    return path


def groups(path) -> list[list]:
    cache = Cache(path)
    found = [rows_of(cache.group(number)) for number in range(cache.groups)]
    cache.close()
    return found


@pytest.fixture
def small(monkeypatch):
    """Groups of at most 5 rows and 20 features."""
    monkeypatch.setattr(room, "GROUP_ROWS", 5)
    monkeypatch.setattr(room, "GROUP_FEATURES", 20)


@examples(60)
@given(st.lists(st.integers(0, 8) | st.sampled_from([0, 19, 20, 21, 50]), max_size=30), st.lists(st.integers(0, 30)))
@example([20, 0], [])
@example([0, 21, 0, 0], [2])
@example([19, 1, 0, 0, 0, 0], [])
def test_round_trip(tmp_path_factory, lengths, points):
    """Any batching gives the same groups: full ones, none longer than allowed, a long row in one of its own."""
    path = tmp_path_factory.mktemp("cache") / "c.arrow"
    batch = made(lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "GROUP_ROWS", 5)
        patch.setattr(room, "GROUP_FEATURES", 20)
        once = groups(write(path, batch))
        again = groups(write(path, batch, [min(point, batch.rows) for point in points]))
        single = groups(write(path, batch, range(batch.rows)))
    assert once == again == single
    assert [row for group in once for row in group] == rows_of(batch)
    sizes = [[len(row[1]) // 4 for row in group] for group in once]
    for size in sizes:
        assert len(size) == 1 or (len(size) <= 5 and sum(size) <= 20)
    for size, following in zip(sizes, sizes[1:], strict=False):
        assert len(size) == 5 or sum(size) + following[0] > 20


def test_the_usual_group(tmp_path):
    batch = made([1] * 20_000)
    assert [len(group) for group in groups(write(tmp_path / "c", batch, [1, 9000]))] == [8192, 8192, 3616]


def test_summary(tmp_path, small):
    batch = made([3, 0, 4] * 10)
    path = write(tmp_path / "c", batch)
    rows, features, labels = Cache(path).summary()
    assert (rows, features) == (30, 70) and list(labels) == [-1.0, 0.0, 1.0]
    assert labels == totals(batch)
    assert Cache(write(path, made([]))).summary() == (0, 0, {})


def totals(batch) -> dict[float, float]:
    """Weights added up in double, row by row."""
    found: dict[float, float] = {}
    for label, weight in zip(batch.labels.tolist(), batch.weights.tolist(), strict=True):
        found[label] = found.get(label, 0.0) + weight
    return found


weights = st.sampled_from([0.0, 1.0, 0.1, 1e-30, 3e38, 16777216.0, 1e-45]) | st.floats(0, 100, width=32)
labels = st.sampled_from([-1.0, 1.0, 0.0, -0.0, 2.5, 7.0]) | st.integers(-3, 90).map(float)


@examples(60)
@given(st.lists(st.tuples(labels, weights), max_size=60), st.integers(1, 20))
def test_totals_do_not_depend_on_groups(tmp_path_factory, pairs, size):
    """The very sums of a loop over the rows, whatever the groups, with labels that come late or have no weight."""
    path = tmp_path_factory.mktemp("cache") / "c.arrow"
    batch = made([0] * len(pairs))._replace(
        labels=np.array([label for label, _ in pairs], np.float32),
        weights=np.array([weight for _, weight in pairs], np.float32),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "GROUP_ROWS", size)
        cache = Cache(write(path, batch))
        rows, features, found = cache.summary()
        cache.close()
    assert (rows, features) == (len(pairs), 0)
    assert found == totals(batch) and list(found) == sorted(found)
    assert not any(np.signbit(label) for label in found if label == 0)


def test_totals_of_many_classes(tmp_path):
    batch = made([0] * 20_000)._replace(labels=np.random.default_rng(1).integers(0, 9000, 20_000).astype(np.float32))
    assert Cache(write(tmp_path / "c", batch)).summary() == (20_000, 0, totals(batch))


def test_sums_are_in_double(tmp_path):
    """In single precision a total stands still at 2^24."""
    batch = made([0] * 3)._replace(labels=np.ones(3, np.float32), weights=np.array([2**24, 1, 1], np.float32))
    assert Cache(write(tmp_path / "c", batch)).summary()[2] == {1.0: 2**24 + 2}


@pytest.mark.parametrize("array", ["labels", "weights"])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, -1.0])
def test_numbers_that_are_none(tmp_path, array, number):
    """What the parser never makes cannot come out of a cache either."""
    batch = made([1, 0, 2])
    getattr(batch, array)[1] = number
    path = write(tmp_path / "c", batch)
    if (array, number) == ("labels", -1.0):
        assert groups(path) == [rows_of(batch)]
        return
    assert "group 0 of the cache is damaged (labels are not finite" in refused(path)
    with pytest.raises(ModelError, match="group 0 of the cache is damaged"):
        Cache(path).summary()


def test_any_arrow_tool_opens_it(tmp_path, small):
    batch = made([3, 0, 4, 20, 1])
    with pa.memory_map(str(write(tmp_path / "c", batch))) as source:
        table = pa.ipc.open_file(source).read_all()
    assert table.schema.names == ["label", "weight", "indices", "values"]
    assert [str(kind) for kind in table.schema.types] == [
        "float",
        "float",
        "list<item: uint32 not null>",
        "list<item: float not null>",
    ]
    assert table["label"].to_pylist() == batch.labels.tolist()
    assert table["weight"].to_pylist() == batch.weights.tolist()
    assert [len(row) for row in table["indices"].to_pylist()] == [3, 0, 4, 20, 1]
    assert np.array_equal(np.concatenate(table["values"].to_pylist()).astype(np.float32), batch.values)
    assert json.loads(table.schema.metadata[b"fingerprint"]) == MARK


@pytest.mark.parametrize("lengths", [[], [3], [3, 0, 4, 20, 1] * 7, [21, 50], [0] * 5])
def test_the_file_that_pyarrow_would_have_written(tmp_path, small, lengths):
    """The footer is made here. All before it is the same, and a reader cannot tell the difference."""
    path, usual = write(tmp_path / "c", made(lengths)), tmp_path / "usual"
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        found = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        for record in found:
            record.validate(full=True)
        with pa.OSFile(str(usual), "wb") as sink, pa.ipc.new_file(sink, reader.schema) as writer:
            for record in found:
                writer.write_batch(record)
        with pa.memory_map(str(usual)) as other:
            twin = pa.ipc.open_file(other)
            assert reader.schema.equals(twin.schema, check_metadata=True)
            assert found == [twin.get_batch(number) for number in range(twin.num_record_batches)]
    ours, theirs = path.read_bytes(), usual.read_bytes()
    assert ours[: footer_of(ours)] == theirs[: footer_of(theirs)] and footer_of(ours) % 8 == 0
    assert pa.feather.read_table(path).equals(pa.feather.read_table(usual), check_metadata=True)
    assert pa.ipc.open_stream(ours[8:]).read_all().equals(pa.Table.from_batches(found, reader.schema))


def footer_of(whole: bytes) -> int:
    """Where the footer of an Arrow file begins."""
    return len(whole) - 10 - int.from_bytes(whole[-10:-6], "little")


@pytest.mark.parametrize("length", range(8))
def test_places_are_aligned(length):
    """Whatever the length of the footer, which pyarrow decides: readers may load an int64 where it lies."""
    schema = room._schema({"fingerprint": "x" * length})
    _, footer = arrow_file._around_groups(schema)
    footer += bytes(length)
    changed = arrow_file._with_places(footer, [arrow_file.Place(8, 16, 24)])
    assert len(changed) % 8 == 0 and changed[-24:] == np.array([8, 16, 24]).tobytes()
    assert changed[-28:-24] == b"\1\0\0\0"


def test_the_schema_is_left_out_however_it_is_cut():
    """In which pieces pyarrow hands a message over is its own affair."""
    text = bytes(range(40))
    for first, second in itertools.combinations_with_replacement(range(41), 2):
        file = io.BytesIO()
        sink = arrow_file._Sink(file, skip=16)
        for piece in (text[:first], pa.py_buffer(text[first:second]), text[second:]):
            sink.write(piece)
        assert file.getvalue() == text[16:] and (sink.prefix, sink.written) == (text[16:24], 24)


def test_a_cache_without_rows(tmp_path):
    path = write(tmp_path / "c", made([]))
    cache = Cache(path)
    assert cache.groups == 0 and cache.fingerprint == MARK and len(cache.first_rows()) == 0
    assert cache.groups_from(0) == (0, 0)
    with pa.memory_map(str(path)) as source:
        assert pa.ipc.open_file(source).read_all().num_rows == 0


def test_pages_are_shared_with_the_file(tmp_path):
    batch = Cache(write(tmp_path / "c", made([3] * 100))).group(0)
    for array in (batch.indices, batch.values, batch.labels, batch.weights):
        assert not array.flags.owndata and not array.flags.writeable


def test_where_a_row_is(tmp_path, small):
    cache = Cache(write(tmp_path / "c", made([3, 0, 4, 20, 1, 30, 2, 2, 2, 2, 2, 2])))
    places = [(number, row) for number in range(cache.groups) for row in range(cache.group(number).rows)]
    assert len(places) == 12 and cache.groups > 4
    assert [cache.groups_from(row) for row in range(12)] == places
    assert cache.groups_from(12) == (cache.groups, 0)
    assert cache.first_rows().tolist() == [row for row, place in enumerate(places) if place[1] == 0]
    for row in (13, -1, 10**12):
        with pytest.raises(ModelError, match=f"c: row {row} is asked for, but the cache has 12; delete it"):
            cache.groups_from(row)


def test_rows_are_counted_once(tmp_path, small):
    cache = Cache(write(tmp_path / "c", made([3] * 50)))
    first = cache.first_rows()
    cache.close()
    cache._reader = None
    assert cache.first_rows() is not first and cache.first_rows().tolist() == first.tolist()
    assert cache.groups_from(50) == (len(first), 0)
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1


def test_rows_of_a_damaged_group_are_not_counted(tmp_path, small):
    path = write(tmp_path / "c", made([3] * 50))
    whole = bytearray(path.read_bytes())
    place = whole.index(b"\xff\xff\xff\xff", whole.index(b"\xff\xff\xff\xff") + 4)  # the schema comes first
    whole[place + 4 : place + 8] = b"\x00\x00\x00\x7f"
    path.write_bytes(whole)
    for question in (Cache(path).first_rows, lambda: Cache(path).groups_from(3)):
        with pytest.raises(ModelError, match="c: group 0 of the cache is damaged"):
            question()


def test_thousands_of_labels_are_not_classes(tmp_path):
    batch = made([0] * 10_001)._replace(labels=np.arange(10_001, dtype=np.float32))
    writer = CacheWriter(tmp_path / "c", MARK)
    writer.open()
    writer.write(batch.slice(0, 10_000))
    with pytest.raises(DataError, match="more than 10000 different labels"):
        writer.write(batch.slice(10_000, 10_001))
    writer.abandon()


# Half-written files.


def test_no_name_before_the_end(tmp_path, small):
    path = tmp_path / "sub" / "c"
    writer = CacheWriter(path, MARK)
    writer.open()
    writer.write(made([3] * 50))
    assert not path.exists()
    writer.finish()
    assert os.listdir(path.parent) == ["c"]
    writer.abandon()
    assert path.exists(), "a finished cache is not abandoned any more"


def test_an_abandoned_cache_leaves_the_old_one(tmp_path, small):
    path = write(tmp_path / "c", made([1, 2]))
    writer = CacheWriter(path, MARK)
    writer.abandon()
    writer.open()
    writer.write(made([3] * 50))
    writer.abandon()
    writer.abandon()
    assert os.listdir(tmp_path) == ["c"] and len(groups(path)[0]) == 2


def test_a_disk_that_is_full_from_the_start(tmp_path, monkeypatch):
    """The first bytes may not be written either, and still nothing is left behind."""

    class Full(io.FileIO):
        def write(self, data):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(room, "open", Full, raising=False)
    writer = CacheWriter(tmp_path / "c", MARK)
    with pytest.raises(OSError, match="No space left"):
        writer.open()
    assert len(os.listdir(tmp_path)) == 1
    writer.abandon()
    assert os.listdir(tmp_path) == []


# Going on after a kill.

ROWS = made([3, 0, 4, 20, 1, 30, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 21, 21, 19, 1, 0, 6, 7, 8, 1, 1, 1])


def cut(batch, size) -> list[Batch]:
    return [batch.slice(start, min(start + size, batch.rows)) for start in range(0, batch.rows, size)]


def begun(path, batches) -> CacheWriter:
    writer = CacheWriter(path, MARK)
    writer.open()
    for batch in batches:
        writer.write(batch)
    return writer


def continued(path, state, batches) -> bytes:
    """The whole file, when a later process has gone on from the state."""
    writer = CacheWriter(path, MARK)
    assert writer.go_on(state) and os.path.getsize(path.with_name(state["part"])) == state["bytes"]
    for batch in batches:
        writer.write(batch)
    writer.finish()
    assert os.listdir(path.parent) == [path.name]
    return path.read_bytes()


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("more", [0, 1, 9])
def test_going_on_at_every_point(tmp_path, small, size, more):
    """The very file of a run that was not stopped, also if the killed one wrote more after its state was taken."""
    batches = cut(ROWS, size)
    whole = write(tmp_path / "whole", ROWS).read_bytes()
    situations = set()
    for done in range(len(batches) + 1):
        path = tmp_path / f"{done}" / "c"
        writer = begun(path, batches[:done])
        state = writer.state()
        situations.add((len(state["ends"]) > 0, len(state["labels"]) > 0, len(state["values"]) > 20))
        for batch in batches[done : done + more]:
            writer.write(batch)
        writer.leave()
        assert continued(path, state, batches[done:]) == whole
    if size == 1:
        usual = itertools.product([False, True], [False, True], [False])
        assert situations == {*usual, (True, True, True)}, "nothing or something written, open, too long for a group"


@examples(60)
@given(
    st.lists(st.integers(0, 8) | st.sampled_from([0, 19, 20, 21, 50]), max_size=40),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6),
)
@example([20, 0, 21], [(1, 2), (1, 3)])
def test_any_row_lengths_and_any_kills(tmp_path_factory, lengths, kills):
    """Killed again and again, each time some rows after the state was taken, which may be one taken before."""
    path = tmp_path_factory.mktemp("cache") / "c.arrow"
    batch = made(lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "GROUP_ROWS", 5)
        patch.setattr(room, "GROUP_FEATURES", 20)
        whole = write(path, batch).read_bytes()
        path.unlink()
        writer, row = begun(path, []), 0
        for taken, killed in kills:
            stop = min(row + taken, batch.rows)
            writer.write(batch.slice(row, stop))
            state, row = writer.state(), stop
            writer.write(batch.slice(row, min(row + killed, batch.rows)))
            writer.leave()
            writer = CacheWriter(path, MARK)
            assert writer.go_on(state) and same(writer.state(), state)
        writer.write(batch.slice(row, batch.rows))
        writer.finish()
    assert path.read_bytes() == whole


def test_groups_of_the_usual_size(tmp_path):
    batch = made([40] * 30_000)
    whole = write(tmp_path / "whole", batch).read_bytes()
    for row in (0, 8191, 8192, 20_000, 30_000):
        path = tmp_path / str(row) / "c"
        writer = begun(path, [batch.slice(0, row)])
        state = writer.state()
        writer.leave()
        assert continued(path, state, [batch.slice(row, 30_000)]) == whole


def test_the_state(tmp_path, small):
    """What is counted has left this process, what is not counted is in the state, and taking it changes nothing."""
    whole = write(tmp_path / "whole", ROWS).read_bytes()
    path = tmp_path / "sub" / "c"
    writer = begun(path, [])
    states = []
    for batch in cut(ROWS, 2):
        writer.write(batch)
        state = writer.state()
        assert state["part"] == f".c.{os.getpid()}.part"
        assert path.with_name(state["part"]).read_bytes()[: state["bytes"]] == whole[: state["bytes"]]
        assert not len(state["ends"]) or state["ends"][-1] == state["bytes"]
        states.append((state, pickle.dumps(state)))
    for number, (state, copy) in enumerate(states):
        assert same(state, pickle.loads(copy)), "what was taken does not change any more"
        rows = 2 * number + 2 if number < 13 else 27
        assert state["written"] + len(state["labels"]) == rows
        assert state["labels_seen"].tolist() == sorted(set(ROWS.labels[:rows].tolist()))
        open_rows = Batch(*(state[name] for name in Batch._fields))
        assert rows_of(open_rows) == rows_of(ROWS.slice(state["written"], rows))
    writer.finish()
    assert path.read_bytes() == whole
    cache = Cache(path)
    assert len(state["ends"]) == cache.groups - 1 and state["written"] == cache.first_rows()[-1]


def test_a_relative_path(tmp_path, small, monkeypatch):
    """The process that goes on may have been started elsewhere."""
    whole = write(tmp_path / "whole", ROWS).read_bytes()
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    writer = begun(Path("c"), cut(ROWS, 9)[:2])
    state = writer.state()
    writer.leave()
    monkeypatch.chdir("/")
    assert continued(tmp_path / "sub" / "c", state, cut(ROWS, 9)[2:]) == whole


KILLED = """
import os, pickle, signal, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from test_cache import begun, made
writer = begun(Path(sys.argv[1]), [])
for number in range(9):
    writer.write(made([10] * 5000, number))
    if number == 4:
        Path(sys.argv[1] + ".state").write_bytes(pickle.dumps(writer.state()))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer(tmp_path):
    path = tmp_path / "c"
    folders = os.pathsep.join([str(Path(__file__).parent.parent), *sys.path])
    command = [sys.executable, "-c", KILLED, str(path), str(Path(__file__).parent)]
    assert subprocess.run(command, env={**os.environ, "PYTHONPATH": folders}).returncode == -9
    left, saved = sorted(os.listdir(tmp_path))
    assert left.startswith(".c.") and left.endswith(".part") and left != f".c.{os.getpid()}.part"
    state = pickle.loads((tmp_path / saved).read_bytes())
    assert (tmp_path / left).stat().st_size > state["bytes"] + 100_000
    (tmp_path / saved).unlink()
    batches = [made([10] * 5000, number) for number in range(9)]
    found = continued(path, state, batches[5:])
    writer = begun(path, batches)
    writer.finish()
    assert found == path.read_bytes()


def test_killed_between_the_footer_and_the_name(tmp_path, small, monkeypatch):
    whole = write(tmp_path / "whole", ROWS).read_bytes()
    path = tmp_path / "sub" / "c"
    writer = begun(path, cut(ROWS, 9)[:2])
    state = writer.state()
    writer.write(cut(ROWS, 9)[2])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", lambda *names: (_ for _ in ()).throw(KeyboardInterrupt))
        writer.finish()
    assert path.with_name(state["part"]).read_bytes() == whole
    assert continued(path, state, cut(ROWS, 9)[2:]) == whole


def test_a_write_that_broke_off_inside_a_group(tmp_path, small):
    """A signal may come in the middle of a group. The state is that before it, and what is behind it is cut off."""
    whole = write(tmp_path / "whole", ROWS).read_bytes()
    path = tmp_path / "sub" / "c"
    batches = cut(ROWS, 9)
    writer = begun(path, batches[:2])
    state = writer.state()
    assert writer._file is not None
    broken, usual = [], writer._file._sink._file

    class Breaking:
        def write(self, data):
            broken.append(len(data))
            if len(broken) == 5:
                raise KeyboardInterrupt
            usual.write(data)

    writer._file._sink._file = Breaking()
    with pytest.raises(KeyboardInterrupt):
        writer.write(batches[2])
    writer.leave()
    assert path.with_name(state["part"]).stat().st_size == state["bytes"] + sum(broken[:4]) > state["bytes"]
    assert continued(path, state, batches[2:]) == whole


def test_leave_and_abandon(tmp_path, small):
    path = tmp_path / "c"
    writer = begun(path, [ROWS])
    state = writer.state()
    writer.leave()
    writer.leave()
    writer.abandon()
    assert os.listdir(tmp_path) == [".c." + str(os.getpid()) + ".part"], "what was left is not abandoned any more"
    assert path.with_name(state["part"]).stat().st_size == state["bytes"]
    another = CacheWriter(path, MARK)
    assert another.go_on(state)
    another.abandon()
    assert os.listdir(tmp_path) == []
    finished = begun(path, [ROWS])
    finished.finish()
    whole = path.read_bytes()
    following = begun(path, [ROWS])
    finished.abandon()
    finished.leave()
    finished.sync()
    assert path.read_bytes() == whole
    following.finish()
    assert os.listdir(tmp_path) == ["c"], "a finished writer has let go of its temporary name"


def test_the_name_of_an_unfinished_file_is_kept(tmp_path, small):
    """The new process goes by another number, and the directory may have been moved."""
    whole = write(tmp_path / "whole", ROWS).read_bytes()
    writer = begun(tmp_path / "c", cut(ROWS, 9)[:2])
    state = writer.state()
    writer.leave()
    part = tmp_path / "moved" / ".c.99999999.part"
    part.parent.mkdir()
    os.rename(tmp_path / state["part"], part)
    again = CacheWriter(tmp_path / "moved" / "d", MARK)
    assert again.go_on({**state, "part": part.name}) and again.state()["part"] == part.name
    again.write(cut(ROWS, 9)[2])
    again.finish()
    assert sorted(os.listdir(tmp_path)) == ["moved", "whole"] and os.listdir(tmp_path / "moved") == ["d"]
    assert (tmp_path / "moved" / "d").read_bytes() == whole


def test_labels_are_counted_across_a_kill(tmp_path):
    batch = made([0] * 10_001)._replace(labels=np.arange(10_001, dtype=np.float32))
    writer = begun(tmp_path / "c", [batch.slice(0, 10_000)])
    state = writer.state()
    writer.leave()
    writer = CacheWriter(tmp_path / "c", MARK)
    assert writer.go_on(state)
    with pytest.raises(DataError, match="more than 10000 different labels"):
        writer.write(batch.slice(10_000, 10_001))
    writer.abandon()


def left(tmp_path) -> dict:
    """The state of an unfinished file with several groups and an open one."""
    writer = begun(tmp_path / "c", [ROWS])
    state = writer.state()
    assert len(state["ends"]) > 5 and len(state["values"]) > 2 and len(state["labels"]) > 1
    writer.leave()
    return state


def not_gone_on(path, state, mark=MARK) -> None:
    """Refused without a trace; the same writer can start over."""
    part = path.with_name(Path(str(state["part"])).name or "none")
    before = (part.read_bytes(), part.stat().st_mtime_ns) if part.is_file() else None
    writer = CacheWriter(path, mark)
    assert writer.go_on(state) is False
    writer.leave()
    writer.abandon()
    assert before == ((part.read_bytes(), part.stat().st_mtime_ns) if part.is_file() else None)
    if before is not None:
        part.rename(path.with_name("kept"))
    writer.open()
    writer.write(ROWS)
    writer.finish()
    assert len([row for group in groups(path) for row in group]) == ROWS.rows


def test_a_file_that_is_gone(tmp_path, small):
    state = left(tmp_path)
    os.unlink(tmp_path / state["part"])
    not_gone_on(tmp_path / "c", state)


@pytest.mark.parametrize("name", ["", ".", "..", "/", "../c", "sub/c", "/etc/passwd", None, 3])
def test_a_name_that_leads_elsewhere(tmp_path, small, name):
    """A state names a file beside the cache, never one in another directory."""
    not_gone_on(tmp_path / "c", {**left(tmp_path), "part": name})


@pytest.mark.parametrize("group", [None, 0, 3, -1])
@pytest.mark.parametrize("missing", [1, 8])
def test_a_file_that_is_too_short(tmp_path, small, group, missing):
    state = left(tmp_path)
    os.truncate(tmp_path / state["part"], 100 if group is None else state["ends"][group] - missing)
    not_gone_on(tmp_path / "c", state)


@pytest.mark.parametrize("mark", [None, {**MARK, "data.limit": 5}, {}])
def test_a_file_of_another_source(tmp_path, small, mark):
    not_gone_on(tmp_path / "c", left(tmp_path), mark)


@pytest.mark.parametrize("name", ["FORMAT", "FORMAT_VERSION"])
def test_a_file_of_another_version(tmp_path, small, monkeypatch, name):
    state = left(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(room, name, "another")
        assert CacheWriter(tmp_path / "c", MARK).go_on(state) is False
    writer = CacheWriter(tmp_path / "c", MARK)
    assert writer.go_on(state)
    writer.abandon()


@pytest.mark.parametrize("where", ["magic", "schema", "group 0", "group 3", "length of group 3", "end"])
def test_a_file_that_was_written_over(tmp_path, small, where):
    state = left(tmp_path)
    whole = bytearray((tmp_path / state["part"]).read_bytes())
    first, fourth = whole.index(b"\xff\xff\xff\xff", 12), state["ends"][2]
    places = {"magic": 2, "schema": 40, "group 0": first, "group 3": fourth, "length of group 3": fourth + 6}
    if where == "end":
        whole[fourth + 4 : fourth + 8] = bytes(4)
    else:
        whole[places[where]] ^= 0x40
    (tmp_path / state["part"]).write_bytes(whole)
    not_gone_on(tmp_path / "c", state)


@pytest.mark.parametrize(
    "name, change",
    [
        ("bytes", lambda state: state["bytes"] - 8),
        ("bytes", lambda state: state["bytes"] + 8),
        ("ends", lambda state: state["ends"][:-1]),
        ("ends", lambda state: state["ends"][::-1].copy()),
        ("ends", lambda state: np.append(state["ends"], state["ends"][-1])),
        ("ends", lambda state: np.insert(state["ends"], 0, -8)),
        ("ends", lambda state: np.insert(state["ends"], 0, 12)),
        ("ends", lambda state: state["ends"].astype(np.float64)),
        ("ends", lambda state: state["ends"].reshape(1, -1)),
        ("ends", lambda state: None),
        ("written", lambda state: len(state["ends"]) - 1),
        ("written", lambda state: len(state["ends"]) * 5 + 1),
        ("indptr", lambda state: state["indptr"][:-1]),
        ("indptr", lambda state: state["indptr"][:0]),
        ("indptr", lambda state: state["indptr"] + 1),
        ("indptr", lambda state: np.array([1, *state["indptr"][1:]])),
        ("indptr", lambda state: state["indptr"][::-1].copy()),
        ("indptr", lambda state: np.array([0, 99, *state["indptr"][2:]])),
        ("labels", lambda state: state["labels"][1:]),
        ("weights", lambda state: state["weights"][1:]),
        ("weights", lambda state: state["weights"].reshape(-1, 1)),
        ("indices", lambda state: state["indices"][1:]),
        ("values", lambda state: np.append(state["values"], np.float32(1))),
        ("values", lambda state: state["values"].astype(np.float64)),
        ("labels_seen", lambda state: state["labels_seen"].tolist()),
    ],
)
def test_a_state_that_cannot_be(tmp_path, small, name, change):
    state = left(tmp_path)
    not_gone_on(tmp_path / "c", {**state, name: change(state)})


@pytest.mark.parametrize("lengths", [[0] * 5, [11, 10], [1] * 6])
def test_open_rows_that_no_group_holds(tmp_path, small, lengths):
    rows = made(lengths)
    not_gone_on(tmp_path / "c", {**left(tmp_path), **rows._asdict()})


# Putting on disk what has been written, from another thread.


@pytest.fixture
def synced(monkeypatch):
    """The files that were synced, by number."""
    found, usual = [], os.fsync

    def fsync(descriptor):
        found.append(os.fstat(descriptor).st_ino)
        usual(descriptor)

    monkeypatch.setattr(arrow_file.os, "fsync", fsync)
    return found


def test_sync_while_writing(tmp_path, small, synced):
    """Caches open and close, so that descriptors are used again, while a thread syncs all the time."""
    whole = write(tmp_path / "whole", ROWS).read_bytes()
    synced.clear()
    writers, files, stop, failed = [CacheWriter(tmp_path / "c", MARK)], set(), threading.Event(), []

    def sync():
        try:
            while not stop.is_set():
                writers[-1].sync()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=sync)
    thread.start()
    for number in range(40):
        path = tmp_path / "c"
        writer = CacheWriter(path, MARK, durable=False)
        writers.append(writer)
        writer.open()
        files.add(os.stat(tmp_path / writer.state()["part"]).st_ino)
        for batch in cut(ROWS, 1 + number % 5):
            writer.write(batch)
        if number % 4:
            writer.finish()
            assert path.read_bytes() == whole
        else:
            writer.abandon()
        (tmp_path / f"other {number}").write_bytes(b"not to be synced")
    stop.set()
    thread.join()
    assert not failed and synced and set(synced) <= files


def test_sync_when_there_is_nothing_to_sync(tmp_path, small, synced):
    writer = CacheWriter(tmp_path / "c", MARK)
    writer.sync()
    writer.open()
    part = os.stat(tmp_path / writer.state()["part"]).st_ino
    writer.sync()
    assert synced == [part]
    writer.finish()
    assert synced[:2] == [part] * 2, "a file that is kept is on disk before it has its name"
    synced.clear()
    writer.sync()
    again = begun(tmp_path / "d", [ROWS])
    again.leave()
    again.sync()
    assert synced == []


def test_a_file_closed_while_it_is_synced(tmp_path, monkeypatch):
    """Its descriptor may be that of another file by then. Closing does not wait for the disk."""
    writer = begun(tmp_path / "c", [ROWS])
    part = os.stat(tmp_path / writer.state()["part"]).st_ino
    found = []

    def fsync(descriptor):
        writer.leave()
        with open(tmp_path / "other", "wb"):
            found.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(arrow_file.os, "fsync", fsync)
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    writer.sync()
    assert found == [part]
    assert not before or len(os.listdir("/proc/self/fd")) == before - 1, "every descriptor is closed"


def test_a_file_is_not_closed_before_its_descriptor_is_copied(tmp_path, monkeypatch):
    writer = begun(tmp_path / "c", [ROWS])
    closing, usual = threading.Thread(target=writer.leave), os.dup
    waited = []

    def dup(descriptor):
        closing.start()
        closing.join(0.2)
        waited.append(closing.is_alive())
        return usual(descriptor)

    monkeypatch.setattr(arrow_file.os, "dup", dup)
    writer.sync()
    closing.join()
    assert waited == [True]


# Damaged files.


def refused(path) -> str:
    """What is said of a file that cannot be read to its end; None where every row could be read."""
    with pytest.raises(ModelError) as caught:
        groups(path)
    assert "\n" not in str(caught.value) and str(caught.value).startswith(str(path))
    return str(caught.value)


def test_what_is_not_a_cache(tmp_path):
    path = tmp_path / "c"
    assert refused(path).endswith("no such cache")
    path.write_bytes(b"")
    assert "not a cache, or damaged or truncated" in refused(path)
    path.write_bytes(b"1 1:1\n" * 100)
    assert "not a cache" in refused(path)
    assert "not a cache" in refused(tmp_path)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, pa.schema([("x", pa.int32())])):
        pass
    assert refused(path).endswith("not a streamsvm cache")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"format_version": "2"}, "another version"),
        ({"format": "other"}, "not a streamsvm cache"),
        ({"fingerprint": "{"}, "fingerprint cannot be read"),
        ({"fingerprint": None}, "fingerprint cannot be read"),
        ({"format_version": None}, "another version"),
    ],
)
def test_metadata(tmp_path, changes, message):
    path = tmp_path / "c"
    metadata = {"format": "streamsvm-cache", "format_version": "1", "fingerprint": "null", **changes}
    schema = room._schema({key: value for key, value in metadata.items() if value is not None})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema):
        pass
    assert message in refused(path)


def test_other_columns(tmp_path):
    path = tmp_path / "c"
    metadata = {"format": "streamsvm-cache", "format_version": "1", "fingerprint": "null"}
    fields = [("label", pa.float64()), ("weight", pa.float32()), ("indices", pa.int32()), ("values", pa.float32())]
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, pa.schema(fields, metadata=metadata)):
        pass
    assert "columns" in refused(path)


@pytest.mark.parametrize(
    "lie",
    ["decreasing", "repeated", "negative row", "row past the end", "row before the start", "offsets differ", "nulls"],
)
def test_rows_that_kernels_must_not_see(tmp_path, lie):
    """Written with the right types by someone who does not keep the promises of a batch."""
    indices, ends, other = [1, 2, 3, 1, 9], [0, 3, 5], [0, 3, 5]
    if lie == "decreasing":
        indices = [1, 3, 2, 1, 9]
    elif lie == "repeated":
        indices = [1, 2, 3, 9, 9]
    elif lie == "offsets differ":
        other = [0, 2, 5]
    schema = room._schema({"format": "streamsvm-cache", "format_version": "1", "fingerprint": "null"})
    nulls = pa.array([1, None, 3, 1, 9], pa.uint32()) if lie == "nulls" else pa.array(indices, pa.uint32())
    offsets = [pa.py_buffer(np.array(e, np.int32)) for e in (ends, other)]
    columns = [pa.array([1, 1], pa.float32()), pa.array([1, 1], pa.float32())]
    for offset, values, name in ((offsets[0], nulls, 2), (offsets[1], pa.array([0.5] * 5, pa.float32()), 3)):
        columns.append(pa.Array.from_buffers(schema.types[name], 2, [None, offset], children=[values]))
    path = tmp_path / "c"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    wrong = {"negative row": [0, 7, 5], "row past the end": [0, 3, 500], "row before the start": [-3, 3, 5]}
    if lie in wrong:  # pyarrow would not have written these
        old, new = (np.array(e, np.int32).tobytes() for e in (ends, wrong[lie]))
        assert path.read_bytes().count(old) == 2
        path.write_bytes(path.read_bytes().replace(old, new))
    assert "group 0 of the cache is damaged" in refused(path)


def test_truncated_at_every_length(tmp_path, small):
    path = write(tmp_path / "c", made([3, 0, 4] * 10))
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        refused(path)


FLIPS = """
import sys
import numpy as np
from pathlib import Path
from libsvm_twin import rows_of
from streamsvm.errors import ModelError
from streamsvm.io.cache import Cache

path = Path(sys.argv[1])
whole = path.read_bytes()
random = np.random.default_rng(0)
read = refused = 0
for place in range(0, len(whole), 3):
    damaged = bytearray(whole)
    damaged[place] ^= 1 << int(random.integers(8))
    path.write_bytes(damaged)
    try:
        cache = Cache(path)
        cache.summary()
        for number in range(cache.groups):
            batch = cache.group(number)
            assert batch.indptr[0] == 0 and (np.diff(batch.indptr) >= 0).all()
            assert batch.indptr[-1] == len(batch.indices) == len(batch.values) and batch.width <= 2**32
            for i in range(batch.rows):
                row = batch.indices[batch.indptr[i] : batch.indptr[i + 1]].astype(np.int64)
                assert (np.diff(row) > 0).all()
        read += 1
    except ModelError as error:
        assert "\\n" not in str(error)
        refused += 1
print(read, refused)
"""


def test_flipped_bits(tmp_path, small):
    """Any one bit: refused, or rows that keep the promises of a batch. In a process that must not crash."""
    path = write(tmp_path / "c", made([3, 0, 4, 5] * 4))
    folder = str(Path(__file__).parent.parent)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, *sys.path])}
    done = subprocess.run([sys.executable, "-c", FLIPS, str(path)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    read, refusals = map(int, done.stdout.split())
    assert refusals > 150 and read > 30


# Stale caches.


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"source": [["a", 2, "mtime 1"]]}, "a has changed since it was made"),
        ({"source": [["a", 1, "mtime 2"]]}, "a has changed since it was made"),
        ({"source": [["b", 1, "mtime 1"]]}, "it was made from other files"),
        ({"source": [["a", 1, "mtime 1"]] * 2}, "it was made from other files"),
        ({"source": []}, "it was made from other files"),
        ({"data.limit": 5}, "data.limit was None and is now 5"),
        ({"new option": 1}, "new option was None and is now 1"),
    ],
)
def test_stale(tmp_path, change, reason):
    cache = Cache(write(tmp_path / "c", made([1])))
    cache.refuse_if_stale(json.loads(json.dumps(MARK)))
    with pytest.raises(ModelError, match=f"c: stale cache: {reason}; delete it, or name another --cache"):
        cache.refuse_if_stale({**MARK, **change})


def test_a_source_that_cannot_be_told_apart(tmp_path):
    with pytest.raises(ModelError, match="cannot be told; delete it, or name another --cache"):
        Cache(write(tmp_path / "c", made([1]))).refuse_if_stale(None)
    with pytest.raises(ModelError, match="stale"):
        Cache(write(tmp_path / "d", made([1]), mark=None)).refuse_if_stale(MARK)
