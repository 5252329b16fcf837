"""Makes the runs of its command line, one after the other; in the middle of each does what is asked. Prints results."""

import hashlib
import json
import subprocess
import sys
from typing import Any

import streamsvm.distributed.cluster
from streamsvm import load_settings, train
from streamsvm.distributed.cluster import ClusterLostError


class Listener:
    """Does something, once, when the first figures are there."""

    def __init__(self, acts: list[list[str]]) -> None:
        self._acts = acts
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def progress(self, now: Any) -> None:
        if now.gap is not None:
            acts, self._acts = self._acts, []
            for act in acts:
                subprocess.run(act, check=True, capture_output=True)


def made(given: dict[str, Any], acts: list[list[str]]) -> dict[str, Any]:
    listener = Listener(acts)
    try:
        outcome = train(load_settings(overrides=given), listener)
    except ClusterLostError as error:
        return {"lost": str(error), "notes": listener.notes}
    weights = hashlib.sha256(outcome.model.weights.tobytes() + str(outcome.model.bias).encode())
    return {"bits": weights.hexdigest(), "gap": outcome.result.get("gap"), "notes": listener.notes}


if __name__ == "__main__":
    streamsvm.distributed.cluster.PATIENCE = float(sys.argv[1])
    for given, acts in json.loads(sys.argv[2]):
        print(json.dumps(made(given, acts)), flush=True)
