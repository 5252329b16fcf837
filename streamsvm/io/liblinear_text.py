"""LIBLINEAR's model files: a few lines that say what it is, then a line of weights for each feature.

    solver_type L2R_L2LOSS_SVC     one of TYPES
    nr_class 2
    label 1 -1                     of two classes the first is that of positive scores
    nr_feature 123                 features have the indices 1 to 123
    bias 1                         the value of a constant feature that comes last; if negative, there is none
    w
    0.25 ...                       a number for each class; of two classes for the first alone (but MCSVM_CS for both)

Of two classes with a score each (MCSVM_CS) LIBLINEAR looks at the sign of the first; the second is its opposite.
Numbers are written so that reading gives the same ones. Whatever a file says of its size is compared with its length
before memory is taken for it. It must end with a line end: a last number that was cut off would look like another one.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Float32s, Float64s
from streamsvm.errors import ModelError

START = b"solver_type "
PIECE = 1 << 20  # bytes of text, or numbers, at a time
LARGEST_LABEL = 1 << 24  # labels travel as float32
LARGEST_SIZE = 2**31 - 1  # LIBLINEAR counts in int
COUNT = re.compile(rb"[0-9]{1,18}")
LABEL = re.compile(rb"[+-]?[0-9]{1,18}")


class Type(NamedTuple):
    """What one of LIBLINEAR's solvers minimises."""

    loss: str
    penalty: str = "l2"
    rule: str = "ova"


TYPES = {
    "L2R_LR": Type("logistic"),
    "L2R_L2LOSS_SVC_DUAL": Type("squared_hinge"),
    "L2R_L2LOSS_SVC": Type("squared_hinge"),
    "L2R_L1LOSS_SVC_DUAL": Type("hinge"),
    "MCSVM_CS": Type("hinge", rule="crammer_singer"),
    "L1R_L2LOSS_SVC": Type("squared_hinge", "l1"),
    "L1R_LR": Type("logistic", "l1"),
    "L2R_LR_DUAL": Type("logistic"),
}
REFUSED = {
    "L2R_L2LOSS_SVR": "regression",
    "L2R_L2LOSS_SVR_DUAL": "regression",
    "L2R_L1LOSS_SVR_DUAL": "regression",
    "ONECLASS_SVM": "the one-class machine",
}


class LiblinearModel(NamedTuple):
    """What a file holds; weights are those of the indices 1, 2, ..., and the bias is that of scores."""

    type: str  # one of TYPES
    labels: list[int]
    weights: Float32s | Float64s  # [index - 1, column]
    bias: Float64s  # [column]

    @property
    def columns(self) -> int:
        """How many scores a row has."""
        return columns_of(self.type, len(self.labels))


class _Head(NamedTuple):
    type: str
    labels: list[int]
    features: int
    bias: float  # the value of the constant feature, or a negative number
    end: int  # where the numbers begin


def columns_of(type: str, classes: int) -> int:
    return 1 if classes == 2 and type != "MCSVM_CS" else classes


def is_liblinear(content: bytes) -> bool:
    """Whether a file begins as LIBLINEAR's models do."""
    return content.startswith(START)


# Reading.


def read_liblinear(content: bytes, shown: str) -> LiblinearModel:
    """The model in a file; ModelError says why if it is truncated, damaged, or no classifier."""
    head = _read_head(content, shown)
    columns = columns_of(head.type, len(head.labels))
    rows = head.features + (head.bias >= 0.0)
    left = len(content) - head.end
    if 2 * rows * columns > left:
        raise ModelError(
            f"{shown}: truncated or damaged: {rows:,} x {columns:,} weights are announced, "
            f"{left:,} bytes are too few for them"
        )
    weights = np.empty((rows, columns), np.float32)
    last = np.zeros(columns)
    flat, found = weights.reshape(-1), 0
    for numbers in _numbers(content, head.end, shown):
        if found + len(numbers) > flat.size:
            raise ModelError(f"{shown}: damaged: it has more than {rows:,} x {columns:,} weights")
        with np.errstate(over="ignore"):
            flat[found : found + len(numbers)] = numbers
        last = np.concatenate([last, numbers[-columns:]])[-columns:]  # in full: they may be those of the bias
        found += len(numbers)
    if found < flat.size:
        raise ModelError(f"{shown}: truncated: it has {found:,} of {rows:,} x {columns:,} weights")
    if not content.endswith(b"\n"):
        raise ModelError(f"{shown}: truncated: the last line has no end")
    bias = last * head.bias if head.bias >= 0.0 else np.zeros(columns)
    weights = weights[: head.features]
    if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
        raise ModelError(f"{shown}: it has weights beyond single precision (3.4e38)")
    return LiblinearModel(head.type, head.labels, weights, bias)


def _read_head(content: bytes, shown: str) -> _Head:
    entries: dict[bytes, list[bytes]] = {}
    at = 0
    while True:
        end = content.find(b"\n", at)
        if end < 0:
            raise ModelError(f"{shown}: truncated: it ends before its weights")
        name, *words = content[at:end].split() or [b""]
        at = end + 1
        if name == b"w" and not words:
            break
        if name not in (b"solver_type", b"nr_class", b"label", b"nr_feature", b"bias", b"rho") or name in entries:
            raise ModelError(f"{shown}: damaged LIBLINEAR model: {_shown(name)} is not what its head may have here")
        entries[name] = words
    kind = _type_of(entries, shown)
    labels = _labels(entries, shown)
    features = int(_one(entries, b"nr_feature", COUNT, shown))
    try:
        bias = float(_one(entries, b"bias", re.compile(rb"[^_]{1,40}"), shown))
    except ValueError:
        bias = float("nan")
    if not np.isfinite(bias):
        raise ModelError(f"{shown}: damaged LIBLINEAR model: its bias is no number")
    return _Head(kind, labels, features, bias, at)


def _type_of(entries: dict[bytes, list[bytes]], shown: str) -> str:
    name = _one(entries, b"solver_type", re.compile(rb".{1,40}"), shown).decode("ascii", "replace")
    if name in REFUSED:
        raise ModelError(
            f"{shown}: a LIBLINEAR model of {REFUSED[name]} ({name}), which has no classes; "
            "models of -s 0 to 7 can be used"
        )
    if name not in TYPES:
        raise ModelError(f"{shown}: {_shown(name.encode())} is no solver type of LIBLINEAR that is known here")
    return name


def _labels(entries: dict[bytes, list[bytes]], shown: str) -> list[int]:
    classes = int(_one(entries, b"nr_class", COUNT, shown))
    words = entries.get(b"label", [])
    if classes != len(words) or not all(LABEL.fullmatch(word) for word in words):
        raise ModelError(f"{shown}: damaged LIBLINEAR model: {classes:,} classes, and {len(words):,} labels or others")
    labels = [int(word) for word in words]
    if len(labels) < 2 or len(set(labels)) < len(labels):
        raise ModelError(f"{shown}: a LIBLINEAR model needs two classes or more, with a label of its own for each")
    if max(abs(label) for label in labels) > LARGEST_LABEL:
        raise ModelError(f"{shown}: labels beyond {LARGEST_LABEL:,} cannot be told apart here")
    return labels


def _one(entries: dict[bytes, list[bytes]], name: bytes, form: "re.Pattern[bytes]", shown: str) -> bytes:
    """The word after a name of the head."""
    words = entries.get(name, [])
    if len(words) != 1 or not form.fullmatch(words[0]):
        raise ModelError(f"{shown}: damaged LIBLINEAR model: {name.decode()} is missing or wrong")
    return words[0]


def _numbers(content: bytes, start: int, shown: str) -> Iterator[Float64s]:
    while start < len(content):
        end = content.find(b"\n", start + PIECE) + 1 or len(content)
        words = content[start:end].split()
        try:
            numbers = np.fromiter(map(float, words), np.float64, len(words))
        except ValueError:
            numbers = np.full(1, np.nan)
        if not np.isfinite(numbers).all() or content.find(b"_", start, end) >= 0:
            wrong = next((word for word in words if not _is_number(word)), b"")
            raise ModelError(f"{shown}: damaged LIBLINEAR model: {_shown(wrong)} is not a weight")
        yield numbers
        start = end


def _is_number(word: bytes) -> bool:
    try:
        return b"_" not in word and bool(np.isfinite(float(word)))
    except ValueError:
        return False


def _shown(word: bytes) -> str:
    return repr(word[:40].decode("ascii", "replace"))


# Writing.


def write_liblinear(model: LiblinearModel, write: Callable[[bytes], Any]) -> None:
    """Hand the text of a file to `write`, piece by piece."""
    biased = bool((model.bias != 0.0).any())
    lines = [
        f"solver_type {model.type}",
        f"nr_class {len(model.labels)}",
        f"label {' '.join(map(str, model.labels))}",
        f"nr_feature {len(model.weights)}",
        f"bias {1 if biased else -1}",
        "w",
    ]
    write(("\n".join(lines) + "\n").encode())
    rows = max(1, (PIECE >> 4) // model.columns)
    for first in range(0, len(model.weights), rows):
        write(_rows_text(model.weights[first : first + rows].astype(np.float64)))
    if biased:
        write(_rows_text(model.bias[None, :]))


def _rows_text(rows: Float64s) -> bytes:
    """A line for each row, with the shortest numerals that are read as the same numbers, and a blank after each."""
    line = "%r " * rows.shape[1] + "\n"
    text: str = (line * len(rows)) % tuple(rows.ravel().tolist())
    return text.replace(".0 ", " ").encode()
