"""The sets that default settings are judged on: real ones, small ones, and ugly ones, each written once and kept.

Some of them are fresh: not looked at while a constant of a learner is chosen, so that they tell whether a choice was
luck. Whoever looks at one to choose something takes its mark away.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sets.bundled import bundled
from sets.real import NoFileError, covtype, from_text, kddcup99, nycflights
from sets.rows import Kept, Split, keep, kept
from sets.texts import topics
from sets.ugly import (
    EARLY,
    LATER,
    as_it_is,
    cauchy,
    click_log,
    constant_columns,
    drawn,
    first_rows,
    heavy_rows,
    lognormal,
    mixed_table,
    of_all_sizes,
    one_class_first,
    scaled_row,
    scaled_rows,
    with_counter,
    with_epoch,
    with_nulls,
    with_year,
)

__all__ = ["SETS", "Kept", "NoFileError", "Recipe", "prepared"]


class Recipe(NamedTuple):
    """How a set is made from the directory of real data, and whether it is fresh."""

    make: Callable[[Path], Split]
    fresh: bool = False


SETS: dict[str, Recipe] = {
    "a9a": Recipe(from_text("a9a")),
    "ijcnn1": Recipe(from_text("ijcnn1")),
    "covtype": Recipe(covtype),
    "mnist": Recipe(from_text("mnist")),
    "20newsgroups": Recipe(from_text("20newsgroups")),
    "spamassassin": Recipe(from_text("spamassassin")),
    "nycflights": Recipe(nycflights),
    "kddcup99": Recipe(kddcup99),
    "clicks": Recipe(click_log),
    "cancer": Recipe(bundled("breast_cancer")),
    "wine": Recipe(bundled("wine")),
    "digits": Recipe(bundled("digits", table=True)),
    "iris": Recipe(bundled("iris", table=True)),
    "constants": Recipe(constant_columns(1.0, 50.0, 1000.0)),
    "counter": Recipe(drawn(5, with_counter, seed=1)),
    "wide": Recipe(drawn(5000, as_it_is, seed=2, rows=(3000, 3000), noise=0.3)),
    "early-outlier": Recipe(scaled_row(EARLY, 1e4)),
    "late-outlier": Recipe(scaled_row(LATER, 1e3, "--loss", "logistic"), fresh=True),
    "rare-outliers": Recipe(scaled_rows(0.001, 1e6)),
    "heavy-rows": Recipe(heavy_rows(0.01, 1000.0)),
    "nulls": Recipe(drawn(10, with_nulls, seed=3, table=True)),
    "epoch": Recipe(drawn(10, with_epoch, seed=4, noise=0.2, table=True), fresh=True),
    "year": Recipe(drawn(10, with_year, seed=5, noise=0.2), fresh=True),
    "sizes": Recipe(drawn(13, of_all_sizes, seed=6, noise=0.2), fresh=True),
    "lognormal": Recipe(drawn(20, lognormal, seed=7), fresh=True),
    "cauchy": Recipe(drawn(20, cauchy, seed=8), fresh=True),
    "rare-class": Recipe(drawn(20, as_it_is, seed=9, share=0.01, noise=0.5), fresh=True),
    "one-class-first": Recipe(one_class_first(3000), fresh=True),
    "150-rows": Recipe(first_rows(150)),
    "short-text": Recipe(topics(10.0, 2, focus=0.6, seed=10), fresh=True),
    "long-text": Recipe(topics(200.0, 4, focus=0.3, seed=11)),
    "mixed-table": Recipe(mixed_table, fresh=True),
}


def prepared(name: str, source: Path, folder: Path) -> Kept:
    """The set's files below `folder`, written when missing; NoFileError if `source` has not what they are made of."""
    place = folder / name
    return kept(place) or keep(SETS[name].make(source), place)
