"""Remote objects: the bytes they have through every fault, one object all the time, no thread left, no secret told."""

import gzip
import http.client
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from followed import Room
from hypothesis import given
from hypothesis import strategies as st
from range_server import Fault, RangeServer
from signals import NEVER, SOON, heard, stays, wait_for
from tiers import examples
from whole_runs import lines

from streamsvm import load_model
from streamsvm.config import expand, load_settings, summary_lines, to_json_dict, to_yaml
from streamsvm.errors import ConfigError, SourceError, StreamSvmError
from streamsvm.io import http_ranges, remote, retries
from streamsvm.io.http_ranges import CONNECTIONS, HttpObject
from streamsvm.io.parts import Access, Part, find_parts, identified, open_part, use_access
from streamsvm.io.remote import Depth, Named, RemoteFile
from streamsvm.io.source import Source
from streamsvm.io.urls import redact_setting
from streamsvm.places import user_cache_directory
from streamsvm.stream import Reading, Stream
from streamsvm.training import train

CONTENT = random.Random(0).randbytes(300_000)
SECRET = "s3cr3t-w0rd"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No waiting between attempts, and nothing kept from one test to the next."""
    monkeypatch.setattr(retries, "FIRST_WAIT", 0.0)
    yield
    use_access(Access())
    CONNECTIONS.close()


@pytest.fixture
def endless(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for another attempt does so for longer than a test lasts."""
    monkeypatch.setattr(retries, "FIRST_WAIT", NEVER)
    monkeypatch.setattr(retries, "LONGEST_WAIT", NEVER)


@pytest.fixture(scope="module")
def shared() -> Iterator[RangeServer]:
    server = RangeServer().start()
    yield server
    CONNECTIONS.close()
    server.stop()


@pytest.fixture
def server(shared: RangeServer) -> RangeServer:
    """A server that does all right, and has nothing yet."""
    shared.objects, shared.redirects, shared.requests = {}, {}, []
    shared.faults, shared.head_faults = [], []
    shared.latency, shared.rate, shared.most_open, shared.open_now = 0.0, 0.0, 0, 0
    shared.ranges = shared.sized = shared.etags = True
    shared.password = None
    return shared


def whole(url: str) -> bytes:
    return read_all(find_parts([url])[0])


def read_all(part: Part) -> bytes:
    with closing(open_part(part)) as file:
        content: bytes = file.read()
        return content


def wrong(action: Callable[[], Any], kind: type[StreamSvmError] = SourceError) -> str:
    with pytest.raises(kind) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def fetchers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("streamsvm-fetch")]


# The same bytes.

FAULTS = st.builds(
    Fault,
    st.sampled_from(["drop", "short", "status"]),
    st.integers(0, 70_000),
    st.sampled_from([500, 502, 503, 504, 429, 408]),
)
READS = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 300_100)), st.integers(0, 90_000)), max_size=6)


@given(st.lists(FAULTS, max_size=5), READS, st.sampled_from([4096, 50_000, 1 << 18, 1 << 20]), st.integers(1, 8))
@examples(80)
def test_bytes_are_those_of_the_object(shared, faults, reads, size, threads):
    """Whatever goes wrong, wherever somebody reads, and in whatever ranges."""
    retries.FIRST_WAIT = 0.0
    url = shared.put("any", CONTENT)
    (part,) = find_parts([url])
    shared.faults = list(faults)
    depth = Depth(size * threads, size, threads)
    file = RemoteFile(HttpObject(url, part.size, part.stamp), part.size, Named(url, url, 5), depth)
    with closing(file):
        at = 0
        for place, count in reads:
            if place is not None:
                at = file.seek(place)
            assert file.tell() == at
            assert file.read(count) == CONTENT[at : at + count]
            at = file.tell()
        file.seek(0)
        assert file.read() == CONTENT
        assert file.read(10) == b""
    shared.faults = []
    assert fetchers() == []


@given(st.lists(st.tuples(st.integers(0, 299_000), st.integers(1, 40_000)), min_size=1, max_size=12), st.integers(0, 5))
@examples(40)
def test_a_plan_changes_nothing_but_the_requests(shared, spans, seed):
    """Also if what is read is not what was planned."""
    url = shared.put("any", CONTENT)
    planned = [(start, min(start + size, len(CONTENT))) for start, size in spans]
    order = random.Random(seed)
    with closing(
        RemoteFile(HttpObject(url, len(CONTENT), None), len(CONTENT), Named(url, url, 5), Depth(99_999, 9999, 3))
    ) as file:
        file.plan(planned[: len(planned) // 2])
        file.plan(planned[len(planned) // 2 :])
        for start, stop in order.sample(planned, len(planned)) + [(5, 500)]:
            file.seek(start)
            assert file.read(stop - start) == CONTENT[start:stop]


def test_readinto_of_a_stream_gives_what_is_here(server):
    server.rate = 1_000_000.0
    server.sized = server.ranges = False
    (part,) = find_parts([server.put("slow", CONTENT)])
    buffer = bytearray(len(CONTENT))
    with closing(open_part(part)) as file:
        first = file.readinto(buffer)
        assert 0 < first < len(CONTENT)
        assert bytes(buffer[:first]) == CONTENT[:first]


def test_objects_as_streams(server):
    """No ranges, or no size: read from one byte to the next, and from the first again if it breaks off."""
    url = server.put("x", CONTENT)
    server.ranges = False
    server.faults = [Fault("status"), Fault("drop", 100_000), Fault("drop", 5)]
    assert whole(url) == CONTENT
    server.sized = False
    for etags in (True, False):
        server.etags = etags
        (part,) = find_parts([url])
        assert part.size is None and (part.stamp is not None) == etags
        assert read_all(part) == CONTENT
        server.faults = [Fault("drop", 280_000)]
        if etags:
            assert read_all(part) == CONTENT
        else:
            assert "the server tells neither size nor ETag" in wrong(lambda part=part: read_all(part))


@pytest.mark.parametrize("ranges", [True, False])
def test_going_on_in_the_middle(server, ranges):
    """As a run that was killed does."""
    server.ranges = ranges
    text = "".join(f"1 {i}:1\n" for i in range(1, 20_000)).encode()
    source = Source([server.put("x.svm", text)])

    class Heap:
        def take(self, size: int) -> bytearray:
            return bytearray(size + 65)

        def give_back(self, buffer: bytearray) -> None:
            pass

    first = next(source.blocks(50_000, Heap(), lambda: False))
    rest = [bytes(b.buffer[: b.size]) for b in source.blocks(50_000, Heap(), lambda: False, first.after)]
    assert bytes(first.buffer[: first.size]) + b"".join(rest) == text


def test_redirects_users_and_headers(server):
    """A place that is moved; who asks is told to the server that was named, and to no other."""
    url = server.put("real", CONTENT)
    other = RangeServer().start()
    try:
        other.redirects["/moved"] = url
        other.redirects["/round"] = other.url("round")
        place = other.url("moved")
        use_access(Access({"http": {"headers": {"X-Token": SECRET}}}))
        assert whole(place.replace("//", "//user:pass@")) == CONTENT
        assert other.requests[0].headers["X-Token"] == SECRET
        assert other.requests[0].headers["Authorization"] == "Basic dXNlcjpwYXNz"
        assert not any("X-Token" in one.headers or "Authorization" in one.headers for one in server.requests)
        use_access(Access({}, retries=0))
        assert "too many redirects" in wrong(lambda: whole(other.url("round")))
    finally:
        CONNECTIONS.close()
        other.stop()


def test_servers_that_refuse_head(server):
    server.head_faults = [Fault("status", status=405)]
    url = server.put("x", CONTENT)
    assert find_parts([url])[0].size == len(CONTENT)
    assert whole(server.put("empty", b"")) == b""


# Giving up.


def test_giving_up_says_where_and_why(server):
    server.faults = [Fault("drop", 12_345), *[Fault("status")] * 100]
    url = server.put("x", CONTENT).replace("//", "//user:s3cr3t@") + "?t0ken=s3cr3t"
    message = wrong(lambda: whole(url))
    shown = server.url("x")
    assert message == (
        f"{shown}: cannot read on at byte 12,345: 6 attempts failed, the last with: HTTP 503 Service Unavailable; "
        "try again later, or raise data.retries"
    )
    server.requests.clear()
    server.faults = [Fault("status")] * 100
    use_access(Access(retries=2))
    assert "3 attempts failed" in wrong(lambda: whole(url))
    assert len(server.gets()) == 3
    server.head_faults = [Fault("status")] * 100
    assert "cannot look it up: 3 attempts failed" in wrong(lambda: whole(url))


def test_attempts_are_counted_from_the_last_byte_on(server):
    """A bad network is no reason to give up as long as something comes."""
    server.faults = [Fault("drop", 3000), Fault("status"), Fault("status")] * 20
    use_access(Access(retries=2))
    assert whole(server.put("x", CONTENT[:50_000])) == CONTENT[:50_000]
    assert len(server.gets()) > 40


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_is_hopeless_is_not_tried_again(server, status):
    (part,) = find_parts([server.put("x", CONTENT)])
    server.faults = [Fault("status", status=status)] * 5
    assert f"HTTP {status}" in wrong(lambda: read_all(part))
    assert len(server.gets()) == 1
    assert "no such file" in wrong(lambda: find_parts([server.url("none")]))
    assert "patterns work in buckets, not on web servers" in wrong(lambda: find_parts([server.url("none-*.svm")]))


def test_waits_grow_and_end(monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(retries, "FIRST_WAIT", 0.2)
    patience = retries.Patience(12, "http://h/x", "http://h/x")
    for _ in range(12):
        patience.failed(TimeoutError("late"), "cannot", waits.append)
    with pytest.raises(SourceError, match="13 attempts failed, the last with: late"):
        patience.failed(TimeoutError("late"), "cannot", waits.append)
    assert all(0.5 * 0.2 * 2**k <= wait <= 0.2 * 2**k for k, wait in enumerate(waits[:6]))
    assert max(waits) <= retries.LONGEST_WAIT


def test_a_server_that_falls_silent(server, monkeypatch):
    monkeypatch.setattr(http_ranges, "TIMEOUT", 0.3)
    monkeypatch.setattr(http_ranges, "TIMEVAL", http_ranges.struct.pack("@ll", 0, 300_000))
    (part,) = find_parts([server.put("x", CONTENT)])
    server.faults = [Fault("stall", 70_000), Fault("stall", 70_000)]
    with closing(open_part(part)) as file:
        assert file.read() == CONTENT


# One object all the time.


def test_an_object_that_changes_is_no_mixture(server):
    url = server.put("x", CONTENT)
    (part,) = find_parts([url])
    other = bytes(reversed(CONTENT))
    for etags, now in ((True, other), (False, CONTENT + b"x"), (False, CONTENT[:-1]), (True, CONTENT[:1000])):
        server.etags = etags
        server.put("x", CONTENT)
        (part,) = find_parts([url])
        file = RemoteFile(
            HttpObject(url, part.size, part.stamp), part.size, Named(url, url, 5), Depth(100_000, 50_000, 2)
        )
        with closing(file):
            assert file.read(10) == CONTENT[:10]
            server.put("x", now)
            assert f"{url}: changed while it was read: " in wrong(file.read)
    server.put("x", CONTENT)
    (part,) = find_parts([url])
    server.put("x", other)
    server.ranges = False
    assert "changed while it was read" in wrong(lambda: read_all(part))


def test_what_servers_do_not_tell_is_asked_at_the_end(bucket):
    bucket.pipe_file("/a", b"1 1:1\n" * 50_000)
    (part,) = find_parts(["memory://a"])
    with closing(open_part(part)) as file:
        file.read(100)
        bucket.pipe_file("/a", b"2 2:2\n" * 50_000)
        assert "memory://a: changed while it was read" in wrong(file.read)
    bucket.rm("/a")
    assert "memory://a" in wrong(lambda: read_all(part))


# What it costs.


def test_small_objects_cost_one_request(server):
    (part,) = find_parts([server.put("x", CONTENT)])
    server.requests.clear()
    with closing(open_part(part)) as file:
        assert file.read(3) == CONTENT[:3]
        assert file.read() == CONTENT[3:]
    assert len(server.requests) == 1
    (part,) = find_parts([server.put("big", CONTENT * 30)])
    server.requests.clear()
    with closing(open_part(part)) as file:
        file.read(100)
        assert stays(lambda: len(server.requests) == 1)
    assert [one.stop - one.start for one in server.requests] == [remote.LOOK]


def test_memory_and_threads_are_bounded(server):
    """Nothing is fetched beyond what may lie here unread, however long the reader takes."""

    def fetched() -> int:
        return sum(one.stop - one.start for one in server.requests)

    server.latency = 0.05
    content = CONTENT * 40
    (part,) = find_parts([server.put("big", content)])
    for memory in (32 << 20, 64 << 20):
        use_access(Access(memory=memory))
        depth = Depth.of_memory(memory)
        server.requests.clear()
        with closing(open_part(part)) as file:
            got = file.read(1 << 20)
            most = len(got) + depth.ahead + 2 * depth.range
            wait_for(lambda least=most - 4 * depth.range: fetched() >= least)
            assert stays(lambda most=most: fetched() <= most)
            assert len(fetchers()) <= remote.MOST_THREADS
            assert file.read() == content[1 << 20 :]
    assert 4 < server.most_open <= remote.MOST_THREADS


@pytest.mark.parametrize("memory", [10**6, 32 * 10**6, 256 * 10**6, 10**9, 10**12])
def test_depth_by_memory(memory):
    depth = Depth.of_memory(memory)
    assert depth.ahead <= max(memory // 8, remote.LEAST_AHEAD)
    assert depth.range * 4 <= depth.ahead and remote.SMALLEST_RANGE <= depth.range <= remote.LARGEST_RANGE


@pytest.mark.parametrize("trouble", ["latency", "stall", "waiting", "rate"])
def test_closing_is_prompt(server, endless, trouble):
    (part,) = find_parts([server.put("big", CONTENT * 30)])
    if trouble == "latency":
        server.latency = NEVER
    elif trouble == "rate":
        server.rate = 1000.0
    else:
        server.faults = [Fault("stall" if trouble == "stall" else "status", 1000)] * 50
    file = open_part(part)
    reader = threading.Thread(target=lambda: file.read(1 << 21))
    reader.start()
    wait_for(lambda: server.requests and fetchers())
    assert stays(reader.is_alive)
    begun = time.monotonic()
    file.close()
    reader.join()
    assert time.monotonic() - begun < SOON
    assert fetchers() == []


def test_leaving_a_stream_is_prompt(server, endless, threads):
    """Also while the reader waits for a server that does not answer."""
    text = "".join(f"1 {i}:1\n" for i in range(1, 200_000)).encode()
    url = server.put("x.svm", text)
    stream = Stream(Source([url]), reading=Reading(memory=32 << 20, threads=2, block_size=1 << 16))
    rows = stream.in_order()
    server.faults = [Fault("drop", 400_000), *[Fault("status")] * 50]
    next(rows)
    wait_for(lambda: len(server.faults) <= 50)
    assert stays(lambda: len(server.faults) == 50)
    begun = time.monotonic()
    rows.close()
    assert time.monotonic() - begun < SOON
    assert threads() == []


def test_ctrl_c_while_a_server_is_silent(server, tmp_path):
    """At once, and without a traceback: while looking it up, and while reading."""
    script = "import sys; from streamsvm.cli import main; main()"
    url = server.put("x.svm", ("1 1:1\n-1 2:1\n" * 50_000).encode())
    server.faults = [Fault("drop", 200_000), *[Fault("status")] * 1000]
    command = [sys.executable, "-c", script, "train", url, "-o", "m.safetensors", "--set", "data.retries=100"]
    with heard():
        running = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE)
    wait_for(lambda: len(server.gets()) > 4)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=SOON)  # it would go on trying for half an hour
    assert running.returncode == 130 and b"interrupted" in err and b"Traceback" not in err
    assert os.listdir(tmp_path) == []


# Models.


def trained(url: str, target: Path, **given: Any) -> bytes:
    overrides = {"data.train": url, "output.model": str(target), "run.seed": 3}
    train(
        load_settings(overrides=overrides | {key.replace("__", "."): value for key, value in given.items()}, environ={})
    )
    model = load_model(str(target))
    return bytes(model.weights.tobytes()) + repr(model.bias).encode()


def table(rows: int) -> pa.Table:
    generator = np.random.default_rng(1)
    columns: dict[str, Any] = {f"c{k}": generator.normal(size=rows).astype(np.float32) for k in range(12)}
    columns["word"] = np.array(["a", "b", "cc", "d"])[generator.integers(0, 4, rows)]
    columns["label"] = (columns["c0"] + generator.normal(size=rows) > 0).astype(np.int8)
    return pa.table(columns)


FAULTY = [Fault("status"), Fault("drop", 10_000), Fault("short", 5000), Fault("drop", 0)]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same rows in several formats."""
    place = tmp_path_factory.mktemp("stored")
    text = ("\n".join(lines(4000)) + "\n").encode()
    (place / "a.svm").write_bytes(text)
    (place / "a.svm.gz").write_bytes(gzip.compress(text))
    pq.write_table(table(20_000), place / "a.parquet", row_group_size=3000)
    with pa.ipc.new_file(place / "a.arrow", table(10).schema) as out:
        out.write_table(table(9000), max_chunksize=2000)
    return {path.name: path for path in place.iterdir()}


@pytest.mark.parametrize("name", ["a.svm", "a.svm.gz", "a.parquet", "a.arrow"])
@pytest.mark.parametrize("threads", [1, 4])
def test_a_model_from_a_web_server_is_the_model_from_disk(server, stored, tmp_path, name, threads):
    local = trained(str(stored[name]), tmp_path / "local", run__threads=threads)
    url = server.put(name, stored[name].read_bytes())
    server.faults = list(FAULTY)
    server.head_faults = list(FAULTY)
    assert trained(url, tmp_path / "http", run__threads=threads, run__memory="128MB") == local
    assert server.faults == []


def test_a_server_without_ranges_is_enough_for_text(server, stored, tmp_path):
    server.ranges = False
    url = server.put("a.svm", stored["a.svm"].read_bytes())
    assert trained(url, tmp_path / "http") == trained(str(stored["a.svm"]), tmp_path / "local")
    url = server.put("a.parquet", stored["a.parquet"].read_bytes())
    assert "the server cannot send parts of it; save it as a file first" in wrong(
        lambda: trained(url, tmp_path / "http")
    )


def test_only_wanted_columns_are_fetched(server, stored, tmp_path):
    """Of the first row group all, to see what they are; of the others to the byte what is learned from."""
    content = stored["a.parquet"].read_bytes()
    url = server.put("a.parquet", content)
    trained(url, tmp_path / "m", features__numeric=["c3", "c7"], features__ignore=["c*", "word"], run__threads=1)
    metadata = pq.read_metadata(stored["a.parquet"])
    second = metadata.row_group(1).column(0)
    begin = min(second.data_page_offset, second.dictionary_page_offset or second.data_page_offset)
    asked = [one.stop - one.start for one in server.gets() if one.start >= begin and one.stop < len(content)]
    groups = [metadata.row_group(number) for number in range(1, metadata.num_row_groups)]
    assert sum(asked) == sum(group.column(k).total_compressed_size for group in groups for k in (3, 7, 13))
    assert len(server.gets()) <= 4 + 3 * metadata.num_row_groups


def test_row_groups_are_fetched_together(server, stored, tmp_path):
    """No answer comes until as many are asked for at a time as there are threads for."""
    (part,) = find_parts([server.put("a.parquet", stored["a.parquet"].read_bytes())])
    from streamsvm.io.parquet import open_parquet, parquet_groups

    with open_parquet(part) as file:
        columns = file.schema_arrow.names
        groups = parquet_groups(part, file, columns)
        server.hold(5)
        file.plan(groups, columns)
        rows = sum(batch.num_rows for batch in file.iter_batches())
        assert rows == 20_000 and len(groups) == 7


def test_what_parts_are_is_sampled_in_few_steps(server):
    """A server without ETags: what tells one object from another is made of samples, fetched at a time."""
    server.etags = False
    content = CONTENT * 10
    (part,) = find_parts([server.put("x", content)])
    assert part.stamp is None
    server.hold(5)
    found = identified(part)
    assert found[2] == "content" and len(server.gets()) == 66
    server.put("x", content[:1_000_000] + b"x" + content[1_000_001:])
    assert identified(part)[3] == found[3]
    server.put("x", b"x" + content[1:])
    assert identified(part)[3] != found[3]


# Secrets and options.


def test_options_are_expanded_when_a_file_system_is_opened(server, monkeypatch, tmp_path):
    monkeypatch.setenv("REMOTE_TOKEN", SECRET)
    text = "storage_options: {http: {headers: {X-Token: '${REMOTE_TOKEN}'}}, s3: {key: plain-secret, anon: false}}\n"
    (tmp_path / "c.yaml").write_text(text)
    found = load_settings([str(tmp_path / "c.yaml")], environ={})
    for shown in (to_yaml(found), to_yaml(found, defaults=False), "\n".join(summary_lines(found)), repr(found)):
        assert SECRET not in shown and "plain-secret" not in shown
    assert "${REMOTE_TOKEN}" in to_yaml(found) and "(hidden)" in to_yaml(found) and "anon: false" in to_yaml(found)
    assert "storage_options" not in to_json_dict(found)
    use_access(Access(found.storage_options or {}, expand))
    whole(server.put("x", CONTENT))
    assert {one.headers["X-Token"] for one in server.requests} == {SECRET}
    monkeypatch.delenv("REMOTE_TOKEN")
    assert "environment variable REMOTE_TOKEN is not set" in wrong(lambda: whole(server.url("x")), ConfigError)


@pytest.mark.parametrize(
    "text, message",
    {
        "storage_options: s3cr3t": "storage_options: must be options by protocol, such as {s3: {anon: true}} (got",
        "storage_options: {s4: {key: s3cr3t}}": "must be one of memory, s3, ",
        "storage_options: {s3: s3cr3t}": "s3 must have options such as {anon: true}",
        "storage_options: {s3: {a: ['(hidden)']}}": "s3 has options that were hidden when they were printed",
    }.items(),
)
def test_wrong_options_are_not_repeated(tmp_path, text, message):
    (tmp_path / "c.yaml").write_text(text)
    told = wrong(lambda: load_settings([str(tmp_path / "c.yaml")], environ={}), ConfigError)
    assert message in told and "s3cr3t" not in told
    key, _, value = text.partition(": ")
    told = wrong(lambda: load_settings(sets=[f"{key}={value}"], environ={}), ConfigError)
    assert "s3cr3t" not in told


@pytest.mark.parametrize("word", ["storage_options.s3.key=s3cr3t", "--set=storage_options.s3.key=s3cr3t"])
def test_options_are_not_shown_in_commands(word):
    assert redact_setting(word).endswith("storage_options.s3.key=...")


def test_no_secret_leaves_the_process(server, run, stored, tmp_path, monkeypatch):
    """Neither in what is printed, nor in models, checkpoints and caches, nor when the server fails."""
    url = server.put("a.svm", stored["a.svm"].read_bytes())
    options = [f"--set=storage_options.http.headers.X-Token={SECRET}"]
    arguments = ["train", url, "-o", "m.safetensors", "--checkpoint", "runs", "--passes", "2", "--cache", "c.arrow"]
    code, out, err = run(*arguments, *options)
    assert code == 0, err
    assert server.gets()[0].headers["X-Token"] == SECRET
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 3
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    code, more, worse = run(*arguments, "--resume", "--set", "data.retries=9", "--set", "storage_options.s3.anon=true")
    assert code == 0, worse  # options and retries may differ
    code, printed, _ = run(*arguments, *options, "--print-config")
    server.password = "nobody"
    monkeypatch.setattr(http_ranges.http.client, "responses", {401: f"no, {SECRET} is wrong"})
    code, told, failed = run(*arguments[:4], *options)
    assert code == 3 and "401 no, ... is wrong" in failed
    assert SECRET not in "".join((out, err, more, worse, printed, told, failed))


def test_missing_packages_are_named(server, monkeypatch):
    for module, url, extra in (
        ("s3fs", "s3://b/x", "s3"),
        ("gcsfs", "gs://b/x", "gcs"),
        ("adlfs", "az://b/x", "azure"),
        ("aiohttp", "http://127.0.0.1:1/x", "http"),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            for known in (extra, "http", "https", "gs", "az", "s3"):
                patch.delitem(sys.modules["fsspec.registry"]._registry, known, raising=False)
            patch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
            use_access(Access({"http": {"client_kwargs": {"trust_env": True}}}))
            assert f"pip install 'streamsvm[{extra}]'" in wrong(lambda url=url: find_parts([url]))
            if extra == "http":  # which is needed for more than plain reading
                use_access(Access())
                assert whole(server.put("x", CONTENT)) == CONTENT


@pytest.mark.filterwarnings("ignore")
def test_options_that_only_fsspec_understands(server, stored, tmp_path):
    """The same bytes, by fsspec's own client."""
    pytest.importorskip("aiohttp")
    options = {"http": {"client_kwargs": {"trust_env": True, "headers": {"X-Token": SECRET}}}}
    url = server.put("a.svm", stored["a.svm"].read_bytes())
    local = trained(str(stored["a.svm"]), tmp_path / "local")
    server.faults = [Fault("status"), Fault("drop", 1000)]
    assert trained(url, tmp_path / "http", storage_options=options) == local
    assert server.gets()[-1].headers["X-Token"] == SECRET
    assert "no such file" in wrong(lambda: find_parts([server.url("none")]))
    server.faults = [Fault("status", status=403)]
    assert "403" in wrong(lambda: whole(url))


@pytest.mark.parametrize("url", ["reference://x", "simplecache::http://h/x", "http::memory://x", "github://a:b@/x"])
def test_other_protocols_are_refused(url):
    assert "not supported" in (told := wrong(lambda: find_parts([url]))) or "chained urls" in told


# Urls everywhere.


def test_urls_everywhere(server, run, stored, bucket):
    """Settings, data, model, checkpoints, cache and output at urls."""
    server.put("c.yaml", b"solver: {name: sgd, passes: 2}\ncheckpoint: {dir: 'memory://runs/a', every_rows: 1000}\n")
    url = server.put("a.svm", stored["a.svm"].read_bytes())
    code, out, err = run("train", server.url("c.yaml?t0ken=1"), url, "-o", "memory://models/m.safetensors")
    assert code == 0, err
    assert "name: sgd" in err and "t0ken" not in err + out
    assert len(bucket.ls("/runs/a", detail=False)) == 2
    server.put("m.safetensors", bucket.cat_file("/models/m.safetensors"))
    server.faults = list(FAULTY)
    code, out, err = run("predict", server.url("m.safetensors"), url, "-o", "memory://out/labels.txt")
    assert code == 0, err
    assert bucket.cat_file("/out/labels.txt").count(b"\n") == 4000
    code, out, err = run("convert", url, "memory://out/a.parquet")
    assert code == 0, err
    assert pq.read_table(bucket.open("/out/a.parquet")).num_rows == 4000
    code, out, err = run("inspect", "memory://models/m.safetensors")
    assert code == 0, err
    code, out, err = run("config", "validate", server.url("c.yaml"))
    assert code == 0, err
    for said in ("sending the cache to memory://c/rows.arrow", "the cache was fetched from memory://c/rows.arrow"):
        code, out, err = run("train", url, "--passes", "2", "--cache", "memory://c/rows.arrow", "-o", "k.safetensors")
        assert code == 0 and said in err, err
    assert pa.ipc.open_file(bucket.open("/c/rows.arrow")).num_record_batches
    other = server.put("b.svm", stored["a.svm"].read_bytes()[:-1])
    code, out, err = run("train", other, "--passes", "2", "--cache", "memory://c/rows.arrow")
    assert code == 5 and "memory://c/rows.arrow" in err and err.count("streamsvm: ") == 1
    assert not list((user_cache_directory() / "passes").glob(f"{os.getpid()}-*"))
    code, out, err = run("train", server.url("none.yaml"))
    assert code == 2 and "none.yaml: no such file" in err


def test_the_next_objects_are_on_their_way_while_one_is_read(server):
    urls = [server.put(f"p{number}.svm", b"1 1:1\n" * 1000) for number in range(6)]
    blocks = Source(urls).blocks(4096, Room(), lambda: False)
    first = next(blocks)
    wait_for(lambda: server.gets("p3.svm"))
    assert stays(lambda: not server.gets("p4.svm"))
    assert first.size + sum(block.size for block in blocks) == 36_000
    assert all(len(server.gets(f"p{number}.svm")) == 1 for number in range(6))


def test_parts_that_were_begun_are_closed(server, threads):
    urls = [server.put(f"q{number}.svm", b"1 1:1\n" * 1000) for number in range(5)]
    batches = iter(Stream(Source(urls), reading=Reading(threads=1, block_size=4096)))
    next(batches)
    batches.close()
    assert threads() == []


class Proxy(ThreadingHTTPServer):
    """Passes GET and HEAD on, and notes for whom."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []
        super().__init__(("127.0.0.1", 0), ProxyHandler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class ProxyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:  # noqa: N802
        self.server.asked.append((self.path, self.headers.get("Proxy-Authorization")))  # type: ignore[attr-defined]
        parts = urlsplit(self.path)
        with closing(http.client.HTTPConnection(parts.hostname or "", parts.port)) as onwards:
            headers = {name: value for name, value in self.headers.items() if not name.startswith("Proxy")}
            onwards.request(self.command, parts.path, headers=headers)
            answer = onwards.getresponse()
            body = answer.read()
            self.send_response(answer.status)
            for name in ("Content-Range", "ETag", "Last-Modified", "Accept-Ranges"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.send_header("Content-Length", answer.headers["Content-Length"])
            self.end_headers()
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815


def test_the_proxy_of_the_environment(server, monkeypatch):
    proxy = Proxy()
    monkeypatch.setenv("http_proxy", f"http://me:{SECRET}@127.0.0.1:{proxy.server_port}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    url = server.put("p.bin", CONTENT)
    with closing(open_part(find_parts([url])[0])) as raw:
        assert raw.read() == CONTENT
    assert {path for path, _ in proxy.asked} == {url}
    assert all(sent and sent.startswith("Basic ") for _, sent in proxy.asked)
    assert "Proxy-Authorization" not in str(server.gets("p.bin"))
    CONNECTIONS.close()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    before = len(proxy.asked)
    with closing(open_part(find_parts([url])[0])) as raw:
        assert raw.read() == CONTENT
    assert len(proxy.asked) == before
    proxy.shutdown()
    proxy.server_close()
