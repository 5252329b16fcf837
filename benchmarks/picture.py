"""One picture of the results: six bar charts, streamsvm in colour, peers in grey, targets as dashed lines."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import Section

OURS, THEIRS, TARGET = "#1f77b4", "#b0b7bf", "#d62728"


def draw(sections: dict[str, Section], caption: str, path: Path) -> str | None:
    """Write the PNG; returns the reason when that is not possible."""
    try:
        import matplotlib
    except ImportError:
        return "matplotlib is not installed (extra: bench)"
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure, grid = plt.subplots(2, 3, figsize=(15, 8.4), layout=ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12))
    for axes, (key, panel) in zip(grid.flat, PANELS.items(), strict=True):
        section = sections.get(key)
        if section and section.rows:
            panel(axes, section)
        else:
            axes.set_axis_off()
            axes.text(0.5, 0.5, f"{key.replace('_', ' ')}: not measured", ha="center", color="#777777")
    figure.suptitle("streamsvm and its peers, measured side by side", fontsize=15, fontweight="bold")
    figure.supxlabel(caption, fontsize=9, color="#555555")
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return None


def _bars(axes: Any, names: list[str], values: list[float], title: str, unit: str) -> None:
    colors = [OURS if name.startswith("streamsvm") else THEIRS for name in names]
    bars = axes.barh(names, values, color=colors, height=0.62)
    axes.bar_label(bars, [f"{value:.0f}" for value in values], padding=4, fontsize=10)
    axes.set_ylim(max(len(names), 4) - 0.4, -0.6)  # a few bars stay as thick as many
    axes.set_xlim(0, max(values) * 1.18)
    _dress(axes, title)
    axes.set_xlabel(unit, fontsize=9)
    axes.tick_params(axis="y", length=0)


def _dress(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize=11.5, loc="left", fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)


def _target(axes: Any, at: float, label: str) -> None:
    axes.axvline(at, color=TARGET, linestyle="--", linewidth=1.2)
    axes.set_xlim(0, max(axes.get_xlim()[1], at * 1.15))
    axes.set_xlabel(f"{axes.get_xlabel()}   (dashed: {label})", fontsize=9)


def _rates(
    title: str, unit: str, column: str, target: tuple[str, float] | None = None
) -> Callable[[Any, Section], None]:
    """A chart of one column of rates, with the line that is `target[1]` times the rate of the peer `target[0]`."""

    def panel(axes: Any, section: Section) -> None:
        at = section.columns.index(column)
        cells = {str(row[0]): row[at] for row in section.rows}
        rates = {name: cell for name, cell in cells.items() if isinstance(cell, float) and not math.isnan(cell)}
        if not rates:  # noise, or failures, left no number
            axes.set_axis_off()
            return
        _bars(axes, list(rates), list(rates.values()), title, unit)
        base = next((rate for name, rate in rates.items() if target and name.split(",")[0] == target[0]), None)
        if target and base:
            _target(axes, base * target[1], f"target, {target[1]:g}x {target[0]}")

    return panel


def _memory(axes: Any, section: Section) -> None:
    rows = [row for row in section.rows if row[0] != "idle interpreter"]
    _bars(
        axes,
        [f"streamsvm\n{row[0]}" for row in rows],
        [float(row[2] or 0) for row in rows],
        "Memory of streamsvm",
        "MB above an idle interpreter",
    )
    budget = next((check.target for check in section.checks if check.unit == "MB"), None)
    if budget:
        _target(axes, budget, f"--memory {budget:g}MB")


def _errors(axes: Any, section: Section) -> None:
    """Groups of bars, one group per data set, one pass only."""
    rows = [row for row in section.rows if row[1] == 1]
    names = section.columns[2:-1]
    thick = 0.8 / len(names)
    greys = iter(["#8f979f", "#b0b7bf", "#d0d5da", "#e3e6e9"])
    blues = iter([OURS, "#7fb3dd"])
    for k, name in enumerate(names):
        color = next(blues if name.startswith("streamsvm") else greys)
        places = [g + (k - (len(names) - 1) / 2) * thick for g in range(len(rows))]
        heights = [float(row[2 + k] or 0) for row in rows]
        bars = axes.bar(
            places, heights, thick * 0.92, label="liblinear, converged" if name == "liblinear" else name, color=color
        )
        axes.bar_label(
            bars, [f"{height:.1f}" if height else "" for height in heights], fontsize=8, padding=2, rotation=90
        )
    axes.set_xticks(range(len(rows)), [str(row[0]) for row in rows])
    _dress(axes, "Test error, one pass, defaults")
    axes.set_ylabel("%", fontsize=9)
    axes.margins(y=0.5)
    axes.legend(fontsize=8, ncols=2, frameon=False, loc="upper right")


PANELS: dict[str, Callable[[Any, Section], None]] = {
    "end_to_end": _rates("Text to model, one pass, all counted", "MB/s", "MB/s", ("vw", 2.0)),
    "steady_state": _rates("Text to model, steady state", "MB/s", "MB/s", ("vw", 3.0)),
    "passes": _rates("Each further pass", "M features/s", "M features/s", ("svmsgd.c", 1.0)),
    "parsing": _rates("Text to arrays", "MB/s", "MB/s", ("sklearn", 20.0)),
    "memory": _memory,
    "accuracy": _errors,
}
