"""Random histories of logs and of the process that follows them, and what it has learned in the end.

A history is a list of steps of writers and of rotation, and a list of lives of the follower. Steps happen between any
two questions that the follower asks the file system: every single rename is one. A life ends when nothing comes any
more, with SIGTERM, or at any question, without a word. A row has a feature of its own, and the solver is one whose
weights fade from the first row to the last, so that the model says which rows were learned, and in which order.

The follower is `streamsvm.follow` itself, with its threads, checkpoints and models. Its clock is that of the history.

    python tests/follow_histories.py 100000 [first seed]
"""

import contextlib
import gc
import gzip
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from faults import MEMORY
from test_follow_faults import Shaky
from whole_runs import KilledError, Notes

import streamsvm.errors
import streamsvm.io.log_source
from streamsvm.config import load_settings
from streamsvm.following import follow
from streamsvm.interrupts import Interrupted
from streamsvm.io.log_files import Disk
from streamsvm.io.log_source import LogSource
from streamsvm.training import train

ROWS = 90
SETTINGS = {
    "solver.name": "zhang", "solver.eta0": 0.5, "penalty.l2": 1e-3, "bias.kind": "none", "features.scale": "none",
    "data.classes": [-1, 1],
}  # fmt: skip
NUMBERINGS = ("descending", "ascending", "dated", "counted")


class Kind(NamedTuple):
    """What sort of history it is."""

    numbering: str
    start: str  # what there is before the follower comes: nothing, an empty log, one with rows, rotated files
    logs: tuple[str, ...]
    pattern: bool
    compressed: bool
    copies: bool  # copied and truncated instead of renamed
    burst: int  # the most steps that happen at once

    @property
    def ordered(self) -> bool:
        """Whether the order of each log is promised.

        Not of copies, nor in a pattern, where each file is a log, nor of files that are compressed before they were
        read, which have other inodes then.
        """
        return not self.pattern and not self.copies and not self.compressed


def kind_of(chance: random.Random) -> Kind:
    copies = chance.random() < 0.15
    pattern = not copies and chance.random() < 0.25
    return Kind(
        numbering="descending" if copies else chance.choice(NUMBERINGS),
        start=chance.choice(["absent", "empty", "rows", "rotated"]),
        logs=("a.log",) if copies or chance.random() < 0.7 else ("a.log", "b.log"),
        pattern=pattern,
        compressed=not copies and chance.random() < 0.3,
        copies=copies,
        burst=chance.choice([1, 1, 3, 10]),
    )


class Writers:
    """The steps of a history: each changes one thing in the folder."""

    def __init__(self, folder: Path, kind: Kind, chance: random.Random) -> None:
        self.folder, self.kind, self.chance = folder, kind, chance
        self.row = 0
        self.rows: dict[str, list[int]] = {name: [] for name in kind.logs}
        self.rotations = dict.fromkeys(kind.logs, 0)
        self.time = 1_700_000_000
        self.old: list[int] = []  # rows that were rotated before the follower came

    def write(self, name: str, count: int) -> Iterator[None]:
        for _ in range(count):
            if self.row == ROWS:
                return
            number, self.row = self.row, self.row + 1
            line = f"{1 if number % 2 else -1} {number + 1}:1\n"
            cut = self.chance.choice([0, 0, 0, 3])
            with open(self.folder / name, "a") as file:
                if cut:
                    file.write(line[:cut])
                    file.flush()
                    yield
                file.write(line[cut:])
            self._later(self.folder / name)
            self.rows[name].append(number)
        yield

    def _later(self, path: Path) -> None:
        """Files are a minute apart, as those that are rotated are: where nothing else does, that tells their order."""
        self.time += 60
        path.touch()
        os.utime(path, (self.time, self.time))

    def rotate(self, name: str) -> Iterator[None]:
        log = self.folder / name
        if not log.exists():
            return
        self.rotations[name] += 1
        number = self.rotations[name]
        numbering = self.kind.numbering
        if numbering == "descending":
            yield from self._shift(log)
        places = {
            "descending": f"{name}.1",
            "ascending": f"{name}.{number}",
            "dated": f"{name}-202611{10 + number:02d}",
            "counted": f"{name[0]}-2026-11-17-{number}.log",
        }
        place = self.folder / places[numbering]
        if self.kind.copies:
            shutil.copyfile(log, place)
            self._later(place)
            os.truncate(log, 0)
        else:
            os.rename(log, place)
            yield
            if self.chance.random() < 0.7:
                self._later(log)
        yield
        if self.kind.compressed:
            yield from self._compress(name, place)

    def _shift(self, log: Path) -> Iterator[None]:
        found = [path for path in self.folder.glob(f"{log.name}.*") if path.name.split(".")[2].isdigit()]
        for path in sorted(found, key=lambda path: -int(path.name.split(".")[2])):
            parts = path.name.split(".")
            parts[2] = str(int(parts[2]) + 1)
            os.rename(path, path.with_name(".".join(parts)))
            yield

    def _compress(self, name: str, newest: Path) -> Iterator[None]:
        """All rotated files but the newest, as with `delaycompress`."""
        for path in sorted(self.folder.glob(f"{name[0]}*")):
            if path not in (newest, self.folder / name) and path.suffix != ".gz":
                packed = path.with_name(f"{path.name}.gz")
                packed.write_bytes(gzip.compress(path.read_bytes(), 1))
                info = path.stat()
                os.utime(packed, ns=(info.st_atime_ns, info.st_mtime_ns))
                yield
                path.unlink()
                yield

    def begin(self) -> None:
        """What there is before the follower comes."""
        start = self.kind.start
        for name in self.kind.logs:
            if start == "rotated":
                for _ in range(self.chance.randint(1, 3)):
                    list(self.write(name, 2))
                    list(self.rotate(name))
                if not self.kind.pattern:
                    self.old += self.rows[name]
                    self.rows[name] = []
            if start in ("rows", "rotated") and self.chance.random() < 0.8:
                list(self.write(name, self.chance.randint(1, 8)))
            elif start == "empty":
                self._later(self.folder / name)
        if not self.kind.pattern and start == "rotated":
            for name in self.kind.logs:  # what has no name at the first look is old
                if not (self.folder / name).exists():
                    self.old += self.rows[name]
                    self.rows[name] = []

    def steps(self) -> Iterator[None]:
        while self.row < ROWS:
            name = self.chance.choice(self.kind.logs)
            if self.chance.random() < 0.7:
                yield from self.write(name, self.chance.choice([1, 1, 2, 5]))
            else:
                yield from self.rotate(name)


class History:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.kind = kind_of(self.chance)
        self.now = 0.0
        self.story: list[str] = []
        self._looked = False
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def progress(self, now: Any) -> None:
        pass

    def play(self) -> str:
        """What is wrong in the end; nothing, if all is as promised."""
        place = Path(tempfile.mkdtemp(prefix="history-", dir=MEMORY))
        try:
            (place / "logs").mkdir()
            return self._play(place)
        finally:
            shutil.rmtree(place)

    def _play(self, place: Path) -> str:
        self.writers = Writers(place / "logs", self.kind, self.chance)
        self.writers.begin()
        steps = self.writers.steps()
        for _ in range(self.chance.randint(0, 6)):
            self._live(place, steps, self._fate())
            for _ in range(self.chance.choice([0, 0, 1, 5, 20]) if self._looked_at(place) else 0):
                next(steps, None)
        if not self._looked_at(place):
            self._live(place, iter(()), (0, "idle"))  # what happens before the first look, nobody can know
        for _ in steps:
            pass
        return self._judged(self._live(place, iter(()), (0, "idle")))

    def _fate(self) -> tuple[int, str]:
        """At which question the life ends, and how."""
        return self.chance.choice([5, 20, 60, 200, 800]) * self.chance.random() // 1 + 1, self.chance.choice(
            ["kill", "kill", "term", "idle"]
        )

    def _live(self, place: Path, steps: Iterator[None], fate: tuple[int, str]) -> Any:
        at, how = fate
        pace = self.chance.choice([1, 2, 5, 20])

        def happens(kind: str) -> None:
            if disk.calls[-1:] and len(disk.calls) >= at and how == "kill":
                raise KilledError
            if len(disk.calls) == at and how == "term":
                os.kill(os.getpid(), signal.SIGTERM)
            if self.chance.random() * pace < 1.0 and self._looked_at(place):
                for _ in range(self.chance.randint(1, self.kind.burst)):
                    next(steps, None)

        disk = Shaky(range(1, 10**9), happens)
        self.story.append(f"{how} at {at}")
        with clocked(self, disk):
            try:
                names = [f"{name[0]}*" for name in self.kind.logs] if self.kind.pattern else list(self.kind.logs)
                return follow(load_settings(overrides=self._settings(place, names)), self)
            except (KilledError, Interrupted):
                return None
            except streamsvm.errors.DataError as error:
                assert "no row" in str(error)
                return None

    def _looked_at(self, place: Path) -> bool:
        """Whether what was there at the first look is kept."""
        self._looked = self._looked or any(place.glob("*.checkpoint/checkpoint-*"))
        return self._looked

    def _settings(self, place: Path, names: list[str]) -> dict[str, Any]:
        return {
            **SETTINGS,
            "data.train": [str(place / "logs" / name) for name in names],
            "output.model": str(place / "m.safetensors"),
            "checkpoint.every_rows": self.chance.choice([1, 3, 10, 1000]),
            "checkpoint.every": self.chance.choice([0.001, 60.0]),
            "follow.until_idle": True,
            "follow.idle": 7.0,
            "follow.poll": 1.0,
            "follow.rotate_wait": 5.0,
            "follow.compressed": self.kind.compressed,
            "follow.window": 4096,
        }

    def _judged(self, outcome: Any) -> str:
        expected = {name: rows for name, rows in self.writers.rows.items() if rows}
        total = sum(map(len, expected.values()))
        if outcome is None:
            return "nothing learned" if total else ""
        weights = np.abs(outcome.model.weights[1:])
        found = np.argsort(-weights, kind="stable")[: int((weights > 0).sum())].tolist()
        counts = outcome.result["follow"]
        if (
            self.kind.copies
            and counts["truncated"]
            and set(found) < {row for rows in expected.values() for row in rows}
        ):
            total = len(found)  # truncated while its copies were looked at: best effort, and counted
        elif sorted(found) != sorted(row for rows in expected.values() for row in rows):
            missing = {row for rows in expected.values() for row in rows} - set(found)
            return (
                f"missing {sorted(missing)}, too much {sorted(set(found) - {r for s in expected.values() for r in s})}"
            )
        if not np.array_equal(weights[found], once_each(total)):
            return f"rows learned twice: {outcome.result['examples']} of {total}"
        for name, rows in expected.items():
            of_log = [row for row in found if row in set(rows)]
            if self.kind.ordered and of_log != rows:
                return f"{name}: order {of_log}"
        wrong = [n for n in ("lost", "unfinished", "too_long", "errors") if counts[n]]
        wrong = [] if self.kind.copies or self.kind.compressed else wrong
        wrong += ["truncated"] if counts["truncated"] and not self.kind.copies else []
        return f"counted {wrong}" if wrong else ""


_ONCE: dict[int, Any] = {}


def once_each(rows: int) -> Any:
    """The weights of so many rows that were learned once each, in their order."""
    if rows not in _ONCE:
        with tempfile.TemporaryDirectory(dir=MEMORY) as place:
            text = "".join(f"{1 if n % 2 else -1} {n + 1}:1\n" for n in range(rows))
            (Path(place) / "rows.svm").write_text(text)
            data = {"data.train": [f"{place}/rows.svm"], "output.model": None, "data.shuffle": 0}
            _ONCE[rows] = np.abs(train(load_settings(overrides=SETTINGS | data), Notes()).model.weights[1:])
        assert np.all(np.diff(_ONCE[rows]) < 0)
    return _ONCE[rows]


@contextlib.contextmanager
def clocked(history: History, disk: Disk) -> Iterator[None]:
    """`follow` with this disk, and with a clock that moves when it waits."""

    made, began = LogSource.__init__, history.now

    def init(self: LogSource, *given: Any, **more: Any) -> None:
        made(self, *given, **more, disk=disk, clock=lambda: history.now)

    def sleep(self: LogSource, seconds: float, stopped: Callable[[], bool]) -> None:
        stopped()
        history.now += max(seconds, 0.0)
        assert history.now < began + 3600.0, f"it does not end: {history.kind}, {history.story}"

    with (
        mock.patch.object(LogSource, "__init__", init),
        mock.patch.object(LogSource, "_sleep", sleep),
        mock.patch.object(streamsvm.io.log_source, "FIRST_LINES", 20),
    ):
        yield


def main() -> None:
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    wrong = 0
    for seed in range(first, first + count):
        history = History(seed)
        if fault := history.play():
            wrong += 1
            print(seed, history.kind, history.story, fault, flush=True)
        if seed % 20 == 0:
            gc.collect()
        if (seed + 1 - first) % 1000 == 0:
            print(f"{seed + 1 - first} histories, {wrong} wrong", flush=True)


if __name__ == "__main__":
    main()
