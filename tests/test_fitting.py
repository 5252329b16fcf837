"""Whole runs of solvers that prove their gap, by `train` and the command line: results, refusals, interruptions."""

import gzip
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from certificates import Rows, dual, liblinear_vector, primal, rows_in
from held_out import held_out
from signals import NEVER, SOON, heard
from whole_runs import A9A, KilledError, Life, Notes, bits, class_lines, few_rows_a_piece, lines

import streamsvm.cli
from streamsvm import load_model, offered, open_stream, tune
from streamsvm.cached_groups import CachedGroups
from streamsvm.config import Settings, load_settings
from streamsvm.config.wording import listed
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.evaluate import evaluate
from streamsvm.features.scaling import Scaling
from streamsvm.interrupts import Interrupted
from streamsvm.io import tensors
from streamsvm.io.generations import CHECKPOINT
from streamsvm.losses import make_loss
from streamsvm.model import Model
from streamsvm.penalties import L2
from streamsvm.scoring import loss_sums
from streamsvm.solvers import BATCH_SOLVERS
from streamsvm.solvers.base import Problem, make_bias
from streamsvm.training import Outcome, train

ROWS, WIDTH = 1500, 31
LEARNED = "squared_hinge", "hinge", "smoothed_hinge", "logistic"
COMMAND = [sys.executable, "-c", "from streamsvm.cli import main; main()"]


@pytest.fixture(scope="module", autouse=True)
def small_pieces() -> Iterator[None]:
    """Blocks and groups of few rows, so that a short run has many places to stop at."""
    with few_rows_a_piece():
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "rows.svm"
    path.write_text("\n".join(lines(ROWS)) + "\n")
    return str(path)


def made(data: str | list[str], **given: Any) -> Settings:
    """Settings with `a__b=value`; dcd with hinge unless they say otherwise."""
    overrides: dict[str, Any] = {
        "data.train": data,
        "output.model": None,
        "run.memory": "64MB",
        "solver.name": "dcd",
        "loss": "hinge",
        "penalty.l2": None if "penalty__path" in given or "penalty__C" in given else 1e-3,
    }
    overrides |= {key.replace("__", "."): value for key, value in given.items()}
    return load_settings(overrides=overrides, environ={})


def problem_of(loss: str, l2: float, kind: str = "penalised", scale: float = 1.0) -> Problem:
    return Problem(make_loss(loss), L2(l2), make_bias(kind, scale))


def objective_of(model: Model, rows: Rows, problem: Problem) -> float:
    """Of the weights that the solver learned, whose features may be scaled."""
    root = np.sqrt(problem.bias.gain)
    vector = np.append(model.learned_weights().astype(float), model.bias / root if root else 0.0)
    return primal(rows, problem, vector)


def checked(outcome: Outcome, rows: Rows, problem: Problem, tol: float = 1e-3) -> None:
    """Objective, dual and gap are what NumPy and LIBLINEAR say of the model, whose weights are rounded."""
    result, model = outcome.result, outcome.model
    assert result["objective"] == pytest.approx(objective_of(model, rows, problem), rel=1e-6)
    assert result["gap"] == (result["objective"] - result["dual"]) / result["objective"]
    assert -1e-12 <= result["gap"] <= tol == result["tol"]
    if model.loss != "smoothed_hinge" and len(set(rows.weights.tolist())) == 1:
        theirs = primal(rows, problem, liblinear_vector(rows, problem, model.loss, 1e-6))
        assert result["dual"] <= theirs * (1.0 + 1e-9) and result["objective"] <= theirs / (1.0 - tol) * (1.0 + 1e-6)


def without(rows: Rows, chosen: Any) -> Rows:
    return Rows(rows.matrix[chosen], rows.signs[chosen], rows.weights[chosen])


# What comes of a run.


@pytest.mark.parametrize("loss", LEARNED)
@pytest.mark.parametrize("kind", ["penalised", "none"])
def test_the_model_is_the_optimum_and_the_result_says_so(data: str, loss: str, kind: str) -> None:
    outcome = train(made(data, loss=loss, bias__kind=kind, bias__scale=2.0))
    problem = problem_of(loss, 1e-3, kind, 2.0)
    rows = rows_in(data, WIDTH, problem)
    checked(outcome, rows, problem)
    result, model = outcome.result, outcome.model
    assert result["solver"] == model.online["solver"] == "dcd" and result["dim"] == model.dim == WIDTH
    assert (result["l2"], result["l1"], result["eta0"], result["zeros"], result["path"]) == (
        1e-3,
        0.0,
        None,
        None,
        None,
    )
    assert result["passes"] == model.provenance["passes"] >= 1 and result["bad_rows"] == 0
    assert result["examples"] == model.provenance["examples"] >= ROWS
    scores = rows.matrix[:, :-1] @ model.weights.astype(float) + model.bias
    assert result["error"] == pytest.approx(np.mean((scores > 0) != (rows.signs > 0)), abs=2 / ROWS)
    assert {key: model.provenance[key] for key in ("objective", "gap", "l2", "sources")} == {
        "objective": result["objective"], "gap": result["gap"], "l2": 1e-3, "sources": [data],
    }  # fmt: skip
    assert (model.bias == 0.0) == (kind == "none") and model.classes == [-1, 1] and model.loss == loss


def test_c_is_that_of_liblinear(data: str) -> None:
    outcome = train(made(data, penalty__C=0.5, solver__tol=1e-5))
    problem = problem_of("hinge", 1.0 / (0.5 * ROWS))
    checked(outcome, rows_in(data, WIDTH, problem), problem, 1e-5)
    assert outcome.result["l2"] == pytest.approx(problem.l2)


def test_real_data_that_is_compressed() -> None:
    outcome = train(made(A9A, loss="logistic", penalty__l2=1e-4))
    problem = problem_of("logistic", 1e-4)
    checked(outcome, rows_in(A9A, 124, problem), problem)


def test_the_seed_and_nothing_else_decides(data: str) -> None:
    one = bits(train(made(data)))
    assert one == bits(train(made(data, run__threads=1))) == bits(train(made(data, run__threads=3)))
    assert one != bits(train(made(data, run__seed=1)))


def test_several_files_and_a_cache_that_is_kept(data: str, tmp_path: Path) -> None:
    kept = str(tmp_path / "kept.arrow")
    first = train(made([data, data], run__cache=kept))
    again = train(made([data, data], run__cache=kept))
    assert bits(first) == bits(again) and Path(kept).exists()
    problem = problem_of("hinge", 1e-3)
    checked(first, rows_in(data, WIDTH, problem), problem)  # every row twice: the same mean


def test_nothing_is_left_behind(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMSVM_TMPDIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    train(made(data))
    assert list(tmp_path.iterdir()) == []


def test_saved_tested_and_taken_up_by_others(data: str, tmp_path: Path) -> None:
    path = str(tmp_path / "m.safetensors")
    outcome = train(made(data, output__model=path, data__test=data))
    assert outcome.result["model"] == path
    assert outcome.result["test"]["error"] == pytest.approx(outcome.result["error"], abs=2 / ROWS)
    assert evaluate(load_model(path), open_stream(data)) == outcome.result["test"]
    online = train(made(data, solver__name="asgd", solver__init=path))
    assert online.result["error"] < 0.1


# Rows that are not all alike.


@pytest.mark.parametrize("every", [2, 10])
def test_held_out_rows_are_measured_and_not_learned(data: str, every: int) -> None:
    outcome = train(made(data, data__holdout=every, penalty__C=1.0, solver__tol=1e-4))
    held = held_out(ROWS, every)
    problem = problem_of("hinge", 1.0 / np.count_nonzero(~held))
    rows = rows_in(data, WIDTH, problem)
    checked(outcome, without(rows, np.flatnonzero(~held)), problem, 1e-4)
    found, other = outcome.result["holdout"], without(rows, np.flatnonzero(held))
    scores = other.matrix[:, :-1] @ outcome.model.weights.astype(float) + outcome.model.bias
    assert found["loss"] == pytest.approx(np.mean(np.maximum(1.0 - other.signs * scores, 0.0)), rel=1e-5)
    assert found["error"] == pytest.approx(np.mean((scores > 0) != (other.signs > 0)), abs=1e-12)
    assert (found["every"], found["examples"]) == (every, np.count_nonzero(held))
    assert outcome.result["l2"] == pytest.approx(problem.l2)


def test_a_holdout_of_more_rows_than_there_are(data: str) -> None:
    listener = Notes()
    outcome = train(made(data, data__holdout=10**6), listener)
    assert outcome.result["holdout"] is None
    assert "warning: no row is held out; data.holdout is larger than the number of rows" in listener.notes


@pytest.mark.parametrize("weights", ["balanced", {"1": 5.0, "-1": 0.5}, {"-1": 0.0}])
def test_class_weights(data: str, weights: Any) -> None:
    outcome = train(made(data, data__class_weights=weights, penalty__C=1.0))
    rows = rows_in(data, WIDTH, problem_of("hinge", 1.0))
    positive = rows.signs > 0
    given = weights if isinstance(weights, dict) else {
        "1": ROWS / (2 * positive.sum()), "-1": ROWS / (2 * (~positive).sum())
    }  # fmt: skip
    c = np.where(positive, given.get("1", 1.0), given.get("-1", 1.0)).astype(np.float32).astype(float)
    problem = problem_of("hinge", 1.0 / c.sum())
    assert outcome.result["l2"] == pytest.approx(problem.l2, rel=1e-6)
    result = outcome.result["objective"] * problem.l2 / outcome.result["l2"]
    assert result == pytest.approx(objective_of(outcome.model, rows._replace(weights=c), problem), rel=1e-5)


@pytest.mark.parametrize("kind", ["maxabs", "standard"])
def test_scaled_features(data: str, tmp_path: Path, kind: str) -> None:
    """The proof is of the weights of scaled features; the model has those of features as written."""
    path = str(tmp_path / "m.safetensors")
    outcome = train(made(data, features__scale=kind, output__model=path))
    problem = problem_of("hinge", 1e-3)
    rows = rows_in(data, WIDTH, problem)
    scaling = Scaling(kind)
    for batch in open_stream(data):
        scaling.see(batch)
    scaling.freeze()
    scale = scaling.factors(WIDTH).astype(float)
    scaled = rows._replace(matrix=(rows.matrix * np.append(scale, 1.0)[None, :]).tocsr())
    checked(outcome, scaled, problem)
    more = train(made(data, features__scale=kind, solver__init=path))
    checked(more, scaled, problem)
    with pytest.raises(ModelError, match="trained without features.scale"):
        plain = str(tmp_path / "plain.safetensors")
        train(made(data, output__model=plain))
        train(made(data, features__scale=kind, solver__init=plain))


@pytest.mark.parametrize("label", ["1", "-1", "2"])
def test_one_class_only(tmp_path: Path, label: str) -> None:
    path = tmp_path / "one.svm"
    path.write_text("".join(f"{label} {row.split(' ', 1)[1]}\n" for row in lines(200)))
    try:
        outcome = train(made(str(path)))
    except DataError as error:
        assert label == "2" and "\n" not in str(error)
        return
    assert outcome.result["error"] == 0.0 and outcome.result["gap"] <= 1e-3
    assert outcome.result["objective"] < 0.02


@pytest.mark.parametrize("labels", [("1", "2"), ("0", "1"), ("3", "-7")])
def test_other_classes(data: str, tmp_path: Path, labels: tuple[str, str]) -> None:
    path = tmp_path / "other.svm.gz"
    text = "".join(labels[row[0] == "1"] + row[row.index(" ") :] + "\n" for row in lines(ROWS))
    path.write_bytes(gzip.compress(text.encode()))
    outcome, usual = train(made(str(path))), train(made(data))
    sign = 1.0 if float(labels[0]) < float(labels[1]) else -1.0
    assert outcome.result["objective"] == pytest.approx(usual.result["objective"], rel=1e-3)
    np.testing.assert_allclose(outcome.model.weights, sign * usual.model.weights, atol=0.1)
    assert outcome.model.classes == sorted(int(label) for label in labels)


@pytest.mark.parametrize("rule", ["ova", "crammer_singer"])
@pytest.mark.parametrize("memory", ["1GB", "33MB"])
def test_several_classes_come_with_a_proof(tmp_path: Path, rule: str, memory: str) -> None:
    path = tmp_path / "classes.svm"
    path.write_text("\n".join(class_lines(900, labels=(4, 7, 9), noise=1.5)) + "\n")
    outcome = train(made(str(path), multiclass=rule, run__memory=memory, solver__tol=1e-3))
    model, result = outcome.model, outcome.result
    assert model.classes == [4, 7, 9] and model.weights.shape == (31, 3) and model.rule == rule
    assert 0.0 <= result["gap"] <= 1e-3 and result["dual"] <= result["objective"]
    total = weight = wrong = 0.0
    for batch in open_stream(str(path)):
        sums = loss_sums(model.class_map().encode(batch), make_loss("hinge"), model.weights, model.bias, rule)
        total, weight, wrong = total + sums.loss, weight + sums.weight, wrong + sums.wrong
    norm = float(np.square(model.weights.astype(float)).sum() + np.square(model.bias).sum())
    assert result["objective"] == pytest.approx(0.5 * result["l2"] * norm + total / weight, rel=1e-5)
    assert result["error"] == pytest.approx(wrong / weight, abs=3e-3) and result["error"] < 0.5


@pytest.mark.full
@pytest.mark.parametrize("rule", ["ova", "crammer_singer"])
def test_several_classes_go_on_after_a_kill(tmp_path: Path, rule: str) -> None:
    path = tmp_path / "classes.svm"
    path.write_text("\n".join(class_lines(900, labels=(4, 7, 9), noise=1.5)) + "\n")
    given = {
        "multiclass": rule,
        "solver__tol": 1e-4,
        "checkpoint__dir": str(tmp_path / "c"),
        "checkpoint__resume": True,
    }
    given |= {"checkpoint__every": None, "checkpoint__every_rows": 200, "calibration": "platt"}
    for batches in (3, 9, 25):
        with pytest.raises(KilledError):
            train(made(str(path), **given), Life(batches))
    outcome = train(made(str(path), **given), Life())
    whole = train(made(str(path), multiclass=rule, solver__tol=1e-4))
    assert outcome.result["gap"] <= 1e-4
    assert outcome.result["objective"] == pytest.approx(whole.result["objective"], rel=2e-4)
    assert outcome.model.calibration is not None


def test_auto_takes_dcd_for_several_classes(tmp_path: Path) -> None:
    path, listener = tmp_path / "classes.svm", Notes()
    path.write_text("\n".join(class_lines(300, labels=(1, 2, 3))) + "\n")
    outcome = train(made(str(path), solver__name="auto"), listener)
    assert outcome.result["solver"] == "dcd" and "solver dcd, because there are 3 classes" in listener.notes


@pytest.mark.parametrize("content", ["", "\n\n", "# only a comment\n"])
def test_nothing_to_learn_from(tmp_path: Path, content: str) -> None:
    path = tmp_path / "nothing.svm"
    path.write_text(content)
    for name in ("dcd", "auto"):
        with pytest.raises(DataError, match="^there is no row to learn from$"):
            train(made(str(path), solver__name=name))


def test_rows_without_features(tmp_path: Path) -> None:
    path = tmp_path / "bare.svm"
    path.write_text("1\n-1\n1\n1\n")
    outcome = train(made(str(path), penalty__l2=0.1, solver__tol=1e-6))
    assert outcome.model.dim == 0 and outcome.result["dim"] == 0 and outcome.result["error"] == 0.25
    assert outcome.model.bias == pytest.approx(1.0, rel=1e-3)  # all positive rows at their margin


def test_bad_rows(tmp_path: Path) -> None:
    text = lines(300)
    text[7], text[200] = "1 3:x", "-1 5:1 4:"
    path = tmp_path / "bad.svm"
    path.write_text("\n".join(text) + "\n")
    with pytest.raises(DataError, match=r"bad\.svm:8: "):
        train(made(str(path)))
    listener = Notes()
    outcome = train(made(str(path), data__on_bad_row="skip"), listener)
    assert outcome.result["bad_rows"] == 2 and outcome.result["gap"] <= 1e-3
    assert any(note.startswith("skipped 2 malformed rows: ") for note in listener.notes)
    good = tmp_path / "good.svm"
    good.write_text("\n".join(text[:7] + text[8:200] + text[201:]) + "\n")
    assert bits(train(made(str(good)))) == bits(outcome)


def test_folded_and_given_widths(data: str) -> None:
    assert train(made(data, features__hash_bits=4)).model.dim == 16
    assert train(made(data, features__dim=50)).model.dim == 50
    with pytest.raises(DataError, match=r"rows\.svm:1: .*the index is too large for this model"):
        train(made(data, features__dim=20))


def test_more_weights_than_memory(tmp_path: Path, data: str) -> None:
    path = tmp_path / "wide.svm"
    path.write_text("1 1:1\n-1 4000000000:1\n")
    with pytest.raises(
        DataError,
        match=r"^index 4000000000: solver dcd would need [\d,]+ MB, but the memory budget leaves 7 MB; "
        r"set features\.hash_bits: 1\d \(--hash-bits 1\d\), or raise --memory$",
    ):
        train(made(str(path), run__memory="32MB"))
    with pytest.raises(ConfigError, match=r"^1073741824 weights: solver dcd would need "):
        train(made(data, run__memory="32MB", features__hash_bits=30))


# Limits.


def test_passes_are_not_exceeded(data: str) -> None:
    listener = Notes()
    outcome = train(made(data, penalty__l2=1e-6, solver__passes=7), listener)
    assert outcome.result["passes"] == 7 and outcome.result["gap"] > 1e-3
    (warning,) = [note for note in listener.notes if note.startswith("warning: ")]
    gap = f"{outcome.result['gap']:.2g}"
    assert warning == (
        f"warning: stopped after 7 passes at a gap of {gap}, above the tolerance of 0.001; "
        "more passes or time, or scaled features, may help"
    )


def test_time_is_not_exceeded(data: str) -> None:
    begun = time.perf_counter()
    outcome = train(made(data, penalty__l2=1e-8, solver__tol=1e-12, solver__passes=10**9, solver__time=0.5))
    assert 0.5 <= time.perf_counter() - begun < SOON
    assert outcome.result["passes"] < 10**9 and outcome.result["gap"] > 1e-12


# A path of penalties.


def test_a_path_keeps_the_best_on_held_out_rows(write: Callable[..., str]) -> None:
    data = write(lines(400, noise=4.0))
    listener = Notes()
    given = {"data__holdout": 5, "solver__tol": 1e-4}
    outcome = train(made(data, penalty__path="1e-3..1e1", **given), listener)
    steps = outcome.result["path"]
    assert [step["l2"] for step in steps] == [10.0, 3.16, 1.0, 0.316, 0.1, 0.0316, 0.01, 0.00316, 0.001]
    best = min(steps, key=lambda step: step["held_out_loss"])
    assert 0 < steps.index(best) < len(steps) - 1
    held = held_out(400, 5)
    for step in steps:
        assert -1e-12 <= step["gap"] <= 1e-4
        single = train(made(data, penalty__l2=step["l2"], **given)).result
        assert max(step["dual"], single["dual"]) <= min(step["objective"], single["objective"]) * (1 + 1e-12)
        assert step["held_out_loss"] == pytest.approx(single["holdout"]["loss"], rel=0.02)
    result = outcome.result
    assert {key: result[key] for key in ("l2", "objective", "dual", "gap", "loss", "error")} == {
        key: best[key] for key in ("l2", "objective", "dual", "gap", "loss", "error")
    }
    assert result["holdout"]["loss"] == best["held_out_loss"] and result["holdout"]["error"] == best["held_out_error"]
    assert result["passes"] == sum(step["passes"] for step in steps) == outcome.model.provenance["passes"]
    assert outcome.model.provenance["l2"] == best["l2"]
    problem = problem_of("hinge", best["l2"])
    checked(outcome, without(rows_in(data, WIDTH, problem), np.flatnonzero(~held)), problem, 1e-4)
    assert len([note for note in listener.notes if note.startswith("l2 ")]) == len(steps)


def test_a_path_may_be_a_list(data: str) -> None:
    outcome = train(made(data, penalty__path="1e-3,1e-1,1e-2", data__holdout=5))
    assert [step["l2"] for step in outcome.result["path"]] == [1e-1, 1e-2, 1e-3]
    alone = train(made(data, penalty__path=[0.01], data__holdout=5))
    assert alone.result["path"] is None and alone.result["l2"] == 0.01


def test_a_path_without_rows_to_choose_by(data: str) -> None:
    """More rows between two that are held out than there are."""
    listener = Notes()
    outcome = train(made(data, penalty__path="1e-3..1e-2", data__holdout=10**6), listener)
    assert len(outcome.result["path"]) == 3 and outcome.result["holdout"] is None
    assert "warning: no row is held out; data.holdout is larger than the number of rows" in listener.notes


# Which solver.


def why(notes: Notes) -> str:
    (found,) = [note for note in notes.notes if note.startswith("solver ")]
    return found


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"loss": "hinge"}, "solver dcd, because loss hinge is not smooth"),
        ({"loss": "logistic", "features__dim": 2000},
         "solver dcd, because 1,500 rows with 2,000 features are too many features for newton, or too few rows"),
        ({"loss": "logistic"}, "solver newton, because 1,500 rows with 31 features are many rows and few features"),
        ({"loss": "logistic", "bias__kind": "free"}, "solver newton, because it can have a free bias"),
        ({"loss": "hinge", "bias__kind": "free"},
         "solver asgd, because the optimum with hinge and a free bias cannot be proven"),
    ],
    ids=["not smooth", "many features", "few features", "free bias", "free bias, not smooth"],
)  # fmt: skip
def test_auto_chooses_and_says_why(data: str, given: dict[str, Any], says: str) -> None:
    name = says.split(",")[0].removeprefix("solver ")
    if name == "newton" and name not in BATCH_SOLVERS:
        pytest.skip("newton is not there yet")
    listener = Notes()
    outcome = train(made(data, solver__name="auto", **given), listener)
    assert why(listener) == says and outcome.result["solver"] == name
    if name == "asgd":
        assert outcome.result["gap"] is None and outcome.result["passes"] == 1
    else:
        assert given.get("bias__kind") == "free" or outcome.result["gap"] <= 1e-3
        again = train(made(data, solver__name=name, **given))
        assert bits(again) == bits(outcome)


# Known weights.


def test_an_online_model_is_a_good_beginning(data: str, tmp_path: Path) -> None:
    first = str(tmp_path / "asgd.safetensors")
    train(made(data, solver__name="asgd", solver__passes=20, loss="squared_hinge", output__model=first))
    given = {"loss": "squared_hinge", "solver__tol": 1e-4}
    cold, warm = train(made(data, **given)), train(made(data, solver__init=first, **given))
    assert warm.result["passes"] < cold.result["passes"]
    problem = problem_of("squared_hinge", 1e-3)
    checked(warm, rows_in(data, WIDTH, problem), problem, 1e-4)


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_a_model_of_its_own_is_one_too(data: str, tmp_path: Path, loss: str) -> None:
    first = str(tmp_path / "dcd.safetensors")
    cold = train(made(data, loss=loss, output__model=first))
    changes: list[dict[str, Any]] = [{}, {"penalty__l2": 1e-2}, {"bias__kind": "none"}]
    for given in changes:
        warm = train(made(data, loss=loss, solver__init=first, **given))
        problem = problem_of(loss, given.get("penalty__l2", 1e-3), given.get("bias__kind", "penalised"))
        checked(warm, rows_in(data, WIDTH, problem), problem)
    if loss != "hinge":  # whose slopes say little
        assert train(made(data, loss=loss, solver__init=first)).result["passes"] <= cold.result["passes"]


def test_a_model_with_other_features_is_refused(data: str, tmp_path: Path) -> None:
    first = str(tmp_path / "folded.safetensors")
    train(made(data, features__hash_bits=4, output__model=first))
    with pytest.raises(ModelError, match="the initial model has features .*; they must agree"):
        train(made(data, solver__init=first, features__hash_bits=5))


def test_features_are_those_of_the_model_to_begin_with(data: str, tmp_path: Path) -> None:
    for features, width in (({"features__hash_bits": 4}, 16), ({"features__dim": 1000}, 1000)):
        first = str(tmp_path / "first.safetensors")
        train(made(data, output__model=first, **features))
        assert train(made(data, solver__init=first)).model.dim == width


# Refusals.

ONLINE = ", ".join(offered.ONLINE)
REFUSED = {
    "--solver newton --loss hinge": "--loss: loss: solver newton cannot learn loss hinge: use "
    f"{' or '.join(offered.SMOOTH_LOSSES)}, or one of the solvers {ONLINE}, dcd, bmrm, ocas, auto",
    "--solver dcd --bias free": "--bias: bias: solver dcd cannot have bias free: use penalised or none, or one of the "
    f"solvers {ONLINE}, newton, auto",
    "--solver dcd --cache off": "--cache: run.cache: solver dcd reads the data many times, and needs the cache",
    "--solver dcd --l1 1e-3": "--l1: penalty.l1: solver dcd cannot have an L1 penalty; solvers that can: folos, "
    "adagrad, ftrl",
    "--solver dcd --l2 0": "--l2: penalty.l2: solver dcd cannot go without penalty.l2; solvers that can: folos, "
    "adagrad, ftrl",
    "--solver dcd --early-stop 2 --holdout 5": "--early-stop: solver.early_stop: unknown key 'early_stop'; solver dcd "
    f"has no such setting, it belongs to {listed(offered.ONLINE)}",
    "--solver dcd --path 1e-3..1e-1": "--path: penalty.path: needs held-out rows to choose by: set data.holdout "
    "(--holdout 10)",
    "--solver dcd --path 1e-3..1e-1 --C 1 --holdout 5": "penalty: path takes the place of l2 and C, and cannot be "
    "combined with them",
    "--path 1e-3..1e-1 --holdout 5": "--path: penalty.path: solver asgd cannot follow a path: use streamsvm tune, or "
    "one of dcd, newton, bmrm, ocas, auto",
    "--solver dcd --tol 0": "--tol: solver.tol: must be greater than 0 (got '0')",
    "--solver sgd --tol 1e-3": "--tol: solver.tol: unknown key 'tol'; solver sgd has no such setting, it belongs to "
    "dcd, newton, bmrm, ocas and auto",
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    """Runs a command in this process, in an empty directory; returns exit code, output, errors."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["streamsvm", *map(str, arguments)])
        capfd.readouterr()
        code = streamsvm.cli.run()
        sys.stdout.flush()
        return code, *capfd.readouterr()

    return run


@pytest.mark.parametrize("flags", REFUSED)
def test_refusals_are_one_line_before_anything_is_read(run: Any, flags: str) -> None:
    code, out, err = run("train", "not-there.svm", *shlex.split(flags))
    assert code == 2 and out == "" and len(err.splitlines()) == 1
    assert REFUSED[flags] in err and err.startswith("streamsvm: ")


def test_nothing_that_proves_is_tuned(run: Any, data: str) -> None:
    code, _, err = run("tune", data, "--solver", "dcd")
    assert code == 2 and f"tune.solver: must be one of {ONLINE} (got 'dcd')" in err
    code, _, err = run("tune", data, "--set", "solver.name=dcd")
    assert code == 2 and err.splitlines()[-1].startswith("streamsvm: solver dcd cannot be tuned side by side")
    assert "train --path" in err and err.endswith(f"one of {ONLINE}\n")
    with pytest.raises(ConfigError, match="cannot be tuned side by side"):
        tune(made(data))


# The command line.


def test_json_lines(run: Any, data: str) -> None:
    code, out, err = run("train", data, "--solver", "dcd", "--loss", "hinge", "--C", 1, "--json", "-q", "--tol", "1e-4")
    *progress, result = map(json.loads, out.splitlines())
    assert code == 0 and err == "" and len(progress) >= 2
    for line in progress:
        assert line["gap"] == (line["objective"] - line["dual"]) / line["objective"]
        assert line["dual"] <= result["objective"] * (1 + 1e-12) and line["objective"] >= result["dual"]
    gaps = [line["gap"] for line in progress]
    assert all(after < before for before, after in pairwise(gaps)) and gaps[-1] == result["gap"] <= 1e-4
    assert [line["examples"] for line in progress] == sorted(line["examples"] for line in progress)
    assert (progress[-1]["pass"], progress[-1]["examples"]) == (result["passes"], result["examples"])
    assert result["model"] == "model.safetensors" and result["tol"] == 1e-4 and result["solver"] == "dcd"
    model = load_model("model.safetensors")
    assert model.provenance["gap"] == result["gap"] and model.config["solver"]["name"] == "dcd"
    code, out, _ = run("inspect", "model.safetensors")
    assert code == 0 and "dcd" in out


def test_lines_for_people(run: Any, data: str) -> None:
    code, out, err = run("train", data, "--solver", "dcd", "--loss", "hinge", "--C", 1, "--memory", "64MB")
    assert code == 0 and "dcd: all 1,500 rows stay in memory" in err
    assert re.search(r"^ pass +examples +seconds +objective +at least +gap +error$", err, re.MULTILINE)
    assert re.search(r"^optimum +objective 0\.\d+, proven to be at most 0\.\d+ % above the least possible$", out, re.M)


def test_what_is_proven_is_not_said_better_than_it_is(run: Any, data: str) -> None:
    """Above the least possible: what is proven of that is the dual, so (P - D) / D and not (P - D) / P."""
    given = ("--solver", "dcd", "--loss", "hinge", "--l2", "1e-7", "--passes", 3)
    _, out, _ = run("train", data, *given, "--json", "-q")
    result = json.loads(out.splitlines()[-1])
    _, out, _ = run("train", data, *given, "-q")
    said = re.search(r"at most ([\d.,]+) % above the least possible", out)
    above = (result["objective"] - result["dual"]) / result["dual"]
    assert above > 1.0 and (said is None or float(said[1].replace(",", "")) >= 99.0 * above)


def test_standard_input(run: Any, data: str) -> None:
    assert run("train", data, "--solver", "dcd", "--loss", "hinge", "--l2", "1e-3", "-o", "file.st")[0] == 0
    text = Path(data).read_bytes()
    for flags, says in (
        (["--solver", "dcd"], b"dcd: all 1,500 rows stay in memory"),
        (["--solver", "auto"], b"solver asgd, because the input may never end"),
    ):
        words = [*COMMAND, "train", "-", "--loss", "hinge", "--l2", "1e-3", "-o", "pipe.st", *flags]
        done = subprocess.run(words, input=text, capture_output=True, timeout=120, check=False)
        assert done.returncode == 0 and says in done.stderr, done.stderr
        if "dcd" in flags:
            one, other = load_model("pipe.st"), load_model("file.st")
            assert one.provenance["gap"] <= 1e-3
            assert one.provenance["objective"] == pytest.approx(other.provenance["objective"], rel=1e-3)


def test_a_path_on_standard_input_is_refused_by_its_name(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """auto can only learn online there, and online solvers follow no path."""
    settings = made("-", solver__name="auto", penalty__path="1e-3..1e-1", data__holdout=5)
    with open(data, "rb") as source:
        usual = os.dup(0)
        os.dup2(source.fileno(), 0)
        try:
            with pytest.raises(ConfigError, match="path"):
                train(settings)
        finally:
            os.dup2(usual, 0)
            os.close(usual)


# Stopped, and going on.


def checkpointed(data: str, place: Path, **given: Any) -> Settings:
    every = {"checkpoint__every": None, "checkpoint__every_rows": 300, "checkpoint__resume": True}
    return made(data, checkpoint__dir=str(place / "kept"), output__model=str(place / "m.st"), **every, **given)


class Mortal(Notes):
    """A listener that sends its run a signal when that has come to a pass."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def progress(self, now: Any) -> None:
        if now.pass_number >= self._number and now.objective is not None:
            self._number = 10**9
            os.kill(os.getpid(), signal.SIGTERM)


def newest(place: Path) -> Path:
    return sorted((place / "kept").glob("checkpoint-*"))[-1]


@pytest.mark.parametrize(
    ("given", "politely"),
    [
        ({"penalty__l2": 1e-4}, False),
        ({"loss": "logistic", "penalty__l2": 1e-4, "solver__tol": 1e-5}, True),
        ({"penalty__path": "1e-3..1e-1", "data__holdout": 5}, False),
        ({"penalty__path": "1e-3..1e-1", "data__holdout": 5}, True),
        ({"features__scale": "standard", "data__class_weights": "balanced", "penalty__C": 1.0}, True),
        ({"solver__name": "auto"}, False),
    ],
    ids=["killed", "signalled", "path, killed", "path, signalled", "scaled and balanced", "auto"],
)
def test_a_run_that_is_stopped_again_and_again_ends_with_a_proof(
    data: str, tmp_path: Path, given: dict[str, Any], politely: bool
) -> None:
    settings = checkpointed(data, tmp_path, **given)
    plain = train(made(data, **given))
    stops = 0
    for batches in (3, 30, 45, 60, 2, 75, None):
        try:
            outcome = train(settings, Life(batches, politely=politely))
            break
        except (KilledError, Interrupted):
            if batches is None:
                raise
            stops += 1
            assert not (tmp_path / "m.st").exists()
    assert stops >= 3
    one, other = outcome.result, plain.result
    assert one["gap"] <= one["tol"] and one["l2"] == pytest.approx(other["l2"])
    assert max(one["dual"], other["dual"]) <= min(one["objective"], other["objective"]) * (1 + 1e-12)
    assert load_model(str(tmp_path / "m.st")).provenance["objective"] == one["objective"]
    if "features__scale" not in given and "penalty__path" not in given:
        loss = given.get("loss", "hinge")
        problem = problem_of(loss, one["l2"])
        checked(outcome, rows_in(data, WIDTH, problem), problem, one["tol"])


def test_dual_variables_in_a_checkpoint_prove_what_they_prove(data: str, tmp_path: Path) -> None:
    settings = checkpointed(data, tmp_path, penalty__l2=1e-4)
    problem = problem_of("hinge", 1e-4)
    rows = rows_in(data, WIDTH, problem)
    least = train(made(data, penalty__l2=1e-4, solver__tol=1e-5)).result["objective"]
    proven = [0.0]
    for passes in (5, 15, 25):
        with pytest.raises(Interrupted):
            train(settings, Mortal(passes))
        content = tensors.load(newest(tmp_path).read_bytes(), "it", [CHECKPOINT])
        proven.append(dual(rows, problem, np.array(content.arrays["state.own.solver.alpha"])))
    assert all(before <= after + 1e-12 for before, after in pairwise(proven))
    assert 0.0 < proven[-1] <= least


def test_it_goes_on_from_the_dual_variables_of_the_checkpoint(data: str, tmp_path: Path) -> None:
    settings = checkpointed(data, tmp_path, penalty__l2=1e-4)
    with pytest.raises(Interrupted):
        train(settings, Mortal(25))
    content = tensors.load(newest(tmp_path).read_bytes(), "it", [CHECKPOINT])
    problem = problem_of("hinge", 1e-4)
    proven = dual(rows_in(data, WIDTH, problem), problem, np.array(content.arrays["state.own.solver.alpha"]))

    class First(Notes):
        def progress(self, now: Any) -> None:
            if now.dual is not None:
                told.append(now)

    told: list[Any] = []
    train(settings, First())
    assert told[0].pass_number >= 25 and told[0].dual == pytest.approx(proven, rel=1e-10)


def test_a_checkpoint_is_a_model_to_begin_with(data: str, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(checkpointed(data, tmp_path, penalty__l2=1e-4), Mortal(15))
    model = load_model(str(tmp_path / "kept"))
    assert model.dim == WIDTH and model.weights.any() and evaluate(model, open_stream(data))["error"] < 0.2
    outcome = train(made(data, penalty__l2=1e-3, solver__init=str(tmp_path / "kept")))
    problem = problem_of("hinge", 1e-3)
    checked(outcome, rows_in(data, WIDTH, problem), problem)


def test_a_finished_run_only_writes_its_model_again(data: str, tmp_path: Path) -> None:
    for given in ({}, {"penalty__path": "1e-3..1e-1", "data__holdout": 5}):
        place = tmp_path / str(len(given))
        place.mkdir()
        settings = checkpointed(data, place, **given)
        first = train(settings)
        content = (place / "m.st").read_bytes()
        (place / "m.st").unlink()
        listener = Notes()
        again = train(settings, listener)
        assert (place / "m.st").read_bytes() == content and listener.notes[0].startswith(
            "going on from all passes done"
        )
        figures = [{k: v for k, v in one.result.items() if k != "seconds"} for one in (first, again)]
        assert figures[0] == figures[1]


def test_stopped_while_rows_are_surveyed(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the cache is full and before there is a solver."""
    settings = checkpointed(data, tmp_path)
    usual = CachedGroups.group
    asked: list[int] = []

    def stopped(groups: Any, number: int) -> Any:
        asked.append(number)
        if len(asked) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return usual(groups, number)

    with monkeypatch.context() as patch:
        patch.setattr(CachedGroups, "group", stopped)
        with pytest.raises(Interrupted):
            train(settings)
    problem = problem_of("hinge", 1e-3)
    checked(train(settings), rows_in(data, WIDTH, problem), problem)


def test_other_settings_are_refused_and_more_memory_is_not(data: str, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(checkpointed(data, tmp_path, penalty__l2=1e-4), Mortal(15))
    for other in (
        {"penalty__l2": 1e-3},
        {"penalty__l2": 1e-4, "loss": "logistic"},
        {"penalty__l2": 1e-4, "solver__tol": 0.1},
    ):
        with pytest.raises(ModelError, match="cannot go on from this checkpoint"):
            train(checkpointed(data, tmp_path, **other))
    outcome = train(checkpointed(data, tmp_path, penalty__l2=1e-4, run__memory="200MB", run__threads=1))
    assert outcome.result["gap"] <= 1e-3


def test_time_counts_in_all_lives(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that is put forward in a first life, and stands still until its end."""
    given = {"penalty__l2": 1e-9, "solver__tol": 1e-12, "solver__passes": 10**9, "solver__time": NEVER}
    settings = checkpointed(data, tmp_path, **given)
    clock, still = time.perf_counter, list[float]()
    monkeypatch.setattr(time, "perf_counter", lambda: still[0] if still else clock())

    class Late(Notes):
        def progress(self, now: Any) -> None:
            if now.gap is not None and not still:
                still.append(clock() - now.seconds + NEVER - 0.5)
                os.kill(os.getpid(), signal.SIGTERM)  # and a last checkpoint is taken

    with pytest.raises(Interrupted):
        train(settings, Late())
    still.clear()
    begun = clock()
    outcome = train(settings)
    assert clock() - begun < SOON and outcome.result["seconds"] >= NEVER and outcome.result["gap"] > 1e-12


SLOW = ["--solver", "dcd", "--loss", "hinge", "--l2", "1e-9", "--tol", "1e-12", "--passes", "100000000"]


def interrupted(words: list[str], place: Path, ready: Callable[[str], bool]) -> tuple[int, list[str]]:
    """A process that gets a SIGINT once a line of its standard error says that it is learning."""
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with heard(), subprocess.Popen([*COMMAND, *words], cwd=place, **pipes) as process:
        try:
            assert process.stderr is not None
            said = []
            for line in process.stderr:
                said.append(line.rstrip("\n"))
                if ready(line):
                    break
            process.send_signal(signal.SIGINT)
            said += process.communicate(timeout=60)[1].splitlines()
            return process.returncode, said
        finally:
            process.kill()


def test_ctrl_c(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    words = ["train", data, *SLOW, "-o", "m.st"]

    def learning(line: str) -> bool:
        return line.split()[:1] == ["10"]

    code, said = interrupted(words, tmp_path, learning)
    assert code == 130 and said[-1] == "streamsvm: interrupted" and "Traceback" not in "".join(said)
    assert [path.name for path in tmp_path.rglob("*")] == ["tmp"]

    words += ["--checkpoint", "kept"]
    code, said = interrupted(words, tmp_path, learning)
    assert code == 130 and "stopped by SIGINT; kept: " in said[-2] and "Traceback" not in "".join(said)
    assert said[-1] == f"to go on: streamsvm {shlex.join(words)} --resume" and not (tmp_path / "m.st").exists()
    assert load_model(str(tmp_path / "kept")).weights.any()
