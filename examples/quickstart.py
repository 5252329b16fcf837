"""Train on compressed LIBSVM text, evaluate on the test part, look at the largest weights.

python examples/quickstart.py
"""

import tempfile
from pathlib import Path

import numpy as np

from streamsvm import load_model, load_settings, train

data = Path(__file__).parent / "data"
model_file = Path(tempfile.mkdtemp()) / "model.safetensors"

settings = load_settings(
    overrides={
        "data.train": str(data / "a9a.train.svm.gz"),
        "data.test": str(data / "a9a.test.svm.gz"),
        "solver.passes": 3,
        "output.model": str(model_file),
    }
)
outcome = train(settings)
print(f"test error {100 * outcome.result['test']['error']:.2f} %, AUC {outcome.result['test']['auc']:.4f}")

model = load_model(str(model_file))
largest = np.argsort(-np.abs(model.weights))[:5]
print("largest weights:", ", ".join(f"{j}: {model.weights[j]:+.3f}" for j in largest))
