"""The story of a training run: rows -> solver -> model, and the test data after it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from streamsvm import interrupts
from streamsvm.checkpoint import Checkpoints
from streamsvm.config import AsgdSettings, Settings, expand, with_usual
from streamsvm.errors import ConfigError
from streamsvm.evaluate import measure
from streamsvm.fitting import Fitting
from streamsvm.io.overwriting import refuse_overwriting
from streamsvm.judging import judge, with_rows_to_judge
from streamsvm.losses import smooth
from streamsvm.model import Model
from streamsvm.online_training import TrainingRun
from streamsvm.passes import Passes
from streamsvm.progress import Listener, Silent
from streamsvm.reading import initial_model, make_source, test_stream, training_passes, training_stream, whole_data
from streamsvm.report.recording import Recording
from streamsvm.report.writing import recorded, report_run
from streamsvm.score_sample import ScoreSample
from streamsvm.stream import Stream


class Outcome(NamedTuple):
    """What came of a run: the model, and its figures as `--json` prints them."""

    model: Model
    result: dict[str, Any]


def train(
    settings: Settings,
    listener: Listener = Silent(),
    *,
    data: Stream | None = None,
    initial: Model | None = None,
    client: Any = None,
) -> Outcome:
    """Learn what the settings describe, save the model if they name a file, evaluate it if they name test data.

    `data` is what to learn from instead of the files that the settings name, `initial` a model to begin with instead of
    the file that they name. With `settings.cluster`, or a Dask `client`, the workers of a cluster read and learn.

    With `settings.checkpoint` a run that was killed can go on later, and ends with the same model. Ctrl-C and SIGTERM
    raise `interrupts.Interrupted`, a KeyboardInterrupt, between two batches, then after a last checkpoint.

    >>> from streamsvm import load_settings, open_stream, train
    >>> given = {"data.train": "examples/data/a9a.train.svm.gz", "output.model": None}
    >>> model, result = train(load_settings(overrides=given))
    >>> f"{result['examples']:,} examples, error {100 * result['error']:.1f} %, {model.dim} weights"
    '32,561 examples, error 16.8 %, 124 weights'
    >>> exact = train(load_settings(overrides={**given, "solver": "dcd", "penalty.C": 1.0}))
    >>> exact.result["gap"] <= 1e-3  # proven
    True
    """
    started = time.perf_counter()
    refuse_overwriting(settings.outputs(), settings.inputs(), expand)
    listener = recorded(settings, listener)
    settings = with_rows_to_judge(chosen_solver(settings, listener, data), listener.note)
    initial = initial or initial_model(settings)
    with _prepared(settings, listener, data, initial, client) as (passes, checkpoints, kind):
        run = kind(settings, passes, checkpoints, listener, started, initial)
        run.learn()
        model, sample = run.model(), run.judged()
        judge(model, sample, settings, listener.note)
    return finish("train", settings, model, run.result(), passes.stream, listener, sample)


@contextmanager
def _prepared(
    settings: Settings, listener: Listener, data: Stream | None, initial: Model | None, client: Any
) -> Iterator[tuple[Passes, Checkpoints, type[Fitting] | type[TrainingRun]]]:
    """The passes of a run, its checkpoints, and what kind of run it is: on this machine, or on a cluster."""
    if settings.cluster.at is None and client is None:
        with checkpointed(settings, "train", listener, data) as (passes, checkpoints):
            yield passes, checkpoints, Fitting if whole_data(settings) else TrainingRun
        return
    from streamsvm.distributed.running import clustered, training_kind

    if data is not None:
        raise ConfigError("a cluster reads files and urls, not rows that are in this process")
    with clustered("train", settings, listener, initial, client) as (passes, checkpoints):
        yield passes, checkpoints, training_kind(settings)


def chosen_solver(settings: Settings, listener: Listener, data: Stream | None = None) -> Settings:
    """The settings, with an online solver in place of `auto` where no other will do; the rest is chosen later."""
    settings = with_usual(settings)
    if settings.solver.name != "auto":
        return settings
    source = data.source if data is not None else make_source(settings, settings.data.train or ())
    if not source.repeatable:
        if settings.penalty.path is not None:
            raise ConfigError("penalty.path needs data that ends: name a file, or a solver such as dcd")
        why = "the input may never end"
    elif settings.bias.kind == "free" and not smooth(settings.loss):
        why = f"the optimum with {settings.loss} and a free bias cannot be proven"
    else:
        return settings
    listener.note(f"solver asgd, because {why}")
    return settings.model_copy(update={"solver": AsgdSettings(init=settings.solver.init)})


@contextmanager
def checkpointed(
    settings: Settings, command: str, listener: Listener, data: Stream | None = None
) -> Iterator[tuple[Passes, Checkpoints]]:
    """The passes of a run, and its checkpoints, with one in which it may go on."""
    if not settings.data.train and data is None:
        raise ConfigError("there is no training data: name a file, or set data.train")
    stream = data if data is not None else training_stream(settings, listener.note)
    if settings.data.test:  # a typing error in its name should not be found after hours of training
        make_source(settings, settings.data.test)
    with (
        interrupts.noted(),
        Checkpoints(settings, command, stream.source, listener.note) as checkpoints,
        training_passes(settings, stream, checkpoints, listener.note) as passes,
    ):
        if isinstance(listener, Recording):
            listener.resumed = checkpoints.state is not None
        yield passes, checkpoints


def finish(
    command: str,
    settings: Settings,
    model: Model,
    result: dict[str, Any],
    stream: Stream,
    listener: Listener,
    sample: ScoreSample | None,
) -> Outcome:
    """Save the model, with the names of its features if they were wanted, evaluate it on the test data, and report.

    `sample` has scores of rows that were not learned when they were scored.
    """
    model.named = stream.named()
    result |= judged_figures(model)
    if settings.output.model:
        model.save(expand(settings.output.model))
        result["model"] = settings.output.model
    test = None
    if settings.data.test:
        source = make_source(settings, settings.data.test)
        test = measure(model, test_stream(settings, source, model))
        result["test"] = test.figures
    if isinstance(listener, Recording) and settings.output.report:
        result["report"] = report_run(command, settings, model, result, listener, test, sample)
    return Outcome(model, result)


def judged_figures(model: Model) -> dict[str, Any]:
    """Where the probabilities and thresholds of a model come from, as `--json` prints it."""
    return {
        "calibration": model.calibration.metadata() if model.calibration is not None else None,
        "thresholds": model.thresholds.tolist() if model.thresholds is not None else None,
    }
