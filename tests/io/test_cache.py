"""The cache: rows come back bit for bit in groups that the rows alone decide, and a bad file is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from libsvm_twin import rows_of

from streamsvm.batch import Batch
from streamsvm.errors import DataError, ModelError
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


@settings(max_examples=60)
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


@settings(max_examples=60)
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


def test_the_writer_knows_what_it_wrote(tmp_path):
    writer = CacheWriter(tmp_path / "c", MARK)
    writer.open()
    batch = made([1] * 9000)
    writer.write(batch)
    assert writer.rows == 9000 and writer.classes == {-1.0, 0.0, 1.0}
    writer.abandon()
    assert os.listdir(tmp_path) == []


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


def test_pages_are_shared_with_the_file(tmp_path):
    batch = Cache(write(tmp_path / "c", made([3] * 100))).group(0)
    for array in (batch.indices, batch.values, batch.labels, batch.weights):
        assert not array.flags.owndata and not array.flags.writeable


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


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from test_cache import CacheWriter, MARK, made
writer = CacheWriter(Path(sys.argv[1]), MARK)
writer.open()
while True:
    writer.write(made([10] * 5000))
    if writer.rows > 30000:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer(tmp_path):
    path = tmp_path / "c"
    folders = os.pathsep.join([str(Path(__file__).parent.parent), *sys.path])
    command = [sys.executable, "-c", KILLED, str(path), str(Path(__file__).parent)]
    assert subprocess.run(command, env={**os.environ, "PYTHONPATH": folders}).returncode == -9
    (left,) = os.listdir(tmp_path)
    assert left.startswith(".c.") and left.endswith(".part")
    assert (tmp_path / left).stat().st_size > 100_000


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
