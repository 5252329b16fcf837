"""What the first rows tell: warnings that come once each, wherever rows are cut and runs are stopped."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from streamsvm import first_rows as room
from streamsvm.batch import Batch
from streamsvm.first_rows import FirstRows


def rows(labels: list[float], values: list[float] | None = None) -> Batch:
    """Row i has index 10 + i alone."""
    count = len(labels)
    return Batch(
        np.arange(count + 1, dtype=np.int64),
        np.arange(10, 10 + count, dtype=np.uint32),
        np.array([1.0] * count if values is None else values, np.float32),
        np.array(labels, np.float32),
        np.ones(count, np.float32),
    )


def told(batch: Batch, points: list[int], stops: set[int] = frozenset(), **how: bool) -> list[str]:
    """The warnings of a pass; after each of the pieces in `stops` another watch takes over."""
    options = {"shuffled": False, "scaled": False} | how
    notes: list[str] = []
    watch = FirstRows(notes.append, **options)
    edges = [0, *sorted(points), batch.rows]
    for place, (a, b) in enumerate(zip(edges, edges[1:], strict=False)):
        watch.look(batch.slice(a, b))
        if place in stops:
            state = json.loads(json.dumps(watch.state(), allow_nan=False))
            watch = FirstRows(notes.append, **options)
            watch.restore(state)
            assert watch.state() == state
    watch.end()
    return notes


def test_one_class_in_the_first_thousand_rows() -> None:
    sorted_rows = rows([0.0] * 1000 + [1.0] * 10)
    (note,) = told(sorted_rows, [300, 999])
    assert note.startswith("warning: the first 1000 rows have one class; ") and "--shuffle 100000" in note
    (note,) = told(sorted_rows, [], shuffled=True)
    assert note.endswith("use a larger --shuffle")
    assert told(rows([0.0] * 999 + [1.0] * 10), [300, 999]) == []


def test_rows_sorted_by_class() -> None:
    (note,) = told(rows([0.0] * 500 + [1.0] * 480 + [2.0] * 100), [300, 999])
    assert note.startswith("warning: the first 1000 rows are sorted by class") and "--shuffle 100000" in note
    assert told(rows([0.0] * 970 + [1.0] * 30), []) == []  # a rare class may come in one run
    assert told(rows([float(i // 40 % 2) for i in range(1000)]), []) == []  # in runs, but in many


def test_one_class_in_all_rows() -> None:
    (note,) = told(rows([1.0] * 7), [3])
    assert note == "warning: all 7 rows have one class; there is nothing to tell apart"
    assert told(rows([1.0]), []) == told(rows([]), []) == []


def test_large_values() -> None:
    values = [1.0] * 20
    values[7], values[9] = 2000.0, -5000.0
    (note,) = told(rows([0.0, 1.0] * 10, values), [8])
    assert note.startswith("warning: index 17 has values as large as 2e+03; ") and "--scale maxabs" in note
    (note,) = told(rows([0.0, 1.0] * 10, values), [])
    assert note.startswith("warning: index 19 has values as large as 5e+03; ")
    assert told(rows([0.0, 1.0] * 10, values), [], scaled=True) == []
    late = [1.0] * 1000 + [5000.0]
    assert told(rows([0.0] + [1.0] * 1000, late), [500]) == []


@examples(300)
@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.0, 0.0, 1.0, np.nan]), st.sampled_from([1.0, 1.0, 3000.0])), max_size=30
    ),
    st.integers(0, 30),
    st.lists(st.integers(0, 30), max_size=6),
    st.sets(st.integers(0, 6)),
    st.booleans(),
)
def test_after_a_stop_no_warning_is_lost_and_none_comes_twice(
    content: list[tuple[float, float]], same: int, points: list[int], stops: set[int], scaled: bool
) -> None:
    content[:same] = [(0.0, value) for _, value in content[:same]]  # one class at first
    batch = rows([label for label, _ in content], [value for _, value in content])
    points = [min(point, batch.rows) for point in points]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "FIRST_ROWS", 12)
        straight = told(batch, points, scaled=scaled)
        assert told(batch, points, stops, scaled=scaled) == straight
        assert told(batch, points, set(range(10)), scaled=scaled) == straight
    assert len(straight) == len(set(straight)) <= 2
