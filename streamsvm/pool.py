"""Ordered work on several threads: one thread produces, several work, the caller consumes in the order produced.

    items -> [producer thread] -> tickets -> [worker threads] -> results, in order -> the caller's loop

Memory is bounded by tokens: the producer takes some before it makes an item and the caller's loop gives them back. When
the loop ends, by exhaustion, error, Ctrl-C or because its iterator was dropped, every thread is stopped and joined. A
signal that was noted (interrupts.py) ends it between two results.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from streamsvm import interrupts

Item = TypeVar("Item")
Result = TypeVar("Result")

POLL_SECONDS = 0.2  # how long a signal may wait while there is nothing to hand out


def available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class StoppedError(Exception):
    """The consumer is gone; raised inside the producer so that it ends."""


class Tokens:
    """A counted resource: bytes of buffers in flight."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._free = threading.Condition()
        self._stopped = False

    def take(self, count: int) -> None:
        """Wait until `count` are free. A request above the limit is granted once nothing else is in use."""
        with self._free:
            while self._used and self._used + count > self._limit and not self._stopped:
                self._free.wait()
            if self._stopped:
                raise StoppedError
            self._used += count

    def give_back(self, count: int) -> None:
        with self._free:
            self._used -= count
            self._free.notify()

    def stop(self) -> None:
        with self._free:
            self._stopped = True
            self._free.notify_all()

    @property
    def stopped(self) -> bool:
        return self._stopped


class _Ticket(Generic[Item, Result]):
    """An item on its way: its latch opens when the result or the error is there."""

    __slots__ = ("error", "item", "latch", "result")

    def __init__(self, item: Item | None, error: BaseException | None = None) -> None:
        self.item = item
        self.result: Result | None = None
        self.error = error
        self.latch = threading.Lock()
        self.latch.acquire()


class _Line(Generic[Item, Result]):
    """The tickets in the order produced."""

    def __init__(self) -> None:
        self._tickets: deque[_Ticket[Item, Result] | None] = deque()
        self._filled = threading.Condition()

    def put(self, ticket: _Ticket[Item, Result] | None) -> None:
        with self._filled:
            self._tickets.append(ticket)
            self._filled.notify()

    def get(self) -> _Ticket[Item, Result] | None:
        interrupts.check()
        with self._filled:
            while not self._tickets:
                self._filled.wait(POLL_SECONDS)
                interrupts.check()
            return self._tickets.popleft()


def ordered(
    produce: Callable[[], Iterator[Item]], work: Callable[[Item], Result], tokens: Tokens, threads: int
) -> Generator[Result, None, None]:
    """`work(item)` for every item of `produce()`, computed on `threads` threads, yielded in order."""
    line: _Line[Item, Result] = _Line()
    todo: SimpleQueue[_Ticket[Item, Result] | None] = SimpleQueue()

    def run_producer() -> None:
        try:
            for item in produce():
                ticket: _Ticket[Item, Result] = _Ticket(item)
                line.put(ticket)
                todo.put(ticket)
                if tokens.stopped:
                    break
        except StoppedError:
            pass
        except BaseException as error:
            failed: _Ticket[Item, Result] = _Ticket(None, error)
            failed.latch.release()
            line.put(failed)
        finally:
            line.put(None)
            for _ in range(threads):
                todo.put(None)

    def run_worker() -> None:
        while (ticket := todo.get()) is not None:
            if not tokens.stopped:
                try:
                    ticket.result = work(ticket.item)  # type: ignore[arg-type]
                except BaseException as error:
                    ticket.error = error
            ticket.item = None
            ticket.latch.release()

    crew = [threading.Thread(target=run_producer, name="streamsvm-read", daemon=True)]
    crew += [threading.Thread(target=run_worker, name=f"streamsvm-work-{i}", daemon=True) for i in range(threads)]
    for thread in crew:
        thread.start()
    try:
        while (ticket := line.get()) is not None:
            ticket.latch.acquire()
            if ticket.error is not None:
                raise ticket.error
            yield ticket.result  # type: ignore[misc]
    finally:
        tokens.stop()
        for thread in crew:
            thread.join()


def worked_ahead(
    items: Iterable[Item], work: Callable[[Item], Result], ahead: int, threads: int
) -> Generator[Result, None, None]:
    """`work(item)` for every item, in order, on `threads` threads; at most `ahead` are worked on, or wait."""
    tokens = Tokens(ahead)

    def produce() -> Iterator[Item]:
        for item in items:
            tokens.take(1)
            yield item

    with closing(ordered(produce, work, tokens, threads)) as results:
        for result in results:
            yield result
            tokens.give_back(1)


def at_once(first: Callable[[], Item], second: Callable[[], Result]) -> tuple[Item, Result]:
    """What two tasks return that know nothing of each other, each on a thread of its own."""
    tasks: list[Callable[[], Any]] = [first, second]
    with closing(worked_ahead(tasks, lambda task: task(), len(tasks), len(tasks))) as results:
        found: tuple[Item, Result] = tuple(results)
    return found
