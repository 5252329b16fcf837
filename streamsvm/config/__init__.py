"""YAML to validated settings, and settings to YAML. Everything about configuration can be imported from here.

The way of a setting: `yaml_text` reads it with its line, `layers` merges files, environment and command line,
`schema` checks it, and this module reports all that is wrong in one error or hands out `Settings`.
"""

import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from streamsvm.config.kinds import DURATION, HIDDEN, SIZE
from streamsvm.config.layers import collect, place_of
from streamsvm.config.schema import (
    DEFAULT_L2,
    MAPPED_TOL,
    SHAPE,
    BiasSettings,
    CheckpointSettings,
    ClusterSettings,
    DataSettings,
    FeatureSettings,
    FollowSettings,
    MapSettings,
    OutputSettings,
    PenaltySettings,
    RunSettings,
    Settings,
    TuneSettings,
    check,
    schema,
    with_usual,
)
from streamsvm.config.solvers import SOLVER_SETTINGS, AsgdSettings, BatchSettings, Section, SolverSettings
from streamsvm.config.wording import expand, format_duration, format_size, is_reference, parse_duration, parse_size
from streamsvm.config.yaml_text import Problems, dump, plain
from streamsvm.io.urls import redact_url

__all__ = [
    "DEFAULT_L2",
    "MAPPED_TOL",
    "AsgdSettings",
    "BatchSettings",
    "BiasSettings",
    "CheckpointSettings",
    "ClusterSettings",
    "DataSettings",
    "FeatureSettings",
    "FollowSettings",
    "MapSettings",
    "OutputSettings",
    "PenaltySettings",
    "RunSettings",
    "SOLVER_SETTINGS",
    "Settings",
    "SolverSettings",
    "TuneSettings",
    "expand",
    "format_duration",
    "format_size",
    "load_settings",
    "parse_duration",
    "parse_size",
    "redact_url",
    "schema",
    "summary_lines",
    "template",
    "to_json_dict",
    "to_yaml",
    "with_usual",
]


def load_settings(
    files: Sequence[str] = (),
    *,
    overrides: Mapping[str, object] = {},
    flags: Mapping[str, str] = {},
    sets: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    fetch: Callable[[str], bytes] | None = None,
) -> Settings:
    """Settings from files in order, then `STREAMSVM__A__B` variables, then `sets` ("a.b=value") and `overrides`.

    `overrides` maps key paths to values of dedicated flags, `flags` maps the same paths to the flags' spelling for
    errors; `fetch` reads a file that is a url.

    Raises one ConfigError with one line per mistake: `conf.yaml:12: solver.passes: must be at least 1 (got 0)`.

    >>> from streamsvm import load_settings
    >>> settings = load_settings(["configs/quickstart.yaml"], overrides={"solver.passes": 3}, sets=["run.seed=7"])
    >>> settings.solver.passes, settings.run.seed, settings.data.train
    (3, 7, ('examples/data/a9a.train.svm.gz',))
    """
    problems = Problems()
    variables = os.environ if environ is None else environ
    merged = collect(files, variables, sets, overrides, flags, SHAPE, problems, fetch)
    settings, errors = check(plain(merged))
    for path, message in errors:
        problems.add(place_of(merged, path), path, message)
    problems.raise_if_any()
    return settings


def to_yaml(settings: Settings, *, defaults: bool = True) -> str:
    """The settings as YAML that loads back to the same settings, but for what redaction took out of urls.

    With `defaults=False` only what differs from the defaults; the solver's keys are compared with its own defaults.
    """
    if defaults:
        return dump(_tree(settings))
    changed = _changed(settings)
    return dump(changed) if changed else "# every setting has its default value\n"


def summary_lines(settings: Settings, without: Sequence[str] = ("tune", "follow")) -> list[str]:
    """The settings in a few lines of YAML, a section a line, without what is not set: what a run prints first."""
    lines = []
    optional = {"checkpoint": settings.checkpoint.dir, "cluster": settings.cluster.at}
    unused = {*without, *(name for name, used in optional.items() if not used)}
    for key, value in _tree(settings).items():
        if key in unused or (key == "storage_options" and value is None):
            continue
        if isinstance(value, dict):
            value = {name: given for name, given in value.items() if given is not None}
            if key == "penalty" and settings.penalty.is_default:
                value = {"l2": DEFAULT_L2} if settings.map.kind == "none" else {}
            if key == "map" and settings.map.kind == "none":
                continue
            if value:
                lines.append(f"{key}: {dump(value, flow=True).strip()}")
        else:
            lines.append(dump({key: value}).strip())
    return lines


def to_json_dict(settings: Settings) -> dict[str, Any]:
    """The settings as plain JSON values, urls redacted: what a model file keeps of the run that made it.

    Options of file systems belong to this machine, and many are secrets: they are left out.
    """
    tree = _tree(settings, as_text=False)
    del tree["storage_options"]
    return tree


def _tree(section: Section, *, as_text: bool = True) -> dict[str, Any]:
    """Key to value in schema order, urls redacted, a list of one source as the source itself."""
    tree: dict[str, Any] = {}
    for key, value in section:
        if isinstance(value, Section):
            value = _tree(value, as_text=as_text)
        elif as_text and SIZE in type(section).model_fields[key].metadata:
            text = format_size(value)
            value = value if text.isdigit() else text
        elif as_text and DURATION in type(section).model_fields[key].metadata:
            value = None if value is None else format_duration(value)
        elif isinstance(value, str):
            value = redact_url(value)
        elif key == "storage_options":
            value = None if value is None else hidden(value)
        elif isinstance(value, tuple) and key in ("train", "test"):  # not a class that looks like a url
            value = [redact_url(source) for source in value] if len(value) > 1 else redact_url(value[0])
        tree[key] = list(value) if isinstance(value, tuple) else value
    return tree


def hidden(options: Any) -> Any:
    """Options of file systems as they may be shown: their names, and references to the environment."""
    if isinstance(options, Mapping):
        return {name: hidden(value) for name, value in options.items()}
    if isinstance(options, (list, tuple)):
        return [hidden(value) for value in options]
    return options if isinstance(options, bool) or is_reference(options) else HIDDEN


def _changed(settings: Settings) -> dict[str, Any]:
    standard = _tree(Settings())
    changed: dict[str, Any] = {}
    for key, value in _tree(settings).items():
        if not isinstance(value, dict) or key == "storage_options":
            inner = value
        else:
            own = _tree(type(getattr(settings, key))())
            inner = {name: given for name, given in value.items() if given != own[name]}
            if key == "solver" and value["name"] != standard["solver"]["name"]:
                inner = {"name": value["name"], **inner}
        if inner not in ({}, standard[key]):
            changed[key] = inner
    return changed


_STARTER: dict[str, object] = {
    "data.train": "train.svm",
    "loss": "squared_hinge",
    "penalty.l2": DEFAULT_L2,
    "solver.name": "asgd",
    "solver.passes": 1,
    "output.model": "model.safetensors",
}


def template() -> str:
    """A starter file: the settings everyone needs as lines, all others as comments with their defaults."""
    lines = ["# Settings for streamsvm. A line such as '#shuffle: 0' shows a default; remove the # to change it."]
    for name, value in Settings():
        lines += ["", *_comment(Settings, name, "")]
        if not isinstance(value, Section):
            text = dump({name: _STARTER.get(name, value)}).rstrip()
            lines.append(text if name in _STARTER else f"#{text}")
            continue
        lines.append(f"{name}:")
        for key, default in _tree(value).items():
            path = f"{name}.{key}"
            text = dump({key: _STARTER.get(path, default)}).rstrip()
            lines += _comment(type(value), key, "  ")
            lines.append(f"  {text}" if path in _STARTER else f"  #{text}")
    return "\n".join(lines) + "\n"


def _comment(section: type[Section], key: str, indent: str) -> list[str]:
    field = section.model_fields[key]
    words = SHAPE.variants if key == "name" else get_args(field.annotation)
    choice = " One of " + ", ".join(words) + "." if get_origin(field.annotation) is Literal else ""
    text = f"{field.description}{choice}"
    return textwrap.wrap(text, 110, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
