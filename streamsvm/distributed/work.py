"""What workers do. Each is a function of what it is given: a lost worker's work is done again by another.

What is open on a worker (job.py) makes it quicker, and changes nothing: a solver that does not stand where it should
is put there, with dual variables from storage, and scores that are missing are computed again.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Batch, Float32s, Float64s, Int64s
from streamsvm.distributed.job import Facts, Job, OpenShard, close_all, guarded, open_shard
from streamsvm.distributed.versions import load_version, new_name, save_version
from streamsvm.features.scaling import Scaling
from streamsvm.online_training import solver_options
from streamsvm.runs import make_online, make_problem
from streamsvm.scoring import Offset, losses_of, score_rows
from streamsvm.solvers import make_batch_solver, make_class_solver
from streamsvm.solvers.base import LOSS, SEEN, WEIGHT, WRONG, OnlineSolver, Problem, T
from streamsvm.solvers.batch import Limits, Surroundings
from streamsvm.solvers.descent import Descent
from streamsvm.solvers.sums import Other, Sums

FOREVER = 1 << 60  # passes; the driver says when it is enough


class Survey(NamedTuple):
    """What a shard holds, as it is written."""

    starts: Int64s  # of its groups
    totals: dict[float, float]  # weight of the rows with each label
    bytes: int
    bad_rows: int
    faults: list[str]


class Weighed(NamedTuple):
    """What a shard holds, as it is learned from."""

    starts: Int64s
    features: Int64s  # of its groups
    width: int
    weight: float


@guarded
def survey(job: Job, number: int) -> Survey:
    """Parse a shard into the worker's cache."""
    with open_shard(job, number) as shard:
        passes = shard.filled()
        tally = shard.stream.tally
        return Survey(passes.starts(), passes.summary()[1], tally.bytes, tally.bad_rows, tally.faults)


@guarded
def count_scales(job: Job, number: int, kind: str, dim: int, dense: int | None) -> dict[str, Any]:
    """The sizes of the features in a shard."""
    with open_shard(job, number) as shard:
        scaling = Scaling(kind, dim=dim, memory=job.settings.run.memory, dense=dense)
        with closing(shard.filled().batches(2)) as batches:
            for batch in batches:
                scaling.see(batch._replace(weights=np.abs(batch.weights)))
                shard.tick(batch.rows)
        return scaling.state()


@guarded
def rows_at(job: Job, number: int, rows: Int64s) -> Batch:
    """Some rows of a shard."""
    with open_shard(job, number) as shard:
        shard.filled()
        return shard.feed.rows_at(rows)


@guarded
def weigh(job: Job, number: int, feed: dict[str, Any]) -> Weighed:
    """How much there is to learn from in a shard."""
    with open_shard(job, number) as shard:
        groups = shard.ready(Facts(feed, 0, 0.0))
        return Weighed(groups.starts, groups.features, groups.width, groups.weight)


def close(name: str) -> None:
    """The run is over: free what this worker has of it."""
    close_all(name)


# dcd.


class Standing(NamedTuple):
    """Where all shards stand together, and this one."""

    round: int
    l2: float
    shards: int
    classes: int
    version: str | None  # its dual variables in storage; None: all zero
    rest_beyond: Float64s | None


def descent_of(shard: OpenShard, job: Job, standing: Standing) -> Descent:
    """The solver of a shard: its steps are for weights that move `shards` times as far as by its own rows alone."""
    groups, settings = _groups(shard, job), shard.settings
    l2 = standing.l2 / standing.shards
    if shard.solver is None:
        problem = make_problem(settings, settings.loss, l2, 0.0)
        around = Surroundings(
            memory=settings.run.memory, seed=settings.run.seed, limits=Limits(passes=FOREVER), tick=shard.tick
        )
        if standing.classes:
            solver: Any = make_class_solver(settings.multiclass_rule, problem, groups, around, standing.classes)
        else:
            solver = make_batch_solver("dcd", problem, groups, around)
        shard.solver, shard.standing = solver, None
    elif shard.solver.problem.l2 != l2:
        shard.solver.with_penalty(l2)
    return shard.solver


def stand(shard: OpenShard, job: Job, standing: Standing, vector: Float64s, storage: str) -> Descent:
    """The solver, with the dual variables that are wanted."""
    solver = descent_of(shard, job, standing)
    have = shard.standing[0] if shard.standing is not None else None
    alpha: Float64s | None = None
    if standing.version is None:
        alpha = np.zeros_like(solver.alpha)
    elif have != standing.version:
        alpha = load_version(storage, standing.version, solver.alpha.shape)
    solver.take_up(vector, alpha, standing.rest_beyond)
    shard.standing = (standing.version or "", -1)
    return solver


class Scanned(NamedTuple):
    """What a shard adds to the exact figures; and which way its rows between their bounds lean, if that is wanted."""

    means: Float64s
    rows: Float64s | None  # the mean of c x over these rows
    lean: float


@guarded
def scan(job: Job, number: int, standing: Standing, vector: Float64s, storage: str, leaning: bool) -> Scanned:
    """Look at the rows of a shard at fixed weights and dual variables."""
    with open_shard(job, number) as shard:
        solver: Any = stand(shard, job, standing, vector, storage)
        means = solver.scan_means()
        rows, lean = solver.lean() if leaning else (None, 0.0)
        shard.standing = (standing.version or "", standing.round)
        shard.beat()
        return Scanned(means, rows, lean)


class Climbed(NamedTuple):
    """What a shard has learned in a round, beside how far it has moved the weights."""

    version: str
    rest_beyond: Float64s


@guarded
def climb(
    job: Job,
    number: int,
    standing: Standing,
    vectors: tuple[Float64s, Float64s],
    shift: float,
    storage: str,
    sweeps: int,
) -> Any:
    """Learn from a shard: by how much it moves the weights, and its new dual variables, in storage.

    `vectors` are the weights that were scanned, and those from which to learn, in which the shift of all shards is.
    """
    with open_shard(job, number) as shard:
        if shard.standing != (standing.version or "", standing.round):
            stand(shard, job, standing, vectors[0], storage).scan_means()
        solver: Any = descent_of(shard, job, standing)
        shard.standing = None
        cut = solver.shift(shift) / standing.l2 if shift else 0.0
        solver.weight_table[:] = vectors[1]
        moved = solver.climb(standing.round * sweeps, sweeps)
        moved /= standing.shards
        moved += cut
        version = new_name(job.name, number, standing.round + 1)
        save_version(storage, version, solver.alpha)
        shard.standing = (version, -1)
        shard.beat()
        return moved, Climbed(version, solver.rest_beyond())


@guarded
def begin_from(job: Job, number: int, standing: Standing, weights: Float32s, bias: Offset, storage: str) -> Any:
    """Dual variables as known weights suggest them: the weights that they make, and where they are."""
    with open_shard(job, number) as shard:
        solver = descent_of(shard, job, standing)
        solver.start_from(weights, bias)
        made = solver.combined() / standing.shards
        version = new_name(job.name, number, standing.round)
        save_version(storage, version, solver.alpha)
        shard.standing = (version, -1)
        return made, Climbed(version, solver.rest_beyond())


# Solvers that need sums over all rows.


class Column(NamedTuple):
    """A number for each row, on the workers: which one, and which version of it."""

    name: str
    version: int


class Missing(NamedTuple):
    """A worker does not have a column, because another one had."""

    name: str


def sums_of(shard: OpenShard, job: Job) -> Sums:
    if shard.sums is None:
        settings, groups = shard.settings, _groups(shard, job)
        problem = make_problem(settings, settings.loss, 1.0, 0.0)
        shard.sums = Sums(groups, problem, settings.run.memory // 4, shard.tick)
    return shard.sums


def _new_column(shard: OpenShard, column: Column, kind: type[np.generic] = np.float64) -> Any:
    if column.name not in shard.columns:
        made = shard.groups.column(kind, shard.settings.run.memory // 8)
        shard.columns[column.name] = (column.version, made)
    shard.columns[column.name] = (column.version, shard.columns[column.name][1])
    return shard.columns[column.name][1]


def _columns(shard: OpenShard, job: Job, columns: Sequence[Column], vectors: Sequence[Float64s | None]) -> list[Any]:
    """Columns of scores that are here, or are made again from the weights that gave them; Missing without these."""
    found = []
    for column, vector in zip(columns, vectors, strict=True):
        version, have = shard.columns.get(column.name, (-1, None))
        if version != column.version:
            if vector is None:
                return [Missing(column.name)]
            sums = sums_of(shard, job)
            have = _new_column(shard, column)
            sums.risk_sums(vector, have, None)
        found.append(have)
    return found


@guarded
def risk_of(job: Job, number: int, given: tuple[Float64s, Column | None, Any]) -> Any:
    """What a shard adds to the risk of some weights; columns receive their scores, and those of others."""
    weights, column, other = given
    with open_shard(job, number) as shard:
        sums = sums_of(shard, job)
        scores = _new_column(shard, column) if column is not None else None
        further = None
        if other is not None:
            vector, scores_of, marks = other
            further = Other(vector, _new_column(shard, scores_of), _new_column(shard, marks, np.float32))
        found = sums.risk_sums(weights, scores, further)
        shard.beat()
        return found


@guarded
def product(job: Job, number: int, column: Column, vector: Float64s | None, direction: Float64s, numbers: Any) -> Any:
    with open_shard(job, number) as shard:
        sums = sums_of(shard, job)
        (scores,) = _columns(shard, job, [column], [vector])
        if isinstance(scores, Missing):
            return np.zeros(sums.size), scores
        found = sums.product_sums(scores, direction, numbers)
        shard.beat()
        return found


@guarded
def diagonal(job: Job, number: int, column: Column, vector: Float64s | None, numbers: Any) -> Any:
    with open_shard(job, number) as shard:
        sums = sums_of(shard, job)
        (scores,) = _columns(shard, job, [column], [vector])
        if isinstance(scores, Missing):
            return np.zeros(sums.size), scores
        return sums.diagonal_sums(scores, numbers)


@guarded
def along(job: Job, number: int, columns: Sequence[Column], vectors: Sequence[Any], k: float) -> Any:
    with open_shard(job, number) as shard:
        sums = sums_of(shard, job)
        found = _columns(shard, job, columns, vectors)
        if isinstance(found[0], Missing):
            return found[0]
        start, end = found
        return sums.along_sums(start, end, k)


@guarded
def look(job: Job, number: int, columns: Sequence[Column], vectors: Sequence[Any], marks: Column, k: float) -> Any:
    with open_shard(job, number) as shard:
        sums = sums_of(shard, job)
        found = _columns(shard, job, columns, vectors)
        if isinstance(found[0], Missing):
            return found[0]
        if marks.name not in shard.columns:
            own = _new_column(shard, marks, np.float32)
            for group in range(shard.groups.count):
                labels, weights = shard.groups.marks(group)
                shard.groups.of(group, own)[:] = (2.0 * labels - 1.0) * weights
        start, end = found
        return sums.look_sums(start, end, shard.columns[marks.name][1], k)


# Online solvers.


class Learned(NamedTuple):
    """What an online solver has seen of a shard in a pass."""

    seen: int
    weight: float
    loss: float
    wrong: float
    clock: float
    step_size: float | None
    features: int
    bias: Any


def _online(shard: OpenShard, job: Job, problem: Problem, eta0: float | None) -> OnlineSolver:
    groups, settings = _groups(shard, job), shard.settings
    options = {**solver_options(settings, job.initial), **({} if eta0 is None else {"eta0": eta0})}
    solver = make_online(
        settings, shard.feed, settings.solver.name, problem, dim=groups.width, memory=settings.run.memory, **options
    )
    solver.admit(len(shard.feed.classes.names))
    return solver


@guarded
def first_step_size(job: Job, number: int, problem: Problem) -> float | None:
    """The step size that a solver chooses on the first rows of a shard."""
    with open_shard(job, number) as shard:
        solver = _online(shard, job, problem, None)
        solver.begin_pass(1)
        with closing(_visits(shard, 1)) as visits:
            for rows, order in visits:
                solver.learn(rows, order)
                if solver.step_size is not None:
                    return solver.step_size
        solver.end_pass()
        return solver.step_size


def _visits(shard: OpenShard, pass_number: int) -> Generator[tuple[Batch, Int64s | None], None, None]:
    """The rows of a pass that a solver learns, and their order."""
    with closing(shard.feed.visits(pass_number)) as visits:
        for visit in visits:
            with closing(shard.feed.mapped_visits(visit)) as mapped:
                for batch, order, held in mapped:
                    if held is not None:
                        order = np.flatnonzero(~held) if order is None else order[~held[order]]
                    yield batch, order
            shard.tick(visit.batch.rows)


@guarded
def learn_pass(
    job: Job,
    number: int,
    pass_number: int,
    problem: Problem,
    begin: tuple[Float32s, Offset] | None,
    clock: float,
    eta0: float | None,
) -> Any:
    """One pass over a shard, from weights that all have a share in: weights times the weight of its rows."""
    assert job.facts is not None
    with open_shard(job, number) as shard:
        groups, solver = _groups(shard, job), _online(shard, job, problem, eta0)
        if begin is not None:
            solver.start_from(*begin)
            solver.scalars[T] = clock
        solver.begin_pass(pass_number)
        before = shard.feed.features
        with closing(_visits(shard, pass_number)) as visits:
            for rows, order in visits:
                solver.learn(rows, order)
        solver.finish()
        weights, bias = solver.weights()
        weight = float(solver.scalars[WEIGHT])
        total = np.zeros((groups.width, *weights.shape[1:]))
        total[: len(weights)] = weight * weights.astype(np.float64)
        scalars = solver.scalars
        shard.beat()
        return total, Learned(
            int(scalars[SEEN]),
            weight,
            float(scalars[LOSS]),
            float(scalars[WRONG]),
            float(scalars[T]),
            solver.step_size,
            shard.feed.features - before,
            weight * np.asarray(bias, np.float64),
        )


class Scored(NamedTuple):
    """Rows that were not learned, as a model scores them."""

    scores: Any
    labels: Float32s
    weights: Float32s


@guarded
def held_out(job: Job, number: int, weights: Float32s, bias: Offset) -> list[Scored]:
    """The held-out rows of a shard, group by group."""
    with open_shard(job, number) as shard:
        groups = _groups(shard, job)
        found = []
        for group in range(groups.count):
            rows = groups.held_out(group)
            scores = score_rows(rows, weights, bias)
            chosen = rows.weights > 0.0
            found.append(Scored(scores[chosen], rows.labels[chosen], rows.weights[chosen]))
            shard.tick(rows.rows)
        return found


@guarded
def losses(job: Job, number: int, weights: Float32s, bias: Offset, problem: Problem, rule: str) -> tuple[float, float]:
    """The loss of all rows of a shard that are learned from, and their weight."""
    with open_shard(job, number) as shard:
        groups = _groups(shard, job)
        total = weight = 0.0
        for group in range(groups.count):
            rows = groups.group(group)
            loss, c, _ = losses_of(score_rows(rows, weights, bias), rows, problem.loss, rule)
            total, weight = total + loss, weight + c
            shard.tick(rows.rows)
        return total, weight


def _groups(shard: OpenShard, job: Job) -> Any:
    assert job.facts is not None
    return shard.ready(job.facts)
