"""Every decimal number becomes the float32 that Python's float rounds to, through the kernel that users run."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from libsvm_twin import BadRowError, agrees_with_twin, parsed, single, twin
from tiers import examples

LARGEST = np.finfo(np.float32).max


def read(*texts: str) -> list[np.float32 | None]:
    """The numbers as feature values, one a row, in one block; None where a row was refused."""
    result = parsed("".join(f"1 5:{text}\n" for text in texts).encode())
    refused = {fault.line for fault in result.faults}
    values = iter(result.batch.values)
    return [None if line in refused else next(values) for line in range(len(texts))]


def expected(text: str) -> np.float32 | None:
    try:
        return single(text.encode())
    except BadRowError:
        return None


def check(*texts: str) -> None:
    for text, found in zip(texts, read(*texts), strict=True):
        wanted = expected(text)
        same = found is None if wanted is None else found is not None and found.tobytes() == wanted.tobytes()
        assert same, f"{text}: {found!r}, not {wanted!r}"


def exactly(number: Fraction) -> str:
    """All digits of a dyadic fraction."""
    places = number.denominator.bit_length() - 1
    digits = str(abs(number.numerator) * 5**places).rjust(places + 1, "0")
    sign = "-" if number < 0 else ""
    return sign + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)


def midpoint(bits: int) -> Fraction:
    """Half way between a float32 and the next one away from zero; above the largest, where infinity begins."""
    value = np.uint32(bits).view(np.float32)
    following = np.uint32(bits + 1).view(np.float32)
    upper = Fraction(2) ** 128 if np.isinf(following) else Fraction(float(following))
    return (Fraction(float(value)) + upper) / 2


def around(number: Fraction, places: int = 60) -> list[str]:
    """The number with all its digits, and a little more and less than it far behind them."""
    text = exactly(number)
    text += "" if "." in text else "."
    above = text + "0" * places + "1"
    below = exactly(number - number / 2**200) if number else "0"
    return [text, above, below, "-" + text, "-" + above]


float32_bits = st.integers(0, 0x7F7FFFFF) | st.integers(0, 0x00800000) | st.integers(0x3F000000, 0x41000000)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_as_python_prints_them(number):
    check(repr(number), f"{number:.17g}", f"{number:e}", f"{number:.25e}", f"{number:.50f}", f"{number:G}")


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_singles_come_back(number):
    texts = [repr(number), f"{number:.9g}", f"{number:.17g}", f"{number:.60f}", exactly(Fraction(number))]
    check(*texts)
    assert read(texts[1])[0] == np.float32(number)


@given(st.integers(0, 10**18), st.integers(0, 18), st.sampled_from(["", "-", "+"]))
def test_short_decimals(digits, places, sign):
    """What data files are full of: few digits, a point somewhere."""
    text = str(digits).rjust(places + 1, "0")
    check(sign + (text[:-places] + "." + text[-places:] if places else text))


@given(st.integers(0, 9), st.text("0123456789", min_size=1, max_size=20))
def test_one_digit_and_a_fraction(whole, fraction):
    """The form that the kernel reads without a loop, and the lengths around it."""
    check(f"{whole}.{fraction}", f"-{whole}.{fraction}", f"{whole}.{fraction}e1")


@given(float32_bits)
@example(0)
@example(1)
@example(0x007FFFFF)
@example(0x7F7FFFFF)
def test_midpoints(bits):
    check(*around(midpoint(bits)))


@given(float32_bits, st.sampled_from([-1, 1]))
@example(0x7F7FFFFF, -1)
@example(0x7F7FFFFF, 1)
@example(1, -1)
def test_where_rounding_twice_matters(bits, side):
    """Half a double's step beside a midpoint of singles: float() decides first, and only Python can tell which way."""
    middle = midpoint(bits)
    check(*around(middle + side * Fraction(math.ulp(float(middle))) / 2))


@given(float32_bits, st.integers(15, 40))
def test_midpoints_cut_short(bits, digits):
    """The first digits of a midpoint: 17 of them look like one to a kernel that keeps 19."""
    text = f"{float(midpoint(bits)):.{digits}e}"
    mantissa, exponent = text.split("e")
    check(text, f"{mantissa}1e{exponent}", f"{mantissa[:-1]}e{exponent}", f"{mantissa}{'0' * 25}1e{exponent}")


@given(st.integers(0, 2**24), st.integers(0, 15))
def test_midpoints_with_seventeen_digits(numerator, shift):
    """A whole digit and up to sixteen decimals, right at the border between two singles."""
    number = midpoint(int(np.float32(1 + numerator / 2**24 * 8).view(np.uint32)))
    for places in (8, 9, 12, 15, 16, 17):
        text = f"{float(number):.{places}f}"
        last = int(text[-1])
        check(text, text[:-1] + str(max(0, last - 1)), text[:-1] + str(min(9, last + 1)), text + "0" * shift)


@examples(50)
@given(st.text("0123456789", min_size=1, max_size=800), st.integers(0, 800), st.integers(-850, 850))
def test_long_digit_strings(digits, point, exponent):
    text = digits[:point] + "." + digits[point:]
    check(text, f"{text}e{exponent}", f"-{digits}e-{len(digits)}", f"{digits}e{exponent}")


@given(st.integers(0, 500), st.integers(1, 10**19), st.integers(-600, 600))
def test_zeros_around(zeros, digits, exponent):
    check(
        f"0.{'0' * zeros}{digits}e{exponent}",
        f"{'0' * zeros}{digits}e{exponent}",
        f"{digits}{'0' * zeros}e-{zeros}",
        f"{'0' * zeros}.{'0' * zeros}{digits}e{zeros}",
        f"{digits}.{'0' * zeros}",
    )


@given(st.integers(1, 2**23 - 1), st.integers(0, 30))
def test_denormals(count, digits):
    number = float(np.uint32(count).view(np.float32))
    check(f"{number:.{digits}e}", exactly(Fraction(number)))


FORMS = """
0 -0 +0 -0.0 0.0000000000 00000000000000000000 1. .5 -.5 +.5 +1 1e0 1E5 1e+5 1e-5 1.e3 .1e1 0e999999999999999999999
1e-400 1e-45 7e-46 7.1e-46 1.4e-45 0.7e-45 1e-99999999999999999999999 3.4028235e38 3.4028234663852886e38 34028235e31
123456789012345678 1234567890123456789 12345678901234567890 18446744073709551615 18446744073709551616
9007199254740993 9007199254740992 16777217 16777219 33554434.999999999999999999999 8388608.5 8388609.5 0.1 0.3
00000000000000000000000000000000001 0000000100000000000000000000001 99999999 999999999 0.99999999999999999999999
4.35 1e22 1e23 8.5e22 1e38 0.000001e44
"""
NO_NUMBERS = """
. - + e5 .e5 1e 1e+ 1e- --1 +-1 1..2 1.2.3 1e5.0 1e5e5 0x10 1_0 1,5 1d5 nan NaN -nan inf -inf Infinity 1f
\u0663 \xbd 1e\u0663
"""


@pytest.mark.parametrize("text", FORMS.split())
def test_special_forms(text):
    assert expected(text) is not None
    check(text)


def test_long_runs_of_zeros():
    check(
        f"0.{'0' * 499}1e500", f"1{'0' * 500}e-500", f"0.{'0' * 45}1", f"{'0' * 5000}1.5", f"1.{'0' * 5000}1",
        f"16777217.{'0' * 5000}1", f"16777217.{'0' * 5000}", f"1{'0' * 50}e-9223372036854775807",
    )  # fmt: skip


@pytest.mark.parametrize(
    "text", ["3.4028236e38", "3.5e38", "1e39", "-1e39", "1e400", f"1{'0' * 39}", "9" * 400, "1e99999999999999999999"]
)
def test_too_large_is_refused(text):
    assert read(text) == [None]
    assert "single precision" in parsed(f"1 1:{text}".encode()).faults[0].message


@pytest.mark.parametrize("text", ["", *NO_NUMBERS.split()])
def test_not_a_number_is_refused(text):
    assert read(text, "2", text + "1e", "4")[1::2] == [np.float32(2), np.float32(4)]
    assert read(text) == [None]


# Hard numbers: the kernel runs again with Python's answers.

HARD = [exactly(midpoint(bits) - Fraction(math.ulp(float(midpoint(bits)))) / 2) for bits in (0x3F8CCCCD, 0x3DCCCCCD)]


def test_hard_numbers_are_hard():
    """They differ from their neighbours only by what a far digit says, or the tests here show nothing."""
    for text in HARD:
        less = text[:-1] + "4999"
        assert expected(text) != expected(less) and Fraction(text) - Fraction(less) < Fraction(1, 10**40)
        check(text, less, text + "0001")


def test_many_hard_numbers_in_a_block():
    lines = [f"{HARD[0]} 1:{HARD[1]} 2:{HARD[0][:-1]}4999 3:{HARD[1]}{'0' * 200}1 9:0.5"] * 50
    lines[10] = f"1 9:{HARD[0]} 3:-{HARD[1]} 9:{HARD[0]}"  # unsorted, with a duplicate
    lines[20] = f"1 1:{HARD[0]} 2:bad"
    lines[30] = f"1 1:{HARD[0]}x"
    lines[31] = f"{HARD[0]}x 1:1"
    lines[32] = f"1 {HARD[0]}:1"
    lines[33] = f"{HARD[0]}:1"
    lines[34] = f"1 1:{HARD[0]}:1"
    lines[35] = f"1 1:{HARD[0]}é"
    lines[36] = f"1 1:{HARD[0]}\0"
    lines[37] = f"1 1:{HARD[0]}_5"
    lines[38] = f"1 1:{HARD[0]}#comment"
    agrees_with_twin("\n".join(lines).encode())


def test_a_hard_number_that_turns_out_too_large():
    """The kernel first takes it for the largest float32; Python says infinity. In values and, at 2^24, in labels."""
    number = midpoint(0x7F7FFFFF)
    text = exactly(number - Fraction(math.ulp(float(number))) / 2)
    label = "16777216.9999999990686774253845214843750"
    assert expected(text) is None and expected(label) == 16777216 and single(f"{label}1".encode()) == 16777216
    agrees_with_twin(f"1 1:{HARD[0]} 2:{text}\n1 1:{HARD[1]}\n".encode())
    agrees_with_twin(f"{label} 1:{HARD[0]}\n{label}1 2:{HARD[1]}\n".encode())


def test_a_sum_that_only_seems_to_overflow():
    """With the first guess for a hard number the sum of duplicates overflows, with the right value it does not."""
    half = np.float32(2**103)  # half a step of the largest single
    middle = midpoint(int(half.view(np.uint32)) - 1)
    text = exactly(middle - Fraction(math.ulp(float(middle))) / 2)
    assert expected(text) == half and LARGEST - half < LARGEST
    assert LARGEST - np.nextafter(half, np.float32(0)) == LARGEST
    largest = exactly(Fraction(float(LARGEST)))
    lines = f"1 2:{largest} 2:-{text} 2:{half:.0f} 1:1\n1 1:{HARD[0]} 3:{HARD[1]}\n"
    assert len(twin(lines.encode())[0]) == 2
    agrees_with_twin(lines.encode())
