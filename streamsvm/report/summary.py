"""What a reader wants first (what came out, of what), and last: weights, settings, notes."""

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from streamsvm import __version__
from streamsvm.config import DEFAULT_L2, redact_url, to_yaml
from streamsvm.jit import machine
from streamsvm.pool import available_cores
from streamsvm.progress import several
from streamsvm.report.figures import Axis, histogram
from streamsvm.report.markup import Content, Html, element, name_of
from streamsvm.report.story import COUNT, Chapter, Story, chapter, figure, gallery, paragraph
from streamsvm.report.tables import facts, features, number, per_cent, small
from streamsvm.report.weights import Weights

TITLES = {
    "train": "Training report",
    "follow": "Report of a followed log",
    "tune": "Tuning report",
    "evaluate": "Evaluation report",
}
MOST_SOURCES, MOST_NAMES = 10, 12


def title(story: Story) -> str:
    sources = story.model.provenance.get("sources", []) if story.command != "evaluate" else [story.shown_place]
    first = redact_url(str(sources[0])).rstrip("/").rsplit("/", 1)[-1] if sources else ""
    more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
    return TITLES[story.command] + (f": {first}{more}" if first else "")


def headline(story: Story) -> Html:
    """What came out, in one line."""
    return element("p", ", ".join(_came_out(story)) + ".", class_="lead")


def _came_out(story: Story) -> list[str]:
    result, judged = story.result, story.judged
    said: list[str] = []
    if judged is not None and judged.figures["error"] is not None:
        figures = judged.figures
        auc = f" and AUC {number(figures['auc'])}" if figures["auc"] is not None else ""
        said.append(f"Error {per_cent(figures['error'])}{auc} on {figures['examples']:,} {judged.rows}")
    elif result.get("error") is not None:
        how = "rows learned from" if "tol" in result else "rows predicted, then learned"
        said.append(f"Error {per_cent(result['error'])} on {how}")
    if story.command == "evaluate":
        return said or ["Nothing could be measured"]
    if result.get("gap") is not None:
        said.append(f"objective proven to a relative gap of {max(result['gap'], 0.0):.2g}")
    if story.command == "tune":
        said.append(f"with the best of {len(result['candidates'])} candidates, l2 {result['l2']:.3g}")
    said.append(f"{result['examples']:,} examples learned in {result['seconds']:.2f} s")
    said[0] = said[0][0].upper() + said[0][1:]
    return said


def cards(story: Story) -> Html:
    """The figures that matter most, to be seen at a glance."""
    result, figures = story.result, story.judged.figures if story.judged is not None else {}
    shown: list[tuple[str, str]] = []
    if figures.get("error") is not None:
        shown.append(("error", per_cent(figures["error"])))
        names = [("AUC", "auc"), ("macro F1", "macro_f1") if story.model.many else ("F1", "f1")]
        names += [("loss", "loss"), ("log loss", "log_loss"), ("calibration error", "ece")]
        shown += [(name, number(figures[key])) for name, key in names if figures.get(key) is not None]
    elif result.get("error") is not None:
        shown += [("training error", per_cent(result["error"])), ("training loss", number(result["loss"]))]
    if result.get("gap") is not None:
        shown.append(("proven gap", small(max(result["gap"], 0.0))))
    if "seconds" in result:
        shown += [("examples", f"{result['examples']:,}"), ("seconds", f"{result['seconds']:.2f}")]
    elif "examples" in figures:
        shown.append(("examples", f"{figures['examples']:,}"))
    across = len(shown) if len(shown) <= 6 else -(-len(shown) // 2)
    each = [element("div", element("dt", name), element("dd", value)) for name, value in shown]
    return element("dl", each, class_="cards", style=f"--across:{across}")


def warnings(story: Story) -> list[Html]:
    """What nobody should miss."""
    warned = [note for note in story.recording.notes if note.startswith("warning")]
    return [element("p", note[0].upper() + note[1:], class_="warning", role="note") for note in warned]


# What ran.


def what_ran(story: Story, date: str) -> Chapter | None:
    model, settings, result = story.model, story.settings, story.result
    made, online = model.provenance, model.online
    penalty = [f"{key} {small(made[key])}" for key in ("l2", "l1") if made.get(key)]
    if not penalty and settings.penalty.is_default and story.command == "train":
        penalty = [f"l2 {DEFAULT_L2:g}"]
    eta0 = f", step size {small(made['eta0'])}" if made.get("eta0") is not None else ""
    passes = f", {made['passes']:,} pass{'es' if made['passes'] != 1 else ''}" if made.get("passes") else ""
    size = f"{model.dim:,} x {len(model.classes):,}" if model.many else f"{model.dim:,}"
    versions = {"streamsvm": __version__, "Python": platform.python_version(), **machine()}
    cpu = versions.pop("cpu")
    evaluated = story.command == "evaluate"
    pairs: list[tuple[str, Content]] = [
        ("command", element("code", story.recording.command) if story.recording.command else None),
        ("learned from", _sources(made.get("sources", []))),
        ("examples learned", f"{made['examples']:,}" if evaluated and made.get("examples") else None),
        ("measured on", _sources(_shown(settings.data.train if evaluated else settings.data.test))),
        ("solver", f"{online['solver']}{passes}{eta0}" if online.get("solver") else None),
        ("loss", model.loss),
        ("penalty", ", ".join(penalty) or None),
        ("classes", _class_list(story)),
        ("weights", size + (f", multiclass {model.rule}" if model.many else "")),
        ("probabilities", _chances(story)),
        ("model", element("code", story.shown_place) if story.shown_place else "not saved"),
        ("malformed rows skipped", f"{result['bad_rows']:,}" if result.get("bad_rows") else None),
        ("date", date),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("cluster", _cluster(story)),
        (
            "machine" if story.recording.crew is None else "driver's machine",
            f"{platform.system()} {platform.machine()}, {cpu}, {_cores()}",
        ),
    ]
    return chapter("run", "What ran", facts(pairs), _notes(story))


def _cluster(story: Story) -> str | None:
    told = story.result.get("cluster")
    if not told:
        return None
    hosts = {worker.address.rsplit(":", 1)[0] for worker in story.recording.crew.there} if story.recording.crew else ()
    on = f" on {several(len(hosts), 'machine')}" if hosts else ""
    counted = [several(told[f"{what}s"], what) for what in ("worker", "thread", "shard")]
    return f"{counted[0]} with {counted[1]}{on}, {counted[2]}"


def _cores() -> str:
    cores, whole = available_cores(), os.cpu_count() or 1
    return f"{cores} core{'s' if cores > 1 else ''}" + (f" of {whole}" if whole != cores else "")


def _shown(sources: Sequence[str] | None) -> list[str]:
    return [redact_url(source) for source in sources or ()]


def _sources(sources: Sequence[str]) -> Html | None:
    if not sources:
        return None
    items = [element("li", element("code", redact_url(str(source)))) for source in sources[:MOST_SOURCES]]
    if len(sources) > MOST_SOURCES:
        items.append(element("li", f"and {len(sources) - MOST_SOURCES:,} more"))
    return element("ul", items, class_="plain")


def _class_list(story: Story) -> Html:
    names = story.class_names
    shown = [element("li", name_of(name, 40)) for name in names[:MOST_NAMES]]
    if len(names) > MOST_NAMES:
        shown.append(element("li", f"and {len(names) - MOST_NAMES:,} more"))
    return element("ul", shown, class_="inline")


def _chances(story: Story) -> str | None:
    how = story.model.calibration.metadata() if story.model.calibration is not None else None
    judged = {"progressive": "scored before they were learned", "held-out": "that were held out"}
    if how:
        return f"by {how['kind']}, from {how['rows']:,} rows {judged.get(how['on'], 'left out of a further fit')}"
    return "by the logistic function" if story.model.probable else None


def _notes(story: Story) -> Html | None:
    """What the run had to say, but for warnings, which stand at the top."""
    notes = story.recording.notes
    others = [note for note in notes if not note.startswith("warning")]
    if story.recording.resumed:
        others.insert(0, "The run went on from a checkpoint: this page covers the part after it.")
    if story.recording.notes_left_out:
        others.append(f"and {story.recording.notes_left_out:,} more notes")
    if not others:
        return None
    items = element("ul", [element("li", note) for note in others])
    return element("details", element("summary", f"Notes of the run ({len(others)})"), items, open="")


# Weights.


def weights(story: Story, found: Weights) -> Chapter | None:
    if not found.count or found.zeros == found.count:
        return chapter("weights", "Weights", paragraph("All weights are zero: nothing was learned."))
    picture = histogram(
        "weights",
        found.edges,
        [(found.counts, "c1")],
        Axis("weight"),
        Axis("weights, log scale", log=True, kind=COUNT),
    )
    share = found.zeros / found.count
    told = paragraph(
        f"{found.count:,} weights, of which {found.zeros:,} ({per_cent(share)}) are exactly zero; "
        f"norm {small(found.norm)}, largest {small(found.largest)}. "
        "A weight counts for one unit of its feature: compare features of like size."
    )
    caption = "How many weights, zeros left out, have about this value."
    spread = figure(picture, "Spread of the weights", caption)
    if not story.model.many:
        one = found.top[0]
        for_second, for_first = story.class_names[1], story.class_names[0]
        tables = [
            element("div", features(one.positive, ["for ", name_of(for_second)], found.named), class_="panel"),
            element("div", features(one.negative, ["for ", name_of(for_first)], found.named), class_="panel"),
        ]
        return chapter("weights", "Weights", told, gallery(spread), element("h3", "Largest weights"), gallery(*tables))
    tables = [
        element(
            "div",
            features([*one.positive, *one.negative], name_of(story.class_names[one.code]), found.named),
            class_="panel",
        )
        for one in found.top
    ]
    more = f" of the first {len(found.top)} classes" if len(found.top) < len(story.class_names) else " of each class"
    return chapter(
        "weights",
        "Weights",
        told,
        gallery(spread),
        element("h3", f"Largest weights{more}"),
        gallery(*tables, three=True),
    )


def settings_chapter(story: Story) -> Chapter | None:
    """All settings, as they can be given again."""
    whole = element("details", element("summary", "All settings, as YAML"), element("pre", to_yaml(story.settings)))
    kept = story.model.config
    made = None
    if story.command == "evaluate" and kept:
        from streamsvm.config.yaml_text import dump

        made = element("details", element("summary", "Settings the model was trained with"), element("pre", dump(kept)))
    return chapter("settings", "Settings", whole, made)


def data_summary(found: Weights, names: Sequence[str]) -> dict[str, Any]:
    """The weights as data."""
    return {
        "count": found.count,
        "zeros": found.zeros,
        "norm": found.norm,
        "histogram": {"edges": found.edges.tolist(), "counts": found.counts.tolist()},
        "top": [
            {
                "class": names[one.code],
                "positive": [asdict(feature) for feature in one.positive],
                "negative": [asdict(feature) for feature in one.negative],
            }
            for one in found.top
        ],
    }
