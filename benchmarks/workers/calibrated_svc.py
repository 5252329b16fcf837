"""scikit-learn's CalibratedClassifierCV around LinearSVC, in a process of its own: TRAIN TEST METHOD OUT.

OUT becomes an .npy with the probabilities of the test rows, a column for each class, smallest label first. Printed are
the seconds of reading the training rows and of fitting, imports and testing left out.
"""

import json
import sys
import time
import warnings

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from sklearn_sgd import load


def main(train: str, test: str, method: str, out: str) -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)  # it is stopped by max_iter now and then
    started = time.perf_counter()
    rows, labels = load(train, np.float64)  # as it would convert them
    learner = CalibratedClassifierCV(LinearSVC(random_state=0), method=method).fit(rows, labels)
    seconds = time.perf_counter() - started
    unseen, _ = load(test, np.float64)
    unseen.resize(unseen.shape[0], rows.shape[1])
    np.save(out, learner.predict_proba(unseen))
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
