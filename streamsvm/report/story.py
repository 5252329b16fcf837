"""What a report is made of, and the blocks that its chapters are made of."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from streamsvm.config import Settings
from streamsvm.metrics.curves import Shapes
from streamsvm.model import Model
from streamsvm.report.markup import Content, Html, element, joined
from streamsvm.report.recording import Recording

PERCENT, COUNT = "percent", "count"


class Judged(NamedTuple):
    """How good a model is, and on which rows that was found."""

    figures: dict[str, Any]
    shapes: Shapes
    rows: str  # such as "test rows", "held-out rows"
    caveat: str = ""  # why figures may flatter


class Story(NamedTuple):
    """Everything that is told."""

    command: str  # train, tune or evaluate
    settings: Settings
    model: Model
    model_place: str  # where its file is, as it may be opened; empty if there is none
    shown_place: str  # the same, as it may be shown
    result: dict[str, Any]  # as `--json` prints it
    recording: Recording
    judged: Judged | None

    @property
    def class_names(self) -> list[str]:
        return [self.model.class_text(code) for code in range(len(self.model.classes))]


class Chapter(NamedTuple):
    """A part of the page with a heading."""

    place: str
    title: str
    content: Html


def chapter(place: str, title: str, *content: Content) -> Chapter | None:
    """A chapter, unless there is nothing in it."""
    inside = joined(content)
    return Chapter(place, title, inside) if inside else None


def paragraph(*content: Content) -> Html:
    return element("p", *content)


def figure(picture: Html, title: str, caption: str, keys: Content = None) -> Html:
    """A picture with its title, and one sentence that says how to read it."""
    from streamsvm.report.figures import labelled

    heading = element("h3", title)
    return element("figure", heading, labelled(picture, f"{title}. {caption}"), keys, element("figcaption", caption))


def gallery(*figures: Content, three: bool = False) -> Html | None:
    """Pictures side by side where there is room, two or three of them."""
    inside = joined(figures)
    return element("div", inside, class_="gallery three" if three else "gallery") if inside else None


def keys(names: Sequence[tuple[Content, str, bool]]) -> Html:
    """What the colours mean: names, each with its colour and whether its line is dashed."""
    return element("ul", [element("li", _key(colour, dashed), name) for name, colour, dashed in names], class_="keys")


def _key(colour: str, dashed: bool) -> Html:
    dash = ' stroke-dasharray="6 4"' if dashed else ""
    line = f'<path d="M2 5H24" style="stroke:var(--{colour})"{dash}/>'
    return Html(f'<svg class="key" viewBox="0 0 26 10" aria-hidden="true">{line}</svg>')
