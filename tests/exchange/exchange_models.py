"""Models of every shape, and rows for them, made of random numbers."""

from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Batch
from streamsvm.calibration import Calibration, fit_calibration
from streamsvm.model import Model
from streamsvm.score_sample import ScoreSample

LIBSVM = {"format": "libsvm", "hash_bits": None, "dim": None}


def curves(kind: str, columns: int, seed: int = 0) -> Calibration:
    """Calibration learned from made-up scores."""
    rng = np.random.default_rng(seed)
    rows = 2000
    codes = rng.integers(0, max(columns, 2), rows)
    scores = rng.normal(size=(rows, max(columns, 2)))
    scores[np.arange(rows), codes] += 1.5
    sample = ScoreSample(columns)
    sample.add(scores if columns > 1 else scores[:, 1], codes.astype(np.float32), np.ones(rows, np.float32))
    found = fit_calibration(kind, sample, "held-out")
    assert found is not None
    return found


def two(seed: int = 0, dim: int = 12, **changes: Any) -> Model:
    """Two classes, of LIBSVM text whose indices begin with 1."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=dim).astype(np.float32)
    weights[:1] = 0.0
    parts: dict[str, Any] = {"classes": [-1, 1], "loss": "squared_hinge", "recipe": dict(LIBSVM)}
    return Model(weights=weights, bias=float(rng.normal()), **(parts | changes))


def many(seed: int = 0, dim: int = 12, count: int = 4, **changes: Any) -> Model:
    """More than two classes, or a score for each of two."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(dim, count)).astype(np.float32)
    weights[:1] = 0.0
    parts: dict[str, Any] = {"classes": [3 * k + 1 for k in range(count)], "loss": "hinge", "recipe": dict(LIBSVM)}
    return Model(weights=weights, bias=rng.normal(size=count), **(parts | changes))


def table(columns: list[dict[str, Any]], weights: Any, **changes: Any) -> Model:
    """A model of a table's columns."""
    recipe = {
        "format": "table",
        "columns": columns,
        "label": "y",
        "label_classes": None,
        "weight": None,
        "hash_bits": None,
        "interactions": [],
        "ngrams": 1,
        "hash": "murmur3_32 signed",
    }
    recipe |= changes.pop("recipe", {})
    parts: dict[str, Any] = {"bias": 0.25, "classes": [0, 1], "loss": "logistic", "recipe": recipe}
    return Model(weights=np.array(weights, np.float32), **(parts | changes))


def rows_for(dim: int, rows: int = 60, seed: int = 1) -> tuple[Batch, npt.NDArray[np.float32]]:
    """Sparse rows, of which one is empty, and the same as a matrix whose column j is index j."""
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(rows, dim)).astype(np.float32)
    dense[rng.random((rows, dim)) < 0.4] = 0.0
    dense[:, 0] = 0.0
    dense[rows // 2] = 0.0
    indptr = np.concatenate([[0], np.cumsum((dense != 0.0).sum(axis=1))]).astype(np.int64)
    where, indices = np.nonzero(dense)
    nothing = np.full(rows, np.nan, np.float32)
    return Batch(indptr, indices.astype(np.uint32), dense[where, indices], nothing, np.ones(rows, np.float32)), dense


def labels_of(model: Model, batch: Batch) -> list[Any]:
    return [model.classes[code] for code in model.codes(model.scores(batch)).tolist()]
