"""Compressed files: whole or refused, never a part of them in silence."""

import bz2
import gzip
import io
import lzma
import sys
import zlib

import pytest

from streamsvm.errors import SourceError
from streamsvm.io import compression
from streamsvm.io.compression import EXTENSIONS, Inflated, Limits, promised, sniff

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = b"".join(b"%d 1:%d 7:0.%d\n" % (i % 2, i * i, i**7) for i in range(150))


def zstd_compress(data: bytes) -> bytes:
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


COMPRESS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstd_compress}


@pytest.fixture(params=["gzip", "gzip without isal", "bzip2", "xz", "zstd"])
def codec(request, monkeypatch):
    if request.param == "gzip without isal":
        monkeypatch.setattr(compression, "_gzip", lambda head: compression._Zlib())
        return "gzip"
    if request.param == "gzip":
        pytest.importorskip("isal")
        assert not isinstance(compression._gzip(gzip.compress(b"")), compression._Zlib)
    return request.param


class Drip(io.BytesIO):
    """A file that gives one byte at a time."""

    def read(self, size=-1):
        return super().read(min(size, 1))


def inflate(data: bytes, codec: str, *, step: int = 5000, raw=io.BytesIO, limits: Limits = Limits()) -> bytes:
    opened = Inflated(raw(data), codec, limits, "file.x")
    view = memoryview(bytearray(step))
    pieces = []
    while got := opened.readinto(view):
        pieces.append(bytes(view[:got]))
    assert opened.readinto(view) == 0
    return b"".join(pieces)


@pytest.mark.parametrize("raw", [io.BytesIO, Drip])
@pytest.mark.parametrize("step", [1, 7, 100, len(TEXT), 1 << 20])
def test_round_trip(codec, raw, step):
    assert inflate(COMPRESS[codec](TEXT), codec, raw=raw, step=step) == TEXT


def test_several_members(codec):
    parts = [TEXT[:100], b"", TEXT[100:101], TEXT[101:]]
    data = b"".join(COMPRESS[codec](part) for part in parts)
    for raw in (io.BytesIO, Drip):
        assert inflate(data, codec, raw=raw) == TEXT
    assert inflate(COMPRESS[codec](b""), codec) == b""


def test_where_a_member_begins_is_remembered(codec):
    first = COMPRESS[codec](TEXT)
    opened = Inflated(io.BytesIO(first + COMPRESS[codec](TEXT[::-1])), codec, Limits(), "file.x")
    view = memoryview(bytearray(5000))
    while opened.readinto(view):
        pass
    assert opened.start_before(len(TEXT)) == compression.MemberStart(len(first), len(TEXT))


@pytest.mark.parametrize("zeros", [1, 3, 4, 512, 300_000])
def test_padding(codec, zeros):
    """Tape blocks are filled up with zeros; a gzip member may follow them too."""
    data = COMPRESS[codec](TEXT) + bytes(zeros)
    if codec in ("gzip", "xz"):
        assert inflate(data, codec) == TEXT
        assert inflate(data + COMPRESS[codec](TEXT), codec) == TEXT * 2
        with pytest.raises(SourceError, match=f"not {codec} follows"):
            inflate(data + b"garbage", codec)
    else:
        with pytest.raises(SourceError, match=f"not {codec} follows"):
            inflate(data, codec)


@pytest.mark.parametrize("garbage", [b"x", b"garbage after the end", TEXT, b"\x1f", b"\x28\xb5", b"BZh9"])
def test_trailing_garbage(codec, garbage):
    for raw in (io.BytesIO, Drip):
        with pytest.raises(SourceError, match="file.x: "):
            inflate(COMPRESS[codec](TEXT) + garbage, codec, raw=raw)


def test_another_codec_after_the_first():
    with pytest.raises(SourceError, match="something that is not gzip follows"):
        inflate(gzip.compress(TEXT) + zstd_compress(TEXT), "gzip")


def test_truncated_at_every_byte(codec):
    data = COMPRESS[codec](TEXT)
    for size in range(len(data)):
        for raw in (io.BytesIO, Drip) if size % 17 == 0 else (io.BytesIO,):
            with pytest.raises(SourceError, match="file.x: (truncated|damaged)"):
                inflate(data[:size], codec, raw=raw)


def test_truncated_in_the_second_member(codec):
    first, second = COMPRESS[codec](TEXT), COMPRESS[codec](TEXT[:50])
    for size in range(1, len(second)):
        with pytest.raises(SourceError):
            inflate(first + second[:size], codec)


def test_every_damaged_byte(codec):
    """A flipped bit is found, or it was in a place that means nothing, such as a file's date."""
    data = COMPRESS[codec](TEXT)
    harmless = 0
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        try:
            assert inflate(bytes(damaged), codec) == TEXT
            harmless += 1
        except SourceError as error:
            assert "file.x: " in str(error) and "\n" not in str(error)
    assert harmless < 20


def test_recognised_by_their_first_bytes():
    for codec, compress in COMPRESS.items():
        assert sniff(compress(TEXT)) == codec
        assert sniff(compress(b"")) == codec
        assert sniff(compress(TEXT)[:1]) is None
    skippable = b"\x53\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    assert sniff(skippable) == "zstd" and inflate(skippable + zstd_compress(TEXT) + skippable, "zstd") == TEXT
    for text in (b"", b"1 1:1\n", b"BZh", b"BZhello 1:1\n", b"BZh9 1:1 2:2\n", b"P*M\n", b"+1"):
        assert sniff(text[:10]) is None


def test_recognised_by_their_name():
    assert {name: promised(f"a/b.svm{name.upper()}") for name in EXTENSIONS} == EXTENSIONS
    assert promised("a.gz.svm") is None and promised("gz") is None


def long_frame(window_log: int) -> bytes:
    options = {zstd.CompressionParameter.window_log: window_log}
    compressor = zstd.ZstdCompressor(options=options)
    return compressor.compress(TEXT) + compressor.flush()


@pytest.mark.parametrize("codec, data", [("zstd", long_frame(24)), ("xz", lzma.compress(TEXT, preset=6))])
def test_window_limit(codec, data):
    assert inflate(data, codec, limits=Limits(window=1 << 25)) == TEXT
    with pytest.raises(SourceError, match="file.x: needs a decompression window above 2 MiB; raise --memory or recom"):
        inflate(data, codec, limits=Limits(window=2 << 20))


def test_zstd_window_limit_is_exact():
    for limit in (1 << 20, (1 << 20) + 1, (1 << 21) - 1):
        assert inflate(long_frame(20), "zstd", limits=Limits(window=limit)) == TEXT
        with pytest.raises(SourceError, match="window"):
            inflate(long_frame(21), "zstd", limits=Limits(window=limit))


def test_expansion_limit(codec, monkeypatch):
    monkeypatch.setattr(compression, "FREE_EXPANSION", 100_000)
    data = COMPRESS[codec](b"0" * 1_000_000)
    ratio = 1_000_000 // len(data)
    assert inflate(data, codec, limits=Limits(expansion=ratio + 1)) == b"0" * 1_000_000
    with pytest.raises(
        SourceError, match=f"more than {ratio // 4} times its size; if that is meant, raise data.max_exp"
    ):
        inflate(data, codec, limits=Limits(expansion=ratio // 4))
    assert inflate(COMPRESS[codec](b"0" * 100_000), codec, limits=Limits(expansion=1)) == b"0" * 100_000


def test_output_never_exceeds_what_was_asked_for(codec):
    """A bomb is not expanded at once: pieces are as long as the view, however far the file would expand."""
    opened = Inflated(io.BytesIO(COMPRESS[codec](b"0" * 3_000_000)), codec, Limits(), "file.x")
    view = memoryview(bytearray(1000))
    sizes = [opened.readinto(view) for _ in range(50)]
    assert max(sizes) <= 1000 and min(sizes) > 0


@pytest.mark.parametrize("flags", range(32))
def test_gzip_header_fields(flags):
    """Extra bytes, a name, a comment and a header checksum in front, split anywhere."""
    body = zlib.compressobj(wbits=-15)
    raw = body.compress(TEXT) + body.flush()
    head = bytes([0x1F, 0x8B, 8, flags, 10, 0, 0, 0, 0, 3])
    head += b"\x05\0extra" * bool(flags & 4) + b"name.svm\0" * bool(flags & 8) + b"a comment\0" * bool(flags & 16)
    head += (zlib.crc32(head) & 0xFFFF).to_bytes(2, "little") * bool(flags & 2)
    member = head + raw + zlib.crc32(TEXT).to_bytes(4, "little") + len(TEXT).to_bytes(4, "little")
    assert gzip.decompress(member) == TEXT
    for first in (1, 5, 10, 13, 17, 25, 30, len(member)):
        pieces = iter([member[:first], member[first:] + member[:first], member[first:]])
        source = io.BytesIO()
        source.read = lambda size, pieces=pieces: next(pieces, b"")
        assert inflate(b"", "gzip", raw=lambda data, source=source: source) == TEXT * 2
    assert inflate(member, "gzip", raw=Drip) == TEXT
