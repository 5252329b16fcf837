"""The chapter about workers: a line for each of a few, quantiles of many, those that were lost, and what it cost."""

import doctest
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_crew import SLOTS, made_up_crew, made_up_figures, new_recording, recorded_proofs
from test_report import Page, sound

from streamsvm import load_settings
from streamsvm.crew import Record
from streamsvm.model import Model
from streamsvm.report import workers
from streamsvm.report.story import Story
from streamsvm.report.writing import write_report


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def page_of(record: Record, rounds: int = 12, sent: int = 30_000_000, **more: Any) -> Page:
    """The page of a run that such a crew made."""
    result = {"examples": 5000, "seconds": 50.0, "gap": 0.01, "objective": 0.4, "dual": 0.396, "tol": 1e-3, **more}
    result |= {"loss": 0.3, "error": 0.1, "cluster": made_up_figures(record, rounds, sent)}
    recording = new_recording()
    recording.crew = record
    recorded_proofs(recording, rounds, sent)
    model = Model(np.arange(9, dtype=np.float32), 0.0, [-1, 1], "hinge")
    settings = load_settings(overrides={"data.train": "rows.svm", "solver": "dcd"})
    write_report("r.html", Story("train", settings, model, "", "", result, recording, None), print)
    return sound()


def chapter_of(page: Page) -> str:
    return page.raw[page.raw.index('<section id="workers"') :].split("</section>")[0]


def test_of_a_few_workers_each_has_a_line_and_a_row() -> None:
    page = page_of(made_up_crew(3))
    assert page.chapters.index("workers") == page.chapters.index("run") - 1
    inside, titles = chapter_of(page), page.titles()
    assert {"Rows a second of each worker", "Threads at work", "Proven gap by round", "Proven gap by bytes sent"} <= {
        *titles
    }
    assert inside.count("worker 2") == 2 and inside.count("<tbody><tr>") == 1 and inside.count("<tr>") == 4
    assert "10.0.0.1:40001" in inside and "threads" in inside and "always" in inside and "Lost" not in inside
    assert "3 workers with 4 threads worked on 3 shards in 12 rounds" in page.text and "2.5 MB a round" in page.text
    assert "3 workers with 4 threads on 3 machines, 3 shards" in page.text and "driver" in page.text
    told = page.data["cluster"]
    assert [one["rows"] for one in told["workers"]] == [1_000_000, 999_100, 998_200]
    assert set(told["timeline"]["rows_a_second"]) == {"worker 1", "worker 2", "worker 3"}
    assert len(told["timeline"]["rows_a_second"]["worker 3"]) == len(told["timeline"]["busy_threads"]) == SLOTS
    proofs = page.data["proofs"]
    assert (
        proofs["rounds"] == list(range(1, 13))
        and proofs["sent"][-1] == 30_000_000 == page.data["result"]["cluster"]["sent"]
    )
    assert len(proofs["gap"]) == len(proofs["rounds"])


@pytest.mark.parametrize("count", [9, 256, 400])
def test_of_many_there_are_quantiles_and_a_table_to_unfold(count: int) -> None:
    page = page_of(made_up_crew(count))
    inside = chapter_of(page)
    assert "Rows a second of a worker" in page.titles() and "the middle half" in inside
    assert f"of {count} workers" in inside and "median" in inside
    assert f"All {count} workers" in inside and ("the first 300" in inside) == (count > 300)
    assert len(page.data["cluster"]["workers"]) == count
    rates = page.data["cluster"]["timeline"]["rows_a_second"]
    assert list(rates) == ["least", "lower_quartile", "median", "upper_quartile", "most"]
    assert all(a <= b <= c for a, b, c in zip(rates["least"], rates["median"], rates["most"], strict=True))
    assert len(Path("r.html").read_bytes()) < 300_000


def test_those_that_were_lost_or_came_later_are_named() -> None:
    page = page_of(made_up_crew(2, lost=1))
    assert "Lost: worker 1 after 20 s. What it had was read again" in page.text
    assert "Came later: worker 3 after 25 s." in page.text
    assert "until 20 s" in page.text and "from 25 s on" in page.text
    page = page_of(made_up_crew(20, lost=9))
    assert "worker 5 after 20 s, and 4 more. What they had" in page.text


def test_the_gap_has_no_picture_where_none_is_proven() -> None:
    page = page_of(made_up_crew(2), rounds=0, sent=0)
    assert "Proven gap by round" not in page.titles() and "Rows a second of each worker" in page.titles()
    assert "in 0 rounds" in page.text and page.data["proofs"]["rounds"] == []


def test_a_path_of_penalties_has_its_steps_marked() -> None:
    path = [{"passes": 10, "l2": 1e-2, "held_out_loss": 0.4, "held_out_error": 0.1, "loss": 0.3, "error": 0.1}]
    path.append({**path[0], "passes": 12, "l2": 1e-3})
    page = page_of(made_up_crew(2), path=path, l2=1e-3)
    assert chapter_of(page).count("Dotted lines begin another penalty.</figcaption>") == 2


def test_a_run_that_was_over_at_once_has_a_table_alone() -> None:
    record = made_up_crew(2)
    page = page_of(record._replace(rates=[[0.0]] * 2, busy_threads=[0.0]))
    assert "Rows a second of each worker" not in page.titles() and "What each worker did" in chapter_of(page)


def test_addresses_are_text_whatever_they_are() -> None:
    record = made_up_crew(1)
    page = page_of(record._replace(workers=[record.workers[0]._replace(address="<script>alert(1)</script>")]))
    assert "<script>alert" not in page.raw and "alert(1)" in json.dumps(page.data)


def test_of_one_machine_there_is_no_such_chapter(run: Any, write: Any) -> None:
    data = write(["1 1:1", "-1 2:1"] * 100)
    code, out, err = run("train", data, "--solver", "dcd", "--report", "r.html", "--json")
    assert code == 0, err
    page = sound()
    assert "workers" not in page.chapters and "cluster" not in page.data and "rounds" not in page.data["proofs"]
    assert "cluster" not in json.loads(out.splitlines()[-1])


def test_lines_are_drawn_in_few_steps_that_have_the_same_mean() -> None:
    record = made_up_crew(2)
    edges, rates, busy = workers.coarser(record)
    assert len(edges) == workers.MOST_STEPS + 1 == rates.shape[1] + 1 and edges[0] == 1.5
    assert edges[-1] == pytest.approx(1.5 + 0.25 * SLOTS)
    widths = np.diff(edges)
    assert rates @ widths == pytest.approx(np.sum(record.rates, axis=1) * 0.25)
    assert busy @ widths == pytest.approx(np.sum(record.busy_threads) * 0.25)


@pytest.mark.full
def test_who_is_not_there_is_not_slow() -> None:
    record = made_up_crew(2, lost=1)
    _, rates, _ = workers.coarser(record, 40)
    gone, _, late = np.isnan(rates)
    assert not gone[:14].any() and gone[15:].all() and late[:18].all() and not late[19:].any()
    many = page_of(made_up_crew(20, lost=9)).data["cluster"]["timeline"]["rows_a_second"]
    assert min(many["least"]) >= 1000.0


def test_doctests() -> None:
    result = doctest.testmod(workers)
    assert result.attempted and not result.failed
