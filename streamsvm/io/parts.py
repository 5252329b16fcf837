"""The files of a source: which ones a path, glob, directory or url names, what tells one from another, opening them.

How remote file systems are opened (`storage_options`), how often to try again and how much to read ahead are matters of
a whole process, because fsspec's file systems are: the commands and `train` say `use_access` before they read.
"""

import glob
import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from streamsvm.errors import ConfigError, SourceError, StreamSvmError
from streamsvm.io.identity import content_digest, sampled_spans
from streamsvm.io.urls import REMOTE_EXTRAS, hide, is_local, reason, redact_url, scheme_of

STDIN = "-"
LOOKUPS = 16  # places that are asked for something at a time
CONTENT_STAMPS = ("ETag", "etag", "md5Hash", "content_md5")  # a copy has the same

Wanted = TypeVar("Wanted")
Found = TypeVar("Found")


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


def current_access() -> Access:
    return _access


def storage_options(scheme: str | None) -> dict[str, Any]:
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


Keys = tuple[tuple[str, str | None], ...]


class Part(NamedTuple):
    """One file of a source."""

    url: str
    shown: str
    size: int | None  # bytes as stored
    stamp: str | None  # changes when the content does: modification time, etag, version; its name comes first
    keys: Keys = ()  # columns that stand in the names of its directories (partitions.py), with their values
    named: int = 0  # how many of them stand in what was named; the others were found below that


def find_parts(urls: list[str]) -> list[Part]:
    """All files that the urls name, in the stated order; globs and directories in the order of their names."""
    remote = any(url != STDIN and not is_local(url) for url in urls)
    parts = [part for some in looked_up(_parts_of, urls, remote=remote) for part in some]
    if sum(part.url == STDIN for part in parts) > 1:
        raise ConfigError("standard input (-) can be read only once")
    return parts


def looked_up(look: Callable[[Wanted], Found], wanted: Sequence[Wanted], *, remote: bool) -> list[Found]:
    """What is found of each; several at a time if some are `remote`, since each may have to wait for an answer."""
    if not remote or len(wanted) < 2:
        return [look(one) for one in wanted]
    with ThreadPoolExecutor(min(len(wanted), LOOKUPS), thread_name_prefix="streamsvm-find") as pool:
        return list(pool.map(look, wanted))


def _parts_of(url: str) -> list[Part]:
    if url == STDIN:
        return [Part(STDIN, "standard input", None, None)]
    if is_local(url):
        return _local_parts(url)
    from streamsvm.io.remote_parts import find_remote_parts

    return find_remote_parts(url)


def _local_parts(url: str) -> list[Part]:
    path = url.split("://", 1)[-1]
    if os.path.isdir(path):
        found = _below(path)
        if not found:
            raise SourceError(f"{path}: the directory has no files")
    elif os.path.exists(path):
        found = [path]
    elif glob.has_magic(path):
        matching = glob.glob(path, recursive=True)
        found = sorted(p for p in matching if not os.path.isdir(p))
        found = [p for p in found if not hidden(p)] or found
        found = found or [p for directory in sorted(matching) for p in _below(directory)]
        if not found:
            raise SourceError(f"{path}: no file matches")
    else:
        raise SourceError(f"{path}: no such file or directory{_suggest(path)}")
    return [_local_part(p, path) for p in found]


def _below(directory: str) -> list[str]:
    """The files in a directory and all below it, but for hidden ones, in the order of their names."""
    from streamsvm.io.partitions import refuse_table_formats

    found: list[str] = []
    seen: set[str] = set()  # a link may lead back

    def unlistable(error: OSError) -> None:
        raise SourceError(f"{error.filename}: cannot list: {reason(error)}") from error

    for place, folders, files in os.walk(directory, onerror=unlistable, followlinks=True):
        inner = os.path.relpath(place, directory).replace(os.sep, "/")
        refuse_table_formats((f"{inner}/{name}" for name in (*files, "")), directory)
        refuse_table_formats((f"{folder}/" for folder in folders), directory)
        seen.add(os.path.realpath(place))
        folders[:] = [
            name for name in folders if not hidden(name) and os.path.realpath(os.path.join(place, name)) not in seen
        ]
        found += [os.path.join(place, name) for name in files if not hidden(name)]
    return sorted(found)


def parted(part: Part, path: str, named: str) -> Part:
    """The part with the columns in its directories; `named` is the path that the user gave, which may be a pattern."""
    from streamsvm.io.partitions import keys_of

    keys = keys_of(path) if "=" in path else ()
    given = named if named.endswith("/") or named == path else f"{named}/"
    plain = given.split("*", 1)[0].split("?", 1)[0].split("[", 1)[0].rpartition("/")[0] + "/"
    return part._replace(keys=keys, named=min(len(keys), len(keys_of(plain)))) if keys else part


def _local_part(path: str, named: str) -> Part:
    return parted(_plain_part(path), path.replace(os.sep, "/"), named.replace(os.sep, "/"))


def _plain_part(path: str) -> Part:
    try:
        info = os.stat(path)
    except OSError as error:  # a link to nowhere
        raise SourceError(f"{path}: cannot open: {reason(error)}") from error
    if not stat.S_ISREG(info.st_mode):  # a named pipe, /dev/stdin
        return Part(path, path, None, None)
    return Part(path, path, info.st_size, f"mtime {info.st_mtime_ns}")


def hidden(name: str) -> bool:
    """Whether a file in a directory, or a directory in one, is no data, by its name."""
    last = name.rstrip("/").rsplit("/", 1)[-1]
    return last.startswith((".", "_")) or last.endswith(".crc")


def _suggest(path: str) -> str:
    """` (did you mean ...?)` when a file with nearly the same name is there."""
    import difflib

    parent = Path(path).parent
    try:
        close = difflib.get_close_matches(Path(path).name, os.listdir(parent), n=1, cutoff=0.7)
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
    options = storage_options(scheme)
    try:
        import fsspec

        return fsspec.core.url_to_fs(url, **options)  # type: ignore[no-any-return]
    except ImportError as error:
        extra = REMOTE_EXTRAS.get(scheme or "")
        remedy = f"pip install 'streamsvm[{extra}]'" if extra else reason(error)
        raise SourceError(f"{redact_url(url)}: reading {scheme}:// needs another package: {remedy}") from error
    except Exception as error:
        raise SourceError(f"{redact_url(url)}: {reason(error, url)}") from error


def open_part(part: Part, *, stopped: Callable[[], bool] = lambda: False, random: bool = False, share: int = 1) -> Any:
    """The stored bytes of a part. A remote one is read ahead, until `stopped` says that nobody reads any more.

    Who reads here and there (`random`) needs ranges; `share` files that are open at a time share the memory.
    """
    try:
        if part.url == STDIN:
            return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
        if not is_local(part.url):
            from streamsvm.io.remote_parts import open_remote

            return open_remote(part, stopped, random, share)
        return open(part.url, "rb", buffering=0, opener=None if part.size is not None else _without_waiting)
    except StreamSvmError:
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
        with closing(open_part(part)) as raw:
            try:
                if hasattr(raw, "plan"):  # so that a remote file fetches all samples at a time
                    raw.plan(sampled_spans(part.size or 0))
                kind, value = "content", content_digest(raw, part.size or 0)
            except SourceError:
                raise
            except Exception as error:
                raise SourceError(f"{part.shown}: cannot read: {reason(error, part.url)}") from error
    return [part.shown, part.size, kind, value]
