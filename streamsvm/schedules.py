"""Step sizes and averages as terms.

`schedule.rate(t)` is the step size after t units of weight were seen. `average.mass(t)` says how a mean of iterates
forgets: a row of weight c keeps mass(t) / mass(t + c) of what was averaged before, so weight 0 changes nothing.
"""

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
    """eta0 (1 + l2 eta0 t)^-0.75, or eta0 / sqrt(1 + t / t0) if that is less: large enough for averages to move.

    The first says when the penalty has had its time, which with small ones no stream is long enough for; the second
    lets steps get shorter beyond the rows on which eta0 was chosen.
    """

    l2: float
    eta0: float
    t0: float

    def rate(self, t):
        root = math.sqrt(1.0 + self.l2 * self.eta0 * t)
        return self.eta0 / max(root * math.sqrt(root), math.sqrt(1.0 + t / self.t0))


class InverseRoot(NamedTuple):
    """eta0 / sqrt(1 + t / t0): where nothing is known about curvature. t0 rows pass before steps get much shorter."""

    eta0: float
    t0: float = 1000.0

    def rate(self, t):
        return self.eta0 / math.sqrt(1.0 + t / self.t0)


class Constant(NamedTuple):
    """eta0, always: only the average of the iterates converges."""

    eta0: float

    def rate(self, t):
        return self.eta0


class Uniform(NamedTuple):
    """The plain mean of all iterates: 1/t for the newest of t."""

    unit: float = 1.0  # the weight of a usual row

    def mass(self, t):
        return t / self.unit


class PolynomialDecay(NamedTuple):
    """4 / (t + 3) for the newest of t: early iterates fade, and nobody needs to say when averaging begins."""

    unit: float = 1.0  # the weight of a usual row

    def mass(self, t):
        return t * (t + self.unit) * (t + 2.0 * self.unit) * (t + 3.0 * self.unit)


Schedule = InverseTime | SlowDecay | InverseRoot | Constant
Average = Uniform | PolynomialDecay


def _rate(self, t):
    return getattr(self.instance_class, "rate", None)


expose("rate", _rate)


def _mass(self, t):
    return getattr(self.instance_class, "mass", None)


expose("mass", _mass)
