"""`KERNEL_SOLVERS` names the kernel learners, which keep rows and a coefficient for each."""

from typing import Any

from streamsvm.solvers.base import Problem
from streamsvm.solvers.kernel_pegasos import KernelPegasos
from streamsvm.solvers.norma import Norma
from streamsvm.solvers.support import KernelSolver

KERNEL_SOLVERS: dict[str, type[KernelSolver]] = {solver.name: solver for solver in (Norma, KernelPegasos)}


def make_kernel_solver(name: str, problem: Problem, **options: Any) -> KernelSolver:
    return KERNEL_SOLVERS[name](problem, **options)
