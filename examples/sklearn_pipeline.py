"""At home in scikit-learn: a pipeline, a search, calibrated probabilities, frames with categories, and batches.

pip install '.[sklearn]' pandas && python examples/sklearn_pipeline.py
"""

import pandas as pd
from sklearn.datasets import load_svmlight_file
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from streamsvm import StreamSVC

# Arrays: the optimum, with a proof of how close it is. It fits into pipelines and searches like any estimator.
rows, labels = load_svmlight_file("examples/data/a9a.train.svm.gz", n_features=123)
test_rows, test_labels = load_svmlight_file("examples/data/a9a.test.svm.gz", n_features=123)
model = StreamSVC(C=1.0).fit(rows, labels)
print(
    f"fit          test error {100 * (1 - model.score(test_rows, test_labels)):.2f} %, at most {model.gap_:.1e} above"
)

pipeline = make_pipeline(MaxAbsScaler(), StreamSVC())
search = GridSearchCV(pipeline, {"streamsvc__C": [0.01, 0.1, 1.0]}, cv=3).fit(rows[:8000], labels[:8000])
print(f"GridSearchCV C = {search.best_params_['streamsvc__C']}, accuracy {search.best_score_:.3f}")

# A frame: texts are categories, and what becomes of the other columns can be said. Probabilities come with the loss.
clicks = pd.read_csv("examples/data/clicks.train.csv.gz")
later = pd.read_csv("examples/data/clicks.test.csv.gz")
columns = {"log1p": ["visits", "price"], "categorical": ["hour"], "text": ["title"], "ignore": ["id", "click"]}
ads = StreamSVC(loss="logistic", solver="asgd", passes=3, features=columns).fit(clicks, clicks["click"])
print(f"a frame      AUC {roc_auc_score(later['click'], ads.predict_proba(later)[:, 1]):.3f} on {len(later):,} rows")

# More rows than memory: batches that are made as they are needed, or files, which are read at the speed of parsing.
live = StreamSVC()
for start in range(0, rows.shape[0], 5000):
    live.partial_fit(rows[start : start + 5000], labels[start : start + 5000], classes=[-1, 1])
streamed = StreamSVC().fit_stream((rows[k : k + 700], labels[k : k + 700]) for k in range(0, rows.shape[0], 700))
print(f"batches      identical, bit for bit: {bool((live.coef_ == streamed.coef_).all())}")
print(f"a file       {StreamSVC().fit_stream('examples/data/a9a.train.svm.gz').model_.dim} weights, in one pass")
