"""The peers of one set, in a process of its own: SET_FOLDER SYSTEM=FILE.npz...

An .npz holds what was predicted of the test rows: `codes`, `scores` of two classes, and `probabilities`, a column for
each class, of those who have any. Rows pass once, in the order of the file, at each program's own defaults.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scoring import sigmoids  # noqa: E402
from sets.rows import Rows, load_arrays  # noqa: E402

Predicted = dict[str, Any]
MOST_CELLS = 60_000_000  # of a matrix that is made dense
FEW_ROWS = 30_000  # for those who go over the data many times
MORE_ROWS = 100_000  # for trees
MOST_COLUMNS = 2000


def sgd() -> SGDClassifier:
    return SGDClassifier(max_iter=1, tol=None, random_state=0)


def vw(folder: Path, loss: str, classes: int) -> Predicted:
    """Its driver, on its own text. Raw predictions are margins; of more than two classes one against all."""
    import pylibvw

    model, out = folder / f"vw-{loss}.model", folder / f"vw-{loss}.raw"
    words = ["--loss_function", loss, *(["--oaa", str(classes)] if classes > 2 else [])]
    for part in (["-d", str(folder / "train.vw"), *words, "-f", str(model)],
                 ["-d", str(folder / "test.vw"), "-t", "-i", str(model), "-r", str(out)]):  # fmt: skip
        driver = pylibvw.vw([*part, "--no_stdin", "--quiet"])
        driver.run_parser()
        driver.finish()
    margins = _margins(out, classes)
    model.unlink()
    out.unlink()
    probable = sigmoids(margins) if loss == "logistic" else None
    return _predicted(margins, probable)


def _margins(path: Path, classes: int) -> np.ndarray:
    lines = path.read_text().split("\n")
    if classes == 2:
        return np.array([float(line.split()[0]) for line in lines if line])
    return np.array([[float(word.partition(":")[2]) for word in line.split()[:classes]] for line in lines if line])


def scikit(
    make: Callable[[], Any], train: Rows, test: Rows, *, scaled: bool = False, most: int | None = None
) -> Predicted:
    """A missing number is its column's mean. Scaling centres where the matrix can be dense."""
    if most is not None and len(train.codes) > most:
        train = train.take(np.sort(np.random.default_rng(0).permutation(len(train.codes))[:most]))
    small = max(len(train.codes), len(test.codes)) * train.x.shape[1] <= MOST_CELLS
    steps = [SimpleImputer(keep_empty_features=True)] if np.isnan(train.x.data).any() else []
    steps += [StandardScaler(with_mean=small)] if scaled else []
    learner = make()
    pipeline = make_pipeline(*steps, learner)
    dense = small and (scaled or bool(steps))
    name = type(learner).__name__.lower()
    pipeline.fit(_shaped(train.x, dense), train.codes, **{f"{name}__sample_weight": train.weights})
    rows = _shaped(test.x, dense)
    probable = pipeline.predict_proba(rows) if hasattr(learner, "predict_proba") else None
    return _predicted(pipeline.decision_function(rows), probable)


def _shaped(x: csr_matrix, dense: bool) -> Any:
    narrow = csr_matrix((x.data, x.indices.astype(np.int32), x.indptr.astype(np.int32)), x.shape)
    return narrow.toarray() if dense else narrow


def boosted(train: Rows, test: Rows) -> Predicted:
    """Trees, which take missing numbers as they are."""
    if train.x.shape[1] > MOST_COLUMNS:
        raise ValueError(f"{train.x.shape[1]} columns are too many")
    train = train.take(np.arange(min(len(train.codes), MORE_ROWS)))
    learner = HistGradientBoostingClassifier(random_state=0)
    learner.fit(train.x.toarray().astype(np.float32), train.codes, sample_weight=train.weights)
    probable = learner.predict_proba(test.x.toarray().astype(np.float32))
    return {"codes": probable.argmax(axis=1), "scores": probable[:, 1], "probabilities": probable}


def _predicted(scores: np.ndarray, probable: np.ndarray | None) -> Predicted:
    found: Predicted = {"codes": (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)}
    found["scores"] = scores if scores.ndim == 1 else np.zeros(0)
    found["probabilities"] = np.zeros(0) if probable is None else probable
    return found


SYSTEMS: dict[str, Callable[[Path, Rows, Rows, int], Predicted]] = {
    "vw": lambda folder, train, test, classes: vw(folder, "logistic", classes),
    "vw-hinge": lambda folder, train, test, classes: vw(folder, "hinge", classes),
    "sgd": lambda folder, train, test, classes: scikit(sgd, train, test),
    "sgd-scaled": lambda folder, train, test, classes: scikit(sgd, train, test, scaled=True),
    "logreg": lambda folder, train, test, classes: scikit(LogisticRegression, train, test, most=FEW_ROWS),
    "logreg-scaled": lambda folder, train, test, classes: scikit(
        LogisticRegression, train, test, scaled=True, most=FEW_ROWS
    ),
    "boosted": lambda folder, train, test, classes: boosted(train, test),
}


def main(folder: Path, targets: dict[str, str]) -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", RuntimeWarning)
    train, test = load_arrays(folder)
    classes = int(train.codes.max()) + 1
    for name, target in targets.items():
        started = time.perf_counter()
        failure = ""
        try:
            found = SYSTEMS[name](folder, train, test, classes)
            if len(found["codes"]) != len(test.codes):
                raise ValueError(f"{len(found['codes'])} predictions for {len(test.codes)} rows")
            np.savez(target, **found)
        except (ValueError, RuntimeError, ImportError) as error:
            failure = str(error).splitlines()[0]
        seconds = time.perf_counter() - started
        print(json.dumps({"system": name, "seconds": seconds, "failure": failure}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), dict(word.split("=", 1) for word in sys.argv[2:]))
