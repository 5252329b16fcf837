"""Loaded by workers of this machine that a command has started (`local:4`): Ctrl-C is for the command, which ends them.

A terminal sends it to all processes of a command. Workers that took it for themselves would be lost in the middle of
what they do, with a traceback each.
"""

import signal
from typing import Any


def dask_setup(worker: Any) -> None:
    """Called by Dask in the main thread of a worker's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
