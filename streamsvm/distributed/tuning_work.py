"""What workers do for a search: a pass over a shard with all candidates side by side, by the code of one machine."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import numpy as np

from streamsvm.batch import Float32s
from streamsvm.config import Settings
from streamsvm.contest import Candidate, Contest
from streamsvm.distributed.job import Job, OpenShard, guarded, open_shard
from streamsvm.distributed.work import Passed, Step, begin_from_mean, share_of, step_of, visits_of, weights_shape
from streamsvm.reading import make_reading, memory_for_solvers
from streamsvm.scoring import Offset

BESIDE = 12  # bytes for each weight of a candidate: the mean from which it goes on, and its share of the next one


def bytes_beside(candidates: int, classes: int) -> int:
    """What else a pass takes for each feature, on a worker and on the driver."""
    return BESIDE * candidates * max(classes, 1)


@contextmanager
def _opened(shard: OpenShard, job: Job, candidates: Sequence[Candidate]) -> Iterator[tuple[Contest, tuple[int, ...]]]:
    """A contest on a shard, before the first row, and the shape of its weights."""
    assert job.facts is not None
    settings: Settings = shard.settings
    groups: Any = shard.ready(job.facts)
    shape = weights_shape(shard, groups)
    contest = Contest(
        settings,
        shard.feed,
        candidates,
        memory_for_solvers(settings),
        groups.width,
        beside=bytes_beside(len(candidates), shape[1] if shape[1:] else 1),
        threads=make_reading(settings).workers,
    )
    with closing(contest):
        assert contest.candidates == list(candidates)  # as the driver's contest has them
        contest.admit(len(shard.feed.classes.names))
        yield contest, shape


@guarded
def first_steps(job: Job, number: int, candidates: Sequence[Candidate]) -> list[Step]:
    """The step sizes that candidates choose on the first rows of a shard."""
    with open_shard(job, number) as shard, _opened(shard, job, candidates) as (contest, _):
        contest.begin_pass(1)
        with closing(visits_of(shard, 1)) as visits:
            for rows, order in visits:
                contest.learn(rows, order)
                if None not in contest.step_sizes:
                    return steps_of(contest)
        contest.end_pass()
        return steps_of(contest)


def steps_of(contest: Contest) -> list[Step]:
    """Where each candidate stands; no longer the one that diverged."""
    alive = enumerate(contest.alive)
    return [step_of(contest.solver(place)) if live else Step(None, 1.0) for place, live in alive]


@guarded
def learn_contest(
    job: Job,
    number: int,
    pass_number: int,
    candidates: Sequence[Candidate],
    begins: Sequence[tuple[Float32s, Offset] | None],
    clocks: Sequence[float],
    steps: Sequence[Step],
) -> Any:
    """One pass over a shard with all candidates: weights times the weight of its rows, [candidate, ...]."""
    with open_shard(job, number) as shard, _opened(shard, job, candidates) as (contest, shape):
        for k, step in enumerate(steps):
            solver = contest.solver(k)
            if step.size is not None:
                solver.take_step_size(step.size, step.unit)
            begin_from_mean(solver, begins[k], clocks[k])
            contest.take_up(k, solver)
        contest.begin_pass(pass_number)
        before, seen = shard.feed.features, 0
        with closing(visits_of(shard, pass_number)) as visits:
            for rows, order in visits:
                contest.learn(rows, order)
                seen += rows.rows if order is None else len(order)
        contest.finish()
        total = np.zeros((len(candidates), *shape))
        learned = [share_of(contest.solver(k), total[k]) if alive else None for k, alive in enumerate(contest.alive)]
        shard.beat()
        return total, Passed(seen, shard.feed.features - before, learned)
