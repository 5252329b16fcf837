"""Several classes in one pass: each is, number for number, what the plain solver gives that learns `this class or not`.

Solvers are found by themselves. Zeros may differ in their sign, and nothing is noted for a lower bound.
"""

import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
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
from tiers import examples

from streamsvm.batch import Batch, concatenate, empty_batch
from streamsvm.errors import ConfigError, DataError, DivergedError, ModelError
from streamsvm.losses import Hinge, make_loss
from streamsvm.penalties import L1, L2, ElasticNet, Penalty
from streamsvm.scoring import score_rows
from streamsvm.solvers import SOLVERS, OnlineSolver, pegasos, sgd
from streamsvm.solvers import base as solver_base
from streamsvm.solvers.base import LOSS, SEEN, UNIT, WEIGHT, WRONG, Problem, T, make_bias
from streamsvm.solvers.many import OVA, make_many
from streamsvm.solvers.many.solver import ManyClasses, padded

TRIAL_ROWS, TRIAL_FEATURES = 40, 150
PENALTIES: dict[str, Penalty] = {
    "l2": L2(0.02),
    "l1": L1(1e-3),
    "elastic_net": ElasticNet(0.02, 1e-3),
    "none": L2(0.0),
}
PEGASOS: list[dict[str, Any]] = [
    {},
    {"batch_size": 7},
    {"batch_size": 3, "project": False},
    {"average": True, "batch_size": 2},
    {"average": True},
]
# What the plain solver notes for a lower bound, or counts otherwise.
UNLIKE = {
    "sgd": [sgd.ALPHAS, sgd.WRITES, sgd.WRITTEN],
    "pegasos": [pegasos.ALPHAS, pegasos.WRITES, pegasos.WRITTEN, pegasos.BATCH_ALPHAS],
}


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

    @property
    def problem(self) -> Problem:
        return Problem(make_loss(self.loss), PENALTIES[self.penalty], make_bias(self.bias, 1.5))

    def many(self, classes: int = 0, **more: Any) -> ManyClasses:
        return OVA[self.name](self.problem, classes=classes, **self.options, **more)

    def plain(self, **more: Any) -> OnlineSolver:
        return SOLVERS[self.name](self.problem, **self.options, **more)


def variants(name: str) -> list[dict[str, Any]]:
    """What is peculiar to a solver, with a step size given and chosen by trial."""
    own: dict[str, list[dict[str, Any]]] = {
        "pegasos": PEGASOS,
        "sgdqn": [{"skip": 3, "eta0": 0.25}, {"skip": 2}],
        "ftrl": [{"eta0": 0.25}, {"beta": 0.25}],
    }
    return own.get(name, [{"eta0": 0.25}, {}])


CASES = [Case(name, options, penalty) for name in OVA for options in variants(name) for penalty in OVA[name].penalties]
EACH = [Case(name, variants(name)[0], penalty) for name in OVA for penalty in OVA[name].penalties]
# Slopes that are steep, and that are never zero; the other loss differs in nothing that a solver could get wrong.
STEEP = [
    Case(name, options, penalty, "squared_hinge", bias)
    for name in OVA
    for options in variants(name)
    for penalty, bias in zip(OVA[name].penalties, ("free", "none", "penalised", "free"), strict=False)
]
NEVER_ZERO = [
    *(Case(name, variants(name)[0], loss="logistic", bias="free") for name in OVA),
    Case("sgd", {}, loss="smoothed_hinge", bias="none"),
]


def core_has(case: Case) -> Any:
    """One solver of each build: plain steps, mini-batches, a step size for each feature. The loss is a type to them."""
    return case if case.name in ("sgd", "pegasos", "adagrad") else pytest.param(case, marks=pytest.mark.full)


every_case = pytest.mark.parametrize("case", CASES, ids=str)
each_once = pytest.mark.parametrize("case", EACH, ids=str)
every_name = pytest.mark.parametrize("name", list(OVA))
STEPPED = [name for name in OVA if OVA[name].has_step_size]


@pytest.fixture(autouse=True, scope="module")
def short_trial() -> Iterator[None]:
    """Step sizes are chosen on a few rows, so that small tests get past that point."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver_base, "TRIAL_ROWS", TRIAL_ROWS)
        patch.setattr(solver_base, "TRIAL_FEATURES", TRIAL_FEATURES)
        yield


def classed(rows: Batch, classes: int, seed: int = 3) -> Batch:
    """The same rows with classes that hyperplanes tell apart, but for some noise; codes in the order of appearance."""
    rng = np.random.default_rng(seed)
    planes = rng.normal(size=(rows.width, classes))
    scores = dense(rows, rows.width) @ planes + 0.3 * rng.normal(size=(rows.rows, classes))
    return rows._replace(labels=in_order(scores.argmax(axis=1)))


def in_order(codes: Any) -> Any:
    """Codes 0, 1, 2, ... by first appearance."""
    _, first, places = np.unique(codes, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[places].astype(np.float32)


def one_or_not(rows: Batch, k: int) -> Batch:
    return rows._replace(labels=(rows.labels == k).astype(np.float32))


ROWS = made_up(110, seed=1)
FIVE = classed(ROWS, 5)
SEVENTEEN = classed(ROWS, 17)
CLIMB = climbing()._replace(labels=in_order(np.arange(102) * 7 % 5))


def count(rows: Batch) -> int:
    return int(rows.labels.max(initial=-1)) + 1


def find(solver: ManyClasses, batches: Sequence[Batch], passes: int = 1) -> ManyClasses:
    """run_passes for classes that are found: before each batch it is said how many there are."""
    known = solver.classes
    for number in range(1, passes + 1):
        solver.begin_pass(number)
        for batch in batches:
            known = max(known, count(batch))
            solver.admit(known)
            solver.learn(batch)
        solver.end_pass()
    solver.finish()
    return solver


def settled(case: Case, solver: OnlineSolver) -> Case:
    """The same with the step size that a solver has."""
    return case._replace(options=case.options | {"eta0": solver.step_size}) if case.name in STEPPED else case


def alike(case: Case, solver: OnlineSolver) -> OnlineSolver:
    """The plain solver with the step size that a solver has, and with weights relative to the same."""
    plain = settled(case, solver).plain()
    plain.scalars[UNIT] = solver.scalars[UNIT]
    return plain


def same(left: Any, right: Any) -> bool:
    """Equal numbers, 0 and -0 are; halves of numbers in double may look like no number, and then have equal bits."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return bool(np.all((left == right) | (left.view(f"u{left.itemsize}") == right.view(f"u{right.itemsize}"))))


def check_class(case: Case, many: ManyClasses, k: int, plain: OnlineSolver) -> None:
    """Equal in every number (0 and -0 are), and so is what comes of it."""
    state, expected = flat(many.one(k).state(), ROOM), flat(plain.state(), ROOM)
    assert state.keys() == expected.keys()
    for scalars in (state["scalars"], expected["scalars"]):
        scalars[[WRONG, *UNLIKE.get(case.name, [])]] = 0.0
    for name, array in state.items():
        assert same(array, expected[name]), (k, name)
    weights, bias = many.weights()
    alone, b = plain.weights()
    assert weights.dtype == np.float32 and weights.shape == (many.width, many.classes) and bias.dtype == np.float64
    assert np.array_equal(weights[:, k], alone) and bias[k] == b
    assert np.array_equal(many.one(k).weights()[0], alone) and many.one(k).weights()[1] == b


def check_idle(many: ManyClasses) -> None:
    """Lanes that have no class all hold the same numbers."""
    for table in [*many._used(), many.numbers[list(many.apart)]]:
        idle = table[..., many.classes :]
        assert np.array_equal(idle, np.repeat(idle[..., -1:], idle.shape[-1], axis=-1))


def compare(case: Case, many: ManyClasses, rows: Batch, passes: int) -> None:
    """With plain solvers that learn one class each."""
    again = settled(case, many)
    total = 0.0
    for k in range(many.classes):
        plain = run_passes(alike(case, many), [one_or_not(rows, k)], passes)
        check_class(again, many, k, plain)
        total += plain.scalars[LOSS]
    check_idle(many)
    assert many.scalars[LOSS] == pytest.approx(total, rel=1e-12)
    assert many.scalars[SEEN] == passes * rows.rows
    assert many.scalars[WEIGHT] * many.scalars[UNIT] == pytest.approx(float(rows.weights.sum(dtype=float)), rel=1e-6)


# The contract.


@pytest.mark.parametrize("classes", [5, 10, 17, 2, 3])  # the core takes most cases with the first
@pytest.mark.parametrize("case", [*CASES, *STEEP], ids=str)
def test_every_class_is_what_the_plain_solver_makes_of_it(case: Case, classes: int) -> None:
    rows = classed(ROWS, classes)
    assert count(rows) == classes
    many = case.many(classes)
    run_passes(many, cut(rows, [33, 70]), 2)
    assert classes <= many.lanes == padded(classes, OVA[case.name].lanes_by) and many.weights()[0].any(axis=0).all()
    compare(case, many, rows, 2)


@pytest.mark.parametrize("case", [core_has(case) for case in NEVER_ZERO], ids=str)
def test_every_class_is_what_the_plain_solver_makes_of_it_whatever_the_loss(case: Case) -> None:
    many = case.many(5)
    run_passes(many, cut(FIVE, [50]), 2)
    compare(case, many, FIVE, 2)


@pytest.mark.parametrize("case", [*EACH, *(Case("pegasos", options) for options in PEGASOS)], ids=str)
def test_the_same_where_scales_are_written_out_and_the_vector_grows(case: Case) -> None:
    many = case.many(5)
    run_passes(many, cut(CLIMB, [1, 7, 19, 30, 51, 75, 97]), 3)
    compare(case, many, CLIMB, 3)


@each_once
def test_rows_in_another_order(case: Case) -> None:
    order = np.random.default_rng(2).permutation(FIVE.rows)[:90]
    many = case.many(5)
    many.learn(FIVE, order)
    many.finish()
    shuffled = select(FIVE, order.tolist())
    for k in range(5):
        check_class(case, many, k, run_passes(case.plain(), [one_or_not(shuffled, k)]))


@every_name
def test_a_thousand_classes(name: str) -> None:
    case = Case(name, variants(name)[0], loss="squared_hinge")
    rows = made_up(60, 12, seed=4)._replace(labels=np.arange(60, dtype=np.float32) * 17)
    many = find(case.many(), [rows.slice(0, 2), rows.slice(2, 60)])
    declared = case.many(1004)
    run_passes(declared, [rows])
    assert many.classes == 1004 == many.weights()[0].shape[1] and many.lanes % 4 == 0
    for k in (0, 1, 17, 500, 1002, 1003):
        plain = run_passes(case.plain(), [one_or_not(rows, k)])
        check_class(case, many, k, plain)
        check_class(case, declared, k, plain)


@pytest.mark.parametrize("name", ["sgd", "pegasos", "sgdqn", "folos", "adagrad", "ftrl"])
@pytest.mark.parametrize("declared", [0, 17])
def test_a_row_counts_as_wrong_if_another_known_class_has_a_larger_score(name: str, declared: int) -> None:
    """By a slow twin. A class that is to be found is not known before its first row, so that row is wrong."""
    case = Case(name, variants(name)[0], loss="squared_hinge")
    wrong, known = 0.0, declared
    many = case.many(declared)
    for i in range(SEVENTEEN.rows):
        row = SEVENTEEN.slice(i, i + 1)
        own = int(row.labels[0])
        if row.weights[0]:
            scores = score_rows(row, *many.weights())[0, :known]
            wrong += float(row.weights[0]) if known == 0 or scores.argmax() != own else 0.0
            known = max(known, own + 1)
        many.admit(max(many.classes, own + 1))
        many.learn(row)
        assert many.scalars[WRONG] == wrong
    assert 0.0 < wrong < SEVENTEEN.weights.sum()


# Classes that are found.


@pytest.mark.parametrize("case", CASES, ids=str)
def test_classes_that_are_found_end_where_declared_ones_do(case: Case) -> None:
    @examples(8, derandomize=True)
    @given(st.data())
    def examine(data: st.DataObject) -> None:
        classes = data.draw(st.sampled_from([1, 3, 4, 5, 9, 17, 30]))
        codes = data.draw(st.lists(st.integers(0, classes - 1), min_size=ROWS.rows, max_size=ROWS.rows))
        rows = ROWS._replace(labels=in_order(np.sort(codes) if data.draw(st.booleans()) else codes))
        pieces = cut(rows, data.draw(st.lists(st.integers(0, rows.rows), max_size=8)))
        found, declared = find(case.many(), pieces, 2), case.many(count(rows))
        run_passes(declared, [rows], 2)
        assert found.classes == declared.classes and found.step_size == declared.step_size
        check_idle(found)
        assert found.known == count(select(rows, np.flatnonzero(rows.weights).tolist()))
        if found.known < count(rows):  # a class all of whose rows weigh nothing is declared, but never becomes known
            for solver in (found, declared):
                solver.scalars[[WRONG, -1]] = 0.0
        assert found.scalars.tolist() == declared.scalars.tolist()
        assert np.array_equal(found.weights()[0], declared.weights()[0])
        assert np.array_equal(found.weights()[1], declared.weights()[1])
        for k in range(count(rows)):
            state, expected = flat(found.one(k).state(), ROOM), flat(declared.one(k).state(), ROOM)
            assert all(same(array, expected[name]) for name, array in state.items())

    examine()


@each_once
def test_lanes_widen_again_and_again_while_the_vector_grows(case: Case) -> None:
    rows = concatenate([CLIMB, CLIMB._replace(labels=in_order(np.arange(102) % 40) + 5)])
    found = case.many()
    widths = set()
    for number in (1, 2):
        found.begin_pass(number)
        for i in range(rows.rows):
            found.admit(max(found.classes, int(rows.labels[i]) + 1))
            found.learn(rows.slice(i, i + 1))
            widths.add(found.lanes)
        found.end_pass()
    found.finish()
    assert len(widths) >= 5 and found.classes == 45
    declared = case.many(45)
    run_passes(declared, [rows], 2)
    assert np.array_equal(found.weights()[0], declared.weights()[0])
    assert np.array_equal(found.weights()[1], declared.weights()[1])
    for k in (0, 4, 5, 44):
        check_class(case, found, k, run_passes(case.plain(), [one_or_not(rows, k)], 2))


@every_name
def test_a_class_that_was_declared_and_never_comes(name: str) -> None:
    case = Case(name, {})
    more, exact = case.many(7), case.many(5)
    for solver in (more, exact):
        run_passes(solver, [FIVE])
    assert more.step_size == exact.step_size
    assert np.array_equal(more.weights()[0][:, :5], exact.weights()[0])
    assert more.scalars[WRONG] >= exact.scalars[WRONG]
    for k in (5, 6):
        check_class(case, more, k, run_passes(alike(case, more), [one_or_not(FIVE, k)]))


@pytest.mark.parametrize("name", STEPPED)
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_the_step_size_depends_on_the_classes_of_the_first_rows_only(name: str, loss: str) -> None:
    case = Case(name, {}, loss=loss)
    first = classed(equal_weights(ROWS), 6).slice(0, TRIAL_ROWS)
    later = made_up(30, seed=9)._replace(labels=np.arange(30, dtype=np.float32) + count(first))
    steps = set()
    for classes in (count(first) + 30, count(first) + 50):
        solver = case.many(classes)
        run_passes(solver, [first, later])
        steps.add(solver.step_size)
    for pieces in ([first, later], [*cut(first, [3, 17]), later.slice(0, 7)], [first]):
        steps.add(find(case.many(), pieces).step_size)
    assert len(steps) == 1 and None not in steps
    scaled = first._replace(values=first.values * np.float32(64))
    assert find(case.many(), [scaled]).step_size not in steps


def test_a_trial_has_no_more_classes_than_are_needed() -> None:
    """The most frequent ones; to all others a row may belong, but no lane learns them."""
    rows = made_up(40, seed=2)._replace(labels=np.arange(40, dtype=np.float32))
    solver, trial = Case("ftrl", {}).many(40).trial_of(rows)
    assert isinstance(solver, ManyClasses) and solver.classes == 32
    assert set(trial.labels.tolist()) == set(range(33))


# The order of rows alone decides, wherever it is cut or stopped.


def points(rows: int, most: int = 6) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, rows), max_size=most)


@every_case
def test_cutting_the_rows_differently_does_not_change_one_bit(case: Case) -> None:
    @examples(6, derandomize=True)
    @given(st.data())
    def examine(data: st.DataObject) -> None:
        rows = FIVE.slice(0, data.draw(st.integers(0, FIVE.rows)))
        whole, parts = case.many(5), case.many(5)
        run_passes(whole, [rows], 2)
        run_passes(parts, cut(rows, data.draw(points(rows.rows))), 2)
        assert bits(whole.state()) == bits(parts.state())

    examine()


@every_case
def test_going_on_from_a_state_equals_never_having_stopped(case: Case) -> None:
    @examples(6, derandomize=True)
    @given(st.data())
    def examine(data: st.DataObject) -> None:
        declared = data.draw(st.sampled_from([0, 17]))
        pieces = cut(SEVENTEEN, data.draw(points(SEVENTEEN.rows)))
        stops = data.draw(st.sets(st.integers(0, 2 * len(pieces) - 1)))
        solvers = [case.many(declared), case.many(declared)]
        for number in (1, 2):
            for solver in solvers:
                solver.begin_pass(number)
            for place, piece in enumerate(pieces):
                for solver in solvers:
                    if not declared:
                        solver.admit(max(solver.classes, count(piece)))
                    solver.learn(piece)
                if (number - 1) * len(pieces) + place in stops:
                    state = solvers[0].state()
                    solvers[0] = case.many(declared)
                    solvers[0].restore(state)
                    spoil(state)
                assert bits(solvers[0].state()) == bits(solvers[1].state())
            for solver in solvers:
                solver.end_pass()
        for solver in solvers:
            solver.finish()
        assert bits(solvers[0].state()) == bits(solvers[1].state())

    examine()


@every_case
def test_looking_changes_nothing_and_states_hold_plain_arrays_and_numbers(case: Case) -> None:
    watched, left_alone = case.many(5), case.many(5)
    for solver in (watched, left_alone):
        for piece in cut(FIVE, range(5, FIVE.rows, 9)):
            solver.learn(piece)
            if solver is watched:
                for path, value in flat(solver.state()).items():
                    assert type(value) is int or (type(value) is np.ndarray and value.dtype.kind in "fiu"), path
                spoil(solver.state())
                spoil(solver.one(2).state())
                for array in solver.weights():
                    array[...] = 77
        solver.finish()
    assert bits(watched.state()) == bits(left_alone.state())


@each_once
def test_a_state_restores_into_a_solver_that_has_learned_other_classes(case: Case) -> None:
    good, other = find(case.many(), [SEVENTEEN.slice(0, 50)]), find(case.many(), [FIVE])
    other.restore(good.state())
    for solver in (good, other):
        solver.admit(17)
        solver.learn(SEVENTEEN.slice(50, 110))
        solver.finish()
    assert bits(good.state()) == bits(other.state())


@each_once
def test_rows_of_weight_zero_change_nothing(case: Case) -> None:
    silent = batch_of([{0: 1e30, 29: -5.0}, {}, {3: 1.0}] * 20, [1.0, 4.0, 0.0] * 20, [0.0] * 60)
    kept = select(FIVE, np.flatnonzero(FIVE.weights).tolist())
    mixed, plain = case.many(5), case.many(5)
    for piece in cut(kept, range(2, kept.rows, 11)):
        mixed.learn(silent)
        mixed.learn(piece)
        mixed.learn(empty_batch())
    mixed.finish()
    run_passes(plain, [kept])
    assert mixed.scalars[SEEN] > plain.scalars[SEEN]  # they are rows, and are counted
    mixed.scalars[SEEN] = plain.scalars[SEEN]
    assert bits(mixed.state()) == bits(plain.state())


@each_once
def test_no_rows_at_all(case: Case) -> None:
    for solver in (case.many(5), case.many()):
        run_passes(solver, [empty_batch()], 2)
        assert solver.weights()[0].shape == (0, solver.classes) and not solver.weights()[1].any()


@each_once
def test_growing_with_the_largest_index_equals_room_from_the_start(case: Case) -> None:
    grown, fixed, roomy = case.many(5), case.many(5, dim=CLIMB.width), case.many(5, dim=5000)
    run_passes(grown, cut(CLIMB, range(0, CLIMB.rows, 5)), 2)
    for solver in (fixed, roomy):
        run_passes(solver, [CLIMB], 2)
    assert grown.width == CLIMB.width == 2187
    assert bits(grown.state(), ROOM) == bits(fixed.state(), ROOM)
    assert roomy.vector.nbytes == 4 * 5000 * roomy.columns
    weights = roomy.weights()[0]
    assert not weights[CLIMB.width :].any() and np.array_equal(weights[: CLIMB.width], grown.weights()[0])


# Where it begins.


@every_case
@pytest.mark.parametrize("found", [False, True])
def test_known_weights_are_where_each_class_begins(case: Case, found: bool) -> None:
    rng = np.random.default_rng(3)
    known, bias = rng.normal(size=(17, 5)).astype(np.float32), rng.normal(size=5)
    known[:, 1], bias[2], known[3:9, 4] = 0.0, 0.0, 0.0
    many = case.many(0 if found else 5)
    many.admit(5)
    many.start_from(known, bias)
    assert np.array_equal(many.weights()[0], known) and np.array_equal(many.weights()[1], bias)
    resumed = case.many(0 if found else 5)
    resumed.restore(many.state())
    for solver in (many, resumed):
        solver.scalars[T] = 100.0  # as train does with the model's own clock
        run_passes(solver, cut(FIVE, [20]), 2)
    assert bits(many.state()) == bits(resumed.state())
    again = settled(case, many)
    for k in range(5):
        plain = alike(case, many)
        plain.start_from(known[:, k].copy(), float(bias[k]))
        plain.scalars[T] = 100.0
        check_class(again, many, k, run_passes(plain, [one_or_not(FIVE, k)], 2))
    check_idle(many)


@every_name
def test_a_class_that_comes_after_known_weights_begins_with_zeros(name: str) -> None:
    case = Case(name, variants(name)[0])
    known = np.random.default_rng(3).normal(size=(30, 5)).astype(np.float32)
    many = case.many()
    many.admit(5)
    many.start_from(known, np.ones(5))
    find(many, [SEVENTEEN.slice(0, 9), SEVENTEEN.slice(9, 110)])
    for k in (3, 16):
        plain = case.plain()
        if k < 5:
            plain.start_from(known[:, k].copy(), 1.0)
        check_class(case, many, k, run_passes(plain, [one_or_not(SEVENTEEN, k)]))


@every_name
def test_weights_for_another_number_of_classes_are_refused(name: str) -> None:
    many = Case(name, {}).many(5)
    for shape in ((30, 4), (30, 6), (30,)):
        with pytest.raises(ModelError, match=f"{shape[-1]}.*, for 5 classes"):
            many.start_from(np.zeros(shape, np.float32), np.zeros(5))


# What is refused.


@every_name
def test_more_classes_than_were_declared_are_refused(name: str) -> None:
    many = Case(name, {}).many(5)
    many.admit(5)
    many.admit(2)
    with pytest.raises(ModelError, match="6 classes, where 5 were declared"):
        many.admit(6)


@each_once
def test_numbers_of_other_classes_or_settings_are_refused(case: Case) -> None:
    good = case.many(5, dim=40)
    good.learn(FIVE)
    state = good.state()
    case.many(5, dim=40).restore(state)
    for wrong in (
        {"classes": 9},
        {"numbers": state["numbers"][:-1]},
        {"numbers": state["numbers"][:, :-1]},
        {"scalars": np.zeros(3)},
        {"vector": state["vector"][:-1]},
    ):
        with pytest.raises(ModelError, match="are not those of solver"):
            case.many(5, dim=40).restore(state | wrong)
    with pytest.raises(ModelError, match="are not those of solver"):
        case.many(5, dim=41).restore(state)


@each_once
def test_what_cannot_fit_is_refused_before_it_is_allocated(case: Case) -> None:
    budget = 3 << 20
    many = case.many(5, memory=budget)
    many.learn(FIVE.slice(0, 5))
    huge = batch_of([{1: 1.0, 2**32 - 2: 1.0}], [1])
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"index 4294967294: .* or raise --memory") as caught:
            many.learn(huge)
        assert tracemalloc.get_traced_memory()[1] < budget
    finally:
        tracemalloc.stop()
    (bits_named,) = set(re.findall(r"hash.bits:? (\d+)", str(caught.value)))
    fitting = case.many(5, memory=budget, dim=1 << int(bits_named))
    assert fitting.vector.nbytes == 4 * fitting.columns * fitting.dim <= budget
    with pytest.raises(ConfigError, match="hash_bits"):  # and one more would not
        case.many(5, memory=budget, dim=2 << int(bits_named))


@each_once
def test_classes_that_cannot_fit_are_refused(case: Case) -> None:
    many = case.many(memory=case.many(8).bytes_for(1200))
    many.admit(3)
    many.learn(batch_of([{1150: 1.0}], [1]))
    many.end_pass()
    with pytest.raises(DataError, match=r"4 classes: solver \w+ would need .* fewer features \(--hash-bits\)"):
        many.admit(200)
    assert many.classes == 3 and many.weights()[0].shape == (1151, 3)  # and it could go on without them


# Numbers that are too large.


@every_name
def test_divergence_names_pass_and_row(name: str) -> None:
    options = {"eta0": 0.5} if name in STEPPED else {}
    quiet, loud = {0: 1e-3}, {0: 3e37}
    rows = batch_of([quiet, quiet, loud, quiet], [1, 0, 2, 0])
    many = OVA[name](Problem(Hinge(), L2(1e-4)), classes=9, **options)
    with pytest.raises(DivergedError, match=r"diverged in pass 1 at row [34] with step size (?!0:)\S+: "):
        run_passes(many, [rows])
    many = OVA[name](Problem(Hinge(), L2(1e-4)), classes=3, **options)
    run_passes(many, [rows.slice(0, 2)])
    many.begin_pass(2)
    many.learn(rows.slice(0, 1))
    with pytest.raises(DivergedError, match=r"diverged in pass 2 at row [34] with "):
        many.learn(rows.slice(1, 4))


@every_name
@pytest.mark.parametrize("own", [0, 4])
def test_a_last_row_that_overflows_is_not_a_model(name: str, own: int) -> None:
    """No later row meets the weight that became infinite: it must be noticed all the same."""
    options = {"eta0": 1e6} if name in STEPPED else {"project": False}
    many = OVA[name](Problem(Hinge(), L2(1e-7)), classes=5, **options)
    rows = batch_of([{0: 1.0}, {1: 3e38}], [1, own])
    if name in ("pegasos", "sgdqn", "folos", "adagrad", "ftrl"):
        with pytest.raises(DivergedError, match=r"diverged in pass 1 at row 2 with step size (?!0:)"):
            run_passes(many, [rows])
    else:  # implicit steps, and those with a cap, end before
        assert np.isfinite(run_passes(many, [rows]).weights()[0]).all()
        many.vector[-1] = np.inf
        with pytest.raises(DivergedError, match=r"diverged in pass 1 at row 2 with step size (?!0:)"):
            many.end_pass()


@every_case
@pytest.mark.parametrize("size", [1e-19, 1e18, 1e20])
def test_huge_and_tiny_features_end_as_they_do_alone(case: Case, size: float) -> None:
    """Whether a class diverges, and else what it learns; squares of such numbers are inexact, zero or infinite."""
    rows = equal_weights(FIVE)
    rows = rows._replace(values=np.clip(rows.values, -1, 1) * np.float32(size))
    case = case._replace(options=case.options | ({"eta0": 0.25} if case.name in STEPPED else {}))
    many = case.many(5)
    failed = []
    for k in range(5):
        try:
            run_passes(case.plain(), [one_or_not(rows, k)], 2)
        except DivergedError:
            failed.append(k)
    try:
        run_passes(many, [rows], 2)
    except DivergedError:
        assert failed
    else:
        assert not failed
        compare(case, many, rows, 2)


# All the rest.


def test_names_in_the_registry_are_the_solvers_own() -> None:
    assert list(OVA) == list(SOLVERS)
    for name, solver in OVA.items():
        assert solver.name == name and solver.plain is SOLVERS[name] and solver.rule == "ova"
        assert solver.penalties == SOLVERS[name].penalties
        many = make_many("ova", name, Problem(Hinge(), L2(0.1)), classes=3)
        assert isinstance(many, solver) and many.lower_bound() is None


@every_name
@pytest.mark.parametrize("penalty", list(PENALTIES))
def test_a_penalty_it_cannot_minimise_is_refused(name: str, penalty: str) -> None:
    if penalty not in OVA[name].penalties:
        with pytest.raises(ConfigError, match=f"solver {name} cannot minimise penalty {penalty}$"):
            OVA[name](Problem(Hinge(), PENALTIES[penalty]), classes=3)


WITHOUT_NUMBA = """
import os
import sys
import numpy as np
sys.path[:0] = sys.argv[1].split(os.pathsep)
from test_many import EACH, FIVE, find, run_passes
from streamsvm.jit import DISABLED
assert DISABLED
learned = {}
for case in EACH:
    case = case._replace(loss="squared_hinge")
    for many in (case.many(5), case.many()):
        weights, bias = find(many, [FIVE.slice(0, 6), FIVE.slice(6, 30)]).weights()
        learned[f"{case} {many.growing}"] = np.vstack([weights, bias])
np.savez(sys.argv[2], **learned)
"""


def test_kernels_say_the_same_as_plain_python(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    place = tmp_path / "learned.npz"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_NUMBA, os.pathsep.join(sys.path), str(place)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    with np.load(place) as learned:
        assert len(learned) == 2 * len(EACH)
        for case in EACH:
            case = case._replace(loss="squared_hinge")
            for many in (case.many(5), case.many()):
                weights, bias = find(many, [FIVE.slice(0, 6), FIVE.slice(6, 30)]).weights()
                assert np.array_equal(learned[f"{case} {many.growing}"], np.vstack([weights, bias]))
