"""TableHasher: frames of numbers, categories and texts as sparse matrices, by the recipe that StreamSVC has inside."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from streamsvm.estimators.given import Told, as_value_errors, read_first, reader_of


class TableHasher(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Make a sparse matrix of a frame: numbers as they are, each category and word hashed into 2^hash_bits columns.

    What becomes of each column is decided in `fit`, from the first rows and `features`, and holds ever after; nothing
    grows with the number of different values. The hashes are those of `streamsvm train` on tables.

    Parameters
    ----------
    features : dict, optional
        What becomes of the columns: `{"categorical": ["hour"], "text": ["title"], "log1p": ["visits"], "ignore":
        ["id"], "interactions": [["ad", "site"]], "hash_bits": 20}`. Without it numbers are numbers, and texts are
        categories.
    verbose : int
        Above 0, what was decided is printed to standard error.

    Attributes
    ----------
    n_columns_ : int
        Columns of the matrix: those of numbers first, then those that are 1 where one is missing, then those of hashes.

    Examples
    --------
    >>> import pandas as pd
    >>> from streamsvm import TableHasher
    >>> frame = pd.DataFrame({"price": [2.5, 0.0], "site": ["news", "mail"]})
    >>> TableHasher(features={"hash_bits": 8}).fit_transform(frame).shape
    (2, 258)
    """

    def __init__(self, *, features: Mapping[str, Any] | None = None, verbose: int = 0) -> None:
        self.features = features
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> "TableHasher":  # noqa: N803
        """Decide what becomes of the columns."""
        with as_value_errors():
            reader, _ = read_first(self, X, self.features, Told(self.verbose).note)
            self.n_columns_ = reader.features.width
            self._recipe = reader.features.recipe
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """A sparse matrix (CSR, single precision) with a row for each row."""
        check_is_fitted(self)
        with as_value_errors():
            rows = reader_of(self._recipe).read(self, X, reset=False)
        indices = rows.indices.astype(np.int64 if self.n_columns_ > 1 << 31 else np.int32)
        return scipy.sparse.csr_matrix((rows.values, indices, rows.indptr), shape=(rows.rows, self.n_columns_))
