"""How shards that learn by themselves come to agree: ADMM with a pace of its own for each feature.

    minimise   l2/2 ||z||^2 + sum_k f_k(v_k)   such that   v_k = z,      f_k = the losses of shard k over N

    shard k    v_k = argmin f_k(v) + l2/2 |v - (2 z - m_k)|^2 / s  by dcd:   v_k = 2 z - m_k + s (what it added to w)
               m_k <- r z + (r - 1) (v_k - 2 z)                             its memory of how far it was from z
    driver     w   <- w + sum of what each shard added:                     the weights that all dual variables make
               z   <- z + r s/(s + K) (w - z)                               the weights that all agree upon

    S. Boyd et al., "Distributed optimization and statistical learning via ADMM", 2011, 7.1, over-relaxed by r.

z is scanned: P(z), and D of the dual variables, whose weights are w. Both are exact, so is the gap. CoCoA+ (C. Ma et
al., 2015) is this with s = K, r = 1 and w in place of z. There shards that lean to different sides come together by
l2 / (curvature + l2) a round, in thousands of rounds where rows have much in common; here they do so in dozens.

What a round may move weight j by is its pace s_j. With f_k as firm as a spring of h_j / K along feature j, the pace
K l2 / (l2 + h_j) halves what is left in each round. h_j is `firmness` times the mean of c x_j^2, and firmness is found
on the way. P(z) - D has two parts, both of which must go:

    l2/2 ||z - w||^2       if it is the larger one, paces are too short: less firmness
    the rest               what dual variables lack at z. If it is by far the larger one: more

One shard alone has pace 1 and r = 2, with which z = w, and v begins where it ended: plain dcd.
"""

from typing import NamedTuple

import numpy as np

from streamsvm.batch import Float64s
from streamsvm.solvers.units import powers_of_two

RELAXATION = 1.7
FIRMNESS = 0.3  # to begin with
TOO_FIRM, TOO_LOOSE = 4.0, 10.0  # times that one part of the gap is larger than the other
CHANGE, CALM = 2.0, 10.0  # the factor of a change at first, and after how many rounds it is but its root


class Metric(NamedTuple):
    """The paces of a round. `squares` are the means of c x^2 of all features, and at the end that of the bias."""

    shards: int
    l2: float
    firmness: float = FIRMNESS
    before: float = FIRMNESS  # when shards wrote down their memories

    @property
    def relaxation(self) -> float:
        return RELAXATION if self.shards > 1 else 2.0

    def units(self, squares: Float64s, firmness: float | None = None) -> Float64s:
        """Units of the features in which plain steps of dcd have these paces."""
        if self.shards == 1:
            return np.ones(len(squares))
        firmness = self.firmness if firmness is None else firmness
        return powers_of_two(self.shards * self.l2 / (self.l2 + firmness * squares))

    def recalled(self, memory: Float64s, agreed: Float64s, units: Float64s, squares: Float64s) -> Float64s:
        """The memory of a shard, if paces are others than when it was written down."""
        if self.before == self.firmness:
            return memory
        longer = paces(units / self.units(squares, self.before), agreed)
        recalled: Float64s = agreed + longer * (memory - agreed)
        return recalled

    def remembered(self, memory: Float64s, agreed: Float64s, moved: Float64s) -> Float64s:
        """The memory of a shard that began at 2 agreed - memory, and moved so far."""
        remembered: Float64s = self.relaxation * agreed + (self.relaxation - 1.0) * (moved - memory)
        return remembered

    def towards(self, agreed: Float64s, combined: Float64s, units: Float64s) -> Float64s:
        """The weights that all agree upon next."""
        pace = paces(units, agreed)
        moved: Float64s = agreed + self.relaxation * pace / (pace + self.shards) * (combined - agreed)
        return moved

    def after(self, rounds: int, apart: float, lacking: float) -> "Metric":
        """That of the next round, as the two parts of the gap ask for it."""
        return self._replace(firmness=next_firmness(self.firmness, rounds, apart, lacking))


def paces(units: Float64s, weights: Float64s) -> Float64s:
    """What steps in these units are longer by, in the shape of weights, which may be those of several classes."""
    return np.square(units).reshape(-1, *(1,) * (weights.ndim - 1))


def next_firmness(firmness: float, rounds: int, apart: float, lacking: float) -> float:
    """Changes become smaller from round to round."""
    change = float(CHANGE ** (1.0 / (1.0 + rounds / CALM)))
    if apart > TOO_FIRM * lacking:
        return firmness / change
    if lacking > TOO_LOOSE * apart:
        return firmness * change
    return firmness
