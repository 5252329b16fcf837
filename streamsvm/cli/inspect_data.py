"""How `streamsvm inspect` shows data."""

from typing import Any

from streamsvm.cli.flags import FLAGS

DATA_FLAGS = {name: FLAGS[name] for name in ("format", "label", "weight", "columns", "delimiter")}
SHOWN_LABELS = 10
SHOWN_FEATURES = 40
WIDEST = 28


def describe_source(url: str, given: dict[str, Any], sets: list[str]) -> dict[str, Any]:
    """What is in data files."""
    from streamsvm.cli.flags import settings_from
    from streamsvm.inspecting import describe_data
    from streamsvm.reading import make_source

    settings = settings_from([], given, sets, FLAGS)
    return describe_data(settings, make_source(settings, (url,)))


def render_data(found: dict[str, Any]) -> str:
    lines = [f"data     {_what(found)}"]
    if found.get("sampled"):
        lines.append(f"labels   {_labels(found)}")
        index = found["largest_index"]
        lines.append(
            f"rows     {found['features_per_row']:,.1f} features each, at most {found['most_features']:,}; "
            + (f"largest index {index:,}" if index is not None else "no features at all")
        )
    if found.get("bad_rows"):
        lines.append(f"bad      {found['bad_rows']:,} malformed rows in the sample: {'; '.join(found['faults'])}")
    lines += [
        f"note     {text.removeprefix('warning: ')}" for text in found["notes"] if not text.startswith("features: ")
    ]
    if found["problem"]:
        lines.append(f"problem  {found['problem']}")
    if found.get("columns"):
        lines += ["", *_columns(found)]
    if found.get("first_rows"):
        hashed = any(feature["name"] for row in found["first_rows"] for feature in row["features"])
        lines += ["", f"first rows as features{' (hashed ones with their index)' if hashed else ''}"]
        lines += [f"  {row['label']} | {_features(row['features'])}" for row in found["first_rows"]]
    return "\n".join(lines)


def _what(found: dict[str, Any]) -> str:
    files = found["files"]
    parts = [files[0] if len(files) == 1 else f"{len(files):,} files, {files[0]} ... {files[-1]}", found["format"]]
    if found["rows"] is not None:
        groups = ("row group", "row groups") if found["format"] == "parquet" else ("record batch", "record batches")
        parts.append(f"{found['rows']:,} rows in {found['groups']:,} {groups[found['groups'] != 1]}")
    if found.get("compression"):
        parts.append("/".join(found["compression"]))
    if found["bytes"] is not None:
        parts.append(f"{found['bytes'] / 1e6:,.1f} MB")
    if "header" in found:
        names = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "pipe", " ": "space"}
        mark = names.get(found["delimiter"], found["delimiter"])
        parts.append(f"{mark} between fields, {'with' if found['header'] else 'without'} a header")
    return ", ".join(parts)


def _labels(found: dict[str, Any]) -> str:
    total = sum(found["labels"].values())
    ranked = sorted(found["labels"].items(), key=lambda item: -item[1])
    shown = [f"{name} {100 * count / total:.1f} % ({count:,})" for name, count in ranked[:SHOWN_LABELS]]
    more = f", and {len(ranked) - SHOWN_LABELS:,} more" if len(ranked) > SHOWN_LABELS else ""
    name = f"{found['label']}: " if found.get("label") else ""
    return f"{name}{', '.join(shown)}{more}; of {found['sampled']:,} rows"


def _columns(found: dict[str, Any]) -> list[str]:
    rows = [["column", "type", "becomes", "missing", "examples"]]
    for column in found["columns"]:
        missing = "" if column["missing"] is None else f"{100 * column['missing']:.1f} %"
        examples = ", ".join(_short(value) for value in column["examples"])
        rows.append([_short(column["name"]), _short(column["type"]), column["becomes"], missing, examples])
    widths = [max(len(row[k]) for row in rows) for k in range(4)]
    return [
        f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:<{widths[2]}}  {row[3]:>{widths[3]}}  {row[4]}".rstrip()
        for row in rows
    ]


def _short(value: Any) -> str:
    text = " ".join(str(value).split()) if not isinstance(value, float) else f"{value:.6g}"
    return text if len(text) <= WIDEST else text[: WIDEST - 3] + "..."


def _features(features: list[dict[str, Any]]) -> str:
    shown = []
    for feature in features[:SHOWN_FEATURES]:
        index, value, name = feature["index"], feature["value"], feature["name"]
        if name is None:
            shown.append(f"{index}:{value:.8g}")
        elif value == 1.0 and any(mark in name for mark in "=:*^"):
            shown.append(f"{name} ({index})")
        else:
            shown.append(f"{name}={value:.8g}" + (f" ({index})" if "^" in name or ":" in name else ""))
    more = f" ... {len(features) - SHOWN_FEATURES} more" if len(features) > SHOWN_FEATURES else ""
    return "  ".join(shown) + more
