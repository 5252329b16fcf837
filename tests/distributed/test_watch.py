"""What the driver hears of its workers: how far an exchange is, and what is said of those that come or go."""

from typing import Any

import pytest

from streamsvm.distributed import watch
from streamsvm.distributed.watch import Beat, Watch, hanging


def test_an_exchange_grows_up_to_its_rows_and_counts_when_it_is_done() -> None:
    heard = Watch()
    heard.hear(Beat(0, "a:1", 50, 5), 1.0)
    assert heard.rows == 0  # nothing is under way
    with heard.exchange(100):
        heard.hear(Beat(0, "a:1", 60, 0), 1.0)
        assert heard.rows == 60
        heard.hear(Beat(1, "b:2", 60, 0), 1.0)
        assert heard.rows == 100 and heard.rounds == 0  # done again by another worker
    assert heard.rows == 0 and heard.rounds == 1
    with pytest.raises(KeyboardInterrupt), heard.exchange(100):
        heard.hear(Beat(0, "a:1", 60, 0), 1.0)
        raise KeyboardInterrupt
    assert heard.rows == 0 and heard.rounds == 1  # a checkpoint that is taken now speaks of what is committed
    assert heard.together == (0, 1, 0)


def test_what_others_have_the_workers_do_is_not_counted() -> None:
    heard = Watch()
    heard.runs.add("run-1")
    heard.hear(Beat(0, "a:1", 50, 5, 0.1, None, "run-1"), 1.0)
    heard.hear(Beat(0, "a:1", 70, 7, 0.1, None, "run-2"), 1.0)
    assert [worker.rows for worker in heard.crew.record(0.0).workers] == [50]


def test_what_online_solvers_have_learned_is_that_of_all_shards_and_never_less() -> None:
    heard = Watch()
    assert heard.learned is None
    with heard.exchange(100):
        heard.hear(Beat(0, "a:1", 10, 0, 0.1, (10, 10.0, 5.0, 2.0)), 1.0)
        heard.hear(Beat(1, "b:2", 20, 0, 0.1, (20, 20.0, 8.0, 3.0)), 1.0)
        assert heard.learned == (30, 30.0, 13.0, 5.0)
        heard.hear(Beat(1, "c:3", 5, 0, 0.1, (5, 5.0, 4.0, 3.0)), 1.0)  # again, from the beginning
        assert heard.learned == (30, 30.0, 13.0, 5.0)
    assert heard.learned is None


def test_what_is_said_of_those_that_come_and_go() -> None:
    heard, names = Watch(), {f"tcp://h:{k}": 1 for k in range(6)}
    assert heard.attend(names, set()) == []
    del names["tcp://h:0"]
    assert heard.attend(names, set()) == ["warning: worker 1 (h:0) is gone: shards go to others, of which 5 are left"]
    assert heard.attend({**names, "tcp://i:1": 1, "tcp://i:2": 1}, set()) == [
        "worker 7 (i:1) and worker 8 (i:2) have come: there are 7 now"
    ]
    said = heard.attend({"tcp://i:1": 1}, {"i:2"})
    assert said == ["warning: 5 workers, worker 2 (h:1) among them, are gone: shards go to others, of which 1 is left"]
    assert heard.attend({}, {"i:1"}) == []  # it was put out, of which something was said


def test_why_nothing_is_heard_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Watch().why_quiet() is None
    monkeypatch.setattr(watch, "QUIET", 0.0)
    heard = Watch()
    assert "compiles kernels" in (heard.why_quiet() or "") and heard.why_quiet() is None
    heard = Watch()
    heard.hear(Beat(0, "a:1", 1, 1), 1.0)
    assert heard.why_quiet() is None


def seen(second: float, executing: int = 0) -> dict[str, Any]:
    return {"last_seen": second, "metrics": {"task_counts": {"executing": executing, "memory": 3}}}


def test_who_hangs() -> None:
    """Who has no pulse; else who is at work; else all that are silent."""
    workers = {"a": seen(100.0, 1), "b": seen(80.0), "c": seen(99.0), "d": seen(70.0, 1)}
    assert hanging(workers, {"a", "b", "c"}, 30.0) == ["b"]
    assert hanging(workers, {"a", "b", "c"}, 60.0) == ["a"]
    assert hanging(workers, {"b", "c", "gone"}, 60.0) == ["b", "c"]
    assert hanging({}, {"a"}, 60.0) == []
