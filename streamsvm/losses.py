"""Losses: what a score costs when the label is -1 or +1.

A term is configuration, log line and compiled code at once: kernels call `loss.value` and `loss.slope` (the derivative
by the score, with its true sign) on the same NamedTuple that Python prints. `loss.bend()` is the largest second
derivative where slopes are unbounded, and 0 where they are bounded: see `safe_share` in solvers/own_steps.py. A smooth
loss has `loss.curvature`, the second derivative, or what stands for it where the slope has a kink.

A step along the slope of a long or heavy row overshoots. An implicit step (Kulis and Bartlett 2010; importance-aware:
Karampatziakis and Langford 2011) goes along the slope that the loss has where the step ends, and so never does. If a
step of one slope moves the row's score by `stiffness`, it is `loss.share(score, label, stiffness)` times the plain one:
1 for small steps, about 1 / stiffness for large ones, and dual_step(0, margin, stiffness) = share * abs(slope).

Solvers that prove how far they are from the optimum see a loss from its other side, as the best of many straight lines:

    loss(s) = max over alpha of  dual_value(alpha) - alpha y s,      0 <= alpha <= ceiling

so any alpha gives a lower bound, and -y slope(s) the best one. `dual_slope` is the derivative of `dual_value`, infinite
at the ends for losses whose rows never come to rest there. `dual_step(alpha, margin, stiffness)` is the alpha' that
makes dual_value(alpha') - margin (alpha' - alpha) - stiffness/2 (alpha' - alpha)^2 largest: a step on one row, whose
margin y s grows by the stiffness with each unit of alpha.
"""

import math
from typing import Any, NamedTuple

from streamsvm.jit import expose

SHORT = 0.05  # how far a step may move a logistic score that need not be solved for
CLOSE = 1e-3  # relative error of a logistic step that is


class Hinge(NamedTuple):
    """max(0, margin - y s)"""

    margin: float = 1.0

    def value(self, score, label):
        return max(0.0, self.margin - label * score)

    def slope(self, score, label):
        return -label if label * score < self.margin else 0.0

    def bend(self):
        return 0.0

    def ceiling(self):
        return 1.0

    def dual_value(self, alpha):
        return self.margin * alpha

    def dual_slope(self, alpha):
        return self.margin

    def dual_step(self, alpha, margin, stiffness):
        return min(1.0, max(0.0, alpha - (margin - self.margin) / stiffness))

    def share(self, score, label, stiffness):
        short = self.margin - label * score
        return short / stiffness if 0.0 < short < stiffness else 1.0


class SquaredHinge(NamedTuple):
    """max(0, margin - y s)^2"""

    margin: float = 1.0

    def value(self, score, label):
        short = max(0.0, self.margin - label * score)
        return short * short

    def slope(self, score, label):
        return -2.0 * label * max(0.0, self.margin - label * score)

    def curvature(self, score, label):
        return 2.0 if label * score < self.margin else 0.0

    def bend(self):
        return 2.0

    def ceiling(self):
        return math.inf

    def dual_value(self, alpha):
        return alpha * (self.margin - 0.25 * alpha)

    def dual_slope(self, alpha):
        return self.margin - 0.5 * alpha

    def dual_step(self, alpha, margin, stiffness):
        return max(0.0, alpha - (margin - self.margin + 0.5 * alpha) / (stiffness + 0.5))

    def share(self, score, label, stiffness):
        return 1.0 / (1.0 + 2.0 * stiffness)


class SmoothedHinge(NamedTuple):
    """0 beyond the margin; (margin - y s)^2 / (2 width) in a strip of that width; a straight line before it"""

    margin: float = 1.0
    width: float = 1.0

    def value(self, score, label):
        short = max(0.0, self.margin - label * score)
        return 0.5 * short * short / self.width if short < self.width else short - 0.5 * self.width

    def slope(self, score, label):
        return -label * min(1.0, max(0.0, self.margin - label * score) / self.width)

    def curvature(self, score, label):
        return 1.0 / self.width if 0.0 < self.margin - label * score < self.width else 0.0

    def bend(self):
        return 0.0

    def ceiling(self):
        return 1.0

    def dual_value(self, alpha):
        return alpha * (self.margin - 0.5 * self.width * alpha)

    def dual_slope(self, alpha):
        return self.margin - self.width * alpha

    def dual_step(self, alpha, margin, stiffness):
        step = (margin - self.margin + self.width * alpha) / (stiffness + self.width)
        return min(1.0, max(0.0, alpha - step))

    def share(self, score, label, stiffness):
        short = max(self.width, self.margin - label * score)
        return min(1.0, short / (stiffness + self.width))


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

    def curvature(self, score, label):
        small = math.exp(-abs(score) * self.scale)
        return self.scale * self.scale * small / ((1.0 + small) * (1.0 + small))

    def bend(self):
        return 0.0

    def ceiling(self):
        return self.scale

    def dual_value(self, alpha):
        share = alpha / self.scale
        if not 0.0 < share < 1.0:
            return 0.0
        return -share * math.log(share) - (1.0 - share) * math.log1p(-share)

    def dual_slope(self, alpha):
        if alpha <= 0.0:
            return math.inf
        return math.log(self.scale / alpha - 1.0) / self.scale if alpha < self.scale else -math.inf

    def dual_step(self, alpha, margin, stiffness):
        # alpha' = scale / (1 + exp(-t)) where t + scale (margin + stiffness (alpha' - alpha)) = 0: Newton on t, whose
        # left side rises with a slope of 1 or more, kept between two ends
        pull = self.scale * margin
        push = self.scale * stiffness
        low, high = -pull - push * (self.scale - alpha), -pull + push * alpha
        if pull - push * alpha < 750.0:  # beyond 750 exp(-t) is nothing, and the side is known
            low = max(low, -750.0)
        if pull + push * (self.scale - alpha) > -750.0:
            high = min(high, 750.0)
        t = min(high, max(low, -pull))
        if 0.0 < alpha < self.scale:
            t = min(high, max(low, math.log(alpha / (self.scale - alpha))))
        for turn in range(120):
            small = math.exp(-abs(t))
            share = 1.0 / (1.0 + small) if t > 0.0 else small / (1.0 + small)
            rest = t + pull + push * (self.scale * share - alpha)
            if abs(rest) <= 1e-12 * (1.0 + abs(t)):
                break
            if rest > 0.0:
                high = t
            else:
                low = t
            t -= rest / (1.0 + push * self.scale * share * (1.0 - share))
            if not low < t < high or (turn >= 20 and turn % 2 == 0):  # it may go in circles
                t = 0.5 * (low + high)
        small = math.exp(-abs(t))
        return self.scale / (1.0 + small) if t > 0.0 else self.scale * small / (1.0 + small)

    def share(self, score, label, stiffness):
        # steepness' = first / (1 + push curvature) where steps are short; else Newton on steepness' = 1 / (1 + exp(pull
        # + push steepness')), kept between 0 and the first steepness
        pull, push = self.scale * label * score, self.scale * self.scale * stiffness
        small = math.exp(-abs(pull))
        first = small / (1.0 + small) if pull > 0.0 else 1.0 / (1.0 + small)
        found = first / (1.0 + push * small / ((1.0 + small) * (1.0 + small)))
        if push < SHORT or first == 0.0:
            return found / first if first > 0.0 else 1.0
        low, high = 0.0, first
        for _ in range(60):
            there = pull + push * found
            small = math.exp(-abs(there))
            steepness = small / (1.0 + small) if there > 0.0 else 1.0 / (1.0 + small)
            rest = found - steepness
            if abs(rest) <= CLOSE * found:
                break
            if rest > 0.0:
                high = found
            else:
                low = found
            found -= rest / (1.0 + push * steepness * (1.0 - steepness))
            if not low < found < high:
                found = 0.5 * (low + high)
        return found / first


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


def smooth(name: str) -> bool:
    """Whether a loss has a curvature."""
    return hasattr(LOSSES[name], "curvature")


def _value(self, score, label):
    return getattr(self.instance_class, "value", None)


def _slope(self, score, label):
    return getattr(self.instance_class, "slope", None)


def _bend(self):
    return getattr(self.instance_class, "bend", None)


def _curvature(self, score, label):
    return getattr(self.instance_class, "curvature", None)


def _ceiling(self):
    return getattr(self.instance_class, "ceiling", None)


def _dual_value(self, alpha):
    return getattr(self.instance_class, "dual_value", None)


def _dual_slope(self, alpha):
    return getattr(self.instance_class, "dual_slope", None)


def _dual_step(self, alpha, margin, stiffness):
    return getattr(self.instance_class, "dual_step", None)


def _share(self, score, label, stiffness):
    return getattr(self.instance_class, "share", None)


expose("value", _value)
expose("bend", _bend)
expose("slope", _slope)
expose("curvature", _curvature)
expose("ceiling", _ceiling)
expose("dual_value", _dual_value)
expose("dual_slope", _dual_slope)
expose("dual_step", _dual_step)
expose("share", _share)
