"""Who works on a run: sums and slots of time that stay bounded, whoever comes and goes."""

import doctest

import numpy as np
import pytest

from streamsvm import crew
from streamsvm.crew import Crew


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What time it is; a crew begins at 100."""
    now = [100.0]
    monkeypatch.setattr(crew.time, "perf_counter", lambda: now[0])
    return now


def test_what_each_did_and_when(clock: list[float]) -> None:
    team = Crew()
    assert team.attend({"tcp://a:1": 1, "tcp://b:2": 2}, 100.0) == ([], [])
    team.hear("tcp://a:1", 0, 100, 1000, 1.0, 101.0)
    team.hear("tcp://b:2", 1, 50, 500, 0.5, 101.0)
    team.hear("tcp://b:2", 2, 70, 0, 0.5, 102.0)
    clock[0] = 104.0
    team.end()
    found = team.record(started=98.0)
    one, two = found.workers
    assert (one.name, one.address, one.threads, one.shards, one.rows, one.bytes) == ("worker 1", "a:1", 1, 1, 100, 1000)
    assert (two.name, two.address, two.threads, two.shards, two.rows, two.bytes) == ("worker 2", "b:2", 2, 2, 120, 500)
    assert (one.busy, one.idle, two.busy, two.idle) == (1.0, 3.0, 1.0, 7.0) and found.busy == pytest.approx(2 / 12)
    assert one.came == 2.0 and one.gone is None and not one.late and found.there == [one, two]
    assert found.edges == [2.0 + crew.FIRST_WIDTH * slot for slot in range(17)]
    assert found.rates[0] == pytest.approx([100.0] * 4 + [0.0] * 12)
    assert found.rates[1] == pytest.approx([0, 0, 100, 100, 0, 0, 140, 140] + [0.0] * 8)
    assert found.busy_threads == pytest.approx([1, 1, 2, 2, 0, 0, 1, 1] + [0.0] * 8)


def test_who_comes_and_goes(clock: list[float]) -> None:
    team = Crew()
    team.attend({"a:1": 1, "b:2": 1}, 100.0)
    came, gone = team.attend({"b:2": 1, "c:3": 4}, 110.0)
    assert [str(member) for member in came] == ["worker 3 (c:3)"]
    assert [str(member) for member in gone] == ["worker 1 (a:1)"] and (team.present, team.threads) == (2, 5)
    assert team.attend({"b:2": 1, "c:3": 4}, 111.0) == ([], [])
    came, gone = team.attend({"a:1": 1, "b:2": 1, "c:3": 4}, 112.0)
    assert [member.name for member in came] == ["worker 1"] and not gone
    team.attend({"a:1": 1, "b:2": 1}, 115.0)
    clock[0] = 120.0
    one, _, three = team.record(100.0).workers
    assert (one.gone, three.came, three.gone, three.late, three.idle) == (None, 10.0, 15.0, True, 20.0)
    assert team.called("c:3") == "worker 3 (c:3)" and team.called("tcp://d:4") == "d:4"


def test_a_long_run_takes_no_more_room_and_loses_nothing(clock: list[float]) -> None:
    team = Crew()
    team.attend({"a:1": 1}, 100.0)
    for k in range(1, 4001):
        team.hear("a:1", k % 7, 10, 5, 0.4, 100.0 + k)
    clock[0] = 4100.0
    found = team.record(100.0)
    (rates,) = found.rates
    assert crew.SLOTS / 2 <= len(rates) <= crew.SLOTS and found.edges[1] == 0.25 * 2**7
    assert np.array(rates[:-1]) == pytest.approx(10.0, rel=0.05)
    assert np.diff(found.edges) @ rates == pytest.approx(40_000, rel=1e-9) and found.workers[0].rows == 40_000
    assert found.workers[0].busy == pytest.approx(1600.0) and found.workers[0].shards == 7
    assert np.array(found.busy_threads) == pytest.approx(0.4, rel=0.05)


def test_a_slot_that_has_hardly_begun_makes_no_peak(clock: list[float]) -> None:
    team = Crew()
    team.attend({"a:1": 1}, 100.0)
    team.hear("a:1", 0, 1000, 0, 1.01, 101.01)
    clock[0] = 101.01
    found = team.record(100.0)
    assert np.array(found.rates[0]) == pytest.approx(1000 / 1.01, rel=1e-6)
    assert found.edges == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.01])


@pytest.mark.parametrize("end", [100.0, 100.1, 100.3, 100.9, 101.13, 171.4])
def test_rates_and_widths_make_all_rows_whenever_a_run_ends(clock: list[float], end: float) -> None:
    team = Crew()
    team.attend({"a:1": 1}, 100.0)
    for at in np.linspace(100.0, end, 7):
        team.hear("a:1", 0, 123, 0, 0.02, at)
    clock[0] = end
    found = team.record(99.0)
    assert np.diff(found.edges) @ found.rates[0] == pytest.approx(7 * 123)
    assert np.diff(found.edges) @ found.busy_threads == pytest.approx(7 * 0.02)


def test_very_many_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "MOST", 3)
    team = Crew()
    names = {f"h:{k}": 1 for k in range(6)}
    assert team.attend(names, 1.0) == ([], []) and team.attend(names, 2.0) == ([], [])
    for name in names:
        team.hear(name, 0, 10, 0, 0.1, 3.0)
    found = team.record(0.0).workers
    assert [worker.name for worker in found] == ["worker 1", "worker 2", "worker 3", "others"]
    assert found[-1].rows == 30 and found[-1].gone is None and team.present == 6


def test_what_was_told_too_early_is_counted_too() -> None:
    team = Crew()
    team.hear("a:1", 0, 10, 0, 0.1, -5.0)
    assert team.record(0.0).workers[0].rows == 10


def test_one_that_was_never_seen_before_it_told_something() -> None:
    team = Crew()
    team.attend({"a:1": 1}, 100.0)
    team.hear("b:2", 0, 10, 0, 0.1, 100.5)
    assert [worker.late for worker in team.record(0.0).workers] == [False, True]


def test_doctests() -> None:
    result = doctest.testmod(crew)
    assert result.attempted and not result.failed
