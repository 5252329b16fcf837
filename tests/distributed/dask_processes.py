"""A Dask scheduler and workers as processes of their own, as on real clusters."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENT = 120.0  # seconds that a busy machine may take to start processes
MODULES = "distributed.cli.dask_"


class Processes:
    """They end with the block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, kind: str, *arguments: str, env: Mapping[str, str] = {}) -> subprocess.Popen[bytes]:
        with open(self._folder / f"{kind}.log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", MODULES + kind, *arguments, "--no-dashboard"],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self._folder,
                env={**os.environ, **env},
                start_new_session=True,
            )
        self._running.append(process)
        return process

    def scheduler(self, *arguments: str, env: Mapping[str, str] = {}) -> tuple[str, subprocess.Popen[bytes]]:
        """Its address, and the process."""
        where = self._folder / "scheduler.json"
        place = ("--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(where))
        process = self.start("scheduler", *place, *arguments, env=env)
        until = time.monotonic() + PATIENT
        while time.monotonic() < until and process.poll() is None:
            try:
                return str(json.loads(where.read_text())["address"]), process
            except (OSError, ValueError):  # not yet there, or not yet whole
                time.sleep(0.1)
        raise AssertionError(f"no scheduler: {(self._folder / 'scheduler.log').read_text()}")

    def worker(
        self, address: str, arguments: Sequence[str] = ("--nthreads", "1", "--no-nanny"), env: Mapping[str, str] = {}
    ) -> subprocess.Popen[bytes]:
        return self.start("worker", address, *arguments, env=env)


def package(folder: Path, text: str) -> dict[str, str]:
    """An environment in which `import streamsvm` finds something else."""
    (folder / "other/streamsvm").mkdir(parents=True)
    (folder / "other/streamsvm/__init__.py").write_text(text)
    return {"PYTHONPATH": str(folder / "other")}


@contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    made = Processes(folder)
    try:
        yield made
    finally:
        for process in made._running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a nanny and its workers
            process.wait()


@contextmanager
def scheduler_and_worker(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a scheduler that has a worker of two threads, and its process."""
    with processes(folder) as made:
        address, scheduler = made.scheduler()
        made.worker(address, ("--nthreads", "2", "--no-nanny"))
        yield address, scheduler
