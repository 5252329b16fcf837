"""The files measured on: generated ones, kept between runs, and real ones unpacked for peers that need plain text."""

import bz2
import gzip
import io
import json
import lzma
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from generate import write_rows

BYTES_PER_ROW = 1011.3  # of generated text
TRAIN_SEED, TEST_SEED = 0, 1
UNITS = {"KB": 1e3, "MB": 1e6, "GB": 1e9}


class Dataset(NamedTuple):
    """One set of rows, as LIBSVM text and as Vowpal Wabbit text."""

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


class Pair(NamedTuple):
    """A real data set; `skipped` says why it is left out."""

    name: str
    train: Dataset | None
    test: Dataset | None
    skipped: str = ""


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


def _unpacked(source: Path, folder: Path) -> Dataset:
    """Plain LIBSVM and VW text, labels as 1 and -1. A class beyond the second is refused before more is read."""
    name = source.name.split(".svm")[0]
    svm, vw = folder / f"{name}.svm", folder / f"{name}.vw"
    rows = features = 0
    classes: set[float] = set()
    with _open(source) as lines, open(svm, "wb") as out, open(vw, "wb") as vw_out:
        for line in lines:
            label, _, rest = line.strip().partition(b" ")
            classes.add(float(label))
            if len(classes) > 2:
                raise ValueError("more than two classes")
            sign = b"1" if float(label) > 0 else b"-1"
            out.write(sign + b" " + rest + b"\n")
            vw_out.write(sign + b" | " + rest + b"\n")
            rows += 1
            features += rest.count(b":")
    if not classes <= {-1.0, 0.0, 1.0}:
        raise ValueError("labels other than 1 and -1 or 0")
    return Dataset(name, svm, vw, rows, features, svm.stat().st_size)


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
