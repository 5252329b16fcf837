"""What runs know of the rows, found out by all shards together."""

import numpy as np

from streamsvm.batch import Batch, Int64s, concatenate
from streamsvm.distributed import work
from streamsvm.distributed.passes import ClusterPasses
from streamsvm.distributed.team import Each
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

    def rows_at(self, rows: Int64s) -> Batch:
        firsts = self._passes.shard_starts()
        places = np.searchsorted(rows, firsts)
        own = [rows[a:b] - first for a, b, first in zip(places, places[1:], firsts, strict=False)]
        return concatenate(self._passes.team.ask(work.rows_at, Each(own)))
