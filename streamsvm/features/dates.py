"""Dates and times to features: the hour, the weekday, the day of the month and the month, each value a category of its
own, and the time as one number where that is asked for.

    2024-01-31   2024-01-31T08:30   2024-01-31 08:30:05.25+02:00   08:30

Time zones are as given: the hour is that which is written. Weekdays count from Monday, which is 0. The time is a number
that goes from 0 to 1 over the first rows (`edges` of the column), and on at the same pace.
"""

import datetime
import math
import re
from collections.abc import Sequence

import numpy as np

from streamsvm.batch import Bytes, Float32s, Int64s, Uint32s
from streamsvm.cells import Int32s, is_missing
from streamsvm.hashing import seed_of, word_from
from streamsvm.jit import inlined, kernel
from streamsvm.offered import DATE_PARTS

PARTS = DATE_PARTS
*CATEGORIES, TIME = PARTS
SHOWN = "2024-01-31 or 2024-01-31T08:30"
_VALUES = 32  # more than any of the categories has
_ZONE = r"(?: ?(?:Z|z|UTC|[+-][0-9]{2}(?::?[0-9]{2})?))?"
_CLOCK = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(\.[0-9]*)?)?"
_DATE = re.compile(rf"(?:([0-9]{{4}})-([0-9]{{2}})-([0-9]{{2}})(?:[Tt ]{_CLOCK}{_ZONE})?|{_CLOCK})")
_EPOCH = datetime.datetime(1970, 1, 1)


def seconds_of(text: str) -> tuple[float, bool, bool] | None:
    """Seconds since 1970, or since midnight; whether there is a date, and a time other than midnight. None: no date.

    >>> seconds_of("1970-01-02T00:00:30.5Z"), seconds_of("08:30"), seconds_of("2024-02-30"), seconds_of("1.2.2024")
    ((86430.5, True, True), (30600.0, False, True), None, None)
    """
    found = _DATE.fullmatch(text.strip())
    if found is None:
        return None
    year, month, day, *clock = found.groups()
    hour, minute, second, fraction = clock[4:] if year is None else clock[:4]
    passed = 3600 * int(hour or 0) + 60 * int(minute or 0) + int(second or 0) + float(f"0{fraction or '.0'}0")
    if int(hour or 0) > 23 or int(minute or 0) > 59 or int(second or 0) > 60:
        return None
    if year is None:
        return passed, False, True
    try:
        date = datetime.datetime(int(year), int(month), int(day))
    except ValueError:
        return None
    return (date - _EPOCH).total_seconds() + passed, True, passed > 0


def part_names(name: str, parts: Sequence[str]) -> dict[int, str]:
    """What the words of a column are called: when.hour=13."""
    found = {word_from(str(k), seed_of(f"{name}.{part}")): f"{name}.{part}={k}" for part in parts for k in range(32)}
    return found | {seed_of(f"{name}.{TIME}"): f"{name}.{TIME}"}


def part_words(name: str, parts: Sequence[str]) -> Uint32s:
    """The word of each value of each category; 0 of those that are not wanted."""
    words = np.zeros((len(CATEGORIES) + 1, _VALUES), np.uint32)
    for row, part in enumerate(CATEGORIES):
        if part in parts:
            words[row] = [word_from(str(k), seed_of(f"{name}.{part}")) for k in range(_VALUES)]
    if TIME in parts:
        words[-1] = max(seed_of(f"{name}.{TIME}"), 1)
    return words


def date_features(
    data: Bytes, starts: Int32s, lengths: Int32s, words: Uint32s, edges: Sequence[float]
) -> tuple[Int64s, Uint32s, Float32s, Bytes]:
    """Where the features of each text begin, their words, their values, and which texts are no dates."""
    begins = np.zeros(len(starts) + 1, np.int64)
    found = np.empty(len(starts) * len(words), np.uint32)
    values = np.ones(len(found), np.float32)
    wrong = np.zeros(len(starts), np.uint8)
    first, last = edges if edges else (0.0, 1.0)
    padded = np.zeros(len(data) + 8, np.uint8)  # so that looking at a word of four letters stays inside
    padded[: len(data)] = data
    total = read_dates(padded, starts, lengths, words, first, max(last - first, 1.0), begins, found, values, wrong)
    return begins, found[:total], values[:total], wrong


def edges_of(seconds: Sequence[float]) -> tuple[float, ...]:
    """Between which seconds the time goes from 0 to 1."""
    return (float(math.floor(min(seconds))), float(math.ceil(max(seconds)))) if seconds else (0.0, 86400.0 * 365)


@inlined
def digits(text, position, count):
    """The number of so many digits, or -1."""
    number = 0
    for k in range(position, position + count):
        digit = np.int64(text[k]) - 48
        if digit < 0 or digit > 9:
            return -1
        number = 10 * number + digit
    return number


@inlined
def days_of(year, month, day):
    """Days since 1970-01-01, by the calendar of today; -1 << 40 if there is no such day."""
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    longest = 28 + leap if month == 2 else 30 if month in (4, 6, 9, 11) else 31
    if year < 1 or month < 1 or month > 12 or day < 1 or day > longest:
        return -(1 << 40)
    moved = year - (month <= 2)  # years begin with March, so that the odd day is their last
    passed = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return 365 * moved + moved // 4 - moved // 100 + moved // 400 + passed - 719468


@inlined
def clock_of(text, position, end):
    """The hour, and the seconds since midnight, of a time that ends at `end`; -1 if it is none."""
    if end - position < 5 or text[position + 2] != 58:
        return -1, 0.0
    hour, minute = digits(text, position, 2), digits(text, position + 3, 2)
    position += 5
    seconds = 0.0
    if position < end and text[position] == 58 and end - position >= 3:
        second = digits(text, position + 1, 2)
        if second < 0 or second > 60:
            return -1, 0.0
        seconds = np.float64(second)
        position += 3
        if position < end and text[position] == 46:
            position += 1
            share = 0.1
            while position < end and 48 <= text[position] <= 57:
                seconds += share * (np.int64(text[position]) - 48)
                share *= 0.1
                position += 1
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or not zone_until(text, position, end):
        return -1, 0.0
    return hour, 3600.0 * hour + 60.0 * minute + seconds


@inlined
def zone_until(text, position, end):
    """Whether what is left is a time zone, or nothing."""
    if position < end and text[position] == 32:
        position += 1
    left = end - position
    if left == 0 or (left == 1 and text[position] | 32 == 122):
        return True
    if left == 3 and text[position] == 85 and text[position + 1] == 84 and text[position + 2] == 67:
        return True
    if text[position] != 43 and text[position] != 45:
        return False
    if left == 3:
        return digits(text, position + 1, 2) >= 0
    colon = left == 6 and text[position + 3] == 58
    return (left == 5 or colon) and digits(text, position + 1, 2) >= 0 and digits(text, end - 2, 2) >= 0


@kernel
def read_dates(text, starts, lengths, table, first, span, begins, words, values, wrong):
    """The features of all texts; returns how many there are. A text that is no date has none, and is `wrong`."""
    total = 0
    for i in range(len(starts)):
        begins[i] = total
        at, end = np.int64(starts[i]), np.int64(starts[i]) + lengths[i]
        if is_missing(text, at, end - at):
            continue
        while at < end and text[at] == 32:
            at += 1
        while at < end and text[end - 1] == 32:
            end -= 1
        days = np.int64(0)
        dated = end - at >= 10 and text[at + 4] == 45 and text[at + 7] == 45
        month = day = hour = np.int64(-1)
        seconds = 0.0
        if dated:
            month, day = digits(text, at + 5, 2), digits(text, at + 8, 2)
            days = days_of(digits(text, at, 4), month, day)
            at += 10
            sound = days > -(1 << 39)
            if sound and at < end:
                if text[at] == 32 or text[at] | 32 == 116:
                    hour, seconds = clock_of(text, at + 1, end)
                sound = hour >= 0
        else:
            hour, seconds = clock_of(text, at, end)
            sound = hour >= 0
        if not sound:
            wrong[i] = 1
            continue
        if dated and hour < 0:
            hour = np.int64(0)
        parts = (hour, (days + 3) % 7 if dated else np.int64(-1), day, month)
        for k in range(4):
            if parts[k] >= 0 and table[k, parts[k]] != 0:
                words[total] = table[k, parts[k]]
                total += 1
        if table[4, 0] != 0:
            words[total] = table[4, 0]
            values[total] = (86400.0 * days + seconds - first) / span
            total += 1
    begins[len(starts)] = total
    return total
