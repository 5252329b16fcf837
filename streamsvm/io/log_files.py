"""The files of a log, open: read at any place, plain or compressed.

Everything that asks the operating system something while a log is followed goes through `Disk`, so that tests can let
every single question fail.
"""

import contextlib
import glob
import os
import stat
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from streamsvm.errors import SourceError
from streamsvm.io.compression import EXTENSIONS, HEAD, Inflated, Limits, MemberStart, promised, sniff
from streamsvm.io.marks import LOOKED_AT, Id, bytes_at, digest

PASSED_OVER = 1 << 18  # bytes of text that are inflated at a time, if nobody wants them


class Info(NamedTuple):
    """What the file system says of a file."""

    device: int
    inode: int
    size: int
    written: int  # nanoseconds
    regular: bool = True  # whether it is a file, and no directory or pipe

    @property
    def file(self) -> Id:
        return self.device, self.inode


class Stopped(Exception):  # noqa: N818  (not an error: somebody asked for it)
    """Reading is to end."""


class Disk:
    """What is asked of the operating system. A file that is not there is None; whatever else fails is an OSError.

    A directory that is not there is an OSError too: what follows from a list of names must not follow from none.
    """

    def info(self, path: str) -> Info | None:
        try:
            return _info(os.stat(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def info_of(self, raw: Any) -> Info:
        return _info(os.fstat(raw.fileno()))

    def names(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory or "."))

    def matching(self, pattern: str) -> list[str]:
        return glob.glob(pattern, recursive=True)

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def open(self, path: str) -> Any:
        try:
            return open(path, "rb", buffering=0, opener=_at_once)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def read(self, raw: Any, offset: int, view: memoryview) -> int:
        raw.seek(offset)
        return raw.readinto(view) or 0


def _at_once(path: str, flags: int) -> int:
    """Open, without waiting for a writer, should it be a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _info(found: os.stat_result) -> Info:
    return Info(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, stat.S_ISREG(found.st_mode))


class LogFile:
    """A plain file."""

    def __init__(self, disk: Disk, raw: Any, path: str, stopped: Callable[[], bool]) -> None:
        self._disk = disk
        self._raw = raw
        self._stopped = stopped
        self.path = path
        self.info = disk.info_of(raw)  # as it was last asked for

    def look(self) -> Info:
        self.info = self._disk.info_of(self._raw)
        return self.info

    def size(self) -> int:
        return self.info.size

    def read_at(self, offset: int, view: memoryview) -> int:
        if self._stopped():
            raise Stopped
        return self._disk.read(self._raw, offset, view)

    def stored_end(self) -> str:
        """What a compressed file is known by without inflating it; nothing of a plain one."""
        return ""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._raw.close()


class PackedLogFile(LogFile):
    """A compressed file, which is complete: its text, which is read from front to back."""

    def __init__(self, disk: Disk, raw: Any, path: str, stopped: Callable[[], bool], limits: Limits) -> None:
        super().__init__(disk, raw, path, stopped)
        self._limits = limits
        self._head = b""
        self._begin()
        self._head = bytes_at(self, 0, LOOKED_AT)
        self._text_size = self._all()

    def _begin(self) -> None:
        self._stored = 0  # bytes that were read
        self._at = 0  # bytes of text that were read
        head = b""
        while len(head) < HEAD and (more := self.read(HEAD - len(head))):
            head += more
        self._stored = 0
        codec = sniff(head)
        if codec is None:
            raise SourceError(f"{self.path}: does not hold {promised(self.path)} data, although its name says so")
        self._inflated = Inflated(self, codec, self._limits, self.path, MemberStart())

    def read(self, size: int, /) -> bytes:
        """Stored bytes, for the decompressor."""
        data = bytearray(size)
        with memoryview(data) as view:
            got = super().read_at(self._stored, view)
        self._stored += got
        return bytes(data[:got])

    def stored_end(self) -> str:
        return _end_of(self._disk, self._raw)

    def _all(self) -> int:
        """Inflate everything once: a file that is not complete yet is noticed before a line of it is used."""
        room = memoryview(bytearray(PASSED_OVER))
        while got := self._inflated.readinto(room):
            self._at += got
        return self._at

    def size(self) -> int:
        return self._text_size

    def read_at(self, offset: int, view: memoryview) -> int:
        if offset + len(view) <= len(self._head):
            view[:] = self._head[offset : offset + len(view)]
            return len(view)
        try:
            if offset < self._at:
                self._begin()
            room = memoryview(bytearray(min(PASSED_OVER, offset - self._at)))
            while self._at < offset and (got := self._inflated.readinto(room[: offset - self._at])):
                self._at += got
            got = self._inflated.readinto(view) if len(view) else 0
        except BaseException:
            self._at = sys.maxsize  # where the decompressor stands is not known: begin anew
            raise
        self._at += got
        return got


def is_packed(name: str) -> bool:
    """Whether a name is that of a compressed file; some that cannot be read here count as well."""
    return name.lower().endswith((*EXTENSIONS, ".z", ".lz4", ".br", ".7z", ".zip", ".lzo", ".tgz"))


def stored_end(disk: Disk, path: str) -> str:
    """That of a compressed file that is not open."""
    raw = disk.open(path)
    if raw is None:
        return ""
    with contextlib.closing(raw):
        return _end_of(disk, raw)


def _end_of(disk: Disk, raw: Any) -> str:
    size = disk.info_of(raw).size
    start, data = max(0, size - LOOKED_AT), b""
    room = memoryview(bytearray(size - start))
    while len(data) < len(room) and (got := disk.read(raw, start + len(data), room[len(data) :])):
        data = bytes(room[: len(data) + got])
    return digest(data)


def opened(disk: Disk, path: str, stopped: Callable[[], bool], limits: Limits) -> LogFile | None:
    """The file of that name; None if there is none, or it is none."""
    raw = disk.open(path)
    if raw is None:
        return None
    try:
        if is_packed(path):
            return PackedLogFile(disk, raw, path, stopped, limits)
        file = LogFile(disk, raw, path, stopped)
        if file.info.regular:
            return file
    except BaseException:
        raw.close()
        raise
    raw.close()
    return None
