"""Many penalties, solvers and losses trained side by side in one reading of the data; the best becomes the model.

Parsing is what costs, so all candidates learn each batch while it is there (contest.py). Each is exactly what `train`
would give with its settings, on this machine or on a cluster.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from streamsvm.checkpoint import Checkpoints
from streamsvm.config import SOLVER_SETTINGS, Settings, expand
from streamsvm.contest import Candidate
from streamsvm.errors import ConfigError
from streamsvm.io.overwriting import refuse_overwriting
from streamsvm.passes import Passes
from streamsvm.progress import Listener, Silent
from streamsvm.report.writing import recorded
from streamsvm.runs import make_problem
from streamsvm.solvers import SOLVERS, make_solver
from streamsvm.training import Outcome, checkpointed, finish
from streamsvm.tuning_run import TuningRun

DEFAULT_HOLDOUT = 10


def tune(settings: Settings, listener: Listener = Silent(), *, client: Any = None) -> Outcome:
    """Try every candidate that `settings.tune` describes, save the best model, evaluate it on the test data.

    With `settings.checkpoint` a search that was killed can go on later, as `train` can. With `settings.cluster`, or a
    Dask `client`, the workers of a cluster read and learn.

    >>> from streamsvm import load_settings, tune
    >>> given = {"data.train": "examples/data/a9a.train.svm.gz", "output.model": None, "tune.candidates": 4}
    >>> model, result = tune(load_settings(overrides=given))
    >>> len(result["candidates"]), result["l2"] in [candidate["l2"] for candidate in result["candidates"]]
    (4, True)
    """
    started = time.perf_counter()
    if not settings.data.holdout:
        settings = settings.model_copy(update={"data": settings.data.model_copy(update={"holdout": DEFAULT_HOLDOUT})})
    refuse_overwriting(settings.outputs(), settings.inputs(), expand)
    candidates = candidates_of(settings)
    listener = recorded(settings, listener)
    with _prepared(settings, listener, client) as (passes, checkpoints, kind):
        run = kind(settings, candidates, passes, checkpoints, listener, started)
        run.learn()
        chosen_settings, model, result, sample = run.outcome()
    return finish("tune", chosen_settings, model, result, passes.stream, listener, sample)


@contextmanager
def _prepared(
    settings: Settings, listener: Listener, client: Any
) -> Iterator[tuple[Passes, Checkpoints, type[TuningRun]]]:
    """The passes of a run, its checkpoints, and what kind of run it is: on this machine, or on a cluster."""
    if settings.cluster.at is None and client is None:
        with checkpointed(settings, "tune", listener) as (passes, checkpoints):
            yield passes, checkpoints, TuningRun
        return
    from streamsvm.distributed.running import clustered
    from streamsvm.distributed.tuning import ClusterTuning

    with clustered("tune", settings, listener, None, client) as (passes, checkpoints):
        yield passes, checkpoints, ClusterTuning


def candidates_of(settings: Settings) -> list[Candidate]:
    """All combinations; ConfigError if a solver cannot minimise one of the penalties."""
    tuned, penalty = settings.tune, settings.penalty
    if tuned.solver is None and settings.solver.name not in SOLVERS:
        raise ConfigError(
            f"solver {settings.solver.name} cannot be tuned side by side: use train --path, or --solver with one of "
            f"{', '.join(SOLVERS)}"
        )
    if penalty.C is not None:
        raise ConfigError("penalty.C cannot be tuned: tune.l2 names the penalties to try")
    if settings.solver.init is not None:
        raise ConfigError("solver.init cannot be used here: all candidates of tune begin at zero")
    if settings.solver.early_stop is not None:
        raise ConfigError("solver.early_stop cannot be used here: in tune the worse half retires after each pass")
    l2s = grid(tuned.l2, tuned.candidates) if tuned.l2 is not None else [penalty.l2 or 0.0]
    l1s = grid(tuned.l1, tuned.candidates) if tuned.l1 is not None else [penalty.l1 or 0.0]
    found = [
        Candidate(solver, loss, l2, l1)
        for solver in tuned.solver or (settings.solver.name,)
        for loss in tuned.loss or (settings.loss,)
        for l1 in l1s
        for l2 in l2s
    ]
    for candidate in found:
        if settings.multiclass_rule not in SOLVER_SETTINGS[candidate.solver].rules:
            raise ConfigError(f"multiclass: solver {candidate.solver} cannot learn by {settings.multiclass_rule}")
        make_solver(candidate.solver, make_problem(settings, candidate.loss, candidate.l2, candidate.l1))
    return found


def grid(spec: str | tuple[float, ...], count: int) -> list[float]:
    """The values of a list, or `count` values of a range, evenly spaced on a log scale, to three digits."""
    if not isinstance(spec, str):
        return list(spec)
    low, high = (float(end) for end in spec.split(".."))
    values = np.geomspace(low, high, count) if count > 1 else [math.sqrt(low * high)]
    return list(dict.fromkeys(float(f"{value:.3g}") for value in values))
