"""The pytest plugin that runs chosen tests in a given order, says how far it is, and ends when the time is over.

It is told by a JSON file, whose name is in MUTATIONS_PLAN, and tells by lines of another one:

    start TEST    a test begins;    fail TEST    it failed;    left N    so many were not run, for want of time
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

PLAN = "MUTATIONS_PLAN"


class Ordered:
    def __init__(self, plan: dict[str, Any]) -> None:
        self._ranks = {name: rank for rank, name in enumerate(plan["tests"])}
        self._files = set(plan["files"])
        self._expected: dict[str, float] = plan["expected"]
        self._until = time.monotonic() + plan["seconds"]
        self._report = open(plan["report"], "a", encoding="utf-8")  # noqa: SIM115
        self._begun = self._left = 0

    def _tell(self, *words: object) -> None:
        self._report.write(" ".join(map(str, words)) + "\n")
        self._report.flush()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        whole = len(self._ranks)

        def rank(item: pytest.Item) -> int:
            return self._ranks.get(item.nodeid, whole if item.nodeid.partition("::")[0] in self._files else -1)

        config.hook.pytest_deselected(items=[item for item in items if rank(item) < 0])
        items[:] = sorted((item for item in items if rank(item) >= 0), key=rank)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        rest = self._until - time.monotonic()
        if rest <= 0.0 or (self._begun and self._expected.get(item.nodeid, 0.0) > rest):
            self._left += 1
            return True
        self._begun += 1
        self._tell("start", item.nodeid)
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._tell("fail", report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._tell("fail", report.nodeid, "(when it is imported)")

    def pytest_sessionfinish(self) -> None:
        self._tell("left", self._left)


def pytest_configure(config: pytest.Config) -> None:
    plan = json.loads(Path(os.environ.pop(PLAN)).read_text(encoding="utf-8"))
    config.pluginmanager.register(Ordered(plan))
