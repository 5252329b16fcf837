#!/usr/bin/env python3
"""Give the rows of generate.py more than two classes: the same text, but for the label in front of each row.

usage: python benchmarks/relabel.py IN OUT [--classes 10]

Each class has a direction of its own, and a row belongs to the class whose direction it follows most, noise included:

    label  = argmax over k of  3 direction_k . row + 0.35 gumbel        (0..classes-1)

Directions depend on the number of classes alone, noise on the row number too, so that neither the size of the file nor
that of a block changes a label. The file is gone through once, a block at a time, and never held in memory.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np

from generate import FEATURES, GOLDEN, kernel, mixed, put_number

BLOCK = 1 << 23  # bytes


def relabel(
    source: str | os.PathLike[str], out: str | os.PathLike[str], classes: int, *, features: int = FEATURES
) -> int:
    """Write `out`, whose name appears once it is complete; returns the number of rows."""
    directions, sums = make_directions(classes, features), np.empty(classes)
    part = Path(out).with_name(Path(out).name + ".part")
    rows, rest = 0, b""
    with open(source, "rb") as read, open(part, "wb") as write:
        while block := read.read(BLOCK):
            whole, newline, after = block.rpartition(b"\n")
            text = np.frombuffer(rest + whole + newline if newline else b"", np.uint8)
            rest = after if newline else rest + block
            room = np.empty(2 * len(text), np.uint8)
            count, size = relabel_block(text, rows, directions, sums, room)
            write.write(room.data[:size])
            rows += count
    if rest:
        raise ValueError(f"{source}: the last line has no end")
    part.replace(out)
    return rows


def make_directions(classes: int, features: int) -> np.ndarray:
    """A row for each feature, of which three in ten say something about a class, as in generate.py."""
    random = np.random.default_rng([4321, classes])
    directions = random.standard_normal((features, classes), np.float32)
    return directions * (random.random((features, classes), np.float32) < 0.3)


@kernel
def relabel_block(text, first, directions, sums, out):
    """Whole lines, of which the first has that row number; returns (rows, bytes written)."""
    at = wrote = rows = 0
    while at < text.size:
        while text[at] != 32:
            at += 1
        body = at
        sums[:] = 0.0
        while text[at] != 10:
            index, at = 0, at + 1
            while text[at] != 58:
                index = 10 * index + text[at] - 48
                at += 1
            number, at = 0, at + 1
            while text[at] != 32 and text[at] != 10:  # 0.123456
                if text[at] != 46:
                    number = 10 * number + text[at] - 48
                at += 1
            direction, value = directions[index - 1], number * 1e-6
            for k in range(sums.size):
                sums[k] += value * direction[k]
        at += 1

        state = mixed(np.uint64(first + rows) * GOLDEN + np.uint64(sums.size))
        label, most = 0, -np.inf
        for k in range(sums.size):
            state += GOLDEN
            even = ((mixed(state) >> np.uint64(11)) + 0.5) * 2.0**-53
            score = 3 * sums[k] - 0.35 * np.log(-np.log(even))
            if score > most:
                label, most = k, score
        wrote = put_number(out, wrote, label)
        out[wrote : wrote + at - body] = text[body:at]
        wrote += at - body
        rows += 1
    return rows, wrote


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="IN", help="LIBSVM text of generate.py")
    parser.add_argument("out", help="the same with other labels")
    parser.add_argument("--classes", type=int, default=10)
    args = parser.parse_args()
    started = time.perf_counter()
    rows = relabel(args.source, args.out, args.classes)
    print(f"{rows} rows with {args.classes} classes in {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
