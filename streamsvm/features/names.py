"""The names of hashed features, collected while rows are read, so that weights can be shown by name.

    categories            column=value           buckets    column=[18, 30)       words of a text   column:word
    features of VW text   namespace^feature      interactions of single values    one * other

A name is noted when its word is first seen, in the order of the rows, until there are MOST of them. What is not named:
items of lists, interactions with texts, lists or namespaces of VW text. Names change nothing about what is learned.
"""

import re
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Int64s, Uint32s
from streamsvm.cells import NUMBER, WORD, Cells
from streamsvm.features.assembly import Assembly
from streamsvm.features.assembly_kernels import bucket_words
from streamsvm.features.dates import date_features, part_names
from streamsvm.features.tokens import tokenise
from streamsvm.hashing import MISSING, cross
from streamsvm.jit import kernel

MOST = 1_000_000
FIRST_ROOM = 1 << 16
_TOKEN = re.compile(rb"[0-9a-z_\x80-\xff]+")
State = dict[str, Any]
Namer = Callable[[int], str]


class Named(NamedTuple):
    """Which index each name has, in the order of indices and then names."""

    indices: Uint32s
    signs: np.ndarray[Any, Any]  # -1 where the feature counts against its weight
    names: list[str]


class Names:
    """Words seen so far, and what they stand for."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.full = False
        self._table = np.zeros(FIRST_ROOM, np.uint64)
        self._words = array("I")
        self._ends = array("q", [0])
        self._text = bytearray()

    def __len__(self) -> int:
        return len(self._words)

    def fresh(self, words: Uint32s, tags: Int64s) -> Int64s:
        """Places (row * columns + column) of words[column, row] that were not seen before, which now are.

        Words of different tags are different. None is fresh any more when there is no room.
        """
        found = np.empty(words.size, np.int64)
        rows = 0
        count = 0
        while rows < words.shape[1] and not self.full:
            if 2 * (len(self) + count + len(words)) > len(self._table):
                self._grow()
            rows, count = fresh_words(words, tags, self._table, rows, found, count, len(self), self.most)
            self.full = len(self) + count >= self.most
        return found[:count]

    def _grow(self) -> None:
        old = self._table[self._table != 0]
        self._table = np.zeros(2 * len(self._table), np.uint64)
        insert_all(old, self._table)

    def add(self, word: int, name: str) -> None:
        """The name of a word that was fresh."""
        self._words.append(word)
        self._text += name.encode("utf-8", "replace")
        self._ends.append(len(self._text))

    def named(self, first: int, mask: int) -> Named:
        """The names by the index that their words have."""
        words = np.array(self._words, np.uint32)
        indices = np.uint32(first) + (words & np.uint32(mask))
        ends = self._ends
        names = [self._text[ends[k] : ends[k + 1]].decode() for k in range(len(words))]
        order = sorted(range(len(words)), key=lambda k: (indices[k], names[k]))
        signs = np.where(words >> np.uint32(31), -1, 1).astype(np.int8)
        return Named(indices[order], signs[order], [names[k] for k in order])

    # Going on later.

    def state(self) -> State:
        return {
            "table": self._table.copy(),
            "words": np.array(self._words, np.uint32),
            "ends": np.array(self._ends, np.int64),
            "text": np.frombuffer(bytes(self._text), np.uint8),
            "full": self.full,
        }

    def restore(self, state: State) -> None:
        self._table = np.array(state["table"], np.uint64)
        self._words, self._ends = array("I", state["words"].tolist()), array("q", state["ends"].tolist())
        self._text = bytearray(state["text"].tobytes())
        self.full = state["full"]


class _Single(NamedTuple):
    """A column with one word a row, and what the word of a row is called."""

    words: Uint32s
    name: Namer


class TableNames:
    """Names of the features that a recipe makes of a table."""

    def __init__(self, assembly: Assembly) -> None:
        self._recipe = assembly.recipe
        self._wants = assembly.wants
        self._bucket_words = assembly.bucket_words
        self._edges = assembly.edges
        self._date_words = assembly.date_words

    def see(self, cells: Cells, names: Names) -> None:
        """Note the names of the features of all rows."""
        if names.full or not cells.rows:
            return
        columns = [self._single(cells, place) for place in range(len(self._recipe.columns))]
        found = {place: single for place, single in enumerate(columns) if single is not None}
        hashed = [single for place, single in found.items() if self._wants[place].kind == WORD]
        hashed += [single for place, single in found.items() if self._recipe.columns[place].kind == "bucket"]
        hashed += self._crossed(found, cells.rows)
        if hashed:
            words = np.stack([single.words for single in hashed])
            for place in names.fresh(words, np.arange(1, len(hashed) + 1)).tolist():
                row, column = divmod(place, len(hashed))
                names.add(int(words[column, row]), hashed[column].name(row))
        for place, column in enumerate(self._recipe.columns):
            if column.kind == "text":
                self._see_texts(cells, place, len(hashed) + 1 + place, names)
            elif column.kind == "date":
                self._see_dates(cells, place, len(hashed) + 1 + place, names)

    def _single(self, cells: Cells, place: int) -> _Single | None:
        column, want = self._recipe.columns[place], self._wants[place]
        if column.kind == "bucket":
            words = np.empty(cells.rows, np.uint32)
            bucket_words(cells.number(place), self._edges[place], self._bucket_words[place], words)
            shown = dict(zip(self._bucket_words[place].tolist(), bucket_names(column.edges), strict=True))
            return _Single(words, lambda row: f"{column.name}={shown[int(words[row])]}")
        if want.kind == NUMBER:
            numbers = cells.number(place)
            there = (numbers == numbers) & (numbers != 0.0)
            return _Single(
                np.where(there, np.uint32(max(want.seed, 1)), MISSING).astype(np.uint32), lambda _: column.name
            )
        if want.kind == WORD:
            return _Single(
                cells.word(place), lambda row: f"{column.name}={cells.spelled(place, row).decode('utf-8', 'replace')}"
            )
        return None

    def _crossed(self, found: dict[int, _Single], rows: int) -> list[_Single]:
        places = {column.name: place for place, column in enumerate(self._recipe.columns)}
        crossed = []
        for group in self._recipe.interactions:
            members = [found.get(places[name]) for name in group]
            if all(member is not None for member in members):
                crossed.append(_together([member for member in members if member is not None], rows))
        return crossed

    def _see_texts(self, cells: Cells, place: int, tag: int, names: Names) -> None:
        starts, lengths, data = cells.spans(place)
        seed, ngrams = max(self._wants[place].seed, 1), self._recipe.ngrams
        offsets, words, _ = tokenise(data, starts, lengths, seed, ngrams)
        for k in names.fresh(words[None, :], np.array([tag])).tolist():
            row = int(np.searchsorted(offsets, k, side="right")) - 1
            text = data[starts[row] : starts[row] + lengths[row]].tobytes()
            token = token_names(text, ngrams)[k - int(offsets[row])]
            names.add(int(words[k]), f"{self._recipe.columns[place].name}:{token}")

    def _see_dates(self, cells: Cells, place: int, tag: int, names: Names) -> None:
        starts, lengths, data = cells.spans(place)
        column = self._recipe.columns[place]
        _, words, _, _ = date_features(data, starts, lengths, self._date_words[place], column.edges)
        shown = part_names(column.name, column.parts)
        for k in names.fresh(words[None, :], np.array([tag])).tolist():
            names.add(int(words[k]), shown[int(words[k])])


def bucket_names(edges: tuple[float, ...]) -> list[str]:
    """What the buckets between edges are called.

    >>> bucket_names((18.0, 30.0))
    ['(-inf, 18)', '[18, 30)', '[30, inf)']
    """
    shown = [f"{edge:g}" for edge in edges]
    return [
        f"(-inf, {shown[0]})",
        *(f"[{a}, {b})" for a, b in zip(shown, shown[1:], strict=False)),
        f"[{shown[-1]}, inf)",
    ]


def token_names(text: bytes, ngrams: int) -> list[str]:
    """The tokens of a text and their n-grams, in the order in which tokens.py has them.

    >>> token_names(b"New York, new", 2)
    ['new', 'york', 'new york', 'new', 'york new']
    """
    tokens = [token.decode("utf-8", "replace") for token in _TOKEN.findall(bytes(text).lower())]
    found = []
    for k in range(len(tokens)):
        found += [" ".join(tokens[k - n : k + 1]) for n in range(min(k + 1, ngrams))]
    return found


def _together(members: list[_Single], rows: int) -> _Single:
    words = members[0].words
    for member in members[1:]:
        both = np.empty(rows, np.uint32)
        cross_words(words, member.words, both)
        words = both
    return _Single(words, lambda row: " * ".join(member.name(row) for member in members))


def see_vw(text: Any, rows: Any, names: Names) -> None:
    """Note the names of the features of a block of VW text."""
    words = rows.word[: rows.spelled]
    if names.full or not len(words):
        return
    for k in names.fresh(words[None, :], np.array([1])).tolist():
        name = text[rows.name_start[k] :][: rows.name_length[k]].tobytes().decode("utf-8", "replace")
        space = text[rows.space_start[k] :][: rows.space_length[k]].tobytes().decode("utf-8", "replace")
        names.add(int(words[k]), f"{space}^{name}" if space else name)


@kernel
def cross_words(one, other, out):
    for i in range(len(one)):
        out[i] = MISSING
        if one[i] != MISSING and other[i] != MISSING:
            out[i] = cross(one[i], other[i])


@kernel
def fresh_words(words, tags, table, first, found, count, known, most):
    """Look up the words of rows from `first` on, and put those into the table that are not there.

    Stops where the table is half full, or where there are enough: returns the row to go on with, and how many places
    were found.
    """
    columns, rows = words.shape
    mask = np.uint64(len(table) - 1)
    for i in range(first, rows):
        if 2 * (known + count + columns) > len(table):
            return i, count
        for j in range(columns):
            word = words[j, i]
            if word == MISSING or known + count >= most:
                continue
            key = (np.uint64(tags[j]) << np.uint64(32)) | np.uint64(word)
            place = (key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20) & mask
            while table[place] != np.uint64(0) and table[place] != key:
                place = (place + np.uint64(1)) & mask
            if table[place] == np.uint64(0):
                table[place] = key
                found[count] = i * columns + j
                count += 1
    return rows, count


@kernel
def insert_all(keys, table):
    mask = np.uint64(len(table) - 1)
    for k in range(len(keys)):
        place = (keys[k] * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20) & mask
        while table[place] != np.uint64(0):
            place = (place + np.uint64(1)) & mask
        table[place] = keys[k]
