"""YAML text to values that remember where they were written, and back. The only module that imports yaml.

Every value is `Marked` with its `Place`, so an error found long after reading can still name file and line.
The reader is YAML 1.2 where YAML 1.1 surprises: 1e-4 is a number; yes, no, on and off are text; 010, 1:30 and dates
are text too. It builds nothing but numbers, text, true, false, null, lists and mappings, so a file cannot run code.
"""

import math
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import yaml

from streamsvm.config.wording import cut, format_size, show
from streamsvm.errors import ConfigError, SourceError
from streamsvm.io.urls import is_local, redact_url

MAX_FILE = 1_000_000  # bytes; a settings file is a page or two
MAX_VALUES = 100_000  # with aliases expanded: ten lines of them can describe more values than memory holds
MAX_DEPTH = 20


class Place(NamedTuple):
    """Where a value was written. Sorts in reading order: lower layers first, then by line."""

    layer: int
    line: int
    text: str  # "conf.yaml:12", "--set solver.passes=0", "STREAMSVM__LOSS"; empty if the key path says it all


class Marked(NamedTuple):
    """A value and its place; inside mappings and lists, the values are marked again."""

    value: Any
    place: Place


def mark(value: Any, place: Place) -> Marked:
    """A plain value, and all that is in it, at one place."""
    if isinstance(value, dict):
        return Marked({key: mark(inner, place) for key, inner in value.items()}, place)
    if isinstance(value, (list, tuple)):
        return Marked([mark(inner, place) for inner in value], place)
    return Marked(value, place)


def plain(marked: Marked) -> Any:
    """The value without its places."""
    if isinstance(marked.value, dict):
        return {key: plain(inner) for key, inner in marked.value.items()}
    if isinstance(marked.value, list):
        return [plain(inner) for inner in marked.value]
    return marked.value


class Problems:
    """What is wrong, all of it: a user should not have to run once per mistake."""

    def __init__(self) -> None:
        self._found: list[tuple[Place, str, str]] = []

    def add(self, place: Place, path: tuple[str | int, ...], message: str) -> None:
        self._found.append((place, cut(redact_url(".".join(map(str, path)))), message))

    def __len__(self) -> int:
        return len(self._found)

    def raise_if_any(self) -> None:
        """One ConfigError with one line per problem, in the order a reader meets them."""
        lines = [": ".join(filter(None, (place.text, path, message))) for place, path, message in sorted(self._found)]
        if lines:
            raise ConfigError("\n".join(map(_one_line, lines)))


def _one_line(text: str) -> str:
    """Safe to print: a key or file name may hold line breaks, or bytes that a terminal obeys."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))


_PREFIX = "tag:yaml.org,2002:"
_WORDS: dict[str, dict[str, bool | None]] = {
    "null": {"": None, "~": None, "null": None},
    "bool": {"true": True, "false": False},
}


class _Loader(yaml.SafeLoader):
    """Composes nodes only; which plain words are numbers, true, false or null is decided by the patterns below."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}


_EXPONENT = r"[eE][-+]?[0-9]+"
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        rf"[-+]?(?:[0-9]+\.[0-9]*(?:{_EXPONENT})?|\.[0-9]+(?:{_EXPONENT})?|[0-9]+{_EXPONENT}"
        r"|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    _Loader.add_implicit_resolver(_PREFIX + _tag, re.compile(rf"(?:{_pattern})\Z"), _first)


def _plain_tag(text: str) -> str:
    """What a word without quotes is; empty text is null."""
    resolvers = _Loader.yaml_implicit_resolvers.get(text[:1], [])
    return next((tag for tag, regex in resolvers if regex.match(text)), _PREFIX + "str")


class _ReadError(Exception):
    """Reading cannot go on; the line (0 if unknown) and the reason."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def read_file(name: str, layer: int, problems: Problems, fetch: Callable[[str], bytes] | None = None) -> Marked:
    """The mapping in a settings file; whatever is wrong goes to `problems` and the rest is still returned.

    `fetch` gives the content of a file that is a url.
    """

    name = os.fspath(name)
    shown = redact_url(name)

    def at(line: int) -> Place:
        return Place(layer, line, f"{shown}:{line}" if line else shown)

    try:
        text = _decoded(_read_url(name, fetch) if not is_local(name) else _read_bytes(name))
        root = _read(text.replace("\t", " ") if shown.endswith(".json") else text, at, (), problems)
        if root.value is not None and not isinstance(root.value, dict):
            raise _ReadError(root.place.line, f"must hold 'key: value' lines (got {show(plain(root))})")
        return root if root.value is not None else Marked({}, at(1))
    except _ReadError as refused:
        problems.add(at(refused.line), (), str(refused))
        return Marked({}, at(1))


def read_value(text: str, place: Place, path: tuple[str, ...], problems: Problems) -> Marked | None:
    """A value from the command line or the environment: [a, b], {a: b} and quotes as in YAML, else one plain word.

    Plain text is taken whole, so that `*.svm`, `-` and `a: b # c`, which mean something else to YAML, need no quotes.
    None if there is something wrong with it, which then is among the problems.
    """
    text = text.strip()
    before = len(problems)
    try:
        if text[:1] in ("[", "{", '"', "'"):
            value = _read(text, lambda line: place, path, problems)
            return value if len(problems) == before else None
        return Marked(_scalar(_plain_tag(text), text), place)
    except (_ReadError, ValueError) as error:
        problems.add(place, path, str(error))
        return None


def _read_url(name: str, fetch: Callable[[str], bytes] | None) -> bytes:
    if fetch is None:
        raise _ReadError(0, "is a url, and only local files can be read here: download it first")
    try:
        return fetch(name)
    except SourceError as error:
        raise _ReadError(0, str(error).removeprefix(f"{redact_url(name)}: ")) from None


def _read_bytes(name: str) -> bytes:
    try:
        with open(name, "rb") as file:
            return file.read(MAX_FILE + 1)
    except FileNotFoundError:
        raise _ReadError(0, "no such file") from None
    except IsADirectoryError:
        raise _ReadError(0, "is a directory, not a settings file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _ReadError(0, f"cannot be read: {reason.lower()}") from None


def _decoded(content: bytes) -> str:
    if len(content) > MAX_FILE:
        raise _ReadError(0, f"is larger than {format_size(MAX_FILE)}; is it a settings file?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _ReadError(content.count(b"\n", 0, error.start) + 1, "is not UTF-8 text") from None


def _read(text: str, at: Callable[[int], Place], path: tuple[str, ...], problems: Problems) -> Marked:
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _ReadError(line, f"has a character that YAML does not allow (code {error.character!r})") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _ReadError(mark.line + 1 if mark else 1, _syntax(error)) from None
    except RecursionError:
        raise _ReadError(1, f"is nested more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:  # the scanner's own number conversions, such as an escape beyond Unicode
        raise _ReadError(1, f"not valid YAML: {error}") from None
    return _Builder(at, problems).build(node, path) if node is not None else Marked(None, at(1))


def _syntax(error: yaml.MarkedYAMLError) -> str:
    problem = str(error.problem or error.context or "cannot be read")
    text = f"not valid YAML: {problem}"
    if "'\\t'" in problem:
        return "not valid YAML: a tab cannot indent; use spaces"
    if "expected <block end>" in problem:
        return "not valid YAML: this line is indented neither like the one above nor like those it belongs to"
    if "mapping values are not allowed" in problem:
        return text + "; is the line above complete? Text with ': ' in it needs quotes"
    if "alias" in f"{problem} {error.context}" or "sequence entries" in problem or "cannot start" in problem:
        return text + "; text that begins with * - & @ % or ` needs quotes"
    return text


class _Builder:
    """Turns composed nodes into marked values, counting them."""

    def __init__(self, at: Callable[[int], Place], problems: Problems) -> None:
        self._at = at
        self._problems = problems
        self._count = 0

    def build(self, node: yaml.Node, path: tuple[str | int, ...], depth: int = 0) -> Marked:
        line = node.start_mark.line + 1
        self._count += 1
        if self._count > MAX_VALUES:
            raise _ReadError(line, f"holds more than {MAX_VALUES} values (aliases count each time they are used)")
        if depth > MAX_DEPTH:
            raise _ReadError(line, f"is nested more than {MAX_DEPTH} levels deep")
        place = self._at(line)
        if isinstance(node, yaml.MappingNode) and node.tag == _PREFIX + "map":
            return Marked(self._mapping(node, path, depth), place)
        if isinstance(node, yaml.SequenceNode) and node.tag == _PREFIX + "seq":
            return Marked([self.build(item, (*path, i), depth + 1) for i, item in enumerate(node.value)], place)
        try:
            if isinstance(node, yaml.ScalarNode):
                return Marked(_scalar(node.tag, node.value), place)
            raise ValueError(_unknown_tag(node.tag))
        except ValueError as error:
            self._problems.add(place, path, str(error))
            return Marked(None, place)

    def _mapping(self, node: yaml.MappingNode, path: tuple[str | int, ...], depth: int) -> dict[str, Marked]:
        found: dict[str, Marked] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._problems.add(self._at(line), path, "a key must be plain text")
                continue
            key = key_node.value
            before = len(self._problems)
            value = self.build(value_node, (*path, key), depth + 1)
            if key in found:
                first = found[key].place.line
                self._problems.add(self._at(line), (*path, key), f"given twice (first on line {first})")
            elif len(self._problems) == before or isinstance(value.value, dict):
                found[key] = Marked(value.value, self._at(line))
        return found


def _scalar(tag: str, text: str) -> Any:
    kind = tag.removeprefix(_PREFIX)
    if kind == "str":
        return text
    if kind not in ("null", "bool", "int", "float"):
        raise ValueError(_unknown_tag(tag))
    try:
        if kind in _WORDS:
            return _WORDS[kind][text.lower()]
        value: int | float = int(text, 0) if kind == "int" else float(re.sub(r"\.(?=[inIN])", "", text))
    except (KeyError, ValueError):
        raise ValueError(f"is not a usable number or word (got {show(text)})") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"must be a finite number (got {show(text)})")
    return value


def _unknown_tag(tag: str) -> str:
    return f"unknown tag {show(tag.replace(_PREFIX, '!!'))}; only plain values are allowed"


class _Dumper(yaml.SafeDumper):
    """Writes text that both this reader and a YAML 1.1 reader take for the same values."""

    def ignore_aliases(self, data: object) -> bool:
        return True

    def represent_text(self, data: str) -> yaml.Node:
        style = None if data.isprintable() else '"'  # other styles fold line breaks, and there are rare ones
        return self.represent_scalar(_PREFIX + "str", data, style=style)

    def represent_items(self, data: list[Any] | tuple[Any, ...]) -> yaml.Node:
        short = sum(len(str(item)) + 2 for item in data) <= 80
        return self.represent_sequence(_PREFIX + "seq", data, flow_style=short)


_Dumper.add_representer(str, _Dumper.represent_text)
_Dumper.add_representer(list, _Dumper.represent_items)
_Dumper.add_representer(tuple, _Dumper.represent_items)
for _first_letter, _resolvers in _Loader.yaml_implicit_resolvers.items():
    for _tag, _regex in _resolvers:  # quote text that this reader, unlike YAML 1.1, would take for a number
        _Dumper.add_implicit_resolver(_tag, _regex, [_first_letter])


def dump(tree: object, *, flow: bool = False) -> str:
    """YAML for plain values: keys in the order given, mappings in block or flow style, short lists on one line."""
    text = yaml.dump(tree, Dumper=_Dumper, sort_keys=False, default_flow_style=flow, width=10**6, allow_unicode=True)
    return str(text)
