"""Where bytes come from: paths, globs, directories, standard input and fsspec urls, cut into blocks of whole lines.

A Source is a recipe. Each pass opens its parts again, one after the other in the order given, and cuts them into
Blocks that end at a newline. A missing newline at the end of a file is added; blocks never span two files.
"""

import glob
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from streamsvm.errors import ConfigError, DataError, SourceError
from streamsvm.io.compression import HEAD, Inflated, Limits, promised, sniff
from streamsvm.io.urls import REMOTE_EXTRAS, is_local, reason, redact_url, scheme_of

STDIN = "-"
POLL_SECONDS = 0.1
FOREIGN = {b"PAR1": "a Parquet file", b"ARROW1": "an Arrow file", b"PK\x03\x04": "a zip archive"}


class Origin(NamedTuple):
    """Where a block came from; travels beside the batch, never into a kernel."""

    url: str  # safe to show
    offset: int  # bytes of (decompressed) text before it
    line: int  # number of its first line, counted from 1; 0 until known


class Block(NamedTuple):
    """Whole lines: `buffer[:size]`, the last byte a newline."""

    buffer: bytearray
    size: int
    origin: Origin


class Part(NamedTuple):
    """One file of a source."""

    url: str
    shown: str
    size: int | None  # bytes as stored
    stamp: str | None  # changes when the content does: modification time, etag, version


class Buffers(Protocol):
    """What the cutter needs from whoever owns the memory."""

    def take(self, size: int) -> bytearray:
        """A buffer with room for `size` bytes and a newline; waits until there is memory for it."""

    def give_back(self, buffer: bytearray) -> None: ...


def find_parts(urls: list[str]) -> list[Part]:
    """All files that the urls name, in the stated order; globs and directories in the order of their names."""
    parts: list[Part] = []
    for url in urls:
        if url == STDIN:
            parts.append(Part(STDIN, "standard input", None, None))
        elif is_local(url):
            parts += _local_parts(url)
        else:
            parts += _remote_parts(url)
    if sum(part.url == STDIN for part in parts) > 1:
        raise ConfigError("standard input (-) can be read only once")
    return parts


def _local_parts(url: str) -> list[Part]:
    path = url.split("://", 1)[-1]
    if os.path.isdir(path):
        found = [os.path.join(path, name) for name in _names(path) if not _hidden(name)]
        found = [p for p in found if not os.path.isdir(p)]
        if not found:
            raise SourceError(f"{path}: the directory has no files")
    elif os.path.exists(path):
        found = [path]
    elif glob.has_magic(path):
        found = sorted(p for p in glob.glob(path, recursive=True) if not os.path.isdir(p))
        if not found:
            raise SourceError(f"{path}: no file matches")
    else:
        raise SourceError(f"{path}: no such file or directory{_suggest(path)}")
    return [_local_part(p) for p in found]


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError as error:
        raise SourceError(f"{directory}: cannot list: {reason(error)}") from error


def _local_part(path: str) -> Part:
    try:
        info = os.stat(path)
    except OSError as error:  # a link to nowhere
        raise SourceError(f"{path}: cannot open: {reason(error)}") from error
    if not stat.S_ISREG(info.st_mode):  # a named pipe, /dev/stdin
        return Part(path, path, None, None)
    return Part(path, path, info.st_size, f"mtime {info.st_mtime_ns}")


def _suggest(path: str) -> str:
    """` (did you mean ...?)` when a file with nearly the same name is there."""
    import difflib

    parent = Path(path).parent
    try:
        close = difflib.get_close_matches(Path(path).name, os.listdir(parent), n=1)
    except OSError:
        return ""
    return f" (did you mean {parent / close[0]}?)" if close else ""


def open_filesystem(url: str) -> tuple[Any, str]:
    """The fsspec filesystem of an allowed url, and the path in it."""
    scheme = scheme_of(url)
    if scheme not in REMOTE_EXTRAS:
        known = ", ".join(sorted(REMOTE_EXTRAS))
        raise SourceError(f"{redact_url(url)}: {scheme}:// is not supported (supported: file, {known})")
    if "::" in url:
        raise SourceError(f"{redact_url(url)}: chained urls (::) are not accepted")
    try:
        import fsspec

        return fsspec.core.url_to_fs(url)  # type: ignore[no-any-return]
    except ImportError as error:
        extra = REMOTE_EXTRAS.get(scheme or "")
        remedy = f"pip install 'streamsvm[{extra}]'" if extra else reason(error)
        raise SourceError(f"{redact_url(url)}: reading {scheme}:// needs another package: {remedy}") from error
    except Exception as error:
        raise SourceError(f"{redact_url(url)}: {reason(error)}") from error


def _remote_parts(url: str) -> list[Part]:
    scheme = scheme_of(url)
    filesystem, path = open_filesystem(url)
    try:
        if glob.has_magic(path) and scheme not in ("http", "https"):
            names = sorted(filesystem.glob(path))
        elif scheme not in ("http", "https") and filesystem.isdir(path):
            names = sorted(n for n in filesystem.ls(path, detail=False) if not _hidden(n) and filesystem.isfile(n))
        else:
            names = [path]
        infos = [(name, filesystem.info(name)) for name in names]
    except FileNotFoundError as error:
        raise SourceError(f"{redact_url(url)}: no such file") from error
    except Exception as error:
        raise SourceError(f"{redact_url(url)}: {type(error).__name__}: {reason(error)}") from error
    if not infos:
        raise SourceError(f"{redact_url(url)}: no file matches")
    several = len(names) > 1 or names[0] != path
    return [_remote_part(filesystem.unstrip_protocol(n) if several else url, info) for n, info in infos]


def _hidden(name: str) -> bool:
    return name.rstrip("/").rsplit("/", 1)[-1].startswith((".", "_"))


def _remote_part(url: str, info: dict[str, Any]) -> Part:
    stamps = ("ETag", "etag", "md5Hash", "content_md5", "LastModified", "mtime", "updated", "last_modified", "created")
    stamp = next((f"{key} {info[key]}" for key in stamps if info.get(key)), None)
    return Part(url, redact_url(url), info.get("size"), stamp)


class _Input:
    """An open part: `readinto`, and `waiting` for whether a read would have to wait for the writer."""

    def __init__(self, part: Part, limits: Limits, stopped: Callable[[], bool]) -> None:
        self._shown = part.shown
        self._stopped = stopped
        self._raw: Any = self._open(part)
        piped = part.size is None and is_local(part.url) and os.name == "posix"
        self._descriptor: int | None = self._raw.fileno() if piped else None
        try:
            self._head = self._first_bytes()
            for magic, kind in FOREIGN.items():
                if self._head.startswith(magic):
                    raise SourceError(f"{part.shown}: this is {kind}; only LIBSVM text can be read")
            codec = sniff(self._head)
            expected = promised(part.shown)
            if expected and codec != expected and not stopped():
                what = f"does not hold {expected} data" if self._head else "is empty"
                raise SourceError(f"{part.shown}: {what}, although its name says so")
            self._inflated = Inflated(self, codec, limits, part.shown) if codec else None
        except BaseException:
            self._raw.close()
            raise

    @staticmethod
    def _open(part: Part) -> Any:
        try:
            if part.url == STDIN:
                return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
            if not is_local(part.url):
                filesystem, path = open_filesystem(part.url)
                return filesystem.open(path, "rb")
            return open(part.url, "rb", buffering=0, opener=None if part.size is not None else _without_waiting)
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(f"{part.shown}: cannot open: {reason(error)}") from error

    def _first_bytes(self) -> bytes:
        """Enough to tell the codec. A line is enough: someone may be waiting for its answer before writing another."""
        head = b""
        while len(head) < HEAD and b"\n" not in head and (piece := self._read(HEAD - len(head))):
            head += piece
        return head

    def _wait(self) -> None:
        """On a pipe, wait for data in small steps, so that a stop is noticed."""
        while self._descriptor is not None and not self._stopped():
            if select.select([self._descriptor], [], [], POLL_SECONDS)[0]:
                return

    def waiting(self) -> bool:
        return self._descriptor is not None and not select.select([self._descriptor], [], [], 0)[0]

    def _read(self, size: int) -> bytes:
        self._wait()
        if self._stopped():
            return b""
        try:
            return self._raw.read(size) or b""
        except Exception as error:
            raise SourceError(f"{self._shown}: cannot read: {reason(error)}") from error

    def read(self, size: int) -> bytes:
        """Stored bytes, for the decompressor."""
        if self._head:
            head, self._head = self._head, b""
            return head
        return self._read(size)

    def readinto(self, view: memoryview) -> int:
        """Plain bytes into `view`; 0 at the end."""
        if self._inflated:
            return self._inflated.readinto(view)
        if self._head:
            size = min(len(view), len(self._head))
            view[:size], self._head = self._head[:size], self._head[size:]
            return size
        self._wait()
        if self._stopped():
            return 0
        try:
            return self._raw.readinto(view) or 0
        except Exception as error:
            raise SourceError(f"{self._shown}: cannot read: {reason(error)}") from error

    def close(self) -> None:
        self._raw.close()


def _without_waiting(path: str, flags: int) -> int:
    """Open a named pipe that may have no writer yet: waiting for one inside `open` could not be stopped."""
    if os.name != "posix":
        return os.open(path, flags)
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


class Source:
    """A recipe for reading lines."""

    def __init__(self, urls: list[str], *, limits: Limits = Limits(), max_line: int = 16_000_000) -> None:
        self.parts = find_parts(urls)
        self.limits = limits
        self.max_line = max_line
        self._spent = False

    @property
    def repeatable(self) -> bool:
        """Whether a second pass would see the same bytes."""
        return all(part.size is not None for part in self.parts)

    def _once(self) -> str:
        return next(part.shown for part in self.parts if part.size is None)

    @property
    def size(self) -> int | None:
        """Stored bytes of all parts, where known."""
        sizes = [part.size for part in self.parts]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def fingerprint(self) -> list[list[Any]] | None:
        """What must be unchanged for a cache of this source to be valid; None where that cannot be known."""
        if any(part.stamp is None for part in self.parts):
            return None
        names = [os.path.abspath(p.shown) if scheme_of(p.url) is None else p.shown for p in self.parts]
        return [[name, part.size, part.stamp] for name, part in zip(names, self.parts, strict=True)]

    def blocks(self, block_size: int, buffers: Buffers, stopped: Callable[[], bool]) -> Iterator[Block]:
        """Blocks of whole lines, in buffers that come from and go back to `buffers`."""
        if self._spent and not self.repeatable:
            raise SourceError(f"{self._once()} can be read only once")
        self._spent = True
        for part in self.parts:
            with closing(_Input(part, self.limits, stopped)) as opened:
                yield from self._cut(part.shown, opened, block_size, buffers, stopped)

    def _cut(
        self, shown: str, opened: _Input, block_size: int, buffers: Buffers, stopped: Callable[[], bool]
    ) -> Iterator[Block]:
        offset = 0
        tail = b""
        ended = False
        while not ended:
            room = block_size
            while room < 2 * len(tail):
                room *= 2
            buffer = buffers.take(room)
            filled = len(tail)
            buffer[:filled] = tail
            cut = 0
            while not cut:
                if filled == room:
                    if filled > self.max_line:
                        raise DataError(self._too_long(shown, offset))
                    kept = bytes(memoryview(buffer)[:filled])
                    buffers.give_back(buffer)
                    room *= 2
                    buffer = buffers.take(room)
                    buffer[:filled] = kept
                with memoryview(buffer) as view:
                    got = opened.readinto(view[filled:room])
                if stopped():
                    buffers.give_back(buffer)
                    return
                filled += got
                if not got:
                    ended = True
                    break
                if filled == room or opened.waiting():
                    cut = buffer.rfind(b"\n", 0, filled) + 1
            if ended:
                cut = filled
                if filled and buffer[filled - 1] != 10:
                    buffer[filled] = 10
                    cut += 1
            with memoryview(buffer) as view:
                tail = bytes(view[cut:filled])
            if cut > self.max_line:
                self._refuse_long_lines(shown, offset, buffer, cut)
            if cut:
                yield Block(buffer, cut, Origin(shown, offset, 0))
                offset += cut
            else:
                buffers.give_back(buffer)

    def _refuse_long_lines(self, shown: str, offset: int, buffer: bytearray, size: int) -> None:
        start = 0
        while start < size:
            end = buffer.index(b"\n", start)
            if end - start > self.max_line:
                raise DataError(self._too_long(shown, offset + start))
            start = end + 1

    def _too_long(self, shown: str, offset: int) -> str:
        return f"{shown}: byte {offset}: a line is longer than {self.max_line} bytes (data.max_line)"
