"""Checkpoint files: whatever fails and whatever is damaged, a sound one is there, and no other is ever used."""

import errno
import json
import os
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import faults
import numpy as np
import pytest

from streamsvm.errors import ModelError, SourceError
from streamsvm.io import generations, tensors
from streamsvm.io.generations import CHECKPOINT, Generations, read_newest


def no_note(text: str) -> None:
    raise AssertionError(text)


def small(seed: int) -> tuple[dict[str, str], dict[str, Any]]:
    return {"seed": str(seed)}, {"a": np.arange(3.0) + seed, "b": np.array([seed, 7], np.float32)}


def filled(place: Path, count: int) -> Generations:
    """A directory in which so many checkpoints were written."""
    files = Generations(str(place))
    for seed in range(count):
        files.write(*small(seed))
    return files


def names(place: Path) -> list[str]:
    return sorted(name for name in os.listdir(place) if not name.startswith("."))


@pytest.fixture(autouse=True)
def cache_directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of buckets are kept here."""
    monkeypatch.setenv("STREAMSVM_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


# A file system that fails.


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> str:
    """faults.c, compiled."""
    if not sys.platform.startswith("linux"):
        pytest.skip("LD_PRELOAD as on Linux is needed")
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler (cc)")
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    source = Path(faults.__file__).with_suffix(".c")
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(library), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return str(library)


@pytest.fixture(scope="module")
def sweep(shim: str) -> Any:
    """What faults.py reports: every kind of fault at every call."""
    with tempfile.TemporaryDirectory(dir=faults.MEMORY) as directory:
        done = subprocess.run(
            [sys.executable, faults.__file__, shim, directory],
            env={**os.environ, "LD_PRELOAD": shim, "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def verbs(calls: list[str]) -> list[str]:
    """The calls with P for the file while it is written, N for its final name and O for that of the oldest."""
    known = {r"\.checkpoint-00000002\.\S+\.part": "P", "checkpoint-00000002.safetensors": "N"}
    known |= {"checkpoint-00000000.safetensors": "O"}
    shown = []
    for call in calls:
        verb, name, _ = call.split(" ")
        shown.append(f"{verb} {next((short for long, short in known.items() if re.fullmatch(long, name)), name)}")
    return shown


def test_a_file_is_on_disk_before_it_has_its_name_and_the_oldest_goes_last(sweep: Any) -> None:
    order = r"(mkdir \. )?create P( write P)+ fsync P close P rename N open \. fsync \. close \. (unlink P )?unlink O"
    assert re.fullmatch(order, " ".join(verbs(sweep["calls"])))
    assert sum(call.startswith("write") for call in sweep["calls"]) >= 4


def test_the_process_under_faults_is_light(sweep: Any) -> None:
    assert sweep["numba"] == []


@pytest.mark.parametrize("kind", faults.KINDS)
def test_every_call_is_hit(sweep: Any, kind: str) -> None:
    calls = sweep["calls"]
    hit = [case["at"] for case in sweep["cases"] if case["kind"] == kind and case["hits"]]
    only_writes = kind.startswith("short") or kind == "end halfway"
    assert hit == [at for at, call in enumerate(calls, 1) if call.startswith("write") or not only_writes]


@pytest.mark.parametrize("kind", faults.KINDS)
def test_after_any_fault_the_new_checkpoint_or_the_one_before_it_is_there(sweep: Any, kind: str) -> None:
    for case in (case for case in sweep["cases"] if case["kind"] == kind):
        outcome = case["outcome"].partition(":")[0]
        assert outcome in ("written", "SourceError", "ended"), case
        assert (outcome == "ended") == (kind.startswith("end") and case["hits"] == 1), case
        seen = case.get("meanwhile", case["found"])  # before it tries again
        assert seen["number"] == seen["seed"] and seen["number"] in (1, 2) and seen["notes"] == [], case
        assert seen["sound"][-2:] == [seen["number"] - 1, seen["number"]], case
        assert outcome != "written" or seen["number"] == 2, case


@pytest.mark.parametrize("kind", faults.KINDS)
def test_after_any_fault_the_next_attempt_succeeds_and_tidies_up(sweep: Any, kind: str) -> None:
    for case in (case for case in sweep["cases"] if case["kind"] == kind):
        if not case["outcome"].startswith(("written", "ended")):
            assert case["again"] == "written" and case["found"]["seed"] == 3 and len(case["found"]["sound"]) == 2, case
        assert case["next"] == "written" and case["finally"]["seed"] == 4, case
        newest = case["found"]["number"] + 1
        assert case["finally"]["number"] == newest and case["finally"]["sound"] == [newest - 1, newest], case
        kept = [f"checkpoint-{number:08d}.safetensors" for number in (newest - 1, newest)]
        assert case["names"] == [".lock", *kept], case


@pytest.mark.parametrize("kind", ["EIO once", "ENOSPC once", "EROFS once", "EACCES once"])
def test_what_fails_before_the_checkpoint_is_safe_is_reported(sweep: Any, kind: str) -> None:
    for call, case in zip(verbs(sweep["calls"]), (c for c in sweep["cases"] if c["kind"] == kind), strict=False):
        if call in ("create P", "write P", "fsync P", "close P", "rename N", "open .", "fsync ."):
            assert case["outcome"].startswith("SourceError: ") and "cannot write: " in case["outcome"], (call, case)


def test_killed_writers_leave_something_to_tidy_up(sweep: Any) -> None:
    assert any(case["parts"] for case in sweep["cases"])


def test_what_is_left_behind_in_vain_does_not_pile_up(sweep: Any) -> None:
    """Only a process that ended, or could not remove anything any more, leaves half a file."""
    for case in sweep["cases"]:
        if case["parts"]:
            assert case["kind"].startswith("end") or case["kind"].endswith("from here"), case


# Power cuts: what has not been synced may be on the disk, or not, or half of it.


def disks(calls: list[str], whole: bytes) -> Iterator[tuple[int, list[str], bytes]]:
    """After each call, all that can be on the disk: renames and removals that are done, and what the new file holds."""
    synced, waiting, certain = False, [], []
    for number, call in enumerate(verbs(calls), 1):
        synced |= call == "fsync P"
        if call in ("rename N", "unlink O"):
            waiting.append(call)
        if call == "fsync .":
            certain, waiting = certain + waiting, []
        for done in chain.from_iterable(combinations(waiting, size) for size in range(len(waiting) + 1)):
            for content in [whole] if synced else [whole, whole[: len(whole) // 2], b""]:
                yield number, [*certain, *done], content


def test_a_power_cut_at_any_moment(sweep: Any, tmp_path: Path) -> None:
    filled(tmp_path / "good", 2)
    third = tmp_path / "third"
    shutil.copytree(tmp_path / "good", third)
    files = Generations(str(third))
    files.newest(no_note)
    files.write(*small(2))
    whole = Path(files.url(2)).read_bytes()
    for number, done, content in disks(sweep["calls"], whole):
        place = tmp_path / "disk"
        shutil.copytree(tmp_path / "good", place)
        if "rename N" in done:
            (place / "checkpoint-00000002.safetensors").write_bytes(content)
        if "unlink O" in done:
            (place / "checkpoint-00000000.safetensors").unlink()
        notes: list[str] = []
        newest = Generations(str(place)).newest(notes.append)
        assert newest is not None and newest.number in (1, 2)
        if number == len(sweep["calls"]):  # the run was told that it is written
            assert newest.number == 2 and notes == []
        shutil.rmtree(place)


def test_a_file_system_that_cannot_sync_directories_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SMB shares and shared folders of virtual machines say EINVAL; then the rename has to do."""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    assert filled(tmp_path, 3).numbers() == [1, 2]


# Damaged files.


@pytest.fixture
def quick() -> Iterator[Path]:
    """A directory in memory, where there is one: thousands of files are written."""
    with tempfile.TemporaryDirectory(dir=faults.MEMORY) as directory:
        yield Path(directory)


def damaged(content: bytes) -> Iterator[bytes]:
    """One bit or one byte changed, anywhere; cut anywhere; something after it."""
    for position in range(len(content)):
        for mask in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            yield content[:position] + bytes([content[position] ^ mask]) + content[position + 1 :]
        yield content[:position]
    yield from (content + tail for tail in (b"\0", b" ", b"}", bytes(8), content))


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(quick: Path) -> None:
    files = filled(quick, 2)
    newest, previous = Path(files.url(1)), files.url(0)
    for content in damaged(newest.read_bytes()):
        newest.write_bytes(content)
        notes: list[str] = []
        found = Generations(str(quick)).newest(notes.append)
        assert found is not None and found.number == 0 and found.content.metadata["seed"] == "0"
        (note,) = notes
        assert note.startswith(f"warning: {newest}: ") and "\n" not in note
        assert note.endswith(f"; falling back to the checkpoint before it, {previous}")


def test_damage_is_found_out_where_there_is_nothing_to_fall_back_to(quick: Path) -> None:
    path = Path(filled(quick, 1).url(0))
    for content in damaged(path.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ModelError, match=f"{path}: "):
            read_newest(str(path), [CHECKPOINT], no_note)
        with pytest.raises(ModelError, match=f"{quick}: no checkpoint can be used: {path}: "):
            Generations(str(quick)).newest(no_note)


def test_all_that_are_damaged_are_named(tmp_path: Path) -> None:
    files = filled(tmp_path, 2)
    for number in (0, 1):
        Path(files.url(number)).write_bytes(b"")
    with pytest.raises(ModelError, match=f"no checkpoint can be used: {files.url(1)}: .*; {files.url(0)}: "):
        Generations(str(tmp_path)).newest(no_note)


def test_what_cannot_be_read_is_passed_over_too(tmp_path: Path) -> None:
    files = filled(tmp_path, 2)
    Path(files.url(2)).mkdir()
    notes: list[str] = []
    found = Generations(str(tmp_path)).newest(notes.append)
    assert found is not None and found.number == 1 and "Is a directory" in notes[0]


def test_a_damaged_one_does_not_count_as_one_of_the_two(tmp_path: Path) -> None:
    """The sound one is kept until there are two again, and the number of the damaged one is not used again."""
    files = filled(tmp_path, 3)
    Path(files.url(2)).write_bytes(b"damaged")
    files = Generations(str(tmp_path))
    files.newest(lambda text: None)
    files.write(*small(7))
    assert names(tmp_path) == ["checkpoint-00000001.safetensors", "checkpoint-00000003.safetensors"]
    Path(files.url(3)).unlink()
    assert Generations(str(tmp_path)).newest(no_note) is not None


def resigned(content: bytes, kind: tensors.Kind, **texts: str) -> bytes:
    """The arrays of a file with other texts, and a checksum that is right."""
    read = tensors.load(content, "file", [CHECKPOINT])
    metadata = {key: text for key, text in read.metadata.items() if key not in ("format", "format_version", "checksum")}
    pieces: list[bytes] = []
    tensors.save(kind, metadata | texts, read.arrays, lambda piece: pieces.append(bytes(piece)))
    return b"".join(pieces)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (tensors.Kind("streamsvm-model", 1, "model"), "not a streamsvm checkpoint"),
        (tensors.Kind("streamsvm-checkpoint", 2, "checkpoint"), r"format version 2; .* up to 1: upgrade streamsvm"),
        (tensors.Kind("pt", 1, ""), "not a streamsvm checkpoint"),
    ],
)
def test_files_of_another_kind_are_not_used(tmp_path: Path, kind: tensors.Kind, says: str) -> None:
    files = filled(tmp_path, 2)
    path = Path(files.url(1))
    assert resigned(path.read_bytes(), CHECKPOINT) == path.read_bytes()  # so nothing else makes the difference
    path.write_bytes(resigned(path.read_bytes(), kind))
    notes: list[str] = []
    found = Generations(str(tmp_path)).newest(notes.append)
    assert found is not None and found.number == 0 and re.search(f"{path}: .*{says}", notes[0])


def test_arrays_that_overlap_or_leave_gaps_are_refused_although_the_checksum_is_right(tmp_path: Path) -> None:
    import hashlib

    path = Path(filled(tmp_path, 1).url(0))
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    for offsets in ([0, 1000], [0, 16], [8, 32], [-8, 16]):
        header["a"]["data_offsets"] = offsets
        header["__metadata__"]["checksum"] = tensors.BLANK
        text = json.dumps(header, separators=(",", ":")).encode()
        blank = struct.pack("<Q", len(text)) + text + content[8 + length :]
        path.write_bytes(blank.replace(tensors.BLANK.encode(), hashlib.sha256(blank).hexdigest().encode()))
        with pytest.raises(ModelError, match="damaged checkpoint"):
            read_newest(str(path), [CHECKPOINT], no_note)


# One run at a time.

HOLDER = """
import sys
from streamsvm.io.generations import Generations
files = Generations(sys.argv[1])
files.take()
print("numba" in sys.modules, flush=True)
sys.stdin.read()
"""


def test_a_directory_belongs_to_one_process_until_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "False\n"
        files = Generations(str(tmp_path))
        with pytest.raises(ModelError, match=f"{tmp_path}: another run is using this place"):
            files.take()
        with pytest.raises(ModelError, match="another run"):
            files.take()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        files.take()
    other = Generations(str(tmp_path))
    with pytest.raises(ModelError, match="another run"):
        other.take()
    files.release()
    other.take()
    other.release()


def test_what_is_cleared_away_is_ours(tmp_path: Path) -> None:
    """Half checkpoints, and not the half cache that a run goes on with, nor what others call a part."""
    theirs = [
        ".rows.arrow.123-abc.part",
        "checkpoint-00000001.safetensors.part",
        ".model.safetensors.1-a.part",
        "notes",
    ]
    for name in [".checkpoint-00000003.safetensors.123-0a1b2c3d.part", *theirs]:
        (tmp_path / name).write_bytes(b"x")
    files = Generations(str(tmp_path))
    files.take()
    files.release()
    assert sorted(os.listdir(tmp_path)) == sorted([".lock", *theirs])


def test_a_directory_that_cannot_be_taken(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for name in ("file", "file/below"):
        with pytest.raises(SourceError, match=f"{name}: cannot write: "):
            Generations(str(tmp_path / name)).take()


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def test_a_file_system_without_locks_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Lustre has none unless it is mounted so, and some NFS servers have none."""
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / ".checkpoint-00000003.safetensors.123-0a1b2c3d.part").write_bytes(b"x")
    files = Generations(str(tmp_path))
    files.take()
    files.release()
    assert os.listdir(tmp_path) == [".lock"]


# Numbers.


def test_the_last_two_are_kept_and_numbers_go_on(tmp_path: Path) -> None:
    files = filled(tmp_path, 5)
    assert files.numbers() == [3, 4]
    again = Generations(str(tmp_path))
    assert again.newest(no_note) is not None
    again.write(*small(5))
    assert names(tmp_path) == [f"checkpoint-{number:08d}.safetensors" for number in (4, 5)]
    assert Generations(str(tmp_path / "none")).newest(no_note) is None


def test_numbers_of_more_than_eight_digits(tmp_path: Path) -> None:
    files = filled(tmp_path, 1)
    os.rename(files.url(0), files.url(99_999_999))
    files = Generations(str(tmp_path))
    assert files.newest(no_note) is not None
    for seed in range(2):
        files.write(*small(seed))
    newest = Generations(str(tmp_path)).newest(no_note)
    assert newest is not None and newest.number == 100_000_001 and files.numbers() == [100_000_000, 100_000_001]


# Buckets.


def test_a_bucket_belongs_to_one_run_of_this_machine(bucket: Any) -> None:
    files, other, elsewhere = (Generations(f"memory://{name}") for name in ("a", "a", "b"))
    files.take()
    elsewhere.take()
    with pytest.raises(ModelError, match="memory://a: another run is using this place"):
        other.take()
    files.release()
    other.take()
    other.release()
    elsewhere.release()


def test_a_bucket_keeps_two_and_shows_new_ones_at_once(bucket: Any) -> None:
    place = "memory://checkpoints/run"
    files, other = Generations(place), Generations(place)
    for seed in range(4):
        files.write(*small(seed))
        assert other.numbers() == list(range(max(0, seed - 1), seed + 1))
        newest = other.newest(no_note)
        assert newest is not None and newest.number == seed
    assert len(bucket.store) == 2


def test_a_listing_that_is_remembered_is_asked_for_again(monkeypatch: pytest.MonkeyPatch, bucket: Any) -> None:
    """As s3fs and gcsfs do, which remember listings until they are told not to."""
    remembered: dict[str, Any] = {}
    real = type(bucket).ls

    def ls(self: Any, path: str, detail: bool = True, **options: Any) -> Any:
        if path not in remembered:
            remembered[path] = real(self, path, detail=detail, **options)
        return remembered[path]

    monkeypatch.setattr(type(bucket), "ls", ls)
    monkeypatch.setattr(type(bucket), "invalidate_cache", lambda self, path=None: remembered.clear())
    place = "memory://checkpoints"
    files, other = Generations(place), Generations(place)
    for seed in range(3):
        files.write(*small(seed))
        assert other.numbers()[-1] == seed


@pytest.mark.parametrize("half", [0, 50], ids=["nothing", "half"])
def test_an_upload_that_fails_leaves_the_one_before(monkeypatch: pytest.MonkeyPatch, bucket: Any, half: int) -> None:
    from fsspec.implementations.memory import MemoryFile

    files = Generations("memory://checkpoints")
    files.write(*small(0))
    files.write(*small(1))
    real = MemoryFile.write

    def failing(self: Any, data: bytes) -> int:
        real(self, bytes(data)[:half])
        raise OSError("Connection reset by peer")

    with monkeypatch.context() as broken:
        broken.setattr(MemoryFile, "write", failing)
        for _ in range(2):
            with pytest.raises(SourceError, match="checkpoints/checkpoint-00000002.* cannot write: Connection"):
                files.write(*small(2))
            newest = Generations("memory://checkpoints").newest(no_note)
            assert newest is not None and newest.number == 1 and len(bucket.store) == 2
    files.write(*small(3))
    newest = Generations("memory://checkpoints").newest(no_note)
    assert newest is not None and newest.content.metadata["seed"] == "3" and len(bucket.store) == 2


def test_an_old_one_that_cannot_be_removed_is_removed_later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(url: str) -> None:
        raise SourceError(f"{url}: cannot remove: Permission denied")

    files = filled(tmp_path, 2)
    with monkeypatch.context() as broken:
        broken.setattr(generations, "remove", refuse)
        files.write(*small(2))
    assert files.numbers() == [0, 1, 2]
    files.write(*small(3))
    assert files.numbers() == [2, 3]
