"""The product of rows and a matrix, in which no row depends on another one, to the last bit.

BLAS does not promise that: OpenBLAS has one order of sums for rows 0 to 5 of each twelve and another one for rows 6 to
11, so what becomes of a row depends on its place, and a model on how its data is cut. Here each number is

    out[i, k] = ((given[i, 0] m[0, k] + given[i, 1] m[1, k]) + given[i, 2] m[2, k]) + ...      in float32, in this order

on every machine. Four rows and sixteen columns at a time stay in registers, and columns lie in memory as they are used
(`packed`): on one core that has four fifths of the speed of OpenBLAS. It starts no threads; those of BLAS wait for each
other, which makes it several times slower where other threads have work to do.

What becomes of the numbers is said by a term, and done while they are in registers: nothing is written to be read
again.
"""

from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Float32s
from streamsvm.jit import expose, inlined, kernel
from streamsvm.lanes import load_lanes, spread_lanes, store_lanes

LIKE = (0,) * 16
WIDE = len(LIKE)
TILE = np.uint64(32)  # rows that are multiplied by some panels after the other, while a core's cache has them
NEAR = np.uint64(1 << 13)  # numbers of these panels, or one panel: what the nearest cache has room for

ZERO = np.float32(0.0)
_0, _1, _2, _3, _4 = map(np.uint64, range(5))
_WIDE = np.uint64(WIDE)


def packed(matrix: Float32s) -> Float32s:
    """[d, count] as [panels, d, 16], the last panel filled up with zeros."""
    d, count = matrix.shape
    panels = -(-count // WIDE)
    whole = np.zeros((d, panels * WIDE), np.float32)
    whole[:, :count] = matrix
    return np.ascontiguousarray(whole.reshape(d, panels, WIDE).transpose(1, 0, 2))


class AsIs(NamedTuple):
    """The product itself, in the first columns of a row that has so many."""

    width: int

    def write(self, out, row, column, lanes, room, spare):
        put(out, row * np.uint64(self.width) + column, lanes, room, spare)


def _write(self, out, row, column, lanes, room, spare):
    """Store what becomes of 16 numbers of a row from a column on, of which `room` are wanted; `spare` is scratch."""
    return getattr(self.instance_class, "write", None)


expose("write", _write, forceinline=True)


def multiply(
    given: Float32s,
    panels: Float32s,
    out: Float32s,
    count: int,
    *,
    triangular: bool = False,
    finish: Any = None,
) -> None:
    """The first `count` columns of `out` become given x matrix, or what `finish` writes; all of them are contiguous.

    A triangular matrix has nothing but zeros below its diagonal: they are left out.
    """
    assert given.shape[1] == panels.shape[1] and len(out) == len(given) and count <= out.shape[1]
    assert given.flags.c_contiguous and out.flags.c_contiguous and count <= len(panels) * WIDE
    rows, tiles = given.reshape(-1), panels.reshape(-1)
    finish = AsIs(out.shape[1]) if finish is None else finish
    multiply_rows(rows, tiles, len(given), panels.shape[1], count, out.reshape(-1), triangular, finish)


@inlined
def put(out, place, lanes, room, spare):
    """Store as many lanes as there is room for."""
    if room >= _WIDE:
        store_lanes(out, place, lanes)
    else:
        store_lanes(spare, _0, lanes)
        for k in range(room):
            out[place + k] = spare[k]


@kernel
def multiply_rows(given, panels, rows, columns, count, out, triangular, finish):
    n, d, columns_out = np.uint64(rows), np.uint64(columns), np.uint64(count)
    some = max(NEAR // (d * _WIDE), _1) * _WIDE
    spare = np.empty(WIDE, np.float32)
    for tile in range(_0, n, TILE):
        end = min(tile + TILE, n)
        for left in range(_0, columns_out, some):
            right, i = min(left + some, columns_out), tile
            while i + _4 <= end:
                a = i * d
                b, c, e = a + d, a + d + d, a + d + d + d
                for column in range(left, right, _WIDE):
                    start, room = column * d, columns_out - column
                    first = second = third = fourth = spread_lanes(ZERO, LIKE)
                    for k in range(min(d, column + _WIDE) if triangular else d):
                        numbers = load_lanes(panels, start + k * _WIDE, LIKE)
                        first = first + numbers * given[a + k]
                        second = second + numbers * given[b + k]
                        third = third + numbers * given[c + k]
                        fourth = fourth + numbers * given[e + k]
                    finish.write(out, i, column, first, room, spare)
                    finish.write(out, i + _1, column, second, room, spare)
                    finish.write(out, i + _2, column, third, room, spare)
                    finish.write(out, i + _3, column, fourth, room, spare)
                i += _4
            while i < end:
                for column in range(left, right, _WIDE):
                    first = spread_lanes(ZERO, LIKE)
                    for k in range(min(d, column + _WIDE) if triangular else d):
                        first = first + load_lanes(panels, column * d + k * _WIDE, LIKE) * given[i * d + k]
                    finish.write(out, i, column, first, columns_out - column, spare)
                i += _1
