"""Turn sections into text: aligned tables, and one list of promises with the target beside each number."""

from collections.abc import Iterable
from itertools import zip_longest

from bench import Cell, Check, Section


def table(columns: list[str], rows: list[list[Cell]], decimals: int | None = None) -> str:
    """First column left, the others right."""
    text = [columns, *([_cell(cell, decimals) for cell in row] for row in rows)]
    widths = [max(len(cell) for cell in column) for column in zip_longest(*text, fillvalue="")]
    lines = []
    for row in text:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=False)),
        ]
        lines.append("  " + "   ".join(cells).rstrip())
    lines.insert(1, "  " + "   ".join("-" * width for width in widths))
    return "\n".join(lines)


def section_text(section: Section) -> str:
    parts = [f"\n{section.title}"]
    if section.rows:
        parts.append(table(section.columns, section.rows, section.decimals))
    parts += [f"  * {note}" for note in section.notes]
    parts += [f"  {line}" for line in check_lines(section.checks)]
    return "\n".join(parts)


def check_lines(checks: Iterable[Check]) -> list[str]:
    checks = list(checks)
    width = max((len(check.what) for check in checks), default=0)
    return [_check(check, width) for check in checks]


def summary(sections: list[Section]) -> str:
    checks = [check for section in sections for check in section.checks]
    met = sum(check.met is True for check in checks)
    lines = "\n".join(f"  {line}" for line in check_lines(checks))
    return f"\nTargets: {met} of {len(checks)} met\n{lines}" if checks else "\nTargets: nothing to compare"


def _check(check: Check, width: int) -> str:
    verdict = {True: "met", False: "MISSED", None: "not measured"}[check.met]
    unit = check.unit if check.unit == "x" else f" {check.unit}"
    sign = "at least" if check.at_least else "at most"
    note = f" ({check.note})" if check.note else ""
    return (
        f"{check.what.ljust(width)}   {check.value:7.2f}{unit}   target {sign} {check.target:g}{unit}   {verdict}{note}"
    )


def _cell(cell: Cell, decimals: int | None) -> str:
    if cell is None or cell != cell:
        return "-"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return str(cell)
    if decimals is not None:
        return f"{cell:.{decimals}f}"
    return f"{cell:.0f}" if abs(cell) >= 100 else f"{cell:.1f}" if abs(cell) >= 10 else f"{cell:.3g}"
