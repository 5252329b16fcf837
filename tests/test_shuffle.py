"""Shuffling: every row once, an order that the rows and the seed alone decide, and a real mixture."""

import copy
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from libsvm_twin import rows_of
from tiers import examples

from streamsvm import shuffle as room
from streamsvm.batch import Batch, concatenate, empty_batch
from streamsvm.errors import ConfigError, ModelError
from streamsvm.shuffle import RUN, ShuffleBuffer, mixed, random_order, runs_in_random_order, taken


def made(count: int, seed: int = 0, longest: int = 6) -> Batch:
    """Rows of random lengths, some empty; the label numbers them."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, longest + 1, count)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    indices = np.concatenate([np.empty(0, np.int64), *(np.sort(random.choice(50, n, replace=False)) for n in lengths)])
    values = random.normal(size=indptr[-1]).astype(np.float32)
    weights = random.random(count).astype(np.float32)
    return Batch(indptr, indices.astype(np.uint32), values, np.arange(count, dtype=np.float32), weights)


def cut(batch: Batch, points):
    """The same rows in other batches, which are spoilt as soon as the next is asked for, as those of a Stream are."""
    edges = [0, *sorted(points), batch.rows]
    for start, stop in zip(edges, edges[1:], strict=False):
        part = batch.take(start, stop) if start % 2 else batch.slice(start, stop)
        lent = Batch(*(array.copy() for array in part))
        yield lent
        lent.indices[:], lent.values[:], lent.labels[:], lent.weights[:] = 99, np.nan, np.nan, np.nan


def shuffled(batch: Batch, size: int, seed: int = 0, points=()) -> list:
    found = []
    for out in ShuffleBuffer(size, seed).shuffled(cut(batch, points)):
        found += rows_of(out)
    return found


def order(rows) -> list[int]:
    return [int(np.frombuffer(row[0], np.float32)[0]) for row in rows]


@examples(150)
@given(st.integers(0, 60), st.integers(1, 80), st.integers(0, 2**64), st.lists(st.integers(0, 60), max_size=10))
def test_batching_does_not_matter(count, size, seed, points):
    batch = made(count)
    once = shuffled(batch, size, seed)
    assert Counter(once) == Counter(rows_of(batch))
    assert shuffled(batch, size, seed, [min(point, count) for point in points]) == once
    assert shuffled(batch, size, seed, range(count)) == once


def test_the_arena_is_packed_again_and_again():
    """Rows of very different lengths, many times the buffer, one at a time and all at once."""
    batch = concatenate([made(150, seed, longest) for seed, longest in enumerate((1, 40, 0, 40, 3))])
    batch = batch._replace(labels=np.arange(batch.rows, dtype=np.float32))
    found = shuffled(batch, 20, 5, range(batch.rows))
    assert Counter(found) == Counter(rows_of(batch))
    assert found == shuffled(batch, 20, 5) == shuffled(batch, 20, 5, [3, 400, 401])


def test_seeds_differ():
    batch = made(50)
    assert len({tuple(order(shuffled(batch, 10, seed))) for seed in range(30)}) == 30
    assert order(shuffled(batch, 10, 0)) != order(shuffled(batch, 11, 0))


def test_a_buffer_of_one_row_only_passes_on():
    assert order(shuffled(made(30), 1)) == list(range(30))


def test_no_rows():
    assert shuffled(empty_batch(), 5) == [] and shuffled(made(0), 5, points=[0, 0]) == []


def test_rows_leave_only_after_the_buffer_is_full():
    buffer = ShuffleBuffer(10, 0)
    batch = made(25)
    assert buffer.push(batch.slice(0, 10)).rows == 0
    assert buffer.push(batch.slice(10, 11)).rows == 1
    assert buffer.push(batch.slice(11, 25)).rows == 14
    assert sum(out.rows for out in buffer.drain()) == 10


@pytest.mark.full
def test_it_mixes():
    """Rows move about as far as the buffer is long, and every early position is as likely as any other."""
    places = np.zeros((20, 20))
    for seed in range(2000):
        for place, row in enumerate(order(shuffled(made(20, longest=0), 20, seed))):
            places[row, place] += 1
    assert abs(places - 100).max() < 60  # 6 sigma
    distance = np.abs(np.array(order(shuffled(made(2000, longest=0), 200, 1))) - np.arange(2000))
    assert 60 < distance.mean() < 250


def test_sorted_classes_come_out_mixed():
    labels = np.repeat(np.float32([-1, 1]), 500)
    batch = made(1000, longest=2)._replace(labels=labels)
    out = np.concatenate([out.labels for out in ShuffleBuffer(1000, 3).shuffled(cut(batch, [100, 700]))])
    assert abs(out[:200].sum()) < 80 and out.sum() == 0


def test_a_consumer_that_stops_closes_the_source():
    closed = []

    def source():
        try:
            for _ in range(100):
                yield made(5)
        finally:
            closed.append(True)

    rows = ShuffleBuffer(3, 0).shuffled(source())
    next(rows)
    rows.close()
    assert closed == [True]


@given(st.integers(0, 40), st.integers(0, 2**64 - 1))
def test_permuted(count, seed):
    batch = made(count + 3).slice(2, count + 3)
    found = taken(batch, random_order(batch.rows, seed))
    assert Counter(rows_of(found)) == Counter(rows_of(batch))
    assert rows_of(taken(batch, random_order(batch.rows, seed))) == rows_of(found)
    assert not np.shares_memory(found.values, batch.values)


def test_permuted_is_uniform():
    counts = Counter(
        tuple(order(rows_of(taken(made(3, longest=0), random_order(3, mixed(seed)))))) for seed in range(3000)
    )
    assert len(counts) == 6 and min(counts.values()) > 400 and max(counts.values()) < 600


def test_mixed_numbers():
    assert len({mixed(a, b) for a in range(50) for b in range(50)}) == 2500
    assert all(0 <= mixed(number) < 2**64 for number in (-1, 0, 2**64, 2**70))
    assert mixed(1, 2) != mixed(2, 1)


@pytest.mark.parametrize("size", [10, 1000, 10**6])
def test_a_buffer_larger_than_the_data(size):
    batch = made(10)
    found = shuffled(batch, size, 1, [4])
    assert Counter(found) == Counter(rows_of(batch)) and found != rows_of(batch)


@given(count=st.integers(0, 200), seed=st.integers(0, 2**63))
def test_runs_in_random_order(count, seed):
    found = runs_in_random_order(count, seed).tolist()
    assert sorted(found) == list(range(count))
    assert found == runs_in_random_order(count, seed).tolist()
    for here, after in zip(found, found[1:], strict=False):
        assert after == here + 1 or after % RUN == 0


# Stopping and going on.


class Run:
    """Two passes over the same rows through one buffer, which may be stopped wherever rows leave it."""

    def __init__(self, batch: Batch, size: int, points=(), memory: int | None = None) -> None:
        self.batch, self.size, self.points, self.memory = batch, size, points, memory

    def fresh(self, seed: int) -> ShuffleBuffer:
        return ShuffleBuffer(self.size, seed, self.memory)

    def source(self, taken: list[int], start: int):
        """The rows from `start` on; `taken` says how many the buffer has asked for."""
        rest = self.batch.slice(start, self.batch.rows)
        for part in cut(rest, [point - start for point in self.points if point > start]):
            taken[0] += part.rows
            yield part

    def go(self, stops=()) -> list:
        """All rows that leave; at each of the stops, counted in pieces that leave, another buffer takes over."""
        found, pieces, buffer = [], 0, self.fresh(7)
        for _ in range(2):
            taken, stopped = [0], True
            while stopped:
                stopped = False
                for out in buffer.shuffled(self.source(taken, taken[0])):
                    found += rows_of(out)
                    pieces += 1
                    if pieces in stops:
                        buffer = self.resumed(buffer, found, taken[0])
                        stopped = True
                        break
        return found

    def resumed(self, buffer: ShuffleBuffer, found: list, taken: int) -> ShuffleBuffer:
        state = buffer.state()
        here = Batch(**state["rows"])
        assert len(here.indices) == len(here.values) == here.features  # packed
        left = found[self.batch.rows :] if len(found) > self.batch.rows or taken == 0 else found
        assert Counter(rows_of(here)) + Counter(left) == Counter(rows_of(self.batch.slice(0, taken)))
        other = self.fresh(8)
        other.restore(state)
        for array in (*state["rows"].values(), state["random"]):
            array[...] = 77
        return other


@examples(120)
@given(
    st.integers(1, 90),
    st.integers(1, 100),
    st.lists(st.integers(0, 90), max_size=12),
    st.sets(st.integers(1, 60), max_size=6),
    st.integers(1, 30),
)
def test_going_on_equals_never_having_stopped(count, size, points, stops, piece):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "PIECE", piece)  # so that a small buffer leaves in several pieces at the end
        run = Run(made(count), size, [min(point, count) for point in points])
        straight = run.go()
        assert len(straight) == 2 * count
        assert run.go(stops) == straight
        assert run.go(range(1, 200)) == straight
    assert Run(made(count), size, range(count)).go(stops) == straight


def states_on_the_way(buffer: ShuffleBuffer, parts: list[Batch]) -> list[tuple[dict, list]]:
    """Every state of a run, each with the rows that leave after it; taking them changes nothing."""
    states, found = [(buffer.state(), 0)], []
    for part in parts:
        found += rows_of(buffer.push(part))
        states.append((buffer.state(), len(found)))
    for out in buffer.drain():
        found += rows_of(out)
        states += [(buffer.state(), len(found))] * 2
    states.append((buffer.state(), len(found)))
    return [(state, found[gone:]) for state, gone in states]


@pytest.mark.parametrize("size", [50, 300])
def test_a_state_has_the_rows_that_have_not_left(size, monkeypatch):
    monkeypatch.setattr(room, "PIECE", 9)
    batch = made(100)
    parts = [batch.slice(a, min(a + 7, 100)) for a in range(0, 100, 7)]
    states = states_on_the_way(ShuffleBuffer(size, 3), parts)
    assert [rows for _, rows in states][0] == shuffled(batch, size, 3)
    kinds = Counter((state["draining"], len(state["rows"]["labels"]) == size) for state, _ in states)
    assert kinds[False, False] > 5 and kinds[True, False] > 5 and (size > 100 or kinds[False, True] > 5)
    for place, (state, rest) in enumerate(states):
        kept = copy.deepcopy(state)
        resumed = ShuffleBuffer(size, 99)
        resumed.restore(state)
        assert rows_of(Batch(**resumed.state()["rows"])) == rows_of(Batch(**kept["rows"]))
        found = [row for out in resumed.shuffled(part for part in parts[place:]) for row in rows_of(out)]
        assert found == rest
        assert all((kept["rows"][name] == array).all() for name, array in state["rows"].items())


def test_the_end_comes_once():
    """What leaves at the end has been put in order; a state from there holds that order, not chance that is left."""
    buffer = ShuffleBuffer(40, 1)
    buffer.push(made(30))
    pieces = buffer.drain()
    next(pieces)
    state = buffer.state()
    assert state["draining"] and len(state["rows"]["labels"]) == 0
    resumed = ShuffleBuffer(40, 1)
    resumed.restore(state)
    assert list(resumed.shuffled(part for part in [empty_batch()])) == []
    assert list(pieces) == [] and resumed.state()["random"] == buffer.state()["random"] == state["random"]
    assert not resumed.state()["draining"] and resumed.push(made(45)).rows == 5
    buffer.push(made(5))
    next(buffer.drain())
    with pytest.raises(AssertionError, match="no row comes after the end"):
        buffer.push(made(1))


def outcomes(run: Run, stop: int) -> list:
    """The rows that leave with each batch, up to the one that is refused memory, with one stop on the way."""
    found, buffer = [], run.fresh(7)
    for place, part in enumerate(run.source([0], 0)):
        if place == stop:
            state = buffer.state()
            buffer = run.fresh(8)
            buffer.restore(state)
        try:
            found.append(rows_of(buffer.push(part)))
        except ConfigError as error:
            return [*found, str(error)]
    return found


def test_memory_is_refused_where_it_would_have_been():
    ends = set()
    batch = concatenate([made(40, seed, longest) for seed, longest in enumerate((10, 40, 2, 45))])
    for memory in range(2_000, 80_000, 1_300):
        run = Run(batch, 60, range(8, 160, 8), memory)
        straight = outcomes(run, -1)
        ends.add(len(straight))
        assert all(outcomes(run, stop) == straight for stop in range(1, len(straight)))
    assert len(ends) > 3 and max(ends) == 20


def test_a_state_that_does_not_fit_is_refused():
    buffer = ShuffleBuffer(60, 7)
    buffer.push(made(80, longest=40))
    state = buffer.state()
    needed = 24 * 60 + 8 * state["arena"]
    ShuffleBuffer(60, 7, needed).restore(state)
    with pytest.raises(ConfigError, match=r"a buffer of 60 rows needs more .* at row 60; use a smaller --shuffle"):
        ShuffleBuffer(60, 7, needed - 1).restore(state)
    with pytest.raises(ModelError, match="the shuffle buffer saved is for 60 rows, not for 61"):
        ShuffleBuffer(61, 7).restore(state)
