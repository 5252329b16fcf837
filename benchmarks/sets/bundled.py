"""Small tables that come with scikit-learn, columns as they were measured: what a newcomer tries first."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn import datasets

from sets.rows import Split, as_table, dense, table_split

TEST_SHARE = 0.3


def bundled(name: str, *, table: bool = False) -> Callable[[Path], Split]:
    """One of its sets, 30 % of the rows to test on; as LIBSVM text or as a table."""

    def made(_: Path) -> Split:
        x, codes = getattr(datasets, f"load_{name}")(return_X_y=True)
        rows = dense(np.asarray(x, float), codes).mixed(seed=1)
        cut = int(TEST_SHARE * len(codes))
        test, train = rows.take(np.arange(cut)), rows.take(np.arange(cut, len(codes)))
        if not table:
            return Split(train, test)
        return table_split(as_table(train).table, as_table(test).table)

    return made
