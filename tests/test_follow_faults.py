"""Following logs while the file system fails: every call, in every way, and files that move between any two calls."""

import errno
import gzip
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from faults import MEMORY
from followed import Reader, Room, append, rotate

import streamsvm.io.follow
from streamsvm.io.log_files import Disk, Info
from streamsvm.io.log_source import LogSource
from streamsvm.io.marks import Marks
from streamsvm.io.tails import COMPLAIN


class Shaky(Disk):
    """Calls are counted; before the chosen ones something happens, or is said instead of an answer."""

    def __init__(self, chosen: range = range(0), happens: Callable[[str], None] = lambda kind: None) -> None:
        self.calls: list[str] = []
        self._chosen = chosen
        self._happens = happens

    def _call(self, kind: str) -> bool:
        self.calls.append(kind)
        chosen = len(self.calls) in self._chosen
        if chosen:
            self._happens(kind)
        return chosen

    def info(self, path: str) -> Info | None:
        try:
            self._call("info")
        except FileNotFoundError:
            return None
        return super().info(path)

    def info_of(self, raw: Any) -> Info:
        self._call("info_of")
        return super().info_of(raw)

    def names(self, directory: str) -> list[str]:
        self._call("names")
        return super().names(directory)

    def matching(self, pattern: str) -> list[str]:
        try:
            self._call("matching")
        except OSError:
            return []  # what glob makes of it
        return super().matching(pattern)

    def is_link(self, path: str) -> bool:
        try:
            self._call("is_link")
        except OSError:
            return False
        return super().is_link(path)

    def open(self, path: str) -> Any:
        try:
            self._call("open")
        except FileNotFoundError:
            return None
        return super().open(path)

    def read(self, raw: Any, offset: int, view: memoryview) -> int:
        return super().read(raw, offset, view[:1] if self._call("read") else view)


def says(number: int) -> Callable[[str], None]:
    def happens(kind: str) -> None:
        if number != errno.ENOENT or kind not in ("read", "info_of"):  # an open file has no name that could be missing
            raise OSError(number, os.strerror(number))

    return happens


FAULTS: dict[str, tuple[int, Callable[[str], None]]] = {
    "EIO": (1, says(errno.EIO)),
    "ENOENT": (1, says(errno.ENOENT)),
    "ESTALE": (1, says(errno.ESTALE)),
    "EACCES": (1, says(errno.EACCES)),
    "EIO three times": (3, says(errno.EIO)),
    "ENOENT three times": (3, says(errno.ENOENT)),
    "ESTALE ten times": (10, says(errno.ESTALE)),
    "EIO forty times": (40, says(errno.EIO)),
    "short reads": (5, lambda kind: None),
}


def pack(path: Path) -> None:
    packed = Path(f"{path}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    info = path.stat()
    os.utime(packed, ns=(info.st_atime_ns, info.st_mtime_ns))
    path.unlink()


def one_log(folder: Path, disk: Disk) -> Reader:
    """Rotations while it is read and while it is not, a slow writer, a restart, and a compressed file."""
    log = folder / "a.log"
    append(folder / "a.log.1", "old\n")
    append(log, "1\n2\n")
    reader = Reader(log, compressed=True, disk=disk)
    while not reader.lines:  # who has not seen the first file cannot know that it comes before the next
        reader.quiet()
    with open(log, "a") as late:
        for number in (3, 5, 6):
            rotate(log)
            append(log, f"{number}\n")
            reader.round()
            if number == 3:
                late.write("2b\n")
                late.flush()
    reader.quiet()
    reader.restart()
    append(log, "7\n")
    for number in (8, 9):
        rotate(log)
        append(log, f"{number}\n")
    pack(Path(f"{log}.4"))
    reader.quiet()
    reader.restart(back=2)
    rotate(log)
    pack(Path(f"{log}.1"))
    append(log, "10\n")
    reader.quiet()
    return reader


LINES = ["1", "2", "2b", "3", "5", "6", "7", "8", "9", "10"]


def pattern(folder: Path, disk: Disk) -> Reader:
    """Several logs by one pattern, rotated, compressed, and read again."""
    for name in "ab":
        append(folder / f"{name}.log", f"{name}1\n{name}2\n")
    reader = Reader(folder / "*.log*", compressed=True, disk=disk)
    while len(reader.lines) < 4:
        reader.quiet()
    rotate(folder / "a.log")
    append(folder / "a.log", "a3\n")
    append(folder / "b.log", "b3\n")
    reader.quiet()
    reader.restart()
    rotate(folder / "b.log")
    pack(folder / "b.log.1")
    append(folder / "c.log", "c1\n")
    reader.quiet()
    reader.restart(back=1)
    reader.quiet()
    return reader


SCENARIOS: dict[str, tuple[Callable[[Path, Disk], Reader], list[str]]] = {
    "one log": (one_log, LINES),
    "pattern": (pattern, ["a1", "a2", "a3", "b1", "b2", "b3", "c1"]),
}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@contextmanager
def empty_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="follow-", dir=MEMORY))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def told_too_often(reader: Reader) -> bool:
    """Whether the same complaint came twice in a short time; the scenarios take a few minutes, and restart twice."""
    return any(reader.notes.count(note) > 3 + reader.now / COMPLAIN for note in reader.notes)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_failure_loses_or_repeats_a_line(scenario: str, fault: str) -> None:
    play, expected = SCENARIOS[scenario]
    length, happens = FAULTS[fault]
    with empty_folder() as folder:
        quiet = Shaky()
        play(folder, quiet).close()
    before = descriptors()
    for at in range(1, len(quiet.calls) + 1, 1 if length < 5 else length // 2):
        with empty_folder() as folder:
            reader = play(folder, Shaky(range(at, at + length), happens))
            reader.close()
        lines = reader.lines if scenario == "one log" else sorted(reader.lines)
        assert lines == expected, (at, quiet.calls[at - 1], lines, reader.notes)
        assert reader.counts["lost"] == 0 or fault == "ENOENT three times", (at, reader.notes)
        assert not told_too_often(reader), (at, reader.notes)
    assert descriptors() == before


@pytest.mark.parametrize("scenario", ["*.log*", "a.log"])
@pytest.mark.parametrize("times", [1, 2, 20])
def test_files_that_are_rotated_between_any_two_calls(scenario: str, times: int) -> None:
    def play(folder: Path, chosen: range) -> tuple[Reader, list[str], list[str]]:
        log, written = folder / "a.log", ["1", "2"]

        def rotation(kind: str) -> None:
            for _ in range(times):
                rotate(log, keep=60)
                written.append(str(len(written) + 1))
                append(log, f"{written[-1]}\n")

        append(log, "1\n")
        reader = Reader(folder / scenario)
        reader.quiet()
        reader.restart()
        disk = reader.disk = Shaky(chosen, rotation)
        reader.restart()
        rotate(log, keep=60)
        append(log, "2\n")
        reader.quiet()
        reader.restart()
        reader.quiet()
        calls = list(disk.calls)
        disk.calls = [""] * 100_000  # no more
        reader.settle()
        reader.close()
        return reader, written, calls

    with empty_folder() as folder:
        calls = play(folder, range(0))[2]
    for at in range(1, len(calls) + 1):
        with empty_folder() as folder:
            reader, written, _ = play(folder, range(at, at + 1))
        lines = reader.lines if scenario == "a.log" else sorted(reader.lines, key=int)
        assert lines == written, (at, calls[at - 1], lines)
        assert reader.counts["lost"] == reader.counts["truncated"] == 0


def test_a_fault_that_lasts_is_told_once_a_minute(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "1\n")
    disk = Shaky(range(1, 10_000), says(errno.EIO))
    reader = Reader(tmp_path / "a.log", disk=disk)
    reader.settle(300.0)
    assert not reader.lines and not reader.follower.settled
    assert 5 <= len(reader.notes) <= 6 and "cannot be read now: Input/output error" in reader.notes[0]
    assert reader.counts["errors"] > len(reader.notes)
    disk.calls = [""] * 10_000
    assert reader.settle(40.0) == ["1"]
    reader.close()


def test_a_handle_that_stays_stale_is_opened_again(tmp_path: Path) -> None:
    """What an NFS server says of a file that another machine deleted, for good."""
    log = tmp_path / "a.log"
    append(log, "1\n")
    reader = Reader(log)
    reader.quiet()
    stale = reader.follower.logs[str(log)].tail
    assert stale is not None

    class Stale(Disk):
        def info_of(self, raw: Any) -> Info:
            if raw is stale.file._raw:
                raise OSError(errno.ESTALE, "Stale file handle")
            return super().info_of(raw)

    stale.file._disk = Stale()
    append(log, "2\n")
    rotate(log)
    append(log, "3\n")
    assert reader.settle(60.0) == ["1", "2", "3"]
    assert reader.counts["lost"] == 0
    reader.close()


@pytest.mark.parametrize("pattern", ["a.log", "*.log"])
def test_a_log_may_appear_before_any_call(pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines on which it depends how the rest is read are learned too, whenever they come."""
    monkeypatch.setattr(streamsvm.io.follow, "REDISCOVER", 0.0)
    for call in range(1, 16):
        log = tmp_path / str(call) / "a.log"
        log.parent.mkdir()
        disk = Shaky(range(call, call + 1), lambda kind, log=log: append(log, "1\n2\n"))  # type: ignore[misc]
        source = LogSource([str(log.parent / pattern)], until_idle=0.03, poll=0.001, disk=disk)
        source.look(Marks(), lambda: False)
        for _ in source.first_lines():
            pass
        first = source.head(100)
        blocks = source.blocks(64, Room(), lambda: False, source.beginning)
        assert b"".join(bytes(block.buffer[: block.size]) for block in blocks) == b"1\n2\n" == (first or b"1\n2\n")
