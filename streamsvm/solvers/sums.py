"""Sums over all rows, on all cores: what the solvers need that see the data as a whole.

    risk          R(w) = mean of c_i loss(w.x_i + b, y_i), its gradient, and what the slopes prove as dual variables
    product       the Hessian of R times a vector: mean of c_i curvature_i (x_i.d) x_i, in one reading
    diagonal      of the same Hessian
    combination   mean of c_i alpha_i y_i x_i

Means are over the weight of all rows. Vectors have a last entry for the bias, which belongs to a feature of constant
value sqrt(gain). Vectors are summed in a fixed number of buffers: a group's number says which, and groups take turns at
one, so neither the number of threads nor their speed changes one bit.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Batch, Float64s
from streamsvm.groups import Column, Groups
from streamsvm.jit import kernel
from streamsvm.pool import StoppedError
from streamsvm.rows import row_add, row_dot
from streamsvm.solvers.base import Problem

MOST_BUFFERS = 16
NO_COLUMN = np.empty(0)

Tick = Callable[[int], None]


class Risk(NamedTuple):
    """What one reading tells of some weights."""

    loss: float  # the mean
    error: float  # share of the weight of all rows that is on the wrong side
    gradient: Float64s  # of the mean loss
    dual: float  # mean of dual_value(alpha_i) where alpha_i = -y_i slope_i


class Sums:
    """Passes over all rows, each a reading of the data; `tick` is called after each group, with its rows."""

    def __init__(self, groups: Groups, problem: Problem, memory: int, tick: Tick = lambda rows: None) -> None:
        self.groups = groups
        self.size = groups.width + 1
        self.root = float(np.sqrt(problem.bias.gain))  # value of the bias' feature
        self.readings = 0
        self._loss = problem.loss
        self._tick = tick
        self._buffers = np.zeros((max(1, min(MOST_BUFFERS, memory // (8 * self.size))), self.size))

    @staticmethod
    def bytes_for(width: int, buffers: int = 4) -> int:
        return 8 * (width + 1) * buffers

    def bias(self, weights: Float64s) -> float:
        """The bias, as it is added to scores."""
        return float(weights[-1]) * self.root

    def risk(
        self,
        weights: Float64s,
        scores: Column | None = None,
        beside: Callable[[int, Batch], None] = lambda number, batch: None,
    ) -> Risk:
        """The risk of the weights; `scores`, if given, receives that of each row.

        `beside` is called for each group, on any thread: for what else is wanted of the same reading.
        """
        bias = self.bias(weights)

        def add(number: int, batch: Batch, total: Float64s) -> Any:
            beside(number, batch)
            own = self.groups.of(number, scores) if scores is not None else NO_COLUMN
            return risk_pass(batch, self._loss, weights, bias, own, total)

        gradient, (loss, wrong, slopes, dual) = self._summed(add, 4)
        gradient[-1] = slopes * self.root
        n = max(self.groups.weight, 1e-300)
        gradient /= n
        return Risk(loss / n, wrong / n, gradient, dual / n)

    def product(self, scores: Column, direction: Float64s, numbers: Sequence[int] | None = None) -> Float64s:
        """The Hessian of the risk at the weights that gave the scores, times a direction; from some groups only, if
        their numbers are given."""
        bias = self.bias(direction)

        def add(number: int, batch: Batch, total: Float64s) -> Any:
            return product_pass(batch, self._loss, self.groups.of(number, scores), direction, bias, total)

        result, (last, weight) = self._summed(add, 2, numbers)
        result[-1] = last * self.root
        result /= max(weight, 1e-300)
        return result

    def diagonal(self, scores: Column, numbers: Sequence[int] | None = None) -> Float64s:
        """The diagonal of that Hessian."""

        def add(number: int, batch: Batch, total: Float64s) -> Any:
            return diagonal_pass(batch, self._loss, self.groups.of(number, scores), total)

        result, (last, weight) = self._summed(add, 2, numbers)
        result[-1] = last * self.root * self.root
        result /= max(weight, 1e-300)
        return result

    def combination(self, alpha: Column) -> Float64s:
        """The mean of c_i alpha_i y_i x_i."""

        def add(number: int, batch: Batch, total: Float64s) -> Any:
            return combination_pass(batch, self.groups.of(number, alpha), total)

        result, (last,) = self._summed(add, 1)
        result[-1] = last * self.root
        result /= max(self.groups.weight, 1e-300)
        return result

    def _summed(
        self,
        add: Callable[[int, Batch, Float64s], Any],
        count: int,
        numbers: Sequence[int] | None = None,
    ) -> tuple[Float64s, Float64s]:
        """The sum of the vectors that `add` adds to a buffer for each group, and that of the numbers it returns."""
        groups, buffers = self.groups, self._buffers
        asked = range(groups.count) if numbers is None else numbers
        places = {number: place for place, number in enumerate(asked)}
        buffers[:] = 0.0
        turns = _Turns(len(buffers))

        def work(number: int, batch: Batch) -> tuple[int, Any]:
            with turns.of(places[number]) as buffer:
                return batch.rows, add(number, batch, buffers[buffer])

        total = np.zeros(count)
        with closing(groups.mapped(work, asked, lambda number: turns.lose(places[number]))) as results:
            for rows, found in results:
                total += np.array(found, ndmin=1)
                self._tick(rows)
        self.readings += 1
        result = buffers[0].copy()
        for buffer in buffers[1:]:
            result += buffer
        return result, total


class _Turns:
    """Who may write to which buffer: place 0, 1, 2, ... of a pass to buffer place mod count, one after the other."""

    def __init__(self, count: int) -> None:
        self._next = list(range(count))
        self._moved = threading.Condition()
        self._lost = sys.maxsize

    def lose(self, place: int) -> None:
        """A place will never come: those after it need not wait any longer."""
        with self._moved:
            self._lost = min(self._lost, place)
            self._moved.notify_all()

    @contextmanager
    def of(self, place: int) -> Iterator[int]:
        """Wait until all earlier ones have had this buffer; the turn goes on after an error too."""
        buffer = place % len(self._next)
        with self._moved:
            while self._next[buffer] != place:
                if self._lost < place:
                    raise StoppedError
                self._moved.wait()
        try:
            yield buffer
        finally:
            with self._moved:
                self._next[buffer] += len(self._next)
                self._moved.notify_all()


@kernel
def risk_pass(batch, loss, vector, bias, scores, gradient):
    """Sums of c loss, of c of the rows on the wrong side, of c slope, and of c dual_value(-y slope)."""
    indptr, indices, values, labels, weights = batch
    total = wrong = slopes = dual = 0.0
    for i in range(len(labels)):
        c = np.float64(weights[i])
        label = 2.0 * labels[i] - 1.0
        score = row_dot(vector, indices, values, indptr[i], indptr[i + 1]) + bias
        if len(scores):
            scores[i] = score
        if c == 0.0:
            continue
        total += c * loss.value(score, label)
        if (score > 0.0) != (label > 0.0):
            wrong += c
        slope = loss.slope(score, label)
        if slope != 0.0:
            slopes += c * slope
            dual += c * loss.dual_value(-label * slope)
            row_add(gradient, indices, values, indptr[i], indptr[i + 1], c * slope)
    return total, wrong, slopes, dual


@kernel
def product_pass(batch, loss, scores, vector, bias, out):
    """out += c curvature (x.d) x for each row; returns the sums for the bias, and of c."""
    indptr, indices, values, labels, weights = batch
    last = weight = 0.0
    for i in range(len(labels)):
        c = np.float64(weights[i])
        weight += c
        bend = c * loss.curvature(scores[i], 2.0 * labels[i] - 1.0) if c > 0.0 else 0.0
        if bend > 0.0:
            factor = bend * (row_dot(vector, indices, values, indptr[i], indptr[i + 1]) + bias)
            row_add(out, indices, values, indptr[i], indptr[i + 1], factor)
            last += factor
    return last, weight


@kernel
def diagonal_pass(batch, loss, scores, out):
    """out[j] += c curvature x_j^2 for each row; returns the sums of c curvature, and of c."""
    indptr, indices, values, labels, weights = batch
    last = weight = 0.0
    for i in range(len(labels)):
        c = np.float64(weights[i])
        weight += c
        bend = c * loss.curvature(scores[i], 2.0 * labels[i] - 1.0) if c > 0.0 else 0.0
        if bend > 0.0:
            last += bend
            for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                out[indices[k]] += bend * (np.float64(values[k]) * np.float64(values[k]))
    return last, weight


@kernel
def combination_pass(batch, alpha, out):
    """out += c alpha y x for each row; returns the sum of c alpha y."""
    indptr, indices, values, labels, weights = batch
    last = 0.0
    for i in range(len(labels)):
        factor = np.float64(weights[i]) * alpha[i] * (2.0 * labels[i] - 1.0)
        if factor != 0.0:
            last += factor
            row_add(out, indices, values, indptr[i], indptr[i + 1], factor)
    return last
