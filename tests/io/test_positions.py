"""Reading that goes on where another stopped: the same lines at the same places, and never those of other data."""

import bz2
import gzip
import io
import itertools
import json
import lzma
import os
import sys
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from streamsvm.errors import SourceError
from streamsvm.io import compression, parts
from streamsvm.io import source as rooms
from streamsvm.io.compression import FIRST_MEMBER, Inflated, Limits
from streamsvm.io.identity import identity_difference
from streamsvm.io.parts import Part
from streamsvm.io.source import BEGINNING, Block, Position, Source

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Line = tuple[str, int, bytes]
Put = Callable[[str, bytes], str]
LINES = [b"%d 1:%d 7:0.%d" % (i % 2, i * i, i ** (i % 9)) for i in range(40)]
TEXT = b"\n".join(LINES) + b"\n"
MEMBERS = [TEXT[:100], b"", TEXT[100:101], TEXT[101:300], TEXT[300:450], TEXT[450:]]  # most begin within a line
SKIPPABLE = b"\x53\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"


def named(data: bytes) -> bytes:
    """A gzip member whose header has a name and a comment, which is zlib's and not isal's."""
    raw = zlib.compressobj(wbits=-15)
    body = raw.compress(data) + raw.flush()
    head = bytes([0x1F, 0x8B, 8, 24, 10, 0, 0, 0, 0, 3]) + b"name.svm\0comment\0"
    return head + body + zlib.crc32(data).to_bytes(4, "little") + len(data).to_bytes(4, "little")


def with_name(data: bytes) -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile("rows.svm", "wb", fileobj=out) as file:
        file.write(data)
    return out.getvalue()


# How texts, one for each member, become a file; and whether it has members that reading can begin at.
KINDS: dict[str, tuple[Callable[[list[bytes]], bytes], bool]] = {
    "plain": (b"".join, False),
    "gzip": (lambda texts: gzip.compress(b"".join(texts)), False),
    "gzip, named": (lambda texts: with_name(b"".join(texts)), False),
    "gzip, members": (lambda texts: b"".join(map(gzip.compress, texts)), True),
    "gzip, members for zlib": (lambda texts: b"".join(map(named, texts)), True),
    "gzip, padded members": (lambda texts: bytes(700).join(map(gzip.compress, [*texts, b""])), True),
    "bzip2": (lambda texts: b"".join(map(bz2.compress, texts)), True),
    "xz": (lambda texts: b"".join(map(lzma.compress, texts)), True),
    "xz, padded": (lambda texts: bytes(8).join(map(lzma.compress, texts)), True),
    "zstd": (lambda texts: b"".join(map(zstd.compress, texts)), True),
    "zstd, skippable": (lambda texts: SKIPPABLE.join([b"", *map(zstd.compress, texts), b""]), True),
}


@pytest.fixture(params=[5, 64, compression.PIECE])
def piece(request: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many stored bytes are read at a time: ends of members fall anywhere in them."""
    monkeypatch.setattr(compression, "PIECE", request.param)
    return int(request.param)


class Heap:
    def take(self, size: int) -> bytearray:
        return bytearray(size + 1)

    def give_back(self, buffer: bytearray) -> None: ...


def read(source: Source, block_size: int, start: Position = BEGINNING) -> list[Block]:
    return list(source.blocks(block_size, Heap(), lambda: False, start))


def lines_of(blocks: list[Block]) -> list[Line]:
    """Every line with the place where it begins: what must not depend on where reading began."""
    found = []
    for buffer, size, origin, *_ in blocks:
        offset = origin.offset
        for line in bytes(buffer[:size]).splitlines(keepends=True):
            found.append((origin.url, offset, line))
            offset += len(line)
    return found


def goes_on_everywhere(source: Source, block_size: int) -> list[Block]:
    """From the end of every block the rest is that of the whole reading; that reading."""
    whole = read(source, block_size)
    for i, block in enumerate(whole):
        assert lines_of(read(source, block_size, block.after)) == lines_of(whole[i + 1 :]), block.after
    return whole


def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by what is read of each stored file."""
    sizes: list[int] = []

    class Counted(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:  # type: ignore[override]
            data = super().read(size) or b""
            sizes.append(len(data))
            return data

        def readinto(self, view: Any) -> int:
            sizes.append(super().readinto(view) or 0)
            return sizes[-1]

    monkeypatch.setattr(parts, "open", lambda path, *_, **__: Counted(path), raising=False)
    return sizes


# Every place of one file.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block_size", [1, 30, 64, 200, len(TEXT), 4096])
def test_every_block_of_every_kind(put: Put, kind: str, block_size: int, piece: int) -> None:
    make, several = KINDS[kind]
    whole = goes_on_everywhere(Source([put("rows", make(MEMBERS))]), block_size)
    assert b"".join(line for _, _, line in lines_of(whole)) == TEXT
    if block_size <= len(TEXT):  # with larger ones the end is known at once
        assert any(block.after.stored for block in whole) == several


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n", b"\r\n", b"x\r"])
def test_ends_of_lines_and_files(put: Put, kind: str, end: bytes) -> None:
    """A newline that was added is no byte of the file, and CRLF is cut after the LF alone."""
    text = TEXT[:200].replace(b"\n", b"\r\n") + end
    source = Source([put("rows", KINDS[kind][0]([text[:70], text[70:]]))])
    for block_size in (1, 20, 64, len(text) - 1, len(text), len(text) + 1, 1000):
        whole = goes_on_everywhere(source, block_size)
        assert whole[-1].after in (Position(1), Position(0, len(text), *whole[-1].after[2:]))


@pytest.mark.parametrize("kind", KINDS)
def test_every_block_by_another_reader(put: Put, kind: str, piece: int) -> None:
    """Positions of a reading that began in the middle are as good as those of the first."""
    path = put("rows", KINDS[kind][0](MEMBERS))
    place, found = Position(), []
    while True:
        with closing(Source([path]).blocks(50, Heap(), lambda: False, place)) as blocks:
            block = next(blocks, None)
        if block is None:
            break
        found.append(block)
        assert block.after.part or block.after.stored >= place.stored, "what is known of members is not forgotten"
        place = Position(*json.loads(json.dumps(block.after)))
    assert lines_of(found) == lines_of(read(Source([path]), 50))
    assert len(found) > 10


def test_gzip_without_isal(put: Put, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(compression, "_gzip", lambda head: compression._Zlib())
    for kind in ("gzip", "gzip, members", "gzip, padded members"):
        goes_on_everywhere(Source([put("rows.gz", KINDS[kind][0](MEMBERS))]), 64)


@examples(80)
@given(
    members=st.lists(st.text("1:.\n\r", max_size=60).map(str.encode), min_size=1, max_size=8),
    kind=st.sampled_from(list(KINDS)),
    block_size=st.integers(1, 80),
    piece=st.integers(1, 90),
)
def test_any_text_in_any_members(
    tmp_path_factory: pytest.TempPathFactory, members: list[bytes], kind: str, block_size: int, piece: int
) -> None:
    path = tmp_path_factory.mktemp("any") / "rows"
    path.write_bytes(KINDS[kind][0](members))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, "PIECE", piece)
        goes_on_everywhere(Source([str(path)]), block_size)


# Several files.


@pytest.mark.parametrize("block_size", [1, 10, 20, 40, 1000])
def test_places_in_several_files(put: Put, block_size: int) -> None:
    source = Source(
        [
            put("1", b"1 1:1\n2 2:2\n3 3:3"),
            put("2", b""),
            put("3.gz", gzip.compress(b"4 4:4\n") + gzip.compress(b"5 5:5\n6 6:6")),
            put("4.gz", gzip.compress(b"")),
            put("5", b"7 7:7\n8 8:8\n"),
            put("6", b""),
        ]
    )
    whole = goes_on_everywhere(source, block_size)
    assert [line[:1] for _, _, line in lines_of(whole)] == [b"%d" % i for i in range(1, 9)]
    assert {block.after.part for block in whole} >= {1, 3}
    for part, rest in enumerate([8, 5, 5, 2, 2, 0, 0]):
        assert len(lines_of(read(source, block_size, Position(part)))) == rest


def test_the_end_of_a_file_that_was_not_yet_known(put: Put) -> None:
    """A block that ends where its file does may come before that is known: going on there is going on with the next."""
    text = b"1 1:1\n2 2:2\n"
    for first in (put("a", text), put("a.gz", gzip.compress(text)), put("a.zst", zstd.compress(text) + SKIPPABLE)):
        source = Source([first, put("b", b"3\n")])
        blocks = read(source, len(text))
        assert blocks[0].after[:2] == (0, len(text))
        assert lines_of(read(source, len(text), blocks[0].after)) == [(source.parts[1].shown, 0, b"3\n")]


def test_the_end_of_a_file_is_the_next_file(put: Put) -> None:
    source = Source([put("a", b"1\n2"), put("b.xz", lzma.compress(b"3\n"))])
    assert [block.after for block in read(source, 1000)] == [Position(1), Position(2)]
    assert read(source, 1000, Position(2)) == []


def test_fewer_files_than_before(put: Put) -> None:
    with pytest.raises(SourceError, match="files are missing, .*: 3 had been read, 1 are there now; bring back"):
        read(Source([put("a", b"1\n")]), 10, Position(3))


# Quick.


def test_plain_files_are_not_read_up_to_the_place(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source([put("a", TEXT)])
    sizes = bytes_read(monkeypatch)
    read(source, 100, Position(0, len(TEXT) - 20))
    assert sum(sizes) == compression.HEAD + 20


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind][1]])
def test_members_before_the_place_are_not_read(put: Put, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(compression, "PIECE", 100)
    source = Source([put("a", KINDS[kind][0]([TEXT] * 20))])
    place = read(source, 200)[-2].after
    assert place.text >= 18 * len(TEXT)
    sizes = bytes_read(monkeypatch)
    read(source, 200, place)
    assert 0 < sum(sizes) < source.parts[0].size / 5


def test_passing_over_text_can_be_stopped(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when much of it comes from few stored bytes; the files after this one are not opened any more."""
    size = 50 << 20
    path = put("a", gzip.compress(b"0\n" * (size // 2), 1))
    calls = itertools.count()
    inflated, opened = [], []
    usual, usual_open = Inflated.readinto, rooms.open_part

    def readinto(self: Inflated, view: memoryview) -> int:
        inflated.append(usual(self, view))
        return inflated[-1]

    def count(part: Part, **more: Any) -> Any:
        opened.append(part)
        return usual_open(part, **more)

    monkeypatch.setattr(Inflated, "readinto", readinto)
    monkeypatch.setattr(rooms, "open_part", count)
    source = Source([path, path, path])
    assert list(source.blocks(1 << 20, Heap(), lambda: next(calls) > 9, Position(0, size))) == []
    assert 0 < sum(inflated) < size / 20 and len(opened) == 1


def test_ten_thousand_tiny_members() -> None:
    """Their places are not all kept, and those that are lie close to where reading stopped."""
    texts = [b"%d\n" % i for i in range(10_000)]
    data = b"".join(map(gzip.compress, texts))
    text = b"".join(texts)
    opened = Inflated(io.BytesIO(data), "gzip", Limits(), "a")
    view = memoryview(bytearray(1 << 16))
    read_so_far = 0
    while got := opened.readinto(view):
        read_so_far += got
        assert len(opened._starts) < 1000
    assert read_so_far == len(text)
    for offset in (0, 1, 777, 20_000, 40_000, len(text) - 100, len(text) - 10, len(text)):
        start = opened.start_before(offset)
        assert offset - len(text) // 64 < start.text <= offset
        assert gzip.decompress(data[start.stored :]) == text[start.text :]
    assert len(opened._starts) == 1


def test_a_place_between_two_members(put: Put) -> None:
    """Nothing is inflated in vain, if the reader has begun with the second."""
    source = Source([put("a.gz", b"".join(gzip.compress(b"%09d\n" % i) for i in range(100)))])
    for block in read(source, 15)[:-1]:
        assert block.after.text == block.after.offset


def test_places_are_close_also_where_many_are_forgotten(put: Put) -> None:
    """Tiny members, and a reader that is many of them ahead: at most a small share of a block is inflated in vain."""
    text = (b"12345\n" * 200 + b"x" * 5999 + b"\n") * 5
    path = put("a.gz", b"".join(gzip.compress(text[i : i + 6]) for i in range(0, len(text), 6)))
    gaps = [block.after.offset - block.after.text for block in goes_on_everywhere(Source([path]), 6200)[:-1]]
    assert len(gaps) > 4 and min(gaps) >= 0 and max(gaps) < 6200 / 64


def test_empty_members_take_no_memory() -> None:
    opened = Inflated(io.BytesIO(gzip.compress(b"") * 10_000), "gzip", Limits(), "a")
    assert opened.readinto(memoryview(bytearray(10))) == 0
    assert opened._starts == [FIRST_MEMBER]


# Limits hold from any place.


@pytest.mark.parametrize("codec", ["gzip", "bzip2", "xz", "zstd"])
def test_expansion_is_that_of_the_whole_file(put: Put, monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    make = KINDS["gzip, members" if codec == "gzip" else codec][0]
    monkeypatch.setattr(compression, "FREE_EXPANSION", 100_000)
    noise = b"".join(b"%s\n" % os.urandom(50).hex().encode() for _ in range(900))
    path = put("a", make([noise, b"0\n" * 30_000]))
    for expansion, fits in ((5, True), (1, False)):  # after the noise alone it is a hundred and more
        source = Source([path], limits=Limits(expansion=expansion))
        place = None
        try:
            for block in source.blocks(4096, Heap(), lambda: False):
                place = block.after if block.after.stored and not place else place
            assert fits
        except SourceError as error:
            assert not fits and "expands to more than" in str(error)
        assert place and place.text == len(noise)
        if fits:
            assert read(source, 4096, place)
        else:
            with pytest.raises(SourceError, match="expands to more than 1 times its size"):
                read(source, 4096, place)


def test_what_a_file_is_is_told_by_its_first_bytes(put: Put) -> None:
    for name, data, message in [
        ("a.gz", TEXT, "does not hold gzip data"),
        ("a.zst", gzip.compress(TEXT), "does not hold zstd data"),
        ("a.xz", b"", "is empty, although"),
        ("a", b"PAR1" + TEXT, "Parquet"),
    ]:
        with pytest.raises(SourceError, match=message):
            read(Source([put(name, data)]), 100, Position(0, 20))


# Files that are not what they were.


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_shrank(put: Put, kind: str) -> None:
    make = KINDS[kind][0]
    place = read(Source([put("rows", make(MEMBERS))]), 64)[-2].after
    for texts in (MEMBERS[:-1], MEMBERS[:1], [TEXT[: place.offset - 1]]):
        source = Source([put("rows", make(texts))])
        with pytest.raises(SourceError, match="rows: (shorter than it was|not the file it was|truncated)") as caught:
            read(source, 64, place)
        assert "\n" not in str(caught.value)


def test_a_file_that_is_cut_where_reading_stopped(put: Put) -> None:
    """Nothing of what was read is missing, and there is nothing more: that is an end like any other."""
    place = read(Source([put("rows", TEXT)]), 64)[3].after
    assert read(Source([put("rows", TEXT[: place.offset])]), 64, place) == []
    with pytest.raises(SourceError, match="rows: shorter than it was, so reading cannot go on where it stopped"):
        read(Source([put("rows", TEXT[: place.offset - 1])]), 64, place)


def test_a_compressed_file_that_is_cut(put: Put) -> None:
    data = KINDS["gzip, members"][0](MEMBERS)
    place = read(Source([put("rows.gz", data)]), 64)[-2].after
    assert place.stored > 40
    for size in range(20, len(data)):
        with pytest.raises(SourceError, match="shorter than it was|truncated|no gzip data begins"):
            read(Source([put("rows.gz", data[:size])]), 64, place)


def test_another_file_in_its_place(put: Put) -> None:
    place = read(Source([put("rows", KINDS["zstd"][0](MEMBERS))]), 64)[-2].after
    source = Source([put("rows", zstd.compress(os.urandom(5000)))])
    with pytest.raises(SourceError, match=f"no zstd data begins at byte {place.stored}; bring back the old file"):
        read(source, 64, place)


@pytest.mark.parametrize("place", [Position(0, 2), Position(1)])
def test_standard_input_has_no_places(place: Position, tmp_path: Path) -> None:
    message = "standard input can be read only once, so a run on it cannot be resumed; save it as a file first"
    with pytest.raises(SourceError, match=message):
        read(Source(["-"]), 10, place)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="pipe can be read only once, so"):
        read(Source([str(tmp_path / "pipe")]), 10, place)


# Other file systems.


class OneWay(io.RawIOBase):
    """A remote file that is a mere stream, as a web server without ranges gives."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, view: Any) -> int:
        return self._data.readinto(memoryview(view)[:1000])

    def seek(self, place: int, whence: int = 0) -> int:
        raise ValueError("Cannot seek streaming HTTP file")


@pytest.fixture(params=["seekable", "stream"])
def remote(request: Any, bucket: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """memory://, with files that can seek or cannot."""
    if request.param == "stream":
        usual = type(bucket).open

        def one_way(self: Any, path: str, mode: str = "rb", **more: Any) -> Any:
            return OneWay(self.cat_file(path)) if mode == "rb" else usual(self, path, mode, **more)

        monkeypatch.setattr(type(bucket), "open", one_way)
    return bucket


@pytest.mark.parametrize("kind", KINDS)
def test_remote_files(remote: Any, kind: str, piece: int) -> None:
    data = KINDS[kind][0](MEMBERS)
    remote.pipe_file("/rows/1", data)
    remote.pipe_file("/rows/2", b"last")
    whole = goes_on_everywhere(Source(["memory://rows/*"]), 64)
    remote.pipe_file("/rows/1", KINDS[kind][0]([TEXT[:50]]))
    place = max(block.after for block in whole if block.after.part == 0)
    with pytest.raises(SourceError, match="memory:///rows/1: (shorter|not the file|truncated)"):
        read(Source(["memory://rows/*"]), 64, place)


# Identity.


def identity(*urls: str) -> Any:
    """As it comes back from a file of JSON."""
    return json.loads(json.dumps(Source(list(urls)).identity()))


def large(size: int = 3_000_000) -> bytearray:
    return bytearray(b"".join(b"%d\n" % i for i in range(size // 7))[:size])


def test_times_and_folders_do_not_matter(put: Put) -> None:
    for content in (b"1 1:1\n", large()):
        path, copy = put("a.svm", content), put("elsewhere/a.svm", content)
        before = identity(path)
        os.utime(path, ns=(1, 1))
        assert identity(path) == before and before[0][:3] == [path, len(content), "content"]
        assert len(before[0][3]) == 32
        assert identity_difference(before, identity(copy)) is None


def test_a_changed_byte_of_a_small_file(put: Put) -> None:
    for content in (bytearray(b"1 1:1\n"), large(1 << 20)):
        before = identity(put("a.svm", content))
        for place in (0, len(content) // 2, len(content) - 1):
            changed = bytearray(content)
            changed[place] ^= 1
            path = put("a.svm", changed)
            assert identity_difference(before, identity(path)) == f"{path} has other content than before (same size)"


def test_a_changed_stretch_of_a_large_file(put: Put) -> None:
    """A stretch longer than a 65th is seen anywhere, and any byte of the ends."""
    content = large()
    before = identity(put("a.svm", content))
    stretch = len(content) // 65 + 4096
    for place in range(0, len(content) - stretch + 1, 20_000):
        changed = bytearray(content)
        changed[place : place + stretch] = bytes(stretch)
        assert identity_difference(before, identity(put("a.svm", changed))), place
    for place in (0, 65_535, len(content) - 65_536, len(content) - 1):
        changed = bytearray(content)
        changed[place] ^= 1
        assert identity_difference(before, identity(put("a.svm", changed))), place


def test_large_files_are_only_sampled(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source([put("a.svm", large())])
    sizes = bytes_read(monkeypatch)
    source.identity()
    assert sum(sizes) == 2 * 65_536 + 64 * 4096


def test_differences_are_named(put: Put) -> None:
    paths = [put(f"part-{i}.svm", b"%d\n" % i * 512) for i in range(1, 5)]
    one, two, three, four = (identity(path)[0] for path in paths)
    assert identity_difference([one, two], [one, two]) is None
    before = identity(paths[2])
    put("part-3.svm", b"3\n" * 1024)
    assert identity_difference(before, identity(paths[2])) == f"{paths[2]} was 1,024 bytes and is now 2,048"
    for old, new, said in [
        ([one, two, three], [one, two, three, four], "there were 3 files and are now 4: part-4.svm is new"),
        ([one, two], [two], "there were 2 files and is now 1: part-1.svm is gone"),
        ([one], [one, two, three, four], "there was 1 file and are now 4: part-2.svm and 2 more are new"),
        ([one, two], [one, three, four], "part-2.svm is gone and part-3.svm and 1 more are new"),
        ([one, one, two], [one, two], "there were 3 files and are now 2: part-1.svm is gone"),
        ([one, two], [two, one], f"file 1 was {paths[0]} and is now {paths[1]}"),
    ]:
        assert (identity_difference(old, new) or "").endswith(said)


def test_remote_identity(remote: Any) -> None:
    """Servers that say when a file was written, but not what is in it, are asked for its content."""
    for content in (bytearray(b"1 1:1\n"), large()):
        remote.pipe_file("/a.svm", bytes(content))
        before = identity("memory://a.svm")
        remote.pipe_file("/a.svm", bytes(content))
        assert identity("memory://a.svm") == before and before[0][:3] == ["memory://a.svm", len(content), "content"]
        content[min(60_000, len(content)) - 1] ^= 1
        remote.pipe_file("/a.svm", bytes(content))
        assert "other content" in identity_difference(before, identity("memory://a.svm"))


def test_an_etag_says_it_without_reading(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.pipe_file("/a.svm", b"1\n")
    by_content = identity("memory://a.svm")
    stamps = {"ETag": "abc d", "LastModified": "today"}
    usual = type(bucket).info
    monkeypatch.setattr(type(bucket), "info", lambda self, path, **more: {**usual(self, path, **more), **stamps})
    monkeypatch.setattr(type(bucket), "open", None)
    before = identity("memory://a.svm")
    assert before == [["memory://a.svm", 2, "ETag", "abc d"]]
    stamps["LastModified"] = "tomorrow"
    assert identity("memory://a.svm") == before
    stamps["ETag"] = "other"
    said = identity_difference(before, identity("memory://a.svm"))
    assert said == "memory://a.svm has other content than before (same size)"
    said = identity_difference(before, by_content)
    assert said == "memory://a.svm was known by its ETag and is now by its content, which cannot be compared"


def test_no_identity(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put("a.svm", b"1\n")
    with pytest.raises(SourceError, match="^standard input can be read only once, so a run on it cannot be resumed"):
        Source([path, "-"]).identity()
    source = Source([path])
    os.unlink(path)
    with pytest.raises(SourceError, match="a.svm: cannot open: No such file"):
        source.identity()

    class Disk(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(parts, "open", lambda *_, **__: Disk(), raising=False)
    with pytest.raises(SourceError, match="a.svm: cannot read: Input/output error"):
        source.identity()
