"""Groups of rows that go through a map: each is made when it is asked for, from a part of a group of raw rows.

Mapped rows take many times the room of raw ones, so they are not stored: whoever wants to have them again and again in
memory copies them, as far as they fit.
"""

from contextlib import closing

import numpy as np

from streamsvm.batch import Batch, Float32s
from streamsvm.cached_groups import CachedGroups
from streamsvm.features.maps.base import RowMap
from streamsvm.groups import Groups
from streamsvm.passes import Tick


class MappedGroups(Groups):
    """The same rows as the raw groups have, in smaller groups, mapped."""

    def __init__(self, raw: CachedGroups, map: RowMap, tick: Tick) -> None:
        self._raw = raw
        self._map = map
        rows = map.piece_rows
        self._parts = [
            (number, slice(start, min(start + rows, size)))
            for number, size in enumerate(np.diff(raw.starts).tolist())
            for start in range(0, size, rows)
        ]
        sizes = np.array([part.stop - part.start for _, part in self._parts], np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        features = sizes * (map.pairs or 0)
        super().__init__(starts, features, map.width, raw.weight, threads=raw.threads, scratch=raw._scratch)
        if map.pairs is None:
            self._count(tick)

    def _count(self, tick: Tick) -> None:
        """Rows are mapped once to find out how long they become."""
        with closing(self.mapped(lambda number, batch: batch.features)) as found:
            for number, features in enumerate(found):
                self.features[number] = features
                tick(int(self.starts[number + 1] - self.starts[number]))

    def group(self, number: int) -> Batch:
        raw, part = self._parts[number]
        return self._map.apply(self._raw.group(raw).slice(part.start, part.stop))

    def held_out(self, number: int) -> Batch:
        """A group in which only the held-out rows have weight."""
        raw, part = self._parts[number]
        return self._map.apply(self._raw.held_out(raw).slice(part.start, part.stop))

    def marks(self, number: int) -> tuple[Float32s, Float32s]:
        raw, part = self._parts[number]
        labels, weights = self._raw.marks(raw)
        return labels[part], weights[part]
