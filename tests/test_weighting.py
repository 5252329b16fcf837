"""Class weights: the factors of a slow twin and of a peer, however rows are cut, saved or weighed before."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tiers import examples

from streamsvm.batch import Batch
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.weighting import ClassWeights


def batch_of(codes, weights=None) -> Batch:
    """Rows without features."""
    given = np.ones(len(codes)) if weights is None else weights
    return Batch(
        np.zeros(len(codes) + 1, np.int64),
        np.empty(0, np.uint32),
        np.empty(0, np.float32),
        np.array(codes, np.float32),
        np.array(given, np.float32),
    )


def running_twin(codes, weights, classes) -> list[np.float32]:
    """The definition: every row looks back over all rows so far."""
    found = []
    for i, code in enumerate(codes):
        counts = [0.0] * classes
        total = 0.0
        for k, c in zip(codes[: i + 1], weights[: i + 1], strict=True):
            counts[k] += c
            total += c
        seen = sum(count > 0 for count in counts)
        c = weights[i]
        found.append(np.float32(c * (total / (seen * counts[code])) if c else 0.0))
    return found


singles = st.sampled_from([0.0, 1.0, 1.0, 2.0, 0.1, 1e-30, 1e20]).map(lambda x: float(np.float32(x))) | st.floats(
    0, 1000, width=32
)
rows = st.integers(1, 4).flatmap(
    lambda classes: st.tuples(
        st.just(classes),
        st.lists(st.tuples(st.integers(0, classes - 1), singles), max_size=40),
        st.lists(st.integers(0, 40)),
    )
)


def cut(batch: Batch, points) -> list[Batch]:
    edges = [0, *sorted(min(point, batch.rows) for point in points), batch.rows]
    return [batch.slice(start, stop) for start, stop in zip(edges, edges[1:], strict=False)]


# Running counts.


@examples(200)
@given(rows)
def test_running_counts_agree_with_their_definition_however_rows_are_cut(made):
    classes, pairs, points = made
    codes, weights = [k for k, _ in pairs], [c for _, c in pairs]
    batch = batch_of(codes, weights)
    expected = np.array(running_twin(codes, weights, classes), np.float32).tobytes()
    for parts in ([batch], cut(batch, points), cut(batch, range(batch.rows))):
        balanced = ClassWeights.balanced(classes=classes)
        assert balanced.running
        found = np.concatenate([balanced.apply(part).weights for part in parts])
        assert found.dtype == np.float32 and found.tobytes() == expected


@given(rows)
@example((2, [(0, 1e20), (1, 5000.0), (1, 5000.0), (1, 5000.0)], [1, 2, 3]))  # sums of counts are rounded otherwise
def test_a_run_that_is_saved_goes_on_as_if_nothing_had_happened(made):
    classes, pairs, points = made
    batch = batch_of([k for k, _ in pairs], [c for _, c in pairs])
    once = ClassWeights.balanced(classes=classes)
    expected = once.apply(batch).weights.tobytes()
    kept = ClassWeights.balanced(classes=classes)
    found = b""
    for part in cut(batch, points):
        state = kept.state()
        other = ClassWeights.balanced(classes=classes)
        other.restore(state)
        spoilt = ClassWeights.balanced(classes=classes)
        spoilt.restore(state)
        spoilt.apply(batch_of([0], [77.0]))  # what is done with a restored one is nobody else's business
        assert all((state[name] == array).all() for name, array in kept.state().items())
        found += other.apply(part).weights.tobytes()
        kept = other
    assert found == expected
    assert {name: array.tobytes() for name, array in kept.state().items()} == {
        name: array.tobytes() for name, array in once.state().items()
    }


@examples(60)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_unit_weights_against_scikit_learn(codes):
    """Totals: its factors for the whole. Running: its factors for the rows so far. Both to the last bit."""
    from sklearn.utils.class_weight import compute_class_weight

    def peer(labels):
        there = np.unique(labels)
        return dict(zip(there.tolist(), compute_class_weight("balanced", classes=there, y=labels), strict=True))

    counted = ClassWeights.balanced([codes.count(k) for k in range(4)])
    assert not counted.running
    whole = peer(codes)
    assert counted.apply(batch_of(codes)).weights.tolist() == [np.float32(whole[k]) for k in codes]
    found = ClassWeights.balanced(classes=4).apply(batch_of(codes)).weights.tolist()
    assert found == [np.float32(peer(codes[: i + 1])[k]) for i, k in enumerate(codes)]


def test_what_was_saved_stays_as_it_was():
    balanced = ClassWeights.balanced()
    balanced.apply(batch_of([0, 1]))
    state = balanced.state()
    balanced.apply(batch_of([0, 1]))
    assert state["running"].tolist() == [1, 1, 2]


def test_one_class_alone_has_factor_one_until_another_comes():
    balanced = ClassWeights.balanced()
    assert balanced.apply(batch_of([1, 1, 1])).weights.tolist() == [1, 1, 1]
    assert balanced.apply(batch_of([0, 1])).weights.tolist() == [2, 0.625]  # 4 / (2 * 1), 5 / (2 * 4)


def test_a_row_of_weight_two_counts_as_the_row_given_twice():
    heavy, twice = ClassWeights.balanced(), ClassWeights.balanced()
    heavy.apply(batch_of([0, 1, 0], [1, 2, 3]))
    twice.apply(batch_of([0, 1, 1, 0, 0, 0]))
    assert all((heavy.state()[name] == array).all() for name, array in twice.state().items())
    counted = ClassWeights.balanced([4, 2]).apply(batch_of([0, 1, 0], [1, 2, 3])).weights
    assert counted.tolist() == [0.75, 3, 2.25] and counted[[0, 2]].sum() == counted[1]


def test_rows_without_weight_change_nothing():
    balanced, other = ClassWeights.balanced(classes=3), ClassWeights.balanced(classes=3)
    assert balanced.apply(batch_of([2, 0, 1, 2, 0], [0, 1, 0, 0, 1])).weights.tolist() == [0, 1, 0, 0, 1]
    other.apply(batch_of([0, 0]))
    assert all((balanced.state()[name] == array).all() for name, array in other.state().items())


def test_counts_are_in_double():
    balanced = ClassWeights.balanced()
    balanced.apply(batch_of([0] + [1] * 10, [2**24] + [1.0] * 10))
    balanced.apply(batch_of([0] * 10))
    assert balanced.apply(batch_of([0])).weights[0] == np.float32((2**24 + 21) / (2 * (2**24 + 11)))
    assert balanced.state()["running"].tolist() == [2**24 + 11, 10, 2**24 + 21]


# Factors that are known.


def test_given():
    weights = ClassWeights.given([0.5, 3, 0])
    assert not weights.running
    assert weights.apply(batch_of([0, 1, 2, 1], [1, 2, 3, 0.1])).weights.tolist() == [
        0.5,
        6,
        0,
        np.float32(3 * np.float32(0.1)),
    ]
    assert weights.apply(batch_of([])).rows == 0


@given(st.lists(singles, max_size=30))
def test_factor_one_changes_nothing(weights):
    batch = batch_of([0] * len(weights), weights)
    assert ClassWeights.given([1.0]).apply(batch).weights.tobytes() == batch.weights.tobytes()


def test_products_are_rounded_once():
    """In single precision throughout, 0.1 * 0.7 would be another number."""
    found = ClassWeights.given([0.7]).apply(batch_of([0], [0.1])).weights[0]
    assert found == np.float32(float(np.float32(0.1)) * 0.7)
    thirds = ClassWeights.given([1 / 3]).apply(batch_of([0] * 1000, np.arange(1000) * 1.1)).weights
    expected = (np.arange(1000) * 1.1).astype(np.float32).astype(np.float64) / 3
    assert np.abs(thirds - expected).max() <= np.spacing(np.float32(400)) / 2


@given(st.lists(st.just(0.0) | st.floats(1e-30, 1e30), min_size=1, max_size=5))
def test_balanced_classes_weigh_the_same(totals):
    factors = ClassWeights.balanced(totals).state()["factors"]
    there = [k for k, total in enumerate(totals) if total > 0]
    for k, total in enumerate(totals):
        assert factors[k] * total == pytest.approx(sum(totals) / len(there) if total else 0.0)
        assert total or factors[k] == 0.0


def test_a_class_that_never_comes_is_no_class():
    assert ClassWeights.balanced([10, 0]).state()["factors"].tolist() == [1, 0]
    assert ClassWeights.balanced([0, 0]).state()["factors"].tolist() == [0, 0]
    assert ClassWeights.balanced([1, 3, 0]).state()["factors"].tolist() == [2, 2 / 3, 0]


@pytest.mark.parametrize("factors", [[-1, 1], [np.nan, 1], [1, np.inf], [0, 0], []])
def test_what_is_no_factor(factors):
    with pytest.raises(ConfigError, match="class weights must be finite, 0 or more, and not all 0: "):
        ClassWeights.given(factors)


# What is handed on.


@pytest.mark.parametrize(
    "weights", [ClassWeights.given([2, 3]), ClassWeights.balanced([1, 2]), ClassWeights.balanced()]
)
def test_the_batch_stays_as_it_was(weights):
    batch = batch_of([0, 1, 1], [1, 2, 3])
    batch.weights.flags.writeable = batch.labels.flags.writeable = False  # as those of a cache
    found = weights.apply(batch)
    assert batch.weights.tolist() == [1, 2, 3] and not np.shares_memory(found.weights, batch.weights)
    assert found.labels is batch.labels and found.indptr is batch.indptr and found.values is batch.values


@pytest.mark.parametrize("weights", [ClassWeights.given([2, 3]), ClassWeights.balanced()])
@pytest.mark.parametrize("code", [2.0, -1.0, np.nan, np.inf])
def test_what_is_no_class_code(weights, code):
    with pytest.raises(DataError, match="row 3 of a batch has class code .*, which has no class weight"):
        weights.apply(batch_of([0, 1, code, 1]))


def test_states_of_another_kind_are_refused():
    fixed, other = ClassWeights.given([2, 3]), ClassWeights.given([1, 1])
    other.restore(fixed.state())
    assert other.apply(batch_of([0, 1])).weights.tolist() == [2, 3]
    for mine, theirs in [
        (fixed, ClassWeights.balanced()),
        (ClassWeights.balanced(), fixed),
        (fixed, ClassWeights.given([1, 2, 3])),
        (ClassWeights.balanced(), ClassWeights.balanced(classes=3)),
    ]:
        with pytest.raises(ModelError, match="another kind"):
            mine.restore(theirs.state())


def test_classes_that_come_late_are_counted_from_then_on() -> None:
    grown, whole = ClassWeights.balanced(classes=2), ClassWeights.balanced(classes=4)
    rng = np.random.default_rng(3)
    for known in (2, 2, 3, 4, 4):
        count = 20
        batch = Batch(
            np.zeros(count + 1, np.int64), np.empty(0, np.uint32), np.empty(0, np.float32),
            rng.integers(0, known, count).astype(np.float32), np.ones(count, np.float32),
        )  # fmt: skip
        grown.admit(known)
        assert np.array_equal(grown.apply(batch).weights, whole.apply(batch).weights)
    np.testing.assert_allclose(grown.factors, whole.factors)
    given = ClassWeights.given([2.0, 0.5])
    given.admit(5)
    assert given.factors.tolist() == [2.0, 0.5]
