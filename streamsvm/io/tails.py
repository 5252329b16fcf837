"""A file of a log that is read as it grows; and what all logs tell and count together."""

from collections.abc import Callable

from streamsvm.io.log_files import Info, LogFile
from streamsvm.io.marks import LOOKED_AT, Counts, Id, Mark, bytes_at, digest

COMPLAIN = 60.0  # seconds between two complaints about the same
PIECE = 1 << 16


class Tally:
    """What has happened, counted by all logs together, and told."""

    def __init__(
        self,
        counts: Counts,
        note: Callable[[str], None],
        clock: Callable[[], float],
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.counts = counts
        self.note = note
        self.clock = clock
        self.stopped = stopped
        self._told: dict[str, float] = {}

    def add(self, **more: int) -> None:
        now = {name: getattr(self.counts, name) + count for name, count in more.items()}
        self.counts = self.counts._replace(**now)

    def failed(self, path: str, error: Exception) -> None:
        """Count a failure; tell it, unless that was done a moment ago."""
        self.add(errors=1)
        now = self.clock()
        self._told = {told: when for told, when in self._told.items() if now - when < COMPLAIN}
        if path not in self._told:
            self._told[path] = now
            reason = getattr(error, "strerror", None) or str(error).removeprefix(f"{path}: ")
            self.note(f"warning: {path}: cannot be read now: {reason}; trying again")


class Tail:
    """A file that is read as it grows: how far that has come, and what the file is known by."""

    def __init__(self, file: LogFile, mark: Mark, now: float) -> None:
        self.file = file
        info = file.info
        self.mark = mark._replace(device=info.device, inode=info.inode, path=file.path, stored=file.stored_end())
        self.number = 0  # of this file in this process; given when it is begun
        self.left: float | None = None  # when its name was seen to be another's
        self.grown = now  # when it was seen to grow
        self.drained = False  # whether there is no whole line after the mark
        self.woke = False  # whether it was empty, and has been written to
        self.whole = False  # whether this is a copy, to which nobody writes
        self._looked: Info | None = None
        self._size = file.size()
        self._head = bytes_at(file, 0, mark.head_size)
        self._tail = bytes_at(file, mark.offset - mark.tail_size, mark.tail_size)
        self._note_head()

    @property
    def id(self) -> Id:
        return self.mark.id

    def look(self, now: float) -> bool:
        """Ask for its size; False if what was read is not there any more."""
        info = self.file.look()
        if info == self._looked:
            return True
        self.woke |= not self._size and info.written != self.mark.written
        self._note_head()
        sound = self.file.size() >= max(self.mark.offset, len(self._head)) and self._continues()
        if sound:
            if self.file.size() != self._size:
                self.grown, self._size = now, self.file.size()
            self.drained = self._size == self.mark.offset
            self._looked = info
            self.mark = self.mark._replace(written=info.written)
        return sound

    def _note_head(self) -> None:
        """While nothing has been read, the first bytes that are there tell which file this is."""
        if self.mark.offset or len(self._head) == LOOKED_AT or self.file.size() <= len(self._head):
            return
        head = bytes_at(self.file, 0, min(self.file.size(), LOOKED_AT))
        if head.startswith(self._head):
            self._head = head
            self.mark = self.mark._replace(head_size=len(head), head=digest(head))

    def _continues(self) -> bool:
        head, tail = bytes_at(self.file, 0, len(self._head)), self.mark.offset - len(self._tail)
        return head == self._head and bytes_at(self.file, tail, len(self._tail)) == self._tail

    def advance(self, text: memoryview, lines: int, *, inside: bool = False) -> None:
        """So many bytes and lines more have been read; the mark is `inside` a line, or before one."""
        known = min(LOOKED_AT, self.mark.offset + len(text))
        if len(self._head) < known:
            self._head += bytes(text[len(self._head) - self.mark.offset : known - self.mark.offset])
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


def line_after(file: LogFile, offset: int) -> bool:
    """Whether a whole line follows."""
    while piece := bytes_at(file, offset, PIECE):
        if b"\n" in piece:
            return True
        offset += len(piece)
    return False


def alike(one: LogFile, other: LogFile, *, whole: bool = True) -> bool:
    """Whether one file has the text of the other, or at least begins with it; by its size, beginning and end."""
    one.look()
    size = other.size()
    places = (0, max(0, size - LOOKED_AT))
    return (one.size() == size or (not whole and one.size() > size)) and all(
        bytes_at(one, place, min(LOOKED_AT, size)) == bytes_at(other, place, LOOKED_AT) for place in places
    )
