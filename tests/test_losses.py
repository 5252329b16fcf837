"""Losses and schedules: derivatives, convexity, extremes, and the same numbers inside kernels as outside."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tiers import examples

from streamsvm.jit import kernel
from streamsvm.losses import CLOSE, LOSSES, Hinge, Logistic, Loss, SmoothedHinge, SquaredHinge, make_loss, smooth
from streamsvm.offered import SMOOTH_LOSSES
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
        assert np.abs(slopes).max() <= loss.ceiling()
    else:
        assert np.max(np.diff(slopes) / np.diff(scores)) == pytest.approx(loss.bend())
        assert np.abs(slopes).max() > 10


def test_losses_are_named_values() -> None:
    known = {"hinge": Hinge, "squared_hinge": SquaredHinge, "smoothed_hinge": SmoothedHinge, "logistic": Logistic}
    assert known.items() <= LOSSES.items()
    assert make_loss("hinge") == Hinge(margin=1.0) and str(make_loss("hinge")) == "Hinge(margin=1.0)"


# The other side: a loss as the best of many straight lines.

ALL = [make_loss(name) for name in LOSSES] + [*OTHERS, SmoothedHinge(0.5, 0.3)]
ANY_LOSS = pytest.mark.parametrize("loss", ALL, ids=str)
SMOOTH = pytest.mark.parametrize("loss", [loss for loss in ALL if hasattr(loss, "curvature")], ids=str)
SHARE = st.one_of(st.sampled_from([0.0, 1.0, 0.5, 1e-300, 5e-324, 1e-9, 1.0 - 2.0**-53]), st.floats(0, 1))
STIFFNESS = st.one_of(st.sampled_from([0.0, 1e-300, 1e300]), st.floats(1e-12, 1e12), st.floats(0.01, 100))
SIZES = [0.0, 5e-324, 1e-300, 1e-30, 1e-9, 0.5, 1.0, 2.0, 745.2, 1e9, 1e30]


@kernel
def dual_in_kernel(loss, alpha, margin, stiffness):
    return loss.dual_value(alpha), loss.dual_slope(alpha), loss.dual_step(alpha, margin, stiffness), loss.ceiling()


@kernel
def curvature_in_kernel(loss, score, label):
    return loss.curvature(score, label)


def alpha_of(loss: Any, share: float) -> float:
    """A dual variable by its share of the ceiling, or of a large number where there is none."""
    return share * (loss.ceiling() if math.isfinite(loss.ceiling()) else 100.0)


def gained(loss: Any, alpha: float, margin: float, stiffness: float, moved: float) -> float:
    """What a step is there to make large."""
    step = moved - alpha
    return loss.dual_value(moved) - loss.dual_value(alpha) - margin * step - 0.5 * stiffness * step * step


@ANY_LOSS
@given(score=SCORE, label=LABEL, share=SHARE)
def test_no_dual_variable_claims_more_than_the_loss(loss: Any, score: float, label: float, share: float) -> None:
    alpha = alpha_of(loss, share)
    value, claim = loss.value(score, label), loss.dual_value(alpha) - alpha * label * score
    assert claim <= value + 1e-13 * (1 + abs(loss.dual_value(alpha)) + alpha * abs(score))


@ANY_LOSS
@given(score=SCORE, label=LABEL)
def test_the_slope_is_the_dual_variable_that_claims_all_of_the_loss(loss: Any, score: float, label: float) -> None:
    alpha = -label * loss.slope(score, label)
    assert 0.0 <= alpha <= loss.ceiling()
    claim = loss.dual_value(alpha) - alpha * label * score
    assert claim == pytest.approx(loss.value(score, label), rel=1e-12, abs=1e-12 * (1 + alpha * abs(score)))


@ANY_LOSS
@given(share=st.floats(0.001, 0.999))
def test_the_dual_slope_is_the_derivative_of_the_dual_value(loss: Any, share: float) -> None:
    alpha, step = alpha_of(loss, share), 1e-4 * alpha_of(loss, min(share, 1.0 - share))
    numeric = (loss.dual_value(alpha + step) - loss.dual_value(alpha - step)) / (2 * step)
    assert loss.dual_slope(alpha) == pytest.approx(numeric, rel=1e-6, abs=1e-6)


def test_the_dual_slopes_at_the_ends() -> None:
    assert Hinge(0.25).dual_slope(0.0) == Hinge(0.25).dual_slope(1.0) == 0.25
    assert SquaredHinge().dual_slope(0.0) == 1.0 and SmoothedHinge(1.0, 0.3).dual_slope(1.0) == 0.7
    assert Logistic(2.5).dual_slope(0.0) == math.inf and Logistic(2.5).dual_slope(2.5) == -math.inf
    assert Logistic().dual_value(0.0) == Logistic().dual_value(1.0) == 0.0
    assert [loss.ceiling() for loss in (Hinge(3.0), SmoothedHinge(), Logistic(2.5))] == [1.0, 1.0, 2.5]
    assert SquaredHinge().ceiling() == math.inf


def largest(loss: Any, alpha: float, margin: float, stiffness: float) -> float:
    """The best gain over a fine grid of steps, and finer ones around the best: no use is made of formulas."""
    top = loss.ceiling()
    if not math.isfinite(top):
        top = 2.0 * (abs(alpha) + abs(margin) + loss.margin + 1.0)
    low, high, best = 0.0, top, -math.inf
    for _ in range(12):
        points = np.linspace(low, high, 41).tolist()
        gains = [gained(loss, alpha, margin, stiffness, point) for point in points]
        place = int(np.argmax(gains))
        best = max(best, gains[place])
        low, high = points[max(place - 1, 0)], points[min(place + 1, 40)]
    return best


@ANY_LOSS
@examples(40)
@given(share=SHARE, margin=st.floats(-40, 40), stiffness=st.one_of(st.just(1e-300), st.floats(1e-6, 1e6)))
def test_a_dual_step_goes_to_the_best_place(loss: Any, share: float, margin: float, stiffness: float) -> None:
    alpha = alpha_of(loss, share)
    moved = loss.dual_step(alpha, margin, stiffness)
    assert 0.0 <= moved <= loss.ceiling()
    found, best = gained(loss, alpha, margin, stiffness, moved), largest(loss, alpha, margin, stiffness)
    scale = 1.0 + abs(margin) * abs(moved - alpha)
    assert found >= best - 1e-10 * (scale + abs(best))
    assert found >= -1e-10 * scale


@ANY_LOSS
@given(share=SHARE, margin=st.floats(-40, 40), stiffness=st.floats(1e-3, 1e3))
@example(share=1e-300, margin=-1.1453942833192698, stiffness=671.5183290166625)
@example(share=1.0, margin=2.7204278005230336, stiffness=612.2653199645761)
@example(share=5e-324, margin=-2.684593403154942, stiffness=317.13133798436536)
def test_a_second_dual_step_goes_nowhere(loss: Any, share: float, margin: float, stiffness: float) -> None:
    alpha = alpha_of(loss, share)
    moved = loss.dual_step(alpha, margin, stiffness)
    again = loss.dual_step(moved, margin + stiffness * (moved - alpha), stiffness)
    assert again == pytest.approx(moved, rel=1e-9, abs=1e-9 * (1 + abs(margin) / stiffness))


@ANY_LOSS
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("stiffness", [0.0, 1e-300, 1e-30, 1.0, 1e30, 1e300])
def test_extreme_dual_steps_stay_inside(loss: Any, size: float, stiffness: float) -> None:
    """As kernels see them: a row of no length has stiffness 0, and there a division is no error."""
    for share in (0.0, 5e-324, 1e-300, 0.5, 1.0 - 2.0**-53, 1.0):
        for margin in (size, -size):
            alpha = alpha_of(loss, share)
            value, slope, moved, ceiling = dual_in_kernel(loss, alpha, margin, stiffness)
            assert math.isfinite(moved) and 0.0 <= moved <= ceiling == loss.ceiling()
            assert math.isfinite(value) and not math.isnan(slope)


@pytest.mark.parametrize("stiffness", [1e3, 1e6, 1e9, 1e12, 1e18, 1e30])
@pytest.mark.parametrize("margin", [0.0, -1e-6, -1.0, -700.0, -1e6])
@pytest.mark.parametrize("loss", [Logistic(), Logistic(2.5)], ids=str)
def test_long_rows_take_short_steps(loss: Logistic, margin: float, stiffness: float) -> None:
    """Where features are large and not scaled: from both ends, against bisection by factors."""
    low, high = 1e-300, loss.ceiling()
    for _ in range(200):
        middle = math.sqrt(low * high)
        if loss.dual_slope(middle) - margin - stiffness * middle > 0.0:
            low = middle
        else:
            high = middle
    assert loss.dual_step(0.0, margin, stiffness) == pytest.approx(low, rel=1e-6)
    moved = loss.dual_step(loss.ceiling(), -margin, stiffness)
    assert loss.ceiling() - moved == pytest.approx(low, rel=1e-6, abs=1e-15)


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), SmoothedHinge(), Logistic(), Logistic(2.5)], ids=str)
def test_a_row_without_length_goes_where_its_slope_says(loss: Any) -> None:
    """Its score is the bias whatever is done, and so is its slope."""
    for margin in (-3.0, -0.5, 0.3, 2.0):
        for share in (0.0, 0.4, 1.0):
            moved = dual_in_kernel(loss, alpha_of(loss, share), margin, 0.0)[2]
            assert moved == pytest.approx(-loss.slope(margin, 1.0), rel=1e-9)


@ANY_LOSS
@given(share=SHARE, margin=st.floats(-1e30, 1e30), stiffness=STIFFNESS)
def test_kernels_see_the_same_duals(loss: Any, share: float, margin: float, stiffness: float) -> None:
    alpha = alpha_of(loss, share)
    found = dual_in_kernel(loss, alpha, margin, stiffness)
    with np.errstate(all="ignore"):
        number = np.float64(alpha), np.float64(margin), np.float64(stiffness)
        expected = loss.dual_value(alpha), loss.dual_slope(alpha), loss.dual_step(*number), loss.ceiling()
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-300)


@SMOOTH
@given(score=SCORE, label=LABEL)
def test_the_curvature_is_the_derivative_of_the_slope(loss: Any, score: float, label: float) -> None:
    step = 1e-5
    around = [loss.curvature(score + away, label) for away in (-1e-3, 0.0, 1e-3)]
    assume(max(around) - min(around) < 0.01)  # there is no kink of the slope
    numeric = (loss.slope(score + step, label) - loss.slope(score - step, label)) / (2 * step)
    assert loss.curvature(score, label) == pytest.approx(numeric, rel=1e-5, abs=1e-6)
    assert curvature_in_kernel(loss, score, label) == pytest.approx(loss.curvature(score, label), rel=1e-14)


@SMOOTH
@pytest.mark.parametrize("size", [*EXTREMES, 1e300])
def test_extreme_scores_have_a_curvature(loss: Any, size: float) -> None:
    for score in (size, -size):
        for label in (-1.0, 1.0):
            found = loss.curvature(score, label)
            assert math.isfinite(found) and found >= 0.0 and curvature_in_kernel(loss, score, label) == found


def test_which_losses_are_smooth() -> None:
    assert {name for name in LOSSES if smooth(name)} == set(SMOOTH_LOSSES) > {"squared_hinge", "logistic"}
    assert not smooth("hinge")


# Implicit steps.

SHIFT = st.one_of(st.sampled_from([0.0, 1e-300, 1e300]), st.floats(1e-9, 1e9), st.floats(0.01, 100))


@kernel
def share_in_kernel(loss, score, label, stiffness):
    return loss.share(score, label, stiffness)


@ANY_LOSS
@given(score=SCORE, label=LABEL, stiffness=SHIFT)
def test_an_implicit_step_is_the_dual_step_from_zero(loss: Any, score: float, label: float, stiffness: float) -> None:
    slope = loss.slope(score, label)
    share = loss.share(score, label, stiffness) if slope else 1.0
    assert 0.0 <= share <= 1.0
    if slope and stiffness:
        expected = loss.dual_step(0.0, label * score, stiffness)
        assert share * abs(slope) == pytest.approx(expected, rel=2 * CLOSE if isinstance(loss, Logistic) else 1e-9)


@ANY_LOSS
@given(score=SCORE, label=LABEL, stiffness=SHIFT, more=st.floats(1, 1e6))
def test_the_stiffer_a_row_the_smaller_its_share(
    loss: Any, score: float, label: float, stiffness: float, more: float
) -> None:
    share, less = loss.share(score, label, stiffness), loss.share(score, label, stiffness * more)
    assert less <= share * (1.0 + 2 * CLOSE)
    assert less * more >= share * (1.0 - 2 * CLOSE)  # but the score moves further all the same


@ANY_LOSS
@given(score=SCORE, label=LABEL, stiffness=st.floats(0, 1e9))
def test_an_implicit_step_does_not_go_too_far(loss: Any, score: float, label: float, stiffness: float) -> None:
    """Not beyond where the loss is 0, nor to where it would lead back."""
    slope = loss.slope(score, label)
    assume(slope != 0.0)
    moved = label * score + loss.share(score, label, stiffness) * abs(slope) * stiffness
    if hasattr(loss, "margin"):
        assert moved <= loss.margin + 1e-9 * (1.0 + abs(score))
    assert loss.value(label * moved, label) <= loss.value(score, label)


@ANY_LOSS
@pytest.mark.parametrize("size", EXTREMES)
@pytest.mark.parametrize("stiffness", [0.0, 5e-324, 1e-300, 1.0, 1e30, 1e300])
def test_extreme_steps_have_a_share_and_kernels_see_the_same(loss: Any, size: float, stiffness: float) -> None:
    for score in (size, -size):
        for label in (-1.0, 1.0):
            found = share_in_kernel(loss, score, label, stiffness)
            assert 0.0 <= found <= 1.0
            assert found == pytest.approx(loss.share(score, label, stiffness), rel=1e-9)


# Schedules.


@pytest.mark.parametrize(
    "schedule", [InverseTime(1e-3, 50.0), SlowDecay(1e-3, 0.5, 6000.0), SlowDecay(0.0, 0.5, 9.0)], ids=str
)
@given(t=st.floats(0, 1e12))
def test_schedules_fall_and_are_the_same_inside_kernels(schedule: Any, t: float) -> None:
    rate = schedule.rate(t)
    assert rate_in_kernel(schedule, t) == pytest.approx(rate, rel=1e-14)
    assert 0.0 < schedule.rate(t + 1.0) <= rate


def test_schedules_are_their_formulas() -> None:
    assert InverseTime(0.25, 3.0).rate(5.0) == 0.5
    assert SlowDecay(0.1, 2.0, 1e9).rate(0.0) == 2.0
    assert SlowDecay(0.1, 2.0, 1e9).rate(75.0) == pytest.approx(2.0 * 16.0**-0.75)
    assert SlowDecay(0.1, 2.0, 25.0).rate(75.0) == pytest.approx(2.0 * 16.0**-0.75)  # the shorter of the two
    assert SlowDecay(1e-9, 2.0, 25.0).rate(75.0) == pytest.approx(1.0)
