"""Two rings, one inside the other: no line tells them apart, and a map of the rows does.

python examples/beyond_linear.py
"""

import math
import tempfile
from pathlib import Path

import numpy as np

from streamsvm import load_settings, train


def write_rings(path: Path, rows: int, seed: int) -> str:
    """LIBSVM text: places in the plane around two circles, and a column of another size that means nothing."""
    chance = np.random.default_rng(seed)
    outer = chance.integers(0, 2, rows)
    angle = chance.uniform(0.0, 2.0 * np.pi, rows)
    radius = 1.0 + outer + chance.normal(0.0, 0.2, rows)
    columns = zip(radius * np.cos(angle), radius * np.sin(angle), chance.uniform(0.0, 5000.0, rows), strict=True)
    lines = (f"{'-+'[ring]}1 1:{x:.4f} 2:{y:.4f} 3:{z:.1f}" for ring, (x, y, z) in zip(outer, columns, strict=True))
    path.write_text("\n".join(lines) + "\n")
    return str(path)


with tempfile.TemporaryDirectory() as place:
    rings = write_rings(Path(place, "train.svm"), 20_000, seed=1)
    others = write_rings(Path(place, "test.svm"), 5_000, seed=2)
    wishes = {
        "linear": {"solver": "dcd", "penalty.C": 1.0, "features.scale": "standard"},
        "rbf": {"map": "rbf"},  # all that is to be said
        "nystroem": {"map": "nystroem", "map.size": 100},
        "polynomial": {"map": "polynomial"},
    }
    for name, wish in wishes.items():
        given = {"data.train": rings, "data.test": others, "output.model": None, **wish}
        model, result = train(load_settings(overrides=given))
        told = model.map.summary() if model.map is not None else "rows as they are"
        print(f"{name:11} test error {100 * result['test']['error']:5.2f} %; {told}")
    least = math.erfc(2.5 / math.sqrt(2.0)) / 2.0  # half way between the rings is 2.5 deviations from each
    print(f"no machine  can have less than {100 * least:.2f} % on average")
