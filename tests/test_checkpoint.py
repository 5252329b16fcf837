"""Checkpoints of whole runs: disks that fail, files that lie, and what a run may go on from."""

import errno
import io
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from faults import MEMORY
from whole_runs import KilledError, Life, bits, few_rows_a_piece, lines

import streamsvm.checkpoint
import streamsvm.solvers.base
from streamsvm import tune
from streamsvm.config import Settings, load_settings
from streamsvm.errors import DataError, ModelError, SourceError
from streamsvm.io import tensors
from streamsvm.io.generations import CHECKPOINT, Generations
from streamsvm.model import load_model
from streamsvm.training import Outcome, train

ROWS = 600  # about 20 batches


@pytest.fixture(scope="module", autouse=True)
def small_pieces() -> Iterator[None]:
    """Blocks and trials of few rows, so that a short run has many batches."""
    with few_rows_a_piece() as patch:
        patch.setattr(streamsvm.solvers.base, "TRIAL_ROWS", 60)
        patch.setattr("streamsvm.features.held_back.ROWS", 40)
        yield


def made(place: Path, **given: Any) -> Settings:
    """Settings with `a__b=value`; everything of the run is below `place`."""
    overrides: dict[str, Any] = {
        "data.train": "rows.svm",
        "run.memory": "40MB",
        "checkpoint.dir": str(place / "checkpoints"),
        "checkpoint.every": None,
        "checkpoint.every_rows": 1,
    }
    overrides |= {key.replace("__", "."): value for key, value in given.items()}
    return load_settings(overrides=overrides, environ={})


def resumed(place: Path, **given: Any) -> Settings:
    return made(place, checkpoint__resume=True, **given)


def plain(place: Path, **given: Any) -> Outcome:
    """The run without checkpoints."""
    return train(made(place, checkpoint__dir=None, checkpoint__every_rows=None, **given))


class Patient(Life):
    """Waits at every batch until no checkpoint is being written, so that there is one of each."""

    def progress(self, now: Any) -> None:
        for thread in threading.enumerate():
            if thread.name == "streamsvm-checkpoint":
                thread.join(60)
        super().progress(now)


def stopped(settings: Settings, batches: int = 8, run: Callable[..., Any] = train) -> Life:
    """The run, killed in the middle, one batch after its last checkpoint."""
    life = Patient(batches)
    with pytest.raises(KilledError):
        run(settings, life)
    return life


def filled(place: Path) -> Path:
    (place / "rows.svm").write_text("\n".join(lines(ROWS)) + "\n")
    return place


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of a run, which is the working directory, with data in it."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory, monkeypatch.context() as patch:
        patch.chdir(directory)
        patch.setenv("STREAMSVM_CACHE_DIR", f"{directory}/cache")
        yield filled(Path(directory))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of a run that was killed."""
    place = filled(tmp_path_factory.mktemp("killed"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        stopped(made(place))
    return place / "checkpoints"


@pytest.fixture
def halfway(kept: Path, place: Path) -> Path:
    """The directory of a run that was killed."""
    shutil.copytree(kept, place / "checkpoints")
    return place


def newest(place: Path) -> int | None:
    """The number of the newest checkpoint, all of them being sound."""

    def refuse(text: str) -> None:
        raise AssertionError(text)

    found = Generations(str(place / "checkpoints")).newest(refuse)
    return None if found is None else found.number


# Disks that are full or slow.


class Clock:
    """Time as checkpoints see it. It stands still, but for what `Watcher` adds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Disk:
    """What checkpoints are written to: full at some attempts, and as slow as `gate` is closed."""

    def __init__(self) -> None:
        self.full: Collection[int] = ()
        self.error: Exception = OSError(errno.ENOSPC, "No space left on device")
        self.gate = threading.Event()
        self.gate.set()
        self.attempts = self.writers = self.most_writers = 0
        self._save = tensors.save

    def save(self, kind: tensors.Kind, metadata: Any, arrays: Any, write: Callable[[Any], Any]) -> None:
        if kind is not CHECKPOINT:
            return self._save(kind, metadata, arrays, write)
        self.attempts += 1
        attempt = self.attempts
        self.writers += 1
        self.most_writers = max(self.writers, self.most_writers)
        try:
            assert self.gate.wait(60)
            if attempt in self.full:
                write(b"half of a checkpoint")
                raise self.error
            self._save(kind, metadata, arrays, write)
        finally:
            self.writers -= 1


class Watcher(Patient):
    """A listener for whom a batch takes a second."""

    def __init__(self, clock: Clock, disk: Disk, place: Path) -> None:
        super().__init__()
        self.clock = clock
        self.disk = disk
        self.place = place
        self.batches = 0
        self.newest: list[int | None] = []  # at each batch

    def progress(self, now: Any) -> None:
        self.batches += 1
        self.clock.now += 1.0
        if self.disk.gate.is_set():
            super().progress(now)
            self.newest.append(newest(self.place))

    def told(self, beginning: str) -> list[str]:
        return [note for note in self.notes if note.startswith(beginning)]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(tensors, "save", disk.save)
    return disk


@pytest.fixture
def watcher(place: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Watcher:
    clock = Clock()
    stand_in = SimpleNamespace(monotonic=clock.monotonic, strftime=lambda *_: "today", gmtime=lambda: None)
    monkeypatch.setattr(streamsvm.checkpoint, "time", stand_in)
    return Watcher(clock, disk, place)


FAILURE = "warning: no checkpoint could be written: "


@pytest.mark.parametrize("failures", [1, 2, 3])
@pytest.mark.parametrize("first", [1, 2, 3])
def test_a_disk_that_is_full_for_a_while(place: Path, watcher: Watcher, disk: Disk, first: int, failures: int) -> None:
    disk.full = range(first, first + failures)
    found = train(made(place), watcher)
    assert bits(found) == bits(plain(place))
    told = watcher.told(FAILURE)
    assert len(told) == failures and all("cannot write: No space left on device; " in note for note in told)
    assert [re.findall(r"next attempt in (\d+) s", note) for note in told] == [["1"], ["2"], ["4"]][:failures]
    kept = "there is none yet" if first == 1 else f"{place}/checkpoints/checkpoint-0000000{first - 2}.safetensors"
    assert all(kept in note for note in told)
    (again,) = watcher.told("checkpoints can be written again: ")
    assert f"checkpoint-0000000{first - 1}.safetensors" in again and "pass 1 of 1, " in again
    assert watcher.notes.index(again) > watcher.notes.index(told[-1])


def test_the_last_checkpoint_is_there_while_attempts_fail(place: Path, watcher: Watcher, disk: Disk) -> None:
    disk.full = range(3, 1000)
    found = train(made(place), watcher)
    assert bits(found) == bits(plain(place))
    assert watcher.newest[-1] == 1 and sorted(set(watcher.newest[3:])) == [1] and len(watcher.newest) > 10
    assert len(watcher.told(FAILURE)) >= 3 and not watcher.told("checkpoints can be")
    disk.full = ()
    assert bits(train(resumed(place))) == bits(found)


def test_without_patience_the_first_failure_stops_the_run(place: Path, watcher: Watcher, disk: Disk) -> None:
    disk.full = range(2, 1000)
    with pytest.raises(SourceError, match="^no checkpoint could be written: .*checkpoint-00000001.* No space left"):
        train(made(place, checkpoint__patience=0), watcher)
    assert disk.attempts == 2 and watcher.told(FAILURE) == [] and watcher.newest[-1] == 0
    disk.full = ()
    assert bits(train(resumed(place))) == bits(plain(place))


def test_patience_ends(place: Path, watcher: Watcher, disk: Disk) -> None:
    disk.full = range(1, 1000)
    with pytest.raises(SourceError, match=r"no checkpoint could be written for 4s \(checkpoint.patience\): .*No space"):
        train(made(place, checkpoint__patience=4), watcher)
    assert disk.attempts == 3 and len(watcher.told(FAILURE)) == 2  # found out after 1, 3 and 6 seconds
    assert watcher.batches == 7


def test_patience_begins_anew_after_a_success(place: Path, watcher: Watcher, disk: Disk) -> None:
    disk.full = [1, 2, 4, 5]
    found = train(made(place, checkpoint__patience=4), watcher)
    assert len(watcher.told(FAILURE)) == 4 and len(watcher.told("checkpoints can be written again")) == 2
    assert bits(found) == bits(plain(place))


def test_a_failure_that_is_no_fault_of_the_disk_is_not_hidden(place: Path, watcher: Watcher, disk: Disk) -> None:
    disk.full, disk.error = range(2, 1000), ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        train(made(place), watcher)
    assert watcher.batches == 3 and not (place / "model.safetensors").exists()


class Slow(Watcher):
    """Opens the gate after so many batches."""

    until = 12

    def progress(self, now: Any) -> None:
        if self.batches == self.until:
            self.disk.gate.set()
        super().progress(now)


def test_learning_goes_on_while_a_slow_checkpoint_is_written(place: Path, watcher: Watcher, disk: Disk) -> None:
    disk.gate.clear()
    slow = Slow(watcher.clock, disk, place)
    found = train(made(place, checkpoint__every=3, checkpoint__every_rows=None), slow)
    assert bits(found) == bits(plain(place))
    assert disk.most_writers == 1 and 1 < disk.attempts < 6
    (told,) = slow.told("warning: ")
    assert told == (
        f"warning: writing a checkpoint to {place}/checkpoints takes longer than 3s: there will be fewer of them"
    )
    assert newest(place) == disk.attempts - 1


def test_a_target_that_never_answers_is_given_up(place: Path, watcher: Watcher, disk: Disk) -> None:
    disk.gate.clear()

    class Late(Watcher):
        def progress(self, now: Any) -> None:
            super().progress(now)
            self.clock.now += 9.0

    late = Late(watcher.clock, disk, place)
    try:
        with pytest.raises(SourceError, match=r"checkpoints: no answer for 70 s while writing a checkpoint"):
            train(made(place, checkpoint__patience=5), late)
    finally:
        disk.gate.set()
        Patient().progress(None)
    assert disk.most_writers == 1 and 6 <= late.batches <= 9


def unwritable(place: Path) -> list[str]:
    found = ["/proc/none/checkpoints", "/proc"] if sys.platform.startswith("linux") else []
    if os.geteuid() != 0:  # root may write anywhere
        (place / "closed").mkdir(mode=0o500)
        found.append(str(place / "closed"))
    return found


def test_a_directory_that_cannot_be_written_is_reported_and_learning_goes_on(place: Path, watcher: Watcher) -> None:
    expected = bits(plain(place))
    for target in unwritable(place):
        watcher.notes.clear()
        assert bits(train(made(place, checkpoint__dir=target), watcher)) == expected
        assert watcher.told(f"warning: {target}: cannot write: ") and len(watcher.told(FAILURE)) >= 3
        with pytest.raises(SourceError, match=f"^{target}: cannot write: "):
            train(made(place, checkpoint__dir=target, checkpoint__patience=0))
        with pytest.raises(SourceError, match=f"^{target}: cannot write: "):
            train(resumed(place, checkpoint__dir=target))


def test_a_directory_that_can_be_written_later_is_taken_then(
    place: Path, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other run may use it from then on."""
    take, refusals = Generations.take, [SourceError("checkpoints: cannot write: Read-only file system")]

    def late(self: Generations) -> None:
        if refusals:
            raise refusals.pop()
        take(self)

    class Curious(Watcher):
        def progress(self, now: Any) -> None:
            super().progress(now)
            if self.newest[-1] is not None:
                with pytest.raises(ModelError, match="another run is using this place"):
                    take(Generations(str(place / "checkpoints")))

    monkeypatch.setattr(Generations, "take", late)
    curious = Curious(watcher.clock, watcher.disk, place)
    assert bits(train(made(place), curious)) == bits(plain(place))
    assert curious.told("warning: checkpoints: cannot write: ") and curious.newest[-1] is not None


# One run at a time.

OTHER_RUN = """
import sys
from streamsvm.io.generations import Generations
files = Generations(sys.argv[1])
files.take()
print("taken", flush=True)
sys.stdin.read()
"""


def test_a_directory_in_use_is_refused_until_the_other_run_is_killed(halfway: Path) -> None:
    command = [sys.executable, "-c", OTHER_RUN, str(halfway / "checkpoints")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "taken\n"
        for settings in (resumed(halfway), made(halfway)):
            with pytest.raises(ModelError, match="checkpoints: another run is using this place"):
                train(settings)
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert bits(train(resumed(halfway))) == bits(plain(halfway))


# Buckets.


def test_a_run_goes_on_from_a_bucket(place: Path, bucket: Any) -> None:
    for passes in (1, 2):
        target = f"memory://checkpoints/{passes}"
        stopped(made(place, checkpoint__dir=target, solver__passes=passes), 8 * passes)
        numbers = Generations(target).numbers()
        assert len(numbers) == 2 and numbers[1] >= 3
        life = Life()
        found = train(resumed(place, checkpoint__dir=target, solver__passes=passes), life)
        assert life.notes[0].startswith("going on from ") and f"{target}/checkpoint-{numbers[1]:08d}" in life.notes[0]
        assert bits(found) == bits(plain(place, solver__passes=passes))
        assert Generations(target).numbers()[1] > numbers[1]
    assert list((place / "cache" / "passes").iterdir()) == []


def test_uploads_that_fail_leave_the_one_before(
    place: Path, watcher: Watcher, bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.implementations.memory import MemoryFile

    real, uploads = MemoryFile.write, []

    def failing(self: Any, data: bytes) -> int:
        uploads.append(len(data))
        if len(uploads) > 2:
            real(self, bytes(data)[:50])
            raise OSError(errno.ECONNRESET, "Connection reset by peer")
        return int(real(self, data))

    with monkeypatch.context() as broken:
        broken.setattr(MemoryFile, "write", failing)
        found = train(made(place, checkpoint__dir="memory://checkpoints"), watcher)
    assert bits(found) == bits(plain(place)) and len(uploads) > 4
    assert all("Connection reset by peer" in note for note in watcher.told(FAILURE)) and watcher.told(FAILURE)
    assert Generations("memory://checkpoints").numbers() == [0, 1]
    assert bits(train(resumed(place, checkpoint__dir="memory://checkpoints"))) == bits(found)


# Files that are damaged, or say what cannot be.


def test_a_damaged_checkpoint_is_never_a_model(halfway: Path) -> None:
    """Every byte of a checkpoint of a run, one bit of it and all of it, and every length that is too short."""
    files = Generations(str(halfway / "checkpoints"))
    content = Path(files.url(files.numbers()[-1])).read_bytes()
    path = halfway / "damaged.safetensors"
    path.write_bytes(content)
    assert load_model(str(path)).dim == 31
    for position in range(len(content)):
        changed = [
            content[:position] + bytes([content[position] ^ mask]) + content[position + 1 :] for mask in (4, 255)
        ]
        for damaged in (*changed, content[:position]):
            with pytest.raises(ModelError, match="^damaged: "):
                tensors.load(damaged, "damaged", [CHECKPOINT])


def damaged_newest(place: Path) -> tuple[Path, str]:
    files = Generations(str(place / "checkpoints"))
    *_, before, last = files.numbers()
    path = Path(files.url(last))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    return path, files.url(before)


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(halfway: Path) -> None:
    damaged, before = damaged_newest(halfway)
    life = Life()
    assert bits(train(resumed(halfway), life)) == bits(plain(halfway))
    assert life.notes[0].startswith(f"warning: {damaged}: ") and before in life.notes[0]
    assert life.notes[1].startswith("going on from ") and before in life.notes[1]
    assert not damaged.exists()


def test_a_model_is_read_from_the_checkpoint_before_a_damaged_one(halfway: Path) -> None:
    damaged, before = damaged_newest(halfway)
    notes: list[str] = []
    model = load_model(str(halfway / "checkpoints"), notes.append)
    assert model.weights.tobytes() == load_model(before).weights.tobytes()
    assert len(notes) == 1 and str(damaged) in notes[0] and before in notes[0]
    with pytest.raises(ModelError, match=str(damaged)):
        load_model(str(damaged))


Change = Callable[[dict[str, Any], dict[str, Any]], Any]


def forged(place: Path, change: Change) -> str:
    """One checkpoint instead of those that are there, changed, with a checksum that is right."""
    files = Generations(str(place / "checkpoints"))
    found = files.newest(lambda text: None)
    assert found is not None
    texts = {key: text for key, text in found.content.metadata.items() if not key.startswith(("format", "checksum"))}
    arrays = dict(found.content.arrays)
    change(texts, arrays)
    shutil.rmtree(place / "checkpoints")
    return Generations(str(place / "checkpoints")).write(texts, arrays)


def test_forging_by_itself_changes_nothing(halfway: Path) -> None:
    forged(halfway, lambda texts, arrays: None)
    assert bits(train(resumed(halfway))) == bits(plain(halfway))


def in_run(change: Callable[[dict[str, Any]], Any]) -> Change:
    def changed(texts: dict[str, Any], arrays: dict[str, Any]) -> None:
        run = json.loads(texts["run"])
        change(run)
        texts["run"] = json.dumps(run)

    return changed


def in_array(name: str, change: Callable[[Any], Any]) -> Change:
    def changed(texts: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays[f"state.own.solver.{name}"] = change(arrays[f"state.own.solver.{name}"])

    return changed


NONSENSE: dict[str, Change] = {
    "no run": lambda texts, arrays: texts.pop("run"),
    "a run that is no JSON": lambda texts, arrays: texts.update(run="{nonsense"),
    "a run that is a list": lambda texts, arrays: texts.update(run="[]"),
    "a run that is a number": lambda texts, arrays: texts.update(run="7"),
    "a run that is null": lambda texts, arrays: texts.update(run="null"),
    "a run without end": lambda texts, arrays: texts.update(run="[" * 100_000),
    **{
        f"no {key}": in_run(lambda run, key=key: run.pop(key))
        for key in ("command", "config", "sources", "versions", "state")
    },
    **{
        f"{key} that is null": in_run(lambda run, key=key: run.update({key: None}))
        for key in ("config", "sources", "versions", "state")
    },
    **{
        f"no {key} in the state": in_run(lambda run, key=key: run["state"].pop(key))
        for key in ("standing", "passes", "feed", "own")
    },
    "no pass": in_run(lambda run: run["state"]["standing"].pop("pass")),
    "examples that are text": in_run(lambda run: run["state"]["standing"].update(examples="many")),
    "sources of another form": in_run(lambda run: run.update(sources=[[1]])),
    "classes that are a number": in_run(lambda run: run["state"]["feed"].update(classes=7)),
    "negative room": in_run(lambda run: run["state"]["own"]["solver"].update(room=-5)),
    "no vector": lambda texts, arrays: arrays.pop("state.own.solver.vector"),
    "a short vector": in_array("vector", lambda vector: vector[:-1].copy()),
    "a vector longer than its room": in_array("vector", lambda vector: np.zeros(1 << 12, np.float32)),
    "a vector of two dimensions": in_array("vector", lambda vector: vector.reshape(-1, 1)),
    "no scalars": lambda texts, arrays: arrays.pop("state.own.solver.scalars"),
    "few scalars": in_array("scalars", lambda scalars: scalars[:-1].copy()),
    "many scalars": in_array("scalars", lambda scalars: np.append(scalars, 0.0)),
    "no held-out figures": lambda texts, arrays: arrays.pop("state.own.holdout.sums"),
}  # fmt: skip


@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_with_a_checksum_is_refused(halfway: Path, what: str) -> None:
    path = forged(halfway, NONSENSE[what])
    with pytest.raises(ModelError, match=path):
        train(resumed(halfway))
    assert Path(path).exists()


def test_a_checkpoint_of_a_later_version_is_not_touched(halfway: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr("streamsvm.io.generations.CHECKPOINT", CHECKPOINT._replace(version=2))
        files = Generations(str(halfway / "checkpoints"))
        files.newest(lambda text: None)
        for seed in range(2):
            files.write({"run": "{}"}, {"seed": np.arange(seed)})
    with pytest.raises(ModelError, match="no checkpoint can be used: .* in format version 2; .*: upgrade streamsvm"):
        train(resumed(halfway))
    assert len(Generations(str(halfway / "checkpoints")).numbers()) == 2


# What a run may go on from.

OTHER: dict[str, tuple[dict[str, Any], str]] = {
    "l2": ({"penalty__l2": 0.01}, "penalty.l2 was not set and is now 0.01"),
    "solver": (
        {"solver__name": "sgd"},
        "solver.name was asgd and is now sgd; solver.revisit was True and is now not set",
    ),
    "loss": ({"loss": "logistic"}, "loss was squared_hinge and is now logistic"),
    "passes": ({"solver__passes": 3}, "solver.passes was 1 and is now 3"),
    "seed": ({"run__seed": 5}, "run.seed was 0 and is now 5"),
    "hash_bits": ({"features__hash_bits": 10}, "features.hash_bits was not set and is now 10"),
    "dim": ({"features__dim": 40}, "features.dim was not set and is now 40"),
    "shuffle": ({"data__shuffle": 50}, "data.shuffle was auto and is now 50"),
    "classes": ({"data__classes": [1, -1]}, r"data.classes was not set and is now \[1, -1\]"),
    "two": ({"loss": "hinge", "run__seed": 5}, "loss was squared_hinge and is now hinge; run.seed was 0 and is now 5"),
    "bad rows without a cache that knows": (
        {"data__on_bad_row": "skip", "run__cache": "rows.arrow"},
        "data.on_bad_row was raise and is now skip",
    ),
}


@pytest.mark.parametrize("what", OTHER)
def test_another_run_is_refused_and_the_difference_named(halfway: Path, what: str) -> None:
    given, says = OTHER[what]
    path = Generations(str(halfway / "checkpoints")).newest(lambda text: None)
    assert path is not None
    with pytest.raises(ModelError, match=f"^{path.shown}: cannot go on from this checkpoint: {says}$"):
        train(resumed(halfway, **given))
    assert newest(halfway) == path.number
    assert bits(train(resumed(halfway))) == bits(plain(halfway))  # nothing was lost


def test_other_data_is_refused_and_the_difference_named(halfway: Path) -> None:
    rows = halfway / "rows.svm"
    text = rows.read_text()
    rows.write_text(text + "1 1:1\n")
    with pytest.raises(ModelError, match=rf"rows.svm was {len(text):,} bytes and is now {len(text) + 6:,}$"):
        train(resumed(halfway))
    other = text[:-3] + ("1" if text[-3] != "1" else "2") + text[-2:]
    rows.write_text(other)
    with pytest.raises(ModelError, match=r"rows.svm has other content than before \(same size\)$"):
        train(resumed(halfway))
    rows.write_text(text)
    os.utime(rows, (1, 1))
    assert bits(train(resumed(halfway))) == bits(plain(halfway))


def test_more_files_are_refused(place: Path) -> None:
    text = (place / "rows.svm").read_text()
    several = {"data__train": str(place / "part*.svm")}
    for name in ("part1", "part3"):
        (place / f"{name}.svm").write_text(text)
    stopped(made(place, **several))
    (place / "part2.svm").write_text(text)
    with pytest.raises(ModelError, match="there were 2 files and are now 3: part2.svm is new$"):
        train(resumed(place, **several))
    os.rename(place / "part1.svm", place / "part4.svm")
    os.rename(place / "part2.svm", place / "gone.svm")
    with pytest.raises(ModelError, match="file 1 was .*part1.svm and is now .*part3.svm$"):
        train(resumed(place, **several))
    os.rename(place / "part4.svm", place / "part1.svm")
    assert bits(train(resumed(place, **several))) == bits(plain(place, **several))


def test_another_version_is_refused(halfway: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamsvm.checkpoint, "__version__", "9.9.9")
    with pytest.raises(ModelError, match=r"it was written by streamsvm [\d.]+, this is 9\.9\.9$"):
        train(resumed(halfway))


def test_another_python_is_a_warning(halfway: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = platform.python_version()
    monkeypatch.setattr(platform, "python_version", lambda: "3.99.1")
    life = Life()
    assert bits(train(resumed(halfway), life)) == bits(plain(halfway))
    told = f"warning: python was {before} and is now 3.99.1: the last digits may differ from those of an unbroken run"
    assert life.notes[0] == told


@pytest.mark.parametrize(("first", "then"), [("train", "tune"), ("tune", "train")])
def test_another_command_is_refused(place: Path, first: str, then: str) -> None:
    runs: dict[str, Callable[..., Any]] = {"train": train, "tune": tune}
    given: dict[str, Any] = {"tune__candidates": 3, "data__holdout": 10}
    stopped(made(place, **given), run=runs[first])
    with pytest.raises(ModelError, match=f"it is of streamsvm {first}, not {then}"):
        runs[then](resumed(place, **given))


FREE: dict[str, dict[str, Any]] = {
    "memory": {"run__memory": "60MB"},
    "threads": {"run__threads": 1},
    "where the model is written": {"output__model": "{place}/other.safetensors"},
    "test data": {"data__test": "rows.svm"},
    "how many bad rows are too many": {"data__max_bad_rows": 7},
    "what happens to bad rows": {"data__on_bad_row": "skip"},
    "how long a line is": {"data__max_line": 5000},
    "when checkpoints are taken": {"checkpoint__every": 1, "checkpoint__every_rows": 100, "checkpoint__patience": 0},
    "what tune would try": {"tune__candidates": 3},
}


@pytest.mark.parametrize("what", FREE)
def test_what_does_not_change_the_result_is_free(halfway: Path, what: str) -> None:
    given = {key: text.format(place=halfway) if isinstance(text, str) else text for key, text in FREE[what].items()}
    life = Life()
    found = train(resumed(halfway, **given), life)
    assert life.notes[0].startswith("going on from ") and "warning" not in life.notes[0]
    assert bits(found) == bits(plain(halfway))


def test_a_bad_row_that_stopped_a_run_can_be_skipped_afterwards(place: Path) -> None:
    text = lines(ROWS)
    text[300] = "1 nonsense"
    (place / "rows.svm").write_text("\n".join(text) + "\n")
    for passes in (1, 2):
        given = {"solver__passes": passes, "checkpoint__dir": str(place / f"checkpoints{passes}")}
        with pytest.raises(DataError, match="301"):
            train(made(place, **given))
        found = train(resumed(place, data__on_bad_row="skip", **given))
        assert found.result["bad_rows"] == 1
        assert bits(found) == bits(plain(place, data__on_bad_row="skip", solver__passes=passes))


def test_rows_that_were_skipped_cannot_be_refused_afterwards(place: Path) -> None:
    stopped(made(place, data__on_bad_row="skip"))
    with pytest.raises(ModelError, match="data.on_bad_row was skip and is now raise$"):
        train(resumed(place))


@pytest.mark.parametrize("passes", [1, 2])
def test_the_directory_may_move(place: Path, passes: int) -> None:
    stopped(made(place, solver__passes=passes), 8 * passes)
    os.rename(place / "checkpoints", place / "elsewhere")
    life = Life()
    found = train(resumed(place, solver__passes=passes, checkpoint__dir=str(place / "elsewhere")), life)
    assert life.notes[0].startswith("going on from ") and f"{place}/elsewhere/checkpoint-" in life.notes[0]
    assert bits(found) == bits(plain(place, solver__passes=passes)) and not (place / "checkpoints").exists()


def test_the_directory_may_be_given_as_a_url(place: Path) -> None:
    given = {"checkpoint__dir": f"file://{place}/checkpoints", "solver__passes": 2}
    stopped(made(place, **given), 25)
    assert sorted(os.listdir(place)) == ["checkpoints", "rows.svm"]
    assert bits(train(resumed(place, **given))) == bits(plain(place, solver__passes=2))


def test_an_unfinished_run_is_not_written_over(halfway: Path) -> None:
    files = sorted(os.listdir(halfway / "checkpoints"))
    with pytest.raises(
        ModelError,
        match=r"checkpoints has a checkpoint of an unfinished run \(pass 1 of 1, \d+ examples\): add --resume",
    ):
        train(made(halfway))
    assert sorted(os.listdir(halfway / "checkpoints")) == files


def test_after_a_run_that_ended_a_new_one_may_begin(halfway: Path) -> None:
    train(resumed(halfway))
    life = Life()
    found = train(made(halfway, loss="logistic"), life)
    assert not any("going on" in note for note in life.notes)
    assert bits(found) == bits(plain(halfway, loss="logistic"))
    stopped(made(halfway), 8)
    assert bits(train(resumed(halfway))) == bits(plain(halfway))


def test_a_run_that_ended_has_nothing_to_learn_any_more(place: Path) -> None:
    first = train(made(place))
    life = Life()
    assert bits(train(resumed(place), life)) == bits(first)
    assert f"all passes done, {ROWS} examples" in life.notes[0]


def test_resume_where_nothing_is_yet(place: Path) -> None:
    life = Life()
    assert bits(train(resumed(place), life)) == bits(plain(place))
    assert life.notes[0] == f"{place}/checkpoints has no checkpoint yet: starting from the beginning"


def test_standard_input_is_refused_at_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("1 1:1\n"))  # nobody may read it: it has no descriptor
    for settings in (made(place, data__train="-"), resumed(place, data__train="-")):
        with pytest.raises(SourceError, match="standard input can be read only once, so a run on it cannot be resumed"):
            train(settings)
    assert not (place / "checkpoints").exists()


# Secrets.


def test_no_secret_is_in_a_checkpoint(place: Path, bucket: Any) -> None:
    secrets = ["hunter2", "s3cr3t"]
    data = "memory://user:hunter2@data/rows.svm?token=s3cr3t"
    bucket.pipe("/user:hunter2@data/rows.svm?token=s3cr3t", (place / "rows.svm").read_bytes())
    given: dict[str, Any] = {
        "data__train": data,
        "data__test": data,
        "output__model": "memory://user:hunter2@out/model?token=s3cr3t",
        "checkpoint__dir": "memory://user:hunter2@checkpoints/run?token=s3cr3t",
    }
    life = stopped(made(place, **given))
    files = {name: file.getvalue() for name, file in bucket.store.items() if "checkpoint-0" in name}
    assert len(files) == 2 and all(b"rows.svm" in content for content in files.values())
    after = Life()
    found = train(resumed(place, **given), after)
    assert bits(found) == bits(plain(place))
    assert "memory://checkpoints/run/checkpoint-0000000" in after.notes[0]
    contents = [*files.values(), *(file.getvalue() for name, file in bucket.store.items() if "/rows.svm" not in name)]
    told = "\n".join([*life.notes, *after.notes]).encode()
    assert len(contents) == 5 and not any(secret.encode() in text for secret in secrets for text in [*contents, told])


def test_no_secret_is_in_a_refusal(place: Path, bucket: Any) -> None:
    data = "memory://user:hunter2@data/rows.svm?token=s3cr3t"
    bucket.pipe("/user:hunter2@data/rows.svm?token=s3cr3t", (place / "rows.svm").read_bytes())
    stopped(made(place, data__train=data))
    bucket.pipe("/user:hunter2@data/rows.svm?token=s3cr3t", (place / "rows.svm").read_bytes() * 2)
    with pytest.raises(ModelError, match="memory://data/rows.svm was") as refused:
        train(resumed(place, data__train=data, solver__init=None, loss="hinge"))
    assert "hunter2" not in str(refused.value) and "s3cr3t" not in str(refused.value)
