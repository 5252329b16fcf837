"""A budget of supports: what becomes of one of them when there is one too many.

    oldest     it is dropped
    smallest   the one with the smallest |coefficient| sqrt(k(s, s)) is dropped
    project    it is dropped, and the others nearest to it take over what they can of its part in f
    merge      it and another of the same sign become one between them, the pair for which f changes least

    Wang, Crammer, Vucetic, "Breaking the curse of kernelization", 2012. Cost: that of one or two more rows.

Two supports s, r with coefficients a <= A of one sign, k = k(s, r) and m = a / (a + A), merge into z = h s + (1 - h) r
with coefficient a k^((1-h)^2) + A k^(h^2), and h in 0 .. 1/2 such that this is largest:

    h / (1 - h) = m / (1 - m) k^(1 - 2h)

The square of the change of f is then (a + A)^2 loss(m, k): a table holds `loss`, so that all pairs can be looked at.
If the signs differ, r takes over a k of the other's coefficient, and a^2 (1 - k^2) is lost. Only with the rbf kernel is
what lies between two supports known; with others `merge` means `project`.
"""

import math
from functools import cache

import numpy as np

from streamsvm.batch import Float32s
from streamsvm.jit import cold, inlined, kernel
from streamsvm.solvers.base import OWN
from streamsvm.solvers.similarity import TILE, first_place, get_support, likenesses, put_support

# Places in `scalars`: how many supports there are, which is the oldest of a full set, the least decay of each row,
# and the mean of the bias.
COUNT, OLDEST_PLACE, FADE, MEAN_BIAS = range(OWN, OWN + 4)

OLDEST, SMALLEST, PROJECT, MERGE = range(4)
UPKEEP = {"oldest": OLDEST, "smallest": SMALLEST, "project": PROJECT, "merge": MERGE}

SHARES, LIKES = 64, 256  # steps of the table, of m in 0 .. 1/2 and of k in 0 .. 1
HALVINGS = 30
NEIGHBOURS = 8  # supports that take over what one leaves
INDEPENDENT = 1e-5  # the part of a neighbour, squared, that those before it do not have: with less it is left out
FAINTEST = 1e-30


@cache
def merge_losses() -> Float32s:
    """loss(m, k) at all steps."""
    table = np.empty((SHARES + 1, LIKES + 1), np.float32)
    fill_merge_losses(table)
    return table


@inlined
def best_share(m, like):
    """h: where between two supports the one that replaces them is best, by halving."""
    odds, slope = m / (1.0 - m), math.log(max(like, FAINTEST))
    low, high = 0.0, 0.5
    for _ in range(HALVINGS):
        h = 0.5 * (low + high)
        if h < (1.0 - h) * odds * math.exp(slope * (1.0 - 2.0 * h)):
            low = h
        else:
            high = h
    return 0.5 * (low + high)


@inlined
def likes_between(like, h):
    """How alike the support at h is to the one with the larger coefficient, and to the other."""
    slope = math.log(max(like, FAINTEST))
    return math.exp(slope * h * h), math.exp(slope * (1.0 - h) * (1.0 - h))


@kernel
def fill_merge_losses(table):
    for i in range(SHARES + 1):
        m = 0.5 * i / SHARES
        for j in range(LIKES + 1):
            like = j / LIKES
            near, far = likes_between(like, best_share(m, like))
            kept = m * far + (1.0 - m) * near
            table[i, j] = max(0.0, m * m + (1.0 - m) * (1.0 - m) + 2.0 * m * (1.0 - m) * like - kept * kept)


@inlined
def looked_up(table, m, like):
    """loss(m, like), between the steps of the table on a straight line each way."""
    x, y = 2.0 * SHARES * m, LIKES * like
    i, j = np.uint64(min(x, SHARES - 1.0)), np.uint64(min(y, LIKES - 1.0))
    right, down = y - j, x - i
    upper = table[i, j] + right * (table[i, j + np.uint64(1)] - table[i, j])
    i += np.uint64(1)
    lower = table[i, j] + right * (table[i, j + np.uint64(1)] - table[i, j])
    return upper + down * (lower - upper)


@inlined
def least_support(coefficients, selves, count):
    """The one with the smallest part in f, by itself."""
    least, smallest = 0, math.inf
    for b in range(count):
        size = np.float64(coefficients[b]) * np.float64(coefficients[b]) * np.float64(selves[b])
        if size < smallest:
            least, smallest = b, size
    return least


@inlined
def best_partner(table, coefficients, likes, gone, count):
    """The support whose union with `gone`, the smallest, changes f least."""
    own = np.float64(coefficients[gone])
    a = abs(own)
    best, least = -1, math.inf
    for b in range(count):
        if b == gone:
            continue
        other, like = np.float64(coefficients[b]), min(1.0, np.float64(likes[b]))
        if (other > 0.0) == (own > 0.0):
            total = max(a + abs(other), FAINTEST)
            loss = total * total * looked_up(table, min(0.5, a / total), like)
        else:
            loss = a * a * (1.0 - like * like)
        if loss < least:
            best, least = b, loss
    return best


@inlined
def merge(table, points, coefficients, means, likes, gone, count, row):
    """Let another support stand for itself and for `gone`, which is in `row`."""
    b = best_partner(table, coefficients, likes, gone, count)
    if b < 0:
        return
    own, other, like = np.float64(coefficients[gone]), np.float64(coefficients[b]), min(1.0, np.float64(likes[b]))
    if (other > 0.0) != (own > 0.0):
        coefficients[b] = np.float32(other + own * like)
        means[b] += means[gone] * np.float32(like)
        return
    total = own + other
    m = min(0.5, own / total) if total != 0.0 else 0.0
    h = best_share(m, like)
    near, far = likes_between(like, h)
    coefficients[b] = np.float32(own * far + other * near)
    means[b] = np.float32(np.float64(means[gone]) * far + np.float64(means[b]) * near)
    place = first_place(b, len(row))
    for j in range(len(row)):
        r = points[place + TILE * j]
        points[place + TILE * j] = r + np.float32(h) * (row[j] - r)


@inlined
def likeness(similarity, points, one, other, dim):
    """k(s_one, s_other)"""
    total = 0.0
    place, there = first_place(one, dim), first_place(other, dim)
    for j in range(dim):
        total += np.float64(similarity.part(points[place + TILE * j], points[there + TILE * j]))
    return similarity.of(total)


@inlined
def nearest(likes, selves, count, looked, seen):
    """The support that alone could take over most, beside those that were looked at."""
    best, most = -1, 0.0
    for b in range(count):
        part = likes[b] * likes[b] / selves[b] if selves[b] > 0.0 else 0.0
        if part > most:
            taken = False
            for k in range(seen):
                taken |= looked[k] == b
            if not taken:
                best, most = b, part
    return best


@cold
def project(similarity, points, coefficients, means, selves, likes, gone, count, dim):
    """Give the part of `gone` in f to its neighbours: Gram-Schmidt, one after the other, then back."""
    chosen, looked = np.empty(NEIGHBOURS, np.int64), np.empty(NEIGHBOURS + 1, np.int64)
    factor, parts = np.zeros((NEIGHBOURS, NEIGHBOURS)), np.empty(NEIGHBOURS)  # of the matrix of their likenesses
    looked[0] = gone
    found = 0
    for seen in range(1, NEIGHBOURS + 1):
        b = nearest(likes, selves, count, looked, seen)
        if b < 0:
            break
        looked[seen] = b
        rest, part = np.float64(selves[b]), np.float64(likes[b])
        for j in range(found):
            dot = likeness(similarity, points, b, chosen[j], dim)
            for k in range(j):
                dot -= factor[found, k] * factor[j, k]
            factor[found, j] = dot / factor[j, j]
            rest -= factor[found, j] * factor[found, j]
            part -= factor[found, j] * parts[j]
        if rest > INDEPENDENT * selves[b]:
            factor[found, found] = math.sqrt(rest)
            parts[found] = part / factor[found, found]
            chosen[found] = b
            found += 1
    for i in range(found - 1, -1, -1):
        for k in range(i + 1, found):
            parts[i] -= factor[k, i] * parts[k]
        parts[i] /= factor[i, i]
        coefficients[chosen[i]] += np.float32(coefficients[gone] * parts[i])
        means[chosen[i]] += np.float32(means[gone] * parts[i])


@inlined
def twin_of(points, selves, likes, own, count, row):
    """The support that is this row, or -1."""
    for b in range(count):
        if likes[b] == own and selves[b] == own:
            place, same = first_place(b, len(row)), True
            for j in range(len(row)):
                same &= points[place + TILE * j] == row[j]
            if same:
                return b
    return -1


@cold
def take_in(similarity, way, budget, table, supports, scalars, row, own, amount, likes, powers):
    """A row joins the supports; `likes` are its likenesses to them. Then there may be one too many."""
    points, coefficients, means, selves = supports
    count = np.int64(scalars[COUNT])
    twin = twin_of(points, selves, likes, own, count, row)
    if twin >= 0:
        coefficients[twin] += np.float32(amount)
        return
    put_support(points, count, row)
    coefficients[count], means[count], selves[count] = np.float32(amount), 0.0, own
    if count < budget:
        scalars[COUNT] = count + 1
        return
    if way == OLDEST:
        gone = np.int64(scalars[OLDEST_PLACE])
        scalars[OLDEST_PLACE] = (gone + 1) % budget
    else:
        gone = least_support(coefficients, selves, count + 1)
    if way in (PROJECT, MERGE):
        get_support(points, gone, row)
        likenesses(similarity, points, row, count + 1, likes, powers)
        if way == MERGE and similarity.merges():
            merge(table, points, coefficients, means, likes, gone, count + 1, row)
        else:
            project(similarity, points, coefficients, means, selves, likes, gone, count + 1, len(row))
    get_support(points, count, row)
    put_support(points, gone, row)
    coefficients[gone], means[gone], selves[gone] = coefficients[count], means[count], selves[count]
    coefficients[count] = means[count] = 0.0
