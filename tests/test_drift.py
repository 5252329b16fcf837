"""Whether a loss has left its band: simulated streams, with seeds."""

import json
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from streamsvm.batch import Float64s
from streamsvm.drift import BACK, LEFT, SETTLED, Band

Noise = Callable[[np.random.Generator, int], Float64s]
ROWS = 1024  # of a slot


def mistakes(chance: float) -> Noise:
    """Losses of 0 and 1."""
    return lambda rng, slots: rng.binomial(ROWS, chance, slots) / ROWS


def long_tails(rng: np.random.Generator, slots: int) -> Float64s:
    """Rows whose losses are log-normal, with a deviation seven times the mean."""
    return np.asarray([np.exp(2.0 * rng.normal(size=ROWS)).mean() for _ in range(slots)])


def student(rng: np.random.Generator, slots: int) -> Float64s:
    return 1.0 + 0.1 * rng.standard_t(3, slots)


def outliers(rng: np.random.Generator, slots: int) -> Float64s:
    """One slot in a hundred costs ten times as much."""
    return (0.3 + 0.01 * rng.normal(size=slots)) * np.where(rng.random(slots) < 0.01, 10.0, 1.0)


NOISES = {
    "p=0.01": mistakes(0.01),
    "p=0.1": mistakes(0.1),
    "p=0.5": mistakes(0.5),
    "long tails": long_tails,
    "student": student,
    "outliers": outliers,
}


def changes(band: Band, losses: Iterable[float]) -> list[tuple[int, str]]:
    """What the band says, and after which slot."""
    found = ((place, band.see(float(loss), float(ROWS))) for place, loss in enumerate(losses))
    return [(place, change) for place, change in found if change is not None]


@pytest.mark.parametrize("slots", [4, 64])
@pytest.mark.parametrize("name", NOISES)
def test_noise_is_hardly_ever_taken_for_a_drift(name: str, slots: int) -> None:
    count = 3000 if name == "long tails" else 10_000
    assert changes(Band(slots), NOISES[name](np.random.default_rng(7), count)) == []


@pytest.mark.parametrize("slots", [16, 64])
@pytest.mark.parametrize("name", ["p=0.01", "p=0.1", "p=0.5", "student"])
def test_a_rise_by_five_deviations_of_the_recent_mean_is_noticed_within_two_windows(name: str, slots: int) -> None:
    rng, noise = np.random.default_rng(3), NOISES[name]
    rise = 5.0 * noise(rng, 50_000).std() / np.sqrt(slots)
    noticed = 0
    for _ in range(40):
        before, after = noise(rng, 20 * slots), noise(rng, 2 * slots) + rise
        band = Band(slots)
        assert changes(band, before) == []
        noticed += LEFT in [change for _, change in changes(band, after)]
    assert noticed >= 37


@pytest.mark.parametrize("name", NOISES)
def test_a_large_rise_is_noticed_within_half_a_window(name: str) -> None:
    rng, noise = np.random.default_rng(4), NOISES[name]
    losses = noise(rng, 2600 if name == "long tails" else 4000)
    band = Band(64)
    assert changes(band, losses) == []
    ((place, change),) = changes(band, losses[:40] * 2.0 + 3.0)
    assert change == LEFT and place < 32 and band.drifting
    assert band.recent is not None and band.usual is not None and band.top is not None
    assert band.recent > band.top > band.usual == pytest.approx(float(np.median(losses)), rel=0.2)


def test_what_becomes_better_is_no_drift() -> None:
    rng = np.random.default_rng(5)
    losses = np.concatenate([mistakes(p)(rng, 1000) for p in (0.5, 0.3, 0.299, 0.1, 0.001, 0.0)])
    assert changes(Band(32), losses) == []


@pytest.mark.parametrize("power", [0.25, 0.5, 1.0])
def test_a_loss_that_falls_while_the_model_learns_is_no_drift(power: float) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        falling = mistakes(0.1)(rng, 4000) + (1.0 + np.arange(4000)) ** -power
        assert changes(Band(40), falling) == []


def test_a_drift_after_the_loss_fell_is_noticed() -> None:
    rng = np.random.default_rng(1)
    falling = mistakes(0.1)(rng, 2000) + 1.0 / (1.0 + np.arange(2000))
    band = Band(40)
    assert changes(band, falling) == []
    assert [change for _, change in changes(band, mistakes(0.15)(rng, 80))] == [LEFT]


def test_a_few_slots_that_are_far_out_are_no_drift_and_hide_none() -> None:
    losses = mistakes(0.1)(np.random.default_rng(2), 3000)
    losses[[5, 40, 41, 700, 1500, 1501, 2998]] = 50.0
    band = Band(32)
    assert changes(band, losses) == []
    assert band.usual == pytest.approx(0.1, rel=0.02)
    assert [change for _, change in changes(band, losses[:64] + 0.02)] == [LEFT]


def test_it_warns_once_and_says_when_it_is_over() -> None:
    rng = np.random.default_rng(6)
    parts = [mistakes(p)(rng, slots) for p, slots in ((0.1, 2000), (0.2, 100), (0.1, 2000), (0.2, 100), (0.1, 1000))]
    found = changes(Band(32), np.concatenate(parts))
    assert [change for _, change in found] == [LEFT, BACK, LEFT, BACK]
    places = [place for place, _ in found]
    assert 2000 <= places[0] < 2032 and 2100 <= places[1] < 2164 and 4100 <= places[2] < 4132


def test_noise_about_the_edge_of_the_band_does_not_switch_it_on_and_off() -> None:
    rng = np.random.default_rng(8)
    edge = 4.25 * np.sqrt(0.1 * 0.9 / ROWS / 32)
    found = changes(Band(32), np.concatenate([mistakes(0.1)(rng, 2000), mistakes(0.1)(rng, 250) + edge]))
    assert [change for _, change in found] == [LEFT]


def test_what_lasts_becomes_usual() -> None:
    rng = np.random.default_rng(9)
    band = Band(32)
    found = changes(band, np.concatenate([mistakes(0.1)(rng, 2000), mistakes(0.2)(rng, 3000)]))
    assert [change for _, change in found] == [LEFT, SETTLED]
    assert found[1][0] - found[0][0] == 8 * 32 and band.usual == pytest.approx(0.2, rel=0.05)
    assert [change for _, change in changes(band, mistakes(0.3)(rng, 64))] == [LEFT]


def test_losses_that_are_all_the_same_leave_a_narrow_band() -> None:
    for usual in (0.0, 0.3):
        band = Band(16)
        assert changes(band, [usual] * 1000) == []
        assert changes(band, [usual + 1e-6] * 200) == []
        assert [change for _, change in changes(band, [usual + 0.1] * 16)] == [LEFT]


def test_slots_without_weight_or_with_a_loss_that_is_no_number_do_not_count() -> None:
    band, other = Band(16), Band(16)
    for loss in mistakes(0.1)(np.random.default_rng(1), 300):
        band.see(float(loss), 10.0)
        other.see(float(loss), 10.0)
        other.see(5.0, 0.0)
        other.see(float("nan"), 10.0)
    assert band.state() == other.state()


@examples(30)
@given(st.integers(1, 70), st.lists(st.integers(0, 900), max_size=6), st.integers(0, 5))
def test_it_goes_on_where_it_was(slots: int, stops: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    losses = np.concatenate([mistakes(p)(rng, 300) for p in (0.1, 0.3, 0.1)])
    whole, parts, band = Band(slots), Band(slots), Band(slots)
    expected, found = changes(whole, losses), []
    for a, b in zip([0, *sorted(stops)], [*sorted(stops), len(losses)], strict=True):
        found += [(a + place, change) for place, change in changes(parts, losses[a:b])]
        state = json.loads(json.dumps(parts.state()))
        parts = Band(slots)
        parts.restore(state)
    assert found == expected and parts.state() == whole.state() != band.state()
