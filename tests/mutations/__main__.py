"""The command line: see `python tests/mutations --help`."""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

from mutations.catalogue import CATALOGUE  # noqa: E402
from mutations.choosing import Chooser, Record  # noqa: E402
from mutations.reach import Reach  # noqa: E402
from mutations.sources import Mutation, Sources, faults  # noqa: E402
from mutations.trees import Tree, sources_hash  # noqa: E402

HOME = Path(__file__).parents[2]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python tests/mutations", description="Whether the tests notice faults.")
    add = parser.add_argument
    add("--check", action="store_true", help="only see whether every mutation fits the sources")
    add("--list", action="store_true", help="only list the mutations, with the tests that would be run")
    add("--collect", nargs="*", metavar="PATH", help="run all tests, or those of PATHs, to record what they reach")
    add("--tier", default="core", metavar="core|all|PATH,PATH", help="which tests may be run (core)")
    add("--only", metavar="WORD", help="mutations whose name, or module, has this word")
    add("--limit", type=int, metavar="N", help="so many mutations at most, spread over the catalogue")
    add("--seconds", type=float, default=150.0, metavar="S", help="for the tests of one mutation (150)")
    add("--copies", type=int, default=2, metavar="N", help="mutations at a time (2)")
    add("--json", type=Path, metavar="OUT", help="write the outcomes there as well")
    add("--record", type=Path, metavar="PATH", help="where the collecting run's record is (below --work)")
    add("--work", type=Path, default=_usual_place(), metavar="DIR", help="for copies and kernels (%(default)s)")
    add("--fail-under", type=float, metavar="PERCENT", help="exit code 1 if fewer are noticed")
    return parser.parse_args()


def _usual_place() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamsvm-mutations"


def main() -> int:
    asked = arguments()
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in the background: tests of Ctrl-C would inherit that
        signal.signal(signal.SIGINT, signal.default_int_handler)
    asked.work = asked.work.absolute()
    asked.record = asked.record or asked.work / "record.json"
    if asked.check:
        return check()
    if asked.collect is not None:
        return collect(asked)
    return run(asked)


def check() -> int:
    found = faults(Sources(HOME), CATALOGUE)
    print("\n".join([*found, f"{len(CATALOGUE)} mutations, {len(found)} of them do not fit"]))
    return 1 if found else 0


def collect(asked: argparse.Namespace) -> int:
    from mutations import recording, running

    tree = Tree(asked.work, 0)
    tree.sync(HOME)
    asked.work.mkdir(parents=True, exist_ok=True)
    into = Path(tempfile.mkdtemp(prefix="recorded-", dir=asked.work))
    begun = time.monotonic()
    code = running.collect(tree, into, asked.collect, asked.copies)
    found = recording.gathered(into)
    record = Record.load(asked.record) if asked.collect else Record({})
    record.sources = sources_hash(tree.root)
    record.add(found)
    record.save(asked.record)
    shutil.rmtree(into, ignore_errors=True)
    useless = sum(not one["passed"] for one in found.values())
    print(
        f"{len(found)} tests in {time.monotonic() - begun:.0f} s (pytest ended with {code}); {useless} failed or were "
        f"skipped, and are not used; {asked.record} has {len(record.tests)}"
    )
    return 0


def run(asked: argparse.Namespace) -> int:
    from mutations import running

    trees = [Tree(asked.work, number) for number in range(max(1, asked.copies))]
    for tree in trees:
        tree.sync(HOME)
    sources = Sources(trees[0].root)
    reach = Reach(sources)
    mutations = chosen(sources, asked.only, asked.limit)
    record = Record.load(asked.record)
    if not record.tests:
        print(f"no record at {asked.record}: tests are chosen by the names in their files; use --collect first")
    elif record.sources != sources_hash(trees[0].root):
        print("the sources are others than those of the record; functions that are new may not be found in it")
    chooser = Chooser(record, reach, trees[0].root, asked.tier)
    if asked.list:
        for mutation in mutations:
            choice = chooser.choose(sources.find(mutation))
            print(f"{mutation.name:40} {len(choice.tests):5} tests {len(choice.files):3} files  {choice.remark}")
        return 0
    for tree in trees[1:]:
        tree.share(trees[0])
    tiers = asked.tier != "core" and running.has_tiers(trees[0])
    runner = running.Runner(chooser, reach, asked.seconds, tiers=tiers)
    begun = time.monotonic()
    print(f"{len(mutations)} mutations; tests: {asked.tier}")
    outcomes = runner.run_all(mutations, trees, lambda outcome: print(line(outcome), flush=True))
    return summed_up(outcomes, asked, time.monotonic() - begun)


def chosen(sources: Sources, only: str | None, limit: int | None) -> list[Mutation]:
    found = [
        mutation for mutation in CATALOGUE if not only or only in mutation.name or only in sources.find(mutation).module
    ]
    if limit is not None and limit < len(found):
        found = [found[number * len(found) // limit] for number in range(limit)]
    return found


def line(outcome: "running.Outcome") -> str:  # type: ignore[name-defined]  # noqa: F821
    old, new = (" ".join(text.split()) for text in (outcome.mutation.old, outcome.mutation.new))
    what = f"{old} -> {new}" if new else f"without {old}"
    what = what if len(what) <= 90 else what[:87] + "..."
    count = f"{outcome.tests}/{outcome.chosen}"
    return (
        f"{outcome.result:17} {outcome.seconds:6.1f} s {count:>10}  {outcome.mutation.name}: {what}\n    {outcome.by}"
    )


def summed_up(outcomes: list["running.Outcome"], asked: argparse.Namespace, seconds: float) -> int:  # type: ignore[name-defined]  # noqa: F821
    counts: dict[str, int] = {}
    for outcome in outcomes:
        counts[outcome.result] = counts.get(outcome.result, 0) + 1
    noticed = sum(outcome.noticed for outcome in outcomes)
    share = 100.0 * noticed / max(1, len(outcomes))
    print(f"\n{asked.tier}: {noticed} of {len(outcomes)} noticed ({share:.1f} %) in {seconds / 60:.1f} minutes")
    print(", ".join(f"{count} {result}" for result, count in sorted(counts.items())))
    for outcome in outcomes:
        if not outcome.noticed:
            print(line(outcome))
    if asked.json is not None:
        plain = [{**outcome._asdict(), "mutation": outcome.mutation._asdict()} for outcome in outcomes]
        asked.json.write_text(json.dumps({"tier": asked.tier, "outcomes": plain}, indent=1), encoding="utf-8")
    return 1 if asked.fail_under is not None and share < asked.fail_under else 0


if __name__ == "__main__":
    sys.exit(main())
