"""Following logs at the edges: what is there at the first look, numbers that grow, renames in the middle of a look."""

import gzip
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from followed import WAIT, Reader, append, rotate
from test_follow_faults import Shaky, empty_folder, pack


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


def grow(log: Path, number: int) -> None:
    """Numbers that grow: the highest is the newest."""
    os.rename(log, f"{log}.{number}")


# The order of rotated files.


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("there", ["", "0\n"])
def test_ascending_names_after_a_first_look(log: Path, reading: Any, there: str, restarted: bool) -> None:
    append(log, there)
    reader = reading(log)
    reader.follower._discover()
    reader.follower.logs[str(log)].ready()  # it looks, and reads nothing
    reader.history.append((reader.follower.marks(), 0))
    if restarted:
        reader.restart()
    for number in (1, 2):
        append(log, f"{number}\n")
        grow(log, number)
    append(log, "3\n")
    assert reader.settle() == [*there.split(), "1", "2", "3"]


def test_ascending_names_after_those_before_the_first_look(log: Path, reading: Any) -> None:
    """The files that are known need not be read to tell in which direction numbers go."""
    for number in (1, 2):
        append(log, f"old {number}\n")
        grow(log, number)
    reader = reading(log)
    reader.round()
    for number in (3, 4, 5):
        append(log, f"{number}\n")
        grow(log, number)
    assert reader.settle() == ["3", "4", "5"]


def test_two_files_whose_times_are_far_apart(log: Path, reading: Any) -> None:
    """Nothing is known, but that one file was written to for long after the other."""
    reader = reading(log)
    reader.round()
    reader.history.append((reader.follower.marks(), 0))
    reader.restart()
    for number in (1, 2):
        append(log, f"{number}\n")
        os.utime(log, (1000.0 + 60 * number, 1000.0 + 60 * number))
        grow(log, number)
    append(log, "3\n")
    assert reader.settle() == ["1", "2", "3"]


@pytest.mark.parametrize("name", ["app-2026-11-17-{}.log", "app.log.20261117.{}", "app.log-2026-11-17-{}"])
def test_dates_with_counters(tmp_path: Path, reading: Any, name: str) -> None:
    log = tmp_path / "app.log"
    reader = reading(log)
    append(log, "0\n")
    reader.settle()
    for number in range(8, 13):
        os.rename(log, tmp_path / name.format(number))
        append(log, f"{number}\n")
    assert reader.settle() == ["0", *map(str, range(8, 13))]


def test_many_rotations_within_the_wait_for_late_lines(log: Path, reading: Any) -> None:
    """A hundred files are kept, which is as many as there are in the time that each of them is waited for."""
    reader, written = reading(log), 0
    append(log, "0\n")
    reader.round()
    for _ in range(60):
        for _ in range(5):
            rotate(log, keep=100)
            Path(f"{log}.101").unlink(missing_ok=True)
            written += 1
            append(log, f"{written}\n")
        reader.now += 0.25
        reader.round()
    assert reader.settle(20 * WAIT) == [str(number) for number in range(written + 1)]
    assert reader.counts["lost"] == 0


# The first look.


@pytest.mark.parametrize("there", [None, ""])
@pytest.mark.parametrize("restarted", [False, True])
def test_what_appears_after_the_first_look_is_read(log: Path, reading: Any, there: str | None, restarted: bool) -> None:
    append(Path(f"{log}.1"), "old\n")
    if there is not None:
        append(log, there)
    reader = reading(log)
    reader.round()
    reader.history.append((reader.follower.marks(), 0))
    if restarted:
        reader.restart()
    append(log, "1\n")
    rotate(log)
    append(log, "2\n")
    assert reader.settle() == ["1", "2"]


def test_the_first_file_is_renamed_before_it_is_seen(log: Path, reading: Any) -> None:
    reader = reading(log)
    reader.round()
    append(log, "1\n")
    rotate(log)
    assert reader.settle() == ["1"]
    append(log, "2\n")
    assert reader.settle() == ["1", "2"]


# A look is not one moment.


def steps_of_a_rotation(log: Path, text: str, keep: int, ascending: int) -> Iterator[None]:
    """The log as logrotate leaves it after each of its steps; if `ascending`, under a number of its own."""
    if not ascending:
        for number in range(keep, 0, -1):
            if os.path.exists(f"{log}.{number}"):
                os.rename(f"{log}.{number}", f"{log}.{number + 1}")
                yield
    os.rename(log, f"{log}.{ascending or 1}")
    yield
    append(log, text)
    yield


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("pace", [1, 2, 3, 7])
@pytest.mark.parametrize("missed", [0, 2, 6])
def test_renames_between_any_two_calls(missed: int, pace: int, ascending: bool) -> None:
    """Two rotations, of which each step comes after so many calls of the reader, begun at every call."""

    def play(folder: Path, first: int) -> tuple[Reader, list[str], int]:
        log, written = folder / "a.log", [str(number) for number in range(1, missed + 2)]

        def rotations() -> Iterator[None]:
            for _ in range(3):
                written.append(str(len(written) + 1))
                yield from steps_of_a_rotation(log, f"{written[-1]}\n", 60, len(written) - 1 if ascending else 0)

        steps = rotations()
        append(log, "1\n")
        reader = Reader(log, disk=None)
        reader.round()
        disk = reader.disk = Shaky(range(first, 100_000 if first else 0, pace), lambda kind: next(steps, None))
        reader.restart()
        for number in range(2, missed + 2):
            list(steps_of_a_rotation(log, f"{number}\n", 60, number - 1 if ascending else 0))
        reader.settle(2 * WAIT)
        calls = len(disk.calls)
        list(steps)
        reader.settle(4 * WAIT)
        reader.close()
        return reader, written, calls

    with empty_folder() as folder:
        calls = play(folder, 0)[2]
    for first in range(1, calls + 1):
        with empty_folder() as folder:
            reader, written, _ = play(folder, first)
        assert reader.lines == written, (first, reader.lines)
        assert reader.counts["lost"] == reader.counts["truncated"] == 0


# Copies.


@pytest.mark.parametrize("times", [1, 2, 5])
def test_copied_and_truncated_more_than_once_between_two_looks(log: Path, reading: Any, times: int) -> None:
    reader = reading(log)
    append(log, "0\n")
    reader.settle()
    expected = ["0"]
    for number in range(1, times + 1):
        append(log, f"{number}\n{number}b\n")
        expected += [f"{number}", f"{number}b"]
        copied_and_truncated(log)
    append(log, "last\n")
    assert reader.settle() == [*expected, "last"]


def copied_and_truncated(log: Path) -> None:
    for number in range(20, 0, -1):
        if os.path.exists(f"{log}.{number}"):
            os.rename(f"{log}.{number}", f"{log}.{number + 1}")
    shutil.copy(log, f"{log}.1")
    os.truncate(log, 0)


def test_copies_every_second_lose_nothing_and_nobody_is_reassured(log: Path, reading: Any) -> None:
    """The wait for late lines is not for copies, or the log would be truncated before its turn comes."""
    reader, expected = reading(log), []
    for number in range(40):
        for part in "abcd":
            append(log, f"{number}{part}\n")
            expected.append(f"{number}{part}")
            reader.now += 0.25
            if part != "d":
                reader.round()
        copied_and_truncated(log)
    assert reader.settle() == expected
    assert reader.counts["truncated"] > 30
    assert all("but for lines that came while that was made" in note for note in reader.notes)


# Patterns with compressed files.


def rotate_packed(log: Path, name: Callable[[int], str]) -> None:
    """The newest rotated file stays as it is until the next rotation, as with delaycompress."""
    for number in range(9, 0, -1):
        for ending in (".gz", ""):
            if os.path.exists(f"{log}.{number}{ending}"):
                os.rename(f"{log}.{number}{ending}", f"{log}.{number + 1}{ending}")
    if os.path.exists(f"{log}.2"):
        pack(Path(f"{log}.2"))
    os.rename(log, name(1))


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("rotations", [1, 2, 3])
def test_a_compressed_name_passes_to_a_file_that_is_not_read(
    log: Path, reading: Any, rotations: int, restarts: bool
) -> None:
    reader = reading(f"{log}*", compressed=True)
    expected: list[str] = []
    for turn in range(3):
        for _ in range(rotations if turn else 0):
            rotate_packed(log, lambda number: f"{log}.{number}")
            expected.append(f"line {len(expected)}")
            append(log, f"{expected[-1]}\n")
        if not turn:
            expected.append("line 0")
            append(log, "line 0\n")
        reader.settle(6 * WAIT)
        assert sorted(reader.lines) == sorted(expected)
        if restarts:
            reader.restart()
    assert sorted(reader.settle(6 * WAIT)) == sorted(expected)


def test_a_compressed_file_takes_the_name_of_another(log: Path, reading: Any) -> None:
    Path(f"{log}.2.gz").write_bytes(gzip.compress(b"1\n"))
    append(log, "2\n")
    reader = reading(f"{log}*", compressed=True)
    assert sorted(reader.settle(6 * WAIT)) == ["1", "2"]
    os.rename(f"{log}.2.gz", f"{log}.3.gz")
    Path(f"{log}.2.gz").write_bytes(gzip.compress(b"0\n"))
    reader.restart()
    assert sorted(reader.settle(6 * WAIT)) == ["0", "1", "2"]
    reader.restart()
    assert sorted(reader.settle(6 * WAIT)) == ["0", "1", "2"]
