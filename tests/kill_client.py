"""The other side of kill_server.py: what happens to a process, and asking for it."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

SERVER = Path(__file__).with_name("kill_server.py")
PACE = 0.001  # seconds that a batch takes longer than it must


class Strike(NamedTuple):
    """A signal that a process sends itself, in a call of a function: before or after its work is done."""

    moment: str
    call: int = 1
    done: bool = False
    number: int = signal.SIGKILL  # 0 for none
    stall: float = 0.0  # seconds for which nothing happens afterwards

    def __str__(self) -> str:
        return f"{'after' if self.done else 'before'} call {self.call} of {self.moment}"


class Fate(NamedTuple):
    """What happens to a process: strikes, and a signal from outside after so many seconds."""

    strikes: tuple[Strike, ...] = ()
    after: float | None = None
    number: int = signal.SIGKILL

    def __str__(self) -> str:
        return ", ".join([*map(str, self.strikes), *([] if self.after is None else [f"after {self.after:.3f} s"])])


UNHARMED = Fate()


# The server


class Server:
    """The other side of kill_server.py."""

    def __init__(self, process: subprocess.Popen[str], place: Path) -> None:
        self._process = process
        self._output = {"out": str(place / "out"), "err": str(place / "err")}

    def ask(self, words: list[str], fate: Fate = UNHARMED, *, fork: bool = True) -> dict[str, Any]:
        request = {"words": words, "fork": fork, "pace": PACE if fork else 0.0, **fate._asdict(), **self._output}
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("kill_server.py is gone; what it said is on standard error")
        answer: dict[str, Any] = json.loads(line)
        if answer.get("stuck"):
            raise RuntimeError(f"{shlex.join(words)}: does not end\n{answer['err']}")
        return answer


@contextmanager
def started(place: Path) -> Iterator[Server]:
    """A server in a process group of its own, of which nothing is left in the end."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # no threads that nobody needs
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, str(SERVER)]
    with subprocess.Popen(command, env=environment, start_new_session=True, **pipes) as process:
        try:
            yield Server(process, place)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
