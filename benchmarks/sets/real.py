"""Public sets, from the files of a directory: packed LIBSVM text, and Parquet. Rows to learn from are mixed."""

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy.sparse import csr_matrix
from sklearn.datasets import load_svmlight_file

from data import _open as open_packed
from sets.rows import LABEL, Rows, Split, table_split

COVTYPE_CLASS = 2
LATE = 15  # minutes
LEAKS = ("dep_delay", "dep_time", "arr_time", "arr_delay", "air_time", "time_hour", "rownames")
MOST_TEST_ROWS = 100_000


class NoFileError(Exception):
    """The directory has not what the set is made of; the message names it."""


def text_set(source: Path, name: str) -> Split:
    """NAME.train.svm.* with NAME.test.svm.*"""
    train, test = _both(source, name)
    return Split(train.mixed(), test)


def covtype(source: Path) -> Split:
    """Forest cover, class 2 against the rest, columns as they were measured; test rows are every 10th."""
    table = _read(source, "covtype.parquet")
    label = pc.cast(pc.equal(table["Cover_Type"], COVTYPE_CLASS), pa.int64())
    return _every_tenth(table.drop_columns(["Cover_Type"]).append_column(LABEL, label))


def nycflights(source: Path) -> Split:
    """Will a flight leave more than 15 minutes late? Without what is known only afterwards."""
    table = _read(source, "nycflights.parquet")
    label = pc.cast(pc.greater(table["dep_delay"], LATE), pa.int64())
    table = table.drop_columns([name for name in LEAKS if name in table.column_names]).append_column(LABEL, label)
    return _every_tenth(table.filter(pc.is_valid(table[LABEL])))


def kddcup99(source: Path) -> Split:
    """Connections of a network, normal or not. The test has attacks that the rows to learn from have not."""
    parts = []
    for part in ("train", "test"):
        table = _read(source, f"kddcup99.{part}.parquet")
        normal = pc.starts_with(pc.cast(table["y"], pa.string()), "normal")
        parts.append(table.drop_columns(["y"]).append_column(LABEL, pc.cast(pc.invert(normal), pa.int64())))
    test = parts[1].take(_some(parts[1].num_rows, MOST_TEST_ROWS))
    return table_split(_mixed(parts[0]), test)


def from_text(name: str) -> Callable[[Path], Split]:
    return lambda source: text_set(source, name)


@cache
def a9a(source: Path) -> Split:
    """What many ugly sets are made of."""
    return text_set(source, "a9a")


def _both(source: Path, name: str) -> tuple[Rows, Rows]:
    loaded = [_load(source, f"{name}.{part}.svm") for part in ("train", "test")]
    width = max(x.shape[1] for x, _ in loaded)
    classes = np.unique(loaded[0][1])
    train, test = (Rows(csr_matrix((x.data, x.indices, x.indptr), (x.shape[0], width)), y) for x, y in loaded)
    return tuple(part._replace(codes=np.searchsorted(classes, part.codes)) for part in (train, test))  # type: ignore[return-value]


def _load(source: Path, name: str) -> tuple[csr_matrix, np.ndarray]:
    found = sorted(source.glob(f"{name}*"))
    if not found:
        raise NoFileError(f"no {name}* in {source}")
    with open_packed(found[0]) as packed:
        x, labels = load_svmlight_file(io.BytesIO(packed.read()), zero_based=False)  # type: ignore[attr-defined]
    return x, labels


def _read(source: Path, name: str) -> pa.Table:
    if not (source / name).exists():
        raise NoFileError(f"no {name} in {source}")
    return pq.read_table(source / name).replace_schema_metadata(None)


def _every_tenth(table: pa.Table) -> Split:
    place = np.arange(table.num_rows)
    return table_split(_mixed(table.take(place[place % 10 != 9])), table.take(place[place % 10 == 9]))


def _mixed(table: pa.Table) -> pa.Table:
    return table.take(np.random.default_rng(0).permutation(table.num_rows)).combine_chunks()


def _some(rows: int, most: int) -> np.ndarray:
    return np.sort(np.random.default_rng(0).permutation(rows)[:most])
