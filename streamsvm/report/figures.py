"""Pictures as SVG that belongs to its page: letters are the page's, colours are variables of its style, ids are unique.

matplotlib draws them through its object-oriented interface; nothing global but its settings is touched, and these are
given back. Colours are drawn in numbers that stand for names (`COLOURS`), which become `var(--name)` afterwards. So one
picture is right on a light screen, on a dark one and on paper. The same numbers give the same picture, byte for byte.
"""

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from streamsvm.report.markup import Html, joined, short

WIDTH, HEIGHT, LETTERS = 400, 250, 12  # in pixels of a page as wide as the picture
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 28, 42
SERIES = 5  # colours that those who see few can tell apart; dashes tell as many more
COLOURS = {f"c{k}": f"#0000{k:02x}" for k in range(1, SERIES + 1)}
COLOURS |= {"ink": "#000011", "muted": "#000012", "grid": "#000013", "paper": "#000014"}
MOST_DRAWN = 240  # points of a line

STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],  # comes with matplotlib; the page has its own
    "font.size": LETTERS,
    "axes.labelsize": LETTERS,
    "xtick.labelsize": LETTERS - 1,
    "ytick.labelsize": LETTERS - 1,
    "path.simplify": True,
    "lines.solid_capstyle": "round",
    "axes.unicode_minus": True,
}


class Series(NamedTuple):
    """A line, or points."""

    x: Sequence[float]
    y: Sequence[float]
    colour: str = "c1"
    dashed: bool = False
    width: float = 2.0  # 0: no line
    points: str = ""  # full, hollow or none
    stairs: bool = False


class Axis(NamedTuple):
    """What is measured along an edge of the picture."""

    label: str
    log: bool = False
    kind: str = "number"  # or percent, count
    limits: tuple[float | None, float | None] = (None, None)


class Band(NamedTuple):
    """What is between two lines."""

    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def palette(place: int) -> tuple[str, bool]:
    """The colour of one of several series, and whether it is dashed."""
    return f"c{place % SERIES + 1}", place // SERIES % 2 == 1


def lines(
    name: str,
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    *,
    upright: Sequence[float] = (),
    level: float | None = None,
    diagonal: bool = False,
    band: Band | None = None,
    height: int = HEIGHT,
) -> Html:
    """Lines; `upright` are places that are marked along x, `level` is one along y."""
    with _canvas(name, height) as canvas:
        axes = _axes(canvas.figure, height)
        for place in upright:
            axes.axvline(place, color=COLOURS["muted"], linewidth=0.8, linestyle=(0, (2, 3)), zorder=1)
        if level is not None:
            axes.axhline(level, color=COLOURS["muted"], linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
        if diagonal:
            axes.plot([0, 1], [0, 1], color=COLOURS["muted"], linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
        if band is not None:
            axes.fill_between(band.x, band.low, band.high, color=COLOURS["c1"], alpha=0.18, linewidth=0)
        for one in series:
            _draw(axes, one)
        _measure(axes, x, y)
        return canvas.svg()


def histogram(name: str, edges: Any, sides: Sequence[tuple[Any, str]], x: Axis, y: Axis) -> Html:
    """Heights between edges, of one kind of things or of several; with the colour of each."""
    with _canvas(name, HEIGHT) as canvas:
        axes = _axes(canvas.figure, HEIGHT)
        least = min((float(h) for heights, _ in sides for h in heights if h > 0), default=1.0)
        floor = 0.7 * least if y.log else 0.0
        for heights, colour in sides:
            heights = np.maximum(np.asarray(heights, float), floor)
            axes.stairs(heights, edges, baseline=floor, fill=True, color=COLOURS[colour], alpha=0.25, linewidth=0)
            axes.stairs(heights, edges, baseline=floor, color=COLOURS[colour], linewidth=1.5)
        _measure(axes, x, y._replace(limits=(floor, y.limits[1])))
        return canvas.svg()


def reliability(name: str, bins: Sequence[dict[str, Any]], x: Axis, y: Axis) -> Html:
    """What was observed where a probability was given, and below it how often that was."""
    height = 328
    with _canvas(name, height) as canvas:
        upper = _axes(canvas.figure, height, bottom=BOTTOM + 88)
        there = [one for one in bins if one["weight"]]
        upper.plot([0, 1], [0, 1], color=COLOURS["muted"], linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
        chances, observed = [one["probability"] for one in there], [one["observed"] for one in there]
        _draw(upper, Series(chances, observed, points="full"))
        _measure(upper, x._replace(label="", limits=(0.0, 1.0)), y._replace(limits=(0.0, 1.02)))
        upper.tick_params(labelbottom=False)
        lower = _axes(canvas.figure, height, top=height - BOTTOM - 50)
        total = sum(one["weight"] for one in there)
        edges = [*(one["from"] for one in bins), bins[-1]["to"]]
        lower.stairs([one["weight"] / total for one in bins], edges, fill=True, color=COLOURS["c1"], alpha=0.45)
        _measure(lower, x._replace(limits=(0.0, 1.0)), Axis("share of rows", kind="percent", limits=(0.0, None)), few=2)
        return canvas.svg()


def ranges(name: str, rows: Sequence[tuple[str, Any, Any]], x: Axis) -> Html:
    """For each name five numbers of two kinds, as a thin and a thick bar and a point in the middle."""
    height = BOTTOM + TOP + 26 * len(rows)
    with _canvas(name, height) as canvas:
        axes = _axes(canvas.figure, height, left=92)
        for place, (_, own, others) in enumerate(rows):
            for five, colour, at in ((own, "c1", place - 0.17), (others, "c2", place + 0.17)):
                axes.plot([five[0], five[4]], [at, at], color=COLOURS[colour], linewidth=1.2)
                axes.plot([five[1], five[3]], [at, at], color=COLOURS[colour], linewidth=5, alpha=0.55)
                axes.plot([five[2]], [at], color=COLOURS[colour], marker="o", markersize=4.5, linestyle="none")
        _measure(axes, x, Axis(""))
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_yticks(range(len(rows)), [short(text, 13) for text, *_ in rows])
        axes.yaxis.grid(False)
        axes.xaxis.grid(True, color=COLOURS["grid"], linewidth=0.8)
        axes.axvline(0.0, color=COLOURS["muted"], linewidth=0.8, zorder=1)
        return canvas.svg()


# How all of them look.


class _Canvas:
    def __init__(self, name: str, height: int) -> None:
        self.name = name
        self.height = height
        self.figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72)
        self.figure.patch.set_visible(False)

    def svg(self) -> Html:
        out = io.StringIO()
        canvas: Any = FigureCanvasSVG(self.figure)
        canvas.print_svg(out, metadata={"Date": None})
        return _belonging(out.getvalue(), self.name, self.height)


@contextmanager
def _canvas(name: str, height: int) -> Iterator[_Canvas]:
    style: Any = {**STYLE, "svg.hashsalt": name}
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of glyphs, which the page draws, and of limits that are equal
        yield _Canvas(name, height)


def _axes(
    figure: Figure, height: int, *, left: int = LEFT, top: int = TOP, bottom: int = BOTTOM, right: int = RIGHT
) -> Any:
    box = (left / WIDTH, bottom / height, (WIDTH - left - right) / WIDTH, (height - top - bottom) / height)
    axes = figure.add_axes(box)
    axes.patch.set_visible(False)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(COLOURS["muted"])
    axes.yaxis.grid(True, color=COLOURS["grid"], linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=0, pad=5, labelcolor=COLOURS["muted"])
    return axes


def _draw(axes: Any, series: Series) -> None:
    colour = COLOURS[series.colour]
    x, y = thinned(series.x, series.y) if not series.points else (series.x, series.y)
    style: dict[str, Any] = {"color": colour, "linewidth": series.width}
    style["linestyle"] = "none" if not series.width else (0, (4, 2.5)) if series.dashed else "solid"
    if series.points:
        filled = colour if series.points == "full" else COLOURS["paper"]
        style |= {"marker": "o", "markersize": 5.5, "markerfacecolor": filled, "markeredgewidth": 1.5}
    axes.plot(x, y, drawstyle="steps-post" if series.stairs else "default", clip_on=not series.points, **style)


def thinned(x: Sequence[float], y: Sequence[float], most: int = MOST_DRAWN) -> tuple[Any, Any]:
    """Some of the points of a line, its ends among them."""
    if len(x) <= most:
        return x, y
    places = np.unique(np.linspace(0, len(x) - 1, most).round().astype(np.int64))
    return np.asarray(x)[places], np.asarray(y)[places]


def _measure(axes: Any, x: Axis, y: Axis, few: int = 5) -> None:
    """Scales, limits, labels and ticks."""
    for what, axis, ticks in ((x, axes.xaxis, 5), (y, axes.yaxis, few)):
        along = "x" if axis is axes.xaxis else "y"
        if what.log:
            getattr(axes, f"set_{along}scale")("log")
        low, high = what.limits
        getattr(axes, f"set_{along}lim")(low, high)
        low, high = getattr(axes, f"get_{along}lim")()
        if what.log:
            close = high / low < 50.0
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if close else (1.0,), numticks=6 if close else 7))
        else:
            axis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _, kind=what.kind: tick(value, kind)))
    axes.xaxis.set_label_text(x.label, color=COLOURS["ink"])
    _head(axes, y.label)


def _head(axes: Any, label: str) -> None:
    """What is measured upwards stands above the axis, where letters need not be turned, and numbers have room."""
    box, height = axes.get_position(), axes.figure.get_figheight() * 72
    axes.figure.text(0.0, box.y1 + 9.0 / height, label, color=COLOURS["ink"], fontsize=LETTERS, va="bottom")


def tick(value: float, kind: str = "number") -> str:
    """What stands at a tick.

    >>> tick(0.25, "percent"), tick(2500000.0, "count"), tick(1e-7), tick(-0.5), tick(40.0)
    ('25 %', '2.5M', '1e-7', '\\u22120.5', '40')
    """
    if not math.isfinite(value):
        return ""
    if kind == "percent":
        text = f"{100 * value:.4g} %"
    elif kind == "count" and abs(value) >= 1e3:
        size, letter = next(
            (size, letter) for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if abs(value) >= size
        )
        text = f"{value / size:.4g}{letter}"
    elif value and not 1e-3 <= abs(value) < 1e6:
        text = re.sub(r"e([+-]?)0*(\d)", lambda found: f"e{found[1].strip('+')}{found[2]}", f"{value:.3e}")
        text = re.sub(r"\.?0+e", "e", text)
    else:
        text = f"{value:.4g}"
    return "\u2212" + text[1:] if text.startswith("-") else text


# What becomes of matplotlib's SVG.

_NAMES = {number: name for name, number in COLOURS.items()}
_NUMBERS = re.compile(r'(?<= )(?:d|x|y|x1|x2|y1|y2|transform|points|width|height)="[^"]*"')


def _belonging(svg: str, name: str, height: int) -> Html:
    """The picture as a part of a page: without what only a file needs."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', body))
    parts = re.split(r"(<[^>]*>)", body)
    parts[1::2] = [_tag(tag, name, used) for tag in parts[1::2]]
    inner = re.sub(r"<g></g>|<g/>|<defs></defs>", "", "".join(part if part.strip() else "" for part in parts))
    inner = inner[inner.index(">") + 1 :]
    return Html(f'<svg viewBox="0 0 {WIDTH} {height}" xmlns="http://www.w3.org/2000/svg" @LABEL@>{inner}')


def _tag(tag: str, name: str, used: set[str]) -> str:
    def own(found: re.Match[str]) -> str:
        return f' id="{name}-{found[1]}"' if found[1] in used else ""

    tag = re.sub(r' id="([^"]*)"', own, tag)
    tag = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", tag).replace("xlink:href", "href")
    tag = re.sub(
        r"#0000[0-9a-f]{2}", lambda found: f"var(--{_NAMES[found[0]]})" if found[0] in _NAMES else found[0], tag
    )
    tag = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", tag)
    tag = re.sub(r"font-family: [^;\"]*;? ?", "", tag)
    return _NUMBERS.sub(lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found[0]), " ".join(tag.split()))


def labelled(picture: Html, label: str) -> Html:
    """The picture, with what it is called for those who cannot see it."""
    return Html(picture.replace("@LABEL@", f'role="img" aria-label="{joined(label)}"', 1))
