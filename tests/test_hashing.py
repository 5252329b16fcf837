"""The hash behind categories against two others that were written by other people, or by the book."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import table_twin as twin
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.utils import murmurhash3_32

from streamsvm.hashing import MISSING, cross, hash_bytes, murmur3, seed_of, sign_of, word_from, word_of
from streamsvm.jit import kernel

WORDS = st.integers(0, 2**32 - 1)


@kernel
def all_spans(text, seed, hashes, words):
    """The hash of every span of a text."""
    for start in range(len(text) + 1):
        for length in range(len(text) - start + 1):
            hashes[start, length] = murmur3(text, start, length, seed)
            words[start, length] = word_of(text, start, length, seed)


@kernel
def crossed(first, second):
    word = cross(first, second)
    return word, sign_of(word)


@given(st.binary(max_size=70), WORDS)
@example(b"", 0)
@example(b"", 2**32 - 1)
@example(b"\xff" * 9, 2**32 - 1)
def test_hash_of_bytes(data, seed):
    expected = murmurhash3_32(data, seed=seed, positive=True)
    assert hash_bytes(data, seed) == twin.murmur3(data, seed) == expected
    assert word_from(data, seed) == twin.word(data, seed) == (max(expected, 1) if data else MISSING)


def test_known_hashes():
    """From Austin Appleby's own tests, and what others publish."""
    known = {(b"", 0): 0, (b"", 1): 0x514E28B7, (b"\0\0\0\0", 0): 0x2362F9DE, (b"hello, world", 0): 0x149BBB7F}
    known[b"The quick brown fox jumps over the lazy dog", 0x9747B28C] = 0x2FA826CD
    assert {key: hash_bytes(*key) for key in known} == known


@given(st.binary(max_size=12), WORDS)
def test_every_span_of_a_text(text, seed):
    hashes, words = np.zeros((13, 13), np.uint64), np.zeros((13, 13), np.uint32)
    all_spans(np.frombuffer(text, np.uint8), np.uint32(seed), hashes, words)
    for start in range(len(text) + 1):
        for length in range(len(text) - start + 1):
            assert hashes[start, length] == twin.murmur3(text[start : start + length], seed)
            assert words[start, length] == twin.word(text[start : start + length], seed)


@given(st.text())
def test_columns_are_hashed_as_utf8(name):
    assert seed_of(name) == murmurhash3_32(name.encode(), positive=True)
    assert word_from(name, 7) == word_from(name.encode(), 7)


def test_a_name_that_is_no_text():
    assert seed_of("a\udc80") == hash_bytes(b"a\xed\xb2\x80")


@given(st.integers(1, 2**32 - 1), st.integers(1, 2**32 - 1))
def test_cross(first, second):
    word, sign = crossed(np.uint32(first), np.uint32(second))
    assert word == twin.cross(first, second) >= 1
    assert sign == (-1 if word >> 31 else 1) == twin.signed(int(word))


def test_cross_is_not_symmetric_nor_associative():
    assert twin.cross(3, 4) != twin.cross(4, 3)
    assert twin.cross(twin.cross(3, 4), 5) != twin.cross(3, twin.cross(4, 5))


def zero_hash() -> bytes:
    """A text whose hash is 0: the last steps of murmur3 undone, for one block of four bytes."""
    h = 4  # finished(h ^ 4) = 0 only of 0
    h = (h - 0xE6546B64) * pow(5, -1, 2**32) % 2**32
    k = (h >> 13 | h << 19) % 2**32 * pow(0x1B873593, -1, 2**32) % 2**32
    return ((k >> 15 | k << 17) % 2**32 * pow(0xCC9E2D51, -1, 2**32) % 2**32).to_bytes(4, "little")


def test_no_word_is_missing():
    text = zero_hash()
    assert hash_bytes(text) == murmurhash3_32(text, positive=True) == 0
    hashes, words = np.zeros((13, 13), np.uint64), np.zeros((13, 13), np.uint32)
    all_spans(np.frombuffer(text, np.uint8), np.uint32(0), hashes, words)
    assert words[0, 4] == word_from(text, 0) == 1 != MISSING


def test_both_signs_are_as_likely_whatever_the_index():
    words = np.array([word_from(f"v{k}", 1) for k in range(4000)], np.uint64)
    assert abs((words >> np.uint64(31)).mean() - 0.5) < 0.03
    for bit in range(4):
        assert abs((words[(words >> np.uint64(bit)) & np.uint64(1) == 1] >> np.uint64(31)).mean() - 0.5) < 0.05


@pytest.mark.timeout(60)
def test_plain_python_gives_the_same():
    texts = ["", "a", "é", "word", "fives", "zürich, 8001", "x" * 33]
    code = (
        "import json, numpy as np; from streamsvm import hashing as h\n"
        f"words = [h.word_from(t, 0xFFFFFFFE) for t in {texts!r}]\n"
        "both = [int(h.cross(np.uint32(4294967295), np.uint32(w))) for w in words[1:]]\n"
        "print(json.dumps([words, both, [float(h.sign_of(np.uint32(w))) for w in words]]))"
    )
    environ = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    out = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    words = [twin.word(text, 0xFFFFFFFE) for text in texts]
    both = [twin.cross(2**32 - 1, word) for word in words[1:]]
    assert out.stderr == "" and json.loads(out.stdout) == [words, both, [float(twin.signed(w)) for w in words]]
