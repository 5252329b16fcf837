"""A bucket as what all workers share: data, dual variables, checkpoints and predictions, by the real S3 protocol."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from s3_server import Server, bucket
from whole_runs import KilledError, Notes, bits, lines

pytest.importorskip("distributed")
pytest.importorskip("moto", reason="moto's S3 server is not installed")
pytest.importorskip("s3fs", reason="s3fs is not installed")

from streamsvm import load_settings, train
from streamsvm.distributed.cluster import Cluster
from streamsvm.distributed.opening import opened_cluster
from streamsvm.errors import SourceError, StreamSvmError
from streamsvm.io.parts import Access, use_access

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]

SECRET = "very-secret-indeed"
NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def files(server: Server) -> Iterator[Any]:
    with bucket(server, "runs") as found:
        found.pipe_file("runs/rows.svm", ("\n".join(lines(900, features=40)) + "\n").encode())
        yield found


@pytest.fixture(scope="module")
def client(files: Any) -> Iterator[Any]:
    """Two processes that know of the bucket by two variables of their own, and not by those that everybody reads."""
    with pytest.MonkeyPatch.context() as patch:
        for name in NAMES:
            patch.delenv(name)
        patch.setenv("OUR_KEY", "somebody")
        patch.setenv("OUR_SECRET", SECRET)
        with opened_cluster("local:2", None, 60.0, lambda text: None) as opened:
            yield opened._client


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    yield
    use_access(Access())


@pytest.fixture
def settings(server: Server) -> Any:
    options = {"key": "${OUR_KEY}", "secret": "${OUR_SECRET}", "endpoint_url": f"http://127.0.0.1:{server.port}"}

    def settings(**given: Any) -> Any:
        usual = {
            "data.train": "s3://runs/rows.svm",
            "output.model": None,
            "solver": "dcd",
            "loss": "hinge",
            "penalty.l2": 1e-2,
            "solver.tol": 1e-2,
            "cluster.shards": 3,
            "cluster.storage": "s3://runs/storage",
            "storage_options.s3": options,
        }
        return load_settings(overrides=usual | {name.replace("__", "."): value for name, value in given.items()})

    return settings


class Looking(Notes):
    """Sees which dual variables are in the bucket after each round; may end the run after some."""

    def __init__(self, files: Any, place: str, rounds: int | None = None) -> None:
        super().__init__()
        self._files, self._place, self._rounds = files, place, rounds
        self.seen: list[set[str]] = []

    def progress(self, now: Any) -> None:
        if now.gap is None:
            return
        self._files.invalidate_cache()
        names = set(self._files.find(self._place))
        if not self.seen or self.seen[-1] != names:
            self.seen.append(names)
        if len(self.seen) == self._rounds:
            raise KilledError


@pytest.fixture(scope="module")
def local(client: Any, files: Any, server: Server, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What comes of it where the dual variables, and the data, are in local directories."""
    folder = tmp_path_factory.mktemp("local")
    (folder / "rows.svm").write_bytes(files.cat_file("runs/rows.svm"))
    given = {"solver": "dcd", "loss": "hinge", "penalty.l2": 1e-2, "solver.tol": 1e-2, "cluster.shards": 3}
    given |= {"data.train": str(folder / "rows.svm"), "output.model": None, "cluster.storage": str(folder / "storage")}
    return bits(train(load_settings(overrides=given), client=client))


def test_dual_variables_in_a_bucket(
    client: Any, files: Any, settings: Any, local: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    share = Cluster.share
    monkeypatch.setattr(Cluster, "share", lambda self, value, size=0: (sent.append(value), share(self, value, size))[1])
    listener = Looking(files, "runs/storage")
    outcome = train(settings(output__model=str(tmp_path / "model")), listener, client=client)
    assert bits(outcome) == local
    assert all(3 <= len(names) <= 6 for names in listener.seen)  # those of a round, and some of the next
    names = set.union(*listener.seen)
    places = {tuple(name.rsplit("-", 3)[1:3]) for name in names}  # shard and round
    assert len(places) == len(names) > 9  # every round writes under new names, once
    files.invalidate_cache()
    assert files.find("runs/storage") == []
    assert sent and not any(SECRET.encode() in pickle.dumps(value) for value in sent)  # each worker looks it up
    assert SECRET.encode() not in (tmp_path / "model").read_bytes()
    assert not any(SECRET in note for note in listener.notes)


def test_a_checkpoint_in_a_bucket(client: Any, files: Any, settings: Any, local: bytes) -> None:
    given = {"checkpoint__dir": "s3://runs/kept", "checkpoint__every": 0.01, "cluster__storage": None}
    with pytest.raises(KilledError):
        train(settings(**given), Looking(files, "runs/kept/dual", rounds=4), client=client)
    files.invalidate_cache()
    names = files.find("runs/kept")
    assert any("/checkpoint-" in name for name in names) and any("/dual/" in name for name in names)
    assert not any(SECRET.encode() in files.cat_file(name) for name in names)
    notes = Notes()
    outcome = train(settings(**given, checkpoint__resume=True), notes, client=client)
    assert any(note.startswith("going on from") for note in notes.notes) and bits(outcome) == local


def told(caught: Any) -> str:
    text = str(caught.value)
    assert SECRET not in text and "\n" not in text
    return text


def test_what_a_worker_does_not_know_is_told_with_its_name(
    client: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that only the driver has."""
    monkeypatch.setenv("ONLY_HERE", SECRET)
    with pytest.raises(StreamSvmError) as caught:
        train(settings(storage_options__s3__secret="${ONLY_HERE}"), client=client)
    text = told(caught)
    assert "ONLY_HERE" in text and "(on worker tcp://127.0.0.1:" in text


def test_somebody_unknown(client: Any, server: Server, settings: Any) -> None:
    """The driver finds the data, and then nobody lets the workers in."""
    given = settings(solver="newton", loss="squared_hinge")

    class Late(Notes):
        def note(self, text: str) -> None:
            super().note(text)
            if "shards of about" in text:
                server.ask_who_calls(True)

    try:
        with pytest.raises(SourceError) as caught:
            train(given, Late(), client=client)
    finally:
        server.ask_who_calls(False)
    assert "s3://runs/rows.svm" in told(caught) and "(on worker tcp://127.0.0.1:" in told(caught)
