"""The files of a source: which ones a path, glob, directory or url names, what tells one from another, opening them."""

import glob
import os
import stat
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from streamsvm.errors import ConfigError, SourceError
from streamsvm.io.identity import content_digest
from streamsvm.io.urls import REMOTE_EXTRAS, is_local, reason, redact_url, scheme_of

STDIN = "-"
SAMPLED = 1 << 16  # bytes that a remote file may fetch beyond what is asked of it, where only samples are wanted
CONTENT_STAMPS = ("ETag", "etag", "md5Hash", "content_md5")  # a copy has the same
TIME_STAMPS = ("LastModified", "mtime", "updated", "last_modified", "created")  # a copy has another


class Part(NamedTuple):
    """One file of a source."""

    url: str
    shown: str
    size: int | None  # bytes as stored
    stamp: str | None  # changes when the content does: modification time, etag, version; its name comes first


def find_parts(urls: list[str]) -> list[Part]:
    """All files that the urls name, in the stated order; globs and directories in the order of their names."""
    parts: list[Part] = []
    for url in urls:
        if url == STDIN:
            parts.append(Part(STDIN, "standard input", None, None))
        elif is_local(url):
            parts += _local_parts(url)
        else:
            parts += _remote_parts(url)
    if sum(part.url == STDIN for part in parts) > 1:
        raise ConfigError("standard input (-) can be read only once")
    return parts


def _local_parts(url: str) -> list[Part]:
    path = url.split("://", 1)[-1]
    if os.path.isdir(path):
        found = [os.path.join(path, name) for name in _names(path) if not _hidden(name)]
        found = [p for p in found if not os.path.isdir(p)]
        if not found:
            raise SourceError(f"{path}: the directory has no files")
    elif os.path.exists(path):
        found = [path]
    elif glob.has_magic(path):
        found = sorted(p for p in glob.glob(path, recursive=True) if not os.path.isdir(p))
        if not found:
            raise SourceError(f"{path}: no file matches")
    else:
        raise SourceError(f"{path}: no such file or directory{_suggest(path)}")
    return [_local_part(p) for p in found]


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError as error:
        raise SourceError(f"{directory}: cannot list: {reason(error)}") from error


def _local_part(path: str) -> Part:
    try:
        info = os.stat(path)
    except OSError as error:  # a link to nowhere
        raise SourceError(f"{path}: cannot open: {reason(error)}") from error
    if not stat.S_ISREG(info.st_mode):  # a named pipe, /dev/stdin
        return Part(path, path, None, None)
    return Part(path, path, info.st_size, f"mtime {info.st_mtime_ns}")


def _suggest(path: str) -> str:
    """` (did you mean ...?)` when a file with nearly the same name is there."""
    import difflib

    parent = Path(path).parent
    try:
        close = difflib.get_close_matches(Path(path).name, os.listdir(parent), n=1)
    except OSError:
        return ""
    return f" (did you mean {parent / close[0]}?)" if close else ""


def open_filesystem(url: str) -> tuple[Any, str]:
    """The fsspec filesystem of an allowed url, and the path in it."""
    scheme = scheme_of(url)
    if scheme not in REMOTE_EXTRAS:
        known = ", ".join(sorted(REMOTE_EXTRAS))
        raise SourceError(f"{redact_url(url)}: {scheme}:// is not supported (supported: file, {known})")
    if "::" in url:
        raise SourceError(f"{redact_url(url)}: chained urls (::) are not accepted")
    try:
        import fsspec

        return fsspec.core.url_to_fs(url)  # type: ignore[no-any-return]
    except ImportError as error:
        extra = REMOTE_EXTRAS.get(scheme or "")
        remedy = f"pip install 'streamsvm[{extra}]'" if extra else reason(error)
        raise SourceError(f"{redact_url(url)}: reading {scheme}:// needs another package: {remedy}") from error
    except Exception as error:
        raise SourceError(f"{redact_url(url)}: {reason(error, url)}") from error


def _remote_parts(url: str) -> list[Part]:
    scheme = scheme_of(url)
    filesystem, path = open_filesystem(url)
    try:
        if glob.has_magic(path) and scheme not in ("http", "https"):
            names = sorted(filesystem.glob(path))
        elif scheme not in ("http", "https") and filesystem.isdir(path):
            names = sorted(n for n in filesystem.ls(path, detail=False) if not _hidden(n) and filesystem.isfile(n))
        else:
            names = [path]
        infos = [(name, filesystem.info(name)) for name in names]
    except FileNotFoundError as error:
        raise SourceError(f"{redact_url(url)}: no such file") from error
    except Exception as error:
        raise SourceError(f"{redact_url(url)}: {type(error).__name__}: {reason(error, url)}") from error
    if not infos:
        raise SourceError(f"{redact_url(url)}: no file matches")
    several = len(names) > 1 or names[0] != path
    return [_remote_part(filesystem.unstrip_protocol(n) if several else url, info) for n, info in infos]


def _hidden(name: str) -> bool:
    return name.rstrip("/").rsplit("/", 1)[-1].startswith((".", "_"))


def _remote_part(url: str, info: dict[str, Any]) -> Part:
    stamp = next((f"{key} {info[key]}" for key in CONTENT_STAMPS + TIME_STAMPS if info.get(key)), None)
    return Part(url, redact_url(url), info.get("size"), stamp)


def open_part(part: Part, block_size: int | None = None) -> Any:
    """The stored bytes of a part; `block_size` is how far a remote file reads ahead, None for what is usual there."""
    try:
        if part.url == STDIN:
            return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
        if not is_local(part.url):
            filesystem, path = open_filesystem(part.url)
            return filesystem.open(path, "rb", block_size=block_size)
        return open(part.url, "rb", buffering=0, opener=None if part.size is not None else _without_waiting)
    except SourceError:
        raise
    except Exception as error:
        raise SourceError(f"{part.shown}: cannot open: {reason(error, part.url)}") from error


def _without_waiting(path: str, flags: int) -> int:
    """Open a named pipe that may have no writer yet: waiting for one inside `open` could not be stopped."""
    if os.name != "posix":
        return os.open(path, flags)
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


def identified(part: Part) -> list[Any]:
    """Name, size, and a stamp of the content; the part is read only where nobody else has made one."""
    kind, _, value = (part.stamp or "").partition(" ")
    if kind not in CONTENT_STAMPS:
        with closing(open_part(part, SAMPLED)) as raw:
            try:
                kind, value = "content", content_digest(raw, part.size or 0)
            except Exception as error:
                raise SourceError(f"{part.shown}: cannot read: {reason(error, part.url)}") from error
    return [part.shown, part.size, kind, value]
