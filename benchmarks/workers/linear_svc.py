"""scikit-learn's LinearSVC, which is LIBLINEAR inside, in a process of its own: DATA MODEL LOSS C."""

import sys
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from sklearn_sgd import load


def main(data: str, model: str, loss: str, cost: str) -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)  # it is stopped by max_iter often
    rows, labels = load(data, np.float64)  # as it would convert them
    learner = LinearSVC(loss=loss, C=float(cost), dual=True, random_state=0).fit(rows, labels)
    with open(model, "wb") as out:
        np.savez(out, weights=learner.coef_[0], bias=learner.intercept_[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
