"""Lanes over vectors in double precision: what lanes.py does for single precision, for solvers that prove something.

Products and sums are rounded one by one, so that lane k holds what scalar code would, on every machine.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from streamsvm.jit import DISABLED, inlined
from streamsvm.lanes import add_lanes, zero_lanes
from streamsvm.rows import FOUR, ONE, THREE, TWO

if DISABLED:

    def add_wide_products(sums: Any, vector: Any, position: Any, factor: Any) -> Any:
        return sums + vector[position : position + len(sums)] * factor

    def add_wide_multiples(vector: Any, position: Any, lanes: Any, factor: Any) -> None:
        vector[position : position + len(lanes)] += lanes * factor

else:
    from streamsvm.lanes import address, spread

    @intrinsic
    def add_wide_products(typing_context, sums, vector, position, factor):
        """sums + vector[position:] * factor."""

        def generate(context, builder, signature, arguments):
            sums, vector, position, factor = arguments
            place = address(context, builder, signature.args[1], vector, position, sums.type)
            factors = spread(builder, factor, signature.args[0].count)
            return builder.fadd(sums, builder.fmul(builder.load(place, align=8), factors))

        return sums(sums, vector, types.uint64, types.float64), generate

    @intrinsic
    def add_wide_multiples(typing_context, vector, position, lanes, factor):
        """vector[position:] += lanes * factor."""

        def generate(context, builder, signature, arguments):
            vector, position, lanes, factor = arguments
            place = address(context, builder, signature.args[0], vector, position, lanes.type)
            products = builder.fmul(lanes, spread(builder, factor, signature.args[2].count))
            builder.store(builder.fadd(builder.load(place, align=8), products), place, align=8)

        return types.void(vector, types.uint64, lanes, types.float64), generate


@inlined
def lanes_dot(vector, indices, values, a, b, stride, offset, like):
    """Sum of vector[stride indices[k] + offset:] * values[k] for a <= k < b, in each lane; four sums at a time."""
    first = second = third = fourth = zero_lanes(like)
    k, end = np.uint64(a), np.uint64(b)
    while k + FOUR <= end:
        j1, j2 = np.uint64(indices[k]) * stride + offset, np.uint64(indices[k + ONE]) * stride + offset
        j3, j4 = np.uint64(indices[k + TWO]) * stride + offset, np.uint64(indices[k + THREE]) * stride + offset
        first = add_wide_products(first, vector, j1, np.float64(values[k]))
        second = add_wide_products(second, vector, j2, np.float64(values[k + ONE]))
        third = add_wide_products(third, vector, j3, np.float64(values[k + TWO]))
        fourth = add_wide_products(fourth, vector, j4, np.float64(values[k + THREE]))
        k += FOUR
    while k < end:
        first = add_wide_products(first, vector, np.uint64(indices[k]) * stride + offset, np.float64(values[k]))
        k += ONE
    return add_lanes(add_lanes(first, second), add_lanes(third, fourth))


@inlined
def lanes_add(vector, indices, values, a, b, stride, offset, factors):
    """vector[stride indices[k] + offset:] += factors * values[k] for a <= k < b."""
    for k in range(np.uint64(a), np.uint64(b)):
        add_wide_multiples(vector, np.uint64(indices[k]) * stride + offset, factors, np.float64(values[k]))
