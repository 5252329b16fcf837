"""Whether data is what it was: a digest that is quick on any size, and what to say about a difference.

An identity is a list of `[name, size, kind, value]`, one for each file in the order they are read; it goes through JSON
unchanged. `kind` is "content" for a digest made here, or the name of the stamp that a server gave, such as an ETag.
"""

import hashlib
from collections import Counter
from os.path import basename
from typing import Any

WHOLE = 1 << 20  # files up to this size are read to the end
ENDS = 1 << 16  # bytes at the head and at the tail of larger ones
PIECE, PIECES = 1 << 12, 64  # and so many pieces evenly spread between
HEX_DIGITS = 32

Identity = list[list[Any]]


def sampled_spans(size: int) -> list[tuple[int, int]]:
    """What `content_digest` reads of a file of this size, in its order: first byte, and the one after the last."""
    if size <= WHOLE:
        return [(0, size)]
    places = [(size - PIECE) * i // (PIECES + 1) for i in range(1, PIECES + 1)]
    return [(0, ENDS), (size - ENDS, size), *((place, place + PIECE) for place in places)]


def content_digest(raw: Any, size: int) -> str:
    """SHA-256 of an open file: of all of it, of samples of a large one, of the head alone where `raw` cannot seek."""
    digest = hashlib.sha256()
    (_, head), *others = sampled_spans(size)
    _add(digest, raw, head)
    for start, stop in others:
        try:
            raw.seek(start)
        except Exception:  # some remote files are mere streams, and each kind has an exception of its own for it
            break
        _add(digest, raw, stop - start)
    return digest.hexdigest()[:HEX_DIGITS]


def _add(digest: Any, raw: Any, size: int) -> None:
    """The next `size` bytes, or as many as there are: a read may give fewer than it was asked for."""
    while size and (piece := raw.read(size)):
        digest.update(piece)
        size -= len(piece)


def identity_difference(old: Identity, new: Identity) -> str | None:
    """What is not as it was, as a part of a sentence; None if all is.

    Folders are not compared, only the names of files in them: data is often copied to another place.
    """
    if len(old) != len(new):
        return _other_files([part[0] for part in old], [part[0] for part in new])
    for number, (before, now) in enumerate(zip(old, new, strict=True), 1):
        if difference := _part_difference(number, before, now):
            return difference
    return None


def _part_difference(number: int, before: list[Any], now: list[Any]) -> str | None:
    (old_name, old_size, old_kind, old_value), (name, size, kind, value) = before, now
    if basename(old_name) != basename(name):
        return f"file {number} was {old_name} and is now {name}"
    if old_size != size:
        return f"{name} was {old_size:,} bytes and is now {size:,}"
    if old_kind != kind:
        return f"{name} was known by its {old_kind} and is now by its {kind}, which cannot be compared"
    return f"{name} has other content than before (same size)" if old_value != value else None


def _other_files(old: list[str], new: list[str]) -> str:
    before, now = (Counter(map(basename, names)) for names in (old, new))
    there = "there was 1 file" if len(old) == 1 else f"there were {len(old):,} files"
    are = f"{'is' if len(new) == 1 else 'are'} now {len(new):,}"
    changes = [_listed(list((before - now).elements()), "gone"), _listed(list((now - before).elements()), "new")]
    return f"{there} and {are}: {' and '.join(filter(None, changes))}"


def _listed(names: list[str], what: str) -> str:
    if not names:
        return ""
    return f"{names[0]} is {what}" if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more are {what}"
