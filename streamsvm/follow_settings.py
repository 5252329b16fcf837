"""What `follow` asks of the settings: some wishes make no sense for a log, and some defaults are others."""

from typing import Any

from streamsvm.config import BatchSettings, Settings, expand
from streamsvm.errors import ConfigError
from streamsvm.io.overwriting import refuse_overwriting
from streamsvm.offered import LINES

EVERY = 30.0  # seconds between two checkpoints, unless others are asked for


def follow_settings(settings: Settings) -> Settings:
    """The settings, with what is different for a run that does not end."""
    _refuse(settings)
    checkpoint, data = settings.checkpoint, settings.data
    kept: dict[str, Any] = {"resume": True}
    if checkpoint.dir is None:
        kept["dir"] = f"{settings.output.model}.checkpoint"
    if "every" not in checkpoint.model_fields_set:
        kept["every"] = EVERY
    if "patience" not in checkpoint.model_fields_set:
        kept["patience"] = None
    read = {} if "on_bad_row" in data.model_fields_set else {"on_bad_row": "skip"}
    settings = settings.model_copy(
        update={
            "checkpoint": checkpoint.model_copy(update=kept),
            "data": data.model_copy(update=read),
            "run": settings.run.model_copy(update={"cache": "off"}),
        }
    )
    refuse_overwriting(settings.outputs(), settings.inputs(), expand, growing=True)
    return settings


def _refuse(settings: Settings) -> None:
    """ConfigError, if something is asked for that a log cannot give."""
    data, solver = settings.data, settings.solver
    wrong = {
        f"solver.name: {solver.name} goes over the data again and again, but a log comes once; use asgd, ftrl, ...": (
            isinstance(solver, BatchSettings)
        ),
        "solver.passes: a log comes once": solver.passes != 1,
        "penalty.C: the number of rows is not known; use --l2": settings.penalty.C is not None,
        "data.holdout: rows are scored before they are learned, none need be held out": bool(data.holdout),
        "data.shuffle: the lines of a log are learned in their order": data.shuffle not in ("auto", 0),
        "data.limit: use follow.stop_after (--stop-after)": data.limit is not None,
        "data.test: evaluate the model with streamsvm evaluate": bool(data.test),
        "run.objective: a log cannot be read once more": settings.run.objective,
        f"data.format: {data.format} files do not grow line by line": data.format not in ("auto", *LINES),
        "output.model: name the file in which the model is kept": settings.output.model is None,
        "checkpoint.every: a time is needed, after which the model is written": settings.checkpoint.every is None,
    }
    for message, is_wrong in wrong.items():
        if is_wrong:
            raise ConfigError(f"follow: {message}")
    if not data.train:
        raise ConfigError("there is no log to follow: name a file, or set data.train")
