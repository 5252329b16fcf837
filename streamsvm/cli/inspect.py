"""What is inside a model or a cache, as data and as text."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.errors import SourceError
from streamsvm.io.urls import scheme_of

if TYPE_CHECKING:
    from streamsvm.model import Model

ARROW_MAGIC = b"ARROW1"


def describe(file: str, top: int) -> dict[str, Any]:
    if scheme_of(file) is None:
        try:
            with open(file, "rb") as start:
                head = start.read(len(ARROW_MAGIC))
        except OSError as error:
            raise SourceError(f"{file}: cannot read: {error.strerror or error}") from error
        if head == ARROW_MAGIC:
            return _describe_cache(file)
    return _describe_model(file, top)


def _describe_cache(file: str) -> dict[str, Any]:
    from streamsvm.io.cache import Cache

    cache = Cache(Path(file))
    rows, features, labels = cache.summary()
    return {
        "kind": "cache",
        "rows": rows,
        "features": features,
        "groups": cache.groups,
        "labels": sorted(labels)[:20],
        "fingerprint": cache.fingerprint,
    }


def _describe_model(file: str, top: int) -> dict[str, Any]:
    from streamsvm.model import load_model

    model = load_model(file)
    largest = np.argsort(-np.abs(model.weights), kind="stable")[:top]
    return {
        "kind": "model",
        "classes": model.classes,
        "loss": model.loss,
        "weights": model.dim,
        "nonzero": int(np.count_nonzero(model.weights)),
        "norm": float(np.linalg.norm(model.weights.astype(np.float64))),
        "bias": model.bias,
        "recipe": model.recipe,
        "scale": _describe_scale(model),
        "provenance": model.provenance,
        "online": model.online,
        "config": model.config,
        "top": [{"index": int(j), "weight": float(model.weights[j])} for j in largest if model.weights[j] != 0],
    }


def _describe_scale(model: "Model") -> dict[str, Any] | None:
    """How features were scaled in training, and the range of the factors."""
    if model.scale is None:
        return None
    low, high = (float(model.scale.min()), float(model.scale.max())) if len(model.scale) else (1.0, 1.0)
    return {"kind": model.recipe.get("scale"), "smallest": low, "largest": high}


def render(found: dict[str, Any]) -> str:
    if found["kind"] == "cache":
        labels = ", ".join(f"{label:g}" for label in found["labels"])
        lines = [f"cache    {found['rows']:,} rows, {found['features']:,} features, {found['groups']:,} groups"]
        lines.append(f"labels   {labels}")
        for url, size, stamp in (found["fingerprint"] or {}).get("source", []):
            lines.append(f"source   {url} ({size:,} bytes, {stamp})")
        return "\n".join(lines)
    provenance = found["provenance"]
    lines = [
        f"model    {found['weights']:,} weights, {found['nonzero']:,} not zero, norm {found['norm']:.6g}, "
        f"bias {found['bias']:.6g}",
        f"classes  {' and '.join(str(name) for name in found['classes'])}",
        f"trained  {found['online'].get('solver', '?')}, {found['loss']}, l2 {provenance.get('l2', '?'):g}, "
        f"{'l1 {:g}, '.format(provenance['l1']) if provenance.get('l1') else ''}"
        f"{provenance.get('examples', 0):,} examples, passes {provenance.get('passes', '?')}",
        f"from     {', '.join(provenance.get('sources', []))}",
        f"by       streamsvm {provenance.get('streamsvm', '?')}",
    ]
    if found["scale"]:
        kind, low, high = found["scale"]["kind"] or "?", found["scale"]["smallest"], found["scale"]["largest"]
        lines.append(f"scaled   {kind}, factors {low:.6g} to {high:.6g}, part of the weights")
    if found["top"]:
        lines += ["", f"{'index':>12} {'weight':>14}"]
        lines += [f"{entry['index']:>12} {entry['weight']:>14.6g}" for entry in found["top"]]
    return "\n".join(lines)
