"""The report: what is in it for each kind of run, that nothing in it is dangerous, and that no run changes by it."""

import importlib.util
import json
import mmap
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm import load_settings, train
from streamsvm.errors import SourceError
from streamsvm.model import Model, load_model
from streamsvm.progress import Progress, Silent

pytest.importorskip("matplotlib", reason="a report needs matplotlib")

from streamsvm.report import figures, recording, weights, writing  # noqa: E402
from streamsvm.report.markup import Html, element, joined, name_of, short  # noqa: E402
from streamsvm.report.recording import Recording, Thinned  # noqa: E402

DATA = Path(__file__).parents[1] / "examples/data"
A9A, A9A_TEST, DIGITS, CLICKS = (
    DATA / name for name in ("a9a.train.svm.gz", "a9a.test.svm.gz", "digits.train.svm.gz", "clicks.test.csv.gz")
)
VOID = {"meta", "link", "br", "path", "use", "rect", "g"}
HOSTILE = ["<script>alert(1)</script>", "a&b\"c'd", "</script><b>", "日本\u202e語", "$x^2$ #000001", "x" * 300]


class Page(HTMLParser):
    """A page as a browser reads it: its elements, texts, data, ids."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.raw = text
        self.opened: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.opened, f"not closed: {self.opened}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "link"):
            self.opened.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.scripts if self.opened and self.opened[-1] == "script" else self.texts).append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    @property
    def data(self) -> dict[str, Any]:
        (only,) = self.scripts
        found: dict[str, Any] = json.loads(only)
        return found

    @property
    def chapters(self) -> list[str]:
        return [found["id"] or "" for tag, found in self.elements if tag == "section" and "id" in found]

    def titles(self) -> list[str]:
        return re.findall(r"<figure><h3>(.*?)</h3>", self.raw)


def sound(path: str | Path = "r.html") -> Page:
    """The page in a file, after all that is true of every page was checked."""
    content = Path(path).read_bytes()
    assert len(content) < 500_000
    page = Page(content.decode("utf-8"))
    assert [tag for tag, _ in page.elements].count("script") == 1 and page.raw.count("<script") == 1
    assert not [found for _, found in page.elements if any(name.startswith("on") for name in found)]
    links = [found[name] or "" for _, found in page.elements for name in ("href", "src") if name in found]
    assert all(link.startswith(("#", "data:,")) for link in links)
    tags = (
        " ".join(re.findall(r"<(?!script)[^>]*>", page.raw)) + re.findall(r"<style>.*?</style>", page.raw, re.DOTALL)[0]
    )
    assert not re.search(r"@import|url\((?!#)|: #0000[01]|[ \"]nan|@LABEL@", tags)
    ids = [found["id"] for _, found in page.elements if "id" in found]
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    pictures = [found for tag, found in page.elements if tag == "svg" and found.get("role") == "img"]
    assert all(found["aria-label"] and found["viewbox"] for found in pictures)
    assert page.raw.count("<figure>") == page.raw.count("<figcaption>") == len(pictures) == len(set(page.titles()))
    return page


def rows(count: int, classes: int = 2, seed: int = 0, names: list[Any] | None = None) -> list[str]:
    """LIBSVM rows that can be learned, with a little noise."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((classes, 8))
    codes = rng.integers(0, classes, count)
    values = centres[codes] + 0.7 * rng.standard_normal((count, 8))
    names = names or ([-1, 1] if classes == 2 else list(range(classes)))
    return [
        f"{names[code]} " + " ".join(f"{j + 1}:{value:.4f}" for j, value in enumerate(row))
        for code, row in zip(codes, values, strict=True)
    ]


# What is in it.


def test_of_two_classes_with_test_data(run: Any, write: Any) -> None:
    data, test = write(rows(3000)), write(rows(800, seed=0)[400:], "test.svm")
    code, out, err = run("train", data, "--test", test, "--eta0", "0.02", "--report", "r.html", "--json")
    assert code == 0, err
    result = json.loads(out.splitlines()[-1])
    assert result["report"] == "r.html"
    page = sound()
    assert page.chapters == ["quality", "learning", "weights", "speed", "run", "settings"]
    assert f"on {result['test']['examples']:,} test rows" in page.text
    assert f"Error {100 * result['test']['error']:.2f} % and AUC {result['test']['auc']:.4f}" in page.text
    assert "streamsvm train" in page.text and "asgd, 1 pass, step size" in page.text and "numba" in page.text
    told = page.data
    assert told["result"]["examples"] == 3000 and told["judged"]["rows"] == "test rows"
    assert told["judged"]["figures"]["confusion"] == result["test"]["confusion"]
    curve = told["judged"]["shapes"]["curves"]["1"]
    area = np.trapezoid(curve["recall"], curve["false_positives"])
    assert area == pytest.approx(result["test"]["auc"], abs=0.01)
    assert told["history"]["examples"][-1] == 3000 and len(told["history"]["loss"]) > 10
    titles = " ".join(page.titles())
    for title in ("ROC curve", "Precision-recall", "Calibration", "Scores of both", "Loss over examples", "Error over"):
        assert title in titles
    assert "report   r.html" in run("train", data, "--report", "r.html", "-q")[1]
    assert "Where to decide" in page.text and "Largest weights" in page.text and "index 3" in page.text
    assert "name: asgd" in page.text and "step size eta0" in page.text


def test_without_test_data_rows_that_were_not_learned_tell(run: Any, write: Any) -> None:
    data = write(rows(3000))
    assert run("train", data, "--report", "r.html", "-q")[0] == 0
    page = sound()
    assert "rows scored before they were learned" in page.text and "probabilities were learned from these" in page.text
    assert run("train", data, "--report", "r.html", "-q", "--loss", "logistic")[0] == 0
    assert "rows scored before they were learned" in sound().text and "may look a little better" not in sound().text
    assert run("train", data, "--report", "r.html", "-q", "--passes", "3", "--holdout", "5", "--eta0", "0.1")[0] == 0
    page = sound()
    assert "600 held-out rows" in page.text
    assert [one["pass"] for one in page.data["result"]["holdout"]["by_pass"]] == [1, 2, 3]
    assert "Dotted lines end a pass" in page.text
    assert run("train", data, "--report", "r.html", "-q", "--passes", "2")[0] == 0
    page = sound()
    assert "There was no test data" in page.text and "ROC" not in page.text and "judged" not in page.data


def test_of_a_solver_with_a_proof(run: Any, write: Any) -> None:
    data = write(rows(1500))
    code, out, err = run("train", data, "--solver", "dcd", "--report", "r.html", "--json")
    assert code == 0, err
    result, page = json.loads(out.splitlines()[-1]), sound()
    assert "proof" in page.chapters and "learning" not in page.chapters
    assert "Objective and lower bound" in page.titles() and "Proven gap" in page.titles()
    assert f"{result['objective']:.6g}" in page.text and f"{result['dual']:.6g}" in page.text
    assert page.data["proofs"]["gap"][-1] == pytest.approx(result["gap"], rel=1e-4)
    assert page.data["proofs"]["seconds"] == sorted(page.data["proofs"]["seconds"])


def test_of_a_path(run: Any, write: Any) -> None:
    code, _, err = run(
        *("train", write(rows(1500)), "--solver", "newton", "--path", "1e-4..1e-1", "--holdout", "5"),
        *("--report", "r.html", "-q"),
    )
    assert code == 0, err
    page = sound()
    assert {"tried", "proof"} <= set(page.chapters) and "Held-out loss by penalty" in page.titles()
    assert page.raw.count('<tr class="best">') == 2  # of the thresholds, and of the path
    path = page.data["result"]["path"]
    best = min(path, key=lambda step: step["held_out_loss"])
    assert page.data["result"]["l2"] == best["l2"] and f"the best has l2 = {best['l2']:.3g}" in page.text
    assert "Dotted lines begin another penalty" in page.text


def test_of_tuning(run: Any, write: Any) -> None:
    code, out, err = run(
        *("tune", write(rows(4000)), "--l2", "1e-5..1e-1", "--candidates", "5", "--solver", "asgd,ftrl"),
        *("--passes", "2", "--report", "r.html", "--json"),
    )
    assert code == 0, err
    result, page = json.loads(out.splitlines()[-1]), sound()
    assert "tried" in page.chapters and result["report"] == "r.html"
    assert f"Of 10 candidates the best has l2 = {result['l2']:.3g}, solver {result['solver']}" in page.text
    assert "Hollow points retired" in page.text and "held-out rows" in page.text
    best = re.findall(r'<tr class="best">(.*?)</tr>', page.raw)[-1]
    assert result["solver"] in best and f"{result['held_out_loss']:.4f}" in best
    assert len(page.data["result"]["candidates"]) == 10


def test_of_many_classes(run: Any, write: Any) -> None:
    data, test = write(rows(3000, 5)), write(rows(500, 5), "test.svm")
    assert run("train", data, "--test", test, "--passes", "2", "--report", "r.html", "-q")[0] == 0
    page = sound()
    titles = " ".join(page.titles())
    assert "ROC curve of each class, mean AUC" in titles and "Scores of each class" in titles
    assert set(page.data["judged"]["shapes"]["curves"]) == {"0", "1", "2", "3", "4"}
    assert 'class="confusion"' in page.raw and "Largest weights of each class" in page.text
    assert len(re.findall('class="(?:right|wrong|none)"', page.raw)) == 25
    assert run("train", write(rows(3000, 12)), "--report", "r.html", "-q", "--passes", "2", "--holdout", "4")[0] == 0
    page = sound()
    assert "Mean over 12 classes" in page.text and page.data["judged"]["shapes"]["mean"]["classes"] == 12


@pytest.mark.full
def test_of_a_thousand_classes(run: Any, write: Any) -> None:
    names = list(range(1, 1001))
    data = write([f"{name} {name}:1 {1 + name % 7}:0.5" for name in names for _ in range(3)])
    assert run("train", data, "--test", data, "--passes", "2", "--shuffle", "0", "--report", "r.html", "-q")[0] == 0
    page = sound()
    assert 'class="confusion"' not in page.raw and "of 1,000; the data block" in page.text
    assert "Mean over 1,000 classes" in page.text and len(page.data["judged"]["figures"]["per_class"]) == 1000
    assert "Largest weights of the first 12 classes" in page.text
    assert (
        run(
            "train", data, "--test", data, "--shuffle", "0", "--report", "r.html", "-q", "--set", "solver.revisit=false"
        )[0]
        == 0
    )
    assert "Classes that are confused most" in sound().text and "taken for" in sound().text


def test_of_an_evaluation_with_slices(run: Any) -> None:
    few = ("--hash-bits", "16")  # more weights are only more to look at
    assert run("train", CLICKS, "--label", "click", "--ignore", "id", "--names", *few, "-q", "-o", "m.st")[0] == 0
    code, out, err = run("evaluate", "m.st", CLICKS, "--by", "site", "--report", "r.html", "--json")
    assert code == 0, err
    result, page = json.loads(out), sound()
    assert result["report"] == "r.html" and page.chapters == ["quality", "slices", "weights", "run", "settings"]
    assert len(page.data["judged"]["figures"]["slices"]) == len(result["slices"]) and "news" in page.text
    assert "Evaluation report: m.st" in page.text and "Settings the model was trained with" in page.text
    assert "4,000 rows" in page.text and "examples learned" in page.text
    named = page.data["weights"]["top"][0]["positive"][0]
    assert named["name"] in page.text and "=" in named["name"]
    code, _, err = run("evaluate", "m.st", CLICKS, "--report", "m.st/r.html")
    assert code == 3 and "cannot write" in err


@pytest.mark.full
@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["1 1:1"] * 3, None),
        (["1 1:1", "-1 1:2", "1 2:1"], "too few for a curve"),
        (["1 1:1", "-1 1:2"] * 30, None),
        (["1", "-1"] * 30, None),
    ],
    ids=["one class", "tiny", "small", "no features"],
)
def test_of_hardly_any_data(run: Any, write: Any, lines: list[str], says: str | None) -> None:
    data = write(lines)
    for more in ((), ("--test", data), ("--solver", "dcd"), ("--passes", "2", "--holdout", "2", "--test", data)):
        code, _, err = run("train", data, "--classes", "-1,1", "--report", "r.html", "-q", *more)
        assert code == 0, err
        page = sound()
        assert "run" in page.chapters
        if says and not more:
            assert says in page.text
    if len(lines) == 3 and says is None:
        assert "All these rows are of class 1" in page.text


def test_weights_that_are_all_zero_are_said_to_be(run: Any, write: Any) -> None:
    data = write(["1 1:0", "-1 1:0"] * 20)
    assert run("train", data, "--report", "r.html", "--bias", "none", "-q")[0] == 0
    assert "All weights are zero" in sound().text


# Names from data.


def test_names_from_data_are_text_whatever_they_are(run: Any, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(5)
    codes = rng.integers(0, len(HOSTILE), 1200)
    table = {
        "label": [HOSTILE[code] for code in codes],
        "<img src=x onerror=alert(1)>": codes + rng.standard_normal(1200),
    }
    table |= {"word": [HOSTILE[(code + (k % 9 == 0)) % len(HOSTILE)] for k, code in enumerate(codes)]}
    pq.write_table(pa.table(table), "t.parquet")
    settings = ("--label", "label", "--categorical", "word", "--names", "--hash-bits", "12", "-q", "-o", "<b>m&.st")
    for more in (("--passes", "2"), ("--holdout", "3", "--passes", "2")):
        code, _, err = run("train", "t.parquet", "--test", "t.parquet", *settings, "--report", "r.html", *more)
        assert code == 0, err
    page = sound()
    for name in HOSTILE:
        assert " ".join(short(name).split()) in page.text, name
        assert name in json.dumps(page.data, ensure_ascii=False) or '"' in name
    assert "\u202e" not in page.raw and "<b>" not in page.raw and "<img" not in page.raw
    assert "<img src=x onerror=alert(1)>" in page.text and "word=<script>alert(1)</script>" in page.text
    code, _, err = run("evaluate", "<b>m&.st", "t.parquet", "--by", "word", "--report", "e.html")
    assert code == 0, err
    assert set(sound("e.html").data["judged"]["figures"]["slices"]) >= set(HOSTILE[:3])


def test_text_becomes_html_only_where_it_is_html() -> None:
    assert element("p", "a<b", Html("<i>c</i>"), title='"x"', hidden=None, aria_label="&") == (
        '<p title="&quot;x&quot;" aria-label="&amp;">a&lt;b<i>c</i></p>'
    )
    assert joined(["\x00\x1b", None, ["<"]]) == "\ufffd\ufffd&lt;"
    assert name_of("a" * 90, 10) == f'<bdi title="{"a" * 90}">{"a" * 9}…</bdi>'
    assert short("a\nb\tc") == "a\ufffdb c"


def test_nothing_secret_is_in_a_report(run: Any, write: Any, bucket: Any) -> None:
    code, out, err = run(
        *("train", write(rows(500)), "--set", "storage_options.s3.secret=hunter2", "--json"),
        *("--report", "memory://me:hunter3@place/r.html"),
    )
    assert code == 0, err
    name = next(name for name in bucket.store if name.endswith("r.html"))
    text = bucket.cat(name).decode()
    assert "hunter" not in text and "storage_options.s3.secret=..." in text and "memory://place/r.html" in text
    assert json.loads(out.splitlines()[-1])["report"] == "memory://place/r.html"


# A run is what it was.


@pytest.mark.parametrize(
    "arguments",
    [
        ("train",),
        ("train", "--loss", "logistic"),
        ("train", "--passes", "3", "--holdout", "7", "--set", "solver.early_stop=1", "--scale", "standard"),
        ("train", "--loss", "logistic", "--shuffle", "200", "--passes", "2", "--solver", "ftrl"),
        ("train", "--solver", "pegasos", "--set", "solver.batch_size=7"),
        ("train", "--solver", "dcd", "--holdout", "5"),
        pytest.param(("train", "--solver", "dcd", "--loss", "logistic", "--holdout", "5"), marks=pytest.mark.full),
        ("tune", "--candidates", "3", "--loss", "logistic"),
    ],
    ids=lambda arguments: " ".join(arguments),
)
@pytest.mark.parametrize("classes", [2, 4])
def test_not_a_bit_of_a_model_changes_by_a_report(run: Any, write: Any, arguments: Any, classes: int) -> None:
    if classes > 2 and {"pegasos"} & set(arguments):
        pytest.skip("two classes only")
    data = write(rows(3000, classes))
    results = []
    for more in ((), ("--report", "r.html")):
        code, out, err = run(arguments[0], data, "--json", *arguments[1:], *more)
        assert code == 0, err
        *lines, result = map(json.loads, out.splitlines())
        passing = {"seconds", "report"}
        lines = [{key: value for key, value in line.items() if key not in passing} for line in lines]
        results.append(
            (lines, {k: v for k, v in result.items() if k not in passing}, Path("model.safetensors").read_bytes())
        )
    assert results[0] == results[1]


@pytest.mark.parametrize("wanted", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("holdout", [(), ("--holdout", "5")])
def test_a_run_may_go_on_with_a_report_or_without(run: Any, write: Any, wanted: Any, holdout: Any) -> None:
    """Rows that wait in a checkpoint to be scored are learned, whether a report is wanted by then or not."""
    from streamsvm import checkpoint, interrupts

    data, settings = write(rows(6000)), ("--loss", "logistic", "--shuffle", "500", "--eta0", "0.05", *holdout)
    assert run("train", data, *settings, "-q")[0] == 0
    unbroken = load_model("model.safetensors")
    report = ("--report", "r.html")
    broken = load_settings(
        overrides={
            "data.train": data, "loss": "logistic", "data.shuffle": 500, "data.holdout": 5 if holdout else None,
            "checkpoint.dir": "kept", "checkpoint.every_rows": 1, "output.report": "r.html" if wanted[0] else None,
            "run.memory": "32MB", "solver.eta0": 0.05,
        }
    )  # fmt: skip
    ticks = 0
    tick = checkpoint.Checkpoints.tick

    def stop(self: Any, count: int, snapshot: Any) -> None:
        nonlocal ticks
        ticks += 1
        tick(self, count, snapshot)
        self._wait()
        if ticks == 4:
            raise interrupts.Interrupted(2)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint.Checkpoints, "tick", stop)
        patch.setattr("streamsvm.stream.BLOCK_BYTES", 1 << 16, raising=False)
        with pytest.raises(interrupts.Interrupted):
            train(broken)
    again = ("--checkpoint", "kept", "--resume", "--memory", "32MB", *(report if wanted[1] else ()))
    code, _, err = run("train", data, *settings, "--every-rows", "1", *again)
    assert code == 0 and "going on from" in err, err
    found = load_model("model.safetensors")
    assert found.weights.tobytes() == unbroken.weights.tobytes() and found.bias == unbroken.bias
    if wanted[1]:
        assert "went on from a checkpoint" in sound().text and sound().data["resumed"] is True


def test_a_report_by_the_library(write: Any, tmp_path: Path) -> None:
    place = tmp_path / "deep/down/r.html"
    overrides = {"data.train": write(rows(800)), "output.report": str(place), "output.model": None}
    outcome = train(load_settings(overrides=overrides))
    assert outcome.result["report"] == str(place) and "not saved" in sound(place).text
    assert "command" not in re.findall("<dt>(.*?)</dt>", sound(place).raw)


# What goes wrong.


def test_what_is_missing_is_told_before_the_run(run: Any, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write(rows(100))
    (Path("file")).write_text("")
    for place in (".", "file/r.html"):
        code, _, err = run("train", data, "--report", place, "-q")
        assert code == 3 and "cannot write" in err and len(err.splitlines()) == 1
    code, _, err = run("train", data, "--report", "nosuch://x/r.html", "-q")
    assert code in (2, 3) and len(err.splitlines()) == 1
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name))
    for command in (("train", data), ("tune", data), ("evaluate", "no model", data)):
        code, _, err = run(*command, "--report", "r.html")
        assert code == 2 and "pip install 'streamsvm[report]'" in err
    assert not Path("model.safetensors").exists() and not Path("r.html").exists()


@pytest.mark.parametrize(
    "error", [SourceError("r.html: cannot write: No space left on device"), ZeroDivisionError("x")]
)
@pytest.mark.parametrize("command", ["train", "tune"])
def test_a_report_that_fails_loses_no_model(
    run: Any, write: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, command: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(writing, "write_report", fail)
    code, out, err = run(command, write(rows(500)), "--report", "r.html", "-q")
    assert code == 3 and "model    model.safetensors" in out
    assert "warning: no report could be written: " in err and "the model is saved: model.safetensors" in err
    assert str(error) in err and load_model("model.safetensors").dim == 9
    code, out, err = run(command, "rows.svm", "--report", "r.html", "--json")
    assert code == 3 and json.loads(out.splitlines()[-1])["report"] is None


def test_half_a_report_is_none(run: Any, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("r.html").write_text("old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert run("evaluate", _saved(), write(rows(50)), "--report", "r.html")[0] == 3
    assert Path("r.html").read_text() == "old" and sorted(os.listdir()) == ["m.st", "r.html", "rows.svm"]


def _saved() -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        Model(np.arange(9, dtype=np.float32), 0.0, [-1, 1], "hinge").save("m.st")
    return "m.st"


# Its parts.


def at(examples: int, seconds: float, pass_number: int = 1, **more: Any) -> Progress:
    return Progress(pass_number, 3, examples, 10 * examples, examples, 0.5, 0.1, float(examples), seconds, 0.5, **more)


def test_a_recording_is_bounded_and_ends_with_the_last_point() -> None:
    heard: list[Any] = []

    class Listens(Silent):
        def progress(self, now: Progress) -> None:
            heard.append(now)

    kept = Recording(Listens())
    for k in range(50_001):
        kept.progress(at(k, k / 10, 1 + k // 10_000, objective=1.0 / (1 + k), gap=1.0 / (1 + k)))
    points = [point.now.examples for point in kept.points]
    assert len(heard) == 50_001 and recording.MOST // 2 <= len(points) <= recording.MOST + 1
    assert points[0] == 0 and points[-1] == 50_000 and len(set(np.diff(points[:-1]).tolist())) == 1
    assert len(kept.proofs) <= recording.MOST + 1 and kept.proofs[-1].examples == 50_000
    assert [now.examples for now in kept.ends] == [9999, 19999, 29999, 39999, 49999, 50000]
    for k in range(300):
        kept.note(f"note {k}")
    assert len(kept.notes) == recording.MOST_NOTES and kept.notes_left_out == 100
    kept.progress(at(5, 9999.0))
    assert [point.now.examples for point in kept.points] == [5]  # it began again


def test_thinned_items_are_evenly_spaced() -> None:
    for most in (1, 2, 3, 8):
        for count in (0, 1, most, most + 1, 10 * most + 3):
            items: Thinned[int] = Thinned(most)
            made = []
            for k in range(count):
                items.add(lambda k=k, made=made: made.append(k) or k)
            found = items.items()
            assert len(found) <= most and found == sorted(set(found)) and (not count or found[0] == 0)
            assert len({b - a for a, b in zip(found, found[1:], strict=False)}) <= 1
            assert len(made) <= count


def test_memory_is_that_of_this_process() -> None:
    before = recording.memory_now()
    if before is None:
        pytest.skip("the system does not tell")
    with mmap.mmap(-1, 20_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:  # malloc may have some left
        for _ in range(20):
            block.write(bytes(1_000_000))
        after = recording.memory_now()
    assert after is not None and 15e6 < after - before < 40e6


@pytest.mark.parametrize("many", [False, True])
def test_weights_are_told_as_a_sort_of_all_would(monkeypatch: pytest.MonkeyPatch, many: bool) -> None:
    monkeypatch.setattr(weights, "PIECE", 64)
    rng = np.random.default_rng(3)
    values = rng.integers(-40, 40, (1000, 3) if many else 1000).astype(np.float32)
    model = Model(values, np.zeros(3) if many else 0.0, ["a", "b", "c"] if many else [0, 1], "hinge")
    found = weights.described(model, "", lambda text: None)
    assert (found.count, found.zeros) == (values.size, int((values == 0).sum()))
    assert found.counts.sum() == found.count - found.zeros and found.norm == pytest.approx(
        float(np.linalg.norm(values))
    )
    for one in found.top:
        column = values[:, one.code] if many else values
        count = weights.TOP_OF_CLASS if many else weights.TOP
        order = sorted(range(1000), key=lambda j: (-column[j], j))[:count]
        assert [(feature.index, feature.weight) for feature in one.positive] == [(j, column[j]) for j in order]
        order = sorted(range(1000), key=lambda j: (column[j], j))[:count]
        assert [(feature.index, feature.weight) for feature in one.negative] == [(j, column[j]) for j in order]


def test_pictures_are_the_same_every_time_and_belong_to_their_page() -> None:
    def draw() -> list[Html]:
        line = figures.Series([1.0, 10.0, 100.0], [0.1, float("nan"), 0.3], "c2", dashed=True, points="hollow")
        axes = figures.Axis("x", log=True, kind="count"), figures.Axis("y", kind="percent")
        bars = np.array([1.0, 0.0, 5.0])
        return [
            figures.lines("one", [line], *axes, upright=[5.0], level=0.2, band=figures.Band([1, 9], [0, 0], [1, 1])),
            figures.histogram("two", np.arange(4.0), [(bars, "c1")], figures.Axis("x"), figures.Axis("y", log=True)),
            figures.ranges(
                "three", [("<b>&", range(5), range(5)), ("日本 $x$", range(5), range(5))], figures.Axis("x")
            ),
        ]

    first, again = draw(), draw()
    assert first == again
    for picture, name in zip(first, ("one", "two", "three"), strict=True):
        assert picture.startswith('<svg viewBox="0 0 400 ') and "font-family" not in picture and "<style" not in picture
        assert set(re.findall(r' id="(\w+)-', picture)) <= {name} and "var(--muted)" in picture
    assert "&lt;b&gt;&amp;" in first[2] and "日本 $x$" in first[2] and "var(--c2)" in first[0]
    import matplotlib

    assert matplotlib.rcParams["svg.fonttype"] == "path"


def test_doctests() -> None:
    import doctest

    from streamsvm.report import markup

    for module in (figures, markup):
        result = doctest.testmod(module)
        assert result.attempted and not result.failed
