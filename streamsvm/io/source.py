"""Where bytes come from: paths, globs, directories, standard input and fsspec urls, cut into blocks of whole lines.

A Source is a recipe. Each pass opens its parts again, one after the other in the order given, and cuts them into
Blocks that end at a newline. A missing newline at the end of a file is added; blocks never span two files. Every block
says at which Position reading goes on after it: another reading, in another process, can begin there.
"""

import os
import select
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple, Protocol

from streamsvm.errors import DataError, SourceError
from streamsvm.io.compression import FIRST_MEMBER, HEAD, Inflated, Limits, MemberStart, promised, sniff
from streamsvm.io.foreign import STORED, refuse_foreign
from streamsvm.io.marks import Marks
from streamsvm.io.parts import Part, find_parts, identified, open_part
from streamsvm.io.urls import is_local, reason, scheme_of

POLL_SECONDS = 0.1
SKIPPED = 1 << 18  # bytes passed over at a time
BEGINNING_BYTES = 1 << 12  # of a text that tell whether it is one
PARTS_AHEAD = 3  # remote parts whose first bytes are fetched before their turn


class Origin(NamedTuple):
    """Where a block came from; travels beside the batch, never into a kernel."""

    url: str  # safe to show
    offset: int  # bytes of (decompressed) text before it
    line: int  # number of its first line, counted from 1; 0 until known


class Position(NamedTuple):
    """A place between two lines of a source, from which reading can go on."""

    part: int = 0  # files before this one have been read
    offset: int = 0  # bytes of (decompressed) text before it in this file
    stored: int = 0  # where in the stored bytes a decompressor can begin; 0 for plain files
    text: int = 0  # bytes of text before that


BEGINNING = Position()


class Block(NamedTuple):
    """Whole lines: `buffer[:size]`, the last byte a newline."""

    buffer: bytearray
    size: int
    origin: Origin
    after: Position | Marks  # where reading goes on after this block
    part: int  # the number of its file


class Buffers(Protocol):
    """What the cutter needs from whoever owns the memory."""

    def take(self, size: int) -> bytearray:
        """A buffer with room for `size` bytes and a newline; waits until there is memory for it."""

    def give_back(self, buffer: bytearray) -> None: ...


Cutter = Callable[[bytearray, int], int]  # where the last whole line of the first so many bytes ends; 0 if none does


def last_newline(buffer: bytearray, filled: int) -> int:
    return buffer.rfind(b"\n", 0, filled) + 1


class _Input:
    """An open part, read from `start` on: `readinto`, and `waiting` for whether that would have to wait for the writer.

    The first bytes are looked at wherever reading begins: they tell what kind of file this is.
    """

    def __init__(
        self,
        part: Part,
        start: Position,
        limits: Limits,
        stopped: Callable[[], bool],
        raw: Any = None,
        stop: int | None = None,
    ) -> None:
        self.shown = part.shown
        self._left = None if stop is None else stop - start.offset  # plain bytes before the end of what is wanted
        self._part = start.part
        self.stopped = stopped
        self._raw: Any = raw or open_part(part, stopped=lambda: self.stopped())
        self._returned = b""  # plain bytes that were looked at, and come again
        self._inflated: Inflated | None = None
        piped = part.size is None and is_local(part.url) and os.name == "posix"
        self._descriptor: int | None = self._raw.fileno() if piped else None
        try:
            self._head = self._first_bytes()
            codec = self._codec()
            self._move_to(start.stored if codec else start.offset)
            if codec:
                member = MemberStart(start.stored, start.text)
                self._inflated = Inflated(self, codec, limits, part.shown, member)
                self._pass_over(start.offset - start.text)
        except BaseException:
            self._raw.close()
            raise

    def _codec(self) -> str | None:
        """What the first bytes say, if that is something to be read and what the name says."""
        refuse_foreign(self._head, self.shown, STORED)
        codec = sniff(self._head)
        expected = promised(self.shown)
        if expected and codec != expected and not self.stopped():
            what = f"does not hold {expected} data" if self._head else "is empty"
            raise SourceError(f"{self.shown}: {what}, although its name says so")
        return codec

    def _move_to(self, place: int) -> None:
        """Go on at byte `place` of what is stored."""
        if not place:
            return
        try:
            self._raw.seek(0, os.SEEK_END)
            size = self._raw.tell()
            self._raw.seek(place)
        except Exception:  # some remote files are mere streams, and each kind has an exception of its own for it
            self._pass_over(place)
            return
        if size < place:
            raise SourceError(self._too_short())
        self._head = b""

    def _pass_over(self, size: int) -> None:
        """Read `size` bytes that nobody wants, in pieces, so that a stop is noticed."""
        view = memoryview(bytearray(min(size, SKIPPED)))
        while size and not self.stopped():
            got = self._readinto(view[:size])
            if not got and not self.stopped():
                raise SourceError(self._too_short())
            size -= got

    def _too_short(self) -> str:
        return f"{self.shown}: shorter than it was, so reading cannot go on where it stopped; bring back the old file"

    def position(self, offset: int) -> Position:
        """The place after `offset` bytes of text; never ask for a lower one later."""
        start = self._inflated.start_before(offset) if self._inflated else FIRST_MEMBER
        return Position(self._part, offset, start.stored, start.text)

    def _first_bytes(self) -> bytes:
        """Enough to tell the codec. A line is enough: someone may be waiting for its answer before writing another."""
        head = b""
        while len(head) < HEAD and b"\n" not in head and (piece := self._read(HEAD - len(head))):
            head += piece
        return head

    def _wait(self) -> None:
        """On a pipe, wait for data in small steps, so that a stop is noticed."""
        while self._descriptor is not None and not self.stopped():
            if select.select([self._descriptor], [], [], POLL_SECONDS)[0]:
                return

    def waiting(self) -> bool:
        return self._descriptor is not None and not select.select([self._descriptor], [], [], 0)[0]

    def _read(self, size: int) -> bytes:
        self._wait()
        if self.stopped():
            return b""
        try:
            return self._raw.read(size) or b""
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(f"{self.shown}: cannot read: {reason(error)}") from error

    def read(self, size: int) -> bytes:
        """Stored bytes, for the decompressor."""
        if self._head:
            head, self._head = self._head, b""
            return head
        return self._read(size)

    def readinto(self, view: memoryview) -> int:
        """Plain bytes into `view`; 0 at the end."""
        if self._left is None:
            return self._readinto(view)
        got = self._readinto(view[: self._left]) if self._left else 0
        self._left -= got
        return got

    def _readinto(self, view: memoryview) -> int:
        if self._returned:
            size = min(len(view), len(self._returned))
            view[:size], self._returned = self._returned[:size], self._returned[size:]
            return size
        if self._inflated:
            return self._inflated.readinto(view)
        if self._head:
            size = min(len(view), len(self._head))
            view[:size], self._head = self._head[:size], self._head[size:]
            return size
        self._wait()
        if self.stopped():
            return 0
        try:
            return self._raw.readinto(view) or 0
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(f"{self.shown}: cannot read: {reason(error)}") from error

    def beginning(self, size: int) -> bytes:
        """Up to `size` plain bytes, which come again. On a pipe the first lines are enough: others may be far away."""
        text = b""
        piece = bytearray(min(size, SKIPPED))
        while len(text) < size:
            with memoryview(piece) as view:
                got = self.readinto(view[: size - len(text)])
            text += piece[:got]
            if not got or (b"\n" in text and self.waiting()):
                break
        self._returned = text
        return text

    def close(self) -> None:
        self._raw.close()


class _Ahead:
    """The parts that come next, if they are remote: their first bytes are on their way while another part is read."""

    def __init__(self, parts: list[Part], stopped: Callable[[], bool]) -> None:
        self._parts = parts
        self._stopped = stopped
        self._open: dict[int, Any] = {}

    def begin_after(self, number: int) -> None:
        for next_one in range(number + 1, min(number + 1 + PARTS_AHEAD, len(self._parts))):
            part = self._parts[next_one]
            if next_one not in self._open and part.size is not None and not is_local(part.url):
                self._open[next_one] = open_part(part, stopped=self._stopped)
                self._open[next_one].begin()

    def take(self, number: int) -> Any:
        """The part, open; None if it has not been begun."""
        return self._open.pop(number, None)

    def close(self) -> None:
        for raw in self._open.values():
            raw.close()


class Source:
    """A recipe for reading lines."""

    endless = False  # whether more may come later: then empty blocks are handed on while nothing comes
    beginning: Position | Marks = BEGINNING  # where a reading begins that does not go on with another

    def __init__(self, urls: list[str], *, limits: Limits = Limits(), max_line: int = 16_000_000) -> None:
        self.parts = find_parts(urls)
        self.limits = limits
        self.max_line = max_line
        self._spent = False
        self._begun: _Input | None = None  # a part that can be read only once, and whose beginning was looked at

    @property
    def repeatable(self) -> bool:
        """Whether a second pass would see the same bytes."""
        return all(part.size is not None for part in self.parts)

    def _once(self) -> str:
        return next(part.shown for part in self.parts if part.size is None)

    @property
    def size(self) -> int | None:
        """Stored bytes of all parts, where known."""
        sizes = [part.size for part in self.parts]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def fingerprint(self) -> list[list[Any]] | None:
        """What must be unchanged for a cache of this source to be valid; None where that cannot be known."""
        if any(part.stamp is None for part in self.parts):
            return None
        names = [os.path.abspath(p.shown) if scheme_of(p.url) is None else p.shown for p in self.parts]
        return [[name, part.size, part.stamp] for name, part in zip(names, self.parts, strict=True)]

    def identity(self) -> list[list[Any]]:
        """What must be unchanged for a run to go on: `[name, size, kind of stamp, stamp]` of each part.

        Times are no part of it, because data is often copied to another machine.
        """
        self.refuse_if_read_once()
        return [identified(part) for part in self.parts]

    def refuse_if_read_once(self) -> None:
        """SourceError if a run on this source cannot go on later."""
        if not self.repeatable:
            raise SourceError(self._not_again())

    def _not_again(self) -> str:
        return f"{self._once()} can be read only once, so a run on it cannot be resumed; save it as a file first"

    @staticmethod
    def position_of(plain: Any) -> Position | Marks:
        """A position out of what JSON has made of it."""
        return Position(*plain)

    def head(self, size: int, number: int = 0) -> bytes:
        """The first bytes of a part, decompressed; reading it later begins with them all the same."""
        text = self._beginning(size, number)
        refuse_foreign(text[:BEGINNING_BYTES], self.parts[number].shown)
        return text

    def _beginning(self, size: int, number: int) -> bytes:
        if self._begun is not None:
            return self._begun.beginning(size)
        opened = self._opened(number, Position(number), lambda: False)
        try:
            text = opened.beginning(size)
        except BaseException:
            opened.close()
            raise
        if self.parts[number].size is None:
            self._begun = opened
        else:
            opened.close()
        return text

    def _opened(self, number: int, begin: Position, stopped: Callable[[], bool], raw: Any = None) -> _Input:
        return _Input(self.parts[number], begin, self.limits, stopped, raw)

    # What of its parts is read: all of them, unless it is a part of a source (spans.py).

    def first_position(self, number: int) -> Position:
        """Where reading a part begins."""
        return Position(number)

    def end_of(self, number: int) -> int | None:
        """The bytes of text, or rows, of a part before the place where reading it ends; None: all."""
        return None

    def lines_before(self, number: int) -> int:
        """The lines, or rows, of a part before the place where reading it begins."""
        return 0

    def parts_from(self, start: Position) -> Iterator[int]:
        """The numbers of the parts that a reading from `start` on has to read."""
        if start != BEGINNING:
            self.refuse_if_read_once()
        if self._spent and not self.repeatable:
            raise SourceError(f"{self._once()} can be read only once")
        if start.part > len(self.parts):
            counts = f"{start.part} had been read, {len(self.parts)} are there now"
            raise SourceError(f"files are missing, so reading cannot go on: {counts}; bring back the old files")
        self._spent = True
        yield from range(start.part, len(self.parts))

    def blocks(
        self,
        block_size: int,
        buffers: Buffers,
        stopped: Callable[[], bool],
        start: Position = BEGINNING,
        cut: Cutter = last_newline,
    ) -> Iterator[Block]:
        """Blocks of whole lines, in buffers that come from and go back to `buffers`; `cut` finds where lines end.

        From `start` on, which is `after` of a block of an earlier reading, the lines are those of that reading.
        """
        with closing(_Ahead(self.parts, stopped)) as ahead:
            for number in self.parts_from(start):
                begin = start if number == start.part else self.first_position(number)
                begun, self._begun = self._begun, None
                if begun is not None:
                    begun.stopped = stopped
                with closing(begun or self._opened(number, begin, stopped, ahead.take(number))) as opened:
                    ahead.begin_after(number)
                    yield from self._cut(opened, begin, block_size, buffers, stopped, cut)
                if stopped():
                    return

    def _cut(
        self,
        opened: _Input,
        start: Position,
        block_size: int,
        buffers: Buffers,
        stopped: Callable[[], bool],
        cut_at: Cutter,
    ) -> Iterator[Block]:
        shown = opened.shown
        offset = start.offset
        tail = b""
        ended = False
        while not ended and not stopped():
            room = block_size
            while room < 2 * len(tail):
                room *= 2
            buffer = buffers.take(room)
            filled = len(tail)
            buffer[:filled] = tail
            cut = 0
            while not cut:
                if filled == room:
                    if filled > self.max_line:
                        raise DataError(self._too_long(shown, offset))
                    kept = bytes(memoryview(buffer)[:filled])
                    buffers.give_back(buffer)
                    room *= 2
                    buffer = buffers.take(room)
                    buffer[:filled] = kept
                with memoryview(buffer) as view:
                    got = opened.readinto(view[filled:room])
                if stopped():
                    buffers.give_back(buffer)
                    return
                filled += got
                if not got:
                    ended = True
                    break
                if filled == room or opened.waiting():
                    cut = cut_at(buffer, filled)
            if ended:
                cut = filled
                if filled and buffer[filled - 1] != 10:
                    buffer[filled] = 10
                    cut += 1
            with memoryview(buffer) as view:
                tail = bytes(view[cut:filled])
            if cut > self.max_line:
                self._refuse_long_lines(shown, offset, buffer, cut)
            if cut:
                after = self.first_position(start.part + 1) if ended else opened.position(offset + cut)
                yield Block(buffer, cut, Origin(shown, offset, 0), after, start.part)
                offset += cut
            else:
                buffers.give_back(buffer)

    def _refuse_long_lines(self, shown: str, offset: int, buffer: bytearray, size: int) -> None:
        start = 0
        while start < size:
            end = buffer.index(b"\n", start)
            if end - start > self.max_line:
                raise DataError(self._too_long(shown, offset + start))
            start = end + 1

    def _too_long(self, shown: str, offset: int) -> str:
        return f"{shown}: byte {offset}: a line is longer than {self.max_line} bytes (data.max_line)"
