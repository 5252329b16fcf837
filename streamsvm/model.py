"""Model: weights, bias, classes and how they came about; scoring, saving, loading.

On disk a model is one safetensors file (io/tensors.py): tensors `weights` (float32; weights[j] belongs to index j) and
`bias` (float64), and metadata that any safetensors reader shows. With more than two classes weights are [index, class],
and there is a bias for each class. Where features were scaled in training there is a third tensor, `scale` (float32,
one factor for each index). The weights belong to features as written in the data all the same: the factors are
multiplied into them, so that nobody who predicts needs to know; `scale` is kept for those who learn on. What makes
probabilities of scores has tensors that begin with `calibration.`, and thresholds that were chosen are `thresholds`.
Where rows go through a map (features/maps) the weights belong to mapped features; the recipe describes the map, and
what it needs beside that has tensors that begin with `map.`.
A checkpoint holds the same tensors and metadata beside its own, and so is a model too. Models that LIBLINEAR has
written as text (io/liblinear_text.py) are read as well.
"""

import json
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.batch import Batch, Float32s, Float64s, Int64s
from streamsvm.calibration import Calibration, logistic
from streamsvm.classes import ClassLabel, ClassMap, shown_label
from streamsvm.errors import ModelError
from streamsvm.io import tensors
from streamsvm.io.files import is_directory, read_whole, written_atomically
from streamsvm.io.generations import CHECKPOINT, read_newest
from streamsvm.io.liblinear_text import TYPES, LiblinearModel, is_liblinear, read_liblinear
from streamsvm.io.model_schema import checked
from streamsvm.io.urls import redact_url
from streamsvm.pool import available_cores
from streamsvm.scoring import Offset, codes_of, score_rows

if TYPE_CHECKING:
    from streamsvm.features.maps.base import RowMap

MAP = "map."  # how the names of the tensors of a map begin
MODEL = tensors.Kind("streamsvm-model", 1, "model")


@dataclass
class Model:
    """A linear model: score = weights . x + bias; a positive score means the second class.

    With more than two classes there is a score for each, and the largest one means its class.

    >>> import numpy as np
    >>> from streamsvm import Model
    >>> from streamsvm.batch import Batch
    >>> model = Model(np.array([0, 2, -1], np.float32), 0.5, ["no", "yes"], "hinge")
    >>> rows = Batch(np.array([0, 1, 2]), *(np.array(a, t) for a, t in (([1, 2], "u4"), ([1, 3], "f4"), ([0, 0], "f4"),
    ...     ([1, 1], "f4"))))
    >>> scores = model.scores(rows)
    >>> scores.tolist(), [model.class_text(code) for code in model.codes(scores)]
    ([2.5, -2.5], ['yes', 'no'])
    """

    weights: Float32s  # [index], or [index, class]
    bias: Offset  # a number, or [class]
    classes: list[ClassLabel]
    loss: str
    rule: str = "ova"  # how more than two classes were learned: ova or crammer_singer
    recipe: dict[str, Any] = field(default_factory=dict)  # how features were made: hash_bits, dim, scale
    config: dict[str, Any] = field(default_factory=dict)  # resolved settings, redacted
    provenance: dict[str, Any] = field(default_factory=dict)  # sources, rows, passes, penalty, versions
    online: dict[str, Any] = field(default_factory=dict)  # where an online solver stood: t, eta0
    named: Any = None  # names of hashed features by index (features/names.py), saved beside the model
    scale: Float32s | None = None  # factors of features in training; they are part of `weights` already
    centre: Float64s | None = None  # what was taken off features before; it is part of `bias` already
    calibration: Calibration | None = None  # from scores to probabilities, where it was learned
    map: "RowMap | None" = None  # what rows go through before they are scored
    thresholds: Float64s | None = None  # what is taken off the score, or off that of each class, before the decision

    @property
    def dim(self) -> int:
        return len(self.weights)

    @property
    def many(self) -> bool:
        """Whether there is a score for each class, and not one that tells two of them apart."""
        return self.weights.ndim == 2

    def learned_weights(self) -> Float32s:
        """The weights of scaled features, as the solver knew them: what learning goes on from."""
        if self.scale is None or self.recipe.get("scale") == "auto":
            return self.weights
        return self.weights / (self.scale[:, None] if self.many else self.scale)

    def scores(self, batch: Batch) -> Float64s:
        """One score for each row, or [row, class]; features the model has never seen are ignored."""
        if self.map is None:
            return score_rows(batch, self.weights, self.bias)
        scores = np.empty((batch.rows, *self.weights.shape[1:]))
        with closing(self.map.pieces(batch, available_cores())) as pieces:
            for part, rows in pieces:
                scores[part] = score_rows(rows, self.weights, self.bias)
        return scores

    def codes(self, scores: Float64s) -> Int64s:
        """The class that the scores say, by its place in `classes`; where thresholds were chosen, they decide."""
        return codes_of(scores if self.thresholds is None else scores - self.thresholds)

    @property
    def probable(self) -> bool:
        """Whether scores can be turned into probabilities."""
        return self.calibration is not None or self.loss == "logistic"

    def probabilities(self, scores: Float64s) -> Float64s:
        """The probability of the second class, or [row, class], of which each row adds up to 1."""
        if self.calibration is not None:
            return self.calibration.probabilities(scores)
        if not self.probable:
            raise ModelError(self.why_improbable)
        return logistic(scores)

    @property
    def why_improbable(self) -> str:
        return (
            f"the model was trained with {self.loss} and not calibrated, so it has no probabilities: "
            "train it with --calibrate platt, or with --loss logistic"
        )

    def prediction_text(self, batch: Batch, what: str = "labels") -> bytes:
        """One line a row: the class as the user wrote it, the exact score, or the probability of the second class.

        With more than two classes the scores or probabilities of all, in the order of `classes`, with blanks between.
        """
        scores = self.scores(batch)
        if what == "labels":
            names = [self.class_text(code) for code in range(len(self.classes))]
            lines = [names[code] for code in self.codes(scores).tolist()]
        else:
            figures = (self.probabilities(scores) if what == "probabilities" else scores).tolist()
            lines = [" ".join(map(repr, row)) for row in figures] if self.many else [repr(figure) for figure in figures]
        return ("\n".join(lines) + "\n").encode() if lines else b""

    def class_map(self) -> ClassMap:
        return ClassMap(self.classes, many=self.many)

    def class_text(self, code: int) -> str:
        name = self.classes[code]
        return name if isinstance(name, str) else shown_label(name)

    # Files.

    def save(self, url: str) -> None:
        """Write the model under its final name, whole or not at all; before it the names of its features, if known."""
        if self.named is not None:
            from streamsvm.io.names_file import save_names

            self.recipe = {**self.recipe, "names": save_names(url, self.named)}
        with written_atomically(url) as out:
            tensors.save(MODEL, self.metadata(), self.arrays(), out.write)

    def metadata(self) -> dict[str, str]:
        return {
            "loss": self.loss,
            "rule": self.rule,
            "calibration": json.dumps(self.calibration.metadata() if self.calibration is not None else None),
            "classes": json.dumps(self.classes),
            "recipe": json.dumps(self.full_recipe(), sort_keys=True),
            "config": json.dumps(self.config),
            "provenance": json.dumps(self.provenance),
            "online": json.dumps(self.online),
        }

    def full_recipe(self) -> dict[str, Any]:
        """How features are made, the map included."""
        return self.recipe if self.map is None else {**self.recipe, "map": self.map.plain()}

    def arrays(self) -> dict[str, tensors.Array]:
        scale: dict[str, tensors.Array] = {}
        if self.scale is not None:
            scale["scale"] = self.scale.astype(np.float32, copy=False)
        if self.centre is not None:
            scale["centre"] = self.centre
        bias = np.array(self.bias, np.float64, ndmin=1)
        thresholds = {} if self.thresholds is None else {"thresholds": self.thresholds}
        calibration = {} if self.calibration is None else self.calibration.arrays()
        weights = self.weights.astype(np.float32, copy=False)
        mapping = {} if self.map is None else {f"{MAP}{name}": array for name, array in self.map.arrays().items()}
        return {"bias": bias, "weights": weights, **scale, **thresholds, **calibration, **mapping}


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=4)


def load_model(url: str, note: Callable[[str], None] = _warn) -> Model:
    """Read a model, or that of a checkpoint; ModelError says why if it is truncated, damaged, foreign or too new.

    Of a directory of checkpoints the newest is taken; if it is damaged, `note` is told, and the one before it is taken.
    A file that begins as LIBLINEAR's models do is read as one.

    >>> import os, tempfile
    >>> from streamsvm import load_model, load_settings, open_stream, train
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> given = {"data.train": "examples/data/a9a.train.svm.gz", "output.model": path}
    >>> _ = train(load_settings(overrides=given))
    >>> model = load_model(path)
    >>> batch = next(iter(open_stream("examples/data/a9a.test.svm.gz", model=model)))
    >>> model.classes, model.codes(model.scores(batch))[:8].tolist()
    ([-1, 1], [0, 0, 0, 1, 0, 0, 0, 1])
    """
    if is_directory(url):
        return model_of(*read_newest(url, (MODEL, CHECKPOINT), note))
    content, shown = read_whole(url), redact_url(url)
    if is_liblinear(content):
        return _of_liblinear(read_liblinear(content, shown), shown)
    return model_of(tensors.load(content, shown, (MODEL, CHECKPOINT)), shown)


def _of_liblinear(found: LiblinearModel, shown: str) -> Model:
    """A model that LIBLINEAR has trained, in single precision; of two classes its first label is the positive one."""
    order = slice(None, None, -1 if len(found.labels) == 2 else None)
    weights = np.zeros((len(found.weights) + 1, found.columns), np.float32)  # its indices begin with 1
    weights[1:] = found.weights[:, order]
    many = found.columns > 1
    return Model(
        weights=weights if many else weights[:, 0],
        bias=found.bias[order] if many else float(found.bias[0]),
        classes=list(found.labels[order]),
        loss=TYPES[found.type].loss,
        rule=TYPES[found.type].rule,
        recipe={"format": "libsvm", "hash_bits": None, "dim": None},
        provenance={"liblinear": found.type, "sources": [shown]},
    )


def model_of(content: tensors.Content, shown: str) -> Model:
    """The model in a file that has been read."""
    metadata, arrays = content.metadata, content.arrays
    try:
        found = checked(metadata, arrays)
        weights, bias, recipe = arrays["weights"], arrays["bias"], found["recipe"]
        many = weights.ndim == 2
        plain = recipe.pop("map", None)
        return Model(
            weights=weights,
            bias=bias if many else float(bias[0]),
            classes=found["classes"],
            loss=found["loss"],
            rule=found["rule"],
            recipe=recipe,
            map=_map(plain, arrays, len(weights)) if plain is not None else None,
            config=found["config"],
            provenance=found["provenance"],
            online=found["online"],
            scale=_scale(arrays, len(weights), recipe.get("scale") == "auto"),
            centre=_centre(arrays),
            calibration=Calibration.stored(found["calibration"], arrays, len(bias)),
            thresholds=_thresholds(arrays, len(bias)),
        )
    except Exception as error:
        raise ModelError(f"{shown}: damaged {content.kind.called} ({error})") from error


def _map(plain: dict[str, Any], arrays: Mapping[str, tensors.Array], size: int) -> "RowMap":
    from streamsvm.features.maps.make import restored_map

    own = {name.removeprefix(MAP): array for name, array in arrays.items() if name.startswith(MAP)}
    found = restored_map(plain, own)
    if size > found.width:
        raise ValueError(f"the map makes {found.width} features, and there are {size} weights")
    return found


def _thresholds(arrays: Mapping[str, tensors.Array], size: int) -> Float64s | None:
    if "thresholds" not in arrays:
        return None
    thresholds = arrays["thresholds"]
    if thresholds.dtype != np.float64 or thresholds.shape != (size,) or not np.isfinite(thresholds).all():
        raise ValueError(f"thresholds are {thresholds.dtype} {list(thresholds.shape)}, or no numbers")
    return thresholds


def _centre(arrays: Mapping[str, tensors.Array]) -> Float64s | None:
    if "centre" not in arrays:
        return None
    centre, scale = arrays["centre"], arrays.get("scale")
    right = scale is not None and centre.dtype == np.float64 and centre.shape == scale.shape
    if not right or not np.isfinite(centre).all():
        raise ValueError(f"centre is {centre.dtype} {list(centre.shape)}, or no numbers")
    return centre


def _scale(arrays: Mapping[str, tensors.Array], size: int, some: bool) -> Float32s | None:
    """The factors of a file, if it has any; ValueError if the weights, or `some` of them, cannot be divided by them."""
    if "scale" not in arrays:
        return None
    scale = arrays["scale"]
    if scale.dtype != np.float32 or scale.ndim != 1 or not (len(scale) == size or (some and len(scale) < size)):
        raise ValueError(f"scale is {scale.dtype} {list(scale.shape)}, and there are {size} weights")
    if not (np.isfinite(scale) & (scale > 0.0)).all():
        raise ValueError("scale has factors that are not positive numbers")
    return scale
