"""A run and its shards as the driver sees them: what is asked of all shards at once, and what came of it."""

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from streamsvm.batch import Float32s
from streamsvm.config import Settings
from streamsvm.distributed import work
from streamsvm.distributed.cluster import Cluster, Shared
from streamsvm.distributed.job import Facts, Job
from streamsvm.distributed.shards import plan_shards
from streamsvm.model import Model
from streamsvm.scoring import Offset
from streamsvm.stream import Stream

Ask = Callable[..., Any]


class Each:
    """An argument that is another one for each shard."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values


def worker_settings(settings: Settings) -> Settings:
    """What a worker must know."""
    kept = type(settings)()
    return settings.model_copy(
        update={"checkpoint": kept.checkpoint, "cluster": kept.cluster, "output": kept.output},
    )


class Team:
    """All shards of a run."""

    def __init__(self, cluster: Cluster, settings: Settings, stream: Stream, initial: Model | None) -> None:
        self.cluster = cluster
        self.settings = settings
        self.stream = stream
        self._initial = initial
        self.name = f"run-{secrets.token_hex(6)}"
        cluster.watch.runs.add(self.name)
        self.plan(settings.cluster.shards or sum(cluster.threads().values()))

    def plan(self, count: int) -> None:
        """Cut the data into so many shards, or as many as can be."""
        self.wanted = count
        self.shards = plan_shards(self.stream.source, self.stream.dialect, count)
        self.cluster.sizes = {shard.number: shard.size for shard in self.shards}
        self._job = Job(
            self.name,
            worker_settings(self.settings),
            self.stream.dialect,
            self.stream.features,
            tuple(self.shards),
            self._initial,
            sharing=self.cluster.threads_of_host(),
        )
        self._sent: Shared = self.cluster.share(self._job)

    @property
    def count(self) -> int:
        return len(self.shards)

    @property
    def sizes(self) -> list[int]:
        """Stored bytes of each shard, about."""
        return [shard.size for shard in self.shards]

    def know(self, facts: Facts) -> None:
        """What all tasks from now on know of all shards together."""
        self._job = self._job._replace(facts=facts)
        self._sent = self.cluster.share(self._job)

    def share_model(self, weights: Float32s, bias: Offset) -> Shared:
        """Weights and a bias that all shards will need."""
        return self.cluster.share((weights, bias), weights.nbytes)

    def ask(self, task: Ask, *arguments: Any) -> list[Any]:
        """What each shard answers, in their order."""
        return self.cluster.each(task, self._calls(arguments))

    def ask_first(self, task: Ask, *arguments: Any) -> Any:
        """What the first shard answers."""
        return self.cluster.each(task, {0: self._calls(arguments)[0]})[0]

    def add(self, task: Ask, *arguments: Any, size: int, rows: int = 0) -> tuple[Any, list[Any]]:
        """The sum of the vectors that all shards answer with, each of so many bytes, and the rest of the answers.

        `rows` are those that all shards together go over for it: progress is told in them.
        """
        return self.cluster.summed(task, self._calls(arguments), size, rows)

    def _calls(self, arguments: Sequence[Any]) -> dict[int, list[Any]]:
        return {
            number: [
                self._sent,
                number,
                *(given.values[number] if isinstance(given, Each) else given for given in arguments),
            ]
            for number in range(self.count)
        }

    def close(self) -> None:
        """Free what workers have of the run."""
        with suppress(Exception):
            self.cluster.everywhere(work.close, self.name)
