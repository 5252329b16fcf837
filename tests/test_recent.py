"""Figures of the rows that come now: against a slow twin, however rows are cut and runs are stopped."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score
from tiers import examples

from streamsvm import calibration, recent
from streamsvm.batch import Batch
from streamsvm.calibration import fit_calibration, logistic
from streamsvm.checkpoint import pack, unpack
from streamsvm.errors import ConfigError
from streamsvm.losses import Logistic, Loss, make_loss
from streamsvm.penalties import L2
from streamsvm.recent import Recent, slot_for
from streamsvm.score_sample import ScoreSample
from streamsvm.scoring import score_rows
from streamsvm.solvers import OnlineSolver, make_many, make_solver
from streamsvm.solvers.base import LOSS, WEIGHT, WRONG, Bias, Problem, T

SLOT, SCORED, WINDOW = 16, 6, 16 * 12


@pytest.fixture(autouse=True)
def short_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLOT": SLOT, "LONGEST": 4 * SLOT, "SCORED": SCORED, "OFTEN": 2}.items():
        monkeypatch.setattr(recent, name, value)
    monkeypatch.setattr(calibration, "FEWEST_ROWS", 4)


def rows_of(count: int, *, classes: int = 2, seed: int = 0, zeros: bool = False, width: int = 12) -> Batch:
    """Rows of three features, whose classes their sums tell, more or less; of more than two classes some come late."""
    rng = np.random.default_rng(seed)
    indices = np.sort(np.argsort(rng.random((count, width)), axis=1)[:, :3], axis=1)
    values = rng.normal(size=(count, 3))
    table = rng.normal(size=(width, max(classes, 2)))
    scores = np.einsum("ij,ijk->ik", values, table[indices]) + 0.5 * rng.normal(size=(count, max(classes, 2)))
    there = 1 + np.minimum(np.arange(count) // 40, classes - 1)
    scores[np.arange(scores.shape[1]) > there[:, None]] = -np.inf
    weights = rng.choice([1.0, 2.0, 0.5] + [0.0] * zeros, size=count)
    return Batch(
        np.arange(count + 1, dtype=np.int64) * 3,
        indices.ravel().astype(np.uint32),
        values.ravel().astype(np.float32),
        scores.argmax(axis=1).astype(np.float32),
        weights.astype(np.float32),
    )


def solver_for(loss: Loss, many: bool = False) -> OnlineSolver:
    problem = Problem(loss, L2(1e-3), Bias())
    return make_many("ova", "asgd", problem, eta0=0.5) if many else make_solver("asgd", problem, eta0=0.5)


def learn(solver: OnlineSolver, batch: Batch) -> None:
    real = batch.labels[batch.weights > 0.0]
    solver.admit(int(real.max(initial=-1.0)) + 1)
    solver.learn(batch)


def fed(
    batch: Batch,
    points: Iterable[int] = (),
    stops: frozenset[int] = frozenset(),
    *,
    loss: Loss | None = None,
    many: bool = False,
    finish: bool = False,
    **options: Any,
) -> tuple[OnlineSolver, Recent]:
    """All rows, cut at some points; after the pieces in `stops` others take over from what a checkpoint holds."""
    loss = loss or make_loss("hinge")

    def both() -> tuple[OnlineSolver, Recent]:
        solver = solver_for(loss, many)
        watch = Recent(WINDOW, many=many, loss=loss, **options)
        solver.watch = watch
        return solver, watch

    solver, watch = both()
    solver.begin_pass(1)
    edges = [0, *sorted(points), batch.rows]
    for number, (a, b) in enumerate(zip(edges, edges[1:], strict=False)):
        learn(solver, batch.slice(a, b))
        if number in stops:
            plain, arrays = pack(solver.state())
            solver, watch = both()
            solver.restore(unpack(json.loads(json.dumps(plain)), arrays))
        watch.figures()  # may be asked for at any time
    if finish:
        solver.finish()
    return solver, watch


class Twin:
    """The same by hand: a solver that learns row by row, looked at before and after each slot."""

    def __init__(self, batch: Batch, loss: Loss, slots: int) -> None:
        solver = solver_for(loss)
        costs, scores, codes, weights = [], [], [], []
        for slot in range(batch.rows // SLOT):
            rows = batch.take(slot * SLOT, (slot + 1) * SLOT)
            before = solver.scalars[[WEIGHT, LOSS, WRONG]]
            if slot >= 1 and (slot - 1) % 4 == 0:
                first = rows.take(0, SCORED)
                found, bias = solver.weights() if solver.width else (np.zeros(12, np.float32), 0.0)
                scores.append(score_rows(first, found, bias))
                codes.append(first.labels)
                weights.append(first.weights)
            solver.learn(rows)
            costs.append(solver.scalars[[WEIGHT, LOSS, WRONG]] - before)
        self.weight, self.loss, self.wrong = np.sum(costs[1:][-slots:], axis=0)
        self.solver = solver
        here = [place for place in range(len(scores)) if 4 * place >= len(costs) - 1 - slots]
        self.before = scores, codes, weights
        self.scores, self.codes, self.weights = (np.concatenate([part[k] for k in here]) for part in self.before)


@pytest.mark.parametrize("slots", [9, 12, 13, 30, 41])
@pytest.mark.parametrize("name", ["hinge", "logistic"])
def test_figures_are_those_of_a_slow_twin(name: str, slots: int) -> None:
    loss, batch = make_loss(name), rows_of(SLOT * slots)
    solver, watch = fed(batch, range(0, batch.rows, 7), loss=loss)
    twin, figures = Twin(batch, loss, 12), watch.figures()
    assert np.array_equal(solver.vector, twin.solver.vector)  # to watch changes nothing
    assert figures["rows"] == SLOT * min(slots - 1, 12)
    assert figures["loss"] == pytest.approx(twin.loss / twin.weight, rel=1e-12)
    assert figures["error"] == pytest.approx(twin.wrong / twin.weight, rel=1e-12)
    sample = watch.recent()
    np.testing.assert_allclose(sample.scores(), twin.scores, rtol=1e-6)
    assert np.array_equal(sample.codes(), twin.codes) and np.array_equal(sample.weights(), twin.weights)
    expected = roc_auc_score(twin.codes, sample.scores(), sample_weight=twin.weights)
    assert figures["auc"] == pytest.approx(expected, rel=1e-12)
    assert figures["drifting"] is False


def test_probabilities_of_the_logistic_loss_are_its_own() -> None:
    loss = Logistic()
    batch = rows_of(SLOT * 30)
    figures, twin = fed(batch, loss=loss)[1].figures(), Twin(batch, loss, 12)
    chances = logistic(twin.scores)
    assert figures["log_loss"] == pytest.approx(log_loss(twin.codes, chances, sample_weight=twin.weights), rel=1e-9)
    places = np.minimum((chances * 15).astype(int), 14)
    off = [abs(np.sum((twin.weights * (chances - twin.codes))[places == place])) for place in range(15)]
    assert figures["calibration_error"] == pytest.approx(sum(off) / twin.weights.sum(), rel=1e-9)


def test_curves_are_fitted_to_rows_before_those_they_are_used_for() -> None:
    """Each scored slot by a curve of the scored slots before it: fitted at 1, 2 slots, then at every third."""
    loss = make_loss("hinge")
    batch = rows_of(SLOT * 26)
    watch, twin = fed(batch, loss=loss)[1], Twin(batch, loss, 12)
    total = weight = 0.0
    for place, (scores, codes, weights) in enumerate(zip(*twin.before, strict=True)):
        if 4 * place < 25 - 12:  # no longer in the window
            continue
        fits = [slot for slot in range(1, 4 * place + 1) if slot in (1, 2) or slot % 3 == 0]
        last = fits[-1]  # slots that had come when it was fitted, of which every fourth was scored
        sample = ScoreSample()
        parts = [k for k in range(place) if 4 * k < last and 4 * k >= last - 12]
        for k in parts:
            sample.add(twin.before[0][k], twin.before[1][k], twin.before[2][k])
        curve = fit_calibration("platt", sample, "progressive")
        assert curve is not None
        chances = curve.probabilities(scores)
        right = np.where(codes > 0.5, chances, 1.0 - chances)
        total, weight = total - float((weights * np.log(right)).sum()), weight + float(weights.sum())
    assert watch.figures()["log_loss"] == pytest.approx(total / weight, rel=1e-5)


cuts = st.lists(st.integers(0, 600), max_size=9)


@examples(100)
@given(st.integers(0, 600), cuts, st.frozensets(st.integers(0, 9)), st.booleans(), st.integers(0, 3))
def test_where_rows_are_cut_and_runs_are_stopped_changes_nothing(
    count: int, points: list[int], stops: frozenset[int], finish: bool, seed: int
) -> None:
    batch = rows_of(count, seed=seed, zeros=True)
    options: dict[str, Any] = {"forget": 80, "finish": finish}
    same(fed(batch, **options), fed(batch, [min(point, count) for point in points], stops, **options))


@examples(60)
@given(st.integers(0, 400), cuts, st.frozensets(st.integers(0, 9)), st.integers(0, 3))
def test_so_with_classes_that_are_found_on_the_way(
    count: int, points: list[int], stops: frozenset[int], seed: int
) -> None:
    batch = rows_of(count, classes=6, seed=seed, zeros=True)
    options: dict[str, Any] = {"many": True, "forget": 80}
    same(fed(batch, **options), fed(batch, [min(point, count) for point in points], stops, **options))


def same(one: tuple[OnlineSolver, Recent], other: tuple[OnlineSolver, Recent]) -> None:
    """Figures, scores and weights are equal bit for bit."""
    assert one[1].figures() == other[1].figures()
    for name in ("scores", "codes", "weights"):
        ours, theirs = (getattr(watch.recent(), name)() for _, watch in (one, other))
        assert ours.shape == theirs.shape and ours.tobytes() == theirs.tobytes()
    ours, theirs = (solver.weights()[0] for solver, _ in (one, other))
    assert ours.tobytes() == theirs.tobytes() and one[0].scalars[T] == other[0].scalars[T]


@pytest.mark.parametrize("features", [1000, 7])
def test_rows_of_weight_zero_do_not_count(features: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "FEATURES", features)
    batch = rows_of(500, seed=4, zeros=True)
    kept = np.flatnonzero(batch.weights)
    without = Batch(
        np.arange(len(kept) + 1, dtype=np.int64) * 3,
        batch.indices.reshape(-1, 3)[kept].ravel(),
        batch.values.reshape(-1, 3)[kept].ravel(),
        batch.labels[kept],
        batch.weights[kept],
    )
    hidden = batch._replace(labels=np.where(batch.weights > 0.0, batch.labels, np.nan).astype(np.float32))
    same(fed(without, forget=100), fed(hidden, [3, 77, 320], forget=100))


def test_shuffled_orders_are_followed() -> None:
    batch = rows_of(300, seed=5)
    order = np.random.default_rng(0).permutation(300)
    solver, watch = solver_for(make_loss("hinge")), Recent(WINDOW, many=False, loss=make_loss("hinge"))
    solver.watch = watch
    solver.learn(batch, order)
    straight = [batch.take(int(i), int(i) + 1) for i in order]
    other, expected = solver_for(make_loss("hinge")), Recent(WINDOW, many=False, loss=make_loss("hinge"))
    other.watch = expected
    for row in straight:
        other.learn(row)
    same((solver, watch), (other, expected))


def test_several_classes_have_a_loss_an_error_and_probabilities() -> None:
    batch = rows_of(SLOT * 40, classes=4, seed=2)
    solver, watch = fed(batch, range(0, batch.rows, 50), many=True)
    figures = watch.figures()
    assert figures["auc"] is None and watch.recent().columns == 4
    assert 0.0 < float(figures["error"] or 0) < 0.6 and 0.0 < float(figures["log_loss"] or 0) < 1.4
    assert 0.0 < float(figures["calibration_error"] or 0) < 0.5
    before = fed(batch.slice(0, SLOT * 28), many=True)[0]
    spent = (solver.tally() - before.tally())[:6]
    assert figures["loss"] == pytest.approx(spent[2:].sum() / spent[0], rel=1e-9)
    assert figures["error"] == pytest.approx(spent[1] / spent[0], rel=1e-9)


def test_many_classes_may_come_at_once() -> None:
    """In the middle of a slot, so that there are more lanes at its end than at its beginning."""
    batch = rows_of(SLOT * 10)
    late = np.where(np.arange(batch.rows) < 100, batch.labels, np.arange(batch.rows) % 9)
    batch = batch._replace(labels=late.astype(np.float32))
    same(fed(batch, many=True), fed(batch, [100], many=True))


def test_a_class_that_is_new_to_the_curve_is_improbable() -> None:
    watch = fed(rows_of(SLOT * 20, classes=2, seed=2), many=True)[1]
    chances = watch._probabilities(np.array([[0.0, 0.0, 5.0]]))
    assert chances is not None and chances.shape == (1, 3)
    assert chances[0, 2] == pytest.approx(1.0 / (watch._curve_rows + 2.0), rel=0.3)
    assert chances.sum() == pytest.approx(1.0)


def test_nothing_is_said_before_there_is_enough() -> None:
    batch = rows_of(SLOT * 6)
    nothing = dict.fromkeys(("loss", "error", "auc", "log_loss", "calibration_error"))
    for rows in (0, 1, SLOT, SLOT + SCORED, 5 * SLOT - 1):
        figures = fed(batch.slice(0, rows))[1].figures()
        assert figures == {"rows": max(0, rows // SLOT - 1) * SLOT, **nothing, "drifting": False}
    figures = fed(batch.slice(0, 5 * SLOT))[1].figures()
    assert figures["loss"] is not None and figures["error"] is not None and figures["auc"] is not None
    assert figures["log_loss"] is None  # there was no curve yet when its rows were scored
    single = rows_of(SLOT * 20)
    assert fed(single._replace(labels=np.ones(single.rows, np.float32)))[1].figures()["auc"] is None


def test_figures_do_not_depend_on_when_they_were_asked_for() -> None:
    """Also in a slot whose rows have just been scored, right after they were asked for before that."""
    batch = rows_of(SLOT * 21 + SCORED + 2)
    for stop in range(SLOT * 20 - 1, batch.rows + 1):
        asked = fed(batch.slice(0, stop), range(SLOT * 19, stop))
        same(asked, fed(batch.slice(0, stop)))


def test_long_rows_are_scored_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "FEATURES", 7)  # those of three rows
    batch = rows_of(SLOT * 14)
    _, watch = fed(batch, [20, 21, 90])
    assert watch.recent().rows == 3 * 3  # slots 2, 6, 10 of those 12 that are counted
    same(fed(batch), fed(batch, [17, 18, 80, 82], frozenset({1, 3})))


def test_the_end_lets_all_rows_be_learned_and_closes_the_slot() -> None:
    batch = rows_of(SLOT * 9 + 3)  # the last three wait to be scored
    solver, watch = fed(batch)
    waiting = float(solver.scalars[WEIGHT])
    solver.finish()
    assert solver.scalars[WEIGHT] == pytest.approx(batch.weights.sum()) and waiting < solver.scalars[WEIGHT]
    assert watch.figures()["rows"] == SLOT * 8 + 3 and watch.recent().rows == 2 * SCORED + 3
    solver.begin_pass(2)
    learn(solver, batch)
    solver.finish()
    assert watch.figures()["rows"] == SLOT * 10 + 3 + 3  # twelve slots, two of them short
    assert 0.0 < float(watch.figures()["loss"] or 0.0) < 1.0


def test_a_drift_is_told_once_and_so_is_its_end() -> None:
    told: list[str] = []
    batch = rows_of(SLOT * 900, seed=3)
    strange = batch.labels.copy()
    strange[SLOT * 400 : SLOT * 430] = np.random.default_rng(0).integers(0, 2, SLOT * 30)
    solver, loss = solver_for(make_loss("hinge")), make_loss("hinge")
    solver.watch = watch = Recent(WINDOW, many=False, loss=loss, note=told.append)
    drifted = []
    for a in range(0, batch.rows, SLOT * 10):
        learn(solver, batch._replace(labels=strange).slice(a, a + SLOT * 10))
        drifted.append(watch.figures()["drifting"])
    assert [text.split()[0] for text in told] == ["warning:", "the"]
    assert told[0].startswith("warning: the loss of the last 256 rows is ") and "--forget ROWS" in told[0]
    assert " is usual, and up to " in told[0] and "again: about" in told[1]
    assert not any(drifted[:40]) and any(drifted[40:45]) and not drifted[-1]


def test_with_forgetting_the_remedy_is_another() -> None:
    told: list[str] = []
    batch = rows_of(SLOT * 500, seed=3)
    flipped = np.where(np.arange(batch.rows) < SLOT * 400, batch.labels, 1.0 - batch.labels).astype(np.float32)
    solver, _ = fed(batch._replace(labels=flipped), forget=4000, note=told.append)
    assert any("a --forget of less than 4000" in text for text in told) and solver.scalars[T] < 4000 * 1.3


def test_slots_grow_with_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = [slot_for(window, None) for window in (4096, 65536, 131071, 131072, 1 << 20, 1 << 30)]
    assert found == [1024, 1024, 1024, 2048, 16384, 16384]
    assert slot_for(1 << 20, 10_000) == 2048 and slot_for(1 << 20, 4096) == 1024


def test_too_few_rows_are_refused() -> None:
    loss = make_loss("hinge")
    with pytest.raises(ConfigError, match="--window 63: .* set it to 64 or more"):
        Recent(63, many=False, loss=loss)
    with pytest.raises(ConfigError, match="--forget 10: .* set it to 64 or more"):
        Recent(64, many=False, loss=loss, forget=10)


def test_a_pass_that_ends_with_rows_of_weight_zero_leaves_nothing_behind() -> None:
    batch = rows_of(SLOT * 10)
    found = []
    for more in (0, 3):  # they would wait to be scored
        solver, watch = fed(batch.slice(0, SLOT * 5))
        nothing = batch.slice(0, more)
        learn(solver, nothing._replace(weights=np.zeros(more, np.float32)))
        solver.end_pass()
        solver.begin_pass(2)
        learn(solver, batch)
        found.append((solver, watch))
    same(*found)
