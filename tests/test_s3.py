"""Buckets by the real protocol: moto's S3 server on this machine, s3fs as the client. Data in them, and checkpoints."""

import gzip
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from s3_server import Server, bucket
from signals import NEVER
from whole_runs import KilledError, Life, lines

import streamsvm.readers
import streamsvm.solvers.base
from streamsvm import load_model
from streamsvm.config import load_settings
from streamsvm.errors import SourceError
from streamsvm.io import retries
from streamsvm.io.parts import Access, Part, find_parts, open_part, use_access
from streamsvm.training import train

pytest.importorskip("moto", reason="moto's S3 server is not installed")
pytest.importorskip("s3fs", reason="s3fs is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def server() -> Any:
    made = Server()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def files(server: Server) -> Any:
    with bucket(server, "runs") as found:
        yield found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(retries, "FIRST_WAIT", 0.0)
    yield
    use_access(Access())


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(streamsvm.readers, "SMALLEST_BLOCK", 4000)
    monkeypatch.setattr(streamsvm.readers, "LARGEST_BLOCK", 4000)
    monkeypatch.setattr(streamsvm.solvers.base, "TRIAL_ROWS", 150)
    monkeypatch.setattr("streamsvm.features.held_back.ROWS", 100)
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


@pytest.mark.full
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


# Data.


def wrong(url: str, part: Part | None = None) -> str:
    with pytest.raises(SourceError) as caught, closing(open_part(part or find_parts([url])[0])) as file:
        file.read()
    assert "very-secret" not in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


def weights(data: str, place: Path, **given: Any) -> bytes:
    overrides = {"data.train": data, "output.model": str(place)} | {k.replace("__", "."): v for k, v in given.items()}
    train(load_settings(overrides=overrides, environ={}))
    return load_model(str(place)).weights.tobytes()


@pytest.mark.parametrize("kind", ["svm", "svm.gz", "parquet"])
def test_a_model_from_a_bucket_is_the_model_from_disk(files: Any, tmp_path: Path, kind: str) -> None:
    """Of all objects that match, in the order of their names; as a directory too."""
    for number in range(3):
        path = tmp_path / f"part-{number}.{kind}"
        if kind == "parquet":
            noise = np.random.default_rng(number).normal(size=(4, 5000)).astype(np.float32)
            columns = {"label": (noise[0] > noise[1]).astype(np.int8), "a": noise[1], "b": noise[2], "c": noise[3]}
            pq.write_table(pa.table(columns), path, row_group_size=1000)
        else:
            text = ("\n".join(lines(1000)[number * 300 :]) + "\n").encode()
            path.write_bytes(gzip.compress(text) if kind.endswith("gz") else text)
        files.pipe_file(f"runs/{kind}/part-{number}.{kind}", path.read_bytes())
    files.pipe_file(f"runs/{kind}/_SUCCESS", b"")
    local = weights(str(tmp_path / f"part-*.{kind}"), tmp_path / "local")
    assert weights(f"s3://runs/{kind}/part-*.{kind}", tmp_path / "bucket") == local
    assert weights(f"s3://runs/{kind}", tmp_path / "bucket") == local


def test_an_object_that_changes(files: Any) -> None:
    content = bytes(range(256)) * 40_000
    files.pipe_file("runs/changes", content)
    (part,) = find_parts(["s3://runs/changes"])
    with closing(open_part(part)) as file:
        assert file.read(1000) == content[:1000]
        files.pipe_file("runs/changes", bytes(reversed(content)))
        with pytest.raises(SourceError, match="s3://runs/changes: changed while it was read"):
            file.read()
    with closing(open_part(find_parts(["s3://runs/changes"])[0])) as file:  # as it is now
        assert file.read() == bytes(reversed(content))


def test_what_is_not_there(files: Any) -> None:
    assert wrong("s3://runs/nothing") == "s3://runs/nothing: no such file"
    assert wrong("s3://runs/nothing-*") == "s3://runs/nothing-*: no file matches"
    files.pipe_file("runs/soon-gone", b"1 1:1\n")
    (part,) = find_parts(["s3://runs/soon-gone"])
    files.rm("runs/soon-gone")
    assert "NoSuchKey" in (told := wrong(part.url, part))
    assert told.startswith("s3://runs/soon-gone: cannot read on at byte 0: ")


def test_options_in_settings(files: Any, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of the environment, and the environment's values by reference."""
    (tmp_path / "rows.svm").write_text("\n".join(lines(300)) + "\n")
    files.pipe_file("runs/options.svm", (tmp_path / "rows.svm").read_bytes())
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("MY_SECRET", "very-secret")
    options = {"key": "somebody", "secret": "${MY_SECRET}", "endpoint_url": f"http://127.0.0.1:{server.port}"}
    local = weights(str(tmp_path / "rows.svm"), tmp_path / "local")
    model = tmp_path / "bucket"
    assert weights("s3://runs/options.svm", model, storage_options={"s3": options}) == local
    assert b"very-secret" not in model.read_bytes() and b"MY_SECRET" not in model.read_bytes()


def test_somebody_unknown(files: Any, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trying again would not help, and take longer than a test lasts."""
    for name in ("FIRST_WAIT", "LONGEST_WAIT"):
        monkeypatch.setattr(retries, name, NEVER)
    files.pipe_file("runs/mine", b"1 1:1\n")
    (part,) = find_parts(["s3://runs/mine"])
    server.ask_who_calls(True)
    try:
        assert "s3://runs/mine: cannot look it up: " in (told := wrong("s3://runs/mine"))
        assert "Forbidden" in told or "Access" in told
        assert "s3://runs/mine: cannot read on at byte 0: " in (told := wrong(part.url, part))
        assert "InvalidAccessKeyId" in told or "403" in told
    finally:
        server.ask_who_calls(False)
