#!/usr/bin/env python3
"""Write a Criteo-like table of clicks whose truth is known, in every format that is measured.

usage: python benchmarks/clicks.py ROWS OUT_DIR [--seed 0] [--formats parquet,tsv,vw,jsonl,dense]

    clicks-ROWS-SEED.train.{parquet,tsv,vw,jsonl}     rows 0 .. ROWS
    clicks-ROWS-SEED.test.{parquet,tsv,vw,jsonl}      the tenth as many rows that follow
    clicks-ROWS-SEED.json                             what can be attained: log loss and AUC of the true probabilities
    dense-ROWS-SEED.parquet                           30 float columns and a label (`dense.py`); only if asked for

What the rows are drawn from is in `click_rows.py`, what the text looks like in `click_text.py`. Parquet is what pyarrow
writes by default, with row groups of 100,000 rows. Neither threads nor the choice of formats change a byte.
"""

import argparse
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from click_rows import CATEGORIES, NUMBERS, Rows, draw_rows
from click_text import FORMATS, hex_text, text_of
from dense import dense_file
from scoring import auc, constant_log_loss, log_loss

ALL_FORMATS = ("parquet", *FORMATS)
GROUP_ROWS = 100_000
MOST_THREADS = 4  # a block with its texts takes 200 MB
COLUMNS = ("label", *NUMBERS, *CATEGORIES)
SCHEMA = pa.schema(
    [("label", pa.int8()), *((name, pa.int32()) for name in NUMBERS), *((name, pa.string()) for name in CATEGORIES)]
)


class Clicks(NamedTuple):
    """A table on disk, to learn from and to test on."""

    folder: Path
    name: str
    rows: int  # to learn from
    truth: dict[str, Any]  # for "train" and "test": rows, clicks, and what the true probabilities attain

    def path(self, part: str, kind: str) -> Path:
        return self.folder / f"{self.name}.{part}.{kind}"


def clicks(folder: Path, rows: int, seed: int = 0, formats: Iterable[str] = ALL_FORMATS) -> Clicks:
    """The table with that many rows; what is missing is written."""
    folder.mkdir(parents=True, exist_ok=True)
    table = Clicks(folder, f"clicks-{rows}-{seed}", rows, {})
    note = folder / f"{table.name}.json"
    if note.exists():
        table.truth.update(json.loads(note.read_text()))
    for part, first, count in (("train", 0, rows), ("test", rows, max(rows // 10, 1))):
        paths = [table.path(part, kind) for kind in formats]
        missing = [path for path in paths if not path.exists()]
        if missing or part not in table.truth:
            table.truth[part] = write_part(first, count, seed, missing)
    part_note = note.with_name(note.name + ".part")
    part_note.write_text(json.dumps(table.truth, indent=1) + "\n")
    part_note.replace(note)
    return table


def write_part(first: int, rows: int, seed: int, targets: list[Path]) -> dict[str, float]:
    """Rows from `first` on, to a file of each kind. A name appears once its file is complete."""
    kinds = [path.suffix[1:] for path in targets]
    parts = [path.with_name(path.name + ".part") for path in targets]
    starts = range(first, first + rows, GROUP_ROWS)
    jobs = [(start, min(GROUP_ROWS, first + rows - start), seed, kinds) for start in starts]
    scores, labels = [], []
    with ExitStack() as stack:
        writers = [stack.enter_context(_opened(part, kind)) for part, kind in zip(parts, kinds, strict=True)]
        for drawn, contents in in_order(_block, jobs):
            scores.append(drawn.scores)
            labels.append(drawn.labels)
            for writer, content in zip(writers, contents, strict=True):
                _write(writer, content)
    for part, target in zip(parts, targets, strict=True):
        part.replace(target)
    return attained(np.concatenate(scores), np.concatenate(labels))


def attained(scores: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """What the truth itself attains on the labels drawn from it; nobody can expect to do better."""
    return {
        "rows": len(labels),
        "clicks": int(labels.sum()),
        "log_loss": log_loss(scores, labels),
        "auc": auc(scores, labels),
        "constant_log_loss": constant_log_loss(labels),
    }


def in_order(work: Callable[..., Any], jobs: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    """The results of all jobs in their order, made by threads that run a little ahead."""
    threads = min(os.cpu_count() or 1, MOST_THREADS)
    pending: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for job in jobs:
            pending.append(pool.submit(work, *job))
            if len(pending) > threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _block(first: int, rows: int, seed: int, kinds: list[str]) -> tuple[Rows, list[Any]]:
    """Rows, and what each file is to get of them."""
    drawn = draw_rows(first, rows, seed)
    return drawn, [arrow_table(drawn) if kind == "parquet" else text_of(drawn, FORMATS[kind]) for kind in kinds]


def arrow_table(rows: Rows) -> pa.Table:
    counts = [pa.array(column, mask=column < 0) for column in rows.counts]
    return pa.Table.from_arrays([pa.array(rows.labels), *counts, *map(_strings, rows.values)], schema=SCHEMA)


def _strings(values: np.ndarray) -> pa.Array:
    """A column of eight letters each; those of a missing value are there, and marked as not valid."""
    offsets = np.arange(0, 8 * values.size + 1, 8, dtype=np.int32)
    valid = None if values.all() else pa.py_buffer(np.packbits(values != 0, bitorder="little"))
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(hex_text(values))]
    return pa.Array.from_buffers(pa.string(), values.size, buffers)


def _opened(path: Path, kind: str) -> Any:
    return pq.ParquetWriter(path, SCHEMA) if kind == "parquet" else open(path, "wb")


def _write(writer: Any, content: Any) -> None:
    if isinstance(content, pa.Table):
        writer.write_table(content)
    else:
        writer.write(content.data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int)
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--formats", default=",".join(ALL_FORMATS), help="any of these, and dense (default %(default)s)"
    )
    args = parser.parse_args()
    formats = args.formats.split(",")
    if unknown := set(formats) - {*ALL_FORMATS, "dense"}:
        parser.error(f"no such format: {', '.join(sorted(unknown))}; there are {', '.join(ALL_FORMATS)}, dense")
    started = time.perf_counter()
    if "dense" in formats:
        formats.remove("dense")
        print(dense_file(args.out, args.rows, args.seed))
    if formats:
        table = clicks(args.out, args.rows, args.seed, formats)
        print(json.dumps(table.truth, indent=1))
    print(f"{time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
