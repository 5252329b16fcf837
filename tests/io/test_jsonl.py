"""JSON lines against a slow twin made of Python's json, every kind of fault, and lines broken at every byte."""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from libsvm_twin import FENCE, SENTINEL
from tiers import examples

from streamsvm.cells import INDICES, MISSING_WORDS, NUMBER, NUMBERS, TEXT, WORD, WORDS, Cells, Want, category_text
from streamsvm.errors import ConfigError
from streamsvm.hashing import seed_of, word_from
from streamsvm.io.decimals import PADDING
from streamsvm.io.json_values import DEPTH
from streamsvm.io.jsonl import Fields, parse
from streamsvm.io.parsed import ParsedCells

WANTS = (
    Want("n", NUMBER),
    Want("m.n", NUMBER),
    Want("w", WORD, seed_of("w")),
    Want("m.w", WORD, seed_of("m.w"), number=True),
    Want("t", TEXT),
    Want("m.deep.t", TEXT),
    Want("ns", NUMBERS),
    Want("m.ns", NUMBERS),
    Want("ws", WORDS, seed_of("ws")),
    Want("m.ws", WORDS, seed_of("m.ws"), number=True),
    Want("is", INDICES),
    Want("é", WORD, 7),
    Want("a long name of a field, longer than a word", NUMBER),
    Want("n", TEXT),  # a field that is also handed on as it is
    Want("w", TEXT),
)
FIELDS = Fields(WANTS)
HARD = "1.00000017881393421514957253748434595763683319091796875"  # 1 + 3 * 2^-24 - 2^-53: needs every digit
BORDER = 2**128 - 2**103 - 2**74  # from here on a double rounds to an infinite float32
AFTER = b'5"}]:1.5e3,\\u00"'

# The twin.

NUMERAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
ABSENT = {"", "NaN", "nan", "NA", "N/A", "n/a", "null", "NULL", "None", "#N/A", "-", "?"}


class BadLineError(Exception):
    pass


class Token(str):
    """A number as it is written."""


class Pairs(list):
    """The members of an object, also those that come again."""


def constant(name: str):
    return None if name == "NaN" else Token(name)


def loaded(line: str) -> Pairs:
    try:
        found = json.loads(line, object_pairs_hook=Pairs, parse_int=Token, parse_float=Token, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise BadLineError from error
    if not isinstance(found, Pairs) or height(found) > DEPTH:
        raise BadLineError
    return found


def height(value) -> int:
    if isinstance(value, Pairs):
        return 1 + max((height(item) for _, item in value), default=0)
    return 1 + max(map(height, value), default=0) if isinstance(value, list) else 0


def flatten(members: Pairs, above: str | None, seen: set[str], found: dict[str, object]) -> None:
    """Key paths and values; a key that comes again replaces all that its path held, also below it."""
    for key, value in members:
        path = key if above is None else f"{above}.{key}"
        if path in seen:
            for other in [other for other in seen if other == path or other.startswith(path + ".")]:
                seen.discard(other)
                found.pop(other, None)
        seen.add(path)
        if isinstance(value, Pairs) and path not in {want.name for want in WANTS}:
            flatten(value, path, seen, found)
        else:
            found[path] = value
            for want in WANTS:  # also what will be replaced must be right
                if want.name == path:
                    cell(value, want)


def number(value) -> np.float32:
    if value is None:
        return np.float32(np.nan)
    if isinstance(value, bool):
        return np.float32(value)
    if not isinstance(value, str):
        raise BadLineError
    text = value.strip(" \t\n\r\v\f")
    if text in ABSENT and not isinstance(value, Token):
        return np.float32(np.nan)
    if not NUMERAL.fullmatch(text):
        raise BadLineError
    with np.errstate(over="ignore"):
        result = np.float32(float(text))
    if np.isinf(result):
        raise BadLineError
    return result


def spelled(value, want: Want) -> bytes:
    if value is None:
        return b""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if not isinstance(value, str) or (isinstance(value, Token) and "Inf" in value):
        raise BadLineError
    text = str(value)
    if want.kind in (WORD, WORDS) and text and (want.number or isinstance(value, Token)):
        text = category_text(text)
    return text.encode("utf-8", "surrogatepass")


def index(value) -> int:
    if not isinstance(value, Token) or not re.fullmatch("0|[1-9][0-9]{0,9}", value) or int(value) >= 2**32:
        raise BadLineError
    return int(value)


def cell(value, want: Want):
    """What the cells must hold, in a form that can be compared."""
    if want.kind == NUMBER:
        return number(value).tobytes()
    if want.kind == TEXT:
        return spelled(value, want)
    if want.kind == WORD:
        text = spelled(value, want)
        return word_from(text, want.seed), text
    if not isinstance(value, list) or isinstance(value, Pairs):
        many, items = False, ([] if value is None or value == "" else [value])
    else:
        many, items = True, value
    if want.kind == WORDS:
        return [word for word in (word_from(spelled(item, want), want.seed) for item in items) if word]
    if want.kind == INDICES:
        return [index(item) for item in items]
    numbers = [number(item) for item in items]
    if many and np.isnan(numbers).any():
        raise BadLineError
    return [one.tobytes() for one in numbers if not np.isnan(one)]


def twin(text: bytes) -> tuple[list[list[object]], list[int]]:
    """The rows of a text, and the numbers of its malformed lines."""
    rows, bad = [], []
    for line, raw in enumerate(text.removesuffix(b"\n").split(b"\n")):
        shown = raw.decode("utf-8", "surrogatepass")
        shown = shown[1:] if line == 0 and shown[:1] == "\ufeff" else shown
        if not shown.strip(" \t\r"):
            continue
        found: dict[str, object] = {}
        try:
            flatten(loaded(shown), None, set(), found)
            rows.append([cell(found.get(want.name), want) for want in WANTS])
        except BadLineError:
            bad.append(line)
    return rows, bad


# The parser, with everything around its memory watched.


def parsed(text: bytes, cells: Cells, skip: int = 10**9, fields: Fields = FIELDS) -> ParsedCells:
    text = text if text.endswith(b"\n") else text + b"\n"
    assert len(AFTER) == PADDING
    lines = text.count(b"\n")
    cells.reserve(lines)
    watched = [array[:, lines:] for array in (cells.numbers, cells.words, cells.starts, cells.lengths)]
    for array in watched:
        array[:] = SENTINEL
    pool = np.full(len(text) // 2 + 9, SENTINEL, np.uint32)
    for slot, array in enumerate(cells.data):
        if array.dtype != np.uint8:
            cells.data[slot] = pool[:-8].view(array.dtype)
    result = parse(FENCE.hold(text + AFTER), 0, len(text), fields, cells, skip)
    assert all((array == SENTINEL).all() for array in [*watched, pool[-8:]]), "the kernel wrote past its room"
    assert cells.rows + len(result.faults) <= lines and (len(result.faults) > skip or result.lines == lines)
    return result


def rows_of(cells: Cells) -> list[list[object]]:
    """The rows that cells hold, as the twin has them."""
    rows: list[list[object]] = [[] for _ in range(cells.rows)]
    for place, want in enumerate(cells.wants):
        for i, row in enumerate(rows):
            if want.kind == NUMBER:
                row.append(cells.number(place)[i].tobytes())
            elif want.kind == WORD:
                text = cells.spelled(place, i) if cells.spelled_slots[place] >= 0 else None
                row.append((int(cells.word(place)[i]), text))
            else:
                starts, lengths, data = cells.spans(place)
                span = data[starts[i] : starts[i] + lengths[i]]
                assert len(span) == lengths[i]
                row.append(
                    span.tobytes() if want.kind == TEXT
                    else [item.tobytes() for item in span] if want.kind == NUMBERS
                    else span.tolist()
                )  # fmt: skip
    return rows


def agrees_with_twin(text: bytes) -> None:
    rows, bad = twin(text)
    for kept in (False, True):
        cells = Cells(WANTS, spelled=kept)
        result = parsed(text, cells)
        assert [fault.line for fault in result.faults] == bad
        expected = rows if kept else [[(c[0], None) if isinstance(c, tuple) else c for c in row] for row in rows]
        assert rows_of(cells) == expected
        good = [n for n in range(result.lines) if n not in bad and text.split(b"\n")[n].strip(b"\xef\xbb\xbf \t\r")]
        assert [cells.line(row) for row in range(cells.rows)] == good


# What is accepted.

LINES = [
    '{}',
    ' { } ',
    '{"n":1,"w":"x","t":"y"}',
    '{"n": -1.5e-3 , "w" : "", "t":null}\r',
    '\t{"m":{"n":7,"w":"007","deep":{"t":"bottom"},"ns":[1,2.5,-3e2],"ws":["1.0","a",2,true]}}',
    '{"m.n":7,"m.w":"5.0","m.deep.t":"x","m":{"ns":1}}',
    '{"m":{"deep.t":"x"}}',
    '{"n":true,"w":false,"t":true,"ns":[true,false],"ws":[true,null,"",false]}',
    '{"n":"5","m":{"n":" 5.5\\n"}}',
    '{"n":"","m":{"n":"   "}}',
    *(json.dumps({"n": word, "m.w": word, "w": word}) for word in sorted(ABSENT)),
    '{"n":NaN,"w":NaN,"t":NaN,"ns":NaN,"ws":[NaN,"a"]}',
    '{"n":"\\u0035\\u0036"}',
    '{"n":"\\u0035\\u002e\\u0036","m":{"n":"1\\t"}}',
    '{"w":5,"m":{"w":5}}',
    '{"w":5.0,"m":{"w":"5.0"}}',
    '{"w":-0,"m":{"w":"-0"}}',
    '{"w":1e3,"m":{"w":"1e3"}}',
    '{"w":12345678901234567890123,"m":{"w":"12345678901234567890123"}}',
    '{"w":"5.0","m":{"w":" 7 "}}',
    '{"w":-12,"m":{"w":"-12","ws":["-12","-0","--1","-","1x","0","00"]}}',
    '{"w":0.1,"m":{"w":"nan","ws":["nan","1",2.50,"NaN"]}}',
    '{"w":1e400,"m":{"w":"inf"}}',
    '{"t":"a\\"b\\\\c\\/d\\b\\f\\n\\r\\t\\u00e9\\u20ac\\ud83d\\ude00\\ud83dx\\ude00\\ud83d\\u0041"}',
    '{"w":"a\\"b\\u0000","\\u00e9":"\\u00E9","m":{"w":"\\u0037"}}',
    '{"\\u006e":5,"m\\u002en":6,"\\u006d":{"\\u0077":"x"}}',
    '{"é":"é","t":"日本語 😀"}',
    '{"ns":[],"ws":[],"is":[]}',
    '{"ns":[ ],"ws":[ "a" , "b" ],"is":[ 0 , 4294967295 ]}',
    '{"ns":1.5,"ws":"a","is":7}',
    '{"ns":"1.5","ws":5.0,"is":null,"m":{"ns":""}}',
    '{"ns":["1"," 2 "],"m":{"ns":[16777217.00000000000000000000001]}}',
    '{"n":1,"n":2}',
    '{"n":1,"n":null}',
    '{"w":5.0,"w":"x"}',
    '{"w":"x","w":5.0}',
    '{"w":5.0,"w":null}',
    '{"ws":[5.0,1.50],"ws":["x"]}',
    '{"ns":[1,2],"ns":[3]}',
    '{"m":{"n":1,"w":"7.0"},"m":{"w":"2.0"}}',
    '{"m":{"n":1},"m":5}',
    '{"m":{"n":1},"m":null,"m":{}}',
    '{"m":{"n":1},"m.n":2}',
    '{"m.n":2,"m":{"n":1},"mm":3}',
    '{"m":{"deep":{"t":"x"},"deep":{}},"m.deep.t":"y"}',
    '{"m":{"deep":{"t":"x"}},"m":{"deep":{"t":"z"}}}',
    '{"m":[1,{"n":2}]}',
    '{"m":"n"}',
    '{"":1,".":2,"m.":3,".n":4,"m":{"":5}}',
    '{"a long name of a field, longer than a word":1,"a long name of a field, longer than a ward":2}',
    '{"x":[[],{},[{"y":[1,2,{"z":null}]}]],"y":{"n":1},"z":"\\"\\u0041","n":3}',
    '{"x":Infinity,"y":-Infinity,"z":[NaN,-1e999]}',
    f'{{"n":{HARD},"m":{{"n":"{HARD}"}},"ns":[{HARD},1,-{HARD}]}}',
    f'{{"n":{HARD},"n":1}}',
    f'{{"n":{BORDER - 1},"ns":[-{BORDER - 1},{BORDER - 1}.99999999999999999999999]}}',
    '{"n":3.4028235e38}',
    '{"n":1e-45,"ns":[1e-46,0.1,0.12345678,0.1234567890123456,12.12345678,1234567,12345678,-0,-0.0,1E5,1e+5]}',
]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_lines(line):
    agrees_with_twin(line.encode())
    assert twin(line.encode())[1] == []


@pytest.mark.parametrize("word", sorted(ABSENT))
def test_words_for_a_number_that_is_missing(word):
    """They are the words of all table formats, and in a field of numbers only."""
    assert {"", *MISSING_WORDS} == ABSENT
    text = json.dumps({"n": f" {word}\t", "m": {"n": word, "ns": word}, "w": word, "ws": [word, "a"]}).encode()
    agrees_with_twin(text)
    cells = Cells(WANTS, spelled=True)
    assert parsed(text, cells) == (1, [])
    row = rows_of(cells)[0]
    assert np.isnan([cells.number(0)[0], cells.number(1)[0]]).all() and row[7] == []
    assert row[2] == (word_from(word, WANTS[2].seed), word.encode()) and len(row[8]) == 1 + bool(word)
    agrees_with_twin(json.dumps({"ns": [1, word]}).encode())
    for close in (f"x{word}", f"{word}x", f"{word}\0", f"{word} {word}x", word.swapcase()):
        agrees_with_twin(json.dumps({"n": close}).encode())


def test_lines_after_one_another():
    """What one line leaves behind (keys seen, odd cells, items) must not matter to the next."""
    chosen = random.Random(3)
    for _ in range(20):
        agrees_with_twin("\n".join(chosen.sample(LINES, 20)).encode())


def test_what_cells_hold():
    """The twin itself, looked at once."""
    cells = Cells(WANTS, spelled=True)
    text = b'{"n":1.5,"m":{"w":"5.0","ns":[1,2]},"w":5.0,"t":"a\\nb","ws":["x",7],"is":[3,4]}\n\n{"w":1}'
    assert parsed(text, cells) == (3, [])
    assert cells.number(0).tolist()[0] == 1.5 and np.isnan(cells.number(0)[1])
    assert cells.word(2).tolist() == [word_from("5", WANTS[2].seed), word_from("1", WANTS[2].seed)]
    assert cells.word(3).tolist() == [word_from("5", WANTS[3].seed), 0]
    assert [cells.spelled(2, 0), cells.spelled(3, 0), cells.spelled(3, 1)] == [b"5", b"5", b""]
    first = rows_of(cells)[0]
    assert first[4] == b"a\nb" and first[13:] == [b"1.5", b"5.0"]
    assert first[7] == [np.float32(1).tobytes(), np.float32(2).tobytes()] and first[10] == [3, 4]
    assert [cells.line(0), cells.line(1)] == [0, 2]


def test_blank_lines_line_ends_and_a_byte_order_mark():
    agrees_with_twin(b'\n\r\n  \t\n{"n":1}\r\n\n{"n":2} \r\n \n')
    agrees_with_twin(b'\xef\xbb\xbf{"n":1}\n{"n":2}\n')
    agrees_with_twin(b'\xef\xbb\xbf\n{"n":1}\n')
    cells = Cells(WANTS)
    assert [fault.line for fault in parsed(b'{"n":1}\n\xef\xbb\xbf{"n":2}\n', cells).faults] == [1]
    for text in (b"\n", b"\r\n", b"\n\n\n"):
        assert parsed(text, cells) == (text.count(b"\n"), []) and cells.rows == 0


def test_no_wants_and_nothing_to_read():
    fields, cells = Fields(()), Cells(())
    result = parsed(b'{"n":1}\n[]\n{}\n', cells, fields=fields)
    assert cells.rows == 2 and [fault.line for fault in result.faults] == [1]
    assert parse(np.zeros(PADDING, np.uint8), 0, 0, fields, cells) == (0, [])


@pytest.mark.full
def test_long_strings_and_keys():
    long = "x" * 1_000_000
    for line in (f'{{"t":"{long}","n":1}}', f'{{"y":"{long}","n":1}}', f'{{"{long}":2,"n":1}}', f'{{"w":"{long}"}}'):
        agrees_with_twin(line.encode())
    agrees_with_twin(json.dumps({"t": "é\n" * 50_000, "n": 1}).encode())
    agrees_with_twin(b'{"ns":[' + b"1," * 100_000 + b"1]}\n")
    agrees_with_twin(b'{"m":{"ws":[' + b"1.0," * 20_000 + b'"nan",2]}}\n{"m":{"ws":[1.50,"nan",3]}}\n')


def test_depth():
    for opening, closing, levels in (("[", "]", DEPTH - 1), ('{"a":', "}", DEPTH - 1)):
        inside = "1" if opening != "[" else ""
        for more in (0, 1, 1000):
            line = '{"x":' + opening * (levels + more) + inside + closing * (levels + more) + "}"
            result = parsed(line.encode(), Cells(WANTS))
            assert [fault.message for fault in result.faults] == [
                "more than 64 objects and arrays in each other"
            ] * bool(more)
    path = ".".join("a" * 70)
    line = '{"a":' * 70 + "1" + "}" * 70
    result = parsed(line.encode(), Cells((Want(path, NUMBER),)), fields=Fields((Want(path, NUMBER),)))
    assert "more than 64" in result.faults[0].message and result.faults[0].position == 5 * DEPTH


def test_many_rows_with_fields_missing_and_out_of_order():
    """More odd cells than there is room for at a time, keys that move, and more keys than are remembered."""
    chosen = random.Random(5)
    lines = []
    for i in range(3500):
        members = {f"x{chosen.randrange(2000)}": i, "n": i / 7, "w": i / 4, "t": str(i), "m": {"w": f"{i}.0", "n": i}}
        keys = [key for key in members if chosen.random() < 0.8]
        if i % 3 == 0:
            chosen.shuffle(keys)
        lines.append(json.dumps({key: members[key] for key in keys}, separators=((",", ":") if i % 2 else None)))
    agrees_with_twin("\n".join(lines).encode())


def test_wide_lines():
    names = [f"field_{i}" for i in range(2000)]
    wants = tuple(Want(name, NUMBER) for name in names)
    cells = Cells(wants)
    lines = [json.dumps({name: i + j for j, name in enumerate(names) if (i + j) % 5}) for i in range(20)]
    assert not parsed("\n".join(lines).encode(), cells, fields=Fields(wants)).faults
    for j in range(len(names)):
        expected = [i + j if (i + j) % 5 else np.nan for i in range(20)]
        np.testing.assert_array_equal(cells.number(j), np.array(expected, np.float32))


def test_paths_that_share_a_hash_place_stay_apart():
    """The table is small, so places collide; and a key that only resembles a wanted one is not it."""
    wants = tuple(Want(f"k{i}", NUMBER) for i in range(300))
    cells = Cells(wants)
    assert not parsed(json.dumps({f"k{i}": i for i in range(1000)}).encode(), cells, fields=Fields(wants)).faults
    assert [float(cells.number(i)[0]) for i in range(300)] == list(range(300))


def test_the_room_is_used_again():
    cells = Cells(WANTS)
    for text in (b'{"ns":[1,2,3],"n":1}\n' * 50, b'{"n":2}\n', b'{"ns":[4]}\n{"n":3}\n'):
        held = FENCE.hold(text + AFTER)
        parse(held, 0, len(text), FIELDS, cells)
        assert rows_of(cells) == [[(c[0], None) if isinstance(c, tuple) else c for c in row] for row in twin(text)[0]]
    pool = cells.data[cells.slots[6]]
    held = FENCE.hold(b'{"ns":[5]}\n' + AFTER)
    parse(held, 0, 11, FIELDS, cells)
    assert np.shares_memory(pool, cells.data[cells.slots[6]])


def test_a_list_has_no_twin():
    with pytest.raises(ConfigError, match="field tags is a list"):
        Fields((Want("tags", WORDS), Want("tags", TEXT)))


# What is wrong.

FAULTS = {
    "[1]": (0, "a line is a JSON object, but this one starts with '['"),
    "5": (0, "a line is a JSON object, but this one starts with '5'"),
    "  null": (2, "a line is a JSON object, but this one starts with 'null'"),
    '"n"': (0, "a line is a JSON object, but this one starts with '\"n'"),
    "{": (1, "the line ends before its object does: an object stands on one line"),
    '{"n":1': (6, "the line ends before its object does: an object stands on one line"),
    '{"n":': (5, "field 'n': the line ends before its object does: an object stands on one line"),
    '{"n"': (4, "field 'n': the line ends before its object does: an object stands on one line"),
    '{"n': (3, "the line ends before its object does: an object stands on one line"),
    '{"t":"abc': (9, "field 't': the line ends before its object does: an object stands on one line"),
    '{"x":"abc': (9, "the line ends before its object does: an object stands on one line"),
    '{"x":[1': (7, "the line ends before its object does: an object stands on one line"),
    "{n:1}": (1, "expected a key in double quotes, found 'n'"),
    "{'n':1}": (1, "expected a key in double quotes, found \"'n'\""),
    '{"n":1,}': (7, "expected a key in double quotes, found '}'"),
    "{,}": (1, "expected a key in double quotes, found ','"),
    '{"x":{"y":1,}}': (12, "expected a key in double quotes, found '}'"),
    '{"n" 1}': (5, "field 'n': expected a colon after the key, found '1'"),
    '{"x":{"y",1}}': (9, "expected a colon after the key, found ','"),
    '{"n":1 "w":2}': (7, "expected ',' or '}' after the value, found '\"w'"),
    '{"n":1]': (6, "expected ',' or '}' after the value, found ']'"),
    '{"t":01}': (6, "expected ',' or '}' after the value, found '1'"),
    '{"x":{"y":1]}': (11, "expected ',' or '}' after the value, found ']'"),
    '{"x":[1}': (7, "expected ',' or ']' after the item, found '}'"),
    '{"x":[1 2]}': (8, "expected ',' or ']' after the item, found '2'"),
    '{"ns":[1 2]}': (9, "field 'ns': expected ',' or ']' after the item, found '2'"),
    '{"n":1} x': (8, "expected nothing after the object, found 'x'"),
    '{"n":1}{"n":2}': (7, "expected nothing after the object, found '{'"),
    '{"n":1}}': (7, "expected nothing after the object, found '}'"),
    '{"x":tru}': (5, "'tru' is not a JSON value"),
    '{"x":[1,]}': (8, "']' is not a JSON value"),
    '{"x":}': (5, "'}' is not a JSON value"),
    '{"x":1.}': (5, "'1.' is not a JSON value"),
    '{"x":.5}': (5, "'.5' is not a JSON value"),
    '{"x":+5}': (5, "'+5' is not a JSON value"),
    '{"x":1e}': (5, "'1e' is not a JSON value"),
    '{"x":-}': (5, "'-' is not a JSON value"),
    '{"n":tru}': (5, "field 'n': 'tru' is not a JSON value"),
    '{"m":{"n":nul}}': (10, "field 'm.n': 'nul' is not a JSON value"),
    '{"ns":[1,]}': (9, "field 'ns': ']' is not a JSON value"),
    '{"t":"a\\qb"}': (7, "field 't': '\\\\qb' is not an escape that JSON knows"),
    '{"x":"a\\u12G4"}': (7, "'\\\\u12G4' is not an escape that JSON knows"),
    '{"a\\x":1}': (3, "'\\\\x' is not an escape that JSON knows"),
    '{"t":"a\tb"}': (7, "field 't': the control character 0x09 must be written as an escape"),
    '{"x":"a\x00b"}': (7, "the control character 0x00 must be written as an escape"),
    '{"a\x1f":1}': (3, "the control character 0x1f must be written as an escape"),
    '{"n":"spam"}': (5, "field 'n': 'spam' is not a number"),
    '{"n":"a\\nb","w":1}': (5, "field 'n': 'a' is not a number"),
    '{"n":"1_000"}': (5, "field 'n': '1_000' is not a number"),
    '{"n":"5 6"}': (5, "field 'n': '5 6' is not a number"),
    '{"n":"0x10"}': (5, "field 'n': '0x10' is not a number"),
    '{"n":"inf"}': (5, "field 'n': 'inf' is not a number"),
    '{"n":1e39}': (5, "field 'n': '1e39' does not fit in single precision (largest is 3.4e38)"),
    '{"n":"-1e39"}': (5, "field 'n': '-1e39' does not fit in single precision (largest is 3.4e38)"),
    '{"ns":[1,1e39]}': (9, "field 'ns': '1e39' does not fit in single precision (largest is 3.4e38)"),
    '{"n":Infinity}': (5, "field 'n': 'Infinity': numbers must be finite"),
    '{"w":-Infinity}': (5, "field 'w': '-Infinity': numbers must be finite"),
    '{"n":[1]}': (5, "field 'n': expected a number, found an array"),
    '{"n":{}}': (5, "field 'n': expected a number, found an object"),
    '{"w":{}}': (5, "field 'w': expected a category, found an object"),
    '{"t":[]}': (5, "field 't': expected a text, found an array"),
    '{"ns":{}}': (6, "field 'ns': expected numbers, found an object"),
    '{"ns":[[1]]}': (7, "field 'ns': expected numbers, found an array"),
    '{"ws":["a",{}]}': (11, "field 'ws': expected categories, found an object"),
    '{"is":{}}': (6, "field 'is': expected indices, found an object"),
    '{"ns":[1,null]}': (9, "field 'ns': 'null': an item of a list cannot be missing"),
    '{"ns":[1,""]}': (9, "field 'ns': '': an item of a list cannot be missing"),
    '{"is":[null]}': (7, "field 'is': 'null': an item of a list cannot be missing"),
    '{"is":[1.0]}': (7, "field 'is': '1.0' is not an index: a whole number from 0 to 2^32 - 1"),
    '{"is":[-1]}': (7, "field 'is': '-1' is not an index: a whole number from 0 to 2^32 - 1"),
    '{"is":[4294967296]}': (7, "field 'is': '4294967296' is not an index: a whole number from 0 to 2^32 - 1"),
    '{"is":["1"]}': (7, "field 'is': '1' is not an index: a whole number from 0 to 2^32 - 1"),
    '{"is":true}': (6, "field 'is': 'true' is not an index: a whole number from 0 to 2^32 - 1"),
}


@pytest.mark.parametrize("line", FAULTS)
def test_faults(line):
    position, message = FAULTS[line]
    cells = Cells(WANTS)
    text = b'{"n":1,"ws":[5.0]}\n\n%b\n{"n":2,"ws":[6.0]}\n' % line.encode()
    (fault,) = parsed(text, cells).faults
    assert fault == (20 + position, 2, 1, message)
    assert twin(text)[1] == [2]
    agrees_with_twin(text)


def test_numbers_next_to_the_border_of_single_precision():
    """Their digits decide, because Python is asked too late to refuse a row."""
    digits = str(BORDER)
    below = str(BORDER - 1)
    for good in (below, f"{below}.9999999999", f"{below[0]}.{below[1:]}e38", f"0.00{below}e41", f"-{below}"):
        agrees_with_twin(f'{{"n":{good},"ns":["{good}"]}}'.encode())
        assert twin(f'{{"n":{good}}}'.encode())[1] == []
    for bad in (digits, f"{digits}.0", f"{digits}0e-1", f"-{digits[0]}.{digits[1:]}1e38", str(BORDER + 1)):
        agrees_with_twin(f'{{"n":{bad}}}\n{{"ns":[{bad}]}}\n{{"n":1}}'.encode())
        assert twin(f'{{"n":{bad}}}'.encode())[1] == [0]


def test_skipping():
    text = b'{"n":1}\nx\n{"n":2,"ws":[1.50]}\n\n{"n":[]}\n{"n":3}\n{"ws":[1.50,{}]}\n{"n":4}\n'
    for skip, rows, lines in ((0, 1, 1), (1, 2, 4), (2, 3, 6), (3, 4, 8)):
        cells = Cells(WANTS)
        result = parsed(text, cells, skip)
        assert cells.number(0).tolist() == [1.0, 2.0, 3.0, 4.0][:rows] and result.lines == lines
        found = [(1, 1), (4, 2), (6, 3)]
        assert [(fault.line, fault.row) for fault in result.faults] == found[: skip + 1]


def test_a_part_of_a_text():
    part = b'{"n":1}\n{"t":"a\\tb"}\n'
    text = bytearray(b"x\n" + part + b'{"n":3}\n' + AFTER)
    cells = Cells(WANTS)
    assert parse(np.frombuffer(text, np.uint8), 2, 2 + len(part), FIELDS, cells) == (2, [])
    assert rows_of(cells)[1][4] == b"a\tb"


def test_bytes_that_are_not_utf8():
    cells = Cells(WANTS, spelled=True)
    assert not parsed(b'{"w":"a\xff","t":"\xc3","m":{"w":"\xff5"}}', cells).faults
    row = rows_of(cells)[0]
    assert row[2] == (word_from(b"a\xff", WANTS[2].seed), b"a\xff") and row[4] == b"\xc3"
    assert row[3] == (word_from(b"\xff5", WANTS[3].seed), b"\xff5")


# Lines cut and broken.

VICTIM = (
    b'{"n":-12.5e1,"m":{"w":"7","deep":{"t":"a\\u00e9\\n"},"ns":[1,2.25]},"x":[true,{"y":null}],"ws":["a",1.0],'
    b'"is":[3],"w":"b\\"c","t":"d","y":-0.5E+3}'
)


def test_every_truncation():
    for end in range(len(VICTIM) + 1):
        agrees_with_twin(VICTIM[:end])
        agrees_with_twin(b'{"n":1}\n' + VICTIM[end:] + b'\n{"n":2}')


def test_bytes_exchanged():
    """Each byte by several others: the line is taken if and only if Python takes it, with the same cells."""
    lines = []
    for place in range(len(VICTIM)):
        for byte in b'"\\{}[],: \t\r\x00\x1f\x7f01eE.-+nutfN/x':
            lines.append(VICTIM[:place] + bytes([byte]) + VICTIM[place + 1 :])
        lines.append(VICTIM[:place] + VICTIM[place + 1 :])
        lines.append(VICTIM[:place] + VICTIM[place : place + 1] + VICTIM[place:])
    agrees_with_twin(b"\n".join(lines))


def test_bytes_at_random():
    chosen = random.Random(11)
    lines = []
    for _ in range(4000):
        line = bytearray(VICTIM)
        for _ in range(chosen.randrange(1, 5)):
            line[chosen.randrange(len(line))] = chosen.choice(b'"\\{}[],:  0123456789.eE+-truefalsnN\x01')
        lines.append(bytes(line))
    agrees_with_twin(b"\n".join(lines))


# Objects of all sorts.

KEYS = ["n", "m", "w", "t", "ns", "ws", "is", "deep", "m.n", "deep.t", "m.deep", "é", "x", "", "a.b", "\U0001f600", '"']
NUMERALS = [
    "0",
    "-0",
    "7",
    "-12",
    "5.0",
    "1e3",
    "1E-2",
    "0.1",
    HARD,
    "1e39",
    "123456789012",
    "1.5e+2",
    "NaN",
    "Infinity",
]
TEXTS = [
    "",
    " ",
    "7",
    "007",
    "5.0",
    " 5.5 ",
    "nan",
    "NA",
    "abc",
    "true",
    "null",
    "1_0",
    "-",
    "\ud800",
    "\x00",
    "\u2028",
]
scalars = st.one_of(
    st.sampled_from(NUMERALS).map(Token),
    st.integers(-(10**9), 10**9).map(lambda n: Token(n)),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(lambda x: Token(repr(x))),
    st.sampled_from([None, True, False]),
    st.sampled_from(TEXTS),
    st.text(max_size=12),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(scalars, max_size=4),
        st.lists(st.tuples(st.sampled_from(KEYS), inner), max_size=5).map(Pairs),
    ),
    max_leaves=12,
)
objects = st.lists(st.tuples(st.sampled_from(KEYS), values), max_size=8).map(Pairs)


def written(value, chosen: random.Random) -> str:
    """A value as JSON, with blanks and escapes as the dice fall."""
    blank = chosen.choice(["", "", "", " ", "\t", " \r "])
    if isinstance(value, Pairs):
        members = [written(key, chosen) + ":" + written(item, chosen) for key, item in value]
        return blank + "{" + ",".join(members) + blank + "}" + blank
    if isinstance(value, list):
        return blank + "[" + ",".join(written(item, chosen) for item in value) + "]" + blank
    if isinstance(value, Token):
        return blank + value
    if isinstance(value, str):
        return blank + '"' + "".join(letter(c, chosen) for c in value) + '"' + blank
    return blank + json.dumps(value)


def letter(c: str, chosen: random.Random) -> str:
    if c in '"\\' or c < " " or chosen.random() < 0.2 or "\ud800" <= c <= "\udfff":
        short = json.dumps(c)[1:-1]
        return short if len(short) == 2 and chosen.random() < 0.5 else escaped(c)
    return c


def escaped(c: str) -> str:
    units = c.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{int.from_bytes(units[i : i + 2], 'big'):04x}" for i in range(0, len(units), 2))


@examples(200)
@given(st.lists(objects, min_size=1, max_size=6), st.integers(0, 2**32))
@example([Pairs([("n", "\ud800"), ("n", Token("1"))])], 0)
def test_any_objects(lines, seed):
    chosen = random.Random(seed)
    text = "\n".join(written(line, chosen) for line in lines)
    agrees_with_twin(text.encode("utf-8", "surrogatepass"))


@examples(200)
@given(st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?", fullmatch=True))
def test_any_number(token):
    agrees_with_twin(f'{{"n":{token},"w":{token},"m":{{"w":"{token}"}},"ns":[{token}]}}'.encode())


# Without a compiler.

PLAIN = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/io"]
import test_jsonl
from streamsvm import jit
for line in test_jsonl.LINES[::2]:
    test_jsonl.agrees_with_twin(line.encode())
for line in list(test_jsonl.FAULTS)[::3]:
    test_jsonl.agrees_with_twin(line.encode())
print("plain" if jit.DISABLED else "compiled")
"""


def test_plain_python_gives_the_same():
    tests = Path(__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-W", "error", "-c", PLAIN, str(tests)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "plain\n" and done.stderr == ""
