"""Spans of a source: together they have every row once, in order, and messages name the lines of the whole file."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from range_server import RangeServer

from streamsvm import open_stream
from streamsvm.batch import Batch, concatenate
from streamsvm.distributed.shards import plan_shards
from streamsvm.errors import ConfigError, DataError
from streamsvm.io.parts import Part, find_parts
from streamsvm.io.spans import AT_A_TIME, SpanSource, never, next_lines, plan_spans
from streamsvm.stream import Stream

Write = Callable[..., str]


def in_shards(stream: Stream, count: int, **options: bool) -> Batch:
    shards = plan_shards(stream.source, stream.dialect, count)
    assert [shard.number for shard in shards] == list(range(len(shards))) and len(shards) <= count
    records = getattr(stream.dialect, "format", "") == "parquet"
    streams = [Stream(SpanSource(shard.spans, records=records), stream.dialect, **options) for shard in shards]
    return concatenate([batch.copy() for one in streams for batch in one])


def same(one: Batch, other: Batch) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))


@given(
    st.lists(st.lists(st.integers(1, 10**6), min_size=0, max_size=12, unique=True), min_size=1, max_size=30),
    st.integers(1, 12),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
    st.booleans(),
)
def test_all_rows_once(rows: list[list[int]], count: int, end: str, ended: bool) -> None:
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for part in range(2):
            text = end.join(f"{part} " + " ".join(f"{j}:1" for j in sorted(row)) for row in rows)
            with open(os.path.join(folder, f"{part}.svm"), "w", newline="") as file:
                file.write(text + (end if ended else ""))
        stream = open_stream(folder)
        assert same(in_shards(stream, count), concatenate([batch.copy() for batch in stream]))


def test_parts_are_about_as_large(write: Write) -> None:
    path = write([f"1 {k + 1}:1" for k in range(3000)])
    stream = open_stream(path)
    shards = plan_shards(stream.source, stream.dialect, 7)
    assert len(shards) == 7 and sum(shard.size for shard in shards) == stream.source.size
    assert max(shard.size for shard in shards) < 1.2 * min(shard.size for shard in shards)


def test_parquet_is_cut_between_row_groups(tmp_path: object) -> None:
    path = f"{tmp_path}/t.parquet"
    rng = np.random.default_rng(0)
    table = pa.table({"label": rng.integers(0, 2, 1000), "x": rng.random(1000), "z": rng.random(1000)})
    pq.write_table(table, path, row_group_size=100)
    stream = open_stream(path, label="label")
    whole = concatenate([batch.copy() for batch in stream])
    for count in (1, 2, 3, 10, 20):
        assert same(in_shards(stream, count), whole)
    assert len(plan_shards(stream.source, stream.dialect, 5)) == 5


def test_compressed_text_and_csv_with_quotes_are_read_whole(tmp_path: object, put: Callable[[str, bytes], str]) -> None:
    for k in range(3):
        put(f"gz/{k}.svm.gz", gzip.compress(b"".join(b"%d 1:%d\n" % (k % 2, n) for n in range(200))))
        put(f"csv/{k}.csv", b"label,a\n" + b"".join(b'%d,"x\ny"\n' % (n % 2) for n in range(200)))
    for folder in ("gz", "csv"):
        stream = open_stream(f"{tmp_path}/{folder}")
        assert len(plan_shards(stream.source, stream.dialect, 9)) == 3
        assert same(in_shards(stream, 9), concatenate([batch.copy() for batch in stream]))


def test_a_bad_row_is_named_by_its_line_in_the_file(write: Write) -> None:
    rows = [f"1 {k + 1}:1" for k in range(100)]
    rows[77] = "1 oops"
    stream = open_stream(write(rows))
    shards = plan_shards(stream.source, stream.dialect, 4)
    with pytest.raises(DataError, match="rows.svm:78: "):
        for shard in shards:
            list(Stream(SpanSource(shard.spans), stream.dialect))
    last = Stream(SpanSource(shards[3].spans), stream.dialect, skip_bad=True)
    list(last)
    assert last.tally.bad_rows == 1 and "rows.svm:78: " in last.tally.faults[0]


def test_what_is_read_once_cannot_be_shared_out() -> None:
    from streamsvm.io.source import Source
    from streamsvm.readers import libsvm

    source = Source([])
    source.parts = [Part("-", "standard input", None, None)]
    with pytest.raises(ConfigError, match="save it first"):
        plan_shards(source, libsvm.Dialect(), 2)


def test_the_next_line(write: Write) -> None:
    path = write(["ab", "c", "", "d"])  # ab\nc\n\nd\n
    part = Part(path, path, 8, None)
    assert next_lines(part, range(8)) == [0, 3, 3, 3, 5, 5, 6, 0]


def test_few_files_make_few_pieces() -> None:
    parts = [Part(str(k), str(k), size, None) for k, size in enumerate((10, 10, 1000))]
    pieces = plan_spans(parts, 4, never)
    assert [[span.part.url for span in piece] for piece in pieces] == [["0", "1"], ["2"]]


def test_cuts_of_a_remote_file_are_those_of_a_local_one(write: Write) -> None:
    """Looked for by several threads, each of which opens it once for some of the places."""
    path = write([f"{number} 1:{number}" for number in range(2000)])
    (local,) = find_parts([path])
    pieces = 3 * AT_A_TIME
    server = RangeServer().start()
    try:
        (remote,) = find_parts([server.put("rows.svm", Path(path).read_bytes())])
        far = plan_spans([remote], pieces, next_lines)
    finally:
        server.stop()
    firsts = [request for request in server.gets() if request.start == 0]
    near = plan_spans([local], pieces, next_lines)
    assert [(span.start, span.stop) for (span,) in far] == [(span.start, span.stop) for (span,) in near]
    assert len(near) == pieces and len(firsts) <= 3
