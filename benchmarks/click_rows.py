"""What a table of clicks is drawn from, and the truth behind its labels.

A row has 13 counts I1..I13, 26 categories C1..C26 and a label; of these rows about 2 % are clicks.

    I_j    = floor(exp(location_j + spread_j (0.5 busy + 0.87 normal)))     busy: one normal for the whole row
    rank   ~ rank^-skew_k, 1..size_k;   C_k = 32 bits hashed from the column, the rank and the rank's generation
    score  = bias + sum_j slope_j log1p(I_j) + sum_k strength_k effect(k, C_k) + three interactions
    label  = 1 with probability 1/(1 + exp(-score))

effect(k, value) is a normal number hashed from column and value, so that it is the same in every file. An interaction
is one more such effect, of two categories together, or of a category as the slope of a count. A missing category counts
as a value of its own; a missing count has an effect of its own, which a model that leaves it out cannot learn.

What drifts: the effects of two columns turn (effect = radius cos(angle - row / period 2 pi)), and in four columns each
rank passes to a new generation every `life` rows, little by little and each at its own time: new ads appear, old ones
vanish. A row depends on (seed, row number) alone: a short table is the beginning of a long one.
"""

import math
from typing import NamedTuple

import numpy as np

from generate import GOLDEN, LOW, kernel, mixed

NUMBERS = tuple(f"I{j}" for j in range(1, 14))
CATEGORIES = tuple(f"C{k}" for k in range(1, 27))
SIZES = (
    *(1_500, 600, 1_000_000, 300_000, 300, 20, 12_000, 600, 4, 90_000, 5_000, 800_000, 3_000),
    *(25, 15_000, 500_000, 10, 5_000, 2_000, 4, 700_000, 18, 15, 250_000, 100, 140_000),
)
LIVES = {"C3": 2e6, "C7": 8e6, "C11": 0.5e6, "C16": 1e6}  # rows after which a rank is somebody else's
PERIODS = {"C5": 8e6, "C13": 6e6}  # rows in which effects turn once
MISSING = {"I1": 0.45, "I4": 0.2, "I7": 0.3, "I10": 0.45, "I12": 0.4, "C4": 0.03, "C19": 0.4, "C22": 0.7, "C26": 0.4}
PAIRS = ((5, 16), (8, 19))  # of categories that say more together: C6 and C17, C9 and C20
SLOPED = (2, 13)  # C14 is also the slope of I3
PAIR_STRENGTH, SLOPED_STRENGTH = 0.3, 0.12
BIAS = -3.1  # found by trial, for 2 % of clicks


class Numbers(NamedTuple):
    """An entry for each of I1..I13."""

    location: np.ndarray
    spread: np.ndarray
    slope: np.ndarray
    missing: np.ndarray  # share of rows
    if_missing: np.ndarray  # what then takes the place of slope times logarithm


class Categories(NamedTuple):
    """An entry for each of C1..C26."""

    reach: np.ndarray  # rank = floor((1 + reach u)^power) for an even u: the inverse of a power law's distribution
    power: np.ndarray
    strength: np.ndarray
    missing: np.ndarray
    turn: np.ndarray  # radians a row
    life: np.ndarray  # rows; 0: for ever


def make_world() -> tuple[Numbers, Categories]:
    """The same for all tables, whatever their seed."""
    random = np.random.default_rng(1234)
    count = len(NUMBERS)
    location, spread = random.uniform(0.3, 5.0, count), random.uniform(0.7, 1.6, count)
    slope = random.normal(0.0, 0.13, count)
    if_missing = slope * location + random.normal(0.0, 0.1, count)
    numbers = Numbers(location, spread, slope, _entries(NUMBERS, MISSING), if_missing)
    less = 1.0 - random.uniform(0.85, 1.2, len(CATEGORIES))
    reach = (np.array(SIZES) + 1.0) ** less - 1.0
    strength = random.uniform(0.05, 0.35, len(CATEGORIES))
    turn = _entries(CATEGORIES, {name: 2 * math.pi / rows for name, rows in PERIODS.items()})
    missing, life = _entries(CATEGORIES, MISSING), _entries(CATEGORIES, LIVES)
    return numbers, Categories(reach, 1.0 / less, strength, missing, turn, life)


def _entries(names: tuple[str, ...], given: dict[str, float]) -> np.ndarray:
    return np.array([given.get(name, 0.0) for name in names])


class Rows(NamedTuple):
    """A block of rows, a column after the other."""

    counts: np.ndarray  # 13 x rows, -1 where missing
    values: np.ndarray  # 26 x rows, 0 where missing
    scores: np.ndarray  # true ones
    labels: np.ndarray  # 0 and 1


def draw_rows(first: int, rows: int, seed: int) -> Rows:
    numbers, categories = make_world()
    counts, values = np.empty((len(NUMBERS), rows), np.int32), np.empty((len(CATEGORIES), rows), np.uint32)
    drawn = Rows(counts, values, np.empty(rows), np.empty(rows, np.int8))
    draw_block(first, seed, numbers, categories, *drawn)
    return drawn


# ---- kernels ----


@kernel
def unit(bits):
    """An even number in (0, 1)."""
    return ((bits >> np.uint64(11)) + 0.5) * 2.0**-53


@kernel
def normal(bits, turned):
    """A normal number from 64 bits; `turned` goes from it, at 0, to another one, at a right angle."""
    radius = math.sqrt(-2.0 * math.log(((bits >> np.uint64(32)) + 0.5) * 2.0**-32))
    return radius * math.cos(2.0 * math.pi * (bits & LOW) * 2.0**-32 - turned)


@kernel
def effect(column, value, turned):
    return normal(mixed(mixed(np.uint64(column) + GOLDEN) + np.uint64(value) * GOLDEN), turned)


@kernel
def draw_category(column, bits, row, categories):
    """The value of a column in a row. High bits make the rank; low ones let it change hands little by little."""
    rank = int((1.0 + categories.reach[column] * unit(bits)) ** categories.power[column])
    key = mixed(np.uint64(rank) * GOLDEN + np.uint64(column))
    generation = 0
    if categories.life[column]:
        generation = int(row / categories.life[column] + unit(key) + 0.2 * (bits & np.uint64(2047)) / 2048.0)
    return max(mixed(key + np.uint64(generation)) >> np.uint64(32), np.uint64(1))


@kernel
def draw_block(first, seed, numbers, categories, counts, values, scores, labels):
    """Rows from `first` on, as many as the arrays hold."""
    start = mixed(np.uint64(seed) + np.uint64(1))
    for i in range(labels.size):
        row = first + i
        state = mixed(np.uint64(row) * GOLDEN + start)
        score = BIAS
        busy = normal(mixed(state), 0.0)
        for j in range(numbers.slope.size):
            state += GOLDEN
            bits = mixed(state)
            logarithm = numbers.location[j] + numbers.spread[j] * (0.5 * busy + 0.87 * normal(bits, 0.0))
            missing = unit(mixed(bits)) < numbers.missing[j]
            counts[j, i] = -1 if missing else int(math.exp(logarithm))
            score += numbers.if_missing[j] if missing else numbers.slope[j] * math.log1p(counts[j, i])
        for k in range(categories.power.size):
            state += GOLDEN
            bits = mixed(state)
            missing = unit(mixed(bits)) < categories.missing[k]
            values[k, i] = 0 if missing else draw_category(k, bits, row, categories)
            score += categories.strength[k] * effect(k, values[k, i], categories.turn[k] * row)
        for one, other in PAIRS:
            both = mixed(np.uint64(values[one, i])) + np.uint64(values[other, i])
            score += PAIR_STRENGTH * effect(100 + one, both, 0.0)
        number, category = SLOPED
        slope = SLOPED_STRENGTH * effect(200 + number, values[category, i], 0.0)
        score += slope * math.log1p(max(counts[number, i], 0))
        scores[i] = score
        labels[i] = unit(mixed(state + GOLDEN)) * (1.0 + math.exp(-score)) < 1.0
