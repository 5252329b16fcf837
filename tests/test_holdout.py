"""Held-out rows: which they are, what is measured on them, and that nothing but the order of rows matters."""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from held_out import held_out
from hypothesis import given
from hypothesis import strategies as st

from streamsvm import holdout as room
from streamsvm.batch import Batch
from streamsvm.errors import ModelError
from streamsvm.holdout import Holdout, Scores
from streamsvm.losses import Hinge, Logistic
from streamsvm.passes import held_rows, marked
from streamsvm.scoring import score_rows

sys.path.insert(0, str(Path(__file__).parent / "solvers"))
from made_rows import bits, cut, dense, made_up, spoil  # noqa: E402

ROWS = made_up(60, seed=4)


def test_one_of_n_rows_of_the_source_is_marked_wherever_batches_begin() -> None:
    rows = ROWS._replace(weights=np.where(np.arange(60) % 7, np.float32(2.0), np.float32(0.0)))
    for every in (2, 3, 10, 59, 60, 61):
        for points in ([], [1], [5, 5, 9], [20, 40]):
            first, signs = 0, []
            for piece in cut(rows, points):
                held = marked(piece, first, every)
                assert np.array_equal(np.abs(held.weights), piece.weights)
                signs += np.signbit(held.weights).tolist()
                first += piece.rows
            assert signs == held_out(60, every).tolist()
    assert marked(rows, 0, None) is rows


@pytest.mark.parametrize("every", [2, 3, 10, 100])
def test_held_out_rows_are_one_in_each_run_and_have_no_period(every: int) -> None:
    held = held_out(1000 * every, every)
    assert (held.reshape(-1, every).sum(axis=1) == 1).all()
    places = np.flatnonzero(held) % every
    assert np.bincount(places, minlength=every).max() < 3 * 1000 / every + 20
    assert [held_rows(rows, every) for rows in range(300)] == [int(held[:rows].sum()) for rows in range(300)]


def scoring(weights: np.ndarray, bias: float = 0.0) -> Scores:
    """A model that scores rows."""
    return partial(score_rows, weights=weights, bias=bias)


def feed(holdout: Holdout, pieces: list[Batch], held: list[np.ndarray], models: list) -> list[tuple[bytes, int]]:
    """What a run does; returns the rows learned, and at which of them the buffer was measured."""
    learned, measured = [], []
    for batch, mask in zip(pieces, held, strict=True):
        for part, order in holdout.pieces(batch, None, mask):
            learned += [part.take(int(i), int(i) + 1).values.tobytes() for i in order]
            if holdout.full:
                holdout.measure(models)
                measured.append(len(learned))
    holdout.measure(models)
    return [(row, 0) for row in learned] + [(b"", place) for place in measured]


@given(st.lists(st.integers(0, 60), max_size=6), st.integers(2, 9))
def test_cuts_change_neither_figures_nor_the_moment_of_measuring(points: list[int], every: int) -> None:
    weights = np.linspace(-1, 1, 30, dtype=np.float32)
    models = [scoring(weights, 0.1), scoring(-weights)]
    mask = (np.arange(60) + 1) % every == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "HELD_ROWS", 5)
        patch.setattr(room, "HELD_FEATURES", 19)
        results = []
        for edges in ([], points):
            holdout = Holdout([Hinge(), Logistic()])
            masks = np.split(mask, sorted(edges))
            happened = feed(holdout, cut(ROWS, edges), masks, models)
            results.append((happened, holdout.figures(0), holdout.figures(1), holdout.examples))
    assert results[0] == results[1]


def test_figures_are_weighted_means() -> None:
    weights = np.linspace(-1, 1, 30, dtype=np.float32)
    mask = np.arange(60) % 3 == 0
    holdout = Holdout([Hinge()])
    feed(holdout, [ROWS], [mask], [scoring(weights, 0.25)])
    scores = dense(ROWS, 30)[mask] @ weights + 0.25
    labels, c = 2.0 * ROWS.labels[mask] - 1.0, ROWS.weights[mask]
    loss, error = holdout.figures()
    assert loss == pytest.approx(np.sum(c * np.maximum(0, 1 - labels * scores)) / c.sum())
    assert error == pytest.approx(np.sum(c * ((scores > 0) != (labels > 0))) / c.sum())
    assert holdout.examples == mask.sum()
    holdout.begin_pass()
    assert holdout.figures() == (None, None) and holdout.examples == 0


def test_what_others_have_measured_is_added() -> None:
    """Each part is measured by itself, as shards of a cluster are; the sum is what one has measured of all of them."""
    weights = np.linspace(-1, 1, 30, dtype=np.float32)
    models, losses = [scoring(weights, 0.1), None, scoring(-weights)], [Hinge(), Hinge(), Logistic()]
    whole, added = Holdout(losses), Holdout(losses)
    for piece in cut(ROWS, [11, 30]):
        part = Holdout(losses)
        part.measure_rows(piece, models)
        whole.measure_rows(piece, models)
        added.take(part.examples, part.sums)
    assert np.array_equal(added.sums, whole.sums, equal_nan=True) and np.isnan(added.sums[1]).all()
    assert added.examples == whole.examples == 60 and added.figures(2) == whole.figures(2)


def test_models_may_leave() -> None:
    models = [scoring(np.full(30, value, np.float32)) for value in (0.1, 0.2, 0.3)]
    mask = np.arange(60) % 2 == 0
    holdout, alone = Holdout([Hinge()] * 3), Holdout([Hinge()])
    feed(holdout, [ROWS], [mask], models)
    before = holdout.figures(2)
    holdout.keep([2])
    assert holdout.figures(0) == before
    holdout.begin_pass()
    feed(holdout, [ROWS], [mask], models[2:])
    feed(alone, [ROWS], [mask], models[2:])
    assert holdout.figures(0) == alone.figures(0)


def resumed(holdout: Holdout, losses: list) -> Holdout:
    state = holdout.state()
    assert bits(state) == bits(holdout.state())
    other = Holdout(losses)
    other.restore(state)
    spoil(state)
    return other


@given(st.lists(st.integers(0, 60), max_size=6), st.integers(2, 9), st.sets(st.integers(10, 26)))
def test_going_on_equals_never_having_stopped(points: list[int], every: int, stops: set[int]) -> None:
    weights = np.linspace(-1, 1, 30, dtype=np.float32)
    models = [scoring(weights, 0.1), None, scoring(-weights)]
    losses = [Hinge(), Hinge(), Logistic()]
    mask = (np.arange(60) + 1) % every == 0
    results = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "HELD_ROWS", 5)
        patch.setattr(room, "HELD_FEATURES", 19)
        for stopping in (set(), stops, set(range(50))):
            holdout, learned = Holdout(losses), []
            for number in (1, 2):
                holdout.begin_pass()
                for place, piece in enumerate(cut(ROWS, points)):
                    for _, order in holdout.pieces(piece, None, np.split(mask, sorted(points))[place]):
                        learned.append((number, order.tolist(), holdout.full))
                        if holdout.full:
                            holdout.measure(models)
                    if 10 * number + place in stopping:
                        holdout = resumed(holdout, losses)
            waiting = bits(holdout.state())
            holdout.measure(models)
            results.append((learned, waiting, bits(holdout.state()), [holdout.figures(k) for k in (0, 2)]))
    assert results[0] == results[1] == results[2]


def test_nothing_waits_after_going_on_where_nothing_waited() -> None:
    """Else a model that diverged would spoil figures that were measured before it did."""
    holdout = Holdout([Hinge()])
    feed(holdout, [ROWS], [np.arange(60) % 3 == 0], [scoring(np.ones(30, np.float32))])
    other = resumed(holdout, [Hinge()])
    other.measure([None])
    assert other.figures() == holdout.figures() and other.examples == holdout.examples == 20


def test_figures_of_another_number_of_models_are_refused() -> None:
    holdout = Holdout([Hinge()] * 3)
    holdout.keep([0, 2])
    assert holdout.state()["models"] == 2
    resumed(holdout, [Hinge()] * 2)
    with pytest.raises(ModelError, match="of 2 models, not of 3"):
        resumed(holdout, [Hinge()] * 3)
