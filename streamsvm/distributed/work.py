"""What workers do. Each is a function of what it is given: a lost worker's work is done again by another.

What is open on a worker (job.py) makes it quicker, and changes nothing: a solver that does not stand where it should
is put there, with dual variables from storage, and scores that are missing are computed again.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Batch, Float32s, Float64s, Int64s, empty_batch
from streamsvm.distributed.job import Facts, Job, OpenShard, close_all, guarded, open_shard
from streamsvm.features.autoscale import Moments, moments_of
from streamsvm.features.held_back import FEATURES, FEWEST
from streamsvm.features.scaling import Scaling
from streamsvm.fitting import held_out_rows
from streamsvm.holdout import Holdout
from streamsvm.losses import Loss
from streamsvm.online_training import solver_options
from streamsvm.runs import make_online, make_problem
from streamsvm.score_sample import ScoreSample
from streamsvm.scoring import Offset, losses_of, score_rows
from streamsvm.solvers.base import LOSS, SEEN, UNIT, WEIGHT, WRONG, OnlineSolver, Problem, T
from streamsvm.solvers.sums import Other, Sums


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
def moments_at(job: Job, number: int, rows: Int64s) -> Moments:
    """What is known of features in some rows of a shard, or in some of these that stand for all where rows are long."""
    with open_shard(job, number) as shard:
        passes = shard.filled()
        first = passes.group(0) if len(rows) else empty_batch()
        few = max(FEWEST, int(FEATURES * first.rows / max(1, first.features)))
        kept = rows[np.linspace(0, len(rows), min(few, len(rows)), endpoint=False).astype(np.int64)]
        batch = shard.feed.rows_at(kept)
        batch = batch._replace(weights=batch.weights * np.float32(len(rows) / max(1, len(kept))))
        numbers = shard.stream.features.numbers
        return moments_of(batch, np.empty(0, np.int64) if numbers is None else numbers.indicators)


@guarded
def weigh(job: Job, number: int, feed: dict[str, Any]) -> Weighed:
    """How much there is to learn from in a shard."""
    with open_shard(job, number) as shard:
        groups = shard.ready(Facts(feed, 0, 0.0))
        return Weighed(groups.starts, groups.features, groups.width, groups.weight)


def close(name: str) -> None:
    """The run is over: free what this worker has of it."""
    close_all(name)


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
        settings, groups = shard.settings, groups_for(shard, job)
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
    """What an online solver has seen of a shard in a pass, and its bias times the weight of what it has seen."""

    seen: int
    weight: float
    loss: float
    wrong: float
    clock: float
    step: "Step"
    bias: Any


class Step(NamedTuple):
    """A step size, None where there is none, and the weight of a usual row, to which it belongs."""

    size: float | None
    unit: float


class Passed(NamedTuple):
    """A pass over a shard: what was read, and what solvers have seen; None of one that diverged."""

    rows: int
    features: int
    learned: list[Learned | None]


def begin_from_mean(solver: OnlineSolver, begin: tuple[Float32s, Offset] | None, clock: float) -> None:
    """Go on from weights that all shards have a share in, with the shard's own clock; None: from zero."""
    if begin is not None:
        solver.start_from(*begin)
        solver.scalars[T] = clock


def share_of(solver: OnlineSolver, out: Float64s) -> Learned:
    """What a solver adds to the mean of all shards: weights times the weight of its rows go to `out`, of zeros."""
    weights, bias = solver.weights()
    scalars = solver.scalars
    weight = float(scalars[WEIGHT])
    out[: len(weights)] = weight * weights.astype(np.float64)
    return Learned(
        int(scalars[SEEN]),
        weight,
        float(scalars[LOSS]),
        float(scalars[WRONG]),
        float(scalars[T]),
        step_of(solver),
        weight * np.asarray(bias, np.float64),
    )


def step_of(solver: OnlineSolver) -> Step:
    return Step(solver.step_size, float(solver.scalars[UNIT]))


def weights_shape(shard: OpenShard, groups: Any) -> tuple[int, ...]:
    """Of what all shards add up: a weight for each feature, or one for each class."""
    classes = shard.feed.classes
    return (groups.width, len(classes.names)) if classes.many else (groups.width,)


def _online(shard: OpenShard, job: Job, problem: Problem) -> OnlineSolver:
    groups, settings = groups_for(shard, job), shard.settings
    options = solver_options(settings, job.initial)
    solver = make_online(
        settings, shard.feed, settings.solver.name, problem, dim=groups.width, memory=settings.run.memory, **options
    )
    solver.admit(len(shard.feed.classes.names))
    return solver


@guarded
def first_step(job: Job, number: int, problem: Problem) -> Step:
    """The step size that a solver chooses on the first rows of a shard."""
    with open_shard(job, number) as shard:
        solver = _online(shard, job, problem)
        solver.begin_pass(1)
        with closing(visits_of(shard, 1)) as visits:
            for rows, order in visits:
                solver.learn(rows, order)
                if solver.step_size is not None:
                    return step_of(solver)
        solver.end_pass()
        return step_of(solver)


def visits_of(shard: OpenShard, pass_number: int) -> Generator[tuple[Batch, Int64s | None], None, None]:
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
    step: Step,
) -> Any:
    """One pass over a shard, from weights that all have a share in: weights times the weight of its rows."""
    assert job.facts is not None
    with open_shard(job, number) as shard:
        groups, solver = groups_for(shard, job), _online(shard, job, problem)
        if step.size is not None:
            solver.take_step_size(step.size, step.unit)
        begin_from_mean(solver, begin, clock)
        solver.begin_pass(pass_number)
        before = shard.feed.features
        with closing(visits_of(shard, pass_number)) as visits:
            for rows, order in visits:
                solver.learn(rows, order)
                seen, *sums = solver.scalars[[SEEN, WEIGHT, LOSS, WRONG]].tolist()
                shard.learned = (int(seen), *sums)
        solver.finish()
        total = np.zeros(weights_shape(shard, groups))
        learned = share_of(solver, total)
        shard.beat()
        return total, Passed(learned.seen, shard.feed.features - before, [learned])


class HeldOut(NamedTuple):
    """What the held-out rows of a shard cost: for each group the number of rows, and sums for each model."""

    rows: list[int]
    sums: list[Float64s]
    scored: list[tuple[Any, Float32s, Float32s]]  # scores, labels and weights by each model, where wanted


@guarded
def held_out(
    job: Job,
    number: int,
    models: Sequence[tuple[Float32s, Offset] | None],
    losses: Sequence[Loss],
    with_scores: bool,
) -> HeldOut:
    """Have the held-out rows of a shard scored by models, of which those that diverged are None."""
    with open_shard(job, number) as shard:
        groups, rule = groups_for(shard, job), shard.settings.multiclass_rule
        scorers = [m if m is None else partial(score_rows, weights=m[0], bias=m[1]) for m in models]
        samples = [ScoreSample(many=shard.feed.classes.many) for _ in models] if with_scores else []
        found = HeldOut([], [], [])
        for group in range(groups.count):
            measured = Holdout(losses, rule, samples or None)
            measured.measure_rows(held_out_rows(groups, group), scorers)
            found.rows.append(measured.examples)
            found.sums.append(measured.sums)
            shard.tick(int(groups.starts[group + 1] - groups.starts[group]))
        found.scored.extend((sample.scores(), sample.codes(), sample.weights()) for sample in samples)
        return found


@guarded
def losses(job: Job, number: int, weights: Float32s, bias: Offset, problem: Problem, rule: str) -> tuple[float, float]:
    """The loss of all rows of a shard that are learned from, and their weight."""
    with open_shard(job, number) as shard:
        groups = groups_for(shard, job)
        total = weight = 0.0
        for group in range(groups.count):
            rows = groups.group(group)
            loss, c, _ = losses_of(score_rows(rows, weights, bias), rows, problem.loss, rule)
            total, weight = total + loss, weight + c
            shard.tick(rows.rows)
        return total, weight


def groups_for(shard: OpenShard, job: Job) -> Any:
    assert job.facts is not None
    return shard.ready(job.facts)
