"""The engine by hand: batches from a stream, a solver that learns them, stopped half way and resumed exactly.

python examples/stream_from_memory.py
"""

from pathlib import Path

import numpy as np

from streamsvm import open_stream
from streamsvm.classes import ClassMap
from streamsvm.losses import Hinge
from streamsvm.penalties import L2
from streamsvm.solvers import Asgd
from streamsvm.solvers.base import Problem

train = Path(__file__).parent / "data" / "a9a.train.svm.gz"
problem = Problem(Hinge(), L2(1e-5))


def learn(solver: Asgd, *, skip: int = 0, stop: int | None = None) -> Asgd:
    """Feed rows skip..stop of the file to a solver."""
    classes = ClassMap()
    seen = 0
    for batch in open_stream(str(train), limit=stop):
        fresh = batch.slice(min(max(skip - seen, 0), batch.rows), batch.rows)
        seen += batch.rows
        solver.learn(classes.encode(fresh))
    return solver


whole = learn(Asgd(problem))
whole.finish()

half = learn(Asgd(problem), stop=15_000)
resumed = Asgd(problem)
resumed.restore(half.state())
learn(resumed, skip=15_000)
resumed.finish()

weights, bias = whole.weights()
weights_again, bias_again = resumed.weights()
print(f"{len(weights)} weights, bias {bias:+.4f}")
print("resumed run is identical, bit for bit:", bool(np.array_equal(weights, weights_again)) and bias == bias_again)
