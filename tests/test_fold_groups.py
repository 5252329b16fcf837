"""Rows dealt into folds: each in one of them, the same however groups are cut; and what is learned on the others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from whole_runs import KilledError, Life, Notes, class_lines, lines

import streamsvm.fitting
from streamsvm.batch import Batch
from streamsvm.calibration import fit_calibration
from streamsvm.config import Settings, load_settings
from streamsvm.fold_groups import FoldGroups
from streamsvm.groups import MemoryGroups
from streamsvm.score_sample import ScoreSample
from streamsvm.training import train


def groups_of(*sizes: int) -> MemoryGroups:
    """Rows of one feature with weights 1, 2, 3, ..."""
    ends = np.cumsum([0, *sizes])
    return MemoryGroups(
        [
            Batch(
                np.arange(b - a + 1, dtype=np.int64),
                np.zeros(b - a, np.uint32),
                np.ones(b - a, np.float32),
                np.zeros(b - a, np.float32),
                np.arange(a + 1, b + 1).astype(np.float32),
            )
            for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
        ]
    )


def weights_of(groups: Any, method: str = "group") -> "np.ndarray[Any, Any]":
    return np.concatenate([getattr(groups, method)(number).weights for number in range(groups.count)])


def test_every_row_is_left_out_once() -> None:
    whole = groups_of(700, 300)
    folds = [FoldGroups(whole, fold, 5) for fold in range(5)]
    out = np.array([weights_of(fold, "left_out") > 0 for fold in folds])
    assert (out.sum(axis=0) == 1).all()
    assert out.sum(axis=1).min() > 140 and out.sum(axis=1).max() < 260
    for fold, left in zip(folds, out, strict=True):
        kept = weights_of(fold)
        assert np.array_equal(kept > 0, ~left) and fold.weight == kept.sum(dtype=float)
        assert np.array_equal(np.concatenate([fold.marks(n)[1] for n in range(fold.count)]), kept)
        assert np.array_equal(kept + weights_of(fold, "left_out"), np.arange(1, 1001))
    other = [FoldGroups(groups_of(1, 998, 1), fold, 5) for fold in range(5)]
    assert np.array_equal([weights_of(fold, "left_out") > 0 for fold in other], out)


def made(path: Path, **given: Any) -> Settings:
    overrides: dict[str, Any] = {"data.train": str(path), "output.model": None, "solver.name": "dcd", "penalty.C": 1.0}
    overrides |= {"solver.tol": 1e-3, "run.memory": "64MB"}
    return load_settings(
        overrides=overrides | {key.replace("__", "."): value for key, value in given.items()}, environ={}
    )


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamsvm.fitting, "ENOUGH_ROWS", 100_000)


@pytest.mark.parametrize("kind", ["platt", "isotonic"])
def test_an_exact_solver_is_calibrated_by_rows_that_it_left_out(tmp_path: Path, few: None, kind: str) -> None:
    path = tmp_path / "rows.svm"
    path.write_text("\n".join(lines(2000, noise=1.5)) + "\n")
    plain = train(made(path))
    assert plain.model.calibration is None and plain.result["calibration"] is None
    outcome = train(made(path, calibration=kind))
    assert np.array_equal(outcome.model.weights, plain.model.weights)  # all rows are learned all the same
    calibration = outcome.model.calibration
    assert calibration is not None and calibration.metadata() == {"kind": kind, "rows": 2000, "on": "left-out"}
    # what the whole says of its own rows is too sure of itself
    sample = ScoreSample()
    from streamsvm import open_stream

    for batch in open_stream(str(path)):
        coded = outcome.model.class_map().encode(batch)
        sample.add(outcome.model.scores(coded), coded.labels, coded.weights)
    sure = fit_calibration("platt", sample, "held-out")
    assert (
        sure is not None
        and kind == "isotonic"
        or sure.arrays()["calibration.slopes"][0]
        > (  # type: ignore[union-attr]
            calibration.arrays()["calibration.slopes"][0]
        )
    )


def test_fewer_folds_will_do_for_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamsvm.fitting, "ENOUGH_ROWS", 500)
    monkeypatch.setattr(streamsvm.fitting, "ENOUGH_FOR_CLASS", 1)
    path, notes = tmp_path / "rows.svm", Notes()
    path.write_text("\n".join(lines(2000)) + "\n")
    outcome = train(made(path, calibration="platt", threshold__by="f1"), notes)
    assert any("learning again 2 times" in note for note in notes.notes)
    assert 700 < outcome.result["calibration"]["rows"] < 900 and len(outcome.result["thresholds"]) == 1


def test_a_run_killed_while_it_learns_again_goes_on(tmp_path: Path, few: None) -> None:
    path = tmp_path / "rows.svm"
    path.write_text("\n".join(class_lines(900, labels=(1, -1))) + "\n")
    given = {"calibration": "platt", "checkpoint__dir": str(tmp_path / "c"), "checkpoint__resume": True}
    given |= {"checkpoint__every": None, "checkpoint__every_rows": 1}
    expected = train(made(path, calibration="platt"))
    original, calls = streamsvm.fitting.FoldGroups, []

    def third(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 3:
            raise KilledError
        return original(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streamsvm.fitting, "FoldGroups", third)
        with pytest.raises(KilledError):
            train(made(path, **given), Life())
    outcome = train(made(path, **given), Life())
    assert outcome.result["calibration"] == expected.result["calibration"]
    assert outcome.result["gap"] <= 1e-3
    again = train(made(path, **given), Life())  # all is done: the model is written once more
    assert again.result["calibration"] == outcome.result["calibration"]
    assert np.array_equal(again.model.weights, outcome.model.weights)
