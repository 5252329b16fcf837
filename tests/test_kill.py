"""Real processes, killed at random moments and started again until they end: the model file is that of an unbroken run.

test_resume.py stops runs between two batches, in one process. Here nothing is left of a process but its files, whatever
it was doing: reading, learning, writing a checkpoint or the cache, removing old ones, or going on after the last kill.

    pytest tests/test_kill.py -m slow                      hundreds of kills
    STREAMSVM_KILL_SEED=n pytest tests/test_kill.py        the same kills again, as far as time lets them be the same
"""

import gzip
import json
import lzma
import os
import random
import secrets
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kill_client import PACE, UNHARMED, Fate, Server, Strike, started
from signals import NEVER, heard, wait_for
from whole_runs import A9A, lines

import streamsvm.cli
from streamsvm import interrupts, load_model
from streamsvm.io import tensors
from streamsvm.io.generations import CHECKPOINT, NAME

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

MAIN = "from streamsvm.cli import main; main()"
ROWS = 1200
STARTING = 0.05  # seconds until a child learns

STARTS = ["directory taken", "newest looked for", "run restored", "cache cut off"]
GOES_ON = [
    "batch", "numbers copied", "checkpoint written", "piece of a checkpoint", "old one removed",
    "group written", "piece of a group", "fsync", "rename", "unlink",
]  # fmt: skip
ENDS = ["cache completed", "model saved"]


class Unbroken(NamedTuple):
    """An uninterrupted run without checkpoints."""

    model: bytes
    figures: dict[str, Any]
    batches: int
    seconds: float


@pytest.fixture(scope="module", autouse=True)
def ctrl_c() -> Iterator[None]:
    """Ctrl-C is heard by the processes that are started here, also when these tests run in the background."""
    with heard():
        yield


@pytest.fixture(scope="module")
def server(ctrl_c: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
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
    """The same rows as text and in several members of each codec, some rows in a file for each, and special ones."""
    place = tmp_path_factory.mktemp("data")
    text = joined(lines(ROWS))
    members = [text[a : a + 9000] for a in range(0, len(text), 9000)]
    for ending, compress in CODECS.items():
        (place / f"rows.svm{ending}").write_bytes(b"".join(map(compress, members)))
        few = joined(lines(ROWS // 4, seed=len(ending)))
        (place / f"part-{len(ending)}{ending}").write_bytes(compress(few))
    (place / "many.svm").write_bytes(3 * text)
    (place / "bad.svm").write_bytes(joined(["1 3:x", *lines(ROWS)]))
    (place / "late.svm").write_bytes(joined(late_classes()))
    return place


def joined(rows: list[str]) -> bytes:
    return ("\n".join(rows) + "\n").encode()


def late_classes() -> list[str]:
    """Only positive rows first, then those of a class that nobody expects."""
    first, rest = lines(ROWS)[:400], lines(ROWS)[400:]
    return [row for row in first if row[0] == "1"] + [row.replace("-1 ", "3 ", 1) for row in rest]


# Runs


class Journey:
    """A run in `place` that is killed again and again; chance decides when, and begins with a seed."""

    def __init__(self, server: Server, data: Path, place: Path, command: str) -> None:
        self._seed = int(os.environ.get("STREAMSVM_KILL_SEED") or secrets.randbelow(10**9))
        self.random = random.Random(self._seed)
        self.directory = place / "checkpoints"
        self._server = server
        self._model = place / "model.safetensors"
        self._kept = place / "kept.arrow"
        verb, source, *flags = shlex.split(command)
        flags = [str(self._kept) if word == self._kept.name else word for word in flags]
        self.words = [verb, str(data / source), *flags, "-o", str(self._model), "--json"]
        self.expected = self._unbroken()
        self._history: list[str] = []
        self.kills = 0
        self._files: list[Path] = []
        self._progress = (0, 0, 0)
        self._starts_over = "late" in source

    def __str__(self) -> str:
        return "\n  ".join([f"STREAMSVM_KILL_SEED={self._seed}: {shlex.join(self.words)}", *self._history])

    def _unbroken(self) -> Unbroken:
        answer = self._server.ask(self.words, fork=False)
        assert answer["code"] == 0, answer["err"]
        content = self._model.read_bytes()
        self._model.unlink()
        self._kept.unlink(missing_ok=True)
        batches = answer["batches"]
        return Unbroken(content, figures(answer), batches, answer["seconds"] + PACE * batches)

    def live(self, fate: Fate = UNHARMED, *, every: int = 60) -> dict[str, Any]:
        """One process, from the last checkpoint on."""
        words = [*self.words, "--checkpoint", str(self.directory), "--every-rows", str(every), "--resume"]
        answer = self._server.ask(words, fate)
        self._history.append(f"{fate} -> {answer['code']}")
        if answer["code"] == -signal.SIGKILL:
            self.kills += 1
            self._check_checkpoints()
        return answer

    def _check_checkpoints(self) -> None:
        """There are few, all of them are sound, and the newest has come as far as any that was there before."""
        before, self._files = self._files, checkpoints_in(self.directory)
        assert len(self._files) <= 3, f"{self}\n{self._files}"
        assert self._files or not before, f"{self}\nall checkpoints are gone"
        if self._files:
            notes: list[str] = []
            for path in (self.directory, *self._files):
                load_model(str(path), notes.append)
            assert not notes, f"{self}\n{notes}"
            progress = standing(self._files[-1])
            assert progress >= self._progress or self._starts_over, f"{self}\n{progress} after {self._progress}"
            self._progress = progress

    def end(self) -> None:
        """A last process, unharmed: it goes on from the newest checkpoint to the model that is expected."""
        self.check_end(self.live())

    def check_end(self, answer: dict[str, Any]) -> None:
        assert answer["code"] == 0, f"{self}\n{answer['err']}"
        going_on = [line for line in answer["err"].splitlines() if line.startswith("going on from ")]
        assert all(path.name in " ".join(going_on) for path in self._files[-1:]), f"{self}\n{answer['err']}"
        assert self._model.read_bytes() == self.expected.model, f"{self}\nanother model"
        assert figures(answer) == self.expected.figures, f"{self}\nother figures"
        left = {name for name in os.listdir(self.directory) if not NAME.fullmatch(name)}
        assert left == {".lock"}, f"{self}\n{left}"
        assert len(checkpoints_in(self.directory)) <= 3, str(self)

    def travel(self, kills: int) -> None:
        """Up to so many kills: in the first third, then in turn anywhere and further on in what remains of the run."""
        early = struck(self._strike("batch", self.random.randint(1, max(self.expected.batches // 3, 1))))
        for number in range(kills):
            fate = early if number == 0 else self._any_kill() if number % 2 else self._later()
            answer = self.live(fate, every=self.random.choice([20, 40, 80]))
            if answer["code"] != -signal.SIGKILL:  # it was quicker
                assert self.kills, str(self)
                self.check_end(answer)
                return
        self.end()

    def _later(self) -> Fate:
        """In a batch of what remains; how many remain is known roughly, because not all have as many rows."""
        share = 1.0 - self._progress[2] / self.expected.figures["examples"]
        remaining = share * self.expected.batches
        return struck(self._strike("batch", max(round(self.random.uniform(0.2, 0.8) * remaining), 1)))

    def _any_kill(self) -> Fate:
        """At some time, or at some moment if that comes first."""
        after = self.random.uniform(0.0, STARTING + 1.2 * self.expected.seconds)
        if self.random.random() < 0.7:
            return Fate(after=after)
        moment = self.random.choice(STARTS + GOES_ON + ENDS)
        return Fate((self._strike(moment, self.random.choice([1, 1, 2, 3, 5, 8])),), after)

    def _strike(self, moment: str, call: int) -> Strike:
        return Strike(moment, call, self.random.random() < 0.5)


def struck(*strikes: Strike) -> Fate:
    return Fate(strikes)


def figures(answer: dict[str, Any]) -> dict[str, Any]:
    """What `--json` prints in the end, without times and names of files."""
    result = json.loads(answer["out"].splitlines()[-1])
    return {key: value for key, value in result.items() if key not in ("seconds", "model")}


def checkpoints_in(place: Path) -> list[Path]:
    return sorted(path for path in place.glob("checkpoint-*") if NAME.fullmatch(path.name))


def standing(path: Path) -> tuple[int, int, int]:
    """How far a checkpoint has come."""
    metadata = tensors.load(path.read_bytes(), path.name, [CHECKPOINT]).metadata
    found = json.loads(metadata["run"])["state"]["standing"]
    return ["prepare", "learn", "learned"].index(found["stage"]), found["pass"], found["examples"]


MINI_BATCHES = "--solver pegasos --set solver.batch_size=13"
CASES = {
    "asgd, stream": "train rows.svm.gz",
    "sgd, cached": "train rows.svm --solver sgd --passes 3",
    "pegasos, cache that is kept": f"train rows.svm.zst {MINI_BATCHES} --passes 2 --shuffle 200 --cache kept.arrow",
    "sgdqn, balanced stream": "train rows.svm.xz --solver sgdqn --shuffle 600 --class-weights balanced",
    "zhang, balanced after counting": "train part-* --solver zhang --passes 2 --class-weights balanced",
    "folos, scaled, in order": "train rows.svm.gz --solver folos --l1 1e-4 --passes 2 --shuffle 0 --scale maxabs",
    "adagrad, early stop": "train rows.svm --solver adagrad --eta0 2 --holdout 5 --passes 6 --early-stop 2",
    "ftrl, several files": "train part-* --solver ftrl --loss logistic --l1 1e-4",
    "from the source": "train part-* --passes 2 --cache off --scale standard",
    "classes found late": "train late.svm --passes 2",
    "certified": "train rows.svm --solver sgd --loss hinge --l2 1e-3 --passes 2 --objective",
    "tune": "tune rows.svm.zst --candidates 4 --passes 3 --shuffle 100",
    "tune several": "tune part-* --candidates 3 --solver asgd,ftrl --loss hinge,logistic",
}
MORE_CASES = {
    "mini-batches, stream": f"train rows.svm.gz {MINI_BATCHES}",
    "balanced, shuffled stream": "train rows.svm.zst --class-weights balanced --shuffle 100",
    "balanced": "train rows.svm --class-weights balanced --passes 2",
    "scaled, held out": "train rows.svm.gz --scale maxabs --passes 2 --holdout 5",
    "scaled stream": "train rows.svm.xz --scale maxabs --solver folos --l1 1e-4",
    "tune mini-batches": "tune rows.svm --candidates 2 --set solver.name=pegasos --set solver.batch_size=13 --passes 2",
    "tune, several passes": "tune rows.svm --candidates 5 --passes 3",
}


@pytest.mark.parametrize("case", CASES)
def test_killed_anywhere_the_model_is_the_same(server: Server, data: Path, tmp_path: Path, case: str) -> None:
    Journey(server, data, tmp_path, CASES[case]).travel(5)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES | MORE_CASES)
def test_killed_hundreds_of_times(server: Server, data: Path, tmp_path: Path, case: str) -> None:
    kills = 0
    while kills < 30:
        place = tmp_path / str(kills)
        place.mkdir()
        journey = Journey(server, data, place, (CASES | MORE_CASES)[case])
        journey.travel(10)
        kills += journey.kills


def test_killed_at_every_moment(server: Server, data: Path, tmp_path: Path) -> None:
    """Before and after everything that a process does to files, one kill after the other in the same run."""
    journey = Journey(server, data, tmp_path, "train many.svm --passes 2 --shuffle 100")
    journey.live(struck(Strike("checkpoint written", done=True)))  # from here on there is something to go on from
    first = [Strike(moment, done=done) for moment in STARTS + GOES_ON for done in (False, True)]
    journey.random.shuffle(first)
    for strike in first + [Strike(moment, done=done) for moment in ENDS for done in (False, True)]:
        assert journey.live(struck(strike), every=30)["code"] == -signal.SIGKILL, f"{journey}\nnot reached"
    journey.end()
    journey.end()  # and a run that had ended ends again


# Signals that can be answered


@contextmanager
def command(words: list[str], place: Path, code: str) -> Iterator[subprocess.Popen[str]]:
    place.mkdir(exist_ok=True)
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code, *words], cwd=place, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_checkpoint(process: subprocess.Popen[str], place: Path) -> None:
    """Until there is a new one: then it is learning."""
    before = checkpoints_in(place)[-1:]
    wait_for(lambda: process.poll() is not None or checkpoints_in(place)[-1:] != before)
    assert process.poll() is None, "ended by itself"


# Learns until there is something to go on from, and then nothing until a signal comes.
HELD = """
import time
from streamsvm import interrupts
from streamsvm.checkpoint import Checkpoints
from streamsvm.cli import main
from streamsvm.runs import Run

begin, tick, begun = Checkpoints._begin, Run._tick, []

def held(run, rows):
    tick(run, rows)
    while begun and interrupts._signal is None:
        time.sleep(0.001)

Checkpoints._begin = lambda *given: begun.append(begin(*given))
Run._tick = held
main()
"""


@pytest.mark.full
def test_stopped_by_signals_it_goes_on_as_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ["train", A9A, "--passes", "6", "-o", "model.safetensors"]
    words = [*plain, "--checkpoint", "my checkpoints", "--every-rows", "20000"]
    place, directory, unbroken = tmp_path / "broken", tmp_path / "broken/my checkpoints", tmp_path / "unbroken"
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        with command(words, place, HELD) as process:
            wait_for_checkpoint(process, directory)
            process.send_signal(number)
            *_, where, how = process.communicate(timeout=60)[1].splitlines()
        assert process.returncode == code
        newest = checkpoints_in(directory)[-1].name
        assert f"stopped by {number.name}" in where and f"my checkpoints/{newest}" in where
        assert how.startswith("to go on: streamsvm train ") and not (place / "model.safetensors").exists()
        words = shlex.split(how.removeprefix("to go on: streamsvm "))
        assert words[-1] == "--resume" and words.count("--resume") == 1
    with command(words, place, MAIN) as process:
        unbroken.mkdir()
        monkeypatch.chdir(unbroken)
        monkeypatch.setattr(sys, "argv", ["streamsvm", *plain])
        assert streamsvm.cli.run() == 0
        err = process.communicate(timeout=60)[1]
    assert process.returncode == 0 and newest in err, err
    assert (place / "model.safetensors").read_bytes() == (unbroken / "model.safetensors").read_bytes()


def test_a_signal_loses_nothing(server: Server, data: Path, tmp_path: Path) -> None:
    """The checkpoint that is taken then is the only one, and holds all batches so far."""
    journey = Journey(server, data, tmp_path, CASES["asgd, stream"])
    answer = journey.live(struck(Strike("batch", 20, number=signal.SIGTERM)), every=10**6)
    (newest,) = checkpoints_in(journey.directory)
    assert answer["code"] == 143 and standing(newest) > (1, 1, ROWS // 3)
    assert newest.name in answer["err"] and "to go on: " in answer["err"]
    journey.end()


CTRL_C = {
    "batch": [Strike("batch", 3, number=signal.SIGINT, stall=NEVER)],
    "checkpoint": [Strike("checkpoint written", number=signal.SIGINT, stall=NEVER)],
    "both": [
        Strike("checkpoint written", number=0, stall=NEVER),
        Strike("batch", 15, number=signal.SIGINT, stall=NEVER),
    ],
}


@pytest.mark.full
@pytest.mark.parametrize("busy", ["batch", "checkpoint", "both"])
def test_a_second_ctrl_c_ends_at_once(server: Server, data: Path, tmp_path: Path, busy: str) -> None:
    """The first one comes in a batch, or a checkpoint, that does not end; so there is no end until the second."""
    journey = Journey(server, data, tmp_path, CASES["asgd, stream"])
    answer = journey.live(Fate(tuple(CTRL_C[busy]), 2 * interrupts.TWICE, signal.SIGINT))
    assert answer["code"] == 130 and answer["err"].endswith("streamsvm: interrupted\n")
    journey.end()


def test_stopped_while_the_objective_is_measured(server: Server, data: Path, tmp_path: Path) -> None:
    """All passes are done by then, and there is a checkpoint that says so."""
    journey = Journey(server, data, tmp_path, CASES["certified"])
    answer = journey.live(struck(Strike("objective", 3, number=signal.SIGTERM)))
    newest = checkpoints_in(journey.directory)[-1]
    assert answer["code"] == 143 and standing(newest)[0] == 2
    assert newest.name in answer["err"] and "to go on: " in answer["err"]


def test_stopped_while_a_lost_cache_is_made_again(server: Server, data: Path, tmp_path: Path) -> None:
    """What had been learned is not lost."""
    journey = Journey(server, data, tmp_path, CASES["sgd, cached"])
    journey.live(struck(Strike("batch", journey.expected.batches * 2 // 3)))
    (journey.directory / "rows.arrow").unlink()
    before = standing(checkpoints_in(journey.directory)[-1])
    answer = journey.live(struck(Strike("group written", 5, number=signal.SIGTERM)))
    assert answer["code"] == 143 and before[1] == 2
    assert standing(checkpoints_in(journey.directory)[-1]) >= before


# What kills leave behind, and what they brought to light


def test_kills_after_a_rename_do_not_pile_up_checkpoints(server: Server, data: Path, tmp_path: Path) -> None:
    journey = Journey(server, data, tmp_path, CASES["asgd, stream"])
    for _ in range(4):
        journey.live(struck(Strike("rename", done=True)))
    assert len(checkpoints_in(journey.directory)) <= 3


def test_bad_rows_that_were_skipped_before_a_kill_are_reported(server: Server, data: Path, tmp_path: Path) -> None:
    journey = Journey(server, data, tmp_path, "train bad.svm --on-bad-row skip --passes 2")
    assert journey.expected.figures["bad_rows"] == 1
    journey.live(struck(Strike("batch", journey.expected.batches - 3)))
    journey.end()


def test_every_fourth_row_is_held_out_however_rows_are_cut(server: Server, data: Path, tmp_path: Path) -> None:
    """Killed when all rows are in the cache, and the last checkpoint is older: other batches come from there."""
    journey = Journey(server, data, tmp_path, "train rows.svm --holdout 4 --passes 2")
    assert journey.expected.figures["holdout"]["examples"] == ROWS // 4
    groups = -(-ROWS // 70)
    journey.live(struck(Strike("batch", journey.expected.batches - groups + 1)), every=ROWS // 2)
    assert (journey.directory / "rows.arrow").exists() and standing(checkpoints_in(journey.directory)[-1])[1] == 1
    journey.end()
