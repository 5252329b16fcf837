"""Recipe: what becomes of a table's columns. It is stored in the model, and is all that is needed to read data for it.

    numbers (as they are, log1p), vectors     an index for each, from 0 on, in the order of the recipe
    their indicators                          an index for each of these columns with `missing: indicator`, after the
                                              numbers: 1 where the number, or the whole vector, is missing
    dates                                     their hour, weekday, day and month, hashed (dates.py)
    everything else                           dense + (hash mod 2^hash_bits), with the sign that hashing.py describes
    sparse columns alone                      indices as written, masked by hash_bits if that is given

A feature that is missing, or 0, is absent from the row. `wants` is what the recipe needs of a table, as cells.py says.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Int64s
from streamsvm.cells import INDICES, NUMBER, NUMBERS, TEXT, WORD, WORDS, Want
from streamsvm.errors import ModelError
from streamsvm.features.dates import PARTS
from streamsvm.hashing import seed_of, word_from

BESIDE = ("format", "fields", "scale", "names", "map")  # what a model keeps beside the recipe itself
DENSE = ("number", "log1p", "vector")
INDICATOR = "indicator"
CELLS = {
    "number": NUMBER,
    "log1p": NUMBER,
    "bucket": NUMBER,
    "vector": NUMBERS,
    "word": WORD,
    "words": WORDS,
    "text": TEXT,
    "date": TEXT,
    "sparse": INDICES,
}


@dataclass(frozen=True)
class Column:
    """A column, or a nested field, and what becomes of it."""

    name: str
    kind: str  # a key of CELLS
    number: bool = False  # a word that was a number when the recipe was made
    width: int = 1  # of a vector
    edges: tuple[float, ...] = ()  # between the buckets; of a date: the seconds that become 0 and 1
    values: str | None = None  # of sparse indices: the column with their values, if they have any
    missing: str | None = None  # INDICATOR: a missing number is a feature of its own; None: it is as good as 0
    parts: tuple[str, ...] = ()  # of a date: hour, weekday, day, month, time


class Numbers(NamedTuple):
    """The indices of all features that are numbers, and for each that of its column's indicator, -1 without one."""

    indices: Int64s
    indicators: Int64s


def numbers_of(stored: Mapping[str, Any]) -> Numbers | None:
    """The numbers among the features that a model, or a stream, describes; None where these are no table's columns."""
    return Recipe.of_model(dict(stored)).numbers() if stored.get("format") == "table" else None


@dataclass(frozen=True)
class Recipe:
    """What becomes of the columns of a table, and which of them are label and weight."""

    columns: tuple[Column, ...]
    label: str | None = None
    label_classes: tuple[str, ...] | None = None  # of a label that is a text; the code is the place in it
    weight: str | None = None
    hash_bits: int | None = None  # None only where nothing is hashed
    interactions: tuple[tuple[str, ...], ...] = ()
    ngrams: int = 1
    hash: str = field(default="murmur3_32 signed", init=False)

    @property
    def as_written(self) -> bool:
        """Whether indices are used as they stand in the data."""
        return len(self.columns) == 1 and self.columns[0].kind == "sparse" and not self.interactions

    @property
    def measured(self) -> int:
        """How many features are numbers."""
        return sum(column.width for column in self.columns if column.kind in DENSE)

    @property
    def dense(self) -> int:
        """How many features have an index of their own: numbers, then what says that they are missing."""
        return self.measured + sum(column.missing is not None for column in self.columns)

    @property
    def hashed(self) -> bool:
        return not self.as_written and (
            bool(self.interactions) or any(column.kind not in DENSE for column in self.columns)
        )

    @property
    def width(self) -> int:
        """The number of weights; 0 where it grows with the data."""
        if self.as_written:
            return 1 << self.hash_bits if self.hash_bits else 0
        return self.dense + (1 << (self.hash_bits or 0) if self.hashed else 0)

    def firsts(self) -> list[int]:
        """The first index of each column; -1 of those that are hashed."""
        found, index = [], 0
        for column in self.columns:
            found.append(index if column.kind in DENSE else -1)
            index += column.width if column.kind in DENSE else 0
        return found

    def indicators(self) -> list[int]:
        """The index that says that a column has no number; -1 of those without."""
        found, index = [], self.measured
        for column in self.columns:
            found.append(index if column.missing is not None else -1)
            index += column.missing is not None
        return found

    def numbers(self) -> "Numbers":
        """The features that are numbers, each with its indicator."""
        of_column = [c for c, column in enumerate(self.columns) if column.kind in DENSE for _ in range(column.width)]
        return Numbers(np.arange(self.measured), np.array(self.indicators(), np.int64)[of_column])

    def with_missing_of(self, other: "Recipe") -> "Recipe":
        """With indicators for the columns that have one in another recipe: a model that learns on has what it had."""
        known = {column.name: column.missing for column in other.columns}
        columns = [
            replace(c, missing=known.get(c.name, c.missing)) if c.kind in DENSE else c for c in self.columns
        ]  # fmt: skip
        return replace(self, columns=tuple(columns))

    def dense_names(self) -> list[str]:
        """What the features with an index of their own are called."""
        names = []
        for column in self.columns:
            if column.kind == "vector":
                names += [f"{column.name}[{k}]" for k in range(column.width)]
            elif column.kind in DENSE:
                names.append(f"log1p({column.name})" if column.kind == "log1p" else column.name)
        return names + [f"{column.name} is missing" for column in self.columns if column.missing is not None]

    def wants(self) -> tuple[Want, ...]:
        """The cells of each column, then those of values of sparse columns."""
        wants = [Want(c.name, CELLS[c.kind], seed_of(c.name), c.number, c.kind == "date") for c in self.columns]
        wants += [Want(c.values, NUMBERS) for c in self.columns if c.values is not None]
        return tuple(wants)

    def label_want(self) -> Want | None:
        if self.label is None:
            return None
        return Want(self.label, NUMBER) if self.label_classes is None else Want(self.label, WORD)

    def class_words(self) -> list[int]:
        """The words of the classes of a label that is a text."""
        return [word_from(name, 0) for name in self.label_classes or ()]

    def _check(self) -> None:
        """ValueError if kernels could not work by it."""
        names = {column.name for column in self.columns}
        for column in self.columns:
            if not isinstance(column.name, str) or not 0 < column.width < 1 << 31:
                raise ValueError(f"column {column.name!r} is wrong")
            if list(column.edges) != sorted(float(edge) for edge in column.edges):
                raise ValueError(f"column {column.name}: the edges do not rise")
            if column.missing not in ((None, INDICATOR) if column.kind in DENSE else (None,)):
                raise ValueError(f"column {column.name}: missing is {column.missing!r}")
            if (column.kind == "date") != bool(column.parts) or not set(PARTS).issuperset(column.parts):
                raise ValueError(f"column {column.name}: its parts are not those of a date")
            if column.kind == "date" and len(column.edges) not in (0, 2):
                raise ValueError(f"column {column.name}: two edges are needed")
        if len(names) != len(self.columns) or not names:
            raise ValueError("no columns, or two of one name")
        if any(not 2 <= len(group) <= 3 or not names.issuperset(group) for group in self.interactions):
            raise ValueError("an interaction of unknown columns")
        if not (self.hash_bits is None and not self.hashed) and not 1 <= (self.hash_bits or 0) <= 31:
            raise ValueError("hash_bits is not from 1 to 31")
        if not 1 <= self.ngrams <= 3:
            raise ValueError("ngrams is not from 1 to 3")

    # In the model.

    def as_json(self) -> dict[str, Any]:
        """Plain values; what is not needed is left out."""
        defaults = asdict(Column("", ""))
        columns = [{k: v for k, v in asdict(c).items() if v != defaults[k]} for c in self.columns]
        plain: dict[str, Any] = json.loads(json.dumps({**asdict(self), "columns": columns}))  # lists, no tuples
        return plain

    @classmethod
    def of_model(cls, stored: dict[str, Any]) -> "Recipe":
        """The recipe of a model of a table, from all that the model keeps of its features."""
        return cls.from_json({key: value for key, value in stored.items() if key not in BESIDE})

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "Recipe":
        """The recipe of a model; ModelError if it is none that this version understands."""
        try:
            stored = dict(stored)
            if stored.pop("hash") != "murmur3_32 signed":
                raise ValueError("another hash")
            tuples = ("edges", "parts")
            columns = [
                Column(**{**c, **{name: tuple(c[name]) for name in tuples if name in c}}) for c in stored.pop("columns")
            ]
            if any(column.kind not in CELLS for column in columns):
                raise ValueError("a column of unknown kind")
            classes = stored.pop("label_classes")
            interactions = tuple(tuple(names) for names in stored.pop("interactions"))
            recipe = cls(
                tuple(columns),
                label_classes=tuple(classes) if classes is not None else None,
                interactions=interactions,
                **stored,
            )
            recipe._check()
            return recipe
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(f"the model's features cannot be understood by this version ({error})") from error
