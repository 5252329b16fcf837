"""Named arrays and a few texts in one file: safetensors, with a checksum over every byte.

safetensors has no checksum of its own. Ours is a SHA-256 over the whole file, taken with the digest's own 64 characters
as zeros, and part of the metadata, which any safetensors reader shows. A file is written piece by piece, so that saving
needs no second copy of its arrays; reading goes through the safetensors library, which checks the layout.
"""

import hashlib
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm import __version__
from streamsvm.errors import ModelError

LARGEST_HEADER = 100_000_000
BLANK = "0" * 64
NAMES = {
    np.dtype(code): name
    for code, name in {"<f8": "F64", "<i8": "I64", "<u8": "U64", "<f4": "F32", "<u4": "U32", "|b1": "BOOL"}.items()
}

Array = npt.NDArray[Any]


class Kind(NamedTuple):
    """What a file is: the word for it in its metadata, its latest version, and what people call it."""

    format: str
    version: int
    called: str


class Content(NamedTuple):
    """What a file holds."""

    kind: Kind
    metadata: dict[str, str]
    arrays: dict[str, Array]


def save(kind: Kind, metadata: Mapping[str, str], arrays: Mapping[str, Array], write: Callable[[Any], Any]) -> None:
    """Hand the bytes of a file to `write`, piece by piece."""
    digest = hashlib.sha256()
    for piece in _pieces(kind, metadata, arrays, BLANK):
        digest.update(piece)
    for piece in _pieces(kind, metadata, arrays, digest.hexdigest()):
        write(piece)


def _pieces(
    kind: Kind, metadata: Mapping[str, str], arrays: Mapping[str, Array], checksum: str
) -> Iterator[bytes | memoryview]:
    """The header, then the arrays, those of wide numbers first, so that each begins at a multiple of its width."""
    texts = {
        "format": kind.format,
        "format_version": str(kind.version),
        "checksum": checksum,
        "streamsvm": __version__,
        **metadata,
    }
    flat = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    flat = {name: array.astype(array.dtype.newbyteorder("<"), copy=False) for name, array in flat.items()}
    order = sorted(flat, key=lambda name: -flat[name].itemsize)
    header: dict[str, Any] = {"__metadata__": texts}
    end = 0
    for name in order:
        array, start = flat[name], end
        end += array.nbytes
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text))
    yield text
    for name in order:
        yield flat[name].reshape(-1).view(np.uint8).data


def load(content: bytes, shown: str, kinds: Sequence[Kind]) -> Content:
    """What is in a file of one of these kinds; ModelError says why if it is truncated, damaged, foreign or too new."""
    metadata = _metadata(content, shown, kinds[0])
    kind = next((kind for kind in kinds if kind.format == metadata.get("format")), None)
    if kind is None:
        raise ModelError(f"{shown}: not a streamsvm {kinds[0].called}")
    version = metadata.get("format_version", "")
    if version not in [str(known) for known in range(1, kind.version + 1)]:
        raise ModelError(
            f"{shown}: written by streamsvm {metadata.get('streamsvm', '?')} in format version {version[:20] or '?'}; "
            f"this is {__version__}, which reads versions up to {kind.version}: upgrade streamsvm"
        )
    _check(content, metadata, shown)
    import safetensors.numpy

    try:
        return Content(kind, metadata, safetensors.numpy.load(content))
    except Exception as error:
        raise ModelError(f"{shown}: damaged {kind.called} ({error})") from error


def _metadata(content: bytes, shown: str, kind: Kind) -> dict[str, str]:
    """The safetensors metadata, as far as a file can be trusted that has not been checked yet."""
    if len(content) < 8:
        raise ModelError(f"{shown}: not a {kind.called}: the file has only {len(content)} bytes")
    (length,) = struct.unpack("<Q", content[:8])
    if length > LARGEST_HEADER:
        raise ModelError(f"{shown}: not a streamsvm {kind.called}")
    if len(content) < 8 + length:
        raise ModelError(f"{shown}: truncated or damaged: {len(content)} bytes, the header alone has {8 + length}")
    try:
        metadata = json.loads(content[8 : 8 + length])["__metadata__"]
        return {str(key): str(value) for key, value in metadata.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{shown}: not a streamsvm {kind.called}, or its header is damaged") from error


def _check(content: bytes, metadata: Mapping[str, str], shown: str) -> None:
    stored = metadata.get("checksum", "")
    found = content.find(f'"checksum":"{stored}"'.encode("ascii", "replace"))
    if len(stored) != 64 or found < 0:
        raise ModelError(f"{shown}: damaged: it has no checksum")
    start = found + len('"checksum":"')
    digest = hashlib.sha256(content[:start])
    digest.update(BLANK.encode())
    digest.update(memoryview(content)[start + 64 :])
    if digest.hexdigest() != stored:
        raise ModelError(f"{shown}: truncated or damaged: the checksum does not match")
