"""The slow twin of the LIBSVM parser, and rows in a form that can be compared bit for bit."""

import ctypes
import mmap
import os
import re

import numpy as np

from streamsvm.batch import Batch
from streamsvm.io.decimals import PADDING
from streamsvm.io.libsvm import Dialect, Rows, make_rows, parse
from streamsvm.io.parsed import Parsed

NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class BadRowError(Exception):
    pass


def single(token: bytes) -> np.float32:
    """What the parser must make of a number: Python's float, rounded to single precision."""
    if not NUMBER.fullmatch(token):
        raise BadRowError
    with np.errstate(over="ignore"):
        value = np.float32(float(token))
    if np.isinf(value):
        raise BadRowError
    return value


def twin_row(line: bytes, dialect: Dialect = Dialect()):
    """The row of a line as `row` shows it, None where there is none; BadRowError where it is malformed."""
    tokens = [token for token in re.split(rb"[ \t\r]+", line.split(b"#", 1)[0]) if token]
    if not tokens:
        return None
    label, weight = np.float32(np.nan), np.float32(1)
    if NUMBER.fullmatch(tokens[0]):
        label = single(tokens.pop(0))
        if tokens and NUMBER.fullmatch(tokens[0]):
            weight = single(tokens.pop(0))
    elif dialect.labelled:
        raise BadRowError
    if abs(label) > 2**24 or weight < 0:
        raise BadRowError
    features: dict[int, np.float32] = {}
    for token in tokens:
        if re.fullmatch(rb"qid:[^\0-\x20]*", token):
            continue
        index, colon, value = token.partition(b":")
        if not colon or not re.fullmatch(rb"[0-9]+", index) or int(index) >= dialect.limit:
            raise BadRowError
        key = int(index) & dialect.mask
        with np.errstate(over="ignore"):
            features[key] = features[key] + single(value) if key in features else single(value)
    if np.isinf(list(features.values())).any():
        raise BadRowError
    return row(label, sorted(features), [features[index] for index in sorted(features)], abs(weight))


def twin(text: bytes, dialect: Dialect = Dialect()):
    """All rows of a text, and the numbers (from 0) of its malformed lines."""
    rows, bad = [], []
    for number, line in enumerate(text.removesuffix(b"\n").split(b"\n")):
        try:
            found = twin_row(line, dialect)
        except BadRowError:
            bad.append(number)
            continue
        if found is not None:
            rows.append(found)
    return rows, bad


def row(label, indices, values, weight=1.0) -> tuple[bytes, ...]:
    """A row by its bits."""
    return (
        np.float32(label).tobytes(),
        np.array(indices, np.uint32).tobytes(),
        np.array(values, np.float32).tobytes(),
        np.float32(weight).tobytes(),
    )


def rows_of(*batches: Batch) -> list[tuple[bytes, ...]]:
    """The rows of batches by their bits, after a check of what every batch promises."""
    found = []
    for indptr, indices, values, labels, weights in batches:
        assert [a.dtype for a in (indptr, indices, values, labels, weights)] == ["i8", "u4", "f4", "f4", "f4"]
        assert len(indptr) - 1 == len(labels) == len(weights)
        assert len(indices) == len(values) >= indptr[-1]
        assert np.isfinite(values[indptr[0] : indptr[-1]]).all()
        for i, label in enumerate(labels):
            a, b = int(indptr[i]), int(indptr[i + 1])
            assert 0 <= a <= b
            assert (np.diff(indices[a:b].astype(np.int64)) > 0).all()
            found.append(row(label, indices[a:b], values[a:b], weights[i]))
    return found


def collect(stream) -> list[tuple[bytes, ...]]:
    """All rows of a stream, each batch looked at before the next is asked for."""
    return [found for batch in stream for found in rows_of(batch)]


class Fence:
    """Memory that ends where reading is forbidden: a kernel that looks too far kills the test."""

    def __init__(self, size: int) -> None:
        page = mmap.PAGESIZE
        self._size = -(-size // page) * page
        self._map = mmap.mmap(-1, self._size + page)
        if os.name == "posix":
            start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
            assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + self._size), page, 0) == 0

    def hold(self, text: bytes) -> np.ndarray:
        start = self._size - len(text)
        self._map[start : self._size] = text
        return np.frombuffer(self._map, np.uint8, len(text), start)


FENCE = Fence(1 << 22)
SENTINEL = 77


def fenced_rows(size: int) -> tuple[Rows, list[np.ndarray]]:
    """Room for a text with a strip behind each array that nobody may write to."""
    exact = make_rows(size)
    wide = [np.full(len(array) + 8, SENTINEL, array.dtype) for array in exact[:5]]
    room = [array[:-8] for array in wide]
    room[0][0] = 0
    return Rows(*room, []), [array[-8:] for array in wide]


def parsed(text: bytes, dialect: Dialect = Dialect(), skip: int = 10**9, after: bytes = b"7:1 2:3.4567890 ") -> Parsed:
    """Parse with nothing but PADDING bytes of digits and colons behind the text, which must not matter."""
    text = text if text.endswith(b"\n") else text + b"\n"
    assert len(after) == PADDING
    rows, strips = fenced_rows(len(text))
    result = parse(FENCE.hold(text + after), 0, len(text), dialect, rows, skip)
    assert all((strip == SENTINEL).all() for strip in strips), "the kernel wrote past its room"
    return result


def agrees_with_twin(text: bytes, dialect: Dialect = Dialect()) -> None:
    rows, bad = twin(text, dialect)
    result = parsed(text, dialect)
    assert rows_of(result.batch) == rows
    assert [fault.line for fault in result.faults] == bad
