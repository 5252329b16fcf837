"""A click log, learned from while it is written and rotated; the model is that of `train` on all its lines.

python examples/follow.py
"""

import os
import tempfile
import threading
import time
from pathlib import Path

from streamsvm import follow, load_settings, train
from streamsvm.converting import convert, target_of

RECIPE = {
    "data.label": "click",
    "features.log1p": ["visits", "price"],
    "features.categorical": ["user", "ad", "site", "hour"],
    "features.text": ["title"],
    "features.ignore": ["id"],
    "features.hash_bits": 18,
    "loss": "logistic",
}


def write(lines: list[str], log: Path) -> None:
    """A web server: its log is renamed every few thousand lines, and some lines take a moment to be complete."""
    for number, start in enumerate(range(0, len(lines), 1000)):
        text = "".join(lines[start : start + 1000])
        for piece in (text[:-10], text[-10:]):
            with open(log, "a") as file:
                file.write(piece)
            time.sleep(0.02)
        if number == 0:
            while not list(log.parent.glob("*.checkpoint/*.safetensors")):
                time.sleep(0.01)  # until the follower has seen the log for the first time
        if number % 4 == 3:
            os.rename(log, f"{log}-{number:04}")


with tempfile.TemporaryDirectory() as place:
    whole, log = Path(place, "all.jsonl"), Path(place, "clicks.log")
    convert(load_settings(), ("examples/data/clicks.train.csv.gz",), target_of(str(whole)))
    lines = whole.read_text().splitlines(keepends=True)
    print(f"{len(lines):,} lines such as\n{lines[0]}")

    writer = threading.Thread(target=write, args=[lines, log])
    writer.start()
    once = {"follow.rotate_wait": "300ms", "follow.until_idle": True, "follow.idle": "1s"}  # a real one does not end
    model = str(Path(place, "model.safetensors"))
    live = follow(load_settings(overrides={**RECIPE, **once, "data.train": str(log), "output.model": model}))
    writer.join()

    learned, recent = live.result["examples"], live.result["recent"]
    print(f"followed  {learned:,} lines of {live.result['follow']['files']} files, through its rotations")
    print(f"recent    log loss {recent['loss']:.4f}, AUC {recent['auc']:.4f}: lines predicted before they were learned")
    peace = train(load_settings(overrides={**RECIPE, "data.train": str(whole), "output.model": None}))
    same = live.model.weights.tobytes() == peace.model.weights.tobytes() and live.model.bias == peace.model.bias
    print(f"identical to training on all lines at once, bit for bit: {same}")
