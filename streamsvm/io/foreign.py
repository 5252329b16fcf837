"""Files that hold no rows, although people hand them over: what they are, by what they begin with, and what to do."""

import codecs
import re
from typing import NamedTuple

from streamsvm.errors import SourceError


class Foreign(NamedTuple):
    begins: "re.Pattern[bytes]"
    kind: str
    remedy: str


def _foreign(begins: bytes, kind: str, remedy: str) -> Foreign:
    return Foreign(re.compile(begins, re.DOTALL | re.IGNORECASE), kind, remedy)


ONE_FORMAT = "name or convert files of one format only"
STORED = (  # in the file as it is
    _foreign(rb"PAR1", "a Parquet file, not text", ONE_FORMAT),
    _foreign(rb"ARROW1", "an Arrow file, not text", ONE_FORMAT),
    _foreign(rb"PK\x03\x04", "a zip archive, not text", "unpack it; of a workbook (.xlsx) save a sheet as CSV"),
)
HELD = (  # or in what was compressed
    *STORED,
    _foreign(rb".{4}\x00{4}\{\"", "a model (safetensors), not data", "the model is named first, then the data"),
    _foreign(rb"\x93NUMPY", "a NumPy array, not text", "write it as Parquet or CSV"),
    _foreign(rb"\x80[\x02-\x05]", "a Python pickle, which is never opened", "write Parquet or CSV instead"),
    _foreign(rb"SQLite format 3\x00", "an SQLite database, not text", "export a table of it as CSV"),
    _foreign(rb"\x89HDF", "an HDF5 file, not text", "write it as Parquet or CSV"),
    _foreign(rb"\xff\xfe|\xfe\xff", "text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 < old > new"),
    _foreign(rb".{257}ustar", "a tar archive, not text", "unpack it"),
    _foreign(rb"\s*(<!doctype html|<html)", "a web page, not data", "is this the right address?"),
    _foreign(rb"\s*(%[^\n]*\n\s*)*@relation", "an ARFF file", "delete all up to @data, and name it .csv"),
)


def refuse_foreign(beginning: bytes, shown: str, kinds: tuple[Foreign, ...] = HELD) -> None:
    """SourceError, if this is how something begins that cannot be rows."""
    for begins, kind, remedy in kinds:
        if begins.match(beginning):
            raise SourceError(f"{shown}: this is {kind}; {remedy}")


def refuse_other_encoding(text: bytes, shown: str) -> None:
    """SourceError, if a text is not in UTF-8: its words would never be those of a text that is. It may end anywhere."""
    if text.isascii() and b"\0" not in text:
        return
    if text[:200].count(b"\0") > len(text[:200]) // 4:
        encoding, found = "UTF-16LE" if text[1:2] == b"\0" else "UTF-16BE", "every other byte is 0"
    else:
        try:
            codecs.getincrementaldecoder("utf-8")().decode(text)
            return
        except UnicodeDecodeError as error:
            line = text.count(b"\n", 0, error.start) + 1
            encoding, found = "CP1252", f"line {line} has the byte 0x{text[error.start]:02X}"
    raise SourceError(
        f"{shown}: this is no text in UTF-8 ({found}); convert it: iconv -f {encoding} -t UTF-8 < old > new, "
        "or take its bytes as they are: --set data.encoding=bytes"
    )
