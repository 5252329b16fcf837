"""`streamsvm export`, as a user meets it."""

import json
from typing import Any

import numpy as np
import onnxruntime
import pytest
from exchange_models import curves, many, two

from streamsvm import load_model


def test_the_ending_says_the_format(run: Any) -> None:
    two(loss="logistic").save("m.safetensors")
    code, out, err = run("export", "m.safetensors", "out/m.onnx")
    assert (code, err) == (0, "") and out.startswith("wrote out/m.onnx (11 features): onnxruntime.InferenceSession(")
    assert out.endswith("column 0 is index 1\n") and out.count("\n") == 1
    onnxruntime.InferenceSession("out/m.onnx", providers=["CPUExecutionProvider"])
    for name in ("m.model", "m.txt"):
        code, out, err = run("export", "m.safetensors", name)
        assert (code, err) == (
            0,
            "",
        ) and out == f"wrote {name} (11 features): LIBLINEAR's `predict data.svm {name} labels.txt`\n"
        assert np.array_equal(load_model(name).weights, load_model("m.safetensors").weights)
    assert run("export", "m.safetensors", "m.bin", "--format", "liblinear")[0] == 0
    assert load_model("m.bin").loss == "logistic"
    assert run("export", "m.model", "again.onnx")[0] == 0


def test_what_is_left_out_is_told(run: Any) -> None:
    two(calibration=curves("platt", 1), thresholds=np.array([0.5])).save("m.safetensors")
    code, out, err = run("export", "m.safetensors", "m.model")
    assert code == 0 and err.count("note: ") == 2 and "left out" in err and "taken off the bias" in err
    code, out, err = run("export", "m.safetensors", "m.model", "--json")
    found = json.loads(out)
    assert code == 0 and err == "" and len(found.pop("notes")) == 2
    assert found == {
        "model": "m.safetensors",
        "output": "m.model",
        "format": "liblinear",
        "features": 11,
        "classes": [-1, 1],
        "first_index": 1,
    }
    assert run("export", "m.safetensors", "m.onnx")[2] == ""


def test_what_cannot_be_is_refused_and_nothing_is_written(run: Any, tmp_path: Any) -> None:
    many(classes=["a", "b", "c", "d"]).save("m.safetensors")
    for arguments, code, told in (
        (("m.safetensors", "m.bin"), 2, "the name does not say which format to write"),
        (("m.safetensors", "m.onnx", "--format", "pmml"), 2, "must be one of auto, liblinear, onnx"),
        (("m.safetensors", "m.model"), 5, "labels are whole numbers; this model has 'a'"),
        (("nothing.safetensors", "m.model"), 3, "no such file"),
        (("m.safetensors", "m.safetensors/m.onnx"), 3, "cannot write"),
    ):
        ended, out, err = run("export", *arguments)
        assert (ended, out) == (code, "") and told in err and err.count("\n") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.safetensors"]


def test_index_0_needs_a_word(run: Any) -> None:
    model = two()
    model.weights[0] = 1.0
    model.save("m.safetensors")
    code, _, err = run("export", "m.safetensors", "m.model")
    assert code == 5 and "--zero-based" in err
    code, out, err = run("export", "m.safetensors", "m.model", "--zero-based")
    assert code == 0 and "(12 features)" in out and "note: feature j of the model" in err
    assert run("export", "m.safetensors", "m.onnx", "--one-based")[0] == 5


def test_models_may_be_in_buckets(run: Any, bucket: Any) -> None:
    two().save("memory://models/m.safetensors")
    for name in ("m.onnx", "m.model"):
        code, out, err = run("export", "memory://models/m.safetensors", f"memory://models/{name}")
        assert (code, err) == (0, "") and f"wrote memory://models/{name} " in out
    assert bucket.cat("/models/m.model").startswith(b"solver_type L2R_L2LOSS_SVC\n")
    assert load_model("memory://models/m.model").classes == [-1, 1]
    assert "trained  a LIBLINEAR model" in run("inspect", "memory://models/m.model")[1]


@pytest.mark.parametrize(
    "damage", [b"", b"solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 1000000000000\nbias -1\nw\n1 \n"]
)
def test_a_damaged_model_is_one_line(run: Any, put: Any, damage: bytes) -> None:
    put("m.model", damage)
    for command in (("export", "m.model", "m.onnx"), ("predict", "m.model", "-"), ("evaluate", "m.model", "-")):
        code, out, err = run(*command)
        assert (code, out) == (5, "") and err.startswith("streamsvm: m.model: ") and err.count("\n") == 1
