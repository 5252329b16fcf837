"""From names and values to numbers: the hash behind every categorical feature, the same for every file format.

    word(column, value) = murmur3_32(value, seed = murmur3_32(column, seed = 0)), 1 where that is 0
    feature index       = first + (word mod 2^hash_bits)            first: after the features that need no hash
    feature sign        = -1 where bit 31 of the word is set, else +1

murmur3_32 is Austin Appleby's MurmurHash3_x86_32 over the UTF-8 bytes. The sign makes features that fall on the same
index cancel on average instead of adding up. A word is never 0: that stands for a value that is missing. Words of
features that belong together (interactions, n-grams) are chained with `cross`, which is not symmetric.
"""

import numpy as np

from streamsvm.jit import inlined, load8, load32, quick

_C1, _C2 = np.uint64(0xCC9E2D51), np.uint64(0x1B873593)
_FIVE, _ADDED = np.uint64(5), np.uint64(0xE6546B64)
_F1, _F2 = np.uint64(0x85EBCA6B), np.uint64(0xC2B2AE35)
_LOW = np.uint64(0xFFFFFFFF)
_SIGN = np.uint64(31)
MISSING = 0


@inlined
def scrambled(k):
    """Four bytes of text, ready to be mixed in."""
    k = (k * _C1) & _LOW
    k = ((k << np.uint64(15)) | (k >> np.uint64(17))) & _LOW
    return (k * _C2) & _LOW


@inlined
def mixed_in(h, k):
    h ^= scrambled(k)
    h = ((h << np.uint64(13)) | (h >> np.uint64(19))) & _LOW
    return (h * _FIVE + _ADDED) & _LOW


@inlined
def finished(h):
    h ^= h >> np.uint64(16)
    h = (h * _F1) & _LOW
    h ^= h >> np.uint64(13)
    h = (h * _F2) & _LOW
    return h ^ (h >> np.uint64(16))


@inlined
def murmur3(text, start, length, seed):
    """MurmurHash3_x86_32 of `text[start:start + length]`, as uint64; reads only those bytes."""
    h = np.uint64(seed)
    position = np.int64(start)
    end = position + np.int64(length)
    while position + 4 <= end:
        h = mixed_in(h, load32(text, position))
        position += 4
    if position < end:
        k = np.uint64(0)
        shift = np.uint64(0)
        while position < end:
            k |= np.uint64(load8(text, position)) << shift
            shift += np.uint64(8)
            position += 1
        h ^= scrambled(k)
    return finished(h ^ np.uint64(length))


@inlined
def word_of(text, start, length, seed):
    """The word of a value, or MISSING if it is empty."""
    if length == 0:
        return np.uint32(MISSING)
    return np.uint32(max(murmur3(text, start, length, seed), np.uint64(1)))


@inlined
def cross(first, second):
    """The word of two features together; the order matters. Neither may be MISSING."""
    h = finished(mixed_in(np.uint64(first), np.uint64(second)) ^ np.uint64(8))
    return np.uint32(max(h, np.uint64(1)))


@inlined
def sign_of(word):
    return np.float32(1.0) - np.float32(np.uint64(word) >> _SIGN) * np.float32(2.0)


@quick
def _hash_bytes(text, seed):
    return murmur3(text, 0, len(text), seed)


def hash_bytes(text: bytes, seed: int = 0) -> int:
    """MurmurHash3_x86_32, for single names."""
    return int(_hash_bytes(np.frombuffer(text, np.uint8), seed))


def seed_of(column: str) -> int:
    """The seed for the values of a column, or of a namespace."""
    return hash_bytes(column.encode("utf-8", "surrogatepass"))


def word_from(value: str | bytes, seed: int) -> int:
    """The word of one value; MISSING of an empty one."""
    text = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return max(hash_bytes(text, seed), 1) if text else MISSING
