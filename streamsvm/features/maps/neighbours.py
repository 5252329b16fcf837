"""gamma, from how far apart rows are: a kernel is as wide as the distance to a row's near neighbours.

    gaussian    exp(-gamma ||x - y||^2)     gamma = 1 / (squared distance to the tenth nearest of 2000 rows)
    laplace     exp(-gamma ||x - y||_1)     gamma = 0.3 / (distance to the fifth nearest of all rows)

each the median over 500 rows. The distance between any two rows, the usual choice, is far too wide for data that lies
in folds: for covtype gamma would be 0.24 instead of 9. The more rows there are, the finer the detail that bins can
learn; so there the distance is carried on from 2000 rows to all of them, by how it grows from the fifth to the fiftieth
neighbour. Twice or half as much costs little.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Float32s, Int64s
from streamsvm.features.maps.nearness import squared_lengths
from streamsvm.features.maps.spread import chosen
from streamsvm.jit import kernel

ASKED, AMONG = 500, 2000  # rows whose neighbours are looked for, and rows among which
NEIGHBOURS = ASKED + AMONG
NEAR, NEAR_GAUSSIAN, FAR = 5, 10, 50
LAPLACE = 0.3
STEEPEST = 0.5  # of the growth of distances with the number of rows: less than that of a plane
MOST_ROWS = 1e6  # of the data, by which the detail grows


def gaussian_gamma(rows: Float32s, seed: int) -> float:
    """For dense rows."""
    asked, among = _split(len(rows), seed)
    some, others = rows[asked], rows[among]
    distances = squared_lengths(some)[:, None] + squared_lengths(others) - np.float32(2.0) * (some @ others.T)
    near = _near(np.maximum(distances, np.float32(0.0)), NEAR_GAUSSIAN)
    return 1.0 / near if near > 0.0 else 1.0


def laplace_gamma(rows: Float32s, total: int, seed: int) -> float:
    """For dense rows, of which there are so many in all the data."""
    asked, among = _split(len(rows), seed)
    distances = np.empty((len(asked), len(among)))
    cityblock_pass(rows[asked], rows[among], distances)
    near, far = _near(distances, NEAR), _near(distances, FAR)
    if not near > 0.0:
        return 1.0
    slope = min(max(math.log(far / near) / math.log(FAR / NEAR), 0.0), STEEPEST)
    more = max(min(total, MOST_ROWS) / max(len(among), 1), 1.0)
    return float(LAPLACE * more**slope / near)


def _split(rows: int, seed: int) -> tuple[Int64s, Int64s]:
    """Rows to ask for, and others among which their neighbours are: all of them, if there are only a few."""
    if rows < 4:
        return np.arange(rows), np.arange(rows)
    both = chosen(seed, min(NEIGHBOURS, rows), rows)
    every = max(len(both) // min(ASKED, len(both) // 2), 2)
    asked = np.arange(len(both)) % every == 0
    return both[asked], both[~asked]


def _near(distances: npt.NDArray[Any], place: int) -> float:
    """The median distance to the neighbour at a place; to one a little further where that is zero (many twins)."""
    if not distances.size:
        return 0.0
    first = min(place, distances.shape[1]) - 1
    found = _median(np.partition(distances, first, axis=1)[:, first])
    if found > 0.0:
        return found
    ranked = np.sort(distances, axis=1)
    medians = (_median(ranked[:, k]) for k in range(first + 1, ranked.shape[1]))
    return next((found for found in medians if found > 0.0), float(ranked.max()))


def _median(numbers: npt.NDArray[Any]) -> float:
    return float(np.median(numbers.astype(np.float64)))


@kernel
def cityblock_pass(rows, others, out):
    for i in range(len(rows)):
        for j in range(len(others)):
            total = np.float32(0.0)
            for k in range(rows.shape[1]):
                total += abs(rows[i, k] - others[j, k])
            out[i, j] = total
