"""LIBLINEAR's side, in a process of its own: train READER DATA MODEL | test READER DATA MODEL.

READER is the compiled `liblinear_reader.c`, or `none` for the package's Python reader, which is several times slower.
"""

import ctypes
import json
import sys

sys.modules["numba"] = None  # type: ignore[assignment]  # the package then starts faster, and nothing here needs it

from liblinear import liblinear as lib  # noqa: E402
from liblinear.commonutil import svm_read_problem  # noqa: E402

BIAS = 1.0


class Arrays(ctypes.Structure):
    _fields_ = [
        ("rows", ctypes.c_int),
        ("width", ctypes.c_int),
        ("label", ctypes.POINTER(ctypes.c_double)),
        ("row", ctypes.POINTER(ctypes.POINTER(lib.feature_node))),
    ]


def load(reader: str, path: str, width: int = 0) -> lib.problem:
    """The rows as LIBLINEAR holds them; `width` is that of a model, bias included, when one is to be tested."""
    if reader == "none":
        labels, rows = svm_read_problem(path, return_scipy=True)
        if width:
            rows = rows[:, : width - 1]
            rows.resize(rows.shape[0], width - 1)
        return lib.problem(labels, rows, BIAS)
    arrays = Arrays()
    read = ctypes.CDLL(reader).read_problem
    if read(path.encode(), ctypes.c_double(BIAS), width, ctypes.byref(arrays)):
        raise SystemExit(f"{path}: cannot be read as LIBSVM text")
    rows = lib.problem.__new__(lib.problem)
    rows.l, rows.n, rows.y, rows.x, rows.bias = arrays.rows, arrays.width, arrays.label, arrays.row, BIAS
    return rows


def main(mode: str, reader: str, data: str, model: str) -> None:
    if mode == "train":
        trained = lib.liblinear.train(load(reader, data), lib.parameter("-s 3 -c 1 -B 1 -q"))
        lib.liblinear.save_model(model.encode(), trained)
    else:
        trained = lib.liblinear.load_model(model.encode())
        rows = load(reader, data, trained.contents.nr_feature + 1)
        wrong = sum(lib.liblinear.predict(trained, rows.x[i]) != rows.y[i] for i in range(rows.l))
        print(json.dumps({"error": wrong / rows.l}))


if __name__ == "__main__":
    main(*sys.argv[1:])
