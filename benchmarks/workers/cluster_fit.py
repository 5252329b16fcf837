"""dcd on a cluster of this machine, and where its time goes: DATA MODEL WORKERS TOL.

Hinge, C = 1, no bias, one thread for each worker, so that two workers have twice the cores of one. What the driver
waits for is timed by the task that the shards are doing: survey is text to rows in the workers' caches, climb and
scan together are a round. The rest is Python, imports and the start of Dask.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from streamsvm import load_settings, train
from streamsvm.distributed.cluster import Cluster

waited: dict[str, float] = {}
calls: dict[str, int] = {}
clusters: list[Cluster] = []


def timed(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of the cluster that is given a task for all shards."""

    def run(self: Cluster, task: Callable[..., Any], *others: Any) -> Any:
        started = time.perf_counter()
        found = method(self, task, *others)
        waited[task.__name__] = waited.get(task.__name__, 0.0) + time.perf_counter() - started
        calls[task.__name__] = calls.get(task.__name__, 0) + 1
        if self not in clusters:
            clusters.append(self)
        return found

    return run


def main(data: str, model: str, workers: str, tol: str) -> None:
    Cluster.each = timed(Cluster.each)  # type: ignore[method-assign]
    Cluster.summed = timed(Cluster.summed)  # type: ignore[method-assign]
    given = {
        "data.train": data, "output.model": model, "solver": {"name": "dcd", "tol": float(tol)}, "loss": "hinge",
        "penalty.C": 1.0, "bias.kind": "none", "cluster.at": f"local:{workers}", "run.threads": 1,
    }  # fmt: skip
    started = time.perf_counter()
    result = train(load_settings(overrides=given)).result
    told = {
        "seconds": time.perf_counter() - started,
        "waited": waited,
        "rounds": calls["climb"],
        "sent": clusters[0].sent,
        **{name: result[name] for name in ("objective", "gap", "examples", "features", "passes", "dim")},
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
