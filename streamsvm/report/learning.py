"""The chapters that tell how a run went: what was learned when, what is proven of it, and how fast that was."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from streamsvm.progress import Progress
from streamsvm.report.figures import Axis, Series, lines, palette
from streamsvm.report.recording import Point
from streamsvm.report.story import COUNT, PERCENT, Chapter, Story, chapter, figure, gallery, keys, paragraph
from streamsvm.report.tables import candidates, number, per_cent, small

FEWEST = 3  # points that make a curve
MOST_CURVE, MOST_WINDOWS = 160, 40
LEAST_TIME = 0.02  # seconds, for curves over time
LONG_ENOUGH = 0.5  # seconds, for speed to be told over time
MOST_MARKED = 12  # passes whose ends are marked
NAN = math.nan


def spaced(values: Sequence[float], most: int, *, log: bool) -> list[int]:
    """Places of at most so many of the values, which grow: about evenly spaced, the last among them."""
    if len(values) <= most:
        return list(range(len(values)))
    scale = np.log(np.maximum(values, 1e-9)) if log else np.asarray(values, np.float64)
    wanted = np.linspace(scale[0], scale[-1], most)
    return sorted({*np.searchsorted(scale, wanted).clip(max=len(values) - 1).tolist(), len(values) - 1})


# Learning from rows that come one after the other.


def learning(story: Story) -> Chapter | None:
    """Loss and error, over examples and over time."""
    points = [point.now for point in story.recording.points if point.now.loss is not None and point.now.examples]
    if any(now.objective is not None for now in points):
        return None
    if len(points) < FEWEST:
        return chapter("learning", "Learning", _short_run(points) if story.command == "train" else None)
    held = (story.result.get("holdout") or {}) if story.command == "train" else {}
    by_pass = held.get("by_pass", [])
    windows = any(now.weight for now in points)
    pictures = []
    timed = points[-1].seconds - points[0].seconds >= LEAST_TIME
    for along in ("examples", "seconds") if timed else ("examples",):
        for what in ("loss", "error"):
            pictures.append(_curve(story, points, along, what, by_pass if along == "examples" else []))
    whose = "the candidate that was ahead, " if story.command == "tune" else ""
    shown: list[tuple[Any, str, bool]] = [("mean of the pass so far", "c1", False)]
    shown += [("newest rows alone", "c2", False)] if windows else []
    shown += [("held-out rows after each pass (points)", "c3", False)] if by_pass else []
    told = paragraph(
        f"Loss and error of {whose}each row predicted before it was learned from: an honest estimate of how the model "
        "does on rows it has not seen, as long as every row comes once."
        if story.settings.solver.passes == 1
        else f"Loss and error of {whose}each row predicted before it was learned from. From the second pass on the "
        "model has seen the rows before; what it is worth then, only held-out or test rows can tell."
    )
    resumed = paragraph("The run went on from a checkpoint: curves show the part after it.")
    return chapter(
        "learning", "Learning", told, resumed if story.recording.resumed else None, keys(shown), gallery(*pictures)
    )


def _short_run(points: Sequence[Progress]) -> Any:
    if not points:
        return None
    last = points[-1]
    return paragraph(
        f"All {last.examples:,} examples came in {len(points)} batch{'es' if len(points) > 1 else ''}, too few for a "
        f"curve: loss {number(last.loss, 5)}, error {per_cent(last.error)} of rows predicted, then learned."
    )


def _curve(story: Story, points: Sequence[Progress], along: str, what: str, by_pass: Sequence[dict[str, Any]]) -> Any:
    examples = along == "examples"
    place: Callable[[Progress], float] = lambda now: float(getattr(now, along))  # noqa: E731
    xs = [place(now) for now in points]
    mean = [points[k] for k in spaced(xs, MOST_CURVE, log=examples)]
    windows = [points[k] for k in spaced(xs, min(MOST_WINDOWS, max(len(xs) // 3, 6)), log=examples)]
    drawn = []
    if any(now.weight for now in points):
        pairs = zip(windows, windows[1:], strict=False)
        new = [(place(now), now.pass_number, _new(before, now, what)) for before, now in pairs]
        drawn.append(Series(*_broken(new), "c2", width=1.2))
    drawn.append(Series(*_broken([(place(now), now.pass_number, getattr(now, what)) for now in mean])))
    ends = {now.pass_number: place(now) for now in story.recording.ends}
    if by_pass:
        held = [(ends[one["pass"]], one[what]) for one in by_pass if one["pass"] in ends]
        drawn.append(Series([x for x, _ in held], [y for _, y in held], "c3", width=0.0, points="full"))
    marked = list(ends.values())[:-1] if 1 < len(ends) <= MOST_MARKED else []
    x = Axis("examples", log=True, kind=COUNT) if examples else Axis("time in seconds")
    y = Axis("mean loss" if what == "loss" else "error", kind=PERCENT if what == "error" else "number")
    picture = lines(f"learning-{what}-{along}", drawn, x, y._replace(limits=_limits(drawn)), upright=marked)
    caption = f"{what.capitalize()} against {'examples, on a log scale' if examples else 'time'}; lower is better."
    caption += " Dotted lines end a pass." if marked else ""
    return figure(picture, f"{what.capitalize()} over {along if examples else 'time'}", caption)


def _broken(curve: Sequence[tuple[float, int, float]]) -> tuple[list[float], list[float]]:
    """The points of a curve, with a gap where another pass begins."""
    xs, ys = [], []
    for k, (x, pass_number, y) in enumerate(curve):
        if k and pass_number != curve[k - 1][1]:
            xs.append(x)
            ys.append(NAN)
        xs.append(x)
        ys.append(y)
    return xs, ys


def _new(before: Progress, now: Progress, what: str) -> float:
    """Loss or error of the rows between two points; of what was learned of the newer pass, if they are of two."""
    value, weight = getattr(now, what), now.weight
    if before.pass_number != now.pass_number:
        return float(value)
    fresh = weight - before.weight
    return float((value * weight - getattr(before, what) * before.weight) / fresh) if fresh > 0.0 else NAN


def _limits(drawn: Sequence[Series]) -> tuple[float | None, float | None]:
    """What the picture shows of y: all, but for a few first points that are far above the others."""
    values = np.concatenate([np.asarray(one.y, np.float64) for one in drawn])
    values = values[np.isfinite(values)]
    if len(values) < 10:
        return None, None
    low, high = float(values.min()), float(np.quantile(values, 0.97))
    room = 0.08 * (high - low) or 0.05 * abs(high) or 0.1
    return max(low - room, 0.0) if low >= 0.0 else low - room, min(high + 2.0 * room, float(values.max()) + room)


# Proofs.


def proof(story: Story) -> Chapter | None:
    """Objective, lower bound and gap, of solvers that prove how far the optimum is."""
    proofs = story.recording.proofs
    if not proofs:
        return None
    steps = step_ends(story, proofs)
    seconds = [now.seconds for now in proofs]
    line = partial(proof_line, seconds, steps)
    shown, drawn = [("objective", "c1", False)], [line([now.objective for now in proofs], "c1")]
    bounds = [now.dual if now.dual is not None and now.dual > 0.0 else NAN for now in proofs]
    if any(bound == bound for bound in bounds):
        shown.append(("lower bound: no weights do better", "c3", True))
        drawn.append(line(bounds, "c3", dashed=True))
    time = Axis("time in seconds")
    marks = " Dotted lines begin another penalty." if steps else ""
    pictures = [
        figure(
            lines("objective", drawn, time, Axis("objective", log=_wide(drawn)), upright=steps),
            "Objective and lower bound",
            "The least possible objective lies between the two lines." + marks,
            keys(shown),
        )
    ]
    gaps = [now.gap if now.gap is not None and now.gap > 0.0 else NAN for now in proofs]
    tol = story.result.get("tol")
    if any(gap == gap for gap in gaps):
        picture = lines("gap", [line(gaps, "c1")], time, Axis("relative gap", log=True), upright=steps, level=tol)
        caption = f"How far above the optimum the weights can be at most; the dashed line is the tolerance, {tol:g}."
        pictures.append(figure(picture, "Proven gap", caption + marks))
    errors = [now.error for now in proofs]
    picture = lines("fit-error", [line(errors, "c1")], time, Axis("error", kind=PERCENT), upright=steps)
    caption = "Share of the rows learned from that these weights get wrong; on other rows it is larger."
    pictures.append(figure(picture, "Error on the training rows", caption))
    return chapter("proof", "How close to the optimum", _proven(story), gallery(*pictures))


def proof_line(
    x: Sequence[float], steps: Sequence[float], y: Sequence[float | None], colour: str, *, dashed: bool = False
) -> Series:
    """A line over time, or another measure, with a gap where another penalty begins."""
    places, values = [], []
    for second, value in zip(x, y, strict=True):
        if second in steps:
            places.append(second)
            values.append(NAN)
        places.append(second)
        values.append(NAN if value is None else value)
    return Series(places, values, colour, dashed=dashed, points="full" if len(x) <= 2 else "")


def _proven(story: Story) -> Any:
    result = story.result
    if result["gap"] is None:
        return paragraph(f"Objective {small(result['objective'])}; no bound is known for this solver and loss.")
    gap = max(result["gap"], 0.0)
    told = f"The objective is {result['objective']:.6g}, and no weights have one below {result['dual']:.6g}: "
    reached = "within" if gap <= result["tol"] else "not yet within"
    return paragraph(told + f"a relative gap of {gap:.2g}, {reached} the tolerance of {result['tol']:g}.")


def step_ends(
    story: Story, proofs: Sequence[Progress], place: Callable[[Progress], float] = lambda now: now.seconds
) -> list[float]:
    """Where one penalty of a path was done and the next one began: when, or by another measure."""
    path = story.result.get("path") or []
    ends = np.cumsum([step["passes"] for step in path])[:-1].tolist()
    return [place(next((now for now in proofs if now.pass_number > end), proofs[-1])) for end in ends]


def _wide(drawn: Sequence[Series]) -> bool:
    """Whether values are so far apart that only a log scale shows them."""
    values = np.array([y for one in drawn for y in one.y if y == y])
    return bool(len(values) and values.min() > 0.0 and values.max() > 20.0 * values.min())


# What was tried.


def tried(story: Story) -> Chapter | None:
    """Held-out loss and error against the penalty."""
    rows = story.result.get("candidates") or [
        {**step, "best": step["l2"] == story.result["l2"]} for step in story.result.get("path") or []
    ]
    if not rows:
        return None
    pictures = [_against_penalty(rows, what) for what in ("held_out_loss", "held_out_error")]
    best = next(row for row in rows if row["best"])
    by = story.result.get("by", "loss")
    retired = len({row["passes"] for row in rows}) > 1 and "candidates" in story.result
    told = paragraph(
        f"Of {len(rows)} candidates the best has l2 = {best['l2']:.3g}"
        + (f", l1 = {best['l1']:.3g}" if best.get("l1") else "")
        + (f", solver {best['solver']}, loss {best['loss_kind']}" if "solver" in best else "")
        + f": the least {by} on rows that were held out. "
        + ("Hollow points retired before the last pass." if retired else "")
    )
    edge = _at_the_edge(rows, best)
    return chapter(
        "tried", "What was tried", told, paragraph(edge) if edge else None, gallery(*pictures), candidates(rows)
    )


def _at_the_edge(rows: Sequence[dict[str, Any]], best: dict[str, Any]) -> str:
    tried_l2 = sorted({row["l2"] for row in rows})
    if len(tried_l2) < 3 or best["l2"] not in (tried_l2[0], tried_l2[-1]):
        return ""
    side = "smallest" if best["l2"] == tried_l2[0] else "largest"
    return f"The best is at the edge: it has the {side} l2 that was tried. A wider range may have a better one."


def _against_penalty(rows: Sequence[dict[str, Any]], what: str) -> Any:
    last = max(row["passes"] for row in rows) if "eta0" in rows[0] else 0
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row[what] is not None and math.isfinite(row[what]) and row["l2"] > 0.0:
            parts = [str(row[key]) for key in ("solver", "loss_kind") if len({other.get(key) for other in rows}) > 1]
            parts += [f"l1 {row['l1']:.3g}"] if len({other.get("l1") for other in rows}) > 1 else []
            groups.setdefault(", ".join(parts) or "candidates", []).append(row)
    drawn, shown = [], []
    for place, (name, group) in enumerate(groups.items()):
        colour, dashed = palette(place)
        group.sort(key=lambda row: row["l2"])
        drawn.append(Series([row["l2"] for row in group], [row[what] for row in group], colour, dashed, 1.2))
        for points, chosen in (("full", True), ("hollow", False)):
            some = [row for row in group if (row["passes"] >= last) == chosen]
            if some:
                xs, ys = [row["l2"] for row in some], [row[what] for row in some]
                drawn.append(Series(xs, ys, colour, width=0.0, points=points))
        shown.append((name, colour, dashed))
    if not drawn:
        return None
    best = next(row for row in rows if row["best"])
    y = Axis("held-out error", kind=PERCENT) if what == "held_out_error" else Axis("held-out loss")
    picture = lines(
        what.replace("_", "-"), drawn, Axis("l2", log=True), y, upright=[best["l2"]] if best["l2"] > 0.0 else []
    )
    title = "Held-out error by penalty" if what == "held_out_error" else "Held-out loss by penalty"
    caption = "The dotted line marks the penalty that was chosen; left of the lowest point the model fits too closely."
    return figure(picture, title, caption, keys(shown) if len(shown) > 1 else None)


# Speed and memory.


def speed(story: Story) -> Chapter | None:
    """Rows and bytes a second, and memory, over time."""
    points, result = story.recording.points, story.result
    if "seconds" not in result:
        return None
    pictures = []
    if len(points) >= FEWEST and points[-1].now.seconds - points[0].now.seconds >= LONG_ENOUGH:
        pictures = [
            _rate(points, "examples", 1.0, "rows a second", "Rows a second"),
            _rate(points, "bytes", 1e6, "MB a second", "Megabytes a second"),
            _memory(points, "the driver's" if story.recording.crew is not None else "the process's"),
        ]
    each = result["examples"] / max(result["seconds"], 1e-9)
    told = f"{result['examples']:,} examples in {result['seconds']:.2f} s, {each:,.0f} a second over the whole run."
    exact = story.recording.proofs
    more = " Bytes are those of rows in the cache, 8 for each feature." if exact else " Bytes are those of the files."
    return chapter("speed", "Speed and memory", paragraph(told + more), gallery(*pictures))


def _rate(points: Sequence[Point], what: str, unit: float, label: str, title: str) -> Any:
    places = spaced([point.now.seconds for point in points], MOST_WINDOWS, log=False)
    some = [points[place].now for place in places]
    steps = [(a, b) for a, b in zip(some, some[1:], strict=False) if b.seconds > a.seconds]
    rates = [max(getattr(b, what) - getattr(a, what), 0) / unit / (b.seconds - a.seconds) for a, b in steps]
    if len(rates) < FEWEST - 1 or not any(rates):
        return None
    xs = [steps[0][0].seconds, *(b.seconds for _, b in steps)]
    series = Series(xs, [rates[0], *rates], stairs=False)
    y = Axis(label, kind=COUNT, limits=(0.0, 1.1 * max(rates)))
    picture = lines(f"rate-{what}", [series], Axis("time in seconds"), y)
    return figure(
        picture, title, "How fast data was read and learned; dips are checkpoints, compilation or slow sources."
    )


def _memory(points: Sequence[Point], whose: str) -> Any:
    known = [(point.now.seconds, point.memory / 1e6) for point in points if point.memory is not None]
    if len(known) < FEWEST:
        return None
    most = max(memory for _, memory in known)
    series = Series([x for x, _ in known], [y for _, y in known])
    picture = lines("memory", [series], Axis("time in seconds"), Axis("MB", limits=(0.0, 1.15 * most)))
    caption = f"Memory of {whose} own, without mapped files, interpreter and all; at most {most:,.0f} MB."
    return figure(picture, "Memory", caption)
