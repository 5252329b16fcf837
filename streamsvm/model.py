"""Model: weights, bias, classes and how they came about; scoring, saving, loading.

On disk a model is one safetensors file (io/tensors.py): tensors `weights` (float32; weights[j] belongs to index j) and
`bias` (float64), and metadata that any safetensors reader shows. Where features were scaled in training there is a
third tensor, `scale` (float32, one factor for each weight). The weights belong to features as written in the data all
the same: the factors are multiplied into them, so that nobody who predicts needs to know; `scale` is kept for those who
learn on. A checkpoint holds the same tensors and metadata beside its own, and so is a model too.
"""

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamsvm.batch import Batch, Float32s, Float64s
from streamsvm.classes import ClassLabel, ClassMap, shown_label
from streamsvm.errors import ModelError
from streamsvm.io import tensors
from streamsvm.io.files import written_atomically
from streamsvm.io.generations import CHECKPOINT, read_newest
from streamsvm.jit import kernel

MODEL = tensors.Kind("streamsvm-model", 1, "model")


@dataclass
class Model:
    """A linear model: score = weights . x + bias; a positive score means the second class."""

    weights: Float32s
    bias: float
    classes: list[ClassLabel]
    loss: str
    recipe: dict[str, Any] = field(default_factory=dict)  # how features were made: hash_bits, dim, scale
    config: dict[str, Any] = field(default_factory=dict)  # resolved settings, redacted
    provenance: dict[str, Any] = field(default_factory=dict)  # sources, rows, passes, penalty, versions
    online: dict[str, Any] = field(default_factory=dict)  # where an online solver stood: t, eta0
    named: Any = None  # names of hashed features by index (features/names.py), saved beside the model
    scale: Float32s | None = None  # factors of features in training; they are part of `weights` already

    @property
    def dim(self) -> int:
        return len(self.weights)

    def learned_weights(self) -> Float32s:
        """The weights of scaled features, as the solver knew them: what learning goes on from."""
        return self.weights if self.scale is None else self.weights / self.scale

    def scores(self, batch: Batch) -> Float64s:
        """One score for each row; features the model has never seen are ignored."""
        out = np.empty(batch.rows)
        score_pass(batch, self.weights, self.bias, out)
        return out

    def prediction_text(self, batch: Batch, what: str = "labels") -> bytes:
        """One line a row: the class as the user wrote it, the exact score, or the probability of the second class."""
        scores = self.scores(batch)
        if what == "labels":
            names = [self.class_text(code) for code in (0, 1)]
            lines = [names[positive] for positive in (scores > 0.0).tolist()]
        else:
            if what == "probabilities":
                scores = np.exp(-np.logaddexp(0.0, -scores))
            lines = [repr(score) for score in scores.tolist()]
        return ("\n".join(lines) + "\n").encode() if lines else b""

    def class_map(self) -> ClassMap:
        return ClassMap(self.classes)

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
            "classes": json.dumps(self.classes),
            "recipe": json.dumps(self.recipe, sort_keys=True),
            "config": json.dumps(self.config),
            "provenance": json.dumps(self.provenance),
            "online": json.dumps(self.online),
        }

    def arrays(self) -> dict[str, tensors.Array]:
        scale = {} if self.scale is None else {"scale": self.scale.astype(np.float32, copy=False)}
        return {"bias": np.array([self.bias]), "weights": self.weights.astype(np.float32, copy=False), **scale}


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=4)


def load_model(url: str, note: Callable[[str], None] = _warn) -> Model:
    """Read a model, or that of a checkpoint; ModelError says why if it is truncated, damaged, foreign or too new.

    Of a directory of checkpoints the newest is taken; if it is damaged, `note` is told, and the one before it is taken.
    """
    content, shown = read_newest(url, (MODEL, CHECKPOINT), note)
    return model_of(content, shown)


def model_of(content: tensors.Content, shown: str) -> Model:
    """The model in a file that has been read."""
    metadata, arrays = content.metadata, content.arrays
    try:
        weights, bias = arrays["weights"].reshape(-1), float(arrays["bias"][0])
        return Model(
            weights=weights,
            bias=bias,
            classes=json.loads(metadata["classes"]),
            loss=metadata["loss"],
            recipe=json.loads(metadata["recipe"]),
            config=json.loads(metadata["config"]),
            provenance=json.loads(metadata["provenance"]),
            online=json.loads(metadata["online"]),
            scale=_scale(arrays, len(weights)),
        )
    except Exception as error:
        raise ModelError(f"{shown}: damaged {content.kind.called} ({error})") from error


def _scale(arrays: Mapping[str, tensors.Array], size: int) -> Float32s | None:
    """The factors of a file, if it has any; ValueError if the weights cannot be divided by them."""
    if "scale" not in arrays:
        return None
    scale = arrays["scale"]
    if scale.dtype != np.float32 or scale.shape != (size,):
        raise ValueError(f"scale is {scale.dtype} {list(scale.shape)}, and there are {size} weights")
    if not (np.isfinite(scale) & (scale > 0.0)).all():
        raise ValueError("scale has factors that are not positive numbers")
    return scale


@kernel
def score_pass(batch, vector, bias, out):
    indptr, indices, values, labels, weights = batch
    size = len(vector)
    for i in range(len(labels)):
        total = bias
        for k in range(indptr[i], indptr[i + 1]):
            if indices[k] < size:
                total += np.float64(vector[indices[k]]) * np.float64(values[k])
        out[i] = total
