"""LIBLINEAR itself reads what we write, and we read what it writes: the same labels, the same decision values."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exchange_models import LIBSVM, curves, labels_of, many, rows_for, table, two
from liblinear import liblinearutil
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from streamsvm.errors import ModelError
from streamsvm.exchange import save_liblinear, to_liblinear
from streamsvm.model import Model, load_model

DATA = Path(__file__).parents[2] / "examples/data"


def rejected(text: str) -> None:
    raise AssertionError(f"unexpected note: {text}")


def saved(model: Model, tmp_path: Path, **options: Any) -> Any:
    """What LIBLINEAR loads of a model."""
    path = str(tmp_path / "heart.model")
    save_liblinear(model, path, **({"note": rejected} | options))
    found = liblinearutil.load_model(path)
    assert found is not None
    return found


def predicted(theirs: Any, rows: Any, options: str = "-q") -> tuple[list[float], Any]:
    """Labels and decision values (or probabilities) of LIBLINEAR, for a matrix whose column j is its index j + 1."""
    labels, _, values = liblinearutil.predict([], sparse.csr_matrix(rows, dtype=np.float64), theirs, options)
    return labels, np.array(values)


def same_scores(model: Model, theirs: Any, shift: int = 1, off: Any = 0.0) -> None:
    batch, dense = rows_for(model.dim)
    labels, values = predicted(theirs, dense[:, shift:])
    expected = model.scores(batch)
    expected = (expected if model.many else expected[:, None]) - off
    if model.many and len(model.classes) == 2:
        expected = (expected[:, 1:] - expected[:, :1]) / 2
    np.testing.assert_allclose(values[:, : expected.shape[1]], expected, rtol=1e-13, atol=1e-13)
    assert labels == labels_of(model, batch)


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge", "logistic"])
def test_liblinear_has_our_scores_and_labels(tmp_path: Path, loss: str) -> None:
    without = two(loss=loss)
    without.bias = 0.0
    models = [two(loss=loss), two(3, classes=[2, 1], loss=loss), without, many(loss=loss)]
    for model in [*models, many(count=3, rule="crammer_singer")]:
        same_scores(model, saved(model, tmp_path))


def test_the_type_says_loss_penalty_and_rule() -> None:
    def kind(model: Model) -> str:
        return to_liblinear(model, note=rejected).type

    l1 = {"l1": 1e-3, "l2": 0.0}
    assert [kind(two(loss=loss)) for loss in ("squared_hinge", "hinge", "logistic")] == [
        "L2R_L2LOSS_SVC",
        "L2R_L1LOSS_SVC_DUAL",
        "L2R_LR",
    ]
    assert kind(two(provenance=l1)) == "L1R_L2LOSS_SVC"
    assert kind(two(loss="logistic", provenance=l1)) == "L1R_LR"
    assert kind(two(provenance={"l1": 1e-3, "l2": 1e-6})) == "L2R_L2LOSS_SVC"
    assert kind(many(rule="crammer_singer")) == "MCSVM_CS" and kind(many()) == "L2R_L1LOSS_SVC_DUAL"


def test_logistic_models_have_our_probabilities_there(tmp_path: Path) -> None:
    for model in (two(loss="logistic"), many(loss="logistic")):
        batch, dense = rows_for(model.dim)
        _, values = predicted(saved(model, tmp_path), dense[:, 1:], "-b 1 -q")
        expected = model.probabilities(model.scores(batch))
        np.testing.assert_allclose(values if model.many else values[:, 0], expected, rtol=1e-12)


# What cannot be said.


def test_what_liblinear_cannot_say_is_told(tmp_path: Path) -> None:
    notes: list[str] = []
    model = two(loss="hinge", calibration=curves("platt", 1), thresholds=np.array([0.75]))
    theirs = saved(model, tmp_path, note=notes.append)
    same_scores(model, theirs, off=0.75)
    assert ["taken off the bias" in notes[0], "probabilities by platt are left out" in notes[1]] == [True, True]
    with pytest.warns(UserWarning, match="left out"):
        to_liblinear(two(calibration=curves("isotonic", 1)))

    notes.clear()
    model = many(loss="logistic", calibration=curves("platt", 4), thresholds=np.array([0.5, -1.0, 0.0, 2.0]))
    same_scores(model, saved(model, tmp_path, note=notes.append), off=model.thresholds)
    assert "makes probabilities" in notes[0] and "-b 1 has those of the logistic loss" in notes[1]

    notes.clear()
    for model in (two(loss="smoothed_hinge"), many(count=2), many(loss="logistic", rule="crammer_singer")):
        same_scores(model, saved(model, tmp_path, note=notes.append))
    assert "no type for smoothed_hinge with l2" in notes[0] and "half the difference of the two scores" in notes[1]
    assert "crammer_singer with logistic" in notes[2] and "no probabilities" in notes[2]


def test_indices_of_what_is_missing_are_told() -> None:
    columns = [{"name": name, "kind": "number", "missing": "indicator"} for name in ("age", "n")]
    notes: list[str] = []
    assert len(to_liblinear(table(columns, [1.0, 2.0, 3.0, 4.0]), note=notes.append).weights) == 4
    assert notes[1] == "indices 3 to 4 are 1 where a number is missing: age is missing, n is missing"


def test_index_0_is_refused_or_shifted(tmp_path: Path) -> None:
    model = two()
    model.weights[0] = 2.0
    with pytest.raises(ModelError, match="a weight for index 0, and LIBLINEAR's indices begin with 1"):
        to_liblinear(model)
    with pytest.raises(ModelError, match="would be left out"):
        to_liblinear(model, zero_based=False)
    notes: list[str] = []
    same_scores(model, saved(model, tmp_path, zero_based=True, note=notes.append), shift=0)
    assert notes == ["feature j of the model, counted from 0, is index j + 1 of LIBLINEAR"]
    notes.clear()
    hashed = two(recipe={"format": "vw", "hash_bits": 4, "interactions": []})
    same_scores(hashed, saved(hashed, tmp_path, note=notes.append), shift=0)
    assert "j + 1" in notes[0] and "hashed" in notes[1]


def test_labels_that_liblinear_cannot_have_are_refused() -> None:
    for classes in (["ham", "spam"], [0.5, 1]):
        with pytest.raises(ModelError, match="labels are whole numbers"):
            to_liblinear(two(classes=classes))
    with pytest.raises(ModelError, match="nothing is learned yet"):
        to_liblinear(two(dim=0))


# The other way.


def same_model(a: Model, b: Model) -> bool:
    return (
        np.array_equal(a.weights, b.weights)
        and np.array_equal(a.bias, b.bias)
        and (a.classes, a.loss, a.rule, a.recipe) == (b.classes, b.loss, b.rule, b.recipe)
    )


@pytest.mark.parametrize(
    "model",
    [two(), two(classes=[2, 1], loss="logistic"), many(), many(rule="crammer_singer"), many(count=2)],
    ids=["two", "order", "many", "cs", "two scores"],
)
def test_there_and_back_is_the_same_model(tmp_path: Path, model: Model) -> None:
    path = str(tmp_path / "m.txt")
    if len(model.classes) == 2 and model.many:
        model.weights[:, 0], model.bias[0], model.rule = -model.weights[:, 1], -model.bias[1], "crammer_singer"
    save_liblinear(model, path, note=rejected)
    assert same_model(load_model(path), model)


LOSSES = {0: "logistic", 1: "squared_hinge", 2: "squared_hinge", 3: "hinge", 4: "hinge", 5: "squared_hinge"}


@pytest.mark.parametrize("solver", range(8))
@pytest.mark.parametrize("labels", [(1, -1), (0, 1), (7, 3, 5)], ids=str)
def test_what_liblinear_has_trained_is_scored_alike(tmp_path: Path, solver: int, labels: tuple[int, ...]) -> None:
    """Also with another value of the constant feature, and with labels in the order in which they came."""
    batch, dense = rows_for(9, rows=80)
    truth = np.random.default_rng(2).normal(size=(9, len(labels)))
    given = [labels[k] for k in (dense @ truth).argmax(axis=1)]
    bias = (-1.0, 1.0, 2.5)[solver % 3]
    theirs = liblinearutil.train(given, sparse.csr_matrix(dense[:, 1:]), f"-s {solver} -B {bias} -q")
    path = str(tmp_path / "theirs.model")
    liblinearutil.save_model(path, theirs)
    model = load_model(path)
    expected, values = predicted(theirs, dense[:, 1:])
    scores = model.scores(batch)
    shown = scores if len(labels) > 2 else scores.reshape(80, -1)[:, -1:]  # LIBLINEAR shows one score of two
    np.testing.assert_allclose(shown, values[:, : shown.shape[1]], rtol=1e-5, atol=1e-6)
    assert labels_of(model, batch) == expected
    assert model.loss == LOSSES.get(solver, "logistic") and model.many == (len(labels) > 2 or solver == 4)
    assert model.rule == ("crammer_singer" if solver == 4 else "ova") and model.recipe == LIBSVM
    assert model.probable == (solver in (0, 6, 7))
    if model.probable:
        _, chances = predicted(theirs, dense[:, 1:], "-b 1 -q")
        ours = model.probabilities(scores)
        np.testing.assert_allclose(ours, chances if model.many else chances[:, 0], rtol=1e-4, atol=1e-7)


@pytest.fixture(scope="module")
def a9a() -> dict[str, Any]:
    return {name: load_svmlight_file(str(DATA / f"a9a.{name}.svm.gz"), n_features=123) for name in ("train", "test")}


def test_a_model_of_liblinear_works_in_every_command(run: Any, a9a: dict[str, Any], tmp_path: Path) -> None:
    rows, labels = a9a["train"]
    theirs = liblinearutil.train(labels, rows, "-s 2 -B 1 -q")
    liblinearutil.save_model(str(tmp_path / "theirs.model"), theirs)
    rows, labels = a9a["test"]
    predicted, (accuracy, _, _), _ = liblinearutil.predict(labels, rows, theirs, "-q")

    test = DATA / "a9a.test.svm.gz"
    code, out, _ = run("evaluate", "theirs.model", test, "--json")
    assert code == 0 and 100 * json.loads(out)["accuracy"] == pytest.approx(accuracy, abs=1e-9)
    code, out, _ = run("predict", "theirs.model", test)
    assert code == 0 and [float(word) for word in out.split()] == predicted
    code, out, _ = run("inspect", "theirs.model", "--top", 2)
    assert code == 0 and "trained  a LIBLINEAR model (L2R_L2LOSS_SVC), squared_hinge" in out and "124 weights" in out
    onward = ("--init", "theirs.model", "--solver", "sgd", "--eta0", "1e-9", "-o", "on.safetensors", "--json")
    code, out, err = run("train", DATA / "a9a.train.svm.gz", *onward)
    rows, labels = a9a["train"]
    known, (accuracy, _, _), _ = liblinearutil.predict(labels, rows, theirs, "-q")
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["error"] == pytest.approx(1 - accuracy / 100, abs=1e-4)
    code, _, err = run("predict", "theirs.model", test, "--probabilities")
    assert code == 5 and "no probabilities" in err


def test_liblinear_has_the_labels_of_a_model_that_was_trained_here(run: Any, a9a: dict[str, Any]) -> None:
    arguments = ("--solver", "dcd", "--loss", "hinge", "--C", "1", "-o", "ours.safetensors", "-q")
    assert run("train", DATA / "a9a.train.svm.gz", *arguments)[0] == 0
    code, out, err = run("export", "ours.safetensors", "ours.model")
    assert code == 0 and err == "" and "wrote ours.model (123 features): LIBLINEAR's `predict " in out
    rows, labels = a9a["test"]
    theirs = liblinearutil.load_model("ours.model")
    found, _, _ = liblinearutil.predict(labels, rows, theirs, "-q")
    code, out, _ = run("predict", "ours.safetensors", DATA / "a9a.test.svm.gz")
    assert [float(word) for word in out.split()] == found
    peer = liblinearutil.train(*reversed(a9a["train"]), "-s 3 -B 1 -c 1 -e 0.001 -q")
    np.testing.assert_allclose(theirs.get_decfun()[0], peer.get_decfun()[0], atol=0.15)  # the same problem


def test_digits_trained_here_are_the_same_there(run: Any) -> None:
    train, test = DATA / "digits.train.svm.gz", DATA / "digits.test.svm.gz"
    assert run("train", train, "--loss", "logistic", "-o", "digits.safetensors", "--passes", 3, "-q")[0] == 0
    assert run("export", "digits.safetensors", "digits.txt")[0] == 0
    rows, labels = load_svmlight_file(str(test), dtype=np.float32, zero_based=False)
    found, _, _ = liblinearutil.predict(labels, rows, liblinearutil.load_model("digits.txt"), "-q")
    code, out, _ = run("predict", "digits.safetensors", test)
    assert [float(word) for word in out.split()] == found
