"""Groups of rows without a part of them: for scores of rows by weights that were learned from the others.

The rows are dealt into folds by their numbers, in a way that looks random. Those of one fold have weight 0, and are the
only ones that have any in `left_out`.
"""

import numpy as np

from streamsvm.batch import Batch, Float32s
from streamsvm.groups import Groups
from streamsvm.jit import quick
from streamsvm.shuffle import below, next_random


class FoldGroups(Groups):
    """The same groups, but for the rows of one fold."""

    def __init__(self, groups: Groups, fold: int, folds: int) -> None:
        self._groups = groups
        self._fold, self._folds = fold, folds
        super().__init__(
            groups.starts, groups.features, groups.width, 0.0, threads=groups.threads, scratch=groups._scratch
        )
        self.weight = sum(float(self.marks(number)[1].sum(dtype=np.float64)) for number in range(groups.count))

    def group(self, number: int) -> Batch:
        batch = self._groups.group(number)
        return batch._replace(weights=self._weights(number, batch.weights, inside=False))

    def marks(self, number: int) -> tuple[Float32s, Float32s]:
        labels, weights = self._groups.marks(number)
        return labels, self._weights(number, weights, inside=False)

    def left_out(self, number: int) -> Batch:
        """A group in which only the rows of the fold have weight."""
        batch = self._groups.group(number)
        return batch._replace(weights=self._weights(number, batch.weights, inside=True))

    def _weights(self, number: int, weights: Float32s, *, inside: bool) -> Float32s:
        kept: Float32s = weights.copy()
        keep_fold(kept, int(self.starts[number]), self._fold, self._folds, inside)
        return kept


@quick
def keep_fold(weights, first, fold, folds, inside):
    """Weight 0 for the rows outside of a fold, or inside of it; `first` is the number of the first row."""
    for i in range(len(weights)):
        _, bits = next_random(np.uint64(first + i))
        if (below(bits, folds) == fold) != inside:
            weights[i] = 0.0
