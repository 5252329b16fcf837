"""How far each file of a log has been read, and what a file is known by, whatever its name is now.

    identity = device and inode, AND a hash of the first bytes read, AND a hash of the last bytes read

An inode alone is not enough: file systems give that of a deleted file to the next one. Nor is a beginning: the files of
one log often have the same header. The bytes before the place where reading stopped tell the rest. Only bytes that
were there when it was last looked at count, so a file that was empty then has no more than its inode.

Marks are values: every block that is read carries those that hold after it, so that a checkpoint of what was learned
holds the places in all files up to which it was.
"""

import hashlib
from typing import Any, NamedTuple, Protocol

from streamsvm.errors import ModelError

LOOKED_AT = 1024  # bytes at the beginning, and before the place where reading stopped
HEX_DIGITS = 32


Id = tuple[int, int]  # device and inode


class Readable(Protocol):
    """An open file that can be read at any place."""

    def size(self) -> int: ...

    def read_at(self, offset: int, view: memoryview) -> int: ...


class Mark(NamedTuple):
    """How far one file has been read."""

    log: str  # the name under which its log is followed
    path: str  # where it was last seen
    device: int
    inode: int
    offset: int = 0  # bytes of text before the next line
    line: int = 1  # the number of that line
    head_size: int = 0
    head: str = ""
    tail_size: int = 0
    tail: str = ""
    written: int = 0  # when it was last written to, in nanoseconds of the file system's clock
    inside: bool = False  # whether that is inside a line that is too long, and passed over
    over: bool = False  # another file has its name, and nothing is to be expected any more
    stored: str = ""  # of a compressed file: a hash of its last bytes as they are stored

    @property
    def id(self) -> Id:
        return self.device, self.inode

    @property
    def tells(self) -> bool:
        """Whether it knows any text: a file is not told by its inode alone, which another may have by now."""
        return bool(self.offset or self.head_size)

    def is_of(self, file: Readable) -> bool:
        """Whether the file has the bytes that this mark knows, and so is the one, or a copy of it."""
        if file.size() < self.offset or not known_by(self.head, bytes_at(file, 0, self.head_size)):
            return False
        return known_by(self.tail, bytes_at(file, self.offset - self.tail_size, self.tail_size))


class Counts(NamedTuple):
    """What has happened to the files so far."""

    files: int = 0  # that were begun
    truncated: int = 0  # cut off or written anew in place: what stood there, and had not been read, is lost
    lost: int = 0  # gone before they had been read to the end, as far as one can tell
    unfinished: int = 0  # last lines without a newline in files that are over; they are not learned
    too_long: int = 0  # lines that were passed over
    errors: int = 0  # readings that failed, and were tried again


class Marks(NamedTuple):
    """Where reading stands in all files."""

    files: tuple[Mark, ...] = ()
    counts: Counts = Counts()
    begun: tuple[str, ...] = ()  # logs that were looked at: what had been rotated before is among the files
    last: str = ""  # the log from which the lines before this place came

    @classmethod
    def restored(cls, plain: Any) -> "Marks":
        """The marks out of what JSON has made of them."""
        if len(plain) != len(cls._fields):
            raise ModelError(
                "it is of an earlier version of follow, which did not keep what was there at the first look; name "
                "another directory with --checkpoint, and begin with its model: --init"
            )
        files, counts, begun, last = plain
        return cls(tuple(Mark(*mark) for mark in files), Counts(*counts), tuple(begun), last)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:HEX_DIGITS] if data else ""


def known_by(known: str, data: bytes) -> bool:
    return digest(data) == known if known else not data


def bytes_at(file: Readable, offset: int, size: int) -> bytes:
    """`size` bytes of a file, fewer if it ends before."""
    data = bytearray(size)
    got = 0
    with memoryview(data) as view:
        while got < size and (more := file.read_at(offset + got, view[got:])):
            got += more
    return bytes(data[:got])
