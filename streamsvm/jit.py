"""The door to numba: how kernels are compiled, where their machine code is cached, and a few machine instructions.

`kernel` marks one pass over a batch (releases the interpreter lock, cached on disk); `inlined` marks the row helpers
that kernels are made of; `expose` lets a kernel call `loss.slope(score, label)` on a NamedTuple exactly as Python does.

numba's cache is pickle, so it must only ever be read from a directory that nobody else can write: a per-user directory
with mode 0700, named by a hash of this package's sources (numba itself does not notice an edit in another file). Where
no such directory can be had, kernels are compiled in memory, every time.

With NUMBA_DISABLE_JIT=1 the same sources run as plain Python, for debuggers and as a second oracle.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic, overload_method, typeof_impl

from streamsvm.places import private_directory, user_cache_directory

DISABLED = bool(numba.config.DISABLE_JIT)  # type: ignore[attr-defined]
STALE_DAYS = 30
# Nobody calls these functions as C does; without a wrapper for that they are compiled in five sixths of the time.
COMPILED: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True}
WITHOUT_KERNELS = (
    "cli",
    "config",
    "distributed",
    "estimators",
    "exchange",
    "report",
)  # and no kernel's module needs them


def sources_hash() -> str:
    """A name for these exact sources, as far as kernels depend on them; other sources get another cache."""
    digest = hashlib.sha256(numba.__version__.encode())
    root = Path(__file__).parent
    rooms = [room for room in root.iterdir() if room.is_dir() and room.name not in WITHOUT_KERNELS]
    for path in sorted([*root.glob("*.py"), *(path for room in rooms for path in room.rglob("*.py"))]):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _prepare_cache() -> Path | None:
    if DISABLED:
        return None
    try:
        home = user_cache_directory() / "kernels"
    except RuntimeError:  # no home directory
        return None
    chosen = home / sources_hash()
    if not (private_directory(home) and private_directory(chosen)):
        return None
    os.utime(chosen)
    for other in home.iterdir():
        if other != chosen and time.time() - other.lstat().st_mtime > STALE_DAYS * 86400:
            shutil.rmtree(other, ignore_errors=True)
    return chosen


try:
    CACHE = _prepare_cache()
except OSError:
    CACHE = None
if CACHE is not None:
    numba.config.CACHE_DIR = str(CACHE)  # type: ignore[attr-defined]


def machine() -> dict[str, str]:
    """What the last bits of a result may depend on, beside these sources."""
    return {"numba": numba.__version__, "numpy": np.__version__, "cpu": binding.get_host_cpu_name()}


def compiled_before() -> bool:
    """Whether kernels of these sources were compiled here earlier; False means that the first use takes longer."""
    return DISABLED or (CACHE is not None and any(CACHE.rglob("*.nbc")))


def _compiled(function: Any, *, nogil: bool) -> Any:
    if DISABLED:  # numpy's scalars warn of an overflow, machine code wraps around
        return np.errstate(all="ignore")(function)
    return numba.njit(cache=CACHE is not None, nogil=nogil, **COMPILED)(function)


def kernel(function: Any) -> Any:
    """One pass over a batch."""
    return _compiled(function, nogil=True)


def quick(function: Any) -> Any:
    """A kernel of microseconds: it keeps the interpreter lock, because getting it back would take longer."""
    return _compiled(function, nogil=False)


def inlined(function: Any) -> Any:
    """A piece of a kernel, always inlined: without that, short rows lose 40 %."""
    return numba.njit(forceinline=True, **COMPILED)(function)


def cold(function: Any) -> Any:
    """A rarely taken path of a kernel, compiled on its own so that it takes no registers from the hot one."""
    return numba.njit(**COMPILED)(function)


def expose(name: str, stub: Callable[..., Any], **options: Any) -> None:
    """Let kernels call method `name` of any NamedTuple term. `stub` has the argument names and returns the method.

    `options` are those of numba for the method: `forceinline=True` where it is given numbers in registers.
    """
    for family in (types.NamedTuple, types.NamedUniTuple):
        overload_method(family, name, jit_options=options)(stub)  # type: ignore[call-arg]


def read_only(kind: type) -> None:
    """Kernels may not write to the arrays of such a NamedTuple.

    For numba a file that is mapped into memory is of another type than an array that can be written: without this, a
    kernel would be compiled once more for each combination of the two.
    """

    def typed(value: Any, context: Any) -> Any:
        fields = [typeof_impl(field, context) for field in value]
        fields = [field.copy(readonly=True) if isinstance(field, types.Array) else field for field in fields]
        return types.BaseTuple.from_types(fields, kind)  # type: ignore[no-untyped-call]

    typeof_impl.register(kind)(typed)


# Instructions that numba has no spelling for: loads without numba's check for negative positions, of one byte, or of
# four or eight unaligned ones; the counts of trailing and leading zeros; the high half of a 64 x 64 bit product; a hint
# that a number of an array will be written soon. The plain Python forms serve NUMBA_DISABLE_JIT=1.

if DISABLED:

    def load8(text: Any, position: int) -> Any:
        return np.int64(text[position])

    def load32(text: Any, position: int) -> Any:
        return np.uint64(int.from_bytes(text[position : position + 4].tobytes(), "little"))

    def load64(text: Any, position: int) -> Any:
        return np.uint64(int.from_bytes(text[position : position + 8].tobytes(), "little"))

    def trailing_zeros(word: Any) -> int:
        bits = int(word)
        return (bits & -bits).bit_length() - 1

    def leading_zeros(word: Any) -> int:
        return 64 - int(word).bit_length()

    def multiply_high(left: Any, right: Any) -> Any:
        return np.uint64(int(left) * int(right) >> 64)

    def prefetch(array: Any, position: Any) -> None:
        pass

else:

    @intrinsic
    def load8(typing_context, text, position):
        def generate(context, builder, signature, arguments):
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            byte = builder.load(builder.gep(array.data, [arguments[1]]))
            return builder.zext(byte, ir.IntType(64))

        return types.int64(text, types.int64), generate

    @intrinsic
    def load32(typing_context, text, position):
        def generate(context, builder, signature, arguments):
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            address = builder.gep(array.data, [arguments[1]])
            word = builder.load(builder.bitcast(address, ir.IntType(32).as_pointer()))
            word.align = 1
            return builder.zext(word, ir.IntType(64))

        return types.uint64(text, types.int64), generate

    @intrinsic
    def load64(typing_context, text, position):
        def generate(context, builder, signature, arguments):
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            address = builder.gep(array.data, [arguments[1]])
            word = builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()))
            word.align = 1
            return word

        return types.uint64(text, types.int64), generate

    @intrinsic
    def trailing_zeros(typing_context, word):
        def generate(context, builder, signature, arguments):
            return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

        return types.int64(types.uint64), generate

    @intrinsic
    def leading_zeros(typing_context, word):
        def generate(context, builder, signature, arguments):
            return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 1))

        return types.int64(types.uint64), generate

    @intrinsic
    def multiply_high(typing_context, left, right):
        def generate(context, builder, signature, arguments):
            wide = ir.IntType(128)
            product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
            return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

        return types.uint64(types.uint64, types.uint64), generate

    @intrinsic
    def prefetch(typing_context, array, position):
        def generate(context, builder, signature, arguments):
            found = context.make_array(signature.args[0])(context, builder, arguments[0])
            address = builder.bitcast(builder.gep(found.data, [arguments[1]]), ir.IntType(8).as_pointer())
            number = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
            hint = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
            builder.call(hint, [address, number(1), number(3), number(1)])  # to write, keep close, data
            return context.get_dummy_value()

        return types.void(array, types.uint64), generate
