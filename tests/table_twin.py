"""The slow twin of all table formats: rows as dicts -> features, exactly as the documentation says."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from libsvm_twin import BadRowError, collect, row

from streamsvm.features.recipe import Recipe
from streamsvm.io.source import Source
from streamsvm.stream import Reading, Stream
from streamsvm.tables import CsvOptions, TableDialect

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
ABSENT = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "#N/A", "-", "?")
LOW = 0xFFFFFFFF
DENSE = ("number", "log1p", "vector")
Row = dict[str, Any]
Pair = tuple[int, np.float32]  # a word and a value


# The hash.


def murmur3(data: bytes, seed: int = 0) -> int:
    """MurmurHash3_x86_32, by the book."""
    h = seed
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        h ^= _scrambled(int.from_bytes(data[at : at + 4], "little"))
        h = (h << 13 | h >> 19) & LOW
        h = (h * 5 + 0xE6546B64) & LOW
    h ^= _scrambled(int.from_bytes(data[whole:], "little"))
    return _finished(h ^ len(data))


def _scrambled(k: int) -> int:
    k = k * 0xCC9E2D51 & LOW
    return (k << 15 | k >> 17) * 0x1B873593 & LOW


def _finished(h: int) -> int:
    h = (h ^ h >> 16) * 0x85EBCA6B & LOW
    h = (h ^ h >> 13) * 0xC2B2AE35 & LOW
    return h ^ h >> 16


def word(text: str | bytes, seed: int) -> int:
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return max(murmur3(data, seed), 1) if data else 0


def cross(one: int, two: int) -> int:
    """What murmur3 makes of the second word with the first as seed, but for the length, which is 8."""
    h = one ^ _scrambled(two)
    h = (h << 13 | h >> 19) & LOW
    return max(_finished((h * 5 + 0xE6546B64) & LOW ^ 8), 1)


def signed(found: int, value: Any = 1.0) -> np.float32:
    return np.float32(-value if found >> 31 else value)


# Values.


def single(value: Any) -> np.float32:
    """A number in single precision; NaN where there is none."""
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, str):
        value = value.strip(" \t\n\v\f\r")
        if value in ABSENT:
            return np.float32(np.nan)
        if value.lower() in ("true", "false"):
            return np.float32(value.lower() == "true")
        if not NUMBER.fullmatch(value):
            raise BadRowError
    with np.errstate(over="ignore"):
        found = np.float32(np.nan if value is None else float(value))
    if np.isinf(found):
        raise BadRowError
    return found


def category(value: Any, number: bool) -> str | bytes:
    """The text of a category."""
    if isinstance(value, str) and number and NUMBER.fullmatch(value.strip()):
        value = int(value) if re.fullmatch(r"[+-]?[0-9]+", value.strip()) else float(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        return str(int(value)) if abs(value) <= 2**53 and value == int(value) else repr(value)
    return value if isinstance(value, bytes) else str(value)


def tokens(text: Any, seed: int, ngrams: int) -> list[Pair]:
    data = text if isinstance(text, bytes) else (text or "").encode()
    words = [word(token.lower(), seed) for token in re.findall(rb"[A-Za-z0-9_\x80-\xff]+", data)]
    found = []
    for k, last in enumerate(words):
        found.append(last)
        if ngrams > 1 and k > 0:
            found.append(cross(words[k - 1], last))
        if ngrams > 2 and k > 1:
            found.append(cross(cross(words[k - 2], words[k - 1]), last))
    value = np.float32(1 / math.sqrt(max(len(found), 1)))
    return [(token, value) for token in found]


# Features.


def pairs_of(values: Row, column: Any, ngrams: int) -> list[Pair]:
    """The words and values of a column, as they are hashed or as interactions see them."""
    value, seed, one = values.get(column.name), murmur3(column.name.encode()), np.float32(1)
    if column.kind in ("number", "log1p", "bucket"):
        number = single(value)
        if column.kind == "bucket":
            return [] if np.isnan(number) else [(word(str(bucket_of(number, column.edges)), seed), one)]
        if column.kind == "log1p" and number == number:
            number = np.copysign(np.float32(math.log1p(abs(float(number)))), number)
        return [(max(seed, 1), number)] if number == number and number != 0 else []
    if column.kind == "word":
        found = word(category(value, column.number), seed)
        return [(found, one)] if found else []
    if column.kind == "words":
        listed = [value] if not isinstance(value, list) else value
        return [(w, one) for w in (word(category(item, column.number), seed) for item in listed) if w]
    if column.kind == "text":
        return tokens(value, seed, ngrams)
    if column.kind == "vector":
        if value and len(value) != column.width:
            raise BadRowError
        numbers = [single(item) for item in value or ()]
        if any(np.isnan(number) for number in numbers):
            raise BadRowError
        return [(cross(max(seed, 1), k), number) for k, number in enumerate(numbers, 1)]
    return [(cross(max(seed, 1), index), weight) for index, weight in sparse_pairs(values, column) if weight != 0]


def sparse_pairs(values: Row, column: Any) -> list[Pair]:
    indices = values.get(column.name) or []
    weights = [1.0] * len(indices) if column.values is None else values.get(column.values) or []
    found = [single(weight) for weight in weights]
    if len(found) != len(indices) or any(np.isnan(weight) for weight in found):
        raise BadRowError
    if any(not isinstance(index, int) or not 0 <= index <= LOW for index in indices):
        raise BadRowError
    return list(zip(indices, found, strict=True))


def bucket_of(number: np.float32, edges: Sequence[float]) -> int:
    return sum(bool(np.float32(edge) <= number) for edge in edges)


def crossed(parts: list[list[Pair]], names: tuple[str, ...]) -> list[Pair]:
    """All features of an interaction; of a column with itself each unordered choice, once."""
    found: list[tuple[int, np.float32, int]] = [(w, v, k) for k, (w, v) in enumerate(parts[0])]
    for place in range(1, len(parts)):
        again = names[place] == names[place - 1]
        found = [
            (cross(w, other), v * value, k)
            for w, v, before in found
            for k, (other, value) in enumerate(parts[place])
            if not again or k >= before
        ]
    return [(w, v) for w, v, _ in found if v == v and v != 0]  # 0 times infinity is nothing


def twin_row(values: Row, recipe: Recipe, *, labelled: bool = True, limit: int | None = None) -> tuple[bytes, ...]:
    """The row as `row` shows it; BadRowError where it is malformed."""
    label, weight = twin_label(values, recipe, labelled), np.float32(1)
    if recipe.weight is not None:
        weight = single(values.get(recipe.weight))
        if not weight >= 0:
            raise BadRowError
    with np.errstate(over="ignore", invalid="ignore"):
        found = as_written(values, recipe, limit) if recipe.as_written else all_features(values, recipe)
        summed: dict[int, np.float32] = {}
        for index, value in found:
            summed[index] = summed[index] + value if index in summed else value
    if any(np.isinf(value) for value in summed.values()):
        raise BadRowError
    return row(label, sorted(summed), [summed[index] for index in sorted(summed)], abs(weight))


def as_written(values: Row, recipe: Recipe, limit: int | None) -> list[Pair]:
    pairs = sparse_pairs(values, recipe.columns[0])
    if limit is not None and any(index >= limit for index, _ in pairs):
        raise BadRowError
    mask = (1 << recipe.hash_bits) - 1 if recipe.hash_bits else LOW
    return [(index & mask, value) for index, value in pairs]


def all_features(values: Row, recipe: Recipe) -> list[Pair]:
    found, parts, first = [], {}, 0
    marked = sum(column.width for column in recipe.columns if column.kind in DENSE)
    base = marked + sum(column.missing is not None for column in recipe.columns)
    hashed = []
    mask = (1 << (recipe.hash_bits or 0)) - 1
    for column in recipe.columns:
        pairs = parts[column.name] = pairs_of(values, column, recipe.ngrams)
        if column.kind in DENSE:
            found += [(first + k, value) for k, (_, value) in enumerate(pairs) if value != 0]
            first += column.width
            if column.missing is not None:
                found += [(marked, np.float32(1))] if is_missing(values, column) else []
                marked += 1
        else:
            hashed += pairs
    for names in recipe.interactions:
        hashed += crossed([parts[name] for name in names], names)
    return found + [(base + (w & mask), signed(w, value)) for w, value in hashed]


def is_missing(values: Row, column: Any) -> bool:
    value = values.get(column.name)
    return not value if column.kind == "vector" else bool(np.isnan(single(value)))


def twin_label(values: Row, recipe: Recipe, labelled: bool) -> np.float32:
    value = None if recipe.label is None else values.get(recipe.label)
    if recipe.label is not None and recipe.label_classes is not None:
        found = category(value, False)
        found = found.decode() if isinstance(found, bytes) else found
        if found in recipe.label_classes:
            return np.float32(recipe.label_classes.index(found))
        value = None
    label = single(value)
    if recipe.label is not None and labelled and not abs(label) <= 2**24:
        raise BadRowError
    return label


def twin(rows: Iterable[Row], recipe: Recipe, **options: Any) -> tuple[list[tuple[bytes, ...]], list[int]]:
    """The good rows, and the numbers (from 0) of the bad ones."""
    good, bad = [], []
    for number, values in enumerate(rows):
        try:
            good.append(twin_row(values, recipe, **options))
        except BadRowError:
            bad.append(number)
    return good, bad


# Streams.


def stream(
    paths: str | list[str],
    recipe: Recipe,
    format: str = "csv",
    *,
    block_size: int = 0,
    threads: int = 2,
    memory: int = 10**9,
    skip: int | None = None,
    **dialect: Any,
) -> Stream:
    """A table read by a recipe; `skip` malformed rows are left out."""
    return Stream(
        Source([paths] if isinstance(paths, str) else paths),
        TableDialect(format, recipe, **dialect),
        skip_bad=skip is not None,
        max_bad_rows=skip or 0,
        reading=Reading(memory=memory, threads=threads, block_size=block_size),
    )


def same_as_twin(paths: str | list[str], recipe: Recipe, format: str, rows: Sequence[Row], **options: Any) -> None:
    """The file has the rows that the twin makes, and leaves as many out."""
    good, bad = twin(rows, recipe)
    found = stream(paths, recipe, format, skip=10**6, **options)
    assert collect(found) == good
    assert found.tally.bad_rows == len(bad)


def headerless(*fields: str) -> CsvOptions:
    return CsvOptions(header=False, fields=fields)
