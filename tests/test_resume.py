"""Runs that are stopped anywhere and go on end exactly as if they had never been stopped."""

import gzip
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples
from whole_runs import KilledError, Life, class_lines, lines

import streamsvm.io.cache
import streamsvm.mapping
import streamsvm.readers
import streamsvm.solvers.base
from streamsvm import load_model, open_stream, tune
from streamsvm.config import Settings, load_settings
from streamsvm.errors import DataError, ModelError
from streamsvm.evaluate import evaluate
from streamsvm.interrupts import Interrupted
from streamsvm.training import Outcome, train

ROWS = 1500


@pytest.fixture(scope="module", autouse=True)
def small_pieces() -> Any:
    """Blocks, groups and trials of few rows, so that a short run has many places to stop at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streamsvm.readers, "SMALLEST_BLOCK", 2000)
        patch.setattr(streamsvm.readers, "LARGEST_BLOCK", 2000)
        patch.setattr(streamsvm.io.cache, "GROUP_ROWS", 70)
        patch.setattr(streamsvm.solvers.base, "TRIAL_ROWS", 150)
        patch.setattr("streamsvm.features.held_back.ROWS", 100)
        patch.setattr(streamsvm.mapping, "FEWEST_ROWS", 10)
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "rows.svm.gz"
    text = ("\n".join(lines(ROWS)) + "\n").encode()
    path.write_bytes(b"".join(gzip.compress(text[a : a + 9000], mtime=0) for a in range(0, len(text), 9000)))
    return str(path)


def made(data: str, place: Path, **given: Any) -> Settings:
    """Settings with `a__b=value`, and checkpoints every few rows."""
    overrides: dict[str, Any] = {
        "data.train": data,
        "output.model": str(place / "model.safetensors"),
        "run.memory": "40MB",
        "checkpoint.dir": str(place / "checkpoints"),
        "checkpoint.every": None,
        "checkpoint.every_rows": 60,
        "checkpoint.resume": True,
    }
    overrides |= {key.replace("__", "."): value for key, value in given.items()}
    return load_settings(overrides=overrides, environ={})


def figures(outcome: Outcome) -> dict[str, Any]:
    return {key: value for key, value in outcome.result.items() if key not in ("seconds", "model")}


def unbroken(run: Any, chosen: Settings) -> tuple[bytes, dict[str, Any]]:
    """The model file and the figures of a run without checkpoints."""
    plain = chosen.model_copy(update={"checkpoint": Settings().checkpoint})
    outcome = run(plain)
    path = Path(chosen.output.model or "")
    content = path.read_bytes()
    path.unlink()
    return content, figures(outcome)


def broken(run: Any, chosen: Settings, lives: list[Life]) -> tuple[bytes, dict[str, Any], int]:
    """The same of a run that is stopped again and again, and how often it really was."""
    stops = 0
    for life in [*lives, Life()]:
        try:
            outcome = run(chosen, life)
            return Path(chosen.output.model or "").read_bytes(), figures(outcome), stops
        except (KilledError, Interrupted):
            stops += 1
            assert not Path(chosen.output.model or "").exists()
    raise AssertionError("the last life has no end")


SOLVERS = ["asgd", "sgd", "pegasos", "sgdqn", "zhang", "folos", "adagrad", "ftrl"]
KINDS: dict[str, dict[str, Any]] = {
    "one pass": {},
    "cached": {"solver__passes": 3},
    "shuffled": {"solver__passes": 2, "data__shuffle": 200},
    "from the source": {"solver__passes": 2, "run__cache": "off"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("politely", [False, True], ids=["killed", "signalled"])
def test_a_run_that_goes_on_ends_like_one_that_was_never_stopped(
    data: str, tmp_path: Path, solver: str, kind: str, politely: bool
) -> None:
    chosen = made(data, tmp_path, solver__name=solver, **KINDS[kind])
    expected = unbroken(train, chosen)
    lives = [Life(n, politely=politely) for n in (3, 9, 1, 20, 14, 2, 25)]
    *found, stops = broken(train, chosen, lives)
    assert tuple(found) == expected and stops >= 5


VARIANTS: dict[str, dict[str, Any]] = {
    "held out": {"data__holdout": 7, "solver__passes": 3, "solver__early_stop": 1},
    "held out, shuffled": {"data__holdout": 3, "data__shuffle": 333, "solver__passes": 2},
    "scaled while streaming": {"features__scale": "standard"},
    "scaled after counting": {"features__scale": "maxabs", "solver__passes": 2},
    "balanced while streaming": {"data__class_weights": "balanced"},
    "balanced after counting": {"data__class_weights": "balanced", "solver__passes": 2},
    "C": {"penalty__C": 1.0, "solver__passes": 2},
    "sampled": {"data__sample": 0.4, "solver__passes": 2},
    "limited": {"data__limit": 1234, "solver__passes": 2},
    "limited stream": {"data__limit": 777},
    "hashed": {"features__hash_bits": 4},
    "given width": {"features__dim": 64, "solver__passes": 2},
    "in the order of the file": {"data__shuffle": 0, "solver__passes": 3},
    "certified": {"solver__name": "sgd", "loss": "hinge", "penalty__l2": 1e-3, "solver__passes": 3}
    | {"run__objective": True},
    "mini-batches": {"solver__name": "pegasos", "solver__batch_size": 37, "solver__average": True, "solver__passes": 2},
    "sparse": {"solver__name": "ftrl", "loss": "logistic", "penalty__l1": 1e-4, "solver__passes": 2},
    "given steps": {"solver__eta0": 0.1},
    "mapped": {"map__kind": "nystroem", "map__size": 30, "solver__name": "asgd", "solver__passes": 2},
    "kernel learner": {"solver__name": "norma", "solver__budget": 20, "solver__passes": 2},
    "mapped while streaming": {"map__kind": "bins", "map__size": 16, "solver__name": "sgd", "run__cache": "off"},
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("politely", [False, True], ids=["killed", "signalled"])
def test_whatever_the_settings(data: str, tmp_path: Path, variant: str, politely: bool) -> None:
    chosen = made(data, tmp_path, **VARIANTS[variant])
    expected = unbroken(train, chosen)
    *found, stops = broken(train, chosen, [Life(n, politely=politely) for n in (4, 1, 8, 17, 2, 30, 5)])
    assert tuple(found) == expected and stops >= 3


@pytest.mark.parametrize("politely", [False, True], ids=["killed", "signalled"])
@pytest.mark.parametrize(
    "given",
    [
        {"solver__passes": 3, "tune__candidates": 5},
        {"tune__candidates": 3, "tune__solver": "asgd,ftrl", "tune__loss": "hinge,logistic"},
        {"solver__passes": 2, "tune__candidates": 3, "tune__solver": "pegasos", "data__shuffle": 100},
        {"tune__candidates": 3, "features__scale": "maxabs", "features__dim": 40},
        {"tune__candidates": 2, "solver__passes": 2, "tune__l2": "1e-12..1e-3", "solver__eta0": 1e30},
    ],
    ids=["side by side", "several solvers", "alone", "scaled", "diverging"],
)
def test_a_search_goes_on_too(data: str, tmp_path: Path, given: dict[str, Any], politely: bool) -> None:
    chosen = made(data, tmp_path, **given)
    expected = unbroken(tune, chosen)
    *found, stops = broken(tune, chosen, [Life(n, politely=politely) for n in (4, 1, 8, 17, 2, 30, 5)])
    assert tuple(found) == expected and stops >= 3


@pytest.mark.parametrize("politely", [False, True], ids=["killed", "signalled"])
def test_classes_found_late(tmp_path: Path, politely: bool) -> None:
    """A strange label makes the run read on, and start over; stopped before, while reading on and after."""
    text = lines(ROWS)
    text = [row if i < 400 else row.replace("-1 ", "3 ", 1) for i, row in enumerate(text) if i >= 400 or row[0] == "1"]
    path = tmp_path / "late.svm"
    path.write_text("\n".join(text) + "\n")
    chosen = made(str(path), tmp_path, solver__passes=2)
    expected = unbroken(train, chosen)
    *found, stops = broken(train, chosen, [Life(n, politely=politely) for n in (1, 1, 1, 1, 9, 12)])
    assert tuple(found) == expected and stops >= 4


@pytest.mark.parametrize("politely", [False, True], ids=["killed", "signalled"])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"solver__passes": 3, "data__holdout": 7, "threshold__by": "f1"},
        {"multiclass": "crammer_singer", "loss": "hinge", "data__class_weights": "balanced"},
        {"data__classes": [1, 2, 3, 4, 5], "calibration": "isotonic", "data__shuffle": 200},
        {"solver__name": "sgd", "multiclass": "ova", "features__scale": "standard"},
    ],
    ids=["found", "held out", "crammer singer", "declared", "streamed"],
)
def test_several_classes(tmp_path: Path, given: dict[str, Any], politely: bool) -> None:
    """Some of them come late: before that a run has fewer lanes, or begins again."""
    text = class_lines(ROWS, labels=(1, 2, 3, 4, 5))
    text.sort(key=lambda row: row[0] in "45")
    path = tmp_path / "classes.svm"
    path.write_text("\n".join(text) + "\n")
    chosen = made(str(path), tmp_path, **given)
    expected = unbroken(train, chosen)
    *found, stops = broken(train, chosen, [Life(n, politely=politely) for n in (4, 1, 8, 17, 2, 30, 5)])
    assert tuple(found) == expected and stops >= 3


@given(
    solver=st.sampled_from(SOLVERS),
    passes=st.integers(1, 3),
    shuffle=st.sampled_from(["auto", 0, 1, 50, 400, 5000]),
    holdout=st.sampled_from([None, 2, 9]),
    scale=st.sampled_from(["none", "maxabs", "standard"]),
    balanced=st.booleans(),
    cached=st.booleans(),
    sample=st.sampled_from([None, 0.3]),
    rows=st.integers(1, 900),
    every=st.integers(1, 300),
    lives=st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=5),
    seed=st.integers(0, 9),
)
@examples(60)
def test_any_data_any_settings_any_place(
    tmp_path_factory: pytest.TempPathFactory, solver: str, passes: int, shuffle: Any, holdout: Any, scale: str,
    balanced: bool, cached: bool, sample: Any, rows: int, every: int, lives: list[tuple[int, bool]], seed: int,
) -> None:  # fmt: skip
    place = tmp_path_factory.mktemp("any")
    (place / "rows.svm").write_text("\n".join(lines(rows, seed=seed)))
    chosen = made(
        str(place / "rows.svm"), place, solver__name=solver, solver__passes=passes, data__shuffle=shuffle,
        data__holdout=holdout, features__scale=scale, data__class_weights="balanced" if balanced else None,
        run__cache="auto" if cached else "off", data__sample=sample, run__seed=seed, checkpoint__every_rows=every,
    )  # fmt: skip
    try:
        expected = unbroken(train, chosen)
    except DataError as error:  # a sample of nothing
        assert "no row" in str(error)
        return
    *found, _ = broken(train, chosen, [Life(n, politely=politely) for n, politely in lives])
    assert tuple(found) == expected


# What happens to files between two lives.


def stopped(chosen: Settings, batches: int, *, politely: bool = False) -> Life:
    """The first part of a run."""
    life = Life(batches, politely=politely)
    with pytest.raises((KilledError, Interrupted)):
        train(chosen, life)
    return life


def finished(chosen: Settings) -> tuple[bytes, dict[str, Any], list[str]]:
    """The rest of it: model file, figures, and what was told."""
    life = Life()
    outcome = train(chosen, life)
    return Path(chosen.output.model or "").read_bytes(), figures(outcome), life.notes


@pytest.mark.parametrize("batches", [20, 60], ids=["first pass", "second pass"])
@pytest.mark.parametrize("shuffle", ["auto", 300])
@pytest.mark.parametrize("politely", [False, True], ids=["killed", "signalled"])
def test_a_cache_that_is_gone_is_made_again(
    data: str, tmp_path: Path, batches: int, shuffle: Any, politely: bool
) -> None:
    """As on another machine, which has the checkpoints alone."""
    chosen = made(data, tmp_path, solver__passes=3, data__shuffle=shuffle)
    expected = unbroken(train, chosen)
    stopped(chosen, batches, politely=politely)
    caches = [path for path in (tmp_path / "checkpoints").iterdir() if "rows.arrow" in path.name]
    assert len(caches) == 1
    caches[0].unlink()
    *found, notes = finished(chosen)
    assert tuple(found) == expected
    assert any("is not here any more: reading the data to make it again" in note for note in notes)
    assert not [path for path in (tmp_path / "checkpoints").iterdir() if "arrow" in path.name]


@pytest.mark.parametrize("batches", [20, 60], ids=["first pass", "second pass"])
def test_a_cache_that_is_kept_is_taken_up(data: str, tmp_path: Path, batches: int) -> None:
    chosen = made(data, tmp_path, solver__passes=3, run__cache=str(tmp_path / "kept.arrow"))
    expected = unbroken(train, chosen)
    whole = (tmp_path / "kept.arrow").read_bytes()
    (tmp_path / "kept.arrow").unlink()
    stopped(chosen, batches)
    *found, notes = finished(chosen)
    assert tuple(found) == expected and (tmp_path / "kept.arrow").read_bytes() == whole
    assert not any("once" in note for note in notes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "kept.arrow", "model.safetensors"]


def test_a_cache_may_be_kept_elsewhere_from_now_on(data: str, tmp_path: Path) -> None:
    first = made(data, tmp_path, solver__passes=3, run__cache=str(tmp_path / "full-disk.arrow"))
    expected = unbroken(train, first)
    (tmp_path / "full-disk.arrow").unlink()
    stopped(first, 20)
    weights, results, _ = finished(made(data, tmp_path, solver__passes=3, run__cache=str(tmp_path / "other.arrow")))
    assert results == expected[1] and (tmp_path / "other.arrow").exists()
    assert load_model(first.output.model or "").weights.tobytes() in expected[0] and len(weights) > 0


def test_a_cache_that_was_given_up_stays_given_up(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room for a cache later passes read the source in its order, in the rest of the run as well."""
    usual = streamsvm.io.cache.CacheWriter.write
    rows = []

    def full(self: Any, batch: Any) -> None:
        rows.append(self._written + self._rows)
        if rows[-1] > 400:
            raise OSError(28, "No space left on device")
        usual(self, batch)

    chosen = made(data, tmp_path, solver__passes=2)
    monkeypatch.setattr(streamsvm.io.cache.CacheWriter, "write", full)
    expected = unbroken(train, chosen)
    stopped(chosen, 25, politely=True)
    rows.clear()
    *found, notes = finished(chosen)
    assert tuple(found) == expected and not rows


def test_the_directory_may_be_moved_and_the_data_copied(data: str, tmp_path: Path) -> None:
    copy = tmp_path / "rows.svm.gz"
    copy.write_bytes(Path(data).read_bytes())
    chosen = made(str(copy), tmp_path, solver__passes=2)
    expected = unbroken(train, chosen)
    stopped(chosen, 30)
    (tmp_path / "checkpoints").rename(tmp_path / "moved")
    os.utime(copy, (1, 1))
    moved = {"checkpoint__dir": str(tmp_path / "moved"), "run__threads": 1, "run__memory": "60MB"}
    *found, notes = finished(made(str(copy), tmp_path, solver__passes=2, **moved))
    assert found[1] == expected[1] and load_model(chosen.output.model or "").weights.tobytes() in expected[0]
    assert not any("is not here any more" in note for note in notes)


def test_a_run_that_stopped_at_a_bad_row_goes_on_without_it(tmp_path: Path) -> None:
    text = lines(ROWS)
    text[1200] = "1 3:oops"
    (tmp_path / "rows.svm").write_text("\n".join(text) + "\n")
    careful = made(str(tmp_path / "rows.svm"), tmp_path, solver__passes=2)
    life = Life()
    with pytest.raises(DataError, match="rows.svm:1201: "):
        train(careful, life)
    assert life.notes[-1].startswith("--resume goes on from pass 1 of 2, ")
    with pytest.raises(DataError, match="rows.svm:1201: "):  # it is not passed over by going on
        train(careful, Life())
    generous = made(str(tmp_path / "rows.svm"), tmp_path, solver__passes=2, data__on_bad_row="skip")
    *found, _ = finished(generous)
    assert found[1]["bad_rows"] == 1
    Path(generous.output.model or "").unlink()
    assert tuple(found) == unbroken(train, generous)


def test_a_finished_run_only_writes_its_model_again(data: str, tmp_path: Path) -> None:
    chosen = made(data, tmp_path, solver__passes=2, solver__name="sgd", loss="hinge", run__objective=True)
    expected = unbroken(train, chosen)
    assert finished(chosen)[:2] == expected
    before = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    Path(chosen.output.model or "").unlink()
    *found, notes = finished(chosen)
    assert tuple(found) == expected and notes[0].startswith("going on from all passes done, 3,000 examples, in ")
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == before


def test_going_on_from_a_checkpoint_of_the_run_before(data: str, tmp_path: Path) -> None:
    """Without --resume a directory with an unfinished run is not touched; after a finished one a new run begins."""
    chosen = made(data, tmp_path)
    fresh = made(data, tmp_path, checkpoint__resume=False, penalty__l2=1e-4)
    stopped(chosen, 20)
    before = {path.name: path.read_bytes() for path in (tmp_path / "checkpoints").iterdir()}
    with pytest.raises(ModelError, match=r"has a checkpoint of an unfinished run \(pass 1 of 1, .*: add --resume"):
        train(fresh)
    assert {path.name: path.read_bytes() for path in (tmp_path / "checkpoints").iterdir()} == before
    finished(chosen)
    *found, notes = finished(fresh)
    assert not any("going on" in note for note in notes)
    Path(fresh.output.model or "").unlink()
    assert tuple(found) == unbroken(train, fresh)


def test_a_checkpoint_is_a_model(data: str, tmp_path: Path) -> None:
    chosen = made(data, tmp_path, solver__passes=2, features__scale="maxabs")
    stopped(chosen, 41 + 22 + 22 + 9, politely=True)  # batches read, groups counted, first pass, second pass
    model = load_model(str(tmp_path / "checkpoints"))
    assert model.provenance["passes"] == 1 and model.provenance["examples"] > ROWS
    assert evaluate(model, open_stream(data))["error"] < 0.15
    finished(chosen)
    last = load_model(str(tmp_path / "checkpoints"))
    assert last.weights.tobytes() == load_model(chosen.output.model or "").weights.tobytes()
    more = made(data, tmp_path, features__scale="maxabs", solver__init=str(tmp_path / "checkpoints"))
    plain = more.model_copy(update={"checkpoint": Settings().checkpoint})
    assert train(plain).result["examples"] == ROWS
