"""Predictions as a table: columns of the data that were kept, then what the model says of each row."""

from collections.abc import Callable
from contextlib import closing
from typing import IO, Any, NamedTuple

import numpy as np

from streamsvm.batch import Batch
from streamsvm.config import Settings
from streamsvm.converting import Target, target_of
from streamsvm.errors import ConfigError
from streamsvm.io.sniffing import ENDINGS, ending_of, format_of
from streamsvm.model import Model
from streamsvm.offered import TABLES
from streamsvm.stream import Stream


class Wish(NamedTuple):
    """What the table is to have."""

    keep: tuple[str, ...] = ()
    scores: bool = False
    probabilities: bool = False

    def added(self, model: Model) -> list[str]:
        """The columns after those that are kept; with more than two classes some for each of them."""
        figures = [*["score"] * self.scores, *["probability"] * self.probabilities]
        if not model.many:
            return ["prediction", *figures]
        classes = [model.class_text(code) for code in range(len(model.classes))]
        return ["prediction", *(f"{figure}_{name}" for figure in figures for name in classes)]


def kept_columns(given: str | None) -> tuple[str, ...]:
    """The columns that `--keep id,other` names."""
    names = tuple(name.strip() for name in (given or "").split(",") if name.strip())
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"--keep: {twice} is named twice")
    return names


def table_target(url: str | None, keep: tuple[str, ...]) -> Target | None:
    """Where a table of predictions goes and how; None if none is wanted, but a line for each row."""
    if url is None:
        return Target("-", "csv") if keep else None
    if ENDINGS.get(ending_of(url)) in TABLES:
        return target_of(url)
    return target_of(url, "csv") if keep else None


def write_predictions(
    model: Model, stream: Stream, settings: Settings, target: Target, wish: Wish, out: IO[bytes]
) -> None:
    """All predictions, in order, while the data is read."""
    from streamsvm.io.writers import column_types, prediction_record, prediction_schema, table_writer

    added = wish.added(model)
    clash = next((name for name in wish.keep if name in added), None)
    if clash is not None:
        raise ConfigError(f"--keep {clash}: the table has a column of this name already")
    source = stream.source
    types = column_types(source.parts[0], format_of(source, settings.data.format), wish.keep)
    kind, take = _class_column(model)
    schema = prediction_schema(types, dict.fromkeys(added, "number") | {"prediction": kind})
    writer = table_writer(
        out, schema, target.format, codec=target.codec, delimiter=target.delimiter, memory=settings.run.memory
    )
    with writer as table, closing(stream.in_order()) as batches:
        for batch in batches:
            table.write(prediction_record(schema, [*stream.kept, *_columns(model, batch, wish, take)]))


def _columns(model: Model, batch: Batch, wish: Wish, take: Callable[[Any], Any]) -> list[Any]:
    scores = model.scores(batch)
    columns = [take(model.codes(scores))]
    wanted = [scores] if wish.scores else []
    wanted += [model.probabilities(scores)] if wish.probabilities else []
    for figures in wanted:
        columns += list(figures.T) if model.many else [figures]
    return columns


def _class_column(model: Model) -> tuple[str, Callable[[Any], Any]]:
    """The kind of the classes, and what makes a column of them from codes."""
    classes = model.classes
    if any(isinstance(name, str) for name in classes):
        names = [model.class_text(code) for code in range(len(classes))]
        return "text", lambda codes: [names[code] for code in codes.tolist()]
    numbers = np.array([float(name) for name in classes])
    if (numbers == np.floor(numbers)).all():
        return "whole", lambda codes: numbers.astype(np.int64)[codes]
    return "number", lambda codes: numbers[codes]
