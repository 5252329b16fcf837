"""Writing: a file has its name when it is whole, and not a moment before."""

import os
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
from fsspec.implementations.memory import MemoryFile

from streamsvm.errors import SourceError
from streamsvm.io import files, remote_parts, retries
from streamsvm.io.files import local_path, read_whole, written_atomically


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "new" / "folder" / "file"
    with written_atomically(str(path)) as out:
        out.write(b"half")
        out.flush()
        assert not path.exists()
        out.write(b", whole")
    assert path.read_bytes() == b"half, whole" == read_whole(str(path)) == read_whole(f"file://{path}")
    assert os.listdir(path.parent) == ["file"]


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, OSError, GeneratorExit])
def test_an_interrupted_write_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises((error, SourceError)), written_atomically(str(path)) as out:
        out.write(b"new")
        raise error
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


def test_a_new_file_has_the_usual_mode(tmp_path):
    old = os.umask(0o027)
    try:
        with written_atomically(str(tmp_path / "file")) as out:
            out.write(b"x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder" / "sub").mkdir(parents=True)
    for name in ("file/below", "folder"):
        with (
            pytest.raises(SourceError, match=f"{name}: cannot write: "),
            written_atomically(f"{tmp_path}/{name}") as out,
        ):
            out.write(b"x")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"] and os.listdir(tmp_path / "folder") == ["sub"]


def test_a_full_disk(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with (
        pytest.raises(SourceError, match="file: cannot write: No space left"),
        written_atomically(f"{tmp_path}/file") as out,
    ):
        out.write(b"x")
    assert os.listdir(tmp_path) == []


def test_what_is_not_a_file_is_written_to_but_not_replaced(tmp_path):
    """`-o /dev/null`, as root, must not turn /dev/null into a file."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()), daemon=True)
    reader.start()
    with written_atomically(str(path)) as out:
        out.write(b"model")
    assert stat.S_ISFIFO(path.stat().st_mode)
    reader.join()
    assert read == [b"model"]


def test_two_writers_do_not_meet(tmp_path):
    path = tmp_path / "file"
    with written_atomically(str(path)) as first, written_atomically(str(path)) as second:
        first.write(b"1" * 10)
        second.write(b"2" * 5)
    assert path.read_bytes() == b"1" * 10 and os.listdir(tmp_path) == ["file"]


KILLED = """
import os, signal, sys
from streamsvm.io.files import written_atomically
with written_atomically(sys.argv[1]) as out:
    out.write(b"x" * 100000)
    out.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)]).returncode == -9
    assert path.read_bytes() == b"old"


def test_buckets(bucket):
    with written_atomically("memory://out/model") as out:
        out.write(b"x" * 3_000_000)
        assert not bucket.exists("/out/model")
    assert read_whole("memory://out/model") == b"x" * 3_000_000
    with pytest.raises(ZeroDivisionError), written_atomically("memory://out/other") as out:
        out.write(b"x")
        raise ZeroDivisionError
    assert not bucket.exists("/out/other")


def test_threads_write_to_a_bucket_at_a_time(bucket, monkeypatch):
    """They share a file system, as fsspec has it for those of buckets, and its transaction is one for all."""
    commit = MemoryFile.commit
    monkeypatch.setattr(MemoryFile, "commit", lambda self: (time.sleep(0.001), commit(self)))
    monkeypatch.setattr(files, "open_filesystem", lambda url: (bucket, url.removeprefix("memory:/")))

    def write(number):
        for again in range(20):
            with written_atomically(f"memory://many/{number}-{again}") as out:
                out.write(b"%d %d" % (number, again))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    found = {
        (number, again): read_whole(f"memory://many/{number}-{again}") for number in range(8) for again in range(20)
    }
    assert all(content == b"%d %d" % name for name, content in found.items())


def test_what_cannot_be_read(tmp_path, bucket):
    with pytest.raises(SourceError, match="none: no such file"):
        read_whole(str(tmp_path / "none"))
    with pytest.raises(SourceError, match="cannot read: Is a directory"):
        read_whole(str(tmp_path))
    with pytest.raises(SourceError, match="memory://none: no such file"):
        read_whole("memory://none")
    with pytest.raises(SourceError, match="gopher:// is not supported"):
        read_whole("gopher://none")


@pytest.mark.parametrize("error", [OSError, RuntimeError])
def test_no_secret_in_any_message(monkeypatch, error):
    class Failing:
        transaction = nullcontext()

        def invalidate_cache(self):
            pass

        def info(self, path):
            return {"size": 5}

        def open(self, path, mode):
            raise error("403 for http://user:s3cret@h/x?s3cret=1\nsorry")

    for module in (files, remote_parts):
        monkeypatch.setattr(module, "open_filesystem", lambda url: (Failing(), url))
    monkeypatch.setattr(retries, "FIRST_WAIT", 0.0)
    url = "ftp://user:s3cret@h/x?s3cret=1"
    with pytest.raises(SourceError) as read:
        read_whole(url)
    with pytest.raises(SourceError) as written, written_atomically(url) as out:
        out.write(b"x")
    assert str(read.value).startswith(
        "ftp://h/x: cannot read on at byte 0: 6 attempts failed, the last with: 403 for http"
    )
    assert str(written.value) == "ftp://h/x: cannot write: 403 for http://h/x sorry"
    assert "s3cret" not in str(read.value)


def test_local_paths():
    assert str(local_path("file:///a/b")) == "/a/b" and str(local_path("a/b")) == "a/b"
