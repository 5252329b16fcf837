"""Bytes from anywhere, cut into blocks of whole lines: nothing lost, nothing doubled, everything named in errors."""

import bz2
import gzip
import io
import lzma
import os
import re
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from streamsvm.errors import ConfigError, DataError, SourceError
from streamsvm.io import parts, retries
from streamsvm.io import source as rooms
from streamsvm.io.compression import Limits
from streamsvm.io.parts import find_parts
from streamsvm.io.source import Source

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd.compress}


class Heap:
    """Buffers without a bound, which knows who has not given one back."""

    def __init__(self):
        self.out = {}

    def take(self, size):
        buffer = bytearray(size + 1)
        self.out[id(buffer)] = buffer
        return buffer

    def give_back(self, buffer):
        del self.out[id(buffer)]


def blocks_of(source, block_size=64, stopped=lambda: False):
    """(url, offset, text) of every block; buffers that did not become a block must have been given back."""
    heap = Heap()
    found = []
    with closing(source.blocks(block_size, heap, stopped)) as blocks:
        for buffer, size, origin, *_ in blocks:
            assert size <= len(buffer) and buffer[size - 1 : size] == b"\n" and origin.line == 0
            found.append((origin.url, origin.offset, bytes(buffer[:size])))
            heap.give_back(buffer)
    assert heap.out == {}
    return found


def text_of(source, block_size=64):
    found = blocks_of(source, block_size)
    end = (None, 0)
    for url, offset, text in found:
        assert offset == 0 or end == (url, offset), "blocks of a file follow one another"
        end = (url, offset + len(text))
    return b"".join(text for _, _, text in found)


def names(source):
    return [os.path.basename(part.url) for part in source.parts]


def wrong(kind, *urls):
    """The one line of the error that reading must raise."""
    with pytest.raises(kind) as caught:
        text_of(Source(list(urls)))
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Cutting.


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"a", b"ab\ncdef\n\n\ng\r\nhijklmnopq\nr", b"x" * 100, b"\n" * 20, b"ab\n" * 9]
)
@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_every_block_size(put, text, ending):
    path = put("text" + ending, COMPRESS.get(ending, bytes)(text))
    whole = text + b"\n" * (not text.endswith(b"\n") and text != b"")
    for block_size in range(1, len(text) + 12):
        assert text_of(Source([path]), block_size) == whole, block_size


@examples(60)
@given(st.lists(st.binary(max_size=40), max_size=5), st.integers(1, 60))
def test_any_bytes(tmp_path_factory, contents, block_size):
    """Files one after the other: a newline is added where the last line of one has none."""
    folder = tmp_path_factory.mktemp("any")
    contents = [b"." + content for content in contents]  # not the first bytes of a compressed file
    for i, content in enumerate(contents):
        (folder / f"{i}").write_bytes(content)
    whole = b"".join(content + b"\n" * (not content.endswith(b"\n")) for content in contents)
    paths = [str(folder / f"{i}") for i in range(len(contents))]
    assert text_of(Source(paths), block_size) == whole


def test_blocks_never_span_files(put):
    paths = [put("a", b"1\n2"), put("b", b""), put("c", b"3\n"), put("d", b"4")]
    found = blocks_of(Source(paths), 1000)
    assert found == [(paths[0], 0, b"1\n2\n"), (paths[2], 0, b"3\n"), (paths[3], 0, b"4\n")]


def test_each_pass_starts_over(put):
    source = Source([put("a", b"1\n2\n3\n")])
    assert text_of(source) == text_of(source) == b"1\n2\n3\n"
    with closing(source.blocks(2, Heap(), lambda: False)) as blocks:
        next(blocks)
    assert text_of(source) == b"1\n2\n3\n"
    assert source.repeatable and source.size == 6


@pytest.mark.parametrize("block_size", [1, 3, 8, 20, 21, 22, 64, 1000])
def test_max_line_is_exact(put, block_size):
    """What is refused does not depend on the size of blocks, and the message says where the line starts."""
    source = Source([put("fits", b"short\n" + b"x" * 20 + b"\n" + b"y" * 20 + b"\nz\n" * 3 + b"v" * 20)], max_line=20)
    assert len(text_of(source, block_size)) == 77
    for end in (b"", b"\n", b"\nmore\n" * 9):
        source = Source([put("long", b"short\n" + b"x" * 21 + end)], max_line=20)
        with pytest.raises(DataError, match=r"long: byte 6: a line is longer than 20 bytes \(data.max_line\)"):
            text_of(source, block_size)


def test_an_endless_line_is_not_read_to_its_end(put):
    with pytest.raises(DataError, match="longer than 1000000 bytes"):
        text_of(Source([put("zeros.gz", gzip.compress(bytes(50_000_000)))], max_line=1_000_000), 1 << 16)


# Which files.


def test_the_stated_order(put):
    b, a = put("b", b"1\n"), put("a", b"2\n")
    assert text_of(Source([b, a, b])) == b"1\n2\n1\n"


def test_directories_and_globs_are_sorted(put, tmp_path):
    for name in ("d/part-10", "d/part-2", "d/part-1", "d/.hidden", "d/_SUCCESS", "d/sub/part-3", "d/other"):
        put(name, name.encode())
    assert names(Source([f"{tmp_path}/d"])) == ["other", "part-1", "part-10", "part-2", "part-3"]
    assert names(Source([f"{tmp_path}/d/"])) == ["other", "part-1", "part-10", "part-2", "part-3"]
    assert names(Source([f"{tmp_path}/d/part-*"])) == ["part-1", "part-10", "part-2"]
    assert names(Source([f"{tmp_path}/d/part-[12]"])) == ["part-1", "part-2"]
    assert names(Source([f"{tmp_path}/**/part-3"])) == ["part-3"]
    assert names(Source([f"{tmp_path}/d/part-?", f"{tmp_path}/d/other"])) == ["part-1", "part-2", "other"]
    assert names(Source([f"file://{tmp_path}/d/part-?"])) == ["part-1", "part-2"]


def test_a_name_with_glob_letters(put):
    path = put("a[1]*.svm", b"1\n")
    assert text_of(Source([path])) == b"1\n"


def test_missing(put, tmp_path):
    put("train.svm", b"1\n")
    (tmp_path / "empty" / "sub").mkdir(parents=True)
    put("empty/.hidden", b"1\n")
    assert wrong(SourceError, f"{tmp_path}/trian.svm").endswith(
        f"trian.svm: no such file or directory (did you mean {tmp_path}/train.svm?)"
    )
    assert wrong(SourceError, f"{tmp_path}/zzzzzzz").endswith("zzzzzzz: no such file or directory")
    assert wrong(SourceError, f"{tmp_path}/nowhere/x").endswith("x: no such file or directory")
    assert wrong(SourceError, f"{tmp_path}/*.csv").endswith("*.csv: no file matches")
    assert wrong(SourceError, f"{tmp_path}/empty").endswith("empty: the directory has no files")
    assert "no such file" in wrong(SourceError, "")
    assert "no such file" in wrong(SourceError, "a\0b")
    assert wrong(ConfigError, "-", "-") == "standard input (-) can be read only once"


def test_links_to_nowhere(tmp_path):
    """Data that is gone is not left out in silence."""
    (tmp_path / "part-1").symlink_to(tmp_path / "gone")
    for url in (f"{tmp_path}/part-*", f"{tmp_path}"):
        assert wrong(SourceError, url).endswith("part-1: cannot open: No such file or directory")


def test_a_file_that_vanishes(put):
    path = put("a", b"1\n")
    source = Source([path])
    os.unlink(path)
    with pytest.raises(SourceError, match="a: cannot open: No such file"):
        text_of(source)


def test_a_directory_that_cannot_be_listed(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(rooms.os, "scandir", refuse)
    monkeypatch.setattr(rooms.os, "listdir", refuse)
    assert wrong(SourceError, str(tmp_path)).endswith("cannot list: Permission denied")
    assert wrong(SourceError, f"{tmp_path}/x").endswith("x: no such file or directory")


def test_a_read_that_fails(put, monkeypatch):
    class Disk:
        def __init__(self, *args, **kwargs):
            self.reads = 0

        def fileno(self):
            return 0

        def read(self, size):
            return b"1 1:1\n"[:size]

        def readinto(self, view):
            raise OSError(5, "Input/output error")

        def close(self):
            closed.append(self)

    closed = []
    monkeypatch.setattr(parts, "open", Disk, raising=False)
    assert wrong(SourceError, put("a", b"")).endswith("a: cannot read: Input/output error")
    assert len(closed) == 1


# Compressed files.


@pytest.mark.parametrize("ending", COMPRESS)
def test_by_extension_and_by_magic(put, ending):
    text = b"".join(b"1 %d:1\n" % i for i in range(1000))
    for name in (f"a.svm{ending}", f"a{ending.upper()}", "no-extension", "a.svm"):
        assert text_of(Source([put(name, COMPRESS[ending](text))]), 500) == text


@pytest.mark.parametrize("ending", COMPRESS)
def test_a_name_that_lies(put, ending):
    codec = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}[ending]
    lie = f": does not hold {codec} data, although its name says so"
    assert wrong(SourceError, put(f"plain{ending}", b"1 1:1\n")).endswith(lie)
    assert wrong(SourceError, put(f"short{ending}", b"\x1f")).endswith(lie)
    for other in COMPRESS.keys() - {ending}:
        assert wrong(SourceError, put(f"other{ending}", COMPRESS[other](b"1 1:1\n"))).endswith(lie)
    assert wrong(SourceError, put(f"none{ending}", b"")).endswith(": is empty, although its name says so")


@pytest.mark.parametrize("ending", COMPRESS)
def test_truncated_at_every_byte(put, ending):
    """An error at any length, with or without a telling name; with nothing that tells, at least garbage comes out."""
    text = b"1 1:1\n2 2:2\n"
    data = COMPRESS[ending](text)
    for size in range(len(data)):
        with pytest.raises(SourceError, match="x"):
            text_of(Source([put(f"x{ending}", data[:size])]))
        if size >= 10:
            with pytest.raises(SourceError, match="truncated"):
                text_of(Source([put("x", data[:size])]))
    assert text_of(Source([put("x", data)])) == text


def test_limits_reach_the_decompressor(put):
    path = put("a.xz", lzma.compress(b"1\n", preset=9))
    with pytest.raises(SourceError, match="window above 1 MiB"):
        text_of(Source([path], limits=Limits(window=1 << 20)))


# Standard input and pipes.


@pytest.fixture
def stdin(monkeypatch):
    """Standard input is a pipe: the end to write to."""
    reader, writer = os.pipe()

    class Stdin:
        def fileno(self):
            return reader

    monkeypatch.setattr(sys, "stdin", Stdin())
    with open(writer, "wb", buffering=0) as end:
        yield end
    os.close(reader)


def test_standard_input(stdin):
    text = b"".join(b"1 %d:1\n" % i for i in range(500)) + b"no newline"
    threading.Thread(target=lambda: (stdin.write(text), stdin.close())).start()
    source = Source(["-"])
    assert not source.repeatable and source.size is None and source.fingerprint() is None
    assert text_of(source, 100) == text + b"\n"
    with pytest.raises(SourceError, match="standard input can be read only once"):
        text_of(source)


@pytest.mark.parametrize("ending", COMPRESS)
def test_compressed_standard_input(stdin, ending):
    text = b"".join(b"1 %d:1\n" % i for i in range(500))
    stdin.write(COMPRESS[ending](text))
    stdin.close()
    assert text_of(Source(["-"]), 100) == text


def test_lines_come_out_as_soon_as_they_are_whole(stdin):
    """Also a first line that is shorter than any magic number: someone may be waiting for its answer."""
    heap = Heap()
    with closing(Source(["-"]).blocks(1 << 16, heap, lambda: False)) as blocks:
        for written, read in [
            (b"1\n", b"1\n"),
            (b"2 1:1\n3 2", b"2 1:1\n"),
            (b":2\n", b"3 2:2\n"),
            (b"4\n5\n6", b"4\n5\n"),
            (b"7\n\n", b"67\n\n"),
        ]:
            stdin.write(written)
            buffer, size, *_ = next(blocks)
            assert bytes(buffer[:size]) == read
        threading.Timer(0.05, lambda: (stdin.write(b"8\n"), time.sleep(0.05), stdin.write(b"9"), stdin.close())).start()
        assert [bytes(buffer[:size]) for buffer, size, *_ in blocks] == [b"8\n", b"9\n"]


def test_compressed_lines_come_out_as_they_are_flushed(stdin):
    compressor = zstd.ZstdCompressor()
    with closing(Source(["-"]).blocks(1 << 16, Heap(), lambda: False)) as blocks:
        for line in (b"1 1:1\n", b"2 2:2\n"):
            stdin.write(compressor.compress(line, zstd.ZstdCompressor.FLUSH_BLOCK))
            buffer, size, *_ = next(blocks)
            assert bytes(buffer[:size]) == line


@pytest.mark.parametrize("kind", ["silent", "partial line", "compressed", "pipe without a writer"])
def test_waiting_for_input_can_be_stopped(stdin, kind, tmp_path):
    """A reader that waits notices that nobody wants the rows any more, well within a second."""
    url = "-"
    if kind == "partial line":
        stdin.write(b"1 1:")
    elif kind == "compressed":
        stdin.write(gzip.compress(os.urandom(1000))[:50])
    elif kind == "pipe without a writer":
        url = str(tmp_path / "pipe")
        os.mkfifo(url)
    stop = threading.Event()
    ended = threading.Event()

    def read():
        with suppress(SourceError):
            list(Source([url]).blocks(1 << 16, Heap(), stop.is_set))
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    assert not ended.wait(0.2)
    stop.set()
    assert ended.wait(2)


def test_named_pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def write():
        time.sleep(0.1)
        with open(path, "wb", buffering=0) as out:
            out.write(b"1\n2")
            time.sleep(0.1)
            out.write(b"3\n")

    writer = threading.Thread(target=write)
    writer.start()
    source = Source([str(path)])
    assert not source.repeatable
    assert text_of(source) == b"1\n23\n"
    writer.join()


# Other file systems.


def test_memory_urls(bucket):
    for name, text in {
        "b/part-2": b"2\n",
        "b/part-10": b"10",
        "b/_temporary": b"x",
        "c.gz": gzip.compress(b"3\n"),
    }.items():
        bucket.pipe_file(f"/{name}", text)
    assert text_of(Source(["memory://c.gz"]), 1) == b"3\n"
    assert text_of(Source(["memory://b/part-*"])) == b"10\n2\n"
    assert text_of(Source(["memory://b"])) == b"10\n2\n"
    assert text_of(Source(["memory://b/part-2", "memory://c.gz"])) == b"2\n3\n"
    assert Source(["memory://b"]).repeatable
    assert [part.url for part in find_parts(["memory://b/part-*"])] == ["memory:///b/part-10", "memory:///b/part-2"]
    assert "memory://d: no such file" in wrong(SourceError, "memory://d")
    assert "memory://d*: no file matches" in wrong(SourceError, "memory://d*")


def test_protocols(monkeypatch):
    assert "gopher:// is not supported (supported: file, abfs" in wrong(SourceError, "gopher://x/y")
    assert "chained urls" in wrong(SourceError, "https::memory://y")
    assert "chained urls" in wrong(SourceError, "memory://y::file://z")
    for url in ("simplecache::memory://y", "reference://x", "github://a:b@/x", "dask::memory://x"):
        assert "not supported" in wrong(SourceError, url)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)  # another test may have used it
    monkeypatch.setitem(sys.modules, "s3fs", None)
    assert "pip install 'streamsvm[s3]'" in wrong(SourceError, "s3://bucket/key")


SECRETS = ["user", "p4ssw0rd", "t0ken", "fr4gment"]


class Failing(fsspec.AbstractFileSystem):
    """A server whose every error repeats the url, as some do."""

    protocol = "ftp"
    cachable = False
    stage = "info"
    error = OSError
    size: int | None = 6

    @classmethod
    def _strip_protocol(cls, path):
        return path

    def _fail(self, stage, path):
        if self.stage == stage:
            raise self.error(f"502 for <{path}>: retry\nat {path!r}")

    def info(self, path, **kwargs):
        self._fail("info", path)
        return {"name": path, "size": self.size, "type": "file", "ETag": "1"}

    def _open(self, path, mode="rb", **kwargs):
        self._fail("open", path)
        return (FailingRead if self.stage == "read" else FailingFile)(self)

    open = _open


class FailingRead:
    """A file that can do nothing but read."""

    def __init__(self, server):
        self._fail = server._fail
        self._content = io.BytesIO(b"1 1:1\n")

    def read(self, size):
        self._fail("read", "ftp://user:p4ssw0rd@h/a?t0ken=1#fr4gment")
        return self._content.read(size)

    def close(self):
        pass


class FailingFile(FailingRead):
    def readinto(self, view):
        self._fail("readinto", "ftp://user:p4ssw0rd@h/a?t0ken=1#fr4gment")
        return self._content.readinto(view)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "ftp", Failing)
    monkeypatch.setattr(retries, "FIRST_WAIT", 0.0)
    return lambda **kinds: [monkeypatch.setattr(Failing, name, value) for name, value in kinds.items()]


@pytest.mark.parametrize("stage", ["info", "open", "read", "readinto"])
@pytest.mark.parametrize("error", [OSError, FileNotFoundError, ValueError, RuntimeError, PermissionError])
def test_no_secret_in_any_message(server, stage, error):
    """Neither of the url as given nor of one inside the message of a library."""
    server(stage=stage, error=error)
    message = wrong(SourceError, "ftp://user:p4ssw0rd@host.example/data.svm?t0ken=1&x=2#fr4gment")
    assert not [secret for secret in SECRETS if secret in message], message
    assert message.startswith("ftp://host.example/data.svm: ")


def test_no_secret_where_a_url_is_refused(server):
    secret = "user:p4ssw0rd@host/x?t0ken=1#fr4gment"
    for url in (f"gopher://{secret}", f"http::s3://{secret}", f"http://{secret}::http://{secret}", f"s3://{secret}"):
        with pytest.raises(SourceError) as caught:
            Source([url])
        assert not [word for word in SECRETS[1:3] if word in str(caught.value)], url


def test_no_secret_in_origins_and_fingerprints(server):
    server(stage="none")
    source = Source(["ftp://user:p4ssw0rd@host/a#fr4gment"])
    assert source.fingerprint() == [["ftp://host/a", 6, "ETag 1"]]
    assert not [secret for secret in SECRETS if secret in repr(blocks_of(source))]


def test_a_server_that_does_not_tell_the_size(server):
    """No size is no reason to look for a file descriptor."""
    server(stage="none", size=None)
    source = Source(["ftp://host/a"])
    assert text_of(source) == b"1 1:1\n"
    assert not source.repeatable


# Fingerprints.


def test_fingerprint(put, tmp_path, monkeypatch):
    path = put("a", b"1\n")
    first = Source([path]).fingerprint()
    monkeypatch.chdir(tmp_path)
    assert (
        Source(["a"]).fingerprint()
        == Source(["./a"]).fingerprint()
        == Source([f"file://{path}"]).fingerprint()
        == first
    )
    assert first is not None and first[0][:2] == [path, 2]
    os.utime(path, ns=(1, 1))
    touched = Source([path]).fingerprint()
    assert touched != first
    Path(path).write_bytes(b"12\n")
    os.utime(path, ns=(1, 1))
    assert Source([path]).fingerprint() != touched
    assert re.fullmatch("mtime 1", touched[0][2])
