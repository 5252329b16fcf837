"""StreamSVC and TableHasher: scikit-learn's own checks, and that they are the engine and nothing else."""

import gzip
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_svmlight_file, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks
from tiers import examples

from streamsvm import StreamSVC, TableHasher, load_model, load_settings, open_stream, train
from streamsvm.errors import SourceError

A9A = str(Path(__file__).parents[1] / "examples/data/a9a.train.svm.gz")
CLICKS = str(Path(__file__).parents[1] / "examples/data/clicks.train.csv.gz")


# scikit-learn's own.


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [StreamSVC(), StreamSVC(solver="asgd", loss="logistic"), StreamSVC(map="rbf"), TableHasher()],
    expected_failed_checks=lambda estimator: getattr(estimator, "expected_failed_checks", {}),
)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_a_map_is_a_parameter_like_others():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1.0, 1.0, (2000, 2))
    labels = np.where(np.hypot(*rows.T) < 0.7, "in", "out")
    linear, mapped = StreamSVC().fit(rows, labels), StreamSVC(map="rbf").fit(rows, labels)
    assert linear.score(rows, labels) < 0.8 < 0.97 < mapped.score(rows, labels) and mapped.gap_ < 5e-2
    for clf in (mapped, pickle.loads(pickle.dumps(mapped)), StreamSVC.from_model(mapped.model_)):
        np.testing.assert_array_equal(clf.predict(rows), mapped.predict(rows))
        assert clf.n_features_in_ == 2
        with pytest.raises(AttributeError, match="mapped features"):
            clf.coef_  # noqa: B018
    assert StreamSVC(map="nystroem", gamma=2.0).fit(rows, labels).score(rows, labels) > 0.97
    batches = [(rows[a : a + 500], labels[a : a + 500]) for a in range(0, 2000, 500)]
    streamed = StreamSVC(map="bins").fit_stream(batches, classes=["in", "out"])
    online = StreamSVC(map="bins")
    for some, known in batches:
        online.partial_fit(some, known, classes=["in", "out"])
    assert streamed.score(rows, labels) > 0.93 and online.score(rows, labels) > 0.93
    again = pickle.loads(pickle.dumps(online)).partial_fit(*batches[0])
    np.testing.assert_array_equal(again.predict(rows), online.partial_fit(*batches[0]).predict(rows))


def test_what_those_checks_ask_for_holds_within_the_tolerance():
    rng = np.random.default_rng(0)
    rows, labels, counts = rng.normal(size=(60, 5)), rng.integers(0, 3, 60), rng.integers(0, 4, 60)
    model = StreamSVC(tol=1e-7, passes=100_000)
    weighted = clone(model).fit(rows, labels, sample_weight=counts)
    repeated = clone(model).fit(np.repeat(rows, counts, axis=0), np.repeat(labels, counts))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=2e-3)


# The same engine.


@pytest.fixture(scope="module")
def a9a():
    rows, labels = load_svmlight_file(A9A, zero_based=True)
    rows.indices, rows.indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int32)  # LIBLINEAR wants these
    return rows, labels


def same(one, other):
    return np.array_equal(one.weights, other.weights) and np.array_equal(one.bias, other.bias)


@pytest.mark.parametrize(
    "given",
    [
        {"solver": "dcd", "loss": "hinge", "C": 1.0},
        {"solver": "newton", "l2": 1e-4},
        {"solver": "asgd", "l2": 1e-6, "passes": 3, "shuffle": False},
        {"solver": "ftrl", "l2": 1e-6, "l1": 1e-5, "passes": 2, "shuffle": False, "scale": "maxabs"},
    ],
    ids=lambda given: given["solver"],
)
def test_fit_is_train_on_the_same_rows_bit_for_bit(a9a, given):
    rows, labels = a9a
    overrides = {
        "data.train": A9A,
        "output.model": None,
        "solver.name": given["solver"],
        "loss": given.get("loss", "squared_hinge"),
        **{f"penalty.{name}": given[name] for name in ("C", "l2", "l1") if name in given},
        **({"solver.passes": given["passes"], "data.shuffle": 0} if "passes" in given else {}),
        "features.scale": given.get("scale", "auto"),
    }
    known = train(load_settings(overrides=overrides)).model
    fitted = StreamSVC(**given).fit(rows, labels)
    assert same(known, fitted.model_) and fitted.model_.classes == known.classes == [-1, 1]
    dense = StreamSVC(**given).fit(rows.toarray(), labels)
    assert same(known, dense.model_)


def test_fit_finds_what_linear_svc_finds(a9a):
    rows, labels = a9a
    peer = LinearSVC(C=0.1, tol=1e-6, max_iter=100_000, random_state=0).fit(rows, labels)
    ours = StreamSVC(C=0.1, tol=1e-5).fit(rows, labels)
    scores, theirs = ours.decision_function(rows), peer.decision_function(rows)
    assert np.corrcoef(scores, theirs)[0, 1] > 0.9999
    assert ours.gap_ <= 1e-5 and ours.result_["gap"] == ours.gap_
    assert abs(ours.score(rows, labels) - peer.score(rows, labels)) < 1e-3

    def objective(model):
        margins = np.maximum(0.0, 1.0 - labels * model.decision_function(rows))
        return 0.5 * (np.sum(model.coef_**2) + np.sum(model.intercept_**2)) + 0.1 * np.sum(margins**2)

    assert objective(ours) <= objective(peer) * (1.0 + 1e-4)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_weights_of_rows_and_classes_are_those_of_the_peers(loss):
    rows, labels = make_classification(400, 8, random_state=1, weights=[0.8])
    weights = np.random.default_rng(2).uniform(0.1, 3.0, 400)
    ours = StreamSVC(loss=loss, C=0.5, class_weight={0: 1.0, 1: 4.0}, tol=1e-7)
    ours.fit(rows, labels, sample_weight=weights)
    if loss == "logistic":
        peer = LogisticRegression(C=0.5, class_weight={0: 1.0, 1: 4.0}, solver="liblinear", tol=1e-8)
    else:
        peer = LinearSVC(C=0.5, class_weight={0: 1.0, 1: 4.0}, tol=1e-8, max_iter=100_000)
    peer.fit(rows, labels, sample_weight=weights)
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=2e-3)
    np.testing.assert_allclose(ours.intercept_, peer.intercept_, atol=2e-3)
    balanced = StreamSVC(C=0.5, class_weight="balanced", tol=1e-7).fit(rows, labels)
    peer = LinearSVC(C=0.5, class_weight="balanced", tol=1e-8, max_iter=100_000).fit(rows, labels)
    np.testing.assert_allclose(balanced.coef_, peer.coef_, atol=5e-3)


def test_many_classes():
    rows, labels = load_digits(return_X_y=True)
    names = np.array([f"digit {k}" for k in labels])
    fitted = StreamSVC(scale="maxabs").fit(rows[:1200], names[:1200])
    assert fitted.coef_.shape == (10, 64) and fitted.intercept_.shape == (10,)
    assert fitted.decision_function(rows[:5]).shape == (5, 10)
    assert fitted.classes_.tolist() == sorted(set(names)) == fitted.model_.classes
    assert fitted.score(rows[1200:], names[1200:]) > 0.88
    together = StreamSVC(multiclass="crammer_singer", loss="hinge", scale="maxabs").fit(rows[:1200], labels[:1200])
    assert together.model_.rule == "crammer_singer" and together.score(rows[1200:], labels[1200:]) > 0.88


# Labels.


@pytest.mark.parametrize(
    "classes",
    [["b", "a"], ["10", "9"], [True, False], [2**40, 2**40 + 1], [-1.0, 1.0], [3, 7], ["1", "1.0"]],
    ids=str,
)
def test_labels_come_back_as_they_were_given(classes, tmp_path):
    rng = np.random.default_rng(3)
    rows, codes = rng.normal(size=(40, 3)), rng.integers(0, 2, 40)
    rows[:, 0] += 3 * codes
    labels = np.array(classes)[codes]
    for fitted in (StreamSVC().fit(rows, labels), StreamSVC().partial_fit(rows, labels, classes=np.array(classes))):
        assert fitted.classes_.dtype == np.unique(labels).dtype and fitted.classes_.tolist() == sorted(classes)
        found = fitted.predict(rows)
        assert found.dtype == labels.dtype and np.mean(found == labels) > 0.8
        fitted.model_.save(str(tmp_path / "m.safetensors"))
        assert load_model(str(tmp_path / "m.safetensors")).classes == fitted.model_.classes


# Batch after batch.


@given(st.lists(st.integers(1, 400), min_size=1, max_size=8), st.sampled_from(["asgd", "pegasos", "sgdqn"]))
@examples(15)
def test_partial_fit_is_one_pass_however_it_is_cut(cuts, solver):
    rng = np.random.default_rng(sum(cuts))
    rows = scipy.sparse.random(sum(cuts), 30, 0.2, "csr", np.float32, random_state=rng)
    labels = np.where(rng.random(sum(cuts)) < 0.5, "no", "yes")
    weights = rng.uniform(0.5, 2.0, sum(cuts))
    whole = StreamSVC(solver=solver, loss="hinge").partial_fit(rows, labels, ["no", "yes"], weights)
    parts, start = StreamSVC(solver=solver, loss="hinge"), 0
    for count in cuts:
        piece = slice(start, start + count)
        parts.partial_fit(rows[piece], labels[piece], ["no", "yes"], sample_weight=weights[piece])
        if count % 2:
            _ = parts.coef_  # looking at it changes nothing
        if count % 3 == 0:
            parts = pickle.loads(pickle.dumps(parts))
        start += count
    assert same(whole.model_, parts.model_)
    streamed = StreamSVC(solver=solver, loss="hinge").fit_stream([(rows, labels, weights)], classes=["no", "yes"])
    assert same(whole.model_, streamed.model_)
    assert streamed.model_.classes == ["no", "yes"]


def test_partial_fit_goes_on_from_fit_and_has_probabilities():
    rows, labels = make_classification(3000, 10, random_state=0)
    fitted = StreamSVC().fit(rows[:1000], labels[:1000])
    before = fitted.coef_.copy()
    fitted.partial_fit(rows[1000:], labels[1000:])
    assert not np.array_equal(before, fitted.coef_) and fitted.score(rows, labels) > 0.8
    fresh = StreamSVC().partial_fit(rows, labels, classes=[0, 1])
    found = fresh.predict_proba(rows)
    assert found.shape == (3000, 2) and np.allclose(found.sum(axis=1), 1.0)
    assert abs(found[:, 1].mean() - labels.mean()) < 0.05


def test_partial_fit_refuses_what_does_not_fit():
    rows, labels = make_classification(50, 5, random_state=0)
    with pytest.raises(ValueError, match="classes must be named in the first call"):
        StreamSVC().partial_fit(rows, labels)
    with pytest.raises(ValueError, match="solver dcd needs all rows at once"):
        StreamSVC(solver="dcd").partial_fit(rows, labels, classes=[0, 1])
    begun = StreamSVC().partial_fit(rows, labels, classes=[0, 1])
    with pytest.raises(ValueError, match="row 2: label 5 is not among the classes 0, 1"):
        begun.partial_fit(rows[:2], [0, 5])
    with pytest.raises(ValueError, match="not those of the calls before"):
        begun.partial_fit(rows, labels, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="4 features"):
        begun.partial_fit(rows[:, :4], labels)


# Streams.


def test_fit_stream_reads_what_the_command_line_reads(tmp_path):
    known = train(load_settings(overrides={"data.train": A9A, "output.model": None})).model
    assert same(known, StreamSVC().fit_stream(A9A).model_)
    assert same(known, StreamSVC().fit_stream(open_stream(A9A)).model_)
    assert StreamSVC().fit_stream([A9A]).classes_.tolist() == [-1, 1]
    lines = gzip.decompress(Path(A9A).read_bytes()).splitlines(keepends=True)
    for number, half in enumerate((lines[:9000], lines[9000:])):
        (tmp_path / f"part-{number}.svm").write_bytes(b"".join(half))
    assert same(known, StreamSVC().fit_stream(str(tmp_path / "part-*.svm")).model_)


def test_columns_of_arrays_are_those_of_load_svmlight_file():
    """Files count indices from 1, arrays columns from 0; models of files have no weight for index 0, so all fits."""
    rows, labels = load_svmlight_file(A9A)
    assert rows.shape[1] == 123
    streamed = StreamSVC().fit_stream(A9A)
    assert streamed.n_features_in_ == 123 and streamed.coef_.shape == (1, 123) and streamed.model_.dim == 124
    scores = np.concatenate([streamed.model_.scores(batch) for batch in open_stream(A9A, model=streamed.model_)])
    assert np.array_equal(streamed.decision_function(rows), scores)
    assert np.allclose(streamed.decision_function(rows), (rows @ streamed.coef_.T).ravel() + streamed.intercept_)
    shifted = StreamSVC(solver="asgd", l2=1e-6, passes=1, shuffle=False).fit(rows, labels)
    assert np.array_equal(shifted.coef_, streamed.coef_)
    streamed.partial_fit(rows[:500].toarray(), labels[:500])
    assert streamed.model_.dim == 124 and streamed.coef_.shape == (1, 123)
    again = pickle.loads(pickle.dumps(streamed)).partial_fit(rows[:500], labels[:500])
    assert again.model_.weights[0] == 0.0 and again.score(rows, labels) > 0.8


def test_fit_stream_takes_batches(a9a):
    rows, labels = a9a
    known = StreamSVC().fit_stream(A9A).model_

    def batches():
        for start in range(0, len(labels), 5000):
            yield rows[start : start + 5000], labels[start : start + 5000]

    assert same(known, StreamSVC().fit_stream(batches()).model_)
    assert same(known, StreamSVC().fit_stream(list(batches())).model_)
    twice = StreamSVC(passes=2).fit_stream(A9A).model_
    assert same(twice, StreamSVC(passes=2).fit_stream(batches()).model_)  # through a cache file
    exact = StreamSVC(solver="dcd", C=1.0).fit_stream(batches())
    assert exact.gap_ <= 1e-3 and same(StreamSVC(solver="dcd", C=1.0).fit(rows, labels).model_, exact.model_)


def test_fit_stream_of_batches_finds_classes_or_says_that_they_must_be_named():
    rows, labels = load_digits(return_X_y=True)
    found = StreamSVC(scale="maxabs").fit_stream((rows[k : k + 300], labels[k : k + 300]) for k in range(0, 1797, 300))
    assert found.classes_.tolist() == list(range(10)) and found.score(rows, labels) > 0.8
    with pytest.raises(ValueError, match="labels are texts: name them all"):
        StreamSVC().fit_stream([(rows, labels.astype(str).astype("U8") + np.array("x"))])
    with pytest.raises(ValueError, match="there is no batch"):
        StreamSVC().fit_stream(iter([]))
    with pytest.raises(SourceError, match="no such file"):
        StreamSVC().fit_stream("nowhere.svm")


# Frames.


@pytest.fixture(scope="module")
def clicks():
    return pd.read_csv(CLICKS)


COLUMNS = {
    "log1p": ["visits", "price"],
    "categorical": ["hour"],
    "text": ["title"],
    "ignore": ["id"],
    "interactions": [["site", "ad"]],
    "hash_bits": 18,
}


def test_a_frame_is_a_table(clicks, tmp_path):
    """The same columns give the same rows, from pandas, polars, Parquet and CSV; models are exchanged freely."""
    columns, labels = clicks.drop(columns="click"), clicks["click"]
    known = StreamSVC(features=COLUMNS, loss="logistic").fit_stream(CLICKS, label="click")
    assert set(known.feature_names_in_) == {"visits", "price", "hour", "title", "user", "ad", "site"}
    for frame in (columns, pl.from_pandas(columns), columns.convert_dtypes(), columns.astype({"site": "category"})):
        made = StreamSVC(features=COLUMNS, loss="logistic").partial_fit(frame, labels, classes=[0, 1])
        assert same(known.model_, made.model_)
        assert np.array_equal(known.predict_proba(frame), made.predict_proba(columns))
    assert made.feature_names_in_.tolist() == columns.columns.tolist()
    made.model_.save(str(tmp_path / "m.safetensors"))
    scores = np.concatenate([made.model_.scores(batch) for batch in open_stream(CLICKS, model=made.model_)])
    assert np.array_equal(scores, known.decision_function(clicks))  # further columns do no harm
    loaded = StreamSVC.from_model(load_model(str(tmp_path / "m.safetensors")))
    assert np.array_equal(loaded.predict(columns[::-1]), known.predict(columns)[::-1])


def test_frames_of_numbers_may_lack_some(clicks):
    """As a table in a file may: a null is a feature of its own, from pandas, polars and Arrow."""
    columns, labels = clicks[["visits", "price"]].astype(float), clicks["click"]
    columns.loc[::3, "price"] = np.nan
    found = []
    for frame in (columns, columns.convert_dtypes(), pl.from_pandas(columns), pa.Table.from_pandas(columns)):
        found.append(StreamSVC(passes=2, solver="asgd").fit(frame, labels))
        assert found[-1].coef_.shape == (1, 4) and found[-1].coef_[0, 3] != 0.0
        assert same(found[0].model_, found[-1].model_)
        assert np.array_equal(found[0].decision_function(frame), found[0].decision_function(columns))
    plain = StreamSVC(passes=2, solver="asgd", features={"missing": "zero"}).fit(columns, labels)
    assert plain.coef_.shape == (1, 2)


def test_frames_of_numbers_and_texts(clicks):
    labels = clicks["click"]
    fitted = StreamSVC(passes=5, solver="asgd").fit(clicks[["visits", "price"]].fillna(0.0), labels)
    assert fitted.feature_names_in_.tolist() == ["visits", "price"] and fitted.coef_.shape == (1, 4)
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(clicks[["price", "visits"]])
    mixed = StreamSVC(passes=3, solver="asgd", features={"hash_bits": 12}).fit(clicks[["price", "ad"]], labels)
    assert mixed.coef_.shape == (1, 2 + 4096)  # the price, and whether it is missing
    with pytest.raises(ValueError, match="there is no column ad"):
        mixed.predict(clicks[["price"]])
    with pytest.raises(ValueError, match="give a frame"):
        mixed.predict(np.zeros((2, 2)))
    wrong = pd.DataFrame({"price": ["cheap", "x"], "ad": ["a", "b"]})
    with pytest.raises(ValueError, match="row 1 of the frame: .*price"):
        mixed.predict(wrong)


def test_table_hasher_feeds_other_estimators(clicks):
    columns, labels = clicks.drop(columns="click"), clicks["click"]
    made = make_pipeline(TableHasher(features=COLUMNS), LogisticRegression(C=0.1, max_iter=1000))
    made.fit(columns[:6000], labels[:6000])
    assert made.score(columns[6000:], labels[6000:]) > 0.78
    hasher = pickle.loads(pickle.dumps(made[0]))
    rows = hasher.transform(pl.from_pandas(columns))
    assert rows.shape == (len(columns), hasher.n_columns_) == (16000, (1 << 18) + 4)
    batch = next(iter(open_stream(CLICKS, label="click", features=COLUMNS, limit=100))).copy()
    assert np.array_equal(rows[:100].indices, batch.indices) and np.array_equal(rows[:100].data, batch.values)


# In company.


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.full)])
def test_pipelines_and_searches(jobs):
    rows, labels = make_classification(600, 10, random_state=0)
    made = make_pipeline(StandardScaler(), StreamSVC())
    assert cross_val_score(made, rows, labels, cv=3, n_jobs=jobs).mean() > 0.8
    search = GridSearchCV(StreamSVC(), {"C": [0.01, 1.0], "loss": ["hinge", "logistic"]}, cv=3, n_jobs=jobs)
    assert search.fit(rows, labels).best_score_ > 0.8
    calibrated = CalibratedClassifierCV(StreamSVC(), cv=3).fit(rows, labels)
    assert calibrated.predict_proba(rows).shape == (600, 2)


def test_probabilities_and_thresholds():
    rows, labels = make_classification(3000, 10, random_state=0, weights=[0.9], flip_y=0.1)
    plain = StreamSVC().fit(rows, labels)
    assert not hasattr(plain, "predict_proba") and not hasattr(StreamSVC(), "predict_proba")
    for able in (StreamSVC(loss="logistic"), StreamSVC(calibrate="platt")):
        assert hasattr(able, "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba"):
        _ = plain.predict_proba
    made = StreamSVC(calibrate="isotonic", threshold="f1").fit(rows, labels)
    assert abs(made.predict_proba(rows)[:, 1].mean() - labels.mean()) < 0.02
    assert made.predict(rows).sum() != (made.decision_function(rows) > 0.0).sum()
    log = StreamSVC(loss="logistic").fit(rows, labels)
    assert np.allclose(np.exp(log.predict_log_proba(rows)), log.predict_proba(rows))


def test_warm_start():
    rows, labels = make_classification(2000, 20, random_state=0)
    cold = StreamSVC(solver="dcd", warm_start=True).fit(rows, labels)
    first = cold.n_iter_
    again = cold.fit(rows, labels)
    assert again.n_iter_ < first / 2 and again.gap_ <= 1e-3
    with pytest.raises(ValueError, match="they must agree"):
        cold.fit(rows[:, :5], labels)
    assert cold.fit(rows, np.where(labels, "x", "y")).classes_.tolist() == ["x", "y"]


def test_warnings_and_errors(capsys):
    rows, labels = make_classification(200, 5, random_state=0)
    with pytest.warns(ConvergenceWarning, match="stopped after 3 passes"):
        StreamSVC(solver="dcd", tol=1e-9, passes=3).fit(rows, labels)
    for wrong, said in (
        ({"solver": "svm"}, "solver.name: must be one of"),
        ({"C": -1.0}, "penalty.C: must be greater than 0"),
        ({"C": 1.0, "l2": 1.0}, "penalty.l2: cannot be combined with penalty.C"),
        ({"settings": {"data.hodlout": 10}}, "did you mean 'data.holdout'"),
    ):
        with pytest.raises(ValueError, match=said):
            StreamSVC(**wrong).fit(rows, labels)
    with pytest.raises(ValueError, match="Negative values"):
        StreamSVC().fit(rows, labels, sample_weight=-np.ones(200))
    with pytest.raises(ValueError, match="too large for single precision"):
        StreamSVC().fit(rows * 1e300, labels)
    with pytest.raises(ValueError, match="continuous"):
        StreamSVC().fit(rows, rows[:, 0])
    assert capsys.readouterr() == ("", "")
    StreamSVC(verbose=1).fit(rows, labels)
    assert "solver newton, because" in capsys.readouterr().err


def test_without_scikit_learn():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import streamsvm; streamsvm.load_model\n"
        "try: streamsvm.StreamSVC\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'streamsvm[sklearn]'" in done.stdout
    code = "import sys, streamsvm; print([name for name in sys.modules if name in ('sklearn', 'numba', 'numpy')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
