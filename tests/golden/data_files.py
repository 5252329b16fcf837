"""The tiny data files of the golden models: made once from a seed, committed, and never made again.

    two, weighted, classes, dense, wide      LIBSVM text: two classes, row weights, four classes, few and many columns
    clicks                                   VW text with namespaces and importance weights
    table, fruits, events, visits, levels    one kind of record as CSV, TSV, JSON lines, Parquet and Arrow IPC

Of each there is a file to learn from and one to score, `NAME.rows.ENDING`, with features and words nobody has learned.
"""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

LEARNED, SCORED = 300, 24  # rows
CITIES = ("Bern", "Graz", "Köln", "Linz", "Lyon", "Wien")
DEVICES = ("phone", "tablet", "desk")
WORDS = ("cheap", "new", "red", "blue", "old", "fast", "slow", "free")
FRUITS = ("apple", "pear", "plum")

Rng = np.random.Generator
Record = dict[str, Any]


def sparse_line(label: object, places: Sequence[int], values: Sequence[float], weight: str = "") -> str:
    pairs = " ".join(f"{j}:{value:g}" for j, value in zip(places, values, strict=True))
    return f"{label} {weight}{pairs}"


def sparse_rows(rng: Rng, rows: int, labels: Sequence[object], *, width: int, weighted: bool = False) -> list[str]:
    """Five of twelve features a row, told apart by one direction for each class; 13 and beyond mean nothing."""
    truth = np.random.default_rng(1).standard_normal((12, len(labels)))
    lines = []
    for _ in range(rows):
        places = np.sort(rng.choice(width, 5, replace=False))
        values = rng.standard_normal(5).round(3)
        known = places < 12
        scores = values[known] @ truth[places[known]] + 0.4 * rng.standard_normal(len(labels))
        weight = f"{rng.choice([0.25, 1, 2.5])} " if weighted else ""
        lines.append(sparse_line(labels[int(np.argmax(scores))], (places + 1).tolist(), values.tolist(), weight))
    return lines


def ring_rows(rng: Rng, rows: int) -> list[str]:
    """Six columns in every row; the class depends on the distance from the centre, which no linear model sees."""
    points = rng.uniform(-1.0, 1.0, (rows, 6)).round(3)
    inside = (points[:, :3] ** 2).sum(axis=1) + 0.1 * rng.standard_normal(rows) < 0.9
    labels = np.where(inside, 1, -1)
    return [sparse_line(label, range(1, 7), point.tolist()) for label, point in zip(labels, points, strict=True)]


def wide_rows(rng: Rng, rows: int) -> list[str]:
    """Forty of 136 columns a row, so many that maps look for the directions in which rows differ."""
    lines = []
    for _ in range(rows // 2):
        label = int(rng.integers(2))
        places = np.sort(rng.choice(136, 40, replace=False))
        values = np.where(places % 3 == label, rng.integers(3, 9, 40), rng.integers(1, 6, 40))
        lines.append(sparse_line(label, (places + 1).tolist(), values.tolist()))
    return lines


def click_rows(rng: Rng, rows: int) -> list[str]:
    lines = []
    for k in range(rows):
        ad, user = int(rng.integers(6)), int(rng.integers(5))
        price = round(rng.uniform(0.0, 2.0), 2)
        label = 1 if (ad * user) % 4 + 0.7 * price + rng.normal() > 2.0 else -1
        words = " ".join(rng.choice(WORDS, 2, replace=False))
        importance = " 2" if k % 5 == 0 else ""
        lines.append(f"{label}{importance} |a ad{ad} price:{price} |u user{user} |t {words}")
    return lines


def records(rng: Rng, rows: int, fresh: bool) -> list[Record]:
    """Rows of a table: numbers, texts, lists, values that are missing; `fresh` ones have a city nobody knows."""
    found = []
    for k in range(rows):
        age, visits = int(rng.integers(18, 80)), int(rng.geometric(0.05))
        city, device = str(rng.choice(CITIES)), str(rng.choice(DEVICES))
        tags = [str(word) for word in rng.choice(WORDS, int(rng.integers(1, 4)), replace=False)]
        income = round(rng.lognormal(7.0, 0.5), 2)
        strength = (age - 50) / 20 + 2.0 * (city in CITIES[:3]) - 1.5 * (device == "phone") + ("free" in tags)
        strength += 0.5 * rng.normal() - 0.5
        found.append(
            {
                "id": k,
                "age": None if rng.random() < 0.1 else age,
                "income": None if rng.random() < 0.1 else income,
                "visits": visits,
                "city": None if rng.random() < 0.1 else "Oslo" if fresh and k % 7 == 0 else city,
                "device": device,
                "tags": tags,
                "shape": rng.uniform(0.0, 1.0, 3).round(2).tolist(),
                "share": float(rng.choice([0.5, 1.0, 3.0])),
                "strength": strength,
            }
        )
    return found


def level(strength: float) -> int:
    """One of three classes."""
    return int(strength > -0.5) + int(strength > 1.0)


def delimited(rows: list[Record], delimiter: str, label: Callable[[Record], str]) -> str:
    """CSV with a header; the first city stands in quotes, and has the delimiter and quotes in it."""
    names = ("id", "age", "income", "visits", "city", "device", "share")
    lines = [delimiter.join((*names, "note", "label"))]
    for row in rows:
        cells = ["" if row[name] is None else str(row[name]) for name in names]
        lines.append(delimiter.join([*cells, " ".join(row["tags"]), label(row)]))
    first = lines[1].split(delimiter)
    first[4] = f'"Rio{delimiter}""x"""'
    lines[1] = delimiter.join(first)
    return "\n".join(lines) + "\n"


def yes(row: Record) -> str:
    return "yes" if row["strength"] > 0.5 else "no"


def fruit(row: Record) -> str:
    return FRUITS[level(row["strength"])]


def json_lines(rows: list[Record]) -> str:
    """Absent and null values, lists, true and false as labels."""
    lines = []
    for row in rows:
        kept = {name: value for name, value in row.items() if name not in ("strength", "id") and value is not None}
        kept = {**kept, "income": row["income"], "clicked": row["strength"] > 0.5}
        lines.append(json.dumps(kept, ensure_ascii=False))
    return "\n".join(lines) + "\n"


def columns_of(rows: list[Record]) -> Any:
    import pyarrow as pa

    columns = {name: [row[name] for row in rows] for name in rows[0] if name != "strength"}
    table = pa.table(columns).append_column("level", pa.array([level(row["strength"]) + 1 for row in rows], pa.int8()))
    table = table.set_column(table.schema.get_field_index("device"), "device", table["device"].dictionary_encode())
    shapes = pa.array(columns["shape"], pa.list_(pa.float32(), 3))
    return table.set_column(table.schema.get_field_index("shape"), "shape", shapes)


def write_parquet(path: Path, rows: list[Record]) -> None:
    import pyarrow.parquet as pq

    pq.write_table(columns_of(rows), path, row_group_size=100, compression="zstd")


def write_arrow(path: Path, rows: list[Record]) -> None:
    import pyarrow as pa

    table = columns_of(rows)
    with pa.ipc.new_file(path, table.schema) as out:
        out.write_table(table, max_chunksize=128)


def texts(ending: str, rows: int, fresh: bool) -> dict[str, Callable[[Rng], str]]:
    """The files of text by name, and what makes them."""
    width = 15 if fresh else 12
    return {
        f"two{ending}.svm": lambda rng: joined(sparse_rows(rng, rows, (-1, 1), width=width)),
        f"weighted{ending}.svm": lambda rng: joined(sparse_rows(rng, rows, (1, 2), width=12, weighted=True)),
        f"classes{ending}.svm": lambda rng: joined(sparse_rows(rng, rows, (1, 2, 3, 5), width=width)),
        f"dense{ending}.svm": lambda rng: joined(ring_rows(rng, rows)),
        f"wide{ending}.svm": lambda rng: joined(wide_rows(rng, rows)),
        f"clicks{ending}.vw": lambda rng: joined(click_rows(rng, rows)),
        f"table{ending}.csv": lambda rng: delimited(records(rng, rows, fresh), ",", yes),
        f"fruits{ending}.tsv": lambda rng: delimited(records(rng, rows, fresh), "\t", fruit),
        f"events{ending}.jsonl": lambda rng: json_lines(records(rng, rows, fresh)),
    }


def joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def write_data(home: Path) -> None:
    """All files that are not there yet."""
    home.mkdir(exist_ok=True)
    for seed, (ending, rows) in enumerate({"": LEARNED, ".rows": SCORED}.items()):
        fresh = bool(ending)
        for number, (name, made) in enumerate(texts(ending, rows, fresh).items()):
            if not (home / name).exists():
                (home / name).write_bytes(made(np.random.default_rng([seed, number])).encode())
        tables = {f"visits{ending}.parquet": write_parquet, f"levels{ending}.arrow": write_arrow}
        for number, (name, write) in enumerate(tables.items(), start=100):
            if not (home / name).exists():
                write(home / name, records(np.random.default_rng([seed, number]), rows, fresh))
    packed = home / "two.svm.gz"
    if not packed.exists():
        packed.write_bytes(gzip.compress((home / "two.svm").read_bytes(), mtime=0))
