"""Following logs against a model: whatever writers, rotation and restarts do, in any order, from any checkpoint.

Exact operations leave every line somewhere until it is read: then the lines of one log come in their order, and those
of a pattern as a set, each once. With truncation, and with files that are deleted unread, lines may be missing; but
none comes twice, none that is still in a file stays unread, and something is counted.

Times of files are set by hand, often to that of the file before, because the clocks of file systems are coarse.
"""

import gzip
import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from faults import MEMORY
from followed import WAIT, Reader
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tiers import examples

from streamsvm.io.log_files import Disk, Info

HEADER = "header"
STEP = 1_000_000  # nanoseconds


class Inodes(Disk):
    """A file system that gives the lowest free inode to a new file, as ext4 does, whatever else happens on it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._given: dict[int, int] = {}  # the inode that a file seems to have, for the one it has
        self._opened: list[Any] = []

    def open(self, path: str) -> Any:
        raw = super().open(path)
        self._opened = [other for other in self._opened if not other.closed] + ([raw] if raw is not None else [])
        return raw

    def info(self, path: str) -> Info | None:
        info = super().info(path)
        return info if info is None else self._seeming(info)

    def info_of(self, raw: Any) -> Info:
        return self._seeming(super().info_of(raw))

    def _seeming(self, info: Info) -> Info:
        if info.inode not in self._given:
            used = {entry.inode() for entry in os.scandir(self._folder)}
            used |= {os.fstat(raw.fileno()).st_ino for raw in self._opened if not raw.closed}
            self._given = {inode: given for inode, given in self._given.items() if inode in used}
            self._given[info.inode] = min(set(range(1, len(self._given) + 2)) - set(self._given.values()))
        return info._replace(inode=self._given[info.inode])


class Generation:
    """A file that a log had, and what was written to it."""

    def __init__(self, log: str, path: Path) -> None:
        self.log = log
        self.path: Path | None = path  # None if it is gone
        self.lines: list[str] = []
        self.partial = ""
        self.renamed: float | None = None  # when it lost the name of its log, by the reader's clock
        self.packed = False
        self.copied = False
        self.old = False  # whether it was rotated before the reader came, who does not read it then


class World(RuleBasedStateMachine):
    """One directory, its writers, and a reader."""

    pattern = "a.log"
    names: tuple[str, ...] = ("a.log",)
    exact = True

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="follow-", dir=MEMORY))
        self.disk = Inodes(self.folder)
        self.number = 0
        self.time = 1_700_000_000 * 10**9
        self.rotations = 0
        self.all: dict[str, list[Generation]] = {name: [] for name in self.names}
        self.current: dict[str, Generation | None] = dict.fromkeys(self.names)
        self.fresh = True  # whether the reader knows of nothing
        self.gone: list[Generation] = []  # since the last restart

    @initialize(
        compressed=st.booleans(), dated=st.booleans(), headers=st.booleans(), block_size=st.sampled_from([16, 64, 4096])
    )
    def begin(self, compressed: bool, dated: bool, headers: bool, block_size: int) -> None:
        self.compressed, self.dated, self.headers = compressed, dated, headers
        self.reader = Reader(self.folder / self.pattern, compressed=compressed, block_size=block_size, disk=self.disk)

    def _name(self, data: Any) -> str:
        return str(data.draw(st.sampled_from(self.names))) if len(self.names) > 1 else self.names[0]

    # Writers.

    def _put(self, generation: Generation, text: str, tick: bool) -> None:
        assert generation.path is not None
        self.time += STEP * tick
        with open(generation.path, "a") as file:
            file.write(text)
        os.utime(generation.path, ns=(self.time, self.time))

    def _now(self, name: str) -> Generation:
        """The file that has the name; a new one if there is none."""
        found = self.current[name]
        if found is None:
            found = self.current[name] = Generation(name, self.folder / name)
            self._start(found, False)
        return found

    def _start(self, generation: Generation, tick: bool) -> None:
        """A new file. If it has a header, a line follows: one that had no more would be as good as any other."""
        self.all[generation.log].append(generation)
        self._put(generation, f"{HEADER}\n" if self.headers else "", tick)
        if self.headers:
            self._write(generation, 1, tick)

    def _write(self, generation: Generation, count: int, tick: bool) -> None:
        for _ in range(count):
            self.number += 1
            generation.lines.append(f"{generation.partial}{self.number}")
            generation.partial = ""
            self._put(generation, f"{self.number}\n", tick)

    def _write_part(self, generation: Generation, tick: bool) -> None:
        self.number += 1
        generation.partial += f"{self.number}-"
        self._put(generation, f"{self.number}-", tick)

    @rule(data=st.data(), count=st.integers(1, 4), tick=st.booleans())
    def write(self, data: Any, count: int, tick: bool) -> None:
        self._write(self._now(self._name(data)), count, tick)

    @rule(data=st.data(), tick=st.booleans())
    def write_part_of_a_line(self, data: Any, tick: bool) -> None:
        self._write_part(self._now(self._name(data)), tick)

    def _late(self, name: str) -> Generation | None:
        """The file that had the name before, if its writer may still write to it."""
        old = self._rotated(name)
        if not old or old[-1].packed or old[-1].copied or old[-1].old or self.fresh or old[-1].renamed is None:
            return None
        return old[-1] if self.reader.now - old[-1].renamed < WAIT or not self.exact else None

    @rule(data=st.data(), part=st.booleans(), tick=st.booleans())
    def write_to_the_renamed_file(self, data: Any, part: bool, tick: bool) -> None:
        late = self._late(self._name(data))
        if late is not None and part:
            self._write_part(late, tick)
        elif late is not None:
            self._write(late, 1, tick)

    # Rotation.

    def _rotated(self, name: str) -> list[Generation]:
        """Those that are there, oldest first."""
        return [g for g in self.all[name] if g.path is not None and g is not self.current[name]]

    @rule(data=st.data(), create=st.booleans(), times=st.integers(1, 3))
    def rotate(self, data: Any, create: bool, times: int) -> None:
        name = self._name(data)
        for turn in range(times):
            if turn:
                self._write(self._now(name), 1, False)
            self._rename(name)
        if create:
            self._now(name)

    def _rename(self, name: str) -> None:
        generation = self.current[name]
        if generation is not None:
            place = self._place(name)
            self._move(generation, place)
            generation.renamed = self.reader.now
            self.current[name] = None

    def _place(self, name: str) -> Path:
        """The name that a file gets now that is rotated."""
        self.rotations += 1
        if self.dated:
            return self.folder / f"{name}-2026{self.rotations:04}"
        for old in self._rotated(name):
            assert old.path is not None
            number = int(old.path.name.removesuffix(".gz").split(".")[-1])
            self._move(old, self.folder / f"{name}.{number + 1}{'.gz' if old.packed else ''}")
        return self.folder / f"{name}.1"

    def _move(self, generation: Generation, path: Path) -> None:
        assert generation.path is not None
        os.rename(generation.path, path)
        generation.path = path

    def _held(self, generation: Generation) -> bool:
        """Whether the reader has the file open."""
        info = self.disk.info(str(generation.path))
        assert info is not None
        return any(tail.id == info.file for log in self.reader.follower.logs.values() for tail in log.open_tails())

    def _read(self, generation: Generation) -> bool:
        return generation.old or set(generation.lines) <= set(self.reader.lines)

    def _safe(self, generation: Generation) -> bool:
        """Whether nothing will be missing if the file is gone."""
        return self._held(generation) or (self._read(generation) and self._late(generation.log) is not generation)

    def _forget(self, generation: Generation) -> None:
        """The file is gone, or as good as gone."""
        generation.path = None
        self.gone.append(generation)

    @rule(data=st.data())
    def delete_a_rotated_file(self, data: Any) -> None:
        """The oldest."""
        rotated = self._rotated(self._name(data))
        if rotated and rotated[0].path is not None and (not self.exact or self._safe(rotated[0])):
            rotated[0].path.unlink()
            self._forget(rotated[0])

    @rule(data=st.data(), create=st.booleans())
    def delete_the_log(self, data: Any, create: bool) -> None:
        name = self._name(data)
        generation = self.current[name]
        if generation is None or (self.exact and not self._held(generation)):
            return
        (self.folder / name).unlink()
        generation.renamed, self.current[name] = self.reader.now, None
        self._forget(generation)
        if create:
            self._now(name)  # often with the inode of the one before

    @rule(data=st.data())
    def compress(self, data: Any) -> None:
        name = self._name(data)
        plain = [g for g in self._rotated(name) if not g.packed]
        if not plain or (self.exact and self._late(name) is plain[0]):
            return
        path = plain[0].path
        if path is not None and (self.compressed or not self.exact or self._safe(plain[0])):
            packed = Path(f"{path}.gz")
            packed.write_bytes(gzip.compress(path.read_bytes(), 1))
            info = path.stat()
            os.utime(packed, ns=(info.st_atime_ns, info.st_mtime_ns))
            path.unlink()
            if self.compressed:
                plain[0].path, plain[0].packed = packed, True
            else:
                packed.unlink()  # nobody looks at it
                self._forget(plain[0])

    # The reader.

    def _come(self) -> None:
        """The reader is about to look; at its first look, what had been rotated before is old."""
        if self.fresh and self.exact_order:
            for generation in self.all[self.names[0]]:
                generation.old = generation is not self.current[self.names[0]]
            self.fresh = False

    @property
    def exact_order(self) -> bool:
        return len(self.names) == 1

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, WAIT, 2 * WAIT]))
    def read(self, seconds: float) -> None:
        self.reader.now += seconds
        self._come()
        self.reader.round()
        self.check()

    @rule(most=st.integers(1, 3))
    def read_a_little(self, most: int) -> None:
        self.reader.now += 1.0
        self._come()
        self.reader.round(most=most)
        self.check()

    @rule()
    def checkpoint(self) -> None:
        self.reader.history.append((self.reader.follower.marks(), len(self.reader.lines)))

    @rule(back=st.integers(0, 6))
    def restart(self, back: int) -> None:
        if self.gone:  # what is gone could not be read again, so that only what is known now will do
            if self.exact and not all(self._read(generation) for generation in self.gone):
                return
            self.checkpoint()
            self.reader.history = self.reader.history[-1:]
            self.gone = []
        self.reader.restart(back)
        self.fresh = self.fresh or not self.reader.history[-1][0].begun
        if self.fresh:
            for generation in self.all[self.names[0]]:
                generation.old = False

    # What must hold.

    def _lines(self) -> list[str]:
        return [line for line in self.reader.lines if line != HEADER]

    def _expected(self) -> list[str]:
        return [line for name in self.names for g in self.all[name] if not g.old for line in g.lines]

    def check(self) -> None:
        lines = self._lines()
        if self.exact and self.exact_order and not self.fresh:
            assert lines == self._expected()[: len(lines)]
        assert not [line for line, times in Counter(lines).items() if times > 1]

    def settle(self) -> None:
        for turn in range(40):  # many files may wait, and only some are open at a time
            before = len(self.reader.lines)
            for seconds in (0.5, 0.6, WAIT):
                self.reader.now += seconds
                self._come()
                self.reader.round()
            if turn > 3 and len(self.reader.lines) == before and self.reader.follower.settled:
                break

    def teardown(self) -> None:
        try:
            if hasattr(self, "reader"):
                self.settle()
                self.check()
                self.check_all()
        finally:
            if hasattr(self, "reader"):
                self.reader.close()
            shutil.rmtree(self.folder)

    def check_all(self) -> None:
        if not self.fresh or not self.exact_order:
            assert sorted(self._lines()) == sorted(self._expected())
        assert self.reader.counts["truncated"] == 0


class Pattern(World):
    pattern = "*.log*"
    names = ("a.log", "b.log")


class Mishaps(World):
    """Also what cannot be made good."""

    exact = False

    def _replace(self, generation: Generation, place: Path | None) -> Generation:
        """The file goes on as another; what it was is in `place`, if anywhere."""
        path = generation.path
        assert path is not None
        if place is not None:
            shutil.copyfile(path, place)
            self.time += STEP
            os.utime(place, ns=(self.time, self.time))
            generation.path, generation.copied, generation.renamed = place, True, self.reader.now
        else:
            self._forget(generation)
        os.truncate(path, 0)
        fresh = self.current[generation.log] = Generation(generation.log, path)
        self._start(fresh, True)
        return fresh

    @rule(data=st.data(), count=st.integers(0, 4))
    def truncate(self, data: Any, count: int) -> None:
        """Lines may follow at once, so that the file is as long as before, or longer."""
        generation = self.current[self._name(data)]
        if generation is not None:
            self._write(self._replace(generation, None), count, True)

    @rule(data=st.data(), count=st.integers(0, 2))
    def copytruncate(self, data: Any, count: int) -> None:
        generation = self.current[self._name(data)]
        if generation is not None:
            self._write(self._replace(generation, self._place(generation.log)), count, True)

    def check_all(self) -> None:
        for name in self.names:  # lines that came late are found when the name passes on
            self._rename(name)
            self._write(self._now(name), 1, True)
        self.settle()
        self.check()
        read, counts = set(self._lines()), self.reader.counts
        assert read <= set(self._expected()) | {line for g in self.all[self.names[0]] if g.old for line in g.lines}
        for generation in (g for name in self.names for g in self.all[name] if not g.old):
            missing = [line for line in generation.lines if line not in read]
            if generation.path is not None and not generation.copied:
                assert not missing
            elif missing and read & set(generation.lines):
                assert counts["truncated"] + counts["lost"] + counts["unfinished"] > 0


class PatternMishaps(Mishaps):
    pattern = "*.log*"
    names = ("a.log", "b.log")


MACHINES = {World: 800, Pattern: 400, Mishaps: 500, PatternMishaps: 300}


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_any_history(machine: type[World]) -> None:
    run_state_machine_as_test(machine, settings=examples(MACHINES[machine], stateful_step_count=25))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_ten_times_as_many(machine: type[World]) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=10 * MACHINES[machine], stateful_step_count=25, derandomize=False)
    )
