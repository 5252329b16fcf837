"""Random binning: the Laplace kernel within sampling error, absent equal to zero, and the same cells for ever."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics.pairwise import laplacian_kernel
from tiers import examples

from streamsvm.batch import Batch, Float32s, concatenate, empty_batch
from streamsvm.features.maps.bins import Bins
from streamsvm.features.maps.chance import logarithm, normals
from streamsvm.shuffle import taken

Matrix = np.ndarray[Any, Any]


def batch_of(matrix: Any, *, zeros: bool = False) -> Batch:
    """The rows of a matrix; zeros are left out unless asked for."""
    matrix = np.asarray(matrix, np.float32)
    there = np.ones(matrix.shape, bool) if zeros else matrix != 0
    return Batch(
        np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int64),
        np.nonzero(there)[1].astype(np.uint32),
        matrix[there],
        np.arange(len(matrix), dtype=np.float32),
        np.full(len(matrix), 0.5, np.float32),
    )


def sparse_matrix(rows: int, d: int, seed: int = 0) -> Float32s:
    rng = np.random.default_rng(seed)
    made: Float32s = (rng.normal(size=(rows, d)) * (rng.random((rows, d)) < 0.6)).astype(np.float32)
    return made


def cells(bins: Bins, matrix: Any) -> Matrix:
    """The index of each row in each grid."""
    return bins.batch(batch_of(matrix)).indices.reshape(len(matrix), bins.grids)


def meetings(found: Matrix) -> Matrix:
    """The share of grids in which two rows meet, for all pairs."""
    share: Matrix = (found[:, None, :] == found[None, :, :]).mean(axis=2)
    return share


def parameters(bins: Bins) -> tuple[Matrix, Matrix, Matrix]:
    """1 / pitch, offset and factor of each column and grid, drawn once more with Python's own numbers."""
    golden, every = 0x9E3779B97F4A7C15, 2**64 - 1

    def split_mix(state: int) -> tuple[int, int]:
        state = (state + golden) & every
        bits = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & every
        bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & every
        return state, bits ^ (bits >> 31)

    seed = split_mix(split_mix(0x62696E73)[1] ^ bins.seed)[1]
    pitches, offsets, factors = np.empty((3, bins.d, bins.grids))
    for j in range(bins.d):
        state = split_mix((seed + j * golden) & every)[1]
        for r in range(bins.grids):
            drawn = []
            for _ in range(3):
                state, bits = split_mix(state)
                drawn.append(bits)
            u1, u2 = (((bits >> 11) | 1) / 2**53 for bits in drawn[:2])
            pitches[j, r] = -bins.gamma / (math.log(u1) + math.log(u2))
            offsets[j, r] = (drawn[2] >> 40) / 2**24
            factors[j, r] = (drawn[2] | 1) % 2**32
    return pitches, offsets, factors


def twin(bins: Bins, matrix: Float32s) -> Matrix:
    """The same cells by NumPy, from parameters of its own, in whole numbers of any length."""
    pitches, offsets, factors = parameters(bins)
    pitches, offsets = pitches.astype(np.float32), offsets.astype(np.float32)
    out = np.empty((len(matrix), bins.grids), np.int64)
    for i, row in enumerate(matrix):
        places = np.clip(np.floor(row[:, None] * pitches + offsets), -(2**30), 2**30).astype(np.int64)
        for r in range(bins.grids):
            h = sum(int(b) * int(f) for b, f in zip(places[:, r], factors[:, r], strict=True)) % 2**32
            h = (h ^ (h >> 16)) * 0x85EBCA6B % 2**32
            h = (h ^ (h >> 13)) * 0xC2B2AE35 % 2**32
            h ^= h >> 16
            out[i, r] = r * 2**bins.bits + (h >> (32 - bins.bits))
    return out


# The kernel.


@pytest.mark.parametrize("gamma", [0.05, 0.3, 2.0])
def test_rows_meet_as_often_as_the_laplace_kernel_says(gamma: float) -> None:
    matrix = sparse_matrix(20, 8)
    bins = Bins(8, 8192, 18, gamma, 5)
    share, wanted = meetings(cells(bins, matrix)), laplacian_kernel(matrix, gamma=gamma)
    deviation = np.sqrt(wanted * (1 - wanted) / bins.grids)
    assert np.all(np.abs(share - wanted) <= 5 * deviation + 2 / bins.grids)
    away = ~np.eye(20, dtype=bool)
    assert abs(np.mean((share - wanted)[away])) < 0.004  # no bias either


def test_scores_are_the_share_of_meetings() -> None:
    matrix, bins = sparse_matrix(6, 5), Bins(5, 300, 20, 0.4, 1)
    mapped = bins.batch(batch_of(matrix))
    rows = [dict(zip(*row, strict=True)) for row in rows_of(mapped)]
    dots = [[sum(x * b.get(j, 0.0) for j, x in a.items()) for b in rows] for a in rows]
    np.testing.assert_allclose(dots, meetings(cells(bins, matrix)), rtol=1e-5)
    np.testing.assert_allclose(np.diag(dots), 1.0, rtol=1e-5)


def rows_of(batch: Batch) -> list[tuple[list[int], list[float]]]:
    cuts = zip(batch.indptr[:-1], batch.indptr[1:], strict=True)
    return [(batch.indices[a:b].tolist(), batch.values[a:b].tolist()) for a, b in cuts]


def test_few_bits_add_meetings_by_chance_and_no_more() -> None:
    far = np.array([[50.0] * 6, [-50.0] * 6], np.float32)  # k = 0
    for bits in (1, 3, 6):
        share = meetings(cells(Bins(6, 8192, bits, 1.0, 2), far))[0, 1]
        chance = 2.0**-bits
        assert abs(share - chance) < 5 * math.sqrt(chance / 8192)


def test_pitches_and_offsets_are_distributed_as_they_should() -> None:
    bins = Bins(40, 500, 4, 0.7, 3)
    pitches, offsets = 1.0 / bins._pitches.ravel().astype(float), bins._offsets.ravel()
    assert stats.kstest(pitches, stats.gamma(2, scale=1 / 0.7).cdf).pvalue > 1e-3
    assert stats.kstest(offsets, "uniform").pvalue > 1e-3
    assert offsets.min() >= 0.0 and offsets.max() < 1.0
    assert len(np.unique(bins._factors)) > 0.999 * bins._factors.size and np.all(bins._factors % 2 == 1)


# The cells.


def test_cells_are_those_of_the_slow_twin() -> None:
    matrix = sparse_matrix(12, 7) * np.float32(3.0)
    bins = Bins(7, 45, 11, 0.8, 123)
    assert np.array_equal(cells(bins, matrix), twin(bins, matrix))
    np.testing.assert_allclose(bins._pitches, parameters(bins)[0], rtol=1e-7)


def test_cells_of_a_seed_are_the_same_for_ever() -> None:
    matrix = [[0.5, -1.25, 0.0], [3.0, 0.0, 100.0], [0.0, 0.0, 0.0]]
    found = cells(Bins(3, 5, 8, 2.0, 42), matrix)
    assert found.tolist() == [
        [12, 423, 729, 964, 1024],
        [188, 419, 697, 983, 1110],
        [0, 256, 512, 768, 1024],
    ]


def test_indices_rise_and_stay_below_the_width() -> None:
    bins = Bins(5, 33, 6, 0.3, 9)
    mapped = bins.batch(batch_of(sparse_matrix(50, 5)))
    found = mapped.indices.reshape(50, 33)
    assert np.array_equal(found >> 6, np.tile(np.arange(33), (50, 1)))
    assert bins.width == 33 * 64 > int(found.max())
    assert np.array_equal(mapped.indptr, np.arange(51) * 33)
    assert mapped.values.dtype == np.float32 and np.all(mapped.values == np.float32(1 / math.sqrt(33)))
    assert (mapped.indptr.dtype, mapped.indices.dtype) == (np.int64, np.uint32)


def test_labels_and_weights_come_along() -> None:
    given_rows = batch_of(sparse_matrix(9, 4))
    mapped = Bins(4, 10, 5, 1.0, 0).batch(given_rows)
    assert np.array_equal(mapped.labels, given_rows.labels) and np.array_equal(mapped.weights, given_rows.weights)


def test_the_largest_index_is_that_of_32_bits() -> None:
    mapped = Bins(3, 4, 30, 5.0, 1).batch(batch_of(sparse_matrix(200, 3)))
    found = mapped.indices.reshape(200, 4).astype(np.int64)
    assert np.array_equal(found >> 30, np.tile(np.arange(4), (200, 1))) and found.max() > 4 * 2**30 - 2**28


def test_other_seeds_make_other_cells_and_fewer_grids_are_the_first_of_more() -> None:
    matrix = sparse_matrix(30, 6)
    few, more = Bins(6, 20, 16, 1.0, 7), Bins(9, 50, 16, 1.0, 7)
    assert np.array_equal(cells(few, matrix), cells(more, np.hstack([matrix, np.zeros((30, 3))]))[:, :20])
    found, other = cells(few, matrix), cells(Bins(6, 20, 16, 1.0, 8), matrix)
    assert np.mean(found[found % 2**16 > 0] == other[found % 2**16 > 0]) < 0.01  # the cell of zeros is 0 for all seeds


# Rows are on their own.


def test_a_feature_that_is_absent_is_one_of_value_zero() -> None:
    matrix, bins = sparse_matrix(40, 6), Bins(6, 70, 10, 0.5, 1)
    left_out, written = bins.batch(batch_of(matrix)), bins.batch(batch_of(matrix, zeros=True))
    assert np.array_equal(left_out.indices, written.indices)
    minus = batch_of(matrix, zeros=True)
    minus.values[minus.values == 0] = -0.0
    assert np.array_equal(left_out.indices, bins.batch(minus).indices)


@examples(20)
@given(cuts=st.lists(st.integers(0, 30), max_size=4), seed=st.integers(0, 2**64 - 1))
def test_cuts_and_order_of_rows_change_nothing(cuts: list[int], seed: int) -> None:
    rows, bins = batch_of(sparse_matrix(30, 6)), Bins(6, 37, 9, 0.5, seed)
    whole = bins.batch(rows)
    edges = [0, *sorted(cuts), 30]
    parts = [bins.batch(rows.slice(a, b)) for a, b in zip(edges[:-1], edges[1:], strict=True)]
    together = concatenate(parts)
    assert np.array_equal(whole.indices, together.indices) and np.array_equal(whole.indptr, together.indptr)
    order = np.random.default_rng(len(cuts)).permutation(30)
    assert np.array_equal(bins.batch(taken(rows, order)).indices, taken(whole, order).indices)


def test_no_rows_and_rows_without_features() -> None:
    bins = Bins(3, 8, 4, 1.0, 0)
    assert bins.batch(empty_batch()).rows == 0 and bins.batch(empty_batch()).features == 0
    found = cells(bins, np.zeros((2, 3)))
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], np.arange(8) << 4)


def test_given_room_is_used_if_it_is_large_enough() -> None:
    rows, bins = batch_of(sparse_matrix(20, 4)), Bins(4, 30, 8, 1.0, 0)
    wanted = bins.batch(rows).indices
    large, small = np.full(700, 7, np.uint32), np.empty(599, np.uint32)
    mapped = bins.batch(rows, large)
    assert np.shares_memory(mapped.indices, large) and np.array_equal(mapped.indices, wanted)
    assert np.all(large[600:] == 7)
    assert np.array_equal(bins.batch(rows, small).indices, wanted)


def test_huge_values_share_the_last_bin() -> None:
    bins = Bins(2, 400, 16, 1.0, 4)
    huge = [[1e30, 1.0], [3e38, 1.0], [-1e30, 1.0], [-3e38, 1.0], [1.0, 1.0], [1e-45, 0.0], [0.0, 0.0]]
    with np.errstate(all="ignore"):
        share = meetings(cells(bins, huge))
    assert share[0, 1] == share[2, 3] == 1.0 and share[5, 6] == 1.0
    assert share[0, 2] < 0.01 and share[0, 4] < 0.01
    odd = batch_of([[np.inf, 0.0], [-np.inf, 0.0], [np.nan, 0.0]])
    share = meetings(bins.batch(odd).indices.reshape(3, 400))
    assert share[1, 2] == 1.0 and share[0, 1] < 0.01  # what is no number is the least


# What is kept, and what is refused.


def test_what_is_stored_is_plain_and_makes_the_same_map() -> None:
    bins, matrix = Bins(6, 40, 12, 0.37, 2**63 + 11), sparse_matrix(25, 6)
    plain, tensors = bins.stored()
    again = Bins.restored(json.loads(json.dumps(plain)), tensors)
    assert tensors == {} and again.stored() == bins.stored()
    assert np.array_equal(cells(bins, matrix), cells(again, matrix))
    for name in plain:
        with pytest.raises(ValueError, match="bins"):
            Bins.restored({key: value for key, value in plain.items() if key != name}, {})
    with pytest.raises(ValueError, match="bins"):
        Bins.restored({**plain, "grids": None}, {})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"d": 0}, "columns"),
        ({"grids": 0}, "grids"),
        ({"bits": 0}, "bits"),
        ({"bits": 32}, "bits"),
        ({"grids": 3, "bits": 31}, "fewer bits"),
        ({"gamma": 0.0}, "gamma"),
        ({"gamma": math.nan}, "gamma"),
        ({"gamma": math.inf}, "gamma"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Bins(**{"d": 3, "grids": 10, "bits": 8, "gamma": 1.0, "seed": 0, **wrong})


def test_a_column_that_the_map_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="column 3, but the map was made for 3 columns"):
        Bins(3, 10, 8, 1.0, 0).batch(batch_of([[1.0, 0.0, 0.0, 2.0]]))


# The random numbers of all maps.


def test_logarithms_are_right_to_the_last_digits() -> None:
    for x in [2.0**-1000, 2.0**-106, 1e-9, 0.3, 0.5, 0.7, 0.7072, 1 - 2.0**-53, 1 - 1e-9, 1.0, 1.5, 1e9]:
        assert logarithm(x) == pytest.approx(math.log(x), rel=5e-16, abs=0.0)


def test_normals_are_normal_and_the_same_for_ever() -> None:
    made = normals(20_001, 1, 2)
    assert stats.kstest(made, "norm").pvalue > 1e-3 and len(np.unique(made)) == 20_001
    assert abs(np.corrcoef(made[:-1:2], made[1::2])[0, 1]) < 0.04
    assert np.array_equal(normals(7, 1, 2), made[:7]) and not np.array_equal(normals(7, 2, 1), made[:7])
    assert normals(3, 42).tolist() == [-0.12474819227380589, 0.36279929523121973, -0.023950513022518036]
