"""What runs know of the rows, found out by all shards together."""

import numpy as np

from streamsvm.batch import Batch, Int64s, concatenate
from streamsvm.distributed import work
from streamsvm.distributed.passes import ClusterPasses
from streamsvm.distributed.team import Each
from streamsvm.features.autoscale import AutoScaling, merged
from streamsvm.features.held_back import ROWS
from streamsvm.features.scaling import Scaling
from streamsvm.feed import Feed
from streamsvm.passes import Tick


class ClusterFeed(Feed):
    """Sizes of features are counted on the workers, and rows for a map come from them."""

    _passes: ClusterPasses

    def count_scales(self, scaling: Scaling, tick: Tick) -> None:
        features = self._passes.stream.features
        for state in self._passes.team.ask(work.count_scales, scaling.kind, features.width, features.dense):
            scaling.merge(state)

    def decide_scales(self, scaling: AutoScaling) -> None:
        """By rows from everywhere; then all shards have the same scales, from the first row to the last."""
        total, team = int(self._passes.shard_starts()[-1]), self._passes.team
        rows = np.linspace(0, total, min(total, ROWS * team.count), endpoint=False).astype(np.int64)
        scaling.decide_by(merged(team.ask(work.moments_at, self._by_shard(rows))))
        scaling.freeze()
        self.tell_scales(scaling)

    def rows_at(self, rows: Int64s) -> Batch:
        return concatenate(self._passes.team.ask(work.rows_at, self._by_shard(rows)))

    def _by_shard(self, rows: Int64s) -> Each:
        """For each shard those of the rows, whose numbers rise, that it has, as it counts them."""
        firsts = self._passes.shard_starts()
        places = np.searchsorted(rows, firsts)
        return Each([rows[a:b] - first for a, b, first in zip(places, places[1:], firsts, strict=False)])
