"""The kinds of values that settings have: each checks one value and says in plain English what it accepts."""

import math
import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema

from streamsvm.config.wording import format_size, one_of, parse_duration, parse_size, show
from streamsvm.errors import ConfigError
from streamsvm.io.urls import REMOTE_EXTRAS
from streamsvm.offered import DATE_PARTS

HIDDEN = "(hidden)"  # what is shown in place of an option for a file system
SIZE = "size in bytes"  # marks the fields that people read and write as 256MB
DURATION = "duration in seconds"  # and those that they read and write as 10m
LARGEST = 2**63 - 1  # what the kernels' integers hold


def no_bool(value: object) -> object:
    if isinstance(value, bool):  # pydantic would read true as 1
        raise ValueError("must be a number")
    return value


def _sources(value: object) -> tuple[str, ...] | None:
    """One or several places to read from, as a tuple either way."""
    if value is None:
        return None
    items = value if isinstance(value, (list, tuple)) else [value]
    texts: list[Any] = [os.fspath(item) if isinstance(item, os.PathLike) else item for item in items]
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise ValueError("must be a path or url, or a list of them, as text (in quotes if it looks like a number)")
    return tuple(texts)


def _classes(value: object) -> tuple[int | float | str, ...] | None:
    """The labels as they were written; 1, 1.0 and "1" are one label, since data files do not tell them apart."""
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        raise ValueError("must be a list of classes such as [spam, ham]")
    for item in value:
        if isinstance(item, bool) or not isinstance(item, (int, float, str)):
            raise ValueError(f"must hold numbers or text only, found {show(item)} (quotes make it text)")
        if isinstance(item, float) and not math.isfinite(item):
            raise ValueError("must hold finite numbers only")
    names = [str(int(item)) if isinstance(item, float) and item.is_integer() else str(item) for item in value]
    if len(value) < 2 or len(set(names)) < len(names):
        raise ValueError("must be a list of at least two different classes")
    return tuple(value)


def _label_text(label: str) -> str:
    """A label in the one way that numbers are written: 1 for 1.0, +1 and 1."""
    try:
        number = float(label)
    except ValueError:
        return label
    return str(int(number)) if number.is_integer() else label


def _class_weights(value: object) -> dict[str, float] | str | None:
    """balanced, or a weight for each class; labels as text, because 1, 1.0 and "1" are one label."""
    if value is None or value == "balanced":
        return value
    if not isinstance(value, Mapping) or not value:
        raise ValueError("must be balanced, or weights by class such as {1: 5, -1: 1}")
    weights: dict[str, float] = {}
    for label, given in value.items():
        name = _label_text(str(label))
        try:
            weight = math.nan if isinstance(given, bool) else float(given)
        except (TypeError, ValueError):
            weight = math.nan
        if not (0.0 <= weight < math.inf) or name in weights:
            raise ValueError(f"class {show(label)} must have one weight, a number of at least 0")
        weights[name] = weight
    return weights


def _grid(value: object) -> str | tuple[float, ...] | None:
    """A range such as 1e-7..1e-2 as text, or the values themselves."""
    if value is None:
        return None
    text = value if isinstance(value, str) else ""
    ends = text.split("..")
    items: Any = ends if len(ends) == 2 else text.split(",") if text else value
    try:
        values = [float(item) for item in (items if isinstance(items, (list, tuple)) else [items])]
    except (TypeError, ValueError):
        values = []
    if not values or not all(0.0 < number < math.inf for number in values) or isinstance(value, bool):
        raise ValueError("must be a range such as 1e-7..1e-2, or a list of numbers greater than 0")
    if len(ends) == 2:
        if values[0] >= values[1]:
            raise ValueError("must be a range from a smaller to a larger number")
        return f"{values[0]:g}..{values[1]:g}"
    return tuple(dict.fromkeys(values))


def _names(known: tuple[str, ...]) -> PlainValidator:
    """One of the known words or several, as a tuple."""

    def check(value: Any) -> tuple[str, ...] | None:
        if value is None:
            return None
        items = value.split(",") if isinstance(value, str) else value
        found = tuple(dict.fromkeys(items)) if isinstance(items, (list, tuple)) else ()
        wrong = [name for name in found if name not in known]
        if not found or wrong:
            raise ValueError(one_of(wrong[0] if wrong else value, known))
        return found

    return PlainValidator(check)


def size_of(at_least: int) -> PlainValidator:
    def check(value: Any) -> int:
        try:
            size = parse_size(int(value) if isinstance(value, float) and value.is_integer() else value)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        if size < at_least:
            raise ValueError(f"must be at least {format_size(at_least)}")
        return size

    return PlainValidator(check)


def _duration(value: Any) -> float | None:
    """Seconds; null where there is no such time."""
    if value is None:
        return None
    try:
        return parse_duration(value)
    except ConfigError as error:
        raise ValueError(str(error)) from error


def _auto_or(number: type[int] | type[float], rule: str, *, zero: bool = False) -> PlainValidator:
    """The word auto or a positive number. A union would report the failure of each branch; this reports one."""

    def check(value: Any) -> float | str:
        try:
            found = number(value) if not isinstance(value, bool) else -1
        except (TypeError, ValueError, OverflowError):
            found = -1
        largest = LARGEST if number is int else 1e300
        if value != "auto" and (
            not (0 < found <= largest or (zero and found == 0)) or (isinstance(value, float) and found != value)
        ):
            raise ValueError(f"must be auto or {rule}")
        return "auto" if value == "auto" else found

    return PlainValidator(check)


def _cache(value: object) -> str:
    if value is False or (isinstance(value, str) and value.lower() in ("off", "no")):
        return "off"  # many YAML readers turn a bare off into false
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text:
        raise ValueError("must be auto, off or a path")
    return text


def _any_of(*kinds: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": list(kinds)})


_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
_NULL: dict[str, Any] = {"type": "null"}
_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT, "minItems": 1}
_NAMES: dict[str, Any] = {"type": "array", "items": {"type": ["number", "string"]}, "minItems": 2, "uniqueItems": True}
_SIZE_TEXT: dict[str, Any] = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]*)?\s*([kKmMgGtT]?i?[bB])?$"}
_TIME_TEXT: dict[str, Any] = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]*)?\s*(ms|s|m|min|h|d)?$"}
BYTES = _any_of(_SIZE_TEXT, {"type": "integer", "minimum": 1})

Whole = Annotated[int, Field(ge=0, le=LARGEST), BeforeValidator(no_bool)]
Count = Annotated[int, Field(ge=1, le=LARGEST), BeforeValidator(no_bool)]
HashBits = Annotated[int, Field(ge=1, le=31), BeforeValidator(no_bool)]
Dimension = Annotated[int, Field(ge=1, le=2**32 - 1), BeforeValidator(no_bool)]
Fraction = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False), BeforeValidator(no_bool)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(no_bool)]
Every = Annotated[int, Field(ge=2, le=LARGEST), BeforeValidator(no_bool)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(no_bool)]
Text = Annotated[str, Field(min_length=1)]
Sources = Annotated[tuple[str, ...] | None, PlainValidator(_sources), _any_of(_NULL, _TEXT, _TEXTS)]
Classes = Annotated[tuple[int | float | str, ...] | None, PlainValidator(_classes), _any_of(_NULL, _NAMES)]
Threads = Annotated[
    int | Literal["auto"],
    _auto_or(int, "a whole number of at least 1"),
    _any_of({"const": "auto"}, {"type": "integer", "minimum": 1}),
]
Step = Annotated[
    float | Literal["auto"],
    _auto_or(float, "a number greater than 0"),
    _any_of({"const": "auto"}, {"type": "number", "exclusiveMinimum": 0}),
]
Shuffle = Annotated[
    int | Literal["auto"],
    _auto_or(int, "a whole number of at least 0", zero=True),
    _any_of({"const": "auto"}, {"type": "integer", "minimum": 0}),
]
Duration = Annotated[
    float | None, PlainValidator(_duration), _any_of(_NULL, _TIME_TEXT, {"type": "number", "minimum": 0}), DURATION
]
Cache = Annotated[str, PlainValidator(_cache), _any_of(_TEXT, {"const": False})]
ClassWeights = Annotated[
    dict[str, float] | Literal["balanced"] | None,
    PlainValidator(_class_weights),
    _any_of(_NULL, {"const": "balanced"}, {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}}),
]
Grid = Annotated[
    str | tuple[float, ...] | None,
    PlainValidator(_grid),
    _any_of(
        _NULL,
        {"type": "string"},
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "minItems": 1},
    ),
]


def _columns(value: object) -> tuple[str, ...] | None:
    """One name or several; in a text they are separated by commas."""
    if value is None:
        return None
    found = value.split(",") if isinstance(value, str) else value
    if not isinstance(found, (list, tuple)) or not all(isinstance(name, str) and name.strip() for name in found):
        raise ValueError("must be the name of a column, or a list of names")
    return tuple(name.strip() for name in found)


def _interactions(value: object) -> tuple[tuple[str, ...], ...] | None:
    """Groups of two or three names; in a text `ad*user,ad*user*hour`."""
    if value is None:
        return None
    groups = value.split(",") if isinstance(value, str) else value
    if not isinstance(groups, (list, tuple)):
        raise ValueError("must be a list of pairs or triples of columns, such as [[ad, user]]")
    found = []
    for group in groups:
        names = group.split("*") if isinstance(group, str) else group
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) and name.strip() for name in names):
            raise ValueError("must be a list of pairs or triples of columns, such as [[ad, user]]")
        if not 2 <= len(names) <= 3:
            raise ValueError("must have two or three columns in each interaction")
        found.append(tuple(name.strip() for name in names))
    return tuple(found)


def _buckets(value: object) -> dict[str, tuple[float, ...]] | None:
    """For each column the numbers between its buckets, rising."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError("must be edges by column, such as {age: [18, 30, 50]}")
    found = {}
    for name, edges in value.items():
        numbers = isinstance(edges, (list, tuple)) and all(
            isinstance(edge, (int, float)) and not isinstance(edge, bool) for edge in edges
        )
        if not numbers or not edges or any(a >= b for a, b in zip(edges, edges[1:], strict=False)):
            raise ValueError(f"{name} must have a list of rising numbers, such as [18, 30, 50]")
        found[str(name)] = tuple(float(edge) for edge in edges)
    return found


def _dates(value: object) -> dict[str, tuple[str, ...]] | None:
    """For each column what is told of its dates; of columns that are only named all of it."""
    if value is None:
        return None
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",")]
    given = value if isinstance(value, dict) else dict.fromkeys(value) if isinstance(value, (list, tuple)) else None
    if given is None:
        raise ValueError("must be columns, or parts by column, such as {when: [hour, weekday, day, month, time]}")
    found = {}
    for name, parts in given.items():
        parts = [parts] if isinstance(parts, str) else list(DATE_PARTS) if parts is None else parts
        if not isinstance(parts, (list, tuple)) or not parts or not set(DATE_PARTS).issuperset(map(str, parts)):
            raise ValueError(f"{name} must have some of {', '.join(DATE_PARTS)}")
        found[str(name)] = tuple(str(part) for part in parts)
    return found


def _header(value: object) -> bool | str:
    if value == "auto" or isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "yes", "false", "no"):
        return value.lower() in ("true", "yes")
    raise ValueError("must be auto, true or false")


_NAME_LIST = {"type": "array", "items": {"type": "string"}}
Columns = Annotated[tuple[str, ...] | None, PlainValidator(_columns), _any_of(_NULL, _TEXT, _NAME_LIST)]
Interactions = Annotated[
    tuple[tuple[str, ...], ...] | None,
    PlainValidator(_interactions),
    _any_of(_NULL, _TEXT, {"type": "array", "items": {"anyOf": [_TEXT, {**_NAME_LIST, "minItems": 2, "maxItems": 3}]}}),
]
Buckets = Annotated[
    dict[str, tuple[float, ...]] | None,
    PlainValidator(_buckets),
    _any_of(_NULL, {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "number"}}}),
]
_SOME_PARTS = {"type": "array", "items": {"enum": list(DATE_PARTS)}}
Dates = Annotated[
    dict[str, tuple[str, ...]] | None,
    PlainValidator(_dates),
    _any_of(_NULL, _TEXT, _NAME_LIST, {"type": "object", "additionalProperties": _SOME_PARTS}),
]
Header = Annotated[bool | str, PlainValidator(_header), _any_of({"const": "auto"}, {"type": "boolean"})]
Ngrams = Annotated[int, Field(ge=1, le=3), BeforeValidator(no_bool)]


def names_among(known: tuple[str, ...]) -> Any:
    """The kind of a setting that holds one or several of the known words."""
    words = {"enum": list(known)}
    listed = {"type": "array", "items": words, "minItems": 1}
    return Annotated[tuple[str, ...] | None, _names(known), _any_of(_NULL, words, listed)]


def _storage_options(value: object) -> dict[str, dict[str, Any]] | None:
    """Options by protocol. What is wrong with them is said without them: many are secrets."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ValueError("must be options by protocol, such as {s3: {anon: true}} (got something else)")
    found: dict[str, dict[str, Any]] = {}
    for protocol, options in value.items():
        if protocol not in REMOTE_EXTRAS:
            raise ValueError(f"{one_of(protocol, REMOTE_EXTRAS)} in place of a protocol")
        if options is None:
            continue
        if not isinstance(options, Mapping):
            raise ValueError(f"{protocol} must have options such as {{anon: true}} (got something else)")
        if _has_hidden(options):
            raise ValueError(
                f"{protocol} has options that were hidden when they were printed: write them again, better as "
                "references such as ${NAME} to the environment (got something hidden)"
            )
        found[str(protocol)] = dict(options)
    return found or None


def _has_hidden(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_hidden, value.values()))
    return any(map(_has_hidden, value)) if isinstance(value, (list, tuple)) else value == HIDDEN


StorageOptions = Annotated[
    dict[str, dict[str, Any]] | None,
    PlainValidator(_storage_options),
    WithJsonSchema(
        {
            "anyOf": [
                _NULL,
                {
                    "type": "object",
                    "properties": {name: {"type": ["object", "null"]} for name in REMOTE_EXTRAS},
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
