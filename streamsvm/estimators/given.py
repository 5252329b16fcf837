"""What users of scikit-learn give, as rows: arrays, sparse matrices and frames; labels, classes and weights."""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, validate_data

from streamsvm.array_rows import dense_rows, sparse_rows
from streamsvm.batch import Batch
from streamsvm.classes import ClassLabel, ClassMap, whole
from streamsvm.config import load_settings
from streamsvm.dialects import features_only, frame_plan
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.features.recipe import Recipe
from streamsvm.frames import FrameReader
from streamsvm.io.frames import has_gaps, is_frame, is_table, only_numbers, records_of
from streamsvm.model import Model
from streamsvm.progress import Progress
from streamsvm.reading import feature_overrides
from streamsvm.stream import UNKNOWN, Features
from streamsvm.tables import TableDialect

Array = npt.NDArray[Any]
Wishes = Mapping[str, Any] | None  # what becomes of the columns of a frame, as `features:` in a config


def read_first(
    estimator: Any,
    X: Any,  # noqa: N803
    wishes: Wishes,
    note: Callable[[str], None],
    y: Any = None,
) -> tuple["Reader", Batch]:
    """The rows of what is given first, without labels, and how all that follows is read.

    A frame is a table, and what becomes of its columns is that of a file with the same values. What has no names for
    its columns is a matrix, and its numbers are taken as they are.
    """
    if is_frame(X) and (wishes or is_table(X) or not only_numbers(X) or has_gaps(X)):
        records = records_of(X)
        settings = load_settings(overrides=feature_overrides(wishes), environ={})
        plan = frame_plan(settings, records, note, classes=_how_many(y))
        assert isinstance(plan.dialect, TableDialect)
        validate_data(estimator, X, reset=True, skip_check_array=True)
        columns = ColumnReader(plan.dialect, plan.features)
        return columns, columns.rows(records)
    matrix = MatrixReader()
    return matrix, matrix.read(estimator, X, reset=True)


def _how_many(y: Any) -> int:
    """How many different labels there are; 0 if that cannot be told, which is refused later."""
    try:
        return len(np.unique(np.asarray(y))) if y is not None else 0
    except (TypeError, ValueError):
        return 0


def reader_of(recipe: Mapping[str, Any], first: int = 0) -> "Reader":
    """How to read what comes after learning, by the recipe that a model keeps; `first` is the index of column 0."""
    if recipe.get("format") == "table":
        dialect = TableDialect("arrow", Recipe.of_model(dict(recipe)), labelled=False)
        return ColumnReader(dialect, Features(dict(recipe)))
    if recipe.get("format") == "vw" or recipe.get("hash_bits"):
        raise ModelError("the model has hashed names or indices: use streamsvm predict, or open_stream(model=...)")
    return MatrixReader(first)


def features_of_model(model: Model) -> Features:
    """What is known of the features of rows, for learning on from a model."""
    recipe = features_only(model.recipe)
    table = Recipe.of_model(model.recipe) if recipe.get("format") == "table" else None
    return Features(recipe, model.dim, table.dense if table is not None and table.hashed else None)


class MatrixReader:
    """Arrays, sparse matrices and frames of numbers: a column is an index, counted from `first` on."""

    features = UNKNOWN

    def __init__(self, first: int = 0) -> None:
        self._first = first

    def read(self, estimator: Any, X: Any, *, reset: bool) -> Batch:  # noqa: N803
        X = validate_data(  # noqa: N806
            estimator, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], accept_large_sparse=True
        )
        width = X.shape[1]
        self.features = Features({"format": "libsvm", "hash_bits": None, "dim": width, "zero_based": True}, width)
        rows = dense_rows(X) if isinstance(X, np.ndarray) else sparse_rows(X)
        return rows._replace(indices=rows.indices + np.uint32(self._first)) if self._first else rows


class ColumnReader:
    """Frames whose columns are looked up by name."""

    def __init__(self, dialect: TableDialect, features: Features) -> None:
        self.features = features
        self._reader = FrameReader(dialect)
        self._columns = dialect.recipe.columns

    def read(self, estimator: Any, X: Any, *, reset: bool) -> Batch:  # noqa: N803
        if not is_frame(X) and self._as_a_matrix(estimator):
            return MatrixReader().read(estimator, X, reset=reset)
        if not is_frame(X):
            raise DataError("the model was learned from named columns: give a frame (pandas, polars) that has them")
        if self._as_a_matrix(estimator):
            validate_data(estimator, X, reset=reset, skip_check_array=True)
        return self.rows(records_of(X))

    def _as_a_matrix(self, estimator: Any) -> bool:
        """Whether all columns are numbers as they are: then scikit-learn wants them all, in the same order."""
        count = getattr(estimator, "n_features_in_", None)
        return count == len(self._columns) and all(column.kind == "number" for column in self._columns)

    def rows(self, records: list[Any]) -> Batch:
        return self._reader.rows(records)


Reader = MatrixReader | ColumnReader


class Again:
    """Batches that can be had again and again, made anew each time."""

    def __init__(self, make: Callable[[Iterable[Any]], Iterator[Batch]], source: Iterable[Any]) -> None:
        self._make = make
        self._source = source

    def __iter__(self) -> Iterator[Batch]:
        return self._make(self._source)


class Told:
    """Warnings are Python's; what else is told is printed if it is wanted."""

    def __init__(self, verbose: int) -> None:
        self._verbose = verbose

    def note(self, text: str) -> None:
        if text.startswith("warning: ") or ", ignored; " in text:
            kind = ConvergenceWarning if "tolerance" in text else UserWarning
            warnings.warn(text.removeprefix("warning: "), kind, stacklevel=2)
        elif self._verbose:
            print(text, file=sys.stderr, flush=True)

    def progress(self, now: Progress) -> None:
        pass


@contextmanager
def as_value_errors() -> Iterator[None]:
    """What is wrong with parameters and rows is a ValueError to scikit-learn."""
    try:
        yield
    except (ConfigError, DataError, ModelError) as error:
        raise ValueError(str(error)) from error


def whole_name(name: Any) -> ClassLabel:
    """A class as a model has it: a number as a number, everything else as text."""
    if isinstance(name, (bool, np.bool_, int, np.integer, float, np.floating)):
        return whole(float(name))
    return str(name)


def class_names(classes: Array) -> list[ClassLabel]:
    """The classes as a model has them; those that single precision cannot tell apart are texts."""
    names = [whole_name(name) for name in classes]
    try:
        ClassMap(names)
    except ConfigError:
        return [f"class {name}" for name in classes]
    return names


def refuse_missing(y: Array) -> None:
    """DataError if labels are missing, or are of kinds that have no order among them."""
    if y.dtype != object:
        return
    missing = next((row for row, label in enumerate(y) if label is None or label != label), None)
    if missing is not None:
        raise DataError(f"row {missing + 1} has no label ({y[missing]}): leave such rows out, or give them a class")
    kinds = sorted({"text" if isinstance(label, str) else "number" for label in y})
    if len(kinds) > 1:
        raise DataError("some labels are texts and some are numbers: make them one kind, as in y.astype(str)")


def codes_among(y: Array, classes: Array) -> Array:
    """The place of each label among the sorted classes; DataError if one is not there."""
    places = np.searchsorted(classes, y)
    wrong = classes[np.minimum(places, len(classes) - 1)] != y
    if wrong.any():
        shown = ", ".join(map(str, classes[:10]))
        raise DataError(
            f"row {int(np.argmax(wrong)) + 1}: label {y[np.argmax(wrong)]} is not among the classes {shown}"
        )
    return places


def labelled(rows: Batch, numbers: Array, weights: Array) -> Batch:
    if len(numbers) != rows.rows:
        raise DataError(f"there are {rows.rows} rows and {len(numbers)} labels")
    return rows._replace(labels=np.asarray(numbers, np.float32), weights=np.asarray(weights, np.float32))


def weights_of(given: Any, X: Any, rows: Batch) -> Array:  # noqa: N803
    """Weights of rows, none of them negative."""
    if given is None:
        return rows.weights
    if np.isscalar(given):
        return np.full(rows.rows, given, np.float32)
    weights: Array = _check_sample_weight(given, X, ensure_non_negative=True)
    return weights
