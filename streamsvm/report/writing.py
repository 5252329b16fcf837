"""When a report is written: what must be there before a run begins, and what becomes of it if that fails at the end.

A run may take hours, so nothing that could be known before is found out after it. And when the report cannot be made in
spite of that, the run is not lost: its model is saved already, and whoever started it is told.
"""

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from streamsvm.config import Settings, expand
from streamsvm.errors import ConfigError, SourceError
from streamsvm.evaluate import Measured, measure_scores
from streamsvm.io.files import refuse_unwritable, written_atomically
from streamsvm.io.urls import is_local, reason, redact_url
from streamsvm.judging import once
from streamsvm.model import Model
from streamsvm.progress import Listener, Silent
from streamsvm.report.recording import Recording
from streamsvm.report.story import Judged, Story
from streamsvm.score_sample import ScoreSample

FEWEST = 20  # rows that tell anything


def refuse_if_impossible(place: str) -> None:
    """ConfigError or SourceError, before anything else is done, if a report could not be written there."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("a report needs the package matplotlib: pip install 'streamsvm[report]'")
    url = expand(place)
    if not is_local(url):
        from streamsvm.io.parts import open_filesystem

        open_filesystem(url)
        return
    refuse_unwritable(url)


def recorded(settings: Settings, listener: Listener) -> Listener:
    """The listener; where a report is wanted, one that keeps what it hears."""
    if settings.output.report is None:
        return listener
    refuse_if_impossible(settings.output.report)
    return listener if isinstance(listener, Recording) else Recording(listener)


def report_run(
    command: str,
    settings: Settings,
    model: Model,
    result: dict[str, Any],
    recording: Recording,
    test: Measured | None,
    sample: ScoreSample | None,
) -> str | None:
    """Write the report of a run that is over; where it is, or None if that failed, of which there is a note then."""
    assert settings.output.report is not None
    place = settings.output.report
    try:
        judged = judged_by(model, settings, test, sample)
        saved = settings.output.model
        at = (expand(saved), redact_url(saved)) if saved else ("", "")
        write_report(place, Story(command, settings, model, *at, result, recording, judged), recording.note)
    except Exception as error:  # whatever it is, the model is there, and figures are to be printed
        kept = f"; the model is saved: {redact_url(result['model'])}" if result.get("model") else ""
        said = str(error) if isinstance(error, SourceError) else f"{type(error).__name__}: {reason(error)}"
        recording.note(f"warning: no report could be written: {said}{kept}")
        return None
    return redact_url(place)


def report_evaluation(
    place: str,
    settings: Settings,
    model_place: str,
    model: Model,
    sources: Sequence[str],
    measured: Measured,
    command: str,
    note: Callable[[str], None],
) -> str:
    """Write the report of an evaluation; where it is."""
    recording = Recording(Silent(), command)
    data = settings.data.model_copy(update={"train": tuple(sources)})
    judged = Judged(measured.figures, measured.metrics.shapes(), "rows")
    result = {"bad_rows": measured.figures.get("bad_rows")}
    story = Story(
        "evaluate", settings.model_copy(update={"data": data}), model, model_place, redact_url(model_place), result,
        recording, judged,
    )  # fmt: skip
    write_report(place, story, note)
    return redact_url(place)


def judged_by(model: Model, settings: Settings, test: Measured | None, sample: ScoreSample | None) -> Judged | None:
    """How good the model is on the test data, or else on rows that it had not learned from when they were scored."""
    if test is not None:
        return Judged(test.figures, test.metrics.shapes(), "test rows")
    if sample is None or sample.rows < FEWEST:
        return None
    measured = measure_scores(model, sample.scores().astype("float64"), sample.codes(), sample.weights())
    if measured is None:
        return None
    held = bool(settings.data.holdout)
    rows = "held-out rows" if held else "rows scored before they were learned" if once(settings) else "left-out rows"
    learned = [
        name
        for name, there in (("probabilities", model.calibration), ("thresholds", model.thresholds))
        if there is not None
    ]
    caveat = (
        f"The model's {' and '.join(learned)} were learned from these rows, so they may look a little better here."
        if learned
        else ""
    )
    return Judged(measured.figures, measured.metrics.shapes(), rows, caveat)


def write_report(place: str, story: Story, note: Callable[[str], None]) -> None:
    """Write the page of a story, whole or not at all."""
    from streamsvm.report.page import page

    content = page(story, note)
    with written_atomically(expand(place)) as out:
        out.write(content)
