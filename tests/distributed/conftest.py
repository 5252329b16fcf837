"""What tests on a cluster share."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two processes, for tests that leave them alive; they end with the module, since other tests count descriptors."""
    pytest.importorskip("distributed")
    from dask_processes import PATIENT

    from streamsvm.distributed.opening import opened_cluster

    with opened_cluster("local:2", None, PATIENT, lambda text: None) as opened:
        yield opened


@pytest.fixture(scope="module")
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with the lines that a module calls ROWS."""
    path = tmp_path_factory.mktemp("data") / "rows.svm"
    path.write_text("\n".join(request.module.ROWS) + "\n")
    return str(path)
