"""The names that rotated files of a log have, and the order in which they had the log's own name.

clicks.log   clicks.log.1   clicks.log-20261117   clicks.log.2026-11-17   clicks-20261117.log   clicks.log.2.gz
"""

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol, TypeVar

from streamsvm.io.log_files import Disk, Info, is_packed
from streamsvm.io.marks import Id

ROTATED = r"([.-]?[0-9][0-9_:.T-]*)"  # what a name gets when it is rotated: .1, -20261117, .2026-11-17
NUMBER = re.compile(r"([.-]?)([0-9]{1,6})")
DIGITS = re.compile(r"[0-9]+")
BEYOND = 2  # numbers above the last one at which files may be by now that were met nowhere
MOST_HOLES = 100  # numbers without a file, before they are taken for some that do not move
MOST_STEPS = 1000  # names that are looked at beyond those listed, before a look begins again


class Moved(Exception):  # noqa: N818  (not an error: look again)
    """Files were renamed while they were looked at."""


class Seen(Protocol):
    """What was found under a name."""

    @property
    def path(self) -> str: ...
    @property
    def info(self) -> Info: ...
    @property
    def known(self) -> bool | None: ...  # whether it came before those that are not; None if its inode alone says so


Some = TypeVar("Some", bound=Seen)


class _Shape(NamedTuple):
    """A name with a place for a number."""

    before: str
    width: int  # of the number, if it begins with zeros
    after: str

    def name(self, number: int) -> str:
        return f"{self.before}{number:0{self.width}d}{self.after}"


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

    def everything(self) -> list[str]:
        """The paths that are named like this; compressed ones come last."""
        names = [name for name in self._wanted(self._disk.names(self.folder)) if self.turn(name) or self._packed(name)]
        return [os.path.join(self.folder, name) for name in sorted(names, key=is_packed)]

    def _wanted(self, names: Iterable[str]) -> Iterator[str]:
        return (name for name in names if self.compressed or not is_packed(name))

    def _packed(self, name: str) -> bool:
        return is_packed(name) and os.path.splitext(name)[0] == self._name

    def turn(self, path: str) -> str:
        """What the name was given when it was rotated; nothing if it was not."""
        name = os.path.basename(path)
        for start, pattern in self._ways:
            if name.startswith(start) and (found := pattern.fullmatch(name, len(start))):
                return found[1]
        return ""

    # Looking at all of them.

    def look(self, look: Callable[[str], Some | None], drop: Callable[[Some], None]) -> tuple[list[Some], bool]:
        """What `look` finds under these names, each file once, and whether it is as many as there were names.

        `drop` gets what was found of a file under an earlier name.

        A directory is no snapshot: while it is looked at, rotation may go on. Where the highest number is the oldest,
        files move to higher numbers, so they are looked at from the lowest on: none that moves can be missed, some are
        met twice, and their places when they were met last are in the order of their ages. Other names do not change.
        """
        names = list(self._wanted(self._disk.names(self.folder)))
        names = [name for name in names if self.turn(name) or self._packed(name)]
        met: dict[Id, Some] = {}
        times = 0
        for times, found in enumerate(self._walk(names, look), 1):  # noqa: B007  (the number of those found)
            earlier = met.pop(found.info.file, None)
            if earlier is not None:
                drop(earlier)
            met[found.info.file] = found
        plain = {name for name in names if not is_packed(name)}
        names = [name for name in names if name in plain or os.path.splitext(name)[0] not in plain]
        return list(met.values()), times >= len(names) or times >= sum(map(self._is_file, names))

    def _is_file(self, name: str) -> bool:
        """Whether the name is not known to be one of something else, or of nothing."""
        path = os.path.join(self.folder, name)
        try:
            info = self._disk.info(path)
        except OSError:
            return False
        return info.regular if info is not None else not self._disk.is_link(path)

    def _walk(self, names: list[str], look: Callable[[str], Some | None]) -> Iterator[Some]:
        shapes, numbers = set(), set()
        for name in names:
            if shape := self._shape(name):
                if self.compressed and not is_packed(name):
                    shapes.add(shape[0]._replace(after=f"{shape[0].after}.gz"))
                shapes |= {shape[0]} | ({_plain(shape[0])} if is_packed(name) else set())
                numbers.add(shape[1])
            elif (found := look(os.path.join(self.folder, name))) is not None:
                yield found
            elif self.compressed and not is_packed(name):
                found = look(os.path.join(self.folder, f"{name}.gz"))  # it was compressed meanwhile
                if found is not None:
                    yield found
        if numbers:
            dense = max(numbers) <= 2 * len(numbers) + MOST_HOLES
            walk = self._walk_numbers if dense else self._walk_far_apart
            yield from walk(sorted(shapes, key=lambda shape: is_packed(shape.after)), numbers, look)

    def _walk_numbers(
        self, shapes: list[_Shape], numbers: set[int], look: Callable[[str], Some | None]
    ) -> Iterator[Some]:
        """From the lowest number on, those in between that were not listed too, and some beyond the highest."""
        most = 2 * len(numbers) + MOST_STEPS
        number, last = min(1, *numbers), max(numbers)
        while number <= last + BEYOND:
            plain = False
            for shape in shapes:
                packed = is_packed(shape.after)
                if packed and plain:
                    continue  # it is being made just now
                found = look(os.path.join(self.folder, shape.name(number)))
                if found is not None:
                    plain |= not packed
                    last = max(last, number)
                    yield found
            number += 1
            most -= 1
            if not most:
                raise Moved

    def _walk_far_apart(
        self, shapes: list[_Shape], numbers: set[int], look: Callable[[str], Some | None]
    ) -> Iterator[Some]:
        """Numbers that nobody moves up, such as those of processes."""
        for number in sorted(numbers):
            for shape in shapes:
                found = look(os.path.join(self.folder, shape.name(number)))
                if found is not None:
                    yield found

    def _shape(self, name: str) -> tuple[_Shape, int] | None:
        """The shape of a name with a number, and that number; None of another."""
        for start, pattern in self._ways:
            if name.startswith(start) and (found := pattern.fullmatch(name, len(start))):
                number = NUMBER.fullmatch(found[1])
                if number is None:
                    return None
                before, after = name[: found.start(1)] + number[1], name[found.end(1) :]
                return _Shape(before, len(number[2]) if number[2][0] == "0" else 0, after), int(number[2])
        return None

    # Their order.

    def oldest_first(self, found: list[Some], apart: float) -> list[Some]:
        """In the order in which they had the log's name, which their numbers tell, or their dates.

        Whether the highest number is the oldest is told by the files that are known: they came before the others. Where
        there is none, by times, if those of files that follow on each other are `apart` seconds apart, or by many of
        them: a writer may go on writing for a while to a file that was renamed. If nothing tells, it is.
        """
        numbers = {each.path: int(match[2]) for each in found if (match := NUMBER.fullmatch(self.turn(each.path)))}
        if not numbers:
            return sorted(found, key=lambda each: _dated(self.turn(each.path)))
        if len(numbers) < len(found):
            return sorted(found, key=lambda each: (each.info.written, each.path))
        found = sorted(found, key=lambda each: -numbers[each.path])
        return found[::-1] if self._ascending(found, apart) else found

    def _ascending(self, found: list[Some], apart: float) -> bool:
        """Whether the highest number, of those from the highest on, is the newest."""
        times = [each.info.written for each in found]
        steps = [(after > before) - (after < before) for before, after in zip(times, times[1:], strict=False)]
        for sure in (True, None):
            votes = _order_of_known(found, sure)
            if votes and (sure or votes * sum(steps) <= 0):
                return votes > 0
        return sum(steps) <= -2 or (len(times) == 2 and times[0] - times[1] > apart * 1e9)


def _order_of_known(found: list[Some], known: bool | None) -> int:
    """How often a file that is known has a lower number than one that is not, less how often it has a higher one.

    The files are those from the highest number on; those that are empty or compressed tell nothing.
    """
    votes = before = strange = 0
    for each in found:
        if each.known is False and (not each.info.size or is_packed(each.path)):
            continue
        if each.known is False:
            strange += 1
            votes -= before
        elif each.known is known:
            before += 1
            votes += strange
    return votes


def _dated(turn: str) -> list[int]:
    """Dates and counters by their numbers: 2026-11-17-9 is before 2026-11-17-10."""
    return [int(digits) for digits in DIGITS.findall(turn)]


def _plain(shape: _Shape) -> _Shape:
    return shape._replace(after=os.path.splitext(shape.after)[0])


@functools.cache
def _rotation(ending: str) -> re.Pattern[str]:
    """What follows the beginning of a log's name in the names of its rotated files."""
    return re.compile(rf"{ROTATED}{re.escape(ending)}(?:\.[A-Za-z][A-Za-z0-9]*)?")
