"""The gap of every solver against time, a panel for each loss, as papers of this field print it: `gap.png`."""

from pathlib import Path
from typing import Any, NamedTuple

from bench import Section

TITLES = {"hinge": "Hinge loss", "squared_hinge": "Squared hinge loss"}
COLORS = {
    "dcd": "#1f77b4",
    "newton": "#d1495b",
    "bmrm": "#e08e2b",
    "ocas": "#2a9d6f",
    "sgd": "#8a6fb0",
    "pegasos": "#b5739d",
    "asgd": "#7d8790",
    "liblinear": "#222222",
}
LABEL = 9.5  # points
FLOOR = 1e-7  # smaller gaps are drawn here


class Style(NamedTuple):
    color: str
    line: str
    width: float
    marker: str
    alpha: float


def draw_gaps(section: Section, machine: str, path: Path) -> str | None:
    """Write the PNG; returns the reason when that is not possible."""
    try:
        import matplotlib
    except ImportError:
        return "matplotlib is not installed (extra: bench)"
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    losses = [loss for loss in TITLES if section.raw.get(loss, {}).get("curves")]
    if not losses:
        return "nothing was measured"
    figure, grid = plt.subplots(
        1, len(losses), figsize=(7.2 * len(losses), 5.9), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, loss in zip(grid[0], losses, strict=True):
        _panel(axes, TITLES[loss], section.raw[loss]["curves"])
    grid[0][0].set_ylabel("relative gap to the optimum, (P \N{MINUS SIGN} D) / P", fontsize=11)
    figure.suptitle("How far from the optimum, after how long", fontsize=15, fontweight="bold")
    size = f"{section.raw['megabytes']:.0f} MB of text, C = 1, whole process"
    bounds = "filled: gap proven by the solver itself; hollow: gap from the best bound that any solver proved"
    figure.supxlabel(f"{size}; {machine}\n{bounds}", fontsize=9, color="#555555")
    figure.draw_without_rendering()  # labels are placed by what the axes have become
    for axes, loss in zip(grid[0], losses, strict=True):
        _labels(axes, section.raw[loss]["curves"])
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return None


def _panel(axes: Any, title: str, curves: dict[str, dict[str, Any]]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for name, curve in curves.items():
        style = _style(name, curve["kind"])
        seconds, gaps = zip(*_drawn(curve), strict=True)
        axes.plot(
            seconds,
            gaps,
            style.line,
            color=style.color,
            linewidth=style.width,
            alpha=style.alpha,
            marker=style.marker,
            markersize=6 if curve["kind"] == "peer" else 4,
            markerfacecolor=style.color if curve["kind"] == "proven" else "white",
            markeredgecolor=style.color,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    latest = max(seconds for curve in curves.values() for seconds, _ in curve["points"])
    soonest = min(seconds for curve in curves.values() for seconds, _ in curve["points"])
    axes.set_xlim(soonest / 1.15, latest * (latest / soonest) ** 0.36)  # room for labels
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_title(title, fontsize=12.5, loc="left", fontweight="bold")
    axes.set_xlabel("seconds, from text", fontsize=11)
    axes.grid(which="major", color="#e6e8ea", linewidth=0.8)
    axes.tick_params(which="both", length=0, labelsize=10)
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
    axes.set_axisbelow(True)


def _drawn(curve: dict[str, Any]) -> list[tuple[float, float]]:
    return [(seconds, max(gap, FLOOR)) for seconds, gap in curve["points"]]


def _style(name: str, kind: str) -> Style:
    color = COLORS[name.split(",")[0].split(" ")[0]]
    if kind == "peer":
        return Style(color, ":", 1.0, "D", 0.9)
    if kind == "measured":
        return Style(color, "-", 1.0, "o", 0.6)
    return Style(color, "--" if "budget" in name else "-", 2.0, "o", 1.0)


def _labels(axes: Any, curves: dict[str, dict[str, Any]]) -> None:
    """Each name right of the end of its line; names that would cover one another are moved apart."""
    ends = {name: axes.transData.transform(_drawn(curve)[-1]) for name, curve in curves.items()}
    heights = _apart(
        {name: float(end[1]) for name, end in ends.items()}, {name: float(end[0]) for name, end in ends.items()}
    )
    for name, end in ends.items():
        style = _style(name, curves[name]["kind"])
        points = 72.0 / axes.figure.dpi
        axes.annotate(
            name.replace(", ", ",\n"),
            _drawn(curves[name])[-1],
            (8, (heights[name] - float(end[1])) * points),
            textcoords="offset points",
            va="center",
            fontsize=LABEL,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8},
            color=style.color,
            fontweight="bold" if curves[name]["kind"] == "proven" else "normal",
        )


def _apart(
    heights: dict[str, float], places: dict[str, float], least: float = 15.0, width: float = 150.0
) -> dict[str, float]:
    """The same heights, in pixels, changed as little as needed for labels that begin near each other."""
    moved = dict(heights)
    for _ in range(60):
        order = sorted(moved, key=moved.__getitem__)
        still = True
        for i, low in enumerate(order):
            for high in order[i + 1 :]:
                near = abs(places[low] - places[high]) < width
                overlap = least - (moved[high] - moved[low])
                if near and overlap > 0.01:
                    moved[low] -= overlap / 2
                    moved[high] += overlap / 2
                    still = False
        if still:
            break
    return moved
