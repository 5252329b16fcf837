"""The collecting run: a pytest plugin that keeps, for each test, how long it took and which functions it entered.

What a fixture for a module or a session does is done during its first test; it counts for all that use the fixture.
Each worker of pytest-xdist has a file of its own, and so has each process that a test starts; `gathered` puts them
together.
"""

import json
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mutations import hook

_usual: dict[str, list[str]] = {}  # what each long-lived fixture has entered


class _Out:
    """The file of this process, opened when the first test is done."""

    def __init__(self) -> None:
        self._file: Any = None

    def put(self, line: dict[str, Any]) -> None:
        if self._file is None:
            name = f"tests-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
            self._file = open(Path(os.environ[hook.INTO]) / name, "a", encoding="utf-8")  # noqa: SIM115
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


_out = _Out()


def _label(definition: Any) -> str:
    return f"{os.getpid()} {id(definition)}"


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Iterator[Any]:
    if fixturedef.scope == "function":
        return (yield)
    before = set(hook.reached)
    hook.reached.clear()
    above = os.environ.get(hook.FIXTURE)
    os.environ[hook.FIXTURE] = _label(fixturedef)
    try:
        return (yield)
    finally:
        if above is None:
            os.environ.pop(hook.FIXTURE, None)
        else:
            os.environ[hook.FIXTURE] = above
        _usual[_label(fixturedef)] = list(hook.reached)
        for name in before:
            hook.reached[name]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[Any]:
    hook.reached.clear()
    begun = time.perf_counter()
    result = yield
    definitions = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009
    labels = [_label(one) for found in definitions.values() for one in found if _label(one) in _usual]
    names = {*hook.reached, *(name for label in labels for name in _usual[label])}
    _out.put(
        {
            "test": item.nodeid,
            "seconds": round(time.perf_counter() - begun, 3),
            "full": item.get_closest_marker("full") is not None,
            "passed": item.stash.get(_failed, None) is None,
            "fixtures": labels,
            "reached": sorted(names),
        }
    )
    return result


_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    report = yield
    if report.failed or report.skipped:
        item.stash[_failed] = True
    return report


def gathered(place: Path) -> dict[str, dict[str, Any]]:
    """The tests, by their names, out of what a collecting run has left in a directory."""
    tests: dict[str, dict[str, Any]] = {}
    users: dict[str, list[str]] = {}
    for path in sorted(place.glob("tests-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            found = json.loads(line)
            test = found.pop("test")
            for label in found.pop("fixtures"):
                users.setdefault(label, []).append(test)
            tests[test] = {**found, "reached": set(found["reached"])}
    for path in sorted(place.glob("child-*.txt")):
        label, test, *names = path.read_text(encoding="utf-8").split("\n")
        for user in users.get(label, [test]):
            if user in tests:
                tests[user]["reached"] |= set(filter(None, names))
    return tests
