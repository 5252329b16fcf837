#!/usr/bin/env python3
"""Write RCV1-like LIBSVM text, fast enough that files of several gigabytes are no obstacle.

usage: python benchmarks/generate.py ROWS OUT [--features 47236] [--nnz 76] [--seed 0] [--vw OUT2]

Features follow a Zipf law, values look like unit-norm tf-idf, labels are a noisy linear function of the row:

    n      = lognormal(log(0.85 nnz), 0.6) draws, 5..1000         (about 68 different features, 1 KB of text per row)
    rank   ~ rank^-0.9;  a feature drawn twice keeps its first value
    value  = (1 + exponential(0.5)) log(1 + rank), the row then scaled to length 1
    label  = sign(3 truth . row + 0.35 normal)

The true separator depends on --features alone, so files with different seeds are train and test of one problem. A row
depends on (seed, row number) alone: any size has distinct rows, a short file is the beginning of a long one, and
neither threads nor block size change a byte. --vw writes the same rows as Vowpal Wabbit text at the same time.
"""

import argparse
import math
import os
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit

FEATURES = 47236
NNZ = 76
MOST_DRAWS = 1000
LONGEST_ROW = MOST_DRAWS * 20 + 8  # bytes: blank, ten digits of index, colon, eight of value
BLOCK_ROWS = 2048


class World(NamedTuple):
    """What all files of one problem share: how often a feature comes up, what it weighs, what it says of the label."""

    keep: np.ndarray  # alias sampling: below this 32-bit fraction the slot's own rank is drawn,
    other: np.ndarray  # else this one
    index_of_rank: np.ndarray
    idf: np.ndarray
    truth: np.ndarray
    log_draws: float


class Written(NamedTuple):
    rows: int
    features: int
    bytes: int


def make_world(features: int = FEATURES, nnz: float = NNZ) -> World:
    random = np.random.default_rng(1234)
    index_of_rank = random.permutation(features).astype(np.uint32)
    truth = random.standard_normal(features) * (random.random(features) < 0.3)
    rank = np.arange(1, features + 1)
    keep, other = alias_tables(rank**-0.9)
    return World(
        keep,
        other,
        index_of_rank,
        np.log(1.0 + rank).astype(np.float32),
        truth.astype(np.float32),
        math.log(nnz * 0.85),
    )


def alias_tables(frequency: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Walker's alias method: draw a slot evenly, then keep it or take its one alternative."""
    size = frequency.size
    share = frequency * (size / frequency.sum())
    other = np.arange(size)
    poor, rich = list(np.flatnonzero(share < 1)), list(np.flatnonzero(share >= 1))
    while poor and rich:
        slot, donor = poor.pop(), rich[-1]
        other[slot] = donor
        share[donor] -= 1 - share[slot]
        if share[donor] < 1:
            poor.append(rich.pop())
    share[poor + rich] = 1.0  # only rounding is left over
    return np.minimum(share * 2.0**32, 2.0**32 - 1).astype(np.uint32), other.astype(np.uint32)


def write_rows(
    rows: int,
    out: str | os.PathLike[str],
    *,
    seed: int = 0,
    vw_out: str | os.PathLike[str] | None = None,
    features: int = FEATURES,
    nnz: float = NNZ,
    threads: int | None = None,
) -> Written:
    """Write `rows` rows to `out`, and to `vw_out` as Vowpal Wabbit text. A name appears once its file is complete."""
    world = make_world(features, nnz)
    threads = threads or os.cpu_count() or 1
    targets = [Path(out)] + ([Path(vw_out)] if vw_out else [])
    parts = [path.with_name(path.name + ".part") for path in targets]
    total = Written(0, 0, 0)
    spare = [_Buffers(features, bool(vw_out)) for _ in range(threads + 1)]
    pending: deque[tuple[_Buffers, Future[tuple[int, int, int]]]] = deque()
    with ExitStack() as stack:
        files = [stack.enter_context(open(part, "wb", buffering=0)) for part in parts]
        pool = stack.enter_context(ThreadPoolExecutor(threads))
        starts = iter(range(0, rows, BLOCK_ROWS))
        while True:
            while spare and (start := next(starts, None)) is not None:
                buffers = spare.pop()
                job = pool.submit(write_block, start, min(BLOCK_ROWS, rows - start), seed, *world, *buffers.arrays)
                pending.append((buffers, job))
            if not pending:
                break
            buffers, job = pending.popleft()
            size, vw_size, count = job.result()
            for file, text, length in zip(files, buffers.texts, (size, vw_size), strict=False):
                _write_all(file, text.data[:length])
            total = Written(rows, total.features + count, total.bytes + size)
            spare.append(buffers)
    for part, target in zip(parts, targets, strict=True):
        part.replace(target)
    return total


class _Buffers:
    """What one thread fills: text for a block, scratch as large as the feature space. Untouched pages cost nothing."""

    def __init__(self, features: int, vw: bool) -> None:
        room = BLOCK_ROWS * LONGEST_ROW
        self.texts = (np.empty(room, np.uint8), np.empty(room + 2 * BLOCK_ROWS if vw else 0, np.uint8))
        seen, values = np.zeros(features // 64 + 1, np.uint64), np.zeros(features, np.float32)
        self.arrays = (seen, values, *self.texts)


def _write_all(file: Any, text: memoryview) -> None:
    while len(text):
        text = text[file.write(text) :]


# ---- kernels: from here on compiled, a whole block per call ----

kernel = njit(cache=True, nogil=True, error_model="numpy")
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
LOW = np.uint64(0xFFFFFFFF)
DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
BIT_OF = np.zeros(64, np.int64)  # position of the only set bit, found by a multiplication that has all 64 answers
for _bit in range(64):
    BIT_OF[((int(DE_BRUIJN) << _bit) & (2**64 - 1)) >> 58] = _bit


@kernel
def mixed(state):
    """The output function of splitmix64: 64 well-mixed bits from any counter."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@kernel
def put_number(text, at, number):
    """Decimal digits of a whole number; returns the place behind them."""
    digits, power = 1, 10
    while number >= power:
        digits += 1
        power *= 10
    for place in range(at + digits - 1, at - 1, -1):
        text[place] = 48 + number % 10
        number //= 10
    return at + digits


@kernel
def put_fraction(text, at, value):
    """0.123456, or 1.000000."""
    number = np.uint32(value * 1e6 + 0.5)
    text[at] = 48 + number // np.uint32(1000000)
    text[at + 1] = 46
    for place in range(at + 7, at + 1, -1):
        text[place] = 48 + number % np.uint32(10)
        number //= np.uint32(10)
    return at + 8


@kernel
def write_block(first, rows, seed, keep, other, index_of_rank, idf, truth, log_draws, seen, values, text, vw_text):
    """Rows first..first+rows as text; returns (bytes, bytes of VW text, features written)."""
    slots = np.uint64(keep.size)
    at = vw_at = features = 0
    for row in range(first, first + rows):
        state = mixed(np.uint64(row) * GOLDEN + mixed(np.uint64(seed) + np.uint64(1)))
        radius = math.sqrt(-2 * math.log(((mixed(state) >> np.uint64(11)) + 0.5) * 2.0**-53))
        angle = 2 * math.pi * ((mixed(state + GOLDEN) >> np.uint64(11)) * 2.0**-53)
        state += GOLDEN
        draws = min(max(int(math.exp(log_draws + 0.6 * radius * math.cos(angle))), 5), MOST_DRAWS)

        square = score = 0.0
        for _ in range(draws):
            state += GOLDEN
            bits = mixed(state)
            product = (bits & LOW) * slots
            slot = np.int64(product >> np.uint64(32))
            rank = slot if (product & LOW) < keep[slot] else np.int64(other[slot])
            index = np.int64(index_of_rank[rank])
            word, bit = index >> 6, np.uint64(1) << np.uint64(index & 63)
            if seen[word] & bit:
                continue
            seen[word] |= bit
            value = (1 - 0.5 * math.log(((bits >> np.uint64(32)) + 0.5) * 2.0**-32)) * idf[rank]
            values[index] = value
            square += value * value
            score += truth[index] * value
        scale = 1 / math.sqrt(square)
        positive = 3 * score * scale + 0.35 * radius * math.sin(angle) > 0

        if not positive:
            text[at] = 45
            at += 1
        text[at] = 49
        at += 1
        body = at
        for word in range(seen.size):
            left = seen[word]
            if left == 0:
                continue
            seen[word] = 0
            while left:
                lowest = left & (~left + np.uint64(1))
                left ^= lowest
                index = word * 64 + BIT_OF[(lowest * DE_BRUIJN) >> np.uint64(58)]
                text[at] = 32
                at = put_number(text, at + 1, index + 1)
                text[at] = 58
                at = put_fraction(text, at + 1, values[index] * scale)
                features += 1
        text[at] = 10
        at += 1
        if vw_text.size:
            vw_at = copy_for_vw(text, body, at, positive, vw_text, vw_at)
    return at, vw_at, features


@kernel
def copy_for_vw(text, start, stop, positive, vw_text, at):
    """The same row with Vowpal Wabbit's bar between label and features."""
    if not positive:
        vw_text[at] = 45
        at += 1
    vw_text[at], vw_text[at + 1], vw_text[at + 2] = 49, 32, 124
    vw_text[at + 3 : at + 3 + stop - start] = text[start:stop]
    return at + 3 + stop - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int)
    parser.add_argument("out", help="LIBSVM text")
    parser.add_argument("--features", type=int, default=FEATURES)
    parser.add_argument("--nnz", type=float, default=NNZ)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--vw", metavar="OUT2", help="also write the rows as Vowpal Wabbit text")
    args = parser.parse_args()
    started = time.perf_counter()
    done = write_rows(args.rows, args.out, seed=args.seed, vw_out=args.vw, features=args.features, nnz=args.nnz)
    seconds = time.perf_counter() - started
    print(f"{done.rows} rows, {done.features} features, {done.bytes / 1e6:.0f} MB in {seconds:.1f} s", end="")
    print(f" ({done.bytes / 1e6 / seconds:.0f} MB/s)")


if __name__ == "__main__":
    main()
