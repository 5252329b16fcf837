"""Fourier features: the RBF kernel, right angles, waves to the last digits, and rows that do not mind each other."""

import json
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import hadamard
from sklearn.kernel_approximation import RBFSampler
from sklearn.metrics.pairwise import rbf_kernel

from streamsvm.batch import Float32s
from streamsvm.features.maps.chance import lengths
from streamsvm.features.maps.fourier import Fourier, Waves, orthogonal_directions
from streamsvm.features.maps.product import multiply, packed

BOTH = pytest.mark.parametrize("structured", [False, True], ids=["fourier", "fourier_fast"])
Matrix = np.ndarray[Any, Any]


def matrix_of(rows: int, d: int, seed: int = 0) -> Float32s:
    """Rows whose squared distances are about 1."""
    return (np.random.default_rng(seed).normal(size=(rows, d)) * math.sqrt(0.5 / d)).astype(np.float32)


def error(mapped: Matrix, wanted: Matrix) -> Matrix:
    """Of all pairs of different rows."""
    found: Matrix = (mapped.astype(float) @ mapped.T - wanted)[np.triu_indices(len(wanted), 1)]
    return found


# The kernel.


@BOTH
@pytest.mark.parametrize("d", [1, 3, 20, 64, 100])
def test_scores_are_those_of_the_rbf_kernel(d: int, structured: bool) -> None:
    given = matrix_of(60, d)
    for gamma in (0.3, 1.0, 3.0):
        off = error(Fourier(d, 4096, gamma, 1, structured).rows(given), rbf_kernel(given, gamma=gamma))
        assert np.sqrt(np.mean(off**2)) < 2 / math.sqrt(4096)
        assert np.abs(off).max() < 5 / math.sqrt(4096)


@BOTH
def test_scores_are_right_in_the_mean(structured: bool) -> None:
    given = matrix_of(30, 64)
    wanted = rbf_kernel(given, gamma=1.0)
    off = [error(Fourier(64, 1024, 1.0, seed, structured).rows(given), wanted).mean() for seed in range(20)]
    assert abs(np.mean(off)) < 0.002  # lengths that are all alike give 0.005


@BOTH
def test_right_angles_beat_independent_directions(structured: bool) -> None:
    given = matrix_of(60, 64)
    wanted = rbf_kernel(given, gamma=1.0)
    ours = [np.mean(error(Fourier(64, 512, 1.0, s, structured).rows(given), wanted) ** 2) for s in range(8)]
    peer = [
        np.mean(error(RBFSampler(gamma=1.0, n_components=512, random_state=s).fit_transform(given), wanted) ** 2)
        for s in range(8)
    ]
    assert np.mean(ours) < 0.5 * np.mean(peer)


@BOTH
def test_rows_have_length_one_and_the_width_asked_for(structured: bool) -> None:
    for width in (2, 126, 130, 1000):
        mapped = Fourier(9, width, 0.7, 1, structured).rows(matrix_of(20, 9))
        assert mapped.shape == (20, width) and mapped.dtype == np.float32 and mapped.flags.c_contiguous
        np.testing.assert_allclose(np.square(mapped.astype(float)).sum(axis=1), 1.0, atol=1e-6)


# Directions.


def test_directions_of_a_block_are_at_right_angles_and_as_long_as_normal_ones() -> None:
    d = 12
    directions = orthogonal_directions(d, 500, 1.0, 3).astype(float)
    assert directions.shape == (d, 500)
    sizes = np.linalg.norm(directions, axis=0)
    units = directions / sizes
    for start in range(0, 500, d):
        block = units[:, start : start + d]
        np.testing.assert_allclose(block.T @ block, np.eye(block.shape[1]), atol=1e-6)
    assert stats.kstest(sizes, stats.chi(d).cdf).pvalue > 1e-3
    assert stats.kstest(directions.ravel(), "norm").pvalue > 1e-3


@pytest.mark.parametrize("n", [1, 2, 5, 64, 101])
def test_lengths_are_those_of_normal_vectors(n: int) -> None:
    made = lengths(5000, n, 7, n)
    assert stats.kstest(made, stats.chi(n).cdf).pvalue > 1e-3
    assert np.array_equal(made[:10], lengths(10, n, 7, n))


@pytest.mark.parametrize(("d", "width"), [(3, 100), (64, 256), (70, 600)])
def test_the_fast_transform_is_that_of_the_hadamard_matrix(d: int, width: int) -> None:
    fourier, given = Fourier(d, width, 0.5, 11, True), matrix_of(7, d)
    signs, count = fourier._signs, width // 2
    p = signs.shape[2]
    assert p == (64 if d <= 64 else 128) and set(np.unique(signs)) == {-1.0, 1.0}
    turn = hadamard(p) / math.sqrt(p)
    directions = np.vstack([turn * s3 @ (turn * s2) @ (turn * s1) for s1, s2, s3 in signs.astype(float)])[:count]
    sizes = lengths(count, p, 0x77617665, 11, 2) * math.sqrt(2 * 0.5)
    angles = given.astype(float) @ (directions * sizes[:, None])[:, :d].T
    wanted = np.hstack([np.cos(angles), np.sin(angles)]) * math.sqrt(2 / width)
    np.testing.assert_allclose(fourier.rows(given), wanted, atol=2e-6)


def test_signs_are_fair_and_blocks_differ() -> None:
    signs = Fourier(500, 4096, 1.0, 5, True)._signs
    assert signs.shape == (4, 3, 512) and abs(signs.mean()) < 5 / math.sqrt(signs.size)
    flat = signs.reshape(12, 512)
    assert np.abs(flat @ flat.T - 512 * np.eye(12)).max() < 6 * math.sqrt(512)


def test_the_plain_map_is_cosine_and_sine_of_a_product() -> None:
    fourier, given = Fourier(15, 80, 0.5, 11, False), matrix_of(9, 15)
    angles = given.astype(float) @ orthogonal_directions(15, 40, math.sqrt(2 * 0.5), 11).astype(float)
    wanted = np.hstack([np.cos(angles), np.sin(angles)]) * math.sqrt(2 / 80)
    np.testing.assert_allclose(fourier.rows(given), wanted, atol=1e-6)


# Waves.


def make_waves(out: Matrix) -> None:
    """Angles in the first half of each row become cosines, and sines in the second half: a product with 1."""
    count = out.shape[1] // 2
    angles = out[:, :count].copy()
    multiply(angles, packed(np.eye(count, dtype=np.float32)), out, count, finish=Waves(2 * count, np.float32(1.0)))


def test_waves_are_right_for_small_and_large_angles() -> None:
    rng = np.random.default_rng(0)
    for largest in (0.3, 1.0, 10.0, 1e4 / (2 * math.pi), 2.0**20):
        out = np.empty((50, 400), np.float32)
        out[:, :200] = rng.uniform(-largest, largest, (50, 200))
        turns = out[:, :200].astype(float)
        turns -= np.round(turns)
        make_waves(out)
        np.testing.assert_allclose(out[:, :200], np.cos(2 * math.pi * turns), atol=3e-7)
        np.testing.assert_allclose(out[:, 200:], np.sin(2 * math.pi * turns), atol=3e-7)


def test_waves_at_quarters_of_a_turn() -> None:
    quarters = np.arange(-9, 10)
    out = np.zeros((1, 38), np.float32)
    out[0, :19] = quarters / 4
    make_waves(out)
    np.testing.assert_allclose(out[0, :19], np.cos(quarters * math.pi / 2), atol=2e-7)
    np.testing.assert_allclose(out[0, 19:], np.sin(quarters * math.pi / 2), atol=2e-7)


@BOTH
def test_huge_values_give_numbers(structured: bool) -> None:
    given = np.array([[1e30, 0.0, 1.0], [-3e38, 0.0, 0.0], [1e10, -1e10, 1e10]], np.float32)
    mapped = Fourier(3, 64, 1.0, 0, structured).rows(given)
    assert np.all(np.isfinite(mapped)) and np.abs(mapped).max() <= math.sqrt(2 / 64) * 1.000001


# Rows are on their own.


@BOTH
@pytest.mark.parametrize(("d", "width"), [(1, 64), (5, 100), (22, 1000), (100, 514)])
def test_a_row_is_the_same_wherever_it_stands(d: int, width: int, structured: bool) -> None:
    fourier, given = Fourier(d, width, 1.0, 2, structured), matrix_of(256, d)
    whole = fourier.rows(given)
    order = np.random.default_rng(1).permutation(256)
    assert np.array_equal(fourier.rows(given[order]), whole[order])
    edges = [0, 1, 4, 9, 25, 60, 256]
    parts = [fourier.rows(given[a:b]) for a, b in zip(edges[:-1], edges[1:], strict=True)]
    assert np.array_equal(np.vstack(parts), whole)
    assert fourier.rows(given[:0]).shape == (0, width)


# The product behind it.


@pytest.mark.parametrize(("rows", "d", "count"), [(1, 1, 1), (3, 7, 15), (16, 5, 16), (21, 40, 50), (40, 3, 33)])
def test_the_product_is_summed_in_order_and_fills_no_more_than_it_should(rows: int, d: int, count: int) -> None:
    rng = np.random.default_rng(rows)
    given, matrix = rng.normal(size=(rows, d)).astype(np.float32), rng.normal(size=(d, count)).astype(np.float32)
    out = np.full((rows, count + 5), 7.0, np.float32)
    multiply(given, packed(matrix), out, count)
    wanted = np.zeros((rows, count), np.float32)
    for k in range(d):
        wanted += given[:, k : k + 1] * matrix[k]
    assert np.array_equal(out[:, :count], wanted) and np.all(out[:, count:] == 7.0)


@BOTH
def test_rows_given_stay_as_they_are(structured: bool) -> None:
    given = matrix_of(10, 6)
    before = given.copy()
    fourier = Fourier(6, 50, 1.0, 2, structured)
    first = fourier.rows(given)
    assert np.array_equal(given, before) and not np.shares_memory(first, fourier.rows(given))


# What is kept, and what is refused.


@BOTH
def test_what_is_stored_is_plain_and_makes_the_same_map(structured: bool) -> None:
    fourier, given = Fourier(40, 300, 0.37, 2**63 + 5, structured), matrix_of(256, 40)
    plain, tensors = fourier.stored()
    again = Fourier.restored(json.loads(json.dumps(plain)), tensors)
    assert tensors == {} and again.stored() == fourier.stored()
    assert again.kind == fourier.kind == ("fourier_fast" if structured else "fourier")
    assert np.array_equal(again.rows(given), fourier.rows(given))
    assert not np.allclose(Fourier(40, 300, 0.37, 6, structured).rows(given), fourier.rows(given), atol=0.01)
    for name in plain:
        with pytest.raises(ValueError, match="fourier"):
            Fourier.restored({key: value for key, value in plain.items() if key != name}, {})


def test_features_of_a_seed_are_the_same_for_ever() -> None:
    given = np.array([[0.5, -1.0, 2.0]], np.float32)
    fast = Fourier(3, 6, 0.5, 42, True).rows(given)
    assert fast.tolist() == [
        [
            0.3499762713909149,
            0.5298666954040527,
            -0.4868260622024536,
            0.4591839611530304,
            0.22929151356220245,
            -0.31037676334381104,
        ]
    ]
    np.testing.assert_allclose(
        Fourier(3, 6, 0.5, 42, False).rows(given),
        [[-0.5583558, 0.5508398, 0.5412472, 0.1468745, -0.1729416, 0.2009597]],
        atol=1e-6,
    )


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"d": 0}, "columns"),
        ({"width": 0}, "width"),
        ({"width": 7}, "even width"),
        ({"gamma": 0.0}, "gamma"),
        ({"gamma": math.nan}, "gamma"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Fourier(**{"d": 3, "width": 10, "gamma": 1.0, "seed": 0, "structured": False, **wrong})


@BOTH
def test_rows_of_another_number_of_columns_are_refused(structured: bool) -> None:
    with pytest.raises(ValueError, match="4 columns, but the map was made for 3"):
        Fourier(3, 10, 1.0, 0, structured).rows(matrix_of(5, 4))
