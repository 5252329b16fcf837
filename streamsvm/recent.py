"""How a model fares on the rows that come now: figures of a sliding window, for a learner that never stops.

    window            the last `window` rows: 64 slots or a few more, of 1024 rows or a multiple of that, up to 16384;
                      the first slot of all does not count
    slots             |//  |    |    |    |//  |    |    |    |//  |    |    |    | ...
    every fourth one  |// 256 rows wait, are scored, then learned //| the others are learned as they come |

Every row counts before it is learned: a solver adds up the loss that each row has when it comes, and a slot's loss and
error are differences of these sums. For the area under the curve and for probabilities the scores are needed too: the
first rows of every fourth slot wait until there are 256, and are scored by the weights that a model would have. To
score more of them, or to look more often, would cost as much as learning does.
Their probabilities are honest: they are those of a curve that was fitted to rows before them, and is fitted again every
quarter of a window, or less often if that is short. The logistic loss needs none.

At the end of a slot the loss is looked at for drift (drift.py), and the solver may forget what is too old.

Everything is counted in rows (those of weight 0 do not count): how rows are cut into batches has no part in it.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from streamsvm.batch import Batch, Float32s, Float64s, Int64s, concatenate
from streamsvm.calibration import Sigmoids, fit_calibration, logistic
from streamsvm.drift import BACK, LEFT, Band
from streamsvm.errors import ConfigError
from streamsvm.losses import Logistic, Loss
from streamsvm.metrics.ranking import ranks_of_rows
from streamsvm.metrics.reliability import Reliability
from streamsvm.progressive import FEATURES, scored
from streamsvm.score_sample import ScoreSample
from streamsvm.shuffle import taken
from streamsvm.solvers.base import OnlineSolver

SLOT = 1024  # rows, or a multiple of that, such that
SLOTS = 64  # a window has so many slots or more
LONGEST = 16 * SLOT  # but no longer ones
EVERY = 4  # slots, of which one has rows that are scored
SCORED = SLOT // 4  # rows; fewer, once they have FEATURES features
EARLY = 1  # slots that do not count: their rows were learned from next to nothing
ENOUGH = 4  # slots before there are figures; fewer, if the window has fewer
MOST_SCORED = 256  # slots whose scored rows count, at most: a ScoreSample does not keep more
FEWEST = 4  # slots of a window, and of what is remembered
OFTEN = 32  # slots: a curve is not fitted again before so many have come
CURVE_ROWS = 2048  # that a curve is fitted to, at most
CURVE_NUMBERS = 1 << 19  # or fewer, where rows have many scores
FEWEST_CURVE_ROWS = 512
WEIGHT, LOSS, WRONG, ROWS, SAMPLED = range(5)  # what is kept of a slot


class Recent:
    """Watches the rows on their way to a solver. `figures` are those of the window."""

    def __init__(
        self,
        window: int,
        *,
        many: bool,
        loss: Loss,
        forget: int | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        for name, rows in (("--window", window), ("--forget", forget)):
            if rows is not None and rows < FEWEST * SLOT:
                raise ConfigError(f"{name} {rows}: so few rows say too little; set it to {FEWEST * SLOT} or more")
        self.slot = slot_for(window, forget)
        self.slots = window // self.slot
        self.loss = loss
        self.sample = ScoreSample(many=many)
        self._forget, self._note = forget, note
        self._band = Band(self.slots)
        self._count = 0  # slots that came to an end
        self._rings: Float64s = np.zeros((self.slots, 5))  # a slot in each, in turn
        self._parts = min(self.slots // EVERY, MOST_SCORED)
        self._reliability = Reliability(self._parts)  # a slot with scored rows in each, in turn
        self._curve: Sigmoids | None = None
        self._curve_rows = 0
        self._begin_slot()
        self._figures: dict[str, float | None] | None = None

    def _begin_slot(self) -> None:
        self._rows = self._sampled = 0  # that were learned, or kept with their scores
        self._scoring = self._count >= EARLY and (self._count - EARLY) % EVERY == 0  # whether rows are to wait still
        self._waiting: list[Batch] = []
        self._held = self._held_features = 0
        self._begun: Float64s | None = None  # the solver's sums at the beginning

    # On their way.

    def pieces(self, batch: Batch, order: Int64s, solver: OnlineSolver) -> Iterator[tuple[Batch, Int64s | None]]:
        """The rows to learn now, in their order; those to be scored come when there are enough of them."""
        counts = np.cumsum(batch.weights[order] != 0.0)
        done = passed = 0
        while done < len(order):
            if self._begun is None:
                self._begun = solver.tally()
            missing = (SCORED if self._scoring else self.slot) - self._rows - self._held
            stop = min(int(np.searchsorted(counts, passed + missing)) + 1, len(order))
            if self._scoring:
                stop = self._wait(batch, order, done, stop)
                passed = int(counts[stop - 1])
                if self._held >= SCORED or self._held_features >= FEATURES:
                    yield from self._score(solver)
            else:
                self._rows += int(counts[stop - 1]) - passed
                passed = int(counts[stop - 1])
                yield batch, order[done:stop]
            if self._rows >= self.slot:
                self._end_slot(solver)
            done = stop

    def flush(self, solver: OnlineSolver) -> Iterator[tuple[Batch, Int64s | None]]:
        """Score the rows that wait, and let them be learned; the slot ends here, however short it is."""
        if self._waiting:
            yield from self._score(solver)
        if self._rows:
            self._end_slot(solver)
        else:
            self._begin_slot()

    def _wait(self, batch: Batch, order: Int64s, start: int, stop: int) -> int:
        """Keep rows back, until there are enough of them or they have their features; returns where that is."""
        rows = order[start:stop]
        counted = batch.weights[rows] != 0.0
        features = self._held_features + np.cumsum((batch.indptr[rows + 1] - batch.indptr[rows]) * counted)
        stop = min(stop, start + int(np.searchsorted(features, FEATURES)) + 1)
        rows = rows[: stop - start]
        whole = rows[-1] - rows[0] == len(rows) - 1 and bool((rows[1:] > rows[:-1]).all())
        self._waiting.append(batch.take(int(rows[0]), int(rows[-1]) + 1) if whole else taken(batch, rows))
        self._held += int(np.count_nonzero(counted[: stop - start]))
        self._held_features = int(features[stop - start - 1])
        return stop

    def _score(self, solver: OnlineSolver) -> Iterator[tuple[Batch, Int64s | None]]:
        """Score the rows that wait, and let them be learned."""
        rows = self._waiting[0] if len(self._waiting) == 1 else concatenate(self._waiting)
        known = max(solver.known, int(rows.labels[rows.weights != 0.0].max(initial=0.0)) + 1)
        self._reliability.clear(self._part)
        for part, scores in scored(rows, solver):
            self._take(part, scores if scores.ndim == 1 else scores[:, :known])
        self._rows += self._held
        self._figures = None
        self._scoring, self._waiting = False, []
        self._held = self._held_features = 0
        yield rows, None

    @property
    def _part(self) -> int:
        """The part that this slot's probabilities go to."""
        return (self._count - EARLY) // EVERY % self._parts

    def _take(self, rows: Batch, scores: Float64s) -> None:
        self.sample.add(scores, rows.labels, rows.weights)
        self._sampled += int(np.count_nonzero(rows.weights))
        probabilities = self._probabilities(scores)
        if probabilities is not None:
            self._reliability.see(probabilities, rows.labels, rows.weights, np.full(rows.rows, self._part))

    def _end_slot(self, solver: OnlineSolver) -> None:
        costs = self._costs(solver)
        whole = self._rows >= self.slot
        if self._count >= EARLY:
            place = self._count - EARLY
            self._rings[place % self.slots] = *costs, self._rows, self._sampled
        self._count += 1
        self._figures = None
        self._begin_slot()
        self._fit_curve()
        if self._count > EARLY and whole:
            self._look_for_drift(*costs[:2])
        if self._forget is not None and self._count > EARLY:
            solver.forget(self._forget * self._row_weight())

    def _costs(self, solver: OnlineSolver) -> tuple[float, float, float]:
        """Weight, loss and wrong weight of the slot. New lanes began as the last one: see many/solver.py."""
        now, begun = solver.tally(), self._begun
        assert begun is not None
        if len(now) > len(begun):
            begun = np.append(begun, np.full(len(now) - len(begun), begun[-1]))
        spent = now - begun
        return float(spent[0]), float(spent[2 : 2 + solver.known].sum()), float(spent[1])

    def _row_weight(self) -> float:
        """What a row weighs, on the average of the window."""
        sums = self._window().sum(axis=0)
        return float(sums[WEIGHT] / sums[ROWS])

    # Probabilities.

    def _probabilities(self, scores: Float64s) -> Float64s | None:
        """By what was known before these rows; None where nothing is."""
        if isinstance(self.loss, Logistic):
            return logistic(scores * self.loss.scale)
        if self._curve is None:
            return None
        new = scores.shape[1] - len(self._curve.slopes) if scores.ndim == 2 else 0
        if not new:
            return self._curve.probabilities(scores)
        slopes, lows, highs = (np.append(part, np.zeros(new)) for part in (self._curve.slopes, *self._curve[2:]))
        offsets = np.append(self._curve.offsets, np.full(new, -math.log(self._curve_rows + 1.0)))  # 1 / (rows + 2)
        return Sigmoids(slopes, offsets, lows, highs).probabilities(scores)

    def _fit_curve(self) -> None:
        """Every quarter of a window; at first whenever the number of slots has doubled."""
        counted, every = self._count - EARLY, max(self.slots // 4, OFTEN)
        soon = 0 < counted < every and counted & (counted - 1) == 0
        if isinstance(self.loss, Logistic) or counted < 1 or not (soon or counted % every == 0):
            return
        most = max(FEWEST_CURVE_ROWS, min(CURVE_ROWS, CURVE_NUMBERS // self.sample.columns))
        found = fit_calibration("platt", self.sample.newest(min(most, self._scored_rows)), "progressive")
        if found is not None:
            assert isinstance(found.curves, Sigmoids)
            self._curve, self._curve_rows = found.curves, found.rows

    # Drift.

    def _look_for_drift(self, weight: float, loss: float) -> None:
        change = self._band.see(loss / weight, weight)
        if change is None:
            return
        recent = f"the loss of the last {self._band.slots * self.slot:,} rows is {self._band.recent:.4g}"
        if change == LEFT:
            remedy = "--forget ROWS lets older ones fade"
            if self._forget is not None:
                remedy = f"with a --forget of less than {self._forget} older ones would fade sooner"
            self._note(
                f"warning: {recent}, where {self._band.usual:.4g} is usual, and up to {self._band.top:.4g}: "
                f"rows are not what they were; {remedy}"
            )
        elif change == BACK:
            self._note(f"{recent} again: about {self._band.usual:.4g} is usual")
        else:
            self._note(f"{recent}, and has been so for long: that is what is usual from now on")

    @property
    def drifting(self) -> bool:
        return self._band.drifting

    # What can be seen.

    def _window(self) -> Float64s:
        """What is kept of the slots that count."""
        return self._rings[: max(0, self._count - EARLY)]

    @property
    def _scored_rows(self) -> int:
        """Rows of the sample that are of slots of the window, or of the one that has begun."""
        counted = max(0, self._count - EARLY)
        last = np.arange(max(0, counted - EVERY * self._parts), counted) % self.slots
        return int(self._rings[last, SAMPLED].sum()) + self._sampled

    @property
    def first_figures(self) -> int:
        """The number of rows from which on there are figures."""
        return (EARLY + min(ENOUGH, self.slots)) * self.slot

    def recent(self) -> ScoreSample:
        """The scored rows of the window."""
        return self.sample.newest(self._scored_rows)

    def figures(self) -> dict[str, float | None]:
        """Of the window: rows, loss, error, auc, log_loss, calibration_error; None where they cannot be told (yet)."""
        if self._figures is None:
            self._figures = self._measure()
        return {**self._figures, "drifting": self.drifting}

    def _measure(self) -> dict[str, float | None]:
        window = self._window()
        weight, loss, wrong, rows, _ = window.sum(axis=0).tolist()
        found: dict[str, float | None] = dict.fromkeys(("loss", "error", "auc", "log_loss", "calibration_error"))
        if len(window) >= min(ENOUGH, self.slots):
            reliable = self._reliability.together().result()
            found |= {"loss": loss / weight, "error": wrong / weight, "auc": self._auc()}
            found |= {"log_loss": reliable["log_loss"], "calibration_error": reliable["ece"]}
        return {"rows": int(rows), **found}

    def _auc(self) -> float | None:
        if self.sample.many:
            return None
        sample = self.recent()
        return ranks_of_rows(sample.scores().astype(np.float64), sample.codes() > 0.5, sample.weights()).auc

    # Going on later.

    def state(self) -> dict[str, Any]:
        """Everything that the future depends on, copied."""
        return {
            "count": self._count,
            "rows": self._rows,
            "sampled": self._sampled,
            "scoring": self._scoring,
            "waiting": concatenate(self._waiting)._asdict(),
            "begun": np.empty(0) if self._begun is None else self._begun.copy(),
            "reliability": self._reliability.state(),
            "window": self._window().copy(),
            "curve": np.empty((4, 0)) if self._curve is None else np.array(self._curve),
            "curve_rows": self._curve_rows,
            "sample": self.sample.state(),
            "band": self._band.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state` was taken."""
        self._begin_slot()
        self._figures = None
        self._count, self._curve_rows = int(state["count"]), int(state["curve_rows"])
        self._rows, self._sampled = int(state["rows"]), int(state["sampled"])
        self._scoring = bool(state["scoring"])
        waiting = Batch(**state["waiting"]).copy()
        if waiting.rows:
            self._waiting = [waiting]
            self._held, self._held_features = held_of(waiting.indptr, waiting.weights)
        self._begun = np.array(state["begun"], np.float64) if len(state["begun"]) else None
        self._reliability.restore(state["reliability"])
        self._rings[: len(state["window"])] = state["window"]
        self._curve = Sigmoids(*np.array(state["curve"], np.float64)) if state["curve"].size else None
        self.sample.restore(state["sample"])
        self._band.restore(state["band"])


def slot_for(window: int, forget: int | None) -> int:
    """The rows of a slot: as many as a window with SLOTS of them allows, and a quarter of what is remembered."""
    most = min(window // SLOTS, LONGEST, window if forget is None else forget // FEWEST)
    return max(SLOT, most // SLOT * SLOT)


def held_of(indptr: Int64s, weights: Float32s) -> tuple[int, int]:
    """The rows that count, and their features."""
    counted = weights != 0.0
    return int(np.count_nonzero(counted)), int(np.diff(indptr)[counted].sum())
