"""Scores of rows, and what they cost: for two classes one score a row, for more one for each class.

    two classes       score = w.x + b                    positive means the second class
    more of them      score_k = w_k.x + b_k              the largest one means its class, the first of equal ones

Weights are [feature] and the bias a number, or [feature, class] and [class]. By `rule`, the loss of a row of class y is

    ova               sum over k of loss(score_k, +1 if k = y else -1)        each class against all others
    crammer_singer    loss(score_y - largest score of another class, +1)

and of two classes loss(score, y). All sums are weighted by the rows.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np

from streamsvm.batch import Batch, Float32s, Float64s, Int64s
from streamsvm.jit import kernel
from streamsvm.losses import Loss
from streamsvm.rows import row_dot

RULES = ("ova", "crammer_singer")  # how more than two classes are learned

Offset = Any  # the bias: a float, or an array with one for each class


class LossSums(NamedTuple):
    """Over some rows: the sum of losses, of weights, and of the weights of rows that are given another class."""

    loss: float
    weight: float
    wrong: float


def score_rows(batch: Batch, weights: Float32s, bias: Offset) -> Float64s:
    """[row] or [row, class]; features beyond the weights are ignored."""
    if weights.ndim == 1:
        out = np.empty(batch.rows)
        score_pass(batch, weights, bias, out)
    else:
        out = np.empty((batch.rows, weights.shape[1]))
        scores_pass(batch, weights, bias, out)
    return out


def codes_of(scores: Float64s) -> Int64s:
    """The class that scores say, by its code."""
    codes: Int64s = (scores > 0.0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
    return codes


def loss_sums(batch: Batch, loss: Loss, weights: Float32s, bias: Offset, rule: str = "ova") -> LossSums:
    """What rows with class codes cost; their indices are below the number of weights."""
    if weights.ndim == 1:
        return LossSums(*loss_pass(batch, loss, weights, bias))
    return losses_of(score_rows(batch, weights, bias), batch, loss, rule)


class Marked(Protocol):
    """Rows, as far as they are no features."""

    @property
    def labels(self) -> Float32s: ...
    @property
    def weights(self) -> Float32s: ...


def losses_of(scores: Float64s, batch: Marked, loss: Loss, rule: str = "ova", most: float = np.inf) -> LossSums:
    """What rows cost whose scores are known, each of them `most` at most."""
    if scores.ndim == 1:
        return LossSums(*score_losses(scores, batch.labels, batch.weights, loss, most))
    return LossSums(*class_losses(scores, batch.labels, batch.weights, loss, rule == "ova", most))


@kernel
def score_pass(batch, vector, bias, out):
    indptr, indices, values, labels, weights = batch
    size = len(vector)
    for i in range(len(labels)):
        first, last = indptr[i], indptr[i + 1]
        while last > first and indices[last - 1] >= size:  # the largest come last
            last -= 1
        out[i] = row_dot(vector, indices, values, first, last) + bias


@kernel
def scores_pass(batch, table, biases, out):
    indptr, indices, values, labels, weights = batch
    size, classes = table.shape
    for i in range(len(labels)):
        sums = out[i]
        for c in range(classes):
            sums[c] = biases[c]
        for k in range(indptr[i], indptr[i + 1]):
            if indices[k] >= size:
                break
            row, value = table[indices[k]], np.float64(values[k])
            for c in range(classes):
                sums[c] += np.float64(row[c]) * value


@kernel
def loss_pass(batch, loss, vector, bias):
    """Weighted sum of losses, the sum of weights, and that of rows on the wrong side."""
    indptr, indices, values, labels, weights = batch
    total = weight = wrong = 0.0
    for i in range(len(labels)):
        label = 2.0 * labels[i] - 1.0
        score = row_dot(vector, indices, values, indptr[i], indptr[i + 1]) + bias
        total += weights[i] * loss.value(score, label)
        weight += weights[i]
        if (score > 0.0) != (label > 0.0):
            wrong += weights[i]
    return total, weight, wrong


@kernel
def score_losses(scores, labels, weights, loss, most):
    total = weight = wrong = 0.0
    for i in range(len(labels)):
        c, label = np.float64(weights[i]), 2.0 * labels[i] - 1.0
        total += c * min(loss.value(scores[i], label), most)
        weight += c
        wrong += c if (scores[i] > 0.0) != (label > 0.0) else 0.0
    return total, weight, wrong


@kernel
def class_losses(scores, labels, weights, loss, ova, most):
    total = weight = wrong = 0.0
    classes = scores.shape[1]
    for i in range(len(labels)):
        c, own = np.float64(weights[i]), np.int64(labels[i])
        row = scores[i]
        best, rival, value = 0, -1, 0.0
        for k in range(classes):
            if row[k] > row[best]:
                best = k
            if k != own and (rival < 0 or row[k] > row[rival]):
                rival = k
            if ova:
                value += loss.value(row[k], 1.0 if k == own else -1.0)
        if not ova and rival >= 0:
            value = loss.value(row[own] - row[rival], 1.0)
        total += c * min(value, most)
        weight += c
        wrong += c if best != own else 0.0
    return total, weight, wrong
