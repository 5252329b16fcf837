"""A hard limit: dcd learns data ten times as large as the memory, with the proof that the same rows have in memory.

The system refuses what goes beyond the memory in use after a first run plus the budget, so nothing is left to sampling.
"""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from streamsvm.config import load_settings
from streamsvm.training import train

COPIES, ROWS, LENGTH, WIDTH = 14, 30_000, 100, 4_000
BUDGET = 32_000_000  # the least that can be set
SCRIPT = """
import json, re, resource, sys, threading, time
import numba, numpy, pyarrow, streamsvm.training, streamsvm.cli.app
from streamsvm.config import load_settings
from streamsvm.training import train

def figure(name):
    return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024

class Listener:
    notes = []
    def note(self, text):
        self.notes.append(text)
    def progress(self, now):
        pass

path, copies, budget, l2, tol = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
settings = {"output.model": None, "run.memory": budget, "run.threads": 2, "solver.name": "dcd", "loss": "hinge",
            "penalty.l2": l2, "solver.tol": tol}
threading.stack_size(1 << 19)
few = settings | {"data.train": path, "data.limit": 9000}
train(load_settings(overrides=few | {"solver.passes": 2}))  # machine code in place, also for blocks
base, peak = figure("RssAnon"), [0]
limit = figure("VmData") + budget
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

def watch():
    while True:
        peak[0] = max(peak[0], figure("RssAnon"))
        time.sleep(0.002)

threading.Thread(target=watch, daemon=True).start()
outcome = train(load_settings(overrides=settings | {"data.train": [path] * copies}), Listener())
print(json.dumps({**outcome.result, "peak": peak[0] - base, "notes": Listener.notes}))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Rows of many small features."""
    rng = np.random.default_rng(0)
    steps = rng.integers(1, 2 * WIDTH // LENGTH, (ROWS, LENGTH))
    indices = np.minimum(np.cumsum(steps, axis=1), 3 * WIDTH)
    truth = rng.normal(size=3 * WIDTH + 1)
    scores = truth[indices].sum(axis=1) + 5.0 * rng.normal(size=ROWS)
    path = tmp_path_factory.mktemp("data") / "rows.svm"
    with path.open("w") as out:
        for row, score in zip(indices.tolist(), scores.tolist(), strict=True):
            out.write(("1" if score > 0 else "-1") + "".join(f" {j}:1" for j in row) + "\n")
    return str(path)


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="limits and figures are those of Linux")
def test_ten_times_the_memory_under_a_hard_limit(data: str) -> None:
    l2, tol = 0.3, 1e-2
    arguments = [data, str(COPIES), str(BUDGET), str(l2), str(tol)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert 8 * COPIES * ROWS * LENGTH > 10 * BUDGET  # what the cache takes at least
    assert any("blocks of" in note for note in found["notes"]), found["notes"]
    assert found["peak"] <= BUDGET, found["peak"]
    settings = {"data.train": data, "output.model": None, "solver.name": "dcd", "loss": "hinge", "penalty.l2": l2}
    resident = train(load_settings(overrides=settings | {"solver.tol": tol}, environ={})).result
    assert found["gap"] <= tol and resident["gap"] <= tol  # every row so many times has the same mean
    assert max(found["dual"], resident["dual"]) <= min(found["objective"], resident["objective"]) * (1.0 + 1e-9)
