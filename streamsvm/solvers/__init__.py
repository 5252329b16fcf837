"""One algorithm per file. `SOLVERS` names them all; `make_solver` refuses what a solver cannot do before it begins."""

from typing import Any

from streamsvm.errors import ConfigError
from streamsvm.groups import Groups
from streamsvm.solvers.adagrad import Adagrad
from streamsvm.solvers.asgd import Asgd
from streamsvm.solvers.base import OnlineSolver, Problem
from streamsvm.solvers.batch import BatchSolver, Surroundings
from streamsvm.solvers.bmrm import Bmrm
from streamsvm.solvers.dcd import Dcd
from streamsvm.solvers.folos import Folos
from streamsvm.solvers.ftrl import Ftrl
from streamsvm.solvers.newton import Newton
from streamsvm.solvers.ocas import Ocas
from streamsvm.solvers.pegasos import Pegasos
from streamsvm.solvers.sgd import Sgd
from streamsvm.solvers.sgdqn import Sgdqn
from streamsvm.solvers.zhang import Zhang

SOLVERS: dict[str, type[OnlineSolver]] = {
    solver.name: solver for solver in (Asgd, Sgd, Pegasos, Sgdqn, Zhang, Folos, Adagrad, Ftrl)
}

BATCH_SOLVERS: dict[str, type[BatchSolver]] = {solver.name: solver for solver in (Dcd, Newton, Bmrm, Ocas)}


def make_solver(name: str, problem: Problem, **options: Any) -> OnlineSolver:
    """The solver of that name; ConfigError names the solvers that can minimise the penalty if this one cannot."""
    kind = problem.penalty.kind
    if kind not in SOLVERS[name].penalties:
        able = ", ".join(other for other, solver in SOLVERS.items() if kind in solver.penalties) or "none"
        raise ConfigError(f"solver {name} cannot minimise penalty {kind}; solvers that can: {able}")
    return SOLVERS[name](problem, **options)


def make_batch_solver(name: str, problem: Problem, groups: Groups, around: Surroundings, **options: Any) -> BatchSolver:
    """The solver of that name for finite data."""
    return BATCH_SOLVERS[name](problem, groups, around, **options)


# Kernels for several classes are loaded when there are several, kernel learners when one is wanted: others are not to
# wait for them.


def make_kernel_solver(name: str, problem: Problem, **options: Any) -> OnlineSolver:
    """The kernel learner of that name, for rows of `dim` numbers each."""
    from streamsvm.solvers import kernel_solvers

    return kernel_solvers.make_kernel_solver(name, problem, **options)


def make_many(rule: str, name: str, problem: Problem, **options: Any) -> OnlineSolver:
    """The online solver of that name for several classes, by this rule."""
    from streamsvm.solvers import many

    return many.make_many(rule, name, problem, **options)


def make_class_solver(rule: str, problem: Problem, groups: Groups, around: Surroundings, classes: int) -> BatchSolver:
    """The solver of finite data that learns so many classes by this rule."""
    from streamsvm.solvers import class_solvers

    return class_solvers.make_class_solver(rule, problem, groups, around, classes)


def class_weight_bytes(classes: int) -> int:
    """Bytes that such a solver needs at least for each feature."""
    from streamsvm.solvers.dcd_classes import ClassDescent

    return ClassDescent.weight_bytes_for(classes)


__all__ = [
    "BATCH_SOLVERS",
    "SOLVERS",
    "Adagrad",
    "Asgd",
    "BatchSolver",
    "Bmrm",
    "Dcd",
    "Folos",
    "Ftrl",
    "Newton",
    "Ocas",
    "OnlineSolver",
    "Pegasos",
    "Sgd",
    "Sgdqn",
    "Zhang",
    "class_weight_bytes",
    "make_batch_solver",
    "make_class_solver",
    "make_kernel_solver",
    "make_many",
    "make_solver",
]
