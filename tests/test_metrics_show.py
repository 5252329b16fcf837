"""How metrics look: made-up figures of few and of many classes, which have to fit on 100 columns."""

from typing import Any

import numpy as np
import pytest

from streamsvm.cli.show_metrics import metrics_line, report, shown, table
from streamsvm.evaluate import Metrics
from streamsvm.model import Model


def metrics_of(classes: int, loss: str = "hinge", rows: int = 200, weight: float = 1.0) -> dict[str, Any]:
    rng = np.random.default_rng(classes)
    if classes == 2:
        model = Model(np.zeros(1, np.float32), 0.0, [-1, 1], loss)
    else:
        model = Model(np.zeros((1, classes), np.float32), np.zeros(classes), list(range(classes)), loss)
    labels = rng.integers(0, classes, rows).astype(np.float32)
    metrics = Metrics(model)
    scores = rng.normal(size=rows if classes == 2 else (rows, classes))
    metrics.update(scores, labels, np.full(rows, weight, np.float32))
    return metrics.result()


@pytest.mark.parametrize("classes", [2, 3, 7, 20, 21, 50])
@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("weight", [1.0, 1e7, 0.013])
def test_everything_fits(classes: int, long: bool, weight: float) -> None:
    names = [("a class with a name that is much too long " if long else "") + str(code) for code in range(classes)]
    text = report(metrics_of(classes, "logistic", weight=weight), names)
    assert max(map(len, text.splitlines())) <= 100
    assert "reliability" in text and "nan" not in text
    assert ("most frequent mistakes" in text) == (classes > 20)
    assert ("(30 of 50 classes, those with most support)" in text) == (classes == 50)


def test_the_confusion_has_counts_where_they_fit() -> None:
    metrics = metrics_of(3)
    lines = report(metrics, ["a", "b", "c"]).splitlines()
    start = next(place for place, line in enumerate(lines) if "true / predicted" in line)
    for row, line in zip(metrics["confusion"], lines[start + 1 : start + 4], strict=True):
        assert [float(cell) for cell in line.split()[1:]] == row
    assert "reliability" not in "".join(lines)


def test_names_that_are_too_long_are_cut() -> None:
    lines = report(metrics_of(3), ["a class with a long name", "b", "c"]).splitlines()
    assert lines[3] == "  true / predicted a class w...            b            c" and lines[4].startswith(
        "a class with a ... "
    )


def test_and_shares_where_they_do_not() -> None:
    metrics = metrics_of(20, rows=20, weight=12345.0)
    metrics["confusion"][0] = [1e6, 0.0, 3e6, *[0.0] * 16, 1.0]
    lines = report(metrics, [f"class {code}" for code in range(20)]).splitlines()
    start = next(place for place, line in enumerate(lines) if "% of true" in line)
    assert lines[start].split()[3:] == [str(number) for number in range(1, 21)]
    assert lines[start + 1].split() == ["1", "class", "0", "25", ".", "75", *["."] * 16, "<1"]


def test_the_most_frequent_mistakes() -> None:
    metrics = metrics_of(25)
    confusion = np.zeros((25, 25))
    confusion[np.arange(25), np.arange(25)] = 100.0
    confusion[3, 4], confusion[7, 1] = 5.0, 1234.0
    metrics["confusion"] = confusion.tolist()
    text = report(metrics, [f"c{code}" for code in range(25)])
    assert "predicted):\n  c7 -> c1: 1,234\n  c3 -> c4: 5\n\n" in text
    metrics["confusion"] = None
    assert "mistakes" not in report(metrics, [f"c{code}" for code in range(25)])


def test_metrics_lines() -> None:
    plain = {"examples": 16281, "loss": 0.42476, "error": 0.1496, "auc": 0.90149, "auc_error": 0.0, "log_loss": None}
    assert metrics_line(plain) == "loss 0.42476, error 14.96 %, AUC 0.9015 on 16,281 examples"
    assert "AUC 0.9015 +- 0.0002 on" in metrics_line(plain | {"auc_error": 0.00018})
    assert metrics_line(plain | {"auc": None}) == "loss 0.42476, error 14.96 % on 16,281 examples"
    probable = metrics_line(plain | {"log_loss": 0.3, "brier": 0.1, "ece": 0.02})
    assert probable.endswith("AUC 0.9015, log loss 0.30000, Brier 0.1000, calibration error 0.0200 on 16,281 examples")
    many = metrics_line(plain | {"top_k": {"2": 0.9}, "macro_f1": 0.75})
    assert many == "loss 0.42476, error 14.96 %, macro F1 0.7500, AUC 0.9015 on 16,281 examples"


@pytest.mark.parametrize("classes", [2, 4])
def test_nothing_to_measure(classes: int) -> None:
    metrics = metrics_of(classes, "logistic", weight=0.0)
    assert metrics_line(metrics) == "nothing is measured on 200 examples, whose weights are all 0"
    assert report(metrics, ["x"] * classes) == metrics_line(metrics)


def test_texts_keep_to_their_place() -> None:
    assert shown("two\nlines\x1b[31m") == "two lines [31m"
    assert shown("x" * 50, 10) == "xxxxxxx..." and shown("x" * 10, 10) == "x" * 10
    assert table([["a", "b"], ["long", "12"]]) == "a      b\nlong  12"
