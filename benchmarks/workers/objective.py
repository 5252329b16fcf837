"""The primal objective of models, in plain NumPy and with LIBLINEAR's reader: no line of it is streamsvm's.

    objective.py READER DATA LOSS:C:MODEL ...     prints a list with, for each model,

    l2/2 (||w||^2 + b^2) + mean of loss(w.x + b, y),    l2 = 1/(C rows),    loss: hinge or squared_hinge

which is what LIBLINEAR minimises (-B 1), divided by C rows. MODEL is LIBLINEAR's, streamsvm's (safetensors) or an .npz.
"""

import ctypes
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from liblinear_fit import load

PIECE = 1 << 14  # rows at a time
NODE = np.dtype([("index", np.int32), ("value", np.float64)], align=True)


class Linear(NamedTuple):
    weights: np.ndarray  # weights[j] belongs to index j
    bias: float


def linear(path: Path) -> Linear:
    """A model by its first bytes."""
    content = path.read_bytes()
    if content.startswith(b"solver_type"):
        return of_liblinear(content.decode())
    if content.startswith(b"PK"):
        with np.load(path) as arrays:
            return Linear(np.append(0.0, arrays["weights"]), float(arrays["bias"]))
    return of_safetensors(content)


def of_liblinear(text: str) -> Linear:
    """Its weights begin with index 1, end with the bias, and point to the label it saw first."""
    head, _, numbers = text.partition("\nw\n")
    first = float(next(line for line in head.splitlines() if line.startswith("label ")).split()[1])
    values = np.array(numbers.split(), np.float64) * (1.0 if first > 0 else -1.0)
    return Linear(np.append(0.0, values[:-1]), float(values[-1]))


def of_safetensors(content: bytes) -> Linear:
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])

    def tensor(name: str) -> np.ndarray:
        kind = {"F32": np.float32, "F64": np.float64}[header[name]["dtype"]]
        begin, end = header[name]["data_offsets"]
        return np.frombuffer(content[8 + length + begin : 8 + length + end], kind).astype(np.float64)

    return Linear(tensor("weights"), float(tensor("bias")[0]))


class Rows:
    """The rows as LIBLINEAR holds them: nodes one after the other, each row ended by index -1."""

    def __init__(self, reader: str, path: str) -> None:
        self._held = held = load(reader, path)
        self.count, self.bias_index = held.l, held.n
        self.signs = np.where(np.ctypeslib.as_array(held.y, (held.l,)) > 0, 1.0, -1.0)
        self._places = np.ctypeslib.as_array(ctypes.cast(held.x, ctypes.POINTER(ctypes.c_uint64)), (held.l,))

    def pieces(self) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Which rows, their nodes, and where each of them begins."""
        for begin in range(0, self.count, PIECE):
            end = min(begin + PIECE, self.count)
            places = self._places[begin:end].astype(np.int64)
            last = places[-1] - places[0] + NODE.itemsize * self._length(end - 1)
            raw = (ctypes.c_char * int(last)).from_address(int(places[0]))
            yield slice(begin, end), np.frombuffer(raw, NODE), (places - places[0]) // NODE.itemsize

    def _length(self, row: int) -> int:
        nodes, length = self._held.x[row], 1
        while nodes[length - 1].index != -1:
            length += 1
        return length


def scores(rows: Rows, model: Linear) -> np.ndarray:
    known = min(len(model.weights), rows.bias_index)
    by_index = np.zeros(rows.bias_index + 2)  # the last belongs to index -1
    by_index[:known] = model.weights[:known]
    by_index[rows.bias_index] = model.bias
    found = np.empty(rows.count)
    for which, nodes, starts in rows.pieces():
        found[which] = np.add.reduceat(by_index[nodes["index"]] * nodes["value"], starts)
    return found


def objective(rows: Rows, model: Linear, loss: str, cost: float) -> float:
    short = np.maximum(0.0, 1.0 - rows.signs * scores(rows, model))
    mean = float(np.mean(short * short if loss == "squared_hinge" else short))
    norm2 = float(model.weights @ model.weights) + model.bias**2
    return 0.5 * norm2 / (cost * rows.count) + mean


def main(reader: str, data: str, *solved: str) -> None:
    rows = Rows(reader, data)
    found = []
    for one in solved:
        loss, cost, model = one.split(":", 2)
        found.append(objective(rows, linear(Path(model)), loss, float(cost)))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
