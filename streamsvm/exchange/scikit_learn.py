"""A model as a fitted scikit-learn estimator, with the same coefficients, intercepts and classes.

    LinearSVC             any loss; no probabilities
    SGDClassifier         any loss; predict_proba for logistic models of any number of classes
    LogisticRegression    logistic models of two classes; for more, scikit-learn's probabilities are those of another
                          model (softmax), so it is refused

decision_function is `Model.scores`, and predict the model's classes, to the rounding of float64, for features in single
precision as streamsvm reads them (`load_svmlight_file(..., dtype=numpy.float32)`). Column k is index k + 1 for models
of LIBSVM text whose indices begin with 1, else index k (columns.py); `zero_based` says so where that is not known.
Columns that say that a number is missing, which a model of a table has after its numbers, are columns here too: 1 where
it is missing and 0 elsewhere, the number itself being 0 there, as TableHasher makes them.

Thresholds that were chosen can be folded into the intercepts: predict is then the model's, and decision_function is
lower by them. That is the default but for estimators with probabilities, which they would bend: there they are refused
unless `thresholds` is `fold`, or `leave`, which leaves them out. Calibration has no place in these estimators: it is
left out where there are no probabilities, and refused where others would take their place.
"""

from typing import Any

import numpy as np

from streamsvm.batch import Float64s
from streamsvm.errors import ConfigError, ModelError
from streamsvm.exchange.columns import features_of, first_index
from streamsvm.model import Model

KINDS = ("LinearSVC", "SGDClassifier", "LogisticRegression")
CHOICES = (None, "fold", "leave")
# Which loss an estimator is told that it has: the model's, or the nearest one that does not promise probabilities.
SVC_LOSS = {"hinge": "hinge"}
SGD_LOSS = {"hinge": "hinge", "squared_hinge": "squared_hinge", "logistic": "log_loss"}


def to_sklearn(
    model: Model, kind: str = "LinearSVC", *, zero_based: bool | None = None, thresholds: str | None = None
) -> Any:
    """A fitted estimator of one of KINDS; ModelError where it would give other labels or probabilities."""
    if kind not in KINDS:
        raise ConfigError(f"kind {kind!r}: must be one of {', '.join(KINDS)}")
    if thresholds not in CHOICES:
        raise ConfigError(f"thresholds {thresholds!r}: must be fold, leave or None")
    first = first_index(model, zero_based)
    probable = kind == "LogisticRegression" or (kind == "SGDClassifier" and model.loss == "logistic")
    if kind == "LogisticRegression":
        _refuse_other_losses(model)
    if probable and model.calibration is not None:
        raise ModelError(
            f"{kind} would have the probabilities of the logistic loss, and not those by {model.calibration.kind}; "
            "LinearSVC has none"
        )
    weights = (model.weights if model.many else model.weights[:, None])[first:]
    estimator = _unfitted(model, kind)
    estimator.coef_ = np.ascontiguousarray(weights.T, np.float64)
    estimator.intercept_ = _intercepts(model, kind, thresholds, probable)
    estimator.classes_ = np.array(model.classes)
    estimator.n_features_in_ = len(weights)
    estimator.n_iter_ = 1 if kind != "LogisticRegression" else np.ones(1, np.int32)
    features = features_of(model)
    if features.names:
        estimator.feature_names_in_ = np.array([*features.names, *features.missing_names], object)
    return estimator


def _refuse_other_losses(model: Model) -> None:
    if model.loss != "logistic":
        raise ModelError(f"LogisticRegression is for models of the logistic loss; this one has {model.loss}")
    if len(model.classes) > 2:
        raise ModelError("LogisticRegression has other probabilities for more than two classes; use SGDClassifier")


def _unfitted(model: Model, kind: str) -> Any:
    try:
        from sklearn.linear_model import LogisticRegression, SGDClassifier
        from sklearn.svm import LinearSVC
    except ImportError as error:
        raise ConfigError("this needs scikit-learn: pip install scikit-learn") from error
    if kind == "LogisticRegression":
        return LogisticRegression()
    if kind == "SGDClassifier":
        return SGDClassifier(loss=SGD_LOSS.get(model.loss, "hinge"))
    return LinearSVC(loss=SVC_LOSS.get(model.loss, "squared_hinge"))


def _intercepts(model: Model, kind: str, thresholds: str | None, probable: bool) -> Float64s:
    bias = np.array(model.bias, np.float64, ndmin=1)
    if model.thresholds is None or thresholds == "leave":
        return bias
    if probable and thresholds is None:
        raise ModelError(
            f'the model has thresholds, which would bend the probabilities of {kind}: thresholds="leave" leaves them '
            'out, "fold" takes them off the intercepts all the same'
        )
    return np.asarray(bias - model.thresholds)
