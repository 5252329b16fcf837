"""Penalties: what large weights cost. The bias is never part of the L1 norm, and of the L2 norm only if `penalised`.

A proximal step of size eta subtracts `threshold(eta)` from every |w_j|, down to zero at most, and then multiplies w by
`shrink(eta)`. `zeros()` says whether weights end at exactly zero; it is a constant of the type, so that kernels for
the plain L2 norm hold no trace of thresholds.
"""

from typing import NamedTuple

from streamsvm.jit import expose, inlined


class L2(NamedTuple):
    """l2/2 ||w||^2"""

    l2: float

    @property
    def l1(self) -> float:
        return 0.0

    @property
    def kind(self) -> str:
        return "l2" if self.l2 else "none"

    def shrink(self, eta):
        return 1.0 / (1.0 + eta * self.l2)

    def threshold(self, eta):
        return 0.0

    def zeros(self):
        return False


class L1(NamedTuple):
    """l1 ||w||_1"""

    l1: float

    @property
    def l2(self) -> float:
        return 0.0

    @property
    def kind(self) -> str:
        return "l1"

    def shrink(self, eta):
        return 1.0

    def threshold(self, eta):
        return eta * self.l1

    def zeros(self):
        return True


class ElasticNet(NamedTuple):
    """l2/2 ||w||^2 + l1 ||w||_1"""

    l2: float
    l1: float

    @property
    def kind(self) -> str:
        return "elastic_net"

    def shrink(self, eta):
        return 1.0 / (1.0 + eta * self.l2)

    def threshold(self, eta):
        return eta * self.l1

    def zeros(self):
        return True


Penalty = L2 | L1 | ElasticNet


def make_penalty(l2: float, l1: float = 0.0) -> Penalty:
    if not l1:
        return L2(l2)
    return ElasticNet(l2, l1) if l2 else L1(l1)


@inlined
def soft(value, amount):
    """value brought nearer to zero by an amount, and to exactly 0.0 where it would get past it"""
    return value - min(max(value, -amount), amount)


def _shrink(self, eta):
    return getattr(self.instance_class, "shrink", None)


def _threshold(self, eta):
    return getattr(self.instance_class, "threshold", None)


def _zeros(self):
    return getattr(self.instance_class, "zeros", None)


expose("shrink", _shrink)
expose("threshold", _threshold)
expose("zeros", _zeros)
