"""No output of a command may be one of its inputs, or another output of it: one rule, for every command and for Python.

Two names are one place if they lead to one path (relative, through links), to one file (hard links, standard streams
that were redirected), or to one object of a bucket. What cannot be overwritten, such as a pipe or /dev/null, is no
place. A directory or pattern stands for the files in it; that of logs for those that may come, too.
"""

import glob
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import translate
from typing import Any, NamedTuple

from streamsvm.errors import ConfigError, SourceError
from streamsvm.io.files import local_path
from streamsvm.io.parts import STDIN, find_parts, hidden, open_filesystem
from streamsvm.io.urls import REMOTE_EXTRAS, WEB, is_local, redact_url, scheme_of

Keys = frozenset[tuple[Any, ...]]  # of a place; those of one place have some in common


Named = tuple[str, str]  # what it is, as in "the training data (data.train)", and its url


class _Place(NamedTuple):
    what: str
    shown: str  # as it was given
    url: str  # with the environment's values in place of references


def refuse_overwriting(
    outputs: Sequence[Named], inputs: Sequence[Named], expand: Callable[[str], str] = str, *, growing: bool = False
) -> None:
    """ConfigError if an output is an input, or another output. Of `growing` logs those that come later count too."""
    known: list[tuple[_Place, Keys]] = []
    for output in _places(outputs, expand):
        keys = _keys(output.url, sys.stdout)
        for other, there in known:
            if keys & there:
                raise ConfigError(
                    f"{output.shown}: {other.what} and {output.what} cannot be the same file; "
                    "choose another name for one of them"
                )
        known.append((output, keys))
    for given in _places(inputs, expand):
        read = _keys_read(given, known)
        for output, keys in known:
            if keys & read or _part_of(output.url, read) or (growing and _comes_to_be(output.url, given.url)):
                same = "" if output.shown == given.shown else f" {given.shown}"
                raise ConfigError(
                    f"{output.shown}: {output.what} would overwrite {given.what}{same}; choose another name"
                )


def _places(named: Iterable[Named], expand: Callable[[str], str]) -> list[_Place]:
    return [_Place(what, redact_url(url), expand(url)) for what, url in named]


def _keys(url: str, standard: Any) -> Keys:
    """What tells one place from another; nothing where there is nothing to be overwritten."""
    if url == STDIN:
        with suppress(OSError, ValueError, AttributeError):  # closed, or not a file at all
            return _of_file(os.fstat(standard.fileno()))
        return frozenset()
    if not is_local(url):
        return frozenset({_object(url)})
    path = local_path(url)
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return frozenset({("path", os.path.realpath(path))})
    found = _of_file(info)
    return found | {("path", os.path.realpath(path))} if found else found


def _of_file(info: os.stat_result) -> Keys:
    """By the file itself, if it is one (or a directory), and no pipe or device."""
    plain = stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)
    return frozenset({("file", info.st_dev, info.st_ino)}) if plain and info.st_ino else frozenset()


def _object(url: str) -> tuple[Any, ...]:
    """The family of a url's protocol (s3 and s3a are one), and the path in it."""
    scheme = scheme_of(url)
    family = REMOTE_EXTRAS.get(scheme or "") or scheme
    if scheme in WEB:
        return "object", family, re.split("[?#]", url.split("://", 1)[1])[0]
    return "object", family, str(open_filesystem(url)[1]).strip("/")


def _keys_read(given: _Place, outputs: Sequence[tuple[_Place, Keys]]) -> Keys:
    """All that an input names. The files of a pattern or directory are looked up only if one may be an output."""
    own = _keys(given.url, sys.stdin)
    kind = "file" if is_local(given.url) else "object"
    meant = any("*" in output.url or kind in {key[0] for key in keys} for output, keys in outputs)
    if given.url == STDIN or not meant:
        return own
    if is_local(given.url) and os.path.isfile(local_path(given.url)):
        return own
    with suppress(SourceError):  # there is nothing: that is told elsewhere
        own = own.union(*(_keys(part.url, sys.stdin) for part in find_parts([given.url])))
    return own


def _part_of(output: str, read: Keys) -> bool:
    """Whether an output of many parts, such as out/part-*.csv, has a place that is read."""
    if "*" not in output:
        return False
    name = os.path.realpath(local_path(output)) if is_local(output) else str(_object(output)[2])
    pattern = re.compile(re.escape(name).replace(re.escape("*"), r"\d{5,}"))
    return any(isinstance(key[-1], str) and pattern.fullmatch(key[-1]) for key in read)


def _comes_to_be(output: str, logs: str) -> bool:
    """Whether logs have a file of this name as soon as it is there: by their pattern, or as a rotated one."""
    if not is_local(output) or not is_local(logs):
        return False
    path = os.path.realpath(local_path(output))
    return any(_is_log(path, log) for log in _logs(logs))


def _logs(url: str) -> Iterator[str]:
    path = str(local_path(url))
    yield path
    if glob.has_magic(path):
        yield from glob.glob(path, recursive=True)


def _is_log(path: str, log: str) -> bool:
    from streamsvm.io.log_files import Disk
    from streamsvm.io.rotated_names import RotatedNames

    if os.path.isdir(log):
        return os.path.dirname(path) == os.path.realpath(log) and not hidden(path)
    folder, name = os.path.split(log)
    whole = os.path.join(os.path.realpath(folder), name)
    if glob.has_magic(log):
        return re.fullmatch(translate(whole), path) is not None
    return RotatedNames(whole, Disk(), True).may_be_old(path)
