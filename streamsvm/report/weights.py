"""The weights of a model in a few numbers: how they are spread, and which are the largest on either side, by name.

Weights are looked at a piece at a time, so that no copy of a large model is made.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamsvm.batch import Float32s, Float64s, Int64s
from streamsvm.model import Model
from streamsvm.weight_names import weight_names

PIECE = 1 << 20
BINS = 51
TOP, TOP_OF_CLASS = 15, 5
MOST_CLASSES = 12  # whose largest weights are shown


@dataclass(frozen=True)
class Feature:
    """A weight and what it is called; its name is None where only the index is known."""

    index: int
    name: str | None
    weight: float


class TopOfClass(NamedTuple):
    """The features that speak most for a class, and most against it."""

    code: int
    positive: list[Feature]
    negative: list[Feature]


@dataclass(frozen=True)
class Weights:
    """All that is told of them."""

    count: int  # of all classes together
    zeros: int
    norm: float
    largest: float  # absolute
    edges: Float64s  # of the histogram of those that are not zero
    counts: Int64s
    top: list[TopOfClass]  # of two classes the second one alone
    named: bool


def described(model: Model, url: str, note: Callable[[str], None]) -> Weights:
    """What is told of the weights of a model, which is, or would be, in the file `url`."""
    zeros, squares, largest = 0, 0.0, 0.0
    for _, piece in _pieces(model.weights):
        zeros += piece.size - int(np.count_nonzero(piece))
        squares += float(np.square(piece, dtype=np.float64).sum())
        largest = max(largest, float(np.abs(piece).max(initial=0.0)))
    edges = np.linspace(-largest, largest, BINS + 1) if largest else np.linspace(-1.0, 1.0, BINS + 1)
    counts: Int64s = np.zeros(BINS, np.int64)
    for _, piece in _pieces(model.weights):
        counts += np.histogram(piece[piece != 0.0], edges)[0]
    top = _top(model)
    return Weights(model.weights.size, zeros, squares**0.5, largest, edges, counts, *_named(model, top, url, note))


def _pieces(weights: Float32s) -> Iterator[tuple[int, Float32s]]:
    """Rows of the weights, and the index of the first of them."""
    step = max(PIECE // (weights.shape[1] if weights.ndim == 2 else 1), 1)
    for start in range(0, len(weights), step):
        yield start, weights[start : start + step]


def _top(model: Model) -> list[TopOfClass]:
    if not model.many:
        return [TopOfClass(1, *_largest(model.weights, TOP))]
    return [
        TopOfClass(code, *_largest(model.weights[:, code], TOP_OF_CLASS))
        for code in range(min(len(model.classes), MOST_CLASSES))
    ]


def _largest(weights: Float32s, count: int) -> tuple[list[Feature], list[Feature]]:
    """The largest positive weights, and the largest negative ones; of equal ones the first."""
    sides = []
    for sign in (1.0, -1.0):
        best: list[tuple[float, int]] = []
        for start, piece in _pieces(weights):
            signed = sign * piece
            if len(signed) > count:
                least = np.partition(signed, len(signed) - count)[len(signed) - count]
                places = np.flatnonzero(signed >= max(least, np.float32(0.0)))
            else:
                places = np.arange(len(signed))
            places = places[signed[places] > 0.0]
            places = places[np.argsort(-signed[places], kind="stable")][:count]
            best += [(float(signed[place]), start + int(place)) for place in places]
            best = sorted(best, key=lambda one: (-one[0], one[1]))[:count]
        sides.append([Feature(index, None, sign * weight) for weight, index in best])
    return sides[0], sides[1]


def _named(model: Model, top: list[TopOfClass], url: str, note: Callable[[str], None]) -> tuple[list[TopOfClass], bool]:
    """The same with names, where there are any; a feature that counts against its weight changes its side."""
    features = [feature for one in top for feature in (*one.positive, *one.negative)]
    called = weight_names(model, url, note, np.array([feature.index for feature in features], np.int64))

    def with_name(feature: Feature) -> Feature:
        index = feature.index
        return Feature(index, called.of(index), called.sign(index) * feature.weight)

    found = []
    for one in top:
        both = [with_name(feature) for feature in (*one.positive, *one.negative)]
        both.sort(key=lambda feature: -abs(feature.weight))
        sides = ([feature for feature in both if sign * feature.weight > 0.0] for sign in (1.0, -1.0))
        found.append(TopOfClass(one.code, *sides))
    return found, bool(called.names)
