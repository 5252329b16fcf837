"""How fast a solver goes over rows in memory, in a process of its own: pass_rate.py SOLVER LOSS ETA0 CASE DATA REPEAT.

    natural   the rows as they are, further passes: as many rows take a step as in practice
    spread    every feature of every row at a weight of its own, drawn from 2^24: each access misses the caches.
              The solver starts from nothing each time, or it would know all rows by heart and hardly take a step

ETA0 is a number, or auto. Compiling is outside the clock. Prints {"features": n, "bytes_per_weight": n, "seconds": []}.
"""

import json
import sys
import time

import numpy as np
from streamsvm import open_stream
from streamsvm.batch import Batch, concatenate
from streamsvm.losses import make_loss
from streamsvm.penalties import make_penalty
from streamsvm.solvers import OnlineSolver, make_solver
from streamsvm.solvers.base import Problem

L2 = 1e-5
WEIGHTS = 1 << 24


def rows_of(path: str) -> Batch:
    rows = concatenate([batch.copy() for batch in open_stream(path)])
    return rows._replace(labels=(rows.labels > 0).astype(np.float32))


def spread(rows: Batch) -> Batch:
    """The same rows with random indices; the rare pair that meets in one row becomes one feature."""
    drawn = np.random.default_rng(0).integers(WEIGHTS, size=rows.features)
    row = np.repeat(np.arange(rows.rows), np.diff(rows.indptr))
    places, first = np.unique(row * WEIGHTS + drawn, return_index=True)
    indptr = np.searchsorted(places, np.arange(rows.rows + 1) * WEIGHTS)
    return rows._replace(indptr=indptr, indices=(places % WEIGHTS).astype(np.uint32), values=rows.values[first])


def learned(name: str, problem: Problem, eta0: str, rows: Batch) -> OnlineSolver:
    """The solver after a first pass, for which it chose its step size if none is given."""
    solver = make_solver(name, problem, **({} if eta0 == "auto" else {"eta0": float(eta0)}))
    solver.begin_pass(1)
    solver.learn(rows)
    solver.end_pass()
    return solver


def unlearned(name: str, problem: Problem, like: OnlineSolver) -> OnlineSolver:
    options = {"eta0": like.step_size} if like.has_step_size else {}
    return make_solver(name, problem, dim=WEIGHTS, **options)


def main(name: str, loss: str, eta0: str, case: str, path: str, repeat: str) -> None:
    rows = rows_of(path)
    if case == "spread":
        rows = spread(rows)
    problem = Problem(make_loss(loss), make_penalty(L2, 0.0))
    solver = learned(name, problem, eta0, rows)
    if case == "spread":
        solver = unlearned(name, problem, solver)
        nothing = solver.state()
    seconds = []
    for _ in range(int(repeat)):
        if case == "spread":
            solver.restore(nothing)
        started = time.perf_counter()
        if solver.run(rows) >= 0:
            raise SystemExit(f"{name} diverged")
        seconds.append(time.perf_counter() - started)
    print(json.dumps({"features": rows.features, "bytes_per_weight": 4 * solver.columns, "seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
