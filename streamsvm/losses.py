"""Losses: what a score costs when the label is -1 or +1.

A term is configuration, log line and compiled code at once: kernels call `loss.value` and `loss.slope` (the derivative
by the score, with its true sign) on the same NamedTuple that Python prints. `loss.bend()` is the largest second
derivative where slopes are unbounded, and 0 where they are bounded: see `safe_rate` in rows.py.
"""

import math
from typing import Any, NamedTuple

from streamsvm.jit import expose


class Hinge(NamedTuple):
    """max(0, margin - y s)"""

    margin: float = 1.0

    def value(self, score, label):
        return max(0.0, self.margin - label * score)

    def slope(self, score, label):
        return -label if label * score < self.margin else 0.0

    def bend(self):
        return 0.0


class SquaredHinge(NamedTuple):
    """max(0, margin - y s)^2"""

    margin: float = 1.0

    def value(self, score, label):
        short = max(0.0, self.margin - label * score)
        return short * short

    def slope(self, score, label):
        return -2.0 * label * max(0.0, self.margin - label * score)

    def bend(self):
        return 2.0


class SmoothedHinge(NamedTuple):
    """0 beyond the margin; (margin - y s)^2 / (2 width) in a strip of that width; a straight line before it"""

    margin: float = 1.0
    width: float = 1.0

    def value(self, score, label):
        short = max(0.0, self.margin - label * score)
        return 0.5 * short * short / self.width if short < self.width else short - 0.5 * self.width

    def slope(self, score, label):
        return -label * min(1.0, max(0.0, self.margin - label * score) / self.width)

    def bend(self):
        return 0.0


class Logistic(NamedTuple):
    """log(1 + exp(-y s))"""

    scale: float = 1.0

    def value(self, score, label):
        margin = label * score * self.scale
        return math.log1p(math.exp(-margin)) if margin > 0.0 else math.log1p(math.exp(margin)) - margin

    def slope(self, score, label):
        margin = label * score * self.scale
        if margin > 0.0:
            small = math.exp(-margin)
            return -label * self.scale * small / (1.0 + small)
        return -label * self.scale / (1.0 + math.exp(margin))

    def bend(self):
        return 0.0


Loss = Hinge | SquaredHinge | SmoothedHinge | Logistic

LOSSES: dict[str, type[Any]] = {
    "hinge": Hinge,
    "squared_hinge": SquaredHinge,
    "smoothed_hinge": SmoothedHinge,
    "logistic": Logistic,
}


def make_loss(name: str) -> Loss:
    loss: Loss = LOSSES[name]()
    return loss


def _value(self, score, label):
    return getattr(self.instance_class, "value", None)


def _slope(self, score, label):
    return getattr(self.instance_class, "slope", None)


def _bend(self):
    return getattr(self.instance_class, "bend", None)


expose("value", _value)
expose("bend", _bend)
expose("slope", _slope)
