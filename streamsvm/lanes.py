"""Several numbers in one machine register, for kernels that do the same to several candidates at once.

numba turns a loop over neighbours into vector instructions only where it can prove that no two arrays overlap, which it
rarely can. Here vectors are spelled out: a value of type `Lanes` is 4, 8 or 16 numbers in registers, and a variable of
a kernel like any other. How many is the length of the tuple `like`, because that is known when a kernel is compiled.

A product of two float32 numbers is exact in double, so the fused multiply-add that `add_products` allows gives the same
bits as a product and a sum. Everything else is rounded step by step, exactly as scalar code does it.

With NUMBA_DISABLE_JIT=1 lanes are NumPy arrays.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from streamsvm.jit import DISABLED

if DISABLED:

    def zero_lanes(like: tuple[int, ...]) -> Any:
        return np.zeros(len(like))

    def add_lanes(left: Any, right: Any) -> Any:
        return left + right

    def add_products(sums: Any, vector: Any, position: Any, factor: Any) -> Any:
        return sums + vector[position : position + len(sums)].astype(np.float64) * np.float64(factor)

    def store_lanes(array: Any, position: Any, lanes: Any) -> None:
        array[position : position + len(lanes)] = lanes

    def load_small(array: Any, position: Any, like: tuple[int, ...]) -> Any:
        return array[position : position + len(like)].astype(np.float32)

    def add_multiples(vector: Any, position: Any, lanes: Any, factor: Any) -> None:
        vector[position : position + len(lanes)] += lanes * np.float32(factor)

    def fetch(vector: Any, position: Any) -> None:
        pass

else:
    FUSED = ("contract",)

    class Lanes(types.Type):
        """`count` numbers of one type, side by side in registers."""

        def __init__(self, dtype: Any, count: int) -> None:
            self.dtype = dtype
            self.count = count
            super().__init__(name=f"Lanes({dtype}, {count})")

    @register_model(Lanes)
    class LanesModel(models.PrimitiveModel):
        def __init__(self, manager: Any, lanes: Lanes) -> None:
            super().__init__(manager, lanes, vector_type(lanes.dtype, lanes.count))  # type: ignore[no-untyped-call]

    def vector_type(dtype: Any, count: int) -> Any:
        return ir.VectorType(ir.DoubleType() if dtype == types.float64 else ir.FloatType(), count)

    def address(context: Any, builder: Any, kind: Any, array: Any, position: Any, vector: Any) -> Any:
        """Where array[position] is, as the place of a vector."""
        start = context.make_array(kind)(context, builder, array).data
        return builder.bitcast(builder.gep(start, [position]), vector.as_pointer())

    def spread(builder: Any, number: Any, count: int) -> Any:
        """The same number in every lane."""
        first = builder.insert_element(
            ir.Constant(ir.VectorType(number.type, count), ir.Undefined), number, ir.Constant(ir.IntType(32), 0)
        )
        return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), count), [0] * count))

    @intrinsic
    def zero_lanes(typing_context, like):
        """Zeros in double."""

        def generate(context, builder, signature, arguments):
            return ir.Constant(context.get_value_type(signature.return_type), None)

        return Lanes(types.float64, like.count)(like), generate

    @intrinsic
    def add_lanes(typing_context, left, right):
        def generate(context, builder, signature, arguments):
            return builder.fadd(*arguments)

        return left(left, right), generate

    @intrinsic
    def add_products(typing_context, sums, vector, position, factor):
        """sums + vector[position:] * factor, in double, where the vector and the factor are float32."""

        def generate(context, builder, signature, arguments):
            sums, vector, position, factor = arguments
            count = signature.args[0].count
            small = vector_type(types.float32, count)
            loaded = builder.load(address(context, builder, signature.args[1], vector, position, small), align=4)
            wide = builder.fpext(loaded, sums.type)
            factors = spread(builder, builder.fpext(factor, ir.DoubleType()), count)
            return builder.fadd(sums, builder.fmul(wide, factors, flags=FUSED), flags=FUSED)

        return sums(sums, vector, types.uint64, types.float32), generate

    @intrinsic
    def store_lanes(typing_context, array, position, lanes):
        """array[position:] = lanes, both in double."""

        def generate(context, builder, signature, arguments):
            array, position, lanes = arguments
            builder.store(lanes, address(context, builder, signature.args[0], array, position, lanes.type), align=8)

        return types.void(array, types.uint64, lanes), generate

    @intrinsic
    def load_small(typing_context, array, position, like):
        """array[position:] of doubles, rounded to float32."""

        def generate(context, builder, signature, arguments):
            array, position, _ = arguments
            wide = vector_type(types.float64, signature.return_type.count)
            loaded = builder.load(address(context, builder, signature.args[0], array, position, wide), align=8)
            return builder.fptrunc(loaded, context.get_value_type(signature.return_type))

        return Lanes(types.float32, like.count)(array, types.uint64, like), generate

    @intrinsic
    def add_multiples(typing_context, vector, position, lanes, factor):
        """vector[position:] += lanes * factor, in float32."""

        def generate(context, builder, signature, arguments):
            vector, position, lanes, factor = arguments
            place = address(context, builder, signature.args[0], vector, position, lanes.type)
            products = builder.fmul(lanes, spread(builder, factor, signature.args[2].count))
            builder.store(builder.fadd(builder.load(place, align=4), products), place, align=4)

        return types.void(vector, types.uint64, lanes, types.float32), generate

    @intrinsic
    def fetch(typing_context, vector, position):
        """Ask for the cache line of vector[position], which will be changed soon."""

        def generate(context, builder, signature, arguments):
            byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            place = address(context, builder, signature.args[0], *arguments, ir.IntType(8))
            kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
            prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
            builder.call(prefetch, [place, *(ir.Constant(number, option) for option in (1, 3, 1))])

        return types.void(vector, types.uint64), generate
