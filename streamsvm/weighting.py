"""Class weights: a factor for every row by its class, so that a rare class counts as much as a common one.

    c_i = instance weight of row i * factor of its class
    balanced:  factor of class k = N / (classes * N_k),  N_k the weight of its rows, N that of all rows

`balanced` with totals known beforehand (a complete cache has them) uses the same factors for every row, and each class
then weighs N / classes. Without totals the counts run along: a row is counted, then weighed with the counts so far, in
which only classes that were seen take part. Running factors settle as rows come, so early rows are weighed by a guess;
they depend on the order of the rows, never on how it is cut into batches.

Counts are sums of instance weights in double: a row of weight 2 counts as the row given twice, and a row of weight 0
changes nothing. A factor is applied in double and the product is rounded to float32 once.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Batch, Float64s
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.jit import quick

State = dict[str, npt.NDArray[Any]]


class ClassWeights:
    """Factors for rows by their class code: `given`, or `balanced`. Made by one of these two."""

    def __init__(self, numbers: Float64s, *, running: bool) -> None:
        self.running = running
        self._numbers = numbers  # a factor for each class; where they run: the count of each class, and their total

    @classmethod
    def given(cls, factors: Sequence[float]) -> "ClassWeights":
        """One factor for each class code; a class with factor 0 is not learned from."""
        numbers = np.array(factors, np.float64)
        if not (np.isfinite(numbers).all() and (numbers >= 0.0).all() and numbers.any()):
            shown = ", ".join(f"{factor:g}" for factor in factors)
            raise ConfigError(f"class weights must be finite, 0 or more, and not all 0: {shown or 'there is none'}")
        return cls(numbers, running=False)

    @classmethod
    def balanced(cls, totals: Sequence[float] | None = None, classes: int = 2) -> "ClassWeights":
        """N / (classes * N_k), from the weight of each class over all the data, or from `classes` running counts.

        Classes without weight are not counted as classes: where one is alone its factor is 1.
        """
        if totals is None:
            return cls(np.zeros(classes + 1), running=True)
        counts = np.array(totals, np.float64)
        there = counts > 0.0
        factors = np.zeros(len(counts))
        factors[there] = counts.sum() / (there.sum() * counts[there])
        return cls(factors, running=False)

    @property
    def factors(self) -> Float64s:
        """What the rows of each class are multiplied by, as it stands."""
        if not self.running:
            return np.array(self._numbers)
        counts, total = self._numbers[:-1], self._numbers[-1]
        there = counts > 0.0
        factors = np.ones(len(counts))
        factors[there] = total / (there.sum() * counts[there])
        return factors

    def admit(self, classes: int) -> None:
        """Classes that were not there before begin to be counted."""
        missing = classes + 1 - len(self._numbers)
        if self.running and missing > 0:
            self._numbers = np.insert(self._numbers, -1, np.zeros(missing))

    def apply(self, batch: Batch) -> Batch:
        """The batch, whose labels are class codes, with other weights in a new array. Running counts advance."""
        weights = np.empty_like(batch.weights)
        weigh = weigh_running if self.running else weigh_by_class
        row = int(weigh(batch.labels, batch.weights, self._numbers, weights))
        if row >= 0:
            raise DataError(f"row {row + 1} of a batch has class code {batch.labels[row]:g}, which has no class weight")
        return batch._replace(weights=weights)

    def state(self) -> State:
        """Everything that later factors depend on, copied."""
        return {"running" if self.running else "factors": self._numbers.copy()}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        numbers = state.get("running" if self.running else "factors")
        if numbers is None or numbers.shape != self._numbers.shape:
            raise ModelError("the class weights saved are of another kind, or for another number of classes")
        self._numbers = np.array(numbers, np.float64)


@quick
def weigh_by_class(labels, weights, factors, out):
    """out = weights * factors[labels]; returns the first row whose label is no class code, or -1."""
    for i in range(len(labels)):
        if not 0.0 <= labels[i] < len(factors):
            return i
        out[i] = np.float64(weights[i]) * factors[np.uint64(labels[i])]
    return -1


@quick
def weigh_running(labels, weights, counts, out):
    """Count each row and weigh it by the counts so far; returns the first row whose label is no class code, or -1."""
    classes = len(counts) - 1
    seen = 0
    for k in range(classes):
        seen += counts[k] > 0.0
    total = counts[classes]
    row = -1
    for i in range(len(labels)):
        if not 0.0 <= labels[i] < classes:
            row = i
            break
        c = np.float64(weights[i])
        out[i] = 0.0
        if c > 0.0:
            k = np.uint64(labels[i])
            seen += counts[k] == 0.0
            counts[k] += c
            total += c
            out[i] = c * (total / (seen * counts[k]))
    counts[classes] = total
    return row
