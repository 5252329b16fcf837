"""What every online solver is: something that learns from batches, in row order, and can say where it stands.

Solvers hold all their numbers in two arrays: `vector` (float32, `columns` numbers for each feature, side by side, so
that a feature's state sits in one cache line) and `scalars` (float64). That is also what `state` returns and `restore`
takes, bit for bit; neither `state` nor `weights` changes anything.

`vector` may have room beyond the features seen. Nothing was written there for any one of them, so all of them hold the
same numbers: zeros, but where everything was multiplied by a number below zero, which rounding can make of zero (the
first step of pegasos), they are -0. A state has them once, and how much room there is: where memory is short, that
decides what can be had later.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from streamsvm.batch import Batch, Float32s, Float64s, Int64s, Uint32s, concatenate
from streamsvm.errors import ConfigError, DataError, DivergedError, ModelError
from streamsvm.losses import Hinge, Loss
from streamsvm.penalties import Penalty
from streamsvm.scoring import Offset, loss_sums, score_rows
from streamsvm.shuffle import taken
from streamsvm.solvers.step_size import (
    Visits,
    choose_step_size,
    choose_visits,
    relative,
    row_norms2,
    usual_weight,
    visit,
)

# Places in `scalars` that all online solvers share; a solver's own follow from OWN on.
SCALE, T, BIAS, SEEN, WEIGHT, LOSS, WRONG, STEP, PASS, BEFORE, UNIT, OWN = range(12)

TRIAL_ROWS = 8192  # rows on which a step size is chosen
TRIAL_FEATURES = 1 << 20  # or fewer rows, once they have this many features
FEWEST_AGAIN = 20  # rows that are visited again, if they are all
LARGEST_SCORE = 1e30  # beyond this the weights are overflowing
ROUNDING = 1.5 * 2.0**-24  # error of w for each unit of length written to it in single precision
READING = 2.0**-22  # relative error of w as it is read, and of a step's factor, in single precision too
DRIFT = 2.0**-49  # relative error for each row of what is counted in double precision
SMALLEST_SCALE = 1e-5  # below this w = scale * v is written out again

LATE = 1.0 / 16.0  # of the rows that are remembered: how many more may come before what takes a walk is done,
WALK = 64  # and where features.dim is large a row for so many weights, but no more rows than are remembered

PIECE = 1 << 16  # weights turned into float64 at a time

State = dict[str, Any]  # of arrays, plain numbers, and states of parts


class Bias(NamedTuple):
    """How the bias learns: `gain` is the square of its constant feature, `decay` 1 where l2 shrinks it, else 0."""

    gain: float = 1.0
    decay: float = 1.0


def make_bias(kind: str, scale: float) -> Bias:
    return {"penalised": Bias(scale * scale, 1.0), "free": Bias(scale * scale, 0.0), "none": Bias(0.0, 0.0)}[kind]


class Watch(Protocol):
    """What sees rows before they are learned, and may hold them back for a while (progressive.py, recent.py)."""

    def pieces(self, batch: Batch, order: Int64s, solver: Any) -> Iterator[tuple[Batch, Int64s | None]]: ...

    def flush(self, solver: Any) -> Iterator[tuple[Batch, Int64s | None]]: ...

    def state(self) -> "State": ...

    def restore(self, state: "State") -> None: ...


@runtime_checkable
class TakesScores(Protocol):
    """A watch that can do with scores that others have made of rows not learned, instead of its own."""

    def take(self, scores: Float64s, rows: Batch) -> None: ...


class Problem(NamedTuple):
    """l2/2 ||w||^2 + l1 ||w||_1 + mean of c_i loss(w.x_i + b, y_i)"""

    loss: Loss
    penalty: Penalty
    bias: Bias = Bias()

    @property
    def l2(self) -> float:
        return self.penalty.l2

    @property
    def provable(self) -> bool:
        """Whether iterates can prove a lower bound: with hinge, if the bias is a feature like others, or absent."""
        loss, _, bias = self
        return isinstance(loss, Hinge) and loss.margin == 1.0 and bool(bias.decay or not bias.gain)

    def norm2(self, weights: Float32s, bias: Offset) -> float:
        """||w||^2, a penalised bias included; of several classes the sum."""
        share = float(np.sum(bias * bias)) / self.bias.gain if self.bias.decay and self.bias.gain else 0.0
        flat = weights.reshape(-1)
        pieces = (flat[a : a + PIECE] for a in range(0, len(flat), PIECE))
        return share + sum(float(np.square(piece, dtype=np.float64).sum()) for piece in pieces)  # np.dot takes threads

    def objective(self, weights: Float32s, bias: Offset, mean_loss: float) -> float:
        norm1 = float(np.abs(weights).sum(dtype=np.float64)) if self.penalty.l1 else 0.0
        return 0.5 * self.l2 * self.norm2(weights, bias) + self.penalty.l1 * norm1 + mean_loss


class OnlineSolver(ABC):
    """Learns row by row. The order of rows alone decides the result: how they are cut into batches does not."""

    name: ClassVar[str]
    penalties: ClassVar[tuple[str, ...]] = ("l2",)  # kinds of penalty it can minimise
    own_scalars: ClassVar[int] = 0
    has_step_size: ClassVar[bool] = True
    revisit: bool = False  # whether rows that are few are visited several times
    worse_by: float = 0.0  # how much more a trial may cost, relatively, if it takes larger steps,
    doublings: int = 40  # and how many times as large they may be, as a power of two
    walks: ClassVar[bool] = False  # whether it has to walk over all weights to forget old rows
    rule: ClassVar[str] = "ova"  # how more than two classes are learned
    exempt: ClassVar[dict[str, str]] = {}  # tests of the contract that it need not pass, each with the reason

    def __init__(self, problem: Problem, *, eta0: float | None = None, dim: int = 0, memory: int | None = None) -> None:
        if problem.penalty.kind not in self.penalties:
            raise ConfigError(f"solver {self.name} cannot minimise penalty {problem.penalty.kind}")
        self.problem = problem
        self.columns = self.columns_for()
        self.dim = dim
        self.memory = memory
        self.width = dim  # one more than the largest index seen
        self.vector: Float32s = np.empty(0, np.float32)
        self.watch: Watch | None = None  # sees rows before they are learned
        self.scalars: Float64s = np.zeros(OWN + self.own_scalars)
        self.scalars[[SCALE, PASS, UNIT]] = 1.0
        self.scalars[STEP] = eta0 or 0.0
        self._trial: list[Batch] | None = [] if self.has_step_size and eta0 is None else None
        if dim:
            self._reserve(dim)

    # What a solver must say.

    @abstractmethod
    def run(self, batch: Batch, order: Int64s | None = None) -> int:
        """Learn the rows of a batch, in the order given; returns the row at which numbers overflowed, or -1."""

    @abstractmethod
    def weights(self) -> tuple[Float32s, Offset]:
        """The weights and the bias that prediction should use, in a new array."""

    @abstractmethod
    def start_from(self, weights: Float32s, bias: Offset) -> None:
        """Put known weights in place of zeros."""

    # What a solver may say.

    def columns_for(self) -> int:
        """How many float32 numbers it keeps for each feature, given the problem."""
        return 1

    def fresh(self, eta0: float) -> "OnlineSolver":
        """The same solver before its first row, with a step size to try."""
        return type(self)(self.problem, eta0=eta0)

    @staticmethod
    def guess(norm2: float) -> float:
        """A step size to begin the trials with, for rows of this mean squared length."""
        return 1.0 / norm2

    def reaches(self, rows: Batch) -> Float64s:
        """How much a step of size 1 changes each row's own score by its features."""
        return row_norms2(rows)

    def scorer(self) -> Callable[[Batch], Float64s]:
        """What gives rows scores by what was learned so far, as a model would have it; made once for many of them."""
        weights, bias = self.weights()
        return partial(score_rows, weights=weights, bias=bias)

    def scores(self, batch: Batch) -> Float64s:
        """Scores of rows by what was learned so far; nothing is learned from them."""
        return self.scorer()(batch)

    def supports(self) -> Float32s | None:
        """The rows whose weights `weights` has, of solvers that keep rows; None where these are weights of features."""
        return None

    @property
    def weight_count(self) -> int:
        return self.width

    def few_scores(self, batch: Batch) -> Float64s:
        """The same for a few rows, whose `indptr` begins with 0: only the weights of their features are looked at.

        Each feature of each row has its own copy of the weight, so that no others are needed.
        """
        own = batch._replace(indices=np.arange(batch.features, dtype=np.uint32))
        return score_rows(own, *self.weights_of(batch.indices))

    def objective(self, mean_loss: float) -> float:
        """What is minimised, by what was learned so far, where the mean loss of all rows is known."""
        return self.problem.objective(*self.weights(), mean_loss)

    def lower_bound(self) -> float | None:
        """A proven lower bound of the objective over all weights at the end of a pass; None where there is none.

        It relies on what only the caller knows: that every pass has the same rows with the same weights.
        """
        return None

    def admit(self, classes: int) -> None:
        """So many classes are known now; only solvers of more than two have use for that."""
        return None

    @property
    def known(self) -> int:
        """The classes that the rows learned so far have, by the order of rows alone."""
        return 2

    def tally(self) -> Float64s:
        """The weight of this pass's rows, that of wrong ones, and their losses: one sum, or one for each class."""
        return self.scalars[[WEIGHT, WRONG, LOSS]]

    def forget(self, rows: float) -> None:
        """What is older than about so many rows (of weight one) fades; to be called again and again.

        The clock does not pass them: steps stay as long as they are then, and a mean of iterates spans as many.
        """
        clock = float(self.scalars[T])
        late = min(rows, max(rows * LATE, self.dim / WALK)) if self.walks else 0.0
        if clock > rows + late:
            self.scalars[T] = rows
            self.turn_back(clock, rows)

    def turn_back(self, before: float, after: float) -> None:
        """The clock was `before` and is now `after`: no weight may change by that, nor any bound be claimed."""
        return None

    # What users of a solver call.

    def learn(self, batch: Batch, order: Int64s | None = None) -> None:
        """Predict each row, count its loss, then learn from it; one after the other, or in the order given."""
        if self._trial is None:
            self._learn(batch, order)
            return
        self._reserve(batch.width)
        self._trial.append(weighty(batch, row_order(batch, order)))
        self.scalars[SEEN] += (batch.rows if order is None else len(order)) - self._trial[-1].rows
        if enough_for_trials(self._trial):
            self._choose_step_size()

    def begin_pass(self, number: int) -> None:
        """Count losses from zero again."""
        self.scalars[PASS] = number
        self.scalars[BEFORE] = self.scalars[SEEN]
        self.scalars[[WEIGHT, LOSS, WRONG]] = 0.0

    def end_pass(self) -> None:
        """Rows that wait for a step size, because there are only a few, are learned now."""
        if any(kept.rows for kept in self._trial or []):
            self._choose_step_size(whole=self.scalars[PASS] == 1.0)
        self._flush_watch()
        with np.errstate(invalid="ignore"):
            total = self._total()
        if not np.isfinite(total):
            self._diverged(int(self.scalars[SEEN] - self.scalars[BEFORE]))

    def _flush_watch(self) -> None:
        """Learn the rows that are held back to be scored."""
        if self.watch is not None:
            for rows, order in self.watch.flush(self):
                self._run(rows, order)

    def finish(self) -> None:
        """The end of all passes."""
        self.end_pass()

    @property
    def step_size(self) -> float | None:
        """eta0, chosen or given; None before it is known or where a solver has none."""
        return float(self.scalars[STEP]) or None

    def take_step_size(self, eta0: float, unit: float = 1.0) -> None:
        """Before the first row: this step size, for weights relative to `unit`, which others have chosen."""
        self.scalars[[STEP, UNIT]] = eta0, unit
        self._trial = None

    def state(self) -> State:
        """Everything that the future depends on, copied."""
        end = self.width * self.columns
        return {
            "vector": self.vector[:end].copy(),
            "beyond": self.vector[end : end + self.columns].copy(),
            "room": len(self.vector) // self.columns,
            "scalars": self.scalars.copy(),
            **({} if self.watch is None else {"watch": self.watch.state()}),
        } | trial_state(self._trial)

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken; with less memory than there was, without the room to spare."""
        width, rest = divmod(len(state["vector"]), self.columns)
        if rest or len(state["scalars"]) != len(self.scalars) or (self.dim and width != self.dim):
            raise ModelError(f"the numbers saved are not those of solver {self.name} with these settings")
        room = int(state["room"])
        if not self._affordable(room):
            room = width
            if not self._affordable(width):
                self._refuse(width)
        self.vector = np.empty(0, np.float32)  # its memory is free before more is taken
        self.vector = np.empty(room * self.columns, np.float32)
        self.vector[: width * self.columns] = state["vector"]
        if room > width:
            self.vector.reshape(room, self.columns)[width:] = state["beyond"]
        self.width = width
        self.scalars = np.array(state["scalars"], np.float64)
        self._trial = trial_from(state)
        if self.watch is not None:
            self.watch.restore(state["watch"])

    def weights_of(self, indices: Uint32s) -> tuple[Float32s, Offset]:
        """The weights of these features alone, in this order, and the bias; all others are left as they are."""
        narrow = copy.copy(self)
        narrow.vector = np.take(self.vector.reshape(-1, self.columns), indices, axis=0).reshape(-1)
        narrow.width = len(indices)
        return narrow.weights()

    # How it is done.

    def _learn(self, batch: Batch, order: Int64s | None = None) -> None:
        if self.watch is None:
            self._teach(batch, order)
            return
        self._reserve(batch.width)
        for rows, visits in self.watch.pieces(batch, row_order(batch, order), self):
            self._run(rows, visits)

    def _teach(self, batch: Batch, order: Int64s | None = None) -> None:
        self._reserve(batch.width)
        self._run(batch, order)

    def _run(self, batch: Batch, order: Int64s | None) -> None:
        """Learn rows for which there is room."""
        bad = self.run(relative(batch, float(self.scalars[UNIT])), order)
        if bad >= 0:
            self._diverged(int(self.scalars[SEEN] - self.scalars[BEFORE]) + bad + 1)
        self.scalars[SEEN] += batch.rows if order is None else len(order)

    def _total(self) -> float:
        """The sum of the numbers kept for features: not finite if one of them is not."""
        return float(np.sum(self.vector, dtype=np.float64))

    def _diverged(self, row: int) -> None:
        eta = self.step_size or 1.0 / max(self.problem.l2 * max(1.0, self.scalars[T]), 1e-300)
        remedy = "a smaller solver.eta0 or a larger penalty.l2" if self.has_step_size else "a larger penalty.l2"
        raise DivergedError(
            f"diverged in pass {self.scalars[PASS]:.0f} at row {row} with step size {eta:.3g}: the scores overflow. "
            f"Scale the features to about 1, or set {remedy}"
        )

    def _dual_value(
        self, alphas: float, clock: float, visited: float, written: float, weights: Float32s, bias: float
    ) -> float | None:
        """The dual objective l2 (sum of alpha - 1/2 ||w||^2) of w = sum of alpha_i y_i x_i: no primal value is below.

        It must be feasible: alpha_i <= c_i / (l2 N). A visit of row i leaves c_i / (l2 clock) or less in alpha_i, and
        in whole passes c_i / N of the weight visited is row i's. So all alpha may be multiplied by any number up to
        clock / visited, and the best is taken: a large t0, that is small steps, would leave a bound near zero.

        And w as stored is not quite that sum. To store v_j + f x_j is to round a product and a sum, each by 2^-24 of
        itself at most. For a row that is, as |a| + |b| <= sqrt(2 (a^2 + b^2)), no more than sqrt(2) 2^-24 times the
        root of the squares of all that was rounded, and for all rows the root of all their squares times their
        number, which is `written`. Nothing less is safe: errors of equal sign add up, and rows sorted by class write
        long vectors that cancel in the end, but not their errors. The rounding of f, and all that happens in double
        precision, changes alpha by `slack`, and the bias, kept apart, by as much of its part in the sum.
        """
        drift = DRIFT * self.scalars[SEEN]
        whole = abs(visited - self.scalars[PASS] * self.scalars[WEIGHT]) <= drift * visited
        if not (self.problem.provable and whole and visited > 0.0) or np.isnan(alphas):
            return None
        slack = READING + 2.0 * drift
        error = ROUNDING * written + slack * alphas * np.sqrt(self.problem.bias.gain)
        length2 = (np.sqrt(self.problem.norm2(weights, bias)) * (1.0 + slack) + error) ** 2
        if not np.isfinite(length2):
            return None
        alphas *= 1.0 - slack
        factor = min(clock / visited * (1.0 - slack), alphas / length2 if length2 > 0.0 else np.inf)
        return float(self.problem.l2 * (factor * alphas - 0.5 * factor * factor * length2))

    def _choose_step_size(self, *, whole: bool = False) -> None:
        """Learn the rows that wait; if they are the `whole` data, as often as they bear."""
        waiting = concatenate(self._trial or [])
        self._trial = None
        rows = trial_rows(waiting)
        self.scalars[UNIT] = unit = usual_weight(rows)
        self.scalars[STEP] = choose_step_size(*self.trial_of(relative(rows, unit)))
        visits = self._choose_visits(relative(waiting, unit)) if whole and self.revisit else None
        self._learn(waiting)
        if visits is not None:
            self._flush_watch()
            self._visit_again(waiting, visits)

    def _choose_visits(self, rows: Batch) -> Visits | None:
        if rows.rows < FEWEST_AGAIN:
            return None
        return choose_visits(self, compact(rows), partial(self.fresh, float(self.scalars[STEP])))

    def _visit_again(self, waiting: Batch, visits: Visits) -> None:
        """Learn rows again; what is told of them is what they cost when they came first."""
        told = self.scalars[[WEIGHT, LOSS, WRONG, T]]
        rows = relative(waiting, float(self.scalars[UNIT]))
        for number in range(1, visits.passes):
            visit(self, rows, np.arange(rows.rows), number)
        self.scalars[[WEIGHT, LOSS, WRONG, T]] = told  # the clock counts rows, not visits
        if isinstance(self.watch, TakesScores):
            self.watch.take(visits.scores, taken(waiting, visits.rows))

    def trial_of(self, rows: Batch) -> tuple["OnlineSolver", Batch]:
        """A solver like this one to try step sizes with, and the rows as it wants them."""
        return self, rows

    def _reserve(self, width: int) -> None:
        """Room for features 0 .. width - 1, refused before it is allocated when it exceeds the budget."""
        if self.dim and width > self.dim:
            raise DataError(f"index {width - 1} is out of range: features.dim is {self.dim}")
        if width * self.columns > len(self.vector):
            have = len(self.vector) // self.columns
            room = width if self.dim else 1 << max(10, (width - 1).bit_length())
            if not self._affordable(have + room):
                room = width
            if not self._affordable(have + room):
                self._refuse(width)
            grown = np.zeros(room * self.columns, np.float32)
            grown[: len(self.vector)] = self.vector
            self.vector = grown
        self.width = max(self.width, width)

    def bytes_for(self, width: int) -> int:
        """The solver's state and the model made from it."""
        return width * (4 * self.columns + 4)

    def _affordable(self, width: int) -> bool:
        return self.memory is None or self.bytes_for(width) <= self.memory

    def _refuse(self, width: int) -> None:
        assert self.memory is not None
        bits = max(1, (self.memory // self.bytes_for(1)).bit_length() - 1)
        needed, left = self.bytes_for(width) / 1e6, self.memory / 1e6
        error = ConfigError if self.dim else DataError
        cause = f"{width} weights" if self.dim else f"index {width - 1}"
        raise error(
            f"{cause}: solver {self.name} would need {needed:,.0f} MB, but the memory budget leaves {left:,.0f} MB; "
            f"set features.hash_bits: {bits} (--hash-bits {bits}), or raise --memory"
        )


def enough_for_trials(kept: list[Batch]) -> bool:
    return sum(part.rows for part in kept) >= TRIAL_ROWS or sum(part.features for part in kept) >= TRIAL_FEATURES


def trial_state(kept: list[Batch] | None) -> State:
    """Rows that wait for a step size, copied, as part of a state; nothing where one is known."""
    return {} if kept is None else {"trial": concatenate(kept)._asdict()}


def trial_from(state: State) -> list[Batch] | None:
    """The same rows out of a state, copied again; None where a step size was known."""
    return [Batch(**state["trial"]).copy()] if "trial" in state else None


def trial_rows(waiting: Batch) -> Batch:
    """The rows on which step sizes are tried, compact."""
    enough = int(np.searchsorted(waiting.indptr, TRIAL_FEATURES))
    return compact(waiting.slice(0, min(TRIAL_ROWS, enough, waiting.rows)))


_ORDERS = [np.arange(1 << 14)]


def row_order(batch: Batch, order: Int64s | None) -> Int64s:
    """The order in which a kernel visits the rows of a batch; 0, 1, 2, ... unless another is given."""
    if order is not None:
        return order
    if batch.rows > len(_ORDERS[0]):
        _ORDERS[0] = np.arange(2 * batch.rows)
    return _ORDERS[0][: batch.rows]


def weighty(batch: Batch, order: Int64s) -> Batch:
    """A copy in the order given, without rows of weight 0: the choice of a step size must not depend on them."""
    rows = order[batch.weights[order] != 0.0]
    lengths = np.diff(batch.indptr)[rows]
    indptr = np.append(0, np.cumsum(lengths))
    inside = np.arange(indptr[-1]) + np.repeat(batch.indptr[:-1][rows] - indptr[:-1], lengths)
    return Batch(indptr, batch.indices[inside], batch.values[inside], batch.labels[rows], batch.weights[rows])


def compact(rows: Batch) -> Batch:
    """The same rows with the features that occur numbered from 0, so that a trial needs little memory."""
    rows = rows.copy()
    _, renumbered = np.unique(rows.indices, return_inverse=True)
    return rows._replace(indices=renumbered.astype(np.uint32))


def objective_on(problem: Problem, rows: Batch, weights: Float32s, bias: Offset, rule: str = "ova") -> float:
    total, weight, _ = loss_sums(rows, problem.loss, weights, bias, rule)
    value = problem.objective(weights, bias, total / max(weight, 1e-300))
    return value if np.isfinite(value) else float("inf")
