"""Chance on the way of rows: a seeded buffer on a stream, a seeded permutation of a group, a seeded sample.

The buffer holds N rows. Each arriving row takes the place of a randomly chosen one, which leaves; at the end the rest
leaves in random order. Random numbers are drawn per row, so the result depends on the order of rows and the seed alone.

Rows live in an arena of (index, value) pairs. New rows are appended; when the arena is full, the live rows are moved to
its front. It is made at least twice as large as what lives in it, so moving costs about one copy per pair.

A buffer can be stopped and resumed anywhere, also half empty at the end: its state holds the rows that have not left.

A sample keeps a row by a hash of the seed and the row's number in its source, so every pass keeps the same rows.
"""

import math
from contextlib import closing
from typing import Any

import numpy as np

from streamsvm.batch import Batch, Batches, Int64s
from streamsvm.errors import ConfigError, ModelError
from streamsvm.jit import inlined, kernel, quick

RUN = 16  # rows that stay together when a group is shuffled
PIECE = 1000  # rows that leave together at the end
ROW_BYTES = 24  # of the table of rows
PAIR_BYTES = 8
SAMPLE = 0x73616D706C65  # tells a sample's random numbers from those of a buffer with the same seed
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mixed(*numbers: int) -> int:
    """One 64-bit seed out of several numbers, such as the seed of a run, a pass and a group."""
    state = 0
    for number in numbers:
        state = (state ^ number) & (2**64 - 1)
        state = (state + 0x9E3779B97F4A7C15) & (2**64 - 1)
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
        state ^= state >> 31
    return state


@inlined
def next_random(state):
    """SplitMix64: the next state, and 64 random bits made from it."""
    state = state + _GOLDEN
    bits = state
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state, bits ^ (bits >> np.uint64(31))


@inlined
def below(bits, count):
    """A number in [0, count) from the high half of 64 random bits; count below 2^31."""
    return np.int64(((bits >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32))


class ShuffleBuffer:
    """A shuffle buffer of `rows` rows."""

    def __init__(self, rows: int, seed: int, memory: int | None = None) -> None:
        self._capacity = rows
        self._memory = memory
        self._afford(ROW_BYTES * rows, 0)
        self._state = np.array([mixed(seed, rows)], np.uint64)
        self._filled = 0
        self._starts = np.zeros(rows, np.int64)
        self._lengths = np.zeros(rows, np.int64)
        self._labels = np.zeros(rows, np.float32)
        self._weights = np.zeros(rows, np.float32)
        self._indices = np.empty(0, np.uint32)
        self._values = np.empty(0, np.float32)
        self._end = 0  # of the used part of the arena
        self._leaving: Int64s | None = None  # once the end has come: the rows that are still here, as they will leave

    def shuffled(self, batches: Batches) -> Batches:
        """The rows of `batches`, mixed. A restored buffer wants those that had not come in when it was saved."""
        with closing(batches):
            for batch in batches:
                out = self.push(batch)
                if out.rows:
                    yield out
        yield from self.drain()

    def push(self, batch: Batch) -> Batch:
        """Take the rows of `batch` in, and give out as many as do not fit."""
        assert self._leaving is None or not batch.rows, "no row comes after the end"
        start = min(batch.rows, self._capacity - self._filled)
        self._reserve(batch.features)
        if start:
            self._append(batch, start)
        leaving = batch.rows - start
        room = self._most_leaving(batch, start)
        out = Batch(
            np.zeros(leaving + 1, np.int64),
            np.empty(room, np.uint32),
            np.empty(room, np.float32),
            np.empty(leaving, np.float32),
            np.empty(leaving, np.float32),
        )
        self._end = replace_rows(
            batch, start, self._starts, self._lengths, self._labels, self._weights,
            self._indices, self._values, self._end, self._state, tuple(out),
        )  # fmt: skip
        used = int(out.indptr[-1])
        return out._replace(indices=out.indices[:used], values=out.values[:used])

    def drain(self) -> Batches:
        """What is left, in random order, a thousand rows at a time. Begun before, it goes on with the rest."""
        if self._leaving is None:
            self._leaving = np.arange(self._filled)
            permute(self._leaving, self._state)
        while len(self._leaving):
            chosen, self._leaving = self._leaving[:PIECE], self._leaving[PIECE:]  # a state has what comes after these
            yield self._gathered(chosen)
        self._filled = 0
        self._leaving = None

    def state(self) -> dict[str, Any]:
        """Everything that the future depends on, copied: of the rows only those that have not left.

        At the end they stand in the order in which they will leave. How full the arena is belongs to it: a buffer that
        is resumed asks for memory when it would have done so anyway, and is refused it where it would have been.
        """
        here = np.arange(self._filled) if self._leaving is None else self._leaving
        return {
            "capacity": self._capacity,
            "random": self._state.copy(),
            "draining": self._leaving is not None,
            "arena": len(self._indices),
            "end": self._end,
            "rows": self._gathered(here)._asdict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state` was taken."""
        if state["capacity"] != self._capacity:
            raise ModelError(f"the shuffle buffer saved is for {state['capacity']:,} rows, not for {self._capacity:,}")
        rows, arena = Batch(**state["rows"]), int(state["arena"])
        self._afford(ROW_BYTES * self._capacity + PAIR_BYTES * arena, rows.rows)
        self._indices, self._values = np.empty(arena, np.uint32), np.empty(arena, np.float32)
        self._filled = self._end = 0
        self._append(rows, rows.rows)
        self._end = int(state["end"])
        self._state = np.array(state["random"], np.uint64)
        self._leaving = np.arange(rows.rows) if state["draining"] else None

    def _gathered(self, order: Int64s) -> Batch:
        return gather(self._starts, self._lengths, self._indices, self._values, self._labels, self._weights, order)

    def _append(self, batch: Batch, count: int) -> None:
        rows = slice(self._filled, self._filled + count)
        a, b = int(batch.indptr[0]), int(batch.indptr[count])
        self._starts[rows] = batch.indptr[:count] - a + self._end
        self._lengths[rows] = np.diff(batch.indptr[: count + 1])
        self._labels[rows] = batch.labels[:count]
        self._weights[rows] = batch.weights[:count]
        self._indices[self._end : self._end + b - a] = batch.indices[a:b]
        self._values[self._end : self._end + b - a] = batch.values[a:b]
        self._end += b - a
        self._filled += count

    def _reserve(self, more: int) -> None:
        """Make room for `more` pairs behind the used part, by moving the live rows to the front of a new arena."""
        if self._end + more <= len(self._indices):
            return
        rows = self._filled
        starts = np.zeros(rows + 1, np.int64)
        np.cumsum(self._lengths[:rows], out=starts[1:])
        live = int(starts[-1])
        size = max(2 * (live + more), 1024)
        self._afford(ROW_BYTES * self._capacity + PAIR_BYTES * (size + len(self._indices)), rows)
        indices, values = np.empty(size, np.uint32), np.empty(size, np.float32)
        copy_rows(self._starts, np.arange(rows), self._indices, self._values, starts, indices, values)
        self._indices, self._values = indices, values
        self._starts[:rows] = starts[:-1]
        self._end = live

    def _afford(self, needed: int, rows: int) -> None:
        if self._memory is not None and needed > self._memory:
            held = f" at row {rows:,}" if rows else ""
            raise ConfigError(
                f"data.shuffle: a buffer of {self._capacity:,} rows needs more than the {self._memory / 1e6:,.0f} MB "
                f"that the memory budget leaves for it{held}; use a smaller --shuffle or a larger --memory"
            )

    def _most_leaving(self, batch: Batch, start: int) -> int:
        """An upper bound for the pairs that leave: everything that lives or arrives."""
        return int(self._lengths[: self._filled].sum()) + batch.features


def random_order(count: int, seed: int) -> Int64s:
    """0 .. count - 1 in a seeded random order."""
    order = np.arange(count)
    permute(order, np.array([seed], np.uint64))
    return order


def random_places(counts: Int64s, seed: int) -> Int64s:
    """For each count, all of them below 2^31, a seeded random number from 0 on below it."""
    places = np.empty(len(counts), np.int64)
    pick_places(counts, np.uint64(seed), places)
    return places


def runs_in_random_order(count: int, seed: int) -> Int64s:
    """0 .. count - 1 with runs of RUN neighbours in a seeded random order.

    Rows one by one would be read at the speed of memory's latency, 40 % slower; runs learn as well.
    """
    runs = random_order(-(-count // RUN), seed)
    order: Int64s = (runs[:, None] * RUN + np.arange(RUN)).ravel()
    return order[order < count]


def taken(batch: Batch, order: Int64s) -> Batch:
    """The rows of a batch in the order given, copied."""
    starts = batch.indptr[:-1]
    return gather(starts, np.diff(batch.indptr), batch.indices, batch.values, batch.labels, batch.weights, order)


def sampled(batch: Batch, share: float, seed: int, first: int) -> Batch:
    """The rows that belong to a sample of this share, copied; `first` is the number of the batch's first row."""
    bound = math.ceil(share * 2**53)  # exact: a power of two
    order = np.empty(batch.rows, np.int64)
    count = choose_rows(np.uint64(mixed(seed, SAMPLE)), np.uint64(first), np.uint64(bound), order)
    return taken(batch, order[:count])


def gather(starts: Any, lengths: Any, indices: Any, values: Any, labels: Any, weights: Any, order: Any) -> Batch:
    """The rows named by `order`, copied into a batch."""
    indptr = np.zeros(len(order) + 1, np.int64)
    np.cumsum(lengths[order], out=indptr[1:])
    out = Batch(
        indptr,
        np.empty(indptr[-1], np.uint32),
        np.empty(indptr[-1], np.float32),
        labels[order],
        weights[order],
    )
    copy_rows(starts, order, indices, values, out.indptr, out.indices, out.values)
    return out


@quick
def pick_places(counts, state, places):
    for i in range(len(counts)):
        state, bits = next_random(state)
        places[i] = below(bits, counts[i])


@kernel
def permute(order, state):
    """Fisher-Yates."""
    random = state[0]
    for i in range(len(order) - 1, 0, -1):
        random, bits = next_random(random)
        j = below(bits, i + 1)
        order[i], order[j] = order[j], order[i]
    state[0] = random


@quick
def choose_rows(state, first, bound, order):
    """Put the places of the chosen rows into `order`, which has one for each row; returns how many there are."""
    count = 0
    for i in range(len(order)):
        _, bits = next_random(state + (first + np.uint64(i)) * _GOLDEN)
        if bits >> np.uint64(11) < bound:
            order[count] = i
            count += 1
    return count


@kernel
def copy_rows(starts, order, indices, values, out_indptr, out_indices, out_values):
    for i in range(len(order)):
        a = starts[order[i]]
        b = out_indptr[i]
        for k in range(out_indptr[i + 1] - b):
            out_indices[b + k] = indices[a + k]
            out_values[b + k] = values[a + k]


@kernel
def replace_rows(batch, first, starts, lengths, labels, weights, arena_indices, arena_values, end, state, out):
    """Rows from `first` on enter the full buffer, each pushing a random one out; returns the new end of the arena."""
    indptr, indices, values, batch_labels, batch_weights = batch
    out_indptr, out_indices, out_values, out_labels, out_weights = out
    random = state[0]
    used = 0
    for i in range(first, len(batch_labels)):
        random, bits = next_random(random)
        slot = below(bits, len(starts))
        a = starts[slot]
        for k in range(lengths[slot]):
            out_indices[used + k] = arena_indices[a + k]
            out_values[used + k] = arena_values[a + k]
        used += lengths[slot]
        out_indptr[i - first + 1] = used
        out_labels[i - first] = labels[slot]
        out_weights[i - first] = weights[slot]
        a = indptr[i]
        count = indptr[i + 1] - a
        for k in range(count):
            arena_indices[end + k] = indices[a + k]
            arena_values[end + k] = values[a + k]
        starts[slot] = end
        lengths[slot] = count
        labels[slot] = batch_labels[i]
        weights[slot] = batch_weights[i]
        end += count
    state[0] = random
    return end
