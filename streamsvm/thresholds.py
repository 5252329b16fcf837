"""Thresholds: what is taken off scores before they decide, chosen on a sample of scored rows.

    two classes      the second class where  score > theta
    more of them     the class with the largest  score_k - theta_k,  the first of equal ones

    f1       maximises F1 = 2 TP / (2 TP + FP + FN): that of the second class, or the mean over the sample's classes
    cost     minimises  sum of weight * costs[class of the row]  over rows that are given another class

While all other thresholds stay, row i is given class k where theta_k is below its margin

    m_i = score_k - largest (score_j - theta_j) of another class j

so that one sweep over the rows in the order of their margins finds the best theta_k: a row that changes sides changes
the counts of two classes. With two classes the margin is the score, and that is all. With more the classes take turns,
beginning with no thresholds, until none gets better or five rounds are over. theta lies midway between two margins. It
moves only for the better, as counted by the rule above, so the sample is never decided worse than without thresholds.

Cost: a sort of the rows for each class and round. The two best classes of each row are remembered, and looked for again
only in rows where the class whose threshold moved was, or now is, one of them.
"""

from typing import NamedTuple

import numpy as np

from streamsvm.batch import Float32s, Float64s, Int64s
from streamsvm.jit import inlined, kernel
from streamsvm.score_sample import ScoreSample

ROUNDS = 5
BETTER = 1e-12  # gains below are rounding


class Goal(NamedTuple):
    """What is maximised: sum over k of shares[k] F1_k, minus the costs of rows that are given another class."""

    codes: Int64s
    weights: Float64s
    costs: Float64s  # of each row
    shares: Float64s  # of each class
    totals: Float64s  # the weight of each class


class Duel(NamedTuple):
    """One class against the best of the others, in every row."""

    scores: Float64s
    others: Float64s  # the largest score of another class, its threshold taken off
    rivals: Int64s  # that class
    margins: Float64s


def choose_thresholds(sample: ScoreSample, by: str, costs: Float64s | None = None) -> Float64s:
    """One number, or one for each class, to be taken off the scores. `by` is f1, or cost, which needs `costs`."""
    goal = _goal(sample, by, costs)
    scores = sample.scores()
    scores[np.isnan(scores)] = -np.inf  # of a class that was not there yet
    thetas = np.zeros(sample.columns)
    if sample.many and sample.columns > 1:
        _take_turns(scores, thetas, goal)
    elif not sample.many:
        own, nothing = scores.astype(np.float64), np.zeros(sample.rows)
        thetas[0] = _best_threshold(1, 0.0, Duel(own, nothing, nothing.astype(np.int64), own), goal)
    return thetas


def _goal(sample: ScoreSample, by: str, costs: Float64s | None) -> Goal:
    codes, weights = sample.codes().astype(np.int64), sample.weights().astype(np.float64)
    classes = sample.columns if sample.many else 2
    totals = np.bincount(codes, weights, classes).astype(np.float64)
    if by == "f1":
        counted = totals > 0.0
        counted[0] &= sample.many
        return Goal(codes, weights, np.zeros(sample.rows), counted / max(counted.sum(), 1), totals)
    if by != "cost" or costs is None or len(costs) != classes:
        raise ValueError(f"thresholds are chosen by f1, or by cost with costs of {classes} classes")
    paid = weights * costs[codes]
    return Goal(codes, weights, paid / (paid.sum() or 1.0), np.zeros(classes), totals)


def _take_turns(scores: Float32s, thetas: Float64s, goal: Goal) -> None:
    best, next_best, rivals = np.zeros((3, len(scores)), np.int64)
    own, others, margins = np.empty((3, len(scores)))
    find_two_best(scores, thetas, -1, best, next_best)
    for _ in range(ROUNDS):
        before = thetas.copy()
        for k in range(len(thetas)):
            duel = Duel(own, others, rivals, margins)
            find_duel(scores, thetas, k, best, next_best, duel)
            theta = _best_threshold(k, float(thetas[k]), duel, goal)
            if theta != thetas[k]:
                thetas[k] = theta
                find_two_best(scores, thetas, k, best, next_best)
        if (thetas == before).all():
            break


def _best_threshold(k: int, theta: float, duel: Duel, goal: Goal) -> float:
    """Where class k does best against its rivals; `theta`, where it is now, if no place is better."""
    order = np.argsort(-duel.margins, kind="stable")
    now = value_at(k, theta, duel, goal)
    value, cut = sweep(k, order, duel, goal)
    if value <= now + BETTER:
        return theta
    found = _between(duel.margins[order], cut)
    return found if value_at(k, found, duel, goal) > now + BETTER else theta


def _between(margins: Float64s, cut: int) -> float:
    """A number that the first `cut` of falling margins exceed, and no other; at an end, one just beyond that."""
    upper = float(margins[cut - 1]) if cut > 0 else np.inf
    lower = float(margins[cut]) if cut < len(margins) else -np.inf
    if np.isfinite(upper) and np.isfinite(lower):
        return (upper + lower) / 2.0
    finite = margins[np.isfinite(margins)]
    if len(finite) == 0:
        return 0.0
    end = upper if np.isfinite(upper) else lower
    beyond = max((finite[0] - finite[-1]) / 1024.0, abs(end) * 1e-9) or 1.0
    return float(end - beyond if end == upper else end + beyond)


@kernel
def find_two_best(scores, thetas, k, best, next_best):
    """The two best classes of each row; after threshold k has moved (-1: any), of rows where that may matter."""
    for i in range(len(scores)):
        row, a, b = scores[i], best[i], next_best[i]
        if k >= 0 and k != a and row[k] - thetas[k] < row[b] - thetas[b]:
            continue
        a, b = 0, -1
        for j in range(1, len(row)):
            score = row[j] - thetas[j]
            if score > row[a] - thetas[a]:
                a, b = j, a
            elif b < 0 or score > row[b] - thetas[b]:
                b = j
        best[i], next_best[i] = a, b


@kernel
def find_duel(scores, thetas, k, best, next_best, duel):
    own, others, rivals, margins = duel
    for i in range(len(scores)):
        rival = next_best[i] if best[i] == k else best[i]
        own[i], others[i], rivals[i] = scores[i, k], scores[i, rival] - thetas[rival], rival
        if own[i] == others[i]:  # both may be infinite: then the order of the classes decides, and no threshold
            margins[i] = 0.0 if own[i] > -np.inf else (np.inf if k < rival else -np.inf)
        else:
            margins[i] = own[i] - others[i]


@kernel
def sweep(k, order, duel, goal):
    """The largest value of the goal, and how many rows, in the order of falling margins, are given class k for it."""
    own, others, rivals, margins = duel
    codes, weights, costs, shares, totals = goal
    right, taken = np.zeros(len(totals)), np.zeros(len(totals))
    value = tally(rivals, goal, right, taken)
    best, cut = -np.inf, 0
    for place in range(len(order)):
        i = order[place]
        apart = place == 0 or margins[i] < margins[order[place - 1]]
        if apart and margins[i] < np.inf and value > best + BETTER:
            best, cut = value, place
        if margins[i] == -np.inf:
            return best, cut
        rival, c = rivals[i], weights[i]
        value -= f1(rival, goal, right, taken) + f1(k, goal, right, taken)
        taken[rival] -= c
        taken[k] += c
        if codes[i] == rival:
            right[rival] -= c
            value -= costs[i]
        elif codes[i] == k:
            right[k] += c
            value += costs[i]
        value += f1(rival, goal, right, taken) + f1(k, goal, right, taken)
    if value > best + BETTER:
        best, cut = value, len(order)
    return best, cut


@kernel
def value_at(k, theta, duel, goal):
    """The value of the goal with this threshold of class k, decided as a model decides."""
    own, others, rivals, margins = duel
    given = rivals.copy()
    for i in range(len(own)):
        score = own[i] - theta
        if score > others[i] or (score == others[i] and k < rivals[i]):
            given[i] = k
    classes = len(goal.totals)
    return tally(given, goal, np.zeros(classes), np.zeros(classes))


@inlined
def tally(given, goal, right, taken):
    """The value of the goal with these classes; fills the weights of rows that are given a class, and rightly so."""
    codes, weights, costs, shares, totals = goal
    value = 0.0
    for i in range(len(codes)):
        taken[given[i]] += weights[i]
        if given[i] == codes[i]:
            right[codes[i]] += weights[i]
        else:
            value -= costs[i]
    for j in range(len(totals)):
        value += f1(j, goal, right, taken)
    return value


@inlined
def f1(j, goal, right, taken):
    """Class j's share of the goal; 2 TP + FP + FN is what is given to the class plus what belongs to it."""
    codes, weights, costs, shares, totals = goal
    return shares[j] * 2.0 * right[j] / (taken[j] + totals[j]) if shares[j] > 0.0 else 0.0
