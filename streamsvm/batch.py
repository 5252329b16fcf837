"""The one thing that flows between rooms: a batch of sparse rows."""

from collections.abc import Generator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm.jit import quick, read_only

Int64s = npt.NDArray[np.int64]
Uint32s = npt.NDArray[np.uint32]
Float32s = npt.NDArray[np.float32]
Float64s = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]


class Batch(NamedTuple):
    """Rows in compressed sparse form. Row i is `indices[indptr[i]:indptr[i+1]]` and the same slice of `values`.

    Indices are strictly increasing within a row; kernels rely on it. `labels` are class codes (0, 1, ...), or numbers
    as read where classes are not known yet, NaN where a row has none. The arrays a Stream yields are only valid until
    the next batch is asked for, because their memory is used again: `copy()` what must live longer.
    """

    indptr: Int64s
    indices: Uint32s
    values: Float32s
    labels: Float32s
    weights: Float32s

    @property
    def rows(self) -> int:
        return len(self.labels)

    @property
    def features(self) -> int:
        """How many (index, value) pairs there are."""
        return int(self.indptr[-1] - self.indptr[0])

    @property
    def width(self) -> int:
        """The largest index plus one."""
        return int(widest(self.indptr, self.indices))

    def copy(self) -> "Batch":
        return self.take(0, self.rows)

    def slice(self, start: int, stop: int) -> "Batch":
        """Rows start..stop, sharing memory."""
        return Batch(
            self.indptr[start : stop + 1], self.indices, self.values, self.labels[start:stop], self.weights[start:stop]
        )

    def take(self, start: int, stop: int) -> "Batch":
        """Rows start..stop, copied, with `indptr` from 0."""
        a, b = int(self.indptr[start]), int(self.indptr[stop])
        return Batch(
            self.indptr[start : stop + 1] - a,
            self.indices[a:b].copy(),
            self.values[a:b].copy(),
            self.labels[start:stop].copy(),
            self.weights[start:stop].copy(),
        )


read_only(Batch)
Batches = Generator[Batch, None, None]


def empty_batch() -> Batch:
    return Batch(
        np.zeros(1, np.int64),
        np.empty(0, np.uint32),
        np.empty(0, np.float32),
        np.empty(0, np.float32),
        np.empty(0, np.float32),
    )


def concatenate(batches: list[Batch]) -> Batch:
    """One batch with all rows, in order; always a copy."""
    if not batches:
        return empty_batch()
    spans = [(int(batch.indptr[0]), int(batch.indptr[-1])) for batch in batches]
    starts = np.cumsum([0] + [b - a for a, b in spans])
    moved = [batch.indptr[1:] + (start - a) for batch, (a, _), start in zip(batches, spans, starts, strict=False)]
    return Batch(
        np.concatenate([np.zeros(1, np.int64), *moved]),
        np.concatenate([batch.indices[a:b] for batch, (a, b) in zip(batches, spans, strict=True)]),
        np.concatenate([batch.values[a:b] for batch, (a, b) in zip(batches, spans, strict=True)]),
        np.concatenate([batch.labels for batch in batches]),
        np.concatenate([batch.weights for batch in batches]),
    )


@quick
def widest(indptr, indices):
    """The largest index plus one; a row's last index is its largest."""
    largest = np.int64(-1)
    for i in range(len(indptr) - 1):
        if indptr[i + 1] > indptr[i]:
            largest = max(largest, np.int64(indices[indptr[i + 1] - 1]))
    return largest + 1
