"""An object that can only be read from one byte to the next, given out in ranges all the same.

For servers that know no ranges, objects whose size is not told, and file systems with a single connection (ftp, sftp,
hdfs, memory). After a failure the object is opened again, and moved or read to the byte where it broke.
"""

import contextlib
from collections.abc import Callable
from typing import Any

from streamsvm.errors import SourceError

SKIPPED = 1 << 18  # bytes passed over at a time

Arrived = Callable[[int], None]


class EndError(Exception):
    """There are no more bytes."""


class StreamObject:
    """Ranges in rising order, fetched by one thread."""

    def __init__(
        self,
        open_it: Callable[[], Any],
        size: int | None,
        compare: Callable[[], None] | None,
        shown: str,
        abort: Callable[[], None] = lambda: None,
    ) -> None:
        self._open_it = open_it
        self._size = size
        self._compare = compare  # None if nothing tells whether the object is what it was
        self._shown = shown
        self._abort = abort
        self._raw: Any = None
        self._at = 0
        self._end = 1 << 62  # of the object, once it was seen

    def fetch(self, start: int, view: memoryview, arrived: Arrived) -> None:
        if start >= self._end:
            raise EndError
        try:
            if self._raw is None or self._at != start:
                self._move_to(start)
            got = 0
            while got < len(view):
                count = self._read(view[got : got + SKIPPED])
                if not count:
                    if self._size is not None and start + got < self._size:
                        raise ConnectionError(f"it ended {self._size - start - got:,} bytes too early")
                    self._end = start + got
                    raise EndError
                got += count
                arrived(count)
        except EndError:
            raise
        except BaseException:
            self.close()
            raise

    def unchanged(self) -> None:
        if self._compare is not None:
            self._compare()

    def abort(self) -> None:
        self._abort()

    def close(self) -> None:
        raw, self._raw = self._raw, None
        if raw is not None:
            with contextlib.suppress(Exception):  # each kind of file has an exception of its own
                raw.close()

    def _read(self, view: memoryview) -> int:
        if hasattr(self._raw, "readinto"):
            count = int(self._raw.readinto(view) or 0)
        else:
            piece = self._raw.read(len(view))
            count = len(piece)
            view[:count] = piece
        self._at += count
        return count

    def _move_to(self, start: int) -> None:
        if self._raw is not None and self._sought(start):
            return
        self.close()
        if start and self._compare is None:
            raise SourceError(
                f"{self._shown}: reading broke off at byte {start:,}, and cannot go on: the server tells neither size "
                "nor ETag, so it may be another object now; save it as a file first"
            )
        self._raw, self._at = self._open_it(), 0
        if not start or self._sought(start):
            return
        view = memoryview(bytearray(SKIPPED))
        while self._at < start:
            if not self._read(view[: start - self._at]):
                raise ConnectionError("it ended too early")

    def _sought(self, start: int) -> bool:
        try:
            self._raw.seek(start)
        except Exception:  # a mere stream
            return False
        self._at = start
        return True
