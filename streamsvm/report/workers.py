"""The chapter of a run on a cluster: what each worker did, and what it cost all of them to agree.

Up to `FEW` workers have a line and a row each. Of more there are quantiles, and a table that can be unfolded.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamsvm.crew import Record, Worker
from streamsvm.progress import Progress, Together, several
from streamsvm.report.figures import Axis, Band, Series, lines, palette
from streamsvm.report.learning import proof_line, step_ends
from streamsvm.report.markup import Content, Html, element, name_of
from streamsvm.report.story import COUNT, Chapter, Story, chapter, figure, gallery, keys, paragraph
from streamsvm.report.tables import small, table

FEW = 8  # workers that have a line each
MOST_ROWS = 300  # of the table
MOST_STEPS, FEW_STEPS = 60, 30  # of a line, and where there are more than two lines
FEWEST = 3  # slots of time, or proofs, that make a picture
NAMED = 5  # workers that are named in a sentence
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


def workers(story: Story) -> Chapter | None:
    """Who worked how much and when, and the proven gap against rounds and bytes."""
    record, told = story.recording.crew, story.result.get("cluster")
    if record is None or told is None:
        return None
    return chapter(
        "workers",
        "Workers",
        _told(told, record),
        gallery(_throughput(record), _busy(record)),
        gallery(*_gaps(story)),
        _tables(record.workers),
    )


def _told(told: dict[str, Any], record: Record) -> list[Html]:
    each = f", {size(told['sent'] / told['rounds'])} a round" if told["rounds"] else ""
    said = (
        f"{several(told['workers'], 'worker')} with {several(told['threads'], 'thread')} worked on "
        f"{several(told['shards'], 'shard')} in {several(told['rounds'], 'round')}: in each, all shards answer with "
        f"a vector, and these are added. {size(told['sent'])} of vectors were sent to and fro{each}. Reading took "
        f"{told['reading_seconds']:,.1f} s. Workers were busy for {100 * told['busy']:.0f} % of the time that they "
        "were there."
    )
    gone = [f"{one.name} after {one.gone:,.0f} s" for one in record.workers if one.gone is not None]
    late = [f"{one.name} after {one.came:,.0f} s" for one in record.workers if one.late]
    more = (
        [f"Lost: {_few(gone)}. What {'it' if len(gone) == 1 else 'they'} had was read again by others."] if gone else []
    )
    more += [f"Came later: {_few(late)}."] if late else []
    return [paragraph(said), *([paragraph(" ".join(more))] if more else [])]


def _few(names: Sequence[str]) -> str:
    rest = f", and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + rest


def size(count: float) -> str:
    """Bytes, to be read.

    >>> size(2_645_328), size(12), size(3.2e12)
    ('2.65 MB', '12 bytes', '3.2 TB')
    """
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if count >= unit:
            return f"{count / unit:,.3g} {name}" if count < 1000 * unit else f"{count / unit:,.0f} {name}"
    return f"{count:,.0f} bytes"


# Over time.


def coarser(record: Record, most: int = MOST_STEPS) -> tuple[list[float], Any, Any]:
    """Edges of at most so many steps, the rows a second of each worker in them, and the threads that were busy.

    Where a worker was not there, its rows a second are not 0 but nothing.
    """
    slots = len(record.busy_threads)
    places = np.unique(np.linspace(0, slots, min(slots, most) + 1).round().astype(np.int64))
    widths, edges = np.diff(record.edges), np.array(record.edges)[places]
    starts, ends = edges[:-1], edges[1:]
    rates = np.add.reduceat(np.array(record.rates) * widths, places[:-1], axis=1) / (ends - starts)
    busy = np.add.reduceat(np.array(record.busy_threads) * widths, places[:-1]) / (ends - starts)
    for rate, worker in zip(rates, record.workers, strict=True):
        rate[(ends <= worker.came) | (starts >= (worker.gone if worker.gone is not None else np.inf))] = np.nan
    return edges.tolist(), rates, busy


def _throughput(record: Record) -> Html | None:
    edges, rates, _ = coarser(record, MOST_STEPS if len(record.workers) <= 2 else FEW_STEPS)
    if len(edges) <= FEWEST or not np.nansum(rates):
        return None
    middles = [(a + b) / 2 for a, b in zip(edges, edges[1:], strict=False)]
    x = Axis("time in seconds")
    y = Axis("rows a second", kind=COUNT, limits=(0.0, 1.1 * float(np.nanmax(rates))))
    if len(rates) <= FEW:
        styles = [palette(place) for place in range(len(rates))]
        drawn = [Series(middles, rate.tolist(), *style, 1.6) for rate, style in zip(rates, styles, strict=True)]
        names = zip(record.workers, styles, strict=True)
        shown: Content = keys([(worker.name, *style) for worker, style in names])
        picture = lines("worker-rows", drawn, x, y)
        caption = "Rows that each worker went over: first as it read them, then in every pass. In dips it waits."
        return figure(picture, "Rows a second of each worker", caption, shown)
    least, low, middle, high, most = _quantiles(rates)
    band, drawn = Band(middles, low, high), [Series(middles, middle)]
    drawn += [Series(middles, least, "c2", False, 1.2), Series(middles, most, "c3", True, 1.2)]
    shown = keys([("median, with the middle half", "c1", False), ("slowest", "c2", False), ("fastest", "c3", True)])
    picture = lines("worker-rows", drawn, x, y, band=band)
    caption = f"Rows that {len(rates):,} workers went over, at each time the slowest, the middle half and the fastest."
    return figure(picture, "Rows a second of a worker", caption, shown)


def _quantiles(rates: Any) -> list[list[float]]:
    """Of the workers that were there at each time; 0 where nobody was."""
    there = ~np.isnan(rates)
    columns = zip(rates.T, there.T, strict=True)
    found = [np.quantile(column[seen], QUANTILES) if seen.any() else np.zeros(5) for column, seen in columns]
    return [list(map(float, one)) for one in np.array(found).T]


def _busy(record: Record) -> Html | None:
    edges, _, busy = coarser(record)
    if len(edges) <= FEWEST or not busy.any():
        return None
    there = sum(worker.threads for worker in record.there)
    y = Axis("threads", limits=(0.0, 1.12 * max(there, float(busy.max()))))
    picture = lines(
        "worker-busy",
        [Series(edges, [*busy.tolist(), float(busy[-1])], stairs=True)],
        Axis("time in seconds"),
        y,
        level=float(there),
    )
    caption = "Threads of all workers that had something to do; the dashed line is how many there were in the end."
    return figure(picture, "Threads at work", caption)


# The gap, and what it cost.


def _gaps(story: Story) -> list[Html]:
    known = [now for now in story.recording.proofs if now.cluster is not None and now.gap is not None and now.gap > 0.0]
    if len(known) < 2:
        return []
    most = max(_together(now).sent for now in known)
    unit, name = (1e9, "GB") if most >= 1e10 else (1e6, "MB")
    by_round = _gap(story, known, lambda now: float(_together(now).rounds), "round", "rounds", "Proven gap by round")
    by_size = _gap(
        story, known, lambda now: _together(now).sent / unit, "sent", f"{name} sent", "Proven gap by bytes sent"
    )
    return [by_round, by_size]


def _together(now: Progress) -> Together:
    assert now.cluster is not None
    return now.cluster


def _gap(
    story: Story, proofs: Sequence[Progress], place: Callable[[Progress], float], name: str, label: str, title: str
) -> Html:
    steps, tol = step_ends(story, proofs, place), story.result.get("tol")
    drawn = proof_line([place(now) for now in proofs], steps, [now.gap for now in proofs], "c1")
    whole = Axis(label, kind=COUNT, limits=(0.0, None))
    picture = lines(f"gap-{name}", [drawn], whole, Axis("relative gap", log=True), upright=steps, level=tol)
    caption = (
        "How far above the optimum the weights can be at most, after each exchange between the workers"
        if name == "round"
        else "The same against the vectors that went to workers and came from them"
    )
    caption += f"; the dashed line is the tolerance, {tol:g}." if tol is not None else "."
    return figure(picture, title, caption + (" Dotted lines begin another penalty." if steps else ""))


# One by one.


def _tables(found: Sequence[Worker]) -> list[Html]:
    if len(found) <= FEW:
        return [_each(found)]
    more = f", the first {MOST_ROWS}" if len(found) > MOST_ROWS else ""
    inside = element("details", element("summary", f"All {len(found):,} workers{more}"), _each(found[:MOST_ROWS]))
    return [_spread(found), inside]


def _rate(worker: Worker) -> float:
    """Rows a second while it was busy."""
    return worker.rows / worker.busy if worker.busy > 0.0 else 0.0


def _each(found: Sequence[Worker]) -> Html:
    several = any(worker.threads != 1 for worker in found)
    head = ["worker", "address", *(["threads"] if several else []), "shards", "rows", "rows a second when busy"]
    head += ["MB read", "busy", "idle", "there"]
    rows = [
        [
            worker.name,
            name_of(worker.address, 40),
            *([str(worker.threads)] if several else []),
            f"{worker.shards:,}",
            f"{worker.rows:,}",
            f"{_rate(worker):,.0f}",
            f"{worker.bytes / 1e6:,.1f}",
            f"{worker.busy:,.1f} s",
            f"{worker.idle:,.1f} s",
            _presence(worker),
        ]
        for worker in found
    ]
    return table(head, rows, "What each worker did")


def _presence(worker: Worker) -> str:
    """always, from 12 s on, until 30 s"""
    came = f"from {worker.came:,.0f} s on" if worker.late else ""
    gone = f"until {worker.gone:,.0f} s" if worker.gone is not None else ""
    if came and gone:
        return f"{worker.came:,.0f} to {worker.gone:,.0f} s"
    return came or gone or "always"


def _spread(found: Sequence[Worker]) -> Html:
    """Least, median and most of what workers did."""
    asked: list[tuple[str, Callable[[Worker], float], Callable[[float], str]]] = [
        ("shards", lambda worker: worker.shards, small),
        ("rows", lambda worker: worker.rows, lambda value: f"{value:,.0f}"),
        ("rows a second when busy", _rate, lambda value: f"{value:,.0f}"),
        ("MB read", lambda worker: worker.bytes / 1e6, lambda value: f"{value:,.1f}"),
        ("busy", lambda worker: worker.busy, lambda value: f"{value:,.1f} s"),
        ("idle", lambda worker: worker.idle, lambda value: f"{value:,.1f} s"),
    ]
    rows = [
        [title, *(form(float(value)) for value in np.quantile([of(worker) for worker in found], (0.0, 0.5, 1.0)))]
        for title, of, form in asked
    ]
    return table([f"of {len(found):,} workers", "least", "median", "most"], rows, "What workers did")


# For programs.


def data_of(record: Record) -> dict[str, Any]:
    """What is known of the workers; rows a second of each where they are few, else quantiles of all."""
    rates = record.rates
    timeline: dict[str, Any] = {"edges": record.edges, "busy_threads": record.busy_threads}
    if len(rates) <= FEW:
        timeline["rows_a_second"] = {one.name: rate for one, rate in zip(record.workers, rates, strict=True)}
    else:
        names = ("least", "lower_quartile", "median", "upper_quartile", "most")
        found = _quantiles(coarser(record, len(record.busy_threads))[1])
        timeline["rows_a_second"] = dict(zip(names, found, strict=True))
    return {"workers": [worker._asdict() for worker in record.workers], "timeline": timeline}
