"""More than two classes, from the text to the model and back: found, declared, late, by both rules."""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from whole_runs import Notes, class_lines

import streamsvm.readers
from streamsvm import load_model, open_stream
from streamsvm.config import Settings, load_settings
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.model import Model
from streamsvm.training import Outcome, train

ROWS = 3000

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(text: list[str], name: str = "rows.svm") -> str:
        path = tmp_path / name
        path.write_text("\n".join(text) + "\n")
        return str(path)

    return put


def made(path: str, **given: Any) -> Settings:
    overrides = {"data.train": path, "output.model": None, "penalty.l2": 1e-4}
    return load_settings(
        overrides=overrides | {key.replace("__", "."): value for key, value in given.items()}, environ={}
    )


def trained(path: str, notes: Notes | None = None, **given: Any) -> Outcome:
    return train(made(path, **given), notes or Notes())


def accuracy(model: Model, path: str) -> float:
    right = rows = 0
    for batch in open_stream(path):
        coded = model.class_map().encode(batch)
        right += int((model.codes(model.scores(coded)) == coded.labels).sum())
        rows += batch.rows
    return right / rows


def same(left: Model, right: Model) -> bool:
    return (
        left.classes == right.classes
        and left.weights.tobytes() == right.weights.tobytes()
        and left.bias.tobytes() == right.bias.tobytes()
    )


# Classes.


@pytest.mark.parametrize("labels", [(3, 7, 5), (0, 1, 2), (1, 2, 3, 4, 5, 6, 7), (-1, 0, 1), (1.5, 2.5, 3)])
def test_classes_are_found_in_a_single_pass_and_are_those_declared(write: Write, labels: tuple[Any, ...]) -> None:
    path = write(class_lines(ROWS, labels=labels))
    found = trained(path)
    assert found.model.classes == sorted(labels) and found.model.weights.shape[1] == len(labels)
    assert found.result["error"] < 0.3 and accuracy(found.model, path) > 0.8
    declared = trained(path, data__classes=sorted(labels))
    assert same(found.model, declared.model)
    assert found.result["loss"] == pytest.approx(declared.result["loss"], rel=1e-12)
    assert found.result["calibration"]["on"] == "progressive"


def test_the_order_of_declared_classes_is_kept(write: Write) -> None:
    path = write(class_lines(ROWS, labels=(1, 2, 3)))
    usual, other = trained(path, data__classes=[1, 2, 3]).model, trained(path, data__classes=[3, 1, 2]).model
    assert other.classes == [3, 1, 2]
    assert np.array_equal(other.weights, usual.weights[:, [2, 0, 1]])


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("usual", [(0, 1), (-1, 1), (4, 9)])
def test_a_class_that_comes_late_begins_again_and_ends_like_a_declared_one(
    write: Write, passes: int, usual: tuple[int, int]
) -> None:
    text = class_lines(ROWS, labels=(*usual, 7), shares=(0.4, 0.4, 0.2))
    text.sort(key=lambda row: row.startswith("7 "))  # behind the rows that are looked at
    path, notes = write(text), Notes()
    found = trained(path, notes, solver__passes=passes)
    assert found.model.classes == sorted((*usual, 7))
    assert any("found label 7" in note and "starting over" in note for note in notes.notes)
    declared = trained(path, data__classes=sorted((*usual, 7)), solver__passes=passes)
    assert same(found.model, declared.model) and found.result["examples"] == passes * ROWS


def test_a_class_that_was_not_declared_is_an_error_that_names_row_and_setting(write: Write) -> None:
    path = write([*class_lines(100, labels=(1, 2, 3)), "9 1:1", *class_lines(50, labels=(1, 2, 3))])
    with pytest.raises(DataError, match=r"rows.svm.*row 101: label 9 is not one of the classes \(1, 2, 3\).*--classes"):
        trained(path, data__classes=[1, 2, 3])


def test_numbers_that_are_no_classes_are_refused(write: Write) -> None:
    rng = np.random.default_rng(0)
    for labels in (rng.normal(size=500), np.arange(1500)):
        with pytest.raises(DataError, match="look like numbers to be predicted, not like classes"):
            trained(write([f"{label:g} 1:1" for label in labels]))


@pytest.mark.parametrize(
    "solver",
    [
        "asgd",
        "sgd",
        *(
            pytest.param(name, marks=pytest.mark.full)  # each has kernels of its own to compile
            for name in ("zhang", "pegasos", "sgdqn", "folos", "adagrad", "ftrl")
        ),
    ],
)
def test_every_online_solver_learns_them(write: Write, solver: str) -> None:
    path = write(class_lines(ROWS, labels=tuple(range(5))))
    more = {"solver__average": True} if solver == "pegasos" else {}
    outcome = trained(path, solver__name=solver, solver__passes=2, **more)
    assert outcome.result["solver"] == solver and accuracy(outcome.model, path) > 0.8


@pytest.mark.whole
@pytest.mark.parametrize(
    ("solver", "loss"),
    [
        pytest.param(solver, loss, marks=[pytest.mark.full] * ((solver, loss) != ("asgd", "hinge")))
        for solver in ("asgd", "sgd")
        for loss in ("hinge", "squared_hinge", "logistic", "smoothed_hinge")
    ],
)
def test_crammer_singer(write: Write, solver: str, loss: str) -> None:
    path = write(class_lines(ROWS, labels=tuple(range(5))))
    given = {"solver__name": solver, "loss": loss, "multiclass": "crammer_singer", "solver__passes": 2}
    outcome = trained(path, **given, run__objective=True)
    assert outcome.model.rule == "crammer_singer" and accuracy(outcome.model, path) > 0.8
    everything = trained(path, solver__name=solver, loss=loss, solver__passes=2, run__objective=True)
    assert everything.model.rule == "ova" and not same(everything.model, outcome.model)
    assert outcome.result["objective"] < everything.result["objective"]  # one loss a row, not one for each class


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"multiclass": "crammer_singer", "solver__name": "ftrl"}, "solvers that can: asgd, sgd, dcd, auto"),
        ({"multiclass": "crammer_singer", "solver__name": "dcd"}, "use --loss hinge"),
        ({"data__classes": [1, 2, 3], "solver__name": "newton"}, "solver newton cannot learn more than two classes"),
        ({"multiclass": "ova", "solver__name": "ocas"}, "solver ocas cannot learn more than two classes"),
    ],
)
def test_what_cannot_be_had_is_refused_before_anything_is_read(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        made("nowhere.svm", **given)


def test_solvers_of_two_classes_say_so_when_there_are_more(write: Write) -> None:
    path = write(class_lines(300, labels=(1, 2, 3)))
    with pytest.raises(ConfigError, match="solver newton cannot learn more than two classes.*dcd"):
        trained(path, solver__name="newton")


def test_two_classes_by_wish(write: Write) -> None:
    """`multiclass: ova` gives each of two classes its own weights, opposite ones."""
    path = write(class_lines(ROWS, labels=(0, 1)))
    both, one = trained(path, multiclass="ova", solver__eta0=0.1).model, trained(path, solver__eta0=0.1).model
    assert both.weights.shape[1] == 2 and both.many and not one.many
    assert np.array_equal(both.weights[:, 1], one.weights) and np.array_equal(both.weights[:, 0], -one.weights)


# Rows that are not all alike.


@pytest.mark.parametrize("rule", ["ova", pytest.param("crammer_singer", marks=pytest.mark.full)])
def test_balanced_weights_are_the_weights_of_the_rows(write: Write, rule: str) -> None:
    text = class_lines(ROWS, labels=(0, 1, 2), shares=(0.7, 0.25, 0.05))
    counts = {label: sum(row.startswith(f"{label} ") for row in text) for label in (0, 1, 2)}
    weighed = [f"{row[0]} {np.float32(ROWS / (3 * counts[int(row[0])]))!s}{row[1:]}" for row in text]
    common = {
        "multiclass": rule,
        "data__classes": [0, 1, 2],
        "solver__passes": 2,
        "loss": "hinge",
        "solver__eta0": 0.05,
    }
    balanced = trained(write(text), data__class_weights="balanced", **common)
    by_rows = trained(write(weighed, "weighed.svm"), **common)
    np.testing.assert_allclose(balanced.model.weights, by_rows.model.weights, atol=2e-4)


def test_balanced_weights_of_classes_that_are_found_on_the_stream(write: Write) -> None:
    text = class_lines(ROWS, labels=(0, 1, 2), shares=(0.9, 0.08, 0.02))
    plain, balanced = trained(write(text)).model, trained(write(text), data__class_weights="balanced").model
    assert not same(plain, balanced)
    given = trained(write(text), data__class_weights={"2": 20, "1": 5}).model
    recall = [
        np.mean([model.codes(model.scores(coded))[coded.labels == 2] == 2])
        for model in (plain, balanced, given)
        for coded in [model.class_map().encode(next(iter(open_stream(write(text)))))]
    ]
    assert recall[1] > recall[0] and recall[2] > recall[0]


def test_how_text_is_cut_changes_nothing(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    text = class_lines(ROWS, labels=(5, 1, 9, 4))
    text.sort(key=lambda row: row.startswith("9 "))
    path = write(text)
    for given in ({}, {"data__class_weights": "balanced"}, {"multiclass": "crammer_singer", "loss": "hinge"}):
        models = []
        for size, threads in ((2_000_000, 2), (3000, 1), (700, 2)):
            monkeypatch.setattr(streamsvm.readers, "SMALLEST_BLOCK", size)
            monkeypatch.setattr(streamsvm.readers, "LARGEST_BLOCK", size)
            models.append(trained(path, run__threads=threads, **({"multiclass": "ova"} | given)).model)
        assert same(models[0], models[1]) and same(models[0], models[2])
        first = models[0].calibration
        assert first is not None
        for model in models[1:]:
            assert model.calibration is not None
            for name, array in first.arrays().items():
                assert array.tobytes() == model.calibration.arrays()[name].tobytes()


def test_learning_goes_on_from_a_model(write: Write, tmp_path: Path) -> None:
    text = class_lines(ROWS, labels=(1, 2, 3))
    first = str(tmp_path / "first.safetensors")
    trained(write(text[:1500]), output__model=first)
    more = trained(write(text[1500:], "rest.svm"), solver__init=first)
    assert more.model.classes == [1, 2, 3] and accuracy(more.model, write(text)) > 0.8
    assert more.model.online["t"] == ROWS
    with pytest.raises(DataError, match="label 9 is not one of the classes"):
        trained(write(["9 1:1"], "other.svm"), solver__init=first)


def test_memory_that_is_too_small_for_so_many_classes_is_refused(write: Write) -> None:
    text = [f"{k % 300} {k % 50_000 + 1}:1" for k in range(60_000)]
    with pytest.raises(DataError, match=r"classes: solver asgd would need|set features.hash_bits"):
        trained(write(text), run__memory="64MB")


# Held-out rows, early stopping, tuning.


def test_held_out_rows_and_early_stopping(write: Write) -> None:
    path = write(class_lines(ROWS, labels=(1, 2, 3), noise=2.0))
    outcome = trained(path, data__holdout=5, solver__passes=30, solver__early_stop=2)
    held = outcome.result["holdout"]
    assert 0.0 < held["error"] < 0.5 and outcome.result["calibration"]["on"] == "held-out"


# The command line.


@pytest.fixture
def files(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(class_lines(ROWS, labels=(1, 2, 3)), "rows.svm")
    names = {"1": "ant", "2": "bee", "3": "cow"}
    table = ["animal,a,b,c,id"]
    for number, row in enumerate(class_lines(600, labels=(1, 2, 3), width=3, longest=3)):
        label, *features = row.split()
        values = dict(feature.split(":") for feature in features)
        table.append(f"{names[label]},{','.join(values.get(str(k), '') for k in (1, 2, 3))},r{number}")
    write(table, "rows.csv")
    return tmp_path


def test_predictions_are_the_users_labels_and_figures_of_all_classes(run: Any, files: Path) -> None:
    assert run("train", "rows.svm", "-o", "m.st")[0] == 0
    labels = run("predict", "m.st", "rows.svm")[1].split()
    assert set(labels) == {"1", "2", "3"}
    scores = [
        [float(word) for word in line.split()]
        for line in run("predict", "m.st", "rows.svm", "--scores")[1].splitlines()
    ]
    assert [str(1 + int(np.argmax(row))) for row in scores] == labels
    chances = run("predict", "m.st", "rows.svm", "--probabilities")[1].splitlines()
    table = np.array([[float(word) for word in line.split()] for line in chances])
    assert table.shape == (ROWS, 3) and (table >= 0).all()
    np.testing.assert_allclose(table.sum(axis=1), 1.0, atol=1e-12)
    code, out, _ = run("inspect", "m.st", "--top", 2)
    assert code == 0 and "class 3" in out and "x 3 weights" in out


@pytest.mark.full
def test_texts_are_classes(run: Any, files: Path) -> None:
    code, out, err = run("train", "rows.csv", "--label", "animal", "--ignore", "id", "-o", "m.st", "--passes", 3)
    assert code == 0, err
    assert load_model("m.st").classes == ["ant", "bee", "cow"] and "classes ant, bee, cow" in out
    assert set(run("predict", "m.st", "rows.csv")[1].split()) <= {"ant", "bee", "cow"}
    run("predict", "m.st", "rows.csv", "--keep", "id", "--scores", "-o", "out.csv")
    assert Path("out.csv").read_text().splitlines()[0] == "id,prediction,score_ant,score_bee,score_cow"
    header, *rows = Path("rows.csv").read_text().splitlines()
    Path("late.csv").write_text("\n".join([header, *rows * 4, "dog,1,2,3,x"]) + "\n")
    words = ("--label", "animal", "--ignore", "id", "-o", "late.st")
    assert run("train", "late.csv", *words)[0] == 0  # the column is read first
    assert load_model("late.st").classes == ["ant", "bee", "cow", "dog"]
    code, err_bytes = piped(Path("late.csv").read_bytes(), "train", "-", "--format", "csv", *words)
    assert code == 4 and b":2402" in err_bytes and b"data.classes" in err_bytes
    declared = ("--classes", "ant,bee,cow,dog", *words)
    assert piped(Path("late.csv").read_bytes(), "train", "-", "--format", "csv", *declared)[0] == 0


def test_many_classes_of_a_table_have_fewer_weights_each() -> None:
    from streamsvm.dialects import default_hash_bits

    assert [default_hash_bits(count) for count in (0, 2, 3, 4, 5, 8, 23, 1000)] == [22, 22, 21, 21, 20, 20, 18, 16]


def piped(content: bytes, *arguments: str) -> tuple[int, bytes]:
    command = [sys.executable, "-c", "from streamsvm.cli import main; main()", *arguments]
    done = subprocess.run(command, input=content, capture_output=True, timeout=120, check=False)
    return done.returncode, done.stderr


@pytest.mark.full
def test_standard_input_is_told_what_to_say(run: Any, files: Path) -> None:
    text = sorted(Path("rows.svm").read_text().splitlines(), key=lambda row: row[0])
    text = [row for row in text if row[0] == "1"] * 3 + text
    Path("sorted.svm").write_text("\n".join(text) + "\n")
    content = Path("sorted.svm").read_bytes()
    code, err = piped(content, "train", "-", "-o", "m.st")
    assert code == 4 and b"--multiclass ova" in err and b"label 2" in err
    assert piped(content, "train", "-", "--multiclass", "ova", "-o", "m.st")[0] == 0
    assert run("train", "sorted.svm", "-o", "file.st")[0] == 0
    assert same(load_model("m.st"), load_model("file.st"))


def test_json_has_what_was_chosen(run: Any, files: Path) -> None:
    code, out, _ = run("train", "rows.svm", "-o", "m.st", "--threshold", "f1", "--json")
    result = json.loads(out.splitlines()[-1])
    assert code == 0 and len(result["thresholds"]) == 3 and result["calibration"]["kind"] == "platt"
    code, _, err = run("train", "rows.svm", "-o", "m.st", "--threshold", "cost")
    assert code == 2 and "--costs" in err
    code, _, err = run("train", "rows.svm", "-o", "m.st", "--threshold", "cost", "--costs", "1:10,9:1")
    assert code == 2 and "9 is not one of the classes" in err
    assert run("train", "rows.svm", "-o", "m.st", "--threshold", "cost", "--costs", "1:10")[0] == 0


def test_tune(run: Any, files: Path) -> None:
    code, out, err = run("tune", "rows.svm", "-o", "m.st", "--candidates", 3, "--passes", 2)
    assert code == 0, err
    assert load_model("m.st").weights.shape[1] == 3 and load_model("m.st").probable


def test_a_damaged_model_of_several_classes_is_refused(run: Any, files: Path) -> None:
    run("train", "rows.svm", "-o", "m.st")
    content = bytearray(Path("m.st").read_bytes())
    content[-5] ^= 1
    Path("bad.st").write_bytes(content)
    with pytest.raises(ModelError, match="checksum"):
        load_model("bad.st")


def test_compressed_and_windows_lines(run: Any, files: Path) -> None:
    text = Path("rows.svm").read_text()
    Path("w.svm.gz").write_bytes(gzip.compress(text.replace("\n", "\r\n").rstrip().encode()))
    run("train", "rows.svm", "-o", "m.st")
    run("train", "w.svm.gz", "-o", "w.st")
    assert same(load_model("m.st"), load_model("w.st"))
