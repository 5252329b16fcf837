"""crammer_singer: all classes in one problem, by the margin between a row's own class and the best of the others.

    minimise   l2/2 sum of ||w_k||^2 + mean of c_i loss(s_iy - s_ir, +1),  r the class with the largest score but y
    each row   t += c;  w_k *= 1 - c eta l2 for all k;  w_y -= c eta slope x;  w_r += c eta slope x;  asgd: averaged

    K. Crammer, Y. Singer, "On the algorithmic implementation of multiclass kernel-based vector machines", 2001; online:
    A. Bordes et al., "Solving multiclass support vector machines with LaRank", 2007. With the hinge loss the objective
    is that of LIBLINEAR's -s 4. Cost per row: one walk for all scores, one for two classes.

Steps and averages are those of sgd and asgd. A class takes part from its first row on: before that it has no weights
and is nobody's rival. Choose it where classes exclude each other and are many: a row moves two of them, and no class
has to be told from all others at once by a single line.
"""

from typing import Any

import numpy as np

from streamsvm.jit import inlined, kernel
from streamsvm.rows import rescale, row_norm2
from streamsvm.solvers.asgd import ALPHA, BETA, MEAN_BIAS, SMALLEST_BETA
from streamsvm.solvers.base import BIAS, LOSS, SCALE, SMALLEST_SCALE, WEIGHT, WRONG, T
from streamsvm.solvers.many import asgd, sgd
from streamsvm.solvers.many.lane_rows import best_class, class_dots, fetch_classes, finish_scores


class CrammerSingerSgd(sgd.SgdClasses):
    rule = "crammer_singer"

    def _kernel(self) -> Any:
        return crammer_singer_sgd

    def _terms(self) -> tuple[Any, ...]:
        return super()._terms()[:-1]  # there is no bound


class CrammerSingerAsgd(asgd.AsgdClasses):
    rule = "crammer_singer"

    def _kernel(self) -> Any:
        return crammer_singer_asgd


@inlined
def best_rival(own, known, n, score, numbers):
    """The class with the largest score but the row's own; -1 if there is none."""
    best, most = -1, -np.inf
    for k in range(known):
        if k != own and numbers[score * n + k] > most:
            best, most = k, numbers[score * n + k]
    return best


@inlined
def implicit_pair_slope(slope, eta, loss, margin, values, a, b, gain):
    """rows.implicit_slope where two classes move, and the margin with both of them."""
    return slope * loss.share(margin, 1.0, 2.0 * eta * (row_norm2(values, a, b) + gain))


@inlined
def two_axpy(vector, indices, values, a, b, stride, up, down, factor):
    """vector[up of feature j] += factor x_j, vector[down of feature j] -= factor x_j."""
    small, width = np.float32(factor), np.uint64(stride)
    first, second = np.uint64(up), np.uint64(down)
    for k in range(np.uint64(a), np.uint64(b)):
        j = np.uint64(indices[k]) * width
        vector[j + first] += small * values[k]
        vector[j + second] -= small * values[k]


@kernel
def crammer_singer_sgd(batch, order, loss, schedule, l2, bias, part, vector, scalars, numbers):
    indptr, indices, values, labels, weights = batch
    n = len(numbers) // sgd.NUMBERS
    stride, last_scalar = n, len(scalars) - 1
    scale, t, known = scalars[SCALE], scalars[T], int(scalars[last_scalar])
    seen, wrong, bad = scalars[WEIGHT], scalars[WRONG], -1
    for place in range(len(order)):
        i = order[place]
        c = float(weights[i])
        if c == 0.0:
            continue
        first, last, own = indptr[i], indptr[i + 1], int(labels[i])
        class_dots(vector, indices, values, first, last, stride, part, n, sgd.SCORE, numbers)
        fetch_classes(vector, indptr, indices, order, place + 1, stride)
        if finish_scores(scale, n, sgd.SCORE, BIAS, numbers) > 0:
            bad = i
            break
        seen += c
        if best_class(known, n, sgd.SCORE, numbers) != own:
            wrong += c
        known = max(known, own + 1)
        rival = best_rival(own, known, n, sgd.SCORE, numbers)

        t += c
        eta = schedule.rate(t)
        scale *= 1.0 - c * eta * l2
        for k in range(n):
            numbers[BIAS * n + k] *= 1.0 - c * eta * l2 * bias.decay
        if scale < SMALLEST_SCALE:
            rescale(vector, scale)
            scale = 1.0
        if rival >= 0:
            margin = numbers[sgd.SCORE * n + own] - numbers[sgd.SCORE * n + rival]
            numbers[LOSS * n + own] += c * loss.value(margin, 1.0)
            slope = loss.slope(margin, 1.0)
            if slope != 0.0:
                step = c * eta * implicit_pair_slope(slope, c * eta, loss, margin, values, first, last, bias.gain)
                two_axpy(vector, indices, values, first, last, stride, own, rival, -step / scale)
                numbers[BIAS * n + own] -= step * bias.gain
                numbers[BIAS * n + rival] += step * bias.gain
    scalars[SCALE], scalars[T], scalars[last_scalar] = scale, t, known
    scalars[WEIGHT], scalars[WRONG] = seen, wrong
    return bad


@kernel
def crammer_singer_asgd(batch, order, loss, schedule, average, l2, bias, part, vector, scalars, numbers):
    indptr, indices, values, labels, weights = batch
    n = len(numbers) // asgd.NUMBERS
    stride, last_scalar = 2 * n, len(scalars) - 1
    scale, t, known = scalars[SCALE], scalars[T], int(scalars[last_scalar])
    alpha, beta = scalars[ALPHA], scalars[BETA]
    seen, wrong, bad = scalars[WEIGHT], scalars[WRONG], -1
    for place in range(len(order)):
        i = order[place]
        c = float(weights[i])
        if c == 0.0:
            continue
        first, last, own = indptr[i], indptr[i + 1], int(labels[i])
        class_dots(vector, indices, values, first, last, stride, part, n, asgd.SCORE, numbers)
        fetch_classes(vector, indptr, indices, order, place + 1, stride)
        if finish_scores(scale, n, asgd.SCORE, BIAS, numbers) > 0:
            bad = i
            break
        seen += c
        if best_class(known, n, asgd.SCORE, numbers) != own:
            wrong += c
        known = max(known, own + 1)
        rival = best_rival(own, known, n, asgd.SCORE, numbers)

        keep = average.mass(t) / average.mass(t + c)
        t += c
        eta = schedule.rate(t)
        scale *= max(0.0, 1.0 - c * eta * l2)
        for k in range(n):
            numbers[BIAS * n + k] *= max(0.0, 1.0 - c * eta * l2 * bias.decay)
        if scale < SMALLEST_SCALE or beta < SMALLEST_BETA:
            asgd.rebase_classes(vector, n, scale, alpha, beta)
            scale, alpha, beta = 1.0, 0.0, 1.0
        if rival >= 0:
            margin = numbers[asgd.SCORE * n + own] - numbers[asgd.SCORE * n + rival]
            numbers[LOSS * n + own] += c * loss.value(margin, 1.0)
            slope = loss.slope(margin, 1.0)
            if slope != 0.0:
                step = c * eta * implicit_pair_slope(slope, c * eta, loss, margin, values, first, last, bias.gain)
                two_axpy(vector, indices, values, first, last, stride, own, rival, -step / scale)
                other = alpha / beta * step / scale
                two_axpy(vector, indices, values, first, last, stride, n + own, n + rival, other)
                numbers[BIAS * n + own] -= step * bias.gain
                numbers[BIAS * n + rival] += step * bias.gain
        alpha = keep * alpha + (1.0 - keep) * scale
        beta *= keep
        for k in range(n):
            numbers[MEAN_BIAS * n + k] = keep * numbers[MEAN_BIAS * n + k] + (1.0 - keep) * numbers[BIAS * n + k]
    scalars[SCALE], scalars[T], scalars[last_scalar] = scale, t, known
    scalars[ALPHA], scalars[BETA] = alpha, beta
    scalars[WEIGHT], scalars[WRONG] = seen, wrong
    return bad
