"""Decimal text to float32, exactly: the result equals `numpy.float32(float(text))` for every number.

Short numbers (mantissa below 2^53, power of ten within 22) are one exact division or multiplication. Longer ones are
multiplied by a 128-bit power of ten, which brackets the true value between two neighbouring doubles; they almost always
round to the same float32. When they do not, the number is "hard": the kernel counts it and Python's `float` decides.

The helpers read past the end of a number, so text handed to them must end in a newline and have PADDING bytes after it.
"""

import numpy as np

from streamsvm.jit import cold, inlined, leading_zeros, load8, load64, multiply_high, trailing_zeros

PADDING = 16

# What a number turned out to be.
NUMBER = 0
HARD = 1  # between two float32: needs more digits than a kernel looks at
NOT_A_NUMBER = 2  # malformed, or nan and inf written out
TOO_LARGE = 3  # beyond the largest float32

_SMALLEST, _LARGEST = -65, 38  # powers of ten that can matter to a float32 when the mantissa has up to 20 digits


def _power_table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """10^q = (high 2^64 + low + less than one) 2^exponent, normalised to 128 bits."""
    high, low, exponents = [], [], []
    for q in range(_SMALLEST, _LARGEST + 1):
        numerator, denominator = (10**q, 1) if q >= 0 else (1, 10**-q)
        exponent = numerator.bit_length() - denominator.bit_length() - 128
        while True:
            up, down = max(0, -exponent), max(0, exponent)
            digits = (numerator << up) // (denominator << down)
            if digits.bit_length() == 128:
                break
            exponent += digits.bit_length() - 128
        high.append(digits >> 64)
        low.append(digits & (2**64 - 1))
        exponents.append(exponent)
    return np.array(high, np.uint64), np.array(low, np.uint64), np.array(exponents, np.int64)


_POWER_HIGH, _POWER_LOW, _POWER_EXPONENT = _power_table()
_TEN = 10.0 ** np.arange(23)
_TEN_WHOLE = np.array([10**n for n in range(20)], np.uint64)
_TWO_OFFSET = 400
_TWO = 2.0 ** np.arange(-_TWO_OFFSET, _TWO_OFFSET)

_ONE = np.uint64(1)
_BYTE = np.uint64(8)
_ZEROS = np.uint64(0x3030303030303030)
_CARRY = np.uint64(0x7676767676767676)
_TOP_BITS = np.uint64(0x8080808080808080)
_LIMIT_53 = np.uint64(1 << 53)


@inlined
def non_digits(word):
    """The top bit of every byte of `word` that is not a digit; zero when all eight are digits.

    The lowest set bit is always right. Bits above it may be wrong, because a byte can carry into the next.
    """
    t = word ^ _ZEROS
    return ((t + _CARRY) | t) & _TOP_BITS


@inlined
def whole_from(word):
    """The number that eight bytes of digits (or leading zero bytes) spell, first byte first."""
    word = (word & np.uint64(0x0F0F0F0F0F0F0F0F)) * np.uint64(2561) >> _BYTE
    word = (word & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601) >> np.uint64(16)
    return (word & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001) >> np.uint64(32)


@inlined
def first_digits(word, count):
    """The number spelled by the first `count` (1 to 8) bytes of `word`."""
    return whole_from(word << np.uint64(64 - 8 * count))


@inlined
def short_decimal(whole, fraction, digits):
    """whole.fraction with up to seven fraction digits, correctly rounded to double."""
    return np.float64(np.int64(whole * _TEN_WHOLE[digits] + fraction)) / _TEN[digits]


@inlined
def long_decimal(text, position, whole, word):
    """whole.fraction with 8 to 16 fraction digits, of which `word` has the first eight, and how many there are.

    The double may be off by two roundings, which only matters next to the border between two float32: there the count
    is 0, and `read_number` has to do it. At most 16 digits are looked at: if one more follows, this is not the number,
    and `read_number` has to do it, too. Callers see that because a digit stands where the number should have ended.
    """
    mantissa = whole * np.uint64(100000000) + whole_from(word)
    word = load64(text, position + 8)
    stops = non_digits(word)
    count = trailing_zeros(stops) >> 3 if stops != np.uint64(0) else 8
    if count > 0:
        mantissa = mantissa * _TEN_WHOLE[count] + first_digits(word, count)
    number = np.float64(np.int64(mantissa)) / _TEN[8 + count]
    sure = np.float32(number * (1.0 - 1e-15)) == np.float32(number * (1.0 + 1e-15))
    return number, (8 + count if sure else 0)


@cold
def bracket(mantissa, power):
    """Two doubles, equal or neighbours, that enclose `mantissa 10^power`; mantissa not 0, power in the table."""
    shift = leading_zeros(mantissa)
    normal = mantissa << np.uint64(shift)
    high, low = _POWER_HIGH[power - _SMALLEST], _POWER_LOW[power - _SMALLEST]
    top, middle = multiply_high(normal, high), normal * high
    added = multiply_high(normal, low)
    middle += added
    if middle < added:
        top += _ONE
    exponent = 139 + _POWER_EXPONENT[power - _SMALLEST] - shift
    if top >> np.uint64(63) == np.uint64(0):
        top = (top << _ONE) | (middle >> np.uint64(63))
        middle <<= _ONE
        exponent -= 1
    # The truth lies less than four units of `middle` above (top, middle).
    rest, kept = top & np.uint64(0x7FF), top >> np.uint64(11)
    unsure = (rest == np.uint64(0x400) and middle == np.uint64(0)) or (
        rest == np.uint64(0x3FF) and middle >= np.uint64(0xFFFFFFFFFFFFFFFC)
    )
    if not unsure and rest >= np.uint64(0x400):
        kept += _ONE
    scale = _TWO[exponent + _TWO_OFFSET]
    below = np.float64(np.int64(kept)) * scale
    above = np.float64(np.int64(kept + _ONE)) * scale if unsure else below
    return below, above


@cold
def read_digits(text, position, mantissa, taken):
    """Digits from `position` appended to a mantissa that has `taken` significant ones already, 19 at the most.

    Returns mantissa, taken, position after the digits, digits left out, and whether one of those was not zero.
    """
    dropped = 0
    lost = False
    while True:
        word = load64(text, position)
        if non_digits(word) == np.uint64(0) and taken <= 11:
            mantissa = mantissa * np.uint64(100000000) + whole_from(word)
            taken = taken + 8 if mantissa != np.uint64(0) else 0
            position += 8
            continue
        digit = np.int64(text[position]) - 48
        if digit < 0 or digit > 9:
            break
        if taken < 19:
            mantissa = mantissa * np.uint64(10) + np.uint64(digit)
            if mantissa != np.uint64(0):
                taken += 1
        else:
            dropped += 1
            lost = lost or digit != 0
        position += 1
    return mantissa, taken, position, dropped, lost


@cold
def read_exponent(text, position):
    """`e-12` at `position`: its value and the position after it; position -1 when it has no digits."""
    position += 1
    negative = text[position] == 45
    if negative or text[position] == 43:
        position += 1
    start = position
    value = 0
    while True:
        digit = np.int64(text[position]) - 48
        if digit < 0 or digit > 9:
            break
        if value < 1_000_000_000_000:
            value = value * 10 + digit
        position += 1
    if position == start:
        position = -1
    return (-value if negative else value), position


@cold
def round_to_float32(mantissa, power, lost):
    """NUMBER, HARD or TOO_LARGE, and `mantissa 10^power` (a little more when digits were lost) as a float32."""
    if mantissa == np.uint64(0) or power < _SMALLEST:
        return NUMBER, np.float32(0.0)
    if power > _LARGEST:
        return TOO_LARGE, np.float32(0.0)
    if not lost and mantissa <= _LIMIT_53 and -22 <= power <= 22:
        whole = np.float64(np.int64(mantissa))
        below = whole / _TEN[-power] if power < 0 else whole * _TEN[power]
        above = below
    else:
        below, above = bracket(mantissa, power)
        if lost:
            above = bracket(mantissa + _ONE, power)[1]
    value = np.float32(below)
    if value != np.float32(above):
        return HARD, value
    if np.isinf(value):
        return TOO_LARGE, value
    return NUMBER, value


@cold
def read_number(text, position):
    """Any decimal number at `position`: status, float32 value, position after it (of the fault, if malformed)."""
    negative = text[position] == 45
    if negative or text[position] == 43:
        position += 1
    start = position
    mantissa, taken, position, dropped, lost = read_digits(text, position, np.uint64(0), 0)
    digits = position - start
    power = dropped
    if text[position] == 46:
        start = position + 1
        before = dropped
        mantissa, taken, position, dropped, more_lost = read_digits(text, start, mantissa, taken)
        digits += position - start
        power = before - (position - start - dropped)
        lost = lost or more_lost
    if digits == 0:
        return NOT_A_NUMBER, np.float32(0.0), position
    if text[position] | 32 == 101:
        exponent, after = read_exponent(text, position)
        if after < 0:
            return NOT_A_NUMBER, np.float32(0.0), position
        power += exponent
        position = after
    status, value = round_to_float32(mantissa, power, lost)
    return status, (-value if negative else value), position


__all__ = [
    "HARD",
    "NOT_A_NUMBER",
    "NUMBER",
    "PADDING",
    "TOO_LARGE",
    "first_digits",
    "load8",
    "load64",
    "long_decimal",
    "non_digits",
    "read_number",
    "short_decimal",
    "trailing_zeros",
]
