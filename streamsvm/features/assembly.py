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
from streamsvm.features.recipe import DENSE, Recipe
from streamsvm.features.tokens import tokenise
from streamsvm.hashing import MISSING, cross, sign_of, word_from
from streamsvm.jit import inlined, kernel, quick
from streamsvm.rows import FOUR, ONE, THREE, TWO, ZERO, sort_row

LARGEST_LABEL = 2.0**24
TOO_LARGE = "the number does not fit in single precision (largest is 3.4e38)"
LONGEST_ROW = 1 << 24
TILE = np.uint64(64)  # rows that are turned from columns into rows at a time

LOGARITHMS = np.log1p(np.arange(1024.0)).astype(np.float32)

# Where the features of a column are found, for the long way.
ONE_NUMBER, ONE_WORD, MANY_NUMBERS, MANY_WORDS, MANY_PAIRS = range(5)
OVERFLOWN = 2  # in `bad`


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
        self._firsts = recipe.firsts()
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
        if self.recipe.as_written:
            return self._as_written(cells, out, bad, faults)
        if self._plain:
            return self._short_way(cells, out, bad, bucketed, faults)
        return self._long_way(cells, out, bad, bucketed, faults)

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
            message = f"column {name}: the label is missing, or is not one of the classes ({known})"
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
            cells.rows, bad, bool(faults), cells.numbers, cells.slots[dense], words, slots, self.recipe.dense,
            self._mask, out.keys, out.indptr, out.indices, out.values, out.labels, out.weights,
        )  # fmt: skip
        return _batch(out, rows), faults

    # The long way: whatever there is.

    def _long_way(
        self, cells: Cells, out: Rows, bad: Bytes, bucketed: dict[int, Uint32s], faults: list[RowFault]
    ) -> tuple[Batch, list[RowFault]]:
        spaces = [self._space(cells, place, bucketed) for place in range(len(self.recipe.columns))]
        kinds = np.array([space.kind for space in spaces], np.int64)
        starts = np.stack([space.starts for space in spaces])
        counts = np.stack([space.counts for space in spaces])
        words, values = _joined(spaces)
        firsts = np.array([space.offset for space in spaces], np.int64)
        crossed = np.full((len(self._crossed), 3), -1, np.int64)
        for k, group in enumerate(self._crossed):
            crossed[k, : len(group)] = group
        already = bad.copy()
        total, longest = count_features(counts, crossed, bad, LONGEST_ROW)
        faults += self._faulty(bad & ~already, f"the row has more than {LONGEST_ROW} features with its interactions")
        out.reserve(cells.rows, total + 1, longest)
        rows = assemble_all(
            cells.rows, bad, kinds, starts, counts, firsts, words, values, np.array(self._firsts), crossed,
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


@quick
def encode_words(words, known, labels, bad, labelled):
    """Codes of the words among the known ones; whether a row has none."""
    faulty = False
    for i in range(len(words)):
        code = -1
        for k in range(len(known)):
            if words[i] == known[k]:
                code = k
        labels[i] = np.float32(code) if code >= 0 else np.float32(np.nan)
        if code < 0 and labelled:
            bad[i] = 1
            faulty = True
    return faulty


@quick
def check_labels(numbers, labels, bad, largest, labelled):
    """Copy labels; whether a row has none that will do."""
    faulty = False
    for i in range(len(numbers)):
        labels[i] = numbers[i]
        if labelled and not abs(numbers[i]) <= largest:
            bad[i] = 1
            faulty = True
    return faulty


@quick
def check_weights(numbers, weights, bad):
    faulty = False
    for i in range(len(numbers)):
        weights[i] = abs(numbers[i])  # -0 is 0
        if not (numbers[i] >= 0.0 and numbers[i] < np.inf):
            bad[i] = 1
            faulty = True
    return faulty


@kernel
def has_infinite(numbers, slots, rows):
    """Whether a number of these columns is infinite; told from the bits, many at a time."""
    bits = numbers.view(np.uint32)
    found = False
    for j in range(len(slots)):
        column = bits[slots[j]]
        for i in range(rows):
            found |= (column[i] & np.uint32(0x7FFFFFFF)) == np.uint32(0x7F800000)
    return found


@kernel
def is_full(numbers, slots, rows):
    """Whether every number of these columns is there, and none is 0: then all rows have the same features."""
    bits = numbers.view(np.uint32)
    for j in range(len(slots)):
        column = bits[slots[j]]
        full = True
        for i in range(rows):
            size = column[i] & np.uint32(0x7FFFFFFF)
            full &= (size != np.uint32(0)) & (size < np.uint32(0x7F800000))
        if not full:
            return False
    return True


@kernel
def log_numbers(numbers):
    """log(1 + x) of each number, with the sign of x; those of small counts are known."""
    known = len(LOGARITHMS)
    for i in range(len(numbers)):
        number = numbers[i]
        if 0.0 <= number < known and number == np.float32(np.int32(number)):
            numbers[i] = LOGARITHMS[np.int32(number)]
        else:
            size = np.log1p(np.float64(abs(number)))
            numbers[i] = np.float32(size) if number >= 0.0 else np.float32(-size)


@kernel
def bucket_words(numbers, edges, words, out):
    """The word of the bucket of each number: how many edges are at most that number."""
    for i in range(len(numbers)):
        out[i] = MISSING
        if numbers[i] == numbers[i]:
            low, high = 0, len(edges)
            while low < high:
                middle = (low + high) // 2
                if edges[middle] <= numbers[i]:
                    low = middle + 1
                else:
                    high = middle
            out[i] = words[low]


@kernel
def hash_indices(data, seed, out):
    for k in range(len(data)):
        out[k] = cross(seed, data[k])


@kernel
def check_spans(starts, lengths, data, widths, may_lack, wrong):
    """What is wrong with lists of numbers: 1 their length, 2 a missing item, 3 one too large; whether any is."""
    faulty = False
    for i in range(len(starts)):
        code = 0
        largest = np.float32(0.0)
        missing = False
        for k in range(starts[i], starts[i] + lengths[i]):
            size = abs(data[k])
            largest = size if size > largest else largest
            missing |= size != size
        if lengths[i] != widths[i] and not (may_lack and lengths[i] == 0):
            code = 1
        elif missing:
            code = 2
        elif largest == np.inf:
            code = 3
        wrong[i] = code
        faulty |= code != 0
    return faulty


@quick
def rows_beyond(starts, lengths, data, limit, bad):
    """Rows with an index of at least `limit`, which are bad."""
    found = np.zeros(len(starts), np.uint8)
    for i in range(len(starts)):
        for k in range(starts[i], starts[i] + lengths[i]):
            if data[k] >= limit and not bad[i]:
                found[i] = bad[i] = 1
    return found


@kernel
def align_values(starts, counts, other_starts, values, out):
    for i in range(len(starts)):
        for k in range(counts[i]):
            out[starts[i] + k] = values[other_starts[i] + k]


@kernel
def assemble_dense(rows, numbers, slots, indptr, indices, values):
    """Rows that all have the same features: a few rows and four columns at a time, which keeps to the cache."""
    width, count = np.uint64(len(slots)), np.uint64(rows)
    first = ZERO
    while first < count:
        last = min(first + TILE, count)
        j = ZERO
        while j + FOUR <= width:
            one, two = numbers[slots[j]], numbers[slots[j + ONE]]
            three, four = numbers[slots[j + TWO]], numbers[slots[j + THREE]]
            for i in range(first, last):
                k = i * width + j
                values[k] = one[i]
                values[k + ONE] = two[i]
                values[k + TWO] = three[i]
                values[k + THREE] = four[i]
            j += FOUR
        while j < width:
            one = numbers[slots[j]]
            for i in range(first, last):
                values[i * width + j] = one[i]
            j += ONE
        first = last
    for i in range(count):
        indptr[i + ONE] = (i + ONE) * width
        for j in range(width):
            indices[i * width + j] = j


@kernel
def assemble_plain(
    rows, bad, faulty, numbers, number_slots, words, word_slots, first, mask, keys,
    indptr, indices, values, labels, weights,
):  # fmt: skip
    """Rows of numbers, in the order of their indices, and of single words, which are sorted."""
    feature = np.int64(0)
    kept = 0
    bits = np.uint32(mask)
    for i in range(rows):
        if faulty and bad[i]:
            continue
        for j in range(len(number_slots)):
            value = numbers[number_slots[j], i]
            indices[feature] = j
            values[feature] = value
            feature += (value == value) & (value != np.float32(0.0))
        begun = feature
        for j in range(len(word_slots)):
            word = words[word_slots[j], i]
            indices[feature] = np.uint32(first) + (word & bits)
            values[feature] = sign_of(word)
            feature += word != MISSING
        feature = begun + sort_row(indices[begun:feature], values[begun:feature], keys)
        labels[kept], weights[kept] = labels[i], weights[i]
        kept += 1
        indptr[kept] = feature
    return kept


@kernel
def count_features(counts, crossed, bad, limit):
    """An upper bound of the features of all good rows, and that of the longest; rows beyond the limit are bad."""
    total = longest = np.int64(0)
    for i in range(len(bad)):
        if bad[i]:
            continue
        row = np.int64(0)
        for j in range(len(counts)):
            row += counts[j, i]
        for k in range(len(crossed)):
            product = counts[crossed[k, 0], i] * counts[crossed[k, 1], i]
            if crossed[k, 2] >= 0:
                product = min(product, 1 << 31) * counts[crossed[k, 2], i]
            row += product
        if row > limit:
            bad[i] = 1
            continue
        total += row
        longest = max(longest, row)
    return total, longest


@kernel
def assemble_all(
    rows, bad, kinds, starts, counts, firsts, words, values_in, dense_firsts, crossed, base, mask, keys,
    indptr, indices, values, labels, weights,
):  # fmt: skip
    """Rows of everything: the features of each column, then those of the interactions, sorted and added up."""
    feature = np.int64(0)
    kept = 0
    bits = np.uint32(mask)
    for i in range(rows):
        if bad[i]:
            continue
        begun = feature
        for j in range(len(kinds)):
            at = firsts[j] + starts[j, i]
            for k in range(counts[j, i]):
                word, value = words[at + k], values_in[at + k]
                if dense_firsts[j] >= 0:
                    if value == value and value != 0.0:
                        indices[feature] = dense_firsts[j] + k
                        values[feature] = value
                        feature += 1
                elif word != MISSING and value == value and value != 0.0:
                    indices[feature] = np.uint32(base) + (word & bits)
                    values[feature] = value * sign_of(word)
                    feature += 1
        for c in range(len(crossed)):
            left, middle, right = crossed[c, 0], crossed[c, 1], crossed[c, 2]
            for p in range(counts[left, i]):
                one, one_value = element(kinds, firsts, starts, words, values_in, left, i, p)
                for q in range(p if left == middle else 0, counts[middle, i]):
                    two, two_value = element(kinds, firsts, starts, words, values_in, middle, i, q)
                    if one == MISSING or two == MISSING:
                        continue
                    both, product = cross(one, two), one_value * two_value
                    if right < 0:
                        if product != 0.0 and product == product:
                            indices[feature] = np.uint32(base) + (both & bits)
                            values[feature] = product * sign_of(both)
                            feature += 1
                        continue
                    for r in range(q if middle == right else 0, counts[right, i]):
                        three, three_value = element(kinds, firsts, starts, words, values_in, right, i, r)
                        whole = product * three_value
                        if three != MISSING and whole != 0.0 and whole == whole:
                            every = cross(both, three)
                            indices[feature] = np.uint32(base) + (every & bits)
                            values[feature] = whole * sign_of(every)
                            feature += 1
        feature = begun + sort_row(indices[begun:feature], values[begun:feature], keys)
        if infinite_row(values, begun, feature):
            bad[i] = OVERFLOWN
            feature = begun
            continue
        labels[kept], weights[kept] = labels[i], weights[i]
        kept += 1
        indptr[kept] = feature
    return kept


@inlined
def element(kinds, firsts, starts, words, values_in, j, i, k):
    """The k-th feature of column j in row i, as interactions see it: elements of a vector have words of their own."""
    at = firsts[j] + starts[j, i] + k
    word = words[at]
    if kinds[j] == MANY_NUMBERS:
        word = cross(word, np.uint32(k + 1))
    return word, values_in[at]


@inlined
def infinite_row(values, begun, end):
    """Whether a row has a number that is too large."""
    largest = np.float32(0.0)
    for k in range(begun, end):
        size = abs(values[k])
        largest = size if size > largest else largest
    return largest == np.inf


@kernel
def assemble_sparse(rows, bad, starts, lengths, data, values_in, mask, keys, indptr, indices, values, labels, weights):
    """Rows whose indices are used as written."""
    feature = np.int64(0)
    kept = 0
    bits = np.uint32(mask)
    for i in range(rows):
        if bad[i]:
            continue
        begun = feature
        for k in range(starts[i], starts[i] + lengths[i]):
            if values_in[k] == values_in[k]:
                indices[feature] = data[k] & bits
                values[feature] = values_in[k]
                feature += 1
        feature = begun + sort_row(indices[begun:feature], values[begun:feature], keys)
        if infinite_row(values, begun, feature):
            bad[i] = OVERFLOWN
            feature = begun
            continue
        labels[kept], weights[kept] = labels[i], weights[i]
        kept += 1
        indptr[kept] = feature
    return kept
