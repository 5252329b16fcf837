"""The pool: order kept, memory bounded, and however the loop ends, no thread is left."""

import gc
import os
import random
import signal
import sys
import threading
import time
from contextlib import closing

import pytest
from signals import PATIENT, heard, wait_for

from streamsvm.pool import StoppedError, Tokens, ordered


def run(count, work=lambda x: x, threads=3, limit=4):
    """A pool over range(count), each item worth one token."""
    tokens = Tokens(limit)

    def produce():
        for i in range(count):
            tokens.take(1)
            yield i

    return tokens, ordered(produce, work, tokens, threads)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("limit", [1, 2, 50])
def test_order_is_kept(threads, limit):
    pauses = random.Random(1)

    def work(item):
        time.sleep(pauses.random() * 0.002)
        return item * item

    tokens, results = run(60, work, threads, limit)
    found = []
    for result in results:
        found.append(result)
        tokens.give_back(1)
    assert found == [i * i for i in range(60)]


def test_nothing_to_do():
    assert list(run(0)[1]) == []


def test_nothing_happens_before_the_first_result_is_asked_for(threads):
    called = []
    results = ordered(lambda: called.append(1) or iter([]), lambda x: x, Tokens(1), 2)
    assert called == [] and threads() == []
    results.close()
    assert list(results) == [] and called == []


def test_work_runs_at_the_same_time():
    together = threading.Barrier(3, timeout=PATIENT)
    _, results = run(3, lambda item: together.wait() >= 0)
    assert list(results) == [True] * 3


def test_an_error_of_the_producer_comes_after_the_results_before_it(threads):
    def produce():
        yield from range(5)
        raise KeyError("producer")

    found = []
    with pytest.raises(KeyError, match="producer"):
        for result in ordered(produce, lambda x: time.sleep(0.01) or x, Tokens(1), 2):
            found.append(result)
    assert found == list(range(5)) and threads() == []


def test_an_error_of_a_worker_comes_in_its_place(threads):
    def work(item):
        if item == 3:
            raise KeyError("worker")
        time.sleep(0.01 * (item < 3))
        return item

    found = []
    with pytest.raises(KeyError, match="worker"):
        for result in run(50, work, limit=100)[1]:
            found.append(result)
    assert found == [0, 1, 2] and threads() == []


def test_the_first_error_in_order_wins():
    failed = []

    def work(item):
        if item == 0:
            wait_for(lambda: len(failed) == 2)
        failed.append(item)
        raise ValueError(item)

    with pytest.raises(ValueError, match="0"):
        list(run(3, work)[1])


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, MemoryError, StoppedError, StopIteration])
def test_any_exception_of_a_worker_arrives(kind, threads):
    def work(item):
        raise kind

    with pytest.raises((kind, RuntimeError)):  # PEP 479: a StopIteration that leaves a generator is a RuntimeError
        list(run(5, work)[1])
    assert threads() == []


def endings():
    def exhausted(results):
        list(results)

    def closed(results):
        next(results)
        results.close()

    def dropped(results):
        next(results)

    def broken_off(results):
        for _ in results:
            break
        del _, results

    def failed(results):
        try:
            for _ in results:
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass

    return [exhausted, closed, dropped, broken_off, failed]


@pytest.mark.parametrize("ending", endings())
@pytest.mark.parametrize("busy", ["producer waits for tokens", "workers are slow", "producer is slow"])
def test_no_thread_outlives_the_loop(ending, busy, threads):
    tokens = Tokens(2 if busy == "producer waits for tokens" else 1000)
    before = threading.active_count()

    def produce():
        for i in range(2 if ending.__name__ == "exhausted" else 30):
            tokens.take(1)
            if busy == "producer is slow":
                time.sleep(0.01)
            yield i

    def work(item):
        if busy == "workers are slow":
            time.sleep(0.01)
        return item

    gc.disable()  # reference counts must be enough
    try:
        ending(ordered(produce, work, tokens, 3))
        assert threads() == [] and threading.active_count() == before
        assert tokens.stopped
    finally:
        gc.enable()


def test_the_producer_is_closed_when_the_loop_ends():
    closed = []

    def produce():
        try:
            yield from range(1000)
        finally:
            closed.append(threading.current_thread().name)

    results = ordered(produce, lambda x: x, Tokens(1), 1)
    next(results)
    results.close()
    assert closed == ["streamsvm-read"]


def test_ctrl_c_while_waiting(threads):
    """The consumer waits for a result that takes long; an interrupt ends the wait and every thread."""
    main, taken = threading.get_ident(), threading.Event()

    def work(item):
        if item == 1:
            wait_for(taken.is_set)
            wait_for(lambda: sys._current_frames()[main].f_code is ordered.__code__)
            os.kill(os.getpid(), signal.SIGINT)
            wait_for(lambda: tokens.stopped)

    tokens, results = run(3, work)
    with heard(), pytest.raises(KeyboardInterrupt), closing(results):
        for _ in results:
            taken.set()
    assert threads() == []


# Tokens.


@pytest.mark.parametrize("limit", [1, 3, 7])
def test_never_more_in_flight_than_the_limit(limit):
    tokens = Tokens(limit)
    lock = threading.Lock()
    used, most = 0, 0
    sizes = [1 + i % 3 for i in range(60)]

    def produce():
        nonlocal used, most
        for size in sizes:
            tokens.take(size)
            with lock:
                used += size
                most = max(most, used if used > size else min(size, limit))
            yield size

    for size in ordered(produce, lambda x: x, tokens, 2):
        with lock:
            used -= size
        tokens.give_back(size)
    assert used == 0 and most <= limit


def waiting(tokens):
    """How many threads wait for tokens."""
    return len(tokens._free._waiters)


def test_an_oversize_request_is_served_alone():
    tokens = Tokens(5)
    tokens.take(2)
    taken = threading.Event()
    thread = threading.Thread(target=lambda: (tokens.take(100), taken.set()))
    thread.start()
    wait_for(lambda: waiting(tokens))
    assert not taken.is_set()
    tokens.give_back(2)
    assert taken.wait(PATIENT)
    thread.join()
    late = threading.Event()
    thread = threading.Thread(target=lambda: (tokens.take(1), late.set()))
    thread.start()
    wait_for(lambda: waiting(tokens))
    assert not late.is_set()
    tokens.give_back(100)
    assert late.wait(PATIENT)
    thread.join()


def test_a_stop_wakes_whoever_waits():
    tokens = Tokens(1)
    tokens.take(1)
    outcome = []

    def wait():
        try:
            tokens.take(1)
        except StoppedError:
            outcome.append("stopped")

    thread = threading.Thread(target=wait)
    thread.start()
    wait_for(lambda: waiting(tokens))
    tokens.stop()
    thread.join(PATIENT)
    assert outcome == ["stopped"]
    with pytest.raises(StoppedError):
        tokens.take(0)


def test_nothing_is_kept_of_an_item_that_is_done():
    """The pool holds no reference to what has been handed on, or memory would be held twice."""

    class Thing:
        pass

    tokens = Tokens(1)

    def produce():
        for _ in range(5):
            tokens.take(1)
            yield Thing()

    for thing in ordered(produce, lambda thing: thing, tokens, 1):
        last = sys.getrefcount(thing)
        tokens.give_back(1)
    assert last <= 4
