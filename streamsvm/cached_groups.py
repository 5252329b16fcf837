"""The cache of a run as groups of rows that are ready to be learned from: coded, weighted, scaled.

Held-out rows have weight 0. What solvers must know of all rows is found out in one reading, on all cores.
"""

from contextlib import closing
from typing import NamedTuple

import numpy as np

from streamsvm.batch import Batch, Float32s
from streamsvm.errors import DataError
from streamsvm.feed import Feed
from streamsvm.groups import Groups
from streamsvm.passes import Passes, Tick


class Surveyed(NamedTuple):
    features: int
    width: int
    weight: float


class CachedGroups(Groups):
    """The rows of a complete cache; `dim` is the number of weights if the settings fix it."""

    def __init__(self, feed: Feed, passes: Passes, *, dim: int, threads: int, tick: Tick) -> None:
        self._feed = feed
        starts = passes.starts()
        super().__init__(starts, np.zeros(len(starts) - 1, np.int64), dim, 0.0, threads=threads, scratch=passes.scratch)

        def survey(number: int, batch: Batch) -> Surveyed:
            width = 0 if dim else batch.width
            return Surveyed(batch.features, width, float(batch.weights.sum(dtype=np.float64)))

        with closing(self.mapped(survey)) as results:
            for number, found in enumerate(results):
                self.features[number] = found.features
                self.width = max(self.width, found.width)
                self.weight += found.weight
                tick(int(starts[number + 1] - starts[number]))

    def refuse_if_empty(self) -> None:
        """DataError if no row has a weight."""
        if not self.weight > 0.0:
            raise DataError("there is no row to learn from" + (", or all weights are 0" if self.rows else ""))

    def group(self, number: int) -> Batch:
        return self._scaled(self._learned(number))

    def held_out(self, number: int) -> Batch:
        """A group in which only the held-out rows have weight."""
        batch, held = self._feed.coded(number)
        assert held is not None
        return self._scaled(batch._replace(weights=np.where(held, batch.weights, np.float32(0.0))))

    def marks(self, number: int) -> tuple[Float32s, Float32s]:
        batch = self._learned(number)
        return batch.labels, batch.weights

    def _learned(self, number: int) -> Batch:
        batch, held = self._feed.coded(number)
        return batch if held is None else batch._replace(weights=np.where(held, np.float32(0.0), batch.weights))

    def _scaled(self, batch: Batch) -> Batch:
        scaling = self._feed.scaling
        return batch if scaling is None else scaling.scaled(batch)
