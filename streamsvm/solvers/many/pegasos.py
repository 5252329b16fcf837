"""pegasos for several classes: see solvers/pegasos.py for the update, and solver.py here for the classes.

The projection shortens the classes differently, so that each has a scale of its own: w_k = scale_k v_k and, where the
mean is asked for, mean_k = alpha_k v_k + beta_k u_k. For feature j and n lanes v is at [n j + k]; with the mean v is at
[2 n j + k], u at [2 n j + n + k].

Of a mini-batch the rows wait, and a slope for each row and class. There is no lower bound for several classes, and
nothing is noted for it.
"""

from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Batch, Float32s, Float64s, Int64s, Uint32s
from streamsvm.jit import cold, inlined, kernel
from streamsvm.lanes import (
    any_lane,
    choose,
    in_double,
    in_single,
    load_lanes,
    root_of,
    spread_lanes,
    store_lanes,
    zero_lanes,
)
from streamsvm.rows import ZERO
from streamsvm.schedules import PolynomialDecay
from streamsvm.scoring import Offset
from streamsvm.solvers.base import BIAS, LOSS, OWN, SCALE, SMALLEST_SCALE, WEIGHT, WRONG, Problem, State, T
from streamsvm.solvers.many.lane_rows import (
    best_class,
    fetch_classes,
    implicit_slopes,
    part_slopes,
    place_of,
    put_part,
    row_part,
    tame,
)
from streamsvm.solvers.many.solver import SCRATCH, ManyClasses
from streamsvm.solvers.pegasos import (
    ALPHA,
    ALPHAS,
    BATCH_ROWS,
    BATCH_SLOPE,
    BATCH_WEIGHT,
    BETA,
    LONGEST_LEAP,
    MEAN_BIAS,
    NORM2,
    SMALLEST_BETA,
    WAITING,
    Pegasos,
    Plan,
)
from streamsvm.solvers.side_by_side_kernels import lanes_dot

SCORE, SLOPE, TINY, SQUARES = range(OWN + 12, OWN + 16)
NUMBERS = OWN + 12 + SCRATCH


class Waiting(NamedTuple):
    """The rows of an open mini-batch, in room for more: features starts[r] to starts[r + 1] are row r's, whose slopes
    are at [lanes r + k]."""

    starts: Int64s
    indices: Uint32s
    values: Float32s
    slopes: Float64s


class PegasosClasses(ManyClasses):
    plain = Pegasos
    apart = (SCALE, BIAS, NORM2, WAITING, BATCH_SLOPE, ALPHA, BETA, MEAN_BIAS, LOSS)

    def __init__(self, problem: Problem, **options: Any) -> None:
        super().__init__(problem, **options)
        nothing = np.zeros(1, np.int64), np.empty(0, np.uint32), np.empty(0, np.float32), np.empty(0)
        self._waiting = Waiting(*nothing)

    @property
    def _plan(self) -> Plan:
        assert isinstance(self._one, Pegasos)
        return self._one.plan

    def run(self, batch: Batch, order: Int64s | None = None) -> int:
        loss, penalty, bias = self.problem
        visits, part = self._visits(batch, order)
        self._make_room(len(visits), batch.features)
        terms = loss, penalty.l2, bias, self.problem.provable, self._plan, part
        arrays = self.vector, self.scalars, self.numbers.reshape(-1), self._waiting
        return int(pegasos_classes(batch, visits, *terms, *arrays))

    def finish(self) -> None:
        """Close the last, partial mini-batch."""
        arrays = self.vector, self.scalars, self.numbers.reshape(-1), self._waiting
        close_batch(self.problem.l2, self.problem.bias, self._plan, self._part(), *arrays)
        super().finish()

    def weights(self) -> tuple[Float32s, Offset]:
        table = self._used()[0][:, :, : self.classes]
        scale, alpha, beta = self.numbers[[SCALE, ALPHA, BETA], : self.classes].astype("float32")
        if not self._plan.shift:
            return table[:, 0] * scale, self.numbers[BIAS, : self.classes].copy()
        return alpha * table[:, 0] + beta * table[:, 1], self.numbers[MEAN_BIAS, : self.classes].copy()

    def forget(self, rows: float) -> None:
        """The clock counts mini-batches."""
        super().forget(rows / self._plan.batch_size)

    def start_from(self, weights: Float32s, bias: Offset) -> None:
        super().start_from(weights, bias)
        self.scalars[ALPHAS] = 0.0  # there is no bound for several classes

    def state(self) -> State:
        return super().state() | {"waiting": self._rows_waiting()._asdict()}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._waiting = Waiting(**{name: array.ravel().copy() for name, array in state["waiting"].items()})

    def _rows_waiting(self) -> Waiting:
        """Copies without the room to spare; slopes as [row, lane]."""
        rows = int(self.scalars[BATCH_ROWS])
        starts, indices, values, slopes = self._waiting
        used, table = int(starts[rows]), slopes[: rows * self.lanes].reshape(rows, self.lanes)
        return Waiting(starts[: rows + 1].copy(), indices[:used].copy(), values[:used].copy(), table.copy())

    def _state_of(self, k: int) -> State:
        starts, indices, values, slopes = self._rows_waiting()
        each = np.repeat(slopes[:, k], np.diff(starts))
        waiting = {"indices": indices[each != 0.0], "values": (each.astype("float32") * values)[each != 0.0]}
        return super()._state_of(k) | {"waiting": waiting}

    def _widen(self, lanes: int) -> None:
        starts, indices, values, slopes = self._rows_waiting()
        super()._widen(lanes)
        wide = np.empty((len(slopes), lanes))
        self._copy(slopes, wide)
        self._waiting = Waiting(starts, indices, values, wide.reshape(-1))

    def _make_room(self, rows: int, features: int) -> None:
        """For so many rows more, or as many as a mini-batch has, and their features."""
        waiting, used = int(self.scalars[BATCH_ROWS]), int(self._waiting.starts[int(self.scalars[BATCH_ROWS])])
        have, size = len(self._waiting.starts) - 1, self._plan.batch_size
        if min(waiting + rows, size) > have or used + features > len(self._waiting.indices):
            starts, indices, values, slopes = self._rows_waiting()
            more = min(2 * (waiting + rows), size) - waiting
            self._waiting = Waiting(
                np.append(starts, np.empty(more, np.int64)),
                np.append(indices, np.empty(used + 2 * features, np.uint32)),
                np.append(values, np.empty(used + 2 * features, np.float32)),
                np.append(slopes, np.empty(more * self.lanes)),
            )


@cold
def write_out(vector, lane, part, n, shift, numbers):
    """w, and the mean, of lanes that are TINY: then scale = 1, alpha = 0, beta = 1, and ||v||^2 is summed anew."""
    tiny = row_part(TINY, lane, part, n, numbers) != 0.0
    scale, alpha = row_part(SCALE, lane, part, n, numbers), row_part(ALPHA, lane, part, n, numbers)
    beta, norms = row_part(BETA, lane, part, n, numbers), zero_lanes(part)
    s, a = choose(tiny, in_single(scale), np.float32(1.0)), choose(tiny, in_single(alpha), np.float32(0.0))
    b = choose(tiny, in_single(beta), np.float32(1.0))
    for j in range(lane, np.uint64(len(vector)), n << shift):
        v = load_lanes(vector, j, part)
        if shift:
            store_lanes(vector, j + n, a * v + b * load_lanes(vector, j + n, part))
        v = v * s
        store_lanes(vector, j, v)
        norms = norms + in_double(v) * in_double(v)
    put_part(SCALE, lane, n, numbers, choose(tiny, 1.0, scale))
    put_part(ALPHA, lane, n, numbers, choose(tiny, 0.0, alpha))
    put_part(BETA, lane, n, numbers, choose(tiny, 1.0, beta))
    put_part(NORM2, lane, n, numbers, choose(tiny, norms, row_part(NORM2, lane, part, n, numbers)))


@inlined
def waiting_squares(rows, lane, part, n, waiting):
    """The squares of everything that waits, in one part of the lanes."""
    starts, indices, values, slopes = waiting
    squares = zero_lanes(part)
    for r in range(rows):
        small = in_single(load_lanes(slopes, place_of(r, n, lane), part))
        for k in range(np.uint64(starts[r]), np.uint64(starts[r + 1])):
            amounts = in_double(small * values[k])
            squares = squares + amounts * amounts
    return squares


@inlined
def shrink_part(shrink, rate, l2, plan, rows, lane, part, n, vector, numbers, waiting):
    """Scales of one part of the lanes, written out where they get too small, or where pegasos.leaps says so."""
    squares = zero_lanes(part)
    if plan.shift and plan.project:
        squares = waiting_squares(rows, lane, part, n, waiting)
    put_part(SQUARES, lane, n, numbers, squares)
    small = 0
    for k in range(lane, lane + np.uint64(len(part))):
        scale = numbers[place_of(SCALE, n, k)] * shrink
        numbers[place_of(SCALE, n, k)] = scale
        leap = l2 * rate * rate * rows * numbers[place_of(SQUARES, n, k)] > LONGEST_LEAP * LONGEST_LEAP
        fading = plan.shift and numbers[place_of(BETA, n, k)] < SMALLEST_BETA
        numbers[place_of(TINY, n, k)] = 1.0 if scale < SMALLEST_SCALE or leap or fading else 0.0
        small += 1 if scale < SMALLEST_SCALE or leap or fading else 0
    if small > 0:
        write_out(vector, lane, part, n, plan.shift, numbers)


@inlined
def step_part(rows, lane, part, n, shift, factors, others, norms, vector, waiting):
    """Everything that waits is added to one part of the lanes; returns what becomes of ||v||^2."""
    starts, indices, values, slopes = waiting
    for r in range(rows):
        found = load_lanes(slopes, place_of(r, n, lane), part)
        if any_lane(found != 0.0):
            small, moves = in_single(found), choose(found != 0.0, factors, np.float32(0.0))
            for k in range(np.uint64(starts[r]), np.uint64(starts[r + 1])):
                j = (np.uint64(indices[k]) * n << shift) + lane
                amounts, before = small * values[k], load_lanes(vector, j, part)
                after = before + moves * amounts
                store_lanes(vector, j, after)
                norms = norms + (in_double(after) * in_double(after) - in_double(before) * in_double(before))
                if shift:
                    store_lanes(vector, j + n, load_lanes(vector, j + n, part) + others * amounts)
    return norms


@inlined
def take_step(l2, bias, plan, part, vector, scalars, numbers, waiting):
    """One update from everything that waits."""
    n, rows = np.uint64(len(numbers) // NUMBERS), int(scalars[BATCH_ROWS])
    size = np.float64(plan.batch_size)
    share = scalars[BATCH_WEIGHT] / size
    average = PolynomialDecay(1.0)
    keep = average.mass(scalars[T]) / average.mass(scalars[T] + share)
    scalars[T] += share
    eta = 1.0 / (l2 * scalars[T])
    shrink = max(0.0, 1.0 - eta * l2 * share)
    for lane in range(ZERO, n, np.uint64(len(part))):
        shrink_part(shrink, eta / size, l2, plan, rows, lane, part, n, vector, numbers, waiting)
        scale, norms = row_part(SCALE, lane, part, n, numbers), row_part(NORM2, lane, part, n, numbers)
        alpha, beta = row_part(ALPHA, lane, part, n, numbers), row_part(BETA, lane, part, n, numbers)
        factors, others = in_single(-eta / size / scale), in_single(alpha / beta * eta / size / scale)
        norms = step_part(rows, lane, part, n, plan.shift, factors, others, norms, vector, waiting)
        put_part(NORM2, lane, n, numbers, norms)
        steps = eta / size * row_part(BATCH_SLOPE, lane, part, n, numbers) * bias.gain
        b = row_part(BIAS, lane, part, n, numbers) * (1.0 - eta * l2 * share * bias.decay) - steps
        if plan.project:
            lengths = scale * scale * norms
            if bias.decay * bias.gain > 0.0:
                lengths = lengths + b * b / bias.gain
            shorter = choose(lengths * l2 > 1.0, 1.0 / root_of(lengths * l2), 1.0)
            scale = scale * shorter
            if bias.decay > 0.0:
                b = b * shorter
        put_part(SCALE, lane, n, numbers, scale)
        put_part(BIAS, lane, n, numbers, b)
        put_part(ALPHA, lane, n, numbers, keep * alpha + (1.0 - keep) * scale)
        put_part(BETA, lane, n, numbers, keep * beta)
        put_part(MEAN_BIAS, lane, n, numbers, keep * row_part(MEAN_BIAS, lane, part, n, numbers) + (1.0 - keep) * b)
        put_part(BATCH_SLOPE, lane, n, numbers, zero_lanes(part))
        put_part(WAITING, lane, n, numbers, zero_lanes(part))
    scalars[BATCH_ROWS] = scalars[BATCH_WEIGHT] = 0.0


@kernel
def close_batch(l2, bias, plan, part, vector, scalars, numbers, waiting):
    if scalars[BATCH_WEIGHT] > 0.0:
        take_step(l2, bias, plan, part, vector, scalars, numbers, waiting)


@inlined
def wait(indices, values, a, b, r, waiting):
    """A row of the batch becomes row r of those that wait."""
    start = np.uint64(waiting.starts[r])
    for k in range(b - a):
        waiting.indices[start + k] = indices[a + k]
        waiting.values[start + k] = values[a + k]
    waiting.starts[r + 1] = np.int64(start + (b - a))


@kernel
def pegasos_classes(batch, order, loss, l2, bias, provable, plan, part, vector, scalars, numbers, waiting):
    indptr, indices, values, labels, weights = batch
    n, last_scalar = np.uint64(len(numbers) // NUMBERS), len(scalars) - 1
    for place in range(len(order)):
        i = order[place]
        c = np.float64(weights[i])
        if c == 0.0:
            continue
        first, last, own = np.uint64(indptr[i]), np.uint64(indptr[i + 1]), int(labels[i])
        r, bad = int(scalars[BATCH_ROWS]), -1
        eta = 1.0 / (l2 * (scalars[T] + 1.0))
        wait(indices, values, first, last, r, waiting)
        for lane in range(ZERO, n, np.uint64(len(part))):
            sums = lanes_dot(vector, indices, values, first, last, n << plan.shift, lane, part)
            if lane == ZERO:
                fetch_classes(vector, indptr, indices, order, place + 1, n << plan.shift)
            scores = row_part(SCALE, lane, part, n, numbers) * sums + row_part(BIAS, lane, part, n, numbers)
            if not tame(scores):
                bad = i
            put_part(SCORE, lane, n, numbers, scores)
            part_slopes(loss, own, c, lane, part, n, SCORE, SLOPE, LOSS, numbers)
            if not provable:
                row = values, first, last
                implicit_slopes(c * eta, loss, own, *row, bias.gain, lane, part, n, SCORE, SLOPE, numbers)
            slopes = c * row_part(SLOPE, lane, part, n, numbers)
            store_lanes(waiting.slopes, place_of(r, n, lane), slopes)
            put_part(BATCH_SLOPE, lane, n, numbers, row_part(BATCH_SLOPE, lane, part, n, numbers) + slopes)
            pairs = choose(slopes != 0.0, spread_lanes(np.float64(last - first), part), 0.0)
            put_part(WAITING, lane, n, numbers, row_part(WAITING, lane, part, n, numbers) + pairs)
        if bad >= 0:
            return bad
        scalars[WEIGHT] += c
        if best_class(int(scalars[last_scalar]), n, SCORE, numbers) != own:
            scalars[WRONG] += c
        scalars[last_scalar] = max(scalars[last_scalar], own + 1.0)
        scalars[BATCH_WEIGHT] += c
        scalars[BATCH_ROWS] += 1.0
        if scalars[BATCH_ROWS] >= plan.batch_size:
            take_step(l2, bias, plan, part, vector, scalars, numbers, waiting)
    return -1
