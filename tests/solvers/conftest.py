"""A solver may say in its class which test of the contract it need not pass, and why."""

from typing import Any

import pytest

from streamsvm.solvers import SOLVERS


@pytest.fixture(autouse=True)
def exemptions(request: pytest.FixtureRequest) -> None:
    """Skip what the solver under test is exempt from; it is known by a parameter `name`, or a `case` that has one."""
    parameters: dict[str, Any] = getattr(getattr(request.node, "callspec", None), "params", {})
    name = parameters.get("name") or getattr(parameters.get("case"), "name", None)
    reason = SOLVERS[name].exempt.get(request.function.__name__) if name in SOLVERS else None
    if reason:
        pytest.skip(f"{name}: {reason}")
