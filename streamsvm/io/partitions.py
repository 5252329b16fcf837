"""Columns that stand in the names of directories: year=2013/month=1/part-0.parquet, as Hive and Spark write tables.

Every file has one value of each. Whole numbers are numbers, all else is text, and `__HIVE_DEFAULT_PARTITION__` is
missing. A column that a file has itself is read from there.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from streamsvm.errors import SourceError
from streamsvm.io.parts import Keys, Part

MISSING = "__HIVE_DEFAULT_PARTITION__"
FOREIGN = {
    "_delta_log": (
        "a Delta Lake table, in whose files rows may stand that were deleted since",
        "read it with its own library and write Parquet, as in DeltaTable(...).to_pyarrow_table()",
    ),
    ".metadata.json": (
        "an Iceberg table, in whose files rows may stand that were deleted since",
        "read it with its own library and write Parquet, as in table.scan().to_arrow()",
    ),
}


def refuse_table_formats(names: Iterable[str], shown: str) -> None:
    """SourceError if the files of a directory, named from there on, are those of a table with a history."""
    for name in names:
        *folders, last = name.split("/")
        found = "_delta_log" if "_delta_log" in folders else ""
        if folders and folders[-1] == "metadata" and last.endswith(".metadata.json"):
            found = ".metadata.json"
        if found:
            kind, remedy = FOREIGN[found]
            raise SourceError(f"{shown}: this is {kind}; {remedy}")


def keys_of(path: str) -> Keys:
    """The columns in the directories of a path, and their values; None where one is missing.

    >>> keys_of("/data/year=2013/city=New%20York/part-0.parquet")
    (('year', '2013'), ('city', 'New York'))
    """
    pairs = [folder.partition("=") for folder in path.split("/")[:-1]]
    found = {unquote(name): unquote(value) for name, sign, value in pairs if sign and name and "*" not in name}
    return tuple((name, None if value == MISSING else value) for name, value in found.items())


def partition_columns(parts: Sequence[Part]) -> dict[str, list[Any]]:
    """The columns that all files have in their directories, with the value of each file.

    A directory that is named itself, and that all files have in common, is no more than a place.
    """
    if not parts:
        return {}
    shared = set.intersection(*({name for name, _ in part.keys} for part in parts))
    columns = {name: [dict(part.keys)[name] for part in parts] for name, _ in parts[0].keys if name in shared}
    below = {name for part in parts for name, _ in part.keys[part.named :]}
    return {name: typed(texts) for name, texts in columns.items() if name in below or len(set(texts)) > 1}


def typed(texts: Sequence[str | None]) -> list[Any]:
    """Whole numbers, if all are, or texts; as Arrow reads them.

    >>> typed(["1", "02", None]), typed(["1", "x"])
    ([1, 2, None], ['1', 'x'])
    """
    if all(text is None or _is_whole(text) for text in texts):
        return [None if text is None else int(text) for text in texts]
    return list(texts)


def _is_whole(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 19


def with_fields(schema: Any, columns: Mapping[str, Sequence[Any]]) -> Any:
    """A schema with some columns more, which are whole numbers or texts."""
    import pyarrow as pa

    return pa.schema([*schema, *(pa.field(name, _type_of(values)) for name, values in columns.items())])


def _type_of(values: Sequence[Any]) -> Any:
    import pyarrow as pa

    return pa.string() if any(isinstance(value, str) for value in values) else pa.int64()


def with_partitions(record: Any, keys: Mapping[str, Any]) -> Any:
    """A record with some columns more, if it does not have them itself, each with one value."""
    import pyarrow as pa

    rows, names = record.num_rows, record.schema.names
    more = {name: value for name, value in keys.items() if name not in names}
    if not more:
        return record
    arrays = [pa.repeat(pa.scalar(value, _type_of([value])), rows) for value in more.values()]
    return pa.RecordBatch.from_arrays([*record.columns, *arrays], names=[*names, *more])
