"""What workers do for dcd: climb on the dual variables of a shard, and scan its rows (agreement.py has the formulas).

Dual variables and the shard's memory are in storage after each round (versions.py). A worker that has them at hand does
not read them again; one that has not does, and then does the same.
"""

from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Float32s, Float64s
from streamsvm.distributed.agreement import Metric, paces
from streamsvm.distributed.job import Job, OpenShard, guarded, open_shard
from streamsvm.distributed.versions import load_version, new_name, save_version
from streamsvm.distributed.work import groups_for
from streamsvm.runs import make_problem
from streamsvm.scoring import Offset
from streamsvm.solvers import make_batch_solver, make_class_solver
from streamsvm.solvers.batch import Limits, Surroundings
from streamsvm.solvers.descent import Descent
from streamsvm.solvers.units import Measured, sum_of_squares

FOREVER = 1 << 60  # passes; the driver says when it is enough
VECTORS = 5  # as long as the weights, that a shard has beside its solver


class Standing(NamedTuple):
    """Where all shards stand together, and this one."""

    round: int
    l2: float
    classes: int
    version: str | None  # what is in storage of it; None: all zero
    rest_beyond: Float64s | None  # None: as it is before anything was learned


@guarded
def squares(job: Job, number: int) -> Any:
    """The sum of c x^2 for each feature of a shard, and that of the bias."""
    with open_shard(job, number) as shard:
        total = sum_of_squares(groups_for(shard, job))
        total[-1] *= make_problem(shard.settings, shard.settings.loss, 1.0, 0.0).bias.gain
        shard.beat()
        return total, None


def descent_of(shard: OpenShard, job: Job, standing: Standing) -> Descent:
    """The solver of a shard."""
    settings = shard.settings
    if shard.solver is None:
        groups = Measured(groups_for(shard, job))
        problem = make_problem(settings, settings.loss, standing.l2, 0.0)
        memory = settings.run.memory - VECTORS * 8 * (groups.width + 1) * max(standing.classes, 1)
        around = Surroundings(memory=memory, seed=settings.run.seed, limits=Limits(passes=FOREVER), tick=shard.tick)
        if standing.classes:
            solver: Any = make_class_solver(settings.multiclass_rule, problem, groups, around, standing.classes)
        else:
            solver = make_batch_solver("dcd", problem, groups, around)
        shard.solver, shard.standing, shard.rest_beyond = solver, None, solver.rest_beyond()
    elif shard.solver.problem.l2 != standing.l2:
        shard.solver.with_penalty(standing.l2)
    return shard.solver


def stand(shard: OpenShard, job: Job, standing: Standing, weights: Float64s, storage: str) -> Descent:
    """The solver, with the dual variables that are wanted."""
    solver = descent_of(shard, job, standing)
    have = shard.standing[0] if shard.standing is not None else None
    alpha: Float64s | None = None
    if standing.version is None:
        alpha, shard.memory = np.zeros_like(solver.alpha), np.zeros_like(weights)
    elif have != standing.version:
        alpha, shard.memory = load_version(storage, standing.version, solver.alpha.shape)
    solver.take_up(weights, alpha, shard.rest_beyond if standing.rest_beyond is None else standing.rest_beyond)
    shard.standing = (standing.version or "", -1)
    return solver


@guarded
def scan(job: Job, number: int, standing: Standing, weights: Float64s, storage: str) -> Float64s:
    """What a shard adds to the exact figures of these weights, and of its dual variables."""
    with open_shard(job, number) as shard:
        means = stand(shard, job, standing, weights, storage).scan_means()
        shard.standing = (standing.version or "", standing.round)
        shard.beat()
        return means


class Climbed(NamedTuple):
    """What a shard has learned in a round, beside how far it has moved the weights."""

    version: str
    rest_beyond: Float64s


@guarded
def climb(
    job: Job,
    number: int,
    standing: Standing,
    weights: Float64s,
    anchor: Float64s | None,
    metric: Metric,
    squares: Float64s,
    storage: str,
    sweeps: int,
) -> Any:
    """Learn from a shard: what it adds to the weights that all dual variables make; its own are in storage then.

    `weights` are those that all agree upon; with an `anchor` it takes that for its memory.
    """
    with open_shard(job, number) as shard:
        if shard.standing != (standing.version or "", standing.round):
            stand(shard, job, standing, weights, storage).scan_means()
        solver, shard.standing = descent_of(shard, job, standing), None
        units = metric.units(squares)
        memory = metric.recalled(shard.memory if anchor is None else anchor, weights, units, squares)
        solver.measure_in(units)
        moved = solver.climb(2.0 * weights - memory, standing.round * sweeps, sweeps)
        shard.memory = metric.remembered(memory, weights, moved)
        moved /= paces(units, weights)
        version = new_name(job.name, number, standing.round + 1)
        save_version(storage, version, solver.alpha, shard.memory)
        shard.standing = (version, -1)
        shard.beat()
        return moved, Climbed(version, solver.rest_beyond())


@guarded
def begin_from(job: Job, number: int, standing: Standing, weights: Float32s, bias: Offset, storage: str) -> Any:
    """Dual variables as known weights suggest them: the weights that they make, and where they are."""
    with open_shard(job, number) as shard:
        solver = descent_of(shard, job, standing)
        solver.measure_in(np.ones(len(solver.weight_table)))
        solver.start_from(weights, bias)
        made = solver.combined()
        version = new_name(job.name, number, standing.round)
        save_version(storage, version, solver.alpha, made[:0])
        shard.standing, shard.memory = (version, -1), made[:0]
        return made, Climbed(version, solver.rest_beyond())
