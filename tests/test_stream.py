"""Streams: the same rows whatever the blocks, threads and memory; errors in their place; nothing left behind."""

import bz2
import gc
import gzip
import lzma
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from libsvm_twin import collect, row, rows_of, twin
from tiers import examples

from streamsvm import open_stream
from streamsvm.errors import ConfigError, DataError, SourceError
from streamsvm.io.libsvm import Dialect
from streamsvm.io.source import Source
from streamsvm.pool import available_cores
from streamsvm.readers import block_plan
from streamsvm.stream import Reading, Stream

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = (
    b"+1 1:0.5 3:1e-3\r\n"
    b"# a comment\n"
    b"\n"
    b"-1 0.1234567890123 9:2 2:4 2:0.25 9:1\n"
    b"1 2\r\n"
    b"1\n"
    b"0 qid:4 123456789:0.1234567890123456789\t5:-7 # 6:1\n"
    b"1 1:16777217.00000000000000000000001 2:1.100000083446502574524572537484345957636833190917968749\n"
    b"-1 7:1"
)
LINES = [b"%d %s\n" % (i % 2, b" ".join(b"%d:0.%d" % (j * 7 + i, i + 1) for j in range(i % 9))) for i in range(300)]
BIG = b"".join(LINES)


def stream(*paths, block_size=0, threads=2, memory=10**9, max_line=16_000_000, **options):
    reading = Reading(memory=memory, threads=threads, block_size=block_size)
    return Stream(Source(list(paths), max_line=max_line), reading=reading, **options)


# What is read does not depend on how.


def test_every_block_size(put):
    """Every place where a block can end, with lines longer than blocks."""
    path = put("a", TEXT)
    expected, _ = twin(TEXT)
    assert len(expected) == 7
    for block_size in [*range(1, 60), *range(60, len(TEXT) + 20, 7)]:
        found = stream(path, block_size=block_size, threads=1 + block_size % 3)
        assert collect(found) == expected, block_size
        assert found.tally.rows == 7


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("memory", [1, 10**6, 10**9])
def test_threads_and_memory(put, threads, memory):
    path = put("a", BIG)
    assert collect(stream(path, threads=threads, memory=memory)) == twin(BIG)[0]
    assert collect(stream(path, threads=threads, memory=memory, block_size=300)) == twin(BIG)[0]


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress, zstd.compress])
def test_compression(put, compress):
    assert collect(stream(put("a", compress(BIG)), block_size=777)) == twin(BIG)[0]


@examples(40)
@given(st.lists(st.lists(st.integers(0, len(LINES) - 1), max_size=20), max_size=4), st.booleans(), st.integers(1, 500))
def test_several_files(tmp_path_factory, files, final, block_size):
    folder = tmp_path_factory.mktemp("several")
    texts = [b"".join(LINES[i] for i in lines) for lines in files]
    for i, text in enumerate(texts):
        (folder / f"{i}.svm").write_bytes(text if final else text.removesuffix(b"\n"))
    (folder / "9.svm").write_bytes(b"1 1:1")
    found = stream(str(folder), block_size=block_size)
    assert collect(found) == twin(b"".join(texts) + b"1 1:1")[0]
    assert found.tally.origin.url.endswith("9.svm")


def test_again_and_again(put):
    rows = stream(put("a", BIG), block_size=1000)
    assert collect(rows) == collect(rows) == twin(BIG)[0]
    assert rows.tally.rows == 300 and rows.tally.bytes == len(BIG)


def test_the_plan_keeps_to_the_memory():
    for memory in (1, 10**6, 64 * 10**6, 10**9, 10**11):
        for threads in (1, 2, 64):
            block, text = block_plan(memory, threads, cost=10)
            assert 1 << 16 <= block <= 1 << 21
            assert text >= 3 * block and (text * 11 <= memory or text == 3 * block)
    assert Reading().workers == available_cores() >= 1 and Reading(threads=3).workers == 3


def test_more_text_in_flight_than_tokens_is_never_there(put, monkeypatch):
    """A reader that is far ahead of its consumer waits."""
    from streamsvm import readers

    made = []
    slot = readers.Slot
    monkeypatch.setattr(readers, "Slot", lambda size, format: made.append(size) or slot(size, format))
    rows = iter(stream(put("a", BIG * 30), block_size=500, memory=11 * 4 * 2000))
    next(rows)
    threading.Event().wait(0.1)
    assert len(made) <= 4
    assert sum(batch.rows for batch in rows) + 1 > 8900
    assert len(made) <= 4, "slots are used again"


# Limit.


@pytest.mark.parametrize("block_size", [1, 50, 400, 100_000])
def test_limit(put, block_size):
    path = put("a", BIG)
    expected = twin(BIG)[0]
    for limit in (1, 2, 7, 299, 300, 301, 10_000):
        found = stream(path, block_size=block_size, limit=limit)
        assert collect(found) == expected[:limit]
        assert found.tally.rows == min(limit, 300)
    assert collect(stream(path, block_size=block_size, limit=0)) == []


@pytest.mark.parametrize("block_size", [1, 20, 10_000])
def test_what_is_beyond_the_limit_is_not_judged(put, block_size):
    path = put("a", b"1 1:1\nx\n1 2:2\ny\n1 3:3\n" + b"z\n" * 5000)
    found = stream(path, block_size=block_size, limit=2, skip_bad=True, max_bad_rows=1)
    assert collect(found) == [row(1, [1], [1]), row(1, [2], [2])]
    assert (found.tally.bad_rows, len(found.tally.faults)) == (1, 1)
    assert collect(stream(path, block_size=block_size, limit=1)) == [row(1, [1], [1])]


def test_a_limit_on_endless_input(put):
    """Ten rows of gigabytes take no time."""
    path = put("a.gz", gzip.compress(b"1 1:1\n" * 1_000_000))
    assert collect(stream(path, limit=10)) == [row(1, [1], [1])] * 10


# Malformed rows.


def broken(found):
    """Rows that came before the error, and the error."""
    rows = []
    with pytest.raises((DataError, SourceError)) as caught:
        for batch in found:
            rows += rows_of(batch)
    assert "\n" not in str(caught.value)
    return rows, str(caught.value)


@pytest.mark.parametrize("block_size", [1, 7, 30, 1000, 100_000])
def test_an_error_names_file_and_line(put, block_size, threads):
    good, bad = put("good", BIG), put("bad", b"\n# two\r\n1 1:1\n" + b"1 2:2\n" * 50 + b"1 5:spam\n" + b"y\n" * 9)
    found = stream(good, bad, block_size=block_size)
    rows, message = broken(found)
    assert message == f"{bad}:54: '5:spam' is not index:value: the value is not a number"
    assert rows == twin(BIG)[0] + [row(1, [1], [1])] + [row(1, [2], [2])] * 50, "rows before the error arrive"
    assert threads() == []


@pytest.mark.parametrize("block_size", [1, 13, 100, 100_000])
def test_skipped_rows_are_counted_and_named(put, block_size):
    text = b"".join(line + b"bad %d\n" % i * (i % 50 == 0) for i, line in enumerate(LINES))
    first, second = put("first", text), put("second", b"1 1:1\n\nqid:1 2:2")
    found = stream(first, second, block_size=block_size, skip_bad=True, max_bad_rows=7)
    assert collect(found) == [*twin(BIG)[0], row(1, [1], [1])]
    assert found.tally.bad_rows == 7
    assert found.tally.faults[:3] == [
        f"{first}:{2 + i * 51}: 'bad' is not a label: a row starts with a number" for i in range(3)
    ]
    assert len(found.tally.faults) == 5
    rows, message = broken(stream(first, second, block_size=block_size, skip_bad=True, max_bad_rows=6))
    assert message.startswith(f"{second}:3: the row has no label") and "more than 6 bad rows" in message
    assert message.endswith("data.max_bad_rows)")
    assert rows == [*twin(BIG)[0], row(1, [1], [1])]
    assert broken(stream(first, block_size=block_size, skip_bad=True, max_bad_rows=0))[1].startswith(f"{first}:2: ")


def test_a_second_pass_counts_from_zero(put):
    found = stream(put("a", b"1\nx\n1\n"), skip_bad=True, max_bad_rows=1)
    assert collect(found) == collect(found)
    assert found.tally.bad_rows == 1


def test_a_block_of_nothing_but_garbage(put):
    """Refused at once, not after half a million explanations."""
    rows, message = broken(stream(put("a", b"x\n" * 500_000), skip_bad=True, max_bad_rows=1000))
    assert rows == [] and ":1001: " in message


def test_a_truncated_file(put):
    """Rows of the part that could be read arrive, then the error."""
    data = gzip.compress(BIG)
    for size in (len(data) - 1, len(data) // 2, 30):
        rows, message = broken(stream(put("a.gz", data[:size]), block_size=100))
        assert rows == twin(BIG)[0][: len(rows)] and "a.gz: truncated" in message
    assert len(rows) < 20


def test_errors_of_the_source_come_after_the_rows_before_them(put):
    first, second = put("a", b"1 1:1\n"), put("b", b"1 2:2\n" + b"x" * 2000)
    rows, message = broken(stream(first, second, block_size=8, max_line=1000))
    assert rows == [row(1, [1], [1]), row(1, [2], [2])] and "b: byte 6: a line is longer than 1000" in message
    lost = stream(first, second)
    os.unlink(second)
    rows, message = broken(lost)
    assert rows == [row(1, [1], [1])] and "b: cannot open" in message


# Endings.


def test_an_abandoned_iterator_leaves_no_thread(put, threads):
    gc.disable()
    try:
        path = put("a", BIG * 50)
        for shuffle in (0, 5):
            rows = iter(stream(path, memory=100_000, block_size=100, shuffle=shuffle))
            next(rows)
            assert threads() != []
            rows.close()
            assert threads() == []
            rows = iter(stream(path, memory=100_000, block_size=100, shuffle=shuffle))
            next(rows)
            del rows
            assert threads() == []
            for _ in stream(path, memory=100_000, block_size=100, shuffle=shuffle):
                break
            assert threads() == []
            with pytest.raises(ZeroDivisionError):
                for _ in stream(path, memory=100_000, block_size=100, shuffle=shuffle):
                    raise ZeroDivisionError
            assert threads() == []
            list(stream(path, memory=100_000, block_size=100, shuffle=shuffle, limit=10))
            assert threads() == []
    finally:
        gc.enable()


def test_an_abandoned_pipe(tmp_path, threads):
    """A reader that waits for a writer who never comes is stopped with the rest."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    os.write(writer, b"1 1:1\n1 2")
    rows = iter(stream(str(path)))
    assert rows_of(next(rows)) == [row(1, [1], [1])]
    rows.close()
    assert threads() == []
    os.close(writer)


def test_files_are_closed(put):
    path = put("a", BIG * 50)
    before = os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd") else pytest.skip("no /proc")
    for _ in range(3):
        next(iter(stream(path, block_size=100)))
        list(stream(path, path, limit=10))
        with pytest.raises(SourceError):
            list(stream(put("b.gz", b"1 1:1\n")))
    assert len(os.listdir("/proc/self/fd")) == len(before)


# Shuffled streams.


def test_shuffle_does_not_depend_on_blocks(put):
    path = put("a", BIG)
    once = collect(stream(path, shuffle=40, seed=3))
    assert sorted(once) == sorted(twin(BIG)[0]) and once != twin(BIG)[0]
    for block_size, threads in ((1, 1), (100, 3), (5000, 2)):
        assert collect(stream(path, shuffle=40, seed=3, block_size=block_size, threads=threads)) == once
    assert collect(stream(path, shuffle=40, seed=4)) != once
    limited = collect(stream(path, shuffle=40, seed=3, limit=20, block_size=64))
    assert sorted(limited) == sorted(twin(BIG)[0][:20])


# Samples.

NUMBERED = b"".join(b"1 %d:1\n" % i for i in range(4000))


def numbers(found) -> list[int]:
    return [int(index) for batch in found for index in batch.indices[batch.indptr[0] : batch.indptr[-1]]]


def test_a_sample_depends_on_seed_and_rows_alone(put):
    path = put("a", NUMBERED)
    kept = numbers(stream(path, sample=0.1, seed=3))
    assert kept == sorted(set(kept))
    for block_size, threads in ((8, 1), (100, 3), (5000, 2), (10**6, 4)):
        found = stream(path, sample=0.1, seed=3, block_size=block_size, threads=threads)
        assert numbers(found) == kept and numbers(found) == kept, "and the same again"
        assert (found.tally.rows, found.tally.bytes) == (4000, len(NUMBERED)), "what was read is counted"
    rows = collect(stream(path, block_size=777))
    assert collect(stream(path, sample=0.1, seed=3)) == [rows[i] for i in kept]


def test_only_good_rows_are_numbered(put):
    text = NUMBERED.replace(b"\n", b"\n\n# x\nbad\n")
    found = stream(put("a", text), sample=0.1, seed=3, skip_bad=True, max_bad_rows=4000, block_size=3000)
    assert numbers(found) == numbers(stream(put("b", NUMBERED), sample=0.1, seed=3))
    assert found.tally.bad_rows == 4000


def test_a_sample_goes_on_from_file_to_file(put):
    lines = NUMBERED.splitlines(keepends=True)
    parts = [put("a", b"".join(lines[:1111])), put("b", b"".join(lines[1111:]))]
    assert numbers(stream(*parts, sample=0.3)) == numbers(stream(put("c", NUMBERED), sample=0.3))


@pytest.mark.parametrize("share", [0.003, 0.1, 0.5, 0.9, 0.999])
def test_the_share_of_a_sample(put, share):
    path = put("a", NUMBERED * 5)
    for seed in (0, 1, 2**70):
        count = len(numbers(stream(path, sample=share, seed=seed)))
        assert abs(count - 20_000 * share) < 4 * (20_000 * share * (1 - share)) ** 0.5


def test_samples_of_other_seeds_are_other_samples(put):
    """They share as many rows as chance wants, and a larger sample of a seed holds the smaller one."""
    path = put("a", NUMBERED)
    samples = [set(numbers(stream(path, sample=0.5, seed=seed))) for seed in range(6)]
    for i, one in enumerate(samples):
        assert set(numbers(stream(path, sample=0.2, seed=i))) < one
        for other in samples[:i]:
            assert abs(len(one & other) - 1000) < 5 * 750**0.5


def test_a_sample_of_everything_costs_nothing(put, monkeypatch):
    from streamsvm import stream as room

    monkeypatch.setattr(room, "sampled", None)
    path = put("a", BIG)
    assert collect(stream(path, sample=1.0)) == collect(stream(path, sample=None)) == twin(BIG)[0]


def test_a_sample_of_the_first_rows(put):
    """The limit counts rows before the sample is taken."""
    path = put("a", NUMBERED)
    whole = numbers(stream(path, sample=0.25, seed=5))
    for limit in (0, 1, 50, 3999, 4000, 9999):
        for block_size in (60, 10**6):
            found = stream(path, sample=0.25, seed=5, limit=limit, block_size=block_size)
            assert numbers(found) == [i for i in whole if i < limit]
            assert found.tally.rows == min(limit, 4000)


def test_a_shuffled_sample(put):
    path = put("a", NUMBERED)
    kept = numbers(stream(path, sample=0.25, seed=5, limit=3000))
    once = numbers(stream(path, sample=0.25, seed=5, limit=3000, shuffle=100))
    assert sorted(once) == kept != once
    assert numbers(stream(path, sample=0.25, seed=5, limit=3000, shuffle=100, block_size=99, threads=1)) == once
    with_another = stream(path, sample=0.25, seed=5, limit=3000, shuffle=100)
    assert sorted(numbers(with_another.batches(seed=9))) == kept, "the seed of a pass mixes, it does not choose"
    assert numbers(with_another.batches(seed=9)) != once


def test_rows_before_an_error_are_sampled_too(put):
    path = put("a", NUMBERED + b"x\n")
    whole = collect(stream(put("b", NUMBERED), sample=0.1))
    for block_size in (50, 10**6):
        rows, message = broken(stream(path, sample=0.1, block_size=block_size))
        assert rows == whole and ":4001: 'x'" in message


@pytest.mark.parametrize("share", [0.0, -0.1, 1.0001, 2, float("nan"), float("inf")])
def test_what_is_no_share(put, share):
    path = put("a", BIG)
    with pytest.raises(
        ConfigError, match=r"data\.sample: the share of rows to keep must be above 0 and at most 1, not "
    ):
        stream(path, sample=share)
    with pytest.raises(ConfigError, match=r"data\.sample"):
        open_stream(path, sample=share)
    assert collect(stream(path, sample=1e-300)) == []


# Dialects and the door for users.


def test_dialects(put):
    path = put("a", b"1 1:1 5:2\n1:1 3:1\n")
    assert collect(stream(path, dialect=Dialect(labelled=False, mask=3))) == [
        row(1, [1], [3]),
        row(np.nan, [1, 3], [1, 1]),
    ]


def test_open_stream(put):
    first, second = put("first", b"1 1:1 5:2\n"), put("second", b"-1 3:1\n")
    assert collect(open_stream(first)) == [row(1, [1, 5], [1, 2])]
    assert collect(open_stream([second, first], hash_bits=2, threads=1)) == [row(-1, [3], [1]), row(1, [1], [3])]
    assert collect(open_stream([first, second], limit=1, memory=10**6)) == [row(1, [1, 5], [1, 2])]
    assert collect(open_stream(put("third", b"2:1\n"), labelled=False)) == [row(np.nan, [2], [1])]
    big = put("big", BIG)
    assert collect(open_stream(big, sample=0.5, seed=7)) == collect(stream(big, sample=0.5, seed=7)) != twin(BIG)[0]


CO_PROCESS = """
import sys
from streamsvm import open_stream
for batch in open_stream("-", labelled=False):
    for i in range(batch.rows):
        a, b = batch.indptr[i], batch.indptr[i + 1]
        print(*(f"{j}:{v:g}" for j, v in zip(batch.indices[a:b], batch.values[a:b])), flush=True)
"""


def test_a_writer_that_waits_for_answers():
    """Line by line through a pipe, the first line shorter than any magic number, some of them in pieces."""
    with subprocess.Popen(
        [sys.executable, "-c", CO_PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as child:
        assert child.stdin and child.stdout
        watchdog = threading.Timer(60, child.kill)
        watchdog.start()
        for pieces, answer in [
            ([b"1:1\n"], b"1:1\n"),
            ([b"2:1 3:2", b".5\n"], b"2:1 3:2.5\n"),
            ([b"5 4:1\n6:1"], b"4:1\n"),
            ([b" 7:1\n"], b"6:1 7:1\n"),
        ]:
            for piece in pieces:
                child.stdin.write(piece)
            assert child.stdout.readline() == answer
        child.stdin.write(b"8:8")
        child.stdin.close()
        assert child.stdout.read() == b"8:8\n"
        assert child.wait() == 0
        watchdog.cancel()
