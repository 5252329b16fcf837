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
FIRST_LINES, FIRST_BYTES = 2000, 1 << 22  # that decide how the rest is read, unless reading ends before
FIRST_BLOCK = 1 << 16  # bytes of them at a time


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
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
        self.beginning = Marks()
        self.follower: Follower | None = None  # of the reading that goes on
        self._stopped: Callable[[], bool] = lambda: False  # whether that is to end
        self._ahead: Follower | None = None  # which has read the first lines, before anything is learned
        self._held: list[Block] = []  # those lines
        self._text = b""
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
        self._stopped = stopped
        return Follower(
            self._patterns,
            marks,
            self._options,
            max_line=self.max_line,
            skip_long=self._skip_long,
            disk=self._disk,
            note=self._note,
            clock=self._clock,
            stopped=lambda: self._stopped(),
        )

    # Before anything is learned.

    def look(self, marks: Marks, stopped: Callable[[], bool]) -> None:
        """See what is there, before anything is read: whatever is there later is new. Or go on from such a look."""
        self._ahead = self._new_follower(marks, stopped)
        with contextlib.suppress(Stopped):
            while not self._ahead.first_look() and not stopped():
                self._sleep(self._poll, stopped)
        self.beginning = marks if marks.begun else self._ahead.marks()

    def first_lines(self, enough: int | None = None) -> Iterator[int]:
        """Wait for the first lines, on which it depends how the rest is read; tells after each look how many there are.

        It ends when as many are there as decide that, or `enough`; if reading is to end, also when no more come.
        """
        assert self._ahead is not None
        wanted = FIRST_LINES if enough is None else min(enough, FIRST_LINES)
        lines, since = 0, self._clock()
        while not self._stopped():
            before = lines
            for block in self._ahead.round(FIRST_BLOCK, _Unlimited()):
                self._held.append(block)
                lines += block.buffer.count(b"\n", 0, block.size)
                self._text += bytes(block.buffer[: block.size])
                if lines >= wanted or len(self._text) >= FIRST_BYTES:
                    self._text = b"".join(self._text.splitlines(keepends=True)[:wanted])
                    return
            if lines > before or not self._ahead.settled:
                since = self._clock()
            elif self._until_idle is not None and self._clock() - since >= self._until_idle:
                return
            if lines > before:
                self.beginning = self._ahead.beginning()
            yield lines
            self._sleep(self._poll, self._stopped)

    def rehearsal(self) -> "LogSource":
        """The lines that were read so far, as a source that ends with them."""
        return _Rehearsal(self)

    def _held_until(self, start: Any, cut: Cutter) -> Follower | None:
        """Who has read the first lines, if that is where reading begins, and they end where a row does."""
        ahead, self._ahead = self._ahead, None
        whole = all(cut(block.buffer, block.size) == block.size for block in self._held)
        if ahead is not None and start == self.beginning and whole:
            return ahead
        if ahead is not None:
            ahead.close()
        self._held = []
        return None

    def close(self) -> None:
        """If nothing is read after all."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def head(self, size: int, number: int = 0) -> bytes:
        """The first bytes: those of all logs together, or those of a file that is being read."""
        if number and self.follower is not None:
            for log in self.follower.logs.values():
                if log.tail is not None and log.tail.number == number:
                    return bytes_at(log.tail.file, 0, min(size, log.tail.file.size()))
        return self._text[:size]

    def blocks(
        self,
        block_size: int,
        buffers: Buffers,
        stopped: Callable[[], bool],
        start: Any = Marks(),
        cut: Cutter = last_newline,
    ) -> Iterator[Block]:
        """Blocks of whole lines; empty ones while nothing comes."""
        follower = self.follower = self._held_until(start, cut) or self._new_follower(start, stopped)
        self._stopped = stopped
        self.handed_on = 0
        quiet = self._clock()
        with contextlib.closing(follower), contextlib.suppress(Stopped):
            for block in self._again(block_size, buffers):
                self.handed_on += block.size
                yield block
                if stopped():
                    return
            while not stopped():
                began, read = self._clock(), 0
                for block in follower.round(block_size, buffers, cut):
                    read += block.size
                    self.handed_on += block.size
                    yield block
                    if stopped():
                        return
                now = self._clock()
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

    def _again(self, block_size: int, buffers: Buffers) -> Iterator[Block]:
        """The first lines, which were held."""
        held, self._held = self._held[::-1], []
        while held:
            block = held.pop()
            buffer = buffers.take(max(block.size, block_size))
            buffer[: block.size] = block.buffer[: block.size]
            yield block._replace(buffer=buffer)

    def _nothing(self, follower: Follower, block_size: int, buffers: Buffers) -> Block:
        return Block(buffers.take(block_size), 0, Origin("", 0, 0), follower.marks(), 0)

    def _say_unfinished(self, follower: Follower) -> None:
        for log in follower.logs.values():
            if log.unfinished:
                self._note(f"{log.path}: the last line has no end yet, and is not learned")

    def _sleep(self, seconds: float, stopped: Callable[[], bool]) -> None:
        until = self._clock() + seconds
        while (left := until - self._clock()) > 0 and not stopped():
            time.sleep(min(left, NAP))


class _Rehearsal(LogSource):
    """The first lines of logs, without those that may come."""

    def __init__(self, source: LogSource) -> None:
        vars(self).update(vars(source), _ahead=None, _held=list(source._held), follower=None)

    def blocks(
        self,
        block_size: int,
        buffers: Buffers,
        stopped: Callable[[], bool],
        start: Any = Marks(),
        cut: Cutter = last_newline,
    ) -> Iterator[Block]:
        return self._again(block_size, buffers)


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
