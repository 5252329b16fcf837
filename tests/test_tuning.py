"""The penalty search: every candidate is what `train` gives, the best is kept, the worse half retires."""

from typing import Any

import numpy as np
import pytest
from whole_runs import A9A, Notes, bits, lines

from streamsvm import load_model, load_settings
from streamsvm.errors import ConfigError, DataError, DivergedError
from streamsvm.training import train
from streamsvm.tuning import candidates_of, grid, tune


def settings(path: Any, **more: Any) -> Any:
    overrides = {"data.train": str(path), "output.model": None, **{k.replace("__", "."): v for k, v in more.items()}}
    return load_settings(overrides=overrides, environ={})


def test_grids():
    assert grid("1e-7..1e-2", 6) == [1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2]
    assert grid("1e-4..1e-2", 1) == [1e-3]
    assert grid((3.0, 1.0), 5) == [3.0, 1.0]
    assert len(grid("1e-7..1e-2", 16)) == 16
    assert grid("1..1.0001", 16) == [1.0]


def test_candidates_are_all_combinations(write):
    found = candidates_of(settings("x", tune__l2="1e-4,1e-3", tune__solver="asgd,ftrl", tune__loss="hinge,logistic"))
    assert len(found) == len(set(found)) == 8
    found = candidates_of(
        settings("x", tune__l2=None, penalty__l2=1e-5, tune__l1="1e-4,1e-3", tune__solver="ftrl", solver="ftrl")
    )
    assert [(c.l2, c.l1) for c in found] == [(1e-5, 1e-4), (1e-5, 1e-3)]
    with pytest.raises(ConfigError, match="solver asgd cannot .* ftrl"):
        candidates_of(settings("x", tune__l1="1e-4"))
    with pytest.raises(ConfigError, match=r"penalty\.C"):
        candidates_of(settings("x", penalty__C=1))


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("solver", ["asgd", "sgd", "ftrl", "pegasos"])
def test_the_winner_is_what_train_gives(write, solver, passes):
    path = write(lines(3000))
    more = {"solver__passes": passes, "solver__name": solver}
    found = tune(settings(path, tune__l2="1e-5,1e-3,1e-1", **more))
    best = found.result["l2"]
    once = {"solver__revisit": False} if solver == "asgd" else {}  # how often rows are visited is not tried
    alone = train(settings(path, penalty__l2=best, data__holdout=10, **more, **once))
    assert found.model.config["solver"].get("revisit", False) is False
    assert bits(found) == bits(alone)
    assert found.model.config["penalty"]["l2"] == best
    assert found.result["held_out_loss"] == alone.result["holdout"]["loss"]
    assert found.result["loss"] == pytest.approx(alone.result["loss"], rel=1e-12)
    (row,) = [row for row in found.result["candidates"] if row["best"]]
    others = [r["held_out_loss"] for r in found.result["candidates"] if r["passes"] == passes]
    assert row["l2"] == best and row["held_out_loss"] == pytest.approx(min(others), rel=1e-3)


def test_every_candidate_has_the_figures_of_train(write):
    path = write(lines(3000))
    found = tune(
        settings(path, tune__l2="1e-6..1", tune__candidates=5, tune__loss="hinge,logistic", tune__solver="asgd,adagrad")
    )
    assert len(found.result["candidates"]) == 20 and found.result["by"] == "error"
    for row in found.result["candidates"]:
        own = {"penalty__l2": row["l2"], "loss": row["loss_kind"], "solver__name": row["solver"]}
        once = {"solver__revisit": False} if row["solver"] == "asgd" else {}
        alone = train(settings(path, data__holdout=10, **own, **once))
        assert row["loss"] == pytest.approx(alone.result["loss"], rel=1e-12)
        assert row["held_out_error"] == alone.result["holdout"]["error"] and row["eta0"] == alone.result["eta0"]
    least = min(row["held_out_error"] for row in found.result["candidates"])
    assert found.result["held_out_error"] == pytest.approx(least, rel=1e-3)


def test_the_worse_half_retires_after_each_pass(write):
    notes = Notes()
    found = tune(settings(write(lines(3000)), tune__candidates=7, solver__passes=4), notes)
    assert sorted(row["passes"] for row in found.result["candidates"]) == [1, 1, 1, 2, 2, 3, 4]
    assert [note for note in notes.notes if "go on" in note] == [
        "pass 1: the better 4 of 7 candidates go on",
        "pass 2: the better 2 of 4 candidates go on",
        "pass 3: the better 1 of 2 candidates go on",
    ]
    (best,) = [row for row in found.result["candidates"] if row["best"]]
    assert best["passes"] == 4


def test_seventeen_candidates_and_shuffled_rows(write):
    path = write(lines(2000))
    more = {"data__shuffle": 300, "data__holdout": 4, "data__class_weights": "balanced", "features__scale": "maxabs"}
    found = tune(settings(path, tune__candidates=17, **more))
    alone = train(settings(path, penalty__l2=found.result["l2"], solver__revisit=False, **more))
    assert bits(found) == bits(alone)


def test_other_classes_are_found_and_learning_starts_over(write):
    path = write([row.replace("-1 ", "5 ", 1) for row in lines(1000)])
    found = tune(settings(path, tune__candidates=3, solver__passes=2))
    assert found.model.classes == [1, 5] and found.result["held_out_error"] < 0.3


def test_a_candidate_that_diverges_does_not_stop_the_others(write):
    path = write(["1 1:1", "-1 2:1", "1 1:1e36"] * 200)
    with pytest.raises(DivergedError, match="all candidates diverged"):
        tune(settings(path, tune__candidates=3, solver__name="sgd", solver__eta0=1, features__scale="none"))


def test_the_model_is_saved(write, tmp_path):
    file = tmp_path / "best.safetensors"
    found = tune(settings(write(lines(500)), tune__candidates=4, output__model=str(file)))
    model = load_model(str(file))
    assert np.array_equal(model.weights, found.model.weights)
    assert model.config["penalty"]["l2"] == model.provenance["l2"] == found.result["l2"]


def test_too_few_rows(write):
    with pytest.raises(DataError, match=r"fewer rows than data\.holdout \(10\)"):
        tune(settings(write(lines(5))))
    with pytest.raises(DataError, match="no row"):
        tune(settings(write([""])))


def test_tuned_a9a_is_near_the_best():
    found = tune(settings(A9A, tune__candidates=8))
    assert found.result["held_out_error"] < 0.16 and 1e-7 < found.result["l2"] < 1e-2


def test_of_equals_the_larger_penalty_is_taken(write):
    found = tune(settings(write(lines(2000)), tune__l2="1e-12,1e-10,1e-11"))
    losses = [row["held_out_loss"] for row in found.result["candidates"]]
    assert max(losses) - min(losses) < 1e-5 and found.result["l2"] == 1e-10
