"""Models that version 0.1 has saved still say what they said then: golden/make.py tells what they are.

Scores are compared bit by bit. They are sums of products in a fixed order, without fused operations that would differ
(rows.py, features/maps/product.py), exponentials are polynomials (exponentials.py), and what maps draw at random takes
only operations that all machines round alike (features/maps/chance.py). Logarithms of counts and the weights of
polynomials come from the C library, but are rounded to float32; none of the golden ones is near a tie. What remains:

    fourier           a model keeps the seed of its directions, and LAPACK makes them orthogonal: on another CPU a
                      number may be the next float32 (`fourier_bound`)
    platt, logistic   NumPy's exp and logaddexp differ in the last bits from one CPU to another (`curve_bound`)
    isotonic          np.interp is C, in which compilers for some machines fuse a product with a sum
"""

import base64
import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from golden.make import DATA, GOLDEN, MODELS, read_expected

from streamsvm import Model, load_model, open_stream
from streamsvm.batch import Batch
from streamsvm.features.maps.fourier import Fourier, orthogonal_directions
from streamsvm.io.names_file import load_names

EXPECTED = read_expected()
SINGLE, DOUBLE = 2.0**-23, 2.0**-52  # from 1 to the next number
BY_COMMAND = ("asgd_platt", "csv_names", "vw_interactions_names", "ova_dcd_platt", "nystroem", "liblinear_logistic")

Floats = npt.NDArray[np.float64]


def unpacked(text: str) -> Floats:
    return np.frombuffer(base64.b64decode(text), "<f8")


def expected_scores(name: str, model: Model) -> Floats:
    found = unpacked(EXPECTED[name]["scores"])
    return found.reshape(-1, len(model.classes)) if model.many else found


def scored(name: str) -> tuple[Model, list[Batch], Floats]:
    """The model, the rows of its file, and their scores."""
    model = load_model(str(MODELS / EXPECTED[name]["file"]))
    with_scores = [(b, model.scores(b)) for b in open_stream(str(DATA / EXPECTED[name]["rows"]), model=model)]
    batches, scores = zip(*with_scores, strict=True)
    return model, list(batches), np.concatenate(scores)


def fourier_bound(model: Model, batch: Batch) -> Floats:
    """How far scores of a fourier map may be from those of another CPU.

    Directions differ by one float32 at most, and each of d sums may then be rounded otherwise: an angle differs by
    (d + 1) times the last bit of the sum of absolute products, and a wave by 2 pi times that and its own rounding.
    """
    assert model.map is not None and isinstance(model.map.inner, Fourier)
    inner = model.map.inner
    half, turns = inner.width // 2, math.sqrt(2.0 * inner.gamma) / (2.0 * math.pi)
    directions = orthogonal_directions(inner.d, half, turns, inner.seed)
    angles = (inner.d + 1) * SINGLE * (np.abs(model.map.spread.dense(batch)) @ np.abs(directions)).astype(np.float64)
    weights = np.abs(model.weights[:half]) + np.abs(model.weights[half:])
    return np.asarray((2.0 * math.pi * angles + 4.0 * SINGLE) @ weights * math.sqrt(2.0 / inner.width))


def curve_bound(model: Model, scores: Floats) -> float:
    """How far probabilities may be from those of another CPU, relative to themselves.

    exp, and the logarithm in logaddexp, are right to 4 last bits; the logarithm of a probability is as large as z, and
    its error is that of the probability. A straight line between two corners is rounded a few times.
    """
    if model.calibration is not None and model.calibration.kind == "isotonic":
        return 8.0 * DOUBLE
    z = scores if model.calibration is None else scores * model.calibration.curves[0] + model.calibration.curves[1]
    return 32.0 * DOUBLE * (1.0 + float(np.abs(z).max()))


def assert_probabilities(name: str, model: Model, scores: Floats, found: Floats) -> None:
    wanted = unpacked(EXPECTED[name]["probabilities"]).reshape(found.shape)
    np.testing.assert_allclose(found, wanted, rtol=curve_bound(model, scores), atol=0.0)


def test_every_configuration_has_a_model_and_nothing_else_is_there() -> None:
    assert list(EXPECTED) == list(GOLDEN)
    names = [f"{name}.names.parquet" for name, found in EXPECTED.items() if "names" in found]
    assert {path.name for path in MODELS.iterdir()} == {found["file"] for found in EXPECTED.values()} | set(names)
    assert all(EXPECTED[name]["rows"] == golden.rows for name, golden in GOLDEN.items())


@pytest.mark.parametrize("name", EXPECTED)
def test_model_says_what_it_said(name: str) -> None:
    wanted = EXPECTED[name]
    path = MODELS / wanted["file"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == wanted["sha256"], "the golden file itself has changed"
    model, batches, scores = scored(name)
    before = expected_scores(name, model)
    assert model.classes == wanted["classes"]
    assert np.atleast_1d(model.bias).tobytes() == unpacked(wanted["bias"]).tobytes()
    labels = [model.class_text(code) for code in model.codes(scores)]
    if model.map is not None and model.map.kind == "fourier":
        bound = np.concatenate([fourier_bound(model, batch) for batch in batches])
        assert (np.abs(scores - before) <= bound).all() and bound.max() < 1e-3
        sure = np.abs(before) > bound
        assert np.array(labels)[sure].tolist() == np.array(wanted["labels"])[sure].tolist()
    else:
        assert scores.shape == before.shape and scores.tobytes() == before.tobytes()
        assert labels == wanted["labels"]
    assert model.probable == ("probabilities" in wanted)
    if model.probable:
        assert_probabilities(name, model, scores, model.probabilities(scores))
    if "names" in wanted:
        kept = load_names(str(path), model.recipe["names"])
        found = [f"{i} {s:+} {n}" for i, s, n in zip(kept.indices, kept.signs, kept.names, strict=True)]
        assert found == wanted["names"]


@pytest.mark.parametrize("name", BY_COMMAND)
def test_predict_writes_the_same_numbers(name: str, run: Any) -> None:
    wanted = EXPECTED[name]
    files = (str(MODELS / wanted["file"]), str(DATA / wanted["rows"]))
    model = load_model(files[0])
    before = expected_scores(name, model)
    code, out, err = run("predict", *files, "--scores")
    assert code == 0, err
    assert np.array([line.split() for line in out.splitlines()], float).reshape(before.shape).tobytes() == (
        before.tobytes()
    )
    code, out, err = run("predict", *files)
    assert (code, out.splitlines()) == (0, wanted["labels"])
    if model.probable:
        code, out, err = run("predict", *files, "--probabilities")
        found = np.array([line.split() for line in out.splitlines()], float).reshape(before.shape)
        assert_probabilities(name, model, before, found)


def test_all_of_it_is_small() -> None:
    home = Path(__file__).parent / "golden"
    assert sum(path.stat().st_size for path in home.rglob("*") if "__pycache__" not in path.parts) < 1_500_000
