"""The files of a source: which ones a path, glob, directory or url names, what tells one from another, opening them.

How remote file systems are opened (`storage_options`), how often to try again and how much to read ahead are matters of
a whole process, because fsspec's file systems are: the commands and `train` say `use_access` before they read.
"""

import glob
import os
import stat
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from streamsvm import interrupts
from streamsvm.errors import ConfigError, SourceError
from streamsvm.io.bucket_ranges import BucketObject
from streamsvm.io.http_ranges import HttpObject, plain_headers
from streamsvm.io.identity import content_digest, sampled_spans
from streamsvm.io.remote import STREAMED, Depth, Named, Ranges, RemoteFile
from streamsvm.io.retries import ChangedError, persistently, status_of
from streamsvm.io.stream_ranges import StreamObject
from streamsvm.io.urls import REMOTE_EXTRAS, WEB, hide, is_local, reason, redact_url, scheme_of

STDIN = "-"
CONTENT_STAMPS = ("ETag", "etag", "md5Hash", "content_md5")  # a copy has the same
TIME_STAMPS = ("LastModified", "Last-Modified", "mtime", "updated", "last_modified", "created")  # a copy has another


class Access(NamedTuple):
    """How remote places are reached."""

    options: Mapping[str, Mapping[str, Any]] = {}  # for fsspec's file systems, by protocol
    expand: Callable[[str], str] = str  # puts the environment's values in place of ${NAME}
    retries: int = 5
    memory: int = 10**9  # of the run, of which a share is for bytes read ahead


_access = Access()


def use_access(access: Access) -> None:
    """Reach remote places like this from now on, in this process."""
    global _access
    _access = access


def _options(scheme: str | None) -> dict[str, Any]:
    """The options of a protocol, or of another name of it, expanded; what they hold is kept out of messages."""
    if scheme is None or not _access.options:
        return {}
    same = [name for name, extra in REMOTE_EXTRAS.items() if extra and extra == REMOTE_EXTRAS[scheme]]
    found: dict[str, Any] = {}
    for name in (*same, scheme):
        found |= _access.options.get(name, {})
    expanded: dict[str, Any] = _expanded(found)
    hide(expanded)
    return expanded


def _expanded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _expanded(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_expanded(inner) for inner in value]
    return _access.expand(value) if isinstance(value, str) else value


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
    options = _options(scheme)
    try:
        import fsspec

        return fsspec.core.url_to_fs(url, **options)  # type: ignore[no-any-return]
    except ImportError as error:
        extra = REMOTE_EXTRAS.get(scheme or "")
        remedy = f"pip install 'streamsvm[{extra}]'" if extra else reason(error)
        raise SourceError(f"{redact_url(url)}: reading {scheme}:// needs another package: {remedy}") from error
    except Exception as error:
        raise SourceError(f"{redact_url(url)}: {reason(error, url)}") from error


def _remote_parts(url: str) -> list[Part]:
    shown, web = redact_url(url), scheme_of(url) in WEB
    try:
        return persistently(
            lambda: [_remote_part(url, _web_info(url))] if web else _bucket_parts(url),
            "cannot look it up",
            retries=_access.retries if web else 0,  # the libraries of buckets try again by themselves
            url=url,
            shown=shown,
            sleep=_sleep,
        )
    except FileNotFoundError as error:
        pattern = "; patterns work in buckets, not on web servers" if web and "*" in shown else ""
        raise SourceError(f"{shown}: no such file{pattern}") from error


def _bucket_parts(url: str) -> list[Part]:
    filesystem, path = open_filesystem(url)
    filesystem.invalidate_cache()
    if glob.has_magic(path):
        names = [name for name, info in filesystem.glob(path, detail=True).items() if _is_file(info)]
    elif filesystem.isdir(path):
        listed = [info["name"] for info in filesystem.ls(path, detail=True) if _is_file(info)]
        names = [name for name in listed if not _hidden(name)]
    else:
        return [_remote_part(url, filesystem.info(path))]
    if not names:
        raise SourceError(f"{redact_url(url)}: no file matches")
    return [_remote_part(filesystem.unstrip_protocol(name), filesystem.info(name)) for name in sorted(names)]


def _is_file(info: Mapping[str, Any]) -> bool:
    return info.get("type") != "directory"


def _web_info(url: str) -> dict[str, Any]:
    headers = _web_headers(url)
    if headers is not None:
        return HttpObject(url, None, None, headers).info()
    filesystem, path = open_filesystem(url)
    try:
        info: dict[str, Any] = filesystem.info(path)
        return info
    except FileNotFoundError as error:  # fsspec says so whatever went wrong
        if isinstance(error.__cause__, Exception) and status_of(error) not in (404, 410):
            raise error.__cause__ from None
        raise


def _web_headers(url: str) -> dict[str, str] | None:
    """What requests to a web server have to say; None where fsspec is to make them."""
    scheme = scheme_of(url)
    return plain_headers(_options(scheme)) if scheme in WEB and "::" not in url else None


def _sleep(seconds: float) -> None:
    """Wait in small steps: a signal may have been noted."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        interrupts.check()
        time.sleep(min(left, 0.1))


def _hidden(name: str) -> bool:
    return name.rstrip("/").rsplit("/", 1)[-1].startswith((".", "_"))


def _remote_part(url: str, info: dict[str, Any]) -> Part:
    stamp = next((f"{key} {info[key]}" for key in CONTENT_STAMPS + TIME_STAMPS if info.get(key)), None)
    return Part(url, redact_url(url), info.get("size"), stamp)


def open_part(
    part: Part, *, stopped: Callable[[], bool] = lambda: False, random: bool = False, share: int = 1
) -> Any:
    """The stored bytes of a part. A remote one is read ahead, until `stopped` says that nobody reads any more.

    Who reads here and there (`random`) needs ranges; `share` files that are open at a time share the memory.
    """
    try:
        if part.url == STDIN:
            return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
        if not is_local(part.url):
            return _open_remote(part, stopped, random, share)
        return open(part.url, "rb", buffering=0, opener=None if part.size is not None else _without_waiting)
    except SourceError:
        raise
    except Exception as error:
        raise SourceError(f"{part.shown}: cannot open: {reason(error, part.url)}") from error


def read_ahead_memory() -> int:
    """Bytes that a remote part may have read ahead."""
    return Depth.of_memory(_access.memory).ahead


def _open_remote(part: Part, stopped: Callable[[], bool], random: bool, share: int) -> RemoteFile:
    url, size, stamp = part.url, part.size, part.stamp
    headers = _web_headers(url)
    filesystem: Any
    filesystem, path = open_filesystem(url) if headers is None else (None, "")
    compare = partial(_refuse_changed, part) if stamp or size is not None else None

    def streamed() -> Ranges:
        if headers is None:
            return StreamObject(partial(filesystem.open, path, "rb"), size, compare, part.shown)
        web = HttpObject(url, size, stamp, headers)
        return StreamObject(web.whole, size, compare, part.shown, web.abort)

    named = Named(url, part.shown, _access.retries)
    depth = Depth.of_memory(_access.memory // share)
    if size is None or not (headers is not None or getattr(filesystem, "async_impl", False)):
        depth = depth._replace(range=min(STREAMED, depth.range), threads=1)
        return RemoteFile(streamed(), size, named, depth, stopped=stopped)
    ranges: Ranges
    if headers is not None:
        ranges = HttpObject(url, size, stamp, headers)
    else:
        ranges = BucketObject(filesystem, path, size, stamp, compare or (lambda: None))
    return RemoteFile(ranges, size, named, depth, stopped=stopped, streamed=None if random else streamed)


def _refuse_changed(part: Part) -> None:
    """ChangedError if the part is not what it was when it was found."""
    try:
        if scheme_of(part.url) in WEB:
            now = _remote_part(part.url, _web_info(part.url))
        else:
            filesystem, path = open_filesystem(part.url)
            filesystem.invalidate_cache()
            now = _remote_part(part.url, filesystem.info(path))
    except FileNotFoundError:
        raise ChangedError("it is gone") from None
    if now.size != part.size:
        raise ChangedError(f"it had {part.size or 0:,} bytes and has {now.size or 0:,} now")
    if now.stamp != part.stamp:
        raise ChangedError(f"its {(part.stamp or 'date').partition(' ')[0]} is another one now")


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
        with closing(open_part(part)) as raw:
            try:
                if isinstance(raw, RemoteFile) and part.size is not None and raw.seekable():
                    with suppress(OSError):
                        raw.plan(sampled_spans(part.size))
                kind, value = "content", content_digest(raw, part.size or 0)
            except SourceError:
                raise
            except Exception as error:
                raise SourceError(f"{part.shown}: cannot read: {reason(error, part.url)}") from error
    return [part.shown, part.size, kind, value]
