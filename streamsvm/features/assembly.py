"""From the cells of a table to sparse rows, as a recipe says.

    cells -> labels, weights -> log1p, buckets, tokens -> features of each row, their interactions -> sorted indices

All table formats end here, in training and afterwards, so a value means the same feature wherever it comes from. Rows
that only have numbers and categories take a short way (`assemble_plain`); texts, lists and interactions the long one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from streamsvm.batch import Batch, Bytes, Float32s, Int64s, Uint32s
from streamsvm.cells import NUMBER, WORD, Cells, Int32s, Want
from streamsvm.features.assembly_kernels import (
    MANY_NUMBERS,
    MANY_PAIRS,
    MANY_WORDS,
    ONE_NUMBER,
    ONE_WORD,
    OVERFLOWN,
    align_values,
    assemble_all,
    assemble_dense,
    assemble_plain,
    assemble_sparse,
    bucket_words,
    check_labels,
    check_spans,
    check_weights,
    count_features,
    encode_words,
    has_infinite,
    hash_indices,
    is_full,
    log_numbers,
    rows_beyond,
)
from streamsvm.features.dates import SHOWN, date_features, part_words
from streamsvm.features.recipe import DENSE, Recipe
from streamsvm.features.tokens import tokenise
from streamsvm.hashing import MISSING, word_from

LARGEST_LABEL = 2.0**24
TOO_LARGE = "the number does not fit in single precision (largest is 3.4e38)"
LONGEST_ROW = 1 << 24


class RowFault(NamedTuple):
    """What is wrong with a row of the cells."""

    row: int
    message: str


class Rows:
    """Room for the rows of a piece, used again for the next one."""

    def __init__(self) -> None:
        self.indptr: Int64s = np.zeros(1, np.int64)
        self.labels: Float32s = np.empty(0, np.float32)
        self.weights: Float32s = np.empty(0, np.float32)
        self.indices: Uint32s = np.empty(0, np.uint32)
        self.values: Float32s = np.empty(0, np.float32)
        self.keys = np.empty(0, np.uint64)
        self.bad: Bytes = np.empty(0, np.uint8)

    def reserve(self, rows: int, features: int, longest: int = 0) -> None:
        if rows >= len(self.indptr):
            self.indptr = np.zeros(rows + 1, np.int64)
            self.labels, self.weights = np.empty(rows, np.float32), np.empty(rows, np.float32)
            self.bad = np.empty(rows, np.uint8)
        if features > len(self.indices):
            self.indices, self.values = np.empty(features, np.uint32), np.empty(features, np.float32)
        if 2 * longest > len(self.keys):
            self.keys = np.empty(2 * longest, np.uint64)


class Assembly:
    """A recipe, ready to be applied by any number of threads."""

    def __init__(self, recipe: Recipe, *, labelled: bool = True, limit: int | None = None) -> None:
        self.recipe = recipe
        self._limit = limit  # indices that are used as written must be below this
        self.labelled = labelled
        wants: list[Want] = list(recipe.wants())
        self._values_of: dict[int, int] = {}  # of a sparse column: where its values are
        for place, column in enumerate(recipe.columns):
            if column.values is not None:
                self._values_of[place] = len(recipe.columns) + len(self._values_of)
        self.label = self._append(wants, recipe.label_want())
        self.weight = self._append(wants, Want(recipe.weight, NUMBER) if recipe.weight else None)
        self.wants = tuple(wants)
        self._firsts = np.array(recipe.firsts(), np.int64)
        self._marks = np.array(recipe.indicators(), np.int64)
        self._class_words = np.array(recipe.class_words(), np.uint32)
        self._mask = (1 << (recipe.hash_bits or 0)) - 1
        plain = ("number", "log1p", "bucket", "word")
        self._plain = not recipe.interactions and all(column.kind in plain for column in recipe.columns)
        self._numbers = [place for place, want in enumerate(wants[: len(recipe.columns)]) if want.kind == NUMBER]
        self.edges = [np.array(column.edges, np.float32) for column in recipe.columns]
        self.bucket_words = [
            np.array([word_from(str(b), want.seed) for b in range(len(column.edges) + 1)], np.uint32)
            for column, want in zip(recipe.columns, wants, strict=False)
        ]
        self.date_words = {k: part_words(c.name, c.parts) for k, c in enumerate(recipe.columns) if c.kind == "date"}
        names = [column.name for column in recipe.columns]
        self._crossed = [tuple(names.index(name) for name in group) for group in recipe.interactions]

    @staticmethod
    def _append(wants: list[Want], want: Want | None) -> int | None:
        if want is not None:
            wants.append(want)
            return len(wants) - 1
        return None

    def batch(self, cells: Cells, out: Rows, wrong: Sequence[tuple[int, str]] = ()) -> tuple[Batch, list[RowFault]]:
        """The good rows of the cells, and what is wrong with the others; `wrong` is known already."""
        rows = cells.rows
        out.reserve(rows, 0)
        bad = out.bad[:rows]
        bad[:] = 0
        faults = self._known(wrong, bad) + self._labels(cells, out, bad) + self._weights(cells, out, bad)
        bucketed = self._transform(cells, bad, faults)
        self._check_lists(cells, bad, faults)
        dates = {place: self._dates(cells, place, bad, faults) for place in self.date_words}
        if self.recipe.as_written:
            return self._as_written(cells, out, bad, faults)
        if self._plain:
            return self._short_way(cells, out, bad, bucketed, faults)
        return self._long_way(cells, out, bad, bucketed, faults, dates)

    @staticmethod
    def _known(wrong: Sequence[tuple[int, str]], bad: Bytes) -> list[RowFault]:
        """The first fault of each row."""
        faults = [RowFault(row, message) for row, message in reversed(dict(reversed(wrong)).items())]
        bad[[fault.row for fault in faults]] = 1
        return faults

    # Labels and weights.

    def _labels(self, cells: Cells, out: Rows, bad: Bytes) -> list[RowFault]:
        labels = out.labels[: cells.rows]
        if self.label is None:
            labels[:] = np.nan
            return []
        name = self.recipe.label
        already = bad.copy()
        if self.recipe.label_classes is not None:
            unknown = encode_words(cells.word(self.label), self._class_words, labels, bad, self.labelled)
            known = ", ".join(self.recipe.label_classes[:5])
            message = (
                f"column {name}: the label is missing, or is not one of the classes ({known}), "
                "which the model, the first rows or --classes (data.classes) name"
            )
        else:
            unknown = check_labels(cells.number(self.label), labels, bad, LARGEST_LABEL, self.labelled)
            message = f"column {name}: the row has no label, or one beyond 2^24"
        return self._faulty(bad & ~already, message) if unknown else []

    def _weights(self, cells: Cells, out: Rows, bad: Bytes) -> list[RowFault]:
        weights = out.weights[: cells.rows]
        if self.weight is None:
            weights[:] = 1.0
            return []
        already = bad.copy()
        if not check_weights(cells.number(self.weight), weights, bad):
            return []
        return self._faulty(bad & ~already, f"column {self.recipe.weight}: a weight is a number from 0 on")

    @staticmethod
    def _faulty(bad: Bytes, message: str) -> list[RowFault]:
        return [RowFault(int(row), message) for row in np.flatnonzero(bad)]

    # Columns by themselves.

    def _transform(self, cells: Cells, bad: Bytes, faults: list[RowFault]) -> dict[int, Uint32s]:
        """Take logarithms, in place, and refuse infinities; the words of columns that are cut into buckets."""
        for place, column in enumerate(self.recipe.columns):
            if column.kind == "log1p":
                log_numbers(cells.number(place))
        if has_infinite(cells.numbers, cells.slots[self._numbers], cells.rows):
            faults += self._infinite(cells, bad)
        found = {}
        for place, column in enumerate(self.recipe.columns):
            if column.kind == "bucket":
                found[place] = np.empty(cells.rows, np.uint32)
                bucket_words(cells.number(place), self.edges[place], self.bucket_words[place], found[place])
        return found

    def _infinite(self, cells: Cells, bad: Bytes) -> list[RowFault]:
        """Rows with a number that is infinite, which are bad."""
        faults: list[RowFault] = []
        for place in self._numbers:
            wrong = np.isinf(cells.number(place)) & (bad == 0)
            bad[wrong] = 1
            name = self.recipe.columns[place].name
            faults += self._faulty(wrong.view(np.uint8), f"column {name}: {TOO_LARGE}")
        return faults

    def _check_lists(self, cells: Cells, bad: Bytes, faults: list[RowFault]) -> None:
        """Lists of numbers must be as long as they should, and have finite numbers."""
        for place, column in enumerate(self.recipe.columns):
            if column.kind == "vector":
                lengths = np.full(cells.rows, column.width, np.int32)
                what = f"column {column.name}: the list has not {column.width} numbers"
                self._check_list(cells, place, lengths, True, bad, faults, what)
            elif column.values is not None:
                lengths = cells.spans(place)[1]
                what = f"column {column.values}: the list has not as many numbers as {column.name}"
                self._check_list(cells, self._values_of[place], lengths, False, bad, faults, what)

    def _check_list(
        self, cells: Cells, place: int, expected: Int32s, may_lack: bool, bad: Bytes, faults: list[RowFault], what: str
    ) -> None:
        starts, lengths, data = cells.spans(place)
        wrong = np.zeros(cells.rows, np.uint8)
        if check_spans(starts, lengths, data, expected, may_lack, wrong):
            wrong[bad != 0] = 0
            bad[wrong != 0] = 1
            name = cells.wants[place].name
            messages = (what, f"column {name}: an item of the list is missing", f"column {name}: {TOO_LARGE}")
            for code, message in enumerate(messages, 1):
                faults += self._faulty((wrong == code).view(np.uint8), message)

    def _dates(self, cells: Cells, place: int, bad: Bytes, faults: list[RowFault]) -> "_Space":
        """The features of a column of dates; rows with a text that is none are bad."""
        starts, lengths, data = cells.spans(place)
        column = self.recipe.columns[place]
        found = date_features(data, starts, lengths, self.date_words[place], column.edges)
        begins, words, values, wrong = found
        wrong[bad != 0] = 0
        for row in np.flatnonzero(wrong).tolist():
            text = data[starts[row] : starts[row] + min(int(lengths[row]), 60)].tobytes().decode("utf-8", "replace")
            faults.append(RowFault(row, f"column {column.name}: {text!r} is no date such as {SHOWN}"))
        bad[wrong != 0] = 1
        return _Space(MANY_PAIRS, begins[:-1], np.diff(begins), words, values)

    # The short way: numbers, categories, buckets.

    def _short_way(
        self, cells: Cells, out: Rows, bad: Bytes, bucketed: dict[int, Uint32s], faults: list[RowFault]
    ) -> tuple[Batch, list[RowFault]]:
        columns = self.recipe.columns
        dense = [p for p, column in enumerate(columns) if column.kind in DENSE]
        hashed = [p for p, want in enumerate(cells.wants[: len(columns)]) if want.kind == WORD]
        out.reserve(cells.rows, cells.rows * len(columns) + 1, len(columns))
        words, slots = cells.words, cells.slots[hashed]
        if len(dense) == len(columns) and not faults and is_full(cells.numbers, cells.slots[dense], cells.rows):
            assemble_dense(cells.rows, cells.numbers, cells.slots[dense], out.indptr, out.indices, out.values)
            return _batch(out, cells.rows), faults
        if bucketed:
            words = np.vstack([cells.words[:, : cells.rows], *bucketed.values()])
            slots = np.concatenate([slots, np.arange(len(cells.words), len(words))])
        rows = assemble_plain(
            cells.rows, bad, bool(faults), cells.numbers, cells.slots[dense], self._marks[dense], words, slots,
            self.recipe.dense, self._mask, out.keys, out.indptr, out.indices, out.values, out.labels, out.weights,
        )  # fmt: skip
        return _batch(out, rows), faults

    # The long way: whatever there is.

    def _long_way(
        self,
        cells: Cells,
        out: Rows,
        bad: Bytes,
        bucketed: dict[int, Uint32s],
        faults: list[RowFault],
        dates: dict[int, "_Space"],
    ) -> tuple[Batch, list[RowFault]]:
        places = range(len(self.recipe.columns))
        spaces = [dates[k] if k in dates else self._space(cells, k, bucketed) for k in places]
        kinds = np.array([space.kind for space in spaces], np.int64)
        starts = np.stack([space.starts for space in spaces])
        counts = np.stack([space.counts for space in spaces])
        words, values = _joined(spaces)
        firsts = np.array([space.offset for space in spaces], np.int64)
        crossed = np.full((len(self._crossed), 3), -1, np.int64)
        for k, group in enumerate(self._crossed):
            crossed[k, : len(group)] = group
        already = bad.copy()
        indicators = self.recipe.dense - self.recipe.measured
        total, longest = count_features(counts, indicators, crossed, bad, LONGEST_ROW)
        faults += self._faulty(bad & ~already, f"the row has more than {LONGEST_ROW} features with its interactions")
        out.reserve(cells.rows, total + 1, longest)
        rows = assemble_all(
            cells.rows, bad, kinds, starts, counts, firsts, words, values, self._firsts, self._marks, crossed,
            self.recipe.dense, self._mask, out.keys, out.indptr, out.indices, out.values, out.labels, out.weights,
        )  # fmt: skip
        return _batch(out, rows), faults + self._overflown(bad)

    def _space(self, cells: Cells, place: int, bucketed: dict[int, Uint32s]) -> "_Space":
        column, want, rows = self.recipe.columns[place], cells.wants[place], cells.rows
        seed = np.uint32(max(want.seed, 1))
        if place in bucketed:
            return _single_words(bucketed[place])
        if want.kind == NUMBER:
            numbers = cells.number(place)
            present = (numbers == numbers) & (numbers != 0.0)
            return _Space(
                ONE_NUMBER, np.arange(rows), present.astype(np.int64), np.full(rows, seed, np.uint32), numbers
            )
        if want.kind == WORD:
            return _single_words(cells.word(place))
        starts, lengths, data = cells.spans(place)
        if column.kind == "text":
            offsets, words, values = tokenise(data, starts, lengths, int(seed), self.recipe.ngrams)
            return _Space(MANY_PAIRS, offsets[:-1], np.diff(offsets), words, values)
        begins, counts = starts.astype(np.int64), lengths.astype(np.int64)
        if column.kind == "words":
            return _Space(MANY_WORDS, begins, counts, data, np.ones(len(data), np.float32))
        if column.kind == "vector":
            return _Space(MANY_NUMBERS, begins, counts, np.full(len(data), seed, np.uint32), data)
        words = np.empty(len(data), np.uint32)
        hash_indices(data, seed, words)
        return _Space(MANY_PAIRS, begins, counts, words, self._sparse_values(cells, place))

    def _sparse_values(self, cells: Cells, place: int) -> Float32s:
        starts, lengths, data = cells.spans(place)
        if place not in self._values_of:
            return np.ones(len(data), np.float32)
        other_starts, other_lengths, values = cells.spans(self._values_of[place])
        if np.array_equal(starts, other_starts) and len(values) >= len(data):
            return values
        laid_out = np.zeros(len(data), np.float32)
        align_values(starts, np.minimum(lengths, other_lengths), other_starts, values, laid_out)
        return laid_out

    def _as_written(self, cells: Cells, out: Rows, bad: Bytes, faults: list[RowFault]) -> tuple[Batch, list[RowFault]]:
        starts, lengths, data = cells.spans(0)
        values = self._sparse_values(cells, 0)
        if self._limit is not None and len(data) and int(data.max()) >= self._limit:
            too_large = rows_beyond(starts, lengths, data, self._limit, bad)
            faults += self._faulty(too_large, f"an index is too large for this model (features.dim: {self._limit})")
        longest = int(lengths.max()) if len(lengths) else 0
        out.reserve(cells.rows, int(lengths.sum()) + 1, longest)
        mask = self._mask if self.recipe.hash_bits else 0xFFFFFFFF
        rows = assemble_sparse(
            cells.rows, bad, starts, lengths, data, values, mask, out.keys, out.indptr, out.indices, out.values,
            out.labels, out.weights,
        )  # fmt: skip
        return _batch(out, rows), faults + self._overflown(bad)

    def _overflown(self, bad: Bytes) -> list[RowFault]:
        """Rows that the kernel left out because of what features have become together."""
        message = "a sum or product of features does not fit in single precision (largest is 3.4e38)"
        return self._faulty((bad == OVERFLOWN).view(np.uint8), message)


class _Space(NamedTuple):
    """The features of a column: row i has `counts[i]` of them from `starts[i]` on, each a word and a value."""

    kind: int
    starts: Int64s
    counts: Int64s
    words: Uint32s
    values: Float32s
    offset: int = 0


def _single_words(words: Uint32s) -> _Space:
    rows = len(words)
    return _Space(ONE_WORD, np.arange(rows), (words != MISSING).astype(np.int64), words, np.ones(rows, np.float32))


def _joined(spaces: list[_Space]) -> tuple[Uint32s, Float32s]:
    """The words and values of all columns in one array each; the offsets of the columns are set in place."""
    offset = 0
    for k, space in enumerate(spaces):
        spaces[k] = space._replace(offset=offset)
        offset += len(space.words)
    words = np.concatenate([space.words for space in spaces])
    values = np.concatenate([space.values[: len(space.words)] for space in spaces])
    return words, values


def _batch(out: Rows, rows: int) -> Batch:
    features = int(out.indptr[rows])
    return Batch(
        out.indptr[: rows + 1], out.indices[:features], out.values[:features], out.labels[:rows], out.weights[:rows]
    )
