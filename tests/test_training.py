"""Whole runs through the library: holdout, early stopping, weights, scaling, penalties, the objective."""

from typing import Any

import numpy as np
import pytest
from held_out import held_out
from whole_runs import A9A, Notes, bits, lines

from streamsvm import load_model, load_settings, open_stream, train
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.evaluate import evaluate
from streamsvm.training import Outcome


def run(path: Any, notes: Notes | None = None, **settings: Any) -> Outcome:
    """train() with settings written as section__key=value."""
    overrides = {key.replace("__", "."): value for key, value in settings.items()}
    overrides = {"data.train": str(path), "output.model": None, "loss": "hinge", "penalty.l2": 1e-3, **overrides}
    return train(load_settings(overrides=overrides, environ={}), notes or Notes())


# Holdout and early stopping.


@pytest.mark.parametrize("passes", [1, 3])
def test_held_out_rows_are_not_learned(write, passes):
    text = lines(2000)
    out = held_out(2000, 7)
    kept = write([row for row, gone in zip(text, out, strict=True) if not gone], "kept.svm")
    held = run(write(text), data__holdout=7, solver__passes=passes, data__shuffle=0)
    plain = run(kept, solver__passes=passes, data__shuffle=0)
    assert bits(held) == bits(plain)
    assert held.result["examples"] == plain.result["examples"] == passes * (2000 - out.sum())
    assert held.result["holdout"]["examples"] == out.sum() and plain.result["holdout"] is None


def test_held_out_figures_are_those_of_the_model_at_the_end_of_the_pass(write):
    text = lines(2000)
    out = held_out(len(text), 5)
    held = write([row for row, kept in zip(text, out, strict=True) if kept], "held.svm")
    outcome = run(write(text), data__holdout=5)
    measured = evaluate(outcome.model, open_stream(held))
    assert outcome.result["holdout"]["loss"] == pytest.approx(measured["loss"], rel=1e-6)
    assert outcome.result["holdout"]["error"] == measured["error"]


def test_the_same_rows_are_held_out_in_every_pass_whatever_the_machine(write):
    path = write(lines(30_000, features=200))
    common = {"data__holdout": 10, "solver__passes": 3, "solver__early_stop": 1}
    results = [
        run(path, **common, run__memory=memory, run__threads=threads, **shuffle)
        for memory, threads in (("1GB", 2), ("64MB", 1))
        for shuffle in ({}, {"data__shuffle": 1000})
    ]
    assert bits(results[0]) == bits(results[2]) and results[0].result["holdout"] == results[2].result["holdout"]
    assert bits(results[1]) == bits(results[3]) and results[1].result["holdout"] == results[3].result["holdout"]
    assert bits(results[0]) != bits(results[1])


def test_early_stopping_keeps_the_weights_of_the_best_pass(write):
    text = lines(300, noise=4.0, features=200)
    held = write([row for row, out in zip(text, held_out(300, 3), strict=True) if out], "held.svm")
    notes = Notes()
    common = {"data__holdout": 3, "penalty__l2": 1e-7, "loss": "squared_hinge"}
    outcome = run(write(text), notes, **common, solver__passes=60, solver__early_stop=2)
    stopped, best = outcome.result["passes"], outcome.result["holdout"]["pass"]
    assert stopped == best + 2 < 60 and any("stopped after pass" in note for note in notes.notes)
    assert evaluate(outcome.model, open_stream(held))["loss"] == pytest.approx(
        outcome.result["holdout"]["loss"], rel=1e-5
    )
    straight = run(write(text), **common, solver__passes=60)
    assert straight.result["holdout"]["pass"] == 60
    assert straight.result["holdout"]["loss"] > outcome.result["holdout"]["loss"]
    assert bits(run(write(text), **common, solver__passes=best)) == bits(outcome)


def test_holdout_larger_than_the_data_is_said(write):
    notes = Notes()
    outcome = run(write(lines(20)), notes, data__holdout=10**6)
    assert outcome.result["holdout"] is None and any("no row is held out" in note for note in notes.notes)


# Weights.


def test_a_class_weight_is_the_weight_of_its_rows(write):
    text = lines(800)
    weighted = [
        row.replace("1 ", "1 3 ", 1) if row.startswith("1 ") else row.replace("-1 ", "-1 0.5 ", 1) for row in text
    ]
    by_class = run(write(text), data__class_weights={1: 3, "-1": 0.5})
    by_row = run(write(weighted, "weighted.svm"))
    assert bits(by_class) == bits(by_row) != bits(run(write(text)))


def test_balanced_counts_in_the_cache_and_on_the_stream(write):
    text = lines(3000)
    path = write(text)
    positive = sum(row.startswith("1 ") for row in text)
    factors = {"1": 3000 / (2 * positive), "-1": 3000 / (2 * (3000 - positive))}
    exact = run(path, data__class_weights="balanced", solver__passes=2)
    assert bits(exact) == bits(run(path, data__class_weights=factors, solver__passes=2))
    streamed = run(path, data__class_weights="balanced")
    assert bits(streamed) == bits(run(path, data__class_weights="balanced", run__threads=1, run__memory="40MB"))
    assert bits(streamed) != bits(run(path))
    metrics = [evaluate(outcome.model, open_stream(path))["confusion"] for outcome in (exact, streamed, run(path))]
    recalls = [confusion[1][1] / sum(confusion[1]) for confusion in metrics]
    assert recalls[0] > recalls[2] + 0.05 and recalls[1] > recalls[2] + 0.05


def test_weights_of_classes_that_do_not_exist_are_refused(write):
    with pytest.raises(ConfigError, match="7 is not one of the classes"):
        run(write(lines(50)), data__class_weights={7: 1}, data__classes=[-1, 1])


def test_c_is_the_weight_of_all_rows(write):
    text = lines(500)
    double = [row.replace(" ", " 2 ", 1) for row in text]
    one, two = (
        run(write(t, n), penalty__l2=None, penalty__C=1.0, solver__passes=2) for t, n in ((text, "a"), (double, "b"))
    )
    assert one.result["l2"] == pytest.approx(1 / 500) and two.result["l2"] == pytest.approx(1 / 1000)
    held = run(write(text), penalty__l2=None, penalty__C=1.0, solver__passes=2, data__holdout=5)
    assert held.result["l2"] == pytest.approx(1 / 400)


# Sampling and scaling.


def test_a_sample_is_the_same_whatever_the_machine_and_in_every_pass(write):
    path = write(lines(5000))
    outcomes = [
        run(path, data__sample=0.2, solver__passes=2, run__threads=n, run__memory=m)
        for n, m in ((1, "40MB"), (2, "1GB"))
    ]
    assert bits(outcomes[0]) == bits(outcomes[1])
    assert 1600 < outcomes[0].result["examples"] < 2400


@pytest.mark.parametrize("kind", ["maxabs", "standard"])
@pytest.mark.parametrize("passes", [1, 2])
def test_scaling_is_part_of_the_model(write, tmp_path, kind, passes):
    text = lines(4000, features=12)
    sizes = 10.0 ** np.linspace(-4, 6, 13)

    def resized(row: str) -> str:
        label, *pairs = row.split(" ")
        return " ".join(
            [label, *(f"{j}:{float(v) * sizes[int(j)]:.6g}" for j, v in (pair.split(":") for pair in pairs))]
        )

    path = write([resized(row) for row in text])
    file = str(tmp_path / "m.safetensors")
    scaled = run(path, features__scale=kind, solver__passes=passes, loss="squared_hinge", output__model=file)
    error = evaluate(load_model(file), open_stream(path))["error"]
    plain = write(text, "plain.svm")
    sound = evaluate(run(plain, loss="squared_hinge").model, open_stream(plain))["error"]
    assert error < sound + 0.02
    assert scaled.model.recipe["scale"] == kind and scaled.model.scale is not None
    more = run(path, features__scale=kind, solver__init=file, loss="squared_hinge")
    assert evaluate(more.model, open_stream(path))["error"] < sound + 0.02
    assert np.array_equal(more.model.scale, scaled.model.scale)
    kept = run(path, solver__init=file, loss="squared_hinge")  # by itself it goes on with what the model has
    assert kept.model.recipe["scale"] == kind and np.array_equal(kept.model.scale, scaled.model.scale)
    with pytest.raises(ModelError, match="scale"):
        run(path, solver__init=file, loss="squared_hinge", features__scale="none")


def test_large_features_are_noticed(write):
    notes = Notes()
    run(write(["1 1:5e6 2:1", "-1 1:1e3 2:-1"] * 30), notes, features__scale="none")
    assert any(note.startswith("warning: index 1 has values as large as 5e+06") for note in notes.notes)
    notes = Notes()
    for kind in ("auto", "maxabs"):
        run(write(["1 1:5e6 2:1", "-1 1:1e3 2:-1"] * 30), notes, features__scale=kind)
    assert not any("as large as" in note for note in notes.notes)
    assert any(note.startswith("scale    2 dense features standardised") for note in notes.notes)


# Penalties, the bound, the objective.


def objective(path: str, outcome: Outcome, l2: float) -> float:
    model = outcome.model
    total = count = 0.0
    for batch in open_stream(path):
        total += np.maximum(0.0, 1.0 - batch.labels * model.scores(batch)).sum()
        count += batch.rows
    return float(l2 / 2 * (model.weights.astype(float) @ model.weights + model.bias**2) + total / count)


@pytest.mark.parametrize("solver", ["sgd", "pegasos"])
def test_objective_and_bound_enclose_the_optimum(solver):
    given = {"features__scale": "none"}  # both are those of the features that were learned from
    outcome = run(A9A, solver__name=solver, solver__passes=5, penalty__l2=1e-3, run__objective=True, **given)
    result = outcome.result
    assert result["objective"] == pytest.approx(objective(A9A, outcome, 1e-3), rel=1e-5)
    assert 0 < result["dual"] < result["objective"]
    assert result["gap"] == pytest.approx((result["objective"] - result["dual"]) / result["objective"])
    assert 0 < result["gap"] < 0.1
    assert outcome.model.provenance["gap"] == result["gap"]


def test_where_no_bound_is_known_it_is_null(write):
    path = write(lines(300))
    for settings in (
        {"solver__name": "asgd"},
        {"solver__name": "sgd", "loss": "logistic"},
        {"solver__name": "sgd", "bias__kind": "free"},
        {"solver__name": "sgd", "data__class_weights": "balanced"},
    ):
        result = run(path, **settings).result
        assert result["dual"] is None and result["gap"] is None, settings
    assert run(path, solver__name="sgd").result["dual"] is not None
    assert run(path, solver__name="sgd", data__class_weights="balanced", solver__passes=2).result["dual"] is not None
    notes = Notes()
    run(path, notes, solver__name="sgd", data__class_weights="balanced", run__objective=True, run__cache="off")
    assert any("no objective" in note for note in notes.notes)


@pytest.mark.parametrize("solver", ["folos", "adagrad", "ftrl"])
def test_l1_makes_zeros_and_they_are_counted(solver):
    outcome = run(A9A, solver__name=solver, penalty__l2=None, penalty__l1=1e-2, loss="logistic", solver__passes=2)
    zeros = int((outcome.model.weights == 0).sum())
    assert outcome.result["zeros"] == zeros > 60
    assert outcome.result["l2"] == 0.0 and outcome.result["l1"] == 1e-2
    assert evaluate(outcome.model, open_stream(A9A))["error"] < 0.2


def test_nothing_to_learn_from(write):
    with pytest.raises(DataError, match="no row to learn from"):
        run(write([""]), data__holdout=2)
