"""One log and its files: the one that has its name now, those that had it before, and what became of them.

    clicks.log.2   clicks.log.1   clicks.log        over: read to the end       tail: is being read
       over           tail          queue           queue: opened, waits for its turn

A file leaves its name when it is renamed or deleted. It is read to the end all the same, for its writer may not have
noticed, and is over when nothing has come for `rotate_wait`. Only then its successor is begun: so the lines of a log
come in the order in which they were written, and that order does not depend on when somebody looked.

A name that passes to another file twice between two looks would leave out the file in the middle. So when it has, all
files that are named like rotated ones of this log are looked at, and those that are not known come in, oldest first.
Those that were there at the first look are known, and not read; whatever appears after it is, whether or not there was
a file of that name at the time.

No single answer decides that something is gone: file systems of other machines say that for a moment and take it back.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from streamsvm.errors import SourceError
from streamsvm.io.compression import Limits
from streamsvm.io.log_files import Disk, Info, LogFile, is_packed, opened, stored_end
from streamsvm.io.marks import LOOKED_AT, Id, Mark, bytes_at, digest
from streamsvm.io.rotated_names import Moved, RotatedNames
from streamsvm.io.tails import Tail, Tally, alike, line_after

REMEMBERED = 64  # files that are over and gone, in case they come back compressed
QUEUED = 128  # files that are open and wait for their turn; more may wait in their directory
SOUGHT = 3  # times that a file is looked for at least, and stale handles are tried
FIRST_RETRY, LONGEST_RETRY = 0.25, 30.0  # seconds after a failure; twice as long after each further one
TEXT = ("offset", "line", "head_size", "head", "tail_size", "tail", "inside")  # what a mark says of the text
NOT_OURS = (errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG)  # what names of other files may say


class Sight(NamedTuple):
    """A file that was found under the name of a rotated one."""

    path: str
    info: Info
    file: LogFile | None  # open, if it may have to be read
    mark: Mark | None  # how far it was read, if it is known by its text
    known: bool | None  # whether it came before those that are not; None if its inode alone says so


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
        self.begun = False  # whether it was looked at once, so that whatever appears is new
        self._oldest: Id | None = None  # an inode that the first of the files to come had, while it was empty
        self.wanted: Mark | None = None  # of a run before, or put aside; its file is to be found
        self._since: float | None = None  # when it was first looked for in vain
        self._sought = 0  # and how often
        self._parked: Info | None = None  # of a file that was closed, because nothing happens to it
        self._searched = float("-inf")  # when files were last looked for that had the name
        self._short = 0  # looks in a row that found fewer files than names
        self._unsure = False  # whether the last look did not come to an end
        self._broken = 0  # failures in a row
        self._retry = float("-inf")
        self._ended = False  # whether its last file has been read to the end
        self._names = RotatedNames(path, disk, options.compressed)

    # What the others ask.

    def resume(self, marks: list[Mark]) -> None:
        """Go on where a run before stopped."""
        self.over = [mark for mark in marks if mark.over]
        self.wanted = next((mark for mark in marks if not mark.over), None)
        self._ended = bool(self.over) and self.wanted is None

    def marks(self) -> list[Mark]:
        """Those that a later run needs to go on."""
        now = [self.tail.mark] if self.tail is not None else [self.wanted] if self.wanted is not None else []
        read = [tail.mark._replace(over=True) for tail in self.queue if tail.mark.offset]
        return [*self.over, *read, *now]

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
        return is_packed(self.path) and self._ended and not self.open_tails()

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
            if tail.drained and self._is_over(tail, now):
                self._end(tail)
            else:
                return not tail.drained
        return False

    def _is_over(self, tail: Tail, now: float) -> bool:
        """Whether nothing will come any more; if many files wait, they may be deleted before a late line comes."""
        if tail.whole or is_packed(tail.mark.path) or len(self.queue) >= QUEUED:
            return True
        return tail.left is not None and now - max(tail.left, tail.grown) >= self._options.rotate_wait

    def _look_at_name(self, now: float) -> None:
        """See whether the name has passed to another file, or any of the files is another now."""
        named = self._disk.info(self.path)
        new = named is not None and named.regular and not self.has(named.file) and len(self.queue) < QUEUED
        for tail in self.open_tails():
            if not tail.look(now):
                self._rewritten(tail, now)  # first of all, or its copy would seem to be a file of its own
            elif tail.woke and named is not None and named.file == tail.id:
                self._written_to(tail, now)
        if new and named is not None and not self._is_others(named):
            self._enqueue(now, named)
        elif self._alone and not self.begun:
            self._enqueue(now, None)
        for tail in self.open_tails():
            here = named is not None and named.file == tail.id
            tail.left = None if here else now if tail.left is None else tail.left

    def _is_others(self, named: Info) -> bool:
        return named.file != self.first and self._taken(self, self.path, named)

    def _enqueue(self, now: float, expected: Info | None) -> None:
        """Open the files that had the name since the last look, and the one that has it, so that none gets lost.

        The one that has it first: should it be renamed meanwhile, it is met again under another name.
        """
        with self._closing_unclaimed() as files:
            named = self._named(expected) if expected is not None else None
            files += [named] if named is not None else []
            tail = Tail(named, self._known(named) or self._new_mark(named), now) if named is not None else None
            rotated = self._rotated(files) if self._alone else []
            if named is not None and not any(sight.info.file == named.info.file for sight in rotated):
                rotated.append(self._sight_of(named))
            self.first = None  # later its inode may be another's
            taken: list[Tail] = []
            for sight in self._new_ones(rotated, named):
                if len(self.queue) + len(taken) < QUEUED and not self.has(sight.info.file):
                    mine = tail is not None and sight.file is tail.file  # which is kept, even if it is empty
                    taken += [tail] if mine and tail is not None else self._unread(sight, files, now)
            self.queue += taken

    @contextmanager
    def _closing_unclaimed(self) -> Iterator[list[LogFile]]:
        """A list of files that were opened; those that do not wait for their turn in the end are closed."""
        files: list[LogFile] = []
        try:
            yield files
        finally:
            claimed = {id(tail.file) for tail in self.open_tails()}
            for file in files:
                if id(file) not in claimed:
                    file.close()

    def _named(self, expected: Info) -> LogFile | None:
        """The file that has the name, if one has; where it may be another log's, that which had it a moment ago."""
        try:
            return self._opened(self.path, None if self._alone else expected.file)
        except Moved:
            if self._alone:
                return None
            raise

    def _rotated(self, files: list[LogFile]) -> list[Sight]:
        """The files that have, or seem to have, names of rotated ones; oldest first. Few of very many stay open."""

        def look(path: str) -> Sight | None:
            sight = self._sight(path)
            if sight is not None and sight.file is not None:
                if len(files) > 2 * QUEUED:
                    sight.file.close()
                    return sight._replace(file=None)
                files.append(sight.file)
            return sight

        def drop(sight: Sight) -> None:
            if sight.file is not None:
                files.remove(sight.file)
                sight.file.close()

        found, complete = self._names.look(look, drop)
        self._short = 0 if complete or self._short == SOUGHT else self._short + 1
        if self._short:
            raise Moved  # a file may seem to be missing for a moment; it is believed when it is said again and again
        return self._names.oldest_first(found, self._options.rotate_wait)

    def _sight(self, path: str) -> Sight | None:
        """What is found under a name. An open file is what it is, whatever name it gets meanwhile."""
        if is_packed(path):
            info = self._stranger(path)
            return Sight(path, info, None, None, self.has(info.file)) if info is not None else None
        try:
            file = opened(self._disk, path, self._tally.stopped, self._options.limits)
        except PermissionError:
            info = self._disk.info(path)
            if info is None or (self.begun and not any(mark.id == info.file for mark in self.over)):
                raise
            return Sight(path, info, None, None, True)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            return None
        if file is None:
            return None
        try:
            return self._sight_of(file)
        except BaseException:
            file.close()
            raise

    def _sight_of(self, file: LogFile) -> Sight:
        """An open file, closed if there is nothing to read in it."""
        if self.has(file.info.file):
            file.close()
            return Sight(file.path, file.info, None, None, True)
        mark = self._known(file)
        known = True if mark is not None else None if file.info.file == self._oldest else False
        if mark is None or line_after(file, mark.offset):
            return Sight(file.path, file.info, file, mark, known)
        file.close()
        return Sight(file.path, file.info, None, mark, known)

    def _new_ones(self, found: list[Sight], named: LogFile | None) -> list[Sight]:
        """Those that have not been read. At the first look, those that are older than the one that has the name."""
        if self._alone and not self.begun:
            place = [sight.info.file for sight in found].index(named.info.file) if named is not None else len(found)
            self.over = [self._old_mark(sight) for sight in found[:place]]
            self.begun = True
            return found[place:]
        self.begun = True
        if named is not None and self._alone:
            self._forget({sight.info.file for sight in found})
        return found

    def _found_missed(self, now: float) -> bool:
        """Look, from time to time, for files that had the name, while none has it."""
        if self._alone and self.begun and now - self._searched >= self._options.rotate_wait:
            self._searched = now
            self._enqueue(now, None)
        return bool(self.queue)

    def _begin(self, tail: Tail) -> None:
        """Read this file next. If it has the inode of one that is over, it is that one, or that one is gone."""
        self.tail = tail
        others = [mark for mark in self.over if mark.id != tail.id]
        gone = [mark._replace(device=0, inode=0) for mark in self.over if mark.id == tail.id and not tail.mark.offset]
        self.over = gone + others

    def _end(self, tail: Tail) -> None:
        """The file is over. Its successor is begun next."""
        if tail.file.size() > tail.mark.offset:
            self._tally.add(unfinished=1)
            self._tally.note(
                f"warning: {tail.mark.path}: its last line, line {tail.mark.line}, has no end and is not learned"
            )
        tail.file.close()
        self.tail, self._ended = None, True
        self.over.append(tail.mark._replace(over=True))

    def _rewritten(self, tail: Tail, now: float) -> None:
        """The file was cut off or written anew, so it is another now; the rest of what it was may be in a copy."""
        copy = self._copy_of(tail.mark, now)
        if copy is not None:
            copy.whole = True
        fresh = Tail(tail.file, self._new_mark(tail.file), now)
        try:
            missed = self._missed_copies(fresh, copy, now)
        except BaseException:
            if copy is not None:
                copy.file.close()
            raise
        self._tally.add(truncated=1)
        rest = (
            "the rest is read from its copy, but for lines that came while that was made"
            if copy
            else ("what was not read of it before is lost")
        )
        self._tally.note(f"warning: {self.path}: was truncated or written anew at byte {tail.mark.offset:,}; {rest}")
        instead = [*([copy] if copy is not None else []), *missed, fresh]
        if tail is self.tail:
            self.tail, self.queue = copy, [*(instead[1:] if copy is not None else instead), *self.queue]
        elif tail in self.queue:
            place = self.queue.index(tail)
            self.queue[place : place + 1] = instead
        else:
            place = self._late.index(tail)
            self._late[place : place + 1] = instead[::-1]

    def _written_to(self, tail: Tail, now: float) -> None:
        """The file was empty: since then it may have been written to, copied and truncated, more than once."""
        missed = self._missed_copies(tail, None, now)
        tail.woke = False
        copies = [each for each in missed if not is_packed(each.mark.path)]
        if copies:
            self._tally.add(truncated=len(copies))
            self._tally.note(f"warning: {self.path}: was copied and truncated while nobody looked; its copies are read")
        if tail is self.tail:
            self.tail, self.queue = None, [*missed, tail, *self.queue]
        elif tail in self.queue:
            place = self.queue.index(tail)
            self.queue[place:place] = missed

    def _missed_copies(self, fresh: Tail, copy: Tail | None, now: float) -> list[Tail]:
        """What else the file was since the last look, if it was copied and truncated more than once."""
        if not self._alone:
            return []
        found: list[Tail] = []
        with self._closing_unclaimed() as files:
            for sight in self._rotated(files):
                if sight.info.file == fresh.id:
                    break  # it was renamed meanwhile: what follows is newer
                new = not self.has(sight.info.file) and (copy is None or sight.info.file != copy.id)
                if new and not (sight.file is not None and alike(fresh.file, sight.file, whole=False)):
                    found += self._unread(sight, files, now)
            for tail in found:
                files.remove(tail.file)
        return found

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

    def _old_mark(self, sight: Sight) -> Mark:
        """That of a file which was rotated before this log was followed: only what is added to it counts."""
        path, info, file = sight.path, sight.info, sight.file
        mark = Mark(self.path, path, *info.file, written=info.written, over=True)
        if is_packed(path):
            return mark._replace(stored=stored_end(self._disk, path))
        if file is None:
            return mark._replace(offset=info.size)
        size = info.size
        head = bytes_at(file, 0, min(size, LOOKED_AT))
        tail = bytes_at(file, max(0, size - LOOKED_AT), min(size, LOOKED_AT))
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
        known = (mark for mark in self.over if mark.inode == file.info.inode and mark.tells and mark.is_of(file))
        return next((mark._replace(over=False) for mark in known), None)

    def _unread(self, sight: Sight, files: list[LogFile], now: float) -> list[Tail]:
        """The file from where it was left, if there is more in it than was read; `files` are those that are open."""
        path, info, file, mark, _ = sight
        if is_packed(path):
            return self._unread_packed(path, info, files, now)
        if file is None and mark is None and not sight.known:
            file = self._opened(path, info.file)  # which was closed, because there are very many
            files.append(file)
        if file is None or (mark is None and self._has_nothing(file)):
            return []
        return [Tail(file, mark or self._new_mark(file), now)]

    def _unread_packed(self, path: str, info: Info, files: list[LogFile], now: float) -> list[Tail]:
        if self._seen_packed(path, info):
            return []
        try:
            file = self._opened(path, info.file)
        except SourceError as error:
            self._tally.failed(path, error)  # it is not complete yet, or never will be
            return []
        files.append(file)
        mark = self._known_by_text(file)
        if mark is None and self._has_nothing(file):
            return []
        others = [*(tail.file for tail in self.open_tails()), *(other for other in files if other is not file)]
        if not any(alike(other, file) for other in others):
            if mark is None or line_after(file, mark.offset):
                return [Tail(file, mark or self._new_mark(file), now)]
            self.over.insert(0, self._new_mark(file)._replace(over=True))
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
        known = [mark for mark in self.over if mark.tells and mark.is_of(file)]
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
            if mark.tells:
                self.tail = tail
            else:  # it was empty, so it may be any: it comes in its turn
                tail.file.close()
                self._oldest = mark.id
            return True
        self._since = now if self._since is None else self._since
        self._sought += 1
        if now - self._since < self._options.rotate_wait or self._sought < SOUGHT:
            return False
        self.wanted, self._since, self._sought = None, None, 0
        if not mark.tells and self._options.compressed:
            return True  # it was empty, and is compressed by now: it will be met as a file that is new
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
                if (info.device == mark.device or mark.tells) and (tail := self._tail_of(path, info, mark, now)):
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
        if not mark.tells:
            return None
        for path in self._names.everything():
            info = self._stranger(path)
            if info is None or any(tail.id == info.file for tail in self.open_tails()) or self._taken(self, path, info):
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
