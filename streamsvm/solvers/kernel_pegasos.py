"""kernel_pegasos: the steps of Pegasos with kernels, on a budget of supports.

    minimise   l2/2 ||f||^2 + mean of c_i loss(f(x_i) + b, y_i)
    each row   t += c;  eta = 1 / (l2 t);  f *= 1 - c eta l2 = 1 - c / t;  f -= c eta slope k(x, .)
               then, with `average`, mean = (1 - mu) mean + mu f,  with mu = 4 / (t + 3) for a row of weight 1

    Shalev-Shwartz, Singer, Srebro, Cotter, "Pegasos", 2011, section 4; with a budget Wang, Crammer, Vucetic 2012.
    Cost per row: that of comparing it with all supports, up to `budget` of them, and once more where it becomes one.

Another schedule on the kernel of norma.py. There is no step size to choose: with hinge, f after t rows is 1 / (l2 t)
times the sum of y k(x, .) over rows that were within the margin when they came. Over few rows and many passes it comes
to the solution of the support vector machine with C = 1 / (l2 N). In a first pass over rows fewer than 1 / l2 a single
row moves its own score by more than the margin, as in a perceptron. Choose it where l2 is known; else `norma`.
"""

from streamsvm.schedules import InverseTime, Schedule
from streamsvm.solvers.norma import Norma


class KernelPegasos(Norma):
    name = "kernel_pegasos"
    has_step_size = False

    def schedule(self) -> Schedule:
        return InverseTime(self.problem.l2, 0.0)

    def turn_back(self, before: float, after: float) -> None:
        """Coefficients fade by 1 - c / t, and the clock stands."""
