"""All solvers on the same problem: how close to the optimum, after how long.

    python examples/compare_solvers.py

The problem is that of LIBLINEAR with squared hinge and C = 1, on a9a. The optimum is known because newton proves it: no
weights have an objective below its bound. Online solvers learn row by row and know nothing of the optimum, so each is
run with 1, 4 and 16 passes and its objective is measured afterwards, off the clock. Exact solvers tell theirs as they
go. The clock runs from opening the compressed text to the last row learned; each solver has been run once before, so
that its kernels are loaded. (pegasos fares badly here: its steps 1 / (l2 t) are huge at first where l2 is as small as
this, 3e-5. Give it l2 of 1e-3, or more passes.)
"""

from pathlib import Path
from typing import Any

from streamsvm import load_settings, train
from streamsvm.progress import Progress, Silent

ONLINE = ("asgd", "sgd", "pegasos", "sgdqn", "zhang", "folos", "adagrad", "ftrl")
EXACT = ("dcd", "newton", "ocas", "bmrm")
PASSES = (1, 4, 16)
Curve = list[tuple[float, float]]  # of seconds and objectives


class Watch(Silent):
    """Notes each objective that a solver tells, and when."""

    def __init__(self) -> None:
        self.curve: Curve = []

    def progress(self, now: Progress) -> None:
        if now.objective is not None:
            self.curve.append((now.seconds, now.objective))


def run(solver: str, watch: Silent = Silent(), **more: Any) -> dict[str, Any]:
    settings = {
        "data.train": "examples/data/a9a.train.svm.gz",
        "data.rows": 32561,
        "penalty.C": 1.0,
        "solver.name": solver,
        "calibration": "none",
        "output.model": None,
    }
    return train(load_settings(overrides={**settings, **more}), watch).result


def online_curve(solver: str) -> Curve:
    """A run for each number of passes."""
    run(solver, **{"solver.passes": 2, "run.objective": True})
    results = [run(solver, **{"solver.passes": passes, "run.objective": True}) for passes in PASSES]
    return [(result["seconds"], result["objective"]) for result in results]


def exact_curve(solver: str) -> Curve:
    """One run, until the gap is proven to be below a millionth, or for a second."""
    run(solver, **{"solver.tol": 0.1})
    watch = Watch()
    run(solver, watch, **{"solver.tol": 1e-6, "solver.time": "1s"})
    return watch.curve


def time_to(gap: float, curve: Curve, optimum: float) -> str:
    reached = [seconds for seconds, objective in curve if objective <= optimum * (1 + gap)]
    return f"{reached[0]:8.2f}" if reached else f"{'-':>8}"


def draw_figure(curves: dict[str, Curve], optimum: float, path: Path) -> str:
    """The gap against time, both on log scales; says what became of it."""
    try:
        from matplotlib import colormaps
        from matplotlib.figure import Figure
    except ImportError:
        return "no figure: pip install matplotlib"
    figure = Figure(figsize=(8.2, 5.0), layout="constrained")
    axes = figure.subplots()
    axes.set_prop_cycle(color=colormaps["Paired"].colors)
    for name, curve in curves.items():
        seconds = [seconds for seconds, _ in curve]
        gaps = [max(objective / optimum - 1, 1e-7) for _, objective in curve]
        axes.loglog(seconds, gaps, "-o" if name in EXACT else ":.", linewidth=2 if name in EXACT else 1.2, label=name)
    axes.set_xlabel("seconds, from compressed text")
    axes.set_ylabel("objective above the optimum, relative")
    axes.set_title("Solvers on a9a, squared hinge, C = 1", loc="left", fontweight="bold")
    axes.grid(color="#e6e8ea")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)
    return f"figure {path}"


if __name__ == "__main__":
    best = run("newton", **{"solver.tol": 1e-8})
    optimum = best["objective"]
    print(f"the least objective is {optimum:.7f}: newton proves that none is lower by more than {best['gap']:.0e}\n")
    print("           first look           last look            seconds to a gap of")
    print("solver    seconds      gap    seconds      gap       10 %     1 %   0.1 %")
    curves = {name: online_curve(name) for name in ONLINE} | {name: exact_curve(name) for name in EXACT}
    for name, curve in curves.items():
        looks = [f"{seconds:8.2f}{objective / optimum - 1:10.1e}" for seconds, objective in (curve[0], curve[-1])]
        times = [time_to(gap, curve, optimum) for gap in (1e-1, 1e-2, 1e-3)]
        print(f"{name:9}" + "   ".join(looks) + "   " + "".join(times))
    print("\n" + draw_figure(curves, optimum, Path("out/compare_solvers.svg")))
