"""Is every solver as good as a converged one? Test errors of the whole family beside LIBLINEAR, at the best penalty.

    streamsvm    `tune` picks l2 in five passes, the worse half retiring after each; `train` makes five over all
    LIBLINEAR    -s 2: the same problem solved in memory, with the best C

Both minimise the squared hinge, and both choose by that loss on the same held-out rows: every 10th of the training set.
"""

from collections.abc import Iterator
from typing import Any

from bench import Bench, Check, Section
from data import Pair, covtype_pair, mnist_pair, real_pairs
from peers import StreamSvm
from peers.liblinear_dual import LibLinear
from peers.streamsvm_cli import objects
from process import PeerFailedError, run

EVERY = 10  # row that is held out
L2 = "1e-8..1e-1"
COSTS = [10.0 ** (power / 2) for power in range(-8, 6)]  # C, from 1e-4 on
MOST = 0.5  # percentage points that a solver may be worse
ENOUGH = 4  # data sets that a verdict needs
LIBLINEAR = "liblinear"


def every_solver(bench: Bench) -> Section:
    passes = 2 if bench.quick else 5
    section = Section(
        "solvers",
        f"Test error in %, squared hinge, best penalty, {passes} passes",
        ["data", LIBLINEAR],
        notes=["liblinear: -s 2 -B 1, converged; all choose their penalty on the same held-out rows"],
        decimals=2,
    )
    ours, theirs = bench.streamsvm, bench.peer(LIBLINEAR)
    if ours is None or bench.real is None:
        section.notes.append("needs --real DIR" if ours else "streamsvm cannot run here")
        return section
    section.columns += ours.solvers()
    for pair in _pairs(bench):
        if pair.skipped:
            section.notes.append(f"{pair.name} is left out: {pair.skipped}")
            continue
        section.notes += [pair.note] if pair.note else []
        found: dict[str, dict[str, Any]] = {}
        for name in section.columns[1:]:
            try:
                if name != LIBLINEAR:
                    found[name] = _streamsvm(bench, ours, pair, name, passes)
                elif isinstance(theirs, LibLinear):
                    found[name] = _liblinear(bench, theirs, pair)
            except (PeerFailedError, ValueError, KeyError) as error:
                section.notes.append(f"{name} on {pair.name}: {error}")
        section.raw[pair.name] = found
        section.rows.append([pair.name, *(found.get(name, {}).get("error") for name in section.columns[1:])])
        errors = (f"{name} {one['error']:.2f} %" for name, one in found.items())
        bench.say(f"  {pair.name}: {', '.join(errors)}")
    section.checks = [_check(name, section.raw) for name in section.columns[2:]]
    missed = [check.what.split(":")[0] for check in section.checks if check.met is False]
    if missed:
        section.notes.append(f"more than {MOST:g} points above liblinear somewhere: {', '.join(missed)}")
    return section


def _check(name: str, found: dict[str, dict[str, dict[str, Any]]]) -> Check:
    """The worst case; no verdict where a data set failed, or where there are too few of them."""
    excess = {
        data: by_name[name]["error"] - by_name[LIBLINEAR]["error"]
        for data, by_name in found.items()
        if {name, LIBLINEAR} <= by_name.keys()
    }
    if len(excess) < max(ENOUGH, len(found)):
        worst, note = float("nan"), f"{len(excess)} data sets of {max(ENOUGH, len(found))}"
    else:
        where = max(excess, key=excess.__getitem__)
        worst, note = excess[where], f"{where}, of {len(excess)} data sets"
    return Check(f"{name}: worst error above that of liblinear", worst, MOST, "points", at_least=False, note=note)


def _pairs(bench: Bench) -> Iterator[Pair]:
    """All two-class sets, forest cover, and digits; when in a hurry two of them."""
    assert bench.real
    folder = bench.work / "real"
    if not bench.quick:
        for pair in real_pairs(bench.real, folder):
            if pair.name != "mnist":  # it comes below, as two of its classes
                yield pair
        yield covtype_pair(bench.real, folder, every=4, mixed=False)
    yield covtype_pair(bench.real, folder, every=20 if bench.quick else 4, mixed=True)
    yield mnist_pair(bench.real, folder)


def _liblinear(bench: Bench, theirs: LibLinear, pair: Pair) -> dict[str, Any]:
    assert pair.train and pair.test
    train, test = pair.scaled or (pair.train, pair.test)
    model = bench.work / f"solvers-{pair.name}-{LIBLINEAR}.model"
    costs = COSTS[2::4] if bench.quick else COSTS
    told = theirs.choose(train, model, "-s 2", EVERY, costs)
    return told | {"error": 100 * theirs.test_error(model, test)}


def _streamsvm(bench: Bench, ours: StreamSvm, pair: Pair, solver: str, passes: int) -> dict[str, Any]:
    assert pair.train and pair.test
    model = bench.work / f"solvers-{pair.name}-{solver}.model"
    shared = ["--solver", solver, "--loss", "squared_hinge", "-o", str(model), "--json"]
    shared += ["--scale", "maxabs"] if pair.scaled else []
    search = [
        "--l2",
        L2,
        "--candidates",
        "4" if bench.quick else "15",
        "--holdout",
        str(EVERY),
        "--passes",
        str(passes),
    ]
    tuned = objects(run(ours.command("tune", str(pair.train.svm), *shared, *search)).output)[-1]
    fixed = ["--l2", repr(tuned["l2"]), "--passes", str(passes), "--test", str(pair.test.svm)]
    trained = objects(run(ours.command("train", str(pair.train.svm), *shared, *fixed)).output)[-1]
    return {
        "l2": tuned["l2"],
        "held_out_loss": {one["l2"]: one["held_out_loss"] for one in tuned["candidates"]},
        "error": 100 * trained["test"]["error"],
    }
