"""The bytes of a cache while it is written: an Arrow IPC file that another process can go on with after a kill.

    magic, schema message | group | group | ... | end marker | footer, its length, magic
    ------- head -------        places of the groups ----------^

pyarrow's file writer keeps the places of the groups to itself until it writes the footer, so nobody can go on with its
file. But what lies between magic and footer is an IPC stream, and a stream can be cut and gone on with after any group.
So pyarrow's stream writer writes the groups, their places are noted here, and the footer is the one that pyarrow gives
to an empty file, with the places put in. Written in one go or in several, the file is the same to the byte.
"""

import os
import struct
import threading
from collections.abc import Iterable
from itertools import pairwise
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamsvm.batch import Int64s

MAGIC = b"ARROW1"  # two zeros follow at the beginning of a file, none at its end
CONTINUATION = b"\xff\xff\xff\xff"  # begins every message; its length follows, as an int32
END_MARKER = CONTINUATION + bytes(4)
RECORD_BATCHES = 3  # the field of the footer that holds the places of the groups


class Place(NamedTuple):
    """Where a group lies in the file."""

    offset: int
    metadata: int  # bytes of the message before its body
    body: int

    @property
    def end(self) -> int:
        return self.offset + self.metadata + self.body


class GroupFile:
    """Groups appended to an open file: `begin` it or `go_on` with it first, then `write`, `complete` and `close`."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._file = file
        self._head, self._footer = _around_groups(schema)
        self._places: list[Place] = []
        self._sink = _Sink(file, skip=len(self._head) - len(MAGIC + bytes(2)))
        self._writer = pa.ipc.new_stream(self._sink, schema)
        self._closing = threading.Lock()

    def begin(self) -> None:
        """Start an empty file."""
        self._file.write(self._head)

    def go_on(self, ends: Int64s, size: int) -> bool:
        """Cut the file off where the last of its groups ends; False, and the file as it was, if it has no such groups.

        The head holds the schema with all its metadata: a file that has the same is a cache of the same rows.
        """
        edges = [len(self._head), *ends.tolist()]
        long_enough = os.fstat(self._file.fileno()).st_size >= edges[-1] == size
        if not long_enough or self._file.read(len(self._head)) != self._head:
            return False
        places = []
        for start, end in pairwise(edges):
            self._file.seek(start)
            place = _place(start, self._file.read(8), end)
            if place is None:
                return False
            places.append(place)
        self._places = places
        self._file.seek(edges[-1])
        self._file.truncate()
        return True

    @property
    def ends(self) -> Int64s:
        """Where each group ends."""
        return np.array([place.end for place in self._places], np.int64)

    @property
    def size(self) -> int:
        """Bytes up to the end of the last group."""
        return self._places[-1].end if self._places else len(self._head)

    def write(self, group: pa.RecordBatch) -> None:
        start = self.size
        self._sink.begin_message()
        self._writer.write_batch(group)
        place = _place(start, self._sink.prefix, start + self._sink.written)
        assert place is not None, "pyarrow writes a message as the format says"
        self._places.append(place)

    def complete(self) -> None:
        """Write what follows the groups."""
        footer = _with_places(self._footer, self._places)
        self._writer.close()
        self._file.write(footer + struct.pack("<i", len(footer)) + MAGIC)
        self._file.flush()

    def flush(self) -> None:
        """Hand what has been written to the operating system, where it outlives this process."""
        self._file.flush()

    def sync(self) -> None:
        """Put what has been flushed on disk. Another thread may call this while groups are written.

        The file may be closed meanwhile, and its descriptor given to another file: so a copy of it is synced.
        """
        with self._closing:
            if self._file.closed:
                return
            descriptor = os.dup(self._file.fileno())
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        with self._closing:
            self._file.close()


class _Sink:
    """The file as the stream writer sees it. Its schema message goes nowhere: the file's head has it already."""

    closed = False  # pyarrow asks

    def __init__(self, file: IO[bytes], *, skip: int) -> None:
        self._file = file
        self._skip = skip
        self.begin_message()

    def begin_message(self) -> None:
        self.prefix = b""
        self.written = 0

    def write(self, data: Any) -> None:
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = memoryview(data)[skipped:]
        if len(self.prefix) < 8:
            self.prefix += bytes(data[: 8 - len(self.prefix)])
        self.written += len(data)
        self._file.write(data)


def _around_groups(schema: pa.Schema) -> tuple[bytes, bytes]:
    """What pyarrow puts before the groups of a file, and the footer of a file without groups."""
    sink = pa.BufferOutputStream()
    pa.ipc.new_file(sink, schema).close()
    whole = sink.getvalue().to_pybytes()
    last = len(whole) - len(MAGIC) - 4
    first = last - int.from_bytes(whole[last : last + 4], "little")
    return whole[: first - len(END_MARKER)], whole[first:last]


def _place(start: int, prefix: bytes, end: int) -> Place | None:
    """The place of a message that lies between `start` and `end` and begins with `prefix`; None if it cannot."""
    metadata = 8 + int.from_bytes(prefix[4:8], "little")
    if prefix[:4] != CONTINUATION or not 8 < metadata <= end - start:
        return None
    return Place(start, metadata, end - start - metadata)


def _with_places(footer: bytes, places: Iterable[Place]) -> bytes:
    """The footer of a file with these groups, made from that of a file with none.

    A footer is a flatbuffer: at its root a table, whose fields are found through a list of distances, the `vtable`. The
    field changed here is itself the distance to a vector, which may lie anywhere after it: we append a new one. Its
    elements must be aligned to 8 bytes; the number of elements before them takes four.
    """
    blocks = [struct.pack("<qi4xq", *place) for place in places]
    (root,) = struct.unpack_from("<I", footer, 0)
    vtable = root - struct.unpack_from("<i", footer, root)[0]
    field = root + struct.unpack_from("<H", footer, vtable + 4 + 2 * RECORD_BATCHES)[0]
    vector = len(footer) + (4 - len(footer)) % 8
    changed = bytearray(footer.ljust(vector, b"\0") + struct.pack("<I", len(blocks)) + b"".join(blocks))
    struct.pack_into("<I", changed, field, vector - field)
    return bytes(changed)
