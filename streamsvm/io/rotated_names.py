"""The names that rotated files of a log have, and the order in which they had the log's own name.

clicks.log   clicks.log.1   clicks.log-20261117   clicks.log.2026-11-17   clicks-20261117.log   clicks.log.2.gz
"""

import errno
import functools
import os
import re
from collections.abc import Iterable, Iterator

from streamsvm.io.log_files import Disk, Info, is_packed

ROTATED = r"([.-]?[0-9][0-9_:.T-]*)"  # what a name gets when it is rotated: .1, -20261117, .2026-11-17
NUMBER = re.compile(r"[.-]?([0-9]{1,6})")

Found = tuple[str, Info]  # a path, and what is there


class Moved(Exception):  # noqa: N818  (not an error: look again)
    """Files were renamed while they were looked at."""


class RotatedNames:
    """Those of one log. Compressed files are left out, unless they are asked for."""

    def __init__(self, path: str, disk: Disk, compressed: bool) -> None:
        self._disk = disk
        self.compressed = compressed
        self.folder, self._name = os.path.split(path)
        stem, ending = os.path.splitext(self._name)
        self._ways = (self._name, _rotation("")), (stem, _rotation(ending))

    def may_be_old(self, path: str) -> bool:
        """Whether the name is one that a rotated file of this log may have."""
        return path.startswith(os.path.join(self.folder, self._ways[1][0])) and bool(self.turn(path))

    def everything(self) -> Iterator[Found]:
        """The files that are named like this, whatever else is true of them; compressed ones come last."""
        names = [name for name in self._disk.names(self.folder) if self.compressed or not is_packed(name)]
        return self.named(sorted(names, key=is_packed))

    def files(self, named: bool) -> list[Found]:
        """The files that are named like rotated ones of this log; whether one has the name itself is known."""
        names = self._disk.names(self.folder)
        if named != (self._name in names):
            raise Moved  # or the list is not complete
        return list(self.named(name for name in names if self.compressed or not is_packed(name)))

    def named(self, names: Iterable[str]) -> Iterator[Found]:
        for name in names:
            if self.turn(name) or (is_packed(name) and os.path.splitext(name)[0] == self._name):
                path = os.path.join(self.folder, name)
                try:
                    info = self._disk.info(path)
                except OSError as error:
                    if error.errno != errno.ELOOP:
                        raise
                    continue
                if info is not None and info.regular:
                    yield path, info
                elif info is None and not self._disk.is_link(path):
                    raise Moved

    def turn(self, path: str) -> str:
        """What the name was given when it was rotated; nothing if it was not."""
        name = os.path.basename(path)
        for start, pattern in self._ways:
            if name.startswith(start) and (found := pattern.fullmatch(name, len(start))):
                return found[1]
        return ""

    def oldest_first(self, found: list[Found]) -> list[Found]:
        """By their numbers, of which the highest is the oldest unless times say otherwise, or their dates.

        Times alone do not tell: a writer may go on writing to a file for a while after it was renamed.
        """
        numbers = {path: int(match[1]) for path, _ in found if (match := NUMBER.fullmatch(self.turn(path)))}
        if not numbers:
            return sorted(found, key=lambda each: self.turn(each[0]))
        if len(numbers) < len(found):
            return sorted(found, key=lambda each: (each[1].written, each[0]))
        found = sorted(found, key=lambda each: -numbers[each[0]])
        times = [info.written for _, info in found]
        steps = [(after > before) - (after < before) for before, after in zip(times, times[1:], strict=False)]
        return found[::-1] if sum(steps) <= -2 else found


@functools.cache
def _rotation(ending: str) -> re.Pattern[str]:
    """What follows the beginning of a log's name in the names of its rotated files."""
    return re.compile(rf"{ROTATED}{re.escape(ending)}(?:\.[A-Za-z][A-Za-z0-9]*)?")
