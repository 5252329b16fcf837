"""Side by side: several candidates that differ in penalty.l2 alone, learned in one walk over each row.

    minimise   for each candidate k:  l2_k/2 ||w||^2 + mean of c_i loss(w.x_i + b, y_i)
    each row   the update of sgd or asgd in every lane, with that candidate's own l2, step size and scalars

    Cost per row: with 8 candidates one and a half to two times, with 16 about three times the two walks of one.

Reading a row and waiting for its weights cost as much for one candidate as for several, so the weights of one feature
lie side by side for all candidates. A group of them is as wide as a cache line: 16 lanes of sgd (v), 8 of asgd (v, u).
More candidates are more groups, and a row is walked once for each; a group that is not full has 4, 8 or 16 lanes.

The contract: candidate k is, bit for bit, what the plain solver gives when it is trained alone on the same rows, but
for the lower bound of sgd, which is left out. One that diverges stops learning and does not disturb the others. Choose
it to find a penalty, as `streamsvm tune` does.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np

from streamsvm.batch import Batch, Float64s, Int64s, concatenate
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.solvers.asgd import Asgd
from streamsvm.solvers.base import (
    BEFORE,
    LOSS,
    PASS,
    SEEN,
    STEP,
    UNIT,
    WEIGHT,
    WRONG,
    OnlineSolver,
    Problem,
    State,
    enough_for_trials,
    row_order,
    trial_from,
    trial_rows,
    trial_state,
    weighty,
)
from streamsvm.solvers.lane_group import Group, narrow
from streamsvm.solvers.sgd import ALPHAS, Sgd
from streamsvm.solvers.side_by_side_kernels import FELL, L2, LINE, LIVE
from streamsvm.solvers.step_size import choose_step_size, relative, usual_weight

WIDTHS = (4, 8, 16)  # lanes that a group can have
KINDS: dict[str, type[OnlineSolver]] = {"asgd": Asgd, "sgd": Sgd}


class SideBySide:
    """K candidates of asgd or sgd that differ in penalty.l2, learned in one walk over each row."""

    SOLVERS: ClassVar[tuple[str, ...]] = tuple(KINDS)

    def __init__(
        self,
        name: str,
        problems: Sequence[Problem],
        *,
        eta0: float | None = None,
        dim: int = 0,
        memory: int | None = None,
    ) -> None:
        if name not in KINDS:
            able = ", ".join(KINDS)
            raise ConfigError(f"solver {name} cannot learn candidates side by side; solvers that can: {able}")
        if len({(type(problem.loss), problem.loss, problem.bias) for problem in problems}) != 1:
            raise ConfigError("candidates are one or more problems with the same loss and the same bias")
        plain = [KINDS[name](problem, eta0=eta0) for problem in problems]  # refuses penalties it cannot minimise
        self.name = name
        self.given = list(problems)
        self.kept = list(range(len(problems)))  # which of those given are candidates still
        self.columns = plain[0].columns
        self.dim = dim
        self.memory = memory
        self.width = dim  # one more than the largest index seen
        self._most = int(LINE) // self.columns
        self._groups = [Group(self.columns, lanes) for lanes in self._lanes(len(problems))]
        self._trial: list[Batch] | None = [] if eta0 is None else None
        for k, solver in enumerate(plain):
            group, lane = self._place(k)
            group.numbers[: len(solver.scalars), lane] = solver.scalars
            group.numbers[[LIVE, L2], lane] = 1.0, solver.problem.l2
        for group in self._groups:
            group.begin_schedules()
        if dim:
            self.reserve(dim)

    # What can be seen.

    @property
    def problems(self) -> list[Problem]:
        return [self.given[k] for k in self.kept]

    @property
    def candidates(self) -> int:
        return len(self.kept)

    @property
    def alive(self) -> list[bool]:
        """False for a candidate that diverged."""
        return [bool(live) for live in self._row(LIVE)]

    @property
    def step_sizes(self) -> list[float | None]:
        """eta0 of each candidate, chosen or given; None before it is known."""
        return [float(eta0) or None for eta0 in self._row(STEP)]

    @property
    def seen(self) -> int:
        """Rows of all passes."""
        return int(self._row(SEEN)[0])

    def figures(self) -> Float64s:
        """For each candidate WEIGHT, LOSS and WRONG of this pass; the last two are inf if it diverged."""
        figures = np.stack([self._row(WEIGHT), self._row(LOSS), self._row(WRONG)], axis=1)
        figures[self._row(LIVE) == 0.0, 1:] = np.inf
        return figures

    def solver(self, k: int) -> OnlineSolver:
        """Candidate k as a plain solver, a copy. DivergedError, as when it is trained alone, if it diverged."""
        group, lane = self._place(k)
        solver = KINDS[self.name](self.problems[k])
        vector, scalars = group.table[: self.width, :, lane].ravel(), group.numbers[: len(solver.scalars), lane]
        solver.restore({"vector": vector, "room": self.width, "scalars": scalars} | trial_state(self._trial))
        solver.dim, solver.memory = self.dim, self.memory
        if isinstance(solver, Sgd):
            solver.scalars[ALPHAS] = np.nan
        if not group.numbers[LIVE, lane]:
            solver._diverged(int(group.numbers[FELL, lane]))
        return solver

    def take_up(self, k: int, solver: OnlineSolver) -> None:
        """Candidate k goes on as this plain solver, which has its problem: what `solver` gives, taken back.

        All candidates have one clock, so it must be that of the others; it is where they have seen the same rows.
        """
        group, lane = self._place(k)
        self.reserve(solver.width)
        table, end = group.table, solver.width * self.columns
        table[: solver.width, :, lane] = solver.vector[:end].reshape(-1, self.columns)
        table[solver.width :, :, lane] = 0.0
        group.numbers[: len(solver.scalars), lane] = solver.scalars
        if solver.step_size is not None:
            self._trial = None
        group.begin_schedules()

    def stop(self, k: int) -> None:
        """Candidate k diverged elsewhere: it learns no more."""
        group, lane = self._place(k)
        group.numbers[LIVE, lane] = 0.0

    # Learning: what the methods of OnlineSolver do, for every candidate.

    def learn(self, batch: Batch, order: Int64s | None = None) -> None:
        """Predict each row, count its loss, then learn from it; one after the other, or in the order given."""
        if self._trial is None:
            self._learn(batch, order)
            return
        order = row_order(batch, order)
        self.reserve(batch.width)
        self._trial.append(weighty(batch, order))
        self._count(len(order) - self._trial[-1].rows)
        if enough_for_trials(self._trial):
            self._choose_step_sizes()

    def begin_pass(self, number: int) -> None:
        """Count losses from zero again."""
        for group in self._groups:
            group.numbers[PASS, group.live] = number
            group.numbers[BEFORE] = group.numbers[SEEN]
            group.numbers[[WEIGHT, LOSS, WRONG]] = 0.0

    def end_pass(self) -> None:
        """Rows that wait for step sizes, because there are only a few, are learned now."""
        if any(kept.rows for kept in self._trial or []):
            self._choose_step_sizes()
        for group in self._groups:
            group.check()

    def finish(self) -> None:
        """The end of all passes."""
        self.end_pass()

    def keep(self, which: Sequence[int]) -> None:
        """Go on with these candidates alone, in this order. They move together, which needs no further memory."""
        if not which or len(set(which)) < len(which) or not set(which) <= set(range(self.candidates)):
            raise ValueError(f"cannot keep {list(which)} of {self.candidates} candidates")
        places = [divmod(k, self._most) for k in which]
        self._groups = narrow(self._groups, self._lanes(len(which)), places, self.width)
        self.kept = [self.kept[k] for k in which]

    def state(self) -> State:
        """Everything that the future depends on, copied."""
        state: State = {"kept": np.array(self.kept, np.int64)}
        for i, group in enumerate(self._groups):
            state[f"group{i}"] = group.state(self.width)
        return state | trial_state(self._trial)

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken, with the candidates that were kept; as OnlineSolver.restore does."""
        kept = [int(k) for k in state["kept"]]
        groups = [Group(self.columns, lanes) for lanes in self._lanes(len(kept))]
        saved = [state[f"group{i}"] for i in range(len(groups))]
        width = len(saved[0]["vector"]) // groups[0].stride
        if not set(kept) <= set(range(len(self.given))) or (self.dim and width != self.dim):
            raise ModelError(f"the numbers saved are not those of these candidates of solver {self.name}")
        self.kept, self.width, self._groups = kept, width, groups
        self._trial = trial_from(state)
        rooms = [int(part["room"]) for part in saved]
        if not self._rooms_affordable(rooms):
            rooms = [width] * len(groups)
            if not self._affordable(width):
                self._refuse(width)
        for group, part, room in zip(groups, saved, rooms, strict=True):
            group.restore(part, room)

    # How it is done.

    def _lanes(self, candidates: int) -> list[int]:
        """How wide the groups of so many candidates are: all full but the last."""
        full, rest = divmod(candidates, self._most)
        return [self._most] * full + [next(lanes for lanes in WIDTHS if lanes >= rest)] * (rest > 0)

    def _place(self, k: int) -> tuple[Group, int]:
        """Where candidate k is: its group and its lane."""
        return self._groups[k // self._most], k % self._most

    def _row(self, number: int) -> Float64s:
        """One of the scalars, for each candidate."""
        return np.concatenate([group.numbers[number] for group in self._groups])[: self.candidates]

    def _count(self, rows: int) -> None:
        for group in self._groups:
            group.numbers[SEEN] += rows

    def _learn(self, batch: Batch, order: Int64s | None = None) -> None:
        order = row_order(batch, order)
        self.reserve(batch.width)
        batch = relative(batch, float(self._row(UNIT)[0]))
        for group in self._groups:
            group.learn(self.given[0], batch, order)
        self._count(len(order))

    def _choose_step_sizes(self) -> None:
        """Each candidate tries alone, on the rows on which a plain solver does."""
        waiting = concatenate(self._trial or [])
        self._trial = None
        rows = trial_rows(waiting)
        unit = usual_weight(rows)
        rows = relative(rows, unit)
        with ThreadPoolExecutor(min(self.candidates, os.cpu_count() or 1), "streamsvm-trial") as threads:
            chosen = threads.map(lambda problem: choose_step_size(KINDS[self.name](problem), rows), self.problems)
            for k, eta0 in enumerate(chosen):
                group, lane = self._place(k)
                group.numbers[[STEP, UNIT], lane] = eta0, unit
        for group in self._groups:
            group.begin_schedules()
        self._learn(waiting)

    def bytes_for(self, width: int, candidates: int | None = None) -> int:
        """All lanes, one candidate taken out of them, and the model made from it."""
        lanes = sum(self._lanes(candidates or self.candidates))
        return width * (4 * self.columns * (lanes + 1) + 4)

    def _affordable(self, width: int) -> bool:
        return self.memory is None or self.bytes_for(width) <= self.memory

    def _rooms_affordable(self, rooms: list[int]) -> bool:
        """Dropped candidates leave their memory to the others: more room than `_affordable` would grant them."""
        lanes = sum(4 * group.stride * room for group, room in zip(self._groups, rooms, strict=True))
        return self.memory is None or lanes <= self.memory

    def reserve(self, width: int) -> None:
        """Room for features 0 .. width - 1, refused before it is allocated when it exceeds the budget."""
        if self.dim and width > self.dim:
            raise DataError(f"index {width - 1} is out of range: features.dim is {self.dim}")
        have = min(group.room for group in self._groups)
        if width > have:
            room = width if self.dim else 1 << max(10, (width - 1).bit_length())
            if not self._affordable(have + room):
                room = width
            if not self._affordable(have + room):
                self._refuse(width)
            for group in self._groups:
                group.grow(room)
        self.width = max(self.width, width)

    def _refuse(self, width: int) -> None:
        assert self.memory is not None
        bits = max(1, (self.memory // self.bytes_for(1)).bit_length() - 1)
        fitting = [k for k in range(1, self.candidates) if self.bytes_for(width, k) <= self.memory]
        fewer = f"try at most {fitting[-1]} candidates, " if fitting else ""
        needed, left = self.bytes_for(width) / 1e6, self.memory / 1e6
        error = ConfigError if self.dim else DataError
        cause = f"{width} weights" if self.dim else f"index {width - 1}"
        raise error(
            f"{cause}: {self.candidates} candidates of solver {self.name} would need {needed:,.0f} MB, but the "
            f"memory budget leaves {left:,.0f} MB; {fewer}set features.hash_bits: {bits} (--hash-bits {bits}), "
            f"or raise --memory"
        )
