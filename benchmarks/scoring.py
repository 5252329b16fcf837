"""Log loss and area under the ROC curve of scores, exactly, in plain NumPy; labels are 0 and 1."""

import math

import numpy as np


def log_loss(scores: np.ndarray, labels: np.ndarray) -> float:
    """Of margins: log(1 + exp(-score)) for a 1, log(1 + exp(score)) for a 0."""
    return float(np.mean(np.logaddexp(0.0, np.where(labels > 0, -scores, scores))))


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """The share of pairs of a 1 and a 0 in which the 1 has the larger score; equal scores count half."""
    _, places, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    below = np.cumsum(sizes) - sizes
    middle = below + (sizes + 1) / 2.0  # the mean rank of equal scores
    ones = labels > 0
    clicks = int(np.count_nonzero(ones))
    pairs = clicks * (ones.size - clicks)
    return float((middle[places[ones]].sum() - clicks * (clicks + 1) / 2.0) / pairs) if pairs else float("nan")


def constant_log_loss(labels: np.ndarray) -> float:
    """Of whoever predicts the share of ones in every row."""
    share = float(np.mean(labels > 0))
    return -sum(part * math.log(part) for part in (share, 1.0 - share) if part > 0.0)
