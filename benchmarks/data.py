"""The files measured on: generated ones, kept between runs, and real ones unpacked for peers that need plain text."""

import bz2
import gzip
import io
import json
import lzma
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from generate import write_rows
from relabel import relabel

BYTES_PER_ROW = 1011.3  # of generated text
TRAIN_SEED, TEST_SEED = 0, 1
UNITS = {"KB": 1e3, "MB": 1e6, "GB": 1e9}


class Dataset(NamedTuple):
    """One set of rows, as LIBSVM text and, of two classes, as Vowpal Wabbit text."""

    name: str
    svm: Path
    vw: Path
    rows: int
    features: int
    bytes: int  # of the LIBSVM text; rates count these for every peer

    @property
    def megabytes(self) -> float:
        return self.bytes / 1e6


def bytes_of(size: str) -> float:
    """'1.2GB' -> 1.2e9."""
    found = re.fullmatch(r"([\d.]+)\s*(KB|MB|GB)", size.strip(), re.IGNORECASE)
    if not found:
        raise ValueError(f"a size looks like 300MB or 1.2GB, not {size!r}")
    return float(found[1]) * UNITS[found[2].upper()]


def rows_of(size: str) -> int:
    return max(1000, round(bytes_of(size) / BYTES_PER_ROW))


def generated(folder: Path, rows: int, seed: int = TRAIN_SEED) -> Dataset:
    """The file with that many rows, written when missing. A note beside it holds its counts."""
    name = f"rcv1-like-{rows}-{seed}"
    svm, vw, note = (folder / f"{name}{ending}" for ending in (".svm", ".vw", ".json"))
    if not (note.exists() and svm.exists() and vw.exists()):
        folder.mkdir(parents=True, exist_ok=True)
        written = write_rows(rows, svm, seed=seed, vw_out=vw)
        note.write_text(json.dumps(written._asdict()))
    counts = json.loads(note.read_text())
    return Dataset(name, svm, vw, **counts)


def relabelled(folder: Path, data: Dataset, classes: int) -> Dataset:
    """Generated rows with so many classes instead of two, written when missing."""
    name = f"{data.name}-{classes}-classes"
    svm = folder / f"{name}.svm"
    if not svm.exists():
        relabel(data.svm, svm, classes)
    return data._replace(name=name, svm=svm, vw=svm.with_suffix(".vw"), bytes=svm.stat().st_size)


class Pair(NamedTuple):
    """A real data set; `skipped` says why it is left out."""

    name: str
    train: Dataset | None
    test: Dataset | None
    skipped: str = ""
    scaled: tuple[Dataset, Dataset] | None = None  # where features differ in size, for programs that do not scale them
    note: str = ""


def real_pairs(source: Path, folder: Path) -> Iterator[Pair]:
    """Every NAME.train.svm.* with its NAME.test.svm.*, unpacked into `folder`. Only two-class sets are compared."""
    folder.mkdir(parents=True, exist_ok=True)
    for train in sorted(source.glob("*.train.svm*")):
        name = train.name.split(".train.svm")[0]
        test = next(iter(sorted(source.glob(f"{name}.test.svm*"))), None)
        if test is None:
            yield Pair(name, None, None, "no test file beside it")
            continue
        try:
            yield Pair(name, _unpacked(train, folder), _unpacked(test, folder))
        except ValueError as error:
            yield Pair(name, None, None, str(error))


def mnist_pair(source: Path, folder: Path) -> Pair:
    """Handwritten digits, 3 (-1) against 8 (+1), from mnist.{train,test}.svm.*"""
    name, files = "mnist-3-8", _files(source, "mnist")
    if files is None:
        return Pair(name, None, None, "no mnist.train.svm.* with mnist.test.svm.*")
    signs = {3.0: False, 8.0: True}
    train, test = (
        _written(f"{name}.{part}", folder, ((signs[label], rest) for label, rest in _lines(path) if label in signs))
        for part, path in files.items()
    )
    return Pair(name, train, test)


def class_pair(source: Path, folder: Path, name: str, *, every: int = 1) -> Pair:
    """NAME.train.svm.* with NAME.test.svm.*, as many classes as there are; of both every so-manieth row."""
    files = _files(source, name)
    if files is None:
        return Pair(name, None, None, f"no {name}.train.svm.* with {name}.test.svm.*")
    train, test = (
        _labelled(f"{name}.{part}", folder, islice(_lines(path), 0, None, every)) for part, path in files.items()
    )
    return Pair(name, train, test)


def labels_of(data: Dataset) -> np.ndarray:
    """The labels in the order of the rows."""
    return np.array([label for label, _ in _lines(data.svm)])


def covtype_pair(source: Path, folder: Path, *, every: int, mixed: bool) -> Pair:
    """Forest cover, class 2 (+1) against the rest, from covtype.parquet. Test rows are every 10th, as is usual.

    Of the other rows every so-manieth is learned from. Its columns are integers of very different size. Its rows are in
    long runs of one class, which online solvers suffer from; `mixed` puts those to learn from in a random order.
    """
    name = "covtype-mixed" if mixed else "covtype"
    cover = _cover(source, every, mixed)
    if cover is None:
        return Pair(name, None, None, "no covtype.parquet")
    columns, largest, classes, parts = cover
    signs = classes == 2
    datasets = [
        _written(f"{name}{kind}.{part}", folder, zip(signs[rows].tolist(), _texts(columns, rows, scale), strict=True))
        for kind, scale in (("", None), ("-scaled", largest))
        for part, rows in parts.items()
    ]
    note = f"{name}: every {every}th training row, in {'random order' if mixed else 'the order of the file'}"
    return Pair(name, datasets[0], datasets[1], scaled=(datasets[2], datasets[3]), note=note)


def covtype_classes(source: Path, folder: Path, *, every: int) -> Pair:
    """All seven classes of forest cover; scaled, rows to learn from in a random order, else as above."""
    name = "covtype-mixed"
    cover = _cover(source, every, mixed=True)
    if cover is None:
        return Pair(name, None, None, "no covtype.parquet")
    columns, largest, classes, parts = cover
    train, test = (
        _labelled(f"{name}.{part}", folder, zip(classes[rows].tolist(), _texts(columns, rows, largest), strict=True))
        for part, rows in parts.items()
    )
    return Pair(name, train, test)


class Cover(NamedTuple):
    """Forest cover as it is stored."""

    columns: list[Any]
    largest: list[int]  # of each column, in the rows to learn from
    classes: np.ndarray
    parts: dict[str, np.ndarray]  # which rows are for training and which for testing


def _cover(source: Path, every: int, mixed: bool) -> Cover | None:
    path = source / "covtype.parquet"
    if not path.exists():
        return None
    import pyarrow.parquet

    columns = [column.to_numpy() for column in pyarrow.parquet.read_table(path).columns]
    classes = columns.pop()
    place = np.arange(len(classes))
    parts = {"train": place[place % 10 != 9][::every], "test": place[place % 10 == 9]}
    if mixed:
        parts["train"] = np.random.default_rng(0).permutation(parts["train"])
    largest = [int(np.abs(column[parts["train"]]).max()) or 1 for column in columns]
    return Cover(columns, largest, classes, parts)


def _texts(columns: list[Any], rows: Any, largest: list[int] | None) -> Iterator[bytes]:
    """Each row of a table as 'index:value ...', zeros left out, each column divided by its largest value if given."""
    tokens = np.empty((len(rows), len(columns)), object)
    for j, column in enumerate(columns):
        values, which = np.unique(column[rows], return_inverse=True)
        by = largest[j] if largest else 1
        written = [b"%d:%.7g" % (j + 1, value / by) if value else b"" for value in values.tolist()]
        tokens[:, j] = np.array(written, object)[which]
    return (b" ".join(filter(None, row)) for row in tokens)


def _unpacked(source: Path, folder: Path) -> Dataset:
    """A file as plain text. A class beyond the second is refused before more is read."""
    return _written(source.name.split(".svm")[0], folder, _two_classes(_lines(source)))


def _two_classes(lines: Iterable[tuple[float, bytes]]) -> Iterator[tuple[bool, bytes]]:
    classes: set[float] = set()
    for label, rest in lines:
        classes.add(label)
        if len(classes) > 2:
            raise ValueError("more than two classes")
        yield label > 0, rest
    if not classes <= {-1.0, 0.0, 1.0}:
        raise ValueError("labels other than 1 and -1 or 0")


def _files(source: Path, name: str) -> dict[str, Path] | None:
    """NAME.train.svm.* and NAME.test.svm.*, if both are there."""
    found = {part: sorted(source.glob(f"{name}.{part}.svm*")) for part in ("train", "test")}
    return {part: paths[0] for part, paths in found.items()} if all(found.values()) else None


def _lines(source: Path) -> Iterator[tuple[float, bytes]]:
    """Label and features of each row of LIBSVM text, packed or not."""
    with _open(source) as lines:
        for line in lines:
            label, _, rest = line.strip().partition(b" ")
            yield float(label), rest


def _written(name: str, folder: Path, lines: Iterable[tuple[bool, bytes]]) -> Dataset:
    """Plain LIBSVM and VW text, labels as 1 and -1."""
    folder.mkdir(parents=True, exist_ok=True)
    svm, vw = folder / f"{name}.svm", folder / f"{name}.vw"
    rows = features = 0
    with open(svm, "wb") as out, open(vw, "wb") as vw_out:
        for positive, rest in lines:
            sign = b"1" if positive else b"-1"
            out.write(sign + b" " + rest + b"\n")
            vw_out.write(sign + b" | " + rest + b"\n")
            rows += 1
            features += rest.count(b":")
    return Dataset(name, svm, vw, rows, features, svm.stat().st_size)


def _labelled(name: str, folder: Path, lines: Iterable[tuple[float, bytes]]) -> Dataset:
    """Plain LIBSVM text, labels as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    svm = folder / f"{name}.svm"
    rows = features = 0
    with open(svm, "wb") as out:
        for label, rest in lines:
            out.write(b"%g %s\n" % (label, rest))
            rows += 1
            features += rest.count(b":")
    return Dataset(name, svm, svm.with_suffix(".vw"), rows, features, svm.stat().st_size)


def _open(path: Path) -> AbstractContextManager[Iterable[bytes]]:
    if path.suffix == ".gz":
        return gzip.open(path)
    if path.suffix == ".bz2":
        return bz2.open(path)
    if path.suffix == ".xz":
        return lzma.open(path)
    if path.suffix == ".zst":
        import pyarrow

        return io.BufferedReader(pyarrow.CompressedInputStream(str(path), "zstd"))
    return open(path, "rb")
