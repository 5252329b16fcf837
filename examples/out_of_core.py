"""Learn from a file that is larger than the memory for it, which the kernel of the operating system enforces.

    python examples/out_of_core.py

A file of 122 MB is made: 600,000 rows of 20 features, one label in ten wrong. After the imports, and a run on fewer
rows that loads (or compiles) all kernels, the process forbids itself to take more than 100 MB on top (RLIMIT_DATA):
whatever asks for more gets an error. Then it learns with a budget of 64 MB: by averaged SGD in three passes, of which
the last two read a cache on disk, and exactly, by dual coordinate descent, with a proof. The limit is above the budget
because it counts address space, such as the stacks of threads, and not only what is in use; that is measured.
"""

import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm import load_settings, train

MEMORY, LIMIT = 64_000_000, 100_000_000
ROWS, BLOCK, FEATURES = 600_000, 20_000, 20


def write_rows(path: Path, rows: int, seed: int) -> None:
    """`+1 1007:0.25 1081:0.93 ...`: one of 50 indices from each of 20 ranges, and a value of two digits."""
    truth = np.random.default_rng(0).standard_normal(FEATURES * 50)
    draw = np.random.default_rng(seed)
    first = np.arange(FEATURES) * 50
    text = np.tile(np.frombuffer(b"+1" + b" 1000:0.00" * FEATURES + b"\n", np.uint8), (BLOCK, 1))
    pairs = text[:, 2:-1].reshape(BLOCK, FEATURES, 10)
    with open(path, "wb") as file:
        for _ in range(rows // BLOCK):
            indices = first + draw.integers(0, 50, (BLOCK, FEATURES))
            hundredths = draw.integers(10, 100, (BLOCK, FEATURES))
            for place, digit in ((2, 100), (3, 10), (4, 1)):
                pairs[:, :, place] = ord("0") + indices // digit % 10
            for place, digit in ((8, 10), (9, 1)):
                pairs[:, :, place] = ord("0") + hundredths // digit % 10
            positive = (truth[indices] * hundredths).sum(axis=1) > 0
            text[:, 0] = np.where(positive != (draw.random(BLOCK) < 0.1), ord("+"), ord("-"))
            file.write(text.tobytes())


def status(field: str) -> int:
    """A figure of this process in bytes: RssAnon, its own memory that is in use; VmData, what counts for the limit."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{field}:")[1].split()[0]) * 1024


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """The largest memory in use, above that at the beginning, looked at a thousand times a second."""
    before, over, peak = status("RssAnon"), threading.Event(), [0]

    def look() -> None:
        while not over.wait(0.001):
            peak[0] = max(peak[0], status("RssAnon") - before)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


def learn(data: Path, test: Path, memory: int = MEMORY, **solver: Any) -> dict[str, Any]:
    settings = {"data.train": str(data), "data.test": str(test), "output.model": None, "run.memory": memory}
    return train(load_settings(overrides={**settings, **solver})).result


ASGD = {"solver.name": "asgd", "solver.passes": 3}
DCD = {"solver.name": "dcd", "loss": "hinge", "penalty.l2": 1e-5, "solver.tol": 0.01}

if __name__ == "__main__":
    if not sys.platform.startswith("linux"):
        sys.exit("this example reads /proc and sets RLIMIT_DATA: it needs Linux")
    with tempfile.TemporaryDirectory() as directory:
        data, test, few = (Path(directory, name) for name in ("train.svm", "test.svm", "few.svm"))
        for path, rows in ((data, ROWS), (test, 2 * BLOCK), (few, 10 * BLOCK)):
            write_rows(path, rows, seed=rows)
        for solver in (ASGD, DCD):
            learn(few, few, MEMORY // 2, **solver)

        limit = status("VmData") + LIMIT
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        print(f"data     {data.stat().st_size / 1e6:.0f} MB of text, {ROWS:,} rows")
        print(f"memory   {MEMORY / 1e6:.0f} MB; the kernel refuses all beyond {LIMIT / 1e6:.0f} MB")
        try:
            data.read_bytes()
        except MemoryError:
            print("whole    reading all of it at once: MemoryError")
        for solver in (ASGD, DCD):
            began = time.perf_counter()
            with peak_memory() as peak:
                result = learn(data, test, **solver)
            proven = f", at most {100 * result['gap']:.1f} % above the optimum" if result["gap"] else ""
            error, seconds = 100 * result["test"]["error"], time.perf_counter() - began
            print(
                f"{solver['solver.name']:8} test error {error:.2f} %{proven}; "
                f"{result['passes']} passes, {seconds:.1f} s, peak memory {peak[0] / 1e6:.0f} MB"
            )
