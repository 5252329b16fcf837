"""zhang: stochastic gradient descent with a constant step size, and the plain mean of all iterates.

    minimise   l2/2 ||w||^2 + mean of c_i loss(w.x_i + b, y_i)
    each row   t += c;  w *= max(0, 1 - c eta0 l2);  w -= c eta0 slope x
               mean = (1 - mu) mean + mu w,  with mu = c / t

    T. Zhang, "Solving large scale linear prediction problems using stochastic gradient descent algorithms", 2004.
    Cost per row: two walks over its features.

A schedule and an average on the kernel of asgd.py; eta0 is chosen by trial on the first rows. The mean starts with the
first row: the zeros before it have no part in it. A constant step never settles, so the mean keeps a small distance
from the optimum that more passes do not close, larger for larger eta0. Choose it to compare with the literature; `asgd`
gets closer.
"""

from streamsvm.schedules import Average, Constant, Schedule, Uniform
from streamsvm.solvers.asgd import Asgd
from streamsvm.solvers.base import STEP


class Zhang(Asgd):
    name = "zhang"
    exempt = dict.fromkeys(
        (
            "test_weights_mean_what_scikit_learn_means_by_sample_weight",
            "test_a_free_bias_approaches_scikit_learns_unpenalised_intercept",
            "test_repeating_a_row_and_doubling_its_weight_lead_to_the_same_place",
        ),
        "a constant step, chosen on few rows, keeps a distance from the optimum",
    )

    def terms(self) -> tuple[Schedule, Average]:
        return Constant(float(self.scalars[STEP])), Uniform()
