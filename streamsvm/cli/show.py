"""How a run looks: a live display on a terminal, aligned lines in a log, JSON lines for programs."""

import json
import math
import sys
import time
from typing import Any, TextIO

from streamsvm.cli.pace import Pace, moving, stage
from streamsvm.cli.show_metrics import metrics_line
from streamsvm.progress import Progress, several

EVERY_SECONDS = 15.0
SOON = 2.0  # seconds until the first line without figures
JUDGED = {
    "progressive": "scored before they were learned",
    "held-out": "that were held out",
    "left-out": "left out of a further fit",
}
HEADER = f"{'pass':>5} {'examples':>13} {'MB':>9} {'MB/s':>7} {'loss':>9} {'error':>8} {'new loss':>9} {'new err':>8}"
PROOF_HEADER = f"{'pass':>5} {'examples':>13} {'seconds':>9} {'objective':>12} {'at least':>12} {'gap':>9} {'error':>8}"


class Lines:
    """A line whenever the number of examples has doubled, or fifteen seconds have passed.

    Of a solver that proves its gap: whenever that is known anew, if it is less than two thirds of the one shown last.
    On a cluster, before there are figures, while workers read or learn the first rows: how much, when it has doubled.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._next = 0
        self._shown_at = 0.0
        self._before: Progress | None = None
        self._now: Progress | None = None
        self._first: Progress | None = None
        self._read = 0  # bytes, by now
        self._stage = ""  # before there are figures, and when to say how far it is: after so many seconds, or bytes
        self._due: tuple[float, float] = (0.0, 0.0)
        self._pace = Pace()
        self._rate_by_now: float | None = None

    def note(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    def progress(self, now: Progress) -> None:
        if self._first is None or now.bytes < self._read:  # bytes that are read are not those that are learned
            self._first = now
        self._read = now.bytes
        self._rate_by_now = self._pace.rate(now)
        if now.loss is None and now.objective is None and self._before is None:
            if now.cluster is not None:
                self._move(now)
            return
        if now.objective is not None:
            self._prove(now)
            return
        if self._now is not None and now.pass_number != self._now.pass_number and self._before is not self._now:
            self._show(self._now)
        self._now = now
        if now.examples >= self._next or now.seconds - self._shown_at >= EVERY_SECONDS:
            self._show(now)

    def _move(self, now: Progress) -> None:
        """Say how far it is, without figures: soon, then whenever that has doubled, or fifteen seconds have passed."""
        if stage(now) != self._stage:
            self._stage, self._due = stage(now), (now.seconds + SOON, math.inf)
        elif now.bytes and (now.seconds >= self._due[0] or now.bytes >= self._due[1]):
            self.moving_line(now, self._rate_by_now)
            self._due = (now.seconds + EVERY_SECONDS, 2.0 * now.bytes)

    def _show(self, now: Progress) -> None:
        if now.loss is None:
            return
        before = self._before
        if before is None:
            self.header()
        elif (now.pass_number, now.examples, now.loss) == (before.pass_number, before.examples, before.loss):
            self._before = now
            return
        self.line(now, self._rate(now), *_since(self._before, now))
        self._next = 2 * now.examples
        self._shown_at = now.seconds
        self._before = now

    def _prove(self, now: Progress) -> None:
        fresh = self._now is None or (now.objective, now.gap) != (self._now.objective, self._now.gap)
        self._now = now
        if not fresh:
            return
        before = self._before
        late = now.seconds - self._shown_at >= EVERY_SECONDS
        if before is None or before.gap is None or now.gap is None or now.gap < before.gap / 1.5 or late:
            self._show_proof(now)

    def _show_proof(self, now: Progress) -> None:
        if self._before is None:
            self.header(PROOF_HEADER)
        self.proof_line(now)
        self._shown_at = now.seconds
        self._before = now

    def _rate(self, now: Progress) -> float | None:
        """MB/s since the previous line; of many workers, which tell at once, that of the last seconds."""
        if now.cluster is not None:
            return self._rate_by_now
        since = self._before or self._first
        if since is None or now.seconds <= since.seconds:
            return None
        return (now.bytes - since.bytes) / 1e6 / (now.seconds - since.seconds)

    def header(self, text: str = HEADER) -> None:
        print(text, file=self._out)

    def moving_line(self, now: Progress, rate: float | None) -> None:
        print(f"{stage(now)}  {moving(now, rate)}", file=self._out, flush=True)

    def proof_line(self, now: Progress) -> None:
        print(proof_row(now), file=self._out, flush=True)

    def line(self, now: Progress, rate: float | None, new_loss: float, new_error: float) -> None:
        print(row(now, rate, new_loss, new_error), file=self._out, flush=True)

    def end(self) -> None:
        """The last line, if it has not been shown."""
        if self._now is None or self._now is self._before:
            return
        if self._now.objective is None:
            self._show(self._now)
        elif self._before is None or self._now.gap != self._before.gap or self._now.objective != self._before.objective:
            self._show_proof(self._now)

    def close(self) -> None:
        """Leave the terminal as it was, however the run ended."""


def row(now: Progress, rate: float | None, new_loss: float, new_error: float) -> str:
    return (
        f"{now.pass_number:>5} {now.examples:>13,} {now.bytes / 1e6:>9,.1f} {f'{rate:,.0f}' if rate else '':>7} "
        f"{now.loss:>9.5f} {100 * (now.error or 0):>7.2f}% {new_loss:>9.5f} {100 * new_error:>7.2f}%"
    )


def proof_row(now: Progress) -> str:
    dual = f"{now.dual:>12.7f}" if now.dual is not None else f"{'':>12}"
    gap = f"{max(now.gap, 0.0):>9.2e}" if now.gap is not None else f"{'':>9}"
    return (
        f"{now.pass_number:>5} {now.examples:>13,} {now.seconds:>9,.1f} {now.objective:>12.7f} {dual} {gap} "
        f"{100 * (now.error or 0):>7.2f}%"
    )


def _since(before: Progress | None, now: Progress) -> tuple[float, float]:
    """Loss and error of the rows since the previous line."""
    loss, error = now.loss or 0.0, now.error or 0.0
    if before is None or before.pass_number != now.pass_number or before.loss is None:
        return loss, error
    fresh = now.weight - before.weight
    if fresh <= 0:
        return loss, error
    return (
        (loss * now.weight - before.loss * before.weight) / fresh,
        (error * now.weight - (before.error or 0.0) * before.weight) / fresh,
    )


class JsonLines(Lines):
    """The same lines as objects on standard output; notes on standard error."""

    def __init__(self, out: TextIO, notes: TextIO | None) -> None:
        super().__init__(out)
        self._notes = notes

    def note(self, text: str) -> None:
        if self._notes is not None:
            print(text, file=self._notes, flush=True)

    def header(self, text: str = HEADER) -> None:
        pass

    def moving_line(self, now: Progress, rate: float | None) -> None:
        self.line(now, rate, None, None)

    def proof_line(self, now: Progress) -> None:
        self.line(now, None, now.loss or 0.0, now.error or 0.0)

    def line(self, now: Progress, rate: float | None, new_loss: float | None, new_error: float | None) -> None:
        shown = {
            "pass": now.pass_number,
            "examples": now.examples,
            "bytes": now.bytes,
            "features": now.features,
            "loss": now.loss,
            "error": now.error,
            "new_loss": new_loss,
            "new_error": new_error,
            "objective": now.objective,
            "dual": now.dual,
            "gap": now.gap,
            "fraction": now.fraction,
            "seconds": now.seconds,
            **(now.cluster._asdict() if now.cluster is not None else {}),
        }
        print(json.dumps(shown), file=self._out, flush=True)


class Live(Lines):
    """The lines scroll by, and a bar below them shows how far the pass is."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        super().__init__(sys.stderr)
        self._console = Console(stderr=True, highlight=False)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[moving]}"),
            TimeRemainingColumn(),
        )
        self._bar = Bar(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task("starting", total=None, moving="")
        self._drawn_at = self._fraction = 0.0
        self._bar.start()

    def note(self, text: str) -> None:
        style = "yellow" if text.startswith("warning") else "dim"
        self._bar.console.print(text, style=style, soft_wrap=True, markup=False)

    def header(self, text: str = HEADER) -> None:
        self._bar.console.print(text, style="bold")

    def moving_line(self, now: Progress, rate: float | None) -> None:
        pass  # the bar says so

    def proof_line(self, now: Progress) -> None:
        self._bar.console.print(proof_row(now), markup=False)

    def line(self, now: Progress, rate: float | None, new_loss: float, new_error: float) -> None:
        self._bar.console.print(row(now, rate, new_loss, new_error), markup=False)

    def progress(self, now: Progress) -> None:
        super().progress(now)
        if time.monotonic() - self._drawn_at < 0.1:
            return
        self._drawn_at = time.monotonic()
        if now.fraction < self._fraction:
            self._bar.reset(self._task)  # or the time that is left would be that of the pass before
        self._fraction = now.fraction
        self._bar.update(
            self._task,
            total=1.0 if now.fraction else None,
            completed=now.fraction,
            description="reading" if stage(now) == "reading" else f"pass {max(now.pass_number, 1)}/{now.passes}",
            moving=moving(now, self._rate_by_now),
        )

    def close(self) -> None:
        self._bar.stop()


class Quiet(Lines):
    """Only warnings."""

    def note(self, text: str) -> None:
        if text.startswith("warning"):
            super().note(text)

    def progress(self, now: Progress) -> None:
        pass

    def end(self) -> None:
        pass


def listener_for(*, as_json: bool, quiet: bool) -> Lines:
    if as_json:
        return JsonLines(sys.stdout, None if quiet else sys.stderr)
    if quiet:
        return Quiet(sys.stderr)
    if sys.stderr.isatty():
        return Live()
    return Lines(sys.stderr)


def summary(result: dict[str, Any], model_text: str) -> str:
    """What a person wants to read after training."""
    passes = "1 pass" if result["passes"] == 1 else f"{result['passes']} passes"
    lines = [
        f"trained  {result['examples']:,} examples, {passes}, {result['seconds']:.2f} s",
    ]
    if result.get("cluster"):
        lines.append("cluster  " + crew(result["cluster"]))
    if result["loss"] is not None:
        how = "all rows, with the weights at the end" if "tol" in result else "rows predicted, then learned"
        lines.append(f"train    loss {result['loss']:.5f}, error {100 * result['error']:.2f} % ({how})")
    if result["holdout"]:
        held = result["holdout"]
        lines.append(
            f"held out loss {held['loss']:.5f}, error {100 * held['error']:.2f} % after pass {held['pass']} "
            f"(one of {held['every']} rows, {held['examples']:,} in all, not learned)"
        )
    if result["objective"] is not None or result["dual"] is not None:
        lines.append("optimum  " + certificate(result))
    if result.get("path"):
        lines.append(f"path     best --l2 {result['l2']:g} of {len(result['path'])} (least loss on held-out rows)")
    if result["zeros"] is not None:
        lines.append(f"weights  {result['zeros']:,} of {result['dim']:,} are exactly zero")
    lines += judged_lines(result)
    if result.get("test"):
        lines.append("test     " + metrics_line(result["test"]))
    lines.append(f"model    {model_text}")
    return "\n".join(lines)


def crew(told: dict[str, Any]) -> str:
    """Who has worked on a cluster, and what it has cost to agree."""
    parts = [several(told["workers"], "worker"), several(told["shards"], "shard")]
    parts += [several(told["rounds"], "round"), f"{told['sent'] / 1e6:,.1f} MB sent"]
    parts += [f"workers busy for {100 * told['busy']:.0f} % of the time"]
    parts += [f"{several(told['lost'], 'worker')} lost"] if told["lost"] else []
    parts += [f"{told['came_later']:,} came later"] if told["came_later"] else []
    return ", ".join(parts)


def judged_lines(result: dict[str, Any]) -> list[str]:
    """Where probabilities and thresholds come from, if there are any."""
    lines, how, thresholds = [], result.get("calibration"), result.get("thresholds")
    if how:
        lines.append(f"chances  probabilities by {how['kind']}, from {how['rows']:,} rows {JUDGED[how['on']]}")
    if thresholds and len(thresholds) == 1:
        lines.append(f"decides  at a score above {thresholds[0]:.4g}")
    elif thresholds:
        lines.append(f"decides  by scores less a threshold for each of {len(thresholds):,} classes")
    return lines


def certificate(result: dict[str, Any]) -> str:
    """What is known of the distance from the optimum."""
    objective, dual, gap = result["objective"], result["dual"], result["gap"]
    if objective is None:
        return f"no weights have an objective below {dual:.6g} (--objective tells how far these are)"
    if dual is None:
        return f"objective {objective:.6g}; no bound is known for this solver and loss"
    return f"objective {objective:.6g}, {proof(gap)}"


def proof(gap: float) -> str:
    """What a gap, which is a share of the objective, says about the least possible one."""
    above = 100.0 * max(gap, 0.0) / (1.0 - gap) if gap < 1.0 else math.inf
    if above > 100.0:
        return "of which little is proven yet"
    return f"proven to be at most {f'{above:.0f}' if above >= 10.0 else f'{above:.2g}'} % above the least possible"


def tune_summary(result: dict[str, Any], model_text: str) -> str:
    """The candidates as a table, and what to do with the best."""
    rows = result["candidates"]
    shown = [("l2", "{:.3g}"), ("eta0", "{:.3g}"), ("passes", "{}"), ("loss", "{:.5f}"), ("error", "{:.2%}")]
    shown += [("held_out_loss", "{:.5f}"), ("held_out_error", "{:.2%}")]
    if any(row["l1"] for row in rows):
        shown.insert(1, ("l1", "{:.3g}"))
    for key in ("loss_kind", "solver"):
        if len({row[key] for row in rows}) > 1:
            shown.insert(0, (key, "{}"))
    titles = {"loss_kind": "loss kind", "held_out_loss": "held-out loss", "held_out_error": "held-out error"}
    cells = [[titles.get(key, key) for key, _ in shown]]
    cells += [[form.format(row[key]) if row[key] is not None else "-" for key, form in shown] for row in rows]
    widths = [max(len(line[k]) for line in cells) for k in range(len(shown))]
    marks = ["  ", *("* " if row["best"] else "  " for row in rows)]
    table = [
        mark + "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True))
        for mark, line in zip(marks, cells, strict=True)
    ]
    l1 = f" --l1 {result['l1']:.3g}" if result["l1"] else ""
    best = f"--solver {result['solver']} --loss {result['loss_kind']} --l2 {result['l2']:.3g}{l1}"
    lines = [
        *table,
        f"tuned    {result['examples']:,} examples, {len(rows)} candidates, {result['seconds']:.2f} s",
        f"best     {best}  (least {result['by']} on the {result['held_out_examples']:,} rows held out, one of "
        f"{result['holdout']})",
    ]
    lines += judged_lines(result)
    if result.get("test"):
        lines.append("test     " + metrics_line(result["test"]))
    lines.append(f"model    {model_text}")
    return "\n".join(lines)
