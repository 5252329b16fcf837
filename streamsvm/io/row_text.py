"""Batches to text: LIBSVM, VW and JSON lines, with the fewest digits that give back the same float32.

Of p digits the nearest number is m = round(v 10^k), and it will do if m / 10^k, rounded to single precision, is v
again. Six digits are tried first: a number with no more than that is the same with zeros behind it. The quotient is
taken in double precision; where that leaves open which side of the middle between two float32 it lies on, the number
counts as wrong, and one more digit is tried. Nine always do.
"""

import math

import numpy as np

from streamsvm.batch import Batch
from streamsvm.jit import cold, inlined, kernel

LIBSVM, VW, JSON = range(3)
MOST_DIGITS = 9
_REACH = 60
_POWERS = np.array([float(f"1e{k}") for k in range(-_REACH, _REACH + 1)])
_WIDER, _NARROWER = 1.0 + 2.0**-50, 1.0 - 2.0**-50  # more than two roundings of a double can amount to
_EXACT = 2.0**53
_WHOLE = np.float32(2.0**24)
_NORMAL = np.float32(2.0**-126)
_UNIQUE = 6  # digits that no two float32 share, but for the smallest of all
ROW_BYTES, FEATURE_BYTES = 100, 34  # at most, in any of the three

_LABEL, _WEIGHT = (np.frombuffer(text, np.uint8) for text in (b'{"label":', b',"weight":'))
_INDICES, _VALUES, _END = (np.frombuffer(text, np.uint8) for text in (b',"indices":[', b'],"values":[', b"]}\n"))


def rows_text(batch: Batch, style: int) -> bytes:
    """The rows of a batch as lines; labels and weights must be finite."""
    out = np.empty(batch.rows * ROW_BYTES + batch.features * FEATURE_BYTES, np.uint8)
    size = write_rows(batch, style, out)
    return out[:size].tobytes()


def number_texts(numbers: "np.ndarray[tuple[int], np.dtype[np.float32]]") -> list[str]:
    """Each number as the rows have it."""
    out = np.empty(len(numbers) * 32, np.uint8)
    size = write_numbers(numbers, out)
    return out[:size].tobytes().decode().split()


@inlined
def put_text(out, at, text):
    for byte in text:
        out[at] = byte
        at += 1
    return at


@inlined
def put_byte(out, at, byte):
    out[at] = np.uint8(byte)
    return at + 1


@cold
def put_whole(out, at, number):
    """A whole number from 0 on."""
    count = 1
    bound = np.int64(10)
    while number >= bound and count < 18:
        bound *= 10
        count += 1
    for k in range(at + count - 1, at - 1, -1):
        out[k] = np.uint8(48 + number % 10)
        number //= 10
    return at + count


@inlined
def power(k):
    return _POWERS[k + _REACH]


@inlined
def gives(digits, k, value):
    """Whether digits / 10^k is `value` in single precision, beyond doubt."""
    found = np.float64(digits)
    found = found / power(k) if k >= 0 else found * power(-k)
    if k <= 0 and found < _EXACT:
        return np.float32(found) == value
    return np.float32(found * _NARROWER) == value and np.float32(found * _WIDER) == value


@cold
def shortest(value):
    """The digits of a positive number, how many they are, and the exponent of the first one."""
    fraction, binary = math.frexp(np.float64(value))
    exponent = np.int64(math.floor((binary - 1) * 0.30102999566398120))
    if np.float64(value) >= power(exponent + 1):
        exponent += 1
    digits = np.int64(0)
    count = np.int64(_UNIQUE - 1 if value >= _NORMAL else 0)
    while count < MOST_DIGITS:
        count += 1
        k = count - 1 - exponent
        digits = np.int64(np.float64(value) * power(k) + 0.5)
        if gives(digits, k, value):
            break
        if fraction == 0.5 and gives(digits + 1, k, value):  # a power of two: the float32 above it are further apart
            digits += 1
            break
    if np.float64(digits) >= power(count):
        digits //= 10
        exponent += 1
    while digits % 10 == 0:
        digits //= 10
        count -= 1
    return digits, count, exponent


@cold
def put_number(out, at, value):
    if value < 0.0 or (value == 0.0 and 1.0 / value < 0.0):
        at = put_byte(out, at, 45)
        value = -value
    if value < _WHOLE and value == np.float32(np.int64(value)):
        return put_whole(out, at, np.int64(value))
    digits, count, exponent = shortest(value)
    if -5 <= exponent < 0:
        at = put_byte(out, at, 48)
        at = put_byte(out, at, 46)
        for _ in range(-1 - exponent):
            at = put_byte(out, at, 48)
        return put_whole(out, at, digits)
    if 0 <= exponent < 12 and count <= exponent + 1:
        at = put_whole(out, at, digits)
        for _ in range(exponent + 1 - count):
            at = put_byte(out, at, 48)
        return at
    point = exponent + 1 if 0 <= exponent < 12 else 1  # digits before the point
    if count > point:
        at = put_whole(out, at + 1, digits)
        for k in range(at - count - 1, at - count - 1 + point):
            out[k] = out[k + 1]
        out[at - count - 1 + point] = np.uint8(46)
    else:
        at = put_whole(out, at, digits)
    if not 0 <= exponent < 12:
        at = put_byte(out, at, 101)
        if exponent < 0:
            at = put_byte(out, at, 45)
        at = put_whole(out, at, abs(exponent))
    return at


@kernel
def write_numbers(numbers, out):
    at = 0
    for i in range(len(numbers)):
        at = put_number(out, at, numbers[i])
        at = put_byte(out, at, 10)
    return at


@kernel
def write_rows(batch, style, out):
    """All rows as text; returns how many bytes they take."""
    indptr, indices, values, labels, weights = batch
    at = 0
    for i in range(len(labels)):
        if style == JSON:
            at = put_text(out, at, _LABEL)
        at = put_number(out, at, labels[i])
        if style == JSON:
            at = put_text(out, at, _WEIGHT)
            at = put_number(out, at, weights[i])
            at = put_text(out, at, _INDICES)
            for k in range(indptr[i], indptr[i + 1]):
                if k > indptr[i]:
                    at = put_byte(out, at, 44)
                at = put_whole(out, at, np.int64(indices[k]))
            at = put_text(out, at, _VALUES)
            for k in range(indptr[i], indptr[i + 1]):
                if k > indptr[i]:
                    at = put_byte(out, at, 44)
                at = put_number(out, at, values[k])
            at = put_text(out, at, _END)
            continue
        if weights[i] != 1.0:
            at = put_byte(out, at, 32)
            at = put_number(out, at, weights[i])
        if style == VW:
            at = put_byte(out, at, 32)
            at = put_byte(out, at, 124)
        for k in range(indptr[i], indptr[i + 1]):
            at = put_byte(out, at, 32)
            at = put_whole(out, at, np.int64(indices[k]))
            at = put_byte(out, at, 58)
            at = put_number(out, at, values[k])
        at = put_byte(out, at, 10)
    return at
