"""The settings: what can be set, what each accepts, what it defaults to. The only module that imports pydantic.

A setting is added by adding a field: merging, error messages, schema and template follow from it.
"""

import math
import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails

from streamsvm.config.layers import Shape, unknown_key
from streamsvm.config.wording import format_size, one_of, parse_size, show
from streamsvm.errors import ConfigError

DEFAULT_L2 = 1e-6
SIZE = "size in bytes"  # marks the fields that people read and write as 256MB
_LARGEST = 2**63 - 1  # what the kernels' integers hold


def _no_bool(value: object) -> object:
    if isinstance(value, bool):  # pydantic would read true as 1
        raise ValueError("must be a number")
    return value


def _sources(value: object) -> tuple[str, ...] | None:
    """One or several places to read from, as a tuple either way."""
    if value is None:
        return None
    items = value if isinstance(value, (list, tuple)) else [value]
    texts: list[Any] = [os.fspath(item) if isinstance(item, os.PathLike) else item for item in items]
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise ValueError("must be a path or url, or a list of them, as text (in quotes if it looks like a number)")
    return tuple(texts)


def _classes(value: object) -> tuple[int | float | str, ...] | None:
    """The labels as they were written; 1, 1.0 and "1" are one label, since data files do not tell them apart."""
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        raise ValueError("must be a list of classes such as [spam, ham]")
    for item in value:
        if isinstance(item, bool) or not isinstance(item, (int, float, str)):
            raise ValueError(f"must hold numbers or text only, found {show(item)} (quotes make it text)")
        if isinstance(item, float) and not math.isfinite(item):
            raise ValueError("must hold finite numbers only")
    names = [str(int(item)) if isinstance(item, float) and item.is_integer() else str(item) for item in value]
    if len(value) < 2 or len(set(names)) < len(names):
        raise ValueError("must be a list of at least two different classes")
    return tuple(value)


def _size(at_least: int) -> PlainValidator:
    def check(value: Any) -> int:
        try:
            size = parse_size(int(value) if isinstance(value, float) and value.is_integer() else value)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        if size < at_least:
            raise ValueError(f"must be at least {format_size(at_least)}")
        return size

    return PlainValidator(check)


def _auto_or(number: type[int] | type[float], rule: str, *, zero: bool = False) -> PlainValidator:
    """The word auto or a positive number. A union would report the failure of each branch; this reports one."""

    def check(value: Any) -> float | str:
        try:
            found = number(value) if not isinstance(value, bool) else -1
        except (TypeError, ValueError, OverflowError):
            found = -1
        largest = _LARGEST if number is int else 1e300
        if value != "auto" and (
            not (0 < found <= largest or (zero and found == 0)) or (isinstance(value, float) and found != value)
        ):
            raise ValueError(f"must be auto or {rule}")
        return "auto" if value == "auto" else found

    return PlainValidator(check)


def _cache(value: object) -> str:
    if value is False or (isinstance(value, str) and value.lower() in ("off", "no")):
        return "off"  # many YAML readers turn a bare off into false
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text:
        raise ValueError("must be auto, off or a path")
    return text


def _any_of(*kinds: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": list(kinds)})


_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
_NULL: dict[str, Any] = {"type": "null"}
_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT, "minItems": 1}
_NAMES: dict[str, Any] = {"type": "array", "items": {"type": ["number", "string"]}, "minItems": 2, "uniqueItems": True}
_SIZE_TEXT: dict[str, Any] = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]*)?\s*([kKmMgGtT]?i?[bB])?$"}
_BYTES = _any_of(_SIZE_TEXT, {"type": "integer", "minimum": 1})

Whole = Annotated[int, Field(ge=0, le=_LARGEST), BeforeValidator(_no_bool)]
Count = Annotated[int, Field(ge=1, le=_LARGEST), BeforeValidator(_no_bool)]
HashBits = Annotated[int, Field(ge=1, le=31), BeforeValidator(_no_bool)]
Dimension = Annotated[int, Field(ge=1, le=2**32 - 1), BeforeValidator(_no_bool)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(_no_bool)]
Text = Annotated[str, Field(min_length=1)]
Sources = Annotated[tuple[str, ...] | None, PlainValidator(_sources), _any_of(_NULL, _TEXT, _TEXTS)]
Classes = Annotated[tuple[int | float | str, ...] | None, PlainValidator(_classes), _any_of(_NULL, _NAMES)]
Threads = Annotated[
    int | Literal["auto"],
    _auto_or(int, "a whole number of at least 1"),
    _any_of({"const": "auto"}, {"type": "integer", "minimum": 1}),
]
Step = Annotated[
    float | Literal["auto"],
    _auto_or(float, "a number greater than 0"),
    _any_of({"const": "auto"}, {"type": "number", "exclusiveMinimum": 0}),
]
Shuffle = Annotated[
    int | Literal["auto"],
    _auto_or(int, "a whole number of at least 0", zero=True),
    _any_of({"const": "auto"}, {"type": "integer", "minimum": 0}),
]
Cache = Annotated[str, PlainValidator(_cache), _any_of(_TEXT, {"const": False})]


class Section(BaseModel):
    """A group of settings: unknown keys are errors, and what has been validated cannot change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    short: ClassVar[str | None] = None  # the key that a bare word in place of the section stands for

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, str) and cls.short is not None:
            return {cls.short: value}
        return {} if value is None else value


class DataSettings(Section, title="data"):
    """Where the rows come from and how they are read."""

    train: Sources = Field(
        default=None,
        description="Training data: path, glob, directory, url or - (standard input); or a list, read in its order.",
    )
    test: Sources = Field(default=None, description="Data to evaluate on after training; written like train.")
    format: Literal["auto", "libsvm"] = Field(default="auto", description="File format; auto goes by the data.")
    on_bad_row: Literal["raise", "skip"] = Field(
        default="raise", description="Stop at a malformed row, or skip and count it."
    )
    max_bad_rows: Whole = Field(default=1000, description="With on_bad_row: skip, how many rows may be skipped.")
    classes: Classes = Field(
        default=None, description="All class labels, such as [a, b, c]; needed to learn them in a single pass."
    )
    shuffle: Shuffle = Field(
        default="auto",
        description="Rows held in a seeded shuffle buffer on the first pass; auto has none. Later passes read the "
        "cache in a new random order each; 0 keeps the order of the data in all passes.",
    )
    limit: Count | None = Field(default=None, description="Read only the first so many rows.")
    rows: Count | None = Field(
        default=None, description="Number of training rows, if known; penalty.C needs it on a stream."
    )
    max_expansion: Count = Field(
        default=1000, description="Bytes of text that a byte of a compressed file may become, beyond the first GB."
    )
    max_line: Annotated[int, _size(1), _BYTES, SIZE] = Field(
        default=16 * 10**6, description="Longest line accepted, such as 16MB."
    )


class FeatureSettings(Section, title="features"):
    """How many weights there are, and which feature uses which."""

    hash_bits: HashBits | None = Field(
        default=None, description="Fold the features into 2^hash_bits weights; null gives every index its own."
    )
    dim: Dimension | None = Field(default=None, description="Number of weights; null grows with the largest index.")

    @model_validator(mode="after")
    def _one_way(self) -> "FeatureSettings":
        if self.hash_bits is not None and self.dim is not None:
            raise ValueError("hash_bits and dim cannot be combined")
        return self


class PenaltySettings(Section, title="penalty"):
    """The weight of the penalty against that of the loss, in one of two customary scales."""

    l2: Positive | None = Field(
        default=None, description=f"Weight of the squared norm against the mean loss; {DEFAULT_L2:g} if C is null too."
    )
    C: Positive | None = Field(
        default=None, description="Weight of the summed loss against the squared norm: l2 = 1 / (C * rows)."
    )

    @property
    def is_default(self) -> bool:
        """Nothing was chosen, so DEFAULT_L2 applies."""
        return self.l2 is None and self.C is None

    @model_validator(mode="after")
    def _one_scale(self) -> "PenaltySettings":
        if self.l2 is not None and self.C is not None:
            raise ValueError("l2 and C cannot be combined")
        return self


class BiasSettings(Section, title="bias"):
    """The constant term of the score."""

    short = "kind"
    kind: Literal["penalised", "free", "none"] = Field(
        default="penalised", description="A bias inside the penalty, outside of it, or no bias."
    )
    scale: Positive = Field(default=1.0, description="Value of the constant feature that the bias multiplies.")


class AnySolver(Section):
    """What every solver has."""

    short = "name"
    name: str = Field(default="", description="The algorithm.")
    passes: Count = Field(default=1, description="Sweeps over the training data.")
    init: Text | None = Field(default=None, description="Model file to continue from; null starts at zero.")


class SgdSettings(AnySolver, title="solver: sgd"):
    """Stochastic gradient descent."""

    name: Literal["sgd"] = Field(default="sgd", description="The algorithm.")
    eta0: Step = Field(default="auto", description="First step size; auto tries several on the first rows.")


class AsgdSettings(AnySolver, title="solver: asgd"):
    """Stochastic gradient descent with averaged weights."""

    name: Literal["asgd"] = Field(default="asgd", description="The algorithm.")
    eta0: Step = Field(default="auto", description="First step size; auto tries several on the first rows.")


class PegasosSettings(AnySolver, title="solver: pegasos"):
    """Pegasos: sub-gradient steps on small batches with a fixed schedule."""

    name: Literal["pegasos"] = Field(default="pegasos", description="The algorithm.")
    batch_size: Count = Field(default=1, description="Rows per step.")
    project: bool = Field(default=True, description="Project the weights onto the ball that holds the optimum.")
    average: bool = Field(default=False, description="Average the weights of all steps, newer ones more.")


_DEFAULT_SOLVER = "asgd"
_SOLVERS: dict[str, type[AnySolver]] = {"sgd": SgdSettings, "asgd": AsgdSettings, "pegasos": PegasosSettings}
SolverSettings = SgdSettings | AsgdSettings | PegasosSettings


def _solver(value: object) -> object:
    """A bare name, or a mapping without one, in the form that tells the solvers apart."""
    if value is None or isinstance(value, str):
        return {"name": _DEFAULT_SOLVER if value is None else value}
    return {"name": _DEFAULT_SOLVER, **value} if isinstance(value, Mapping) else value


class RunSettings(Section, title="run"):
    """What the run may use of the machine; none of it but the seed changes the result."""

    memory: Annotated[int, _size(32 * 10**6), _BYTES, SIZE] = Field(
        default=10**9, description="Ceiling for memory, such as 256MB, 1.5GB or 1GiB."
    )
    threads: Threads = Field(default="auto", description="Threads that parse; auto takes what the machine has.")
    seed: Whole = Field(default=0, description="Seed of everything random.")
    cache: Cache = Field(
        default="auto", description="Parsed rows for later passes: auto (temporary), off, or a path to keep them at."
    )


class OutputSettings(Section, title="output"):
    """What is written at the end."""

    model: Text | None = Field(default="model.safetensors", description="File for the trained model; null keeps none.")


class Settings(Section, title="streamsvm settings"):
    """Everything a training run needs to know."""

    data: DataSettings = Field(default=DataSettings(), description="Where the rows come from and how they are read.")
    features: FeatureSettings = Field(default=FeatureSettings(), description="How many weights there are.")
    loss: Literal["hinge", "squared_hinge", "smoothed_hinge", "logistic"] = Field(
        default="squared_hinge", description="What a wrong or uncertain score costs."
    )
    penalty: PenaltySettings = Field(default=PenaltySettings(), description="Penalty on large weights: l2 or C.")
    bias: BiasSettings = Field(default=BiasSettings(), description="The constant term, or in short its kind.")
    solver: Annotated[
        Annotated[SolverSettings, Field(discriminator="name")],
        BeforeValidator(_solver),
    ] = Field(default=AsgdSettings(), description="The algorithm and its settings, or in short its name.")
    run: RunSettings = Field(default=RunSettings(), description="What the run may use of the machine.")
    output: OutputSettings = Field(default=OutputSettings(), description="What is written at the end.")


SHAPE = Shape(
    keys={
        name: tuple(dict.fromkeys(key for model in _SOLVERS.values() for key in model.model_fields))
        if name == "solver"
        else tuple(getattr(field.annotation, "model_fields", ()))
        for name, field in Settings.model_fields.items()
    },
    short={"bias": "kind", "solver": "name"},
    exclusive=(("penalty", "l2", "C"), ("features", "hash_bits", "dim")),
    variants={name: tuple(model.model_fields) for name, model in _SOLVERS.items()},
    default_variant=_DEFAULT_SOLVER,
    foreign={
        **dict.fromkeys(("lambda", "alpha", "reg", "regularization", "weight_decay"), "penalty.l2"),
        **dict.fromkeys(("lr", "learning_rate", "step_size", "eta"), "solver.eta0"),
        **dict.fromkeys(("epochs", "max_iter", "iterations", "n_iter"), "solver.passes"),
        **dict.fromkeys(("algorithm", "optimizer", "method"), "solver.name"),
        **dict.fromkeys(("n_jobs", "workers", "num_threads"), "run.threads"),
        **dict.fromkeys(("random_state", "random_seed"), "run.seed"),
        **dict.fromkeys(("intercept", "fit_intercept"), "bias.kind"),
        **dict.fromkeys(("input", "files", "path", "train_data"), "data.train"),
        **dict.fromkeys(("test_data", "validation"), "data.test"),
        **dict.fromkeys(("labels", "n_classes"), "data.classes"),
        **dict.fromkeys(("bits", "bit_precision"), "features.hash_bits"),
        **dict.fromkeys(("n_features", "num_features"), "features.dim"),
        **dict.fromkeys(("max_memory", "memory_limit"), "run.memory"),
        "loss_function": "loss",
    },
)

_WORDS = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    "int_parsing_size": f"must be at most {_LARGEST}",
    "finite_number": "must be a finite number",
    "string_type": "must be text (quotes make it text)",
    "string_unicode": "must be valid text",
    "string_too_short": "must not be empty",
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
}


def check(tree: Mapping[str, Any]) -> tuple[Settings, list[tuple[tuple[str | int, ...], str]]]:
    """The settings in a tree of plain values, and what is wrong with it as (key path, plain English)."""
    try:
        return Settings.model_validate(tree), []
    except ValidationError as error:
        return Settings(), [_explain(details) for details in error.errors(include_url=False)]


def _explain(error: ErrorDetails) -> tuple[tuple[str | int, ...], str]:
    path, kind, given, context = error["loc"], error["type"], error["input"], error.get("ctx", {})
    variant = None
    if path[:1] == ("solver",) and len(path) > 1:  # pydantic puts the solver's name into the path of its keys
        variant, path = str(path[1]), ("solver", *path[2:])
    if kind == "extra_forbidden":
        return path, unknown_key(path, variant, SHAPE)
    if kind == "union_tag_invalid":
        return (*path, "name"), one_of(given["name"], _SOLVERS)
    if kind == "literal_error":
        return path, one_of(given, re.findall(r"'([^']+)'", context["expected"]))
    message = str(context["error"]) if kind == "value_error" else _WORDS.get(kind, error["msg"]).format(**context)
    return path, message if "(got " in message else f"{message} (got {show(given)})"


class _Untitled(GenerateJsonSchema):
    """Without the titles made from key names, which only repeat them."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a settings file, for editors; a section may be empty, some a single word."""
    found = Settings.model_json_schema(schema_generator=_Untitled)
    for name, model in _SOLVERS.items():
        if name != _DEFAULT_SOLVER:
            found["$defs"][model.__name__]["required"] = ["name"]
    words = {"solver": list(_SOLVERS), "bias": list(found["$defs"]["BiasSettings"]["properties"]["kind"]["enum"])}
    for name, entry in found["properties"].items():
        if not SHAPE.keys[name]:
            continue
        kinds = entry.pop("oneOf", None) or entry.pop("allOf", None) or [{"$ref": entry.pop("$ref")}]
        entry.pop("discriminator", None)
        entry.pop("default", None)  # repeats those of the keys
        entry["description"] = Settings.model_fields[name].description
        entry["anyOf"] = [*kinds, *([{"enum": words[name]}] if name in words else []), {"type": "null"}]
    return {"$schema": GenerateJsonSchema.schema_dialect, **found}
