"""Random binning: the Laplace kernel as sparse rows whose numbers are all alike, and the fastest of the maps.

    k(x, y) = exp(-gamma ||x - y||_1)  is close to  phi(x) . phi(y) = the share of grids in which x and y meet

    grid r:     pitch_rj from the Gamma distribution of shape 2 and scale 1 / gamma, offset_rj uniform in [0, 1)
    cell:       b_rj = floor(x_j / pitch_rj + offset_rj)  of all columns j together
    index:      r 2^bits + top bits of avalanche(sum_j b_rj factor_rj  mod 2^32),   value 1 / sqrt(grids)

(Rahimi and Recht 2007, second method; Wu, Yen, Chen and Yan 2016, who show that it needs far fewer numbers a row than
Fourier features do.) Two rows meet in a grid if they share a cell, and otherwise once in 2^bits by chance. Each row has
exactly one index in each grid, so indices rise by themselves and rows have length 1.

The sum with random odd factors is a hash of its own: cells that differ meet in it about once in 2^31, whatever they
are, because one factor decides and it was drawn alone. A value of 0 is in bin 0 of each grid and adds nothing: absent
features cost nothing, and equal those written as 0. The time is features x grids: the numbers of a column lie side by
side for all grids, so that the loop over grids runs in vector registers (0.2 ns a step with AVX2 from a core's own
cache, 0.35 ns from the shared one). Bins beyond 2^30 are one: huge values meet each other, and nothing overflows.

Choose it where classes are separated by thresholds of few columns; where all columns count together, distances in the
sense of ||x - y||_1 grow with their number, and gamma must fall with it.
"""

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamsvm.batch import Batch, Float32s, Uint32s
from streamsvm.features.maps.base import SparseMap
from streamsvm.features.maps.chance import logarithm, uniform
from streamsvm.jit import kernel
from streamsvm.shuffle import mixed, next_random

SEED = 0x62696E73  # tells these random numbers from others of the same seed
MOST = np.float32(2.0**30)  # bins on each side of 0
LEAST = np.float32(-(2.0**30))
STEP = np.float32(2.0**-24)

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ZERO, _ONE = np.uint32(0), np.uint32(1)
_F1, _F2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_13, _16, _32 = np.uint32(13), np.uint32(16), np.uint32(32)
_40 = np.uint64(40)


class Bins(SparseMap):
    """Random binning of rows with columns 0 .. d - 1; frozen, so that any thread may use it."""

    kind: ClassVar[str] = "bins"

    def __init__(self, d: int, grids: int, bits: int, gamma: float, seed: int) -> None:
        if d < 1 or grids < 1 or not 1 <= bits <= 31:
            raise ValueError(f"bins need columns, grids and 1 to 31 bits, not {d}, {grids} and {bits}")
        if grids << bits > 1 << 32:
            raise ValueError(f"{grids} grids of 2^{bits} cells have indices beyond 2^32; use fewer bits or grids")
        if not (math.isfinite(gamma) and gamma > 0.0):
            raise ValueError(f"gamma must be a positive number, not {gamma}")
        self.d, self.grids, self.bits, self.gamma, self.seed = d, grids, bits, float(gamma), seed
        self.width = grids << bits
        self.pairs = grids
        self._pitches = np.empty((d, grids), np.float32)  # 1 / pitch
        self._offsets = np.empty((d, grids), np.float32)
        self._factors = np.empty((d, grids), np.uint32)
        self._ones: Float32s = np.empty(0, np.float32)
        draw_grids(np.uint64(mixed(SEED, seed)), self.gamma, self._pitches, self._offsets, self._factors)

    def batch(self, given: Batch, room: Uint32s | None = None) -> Batch:
        """The mapped rows; labels and weights are those given, and the values, all alike, are not to be written to.

        Indices are put into `room` if it is given and large enough: new memory costs as much as mapping short rows.
        """
        if given.width > self.d:
            raise ValueError(f"a row has column {given.width - 1}, but the map was made for {self.d} columns")
        count = given.rows * self.grids
        indices = np.empty(count, np.uint32) if room is None or len(room) < count else room[:count]
        cells = indices.reshape(given.rows, self.grids)
        find_cells(given, self._pitches, self._offsets, self._factors, np.uint32(self.bits), cells)
        indptr = np.arange(0, count + 1, self.grids, dtype=np.int64)
        return Batch(indptr, indices, self._values(count), given.labels, given.weights)

    def _values(self, count: int) -> Float32s:
        values = self._ones  # held here, because another thread may put others in its place
        if len(values) < count:
            self._ones = values = np.full(count, 1.0 / math.sqrt(self.grids), np.float32)
        return values[:count]

    def stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        plain = {"d": self.d, "grids": self.grids, "bits": self.bits, "gamma": self.gamma, "seed": self.seed}
        return plain, {}

    @classmethod
    def restored(cls, plain: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> "Bins":
        try:
            d, grids, bits, seed = (int(plain[name]) for name in ("d", "grids", "bits", "seed"))
            return cls(d, grids, bits, float(plain["gamma"]), seed)
        except (KeyError, TypeError) as error:
            raise ValueError(f"no bins: {error!r}") from None


@kernel
def draw_grids(seed, gamma, pitches, offsets, factors):
    """Each column has random numbers of its own, whatever the number of columns; fewer grids are the first of more."""
    d, grids = pitches.shape
    for j in range(d):
        _, state = next_random(seed + np.uint64(j) * _GOLDEN)
        for r in range(grids):
            state, bits = next_random(state)
            state, others = next_random(state)
            pitches[j, r] = gamma / -logarithm(uniform(bits) * uniform(others))
            state, bits = next_random(state)
            offsets[j, r] = np.float32(bits >> _40) * STEP  # below 1 in float32, too
            factors[j, r] = np.uint32(bits) | _ONE


@kernel
def find_cells(batch, pitches, offsets, factors, bits, cells):
    """The index of each row's cell in each grid; the cells serve as sums on the way."""
    indptr, indices, values, _, _ = batch
    grids = np.uint64(pitches.shape[1])
    for i in range(np.uint64(len(cells))):
        sums = cells[i]
        sums[:] = _ZERO
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            x = values[k]
            pitch, offset, factor = pitches[indices[k]], offsets[indices[k]], factors[indices[k]]
            for r in range(grids):
                place = min(max(LEAST, x * pitch[r] + offset[r]), MOST)
                bin = np.int32(place)
                bin = np.int32(bin - np.int32(np.float32(bin) > place))
                sums[r] = np.uint32(sums[r] + np.uint32(bin) * factor[r])
        for r in range(grids):
            h = sums[r]
            h = np.uint32((h ^ (h >> _16)) * _F1)
            h = np.uint32((h ^ (h >> _13)) * _F2)
            h = np.uint32(h ^ (h >> _16))
            sums[r] = (np.uint32(r) << bits) | (h >> (_32 - bits))
