"""Several numbers in one machine register, for kernels that do the same to several candidates at once.

numba turns a loop over neighbours into vector instructions only where it can prove that no two arrays overlap, which it
rarely can. Here vectors are spelled out: a value of type `Lanes` is 4, 8 or 16 numbers in registers, and a variable of
a kernel like any other, with + - * / and comparisons between lanes of one type, or lanes and a number of that type. How
many there are is the length of the tuple `like`, because that is known when a kernel is compiled.

A product of two float32 numbers is exact in double, so the fused multiply-add that `add_products` allows gives the same
bits as a product and a sum. Everything else is rounded step by step, exactly as scalar code does it.

With NUMBA_DISABLE_JIT=1 lanes are NumPy arrays.
"""

import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

from streamsvm.jit import DISABLED

if DISABLED:

    def zero_lanes(like: tuple[int, ...]) -> Any:
        return np.zeros(len(like))

    def spread_lanes(number: Any, like: tuple[int, ...]) -> Any:
        return np.full(len(like), number)

    def add_lanes(left: Any, right: Any) -> Any:
        return left + right

    def least(left: Any, right: Any) -> Any:
        return np.where(right < left, right, left)

    def most(left: Any, right: Any) -> Any:
        return np.where(right > left, right, left)

    def choose(where: Any, chosen: Any, other: Any) -> Any:
        return np.where(where, chosen, other)

    def any_lane(where: Any) -> bool:
        return bool(where.any())

    def all_lanes(where: Any) -> bool:
        return bool(where.all())

    def size_of(lanes: Any) -> Any:
        return np.abs(lanes)

    def root_of(lanes: Any) -> Any:
        return np.sqrt(lanes)

    def in_single(lanes: Any) -> Any:
        return lanes.astype(np.float32)

    def in_double(lanes: Any) -> Any:
        return lanes.astype(np.float64)

    def add_products(sums: Any, vector: Any, position: Any, factor: Any) -> Any:
        return sums + vector[position : position + len(sums)].astype(np.float64) * np.float64(factor)

    def load_lanes(array: Any, position: Any, like: tuple[int, ...]) -> Any:
        return array[position : position + len(like)].copy()

    def store_lanes(array: Any, position: Any, lanes: Any) -> None:
        array[position : position + len(lanes)] = lanes

    def load_double(array: Any, position: Any, like: tuple[int, ...]) -> Any:
        return array[position : position + len(like)].astype(np.float64)

    def each_lane(lanes: Any) -> Any:
        return tuple(lanes)

    def load_small(array: Any, position: Any, like: tuple[int, ...]) -> Any:
        return array[position : position + len(like)].astype(np.float32)

    def add_multiples(vector: Any, position: Any, lanes: Any, factor: Any) -> None:
        vector[position : position + len(lanes)] += lanes * np.float32(factor)

    def fetch(vector: Any, position: Any) -> None:
        pass

    def flipped(lanes: Any, rounded: Any) -> Any:
        return np.where(rounded.view(np.uint32) & 1, -lanes, lanes)

    def two_to(lanes: Any) -> Any:
        return np.ldexp(np.float32(1.0), lanes.astype(np.int32))

else:
    FUSED = ("contract",)
    KINDS = {types.float64: ir.DoubleType(), types.float32: ir.FloatType(), types.boolean: ir.IntType(1)}
    SIZES = {types.float64: 8, types.float32: 4}
    ARITHMETIC = {operator.add: "fadd", operator.sub: "fsub", operator.mul: "fmul", operator.truediv: "fdiv"}
    COMPARISONS = {operator.lt: "<", operator.gt: ">", operator.ne: "!="}

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
        return ir.VectorType(KINDS[dtype], count)

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

    def shape_of(left: Any, right: Any) -> Lanes | None:
        """The type of lanes that an operator works on, if it is one for lanes."""
        lanes = left if isinstance(left, Lanes) else right
        if not isinstance(lanes, Lanes) or not {left, right} <= {lanes, lanes.dtype}:
            return None
        return lanes

    def both_lanes(builder: Any, kinds: Any, arguments: Any) -> Any:
        """Two operands, of which one may be a number, as lanes."""
        count = next(kind.count for kind in kinds if isinstance(kind, Lanes))
        return [
            given if isinstance(kind, Lanes) else spread(builder, given, count)
            for kind, given in zip(kinds, arguments, strict=True)
        ]

    def offer(symbol: Any, result: Any, generate: Any) -> None:
        """Let kernels write `left symbol right`, where one of them is lanes, or both are."""

        def typing(context: Any) -> Any:
            def typer(left: Any, right: Any) -> Any:
                lanes = shape_of(left, right)
                return None if lanes is None else result(lanes)

            return typer

        def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return generate(builder, *both_lanes(builder, signature.args, arguments))

        type_callable(symbol)(typing)
        for kinds in ((Lanes, Lanes), (Lanes, types.Float), (types.Float, Lanes)):
            lower_builtin(symbol, *kinds)(lower)  # type: ignore[no-untyped-call]

    def offer_operators() -> None:
        def arithmetic(name: str) -> Any:
            return lambda builder, left, right: getattr(builder, name)(left, right)

        def comparison(sign: str) -> Any:
            compare = "fcmp_unordered" if sign == "!=" else "fcmp_ordered"
            return lambda builder, left, right: getattr(builder, compare)(sign, left, right)

        for symbol, name in ARITHMETIC.items():
            offer(symbol, lambda lanes: lanes, arithmetic(name))
        for symbol, sign in COMPARISONS.items():
            offer(symbol, lambda lanes: Lanes(types.boolean, lanes.count), comparison(sign))

        def minus(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.fneg(arguments[0])

        type_callable(operator.neg)(lambda context: lambda lanes: lanes if isinstance(lanes, Lanes) else None)
        lower_builtin(operator.neg, Lanes)(minus)  # type: ignore[no-untyped-call]

    offer_operators()

    @intrinsic
    def spread_lanes(typing_context, number, like):
        """The same number in every lane."""

        def generate(context, builder, signature, arguments):
            return spread(builder, arguments[0], signature.return_type.count)

        return Lanes(number, like.count)(number, like), generate

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
    def least(typing_context, left, right):
        """min for each lane, with the zeros and the NaN of numba's own."""

        def generate(context, builder, signature, arguments):
            left, right = both_lanes(builder, signature.args, arguments)
            return builder.select(builder.fcmp_ordered("<", right, left), right, left)

        return shape_of(left, right)(left, right), generate

    @intrinsic
    def most(typing_context, left, right):
        """max for each lane."""

        def generate(context, builder, signature, arguments):
            left, right = both_lanes(builder, signature.args, arguments)
            return builder.select(builder.fcmp_ordered(">", right, left), right, left)

        return shape_of(left, right)(left, right), generate

    @intrinsic
    def choose(typing_context, where, chosen, other):
        """Lane by lane, `chosen` where `where` is true, else `other`.

        Where `other` was loaded from the place to which the choice is stored, let something else be stored there or
        elsewhere in between: LLVM makes one masked store of the two, and some processors need 40 steps for that.
        """

        def generate(context, builder, signature, arguments):
            return builder.select(arguments[0], *both_lanes(builder, signature.args[1:], arguments[1:]))

        return shape_of(chosen, other)(where, chosen, other), generate

    @intrinsic
    def any_lane(typing_context, where):
        """Whether something is true in one of the lanes or more."""

        def generate(context, builder, signature, arguments):
            together = builder.bitcast(arguments[0], ir.IntType(signature.args[0].count))
            return builder.icmp_unsigned("!=", together, together.type(0))

        return types.boolean(where), generate

    @intrinsic
    def all_lanes(typing_context, where):
        def generate(context, builder, signature, arguments):
            together = builder.bitcast(arguments[0], ir.IntType(signature.args[0].count))
            return builder.icmp_unsigned("==", together, together.type(-1))

        return types.boolean(where), generate

    def of_each(name: str) -> Any:
        """An instruction for one operand, lane by lane."""

        def typing(typing_context: Any, lanes: Any) -> Any:
            def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                whole = f"{name}.v{lanes.count}f{8 * SIZES[lanes.dtype]}"
                kind = ir.FunctionType(arguments[0].type, [arguments[0].type])
                known = builder.module.globals.get(whole)
                return builder.call(known or ir.Function(builder.module, kind, whole), arguments)

            return lanes(lanes), lower

        return intrinsic(typing)

    size_of = of_each("llvm.fabs")
    root_of = of_each("llvm.sqrt")

    @intrinsic
    def in_single(typing_context, lanes):
        """Doubles rounded to float32."""

        def generate(context, builder, signature, arguments):
            return builder.fptrunc(arguments[0], context.get_value_type(signature.return_type))

        return Lanes(types.float32, lanes.count)(lanes), generate

    @intrinsic
    def in_double(typing_context, lanes):
        """float32 numbers as doubles."""

        def generate(context, builder, signature, arguments):
            return builder.fpext(arguments[0], context.get_value_type(signature.return_type))

        return Lanes(types.float64, lanes.count)(lanes), generate

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
    def load_lanes(typing_context, array, position, like):
        """array[position:], as it is."""

        def generate(context, builder, signature, arguments):
            array, position, _ = arguments
            lanes = context.get_value_type(signature.return_type)
            place = address(context, builder, signature.args[0], array, position, lanes)
            return builder.load(place, align=SIZES[signature.return_type.dtype])

        return Lanes(array.dtype, like.count)(array, types.uint64, like), generate

    @intrinsic
    def store_lanes(typing_context, array, position, lanes):
        """array[position:] = lanes, both of one type."""

        def generate(context, builder, signature, arguments):
            array, position, lanes = arguments
            place = address(context, builder, signature.args[0], array, position, lanes.type)
            builder.store(lanes, place, align=SIZES[signature.args[2].dtype])

        return types.void(array, types.uint64, lanes), generate

    @intrinsic
    def load_double(typing_context, array, position, like):
        """array[position:], of float32 numbers or doubles, as doubles."""

        def generate(context, builder, signature, arguments):
            array, position, _ = arguments
            kind = signature.args[0].dtype
            stored = vector_type(kind, signature.return_type.count)
            loaded = builder.load(
                address(context, builder, signature.args[0], array, position, stored), align=SIZES[kind]
            )
            wide = context.get_value_type(signature.return_type)
            return loaded if kind == types.float64 else builder.fpext(loaded, wide)

        return Lanes(types.float64, like.count)(array, types.uint64, like), generate

    @intrinsic
    def each_lane(typing_context, lanes):
        """The numbers, as a tuple."""

        def generate(context, builder, signature, arguments):
            place = ir.IntType(32)
            numbers = [builder.extract_element(arguments[0], place(k)) for k in range(signature.args[0].count)]
            return context.make_tuple(builder, signature.return_type, numbers)

        return types.UniTuple(lanes.dtype, lanes.count)(lanes), generate

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
    def flipped(typing_context, lanes, rounded):
        """Of float32 lanes: those with the other sign where the last bit of `rounded` is 1."""

        def generate(context, builder, signature, arguments):
            lanes, rounded = arguments
            bits = ir.VectorType(ir.IntType(32), signature.args[0].count)
            signs = builder.shl(builder.bitcast(rounded, bits), ir.Constant(bits, [31] * bits.count))
            return builder.bitcast(builder.xor(builder.bitcast(lanes, bits), signs), lanes.type)

        return lanes(lanes, rounded), generate

    @intrinsic
    def two_to(typing_context, lanes):
        """2^n for each float32 lane n, a whole number from -126 to 127: the exponent's place in its bits."""

        def generate(context, builder, signature, arguments):
            bits = ir.VectorType(ir.IntType(32), signature.args[0].count)
            whole = builder.fptosi(arguments[0], bits)
            raised = builder.add(whole, ir.Constant(bits, [127] * bits.count))
            return builder.bitcast(builder.shl(raised, ir.Constant(bits, [23] * bits.count)), arguments[0].type)

        return lanes(lanes), generate

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
