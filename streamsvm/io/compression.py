"""gzip, bzip2, xz and zstd as a stream of plain bytes, within limits.

Every codec is brought to one protocol, that of Python's bz2: `decompress(data, max_length)`, `needs_input`, `eof`,
`unused_data`. Memory stays bounded because output is asked for in pieces; a window limit keeps a frame from asking for
gigabytes of history, and an expansion limit stops a small file that would never end.

A file may be a row of members (gzip), streams (bzip2, xz) or frames (zstd), each of which can be inflated without what
is before it. Where they begin is remembered, so that reading can go on near the place where it was left.
"""

import bz2
import gzip
import lzma
import sys
import zlib
from typing import Any, NamedTuple, Protocol

from streamsvm.errors import SourceError

PIECE = 256 * 1024  # compressed bytes read at a time
FREE_EXPANSION = 1 << 30  # bytes of output that need no excuse
FINENESS = 128  # starts of members are kept at least this fraction of the text in flight apart

MAGIC = {
    "gzip": b"\x1f\x8b",
    "bzip2": b"BZh",
    "xz": b"\xfd7zXZ\x00",
    "zstd": b"\x28\xb5\x2f\xfd",
}
EXTENSIONS = {".gz": "gzip", ".gzip": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd", ".zstd": "zstd"}
HEAD = 10  # bytes that `sniff` wants to see


class Limits(NamedTuple):
    """How much a compressed file may ask for."""

    window: int = 128 << 20  # bytes of history a decompressor may keep
    expansion: int = 1000  # bytes out for one byte in, once past FREE_EXPANSION


class MemberStart(NamedTuple):
    """Where a decompressor can begin."""

    stored: int = 0  # bytes of the file before it
    text: int = 0  # bytes of plain text before it


FIRST_MEMBER = MemberStart()


class Decompressor(Protocol):
    eof: bool
    needs_input: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class Readable(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


def sniff(head: bytes) -> str | None:
    """The codec that the first bytes of a file announce."""
    for name, magic in MAGIC.items():
        if head.startswith(magic):
            if name == "bzip2" and not (head[3:4].isdigit() and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90")):
                continue  # text that happens to start with BZh
            return name
    if len(head) >= 4 and head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F:
        return "zstd"  # starts with a skippable frame
    return None


def promised(name: str) -> str | None:
    """The codec that a file's name announces."""
    lowered = name.lower()
    return next((codec for ending, codec in EXTENSIONS.items() if lowered.endswith(ending)), None)


class _Zlib:
    """zlib's decompressor, brought to the common protocol."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)
        self.needs_input = True

    def decompress(self, data: bytes, max_length: int) -> bytes:
        out = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        self.needs_input = not self._inner.unconsumed_tail and len(out) < max_length
        return out

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data


def _gzip(head: bytes) -> Any:
    """isal is faster, but (in 1.8) trips over a header with several fields that comes in pieces."""
    try:
        from isal import igzip_lib
    except ImportError:
        return _Zlib()
    if head[3:4] not in (b"\0", b"\4", b"\10", b"\20"):  # nothing, extra bytes, a name, a comment
        return _Zlib()
    return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)


def _zstd(window: int) -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: max(10, min(31, window.bit_length() - 1))}
    return zstd.ZstdDecompressor(options=options)


def compressed(out: Any, codec: str) -> Any:
    """A file whose content is written to `out` compressed; closing it leaves `out` open."""
    if codec == "gzip":
        return gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=out, mtime=0)
    if codec == "bzip2":
        return bz2.BZ2File(out, "wb")
    if codec == "xz":
        return lzma.LZMAFile(out, "wb", preset=3)
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.ZstdFile(out, "wb")


def _decompressor(codec: str, window: int, head: bytes) -> Any:
    if codec == "gzip":
        return _gzip(head)
    if codec == "bzip2":
        return bz2.BZ2Decompressor()
    if codec == "xz":
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=window)
    return _zstd(window)


class Inflated:
    """A compressed file read as plain bytes; concatenated members and frames follow one another.

    `raw` stands at `start`, which is the beginning or what `start_before` said in an earlier reading. Bytes are counted
    from the beginning of the file in either case, so that the expansion limit means the same.
    """

    def __init__(
        self, raw: Readable, codec: str, limits: Limits, shown: str, start: MemberStart = FIRST_MEMBER
    ) -> None:
        self._raw = raw
        self._codec = codec
        self._limits = limits
        self._shown = shown
        self._read = start.stored
        self._written = start.text
        self._starts = [start]
        self._pending = self._head(b"")
        if start.stored and self._pending and sniff(self._pending[:HEAD]) != codec:
            raise SourceError(
                f"{shown}: not the file it was: no {codec} data begins at byte {start.stored}; bring back the old file"
            )
        self._member: Decompressor = _decompressor(codec, limits.window, self._pending)

    def start_before(self, offset: int) -> MemberStart:
        """The last known start with at most `offset` bytes of text before it; never ask for a lower offset later.

        The reader is ahead of whoever asks: members that begin after `offset` may have been inflated already.
        """
        while len(self._starts) > 1 and self._starts[1].text <= offset:
            del self._starts[0]
        return self._starts[0]

    def _remember(self, start: MemberStart) -> None:
        """Keep it unless the one before is close: their number grows with the logarithm of the text in flight only."""
        if start.text - self._starts[-1].text > (start.text - self._starts[0].text) // FINENESS:
            self._starts.append(start)

    def _more(self) -> bytes:
        data = self._raw.read(PIECE) or b""
        self._read += len(data)
        return data

    def _head(self, data: bytes) -> bytes:
        """`data` and as much more as it takes to tell what it is."""
        while len(data) < HEAD and (more := self._more()):
            data += more
        return data

    def _next_member(self) -> bool:
        """Move on to the next member after the end of one; False at the end of the file."""
        rest = self._member.unused_data or self._more()
        while self._codec in ("gzip", "xz") and rest and not rest.strip(b"\0"):
            rest = self._more()  # padding
        if self._codec in ("gzip", "xz"):
            rest = rest.lstrip(b"\0")
        if not rest:
            return False
        start = MemberStart(self._read - len(rest), self._written)
        self._pending = self._head(rest)
        if sniff(self._pending[:HEAD]) != self._codec:
            raise SourceError(f"{self._shown}: something that is not {self._codec} follows the {self._codec} data")
        self._member = _decompressor(self._codec, self._limits.window, self._pending)
        self._remember(start)
        return True

    def readinto(self, view: memoryview) -> int:
        """Fill as much of `view` as the next piece gives; 0 at the end."""
        while True:
            if self._member.eof:
                if not self._next_member():
                    return 0
            elif self._member.needs_input and not self._pending:
                self._pending = self._more()
                if not self._pending:
                    raise SourceError(f"{self._shown}: truncated: the {self._codec} data ends too early")
            data, self._pending = self._pending, b""
            try:
                out = self._member.decompress(data, len(view))
            except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
                raise SourceError(self._complaint(error)) from error
            except Exception as error:
                if type(error).__name__ not in ("ZstdError", "IsalError"):
                    raise
                raise SourceError(self._complaint(error)) from error
            if out:
                view[: len(out)] = out
                self._written += len(out)
                if self._written > FREE_EXPANSION and self._written > self._limits.expansion * self._read:
                    raise SourceError(
                        f"{self._shown}: expands to more than {self._limits.expansion} times its size; "
                        "if that is meant, raise data.max_expansion"
                    )
                return len(out)

    def _complaint(self, error: Exception) -> str:
        text = str(error)
        if "memory" in text.lower():
            window = self._limits.window >> 20
            return f"{self._shown}: needs a decompression window above {window} MiB; raise --memory or recompress it"
        return f"{self._shown}: damaged {self._codec} data ({text})"
