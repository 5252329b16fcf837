"""Where the cache of a run is, or is to be: a path that was named, or a temporary one that is removed at the end.

A cache is mapped into memory. So one that is kept at a url has a temporary copy here (passes.py fetches and sends it).

Temporary caches, and directories of workers that a run starts here, are in the user's own cache directory, and those of
killed runs are removed by the next run. A run that may go on later has its cache beside its checkpoints, or under a
name that is found again.
"""

import glob
import hashlib
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from streamsvm.errors import SourceError
from streamsvm.io.files import local_path
from streamsvm.io.urls import is_local
from streamsvm.places import private_directory, user_cache_directory
from streamsvm.stream import Stream

RESUMABLE = "resumable"  # what names of temporary caches begin with that a later run may want
STALE_SECONDS = 30 * 86400
SPARE_SPACE = 64 << 20


class Lasting(NamedTuple):
    """For a run that may go on later: where its temporary cache is, and what its source must still be then."""

    path: Path
    identity: list[list[Any]]


def choose_path(
    cache: str, passes: int, stream: Stream, lasting: Lasting | None, note: Callable[[str], None]
) -> Path | None:
    """The path of the cache; None if there is to be none, or if no place can hold it."""
    if cache == "off" or (cache == "auto" and passes == 1):
        return None
    if cache != "auto" and is_local(cache):
        return local_path(cache)
    path = lasting.path if lasting is not None else _temporary_path()
    home = path.parent
    reason = "it is not writable"
    if _usable(home):
        size = (stream.source.size or 0) * (1 if not stream.limit else 0)
        if shutil.disk_usage(home).free >= size + SPARE_SPACE or path.exists() or unfinished(path):
            return path
        reason = f"it has no room for about {size / 1e9:.1f} GB"
    if not stream.repeatable or cache != "auto":
        raise SourceError(f"{home}: cannot hold the cache that several passes need: {reason}; use --cache PATH")
    note(f"{home}: cannot hold a cache: {reason}; every pass reads the source again (see --cache)")
    return None


def lasting_path(place: str, local: bool) -> Path:
    """Where a run with checkpoints in `place` has its temporary cache: there, or on this machine."""
    if local:
        return Path(place) / "rows.arrow"
    return temporary_home() / f"{RESUMABLE}-{hashlib.sha256(place.encode()).hexdigest()[:16]}.arrow"


def temporary_home() -> Path:
    """Where caches are that nobody asked for."""
    try:
        return user_cache_directory() / "passes"
    except RuntimeError:
        return Path(".streamsvm-cache")


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """A directory of this run."""
    path = _temporary_path(".files").absolute()
    path.mkdir(mode=0o700, parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _temporary_path(ending: str = ".arrow") -> Path:
    home = temporary_home()
    if private_directory(home):
        _remove_leftovers(home)
    return home / f"{os.getpid()}-{_host()}-{secrets.token_hex(4)}{ending}"


def _usable(home: Path) -> bool:
    """Whether files can be made there. The common place of all runs must be this user's alone."""
    if home == temporary_home():
        return private_directory(home)
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(home, os.W_OK)


def unfinished(path: Path) -> list[Path]:
    """Files that were to become this cache."""
    return list(path.parent.glob(f".{glob.escape(path.name)}.*.part"))


def remove_unfinished(path: Path) -> None:
    for part in unfinished(path):
        with suppress(OSError):
            part.unlink()


def _remove_leftovers(home: Path) -> None:
    """What is left of runs that were killed: their process is gone. Those of other machines are left to them.

    A run that can go on may do so for a month.
    """
    for path in home.iterdir():
        owner, _, rest = path.name.lstrip(".").partition("-")
        with suppress(OSError):
            gone = owner.isdecimal() and rest.startswith(f"{_host()}-") and not _alive(int(owner))
            if gone or (owner == RESUMABLE and time.time() - path.lstat().st_mtime > STALE_SECONDS):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _alive(process: int) -> bool:
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
