"""What every online solver of several classes is: a feature's weights for all classes side by side, one walk a row.

    minimise   for each class k:  l2/2 ||w_k||^2 + l1 ||w_k||_1 + mean of c_i loss(w_k.x_i + b_k, +1 if y_i = k else -1)
    each row   the update of the plain solver in every lane, all with the same step size

    Cost per row: with 10 classes about three times the walks of one, not ten times.

Class k lives in lane k, and is, number for number, what the plain solver gives that is trained on `k or not` with the
same step size. The step size is chosen once, for all classes together, on the first rows.

**Classes may be found on the stream.** There are always more lanes than classes, and a lane without a class sees every
row as a negative one. That is what a class has learned before its first row comes: so a class that comes late takes the
next lane, and ends exactly where it would have, had it been declared. All lanes without a class hold the same numbers.

`vector` has the numbers of a feature as [column, lane]; `numbers` has a row of lanes for each of the plain solver's
scalars, of which those named in `apart` differ between classes, and rows of scratch after them.
"""

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Batch, Float32s, Float64s, Int64s
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.scoring import Offset
from streamsvm.solvers.base import LOSS, WEIGHT, WRONG, OnlineSolver, Problem, State, row_order
from streamsvm.solvers.lane_group import aligned
from streamsvm.solvers.step_size import Visits

PART = 8  # lanes whose row sums fit into the registers
SCRATCH = 8  # rows of `numbers` that kernels may use as they like
MOST_TRIED = 32  # classes on which a step size is tried
FEATURES = 1 << 12  # whose numbers are moved at a time
INHERITED = ("penalties", "has_step_size", "worse_by", "walks")


class ManyClasses(OnlineSolver):
    """Learns several classes in one pass. With `classes` = 0 they are found: `admit` says how many there are."""

    plain: ClassVar[type[OnlineSolver]]  # what each class is learned by
    apart: ClassVar[tuple[int, ...]]  # the scalars that each class has for itself
    rule: ClassVar[str] = "ova"
    lanes_by: ClassVar[int] = PART  # there are 4 lanes, or a multiple of so many

    def __init_subclass__(cls) -> None:
        if hasattr(cls, "plain"):
            cls.name = cls.plain.name
            cls.own_scalars = cls.plain.own_scalars + 1  # the last one: how many classes were seen, row by row
            cls.guess = staticmethod(cls.plain.guess)  # type: ignore[method-assign]
            for name in INHERITED:
                setattr(cls, name, getattr(cls.plain, name))

    def __init__(
        self,
        problem: Problem,
        *,
        classes: int = 0,
        eta0: float | None = None,
        dim: int = 0,
        memory: int | None = None,
        **own: Any,
    ) -> None:
        self.own = own  # the plain solver's own settings
        self.growing = classes == 0
        self.classes = classes
        self.lanes = padded(classes + self.growing, self.lanes_by)
        step: dict[str, Any] = {"eta0": eta0} if self.has_step_size else {}
        self._one = self.plain(problem, **step, **own)
        super().__init__(problem, eta0=eta0, dim=dim, memory=memory)
        self.worse_by, self.doublings = self._one.worse_by, self._one.doublings
        self.numbers: Float64s = np.empty(0)
        self._lay_out()
        self.scalars[-1] = classes

    def _lay_out(self) -> None:
        """Numbers of classes that have seen nothing."""
        own = self._one.scalars
        self.numbers = np.zeros((len(own) + SCRATCH, self.lanes))
        self.numbers[: len(own)] = own[:, None]

    # What a solver of classes must say, beside `run`.

    def columns_for(self) -> int:
        return self._one.columns * self.lanes

    def fresh(self, eta0: float) -> "ManyClasses":
        return type(self)(self.problem, eta0=eta0, classes=self.classes, **self.own)

    # Classes.

    def admit(self, classes: int) -> None:
        """So many classes are known now; those that are new take over lanes that nobody had yet."""
        if classes <= self.classes:
            return
        if not self.growing:
            raise ModelError(f"{classes} classes, where {self.classes} were declared")
        if classes >= self.lanes:
            self._widen(padded(max(classes + 1, 3 * self.lanes // 2), self.lanes_by))
        self.classes = classes

    @property
    def known(self) -> int:
        return int(self.scalars[-1])

    def tally(self) -> Float64s:
        return np.append(self.scalars[[WEIGHT, WRONG]], self.numbers[LOSS])

    def _widen(self, lanes: int) -> None:
        """More lanes; the new ones hold what the last one does, which has no class."""
        old, room = self.lanes, len(self.vector) // self.columns
        columns = self.columns // old
        if self.memory is not None and 4 * room * columns * (old + lanes) > self.memory:
            room = self.width
        if self.memory is not None and 4 * self.width * columns * (old + lanes) > self.memory:
            self._refuse_classes(lanes)
        narrow = self._tables(self.vector, old)
        self.vector = aligned(room * columns * lanes)
        for table, wide in zip(narrow, self._tables(self.vector, lanes), strict=True):
            self._copy(table, wide)
        numbers = np.zeros((len(self.numbers), lanes))
        self._copy(self.numbers, numbers)
        self.numbers, self.lanes, self.columns = numbers, lanes, columns * lanes

    @staticmethod
    def _copy(narrow: npt.NDArray[Any], wide: npt.NDArray[Any]) -> None:
        lanes = narrow.shape[-1]
        for a in range(0, len(wide), FEATURES):
            piece = narrow[a : min(a + FEATURES, len(wide))]
            wide[a : a + len(piece), ..., :lanes] = piece
            wide[a : a + len(piece), ..., lanes:] = piece[..., -1:]

    def _refuse_classes(self, lanes: int) -> None:
        assert self.memory is not None
        needed = 4 * self.width * self.columns // self.lanes * lanes / 1e6
        raise DataError(
            f"{self.classes + 1} classes: solver {self.name} would need {needed:,.0f} MB, but the memory budget leaves "
            f"{self.memory / 1e6:,.0f} MB; use fewer features (--hash-bits), or raise --memory"
        )

    # Learning.

    def _run(self, batch: Batch, order: Int64s | None) -> None:
        super()._run(batch, order)
        self.scalars[LOSS] = self.numbers[LOSS, : self.classes].sum()

    def _visit_again(self, waiting: Batch, visits: Visits) -> None:
        losses = self.numbers[LOSS].copy()
        super()._visit_again(waiting, visits)
        self.numbers[LOSS] = losses

    def begin_pass(self, number: int) -> None:
        super().begin_pass(number)
        self.numbers[LOSS] = 0.0

    def trial_of(self, rows: Batch) -> tuple[OnlineSolver, Batch]:
        """A solver of the classes that these rows have, the most frequent ones if they are many, and the rows.

        What was declared but is not there has no say in the step size, so that it does not matter if it was declared.
        """
        codes, first, places, counts = np.unique(
            rows.labels, return_index=True, return_inverse=True, return_counts=True
        )
        ranks = np.lexsort((first, -counts))
        kept = np.sort(ranks[:MOST_TRIED]) if self.rule == "ova" else np.arange(len(codes))
        order = kept[np.argsort(first[kept])]
        code_of = np.full(len(codes), len(kept), np.float32)
        code_of[order] = np.arange(len(kept))
        solver = type(self)(self.problem, eta0=1.0, classes=max(len(kept), 1), **self.own)
        return solver, rows._replace(labels=code_of[places])

    # One class.

    def one(self, k: int) -> OnlineSolver:
        """Class k as a plain solver, a copy."""
        solver = self.plain(self.problem, **self.own)
        solver.restore(self._state_of(k))
        return solver

    def _state_of(self, k: int) -> State:
        """What the plain solver's state would be for class k."""
        scalars = self.scalars[:-1].copy()
        scalars[list(self.apart)] = self.numbers[list(self.apart), k]
        return {"vector": self._lane(k), "room": self.width, "scalars": scalars}

    def _tables(self, vector: Float32s, lanes: int) -> list[npt.NDArray[Any]]:
        """The numbers in `vector` as [feature, column, lane], not copied; as several tables if their types differ."""
        return [vector.reshape(-1, self._one.columns, lanes)]

    def _used(self) -> list[npt.NDArray[Any]]:
        """The numbers of the features seen."""
        return self._tables(self.vector[: self.width * self.columns], self.lanes)

    def _lane(self, k: int) -> Float32s:
        """The numbers of class k as the plain solver has them."""
        parts = [np.ascontiguousarray(table[:, :, k]).view(np.float32) for table in self._used()]
        lane: Float32s = np.concatenate(parts, axis=1).ravel()
        return lane

    def _put_lane(self, k: int, vector: Float32s) -> None:
        given, place = vector[: self.width * self._one.columns].reshape(-1, self._one.columns), 0
        for table in self._used():
            size = table.shape[1] * table.itemsize // vector.itemsize
            table[:, :, k] = np.ascontiguousarray(given[:, place : place + size]).view(table.dtype)
            place += size

    def _put(self, k: int, solver: OnlineSolver) -> None:
        """Let class k be what a plain solver says."""
        self._put_lane(k, solver.vector)
        self.numbers[list(self.apart), k] = solver.scalars[list(self.apart)]

    def weights(self) -> tuple[Float32s, Offset]:
        weights, bias = np.zeros((self.width, self.classes), np.float32), np.zeros(self.classes)
        for k in range(self.classes):
            weights[:, k], bias[k] = self.one(k).weights()
        return weights, bias

    def start_from(self, weights: Float32s, bias: Offset) -> None:
        if weights.ndim != 2 or weights.shape[1] != self.classes:
            raise ModelError(f"the weights to begin with are {list(weights.shape)}, for {self.classes} classes")
        self._reserve(len(weights))
        for k in range(self.classes):
            solver = self.one(k)
            solver.start_from(np.ascontiguousarray(weights[:, k]), float(bias[k]))
            self._put(k, solver)
            shared = [place for place in range(len(solver.scalars)) if place not in self.apart]
            self.scalars[shared] = solver.scalars[shared]

    # Going on later.

    def state(self) -> State:
        used = self.numbers[: len(self.numbers) - SCRATCH]
        return super().state() | {"classes": self.classes, "lanes": self.lanes, "numbers": used.copy()}

    def restore(self, state: State) -> None:
        lanes, numbers = int(state["lanes"]), state["numbers"]
        if numbers.shape != (len(self.numbers) - SCRATCH, lanes) or not 0 <= int(state["classes"]) <= lanes:
            raise ModelError(f"the numbers saved are not those of solver {self.name} with these classes")
        self.columns = self.columns // self.lanes * lanes
        self.lanes, self.classes = lanes, int(state["classes"])
        super().restore(state)
        self._lay_out()
        self.numbers[: len(numbers)] = numbers

    def bytes_for(self, width: int) -> int:
        """The solver's state and the model made from it."""
        return width * (4 * self.columns + 4 * max(self.classes, 1))

    def _visits(self, batch: Batch, order: Int64s | None) -> tuple[Int64s, tuple[int, ...]]:
        return row_order(batch, order), self._part()

    def _part(self) -> tuple[int, ...]:
        """A tuple whose length tells kernels how many lanes are worked on at a time."""
        return (0,) * (PART // 2 if self.lanes % PART else PART)


def padded(classes: int, by: int = PART) -> int:
    """How many lanes there are for so many classes: a multiple of those that are summed at a time."""
    if classes > 1_000_000:
        raise ConfigError(f"{classes} classes are too many")
    return PART // 2 if classes <= PART // 2 else -(-classes // by) * by
