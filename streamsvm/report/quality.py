"""The chapters that tell how good a model is: curves, calibration, confusion, classes, slices."""

from collections.abc import Sequence
from typing import Any

from streamsvm.metrics.curves import GRID, Curve, Shapes
from streamsvm.report.figures import Axis, Band, Series, histogram, lines, palette, ranges, reliability
from streamsvm.report.markup import Html, element, name_of, short
from streamsvm.report.story import (
    PERCENT,
    Chapter,
    Judged,
    Story,
    chapter,
    figure,
    gallery,
    keys,
    paragraph,
)
from streamsvm.report.tables import (
    MOST_CONFUSED,
    MOST_SLICES,
    by_class,
    confused_pairs,
    confusion,
    number,
    per_cent,
    slices,
    small,
    table,
)

UNIT = (0.0, 1.02)
RECALLS = (0.5, 0.8, 0.9, 0.95, 0.99)


def quality(story: Story) -> Chapter | None:
    judged, names = story.judged, story.class_names
    if judged is None:
        return chapter("quality", "How good it is", paragraph(_why_nothing(story)))
    figures, shapes = judged.figures, judged.shapes
    weighed = figures["loss"] is not None
    return chapter(
        "quality",
        "How good it is",
        paragraph(f"Measured on {figures['examples']:,} {judged.rows}. {judged.caveat}".strip()),
        None if weighed else paragraph("Nothing is measured: the weights of all these rows are 0."),
        _one_class(figures, names) if weighed else None,
        gallery(
            *_ranking(figures, shapes, names, many=story.model.many),
            _calibration(figures, story, names),
            _scores(shapes, names),
        ),
        _thresholds(story, judged) if weighed else None,
        _confusions(figures, names) if weighed else None,
        _classes(figures, names) if weighed else None,
        _left_out(figures),
    )


def _why_nothing(story: Story) -> str:
    if story.result.get("holdout"):
        return "Curves need scores of held-out rows, which this run did not keep."
    return (
        "There was no test data, and no row was scored that the model had not learned from: name test data (--test) or "
        "hold rows out (--holdout 10) to see curves, calibration and confusion here."
    )


def _one_class(figures: dict[str, Any], names: Sequence[str]) -> Html | None:
    there = [code for code, one in enumerate(figures["per_class"]) if one["support"]]
    if len(there) != 1:
        return None
    return paragraph("All these rows are of class ", name_of(names[there[0]]), ", so there is nothing to rank.")


# Curves.


def _ranking(figures: dict[str, Any], shapes: Shapes, names: Sequence[str], *, many: bool) -> list[Html]:
    """ROC and precision-recall curves."""
    if not shapes.curves and shapes.mean is None:
        return []
    share = figures["per_class"][1]["support"] / (sum(one["support"] for one in figures["per_class"]) or 1.0)
    roc: list[Series] = []
    precision: list[Series] = []
    shown: dict[str, list[tuple[list[Any], str, bool]]] = {"auc": [], "average_precision": []}
    for place, (code, curve) in enumerate(shapes.curves.items()):
        colour, dashed = palette(place)
        width = 1.5 if many else 2.2
        roc.append(Series(curve.false_positives.tolist(), curve.recall.tolist(), colour, dashed, width))
        precision.append(Series(curve.recall.tolist(), curve.precision.tolist(), colour, dashed, width))
        for key in shown if many else ():
            shown[key].append(
                (
                    [name_of(names[code], 24), " ", element("small", number(figures["per_class"][code][key], 3))],
                    colour,
                    dashed,
                )
            )
    bands: list[Band | None] = [None, None]
    over = ""
    if shapes.mean is not None:
        mean, at = shapes.mean, GRID.tolist()
        roc.append(Series(at, mean.recall[0].tolist()))
        precision.append(Series(at, mean.precision[0].tolist()))
        bands = [Band(at, side[1].tolist(), side[2].tolist()) for side in (mean.recall, mean.precision)]
        over = f" Mean over {mean.classes:,} classes, each against all others; four fifths of them lie in the band."
    which = "a class" if many else f"class {short(names[1], 40)}"
    each, mean_of = (" of each class", "mean ") if many and shapes.curves else ("", "mean " if many else "")
    legends = [keys(shown[key]) if shown[key] else None for key in shown]
    auc, area = figures["auc"], figures["average_precision"]
    one = figure(
        lines("roc", roc, _unit("false positive rate"), _unit("recall"), diagonal=True, band=bands[0], height=300),
        f"ROC curve{each}, {mean_of}AUC {number(auc)}",
        f"Recall of {which} against the share of other rows wrongly taken; the diagonal is chance.{over}",
        legends[0],
    )
    level = None if many else share
    chance = "" if many else f" Chance is the dashed line at {per_cent(share)}."
    two = figure(
        lines("precision", precision, _unit("recall"), _unit("precision"), level=level, band=bands[1], height=300),
        f"Precision-recall{each}, {mean_of}average precision {number(area)}",
        f"How many of the rows taken for {which} are right, against how many are found.{chance}{over}",
        legends[1],
    )
    return [one, two]


def _unit(label: str) -> Axis:
    return Axis(label, kind=PERCENT, limits=UNIT)


def _calibration(figures: dict[str, Any], story: Story, names: Sequence[str]) -> Html | None:
    bins = figures["reliability"]
    if bins is None:
        return None
    which = "the most probable class" if story.model.many else f"class {short(names[1], 40)}"
    learned = story.model.calibration
    how = f"by {learned.metadata()['kind']}" if learned is not None else "by the logistic function"
    picture = reliability("reliability", bins, _unit("probability given"), _unit("observed"))
    return figure(
        picture,
        f"Calibration, error {number(figures['ece'])}",
        f"How often {which} was right where it was given a probability ({how}): points on the diagonal are honest, "
        "below it too sure. Bars: how often each was given.",
    )


def _scores(shapes: Shapes, names: Sequence[str]) -> Html | None:
    """How scores are spread."""
    if shapes.spread is not None:
        spread = shapes.spread
        picture = histogram(
            "scores",
            spread.edges,
            [(spread.negative, "c2"), (spread.positive, "c1")],
            Axis("score"),
            Axis("share of the class", kind=PERCENT),
        )
        shown = keys([(name_of(names[1], 30), "c1", False), (name_of(names[0], 30), "c2", False)])
        caption = "Scores by true class: the less the two overlap, the better they are told apart."
        return figure(picture, "Scores of both classes", caption, shown)
    if shapes.ranges:
        rows = [(names[one.code], one.own.tolist(), one.others.tolist()) for one in shapes.ranges]
        shown = keys([("rows of the class", "c1", False), ("all other rows", "c2", False)])
        more = f" The {len(rows)} classes with most rows." if len(rows) < len(names) else ""
        caption = f"Each class's own score: median, middle half (thick), middle nine tenths (thin).{more}"
        return figure(ranges("scores", rows, Axis("score")), "Scores of each class", caption, shown)
    return None


# Decisions.


def _thresholds(story: Story, judged: Judged) -> Html | None:
    """Where one may decide, of two classes."""
    curve = judged.shapes.curves.get(1) if not story.model.many else None
    if curve is None:
        return None
    chosen = float(story.model.thresholds[0]) if story.model.thresholds is not None else 0.0
    now = judged.figures
    wrongly = now["confusion"][0][1] / (sum(now["confusion"][0]) or 1.0)
    current = [
        [
            "as it decides now",
            small(chosen),
            *map(per_cent, (now["recall"], now["precision"], wrongly)),
            number(now["f1"]),
        ]
    ]
    rows = [
        _operating_point(curve, int((curve.recall >= recall).argmax()), f"recall {100 * recall:g} %")
        for recall in RECALLS
    ]
    f1 = 2.0 * curve.precision * curve.recall / (curve.precision + curve.recall).clip(min=1e-12)
    best = _operating_point(curve, int(f1.argmax()), "largest F1")
    head = ["", "score above", "recall", "precision", "false positive rate", "F1"]
    title = element("h3", "Where to decide")
    told = paragraph("What a threshold on the score gives for class ", name_of(story.class_names[1]), ".")
    return element("section", title, told, table(head, [*current, best, *rows], "Thresholds", marked=[0]))


def _operating_point(curve: Curve, place: int, name: str) -> list[str]:
    recall, precision = float(curve.recall[place]), float(curve.precision[place])
    f1 = 2.0 * recall * precision / (recall + precision) if recall + precision else 0.0
    shares = [per_cent(share) for share in (recall, precision, float(curve.false_positives[place]))]
    return [name, small(float(curve.scores[place])), *shares, number(f1)]


def _confusions(figures: dict[str, Any], names: Sequence[str]) -> Html | None:
    weights = figures["confusion"]
    if weights is None:
        return None
    if len(names) <= MOST_CONFUSED:
        told = "Rows by true and by predicted class; the shade is the share of the true class."
        return element("section", element("h3", "Confusion"), paragraph(told), confusion(weights, names))
    pairs = confused_pairs(weights, names)
    return element("section", element("h3", "Classes that are confused most"), pairs) if pairs else None


def _classes(figures: dict[str, Any], names: Sequence[str]) -> Html:
    whole, left_out = by_class(figures["per_class"], names)
    top = [f"top {k}: {per_cent(share)}" for k, share in (figures.get("top_k") or {}).items()]
    told = [f"Macro F1 {number(figures['macro_f1'])}, accuracy {per_cent(figures['accuracy'])}", *top]
    return element("section", element("h3", "Each class"), paragraph(", ".join(told), ". ", left_out), whole)


def _left_out(figures: dict[str, Any]) -> Html | None:
    if not figures.get("unknown_class_rows"):
        return None
    rows = [[name_of(name), f"{count:,}"] for name, count in list(figures["unknown_classes"].items())[:20]]
    told = f"{figures['unknown_class_rows']:,} rows were left out: the model does not know their classes."
    return element(
        "section", element("h3", "Unknown classes"), paragraph(told), table(["class", "rows"], rows, "Unknown classes")
    )


def by_slice(story: Story) -> Chapter | None:
    """Figures for each value of a column."""
    figures = story.judged.figures if story.judged is not None else {}
    found = figures.get("slices")
    if not found:
        return None
    more = f" The {MOST_SLICES} heaviest of {len(found):,}." if len(found) > MOST_SLICES else ""
    told = paragraph("The same model on the rows of each value of column ", name_of(figures["by"]), f".{more}")
    return chapter("slices", "Slices", told, slices(found, figures["by"]))
