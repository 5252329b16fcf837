"""From a text file to a model: one pass with everything counted, and the rate once start-up no longer matters."""

from functools import partial

from bench import Bench, Check, Section, failures, ratio
from data import Dataset
from peers import Peer
from process import Run, Timing, interleave


def end_to_end(bench: Bench) -> Section:
    """One pass over the main file: interpreter start, imports, reading, learning, writing the model."""
    data = bench.main
    runs: dict[str, list[Run]] = {peer.name: [] for peer in bench.trainers}

    def once(peer: Peer) -> float:
        runs[peer.name].append(bench.train(peer, data, sample_memory=True))
        return runs[peer.name][-1].seconds

    timings = interleave({peer.name: partial(once, peer) for peer in bench.trainers}, bench.repeat, bench.say)
    starts = interleave(
        {peer.name: partial(_seconds, bench, peer, bench.small) for peer in bench.trainers}, bench.repeat, _silent
    )
    section = Section(
        "end_to_end",
        f"Text to model, one pass over {data.megabytes:.0f} MB, everything counted",
        ["peer", "best s", "worst/best", "MB/s", "CPU s", "start-up s", "start-up %", "peak memory MB"],
        notes=failures(timings),
    )
    for name, timing in timings.items():
        if not timing.seconds:
            continue
        best = min(runs[name], key=lambda one: one.seconds)
        start = starts[name].best
        share = 100 * start / timing.best
        peak = max(one.peak_resident for one in runs[name]) / 1e6
        rate = data.megabytes / timing.best
        section.rows.append([name, timing.best, timing.spread, rate, best.cpu_seconds, start, share, peak])
    section.notes.append("start-up: the same command on 1000 rows; peak memory: VmHWM, mapped files included")
    section.raw = _raw(timings) | {"start_up": _raw(starts)}
    if {"vw", "streamsvm"} <= timings.keys():
        faster = ratio(timings["vw"].best, timings["streamsvm"].best)
        section.checks.append(Check("one pass from text, end to end, against vw", faster, 2.0))
    return section


def steady_state(bench: Bench) -> Section:
    """The slope between the main and the big file, which start-up cannot touch."""
    peers = [peer for peer in bench.trainers if peer.name in ("streamsvm", "vw")]
    jobs = {
        f"{peer.name} {data.megabytes:.0f} MB": partial(_seconds, bench, peer, data)
        for data in (bench.main, bench.big)
        for peer in peers
    }
    timings = interleave(jobs, bench.repeat, bench.say)
    section = Section(
        "steady_state",
        f"Steady state: slope between {bench.main.megabytes:.0f} MB and {bench.big.megabytes:.0f} MB",
        ["peer", "main best s", "worst/best", "big best s", "worst/best", "MB/s"],
        notes=failures(timings),
        raw=_raw(timings),
    )
    rates: dict[str, float] = {}
    for peer in peers:
        main, big = (timings[f"{peer.name} {data.megabytes:.0f} MB"] for data in (bench.main, bench.big))
        if main.seconds and big.seconds:
            rates[peer.name] = ratio(bench.big.megabytes - bench.main.megabytes, big.best - main.best)
            section.rows.append([peer.name, main.best, main.spread, big.best, big.spread, rates[peer.name]])
    if {"vw", "streamsvm"} <= rates.keys():
        faster = ratio(rates["streamsvm"], rates["vw"])
        section.checks.append(Check("steady state from text, against vw", faster, 3.0, note="aim 5x"))
    return section


def _seconds(bench: Bench, peer: Peer, data: Dataset) -> float:
    return bench.train(peer, data).seconds


def _raw(timings: dict[str, Timing]) -> dict[str, list[float]]:
    return {name: timing.seconds for name, timing in timings.items()}


def _silent(_: str) -> None:
    pass
