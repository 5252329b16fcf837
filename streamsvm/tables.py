"""Tables as streams read them: which format, which recipe, and how cells become batches."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Batch, Bytes
from streamsvm.cells import NUMBER, SPANS, TEXT, WORD, Cells, Want, category_text
from streamsvm.errors import DataError
from streamsvm.features.assembly import Assembly, Rows
from streamsvm.features.first_values import number_of_text
from streamsvm.features.names import Names, TableNames
from streamsvm.features.recipe import Recipe
from streamsvm.hashing import MISSING, word_from
from streamsvm.io.parsed import Fault, Parsed, quoted


class CsvOptions(NamedTuple):
    """How CSV text is written."""

    delimiter: int = 44
    quote: int = 34
    header: bool = True
    fields: tuple[str, ...] = ()  # the names of the columns, where there is no header
    decimal: int = 46  # what stands before the decimals of a number


class TableDialect(NamedTuple):
    """How rows are read from a table: part of a cache's fingerprint."""

    format: str  # csv, jsonl, parquet or arrow
    recipe: Recipe
    labelled: bool = True  # False: rows may come without a label (predict)
    csv: CsvOptions = CsvOptions()
    absent: bool = False  # whether a file may lack some of the columns
    keep: tuple[str, ...] = ()  # columns to hand on beside the rows
    limit: int | None = None  # sparse indices must be below this
    spelled: bool = False  # whether names are collected
    raw: bool = False  # whether text may be in any encoding

    def fingerprint(self) -> dict[str, Any]:
        other = [chr(self.csv.decimal)] if self.csv.decimal != CsvOptions().decimal else []
        return {
            "format": self.format,
            "features": self.recipe.as_json(),
            "csv": [*self.csv[:3], list(self.csv.fields), *other],
            "absent": self.absent,
            "limit": self.limit,
        }


class Room:
    """The memory of a piece of a table: its cells, and the rows made of them."""

    def __init__(self, wants: tuple[Want, ...], spelled: bool) -> None:
        self.cells = Cells(wants, spelled=spelled)
        self.rows = Rows()


class TableRows:
    """What all table formats share: from cells to rows, with what is wrong with some of them."""

    def __init__(self, dialect: TableDialect) -> None:
        self.dialect = dialect
        self.assembly = Assembly(dialect.recipe, labelled=dialect.labelled, limit=dialect.limit)
        self._names = TableNames(self.assembly)
        self.kept = range(len(self.assembly.wants), len(self.assembly.wants) + len(dialect.keep))
        self.wants = (*self.assembly.wants, *(Want(name, TEXT) for name in dialect.keep))

    @property
    def optional(self) -> frozenset[str]:
        """Columns that need not be there."""
        recipe = self.dialect.recipe
        unlabelled = [] if self.dialect.labelled else [recipe.label, recipe.weight]
        columns = [want.name for want in self.assembly.wants] if self.dialect.absent else []
        required = {recipe.label, recipe.weight} if self.dialect.labelled else set()
        return frozenset(name for name in [*unlabelled, *columns] if name is not None and name not in required)

    def room(self) -> Room:
        return Room(self.wants, self.dialect.spelled)

    def note_names(self, room: Room, names: Names) -> None:
        self._names.see(room.cells, names)

    def finish(
        self, room: Room, lines: int, faults: list[Fault], skip: int, wrong: Sequence[tuple[int, str]] = ()
    ) -> Parsed:
        """The rows of cells that are filled, and all that is wrong, in the order of the lines.

        Faults are of rows that have no cells; `wrong` names rows that have some.
        """
        cells = room.cells
        batch, row_faults = self.assembly.batch(cells, room.rows, wrong)
        if row_faults:
            bad = np.array(sorted(fault.row for fault in row_faults))
            faults = [f._replace(row=f.row - int(np.searchsorted(bad, f.row))) for f in faults]
            faults += [
                Fault(0, cells.line(row), row - int(np.searchsorted(bad, row)), message) for row, message in row_faults
            ]
            faults.sort(key=lambda fault: fault.line)
        if len(faults) > skip:
            faults = faults[: skip + 1]
            batch = batch.slice(0, faults[-1].row)
        return Parsed(batch, lines, faults, self._kept(room, batch))

    def _kept(self, room: Room, batch: Batch) -> list[list[str]] | None:
        """The columns that were asked for, as texts, of the rows that are left."""
        if not self.kept:
            return None
        cells = room.cells
        good = np.flatnonzero(room.rows.bad[: cells.rows] == 0)[: batch.rows].tolist()
        columns = []
        for place in self.kept:
            starts, lengths, data = cells.spans(place)
            text: Bytes = data
            columns.append(
                [text[starts[row] : starts[row] + lengths[row]].tobytes().decode("utf-8", "replace") for row in good]
            )
        return columns


def clear(cells: Cells, places: list[int], rows: int) -> None:
    """Make the cells of columns that a file does not have missing."""
    for place in places:
        slot = cells.slots[place]
        if cells.kinds[place] in SPANS:
            cells.starts[slot, :rows] = 0
            cells.lengths[slot, :rows] = 0
        elif cells.kinds[place] == NUMBER:
            cells.numbers[slot, :rows] = np.nan
        else:
            cells.words[slot, :rows] = MISSING
            if cells.spelled_slots[place] >= 0:
                cells.starts[cells.spelled_slots[place], :rows] = 0
                cells.lengths[cells.spelled_slots[place], :rows] = 0


def fill(cells: Cells, values: Mapping[int, str | None], rows: int) -> None:
    """Give all cells of some columns, named by their places, one value each: that of a directory's name."""
    for place, text in values.items():
        want, slot = cells.wants[place], cells.slots[place]
        if text is None:
            clear(cells, [place], rows)
            continue
        spelled = np.frombuffer(text.encode("utf-8", "surrogateescape") or b"\0", np.uint8)
        span = slot if want.kind == TEXT else cells.spelled_slots[place]
        if want.kind == NUMBER:
            number = number_of_text(text)
            if not isinstance(number, (int, float)):
                raise DataError(f"column {want.name}, in the name of the directory: {quoted(text)} is not a number")
            cells.numbers[slot, :rows] = number
        elif want.kind == WORD:
            name = category_text(text) if want.number else text
            cells.words[slot, :rows] = word_from(name.encode("utf-8", "surrogateescape"), want.seed)
        elif want.kind != TEXT:
            raise DataError(f"column {want.name}: the name of a directory is no list")
        if span >= 0:
            cells.starts[span, :rows], cells.lengths[span, :rows] = 0, len(text.encode("utf-8", "surrogateescape"))
            cells.data[span] = spelled


def refuse_absent(names: list[str], there: list[str], optional: frozenset[str]) -> None:
    """DataError if a file lacks a column that is needed."""
    missing = [name for name in names if name not in optional]
    if missing:
        shown = ", ".join(there[:10]) + (", ..." if len(there) > 10 else "")
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise DataError(
            f"there is no column {missing[0]}{more} (there are {shown}); "
            "data.missing_columns: absent reads such files all the same"
        )
