"""Learn from a log while it is written and rotated; what is learned is what `train` learns from all its lines."""

import gzip
import os
import tempfile
import threading
import time
from pathlib import Path

from streamsvm import follow, load_settings, train

ROWS = gzip.decompress(Path("examples/data/a9a.train.svm.gz").read_bytes()).decode().splitlines(keepends=True)


def write(log: Path) -> None:
    """A web server: its log is renamed every few thousand rows, and some lines take a moment to be complete."""
    for number, start in enumerate(range(0, len(ROWS), 1500)):
        while number and not list(log.parent.glob("*.checkpoint/*.safetensors")):
            time.sleep(0.01)  # until the follower has seen the log for the first time
        rows = "".join(ROWS[start : start + 1500])
        for piece in (rows[:-10], rows[-10:]):
            with open(log, "a") as file:
                file.write(piece)
            time.sleep(0.02)
        if number % 4 == 3:
            os.rename(log, f"{log}-{number:04}")


with tempfile.TemporaryDirectory() as place:
    log = Path(place, "clicks.log")
    writer = threading.Thread(target=write, args=[log])
    writer.start()
    settings = {
        "data.train": str(log),
        "output.model": str(Path(place, "model.safetensors")),
        "follow.rotate_wait": "300ms",
        "follow.until_idle": True,
        "follow.idle": "1s",
    }
    live = follow(load_settings(overrides=settings))
    writer.join()
    whole = train(load_settings(overrides={"data.train": "examples/data/a9a.train.svm.gz", "output.model": None}))
    print(f"learned {live.result['examples']:,} rows of {live.result['follow']['files']} files")
    same = live.model.weights.tobytes() == whole.model.weights.tobytes() and live.model.bias == whole.model.bias
    print(f"identical, bit for bit: {same}")
