"""Runs `streamsvm` commands in forked children, and sees them killed; test_kill.py starts it.

    a line of JSON on standard input --> fork --> child: streamsvm.cli.run --> killed, or at its end
    a line of JSON on standard output <-- how it ended, and what it had to say

Python takes a second to start and to load kernels, a fork takes milliseconds. Blocks, groups and trials are of few rows
here, and every batch takes a moment longer than it must, so that a short run has many places and time to be killed in.
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
import streamsvm.io.cache
import streamsvm.solvers.base
import streamsvm.stream
import streamsvm.training
import streamsvm.tuning
from streamsvm.checkpoint import Checkpoints
from streamsvm.io import cache_writer, generations, tensors
from streamsvm.runs import Run

STUCK = 60.0  # seconds after which a child is not waited for any longer
POLL = 0.001

streamsvm.stream.SMALLEST_BLOCK = streamsvm.stream.LARGEST_BLOCK = 2000
streamsvm.io.cache.GROUP_ROWS = 70
streamsvm.solvers.base.TRIAL_ROWS = 150

# Where a child can be told to kill itself: functions of the package, or those of Python that it calls.
MOMENTS: dict[str, tuple[Any, str]] = {
    "batch": (Run, "_tick"),
    "directory taken": (generations.Generations, "take"),
    "newest looked for": (generations.Generations, "newest"),
    "run restored": (Run, "_restore"),
    "numbers copied": (Checkpoints, "_begin"),
    "checkpoint written": (generations.Generations, "write"),
    "old one removed": (generations, "remove"),
    "group written": (cache_writer.GroupFile, "write"),
    "piece of a group": (cache_writer._Sink, "write"),
    "cache cut off": (cache_writer.GroupFile, "go_on"),
    "cache completed": (cache_writer.GroupFile, "complete"),
    "fsync": (os, "fsync"),
    "rename": (os, "replace"),
    "unlink": (os, "unlink"),
}
PIECE = "piece of a checkpoint"


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
        return len(self.times) * statistics.median(gaps or [self.pace])


def fatal(function: Any, call: int, done: bool) -> Any:
    """The function, in whose `call`-th call this process ends: before anything is done, or when it is done."""
    calls = itertools.count(1)

    def struck(*arguments: Any, **options: Any) -> Any:
        now = next(calls) == call
        if now and not done:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return function(*arguments, **options)
        finally:
            if now:
                os.kill(os.getpid(), signal.SIGKILL)

    return struck


def arm(moment: str, call: int, done: bool) -> None:
    """Let this process kill itself at a moment."""
    if moment != PIECE:
        owner, name = MOMENTS[moment]
        setattr(owner, name, fatal(getattr(owner, name), call, done))
        return
    save = tensors.save

    def save_in_part(kind: Any, metadata: Any, arrays: Any, write: Any) -> None:
        save(kind, metadata, arrays, fatal(write, call, done))

    tensors.save = save_in_part


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
    code = run(request["words"], request["out"], request["err"])
    return {"code": code, "batches": len(clock.times), "seconds": clock.seconds()}


def run_forked(request: dict[str, Any]) -> dict[str, Any]:
    assert threading.active_count() == 1, threading.enumerate()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            if request.get("strike"):
                arm(*request["strike"])
            code = run(request["words"], request["out"], request["err"])
        finally:
            os._exit(code)
    return ended(child, request.get("after"))


def ended(child: int, after: float | None) -> dict[str, Any]:
    """Wait for a child, and kill it after so many seconds; a code of -9 means that it was killed."""
    limit = time.monotonic() + (STUCK if after is None else after)
    late = False
    while True:
        found, status = os.waitpid(child, os.WNOHANG if not late else 0)
        if found:
            return {"code": os.waitstatus_to_exitcode(status), "stuck": late and after is None}
        if time.monotonic() > limit:
            os.kill(child, signal.SIGKILL)
            late = True
        else:
            time.sleep(POLL)


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
