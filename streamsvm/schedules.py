"""Step sizes as terms: `schedule.rate(t)` after t units of weight have been seen."""

import math
from typing import NamedTuple

from streamsvm.jit import expose


class InverseTime(NamedTuple):
    """1 / (l2 (t + t0)): the schedule of Pegasos (t0 = 0) and of Bottou's SGD (t0 = 1 / (l2 eta0))."""

    l2: float
    t0: float

    def rate(self, t):
        return 1.0 / (self.l2 * (t + self.t0))


class SlowDecay(NamedTuple):
    """eta0 (1 + l2 eta0 t)^-0.75: large enough for averaged iterates to move."""

    l2: float
    eta0: float

    def rate(self, t):
        root = math.sqrt(1.0 + self.l2 * self.eta0 * t)
        return self.eta0 / (root * math.sqrt(root))


def _rate(self, t):
    return getattr(self.instance_class, "rate", None)


expose("rate", _rate)
