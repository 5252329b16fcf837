"""One learner on one real set, in a process of its own: TRAIN TEST CHOICE WHO ROWS OPTIONS.

CHOICE is which classes there are: `all`, `3,8` (rows of these alone) or `2` (this one against the rest). WHO is ours
(`StreamSVC(map="rbf")`), svc (LIBSVM, RBF) or linear (`LinearSVC`). ROWS is how many to learn from, 0 for all.
OPTIONS is JSON for the learner, `rounds` among it. Rows are in memory before the clock runs, as each likes them best:
sparse for ours and LinearSVC, dense for LIBSVM, whose products BLAS makes then. Ours has its kernels compiled before.
Printed: seconds of the best fit and prediction, the accuracy on the test rows, and how far memory rose above what it
was with the rows loaded.
"""

import json
import re
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn_sgd import load

FEW = 600  # rows on which kernels are compiled


def main(train: str, test: str, choice: str, who: str, rows: str, options: str) -> None:
    warnings.simplefilter("ignore")
    given: dict[str, Any] = json.loads(options)
    rounds = given.pop("rounds", 1)
    (points, labels), (unseen, truth) = (chosen(*load(path), choice) for path in (train, test))
    unseen.resize(unseen.shape[0], points.shape[1])
    if int(rows):
        order = np.random.default_rng(0).permutation(len(labels))[: int(rows)]
        points, labels = points[order], labels[order]
    make = learner_of(who, given)
    if who == "svc":
        points, unseen = points.toarray(), unseen.toarray()
    if who == "ours":
        few = np.random.default_rng(0).permutation(len(labels))[:FEW]
        make().fit(points[few], labels[few]).predict(unseen[:FEW])
    before = memory("VmRSS")
    fits, predictions, accuracy = [], [], 0.0
    for _ in range(rounds):
        started = time.perf_counter()
        learner = make().fit(points, labels)
        fitted = time.perf_counter()
        accuracy = float(np.mean(learner.predict(unseen) == truth))
        predictions.append(time.perf_counter() - fitted)
        fits.append(fitted - started)
    rise = max(memory("VmHWM") - before, 0)
    size = {"rows": len(labels), "features": points.shape[1], "supports": supports(learner)}
    told = {"fit": min(fits), "fits": fits, "predict": min(predictions), "accuracy": accuracy, "memory": rise}
    print(json.dumps({**told, **size}))


def chosen(points: Any, labels: Any, choice: str) -> tuple[Any, Any]:
    if choice == "all":
        return points, labels
    classes = [float(name) for name in choice.split(",")]
    if len(classes) == 1:
        return points, np.where(labels == classes[0], 1, -1)
    kept = np.isin(labels, classes)
    return points[kept], labels[kept]


def learner_of(who: str, given: dict[str, Any]) -> Any:
    if who == "ours":
        from streamsvm import StreamSVC

        return lambda: StreamSVC(map="rbf", **given)
    from sklearn.svm import SVC, LinearSVC

    return (lambda: SVC(cache_size=1000, **given)) if who == "svc" else (lambda: LinearSVC(**given))


def supports(learner: Any) -> int | None:
    return int(learner.n_support_.sum()) if hasattr(learner, "n_support_") else None


def memory(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())
    return 1024 * int(found.group(1)) if found else 0


if __name__ == "__main__":
    main(*sys.argv[1:])
