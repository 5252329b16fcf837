"""Logs that are still being written, as a source: reading it ends when it is stopped, or when nothing comes any more.

While nothing comes, empty blocks are handed on from time to time, so that whoever learns can do what is due.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from streamsvm.errors import ConfigError
from streamsvm.io.follow import Follower, is_glob
from streamsvm.io.log_files import Disk, Stopped, is_packed
from streamsvm.io.logs import Options
from streamsvm.io.marks import Marks, bytes_at
from streamsvm.io.parts import STDIN, Part
from streamsvm.io.source import Block, Buffers, Cutter, Origin, Source, last_newline
from streamsvm.io.urls import is_local, redact_url

POLL = 0.25  # seconds between two rounds in which nothing comes
SHORTEST = 0.01  # seconds between two rounds
NAP = 0.05  # seconds after which a stop is noticed
FIRST_LINES = 2000  # that decide how the rest is read, unless no more come


class _Unlimited:
    """Buffers for whoever only wants to look."""

    def take(self, size: int) -> bytearray:
        return bytearray(size + 1)

    def give_back(self, buffer: bytearray) -> None:
        pass


class LogSource(Source):
    """Logs as a source: reading it ends when it is stopped, or after `until_idle` seconds without a new line."""

    def __init__(
        self,
        patterns: list[str],
        options: Options = Options(),
        *,
        max_line: int = 16_000_000,
        skip_long: bool = True,
        until_idle: float | None = None,
        poll: float = POLL,
        note: Callable[[str], None] = lambda text: None,
        disk: Disk | None = None,
    ) -> None:
        self._patterns = [_checked(pattern) for pattern in dict.fromkeys(patterns)]
        self.parts = [Part(pattern, pattern, None, None) for pattern in self._patterns]
        self.limits = options.limits
        self.max_line = max_line
        self._options = options
        self._skip_long = skip_long
        self._until_idle = until_idle
        self._poll = poll
        self._note = note
        self._disk = disk or Disk()
        self._first = b""
        self.beginning = Marks()
        self.follower: Follower | None = None  # of the reading that goes on
        self.handed_on = 0  # bytes, in that reading

    endless = True
    repeatable = False
    size = None

    @property
    def lag(self) -> int:
        """Bytes that are in the logs and have not been read; any thread may ask."""
        return self.follower.lag if self.follower is not None else 0

    def fingerprint(self) -> None:
        return None

    def identity(self) -> list[list[Any]]:
        """A run may go on with these logs, whatever they hold now: the marks say what has been read of them."""
        return [[pattern, None, "log", ""] for pattern in self._patterns]

    def refuse_if_read_once(self) -> None:
        pass  # they are read once, and a run can go on all the same

    @staticmethod
    def position_of(plain: Any) -> Marks:
        return Marks.restored(plain)

    def _new_follower(self, marks: Marks, stopped: Callable[[], bool]) -> Follower:
        return Follower(
            self._patterns,
            marks,
            self._options,
            max_line=self.max_line,
            skip_long=self._skip_long,
            disk=self._disk,
            note=self._note,
            stopped=stopped,
        )

    def first_lines(self, stopped: Callable[[], bool], patience: float) -> bytes:
        """Wait for the first lines, on which it depends how the rest is read: some, or as many as come at once.

        At most `FIRST_LINES`; fewer if no more come for so many seconds.
        """
        follower = self._new_follower(Marks(), stopped)
        text, since = b"", time.monotonic()
        told = False
        with contextlib.closing(follower):
            with contextlib.suppress(Stopped):
                while text.count(b"\n") < FIRST_LINES and not stopped():
                    before = len(text)
                    for block in follower.round(1 << 20, _Unlimited()):
                        text += bytes(block.buffer[: block.size])
                        if text.count(b"\n") >= FIRST_LINES:
                            break
                    if len(text) > before:
                        since = time.monotonic()
                    patient = patience if text or self._until_idle is None else self._until_idle
                    ended = time.monotonic() - since >= patient
                    if ended and (text or self._until_idle is not None):
                        break
                    if not told and not text:
                        told = True
                        self._note(f"waiting for the first lines of {', '.join(self._patterns)}")
                    self._sleep(self._poll, stopped)
            self.beginning = follower.beginning()
        rest = text.split(b"\n", FIRST_LINES)[-1]
        self._first = text[: len(text) - len(rest)]
        return self._first

    def head(self, size: int, number: int = 0) -> bytes:
        """The first bytes: those of all logs together, or those of a file that is being read."""
        if number and self.follower is not None:
            for log in self.follower.logs.values():
                if log.tail is not None and log.tail.number == number:
                    return bytes_at(log.tail.file, 0, min(size, log.tail.file.size()))
        return self._first[:size]

    def blocks(
        self,
        block_size: int,
        buffers: Buffers,
        stopped: Callable[[], bool],
        start: Any = Marks(),
        cut: Cutter = last_newline,
    ) -> Iterator[Block]:
        """Blocks of whole lines; empty ones while nothing comes."""
        follower = self.follower = self._new_follower(start, stopped)
        self.handed_on = 0
        quiet = time.monotonic()
        with contextlib.closing(follower), contextlib.suppress(Stopped):
            while not stopped():
                began, read = time.monotonic(), 0
                for block in follower.round(block_size, buffers, cut):
                    read += block.size
                    self.handed_on += block.size
                    yield block
                    if stopped():
                        return
                now = time.monotonic()
                if read or not follower.settled:
                    quiet = now
                elif self._until_idle is not None and now - quiet >= self._until_idle:
                    yield self._nothing(follower, block_size, buffers)
                    self._say_unfinished(follower)
                    return
                if not read:
                    yield self._nothing(follower, block_size, buffers)
                    self._sleep(self._poll, stopped)
                elif read < block_size:
                    self._sleep(SHORTEST - (now - began), stopped)

    def _nothing(self, follower: Follower, block_size: int, buffers: Buffers) -> Block:
        return Block(buffers.take(block_size), 0, Origin("", 0, 0), follower.marks(), 0)

    def _say_unfinished(self, follower: Follower) -> None:
        for log in follower.logs.values():
            if log.unfinished:
                self._note(f"{log.path}: the last line has no end yet, and is not learned")

    @staticmethod
    def _sleep(seconds: float, stopped: Callable[[], bool]) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not stopped():
            time.sleep(min(left, NAP))


def _checked(pattern: str) -> str:
    """The path of a log, if it is one that can be followed."""
    if pattern == STDIN:
        raise ConfigError("standard input cannot be followed: streamsvm train - learns from it until it ends")
    if not is_local(pattern):
        raise ConfigError(f"{redact_url(pattern)}: only files of this machine, and of mounts, can be followed")
    path = pattern.split("://", 1)[-1]
    if os.path.exists(path) and not os.path.isdir(path) and not os.path.isfile(path):
        raise ConfigError(f"{path}: is no file, and cannot be followed; streamsvm train - learns from a pipe")
    if is_packed(path) and not is_glob(path):
        raise ConfigError(f"{path}: a compressed file does not grow; learn from it with streamsvm train")
    return path
