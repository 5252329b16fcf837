"""Real processes, killed at random moments and started again until they end: the model file is that of an unbroken run.

test_resume.py stops runs between two batches, in one process. Here nothing is left of a process but its files, whatever
it was doing: reading, learning, writing a checkpoint or the cache, removing old ones, or going on after the last kill.

    STREAMSVM_KILL_SEED=n pytest tests/test_kill.py        the same kills again, as far as time lets them be the same
"""

import gzip
import json
import lzma
import os
import random
import re
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from streamsvm import load_model
from streamsvm.io import tensors
from streamsvm.io.generations import CHECKPOINT, NAME
from tests.whole_runs import A9A, lines

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

SERVER = Path(__file__).with_name("kill_server.py")
COMMAND = [sys.executable, "-c", "from streamsvm.cli import main; main()"]
ROWS = 1200
PACE = 0.001
STARTING = 0.05  # seconds until a child learns
MOMENTS = [
    "batch", "directory taken", "newest looked for", "run restored", "numbers copied", "checkpoint written",
    "piece of a checkpoint", "old one removed", "group written", "piece of a group", "cache cut off",
    "cache completed", "fsync", "rename", "unlink",
]  # fmt: skip


class Unbroken(NamedTuple):
    """An uninterrupted run without checkpoints."""

    model: bytes
    figures: dict[str, Any]
    batches: int
    seconds: float


class Kill(NamedTuple):
    """After so many seconds, or before or after a call of a function if that comes first."""

    after: float | None = None
    strike: tuple[str, int, bool] | None = None


class Server:
    """The other side of kill_server.py."""

    def __init__(self, process: subprocess.Popen[str], place: Path) -> None:
        self._process = process
        self._output = {"out": str(place / "out"), "err": str(place / "err")}

    def ask(self, words: list[str], kill: Kill = Kill(), *, fork: bool = True) -> dict[str, Any]:
        request = {"words": words, "fork": fork, "pace": PACE, **kill._asdict(), **self._output}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the server is gone: {Path(self._output['err']).read_text()}"
        return json.loads(answer)


@contextmanager
def started(place: Path) -> Iterator[Server]:
    """A server in a process group of its own, of which nothing is left in the end."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # no threads that nobody needs
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, str(SERVER)]
    with subprocess.Popen(command, env=environment, start_new_session=True, **pipes) as process:
        try:
            yield Server(process, place)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("server")) as running:
        yield running


# Data


def zstd(text: bytes) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd as codec
    else:
        from backports import zstd as codec
    return codec.compress(text)


CODECS: dict[str, Any] = {
    "": bytes,
    ".gz": lambda text: gzip.compress(text, mtime=0),
    ".zst": zstd,
    ".xz": lzma.compress,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows as text, and in files of several members of each kind; some rows in files of several kinds."""
    place = tmp_path_factory.mktemp("data")
    text = ("\n".join(lines(ROWS)) + "\n").encode()
    members = [text[a : a + 9000] for a in range(0, len(text), 9000)]
    for ending, compress in CODECS.items():
        (place / f"rows.svm{ending}").write_bytes(b"".join(map(compress, members)))
        few = ("\n".join(lines(ROWS // 4, seed=len(ending))) + "\n").encode()
        (place / f"part-{len(ending)}{ending}").write_bytes(compress(few))
    (place / "late.svm").write_text("\n".join(late_classes()) + "\n")
    return place


def late_classes() -> list[str]:
    """Only positive rows first, then those of a class that nobody expects."""
    first, rest = lines(ROWS)[:400], lines(ROWS)[400:]
    return [row for row in first if row[0] == "1"] + [row.replace("-1 ", "3 ", 1) for row in rest]


CASES = {
    "asgd, stream": "train rows.svm.gz",
    "sgd, cached": "train rows.svm --solver sgd --passes 3",
    "pegasos, mini-batches": "train rows.svm.zst --solver pegasos --set solver.batch_size=13 --passes 2 --shuffle 200",
    "sgdqn, shuffled stream": "train rows.svm.xz --solver sgdqn --shuffle 150",
    "zhang, several files": "train part-* --solver zhang --passes 2",
    "folos, in order": "train rows.svm.gz --solver folos --l1 1e-4 --passes 2 --shuffle 0",
    "adagrad, early stop": "train rows.svm --solver adagrad --holdout 7 --passes 5 --early-stop 1",
    "ftrl, several files": "train part-* --solver ftrl --loss logistic --l1 1e-4",
    "balanced stream": "train rows.svm.zst --class-weights balanced --shuffle 100",
    "balanced after counting": "train rows.svm --class-weights balanced --passes 2",
    "scaled after counting": "train rows.svm.gz --scale maxabs --passes 2 --holdout 5",
    "from the source": "train part-* --passes 2 --cache off --scale maxabs",
    "cache that is kept": "train rows.svm.xz --passes 2 --cache kept.arrow --solver pegasos",
    "classes found late": "train late.svm --passes 2",
    "certified": "train rows.svm --solver sgd --loss hinge --l2 1e-3 --passes 2 --objective",
    "tune": "tune rows.svm.gz --candidates 4 --passes 2",
    "tune several": "tune part-* --candidates 3 --solver asgd,ftrl --loss hinge,logistic",
    "tune shuffled": "tune rows.svm --candidates 2 --solver pegasos --passes 2 --shuffle 100",
}


# Runs


class Journey:
    """A run in `place` that is killed again and again; the seed decides when."""

    def __init__(self, server: Server, data: Path, place: Path, command: str) -> None:
        seed = os.environ.get("STREAMSVM_KILL_SEED")
        self.seed = int(seed) if seed else secrets.randbelow(10**9)
        self.random = random.Random(self.seed)
        self.history: list[tuple[Kill, int]] = []
        self.directory = place / "checkpoints"
        self._server = server
        self._model = place / "model.safetensors"
        verb, source, *flags = shlex.split(command)
        flags = [str(place / word) if word.endswith(".arrow") else word for word in flags]
        self._words = [verb, str(data / source), *flags, "-o", str(self._model), "--json"]
        self._kept = place / "kept.arrow"
        self._files_before = 0
        self._stand_before = (0, 0, 0)
        self._starts_over = "late" in source

    @property
    def kills(self) -> int:
        return sum(code == -signal.SIGKILL for _, code in self.history)

    def __str__(self) -> str:
        lives = "".join(f"\n  {kill.strike or ''} {kill.after or ''} -> {code}" for kill, code in self.history)
        return f"STREAMSVM_KILL_SEED={self.seed}: {shlex.join(self._words)}{lives}"

    def unbroken(self) -> Unbroken:
        answer = self._server.ask(self._words, fork=False)
        assert answer["code"] == 0, answer["err"]
        content = self._model.read_bytes()
        self._model.unlink()
        self._kept.unlink(missing_ok=True)
        return Unbroken(content, figures(answer), answer["batches"], answer["seconds"] + STARTING)

    def live(self, kill: Kill) -> dict[str, Any] | None:
        """One process; what it says if it comes to its end."""
        rows = str(self.random.choice([30, 60, 100]))
        resumable = ["--checkpoint", str(self.directory), "--every-rows", rows, "--resume"]
        answer = self._server.ask([*self._words, *resumable], kill)
        self.history.append((kill, answer["code"]))
        if answer["code"] == -signal.SIGKILL and not answer["stuck"]:
            self._check_checkpoints()
            return None
        assert answer["code"] == 0 and not answer["stuck"], f"{self}\n{answer['err']}"
        return answer

    def _check_checkpoints(self) -> None:
        """There are few, all of them are sound, and the newest is not behind the one that was newest before."""
        files = checkpoints_in(self.directory)
        assert len(files) <= max(3, self._files_before + 1), f"{self}\n{files}"
        assert files or not self._files_before, f"{self}\nall checkpoints are gone"
        notes: list[str] = []
        for path in [*files, *([self.directory] if files else [])]:
            load_model(str(path), notes.append)
        assert not notes, f"{self}\n{notes}"
        stand = standing(files[-1]) if files else (0, 0, 0)
        assert stand >= self._stand_before or self._starts_over, f"{self}\n{stand} after {self._stand_before}"
        self._files_before, self._stand_before = len(files), stand

    def travel(self, kills: list[Kill], expected: Unbroken) -> None:
        """Live until there is a model, which must be the one expected."""
        for kill in [*kills, Kill()]:
            newest = [path.name for path in checkpoints_in(self.directory)][-1:]
            if answer := self.live(kill):
                break
        assert answer is not None
        assert all(f"/{name}, " in answer["err"] for name in newest), f"{self}\ndid not go on:\n{answer['err']}"
        assert self._model.read_bytes() == expected.model, f"{self}\nanother model"
        assert figures(answer) == expected.figures, f"{self}\nother figures"
        left = {name for name in os.listdir(self.directory) if not NAME.fullmatch(name)}
        assert left == {".lock"}, f"{self}\n{left}"
        assert len(checkpoints_in(self.directory)) <= 2, str(self)

    def kills_of(self, count: int, expected: Unbroken) -> list[Kill]:
        """Two that certainly come, in a batch and in a checkpoint; then moments and times at random."""
        draw = self.random
        batch = Kill(strike=("batch", draw.randint(1, expected.batches // 2), draw.random() < 0.5))
        piece = Kill(strike=("piece of a checkpoint", draw.randint(1, 4), draw.random() < 0.5))
        return [batch, piece, *(self._any_kill(expected.seconds) for _ in range(count - 2))]

    def _any_kill(self, seconds: float) -> Kill:
        draw = self.random
        after = draw.uniform(0.0, 0.5 * seconds)
        if draw.random() < 0.5:
            return Kill(after)
        return Kill(after + 0.2 * seconds, (draw.choice(MOMENTS), draw.choice([1, 1, 2, 3, 5, 8]), draw.random() < 0.5))


def figures(answer: dict[str, Any]) -> dict[str, Any]:
    result = json.loads(answer["out"].splitlines()[-1])
    return {key: value for key, value in result.items() if key not in ("seconds", "model")}


def checkpoints_in(place: Path) -> list[Path]:
    return sorted(path for path in place.glob("checkpoint-*") if NAME.fullmatch(path.name))


def standing(path: Path) -> tuple[int, int, int]:
    """How far a checkpoint has come."""
    metadata = tensors.load(path.read_bytes(), path.name, [CHECKPOINT]).metadata
    found = json.loads(metadata["run"])["state"]["standing"]
    return ["prepare", "learn", "learned"].index(found["stage"]), found["pass"], found["examples"]


@pytest.mark.parametrize("case", CASES)
def test_killed_anywhere_the_model_is_the_same(server: Server, data: Path, tmp_path: Path, case: str) -> None:
    journey = Journey(server, data, tmp_path, CASES[case])
    expected = journey.unbroken()
    journey.travel(journey.kills_of(5, expected), expected)
    assert journey.kills >= 2, str(journey)
    print(case, journey)
