"""The settings of each solver. What a solver can minimise stands here too, so that a wrong wish is refused at once."""

from collections.abc import Mapping
from typing import ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamsvm.config.kinds import Count, Duration, Fraction, NotNegative, Positive, Step, Text
from streamsvm.offered import LOSSES, SMOOTH_LOSSES

PROXIMAL = ("l2", "l1", "elastic_net", "none")  # kinds of penalty that solvers with a proximal step can have
RULES = ("ova", "crammer_singer")  # how more than two classes are learned


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
    penalties: ClassVar[tuple[str, ...]] = ("l2",)  # that it can have
    losses: ClassVar[tuple[str, ...]] = LOSSES
    biases: ClassVar[tuple[str, ...]] = ("penalised", "free", "none")
    rules: ClassVar[tuple[str, ...]] = ("ova",)  # by which it learns more than two classes
    name: str = Field(default="", description="The algorithm.")
    passes: Count = Field(default=1, description="Sweeps over the training data.")
    init: Text | None = Field(default=None, description="Model file to continue from; null starts at zero.")


class OnlineSettings(AnySolver):
    """What every solver has that learns row by row, and may see each of them only once."""

    early_stop: Count | None = Field(
        default=None,
        description="Stop when so many passes brought no smaller loss on held-out rows (data.holdout), and keep the "
        "weights of the best pass.",
    )


class BatchSettings(AnySolver):
    """What every solver has that goes over all rows until it is proven to be close to the optimum."""

    biases: ClassVar[tuple[str, ...]] = ("penalised", "none")
    early_stop: ClassVar[None] = None
    tol: Positive = Field(
        default=1e-3,
        description="Stop when the objective is proven to be at most this share of itself above the least possible.",
    )
    passes: Count = Field(default=1000, description="Stop after so many readings of the training data.")
    time: Duration = Field(default=None, description="Stop after so long, such as 30s, 10m or 2h; null has no limit.")


class SteppingSolver(OnlineSettings):
    """What every solver with a step size has."""

    eta0: Step = Field(default="auto", description="First step size; auto tries several on the first rows.")


class SgdSettings(SteppingSolver, title="solver: sgd"):
    """Stochastic gradient descent."""

    rules = RULES
    name: Literal["sgd"] = Field(default="sgd", description="The algorithm.")


class AsgdSettings(SteppingSolver, title="solver: asgd"):
    """Stochastic gradient descent with averaged weights."""

    rules = RULES
    name: Literal["asgd"] = Field(default="asgd", description="The algorithm.")
    revisit: bool = Field(
        default=True,
        description="In a single pass over few rows (up to 8192), learn them several times, as often as rows left out "
        "say.",
    )


class ZhangSettings(SteppingSolver, title="solver: zhang"):
    """Constant steps, averaged weights."""

    name: Literal["zhang"] = Field(default="zhang", description="The algorithm.")


class PegasosSettings(OnlineSettings, title="solver: pegasos"):
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


class DcdSettings(BatchSettings, title="solver: dcd"):
    """Dual coordinate descent, block by block: the exact optimum, with a proof."""

    rules = RULES
    name: Literal["dcd"] = Field(default="dcd", description="The algorithm.")


class NewtonSettings(BatchSettings, title="solver: newton"):
    """Trust-region Newton: the exact optimum where features are few and rows many; needs a smooth loss."""

    losses = SMOOTH_LOSSES
    rules = ()
    biases = ("penalised", "free", "none")
    name: Literal["newton"] = Field(default="newton", description="The algorithm.")
    hessian_sample: Fraction = Field(
        default=1.0, description="Share of the rows, above 0, from which curvature is measured."
    )


class BmrmSettings(BatchSettings, title="solver: bmrm"):
    """Bundle method: cutting planes, one for each reading of the data."""

    rules = ()
    name: Literal["bmrm"] = Field(default="bmrm", description="The algorithm.")


class OcasSettings(BatchSettings, title="solver: ocas"):
    """Cutting planes with an exact line search: no reading makes the objective worse."""

    rules = ()
    name: Literal["ocas"] = Field(default="ocas", description="The algorithm.")


class KernelSettings(AnySolver):
    """What every solver has that learns with a kernel: it keeps rows, the supports, and a coefficient for each."""

    rules = ()
    early_stop: ClassVar[None] = None
    kernel: Literal["rbf", "polynomial", "linear"] = Field(
        default="rbf", description="How alike two rows are: exp(-gamma |s-x|^2), (gamma s.x + coef0)^degree, or s.x."
    )
    budget: Count = Field(default=500, description="Supports that are kept at most.")
    upkeep: Literal["merge", "project", "smallest", "oldest"] = Field(
        default="merge",
        description="What is done with one support too many: merge it with another (rbf; else as project), project it "
        "onto its neighbours, or drop the one that matters least, or the oldest.",
    )
    average: bool = Field(
        default=True, description="Average the coefficients of all steps, newer ones more; with merge or project."
    )
    degree: Count = Field(default=3, description="Of the polynomial kernel.")
    coef0: NotNegative = Field(default=1.0, description="Of the polynomial kernel.")


class NormaSettings(KernelSettings, title="solver: norma"):
    """Gradient steps with a kernel on a budget of supports."""

    name: Literal["norma"] = Field(default="norma", description="The algorithm.")
    eta0: Step = Field(default="auto", description="First step size; auto tries several on the first rows.")
    steps: Literal["root", "constant"] = Field(
        default="root",
        description="How steps get shorter: with the root of the rows seen, or not at all, so that old rows fade.",
    )


class KernelPegasosSettings(KernelSettings, title="solver: kernel_pegasos"):
    """Pegasos with a kernel on a budget of supports."""

    name: Literal["kernel_pegasos"] = Field(default="kernel_pegasos", description="The algorithm.")


class AutoSettings(BatchSettings, title="solver: auto"):
    """Chooses when the data is known: asgd where it may never end, newton for few features and many rows, else dcd."""

    rules = RULES
    biases = ("penalised", "free", "none")
    name: Literal["auto"] = Field(default="auto", description="The algorithm.")


SolverSettings = (
    AsgdSettings
    | SgdSettings
    | PegasosSettings
    | SgdqnSettings
    | ZhangSettings
    | FolosSettings
    | AdagradSettings
    | FtrlSettings
    | DcdSettings
    | NewtonSettings
    | BmrmSettings
    | OcasSettings
    | AutoSettings
    | NormaSettings
    | KernelPegasosSettings
)
DEFAULT_SOLVER = "asgd"
SOLVER_SETTINGS: dict[str, type[AnySolver]] = {
    kind.model_fields["name"].default: kind for kind in get_args(SolverSettings)
}


def solver_tree(value: object) -> object:
    """A bare name, or a mapping without one, in the form that tells the solvers apart."""
    if value is None or isinstance(value, str):
        return {"name": DEFAULT_SOLVER if value is None else value}
    return {"name": DEFAULT_SOLVER, **value} if isinstance(value, Mapping) else value
