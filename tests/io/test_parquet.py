"""The same table in every kind of Parquet and Arrow file: bit for bit the rows of the slow twin, or one clear error."""

import io
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from libsvm_twin import Dialect, collect, rows_of
from libsvm_twin import twin as text_twin
from table_twin import same_as_twin, stream, twin

from streamsvm.errors import DataError, SourceError, StreamSvmError
from streamsvm.features.recipe import Column, Recipe
from streamsvm.io.arrow_table import arrow_pieces
from streamsvm.io.parquet import fitting_rows, parquet_pieces
from streamsvm.io.source import BEGINNING, Source
from streamsvm.readers import MOST_ROWS, make_reader
from streamsvm.stream import Tally
from streamsvm.tables import TableDialect

RECIPE = Recipe(
    (
        Column("x", "number"),
        Column("n", "log1p"),
        Column("v", "vector", width=3),
        Column("k", "word", number=True),
        Column("s", "word"),
        Column("t", "text"),
        Column("tags", "words"),
        Column("age", "bucket", edges=(18.0, 30.0)),
        Column("user.id", "word", number=True),
    ),
    label="y",
    label_classes=("no", "yes"),
    weight="w",
    hash_bits=18,
    interactions=(("s", "k"), ("x", "tags")),
    ngrams=2,
)
SCHEMA = pa.schema(
    {
        "y": pa.string(), "w": pa.float32(), "x": pa.float64(), "n": pa.int32(), "v": pa.list_(pa.float32()),
        "k": pa.int64(), "s": pa.string(), "t": pa.string(), "tags": pa.list_(pa.string()), "age": pa.int8(),
        "user": pa.struct({"id": pa.int64(), "name": pa.string()}), "unused": pa.timestamp("ns"),
    }
)  # fmt: skip


def made_rows(count: int, seed: int = 0) -> list[dict]:
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        row = {
            "y": rng.choice(["yes", "no"]),
            "w": rng.choice([1.0, 0.5, 0.0]),
            "x": rng.choice([None, 0.0, -0.0, float("nan"), rng.gauss(0, 1), 1e-40, -1.5e38]),
            "n": rng.choice([None, 0, 7, -7, 2**31 - 1]),
            "v": rng.choice([None, [], [0.0, 1.5, -2.0], [1.0, 2.0, 3.0]]),
            "k": rng.choice([None, 0, -5, 7, 2**62]),
            "s": rng.choice([None, "", "a", "b", "é", "long " * 9]),
            "t": rng.choice([None, "", "Good value, GOOD price", "über 7_x", "..."]),
            "tags": rng.choice([None, [], ["p"], ["q", None, "", "p"], ["p", "p"]]),
            "age": rng.choice([None, 17, 18, 29, 30, 99]),
            "user.id": rng.choice([None, 1, 2**40]),
        }
        rows.append(row)
    return rows


def table_of(rows: list[dict], schema: pa.Schema = SCHEMA) -> pa.Table:
    nested = [
        {**row, "user": None if row.get("user.id") is None else {"id": row["user.id"], "name": "u"}} for row in rows
    ]
    return pa.Table.from_pylist([{k: v for k, v in row.items() if k in schema.names} for row in nested], schema)


ROWS = made_rows(400)
TABLE = table_of(ROWS)


# Every way to write it.

CODECS = [
    codec
    for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4")
    if codec == "none" or pa.Codec.is_available(codec)
]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_codecs_and_pages(tmp_path, codec, version):
    path = str(tmp_path / "a.parquet")
    for dictionary in (True, False):
        pq.write_table(
            TABLE, path, compression=codec, data_page_version=version, use_dictionary=dictionary, row_group_size=150,
            data_page_size=100, write_batch_size=7,
        )  # fmt: skip
        same_as_twin(path, RECIPE, "parquet", ROWS)


@pytest.mark.parametrize("group", [1, 7, 64, 399, 10**6])
def test_row_groups(tmp_path, group):
    path = str(tmp_path / "a.parquet")
    pq.write_table(TABLE, path, row_group_size=group)
    for threads in (1, 2, 4):
        same_as_twin(path, RECIPE, "parquet", ROWS, threads=threads)


@pytest.mark.parametrize(
    "options", [{"use_byte_stream_split": ["x", "w"], "use_dictionary": False}, {"dictionary_pagesize_limit": 10}]
    + [{"use_dictionary": False, "column_encoding": {"s": "DELTA_BYTE_ARRAY", "k": "DELTA_BINARY_PACKED"}}]
    + [{"version": "1.0"}, {"flavor": "spark"}, {"store_schema": False}],
    ids=lambda options: next(iter(options)),
)  # fmt: skip
def test_encodings(tmp_path, options):
    path = str(tmp_path / "a.parquet")
    pq.write_table(TABLE, path, **options)
    same_as_twin(path, RECIPE, "parquet", ROWS)


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
@pytest.mark.parametrize("size", [1, 33, 10**6])
def test_arrow_files_and_streams(tmp_path, codec, size):
    path = str(tmp_path / "a.arrow")
    options = pa.ipc.IpcWriteOptions(compression=codec)
    for opened in (pa.ipc.new_file, pa.ipc.new_stream):
        with opened(path, SCHEMA, options=options) as writer:
            writer.write_table(TABLE, size)
        same_as_twin(path, RECIPE, "arrow", ROWS)


def test_feather(tmp_path):
    path = str(tmp_path / "a.feather")
    for codec in ("uncompressed", "lz4", "zstd"):
        feather.write_feather(TABLE, path, compression=codec, chunksize=50)
        same_as_twin(path, RECIPE, "arrow", ROWS)


WIDER = {
    "large": {
        "s": pa.large_string(),
        "t": pa.large_string(),
        "tags": pa.large_list(pa.large_string()),
        "k": pa.int64(),
    },
    "views": {"s": pa.string_view(), "t": pa.string_view(), "y": pa.string_view()},
    "binary": {"s": pa.binary(), "t": pa.large_binary(), "y": pa.binary(), "tags": pa.list_(pa.binary())},
    "dictionaries": {"s": pa.dictionary(pa.int8(), pa.string()), "y": pa.dictionary(pa.int32(), pa.string())},
    "numbers": {"n": pa.int64(), "age": pa.float16(), "w": pa.float64(), "v": pa.list_(pa.float64())},
    "unsigned": {"w": pa.float16()},
}


@pytest.mark.parametrize("name", WIDER)
def test_other_types_of_the_same_values(tmp_path, name):
    schema = pa.schema([(field.name, WIDER[name].get(field.name, field.type)) for field in SCHEMA])
    table = table_of(ROWS, schema)
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), schema) as writer:
        writer.write_table(table, 90)
    same_as_twin(str(tmp_path / "a.arrow"), RECIPE, "arrow", ROWS)
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=90)
    same_as_twin(str(tmp_path / "a.parquet"), RECIPE, "parquet", ROWS)


def test_a_vector_of_fixed_size(tmp_path):
    recipe = Recipe((Column("v", "vector", width=3),), label="y")
    rows = [{"y": k % 2, "v": [None, [1.0, 2.0, 3.0], [0.0, -1.0, 0.5]][k % 3]} for k in range(50)]
    schema = pa.schema({"y": pa.int8(), "v": pa.list_(pa.float32(), 3)})
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=20)
    same_as_twin(path, recipe, "parquet", rows)


# Other writers.

PLAIN = Recipe(
    (Column("x", "number"), Column("k", "word", number=True), Column("s", "word"), Column("b", "number")),
    label="y",
    hash_bits=16,
)
PLAIN_ROWS = [
    {"y": k % 2, "x": k / 7, "k": k % 5, "s": ["a", "é", "c d"][k % 3], "b": k % 4 == 0} for k in range(200)
]  # fmt: skip


def test_pandas(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(PLAIN_ROWS)
    frame["s"] = frame["s"].astype("category")
    frame.to_parquet(tmp_path / "a.parquet", index=False)
    same_as_twin(str(tmp_path / "a.parquet"), PLAIN, "parquet", PLAIN_ROWS)
    frame.to_feather(tmp_path / "a.feather")
    same_as_twin(str(tmp_path / "a.feather"), PLAIN, "arrow", PLAIN_ROWS)
    frame.to_csv(tmp_path / "a.csv", index=False)
    same_as_twin(str(tmp_path / "a.csv"), PLAIN, "csv", PLAIN_ROWS)


def test_polars(tmp_path):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(PLAIN_ROWS)
    for name, written in {
        "none": frame,
        "dictionary": frame.with_columns(polars.col("s").cast(polars.Categorical)),
    }.items():
        written.write_parquet(tmp_path / f"{name}.parquet", row_group_size=64)
        same_as_twin(str(tmp_path / f"{name}.parquet"), PLAIN, "parquet", PLAIN_ROWS)
        written.write_ipc(tmp_path / f"{name}.arrow", compression="zstd")
        same_as_twin(str(tmp_path / f"{name}.arrow"), PLAIN, "arrow", PLAIN_ROWS)
    frame.write_csv(tmp_path / "a.csv")
    same_as_twin(str(tmp_path / "a.csv"), PLAIN, "csv", PLAIN_ROWS)


def test_duckdb(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    pq.write_table(pa.Table.from_pylist(PLAIN_ROWS), tmp_path / "in.parquet")
    for codec in ("snappy", "zstd", "gzip"):
        path = tmp_path / f"{codec}.parquet"
        duckdb.sql(f"COPY (FROM '{tmp_path}/in.parquet') TO '{path}' (FORMAT parquet, COMPRESSION {codec})")
        same_as_twin(str(path), PLAIN, "parquet", PLAIN_ROWS)
    duckdb.sql(f"COPY (FROM '{tmp_path}/in.parquet') TO '{tmp_path}/a.csv'")
    same_as_twin(str(tmp_path / "a.csv"), PLAIN, "csv", PLAIN_ROWS)


# Sparse columns.


def sparse_text(rows) -> bytes:
    lines = [
        " ".join(
            [
                f"{row['label']}",
                f"{row['weight']!r}",
                *(f"{i}:{v!r}" for i, v in zip(row["indices"], row["values"], strict=True)),
            ]
        )
        for row in rows
    ]
    return ("\n".join(lines) + "\n").encode()


def sparse_rows(count: int, width: int, most: int = 90) -> list[dict]:
    rng = random.Random(3)
    rows = []
    for k in range(count):
        indices = [rng.randrange(width) for _ in range(rng.randrange(most))]
        values = [rng.choice([0.0, 1.0, -0.5, rng.gauss(0, 1)]) for _ in indices]
        rows.append({"label": k % 2, "weight": rng.choice([1.0, 2.5]), "indices": indices, "values": values})
    return rows


SPARSE = pa.schema(
    {"label": pa.int8(), "weight": pa.float64(), "indices": pa.list_(pa.uint32()), "values": pa.list_(pa.float64())}
)


@pytest.mark.parametrize("bits", [None, 1, 5, 31])
@pytest.mark.parametrize("width", [40, 2**32])
def test_sparse_columns_are_libsvm_text(tmp_path, bits, width):
    rows = sparse_rows(120, width)
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.Table.from_pylist(rows, SPARSE), path, row_group_size=50)
    recipe = Recipe((Column("indices", "sparse", values="values"),), label="label", weight="weight", hash_bits=bits)
    mask = (1 << bits) - 1 if bits else 2**32 - 1
    assert collect(stream(path, recipe, "parquet")) == text_twin(sparse_text(rows), Dialect(mask=mask))[0]
    same_as_twin(path, recipe, "parquet", rows)


def test_sparse_columns_within_a_dimension(tmp_path):
    rows = [{"label": 1, "weight": 1.0, "indices": [k, 3], "values": [1.0, 2.0]} for k in (5, 9, 10, 11, 2**32 - 1)]
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.Table.from_pylist(rows, SPARSE), path)
    recipe = Recipe((Column("indices", "sparse", values="values"),), label="label")
    with pytest.raises(
        DataError, match=r"row group 0, row 3: an index is too large for this model \(features.dim: 10\)"
    ):
        collect(stream(path, recipe, "parquet", limit=10))
    found = stream(path, recipe, "parquet", limit=10, skip=9)
    assert (collect(found), found.tally.bad_rows) == (twin(rows, recipe, limit=10)[0], 3)


def test_sparse_columns_that_are_wrong(tmp_path):
    rows = [
        {"label": 1, "indices": [1, 2], "values": [1.0]},
        {"label": 1, "indices": [1], "values": [1.0, 2.0]},
        {"label": 1, "indices": [1], "values": None},
        {"label": 1, "indices": None, "values": None},
        {"label": 1, "indices": [4], "values": [None]},
        {"label": 1, "indices": [4], "values": [float("inf")]},
        {"label": 1, "indices": [4, 4], "values": [3e38, 3e38]},
        {"label": 1, "indices": [4, 4], "values": [3e38, -3e38]},
        {"label": 0, "indices": [None], "values": [1.0]},
        {"label": 0, "indices": [7], "values": [-0.0]},
    ]
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.Table.from_pylist(rows, SPARSE), path)
    recipe = Recipe((Column("indices", "sparse", values="values"),), label="label")
    assert twin(rows, recipe)[1] == [0, 1, 2, 4, 5, 6, 8]
    same_as_twin(path, recipe, "parquet", rows)
    found = stream(path, recipe, "parquet", skip=9)
    collect(found)
    assert [fault.split(": ", 1)[1] for fault in found.tally.faults] == [
        "row group 0, row 1: column values: the list has not as many numbers as indices",
        "row group 0, row 2: column values: the list has not as many numbers as indices",
        "row group 0, row 3: column values: the list has not as many numbers as indices",
        "row group 0, row 5: column values: an item of the list is missing",
        "row group 0, row 6: column values: the number does not fit in single precision (largest is 3.4e38)",
    ]


def test_sparse_columns_without_values_and_beside_others(tmp_path):
    rows = [{"label": k % 2, "indices": [k, 3, 3], "values": [1.0, -2.0, 0.0], "s": "ab"[k % 2]} for k in range(30)]
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.Table.from_pylist(rows), path)
    alone = Recipe((Column("indices", "sparse"),), label="label")
    same_as_twin(path, alone, "parquet", rows)
    beside = Recipe((Column("s", "word"), Column("indices", "sparse", values="values")), label="label", hash_bits=12)
    same_as_twin(path, beside, "parquet", rows)
    crossed = Recipe(beside.columns, label="label", hash_bits=12, interactions=(("s", "indices"),))
    same_as_twin(path, crossed, "parquet", rows)


# Files that differ.

TWO = Recipe((Column("x", "number"), Column("s", "word")), label="y", hash_bits=10)


def test_schema_drift(tmp_path):
    wholes = pa.table({"y": [1, 0], "x": [1, 2], "s": ["a", "b"]})
    reals = pa.table({"s": pa.array(["a", "b"]).dictionary_encode(), "more": [1, 2], "x": [1.5, 2.0], "y": [1.0, 0.0]})
    texts = pa.table({"y": ["1", "0"], "x": ["1.5", "NA"], "s": [1, 2]})
    for k, table in enumerate([wholes, reals, texts]):
        pq.write_table(table, tmp_path / f"{k}.parquet")
    rows = [dict(row) for table in (wholes, reals, texts) for row in table.to_pylist()]
    same_as_twin(str(tmp_path / "*.parquet"), TWO, "parquet", rows)


def test_a_file_without_a_column(tmp_path):
    pq.write_table(pa.table({"y": [1], "x": [1.5], "s": ["a"]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"y": [1], "x": [1.5]}), tmp_path / "1.parquet")
    path = str(tmp_path)
    with pytest.raises(DataError, match=r"1\.parquet: row group 0, row 1: there is no column s \(there are x, y\)"):
        collect(stream(path, TWO, "parquet"))
    same_as_twin(path, TWO, "parquet", [{"y": 1, "x": 1.5, "s": "a"}, {"y": 1, "x": 1.5}], absent=True)
    lists = Recipe(
        (Column("v", "vector", width=2), Column("tags", "words"), Column("t", "text")), label="y", hash_bits=4
    )
    same_as_twin(path, lists, "parquet", [{"y": 1}, {"y": 1}], absent=True)
    pq.write_table(pa.table({"x": [1.5], "s": ["a"]}), tmp_path / "2.parquet")
    with pytest.raises(DataError, match=r"2\.parquet: row group 0, row 1: there is no column y"):
        collect(stream(path, TWO, "parquet", absent=True))
    unlabelled = collect(stream(str(tmp_path / "2.parquet"), TWO, "parquet", labelled=False))
    assert unlabelled == twin([{"x": 1.5, "s": "a"}], TWO, labelled=False)[0]


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_texts_where_numbers_were(tmp_path, format):
    table = pa.table({"y": [1] * 6, "x": ["1", "2", "3", "4", "oops", "6"], "s": ["a"] * 6})
    path = str(tmp_path / f"a.{format}")
    if format == "parquet":
        pq.write_table(table, path, row_group_size=3)
        place = "row group 1, row 5"
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, 2)
        place = "record batch 2, row 5"
    with pytest.raises(DataError) as caught:
        collect(stream(path, TWO, format))
    assert str(caught.value) == f"{path}: {place}: column x: 'oops' is not a number"
    found = stream(path, TWO, format, skip=1)
    assert len(collect(found)) == 5 and found.tally.bad_rows == 1


def test_times_are_refused(tmp_path):
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"y": [1], "x": pa.array([0], pa.timestamp("ms")), "s": ["a"]}), path)
    with pytest.raises(
        DataError, match=r"a\.parquet: row group 0, row 1: column x: timestamp\[ms\] is no number; name it"
    ):
        collect(stream(path, TWO, "parquet"))


def test_two_columns_of_one_name(tmp_path):
    table = pa.Table.from_arrays(
        [pa.array([1]), pa.array([1.0]), pa.array([2.0]), pa.array(["a"])], ["y", "x", "x", "s"]
    )
    pq.write_table(table, tmp_path / "a.parquet")
    feather.write_feather(pa.table({"y": [1], "x": [1.0], "s": ["a"]}), str(tmp_path / "b.arrow"))
    with pa.ipc.new_file(str(tmp_path / "b.arrow"), table.schema) as writer:
        writer.write_table(table)
    for name, format in (("a.parquet", "parquet"), ("b.arrow", "arrow")):
        with pytest.raises(DataError, match=f"{name}: two columns are called x"):
            collect(stream(str(tmp_path / name), TWO, format))


def test_infinities(tmp_path):
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"y": [1, 1, 1], "x": [1.0, float("-inf"), 1e39], "s": ["a"] * 3}), path)
    found = stream(path, TWO, "parquet", skip=5)
    assert len(collect(found)) == 1
    assert found.tally.faults[1].endswith(
        "row 3: column x: the number does not fit in single precision (largest is 3.4e38)"
    )


# Nothing, and damage.


@pytest.mark.parametrize("groups", [0, 1, 3])
def test_no_rows(tmp_path, groups):
    path = str(tmp_path / "a.parquet")
    with pq.ParquetWriter(path, SCHEMA) as writer:
        for _ in range(groups):
            writer.write_table(SCHEMA.empty_table())
    assert collect(stream(path, RECIPE, "parquet")) == []
    path = str(tmp_path / "a.arrow")
    with pa.ipc.new_stream(path, SCHEMA) as writer:
        for _ in range(groups):
            writer.write_batch(
                SCHEMA.empty_table().to_batches()[0]
                if SCHEMA.empty_table().to_batches()
                else pa.RecordBatch.from_pylist([], SCHEMA)
            )
    assert collect(stream(path, RECIPE, "arrow")) == []


@pytest.mark.parametrize("format", ["parquet", "arrow"])
@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"ARROW1\0\0", b"y,x,s\n1,2,3\n", b"PAR1" + bytes(50) + b"PAR1", b"\xff" * 40]
)
def test_other_files(put, format, content):
    path = put(f"a.{format}", content)
    with pytest.raises(SourceError, match=rf"a\.{format}: cannot read this (Parquet|Arrow) file: ") as caught:
        collect(stream(path, TWO, format))
    assert "\n" not in str(caught.value)


def written(format: str) -> bytes:
    out = io.BytesIO()
    if format == "parquet":
        pq.write_table(TABLE.slice(0, 60), out, row_group_size=25)
    else:
        new = pa.ipc.new_file if format == "arrow" else pa.ipc.new_stream
        with new(out, SCHEMA) as writer:
            writer.write_table(TABLE.slice(0, 60), 25)
    return out.getvalue()


@pytest.mark.parametrize("format", ["parquet", "arrow", "stream"])
def test_truncated_files(put, format):
    content = written(format)
    expected = twin(ROWS[:60], RECIPE)[0]
    for size in range(0, len(content), max(1, len(content) // 60)):
        path = put("a.bin", content[:size])
        found = []
        try:
            for batch in stream(path, RECIPE, "parquet" if format == "parquet" else "arrow"):
                found += rows_of(batch)
        except StreamSvmError as error:
            assert str(error).startswith(f"{path}: ") and "\n" not in str(error)
        else:
            assert format == "stream"  # which may end after any batch
        assert found == expected[: len(found)]


FUZZ = """
import sys, random
sys.path[:0] = sys.argv[3:]
from test_parquet import RECIPE, written, stream, rows_of, StreamSvmError
from streamsvm import dialects
from streamsvm.io.source import Source
from streamsvm.tables import CsvOptions
format, path = sys.argv[1:3]
content = written(format)
SPARED = 8 + int.from_bytes(content[-8:-4], "little") if format == "parquet" else 8
rng = random.Random(5)
counts = [0, 0]
for trial in range(250):
    broken = bytearray(content)
    for _ in range(rng.choice([1, 1, 4])):  # of the footer of a Parquet file only the end: there, Arrow itself gives up
        place = rng.randrange(len(broken) + 8 - SPARED)
        broken[place - 8] = rng.randrange(256)
    open(path, "wb").write(broken)
    kind = "parquet" if format == "parquet" else "arrow"
    try:
        dialects.looked_at(Source([path]), kind, CsvOptions())
        for batch in stream(path, RECIPE, kind, skip=10**6, threads=1):
            assert (batch.indices[:batch.features] < RECIPE.width).all()
        counts[0] += 1
    except StreamSvmError as error:
        assert path in str(error) and "\\n" not in str(error), error
        counts[1] += 1
print(*counts)
"""


@pytest.mark.full
@pytest.mark.parametrize("format", ["parquet", "arrow", "stream"])
def test_damaged_files(tmp_path, format):
    """In a process of its own: what a byte can do to a file of a format that trusts itself."""
    here = [str(folder) for folder in list(Path(__file__).parents)[:2]]
    command = [sys.executable, "-c", FUZZ, format, str(tmp_path / "a.bin"), *here]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert all(int(count) > 0 for count in done.stdout.split())


# Going on, threads, memory.


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_going_on_after_any_batch(tmp_path, format, monkeypatch):
    """Inside a row group, at its end, and at the end of a file."""
    monkeypatch.setattr("streamsvm.readers.MOST_ROWS", 31)
    for k in range(2):
        path = str(tmp_path / f"{k}.{format}")
        if format == "parquet":
            pq.write_table(TABLE.slice(0, 200), path, row_group_size=75)
        else:
            with pa.ipc.new_file(path, SCHEMA) as writer:
                writer.write_table(TABLE.slice(0, 200), 75)
    whole = stream(str(tmp_path), RECIPE, format)
    batches, tallies = [], []
    for batch in whole:
        batches.append(rows_of(batch))
        tallies.append(whole.tally.state())
    assert sum(batches, []) == twin(ROWS[:200] * 2, RECIPE)[0] and len(batches) >= 14
    for k, tally in enumerate(tallies):
        again = stream(str(tmp_path), RECIPE, format, threads=1 + k % 3)
        found = [row for batch in again.in_order(Tally.restored(tally, again.source)) for row in rows_of(batch)]
        assert found == sum(batches[k + 1 :], []), k
        assert again.tally.rows == whole.tally.rows


def test_rows_are_named_by_their_number_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("streamsvm.readers.MOST_ROWS", 64)
    values = [float("inf") if k in (10, 150, 299) else 1.0 for k in range(300)]
    table = pa.table({"y": [1] * 300, "x": values, "s": ["a"] * 300})
    for k in range(2):
        pq.write_table(table, tmp_path / f"{k}.parquet", row_group_size=100)
    found = stream(str(tmp_path), TWO, "parquet", skip=10)
    collect(found)
    places = [fault.rsplit("/", 1)[1].split(": column")[0] for fault in found.tally.faults]
    assert places == [
        f"{k}.parquet: row group {g}, row {r}"
        for k, g, r in [(0, 0, 11), (0, 1, 151), (0, 2, 300), (1, 0, 11), (1, 1, 151)]
    ]


@pytest.mark.parametrize("memory", [1, 10**7, 10**9])
@pytest.mark.parametrize("threads", [1, 3])
def test_threads_and_memory(tmp_path, memory, threads):
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.concat_tables([TABLE] * 4), path, row_group_size=700)
    same_as_twin(path, RECIPE, "parquet", ROWS * 4, memory=memory, threads=threads)


def piece_rows(path: str, recipe: Recipe, format: str, memory: int) -> int:
    """The most rows that a piece has."""
    reader = make_reader(Source([path]), TableDialect(format, recipe), memory=memory, threads=2)
    most = 0
    for piece in reader.pieces(BEGINNING):
        most = max(most, piece.record.num_rows)
        reader.release(piece)
    return most


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_pieces_shrink_with_the_memory(tmp_path, format):
    path = str(tmp_path / "a.bin")
    long = pa.table(
        {"y": [1] * 40_000, "x": np.ones(40_000), "v": pa.array([[1.0] * 100] * 40_000, pa.list_(pa.float32()))}
    )
    if format == "parquet":
        pq.write_table(long, path)
    else:
        feather.write_feather(long, path, chunksize=40_000)
    narrow, wide = Recipe((Column("x", "number"),), label="y"), Recipe((Column("v", "vector", width=100),), label="y")
    words = Recipe((Column("v", "words"),), label="y", hash_bits=9)
    assert piece_rows(path, narrow, format, 10**9) == MOST_ROWS
    assert piece_rows(path, narrow, format, 5 * 10**6) < MOST_ROWS
    for recipe in (wide, words):  # of lists only the file knows how long they are
        few = piece_rows(path, recipe, format, 20 * 10**6)
        assert 64 <= few <= 20 * 10**6 / 5 / (100 * 4)
        assert few < piece_rows(path, recipe, format, 10**8)
    assert piece_rows(path, wide, format, 1) == 64


def test_fitting_rows():
    assert fitting_rows(1000, 10, 5000) == 500 and fitting_rows(1000, 10, 1) == 64 and fitting_rows(10, 1, 10**9) == 10


def test_only_wanted_columns_are_read(tmp_path):
    path = str(tmp_path / "a.parquet")
    pq.write_table(TABLE, path)
    (part,) = Source([path]).parts
    record = next(iter(parquet_pieces(part, ["x", "user.id"], frozenset(), 100))).record
    assert record.schema.names == ["x", "user"] and [f.name for f in record.schema.field("user").type] == ["id"]
    feather.write_feather(TABLE, str(tmp_path / "a.arrow"))
    (part,) = Source([str(tmp_path / "a.arrow")]).parts
    assert next(arrow_pieces(part, ["x", "user.id"], 100)).record.schema.names == ["x", "user"]
