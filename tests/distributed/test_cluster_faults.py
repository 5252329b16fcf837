"""Workers that are killed, workers that hang, a scheduler that is gone: the result is the same, or can be had later."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from whole_runs import Notes, bits, lines

from streamsvm import load_settings, train
from streamsvm.distributed.cluster import ClusterLostError, opened_cluster
from streamsvm.training import Outcome

ROWS = lines(1500, features=40)
PATIENT = 120.0  # seconds that a busy machine may take to start processes


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "rows.svm"
    path.write_text("\n".join(ROWS) + "\n")
    return str(path)


def settings_for(path: str, storage: Path, **given: Any) -> Any:
    dotted = {name.replace("__", "."): value for name, value in given.items()}
    usual = {
        "data.train": path,
        "output.model": None,
        "solver": "dcd",
        "loss": "hinge",
        "penalty.l2": 1e-3,
        "cluster.shards": 3,
        "cluster.storage": str(storage),
    }
    return load_settings(overrides={**usual, **dotted})


class Once(Notes):
    """A listener that does something when the first round has been proven."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self._act: Callable[[], None] | None = act

    def progress(self, now: Any) -> None:
        if now.gap is not None and self._act is not None:
            act, self._act = self._act, None
            act()


@pytest.fixture(scope="module")
def unbroken(data: str, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    storage = tmp_path_factory.mktemp("storage")
    train(settings_for(data, storage, cluster__storage=None))  # kernels are compiled once, here
    with opened_cluster("local:2", None, PATIENT, lambda text: None) as cluster:
        return bits(train(settings_for(data, storage), client=cluster._client))


def broken(data: str, tmp_path: Path, number: signal.Signals, **given: Any) -> tuple[Outcome, list[str]]:
    """A run in which a worker gets a signal."""
    with opened_cluster("local:2", None, PATIENT, lambda text: None) as cluster:
        client = cluster._client
        victim = next(iter(client.run(os.getpid).values()))
        listener = Once(lambda: os.kill(victim, number))
        try:
            return train(settings_for(data, tmp_path, **given), listener, client=client), listener.notes
        finally:
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)


def test_a_worker_that_is_killed(data: str, tmp_path: Path, unbroken: bytes) -> None:
    outcome, _ = broken(data, tmp_path, signal.SIGKILL)
    assert bits(outcome) == unbroken and outcome.result["gap"] <= 1e-3


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no such signal")
def test_a_worker_that_hangs(data: str, tmp_path: Path, unbroken: bytes) -> None:
    outcome, notes = broken(data, tmp_path, signal.SIGSTOP, cluster__timeout=8.0)
    assert bits(outcome) == unbroken
    assert any("silent" in note for note in notes)


@contextmanager
def processes(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A scheduler and a worker as they run on real clusters."""
    where = folder / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": str(folder)}
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--scheduler-file", str(where), "--no-dashboard"]
    scheduler = subprocess.Popen([*command, "--host", "127.0.0.1", "--port", "0"], **quiet)  # type: ignore[call-overload]
    worker = None
    try:
        until = time.monotonic() + PATIENT
        while not (where.exists() and where.stat().st_size) and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(0.3)
        address = json.loads(where.read_text())["address"]
        command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny", "--no-dashboard"]
        worker = subprocess.Popen([*command, "--nthreads", "2"], **quiet)  # type: ignore[call-overload]
        yield address, scheduler
    finally:
        for process in (scheduler, worker):
            if process is not None:
                process.kill()
                process.wait()


def test_a_scheduler_that_is_gone_leaves_a_checkpoint(
    data: str, tmp_path: Path, unbroken: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = str(tmp_path / "checkpoints")
    with processes(tmp_path) as (address, scheduler):
        listener = Once(scheduler.kill)
        monkeypatch.setattr("streamsvm.distributed.cluster.PATIENCE", 5.0)
        with pytest.raises(ClusterLostError, match="does not answer"):
            train(settings_for(data, tmp_path, cluster__at=address, checkpoint__dir=kept), listener)
    monkeypatch.undo()
    again = settings_for(data, tmp_path, cluster__at="local:1", checkpoint__dir=kept, checkpoint__resume=True)
    notes = Notes()
    outcome = train(again, notes)
    assert any(note.startswith("going on from") for note in notes.notes)
    assert bits(outcome) == unbroken
