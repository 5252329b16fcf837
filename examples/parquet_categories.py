"""A click log in Parquet: categories, words and pairs become features by themselves, and keep their names.

python examples/parquet_categories.py
"""

import subprocess
import sys
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet

from streamsvm import load_settings, train

out = Path("out")
out.mkdir(exist_ok=True)
for part in ("train", "test"):
    table = pyarrow.csv.read_csv(f"examples/data/clicks.{part}.csv.gz")
    ads = table["ad"].dictionary_encode()  # as pandas writes a category
    table = table.set_column(table.column_names.index("ad"), "ad", ads)
    pyarrow.parquet.write_table(table, out / f"clicks.{part}.parquet", row_group_size=4000)

settings = load_settings(
    overrides={
        "data.train": "out/clicks.train.parquet",
        "data.label": "click",
        "features.categorical": ["user", "ad", "site", "hour"],  # a weight for each value
        "features.log1p": ["visits", "price"],  # numbers over several magnitudes
        "features.text": ["title"],  # a weight for each word
        "features.interactions": [["site", "ad"]],  # and for each pair
        "features.ignore": ["id"],
        "features.hash_bits": 18,
        "features.names": True,  # kept beside the model
        "loss": "logistic",
        "solver.passes": 3,
        "output.model": "out/parquet.safetensors",
    }
)
train(settings)


def streamsvm(*words: str) -> str:
    """A command, as you would type it."""
    print("$ streamsvm", *words)
    done = subprocess.run([sys.executable, "-m", "streamsvm", *words], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


print(*streamsvm("inspect", "out/parquet.safetensors", "--top", "5").splitlines()[-6:], "", sep="\n")

streamsvm("predict", "out/parquet.safetensors", "out/clicks.test.parquet", "--keep", "id,user,ad,click",
          "--probabilities", "-o", "out/clicks.scored.parquet")  # fmt: skip
scored = pyarrow.parquet.read_table("out/clicks.scored.parquet")
for row in [scored.column_names, *(row.values() for row in scored.slice(0, 3).to_pylist())]:
    print("".join(f"{value:>12.3f}" if isinstance(value, float) else f"{value!s:>12}" for value in row))

# The model has the recipe: the same rows from another format have the same features.
figures = [
    streamsvm("evaluate", "out/parquet.safetensors", file).splitlines()[0]
    for file in ("out/clicks.test.parquet", "examples/data/clicks.test.csv.gz")
]
print(figures[0])
print("Parquet and CSV give the same figures:", figures[0] == figures[1])
