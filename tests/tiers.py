"""The two tiers: `pytest` runs the core, `pytest --all` everything, `pytest -m full` what the core leaves out.

`pytest -m slow` is for hours of trying (thousands of kills, a soak of ten minutes), and part of neither.

What is marked `full` belongs to the second tier: what is exhaustive, or slow, or tries again in other surroundings what
the core tries once. Two things are left to the second tier without being marked:

* Of a parametrised test the core runs so many cases that every value of every parameter occurs, not all combinations
  (the fields of a NamedTuple and the items of a dict count as parameters; a row of several parameters is an example, of
  which all occur). A test whose combinations are its point is marked `whole`.
* Of a property the core tries fewer examples: `@examples(300)` instead of hypothesis's `settings`.

Examples are the same in every run, so that a failure is that of the change at hand; `--explore` tries new ones. A test
that is named on the command line (`pytest tests/test_x.py::test_y`) runs with all its cases.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

CORE_SHARE = 5  # the core tries one example of a property in so many
TURN = {"distributed": 1, "tests": 2}  # workers of a cluster load kernels that other folders have compiled before
everything = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run everything: the core and the tests of the full tier")
    parser.addoption("--explore", action="store_true", help="try new examples of properties instead of the usual ones")


def pytest_configure(config: pytest.Config) -> None:
    global everything
    config.addinivalue_line("markers", "full: exhaustive or slow; runs with `pytest --all` or `pytest -m full`")
    config.addinivalue_line("markers", "whole: the core too runs all combinations of the parameters")
    config.addinivalue_line("markers", "slow: takes many minutes; runs with `pytest -m slow` only")
    named = any("::" in argument for argument in config.args)
    everything = config.option.all or named or bool(config.option.markexpr)
    settings.register_profile(
        "streamsvm",
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=not config.option.explore,
        max_examples=100 if everything else 100 // CORE_SHARE,
        database=None,
    )
    settings.load_profile("streamsvm")
    if not config.option.markexpr:
        config.option.markexpr = "not slow" if everything else "not full and not slow"


def examples(most: int, **more: Any) -> settings:
    """How many examples of a property are tried: all of them in the full tier, a share in the core."""
    return settings(max_examples=most if everything else min(most, max(10, most // CORE_SHARE)), **more)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `full` the cases of parametrised tests that the core can do without, and put files in their order."""
    items.sort(key=lambda item: TURN.get(item.path.parent.name, 0))
    cases = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and not (item.get_closest_marker("whole") or item.get_closest_marker("slow")):
            cases[item.nodeid.partition("[")[0]].append(item)
    for same in cases.values():
        for item in dispensable(same):
            item.add_marker(pytest.mark.full)


def dispensable(cases: list[Any]) -> Iterator[Any]:
    """The cases without which every value of every parameter still occurs: the others are taken greedily, in order."""
    values = {case: frozenset(values_of_case(case)) for case in cases}
    missing = set().union(*values.values())
    while missing:
        best = max(cases, key=lambda case: len(values[case] & missing))
        missing -= values.pop(best)
        cases = [case for case in cases if case is not best]
    yield from cases


def values_of_case(case: Any) -> Iterator[tuple[str, str]]:
    parameters = dict(case.callspec.params)
    for mark in case.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        if len(names) > 1:
            yield ", ".join(names), repr([parameters.pop(name, None) for name in names])
    yield from values_of(parameters)


def values_of(parameters: Any) -> Iterator[tuple[str, str]]:
    for name, value in parameters.items():
        if hasattr(value, "_asdict"):
            value = value._asdict()
        if isinstance(value, dict) and value:
            yield from ((f"{name}.{inner}", found) for inner, found in values_of(value))
        else:
            yield name, repr(value)
