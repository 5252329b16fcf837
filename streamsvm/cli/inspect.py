"""What is inside a model, a checkpoint, a cache or data files, as data and as text."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from streamsvm.cli.inspect_data import describe_source, render_data
from streamsvm.cli.show import judged_lines, proof
from streamsvm.errors import ConfigError, ModelError, SourceError
from streamsvm.io.files import is_directory, names_in
from streamsvm.io.urls import scheme_of

if TYPE_CHECKING:
    from streamsvm.io.tensors import Content
    from streamsvm.model import Model

ARROW_MAGIC = b"ARROW1"
LIBLINEAR = b"solver_type "
MOST_CLASSES = 20  # whose largest weights are shown


def describe(
    file: str,
    top: int,
    note: Callable[[str], None] = print,
    given: dict[str, Any] | None = None,
    sets: list[str] | None = None,
) -> dict[str, Any]:
    """What is in a file, or in the newest sound checkpoint of a directory; `note` is told of a damaged one.

    `given` and `sets` are flags and settings that say how to read data.
    """
    kind = kind_of(file)
    if kind == "cache":
        return _describe_cache(file)
    if kind == "data":
        return describe_source(file, given or {}, sets or [])
    from streamsvm.io.generations import CHECKPOINT, read_newest
    from streamsvm.model import MODEL, load_model, model_of

    if kind == "liblinear":
        return _describe_model(load_model(file, note), top, file, note)
    content, shown = read_newest(file, (MODEL, CHECKPOINT), note)
    model = _describe_model(model_of(content, shown), top, file, note)
    return _describe_checkpoint(content, shown) | {"model": model} if content.kind == CHECKPOINT else model


def kind_of(file: str) -> str:
    """model (or checkpoint), liblinear, cache or data: by a file's first bytes, or by the names in a directory."""
    if file.endswith(".safetensors"):
        return "model"
    if scheme_of(file) is not None and file.endswith(".model"):
        return "liblinear"
    if is_directory(file):
        names = names_in(file)
        return "model" if not names or any(name.endswith(".safetensors") for name in names) else "data"
    if scheme_of(file) is not None or not os.path.isfile(file):  # a glob, a pipe, or nothing at all
        return "data"
    try:
        with open(file, "rb") as start:
            head = start.read(16)
    except OSError as error:
        raise SourceError(f"{file}: cannot read: {error.strerror or error}") from error
    if head.startswith(ARROW_MAGIC):
        from streamsvm.io.cache import is_cache

        return "cache" if is_cache(Path(file)) else "data"
    if head.startswith(LIBLINEAR):
        return "liblinear"
    tensors = head[8:9] == b"{" and int.from_bytes(head[:8], "little") < os.path.getsize(file)
    return "model" if tensors else "data"


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


def _describe_checkpoint(content: "Content", shown: str) -> dict[str, Any]:
    """Where the run stands that a checkpoint is of."""
    from streamsvm.checkpoint import state_of

    try:
        state = state_of(content)
        standing, run, tally = state["standing"], state["run"], state["passes"]["tally"]
        follow = {}
        if run["command"] == "follow":
            from streamsvm.cli.inspect_follow import describe_logs

            follow = {"follow": describe_logs(state)}
        return {
            "kind": "checkpoint",
            "file": shown,
            "command": run["command"],
            "written": run["written"],
            **standing,
            "pass": min(standing["pass"], standing["passes"]),
            "sources": run["sources"],
            "position": {
                "url": tally["origin"][0],
                "byte": tally["origin"][1],
                "line": tally["origin"][2],
                "groups": state["passes"]["groups"],
            },
            "bad_rows": tally["bad_rows"],
            "cache": state["passes"]["caching"],
            "versions": run["versions"],
            **follow,
        }
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise ModelError(f"{shown}: damaged checkpoint ({error})") from error


def _describe_model(model: "Model", top: int, url: str, note: Callable[[str], None]) -> dict[str, Any]:
    from streamsvm.weight_names import weight_names

    called = weight_names(model, url, note)

    def largest(weights: Any) -> list[dict[str, Any]]:
        order = np.argsort(-np.abs(weights), kind="stable")[:top]
        return [
            {"index": int(j), "name": called.of(int(j)), "weight": called.sign(int(j)) * float(weights[j])}
            for j in order
            if weights[j] != 0
        ]

    shares = np.abs(model.weights).sum(axis=1) if model.many else model.weights
    return {
        "kind": "model",
        "classes": model.classes,
        "loss": model.loss,
        "weights": model.dim,
        "multiclass": model.rule if model.many else None,
        "nonzero": int(np.count_nonzero(model.weights)),
        "norm": float(np.linalg.norm(model.weights.astype(np.float64))),
        "bias": model.bias.tolist() if model.many else model.bias,
        "calibration": model.calibration.metadata() if model.calibration is not None else None,
        "thresholds": model.thresholds.tolist() if model.thresholds is not None else None,
        "recipe": model.full_recipe(),
        "map": model.map.summary() if model.map is not None else None,
        "scale": _describe_scale(model),
        "provenance": model.provenance,
        "online": model.online,
        "config": model.config,
        "names": called.figures(shares) if called.names else None,
        "top": [
            {"class": model.class_text(code), "weights": largest(model.weights[:, code])}
            for code in range(len(model.classes))
        ]
        if model.many
        else largest(model.weights),
    }


def _describe_scale(model: "Model") -> dict[str, Any] | None:
    """How features were scaled in training, and the range of the factors."""
    if model.scale is None:
        return None
    low, high = (float(model.scale.min()), float(model.scale.max())) if len(model.scale) else (1.0, 1.0)
    return {"kind": model.recipe.get("scale"), "smallest": low, "largest": high}


def _checkpoint_lines(found: dict[str, Any]) -> list[str]:
    from streamsvm.checkpoint import standing_text

    lines = [
        f"file     {found['file']}",
        f"written  {found['written']}, after {found['seconds']:,.0f} s of streamsvm {found['command']}",
        f"stands   {standing_text(found)}",
    ]
    if found["inside"] and found["passes"]:
        share = f"{100 * found['fraction']:.1f} % of the pass" if found["fraction"] else "a part of the pass"
        lines[-1] += f", {share}"
    if found.get("loss") is not None:
        whole = " in this pass" if found["passes"] else ""
        lines.append(f"progress loss {found['loss']:.5f}, error {100 * found['error']:.2f} %{whole}")
    position = found["position"]
    if found["inside"] and position["groups"]:
        lines.append(f"reading  the cache, {position['groups']:,} groups of rows done in this pass")
    elif position["url"] and found["stage"] != "learned":
        where = f"line {position['line']:,} (byte {position['byte']:,} of its text)"
        lines.append(f"reading  {position['url']}, {where}")
    if "follow" in found:
        from streamsvm.cli.inspect_follow import log_lines

        return [*lines, *log_lines(found["follow"])]
    for url, size, *_ in found["sources"][:10]:
        lines.append(f"source   {url}" + (f" ({size:,} bytes)" if size is not None else ""))
    return lines


def refuse_behind(found: dict[str, Any], most: str) -> None:
    """End with a code of its own if a run of follow is further behind than `most`, a size."""
    from streamsvm.cli.inspect_follow import BEHIND
    from streamsvm.config.wording import parse_size

    if "follow" not in found:
        raise ConfigError("--behind: only a checkpoint of streamsvm follow says how far behind its logs it is")
    size = parse_size(most)
    if found["follow"]["behind"] > size:
        print(f"streamsvm: {found['follow']['behind']:,} bytes behind, more than {size:,}", file=sys.stderr)
        raise typer.Exit(BEHIND)


def render(found: dict[str, Any]) -> str:
    if found["kind"] == "data":
        return render_data(found)
    if found["kind"] == "cache":
        labels = ", ".join(f"{label:g}" for label in found["labels"])
        lines = [f"cache    {found['rows']:,} rows, {found['features']:,} features, {found['groups']:,} groups"]
        lines.append(f"labels   {labels}")
        for url, size, stamp in (found["fingerprint"] or {}).get("source", []):
            lines.append(f"source   {url} ({size:,} bytes, {stamp})")
        return "\n".join(lines)
    if found["kind"] == "checkpoint":
        return "\n".join([*_checkpoint_lines(found), "", render(found["model"])])
    provenance = found["provenance"]
    if not provenance:
        return "model    nothing is learned yet"
    rule = f" ({found['multiclass']})" if found["multiclass"] else ""
    size = f"{found['weights']:,} x {len(found['classes']):,}" if rule else f"{found['weights']:,}"
    bias = "" if rule else f", bias {found['bias']:.6g}"
    lines = [
        f"model    {size} weights, {found['nonzero']:,} not zero, norm {found['norm']:.6g}{bias}",
        f"classes  {(', ' if rule else ' and ').join(str(name) for name in found['classes'])}{rule}",
        *_trained_lines(found, provenance),
    ]
    if provenance.get("objective") is not None:
        gap = provenance.get("gap")
        lines.append(f"optimum  objective {provenance['objective']:.6g}")
        if gap is not None:
            lines[-1] += f", {proof(gap)}"
    if found["scale"]:
        kind, low, high = found["scale"]["kind"] or "?", found["scale"]["smallest"], found["scale"]["largest"]
        lines.append(f"scaled   {kind}, factors {low:.6g} to {high:.6g}, part of the weights")
    if found["map"]:
        lines.append(f"map      {found['map']}")
    lines += judged_lines(found)
    if found["names"]:
        lines.append(f"names    {_names_text(found['names'])}")
    named = bool(found["names"])
    if rule:
        for entry in found["top"][:MOST_CLASSES]:
            lines += _top_lines(entry["weights"], named, f"class {entry['class']}")
        if len(found["top"]) > MOST_CLASSES:
            lines += ["", f"... and {len(found['top']) - MOST_CLASSES:,} more classes (--json has all)"]
    else:
        lines += _top_lines(found["top"], named)
    return "\n".join(lines)


def _trained_lines(found: dict[str, Any], provenance: dict[str, Any]) -> list[str]:
    sources = f"from     {', '.join(provenance.get('sources', []))}"
    if "liblinear" in provenance:
        return [f"trained  a LIBLINEAR model ({provenance['liblinear']}), {found['loss']}", sources]
    return [
        f"trained  {found['online'].get('solver', '?')}, {found['loss']}, l2 {provenance.get('l2', '?'):g}, "
        f"{'l1 {:g}, '.format(provenance['l1']) if provenance.get('l1') else ''}"
        f"{provenance.get('examples', 0):,} examples, passes {provenance.get('passes', '?')}"
        f"{', provisional' if provenance.get('provisional') else ''}",
        sources,
        f"by       streamsvm {provenance.get('streamsvm', '?')}",
    ]


def _top_lines(top: list[dict[str, Any]], named: bool, title: str = "") -> list[str]:
    """The largest weights as a table; nothing if there are none."""
    if not top:
        return []
    lines = ["", f"{'index':>12} {'weight':>14}{'  name' if named else ''}{f'  ({title})' if title else ''}"]
    for entry in top:
        name = f"  {entry['name'] or '?'}" if named else ""
        lines.append(f"{entry['index']:>12} {entry['weight']:>14.6g}{name}")
    return lines


def _names_text(names: dict[str, Any]) -> str:
    """How much of the model can be named, and how many features share a weight."""
    text = f"{names['names']:,} names cover {100 * names['share_of_weight']:.1f} % of the weight"
    if not names["collisions"]:
        return f"{text}; no two features share one"
    return f"{text}; {names['names_in_collisions']:,} of them share {names['collisions']:,} weights (collisions)"
