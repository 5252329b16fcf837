"""Settings come in layers: files in order, then the environment, then the command line; a higher layer wins.

Mappings merge key by key, lists and scalars replace. Two rules go beyond that, because a key can contradict one that
it does not overwrite:

- Of two exclusive keys (`penalty.l2` and `penalty.C`), the one in the higher layer wins and the lower is dropped; both
  in one layer is an error.
- A layer that names another solver keeps what the layers below said, if the new solver knows the key (`passes`,
  `init`, ...), and drops what only the old solver knows. A key that neither knows stays, to be reported.

The rules are given as data, a `Shape`, so that nothing here repeats the settings themselves.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from streamsvm.config.wording import cut, did_you_mean, listed, show
from streamsvm.config.yaml_text import Marked, Place, Problems, mark, plain, read_file, read_value
from streamsvm.io.urls import redact_setting

ENVIRONMENT_PREFIX = "STREAMSVM__"


@dataclass(frozen=True)
class Shape:
    """The keys of a schema, and how they depend on each other."""

    keys: Mapping[str, Collection[str]]  # section -> its keys; none for a key that is no section
    short: Mapping[str, str]  # section -> the key that a bare word stands for
    exclusive: Sequence[tuple[str, str, str]]  # section, key, other key
    variants: Mapping[str, Collection[str]]  # value of the solver's name -> the keys of that solver
    default_variant: str
    foreign: Mapping[str, str]  # what other programs call it -> our path
    varying: str = "solver"

    def paths(self) -> list[tuple[str, ...]]:
        return [(section, key) for section, keys in self.keys.items() for key in keys] + [(key,) for key in self.keys]

    def spelled(self, path: Sequence[str]) -> tuple[str, ...]:
        """The path with the upper and lower case of the schema, as environment variables have their own."""
        known = {tuple(key.lower() for key in known): known for known in self.paths()}
        lowered = tuple(key.lower() for key in path)
        return (*known.get(lowered[:2], known.get(lowered[:1], lowered[:1]) + lowered[1:2]), *lowered[2:])


def collect(
    files: Sequence[str],
    environ: Mapping[str, str],
    sets: Sequence[str],
    overrides: Mapping[str, object],
    flags: Mapping[str, str],
    shape: Shape,
    problems: Problems,
    fetch: Callable[[str], bytes] | None = None,
) -> Marked:
    """All layers merged into one marked mapping."""
    merged = Marked({}, Place(0, 0, ""))
    layers = [_sections(read_file(name, i, problems, fetch), shape, problems) for i, name in enumerate(files)]
    layers.append(_from_environment(environ, len(files), shape, problems))
    layers.append(_from_command_line(sets, overrides, flags, len(files) + 1, shape, problems))
    for layer in layers:
        merged = _stack(merged, _without_contradictions(layer, shape, problems), shape)
    return merged


def _from_environment(environ: Mapping[str, str], layer: int, shape: Shape, problems: Problems) -> Marked:
    found = Marked({}, Place(layer, 0, ""))
    for name in sorted(environ):
        if name.upper().startswith(ENVIRONMENT_PREFIX):
            path = shape.spelled(name[len(ENVIRONMENT_PREFIX) :].split("__"))
            place = Place(layer, 0, name)
            value = read_value(environ[name], place, path, problems)
            if value is not None:
                found = _agree(found, _sections(_nested(path, value), shape, problems), problems)
    return found


def _from_command_line(
    sets: Sequence[str],
    overrides: Mapping[str, object],
    flags: Mapping[str, str],
    layer: int,
    shape: Shape,
    problems: Problems,
) -> Marked:
    by_set = by_flag = Marked({}, Place(layer, 0, ""))
    for text in sets:
        by_set = _merge(by_set, _sections(_from_set(text, layer, problems), shape, problems))
    for key, given in overrides.items():
        place = Place(layer, 1, flags.get(key, ""))
        by_flag = _merge(by_flag, _sections(_nested(key.split("."), mark(given, place)), shape, problems))
    return _agree(by_set, by_flag, problems)


def _from_set(text: str, layer: int, problems: Problems) -> Marked:
    key, equals, given = text.partition("=")
    path = tuple(key.strip().split("."))
    place = Place(layer, 0, f"--set {cut(key.strip() + '=...' if '://' in given else redact_setting(text))}")
    if not equals or not all(path):
        problems.add(place, (), "must look like section.key=value")
        return Marked({}, place)
    value = read_value(given, place, path, problems)
    return _nested(path, value) if value is not None else Marked({}, place)


def _nested(path: Sequence[str], value: Marked) -> Marked:
    for key in reversed(path):
        value = Marked({key: value}, value.place)
    return value


def _sections(layer: Marked, shape: Shape, problems: Problems) -> Marked:
    """The layer with each section a mapping: a bare word becomes the key it stands for, an empty section vanishes."""
    found = {}
    for name, section in layer.value.items():
        if shape.keys.get(name) and not isinstance(section.value, dict):
            if section.value is None:
                continue
            if not isinstance(section.value, str) or name not in shape.short:
                example = sorted(shape.keys[name])[0]
                word = f"a single word for {name}.{shape.short[name]} or " if name in shape.short else ""
                message = f"must be {word}a section with keys such as '{example}' (got {show(plain(section))})"
                problems.add(section.place, (name,), message)
                continue
            section = Marked({shape.short[name]: section}, section.place)
        found[name] = section
    return layer._replace(value=found)


def _without_contradictions(layer: Marked, shape: Shape, problems: Problems) -> Marked:
    """The layer with one key of each exclusive pair; the pair is reported."""
    for section, key, other in shape.exclusive:
        if _is_set(layer, section, key) and _is_set(layer, section, other):
            first, second = sorted((layer.value[section].value[name].place, name) for name in (key, other))
            where = f" (given by {first[0].text})" if first[0].text else ""
            message = f"cannot be combined with {section}.{first[1]}{where}"
            problems.add(second[0], (section, second[1]), message)
            layer = _without(layer, section, {second[1]})
    return layer


def _stack(lower: Marked, upper: Marked, shape: Shape) -> Marked:
    """`upper` over `lower`, after dropping from `lower` what `upper` contradicts."""
    for section, key, other in shape.exclusive:
        for wins, loses in ((key, other), (other, key)):
            if _is_set(upper, section, wins):
                lower = _without(lower, section, {loses})
    name = shape.short[shape.varying]
    old = _get(lower, shape.varying, name) or shape.default_variant
    new = _get(upper, shape.varying, name)
    if isinstance(old, str) and isinstance(new, str) and new in shape.variants:
        lower = _without(lower, shape.varying, set(shape.variants.get(old, ())) - set(shape.variants[new]))
    return _merge(lower, upper)


def _merge(lower: Marked, upper: Marked) -> Marked:
    if not (isinstance(lower.value, dict) and isinstance(upper.value, dict)):
        return upper
    merged = dict(lower.value)
    for key, value in upper.value.items():
        merged[key] = _merge(merged[key], value) if key in merged else value
    return Marked(merged, upper.place)


def _agree(lower: Marked, upper: Marked, problems: Problems) -> Marked:
    """Merge two parts of one layer: neither outranks the other, so a key in both must have one value."""
    first = dict(_leaves(lower))
    for path, value in _leaves(upper):
        if path in first and plain(first[path]) != plain(value):
            by = f" by {first[path].place.text}" if first[path].place.text else ""
            problems.add(value.place, path, f"also given{by}, with another value")
    return _merge(lower, upper)


def _leaves(marked: Marked, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Marked]]:
    if not isinstance(marked.value, dict):
        yield path, marked
        return
    for key, value in marked.value.items():
        yield from _leaves(value, (*path, key))


def _get(layer: Marked, section: str, key: str) -> object:
    inner = layer.value.get(section)
    found = inner.value.get(key) if inner is not None else None
    return found.value if found is not None else None


def _is_set(layer: Marked, section: str, key: str) -> bool:
    return _get(layer, section, key) is not None


def _without(layer: Marked, section: str, keys: Collection[str]) -> Marked:
    inner = layer.value.get(section)
    if inner is None or not keys:
        return layer
    kept = {key: value for key, value in inner.value.items() if key not in keys}
    return layer._replace(value={**layer.value, section: inner._replace(value=kept)})


def place_of(merged: Marked, path: Iterable[str | int]) -> Place:
    """The place of the value at the path, or of the nearest thing around it."""
    for key in path:
        if not isinstance(merged.value, dict) or key not in merged.value:
            break
        merged = merged.value[key]
    return merged.place


def unknown_key(path: Sequence[str | int], variant: str | None, shape: Shape) -> str:
    """What to say about a key that does not exist: the most likely cure, else the keys that do exist there."""
    *above, key = (str(part) for part in path)
    text = f"unknown key {show(key)}"
    if variant is not None:
        here = shape.variants[variant]
        users = [name for name, keys in shape.variants.items() if key in keys]
        if users:
            return f"{text}; {shape.varying} {variant} has no such setting, it belongs to {listed(users)}"
    else:
        here = shape.keys[above[0]] if above else shape.keys
    meant = _meant(key, [".".join([*above, name]) for name in here], shape)
    return f"{text}; did you mean '{meant}'?" if meant else f"{text}; known here: {', '.join(here)}"


def _meant(key: str, here: Sequence[str], shape: Shape) -> str | None:
    """The path meant by a key: exact names before similar ones, this level before the others."""
    everywhere = {path[-1]: ".".join(path) for path in shape.paths()}
    nearby = {path.rpartition(".")[2]: path for path in here}
    for names in (nearby, everywhere, shape.foreign):
        for name, path in names.items():
            if name.lower() == key.lower():
                return path
    for names in (nearby, everywhere, shape.foreign):
        close = did_you_mean(key, names)
        if close:
            return names[close]
    return None
