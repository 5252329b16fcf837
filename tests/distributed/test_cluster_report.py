"""What a user sees of a run on a cluster: progress of all workers together, what it cost, and the report of it."""

import json
import os
import signal
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from test_report import sound
from whole_runs import Notes, bits, lines

from streamsvm import load_settings, train
from streamsvm.cli.show import JsonLines, Lines, summary
from streamsvm.distributed import job
from streamsvm.distributed.opening import opened_cluster
from streamsvm.progress import Progress

ROWS = lines(1500, features=40)


class Heard(Notes):
    """Keeps all progress."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Progress] = []

    def progress(self, now: Progress) -> None:
        self.all.append(now)


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Two processes, which tell of every batch."""
    with opened_cluster("local:2", None, 60.0, lambda text: None) as opened:
        opened._client.run(_tell_often)
        yield opened._client


def _tell_often() -> None:
    from streamsvm.distributed import job

    job.BEAT = 0.0


def settings_for(data: str, **given: Any) -> Any:
    dotted = {name.replace("__", "."): value for name, value in given.items()}
    usual = {"data.train": data, "output.model": None, "cluster.shards": 2}
    usual |= {"cluster.storage": str(Path("storage").absolute())}
    return load_settings(overrides={**usual, **dotted})


DCD = {"solver": "dcd", "loss": "hinge", "penalty__l2": 1e-3, "solver__passes": 12}  # six rounds


def test_the_report_has_both_workers_and_what_the_gap_cost(client: Any, data: str) -> None:
    plain = train(settings_for(data, **DCD), client=client)
    heard = Heard()
    found = train(settings_for(data, **DCD, output__report="r.html"), heard, client=client)
    assert bits(found) == bits(plain)  # who looks changes nothing
    told, page = found.result["cluster"], sound()
    assert (told["workers"], told["threads"], told["shards"], told["lost"], told["came_later"]) == (2, 2, 2, 0, 0)
    assert told["rounds"] == 1 + found.result["passes"] / 2 and told["sent"] > told["rounds"] * 8 * 41
    assert 0.0 < told["busy"] <= 1.0 and told["reading_seconds"] > 0.0
    assert "workers" in page.chapters and "Proven gap by round" in page.titles()
    assert "Proven gap by bytes sent" in page.titles() and "worker 1" in page.text and "worker 2" in page.text
    both = page.data["cluster"]["workers"]
    assert [one["shards"] for one in both] == [1, 1] and all(one["busy"] > 0.0 for one in both)
    assert sum(one["bytes"] for one in both) == os.path.getsize(data)
    assert all(one["rows"] > 4 * 700 for one in both)  # read, and learned; rows that rest are left out
    addresses = {name.split("://")[1] for name in client.scheduler_info()["workers"]}
    assert {one["address"] for one in both} == addresses
    proofs = page.data["proofs"]
    assert proofs["rounds"] == list(range(2, told["rounds"] + 1)) and proofs["sent"] == sorted(proofs["sent"])
    assert proofs["sent"][-1] == told["sent"] and proofs["gap"][-1] == pytest.approx(found.result["gap"], rel=1e-4)
    timeline = page.data["cluster"]["timeline"]
    for one in both:
        rates = timeline["rows_a_second"][one["name"]]
        spans = zip(timeline["edges"], timeline["edges"][1:], rates, strict=False)
        assert sum((b - a) * rate for a, b, rate in spans) == pytest.approx(one["rows"], rel=1e-3)
    assert _moves(heard.all) and heard.all[0].cluster is not None and heard.all[0].cluster.workers == 2
    reading = [now for now in heard.all if now.loss is None and not now.weight]
    assert [now.bytes for now in reading] == sorted(now.bytes for now in reading)
    assert reading[-1].bytes == os.path.getsize(data) and reading[-1].fraction == 1.0
    inside = [now.examples for now in heard.all if now.examples % 3000]
    assert inside, "examples move within a round"


def _moves(told: list[Progress]) -> bool:
    """Whether examples never go back, and end with all of them."""
    examples = [now.examples for now in told]
    return examples == sorted(examples)


@pytest.mark.full
def test_online_passes_move_too_with_loss_and_error(client: Any, data: str) -> None:
    heard = Heard()
    given = {"solver": "asgd", "solver__passes": 2, "output__report": "r.html", "data__holdout": 10}
    found = train(settings_for(data, **given), heard, client=client)
    each = found.result["examples"] // 2
    assert _moves(heard.all) and heard.all[-1].examples == 2 * each and 1340 < each < 1360
    inside = [now for now in heard.all if now.examples and now.examples % each]
    assert inside and all(now.loss is not None and now.error is not None for now in inside)
    assert found.result["cluster"]["rounds"] == 2
    page = sound()
    assert "workers" in page.chapters and "Rows a second" in page.text and "Proven gap by round" not in page.titles()


@pytest.mark.full
def test_sums_over_all_rows_are_rounds_as_well(client: Any, data: str) -> None:
    heard = Heard()
    found = train(settings_for(data, solver="newton", penalty__C=1.0, output__report="r.html"), heard, client=client)
    rows = sum(one["rows"] for one in sound().data["cluster"]["workers"])
    assert rows >= found.result["examples"] + 1500  # each was read once, too
    assert _moves(heard.all) and found.result["cluster"]["rounds"] >= found.result["passes"] > 3


def test_what_is_printed(client: Any, data: str) -> None:
    out = StringIO()
    found = train(settings_for(data, **DCD), JsonLines(out, None), client=client)
    printed = [json.loads(line) for line in out.getvalue().splitlines()]
    assert printed[-1]["workers"] == 2 and printed[-1]["rounds"] >= 1 and printed[-1]["sent"] > 0
    told = summary(found.result, "m").splitlines()[1]
    rounds = found.result["cluster"]["rounds"]
    assert told.startswith(f"cluster  2 workers, 2 shards, {rounds} rounds, ") and " MB sent, workers busy for " in told
    assert "lost" not in told
    out = StringIO()
    train(settings_for(data, solver="asgd", solver__passes=2), shown := Lines(out), client=client)
    shown.end()
    text = out.getvalue()
    assert "read 1,500 rows, 0.1 MB, in " in text and text.count("3,000 ") == 1


def test_work_is_told_in_full_when_a_task_lets_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(job, "tell", lambda *what: told.append(what))
    monkeypatch.setattr(job, "worker_directory", lambda: tmp_path)
    path = tmp_path / "rows.svm"
    path.write_text("\n".join(ROWS) + "\n")
    from streamsvm.config import with_usual
    from streamsvm.distributed.shards import plan_shards
    from streamsvm.reading import training_stream

    settings = with_usual(settings_for(str(path), **DCD))
    stream = training_stream(settings, lambda text: None)
    shards = tuple(plan_shards(stream.source, stream.dialect, 2))
    given = job.Job("run-1", settings, stream.dialect, stream.features, shards)
    with job.open_shard(given, 1) as shard:
        shard.filled()
        before = len(told)
        shard.tick(7)
    job.close_all("run-1")
    assert before >= 1 and sum(one[2] for one in told) == shard.stream.tally.bytes > 0
    assert sum(one[1] for one in told) == shard.stream.tally.rows + 7 and told[-1][1] == 7
    assert all(one[0] == 1 and one[3] >= 0.0 and one[5] == "run-1" for one in told)


# The last one: the workers are not the same after it.


@pytest.mark.full
def test_a_worker_that_is_lost_is_named(client: Any, data: str) -> None:
    class Kills(Heard):
        victim = 0

        def progress(self, now: Progress) -> None:
            super().progress(now)
            if now.gap is not None and self.victim:
                victim, self.victim = self.victim, 0
                os.kill(victim, signal.SIGKILL)

    address, pid = next(iter(client.run(os.getpid).items()))
    listener = Kills()
    listener.victim = pid
    found = train(settings_for(data, **DCD, output__report="r.html"), listener, client=client)
    shown = address.split("://")[1]
    assert [note for note in listener.notes if note.startswith("warning: worker") and f"({shown}) is gone" in note]
    assert found.result["cluster"]["lost"] == 1 and "1 worker lost" in summary(found.result, "m")
    page = sound()
    (gone,) = [one for one in page.data["cluster"]["workers"] if one["gone"] is not None]
    assert gone["address"] == shown and gone["gone"] > gone["came"] and "Lost: worker" in page.text
