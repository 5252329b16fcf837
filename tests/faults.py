"""A checkpoint is written while the file system fails: every call of it, in every way. A process of its own.

    LD_PRELOAD=faults.so python faults.py faults.so DIRECTORY

prints what happened, as JSON: the calls of a write that goes well, and one report for each kind of fault and each call.
Nothing is judged here; the test does that. In each case a child process, forked, goes on from two good checkpoints and
writes a third under the fault. If that is reported as an error it tries again. Then a process without faults looks at
what is there, and writes one more.
"""

import contextlib
import ctypes
import errno
import functools
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamsvm.errors import ModelError, SourceError
from streamsvm.io import tensors
from streamsvm.io.files import read_whole
from streamsvm.io.generations import CHECKPOINT, Generations

FAIL, FAIL_FROM_HERE, SHORTEN, SHORTEN_THEN_FAIL, END_BEFORE, END_HALFWAY, END_AFTER = range(1, 8)  # as in faults.c


class Kind(NamedTuple):
    """A way to fail."""

    action: int
    error: int = 0


ERRORS = ("EIO", "ENOSPC", "EROFS", "EACCES", "EINTR")
KINDS = {
    **{f"{name} once": Kind(FAIL, getattr(errno, name)) for name in ERRORS},
    **{f"{name} from here": Kind(FAIL_FROM_HERE, getattr(errno, name)) for name in ("ENOSPC", "EROFS")},
    "short write": Kind(SHORTEN),
    "short write, then full": Kind(SHORTEN_THEN_FAIL, errno.ENOSPC),
    "end before": Kind(END_BEFORE),
    "end halfway": Kind(END_HALFWAY),
    "end after": Kind(END_AFTER),
}
ENDED = 137
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where fsync takes no time


@functools.cache
def content(seed: int) -> tuple[dict[str, str], dict[str, Any]]:
    """Something to write, a few hundred KB; the last bytes are few, and wait in a buffer until they are flushed."""
    rng = np.random.default_rng(seed)
    arrays = {"a": rng.random(20_000), "b": rng.random(30_000).astype(np.float32), "c": np.arange(seed, 20_000)}
    return {"seed": str(seed)}, arrays | {"d": np.array([True, False, True])}


def found(place: Path) -> dict[str, Any]:
    """The newest checkpoint, and all that are sound, as a process sees them that knows of nothing."""
    notes: list[str] = []
    files = Generations(str(place))
    newest = files.newest(notes.append)
    return {
        "number": newest and newest.number,
        "seed": newest and int(newest.content.metadata["seed"]),
        "notes": notes,
        "sound": [number for number in files.numbers() if is_sound(files.url(number))],
    }


def is_sound(path: str) -> bool:
    """Whether a file holds exactly what was to be written."""
    try:
        read = tensors.load(read_whole(path), path, [CHECKPOINT])
    except ModelError:
        return False
    _, arrays = content(int(read.metadata["seed"]))
    return set(arrays) == set(read.arrays) and all(np.array_equal(read.arrays[name], arrays[name]) for name in arrays)


def attempt(files: Generations, seed: int) -> str:
    """Write one; in a word, how it went."""
    try:
        files.write(*content(seed))
        return "written"
    except SourceError as error:
        return f"SourceError: {error}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


def child(shim: ctypes.CDLL, place: Path, kind: Kind, at: int) -> dict[str, Any]:
    """Write a third checkpoint under a fault; if it could not be written, look at what is there, and try again."""
    files = Generations(str(place))
    files.newest(lambda text: None)
    shim.faults_arm(os.fsencode(place), kind.action, at, kind.error)
    report: dict[str, Any] = {"outcome": attempt(files, 2)}
    shim.faults_disarm()
    report |= {"hits": shim.faults_hits(), "reached": shim.faults_seen() >= at}
    if report["outcome"] != "written":
        report |= {"meanwhile": found(place), "again": attempt(files, 3)}
    return report


def in_child(*arguments: Any) -> dict[str, Any]:
    """What `child` reports, from a process that may end before it can."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        with contextlib.suppress(BaseException):
            os.write(writing, json.dumps(child(*arguments)).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        text = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code == ENDED:
        return {"outcome": "ended", "hits": 1, "reached": True}
    return dict(json.loads(text))


def parts(place: Path) -> list[str]:
    return sorted(name for name in os.listdir(place) if name.endswith(".part"))


def case(shim: ctypes.CDLL, good: Path, place: Path, kind: Kind, at: int) -> dict[str, Any]:
    """One fault, and all that comes after it."""
    shutil.copytree(good, place)
    report = in_child(shim, place, kind, at)
    report |= {"found": found(place), "parts": parts(place)}
    files = Generations(str(place))
    files.take()
    files.newest(lambda text: None)
    report |= {"next": attempt(files, 4), "finally": found(place), "names": sorted(os.listdir(place))}
    files.release()
    shutil.rmtree(place)
    return report


def main(library: str, directory: str) -> None:
    shim = ctypes.CDLL(library)
    shim.faults_notes.restype = ctypes.c_char_p
    good, place = Path(directory) / "good", Path(directory) / "place"
    files = Generations(str(good))
    outcomes = [attempt(files, seed) for seed in (0, 1)]
    shutil.copytree(good, place)
    files = Generations(str(place))
    files.newest(lambda text: None)
    shim.faults_arm(os.fsencode(place), 0, 0, 0)
    outcomes.append(attempt(files, 2))
    shim.faults_disarm()
    assert outcomes == ["written"] * 3, outcomes
    calls = shim.faults_notes().decode().splitlines()
    shutil.rmtree(place)
    cases = []
    for name, kind in KINDS.items():
        at, reached = 1, True
        while reached:
            report = case(shim, good, place, kind, at)
            cases.append({"kind": name, "at": at, **report})
            at, reached = at + 1, report["reached"]
    numba = sorted(name for name in sys.modules if name.split(".")[0] == "numba")
    print(json.dumps({"calls": calls, "cases": cases, "numba": numba}))


if __name__ == "__main__":
    main(*sys.argv[1:])
