"""Losses and schedules: derivatives, convexity, extremes, and the same numbers inside kernels as outside."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streamsvm.jit import kernel
from streamsvm.losses import LOSSES, Hinge, Logistic, Loss, SmoothedHinge, SquaredHinge, make_loss
from streamsvm.schedules import InverseTime, SlowDecay

EVERY_LOSS = pytest.mark.parametrize("loss", [make_loss(name) for name in LOSSES], ids=list(LOSSES))
OTHERS = [Hinge(0.25), SquaredHinge(3.0), Logistic(2.5)]
LABEL = st.sampled_from([-1.0, 1.0])
SCORE = st.floats(-50, 50)
EXTREMES = [0.0, -0.0, 5e-324, 1e-300, 709.0, 710.0, 745.2, 746.0, 1e4, 1e30, 1e150]


@kernel
def in_kernel(loss, score, label):
    return loss.value(score, label), loss.slope(score, label), loss.bend()


@kernel
def rate_in_kernel(schedule, t):
    return schedule.rate(t)


def kink(loss: Loss) -> float:
    return loss.margin if isinstance(loss, Hinge) else math.nan


@pytest.mark.parametrize("loss", [make_loss(name) for name in LOSSES] + OTHERS, ids=str)
@given(score=SCORE, label=LABEL)
def test_the_slope_is_the_derivative_by_the_score(loss: Any, score: float, label: float) -> None:
    assume(not abs(label * score - kink(loss)) < 1e-3)
    step = 1e-5
    numeric = (loss.value(score + step, label) - loss.value(score - step, label)) / (2 * step)
    assert loss.slope(score, label) == pytest.approx(numeric, rel=1e-5, abs=2e-5)


@pytest.mark.parametrize("loss", [make_loss(name) for name in LOSSES] + OTHERS, ids=str)
@given(a=SCORE, b=SCORE, share=st.floats(0, 1), label=LABEL)
def test_losses_are_convex_and_lie_above_their_tangents(
    loss: Any, a: float, b: float, share: float, label: float
) -> None:
    between = loss.value(share * a + (1 - share) * b, label)
    chord = share * loss.value(a, label) + (1 - share) * loss.value(b, label)
    assert between <= chord + 1e-9 * (1 + chord)
    tangent = loss.value(a, label) + loss.slope(a, label) * (b - a)
    assert loss.value(b, label) >= tangent - 1e-9 * (1 + abs(tangent))


@EVERY_LOSS
@given(score=SCORE)
def test_losses_are_symmetric_positive_and_fall_with_the_margin(loss: Any, score: float) -> None:
    assert loss.value(score, 1.0) == loss.value(-score, -1.0) >= 0.0
    assert loss.slope(score, 1.0) == -loss.slope(-score, -1.0) <= 0.0


def test_known_values() -> None:
    assert Hinge().value(0.25, 1.0) == 0.75 and Hinge().slope(0.25, -1.0) == 1.0
    assert Hinge().value(2.0, 1.0) == 0.0 == Hinge().slope(2.0, 1.0)
    assert Hinge().slope(1.0, 1.0) == 0.0  # at the kink a row is content
    assert SquaredHinge().value(-1.0, 1.0) == 4.0 and SquaredHinge().slope(-1.0, 1.0) == -4.0
    assert SquaredHinge().value(0.0, 1.0) == 1.0  # no half
    assert Logistic().value(0.0, 1.0) == pytest.approx(math.log(2)) and Logistic().slope(0.0, 1.0) == -0.5
    assert Logistic().value(3.0, -1.0) == pytest.approx(math.log1p(math.exp(3.0)))


@EVERY_LOSS
@pytest.mark.parametrize("size", EXTREMES)
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_extreme_scores_neither_overflow_nor_warn(loss: Loss, size: float, sign: float, label: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value, slope = loss.value(sign * size, label), loss.slope(sign * size, label)
        numpy_value = loss.value(np.float64(sign * size), label)
        numpy_slope = loss.slope(np.float64(sign * size), label)
    assert math.isfinite(value) and value >= 0.0 and math.isfinite(slope)
    assert (numpy_value, numpy_slope) == (value, slope)
    if label * sign < 0 and size >= 709:
        assert value >= size and slope * label < 0
    if label * sign > 0 and size >= 746:
        assert value == 0.0 and slope == 0.0


def test_logistic_keeps_its_digits_in_the_far_tail() -> None:
    assert Logistic().value(40.0, 1.0) == pytest.approx(math.exp(-40.0), rel=1e-12)
    assert Logistic().slope(40.0, 1.0) == pytest.approx(-math.exp(-40.0), rel=1e-12)
    assert Logistic().value(-700.0, 1.0) == 700.0 and Logistic().slope(-700.0, 1.0) == -1.0


@pytest.mark.parametrize("loss", [make_loss(name) for name in LOSSES] + OTHERS, ids=str)
@settings(deadline=None)
@given(score=st.floats(-1e30, 1e30), label=LABEL)
def test_kernels_see_the_same_numbers(loss: Any, score: float, label: float) -> None:
    value, slope, bend = in_kernel(loss, score, label)
    assert value == pytest.approx(loss.value(score, label), rel=1e-14)
    assert slope == pytest.approx(loss.slope(score, label), rel=1e-14)
    assert bend == loss.bend()


@pytest.mark.parametrize("loss", [make_loss(name) for name in LOSSES] + OTHERS, ids=str)
def test_bend_bounds_the_second_derivative_where_slopes_are_unbounded(loss: Any) -> None:
    scores = np.linspace(-30, 30, 4001).tolist()
    slopes = np.array([loss.slope(score, 1.0) for score in scores])
    if loss.bend() == 0.0:
        assert np.abs(slopes).max() <= max(1.0, getattr(loss, "scale", 1.0))
    else:
        assert np.max(np.diff(slopes) / np.diff(scores)) == pytest.approx(loss.bend())
        assert np.abs(slopes).max() > 10


def test_losses_are_named_values() -> None:
    assert dict(LOSSES) == {
        "hinge": Hinge,
        "squared_hinge": SquaredHinge,
        "smoothed_hinge": SmoothedHinge,
        "logistic": Logistic,
    }
    assert make_loss("hinge") == Hinge(margin=1.0) and str(make_loss("hinge")) == "Hinge(margin=1.0)"


# Schedules.


@pytest.mark.parametrize("schedule", [InverseTime(1e-3, 50.0), SlowDecay(1e-3, 0.5)], ids=str)
@settings(deadline=None)
@given(t=st.floats(0, 1e12))
def test_schedules_fall_and_are_the_same_inside_kernels(schedule: Any, t: float) -> None:
    rate = schedule.rate(t)
    assert rate_in_kernel(schedule, t) == pytest.approx(rate, rel=1e-14)
    assert 0.0 < schedule.rate(t + 1.0) <= rate


def test_schedules_are_their_formulas() -> None:
    assert InverseTime(0.25, 3.0).rate(5.0) == 0.5
    assert SlowDecay(0.1, 2.0).rate(0.0) == 2.0
    assert SlowDecay(0.1, 2.0).rate(75.0) == pytest.approx(2.0 * 16.0**-0.75)
