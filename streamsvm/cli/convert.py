"""`streamsvm convert`: its options, how far it is, and what it says at the end."""

import json
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamsvm.cli.flags import FLAGS, complete, settings_from, with_flags
from streamsvm.errors import ConfigError
from streamsvm.offered import WRITTEN

if TYPE_CHECKING:
    from streamsvm.stream import Tally

TARGETS = ("auto", *WRITTEN)
NAMES = ("format", "label", "weight", "columns", "delimiter", "limit", "on_bad_row", "memory", "threads")
CONVERT_FLAGS = {name: FLAGS[name] for name in NAMES}
EPILOG = (
    "Example: streamsvm convert clicks.csv.gz clicks.parquet; "
    "streamsvm convert 'part-*.parquet' all.svm --label click; zcat a.svm.gz | streamsvm convert - rows.arrow"
)
EVERY_SECONDS = 15.0


@with_flags(CONVERT_FLAGS)
def convert(
    inputs: Annotated[list[str], typer.Argument(metavar="IN", help="Files, globs, directories, urls, or -.")],
    output: Annotated[str, typer.Argument(metavar="OUT", help="File to write, or - with --to.")],
    given: dict[str, Any],
    to: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(TARGETS)}. [default: by the ending of OUT]",
            show_default=False,
            autocompletion=complete(*TARGETS),
        ),
    ] = "auto",
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting, as in --set features.hash_bits=24.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but the result and errors.")] = False,
) -> None:
    """Convert data from any format to any other, all columns as they are or as rows of features (libsvm).

    Between tables (csv, jsonl, parquet, arrow) all columns are kept. LIBSVM and VW rows become columns label, weight,
    indices and values. For libsvm, tables become features as training would make them; --set features... applies.
    OUT has its name when all of it is written, and not before.
    """
    settings = settings_from([], given, sets or [], FLAGS)
    if to not in TARGETS:
        raise ConfigError(f"--to {to}: must be one of {', '.join(TARGETS)}")
    from streamsvm.config import expand
    from streamsvm.converting import convert as run
    from streamsvm.converting import target_of
    from streamsvm.interrupts import Interrupted, noted
    from streamsvm.io.urls import redact_url

    target = target_of(expand(output), to)
    display = _Display(quiet)
    try:
        with noted():
            result = run(settings, tuple(inputs), target, display.report, display.note)
    except Interrupted as stop:
        display.close()
        print(f"streamsvm: {stop}; {redact_url(target.url)} was not written", file=sys.stderr)
        raise typer.Exit(128 + stop.number) from None
    except KeyboardInterrupt:
        display.close()
        print(f"streamsvm: interrupted; {redact_url(target.url)} was not written", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        display.close()
    if result["bad_rows"]:
        print(f"warning: skipped {result['bad_rows']} malformed rows: {'; '.join(result['faults'])}", file=sys.stderr)
    where = sys.stderr if target.url == "-" else sys.stdout
    print(json.dumps(result) if as_json else _summary(result), file=where)


def _summary(result: dict[str, Any]) -> str:
    size = f", {result['written'] / 1e6:,.1f} MB" if result["written"] is not None else ""
    speed = f"{result['bytes'] / 1e6 / max(result['seconds'], 1e-9):,.0f} MB/s"
    return (
        f"converted {result['rows']:,} rows of {result['from']} ({result['bytes'] / 1e6:,.1f} MB) to "
        f"{result['output']} ({result['to']}{size}) in {result['seconds']:.2f} s, {speed}"
    )


class _Display:
    """A line of standard error whenever the rows have doubled or time has passed; on a terminal, one that changes."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self._begun = self._shown = time.monotonic()
        self._next = 0
        self._open = False

    def note(self, text: str) -> None:
        if not self._quiet or text.startswith("warning"):
            self.close()
            print(text, file=sys.stderr, flush=True)

    def report(self, tally: "Tally") -> None:
        now = time.monotonic()
        due = now - self._shown > 0.2 if self._live else tally.rows >= self._next or now - self._shown > EVERY_SECONDS
        if self._quiet or not due:
            return
        if not self._next and not self._live:
            print(f"{'rows':>13} {'MB':>9} {'rows/s':>11}", file=sys.stderr)
        rate = tally.rows / max(now - self._begun, 1e-9)
        line = f"{tally.rows:>13,} {tally.bytes / 1e6:>9,.1f} {rate:>11,.0f}"
        print(f"\r{line} " if self._live else line, end="" if self._live else "\n", file=sys.stderr, flush=True)
        self._open = self._live
        self._shown, self._next = now, 2 * tally.rows

    def close(self) -> None:
        """Leave the terminal at the beginning of a line."""
        if self._open:
            print(file=sys.stderr, flush=True)
            self._open = False
