"""Which tests are run for a mutation: those that were recorded to reach its function, the likeliest to notice first.

First come quick tests, those of the module's own test file before others; then the rest, file by file, because tests of
one file share fixtures. Where hardly any test was recorded, as for functions that run in another process only, or once
and are remembered, the tests of all files are added that name the function or its module.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from mutations.reach import Reach
from mutations.sources import Function

FEW = 3  # tests: fewer may be so because what the function does is remembered by others
QUICK_SECONDS, QUICK_TESTS = 1.0, 60
NOT_BY_NAME = ("test_architecture.py", "test_mutations.py")  # they look at sources, and would notice any edit


class Test(NamedTuple):
    seconds: float
    full: bool
    reached: frozenset[str]

    __test__ = False  # no class of tests, for pytest


class Record:
    """What a collecting run has found."""

    def __init__(self, tests: dict[str, Test], sources: str = "") -> None:
        self.tests = tests
        self.sources = sources

    @classmethod
    def load(cls, path: Path) -> "Record":
        if not path.exists():
            return cls({})
        plain = json.loads(path.read_text(encoding="utf-8"))
        names = plain["names"]
        tests = {
            test: Test(seconds, full, frozenset(names[number] for number in numbers))
            for test, (seconds, full, numbers) in plain["tests"].items()
        }
        return cls(tests, plain["sources"])

    def save(self, path: Path) -> None:
        names = sorted({name for test in self.tests.values() for name in test.reached})
        numbers = {name: number for number, name in enumerate(names)}
        tests = {
            name: [test.seconds, test.full, sorted(numbers[one] for one in test.reached)]
            for name, test in sorted(self.tests.items())
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"sources": self.sources, "names": names, "tests": tests}), encoding="utf-8")

    def add(self, found: dict[str, dict[str, Any]]) -> None:
        """Tests of a collecting run in place of those of the same files; those that fail as it is are of no use."""
        files = {file_of(test) for test in found}
        self.tests = {test: kept for test, kept in self.tests.items() if file_of(test) not in files}
        for test, one in found.items():
            if one["passed"]:
                self.tests[test] = Test(one["seconds"], one["full"], frozenset(one["reached"]))


class Choice(NamedTuple):
    """Tests in the order in which they are run, whole files of tests that are not in the record, and a remark."""

    tests: list[str]
    files: list[str]
    remark: str


def file_of(test: str) -> str:
    return test.partition("::")[0]


def _namesake(test: str, function: Function) -> bool:
    """Whether a test is in the file of tests for the function's module; it may have kernels of its own for it."""
    return Path(file_of(test)).stem == f"test_{function.module.rpartition('.')[2]}"


class Chooser:
    def __init__(self, record: Record, reach: Reach, root: Path, tier: str) -> None:
        self._reach = reach
        self._root = root
        self._tier = tier
        self._tests = {name: test for name, test in record.tests.items() if self._in_tier(name, test.full)}
        self._texts = {
            path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted((root / "tests").rglob("test_*.py"))
            if path.name not in NOT_BY_NAME
        }

    def _in_tier(self, name: str, full: bool) -> bool:
        if self._tier in ("core", "all"):
            return self._tier == "all" or not full
        return any(file_of(name).startswith(path.rstrip("/")) for path in self._tier.split(","))

    def choose(self, function: Function) -> Choice:
        entries = self._reach.entries(function)
        reaching = [
            name
            for name, test in self._tests.items()
            if not entries.isdisjoint(test.reached) or (function.compiled and _namesake(name, function))
        ]
        if len(reaching) >= FEW:
            return Choice(self._ordered(reaching, function), [], "")
        files = [file for file in self._naming(function) if self._in_tier(file, False)]
        named = [name for name in self._tests if file_of(name) in files and name not in reaching]
        unknown = [file for file in files if not any(file_of(name) == file for name in self._tests)]
        remark = f"{len(reaching)} tests recorded, others by name"
        return Choice(self._ordered(reaching, function) + self._ordered(named, function), unknown, remark)

    def _naming(self, function: Function) -> list[str]:
        """The files of tests that name the function or its module; those that only name the class come with it."""
        name = re.escape(function.name.split(".")[0])
        pattern = re.compile(rf"\b{re.escape(function.module)}\b|\b{name}\b")
        return [file for file, text in self._texts.items() if pattern.search(text)]

    def _ordered(self, names: list[str], function: Function) -> list[str]:
        def own(name: str) -> bool:
            return _namesake(name, function)

        names = sorted(names, key=lambda name: (not own(name), self._tests[name].seconds))
        quick = [name for name in names if self._tests[name].seconds < QUICK_SECONDS][:QUICK_TESTS]
        rest = [name for name in names if name not in set(quick)]
        totals: dict[str, float] = {}
        for name in rest:
            totals[file_of(name)] = totals.get(file_of(name), 0.0) + self._tests[name].seconds
        rest.sort(key=lambda name: (not own(name), totals[file_of(name)], file_of(name), self._tests[name].seconds))
        return quick + rest

    def seconds(self, name: str) -> float:
        return self._tests[name].seconds if name in self._tests else 0.0
