"""Predictions as lines, one a row; or as a table: columns of the data that were kept, then what the model says."""

from collections.abc import Callable
from contextlib import closing
from typing import IO, Any, NamedTuple

import numpy as np

from streamsvm.batch import Batch
from streamsvm.config import Settings
from streamsvm.converting import Target, target_of
from streamsvm.errors import ConfigError
from streamsvm.io.sniffing import ENDINGS, ending_of, format_of
from streamsvm.io.source import Source
from streamsvm.model import Model
from streamsvm.offered import TABLES
from streamsvm.stream import Stream

Tick = Callable[[int], None]  # told how many rows were written since


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


class Layout(NamedTuple):
    """How predictions are written; the same for all parts of them, wherever these are made."""

    wish: Wish
    target: Target | None  # of a table; None: a line for each row
    schema: Any = None  # of that table
    memory: int = 1 << 30


def layout_of(model: Model, source: Source, settings: Settings, wish: Wish, target: Target | None) -> Layout:
    """The layout for data of which the first file tells the types of the columns; ConfigError if there can be none."""
    if target is None:
        if wish.scores and wish.probabilities:
            raise ConfigError("--scores and --probabilities cannot be combined, but in a table (--keep, or -o out.csv)")
        return Layout(wish, None)
    from streamsvm.io.writers import column_types, prediction_schema

    added = wish.added(model)
    clash = next((name for name in wish.keep if name in added), None)
    if clash is not None:
        raise ConfigError(f"--keep {clash}: the table has a column of this name already")
    types = column_types(source.parts[0], format_of(source, settings.data.format), wish.keep)
    kind, _ = _class_column(model)
    schema = prediction_schema(types, dict.fromkeys(added, "number") | {"prediction": kind})
    return Layout(wish, target, schema, settings.run.memory)


def write_predictions(
    model: Model, stream: Stream, layout: Layout, out: IO[bytes], *, begins: bool = True, tick: Tick = lambda rows: None
) -> None:
    """All predictions, in order, while the data is read; `begins` unless other predictions stand before these."""
    if layout.target is None:
        _write_lines(model, stream, layout.wish, out, tick)
        return
    from streamsvm.io.writers import prediction_record, table_writer

    wish, target, schema = layout.wish, layout.target, layout.schema
    _, take = _class_column(model)
    writer = table_writer(
        out,
        schema,
        target.format,
        codec=target.codec,
        delimiter=target.delimiter,
        memory=layout.memory,
        begins=begins,
    )
    with writer as table, closing(stream.in_order()) as batches:
        for batch in batches:
            table.write(prediction_record(schema, [*stream.kept, *_columns(model, batch, wish, take)]))
            tick(batch.rows)


def _write_lines(model: Model, stream: Stream, wish: Wish, out: IO[bytes], tick: Tick) -> None:
    what = "scores" if wish.scores else "probabilities" if wish.probabilities else "labels"
    with closing(stream.in_order()) as batches:
        for batch in batches:
            out.write(model.prediction_text(batch, what))
            out.flush()
            tick(batch.rows)


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
