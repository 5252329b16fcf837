"""Sets made to be ugly, each in one way: an ordinary problem with something in it that real data has.

Those called by a9a are the census rows with one thing added. The others are drawn from a linear model with noise: the
figure that can be attained is known from a converged peer in the same table.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix, diags, hstack

from click_rows import draw_rows
from clicks import arrow_table
from sets.real import a9a
from sets.rows import LABEL, Rows, Split, as_table, dense, table_split

Rng = np.random.Generator
Shown = Callable[[np.ndarray, Rng], np.ndarray]
TRAIN, TEST = 20_000, 10_000
CLICKS = 300_000
EARLY, LATER = 5000, 25_000  # rows: among those that a step size is tried on, and after them


def scaled_row(place: int, factor: float, *words: str) -> Callable[[Path], Split]:
    """One row of a9a is so many times too long."""

    def made(source: Path) -> Split:
        split = a9a(source)
        factors = np.ones(len(split.train.codes))
        factors[place] = factor
        return split._replace(train=_times(split.train, factors), words=words)

    return made


def scaled_rows(share: float, factor: float) -> Callable[[Path], Split]:
    """So many rows of a9a are too long."""

    def made(source: Path) -> Split:
        split = a9a(source)
        factors = np.where(np.random.default_rng(5).random(len(split.train.codes)) < share, factor, 1.0)
        return split._replace(train=_times(split.train, factors))

    return made


def constant_columns(*values: float) -> Callable[[Path], Split]:
    def made(source: Path) -> Split:
        train, test = (
            part._replace(x=hstack([part.x, np.tile(values, (part.x.shape[0], 1))], format="csr"))
            for part in a9a(source)[:2]
        )
        return Split(train, test)

    return made


def heavy_rows(share: float, weight: float) -> Callable[[Path], Split]:
    """So many rows of a9a weigh that much; VW text, which has weights."""

    def made(source: Path) -> Split:
        split = a9a(source)
        heavy = np.random.default_rng(6).random(len(split.train.codes)) < share
        return split._replace(train=split.train._replace(weights=np.where(heavy, weight, 1.0)), kind="vw")

    return made


def first_rows(rows: int) -> Callable[[Path], Split]:
    """A small table: the first rows of a9a."""

    def made(source: Path) -> Split:
        split = a9a(source)
        return split._replace(train=split.train.take(np.arange(rows)))

    return made


def one_class_first(rows: int) -> Callable[[Path], Split]:
    """The first rows of a9a are of one class; those after them are mixed."""

    def made(source: Path) -> Split:
        split = a9a(source)
        first = np.flatnonzero(split.train.codes == 0)[:rows]
        rest = np.setdiff1d(np.arange(len(split.train.codes)), first)
        return split._replace(train=split.train.take(np.concatenate([first, rest])))

    return made


def click_log(_: Path) -> Split:
    """Counts and categories with many values, some missing, 2 % of clicks (`click_rows.py`); test rows follow."""
    train, test = (arrow_table(draw_rows(first, rows, 0)) for first, rows in ((0, CLICKS), (CLICKS, CLICKS // 5)))
    return table_split(train, test)


def drawn(
    width: int,
    shown: Shown,
    seed: int,
    *,
    rows: tuple[int, int] = (TRAIN, TEST),
    noise: float = 1.0,
    share: float = 0.5,
    table: bool = False,
) -> Callable[[Path], Split]:
    """Normal columns, and labels from a linear model of them with noise; what is written of the columns is `shown`."""

    def made(_: Path) -> Split:
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((sum(rows), width))
        every = dense(shown(x, rng), _labels(x, rng, noise, share))
        train, test = every.take(np.arange(rows[0])), every.take(np.arange(rows[0], sum(rows)))
        if table:
            return table_split(as_table(train).table, as_table(test).table)
        return Split(train, test)

    return made


def _labels(x: np.ndarray, rng: Rng, noise: float, share: float) -> np.ndarray:
    """1 where a random direction with noise is largest; so large a share of the rows."""
    weights = rng.standard_normal(x.shape[1])
    score = x @ (weights / np.linalg.norm(weights))
    score = score / score.std() + noise * rng.standard_normal(len(score))
    return (score > np.quantile(score, 1.0 - share)).astype(np.int64)


def as_it_is(x: np.ndarray, rng: Rng) -> np.ndarray:
    return x


def with_counter(x: np.ndarray, rng: Rng) -> np.ndarray:
    """A number for each row, as an id has it."""
    return np.column_stack([x, np.arange(len(x), dtype=float)])


def with_epoch(x: np.ndarray, rng: Rng) -> np.ndarray:
    """Seconds since 1970, in the course of one year; the file is in no order of time."""
    return np.column_stack([x, 1.6e9 + rng.uniform(0, 3.15e7, len(x)).round()])


def with_year(x: np.ndarray, rng: Rng) -> np.ndarray:
    return np.column_stack([x, rng.integers(1990, 2025, len(x)).astype(float)])


def of_all_sizes(x: np.ndarray, rng: Rng) -> np.ndarray:
    return x * 10.0 ** np.linspace(-6, 6, x.shape[1])


def lognormal(x: np.ndarray, rng: Rng) -> np.ndarray:
    return np.exp(1.5 * x)


def cauchy(x: np.ndarray, rng: Rng) -> np.ndarray:
    """Tails so heavy that there is no variance, but for a limit."""
    return np.clip(np.tan(0.5 * np.pi * np.tanh(x)), -1e4, 1e4)


def with_nulls(x: np.ndarray, rng: Rng) -> np.ndarray:
    """Five deviations from zero, and one in five missing."""
    return np.where(rng.random(x.shape) < 0.2, np.nan, x + 5.0)


def mixed_table(_: Path) -> Split:
    """Numbers, some missing, and categories, each with an effect of its own: CSV, as a shop might have it."""
    rng, rows = np.random.default_rng(9), TRAIN + TEST
    age, income = rng.normal(45, 15, rows).clip(18, 95).round(), np.exp(rng.normal(10, 0.6, rows)).round(2)
    visits = rng.poisson(4.0, rows).astype(float)
    town, plan = (rng.zipf(1.6, rows) % 300, rng.integers(0, 4, rows))
    effects = rng.standard_normal(300)[town] + np.array([0.8, 0.2, -0.3, -1.0])[plan]
    score = 0.03 * (age - 45) + 0.8 * (np.log(income) - 10) + 0.15 * (visits - 4) + effects + rng.logistic(0, 1, rows)
    columns = {
        "age": pa.array(age, mask=rng.random(rows) < 0.1),
        "income": pa.array(income, mask=rng.random(rows) < 0.15),
        "visits": pa.array(visits),
        "town": pa.array([f"town {number}" for number in town]),
        "plan": pa.array(np.array(["gold", "silver", "basic", "trial"])[plan].tolist()),
        LABEL: pa.array((score > 0.5).astype(np.int64)),
    }
    table = pa.table(columns)
    return table_split(table.slice(0, TRAIN), table.slice(TRAIN), "csv")


def _times(rows: Rows, factors: np.ndarray) -> Rows:
    return rows._replace(x=csr_matrix(diags(factors) @ rows.x))
