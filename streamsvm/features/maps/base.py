"""RowMap: raw rows become mapped rows, from which every linear solver learns what a kernel machine would.

    raw rows --Spread--> the columns that a sample had, of comparable size --map--> mapped rows

    bins, polynomial (hashed)                  sparse rows in, sparse rows out
    nystroem, prototypes, fourier, polynomial  dense rows, in tiles by matrix product, single precision throughout

A map is made once, from a sample of the rows and a seed, and never changes. Mapped rows are not stored anywhere: they
are made when they are needed, piece by piece, on all threads, so memory does not depend on how many rows there are.
A row is mapped to the same numbers, to the last bit, wherever it stands among others (product.py).
"""

from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import closing
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Batch, Float32s, Int64s, Uint32s
from streamsvm.features.maps.room import Room
from streamsvm.features.maps.spread import TILE, Spread
from streamsvm.pool import worked_ahead

LEAST_ROWS = 64  # of a piece
UNKNOWN_ROWS = 256  # of a piece of rows that may become long or short
PIECE = 1 << 20  # mapped numbers that are made at a time
SPARE = 2  # pieces beyond those that threads are at work on
FEW_CORES = 6
BYTES = 8  # of an index and a value
UNKNOWN_PAIRS = 4096  # of a row, where that differs from row to row: what most do not exceed

Arrays = dict[str, npt.NDArray[Any]]
Stored = tuple[dict[str, Any], Arrays]


class DenseMap(ABC):
    """[rows, d] to [rows, width]."""

    kind: ClassVar[str]
    usual_c: ClassVar[float] = 3.0
    width: int

    @abstractmethod
    def rows(self, given: Float32s, out: Float32s | None = None) -> Float32s:
        """Rows, mapped, in `out` or else in a new array; any thread may ask. No row depends on another."""

    @abstractmethod
    def stored(self) -> Stored:
        """Plain values, and arrays that cannot be made from these."""


class SparseMap(ABC):
    """Batch to Batch; every mapped row has `pairs` features, or as many as it needs where that is None."""

    kind: ClassVar[str]
    usual_c: ClassVar[float] = 1.0
    width: int
    pairs: int | None

    @abstractmethod
    def batch(self, given: Batch) -> Batch:
        """Rows, mapped; any thread may ask."""

    @abstractmethod
    def stored(self) -> Stored: ...


class RowMap:
    """What the rest of the program knows of a map."""

    def __init__(self, spread: Spread, inner: DenseMap | SparseMap) -> None:
        self.spread = spread
        self.inner = inner
        pairs = inner.width if isinstance(inner, DenseMap) else inner.pairs
        self.pairs = pairs  # (index, value) pairs of a mapped row; None: that depends on the row
        self.piece_rows = max(PIECE // max(pairs, 1), LEAST_ROWS) if pairs is not None else UNKNOWN_ROWS
        self._indices: Uint32s = np.empty(0, np.uint32)
        self._room = Room()

    def fit_into(self, memory: int) -> None:
        """Make pieces that are small enough for so many bytes, all those on their way together on a few cores.

        How many cores there really are does not matter, because results may depend on pieces.
        """
        each = BYTES * (self.pairs or UNKNOWN_PAIRS) * (FEW_CORES + SPARE)
        self.piece_rows = max(min(self.piece_rows, memory // max(each, 1)), 1)

    def bytes_for(self, threads: int) -> int:
        """What the map takes, and the pieces on their way."""
        pieces = BYTES * (self.pairs or UNKNOWN_PAIRS) * self.piece_rows * (threads + SPARE)
        return pieces + 2 * sum(array.nbytes for array in self.arrays().values())

    @property
    def kind(self) -> str:
        return self.inner.kind

    @property
    def width(self) -> int:
        """The number of mapped features."""
        return self.inner.width

    @property
    def usual_c(self) -> float:
        """C where nothing is said of the penalty: rows that meet others in few bins are soon learned by heart."""
        return self.inner.usual_c

    def apply(self, batch: Batch) -> Batch:
        """The rows, mapped, in new arrays or in ones that nobody may write to; any thread may ask."""
        if isinstance(self.inner, SparseMap):
            mapped = self.inner.batch(self.spread.sparse(batch))
            return mapped._replace(labels=batch.labels, weights=batch.weights)
        values = self.dense(batch).reshape(-1)
        indptr: Int64s = np.arange(batch.rows + 1, dtype=np.int64) * self.width
        return Batch(indptr, self._all_indices(batch.rows), values, batch.labels, batch.weights)

    def dense(self, batch: Batch) -> Float32s:
        """[row, width] of a dense map."""
        assert isinstance(self.inner, DenseMap)
        out = self._room.lent(batch.rows * self.width).reshape(batch.rows, self.width)
        for start in range(0, batch.rows, TILE):
            stop = min(start + TILE, batch.rows)
            self.inner.rows(self.spread.dense(batch.slice(start, stop)), out[start:stop])
        return out

    def pieces(self, batch: Batch, threads: int = 1) -> Generator[tuple[slice, Batch], None, None]:
        """The rows of a batch, mapped, piece by piece in their order, some of them made ahead on other threads."""
        starts = range(0, batch.rows, self.piece_rows)
        parts = [slice(start, min(start + self.piece_rows, batch.rows)) for start in starts]

        def work(part: slice) -> tuple[slice, Batch]:
            return part, self.apply(batch.slice(part.start, part.stop))

        if threads == 1 or len(parts) <= 1:
            yield from map(work, parts)
            return
        with closing(worked_ahead(parts, work, threads + SPARE, threads)) as pieces:
            yield from pieces

    def _all_indices(self, rows: int) -> Uint32s:
        """0 .. width - 1 again and again, shared by all batches: nobody writes to indices."""
        indices = self._indices  # held here, because another thread may put others in its place
        if rows * self.width > len(indices):
            self._indices = indices = np.tile(np.arange(self.width, dtype=np.uint32), max(rows, self.piece_rows))
        return indices

    def summary(self) -> str:
        """The map in a few words."""
        plain = self.inner.stored()[0]
        given = {**plain.pop("kernel", {}), **plain}
        name = given.pop("name", None)
        unused = ("seed", "d", "degree", "coef0") if name == "gaussian" else ("seed", "d")
        told = [name] if name else []
        for key, value in given.items():
            if key not in unused:
                told.append(f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}")
        columns = f"{len(self.spread.columns):,} columns"
        if self.spread.rotation is not None:
            columns += f" in their {self.spread.width} widest directions"
        return f"{self.kind}, {columns} become {self.width:,} features ({', '.join(told)})"

    # In the model.

    def plain(self) -> dict[str, Any]:
        """What a model's recipe says of the map."""
        return {"kind": self.kind, **self.inner.stored()[0], **self.spread.plain()}

    def arrays(self) -> Arrays:
        """What a model keeps of the map beside that."""
        found = {**self.inner.stored()[1], **self.spread.arrays()}
        return {name: np.ascontiguousarray(array) for name, array in found.items()}

    def same_as(self, other: "RowMap") -> bool:
        mine, others = self.arrays(), other.arrays()
        same = self.plain() == other.plain() and mine.keys() == others.keys()
        return same and all(np.array_equal(mine[name], others[name]) for name in mine)
