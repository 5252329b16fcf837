"""Which format a source has: by the names of its files, or by what they begin with."""

import re
from collections.abc import Sequence
from itertools import islice

from streamsvm.errors import ConfigError
from streamsvm.io.csv import COMMA, NO_QUOTE, POINT, plain_number, rows_of_text
from streamsvm.io.first_lines import first_lines
from streamsvm.io.parts import open_part
from streamsvm.io.source import Source

ENDINGS = {
    **dict.fromkeys(("parquet", "pq", "parq"), "parquet"),
    **dict.fromkeys(("arrow", "feather", "ipc", "arrows"), "arrow"),
    **dict.fromkeys(("csv", "tsv", "tab"), "csv"),
    **dict.fromkeys(("jsonl", "ndjson", "json"), "jsonl"),
    **dict.fromkeys(("svm", "libsvm", "svmlight"), "libsvm"),
    "vw": "vw",
}
COMPRESSED = ("gz", "bz2", "xz", "zst", "zstd", "lz4", "br", "z")
MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow"}
DELIMITERS = "\t,;|"
LOOKED_AT = 1 << 16
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")
_FEATURE = re.compile(r"[0-9]+:[-+.0-9eE]+")


def ending_of(name: str) -> str:
    """`csv` of a/b.csv.gz; nothing where there is none."""
    endings = name.rsplit("/", 1)[-1].lower().split(".")[1:]
    if len(endings) > 1 and endings[-1] in COMPRESSED:
        endings.pop()
    return endings[-1] if endings else ""


def format_of(source: Source, asked: str = "auto") -> str:
    """One of offered.FORMATS."""
    if asked != "auto":
        return asked
    part = source.parts[0]
    known = ENDINGS.get(ending_of(part.shown))
    if known is not None:
        return known
    if part.size is not None:
        raw = open_part(part)
        try:
            head = raw.read(8) or b""
        finally:
            raw.close()
        for magic, format in MAGIC.items():
            if head.startswith(magic):
                return format
    return format_of_text(source.head(LOOKED_AT))


def format_of_text(text: bytes) -> str:
    """What the first line looks like; LIBSVM text if it is like nothing else.

    >>> format_of_text(b"1 3:0.5\\n"), format_of_text(b"1 |a x\\n"), format_of_text(b'{"a": 1}\\n')
    ('libsvm', 'vw', 'jsonl')
    >>> format_of_text(b"a,b\\n1,2\\n"), format_of_text(b"1 2\\n"), format_of_text(b"")
    ('csv', 'libsvm', 'libsvm')
    """
    lines = [line for line in first_lines(text) if not line.startswith("#")]
    line = lines[0].strip() if lines else ""
    if line.startswith("{"):
        return "jsonl"
    words = line.split()
    if any(_FEATURE.fullmatch(word) for word in words[:3]):
        return "libsvm"
    if "|" in line and re.match(r"^(\S+\s+){0,3}\S*\|", line) and not _tabular(lines, "|"):
        return "vw"
    if any(delimiter in line for delimiter in DELIMITERS):
        return "csv"
    return "libsvm"


def like_libsvm(line: str) -> bool:
    """Whether a line is a label with indices and values."""
    words = line.split()
    return len(words) > 1 and _is_number(words[0]) and all(_FEATURE.fullmatch(word) for word in words[1:])


def _tabular(lines: list[str], delimiter: str) -> bool:
    """Whether the lines look like the rows of a table: with as many delimiters in each, and no spaces around them."""
    counts = {line.count(delimiter) for line in lines[:20]}
    return len(counts) == 1 and not any(re.search(r"[ :]", line) for line in lines[:20])


def delimiter_of(text: bytes, name: str, quote: int = 34) -> int:
    """The delimiter that the first lines agree on, or the first of DELIMITERS that they have."""
    ending = ending_of(name)
    if ending in ("tsv", "tab"):
        return 9
    best, most = ",", 0
    for delimiter in DELIMITERS:
        rows = [fields for fields, _ in islice(rows_of_text(text, ord(delimiter), quote), 20)]
        rows = rows[:-1] if len(rows) > 1 and not text.endswith(b"\n") else rows  # the last may go on
        counts = [len(fields) - 1 for fields in rows]
        if counts and min(counts) > 0:
            agreed = counts[0] * (2 if len(set(counts)) == 1 else 1)
            if delimiter != "," and len(set(counts)) == 1 and decimal_of(rows, ord(delimiter)) == COMMA:
                return ord(delimiter)
            if agreed > most:
                best, most = delimiter, agreed
    return ord(best)


def decimal_of(rows: Sequence[Sequence[str]], delimiter: int) -> int:
    """The sign before the decimals of numbers: a comma if a column is full of such numbers, and no number has a point.

    The first row may be a header. Where commas stand between fields, they are not taken for anything else.

    >>> chr(decimal_of([["a", "b"], ["5,5", "x"], ["7", "y"]], ord(";")))
    ','
    """
    if delimiter == COMMA:
        return POINT
    rows = rows[1:] if len(rows) > 1 else rows
    width = len(rows[0]) if rows else 0
    columns = [[row[k].strip() for row in rows if k < len(row) and row[k].strip()] for k in range(width)]
    if any("." in text and _is_number(text) for column in columns for text in column):  # both signs are in use
        return POINT
    return COMMA if any(map(_of_commas, columns)) else POINT


def _of_commas(column: Sequence[str]) -> bool:
    """Whether nearly all are numbers, and some have a decimal comma, not only one in front of each three digits."""
    plain = [plain_number(text) for text in column]
    commas = [old for old, new in zip(column, plain, strict=True) if new != old]
    numbers = sum(map(_is_number, plain))
    return numbers >= 0.95 * len(column) and any(not _THOUSANDS.fullmatch(text) for text in commas)


def has_header(fields: Sequence[str], rows: Sequence[Sequence[str]] = ()) -> bool:
    """Whether a first row looks like names: none is a number, or empty but the first (pandas).

    Others may be empty too, as where lines end in a comma, if a name stands above numbers in the other rows. That names
    differ is no matter: a table whose header has one twice is to be refused, not to be read as if it had none.
    """
    named = [field.strip() for field in fields]
    if any(_is_number(field) for field in named) or not any(named):
        return False
    return all(named[1:]) or any(name and _above_numbers(place, rows) for place, name in enumerate(named))


def _above_numbers(place: int, rows: Sequence[Sequence[str]]) -> bool:
    column = [row[place] for row in rows if place < len(row) and row[place].strip()]
    return bool(column) and all(_is_number(text) for text in column)


def _is_number(text: str) -> bool:
    try:
        float(text)
        return True
    except ValueError:
        return False


def quote_of(asked: bool) -> int:
    return 34 if asked else NO_QUOTE


def single_byte(delimiter: str) -> int:
    """The byte of a delimiter as people write it."""
    named = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}
    found = named.get(delimiter, delimiter)
    if len(found.encode()) != 1:
        raise ConfigError(f"data.delimiter: {delimiter!r} is not a single character")
    if found in '"\n\r+-.' or found.isalnum():
        raise ConfigError(f"data.delimiter: {delimiter!r} can be part of a field")
    return ord(found)
