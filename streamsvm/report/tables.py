"""Figures as tables: they scroll inside their own box where a screen is narrow, and never grow without bounds."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamsvm.batch import Float64s
from streamsvm.report.markup import Content, Html, element, joined, name_of
from streamsvm.report.weights import Feature

MOST_CONFUSED = 20  # classes of which all pairs are shown
MOST_PAIRS, MOST_CLASSES, MOST_SLICES, MOST_CANDIDATES = 20, 40, 100, 100
SHADE = 50  # per cent of colour behind the largest share: letters must stay legible

Metrics = dict[str, Any]
Cell = Content


def table(head: Sequence[Cell], rows: Sequence[Sequence[Cell]], label: str, marked: Sequence[int] = ()) -> Html:
    """Rows of cells, the first of each a heading, the others aligned as numbers; some rows may be marked."""
    top = element("tr", [element("th", cell, scope="col") for cell in head])
    body = [
        element(
            "tr",
            element("th", row[0], scope="row"),
            [element("td", cell) for cell in row[1:]],
            class_="best" if place in marked else None,
        )
        for place, row in enumerate(rows)
    ]
    return scrolled(element("table", element("thead", top), element("tbody", body)), label)


def scrolled(content: Content, label: str) -> Html:
    """A box of its own for something wide, which those without a mouse can scroll too."""
    return element("div", content, class_="scroll", role="region", aria_label=label, tabindex="0")


def facts(pairs: Sequence[tuple[str, Cell]]) -> Html:
    """Names and what they are; those without a value are left out."""
    return element(
        "dl",
        [[element("dt", name), element("dd", value)] for name, value in pairs if value is not None],
        class_="facts",
    )


def count(weight: float) -> str:
    """A sum of weights: whole, unless that would hide it."""
    return f"{weight:,.0f}" if weight >= 100.0 or float(weight).is_integer() else f"{weight:.3g}"


def number(value: float | None, digits: int = 4) -> str:
    return "\u2013" if value is None else f"{value:.{digits}f}".replace("-", "\u2212")


def per_cent(share: float | None) -> str:
    return "\u2013" if share is None else f"{100 * share:.2f} %"


def small(value: float | None) -> str:
    """A number that may be of any size."""
    return "\u2013" if value is None else f"{value:.3g}".replace("-", "\u2212", 1) if value < 0 else f"{value:.3g}"


# Classes.


def confusion(weights: Sequence[Sequence[float]], names: Sequence[str]) -> Html:
    """True classes by row, predicted ones by column; the shade is the share of the true class."""
    head = element(
        "tr",
        element("th", "true \u2193  predicted \u2192", scope="col"),
        [element("th", name_of(name, 14), scope="col") for name in names],
    )
    rows = []
    for true, row in enumerate(weights):
        total = sum(row) or 1.0
        cells = [
            element(
                "td",
                count(weight) if weight else "\u00b7",
                style=f"--share:{SHADE * weight / total:.0f}%" if weight else None,
                class_="right" if true == predicted else "wrong" if weight else "none",
                title=f"{per_cent(weight / total)} of class {names[true]} were taken for {names[predicted]}"[:300],
            )
            for predicted, weight in enumerate(row)
        ]
        rows.append(element("tr", element("th", name_of(names[true], 20), scope="row"), cells))
    whole = element("table", element("thead", head), element("tbody", rows), class_="confusion")
    return scrolled(whole, "Confusion matrix")


def confused_pairs(weights: Sequence[Sequence[float]], names: Sequence[str]) -> Html | None:
    """The pairs of classes that are confused most."""
    wrong: Float64s = np.array(weights, np.float64)
    support = wrong.sum(axis=1)
    np.fill_diagonal(wrong, 0.0)
    places = np.argsort(-wrong, axis=None, kind="stable")[:MOST_PAIRS]
    pairs = [(int(place) // len(names), int(place) % len(names)) for place in places]
    rows = [
        [
            name_of(names[true]),
            name_of(names[taken]),
            count(wrong[true, taken]),
            per_cent(wrong[true, taken] / support[true]),
        ]
        for true, taken in pairs
        if wrong[true, taken] > 0.0
    ]
    head = ["true class", "taken for", "rows", "share of the class"]
    return table(head, rows, "Classes that are confused most") if rows else None


def by_class(classes: Sequence[Metrics], names: Sequence[str]) -> tuple[Html, str]:
    """Precision, recall, F1 of each class, or of those with most rows; and what is left out."""
    order = list(range(len(names)))
    left_out = ""
    if len(order) > MOST_CLASSES:
        there = [code for code in order if classes[code]["support"]]
        heaviest = sorted(there, key=lambda code: -classes[code]["support"])[: MOST_CLASSES // 2]
        worst = sorted((code for code in there if code not in heaviest), key=lambda code: classes[code]["f1"])
        order = heaviest + worst[: MOST_CLASSES // 2]
        left_out = (
            f"The {len(heaviest)} classes with most rows, then the {len(order) - len(heaviest)} others with the least "
            f"F1, of {len(names):,}; the data block at the end of the page has all, up to 1,000."
        )
    ranked = any(classes[code].get("auc") is not None for code in order)
    head = ["class", "precision", "recall", "F1", *(["AUC", "average precision"] if ranked else []), "rows"]
    keys = ["precision", "recall", "f1", *(["auc", "average_precision"] if ranked else [])]
    rows = [
        [name_of(names[code]), *(number(classes[code][key]) for key in keys), count(classes[code]["support"])]
        for code in order
    ]
    return table(head, rows, "Figures of each class"), left_out


# Slices, candidates, steps of a path.


def slices(found: dict[str, Metrics], by: str) -> Html:
    titles = {"examples": "rows", "weight": "weight", "error": "error", "loss": "loss", "auc": "AUC", "f1": "F1"}
    titles |= {"macro_f1": "macro F1", "brier": "Brier", "ece": "calibration error"}
    keys = [key for key in titles if key in next(iter(found.values()), {})]
    if all(one["weight"] == one["examples"] for one in found.values()):
        keys.remove("weight")

    def shown(key: str, value: float | None) -> str:
        if key in ("examples", "weight") and value is not None:
            return count(value)
        return per_cent(value) if key == "error" else number(value)

    rows = [
        [name_of(value), *(shown(key, one[key]) for key in keys)] for value, one in list(found.items())[:MOST_SLICES]
    ]
    return table([name_of(by), *(titles[key] for key in keys)], rows, f"Figures by {by}")


def candidates(rows: Sequence[Metrics]) -> Html:
    """What was tried, the best of it marked."""
    kept = sorted(rows, key=_held_out)[:MOST_CANDIDATES] if len(rows) > MOST_CANDIDATES else rows
    columns: list[tuple[str, str, Any]] = [("l2", "l2", small), ("passes", "passes", str)]
    columns += [("loss", "loss", number), ("error", "error", per_cent)]
    columns += [("held_out_loss", "held-out loss", number), ("held_out_error", "held-out error", per_cent)]
    if any(row.get("l1") for row in rows):
        columns.insert(1, ("l1", "l1", small))
    if any(row.get("eta0") is not None for row in rows):
        columns.insert(1, ("eta0", "step size", small))
    if any("gap" in row for row in rows):
        columns.insert(2, ("gap", "proven gap", small))
    for key, title in (("loss_kind", "loss kind"), ("solver", "solver")):
        if len({row.get(key) for row in rows}) > 1:
            columns.insert(0, (key, title, str))
    cells = [[form(row[key]) for key, _, form in columns] for row in kept]
    best = [place for place, row in enumerate(kept) if row["best"]]
    return table([title for _, title, _ in columns], cells, "What was tried", best)


def _held_out(row: Metrics) -> float:
    loss = row["held_out_loss"]
    return float("inf") if loss is None else float(loss)


# Features.


def features(found: Sequence[Feature], title: Content, named: bool) -> Html | None:
    """Weights as bars, from the largest on."""
    if not found:
        return None
    largest = max(abs(feature.weight) for feature in found)
    rows = []
    for feature in found:
        shown = name_of(feature.name) if feature.name else Html(f"index {feature.index}" if not named else "?")
        sign = "positive" if feature.weight > 0.0 else "negative"
        bar = element("span", class_=f"bar {sign}", style=f"width:{100 * abs(feature.weight) / largest:.1f}%")
        weight = f"{feature.weight:+.4g}".replace("-", "\u2212")
        index = element("small", f" index {feature.index}") if feature.name or named else None
        rows.append(element("tr", element("th", shown, index, bar, scope="row"), element("td", weight)))
    head = element("tr", element("th", title, scope="col"), element("th", "weight", scope="col"))
    whole = element("table", element("thead", head), element("tbody", rows), class_="features")
    return joined(whole)
