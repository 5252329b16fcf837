"""LIBSVM text against its slow twin, every malformed row the issue names, and bytes flipped at random."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from libsvm_twin import FENCE, agrees_with_twin, fenced_rows, parsed, row, rows_of, twin, twin_row
from tiers import examples

from streamsvm.io.decimals import PADDING
from streamsvm.io.libsvm import Dialect, parse
from streamsvm.io.parsed import SHOWN

UNLABELLED = Dialect(labelled=False)
HARD = "1.00000017881393421514957253748434595763683319091796875"  # 1 + 3 * 2^-24 - 2^-53: needs every digit


def only(text: bytes, dialect: Dialect = Dialect()):
    """The one row of a text."""
    result = parsed(text, dialect)
    assert result.faults == []
    (found,) = rows_of(result.batch)
    return found


# What is accepted.


@pytest.mark.parametrize(
    "label, value",
    [("+1", 1), ("-1", -1), ("1", 1), ("0", 0), ("2.0", 2), ("1e0", 1), ("1E+0", 1), ("+2.", 2), (".5", 0.5)]
    + [("-0", -0.0), ("007", 7), ("16777216", 2**24), ("-16777216", -(2**24)), ("0.1", 0.1)],
)  # fmt: skip
def test_labels(label, value):
    assert only(f"{label} 1:2".encode()) == row(value, [1], [2])
    assert only(label.encode()) == row(value, [], [])
    assert only(f"{label}#1:2".encode()) == row(value, [], [])


@pytest.mark.parametrize(
    "text, expected",
    {
        "1 3:1 1:2 2:3": row(1, [1, 2, 3], [2, 3, 1]),
        "1 2:1 2:2 2:4": row(1, [2], [7]),
        "1 2:1e8 2:-1e8 2:0.25": row(1, [2], [0.25]),
        "1 2:0.25 2:1e8 2:-1e8": row(1, [2], [0]),  # added up in the order written
        "1 2:1 2:-1": row(1, [2], [0]),
        "1 2:-0 2:-0": row(1, [2], [-0.0]),
        "1 5:1 qid:7 3:2": row(1, [3, 5], [2, 1]),
        "1 qid:7 3:2": row(1, [3], [2]),
        "1 qid:7": row(1, [], []),
        "1 qid:x#y 3:2": row(1, [], []),
        "1 3:2 # 4:5 qid:8": row(1, [3], [2]),
        "1 3:2#4:5": row(1, [3], [2]),
        "1 3:2.5#": row(1, [3], [2.5]),
        "1 3:2 #": row(1, [3], [2]),
        "1 3:0.12345678901#x": row(1, [3], [0.12345678901]),
        "  1   3:2   4:5   ": row(1, [3, 4], [2, 5]),
        "\t1\t3:2\t\t4:5\t": row(1, [3, 4], [2, 5]),
        "1 3:2\t4:5 \t 6:7": row(1, [3, 4, 6], [2, 5, 7]),
        "1 3:2\r": row(1, [3], [2]),
        "1 3:2.5 \r": row(1, [3], [2.5]),
        "1\r": row(1, [], []),
        "1 0:1 1:2": row(1, [0, 1], [1, 2]),
        "1 4294967295:1": row(1, [2**32 - 1], [1]),
        "1 0000000000000007:1": row(1, [7], [1]),
        "1 1234567:1 12345678:2 123456789:3": row(1, [1234567, 12345678, 123456789], [1, 2, 3]),
        "1 1:1e3 2:1.5E-3 3:+2 4:-2.5 5:.5 6:5. 7:-0": row(1, range(1, 8), [1e3, 1.5e-3, 2, -2.5, 0.5, 5, -0.0]),
        "1 1:0 2:0.0": row(1, [1, 2], [0, 0]),  # an explicit zero is kept
    }.items(),
)
def test_rows(text, expected):
    assert only(text.encode()) == expected
    agrees_with_twin(text.encode())


@pytest.mark.parametrize("text", [b"\n", b"\r\n", b"   \n", b"\t\r\n", b"# 1 1:1\n", b"  #\n", b"\n\n\n", b"#\n#\n"])
def test_lines_without_a_row(text):
    result = parsed(text + b"1 2:3\n" + text)
    assert rows_of(result.batch) == [row(1, [2], [3])]
    assert result.lines == 2 * text.count(b"\n") + 1


@pytest.mark.parametrize(
    "text, expected",
    {
        "+1 2.5 3:0.5 7:1": row(1, [3, 7], [0.5, 1], 2.5),
        "-1 0.1 3:1": row(-1, [3], [1], 0.1),
        "1 2 3:1": row(1, [3], [1], 2),
        "1 1 2:2": row(1, [2], [2], 1),
        "0 0 1:1": row(0, [1], [1], 0),
        "1 -0 1:1": row(1, [1], [1], 0),
        "1 -1e-99": row(1, [], [], 0),  # judged as rounded
        "1 +2": row(1, [], [], 2),
        "1.5e0 .5": row(1.5, [], [], 0.5),
        "1 5.": row(1, [], [], 5),
        "1 1e-3\t3:1": row(1, [3], [1], 1e-3),
        "  2 3\t": row(2, [], [], 3),
        "1 2\r": row(1, [], [], 2),
        "1 2.5 \r": row(1, [], [], 2.5),
        "1 2#3:4": row(1, [], [], 2),
        "1 2 #": row(1, [], [], 2),
        "1 2 qid:7 3:1": row(1, [3], [1], 2),
        "1 2 5:1 3:2 5:1": row(1, [3, 5], [2, 2], 2),
        "16777216 1": row(2**24, [], [], 1),
        "1 3.4028235e38": row(1, [], [], 3.4028235e38),
        "1 1e-45": row(1, [], [], 1e-45),
        f"1 {HARD} 1:{HARD}": row(1, [1], [1 + 2**-22], 1 + 2**-22),
        f"{HARD} {HARD}": row(1 + 2**-22, [], [], 1 + 2**-22),
    }.items(),
)
def test_weights(text, expected):
    for end in ("", "\r", " ", "\t", "# x"):
        assert only(f"{text}{end}".encode()) == expected
    agrees_with_twin(b"1 1:1\n" + text.encode() + b"\n-1 2:2\n")


def test_a_weight_is_that_of_its_own_row_only():
    text = b"1 2 1:1\n1 1:1\nx\n-1 0.5\n1 y 2:2\n-1\n\n0 0 3:3\n1 3:3\n"
    assert parsed(text).batch.weights.tolist() == [2, 1, 0.5, 1, 0, 1]
    agrees_with_twin(text)


def test_every_place_where_a_block_can_end():
    """Weighted rows, cut after every line: the room is used again, and every row has its own weight."""
    text = b"+1 2.5 3:0.5\n-1 7:1\r\n1 0\t3:1 # x\n2 %b 1:1\n-1\n1 3#\n" % HARD.encode()
    lines = text.splitlines(keepends=True)
    room, _ = fenced_rows(len(text))
    for cut in range(len(lines) + 1):
        found = []
        for part in (b"".join(lines[:cut]), b"".join(lines[cut:])):
            result = parse(FENCE.hold(part + bytes(PADDING)), 0, len(part), Dialect(), room)
            assert not result.faults
            found += rows_of(result.batch)
        assert found == twin(text)[0]


def test_weights_where_labels_may_be_missing():
    text = b"3:0.5 7:1\n+1 2 3:1\n-1 0.5\n1 2 # x\n2\n1:2\nqid:1 2 3:4\n"
    result = parsed(text, UNLABELLED)
    nan = np.nan
    assert rows_of(result.batch) == [
        row(nan, [3, 7], [0.5, 1]), row(1, [3], [1], 2), row(-1, [], [], 0.5), row(1, [], [], 2), row(2, [], []),
        row(nan, [1], [2]),
    ]  # fmt: skip
    assert [(fault.line, fault.message) for fault in result.faults] == [(6, "'2' is not index:value")]
    agrees_with_twin(text, UNLABELLED)


def test_unlabelled_rows():
    text = b"1:2 3:4\n5 1:2\nqid:3 7:1\n-1\n3:1 1:2\n# no row\n\n+1 3:1\n12345678:1\n1:1#2"
    rows = rows_of(parsed(text, UNLABELLED).batch)
    nan = np.nan
    assert rows == [
        row(nan, [1, 3], [2, 4]), row(5, [1], [2]), row(nan, [7], [1]), row(-1, [], []), row(nan, [1, 3], [2, 1]),
        row(1, [3], [1]), row(nan, [12345678], [1]), row(nan, [1], [1]),
    ]  # fmt: skip
    assert [fault.line for fault in parsed(text).faults] == [0, 2, 4, 8, 9]
    assert "no label" in parsed(text).faults[0].message and "no label" in parsed(text).faults[1].message


# What is refused.

MALFORMED = {
    "not a label": [
        "3a:1", "spam 1:1", "1x 1:1", "1,5 1:1", "--1 1:1", "1\x00 1:1", "\x00", "\x7fELF\x02\x01", "\ufeff1 1:1",
    ],
    "not index:value": [
        "1 3a:1", "1 :4", "1 1:2:3", "1 -1:1", "1 1:1 2", "1 1:1\x00", "1 1\x00:1", "1 \x00", "1 1:1\x002:2",
        "1 1 :1", "1 1 2", "1 1 2 3:4", "1 +1:1", "1 1.0:1", "1 1e0:1", "1 0x1:1", "1 1:1,2:2", "1 1=1", "1 QID:1",
        "1 qid", "1 qid :1",
        "1 1:1\x0b2:2", "1 1:1\x0c", "1 1:1\xa02:2", "1 ٣:1", "1 1:1 \u2028", "1 1:0.5x", "1 1:5x",
        "1 1:0.123456789x", "1 1:0.1234567.8", "1 1:0.12345678.8", "1 1:1-2",
        "1 1:1 2", "1 2 :3", "1 2 -3:4", "1 qid:2 2", "1 2x 3:4", "1 2,3:4", "1 . 2:3", "1 - 2:3", "1 0x1 2:3",
    ],
    "not a number": [
        "1 3:", "1 1:1 2:", "1 1:\x00", "1 1: 1", "1 1:-", "1 1:-.", "1 1:+", "1 1:-x",
    ],
    "finite": [
        "1 1:nan", "1 1:NaN", "1 1:inf", "1 1:-Infinity", "nan 1:1", "inf 1:1", "1 nan", "1 inf 1:1", "1 -Infinity 1:1",
    ],
    "must not be negative": [
        "1 -1", "1 -0.5 2:3", "+1 -1e-3 2:3", "0 -1e-45",
    ],
    "the weight of the row does not fit": [
        "1 1e39", "1 3.5e38 2:3", "1 -1e39", "1 1e999",
        "1 340282356779733642748073463979561713664 1:1",  # rounds to half way to infinity: hard, and then too large
    ],
    "too large": [
        "1 4294967296:1", "1 99999999999999999999999999:1",
    ],
    "single precision": [
        "1 1:1e39", "1 1:3e38 1:3e38",
    ],
    "no label": [
        "1:1 2:2", "qid:1 2:2", ":4", ":", "+:1 2:3", "1:2", "+1:2 3:4",
    ],
    "2^24": [
        "16777217.5 1:1", "1e30", "1e999 1:1", "-1e20 1:1", "1e30 1", "1e999 1 1:1",
    ],
}  # fmt: skip


@pytest.mark.parametrize("text, message", [(text, message) for message in MALFORMED for text in MALFORMED[message]])
def test_malformed(text, message):
    good = b"1 1:0.5 7:2\n"
    block = good + text.encode() + b"\n" + good * 2
    result = parsed(block)
    assert rows_of(result.batch) == [row(1, [1, 7], [0.5, 2])] * 3
    (fault,) = result.faults
    assert (fault.line, fault.row) == (1, 1)
    assert len(good) <= fault.position < len(good) + len(text.encode())
    assert message in fault.message and "\n" not in fault.message
    assert result.lines == 4
    agrees_with_twin(block)


def test_the_first_malformed_row_ends_the_batch_unless_skipped():
    text = b"1 1:1\n\nx\n1 2:2\ny\n1 3:3\nz\n"
    for skip, rows, lines in ((0, 1, [2]), (1, 2, [2, 4]), (2, 3, [2, 4, 6]), (3, 3, [2, 4, 6]), (99, 3, [2, 4, 6])):
        result = parsed(text, skip=skip)
        assert (result.batch.rows, [fault.line for fault in result.faults]) == (rows, lines)
        assert [fault.row for fault in result.faults] == [1, 2, 3][: len(lines)]


def test_a_malformed_row_leaves_no_features_behind():
    text = b"1 1:1 2:2 3:3 x\n1 9:9\n1 5:5 4:4 4:4 y\n1 8:8\n"
    assert rows_of(parsed(text).batch) == [row(1, [9], [9]), row(1, [8], [8])]


def test_messages_name_the_text_but_not_all_of_it():
    (fault,) = parsed(b"1 3:1 " + b"\xff\x00a" * 100_000 + b"\n").faults
    assert fault.position == 6
    assert fault.message.isprintable() and len(fault.message) < 5 * SHOWN


def test_thousands_of_bad_rows_are_not_explained():
    result = parsed(b"x\n" * 100_000, skip=1000)
    assert len(result.faults) == 1001


# Limits and masks.


def test_limit():
    text = b"1 9:1\n1 10:1\n1 9:1 11:1\n1 00000010:1\n1 0:1\n"
    result = parsed(text, Dialect(limit=10))
    assert rows_of(result.batch) == [row(1, [9], [1]), row(1, [0], [1])]
    assert [fault.line for fault in result.faults] == [1, 2, 3]
    agrees_with_twin(text, Dialect(limit=10))


def test_mask_merges_what_meets():
    assert only(b"1 1:1 5:2 6:4 9:8", Dialect(mask=3)) == row(1, [1, 2], [11, 4])
    assert only(b"1 4294967295:1 3:2 7:0.5", Dialect(mask=3)) == row(1, [3], [3.5])
    assert only(b"1 3:1 4:2", Dialect(mask=0)) == row(1, [0], [3])


# Generated text, against the twin.

blanks = st.sampled_from([" ", " ", " ", "  ", "\t", " \t "])
numbers = st.one_of(
    st.integers(0, 99).map(str),
    st.floats(-10, 10, width=16).map(repr),
    st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=True).map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda x: f"{x:.17g}"),
    st.sampled_from(
        ["1", "-1", "0.5", ".5", "5.", "1e3", "+2.5E-3", "0.1234567", "0.12345678", "1.1234567890123456", "3e38"]
    ),
)
indices = st.integers(0, 12) | st.integers(0, 2**33) | st.sampled_from([9999999, 10000000, 2**32 - 1, 2**32])
spoilt = st.sampled_from([text.split(" ")[-1] for group in MALFORMED.values() for text in group]) | st.text(
    max_size=4
).filter(lambda t: "\n" not in t)
tokens = st.one_of(*[st.builds("{}:{}".format, indices, numbers)] * 12, st.just("qid:3"), st.just("# x"), spoilt)
plain = st.sampled_from(["+1", "-1", "1", "0", "2.0", "1e0"])
weighted = st.builds("{} {}".format, plain | numbers, numbers | st.sampled_from(["", "0", "-0", "-2", "1e39", "2 3"]))
labels = st.one_of(*[plain] * 6, *[weighted] * 3, numbers, st.just(""), spoilt)
lines = st.builds(
    lambda before, label, gaps, parts, end: (
        before + label + "".join(map("".join, zip(gaps, parts, strict=False))) + end
    ),
    st.sampled_from(["", "", "", " ", "\t"]),
    labels,
    st.lists(blanks, min_size=12, max_size=12),
    st.lists(tokens, max_size=12),
    st.sampled_from(["", "", "", "\r", " ", " # comment", "#1:2"]),
)
texts = st.builds(
    lambda many, end: ("\n".join(many) + end).encode("utf-8", "surrogatepass"),
    st.lists(lines, max_size=8),
    st.sampled_from(["", "\n"]),
)
dialects = st.builds(
    Dialect,
    st.booleans(),
    st.sampled_from([2**32, 2**32, 13, 10**7]),
    st.sampled_from([2**32 - 1, 2**32 - 1, 7, 2**22 - 1]),
)


@examples(500)
@given(texts, dialects)
@example(b"", Dialect())
@example(b"1 2:3e38 2:3e38 2:-3e38\n1 1:1", Dialect())
@example(b"1:2 1:1\n1:\n1:2:3\n1:-1 1:1", Dialect())
@example(b"1:2 1:1\n1:\n-1:2:3\n+1:-1 1:1\n+1:1 1:1", UNLABELLED)
def test_agrees_with_its_twin(text, dialect):
    agrees_with_twin(text, dialect)


@examples(200)
@given(
    st.lists(st.tuples(indices.filter(lambda i: i < 2**32), st.floats(width=32, allow_nan=False, allow_infinity=False)))
)
def test_any_row_comes_back(pairs):
    """Written with nine digits, which is enough for a single; sums that overflow are for the twin to judge."""
    agrees_with_twin(b"1 " + b" ".join(b"%d:%.9g" % pair for pair in pairs))


@pytest.mark.parametrize("order", ["sorted", "reversed", "random", "equal", "two"])
def test_long_rows(order):
    count = 100_000
    random = np.random.default_rng(3)
    index = {
        "sorted": np.arange(count) * 7,
        "reversed": np.arange(count)[::-1],
        "random": random.integers(0, count, count),
        "equal": np.full(count, 5),
        "two": np.tile([9, 2], count // 2),
    }[order]
    value = random.integers(-999, 999, count) / 8
    text = b"1 " + b" ".join(b"%d:%g" % pair for pair in zip(index.tolist(), value.tolist(), strict=True))
    text = b"-1 1:1\n" + text + b"\n+1 3:1 2:1\n"
    result = parsed(text)
    assert rows_of(result.batch) == [row(-1, [1], [1]), twin_row(text.split(b"\n")[1]), row(1, [2, 3], [1, 1])]


def test_the_most_rows_and_features_that_fit():
    """Room is made for the densest text there is."""
    for text in (b"1\n" * 5000, b"1:1 " * 4999 + b"1:1\n", b"1:1\n" * 5000, b"0:1 1:1\n" * 2500, b"1\n1:1\n" * 3000):
        result = parsed(text, UNLABELLED)
        assert result.faults == [] and result.batch.rows == text.count(b"\n")


def test_rows_can_be_used_again():
    """The next block's rows do not see the last one's."""
    room, _ = fenced_rows(10_000)
    for text in (b"1:7 3:1 2:5 2:6\n" * 20, b"2 1:1\n", b"-1\n" * 7, b"x\n", b"1:3\n" * 9, b"1 9:1 8:1 8:1\n" * 9):
        result = parse(FENCE.hold(text + bytes(PADDING)), 0, len(text), Dialect(), room, 5)
        assert rows_of(result.batch) == twin(text)[0]


@pytest.mark.parametrize(
    "after",
    [b"9" * 16, b":" * 16, b"." * 16, b"\n" * 16, b" 1:1 2:2 3:3 4:4", b"\xff" * 16, bytes(16), b"e-1234567890123#"],
)
def test_what_follows_the_text_does_not_matter(after):
    for line in (b"1 1234567:0.12345678 2:3", b"1:0.12345678 2:3", b"-1:12345678e-2"):
        for end in range(1, len(line) + 1):
            text = b"1 1:1\n" + line[:end] + b"\n"
            rows, bad = twin(text)
            result = parsed(text, after=after)
            assert (rows_of(result.batch), [fault.line for fault in result.faults]) == (rows, bad)


# Bytes flipped at random.

VALID = [
    b"+1 1:0.5 3:1.25 17:-2 400:0.125",
    b"+1:2.5 1:0.5 3:1.25",
    b"-1:0.12345678901234567\t3:2\r",
    b"-1 5:0.1234567 9:1e-3 2:3 2:4.5 # comment",
    b"1 1:1 2:2 3:3 4:4 5:5 6:6 7:7 8:8",
    b"2.0 qid:3 12345678:0.12345678901234567 7:1",
    b"-1\t3:2\t4:5\r",
    b"0",
    b"",
    b"1e0 1:16777217.00000000000000000000001 2:1.1000000834465025745245725374843",
]


@examples(400)
@given(
    st.lists(st.integers(0, len(VALID) - 1), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=6),
    st.booleans(),
)
def test_flipped_bytes(order, flips, labelled):
    """Nothing is read or written out of bounds, and the lines that were left alone parse as before."""
    text = bytearray(b"\n".join(VALID[i] for i in order) + b"\n")
    for place, byte in flips:
        text[place % len(text)] = byte
    agrees_with_twin(bytes(text), Dialect(labelled=labelled))


@examples(300)
@given(st.binary(max_size=60), st.booleans())
def test_binary_garbage(text, labelled):
    agrees_with_twin(text, Dialect(labelled=labelled))


@examples(300)
@given(st.text("0123456789:.-+eE# \t\r\nqidn", max_size=60), st.booleans())
def test_garbage_of_the_right_letters(text, labelled):
    agrees_with_twin(text.encode(), Dialect(labelled=labelled))


def test_against_scikit_learn(tmp_path):
    """A peer reads the same file the same way."""
    from sklearn.datasets import load_svmlight_file

    random = np.random.default_rng(0)
    lines = []
    for _ in range(300):
        index = np.sort(random.choice(1000, random.integers(0, 30), replace=False)) + 1
        pairs = " ".join(
            f"{i}:{v:.{p}g}" for i, v, p in zip(index, random.normal(size=30), random.integers(1, 17, 30), strict=False)
        )
        lines.append(f"{random.choice(['+1', '-1'])} {pairs}")
    text = "\n".join(lines).encode() + b"\n"
    path = tmp_path / "rows.svm"
    path.write_bytes(text)
    matrix, label = load_svmlight_file(str(path), dtype=np.float64, zero_based=True)
    batch = parsed(text).batch
    assert (batch.labels == label).all() and (batch.indptr == matrix.indptr).all()
    assert (batch.indices == matrix.indices).all() and (batch.values == matrix.data.astype(np.float32)).all()
