"""HTML in which every text is escaped, unless it is known to be HTML: names of classes and features come from data.

>>> element("p", "a < b ", element("em", "& c"), class_="note")
'<p class="note">a &lt; b <em>&amp; c</em></p>'
"""

import html
from collections.abc import Iterable
from typing import TypeAlias

LONGEST = 80  # letters of a name


class Html(str):
    """Text that is HTML already."""


Content: TypeAlias = "str | Html | Iterable[Content] | None"


def element(name: str, *content: Content, **attributes: str | float | None) -> Html:
    """An element; attributes that are None are left out, and `class_`, `aria_label` are class and aria-label."""
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    written = "".join(f' {key}="{html.escape(plain(str(value)))}"' for key, value in given.items())
    return Html(f"<{name}{written}>{joined(content)}</{name}>")


def joined(content: Content) -> Html:
    """Parts one after the other, each escaped if it is plain text."""
    if content is None:
        return Html("")
    if isinstance(content, Html):
        return content
    if isinstance(content, str):
        return Html(html.escape(plain(content)))
    return Html("".join(joined(part) for part in content))


def plain(text: str) -> str:
    """The text without letters that HTML cannot hold, and without those that turn the direction of what follows."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "\ufffd" for letter in text)


def short(text: str, most: int = LONGEST) -> str:
    """A text that keeps to its line, and to its column."""
    line = plain(text).replace("\n", "\ufffd").replace("\t", " ")
    return line if len(line) <= most else line[: most - 1] + "\u2026"


def name_of(text: str, most: int = LONGEST) -> Html:
    """A name from data: whole when one points at it, and apart from its surroundings, whatever its script."""
    shown = short(text, most)
    return element("bdi", shown, title=text[:1000] if shown != text else None)
