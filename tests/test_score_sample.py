"""The sample of scores against a plain list: cuts, growth, going on at any moment, another order of classes."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm import score_sample as room
from streamsvm.checkpoint import pack, unpack
from streamsvm.errors import ModelError
from streamsvm.score_sample import ScoreSample, room_for

sys.path.insert(0, str(Path(__file__).parent / "solvers"))
from made_rows import bits, spoil  # noqa: E402


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rings that are soon full: 12 rows of up to 3 scores, 9 of 4, 3 of many."""
    for name, value in {"NUMBERS": 36, "FEWEST": 3, "MOST": 12}.items():
        monkeypatch.setattr(room, name, value)
    yield


class Twin:
    """All rows in a list, from which those that count are taken when somebody asks."""

    def __init__(self, columns: int) -> None:
        self.columns, self.many = columns, columns > 1
        self.all: list[tuple[list[float], float, float]] = []

    def add(self, scores: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> None:
        if scores.ndim == 2:
            self.grow(max(scores.shape[1], 1 + max(codes[(weights > 0) & (codes == codes)].tolist(), default=0)))
        for row, code, weight in zip(scores, codes, weights, strict=True):
            if weight > 0 and code == code:
                self.all.append((np.atleast_1d(np.float32(row)).tolist(), float(code), float(weight)))

    def grow(self, columns: float) -> None:
        if not self.many and columns > 1:
            self.many = True
            self.all = [([-row[0], row[0]], code, weight) for row, code, weight in self.all]
        self.columns = max(self.columns, int(columns))

    def bits(self) -> Any:
        kept = self.all[-room_for(self.columns) :]
        scores = [row + [np.nan] * (self.columns - len(row)) for row, _, _ in kept]
        return bits(
            {
                "columns": self.columns,
                "many": self.many,
                "scores": np.array(scores, np.float32).reshape(len(kept), self.columns),
                "codes": np.array([code for _, code, _ in kept], np.float32),
                "weights": np.array([weight for _, _, weight in kept], np.float32),
            }
        )


def made_rows(rng: np.random.Generator, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    scores = rng.normal(size=rows if columns == 1 else (rows, columns))
    codes = rng.choice([*range(max(columns, 2)), np.nan], rows).astype(np.float32)
    return scores, codes, rng.choice([0.0, -0.0, -1.0, 0.5, 1.0, 3.0], rows).astype(np.float32)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 30)),
        st.tuples(st.just("grow"), st.integers(1, 14)),
        st.tuples(st.sampled_from(["clear", "resume"]), st.just(0)),
    ),
    max_size=12,
)


@pytest.mark.usefixtures("small")
@given(st.integers(1, 5), STEPS, st.integers(0, 1000))
def test_a_sample_is_the_end_of_a_list(columns: int, steps: list[tuple[str, int]], seed: int) -> None:
    sample, twin, rng = ScoreSample(columns), Twin(columns), np.random.default_rng(seed)
    for step, number in steps:
        if step == "add":
            rows = made_rows(rng, number, twin.columns)
            sample.add(*rows)
            twin.add(*rows)
        elif step == "grow":
            sample.grow(number)
            twin.grow(number)
        elif step == "clear":
            sample.clear()
            twin.all = []
        else:
            state = sample.state()
            sample = ScoreSample()
            sample.restore(state)
            spoil(state)
        assert bits(sample.state()) == twin.bits()
    assert sample.rows == len(sample.scores()) == len(sample.codes()) == len(sample.weights()) <= sample.room


@pytest.mark.usefixtures("small")
@given(st.integers(1, 5), st.lists(st.integers(0, 50), max_size=6), st.lists(st.integers(0, 50), max_size=3))
def test_neither_cuts_nor_stops_matter(columns: int, cuts: list[int], stops: list[int]) -> None:
    scores, codes, weights = made_rows(np.random.default_rng(columns), 50, columns)
    whole, cut = ScoreSample(columns), ScoreSample(columns)
    whole.add(scores, codes, weights)
    edges = [0, *sorted([*cuts, *stops]), 50]
    for a, b in zip(edges, edges[1:], strict=False):
        cut.add(scores[a:b], codes[a:b], weights[a:b])
        if b in stops:
            plain, arrays = pack(cut.state())  # as in a checkpoint
            cut = ScoreSample()
            cut.restore(unpack(plain, arrays))
    assert bits(cut.state()) == bits(whole.state())


def test_the_room_is_bounded_whatever_the_number_of_classes() -> None:
    assert [room_for(columns) for columns in (1, 2, 64, 65, 1000, 4096, 4097, 10**6)] == (
        [65536, 65536, 65536, 64527, 4194, 1024, 1024, 1024]
    )
    sample = ScoreSample()
    ones = np.ones(50_000, np.float32)
    for first in (0, 50_000, 100_000):
        sample.add(np.arange(first, first + 50_000, dtype=np.float64), ones, ones)
    assert sample.rows == sample.room == 65536
    assert np.array_equal(sample.scores(), np.arange(150_000 - 65536, 150_000))


def test_a_class_that_was_not_there_has_no_score() -> None:
    sample, one = ScoreSample(many=True), np.ones(1, np.float32)
    sample.add(np.array([[1.0]]), 0 * one, one)
    sample.add(np.array([[2.0]]), 1 * one, one)  # a class that is new with this row
    assert sample.columns == 2
    sample.add(np.array([[3.0, 4.0]]), 1 * one, one)
    sample.grow(3)
    sample.grow(2)
    np.testing.assert_array_equal(sample.scores(), [[1, np.nan, np.nan], [2, np.nan, np.nan], [3, 4, np.nan]])
    assert sample.codes().tolist() == [0, 1, 1]


def test_two_classes_that_become_more_keep_what_their_score_said() -> None:
    sample, ones = ScoreSample(), np.ones(2, np.float32)
    sample.add(np.array([1.5, -2.0]), np.array([1, 0], np.float32), ones)
    assert sample.scores().tolist() == [1.5, -2.0]
    sample.add(np.array([[1.0, 2.0, 3.0]]), np.array([2], np.float32), ones[:1])
    np.testing.assert_array_equal(sample.scores(), [[-1.5, 1.5, np.nan], [2, -2, np.nan], [1, 2, 3]])
    with pytest.raises(ValueError, match="one score a row, and 3 classes"):
        sample.add(np.zeros(1), ones[:1], ones[:1])
    with pytest.raises(ValueError, match="one score a row, and 3 classes"):
        ScoreSample().add(np.zeros(2), 2 * ones, ones)


def test_scores_of_any_size_stay_numbers() -> None:
    sample, ones = ScoreSample(), np.ones(4, np.float32)
    sample.add(np.array([1e300, -np.inf, np.nan, 1e30]), ones, ones)
    assert sample.scores()[:2].tolist() == [room.LARGEST, -room.LARGEST] and np.isnan(sample.scores()[2])
    assert np.isfinite(room.LARGEST) and sample.scores()[3] == np.float32(1e30)


@given(st.permutations(range(4)))
def test_classes_in_another_order(places: list[int]) -> None:
    scores, codes, weights = made_rows(np.random.default_rng(3), 40, 4)
    codes[np.isnan(codes)] = 1
    sample, renamed = ScoreSample(4), ScoreSample(4)
    sample.add(scores, codes, weights)
    before = bits(sample.state())
    to = np.array(places)
    renamed.add(scores[:, np.argsort(to)], to[codes.astype(int)].astype(np.float32), weights)
    assert bits(sample.reordered(places).state()) == bits(renamed.state())
    assert bits(sample.state()) == before


def test_two_classes_in_another_order() -> None:
    sample, ones = ScoreSample(), np.ones(2, np.float32)
    sample.add(np.array([1.5, -2.0]), np.array([1, 0], np.float32), ones)
    assert bits(sample.reordered([0, 1]).state()) == bits(sample.state())
    other = sample.reordered([1, 0])
    assert other.scores().tolist() == [-1.5, 2.0] and other.codes().tolist() == [0, 1]
    for wrong in ([0], [0, 0], [0, 1, 2], [1, 2]):
        with pytest.raises(ValueError, match="no order of 2 classes"):
            sample.reordered(wrong)


def test_a_state_that_does_not_fit_together_is_refused() -> None:
    sample, ones = ScoreSample(3), np.ones(2, np.float32)
    sample.add(np.zeros((2, 3)), ones, ones)
    for change in ({"columns": 2}, {"codes": ones[:1]}, {"weights": np.ones(3, np.float32)}):
        with pytest.raises(ModelError, match="do not fit together"):
            ScoreSample().restore(sample.state() | change)


def test_the_newest_rows_and_those_of_other_weight() -> None:
    sample = ScoreSample()
    sample.add(np.arange(6.0), np.array([0, 1, 0, 1, 1, 0], np.float32), np.full(6, 2.0, np.float32))
    assert sample.newest(2).scores().tolist() == [4.0, 5.0] and sample.newest(99).rows == 6
    assert sample.newest(0).rows == 0 and sample.rows == 6
    assert sample.unweighted(np.array([4.0, 0.5])).weights().tolist() == [0.5, 4.0, 0.5, 4.0, 4.0, 0.5]
    assert sample.unweighted(np.array([0.0, 2.0])).weights().tolist() == [2.0, 1.0, 2.0, 1.0, 1.0, 2.0]
    many = ScoreSample(many=True)
    many.add(np.ones((3, 3)), np.array([0, 1, 2], np.float32), np.ones(3, np.float32))
    assert many.unweighted(np.array([2.0, 1.0])).weights().tolist() == [0.5, 1.0, 1.0]
