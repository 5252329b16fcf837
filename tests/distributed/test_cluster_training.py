"""Training on real Dask workers: what is learned, what is proven, and that it does not matter who does the work."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from whole_runs import Notes, bits, class_lines, lines

from streamsvm import follow, load_settings, train
from streamsvm.distributed import dual_work
from streamsvm.distributed.cluster import Cluster
from streamsvm.distributed.opening import opened_cluster
from streamsvm.errors import ConfigError, DataError, SourceError
from streamsvm.training import Outcome

ROWS = lines(1200, features=40)


def settings_for(path: str, **given: Any) -> Any:
    dotted = {name.replace("__", "."): value for name, value in given.items()}
    return load_settings(overrides={"data.train": path, "output.model": None, **dotted})


def alone(path: str, **given: Any) -> Outcome:
    return train(settings_for(path, **given))


@pytest.fixture
def together(cluster: Any, tmp_path: Path) -> Callable[..., Outcome]:
    def together(path: str, listener: Any = None, **given: Any) -> Outcome:
        usual = {"cluster__storage": str(tmp_path / "storage")}
        return train(settings_for(path, **usual | given), listener or Notes(), client=cluster._client)

    return together


EXACT = [
    {"solver": "dcd", "loss": "hinge"},
    {"solver": "dcd", "loss": "squared_hinge"},
    {"solver": "dcd", "loss": "logistic"},
    {"solver": "newton", "loss": "squared_hinge"},
    {"solver": "bmrm", "loss": "hinge"},
    {"solver": "ocas", "loss": "hinge"},
]


@pytest.mark.parametrize("given", EXACT, ids=lambda given: "-".join(given.values()))
def test_an_optimum_is_proven_that_is_the_same(
    given: dict[str, str], data: str, together: Callable[..., Outcome]
) -> None:
    given = {**given, "penalty__l2": 1e-2, "solver__tol": 1e-3}
    one, many = alone(data, **given).result, together(data, cluster__shards=3, **given).result
    assert many["gap"] <= 1e-3
    assert many["dual"] <= one["objective"] * (1 + 1e-9) and one["dual"] <= many["objective"] * (1 + 1e-9)


def primal(path: str, outcome: Outcome, l2: float) -> float:
    """Of hinge, over all rows of a file, by NumPy."""
    from sklearn.datasets import load_svmlight_file

    points, labels = load_svmlight_file(path, zero_based=True)
    model = outcome.model
    weights = np.zeros(max(points.shape[1], len(model.weights)))
    weights[: len(model.weights)] = model.weights
    scores = points @ weights[: points.shape[1]] + model.bias
    return float(0.5 * l2 * (weights @ weights + model.bias**2) + np.maximum(0.0, 1.0 - labels * scores).mean())


def test_the_objective_told_is_that_of_the_model(data: str, together: Callable[..., Outcome]) -> None:
    found = together(data, solver="dcd", loss="hinge", penalty__l2=1e-3, cluster__shards=4, solver__passes=6)
    assert found.result["objective"] == pytest.approx(primal(data, found, 1e-3), rel=1e-5)
    assert found.result["passes"] == 6 and found.result["examples"] == 7200


@pytest.mark.full
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_many_shards_agree_soon(loss: str, data: str, together: Callable[..., Outcome]) -> None:
    """Shards with few rows lean to different sides: what they add, merely summed up, would take thousands of passes."""
    found = together(data, solver="dcd", loss=loss, penalty__C=1.0, cluster__shards=8, solver__passes=300)
    assert found.result["gap"] <= 1e-3 and found.result["passes"] <= 200


def test_dual_variables_are_removed_in_the_end(data: str, together: Callable[..., Outcome], tmp_path: Path) -> None:
    together(data, solver="dcd", loss="hinge", penalty__l2=1e-2)
    assert list((tmp_path / "storage" / "dual").iterdir()) == []


SAME = [
    {"solver": "dcd", "loss": "hinge", "penalty__l2": 1e-2},
    {"solver": "newton", "penalty__l2": 1e-2, "features__scale": "standard"},
    {"solver": "asgd", "solver__passes": 2},
]


@pytest.mark.full
@pytest.mark.parametrize("given", SAME, ids=lambda given: given["solver"])
def test_the_number_of_workers_changes_nothing(
    given: dict[str, Any], data: str, together: Callable[..., Outcome]
) -> None:
    two = together(data, cluster__shards=3, **given)
    with opened_cluster("local:1", None, 60.0, lambda text: None) as single:
        one = train(settings_for(data, cluster__shards=3, **given, cluster__storage="storage1"), client=single._client)
    assert bits(one) == bits(two)


@pytest.mark.full
def test_rounds_that_are_done_again_change_nothing(
    data: str, together: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a shard did, and was lost on the way, leaves no trace on its worker."""
    given = {"solver": "dcd", "loss": "hinge", "penalty__path": [1e-2, 1e-3], "data__holdout": 5, "cluster__shards": 2}
    once, summed = together(data, **given), Cluster.summed

    def twice(self: Cluster, work: Any, *others: Any, **more: Any) -> Any:
        if work is dual_work.climb:
            summed(self, work, *others, **more)
        return summed(self, work, *others, **more)

    monkeypatch.setattr(Cluster, "summed", twice)
    assert bits(together(data, **given)) == bits(once)


def test_online_weights_are_averaged(data: str, together: Callable[..., Outcome]) -> None:
    given = {"solver": "asgd", "solver__passes": 5, "run__objective": True, "penalty__l2": 1e-2}
    one, many = alone(data, **given).result, together(data, cluster__shards=2, **given).result
    least = alone(data, solver="newton", penalty__l2=1e-2).result["objective"]
    assert many["examples"] == one["examples"] == 6000
    assert least * (1 - 1e-3) < many["objective"] < 1.02 * least and abs(many["error"] - one["error"]) < 0.03


@pytest.mark.full
@pytest.mark.parametrize("rule", ["ova", "crammer_singer"])
def test_several_classes(rule: str, write: Callable[..., str], together: Callable[..., Outcome]) -> None:
    path = write(class_lines(600, labels=[1, 2, 5]))
    given = {"solver": "dcd", "multiclass": rule, "loss": "hinge", "penalty__l2": 1e-2, "solver__tol": 1e-2}
    one, many = alone(path, **given), together(path, cluster__shards=2, **given)
    assert many.model.classes == [1, 2, 5] and many.result["gap"] <= 1e-2
    assert many.result["dual"] <= one.result["objective"] and one.result["dual"] <= many.result["objective"]


def test_what_is_counted_over_all_rows(data: str, together: Callable[..., Outcome]) -> None:
    """Scales, class weights, C: as if one machine had seen all rows."""
    given = {"solver": "newton", "penalty__C": 1.0, "features__scale": "standard", "data__class_weights": "balanced"}
    one, many = alone(data, **given), together(data, cluster__shards=3, **given)
    assert many.result["l2"] == pytest.approx(one.result["l2"], rel=1e-12)
    np.testing.assert_allclose(many.model.scale, one.model.scale, rtol=1e-6)
    assert many.result["objective"] == pytest.approx(one.result["objective"], rel=1e-3)


def ugly_lines(rows: int) -> list[str]:
    """Two good columns, of which one is small; others are huge, constant, or count rows; weights around a million."""
    rng = np.random.default_rng(5)
    good = rng.normal(size=(rows, 2))
    labels = np.where(good @ [1.0, -1.0] + 0.3 * rng.normal(size=rows) > 0, 1, -1)
    huge = 1e4 * rng.normal(size=rows)
    return [
        f"{label} {1e6 * (1 + i % 2):.0f} | a:{0.01 * x:.6g} b:{y:.6g} c:{z:.6g} d:50 e:{i + 1}"
        for i, (label, (x, y), z) in enumerate(zip(labels, good, huge, strict=True))
    ]


@pytest.mark.parametrize("solver", ["asgd", "sgd"])
def test_features_are_scaled_by_rows_of_all_shards(
    solver: str, write: Callable[..., str], together: Callable[..., Outcome]
) -> None:
    """Before the first of them is learned; weights are taken relative to those where the step size was chosen."""
    path, notes = write(ugly_lines(3000), "ugly.vw"), Notes()
    given = {"solver": solver, "solver__passes": 2}
    one, many = alone(path, **given), together(path, notes, cluster__shards=3, **given)
    assert many.result["error"] < 0.12 and abs(many.result["error"] - one.result["error"]) < 0.03
    raw = together(path, cluster__shards=3, features__scale="none", **given)
    assert raw.result["error"] > 0.2 and raw.model.scale is None
    assert many.model.recipe["scale"] == "auto" and any(note.startswith("scale    5 dense") for note in notes.notes)
    np.testing.assert_allclose(many.model.scale, one.model.scale, rtol=1e-3)
    np.testing.assert_allclose(many.model.centre, one.model.centre, rtol=1e-3, atol=1.0)
    assert many.model.online["unit"] == pytest.approx(1.5e6, rel=0.01)


def test_held_out_rows_and_probabilities(data: str, together: Callable[..., Outcome]) -> None:
    given = {"data__holdout": 5, "calibration": "platt", "cluster__shards": 2}
    exact = together(data, solver="newton", penalty__C=1.0, **given)
    online = together(data, solver="asgd", solver__passes=2, **given)
    for outcome in (exact, online):
        assert outcome.result["holdout"]["error"] < 0.25 and outcome.model.calibration is not None
        assert 200 <= outcome.result["holdout"]["examples"] <= 280
    assert online.result["examples"] == 2 * (1200 - online.result["holdout"]["examples"])


@pytest.mark.full
def test_a_map(data: str, together: Callable[..., Outcome]) -> None:
    given = {"map": "nystroem", "map__size": 50, "solver": "newton", "penalty__C": 1.0}
    one, many = alone(data, **given), together(data, cluster__shards=2, **given)
    assert many.model.map is not None and abs(many.result["error"] - one.result["error"]) < 0.02


@pytest.mark.full
def test_a_path_of_penalties_and_an_initial_model(data: str, together: Callable[..., Outcome], tmp_path: Path) -> None:
    given = {"solver": "dcd", "loss": "hinge", "cluster__shards": 2, "solver__tol": 1e-2}
    path = together(data, penalty__path=[1e-2, 1e-3], data__holdout=5, **given).result["path"]
    assert [step["l2"] for step in path] == [1e-2, 1e-3] and all(step["gap"] <= 1e-2 for step in path)
    first = together(data, penalty__l2=1e-3, output__model=str(tmp_path / "m.st"), **given)
    again = together(data, penalty__l2=1e-3, solver__init=str(tmp_path / "m.st"), **given)
    assert again.result["passes"] < first.result["passes"] and again.result["gap"] <= 1e-2


def test_compressed_files(put: Callable[[str, bytes], str], together: Callable[..., Outcome], tmp_path: Path) -> None:
    for k in range(3):
        put(f"parts/{k}.svm.gz", gzip.compress("".join(f"{row}\n" for row in ROWS[400 * k : 400 * (k + 1)]).encode()))
    listener = Notes()
    found = together(str(tmp_path / "parts"), listener, solver="newton", penalty__C=1.0, cluster__shards=8)
    assert found.result["examples"] % 1200 == 0
    assert any(note.startswith("3 shards") for note in listener.notes)


def test_workers_that_have_nothing_to_do_are_told_of(
    put: Callable[[str, bytes], str], together: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, told = put("rows.svm.gz", gzip.compress("".join(f"{row}\n" for row in ROWS).encode())), []
    for size in (0, 1 << 20):
        monkeypatch.setattr("streamsvm.distributed.running.WORTH_SHARING", size)
        listener = Notes()
        together(path, listener, cluster__shards=2)
        assert any(note.startswith("1 shard of about 0.0 MB on 2 workers with 2 threads") for note in listener.notes)
        told.append(any("fewer shards than threads" in note for note in listener.notes))
    assert told == [True, False]


def test_bad_rows(write: Callable[..., str], together: Callable[..., Outcome]) -> None:
    path = write([*ROWS[:900], "1 oops", *ROWS[900:]], "bad.svm")
    with pytest.raises(DataError, match="bad.svm:901: "):
        together(path, solver="newton", penalty__C=1.0, cluster__shards=4)
    listener = Notes()
    found = together(path, listener, solver="newton", penalty__C=1.0, cluster__shards=4, data__on_bad_row="skip")
    assert found.result["bad_rows"] == 1 and any("bad.svm:901" in note for note in listener.notes)


REFUSED = [
    ({"data__limit": 10}, "data.limit"),
    ({"data__shuffle": 100}, "data.shuffle"),
    ({"solver": "norma"}, "one machine"),
    ({"solver": "dcd", "calibration": "platt"}, "--holdout"),
    ({"calibration": "platt"}, "--holdout"),
]


@pytest.mark.parametrize(("given", "said"), REFUSED, ids=lambda value: str(value)[:30])
def test_what_needs_one_machine_is_refused(
    given: dict[str, Any], said: str, data: str, together: Callable[..., Outcome]
) -> None:
    with pytest.raises(ConfigError, match=said):
        together(data, **given)


def test_what_works_on_one_machine_says_so(data: str) -> None:
    with pytest.raises(ConfigError, match="follow works on one machine"):
        follow(settings_for(data, cluster__at="local:2"))


def test_dual_variables_need_a_place(data: str, cluster: Any) -> None:
    with pytest.raises(ConfigError, match=r"cluster\.storage"):
        train(settings_for(data, solver="dcd", penalty__C=1.0), client=cluster._client)


@pytest.mark.parametrize("at", ["local:0", "local:two", "somewhere"])
def test_a_place_that_is_none(at: str, data: str) -> None:
    with pytest.raises(ConfigError, match=r"cluster\.at"):
        train(settings_for(data, cluster__at=at))


def test_nobody_there(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.distributed.opening.PATIENCE", 0.5)
    with pytest.raises(SourceError, match="no Dask scheduler"):
        train(settings_for(data, cluster__at="tcp://127.0.0.1:9"))
