"""Which weight stands in which column, where another program has the features.

    model                                  first column          because
    LIBSVM text, weight 0 is zero          index 1               its indices begin with 1, nearly always
    LIBSVM text, weight 0 is not zero      index 0               the data had an index 0
    a table, VW text, folded indices       index 0               streamsvm counts its own features from 0
    arrays given to StreamSVC              index 0               column j is index j

`zero_based` says it where the rule does not know: True makes index 0 the first column. The same rule is that of
scikit-learn's `load_svmlight_file(zero_based="auto")`, which looks at the smallest index of the data.
"""

from typing import NamedTuple

from streamsvm.errors import ModelError
from streamsvm.features.recipe import Recipe
from streamsvm.model import Model


class Features(NamedTuple):
    """What the features of a model are, for those who must make them in another way."""

    kind: str  # indices, folded (indices of which hash_bits are kept), columns or hashed
    names: tuple[str, ...] = ()  # of columns that have a weight of their own
    logarithms: tuple[bool, ...] = ()  # which of these are sign(x) log(1 + |x|) of what the data has
    missing: tuple[int, ...] = ()  # weights after those say that the number in this place is missing
    missing_names: tuple[str, ...] = ()


def features_of(model: Model) -> Features:
    """What the recipe of a model says; ModelError if rows go through a map, which nobody else can make."""
    if model.map is not None:
        raise ModelError(
            f"the rows of this model go through a map ({model.map.kind}), which other programs cannot make; to them "
            "its weights are of no use"
        )
    format = model.recipe.get("format", "libsvm")
    if format == "table":
        recipe = Recipe.of_model(model.recipe)
        if recipe.hashed:
            return Features("hashed")
        logarithms = [c.kind == "log1p" for c in recipe.columns for _ in range(c.width)]
        names = tuple(recipe.dense_names())
        missing = tuple(
            first for first, column in zip(recipe.firsts(), recipe.columns, strict=True) if column.missing is not None
        )
        numbers = recipe.measured
        return Features("columns", names[:numbers], tuple(logarithms), missing, names[numbers:])
    if format == "vw":
        return Features("hashed")
    return Features("folded" if model.recipe.get("hash_bits") else "indices")


def first_index(model: Model, zero_based: bool | None = None) -> int:
    """The index of the first column; ModelError if a weight would be left out."""
    if not model.dim:
        raise ModelError("the model has no weights: nothing is learned yet")
    used = bool((model.weights[0] != 0.0).any()) if model.map is None else bool((model.map.spread.columns == 0).any())
    if zero_based is None:
        counted = model.recipe.get("hash_bits") or model.recipe.get("zero_based")
        plain = model.recipe.get("format") == "libsvm" and not counted
        return 1 if plain and not used else 0
    if not zero_based and model.recipe.get("format") == "table":
        raise ModelError("the features of a table are counted from 0: leave out zero_based")
    if not zero_based and used:
        raise ModelError("index 0 has a weight, which would be left out if columns began with index 1")
    return 0 if zero_based else 1
