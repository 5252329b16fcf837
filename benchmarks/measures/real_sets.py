"""The sets on which exact solvers are compared: a generated slice, and real ones where `--real` is given."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bench import Bench
from data import Dataset, Pair, covtype_pair, mnist_pair, real_pairs

FEW_FEATURES = ("a9a", "ijcnn1", "covtype", "mnist-3-8")  # up to some hundreds, and many more rows


def training_sets(bench: Bench) -> Iterator[tuple[str, Dataset]]:
    """Names and rows to learn from; of forest cover the scaled ones, as no program here is asked to scale."""
    yield f"generated, {bench.part.megabytes:.0f} MB", bench.part
    if bench.real is None:
        return
    for pair in _pairs(bench.real, bench.work / "real", bench.quick):
        if pair.skipped:
            bench.say(f"  {pair.name} is left out: {pair.skipped}")
        else:
            train = pair.scaled[0] if pair.scaled else pair.train
            assert train
            yield pair.name.removesuffix("-mixed"), train


@cache  # unpacked once, however many measures ask
def _pairs(source: Path, folder: Path, quick: bool) -> tuple[Pair, ...]:
    covtype = covtype_pair(source, folder, every=40 if quick else 4, mixed=True)
    if quick:
        return (covtype,)
    return (*(pair for pair in real_pairs(source, folder) if pair.name != "mnist"), covtype, mnist_pair(source, folder))
