"""Polynomials: products of up to two, three or more features, as features of their own.

    k(x, y) = (gamma x.y + coef0)^degree = sum over monomials m of at most that degree:  weight(m)^2 m(x) m(y)

    m(x) = x_1^a_1 x_2^a_2 ...,   k = a_1 + a_2 + ...
    weight(m)^2 = degree! / (a_1! a_2! ... (degree - k)!) gamma^k coef0^(degree - k)

With coef0 = 0 only monomials of the full degree have a weight, and the others are left out.

    Monomials         dense rows of few columns: all of them, (d + degree choose degree), and k is exact
    HashedPolynomial  sparse rows of any width: those that a row has, at indices that are hashes of theirs, with a sign,
                      so that those which meet cancel on average (hashing.py): k is right in the mean, and off by about
                      |phi(x)| |phi(y)| / sqrt(2^bits)

Monomials of one degree stand in the order of their last column. Those of degree k whose last column is j are then all
those of degree k - 1 with last column j or less, which stand side by side, times x_j: one product each, in a loop that
runs in vector registers. The hashed map makes each product once too, sorts a row by index and adds up what meets; its
time is the number of products, m (m + 1) / 2 for m features and degree 2. A long row would have millions of them, so
only the `longest` features of largest absolute value are multiplied with each other; all of them still count alone
where coef0 > 0. `long_rows` says how many rows that concerns.
"""

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamsvm.batch import Batch, Float32s, Float64s, Int64s
from streamsvm.features.maps.base import DenseMap, SparseMap
from streamsvm.hashing import cross, finished, mixed_in, sign_of
from streamsvm.jit import cold, inlined, kernel
from streamsvm.rows import sort_row
from streamsvm.shuffle import mixed

SEED = 0x706F6C79  # tells these hashes from others of the same seed
LONGEST = {2: 256, 3: 64}  # features of a row: some 30,000 and 45,000 products

ZERO = np.float32(0.0)
_1, _4 = np.uint64(1), np.uint64(4)


def count_monomials(d: int, degree: int, coef0: float) -> int:
    """How many monomials have a weight."""
    return math.comb(d + degree, degree) if coef0 > 0.0 else math.comb(d + degree - 1, degree)


def weight_of(degree: int, gamma: float, coef0: float, k: int, repeats: float = 1.0) -> float:
    """The weight of a monomial of k factors; `repeats` is the product of the factorials of its exponents."""
    ways = math.factorial(degree) / (repeats * math.factorial(degree - k))
    return math.sqrt(ways * gamma**k * (coef0 ** (degree - k) if degree > k else 1.0))


def _check(gamma: float, coef0: float) -> None:
    if not (math.isfinite(gamma) and gamma > 0.0):
        raise ValueError(f"gamma must be a positive number, not {gamma}")
    if not (math.isfinite(coef0) and coef0 >= 0.0):
        raise ValueError(f"coef0 must not be negative, but is {coef0}: that is no kernel")


class Monomials(DenseMap):
    """All monomials of rows with d columns; frozen, so that any thread may use it."""

    kind: ClassVar[str] = "polynomial"

    def __init__(self, d: int, degree: int, gamma: float, coef0: float, limit: int | None = None) -> None:
        if d < 1 or degree < 1:
            raise ValueError(f"a polynomial needs columns and a degree, not {d} and {degree}")
        _check(gamma, coef0)
        self.width = count_monomials(d, degree, coef0)
        if limit is not None and self.width > limit:
            raise ValueError(f"{d} columns have {self.width:,} monomials of degree {degree}, more than {limit:,}")
        self.d, self.degree, self.gamma, self.coef0 = d, degree, float(gamma), float(coef0)
        # How many of degree k have no column beyond j: those from which the next degree is made.
        self._counts: Int64s = np.array([[math.comb(j + k, k) for j in range(d)] for k in range(degree)], np.int64)
        self._weights = self._weigh()

    def rows(self, given: Float32s, out: Float32s | None = None) -> Float32s:
        """[n, d] to [n, width]."""
        if given.shape[1] != self.d:
            raise ValueError(f"rows have {given.shape[1]} columns, but the map was made for {self.d}")
        out = np.empty((len(given), self.width), np.float32) if out is None else out
        multiply_columns(np.ascontiguousarray(given, np.float32), self._counts, self._weights, out)
        return out

    def stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"d": self.d, "degree": self.degree, "gamma": self.gamma, "coef0": self.coef0}, {}

    @classmethod
    def restored(cls, plain: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> "Monomials":
        try:
            return cls(int(plain["d"]), int(plain["degree"]), float(plain["gamma"]), float(plain["coef0"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"no monomials: {error!r}") from None

    def _weigh(self) -> Float32s:
        """The weight of each monomial, in the order of `multiply_columns`; those without one are left out."""
        repeats: Float64s = np.ones(1)  # factorials of exponents
        lasts, runs = np.full(1, -1), np.zeros(1)  # the last column, and how often it is there
        found = [np.full(1, weight_of(self.degree, self.gamma, self.coef0, 0))]
        for k, counts in enumerate(self._counts, start=1):
            again = [np.where(lasts[:count] == j, runs[:count] + 1, 1.0) for j, count in enumerate(counts)]
            repeats = np.concatenate([repeats[: len(run)] * run for run in again])
            runs, lasts = np.concatenate(again), np.repeat(np.arange(self.d), counts)
            found.append(weight_of(self.degree, self.gamma, self.coef0, k) / np.sqrt(repeats))
        return np.concatenate(found)[-self.width :].astype(np.float32)


class HashedPolynomial(SparseMap):
    """Products of two or three features of sparse rows at hashed indices; frozen, so that any thread may use it.

    Features of an index below `first` keep it where they count alone; all else is at first .. first + 2^bits - 1.
    """

    kind: ClassVar[str] = "hashed_polynomial"
    pairs = None

    def __init__(
        self,
        degree: int,
        gamma: float,
        coef0: float,
        bits: int,
        seed: int,
        *,
        first: int = 0,
        longest: int | None = None,
    ) -> None:
        if degree not in LONGEST:
            raise ValueError(f"hashed polynomials have degree 2 or 3, not {degree}")
        if not 1 <= bits <= 31 or not 0 <= first <= (1 << 32) - (1 << bits):
            raise ValueError(f"indices from {first} with {bits} bits do not fit into 32")
        _check(gamma, coef0)
        self.degree, self.gamma, self.coef0, self.bits, self.seed = degree, float(gamma), float(coef0), bits, seed
        self.first, self.longest = first, LONGEST[degree] if longest is None else longest
        self.width = first + (1 << bits)
        if self.longest < 1:
            raise ValueError(f"longest must be a number of features, not {longest}")
        # Of 0 and 1 factors; of two alike and two others; of three alike, two alike, and three others.
        kinds = ((0, 1.0), (1, 1.0), (2, 2.0), (2, 1.0), (3, 6.0), (3, 2.0), (3, 1.0))
        weights = [weight_of(degree, gamma, coef0, k, repeats) if k <= degree else 0.0 for k, repeats in kinds]
        self._weights = np.array(weights, np.float32)

    def room(self, given: Batch) -> int:
        """How many (index, value) pairs the mapped rows have at most: what to cut large batches by."""
        return int(self._rooms(given).sum())

    def long_rows(self, given: Batch) -> int:
        """How many rows have more features than are multiplied with each other."""
        return int(np.count_nonzero(np.diff(given.indptr) > self.longest))

    def batch(self, given: Batch) -> Batch:
        """The mapped rows; labels and weights are those given."""
        rooms = self._rooms(given)
        indptr = np.zeros(given.rows + 1, np.int64)
        indices, values = np.empty(int(rooms.sum()), np.uint32), np.empty(int(rooms.sum()), np.float32)
        scratch = np.empty(2 * int(rooms.max(initial=0)), np.uint64)
        start = np.uint64(mixed(SEED, self.seed) & 0xFFFFFFFF)
        used = multiply_features(
            given,
            self.degree,
            self._weights,
            self.longest,
            start,
            self.first,
            self.bits,
            indptr,
            indices,
            values,
            scratch,
        )
        return Batch(indptr, indices[:used], values[:used], given.labels, given.weights)

    def stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        names = ("degree", "gamma", "coef0", "bits", "seed", "first", "longest")
        return {name: getattr(self, name) for name in names}, {}

    @classmethod
    def restored(cls, plain: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> "HashedPolynomial":
        try:
            degree, bits, seed, first, longest = (
                int(plain[name]) for name in ("degree", "bits", "seed", "first", "longest")
            )
            gamma, coef0 = float(plain["gamma"]), float(plain["coef0"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"no hashed polynomial: {error!r}") from None
        return cls(degree, gamma, coef0, bits, seed, first=first, longest=longest)

    def _rooms(self, given: Batch) -> Int64s:
        lengths = np.diff(given.indptr)
        m = np.minimum(lengths, self.longest)
        products: Int64s = m * (m + 1) // 2
        if self.degree == 3:
            products += m * (m + 1) * (m + 2) // 6
        return lengths + products + 1


@kernel
def multiply_columns(given, counts, weights, out):
    """All monomials of each row, degree by degree; the last ones of them, which have weights, are its features."""
    degree, d = counts.shape
    total = 1
    for k in range(degree):
        for j in range(d):
            total += counts[k, j]
    made = np.empty(total, np.float32)
    made[0] = 1.0
    for i in range(len(given)):
        before, place = 0, 1  # where monomials of the degree before begin, and where the next ones belong
        for k in range(degree):
            begun = place
            for j in range(d):
                x, count = given[i, j], counts[k, j]
                shorter, longer = made[before : before + count], made[place : place + count]
                for m in range(np.uint64(count)):
                    longer[m] = shorter[m] * x
                place += count
            before = begun
        features, weighted = out[i], made[total - len(weights) :]
        for m in range(np.uint64(len(weights))):
            features[m] = weighted[m] * weights[m]


@inlined
def word_of_index(start, index):
    return np.uint32(max(finished(mixed_in(start, np.uint64(index)) ^ _4), _1))


@inlined
def put(word, value, first, mask, place, indices, values):
    indices[place] = np.uint32(first + (np.uint64(word) & mask))
    values[place] = sign_of(word) * value


@cold
def choose_largest(numbers, words, count, longest):
    """Bring the features of largest absolute value to the front, in their order; of equal ones the first."""
    bound = np.sort(np.abs(numbers[:count]))[count - longest]
    above = 0
    for k in range(count):
        above += abs(numbers[k]) > bound
    kept, equal = 0, longest - above
    for k in range(count):
        size = abs(numbers[k])
        if size > bound or (size == bound and equal > 0):
            equal -= size == bound
            numbers[kept], words[kept] = numbers[k], words[k]
            kept += 1


@kernel
def multiply_features(batch, degree, weights, longest, start, first, bits, indptr, indices, values, scratch):
    """Constant, single features, pairs and triples of each row; then they are sorted. Returns how many there are."""
    given_indptr, given_indices, given_values, _, _ = batch
    base, mask = np.uint64(first), (_1 << np.uint64(bits)) - _1
    most = 0
    for i in range(len(given_indptr) - 1):
        most = max(most, given_indptr[i + 1] - given_indptr[i])
    numbers, words = np.empty(most, np.float32), np.empty(most, np.uint32)
    begun = 0
    for i in range(len(given_indptr) - 1):
        place, count = begun, 0
        if weights[0] > ZERO:
            put(np.uint32(finished(start)) >> np.uint32(1), weights[0], base, mask, place, indices, values)
            place += 1
        for k in range(given_indptr[i], given_indptr[i + 1]):
            index, x = given_indices[k], given_values[k]
            if x == ZERO:
                continue
            numbers[count], words[count] = x, word_of_index(start, index)
            if weights[1] > ZERO:
                if np.uint64(index) < base:
                    indices[place], values[place] = index, weights[1] * x
                else:
                    put(words[count], weights[1] * x, base, mask, place, indices, values)
                place += 1
            count += 1
        if count > longest:
            choose_largest(numbers, words, count, longest)
            count = longest
        for a in range(count):
            for b in range(a, count):
                product, pair = numbers[a] * numbers[b], cross(words[a], words[b])
                weight = weights[2] if a == b else weights[3]
                if weight > ZERO:
                    put(pair, weight * product, base, mask, place, indices, values)
                    place += 1
                if degree == 3:
                    for c in range(b, count):
                        alike = np.int64(a == b) + np.int64(b == c)
                        weight = weights[6 - alike]
                        put(cross(pair, words[c]), weight * (product * numbers[c]), base, mask, place, indices, values)
                        place += 1
        begun += sort_row(indices[begun:place], values[begun:place], scratch)
        indptr[i + 1] = begun
    return begun
