"""Where bytes come from: paths, globs, directories, standard input and fsspec urls, cut into blocks of whole lines.

A Source is a recipe. Each pass opens its parts again, one after the other in the order given, and cuts them into
Blocks that end at a newline. A missing newline at the end of a file is added; blocks never span two files. Every block
says at which Position reading goes on after it: another reading, in another process, can begin there.
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
from streamsvm.io.compression import FIRST_MEMBER, HEAD, Inflated, Limits, MemberStart, promised, sniff
from streamsvm.io.identity import content_digest
from streamsvm.io.urls import REMOTE_EXTRAS, is_local, reason, redact_url, scheme_of

STDIN = "-"
POLL_SECONDS = 0.1
SKIPPED = 1 << 18  # bytes passed over at a time
SAMPLED = 1 << 16  # bytes that a remote file may fetch beyond what is asked of it, where only samples are wanted
FOREIGN = {b"PAR1": "a Parquet file", b"ARROW1": "an Arrow file", b"PK\x03\x04": "a zip archive"}


class Origin(NamedTuple):
    """Where a block came from; travels beside the batch, never into a kernel."""

    url: str  # safe to show
    offset: int  # bytes of (decompressed) text before it
    line: int  # number of its first line, counted from 1; 0 until known


class Position(NamedTuple):
    """A place between two lines of a source, from which reading can go on."""

    part: int = 0  # files before this one have been read
    offset: int = 0  # bytes of (decompressed) text before it in this file
    stored: int = 0  # where in the stored bytes a decompressor can begin; 0 for plain files
    text: int = 0  # bytes of text before that


BEGINNING = Position()


class Block(NamedTuple):
    """Whole lines: `buffer[:size]`, the last byte a newline."""

    buffer: bytearray
    size: int
    origin: Origin
    after: Position  # where reading goes on after this block


class Part(NamedTuple):
    """One file of a source."""

    url: str
    shown: str
    size: int | None  # bytes as stored
    stamp: str | None  # changes when the content does: modification time, etag, version; its name comes first


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


CONTENT_STAMPS = ("ETag", "etag", "md5Hash", "content_md5")  # a copy has the same
TIME_STAMPS = ("LastModified", "mtime", "updated", "last_modified", "created")  # a copy has another


def _remote_part(url: str, info: dict[str, Any]) -> Part:
    stamp = next((f"{key} {info[key]}" for key in CONTENT_STAMPS + TIME_STAMPS if info.get(key)), None)
    return Part(url, redact_url(url), info.get("size"), stamp)


def _open(part: Part, block_size: int | None = None) -> Any:
    """The stored bytes of a part; `block_size` is how far a remote file reads ahead, None for what is usual there."""
    try:
        if part.url == STDIN:
            return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
        if not is_local(part.url):
            filesystem, path = open_filesystem(part.url)
            return filesystem.open(path, "rb", block_size=block_size)
        return open(part.url, "rb", buffering=0, opener=None if part.size is not None else _without_waiting)
    except SourceError:
        raise
    except Exception as error:
        raise SourceError(f"{part.shown}: cannot open: {reason(error)}") from error


def _without_waiting(path: str, flags: int) -> int:
    """Open a named pipe that may have no writer yet: waiting for one inside `open` could not be stopped."""
    if os.name != "posix":
        return os.open(path, flags)
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


def _identified(part: Part) -> list[Any]:
    """Name, size, and a stamp of the content; the part is read only where nobody else has made one."""
    kind, _, value = (part.stamp or "").partition(" ")
    if kind not in CONTENT_STAMPS:
        with closing(_open(part, SAMPLED)) as raw:
            try:
                kind, value = "content", content_digest(raw, part.size or 0)
            except Exception as error:
                raise SourceError(f"{part.shown}: cannot read: {reason(error)}") from error
    return [part.shown, part.size, kind, value]


class _Input:
    """An open part, read from `start` on: `readinto`, and `waiting` for whether that would have to wait for the writer.

    The first bytes are looked at wherever reading begins: they tell what kind of file this is.
    """

    def __init__(self, part: Part, start: Position, limits: Limits, stopped: Callable[[], bool]) -> None:
        self.shown = part.shown
        self._part = start.part
        self._stopped = stopped
        self._raw: Any = _open(part)
        self._inflated: Inflated | None = None
        piped = part.size is None and is_local(part.url) and os.name == "posix"
        self._descriptor: int | None = self._raw.fileno() if piped else None
        try:
            self._head = self._first_bytes()
            codec = self._codec()
            self._move_to(start.stored if codec else start.offset)
            if codec:
                member = MemberStart(start.stored, start.text)
                self._inflated = Inflated(self, codec, limits, part.shown, member)
                self._pass_over(start.offset - start.text)
        except BaseException:
            self._raw.close()
            raise

    def _codec(self) -> str | None:
        """What the first bytes say, if that is something to be read and what the name says."""
        for magic, kind in FOREIGN.items():
            if self._head.startswith(magic):
                raise SourceError(f"{self.shown}: this is {kind}; only LIBSVM text can be read")
        codec = sniff(self._head)
        expected = promised(self.shown)
        if expected and codec != expected and not self._stopped():
            what = f"does not hold {expected} data" if self._head else "is empty"
            raise SourceError(f"{self.shown}: {what}, although its name says so")
        return codec

    def _move_to(self, place: int) -> None:
        """Go on at byte `place` of what is stored."""
        if not place:
            return
        try:
            self._raw.seek(0, os.SEEK_END)
            size = self._raw.tell()
            self._raw.seek(place)
        except Exception:  # some remote files are mere streams, and each kind has an exception of its own for it
            self._pass_over(place)
            return
        if size < place:
            raise SourceError(self._too_short())
        self._head = b""

    def _pass_over(self, size: int) -> None:
        """Read `size` bytes that nobody wants, in pieces, so that a stop is noticed."""
        view = memoryview(bytearray(min(size, SKIPPED)))
        while size and not self._stopped():
            got = self.readinto(view[:size])
            if not got and not self._stopped():
                raise SourceError(self._too_short())
            size -= got

    def _too_short(self) -> str:
        return f"{self.shown}: shorter than it was, so reading cannot go on where it stopped; bring back the old file"

    def position(self, offset: int) -> Position:
        """The place after `offset` bytes of text; never ask for a lower one later."""
        start = self._inflated.start_before(offset) if self._inflated else FIRST_MEMBER
        return Position(self._part, offset, start.stored, start.text)

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
            raise SourceError(f"{self.shown}: cannot read: {reason(error)}") from error

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
            raise SourceError(f"{self.shown}: cannot read: {reason(error)}") from error

    def close(self) -> None:
        self._raw.close()


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

    def identity(self) -> list[list[Any]]:
        """What must be unchanged for a run to go on: `[name, size, kind of stamp, stamp]` of each part.

        Times are no part of it, because data is often copied to another machine.
        """
        if not self.repeatable:
            raise SourceError(self._not_again())
        return [_identified(part) for part in self.parts]

    def _not_again(self) -> str:
        return f"{self._once()} can be read only once, so a run on it cannot be resumed; save it as a file first"

    def blocks(
        self, block_size: int, buffers: Buffers, stopped: Callable[[], bool], start: Position = BEGINNING
    ) -> Iterator[Block]:
        """Blocks of whole lines, in buffers that come from and go back to `buffers`.

        From `start` on, which is `after` of a block of an earlier reading, the lines are those of that reading.
        """
        if start != BEGINNING and not self.repeatable:
            raise SourceError(self._not_again())
        if self._spent and not self.repeatable:
            raise SourceError(f"{self._once()} can be read only once")
        if start.part > len(self.parts):
            counts = f"{start.part} had been read, {len(self.parts)} are there now"
            raise SourceError(f"files are missing, so reading cannot go on: {counts}; bring back the old files")
        self._spent = True
        for number in range(start.part, len(self.parts)):
            begin = start if number == start.part else Position(number)
            with closing(_Input(self.parts[number], begin, self.limits, stopped)) as opened:
                yield from self._cut(opened, begin, block_size, buffers, stopped)
            if stopped():
                return

    def _cut(
        self, opened: _Input, start: Position, block_size: int, buffers: Buffers, stopped: Callable[[], bool]
    ) -> Iterator[Block]:
        shown = opened.shown
        offset = start.offset
        tail = b""
        ended = False
        while not ended and not stopped():
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
                after = Position(start.part + 1) if ended else opened.position(offset + cut)
                yield Block(buffer, cut, Origin(shown, offset, 0), after)
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
