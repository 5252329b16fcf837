"""Checkpoints in a bucket, by the real protocol: moto's S3 server on this machine, s3fs as the client."""

import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from whole_runs import KilledError, Life, lines

import streamsvm.readers
import streamsvm.solvers.base
from streamsvm import load_model
from streamsvm.config import load_settings
from streamsvm.training import train

pytest.importorskip("moto", reason="moto's S3 server is not installed")
s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")


class Server:
    """An S3 server that can be taken away and brought back; its buckets are empty then."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self._process.poll() is None, "the server did not start"
            time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture(scope="module")
def server() -> Any:
    made = Server()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def files(server: Server, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The bucket `runs`, as s3fs sees it, with credentials in the environment as usual."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "very-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        s3fs.S3FileSystem.clear_instance_cache()
        found = s3fs.S3FileSystem()
        if not found.exists("runs"):
            found.mkdir("runs")
    yield found
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(streamsvm.readers, "SMALLEST_BLOCK", 4000)
    monkeypatch.setattr(streamsvm.readers, "LARGEST_BLOCK", 4000)
    monkeypatch.setattr(streamsvm.solvers.base, "TRIAL_ROWS", 150)
    (tmp_path / "rows.svm").write_text("\n".join(lines(3000)) + "\n")

    def run(listener: Life, **given: Any) -> bytes:
        overrides = {
            "data.train": str(tmp_path / "rows.svm"),
            "output.model": str(tmp_path / "model.safetensors"),
            "solver.passes": 2,
            "checkpoint.every": None,
            "checkpoint.every_rows": 500,
        }
        overrides |= {key.replace("__", "."): value for key, value in given.items()}
        train(load_settings(overrides=overrides, environ={}), listener)
        return (tmp_path / "model.safetensors").read_bytes()

    return run


def test_a_run_goes_on_from_a_bucket(files: Any, run: Any) -> None:
    place = "s3://runs/goes-on"
    for batches in (12, 9, 20):
        with pytest.raises(KilledError):
            run(Life(batches), checkpoint__dir=place, checkpoint__resume=True)
        names = files.ls("runs/goes-on", detail=False, refresh=True)
        assert 1 <= len(names) <= 3
        assert load_model(place).dim == 31
    last = Life()
    found = run(last, checkpoint__dir=place, checkpoint__resume=True)
    assert any(note.startswith("going on from pass ") for note in last.notes)
    assert found == run(Life())
    names = files.ls("runs/goes-on", detail=False, refresh=True)
    assert len(names) == 2
    assert not any(b"very-secret" in files.cat_file(name) for name in names)


def test_a_damaged_object_is_passed_over(files: Any, run: Any) -> None:
    place = "s3://runs/damaged"
    with pytest.raises(KilledError):
        run(Life(30, events=dict.fromkeys((10, 20, 25), lambda: time.sleep(0.5))), checkpoint__dir=place)
    newest = max(files.ls("runs/damaged", detail=False, refresh=True))
    files.pipe_file(newest, files.cat_file(newest)[:-10])
    last = Life()
    found = run(last, checkpoint__dir=place, checkpoint__resume=True)
    assert any("falling back to the checkpoint before it" in note for note in last.notes)
    assert found == run(Life())


def test_a_bucket_out_of_reach_does_not_stop_learning(server: Server, files: Any, run: Any) -> None:
    place = "s3://runs/gone"

    def wait() -> None:
        time.sleep(1.2)  # until the next attempt is due

    def back() -> None:
        server.start()
        files.mkdir("runs")

    events = {15: server.stop, 30: wait, 35: wait, 36: back, 40: wait, 45: wait, 50: wait}
    life = Life(events=events)
    try:
        found = run(life, checkpoint__dir=place)
    finally:
        server.stop()
        server.start()
    failures = [note for note in life.notes if note.startswith("warning: no checkpoint could be written: s3://runs/")]
    assert failures and all("very-secret" not in note for note in life.notes)
    assert any(note.startswith("checkpoints can be written again") for note in life.notes), life.notes
    assert found == run(Life())
