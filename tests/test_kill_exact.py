"""dcd in real processes, killed at random moments and started again until done: what it proves in the end is true.

STREAMSVM_KILL_SEED=n pytest tests/test_kill_exact.py        the same kills again, as far as time lets them be the same
"""

import json
import os
import random
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from certificates import dual, liblinear_vector, primal, rows_in
from test_kill import PACE, STARTING, UNHARMED, Fate, Server, Strike, checkpoints_in, started

from streamsvm import load_model
from streamsvm.io import tensors
from streamsvm.io.generations import CHECKPOINT
from streamsvm.losses import make_loss
from streamsvm.penalties import L2
from streamsvm.solvers.base import Problem

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

TOL = 1e-2
CASES = {  # loss, rows, features, l2, whether they stay in memory
    "resident": ("logistic", 600, 30, 1e-2, "stay in memory"),
    "blocks": ("hinge", 900, 1100, 0.5, "blocks of"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("server")) as running:
        yield running


def written(path: Path, rows: int, features: int) -> str:
    """Rows that have all features, in one digit, and noise."""
    rng = np.random.default_rng(features)
    matrix = rng.integers(-3, 4, (rows, features))
    scores = matrix @ rng.normal(size=features)
    scores += scores.std() * rng.normal(size=rows)
    with path.open("w") as out:
        for row, score in zip(matrix.tolist(), scores.tolist(), strict=True):
            out.write(("1" if score > 0 else "-1") + "".join(f" {j}:{v}" for j, v in enumerate(row)) + "\n")
    return str(path)


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
def test_killed_anywhere_the_proof_in_the_end_is_true(server: Server, tmp_path: Path, case: str) -> None:
    seed = int(os.environ.get("STREAMSVM_KILL_SEED") or secrets.randbelow(10**9))
    chance = random.Random(seed)
    loss, count, features, l2, how = CASES[case]
    data, kept, saved = written(tmp_path / "rows.svm", count, features), tmp_path / "kept", str(tmp_path / "m.st")
    flags = f"--solver dcd --loss {loss} --l2 {l2} --tol {TOL} --memory 32MB --json"
    words = ["train", data, *flags.split(), "-o", saved]
    plain = server.ask(words, fork=False)
    assert plain["code"] == 0 and how in plain["err"], plain["err"]
    problem = Problem(make_loss(loss), L2(l2))
    rows = rows_in(data, features, problem)
    least = primal(rows, problem, liblinear_vector(rows, problem, loss, 1e-6))  # no proof may go beyond it
    Path(saved).unlink()
    words += ["--checkpoint", str(kept), "--every", "0.05s", "--resume"]
    seconds, kills = plain["seconds"] + PACE * plain["batches"], 0
    early = Fate((Strike("batch", chance.randint(plain["batches"] // 4, plain["batches"] // 2)),))
    later = [Fate(after=STARTING + chance.uniform(0.3, 1.0) * seconds) for _ in range(2)]
    for fate in (early, *later, UNHARMED):
        answer = server.ask(words, fate)
        if answer["code"] == 0:
            break
        assert answer["code"] == -signal.SIGKILL, f"STREAMSVM_KILL_SEED={seed}\n{answer['err']}"
        kills += 1
        for path in checkpoints_in(kept)[-1:]:
            content = tensors.load(path.read_bytes(), path.name, [CHECKPOINT])
            alpha = content.arrays.get("state.own.solver.alpha")
            assert alpha is None or dual(rows, problem, np.array(alpha)) <= least * (1.0 + 1e-9), seed
    result, model = json.loads(answer["out"].splitlines()[-1]), load_model(saved)
    found = primal(rows, problem, np.append(model.weights.astype(float), model.bias))
    assert kills >= 1 and result["gap"] <= TOL, f"STREAMSVM_KILL_SEED={seed}"
    assert result["objective"] == pytest.approx(found, rel=1e-6), f"STREAMSVM_KILL_SEED={seed}"
    assert result["dual"] <= least * (1.0 + 1e-9) and (found - result["dual"]) / found <= TOL + 1e-6
    assert found <= least / (1.0 - TOL) * (1.0 + 1e-6) and model.provenance["gap"] == result["gap"]
