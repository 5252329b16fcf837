"""What is in data: its columns and what they would become, its first rows as features, how its labels are spread.

Columns are judged by the first rows, labels and features by up to SAMPLE rows. What stands in the way of training is
told, and does not keep the rest from being shown.
"""

import math
from typing import Any

import numpy as np

from streamsvm.batch import Batch
from streamsvm.cells import category_text, number_text
from streamsvm.classes import shown_label
from streamsvm.config import Settings
from streamsvm.dialects import HEAD, Plan, csv_options, looked_at, training_plan
from streamsvm.errors import ConfigError, DataError
from streamsvm.features.first_values import Seen
from streamsvm.features.planning import Wishes, plan
from streamsvm.features.recipe import Recipe
from streamsvm.hashing import word_from
from streamsvm.io import vw
from streamsvm.io.csv import first_row
from streamsvm.io.partitions import partition_columns
from streamsvm.io.row_text import number_texts
from streamsvm.io.sniffing import format_of
from streamsvm.io.source import Source
from streamsvm.offered import PLAIN
from streamsvm.reading import make_reading
from streamsvm.stream import Stream
from streamsvm.tables import CsvOptions, TableDialect

SAMPLE = 100_000
SHOWN_ROWS = 3
EXAMPLES = 3
UNKNOWN_LABEL = math.inf  # of rows without a label, or with a class that the first rows do not have
MOST_LABELS = 1000
_BECOMES = {
    "number": "number",
    "log1p": "log1p of a number",
    "bucket": "bucket",
    "word": "category",
    "words": "categories",
    "text": "words of a text",
    "date": "date",
    "sparse": "indices as written",
}
Values = dict[str, list[Any]]
_ALONE = "the label, whichever it is"


def describe_data(settings: Settings, source: Source) -> dict[str, Any]:
    """All that can be told without reading more than a sample."""
    format = format_of(source, settings.data.format)
    found: dict[str, Any] = {
        "kind": "data",
        "format": format,
        "files": [part.shown for part in source.parts],
        "bytes": source.size,
        "rows": None,
        "problem": None,
        "notes": [],
    }
    if format in ("parquet", "arrow"):
        from streamsvm.io.records import stored_facts

        facts = stored_facts(source.parts, format)
        found |= {"rows": facts.rows, "groups": facts.groups, "compression": facts.compression}
    plan = None
    try:
        plan = training_plan(settings, source, None, found["notes"].append)
    except (ConfigError, DataError) as error:
        found["problem"] = str(error)
    values: Values = {}
    if format not in PLAIN:
        table, values = _table(settings, source, format, plan)
        found |= table
    if plan is not None:
        found |= _sample(settings, source, plan, values)
    return found


# Columns.


def _table(settings: Settings, source: Source, format: str, plan: Plan | None) -> tuple[dict[str, Any], Values]:
    """What is known of the columns, and their first values."""
    csv = csv_options(settings, source) if format == "csv" else CsvOptions()
    seen = looked_at(source, format, csv)
    values, types = _first_values(source, format, csv, seen)
    for name, found in partition_columns(source.parts).items():
        values.setdefault(name, found)
        types.setdefault(name, "whole" if isinstance(found[0], int) else "text")
    recipe = plan.dialect.recipe if plan is not None and isinstance(plan.dialect, TableDialect) else None
    columns = []
    for name, what in seen.items():
        column = values[name]
        there = [value for value in column if value is not None and value != "" and value == value]
        columns.append(
            {
                "name": name,
                "type": types[name],
                "becomes": _becomes(name, recipe) if recipe else _alone(name, what, settings),
                "missing": 1.0 - len(there) / len(column) if column else None,
                "distinct": what.distinct or None,
                "examples": [_example(value) for value in _first_distinct(there)],
            }
        )
    table: dict[str, Any] = {"columns": columns, "looked_at": max((len(v) for v in values.values()), default=0)}
    if format == "csv":
        table |= {"delimiter": chr(csv.delimiter), "header": csv.header}
    if recipe is not None:
        table |= {"label": recipe.label, "weight": recipe.weight, "hash_bits": recipe.hash_bits}
    return table, values


def _first_values(source: Source, format: str, csv: CsvOptions, seen: dict[str, Seen]) -> tuple[Values, dict[str, str]]:
    """The first values of each column, and what type it has."""
    from streamsvm.io.records import stored_schema
    from streamsvm.io.sampling import first_fields, first_objects, first_records, leaves

    kinds = {name: what.kind for name, what in seen.items()}
    part = source.parts[0]
    if format in ("parquet", "arrow"):
        types = {name: str(kind) for name, kind in leaves(stored_schema(part, format))}
        return first_records(part, format)[0], {name: types[name] for name in seen if name in types}
    text = source.head(HEAD)
    if format == "jsonl":
        return first_objects(text, part.shown)[0], kinds
    rows = first_fields(text, csv.delimiter, csv.quote, csv.header)
    names = first_row(text, csv.delimiter, csv.quote)[0] if csv.header else list(csv.fields)
    return {name: [row[k] if k < len(row) else None for row in rows] for k, name in enumerate(names)}, kinds


def _becomes(name: str, recipe: Recipe) -> str:
    if name == recipe.label:
        return "label"
    if name == recipe.weight:
        return "weight"
    for column in recipe.columns:
        if name == column.values:
            return "values of the indices"
        if name == column.name:
            if column.kind == "date":
                return " and ".join([", ".join(column.parts[:-1])] * (len(column.parts) > 1) + [column.parts[-1]])
            return f"vector of {column.width}" if column.kind == "vector" else _BECOMES[column.kind]
    return "nothing"


def _alone(name: str, what: Seen, settings: Settings) -> str:
    """What a column would become if there were no other, where the columns together are no recipe yet."""
    data = settings.data
    if name in (data.label, data.weight):
        return "label" if name == data.label else "weight"
    try:
        recipe = plan({_ALONE: Seen("whole"), name: what}, Wishes(label=_ALONE), lambda text: None)
        return _becomes(name, recipe)
    except ConfigError:
        return "nothing yet"


def _first_distinct(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
        if len(found) == EXAMPLES:
            break
    return found


def _example(value: Any) -> Any:
    """A value as JSON can have it."""
    if isinstance(value, (bool, int, float, str)):
        return value
    return [_example(item) for item in value] if isinstance(value, (list, tuple)) else str(value)


# Rows.


def _sample(settings: Settings, source: Source, plan: Plan, values: Values) -> dict[str, Any]:
    """Labels and features of up to SAMPLE rows, and the first few rows."""
    dialect = plan.dialect._replace(labelled=False)  # a look must not end at a class that the first rows do not have
    if isinstance(dialect, vw.Dialect) or (isinstance(dialect, TableDialect) and dialect.recipe.hashed):
        dialect = dialect._replace(spelled=True)
    limit = min(settings.data.limit or SAMPLE, SAMPLE)
    stream = Stream(
        source,
        dialect,
        skip_bad=True,
        max_bad_rows=limit,
        limit=limit,
        reading=make_reading(settings),
        features=plan.features,
    )
    counts: dict[float, int] = {}
    features = most = width = 0
    first: list[list[dict[str, Any]]] = []
    labels: list[str] = []
    for batch in stream.in_order():
        if not first:
            labels = [_label(float(label), plan) for label in batch.labels[:SHOWN_ROWS]]
            first = _named_rows(batch, stream, plan, values)
        found, times = np.unique(batch.labels, return_counts=True)
        for value, count in zip(found.tolist(), times.tolist(), strict=True):
            value = UNKNOWN_LABEL if math.isnan(value) else value
            if value in counts or len(counts) < MOST_LABELS:
                counts[value] = counts.get(value, 0) + count
        features += batch.features
        most = max(most, int(np.diff(batch.indptr).max(initial=0)))
        width = max(width, batch.width)
    tally = stream.tally
    return {
        "sampled": tally.rows,
        "bad_rows": tally.bad_rows,
        "faults": tally.faults,
        "labels": {_label(value, plan): counts[value] for value in sorted(counts)},
        "features_per_row": features / tally.rows if tally.rows else None,
        "most_features": most,
        "largest_index": width - 1 if width else None,
        "first_rows": [{"label": label, "features": row} for label, row in zip(labels, first, strict=True)],
    }


def _label(value: float, plan: Plan) -> str:
    if math.isnan(value) or value == UNKNOWN_LABEL:
        return "another or none"
    classes = plan.features.label_classes
    return classes[int(value)] if classes else shown_label(value)


def _category(item: Any, number: bool) -> str:
    """The text of an item that is a category (cells.py)."""
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, (int, float)):
        return number_text(item)
    return category_text(str(item)) if number else str(item)


def _items(recipe: Recipe, values: Values) -> set[tuple[int, int, str]]:
    """Index, sign and name of the items of lists in the first rows, which nobody else notes."""
    found = set()
    for column, want in zip(recipe.columns, recipe.wants(), strict=False):
        lists = values.get(column.name, [])[:SHOWN_ROWS] if column.kind == "words" else []
        for item in (item for items in lists if isinstance(items, list) for item in items if item is not None):
            word = word_from(_category(item, want.number), want.seed)
            index = recipe.dense + (word & (1 << (recipe.hash_bits or 0)) - 1)
            found.add((index, -1 if word >> 31 else 1, f"{column.name}={item}"))
    return found


def _named_rows(batch: Batch, stream: Stream, plan: Plan, values: Values) -> list[list[dict[str, Any]]]:
    """The features of the first rows, with their names where they have any.

    The value is that in the data; in the row of a hashed feature it is multiplied by the sign.
    """
    names: dict[int, list[str]] = {}
    signs: dict[int, int] = {}
    if isinstance(plan.dialect, TableDialect) and not plan.dialect.recipe.as_written:
        names = {index: [name] for index, name in enumerate(plan.dialect.recipe.dense_names())}
        for index, sign, name in _items(plan.dialect.recipe, values):
            names.setdefault(index, []).append(name)
            signs[index] = sign
    named = stream.named()
    if named is not None:
        for index, sign, name in zip(named.indices.tolist(), named.signs.tolist(), named.names, strict=True):
            names.setdefault(index, []).append(name)
            signs[index] = sign
    rows = []
    for row in range(min(SHOWN_ROWS, batch.rows)):
        span = slice(int(batch.indptr[row]), int(batch.indptr[row + 1]))
        texts = number_texts(batch.values[span])
        rows.append(
            [
                {
                    "index": index,
                    "value": float(text) * signs.get(index, 1),
                    "sign": signs.get(index, 1),
                    "name": " or ".join(names[index]) if index in names else None,
                }
                for index, text in zip(batch.indices[span].tolist(), texts, strict=True)
            ]
        )
    return rows
