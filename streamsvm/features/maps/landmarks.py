"""prototypes and nystroem: a row is described by how near it is to landmarks p_1 .. p_m.

    prototypes   phi(x) = k(x, p)                           k: gaussian exp(-gamma ||x - p||^2),
    nystroem     phi(x) = k(x, p) W,   W W^T = inverse of K    polynomial (gamma x.p + coef0)^degree, or linear x.p

where K holds the kernel between the landmarks. With nystroem phi(x).phi(y) is the kernel itself wherever x or y is a
landmark, and close to it near them (Williams, Seeger 2001); a linear solver then learns what a kernel machine would, in
m numbers instead of one for each support vector. W is the inverse of the Cholesky factor of K, transposed, and so
triangular. prototypes cost less, but their features are far from independent, and solvers need more passes. A model
of a budgeted kernel learner is a map to its support vectors.

Landmarks are rows of a sample, or with `kmeans` the means of the rows around them after a few rounds (Zhang, Tsang,
Kwok 2008): on MNIST 3 against 8, 1000 means are worth as much as 2000 rows.
"""

from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Float32s, Float64s
from streamsvm.exponentials import BINARY
from streamsvm.features.maps.base import Arrays, DenseMap, Stored
from streamsvm.features.maps.nearness import Gaussian, Polynomial, squared_lengths
from streamsvm.features.maps.product import WIDE, multiply, packed
from streamsvm.features.maps.spread import chosen
from streamsvm.shuffle import mixed

ROUNDS = 2  # of k-means
ROWS_PER_MEAN = 8  # that are looked at
SOFTENED = 1e-4  # added to the diagonal of K, relative to it: directions that rounding has made up must not count
SMALL = 64  # matrices up to this size are inverted as they are
KERNELS = ("gaussian", "polynomial", "linear")


class Kernel(NamedTuple):
    """How near two rows are."""

    name: str = "gaussian"
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 1.0

    def of_products(self, rows: Float32s, lengths: Float32s, width: int) -> Any:
        """The term that turns products of rows and landmarks, with these squared lengths, into nearness."""
        if self.name == "gaussian":
            factor = np.float32(-np.float32(self.gamma) * BINARY)
            return Gaussian(width, squared_lengths(rows), lengths, factor)
        if self.name == "polynomial":
            return Polynomial(width, np.float32(self.gamma), np.float32(self.coef0), self.degree)
        return None

    def checked(self) -> "Kernel":
        if self.name not in KERNELS or not self.gamma > 0.0 or self.degree < 1:
            raise ValueError(f"an unknown kernel: {self._asdict()}")
        return self


class Prototypes(DenseMap):
    """Nearness to each landmark."""

    kind = "prototypes"

    def __init__(self, landmarks: Float32s, kernel: Kernel) -> None:
        if landmarks.ndim != 2 or landmarks.dtype != np.float32:
            raise ValueError("the landmarks are no table of numbers")
        self.landmarks = landmarks
        self.kernel = kernel.checked()
        self.width = len(landmarks)
        self._panels = packed(landmarks.T)
        self._lengths = np.zeros(len(self._panels) * WIDE, np.float32)
        self._lengths[: self.width] = squared_lengths(landmarks)

    def rows(self, given: Float32s, out: Float32s | None = None) -> Float32s:
        out = np.empty((len(given), self.width), np.float32) if out is None else out
        finish = self.kernel.of_products(given, self._lengths, self.width)
        multiply(given, self._panels, out, self.width, finish=finish)
        return out

    def stored(self) -> Stored:
        return {"kernel": self.kernel._asdict(), "size": self.width}, {"landmarks": self.landmarks}

    @classmethod
    def restored(cls, plain: dict[str, Any], arrays: Arrays) -> "Prototypes":
        return cls(arrays["landmarks"], Kernel(**plain["kernel"]))


class Nystroem(DenseMap):
    """Nearness to the landmarks, made independent."""

    kind = "nystroem"

    def __init__(self, landmarks: Float32s, kernel: Kernel, whitening: Float32s | None = None) -> None:
        self._near = Prototypes(landmarks, kernel)
        self.width = len(landmarks)
        self.whitening = _whitening(self._near) if whitening is None else whitening
        if self.whitening.shape != (self.width, self.width):
            raise ValueError(f"{self.width} landmarks, and a whitening of {list(self.whitening.shape)}")
        if np.tril(self.whitening, -1).any():
            raise ValueError("the whitening of the landmarks is not triangular")
        self._panels = packed(self.whitening)

    def rows(self, given: Float32s, out: Float32s | None = None) -> Float32s:
        near = self._near.rows(given)
        out = np.empty_like(near) if out is None else out
        multiply(near, self._panels, out, self.width, triangular=True)
        return out

    def stored(self) -> Stored:
        plain, arrays = self._near.stored()
        return plain, {**arrays, "whitening": self.whitening}

    @classmethod
    def restored(cls, plain: dict[str, Any], arrays: Arrays) -> "Nystroem":
        return cls(arrays["landmarks"], Kernel(**plain["kernel"]), arrays["whitening"])


def _whitening(near: Prototypes) -> Float32s:
    table: Float64s = near.rows(near.landmarks).astype(np.float64)
    table = table + table.T
    table *= 0.5
    diagonal = np.diag(table).copy()
    softened = SOFTENED * max(float(diagonal.mean()), 1e-300)
    while True:
        np.fill_diagonal(table, diagonal + softened)
        try:
            factor: Float64s = np.linalg.cholesky(table).astype(np.float64, copy=False)
            break
        except np.linalg.LinAlgError:
            softened *= 10.0
    return np.ascontiguousarray(_inverse(factor).T, dtype=np.float32)


def _inverse(lower: Float64s) -> Float64s:
    """Of a triangular matrix, by that of its two corners: a sixth of the work of a general one."""
    size = len(lower)
    if size <= SMALL:
        small: Float64s = np.tril(np.linalg.inv(lower))
        return small
    half = size // 2
    found: Float64s = np.zeros_like(lower)
    first, second = _inverse(lower[:half, :half]), _inverse(lower[half:, half:])
    found[:half, :half], found[half:, half:] = first, second
    found[half:, :half] = -second @ (lower[half:, :half] @ first)
    return found


def pick_landmarks(rows: Float32s, count: int, seed: int, *, means: bool) -> Float32s:
    """So many rows of a sample, or the means of those around them."""
    found: Float32s = rows[chosen(seed, count, len(rows))].copy()
    rows = rows[chosen(mixed(seed, 1), ROWS_PER_MEAN * count, len(rows))]
    for _ in range(ROUNDS if means and len(rows) > len(found) else 0):
        found = _round(rows, found)
    return found


def _round(rows: Float32s, centres: Float32s) -> Float32s:
    """One round of k-means: each centre moves to the mean of the rows that are nearest to it."""
    half = np.float32(0.5) * squared_lengths(centres)
    step = max((1 << 19) // max(len(centres), 1), 1)
    sums, counts = np.zeros(centres.shape, np.float64), np.zeros(len(centres), np.int64)
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        products = part @ centres.T
        products -= half
        nearest = products.argmax(axis=1)
        order = np.argsort(nearest, kind="stable")
        firsts = np.flatnonzero(np.diff(nearest[order], prepend=-1))
        sums[nearest[order][firsts]] += np.add.reduceat(part[order].astype(np.float64), firsts, axis=0)
        counts += np.bincount(nearest, minlength=len(centres))
    moved: Float32s = centres.copy()
    moved[counts > 0] = (sums[counts > 0] / counts[counts > 0, None]).astype(np.float32)
    return moved
