"""One log and its files: the one that has its name now, those that had it before, and what became of them.

    clicks.log.2   clicks.log.1   clicks.log        over: read to the end       tail: is being read
       over           tail          queue           queue: opened, waits for its turn

A file leaves its name when it is renamed or deleted. It is read to the end all the same, for its writer may not have
noticed, and is over when nothing has come for `rotate_wait`. Only then its successor is begun: so the lines of a log
come in the order in which they were written, and that order does not depend on when somebody looked.

A name that passes to another file twice between two looks would leave out the file in the middle. So when it has, all
files that are named like rotated ones of this log are looked at, and those written later than the last known come in.
"""

import errno
import os
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from streamsvm.errors import SourceError
from streamsvm.io.compression import Limits
from streamsvm.io.log_files import Disk, Info, LogFile, is_packed, opened
from streamsvm.io.marks import LOOKED_AT, Counts, Mark, bytes_at, digest

ROTATED = r"[.-]?[0-9][0-9_:.T-]*"  # what a name gets when it is rotated: .1, -20261117, .2026-11-17
NUMBER = re.compile(r"[.-]([0-9]{1,6})")
REMEMBERED = 64  # files that are over and gone, in case they come back compressed
FIRST_RETRY, LONGEST_RETRY = 0.25, 30.0  # seconds after a failure; twice as long after each further one
COMPLAIN = 60.0  # seconds between two complaints about the same

Order = tuple[int, tuple[int, int, str]]
Id = tuple[int, int]  # device and inode
NOWHERE = (-1, 0, "")  # the rank of a file that has no name any more
STRANGE = (errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG)  # what names of other files may say
PIECE = 1 << 16


class Options(NamedTuple):
    """How logs are followed."""

    rotate_wait: float = 5.0  # seconds without a new line, after which a file that left its name is over
    compressed: bool = False  # whether rotated files that are compressed are read, if they were not before
    limits: Limits = Limits()


class Moved(Exception):  # noqa: N818  (not an error: look again)
    """Files were renamed while they were looked at."""


class Tally:
    """What has happened, counted by all logs together, and told."""

    def __init__(self, counts: Counts, note: Callable[[str], None], clock: Callable[[], float]) -> None:
        self.counts = counts
        self.note = note
        self.clock = clock

    def add(self, **more: int) -> None:
        now = {name: getattr(self.counts, name) + count for name, count in more.items()}
        self.counts = self.counts._replace(**now)


class Tail:
    """A file that is read as it grows: how far that has come, and what the file is known by."""

    def __init__(self, file: LogFile, mark: Mark, now: float) -> None:
        self.file = file
        self.mark = mark._replace(device=file.info.device, inode=file.info.inode, path=file.path)
        self.number = 0  # of this file in this process; given when it is begun
        self.left: float | None = None  # when its name was seen to be another's
        self.grown = now  # when it was seen to grow
        self.drained = False  # whether there is no whole line after the mark
        self._looked: Info | None = None
        self._size = file.size()
        self._head = bytes_at(file, 0, mark.head_size)
        self._tail = bytes_at(file, mark.offset - mark.tail_size, mark.tail_size)

    @property
    def id(self) -> Id:
        return self.mark.device, self.mark.inode

    def look(self, now: float) -> bool:
        """Ask for its size; False if what was read is not there any more."""
        info = self.file.look()
        if info == self._looked:
            return True
        sound = self.file.size() >= self.mark.offset and self._continues()
        if sound:
            if self.file.size() != self._size:
                self.grown, self._size = now, self.file.size()
            self.drained = self._size == self.mark.offset
            self._looked = info
            self.mark = self.mark._replace(written=info.written)
        return sound

    def _continues(self) -> bool:
        head, tail = bytes_at(self.file, 0, len(self._head)), self.mark.offset - len(self._tail)
        return head == self._head and bytes_at(self.file, tail, len(self._tail)) == self._tail

    def advance(self, text: memoryview, lines: int, *, inside: bool = False) -> None:
        """So many bytes and lines more have been read; the mark is `inside` a line, or before one."""
        self._head += bytes(text[: LOOKED_AT - len(self._head)])
        self._tail = (self._tail + bytes(text[-LOOKED_AT:]))[-LOOKED_AT:]
        self.mark = self.mark._replace(
            offset=self.mark.offset + len(text),
            line=self.mark.line + lines,
            head_size=len(self._head),
            head=digest(self._head) if self.mark.head_size < LOOKED_AT else self.mark.head,
            tail_size=len(self._tail),
            tail=digest(self._tail),
            inside=inside,
        )


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
        taken: Callable[[str, Info], bool] = lambda path, info: False,
    ) -> None:
        self.path = path
        self._disk = disk
        self._options = options
        self._tally = tally
        self._alone = alone
        self._taken = taken  # whether another log has this file, or has read it
        self.tail: Tail | None = None
        self.queue: list[Tail] = []
        self.over: list[Mark] = []
        self._wanted: Mark | None = None  # of a run before, or put aside; its file is to be found
        self._since: float | None = None  # when it was first looked for in vain
        self._parked: Info | None = None  # of a file that was closed, because nothing happens to it
        self._broken = 0  # failures in a row
        self._retry = self._complained = float("-inf")
        self._folder, name = os.path.split(path)
        stem, ending = os.path.splitext(name)
        ways = rf"{re.escape(name)}{ROTATED}|{re.escape(stem)}{ROTATED}{re.escape(ending)}"
        self._rotated = re.compile(rf"(?:{ways})(\.[A-Za-z][A-Za-z0-9]*)?")

    # What the others ask.

    def resume(self, marks: list[Mark]) -> None:
        """Go on where a run before stopped."""
        self.over = [mark for mark in marks if mark.over]
        self._wanted = next((mark for mark in marks if not mark.over), None)

    def marks(self) -> list[Mark]:
        """Those that a later run needs to go on."""
        now = [self.tail.mark] if self.tail is not None else [self._wanted] if self._wanted is not None else []
        late = [tail.mark._replace(over=True) for tail in self.queue if tail.mark.offset]
        return [*self.over, *late, *now]

    def has(self, file: Id) -> bool:
        """Whether this file is being read, or waits for it."""
        wanted = self._wanted
        return any(tail.id == file for tail in self._open()) or (
            wanted is not None and (wanted.device, wanted.inode) == file
        )

    @property
    def done(self) -> bool:
        """Whether this is a compressed file that has been read."""
        return is_packed(self.path) and bool(self.over) and self.tail is None and not self.queue

    @property
    def empty(self) -> bool:
        """Whether it has no file, and knows of none."""
        return self.tail is None and self._wanted is None and not self.queue and not self.over

    @property
    def settled(self) -> bool:
        """Whether nothing is to be done unless something new comes."""
        if self._parked is not None or self.done:
            return True
        if self._wanted is not None or self.queue or self._broken:
            return False
        return self.tail is None or (self.tail.drained and self.tail.left is None)

    @property
    def lag(self) -> int:
        """Bytes that are there and have not been read."""
        return sum(max(0, tail.file.size() - tail.mark.offset) for tail in self._open())

    @property
    def unfinished(self) -> bool:
        """Whether the last line has no end yet."""
        return self.tail is not None and self.tail.drained and self.lag > 0

    def _open(self) -> list[Tail]:
        return [*([self.tail] if self.tail is not None else []), *self.queue]

    def close(self) -> None:
        for tail in self._open():
            tail.file.close()

    def finish(self, file: LogFile, mark: Mark) -> None:
        """Read what was added to a file that seemed to be over, before anything else."""
        late = Tail(file, mark._replace(over=False), self._tally.clock())
        if self.tail is not None:
            self.queue.insert(0, self.tail)
        self._begin(late)

    def park(self) -> bool:
        """Close a file to which nothing happens; it is opened again when something does."""
        if self.tail is None or not self.settled:
            return False
        self._parked, self._wanted = self.tail.file.info, self.tail.mark
        self.tail.file.close()
        self.tail = None
        return True

    def ready(self) -> bool:
        """Look at the files; whether there is something to read. What fails is tried again later."""
        now = self._tally.clock()
        if now < self._retry or self.done:
            return False
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
        self._broken = 0
        return found

    def failed(self, error: Exception) -> None:
        """Something could not be read: that may pass. Reading goes on where it stands."""
        now = self._tally.clock()
        self._retry = now + min(FIRST_RETRY * 2.0 ** min(self._broken, 20), LONGEST_RETRY)
        self._broken += 1
        self._tally.add(errors=1)
        if now - self._complained >= COMPLAIN:
            self._complained = now
            reason = getattr(error, "strerror", None) or error
            self._tally.note(f"warning: {self.path}: cannot be read now: {reason}; trying again")

    # Looking.

    def _look(self, now: float) -> bool:
        if self._wanted is not None and not self._find_again(now):
            return False
        self._look_at_name(now)
        if self.tail is None:
            if not self.queue:
                return False
            self._begin(self.queue.pop(0))
            self._look_at_name(now)
        tail = self.tail
        assert tail is not None
        if not tail.look(now):
            self._rewritten(tail, now)
            return self._look(now)
        if tail.drained and self._is_over(tail, now):
            self._end(tail)
            return not self.done and self._look(now)
        return not tail.drained

    def _is_over(self, tail: Tail, now: float) -> bool:
        if is_packed(tail.mark.path):
            return True
        return tail.left is not None and now - max(tail.left, tail.grown) >= self._options.rotate_wait

    def _look_at_name(self, now: float) -> None:
        """See whether the name has passed to another file."""
        named = self._disk.info(self.path)
        if named is not None and not self.has(named.file) and not self._taken(self.path, named):
            self._enqueue(now)
        for tail in self._open():
            here = named is not None and named.file == tail.id
            tail.left = None if here else now if tail.left is None else tail.left

    def _enqueue(self, now: float) -> None:
        """Open the file that has the name now, so that it cannot get lost, and those that had it in between."""
        files = [opened(self._disk, self.path, self._options.limits)]
        named = files[0]
        try:
            if named is None or self.has(named.info.file):
                raise Moved
            missed = self._missed(files) if self._alone else []
            tails = [Tail(file, mark, now) for file, mark in [*missed, (named, self._known(named))]]
        except BaseException:
            for file in filter(None, files):
                file.close()
            raise
        self.queue += tails

    def _begin(self, tail: Tail) -> None:
        self.tail = tail
        self.over = [mark for mark in self.over if (mark.device, mark.inode) != tail.id]
        if not tail.mark.offset:
            self._tally.add(files=1)

    def _new_mark(self, file: LogFile) -> Mark:
        return Mark(self.path, file.path, *file.info.file, written=file.info.written)

    def _end(self, tail: Tail) -> None:
        """The file is over. Its successor is begun next."""
        names = self._rotated_names() if self._alone else {}
        over = tail.mark._replace(path=names.get(tail.id, tail.mark.path), over=True)
        if tail.file.size() > tail.mark.offset:
            self._tally.add(unfinished=1)
            self._tally.note(
                f"warning: {tail.mark.path}: its last line, line {tail.mark.line}, has no end and is not learned"
            )
        tail.file.close()
        self.tail = None
        self.over = [*self._remembered(names), over]

    def _remembered(self, names: dict[Id, str]) -> list[Mark]:
        """Files that are over and gone need not be known, but by their text, if they may come back compressed."""
        if not self._alone:
            return self.over
        gone = [mark for mark in self.over if (mark.device, mark.inode) not in names]
        forgotten = gone[:-REMEMBERED] if self._options.compressed else gone
        return [mark for mark in self.over if mark not in forgotten]

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

    # Files under other names.

    def _rank(self, path: str | None) -> tuple[int, int, str]:
        """How new a file is among those written at the same time, by its name: the name itself is newest, .1 next."""
        if path is None:
            return NOWHERE
        if path == self.path:
            return 1, 0, ""
        number = NUMBER.match(os.path.basename(path)[len(os.path.basename(self.path)) :])
        return (0, -int(number[1]), "") if number else (0, 0, path)

    def _rotated_files(self, *, packed: bool = False) -> Iterator[tuple[str, Info]]:
        """The files that are named like rotated ones of this log: those that are compressed, or the others."""
        for name in self._disk.names(self._folder):
            if self._rotated.fullmatch(name) and is_packed(name) == packed:
                path = os.path.join(self._folder, name)
                info = self._disk.info(path)
                if info is None:
                    raise Moved
                if info.regular:
                    yield path, info

    def _rotated_names(self) -> dict[Id, str]:
        return {info.file: path for path, info in self._rotated_files()}

    def _missed(self, files: list[LogFile | None]) -> list[tuple[LogFile, Mark]]:
        """Files that had the name after the last one known, and have another now; and those that grew when over.

        `files` has the one with the name now; those that are opened are added.
        """
        names = self._rotated_names()
        known = [(mark.written, (mark.device, mark.inode)) for mark in self.over]
        known += [(tail.file.look().written, tail.id) for tail in self._open()]
        if not known:
            return []
        last = max((written, self._rank(names.get(file))) for written, file in known)
        over = {(mark.device, mark.inode) for mark in self.over}
        found: list[tuple[Order, LogFile, Mark]] = []
        for packed in (False, True) if self._options.compressed else (False,):
            for path, info in self._rotated_files(packed=packed):
                order = info.written, self._rank(path)
                late = info.file in over
                if self.has(info.file) or info.file == files[0].info.file or (order <= last and not late):  # type: ignore[union-attr]
                    continue
                file = opened(self._disk, path, self._options.limits)
                files.append(file)
                if file is None or file.info.file != info.file:
                    raise Moved
                mark = self._known(file, by_text=packed)
                if mark.offset and not line_after(file, mark.offset) or (not mark.offset and order <= last):
                    file.close()
                else:
                    found.append((order, file, mark))
        return [(file, mark) for _, file, mark in sorted(found, key=lambda each: each[0])]

    def _known(self, file: LogFile, *, by_text: bool = False) -> Mark:
        """The mark of a file that is over, if this is that file, or one for a new file."""
        for mark in self.over:
            same = (mark.device, mark.inode) == file.info.file
            if (same or (by_text and mark.offset)) and mark.is_of(file):
                return mark._replace(over=False)
        return self._new_mark(file)

    def _find_again(self, now: float) -> bool:
        """Find the file that a run before had not finished; False while it may still turn up."""
        mark = self._wanted
        assert mark is not None
        tail = self._same_file(mark, now) or self._copy_of(mark, now)
        if tail is None and self._options.compressed:
            tail = self._copy_of(mark, now, packed=True)
        if tail is not None:
            self._wanted = self._since = None
            self.tail = tail
            return True
        self._since = now if self._since is None else self._since
        if now - self._since < self._options.rotate_wait:
            return False
        self._wanted = self._since = None
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
        elsewhere = (os.path.join(folder, name) for name in self._disk.names(folder))
        for names in ([mark.path, self.path], elsewhere):
            found = [(path, info) for path in dict.fromkeys(names) if (info := self._stranger(path)) is not None]
            same = [pair for pair in found if pair[1].inode == mark.inode]
            same.sort(key=lambda pair: pair[1].device != mark.device)  # which may have another number after a restart
            for path, info in same:
                if info.device != mark.device and not mark.offset:
                    continue
                file = opened(self._disk, path, self._options.limits)
                if file is None:
                    raise Moved
                if tail := self._tail_of(file, mark, now):
                    return tail
        return None

    def _stranger(self, path: str) -> Info | None:
        """What there is to say of a file that may not be ours to ask about."""
        try:
            info = self._disk.info(path)
        except OSError as error:
            if error.errno in STRANGE:
                return None
            raise
        return info if info is not None and info.regular else None

    def _copy_of(self, mark: Mark, now: float, *, packed: bool = False) -> Tail | None:
        """A rotated file with the text that was read, and perhaps more: the copy that copytruncate makes."""
        if not mark.offset:
            return None
        known = {(other.device, other.inode) for other in self.over}
        for path, info in self._rotated_files(packed=packed):
            if info.file in known or self.has(info.file) or self._taken(path, info):
                continue
            file = opened(self._disk, path, self._options.limits)
            if file is None:
                raise Moved
            if tail := self._tail_of(file, mark, now):
                return tail
        return None

    def _tail_of(self, file: LogFile, mark: Mark, now: float) -> Tail | None:
        """The file from the mark on, if it has the text that the mark knows; else it is closed."""
        try:
            if mark.is_of(file):
                return Tail(file, mark, now)
        except BaseException:
            file.close()
            raise
        file.close()
        return None


def line_after(file: LogFile, offset: int) -> bool:
    """Whether a whole line follows."""
    while piece := bytes_at(file, offset, PIECE):
        if b"\n" in piece:
            return True
        offset += len(piece)
    return False
