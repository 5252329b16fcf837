"""Rows that are not learned, scored where they are: what they cost comes to the driver, and scores where wanted."""

from collections.abc import Sequence

from streamsvm.distributed import work
from streamsvm.distributed.cluster import Shared
from streamsvm.distributed.team import Team
from streamsvm.holdout import Holdout


def measure_on_workers(team: Team, holdout: Holdout, models: Sequence[Shared | None]) -> None:
    """Have the held-out rows of all shards scored by models; what they cost is added up in the order of rows.

    Scores come along if the holdout has samples for them. None is a model that diverged.
    """
    samples = holdout.samples
    found: list[work.HeldOut] = team.ask(work.held_out, list(models), list(holdout.losses), samples is not None)
    for one in found:
        for rows, sums in zip(one.rows, one.sums, strict=True):
            holdout.take(rows, sums)
        for sample, scored in zip(samples or (), one.scored, strict=True):
            sample.add(*scored)
