"""Train on compressed LIBSVM text, see how good the model is, use it.

python examples/quickstart.py
"""

import numpy as np

from streamsvm import load_model, load_settings, open_stream, train

settings = load_settings(
    overrides={
        "data.train": "examples/data/a9a.train.svm.gz",  # census income: does somebody earn more than 50,000 a year?
        "data.test": "examples/data/a9a.test.svm.gz",
        "output.model": "out/quickstart.safetensors",
    }
)
result = train(settings).result
test = result["test"]
print(f"learned {result['examples']:,} rows in {result['seconds']:.1f} s")
print(f"test error {100 * test['error']:.2f} %, AUC {test['auc']:.4f} on {test['examples']:,} rows\n")

model = load_model("out/quickstart.safetensors")
batch = next(iter(open_stream("examples/data/a9a.test.svm.gz", limit=4)))
scores = model.scores(batch)
print("  score  probability  class   truth")
for score, chance, code, truth in zip(
    scores, model.probabilities(scores), model.codes(scores), batch.labels, strict=True
):
    print(f"{score:7.3f}{chance:13.3f}{model.classes[code]:7}{truth:8.0f}")

largest = np.argsort(-np.abs(model.weights))[:4]
print("\nlargest weights:", ", ".join(f"feature {j}: {model.weights[j]:+.3f}" for j in largest))
