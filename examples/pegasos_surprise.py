"""More training data, less training: the surprise of Pegasos.

    python examples/pegasos_surprise.py

How many steps does Pegasos need for a given test error? The more rows there are to draw from, the fewer:

    excess error = what a large l2 costs + what m rows cannot tell + what T steps leave undone

Where m rows are just enough, nearly nothing is left for the third term: that takes a small l2, and many steps. With
more rows the second term shrinks; then a larger l2 and a rough answer are good enough (Shalev-Shwartz, Srebro 2008,
"SVM optimization: inverse dependence on training set size").

What is varied: m rows of 50 normal features, labelled by a fixed direction, one label in ten wrong; other rows for each
seed. A step takes one of the m rows at random (hinge loss, last iterate). The error on unseen rows is exact, from the
angle between the weights and that direction. A target is reached when the median error of the seeds is at or below it;
for each m the l2 that needs the fewest steps counts. So the answer is looked at, as in the paper: this is the work that
is enough, not a way to know when to stop. Work is counted in examples, the same on every machine; the seconds are
those of learning alone. Once the steps are far fewer than the rows, still more rows change nothing.
"""

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Batch
from streamsvm.losses import Hinge
from streamsvm.penalties import L2
from streamsvm.solvers import Pegasos
from streamsvm.solvers.base import Problem, make_bias

SIZES = (700, 1000, 1400, 2000, 4000, 8000, 16000, 32000)
TARGETS = (0.16, 0.18)
PENALTIES = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4)
SEEDS = range(7)
STEPS = (2 ** np.arange(9, 16.1, 0.25)).astype(int)  # after which the error is looked at
FEATURES, WRONG = 50, 0.1
TICKS = (1000, 2000, 5000, 10_000, 20_000)  # of the figure
TRUTH = np.full(FEATURES, FEATURES**-0.5)


class Work(NamedTuple):
    """What it took to reach a target; without an end where it was not reached."""

    examples: float = np.inf
    l2: float = 0.0
    seconds: float = 0.0


class Sample(NamedTuple):
    """The rows that there are to learn from."""

    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.bool_]

    def batch(self, chosen: npt.NDArray[np.int64]) -> Batch:
        count = len(chosen)
        return Batch(
            indptr=np.arange(count + 1) * FEATURES,
            indices=np.tile(np.arange(FEATURES, dtype=np.uint32), count),
            values=self.features[chosen].ravel(),
            labels=self.labels[chosen].astype(np.float32),
            weights=np.ones(count, np.float32),
        )


def draw_sample(size: int, seed: int) -> Sample:
    draw = np.random.default_rng(seed)
    features = draw.standard_normal((size, FEATURES), np.float32) / np.float32(FEATURES**0.5)
    return Sample(features, (features @ TRUTH > 0) != (draw.random(size) < WRONG))


def error_of(solver: Pegasos) -> float:
    """On unseen rows: those between the two planes are given the wrong class, and then the noise."""
    weights = solver.weights()[0]
    cosine = weights @ TRUTH / max(float(np.linalg.norm(weights)), 1e-30)
    return float(WRONG + (1 - 2 * WRONG) * np.arccos(np.clip(cosine, -1, 1)) / np.pi)


def work_needed(samples: list[Sample], l2: float, target: float, below: float) -> Work:
    """The fewest examples after which the median error reaches the target, if that takes fewer than `below`."""
    solvers = [Pegasos(Problem(Hinge(), L2(l2), make_bias("none", 1.0)), dim=FEATURES) for _ in samples]
    draws = [np.random.default_rng(1000 + seed) for seed in SEEDS]
    done, seconds = 0, 0.0
    for steps in STEPS[below > STEPS]:
        for solver, sample, draw in zip(solvers, samples, draws, strict=True):
            batch = sample.batch(draw.integers(len(sample.labels), size=steps - done))
            began = time.perf_counter()
            solver.learn(batch)
            seconds += time.perf_counter() - began
        done = steps
        if np.median([error_of(solver) for solver in solvers]) <= target:
            return Work(float(steps), l2, seconds / len(solvers))
    return Work()


def least_work(samples: list[Sample], target: float) -> Work:
    """With the best of the penalties; one that takes as long as the best so far is given up."""
    best = Work()
    for l2 in PENALTIES:
        best = min(best, work_needed(samples, l2, target, below=best.examples))
    return best


def draw_figure(found: dict[float, list[Work]], path: Path) -> str:
    """Work against the number of rows, a line for each target; says what became of it."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "no figure: pip install matplotlib"
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    for target, works in found.items():
        reached = [(size, work.examples) for size, work in zip(SIZES, works, strict=True) if work.l2]
        axes.loglog(*zip(*reached, strict=True), marker="o", label=f"to {100 * target:.0f} % test error")
    axes.set_xticks(SIZES, [f"{size:,}" for size in SIZES], rotation=30)
    axes.set_yticks(TICKS, [f"{count:,}" for count in TICKS])
    axes.minorticks_off()
    axes.set_xlabel("training rows to draw from")
    axes.set_ylabel("examples processed")
    axes.set_title("Pegasos: more data, less work", loc="left", fontweight="bold")
    axes.grid(color="#e6e8ea")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)
    return f"figure {path}"


if __name__ == "__main__":
    found: dict[float, list[Work]] = {target: [] for target in TARGETS}
    for size in SIZES:
        samples = [draw_sample(size, seed) for seed in SEEDS]
        for target in TARGETS:
            found[target].append(least_work(samples, target))
    for target, works in found.items():
        print(f"until the test error is {100 * target:.0f} % (the best possible: {100 * WRONG:.0f} %)")
        print("      rows   examples processed       l2   seconds")
        for size, (examples, l2, seconds) in zip(SIZES, works, strict=True):
            print(f"{size:10,}" + (f"{examples:21,.0f}{l2:9g}{seconds:10.4f}" if l2 else f"{'not reached':>21}"))
        few, many = next(work for work in works if work.l2), works[-1]
        print(f"with {SIZES[-1]:,} rows: {few.examples / many.examples:.1f} times less work\n")
    print(draw_figure(found, Path("out/pegasos_surprise.svg")))
