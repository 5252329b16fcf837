"""What the weights of a model are called, as far as that is known."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Float32s, Int64s
from streamsvm.errors import ModelError
from streamsvm.features.recipe import Recipe
from streamsvm.model import Model

SHOWN = 3  # names of one index


class WeightNames(NamedTuple):
    """Names by index; a negative sign says that the feature counts with the opposite of its weight."""

    names: dict[int, list[tuple[str, int]]]
    stored: bool  # whether names of hashed features were kept

    def of(self, index: int) -> str | None:
        """The names of an index in one line; those with the opposite sign with a minus."""
        found = self.names.get(index)
        if not found:
            return None
        shown = [f"{'-' if sign < 0 and len(found) > 1 else ''}{name}" for name, sign in found[:SHOWN]]
        return " | ".join(shown) + (f" | {len(found) - SHOWN} more" if len(found) > SHOWN else "")

    def sign(self, index: int) -> int:
        """What the weight is to be multiplied with, to be that of the name it is shown with."""
        found = self.names.get(index)
        return found[0][1] if found and len(found) == 1 else 1

    def figures(self, weights: Float32s) -> dict[str, Any]:
        """How much the names tell: which share of the weight they cover, and how many of them share an index."""
        named = np.array(sorted(index for index in self.names if index < len(weights)), np.int64)
        total = float(np.abs(weights).sum(dtype=np.float64))
        covered = float(np.abs(weights[named]).sum(dtype=np.float64))
        several = [found for found in self.names.values() if len(found) > 1]
        return {
            "names": sum(len(found) for found in self.names.values()),
            "indices": len(self.names),
            "collisions": len(several),
            "names_in_collisions": sum(len(found) for found in several),
            "share_of_weight": covered / total if total else 1.0,
        }


def weight_names(model: Model, url: str, note: Callable[[str], None], only: Int64s | None = None) -> WeightNames:
    """The names of a model's columns, and of its hashed features if they were kept beside it, or with it in memory.

    `only` are the indices that matter, if not all do.
    """
    names: dict[int, list[tuple[str, int]]] = {}
    if model.map is not None:  # weights are those of mapped features, which have no names
        return WeightNames(names, False)
    if model.recipe.get("format") == "table":
        recipe = Recipe.of_model(model.recipe)
        names.update({index: [(name, 1)] for index, name in enumerate(recipe.dense_names())})
    kept = model.recipe.get("names")
    if kept is None and model.named is None:
        return WeightNames(names, False)
    from streamsvm.io.names_file import load_names

    try:
        stored = model.named if model.named is not None else load_names(url, kept or {})
    except ModelError as error:
        note(f"warning: {error}")
        return WeightNames(names, False)
    every = np.arange(len(stored.indices)) if only is None else np.flatnonzero(np.isin(stored.indices, only))
    for place in every.tolist():
        named = (stored.names[place], int(stored.signs[place]))
        names.setdefault(int(stored.indices[place]), []).append(named)
    return WeightNames(names, True)
