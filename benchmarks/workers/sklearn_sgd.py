"""scikit-learn's side, in a process of its own: train DATA MODEL PASSES | passes DATA N | test DATA MODEL."""

import json
import sys
import time

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import SGDClassifier


def load(path: str, kind: type = np.float32) -> tuple[csr_matrix, np.ndarray]:
    """Arrays from text. Newer releases load 64-bit indices that its learners then refuse: narrow them."""
    rows, labels = load_svmlight_file(path, dtype=kind, zero_based=False)
    narrow = rows.indices.astype(np.int32, copy=False), rows.indptr.astype(np.int32, copy=False)
    return csr_matrix((rows.data, *narrow), rows.shape), labels


def fitted(rows: csr_matrix, labels: np.ndarray, passes: int) -> tuple[SGDClassifier, float]:
    learner = SGDClassifier(loss="hinge", max_iter=passes, tol=None, random_state=0)
    started = time.perf_counter()
    learner.fit(rows, labels)
    return learner, time.perf_counter() - started


def main(mode: str, data: str, *rest: str) -> None:
    rows, labels = load(data)
    if mode == "train":
        learner, _ = fitted(rows, labels, int(rest[1]))
        with open(rest[0], "wb") as model:
            np.savez(model, weights=learner.coef_[0], bias=learner.intercept_[0])
    elif mode == "passes":
        print(json.dumps({"one": fitted(rows, labels, 1)[1], "many": fitted(rows, labels, int(rest[0]))[1]}))
    elif mode == "test":
        with np.load(rest[0]) as model:
            weights, bias = model["weights"], float(model["bias"])
        width = min(weights.size, rows.shape[1])
        scores = rows[:, :width] @ weights[:width] + bias
        print(json.dumps({"error": float(np.mean((scores > 0) != (labels > 0)))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
