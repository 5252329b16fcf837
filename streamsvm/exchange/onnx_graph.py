"""A model as an ONNX graph of plain operators, which any runtime has.

    features   float32 [n, width]      one row each; column k is index k + 1 or k, as columns.py says
    label      int64, float or string  [n], as written in the data
    scores     float32 [n]             or [n, class], as `Model.scores`
    probabilities  float32 [n, class]  where the model has any: of the logistic loss, by Platt or isotonic calibration

    scores = features . weights + bias
    label  = labels[scores - thresholds > 0],  or of many classes  labels[argmax(scores - thresholds)]
    logistic, Platt     z = a scores + b; of two classes sigmoid(-z), sigmoid(z); of more softmax(-softplus(-z)),
                        which are the sigmoids divided by their sum, also where all of them are as good as 0
    isotonic            h_0 + sum over k of (h_k+1 - h_k) clip((s - x_k) / (x_k+1 - x_k), 0, 1) at corners (x_k, h_k)

All numbers are float32, as the weights are: scores differ from the model's by about 1e-6 of sum |w_j x_j|, and a label
may be another one where scores tie within that. Probabilities differ by 1e-6 or so, but for isotonic curves where these
are steep. Numbers of a table's columns that are NaN are missing: they count as 0, and the weight that the model has for
what is missing is added (of a vector, which is missing as a whole, where its first number is NaN); log1p is part of the
graph. Hashed features have no standard operator: such models are refused.
"""

import json
from itertools import pairwise
from typing import Any

import numpy as np

from streamsvm import __version__
from streamsvm.calibration import LARGEST, Calibration, Lines, Sigmoids
from streamsvm.errors import ConfigError, ModelError
from streamsvm.exchange.columns import Features, features_of, first_index
from streamsvm.io.files import written_atomically
from streamsvm.model import Model

OPSET, IR_VERSION = 17, 8  # old enough for the runtimes of recent years
LARGEST_FILE = (1 << 31) - (1 << 20)  # bytes that protocol buffers can have
STEEPEST = 1e38

Array = np.ndarray[Any, Any]


def save_onnx(model: Model, url: str, *, zero_based: bool | None = None) -> None:
    """Write the graph of a model."""
    content = to_onnx(model, zero_based=zero_based).SerializeToString()
    with written_atomically(url) as out:
        out.write(content)


def to_onnx(model: Model, *, zero_based: bool | None = None) -> Any:
    """The graph of a model, an onnx.ModelProto; ModelError says what no operator can do."""
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise ConfigError("ONNX needs the onnx package: pip install 'streamsvm[onnx]'") from error
    features = features_of(model)
    _refuse(model, features)
    first = first_index(model, zero_based)
    weights = (model.weights if model.many else model.weights[:, None])[first:]
    if weights.nbytes > LARGEST_FILE:
        raise ModelError(f"{weights.size:,} weights are more than an ONNX file can have (2 GB)")
    graph = _Graph()
    rows = _prepared(graph, features)
    bias = np.array(model.bias, np.float64, ndmin=1)
    scores = graph.add("Gemm", rows, graph.constant("weights", weights), graph.constant("bias", bias))
    if not model.many:
        scores = graph.add("Squeeze", scores, graph.constant("column", np.array([1]), np.int64))
    graph.add("Identity", scores, out="scores")
    _decide(graph, model, scores)
    if model.probable:
        _estimate(graph, model, scores)
    return graph.model(model, features, len(weights) - len(features.missing), first)


def _refuse(model: Model, features: Features) -> None:
    if features.kind == "hashed":
        raise ModelError(
            "the features of this model are hashed (categories, texts or VW names), and ONNX has no operator for that; "
            "models of numbers and of indices can be exported"
        )
    if features.kind == "folded":
        raise ModelError(
            f"the indices of this model are folded into 2^{model.recipe['hash_bits']} (features.hash_bits), and ONNX "
            "has no operator for that; train without it"
        )


def _prepared(graph: "_Graph", features: Features) -> str:
    """Rows as the weights know them: missing numbers are 0, and log1p is taken where the recipe says so."""
    rows = "features"
    if features.kind != "columns":
        return rows
    absent = graph.add("IsNaN", rows)
    rows = graph.add("Where", absent, graph.constant("zero", np.zeros(())), rows)
    if any(features.logarithms):
        size = graph.add("Log", graph.add("Add", graph.add("Abs", rows), graph.constant("one", np.ones(()))))
        wanted = graph.constant("logarithms", np.array([features.logarithms]), np.bool_)
        rows = graph.add("Where", wanted, graph.add("Mul", graph.add("Sign", rows), size), rows)
    if features.missing:
        places = graph.constant("missing", np.array(features.missing), np.int64)
        indicators = graph.add("Cast", graph.add("Gather", absent, places, axis=1), to=_element(np.dtype(np.float32)))
        rows = graph.add("Concat", rows, indicators, axis=1)
    return rows


def _decide(graph: "_Graph", model: Model, scores: str) -> None:
    if model.thresholds is not None:
        thresholds = model.thresholds if model.many else model.thresholds.reshape(())
        scores = graph.add("Sub", scores, graph.constant("thresholds", thresholds))
    if model.many:
        codes = graph.add("ArgMax", scores, axis=1, keepdims=0)
    else:
        positive = graph.add("Greater", scores, graph.constant("none", np.zeros(())))
        codes = graph.add("Cast", positive, to=_element(np.dtype(np.int64)))
    graph.add("Gather", graph.constant("labels", *_labels(model)), codes, out="label")


def _labels(model: Model) -> tuple[Array, Any]:
    if any(isinstance(label, str) for label in model.classes):
        return np.array([model.class_text(code) for code in range(len(model.classes))], object), np.object_
    whole = all(float(label).is_integer() for label in model.classes)
    return np.array(model.classes), np.int64 if whole else np.float32


def _estimate(graph: "_Graph", model: Model, scores: str) -> None:
    curves = model.calibration.curves if isinstance(model.calibration, Calibration) else None
    if isinstance(curves, Lines):
        _follow_lines(graph, curves, scores, model.many)
        return
    if isinstance(curves, Sigmoids):
        slopes, offsets, lows, highs = (part if model.many else part.reshape(()) for part in curves)
        if (np.abs(curves.lows) < LARGEST).all():
            scores = graph.add("Max", scores, graph.constant("lows", lows))
            scores = graph.add("Min", scores, graph.constant("highs", highs))
        scores = graph.add("Mul", scores, graph.constant("slopes", slopes))
        scores = graph.add("Add", scores, graph.constant("offsets", offsets))
    opposite = graph.add("Neg", scores)
    if model.many:
        logs = graph.add("Neg", graph.add("Softplus", opposite))
        graph.add("Softmax", logs, out="probabilities", axis=1)
    else:
        _side_by_side(graph, graph.add("Sigmoid", opposite), graph.add("Sigmoid", scores))


def _side_by_side(graph: "_Graph", negative: str, positive: str) -> None:
    axis = graph.constant("second", np.array([1]), np.int64)
    columns = [graph.add("Unsqueeze", side, axis) for side in (negative, positive)]
    graph.add("Concat", *columns, out="probabilities", axis=1)


def _follow_lines(graph: "_Graph", curves: Lines, scores: str, many: bool) -> None:
    """Straight lines between corners, for each class."""
    found = []
    for k, (a, b) in enumerate(pairwise(curves.starts.tolist())):
        at, heights = curves.scores[a:b], curves.heights[a:b]
        column = scores
        if many:
            column = graph.add("Gather", scores, graph.constant(f"class{k}", np.array(k), np.int64), axis=1)
        column = graph.add("Unsqueeze", column, graph.constant("second", np.array([1]), np.int64))
        start = graph.constant(f"height{k}", heights[:1])
        if len(at) > 1:
            steep = np.minimum(1.0 / np.diff(at), STEEPEST)
            beyond = graph.add("Sub", column, graph.constant(f"corners{k}", at[None, :-1]))
            share = graph.add("Mul", beyond, graph.constant(f"steepness{k}", steep[None]))
            share = graph.add("Clip", share, graph.constant("zero", np.zeros(())), graph.constant("one", np.ones(())))
            risen = graph.add("MatMul", share, graph.constant(f"rises{k}", np.diff(heights)[:, None]))
        else:
            risen = graph.add("Mul", column, graph.constant("zero", np.zeros(())))
        found.append(graph.add("Add", risen, start))
    if many:
        together = graph.add("Concat", *found, axis=1)
        total = graph.add("ReduceSum", together, graph.constant("second", np.array([1]), np.int64), keepdims=1)
        graph.add("Div", together, total, out="probabilities")
    else:
        negative = graph.add("Sub", graph.constant("one", np.ones(())), found[0])
        graph.add("Concat", negative, found[0], out="probabilities", axis=1)


def _element(dtype: "np.dtype[Any]") -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(dtype))


class _Graph:
    """Nodes and constants as they are added, each under a name of its own."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}

    def constant(self, name: str, values: Array, dtype: Any = np.float32) -> str:
        """A constant; one that is there under this name is taken again."""
        from onnx import numpy_helper

        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.array(values, dtype, order="C"), name)
        return name

    def add(self, operator: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """A node; returns the name of what it gives."""
        from onnx import helper

        name = out or f"{operator.lower()}{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [name], name=f"node_{name}", **attributes))
        return name

    def model(self, model: Model, features: Features, width: int, first: int) -> Any:
        """The whole, checked."""
        import onnx
        from onnx import TensorProto, helper

        classes = len(model.classes)
        shape: list[str | int | None] = ["n", classes] if model.many else ["n"]
        outputs = [
            helper.make_tensor_value_info("label", self._constants["labels"].data_type, ["n"]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, shape),
        ]
        if model.probable:
            outputs.append(helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", classes]))
        inputs = [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", width])]
        graph = helper.make_graph(self._nodes, "streamsvm", inputs, outputs, list(self._constants.values()))
        found = helper.make_model(
            graph,
            producer_name="streamsvm",
            producer_version=__version__,
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
        described = {
            "classes": json.dumps(model.classes),
            "loss": model.loss,
            "first_index": str(first),
            **({"columns": json.dumps(_column_inputs(features))} if features.names else {}),
        }
        helper.set_model_props(found, described)
        onnx.checker.check_model(found, full_check=True)
        return found


def _column_inputs(features: Features) -> list[str]:
    """What the graph is to be given in each column: the number as it is, also where its logarithm is taken."""
    return [
        name.removeprefix("log1p(").removesuffix(")") if taken else name
        for name, taken in zip(features.names, features.logarithms, strict=True)
    ]
