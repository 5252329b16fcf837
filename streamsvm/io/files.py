"""Writing a file so that its final name never holds half of it, here or in a bucket."""

import contextlib
import errno
import os
import secrets
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import IO

from streamsvm.errors import SourceError, StreamSvmError
from streamsvm.io.parts import open_filesystem, open_part
from streamsvm.io.urls import is_local, reason, redact_url, scheme_of


def local_path(url: str) -> Path:
    return Path(url.split("://", 1)[-1]) if scheme_of(url) else Path(url)


@contextlib.contextmanager
def written_atomically(url: str) -> Iterator[IO[bytes]]:
    """A file to write to. It gets its name when the block ends well, and leaves no trace when it does not."""
    if not is_local(url):
        with _uploaded(url) as out:
            yield out
        return
    path = local_path(url)
    if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe, /dev/null: must not be replaced
        with _opened_in_place(path) as out:
            yield out
        return
    refuse_unwritable(url)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        raise SourceError(f"{path}: cannot write: {error.strerror or error}") from error
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        raise SourceError(f"{path}: cannot write: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):  # it has its name already, or cannot be removed either
            os.unlink(temporary)


def refuse_unwritable(url: str) -> None:
    """SourceError, if it can be told already that a file cannot be written there."""
    if not is_local(url):
        return
    path = local_path(url)
    if path.is_dir():
        raise SourceError(f"{path}: cannot write: this is a directory; name a file in it")
    above = next((place for place in path.absolute().parents if place.exists()), None)
    if above is not None and not (above.is_dir() and os.access(above, os.W_OK)):
        why = "may not be written to" if above.is_dir() else "is not a directory"
        raise SourceError(f"{path}: cannot write: {above} {why}; choose another place")


@contextlib.contextmanager
def _opened_in_place(path: Path) -> Iterator[IO[bytes]]:
    try:
        with open(path, "wb") as out:
            yield out
    except OSError as error:
        raise SourceError(f"{path}: cannot write: {error.strerror or error}") from error


@contextlib.contextmanager
def _uploaded(url: str) -> Iterator[IO[bytes]]:
    """A file whose content is uploaded when the block ends well."""
    open_filesystem(url)  # a wrong url is told at once
    with tempfile.TemporaryFile() as out:
        yield out
        out.seek(0)
        upload(out, url)


_uploading = threading.Lock()


def upload(file: IO[bytes], url: str) -> None:
    """Write an object in a transaction: it appears when all of it has arrived, and not at all if something fails.

    One at a time: threads share a file system, and fsspec has one transaction for all that is written to it meanwhile.
    """
    filesystem, path = open_filesystem(url)
    try:
        with _uploading, filesystem.transaction, filesystem.open(path, "wb") as target:
            while piece := file.read(1 << 20):
                target.write(piece)
    except Exception as error:
        raise SourceError(f"{redact_url(url)}: cannot write: {reason(error, url)}") from error


def download(url: str, path: Path) -> bool:
    """Make a local copy of an object; False if there is no such object."""
    from streamsvm.io.remote_parts import remote_part

    try:
        part = remote_part(url)
    except FileNotFoundError:
        return False
    with closing(open_part(part)) as source, written_atomically(str(path)) as out:
        while piece := source.read(1 << 20):
            out.write(piece)
    return True


def read_whole(url: str) -> bytes:
    """All bytes of a file or object."""
    try:
        if is_local(url):
            return local_path(url).read_bytes()
        from streamsvm.io.remote_parts import remote_part

        with closing(open_part(remote_part(url))) as source:
            content: bytes = source.read()
            return content
    except FileNotFoundError as error:
        raise SourceError(f"{redact_url(url)}: no such file") from error
    except StreamSvmError:
        raise
    except Exception as error:
        raise SourceError(f"{redact_url(url)}: cannot read: {reason(error, url)}") from error


def in_directory(place: str, name: str) -> str:
    """The url of a file in a directory."""
    return f"{place.rstrip('/')}/{name}" if not is_local(place) else str(local_path(place) / name)


def is_directory(url: str) -> bool:
    """Whether there is a directory of this name; False where that cannot be told."""
    if is_local(url):
        return local_path(url).is_dir()
    filesystem, path = open_filesystem(url)
    try:
        return bool(filesystem.isdir(path))
    except Exception:
        return False


def is_file(url: str) -> bool:
    """Whether there is a file of this name; False where that cannot be told."""
    if is_local(url):
        return local_path(url).is_file()
    filesystem, path = open_filesystem(url)
    try:
        filesystem.invalidate_cache()
        return bool(filesystem.isfile(path))
    except Exception:
        return False


def names_in(place: str) -> list[str]:
    """The names in a directory, as they are now; none if there is no such directory."""
    try:
        if is_local(place):
            return os.listdir(local_path(place))
        filesystem, path = open_filesystem(place)
        filesystem.invalidate_cache()
        return [str(name).rstrip("/").rsplit("/", 1)[-1] for name in filesystem.ls(path, detail=False)]
    except FileNotFoundError:
        return []
    except StreamSvmError:
        raise
    except Exception as error:
        raise SourceError(f"{redact_url(place)}: cannot list: {reason(error, place)}") from error


def remove(url: str) -> None:
    """Remove a file, if it is there."""
    try:
        if is_local(url):
            local_path(url).unlink(missing_ok=True)
        else:
            filesystem, path = open_filesystem(url)
            filesystem.rm_file(path)
    except FileNotFoundError:
        pass
    except StreamSvmError:
        raise
    except Exception as error:
        raise SourceError(f"{redact_url(url)}: cannot remove: {reason(error, url)}") from error


def sync_file(path: Path) -> None:
    """Make a file and its name survive a power cut."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make a rename in `path` survive a power cut, where the platform can."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # SMB shares and others cannot sync a directory
            raise
    finally:
        os.close(descriptor)
