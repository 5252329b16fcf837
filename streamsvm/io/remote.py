"""A remote object as a file: its ranges are fetched ahead, several at a time, and handed on in order.

    plan of ranges -> [fetching threads, each with one range and its retries] -> pieces -> read, readinto

How far ahead is a matter of bytes, `Depth`, which comes from the run's memory. Nothing is fetched before somebody
reads, and until it is clear that somebody reads on only one range: a look at the first bytes costs one small request.
Whoever knows which ranges are wanted, as a Parquet file does, gives a plan (`RemoteFile.plan`).

A range that breaks off goes on at the byte where it broke (retries.py). An error is raised where reading meets it.
"""

import io
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, Protocol

from streamsvm import interrupts
from streamsvm.errors import SourceError
from streamsvm.io.http_ranges import NoRangesError
from streamsvm.io.retries import ChangedError, Patience
from streamsvm.io.stream_ranges import EndError

POLL_SECONDS = 0.1  # how long a stop may go unnoticed
JOIN_SECONDS = 5.0  # for threads that are told to stop; one inside a foreign library may take longer, and is left alone
LOOK = 1 << 18  # the first range of an object at which somebody may only look
EAGER = 1 << 20  # whoever reads so many bytes in a row reads on
SHARE = 16  # of the memory goes to bytes fetched ahead
LEAST_AHEAD, MOST_AHEAD = 2 << 20, 64 << 20
FEW = 4  # ranges ahead suffice where answers come at once, and stay in the processor's caches
PACE = 1.5e9  # bytes a second that nobody reads faster than: so many are in flight at most, by the time of an answer
SMALLEST_RANGE, LARGEST_RANGE = 1 << 18, 4 << 20
MOST_THREADS = 16
STREAMED = 1 << 20  # the ranges of an object that comes as a stream, of which one thread makes them

Arrived = Callable[[int], None]
Span = tuple[int, int]  # first byte, and the one after the last


class Ranges(Protocol):
    """Something that ranges can be fetched from."""

    def fetch(self, start: int, view: memoryview, arrived: Arrived) -> None:
        """Fill `view` with the bytes from `start` on, saying how many arrived whenever some have; fewer may come."""

    def unchanged(self) -> None:
        """ChangedError if this is not the object that was found at the start, as far as answers do not tell."""

    def abort(self) -> None:
        """Make every `fetch` end soon; called once."""


class Depth(NamedTuple):
    """How far to read ahead."""

    ahead: int = MOST_AHEAD  # bytes in flight, or here and not yet read
    range: int = LARGEST_RANGE
    threads: int = MOST_THREADS

    @classmethod
    def of_memory(cls, memory: int) -> "Depth":
        ahead = min(MOST_AHEAD, max(LEAST_AHEAD, memory // SHARE))
        return cls(ahead, min(LARGEST_RANGE, max(SMALLEST_RANGE, ahead // MOST_THREADS)))


class Named(NamedTuple):
    """An object in messages, and how often to try again."""

    url: str
    shown: str
    retries: int


class _Piece:
    """A range on its way: its first `filled` bytes are here, `read` of them were handed on."""

    __slots__ = ("buffer", "done", "dropped", "ended", "error", "filled", "read", "size", "start")

    def __init__(self, start: int, size: int, buffer: bytearray) -> None:
        self.start = start
        self.size = size
        self.buffer = buffer
        self.filled = self.read = 0
        self.error: BaseException | None = None
        self.ended = False  # the object ends with the bytes that are here
        self.done = False  # no thread has it any more
        self.dropped = False


class _DroppedError(Exception):
    """Nobody wants the piece any more."""


class _Fetching:
    """The threads, and the pieces that they fetch or have fetched."""

    def __init__(self, ranges: Ranges, named: Named, depth: Depth) -> None:
        self._ranges = ranges
        self._named = named
        self._depth = depth
        lock = threading.Lock()
        self._news = threading.Condition(lock)  # for the one who reads
        self._work_there = threading.Condition(lock)  # for the threads
        self._stop = threading.Event()
        self._plan: Iterator[Span] = iter(())
        self._todo: deque[_Piece] = deque()
        self._held: list[_Piece] = []
        self._free: list[bytearray] = []
        self._used = 0  # bytes of pieces that are held, or in the hands of a thread
        self._idle = 0  # threads that wait for work
        self._crew: list[threading.Thread] = []
        self._awaited = 0  # bytes of a piece that somebody waits for
        self._latency = 0.0  # seconds from a request to its first byte, on the average of the last few
        self.limit = depth.range  # bytes ahead that whoever reads has use for

    # For the one who reads.

    def follow(self, plan: Iterable[Span], limit: int, *, after: bool = False) -> None:
        """Fetch these ranges, in this order, so many bytes ahead: from now on, all others forgotten, or after them."""
        with self._news:
            for piece in [] if after else list(self._held):
                self._drop(piece)
            self._plan = chain(self._plan, plan) if after else iter(plan)
            self.limit = limit
            self._pump()

    def deepen(self, limit: int) -> None:
        with self._news:
            self.limit = limit
            self._pump()

    def now(self, start: int, stop: int) -> _Piece:
        """Fetch a range at once, whatever else is on its way."""
        with self._news:
            piece = self._new_piece(start, stop)
            self._todo.appendleft(piece)
            self._call_crew()
            return piece

    def at(self, offset: int) -> _Piece | None:
        """The piece that has this byte, or will have it."""
        with self._news:
            return next((piece for piece in self._held if piece.start <= offset < piece.start + piece.size), None)

    def arrived(self, piece: _Piece, offset: int, wanted: int, stopped: Callable[[], bool]) -> int:
        """How many bytes from `offset` on are here; waits until so many are, raises what stands in their way.

        Fewer if the piece ends, or fails, before; 0 at the end of the object, and when the reading is `stopped`.
        """
        begin = offset - piece.start
        target = min(begin + wanted, piece.size)
        if piece.filled >= target:
            return piece.filled - begin
        main = threading.current_thread() is threading.main_thread()
        with self._news:
            self._awaited = target
            while piece.filled < target and not piece.ended:
                if piece.error is not None and piece.filled <= begin:
                    raise piece.error
                if piece.error is not None:
                    break
                if stopped() or self._stop.is_set():
                    return 0
                if main:
                    interrupts.check()
                self._news.wait(POLL_SECONDS)
            return piece.filled - begin

    def release(self, piece: _Piece) -> None:
        """All of it was handed on: that makes room for others."""
        with self._news:
            if not piece.dropped:
                self._drop(piece)
                self._pump()

    def forget(self, which: Callable[[_Piece], bool]) -> None:
        with self._news:
            for piece in list(filter(which, self._held)):
                self._drop(piece)
            self._pump()

    def unchanged(self) -> None:
        """ChangedError if the object is another one now."""
        self._ranges.unchanged()

    def stop(self) -> None:
        self._stop.set()
        self._ranges.abort()
        with self._news:
            self._todo.clear()
            self._news.notify_all()
            self._work_there.notify_all()
        until = time.monotonic() + JOIN_SECONDS
        for thread in self._crew:
            if thread is not threading.current_thread():  # a file may be closed by whoever collects garbage
                thread.join(max(0.0, until - time.monotonic()))
        if hasattr(self._ranges, "close"):
            self._ranges.close()
        self._held.clear()
        self._free.clear()

    # With the lock held.

    def _new_piece(self, start: int, stop: int) -> _Piece:
        size = stop - start
        usual = self._depth.range // 2 < size <= self._depth.range
        buffer = self._free.pop() if usual and self._free else bytearray(self._depth.range if usual else size)
        piece = _Piece(start, size, buffer)
        self._used += len(buffer)
        self._held.append(piece)
        return piece

    def _pump(self) -> None:
        """Take on what the plan has next, while there is room for it; one piece always has."""
        useful = max(FEW * self._depth.range, int(self._latency * PACE))
        limit = min(self.limit, useful)
        while not self._stop.is_set() and (not self._held or self._used + self._depth.range <= limit):
            span = next(self._plan, None)
            if span is None:
                return
            self._todo.append(self._new_piece(*span))
            self._call_crew()

    def _call_crew(self) -> None:
        if self._idle < len(self._todo) and len(self._crew) < self._depth.threads:
            thread = threading.Thread(target=self._work, name=f"streamsvm-fetch-{len(self._crew)}", daemon=True)
            self._crew.append(thread)
            thread.start()
        self._work_there.notify()

    def _drop(self, piece: _Piece) -> None:
        piece.dropped = True
        self._held.remove(piece)
        if piece in self._todo:
            self._todo.remove(piece)
            piece.done = True
        if piece.done:
            self._reuse(piece)

    def _reuse(self, piece: _Piece) -> None:
        self._used -= len(piece.buffer)
        if len(piece.buffer) == self._depth.range and piece.filled == piece.size:  # else somebody may still write there
            self._free.append(piece.buffer)

    # The threads.

    def _work(self) -> None:
        while (piece := self._next()) is not None:
            error: BaseException | None = None
            try:
                self._fill(piece)
            except _DroppedError:
                pass
            except BaseException as raised:
                error = raised
            with self._news:
                piece.error = error
                piece.done = True
                if piece.dropped:
                    self._reuse(piece)
                    self._pump()
                self._news.notify_all()

    def _next(self) -> _Piece | None:
        with self._news:
            self._idle += 1
            while not self._todo and not self._stop.is_set():
                self._work_there.wait()
            self._idle -= 1
            return None if self._stop.is_set() else self._todo.popleft()

    def _fill(self, piece: _Piece) -> None:
        """Fetch a range, going on at the byte where an attempt broke off."""
        named = self._named
        patience = Patience(named.retries, named.url, named.shown)
        with memoryview(piece.buffer) as view:
            while piece.filled < piece.size:
                before = piece.filled
                try:
                    arrived = partial(self._arrived, piece, before, time.monotonic())
                    self._ranges.fetch(piece.start + before, view[before : piece.size], arrived)
                    failure: Exception = ConnectionError("fewer bytes came than were asked for")
                except EndError:
                    piece.ended = True
                    return
                except ChangedError as error:
                    raise changed(named.shown, error) from error
                except (SourceError, NoRangesError, _DroppedError):
                    raise
                except Exception as error:
                    failure = error
                if piece.filled == piece.size:
                    return
                self._refuse_dropped(piece)
                if piece.filled > before:
                    patience.progress()
                patience.failed(failure, f"cannot read on at byte {piece.start + piece.filled:,}", self._stop.wait)
                self._refuse_dropped(piece)
                self._refuse_changed()

    def _refuse_changed(self) -> None:
        try:
            self._ranges.unchanged()
        except ChangedError as error:
            raise changed(self._named.shown, error) from error
        except Exception:  # the next attempt tells what is wrong
            return

    def _refuse_dropped(self, piece: _Piece) -> None:
        if piece.dropped or self._stop.is_set():
            raise _DroppedError

    def _arrived(self, piece: _Piece, before: int, asked: float, count: int) -> None:
        with self._news:
            self._refuse_dropped(piece)
            if piece.filled == before:
                latency = time.monotonic() - asked
                self._latency += (latency - self._latency) / (4 if self._latency else 1)
                self._pump()
            piece.filled += count
            if piece.filled >= self._awaited:
                self._news.notify()


def changed(shown: str, error: ChangedError) -> SourceError:
    return SourceError(f"{shown}: changed while it was read: {error}; start again when nobody writes to it")


class RemoteFile(io.RawIOBase):
    """Reading an object. `stopped` is asked while there is nothing to hand on: reading then ends as if at the end.

    `streamed` makes a way to read it that needs no ranges, for a server that turns out to have none.
    """

    def __init__(
        self,
        ranges: Ranges,
        size: int | None,
        named: Named,
        depth: Depth,
        *,
        stopped: Callable[[], bool] = lambda: False,
        streamed: Callable[[], Ranges] | None = None,
    ) -> None:
        self._size = size
        self._named = named
        self._depth = depth
        self._stopped = stopped
        self._streamed = streamed
        self._position = 0
        self._current: _Piece | None = None  # what was read last
        self._in_a_row = 0  # bytes read without a seek elsewhere
        self._planned = False
        self._checked = False
        self._forwards = size is None  # whether it cannot be read from another byte on
        self._fetching = _Fetching(ranges, named, depth)

    # What a file has.

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return not self._forwards

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END and self._size is None:
            raise io.UnsupportedOperation("the size is not known")
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size or 0}[whence]
        place = base + offset
        if place < 0:
            raise ValueError(f"there is no byte {place}")
        if self._forwards and place != self._position:
            raise io.UnsupportedOperation("this can only be read from one byte to the next")
        self._position = place
        return place

    def readinto(self, buffer: Any) -> int:
        """Bytes, at least one unless this is the end; of an object of unknown size those that are here."""
        view = memoryview(buffer).cast("B")
        if self.closed:
            raise ValueError("the file is closed")
        if not len(view) or (self._size is not None and self._position >= self._size):
            self._check_at_the_end()
            return 0
        piece = self._current
        if piece is None or not piece.start <= self._position < piece.start + piece.size or piece.dropped:
            piece = self._current = self._piece(len(view))
        elif not self._planned:
            self._deepen(len(view))
        try:
            wanted = 1 if self._size is None else len(view)  # a stream may be waiting for our answer
            here = self._fetching.arrived(piece, self._position, wanted, self._stopped)
        except NoRangesError:
            self._fall_back()
            return self.readinto(buffer)
        if not here:
            if piece.ended:
                self._check_at_the_end()
            return 0
        count = min(here, len(view))
        begin = self._position - piece.start
        with memoryview(piece.buffer) as source:
            view[:count] = source[begin : begin + count]
        self._position += count
        self._in_a_row += count
        piece.read += count
        if piece.read >= piece.size:
            self._current = None
            self._fetching.release(piece)
        return count

    def read(self, size: int | None = -1) -> bytes:
        """`size` bytes, fewer only at the end; all that are left for -1."""
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(self._depth.range), b""))
        if self._size is not None:
            size = max(0, min(size, self._size - self._position))
        content = bytearray(size)
        got = 0
        with memoryview(content) as view:
            while got < size and (count := self.readinto(view[got:])):
                got += count
        if not size:
            self._check_at_the_end()
        return bytes(content) if got == size else bytes(content[:got])

    def close(self) -> None:
        if not self.closed:
            self._fetching.stop()
        super().close()

    # Which ranges.

    def begin(self) -> None:
        """Fetch the first bytes, for somebody who will read them soon."""
        if self._size:
            self._fetching.follow(self._onwards(0, self._depth.range), self._depth.range)

    def plan(self, spans: Iterable[Span]) -> None:
        """Fetch these ranges, in the order in which they will be read, and others only when somebody asks for them.

        A second plan goes on where the first one ends.
        """
        cut = chain.from_iterable(map(self._cut, spans))
        self._fetching.follow(cut, self._depth.ahead, after=self._planned)
        self._planned = True

    def forget(self, spans: Iterable[Span]) -> None:
        """Nothing more of these will be read."""
        self._fetching.forget(lambda piece: any(start <= piece.start < stop for start, stop in spans))

    @property
    def range(self) -> int:
        """Bytes that are fetched at a time."""
        return self._depth.range

    def _cut(self, span: Span) -> Iterator[Span]:
        start, stop = span
        for first in range(start, stop, self._depth.range):
            yield first, min(first + self._depth.range, stop)

    def _onwards(self, start: int, first: int) -> Iterator[Span]:
        """Everything from a byte on; the first range may be of another size."""
        size = self._size if self._size is not None else 1 << 62
        if start < size:
            yield start, min(start + first, size)
        yield from self._cut((start + first, size))

    def _piece(self, wanted: int) -> _Piece:
        """The piece that has the next byte; so many are wanted."""
        fetching = self._fetching
        piece = fetching.at(self._position)
        if self._planned:
            return piece or self._asked_for(wanted)
        if piece is None:
            self._in_a_row = 0
            eager = wanted >= EAGER
            at_once = eager or (self._size is not None and self._size <= self._depth.range)
            first = self._depth.range if at_once else min(LOOK, self._depth.range)
            fetching.follow(self._onwards(self._position, first), self._depth.ahead if eager else self._depth.range)
            piece = fetching.at(self._position)
            assert piece is not None, "one piece always has room"
        self._deepen(wanted)
        fetching.forget(lambda piece: piece.start + piece.size <= self._position)
        return piece

    def _deepen(self, wanted: int) -> None:
        """Read far ahead once it is clear that somebody reads on."""
        if self._in_a_row + wanted >= EAGER and self._fetching.limit < self._depth.ahead:
            self._fetching.deepen(self._depth.ahead)

    def _asked_for(self, wanted: int) -> _Piece:
        stop = min(self._position + min(wanted, self._depth.range), self._size or 1 << 62)
        return self._fetching.now(self._position, stop)

    def _check_at_the_end(self) -> None:
        """Once all was read, whether it was one object all the time."""
        if self._checked or self._stopped() or not self._in_a_row:
            return
        self._checked = True
        try:
            self._fetching.unchanged()
        except ChangedError as error:
            raise changed(self._named.shown, error) from error
        except Exception:  # it was all there, and now nothing more can be asked
            return

    def _fall_back(self) -> None:
        """Read a stream instead of ranges."""
        if self._streamed is None:
            raise SourceError(f"{self._named.shown}: the server cannot send parts of it; save it as a file first")
        self._fetching.stop()
        streamed, self._streamed = self._streamed(), None
        self._depth = self._depth._replace(range=min(STREAMED, self._depth.range), threads=1)
        self._planned, self._forwards, self._current = False, True, None
        self._fetching = _Fetching(streamed, self._named, self._depth)
