"""All shards as the passes of a run: filled on the workers, counted together."""

import time
from collections.abc import Callable

import numpy as np

from streamsvm.batch import Batch, Int64s
from streamsvm.distributed import work
from streamsvm.distributed.team import Team
from streamsvm.errors import DataError
from streamsvm.passes import Passes, State, Tick
from streamsvm.stream import SHOWN_FAULTS, Tally


class ClusterPasses(Passes):
    """What a run asks of its data, answered by the workers; the rows stay with them."""

    def __init__(self, team: Team, note: Callable[[str], None]) -> None:
        super().__init__(team.stream, cache="off", note=note)
        self.team = team
        self._surveys: list[work.Survey] = []
        self.seconds = 0.0  # that reading took

    @property
    def cached(self) -> bool:
        return bool(self._surveys)

    @property
    def will_cache(self) -> bool:
        return True

    @property
    def resumable(self) -> bool:
        return self.cached  # before that there is nothing to go on with

    def fill(self, tick: Tick = lambda rows: None) -> None:
        if self._surveys:
            return
        team, tally, size = self.team, self.stream.tally, max(self.stream.source.size or 1, 1)
        begun = time.perf_counter()

        def heard(rows: int, read: int) -> None:
            tally.bytes += read
            self.fraction = min(tally.bytes / size, 1.0)
            tick(rows)

        team.cluster.heard = heard
        tick(0)
        surveys = team.ask(work.survey)
        team.cluster.heard = lambda rows, read: None
        tally.bytes = sum(one.bytes for one in surveys)
        tally.bad_rows = sum(one.bad_rows for one in surveys)
        tally.rows = sum(int(one.starts[-1]) for one in surveys)
        tally.faults = [fault for one in surveys for fault in one.faults][:SHOWN_FAULTS]
        if tally.bad_rows > self.stream.max_bad_rows:
            raise DataError(f"{tally.faults[0]} (more than {self.stream.max_bad_rows} bad rows: data.max_bad_rows)")
        self._surveys, self.fraction = surveys, 0.0
        self.seconds = time.perf_counter() - begun
        self._note(f"read {tally.rows:,} rows, {tally.bytes / 1e6:,.1f} MB, in {self.seconds:,.1f} s")

    def summary(self) -> tuple[int, dict[float, float]]:
        totals: dict[float, float] = {}
        for one in self._surveys:
            for label, weight in one.totals.items():
                totals[label] = totals.get(label, 0.0) + weight
        return sum(int(one.starts[-1]) for one in self._surveys), totals

    def shard_starts(self) -> Int64s:
        """The number of the first row of each shard, and at the end that of all rows."""
        return np.cumsum([0, *(int(one.starts[-1]) for one in self._surveys)], dtype=np.int64)

    def starts(self) -> Int64s:
        firsts = self.shard_starts()
        parts = [first + one.starts[:-1] for first, one in zip(firsts, self._surveys, strict=False)]
        return np.concatenate([*parts, firsts[-1:]])

    def group(self, number: int) -> Batch:
        raise NotImplementedError("rows stay with the workers")

    # Going on later.

    def state(self) -> State:
        return {"shards": self.team.wanted, "tally": self.stream.tally.state()}

    def restore(self, state: State, tick: Tick, *, inside: bool) -> None:
        """The same shards as then; workers read them again."""
        if state["shards"] != self.team.wanted:
            self.team.plan(state["shards"])
        self.stream.tally = Tally()
        self.fill(tick)

    def restore_filling(self, state: State) -> None:
        pass  # workers read again
