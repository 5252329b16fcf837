"""What a further pass costs, once the rows are cached or in RAM.

Peers that read a file are timed from outside with 1, 2 and N passes, in turns:

    further pass   (T(N) - T(1)) / (N - 1)     what more passes cost a user; writing the cache is in it
    cached pass    (T(N) - T(2)) / (N - 2)     both runs have written the cache, so only passes over it remain

In-RAM peers time their own passes after one reading, because reading takes them so much longer than a pass.
"""

from functools import partial

from bench import Bench, Check, Section, failures, ratio
from peers import InRam, Peer
from peers.streamsvm_cli import pass_ends
from process import Run, Timing, interleave

FROM_FILE = ("streamsvm", "streamsvm-sgd", "vw")


def further_passes(bench: Bench) -> Section:
    data, many = bench.main, bench.passes
    million = data.features / 1e6
    from_file = [peer for peer in bench.trainers if peer.name in FROM_FILE]
    in_ram = [peer for peer in bench.peers if isinstance(peer, InRam)]
    last_run: dict[str, Run] = {}

    def timed(peer: Peer, passes: int) -> float:
        last_run[peer.name] = bench.train(peer, data, passes)
        return last_run[peer.name].seconds

    jobs = {f"{peer.name}, {n} passes": partial(timed, peer, n) for n in (1, 2, many) for peer in from_file}
    jobs |= {f"{peer.name}, one further pass": partial(peer.pass_seconds, data, many) for peer in in_ram}
    timings = interleave(jobs, bench.repeat, bench.say)
    section = Section(
        "passes",
        f"Each further pass over {million:.1f} M features (N = {many})",
        ["peer", "further pass s", "M features/s", "cached pass s", "M features/s cached", "worst/best"],
        notes=[*failures(timings), "further pass: writing the cache included; cached pass: without it"],
        raw={name: timing.seconds for name, timing in timings.items()},
    )
    further: dict[str, float] = {}
    cached: dict[str, float] = {}
    for peer in from_file:
        further[peer.name], cached[peer.name], spread = _by_difference(timings, peer.name, many)
        section.rows.append(_row(peer.name, million, further[peer.name], cached[peer.name], spread))
        section.notes += _told_by_progress(peer, last_run.get(peer.name), million)
    for ram_peer in in_ram:
        timing = timings[f"{ram_peer.name}, one further pass"]
        further[ram_peer.name] = cached[ram_peer.name] = timing.best
        section.rows.append(_row(ram_peer.name, million, timing.best, timing.best, timing.spread))
    for name in ("streamsvm", "streamsvm-sgd"):
        for kind, seconds in (("further pass", further), ("cached pass alone", cached)):
            for other, target in (("vw", 5.0), ("svmsgd.c", 1.0)):
                if name in seconds and other in seconds:
                    value = ratio(seconds[other], seconds[name])
                    section.checks.append(Check(f"{name}: {kind}, against {other}", value, target))
    return section


def _by_difference(timings: dict[str, Timing], name: str, many: int) -> tuple[float, float, float]:
    """Seconds of a further pass, of a cached pass, and the noise of the longest run."""
    first, second, last = (timings[f"{name}, {passes} passes"] for passes in (1, 2, many))
    return (last.best - first.best) / (many - 1), (last.best - second.best) / (many - 2), last.spread


def _row(name: str, million: float, further: float, cached: float, spread: float) -> list[str | float | None]:
    return [name, further, ratio(million, further), cached, ratio(million, cached), spread]


def _told_by_progress(peer: Peer, done: Run | None, million: float) -> list[str]:
    """streamsvm's own progress lines say when each pass ended: a second opinion on the differences above."""
    if done is None or not peer.name.startswith("streamsvm"):
        return []
    ends = pass_ends(done.output)
    lengths = [after - before for before, after in zip(ends, ends[1:], strict=False)]
    if not lengths or min(lengths) <= 0:
        return [f"{peer.name}: its progress lines do not tell when passes ended"]
    return [f"{peer.name}: {million / min(lengths):.0f} M features/s in its best further pass, by its progress lines"]
