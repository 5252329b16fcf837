"""Who answers at the address of a cluster, and what its workers have: one clear error, before any work is done."""

import errno
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from dask_processes import PATIENT, package, processes
from whole_runs import Notes, bits, lines

pytest.importorskip("distributed")

import streamsvm
from streamsvm import load_settings, open_stream, train
from streamsvm.distributed import joining, opening
from streamsvm.distributed.cluster import OWN_DISK, Failure
from streamsvm.distributed.job import ShardPasses
from streamsvm.distributed.opening import opened_cluster
from streamsvm.errors import ConfigError, DataError, SourceError

ROWS = lines(300)


def settings_for(path: str, **given: Any) -> Any:
    dotted = {name.replace("__", "."): value for name, value in given.items()}
    usual = {"data.train": path, "output.model": None, "solver": "newton", "penalty.l2": 1e-2, "cluster.shards": 2}
    return load_settings(overrides={**usual, **dotted})


# Addresses.


@contextmanager
def listener(greeting: bytes) -> Iterator[str]:
    """Something that listens, says its greeting, and waits."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def answer() -> None:
            while True:
                try:
                    caller, _ = server.accept()
                except OSError:
                    return
                held.append(caller)
                caller.sendall(greeting)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for caller in held:
            caller.close()


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 400 Bad Request\r\n", b"\0" * 8])
def test_something_else_that_listens(greeting: bytes, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "GREETING", 0.5)
    with listener(greeting) as at, pytest.raises(SourceError, match="does not speak as a Dask scheduler does"):
        train(settings_for(data, cluster__at=at))


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match="no Dask scheduler answers: Connection refused"):
        joining.refuse_if_nobody("tcp://127.0.0.1:9", 0.5)

    def unknown(*arguments: Any, **more: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown)
    with pytest.raises(SourceError, match="Name or service not known"):  # at once: no patience helps
        joining.refuse_if_nobody("tcp://schedulr:8786", 3600.0)


ADDRESSES = [
    ("tpc://host:8786", "unknown address scheme 'tpc'"),
    ("http://host:8787", "unknown address scheme 'http'"),
    ("tcp://host", "has no port"),
    ("tcp://:8786", "has no host"),
    ("tcp://host:port", "such as tcp://scheduler:8786"),
    ("tls://127.0.0.1:9", r"distributed\.comm\.tls"),
]


@pytest.mark.parametrize(("at", "said"), ADDRESSES, ids=lambda value: value[:12])
def test_addresses_that_are_none(at: str, said: str, data: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        train(settings_for(data, cluster__at=at))
    assert str(caught.value).startswith(f"cluster.at: {at}") and "\n" not in str(caught.value)


# Workers.


def copied(folder: Path) -> dict[str, str]:
    """The same version, of which one file was edited."""
    import shutil

    shutil.copytree(Path(streamsvm.__file__).parent, folder / "other/streamsvm")
    with open(folder / "other/streamsvm/distributed/work.py", "a") as file:
        file.write("# edited\n")
    return {"PYTHONPATH": str(folder / "other")}


STRANGERS: list[tuple[Callable[[Path], dict[str, str]], str]] = [
    (lambda folder: package(folder, "__version__ = '0.0.9'\n"), "has streamsvm 0.0.9"),
    (lambda folder: package(folder, "raise ModuleNotFoundError('No module named streamsvm')\n"), "has no streamsvm"),
    (copied, "has other sources of streamsvm"),
]


@pytest.mark.parametrize(("other", "said"), STRANGERS, ids=["version", "none", "edited"])
def test_workers_that_have_something_else(
    other: Callable[[Path], dict[str, str]], said: str, data: str, tmp_path: Path
) -> None:
    with processes(tmp_path) as started:
        address, _ = started.scheduler()
        started.worker(address, env=other(tmp_path))
        with pytest.raises(ConfigError, match=said) as caught:
            train(settings_for(data, cluster__at=address))
        assert f"{address}: worker tcp://127.0.0.1:" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("other", "said"), STRANGERS, ids=["version", "none", "edited"])
def test_a_scheduler_that_has_something_else(
    other: Callable[[Path], dict[str, str]], said: str, data: str, tmp_path: Path
) -> None:
    with processes(tmp_path) as started:
        address, _ = started.scheduler(env=other(tmp_path))
        started.worker(address)
        with pytest.raises(ConfigError, match="the scheduler.* has (no|other sources of) streamsvm") as caught:
            train(settings_for(data, cluster__at=address))
        assert str(caught.value).startswith(f"{address}: the scheduler") and "\n" not in str(caught.value)


def test_a_stranger_that_comes_later_gets_no_work(tmp_path: Path) -> None:
    with processes(tmp_path) as started:
        address, _ = started.scheduler()
        started.worker(address)
        notes = Notes()
        with opened_cluster(address, None, PATIENT, notes.note) as cluster:
            cluster.sizes = {0: 1, 1: 1}
            assert cluster.each(abs, {0: [-1], 1: [-2]}) == [1, 2]
            started.worker(address, env=package(tmp_path, "__version__ = '9.9'\n"))
            cluster._client.wait_for_workers(2, timeout=PATIENT)
            assert cluster.each(abs, {0: [-3], 1: [-4]}) == [3, 4]
            assert any("has streamsvm 9.9" in note and "it gets no work" in note for note in notes.notes)
            own = set(cluster.threads())
            assert len(own) == 1
            shared = cluster.share([1, 2, 3])
            assert cluster.each(len, {number: [shared] for number in range(2)}) == [3, 3]
            assert set(cluster._client.who_has(shared.future)[shared.future.key]) == own


def test_other_libraries_are_told() -> None:
    own = joining.Peer("here", "x", {"numpy": "2.0", "Python": "3.11.7"})
    other = joining.Peer("there", "x", {"numpy": "1.26", "Python": "3.11.7"})
    assert joining._differences(own, {"tcp://a:1": own}) == []
    (told,) = joining._differences(own, {"tcp://a:1": own, "tcp://b:1": other, "tcp://c:1": other})
    assert told.startswith("warning: ") and "numpy 1.26 on tcp://b:1, 2.0 here" in told and "Python" not in told


def test_errors_name_the_worker_unless_a_row_is_wrong() -> None:
    failure = Failure("SourceError", "/data/x: cannot open", "tcp://10.0.0.3:1 on host3")
    told = str(failure.raised(elsewhere=True))
    assert told.startswith("/data/x: cannot open (on worker tcp://10.0.0.3:1 on host3; ") and "bucket" in told
    assert str(failure.raised(elsewhere=False)) == "/data/x: cannot open"
    row = Failure("DataError", "x:3: bad", "tcp://10.0.0.3:1 on host3").raised(elsewhere=True)
    assert str(row) == "x:3: bad" and isinstance(row, DataError)


def test_a_worker_whose_disk_is_full(data: str, tmp_path: Path) -> None:
    """It is its own directory that is full, which no other path would mend."""

    def write() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    passes = ShardPasses(open_stream(data), cache=str(tmp_path / "rows.arrow"), passes=2)
    with pytest.raises(SourceError, match=f"No space left on device; {OWN_DISK}$") as caught:
        passes._try(write)
    told = str(Failure("SourceError", str(caught.value), "tcp://10.0.0.3:1 on host3").raised(elsewhere=True))
    assert told.endswith(f"{OWN_DISK} (on worker tcp://10.0.0.3:1 on host3)")


def test_a_file_that_is_another_one_on_a_worker(data: str, tmp_path: Path) -> None:
    from streamsvm.distributed.job import refuse_other_files
    from streamsvm.io.parts import find_parts
    from streamsvm.io.spans import Span

    (part,) = find_parts([data])
    refuse_other_files((Span(part),))
    with pytest.raises(SourceError, match="rows.svm: has .* bytes here, not 7 as for the driver"):
        refuse_other_files((Span(part._replace(size=7)),))
    refuse_other_files((Span(part._replace(url=str(tmp_path / "gone"))),))  # told when it is opened


# Ways to run workers.


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_tls_as_dask_is_configured(data: str, tmp_path: Path) -> None:
    """Certificates are named in Dask's own settings, here and on the command lines of its processes."""
    pytest.importorskip("cryptography")
    import dask
    from distributed import Security

    security = Security.temporary()
    for name, text in {"ca.pem": security.tls_ca_file, "key.pem": security.tls_client_key}.items():
        (tmp_path / name).write_text(text)
    ca, key = str(tmp_path / "ca.pem"), str(tmp_path / "key.pem")  # a certificate that vouches for itself
    tls = ("--tls-ca-file", ca, "--tls-cert", ca, "--tls-key", key)
    with processes(tmp_path) as started:
        address, _ = started.scheduler("--protocol", "tls", *tls)
        assert address.startswith("tls://")
        started.worker(address, ("--nthreads", "2", "--no-nanny", "--protocol", "tls", *tls))
        own = {"ca-file": ca, "client.cert": ca, "client.key": key}
        with dask.config.set({f"distributed.comm.tls.{name}": value for name, value in own.items()}):
            notes = Notes()
            train(settings_for(data, cluster__at=address), notes)
            assert any("on 1 worker with 2 threads" in note for note in notes.notes)
        with pytest.raises(SourceError, match="or with TLS tls://"):
            joining.refuse_if_nobody(address.replace("tls:", "tcp:"), 1.0)


@pytest.mark.full
def test_a_nanny_and_several_processes_with_threads(data: str, tmp_path: Path) -> None:
    """As `dask worker --nworkers 2 --nthreads 2`: the result is that of any other workers."""
    with processes(tmp_path) as started:
        address, _ = started.scheduler()
        scratch = ("--local-directory", str(tmp_path / "scratch"))
        started.worker(address, ("--nworkers", "2", "--nthreads", "2", *scratch))
        with opened_cluster(address, None, PATIENT, lambda text: None) as cluster:
            cluster._client.wait_for_workers(2, timeout=PATIENT)
            many = bits(train(settings_for(data, cluster__shards=5), client=cluster._client))
            assert not list((tmp_path / "scratch").rglob("*.arrow"))  # the caches are gone with the run
    with opened_cluster("local:1", None, PATIENT, lambda text: None) as cluster:
        assert bits(train(settings_for(data, cluster__shards=5), client=cluster._client)) == many


def test_a_scheduler_without_workers(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with processes(tmp_path) as started:
        address, _ = started.scheduler()
        connect = opening._client

        def impatient(*arguments: Any) -> Any:
            client = connect(*arguments)
            monkeypatch.setattr(opening, "PATIENCE", 0.5)  # from now on
            return client

        monkeypatch.setattr(opening, "_client", impatient)
        with pytest.raises(SourceError, match="has no worker"):
            train(settings_for(data, cluster__at=address))


def test_the_sources_are_known_by_their_content() -> None:
    assert joining.peer() == joining.peer() and set(joining.peer().libraries) >= {"Python", "numpy", "numba"}
    assert sys.version_info[:2] == tuple(map(int, joining.peer().libraries["Python"].split(".")[:2]))
