"""Texts to tokens: runs of letters and digits, in lower case, and n-grams of neighbouring ones.

Letters are A to Z, a to z, the underscore and every byte beyond ASCII, so words of other alphabets stay whole (only
ASCII is put into lower case). Each token of a text, and each n-gram, has the value 1 / sqrt(their number): long texts
weigh as much as short ones.
"""

import numpy as np

from streamsvm.batch import Bytes, Float32s, Int64s, Uint32s
from streamsvm.cells import Int32s
from streamsvm.hashing import cross, word_of
from streamsvm.jit import inlined, kernel


def tokenise(data: Bytes, starts: Int32s, lengths: Int32s, seed: int, ngrams: int) -> tuple[Int64s, Uint32s, Float32s]:
    """Where the tokens of each text begin, their words, and their values."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    most = int(lengths.sum()) // 2 + len(lengths)
    words = np.empty(most * ngrams, np.uint32)
    lowered = np.empty(int(lengths.max(initial=0)) + 8, np.uint8)
    total = token_words(data, starts, lengths, np.uint32(seed), ngrams, lowered, offsets, words)
    counts = np.diff(offsets)
    return offsets, words[:total], np.repeat((1.0 / np.sqrt(np.maximum(counts, 1))).astype(np.float32), counts)


@inlined
def lower(byte):
    """A letter of a token in lower case, or 0 for what stands between tokens."""
    if 65 <= byte <= 90:
        return byte + 32
    if 97 <= byte <= 122 or 48 <= byte <= 57 or byte == 95 or byte >= 128:
        return byte
    return 0


@kernel
def token_words(data, starts, lengths, seed, ngrams, lowered, offsets, words):
    """The words of all tokens, those of n-grams right after the token that ends them; returns how many."""
    total = 0
    for i in range(len(starts)):
        size = lengths[i]
        for k in range(size):
            lowered[k] = lower(np.int64(data[starts[i] + k]))
        lowered[size] = 0
        begun = 0
        one = two = np.uint32(0)  # the token before, and the pair before with it
        for k in range(size + 1):
            if lowered[k] != 0:
                continue
            if k > begun:
                word = word_of(lowered, begun, k - begun, seed)
                words[total] = word
                total += 1
                pair = np.uint32(0)
                if ngrams > 1 and one != 0:
                    pair = cross(one, word)
                    words[total] = pair
                    total += 1
                    if ngrams > 2 and two != 0:
                        words[total] = cross(two, word)
                        total += 1
                one, two = word, pair
            begun = k + 1
        offsets[i + 1] = total
    return total
