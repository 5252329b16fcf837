"""Data frames as rows: the cells of their columns, by the recipe that a model keeps."""

from typing import Any

import numpy as np

from streamsvm.batch import Batch, concatenate
from streamsvm.errors import DataError
from streamsvm.tables import TableDialect, TableRows


class FrameReader:
    """Makes rows of frames; labels are elsewhere, so rows have none."""

    def __init__(self, dialect: TableDialect) -> None:
        from streamsvm.io.arrow_cells import ArrowCells

        self._table = TableRows(dialect._replace(labelled=False))
        self._cells = ArrowCells(self._table.wants, self._table.optional)

    def rows(self, records: list[Any]) -> Batch:
        """All rows of the record batches; DataError names the first one that will not do."""
        room, parts, done = self._table.room(), [], 0
        for record in records:
            wrong = self._cells.fill(record, room.cells)
            parsed = self._table.finish(room, record.num_rows, [], 0, wrong)
            if parsed.faults:
                raise DataError(f"row {done + parsed.faults[0].line + 1} of the frame: {parsed.faults[0].message}")
            parts.append(parsed.batch.copy())
            done += record.num_rows
        whole = parts[0] if len(parts) == 1 else concatenate(parts)
        return whole._replace(weights=np.ones(whole.rows, np.float32))
