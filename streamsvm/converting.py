"""From one format to another, in one reading and with bounded memory.

    table -> table       all columns as they are: record batches in, records or lines of text out
    rows  -> table       columns label, weight, indices and values
    any   -> LIBSVM      rows of features, as training would see them
    any   -> VW          LIBSVM rows by index; tables by name: label [weight] |n name:number ... |c name=value ...

Text is made on several threads and written in order. The output has its name when all of it is there, not before.
"""

import os
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, nullcontext
from typing import IO, Any, NamedTuple

from streamsvm.config import Settings, expand
from streamsvm.dialects import training_plan
from streamsvm.errors import ConfigError, DataError
from streamsvm.features.recipe import Column, Recipe
from streamsvm.io import row_text
from streamsvm.io.compression import promised
from streamsvm.io.files import local_path, written_atomically
from streamsvm.io.overwriting import refuse_overwriting
from streamsvm.io.sniffing import COMPRESSED, ENDINGS, ending_of, format_of
from streamsvm.io.source import Source
from streamsvm.io.urls import is_local, redact_url
from streamsvm.offered import TABLES, WRITTEN
from streamsvm.pool import ordered
from streamsvm.reading import make_reading, make_source
from streamsvm.stream import SHOWN_FAULTS, Stream, Tally
from streamsvm.tables import TableDialect
from streamsvm.whole_tables import STORED, Piece, WholeTable

STDOUT = "-"

Note = Callable[[str], None]
Report = Callable[[Tally], None]


class Target(NamedTuple):
    """Where to write, and how."""

    url: str
    format: str
    codec: str | None = None
    delimiter: str = ","

    def opened(self) -> AbstractContextManager[IO[bytes]]:
        if self.url == STDOUT:
            import sys

            return nullcontext(sys.stdout.buffer)
        return written_atomically(self.url)


def target_of(url: str, to: str = "auto") -> Target:
    """The target that a name speaks of, or `to` where that is not auto."""
    ending = ending_of(url)
    known = ENDINGS.get(ending) if to == "auto" else to
    if known is None:
        endings = ", ".join(f".{name}" for name in ("svm", "vw", "csv", "tsv", "jsonl", "parquet", "arrow"))
        raise ConfigError(
            f"{redact_url(url)}: the name does not say which format to write; "
            f"use an ending ({endings}, with .gz, .zst, .bz2 or .xz after those of text) or --to"
        )
    if known not in WRITTEN:
        raise ConfigError(f"--to {known}: must be one of {', '.join(WRITTEN)}")
    codec = promised(url)
    if codec is None and url.lower().rsplit(".", 1)[-1] in COMPRESSED:
        raise ConfigError(f"{redact_url(url)}: text can be compressed as .gz, .zst, .bz2 or .xz only")
    if codec and known in STORED:
        raise ConfigError(f"{redact_url(url)}: {known} files are not compressed as a whole; leave {codec} out")
    return Target(url, known, codec, "\t" if ending in ("tsv", "tab") else ",")


def convert(
    settings: Settings,
    inputs: tuple[str, ...],
    target: Target,
    report: Report = lambda tally: None,
    note: Note = lambda text: None,
) -> dict[str, Any]:
    """Convert; returns what was done."""
    begun = time.monotonic()
    refuse_overwriting([("the output (OUT)", target.url)], [("the input (IN)", url) for url in inputs], expand)
    source = make_source(settings, inputs)
    format = format_of(source, settings.data.format)
    _refuse_overwriting(target, format)
    if _by_records(format, target.format):
        tally = _tables(settings, source, format, target, report, note)
    else:
        tally = _rows(settings, source, format, target, report, note)
    written = os.stat(local_path(target.url)).st_size if target.url != STDOUT and is_local(target.url) else None
    return {
        "rows": tally.rows,
        "bytes": tally.bytes,
        "written": written,
        "seconds": time.monotonic() - begun,
        "from": format,
        "to": target.format,
        "output": redact_url(target.url),
        "bad_rows": tally.bad_rows,
        "faults": tally.faults,
    }


def _by_records(format: str, to: str) -> bool:
    return format in TABLES and (to in TABLES or to == "vw")


def _refuse_overwriting(target: Target, format: str) -> None:
    """`convert *.csv` with no output would put all files but one in the place of the last."""
    if target.url == STDOUT or not is_local(target.url):
        return
    if format == target.format and local_path(target.url).is_file():
        raise ConfigError(
            f"{target.url}: this file is there already, and has the format of the input; "
            "the last name is that of the output: delete the file first if it is meant"
        )


# Rows of features.


def _rows(settings: Settings, source: Source, format: str, target: Target, report: Report, note: Note) -> Tally:
    if target.format == "csv":
        raise ConfigError(f"CSV cannot hold the rows of {format} data; write jsonl, parquet, arrow or libsvm instead")
    if format == target.format == "vw":
        raise ConfigError("VW text to VW text would lose the names of features, and is nothing else but a copy")
    dialect, features = training_plan(settings, source, None, note)
    if features.label_classes:
        codes = ", ".join(f"{code} for {name}" for code, name in enumerate(features.label_classes[:10]))
        note(f"labels are written as numbers: {codes}")
    stream = Stream(
        source,
        dialect,
        skip_bad=settings.data.on_bad_row == "skip",
        max_bad_rows=settings.data.max_bad_rows,
        limit=settings.data.limit,
        reading=make_reading(settings),
        features=features,
    )
    with target.opened() as out, closing(stream.in_order()) as batches:
        writer, piece_of = _row_writer(target, out, settings.run.memory)
        with writer:
            for batch in batches:
                writer.write(piece_of(batch))
                report(stream.tally)
    return stream.tally


def _row_writer(target: Target, out: IO[bytes], memory: int) -> tuple[Any, Callable[[Any], Any]]:
    """A writer, and what makes of a batch what it writes."""
    from streamsvm.io.writers import TextOut, rows_record, rows_schema, table_writer

    styles = {"libsvm": row_text.LIBSVM, "vw": row_text.VW, "jsonl": row_text.JSON}
    if target.format in styles:
        style = styles[target.format]
        return TextOut(out, target.codec), lambda batch: row_text.rows_text(batch, style)
    return table_writer(out, rows_schema(), target.format, codec=None, memory=memory), rows_record


# Tables.


class _Made(NamedTuple):
    """A piece as a record, and the text of it if text is wanted."""

    piece: Piece
    record: Any
    text: Any
    bad: list[Any]


def _tables(settings: Settings, source: Source, format: str, target: Target, report: Report, note: Note) -> Tally:
    recipe = None
    if target.format == "vw":
        dialect, _ = training_plan(settings, source, None, note)
        assert isinstance(dialect, TableDialect)
        recipe = dialect.recipe
        if recipe.as_written:
            return _rows(settings, source, format, target, report, lambda text: None)
    from streamsvm.io.writers import TextOut, line_maker, table_writer, text_start

    table = WholeTable(settings, source, format)
    lines: Any = None
    if recipe is not None:
        lines = _vw_maker(recipe)
    elif target.format not in STORED:
        lines = _plain_maker(line_maker(table.schema, target.format, target.delimiter))
    tally = Tally()
    with target.opened() as out:
        if lines is None:
            writer: Any = table_writer(out, table.schema, target.format, codec=None, memory=settings.run.memory)
        else:
            writer = TextOut(out, target.codec)
        with writer, closing(_made(table, lines, settings, tally)) as pieces:
            if lines is not None and recipe is None:
                writer.write(text_start(table.schema, target.format, target.delimiter))
            for made in pieces:
                writer.write(made.record if lines is None else made.text)
                report(tally)
    return tally


def _made(table: WholeTable, lines: Any, settings: Settings, tally: Tally) -> Generator[_Made, None, None]:
    """The pieces of a table, in order, up to the limit."""
    limit = settings.data.limit

    def work(piece: Piece) -> _Made:
        record, bad = table.record(piece)
        if lines is None:
            return _Made(piece, record, None, bad)
        text, more = lines(record)
        return _Made(piece, record, text, [*bad, *more])

    with closing(ordered(table.pieces, work, table.tokens, table.workers)) as pieces:
        for made in pieces:
            if limit is not None and made.record.num_rows > limit - tally.rows:
                record = made.record.slice(0, limit - tally.rows)
                made = made._replace(record=record, text=lines(record)[0] if lines else None, bad=[])
            for row in made.bad:
                _count_bad(f"{made.piece.shown}:{made.piece.line + row[0]}: {row[1]}", settings, tally)
            tally.rows += made.record.num_rows - sum(len(row) > 2 for row in made.bad)
            tally.bytes += made.piece.size
            yield made
            table.release(made.piece)
            if tally.rows == limit:
                return


def _count_bad(message: str, settings: Settings, tally: Tally) -> None:
    if settings.data.on_bad_row != "skip":
        raise DataError(message)
    if tally.bad_rows == settings.data.max_bad_rows:
        raise DataError(f"{message} (more than {tally.bad_rows} bad rows skipped: data.max_bad_rows)")
    tally.bad_rows += 1
    if len(tally.faults) < SHOWN_FAULTS:
        tally.faults.append(message)


def _plain_maker(lines: Any) -> Any:
    return lambda record: (lines(record), [])


def _vw_maker(recipe: Recipe) -> Any:
    """Makes lines of VW text: the bytes, and (row, what is wrong, True) of those that are left out."""
    from streamsvm.io.arrow_cells import column_of
    from streamsvm.io.cell_text import bytes_of, joined, missing_rows, vw_labels, vw_weights, without_missing

    def lines(record: Any) -> tuple[Any, list[Any]]:
        parts: list[Any] = [vw_labels(column_of(record, recipe.label or ""), recipe.label or "", recipe.label_classes)]
        if recipe.weight:
            parts.append(vw_weights(column_of(record, recipe.weight), recipe.weight))
        for space in ("n", "c", ""):
            columns = [column for column in recipe.columns if _SPACES[column.kind] == space]
            parts += [f" |{space}"] if space and columns else []
            parts += [_vw_features(column, record) for column in columns]
        texts = joined(*parts, "\n")
        bad = [
            (row, "the row has no label or no weight, or a label of no known class", True)
            for row in missing_rows(texts)
        ]
        return bytes_of(without_missing(texts)), bad

    return lines


_SPACES = {"number": "n", "log1p": "n", "bucket": "n", "vector": "n", "sparse": "n"}
_SPACES |= {"word": "c", "words": "c", "text": "", "date": "c"}


def _vw_features(column: Column, record: Any) -> Any:
    from streamsvm.io.arrow_cells import column_of
    from streamsvm.io.cell_text import vw_numbers, vw_pairs, vw_text, vw_vector, vw_words

    array = column_of(record, column.name)
    if column.kind == "date" and array is not None:  # as it is written
        return vw_words(array.cast("string"), column.name)
    if column.kind == "sparse":
        return vw_pairs(array, column_of(record, column.values) if column.values else None, column.name)
    make = {"vector": vw_vector, "word": vw_words, "words": vw_words, "text": vw_text}.get(column.kind, vw_numbers)
    return make(array, column.name)
