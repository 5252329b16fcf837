"""Scaling: scikit-learn's factors, whatever the cuts; running statistics that are sound; room that is refused."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from tiers import examples

from streamsvm.batch import Batch, Float32s, empty_batch
from streamsvm.errors import ConfigError, DataError
from streamsvm.features import scaling as module
from streamsvm.features.scaling import KINDS, LARGEST_FACTOR, Scaling
from streamsvm.model import Model

BOTH = pytest.mark.parametrize("kind", ["maxabs", "standard"])
Matrix = np.ndarray[Any, Any]
Row = dict[int, float]


def batch_of(rows: Sequence[Row], weights: Sequence[float] | None = None) -> Batch:
    return Batch(
        np.cumsum([0] + [len(row) for row in rows], dtype=np.int64),
        np.array([index for row in rows for index in sorted(row)], np.uint32),
        np.array([row[index] for row in rows for index in sorted(row)], np.float32),
        np.zeros(len(rows), np.float32),
        np.array([1.0] * len(rows) if weights is None else weights, np.float32),
    )


def made_up(rows: int = 200, width: int = 30, seed: int = 0, *, weighted: bool = True) -> Batch:
    """Sparse rows whose features differ in size, rarity and mean; some are zero, constant or never there."""
    rng = np.random.default_rng(seed)
    sizes, means, rarity = 10.0 ** rng.uniform(-6, 6, width), rng.normal(0, 3, width), rng.uniform(0.05, 0.9, width)
    made: list[Row] = []
    for _ in range(rows):
        there = np.flatnonzero(rng.random(width) < rarity)
        row = {int(j): float(sizes[j] * (means[j] + rng.normal())) for j in there}
        row[3], row[7] = 0.0, 250.0  # zero, and constant
        row.pop(11, None)  # never there
        made.append(row)
    weights = rng.choice([1.0, 1.0, 0.5, 2.0, 0.0, 0.1], rows) if weighted else np.ones(rows)
    return batch_of(made, weights.tolist())


def matrix_of(batch: Batch, width: int) -> Any:
    """The rows as scipy has them, in double."""
    a, b = batch.indptr[0], batch.indptr[-1]
    parts = batch.values[a:b].astype(float), batch.indices[a:b].astype(np.int32), batch.indptr - a
    return csr_array(parts, shape=(batch.rows, width))


def dense(batch: Batch, width: int) -> Matrix:
    matrix: Matrix = matrix_of(batch, width).toarray()
    return matrix


def cut(batch: Batch, points: Iterable[int]) -> list[Batch]:
    edges = [0, *sorted(points), batch.rows]
    return [batch.slice(a, b) for a, b in zip(edges, edges[1:], strict=False)]


def values_of(batch: Batch) -> Float32s:
    """Those that belong to its rows."""
    return batch.values[batch.indptr[0] : batch.indptr[-1]].copy()


def bits(scaling: Scaling) -> dict[str, tuple[str, bytes]]:
    return {name: (array.dtype.str, array.tobytes()) for name, array in scaling.state().items()}


def counted(kind: str, *batches: Batch) -> Scaling:
    scaling = Scaling(kind)
    for batch in batches:
        scaling.see(batch)
    scaling.freeze()
    return scaling


# What the factors are.


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_factors_are_those_of_scikit_learn(seed: int, weighted: bool) -> None:
    batch = made_up(seed=seed, weighted=weighted)
    matrix = matrix_of(batch, 32)
    standard = StandardScaler(with_mean=False).fit(matrix, sample_weight=batch.weights)
    standard.scale_[7] = 250.0  # a constant, which scikit-learn leaves as it is
    weighty = matrix[np.flatnonzero(batch.weights > 0)]
    for kind, fitted in (("maxabs", MaxAbsScaler().fit(weighty)), ("standard", standard)):
        scaling = counted(kind, batch)
        np.testing.assert_allclose(scaling.factors(32), 1.0 / fitted.scale_, rtol=1e-6)
        np.testing.assert_allclose(
            dense(scaling.apply(batch), 32), fitted.transform(matrix).toarray(), rtol=1e-6, atol=1e-30
        )


@BOTH
def test_a_feature_without_a_size_has_factor_one(kind: str) -> None:
    factors = counted(kind, made_up()).factors(32)
    assert factors[3] == factors[11] == factors[31] == 1.0
    assert factors[7] == np.float32(1.0 / 250.0)  # a constant
    assert Scaling(kind).factors(3).tolist() == counted(kind).factors(3).tolist() == [1.0] * 3
    nothing = counted(kind, batch_of([{0: 5.0}, {2: 1.0}], [0.0, 0.0]))
    assert nothing.factors(4).tolist() == [1.0] * 4


@BOTH
def test_a_row_of_weight_two_is_the_row_twice_and_one_of_weight_zero_is_not_there(kind: str) -> None:
    rows: list[Row] = [{0: 1.0, 1: -3.0}, {1: 2.0}, {0: 4.0}, {2: 1e9}]
    once = counted(kind, batch_of(rows, [1.0, 2.0, 1.0, 0.0]))
    np.testing.assert_allclose(
        once.factors(3), counted(kind, batch_of([rows[i] for i in (0, 1, 1, 2)])).factors(3), rtol=1e-7
    )
    assert bits(once) == bits(counted(kind, batch_of([*rows, rows[0]], [1.0, 2.0, 1.0, 0.0, 0.0])))
    running, without = Scaling(kind), Scaling(kind)
    running.apply(batch_of(rows[3:], [0.0]))
    for row in rows[:3]:
        assert (
            values_of(running.apply(batch_of([row]))).tobytes() == values_of(without.apply(batch_of([row]))).tobytes()
        )
        running.apply(batch_of([{0: 77.0, 2: 1.0}], [0.0]))
    assert running.factors(3).tobytes() == without.factors(3).tobytes()


# Scaling while counting.


def running_twin(kind: str, batch: Batch, width: int) -> Matrix:
    """Every row divided by the sizes over all rows up to it, in double, from the start each time."""
    matrix, weights = dense(batch, width), batch.weights.astype(float)
    out = np.empty_like(matrix)
    for i in range(batch.rows):
        seen, c = matrix[: i + 1], weights[: i + 1]
        if kind == "maxabs":
            size = np.abs(seen[c > 0]).max(axis=0, initial=0.0)
        else:
            total = max(c.sum(), 1e-300)
            mean = c @ seen / total
            size = np.sqrt(c @ (seen - mean) ** 2 / total)
            constant = (seen[c > 0] == seen[c > 0][:1]).all(axis=0)
            size = np.where(constant, np.abs(seen[c > 0]).max(axis=0, initial=0.0), size)
        out[i] = matrix[i] / np.where(size > 0, size, 1.0)
    return out


@BOTH
@pytest.mark.parametrize("seed", range(2))
def test_each_row_is_scaled_by_what_is_known_with_it(kind: str, seed: int) -> None:
    batch = made_up(150, seed=seed)
    scaled = Scaling(kind).apply(batch)
    np.testing.assert_allclose(dense(scaled, 30), running_twin(kind, batch, 30), rtol=1e-5)


@BOTH
def test_after_the_last_row_running_factors_are_those_of_counting(kind: str) -> None:
    batch = made_up()
    running = Scaling(kind)
    running.apply(batch)
    factors, expected = running.factors(30), counted(kind, batch).factors(30)
    assert factors.tobytes() == expected.tobytes()
    running.freeze()
    assert running.frozen and running.factors(30).tobytes() == factors.tobytes()


def test_a_feature_that_has_not_varied_yet_comes_as_one_and_its_factor_says_so() -> None:
    running = Scaling("standard")
    first = running.apply(batch_of([{0: 5000.0, 1: -0.001, 2: 0.0}, {0: 5000.0, 1: -0.001}]))
    assert first.values.tolist() == pytest.approx([1.0, -1.0, 0.0, 1.0, -1.0])
    assert running.factors(3).tolist() == pytest.approx([1 / 5000, 1000.0, 1.0])
    assert counted("standard", first).factors(3).tolist() == [1.0, 1.0, 1.0]
    running.apply(batch_of([{1: -0.001}]))
    assert running.factors(3).tolist() == pytest.approx([1 / (5000 * math.sqrt(2) / 3), 1000.0, 1.0])


@BOTH
@given(st.lists(st.integers(0, 60), max_size=8), st.integers(0, 5))
@examples(40)
def test_cuts_change_nothing(kind: str, points: list[int], seed: int) -> None:
    batch = made_up(60, 12, seed)
    whole, pieces = Scaling(kind), Scaling(kind)
    expected = values_of(whole.apply(batch))
    found = np.concatenate([values_of(pieces.apply(piece)) for piece in cut(batch, points)])
    assert found.tobytes() == expected.tobytes() and bits(pieces) == bits(whole)
    assert bits(counted(kind, *cut(batch, points))) == bits(counted(kind, batch))


@BOTH
def test_rows_come_in_the_order_given(kind: str) -> None:
    batch = made_up(50)
    order = np.random.default_rng(1).permutation(50)
    ordered, one_by_one = Scaling(kind), Scaling(kind)
    scaled = ordered.apply(batch, order)
    for row in order.tolist():
        alone = one_by_one.apply(batch.slice(row, row + 1))
        assert values_of(alone).tobytes() == values_of(scaled.slice(row, row + 1)).tobytes()
    assert bits(ordered) == bits(one_by_one)
    ordered.freeze()
    assert values_of(ordered.apply(batch, order)).tobytes() == values_of(ordered.apply(batch)).tobytes()


@pytest.mark.parametrize("mean", [0.0, 1e3, 1e6, -4e6])
def test_a_small_deviation_around_a_large_mean_is_not_lost(mean: float) -> None:
    rng = np.random.default_rng(0)
    values = (mean + rng.normal(size=30_000)).astype(np.float32)
    absent = rng.random(len(values)) < 0.5
    batch = batch_of(
        [{0: float(x)} if gone else {0: float(x), 1: float(x)} for x, gone in zip(values, absent, strict=True)]
    )
    expected = [np.std(values.astype(float)), np.std(np.where(absent, 0.0, values.astype(float)))]
    for scaling in (counted("standard", batch), Scaling("standard")):
        if not scaling.frozen:
            scaling.apply(batch)
        np.testing.assert_allclose(1.0 / scaling.factors(2), expected, rtol=3e-7)


@BOTH
def test_the_same_source_runs_as_plain_python(kind: str) -> None:
    batch, order = made_up(40, 12), np.arange(40)
    columns, dtype = KINDS[kind].columns, "float32" if kind == "maxabs" else "float64"
    results = []
    for plain in (False, True):
        count, run, factor, scale = (
            getattr(function, "py_func", function) if plain else function
            for function in (module.count_pass, module.running_pass, module.factors_pass, module.scale_pass)
        )
        seen, going = np.zeros(columns * 12, dtype), np.zeros(columns * 12, dtype)
        out, factors, frozen = (np.zeros(size, np.float32) for size in (batch.features, 12, batch.features))
        with np.errstate(all="ignore"):
            totals = [
                float(count(batch, KINDS[kind], seen, 0.0, 11)),
                float(run(batch, order, KINDS[kind], going, 0.0, out, 11)),
            ]
            factor(KINDS[kind], seen, totals[0], factors)
            scale(batch.indices, batch.values, 0, batch.features, factors[:9], frozen)
        results.append([totals, *(array.tobytes() for array in (seen, going, out, factors, frozen))])
    assert results[0] == results[1]


@pytest.mark.parametrize("kind", ["maxabs", "standard"])
@pytest.mark.parametrize("counted_first", [True, False])
def test_features_beyond_the_dense_ones_are_left_as_they_are(kind: str, counted_first: bool) -> None:
    batch = made_up(40, 12)
    scaling, whole = Scaling(kind, dim=12, dense=5), Scaling(kind, dim=12)
    for each in (scaling, whole):
        if counted_first:
            each.see(batch)
            each.freeze()
    found, expected = (each.apply(batch).values.copy() for each in (scaling, whole))
    dense = batch.indices < 5
    assert np.array_equal(found[dense], expected[dense]) and np.array_equal(found[~dense], batch.values[~dense])
    assert np.array_equal(scaling.factors(12), np.where(np.arange(12) < 5, whole.factors(12), 1.0).astype(np.float32))


# Numbers at the edge.

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
WEIGHTS = st.sampled_from([1.0, 1.0, 0.5, 3.0, 0.0, 1e-38, 1e30])


@BOTH
@examples(150)
@given(st.lists(st.tuples(st.dictionaries(st.integers(0, 3), FLOATS), WEIGHTS), min_size=1, max_size=6))
def test_scaled_values_are_finite(kind: str, rows: list[tuple[Row, float]]) -> None:
    batch = batch_of([row for row, _ in rows], [weight for _, weight in rows])
    running = Scaling(kind)
    for scaled in (running.apply(batch), counted(kind, batch).apply(batch)):
        assert np.isfinite(scaled.values).all()
        if kind == "maxabs":
            weighty = np.repeat(batch.weights > 0, np.diff(batch.indptr))
            assert (np.abs(scaled.values[weighty]) <= 1.0).all()
    for factors in (running.factors(5), counted(kind, batch).factors(5)):
        assert np.isfinite(factors).all() and (factors > 0).all()


@pytest.mark.parametrize("size", [1e-45, 3e-39, 1e-38, 1e-31, 1e-20, 1.0, 1e20, 8e37, 1e38, 3.4028235e38])
def test_the_largest_value_becomes_one_unless_it_is_tiny(size: float) -> None:
    batch = batch_of([{0: size}, {0: -size / 2}])
    scaled = counted("maxabs", batch).apply(batch).values
    expected = min(1.0, float(np.float32(size)) * LARGEST_FACTOR)
    assert scaled[0] <= 1.0 and scaled[0] == pytest.approx(expected, rel=1e-6)


def test_no_rounding_makes_the_largest_value_larger_than_one() -> None:
    rng = np.random.default_rng(0)
    sizes = (2.0 ** rng.uniform(-149, 128, 3000)).astype(np.float32)
    sizes[:1000] = 2.0 ** rng.uniform(125.5, 127.99, 1000)  # their factors have few bits
    batch = batch_of([dict(enumerate(sizes.tolist()))])
    for scaled in (counted("maxabs", batch).apply(batch), Scaling("maxabs").apply(batch)):
        assert (scaled.values <= 1.0).all() and (scaled.values[sizes > 1e-30] > 1.0 - 1e-6).all()


def test_factors_of_other_data_do_not_make_values_infinite() -> None:
    scaling = Scaling.from_factors("maxabs", np.array([1e30, 1.0], np.float32))
    largest = float(np.finfo(np.float32).max)
    assert scaling.apply(batch_of([{0: 1e20}, {0: -1e20}, {1: 2.0}])).values.tolist() == [largest, -largest, 2.0]


# Memory: of the batch, of its values, of features.


def read_only(batch: Batch) -> Batch:
    for array in batch:
        array.setflags(write=False)
    return batch


@BOTH
def test_the_batch_it_is_given_is_not_written_to(kind: str) -> None:
    batch = read_only(made_up())
    before = batch.copy()
    running = Scaling(kind)
    running.see(batch)
    for _ in range(2):
        scaled = running.apply(batch)
        assert scaled.values.flags.writeable and not np.shares_memory(scaled.values, batch.values)
        assert all(getattr(scaled, name) is getattr(batch, name) for name in ("indptr", "indices", "labels", "weights"))
        assert all(a.tobytes() == b.tobytes() for a, b in zip(batch, before, strict=True))
        running.freeze()


@BOTH
@pytest.mark.parametrize("frozen", [False, True])
def test_a_slice_is_scaled_where_it_stands(kind: str, frozen: bool) -> None:
    batch = made_up(40)
    middle, alone = batch.slice(10, 20), batch.take(10, 20)
    one, other = Scaling(kind), Scaling(kind)
    if frozen:
        one, other = counted(kind, batch), counted(kind, batch)
    assert dense(one.apply(middle), 30).tobytes() == dense(other.apply(alone), 30).tobytes()
    assert one.apply(middle).copy().values.tobytes() == other.apply(alone).values.tobytes()


@BOTH
def test_values_live_in_one_buffer_that_grows(kind: str) -> None:
    scaling = counted(kind, made_up())
    large, small = made_up(50), made_up(5)
    first = scaling.apply(large).values
    assert np.shares_memory(first, scaling.apply(small).values)
    assert np.shares_memory(first, scaling.apply(large).values)
    assert scaling.apply(made_up(500)).values.tobytes() == scaling.apply(made_up(500)).values.tobytes()


@BOTH
def test_scaled_is_apply_in_an_array_of_its_own(kind: str) -> None:
    """Any thread may ask, while others still use what they were given."""
    batch = read_only(made_up(80))
    scaling = counted(kind, batch.slice(0, 60))  # features of the rest may be unknown
    pieces = [batch, batch.slice(20, 50), batch.slice(70, 80), batch.slice(5, 5), empty_batch()]
    kept = [scaling.scaled(piece) for piece in pieces]
    for piece, scaled in zip(pieces, kept, strict=True):
        assert values_of(scaled).tobytes() == values_of(scaling.apply(piece)).tobytes()
        assert all(getattr(scaled, name) is getattr(piece, name) for name in ("indptr", "indices", "labels", "weights"))
        assert not np.shares_memory(scaled.values, scaling.apply(piece).values)
    assert not any(np.shares_memory(a.values, b.values) for a in kept for b in kept if a is not b)
    with pytest.raises(AssertionError):
        Scaling(kind).scaled(batch)


@BOTH
def test_nothing_to_scale(kind: str) -> None:
    for scaling in (Scaling(kind), counted(kind, empty_batch())):
        assert scaling.apply(empty_batch()).rows == 0
        bare = scaling.apply(batch_of([{}, {}]))
        assert bare.rows == 2 and bare.features == 0


@BOTH
def test_it_goes_on_where_a_state_was_taken(kind: str) -> None:
    first, second = made_up(40, 20, 1), made_up(40, 30, 2)
    for running in (True, False):
        original = Scaling(kind)
        (original.apply if running else original.see)(first)
        state, before = original.state(), bits(original)
        resumed = Scaling(kind)
        resumed.restore(state)
        assert bits(resumed) == before and resumed.width == original.width and not resumed.frozen
        assert resumed.factors(20).tobytes() == original.factors(20).tobytes()
        assert values_of(resumed.apply(second)).tobytes() == values_of(original.apply(second)).tobytes()
        assert bits(resumed) == bits(original)
        assert all(np.array_equal(state[name], again) for name, again in _loaded(before).items())  # it was a copy
        original.freeze()
        resumed.restore(original.state())
        assert resumed.frozen and bits(resumed) == bits(original)
        assert values_of(resumed.apply(second)).tobytes() == values_of(original.apply(second)).tobytes()


def _loaded(state: dict[str, tuple[str, bytes]]) -> dict[str, Any]:
    return {name: np.frombuffer(content, dtype) for name, (dtype, content) in state.items()}


def test_known_factors_are_used_as_they_are_and_others_are_one() -> None:
    factors = np.array([2.0, 0.5], np.float32)
    scaling = Scaling.from_factors("standard", factors)
    factors[:] = 9.0
    assert scaling.frozen and scaling.kind == "standard" and scaling.width == 2
    assert scaling.apply(batch_of([{0: 1.0, 1: 1.0, 2: 1.0, 4_000_000_000: 3.0}])).values.tolist() == [
        2.0,
        0.5,
        1.0,
        3.0,
    ]
    assert scaling.factors(4).tolist() == [2.0, 0.5, 1.0, 1.0] and scaling.factors(1).tolist() == [2.0]
    scaling.factors(2)[:] = 0.0
    assert scaling.factors(2).tolist() == [2.0, 0.5]
    scaling.freeze()
    with pytest.raises(AssertionError):
        scaling.see(batch_of([{0: 1.0}]))


@BOTH
def test_room_grows_with_the_largest_index(kind: str) -> None:
    grown, at_once = Scaling(kind), Scaling(kind, dim=5001)
    for width in (5, 1500, 5001):
        batch = batch_of([{j: float(j + 1) for j in range(0, width, 4)}, {width - 1: 2.5}])
        grown.see(batch)
        at_once.see(batch)
        assert grown.width == width
    assert grown.factors(5001).tobytes() == at_once.factors(5001).tobytes()


@BOTH
def test_more_than_the_memory_budget_is_refused_before_it_is_allocated(kind: str) -> None:
    each = Scaling(kind).bytes_for(1)
    assert each == {"maxabs": 8, "standard": 28}[kind]
    scaling = Scaling(kind, memory=10_000_000)
    scaling.see(batch_of([{5: 1.0}]))
    says = (
        f"index 4294967294: features.scale {kind} would need {4294967295 * each / 1e6:,.0f} MB, but the memory budget "
        f"leaves 10 MB; set features.hash_bits: {20 if kind == 'maxabs' else 18} "
    )
    before = bits(scaling)
    for use in (scaling.see, scaling.apply):
        with pytest.raises(DataError, match=says.replace("(", r"\(")):
            use(batch_of([{2**32 - 2: 1.0}]))
    assert bits(scaling) == before
    bits_that_fit = 20 if kind == "maxabs" else 18
    Scaling(kind, dim=1 << bits_that_fit, memory=10_000_000)
    with pytest.raises(ConfigError, match=rf"2000000 features: features.scale {kind} would need"):
        Scaling(kind, dim=2_000_000, memory=10_000_000)


@BOTH
def test_a_tight_budget_is_used_to_the_end(kind: str) -> None:
    scaling = Scaling(kind)
    scaling.memory = scaling.bytes_for(3000)  # 4096, the usual room, is too much
    scaling.see(batch_of([{2999: 1.0}]))
    with pytest.raises(DataError, match="index 3000"):
        scaling.see(batch_of([{3000: 1.0}]))


@BOTH
def test_dim_is_the_limit(kind: str) -> None:
    scaling = Scaling(kind, dim=10)
    for _ in range(2):
        scaling.apply(batch_of([{9: 1.0}]))
        with pytest.raises(DataError, match=r"index 10 is out of range: features\.dim is 10"):
            scaling.apply(batch_of([{10: 1.0}]))
        scaling.freeze()
    assert scaling.width == 10


# Into the model.


@BOTH
def test_folded_weights_score_as_written_what_learned_weights_score_scaled(kind: str) -> None:
    batch = made_up()
    scaling = counted(kind, batch)
    learned = np.random.default_rng(5).normal(size=32).astype(np.float32)
    plain = Model(learned, 0.5, [-1, 1], "hinge")
    model = Model(scaling.fold(learned), 0.5, [-1, 1], "hinge", scale=scaling.factors(32))
    size = np.abs(dense(scaling.apply(batch), 32)) @ np.abs(learned)
    np.testing.assert_array_less(np.abs(model.scores(batch) - plain.scores(scaling.apply(batch))), 3e-7 * (size + 1.0))
    np.testing.assert_allclose(model.learned_weights(), learned, rtol=2e-7)
    assert model.scale is not None
    again = Scaling.from_factors(kind, model.scale)
    assert values_of(again.apply(batch)).tobytes() == values_of(scaling.apply(batch)).tobytes()


def test_folded_weights_are_finite() -> None:
    scaling = Scaling.from_factors("maxabs", np.array([LARGEST_FACTOR, 1e-38, 2.0], np.float32))
    folded = scaling.fold(np.array([-1e20, 1e-20, 3.0, 4.0], np.float32))
    assert folded.tolist() == [float(np.finfo(np.float32).min), 0.0, 6.0, 4.0]
    assert np.isfinite(scaling.fold(np.array([1e8], np.float32))).all()
