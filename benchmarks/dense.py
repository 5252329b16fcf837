"""A dense Parquet table for rates: float32 columns f0..f29, a label of 1 or -1, linear truth with noise.

It is written as pyarrow writes by default, row groups of 2^20 rows included. That matters: no two values are equal, and
in smaller groups pyarrow would put them all into dictionaries, which take twice as long to read. A short table is the
beginning of a long one.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = 30
NOISE = 0.5  # against a score of about 1
GROUP_ROWS = 1 << 20


def dense_file(folder: Path, rows: int, seed: int = 0) -> Path:
    """The table with that many rows, written when missing. Its name appears once it is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"dense-{rows}-{seed}.parquet"
    if target.exists():
        return target
    part = target.with_name(target.name + ".part")
    names = [f"f{column}" for column in range(COLUMNS)]
    schema = pa.schema([("label", pa.int8()), *((name, pa.float32()) for name in names)])
    with pq.ParquetWriter(part, schema) as writer:
        for first in range(0, rows, GROUP_ROWS):
            columns = _group(first // GROUP_ROWS, min(GROUP_ROWS, rows - first), seed)
            writer.write_table(pa.Table.from_arrays([pa.array(column) for column in columns], schema=schema))
    part.replace(target)
    return target


def _group(number: int, rows: int, seed: int) -> list[np.ndarray]:
    """Labels, then the columns. Values and noise have generators of their own, so that fewer rows are the same rows."""
    truth = np.random.default_rng(1234).standard_normal(COLUMNS, np.float32) / np.sqrt(np.float32(COLUMNS))
    values = np.random.default_rng((seed, number, 0)).standard_normal((rows, COLUMNS), np.float32)
    noise = np.random.default_rng((seed, number, 1)).standard_normal(rows, np.float32)
    labels = np.where(values @ truth + np.float32(NOISE) * noise > 0, 1, -1).astype(np.int8)
    return [labels, *np.ascontiguousarray(values.T)]
