"""From the first rows of a table and what the user says to a recipe.

Columns that nobody mentions are judged by their first values: numbers as they are, texts and whole numbers with few
different values as categories, lists of one length as vectors, other lists as several categories. Timestamps are
refused. What was decided is part of the recipe, so it is decided once: later data is read as the recipe says.
"""

import datetime
import difflib
import fnmatch
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from streamsvm.cells import number_text
from streamsvm.errors import ConfigError
from streamsvm.features.recipe import DENSE, INDICATOR, Column, Recipe

LABELS = ("label", "target", "y", "class", "click", "clicked", "outcome")
FEW = 20  # different values that make a column of whole numbers a category
ENOUGH = 100  # rows that must have been seen for that
DEFAULT_HASH_BITS = 22
MOST_CLASSES = 1000
_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9.]+)?(Z|[+-][0-9:]+)?)?")
_NUMERIC = ("whole", "number", "bool")


class Wishes(NamedTuple):
    """What the user says of the columns; names may be patterns such as `I*`."""

    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    log1p: tuple[str, ...] = ()
    bucketize: Mapping[str, tuple[float, ...]] = {}
    interactions: tuple[tuple[str, ...], ...] = ()
    hash_bits: int | None = None
    ngrams: int = 1
    label: str | None = None
    weight: str | None = None
    classes: tuple[Any, ...] | None = None
    labelled: bool = True  # False: no column is the label
    counted: bool = True  # whether whole numbers with few different values are categories
    missing: str = INDICATOR  # what a missing number is: a feature of its own, or as good as zero


class Seen(NamedTuple):
    """What the first rows have in a column."""

    kind: str  # whole, number, bool, text, time, wholes, numbers, texts, nothing, other
    filled: int = 0
    distinct: int = 0
    width: int = 0  # of lists, if all have the same
    classes: tuple[str, ...] = ()  # the different texts, if they are not too many
    numbers: tuple[float, ...] = ()  # the different numbers, likewise
    sparse: bool = False  # a field that over half of the first lines of JSON do not have


def look_at(values: Iterable[Any]) -> Seen:
    """Judge a column by some of its values, as Python has them.

    >>> look_at([1, 2, None]).kind, look_at([1, 2.5]).kind, look_at(["a", 1]).kind, look_at([[1, 2], [3, 4]]).kind
    ('whole', 'number', 'text', 'wholes')
    """
    there = [value for value in values if value is not None and value != "" and value == value]
    types = set(map(type, there))
    if types and types <= {int, float}:
        numbers = set(there)
        kept = tuple(sorted(map(float, numbers))) if len(numbers) <= MOST_CLASSES else ()
        return Seen("number" if float in types else "whole", len(there), len(numbers), numbers=kept)
    different = set(there) if types == {str} else there
    kinds = {_kind(value) for value in different}
    if not kinds:
        return Seen("nothing")
    if any(isinstance(value, (list, tuple)) for value in there):
        return _look_at_lists([value for value in there if isinstance(value, (list, tuple))], len(kinds) > 1)
    texts = {_spelled(value) for value in different}
    kind = _together(kinds)
    classes = tuple(sorted(texts)) if kind == "text" and len(texts) <= MOST_CLASSES else ()
    return Seen(kind, len(there), len(texts), classes=classes)


def look_at_texts(texts: Iterable[str], missing: Collection[str] = ()) -> Seen:
    """Judge a column of a file of text: numbers, if all are that are not missing; else texts as they are written.

    >>> look_at_texts(["1", "", " 2", "NA"], {"NA"}).kind, look_at_texts(["DE", "NA", "07"], {"NA"}).classes
    ('whole', ('07', 'DE', 'NA'))
    """
    texts = list(texts)
    known: dict[str, Any] = {}
    for text in set(texts):
        if text.strip() not in missing:
            known[text] = number_of_text(text)
            if isinstance(known[text], str):
                return look_at(texts)
    numbers = look_at(known[text] for text in texts if text in known)
    return numbers if numbers.kind in _NUMERIC else look_at(texts)


def _spelled(value: Any) -> str:
    """The text of a value, were it a category."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return number_text(value)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "whole"
    if isinstance(value, float):
        return "number"
    if isinstance(value, (datetime.date, datetime.time, datetime.timedelta)):
        return "time"
    if isinstance(value, str):
        return "time" if _TIME.fullmatch(value) else "text"
    if isinstance(value, (list, tuple)):
        return "list"
    if isinstance(value, bytes):
        return "text"
    return "number" if type(value).__name__ == "Decimal" else "other"


def _together(kinds: set[str]) -> str:
    """The kind of a column with values of these kinds."""
    if len(kinds) == 1:
        return next(iter(kinds))
    if kinds <= {"whole", "number", "bool"}:
        return "number" if "number" in kinds else "whole"
    return "other" if "other" in kinds else "text"


def _look_at_lists(lists: list[Any], mixed: bool) -> Seen:
    items = [item for values in lists for item in values if item is not None]
    kind = _together({_kind(item) for item in items}) if items else "nothing"
    lengths = {len(values) for values in lists}
    width = lengths.pop() if len(lengths) == 1 else 0
    names = {"whole": "wholes", "number": "numbers", "bool": "wholes", "text": "texts", "nothing": "nothing"}
    return Seen("other" if mixed else names.get(kind, "other"), len(lists), 0, width)


def number_of_text(text: str) -> Any:
    """What a field of text is: a whole number, a number, or a text.

    >>> number_of_text("7"), number_of_text("7.5"), number_of_text("7a"), number_of_text("")
    (7, 7.5, '7a', None)
    """
    number = text.strip()
    if not number:
        return None
    if _WHOLE.fullmatch(number) and len(number) < 1000:  # Python refuses to read many more digits
        return int(number)
    return float(number) if _NUMBER.fullmatch(number) else text


def plan(seen: Mapping[str, Seen], wishes: Wishes, note: Callable[[str], None], first: str | None = None) -> Recipe:
    """The recipe for a table with these columns; `first` is the label if nothing else is known of it."""
    label = _find_label(seen, wishes, first) if wishes.labelled else None
    weight = _known(wishes.weight, seen, "data.weight") if wishes.weight else _sparse_weight(seen)
    columns = []
    for name, what in seen.items():
        if name not in (label, weight, ""):
            columns += _marked(_column(name, what, _wish(name, wishes), wishes, seen, note), what, wishes)
    _refuse_unknown(seen, wishes)
    if "" in seen and "" not in (label, weight):
        note("warning: a column without a name is left out; if it is a feature, give it one")
    if not columns:
        raise ConfigError("no column is left to learn from: see features.ignore, and data.label")
    recipe = Recipe(
        tuple(columns),
        label=label,
        label_classes=_label_classes(seen[label], label, wishes.classes) if label is not None else None,
        weight=weight,
        interactions=_interactions(wishes.interactions, columns),
        hash_bits=wishes.hash_bits,
        ngrams=wishes.ngrams,
    )
    if recipe.hashed and recipe.hash_bits is None:
        recipe = replace(recipe, hash_bits=DEFAULT_HASH_BITS)
    _say(recipe, note)
    return recipe


# Label and weight.


def _known(name: str, seen: Mapping[str, Seen], setting: str) -> str:
    if name in seen:
        return name
    if list(seen) == [f"c{k}" for k in range(1, len(seen) + 1)]:
        raise ConfigError(
            f"{setting}: there is no column {name}: without a header columns are called c1, c2, ...; "
            "name them with --columns (data.columns)"
        )
    raise ConfigError(f"{setting}: there is no column {name}{_nearest(name, seen)}")


def _nearest(name: str, seen: Iterable[str]) -> str:
    names = list(seen)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f" (did you mean {close[0]}?)"
    return f" (there are {', '.join(names[:12])}{', ...' if len(names) > 12 else ''})"


def _find_label(seen: Mapping[str, Seen], wishes: Wishes, first: str | None) -> str:
    if wishes.label:
        return _known(wishes.label, seen, "data.label")
    lowered = {name.lower(): name for name in reversed(list(seen))}
    found = next((lowered[name] for name in LABELS if name in lowered), first)
    if found is None:
        raise ConfigError(f"which column is the label? Name it with --label (data.label){_nearest('', seen)}")
    return found


def _sparse_weight(seen: Mapping[str, Seen]) -> str | None:
    """The column `weight` of a table that holds sparse rows, as `streamsvm convert` writes it."""
    return "weight" if _is_sparse(seen) and "weight" in seen else None


def _is_sparse(seen: Mapping[str, Seen]) -> bool:
    return "indices" in seen and seen["indices"].kind in ("wholes", "nothing") and "values" in seen


def _label_classes(what: Seen, name: str, declared: tuple[Any, ...] | None) -> tuple[str, ...] | None:
    """The classes of a label that is a text; None where it is a number."""
    if what.kind in _NUMERIC or what.kind == "nothing":
        return None
    if what.kind not in ("text", "time"):
        raise ConfigError(f"column {name} cannot be the label: it has no numbers or texts")
    if declared is not None:
        return tuple(str(label) for label in declared)
    if what.classes and all(_NUMBER.fullmatch(text) for text in what.classes):
        return None
    if len(what.classes) < 2:
        raise ConfigError(
            f"column {name}: the first rows have {'one class' if what.classes else 'too many different texts'}; "
            "declare the classes, as in --classes no,yes (data.classes)"
        )
    return what.classes


# Features.


def _wish(name: str, wishes: Wishes) -> str | None:
    """What the user wants a column to be; a name counts more than a pattern."""
    lists = {
        "bucketize": tuple(wishes.bucketize),
        **{kind: getattr(wishes, kind) for kind in ("numeric", "categorical", "text", "log1p", "ignore")},
    }
    for matches in (lambda given: given == name, lambda given: fnmatch.fnmatchcase(name, given)):
        found = [kind for kind, given in lists.items() if any(matches(one) for one in given)]
        if len(found) > 1:
            raise ConfigError(f"column {name} is named in features.{found[0]} and in features.{found[1]}")
        if found:
            return found[0]
    return None


def _refuse_unknown(seen: Mapping[str, Seen], wishes: Wishes) -> None:
    """ConfigError if a column is named that is not there."""
    for kind in ("numeric", "categorical", "text", "ignore", "log1p", "bucketize"):
        for name in getattr(wishes, kind):
            if not fnmatch.filter(seen, name) and name not in seen:
                raise ConfigError(f"features.{kind}: there is no column {name}{_nearest(name, seen)}")


def _column(
    name: str, what: Seen, wish: str | None, wishes: Wishes, seen: Mapping[str, Seen], note: Callable[[str], None]
) -> list[Column]:
    """What becomes of a column: nothing, if the list is empty."""
    if wish == "ignore":
        return []
    if wish == "numeric":
        if what.kind in ("wholes", "numbers"):
            return [_vector(name, what)]
        return [Column(name, "number")]
    if wish == "log1p":
        return [Column(name, "log1p")]
    if wish == "bucketize":
        patterns = (edges for given, edges in wishes.bucketize.items() if fnmatch.fnmatchcase(name, given))
        edges = wishes.bucketize[name] if name in wishes.bucketize else next(patterns)
        return [Column(name, "bucket", edges=tuple(edges))]
    if wish == "text":
        return [Column(name, "text")]
    if wish == "categorical":
        lists = what.kind in ("wholes", "numbers", "texts")
        return [Column(name, "words" if lists else "word", number=what.kind in (*_NUMERIC, "wholes", "numbers"))]
    return _automatic(name, what, seen, note, counted=wishes.counted)


def _marked(columns: list[Column], what: Seen, wishes: Wishes) -> list[Column]:
    """With an indicator of what is missing where there are numbers; a field that most rows lack needs none."""
    if wishes.missing != INDICATOR or what.sparse:
        return columns
    return [replace(column, missing=INDICATOR) if column.kind in DENSE else column for column in columns]


def _automatic(
    name: str, what: Seen, seen: Mapping[str, Seen], note: Callable[[str], None], *, counted: bool
) -> list[Column]:
    if name in ("indices", "values") and _is_sparse(seen):
        return [Column(name, "sparse", values="values")] if name == "indices" else []
    if what.kind == "whole":
        category = counted and 2 < what.distinct <= FEW and what.filled >= ENOUGH
        return [Column(name, "word", number=True) if category else Column(name, "number")]
    if what.kind in _NUMERIC:
        return [Column(name, "number")]
    if what.kind in ("text", "nothing"):
        if what.filled >= ENOUGH and what.distinct == what.filled:
            note(f"warning: column {name} is different in every row; if it is no feature, use --ignore {name}")
        return [Column(name, "word")]
    if what.kind == "texts":
        return [Column(name, "words")]
    if what.kind in ("wholes", "numbers"):
        if what.width:
            return [_vector(name, what)]
        if what.kind == "wholes":
            return [Column(name, "words", number=True)]
        raise ConfigError(f"column {name} has lists of numbers of different length: use --ignore {name}")
    if what.kind == "time":
        raise ConfigError(
            f"column {name} holds timestamps, which are no features as they are: use --ignore {name} "
            "(features.ignore), and make columns of the parts that matter, such as the hour or the weekday"
        )
    note(f"warning: column {name} is left out: it holds neither numbers nor texts nor lists of them")
    return []


def _vector(name: str, what: Seen) -> Column:
    if not what.width:
        raise ConfigError(f"column {name} has lists of different length, and so cannot be numeric")
    return Column(name, "vector", width=what.width)


def _interactions(given: tuple[tuple[str, ...], ...], columns: list[Column]) -> tuple[tuple[str, ...], ...]:
    names = [column.name for column in columns]
    for group in given:
        for name in group:
            if name not in names:
                raise ConfigError(f"features.interactions: {name} is no feature{_nearest(name, names)}")
    return given


def _say(recipe: Recipe, note: Callable[[str], None]) -> None:
    """What was decided, on one line."""
    label = f"label {recipe.label}" if recipe.label is not None else "no label"
    if recipe.as_written:
        note(f"features: indices and values as written, {label}")
        return
    words = {"number": "numeric", "log1p": "log1p", "bucket": "bucketized", "word": "categorical"}
    words |= {"words": "lists of categories", "text": "text", "vector": "vectors", "sparse": "sparse"}
    kinds: dict[str, list[str]] = {}
    for column in recipe.columns:
        kinds.setdefault(words[column.kind], []).append(column.name)
    shown = [f"{len(names)} {kind} ({_some(names)})" for kind, names in kinds.items()]
    if recipe.interactions:
        shown.append(f"{len(recipe.interactions)} interactions")
    note(f"features: {', '.join(shown)}; {label}")


def _some(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{names[0]}, {names[1]}, ... {names[-1]}"
