"""What the first values of a column are: numbers, texts, times, or lists of them; the same in every format.

A value counts by what it says, not by how it is stored: texts that spell numbers are numbers, wherever they come from.
A column that is nearly all numbers is one of numbers, and the others are mistakes in it, each a bad row when it is
read.
"""

import datetime
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from streamsvm.cells import LARGEST_WHOLE, MISSING_WORDS, number_text
from streamsvm.features.dates import edges_of, seconds_of

ENOUGH = 100  # rows that must have been seen to tell a category from a number, or a counter from either
MOST_CLASSES = 1000
ODD = 0.05  # share of values that may be no numbers in a column of numbers,
FEWEST = 10  # or one of so many
CODES = 0.05  # share of whole numbers with zeros before them that makes a column one of codes
SHOWN = 3
NUMERIC = ("whole", "number", "bool")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_CODE = re.compile(r"0[0-9]+")
_WORDS = {"true": True, "false": False}
_LIKE_NUMBERS = re.compile(r"[-+(]?\s*[€$£]?\s*[-+]?[0-9][0-9.,_' ]*\s*[%€$£]?\)?")


class Seen(NamedTuple):
    """What the first rows have in a column."""

    kind: str  # whole, number, bool, text, time, wholes, numbers, texts, nothing, other
    filled: int = 0
    distinct: int = 0
    width: int = 0  # of lists, if all have the same
    classes: tuple[str, ...] = ()  # the different texts, if they are not too many
    numbers: tuple[float, ...] = ()  # the different numbers, likewise
    odd: tuple[str, ...] = ()  # some values that are no numbers in a column of them,
    oddities: int = 0  # and how many there are
    step: float = 0.0  # by which whole numbers grow from row to row, if it is always the same
    longest: int = 0  # characters of a text
    like_numbers: str = ""  # of a column of texts that look like numbers: one of them
    parts: tuple[str, ...] = ()  # of dates: what can be told from them
    sparse: bool = False  # a field that over half of the first lines of JSON do not have


def look_at(
    values: Iterable[Any],
    missing: Collection[str] = MISSING_WORDS,
    number: Callable[[str], Any] | None = None,
) -> Seen:
    """Judge a column by some of its values, as Python has them.

    >>> look_at([1, 2, None]).kind, look_at([1, 2.5]).kind, look_at(["a", 1]).kind, look_at([[1, 2], [3, 4]]).kind
    ('whole', 'number', 'text', 'wholes')
    """
    values = [v.isoformat() if isinstance(v, (datetime.date, datetime.time)) else v for v in values]
    there = [value for value in values if value is not None and value != "" and value == value]
    types = set(map(type, there))
    if types and types <= {int, float}:
        return _of_numbers(there, gaps=len(there) < len(values))
    if str in types and types <= {str, int, float, bool}:
        return _of_texts(there, len(values), missing, number or number_of_text)
    kinds = {_kind(value) for value in there}
    if not kinds:
        return Seen("nothing")
    if any(isinstance(value, (list, tuple)) for value in there):
        return _of_lists([value for value in there if isinstance(value, (list, tuple))], len(kinds) > 1)
    return _of_kind(together(kinds), there)


def look_at_texts(
    texts: Iterable[str], missing: Collection[str] = MISSING_WORDS, number: Callable[[str], Any] | None = None
) -> Seen:
    """Judge a column of a file of text: numbers, if nearly all are that are not missing; else texts as written.

    `number` reads numbers that are written in another way, and hands on what is none.

    >>> look_at_texts(["1", "", " 2", "NA"]).kind, look_at_texts(["DE", "NA", "07"]).classes
    ('whole', ('07', 'DE', 'NA'))
    """
    return look_at((text if text.strip() else None for text in texts), missing, number)


def _of_numbers(numbers: Sequence[float], *, gaps: bool = False) -> Seen:
    """Numbers; also whole ones of which some are missing, which data frames then keep with a point."""
    different = set(numbers)
    kept = tuple(sorted(map(float, different))) if len(different) <= MOST_CLASSES else ()
    whole = all(isinstance(number, int) for number in different)
    if not whole and gaps:
        whole = all(abs(number) <= LARGEST_WHOLE and number == int(number) for number in different)
    step = _step(numbers) if whole and len(different) == len(numbers) >= ENOUGH else 0.0
    return Seen("whole" if whole else "number", len(numbers), len(different), numbers=kept, step=step)


def _step(numbers: Sequence[float]) -> float:
    """By how much numbers grow from one to the next; 0 if that is not always the same."""
    step = numbers[1] - numbers[0]
    return step if step > 0 and all(b - a == step for a, b in zip(numbers, numbers[1:], strict=False)) else 0.0


def _of_texts(values: Sequence[Any], count: int, missing: Collection[str], number: Callable[[str], Any]) -> Seen:
    """Texts, and what may stand beside them in JSON: numbers, if nearly all of them spell one."""
    read = {value: _read(value, missing, number) for value in values if isinstance(value, str)}
    found = [read[value] if isinstance(value, str) else value for value in values]
    numbers = [number for number in found if isinstance(number, (int, float))]
    odd = [text for text in found if isinstance(text, str)]
    as_texts = _of_kind(together({_kind(value) for value in {(type(v), v): v for v in values}.values()}), values)
    times = [(text, seconds_of(text)) for text in odd]
    if times and not numbers and _nearly_all([1 for _, time in times if time], [t for t, time in times if not time]):
        return _of_dates(times)
    if not _nearly_all(numbers, odd) or _codes(read):
        alike = next((text for text in odd if not _LIKE_NUMBERS.fullmatch(text.strip())), None)
        return as_texts._replace(like_numbers=odd[0] if odd and alike is None and len(set(odd)) > 1 else "")
    classes = as_texts.classes
    if all(isinstance(number, bool) for number in numbers):
        seen = Seen("bool", len(numbers), len(set(numbers)))
    else:
        gaps = len(found) < count or None in found
        seen, classes = _of_numbers([int(n) if isinstance(n, bool) else n for n in numbers], gaps=gaps), ()
    some = tuple(dict.fromkeys(odd))[:SHOWN]
    return seen._replace(odd=some, oddities=len(odd), classes=classes)


def _of_dates(times: Sequence[tuple[str, tuple[float, bool, bool] | None]]) -> Seen:
    """Dates: hours are told where not all of them are midnight."""
    known = [time for _, time in times if time is not None]
    odd = [text for text, time in times if time is None]
    dated, clock = any(time[1] for time in known), any(time[2] for time in known)
    parts = (*["hour"] * clock, *["weekday", "day", "month"] * dated)
    seconds = edges_of([time[0] for time in known])
    some = tuple(dict.fromkeys(odd))[:SHOWN]
    return Seen("time", len(known), len({*known}), numbers=seconds, odd=some, oddities=len(odd), parts=parts)


def _read(text: str, missing: Collection[str], number: Callable[[str], Any]) -> Any:
    """The number that a text spells, None if it says that there is none, or the text."""
    stripped = text.strip()
    if stripped in missing:
        return None
    return _WORDS[stripped.lower()] if stripped.lower() in _WORDS else number(text)


def _nearly_all(numbers: Sequence[Any], odd: Sequence[str]) -> bool:
    filled = len(numbers) + len(odd)
    return bool(numbers) and (len(odd) <= ODD * filled or (len(odd) == 1 and filled >= FEWEST))


def _codes(read: dict[str, Any]) -> bool:
    """Whether whole numbers are written with zeros before them, as postal codes are."""
    wholes = [text for text, number in read.items() if isinstance(number, int) and not isinstance(number, bool)]
    return sum(_CODE.fullmatch(text) is not None for text in wholes) > CODES * len(read)


def _of_kind(kind: str, values: Sequence[Any]) -> Seen:
    texts = {_spelled(value) for value in values}
    classes = tuple(sorted(texts)) if kind == "text" and len(texts) <= MOST_CLASSES else ()
    longest = max(map(len, texts)) if kind == "text" else 0
    return Seen(kind, len(values), len(texts), classes=classes, longest=longest)


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
    if isinstance(value, str):
        return "text"
    if isinstance(value, (list, tuple)):
        return "list"
    if isinstance(value, bytes):
        return "text"
    return "number" if type(value).__name__ == "Decimal" else "other"


def together(kinds: set[str]) -> str:
    """The kind of a column with values of these kinds."""
    if len(kinds) == 1:
        return next(iter(kinds))
    if kinds <= {"whole", "number", "bool"}:
        return "number" if "number" in kinds else "whole"
    return "other" if "other" in kinds else "text"


def _of_lists(lists: list[Any], mixed: bool) -> Seen:
    items = [item for values in lists for item in values if item is not None]
    kind = together({_kind(item) for item in items}) if items else "nothing"
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


def is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None
