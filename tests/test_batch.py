"""Batches: slices share, copies do not, and concatenation undoes both."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from libsvm_twin import rows_of

from streamsvm.batch import Batch, concatenate, empty_batch

rows = st.lists(
    st.tuples(
        st.sampled_from([-1.0, 0.0, 1.0]),
        st.dictionaries(
            st.integers(0, 2**32 - 1), st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=5
        ),
        st.floats(0, 4, width=32),
    ),
    max_size=8,
)


def make(rows) -> Batch:
    """A batch of (label, {index: value}, weight)."""
    pairs = [sorted(features.items()) for _, features, _ in rows]
    flat = [pair for row in pairs for pair in row]
    return Batch(
        np.cumsum([0] + [len(row) for row in pairs]).astype(np.int64),
        np.array([index for index, _ in flat], np.uint32),
        np.array([value for _, value in flat], np.float32),
        np.array([label for label, _, _ in rows], np.float32),
        np.array([weight for _, _, weight in rows], np.float32),
    )


@given(rows, st.data())
def test_slices_and_copies(rows, data):
    batch = make(rows)
    start = data.draw(st.integers(0, batch.rows))
    stop = data.draw(st.integers(start, batch.rows))
    expected = rows_of(batch)[start:stop]
    part, taken = batch.slice(start, stop), batch.take(start, stop)
    for found in (part, taken, part.copy(), part.slice(0, part.rows), part.take(0, part.rows)):
        assert rows_of(found) == expected
        assert found.rows == stop - start
        assert found.features == sum(len(features) for _, features, _ in rows[start:stop])
        assert found.width == max([index + 1 for _, features, _ in rows[start:stop] for index in features], default=0)
    assert taken.indptr[0] == part.copy().indptr[0] == 0 and len(taken.indices) == taken.features
    for array in (*batch.labels[None], batch.indices, batch.values):
        array[:] = 77
    assert rows_of(taken) == expected


@given(st.lists(rows, max_size=4))
def test_concatenation(parts):
    batches = [make(part) for part in parts]
    whole = concatenate(batches)
    assert rows_of(whole) == rows_of(*batches) == rows_of(make([row for part in parts for row in part]))
    assert rows_of(concatenate([batch.slice(1, batch.rows) for batch in batches if batch.rows])) == [
        row for batch in batches for row in rows_of(batch)[1:]
    ]
    assert not any(np.shares_memory(whole.indices, batch.indices) for batch in batches)


def test_nothing():
    assert rows_of(empty_batch(), concatenate([]), concatenate([empty_batch()])) == []
    assert (empty_batch().rows, empty_batch().features, empty_batch().width) == (0, 0, 0)


def test_width_reaches_two_to_the_32():
    assert make([(1.0, {}, 1.0), (1.0, {2**32 - 1: 1.0, 5: 1.0}, 1.0), (1.0, {3: 1.0}, 1.0)]).width == 2**32
