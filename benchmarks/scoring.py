"""How good scores and probabilities are, exactly, in plain NumPy.

Scores: log loss and area under the ROC curve; labels are 0 and 1. Probabilities have a column for each class, and
labels are the numbers of the columns:

    Brier score          mean over rows of the sum over k of (p_k - 1[k is right])^2;  half of that for two classes
    calibration error    sum over 15 bins of equal width of p:  share of rows in it * |mean p - share of right ones|

For two classes p is the probability of the second, and right is that class; for more p is the largest.
"""

import math

import numpy as np

BINS = 15
LEAST = float(np.finfo(np.float64).eps)  # for the logarithm of a probability


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


def sigmoids(margins: np.ndarray) -> np.ndarray:
    """Probabilities of each class: 1/(1 + exp(-margin)); of more than two classes divided by their sum."""
    chances = 0.5 * (1.0 + np.tanh(0.5 * margins))
    if margins.ndim == 1:
        return np.column_stack([1.0 - chances, chances])
    chances = np.maximum(chances, LEAST)
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def log_losses_of(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Of each row."""
    right = probabilities[np.arange(labels.size), labels]
    return -np.log(np.clip(right, LEAST, 1.0 - LEAST))


def log_loss_of(probabilities: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean(log_losses_of(probabilities, labels)))


def brier(probabilities: np.ndarray, labels: np.ndarray) -> float:
    off = probabilities - np.eye(probabilities.shape[1])[labels]
    return float(np.mean((off**2).sum(axis=1))) / (2.0 if probabilities.shape[1] == 2 else 1.0)


def calibration_error(probabilities: np.ndarray, labels: np.ndarray) -> float:
    if probabilities.shape[1] == 2:
        chance, right = probabilities[:, 1], labels == 1
    else:
        chance, right = probabilities.max(axis=1), labels == probabilities.argmax(axis=1)
    bins = np.clip((chance * (2 * BINS)).astype(np.int64) // 2, 0, BINS - 1)  # edges fall as in streamsvm
    return float(np.abs(np.bincount(bins, chance - right)).sum()) / labels.size
