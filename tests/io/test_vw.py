"""Vowpal Wabbit text against its slow twin, every malformed row, interactions, noted names, and VW's own reading."""

import itertools
import os
import re
import subprocess
import sys
from math import comb

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from libsvm_twin import FENCE, NUMBER, SENTINEL, BadRowError, row, rows_of, single
from tiers import examples

from streamsvm.io.decimals import PADDING
from streamsvm.io.parsed import SHOWN
from streamsvm.io.vw import Dialect, count_row, make_rows, parse

PLAIN = Dialect()
UNLABELLED = Dialect(labelled=False)
HARD = "1.00000017881393421514957253748434595763683319091796875"  # 1 + 3 * 2^-24 - 2^-53: needs every digit
BLANKS = b" \t\r"


# The slow twin.


def murmur(data: bytes, seed: int, length: int | None = None) -> int:
    """MurmurHash3_x86_32, from its description."""

    def turned(x: int, by: int) -> int:
        return (x << by | x >> (32 - by)) & 0xFFFFFFFF

    h = seed
    for place in range(0, len(data), 4):
        block = data[place : place + 4]
        h ^= turned(int.from_bytes(block, "little") * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
        if len(block) == 4:
            h = (turned(h, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= len(data) if length is None else length
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


def word(space: bytes, name: bytes) -> int:
    return max(murmur(name, murmur(space, 0)), 1)


def crossed(first: int, *others: int) -> int:
    for other in others:
        first = max(murmur(other.to_bytes(4, "little"), first, 8), 1)
    return first


def twin_head(head: bytes, labelled: bool):
    tokens = head.split()
    if tokens and (head[-1] not in BLANKS or tokens[-1].startswith(b"'")):
        tokens.pop()
    if len(tokens) > 3 or (labelled and not tokens) or not all(map(NUMBER.fullmatch, tokens)):
        raise BadRowError
    label = single(tokens[0]) if tokens else np.float32(np.nan)
    weight = single(tokens[1]) if len(tokens) > 1 else np.float32(1)
    if abs(label) > 2**24 or weight < 0:
        raise BadRowError
    return label, abs(weight)


def twin_number(token: bytes):
    """`name:number` in two."""
    name, colon, number = token.partition(b":")
    if not name and colon:
        raise BadRowError
    return name, single(number) if colon else np.float32(1)


def twin_features(body: bytes):
    """Namespace, name and value of every feature after the first bar."""
    for part in body.split(b"|"):
        space, scale = twin_number(re.match(rb"[^ \t\r]*", part)[0])
        for token in re.split(rb"[ \t\r]+", part)[1:]:
            if token:
                name, value = twin_number(token)
                yield space, name, value * scale


def twin_crossings(features, interactions):
    """Word and value of everything in a row, simple features first."""
    yield from ((word(space, name), value) for space, name, value in features)
    for spaces in interactions:
        members = [[f for f in features if f[0] == space.encode()] for space in spaces]
        for chosen in itertools.product(*(range(len(group)) for group in members)):
            again = [(q, p) for q, p in itertools.combinations(range(len(spaces)), 2) if spaces[q] == spaces[p]]
            if all(chosen[q] <= chosen[p] for q, p in again):
                picked = [group[i] for group, i in zip(members, chosen, strict=True)]
                value = np.float32(1)
                for _, _, factor in picked:
                    value = value * factor
                yield crossed(*(word(space, name) for space, name, _ in picked)), value


def twin_row(line: bytes, dialect: Dialect):
    """The row of a line, and its (namespace, name)s; None where there is none; BadRowError where it is malformed."""
    line = line.strip(BLANKS)
    if not line:
        return None
    head, bar, body = line.partition(b"|")
    if not bar:
        raise BadRowError
    label, weight = twin_head(re.sub(rb"[\0\x0b\x0c\x1c-\x1f]", b"?", head), dialect.labelled)
    sums: dict[int, np.float32] = {}
    with np.errstate(all="ignore"):
        written = list(twin_features(body))
        features = [feature for feature in written if feature[2] != 0]
        if np.isinf([value for _, _, value in features]).any():
            raise BadRowError
        for hashed, value in twin_crossings(features, dialect.interactions):
            if value != 0:
                index = hashed & ((1 << dialect.hash_bits) - 1)
                signed = -value if hashed >> 31 else value
                sums[index] = sums[index] + signed if index in sums else signed
    if not np.isfinite(list(sums.values())).all():
        raise BadRowError
    return row(label, sorted(sums), [sums[i] for i in sorted(sums)], weight), [(s, n) for s, n, _ in written]


def twin(text: bytes, dialect: Dialect = PLAIN):
    """All rows of a text, its malformed lines, and the names in good rows."""
    rows, bad, names = [], [], []
    for number, line in enumerate(text.removesuffix(b"\n").split(b"\n")):
        try:
            found = twin_row(line, dialect)
        except BadRowError:
            bad.append(number)
            continue
        if found is not None:
            rows.append(found[0])
            names += found[1]
    return rows, bad, names


# The parser, with forbidden memory behind the text and watched memory behind the rows.


def fenced_rows(size: int):
    room, strips = make_rows(size), []
    for name in ("indptr", "indices", "values", "labels", "weights"):
        exact = getattr(room, name)
        wide = np.full(len(exact) + 8, SENTINEL, exact.dtype)
        setattr(room, name, wide[:-8])
        strips.append(wide[-8:])
    room.indptr[0] = 0
    return room, strips


def read(text: bytes, dialect: Dialect = PLAIN, skip: int = 10**9, after: bytes = b"a:1|b 2:3.45678 "):
    """What was parsed, and the room it is in."""
    text = text if text.endswith(b"\n") else text + b"\n"
    assert len(after) == PADDING
    room, strips = fenced_rows(len(text))
    result = parse(FENCE.hold(text + after), 0, len(text), dialect, room, skip)
    assert all((strip == SENTINEL).all() for strip in strips), "the kernel wrote past its room"
    return result, room


def names_in(text: bytes, room) -> list[tuple[bytes, bytes]]:
    spans = zip(room.space_start, room.space_length, room.name_start, room.name_length, strict=True)
    return [(text[a : a + m], text[b : b + n]) for a, m, b, n in itertools.islice(spans, room.spelled)]


def agrees_with_twin(text: bytes, dialect: Dialect = PLAIN) -> None:
    rows, bad, names = twin(text, dialect)
    result, room = read(text, dialect)
    assert rows_of(result.batch) == rows
    assert [fault.line for fault in result.faults] == bad
    assert [fault.row for fault in result.faults] == sorted(fault.row for fault in result.faults)
    assert result.lines == (text if text.endswith(b"\n") else text + b"\n").count(b"\n")
    if dialect.spelled:
        assert names_in(text, room) == names
        assert room.word[: room.spelled].tolist() == [word(*name) for name in names]
    else:
        assert room.spelled == 0


def only(text: str, dialect: Dialect = PLAIN):
    """Label, weight and {index: value} of the one row of a text."""
    agrees_with_twin(text.encode(), dialect)
    result, _ = read(text.encode(), dialect)
    batch = result.batch
    assert result.faults == [] and batch.rows == 1
    return float(batch.labels[0]), float(batch.weights[0]), dict(zip(batch.indices, batch.values, strict=True))


def features(*named, bits: int = 22):
    """{index: value} of (namespace, name, value)s that meet nobody."""
    made = {}
    for space, name, value in named:
        hashed = word(space.encode(), name.encode())
        made[hashed & ((1 << bits) - 1)] = np.float32(-value if hashed >> 31 else value)
    return made


def test_the_twin_hashes_as_others_do():
    from sklearn.utils import murmurhash3_32

    for name in (b"", b"a", b"ab", b"abc", b"abcd", b"C1=68fd1e64", "Straße".encode()):
        assert murmur(name, 7) == murmurhash3_32(name, seed=7, positive=True)


# What is accepted.


@pytest.mark.parametrize(
    "text, expected",
    {
        "1 |a x": (1, 1, features(("a", "x", 1))),
        "-1 2.5 |a x:3": (-1, 2.5, features(("a", "x", 3))),
        "1 0 0.5 |a x": (1, 0, features(("a", "x", 1))),
        "1 -0 1e99 |a x": (1, 0, features(("a", "x", 1))),
        "1 2 0.5 'tag|a x": (1, 2, features(("a", "x", 1))),
        "1 'tag |a x": (1, 1, features(("a", "x", 1))),
        "1 ' |a x": (1, 1, features(("a", "x", 1))),
        "1 2|a x": (1, 1, features(("a", "x", 1))),  # a tag
        "1 tag|a x": (1, 1, features(("a", "x", 1))),
        "1 2 3 4|a x": (1, 2, features(("a", "x", 1))),
        "1 |a:2 x:3 y |b z": (1, 1, features(("a", "x", 6), ("a", "y", 2), ("b", "z", 1))),
        "1 |a:2 x |a x:0.5": (1, 1, features(("a", "x", 2.5))),
        "1 |a:-0.5 x:3": (1, 1, features(("a", "x", -1.5))),
        "1 |a:0 x:3 |b y": (1, 1, features(("b", "y", 1))),
        "1 | x:3 | y": (1, 1, features(("", "x", 3), ("", "y", 1))),
        "1 |a x:1|b y": (1, 1, features(("a", "x", 1), ("b", "y", 1))),
        "1 |a|b y||": (1, 1, features(("b", "y", 1))),
        "1 |": (1, 1, {}),
        "1 |a": (1, 1, {}),
        "1 |a:2": (1, 1, {}),
        "1 |a x:0 y:-0.0 z:1e-99": (1, 1, {}),
        "1 |a x:1 x:-1": (1, 1, features(("a", "x", 0))),
        "1 |a x:1e-30 |a:1e-30 y:1e-30": (1, 1, features(("a", "x", 1e-30))),  # 1e-60 is 0
        "1 |a 1:2 \x01=\x7f:3 Straße:-4": (1, 1, features(("a", "1", 2), ("a", "\x01=\x7f", 3), ("a", "Straße", -4))),
        "1 |a C1=68fd1e64 C2=80e26c9b:0.25": (1, 1, features(("a", "C1=68fd1e64", 1), ("a", "C2=80e26c9b", 0.25))),
        "1 |a x#y": (1, 1, features(("a", "x#y", 1))),  # no comments
        f"1 {HARD} |a:{HARD} x:2 y": (
            1, float(np.float32(1 + 2**-22)), features(("a", "x", 2 + 2**-21), ("a", "y", 1 + 2**-22)),
        ),
    }.items(),
)  # fmt: skip
def test_rows(text, expected):
    label, weight, made = expected
    for dialect in (Dialect(), UNLABELLED, Dialect(spelled=True)):
        for line in (text, text + " ", text + "\r", text + " \t\r", "  " + text, "\t" + text.replace(" ", " \t ")):
            if line.strip() == text or "|a" in text:
                assert only(line, dialect) == (label, weight, made)


@pytest.mark.parametrize(
    "value",
    ["5", "12", "1382", "1234567", "12345678", "0.25", "-3.5", "+2", ".5", "5.", "1e3", "1.5E-3", "0.1234567", "007"]
    + ["0.12345678", "12.12345678", "1.1234567890123456", "1234567.1234567", "9999999.12345678", "-0.0001", HARD]
    + ["1234567.1234567890123456", "1844674.4073709551616", "99.123456789012345"],
)
def test_values(value):
    for end in ("", " ", "\t", "\r", "|", " y"):
        _, _, made = only(f"1 |a x:{value}{end}")
        (found,) = features(("a", "x", np.float32(float(value)))).items()
        assert found in made.items()


def test_rows_without_a_label():
    text = b"|a x\ntag|a x\n'tag |a x\n1 |a x\n1|a x\n | x\n"
    result, _ = read(text, UNLABELLED)
    assert [str(label) for label in result.batch.labels] == ["nan", "nan", "nan", "1.0", "nan", "nan"]
    assert [fault.line for fault in read(text)[0].faults] == [0, 1, 2, 4, 5]
    agrees_with_twin(text)
    agrees_with_twin(text, UNLABELLED)


@pytest.mark.parametrize("text", [b"\n", b"\r\n", b"   \n", b"\t\r\n", b"\n\n\n"])
def test_lines_without_a_row(text):
    agrees_with_twin(text + b"1 | x\r\n" + text + b"-1 |a y:2\r\n")


@pytest.mark.parametrize("bits", [1, 3, 8, 17, 22, 31, 32])
def test_hash_bits(bits):
    for count in (40, 300):
        text = "1 |a " + " ".join(f"n{i}:{i % 7 + 0.5}" for i in range(count))
        agrees_with_twin(text.encode(), Dialect(hash_bits=bits))


# What is refused.

MALFORMED = {
    "no | in the row": ["1 2:3 4:5", "x", "1", "1 2 3", "nan", "'tag", "\x00", "1 :"],
    "no label: it starts with": ["|a x", "| x", "|", "1|a x", "tag|a x", "'tag |a x", "'|", "|:x"],
    "is not a label": ["x |a y", "'t 1 |a y", "1x |a y", "1:2 |a y", "1:2:0.5 | y", "-- | x", "0x1 | x", "1\x00 | x"],
    "within 2^24": ["16777217.5 | x", "1e30 | x", "-1e999 | x"],
    "is not an importance": ["1 x | y", "1 '2 3 | y", "1 1:2 | y", "1 2,5 | y"],
    "importance of a row must not be negative": ["1 -1 | x", "1 -1e-45 'tag| x"],
    "the importance does not fit": ["1 1e39 | x", "1 340282356779733642748073463979561713664 | x"],
    "is not a base": ["1 1 x | y", "1 1 '1 '1 | y"],
    "is too much": ["1 2 3 4 | x", "1 2 3 4 tag| x"],
    "is not |namespace:scale": ["1 |a: x", "1 |a:x y", "1 |a:1:2 x", "1 |a:1x y", "1 |a:- |b"],
    "a scale needs a name": ["1 |:2 x", "1 |: x", "1 |a x|:"],
    "the scale does not fit": ["1 |a:1e39 x", "1 |a:-1e999"],
    "a value needs a name": ["1 |a :1.5", "1 |a x :1", "1 |a :"],
    "is not name:value": ["1 |a x:", "1 |a x: 1", "1 |a x:y", "1 |a x:1:2", "1 |a x:1x", "1 |a x:0.5\x0b", "1 |a x::1"]
    + ["1 |a x:-", "1 |a x:1\x002", "1 |a x:0.123456789x", "1 |a x:|b"],
    "must be finite": ["nan | x", "inf | x", "1 -Infinity | x", "1 1 NaN | x", "1 |a:inf x", "1 |a x:nan"]
    + ["1 |a x:inf|"],
    "the value does not fit": ["1 |a x:1e39", "1 |a:1e30 x:1e30", "1 |a:-1e38 x:-5.5"],
    "added up or multiplied": ["1 |a x:3e38 x:3e38", "1 |a x:3e38 y x:3e38 x:-3e38"],
}  # fmt: skip


@pytest.mark.parametrize("text, message", [(text, message) for message in MALFORMED for text in MALFORMED[message]])
def test_malformed(text, message):
    good = b"1 |a x:0.5 y |b z\n"
    block = good + text.encode() + b"\n" + good * 2
    for end in (b"\n", b"\r\n"):
        agrees_with_twin(block.replace(b"\n", end))
    result, room = read(block, Dialect(spelled=True))
    (fault,) = result.faults
    assert (fault.line, fault.row, result.lines, result.batch.rows, room.spelled) == (1, 1, 4, 3, 9)
    assert len(good) <= fault.position < len(good) + len(text.encode())
    assert message in fault.message and fault.message.isprintable()


def test_what_is_quoted():
    for text, message in {
        "1 |a x y:z": "'y:z' is not name:value: the value is not a number",
        "1|a x": "the row has no label: it starts with '1|a', a tag",
        "|a x": "the row has no label: it starts with '|a'",
        "1 1:2 3:4": "no | in the row that starts with '1': a row of VW text is `label | features`",
        "1 |b:x y": "'|b:x' is not |namespace:scale: the scale is not a number",
    }.items():
        assert read(text.encode())[0].faults[0].message == message


def test_the_first_malformed_row_ends_the_batch_unless_skipped():
    text = b"1 | a\n\nx\n1 | b\ny\n1 | c\nz\n"
    for skip, rows, lines in ((0, 1, [2]), (1, 2, [2, 4]), (2, 3, [2, 4, 6]), (3, 3, [2, 4, 6]), (99, 3, [2, 4, 6])):
        result, _ = read(text, skip=skip)
        assert (result.batch.rows, [fault.line for fault in result.faults]) == (rows, lines)
        assert [fault.row for fault in result.faults] == [1, 2, 3][: len(lines)]


def test_messages_name_the_text_but_not_all_of_it():
    (fault,) = read(b"1 |a x " + b"\xff\x00a" * 100_000 + b":\n")[0].faults
    assert fault.position == 7 and fault.message.isprintable() and len(fault.message) < 5 * SHOWN


# Interactions.


@pytest.mark.parametrize(
    "interactions, more",
    [((("a", "b"),), 6), ((("a", "a"),), 6), ((("b", "a"),), 6), ((("a", "b", ""),), 6), ((("a", "a", "a"),), 10)]
    + [((("a", "a", "b"),), 12), ((("a", "b", "a"),), 12), ((("b", "a", "a"),), 12), ((("a", "z"),), 0)]
    + [((("a", "b"), ("", "a"), ("b", "b", "b")), 6 + 3 + 4)],
)
def test_interactions(interactions, more):
    text = "1 |a x:2 y:-3 |b u:0.5 null:0 |a:2 z:4 |b v | w:7"
    *_, made = only(text, Dialect(interactions=interactions, hash_bits=32))
    assert len(made) == 6 + more


def test_interactions_are_counted_exactly():
    """Room is made for so many."""
    counts = np.zeros(2, np.int64)
    for n in range(200):
        slots = np.array([0] * n + [1] * 7 + [-1] * 3, np.int32)
        for third, expected in ((0, comb(n + 2, 3)), (1, comb(n + 1, 2) * 7), (-1, comb(n + 1, 2))):
            assert count_row(slots, n + 10, np.array([[0, 0, third]]), counts) == n + 10 + expected


def test_the_words_and_values_of_interactions():
    u, v, w = word(b"a", b"u"), word(b"b", b"v"), word(b"", b"w")
    *_, made = only("1 |b v:3 |a u:-2 | w:5", Dialect(interactions=(("a", "b"), ("a", "b", "")), hash_bits=32))
    for hashed, value in ((crossed(u, v), -6), (crossed(u, v, w), -30)):
        assert made[np.uint32(hashed)] == (-value if hashed >> 31 else value)


def test_products_out_of_range():
    pair = Dialect(interactions=(("a", "b"),))
    agrees_with_twin(b"1 |a x:1e30 |b y:1e30\n1 |a x:1e-30 |b y:1e-30\n1 |a x:1e30 |b y\n", pair)
    (fault,) = read(b"1 |a x:1e30 |b y:1e30\n", pair)[0].faults
    assert "multiplied" in fault.message
    agrees_with_twin(b"1 |a x:1e30 x:-1e30 |b y:1e30\n1 | x", pair)  # infinities that meet are no number


def test_rows_that_need_more_room():
    """Room grows in the middle of a block, more than once, next to hard numbers and faults, and stays."""
    long = b" ".join(b"n%d:%s" % (i, HARD.encode() if i % 9 == 0 else b"2.5") for i in range(60))
    text = b"1 |a x\n\n1 |a " + long + b"\n1 2 |b y\n-1 |a " + long + b" |b q\nbad\n\n1 |a " + long[:200] + b" \n"
    dialect = Dialect(interactions=(("a", "a"), ("a", "b")), spelled=True)
    agrees_with_twin(text, dialect)
    room = make_rows(10)
    for _ in range(2):
        result = parse(FENCE.hold(text + bytes(PADDING)), 0, len(text), dialect, room, 1)
        assert rows_of(result.batch) == twin(text, dialect)[0]
        assert len(names_in(text, room)) == len(twin(text, dialect)[2])
        kept = room.indices
    assert result.batch.indices.base is kept


def test_a_row_with_too_many_features():
    names = b" ".join(b"%d" % i for i in range(6000))
    for interactions in ((("a", "a"),), (("a", "a", "a"),), (("a", "a", "b"),)):
        text = b"1 |a x |b y\n1 |a " + names + b" |b " + names + b"\n1 |b y\n"
        result, _ = read(text, Dialect(interactions=interactions))
        (fault,) = result.faults
        assert (fault.line, fault.row, result.batch.rows) == (1, 1, 2)
        assert "more than 16777216 features" in fault.message


def test_room_can_be_used_again():
    """The next block's rows do not see the last one's, whatever the dialect."""
    room, _ = fenced_rows(10_000)
    texts = (b"1 |a x y z |b x:2\n" * 20, b"1 |a x\n", b"x\n", b"-1 |\n" * 7, b"1 |a " + b"w " * 900 + b"\n1 |a x:%b\n")
    dialects = (Dialect(), Dialect(spelled=True), Dialect(interactions=(("a", "b"),)), UNLABELLED)
    for text, dialect in itertools.product(texts, dialects):
        text = text.replace(b"%b", HARD.encode())
        result = parse(FENCE.hold(text + bytes(PADDING)), 0, len(text), dialect, room, 5)
        assert rows_of(result.batch) == twin(text, dialect)[0]


def test_long_rows():
    random = np.random.default_rng(3)
    for count in (79, 80, 81, 1000, 50_000):
        names = random.integers(0, count, count)
        text = b"-1 | x\n1 |a " + b" ".join(b"%d:%g" % (n, n / 8 - 9) for n in names.tolist()) + b"\n+1 | y\n"
        agrees_with_twin(text, Dialect(hash_bits=12))
    agrees_with_twin(b"1 |" + b"s" * 100_000 + b" " + b"n" * 99_999 + b":2 " + b"m" * 100_001)
    agrees_with_twin(b"'" + b"t" * 100_000 + b" | x", UNLABELLED)


def test_the_most_rows_and_features_that_fit():
    for text in (
        b"|\n" * 5000,
        b"|" + b" a" * 4999 + b"\n",
        b"| a\n" * 2500,
        b"|" * 9999 + b"\n",
        b"|\n| a b c\n" * 900,
    ):
        result, room = read(text, Dialect(labelled=False, spelled=True))
        assert result.faults == [] and result.batch.rows == text.count(b"\n")
        assert room.spelled == len(re.findall(rb" \w", text))


# Generated text, against the twin.

blanks = st.sampled_from([" ", " ", " ", "  ", "\t", " \t ", "\r"])
numbers = st.one_of(
    st.integers(0, 9999).map(str),
    st.floats(-10, 10, width=16).map(repr),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(lambda x: f"{x:.9g}"),
    st.sampled_from(["1", "-1", "0", "0.5", ".5", "5.", "1e3", "+2.5E-3", "0.12345678", "1.1234567890123456", HARD]),
)
names = st.sampled_from(["x", "y", "C1=68fd1e64", "I12", "user^1234", "Straße", "longer_than_eight\x01"]) | st.text(
    max_size=9
).map(lambda text: re.sub(r"[ \t\r\n:|]", "_", text))
spaces = st.sampled_from(["a", "b", "", "a", "b", "long_namespace"])
spoilt = st.sampled_from([text.split(" ")[-1] for group in MALFORMED.values() for text in group])
tokens = st.one_of(*[names] * 8, *[st.builds("{}:{}".format, names, numbers)] * 8, spoilt)
sections = st.builds(
    lambda space, scale, gaps, parts: "|" + space + scale + "".join(map("".join, zip(gaps, parts, strict=False))),
    spaces,
    st.one_of(*[st.just("")] * 5, numbers.map(":{}".format)),
    st.lists(blanks, min_size=6, max_size=6),
    st.lists(tokens, max_size=6),
)
heads = st.one_of(
    *[st.sampled_from(["1 ", "-1 ", "+1 ", "1 2.5 ", "2.0 'tag ", "1 2 tag", "0 1 0.5 'x", "1 1 1 "])] * 6,
    st.sampled_from(["", "tag", "'tag ", "1", "1 2 3 4 ", "1 -1 "]),
    st.builds("{} {} ".format, numbers, numbers),
)
lines = st.builds(
    lambda before, head, gaps, parts, end: before + head + "".join(map("".join, zip(parts, gaps, strict=False))) + end,
    st.sampled_from(["", "", "", " ", "\t"]),
    heads,
    st.lists(st.just("") | blanks, min_size=4, max_size=4),
    st.lists(sections, max_size=4),
    st.sampled_from(["", "", "\r", " "]),
)
texts = st.builds(
    lambda many, end: ("\n".join(many) + end).encode("utf-8", "surrogatepass"),
    st.lists(lines, max_size=5),
    st.sampled_from(["", "\n"]),
)
crossings = st.lists(st.lists(st.sampled_from(["a", "b", ""]), min_size=2, max_size=3).map(tuple), max_size=2).map(
    tuple
)
dialects = st.builds(Dialect, st.booleans(), st.sampled_from([22, 22, 32, 3]), st.just(()) | crossings, st.booleans())


@examples(300)
@given(texts, dialects)
@example(b"", Dialect())
@example(b"1 |a x:3e38 x:3e38 x:-3e38\n1 |a x", Dialect())
def test_agrees_with_its_twin(text, dialect):
    agrees_with_twin(text, dialect)


VALID = b"-1 2.5 0.5 'tag|user:0.5 C1=68fd1e64 x:0.12345678901 y:12 |a x:2\ty:-1e-3 |b u:0.25 w|user null:0 z"
FULL_DIALECT = Dialect(interactions=(("a", "b"), ("user", "user", "b")), spelled=True)


def test_every_truncation():
    for end in range(len(VALID) + 1):
        for after in (b"9" * 16, b"\n" * 16, b"|" * 16, b":1 |a:2 x:3 y:4 ", bytes(16)):
            text = b"1 |a x\n" + VALID[:end] + b"\n"
            rows, bad, _ = twin(text, FULL_DIALECT)
            result, _ = read(text, FULL_DIALECT, after=after)
            assert (rows_of(result.batch), [fault.line for fault in result.faults]) == (rows, bad)


def test_every_byte_corrupted():
    for place, byte in itertools.product(range(len(VALID)), b" \t\r\n:|'.-+e90xn\x00\x80\xff"):
        text = bytearray(b"1 |a x\n" + VALID + b"\n1 |b y\n")
        text[7 + place] = byte
        agrees_with_twin(bytes(text), FULL_DIALECT)


@examples(300)
@given(st.binary(max_size=60) | st.text("019:.-+e| \t\r\n'ab", max_size=60).map(str.encode), st.booleans())
def test_garbage(text, labelled):
    agrees_with_twin(text, Dialect(labelled, spelled=True, interactions=(("a", "b"), ("", ""))))


# Other readers.


def test_without_compiled_code():
    """Plain Python reads the same rows from the same sources."""
    text = b"1 |a x\n" + VALID + b"\nbad\n1 |a y:" + HARD.encode() + b" |b " + b"n:2 m " * 60 + b"\n"
    script = f"""
import numpy as np
from streamsvm.io.vw import Dialect, make_rows, parse
room, dialect = make_rows({len(text)}), Dialect{tuple(FULL_DIALECT)!r}
parsed = parse(np.frombuffer({text + bytes(PADDING)!r}, np.uint8), 0, {len(text)}, dialect, room, 1)
names = room.word[: room.spelled].tolist()
print([array.tobytes().hex() for array in parsed.batch], parsed.lines, parsed.faults, names)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    parsed, room = read(text, FULL_DIALECT)
    arrays = [array.tobytes().hex() for array in parsed.batch]
    expected = f"{arrays} {parsed.lines} {parsed.faults} {room.word[: room.spelled].tolist()}\n"
    assert (done.stdout, done.stderr) == (expected, "")


def test_vowpal_wabbit_reads_the_same():
    """Labels, importance and values; the hashes are our own."""
    vowpalwabbit = pytest.importorskip("vowpalwabbit")
    peer = vowpalwabbit.Workspace("--quiet --noconstant")
    for line in (
        "1 2 0.5 'tag|a:2 x:3 y |b z", "1 |a x:0.25|b y:-4", "1 'tag |a x", "1 2|a x", "-1 | x y:0 z:7", " 1 | x",
        "1 |a x |a:2 y:3", "1 |a||b x", "1 2 |a \t x:2\ty", "2.5 0.5 |long:0.5 C1=68fd1e64 I1:5", "1 |a x:1e-3 y:.5",
        "|a x", "1|a x", "tag|a x", "'tag |a x:2",
    ):  # fmt: skip
        theirs = peer.parse(line)
        peer.setup_example(theirs)
        (label, weight, made) = only(line, UNLABELLED)
        if np.isnan(label):
            label = float(np.finfo(np.float32).max)  # how VW says that there is none
        assert (theirs.get_simplelabel_label(), theirs.get_simplelabel_weight()) == (label, weight)
        values = sorted(abs(value) for _, value in theirs.iter_features())
        assert values == pytest.approx(sorted(abs(float(value)) for value in made.values()), rel=1e-6)
        peer.finish_example(theirs)
    peer.finish()
