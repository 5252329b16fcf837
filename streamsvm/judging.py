"""What a run keeps to judge its model by when it ends: scores of rows that the model has not learned from.

    one pass                rows on their way to the solver, scored before they are learned (progressive.py)
    exact solvers           rows by weights that were learned from the others (fold_groups.py), in a few further fits
    several passes          held-out rows; of all solvers, if there are any (data.holdout)

Of these scores probabilities are learned (calibration.py), and thresholds are chosen (thresholds.py).
"""

from collections.abc import Callable

import numpy as np

from streamsvm.batch import Float64s
from streamsvm.calibration import fit_calibration
from streamsvm.config import BatchSettings, Settings
from streamsvm.errors import ConfigError
from streamsvm.model import Model
from streamsvm.score_sample import ScoreSample
from streamsvm.thresholds import choose_thresholds

EVERY = 10  # rows of which one is held out where nothing else is said
FEWEST = 20  # rows that tell anything

Note = Callable[[str], None]


def calibration_kind(settings: Settings) -> str:
    """platt, isotonic or none. Probabilities of the logistic loss need none, unless it is asked for."""
    if settings.calibration != "auto":
        return settings.calibration
    return "none" if settings.loss == "logistic" else "platt"


def asked(settings: Settings) -> bool:
    """Whether the settings name something that needs scores of rows that were not learned."""
    return settings.calibration in ("platt", "isotonic") or settings.threshold.by != "none"


def wanted(settings: Settings) -> bool:
    """Whether such scores are of use; a report shows them."""
    return calibration_kind(settings) != "none" or settings.threshold.by != "none" or settings.output.report is not None


def once(settings: Settings) -> bool:
    """Whether every row comes to the solver once, and so can be scored before."""
    return not isinstance(settings.solver, BatchSettings) and settings.solver.passes == 1


def cross_fitted(settings: Settings) -> bool:
    """Whether an exact solver is to learn again without some of the rows, to score them."""
    return isinstance(settings.solver, BatchSettings) and asked(settings) and not settings.data.holdout


def with_rows_to_judge(settings: Settings, note: Note) -> Settings:
    """The settings; with held-out rows where there must be some."""
    if settings.data.holdout or once(settings) or cross_fitted(settings) or not asked(settings):
        return settings
    what = "probabilities are learned" if settings.threshold.by == "none" else "the threshold is chosen"
    note(f"every {EVERY}th row is held out, because {what} on rows that were not learned (data.holdout)")
    return settings.model_copy(update={"data": settings.data.model_copy(update={"holdout": EVERY})})


def judge(model: Model, sample: ScoreSample | None, settings: Settings, note: Note) -> None:
    """Learn probabilities and choose thresholds for a model, whose classes are in the order of the sample."""
    if sample is None:
        return
    on = "held-out" if settings.data.holdout else "progressive" if once(settings) else "left-out"
    kind, costs = calibration_kind(settings), costs_of(settings, model)
    if sample.rows < FEWEST or len(set(sample.codes().tolist())) < 2:
        if asked(settings):
            note(f"warning: no probabilities or thresholds: {sample.rows:,} rows to judge by, of one class or too few")
        return
    if kind != "none":
        model.calibration = fit_calibration(kind, sample, on)
    if settings.threshold.by != "none":
        model.thresholds = choose_thresholds(sample, settings.threshold.by, costs)


def costs_of(settings: Settings, model: Model) -> Float64s | None:
    """What it costs to take a row of each class for another; 1 where nothing is said."""
    given = settings.threshold.costs
    if not isinstance(given, dict):
        return None
    names = [model.class_text(code) for code in range(len(model.classes))]
    strange = set(given) - set(names)
    if strange:
        raise ConfigError(
            f"threshold.costs: {', '.join(sorted(strange))} is not one of the classes ({', '.join(names[:10])})"
        )
    return np.array([given.get(name, 1.0) for name in names])
