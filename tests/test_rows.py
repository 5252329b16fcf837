"""Row helpers, the way kernels use them, and the arithmetic of batches."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from streamsvm.batch import Batch, concatenate, empty_batch
from streamsvm.jit import kernel
from streamsvm.losses import LOSSES, Hinge, make_loss
from streamsvm.rows import (
    FARTHEST,
    ONE,
    SHORT,
    capped_slope,
    implicit_slope,
    pair_axpy,
    rebase,
    rescale,
    row_add,
    row_axpy,
    row_dot,
    row_norm2,
    sort_row,
    strided_dot,
    vector_norm2,
)

Vector = np.ndarray[Any, Any]
LENGTHS = pytest.mark.parametrize("length", [*range(10), 31, 1000])


@kernel
def dot(vector, indices, values, a, b):
    return row_dot(vector, indices, values, a, b)


@kernel
def axpy(vector, indices, values, a, b, factor):
    row_axpy(vector, indices, values, a, b, factor)


@kernel
def added(vector, indices, values, a, b, factor):
    row_add(vector, indices, values, a, b, factor)


@kernel
def norm2(values, a, b):
    return row_norm2(values, a, b)


@kernel
def scaled(vector, factor):
    rescale(vector, factor)


@kernel
def implicit(slope, eta, loss, score, label, values, a, b, gain):
    return implicit_slope(slope, eta, loss, score, label, values, a, b, gain)


@kernel
def capped(slope, stiffness):
    return capped_slope(slope, stiffness)


@kernel
def whole_norm2(vector):
    return vector_norm2(vector)


@kernel
def both_dot(pairs, indices, values, a, b):
    return strided_dot(pairs, indices, values, a, b, ONE)


@kernel
def both_axpy(pairs, indices, values, a, b, factor, other):
    pair_axpy(pairs, indices, values, a, b, factor, other)


@kernel
def rebased(pairs, scale, alpha, beta):
    rebase(pairs, scale, alpha, beta)


def made_row(length: int, seed: int = 0) -> tuple[Vector, Vector, Vector]:
    rng = np.random.default_rng(seed + length)
    vector = rng.normal(size=5000).astype(np.float32)
    indices = np.sort(rng.choice(5000, size=length + 6, replace=False)).astype(np.uint32)
    return vector, indices, rng.normal(size=length + 6).astype(np.float32)


@LENGTHS
@pytest.mark.parametrize("a", [0, 3])
def test_row_dot_sums_the_row_and_nothing_beside_it(length: int, a: int) -> None:
    vector, indices, values = made_row(length)
    b = a + length
    expected = math.fsum(vector[indices[a:b]].astype(float) * values[a:b].astype(float))
    assert dot(vector, indices, values, a, b) == pytest.approx(expected, rel=1e-13, abs=1e-13)
    pairs = np.full(10000, np.nan, np.float32)
    pairs[0::2] = vector
    assert both_dot(pairs, indices, values, a, b) == dot(vector, indices, values, a, b)


@examples(300)
@given(st.integers(0, 40), st.integers(0, 7), st.integers(0, 9), st.integers(0, 99), st.booleans())
def test_neighbours_are_summed_and_added_to_as_others_are(length: int, a: int, j: int, seed: int, single: bool) -> None:
    """Both ways, to the last bit: the same numbers next to each other, and every third one of a longer vector."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=60) * 10.0 ** rng.integers(-3, 4, 60)
    close: Vector = numbers.astype(np.float32 if single else np.float64)
    apart = np.full(3 * 60, np.nan, close.dtype)
    apart[::3] = close
    values = (rng.normal(size=60) * 10.0 ** rng.integers(-3, 4, 60)).astype(np.float32)
    indices = np.full(60, 59, np.uint32)
    indices[a : a + length] = np.arange(j, j + length)
    b = a + length
    assert dot(close, indices, values, a, b).hex() == dot(apart, 3 * indices, values, a, b).hex()
    before = close.copy()
    wide, wide_apart = close.astype(np.float64), apart.astype(np.float64)
    added(wide, indices, values, a, b, 0.3)
    added(wide_apart, 3 * indices, values, a, b, 0.3)
    assert wide.tobytes() == wide_apart[::3].tobytes() and np.array_equal(before, close)
    outside = np.r_[0:j, j + length : 60]
    assert np.array_equal(wide[outside], before.astype(np.float64)[outside])


def test_row_dot_is_in_double() -> None:
    vector = np.array([1e8, 1.0, -1e8], np.float32)
    assert dot(vector, np.arange(3, dtype=np.uint32), np.ones(3, np.float32), 0, 3) == 1.0


@LENGTHS
def test_row_axpy_adds_in_single_precision_at_the_rows_features_only(length: int) -> None:
    vector, indices, values = made_row(length)
    a, b = 2, 2 + length
    expected = vector.copy()
    expected[indices[a:b]] += np.float32(0.3) * values[a:b]
    axpy(vector, indices, values, a, b, 0.3)
    assert vector.tobytes() == expected.tobytes()


@LENGTHS
def test_row_add_adds_in_double_at_the_rows_features_only(length: int) -> None:
    single, indices, values = made_row(length)
    vector = single.astype(float)
    a, b = 2, 2 + length
    expected = vector.copy()
    expected[indices[a:b]] += 0.3 * values[a:b].astype(float)
    added(vector, indices, values, a, b, 0.3)
    np.testing.assert_allclose(vector, expected, rtol=1e-15)
    assert np.array_equal(np.delete(vector, indices[a:b]), np.delete(expected, indices[a:b]))


@LENGTHS
def test_pair_axpy_moves_both_of_each_pair(length: int) -> None:
    vector, indices, values = made_row(length)
    pairs = np.repeat(vector, 2)
    expected = pairs.copy()
    expected[2 * indices[1 : 1 + length].astype(int)] += np.float32(0.3) * values[1 : 1 + length]
    expected[2 * indices[1 : 1 + length].astype(int) + 1] += np.float32(-7.0) * values[1 : 1 + length]
    both_axpy(pairs, indices, values, 1, 1 + length, 0.3, -7.0)
    assert pairs.tobytes() == expected.tobytes()


def test_rebase_writes_both_vectors_out() -> None:
    pairs = np.arange(1, 9, dtype=np.float32)
    v, u = pairs[0::2].copy(), pairs[1::2].copy()
    rebased(pairs, 0.5, 0.25, 2.0)
    assert np.array_equal(pairs[0::2], np.float32(0.5) * v)
    assert np.array_equal(pairs[1::2], np.float32(0.25) * v + np.float32(2.0) * u)


@LENGTHS
def test_row_norm2_is_the_sum_of_squares(length: int) -> None:
    _, _, values = made_row(length)
    expected = math.fsum(values[1 : 1 + length].astype(float) ** 2)
    assert norm2(values, 1, 1 + length) == pytest.approx(expected, rel=1e-13)


def test_norms_of_the_largest_numbers_do_not_overflow() -> None:
    assert norm2(np.full(4, 3e38, np.float32), 0, 4) == pytest.approx(4 * 9e76, rel=1e-6)


def test_rescale_reaches_every_weight() -> None:
    vector = np.arange(17, dtype=np.float32)
    scaled(vector, 0.5)
    assert np.array_equal(vector, np.arange(17) / 2)


def test_sums_over_a_vector_do_not_depend_on_the_zeros_behind_it() -> None:
    vector = np.random.default_rng(6).uniform(1e6, 2e6, 2005).astype(np.float32)
    sums = {whole_norm2(np.append(vector, np.zeros(zeros, np.float32))) for zeros in range(9)}
    assert len(sums) == 1 and sums.pop() == pytest.approx(math.fsum(vector.astype(float) ** 2), rel=1e-13)


def test_a_capped_step_moves_the_score_no_further_than_so_far() -> None:
    assert capped(-1.0, FARTHEST) == -1.0 and capped(1.0, 0.0) == 1.0
    assert capped(-1.0, 10.0 * FARTHEST) == -0.1
    assert capped(-1.0, 1e300) * 1e300 == pytest.approx(-FARTHEST)


@pytest.mark.parametrize("loss", [make_loss(name) for name in LOSSES], ids=list(LOSSES))
@examples(50)
@given(
    st.floats(-50, 50),
    st.sampled_from([-1.0, 1.0]),
    st.floats(1e-6, 1e6),
    st.lists(st.floats(-1e3, 1e3, width=32), max_size=9),
    st.sampled_from([0.0, 1.0, 2.25]),
)
def test_an_implicit_step_goes_along_the_slope_at_its_end(
    loss: Any, score: float, label: float, eta: float, row: list[float], gain: float
) -> None:
    values = np.array(row, np.float32)
    slope, reach = loss.slope(score, label), math.fsum(values.astype(float) ** 2) + gain
    found = implicit(slope, eta, loss, score, label, values, 0, len(values), gain)
    moved = score - eta * found * reach
    room = 2e-3 * abs(found) * (1.0 + loss.bend() * eta * reach) + 1e-9
    if slope == 0.0 or not isinstance(loss, Hinge):
        assert found == pytest.approx(loss.slope(moved, label), abs=room + 2e-3 * eta * abs(found) * reach)
    else:  # at the kink all slopes between 0 and the first are those of its end
        assert label * moved <= loss.margin + 1e-6 * (1.0 + abs(score)) and 0.0 <= -label * found <= 1.0
        assert found == slope or label * moved == pytest.approx(loss.margin, abs=1e-6 * (1.0 + abs(score)))
    assert loss.value(moved, label) <= loss.value(score, label) * (1 + 1e-9) + 1e-12


# Sorting.

SPAN = st.sampled_from([3, 300, 2**24, 2**32 - 1])


@kernel
def sorted_part(indices, values, a, b, room):
    return sort_row(indices[a:b], values[a:b], room)


def summed(indices: Vector, values: Vector) -> dict[int, np.float32]:
    """The slow twin: sums in single precision, in the order written."""
    sums: dict[int, np.float32] = {}
    with np.errstate(over="ignore", invalid="ignore"):
        for index, value in zip(indices.tolist(), values, strict=True):
            sums[index] = sums[index] + value if index in sums else value
    return dict(sorted(sums.items()))


def sorts_as_its_twin(indices: Vector, values: Vector) -> None:
    count = len(indices)
    around = np.array([7, 5, 3], np.uint32)
    row = np.concatenate([around, indices, around])
    numbers = np.concatenate([around, values, around]).astype(np.float32)
    room = np.full(2 * count + 2, 2**64 - 1, np.uint64)
    kept = sorted_part(row, numbers, 3, 3 + count, room[: 2 * count])
    sums = summed(indices, values)
    assert row[3 : 3 + kept].tolist() == list(sums)
    assert numbers[3 : 3 + kept].tobytes() == np.array(list(sums.values()), np.float32).tobytes()
    for array in (row, numbers):
        assert array[[0, 1, 2, -3, -2, -1]].tolist() == [7, 5, 3] * 2, "it wrote past the row"
    assert (room[-2:] == 2**64 - 1).all(), "it wrote past its room"


@examples(200)
@given(st.integers(0, 3 * SHORT), SPAN, st.integers(0, 2**32))
def test_rows_are_sorted_and_twins_added_up_in_the_order_written(count: int, span: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    indices = rng.integers(0, span, count, endpoint=True).astype(np.uint32)
    values = (rng.normal(size=count) * 10.0 ** rng.integers(-8, 9, count)).astype(np.float32)
    sorts_as_its_twin(indices, values)
    sorts_as_its_twin(np.sort(indices), values)
    sorts_as_its_twin(np.sort(indices)[::-1].copy(), values)


@pytest.mark.parametrize("count", [0, 1, 2, SHORT - 1, SHORT, SHORT + 1, 5000])
def test_every_way_of_sorting_has_its_borders(count: int) -> None:
    rng = np.random.default_rng(count)
    values = rng.normal(size=count).astype(np.float32)
    falling = np.arange(count, 0, -1).astype(np.uint32)
    for indices in (falling, falling << 24, falling * 0, falling // 2, 2**32 - 1 - falling):
        sorts_as_its_twin(indices.astype(np.uint32), values)
    values[: count // 2] = np.float32(-0.0)
    sorts_as_its_twin(falling, values)
    values[:] = 3e38
    sorts_as_its_twin(falling // 3, values)


# Batches.


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    lengths = draw(st.lists(st.integers(0, 5), max_size=12))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    indices = [np.sort(rng.choice(2**32 - 1, size=length, replace=False)) for length in lengths if length]
    total = sum(lengths)
    return Batch(
        np.cumsum([0, *lengths], dtype=np.int64),
        np.concatenate([np.empty(0), *indices]).astype(np.uint32),
        rng.normal(size=total).astype(np.float32),
        rng.integers(0, 2, size=len(lengths)).astype(np.float32),
        np.ones(len(lengths), np.float32),
    )


def same(a: Batch, b: Batch) -> bool:
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@given(batches(), st.data())
def test_cutting_a_batch_and_joining_the_pieces_gives_it_back(batch: Batch, data: st.DataObject) -> None:
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, batch.rows), max_size=5))), batch.rows]
    shared = [batch.slice(a, b) for a, b in zip(edges, edges[1:], strict=False)]
    copied = [batch.take(a, b) for a, b in zip(edges, edges[1:], strict=False)]
    assert same(concatenate(shared), batch) and same(concatenate(copied), batch)
    assert [piece.rows for piece in shared] == [piece.rows for piece in copied]
    assert [piece.features for piece in shared] == [piece.features for piece in copied]
    assert [piece.width for piece in shared] == [piece.width for piece in copied]
    assert max(piece.width for piece in shared) == batch.width
    assert batch.width == (int(batch.indices.max()) + 1 if len(batch.indices) else 0)


def test_copies_do_not_share_memory() -> None:
    batch = Batch(
        np.array([0, 1, 2]),
        np.array([5, 7], np.uint32),
        np.ones(2, np.float32),
        np.zeros(2, np.float32),
        np.ones(2, np.float32),
    )
    for other in (batch.copy(), batch.take(0, 2), concatenate([batch])):
        assert not any(np.shares_memory(x, y) for x, y in zip(batch, other, strict=True))
    assert np.shares_memory(batch.slice(1, 2).values, batch.values)


def test_the_empty_batch() -> None:
    assert (empty_batch().rows, empty_batch().features, empty_batch().width) == (0, 0, 0)
    assert same(concatenate([]), empty_batch()) and same(concatenate([empty_batch()] * 3), empty_batch())
