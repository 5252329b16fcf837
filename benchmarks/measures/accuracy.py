"""Is it as good as it is fast? Test error after one pass with default settings, on generated and on real data."""

import math

from bench import Bench, Check, Section
from data import Pair, real_pairs
from peers import Peer
from process import PeerFailedError


def compare_errors(bench: Bench) -> Section:
    section = Section(
        "accuracy",
        "Test error in %, default settings",
        ["data", "passes", *(peer.name for peer in bench.trainers), "+/-"],
        notes=[
            "+/-: one standard error of the best figure in the row",
            "liblinear runs until it converges, whatever the passes named",
        ],
        decimals=2,
    )
    generated = Pair("rcv1-like", bench.main, bench.test)
    _compare(bench, section, generated, 1)
    if bench.real:
        for pair in real_pairs(bench.real, bench.work / "real"):
            if pair.skipped:
                section.notes.append(f"{pair.name} is left out: {pair.skipped}")
                continue
            for passes in (1, bench.passes):
                _compare(bench, section, pair, passes)
    return section


def _compare(bench: Bench, section: Section, pair: Pair, passes: int) -> None:
    errors: dict[str, float] = {}
    for peer in bench.trainers:
        try:
            errors[peer.name] = 100 * _error(bench, peer, pair, passes)
        except (PeerFailedError, ValueError, KeyError) as error:
            section.notes.append(f"{peer.name} on {pair.name}: {error}")
    if not errors or pair.test is None:
        return
    best = min(errors.values()) / 100
    noise = 100 * math.sqrt(best * (1 - best) / pair.test.rows)
    cells = [errors.get(peer.name) for peer in bench.trainers]
    section.rows.append([pair.name, passes, *cells, noise])
    section.raw[f"{pair.name} {passes}"] = errors
    bench.say("  " + pair.name + f" {passes}: " + ", ".join(f"{name} {error:.2f} %" for name, error in errors.items()))
    for other in ("vw", "sklearn"):
        if passes == 1 and other in errors and "streamsvm" in errors:
            worse = errors["streamsvm"] - errors[other]
            check = Check(f"error on {pair.name}, above that of {other}", worse, 0.0, "points", at_least=False)
            section.checks.append(check)


def _error(bench: Bench, peer: Peer, pair: Pair, passes: int) -> float:
    assert pair.train and pair.test
    model = bench.model(peer, pair.train, passes)  # an earlier measure may have trained it already
    if not model.exists():
        bench.train(peer, pair.train, passes)
    return peer.test_error(model, pair.test)
