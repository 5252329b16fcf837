"""One algorithm per file. `SOLVERS` names them all."""

from streamsvm.solvers.asgd import Asgd
from streamsvm.solvers.base import OnlineSolver
from streamsvm.solvers.pegasos import Pegasos
from streamsvm.solvers.sgd import Sgd

SOLVERS: dict[str, type[OnlineSolver]] = {solver.name: solver for solver in (Asgd, Sgd, Pegasos)}

__all__ = ["SOLVERS", "Asgd", "OnlineSolver", "Pegasos", "Sgd"]
