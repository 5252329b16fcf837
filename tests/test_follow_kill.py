"""`follow` in real processes that are killed while a log is written and rotated: the model is that of an unbroken run.

pytest tests/test_follow_kill.py -m slow                       fifty kills and more
STREAMSVM_KILL_SEED=n pytest tests/test_follow_kill.py         the same chances again
"""

import os
import random
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from followed import append, rotate
from kill_client import Fate, Server, Strike, started
from signals import heard
from whole_runs import lines

from streamsvm import load_model

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

ROWS = lines(3000)
FIRST = 250  # rows that are there at the beginning
MOMENTS = [
    "batch", "batch", "directory taken", "newest looked for", "run restored", "numbers copied", "checkpoint written",
    "piece of a checkpoint", "old one removed", "model saved", "fsync", "rename", "unlink",
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with heard(), started(tmp_path_factory.mktemp("server")) as running:
        yield running


class Writer(threading.Thread):
    """Writes rows in pieces of any size, some of them parts of lines, and rotates the log now and then."""

    def __init__(self, log: Path, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._log = log
        self._chance = random.Random(chance.random())
        self._text = "".join(f"{row}\n" for row in ROWS[FIRST:])
        self.rotations = 0
        self.may_end = threading.Event()
        self.stopped = False

    def run(self) -> None:
        at = 0
        while at < len(self._text) and not self.stopped:
            size = self._chance.choice([1, 30, 500, 3000])
            if at > 0.8 * len(self._text) and not self.may_end.wait(0.01):
                continue
            piece = self._text[at : at + size]
            at += len(piece)
            append(self._log, piece)
            time.sleep(0.01 * self._chance.random())
            if self._chance.random() < 0.1 and piece.endswith("\n") or self._chance.random() < 0.05:
                end = self._text.find("\n", at) + 1 or len(self._text)
                append(self._log, self._text[at:end])  # a writer ends its line before it takes another file
                at = end
                rotate(self._log, keep=200)
                self.rotations += 1


def words(place: Path, *more: str) -> list[str]:
    quick = ["--set", "follow.poll=0.005", "--set", "follow.idle=0.1", "--rotate-wait", "0.05"]
    often = ["--every", "20ms", "--every-rows", "30", "--window", "4096"]
    log, model = str(place / "clicks.log"), str(place / "model.safetensors")
    return ["follow", log, "-o", model, "--stop-after", str(len(ROWS)), *quick, *often, *more]


def unbroken(server: Server, place: Path, *more: str) -> bytes:
    """The model of a run over all rows, in one file that is complete."""
    place.mkdir()
    append(place / "clicks.log", "".join(f"{row}\n" for row in ROWS))
    answer = server.ask(words(place, *more), fork=False)
    assert answer["code"] == 0, answer["err"]
    model = (place / "model.safetensors").read_bytes()
    shutil.rmtree(place)
    place.mkdir()
    return model


def killed(server: Server, place: Path, kills: int, *more: str) -> None:
    seed = int(os.environ.get("STREAMSVM_KILL_SEED") or secrets.randbelow(10**9))
    chance = random.Random(seed)
    expected = unbroken(server, place, *more)
    log = place / "clicks.log"
    append(log, "".join(f"{row}\n" for row in ROWS[:FIRST]))
    first = server.ask([*words(place, *more), "--stop-after", "100"])  # from now on there is a checkpoint
    assert "learned  100 rows" in first["out"], first["err"]
    writer = Writer(log, chance)
    writer.start()
    fates, done, warnings = [], 0, []
    try:
        while True:
            fate = Fate()
            if done == kills:
                writer.may_end.set()
            else:
                strike = Strike(chance.choice(MOMENTS), chance.choice([1, 1, 2, 3, 7]), chance.random() < 0.5)
                fate = Fate((strike,), 0.3) if chance.random() < 0.6 else Fate((), 0.02 + 0.25 * chance.random())
                if chance.random() < 0.2:
                    fate = fate._replace(strikes=(), number=signal.SIGTERM)
            fates.append(str(fate))
            answer = server.ask(words(place, *more), fate)
            warnings += [line for line in answer["err"].splitlines() if line.startswith(("warning", "going"))]
            if (place / "model.safetensors").exists():
                load_model(str(place / "model.safetensors"))  # whatever happened, it is whole
            if answer["code"] == 0 and "learned" in answer["out"] and "stopped by" not in answer["err"]:
                break
            assert answer["code"] in (0, -signal.SIGKILL, -signal.SIGTERM), f"seed {seed}: {answer['err']}"
            done += 1
    finally:
        writer.stopped = True
        writer.join()
    story = f"seed {seed}, {writer.rotations} rotations: {fates}\n{warnings}\n{answer['err']}"
    assert f"learned  {len(ROWS):,} rows" in answer["out"], story
    assert "problems" not in answer["out"], f"{story}\n{answer['out']}"
    assert (place / "model.safetensors").read_bytes() == expected, story
    assert done >= kills, f"only {done} kills"


def test_killed_while_it_follows(server: Server, tmp_path: Path) -> None:
    killed(server, tmp_path / "run", 10)


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--solver", "ftrl"], ["--forget", "5000"]])
def test_killed_again_and_again(server: Server, tmp_path: Path, more: list[str]) -> None:
    killed(server, tmp_path / "run", 60, *more)
