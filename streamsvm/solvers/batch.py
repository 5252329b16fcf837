"""What every solver of finite data is: something that reads all rows again and again, and proves how far it has come.

Such a solver is given the rows in groups, and learns until the relative gap

    (objective - dual) / objective,      where no weights have an objective below `dual`

is at most `limits.tol`, or until it may go on no longer. It keeps weights in double precision. `tick` is called while
data is read; whoever hears it may ask for `state`, which then stands for a moment from which `restore` can go on.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from streamsvm.batch import Float32s, Float64s
from streamsvm.errors import ConfigError
from streamsvm.groups import Groups
from streamsvm.penalties import make_penalty
from streamsvm.solvers.base import Problem, State


class Limits(NamedTuple):
    """When to stop: at a relative gap, after so many passes, or after so many seconds."""

    tol: float = 1e-3
    passes: int = 1000
    seconds: float | None = None


class Figures(NamedTuple):
    """What is known of the weights that a solver would give: exact figures over all rows."""

    objective: float
    dual: float | None  # no weights have an objective below; None where nothing is proven
    loss: float  # mean over the rows
    error: float

    @property
    def gap(self) -> float | None:
        """Relative to the objective."""
        if self.dual is None:
            return None
        return (self.objective - self.dual) / self.objective if self.objective > 0.0 else 0.0


class Surroundings(NamedTuple):
    """What a solver may use, and whom it tells."""

    memory: int = 1 << 30
    seed: int = 0
    limits: Limits = Limits()
    tick: Callable[[int], None] = lambda rows: None  # after each piece of work, with the rows that were read
    tell: Callable[[Figures], None] = lambda figures: None  # whenever the figures are known anew
    note: Callable[[str], None] = lambda text: None
    started: float | None = None  # by time.perf_counter()


ALONE = Surroundings()


class BatchSolver(ABC):
    """Learns from all rows at once: `learn` returns when a limit is reached."""

    name: ClassVar[str]
    free_bias: ClassVar[bool] = False  # whether the bias may stand outside of the penalty
    weight_bytes: ClassVar[int] = 56  # that it needs at least for each weight

    def __init__(self, problem: Problem, groups: Groups, around: Surroundings = ALONE) -> None:
        if problem.penalty.kind != "l2":
            raise ConfigError(f"solver {self.name} cannot minimise penalty {problem.penalty.kind}")
        if problem.bias.gain and not problem.bias.decay and not self.free_bias:
            raise ConfigError(
                f"solver {self.name} cannot have a free bias: its proof needs one inside the penalty, or none"
            )
        self.problem = problem
        self.groups = groups
        self.around = around
        self.figures: Figures | None = None
        self.passes = 0  # that were made to learn
        self._started = time.perf_counter() if around.started is None else around.started

    # What a solver must say.

    @abstractmethod
    def learn(self) -> None:
        """Go on until `_enough` says so."""

    @abstractmethod
    def vector(self) -> Float64s:
        """The weights, and at the end that of the bias' feature; those that `figures` speak of."""

    @abstractmethod
    def start_from(self, weights: Float32s, bias: float) -> None:
        """Begin with known weights instead of zeros."""

    @abstractmethod
    def state(self) -> State:
        """Copies from which `restore` can go on, with `passes` and nothing that the data or the settings tell."""

    @abstractmethod
    def restore(self, state: State) -> None: ...

    # What a solver may say.

    def described(self) -> str:
        """How it goes about it, given the data and the memory, in words."""
        groups = self.groups
        return f"{groups.rows:,} rows in {groups.count:,} groups, each reading on {groups.threads} threads"

    # What users of a solver call.

    def weights(self) -> tuple[Float32s, float]:
        """The weights and the bias as a model has them."""
        vector = self.vector()
        return vector[:-1].astype(np.float32), float(vector[-1] * np.sqrt(self.problem.bias.gain))

    def with_penalty(self, l2: float) -> None:
        """Another weight of the penalty; what was learned is where learning begins again."""
        self.problem = self.problem._replace(penalty=make_penalty(l2, 0.0))
        self.figures = None
        self.passes = 0

    # What solvers share.

    def _extended(self, weights: Float32s, bias: float) -> Float64s:
        """A model's weights as a vector with the bias' own at the end."""
        vector = np.zeros(self.groups.width + 1)
        kept = min(len(weights), self.groups.width)
        vector[:kept] = weights[:kept]
        root = np.sqrt(self.problem.bias.gain)
        vector[-1] = bias / root if root else 0.0
        return vector

    def _penalty(self, vector: Float64s) -> float:
        """l2/2 ||w||^2, a bias outside of the penalty left out."""
        inside = vector if self.problem.bias.decay else vector[:-1]
        return 0.5 * self.problem.l2 * float(np.sum(inside * inside))

    def _enough(self, figures: Figures) -> bool:
        """Take note of the figures; True when to stop. No loss is negative, so no objective is below zero."""
        self.figures = figures._replace(dual=None if figures.dual is None else max(figures.dual, 0.0))
        self.around.tell(self.figures)
        return self.converged or self._over()

    @property
    def converged(self) -> bool:
        """Whether the gap is as small as it should be."""
        gap = self.figures.gap if self.figures is not None else None
        return gap is not None and gap <= self.around.limits.tol

    def _over(self) -> bool:
        """Whether there may be no further pass."""
        limits = self.around.limits
        late = limits.seconds is not None and time.perf_counter() - self._started >= limits.seconds
        return late or self.passes >= limits.passes
