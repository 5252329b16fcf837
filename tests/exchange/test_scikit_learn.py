"""scikit-learn's estimators have our scores, classes and probabilities, on the columns that it reads itself."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from exchange_models import curves, labels_of, many, rows_for, table, two
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_svmlight_file
from sklearn.utils.validation import check_is_fitted

from streamsvm import TableHasher, load_model, open_stream
from streamsvm.errors import ConfigError, ModelError
from streamsvm.exchange import to_sklearn
from streamsvm.exchange.scikit_learn import KINDS
from streamsvm.model import Model

DATA = Path(__file__).parents[2] / "examples/data"


def same(model: Model, estimator: Any, first: int = 1, off: Any = 0.0) -> None:
    batch, dense = rows_for(model.dim)
    rows = dense[:, first:].astype(np.float64)
    expected = model.scores(batch) - off
    np.testing.assert_allclose(estimator.decision_function(rows), expected, rtol=1e-12, atol=1e-12)
    assert estimator.predict(rows).tolist() == labels_of(model, batch)
    assert estimator.n_features_in_ == rows.shape[1]
    check_is_fitted(estimator)
    assert is_classifier(estimator) and type(clone(estimator)) is type(estimator)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_and_labels_are_ours(kind: str) -> None:
    models = [two(loss="logistic"), two(classes=["ham", "spam"], loss="logistic"), many(count=2, loss="logistic")]
    if kind != "LogisticRegression":
        models += [two(loss="hinge"), two(loss="smoothed_hinge"), two(classes=[2, 1]), many(), many(loss="logistic")]
        models += [many(classes=["a", "b", "c", "d"], rule="crammer_singer")]
    for model in models:
        estimator = to_sklearn(model, kind)
        same(model, estimator)
        assert type(estimator).__name__ == kind and estimator.classes_.tolist() == model.classes
        same(model, pickle.loads(pickle.dumps(estimator)))


@pytest.mark.parametrize("kind", ["SGDClassifier", "LogisticRegression"])
def test_probabilities_of_logistic_models_are_ours(kind: str) -> None:
    for model in [two(loss="logistic"), *([many(loss="logistic")] if kind == "SGDClassifier" else [])]:
        batch, dense = rows_for(model.dim)
        found = to_sklearn(model, kind).predict_proba(dense[:, 1:].astype(np.float64))
        expected = model.probabilities(model.scores(batch))
        np.testing.assert_allclose(found if model.many else found[:, 1], expected, rtol=1e-12)


def test_other_estimators_promise_no_probabilities() -> None:
    for loss in ("hinge", "squared_hinge", "smoothed_hinge"):
        assert not hasattr(to_sklearn(two(loss=loss), "SGDClassifier"), "predict_proba")
    assert not hasattr(to_sklearn(two(loss="logistic")), "predict_proba")
    with pytest.raises(ModelError, match="models of the logistic loss; this one has hinge"):
        to_sklearn(two(loss="hinge"), "LogisticRegression")
    with pytest.raises(ModelError, match="use SGDClassifier"):
        to_sklearn(many(loss="logistic"), "LogisticRegression")
    calibrated = two(loss="logistic", calibration=curves("isotonic", 1))
    for kind in ("SGDClassifier", "LogisticRegression"):
        with pytest.raises(ModelError, match="not those by isotonic"):
            to_sklearn(calibrated, kind)
    same(calibrated, to_sklearn(calibrated, "LinearSVC"))


def test_thresholds_are_folded_into_the_intercepts_or_left_out() -> None:
    for model in (two(thresholds=np.array([0.5])), many(thresholds=np.array([1.0, -0.5, 0.25, 0.0]))):
        same(model, to_sklearn(model), off=model.thresholds)
        left, plain = to_sklearn(model, thresholds="leave"), model.thresholds
        model.thresholds = None
        same(model, left)
        assert plain is not None
    model = two(loss="logistic", thresholds=np.array([0.5]))
    with pytest.raises(ModelError, match="would bend the probabilities"):
        to_sklearn(model, "LogisticRegression")
    same(model, to_sklearn(model, "LogisticRegression", thresholds="fold"), off=0.5)
    chances = to_sklearn(model, "LogisticRegression", thresholds="leave").predict_proba(np.zeros((1, 11)))
    assert chances[0, 1] == pytest.approx(1 / (1 + np.exp(-model.bias)))


def test_wrong_wishes_are_named() -> None:
    with pytest.raises(ConfigError, match="kind 'SVC': must be one of LinearSVC, SGDClassifier"):
        to_sklearn(two(), "SVC")
    with pytest.raises(ConfigError, match="must be fold, leave"):
        to_sklearn(two(), thresholds="both")
    with pytest.raises(ModelError, match="nothing is learned yet"):
        to_sklearn(two(dim=0))


# Which column is which index.


def test_columns_begin_with_index_1_or_0_as_the_model_says() -> None:
    model = two()
    same(model, to_sklearn(model, zero_based=True), first=0)
    same(model, to_sklearn(model, zero_based=False), first=1)
    model.weights[0] = 1.0
    same(model, to_sklearn(model), first=0)
    with pytest.raises(ModelError, match="index 0 has a weight"):
        to_sklearn(model, zero_based=False)
    for recipe in ({"format": "vw", "hash_bits": 4, "interactions": []}, {"format": "libsvm", "hash_bits": 4}, {}):
        hashed = two(recipe=recipe)
        same(hashed, to_sklearn(hashed), first=0)


def test_the_columns_of_a_table_have_their_names() -> None:
    columns = [{"name": "age", "kind": "number"}, {"name": "visits", "kind": "log1p"}]
    model = table([*columns, {"name": "v", "kind": "vector", "width": 2}], [0.0, 2.0, 3.0, -1.0])
    estimator = to_sklearn(model, "LogisticRegression")
    assert estimator.feature_names_in_.tolist() == ["age", "log1p(visits)", "v[0]", "v[1]"]
    frame = pd.DataFrame([[7.0, 1.0, 0.5, 2.0]], columns=estimator.feature_names_in_)
    assert estimator.decision_function(frame).tolist() == [2.0 + 1.5 - 2.0 + 0.25]
    assert not hasattr(to_sklearn(two()), "feature_names_in_")


def test_what_is_missing_is_a_column_too() -> None:
    """The columns are those that TableHasher makes, so it can be used in front of the estimator."""
    frame = pd.DataFrame({"age": [1.5, None, 3.5], "n": [2.5, 1.5, None]})
    columns = [{"name": name, "kind": "number", "missing": "indicator"} for name in frame]
    estimator = to_sklearn(table(columns, [1.0, 2.0, 10.0, 100.0]))
    assert estimator.feature_names_in_.tolist() == ["age", "n", "age is missing", "n is missing"]
    rows = pd.DataFrame(TableHasher().fit_transform(frame).toarray(), columns=estimator.feature_names_in_)
    assert estimator.decision_function(rows).tolist() == [1.5 + 5.0 + 0.25, 10.0 + 3.0 + 0.25, 3.5 + 100.0 + 0.25]


@pytest.mark.parametrize("base", [1, 0])
def test_files_that_scikit_learn_reads_are_scored_alike(run: Any, write: Any, base: int) -> None:
    """Both for indices that begin with 1 and with 0, scikit-learn's own guess and ours agree."""
    rng = np.random.default_rng(5)
    values = rng.normal(size=(300, 6)).round(3)
    labels = np.where(values @ rng.normal(size=6) > 0, 1, -1)
    lines = [
        f"{label} " + " ".join(f"{j + base}:{v}" for j, v in enumerate(row))
        for label, row in zip(labels, values, strict=True)
    ]
    path = write(lines)
    assert run("train", path, "-o", "m.safetensors", "-q")[0] == 0
    model = load_model("m.safetensors")
    rows, _ = load_svmlight_file(path, dtype=np.float32, n_features=6)
    expected = np.concatenate([model.scores(batch) for batch in open_stream(path)])
    found = to_sklearn(model).decision_function(rows.astype(np.float64))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    if base == 1:
        rows, _ = load_svmlight_file(path, dtype=np.float32, zero_based=True, n_features=7)
        found = to_sklearn(model, zero_based=True).decision_function(rows.astype(np.float64))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
