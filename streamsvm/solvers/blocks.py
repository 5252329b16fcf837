"""Blocks: rows copied from their groups into memory, where a solver can learn from them in any order, again and again.

A block is filled while the one before it is learned from. Its memory is allocated once and used for all blocks.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Batch, Int64s
from streamsvm.groups import Groups
from streamsvm.jit import kernel
from streamsvm.pool import Tokens, ordered
from streamsvm.rows import row_norm2
from streamsvm.shuffle import below, next_random

RUN = 128  # rows that stay together when runs are mixed
WINDOW = 64 * RUN  # rows that are then mixed one by one
PAIR_BYTES, ROW_BYTES = 8, 44  # what a feature takes in a block, and a row beside its features

Flags = npt.NDArray[np.uint8]  # for each row of the data: what speaks against learning from it, 0 if nothing does


class Block:
    """Room for so many rows and features. `order` has the places of those that are to be learned from, as they come."""

    def __init__(self, rows: int, features: int) -> None:
        self.indptr: Int64s = np.zeros(rows + 1, np.int64)
        self.indices = np.empty(features, np.uint32)
        self.values = np.empty(features, np.float32)
        self.labels = np.empty(rows, np.float32)
        self.weights = np.empty(rows, np.float32)
        self.norms = np.empty(rows)  # squared lengths
        self.numbers: Int64s = np.empty(rows, np.int64)  # which row of the data each one is
        self.order = np.empty(rows, np.uint32)
        self.rows = 0
        self.active = 0  # rows in `order`

    @property
    def batch(self) -> Batch:
        """The rows; there is room for more of them in the arrays."""
        return Batch(
            self.indptr[: self.rows + 1],
            self.indices,
            self.values,
            self.labels[: self.rows],
            self.weights[: self.rows],
        )

    def clear(self) -> None:
        self.rows = self.active = 0

    def take(self, batch: Batch, numbers: Int64s, chosen: npt.NDArray[Any], first: int = 0) -> int:
        """Copy the chosen rows of a batch, from the place `first` among them on; returns where there was no more room.

        `numbers` has the number of each row of the batch among all rows.
        """
        own = (self.indptr, self.indices, self.values, self.labels, self.weights, self.norms, self.numbers)
        done, self.rows = take_rows(batch, numbers, chosen, first, *own, self.rows)
        if done < len(chosen) and self.rows == 0:  # one row, longer than a block
            length = int(batch.indptr[chosen[done] + 1] - batch.indptr[chosen[done]])
            self.indices, self.values = np.empty(length, np.uint32), np.empty(length, np.float32)
            return self.take(batch, numbers, chosen, int(done))
        return int(done)

    def choose(self, marks: Flags, which: int = 255) -> None:
        """Learn from all rows but those that have one of these marks."""
        self.active = int(awake_rows(self.numbers[: self.rows], marks, np.uint8(which), self.order))

    def place(self, batch: Batch, number: int, start: int) -> None:
        """Copy all rows of a batch to where row `number` is to be, whose first feature is to be at `start`.

        Any thread may do so, where rows and features of all batches are known beforehand.
        """
        rows = slice(number, number + batch.rows)
        first, last = int(batch.indptr[0]), int(batch.indptr[-1])
        np.add(batch.indptr[1:], start - first, out=self.indptr[rows.start + 1 : rows.stop + 1])
        self.indices[start : start + last - first] = batch.indices[first:last]
        self.values[start : start + last - first] = batch.values[first:last]
        self.labels[rows], self.weights[rows] = batch.labels, batch.weights
        self.numbers[rows] = np.arange(rows.start, rows.stop)
        norms_pass(batch, self.norms[rows])

    def mix(self, seed: int) -> None:
        """Put the rows to learn from into a new random order: runs first, then the rows of many runs together.

        Rows one by one would be read at the speed of memory's latency, two to three times slower.
        """
        order = self.order[: self.active]
        mix_order(order, np.sort(order), np.array([seed], np.uint64))


def loaded(
    groups: Groups, numbers: Sequence[int], marks: Flags, blocks: Sequence[Block]
) -> Generator[Block, None, None]:
    """The rows of these groups, but for those that are marked, block after block; the next is filled meanwhile."""
    tokens = Tokens(len(blocks))
    free = list(blocks)

    def fill() -> Iterator[Block]:
        block: Block | None = None
        for number in numbers:
            start, stop = int(groups.starts[number]), int(groups.starts[number + 1])
            chosen = np.flatnonzero(marks[start:stop] == 0)
            done = 0
            batch = groups.group(number) if len(chosen) else None
            while batch is not None and done < len(chosen):
                if block is None:
                    tokens.take(1)
                    block = free.pop()
                    block.clear()
                done = block.take(batch, np.arange(start, stop), chosen, done)
                if done < len(chosen):
                    yield block
                    block = None
        if block is not None and block.rows:
            yield block

    with closing(ordered(fill, lambda block: block, tokens, threads=1)) as filled:
        for block in filled:
            yield block
            free.append(block)
            tokens.give_back(1)


@kernel
def take_rows(
    batch, numbers, chosen, first, indptr, indices, values, labels, weights, norms, own_numbers, rows
):  # fmt: skip
    their_indptr, their_indices, their_values, their_labels, their_weights = batch
    place = first
    end = indptr[rows]
    while place < len(chosen) and rows < len(labels):
        i = chosen[place]
        a, b = their_indptr[i], their_indptr[i + 1]
        if end + b - a > len(indices):
            break
        for k in range(b - a):
            indices[end + k] = their_indices[a + k]
            values[end + k] = their_values[a + k]
        norms[rows] = row_norm2(their_values, a, b)
        labels[rows], weights[rows] = their_labels[i], their_weights[i]
        own_numbers[rows] = numbers[i]
        end += b - a
        rows += 1
        indptr[rows] = end
        place += 1
    return place, rows


@kernel
def awake_rows(numbers, marks, which, order):
    """The places of the rows without such marks; returns how many there are."""
    count = 0
    for i in range(len(numbers)):
        if marks[numbers[i]] & which == 0:
            order[count] = i
            count += 1
    return count


@kernel
def norms_pass(batch, norms):
    indptr, indices, values, labels, weights = batch
    for i in range(len(labels)):
        norms[i] = row_norm2(values, indptr[i], indptr[i + 1])


@kernel
def mix_order(order, before, state):
    """The rows of `before` in a random order."""
    count = len(order)
    runs = (count + RUN - 1) // RUN
    which = np.arange(runs)
    random = state[0]
    for i in range(runs - 1, 0, -1):
        random, bits = next_random(random)
        j = below(bits, i + 1)
        which[i], which[j] = which[j], which[i]
    end = 0
    for run in which:
        for place in range(run * RUN, min(run * RUN + RUN, count)):
            order[end] = before[place]
            end += 1
    for start in range(0, count, WINDOW):
        for i in range(min(WINDOW, count - start) - 1, 0, -1):
            random, bits = next_random(random)
            j = start + below(bits, i + 1)
            order[start + i], order[j] = order[j], order[start + i]
