"""Before work begins: is there a Dask scheduler at an address, and do its workers have what tasks need?

Dask itself waits for ever where something else listens, and a worker that lacks this package fails in the middle of a
task. So whoever listens is heard first, and every worker is asked once what it has, in words that any Python
understands. Workers with another version of this package are refused, since tasks are functions of this one; other
versions of libraries are told, since the last bits of a result may depend on them.
"""

import hashlib
import platform
import socket
import struct
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import streamsvm
from streamsvm import interrupts
from streamsvm.errors import ConfigError, SourceError
from streamsvm.io.urls import reason

LIBRARIES = ("numpy", "numba", "llvmlite", "dask", "distributed", "cloudpickle")
GONE = ("KilledWorker", "CancelledError", "FutureCancelledError")  # what Dask says when a worker is
STEP = 0.05  # seconds between two looks
GREETING = 15.0  # seconds that a scheduler may take to say something
LONGEST = 1 << 32  # bytes of what it says first
EXAMPLE = "the address of a scheduler is such as tcp://scheduler:8786"
OTHER = f"has other sources of streamsvm {streamsvm.__version__} than this machine; install the same on all"
SAME = f"all machines need the same streamsvm, here {streamsvm.__version__}"


def refuse_if_nobody(at: str, patience: float) -> None:
    """SourceError if nobody listens at an address of TCP, or if it is not Dask; others are Dask's own affair."""
    scheme, host, port = _parsed(at)
    if scheme != "tcp":
        return
    until = time.monotonic() + patience
    while True:
        left = until - time.monotonic()
        try:
            with socket.create_connection((host, port), timeout=max(left, STEP)) as heard:
                _refuse_other_voice(at, heard, min(max(left, STEP), GREETING))
                return
        except OSError as error:
            unknown = isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME
            if unknown or time.monotonic() + 10 * STEP > until:
                raise SourceError(
                    f"{at}: no Dask scheduler answers: {reason(error)}; is this its address, does it run, "
                    "and may its port be reached from here?"
                ) from error
        interrupts.check()
        time.sleep(10 * STEP)


def _parsed(at: str) -> tuple[str, str, int]:
    try:
        parts = urlsplit(at)
        scheme, host, port = parts.scheme, parts.hostname or "", parts.port
    except ValueError as error:
        raise ConfigError(f"cluster.at: {at}: {reason(error)}; {EXAMPLE}") from error
    if scheme in ("tcp", "tls") and (not host or port is None):
        raise ConfigError(f"cluster.at: {at} has no {'port' if host else 'host'}; {EXAMPLE}")
    return scheme, host, port or 0


def _refuse_other_voice(at: str, heard: socket.socket, patience: float) -> None:
    """Schedulers speak first: eight bytes say how long their greeting is."""
    heard.settimeout(patience)
    said = b""
    try:
        while len(said) < 8 and (more := heard.recv(8 - len(said))):
            said += more
    except (TimeoutError, ConnectionError):
        pass
    if len(said) < 8 or not 0 < struct.unpack("Q", said)[0] < LONGEST:
        raise SourceError(
            f"{at}: something listens there, but does not speak as a Dask scheduler does; {EXAMPLE}, or with "
            "TLS tls://scheduler:8786 (its pages, port 8787, are something else)"
        )


class Peer(NamedTuple):
    """What a process has of what results depend on."""

    host: str
    sources: str
    libraries: dict[str, str]


def peer() -> Peer:
    """This process."""
    digest = hashlib.sha256()
    root = Path(streamsvm.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes().replace(b"\r\n", b"\n"))
    found = {"Python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return Peer(socket.gethostname(), digest.hexdigest(), found)


def refuse_other_scheduler(client: Any, at: str) -> None:
    """ConfigError if the scheduler cannot read tasks, which it does before it hands them on."""
    try:
        answer: Peer = client.run_on_scheduler(peer)
    except Exception as error:
        raise ConfigError(f"{at}: the scheduler has no streamsvm that fits ({reason(error)}); {SAME}") from error
    if answer.sources != peer().sources:
        raise ConfigError(f"{at}: the scheduler, on {answer.host}, {OTHER}")


class Met(NamedTuple):
    """Workers that were asked: those that cannot work for this run, with the reason; and what else is to be told."""

    strangers: dict[str, str]
    warnings: list[str]


def meet(client: Any, workers: Sequence[str], patience: float) -> Met:
    """Ask workers what they have. Who does not answer in time may be busy: it is taken as it is."""
    strangers: dict[str, str] = {}
    for worker, answer in _asked(client, workers, patience, _version).items():
        if isinstance(answer, ImportError):
            strangers[worker] = f"worker {worker} has no streamsvm ({reason(answer)}); {SAME}"
        elif isinstance(answer, Exception):
            strangers[worker] = f"worker {worker} cannot use its streamsvm ({reason(answer)}); {SAME}"
        elif answer != streamsvm.__version__:
            strangers[worker] = f"worker {worker} has streamsvm {answer}; {SAME}"
    known = [worker for worker in workers if worker not in strangers]
    own, others = peer(), {}
    for worker, answer in _asked(client, known, patience, lambda ask: ask(peer)).items():
        if isinstance(answer, Exception):
            strangers[worker] = f"worker {worker} cannot use its streamsvm ({reason(answer)}); {SAME}"
        elif answer.sources != own.sources:
            strangers[worker] = f"worker {worker} on {answer.host} {OTHER}"
        else:
            others[worker] = answer
    return Met(strangers, _differences(own, others))


def _differences(own: Peer, others: dict[str, Peer]) -> list[str]:
    found: dict[str, str] = {}
    for worker, other in others.items():
        for name, here in own.libraries.items():
            if (there := other.libraries.get(name, "none")) != here:
                found.setdefault(name, f"{name} {there} on {worker}, {here} here")
    if not found:
        return []
    return [f"warning: workers have other libraries: {'; '.join(found.values())}: the last bits of a result may differ"]


def _version(ask: Callable[..., Any]) -> Any:
    """Asked by functions of Python's own, since there this module may be another one, or missing."""
    return ask(attrgetter("__version__"), ask(import_module, "streamsvm"))


def _asked(
    client: Any, workers: Sequence[str], patience: float, question: Callable[[Callable[..., Any]], Any]
) -> dict[str, Any]:
    """What workers answer, or the exception that they met; nothing of those that are silent, or gone."""
    asked = {
        worker: question(partial(client.submit, workers=[worker], pure=False, priority=1000)) for worker in workers
    }
    until = time.monotonic() + patience
    while any(future.status == "pending" for future in asked.values()) and time.monotonic() < until:
        interrupts.check()
        time.sleep(STEP)
    found: dict[str, Any] = {}
    for worker, future in asked.items():
        if future.status == "finished":
            found[worker] = future.result()
        elif future.status == "error" and type(error := future.exception()).__name__ not in GONE:
            found[worker] = error
    return found
