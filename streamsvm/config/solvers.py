"""The settings of each solver. What a solver can minimise stands here too, so that a wrong wish is refused at once."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamsvm.config.kinds import Count, Positive, Step, Text

PROXIMAL = ("l2", "l1", "elastic_net", "none")  # kinds of penalty that solvers with a proximal step can have


class Section(BaseModel):
    """A group of settings: unknown keys are errors, and what has been validated cannot change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    short: ClassVar[str | None] = None  # the key that a bare word in place of the section stands for

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, str) and cls.short is not None:
            return {cls.short: value}
        return {} if value is None else value


class AnySolver(Section):
    """What every solver has."""

    short = "name"
    penalties: ClassVar[tuple[str, ...]] = ("l2",)
    name: str = Field(default="", description="The algorithm.")
    passes: Count = Field(default=1, description="Sweeps over the training data.")
    early_stop: Count | None = Field(
        default=None,
        description="Stop when so many passes brought no smaller loss on held-out rows (data.holdout), and keep the "
        "weights of the best pass.",
    )
    init: Text | None = Field(default=None, description="Model file to continue from; null starts at zero.")


class SteppingSolver(AnySolver):
    """What every solver with a step size has."""

    eta0: Step = Field(default="auto", description="First step size; auto tries several on the first rows.")


class SgdSettings(SteppingSolver, title="solver: sgd"):
    """Stochastic gradient descent."""

    name: Literal["sgd"] = Field(default="sgd", description="The algorithm.")


class AsgdSettings(SteppingSolver, title="solver: asgd"):
    """Stochastic gradient descent with averaged weights."""

    name: Literal["asgd"] = Field(default="asgd", description="The algorithm.")


class ZhangSettings(SteppingSolver, title="solver: zhang"):
    """Constant steps, averaged weights."""

    name: Literal["zhang"] = Field(default="zhang", description="The algorithm.")


class PegasosSettings(AnySolver, title="solver: pegasos"):
    """Pegasos: sub-gradient steps on small batches with a fixed schedule."""

    name: Literal["pegasos"] = Field(default="pegasos", description="The algorithm.")
    batch_size: Count = Field(default=1, description="Rows per step.")
    project: bool = Field(default=True, description="Project the weights onto the ball that holds the optimum.")
    average: bool = Field(default=False, description="Average the weights of all steps, newer ones more.")


class SgdqnSettings(SteppingSolver, title="solver: sgdqn"):
    """Stochastic gradient descent with a learned step size for each feature (quasi-Newton)."""

    name: Literal["sgdqn"] = Field(default="sgdqn", description="The algorithm.")
    skip: Count = Field(default=16, description="Rows between two looks at the curvature.")


class FolosSettings(SteppingSolver, title="solver: folos"):
    """Gradient steps, each followed by a proximal step of the penalty: exact zeros with l1."""

    penalties = PROXIMAL
    name: Literal["folos"] = Field(default="folos", description="The algorithm.")


class AdagradSettings(SteppingSolver, title="solver: adagrad"):
    """Steps for each feature by its past slopes; exact zeros with l1."""

    penalties = PROXIMAL
    name: Literal["adagrad"] = Field(default="adagrad", description="The algorithm.")


class FtrlSettings(SteppingSolver, title="solver: ftrl"):
    """Follow the regularised leader, a step size for each feature; exact zeros with l1."""

    penalties = PROXIMAL
    name: Literal["ftrl"] = Field(default="ftrl", description="The algorithm.")
    beta: Positive = Field(default=1.0, description="Damps the first steps of a feature.")


SolverSettings = (
    SgdSettings
    | AsgdSettings
    | ZhangSettings
    | PegasosSettings
    | SgdqnSettings
    | FolosSettings
    | AdagradSettings
    | FtrlSettings
)
DEFAULT_SOLVER = "asgd"
SOLVER_SETTINGS: dict[str, type[AnySolver]] = {
    "asgd": AsgdSettings,
    "sgd": SgdSettings,
    "pegasos": PegasosSettings,
    "sgdqn": SgdqnSettings,
    "zhang": ZhangSettings,
    "folos": FolosSettings,
    "adagrad": AdagradSettings,
    "ftrl": FtrlSettings,
}


def solver_tree(value: object) -> object:
    """A bare name, or a mapping without one, in the form that tells the solvers apart."""
    if value is None or isinstance(value, str):
        return {"name": DEFAULT_SOLVER if value is None else value}
    return {"name": DEFAULT_SOLVER, **value} if isinstance(value, Mapping) else value
