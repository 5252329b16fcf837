"""The search on real Dask workers: every candidate is what `train` on the same shards gives, whoever does the work."""

import json
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask_processes import PATIENT, scheduler_and_worker
from whole_runs import Notes, bits, class_lines, lines

from streamsvm import load_model, load_settings, train, tune
from streamsvm.distributed import averaging, held_out, tuning
from streamsvm.distributed.cluster import ClusterLostError
from streamsvm.distributed.opening import opened_cluster
from streamsvm.distributed.tuning import ClusterTuning
from streamsvm.errors import ConfigError, DataError, DivergedError
from streamsvm.training import Outcome

ROWS = lines(900, features=40)
SHARDS = 3


def settings_for(path: str, **given: Any) -> Any:
    dotted = {name.replace("__", "."): value for name, value in given.items()}
    usual = {"data.train": path, "output.model": None, "cluster.shards": SHARDS, "data.holdout": 5}
    return load_settings(overrides={**usual, **dotted}, environ={})


class Searches:
    """Runs `tune` and `train` on the cluster; keeps the last search to look into."""

    def __init__(self, client: Any, patch: pytest.MonkeyPatch) -> None:
        self._client = client
        self.run: Any = None
        learn = ClusterTuning.learn

        def kept(run: ClusterTuning) -> None:
            self.run = run
            learn(run)

        patch.setattr(ClusterTuning, "learn", kept)

    def tune(self, path: str, listener: Any = None, **given: Any) -> Outcome:
        return tune(settings_for(path, **given), listener or Notes(), client=self._client)

    def train(self, path: str, **given: Any) -> Outcome:
        return train(settings_for(path, **given), client=self._client)

    def alone(self, path: str, row: dict[str, Any], **given: Any) -> Outcome:
        """What `train` gives with the settings of a candidate, by its row in the result."""
        own = {"penalty__l2": row["l2"], "penalty__l1": row["l1"] or None, "loss": row["loss_kind"]}
        return self.train(path, solver__name=row["solver"], solver__passes=row["passes"], **own, **given)

    def weights(self) -> dict[Any, bytes]:
        """Of every candidate that was in until the end."""
        contest = self.run.contest
        return {
            candidate: model_bits(contest.solver(place).weights())
            for place, candidate in enumerate(contest.candidates)
            if contest.alive[place]
        }


def model_bits(learned: Any) -> bytes:
    return bytes(learned[0].tobytes() + np.float64(learned[1]).tobytes())


@pytest.fixture
def on(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Searches:
    return Searches(cluster._client, monkeypatch)


def check_all(on: Searches, path: str, found: Outcome, **given: Any) -> None:
    """Every candidate has the figures of `train`, and where it was in until the end its weights, to the last bit."""
    weights = on.weights()
    compared = 0
    for row in found.result["candidates"]:
        alone = on.alone(path, row, **given)
        held = alone.result["holdout"]
        assert (row["held_out_loss"], row["held_out_error"]) == (held["loss"], held["error"])
        assert row["eta0"] == alone.result["eta0"]
        assert (row["loss"], row["error"]) == (alone.result["loss"], alone.result["error"])
        for candidate, own in weights.items():
            if (candidate.solver, candidate.loss, candidate.l2, candidate.l1) == (
                *(row["solver"], row["loss_kind"]),
                *(row["l2"], row["l1"]),
            ):
                compared += 1
                assert own == bits(alone)
        if row["best"]:
            assert bits(found) == bits(alone) and found.result["held_out_examples"] == held["examples"]
            assert found.model.provenance["examples"] == alone.model.provenance["examples"]
            assert found.model.online == alone.model.online
    assert compared == len(weights) > 0


@pytest.mark.full
def test_every_candidate_is_what_train_gives(data: str, on: Searches) -> None:
    """Three of them share a kernel; after the first pass one retires."""
    given = {"solver__passes": 3}
    found = on.tune(data, tune__l2="1e-5,1e-2,1e-1", **given)
    assert sorted(row["passes"] for row in found.result["candidates"]) == [1, 2, 3]
    assert found.result["examples"] == 3 * (900 - found.result["held_out_examples"])
    check_all(on, data, found)


@pytest.mark.full
def test_so_is_every_solver_and_loss(data: str, on: Searches) -> None:
    """Candidates of one kernel, such that share none, such without a step size; weights that stop at zero."""
    found = on.tune(data, tune__l2="1e-4,1e-2", tune__solver="sgd,pegasos,adagrad", tune__loss="hinge,logistic")
    assert len(found.result["candidates"]) == 12 and found.result["by"] == "error"
    check_all(on, data, found)
    sparse = {"tune__l2": None, "penalty__l2": 1e-5, "tune__l1": "1e-3,1e-2", "tune__solver": "ftrl"}
    check_all(on, data, on.tune(data, solver__passes=2, **sparse))


def test_a_step_size_that_is_given(data: str, on: Searches) -> None:
    found = on.tune(data, tune__l2="1e-4,1e-2", solver__eta0=0.02, solver__passes=2)
    assert {row["eta0"] for row in found.result["candidates"]} == {0.02}
    check_all(on, data, found, solver__eta0=0.02)


@pytest.mark.full
def test_several_classes(write: Callable[..., str], on: Searches) -> None:
    path = write(class_lines(600, labels=[1, 2, 5]))
    found = on.tune(path, tune__l2="1e-4,1e-2", solver__passes=2)
    assert found.model.classes == [1, 2, 5] and found.model.weights.shape[1] == 3
    check_all(on, path, found)


@pytest.mark.full
def test_scales_weights_and_probabilities(data: str, on: Searches) -> None:
    given = {"features__scale": "standard", "data__class_weights": "balanced", "calibration": "isotonic"}
    found = on.tune(data, tune__l2="1e-4,1e-2", **given)
    alone = on.train(data, penalty__l2=found.result["l2"], **given)
    assert bits(found) == bits(alone) and np.array_equal(found.model.scale, alone.model.scale)
    assert found.result["calibration"] == alone.result["calibration"]
    assert found.model.calibration.arrays().keys() == alone.model.calibration.arrays().keys()
    for name, array in alone.model.calibration.arrays().items():
        assert np.array_equal(found.model.calibration.arrays()[name], array)


@pytest.mark.full
def test_a_map(data: str, on: Searches) -> None:
    given = {"map": "nystroem", "map__size": 30, "solver": "asgd"}
    found = on.tune(data, tune__l2="1e-4,1e-2", **given)
    assert found.model.map is not None
    assert bits(found) == bits(on.train(data, penalty__l2=found.result["l2"], **given))


@pytest.mark.full
def test_the_number_of_workers_changes_nothing(data: str, on: Searches) -> None:
    given = {"tune__l2": "1e-5..1e-1", "tune__candidates": 5, "tune__solver": "asgd,ftrl", "solver__passes": 2}
    two = on.tune(data, **given)
    with opened_cluster("local:1", None, PATIENT, lambda text: None) as single:
        one = tune(settings_for(data, **given), client=single._client)
    assert bits(one) == bits(two)
    who = {"seconds": 0, "cluster": None}
    assert one.result | who == two.result | who


@pytest.mark.full
def test_large_vectors_are_added_as_small_ones_are(
    data: str, cluster: Any, on: Searches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many shards: those of all candidates by tasks in a tree, those of one by the driver."""
    vectors = np.random.default_rng(0).standard_normal((20, 500))
    calls = {k: [vector] for k, vector in enumerate(vectors)}
    sums = [cluster.summed(lambda vector: (vector, None), calls, size)[0] for size in (1000, 2 << 20)]
    assert sums[0].tobytes() == sums[1].tobytes() and np.allclose(sums[0], vectors.sum(axis=0))
    monkeypatch.setattr("streamsvm.distributed.cluster.LARGE", 500)
    found = on.tune(data, tune__l2="1e-4,1e-2", cluster__shards=9)
    assert on.run.passes.team.count == 9
    check_all(on, data, found, cluster__shards=9)


WILD = [*lines(600, features=40), *["1 1:1e17 2:1e17", "-1 1:9e16 2:-1e17"] * 20]


@pytest.mark.full
def test_candidates_that_diverge_on_one_shard(write: Callable[..., str], on: Searches) -> None:
    """The last rows are too long but for tiny steps; who takes these is not disturbed."""
    own = {"loss": "hinge", "solver__name": "folos", "solver__eta0": 0.1, "features__scale": "none"}
    path = write(WILD)
    found = on.tune(path, tune__l2="1e-4,1e6,1e-3", solver__passes=2, **own)
    first, best, third = found.result["candidates"]
    assert first["loss"] is third["loss"] is None and math.isnan(first["held_out_loss"])
    assert first["eta0"] == third["eta0"] == 0.1
    assert best["best"] and sorted([first["passes"], third["passes"]]) == [1, 2]
    alone = on.train(path, penalty__l2=1e6, solver__passes=2, **own)
    assert bits(found) == bits(alone) and best["held_out_loss"] == alone.result["holdout"]["loss"]
    with pytest.raises(DivergedError):
        on.train(path, penalty__l2=1e-4, **own)
    with pytest.raises(DivergedError, match="all candidates diverged"):
        on.tune(path, tune__l2="1e-4,1e-3", solver__passes=2, **own)


def test_bytes_are_counted(data: str, on: Searches) -> None:
    """One mean of each candidate to each worker, its sums from each shard and to the driver."""
    sent = []
    for grid in ("1e-3", "1e-5,1e-4,1e-3,1e-2"):
        dim = on.tune(data, tune__l2=grid, calibration="none").model.dim
        sent.append(on.run.passes.team.cluster.sent)
    assert sent == [dim * (4 * 2 + 8 * (SHARDS + 1)), 4 * dim * (4 * 2 + 8 * (SHARDS + 1))]


def test_only_sums_come_back_where_no_scores_are_wanted(
    data: str, on: Searches, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    ask = held_out.Team.ask

    def watched(team: Any, task: Any, *arguments: Any) -> Any:
        if task is held_out.work.held_out:
            asked.append(arguments[-1])
        return ask(team, task, *arguments)

    monkeypatch.setattr(held_out.Team, "ask", watched)
    on.tune(data, tune__l2="1e-4,1e-3", solver__passes=2, calibration="none")
    assert asked == [False, False]
    on.tune(data, tune__l2="1e-4,1e-3", solver__passes=2)
    assert asked[2:] == [False, False, True]


def test_too_wide_for_the_memory(write: Callable[..., str], on: Searches) -> None:
    path = write([*ROWS, "1 1000000:1"])
    with pytest.raises(DataError, match=r"index 1000000: 16 candidates .* try at most \d+ candidates, .*--memory"):
        on.tune(path, run__memory="256MB")


REFUSED = [
    ({"data__limit": 10}, r"data\.limit: not on a cluster"),
    ({"data__shuffle": 100}, r"data\.shuffle: not on a cluster"),
    ({"features__names": True}, r"features\.names: not on a cluster"),
    ({"solver": "dcd"}, "cannot be tuned side by side"),
    ({"solver": "norma"}, "cannot be tuned side by side"),
    ({"data__train": None}, "no training data"),
]


@pytest.mark.parametrize(("given", "said"), REFUSED, ids=lambda value: str(value)[:30])
def test_what_needs_one_machine_is_refused(given: dict[str, Any], said: str, data: str, on: Searches) -> None:
    with pytest.raises(ConfigError, match=said):
        on.tune(data, **given)


# What breaks.

GRID = {"tune__l2": "1e-5,1e-3,1e-1", "solver__passes": 2}


class Once(Notes):
    """A listener that does something when the worse half has retired."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self._act: Callable[[], None] | None = act

    def note(self, text: str) -> None:
        super().note(text)
        if "go on" in text and self._act is not None:
            act, self._act = self._act, None
            act()


@pytest.fixture(scope="module")
def unbroken(data: str, cluster: Any) -> Outcome:
    return tune(settings_for(data, **GRID), client=cluster._client)


def same(found: Outcome, unbroken: Outcome) -> bool:
    return bits(found) == bits(unbroken) and found.result["candidates"] == unbroken.result["candidates"]


@pytest.mark.full
def test_a_scheduler_that_is_gone_leaves_a_checkpoint(
    data: str, tmp_path: Path, unbroken: Outcome, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = str(tmp_path / "checkpoints")
    with scheduler_and_worker(tmp_path) as (address, scheduler), monkeypatch.context() as patch:

        def end() -> None:
            patch.setattr("streamsvm.distributed.cluster.PATIENCE", 5.0)
            scheduler.kill()

        with pytest.raises(ClusterLostError, match="does not answer"):
            tune(settings_for(data, cluster__at=address, checkpoint__dir=kept, **GRID), Once(end))
    again = settings_for(data, checkpoint__dir=kept, checkpoint__resume=True, **GRID)
    notes = Notes()
    assert same(tune(again, notes, client=cluster._client), unbroken)
    assert any("pass 2 of 2" in note for note in notes.notes)
    assert same(tune(again, notes, client=cluster._client), unbroken)  # all is learned, and can be had again
    assert any("all passes done" in note for note in notes.notes)


@pytest.mark.full
@pytest.mark.parametrize("command", [tune, train], ids=["tune", "train"])
def test_lost_between_a_pass_and_its_held_out_rows(
    command: Any, data: str, tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was learned is not learned again."""
    given = GRID if command is tune else {"solver__passes": 2, "calibration": "platt", "penalty__l2": 1e-3}
    measure, calls = held_out.measure_on_workers, iter(range(9))

    def lost(*given: Any) -> None:
        if next(calls) == 1:  # of the second pass
            raise ClusterLostError("gone")
        measure(*given)

    usual = {"checkpoint__dir": str(tmp_path / "checkpoints"), **given}
    with monkeypatch.context() as patch:
        for room in (averaging, tuning):
            patch.setattr(room, "measure_on_workers", lost)
        with pytest.raises(ClusterLostError, match="gone"):
            command(settings_for(data, **usual), client=cluster._client)
    again = settings_for(data, checkpoint__resume=True, **usual)
    whole = command(settings_for(data, **given), client=cluster._client)
    for _ in range(2):  # the second time all is learned already
        found = command(again, client=cluster._client)
        assert bits(found) == bits(whole) and found.result["examples"] == whole.result["examples"]
        assert found.result["calibration"] == whole.result["calibration"] is not None
    key = "candidates" if command is tune else "holdout"
    assert found.result[key] == whole.result[key]


def test_the_command(run: Any, data: str, cluster: Any, unbroken: Outcome) -> None:
    grid = GRID["tune__l2"]
    code, out, err = run(
        *("tune", data, "--l2", grid, "--cluster", cluster._client.scheduler.address, "--shards", SHARDS),
        *("--holdout", "5", "--passes", "2", "--report", "r.html", "--json", "-o", "best.safetensors"),
    )
    assert code == 0, err
    *progress, result = [json.loads(line) for line in out.splitlines()]
    assert progress and result["model"] == "best.safetensors" and load_model(result["model"]).dim == result["dim"]
    assert result["candidates"] == unbroken.result["candidates"]
    assert "held-out rows" in Path("r.html").read_text()


def test_a_worker_that_is_killed(data: str, cluster: Any, unbroken: Outcome) -> None:
    """The last test: there is one worker less afterwards, for a while."""
    victim = next(iter(cluster._client.run(os.getpid).values()))
    listener = Once(lambda: os.kill(victim, signal.SIGKILL))
    assert same(tune(settings_for(data, **GRID), listener, client=cluster._client), unbroken)
    assert listener._act is None
