"""A model as LIBLINEAR's text, for its `predict` and its Python package, with the same decision values.

LIBLINEAR counts features from 1, so index 0 has no place there: a model of LIBSVM text that has a weight for it is
refused, unless `zero_based` asks for every index to be one higher. Features of tables are one higher always. The bias,
penalised or free, is that of a constant feature 1 (`-B 1`). Thresholds are taken off the bias: the labels are those of
the model, the decision values lower by the thresholds. Probabilities by calibration have no place; those of the
logistic loss are LIBLINEAR's own (`-b 1`). Where each of two classes has a score, their difference is written.
io/liblinear_text.py has the format; `load_model` reads it.
"""

import warnings
from collections.abc import Callable

import numpy as np

from streamsvm.batch import Float32s, Float64s
from streamsvm.errors import ModelError
from streamsvm.exchange.columns import features_of, first_index
from streamsvm.io.files import written_atomically
from streamsvm.io.liblinear_text import LARGEST_SIZE, LiblinearModel, write_liblinear
from streamsvm.model import Model

Note = Callable[[str], None]
Floats = Float32s | Float64s
TYPE_OF = {
    ("squared_hinge", "l2"): "L2R_L2LOSS_SVC",
    ("hinge", "l2"): "L2R_L1LOSS_SVC_DUAL",
    ("logistic", "l2"): "L2R_LR",
    ("squared_hinge", "l1"): "L1R_L2LOSS_SVC",
    ("logistic", "l1"): "L1R_LR",
}


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=3)


def save_liblinear(model: Model, url: str, *, zero_based: bool | None = None, note: Note = _warn) -> None:
    """Write a model as LIBLINEAR's text; `note` is told what that cannot say."""
    found = to_liblinear(model, zero_based=zero_based, note=note)
    with written_atomically(url) as out:
        write_liblinear(found, out.write)


def to_liblinear(model: Model, *, zero_based: bool | None = None, note: Note = _warn) -> LiblinearModel:
    """What LIBLINEAR would keep of a model; ModelError where it would have other labels or no place for a weight."""
    first = _first_index(model, zero_based, note)
    weights = model.weights[first:]
    if weights.size > LARGEST_SIZE - len(model.classes):
        raise ModelError(f"{weights.size:,} weights are more than LIBLINEAR can have ({LARGEST_SIZE:,})")
    labels, bias = _labels(model), _offsets(model, note)
    kind = _type_for(model, note)
    if model.calibration is not None:
        instead = "; its -b 1 has those of the logistic loss instead" if model.loss == "logistic" else ""
        note(f"the probabilities by {model.calibration.kind} are left out: LIBLINEAR has no place for them{instead}")
    if not model.many:
        return LiblinearModel(kind, labels[::-1], weights[:, None], bias)
    if len(labels) == 2:
        return LiblinearModel(kind, labels[::-1], _opposites(weights), _opposites(bias))
    return LiblinearModel(kind, labels, weights, bias)


def _opposites(scores: Floats) -> Float64s:
    """Of two classes LIBLINEAR looks at the sign of the first score alone: half the difference, and its opposite."""
    half = (scores[..., 1].astype(np.float64) - scores[..., 0]) / 2.0
    return np.stack([half, -half], axis=-1)


def _first_index(model: Model, zero_based: bool | None, note: Note) -> int:
    features = features_of(model)
    first = first_index(model, zero_based)
    if features.kind == "indices" and first == 0 and zero_based is None:
        raise ModelError(
            "the model has a weight for index 0, and LIBLINEAR's indices begin with 1: "
            "--zero-based (zero_based=True) writes each index one higher"
        )
    if first == 0:
        note("feature j of the model, counted from 0, is index j + 1 of LIBLINEAR")
    if features.missing:
        names, last = features.missing_names, len(features.names) + len(features.missing)
        note(f"indices {len(features.names) + 1} to {last} are 1 where a number is missing: {_some(names)}")
    if features.kind == "hashed":
        note("the features are hashed: rows for LIBLINEAR must be made as streamsvm makes them")
    return first


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{names[0]}, {names[1]}, ... {names[-1]}"


def _labels(model: Model) -> list[int]:
    wrong = [label for label in model.classes if isinstance(label, str) or not float(label).is_integer()]
    if wrong:
        raise ModelError(f"LIBLINEAR's labels are whole numbers; this model has {str(wrong[0])[:40]!r}")
    return [int(label) for label in model.classes]


def _type_for(model: Model, note: Note) -> str:
    """The solver type with this loss and penalty; one with the same scores if there is none."""
    two = model.many and len(model.classes) == 2
    if two or (model.many and model.rule == "crammer_singer"):
        has = "half the difference of the two scores" if two else "the same scores"
        lost = ", but no probabilities" if model.loss == "logistic" else ""
        if model.loss != "hinge" or model.rule != "crammer_singer":
            what = f"{model.rule} with {model.loss}"
            note(f"LIBLINEAR has no type for {what}: written as MCSVM_CS, which has {has}{lost}")
        elif two and not np.array_equal(model.weights[:, 0], -model.weights[:, 1]):
            note(f"LIBLINEAR has {has} of two classes")
        return "MCSVM_CS"
    penalty = "l1" if model.provenance.get("l1") and not model.provenance.get("l2") else "l2"
    kind = TYPE_OF.get((model.loss, penalty))
    if kind is None:
        kind = TYPE_OF.get((model.loss, "l2"), "L2R_L2LOSS_SVC")
        note(f"LIBLINEAR has no type for {model.loss} with {penalty}: written as {kind}, which has the same scores")
    return kind


def _offsets(model: Model, note: Note) -> Float64s:
    bias = np.array(model.bias, np.float64, ndmin=1)
    if model.thresholds is None:
        return bias
    bent = ", and so are those of which its -b 1 makes probabilities" if model.loss == "logistic" else ""
    note(f"the thresholds are taken off the bias: labels are the model's, decision values are lower by them{bent}")
    return np.asarray(bias - model.thresholds)
