"""Runs `streamsvm` commands in forked children, and sees them killed; test_kill.py starts it.

    a line of JSON on standard input --> fork --> child: streamsvm.cli.run --> killed, or at its end
    a line of JSON on standard output <-- how it ended, and what it had to say

Python takes a second to start and to load kernels, a fork takes milliseconds. Whatever is done for many rows at a time
is done for few here, and every batch takes a moment longer than it must: a short run has many places to be killed in.
Nothing runs beside the main thread when a child is made, except in pyarrow, which knows what to do after a fork.
"""

import itertools
import json
import os
import signal
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import streamsvm.cli
import streamsvm.cli.app
import streamsvm.cli.show
import streamsvm.features.held_back
import streamsvm.holdout
import streamsvm.io.cache
import streamsvm.online_training
import streamsvm.readers
import streamsvm.shuffle
import streamsvm.solvers.base
import streamsvm.tuning
from streamsvm.checkpoint import Checkpoints
from streamsvm.io import arrow_file, generations, tensors
from streamsvm.model import Model
from streamsvm.runs import Run

STUCK = 120.0  # seconds after which a child is not waited for any longer
POLL = 0.001
STALLS = os.pipe()  # a byte in it for each child that does nothing for a while
os.set_blocking(STALLS[0], False)

streamsvm.readers.SMALLEST_BLOCK = streamsvm.readers.LARGEST_BLOCK = 2000
streamsvm.io.cache.GROUP_ROWS = 70
streamsvm.solvers.base.TRIAL_ROWS = 150
streamsvm.features.held_back.ROWS = 100
streamsvm.shuffle.PIECE = 20
streamsvm.holdout.HELD_ROWS = 25
os.fsync = lambda descriptor: None  # type: ignore[misc]  # a killed process leaves what it wrote, synced or not

# Where a child can be told to kill itself: functions of the package, or those of Python that it calls.
MOMENTS: dict[str, tuple[Any, str]] = {
    "batch": (Run, "_tick"),
    "directory taken": (generations.Generations, "take"),
    "newest looked for": (generations.Generations, "newest"),
    "run restored": (Run, "_restore"),
    "numbers copied": (Checkpoints, "_begin"),
    "checkpoint written": (generations.Generations, "write"),
    "piece of a checkpoint": (tensors, "save"),  # any call of `write` in there
    "old one removed": (generations, "remove"),
    "group written": (arrow_file.GroupFile, "write"),
    "piece of a group": (arrow_file._Sink, "write"),
    "cache cut off": (arrow_file.GroupFile, "go_on"),
    "cache completed": (arrow_file.GroupFile, "complete"),
    "objective": (streamsvm.online_training, "losses_of"),
    "model saved": (Model, "save"),
    "fsync": (os, "fsync"),
    "rename": (os, "replace"),
    "unlink": (os, "unlink"),
}


class Clock:
    """When batches were learned; each takes `pace` seconds more than it must."""

    def __init__(self) -> None:
        self.pace = 0.0
        self.times: list[float] = []

    def slow_down(self) -> None:
        tick = Run._tick

        def slower(run: Run, rows: int) -> None:
            time.sleep(self.pace)
            self.times.append(time.monotonic())
            tick(run, rows)

        Run._tick = slower  # type: ignore[method-assign]

    def seconds(self) -> float:
        """What all batches take when kernels have been loaded."""
        gaps = [after - before for before, after in itertools.pairwise(self.times)]
        return len(self.times) * statistics.median(gaps or [0.0])


def struck(function: Any, call: int, done: bool, number: int, stall: float) -> Any:
    """The function, in whose `call`-th call a signal comes: before anything is done, or when it is done."""
    calls = itertools.count(1)

    def strike() -> None:
        os.kill(os.getpid(), number)
        if stall:
            os.write(STALLS[1], b".")
            time.sleep(stall)

    def stricken(*arguments: Any, **options: Any) -> Any:
        now = next(calls) == call
        if now and not done:
            strike()
        try:
            return function(*arguments, **options)
        finally:
            if now and done:
                strike()

    return stricken


def arm(moment: str, *blow: Any) -> None:
    """Let this process send itself a signal at a moment."""
    owner, name = MOMENTS[moment]
    function = getattr(owner, name)
    if function is not tensors.save:
        setattr(owner, name, struck(function, *blow))
        return

    def save(kind: Any, metadata: Any, arrays: Any, write: Any) -> None:
        function(kind, metadata, arrays, struck(write, *blow))

    setattr(owner, name, save)


def run(words: list[str], out: str, err: str) -> int:
    """The command in this process, with its output in two files."""
    sys.argv = ["streamsvm", *words]
    for path, descriptor in ((out, 1), (err, 2)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, descriptor)
        os.close(file)
    code = streamsvm.cli.run()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def run_here(request: dict[str, Any], clock: Clock) -> dict[str, Any]:
    """Without a fork: loads the kernels that children will need, and finds out how long they will take."""
    clock.times.clear()
    own_errors = os.dup(2)
    code = run(request["words"], request["out"], request["err"])
    os.dup2(own_errors, 2)
    os.close(own_errors)
    return {"code": code, "batches": len(clock.times), "seconds": clock.seconds()}


def run_forked(request: dict[str, Any]) -> dict[str, Any]:
    assert threading.active_count() == 1, threading.enumerate()
    stalled()  # what was left by another child
    child = os.fork()
    if child == 0:
        code = 70
        try:
            for strike in request["strikes"]:
                arm(*strike)
            code = run(request["words"], request["out"], request["err"])
        finally:
            os._exit(code)
    stalls = sum(stall > 0.0 for *_, stall in request["strikes"])
    return ended(child, stalls, request["after"], request["number"])


def ended(child: int, stalls: int, after: float | None, number: int) -> dict[str, Any]:
    """Wait for a child, to which a signal is sent after so many seconds; if it does not end at all, it is killed.

    Where it is to stall, they are counted from then on.
    """
    sent, stuck, begun = after is None, False, time.monotonic()
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if stalls and (stalls := stalls - stalled()) == 0:
            begun = time.monotonic()
        seconds = time.monotonic() - begun
        if found:
            return {"code": os.waitstatus_to_exitcode(status), "stuck": stuck}
        if not sent and not stalls and after is not None and seconds > after:
            os.kill(child, number)
            sent = True
        elif seconds > STUCK:
            os.kill(child, signal.SIGKILL)
            stuck = True
        time.sleep(POLL)


def stalled() -> int:
    """How often something has stalled since it was last asked."""
    try:
        return len(os.read(STALLS[0], 100))
    except BlockingIOError:
        return 0


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    requests = os.fdopen(os.dup(0), "r")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    clock = Clock()
    clock.slow_down()
    while line := requests.readline():
        request = json.loads(line)
        clock.pace = request["pace"]
        for name in ("out", "err"):
            Path(request[name]).write_bytes(b"")
        answer = run_forked(request) if request["fork"] else run_here(request, clock)
        answer |= {name: Path(request[name]).read_text(errors="replace") for name in ("out", "err")}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve()
