"""How the rows of a source are to be read: decided once for training, and by the model ever after.

    training     settings + first rows of the data -> dialect, and the recipe that the model keeps
    afterwards   the model's recipe -> dialect; the settings say nothing about features any more

A model of indices (LIBSVM text, or sparse columns of a table) reads both; one of columns reads every table format; one
of VW text reads VW text.
"""

import dataclasses
import math
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import islice
from typing import Any, NamedTuple

from streamsvm.classes import MOST_CLASSES
from streamsvm.config import Settings
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.features.first_values import ENOUGH, Seen, look_at, look_at_texts, number_of_text
from streamsvm.features.planning import DEFAULT_HASH_BITS, FEW, LABELS, Wishes, plan
from streamsvm.features.recipe import Column, Recipe
from streamsvm.io import libsvm, vw
from streamsvm.io.csv import COMMA, first_row, plain_number, rows_of_text
from streamsvm.io.first_lines import ROWS, first_lines
from streamsvm.io.foreign import refuse_other_encoding
from streamsvm.io.partitions import partition_columns
from streamsvm.io.sniffing import decimal_of, delimiter_of, format_of, has_header, like_libsvm, quote_of, single_byte
from streamsvm.io.source import Source
from streamsvm.model import Model
from streamsvm.offered import LINES
from streamsvm.readers import Dialect
from streamsvm.stream import Features, Stream
from streamsvm.tables import CsvOptions, TableDialect

Note = Callable[[str], None]
HEAD = 1 << 22  # bytes of text that are looked at
FEWEST_BITS = 16  # of hashes, however many classes there are
COMPARED = 20  # rows that tell whether the first one is a header
SMALL = 1 << 28  # bytes of text that are read once more, to find the texts that are classes


class Plan(NamedTuple):
    """How to read, and what that says of the features."""

    dialect: Dialect
    features: Features


# Training.


def training_plan(settings: Settings, source: Source, initial: Model | None, note: Note) -> Plan:
    """How to read the training data; as the initial model has it, if there is one."""
    format = format_of(source, settings.data.format)
    features = settings.features
    given = features.hash_bits or features.dim or features.ngrams > 1
    if initial is not None and not given and not _columns_mentioned(settings):
        return plan_of_model(settings, source, initial)
    if format == "libsvm":
        _refuse_columns(settings, format)
        if settings.data.label:
            note(f"warning: --label {settings.data.label} is not used: a row of LIBSVM text begins with its label")
        dialect = libsvm.Dialect(
            limit=features.dim or libsvm.LARGEST_INDEX + 1, mask=libsvm.index_mask(features.hash_bits)
        )
        return Plan(dialect, _features(dialect, _as_written(settings), settings, first_labels(source)))
    if format == "vw":
        return _vw_plan(settings, first_labels(source))
    return _table_plan(settings, source, format, initial, note)


def plan_of_model(settings: Settings, source: Source, model: Model) -> Plan:
    """How to read data in the way in which that of a model was read, to learn more."""
    dialect = serving_dialect(settings, source, model, labelled=True)
    if isinstance(dialect, libsvm.Dialect) and model.recipe.get("dim"):
        dialect = dialect._replace(limit=model.recipe["dim"])
    return Plan(dialect, _features(dialect, features_only(model.recipe), settings))


def first_labels(source: Source) -> tuple[float, ...]:
    """The different labels of the first lines of LIBSVM or VW text, each of which begins with one if it has one."""
    text = source.head(HEAD)
    lines = first_lines(text if len(text) < HEAD else text[: text.rfind(b"\n") + 1])
    found = set()
    for line in lines:
        word = line.split(None, 1)[0]
        with suppress(ValueError):
            found.add(float(word.split("|", 1)[0]))
    return tuple(sorted(label for label in found if math.isfinite(label)))


def _columns_mentioned(settings: Settings) -> bool:
    features = settings.features
    lists = (features.numeric, features.categorical, features.text, features.ignore, features.log1p)
    return any(lists) or bool(features.bucketize or features.dates or features.interactions)


def _refuse_columns(settings: Settings, format: str) -> None:
    if _columns_mentioned(settings):
        raise ConfigError(
            f"features.numeric, categorical, text, ... speak of the columns of a table, but the data is {format}; "
            "if it is not, set data.format"
        )


def _as_written(settings: Settings) -> dict[str, Any]:
    """What a model keeps of indices that are used as written, in LIBSVM text or in sparse columns."""
    return {"format": "libsvm", "hash_bits": settings.features.hash_bits, "dim": settings.features.dim}


def features_only(recipe: dict[str, Any]) -> dict[str, Any]:
    """What a model keeps of its features, without what belongs to the run that made it."""
    return {key: value for key, value in recipe.items() if key not in ("scale", "names", "map")}


def _features(dialect: Dialect, recipe: dict[str, Any], settings: Settings, labels: tuple[float, ...] = ()) -> Features:
    if isinstance(dialect, vw.Dialect):
        return Features(recipe, 1 << dialect.hash_bits, labels=labels)
    if isinstance(dialect, TableDialect):
        table = dialect.recipe
        classes = list(table.label_classes) if table.label_classes is not None else None
        dense = table.dense if table.hashed else None
        names = () if table.as_written else tuple(table.dense_names())
        return Features(recipe, table.width or settings.features.given_width, dense, names, classes, labels)
    bits = recipe.get("hash_bits")
    return Features(recipe, recipe.get("dim") or (1 << bits if bits else 0), labels=labels)


def _vw_plan(settings: Settings, labels: tuple[float, ...]) -> Plan:
    features = settings.features
    if features.dim is not None:
        raise ConfigError("features.dim: the features of VW text are hashed; use features.hash_bits")
    bits = features.hash_bits or default_hash_bits(len(settings.data.classes or labels))
    dialect = vw.Dialect(hash_bits=bits, interactions=features.interactions or (), spelled=features.names)
    crossed = [list(names) for names in dialect.interactions]
    recipe = {"format": "vw", "hash_bits": bits, "interactions": crossed}
    return Plan(dialect, _features(dialect, recipe, settings, labels))


def _table_plan(settings: Settings, source: Source, format: str, initial: Model | None, note: Note) -> Plan:
    data, features = settings.data, settings.features
    if format in LINES and data.encoding != "bytes" and not source.endless:
        refuse_other_encoding(source.head(HEAD), source.parts[0].shown)
    csv = csv_options(settings, source) if format == "csv" else CsvOptions()
    if csv.decimal == COMMA:
        note("decimal commas: 1,5 is read as 1.5 (data.decimal)")
    seen = looked_at(source, format, csv)
    if not seen:
        raise DataError(f"{source.parts[0].shown}: there is no column to learn from")
    recipe = plan(seen, wishes_of(settings), note, first=next(iter(seen)) if csv.fields and not data.columns else None)
    if initial is not None and initial.recipe.get("format") == "table":
        recipe = recipe.with_missing_of(Recipe.of_model(initial.recipe))
    dialect = TableDialect(
        format,
        recipe,
        csv=csv,
        absent=data.missing_columns == "absent",
        limit=features.dim,
        spelled=features.names,
        raw=data.encoding == "bytes",
    )
    if recipe.label_classes is not None and not data.classes and _quickly_read(source, format):
        recipe = dataclasses.replace(recipe, label_classes=all_texts(source, dialect, recipe.label or ""))
    labels = _numbers_of(seen[recipe.label]) if recipe.label in seen and recipe.label_classes is None else ()
    if len(labels) > FEW and not data.classes:
        note(
            f"warning: label {recipe.label} has {len(labels)} different numbers in the first rows, each of which "
            "becomes a class; to predict numbers is regression, and no classification"
        )
    if recipe.hashed and features.hash_bits is None:
        classes = data.classes or recipe.label_classes or labels
        recipe = dataclasses.replace(recipe, hash_bits=default_hash_bits(len(classes)))
    dialect = dialect._replace(recipe=recipe)
    if recipe.as_written:
        return Plan(dialect, _features(dialect, _as_written(settings), settings, labels))
    if features.dim is not None:
        raise ConfigError(f"features.dim: this table has {recipe.width} weights; use features.hash_bits for another")
    kept = {"format": "table", **recipe.as_json()}
    if csv.fields:
        kept["fields"] = list(csv.fields)
    return Plan(dialect, _features(dialect, kept, settings, labels))


def wishes_of(settings: Settings) -> Wishes:
    """What the settings say of the columns of a table."""
    data, features = settings.data, settings.features
    return Wishes(
        numeric=features.numeric or (),
        categorical=features.categorical or (),
        text=features.text or (),
        ignore=features.ignore or (),
        log1p=features.log1p or (),
        bucketize=features.bucketize or {},
        dates=features.dates or {},
        interactions=features.interactions or (),
        hash_bits=features.hash_bits,
        ngrams=features.ngrams,
        label=data.label,
        weight=data.weight,
        classes=data.classes,
        missing=features.missing,
    )


def frame_plan(settings: Settings, records: list[Any], note: Note, classes: int = 0) -> Plan:
    """How to read a data frame, whose labels are elsewhere, so many different ones: as any other table."""
    from streamsvm.io.sampling import first_values

    columns, kinds = first_values(records)
    seen = {name: _typed(look_at(values), kinds[name]) for name, values in columns.items()}
    wishes = wishes_of(settings)._replace(label=None, weight=None, labelled=False)
    recipe = plan(seen, wishes, note)
    if recipe.hashed and settings.features.hash_bits is None:
        recipe = dataclasses.replace(recipe, hash_bits=default_hash_bits(classes))
    dialect = TableDialect("arrow", recipe, labelled=False)
    return Plan(dialect, _features(dialect, {"format": "table", **recipe.as_json()}, settings))


def default_hash_bits(classes: int) -> int:
    """Fewer weights for each of many classes, so that all of them together take about the same memory."""
    return max(FEWEST_BITS, DEFAULT_HASH_BITS - math.ceil(math.log2(classes / 2))) if classes > 2 else DEFAULT_HASH_BITS


def _quickly_read(source: Source, format: str) -> bool:
    """Whether a column of the whole data can be looked at before it is learned from."""
    size = source.size
    return size is not None and (format in ("parquet", "arrow") or size <= SMALL)


def all_texts(source: Source, dialect: TableDialect, name: str) -> tuple[str, ...]:
    """The different texts of a column, in their order; all the data is read, but this column alone is looked at."""
    alone = dialect._replace(recipe=Recipe(()), labelled=False, keep=(name,), spelled=False)
    stream = Stream(source, alone, skip_bad=True, max_bad_rows=sys.maxsize)
    found: set[str] = set()
    with closing(stream.in_order()) as batches:
        for _ in batches:
            found.update(stream.kept[0])
            if len(found) > MOST_CLASSES + 1:
                raise DataError(
                    f"column {name} has more than {MOST_CLASSES} different texts: it can hardly be the label"
                )
    return tuple(sorted(found - {""}))


def _numbers_of(label: Seen) -> tuple[float, ...]:
    """The different labels of the first rows, where they are numbers, if only as texts."""
    with suppress(ValueError):
        return label.numbers or tuple(sorted({float(text) for text in label.classes}))
    return ()


def looked_at(source: Source, format: str, csv: CsvOptions) -> dict[str, Seen]:
    """What the first rows have in each column, and the names of all files' directories."""
    seen = _looked_into(source, format, csv)
    for name, values in partition_columns(source.parts).items():
        if name not in seen:
            seen[name] = look_at(values * (2 + ENOUGH // len(values)))
    return seen


def _looked_into(source: Source, format: str, csv: CsvOptions) -> dict[str, Seen]:
    from streamsvm.io.sampling import first_fields, first_objects, first_records

    part = source.parts[0]
    if format in ("parquet", "arrow"):
        columns, kinds = first_records(part, format)
        return {name: _typed(look_at(values), kinds[name]) for name, values in columns.items()}
    text = source.head(HEAD)
    if format == "jsonl":
        columns, rare = first_objects(text, part.shown)
        return {name: look_at(values)._replace(sparse=name in rare) for name, values in columns.items()}
    rows = first_fields(text, csv.delimiter, csv.quote, csv.header, whole=part.size is not None)
    names = first_row(text, csv.delimiter, csv.quote)[0] if csv.header else list(csv.fields)
    if len(names) == 1 and like_libsvm(names[0]):
        raise ConfigError(f"{part.shown}: this looks like LIBSVM text, not CSV: use --format libsvm, or name it .svm")
    number = _comma_number if csv.decimal == COMMA else None
    return {
        name: look_at_texts([row[k] if k < len(row) else "" for row in rows], number=number)
        for k, name in enumerate(names)
    }


def _comma_number(text: str) -> Any:
    """The number that a text is where decimals stand after a comma; the text, where it is none."""
    return text if "." in text else number_of_text(plain_number(text))


def _typed(seen: Seen, kind: str) -> Seen:
    """What was seen, with the kind that the schema says of a column, or of lists, that are empty in the first rows."""
    return seen._replace(kind=kind) if seen.kind == "nothing" or kind in ("wholes", "numbers", "texts") else seen


# CSV.


def csv_options(settings: Settings, source: Source, known: frozenset[str] = frozenset()) -> CsvOptions:
    """How a CSV file is written; it has a header if its first row has one of the known names, or looks like one."""
    data = settings.data
    text = source.head(HEAD)
    quote = quote_of(data.quote)
    asked = data.delimiter
    delimiter = delimiter_of(text, source.parts[0].shown, quote) if asked == "auto" else single_byte(asked)
    decimal = _decimal_in(text, delimiter, quote) if data.decimal == "auto" else ord(data.decimal)
    fields, *rows = [fields for fields, _ in islice(rows_of_text(text, delimiter, quote), COMPARED)] or [[]]
    header = data.header
    if header == "auto":
        first, *others = [_plain(row, decimal) for row in (fields, *rows)]
        header = bool(known & set(fields)) or (not data.columns and not known and has_header(first, others))
    if header:
        _refuse_twins(fields, source.parts[0].shown)
        return CsvOptions(delimiter, quote, True, decimal=decimal)
    names = tuple(data.columns or (f"c{k}" for k in range(1, len(fields) + 1)))
    if data.columns and len(names) != len(fields) and fields:
        raise ConfigError(f"data.columns: {len(names)} names, but the first row has {len(fields)} fields")
    return CsvOptions(delimiter, quote, False, names, decimal)


def _plain(fields: list[str], decimal: int) -> list[str]:
    return [plain_number(field) for field in fields] if decimal == COMMA else fields


def _decimal_in(text: bytes, delimiter: int, quote: int) -> int:
    return decimal_of([fields for fields, _ in islice(rows_of_text(text, delimiter, quote), ROWS)], delimiter)


def _refuse_twins(names: list[str], shown: str) -> None:
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        what = f"are called {twice}" if twice else "have no name"
        remedy = "give them different names; if this is a row, and no header: --set data.header=false"
        raise DataError(f"{shown}:1: two columns {what}; {remedy}")


# Afterwards.


def serving_dialect(
    settings: Settings, source: Source, model: Model, *, labelled: bool = True, keep: tuple[str, ...] = ()
) -> Dialect:
    """How to read data for a model: features as it has learned them."""
    recipe = model.recipe
    format = format_of(source, settings.data.format)
    kind = recipe.get("format", "libsvm")
    if kind == "vw":
        _refuse_other(format, ("vw",), "VW text")
        _refuse_keep(keep, format)
        crossed = tuple(tuple(names) for names in recipe["interactions"])
        return vw.Dialect(labelled=labelled, hash_bits=recipe["hash_bits"], interactions=crossed)
    if kind == "table":
        _refuse_other(format, ("csv", "jsonl", "parquet", "arrow"), "tables")
        return _serving_table(settings, source, model, format, labelled, keep)
    if format == "libsvm":
        _refuse_keep(keep, format)
        return libsvm.Dialect(labelled=labelled, mask=libsvm.index_mask(recipe.get("hash_bits")))
    _refuse_other(format, ("jsonl", "parquet", "arrow"), "LIBSVM text, or tables with columns indices and values")
    return _serving_sparse(settings, source, model, format, labelled, keep)


def _refuse_other(format: str, known: tuple[str, ...], what: str) -> None:
    if format not in known:
        raise ModelError(f"the model was trained on {what}; it cannot be used on {format} data")


def _refuse_keep(keep: tuple[str, ...], format: str) -> None:
    if keep:
        raise ConfigError(f"--keep {keep[0]}: {format} data has no columns")


def _serving_table(
    settings: Settings, source: Source, model: Model, format: str, labelled: bool, keep: tuple[str, ...]
) -> TableDialect:
    recipe = Recipe.of_model(model.recipe)
    csv = CsvOptions()
    if format == "csv":
        _refuse_lists(recipe)
        known = frozenset(want.name for want in recipe.wants()) | {recipe.label or ""}
        csv = csv_options(settings, source, known)
        if not csv.header and "fields" in model.recipe and not settings.data.columns:
            csv = csv._replace(fields=tuple(model.recipe["fields"]))
    absent = settings.data.missing_columns == "absent"
    raw = settings.data.encoding == "bytes"
    return TableDialect(format, recipe, labelled=labelled, csv=csv, absent=absent, keep=keep, raw=raw)


def _refuse_lists(recipe: Recipe) -> None:
    lists = [column.name for column in recipe.columns if column.kind in ("vector", "words", "sparse")]
    if lists:
        raise ModelError(
            f"the model was trained on lists in column {lists[0]}, which CSV cannot hold; "
            "use JSON lines, Parquet or Arrow"
        )


def _serving_sparse(
    settings: Settings, source: Source, model: Model, format: str, labelled: bool, keep: tuple[str, ...]
) -> TableDialect:
    """Sparse columns, for a model of indices as written."""
    seen = looked_at(source, format, CsvOptions())
    if "indices" not in seen:
        raise ModelError("the model was trained on indices; a table for it needs columns indices and values")
    named = settings.data.label or next((name for name in LABELS if name in seen), None)
    columns = (Column("indices", "sparse", values="values" if "values" in seen else None),)
    classes = tuple(str(name) for name in model.classes) if any(isinstance(c, str) for c in model.classes) else None
    recipe = Recipe(
        columns,
        label=named,
        label_classes=classes,
        weight=settings.data.weight or ("weight" if "weight" in seen else None),
        hash_bits=model.recipe.get("hash_bits"),
    )
    if labelled and named is None:
        raise ConfigError("which column is the label? Name it with data.label")
    return TableDialect(format, recipe, labelled=labelled, keep=keep)
