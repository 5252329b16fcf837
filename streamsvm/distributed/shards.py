"""Which spans of a source make a shard: as many shards as are wanted, of about the same size.

Text is cut where a line begins, Parquet where a row group does. Compressed text, CSV with quotes, which may hide
newlines, and Arrow files are read as wholes: of them there are no more shards than files.
"""

import os
from typing import NamedTuple

from streamsvm.errors import ConfigError
from streamsvm.io.csv import NO_QUOTE
from streamsvm.io.source import Source
from streamsvm.io.spans import Cut, Span, never, next_lines, next_row_groups, plan_spans
from streamsvm.io.urls import is_local, scheme_of
from streamsvm.readers import Dialect
from streamsvm.tables import TableDialect


class Shard(NamedTuple):
    """A part of the data that is read and learned as one."""

    number: int
    spans: tuple[Span, ...]

    @property
    def size(self) -> int:
        """Stored bytes, about."""
        return sum(span.size for span in self.spans)


def plan_shards(source: Source, dialect: Dialect, count: int) -> list[Shard]:
    """At most `count` shards; the same source and count give the same ones."""
    if not source.repeatable:
        raise ConfigError("a cluster needs files or urls that every worker can read, not a stream: save it first")
    parts = [part._replace(url=seen_from_anywhere(part.url)) for part in source.parts]
    pieces = plan_spans(parts, count, cut_of(dialect))
    return [Shard(number, spans) for number, spans in enumerate(pieces)]


def seen_from_anywhere(path: str) -> str:
    """A local path from the root on: workers may have been started in another directory."""
    return os.path.abspath(path) if is_local(path) and scheme_of(path) is None else path


def cut_of(dialect: Dialect) -> Cut:
    """Where files of a dialect may be cut."""
    if not isinstance(dialect, TableDialect) or dialect.format == "jsonl":
        return next_lines
    if dialect.format == "parquet":
        return next_row_groups
    if dialect.format == "csv" and dialect.csv.quote == NO_QUOTE:
        return next_lines
    return never
