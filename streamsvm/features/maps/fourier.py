"""Random Fourier features: the RBF kernel as waves in random directions.

    k(x, y) = exp(-gamma ||x - y||^2)  is close to  phi(x) . phi(y)
    phi(x)  = sqrt(2 / width) (cos w_1.x, cos w_2.x, ..., sin w_1.x, sin w_2.x, ...),   each w_k ~ N(0, 2 gamma I)

(Rahimi and Recht 2007.) Each row has length 1, whatever it is. The error is about 1 / sqrt(width) with independent
directions, and half of that if those of a block are at right angles to each other (Yu, Suresh, Choromanski,
Holtmann-Rice and Kumar 2016). There are two ways to have them:

    fourier       blocks of d, from a QR decomposition of normal numbers. One matrix product: d x width / 2 products
                  for each row.
    fourier_fast  blocks of p, which are H S1 H S2 H S3: H is the Walsh-Hadamard transform of length p (rows are filled
                  up with zeros to a power of two), S are random signs. No matrix, and 3 log p sums for each direction:
                  choose it from a hundred columns on.

The lengths of directions are drawn on their own, as those of normal vectors; with one length for all, as in the paper,
scores of 64 columns are too small by 0.005.

Directions are kept in turns, not radians: w / (2 pi). Then reducing an angle to a quarter turn on each side of 0 is
exact, and two short polynomials do the rest, to 2e-7. They cost a quarter of NumPy's sine and cosine, because a loop
over them runs in vector registers, as soon as an angle is known. Angles beyond 2^20 turns mean nothing in float32 and
count as 2^20.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.batch import Float32s
from streamsvm.features.maps.base import DenseMap
from streamsvm.features.maps.chance import lengths, normals
from streamsvm.features.maps.product import LIKE, WIDE, multiply, packed, put
from streamsvm.jit import inlined, kernel
from streamsvm.lanes import flipped, least, load_lanes, most, spread_lanes
from streamsvm.shuffle import mixed, next_random

SEED = 0x77617665  # tells these random numbers from others of the same seed
DIRECTIONS, LENGTHS = 1, 2  # and those of directions from those of lengths
SHORTEST = 64  # directions a block: with fewer, signs make too few different ones

FARTHEST, NEAREST = np.float32(2.0**20), np.float32(-(2.0**20))
WHOLE = np.float32(1.5 * 2.0**23)  # added and taken away again, it rounds to whole numbers
HALF, ONE, TWO = np.float32(0.5), np.float32(1.0), np.float32(2.0)
_1, _63 = np.uint64(1), np.uint64(63)

# cos(2 pi f) and sin(2 pi f) / f in powers of f^2, closest for |f| <= 1/4.
C0, C1, C2, C3, C4 = map(np.float32, (0.99999994, -19.739172, 64.93459, -85.24033, 56.242382))
S0, S1, S2, S3, S4 = map(np.float32, (6.2831855, -41.341682, 81.602486, -76.5814, 39.761616))


class Fourier(DenseMap):
    """Fourier features of rows with d columns; frozen, so that any thread may use it."""

    kind = "fourier"

    def __init__(self, d: int, width: int, gamma: float, seed: int, structured: bool) -> None:
        if d < 1 or width < 2 or width % 2:
            raise ValueError(f"fourier needs columns and an even width, not {d} and {width}")
        if not (math.isfinite(gamma) and gamma > 0.0):
            raise ValueError(f"gamma must be a positive number, not {gamma}")
        self.d, self.width, self.gamma, self.seed, self.structured = d, width, float(gamma), seed, structured
        self.kind = "fourier_fast" if structured else "fourier"  # type: ignore[misc]
        turns = math.sqrt(2.0 * gamma) / (2.0 * math.pi)
        if structured:
            self._signs = random_signs(d, width // 2, seed)
            p = self._signs.shape[2]
            drawn = lengths(width // 2, p, SEED, seed, LENGTHS)
            self._lengths = np.zeros(len(self._signs) * p, np.float32)
            self._lengths[: width // 2] = drawn * (turns / p**1.5)  # each of three transforms adds sqrt(p)
        else:
            self._directions = packed(orthogonal_directions(d, width // 2, turns, seed))

    def rows(self, given: Float32s, out: Float32s | None = None) -> Float32s:
        """[n, d] to [n, width]."""
        if given.shape[1] != self.d:
            raise ValueError(f"rows have {given.shape[1]} columns, but the map was made for {self.d}")
        given = np.ascontiguousarray(given, np.float32)
        out = np.empty((len(given), self.width), np.float32) if out is None else out
        waves = Waves(self.width, np.float32(math.sqrt(2.0 / self.width)))
        if self.structured:
            transform_rows(given, self._signs, self._lengths, self.width // 2, out.reshape(-1), waves)
        else:
            multiply(given, self._directions, out, self.width // 2, finish=waves)
        return out

    def stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        plain = {"d": self.d, "width": self.width, "gamma": self.gamma, "seed": self.seed}
        return {**plain, "structured": self.structured}, {}

    @classmethod
    def restored(cls, plain: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> "Fourier":
        try:
            d, width, seed = (int(plain[name]) for name in ("d", "width", "seed"))
            return cls(d, width, float(plain["gamma"]), seed, bool(plain["structured"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"no fourier map: {error!r}") from None


def orthogonal_directions(d: int, count: int, turns: float, seed: int) -> Float32s:
    """[d, count]: blocks of at most d columns at right angles, as long as normal ones, times `turns`."""
    size = min(d, count)
    blocks = -(-count // size)
    drawn = normals(blocks * d * size, SEED, seed, DIRECTIONS).reshape(blocks, d, size)
    q, r = np.linalg.qr(drawn)
    q *= np.where(np.diagonal(r, axis1=1, axis2=2) < 0.0, -1.0, 1.0)[:, None, :]  # libraries differ in these signs
    directions = q.transpose(1, 0, 2).reshape(d, blocks * size)[:, :count]
    return np.ascontiguousarray(directions * (turns * lengths(count, d, SEED, seed, LENGTHS)), np.float32)


def random_signs(d: int, count: int, seed: int) -> Float32s:
    """[blocks, 3, p]: the signs of each block, in the order of their use."""
    p = max(SHORTEST, 1 << (d - 1).bit_length())
    out = np.empty((-(-count // p), 3, p), np.float32)
    fill_signs(np.uint64(mixed(SEED, seed, DIRECTIONS)), out.reshape(-1))
    return out


@kernel
def fill_signs(state, out):
    for k in range(len(out)):
        state, bits = next_random(state)
        out[k] = ONE - TWO * np.float32(bits >> _63)


@inlined
def wave(turns, height):
    """height x cosine and sine of angles in turns; halves of a turn change the sign of both."""
    turns = least(most(NEAREST, turns), FARTHEST)  # in this order NaN, from sums that overflow, becomes a number
    halves = turns + turns + WHOLE
    f = turns - HALF * (halves - WHOLE)
    u = f * f
    signed = flipped(spread_lanes(height, LIKE), halves)
    cosine = C0 + u * (C1 + u * (C2 + u * (C3 + u * C4)))
    sine = f * (S0 + u * (S1 + u * (S2 + u * (S3 + u * S4))))
    return signed * cosine, signed * sine


class Waves(NamedTuple):
    """What becomes of a product: cosines in the first half of each row, sines in the second."""

    width: int
    height: Any  # float32

    def write(self, out, row, column, lanes, room, spare):
        cosine, sine = wave(lanes, self.height)
        place, half = row * np.uint64(self.width) + column, np.uint64(self.width // 2)
        put(out, place, cosine, room, spare)
        put(out, place + half, sine, room, spare)


@inlined
def sums_and_differences(here, there):
    """One step of the transform: halves become neighbours. After log p steps all are in their places again."""
    half = np.uint64(len(here) // 2)
    low, high = here[:half], here[half:]
    for k in range(half):
        there[k + k] = low[k] + high[k]
        there[k + k + _1] = low[k] - high[k]


@kernel
def transform_rows(given, signs, lengths, count, out, finish):
    """Three rounds of signs and transform for each row and block, then waves."""
    blocks, rounds, p = signs.shape
    d = np.uint64(given.shape[1])
    here, there, spare = np.empty(p, np.float32), np.empty(p, np.float32), np.empty(WIDE, np.float32)
    for i in range(len(given)):
        row = given[i]
        for block in range(blocks):
            here[:] = 0.0
            for k in range(d):
                here[k] = row[k]
            for turn in range(rounds):
                sign = signs[block, turn]
                for k in range(np.uint64(p)):
                    here[k] *= sign[k]
                done = 1
                while done < p:
                    sums_and_differences(here, there)
                    here, there = there, here
                    done *= 2
            start, stop = np.uint64(block * p), np.uint64(min(block * p + p, count))
            for column in range(start, stop, np.uint64(WIDE)):
                turns = load_lanes(here, column - start, LIKE) * load_lanes(lengths, column, LIKE)
                finish.write(out, np.uint64(i), column, turns, stop - column, spare)
