"""How fast maps are applied, on all cores, beside the matrix products in them by BLAS on all cores, and nothing else.

Rows are dense, in memory, and become mapped rows in pieces, as on their way to a solver. BLAS makes products of
the same shapes: no nearness, no waves, no copies.
"""

import time
from collections.abc import Callable
from functools import partial

from bench import Bench, Check, Section, ratio
from process import interleave

ROWS = 16_384
SHAPES = (("nystroem", 54, 1000), ("nystroem", 64, 2000), ("prototypes", 54, 4000), ("fourier", 54, 4096))
SHARE = 0.5  # of what BLAS gives


def map_rates(bench: Bench) -> Section:
    import numpy as np
    from streamsvm.batch import Batch
    from streamsvm.features.maps.make import make_map
    from streamsvm.features.maps.wish import Wish
    from streamsvm.pool import available_cores

    section = Section(
        "map_rates",
        "maps on all cores, and the products in them by BLAS alone",
        ["map", "columns", "size", "ours, best s", "worst/best", "BLAS, best s", "worst/best", "BLAS / ours"],
    )
    rows = ROWS // 8 if bench.quick else ROWS
    jobs: dict[str, Callable[[], float]] = {}
    for kind, columns, size in SHAPES:
        points = np.random.default_rng(0).normal(size=(rows, columns)).astype(np.float32)
        batch = Batch(
            np.arange(rows + 1, dtype=np.int64) * columns,
            np.tile(np.arange(columns, dtype=np.uint32), rows),
            points.reshape(-1),
            np.zeros(rows, np.float32),
            np.ones(rows, np.float32),
        )
        made = make_map(Wish(kind, size), batch, rows, 2)
        matrices = [np.ones((columns, size // 2 if kind == "fourier" else size), np.float32)]
        if kind == "nystroem":
            matrices.append(np.ones((size, size), np.float32))

        def ours(made: object = made, batch: Batch = batch) -> float:
            started = time.perf_counter()
            for _ in made.pieces(batch, available_cores()):  # type: ignore[attr-defined]
                pass
            return time.perf_counter() - started

        def blas(points: object = points, matrices: list[object] = matrices) -> float:
            started = time.perf_counter()
            for matrix in matrices:
                points = points @ matrix  # type: ignore[operator]
            return time.perf_counter() - started

        name = f"{kind}, {columns} columns, {size}"
        jobs[f"{name}: ours"], jobs[f"{name}: BLAS"] = ours, blas
    for job in jobs.values():
        job()
    timings = interleave({name: partial(job) for name, job in jobs.items()}, max(bench.repeat, 5), bench.say)
    section.raw = {name: timing.seconds for name, timing in timings.items()}
    for kind, columns, size in SHAPES:
        name = f"{kind}, {columns} columns, {size}"
        own, theirs = timings[f"{name}: ours"], timings[f"{name}: BLAS"]
        share = ratio(theirs.best, own.best)
        section.rows.append([kind, columns, size, own.best, own.spread, theirs.best, theirs.spread, share])
        section.checks.append(Check(f"{name}: of BLAS' speed", share or float("nan"), SHARE))
    return section
