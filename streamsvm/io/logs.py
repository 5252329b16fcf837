"""One log and its files: the one that has its name now, those that had it before, and what became of them.

    clicks.log.2   clicks.log.1   clicks.log        over: read to the end       tail: is being read
       over           tail          queue           queue: opened, waits for its turn

A file leaves its name when it is renamed or deleted. It is read to the end all the same, for its writer may not have
noticed, and is over when nothing has come for `rotate_wait`. Only then its successor is begun: so the lines of a log
come in the order in which they were written, and that order does not depend on when somebody looked.

A name that passes to another file twice between two looks would leave out the file in the middle. So when it has, all
files that are named like rotated ones of this log are looked at, and those that are not known come in, oldest first.
Those that were there when the log was first seen are known, and not read.

No single answer decides that something is gone: file systems of other machines say that for a moment and take it back.
"""

import errno
import os
from collections.abc import Callable
from typing import NamedTuple

from streamsvm.errors import SourceError
from streamsvm.io.compression import Limits
from streamsvm.io.log_files import Disk, Info, LogFile, is_packed, opened, stored_end
from streamsvm.io.marks import LOOKED_AT, Id, Mark, bytes_at, digest
from streamsvm.io.rotated_names import Moved, RotatedNames
from streamsvm.io.tails import Tail, Tally, alike, line_after

REMEMBERED = 64  # files that are over and gone, in case they come back compressed
QUEUED = 16  # files that are open and wait for their turn; more may wait in their directory
SOUGHT = 3  # times that a file is looked for at least, and stale handles are tried
FIRST_RETRY, LONGEST_RETRY = 0.25, 30.0  # seconds after a failure; twice as long after each further one
TEXT = ("offset", "line", "head_size", "head", "tail_size", "tail", "inside")  # what a mark says of the text
NOT_OURS = (errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG)  # what names of other files may say


class Options(NamedTuple):
    """How logs are followed."""

    rotate_wait: float = 5.0  # seconds without a new line, after which a file that left its name is over
    compressed: bool = False  # whether rotated files that are compressed are read, if they were not before
    limits: Limits = Limits()


class Log:
    """A log that is followed by its name, through all its files; unless `alone`, its rotated files may be others'."""

    def __init__(
        self,
        path: str,
        disk: Disk,
        options: Options,
        tally: Tally,
        *,
        alone: bool = True,
        taken: Callable[["Log", str, Info], bool] = lambda log, path, info: False,
    ) -> None:
        self.path = path
        self._disk = disk
        self._options = options
        self._tally = tally
        self._alone = alone
        self._taken = taken  # whether another log has this file, or has read it
        self.first: Id | None = None  # a file that is known to be no other's
        self.tail: Tail | None = None
        self.queue: list[Tail] = []
        self.over: list[Mark] = []
        self._late: list[Tail] = []  # files that seemed to be over, to be read before anything else
        self._gone: set[Id] = set()  # files that are over and were not there when that was last looked for
        self.wanted: Mark | None = None  # of a run before, or put aside; its file is to be found
        self._since: float | None = None  # when it was first looked for in vain
        self._sought = 0  # and how often
        self._parked: Info | None = None  # of a file that was closed, because nothing happens to it
        self._searched = float("-inf")  # when files were last looked for that had the name
        self._unsure = False  # whether the last look did not come to an end
        self._broken = 0  # failures in a row
        self._retry = float("-inf")
        self._names = RotatedNames(path, disk, options.compressed)

    # What the others ask.

    def resume(self, marks: list[Mark]) -> None:
        """Go on where a run before stopped."""
        self.over = [mark for mark in marks if mark.over]
        self.wanted = next((mark for mark in marks if not mark.over), None)

    def marks(self) -> list[Mark]:
        """Those that a later run needs to go on."""
        now = [self.tail.mark] if self.tail is not None else [self.wanted] if self.wanted is not None else []
        begun = [tail.mark._replace(over=True) for tail in self.queue if tail.mark.offset]
        return [*self.over, *begun, *now]

    def has(self, file: Id) -> bool:
        """Whether this file is being read, or waits for it. The device of one that is sought may have a new number."""
        return any(tail.mark.id == file for tail in self.open_tails()) or (
            self.wanted is not None and self.wanted.inode == file[1]
        )

    def may_be_old(self, path: str) -> bool:
        """Whether the name is one that a rotated file of this log may have."""
        return self._names.may_be_old(path)

    @property
    def done(self) -> bool:
        """Whether this is a compressed file that has been read."""
        return is_packed(self.path) and bool(self.over) and not self.open_tails()

    @property
    def empty(self) -> bool:
        """Whether it has no file, and knows of none."""
        return self.wanted is None and not self.over and not self.open_tails()

    @property
    def settled(self) -> bool:
        """Whether nothing is to be done unless something new comes."""
        if self._parked is not None or self.done:
            return True
        if self.wanted is not None or self.queue or self._late or self._broken or self._unsure:
            return False
        return self.tail is None or (self.tail.drained and self.tail.left is None)

    @property
    def lag(self) -> int:
        """Bytes that are there and have not been read."""
        return sum(max(0, tail.file.size() - tail.mark.offset) for tail in self.open_tails())

    @property
    def unfinished(self) -> bool:
        """Whether the last line has no end yet."""
        return self.tail is not None and self.tail.drained and self.lag > 0

    def open_tails(self) -> list[Tail]:
        """The files that are open, in the order in which they will be read, but for late ones."""
        return [*([self.tail] if self.tail is not None else []), *self.queue, *self._late]

    def close(self) -> None:
        for tail in self.open_tails():
            tail.file.close()
        self.tail, self.queue, self._late = None, [], []

    def finish(self, file: LogFile, mark: Mark) -> None:
        """Read what was added to a file that seemed to be over, before anything else."""
        self._late.append(Tail(file, mark._replace(over=False), self._tally.clock()))
        self._parked = None

    def park(self) -> None:
        """Close a file to which nothing happens; it is opened again when something does."""
        if self.tail is not None and self.settled:
            self._parked, self.wanted = self.tail.file.info, self.tail.mark
            self.close()

    def ready(self) -> bool:
        """Look at the files; whether there is something to read. What fails is tried again later."""
        now = self._tally.clock()
        if now < self._retry or self.done:
            return False
        self._unsure = True
        try:
            if self._parked is not None and self._disk.info(self.path) == self._parked:
                return False
            self._parked = None
            found = self._look(now)
        except Moved:
            return False
        except (OSError, SourceError) as error:
            self.failed(error)
            return False
        self._unsure = False
        if not found:
            self._broken = 0
        return found

    def failed(self, error: Exception) -> None:
        """Something could not be read: that may pass. Reading goes on where it stands."""
        self._retry = self._tally.clock() + min(FIRST_RETRY * 2.0 ** min(self._broken, 20), LONGEST_RETRY)
        self._broken += 1
        self._tally.failed(self.path, error)
        if getattr(error, "errno", None) == errno.ESTALE and self._broken > SOUGHT:  # for good, if it was deleted
            marks = self.marks()
            self.close()
            self.resume(marks)

    # Looking.

    def _look(self, now: float) -> bool:
        if self.wanted is not None and not self._find_again(now):
            return False
        while self._late:
            self.queue = [*([self.tail] if self.tail is not None else []), *self.queue]
            self._begin(self._late.pop())
        while not self.done:
            self._look_at_name(now)
            if self.tail is None:
                if not self.queue and not self._found_missed(now):
                    return False
                self._begin(self.queue.pop(0))
                continue
            tail = self.tail
            if not tail.look(now):
                self._rewritten(tail, now)
            elif tail.drained and self._is_over(tail, now):
                self._end(tail)
            else:
                return not tail.drained
        return False

    def _is_over(self, tail: Tail, now: float) -> bool:
        if is_packed(tail.mark.path):
            return True
        return tail.left is not None and now - max(tail.left, tail.grown) >= self._options.rotate_wait

    def _look_at_name(self, now: float) -> None:
        """See whether the name has passed to another file."""
        named = self._disk.info(self.path)
        new = named is not None and named.regular and not self.has(named.file) and len(self.queue) < QUEUED
        if named is not None and new and not self._is_others(named):
            if self.tail is not None and not self.tail.look(now):
                self._rewritten(self.tail, now)  # first of all, or its copy would seem to be a file of its own
            self._enqueue(now)
        for tail in self.open_tails():
            here = named is not None and named.file == tail.id
            tail.left = None if here else now if tail.left is None else tail.left

    def _is_others(self, named: Info) -> bool:
        return named.file != self.first and self._taken(self, self.path, named)

    def _enqueue(self, now: float) -> None:
        """Open the files that had the name since the last look, and the one that has it, so that none gets lost."""
        self.first = None  # later its inode may be another's
        named = self._opened(self.path)
        try:
            tail = Tail(named, self._known(named) or self._new_mark(named), now)
            if self._alone:
                self._enqueue_missed(now, tail.id)
        except BaseException:
            named.close()
            raise
        if len(self.queue) < QUEUED:
            self.queue.append(tail)
        else:
            named.close()  # for now

    def _enqueue_missed(self, now: float, named: Id | None) -> None:
        rotated = [found for found in self._names.files(named is not None) if found[1].file != named]
        still = self._disk.info(self.path)
        if (still.file if still is not None else None) != named:
            raise Moved
        if self.empty:
            self.over = [self._old_mark(path, info) for path, info in rotated]
            return
        if named is not None:
            self._forget({named, *(info.file for _, info in rotated)})
        for path, info in self._names.oldest_first(rotated):
            if len(self.queue) < QUEUED and not self.has(info.file):
                self.queue += self._unread(path, info, now)

    def _found_missed(self, now: float) -> bool:
        """Look, from time to time, for files that had the name, while none has it."""
        if self._alone and not self.empty and now - self._searched >= self._options.rotate_wait:
            self._searched = now
            self._enqueue_missed(now, None)
        return bool(self.queue)

    def _begin(self, tail: Tail) -> None:
        """Read this file next. If it has the inode of one that is over, it is that one, or that one is gone."""
        self.tail = tail
        others = [mark for mark in self.over if mark.id != tail.id]
        gone = [mark._replace(device=0, inode=0) for mark in self.over if mark.id == tail.id and not tail.mark.offset]
        self.over = gone + others
        if not tail.mark.offset:
            self._tally.add(files=1)

    def _end(self, tail: Tail) -> None:
        """The file is over. Its successor is begun next."""
        if tail.file.size() > tail.mark.offset:
            self._tally.add(unfinished=1)
            self._tally.note(
                f"warning: {tail.mark.path}: its last line, line {tail.mark.line}, has no end and is not learned"
            )
        tail.file.close()
        self.tail = None
        self.over.append(tail.mark._replace(over=True))

    def _rewritten(self, tail: Tail, now: float) -> None:
        """The file was cut off or written anew, so it is another now; the rest of what it was may be in a copy."""
        copy = self._copy_of(tail.mark, now)
        fresh = Tail(tail.file, self._new_mark(tail.file), now)
        self._tally.add(truncated=1)
        rest = "the rest is read from its copy" if copy else "what was not read of it before is lost"
        self._tally.note(f"warning: {self.path}: was truncated or written anew at byte {tail.mark.offset:,}; {rest}")
        if copy is not None:
            self.queue.insert(0, fresh)
            self.tail = copy
        else:
            self._begin(fresh)

    # What is known of a file.

    def _opened(self, path: str, file: Id | None = None) -> LogFile:
        """The file of that name, if it is still the one it was."""
        opened_now = opened(self._disk, path, self._tally.stopped, self._options.limits)
        if opened_now is None:
            raise Moved
        if file is not None and opened_now.info.file != file:
            opened_now.close()
            raise Moved
        return opened_now

    def _new_mark(self, file: LogFile) -> Mark:
        return Mark(self.path, file.path, *file.info.file, written=file.info.written, stored=file.stored_end())

    def _old_mark(self, path: str, info: Info) -> Mark:
        """That of a file which was rotated before this log was followed: only what is added to it counts."""
        mark = Mark(self.path, path, *info.file, written=info.written, over=True)
        if is_packed(path):
            return mark._replace(stored=stored_end(self._disk, path))
        size = info.size
        try:
            file = self._opened(path, info.file)
        except PermissionError:
            return mark._replace(offset=size)
        try:
            head, tail = bytes_at(file, 0, min(size, LOOKED_AT)), bytes_at(file, max(0, size - LOOKED_AT), LOOKED_AT)
        finally:
            file.close()
        return mark._replace(
            offset=size,
            head_size=len(head),
            head=digest(head),
            tail_size=len(tail),
            tail=digest(tail),
            inside=bool(tail) and not tail.endswith(b"\n"),
        )

    def _known(self, file: LogFile) -> Mark | None:
        """The mark of a file that is over, if this is that file; the device may have another number now."""
        known = (mark for mark in self.over if mark.inode == file.info.inode and mark.offset and mark.is_of(file))
        return next((mark._replace(over=False) for mark in known), None)

    def _unread(self, path: str, info: Info, now: float) -> list[Tail]:
        """The file from where it was left, if there is more in it than was read."""
        packed = is_packed(path)
        if packed and self._seen_packed(path, info):
            return []
        try:
            file = self._opened(path, info.file)
        except SourceError as error:
            self._tally.failed(path, error)  # it is not complete yet, or never will be
            return []
        try:
            mark = self._known_by_text(file) if packed else self._known(file)
            if mark is None and self._has_nothing(file):
                file.close()
                return []
            if not packed or not any(alike(tail.file, file) for tail in self.open_tails()):
                if mark is None or line_after(file, mark.offset):
                    return [Tail(file, mark or self._new_mark(file), now)]
                if packed:
                    self.over.insert(0, self._new_mark(file)._replace(over=True))
        except BaseException:
            file.close()
            raise
        file.close()
        return []

    def _has_nothing(self, file: LogFile) -> bool:
        """Whether a file is empty, or was over without a whole line, and still has none."""
        known = not file.size() or any(mark.id == file.info.file and not mark.offset for mark in self.over)
        return known and not line_after(file, 0)

    def _seen_packed(self, path: str, info: Info) -> bool:
        """Whether a compressed file is known by itself, or is just being made."""
        seen = [mark for mark in self.over if mark.inode == info.inode and is_packed(mark.path)]
        if seen and stored_end(self._disk, path) in [mark.stored for mark in seen]:
            return True
        return self._disk.info(os.path.splitext(path)[0]) is not None

    def _known_by_text(self, file: LogFile) -> Mark | None:
        """The mark of the plain file that this compressed one was made of."""
        known = [mark for mark in self.over if mark.offset and mark.is_of(file)]
        if not known:
            return None
        mark = max(known, key=lambda mark: mark.offset)
        now = self._new_mark(file)
        return now._replace(**{name: getattr(mark, name) for name in TEXT})

    def _forget(self, there: set[Id]) -> None:
        """Files that are over and gone need not be known, but by their text, if they may come back compressed.

        They are gone if they were not there twice; the last one is kept, to know that this log is no new one.
        """
        if not self._alone:
            return
        gone = [mark for mark in self.over[:-1] if mark.id not in there]
        forgotten = [mark for mark in gone if mark.id in self._gone]
        if self._options.compressed:
            forgotten = forgotten[:-REMEMBERED]
        self.over = [mark for mark in self.over if mark not in forgotten]
        self._gone = {mark.id for mark in gone}

    # Files under other names.

    def _find_again(self, now: float) -> bool:
        """Find the file that a run before had not finished; False while it may still turn up."""
        mark = self.wanted
        assert mark is not None
        try:
            tail = self._same_file(mark, now) or self._copy_of(mark, now)
        except (FileNotFoundError, NotADirectoryError):
            tail = None
        if tail is not None:
            self.wanted, self._since, self._sought = None, None, 0
            if tail.mark.offset:
                self.tail = tail
            else:  # of which nothing was read, so it may be any: it comes in its turn
                tail.file.close()
                self.over = self.over or [mark._replace(device=0, inode=0, over=True)]
            return True
        self._since = now if self._since is None else self._since
        self._sought += 1
        if now - self._since < self._options.rotate_wait or self._sought < SOUGHT:
            return False
        self.wanted, self._since, self._sought = None, None, 0
        self._tally.add(lost=1)
        self._tally.note(
            f"warning: {mark.path}: the file that was read up to line {mark.line} is gone; "
            "lines that were added to it since are lost"
        )
        self.over.append(mark._replace(over=True))
        return True

    def _same_file(self, mark: Mark, now: float) -> Tail | None:
        """The file that the mark is of, under whatever name it has in its directory."""
        folder = os.path.dirname(mark.path)
        for likely in (True, False):
            names = [mark.path, self.path] if likely else [os.path.join(folder, n) for n in self._disk.names(folder)]
            found = [(path, info) for path in dict.fromkeys(names) if (info := self._stranger(path)) is not None]
            same = [pair for pair in found if pair[1].inode == mark.inode]
            same.sort(key=lambda pair: pair[1].device != mark.device)  # which may have another number after a restart
            for path, info in same:
                if (info.device == mark.device or mark.offset) and (tail := self._tail_of(path, info, mark, now)):
                    return tail
        return None

    def _stranger(self, path: str) -> Info | None:
        """What there is to say of a file that may not be ours to ask about."""
        try:
            info = self._disk.info(path)
        except OSError as error:
            if error.errno in NOT_OURS:
                return None
            raise
        return info if info is not None and info.regular else None

    def _copy_of(self, mark: Mark, now: float) -> Tail | None:
        """A rotated file with the text that was read, and perhaps more: the copy that copytruncate makes, or gzip."""
        if not mark.offset:
            return None
        for path, info in self._names.everything():
            if any(tail.id == info.file for tail in self.open_tails()) or self._taken(self, path, info):
                continue
            if tail := self._tail_of(path, info, mark, now):
                return tail
        return None

    def _tail_of(self, path: str, info: Info, mark: Mark, now: float) -> Tail | None:
        """The file from the mark on, if it has the text that the mark knows."""
        try:
            file = self._opened(path, info.file)
        except SourceError:
            return None  # compressed, and not complete
        try:
            if mark.is_of(file) and self._known(file) is None:
                return Tail(file, mark, now)
        except BaseException:
            file.close()
            raise
        file.close()
        return None
