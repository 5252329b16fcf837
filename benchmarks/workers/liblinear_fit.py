"""LIBLINEAR's side, in a process of its own. OPTIONS are those of its own program, such as "-s 3 -c 1".

    train READER DATA MODEL OPTIONS
    choose READER DATA MODEL OPTIONS EVERY C,C,...   the C with the least squared hinge on every n-th row, learned from
                                                     the others; then the model of all rows with that C
    curve READER DATA MODEL OPTIONS E,E,...          one reading, MODEL-E for each tolerance, the seconds of each
    test READER DATA MODEL

READER is the compiled `liblinear_reader.c`, or `none` for the package's Python reader, which is several times slower.
"""

import ctypes
import json
import sys
import time
from collections.abc import Iterable

sys.modules["numba"] = None  # type: ignore[assignment]  # the package then starts faster, and nothing here needs it

from liblinear import liblinear as lib  # noqa: E402
from liblinear.commonutil import svm_read_problem  # noqa: E402

BIAS = 1.0
PATIENCE = 3  # a search ends when that many larger C in a row were worse: they take ever longer


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
    return problem(arrays.rows, arrays.width, arrays.label, arrays.row)


def problem(count: int, width: int, labels: object, rows: object) -> lib.problem:
    made = lib.problem.__new__(lib.problem)
    made.l, made.n, made.y, made.x, made.bias = count, width, labels, rows, BIAS
    return made


def part(rows: lib.problem, places: range | list[int]) -> lib.problem:
    """Some of the rows; they share memory with the others."""
    labels = (ctypes.c_double * len(places))(*(rows.y[i] for i in places))
    chosen = (ctypes.POINTER(lib.feature_node) * len(places))(*(rows.x[i] for i in places))
    return problem(len(places), rows.n, labels, chosen)


def squared_hinge(trained: object, rows: lib.problem) -> float:
    """The mean over the rows."""
    score = (ctypes.c_double * 1)()
    first = trained.contents.label[0]  # type: ignore[attr-defined]  # scores are positive for this label
    total = 0.0
    for i in range(rows.l):
        lib.liblinear.predict_values(trained, rows.x[i], score)
        short = 1.0 - (score[0] if rows.y[i] == first else -score[0])
        total += max(0.0, short) ** 2
    return total / rows.l


def fit(rows: lib.problem, options: str) -> object:
    return lib.liblinear.train(rows, lib.parameter(f"{options} -B {BIAS:g} -q"))


def choose(rows: lib.problem, options: str, every: int, costs: Iterable[float]) -> dict[float, float]:
    """The held-out loss of each C that was tried, from the smallest on."""
    held = range(every - 1, rows.l, every)
    learned, unseen = part(rows, sorted(set(range(rows.l)) - set(held))), part(rows, held)
    losses: dict[float, float] = {}
    for cost in sorted(costs):
        losses[cost] = squared_hinge(fit(learned, f"{options} -c {cost!r}"), unseen)
        if min(losses.values()) < min(list(losses.values())[-PATIENCE:]):
            break
    return losses


def curve(rows: lib.problem, model: str, options: str, tolerances: Iterable[str]) -> dict[str, float]:
    """Seconds to learn and to write, by tolerance."""
    seconds = {}
    for tolerance in tolerances:
        started = time.perf_counter()
        lib.liblinear.save_model(f"{model}-{tolerance}".encode(), fit(rows, f"{options} -e {tolerance}"))
        seconds[tolerance] = time.perf_counter() - started
    return seconds


def main(mode: str, reader: str, data: str, model: str, options: str = "", more: str = "", costs: str = "") -> None:
    if mode == "train":
        lib.liblinear.save_model(model.encode(), fit(load(reader, data), options))
    elif mode == "curve":
        print(json.dumps(curve(load(reader, data), model, options, more.split(","))))
    elif mode == "choose":
        rows = load(reader, data)
        losses = choose(rows, options, int(more), map(float, costs.split(",")))
        best = min(losses, key=losses.__getitem__)
        lib.liblinear.save_model(model.encode(), fit(rows, f"{options} -c {best!r}"))
        print(json.dumps({"C": best, "held_out_loss": losses}))
    else:
        trained = lib.liblinear.load_model(model.encode())
        rows = load(reader, data, trained.contents.nr_feature + 1)
        wrong = sum(lib.liblinear.predict(trained, rows.x[i]) != rows.y[i] for i in range(rows.l))
        print(json.dumps({"error": wrong / rows.l}))


if __name__ == "__main__":
    main(*sys.argv[1:])
