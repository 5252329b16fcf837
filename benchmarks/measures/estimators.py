"""StreamSVC beside scikit-learn's own estimators, in one process, on the same arrays: fit, one pass, predict.

`fit` is the optimum: LinearSVC with its defaults, StreamSVC with a proven gap of 1e-3; both objectives are compared.
Everything is compiled before the first round.
"""

import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench import Bench, Section, failures, ratio
from process import interleave

A9A = str(Path(__file__).resolve().parents[2] / "examples/data/a9a.train.svm.gz")


def estimators(bench: Bench) -> Section:
    section = Section(
        "estimators",
        "StreamSVC and scikit-learn's estimators on arrays in memory",
        [
            "work",
            "ours, best s",
            "worst/best",
            "theirs, best s",
            "worst/best",
            "theirs / ours",
            "objective, ours / theirs",
        ],
    )
    try:
        import numpy as np
        from sklearn.datasets import load_digits, load_svmlight_file, make_classification
        from sklearn.linear_model import SGDClassifier
        from sklearn.svm import LinearSVC
    except ImportError as error:
        section.notes.append(f"not measured: {error}")
        return section
    from streamsvm import StreamSVC

    warnings.simplefilter("ignore")
    rows, labels = load_svmlight_file(A9A, dtype=np.float32)
    rows.indices, rows.indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
    digits = load_digits(return_X_y=True)
    little = make_classification(1000, 20, random_state=0)
    sets = {"a9a": (rows, labels), "a9a, dense": (rows.toarray(), labels), "1,000 x 20": little, "digits": digits}

    def objective(model: Any, rows: Any, labels: Any) -> float:
        scores = model.decision_function(rows)
        signs = np.where(np.asarray(labels)[:, None] == model.classes_, 1.0, -1.0)
        signs = signs[:, 1] if scores.ndim == 1 else signs
        bends = 0.5 * (float(np.sum(model.coef_**2)) + float(np.sum(model.intercept_**2)))
        return bends + float(np.sum(np.maximum(0.0, 1.0 - signs * scores) ** 2))

    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {}
    for name, (given, known) in sets.items():
        pairs[f"fit, {name}"] = (partial(StreamSVC().fit, given, known), partial(LinearSVC().fit, given, known))
    fitted = {who: make().fit(rows, labels) for who, make in (("ours", StreamSVC), ("theirs", LinearSVC))}
    pairs["predict, a9a"] = (partial(fitted["ours"].predict, rows), partial(fitted["theirs"].predict, rows))
    pairs["partial_fit, a9a, one batch"] = (
        lambda: StreamSVC().partial_fit(rows, labels, classes=[-1, 1]),
        lambda: SGDClassifier().partial_fit(rows, labels, classes=[-1, 1]),
    )
    for both in pairs.values():
        for once in both:
            once()
    named = {name: {"ours": ours, "theirs": theirs} for name, (ours, theirs) in pairs.items()}
    jobs = {f"{name}: {who}": partial(_seconds, job) for name, both in named.items() for who, job in both.items()}
    timings = interleave(jobs, bench.repeat, bench.say)
    section.notes += failures(timings)
    section.raw = {name: timing.seconds for name, timing in timings.items()}
    for name, both in pairs.items():
        ours, theirs = timings[f"{name}: ours"], timings[f"{name}: theirs"]
        reached = None
        if name.startswith("fit"):
            given, known = sets[name.removeprefix("fit, ")]
            reached = ratio(*(objective(job(), given, known) for job in both))
        times = [ours.best, ours.spread, theirs.best, theirs.spread, ratio(theirs.best, ours.best)]
        section.rows.append([name, *times, reached])
    return section


def _seconds(job: Callable[[], Any]) -> float:
    started = time.perf_counter()
    job()
    return time.perf_counter() - started
