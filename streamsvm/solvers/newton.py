"""newton: Newton's method in a trust region, its equations solved by preconditioned conjugate gradients.

    minimise     P(w) = l2/2 ||w||^2 + R(w),     R = mean of c_i loss(w.x_i + b, y_i),     g = l2 w + R'
    each step    (l2 I + R'') s = -g  about,  in  s'M s <= radius^2,  M = l2 I + 0.01 diag R'';    w += s
                 where the quadratic model of P was wrong, w += k s for the best k, and the radius shrinks with k

    C.-J. Lin, R. C. Weng, S. S. Keerthi, "Trust region Newton method for large-scale logistic regression", 2008;
    C.-Y. Hsia, W.-L. Chiang, C.-J. Lin, "Preconditioned conjugate gradient methods in truncated Newton frameworks for
    large-scale linear classification", 2018 (M); R. H. Byrd, G. M. Chin, W. Neveitt, J. Nocedal, "On the use of
    stochastic Hessian information in optimization methods for machine learning", 2011 (`hessian_sample`).
    Cost of a step: a reading of all data for each conjugate direction, one for the gradient, and at times one for M.
    Memory: 16 numbers for each feature, and two for each row, which may be in a file.

What is known of w is exact: alpha_i = -y_i slope_i is feasible in the dual, where it gives P - ||g||^2 / (2 l2) <= P*.
So the gap is small when g is short, and that saves readings. In the last step the mean of the iterates whose residual
is shortest counts, which gets there long before the iterates do (R. Weiss, "Properties of generalized conjugate
gradient methods", 1994), and ends it. P may be higher there: then w stays, and the bound from there holds for it. With
a bias outside of the penalty alpha is not feasible: nothing is proven, and the end is where ||g|| is `tol` times what
it is at zero.

A step leaves the scores before and after it. Along the line through both the least P is found without reading any
features; where that is much lower than P after the step, or where the model was wrong, one more reading takes it there.
So no step is ever in vain, and P never rises. That is also why the trust region can be wide: it is there for directions
of next to no curvature. With a radius that follows each step closely, as TRON's does, separable rows that take 700
readings to a gap of 1e-4 were not there after 3000.

Choose it for a loss with a curvature and an optimum to many digits, or where readings are cheap; `asgd` is good enough
after one. With `hessian_sample` conjugate directions read only a share of the groups, anew in each step: cheaper steps,
but more of them.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from streamsvm.batch import Float32s, Float64s
from streamsvm.errors import ConfigError, ModelError
from streamsvm.groups import Column, Groups
from streamsvm.losses import LOSSES
from streamsvm.solvers.base import Problem, State
from streamsvm.solvers.batch import ALONE, BatchSolver, Figures, Surroundings
from streamsvm.solvers.sums import Risk, Sums, sums_over

DIAGONAL = 0.01  # its share in the preconditioner: with more, sparse rows need more readings, with less, dense ones
REFRESH = 10  # products after which a new diagonal is worth a reading
REACH = 1e6  # radius of the trust region, in lengths of a step that was right
FLAT = 1e-16  # curvature, relative to the preconditioner's, that may be nothing but rounding
RESIDUAL = 0.1  # of the gradient, in the preconditioner's norm: where a step is exact enough
SHORT = 0.9  # of the gradient that is short enough to stop: the residual that ends the last step
WORTH = 0.05  # of what a step gained: what a line search must promise to be worth a reading
VECTORS = 16  # at most at a time, with a number for each feature
UNIT = 2.0**-52
ROUNDING = 1e-14  # by how much of itself the objective may seem to rise while the gradient still gets shorter


class Standing(NamedTuple):
    """All that the future depends on, after a whole step."""

    vector: Float64s
    diagonal: Float64s  # of R'', at these or earlier weights; empty before the first
    radius: float = np.inf
    dual: float = -np.inf  # the best bound so far
    steepest: float = np.nan  # ||g|| at zero, where that is needed
    passes: int = 0  # before the reading that told the risk of these weights
    steps: int = 0
    products: int = 0  # since the diagonal was new


class Step(NamedTuple):
    """A step, and what the quadratic model thinks of it."""

    s: Float64s
    gain: float
    length: float  # in the preconditioner's norm
    cut: bool  # at the edge of the trust region
    last: bool  # whether the gradient should be short enough after it


class Newton(BatchSolver):
    name = "newton"
    free_bias = True
    weight_bytes = 8 * 18

    def __init__(
        self, problem: Problem, groups: Groups, around: Surroundings = ALONE, *, hessian_sample: float = 1.0
    ) -> None:
        super().__init__(problem, groups, around)
        if not hasattr(problem.loss, "curvature"):
            given = next((name for name, kind in LOSSES.items() if type(problem.loss) is kind), "this one")
            smooth = " or ".join(name for name, kind in LOSSES.items() if hasattr(kind, "curvature"))
            raise ConfigError(f"solver {self.name} needs a loss with a curvature, and {given} has none: use {smooth}")
        if not 0.0 < hessian_sample <= 1.0:
            raise ConfigError(f"hessian_sample must be above 0 and at most 1, not {hessian_sample}")
        self.hessian_sample = hessian_sample
        left = max(0, around.memory - Sums.bytes_for(groups.width, VECTORS))
        self._sums = sums_over(groups, problem, left // 2, around.tick)
        self._scores = groups.column(np.float64, left // 4)
        self._tried = groups.column(np.float64, left // 4)
        self._known: Risk | None = None  # of the weights that stand, with their scores
        self._at_rest = False
        self._now = Standing(np.zeros(groups.width + 1), np.empty(0))

    def learn(self) -> None:
        while not self._arrived():
            if not self._step():
                self.around.note("newton: in double precision the objective cannot be lowered any further")
                return

    def vector(self) -> Float64s:
        return np.array(self._now.vector, np.float64)

    def start_from(self, weights: Float32s, bias: float) -> None:
        self._now = Standing(self._extended(weights, bias), np.empty(0), passes=self.passes)
        self._forget()

    def with_penalty(self, l2: float) -> None:
        """Nothing is read again; the reading that told what is known counts as the first pass."""
        super().with_penalty(l2)
        self._at_rest = False
        self.passes = 0 if self._known is None else 1
        self._now = self._now._replace(radius=np.inf, dual=-np.inf, passes=0)

    def state(self) -> State:
        vector, diagonal, *numbers = self._now
        return {
            "vector": vector.copy(),
            "diagonal": diagonal.copy(),
            "scalars": np.array(numbers, np.float64),
            "passes": self._now.passes,
        }

    def restore(self, state: State) -> None:
        """Go on exactly; the reading that tells the risk again is the one that the state does not count."""
        if len(state["vector"]) != self._sums.size or len(state["scalars"]) != len(Standing._fields) - 2:
            raise ModelError(f"the numbers saved are not those of solver {self.name} with these rows and settings")
        radius, dual, steepest, passes, steps, products = np.array(state["scalars"], np.float64).tolist()
        arrays = np.array(state["vector"], np.float64), np.array(state["diagonal"], np.float64)
        self._now = Standing(*arrays, radius, dual, steepest, int(passes), int(steps), int(products))
        self.passes = self._now.passes
        self._forget()

    @property
    def converged(self) -> bool:
        """A small gap, or, where there is none, a short gradient."""
        return self._at_rest if self._unpenalised() else super().converged

    # How it is done.

    def _forget(self) -> None:
        """The weights are others: what is known of them is to be read."""
        self._known = self.figures = None
        self._at_rest = False

    def _arrived(self) -> bool:
        """Whether to stop at the weights that stand, whose risk is read unless it is known."""
        free = self._unpenalised()
        if self._known is None:
            if free and np.isnan(self._now.steepest) and self._now.vector.any():
                steepest = length(self._risk(np.zeros(self._sums.size), self._scores).gradient)
                self._now = self._now._replace(steepest=steepest, passes=self.passes)
            self._known = self._risk(self._now.vector, self._scores)
            if np.isnan(self._now.steepest) and not self._now.vector.any():
                self._now = self._now._replace(steepest=length(self._known.gradient))
        risk, vector = self._known, self._now.vector
        objective = self._penalty(vector) + float(risk.loss)
        dual = None
        if free:
            self._at_rest = length(self._gradient(vector, risk)) <= self._short(objective)
        else:
            self._now = self._now._replace(dual=max(self._now.dual, self._bound(risk)))
            dual = min(self._now.dual, objective)
        return self._enough(Figures(objective, dual, float(risk.loss), float(risk.error)))

    def _proven_by(self, risk: Risk, objective: float) -> bool:
        """Whether other weights than those that stand prove that these are good enough."""
        if self._unpenalised():
            return False
        self._now = self._now._replace(dual=max(self._now.dual, self._bound(risk)))
        return objective - self._now.dual <= self.around.limits.tol * objective

    def _bound(self, risk: Risk) -> float:
        """The dual value of alpha_i = -y_i slope_i, of which no more is claimed than rounding leaves certain."""
        cost = 0.5 / self.problem.l2 * inner(risk.gradient, risk.gradient)
        slack = UNIT * np.sqrt(self.groups.rows + 1) * (risk.dual + cost)
        return float(risk.dual - cost - slack)

    def _step(self) -> bool:
        """One step, and what it takes to know about it; False where the objective cannot be lowered."""
        assert self._known is not None
        vector, risk = self._now.vector, self._known
        before, gradient = self._penalty(vector) + risk.loss, self._gradient(vector, risk)
        numbers = self._sampled()
        diagonal, radius, products = self._preconditioner(numbers)
        made = self.passes
        m = self.problem.l2 + DIAGONAL * diagonal if len(diagonal) else np.full_like(vector, self.problem.l2)
        short = self._short(before)
        step = self._conjugate(gradient, m, radius, short, numbers)
        products += self.passes - made

        there = vector + step.s
        tried = self._risk(there, self._tried)
        fell = before - self._penalty(there) - tried.loss
        if step.last and fell < -ROUNDING * before and self._proven_by(tried, before):
            return True
        if step.last and fell < -ROUNDING * before and step.gain <= 0.0:  # it was for the gradient, not for P
            step = self._conjugate(gradient, m, radius, 0.0, numbers)
            there = vector + step.s
            tried = self._risk(there, self._tried)
            fell = before - self._penalty(there) - tried.loss
        down, after = inner(gradient, step.s), inner(self._gradient(there, tried), step.s)  # slopes of P at both ends
        wrong = not fell > 1e-4 * step.gain
        better = 0.5 * after * after > WORTH * fell * (after - down)  # were P a parabola
        k = self._least(step.s, down) if wrong or (better and not step.last) else 1.0
        if k == 1.0:
            radius = max(REACH * step.length, radius if radius < np.inf else 0.0)
        else:
            there = vector + k * step.s
            tried = self._risk(there, self._tried)
            fell = before - self._penalty(there) - tried.loss
            radius = REACH * k * step.length
        shorter = length(self._gradient(there, tried)) < 0.5 * length(gradient)
        if not (fell > 0.0 or (shorter and fell >= -ROUNDING * before)):
            return False
        self._scores, self._tried = self._tried, self._scores
        self._known = tried
        dual, steepest, steps = self._now.dual, self._now.steepest, self._now.steps + 1
        self._now = Standing(there, diagonal, radius, dual, steepest, self.passes - 1, steps, products)
        return True

    def _conjugate(
        self, gradient: Float64s, m: Float64s, radius: float, short: float, numbers: Sequence[int] | None
    ) -> Step:
        """Conjugate gradients from s = 0, until the residual r = -g - H s is short or the trust region ends.

        (mean, rest) is the mean of all s whose residual is shortest: where that is as short as the gradient has to
        become, it is the last step.
        """
        s, r = np.zeros_like(gradient), -gradient
        mean, rest = s.copy(), r.copy()
        z = r / m
        d, rz = z.copy(), inner(r, z)
        enough = RESIDUAL * RESIDUAL * rz
        cut = last = False
        for _ in range(2 * len(s) + 10):
            hd = self._sums.product(self._scores, d, numbers) + self._decay(d)
            self.passes += 1
            bend = inner(d, hd)
            eta = rz / bend if bend > FLAT * inner(d * d, m) else np.inf
            edge = to_edge(s, d, m, radius)
            cut = eta >= edge
            if cut:
                eta = edge if edge < np.inf else 0.0 if s.any() else 1.0  # a line search will tell how far
            s += eta * d
            r -= eta * hd
            if cut:
                break
            apart = r - rest
            share = -inner(rest, apart) / max(inner(apart, apart), 1e-300)
            mean += share * (s - mean)
            rest += share * apart
            if numbers is None and length(rest) <= SHORT * short:
                s, r, last = mean, rest, True
                break
            z = r / m
            rz, old = inner(r, z), rz
            if rz <= enough or self._late():
                break
            d *= rz / old
            d += z
        gain = 0.5 * (inner(s, r) - inner(gradient, s))
        return Step(s, gain, float(np.sqrt(inner(s * s, m))), cut, last)

    def _least(self, s: Float64s, down: float) -> float:
        """k > 0 where P(w + k s) is about least, from the scores before and after: nothing is read but labels."""
        constant, rise = inner(self._decay(self._now.vector), s), inner(self._decay(s), s)
        low, high, k = 0.0, np.inf, 1.0
        for _ in range(60):
            slope, bend = self._along(k)
            slope, bend = slope + constant + k * rise, bend + rise
            if abs(slope) <= 0.01 * abs(down):
                break
            low, high = (k, high) if slope < 0.0 else (low, k)  # not a number: too far
            guess = k - slope / bend if bend > 0.0 else np.nan
            if not low < guess < high:
                guess = 2.0 * k if high == np.inf else 0.5 * (low + high) if low else 0.1 * high
            k = guess
        return k

    def _along(self, k: float) -> tuple[float, float]:
        """The first two derivatives of R(w + k s) by k."""
        slope, bend = self._sums.along(self._scores, self._tried, k).tolist()
        return slope, bend

    def _preconditioner(self, numbers: Sequence[int] | None) -> tuple[Float64s, float, int]:
        """The diagonal of R'', new if it is time; the radius, in its norm; and the products made with it so far."""
        vector, old, radius, products = self._now.vector, self._now.diagonal, self._now.radius, self._now.products
        if (len(old) and products < REFRESH) or self._left() < 3:
            return old, radius, products
        new = self._sums.diagonal(self._scores, numbers)
        self.passes += 1
        if len(old) and vector.any():
            l2, squares = self.problem.l2, vector * vector
            radius *= float(np.sqrt(inner(squares, l2 + DIAGONAL * new) / inner(squares, l2 + DIAGONAL * old)))
        return new, radius, 0

    def _sampled(self) -> Sequence[int] | None:
        """The groups that tell the Hessian in this step; None: all."""
        count = self.groups.count
        some = max(1, round(self.hessian_sample * count))
        if some >= count:
            return None
        rng = np.random.default_rng([self.around.seed, self._now.steps])
        return [int(number) for number in np.sort(rng.choice(count, some, replace=False))]

    def _risk(self, vector: Float64s, scores: Column) -> Risk:
        risk = self._sums.risk(vector, scores)
        self.passes += 1
        return risk

    def _gradient(self, vector: Float64s, risk: Risk) -> Float64s:
        return self._decay(vector) + risk.gradient

    def _decay(self, vector: Float64s) -> Float64s:
        """l2 times a vector; the bias counts only where it is part of the penalty."""
        result = self.problem.l2 * vector
        if not self.problem.bias.decay:
            result[-1] = 0.0
        return result

    def _short(self, objective: float) -> float:
        """How long the gradient may be at the end."""
        tol = self.around.limits.tol
        if self._unpenalised():
            return tol * self._now.steepest
        return float(np.sqrt(2.0 * self.problem.l2 * tol * objective))

    def _unpenalised(self) -> bool:
        """Whether there is a bias outside of the penalty."""
        return bool(self.problem.bias.gain and not self.problem.bias.decay)

    def _left(self) -> int:
        return self.around.limits.passes - self.passes

    def _late(self) -> bool:
        """Whether only one reading, or no time, is left."""
        seconds = self.around.limits.seconds
        return self._left() <= 1 or (seconds is not None and time.perf_counter() - self._started >= seconds)


def inner(a: Float64s, b: Float64s) -> float:
    """The inner product, which as a @ b would depend on the number of threads."""
    return float(np.sum(a * b))


def length(a: Float64s) -> float:
    return float(np.sqrt(inner(a, a)))


def to_edge(s: Float64s, d: Float64s, m: Float64s, radius: float) -> float:
    """tau > 0 where s + tau d is at the edge of the trust region."""
    if radius == np.inf:
        return np.inf
    dd, sd, ss = inner(d * d, m), inner(s * d, m), inner(s * s, m)
    room = max(0.0, radius * radius - ss)
    root = float(np.sqrt(sd * sd + dd * room))
    return room / (sd + root) if sd > 0.0 else (root - sd) / dd
