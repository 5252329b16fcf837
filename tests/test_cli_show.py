"""What moves on the screen: speed as one would say it now, and lines before there are figures."""

import doctest
import json
from io import StringIO
from typing import Any

import pytest

from streamsvm.cli import pace, show
from streamsvm.cli.pace import Pace, moving, stage
from streamsvm.cli.show import JsonLines, Lines
from streamsvm.progress import Progress, Together

TWO = Together(2, 3, 4_000_000)


def at(seconds: float, size: int, **more: Any) -> Progress:
    usual = {"pass_number": 1, "passes": 9, "examples": 0, "features": 0, "loss": None, "error": None, "weight": 0.0}
    return Progress(**{**usual, "bytes": size, "seconds": seconds, "fraction": 0.0, "cluster": TWO, **more})


def test_speed_is_that_of_the_last_seconds() -> None:
    now = Pace()
    assert now.rate(at(1.0, 0)) is None
    assert now.rate(at(30.0, 2_000_000)) == pytest.approx(2 / 29)
    assert now.rate(at(31.0, 102_000_000)) == pytest.approx(100.0)  # the long wait is no longer counted
    for k in range(40):
        found = now.rate(at(32.0 + k, 102_000_000 + 50_000_000 * (k + 1)))
    assert found == pytest.approx(50.0)
    assert now.rate(at(80.0, 0)) is None  # what is learned is counted from zero: never less than nothing
    assert now.rate(at(81.0, 7_000_000)) == pytest.approx(7.0)


def test_what_moves_in_words() -> None:
    reading = at(2.0, 150_000_000, fraction=0.5)
    assert stage(reading) == "reading" and moving(reading, 75.0) == "150.0 of 300.0 MB, 75 MB/s, 2 workers"
    assert moving(at(2.0, 0, cluster=Together(1, 0, 0)), None) == "0.0 MB, 1 worker"
    learning = at(3.0, 8, examples=1000, weight=5.0)
    assert stage(learning) == "learning" and moving(learning, 0.1) == "1,000 examples, 2 workers"
    assert stage(at(3.0, 0, weight=5.0)) == "learning"
    proven = learning._replace(loss=0.5, objective=1.0, gap=0.01, cluster=None)
    assert moving(proven, 10.0) == "1,000 examples, 10 MB/s, gap 1.0e-02"
    assert moving(proven._replace(gap=None), None) == "1,000 examples, loss 0.5000"


def told(lines: Lines, moments: list[Progress]) -> None:
    for now in moments:
        lines.progress(now)
    lines.end()


def test_workers_that_read_have_lines_before_there_are_figures() -> None:
    out = StringIO()
    moments = [at(k / 2, 10_000_000 * k, fraction=k / 100) for k in range(101)]
    told(Lines(out), moments)
    lines = out.getvalue().splitlines()
    assert lines[0] == "reading  40.0 of 1,000.0 MB, 20 MB/s, 2 workers"
    assert [line.split()[1] for line in lines] == ["40.0", "80.0", "160.0", "320.0", "620.0", "920.0"]
    out = StringIO()
    told(Lines(out), [now._replace(cluster=None) for now in moments])
    assert out.getvalue() == ""  # on one machine, as ever


def test_programs_read_them_too() -> None:
    out = StringIO()
    told(JsonLines(out, None), [at(k / 2, 10_000_000 * k, fraction=k / 100) for k in range(10)])
    first, *_ = map(json.loads, out.getvalue().splitlines())
    assert first["bytes"] == 40_000_000 and first["loss"] is None and first["fraction"] == 0.04
    assert (first["workers"], first["rounds"], first["sent"]) == (2, 3, 4_000_000)
    out = StringIO()
    told(JsonLines(out, None), [at(1.0, 5, examples=3, loss=0.5, error=0.1, weight=3.0, cluster=None)])
    assert "workers" not in json.loads(out.getvalue())


def test_workers_that_tell_at_once_make_no_huge_speed_and_no_line_twice() -> None:
    out = StringIO()
    usual = {"loss": 0.5, "error": 0.1}
    moments = [at(5.0, 300_000_000), at(6.0, 0, examples=0)]
    moments += [at(7.0, 10_000_000, examples=1000, weight=1000.0, **usual)]
    moments += [at(7.0001, 30_000_000, examples=3000, weight=3000.0, **usual)] * 3
    told(Lines(out), moments)
    header, *lines = out.getvalue().splitlines()
    assert header == show.HEADER and [line.split()[1] for line in lines] == ["1,000", "3,000"]
    assert [line.split()[3] for line in lines] == ["10", "30"]


def test_what_a_cluster_cost_in_one_line() -> None:
    given = {"workers": 2, "threads": 4, "shards": 4, "rounds": 9, "sent": 13_500_000, "busy": 0.634}
    assert show.crew({**given, "lost": 0, "came_later": 0}) == (
        "2 workers, 4 shards, 9 rounds, 13.5 MB sent, workers busy for 63 % of the time"
    )
    assert show.crew({**given, "lost": 1, "came_later": 2}).endswith("1 worker lost, 2 came later")


def test_a_terminal_shows_what_moves(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    live = show.Live()
    try:
        for now in (at(1.0, 0), at(2.0, 150_000_000, fraction=0.5), at(3.0, 1, examples=7, weight=9.0, fraction=0.1)):
            live._drawn_at = 0.0
            live.progress(now)
        task = live._bar.tasks[0]
        assert task.description == "pass 1/9" and task.fields["moving"] == "7 examples, 2 workers"
        assert task.completed == 0.1 and not task.finished  # it began again
    finally:
        live.close()
    capsys.readouterr()


def test_doctests() -> None:
    result = doctest.testmod(pace)
    assert result.attempted and not result.failed
