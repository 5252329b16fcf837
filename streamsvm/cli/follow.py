"""`streamsvm follow`: its options, how it goes, and what it says at the end."""

import json
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamsvm.cli.flags import FOLLOW_FLAGS, settings_from, with_flags
from streamsvm.cli.starting import printed

if TYPE_CHECKING:
    from streamsvm.progress import Progress

EXAMPLES = (
    "Example: streamsvm follow /var/log/clicks.log -o model.safetensors --metrics 9464; "
    "streamsvm follow 'logs/*.jsonl' --label click --until-idle"
)
EVERY_SECONDS = 60.0
MOST_CLASSES = 8  # that are named
# Title, figure, how it is written, in which unit, and how wide.
COLUMNS = (
    ("rows", "rows_total", "{:,.0f}", 1.0, 13),
    ("MB", "bytes_total", "{:,.1f}", 1e-6, 9),
    ("behind", "lag_bytes", "{:,.1f} MB", 1e-6, 9),
    ("loss", "loss", "{:.5f}", 1.0, 9),
    ("error", "error", "{:.2f}%", 100.0, 8),
    ("AUC", "auc", "{:.4f}", 1.0, 7),
    ("ECE", "calibration_error", "{:.4f}", 1.0, 7),
    ("skipped", "skipped_rows_total", "{:,.0f}", 1.0, 8),
)
HEADER = " ".join([f"{'time':>8}", *(title.rjust(width) for title, *_, width in COLUMNS)])


@with_flags(FOLLOW_FLAGS)
def follow(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="CONFIG.yaml | LOG...", help="Config files, or logs: paths, globs, directories."),
    ],
    given: dict[str, Any],
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting, as in --set follow.poll=1s; may be repeated.")
    ] = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print the settings and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but warnings and errors.")] = False,
) -> None:
    """Learn from logs while they are written: every line once, through rotation, restarts and kill -9.

    The model is kept up to date, and is always whole. Started again, it goes on from its checkpoint by itself. Ctrl-C
    and SIGTERM end it cleanly. Figures are those of the recent rows (--window), each predicted before it is learned.
    """
    settings = settings_from(inputs, given, sets or [], FOLLOW_FLAGS)
    from streamsvm.follow_settings import follow_settings

    settings = follow_settings(settings)
    if printed(settings, print_config, quiet, without=("tune",)):
        return
    from streamsvm.following import follow as run
    from streamsvm.interrupts import Interrupted

    display = Display(as_json=as_json, quiet=quiet)

    def ended(result: dict[str, Any]) -> None:
        display.close()
        print(json.dumps(result) if as_json else summary(result), flush=True)

    try:
        run(settings, display, ended=ended)
    except Interrupted as stop:
        print(f"streamsvm: {stop}; {f'kept: {stop.kept}' if stop.kept else 'nothing was learned yet'}", file=sys.stderr)
        return
    except KeyboardInterrupt:
        print("streamsvm: interrupted", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        display.close()


class Display:
    """A line whenever the rows have doubled or a minute has passed; on a terminal, one below them that changes."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self._as_json = as_json
        self._quiet = quiet
        self._live = sys.stderr.isatty() and not quiet and not as_json
        self._next = 0.0
        self._shown = float("-inf")
        self._rows = -1.0
        self._header = False
        self._open = False

    def note(self, text: str) -> None:
        if not self._quiet or text.startswith("warning"):
            self.close()
            print(text, file=sys.stderr, flush=True)

    def progress(self, now: "Progress") -> None:
        recent = now.recent or {}
        rows = recent.get("rows_total") or 0.0
        clock = time.monotonic()
        due = rows != self._rows and (rows >= self._next or clock - self._shown >= EVERY_SECONDS)
        if self._as_json:
            if due:
                print(json.dumps({"seconds": now.seconds, **recent}), flush=True)
        elif not self._quiet and (due or self._live):
            if not self._header:
                print(HEADER, file=sys.stderr)
                self._header = True
            end = "\n" if due else ""
            print(f"{chr(13) if self._live else ''}{row(recent)}", end=end, file=sys.stderr, flush=True)
            self._open = not due
        if due:
            self._rows, self._next, self._shown = rows, max(1.0, 2.0 * rows), clock

    def close(self) -> None:
        """Leave the terminal at the beginning of a line."""
        if self._open:
            print(file=sys.stderr, flush=True)
            self._open = False


def row(recent: Mapping[str, float | None]) -> str:
    cells = [time.strftime("%H:%M:%S")]
    for _, name, form, unit, width in COLUMNS:
        value = recent.get(name)
        cells.append(("" if value is None else form.format(unit * value)).rjust(width))
    return " ".join(cells)


def classes_text(classes: list[Any]) -> str:
    """Which classes a model tells apart, or how many if they are many."""
    names = [str(name) for name in classes]
    if len(names) > MOST_CLASSES:
        return f"{len(names):,} classes"
    return f"classes {', '.join(names[:-1])} and {names[-1]}"


def summary(result: dict[str, Any]) -> str:
    """What a person wants to read after it has ended."""
    recent, follow = result["recent"], result["follow"]
    skipped = f", {result['bad_rows']:,} malformed ones skipped" if result["bad_rows"] else ""
    files = "1 file" if follow["files"] == 1 else f"{follow['files']:,} files"
    lines = [f"learned  {result['examples']:,} rows of {files}{skipped}"]
    if recent.get("loss") is not None:
        figures = [f"loss {recent['loss']:.5f}", f"error {100 * recent['error']:.2f} %"]
        figures += [f"AUC {recent['auc']:.4f}"] if recent.get("auc") is not None else []
        figures += [f"ECE {recent['calibration_error']:.4f}"] if recent.get("calibration_error") is not None else []
        lines.append(f"recent   {', '.join(figures)} (the last {recent['rows']:,.0f} rows, predicted, then learned)")
    elif result.get("figures_from"):
        lines.append(f"recent   no loss and no error yet: they are told from {result['figures_from']:,} rows on")
    problems = {"truncated": "truncated files", "lost": "files lost", "unfinished": "incomplete lines"}
    problems |= {"too_long": "lines too long", "errors": "failed readings"}
    told = [f"{follow[name]:,} {what}" for name, what in problems.items() if follow[name]]
    lines += [f"problems {', '.join(told)}"] if told else []
    if not result["examples"]:
        return "\n".join(lines)
    lines.append(f"model    {result['model']} ({result['dim']:,} weights, {classes_text(result['classes'])})")
    if result["provisional"]:
        lines.append("         provisional: when more rows have come, all of them are learned anew")
    return "\n".join(lines)
