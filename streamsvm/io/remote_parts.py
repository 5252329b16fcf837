"""Finding and opening remote parts: which way of reading each is given.

    http, https                      http_ranges     ranges, by a client of our own
    s3, gcs, azure                   bucket_ranges   ranges, by fsspec
    of unknown size, and all others  stream_ranges   one byte after the other

All of it is fetched ahead by threads (remote.py), and every part must be, as long as it is read, what it was when it
was found: by what each answer says, or by asking again.
"""

import glob
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from streamsvm import interrupts
from streamsvm.errors import SourceError
from streamsvm.io.bucket_ranges import BucketObject
from streamsvm.io.http_ranges import HttpObject, plain_headers
from streamsvm.io.partitions import refuse_table_formats
from streamsvm.io.parts import CONTENT_STAMPS, Part, current_access, hidden, open_filesystem, parted, storage_options
from streamsvm.io.remote import STREAMED, Depth, Named, Ranges, RemoteFile
from streamsvm.io.retries import ChangedError, persistently, status_of
from streamsvm.io.stream_ranges import StreamObject
from streamsvm.io.urls import WEB, redact_url, scheme_of

TIME_STAMPS = ("LastModified", "Last-Modified", "mtime", "updated", "last_modified", "created")  # a copy has another

Found = TypeVar("Found")


def find_remote_parts(url: str) -> list[Part]:
    """All objects that a url names: one, those that match a pattern, or those in a directory."""
    web = scheme_of(url) in WEB
    try:
        return [remote_part(url)] if web else _persistently(url, lambda: _bucket_parts(url))
    except FileNotFoundError as error:
        shown = redact_url(url)
        pattern = "; patterns work in buckets, not on web servers" if web and "*" in shown else ""
        raise SourceError(f"{shown}: no such file{pattern}") from error


def remote_part(url: str) -> Part:
    """The object of a url as it is now; FileNotFoundError if there is none."""
    return _persistently(url, lambda: _part(url, _info(url)))


def _persistently(url: str, look: Callable[[], Found]) -> Found:
    return persistently(
        look,
        "cannot look it up",
        retries=current_access().retries if scheme_of(url) in WEB else 0,  # the libraries of buckets do it themselves
        url=url,
        shown=redact_url(url),
        sleep=_sleep,
    )


def _bucket_parts(url: str) -> list[Part]:
    filesystem, path = open_filesystem(url)
    filesystem.invalidate_cache()
    infos: dict[str, Any] = {}
    if glob.has_magic(path):
        matching = filesystem.glob(path, detail=True)
        infos = {name: info for name, info in matching.items() if _is_file(info)}
        infos = {name: info for name, info in infos.items() if not hidden(name)} or infos
        if not infos:
            for name in sorted(matching):
                infos |= _below(filesystem, name, url)
    elif filesystem.isdir(path):
        infos = _below(filesystem, path, url)
    else:
        return [parted(_part(url, filesystem.info(path)), path, path)]
    names = sorted(infos)
    if not names:
        raise SourceError(f"{redact_url(url)}: no file matches")
    if names == [path]:  # what looked like a pattern is the name
        return [_part(url, filesystem.info(path))]
    return [parted(_part(filesystem.unstrip_protocol(name), filesystem.info(name)), name, path) for name in names]


def _below(filesystem: Any, directory: str, url: str) -> dict[str, Any]:
    """The objects in a directory and all below it, but for hidden ones."""
    found: dict[str, Any] = filesystem.find(directory, detail=True)
    start = len(directory.rstrip("/")) + 1
    inner = {name: name[start:] if name.startswith(directory) else name for name in found}
    refuse_table_formats(inner.values(), redact_url(url))
    return {
        name: info for name, info in found.items() if _is_file(info) and not any(map(hidden, inner[name].split("/")))
    }


def _is_file(info: Mapping[str, Any]) -> bool:
    return info.get("type") != "directory"


def _info(url: str, opened: tuple[Any, str] | None = None) -> dict[str, Any]:
    """What is known of an object now; `opened` is its file system and path, if that is open."""
    headers = _web_headers(url)
    if headers is not None:
        return HttpObject(url, None, None, headers).info()
    filesystem, path = opened or open_filesystem(url)
    filesystem.invalidate_cache()
    try:
        info: dict[str, Any] = filesystem.info(path)
        return info
    except FileNotFoundError as error:  # of a web server, fsspec says so whatever went wrong
        cause = error.__cause__
        if scheme_of(url) in WEB and isinstance(cause, Exception) and status_of(error) not in (404, 410):
            raise cause from None
        raise


def _web_headers(url: str) -> dict[str, str] | None:
    """What requests to a web server have to say; None where fsspec is to make them."""
    scheme = scheme_of(url)
    return plain_headers(storage_options(scheme)) if scheme in WEB and "::" not in url else None


def _sleep(seconds: float) -> None:
    """Wait in small steps: a signal may have been noted."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        interrupts.check()
        time.sleep(min(left, 0.1))


def _part(url: str, info: dict[str, Any]) -> Part:
    stamp = next((f"{key} {info[key]}" for key in CONTENT_STAMPS + TIME_STAMPS if info.get(key)), None)
    return Part(url, redact_url(url), info.get("size"), stamp)


def open_remote(part: Part, stopped: Callable[[], bool], random: bool, share: int) -> RemoteFile:
    url, size, stamp = part.url, part.size, part.stamp
    headers = _web_headers(url)
    filesystem: Any
    filesystem, path = open_filesystem(url) if headers is None else (None, "")
    compare = partial(_refuse_changed, part, (filesystem, path)) if stamp or size is not None else None

    def streamed() -> Ranges:
        if headers is None:
            return StreamObject(partial(filesystem.open, path, "rb"), size, compare, part.shown)
        web = HttpObject(url, size, stamp, headers)
        return StreamObject(web.whole, size, compare, part.shown, web.abort)

    named = Named(url, part.shown, current_access().retries)
    depth = Depth.of_memory(current_access().memory // share)
    if size is None or not (headers is not None or getattr(filesystem, "async_impl", False)):
        depth = depth._replace(range=min(STREAMED, depth.range), threads=1)
        return RemoteFile(streamed(), size, named, depth, stopped=stopped)
    ranges: Ranges
    if headers is not None:
        ranges = HttpObject(url, size, stamp, headers)
    else:
        ranges = BucketObject(filesystem, path, size, stamp, compare or (lambda: None))
    return RemoteFile(ranges, size, named, depth, stopped=stopped, streamed=None if random else streamed)


def _refuse_changed(part: Part, opened: tuple[Any, str]) -> None:
    """ChangedError if the part is not what it was when it was found."""
    try:
        now = _part(part.url, _info(part.url, opened))
    except FileNotFoundError:
        raise ChangedError("it is gone") from None
    if now.size != part.size:
        raise ChangedError(f"it had {part.size or 0:,} bytes and has {now.size or 0:,} now")
    if part.stamp is not None and now.stamp != part.stamp:
        raise ChangedError(f"its {part.stamp.partition(' ')[0]} is another one now")
