"""Labels as written and the class codes 0, 1, ... that solvers learn from.

Declared classes are taken in the order given; the first of two is the negative one. Without a declaration {-1, +1} and
{0, 1} are understood as they stream by. Any other label needs to be declared, or found on a pass that fills the cache.
"""

from collections.abc import Collection
from typing import Any

import numpy as np

from streamsvm.batch import Batch, Float32s
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.jit import quick

ClassLabel = int | float | str


class UndeclaredClassError(DataError):
    """A label that the classes known so far do not hold; `row` is its place in the batch."""

    def __init__(self, label: float, known: "ClassMap", row: int) -> None:
        self.label = label
        self.row = row
        names = ", ".join(str(name) for name in known.names) or "-1, 1 or 0, 1"
        remedy = (
            "declare them, as in --classes 1,2 (data.classes), or use --passes 2 to find them first"
            if known.open
            else "they are fixed by --classes (data.classes) or by the model"
        )
        super().__init__(f"label {shown_label(label)} is not one of the classes ({names}); {remedy}")


def shown_label(label: float) -> str:
    """A number as a person writes it: 1, -1, 2.5, 0.1."""
    return str(int(label)) if float(label).is_integer() else str(np.float32(label))


class ClassMap:
    """From labels to codes and back. `open` maps accept {-1, +1} and {0, 1} and note which of them came."""

    def __init__(self, classes: list[ClassLabel] | None = None) -> None:
        self.open = classes is None
        self._declared: list[ClassLabel] = list(classes or [])
        self._signs = np.zeros(3, np.bool_)  # whether -1, 0, 1 were seen
        self._sorted = np.empty(0, np.float32)
        self._codes = np.empty(0, np.float32)
        if classes is not None:
            self._index(classes)

    def _index(self, classes: list[ClassLabel]) -> None:
        numbers = self.numbers
        if len(set(numbers.tolist())) != len(classes):
            raise ConfigError("data.classes: two of the classes are the same number")
        order = np.argsort(numbers)
        self._sorted = numbers[order]
        self._codes = order.astype(np.float32)

    @property
    def names(self) -> list[ClassLabel]:
        """The classes in the order of their codes."""
        if not self.open:
            return self._declared
        if not self._signs.any():
            return []
        return [0, 1] if self._signs[1] else [-1, 1]

    @property
    def numbers(self) -> Float32s:
        """The labels of codes 0, 1, ... as rows have them: numbers as written, of texts the codes themselves."""
        names = self.names or [-1, 1]
        if _first_text(names) is not None:
            return np.arange(len(names), dtype=np.float32)
        return np.array([float(name) for name in names], np.float32)

    def encode(self, batch: Batch) -> Batch:
        """The batch with codes instead of labels; rows without a label keep NaN."""
        codes = self._encode_open(batch.labels) if self.open else self._encode_declared(batch.labels)
        return batch._replace(labels=codes)

    def state(self) -> dict[str, Any]:
        """What was learned from the labels so far: which of -1, 0, 1 an open map has seen."""
        return {"signs": self._signs.tolist()} if self.open else {}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state` was taken, with a map of the same kind."""
        if ("signs" in state) != self.open:
            raise ModelError("the classes saved were declared, these are not, or the other way round")
        if self.open:
            self._signs = np.array(state["signs"], np.bool_)

    def _encode_open(self, labels: Float32s) -> Float32s:
        codes = np.empty(len(labels), np.float32)
        row = encode_signs(labels, codes, self._signs)
        if row >= 0:
            raise UndeclaredClassError(float(labels[row]), self, int(row))
        return codes

    def _encode_declared(self, labels: Float32s) -> Float32s:
        codes = np.empty(len(labels), np.float32)
        row = encode_known(labels, codes, self._sorted, self._codes)
        if row >= 0:
            raise UndeclaredClassError(float(labels[row]), self, int(row))
        return codes


def _first_text(classes: Collection[ClassLabel]) -> str | None:
    """The first class that is not a number."""
    for name in classes:
        try:
            float(name)
        except ValueError:
            return str(name)
    return None


def refuse_texts(classes: Collection[ClassLabel]) -> None:
    """ConfigError if classes are declared as texts where the labels of the data are numbers."""
    text = _first_text(classes)
    if text is not None:
        raise ConfigError(f"data.classes: the labels of this data are numbers, not {text[:60]!r}")


def classes_from(labels: Collection[float]) -> list[ClassLabel]:
    """The classes of a whole data set, from the distinct labels seen in it."""
    seen = set(labels)
    if not seen <= {-1.0, 0.0, 1.0} or {-1.0, 0.0} <= seen:
        return [int(v) if float(v).is_integer() else v for v in sorted(seen)]
    return [0, 1] if 0.0 in seen else [-1, 1]


@quick
def encode_signs(labels, codes, signs):
    """Codes of {-1, +1} or {0, 1}, NaN kept; returns the first row whose label is neither, or -1."""
    for i in range(len(labels)):
        label = labels[i]
        if label == 1.0:
            codes[i] = 1.0
            signs[2] = True
        elif label == -1.0 and not signs[1]:
            codes[i] = 0.0
            signs[0] = True
        elif label == 0.0 and not signs[0]:
            codes[i] = 0.0
            signs[1] = True
        elif np.isnan(label):
            codes[i] = label
        else:
            return i
    return -1


@quick
def encode_known(labels, codes, known, code_of):
    """Codes of labels among the sorted known ones, NaN kept; returns the first row whose label is unknown, or -1."""
    for i in range(len(labels)):
        label = labels[i]
        low, high = 0, len(known) - 1
        while low < high:
            middle = (low + high) // 2
            if known[middle] < label:
                low = middle + 1
            else:
                high = middle
        if np.isnan(label):
            codes[i] = label
        elif known[low] == label:
            codes[i] = code_of[low]
        else:
            return i
    return -1
