"""Following logs, case by case: what the contract says, each with the mishap that made it necessary."""

import gc
import gzip
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from followed import WAIT, Reader, Room, append, rotate
from signals import NEVER, SOON, stays, wait_for

from streamsvm.errors import ConfigError, DataError
from streamsvm.io.log_files import Disk, Info
from streamsvm.io.log_source import LogSource
from streamsvm.io.logs import Options
from streamsvm.io.marks import Marks


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "clicks.log"


@pytest.fixture
def reading() -> Iterator[Any]:
    made: list[Reader] = []

    def make(*patterns: Path | str, **options: Any) -> Reader:
        made.append(Reader(*patterns, **options))
        return made[-1]

    yield make
    for reader in made:
        reader.close()


def test_lines_come_as_they_are_written(log: Path, reading: Any) -> None:
    reader = reading(log)
    assert reader.settle() == []  # there is no such file yet
    append(log, "1\n2\n")
    reader.round()
    append(log, "3\n")
    assert reader.settle() == ["1", "2", "3"]


def test_only_whole_lines(log: Path, reading: Any) -> None:
    reader = reading(log)
    append(log, "1\n2")
    assert reader.settle() == ["1"]
    append(log, "2\n3")
    assert reader.settle() == ["1", "22"]
    assert reader.follower.lag == 1


def test_lines_longer_than_a_block(log: Path, reading: Any) -> None:
    reader = reading(log, block_size=8)
    append(log, "a" * 100 + "\nb\n" + "c" * 30)
    assert reader.settle() == ["a" * 100, "b"]
    append(log, "c\n")
    assert reader.settle() == ["a" * 100, "b", "c" * 31]


def test_a_line_without_end_is_passed_over(log: Path, reading: Any) -> None:
    reader = reading(log, block_size=8, max_line=50)
    append(log, "1\n" + "x" * 300)
    assert reader.settle() == ["1"]
    reader.restart()
    append(log, "x" * 300 + "\n2\n")
    assert reader.settle() == ["1", "2"]
    assert reader.counts["too_long"] == 1
    assert reader.origins[-1][2] == 3


def test_origins_have_place_and_line(log: Path, reading: Any) -> None:
    reader = reading(log, block_size=8)
    append(log, "one\ntwo\nthree\nfour\n")
    reader.settle()
    assert reader.origins == [(str(log), 0, 1), (str(log), 8, 3), (str(log), 14, 4)]
    reader.restart()
    append(log, "five\n")
    reader.settle()
    assert reader.origins[-1] == (str(log), 19, 5)


def test_a_renamed_file_is_finished_before_the_next(log: Path, reading: Any) -> None:
    reader = reading(log)
    append(log, "1\n")
    reader.round()
    with open(log, "a") as writer:
        rotate(log)
        append(log, "3\n")
        reader.round()
        writer.write("2\n")  # it has not noticed yet
        writer.flush()
        reader.now += WAIT - 1.0
        reader.round()
        assert reader.lines == ["1", "2"]
    assert reader.settle() == ["1", "2", "3"]
    append(log, "4\n")
    assert reader.settle() == ["1", "2", "3", "4"]
    assert reader.counts["files"] == 2


def test_two_rotations_between_two_looks(log: Path, reading: Any) -> None:
    reader = reading(log)
    append(log, "1\n")
    reader.round()
    for number in (2, 3, 4):
        rotate(log)
        append(log, f"{number}\n")
    assert reader.settle() == ["1", "2", "3", "4"]


def test_a_file_that_was_rotated_before_is_not_read(log: Path, reading: Any) -> None:
    append(log, "0\n")
    rotate(log)
    append(log, "1\n")
    reader = reading(log)
    reader.round()
    rotate(log)
    append(log, "2\n")
    assert reader.settle() == ["1", "2"]


@pytest.mark.parametrize("rotations", [1, 2, 3])
def test_rotated_while_stopped(log: Path, reading: Any, rotations: int) -> None:
    reader = reading(log)
    append(log, "1\n")
    reader.round()
    reader.restart()
    append(log, "2\n")
    for number in range(rotations):
        rotate(log)
        append(log, f"{number + 3}\n")
    expected = [str(number) for number in range(1, 3 + rotations)]
    assert reader.settle() == expected
    reader.restart()
    assert reader.settle() == expected
    assert reader.counts["lost"] == reader.counts["truncated"] == 0


def test_rotated_under_another_name_while_stopped(log: Path, reading: Any) -> None:
    reader = reading(log)
    append(log, "1\n")
    reader.round()
    reader.restart()
    append(log, "2\n")
    os.rename(log, log.with_name("old clicks"))
    append(log, "3\n")
    assert reader.settle() == ["1", "2", "3"]


def test_an_inode_that_is_used_again(log: Path, reading: Any) -> None:
    """Same inode, same header, longer than what was read: only the bytes before the mark tell that it is another."""
    reader = reading(log)
    append(log, "header\nfirst\n")
    reader.settle()
    reader.restart()
    inode = os.stat(log).st_ino
    with open(log, "r+") as file:  # as good as deleted and given the same inode
        file.write("header\nother\nlonger than before\n")
    assert os.stat(log).st_ino == inode
    assert reader.settle()[2:] == ["header", "other", "longer than before"]


def test_truncated(log: Path, reading: Any) -> None:
    reader = reading(log)
    append(log, "1\n2\n3\n")
    reader.settle()
    os.truncate(log, 0)
    append(log, "4\n")
    assert reader.settle() == ["1", "2", "3", "4"]
    assert reader.counts["truncated"] == 1
    assert "truncated" in reader.notes[-1]


def test_written_anew_and_longer(log: Path, reading: Any) -> None:
    reader = reading(log)
    append(log, "1\n2\n")
    reader.settle()
    log.write_text("a\nb\nc\n")
    assert reader.settle() == ["1", "2", "a", "b", "c"]
    assert reader.counts["truncated"] == 1


@pytest.mark.parametrize("stopped", [False, True])
def test_the_rest_comes_from_the_copy_of_copytruncate(log: Path, reading: Any, stopped: bool) -> None:
    reader = reading(log)
    append(log, "1\n2\n")
    reader.round()
    if stopped:
        reader.restart()
    append(log, "3\n")
    shutil.copy(log, f"{log}.1")
    os.truncate(log, 0)
    append(log, "4\n")
    assert reader.settle() == ["1", "2", "3", "4"]
    rotate(log)
    append(log, "5\n")
    assert reader.settle() == ["1", "2", "3", "4", "5"]


def test_deleted_while_stopped_is_counted(log: Path, reading: Any) -> None:
    reader = reading(log)
    append(log, "1\n")
    reader.round()
    reader.restart()
    log.unlink()
    append(log, "2\n")
    assert reader.settle() == ["1", "2"]
    assert reader.counts["lost"] == 1


def test_deleted_while_it_is_read(log: Path, reading: Any) -> None:
    reader = reading(log)
    append(log, "1\n")
    reader.round()
    append(log, "2\n")
    log.unlink()
    append(log, "3\n")
    assert reader.settle() == ["1", "2", "3"]
    assert reader.counts["lost"] == 0


def test_a_last_line_without_end_is_counted(log: Path, reading: Any) -> None:
    reader = reading(log)
    append(log, "1\n2")
    reader.round()
    rotate(log)
    append(log, "3\n")
    assert reader.settle() == ["1", "3"]
    assert reader.counts["unfinished"] == 1


def test_lines_that_come_after_the_wait_are_not_lost(log: Path, reading: Any) -> None:
    reader = reading(log)
    append(log, "1\n")
    reader.round()
    rotate(log)
    append(log, "2\n")
    reader.settle()
    append(Path(f"{log}.1"), "late\n")
    rotate(log)
    append(log, "3\n")
    assert sorted(reader.settle()) == ["1", "2", "3", "late"]


def test_a_checkpoint_in_the_middle(log: Path, reading: Any) -> None:
    reader = reading(log, block_size=4)
    append(log, "".join(f"{number}\n" for number in range(100)))
    reader.round(most=7)
    reader.restart()
    assert reader.lines == [str(number) for number in range(14)][: len(reader.lines)]
    assert reader.settle() == [str(number) for number in range(100)]
    reader.restart(back=20)
    assert reader.settle() == [str(number) for number in range(100)]


def test_a_pattern_finds_files_oldest_first(tmp_path: Path, reading: Any) -> None:
    for age, name in enumerate(["c", "a", "b"]):
        append(tmp_path / f"{name}.log", f"{name}\n")
        os.utime(tmp_path / f"{name}.log", (1000 + age, 1000 + age))
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(b"packed\n"))
    reader = reading(tmp_path / "*.log*")
    assert reader.settle() == ["c", "a", "b"]
    append(tmp_path / "d.log", "d\n")
    append(tmp_path / "a.log", "a2\n")
    assert sorted(reader.settle()[3:]) == ["a2", "d"]
    reader.restart()
    append(tmp_path / "b.log", "b2\n")
    assert reader.settle()[5:] == ["b2"]


def test_a_pattern_that_matches_rotated_files(log: Path, reading: Any) -> None:
    reader = reading(f"{log}*")
    append(log, "1\n")
    reader.settle()
    for number in (2, 3, 4):
        rotate(log)
        append(log, f"{number}\n")
        reader.settle()
    assert reader.lines == ["1", "2", "3", "4"]
    reader.restart()
    rotate(log)
    append(log, "5\n")
    assert reader.settle() == ["1", "2", "3", "4", "5"]
    append(Path(f"{log}.2"), "late\n")
    assert reader.settle()[5:] == ["late"]


def test_two_files_alike_are_two_files(tmp_path: Path, reading: Any) -> None:
    append(tmp_path / "a.log", "same\n")
    reader = reading(tmp_path / "*.log")
    reader.settle()
    append(tmp_path / "b.log", "same\n")
    assert reader.settle() == ["same", "same"]


def test_a_directory_is_all_its_files(tmp_path: Path, reading: Any) -> None:
    append(tmp_path / "a", "1\n")
    append(tmp_path / ".hidden", "no\n")
    (tmp_path / "inside").mkdir()
    reader = reading(tmp_path)
    append(tmp_path / "b", "2\n")
    assert sorted(reader.settle()) == ["1", "2"]


def pack(path: Path) -> None:
    """What logrotate does to old files."""
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    info = path.stat()
    os.utime(f"{path}.gz", ns=(info.st_atime_ns, info.st_mtime_ns))
    path.unlink()


@pytest.mark.parametrize("pattern", ["clicks.log", "clicks.log*"])
def test_compressed_files_are_not_learned_twice(log: Path, reading: Any, pattern: str) -> None:
    reader = reading(log.with_name(pattern), compressed=True)
    append(log, "1\n")
    reader.settle()
    rotate(log)
    append(log, "2\n")
    reader.settle()
    pack(Path(f"{log}.1"))
    assert reader.settle() == ["1", "2"]
    reader.restart()
    assert reader.settle() == ["1", "2"]


@pytest.mark.parametrize("pattern", ["clicks.log", "clicks.log*"])
def test_compressed_while_stopped(log: Path, reading: Any, pattern: str) -> None:
    reader = reading(log.with_name(pattern), compressed=True)
    append(log, "1\n")
    reader.round()
    reader.restart()
    append(log, "2\n")
    rotate(log)
    pack(Path(f"{log}.1"))
    append(log, "3\n")
    assert sorted(reader.settle(60.0)) == ["1", "2", "3"]
    assert reader.counts["lost"] == 0
    if pattern == "clicks.log":
        assert reader.lines == ["1", "2", "3"]


def test_a_link_that_is_turned(tmp_path: Path, reading: Any) -> None:
    link = tmp_path / "now.log"
    append(tmp_path / "day1", "1\n")
    link.symlink_to("day1")
    reader = reading(link)
    reader.round()
    append(tmp_path / "day1", "2\n")
    append(tmp_path / "day2", "3\n")
    (tmp_path / "new").symlink_to("day2")
    os.replace(tmp_path / "new", link)
    assert reader.settle() == ["1", "2", "3"]


def test_many_files_do_not_need_many_descriptors(tmp_path: Path, reading: Any) -> None:
    for number in range(300):
        append(tmp_path / f"{number:03}.log", f"{number}\n")
    reader = reading(tmp_path / "*.log")
    reader.settle()
    assert sum(log.tail is not None for log in reader.follower.logs.values()) < 200
    append(tmp_path / "299.log", "more\n")
    assert reader.settle()[300:] == ["more"]
    reader.restart()
    append(tmp_path / "007.log", "again\n")
    assert reader.settle()[301:] == ["again"]


def test_marks_hold_no_text(log: Path, reading: Any) -> None:
    reader = reading(log)
    append(log, "secret words\n" * 3)
    reader.settle()
    assert "secret" not in str(reader.follower.marks())


def test_marks_of_files_that_are_gone_are_forgotten(log: Path, reading: Any) -> None:
    reader = reading(log)
    for number in range(200):
        append(log, f"{number}\n")
        reader.settle(1.0)
        rotate(log, keep=3)
        Path(f"{log}.4").unlink(missing_ok=True)
        reader.settle(7.0)
    assert reader.lines == [str(number) for number in range(200)]
    assert len(reader.follower.marks().files) < 8


@pytest.mark.parametrize("name", ["-", "s3://bucket/clicks.log", "clicks.log.gz", "/dev/null"])
def test_what_cannot_be_followed_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        LogSource([name])


def test_a_line_that_is_too_long_is_an_error_if_bad_rows_are(log: Path) -> None:
    append(log, "x" * 100 + "\n")
    source = LogSource([str(log)], max_line=10, skip_long=False)
    room = Room()
    with pytest.raises(DataError, match=r"clicks.log:1: the line is longer than 10 bytes"):
        list(source.blocks(16, room, lambda: False, Marks()))
    assert room.taken == 0


# What a hostile reviewer, the state machine (test_follow_machine.py) and failing disks (test_follow_faults.py) found.


def test_a_slow_writer_does_not_change_the_order(log: Path, reading: Any) -> None:
    """The file in the middle was last written before the one that was renamed earlier."""
    reader = reading(log)
    append(log, "1\n")
    reader.round()
    reader.restart()
    for number in (2, 3, 4):
        rotate(log)
        append(log, f"{number}\n")
        os.utime(log, ns=(10**18, 10**18))
    append(Path(f"{log}.3"), "1b\n")
    append(Path(f"{log}.2"), "2b\n")
    assert reader.settle() == ["1", "1b", "2", "2b", "3", "4"]


def test_numbers_may_also_grow(log: Path, reading: Any) -> None:
    reader = reading(log)
    append(log, "0\n")
    reader.round()
    reader.restart()
    for number in range(1, 6):
        os.rename(log, f"{log}.{number}")
        append(log, f"{number}\n")
        os.utime(log, ns=(10**18 + number, 10**18 + number))
    assert reader.settle() == ["0", "1", "2", "3", "4", "5"]


def test_files_are_found_though_none_has_the_name(log: Path, reading: Any) -> None:
    reader = reading(log)
    append(log, "1\n")
    reader.round()
    for number in (2, 3):
        rotate(log)
        append(log, f"{number}\n")
    rotate(log)
    assert reader.settle() == ["1", "2", "3"]


def test_nothing_was_read_yet_when_it_was_rotated(log: Path, reading: Any) -> None:
    reader = reading(log)
    append(log, "1")
    reader.settle(1.0)
    reader.restart()
    append(log, "1\n")
    rotate(log)
    append(log, "2\n")
    assert reader.settle() == ["11", "2"]
    assert reader.counts["lost"] == 0


def test_truncated_and_rotated_between_two_looks(log: Path, reading: Any) -> None:
    reader = reading(log)
    append(log, "1\n2\n")
    reader.round()
    append(log, "3\n")
    shutil.copy(log, f"{log}.1")
    os.truncate(log, 0)
    rotate(log)
    append(log, "4\n")
    assert reader.settle() == ["1", "2", "3", "4"]


def test_a_copy_in_a_pattern_that_was_truncated_while_stopped(log: Path, reading: Any) -> None:
    reader = reading(f"{log}*")
    append(log, "1\n2\n")
    reader.settle()
    reader.restart()
    append(log, "3\n")
    shutil.copy(log, f"{log}.1")
    os.truncate(log, 0)
    append(log, "4\n")
    assert sorted(reader.settle()) == ["1", "2", "3", "4"]


def test_compressed_while_it_waits_for_its_turn(log: Path, reading: Any) -> None:
    """Its plain file is open and not read yet, so the compressed one is not known by what was read."""
    reader = reading(log, compressed=True)
    append(log, "1\n")
    reader.round()
    for number in (2, 3):
        rotate(log)
        append(log, f"{number}\n")
    reader.round()
    pack(Path(f"{log}.1"))
    os.rename(f"{log}.2", f"{log}.3")
    os.rename(f"{log}.1.gz", f"{log}.2.gz")
    os.rename(log, f"{log}.1")
    append(log, "4\n")
    reader.round()
    reader.restart()
    assert reader.settle() == ["1", "2", "3", "4"]


def test_compressed_files_that_are_known_are_not_waited_for(log: Path, reading: Any) -> None:
    reader = reading(f"{log}*", compressed=True)
    append(log, "1\n")
    reader.settle()
    rotate(log)
    pack(Path(f"{log}.1"))
    assert reader.settle(60.0) == ["1"]
    assert reader.follower.settled


def test_a_compressed_file_that_is_damaged_stops_nothing(log: Path, reading: Any) -> None:
    reader = reading(log, compressed=True)
    append(log, "1\n")
    reader.round()
    Path(f"{log}.2.gz").write_bytes(gzip.compress(b"0\n" * 1000)[:-12])
    rotate(log, keep=1)
    append(log, "2\n")
    assert reader.settle() == ["1", "2"]
    assert reader.counts["errors"] > 0


def test_a_link_to_nowhere_stops_nothing(log: Path, reading: Any) -> None:
    Path(f"{log}.9").symlink_to("nowhere")
    Path(f"{log}.8").symlink_to(f"{log.name}.8")  # to itself
    reader = reading(log)
    append(log, "1\n")
    reader.round()
    rotate(log)
    append(log, "2\n")
    assert reader.settle() == ["1", "2"]


def test_two_names_of_one_file(tmp_path: Path, reading: Any) -> None:
    append(tmp_path / "a.log", "1\n")
    os.link(tmp_path / "a.log", tmp_path / "b.log")
    os.link(tmp_path / "a.log", tmp_path / "a.log.1")
    (tmp_path / "c.log").symlink_to("a.log")
    for patterns in (["*.log"], ["*.log*"], ["a.log", "b.log"], ["b.log", "*.log"], ["a.log"]):
        reader = reading(*(tmp_path / pattern for pattern in patterns))
        assert reader.settle() == ["1"]
        reader.restart()
        assert reader.settle() == ["1"]


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_something_else_has_the_name_for_a_while(log: Path, reading: Any, make: Any) -> None:
    reader = reading(log)
    append(log, "1\n")
    reader.round()
    append(log, "2\n")
    rotate(log)
    make(log)
    assert reader.settle() == ["1", "2"]
    log.rmdir() if log.is_dir() else log.unlink()
    append(log, "3\n")
    assert reader.settle() == ["1", "2", "3"]


def test_a_name_with_brackets_is_a_name(tmp_path: Path, reading: Any) -> None:
    log = tmp_path / "a[1].log"
    reader = reading(log)
    append(log, "1\n")
    reader.settle()
    rotate(log)
    reader.restart()  # now there is no such file
    append(log, "2\n")
    assert reader.settle() == ["1", "2"]


@pytest.mark.parametrize("text", ["", "\n", "\n\n\n", "1\r\n2\r\n", "\r\n"])
def test_odd_files(log: Path, reading: Any, text: str) -> None:
    reader = reading(log, block_size=2)
    append(log, text)
    expected = list(reader.settle())
    assert "".join(line + "\n" for line in expected).count("\n") == text.count("\n")
    rotate(log)
    append(log, "3\n")
    assert reader.settle() == [*expected, "3"]


def test_many_files_that_wait_do_not_need_many_descriptors(log: Path, reading: Any) -> None:
    reader = reading(log)
    append(log, "0\n")
    reader.round()
    reader.restart()
    for number in range(1, 60):
        rotate(log, keep=300)
        append(log, f"{number}\n")
    before = len(os.listdir("/proc/self/fd"))
    while reader.round(most=1):
        reader.now += 1.0
        assert len(os.listdir("/proc/self/fd")) - before < 25
    assert reader.settle(80.0) == [str(number) for number in range(60)]


def test_a_device_with_another_number(log: Path, reading: Any) -> None:
    """What a mount may get when the machine starts again."""
    reader = reading(log)
    for number in (1, 2):
        append(log, f"{number}\n")
        reader.settle()
        rotate(log)
    append(log, "3\n")
    reader.settle()
    for patterns in ([str(log)], [f"{log}*"]):
        reader = reading(*patterns)
        reader.settle()
        expected = list(reader.lines)

        class Moved(Disk):
            def info(self, path: str) -> Info | None:
                info = super().info(path)
                return info and info._replace(device=info.device + 1)

            def info_of(self, raw: Any) -> Info:
                info = super().info_of(raw)
                return info._replace(device=info.device + 1)

        reader.disk = Moved()
        reader.restart()
        rotate(log)
        append(log, "4\n")
        assert reader.settle() == [*expected, "4"]


def test_one_file_that_may_not_be_read_does_not_stop_the_others(tmp_path: Path, reading: Any) -> None:
    class Refusing(Disk):
        def open(self, path: str) -> Any:
            if path.endswith("a.log"):
                raise PermissionError(13, "Permission denied", path)
            return super().open(path)

    for name in "abc":
        append(tmp_path / f"{name}.log", f"{name}\n")
    reader = reading(tmp_path / "*.log", disk=Refusing())
    assert sorted(reader.settle(60.0)) == ["b", "c"]
    assert 1 <= len(reader.notes) <= 2 and "a.log: cannot be read now: Permission denied" in reader.notes[0]


@pytest.mark.parametrize("pattern", ["clicks.log", "clicks.log*"])
def test_a_mount_that_is_gone_for_hours(tmp_path: Path, reading: Any, pattern: str) -> None:
    folder, away = tmp_path / "mount", tmp_path / "away"
    folder.mkdir()
    log = folder / "clicks.log"
    reader = reading(folder / pattern)
    append(log, "1\n")
    reader.settle()
    rotate(log)
    append(log, "2\n")
    reader.settle()
    folder.rename(away)
    folder.mkdir()
    for _ in range(20):
        reader.now += 600.0
        reader.settle(2.0)
    folder.rmdir()
    away.rename(folder)
    append(log, "3\n")
    assert reader.settle() == ["1", "2", "3"]


@pytest.mark.parametrize(("files", "most"), [(1, 2), (100, 200)])
def test_a_round_in_which_nothing_happens_is_cheap(tmp_path: Path, reading: Any, files: int, most: int) -> None:
    class Counting(Disk):
        calls = 0

        def info(self, path: str) -> Info | None:
            self.calls += 1
            return super().info(path)

        def info_of(self, raw: Any) -> Info:
            self.calls += 1
            return super().info_of(raw)

        def open(self, path: str) -> Any:
            self.calls += 1
            return super().open(path)

        def names(self, directory: str) -> list[str]:
            self.calls += 1
            return super().names(directory)

        def read(self, raw: Any, offset: int, view: memoryview) -> int:
            self.calls += 1
            return super().read(raw, offset, view)

    for number in range(files):
        append(tmp_path / f"{number}.log", f"{number}\n")
    disk = Counting()
    reader = reading(tmp_path / ("0.log" if files == 1 else "*.log"), disk=disk)
    reader.settle()
    disk.calls = 0
    reader.round()
    assert disk.calls <= most


# The source, with real threads and time.


class Kept:
    """Buffers that are counted."""

    def __init__(self) -> None:
        self.out: set[int] = set()

    def take(self, size: int) -> bytearray:
        buffer = bytearray(size + 1)
        self._all = [*getattr(self, "_all", []), buffer]  # or its id would be given again
        self.out.add(id(buffer))
        return buffer

    def give_back(self, buffer: bytearray) -> None:
        self.out.remove(id(buffer))


class Slow(Disk):
    """Every answer takes a while, and is noted."""

    asked = 0

    def matching(self, pattern: str) -> list[str]:
        self.asked += 1
        return super().matching(pattern)

    def read(self, raw: Any, offset: int, view: memoryview) -> int:
        self.asked += 1
        time.sleep(0.01)
        return super().read(raw, offset, view[:100])


PHASES = {
    "no file": "",
    "nothing new": "1\n",
    "a last line without end": "1\n2",
    "many lines": "1\n" * 1_000_000,  # minutes, at that pace
    "a line that is too long": "x" * 1_500_000,
    "a compressed file": "packed",
}


@pytest.mark.parametrize("read", ["blocks", "first_lines"])
@pytest.mark.parametrize("phase", PHASES)
def test_a_stop_is_noticed_at_once(tmp_path: Path, phase: str, read: str) -> None:
    if phase == "a compressed file":
        (tmp_path / "a.log.gz").write_bytes(gzip.compress(os.urandom(1_500_000)))
    elif phase != "no file":
        append(tmp_path / "a.log", PHASES[phase])
    disk = Slow()
    options = Options(0.0, compressed=True)
    source = LogSource([str(tmp_path / "*.log*")], options, max_line=1000, poll=NEVER, disk=disk)
    stop, buffers = threading.Event(), Kept()

    def work() -> None:
        if read == "first_lines":
            source.look(Marks(), stop.is_set)
            for _ in source.first_lines():
                pass
            source.close()
            return
        for block in source.blocks(500, buffers, stop.is_set):
            buffers.give_back(block.buffer)

    gc.collect()  # or what other tests have left would be closed meanwhile
    before = len(os.listdir("/proc/self/fd"))
    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: disk.asked)
    stays(thread.is_alive)  # until it waits, where there is nothing to read; first lines may be found by then
    stop.set()
    thread.join(SOON)
    assert not thread.is_alive()
    assert not buffers.out
    assert len(os.listdir("/proc/self/fd")) <= before


def test_reading_ends_when_nothing_comes(log: Path) -> None:
    append(log, "1\n2\n3")
    notes: list[str] = []
    source = LogSource([str(log)], until_idle=0.1, poll=0.01, note=notes.append)
    source.look(Marks(), lambda: False)
    assert max(source.first_lines()) == 2
    assert source.head(100) == b"1\n2\n" and source.head(2) == b"1\n"
    buffers, text = Kept(), b""
    for block in source.blocks(64, buffers, lambda: False, source.beginning):
        text += bytes(block.buffer[: block.size])
        if block.size:
            assert source.head(2, block.part) == b"1\n"
        last = block.after
        buffers.give_back(block.buffer)
    assert text == b"1\n2\n" and not buffers.out
    assert notes == [f"{log}: the last line has no end yet, and is not learned"]
    append(log, "\n")
    again = list(source.blocks(64, Kept(), lambda: False, source.position_of(json.loads(json.dumps(last)))))
    assert b"".join(bytes(block.buffer[: block.size]) for block in again) == b"3\n"


@pytest.mark.parametrize("differs", ["before the mark", "at the beginning"])
def test_one_hash_alone_does_not_make_a_file(log: Path, reading: Any, differs: str) -> None:
    """Files longer than what is hashed: with an equal header, or with equal lines before the mark."""
    header, rest = "".join(f"header {number}\n" for number in range(300)), "same\n" * 500
    old, new = (
        (header + "first\n", header + "other\n") if differs == "before the mark" else ("1\n" + rest, "2\n" + rest)
    )
    reader = reading(log)
    append(log, old)
    reader.settle()
    reader.restart()
    with open(log, "r+") as file:  # as good as deleted and given the same inode
        file.write(f"{new}more\n")
    assert reader.settle()[len(old.splitlines()) :] == [*new.splitlines(), "more"]


@pytest.mark.parametrize("content", ["", "no end"])
def test_many_rotated_files_without_a_line(log: Path, reading: Any, content: str) -> None:
    """Logs that are rotated although nothing happens: their files must not stand before the others for ever."""
    reader = reading(log)
    append(log, "1\n")
    reader.settle()
    for _ in range(20):
        rotate(log, keep=50)
        append(log, content)
    rotate(log, keep=50)
    append(log, "2\n")
    assert reader.settle(300.0) == ["1", "2"]
    files = reader.counts["files"]
    rotate(log, keep=50)
    append(log, "3\n")
    assert reader.settle(300.0) == ["1", "2", "3"]
    assert reader.counts["files"] <= files + 1
