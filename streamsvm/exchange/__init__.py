"""Models for other programs: LIBLINEAR's text, scikit-learn's estimators, ONNX graphs. One format per file.

What another program cannot say is told (`note`), or refused where labels or scores would be others than the model's.
LIBLINEAR's text comes back by `load_model`.
"""

from streamsvm.exchange.liblinear import save_liblinear, to_liblinear
from streamsvm.exchange.onnx_graph import save_onnx, to_onnx
from streamsvm.exchange.scikit_learn import to_sklearn

__all__ = ["save_liblinear", "save_onnx", "to_liblinear", "to_onnx", "to_sklearn"]
