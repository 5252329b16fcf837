"""Penalties: their proximal steps against minimisation by brute force, the same numbers inside kernels as outside."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.jit import kernel
from streamsvm.penalties import L1, L2, ElasticNet, make_penalty, soft

PENALTIES = [L2(0.5), L2(0.0), L1(0.3), ElasticNet(2.0, 0.1), ElasticNet(0.01, 1.5)]
EVERY_PENALTY = pytest.mark.parametrize("penalty", PENALTIES, ids=str)
SIZE = st.floats(-10, 10)
ETA = st.floats(1e-3, 10)


@kernel
def in_kernel(penalty, eta):
    return penalty.shrink(eta), penalty.threshold(eta), penalty.zeros()


@kernel
def soft_in_kernel(value, amount):
    return soft(value, amount)


def proximal(penalty: Any, value: float, eta: float) -> float:
    return float(penalty.shrink(eta) * soft_in_kernel(value, penalty.threshold(eta)))


def brute_force(penalty: Any, value: float, eta: float) -> float:
    """The smallest of (x - value)^2 / 2 + eta (l2/2 x^2 + l1 |x|), on a grid made finer again and again."""
    low, high = -12.0, 12.0
    for _ in range(12):
        grid = np.append(np.linspace(low, high, 201), 0.0)
        costs = 0.5 * (grid - value) ** 2 + eta * (0.5 * penalty.l2 * grid**2 + penalty.l1 * np.abs(grid))
        best = float(grid[np.argmin(costs)])
        width = (high - low) / 20
        low, high = best - width, best + width
    return best


@EVERY_PENALTY
@given(value=SIZE, eta=ETA)
def test_a_proximal_step_ends_where_distance_and_penalty_together_are_least(
    penalty: Any, value: float, eta: float
) -> None:
    assert proximal(penalty, value, eta) == pytest.approx(brute_force(penalty, value, eta), abs=1e-5)


@given(value=st.floats(-1e6, 1e6), amount=st.floats(0, 1e6))
def test_soft_is_exactly_zero_or_exactly_nearer(value: float, amount: float) -> None:
    left = float(soft_in_kernel(value, amount))
    if abs(value) <= amount:
        assert left == 0.0 and (math.copysign(1.0, left) == 1.0 or amount == 0.0)
    else:
        assert left == math.copysign(abs(value) - amount, value)
    assert soft_in_kernel(value, 0.0) == value


def test_soft_at_its_ends() -> None:
    assert soft_in_kernel(0.0, math.inf) == 0.0 and soft_in_kernel(math.inf, 3.0) == math.inf
    assert soft_in_kernel(-5.0, 2.0) == -3.0 and soft_in_kernel(2.0, 2.0) == 0.0
    single = soft_in_kernel(np.float32(0.3), np.float32(0.1))
    assert np.float32(single) == np.float32(0.3) - np.float32(0.1)


@given(value=SIZE, first=st.floats(0, 5), second=st.floats(0, 5))
def test_thresholds_add_up(value: float, first: float, second: float) -> None:
    """What makes late payment exact."""
    twice = soft_in_kernel(soft_in_kernel(value, first), second)
    assert twice == pytest.approx(soft_in_kernel(value, first + second), abs=1e-12)


@EVERY_PENALTY
@given(eta=st.floats(0, 1e6))
def test_kernels_see_the_same_numbers(penalty: Any, eta: float) -> None:
    shrink, threshold, zeros = in_kernel(penalty, eta)
    assert shrink == pytest.approx(penalty.shrink(eta), rel=1e-14)
    assert (threshold, zeros) == (penalty.threshold(eta), penalty.zeros())
    assert 0.0 < shrink <= 1.0 and threshold >= 0.0
    if eta == 0.0:
        assert (shrink, threshold) == (1.0, 0.0)


def test_penalties_are_named_by_what_is_in_them() -> None:
    assert [make_penalty(*pair) for pair in ((0.5, 0.0), (0.0, 0.3), (2.0, 0.1), (0.0, 0.0))] == [
        L2(0.5),
        L1(0.3),
        ElasticNet(2.0, 0.1),
        L2(0.0),
    ]
    assert isinstance(make_penalty(0.0, 0.0), L2)
    assert [penalty.kind for penalty in PENALTIES] == ["l2", "none", "l1", "elastic_net", "elastic_net"]
    assert [penalty.zeros() for penalty in PENALTIES] == [False, False, True, True, True]
    assert [(penalty.l2, penalty.l1) for penalty in PENALTIES[1:4]] == [(0.0, 0.0), (0.0, 0.3), (2.0, 0.1)]
