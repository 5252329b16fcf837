"""What is wanted of a map, before there are rows to make it from."""

from typing import NamedTuple


class Wish(NamedTuple):
    kind: str  # as in the settings; `dense` for kernel learners, which choose landmarks by themselves
    size: int | None = None
    gamma: float | None = None  # None: by the distances between the rows
    degree: int = 2
    coef0: float = 1.0
    means: bool = True  # whether landmarks are means of rows
    scale: str = "range"
    seed: int = 0
    kernel: str = "rbf"  # of a kernel learner
