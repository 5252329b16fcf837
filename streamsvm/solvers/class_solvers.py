"""Which solver of finite data learns several classes, by the rule that makes one model of them."""

from streamsvm.errors import ConfigError
from streamsvm.groups import Groups
from streamsvm.solvers.base import Problem
from streamsvm.solvers.batch import Surroundings
from streamsvm.solvers.dcd_classes import ClassDescent
from streamsvm.solvers.dcd_cs import DcdCs
from streamsvm.solvers.dcd_ova import DcdOva

CLASS_SOLVERS: dict[str, type[DcdOva] | type[DcdCs]] = {"ova": DcdOva, "crammer_singer": DcdCs}


def make_class_solver(rule: str, problem: Problem, groups: Groups, around: Surroundings, classes: int) -> ClassDescent:
    """A solver whose weights are [feature, class]; ConfigError if it cannot solve this problem."""
    if rule not in CLASS_SOLVERS:
        raise ConfigError(f"no solver learns several classes by rule {rule}; rules: {', '.join(CLASS_SOLVERS)}")
    return CLASS_SOLVERS[rule](problem, groups, around, classes)
