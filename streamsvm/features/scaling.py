"""Scaling: every feature divided by its size, which is counted on the stream.

    maxabs     x_j / max |x_j|            values from -1 to 1
    standard   x_j / deviation of x_j     over all rows, absent features counted as zeros; not centred, rows stay sparse

A row of weight c counts c times, a row of weight 0 not at all. A feature of size 0, or never seen, has factor 1; so do
the hashed features of a table, whose values are 1 or -1 by their nature.

Where a pass can be made before learning (the data is cached), `see` counts it and `freeze` fixes the factors. Without
one, `apply` counts each row and scales it by what is known by then, the row itself included: the order of rows alone
decides the result. `fold` turns weights learned on scaled features into weights of features as written.

The sum of squares less the square of the sum would forget a deviation of 1 around a mean of 1e6: the two cancel. So
`standard` keeps, for the rows in which a feature is present, their weight n, their mean and the sum M of squared
distances from it (West 1979), a running form that subtracts only numbers of the same size. Absent rows are a second
group with mean 0 and no distances; the two together have (Chan, Golub, LeVeque 1983)

    deviation^2 = (M + mean^2 n (total - n) / total) / total

where nothing is subtracted but weights, and rows without a feature cost nothing. A constant feature has exactly M = 0.

A deviation says nothing where a feature never varies, and in the first row none does. Such a feature is divided by its
magnitude. With factor 1 in its place the first row comes unscaled, and where values are about 1e3 that spoils the pass:
30 % error instead of 3 % (asgd, 2000 rows of 20 features).
"""

import math
from typing import NamedTuple, NoReturn

import numpy as np

from streamsvm.batch import Batch, Float32s, Float64s, Int64s
from streamsvm.errors import ConfigError, DataError
from streamsvm.jit import expose, inlined, kernel

State = dict[str, Float32s | Float64s]

ONE = np.float32(1.0)
LARGEST = np.finfo(np.float32).max
LARGEST_FACTOR = 2.0**100  # sizes below 1e-30 are not brought to 1: weights folded with larger factors would overflow
SMALLEST = 2.0**-149  # of all float32 numbers

EVERY = 2**32

_1, _2, _3 = np.uint64(1), np.uint64(2), np.uint64(3)


class MaxAbs(NamedTuple):
    """One number for each feature: max |x|."""

    columns: int = 1

    def see(self, statistics, j, value, weight):
        statistics[j] = max(statistics[j], abs(value))

    def size(self, statistics, j, total):
        return np.float64(statistics[j])


class Standard(NamedTuple):
    """Three numbers for each feature, over the rows that have it: weight, mean, squared distances from the mean."""

    columns: int = 3

    def see(self, statistics, j, value, weight):
        j = _3 * j
        before, distance = statistics[j], value - statistics[j + _1]
        n = before + weight
        move = distance * (weight / n)
        statistics[j] = n
        statistics[j + _1] += move
        statistics[j + _2] += before * distance * move  # never negative, however numbers are rounded

    def size(self, statistics, j, total):
        j = _3 * j
        n, mean = statistics[j], statistics[j + _1]
        share = 1.0 / total  # the same for all features: it leaves the loop
        deviation = math.sqrt((statistics[j + _2] + mean * mean * n * ((total - n) * share)) * share)
        return abs(mean) if deviation == 0.0 else deviation


def _see(self, statistics, j, value, weight):
    return getattr(self.instance_class, "see", None)


def _size(self, statistics, j, total):
    return getattr(self.instance_class, "size", None)


expose("see", _see)
expose("size", _size)

KINDS: dict[str, MaxAbs | Standard] = {"maxabs": MaxAbs(), "standard": Standard()}


class Scaling:
    """Counts the sizes of features, and scales batches by them; memory grows with the largest index seen."""

    def __init__(self, kind: str, *, dim: int = 0, memory: int | None = None, dense: int | None = None) -> None:
        self.kind = kind
        self.dim = dim
        self.memory = memory
        self._limit = EVERY if dense is None else dense  # features from here on are left as they are
        self.width = min(dim, self._limit)  # one more than the largest index seen
        self._term = KINDS[kind]
        self._number = np.dtype(np.float32 if kind == "maxabs" else np.float64)
        self._statistics: Float32s | Float64s = np.zeros(0, self._number)
        self._total = 0.0  # weight of all rows
        self._factors: Float32s | None = None
        self._values: Float32s = np.empty(0, np.float32)
        if dim:
            self._reserve(dim)

    @classmethod
    def from_factors(cls, kind: str, factors: Float32s) -> "Scaling":
        """Frozen, with factors known already, as from a stored model; features beyond them have factor 1."""
        scaling = cls(kind)
        scaling.restore({"factors": factors})
        return scaling

    @property
    def frozen(self) -> bool:
        return self._factors is not None

    def see(self, batch: Batch) -> None:
        """Count a batch, before anything is learned."""
        assert not self.frozen, "the factors are fixed"
        self._reserve(batch.width)
        self._total = float(count_pass(batch, self._term, self._statistics, self._total, self._limit))

    def freeze(self) -> None:
        """Everything is counted: from now on the factors stay as they are, and the statistics are gone."""
        if not self.frozen:
            self._factors = self.factors(self.width)
            self._statistics = np.zeros(0, self._number)

    def apply(self, batch: Batch, order: Int64s | None = None) -> Batch:
        """The batch with scaled values, which are valid until the next call; all other arrays are its own.

        Unless frozen, its rows are counted on the way, one after the other, or in the order given.
        """
        first, last = int(batch.indptr[0]), int(batch.indptr[-1])
        if last > len(self._values):
            self._values = np.empty(1 << (last - 1).bit_length(), np.float32)
        if self._factors is not None:
            self._check(batch.width)
            scale_pass(batch.indices, batch.values, first, last, self._factors, self._values)
        else:
            self._reserve(batch.width)
            order = np.arange(batch.rows) if order is None else order
            self._total = float(
                running_pass(batch, order, self._term, self._statistics, self._total, self._values, self._limit)
            )
        return batch._replace(values=self._values[:last])

    def scaled(self, batch: Batch) -> Batch:
        """The batch with values scaled by factors that are fixed, in a new array; any thread may ask."""
        assert self._factors is not None, "the factors are not fixed yet"
        first, last = int(batch.indptr[0]), int(batch.indptr[-1])
        values = np.empty(last, np.float32)
        scale_pass(batch.indices, batch.values, first, last, self._factors, values)
        return batch._replace(values=values)

    def factors(self, width: int) -> Float32s:
        """What the values of features 0 .. width - 1 are multiplied by, in a new array; 1 where nothing is known."""
        factors = np.ones(width, np.float32)
        if self._factors is not None:
            known = self._factors[:width]
            factors[: len(known)] = known
        elif self._total:
            factors_pass(self._term, self._statistics, self._total, factors[: self.width])
        return factors

    def fold(self, weights: Float32s) -> Float32s:
        """Weights of features as written, from weights learned on scaled features: the same scores without scaling."""
        with np.errstate(over="ignore", under="ignore"):
            factors = self.factors(len(weights))
            folded = weights * (factors[:, None] if weights.ndim == 2 else factors)
        return np.clip(folded, -LARGEST, LARGEST, out=folded)

    def state(self) -> State:
        """Everything that the future depends on, copied."""
        if self._factors is not None:
            return {"factors": self._factors.copy()}
        counted = self._statistics[: self.width * self._term.columns]
        return {"statistics": counted.copy(), "scalars": np.array([self._total])}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        if "factors" in state:
            self._factors = np.array(state["factors"], np.float32)
            self._statistics = np.zeros(0, self._number)
            self.width = len(self._factors)
        else:
            self._factors = None
            self._statistics = np.array(state["statistics"], self._number)
            self._total = float(state["scalars"][0])
            self.width = len(self._statistics) // self._term.columns

    def merge(self, state: State) -> None:
        """Count what another has counted in other rows: its state, before its factors were fixed."""
        assert not self.frozen, "the factors are fixed"
        others, columns = np.asarray(state["statistics"]), self._term.columns
        width = len(others) // columns
        if width:
            self._reserve(width)
        own = self._statistics[: len(others)]
        if self.kind == "maxabs":
            np.maximum(own, others, out=own)
        else:
            merge_moments(own, others)
        self._total += float(state["scalars"][0])

    # Room.

    def bytes_for(self, width: int) -> int:
        """The statistics and the factors made from them."""
        return width * (self._number.itemsize * self._term.columns + 4)

    def _check(self, width: int) -> None:
        if self.dim and width > self.dim:
            raise DataError(f"index {width - 1} is out of range: features.dim is {self.dim}")

    def _reserve(self, width: int) -> None:
        """Room for features 0 .. width - 1, refused before it is allocated when it exceeds the budget."""
        self._check(width)
        width = min(width, self._limit)
        columns = self._term.columns
        if width * columns > len(self._statistics):
            have = len(self._statistics) // columns
            room = width if self.dim or self._limit < EVERY else 1 << max(10, (width - 1).bit_length())
            if not self._affordable(have + room):
                room = width
            if not self._affordable(have + room):
                self._refuse(width)
            grown = np.zeros(room * columns, self._number)
            grown[: len(self._statistics)] = self._statistics
            self._statistics = grown
        self.width = max(self.width, width)

    def _affordable(self, width: int) -> bool:
        return self.memory is None or self.bytes_for(width) <= self.memory

    def _refuse(self, width: int) -> NoReturn:
        assert self.memory is not None
        bits = max(1, (self.memory // self.bytes_for(1)).bit_length() - 1)
        needed, left = self.bytes_for(width) / 1e6, self.memory / 1e6
        error = ConfigError if self.dim else DataError
        cause = f"{width} features" if self.dim else f"index {width - 1}"
        raise error(
            f"{cause}: features.scale {self.kind} would need {needed:,.0f} MB, but the memory budget leaves "
            f"{left:,.0f} MB; set features.hash_bits: {bits} (--hash-bits {bits}), or raise --memory"
        )


@inlined
def factor_of(size):
    """1 / size in float32. Those below 2^-126 have few bits: they are rounded down, so that x / max |x| stays <= 1."""
    return np.float32(min(1.0 / size - SMALLEST, LARGEST_FACTOR)) if size > 0.0 else ONE


@inlined
def finite(value):
    """Factors of other data, or of rows with tiny weights, must not make a number infinite."""
    return min(max(value, -LARGEST), LARGEST)


@kernel
def count_pass(batch, kind, statistics, total, limit):
    indptr, indices, values, labels, weights = batch
    end = np.uint64(limit)
    for i in range(len(labels)):
        weight = np.float64(weights[i])
        if weight > 0.0:
            total += weight
            for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                if np.uint64(indices[k]) < end:
                    kind.see(statistics, np.uint64(indices[k]), values[k], weight)
    return total


@kernel
def merge_moments(own, others):
    """Weight, mean and squared distances of two sets of rows together (Chan, Golub, LeVeque 1983)."""
    for j in range(0, len(others), 3):
        n = own[j] + others[j]
        if others[j] > 0.0:
            distance = others[j + 1] - own[j + 1]
            own[j + 2] += others[j + 2] + distance * distance * own[j] * (others[j] / n)
            own[j + 1] += distance * (others[j] / n)
            own[j] = n


@kernel
def running_pass(batch, order, kind, statistics, total, out, limit):
    """Count each row, then scale it: its features differ, so each can be scaled as soon as it is counted."""
    indptr, indices, values, labels, weights = batch
    end = np.uint64(limit)
    for i in order:
        weight = np.float64(weights[i])
        total += max(weight, 0.0)
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            j = np.uint64(indices[k])
            if j >= end:
                out[k] = values[k]
                continue
            if weight > 0.0:
                kind.see(statistics, j, values[k], weight)
            out[k] = finite(values[k] * factor_of(kind.size(statistics, j, total)))
    return total


@kernel
def factors_pass(kind, statistics, total, out):
    for j in range(np.uint64(len(out))):
        out[j] = factor_of(kind.size(statistics, np.uint64(j), total))


@kernel
def scale_pass(indices, values, first, last, factors, out):
    known = np.uint64(len(factors))
    for k in range(np.uint64(first), np.uint64(last)):
        j = np.uint64(indices[k])
        out[k] = finite(values[k] * (factors[j] if j < known else ONE))
