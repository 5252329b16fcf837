"""The cache: rows parsed once, kept as an Arrow IPC file that later passes map into memory.

A cache is a sequence of record batches ("groups") with columns `label, weight, indices list<uint32>, values
list<float>`; any Arrow tool can open it. grouped_rows.py says what makes a group. Labels are kept as written in the
source.

The schema's metadata holds the fingerprint of the source and of every option that decides what is parsed. A cache whose
fingerprint differs is refused, naming the difference. It is written under a temporary name and renamed when complete;
what a killed process has written of it another can go on with.
"""

import contextlib
import json
import os
import threading
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamsvm.batch import Batch, Float32s, Float64s, Int64s
from streamsvm.errors import DataError, ModelError
from streamsvm.io.arrow_file import GroupFile
from streamsvm.io.files import sync_directory
from streamsvm.io.grouped_rows import GROUP_FEATURES, GROUP_ROWS, GroupedRows
from streamsvm.io.urls import reason
from streamsvm.jit import quick

FORMAT = "streamsvm-cache"
FORMAT_VERSION = 1
MOST_CLASSES = 10_000

Fingerprint = dict[str, Any]
STATE_ARRAYS: dict[str, type[np.generic]] = {
    "ends": np.int64,
    "labels_seen": np.float64,
    "indptr": np.int64,
    "indices": np.uint32,
    "values": np.float32,
    "labels": np.float32,
    "weights": np.float32,
}


def _schema(metadata: dict[str, str]) -> pa.Schema:
    return pa.schema(
        [
            pa.field("label", pa.float32(), nullable=False),
            pa.field("weight", pa.float32(), nullable=False),
            pa.field("indices", pa.list_(pa.field("item", pa.uint32(), nullable=False)), nullable=False),
            pa.field("values", pa.list_(pa.field("item", pa.float32(), nullable=False)), nullable=False),
        ],
        metadata=metadata,
    )


class CacheWriter:
    """Collects rows into groups and writes them: `open` or `go_on` first, then `finish` gives the file its name.

    Otherwise `abandon` removes the file, or `leave` keeps it for a later process. That process needs the `state` which
    was taken here: where the file stood, and the rows that were not in it yet. What was written after that is cut off,
    so a process that is killed at any moment loses nothing but time.

    Raises OSError when the disk is full, or not writable.
    """

    def __init__(self, path: Path, fingerprint: Fingerprint | None, *, durable: bool = True) -> None:
        self.path = path
        self._durable = durable
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.part").absolute()
        self._fingerprint = fingerprint
        self._file: GroupFile | None = None
        self._indptr = np.zeros(GROUP_ROWS + 1, np.int64)
        self._labels = np.empty(GROUP_ROWS, np.float32)
        self._weights = np.empty(GROUP_ROWS, np.float32)
        self._indices = np.empty(GROUP_FEATURES, np.uint32)
        self._values = np.empty(GROUP_FEATURES, np.float32)
        self._rows = 0
        self._written = 0  # rows of the groups that are closed
        self._classes: set[float] = set()
        self._known = np.empty(0, np.float32)  # a few of them, to look labels up quickly
        self._fields = _schema({}).remove_metadata()

    def open(self) -> None:
        """Start the file, under a temporary name."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = GroupFile(open(self._temporary, "wb"), self._schema())  # noqa: SIM115
        self._file.begin()

    def _schema(self) -> pa.Schema:
        fingerprint = json.dumps(self._fingerprint)
        return _schema({"format": FORMAT, "format_version": str(FORMAT_VERSION), "fingerprint": fingerprint})

    # Going on after a kill.

    def state(self) -> dict[str, Any]:
        """Where the writing stands. The bytes that it counts outlive this process, and the machine after a `sync`."""
        assert self._file is not None
        self._file.flush()
        rows, features = self._rows, int(self._indptr[self._rows])
        return {
            "part": self._temporary.name,
            "bytes": self._file.size,
            "ends": self._file.ends,
            "written": self._written,
            "labels_seen": np.array(sorted(self._classes), np.float64),
            "indptr": self._indptr[: rows + 1].copy(),
            "labels": self._labels[:rows].copy(),
            "weights": self._weights[:rows].copy(),
            "indices": self._indices[:features].copy(),
            "values": self._values[:features].copy(),
        }

    def go_on(self, state: dict[str, Any]) -> bool:
        """Instead of `open`: continue the file that a killed process has left, as it was when the state was taken.

        False if that file is gone, or is not what the state says; nothing has been touched then.
        """
        if not _fits_together(state):
            return False
        left = self.path.with_name(state["part"]).absolute()
        try:
            part = open(left, "r+b")  # noqa: SIM115
        except OSError:
            return False
        file = GroupFile(part, self._schema())
        if not file.go_on(state["ends"], state["bytes"]):
            file.close()
            return False
        self._file, self._temporary = file, left
        self._written = state["written"]
        self._learn(state["labels_seen"])
        self.write(Batch(*(state[name] for name in Batch._fields)))
        return True

    def sync(self) -> None:
        """Put on disk what the last `state` counted. Another thread may call this at any time."""
        file = self._file
        if file is not None:
            file.sync()

    def leave(self) -> None:
        """Stop writing, and keep the unfinished file for a later `go_on`."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # what a state has counted is written already
                file.close()

    # Rows.

    def write(self, batch: Batch) -> None:
        """Append the rows of a batch."""
        if unknown_label(batch.labels, self._known):
            self._learn(batch.labels)
        if len(self._classes) > MOST_CLASSES:
            raise DataError(
                f"more than {MOST_CLASSES} different labels: they look like numbers to predict, not classes"
            )
        done = 0
        while done < batch.rows:
            done += self._fill(batch, done)

    def _learn(self, labels: Float32s | Float64s) -> None:
        self._classes.update(np.unique(labels).tolist())
        self._known = np.array(sorted(self._classes)[:8], np.float32)

    def _fill(self, batch: Batch, start: int) -> int:
        """Copy as many rows as the open group takes; returns how many."""
        used = int(self._indptr[self._rows])
        first = int(batch.indptr[start])
        room = int(np.searchsorted(batch.indptr, first + GROUP_FEATURES - used, side="right")) - 1 - start
        count = min(room, GROUP_ROWS - self._rows, batch.rows - start)
        if count <= 0 and self._rows == 0:  # one row larger than a group: it is a group
            self._grow(int(batch.indptr[start + 1]) - first)
            count = 1
        if count > 0:
            last = int(batch.indptr[start + count])
            rows = slice(self._rows, self._rows + count)
            ends = self._indptr[self._rows + 1 : self._rows + count + 1]
            np.add(batch.indptr[start + 1 : start + count + 1], used - first, out=ends)
            self._labels[rows] = batch.labels[start : start + count]
            self._weights[rows] = batch.weights[start : start + count]
            self._indices[used : used + last - first] = batch.indices[first:last]
            self._values[used : used + last - first] = batch.values[first:last]
            self._rows += count
        if count <= 0 or self._rows == GROUP_ROWS:
            self._close_group()
        return max(count, 0)

    def _grow(self, features: int) -> None:
        if features > len(self._indices):
            self._indices, self._values = np.empty(features, np.uint32), np.empty(features, np.float32)

    def _close_group(self) -> None:
        rows, features = self._rows, int(self._indptr[self._rows])
        if not rows:
            return
        assert self._file is not None
        offsets = pa.array(self._indptr[: rows + 1].astype(np.int32))
        indices = pa.array(self._indices[:features])
        values = pa.array(self._values[:features])
        arrays = [
            pa.array(self._labels[:rows]),
            pa.array(self._weights[:rows]),
            pa.ListArray.from_arrays(offsets, indices, type=self._fields.field("indices").type),
            pa.ListArray.from_arrays(offsets, values, type=self._fields.field("values").type),
        ]
        self._file.write(pa.record_batch(arrays, schema=self._fields))
        self._written += rows
        self._rows = 0
        self._indptr[0] = 0

    # The end.

    def finish(self) -> None:
        """Write the rest, and give the file its name. A file that is kept is on disk before it has its name."""
        assert self._file is not None
        self._close_group()
        self._file.complete()
        if self._durable:
            self._file.sync()
        self._file.close()
        os.replace(self._temporary, self.path)
        self._file = None
        if self._durable:
            sync_directory(self.path.parent)

    def abandon(self) -> None:
        """Leave no trace of an unfinished file."""
        if self._file is not None:
            self.leave()
            self._temporary.unlink(missing_ok=True)


def _fits_together(state: dict[str, Any]) -> bool:
    """Whether a state has the arrays that it should have, and their rows could be those of an open group."""
    part = state.get("part")
    if not isinstance(part, str) or not part or Path(part).name != part:
        return False
    for name, kind in STATE_ARRAYS.items():
        array = state.get(name)
        if not isinstance(array, np.ndarray) or array.dtype != kind or array.ndim != 1:
            return False
    rows, groups = Batch(*(state[name] for name in Batch._fields)), len(state["ends"])
    return bool(
        len(rows.indptr) == rows.rows + 1 == len(rows.weights) + 1
        and rows.indptr[0] == 0
        and np.all(rows.indptr[1:] >= rows.indptr[:-1])
        and rows.indptr[-1] == len(rows.indices) == len(rows.values)
        and rows.rows < GROUP_ROWS
        and (rows.features <= GROUP_FEATURES or rows.rows == 1)
        and groups <= state["written"] <= groups * GROUP_ROWS
    )


def is_cache(path: Path) -> bool:
    """Whether an Arrow file is a cache, or too damaged to tell."""
    try:
        with pa.memory_map(str(path)) as file:
            metadata = pa.ipc.open_file(file).schema.metadata or {}
    except (pa.ArrowException, OSError):
        return True
    return bool(metadata.get(b"format") == FORMAT.encode())


class Cache(GroupedRows):
    """A complete cache file, mapped into memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shown = str(path)
        try:
            self._map = pa.memory_map(str(path))
            self._reader = pa.ipc.open_file(self._map)
            metadata = {k.decode(): v.decode() for k, v in (self._reader.schema.metadata or {}).items()}
        except FileNotFoundError as error:
            raise ModelError(f"{path}: no such cache") from error
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ModelError(f"{path}: not a cache, or damaged or truncated ({reason(error)})") from error
        if metadata.get("format") != FORMAT:
            raise ModelError(f"{path}: not a streamsvm cache")
        if metadata.get("format_version") != str(FORMAT_VERSION):
            raise ModelError(f"{path}: a cache of another version of streamsvm; delete it and run again")
        try:
            self.fingerprint: Fingerprint | None = json.loads(metadata["fingerprint"])
        except (KeyError, ValueError) as error:
            raise ModelError(f"{path}: the cache is damaged: its fingerprint cannot be read") from error
        if not self._reader.schema.equals(_schema({})):
            raise ModelError(f"{path}: the cache is damaged: its columns are not those of a cache")
        self._sound: set[int] = set()
        self._reading = threading.Lock()

    @property
    def groups(self) -> int:
        return int(self._reader.num_record_batches)

    @cached_property
    def edges(self) -> Int64s:
        rows = [self._record(number).num_rows for number in range(self.groups)]
        edges = np.cumsum([0, *rows], dtype=np.int64)
        edges.flags.writeable = False
        return edges

    def group(self, number: int) -> Batch:
        """A group as a batch that shares the file's pages; its first use checks what kernels rely on.

        Any thread may ask.
        """
        batch = self._marks(number)
        if number not in self._sound:
            if not _increasing(batch):
                raise ModelError(f"{self.path}: group {number} of the cache is damaged; delete it and run again")
            self._sound.add(number)
        return batch

    def _marks(self, number: int) -> Batch:
        record = self._record(number)
        try:
            record.validate()
            labels, weights, indices, values = record.columns
            if not indices.offsets.equals(values.offsets):
                raise ValueError("rows have more indices than values, or fewer")
            batch = Batch(
                indices.offsets.to_numpy().astype(np.int64),
                indices.values.to_numpy(zero_copy_only=True),
                values.values.to_numpy(zero_copy_only=True),
                labels.to_numpy(zero_copy_only=True),
                weights.to_numpy(zero_copy_only=True),
            )
            if not sound_numbers(batch.labels, batch.weights):
                raise ValueError("labels are not finite, or weights are not, or are negative")
            return batch
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._damaged(number, error) from error

    def _record(self, number: int) -> pa.RecordBatch:
        try:
            with self._reading:
                return self._reader.get_batch(number)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._damaged(number, error) from error

    def _damaged(self, number: int, error: Exception) -> ModelError:
        return ModelError(f"{self.path}: group {number} of the cache is damaged ({reason(error)})")

    def refuse_if_stale(self, expected: Fingerprint | None) -> None:
        """ModelError when this is not a cache of what `expected` describes."""
        if expected is None:
            raise ModelError(
                f"{self.path}: exists, but whether it is a cache of this source cannot be told; "
                "delete it, or name another --cache"
            )
        if self.fingerprint != expected:
            difference = _difference(self.fingerprint or {}, expected)
            raise ModelError(f"{self.path}: stale cache: {difference}; delete it, or name another --cache")

    def close(self) -> None:
        self._map.close()


def _increasing(batch: Batch) -> bool:
    """Whether rows follow one another in the arrays, with strictly increasing indices in each."""
    indptr, indices = batch.indptr, batch.indices
    if indptr[0] != 0 or indptr[-1] != len(indices) or len(indices) != len(batch.values):
        return False
    if bool(np.any(indptr[1:] < indptr[:-1])):
        return False
    rising = indices[1:] > indices[:-1]
    starts = indptr[1:-1]
    rising[starts[(starts > 0) & (starts < len(indices))] - 1] = True
    return bool(rising.all())


@quick
def unknown_label(labels, known):
    """Whether there is a label that is not among the few known ones."""
    for i in range(len(labels)):
        found = False
        for k in range(len(known)):
            found |= labels[i] == known[k]
        if not found:
            return True
    return False


@quick
def sound_numbers(labels, weights):
    """Whether labels are finite, and weights finite and not negative."""
    sound = True
    for i in range(len(labels)):
        sound &= (np.abs(labels[i]) < np.inf) & (weights[i] >= 0.0) & (weights[i] < np.inf)
    return sound


def _difference(stored: Fingerprint, expected: Fingerprint) -> str:
    for key in sorted(stored.keys() | expected.keys()):
        old, new = stored.get(key), expected.get(key)
        if old == new:
            continue
        if key == "source" and isinstance(old, list) and isinstance(new, list):
            if [part[0] for part in old] != [part[0] for part in new]:
                return "it was made from other files"
            changed = next(part[0] for part, other in zip(new, old, strict=True) if part != other)
            return f"{changed} has changed since it was made"
        return f"{key} was {old} and is now {new}"
    return "it differs"
