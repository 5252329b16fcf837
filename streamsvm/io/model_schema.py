"""What the metadata of a model may say, checked as a whole before any of it is used.

A checksum tells that a file is as it was written, not who has written it. So every value has its kind and its bounds
here, and fits the others: what cannot be is refused when the file is read, and not where it is used.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from streamsvm.features.recipe import Recipe
from streamsvm.offered import LOSSES

RULES = ("ova", "crammer_singer")
FORMATS = ("libsvm", "vw", "table")
LARGEST_DIM = 1 << 32
MOST_BITS = 32
MOST_CLASSES = 1 << 16
LONGEST_NAME = 1 << 16

KINDS: dict[str, type] = {
    "classes": list, "recipe": dict, "config": dict, "provenance": dict, "online": dict, "calibration": dict
}  # fmt: skip
OPTIONAL = ("calibration",)

Arrays = Mapping[str, Any]


def checked(metadata: Mapping[str, str], arrays: Arrays) -> dict[str, Any]:
    """The values of a model's metadata; ValueError says which cannot be."""
    found = {name: _value(metadata, name, kind) for name, kind in KINDS.items()}
    found["loss"], found["rule"] = metadata.get("loss"), metadata.get("rule", "ova")
    _refuse(found["loss"] not in LOSSES, f"loss is {found['loss']!r}, which is unknown")
    _refuse(found["rule"] not in RULES, f"rule is {found['rule']!r}, which is unknown")
    _check_arrays(arrays)
    _check_classes(found["classes"], arrays["weights"])
    mapped = "map" in found["recipe"]
    _check_recipe({k: v for k, v in found["recipe"].items() if k != "map"}, None if mapped else len(arrays["weights"]))
    return found


def _value(metadata: Mapping[str, str], name: str, kind: type) -> Any:
    _refuse(name not in metadata and name not in OPTIONAL, f"{name} is missing")
    value = json.loads(metadata.get(name, "null"))
    absent = value is None and name in OPTIONAL
    _refuse(not absent and not isinstance(value, kind), f"{name} is not a {'list' if kind is list else 'mapping'}")
    return value


def _check_arrays(arrays: Arrays) -> None:
    _refuse("weights" not in arrays or "bias" not in arrays, "there are no weights, or no bias")
    weights, bias = arrays["weights"], arrays["bias"]
    shape = (weights.shape[1],) if weights.ndim == 2 else (1,)
    fits = weights.ndim in (1, 2) and bias.shape == shape
    _refuse(not fits, f"weights are {list(weights.shape)}, and there are {bias.size} numbers for the bias")
    _refuse(weights.dtype != np.float32 or bias.dtype != np.float64, f"weights are {weights.dtype}, bias {bias.dtype}")
    _refuse(not (np.isfinite(weights).all() and np.isfinite(bias).all()), "weights or bias are not finite")


def _check_classes(classes: list[Any], weights: Any) -> None:
    count = weights.shape[1] if weights.ndim == 2 else 2
    _refuse(not 2 <= len(classes) <= MOST_CLASSES, f"there are {len(classes)} classes")
    if weights.ndim == 2:
        _refuse(len(classes) != count, f"there are {len(classes)} classes, and weights for {count}")
    _refuse(weights.ndim == 1 and len(classes) != 2, f"there are {len(classes)} classes, and weights for two")
    for name in classes:
        number = isinstance(name, (int, float)) and not isinstance(name, bool) and math.isfinite(name)
        _refuse(not number and not (isinstance(name, str) and len(name) <= LONGEST_NAME), f"{name!r} is no class")
    _refuse(len({str(name) for name in classes}) != len(classes), "two classes are the same")


def _check_recipe(recipe: dict[str, Any], width: int | None) -> None:
    """That features are made as this version can make them, and are as many as there are weights."""
    format = recipe.get("format", "libsvm")
    _refuse(format not in FORMATS, f"features of format {format!r} are unknown")
    for name, kind in (("names", dict), ("fields", list), ("scale", (str, dict, list))):
        given = recipe.get(name)
        _refuse(given is not None and not isinstance(given, kind), f"recipe: {name} is {type(given).__name__}")
    if format == "table":
        most = Recipe.of_model(recipe).width or LARGEST_DIM
    else:
        bits, dim = recipe.get("hash_bits"), recipe.get("dim")
        _refuse(bits is not None and not _is_count(bits, MOST_BITS), f"recipe: hash_bits is {bits!r}")
        _refuse(dim is not None and not _is_count(dim, LARGEST_DIM), f"recipe: dim is {dim!r}")
        _refuse(format == "vw" and bits is None, "recipe: VW text needs hash_bits")
        crossed = recipe.get("interactions", [])
        groups = isinstance(crossed, list) and all(isinstance(group, list) for group in crossed)
        _refuse(not groups or not all(isinstance(n, str) for group in crossed for n in group), "recipe: interactions")
        most = min(1 << bits if bits else LARGEST_DIM, dim or LARGEST_DIM)
    if width is not None:
        _refuse(width > most, f"there are {width:,} weights, and at most {most:,} features")


def _is_count(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most


def _refuse(wrong: bool, what: str) -> None:
    if wrong:
        raise ValueError(what)
