"""The files of a log, open: read at any place, plain or compressed.

Everything that asks the operating system something while a log is followed goes through `Disk`, so that tests can let
every single question fail.
"""

import contextlib
import glob
import os
import stat
from typing import Any, NamedTuple

from streamsvm.errors import SourceError
from streamsvm.io.compression import EXTENSIONS, HEAD, Inflated, Limits, MemberStart, promised, sniff

PASSED_OVER = 1 << 18  # bytes of text that are inflated at a time, if nobody wants them


class Info(NamedTuple):
    """What the file system says of a file."""

    device: int
    inode: int
    size: int
    written: int  # nanoseconds
    regular: bool = True  # whether it is a file, and no directory or pipe

    @property
    def file(self) -> tuple[int, int]:
        return self.device, self.inode


class Disk:
    """What is asked of the operating system. A file that is not there is None; whatever else fails is an OSError."""

    def info(self, path: str) -> Info | None:
        try:
            return _info(os.stat(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def info_of(self, raw: Any) -> Info:
        return _info(os.fstat(raw.fileno()))

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(directory or "."))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def matching(self, pattern: str) -> list[str]:
        return sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))

    def open(self, path: str) -> Any:
        try:
            return open(path, "rb", buffering=0)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, raw: Any, offset: int, view: memoryview) -> int:
        raw.seek(offset)
        return raw.readinto(view) or 0


def _info(found: os.stat_result) -> Info:
    return Info(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, stat.S_ISREG(found.st_mode))


class LogFile:
    """A plain file."""

    def __init__(self, disk: Disk, raw: Any, path: str) -> None:
        self._disk = disk
        self._raw = raw
        self.path = path
        self.info = disk.info_of(raw)  # as it was last asked for

    def look(self) -> Info:
        self.info = self._disk.info_of(self._raw)
        return self.info

    def size(self) -> int:
        return self.info.size

    def read_at(self, offset: int, view: memoryview) -> int:
        return self._disk.read(self._raw, offset, view)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._raw.close()


class PackedLogFile(LogFile):
    """A compressed file, which is complete: its text, which is read from front to back."""

    def __init__(self, disk: Disk, raw: Any, path: str, limits: Limits) -> None:
        super().__init__(disk, raw, path)
        self._limits = limits
        self._text_size = 0
        self._begin()
        self._text_size = self._all()

    def _begin(self) -> None:
        self._stored = 0  # bytes that were read
        self._at = 0  # bytes of text that were read
        head = bytearray(HEAD)
        with memoryview(head) as view:
            codec = sniff(bytes(head[: self._disk.read(self._raw, 0, view)]))
        if codec is None:
            raise SourceError(f"{self.path}: does not hold {promised(self.path)} data, although its name says so")
        self._inflated = Inflated(self, codec, self._limits, self.path, MemberStart())

    def read(self, size: int, /) -> bytes:
        """Stored bytes, for the decompressor."""
        data = bytearray(size)
        with memoryview(data) as view:
            got = self._disk.read(self._raw, self._stored, view)
        self._stored += got
        return bytes(data[:got])

    def _all(self) -> int:
        """Inflate everything once: a file that is not complete yet is noticed before a line of it is used."""
        room = memoryview(bytearray(PASSED_OVER))
        while got := self._inflated.readinto(room):
            self._at += got
        return self._at

    def size(self) -> int:
        return self._text_size

    def read_at(self, offset: int, view: memoryview) -> int:
        if offset < self._at:
            self._begin()
        room = memoryview(bytearray(PASSED_OVER))
        while self._at < offset and (got := self._inflated.readinto(room[: offset - self._at])):
            self._at += got
        got = self._inflated.readinto(view)
        self._at += got
        return got


def is_packed(name: str) -> bool:
    """Whether a name is that of a compressed file; some that cannot be read here count as well."""
    return name.lower().endswith((*EXTENSIONS, ".z", ".lz4", ".br", ".7z", ".zip", ".lzo", ".tgz"))


def opened(disk: Disk, path: str, limits: Limits) -> LogFile | None:
    """The file of that name; None if there is none."""
    raw = disk.open(path)
    if raw is None:
        return None
    try:
        return PackedLogFile(disk, raw, path, limits) if is_packed(path) else LogFile(disk, raw, path)
    except BaseException:
        raw.close()
        raise
