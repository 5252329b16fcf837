"""How metrics look: one line after training, and for `evaluate` that line and tables that fit on 100 columns."""

import textwrap
from typing import Any

WIDTH = 100
NAME = 18  # letters of a class before the confusion
MOST_CONFUSED, MOST_PAIRS, MOST_CLASSES, MOST_SLICES = 20, 10, 30, 20

Metrics = dict[str, Any]


def metrics_line(metrics: Metrics) -> str:
    """The figures that matter most."""
    return _line([*_decisions(metrics), *_chances(metrics)], metrics)


def _line(figures: list[str], metrics: Metrics) -> str:
    examples = f"on {metrics['examples']:,} examples"
    return f"{', '.join(figures)} {examples}" if figures else f"nothing is measured {examples}, whose weights are all 0"


def _decisions(metrics: Metrics) -> list[str]:
    if metrics["loss"] is None:
        return []
    parts = [f"loss {metrics['loss']:.5f}", f"error {100 * metrics['error']:.2f} %"]
    if "top_k" in metrics:
        parts.append(f"macro F1 {metrics['macro_f1']:.4f}")
    return parts + _bounded(metrics, "AUC", "auc")


def _chances(metrics: Metrics) -> list[str]:
    figures = (("log loss", "log_loss", 5), ("Brier", "brier", 4), ("calibration error", "ece", 4))
    return [f"{name} {metrics[key]:.{digits}f}" for name, key, digits in figures if metrics.get(key) is not None]


def _bounded(metrics: Metrics, name: str, key: str) -> list[str]:
    """A figure with what it can be off, if that can be seen."""
    if metrics.get(key) is None:
        return []
    doubt = metrics.get(f"{key}_error") or 0.0
    return [f"{name} {metrics[key]:.4f}" + (f" +- {doubt:.4f}" if doubt >= 0.00005 else "")]


def report(metrics: Metrics, names: list[str]) -> str:
    """All that `evaluate` prints; `names` are those of the classes."""
    names = [shown(name) for name in names]
    lines = [_line(_decisions(metrics), metrics), ", ".join(_chances(metrics)), ", ".join(_more(metrics))]
    lines.append(_left_out(metrics))
    blocks = ["\n".join(wrapped for line in lines for wrapped in textwrap.wrap(line, WIDTH))]
    if metrics["loss"] is not None:
        blocks += [_confusion(metrics["confusion"], names), _by_class(metrics["per_class"], names)]
        blocks += [_reliability(metrics["reliability"], "top_k" in metrics, names)]
    if "slices" in metrics:
        blocks.append(_slices(metrics["slices"], metrics["by"]))
    return "\n\n".join(block for block in blocks if block)


def shown(text: str, most: int = 32) -> str:
    """A text that keeps to its line and to its column."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return plain if len(plain) <= most else plain[: most - 3] + "..."


def _more(metrics: Metrics) -> list[str]:
    parts = _bounded(metrics, "average precision", "average_precision")
    if metrics["loss"] is None:
        return parts
    if "top_k" in metrics:
        return parts + [f"top {k} {100 * share:.2f} %" for k, share in metrics["top_k"].items()]
    figures = {"precision": "precision", "recall": "recall", "F1": "f1"}
    return parts + [f"{name} {metrics[key]:.4f}" for name, key in figures.items()]


def _left_out(metrics: Metrics) -> str:
    if not metrics.get("unknown_class_rows"):
        return ""
    classes = metrics["unknown_classes"]
    told = [f"{shown(name)} {rows:,}" for name, rows in list(classes.items())[:10]]
    more = ", ..." if len(classes) > len(told) else ""
    return f"left out {metrics['unknown_class_rows']:,} rows of unknown classes: {', '.join(told)}{more}"


def table(cells: list[list[str]]) -> str:
    """Lines of columns, the first aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for first, *others in cells:
        rest = [text.rjust(width) for text, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *rest]).rstrip())
    return "\n".join(lines)


def _count(weight: float) -> str:
    """A sum of weights: whole, unless that would hide it."""
    return f"{weight:,.0f}" if weight >= 100.0 or float(weight).is_integer() else f"{weight:.3g}"


# Confusion.


def _confusion(confusion: list[list[float]] | None, names: list[str]) -> str:
    if confusion is None:
        return ""
    if len(names) > MOST_CONFUSED:
        return _pairs(confusion, names)
    counts = [[_count(weight) for weight in row] for row in confusion]
    room = (WIDTH - NAME) // len(names) - 1
    width = max(min(12, room), *(len(text) for row in counts for text in row))
    if width <= room and (width >= 12 or max(map(len, names)) <= width):
        left, top = ([shown(name, most) for name in names] for most in (NAME, width))
        return _square("true / predicted", left, top, counts, width)
    return _shares(confusion, names)


def _shares(confusion: list[list[float]], names: list[str]) -> str:
    """Where counts are too long: per cent of the true class, and numbers for names that are too long as well."""
    counts = []
    for row in confusion:
        total = sum(row) or 1.0
        counts.append([_per_cent(100.0 * weight / total) for weight in row])
    if max(map(len, names)) <= 3:
        return _square("% of true", names, names, counts, 3)
    numbers = [str(place) for place in range(1, len(names) + 1)]
    left = [shown(f"{number} {name}", NAME) for number, name in zip(numbers, names, strict=True)]
    return _square("% of true", left, numbers, counts, 3)


def _per_cent(share: float) -> str:
    return "." if share == 0.0 else "<1" if share < 0.5 else f"{share:.0f}"


def _square(corner: str, left: list[str], top: list[str], counts: list[list[str]], width: int) -> str:
    rows = [(corner, top), *zip(left, counts, strict=True)]
    return "\n".join(f"{name:>{NAME}} " + " ".join(text.rjust(width) for text in row) for name, row in rows)


def _pairs(confusion: list[list[float]], names: list[str]) -> str:
    """The pairs of classes that are confused most."""
    wrong = [
        (weight, true, predicted)
        for true, row in enumerate(confusion)
        for predicted, weight in enumerate(row)
        if weight and true != predicted
    ]
    wrong.sort(key=lambda pair: -pair[0])
    lines = [f"  {names[true]} -> {names[predicted]}: {_count(weight)}" for weight, true, predicted in wrong]
    return "\n".join(["most frequent mistakes (true -> predicted):", *lines[:MOST_PAIRS]]) if lines else ""


# Other tables.


def _by_class(classes: list[Metrics], names: list[str]) -> str:
    order = list(range(len(names)))
    if len(names) > MOST_CLASSES:
        order = sorted(order, key=lambda code: -classes[code]["support"])[:MOST_CLASSES]
    ranked = any(one.get("auc") is not None for one in classes)
    figures = ["precision", "recall", "f1", *(["auc", "average_precision"] if ranked else [])]
    titles = {"f1": "F1", "auc": "AUC", "average_precision": "avg. precision"}
    cells = [["class", *(titles.get(key, key) for key in figures), "support"]]
    for code in order:
        one = classes[code]
        cells.append([names[code], *(_figure(one[key]) for key in figures), _count(one["support"])])
    more = f"\n({len(order)} of {len(names)} classes, those with most support)" if len(order) < len(names) else ""
    return table(cells) + more


def _figure(number: float | None) -> str:
    return "-" if number is None else f"{number:.4f}"


def _reliability(bins: list[Metrics] | None, many: bool, names: list[str]) -> str:
    if bins is None:
        return ""
    title = "of the most probable class" if many else f"of class {names[1]}"
    cells = [["probability", "mean", "observed", "weight"]]
    for one in bins:
        if one["weight"]:
            span = f"{one['from']:.1f} to {one['to']:.1f}"
            cells.append([span, _figure(one["probability"]), _figure(one["observed"]), _count(one["weight"])])
    return f"reliability, {title}\n{table(cells)}"


def _slices(slices: dict[str, Metrics], by: str) -> str:
    titles = {"examples": "examples", "weight": "weight", "error": "error", "loss": "loss", "auc": "AUC", "f1": "F1"}
    titles |= {"macro_f1": "macro F1", "brier": "Brier", "ece": "calib. error"}
    figures = [key for key in titles if key in next(iter(slices.values()), {})]
    if all(one["weight"] == one["examples"] for one in slices.values()):
        figures.remove("weight")
    cells = [[shown(by, 30), *(titles[key] for key in figures)]]
    for value, one in list(slices.items())[:MOST_SLICES]:
        cells.append([shown(value, 30), *(_slice_figure(key, one[key]) for key in figures)])
    more = f"\n({MOST_SLICES} of {len(slices)} values, the heaviest)" if len(slices) > MOST_SLICES else ""
    return table(cells) + more


def _slice_figure(key: str, number: float | None) -> str:
    if number is None:
        return "-"
    if key in ("examples", "weight"):
        return _count(number)
    return f"{100 * number:.2f} %" if key == "error" else f"{number:.5f}" if key == "loss" else f"{number:.4f}"
