"""Maps on their way through the program: every solver, every format of the model, stops and streams, mistakes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC
from tiers import examples

from streamsvm import Model, follow, load_model, load_settings, open_stream, train, tune
from streamsvm.batch import Batch
from streamsvm.config import with_usual
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.evaluate import evaluate
from streamsvm.exchange.liblinear import to_liblinear
from streamsvm.features.maps.base import RowMap
from streamsvm.features.maps.landmarks import Kernel, Nystroem, Prototypes, pick_landmarks
from streamsvm.features.maps.make import make_map, restored_map
from streamsvm.features.maps.neighbours import gaussian_gamma, laplace_gamma
from streamsvm.features.maps.product import multiply, packed
from streamsvm.features.maps.room import Room
from streamsvm.features.maps.spread import LOOKED_UP, dense_spread, sparse_spread
from streamsvm.features.maps.wish import Wish
from streamsvm.mapping import chosen_rows
from streamsvm.offered import EXACT, MAPS, ONLINE
from streamsvm.progress import Silent
from streamsvm.training import Outcome

Array = np.ndarray[Any, Any]
KINDS = [kind for kind in MAPS if kind != "rbf"]


def ring(rows: int, seed: int = 0, classes: int = 2, columns: int = 3) -> tuple[Array, Array]:
    """Rows around the middle, of a class by their distance from it: no line tells them apart."""
    chance = np.random.default_rng(seed)
    points = chance.uniform(-1.0, 1.0, (rows, columns)).astype(np.float32)
    far = np.hypot(points[:, 0], points[:, 1])
    return points, np.minimum((far * classes / 1.3).astype(int), classes - 1)


def batch_of(points: Array, labels: Array | None = None) -> Batch:
    rows, width = points.shape
    labels = np.zeros(rows) if labels is None else labels
    return Batch(
        np.arange(rows + 1, dtype=np.int64) * width,
        np.tile(np.arange(width, dtype=np.uint32), rows),
        points.astype(np.float32).reshape(-1),
        labels.astype(np.float32),
        np.ones(rows, np.float32),
    )


def sparse_of(points: Array) -> Batch:
    """Without the zeros."""
    there = points != 0.0
    indptr = np.append(0, np.cumsum(there.sum(axis=1)))
    return Batch(
        indptr,
        np.nonzero(there)[1].astype(np.uint32),
        points[there].astype(np.float32),
        np.zeros(len(points), np.float32),
        np.ones(len(points), np.float32),
    )


def written(path: Path, points: Array, labels: Array, names: tuple[str, ...] = ("-1", "+1")) -> str:
    names = names if labels.max() < 2 else tuple(str(k) for k in range(labels.max() + 1))
    lines = (
        f"{names[label]} " + " ".join(f"{j + 1}:{value:.7g}" for j, value in enumerate(row))
        for row, label in zip(points, labels, strict=True)
    )
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    place = tmp_path_factory.mktemp("rings")
    return written(place / "train.svm", *ring(3000)), written(place / "test.svm", *ring(2000, seed=1))


def learned(files: tuple[str, str], listener: Any = Silent(), **given: Any) -> Outcome:
    overrides = {"data.train": files[0], "data.test": files[1], "output.model": None}
    overrides |= {key.replace("__", "."): value for key, value in given.items()}
    return train(load_settings(overrides=overrides, environ={}), listener)


# The maps themselves.


def test_prototypes_are_the_kernel_to_the_landmarks() -> None:
    points = ring(50)[0]
    found = Prototypes(points[:9], Kernel("gaussian", 1.7)).rows(points)
    assert np.allclose(found, rbf_kernel(points, points[:9], 1.7), atol=1e-6)
    for kernel, expected in (
        (Kernel("polynomial", 0.5, 3, 2.0), (0.5 * points @ points[:9].T + 2.0) ** 3),
        (Kernel("linear"), points @ points[:9].T),
    ):
        assert np.allclose(Prototypes(points[:9], kernel).rows(points), expected, atol=1e-5)


def test_nearness_of_all_sizes_is_exact() -> None:
    """From 1 down to where float32 ends."""
    far = np.zeros((200, 1), np.float32)
    far[:, 0] = np.linspace(0.0, 12.0, 200)
    found = Prototypes(far[:1], Kernel("gaussian", 0.6)).rows(far)[:, 0]
    expected = np.exp(-0.6 * far[:, 0].astype(float) ** 2)
    assert np.abs(found / expected - 1.0).max() < 1e-5 and found[0] == 1.0
    beyond = Prototypes(far[:1], Kernel("gaussian", 1e6)).rows(far)[1:, 0]
    assert (beyond >= 0.0).all() and (beyond < 1e-37).all()


def test_nystroem_has_the_kernel_wherever_a_landmark_is() -> None:
    points = ring(400)[0]
    nystroem = Nystroem(points[:60], Kernel("gaussian", 2.0))
    phi = nystroem.rows(points)
    exact = rbf_kernel(points, points, 2.0)
    assert np.abs((phi @ phi.T)[:60] - exact[:60]).max() < 1e-2
    errors = []
    for landmarks in (15, 60, 240):
        phi = Nystroem(points[:landmarks], Kernel("gaussian", 2.0)).rows(points)
        errors.append(float(np.abs(phi @ phi.T - exact).mean()))
    assert errors[0] > 3.0 * errors[1] > 9.0 * errors[2]


@pytest.mark.full
def test_with_all_rows_as_landmarks_a_linear_solver_is_a_kernel_machine(tmp_path: Path) -> None:
    """The exact reference on small data: the same decisions as LIBSVM, whose bias is free, as good as everywhere."""
    (points, labels), (others, _) = ring(250, columns=2), ring(400, seed=1, columns=2)
    gamma = 3.0
    reference = SVC(C=2.0, gamma=gamma).fit(points, labels)
    nystroem = RowMap(
        sparse_spread(batch_of(points), "none"), Nystroem(points.astype(np.float32), Kernel("gaussian", gamma))
    )
    mapped = nystroem.dense(batch_of(points))
    file = written(tmp_path / "mapped.svm", mapped, labels)
    given: dict[str, Any] = {
        "solver.name": "dcd",
        "loss": "hinge",
        "penalty.C": 2.0,
        "solver.tol": 1e-6,
        "bias.scale": 10.0,
    }
    given["solver.passes"] = 100_000
    model = train(load_settings(overrides={"data.train": file, "output.model": None, **given}, environ={})).model
    scores = nystroem.dense(batch_of(others)) @ model.weights[1:] + model.bias
    expected = reference.decision_function(others)
    assert np.abs(scores - expected).max() < 2e-3 * np.abs(expected).max()


@pytest.mark.parametrize("size", [1, 15, 16, 50])
def test_zeros_below_the_diagonal_cost_nothing_and_change_nothing(size: int) -> None:
    chance = np.random.default_rng(0)
    rows, matrix = (chance.normal(size=(n, size)).astype(np.float32) for n in (37, size))
    panels = packed(np.triu(matrix))
    whole, half = np.empty((37, size), np.float32), np.empty((37, size), np.float32)
    multiply(rows, panels, whole, size)
    multiply(rows, panels, half, size, triangular=True)
    assert whole.tobytes() == half.tobytes()
    multiply(rows, packed(matrix), whole, size, triangular=True)
    assert size <= 16 or whole.tobytes() != half.tobytes()


def test_memory_is_lent_again_only_when_nobody_has_it_any_more() -> None:
    room = Room()
    first, second = room.lent(100), room.lent(50)
    part = first[10:20].reshape(2, 5)
    part[:], second[:] = 1.0, 2.0
    assert not np.shares_memory(first, second) and first.ctypes.data % 64 == 0
    del first
    third = room.lent(100)
    assert not np.shares_memory(part, third)
    place = part.ctypes.data
    del part
    again = room.lent(30)
    assert again.ctypes.data <= place < again.ctypes.data + 400 and len(again) == 30 and (second == 2.0).all()
    longer = room.lent(200)
    assert len(longer) == 200 and not np.shares_memory(longer, again)


def test_landmarks_are_rows_or_means_of_rows() -> None:
    chance = np.random.default_rng(0)
    heaps = np.concatenate([chance.normal(m, 0.01, (200, 2)) for m in (0.0, 1.0, 2.0)]).astype(np.float32)
    rows = pick_landmarks(heaps, 20, 7, means=False)
    assert {row.tobytes() for row in rows} <= {row.tobytes() for row in heaps} and len(rows) == 20
    means = pick_landmarks(heaps, 3, 7, means=True)
    distances = np.sqrt(((heaps[:, None] - means) ** 2).sum(axis=2)).min(axis=1).mean()
    picked = np.sqrt(((heaps[:, None] - pick_landmarks(heaps, 3, 7, means=False)) ** 2).sum(axis=2)).min(axis=1).mean()
    assert distances <= picked
    assert np.array_equal(pick_landmarks(heaps, 20, 7, means=True), pick_landmarks(heaps, 20, 7, means=True))
    assert len(pick_landmarks(heaps[:5], 20, 7, means=True)) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_mapped_alike_wherever_it_stands(kind: str) -> None:
    points = ring(700, columns=5)[0]
    batch = batch_of(points)
    made = make_map(Wish(kind, 64, seed=3), batch, 700, 2)
    whole = made.apply(batch)
    for start, stop in ((0, 1), (0, 700), (3, 16), (511, 700), (699, 700)):
        part = made.apply(batch.slice(start, stop))
        a, b = whole.indptr[start], whole.indptr[stop]
        count = b - a
        assert part.indices[:count].tobytes() == whole.indices[a:b].tobytes()
        assert part.values[:count].tobytes() == whole.values[a:b].tobytes()
        assert np.array_equal(part.indptr, whole.indptr[start : stop + 1] - a)
    for threads in (1, 3):
        pieces = [(part, rows.values.copy()) for part, rows in made.pieces(batch, threads)]
        assert [part.start for part, _ in pieces] == list(range(0, 700, made.piece_rows))
        assert np.concatenate([values for _, values in pieces]).tobytes() == whole.values.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_a_map_comes_out_of_a_model_as_it_went_in(kind: str) -> None:
    points = ring(300, columns=150)[0]  # so many that rows are rotated
    batch = batch_of(points)
    made = make_map(Wish(kind, 64, seed=5), batch, 300, 2)
    arrays = {name.removeprefix("map."): array for name, array in made.arrays().items()}
    again = restored_map(made.plain(), arrays)
    assert again.same_as(made) and again.summary() == made.summary() and str(made.width)[:1] in made.summary()
    assert again.apply(batch).values.tobytes() == made.apply(batch).values.tobytes()
    assert again.apply(batch).indices.tobytes() == made.apply(batch).indices.tobytes()
    other = make_map(Wish(kind, 64, seed=6, gamma=0.123), batch, 300, 2)
    assert not other.same_as(made)


@pytest.mark.parametrize("kind", KINDS)
def test_absent_features_are_zeros(kind: str) -> None:
    points = ring(300, columns=6)[0]
    points[::2, 1] = 0.0
    points[::3, 4] = 0.0
    made = make_map(Wish(kind, 64, seed=5), batch_of(points), 300, 2)
    dense, sparse = made.apply(batch_of(points)), made.apply(sparse_of(points))
    if kind == "polynomial":
        assert np.allclose(dense.values, sparse.values)
    else:
        assert dense.values.tobytes() == sparse.values.tobytes() and dense.indices.tobytes() == sparse.indices.tobytes()


# Spread.


def test_columns_are_brought_to_comparable_sizes() -> None:
    chance = np.random.default_rng(0)
    points = np.column_stack([chance.uniform(2000, 4000, 500), chance.uniform(0, 1, 500), np.full(500, 7.0)])
    spread = sparse_spread(batch_of(points), "range")
    scaled = spread.sparse(batch_of(points)).values.reshape(500, 3)
    assert np.allclose(np.ptp(scaled, axis=0), [1.0, 1.0, 0.0], atol=1e-6)
    alike = sparse_spread(batch_of(points[:, 1:2] * [1.0, 3.0]), "range")
    assert alike.factors[0] == alike.factors[1] == pytest.approx(1.0 / np.ptp(3.0 * points[:, 1]), rel=1e-6)
    assert np.allclose(sparse_spread(batch_of(points), "maxabs").factors, 1.0 / points.max(axis=0), rtol=1e-6)
    deviations = np.append(points[:, :2].std(axis=0), 1.0)
    assert np.allclose(sparse_spread(batch_of(points), "standard").factors, 1.0 / deviations, rtol=1e-5)
    centred = dense_spread(batch_of(points), "range", 0, rotate=True)
    assert np.abs(centred.dense(batch_of(points)).mean(axis=0)).max() < 1e-4


def test_columns_are_found_in_the_table_and_beyond_it() -> None:
    near = batch_of(ring(50)[0])
    for first in (LOOKED_UP - 1, LOOKED_UP, 2**32 - 3):
        far = near._replace(indices=near.indices + np.uint32(first))
        spread, expected = dense_spread(far, "range", 0, rotate=False), dense_spread(near, "range", 0, rotate=False)
        assert np.array_equal(spread.dense(far), expected.dense(near))
        assert np.ptp(spread.dense(near), axis=0).max() == np.ptp(expected.dense(far), axis=0).max() == 0.0
        assert np.array_equal(sparse_spread(far, "range").sparse(far).indices, near.indices)


def test_columns_that_the_sample_did_not_have_are_left_out() -> None:
    spread = sparse_spread(batch_of(ring(20)[0]), "none")
    rows = Batch(
        np.array([0, 3]), np.array([1, 2, 900], np.uint32), np.array([5, 6, 7], np.float32), np.zeros(1, np.float32),
        np.ones(1, np.float32),
    )  # fmt: skip
    assert spread.sparse(rows).values.tolist() == [5.0, 6.0] and spread.dense(rows).tolist() == [[0.0, 5.0, 6.0]]


def test_of_very_many_columns_the_most_frequent_stay() -> None:
    rows, columns = 50, 6000
    values = np.ones(rows * 200, np.float32)
    chance = np.random.default_rng(0)
    rare = [np.sort(chance.choice(np.arange(10, columns), 190, replace=False)) for _ in range(rows)]
    indices = np.concatenate([np.append(np.arange(10), row) for row in rare]).astype(np.uint32)
    sample = Batch(np.arange(rows + 1) * 200, indices, values, np.zeros(rows, np.float32), np.ones(rows, np.float32))
    spread = sparse_spread(sample, "none")
    assert len(spread.columns) == 4096 and spread.columns[:10].tolist() == list(range(10))


def test_the_widest_directions_are_those_of_the_covariance() -> None:
    chance = np.random.default_rng(0)
    sizes = 0.8 ** np.arange(200)
    points = (chance.normal(size=(800, 200)) * sizes) @ np.linalg.qr(chance.normal(size=(200, 200)))[0]
    spread = dense_spread(batch_of(points), "none", 0, rotate=True)
    assert spread.rotation is not None and spread.rotation.shape == (200, 64)
    assert np.allclose(spread.rotation.T @ spread.rotation, np.eye(64), atol=1e-5)
    kept = spread.dense(batch_of(points)).var(axis=0).sum()
    best = np.linalg.eigvalsh(np.cov(points.T))[-64:].sum()
    assert kept == pytest.approx(best, rel=5e-3)


# gamma.


def test_gamma_goes_with_the_size_of_the_rows() -> None:
    points = ring(2500)[0]
    assert gaussian_gamma(10.0 * points, 0) == pytest.approx(gaussian_gamma(points, 0) / 100.0, rel=1e-3)
    assert laplace_gamma(10.0 * points, 2500, 0) == pytest.approx(laplace_gamma(points, 2500, 0) / 10.0, rel=1e-3)
    assert laplace_gamma(points, 10**6, 0) > 2.0 * laplace_gamma(points, 2500, 0)
    distances = np.sort(((points[:500, None] - points[500:]) ** 2).sum(axis=2), axis=1)
    assert gaussian_gamma(points, 0) == pytest.approx(1.0 / np.median(distances[:, 9]), rel=0.15)


def test_gamma_of_twins_and_of_next_to_nothing() -> None:
    same = np.ones((300, 2), np.float32)
    assert gaussian_gamma(same, 0) == 1.0 and laplace_gamma(same, 300, 0) == 1.0
    assert gaussian_gamma(same[:1], 0) == 1.0 and laplace_gamma(same[:2], 2, 0) == 1.0
    mostly = np.concatenate([same, 2.0 * same[:290]])
    assert np.isfinite(gaussian_gamma(mostly, 0)) and np.isfinite(laplace_gamma(mostly, 590, 0))


# Learning.


def test_without_a_map_a_ring_cannot_be_learned_and_with_rbf_it_is_all_that_is_to_be_typed(
    files: tuple[str, str],
) -> None:
    assert learned(files, solver__name="dcd").result["test"]["error"] > 0.3
    outcome = learned(files, map__kind="rbf")
    assert outcome.result["test"]["error"] < 0.03 and outcome.result["gap"] < 5e-2
    assert outcome.model.map is not None and outcome.model.map.kind == "bins"
    assert outcome.result["solver"] == "dcd" and outcome.result["l2"] == pytest.approx(1.0 / 3000)


@pytest.mark.parametrize("kind", KINDS)
def test_every_map_learns_a_ring(files: tuple[str, str], kind: str) -> None:
    outcome = learned(files, map__kind=kind, map__size=None if kind == "polynomial" else 256)
    assert outcome.result["test"]["error"] < 0.05


@pytest.mark.parametrize(
    "solver",
    [
        pytest.param(name, marks=[pytest.mark.full] * (name not in ("asgd", "dcd", "newton")))
        for name in (*ONLINE, *EXACT)
    ],
)
def test_every_solver_learns_from_mapped_rows(files: tuple[str, str], solver: str) -> None:
    passes = {"solver__passes": 4} if solver in ONLINE else {"solver__tol": 1e-2}
    outcome = learned(files, map__kind="nystroem", map__size=120, solver__name=solver, **passes)
    assert outcome.result["test"]["error"] < (0.15 if solver in ONLINE else 0.06)


def test_unscaled_columns_need_no_care(tmp_path: Path) -> None:
    sizes = [1e4, 1e-3, 1.0]
    points, labels = ring(3000)
    others, expected = ring(1000, seed=1)
    file = written(tmp_path / "a.svm", points * sizes, labels), written(tmp_path / "b.svm", others * sizes, expected)
    for kind in ("bins", "nystroem", "fourier"):
        assert learned(file, map__kind=kind).result["test"]["error"] < 0.04, kind


@pytest.mark.parametrize("kind", ["bins", "nystroem"])
@pytest.mark.parametrize("solver", ["dcd", "asgd"])
def test_more_than_two_classes(tmp_path: Path, kind: str, solver: str) -> None:
    file = written(tmp_path / "a.svm", *ring(4000, classes=3)), written(tmp_path / "b.svm", *ring(1000, 1, classes=3))
    outcome = learned(file, map__kind=kind, solver__name=solver, map__size=200)
    assert outcome.model.many and outcome.result["test"]["error"] < (0.06 if solver == "dcd" else 0.1)


def test_tune_takes_a_map(files: tuple[str, str]) -> None:
    given = {"data.train": files[0], "output.model": None, "tune.candidates": 3, "map.kind": "bins"}
    outcome = tune(load_settings(overrides=given, environ={}))
    assert outcome.model.map is not None and evaluate(outcome.model, open_stream(files[1]))["error"] < 0.06


@pytest.mark.parametrize("kind", ["bins", "nystroem"])
def test_memory_blocks_and_threads_change_nothing(files: tuple[str, str], kind: str) -> None:
    """Of the map, that is: its sample and what is made of it."""
    common: dict[str, Any] = {"map__kind": kind, "map__size": 40, "solver__name": "asgd", "solver__passes": 2}
    first = learned(files, run__threads=1, **common).model
    second = learned(files, run__threads=3, run__memory="64MB", **common).model
    assert first.map is not None and second.map is not None and first.map.same_as(second.map)
    assert first.weights.tobytes() == second.weights.tobytes()


def test_held_out_rows_have_no_part_in_the_map(tmp_path: Path) -> None:
    points, labels = ring(900)
    spoiled = points.copy()
    rows = learned((written(tmp_path / "a.svm", points, labels),) * 2, map__kind="nystroem", data__holdout=3)
    held = held_rows_of(900, 3)
    spoiled[held] *= 50.0
    other = learned((written(tmp_path / "b.svm", spoiled, labels),) * 2, map__kind="nystroem", data__holdout=3)
    assert rows.model.map is not None and other.model.map is not None and rows.model.map.same_as(other.model.map)
    assert rows.result["holdout"]["error"] < 0.1


def held_rows_of(rows: int, every: int) -> Array:
    from streamsvm.passes import marked

    points, labels = ring(rows)
    return np.signbit(marked(batch_of(points, labels), 0, every).weights)


@pytest.mark.parametrize("kind", ["rbf", "nystroem"])
def test_another_seed_is_another_map(files: tuple[str, str], kind: str) -> None:
    one, other = (learned(files, map__kind=kind, run__seed=seed).model for seed in (0, 1))
    assert one.map is not None and other.map is not None and not one.map.same_as(other.map)


# Streams that are read once.


@pytest.mark.full
def test_standard_input_is_kept_for_the_sample(files: tuple[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "streamsvm", "train", "-", "--map", "rbf", "--test", files[1], "--json", "-o"]
    done = subprocess.run(
        [*command, str(tmp_path / "m.safetensors")], input=Path(files[0]).read_bytes(), capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout)
    assert result["test"]["error"] < 0.06 and result["solver"] == "asgd"


def test_without_a_cache_the_first_batch_makes_the_map(files: tuple[str, str], tmp_path: Path) -> None:
    outcome = learned(files, map__kind="bins", solver__name="asgd", run__cache="off")
    assert outcome.result["test"]["error"] < 0.08
    few = written(tmp_path / "few.svm", *ring(40))
    told: list[str] = []

    class Told(Silent):
        def note(self, text: str) -> None:
            told.append(text)

    learned((few, few), Told(), map__kind="bins", solver__name="asgd", run__cache="off")
    assert any("the first batch has 40; more would make a better one" in text for text in told)
    told.clear()
    assert learned((few, few), Told(), map__kind="bins", solver__name="asgd").result["examples"] == 40
    assert not any("warning" in text and "batch" in text for text in told)


@pytest.mark.parametrize("kind", ["bins", "nystroem"])
def test_a_log_is_followed_with_a_map(tmp_path: Path, kind: str) -> None:
    points, labels = ring(4000)
    file = written(tmp_path / "log.svm", points, labels)
    given = {"data.train": file, "output.model": str(tmp_path / "m.safetensors"), "follow.until_idle": True}
    given |= {"map.kind": kind, "follow.idle": "0.1s", "map.size": 200}
    model, _ = follow(load_settings(overrides=given, environ={}))
    assert model.map is not None and model.map.kind == kind
    rest = written(tmp_path / "rest.svm", *ring(2000, seed=2))
    more = {**given, "data.train": rest, "solver.init": str(tmp_path / "m.safetensors")}
    after, _ = follow(load_settings(overrides={**more, "output.model": str(tmp_path / "n.safetensors")}, environ={}))
    assert after.map is not None and after.map.same_as(model.map) and after.provenance["examples"] == 2000
    test = written(tmp_path / "test.svm", *ring(1000, seed=3))
    assert evaluate(after, open_stream(test))["error"] < 0.08
    trickle = written(tmp_path / "trickle.svm", *ring(20))
    few = {**given, "data.train": trickle, "output.model": str(tmp_path / "few.safetensors")}
    with pytest.raises(DataError, match="the first batch has 20: train a model on rows that are there already"):
        follow(load_settings(overrides=few, environ={}))


@pytest.mark.parametrize("solver", ["norma", pytest.param("kernel_pegasos", marks=pytest.mark.full)])
def test_kernel_learners_learn_save_and_go_on(files: tuple[str, str], tmp_path: Path, solver: str) -> None:
    path = str(tmp_path / "m.safetensors")
    common: dict[str, Any] = {"solver__name": solver, "solver__budget": 150}
    outcome = learned(files, output__model=path, solver__passes=2, **common)
    assert outcome.result["test"]["error"] < 0.12 and outcome.model.dim <= 150
    assert outcome.model.map is not None and outcome.model.map.kind == "prototypes"
    again = load_model(path)
    rows = batch_of(np.column_stack([np.zeros(500), ring(500, seed=3)[0]]))
    assert again.scores(rows).tobytes() == outcome.model.scores(rows).tobytes()
    more = learned(files, solver__init=path, **common)
    assert more.result["test"]["error"] < 0.12
    given = {"data.train": files[0], "output.model": str(tmp_path / "f.safetensors"), "follow.until_idle": True}
    given |= {"follow.idle": "0.1s", "solver.name": solver, "solver.budget": 150}
    with pytest.raises(ConfigError, match="must see some rows before it begins"):
        follow(load_settings(overrides=given, environ={}))
    model, _ = follow(load_settings(overrides={**given, "solver.init": path, "follow.forget": 5000}, environ={}))
    assert evaluate(model, open_stream(files[1]))["error"] < 0.15
    with pytest.raises(ModelError, match="this run has another"):
        learned(files, solver__init=path, solver__kernel="polynomial", **common)
    mapped = str(tmp_path / "mapped.safetensors")
    learned(files, map__kind="bins", output__model=mapped)
    with pytest.raises(ModelError, match="not one of a kernel learner"):
        learned(files, solver__init=mapped, **common)
    with pytest.raises(ConfigError, match="has a kernel of its own"):
        learned(files, map__kind="rbf", **common)


def test_kernel_learners_have_two_classes(tmp_path: Path) -> None:
    file = written(tmp_path / "a.svm", *ring(500, classes=3))
    with pytest.raises(ConfigError, match="learns two classes, and there are 3: use --map rbf"):
        learned((file, file), solver__name="norma")


# The model.


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_keeps_its_map(files: tuple[str, str], tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "m.safetensors")
    model = learned(files, map__kind=kind, map__size=48 if kind != "polynomial" else None, output__model=path).model
    again = load_model(path)
    rows = batch_of(np.column_stack([np.zeros(500), ring(500, seed=3)[0]]))
    assert again.map is not None and model.scores(rows).tobytes() == again.scores(rows).tobytes()
    assert again.full_recipe()["map"]["kind"] == again.map.kind and again.recipe == model.recipe


def test_learning_goes_on_from_a_model_with_its_map(files: tuple[str, str], tmp_path: Path) -> None:
    path, bare = str(tmp_path / "m.safetensors"), str(tmp_path / "bare.safetensors")
    first = learned(files, map__kind="nystroem", solver__name="asgd", output__model=path)
    for solver in ("asgd", "dcd"):
        more = learned(files, solver__init=path, solver__name=solver)
        assert more.model.map is not None and first.model.map is not None
        assert more.model.map.same_as(first.model.map) and more.result["test"]["error"] < 0.05
    learned(files, output__model=bare)
    with pytest.raises(ModelError, match="the initial model was trained without a map"):
        learned(files, solver__init=bare, map__kind="rbf")


def test_a_damaged_map_is_told(files: tuple[str, str], tmp_path: Path) -> None:
    from streamsvm.io import tensors
    from streamsvm.model import MODEL

    model = learned(files, map__kind="nystroem", map__size=20).model

    def loaded_with(metadata: dict[str, str], arrays: dict[str, Any]) -> Model:
        path = tmp_path / "broken.safetensors"
        with open(path, "wb") as file:
            tensors.save(MODEL, metadata, arrays, file.write)
        return load_model(str(path))

    metadata, arrays = model.metadata(), model.arrays()
    assert loaded_with(metadata, arrays).map is not None
    for broken in (
        {name: array for name, array in arrays.items() if name != "map.landmarks"},
        {**arrays, "map.whitening": arrays["map.whitening"][:3]},
        {**arrays, "map.columns": arrays["map.columns"][::-1].copy()},
        {**arrays, "weights": np.ones(21, np.float32)},
    ):
        with pytest.raises(ModelError, match="damaged model"):
            loaded_with(metadata, broken)
    with pytest.raises(ModelError, match="unknown kind"):
        loaded_with({**metadata, "recipe": metadata["recipe"].replace('"nystroem"', '"wonder"')}, arrays)


def test_other_programs_cannot_make_a_map(files: tuple[str, str]) -> None:
    model = learned(files, map__kind="bins").model
    with pytest.raises(ModelError, match=r"go through a map \(bins\)"):
        to_liblinear(model)


def test_rows_without_features_make_no_map(tmp_path: Path) -> None:
    path = tmp_path / "empty.svm"
    path.write_text("+1\n-1\n" * 200)
    with pytest.raises(DataError, match="there is no row with a feature to make a map from"):
        learned((str(path), str(path)), map__kind="rbf")


def test_wrong_wishes_are_refused_at_once() -> None:
    for wish, message in (
        ({"map.kind": "rbff"}, "did you mean rbf|rbf"),
        ({"map.gamma": -1}, "map.gamma"),
        ({"map.degree": 1}, "map.degree"),
        ({"map.size": 0}, "map.size"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_settings(overrides=wish, environ={})
    assert load_settings(overrides={"map": "rbf"}, environ={}).map.kind == "rbf"


def test_what_is_usual_with_a_map_gives_way_to_what_is_said() -> None:
    def usual(**given: Any) -> Any:
        return with_usual(load_settings(overrides={key.replace("__", "."): v for key, v in given.items()}, environ={}))

    assert (usual(map="rbf").solver.name, usual(map="rbf").solver.tol) == ("auto", 5e-2)
    assert usual(map="rbf", solver__passes=2).solver.name == "asgd" and usual().solver.name == "asgd"
    assert usual(map="rbf", penalty__path="1e-6..1e-3", data__holdout=10).solver.name == "auto"
    assert usual(solver="kernel_pegasos").loss == "hinge" and usual(solver="norma").loss == "squared_hinge"
    assert usual(solver="kernel_pegasos", loss="logistic").loss == "logistic"


def test_rows_of_many_features_get_landmarks() -> None:
    chance = np.random.default_rng(0)
    assert make_map(Wish("rbf", 50), batch_of(chance.normal(size=(200, 32))), 200, 2).kind == "bins"
    assert make_map(Wish("rbf", 50), batch_of(chance.normal(size=(200, 33))), 200, 2).kind == "nystroem"


def test_a_sample_of_very_many_rows_is_spread_over_all_of_them() -> None:
    rows = chosen_rows(0, 10**11)
    assert len(rows) == 20_000 and (np.diff(rows) > 0).all() and rows[-1] > 0.99 * 10**11 and rows[0] < 10**7
    assert not np.array_equal(rows, chosen_rows(1, 10**11)) and np.array_equal(chosen_rows(0, 50), np.arange(50))
    assert abs(float(np.mean(rows % 2)) - 0.5) < 0.02


def test_pieces_fit_into_the_memory() -> None:
    batch = batch_of(ring(500)[0])
    made = make_map(Wish("bins", 256), batch, 500, 2)
    whole = made.apply(batch).indices.tobytes()
    made.fit_into(10**6)
    assert made.piece_rows * 256 * 8 * 8 <= 10**6 and made.bytes_for(2) < 2 * 10**6
    assert b"".join(rows.indices.tobytes() for _, rows in made.pieces(batch, 2)) == whole
    made.fit_into(1)
    assert made.piece_rows == 1


# All kinds of rows.

numbers = st.floats(-(2.0**100), 2.0**100, width=32)


@pytest.mark.full
@examples(60)
@given(
    st.lists(st.dictionaries(st.integers(0, 40), numbers, max_size=8), min_size=1, max_size=12),
    st.sampled_from(KINDS),
)
def test_no_rows_make_a_map_that_is_not_finite(rows: list[dict[int, float]], kind: str) -> None:
    ordered = [sorted(row.items()) for row in rows]
    if not any(ordered):
        return
    indptr = np.append(0, np.cumsum([len(row) for row in ordered]))
    pairs = [pair for row in ordered for pair in row]
    batch = Batch(
        indptr, np.array([j for j, _ in pairs], np.uint32), np.array([v for _, v in pairs], np.float32),
        np.zeros(len(rows), np.float32), np.ones(len(rows), np.float32),
    )  # fmt: skip
    mapped = make_map(Wish(kind, 8, seed=1), batch, len(rows), 2).apply(batch)
    assert np.isfinite(mapped.values[mapped.indptr[0] : mapped.indptr[-1]]).all()
    assert (np.diff(mapped.indices[: mapped.indptr[1]].astype(int)) > 0).all()
