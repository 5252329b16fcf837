"""How large the first step is, and how often few rows are visited: found out on the first rows, by trial.

    step size   2^p times the solver's guess, with the p whose trial costs least:
                cost = objective of the weights, with the mean loss of rows scored before they are learned
    visits      of rows that are so few that all of them wait for the step size: those after which rows that were left
                out cost least

First rows are what they are: sorted by class, with an outlier, with weights. So they are tried in a random order, the
longest hundredth of them has no part in the guess, and no row counts for more than a few times what it costs where
nothing is known. Of two sizes that cost the same the one nearer to the guess is taken. Implicit steps make large sizes
harmless: then costs are flat on that side, and what is far out would be chosen by noise.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streamsvm.batch import Batch, Float64s, Int64s
from streamsvm.jit import kernel
from streamsvm.rows import row_norm2
from streamsvm.scoring import losses_of
from streamsvm.shuffle import random_order, taken

if TYPE_CHECKING:
    from streamsvm.solvers.base import OnlineSolver

SCAN = range(-3, 4)  # powers of two around the guess that are always tried: the cost can have two valleys
POWERS = (-8, 40)  # and how far to go on from there; first rows that teach nothing must not stop all learning
LOOKS = 16  # at the rows to come, evenly, with some earlier ones; those in the first eighth do not count
CAP = 4.0  # of the loss of a score of 0: no row counts for more
LONGEST = 0.01  # of the rows: they have no part in the guess
FAR = 0.003  # relative cost of each power of two away from the guess
MIXED = 0x7472_6961_6C  # seed of the order in which rows are tried

VISITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # that are compared
FOLDS = 4  # parts of the rows, of which each is left out once; of
MANY = 4096  # rows or more only the first is
PATIENCE = 3  # comparisons in a row that may bring nothing


def usual_weight(rows: Batch) -> float:
    """The mean weight of some rows: weights are taken relative to it."""
    mean = float(rows.weights.mean(dtype=np.float64)) if rows.rows else 1.0
    return mean if mean > 0.0 else 1.0


def relative(batch: Batch, unit: float) -> Batch:
    """The batch with weights relative to the usual one."""
    return batch if unit == 1.0 else batch._replace(weights=(batch.weights / unit).astype(np.float32))


def choose_step_size(solver: "OnlineSolver", rows: Batch) -> float:
    """The step size whose trial run costs least."""
    rows = taken(rows, random_order(rows.rows, MIXED))
    norm2 = usual_reach(solver, rows)
    start = 2.0 ** round(float(np.log2(solver.guess(norm2)))) if norm2 > 0 else 1.0
    tried: dict[int, float] = {}

    def cost(power: int) -> float:
        if power not in tried:
            tried[power] = trial_cost(solver.fresh(start * 2.0**power), rows) * (1.0 + FAR * abs(power))
        return tried[power]

    best = min(SCAN, key=cost)
    lowest, highest = POWERS
    for direction in (1, -1):
        while lowest < best < highest and cost(best + direction) < cost(best):
            best += direction
    bound, last = cost(best) * (1.0 + solver.worse_by), min(highest, best + solver.doublings)
    while solver.worse_by and best < last and cost(best + 1) <= bound:
        best += 1
    return float(start * 2.0**best)


def usual_reach(solver: "OnlineSolver", rows: Batch) -> float:
    """How much a step of size 1 changes a row's own score, on the average of all but the longest rows."""
    reach = solver.reaches(rows) + solver.problem.bias.gain
    kept = np.argsort(reach, kind="stable")[: max(1, int((1.0 - LONGEST) * rows.rows))]
    return float((reach * rows.weights)[kept].mean()) if rows.rows else 0.0


def row_norms2(rows: Batch) -> Float64s:
    out = np.empty(rows.rows)
    norms2_pass(rows, out)
    return out


def capped_loss(solver: "OnlineSolver", rows: Batch, scores: Float64s) -> tuple[float, float]:
    """The sums of capped losses and of weights."""
    loss: Any = solver.problem.loss
    lanes = scores.shape[1] if scores.ndim == 2 and solver.rule == "ova" else 1
    total, weight, _ = losses_of(scores, rows, loss, solver.rule, CAP * lanes * loss.value(0.0, 1.0))
    return total, weight


def trial_cost(trial: "OnlineSolver", rows: Batch) -> float:
    """What a trial comes to; infinite if it diverges."""
    trial._reserve(rows.width)
    n = rows.rows
    edges = sorted({0, n // 64, n // 32, *(n * look // LOOKS for look in range(LOOKS + 1))})
    total = weight = 0.0
    for a, b in pairwise(edges):
        part = rows.slice(a, b)
        if a >= n // 8 and (a or n < LOOKS):
            cost, c = capped_loss(trial, part, trial.scores(part))
            total, weight = total + cost, weight + c
        if trial.run(part) >= 0:
            return float("inf")
    value = trial.objective(total / max(weight, 1e-300))
    return value if np.isfinite(value) else float("inf")


# Few rows.


class Visits(NamedTuple):
    """How often to visit rows, and scores by weights that were learned from others: of which rows, and what."""

    passes: int
    rows: Int64s
    scores: Float64s


def choose_visits(solver: "OnlineSolver", rows: Batch, fresh: Callable[[], Any]) -> Visits:
    """The number of visits after which rows that were left out cost least."""
    order = random_order(rows.rows, MIXED)
    folds = [order[k::FOLDS] for k in range(FOLDS if rows.rows < MANY else 1)]
    left = [np.setdiff1d(order, fold) for fold in folds]
    solvers = [fresh() for _ in folds]
    best, best_cost, done, idle = Visits(1, order[:0], np.empty(0)), np.inf, 0, 0
    for count in VISITS:
        for number in range(done, count):
            for one, kept in zip(solvers, left, strict=True):
                visit(one, rows, kept, number)
        done = count
        scores = [one.scores(taken(rows, fold)) for one, fold in zip(solvers, folds, strict=True)]
        together, places = np.concatenate(scores), np.concatenate(folds)
        total, weight = capped_loss(solver, taken(rows, places), together)
        cost, idle = total / max(weight, 1e-300), idle + 1
        if cost < best_cost:
            best, best_cost, idle = Visits(count, places, together), cost, 0
        if idle >= PATIENCE or not np.isfinite(cost):
            break
    return best


def visit(solver: Any, rows: Batch, kept: Int64s, number: int) -> None:
    """Learn these rows once more: the first time as they came, then in a new random order each time."""
    order = kept if number == 0 else kept[random_order(len(kept), MIXED + number)]
    solver._reserve(rows.width)
    solver.run(rows, order)


@kernel
def norms2_pass(batch, out):
    indptr, indices, values, labels, weights = batch
    for i in range(len(labels)):
        out[i] = row_norm2(values, indptr[i], indptr[i + 1])
