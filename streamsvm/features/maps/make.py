"""From a wish and a sample of rows to a map; from a model's recipe back to it.

`rbf` is what most want who come from a kernel machine: of rows with few features (up to 32 on average) random bins, of
others landmarks. Bins learn any detail of a few columns, at the cost of a linear model with a few hundred features in a
row; where all of many columns count together, as pixels do, a gaussian around landmarks is the better measure.
"""

import math
from typing import Any

from threadpoolctl import threadpool_limits

from streamsvm.batch import Batch, Float32s
from streamsvm.errors import ConfigError, DataError
from streamsvm.features.maps.base import Arrays, DenseMap, RowMap, SparseMap
from streamsvm.features.maps.bins import Bins
from streamsvm.features.maps.fourier import Fourier
from streamsvm.features.maps.landmarks import Kernel, Nystroem, Prototypes, pick_landmarks
from streamsvm.features.maps.nearness import squared_lengths
from streamsvm.features.maps.neighbours import NEIGHBOURS, gaussian_gamma, laplace_gamma
from streamsvm.features.maps.plain import Plain
from streamsvm.features.maps.polynomial import LONGEST, HashedPolynomial, Monomials, count_monomials
from streamsvm.features.maps.spread import Spread, dense_rows, dense_spread, sparse_spread
from streamsvm.features.maps.wish import Wish
from streamsvm.pool import at_once

FEW_PAIRS = 32  # features of a row up to which rbf means bins
SIZES = {"bins": 256, "nystroem": 1000, "prototypes": 1000, "fourier": 2048, "fourier_fast": 4096}
WEIGHTS = 22  # bits: cells of all grids together, for two classes; fewer for more
ROWS_PER_BIN = 6  # as a power of two: of fewer rows there need not be more bins in a grid
FEWEST_BITS = 8
MOST_MONOMIALS = 4096
LANDMARK_SHARE = 2  # rows of the sample for each landmark, at least


def make_map(wish: Wish, sample: Batch, total: int, classes: int) -> RowMap:
    """The map for rows like those of a sample, of which there are so many in all, and of so many classes.

    BLAS has one thread meanwhile: several wait for each other where anything else is going on, and then take five times
    as long instead of half.
    """
    with threadpool_limits(1, "blas"):
        return _make_map(wish, sample, total, classes)


def _make_map(wish: Wish, sample: Batch, total: int, classes: int) -> RowMap:
    if not sample.rows or not sample.features:
        raise DataError("there is no row with a feature to make a map from")
    kind = wish.kind
    if kind == "rbf":
        kind = "bins" if sample.features <= FEW_PAIRS * sample.rows else "nystroem"
    size = wish.size or SIZES.get(kind, 0)
    if kind == "bins":
        return _bins(wish, size, sample, total, classes)
    if kind == "polynomial":
        return _polynomial(wish, sample, classes)
    if kind == "dense":
        return _for_learner(wish, sample)
    spread = dense_spread(sample, wish.scale, wish.seed, rotate=True)

    def gamma_for() -> float:
        unrotated = spread.unrotated()
        return wish.gamma or gaussian_gamma(dense_rows(unrotated, sample, wish.seed, NEIGHBOURS), wish.seed)

    if kind in ("fourier", "fourier_fast"):
        fourier = Fourier(spread.width, size, gamma_for(), wish.seed, structured=kind == "fourier_fast")
        return RowMap(spread, fourier)

    def landmarks_for() -> Float32s:
        rows = dense_rows(spread, sample, wish.seed)
        return pick_landmarks(rows, min(size, max(len(rows) // LANDMARK_SHARE, 1)), wish.seed, means=wish.means)

    gamma, landmarks = at_once(gamma_for, landmarks_for)
    dense = (Nystroem if kind == "nystroem" else Prototypes)(landmarks, Kernel("gaussian", gamma))
    return RowMap(spread, dense)


def _for_learner(wish: Wish, sample: Batch) -> RowMap:
    """Dense rows for a kernel learner, which chooses its landmarks by itself: its gamma is 1, the rows are scaled."""
    spread = dense_spread(sample, wish.scale, wish.seed, rotate=True)
    rows = dense_rows(spread.unrotated(), sample, wish.seed, NEIGHBOURS)
    usual = gaussian_gamma(rows, wish.seed) if wish.kernel == "rbf" else _usual_gamma(rows)
    gamma = wish.gamma or usual
    spread = spread.stretched(math.sqrt(gamma))
    return RowMap(spread, Plain(spread.width))


def _bins(wish: Wish, size: int, sample: Batch, total: int, classes: int) -> RowMap:
    spread = sparse_spread(sample, wish.scale)
    gamma = wish.gamma or laplace_gamma(dense_rows(spread, sample, wish.seed, NEIGHBOURS), total, wish.seed)
    room = max(WEIGHTS - _fewer(classes) - math.ceil(math.log2(size)), 1)
    bits = min(max(math.ceil(math.log2(max(total, 2))) - ROWS_PER_BIN, FEWEST_BITS), room)
    bins = Bins(len(spread.columns), size, bits, gamma, wish.seed)
    return RowMap(spread, bins)


def _polynomial(wish: Wish, sample: Batch, classes: int) -> RowMap:
    spread = sparse_spread(sample, wish.scale)
    columns, most = len(spread.columns), wish.size or MOST_MONOMIALS
    gamma = wish.gamma or _usual_gamma(dense_rows(spread, sample, wish.seed, NEIGHBOURS))
    if count_monomials(columns, wish.degree, wish.coef0) <= most:
        return RowMap(spread, Monomials(columns, wish.degree, gamma, wish.coef0, most))
    if wish.degree not in LONGEST:
        raise ConfigError(
            f"map.degree: {columns} columns have more than {most} products of degree {wish.degree}; if hashed, their "
            f"degree is {' or '.join(map(str, LONGEST))}: raise --map-size, or lower --degree"
        )
    hashed = HashedPolynomial(wish.degree, gamma, wish.coef0, WEIGHTS - _fewer(classes), wish.seed, first=columns)
    return RowMap(spread, hashed)


def _usual_gamma(rows: Float32s) -> float:
    """For products of rows: so that they are about 1."""
    return 1.0 / max(float(squared_lengths(rows).mean()), 1e-30)


def _fewer(classes: int) -> int:
    """Bits less, so that the weights of all classes take about the same memory."""
    return math.ceil(math.log2(classes / 2)) if classes > 2 else 0


KINDS: dict[str, Any] = {
    "dense": Plain,
    "bins": Bins,
    "nystroem": Nystroem,
    "prototypes": Prototypes,
    "fourier": Fourier,
    "fourier_fast": Fourier,
    "polynomial": Monomials,
    "hashed_polynomial": HashedPolynomial,
}


def restored_map(plain: dict[str, Any], arrays: Arrays) -> RowMap:
    """The map of a model; ValueError or KeyError if it is none that this version understands."""
    kind = KINDS.get(plain["kind"])
    if kind is None:
        raise ValueError(f"a map of unknown kind {plain['kind']!r}")
    spread = Spread.restored(arrays)
    inner: DenseMap | SparseMap = kind.restored(plain, arrays)
    return RowMap(spread, inner)
