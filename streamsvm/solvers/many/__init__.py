"""The online solvers for more than two classes, by the same names; `make_many` makes one."""

from typing import Any

from streamsvm.solvers.base import Problem
from streamsvm.solvers.many.adagrad import AdagradClasses
from streamsvm.solvers.many.asgd import AsgdClasses, ZhangClasses
from streamsvm.solvers.many.crammer_singer import CrammerSingerAsgd, CrammerSingerSgd
from streamsvm.solvers.many.folos import FolosClasses
from streamsvm.solvers.many.ftrl import FtrlClasses
from streamsvm.solvers.many.pegasos import PegasosClasses
from streamsvm.solvers.many.sgd import SgdClasses
from streamsvm.solvers.many.sgdqn import SgdqnClasses
from streamsvm.solvers.many.solver import ManyClasses

ONE_VERSUS_ALL = (
    AsgdClasses,
    SgdClasses,
    PegasosClasses,
    SgdqnClasses,
    ZhangClasses,
    FolosClasses,
    AdagradClasses,
    FtrlClasses,
)
OVA: dict[str, type[ManyClasses]] = {solver.name: solver for solver in ONE_VERSUS_ALL}
CRAMMER_SINGER: dict[str, type[ManyClasses]] = {solver.name: solver for solver in (CrammerSingerAsgd, CrammerSingerSgd)}


def make_many(rule: str, name: str, problem: Problem, **options: Any) -> ManyClasses:
    """The solver of that name for several classes, by this rule."""
    return (OVA if rule == "ova" else CRAMMER_SINGER)[name](problem, **options)


__all__ = ["CRAMMER_SINGER", "OVA", "ManyClasses", "make_many"]
