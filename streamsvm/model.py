"""Model: weights, bias, classes and how they came about; scoring, saving, loading.

On disk a model is one safetensors file: tensors `weights` (float32; weights[j] belongs to index j) and `bias`
(float64), and metadata that any safetensors reader shows. Where features were scaled in training there is a third
tensor, `scale` (float32, one factor for each weight). The weights belong to features as written in the data all the
same: the factors are multiplied into them, so that nobody who predicts needs to know; `scale` is kept for those who
learn on. A SHA-256 over every byte of the file, taken with the digest's own 64 characters as zeros, is part of the
metadata, because safetensors has no checksum. The file is written piece by piece, so saving needs no second copy of
the weights; reading goes through the safetensors library, which checks the layout.
"""

import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamsvm import __version__
from streamsvm.batch import Batch, Float32s, Float64s
from streamsvm.classes import ClassLabel, ClassMap, shown_label
from streamsvm.errors import ModelError
from streamsvm.io.files import read_whole, written_atomically
from streamsvm.io.urls import redact_url
from streamsvm.jit import kernel

FORMAT = "streamsvm-model"
FORMAT_VERSION = 1
LARGEST_HEADER = 100_000_000
_BLANK = "0" * 64


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
        """Write the model under its final name, whole or not at all."""
        digest = hashlib.sha256()
        for piece in self._pieces(_BLANK):
            digest.update(piece)
        with written_atomically(url) as out:
            for piece in self._pieces(digest.hexdigest()):
                out.write(piece)

    def _pieces(self, checksum: str) -> Iterator[bytes | memoryview]:
        metadata = {
            "format": FORMAT,
            "format_version": str(FORMAT_VERSION),
            "checksum": checksum,
            "streamsvm": __version__,
            "loss": self.loss,
            "classes": json.dumps(self.classes),
            "recipe": json.dumps(self.recipe, sort_keys=True),
            "config": json.dumps(self.config),
            "provenance": json.dumps(self.provenance),
            "online": json.dumps(self.online),
        }
        weights = np.ascontiguousarray(self.weights, "<f4")
        bias = np.array([self.bias], "<f8")
        end = 8 + weights.nbytes
        header = {
            "__metadata__": metadata,
            "bias": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]},
            "weights": {"dtype": "F32", "shape": [len(weights)], "data_offsets": [8, end]},
        }
        if self.scale is not None:
            scale = np.ascontiguousarray(self.scale, "<f4")
            header["scale"] = {"dtype": "F32", "shape": [len(scale)], "data_offsets": [end, end + scale.nbytes]}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        yield struct.pack("<Q", len(text))
        yield text
        yield bias.tobytes()
        yield weights.view(np.uint8).data
        if self.scale is not None:
            yield scale.view(np.uint8).data


def load_model(url: str) -> Model:
    """Read a model; ModelError says why when it is truncated, damaged, foreign or from a newer version."""
    shown = redact_url(url)
    content = read_whole(url)
    metadata = _metadata(content, shown)
    if metadata.get("format") != FORMAT:
        raise ModelError(f"{shown}: not a streamsvm model")
    version = metadata.get("format_version", "")
    if version not in [str(known) for known in range(1, FORMAT_VERSION + 1)]:
        raise ModelError(
            f"{shown}: written by streamsvm {metadata.get('streamsvm', '?')} in format version {version[:20] or '?'}; "
            f"this is {__version__}, which reads versions up to {FORMAT_VERSION}: upgrade streamsvm"
        )
    _check(content, metadata, shown)
    import safetensors.numpy

    try:
        tensors = safetensors.numpy.load(content)
        weights, bias = tensors["weights"].reshape(-1), float(tensors["bias"][0])
        return Model(
            weights=weights,
            bias=bias,
            classes=json.loads(metadata["classes"]),
            loss=metadata["loss"],
            recipe=json.loads(metadata["recipe"]),
            config=json.loads(metadata["config"]),
            provenance=json.loads(metadata["provenance"]),
            online=json.loads(metadata["online"]),
            scale=_scale(tensors.get("scale"), len(weights)),
        )
    except Exception as error:
        raise ModelError(f"{shown}: damaged model ({error})") from error


def _scale(scale: Float32s | None, size: int) -> Float32s | None:
    """The factors of a file, if it has any; ValueError if the weights cannot be divided by them."""
    if scale is None:
        return None
    if scale.dtype != np.float32 or scale.shape != (size,):
        raise ValueError(f"scale is {scale.dtype} {list(scale.shape)}, and there are {size} weights")
    if not (np.isfinite(scale) & (scale > 0.0)).all():
        raise ValueError("scale has factors that are not positive numbers")
    return scale


def _metadata(content: bytes, shown: str) -> dict[str, str]:
    """The safetensors metadata, as far as a file can be trusted that has not been checked yet."""
    if len(content) < 8:
        raise ModelError(f"{shown}: not a model: the file has only {len(content)} bytes")
    (length,) = struct.unpack("<Q", content[:8])
    if length > LARGEST_HEADER:
        raise ModelError(f"{shown}: not a streamsvm model")
    if len(content) < 8 + length:
        raise ModelError(f"{shown}: truncated or damaged: {len(content)} bytes, the header alone has {8 + length}")
    try:
        metadata = json.loads(content[8 : 8 + length])["__metadata__"]
        return {str(key): str(value) for key, value in metadata.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{shown}: not a streamsvm model, or its header is damaged") from error


def _check(content: bytes, metadata: dict[str, str], shown: str) -> None:
    stored = metadata.get("checksum", "")
    found = content.find(f'"checksum":"{stored}"'.encode("ascii", "replace"))
    if len(stored) != 64 or found < 0:
        raise ModelError(f"{shown}: damaged: it has no checksum")
    start = found + len('"checksum":"')
    digest = hashlib.sha256(content[:start])
    digest.update(_BLANK.encode())
    digest.update(memoryview(content)[start + 64 :])
    if digest.hexdigest() != stored:
        raise ModelError(f"{shown}: truncated or damaged: the checksum does not match")


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
