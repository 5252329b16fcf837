"""Sums over all rows, each shard adding up its own: what newton, bmrm and ocas need."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.batch import Float64s
from streamsvm.distributed import work
from streamsvm.distributed.team import Each
from streamsvm.solvers.base import Problem
from streamsvm.solvers.sums import Added, Other, Sums, Tick

if TYPE_CHECKING:
    from streamsvm.distributed.groups import ShardedGroups


class RemoteColumn:
    """A number for each row, on the workers: its name, which version it is, and the weights whose scores it has."""

    def __init__(self, name: str) -> None:
        self.now = work.Column(name, 0)
        self.vector: Float64s | None = None

    def of(self, vector: Float64s) -> work.Column:
        """The next version: the scores of these weights."""
        self.now = self.now._replace(version=self.now.version + 1)
        self.vector = vector.copy()
        return self.now


class ClusterSums(Sums):
    """What a solver asks, answered by all shards; columns stay with the workers."""

    groups: "ShardedGroups"

    def __init__(self, groups: "ShardedGroups", problem: Problem, tick: Tick) -> None:
        super().__init__(groups, problem, 0, tick)
        self._team = groups.team
        self._bytes = 8 * self.size

    def risk_sums(self, weights: Float64s, scores: Any, other: Other | None) -> Added:
        column = scores.of(weights) if scores is not None else None
        further = None
        if other is not None:
            further = (other.weights, other.scores.of(other.weights), other.marks.now)
        sent = self._team.cluster.share((weights, column, further), self._bytes * (1 if further is None else 2))
        found: Added = self._added(work.risk_of, sent)
        return found

    def product_sums(self, scores: Any, direction: Float64s, numbers: Sequence[int] | None) -> Added:
        some = self._numbers(numbers)
        sent = self._team.cluster.share(direction, self._bytes)
        ask = lambda vectors: self._added(work.product, scores.now, vectors[0], sent, some)  # noqa: E731
        found: Added = self._with_columns(ask, [scores])
        return found

    def diagonal_sums(self, scores: Any, numbers: Sequence[int] | None) -> Added:
        some = self._numbers(numbers)
        ask = lambda vectors: self._added(work.diagonal, scores.now, vectors[0], some)  # noqa: E731
        found: Added = self._with_columns(ask, [scores])
        return found

    def along_sums(self, start: Any, end: Any, k: float) -> Float64s:
        columns = [start.now, end.now]
        ask = lambda vectors: self._told(work.along, columns, vectors, k)  # noqa: E731
        found: Float64s = self._with_columns(ask, [start, end])
        return found

    def look_sums(self, start: Any, end: Any, marks: Any, k: float) -> Float64s:
        columns = [start.now, end.now]
        ask = lambda vectors: self._told(work.look, columns, vectors, marks.now, k)  # noqa: E731
        found: Float64s = self._with_columns(ask, [start, end])
        return found

    # How it is done.

    def _numbers(self, numbers: Sequence[int] | None) -> Each | None:
        found = self.groups.of_shards(numbers)
        return None if found is None else Each(found)

    def _added(self, task: Callable[..., Any], *arguments: Any) -> Any:
        vector, told = self._team.add(task, *arguments, size=self._bytes, rows=self.groups.rows)
        self.readings += 1
        self._tick(self.groups.rows)
        if any(isinstance(one, work.Missing) for one in told):
            return None
        return vector, np.sum([np.asarray(one) for one in told], axis=0)

    def _told(self, task: Callable[..., Any], *arguments: Any) -> Any:
        told = self._team.ask(task, *arguments)
        if any(isinstance(one, work.Missing) for one in told):
            return None
        return np.sum(told, axis=0)

    def _with_columns(self, ask: Callable[[list[Any]], Any], columns: list[RemoteColumn]) -> Any:
        """Ask; where a worker has lost its columns, again, with the weights that they come from."""
        found = ask([None for _ in columns])
        if found is None:
            found = ask([self._team.cluster.share(column.vector, self._bytes) for column in columns])
        return found
