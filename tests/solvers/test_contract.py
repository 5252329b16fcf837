"""What every online solver promises, checked for every solver with every loss, penalty and kind of bias that it can do.

Solvers are found by themselves, and what they can do is read from their classes. One that cannot keep a promise says so
there, in `exempt`, under the name of the test.
"""

import copy
import re
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_rows import (
    ROOM,
    batch_of,
    bits,
    climbing,
    cut,
    dense,
    equal_weights,
    flat,
    made_up,
    run_passes,
    select,
    spoil,
)

from streamsvm.batch import Batch, concatenate, empty_batch
from streamsvm.errors import ConfigError, DataError, DivergedError, ModelError
from streamsvm.losses import LOSSES, Hinge, SquaredHinge, make_loss
from streamsvm.penalties import L1, L2, ElasticNet, Penalty
from streamsvm.shuffle import random_order
from streamsvm.solvers import SOLVERS, OnlineSolver, make_solver, step_size
from streamsvm.solvers import base as solver_base
from streamsvm.solvers.base import SCALE, SEEN, STEP, UNIT, WEIGHT, WRONG, Problem, T, make_bias

TRIAL_ROWS, TRIAL_FEATURES = 40, 150
ROWS = made_up(110, seed=1)
STRENGTH = 0.02

PENALTIES: dict[str, Penalty] = {
    "l2": L2(STRENGTH),
    "l1": L1(1e-3),
    "elastic_net": ElasticNet(STRENGTH, 1e-3),
    "none": L2(0.0),
}
BIASES = ["penalised", "free", "none"]
# Each solver with a step size it chooses and with one given; mini-batches that do not divide anything.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "pegasos": [{}, {"batch_size": 7}, {"batch_size": 3, "project": False}, {"average": True, "batch_size": 2}],
    "sgdqn": [{"skip": 3}, {"eta0": 0.25}],
}

Make = Callable[..., OnlineSolver]


class Case(NamedTuple):
    """One way to set up one solver."""

    name: str
    options: dict[str, Any]
    penalty: str = "l2"
    loss: str = "hinge"
    bias: str = "penalised"

    def __str__(self) -> str:
        return "-".join(
            [self.name, *(f"{key}{value}" for key, value in self.options.items()), self.penalty, self.loss, self.bias]
        )

    def make(self, **more: Any) -> OnlineSolver:
        problem = Problem(make_loss(self.loss), PENALTIES[self.penalty], make_bias(self.bias, 1.5))
        return SOLVERS[self.name](problem, **self.options, **more)


def variants(name: str) -> list[dict[str, Any]]:
    return OPTIONS.get(name, [{}, {"eta0": 0.25}] if SOLVERS[name].has_step_size else [{}])


# What does not depend on the loss or the bias: all penalties all the same, since they may decide what is stored.
PLAIN_CASES = [
    Case(name, options, penalty)
    for name, solver in SOLVERS.items()
    for options in variants(name)
    for penalty in solver.penalties
]
# All losses and kinds of bias with the first penalty, a few with each of the others.
CASES = [
    case._replace(loss=loss, bias=bias)
    for case in PLAIN_CASES
    for loss, bias in (
        [(loss, bias) for loss in LOSSES for bias in BIASES]
        if case.penalty == SOLVERS[case.name].penalties[0]
        else [("hinge", "penalised"), ("logistic", "free"), ("squared_hinge", "none")]
    )
]
STEPPED = [name for name, solver in SOLVERS.items() if solver.has_step_size]
EVERY_LOSS = pytest.mark.parametrize("loss", list(LOSSES))
EVERY_BIAS = pytest.mark.parametrize("bias", BIASES)


def every_solver(eta0: float) -> pytest.MarkDecorator:
    """Each with this step size, if it has one."""
    pairs = [(name, {"eta0": eta0} if name in STEPPED else {}) for name in SOLVERS]
    return pytest.mark.parametrize(("name", "options"), pairs, ids=list(SOLVERS))


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def make(case: Case) -> Make:
    return case.make


@pytest.fixture
def bias(case: Case) -> str:
    return case.bias


plainly = pytest.mark.parametrize("case", PLAIN_CASES, ids=str)


@pytest.fixture(autouse=True, scope="module")
def short_trial() -> Iterator[None]:
    """Step sizes are chosen on a few rows, so that small tests get past that point."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver_base, "TRIAL_ROWS", TRIAL_ROWS)
        patch.setattr(solver_base, "TRIAL_FEATURES", TRIAL_FEATURES)
        yield


def few(case: Case) -> settings:
    """Many examples where nothing is special, some elsewhere."""
    plain = case in PLAIN_CASES and case.penalty == SOLVERS[case.name].penalties[0]
    return settings(max_examples=25 if plain else 6, deadline=None, derandomize=True)


def points(rows: int, most: int = 8) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, rows), max_size=most)


# The order of rows alone decides.


def test_cutting_the_rows_differently_does_not_change_one_bit(case: Case, make: Make) -> None:
    @few(case)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        rows = ROWS.slice(0, data.draw(st.integers(0, ROWS.rows)))
        pieces = cut(rows, data.draw(points(rows.rows)))
        whole, parts = make(), make()
        for number in (1, 2):
            for solver, batches in ((whole, [rows]), (parts, pieces)):
                solver.begin_pass(number)
                for batch in batches:
                    solver.learn(batch)
            assert bits(whole.state()) == bits(parts.state())
            whole.end_pass()
            parts.end_pass()
            assert bits(whole.state()) == bits(parts.state())
        whole.finish()
        parts.finish()
        assert bits(whole.state()) == bits(parts.state())

    check()


@pytest.mark.parametrize("cut_at", [TRIAL_ROWS - 1, TRIAL_ROWS, TRIAL_ROWS + 1])
@pytest.mark.parametrize("name", STEPPED)
def test_the_boundary_of_the_trial_is_a_row_not_a_batch(
    name: str, cut_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solver_base, "TRIAL_FEATURES", 1 << 20)
    make = Case(name, {}).make
    whole, parts = make(), make()
    run_passes(whole, [ROWS])
    run_passes(parts, cut(ROWS, [cut_at]))
    assert bits(whole.state()) == bits(parts.state())


@pytest.mark.parametrize("name", STEPPED)
def test_the_boundary_of_the_trial_by_features_is_a_row_not_a_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver_base, "TRIAL_ROWS", 1 << 20)
    make = Case(name, {}, loss="logistic", bias="free").make
    results = {str(bits(run_passes(make(), cut(ROWS, [at])).state())) for at in range(0, ROWS.rows, 3)}
    assert len(results) == 1


@plainly
@pytest.mark.parametrize("cut_at", [0, TRIAL_ROWS, TRIAL_ROWS + 3, 60])
def test_a_row_of_weight_zero_widens_the_vector_wherever_it_is_cut_off(make: Make, cut_at: int) -> None:
    rows = equal_weights(made_up(60, seed=1, longest=3))
    far = batch_of([{5000: 1.0}], [1], [0.0])
    pieces = [*cut(rows, [TRIAL_ROWS + 3]), far]
    whole, parts = make(), make()
    whole.learn(concatenate([pieces[0], far, pieces[1]]))
    for piece in (
        pieces[0].slice(0, min(cut_at, pieces[0].rows)),
        pieces[0].slice(min(cut_at, 43), 43),
        far,
        pieces[1],
    ):
        parts.learn(piece)
    assert bits(whole.state()) == bits(parts.state()) and whole.width == 5001


# state() and restore().


def test_going_on_from_a_state_equals_never_having_stopped(case: Case, make: Make) -> None:
    @few(case)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        stops = data.draw(st.lists(st.tuples(st.integers(1, 2), st.integers(0, ROWS.rows)), min_size=1, max_size=3))
        solver = make()
        for number in (1, 2):
            solver.begin_pass(number)
            here = sorted(row for pass_number, row in stops if pass_number == number)
            for piece in cut(ROWS, here)[:-1]:
                solver.learn(piece)
                state = solver.state()
                solver = make()
                solver.restore(state)
            solver.learn(ROWS.slice(here[-1] if here else 0, ROWS.rows))
            solver.end_pass()
        state = solver.state()
        solver = make()
        solver.restore(state)
        solver.finish()
        assert bits(solver.state()) == bits(run_passes(make(), [ROWS], 2).state())

    check()


@plainly
@pytest.mark.parametrize("rows", [0, 1, 10])
def test_a_state_before_a_step_size_is_chosen_or_inside_a_mini_batch(make: Make, rows: int) -> None:
    early = ROWS.slice(0, rows)
    stopped, straight = make(), make()
    stopped.learn(early)
    resumed = make()
    resumed.restore(stopped.state())
    straight.learn(early)
    assert bits(resumed.state()) == bits(stopped.state()) == bits(straight.state())
    for solver in (resumed, straight):
        solver.end_pass()
        solver.begin_pass(2)
        solver.learn(ROWS)
        solver.finish()
    assert bits(resumed.state()) == bits(straight.state())


@plainly
def test_a_state_restores_into_a_solver_that_has_already_learned_something_else(make: Make) -> None:
    good = make()
    good.learn(ROWS.slice(0, 50))
    other = make()
    other.learn(made_up(80, 60, seed=9))
    other.restore(good.state())
    for solver in (good, other):
        solver.learn(ROWS.slice(50, ROWS.rows))
        solver.finish()
    assert bits(good.state()) == bits(other.state())


def test_looking_at_a_solver_changes_nothing(make: Make) -> None:
    watched, left_alone = make(), make()
    for solver in (watched, left_alone):
        for piece in cut(ROWS, range(5, ROWS.rows, 9)):
            solver.learn(piece)
            if solver is watched:
                assert bits(solver.state()) == bits(solver.state())
                spoil(solver.state())
                solver.weights()[0][...] = 77
        solver.finish()
    assert bits(watched.state()) == bits(left_alone.state())


@plainly
def test_states_hold_plain_arrays_and_plain_numbers(make: Make) -> None:
    solver = make()
    solver.learn(ROWS.slice(0, 10))
    for path, value in flat(solver.state()).items():
        assert type(value) is int or (type(value) is np.ndarray and value.dtype.kind in "fiu"), path


@plainly
def test_a_restored_solver_names_the_same_row_when_it_diverges(make: Make) -> None:
    quiet = equal_weights(ROWS)
    loud = batch_of([{0: 3e38, 1: 3e38}] * 5, [1, 0, 1, 0, 1])
    messages = []
    for stop in (False, True):
        solver = make()
        solver.begin_pass(1)
        solver.learn(quiet)
        solver.end_pass()
        solver.begin_pass(2)
        solver.learn(quiet.slice(0, 60))
        if stop:
            state = solver.state()
            solver = make()
            solver.restore(state)
        solver.start_from(np.ones(solver.width, np.float32), 0.0)
        with pytest.raises(DivergedError) as caught:
            solver.learn(loud)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "in pass 2 at row 61 " in messages[0]


# The same where it is hard: the room of the vector has a past, and what is stored is written out again later.


class Journey(NamedTuple):
    """Three passes over some pieces, of which each is a step."""

    pieces: list[Batch]

    @property
    def steps(self) -> range:
        return range(3 * len(self.pieces))

    def step(self, solver: OnlineSolver, place: int) -> float | None:
        """Returns the lower bound after it."""
        number, piece = divmod(place, len(self.pieces))
        if piece == 0:
            solver.begin_pass(number + 1)
        solver.learn(self.pieces[piece])
        if piece == len(self.pieces) - 1:
            solver.end_pass()
        if place == self.steps[-1]:
            solver.finish()
        return solver.lower_bound()


CLIMB = Journey(cut(climbing(), [1, 7, 19, 30, 51, 55, 65, 75, 84, 97]))
STOPS = [0, 1, 3, 4, 5, 7, 12, 19, 31]


@plainly
@pytest.mark.parametrize("room", ["as it was", "none to spare", "other", "dim"])
def test_a_new_solver_goes_on_to_the_last_bit(case: Case, make: Make, room: str) -> None:
    given = {"dim": 2190} if room == "dim" else {}
    spare = {"none to spare": 0, "other": 4999}.get(room)
    solver = make(**given)
    states, bounds = [], []
    for place in CLIMB.steps:
        bounds.append(CLIMB.step(solver, place))
        states.append(solver.state())
    assert solver.width == given.get("dim", 2187) and len(set(solver.vector.tolist())) > 60
    assert (bounds[-1] is None) == (case.name not in ("sgd", "pegasos"))
    small = case.name == "folos" and "eta0" not in case.options  # steps that are chosen, and so hardly any shrinking
    if case.name not in ("sgdqn", "adagrad", "ftrl") and PENALTIES[case.penalty].l2 and not small:
        assert written_out(make(**given)) > 55  # after several of the stops, also with a vector that is wide enough
    for stop in STOPS:
        state, resumed = copy.deepcopy(states[stop]), make(**given)
        if spare is not None:
            width = len(state["vector"]) // resumed.columns
            state |= {"room": width + spare, "beyond": np.zeros(resumed.columns, np.float32)}
        resumed.restore(state)
        spoil(state)
        assert not given or len(resumed.vector) == 2190 * resumed.columns
        without = () if spare is None else ROOM
        for place in CLIMB.steps[stop + 1 :]:
            assert CLIMB.step(resumed, place) == bounds[place]
            assert bits(resumed.state(), without) == bits(states[place], without)


def written_out(solver: OnlineSolver) -> int:
    """The last row of the first pass at which the scale, which else falls, rose or began at one; 0 if there is none."""
    rows, last = climbing(), 0
    for i in np.flatnonzero(rows.weights).tolist():
        before = solver.scalars[SCALE]
        solver.learn(rows.slice(i, i + 1))
        after = solver.scalars[SCALE]
        last = i if after > before or (after == 1.0 and solver.scalars[T] > 0.0) else last
    return last


@pytest.mark.parametrize("case", [case for case in PLAIN_CASES if case.name in ("sgd", "pegasos")], ids=str)
def test_sums_over_the_vector_do_not_depend_on_its_room(make: Make) -> None:
    """Rows without features, so heavy that the scale is written out, after numbers whose sum depends on its order."""
    heavy = [batch_of([{}], [1], [1e9])] * 9  # enough to close a mini-batch
    rng = np.random.default_rng(5)
    for width in range(2001, 2013):
        solver = make()
        solver.learn(batch_of([{0: 1.0, width - 1: 1.0}], [1]))
        solver.end_pass()
        state, results = solver.state(), []
        state["vector"][:: solver.columns] = rng.uniform(1e6, 2e6, size=width)  # squares of so many must be rounded
        for room in (width, width + 1, 2048, 4096):
            resumed = make()
            resumed.restore(state | {"room": room})
            for rows in heavy:
                resumed.learn(rows)
            assert not np.array_equal(resumed.state()["vector"], state["vector"])  # written out
            results.append(bits(resumed.state(), ROOM))
        assert results == results[:1] * 4


# A weight for which the first step of pegasos shrinks by a factor that is not 0 but, rounded, a little less.
UNDER = next(
    c for c in np.linspace(0.1, 3, 300, dtype=np.float32).tolist() if 1.0 - 1.0 / (STRENGTH * c) * STRENGTH * c < 0
)


def test_the_first_shrink_of_pegasos_leaves_no_minus_zero() -> None:
    """Rounding makes a number below zero of it for a row of this weight."""
    solver = Case("pegasos", {}).make()
    solver.learn(batch_of([{0: 1.0, 7: 1.0}], [1], [UNDER]))
    assert not np.signbit(solver.vector).any()


@pytest.mark.parametrize("average", [False, True])
def test_room_that_is_minus_zero_stays_so(average: bool) -> None:
    """Features that come later begin there: models would differ in the sign of a zero."""
    make = Case("pegasos", {"average": average}).make
    first = batch_of([{0: 1.0, 7: 1.0}], [1])
    rest = [batch_of([{3: 1.0, 20: -1.0}], [0]), batch_of([{1500: 1.0, 30: 1.0}], [1])]
    straight = make()
    straight.learn(first)
    straight.vector[straight.columns * straight.width :] = -0.0
    resumed = make()
    resumed.restore(straight.state())
    for solver in (straight, resumed):
        for rows in rest:
            solver.learn(rows)
    assert bits(resumed.state()) == bits(straight.state())
    signs = np.signbit(straight.vector[:: straight.columns][[500, 1023, 1024, 1400]]).tolist()
    assert signs == [True, True, False, False]


def outcomes(solver: OnlineSolver, batches: list[Batch], stop: int, make: Make) -> list[Any]:
    """The width after each batch, up to the one that is refused memory, with one stop on the way."""
    found: list[Any] = []
    for place, batch in enumerate(batches):
        if place == stop:
            state = solver.state()
            solver = make()
            solver.restore(state)
        try:
            solver.learn(batch)
        except DataError as error:
            return [*found, str(error)]
        found.append((solver.width, len(solver.vector)))
    return found


@pytest.mark.parametrize("name", ["sgd", "asgd", "adagrad"])
def test_memory_is_refused_where_it_would_have_been(name: str) -> None:
    batches = [batch_of([{j: 1.0}], [1]) for j in (3, 700, 1023, 1100, 1300, 2100, 2500, 3300, 4000, 4500, 5000)]
    seen = set()
    for fitting in range(1024, 9000, 173):
        case = Case(name, {"eta0": 0.25})
        budget = case.make().bytes_for(fitting)

        def make(case: Case = case, budget: int = budget) -> OnlineSolver:
            return case.make(memory=budget)

        straight = outcomes(make(), batches, -1, make)
        for stop in range(1, len(batches)):
            assert outcomes(make(), batches, stop, make) == straight
        seen.add(len(straight))
    assert len(seen) > 4


@plainly
def test_with_less_memory_than_before_it_goes_on_without_room_to_spare_or_is_refused(make: Make) -> None:
    rows = climbing()
    straight = make()
    straight.learn(rows)
    needed = straight.bytes_for(rows.width)
    tight = make(memory=needed)
    tight.restore(straight.state())
    assert len(tight.vector) == rows.width * tight.columns
    for solver in (straight, tight):
        solver.learn(rows)
    assert bits(tight.state(), ROOM) == bits(straight.state(), ROOM)
    with pytest.raises(DataError, match=r"index 2186: .* or raise --memory"):
        make(memory=needed - 1).restore(straight.state())


@plainly
def test_numbers_of_another_width_or_solver_are_refused(make: Make) -> None:
    solver = make(dim=40)
    solver.learn(ROWS)
    state = solver.state()
    with pytest.raises(ModelError, match="are not those of solver"):
        make(dim=41).restore(state)
    with pytest.raises(ModelError, match="are not those of solver"):
        make(dim=40).restore(state | {"scalars": np.zeros(3)})
    make(dim=40).restore(state)


# Rows that say nothing.


def test_rows_of_weight_zero_change_nothing(make: Make) -> None:
    silent = batch_of([{0: 1e30, 29: -5.0}, {}, {3: 1.0}] * 20, [1.0, 0.0, 1.0] * 20, [0.0] * 60)
    kept = select(ROWS, np.flatnonzero(ROWS.weights).tolist())
    mixed = make()
    for piece in cut(kept, range(2, kept.rows, 11)):
        mixed.learn(silent)
        mixed.learn(piece)
    mixed.learn(silent)
    mixed.finish()
    plain = run_passes(make(), [kept])
    assert mixed.scalars[SEEN] > plain.scalars[SEEN]  # they are rows, and are counted
    mixed.scalars[SEEN] = plain.scalars[SEEN]
    assert bits(mixed.state()) == bits(plain.state())


@plainly
def test_a_weight_of_two_is_two_units_of_time(case: Case, make: Make) -> None:
    solver = run_passes(make(), [ROWS])
    unit = float(solver.scalars[UNIT])
    rows = select(ROWS, np.flatnonzero(ROWS.weights).tolist())
    first = rows.weights[: min(TRIAL_ROWS, int(np.searchsorted(rows.indptr, TRIAL_FEATURES)))]
    tried = make().step_size is None and SOLVERS[case.name].has_step_size
    assert unit == (pytest.approx(float(first.mean())) if tried else 1.0)  # the usual weight of rows that were tried
    assert solver.scalars[WEIGHT] == pytest.approx(float(ROWS.weights.sum()) / unit, rel=1e-6 if tried else 1e-12)
    ticks = case.options.get("batch_size", 1)  # the clock ticks once for each mini-batch
    assert ticks * solver.scalars[T] == pytest.approx(float(solver.scalars[WEIGHT]), rel=1e-12)


@every_solver(0.01)
@pytest.mark.parametrize("loss", ["logistic", "smoothed_hinge"])
def test_a_row_of_weight_two_is_nearly_the_row_given_twice(name: str, options: dict[str, Any], loss: str) -> None:
    """The clock exactly; the weights up to what the second of two steps sees of the first, little when steps are small.

    Exactly equal they are only where steps of 1 / (l2 t) meet the same slope twice: see test_twins.py.
    """
    make = Case(name, options, loss=loss).make
    taught = run_passes(make(), [equal_weights(ROWS)], 20)
    before = np.append(*taught.weights())
    for i in range(ROWS.rows - 8, ROWS.rows):
        row = ROWS.take(i, i + 1)._replace(weights=np.ones(1, np.float32))
        if not row.features:
            continue
        row = row._replace(labels=1.0 - row.labels)  # a surprise
        ends = []
        for rows in ([row._replace(weights=row.weights + 1)], [row, row]):
            solver = make()
            solver.restore(taught.state())
            for one in rows:
                solver.learn(one)
            ends.append(solver)
        once, twice = (np.append(*solver.weights()) - before for solver in ends)
        assert np.abs(once - twice).max() < 0.15 * np.abs(twice).max()
        assert ends[0].scalars[T] == ends[1].scalars[T] == taught.scalars[T] + 2.0
        assert ends[0].scalars[WEIGHT] == ends[1].scalars[WEIGHT]


def test_an_empty_batch_changes_nothing(make: Make) -> None:
    mixed = make()
    mixed.learn(empty_batch())
    mixed.end_pass()
    mixed.begin_pass(1)
    for piece in cut(ROWS, [3, 50]):
        mixed.learn(empty_batch())
        mixed.learn(piece)
        mixed.learn(ROWS.slice(7, 7))
    mixed.finish()
    assert bits(mixed.state()) == bits(run_passes(make(), [ROWS]).state())


def test_no_rows_at_all(make: Make) -> None:
    solver = run_passes(make(), [])
    weights, b = solver.weights()
    assert len(weights) == 0 and b == 0.0 and solver.scalars[SEEN] == 0
    solver = run_passes(make(), [empty_batch()])
    assert len(solver.weights()[0]) == 0


def test_one_row(make: Make, bias: str) -> None:
    solver = run_passes(make(), [batch_of([{2: 1.0, 4: -2.0}], [1])])
    weights, b = solver.weights()
    assert len(weights) == 5 and weights[2] > 0 > weights[4] and np.all(weights[[0, 1, 3]] == 0)
    assert b > 0 if bias != "none" else b == 0
    assert solver.scalars[[SEEN, WEIGHT, WRONG]].tolist() == [1, 1, 1]


@pytest.mark.parametrize("row", [{}, {3: 0.0}], ids=["label only", "stored zeros"])
def test_rows_without_features_teach_the_bias_alone(make: Make, bias: str, row: dict[int, float]) -> None:
    weights, b = run_passes(make(), [batch_of([row] * 60, [1] * 60)]).weights()
    assert not weights.any()
    assert b > 0 if bias != "none" else b == 0


@pytest.mark.parametrize("code", [0, 1])
def test_one_class_only(make: Make, code: int) -> None:
    rows = equal_weights(ROWS)._replace(labels=np.full(ROWS.rows, code, np.float32))
    weights, b = run_passes(make(), [rows], 2).weights()
    assert np.isfinite(weights).all() and np.isfinite(b)
    if b:
        assert (b > 0) == bool(code)


# The vector.


def growing() -> Batch:
    """Rows whose indices grow, past the room that is set aside at first."""
    rows = [{j % 7: 1.0, 20 * j: 0.5 * (-1) ** j, 20 * j + 3: 1.0} for j in range(8, 110)]
    return batch_of(rows, [float(j % 3 == 0) for j in range(8, 110)])


def test_growing_with_the_largest_index_equals_room_from_the_start(make: Make) -> None:
    rows = growing()
    grown = run_passes(make(), cut(rows, range(0, rows.rows, 5)), 2)
    fixed = run_passes(make(dim=rows.width), [rows], 2)
    assert grown.width == rows.width == 2184
    assert bits(grown.state(), ROOM) == bits(fixed.state(), ROOM)
    roomy = run_passes(make(dim=5000), [rows], 2)
    assert roomy.vector.nbytes == 4 * 5000 * roomy.columns
    assert len(roomy.weights()[0]) == 5000 and not roomy.weights()[0][rows.width :].any()
    assert roomy.weights()[0][: rows.width].tobytes() == grown.weights()[0].tobytes()


@plainly
def test_an_index_beyond_dim_is_refused(make: Make) -> None:
    solver = make(dim=30)
    run_passes(solver, [ROWS])
    with pytest.raises(DataError, match=r"index 30 is out of range: features\.dim is 30"):
        run_passes(solver, [batch_of([{30: 1.0}], [1])])


@plainly
def test_what_cannot_fit_is_refused_before_it_is_allocated(make: Make) -> None:
    budget = 3 << 20
    solver = make(memory=budget)
    solver.learn(ROWS.slice(0, 5))
    huge = batch_of([{1: 1.0, 2**32 - 2: 1.0}], [1])
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"index 4294967294: .* or raise --memory") as caught:
            solver.learn(huge)
            solver.end_pass()
        assert tracemalloc.get_traced_memory()[1] < budget
    finally:
        tracemalloc.stop()
    (bits_named,) = set(re.findall(r"hash.bits:? (\d+)", str(caught.value)))
    fitting = make(memory=budget, dim=1 << int(bits_named))
    assert fitting.bytes_for(fitting.dim) <= budget
    assert fitting.vector.nbytes == 4 * fitting.columns * fitting.dim
    with pytest.raises(ConfigError, match="hash_bits"):  # and one more would not
        make(memory=budget, dim=2 << int(bits_named))


@plainly
def test_weights_may_fill_the_budget(make: Make) -> None:
    """The last growth takes what is left instead of the next power of two."""
    solver = make(memory=make().bytes_for(5000))
    solver.learn(batch_of([{3000: 1.0}], [1]))
    solver.end_pass()
    assert solver.width == 3001


# Numbers that are too large.


@pytest.mark.parametrize("size", [1e16, 1e20, 1e30, 3e38])
def test_huge_features_end_in_an_error_or_in_finite_weights(make: Make, size: float) -> None:
    values = np.clip(ROWS.values, -1, 1) * np.float32(size)
    rows = equal_weights(ROWS)._replace(values=values)
    solver = make()
    try:
        run_passes(solver, [rows], 2)
    except DivergedError as error:
        named = re.search(r"diverged in pass \d at row \d+ with step size (\S+): ", str(error))
        assert named and float(named[1]) > 0, str(error)
    else:
        weights, b = solver.weights()
        assert np.isfinite(weights).all() and np.isfinite(b)


@every_solver(0.5)
def test_divergence_names_pass_row_and_step_size(name: str, options: dict[str, Any]) -> None:
    quiet, loud = {0: 1e-3}, {0: 3e37}
    rows = batch_of([quiet, quiet, loud, quiet], [1, 1, 0, 1])
    solver = SOLVERS[name](Problem(Hinge(), L2(1e-4)), **options)
    with pytest.raises(DivergedError, match=r"diverged in pass 1 at row 3 with step size (?!0:)\S+: .*penalty\.l2"):
        run_passes(solver, [rows])
    solver = SOLVERS[name](Problem(Hinge(), L2(1e-4)), **options)
    run_passes(solver, [rows.slice(0, 2)])
    solver.begin_pass(2)
    solver.learn(rows.slice(0, 1))
    with pytest.raises(DivergedError, match=r"diverged in pass 2 at row 3 with "):
        solver.learn(rows.slice(1, 4))


EXPLICIT = ("pegasos", "sgdqn", "folos", "adagrad", "ftrl")  # whose steps by the hinge loss have no bound


@every_solver(1e6)
def test_a_last_row_that_overflows_is_not_a_model(name: str, options: dict[str, Any]) -> None:
    """No later row meets the weight that became infinite: it must be noticed all the same."""
    solver, rows = SOLVERS[name](Problem(Hinge(), L2(1e-7)), **options), batch_of([{0: 1.0}, {1: 3e38}], [1, 0])
    if name in EXPLICIT:
        with pytest.raises(DivergedError, match=r"diverged in pass 1 at row 2 with step size (?!0:)"):
            run_passes(solver, [rows])
    else:  # a step ends where the row is right
        weights, b = run_passes(solver, [rows]).weights()
        assert np.isfinite(weights).all() and abs(b) < 1e9


@every_solver(1e6)
def test_a_weight_that_no_row_meets_may_not_be_infinite(name: str, options: dict[str, Any]) -> None:
    solver = SOLVERS[name](Problem(Hinge(), L2(1e-7)), **options)
    solver.start_from(np.array([0.0, np.inf], np.float32), 0.0)
    with pytest.raises(DivergedError, match=r"diverged in pass 1 at row [12] with step size (?!0:)"):
        run_passes(solver, [batch_of([{0: 1.0}, {0: 1.0}], [1, 0])])


def test_pegasos_that_does_not_project_overflows_in_the_same_way() -> None:
    test_a_last_row_that_overflows_is_not_a_model("pegasos", {"project": False})


def lopsided(sizes: list[float]) -> Batch:
    """Rows that are easily told apart, whose features differ in size: feature j is around sizes[j % len(sizes)]."""
    rng = np.random.default_rng(4)
    codes = rng.integers(0, 2, size=120)
    sides = rng.choice([-1.0, 1.0], size=20)
    rows = []
    for code in codes:
        chosen = rng.choice(20, size=6, replace=False)
        told = (2.0 * code - 1.0) * sides[chosen] * rng.uniform(0.5, 1.5, size=6) + 0.2 * rng.normal(size=6)
        rows.append({int(j): float(sizes[j % len(sizes)] * x) for j, x in zip(chosen, told, strict=True)})
    return batch_of(rows, codes.tolist())


@pytest.mark.parametrize("sizes", [[1e6], [1.0, 1e6]], ids=["a million", "one and a million"])
def test_features_that_nobody_scaled_are_learned_or_complained_about(make: Make, sizes: list[float]) -> None:
    rows = lopsided(sizes)
    solver = make()
    try:
        run_passes(solver, [rows], 5)
    except DivergedError as error:
        assert "Scale the features to about 1" in str(error)
    else:
        weights, b = solver.weights()
        assert np.isfinite(weights).all() and np.isfinite(b)
        scores = dense(rows, 20) @ weights.astype(float) + b
        assert np.mean((scores > 0) != (rows.labels > 0)) < 0.15


@pytest.mark.parametrize("case", [case._replace(loss="logistic") for case in PLAIN_CASES], ids=str)
def test_more_passes_do_not_make_it_worse(make: Make) -> None:
    """However weights are stored, scaled and written out again, they do not drift away."""
    rows = equal_weights(ROWS)
    solver = make()
    reached = []
    for number in range(1, 101):
        solver.begin_pass(number)
        solver.learn(rows)
        solver.end_pass()
        reached.append(solver_base.objective_on(solver.problem, rows, *solver.weights()))
    assert reached[99] <= 1.01 * reached[49] and reached[99] < 1.01 * reached[0]


def test_long_rows_after_a_quiet_beginning_do_not_explode(make: Make) -> None:
    """Squared hinge has slopes without bound: a step must not throw the score further than it was off."""
    quiet, loud = equal_weights(ROWS), equal_weights(made_up(60, seed=2))
    loud = loud._replace(values=loud.values * np.float32(1e6))
    solver = run_passes(make(), [quiet, loud, quiet], 2)
    weights, b = solver.weights()
    assert np.isfinite(weights).all() and np.isfinite(b)
    assert np.abs(weights).max() < 1e9


@every_solver(0.5)
def test_a_steep_step_goes_no_further_than_to_where_the_loss_is_least(name: str, options: dict[str, Any]) -> None:
    """Weight 1000 means that the row came a thousand times, not that one step may be a thousand times too long."""
    solver = SOLVERS[name](Problem(SquaredHinge(), L2(1e-6)), **options)
    solver.start_from(np.array([-2.0, 1.0], np.float32), 0.0)
    row = batch_of([{0: 4.0, 1: -3.0}], [1], [1000.0])
    run_passes(solver, [row])
    weights, b = solver.weights()
    assert -1 < 4 * weights[0] - 3 * weights[1] + b < 1.01  # it was -11


@every_solver(2.0)
@pytest.mark.parametrize("weight", [1.0, 30.0, 1e6])
def test_shrinking_never_turns_the_weights_around(name: str, options: dict[str, Any], weight: float) -> None:
    known = np.array([1.0, -2.0, 0.5], np.float32)
    solver = SOLVERS[name](Problem(Hinge(), L2(0.5)), **options)
    solver.start_from(known, 0.0)
    run_passes(solver, [batch_of([{}] * 3, [1, 0, 1], [weight] * 3)])
    shrunk = solver.weights()[0] / known
    assert np.all(shrunk >= 0) and np.all(shrunk < 1) and np.ptp(shrunk) < 1e-6


# Where it begins.


def test_known_weights_are_given_back_before_anything_is_learned(make: Make) -> None:
    known = np.random.default_rng(3).normal(size=17).astype(np.float32)
    solver = make()
    solver.start_from(known, 0.75)
    weights, b = solver.weights()
    assert weights.tobytes() == known.tobytes() and b == 0.75
    resumed = make()
    resumed.restore(solver.state())
    for other in (solver, resumed):
        other.scalars[T] = 100.0  # as train does with the model's own clock
        run_passes(other, [ROWS.slice(0, 30)])
    assert bits(solver.state()) == bits(resumed.state())
    assert len(solver.weights()[0]) == 30


@every_solver(0.1)
def test_known_weights_are_where_learning_begins(name: str, options: dict[str, Any]) -> None:
    """A good start, late on the clock, stays good; the same row order from zero is far away."""
    known = np.linspace(-1, 1, 30).astype(np.float32)
    solver = SOLVERS[name](Problem(SquaredHinge(), L2(STRENGTH)), **options)
    solver.start_from(known, 0.5)
    solver.scalars[T] = 1e6
    run_passes(solver, [ROWS])
    weights, b = solver.weights()
    assert np.allclose(weights, known, atol=1e-2) and abs(b - 0.5) < 1e-2


@pytest.mark.parametrize("project", [True, False])
def test_known_weights_of_pegasos_are_projected_too(project: bool) -> None:
    solver = SOLVERS["pegasos"](Problem(Hinge(), L2(0.25)), project=project)
    solver.start_from(np.array([30.0, 40.0], np.float32), 0.0)
    solver.scalars[T] = 1e6
    run_passes(solver, [batch_of([{0: 1.0}], [1])])
    assert np.linalg.norm(solver.weights()[0]) == pytest.approx(2.0 if project else 50.0, rel=1e-5)


# The step size.


@EVERY_LOSS
@EVERY_BIAS
@pytest.mark.parametrize("name", STEPPED)
def test_the_step_size_depends_on_the_first_rows_only(name: str, loss: str, bias: str) -> None:
    make = Case(name, {}, loss=loss, bias=bias).make
    first = equal_weights(ROWS).slice(0, TRIAL_ROWS)
    others = [made_up(60, 50, seed=seed) for seed in (5, 6)]
    steps = {run_passes(make(), [first, other]).step_size for other in others}
    assert len(steps) == 1 and steps == {run_passes(make(), [first, others[0]]).step_size}
    scaled = first._replace(values=first.values * np.float32(64))
    assert run_passes(make(), [scaled, others[0]]).step_size not in steps


@EVERY_LOSS
@pytest.mark.parametrize("name", STEPPED)
@pytest.mark.parametrize("seed", range(4))
def test_a_chosen_step_size_beats_its_neighbours(name: str, loss: str, seed: int) -> None:
    """And all others near the guess: rows are judged before they are learned, but for the first of them."""
    make = Case(name, {}, loss=loss).make
    rows = equal_weights(made_up(TRIAL_ROWS, 20, seed=seed, longest=3, noise=2.0))
    chosen = run_passes(make(), [rows]).step_size
    assert chosen is not None and np.log2(chosen) == round(np.log2(chosen))
    given_it = SOLVERS[name](make().problem, eta0=chosen)
    assert bits(run_passes(given_it, [rows]).state()) == bits(run_passes(make(), [rows]).state())

    lengths2 = np.sort(np.square(dense(rows, 20)).sum(axis=1))[: int((1 - step_size.LONGEST) * rows.rows)]
    guess = 2.0 ** round(np.log2(make().guess(lengths2.mean() + make().problem.bias.gain)))
    order = random_order(rows.rows, step_size.MIXED)
    edges = sorted({0, *(rows.rows * look // step_size.LOOKS for look in range(step_size.LOOKS + 1))})

    def cost(power: float) -> float:
        trial, values = SOLVERS[name](make().problem, eta0=guess * 2.0**power), []
        for part in (select(rows, order[a:b].tolist()) for a, b in pairwise(edges)):
            scores, signs = trial.scores(part).tolist(), (2.0 * part.labels - 1.0).tolist()
            values += [trial.problem.loss.value(score, sign) for score, sign in zip(scores, signs, strict=True)]
            trial.learn(part)
        judged = np.minimum(values, step_size.CAP * trial.problem.loss.value(0.0, 1.0))[edges[2] :]
        return trial.problem.objective(*trial.weights(), judged.mean()) * (1.0 + step_size.FAR * abs(power))

    best = float(np.log2(chosen / guess))
    solver = make()
    allowed = 1.0 + solver.worse_by
    below = [best - 1.0] if best > step_size.POWERS[0] else []
    others = [cost(power) for power in (*step_size.SCAN, *below, best + 1.0)]
    assert cost(best) <= allowed * min(others) * (1.0 + 1e-12)
    assert (
        allowed == 1.0 or solver.doublings == 1 or cost(best + 1.0) > cost(best)
    )  # else larger steps would have been taken


@EVERY_LOSS
@pytest.mark.parametrize("name", STEPPED)
def test_first_rows_that_mislead_do_not_stop_all_learning(name: str, loss: str) -> None:
    """Sorted data: what the trial learns is wrong for its unseen rows. Later rows must still be able to teach."""
    good = equal_weights(made_up(1500, 10, seed=8, noise=0.0))
    misleading = batch_of([{0: 1.0, 1: 1.0}] * TRIAL_ROWS, [float(row >= 30) for row in range(TRIAL_ROWS)])
    solver = run_passes(Case(name, {}, loss=loss).make(), [misleading, good, good, good])
    weights, b = solver.weights()
    scores = dense(good, 10) @ weights + b
    assert np.mean((scores > 0) != (good.labels > 0)) < 0.25


@pytest.mark.parametrize("case", [case for case in PLAIN_CASES if case.name in STEPPED], ids=str)
def test_trials_are_runs_of_the_same_solver(case: Case) -> None:
    trial = case.make().fresh(0.5)
    same = case._replace(options=case.options | {"eta0": 0.5}).make()
    assert bits(run_passes(trial, [ROWS]).state()) == bits(run_passes(same, [ROWS]).state())


@plainly
def test_a_given_step_size_is_kept(case: Case, make: Make) -> None:
    solver = run_passes(make(), [ROWS])
    assert (solver.step_size is not None) == (solver.scalars[STEP] > 0) == SOLVERS[case.name].has_step_size
    assert solver.step_size == case.options.get("eta0", solver.step_size)


# What is counted.


def test_losses_and_errors_are_progressive_and_start_over_with_a_pass(make: Make) -> None:
    rows = equal_weights(ROWS)
    solver, twin = make(), make()
    run_passes(solver, [rows], 2)
    total = 0.0
    twin.begin_pass(1)
    twin.learn(rows)
    twin.end_pass()
    twin.begin_pass(2)
    assert twin.scalars[[WEIGHT, WRONG]].tolist() == [0, 0] and twin.scalars[SEEN] == rows.rows
    for i in range(rows.rows):
        before = float(twin.scalars[solver_base.LOSS])
        twin.learn(rows.slice(i, i + 1))
        total += float(twin.scalars[solver_base.LOSS]) - before
    assert solver.scalars[SEEN] == 2 * rows.rows and solver.scalars[WEIGHT] == rows.rows
    assert solver.scalars[solver_base.LOSS] == pytest.approx(total)
    assert 0 < solver.scalars[WRONG] < rows.rows / 2


def test_names_in_the_registry_are_the_solvers_own() -> None:
    assert {"asgd", "sgd", "pegasos", "sgdqn", "zhang"} <= set(SOLVERS) and next(iter(SOLVERS)) == "asgd"
    assert all(solver.name == name for name, solver in SOLVERS.items())


def test_exemptions_have_reasons_and_name_tests() -> None:
    here = Path(__file__).parent
    tests = set(re.findall(r"(?m)^def (test_\w+)", "".join(path.read_text() for path in here.glob("test_*.py"))))
    for solver in SOLVERS.values():
        assert set(solver.exempt) <= tests and all(len(reason) > 20 for reason in solver.exempt.values()), solver.name


@pytest.mark.parametrize("name", list(SOLVERS))
@pytest.mark.parametrize("penalty", list(PENALTIES))
def test_a_penalty_it_cannot_minimise_is_refused_with_those_that_can(name: str, penalty: str) -> None:
    problem = Problem(Hinge(), PENALTIES[penalty])
    assert problem.penalty.kind == penalty
    if penalty in SOLVERS[name].penalties:
        assert make_solver(name, problem).name == name
        return
    able = ", ".join(other for other, solver in SOLVERS.items() if penalty in solver.penalties) or "none"
    with pytest.raises(
        ConfigError, match=f"solver {name} cannot minimise penalty {penalty}; solvers that can: {able}$"
    ):
        make_solver(name, problem)
    with pytest.raises(ConfigError, match=f"solver {name} cannot minimise penalty {penalty}$"):
        SOLVERS[name](problem)
