"""From the first rows of a table and what the user says to a recipe.

Columns that nobody mentions are judged by their first values: numbers as they are, texts and whole numbers with few
different values as categories, lists of one length as vectors, other lists as several categories. Ids are left out,
of dates the hour, the weekday, the day and the month are taken. What was decided is part of the recipe, so it is
decided once: later data is read as it says.
"""

import difflib
import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from streamsvm.errors import ConfigError
from streamsvm.features.dates import CATEGORIES, PARTS, SHOWN, TIME, edges_of
from streamsvm.features.first_values import ENOUGH, NUMERIC, Seen, is_number
from streamsvm.features.recipe import DENSE, INDICATOR, Column, Recipe

LABELS = ("label", "target", "y", "class", "click", "clicked", "outcome")
FEW = 20  # different values that make a column of whole numbers a category
FEWEST_IDS = 10  # rows that must have been seen to take a column for an id by its name
LONGEST_ID = 40  # characters
DEFAULT_HASH_BITS = 22
_ID = re.compile(r"(?i:(.*[_\-. ])?(id|uuid|guid)|(row_?)?index|unnamed: ?[0-9]+)|.*[a-z0-9](Id|ID)")


class Wishes(NamedTuple):
    """What the user says of the columns; names may be patterns such as `I*`."""

    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    log1p: tuple[str, ...] = ()
    bucketize: Mapping[str, tuple[float, ...]] = {}
    dates: Mapping[str, tuple[str, ...]] = {}
    interactions: tuple[tuple[str, ...], ...] = ()
    hash_bits: int | None = None
    ngrams: int = 1
    label: str | None = None
    weight: str | None = None
    classes: tuple[Any, ...] | None = None
    labelled: bool = True  # False: no column is the label
    missing: str = INDICATOR  # what a missing number is: a feature of its own, or as good as zero


def plan(seen: Mapping[str, Seen], wishes: Wishes, note: Callable[[str], None], first: str | None = None) -> Recipe:
    """The recipe for a table with these columns; `first` is the label if nothing else is known of it."""
    label = _find_label(seen, wishes, first) if wishes.labelled else None
    weight = _known(wishes.weight, seen, "data.weight") if wishes.weight else _sparse_weight(seen)
    columns = []
    for name, what in seen.items():
        if name not in (label, weight, ""):
            wish = _wish(name, wishes)
            if wish is None and (why := _why_id(name, what, wishes)):
                note(f"{name}: {why}, ignored; --numeric {name} keeps it (features.numeric)")
            else:
                columns += _marked(_column(name, what, wish, wishes, seen, note), what, wishes)
    _remark(columns, seen, wishes, note)
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
    as_text = what.classes if what.kind == "bool" else what.odd and not all(is_number(str(c)) for c in declared or ())
    if (what.kind in NUMERIC and not as_text) or what.kind == "nothing":
        return None
    if what.kind not in ("text", "time", *NUMERIC):
        raise ConfigError(f"column {name} cannot be the label: it has no numbers or texts")
    if declared is not None:
        return tuple(str(label) for label in declared)
    if what.classes and all(map(is_number, what.classes)):
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
        "dates": tuple(wishes.dates),
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
    for kind in ("numeric", "categorical", "text", "ignore", "log1p", "bucketize", "dates"):
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
    if wish == "dates":
        given = name if name in wishes.dates else next(g for g in wishes.dates if fnmatch.fnmatchcase(name, g))
        return [_date(name, what, wishes.dates[given])]
    if wish == "text":
        return [Column(name, "text")]
    if wish == "categorical":
        lists = what.kind in ("wholes", "numbers", "texts")
        return [Column(name, "words" if lists else "word", number=what.kind in (*NUMERIC, "wholes", "numbers"))]
    return _automatic(name, what, seen, note)


def _marked(columns: list[Column], what: Seen, wishes: Wishes) -> list[Column]:
    """With an indicator of what is missing where there are numbers; a field that most rows lack needs none."""
    if wishes.missing != INDICATOR or what.sparse:
        return columns
    return [replace(column, missing=INDICATOR) if column.kind in DENSE else column for column in columns]


def _automatic(name: str, what: Seen, seen: Mapping[str, Seen], note: Callable[[str], None]) -> list[Column]:
    if name in ("indices", "values") and _is_sparse(seen):
        return [Column(name, "sparse", values="values")] if name == "indices" else []
    if what.kind == "whole":
        category = 2 < what.distinct <= FEW and what.filled >= ENOUGH
        return [Column(name, "word", number=True) if category else Column(name, "number")]
    if what.kind in NUMERIC:
        return [Column(name, "number")]
    if what.kind in ("text", "nothing"):
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
        column = _date(name, what, what.parts or tuple(CATEGORIES))
        note(f"{name}: a date, of which {', '.join(column.parts)} are features (features.dates)")
        return [column]
    note(f"warning: column {name} is left out: it holds neither numbers nor texts nor lists of them")
    return []


def _date(name: str, what: Seen, parts: tuple[str, ...]) -> Column:
    if what.kind not in ("time", "nothing"):
        raise ConfigError(f"features.dates: column {name} holds no dates such as {SHOWN}")
    edges = (what.numbers or edges_of(())) if TIME in parts else ()
    return Column(name, "date", edges=edges, parts=tuple(part for part in PARTS if part in parts))


def _why_id(name: str, what: Seen, wishes: Wishes) -> str:
    """Why a column is an id and no feature; nothing if it may be one."""
    if any(name in group for group in wishes.interactions) or what.distinct != what.filled:
        return ""
    if what.step:
        return f"whole numbers that grow by {what.step:g} from row to row"
    short = what.kind == "whole" or (what.kind == "text" and what.longest <= LONGEST_ID)
    return "all values differ" if short and what.filled >= FEWEST_IDS and _ID.fullmatch(name) else ""


def _remark(columns: list[Column], seen: Mapping[str, Seen], wishes: Wishes, note: Callable[[str], None]) -> None:
    """Say what of the columns may be misread."""
    for column in columns:
        what = seen[column.name]
        if what.odd and column.kind in ("number", "log1p", "bucket", "date"):
            kind = "dates" if column.kind == "date" else "numbers"
            some = ", ".join(map(repr, what.odd)) + (", ..." if what.oddities > len(what.odd) else "")
            note(
                f"warning: column {column.name}: {what.oddities:,} of the first {what.filled + what.oddities:,} values "
                f"are no {kind} ({some}), and rows with them malformed; --on-bad-row skip leaves these out, "
                f"--categorical {column.name} makes each value a category"
            )
        elif what.like_numbers and column.kind == "word" and _wish(column.name, wishes) is None:
            note(
                f"warning: column {column.name}: values such as {what.like_numbers!r} are no numbers as they are "
                f"written, and each is a category; if they are numbers, write them plainly, as 1234.5"
            )
    free = [c.name for c in columns if c.kind in ("word", "number") and _wish(c.name, wishes) is None]
    differ = [name for name in free if seen[name].kind in ("text", "whole") and _all_differ(seen[name])]
    if differ:
        note(f"warning: all values differ in {_some(differ)}; what is no feature: --ignore {','.join(differ[:4])}")


def _all_differ(what: Seen) -> bool:
    return what.filled >= ENOUGH and what.distinct == what.filled


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
    words |= {"date": "dates"}
    kinds: dict[str, list[str]] = {}
    for column in recipe.columns:
        kinds.setdefault(words[column.kind], []).append(column.name)
    shown = [f"{len(names)} {kind} ({_some(names)})" for kind, names in kinds.items()]
    if recipe.interactions:
        shown.append(f"{len(recipe.interactions)} interactions")
    note(f"features: {', '.join(shown)}; {label}")


def _some(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{names[0]}, {names[1]}, ... {names[-1]}"
