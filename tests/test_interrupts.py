"""Signals are noted at once and acted on between two batches."""

import os
import signal
import threading

import pytest
from signals import NEVER, heard, wait_for

from streamsvm import interrupts, pool
from streamsvm.interrupts import Interrupted
from streamsvm.pool import Tokens, ordered

SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture(autouse=True)
def handlers_stay_as_they_were():
    with heard():
        before = [signal.getsignal(number) for number in SIGNALS]
        yield
        assert [signal.getsignal(number) for number in SIGNALS] == before
    interrupts.check()  # nothing is left over


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_waits_until_somebody_asks(number):
    with pytest.raises(Interrupted, match=f"stopped by {signal.Signals(number).name}") as caught, interrupts.noted():
        interrupts.check()
        os.kill(os.getpid(), number)
        after = "this is still done"
        interrupts.check()
    assert after and caught.value.number == number and isinstance(caught.value, KeyboardInterrupt)


def test_a_second_signal_stops_at_once(monkeypatch):
    monkeypatch.setattr(interrupts, "TWICE", 0.0)
    with pytest.raises(KeyboardInterrupt) as caught, interrupts.noted():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(NEVER)
    assert not isinstance(caught.value, Interrupted)


def test_a_signal_that_comes_twice_is_one():
    """timeout(1) sends it to the process and to its group."""
    with pytest.raises(Interrupted), interrupts.noted():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        interrupts.check()


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts.noted():
            os.kill(os.getpid(), signal.SIGINT)
            interrupts.check()
            with pytest.raises(Interrupted):
                os.kill(os.getpid(), signal.SIGTERM)
                interrupts.check()
    finally:
        signal.signal(signal.SIGINT, before)


def test_in_another_thread_nothing_happens():
    done = []

    def work() -> None:
        with interrupts.noted():
            done.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.getsignal(signal.SIGTERM)]


def test_the_pool_stops_between_two_results(threads):
    seen = []
    with pytest.raises(Interrupted), interrupts.noted():
        for result in ordered(lambda: iter(range(100)), lambda item: item, Tokens(10), threads=2):
            seen.append(result)
            if result == 5:
                os.kill(os.getpid(), signal.SIGTERM)
    assert seen == [0, 1, 2, 3, 4, 5] and not threads()


def test_the_pool_stops_while_it_waits(threads, monkeypatch):
    tokens, taken = Tokens(10), threading.Event()
    asked, check = [], interrupts.check
    monkeypatch.setattr(interrupts, "check", lambda: asked.append(1) or check())
    monkeypatch.setattr(pool, "POLL_SECONDS", 0.01)

    def produce():
        yield 1
        wait_for(taken.is_set)
        before = len(asked)
        wait_for(lambda: len(asked) > before + 2)  # it has looked in vain, and waits
        os.kill(os.getpid(), signal.SIGTERM)
        wait_for(lambda: tokens.stopped)

    with pytest.raises(Interrupted), interrupts.noted():
        for _ in ordered(produce, lambda item: item, tokens, threads=1):
            taken.set()
    assert not threads()
