"""Labels as written and the class codes 0, 1, ... that solvers learn from.

Declared classes are taken in the order given; the first of two is the negative one. Without a declaration {-1, +1} and
{0, 1} are understood as they stream by. Where the first rows have other labels, classes are found as they come, and
have the codes of that order (`growing`); a model has them in the order of their labels all the same.
"""

from collections.abc import Collection
from typing import Any

import numpy as np

from streamsvm.batch import Batch, Float32s, Int64s
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.jit import quick

ClassLabel = int | float | str

MOST_CLASSES = 1000
FEW = 20  # labels that are no whole numbers may be so many, before they look like something else than classes


class UndeclaredClassError(DataError):
    """A label that the classes known so far do not hold; `row` is its place in the batch."""

    def __init__(self, label: float, known: "ClassMap", row: int) -> None:
        self.label = label
        self.row = row
        names = ", ".join(str(name) for name in known.names) or "-1, 1 or 0, 1"
        remedy = (
            "declare them, as in --classes 1,2,3 (data.classes), or use --multiclass ova to take them as they come"
            if known.open or known.guessed
            else "they are fixed by --classes (data.classes) or by the model"
        )
        super().__init__(f"label {shown_label(label)} is not one of the classes ({names}); {remedy}")


def shown_label(label: float) -> str:
    """A number as a person writes it: 1, -1, 2.5, 0.1."""
    return str(int(label)) if float(label).is_integer() else str(np.float32(label))


class ClassMap:
    """From labels to codes and back. `open` maps accept {-1, +1} and {0, 1} and note which of them came.

    `growing` ones accept any label, and give it the next code. Classes that were `guessed` are those of the first rows.
    `many` says that a model has a score for each class: with more than two, or where that is wanted, or may turn out.
    """

    def __init__(
        self,
        classes: list[ClassLabel] | None = None,
        *,
        growing: bool = False,
        guessed: bool = False,
        many: bool = False,
    ) -> None:
        self.growing = growing
        self.guessed = guessed
        self.open = classes is None and not growing
        self.many = many or growing or len(classes or ()) > 2
        self._declared: list[ClassLabel] = list(classes or [])
        self._signs = np.zeros(3, np.bool_)  # whether -1, 0, 1 were seen
        self._sorted = np.empty(0, np.float32)
        self._codes = np.empty(0, np.float32)
        if self._declared:
            self._index()

    def _index(self) -> None:
        numbers = self.numbers
        if len(set(numbers.tolist())) != len(self._declared):
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
        names = self.names or ([] if self.growing else [-1, 1])
        if _first_text(names) is not None:
            return np.arange(len(names), dtype=np.float32)
        return np.array([float(name) for name in names], np.float32)

    def places(self) -> Int64s:
        """The codes in the order in which a model has its classes: that of the labels, if they came in another."""
        if self.growing:
            return np.argsort(self.numbers[: len(self._declared)]).astype(np.int64)
        return np.arange(len(self.names), dtype=np.int64)

    def encode(self, batch: Batch) -> Batch:
        """The batch with codes instead of labels; rows without a label keep NaN."""
        return batch._replace(labels=self.codes(batch.labels))

    def codes(self, labels: Float32s) -> Float32s:
        """The codes of labels, NaN where there is none."""
        if self.growing:
            self._admit(labels)
        return self._encode_open(labels) if self.open else self._encode_declared(labels)

    def state(self) -> dict[str, Any]:
        """What was learned from the labels so far: which of -1, 0, 1 an open map has seen."""
        wanted = self.many and not self.growing and len(self._declared) <= 2
        kind = {"growing": self.growing, "guessed": self.guessed, "many": wanted}
        return {key: True for key, value in kind.items() if value} | (
            {"signs": self._signs.tolist()} if self.open else {}
        )

    @classmethod
    def restored(cls, names: list[ClassLabel] | None, state: dict[str, Any]) -> "ClassMap":
        """The map that had these names, if it was not open, and this state."""
        kind = {key: bool(state.get(key)) for key in ("growing", "guessed", "many")}
        classes = cls(names, **kind)
        classes.restore(state)
        return classes

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state` was taken, with a map of the same kind."""
        if ("signs" in state) != self.open:
            raise ModelError("the classes saved were declared, these are not, or the other way round")
        if self.open:
            self._signs = np.array(state["signs"], np.bool_)

    def _admit(self, labels: Float32s) -> None:
        """Give labels that were not there before the next codes, in the order in which they come."""
        found, first = np.unique(labels[~np.isnan(labels)], return_index=True)
        new = ~np.isin(found, self._sorted)
        if new.any():
            written = [whole(float(label)) for label in found[new][np.argsort(first[new])]]
            self._declared += written
            refuse_numbers(self._declared)
            self._index()

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


def refuse_numbers(labels: Collection[ClassLabel]) -> None:
    """DataError if labels are so many that they can hardly be classes."""
    broken = [label for label in labels if isinstance(label, float) and not label.is_integer()]
    if len(labels) > MOST_CLASSES or len(broken) > FEW:
        some = ", ".join(str(label) for label in list(labels)[:3])
        most = MOST_CLASSES if len(labels) > MOST_CLASSES else FEW
        raise DataError(
            f"more than {most} different labels ({some}, ...): they look "
            "like numbers to be predicted, not like classes; is another column or field the label?"
        )


def whole(label: float) -> int | float:
    return int(label) if label.is_integer() else label


def usual(labels: Collection[float]) -> bool:
    """Whether these are labels of two classes as they are usually written: of {-1, +1}, or of {0, 1}."""
    return set(labels) <= {-1.0, 0.0, 1.0} and not {-1.0, 0.0} <= set(labels)


def classes_from(labels: Collection[float]) -> list[ClassLabel]:
    """The classes of a whole data set, from the distinct labels seen in it."""
    if not usual(labels):
        found: list[ClassLabel] = [whole(float(label)) for label in sorted(set(labels))]
        refuse_numbers(found)
        return found
    return [0, 1] if 0.0 in labels else [-1, 1]


def class_map_of(labels: Collection[float], multiclass: str) -> ClassMap:
    """How to understand labels that nobody has declared, given those of the first rows."""
    if multiclass != "auto":
        return ClassMap(growing=True)
    if usual(labels):
        return ClassMap()
    if len(set(labels)) == 2:
        return ClassMap(classes_from(labels), guessed=True)
    refuse_numbers([whole(float(label)) for label in labels])
    return ClassMap(growing=True)


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
