"""Following logs: whole lines as they come, each handed on once.

    patterns --look--> logs (logs.py) --whole lines up to the size just seen--> blocks, each with all marks after it

A round looks at every log and reads what has come, oldest log first; then it waits. Looking is asking for sizes again
and again, which works on network file systems too, where notifications do not.

Only whole lines are read; what follows the last newline is read again later. There is no queue that could overflow: a
reader whose blocks nobody takes waits, and the logs keep what has not been read.
"""

import contextlib
import glob
import os
import time
from collections.abc import Callable, Iterator

from streamsvm.errors import DataError, SourceError
from streamsvm.io.log_files import Disk, Info, LogFile, is_packed, opened
from streamsvm.io.logs import REMEMBERED, Log, Options
from streamsvm.io.marks import Id, Mark, Marks
from streamsvm.io.parts import hidden
from streamsvm.io.source import Block, Buffers, Cutter, Origin, last_newline
from streamsvm.io.tails import Tail, Tally, alike, line_after

REDISCOVER = 1.0  # seconds between two looks for files that match a pattern
FORGET, FORGET_FOLDER = 600.0, 86_400.0  # seconds after which a file that is over and gone is forgotten
MOST_OPEN = 128  # files, before those to which nothing happens are closed


class Follower:
    """All logs that are followed, from the marks of an earlier reading on."""

    def __init__(
        self,
        patterns: list[str],
        marks: Marks,
        options: Options = Options(),
        *,
        max_line: int = 16_000_000,
        skip_long: bool = True,
        disk: Disk | None = None,
        note: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._disk = disk or Disk()
        self._options = options
        self._max_line = max_line
        self._skip_long = skip_long
        self._tally = Tally(marks.counts, note, clock, stopped)
        self._clock = clock
        followed = dict.fromkeys(mark.log for mark in marks.files)
        self._globs = [pattern for pattern in patterns if is_glob(pattern) and pattern not in followed]
        self.logs: dict[str, Log] = {}
        self._before: dict[str, list[Mark]] = {}  # where logs stood before anything was read of them
        self._begun = 0
        self._discovered = float("-inf")
        self._waiting: dict[str, tuple[Info, float]] = {}  # compressed files that may not be complete yet
        self._seen: dict[Id, Info] = {}  # files that are over, as they were when that was found
        self._held: set[Id] = set()  # files that logs have open, when patterns were last looked at
        self._sought: set[int] = set()  # and the inodes of those that they look for
        self._absent: dict[Mark, float] = {}  # and those that are gone, since when
        self._plain = [pattern for pattern in patterns if pattern not in self._globs]
        for path in dict.fromkeys([*self._plain, *followed]):
            self._new_log(path, alone=path in self._plain)
        of_log: dict[str, list[Mark]] = {}
        for mark in marks.files:
            of_log.setdefault(mark.log, []).append(mark)
        for path, known in of_log.items():
            self.logs[path].resume(known)
        for path in marks.begun:
            if path in self.logs:
                self.logs[path].begun = True

    def _new_log(self, path: str, *, alone: bool = False) -> None:
        self.logs[path] = Log(path, self._disk, self._options, self._tally, alone=alone, taken=self._taken)

    def marks(self, last: str = "") -> Marks:
        """Where reading stands; the last lines were those of log `last`."""
        files = tuple(mark for log in self.logs.values() for mark in log.marks())
        return Marks(files, self._tally.counts, tuple(path for path in self._plain if self.logs[path].begun), last)

    def first_look(self) -> bool:
        """Look at all logs, and read nothing; whether every one could be looked at."""
        self._discover()
        for log in self.logs.values():
            log.ready()
        return all(self.logs[path].begun for path in self._plain)

    def beginning(self) -> Marks:
        """The marks as if this follower had read nothing yet."""
        logs = {path: log.marks() for path, log in self.logs.items()} | self._before
        begun = tuple(path for path in self._plain if self.logs[path].begun)
        return Marks(tuple(mark for marks in logs.values() for mark in marks), begun=begun)

    @property
    def lag(self) -> int:
        """Bytes that are there and have not been read."""
        return sum(log.lag for log in list(self.logs.values()))

    @property
    def settled(self) -> bool:
        """Whether all is read, and nothing is waited for but new lines."""
        return all(log.settled for log in self.logs.values()) and not self._waiting

    def close(self) -> None:
        for log in self.logs.values():
            log.close()

    # Rounds.

    def round(self, block_size: int, buffers: Buffers, cut: Cutter = last_newline) -> Iterator[Block]:
        """What has come since the last one."""
        self._discover()
        still_open = 0
        for log in list(self.logs.values()):
            if self._tally.stopped():
                return
            while log.ready():
                self._before.setdefault(log.path, log.marks())
                yield from self._blocks(log, block_size, buffers, cut)
                if not log.queue:
                    break
            still_open += log.tail is not None
            if still_open > MOST_OPEN:
                log.park()

    def _blocks(self, log: Log, block_size: int, buffers: Buffers, cut_at: Cutter) -> Iterator[Block]:
        """The whole lines of a log's file up to the size that it had when it was looked at."""
        tail = log.tail
        assert tail is not None
        if not tail.number:
            self._begun += 1
            tail.number = self._begun
        room = block_size
        while not tail.drained:
            buffer = buffers.take(room)
            try:
                filled = self._fill(tail, buffer, room)
                cut = 0 if tail.mark.inside else cut_at(buffer, filled)
            except BaseException as error:
                buffers.give_back(buffer)
                if isinstance(error, OSError | SourceError):
                    log.failed(error)
                    return
                raise
            if cut:
                origin = Origin(tail.mark.path, tail.mark.offset, tail.mark.line)
                if not tail.mark.offset:
                    self._tally.add(files=1)
                with memoryview(buffer) as view:
                    tail.advance(view[:cut], buffer.count(b"\n", 0, cut))
                tail.drained = tail.mark.offset >= tail.file.size()
                yield Block(buffer, cut, origin, self.marks(log.path), tail.number)
                room = block_size
                continue
            try:
                room = self._without_line(tail, buffer, filled, room)
            finally:
                buffers.give_back(buffer)

    def _fill(self, tail: Tail, buffer: bytearray, room: int) -> int:
        """Read what is there, up to the size that the file had."""
        wanted = min(room, tail.file.size() - tail.mark.offset)
        filled = 0
        with memoryview(buffer) as view:
            while filled < wanted and (got := tail.file.read_at(tail.mark.offset + filled, view[filled:wanted])):
                filled += got
        return filled

    def _without_line(self, tail: Tail, buffer: bytearray, filled: int, room: int) -> int:
        """No line ends in what was read: read more at once, pass over a line that is too long, or wait for its end."""
        if tail.mark.inside:
            end = buffer.find(b"\n", 0, filled) + 1
            with memoryview(buffer) as view:
                tail.advance(view[: end or filled], 1 if end else 0, inside=not end)
        elif filled > self._max_line:
            if not self._skip_long:
                place = f"{tail.mark.path}:{tail.mark.line}"
                raise DataError(f"{place}: the line is longer than {self._max_line} bytes (data.max_line)")
            self._tally.add(too_long=1)
            with memoryview(buffer) as view:
                tail.advance(view[:filled], 0, inside=True)
        elif filled == room:
            return 2 * room
        else:
            tail.drained = True
        if tail.mark.offset >= tail.file.size():
            tail.drained = True
        return room

    # Files that match a pattern.

    def _discover(self) -> None:
        """Follow files that were not there before, the oldest first."""
        now = self._clock()
        if not self._globs or now - self._discovered < REDISCOVER:
            return
        self._discovered = now
        found = {path: info for path in self._matching() if (info := self._regular(path)) is not None}
        self._waiting = {path: kept for path, kept in self._waiting.items() if path in found}
        self._held = {tail.id for log in self.logs.values() for tail in log.open_tails()}
        self._sought = {log.wanted.inode for log in self.logs.values() if log.wanted is not None}
        for path in sorted(found, key=lambda path: (found[path].written, found[path].inode)):
            try:
                self._take_up(path, found[path], now)
            except (OSError, SourceError) as error:
                self._tally.failed(path, error)
        self._forget(found)

    def _regular(self, path: str) -> Info | None:
        try:
            info = self._disk.info(path)
        except OSError as error:
            self._tally.failed(path, error)
            return None
        return info if info is not None and info.regular else None

    def _matching(self) -> list[str]:
        """The paths that are asked for; a name is also taken as it stands, if it is one with * or [ in it."""
        paths = []
        for pattern in self._globs:
            within = os.path.join(glob.escape(pattern), "*") if os.path.isdir(pattern) else pattern
            paths += [*self._disk.matching(within), pattern]
        shown = (path for path in dict.fromkeys(paths) if not hidden(os.path.basename(path)))
        return [path for path in shown if self._options.compressed or not is_packed(path)]

    def _take_up(self, path: str, info: Info, now: float) -> None:
        known = info.file in self._held or info.inode in self._sought or self._seen.get(info.file) == info
        if known or self._finished(None, path, info):
            self._waiting.pop(path, None)
            return
        if path in self.logs and not self.logs[path].done:
            return  # it sees by itself that its name is another file's
        if is_packed(path) and not self._complete(path, info, now):
            return
        file = self._opened(path)
        if file is None:
            return
        with contextlib.ExitStack() as closing_it:
            closing_it.callback(file.close)
            if is_packed(path) and not file.size():
                self._seen[file.info.file] = file.info
                return
            read = [(log, mark) for log, mark in self._over() if mark.offset] if is_packed(path) else []
            if not self._went_on(read, file, closing_it) and not _is_copy(path, file, list(self.logs.values())):
                over = self.logs[path].over if path in self.logs else []  # its file has another name now, or is gone
                self._new_log(path)
                self.logs[path].over = over
                if all(self.logs[plain].begun for plain in self._plain):  # which may be about to open it
                    self.logs[path].first = info.file
                self._held.add(info.file)

    def _taken(self, asking: Log, path: str, info: Info) -> bool:
        """Whether another log has this file, or has read it; if there is more in it now, that log goes on with it."""
        others = [log for log in self.logs.values() if log is not asking]
        if any(tail.id == info.file for log in others for tail in log.open_tails()):
            return True
        if self._is_sought(path, info, others) or self._finished(asking, path, info):
            return True
        return any(log.may_be_old(path) for log in others) and self._is_copy_at(path, others)

    def _opened(self, path: str) -> LogFile | None:
        return opened(self._disk, path, self._tally.stopped, self._options.limits)

    def _is_sought(self, path: str, info: Info, logs: list[Log]) -> bool:
        """Whether a log looks for this file; another may have its inode by now."""
        sought = [log.wanted for log in logs if log.wanted is not None and log.wanted.inode == info.inode]
        file = self._opened(path) if sought else None
        if file is None:
            return False
        with contextlib.closing(file):
            return any(mark.is_of(file) for mark in sought)

    def _is_copy_at(self, path: str, logs: list[Log]) -> bool:
        file = self._opened(path)
        if file is None:
            return False
        with contextlib.closing(file):
            return _is_copy(path, file, logs)

    def _finished(self, asking: Log | None, path: str, info: Info) -> bool:
        """Whether another log has read this file to what was its end."""
        same = [
            each for each in self._over() if each[1].inode == info.inode and each[1].offset and each[0] is not asking
        ]
        if not same:
            return False
        with contextlib.ExitStack() as closing_it:
            file = self._opened(path)
            if file is None:
                return True
            closing_it.callback(file.close)
            return self._went_on(same, file, closing_it)

    def _went_on(self, read: list[tuple[Log, Mark]], file: LogFile, closing_it: contextlib.ExitStack) -> bool:
        """If this file was read by a log, let that one go on with it, should there be more in it."""
        fitting = [(log, mark) for log, mark in read if mark.is_of(file)]
        if not fitting:
            return False
        owner, mark = max(fitting, key=lambda each: each[1].offset)
        if line_after(file, mark.offset):
            closing_it.pop_all()
            owner.finish(file, mark)
        else:
            self._seen[file.info.file] = file.info
        return True

    def _complete(self, path: str, info: Info, now: float) -> bool:
        """Whether a compressed file has not changed for a while: it may still be being written."""
        kept, since = self._waiting.get(path, (None, now))
        if kept != info:
            self._waiting[path] = info, now
            return False
        if now - since < self._options.rotate_wait:
            return False
        del self._waiting[path]
        return True

    def _over(self) -> Iterator[tuple[Log, Mark]]:
        """All files that are over, and the logs that have read them."""
        return ((log, mark) for log in self.logs.values() for mark in log.over)

    def _forget(self, found: dict[str, Info]) -> None:
        """Files that are over and have been gone for a while, and logs that have no others.

        If a whole directory seems to be empty, it may be one of another machine that is not connected now.
        """
        now = self._clock()
        there = {info.file for info in found.values()}
        folders = {os.path.dirname(path) for path in found}
        self._seen = {file: info for file, info in self._seen.items() if file in there}
        self._absent = {mark: since for mark, since in self._absent.items() if mark.id not in there}
        for path, log in list(self.logs.items()):
            if path in self._plain:
                continue
            gone = [mark for mark in log.over if mark.id not in there]
            for mark in gone[:-REMEMBERED] if self._options.compressed else gone:
                patience = FORGET if os.path.dirname(mark.path) in folders else FORGET_FOLDER
                if now - self._absent.setdefault(mark, now) > patience:
                    log.over.remove(mark)
            if log.empty and path not in found:
                del self.logs[path]
                self._before.pop(path, None)


def is_glob(pattern: str) -> bool:
    return (glob.has_magic(pattern) and not os.path.exists(pattern)) or os.path.isdir(pattern)


def _is_copy(path: str, file: LogFile, logs: list[Log]) -> bool:
    """Whether this is a copy of a file that is being read: what copytruncate makes before it truncates, or gzip."""
    packed = is_packed(path)
    for log in logs:
        if packed or log.may_be_old(path):
            if log.wanted is not None and log.wanted.offset and log.wanted.is_of(file):
                return True
            if any(alike(tail.file, file) if packed else _copied(tail, file) for tail in log.open_tails()):
                return True
    return False


def _copied(tail: Tail, file: LogFile) -> bool:
    """Whether this is a copy of a file that is being read, and may have been truncated since."""
    if tail.file.look().size >= tail.mark.offset and tail.mark.is_of(tail.file):
        return alike(tail.file, file, whole=False)
    return tail.mark.offset > 0 and tail.mark.is_of(file)
