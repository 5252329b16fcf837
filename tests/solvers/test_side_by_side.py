"""Candidates side by side: each is, to the last bit, what the plain solver gives when it is trained alone."""

import copy
import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_rows import ROOM, batch_of, bits, climbing, cut, equal_weights, flat, made_up, run_passes, spoil
from tiers import examples

from streamsvm.batch import Batch, empty_batch
from streamsvm.errors import ConfigError, DataError, DivergedError, ModelError
from streamsvm.losses import LOSSES, Hinge, SquaredHinge, make_loss
from streamsvm.penalties import L1, L2
from streamsvm.solvers import SOLVERS, OnlineSolver
from streamsvm.solvers import base as solver_base
from streamsvm.solvers.base import LOSS, SCALE, SEEN, WEIGHT, WRONG, Bias, Problem, T, make_bias
from streamsvm.solvers.sgd import ALPHAS, WRITES, WRITTEN, Sgd
from streamsvm.solvers.side_by_side import SideBySide
from streamsvm.solvers.side_by_side_kernels import FAR, LIVE

ROWS = made_up(110, seed=1)
BIASES = ["penalised", "free", "none"]
GRID = np.geomspace(1e-6, 2.0, 17).tolist()  # the strongest make every scale small again and again

every_solver = pytest.mark.parametrize("name", SideBySide.SOLVERS)


@pytest.fixture(autouse=True, scope="module")
def short_trial() -> Iterator[None]:
    """Step sizes are chosen on a few rows, so that small tests get past that point."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver_base, "TRIAL_ROWS", 40)
        patch.setattr(solver_base, "TRIAL_FEATURES", 150)
        yield


def problems(strengths: Sequence[float], loss: str = "squared_hinge", bias: str = "penalised") -> list[Problem]:
    return [Problem(make_loss(loss), L2(l2), make_bias(bias, 1.5)) for l2 in strengths]


def check_equal(solver: OnlineSolver, other: OnlineSolver) -> None:
    """Equal in every number (0 and -0 are) and every place, and so is what comes of it."""
    state, expected = flat(solver.state(), ROOM), flat(other.state(), ROOM)
    assert state.keys() == expected.keys()
    if isinstance(other, Sgd):  # side by side nothing is noted for a lower bound
        expected["scalars"][[ALPHAS, WRITES, WRITTEN]] = np.nan, 0.0, 0.0
        assert solver.lower_bound() is None
    for name, array in state.items():
        assert array.dtype == expected[name].dtype and np.array_equal(array, expected[name], equal_nan=True), name
    assert (solver.width, solver.dim, solver.memory) == (other.width, other.dim, other.memory)
    assert np.array_equal(solver.weights()[0], other.weights()[0]) and solver.weights()[1] == other.weights()[1]
    assert solver.step_size == other.step_size


def check(side: SideBySide, alone: Sequence[OnlineSolver]) -> None:
    assert side.candidates == len(alone) == len(side.problems) == len(side.alive)
    for group in side._groups:
        assert not group.table[:, :, ~group.live].any()  # lanes without a candidate learn nothing
    assert side.step_sizes == [solver.step_size for solver in alone]
    assert side.figures().tolist() == [solver.scalars[[WEIGHT, LOSS, WRONG]].tolist() for solver in alone]
    for k, solver in enumerate(alone):
        assert side.problems[k] == solver.problem and side.alive[k]
        assert side.seen == solver.scalars[SEEN]
        check_equal(side.solver(k), solver)


def both(name: str, candidates: list[Problem], **options: Any) -> tuple[SideBySide, list[OnlineSolver]]:
    return SideBySide(name, candidates, **options), [SOLVERS[name](problem, **options) for problem in candidates]


def run_all(learners: Sequence[Any], batches: list[Batch], passes: int = 1) -> None:
    for learner in learners:
        run_passes(learner, batches, passes)


# The contract.


# Both kernels share the code that asks the loss, so one of them is compiled for every loss, the other for two.
@pytest.mark.parametrize(
    "name, loss", [*(("asgd", loss) for loss in LOSSES), ("sgd", "hinge"), ("sgd", "squared_hinge")]
)
def test_every_candidate_is_what_it_would_be_alone(name: str, loss: str) -> None:
    @examples(25, derandomize=True)
    @given(st.data())
    def examine(data: st.DataObject) -> None:
        strengths = data.draw(st.lists(st.sampled_from(GRID), min_size=1, max_size=4))
        options = data.draw(st.sampled_from([{}, {"eta0": 0.25}, {"eta0": 30.0}, {"dim": 30}]))
        side, alone = both(name, problems(strengths, loss, data.draw(st.sampled_from(BIASES))), **options)
        rows = ROWS.slice(0, data.draw(st.integers(0, ROWS.rows)))
        pieces = cut(rows, data.draw(st.lists(st.integers(0, rows.rows), max_size=5)))
        for number in range(1, data.draw(st.integers(1, 3)) + 1):
            for learner, batches in [(side, pieces), *((solver, [rows]) for solver in alone)]:
                learner.begin_pass(number)
                for batch in batches:
                    learner.learn(batch)
            check(side, alone)
            run_ends = [side.end_pass(), *(solver.end_pass() for solver in alone)]
            assert set(run_ends) == {None}
            check(side, alone)

    examine()


@every_solver
@pytest.mark.parametrize("candidates", range(1, 18))
def test_one_to_seventeen_candidates(name: str, candidates: int) -> None:
    side, alone = both(name, problems(GRID[:candidates]))
    run_all([side, *alone], cut(ROWS, [33, 70]), 2)
    check(side, alone)


@every_solver
def test_states_and_survivors_at_any_time(name: str) -> None:
    """Learn, stop and resume, drop candidates, in any order: those that are left do not notice."""

    @examples(40, derandomize=True)
    @given(st.data())
    def examine(data: st.DataObject) -> None:
        candidates = problems(data.draw(st.permutations(GRID)), bias=data.draw(st.sampled_from(BIASES)))
        options = data.draw(st.sampled_from([{}, {"eta0": 0.25}, {"dim": 40}]))
        side, alone = both(name, candidates, **options)
        for number in (1, 2):
            for learner in [side, *alone]:
                learner.begin_pass(number)
            for piece in cut(ROWS, data.draw(st.lists(st.integers(0, ROWS.rows), max_size=4))):
                for learner in [side, *alone]:
                    learner.learn(piece)
                action = data.draw(st.sampled_from(["keep", "resume", "go on"]))
                if action == "keep":
                    left = data.draw(st.integers(1, side.candidates))
                    which = data.draw(st.permutations(range(side.candidates)))[:left]
                    side.keep(which)
                    alone = [alone[k] for k in which]
                elif action == "resume":
                    state = side.state()
                    side = SideBySide(name, candidates, **options)
                    side.restore(state)
                    assert bits(side.state()) == bits(state)
                    spoil(state)
                check(side, alone)
            for learner in [side, *alone]:
                learner.end_pass()
        for learner in [side, *alone]:
            learner.finish()
        check(side, alone)

    examine()


@every_solver
def test_an_order_of_rows_is_followed(name: str) -> None:
    side, alone = both(name, problems(GRID[:5]), eta0=0.5)
    order = np.random.default_rng(3).permutation(ROWS.rows)
    for learner in [side, *alone]:
        learner.learn(ROWS, order)
    check(side, alone)
    assert not np.array_equal(run_passes(SOLVERS[name](side.problems[0], eta0=0.5), [ROWS]).vector, alone[0].vector)


@every_solver
def test_long_rows_and_long_streams(name: str) -> None:
    """Rows longer than any vector, and enough of them for every sum to round."""
    rows = made_up(2500, 300, seed=5, longest=90)
    side, alone = both(name, problems([1e-5, 1e-2, 0.5]))
    run_all([side, *alone], cut(rows, range(0, rows.rows, 400)), 2)
    check(side, alone)


@every_solver
def test_nothing_to_learn(name: str) -> None:
    silent = batch_of([{0: 1e30, 29: -5.0}, {}], [1, 0], [0.0, 0.0])
    for batches in ([], [empty_batch()], [silent], [batch_of([{}, {}], [1, 0])]):
        side, alone = both(name, problems(GRID[:3]))
        run_all([side, *alone], batches)
        check(side, alone)


@every_solver
def test_looking_changes_nothing(name: str) -> None:
    watched, left_alone = (SideBySide(name, problems(GRID[:6])) for _ in range(2))
    for side in (watched, left_alone):
        for piece in cut(ROWS, range(5, ROWS.rows, 15)):
            side.learn(piece)
            if side is watched:
                assert bits(side.state()) == bits(side.state())
                spoil(side.state())
                side.solver(1).vector[...] = 77
                side.solver(1).scalars[...] = 77
                side.figures()[...] = 77
        side.finish()
    assert bits(watched.state()) == bits(left_alone.state())


@every_solver
@pytest.mark.parametrize("options", [{}, {"dim": 40}], ids=["growing", "dim"])
def test_candidates_go_on_from_weights_and_step_sizes_of_their_own(name: str, options: dict[str, int]) -> None:
    """As after a pass that shards of a cluster have made: each from its own mean, with the clock of the shard."""
    side, alone = both(name, problems(GRID[3:8]), **options)
    rng = np.random.default_rng(5)
    for k, solver in enumerate(alone):
        solver.take_step_size(0.1 / (k + 1))
        solver.start_from(rng.standard_normal(20).astype(np.float32), 0.5 * k)
        solver.scalars[T] = 30.0
        plain = side.solver(k)
        plain.take_step_size(0.1 / (k + 1))
        plain.restore(solver.state())
        side.take_up(k, plain)
    check(side, alone)
    run_all([side, *alone], [ROWS], passes=2)
    check(side, alone)
    side.stop(2)
    assert side.alive == [True, True, False, True, True]
    side.keep([0, 1, 3, 4])
    run_all([side, *(alone[k] for k in (0, 1, 3, 4))], [ROWS])
    check(side, [alone[k] for k in (0, 1, 3, 4)])


# The vector.


def growing() -> Batch:
    """Rows whose indices grow, past the room that is set aside at first."""
    rows = [{j % 7: 1.0, 20 * j: 0.5 * (-1) ** j, 20 * j + 3: 1.0} for j in range(8, 110)]
    return batch_of(rows, [float(j % 3 == 0) for j in range(8, 110)])


@every_solver
def test_growing_also_after_some_were_dropped(name: str) -> None:
    rows = growing()
    side, alone = both(name, problems(GRID))
    for at, piece in enumerate(cut(rows, range(6, rows.rows, 6))):
        for learner in [side, *alone]:
            learner.learn(piece)
        if at in (7, 12):
            which = [0, 9, 16] if at == 7 else [2, 1]
            side.keep(which)
            alone = [alone[k] for k in which]
        for group in side._groups:
            assert group.vector.ctypes.data % 64 == 0 and group.room >= side.width
            assert not group.table[side.width :].any()
    for learner in [side, *alone]:
        learner.finish()
    check(side, alone)
    assert side.width == rows.width > 2000 and side.kept == [16, 9]


@every_solver
def test_large_vectors_and_keeping_without_further_memory(name: str) -> None:
    """So large that the kernels ask for weights ahead of time."""
    side, alone = both(name, problems(GRID[:16]), eta0=0.5, dim=1 << 17)
    rows = ROWS._replace(indices=ROWS.indices * np.uint32(4513))
    run_all([side, *alone], [rows])
    check(side, alone)
    whole = sum(group.vector.nbytes for group in side._groups)
    assert all(group.vector.size > FAR for group in side._groups)
    tracemalloc.start()
    try:
        side.keep(range(8))
        assert tracemalloc.get_traced_memory()[1] < whole / 4
    finally:
        tracemalloc.stop()
    check(side, alone[:8])


def test_an_index_beyond_dim_is_refused() -> None:
    side = SideBySide("asgd", problems(GRID[:2]), eta0=1.0, dim=30)
    with pytest.raises(DataError, match=r"index 30 is out of range: features\.dim is 30"):
        side.learn(batch_of([{30: 1.0}], [1]))


@every_solver
def test_what_cannot_fit_is_refused_before_it_is_allocated(name: str) -> None:
    budget = 3 << 20
    side = SideBySide(name, problems(GRID), memory=budget)
    side.learn(ROWS.slice(0, 5))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"index 39999: 17 candidates of solver .* or raise --memory") as caught:
            side.learn(batch_of([{1: 1.0, 39_999: 1.0}], [1]))
        assert tracemalloc.get_traced_memory()[1] < budget
    finally:
        tracemalloc.stop()
    (fewer,) = map(int, re.findall(r"try at most (\d+) candidates, ", str(caught.value)))
    SideBySide(name, problems(GRID[:fewer]), memory=budget, dim=40_000)
    with pytest.raises(ConfigError, match=rf"40000 weights: {fewer + 1} candidates .* try at most {fewer}"):
        SideBySide(name, problems(GRID[: fewer + 1]), memory=budget, dim=40_000)
    (hashed,) = set(map(int, re.findall(r"hash.bits:? (\d+)", str(caught.value))))
    fitting = SideBySide(name, problems(GRID), memory=budget, dim=1 << hashed)
    used = sum(group.vector.nbytes for group in fitting._groups)
    assert used < fitting.bytes_for(fitting.dim) <= budget
    with pytest.raises(ConfigError, match="hash_bits"):
        SideBySide(name, problems(GRID), memory=budget, dim=2 << hashed)


def test_refusing_where_not_even_one_fits() -> None:
    with pytest.raises(ConfigError) as caught:
        SideBySide("sgd", problems(GRID), memory=1 << 20, dim=1 << 24)
    assert "at most" not in str(caught.value) and "17 candidates" in str(caught.value)


# Candidates that diverge.

# Where l2 is small the first step is long, and the second row's score overflows.
LOUD = batch_of([{0: 1.0}, {0: 1e31, 1: 1.0}, {1: 1.0, 2: -1.0}] * 5, [1, 0, 1] * 5)
MIXED = [1e-3, 100.0, 1e-2, 1e4, 50.0, 0.1, 1e-6, 200.0, 3e-3, 80.0]


def message_alone(name: str, problem: Problem, batches: list[Batch], passes: int = 1) -> str | None:
    try:
        run_passes(SOLVERS[name](problem, eta0=1.0), batches, passes)
    except DivergedError as error:
        return str(error)
    return None


@every_solver
@pytest.mark.parametrize("loss, count, quiet", [("squared_hinge", 10, 0), ("hinge", 4, 60)])
def test_one_that_diverges_stops_alone(name: str, loss: str, count: int, quiet: int) -> None:
    candidates = problems(MIXED[:count], loss)
    batches = [*cut(equal_weights(ROWS).slice(0, quiet), [quiet // 2]), LOUD]
    side = SideBySide(name, candidates, eta0=1.0)
    run_passes(side, batches, 2)
    messages = [message_alone(name, problem, batches, 2) for problem in candidates]
    assert side.alive == [message is None for message in messages] and 1 < sum(side.alive) < count - 1
    survivors = [k for k, alive in enumerate(side.alive) if alive]
    for k, message in enumerate(messages):
        if message is None:
            check_equal(side.solver(k), run_passes(SOLVERS[name](candidates[k], eta0=1.0), batches, 2))
            assert np.isfinite(side.figures()[k]).all()
        else:
            assert np.isinf(side.figures()[k, 1:]).all()
            with pytest.raises(DivergedError, match=f"^{re.escape(message)}$"):
                side.solver(k)
    state = side.state()
    side.keep([0, *survivors])
    assert side.alive == [False] + [True] * len(survivors)
    with pytest.raises(DivergedError, match=f"^{re.escape(str(messages[0]))}$"):
        side.solver(0)
    side.restore(state)
    assert side.alive == [message is None for message in messages]


# Going on where it is hard: candidates fall and are dropped, room has a past, and scales are written out again.

PIECES = [LOUD.slice(0, 3), *cut(climbing(), [7, 30, 42, 60, 75, 84]), LOUD]
DROP = 4  # the step after which candidates are dropped
STEPS = range(2 * len(PIECES))


def step(side: SideBySide, place: int, which: Sequence[int]) -> None:
    number, piece = divmod(place, len(PIECES))
    if piece == 0:
        side.begin_pass(number + 1)
    side.learn(PIECES[piece])
    if piece == len(PIECES) - 1:
        side.end_pass()
    if place == DROP:
        side.keep(which)


def words_of(side: SideBySide) -> list[str]:
    """What is said about those that diverged."""
    found = []
    for k, alive in enumerate(side.alive):
        if not alive:
            with pytest.raises(DivergedError) as caught:
                side.solver(k)
            found.append(str(caught.value))
    return found


@every_solver
@pytest.mark.parametrize("which", [[1, 0, 3, 4, 5], list(range(9))], ids=["five", "nine"])
@pytest.mark.parametrize("room", ["as it was", "none to spare", "dim"])
def test_a_new_one_goes_on_to_the_last_bit(name: str, which: list[int], room: str) -> None:
    options: dict[str, Any] = {"eta0": 1.0} | ({"dim": 2190} if room == "dim" else {})
    straight = SideBySide(name, problems(MIXED), **options)
    states = []
    for place in STEPS:
        step(straight, place, which)
        states.append(straight.state())
    fallen = len(words_of(straight))
    assert 0 < fallen < len(which) and straight.width == options.get("dim", 2187)
    scales = np.array([state["group0"]["numbers"][SCALE, :4] for state in states[DROP:]])
    lives = states[-1]["group0"]["numbers"][LIVE, :4] != 0.0
    assert (np.diff(scales, axis=0)[1:, lives] > 0).any()  # written out again
    for stop in STEPS[:-1]:
        state, resumed = copy.deepcopy(states[stop]), SideBySide(name, problems(MIXED), **options)
        for part in (state["group0"], state.get("group1")) if room == "none to spare" else ():
            if part:
                stride = len(part["beyond"])
                part |= {"room": len(part["vector"]) // stride, "beyond": np.zeros(stride, np.float32)}
        resumed.restore(state)
        spoil(state)
        for place in STEPS[stop + 1 :]:
            step(resumed, place, which)
        without = ROOM if room == "none to spare" else ()
        assert bits(resumed.state(), without) == bits(states[-1], without)
        assert words_of(resumed) == words_of(straight)
        assert all(group.vector.ctypes.data % 64 == 0 for group in resumed._groups)


def test_room_that_is_minus_zero_stays_so() -> None:
    """With steps this long the first row leaves nothing of the weights: 1 - c eta l2 is 0, or rounded a little less."""
    weights = np.linspace(0.1, 3, 300, dtype=np.float32).tolist()
    under = next(c for c in weights if 1.0 - c * (1.0 / (0.3 * c)) * 0.3 < 0)
    straight, resumed = (SideBySide("sgd", problems([0.3, 2.0]), eta0=1e20) for _ in range(2))
    straight.learn(batch_of([{0: 1.0, 7: 1.0}], [1], [under]))
    assert np.signbit(straight._groups[0].table[[1, 8, 1000], 0, 0]).all()
    resumed.restore(straight.state())
    for side in (straight, resumed):
        side.learn(batch_of([{3: 1.0, 20: -1.0}, {1500: 1.0}], [0, 1]))
    assert bits(resumed.state()) == bits(straight.state())


@every_solver
def test_memory_is_refused_where_it_would_have_been(name: str) -> None:
    """Those that are left have the memory of those that were dropped: a state must not forget that."""
    batches = [batch_of([{j: 1.0}], [1]) for j in (3, 700, 1000, 1100, 1300, 2100, 2500, 3300, 4000, 7000)]

    def outcomes(count: int, left: int, budget: int, stop: int) -> list[Any]:
        side = SideBySide(name, problems(GRID[:count]), eta0=1.0, memory=budget)
        found: list[Any] = []
        for place, batch in enumerate(batches):
            if place == stop:
                state = side.state()
                side = SideBySide(name, problems(GRID[:count]), eta0=1.0, memory=budget)
                side.restore(state)
            try:
                side.learn(batch)
            except DataError as error:
                return [*found, str(error)]
            found.append([side.width, *(group.room for group in side._groups)])
            if place == 2:
                side.keep(range(left))
        return found

    seen = set()
    for count, left in ((8, 4), (17, 9), (10, 3)):
        side = SideBySide(name, problems(GRID[:count]), eta0=1.0)
        for fitting in range(1024, 6500, 391):
            budget = side.bytes_for(fitting)
            straight = outcomes(count, left, budget, -1)
            seen.add(len(straight))
            for stop in range(1, len(batches)):
                assert outcomes(count, left, budget, stop) == straight
    assert len(seen) > 4


def test_with_less_memory_it_goes_on_without_room_to_spare_or_is_refused() -> None:
    straight = SideBySide("asgd", problems(GRID[:5]), eta0=1.0)
    straight.learn(climbing())
    needed = straight.bytes_for(2187)
    tight = SideBySide("asgd", problems(GRID[:5]), eta0=1.0, memory=needed)
    tight.restore(straight.state())
    assert [group.room for group in tight._groups] == [2187]
    for side in (straight, tight):
        side.learn(climbing())
    assert bits(tight.state(), ROOM) == bits(straight.state(), ROOM)
    with pytest.raises(DataError, match=r"index 2186: 5 candidates .* or raise --memory"):
        SideBySide("asgd", problems(GRID[:5]), eta0=1.0, memory=needed - 1).restore(straight.state())


def test_numbers_of_other_candidates_or_of_another_width_are_refused() -> None:
    side = SideBySide("sgd", problems(GRID[:5]), eta0=1.0, dim=40)
    side.learn(ROWS)
    for count, dim in ((4, 40), (5, 41)):
        with pytest.raises(ModelError, match="are not those of these candidates of solver sgd"):
            SideBySide("sgd", problems(GRID[:count]), eta0=1.0, dim=dim).restore(side.state())


@every_solver
def test_the_row_named_is_the_row_not_its_place_in_the_order(name: str) -> None:
    candidates = problems([1e-3, 1e4])
    order = np.array([4, 2, 9, 3, 0, 1, 5])
    side, alone = both(name, candidates, eta0=1.0)
    side.learn(LOUD, order)
    assert side.alive == [False, True]
    with pytest.raises(DivergedError, match="at row 2 ") as caught:
        alone[0].learn(LOUD, order)
    with pytest.raises(DivergedError, match=f"^{re.escape(str(caught.value))}$"):
        side.solver(0)
    alone[1].learn(LOUD, order)
    check_equal(side.solver(1), alone[1])


@every_solver
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_when_all_have_diverged_nothing_more_happens(name: str, value: float) -> None:
    side = SideBySide(name, problems(GRID[:10]), eta0=0.1)
    run_passes(side, [ROWS, batch_of([{0: 1.0, 1: value}], [1]), ROWS], 2)
    assert not any(side.alive) and np.isinf(side.figures()[:, 1:]).all()
    with pytest.raises(DivergedError, match=rf"in pass 1 at row {ROWS.rows + 1} "):
        side.solver(3)


@pytest.mark.parametrize("name, fallen", [("asgd", 0), ("sgd", 1)])
def test_an_infinite_weight_that_no_row_meets_is_not_a_model(name: str, fallen: int) -> None:
    """It must be noticed all the same."""
    batches = [batch_of([{0: 1.0}, {1: 3e38}], [1, 1])]
    candidates = problems([1e-7, 10.0], "hinge", "none")
    side = SideBySide(name, candidates, eta0=100.0)
    side.begin_pass(1)
    side.learn(batches[0])
    assert side.alive == [True, True]
    solver = side.solver(fallen)
    solver.vector[:] = np.inf
    side.take_up(fallen, solver)
    side.end_pass()
    assert side.alive == [fallen == 1, fallen == 0]
    with pytest.raises(DivergedError, match="in pass 1 at row 2 with step size 100: "):
        side.solver(fallen)
    left = 1 - fallen
    check_equal(side.solver(left), run_passes(SOLVERS[name](candidates[left], eta0=100.0), batches))


# What is refused.


def test_what_cannot_be_learned_side_by_side() -> None:
    with pytest.raises(ConfigError, match="solver pegasos cannot learn candidates side by side; .* asgd, sgd"):
        SideBySide("pegasos", problems([0.1]))
    with pytest.raises(ConfigError, match="solver asgd cannot minimise penalty l1"):
        SideBySide("asgd", [Problem(Hinge(), L1(0.1))])
    different = [
        [],
        [Problem(Hinge(), L2(0.1)), Problem(SquaredHinge(), L2(0.1))],
        [Problem(Hinge(), L2(0.1)), Problem(Hinge(2.0), L2(0.1))],
        [Problem(Hinge(), L2(0.1)), Problem(Hinge(), L2(0.1), Bias(0.0, 0.0))],
    ]
    for candidates in different:
        with pytest.raises(ConfigError, match="same loss and the same bias"):
            SideBySide("sgd", candidates)


@pytest.mark.parametrize("which", [[], [0, 0], [3], [-1]])
def test_what_cannot_be_kept(which: list[int]) -> None:
    side = SideBySide("sgd", problems(GRID[:3]))
    with pytest.raises(ValueError, match="of 3 candidates"):
        side.keep(which)


PLAIN = """
import sys
import numpy as np
from made_rows import flat, made_up, run_passes
from streamsvm.jit import DISABLED
from streamsvm.losses import SquaredHinge
from streamsvm.penalties import L2
from streamsvm.solvers.base import Problem
from streamsvm.solvers.side_by_side import SideBySide

assert DISABLED == (sys.argv[1] == "plain")
results = {}
for name in SideBySide.SOLVERS:
    side = SideBySide(name, [Problem(SquaredHinge(), L2(l2)) for l2 in (1e-4, 1e-2, 0.5)], eta0=0.2)
    run_passes(side, [made_up(70, 40, seed=11)], 2)
    results |= {f"{name}-{key}": array for key, array in flat(side.state()).items()}
np.savez(sys.argv[2], **results)
"""


@pytest.mark.full
def test_the_same_sources_run_without_the_compiler(tmp_path: Path) -> None:
    here = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    results = []
    for how in ("compiled", "plain"):
        environment = os.environ | {"PYTHONPATH": here, "NUMBA_DISABLE_JIT": str(int(how == "plain"))}
        command = [sys.executable, "-W", "error", "-c", PLAIN, how, str(tmp_path / f"{how}.npz")]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=250)
        with np.load(tmp_path / f"{how}.npz") as stored:
            results.append(dict(stored))
    for name, compiled in results[0].items():
        assert np.allclose(compiled, results[1][name], rtol=1e-5, atol=1e-6 * np.abs(compiled).max()), name
