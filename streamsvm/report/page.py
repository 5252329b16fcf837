"""The page: chapters under a headline, a style for screens, phones, the dark and paper, and all numbers as data.

It asks the network for nothing, and runs no script: its content security policy would not let it. The numbers behind
the pictures stand in `<script type="application/json" id="data">`, for programs.
"""

import json
import math
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from streamsvm.report import learning, quality, summary, weights, workers
from streamsvm.report.markup import Html, element, joined
from streamsvm.report.story import Chapter, Story
from streamsvm.report.style import STYLE

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
MOST_IN_DATA = 1000  # classes, slices


def page(story: Story, note: Callable[[str], None]) -> bytes:
    """The whole file."""
    now = datetime.now(timezone.utc)
    found = weights.described(story.model, story.model_place, note)
    date = f"{now:%Y-%m-%d %H:%M} UTC"
    chapters = [
        quality.quality(story),
        quality.by_slice(story),
        learning.tried(story),
        learning.proof(story),
        learning.learning(story),
        summary.weights(story, found),
        learning.speed(story),
        workers.workers(story),
        summary.what_ran(story, date),
        summary.settings_chapter(story),
    ]
    there = [one for one in chapters if one is not None]
    title = summary.title(story)
    body = [
        element(
            "header",
            element("p", f"streamsvm {story.command} \u00b7 {date}", class_="over"),
            element("h1", title),
            summary.headline(story),
            summary.cards(story),
            summary.warnings(story),
            element("nav", element("ul", map(_link, there)), aria_label="Chapters"),
        ),
        element("main", map(_section, there)),
        element("footer", "Made by streamsvm. The numbers behind the pictures are in this file, as JSON."),
        Html('<script type="application/json" id="data">') + _as_json(data_of(story, found, now)) + Html("</script>"),
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><meta name="robots" content="noindex">'
        f'<link rel="icon" href="data:,">{element("title", title)}<style>{STYLE}</style>'
    )
    text = f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{"".join(map(str, body))}</body></html>\n'
    return text.encode("utf-8", "replace")


def _link(one: Chapter) -> Html:
    return element("li", element("a", one.title, href=f"#{one.place}"))


def _section(one: Chapter) -> Html:
    heading = element("h2", one.title, id=f"{one.place}-title")
    return joined(
        [element("section", heading, one.content, id=one.place, aria_labelledby=f"{one.place}-title"), Html("\n")]
    )


# Data.


def data_of(story: Story, found: weights.Weights, now: datetime) -> dict[str, Any]:
    """The numbers of the page; of very many classes those of the first."""
    recording, judged = story.recording, story.judged
    points = recording.points
    columns = ("pass_number", "examples", "bytes", "loss", "error", "seconds")
    history = {name: [getattr(point.now, name) for point in points] for name in columns}
    proofs = ("seconds", "objective", "dual", "gap", "error")
    data: dict[str, Any] = {
        "command": story.command,
        "date": now.isoformat(timespec="seconds"),
        "result": {key: value for key, value in story.result.items() if key != "test"},
        "notes": recording.notes,
        "resumed": recording.resumed,
        "history": {**history, "memory": [point.memory for point in points]},
        "proofs": {name: [getattr(one, name) for one in recording.proofs] for name in proofs},
        "weights": summary.data_summary(found, story.class_names),
    }
    if recording.crew is not None:
        exchanged = [(one.cluster.rounds, one.cluster.sent) for one in recording.proofs if one.cluster is not None]
        data["proofs"] |= {"rounds": [rounds for rounds, _ in exchanged], "sent": [sent for _, sent in exchanged]}
        data["cluster"] = workers.data_of(recording.crew)
    if judged is not None:
        data["judged"] = {"rows": judged.rows, "figures": _few(judged.figures), "shapes": _shapes(story)}
    return data


def _few(figures: dict[str, Any]) -> dict[str, Any]:
    """Figures without what grows beyond bounds with the number of classes or slices."""
    kept = dict(figures)
    if kept.get("confusion") is not None and len(kept["confusion"]) > 50:
        del kept["confusion"]
    for name in ("classes", "per_class"):
        kept[name] = kept[name][:MOST_IN_DATA]
    if "slices" in kept:
        kept["slices"] = dict(list(kept["slices"].items())[:MOST_IN_DATA])
    return kept


def _shapes(story: Story) -> dict[str, Any]:
    assert story.judged is not None
    shapes, names = story.judged.shapes, story.class_names
    return {
        "curves": {names[code]: _lists(curve) for code, curve in shapes.curves.items()},
        "mean": _lists(shapes.mean) if shapes.mean is not None else None,
        "spread": _lists(shapes.spread) if shapes.spread is not None else None,
        "ranges": {names[one.code]: {"own": one.own.tolist(), "others": one.others.tolist()} for one in shapes.ranges},
    }


def _lists(arrays: Any) -> dict[str, Any]:
    return {name: getattr(value, "tolist", lambda value=value: value)() for name, value in arrays._asdict().items()}


def _as_json(data: dict[str, Any]) -> Html:
    """JSON that cannot end the element it stands in; numbers to six digits, and null for what is none."""
    text = json.dumps(_rounded(data), separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Html(text)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _rounded(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
