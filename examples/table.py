"""Learn from a table with categories, and score the same rows from CSV, JSON lines and Parquet.

python examples/table.py
"""

import tempfile
from pathlib import Path

from streamsvm import load_settings, train
from streamsvm.converting import convert, target_of
from streamsvm.evaluate import evaluate
from streamsvm.reading import make_source, test_stream

data = Path(__file__).parent / "data"
work = Path(tempfile.mkdtemp())

settings = load_settings(
    [str(data.parents[1] / "configs/clicks.yaml")],
    overrides={
        "data.train": str(data / "clicks.train.csv.gz"),
        "data.test": None,
        "output.model": str(work / "model.safetensors"),
    },
)
model = train(settings).model

scores = []
for name in ("clicks.csv", "clicks.jsonl", "clicks.parquet"):
    convert(settings, (str(data / "clicks.test.csv.gz"),), target_of(str(work / name)))
    source = make_source(settings, (str(work / name),))
    metrics = evaluate(model, test_stream(settings, source, model))
    scores.append((metrics["auc"], metrics["log_loss"]))
    print(f"{name:15} AUC {metrics['auc']:.4f}, log loss {metrics['log_loss']:.4f}")
print("identical, bit for bit:", len(set(scores)) == 1)
