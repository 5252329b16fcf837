"""The product of rows and a matrix, in which no row depends on another one, to the last bit.

BLAS does not promise that: OpenBLAS has one order of sums for rows 0 to 5 of each twelve and another one for rows 6 to
11, so what becomes of a row depends on its place, and a model on how its data is cut. Here each number is

    out[i, k] = ((given[i, 0] m[0, k] + given[i, 1] m[1, k]) + given[i, 2] m[2, k]) + ...      in float32, in this order

on every machine. Four rows and sixteen columns at a time stay in registers, and columns lie in memory as they are used
(`packed`): on one core that has four fifths of the speed of OpenBLAS. It starts no threads; those of BLAS wait for each
other, which makes it several times slower where other threads have work to do.
"""

import numpy as np

from streamsvm.batch import Float32s
from streamsvm.jit import inlined, kernel
from streamsvm.lanes import load_lanes, spread_lanes, store_lanes

LIKE = (0,) * 16
WIDE = len(LIKE)
TILE = np.uint64(32)  # rows that are multiplied by one panel after the other, while a core's cache has them

ZERO = np.float32(0.0)
_0, _1, _4 = np.uint64(0), np.uint64(1), np.uint64(4)
_WIDE = np.uint64(WIDE)


def packed(matrix: Float32s) -> Float32s:
    """[d, count] as [panels, d, 16], the last panel filled up with zeros."""
    d, count = matrix.shape
    panels = -(-count // WIDE)
    whole = np.zeros((d, panels * WIDE), np.float32)
    whole[:, :count] = matrix
    return np.ascontiguousarray(whole.reshape(d, panels, WIDE).transpose(1, 0, 2))


def multiply(given: Float32s, panels: Float32s, out: Float32s, count: int, *, triangular: bool = False) -> None:
    """The first `count` columns of `out` become given x matrix; all of them are contiguous.

    A triangular matrix has nothing but zeros below its diagonal: they are left out.
    """
    assert given.shape[1] == panels.shape[1] and len(out) == len(given) and count <= out.shape[1]
    assert given.flags.c_contiguous and out.flags.c_contiguous and count <= len(panels) * WIDE
    rows, tiles = given.reshape(-1), panels.reshape(-1)
    multiply_rows(rows, tiles, panels.shape[1], count, out.reshape(-1), out.shape[1], triangular)


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
def multiply_rows(given, panels, columns, count, out, stride, triangular):
    d, columns_out, width = np.uint64(columns), np.uint64(count), np.uint64(stride)
    rows = np.uint64(len(out)) // width
    spare = np.empty(WIDE, np.float32)
    for tile in range(_0, rows, TILE):
        end = min(tile + TILE, rows)
        for column in range(_0, columns_out, _WIDE):
            i, start, room = tile, column * d, columns_out - column
            depth = min(d, column + _WIDE) if triangular else d
            while i + _4 <= end:
                first = second = third = fourth = spread_lanes(ZERO, LIKE)
                a = i * d
                b, c, e = a + d, a + d + d, a + d + d + d
                for k in range(depth):
                    numbers = load_lanes(panels, start + k * _WIDE, LIKE)
                    first = first + numbers * given[a + k]
                    second = second + numbers * given[b + k]
                    third = third + numbers * given[c + k]
                    fourth = fourth + numbers * given[e + k]
                place = i * width + column
                put(out, place, first, room, spare)
                put(out, place + width, second, room, spare)
                put(out, place + width + width, third, room, spare)
                put(out, place + width + width + width, fourth, room, spare)
                i += _4
            while i < end:
                first = spread_lanes(ZERO, LIKE)
                for k in range(depth):
                    first = first + load_lanes(panels, start + k * _WIDE, LIKE) * given[i * d + k]
                put(out, i * width + column, first, room, spare)
                i += _1
