"""A cluster for as long as it is wanted: processes of this machine, a scheduler's address, or somebody's client."""

import gc
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from streamsvm.cache_place import temporary_directory
from streamsvm.distributed.cluster import Cluster
from streamsvm.distributed.joining import EXAMPLE, refuse_if_nobody
from streamsvm.errors import ConfigError, SourceError, StreamSvmError
from streamsvm.io.urls import reason

PRELOAD = "streamsvm.distributed.preload"  # of workers that are started here
PATIENCE = 30.0  # seconds to wait for a scheduler, and for its first worker


def require_dask() -> Any:
    """The module, or what to install."""
    try:
        import distributed
    except ImportError as error:
        raise ConfigError("--cluster needs Dask: pip install 'streamsvm[dask]'") from error
    return distributed


@contextmanager
def opened_cluster(at: str, client: Any, timeout: float | None, note: Callable[[str], None]) -> Iterator[Cluster]:
    """The cluster at a place, or behind a client that somebody else has; a local one ends with this block."""
    distributed = require_dask()
    with ExitStack() as stack:
        home = stack.enter_context(temporary_directory()) if client is None and at.startswith("local:") else None
        if client is None:
            client = stack.enter_context(_connected(distributed, at, home))
        cluster = Cluster(client, at or str(client.scheduler.address), timeout, note, home)
        stack.callback(cluster.leave)
        yield cluster


@contextmanager
def _connected(distributed: Any, at: str, home: Path | None) -> Iterator[Any]:
    with ExitStack() as stack:
        address: Any = at
        if home is not None:
            address = stack.enter_context(_local(distributed, at, home))
        elif "://" not in at:
            raise ConfigError(f"cluster.at: {at} is no address: tcp://scheduler:8786, or local:4 for four processes")
        else:
            refuse_if_nobody(at, PATIENCE)
        client = stack.enter_context(_client(distributed, at, address))
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except (OSError, TimeoutError) as error:
            raise SourceError(
                f"{at}: the Dask scheduler has no worker, and none came in {PATIENCE:,.0f} s; start some, as in "
                "dask worker tcp://scheduler:8786"
            ) from error
        yield client


def _client(distributed: Any, at: str, address: Any) -> Any:
    """A connection to a scheduler. What Dask warns of, other versions of libraries, is told later, in one line.

    A client that could not be made is freed here: it closes itself then, and would wait for ever for a lock that the
    next one holds, were it freed while that is made.
    """
    from distributed.versions import VersionMismatchWarning

    refusal: StreamSvmError
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VersionMismatchWarning)
            return distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, TimeoutError) as error:
        refusal = SourceError(f"{at}: no Dask scheduler answers: {reason(error)}")
    except (ValueError, TypeError, RuntimeError, ImportError) as error:
        tls = "; Dask's own settings name the certificates: distributed.comm.tls" if at.startswith("tls:") else ""
        refusal = ConfigError(f"cluster.at: {at}: {reason(error)}{tls or f'; {EXAMPLE}'}")
    gc.collect()  # after the block: until its end the error has the client
    raise refusal


@contextmanager
def _local(distributed: Any, at: str, home: Path) -> Iterator[Any]:
    """Processes of this machine, one thread each."""
    count = at.removeprefix("local:")
    if not count.isdecimal() or int(count) < 1:
        raise ConfigError(f"cluster.at: {at}: say how many processes, as in local:4")
    import dask

    quiet = {"distributed.admin.large-graph-warning-threshold": "1GB", "distributed.comm.timeouts.connect": "10s"}
    with dask.config.set(quiet):
        cluster = distributed.LocalCluster(
            n_workers=int(count),
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",
            host="127.0.0.1",
            memory_limit=0,
            local_directory=str(home),
            silence_logs=logging.CRITICAL,
            preload=[PRELOAD],
        )
        with cluster:
            yield cluster
