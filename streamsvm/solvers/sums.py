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
from concurrent.futures import ThreadPoolExecutor
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
PIECE = 1 << 16  # rows of which a thread looks at the scores at a time

Tick = Callable[[int], None]
Added = tuple[Float64s, Float64s]


class Risk(NamedTuple):
    """What one reading tells of some weights."""

    loss: float  # the mean
    error: float  # share of the weight of all rows that is on the wrong side
    gradient: Float64s  # of the mean loss
    dual: float  # mean of dual_value(alpha_i) where alpha_i = -y_i slope_i


class Other(NamedTuple):
    """Further weights, the column that receives the scores of each row, and one that receives c_i y_i."""

    weights: Float64s
    scores: Any
    marks: Any


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

    # What a reading tells.

    def risk(self, weights: Float64s, scores: Any = None, other: "Other | None" = None) -> Risk:
        """The risk of the weights; `scores`, if given, receives that of each row.

        `other` are further weights whose scores are wanted of the same reading.
        """
        gradient, (loss, wrong, slopes, dual) = self.risk_sums(weights, scores, other)
        gradient[-1] = slopes * self.root
        n = max(self.groups.weight, 1e-300)
        gradient /= n
        return Risk(loss / n, wrong / n, gradient, dual / n)

    def product(self, scores: Any, direction: Float64s, numbers: Sequence[int] | None = None) -> Float64s:
        """The Hessian of the risk at the weights that gave the scores, times a direction; from some groups only, if
        their numbers are given."""
        result, (last, weight) = self.product_sums(scores, direction, numbers)
        result[-1] = last * self.root
        result /= max(weight, 1e-300)
        return result

    def diagonal(self, scores: Any, numbers: Sequence[int] | None = None) -> Float64s:
        """The diagonal of that Hessian."""
        result, (last, weight) = self.diagonal_sums(scores, numbers)
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

    def along(self, start: Any, end: Any, k: float) -> Float64s:
        """The first two derivatives of R by k, where scores are k times as far from the start as the end is."""
        return self.along_sums(start, end, k) / max(self.groups.weight, 1e-300)

    def look(self, start: Any, end: Any, marks: Any, k: float) -> Float64s:
        """R there, its derivative by k, and the share of rows on the wrong side; `marks` has c_i y_i of each row."""
        return self.look_sums(start, end, marks, k) / max(self.groups.weight, 1e-300)

    # What is added up for it: a vector, and some numbers.

    def risk_sums(self, weights: Float64s, scores: Any, other: "Other | None") -> Added:
        bias = self.bias(weights)
        other_bias = self.bias(other.weights) if other is not None else 0.0

        def add(number: int, batch: Batch, total: Float64s) -> Any:
            if other is not None:
                columns = (self.groups.of(number, column) for column in (other.scores, other.marks))
                scores_pass(batch, other.weights, other_bias, *columns)
            own = self.groups.of(number, scores) if scores is not None else NO_COLUMN
            return risk_pass(batch, self._loss, weights, bias, own, total)

        return self._summed(add, 4)

    def product_sums(self, scores: Any, direction: Float64s, numbers: Sequence[int] | None) -> Added:
        bias = self.bias(direction)

        def add(number: int, batch: Batch, total: Float64s) -> Any:
            return product_pass(batch, self._loss, self.groups.of(number, scores), direction, bias, total)

        return self._summed(add, 2, numbers)

    def diagonal_sums(self, scores: Any, numbers: Sequence[int] | None) -> Added:
        def add(number: int, batch: Batch, total: Float64s) -> Any:
            return diagonal_pass(batch, self._loss, self.groups.of(number, scores), total)

        return self._summed(add, 2, numbers)

    def along_sums(self, start: Any, end: Any, k: float) -> Float64s:
        """Of this nothing is read but labels and weights."""
        groups, total = self.groups, np.zeros(2)
        for number in range(groups.count):
            columns = (groups.of(number, column) for column in (start, end))
            total += along_pass(*groups.marks(number), self._loss, *columns, k)
        return total

    def look_sums(self, start: Any, end: Any, marks: Any, k: float) -> Float64s:
        """Of this nothing is read at all; sums are made in the order of the rows."""
        columns, total = (start, end, marks), np.zeros(3)
        pieces = [tuple(column[a : a + PIECE] for column in columns) for a in range(0, self.groups.rows, PIECE)]

        def work(piece: tuple[Column, ...]) -> Any:
            return look_pass(*piece, self._loss, k)

        if len(pieces) <= 1:
            return sum(map(work, pieces), total)
        with ThreadPoolExecutor(self.groups.threads) as crew:
            return sum(crew.map(work, pieces), total)

    def _summed(
        self,
        add: Callable[[int, Batch, Float64s], Any],
        count: int,
        numbers: Sequence[int] | None = None,
    ) -> Added:
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


def sums_over(groups: Groups, problem: Problem, memory: int, tick: Tick = lambda rows: None) -> Sums:
    """Sums over all rows: made here, or where the rows are."""
    make: Callable[..., Sums] = getattr(groups, "make_sums", Sums)
    return make(groups, problem, memory, tick)


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


@kernel
def along_pass(labels, weights, loss, start, end, k):
    """Sums of c slope u and of c curvature u^2 at the scores start + k u, where u = end - start."""
    slopes = bends = 0.0
    for i in range(len(labels)):
        c = np.float64(weights[i])
        if c == 0.0:
            continue
        label = 2.0 * labels[i] - 1.0
        u = end[i] - start[i]
        slopes += c * loss.slope(start[i] + k * u, label) * u
        bends += c * loss.curvature(start[i] + k * u, label) * u * u
    return slopes, bends


@kernel
def look_pass(scores, ahead, marks, loss, k):
    """Sums of c loss, of its derivative by k, and of c of the rows on the wrong side."""
    total = slopes = wrong = 0.0
    for i in range(len(scores)):
        c = abs(np.float64(marks[i]))
        if c == 0.0:
            continue
        label = 1.0 if marks[i] > 0.0 else -1.0
        direction = ahead[i] - scores[i]
        score = scores[i] + k * direction
        total += c * loss.value(score, label)
        slopes += c * loss.slope(score, label) * direction
        if (score > 0.0) != (label > 0.0):
            wrong += c
    return total, slopes, wrong


@kernel
def scores_pass(batch, vector, bias, scores, marks):
    indptr, indices, values, labels, weights = batch
    for i in range(len(labels)):
        scores[i] = row_dot(vector, indices, values, indptr[i], indptr[i + 1]) + bias
        marks[i] = (2.0 * labels[i] - 1.0) * weights[i]
