"""A set of rows in the two shapes that a comparison needs: a file that streamsvm reads, and arrays for the others.

Of each set a folder of its own is kept:

    train.KIND, test.KIND     LIBSVM text, VW text, Parquet or CSV, whichever the set is there in
    train.vw, test.vw         the same for Vowpal Wabbit
    arrays.npz                CSR matrices and codes of the classes, for scikit-learn
    set.json                  what it is; written last, so a folder without it is made anew

A missing number is a stored NaN in the arrays. It is left out of LIBSVM and VW text, which have no other word for it.
A category becomes a feature for each of its values, or one of 2^16 hashed ones where these are too many to list.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from scipy.sparse import csr_matrix, hstack

LABEL, WEIGHT = "label", "weight"
MOST_VALUES = 5000  # of a category that get a column each
HASHED = 1 << 16  # features of a category with more values
PIECE = 50_000  # rows made to text at a time
GROUP_ROWS = 100_000


class Rows(NamedTuple):
    """Features, codes of the classes, and the weight of each row if they differ."""

    x: csr_matrix
    codes: np.ndarray
    weights: np.ndarray | None = None
    table: pa.Table | None = None  # the same as columns, the label among them

    def take(self, places: np.ndarray) -> "Rows":
        weights = None if self.weights is None else self.weights[places]
        table = None if self.table is None else self.table.take(pa.array(places))
        return Rows(self.x[places], self.codes[places], weights, table)

    def mixed(self, seed: int = 0) -> "Rows":
        return self.take(np.random.default_rng(seed).permutation(len(self.codes)))


class Split(NamedTuple):
    """Rows to learn from and rows to test on, the format of their files, and what `streamsvm train` must be told."""

    train: Rows
    test: Rows
    kind: str = "svm"
    words: tuple[str, ...] = ()


class Kept(NamedTuple):
    """A set on disk."""

    name: str
    folder: Path
    kind: str
    words: list[str]
    rows: int
    test_rows: int
    classes: int

    def path(self, part: str) -> Path:
        return self.folder / f"{part}.{self.kind}"


def kept(folder: Path) -> Kept | None:
    """The set in this folder, if it is complete."""
    note = folder / "set.json"
    if not note.exists():
        return None
    return Kept(folder.name, folder, **json.loads(note.read_text()))


def keep(split: Split, folder: Path) -> Kept:
    """Write all files of a set. What was found out about rows that stood there before is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    classes = int(split.train.codes.max()) + 1
    arrays = {}
    for part, rows in (("train", split.train), ("test", split.test)):
        _write_text(rows, classes, folder / f"{part}.vw", vw=True)
        if split.kind == "svm":
            _write_text(rows, classes, folder / f"{part}.svm", vw=False)
        elif split.kind == "parquet":
            pq.write_table(rows.table, folder / f"{part}.parquet", row_group_size=GROUP_ROWS)
        elif split.kind == "csv":
            pyarrow.csv.write_csv(rows.table, folder / f"{part}.csv")
        weights = np.ones(0) if rows.weights is None else rows.weights
        x = rows.x
        found = {"data": x.data, "indices": x.indices, "indptr": x.indptr, "shape": np.array(x.shape)}
        found |= {"codes": rows.codes, "weights": weights}
        arrays |= {f"{part}_{name}": value for name, value in found.items()}
    np.savez(folder / "arrays.npz", **arrays)
    facts = {
        "kind": split.kind,
        "words": list(split.words),
        "rows": len(split.train.codes),
        "test_rows": len(split.test.codes),
        "classes": classes,
    }
    (folder / "set.json").write_text(json.dumps(facts) + "\n")
    return Kept(folder.name, folder, **facts)


def load_arrays(folder: Path) -> tuple[Rows, Rows]:
    """The rows to learn from and those to test on."""
    with np.load(folder / "arrays.npz") as stored:
        return _loaded(stored, "train"), _loaded(stored, "test")


def test_codes(folder: Path) -> np.ndarray:
    """The classes of the test rows."""
    with np.load(folder / "arrays.npz") as stored:
        return np.asarray(stored["test_codes"])


def _loaded(stored: "np.lib.npyio.NpzFile", part: str) -> Rows:
    triple = tuple(stored[f"{part}_{name}"] for name in ("data", "indices", "indptr"))
    weights = stored[f"{part}_weights"]
    x = csr_matrix(triple, tuple(stored[f"{part}_shape"]))
    return Rows(x, stored[f"{part}_codes"], weights if weights.size else None)


def dense(x: np.ndarray, codes: np.ndarray) -> Rows:
    """A matrix; its zeros are not stored, its NaN are."""
    return Rows(csr_matrix(x), codes.astype(np.int64))


def as_table(rows: Rows, names: list[str] | None = None) -> Rows:
    """Dense rows as columns of a table too; NaN is null."""
    x = rows.x.toarray()
    names = names or [f"x{j}" for j in range(x.shape[1])]
    columns = {name: pa.array(column, from_pandas=True) for name, column in zip(names, x.T, strict=True)}
    return rows._replace(table=pa.table({**columns, LABEL: pa.array(rows.codes)}))


def table_split(train: pa.Table, test: pa.Table, kind: str = "parquet", words: tuple[str, ...] = ()) -> Split:
    """A split of tables with a column `label` of codes: numbers as they are, a column for each value of a category."""
    parts: tuple[list[csr_matrix], list[csr_matrix]] = ([], [])
    for name in train.column_names:
        if name != LABEL:
            for found, part in zip(_columns(train[name], test[name]), parts, strict=True):
                part.append(found)
    rows = [
        Rows(hstack(part, format="csr"), table[LABEL].to_numpy().astype(np.int64), None, table)
        for part, table in zip(parts, (train, test), strict=True)
    ]
    return Split(rows[0], rows[1], kind, ("--label", LABEL, *words))


def _columns(train: pa.ChunkedArray, test: pa.ChunkedArray) -> tuple[csr_matrix, csr_matrix]:
    """The features of one column."""
    if not (pa.types.is_string(train.type) or pa.types.is_large_string(train.type)):
        return _number(train), _number(test)
    values = train.unique().drop_null()
    if len(values) > MOST_VALUES:
        return _hashed(train), _hashed(test)
    return _listed(train, values), _listed(test, values)


def _number(column: pa.ChunkedArray) -> csr_matrix:
    return csr_matrix(pc.cast(column, pa.float64()).to_numpy()[:, None])


def _listed(column: pa.ChunkedArray, values: pa.Array) -> csr_matrix:
    """A feature for each value; none for a null, and for a value that is not in the list."""
    places = pc.index_in(column, value_set=values)
    return _indicators(pc.fill_null(places, -1).to_numpy(), len(values))


def _hashed(column: pa.ChunkedArray) -> csr_matrix:
    dictionary = column.combine_chunks().dictionary_encode()
    texts = dictionary.dictionary.to_pylist()
    hashes = [int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") % HASHED for text in texts]
    places = pc.fill_null(dictionary.indices, -1).to_numpy(zero_copy_only=False)
    return _indicators(np.where(places < 0, -1, np.array(hashes)[places]), HASHED)


def _indicators(places: np.ndarray, width: int) -> csr_matrix:
    there = places >= 0
    indptr = np.concatenate([[0], np.cumsum(there)])
    return csr_matrix((np.ones(int(indptr[-1])), places[there].astype(np.int32), indptr), (len(places), width))


def _write_text(rows: Rows, classes: int, path: Path, *, vw: bool) -> None:
    with open(path, "wb") as out:
        for start in range(0, len(rows.codes), PIECE):
            piece = rows.take(np.arange(start, min(start + PIECE, len(rows.codes))))
            out.writelines(_lines(piece, classes, vw))


def _lines(rows: Rows, classes: int, vw: bool) -> Iterator[bytes]:
    """Labels are -1 and 1, or from 0 on where there are more; VW counts more than two from 1 on."""
    x = rows.x.copy()
    x.data = np.where(np.isnan(x.data), 0.0, x.data)
    x.eliminate_zeros()
    places, values = pa.array(x.indices.astype(np.int64) + 1), pa.array(x.data.astype(np.float32))
    tokens = pc.binary_join_element_wise(pc.cast(places, pa.string()), pc.cast(values, pa.string()), ":")
    features = pc.binary_join(pa.ListArray.from_arrays(pa.array(x.indptr.astype(np.int32)), tokens), " ")
    labels = 2 * rows.codes - 1 if classes == 2 else rows.codes + int(vw)
    heads = pc.cast(pa.array(labels), pa.string())
    if vw and rows.weights is not None:
        heads = pc.binary_join_element_wise(heads, pc.cast(pa.array(rows.weights), pa.string()), " ")
    lines = pc.binary_join_element_wise(heads, features, " | " if vw else " ")
    yield "\n".join(lines.to_pylist()).encode() + b"\n"
