"""Polynomials: the kernel exactly where all monomials fit, in the mean where they are hashed, and rows in order."""

import itertools
import json
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.kernel_approximation import PolynomialCountSketch
from sklearn.metrics.pairwise import polynomial_kernel
from sklearn.utils import murmurhash3_32
from tiers import examples

from streamsvm.batch import Batch, Float32s, concatenate, empty_batch
from streamsvm.features.maps.polynomial import LONGEST, HashedPolynomial, Monomials, count_monomials
from streamsvm.shuffle import mixed, taken

Matrix = np.ndarray[Any, Any]


def matrix_of(rows: int, d: int, seed: int = 0, share: float = 1.0) -> Float32s:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(rows, d)) * (rng.random((rows, d)) < share)).astype(np.float32)


def batch_of(matrix: Matrix, *, zeros: bool = False, step: int = 1) -> Batch:
    """The rows of a matrix, with indices that are `step` apart; zeros are left out unless asked for."""
    there = np.ones(matrix.shape, bool) if zeros else matrix != 0
    return Batch(
        np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int64),
        (np.nonzero(there)[1] * step).astype(np.uint32),
        matrix[there].astype(np.float32),
        np.arange(len(matrix), dtype=np.float32),
        np.full(len(matrix), 0.5, np.float32),
    )


def scores(batch: Batch) -> Matrix:
    """phi(x) . phi(y) of all pairs of rows."""
    found, columns = np.unique(batch.indices, return_inverse=True)
    rows = csr_array((batch.values.astype(float), columns, batch.indptr), shape=(batch.rows, len(found)))
    product: Matrix = (rows @ rows.T).toarray()
    return product


# All monomials.


@pytest.mark.parametrize("coef0", [0.0, 0.5, 2.0])
@pytest.mark.parametrize(("d", "degree"), [(1, 1), (1, 5), (6, 1), (7, 2), (5, 3), (3, 6)])
def test_scores_are_those_of_the_polynomial_kernel(d: int, degree: int, coef0: float) -> None:
    rows = matrix_of(40, d)
    mapped = Monomials(d, degree, 0.7, coef0).rows(rows)
    wanted = polynomial_kernel(rows.astype(float), degree=degree, gamma=0.7, coef0=coef0)
    sizes = np.sqrt(np.outer(np.diag(wanted), np.diag(wanted)))
    assert np.abs(mapped.astype(float) @ mapped.T - wanted).max() < 1e-6 * sizes.max()
    np.testing.assert_allclose(np.square(mapped.astype(float)).sum(axis=1), np.diag(wanted), rtol=3e-6)
    assert mapped.shape == (40, count_monomials(d, degree, coef0)) and mapped.flags.c_contiguous
    assert mapped.dtype == np.float32


def test_monomials_stand_in_the_order_of_degree_and_last_column() -> None:
    row = np.array([[2.0, 3.0, 5.0]], np.float32)
    mapped = Monomials(3, 2, 1.0, 1.0).rows(row)[0] ** 2
    singles, pairs = [4, 9, 25], [16, 2 * 36, 81, 2 * 100, 2 * 225, 625]
    np.testing.assert_allclose(mapped, [1, *(2 * x for x in singles), *pairs], rtol=1e-6)
    np.testing.assert_allclose(Monomials(3, 2, 1.0, 0.0).rows(row)[0] ** 2, pairs, rtol=1e-6)


def test_monomials_are_those_of_a_slow_twin() -> None:
    d, degree, gamma, coef0 = 4, 4, 0.3, 0.6
    row = matrix_of(1, d)
    wanted = []
    for k in range(degree + 1):
        for chosen in sorted(itertools.combinations_with_replacement(range(d), k), key=lambda c: c[::-1]):
            ways = math.factorial(degree) / math.factorial(degree - k)
            for times in Counter(chosen).values():
                ways /= math.factorial(times)
            size = math.sqrt(ways * gamma**k * coef0 ** (degree - k))
            wanted.append(size * math.prod(float(row[0, j]) for j in chosen))
    np.testing.assert_allclose(Monomials(d, degree, gamma, coef0).rows(row)[0], wanted, rtol=1e-6)


def test_too_many_monomials_are_refused() -> None:
    assert count_monomials(100, 2, 1.0) == 5151 and count_monomials(100, 2, 0.0) == 5050
    assert Monomials(100, 2, 1.0, 1.0, 5151).width == 5151
    with pytest.raises(ValueError, match="100 columns have 5,151 monomials of degree 2, more than 5,150"):
        Monomials(100, 2, 1.0, 1.0, 5150)


def test_rows_of_monomials_are_on_their_own() -> None:
    rows, monomials = matrix_of(30, 5), Monomials(5, 3, 0.5, 1.0)
    whole = monomials.rows(rows)
    assert np.array_equal(np.vstack([monomials.rows(rows[k : k + 1]) for k in range(30)]), whole)
    assert np.array_equal(monomials.rows(rows[::-1]), whole[::-1])
    assert monomials.rows(rows[:0]).shape == (0, 56)
    with pytest.raises(ValueError, match="4 columns, but the map was made for 5"):
        monomials.rows(rows[:, :4])


# Hashed.


def word_of(index: int, start: int) -> int:
    return max(murmurhash3_32(index.to_bytes(4, "little"), start, positive=True), 1)


def crossed(first: int, second: int) -> int:
    """`hashing.cross` in whole numbers."""
    k = second * 0xCC9E2D51 % 2**32
    k = (k << 15 | k >> 17) % 2**32 * 0x1B873593 % 2**32
    h = first ^ k
    h = ((h << 13 | h >> 19) % 2**32 * 5 + 0xE6546B64) % 2**32 ^ 8
    h = (h ^ h >> 16) * 0x85EBCA6B % 2**32
    h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
    return max(h ^ h >> 16, 1)


def twin(hashed: HashedPolynomial, row: dict[int, float]) -> dict[int, float]:
    """The features of one short row, in double."""
    start = mixed(0x706F6C79, hashed.seed) % 2**32
    found: dict[int, float] = {}
    for k in range(hashed.degree + 1):
        for chosen in itertools.combinations_with_replacement(sorted(row), k):
            ways = math.factorial(hashed.degree) / math.factorial(hashed.degree - k)
            for times in Counter(chosen).values():
                ways /= math.factorial(times)
            value = math.sqrt(ways * hashed.gamma**k * hashed.coef0 ** (hashed.degree - k))
            if value == 0.0:
                continue
            value *= math.prod(row[j] for j in chosen)
            if k == 1 and chosen[0] < hashed.first:
                found[chosen[0]] = found.get(chosen[0], 0.0) + value
                continue
            word = murmurhash3_32(b"", start, positive=True) >> 1
            for place, j in enumerate(chosen):
                word = crossed(word, word_of(j, start)) if place else word_of(j, start)
            index = hashed.first + word % 2**hashed.bits
            found[index] = found.get(index, 0.0) + (-value if word >= 2**31 else value)
    return found


@pytest.mark.parametrize("degree", [2, 3])
@pytest.mark.parametrize("coef0", [0.0, 1.0])
@pytest.mark.parametrize("first", [0, 40])
@pytest.mark.parametrize("bits", [3, 22])
def test_hashed_features_are_those_of_a_slow_twin(degree: int, coef0: float, first: int, bits: int) -> None:
    hashed = HashedPolynomial(degree, 0.5, coef0, bits, 7, first=first)
    mapped = hashed.batch(batch_of(matrix_of(12, 9, share=0.6), step=11))
    rows = matrix_of(12, 9, share=0.6)
    for i in range(12):
        a, b = mapped.indptr[i : i + 2]
        wanted = twin(hashed, {11 * j: float(rows[i, j]) for j in np.flatnonzero(rows[i]).tolist()})
        assert mapped.indices[a:b].tolist() == sorted(wanted)
        np.testing.assert_allclose(mapped.values[a:b], [wanted[j] for j in sorted(wanted)], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("coef0", [0.0, 1.0])
@pytest.mark.parametrize("degree", [2, 3])
def test_without_collisions_scores_are_exact(degree: int, coef0: float) -> None:
    rows = matrix_of(20, 10, share=0.5)
    wanted = polynomial_kernel(rows.astype(float), degree=degree, gamma=0.4, coef0=coef0)
    for first in (0, 10):
        found = scores(HashedPolynomial(degree, 0.4, coef0, 31, 1, first=first).batch(batch_of(rows)))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * wanted.max())


def test_with_collisions_scores_are_right_in_the_mean_and_as_far_off_as_they_may_be() -> None:
    rows = matrix_of(15, 12, share=0.7)
    wanted = polynomial_kernel(rows.astype(float), degree=2, gamma=0.3, coef0=1.0)
    sizes = np.sqrt(np.outer(np.diag(wanted), np.diag(wanted)))
    off = np.array([scores(HashedPolynomial(2, 0.3, 1.0, 7, s).batch(batch_of(rows))) - wanted for s in range(150)])
    deviation = sizes * math.sqrt(2 / 128)
    assert np.all(np.abs(off.mean(axis=0)) < 5 * deviation / math.sqrt(150))
    assert 0.1 < np.mean(np.square(off / deviation)) < 1.0
    sketch = PolynomialCountSketch(gamma=0.3, degree=2, coef0=1, n_components=128, random_state=0).fit(rows)
    peer = sketch.transform(rows) @ sketch.transform(rows).T - wanted
    assert np.mean(np.square(off)) < 1.5 * np.mean(np.square(peer))


def test_features_of_a_seed_are_the_same_for_ever() -> None:
    row = batch_of(np.array([[1.0, 2.0]]), step=1000)
    mapped = HashedPolynomial(2, 1.0, 1.0, 10, 42).batch(row)
    assert dict(zip(mapped.indices.tolist(), mapped.values.tolist(), strict=True)) == pytest.approx(
        {171: -4.0, 202: 1.0, 453: 2.828427, 631: -2.828427, 828: -1.414214, 994: 1.0}
    )


def test_rows_are_in_order_without_twins() -> None:
    for bits in (4, 9, 20):
        mapped = HashedPolynomial(3, 0.5, 1.0, bits, 3).batch(batch_of(matrix_of(20, 12, share=0.6)))
        for a, b in zip(mapped.indptr[:-1], mapped.indptr[1:], strict=True):
            assert np.all(np.diff(mapped.indices[a:b].astype(np.int64)) > 0)
        assert mapped.indices.max() < 2**bits and len(mapped.indices) == len(mapped.values) == mapped.features
        assert (mapped.indices.dtype, mapped.values.dtype) == (np.uint32, np.float32)


@examples(20)
@given(cuts=st.lists(st.integers(0, 30), max_size=4), seed=st.integers(0, 2**64 - 1), degree=st.sampled_from([2, 3]))
def test_cuts_order_and_zeros_change_nothing(cuts: list[int], seed: int, degree: int) -> None:
    rows = matrix_of(30, 7, share=0.6)
    given_rows, hashed = batch_of(rows), HashedPolynomial(degree, 0.5, 1.0, 12, seed, longest=4)
    whole = hashed.batch(given_rows)
    edges = [0, *sorted(cuts), 30]
    parts = [hashed.batch(given_rows.slice(a, b)) for a, b in zip(edges[:-1], edges[1:], strict=True)]
    order = np.random.default_rng(len(cuts)).permutation(30)
    again = taken(hashed.batch(taken(given_rows, order)), np.argsort(order))
    for other in (concatenate(parts), again, hashed.batch(batch_of(rows, zeros=True))):
        assert all(np.array_equal(ours, theirs) for ours, theirs in zip(whole, other, strict=True))


def test_no_rows_and_rows_without_features() -> None:
    hashed = HashedPolynomial(2, 1.0, 2.0, 8, 0)
    assert hashed.batch(empty_batch()).rows == 0 and hashed.room(empty_batch()) == 0
    mapped = hashed.batch(batch_of(np.zeros((2, 3))))
    assert mapped.indptr.tolist() == [0, 1, 2] and mapped.values.tolist() == [2.0, 2.0]
    assert HashedPolynomial(2, 1.0, 0.0, 8, 0).batch(batch_of(np.zeros((2, 3)))).indptr.tolist() == [0, 0, 0]


@pytest.mark.parametrize("degree", [2, 3])
def test_long_rows_multiply_their_largest_features_and_keep_all_alone(degree: int) -> None:
    rows = matrix_of(6, 10)
    rows[1] = [0.9, -0.9, 0.9, 5.0, -4.0, 3.0, 0.1, 0.1, 0.1, 0.1]  # of equal ones the first count
    rows[0, 5:] = 0.0  # not long
    hashed = HashedPolynomial(degree, 0.5, 1.0, 31, 1, first=10, longest=5)
    mapped = hashed.batch(batch_of(rows))
    assert hashed.long_rows(batch_of(rows)) == 5
    for i in range(6):
        order = np.argsort(-np.abs(rows[i]), kind="stable")[:5]
        short = np.zeros_like(rows[i])
        short[order] = rows[i, order]
        kept = hashed.batch(batch_of(short[None]))
        row = mapped.take(i, i + 1)
        alone = row.indices < 10
        assert np.array_equal(row.indices[~alone], kept.indices[kept.indices >= 10])
        assert np.array_equal(row.values[~alone], kept.values[kept.indices >= 10])
        assert np.array_equal(row.indices[alone], np.flatnonzero(rows[i]))


def test_room_is_what_rows_need_before_any_meet() -> None:
    for degree in (2, 3):
        rows = batch_of(matrix_of(10, 9, share=0.5))
        hashed = HashedPolynomial(degree, 1.0, 1.0, 31, 0)
        assert hashed.room(rows) == hashed.batch(rows).features
        assert HashedPolynomial(degree, 1.0, 1.0, 4, 0).batch(rows).features < hashed.room(rows)


# What is kept, and what is refused.


def test_what_is_stored_is_plain_and_makes_the_same_map() -> None:
    rows = matrix_of(20, 6, share=0.7)
    monomials, hashed = Monomials(6, 3, 0.3, 0.7), HashedPolynomial(3, 0.3, 0.7, 14, 2**63 + 1, first=6, longest=4)
    plain, tensors = monomials.stored()
    again = Monomials.restored(json.loads(json.dumps(plain)), tensors)
    assert tensors == {} and np.array_equal(again.rows(rows), monomials.rows(rows))
    for name in plain:
        with pytest.raises(ValueError, match="monomials"):
            Monomials.restored({key: value for key, value in plain.items() if key != name}, {})
    plain, tensors = hashed.stored()
    other = HashedPolynomial.restored(json.loads(json.dumps(plain)), tensors)
    assert tensors == {} and other.stored() == hashed.stored()
    mapped, same = hashed.batch(batch_of(rows)), other.batch(batch_of(rows))
    assert np.array_equal(mapped.indices, same.indices) and np.array_equal(mapped.values, same.values)
    for name in plain:
        with pytest.raises(ValueError, match="hashed polynomial"):
            HashedPolynomial.restored({key: value for key, value in plain.items() if key != name}, {})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [({"d": 0}, "columns"), ({"degree": 0}, "degree"), ({"gamma": -1.0}, "gamma"), ({"coef0": -0.1}, "coef0")],
)
def test_monomials_that_make_no_sense_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Monomials(**{"d": 3, "degree": 2, "gamma": 1.0, "coef0": 1.0, **wrong})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"degree": 1}, "degree 2 or 3"),
        ({"degree": 4}, "degree 2 or 3"),
        ({"bits": 0}, "bits"),
        ({"bits": 32}, "bits"),
        ({"first": 2**31 + 1, "bits": 31}, "do not fit"),
        ({"first": -1}, "do not fit"),
        ({"gamma": math.inf}, "gamma"),
        ({"coef0": math.nan}, "coef0"),
        ({"longest": 0}, "longest"),
    ],
)
def test_hashed_polynomials_that_make_no_sense_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        HashedPolynomial(**{"degree": 2, "gamma": 1.0, "coef0": 1.0, "bits": 8, "seed": 0, **wrong})


def test_rows_are_as_long_as_the_text_says() -> None:
    assert {degree: HashedPolynomial(degree, 1.0, 1.0, 8, 0).longest for degree in (2, 3)} == LONGEST
    most = [LONGEST[2] * (LONGEST[2] + 1) // 2, math.comb(LONGEST[3] + 2, 3)]
    assert most[0] < 35_000 and most[1] < 46_000
