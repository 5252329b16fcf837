"""Rows that are scored before they are learned from: each once, in their order, by weights that have not seen them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from streamsvm import progressive as room
from streamsvm.batch import Batch, Int64s
from streamsvm.progressive import Progressive


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "FIRST", 16)
    monkeypatch.setattr(room, "MOST", 7)
    monkeypatch.setattr(room, "FEATURES", 25)


class Counting:
    """A solver whose every weight is the number of rows that it has learned; row i has the label i % 2."""

    columns = 1

    def __init__(self) -> None:
        self.learned: list[int] = []

    def few_scores(self, batch: Batch) -> Any:
        return np.add.reduceat(len(self.learned) * batch.values.astype(float), batch.indptr[:-1])

    def teach(self, batch: Batch, order: Int64s | None) -> None:
        rows = range(batch.rows) if order is None else order.tolist()
        self.learned += [int(batch.indices[batch.indptr[i]]) for i in rows]


def rows_of(count: int, weights: list[float] | None = None, lengths: int = 1) -> Batch:
    """Row i has the index i, or several from there on, with values that add up to 1."""
    indices = np.concatenate([np.arange(i, i + lengths) for i in range(count)] or [np.empty(0)]).astype(np.uint32)
    return Batch(
        np.arange(count + 1, dtype=np.int64) * lengths,
        indices,
        np.full(count * lengths, 1.0 / lengths, np.float32),
        (np.arange(count) % 2).astype(np.float32),
        np.ones(count, np.float32) if weights is None else np.array(weights, np.float32),
    )


def fed(batch: Batch, points: list[int], stops: frozenset[int] = frozenset()) -> tuple[Counting, Progressive]:
    """All rows, cut at some points; after the pieces in `stops` another takes over what is kept."""
    solver, watch = Counting(), Progressive(many=False)
    edges = [0, *sorted(points), batch.rows]
    for number, (a, b) in enumerate(zip(edges, edges[1:], strict=False)):
        for part, order in watch.pieces(batch.slice(a, b), np.arange(b - a), solver):
            solver.teach(part, order)
        if number in stops:
            state, watch = watch.state(), Progressive(many=False)
            watch.restore(state)
    for part, order in watch.flush(solver):
        solver.teach(part, order)
    return solver, watch


def test_every_row_is_learned_once_in_its_order() -> None:
    for count in (0, 1, 15, 16, 17, 100, 500):
        solver, _ = fed(rows_of(count), [])
        assert solver.learned == list(range(count))


def test_a_score_is_that_of_weights_that_know_the_rows_before_the_window() -> None:
    solver, watch = fed(rows_of(300), [])
    scores = watch.sample.scores().tolist()
    starts = sorted(set(scores))
    assert starts[0] == 16.0 and all(start >= 16 for start in starts)
    assert starts[:6] == [16.0, 18.0, 20.0, 22.0, 24.0, 27.0]  # an eighth more each time
    counts = [scores.count(start) for start in starts]
    assert max(counts) == 7 and counts[0] == 2
    assert len(solver.learned) == 300


@examples(150)
@given(
    st.integers(0, 200),
    st.lists(st.integers(0, 200), max_size=8),
    st.frozensets(st.integers(0, 8)),
    st.integers(1, 9),
    st.randoms(use_true_random=False),
)
def test_where_rows_are_cut_and_runs_are_stopped_changes_nothing(
    count: int, points: list[int], stops: frozenset[int], length: int, random: Any
) -> None:
    weights = [random.choice([1.0, 0.0, 2.0]) for _ in range(count)]
    batch = rows_of(count, weights, length)
    whole, expected = fed(batch, [])
    solver, watch = fed(batch, [min(point, count) for point in points], stops)
    assert solver.learned == whole.learned == list(range(count))
    for name in ("scores", "codes", "weights"):
        assert np.array_equal(getattr(watch.sample, name)(), getattr(expected.sample, name)())
    assert np.array_equal(watch.recent().scores(), expected.recent().scores())


def test_rows_of_weight_zero_do_not_count() -> None:
    plain = fed(rows_of(200), [])[1]
    weights = [w for _ in range(200) for w in (0.0, 1.0)]
    padded = rows_of(400, weights)._replace(labels=(np.arange(400) // 2 % 2).astype(np.float32))
    padded = padded._replace(indices=np.arange(400, dtype=np.uint32) // 2)
    _, watch = fed(padded, [77])
    assert np.array_equal(watch.sample.codes(), plain.sample.codes())


def test_windows_of_long_rows_are_short() -> None:
    _, watch = fed(rows_of(100, lengths=20), [])
    counts = np.unique(watch.sample.scores(), return_counts=True)[1]
    assert counts.max() == 2  # the second row has more than the 25 features


def test_the_first_windows_are_forgotten() -> None:
    _, watch = fed(rows_of(2000), [])
    recent = watch.recent()
    assert 0 < recent.rows < watch.sample.rows
    assert recent.scores().min() >= 2000 // 8 - 7 and watch.sample.scores().min() == 16
