"""Whether the loss of a stream has left the band of what is usual: a warning that the data are not what they were.

    x            the mean loss of a block of slots; a window is 16 blocks or more
    recent       the mean of the last window's blocks, or of the last two windows': whichever is higher, seen in d
    usual        m, the mean of all blocks before these two windows, of which old ones fade: about 32 windows count
    deviation    s^2, the mean of (x - m)^2, and e, by how much means of whole windows vary more than s^2 / blocks
    band         recent < m + 4.25 d,  d^2 = (s^2 / blocks + e) (1 + blocks / number of blocks that m is the mean of)

Every x, of m and s as of the recent ones, is first brought to within 2.5 s of m: a few slots that are far out move
nothing, a rise of most slots does. Losses that fall, as they do while a model learns, leave m too high for a while:
then nothing is found, rather than something wrong. So is nothing in the first six windows.

    usual --(recent above the band)--> drifting --(last window below m + 1.5 d)--> usual again
                                       drifting --(for 8 windows)--> what has come to be is usual from now on

While it drifts, m and s stand still. A loss that becomes smaller is no drift. How soon a rise by five deviations of a
window's mean is noticed, and how seldom noise is taken for one, is simulated in tests/test_drift.py.
"""

import math
import statistics
from typing import Any

BLOCKS = 16  # of a window, at least; one of fewer slots is judged as if it had so many
MEMORY = 32  # windows that what is usual is the mean of
FAR = 2.5  # deviations at which a block's loss is cut off
SURE = 2.5  # times more than by noise: so much windows must vary before it is believed
WIDE = 4.25  # deviations of a window's mean at which it has left the band
NEAR = 1.5  # and at which it is back
PATIENCE = 8  # windows after which a drift is what is usual
FLOOR = 1e-3  # a deviation is at least this part of the mean
TINY = 1e-4  # and at least this: losses are numbers about 1

LEFT, BACK, SETTLED = "left", "back", "settled"


class Band:
    """Is told the loss of one slot after the other. `see` says when something changes: LEFT, BACK or SETTLED."""

    def __init__(self, slots: int) -> None:
        slots = max(slots, BLOCKS)
        self._block = slots // BLOCKS  # slots
        self._window = -(-slots // self._block)  # blocks
        self._open = [0.0, 0.0, 0.0]  # slots of the block that is not complete, their losses, their weights
        self._last: list[float] = []  # losses of the last two windows of blocks, the oldest first
        self._blocks = 0.0  # that were seen before these
        self._mean = self._square = self._wander = 0.0
        self._share2 = 1.0  # the sum of squared shares that blocks have in the mean: 1 / their number, if all are equal
        self.drifting = False
        self._since = 0  # blocks since it began to drift
        self._judged = self._window  # blocks that the last verdict was about

    @property
    def slots(self) -> int:
        """How many slots the last verdict was about: those of a window, or of two."""
        return self._judged * self._block

    @property
    def usual(self) -> float | None:
        """The loss that is usual; None before that is known."""
        return self._mean if self._known else None

    @property
    def recent(self) -> float | None:
        """The loss of these slots; None before there are so many."""
        return mean(self._last[-self._judged :]) if len(self._last) >= self._judged else None

    @property
    def top(self) -> float | None:
        """Where the band ends above; None before that is known."""
        return self._mean + WIDE * self._deviation(self._judged) if self._known else None

    def see(self, loss: float, weight: float) -> str | None:
        """The mean loss of the next slot, and the weight of its rows."""
        if not weight > 0.0 or not math.isfinite(loss):
            return None
        self._open = [self._open[0] + 1.0, self._open[1] + loss * weight, self._open[2] + weight]
        if self._open[0] < self._block:
            return None
        self._last.append(self._open[1] / self._open[2])
        self._open = [0.0, 0.0, 0.0]
        if len(self._last) > 2 * self._window:
            if not self.drifting:
                self._learn()
            del self._last[0]
        elif len(self._last) == 2 * self._window and not self._blocks:
            self._begin(self._window / 2)
        return self._judge() if self._known else None

    @property
    def _known(self) -> bool:
        return self._blocks >= 4 * self._window

    def _learn(self) -> None:
        """The oldest block becomes part of what is usual, and so does the mean of the window that it begins."""
        cut = self._cut(self._last[: self._window])
        block, window = cut[0] - self._mean, mean(cut) - self._mean
        self._blocks += 1.0
        share = max(2.0 / (self._blocks + 1.0), 1.0 / (MEMORY * self._window))  # the first ones fade
        self._mean += share * block
        self._square += share * (block * block - self._square)
        self._wander += share * (window * window - self._wander)
        self._share2 = (1.0 - share) ** 2 * self._share2 + share * share

    @property
    def _scale(self) -> float:
        """The deviation of blocks."""
        return max(math.sqrt(self._square), FLOOR * abs(self._mean), TINY)

    def _deviation(self, blocks: int) -> float:
        """That of the mean of so many blocks from the usual mean, both of which are uncertain."""
        square, noise = self._scale**2, self._scale**2 / self._window
        more = self._wander - noise if self._wander > SURE * noise else 0.0
        return math.sqrt((square / blocks + more) * (1.0 + blocks * self._share2))

    def _cut(self, losses: list[float]) -> list[float]:
        low, high = self._mean - FAR * self._scale, self._mean + FAR * self._scale
        return [low if loss < low else high if loss > high else loss for loss in losses]

    def _height(self, blocks: int) -> float:
        """By how many deviations the last blocks are above what is usual."""
        return (mean(self._cut(self._last[-blocks:])) - self._mean) / self._deviation(blocks)

    def _judge(self) -> str | None:
        if not self.drifting:
            self._judged = max(self._window, len(self._last), key=self._height)
            if self._height(self._judged) < WIDE:
                return None
            self.drifting, self._since = True, 0
            return LEFT
        self._judged = self._window
        self._since += 1
        if self._height(self._window) < NEAR:
            self.drifting = False
            del self._last[: -self._window]  # what was strange is neither recent any longer nor usual
            return BACK
        if self._since >= PATIENCE * self._window:
            self.drifting = False
            self._begin(2 * self._window)
            return SETTLED
        return None

    def _begin(self, blocks: float) -> None:
        """What the last two windows say is usual, and counts as so many blocks; by medians, for nothing is known."""
        middle = statistics.median(self._last)
        spread = 1.4826 * statistics.median(abs(loss - middle) for loss in self._last)
        near = [min(max(loss, middle - FAR * spread), middle + FAR * spread) for loss in self._last]
        self._mean = mean(near)
        self._square = mean([(loss - self._mean) ** 2 for loss in near])
        self._wander = self._square / self._window
        self._blocks, self._share2 = float(blocks), 1.0 / blocks

    def state(self) -> dict[str, Any]:
        """Everything that the future depends on, copied."""
        return {
            "open": list(self._open),
            "last": list(self._last),
            "usual": [self._blocks, self._mean, self._square, self._wander, self._share2],
            "drifting": self.drifting,
            "since": self._since,
            "judged": self._judged,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state` was taken."""
        self._open = [float(number) for number in state["open"]]
        self._last = [float(loss) for loss in state["last"]]
        self._blocks, self._mean, self._square, self._wander, self._share2 = map(float, state["usual"])
        self.drifting, self._since = bool(state["drifting"]), int(state["since"])
        self._judged = int(state["judged"])


def mean(losses: list[float]) -> float:
    return math.fsum(losses) / len(losses)
