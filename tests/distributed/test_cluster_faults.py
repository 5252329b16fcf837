"""Workers that are killed, workers that hang, a scheduler that is gone: the result is the same, or can be had later."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dask_processes import PATIENT, processes, scheduler_and_worker
from signals import heard
from whole_runs import Notes, bits, lines

from streamsvm import load_settings, train
from streamsvm.distributed.cluster import ClusterLostError
from streamsvm.distributed.opening import opened_cluster

ROWS = lines(1500, features=40)


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


@pytest.mark.full
def test_a_worker_that_is_killed(data: str, tmp_path: Path, unbroken: bytes) -> None:
    with opened_cluster("local:2", None, PATIENT, lambda text: None) as cluster:
        client = cluster._client
        victim = next(iter(client.run(os.getpid).values()))
        listener = Once(lambda: os.kill(victim, signal.SIGKILL))
        outcome = train(settings_for(data, tmp_path), listener, client=client)
    assert bits(outcome) == unbroken and outcome.result["gap"] <= 1e-3


@pytest.mark.full
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no such signal")
def test_a_worker_that_hangs(data: str, tmp_path: Path, unbroken: bytes) -> None:
    """It has the only copy of what the other one needs, which is silent too, then.

    Dask removes copies that nobody needs for the moment."""
    with processes(tmp_path) as started:
        address, _ = started.scheduler()
        started.worker(address)
        started.worker(address)
        with opened_cluster(address, None, PATIENT, lambda text: None) as cluster:
            client = cluster._client
            client.wait_for_workers(2, timeout=PATIENT)
            pids = client.run(os.getpid)

            def stop() -> None:
                client.amm.run_once()
                until = time.monotonic() + PATIENT
                while not (alone := [places[0] for places in client.who_has().values() if len(places) == 1]):
                    assert time.monotonic() < until
                    time.sleep(0.05)
                os.kill(pids[alone[0]], signal.SIGSTOP)

            listener = Once(stop)
            outcome = train(settings_for(data, tmp_path, cluster__timeout=15.0), listener, client=client)
    assert bits(outcome) == unbroken
    assert sum("silent" in note for note in listener.notes) == 1


@pytest.mark.full
def test_a_scheduler_that_is_gone_leaves_a_checkpoint(
    data: str, tmp_path: Path, unbroken: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = str(tmp_path / "checkpoints")
    with scheduler_and_worker(tmp_path) as (address, scheduler):
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


@pytest.mark.full
def test_ctrl_c_is_for_the_driver(data: str, tmp_path: Path) -> None:
    """A terminal sends it to all processes; workers leave it to the driver, which keeps a checkpoint and ends them."""
    command = [sys.executable, "-m", "streamsvm", "train", data, "--solver", "dcd", "--loss", "hinge", "--l2", "1e-3"]
    command += ["--cluster", "local:2", "--checkpoint", "kept", "--tol", "1e-12", "--json"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with heard():
        running = subprocess.Popen(command, cwd=tmp_path, start_new_session=True, **pipes)
    assert running.stdout is not None
    for line in running.stdout:
        if json.loads(line).get("gap") is not None:
            break
    os.killpg(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=PATIENT)
    assert running.returncode == 130 and "Traceback" not in said, said[-2000:]
    assert said.rstrip().splitlines()[-1].startswith("to go on: streamsvm train ")
    assert any(path.is_file() for path in (tmp_path / "kept").iterdir())
