"""Whole runs of `follow`: what is learned is what `train` learns from the same lines, through whatever happens."""

import json
import os
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from followed import append, rotate
from whole_runs import KilledError, Life, Notes, bits, class_lines, few_rows_a_piece, lines

import streamsvm.checkpoint
import streamsvm.cli
import streamsvm.following
import streamsvm.io.log_source
import streamsvm.solvers.base
from streamsvm import load_model
from streamsvm.config import load_settings
from streamsvm.errors import ConfigError, DataError, SourceError, StreamSvmError
from streamsvm.following import follow
from streamsvm.interrupts import Interrupted
from streamsvm.io.generations import Generations
from streamsvm.training import Outcome, train

QUICK = {"follow.until_idle": True, "follow.idle": 0.05, "follow.poll": 0.01, "follow.rotate_wait": 0.1}


@pytest.fixture(autouse=True)
def small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(streamsvm.io.log_source, "FIRST_LINES", 200)
    monkeypatch.setattr(streamsvm.io.log_source, "FIRST_BLOCK", 2000)
    monkeypatch.setattr(streamsvm.solvers.base, "TRIAL_ROWS", 300)
    monkeypatch.setattr("streamsvm.features.held_back.ROWS", 200)
    with few_rows_a_piece():
        yield


def followed(*logs: str, listener: Any = None, quick: bool = True, **settings: Any) -> Outcome:
    given = {name.replace("__", "."): value for name, value in settings.items()}
    overrides = {"data.train": list(logs) or ["a.log"], "output.model": "m.st", **(QUICK if quick else {}), **given}
    return follow(load_settings(overrides=overrides), listener or Notes())


def trained(text: str, name: str = "whole.svm", **settings: Any) -> Outcome:
    Path(name).write_text(text)
    given = {key.replace("__", "."): value for key, value in settings.items()}
    return train(load_settings(overrides={"data.train": [name], "output.model": None, **given}), Notes())


def text_of(rows: list[str]) -> str:
    return "".join(f"{row}\n" for row in rows)


ROWS = lines(1500)


def test_it_learns_what_train_learns() -> None:
    append(Path("a.log"), text_of(ROWS))
    outcome = followed()
    assert outcome.result["examples"] == 1500
    assert bits(outcome) == bits(trained(text_of(ROWS)))
    assert not any(outcome.result["follow"][mishap] for mishap in ("lost", "truncated", "errors"))
    assert load_model("m.st").weights.tobytes() == outcome.model.weights.tobytes()


@pytest.mark.parametrize("few", [20, 290, 310])
def test_few_rows_are_learned_too(few: int) -> None:
    """A step size is chosen on the first rows. Until they have come, the model is what train makes of those there."""
    append(Path("a.log"), text_of(ROWS[:few]))
    assert bits(followed()) == bits(trained(text_of(ROWS[:few])))
    append(Path("a.log"), text_of(ROWS[few:]))
    assert bits(followed()) == bits(trained(text_of(ROWS)))


def test_it_goes_on_by_itself() -> None:
    log = Path("a.log")
    append(log, text_of(ROWS[:400]) + ROWS[400][:5])
    followed()
    append(log, ROWS[400][5:] + "\n")
    followed()
    append(log, text_of(ROWS[401:600]))
    rotate(log)
    append(log, text_of(ROWS[600:700]))
    rotate(log)
    append(log, text_of(ROWS[700:]))
    outcome = followed()
    assert outcome.result["examples"] == 1500
    assert bits(outcome) == bits(trained(text_of(ROWS)))
    assert followed().result["examples"] == 1500


def test_stop_after_counts_all_rows() -> None:
    append(Path("a.log"), text_of(ROWS))
    assert followed(follow__stop_after=333).result["examples"] == 333
    assert bits(followed(follow__stop_after=333)) == bits(trained(text_of(ROWS[:333])))
    assert followed(follow__stop_after=334).result["examples"] == 334
    assert followed(follow__stop_after=1001).result["examples"] == 1001
    assert bits(followed()) == bits(trained(text_of(ROWS)))


def test_stop_after_among_bad_rows() -> None:
    rows = [row for number, row in enumerate(ROWS) for row in ([row, "bad :"] if number % 7 == 0 else [row])]
    append(Path("a.log"), text_of(rows))
    whole = trained(text_of(rows), data__on_bad_row="skip")
    for stop in (100, 101, 640, 1400):
        assert followed(follow__stop_after=stop).result["examples"] == stop
    outcome = followed()
    assert bits(outcome) == bits(whole) and outcome.result["bad_rows"] == whole.result["bad_rows"] == 215


@pytest.mark.parametrize("politely", [False, True])
@pytest.mark.parametrize("batches", [1, 2, 5, 11])
def test_stopped_anywhere(batches: int, politely: bool) -> None:
    append(Path("a.log"), text_of(ROWS))
    for _ in range(20):
        try:
            life = Life(batches, politely=politely)
            followed(listener=life, checkpoint__every_rows=40)
            break
        except (KilledError, Interrupted) as stop:
            assert politely == isinstance(stop, Interrupted)
    assert bits(followed()) == bits(trained(text_of(ROWS)))


def table(rows: int, seed: int = 0) -> list[tuple[int, int, float, str]]:
    rng = np.random.default_rng(seed)
    return [
        (int(x + z > 0.3), number, round(float(x), 3), "uvw"[int(z * 3) % 3])
        for number, (x, z) in enumerate(zip(rng.standard_normal(rows), rng.random(rows), strict=True))
    ]


def as_csv(rows: list[tuple[int, int, float, str]], header: bool) -> str:
    return ("click,id,x,site\n" if header else "") + "".join(f"{c},{i},{x},{s}\n" for c, i, x, s in rows)


@pytest.mark.parametrize("later", [True, False])
def test_csv_with_a_header_in_each_file_or_in_the_first(later: bool) -> None:
    rows, log = table(900), Path("a.log")
    append(log, as_csv(rows[:300], True))
    followed()
    append(log, as_csv(rows[300:500], False))
    rotate(log)
    append(log, as_csv(rows[500:800], later))
    followed()
    append(log, as_csv(rows[800:], False))
    outcome = followed()
    assert outcome.result["examples"] == 900 and outcome.result["bad_rows"] == 0
    assert bits(outcome) == bits(trained(as_csv(rows, True), "whole.csv"))


def test_csv_with_declared_columns() -> None:
    rows, log = table(700), Path("a.csv")
    append(log, as_csv(rows[:300], False))
    declared = {"data__columns": "click,id,x,site", "data__label": "click"}
    followed("a.csv", **declared)
    append(log, as_csv(rows[300:], False))
    outcome = followed("a.csv", **declared)
    assert bits(outcome) == bits(trained(as_csv(rows, False), "whole.csv", **declared))


def test_json_lines() -> None:
    rows = [{"click": c, "x": x, "site": s} for c, _, x, s in table(700)]
    text = [json.dumps(row) for row in rows]
    append(Path("a.log"), text_of(text[:250]))
    followed()
    append(Path("a.log"), text_of(text[250:]))
    assert bits(followed()) == bits(trained(text_of(text), "whole.jsonl"))


def test_vw_text() -> None:
    text = [f"{2 * c - 1} |a x:{x} |b {s}" for c, _, x, s in table(700)]
    append(Path("a.log"), text_of(text[:250]))
    followed()
    append(Path("a.log"), text_of(text[250:]))
    assert bits(followed()) == bits(trained(text_of(text), "whole.vw"))


def test_several_classes() -> None:
    rows = class_lines(900, labels=[1, 2, 5])
    append(Path("a.log"), text_of(rows[:400]))
    followed()
    append(Path("a.log"), text_of(rows[400:]))
    outcome = followed()
    assert outcome.model.classes == [1, 2, 5]
    assert bits(outcome) == bits(trained(text_of(rows)))


@pytest.mark.parametrize("settings", [{"features__scale": "standard"}, {"data__class_weights": "balanced"}])
def test_what_is_counted_on_the_way(settings: dict[str, Any]) -> None:
    """Scales and weights of classes are those of the rows so far; a pause changes nothing."""
    append(Path("a.log"), text_of(ROWS))
    whole = followed(output__model="w.st", **settings)
    append(Path("b.log"), text_of(ROWS[:700]))
    followed("b.log", output__model="b.st", **settings)
    append(Path("b.log"), text_of(ROWS[700:]))
    assert bits(followed("b.log", output__model="b.st", **settings)) == bits(whole)


def test_bad_rows_and_unknown_classes_are_skipped() -> None:
    rows = [*ROWS[:300], "not a row", "7 1:1", *ROWS[300:600], "x y z", *ROWS[600:]]
    append(Path("a.log"), text_of(rows))
    listener = Notes()
    outcome = followed(listener=listener)
    assert bits(outcome) == bits(trained(text_of(ROWS)))
    assert outcome.result["bad_rows"] == 3
    assert any("a.log:301" in note for note in listener.notes)
    assert any("label 7" in note and "data.classes" in note for note in listener.notes)


def test_a_log_of_something_else_is_refused() -> None:
    append(Path("a.log"), "1 1:1\n-1 2:1\n" + "GET /index.html HTTP/1.1\n" * 3000)
    with pytest.raises(DataError, match="bad rows"):
        followed()


def test_it_waits_for_the_first_lines() -> None:
    def write() -> None:
        time.sleep(0.3)
        append(Path("a.log"), text_of(ROWS[:100]))
        time.sleep(0.1)
        append(Path("a.log"), text_of(ROWS[100:]))

    listener = Notes()
    writer = threading.Thread(target=write)
    writer.start()
    outcome = followed(listener=listener, follow__stop_after=1500, follow__until_idle=False)
    writer.join()
    assert bits(outcome) == bits(trained(text_of(ROWS)))
    assert "waiting for the first lines of a.log" in listener.notes


def test_nothing_at_all_is_an_error() -> None:
    with pytest.raises(DataError, match="there is no row to learn from"):
        followed()


def test_an_interrupt_while_waiting() -> None:
    import signal

    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGTERM))
    timer.start()
    with pytest.raises(Interrupted):
        followed(follow__until_idle=False)
    timer.join()


def test_the_model_is_always_whole() -> None:
    """Whoever reads it while it is replaced again and again sees one or another, never half of one."""
    append(Path("a.log"), text_of(ROWS))
    followed(follow__stop_after=10)
    ended, seen = threading.Event(), []

    def read() -> None:
        while not ended.is_set():
            seen.append(load_model("m.st").provenance["examples"])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        followed(checkpoint__every_rows=1)
    finally:
        ended.set()
        reader.join()
    assert seen == sorted(seen) and len(set(seen)) > 2


def test_a_model_that_cannot_be_written_is_kept_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    append(Path("a.log"), text_of(ROWS))
    Path("there").mkdir()
    listener = Notes()
    followed(listener=listener, output__model="there", checkpoint__dir="ck")
    assert any(note.startswith("warning: the model could not be written") for note in listener.notes)
    outcome = followed(output__model="m.st", checkpoint__dir="ck")
    assert outcome.result["examples"] == 1500


def test_init_begins_with_a_model() -> None:
    append(Path("first.svm"), text_of(ROWS[:500]))
    train(load_settings(overrides={"data.train": ["first.svm"], "output.model": "init.st"}), Notes())
    append(Path("a.log"), text_of(ROWS[500:]))
    outcome = followed(solver__init="init.st")
    Path("rest.svm").write_text(text_of(ROWS[500:]))
    settings = {"data.train": ["rest.svm"], "output.model": None, "solver.init": "init.st"}
    assert bits(outcome) == bits(train(load_settings(overrides=settings), Notes()))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("solver.name", "dcd"), ("solver.name", "auto"), ("solver.passes", 2), ("penalty.C", 1.0),
        ("data.holdout", 10), ("data.shuffle", 100), ("data.limit", 5), ("data.test", "x"), ("data.format", "parquet"),
        ("run.objective", True), ("output.model", None), ("data.train", ["-"]), ("data.train", ["s3://b/x.log"]),
    ],
)  # fmt: skip
def test_what_a_log_cannot_give_is_refused(setting: str, value: Any) -> None:
    append(Path("a.log"), text_of(ROWS[:10]))
    with pytest.raises(ConfigError):
        followed(**{setting.replace(".", "__"): value})


def test_another_configuration_is_refused() -> None:
    append(Path("a.log"), text_of(ROWS[:500]))
    followed()
    with pytest.raises(StreamSvmError, match=r"penalty.l2 was not set and is now 0.5"):
        followed(penalty__l2=0.5)


def scraped(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    found = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in found}


def test_metrics_are_served() -> None:
    seen: list[dict[str, float]] = []

    class Scraper(Notes):
        port = 0

        def note(self, text: str) -> None:
            super().note(text)
            if text.startswith("metrics on"):
                self.port = int(text.rsplit(":", 1)[1].split("/")[0])

        def progress(self, now: Any) -> None:
            seen.append(scraped(self.port))

    append(Path("a.log"), text_of([*ROWS, "bad"]))
    followed(listener=Scraper(), follow__metrics=0)
    last = seen[-1]
    assert last["streamsvm_rows_total"] == 1500 and last["streamsvm_lag_bytes"] == 0
    assert last["streamsvm_bytes_total"] == Path("a.log").stat().st_size
    assert last["streamsvm_skipped_rows_total"] == 1 and last["streamsvm_up"] == 1


def run_cli(*words: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["streamsvm", *words])
    code = streamsvm.cli.run()
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def command(*words: str) -> tuple[int, str, str]:
        quick = ["--set", "follow.idle=0.05", "--set", "follow.poll=0.01", "--rotate-wait", "0.1"]
        return run_cli("follow", *words, "--until-idle", *quick, capsys=capsys, monkeypatch=monkeypatch)

    append(Path("a.log"), text_of(ROWS))
    code, out, err = command("a.log", "-o", "m.st")
    assert code == 0, err
    assert "learned  1,500 rows of 1 file\n" in out and "model    m.st (31 weights, classes -1 and 1)" in out
    assert "starting from the beginning" in err and "rows" in err
    append(Path("a.log"), text_of(["bad"]))
    code, out, err = command("a.log", "-o", "m.st", "--json", "--quiet")
    result = json.loads(out.splitlines()[-1])
    assert code == 0 and result["examples"] == 1500 and result["bad_rows"] == 1
    assert "warning: 1 malformed rows skipped so far; a.log:1501" in err
    code, out, err = run_cli("inspect", "m.st.checkpoint", capsys=capsys, monkeypatch=monkeypatch)
    assert code == 0 and "1,500 examples" in out and "a.log, line 1,502" in out
    code, out, err = command("s3://bucket/a.log")
    assert code == 2 and "can be followed" in err


def words_of(*words: str) -> list[str]:
    quick = ["--set", "follow.idle=0.05", "--set", "follow.poll=0.01", "--rotate-wait", "0.1"]
    return ["follow", *words, *quick]


@pytest.mark.parametrize("rows", [0, 100, 1500])
def test_whatever_ends_it_there_is_a_summary(rows: int, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM while it waits for the first line, while there are few, and while it learns."""
    import signal

    append(Path("a.log"), text_of(ROWS[:rows]))
    for flags in ([], ["--json", "--quiet"]):
        timer = threading.Timer(0.6, lambda: os.kill(os.getpid(), signal.SIGTERM))
        timer.start()
        code, out, err = run_cli(*words_of("a.log", "-o", "m.st", *flags), capsys=capsys, monkeypatch=monkeypatch)
        timer.join()
        assert code == 0 and "stopped by SIGTERM" in err
        if flags:
            assert json.loads(out.splitlines()[-1])["examples"] == rows
        else:
            assert f"learned  {rows:,} rows of {1 if rows else 0} file" in out
            assert ("provisional" in out) == (rows == 100)
            assert not rows or "no loss and no error yet: they are told from 5,120 rows on" in out


def test_an_error_ends_it_with_a_summary_too(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    append(Path("a.log"), text_of([*ROWS, "bad"]))
    words = words_of("a.log", "-o", "m.st", "--on-bad-row", "raise", "--json", "--quiet")
    code, out, err = run_cli(*words, capsys=capsys, monkeypatch=monkeypatch)
    assert code == 4 and "a.log:1501" in err
    assert json.loads(out.splitlines()[-1])["examples"] == 1500


def test_a_report_is_written_with_each_model(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    monkeypatch.setattr(streamsvm.following, "report_run", lambda *given: written.append(given[3]["examples"]))
    append(Path("a.log"), text_of(ROWS))
    outcome = followed(output__report="r.html", checkpoint__every_rows=300)
    assert written == sorted(written) and len(written) > 2 and written[-1] == 1500
    assert bits(outcome) == bits(trained(text_of(ROWS)))


@pytest.mark.full
def test_a_whole_report() -> None:
    append(Path("a.log"), text_of(lines(9000)))
    listener = Notes()
    followed(listener=listener, output__report="r.html")
    text = Path("r.html").read_text()
    assert "Report of a followed log" in text and "9,000" in text
    assert not [note for note in listener.notes if note.startswith("warning")]


def test_inspect_tells_where_each_log_stands(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def inspect(*words: str) -> tuple[int, str, str]:
        return run_cli("inspect", "m.st.checkpoint", *words, capsys=capsys, monkeypatch=monkeypatch)

    for name in "ab":
        append(Path(f"{name}.log"), text_of(ROWS[:300]))
    followed("a.log", "b.log")
    size = Path("a.log").stat().st_size
    append(Path("a.log"), text_of(["bad"]))
    rotate(Path("a.log"))
    append(Path("a.log"), text_of(ROWS[:10]))
    behind = len(text_of(["bad", *ROWS[:10]]))
    code, out, _ = inspect("--json")
    found = json.loads(out)["follow"]
    assert code == 0 and found["behind"] == behind and found["problems"]["lost"] == 0
    logs = {log["log"]: log for log in found["logs"]}
    assert (logs["a.log"]["line"], logs["a.log"]["byte"], logs["a.log"]["behind"]) == (301, size, behind)
    assert logs["a.log"]["file"] == "a.log.1" and logs["a.log"]["waiting_files"] == 1
    assert logs["b.log"]["behind"] == 0
    assert all(0 <= found["ages"][what] < 600 for what in ("checkpoint", "model", "last_write"))
    code, out, _ = inspect()
    assert code == 0 and f"a.log: line 301 of a.log.1, {behind} bytes behind, 1 more files wait" in out
    assert inspect("--behind", str(behind))[0] == 0
    code, _, err = inspect("--behind", str(behind - 1))
    assert code == 6 and "bytes behind, more than" in err


def test_a_full_disk_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that could not be written is tried again, also when no further line comes."""
    attempts, write = [], Generations.write

    def full(self: Generations, *given: Any) -> str:
        attempts.append(time.monotonic())
        if 2 <= len(attempts) <= 5:
            raise SourceError("no space left")
        return write(self, *given)

    monkeypatch.setattr(Generations, "write", full)
    monkeypatch.setattr(streamsvm.checkpoint, "FIRST_RETRY", 0.01)
    append(Path("a.log"), text_of(ROWS))
    listener = Notes()
    followed(listener=listener, checkpoint__every=0.05, follow__idle=1.0)
    assert any("no space left" in note for note in listener.notes)
    assert any(note.startswith("checkpoints can be written again: 1,500 examples") for note in listener.notes)
    assert 6 <= len(attempts) <= 8  # and no more of them, as long as nothing is new


def test_what_was_rotated_before_the_first_start_is_not_learned() -> None:
    log = Path("a.log")
    for old in (lines(50, seed=7), lines(60, seed=8)):
        append(log, text_of(old))
        rotate(log)
    append(log, text_of(ROWS[:700]))
    assert followed().result["examples"] == 700
    append(log, text_of(ROWS[700:900]))
    rotate(log)
    append(log, text_of(ROWS[900:]))
    outcome = followed()
    assert outcome.result["examples"] == 1500 and outcome.result["follow"]["files"] == 2
    assert bits(outcome) == bits(trained(text_of(ROWS)))


def test_compressed_files_of_a_pattern() -> None:
    import gzip

    Path("a.log.2.gz").write_bytes(gzip.compress(text_of(ROWS[:300]).encode()))
    append(Path("a.log.1"), text_of(ROWS[300:500]))
    append(Path("a.log"), text_of(ROWS[500:]))
    for _ in range(2):
        outcome = followed("a.log*", follow__compressed=True, follow__idle=0.3)
        assert outcome.result["examples"] == 1500


@pytest.mark.parametrize("stops", [(150, 151, 430), (233,), (10, 20, 30, 700, 1300)])
def test_stop_after_with_several_logs(stops: tuple[int, ...]) -> None:
    """Rows that were learned after the place where a run stands are those of one log, and it is kept of which."""
    texts = {name: own_rows(700 * number, 700) for number, name in enumerate("abc")}
    for step, stop in enumerate(stops):
        for name, rows in texts.items():
            append(Path(f"{name}.log"), text_of(rows[100 * step : 100 * step + 100]))
        assert followed("a.log", "b.log", "c.log", follow__stop_after=stop).result["examples"] == stop
    for name, rows in texts.items():
        append(Path(f"{name}.log"), text_of(rows[100 * len(stops) :]))
    outcome = followed("a.log", "b.log", "c.log")
    assert outcome.result["examples"] == 2100
    assert learned(outcome) == list(range(2100))


def own_rows(first: int, count: int) -> list[str]:
    """Rows of which each has a feature of its own."""
    return [f"{1 if number % 2 else -1} {number + 1}:1" for number in range(first, first + count)]


def learned(outcome: Outcome) -> list[int]:
    """Which of them were learned, by the weights."""
    return (np.flatnonzero(outcome.model.weights) - 1).tolist()


def test_what_appears_while_nothing_can_be_learned_yet_is_learned() -> None:
    """Stopped while it waits for the first line; then comes a file, and has another name when the run goes on."""
    stopped_when("waiting for the first lines")
    append(Path("a.log"), text_of(own_rows(0, 100)))
    rotate(Path("a.log"))
    append(Path("a.log"), text_of(own_rows(100, 100)))
    assert learned(followed()) == list(range(200))


def stopped_when(note: str, **settings: Any) -> Outcome | None:
    """A run that goes on for ever, killed when it says so."""

    class Killer(Notes):
        def note(self, text: str) -> None:
            super().note(text)
            if text.startswith(note):
                raise KilledError

        def progress(self, now: Any) -> None:
            if note == "model" and Path("m.st").exists():
                raise KilledError

    with pytest.raises(KilledError):
        followed(listener=Killer(), follow__until_idle=False, **settings)
    return None


@pytest.mark.parametrize("fewer", [True, False])
def test_a_slow_log_has_a_model_and_a_checkpoint(fewer: bool) -> None:
    """Too few lines to decide how the rest is read, or which step size is used: all are learned again and again."""
    rows = 100 if fewer else 250
    log = Path("a.log")
    append(log, text_of(ROWS[:rows]))
    stopped_when("model", checkpoint__every=0.05)
    model = load_model("m.st")
    assert model.provenance["provisional"] and model.provenance["examples"] == rows
    assert model.weights.tobytes() == trained(text_of(ROWS[:rows])).model.weights.tobytes()
    append(log, text_of(ROWS[rows : rows + 30]))
    rotate(log)
    append(log, text_of(ROWS[rows + 30 :]))
    outcome = followed()
    assert outcome.result["examples"] == 1500 and not outcome.result["provisional"]
    assert bits(outcome) == bits(trained(text_of(ROWS)))


def test_a_slow_table_is_read_as_all_its_first_lines_say() -> None:
    """A column that looks like numbers in the first lines is not taken for one before there are enough of them."""
    rows = [f"{i % 2},{i if i < 50 else f'n{i % 7}'}" for i in range(600)]
    log = Path("a.log")
    append(log, text_of(["click,site", *rows[:40]]))
    stopped_when("model", checkpoint__every=0.05)
    append(log, text_of(rows[40:]))
    assert bits(followed()) == bits(trained(text_of(["click,site", *rows]), "whole.csv"))


def test_files_that_are_deleted_while_it_waits_are_learned() -> None:
    log, made = Path("a.log"), []
    append(log, text_of(ROWS[:100]))

    class Writer(Notes):
        def progress(self, now: Any) -> None:
            made.append(now.recent["rows_total"])
            if len(made) == 1:
                log.unlink()
                append(log, text_of(ROWS[100:]))

    outcome = followed(listener=Writer(), follow__until_idle=False, follow__stop_after=1500, checkpoint__every=0.05)
    assert made[0] == 100
    assert bits(outcome) == bits(trained(text_of(ROWS)))


def test_checkpoints_of_an_earlier_layout_are_refused_in_words() -> None:
    from streamsvm.errors import ModelError
    from streamsvm.io.marks import Marks

    with pytest.raises(ModelError, match="earlier version of follow"):
        Marks.restored([[], [0, 0, 0, 0, 0, 0]])
