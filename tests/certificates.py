"""Objective and dual in double precision, from nothing but rows, weights and dual variables, and LIBLINEAR's weights.

What a solver claims is held against these: they know nothing of groups, blocks, kernels or the solver's own sums.
"""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, csr_matrix
from scipy.special import entr

from streamsvm import open_stream
from streamsvm.batch import Batch, concatenate
from streamsvm.losses import Hinge, Logistic, Loss, SmoothedHinge, SquaredHinge
from streamsvm.solvers.base import Problem

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own, at import
    from liblinear import liblinearutil

Array = np.ndarray[Any, Any]
LIBLINEAR = {"hinge": "3", "squared_hinge": "1", "logistic": "7"}  # solvers of the dual
LIBLINEAR_PRIMAL = {"squared_hinge": "2", "logistic": "0"}


class Rows(NamedTuple):
    matrix: Any  # sparse, in double, its last column the bias' feature
    signs: Array
    weights: Array


def rows_of(batches: Batch | Sequence[Batch], width: int, problem: Problem) -> Rows:
    """Rows with class codes, for the bias of the problem."""
    batch = batches.copy() if isinstance(batches, Batch) else concatenate(list(batches))
    indptr = batch.indptr + np.arange(batch.rows + 1)
    owner = np.insert(batch.indices.astype(np.int64), batch.indptr[1:], width)
    values = np.insert(batch.values.astype(float), batch.indptr[1:], np.sqrt(problem.bias.gain))
    matrix = csr_array((values, owner, indptr), shape=(batch.rows, width + 1))
    return Rows(matrix, 2.0 * batch.labels.astype(float) - 1.0, batch.weights.astype(float))


def rows_in(path: str, width: int, problem: Problem) -> Rows:
    """Rows of a file with labels -1 and 1."""
    batches = [batch.copy() for batch in open_stream(path)]
    return rows_of([one._replace(labels=(one.labels > 0).astype(np.float32)) for one in batches], width, problem)


def losses(loss: Loss, margins: Array) -> Array:
    if isinstance(loss, Logistic):
        return np.logaddexp(0.0, -loss.scale * margins)
    if not isinstance(loss, (Hinge, SquaredHinge, SmoothedHinge)):  # a new one, taken at its word
        return np.array([loss.value(margin, 1.0) for margin in margins])
    short = np.maximum(loss.margin - margins, 0.0)
    if isinstance(loss, Hinge):
        return short
    if isinstance(loss, SquaredHinge):
        return short**2
    return np.where(short < loss.width, short**2 / (2.0 * loss.width), short - loss.width / 2.0)


def dual_values(loss: Loss, alpha: Array) -> Array:
    """-conjugate(-alpha) of the loss of a margin."""
    if isinstance(loss, Logistic):
        return entr(alpha / loss.scale) + entr(1.0 - alpha / loss.scale)
    if isinstance(loss, Hinge):
        return loss.margin * alpha
    if isinstance(loss, SquaredHinge):
        return loss.margin * alpha - alpha**2 / 4.0
    if not isinstance(loss, SmoothedHinge):
        return np.array([loss.dual_value(a) for a in alpha])
    return loss.margin * alpha - loss.width / 2.0 * alpha**2


def primal(rows: Rows, problem: Problem, vector: Array) -> float:
    """The objective of weights with that of the bias' feature at the end."""
    margins = rows.signs * (rows.matrix @ vector)
    inside = vector if problem.bias.decay else vector[:-1]
    return float(problem.l2 / 2.0 * inside @ inside + rows.weights @ losses(problem.loss, margins) / rows.weights.sum())


def dual(rows: Rows, problem: Problem, alpha: Array) -> float:
    """What the dual variables prove, where the bias is inside the penalty or there is none."""
    assert (alpha >= 0.0).all() and (alpha <= problem.loss.ceiling()).all()
    total = rows.weights.sum()
    vector = rows.matrix.T @ (rows.weights * alpha * rows.signs) / (problem.l2 * total)
    return float(rows.weights @ dual_values(problem.loss, alpha) / total - problem.l2 / 2.0 * vector @ vector)


def liblinear_vector(rows: Rows, problem: Problem, name: str, tolerance: float, *, dual: bool = True) -> Array:
    """The weights that LIBLINEAR finds for rows of equal weight; scikit-learn has an older one."""
    solver = (LIBLINEAR if dual else LIBLINEAR_PRIMAL)[name]
    cost = float(rows.weights[0] / (problem.l2 * rows.weights.sum()))
    scale = float(np.sqrt(problem.bias.gain))
    features = csr_matrix(rows.matrix[:, :-1])
    options = f"-s {solver} -c {cost!r} -e {tolerance!r} -B {scale or -1} -q"
    model = liblinearutil.train(rows.signs, features, options)
    found, bias = model.get_decfun()
    vector = np.zeros(rows.matrix.shape[1])
    vector[: len(found)] = found
    vector[-1] = bias / scale if scale else 0.0
    return vector if model.get_labels()[0] > 0 else -vector
