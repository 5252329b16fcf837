"""Arrays as rows: column j of a matrix is index j, zeros are absent, numbers are single precision."""

from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Batch, Float32s, Int64s
from streamsvm.errors import DataError
from streamsvm.jit import kernel

LARGEST_COLUMN = (1 << 32) - 1


def dense_rows(matrix: npt.NDArray[Any]) -> Batch:
    """The rows of a matrix [row, column] of finite numbers; without labels."""
    numbers = np.ascontiguousarray(matrix, np.float32) if matrix.dtype != np.float64 else np.ascontiguousarray(matrix)
    indptr = np.zeros(len(numbers) + 1, np.int64)
    count_filled(numbers, indptr)
    np.cumsum(indptr, out=indptr)
    indices, values = np.empty(indptr[-1], np.uint32), np.empty(indptr[-1], np.float32)
    squeeze(numbers, indptr, indices, values)
    return _unlabelled(indptr, indices, values)


def sparse_rows(matrix: Any) -> Batch:
    """The rows of a sparse matrix in CSR form, of finite numbers; without labels."""
    if matrix.shape[1] > LARGEST_COLUMN:
        raise DataError(f"the matrix has {matrix.shape[1]} columns; there can be {LARGEST_COLUMN} at most")
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()  # and sorts them
    return _unlabelled(
        matrix.indptr.astype(np.int64, copy=False),
        matrix.indices.astype(np.uint32),
        np.asarray(matrix.data, np.float32),
    )


def _unlabelled(indptr: Int64s, indices: npt.NDArray[np.uint32], values: Float32s) -> Batch:
    if not np.isfinite(values).all():
        raise DataError("a value is too large for single precision (about 3e38)")
    rows = len(indptr) - 1
    return Batch(indptr, indices, values, np.full(rows, np.nan, np.float32), np.ones(rows, np.float32))


@kernel
def count_filled(matrix, indptr):
    """How many numbers of each row are not 0, in `indptr` from 1 on."""
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            indptr[i + 1] += 1 if matrix[i, j] != 0.0 else 0


@kernel
def squeeze(matrix, indptr, indices, values):
    """The numbers that are not 0, and their columns."""
    for i in range(matrix.shape[0]):
        k = indptr[i]
        for j in range(matrix.shape[1]):
            if matrix[i, j] != 0.0:
                indices[k] = j
                values[k] = matrix[i, j]
                k += 1
