"""Signals that tests send, and what tests wait for.

A shell without a terminal starts its jobs in the background with Ctrl-C ignored; all their processes inherit that, and
Python then has no handler of its own for it. Whoever sends a SIGINT, or starts a process that is to get one, does so
where it is `heard`.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PATIENT = 120.0  # seconds after which what was waited for does not come any more, however busy the machine is
SOON = 60.0  # seconds in which happens what happens at once, where otherwise nothing would happen for many minutes
NEVER = 600.0  # seconds that no test lasts
MOMENT = 0.1  # seconds in which something would usually happen that ought not to


@contextmanager
def heard() -> Iterator[None]:
    """Ctrl-C is a KeyboardInterrupt here, and ends processes that are started here."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def wait_for(condition: Callable[[], Any], what: object = "") -> None:
    """Until it is true."""
    until = time.monotonic() + PATIENT
    while not condition():
        assert time.monotonic() < until, what() if callable(what) else what or "it does not happen"
        time.sleep(0.002)


def stays(condition: Callable[[], Any]) -> bool:
    """Whether it is true for a moment: what ought not to happen gets its chance, and a busy machine fails no test."""
    until = time.monotonic() + MOMENT
    while condition():
        if time.monotonic() > until:
            return True
        time.sleep(0.002)
    return False
