"""The sets on which exact solvers are compared: a generated slice, and real ones where `--real` is given.

Also real sets with all their classes, however many.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from bench import Bench
from data import Dataset, Pair, class_pair, covtype_classes, covtype_pair, mnist_pair, real_pairs

FEW_FEATURES = ("a9a", "ijcnn1", "covtype", "mnist-3-8")  # up to some hundreds, and many more rows
COVTYPE = "covtype-mixed"
SORTED = ("20newsgroups",)  # by class
HURRIED = {"a9a": 8, "20newsgroups": 12}  # the only sets of whoever is in a hurry, and of them every so-manieth row


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


def labelled_sets(bench: Bench, names: Iterable[str]) -> Iterator[Pair]:
    """Sets with the classes they have, in a folder of their own: elsewhere files of these names have two."""
    assert bench.real
    for name in names:
        if name in HURRIED or not bench.quick:
            yield _labelled(bench.real, bench.work / "classes", name, HURRIED[name] if bench.quick else 1)


@cache
def _labelled(source: Path, folder: Path, name: str, every: int) -> Pair:
    if name == COVTYPE:
        return covtype_classes(source, folder, every=every)
    return class_pair(source, folder, name, every=every)
