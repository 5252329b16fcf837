#!/usr/bin/env python3
"""Measure streamsvm against its peers, side by side, with one command.

usage: python benchmarks/run.py [--size 1.2GB | --rows N] [--big 4.8GB] [--repeat 3] [--only vw,streamsvm] [--quick] ...

Writes results.json, results.txt, results.png and gap.png to --out. How and why: README.md beside this file.
"""

import argparse
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import Bench, Choice, Section
from data import TEST_SEED, bytes_of, generated, rows_of
from gap_picture import draw_gaps
from machine import describe
from measures import MEASURES
from peers import InRam, Peer, all_peers
from picture import draw
from report import section_text, summary
from sets import SETS

Say = Callable[[str], None]
HERE = Path(__file__).resolve().parent
LOSSES = ["hinge", "squared_hinge"]
BIG = {"steady_state", "memory"}  # measures with a second, larger file
OWN_FILES = {
    "tables_dense",
    "tables_clicks",
    "classes",
    "probabilities",
    "estimators",
    "defaults",
}  # measures that ask for no generated text


def main() -> None:
    args = options()
    args.generated.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)
    machine = describe()
    scratch = tempfile.TemporaryDirectory(prefix="work-", dir=args.generated)
    with scratch as work, open(args.out / "results.txt", "w") as log:

        def say(text: str) -> None:
            print(text, file=sys.stderr if args.json else sys.stdout, flush=True)
            print(text, file=log, flush=True)

        say("Machine\n" + "\n".join(f"  {name}: {value}" for name, value in machine.items()))
        peers = present(all_peers(Path(work)), args.only, say)
        bench = prepare(args, peers, Path(work), say)
        sections = measure(bench, args.measure)
        say(summary(list(sections.values())))
        size = f"{bench.main.megabytes:.0f} MB of text"
        caption = f"{machine['cpu']}, {machine['cores']} cores; {size}; best of {args.repeat}, runs interleaved"
        missing = draw(sections, caption, args.out / "results.png")
        say(f"\nno picture: {missing}" if missing else f"\npicture: {args.out / 'results.png'}")
        if "gap" in sections and not missing:
            missing = draw_gaps(sections["gap"], f"{machine['cpu']}, {machine['cores']} cores", args.out / "gap.png")
            say(f"no picture of gaps: {missing}" if missing else f"picture: {args.out / 'gap.png'}")
        settings = {peer.name: peer.settings for peer in bench.peers}
    results = {
        "machine": machine,
        "arguments": {name: str(value) for name, value in vars(args).items()},
        "peers": settings,
        "files": {name: getattr(bench, name)._asdict() for name in ("small", "part", "main", "big", "test")},
        "sections": {key: section.as_json() for key, section in sections.items()},
    }
    (args.out / "results.json").write_text(json.dumps(results, indent=1, default=str) + "\n")
    if args.json:
        print(json.dumps(results, default=str))


def present(peers: list[Peer | InRam], only: list[str], say: Say) -> list[Peer | InRam]:
    """Those asked for that can run here; the others are named with the reason."""
    say("\nPeers")
    found = []
    for peer in peers:
        if only and not any(peer.name == name or peer.name.startswith((f"{name}-", f"{name}.")) for name in only):
            continue
        reason = peer.available()
        say(f"  {peer.name}: {f'SKIPPED: {reason}' if reason else peer.settings}")
        if not reason:
            found.append(peer)
    return found


def prepare(args: argparse.Namespace, peers: list[Peer | InRam], work: Path, say: Say) -> Bench:
    """Generate what is missing, then let every peer run once so that nothing is compiled on the clock."""
    say("\nFiles")
    files = {}
    rows = {"small": 1000, "part": args.part_rows, "main": args.rows, "big": args.big_rows, "test": args.test_rows}
    for name, count in rows.items():
        files[name] = one = generated(args.generated, count, TEST_SEED if name == "test" else 0)
        say(f"  {name}: {one.rows} rows, {one.features / 1e6:.1f} M features, {one.megabytes:.1f} MB")
    bench = Bench(
        peers=peers,
        **files,
        folder=args.generated,
        dense_rows=args.dense_rows,
        click_rows=args.click_rows,
        work=work,
        repeat=args.repeat,
        passes=args.passes,
        budget=args.memory,
        real=args.real,
        losses=args.losses,
        costs=args.costs,
        quick=args.quick,
        say=say,
        choice=Choice(tuple(args.sets), args.fresh, tuple(shlex.split(args.train_options)), args.upper),
    )
    if args.measure != ["defaults"]:  # which holds no clock
        say("\nWarm-up")
        bench.warm_up()
    return bench


def measure(bench: Bench, wanted: list[str]) -> dict[str, Section]:
    sections = {}
    for key, question in MEASURES.items():
        if wanted and key not in wanted:
            continue
        started = time.perf_counter()
        bench.say(f"\n[{key}]")
        sections[key] = question(bench)
        bench.say(section_text(sections[key]))
        bench.say(f"  ({time.perf_counter() - started:.0f} s)")
    return sections


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="1.2GB", help="LIBSVM text of the main file (default %(default)s)")
    parser.add_argument("--rows", type=int, help="rows of the main file, instead of --size")
    parser.add_argument(
        "--big", default="4.8GB", help="the larger file of the slope and of memory (default %(default)s)"
    )
    parser.add_argument("--repeat", type=int, default=3, help="rounds; the best run counts (default %(default)s)")
    parser.add_argument("--passes", type=int, default=10, help="N of the further passes (default %(default)s)")
    parser.add_argument("--memory", default="256MB", help="budget given to streamsvm in the memory measure")
    parser.add_argument("--only", type=_words, default=[], metavar="PEERS", help="comma-separated peers")
    parser.add_argument("--measure", type=_words, default=[], metavar="NAMES", help=f"any of {','.join(MEASURES)}")
    parser.add_argument(
        "--real", "--data", type=Path, metavar="DIR", help="real data: NAME.train.svm.* with NAME.test.svm.*, Parquet"
    )
    parser.add_argument("--sets", type=_words, default=[], metavar="NAMES", help=f"of defaults: {','.join(SETS)}")
    parser.add_argument(
        "--fresh", action=argparse.BooleanOptionalAction, help="of defaults: only fresh sets, or only the others"
    )
    parser.add_argument("--train-options", default="", metavar="WORDS", help="of defaults: more for streamsvm train")
    parser.add_argument("--upper", action="store_true", help="of defaults: boosted trees too, which take a while")
    parser.add_argument("--losses", type=_words, default=LOSSES, help="of exact solvers (default hinge,squared_hinge)")
    parser.add_argument("--costs", type=_numbers, default=[0.1, 1.0, 10.0], help="C of the same (default 0.1,1,10)")
    parser.add_argument("--dense-rows", type=int, default=8_000_000, help="of the dense table (default %(default)s)")
    parser.add_argument("--click-rows", type=int, default=1_000_000, help="of the click table (default %(default)s)")
    parser.add_argument("--generated", type=Path, default=HERE / "data", help="where generated files are kept")
    parser.add_argument("--out", type=Path, default=HERE / "out", help="where results go")
    parser.add_argument("--json", action="store_true", help="print results.json; the rest goes to standard error")
    parser.add_argument("--quick", action="store_true", help="a smoke test of about a minute: its figures mean nothing")
    args = parser.parse_args()
    if args.passes < 3:
        parser.error("--passes must be at least 3")
    unknown = set(args.measure) - MEASURES.keys()
    if unknown:
        parser.error(f"no such measure: {', '.join(sorted(unknown))}; there are {', '.join(MEASURES)}")
    if unknown := set(args.sets) - SETS.keys():
        parser.error(f"no such set: {', '.join(sorted(unknown))}; there are {', '.join(SETS)}")
    if not set(args.losses) <= set(LOSSES):
        parser.error(f"--losses takes {', '.join(LOSSES)}")
    args.part_rows, args.test_rows = rows_of("50MB"), 50000
    if args.quick:
        args.size, args.big, args.repeat, args.passes = "20MB", "80MB", min(args.repeat, 2), 4
        args.part_rows, args.test_rows, args.costs = rows_of("10MB"), 10000, [1.0]
        args.losses, args.dense_rows, args.click_rows = args.losses[-1:], 200_000, 20_000
    bytes_of(args.memory)
    args.rows = args.rows or rows_of(args.size)
    args.big_rows = rows_of(args.big)
    if args.measure and not BIG & set(args.measure):
        args.big_rows = args.rows  # nobody asks for another file
    if args.measure and set(args.measure) <= OWN_FILES:
        args.part_rows = args.rows = args.big_rows = args.test_rows = 1000  # nobody asks for these
    args.generated, args.out = args.generated.resolve(), args.out.resolve()
    return args


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[float]:
    return [float(word) for word in _words(text)]


if __name__ == "__main__":
    main()
