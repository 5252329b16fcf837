"""Ctrl-C and SIGTERM, noted at once and acted on where nothing is half done.

While `noted` is in force the first signal only leaves a note. Whoever can stop without losing anything asks `check`,
which raises `Interrupted`: the parse pool does, before it hands out the next batch. So everything behind the pool is
whole when the exception comes by, and a checkpoint can still be taken. A second signal, a moment later, stops at once,
wherever it hits.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """A run was asked to stop, and did between two batches. `kept` tells of its last checkpoint, if there is one."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number
        self.kept = ""


TWICE = 0.3  # seconds within which a signal is the same one: timeout(1) and others send it to a process and its group

_signal: int | None = None  # the one that came
_came = 0.0  # when it did


def check() -> None:
    """Interrupted, if a signal has come."""
    if _signal is not None:
        raise Interrupted(_signal)


def _note(number: int, frame: FrameType | None) -> None:
    global _signal, _came
    if _signal is None:
        _signal, _came = number, time.monotonic()
    elif time.monotonic() - _came > TWICE:
        raise KeyboardInterrupt


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """The signal that came is not acted on in this block: something short is done before the end."""
    global _signal
    came, _signal = _signal, None
    try:
        yield
    finally:
        _signal = _signal or came


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """Note signals in this block; in a thread that is not the main one nothing can be noted.

    A signal that is ignored, as Ctrl-C is in a job in the background, stays ignored.
    """
    global _signal
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, _note) for number in heard}
    try:
        yield
    finally:
        _signal = None
        for number, handler in before.items():
            signal.signal(number, handler)
