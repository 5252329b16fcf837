"""The groups of all shards, of which the driver knows the sizes alone."""

from typing import Any

import numpy as np

from streamsvm.batch import Batch
from streamsvm.distributed import work
from streamsvm.distributed.job import Facts
from streamsvm.distributed.sums import ClusterSums, RemoteColumn
from streamsvm.distributed.team import Team
from streamsvm.errors import DataError
from streamsvm.groups import Groups
from streamsvm.solvers.base import Problem
from streamsvm.solvers.sums import Tick


class ShardedGroups(Groups):
    """Rows that are elsewhere."""

    def __init__(self, team: Team, feed: dict[str, Any], dim: int) -> None:
        self.team = team
        found: list[work.Weighed] = team.ask(work.weigh, team.cluster.share(feed))
        rows = np.cumsum([0, *(int(one.starts[-1]) for one in found)], dtype=np.int64)
        starts = [first + one.starts[:-1] for first, one in zip(rows, found, strict=False)]
        self.shard_groups = np.cumsum([0, *(len(one.features) for one in found)])  # the first group of each shard
        width = max((one.width for one in found), default=dim)
        weight = sum(one.weight for one in found)
        features = np.concatenate([one.features for one in found])
        super().__init__(np.concatenate([*starts, rows[-1:]]), features, max(width, dim), weight)
        if not self.weight > 0.0:
            raise DataError("there is no row to learn from" + (", or all weights are 0" if self.rows else ""))
        team.know(Facts(feed, self.width, self.weight))
        self._columns = 0

    def group(self, number: int) -> Batch:
        raise NotImplementedError("rows stay with the workers")

    def column(self, kind: type[np.generic], memory: int, each: int | None = None) -> Any:
        """A number for each row, on the workers."""
        self._columns += 1
        return RemoteColumn(f"column-{self._columns}")

    def make_sums(self, groups: Groups, problem: Problem, memory: int, tick: Tick) -> ClusterSums:
        """What solvers take for sums over all rows."""
        return ClusterSums(self, problem, tick)

    def of_shards(self, numbers: Any) -> list[list[int]] | None:
        """The groups that have these numbers, by shards, as each counts them."""
        if numbers is None:
            return None
        edges = self.shard_groups.tolist()
        return [[n - a for n in numbers if a <= n < b] for a, b in zip(edges, edges[1:], strict=False)]


class NoRows(Groups):
    """Groups without rows, as wide and heavy as others: for a solver that only makes figures of what others found."""

    def __init__(self, groups: Groups) -> None:
        super().__init__(np.zeros(1, np.int64), np.empty(0, np.int64), groups.width, groups.weight)

    def group(self, number: int) -> Batch:
        raise IndexError(number)
