"""How good a model is, measured on a stream in bounded memory.

    decisions       accuracy, error, loss, confusion [true, predicted], precision, recall, F1, top k    metrics/tally.py
    rankings        AUC, average precision; of many classes each against all others, and the mean     metrics/ranking.py
    probabilities   log loss, Brier score, calibration error (ECE), reliability table             metrics/reliability.py
    slices          some of these for each value of a column                                           metrics/slices.py
    shapes          ROC and precision-recall curves, spread of scores, for those who draw them         metrics/curves.py

All are weighted by the rows; a row of weight 0 is counted in `examples` and nowhere else. A figure that has no meaning
is None: the AUC of one class, the log loss of a model without probabilities.

AUC and average precision are exact while the rows fit (2^18 of them; of many classes 2^20 scores), and `auc_error` and
`average_precision_error` are 0 then. Beyond, scores are counted in bins, and the order inside a bin is not known any
more. The figure that a sort of all rows would give is at most the error away from the one reported: that is no
estimate but a bound, from what is in the bins and the best and the worst order in each of them. So it is large where
most scores are nearly the same, or exactly, and the figure is mostly much closer than it says. The error of a mean over
classes is the mean of their errors.

Memory does not grow with the rows. Two classes take at most 12 MB; more of them 64 MB (48 of bins, 8 of rows, 8 of the
confusion, which is None beyond 1000 classes), and 320 bytes for each class beyond 150,000; slices another 40 MB, with
many classes up to 100 MB. At the end figures are made of the sums, for which up to 40 MB more are needed for a moment.
"""

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Batch, Float32s, Float64s
from streamsvm.errors import ConfigError, DataError
from streamsvm.losses import make_loss
from streamsvm.metrics.class_ranking import ClassRankings, macro
from streamsvm.metrics.curves import Shapes, shapes_of_classes, shapes_of_pair
from streamsvm.metrics.known_labels import KnownLabels
from streamsvm.metrics.ranking import PairRanking, Ranks
from streamsvm.metrics.reliability import NOTHING, Reliability
from streamsvm.metrics.slices import Slices, slices_for
from streamsvm.metrics.tally import Confusion, Decided, Tally
from streamsvm.model import Model
from streamsvm.stream import Stream
from streamsvm.tables import TableDialect

PIECE = 1 << 16  # scores that are made at a time


class Metrics:
    """Sums over rows; `result` turns them into figures."""

    def __init__(self, model: Model, by: str | None = None) -> None:
        self._model = model
        self._classes = len(model.bias) if model.many else 2
        self._tally = self._new_tally(1)
        self._confusion = Confusion(self._classes)
        self._ranking: ClassRankings | PairRanking = ClassRankings(self._classes) if model.many else PairRanking()
        self._reliability = Reliability() if model.probable else None
        self._slices: Slices | None = None
        if by is not None:
            parts = slices_for(self._classes)
            reliability = Reliability(parts) if model.probable else None
            self._slices = Slices(by, self._new_tally(parts), reliability, ranked=not model.many)

    def _new_tally(self, parts: int) -> Tally:
        model = self._model
        return Tally(make_loss(model.loss), self._classes, parts, rule=model.rule, thresholds=model.thresholds)

    @property
    def examples(self) -> int:
        return self._tally.examples()

    def update(self, scores: Float64s, labels: Float32s, weights: Float32s, values: list[str] | None = None) -> None:
        """Rows with class codes for labels, and what they have in the column by which slices are made."""
        model = self._model
        rows = Decided(scores, model.codes(scores), labels, weights)
        whole = np.zeros(len(labels), np.int64)
        self._tally.see(rows, whole)
        self._confusion.see(rows)
        self._ranking.see(scores, labels, weights)
        probabilities = model.probabilities(scores) if self._reliability is not None else None
        if self._reliability is not None and probabilities is not None:
            self._reliability.see(probabilities, labels, weights, whole)
        if self._slices is not None and values is not None:
            self._slices.see(rows, probabilities, values)

    def result(self) -> dict[str, Any]:
        tally, ranks = self._tally, self._ranking.result()
        error = tally.error()
        found = {
            "examples": self.examples,
            "accuracy": 1.0 - error if error is not None else None,
            "error": error,
            "loss": tally.loss(),
            **macro(ranks)._asdict(),
            **(self._reliability.result() if self._reliability is not None else NOTHING),
            "confusion": self._confusion.result(),
            "classes": self._model.classes,
            **self._by_class(ranks),
        }
        if self._slices is not None:
            found |= {"by": self._slices.column, "slices": self._slices.result()}
        return found

    def shapes(self) -> Shapes:
        """What can be drawn of the scores; much more than figures are, so it is made only where it is wanted."""
        if isinstance(self._ranking, PairRanking):
            return shapes_of_pair(self._ranking.by_score())
        return shapes_of_classes(self._ranking.by_score, self._tally.by_class().support)

    def _by_class(self, ranks: list[Ranks]) -> dict[str, Any]:
        """Precision, recall and F1; of many classes also how well each is told from all others."""
        many, figures = self._model.many, self._tally.by_class()
        each: list[dict[str, Any]] = [
            {"class": name, **figures.of(code)} | (ranks[code]._asdict() if many else {})
            for code, name in enumerate(self._model.classes)
        ]
        found: dict[str, Any] = {"per_class": each, "macro_f1": figures.macro_f1}
        found["micro_f1"] = float(figures.right.sum() / self._tally.weight()) if self._tally.weight() else None
        if many:
            return found | {"top_k": self._tally.among_first()}
        return found | {name: each[1][name] for name in ("precision", "recall", "f1")}


class Measured(NamedTuple):
    """Figures of a model, and the sums that they were made of."""

    figures: dict[str, Any]
    metrics: Metrics


def evaluate(
    model: Model, stream: Iterable[Batch], *, by: str | None = None, unknown_classes: str = "raise"
) -> dict[str, Any]:
    """The figures that `measure` has of a model."""
    return measure(model, stream, by=by, unknown_classes=unknown_classes).figures


def measure(
    model: Model, stream: Iterable[Batch], *, by: str | None = None, unknown_classes: str = "raise"
) -> Measured:
    """The model's metrics over all rows; labels as written.

    `by` is a column that the stream keeps, for figures of each of its values. Rows of classes that the model does not
    know are an error, or with `unknown_classes="skip"` left out, and counted.
    """
    measuring = Measuring(model, by=by, unknown_classes=unknown_classes)
    with closing(scored(model, stream, by=by, unknown_classes=unknown_classes)) as pieces:
        for rows in pieces:
            measuring.see(rows)
    return measuring.result()


class Scored(NamedTuple):
    """Some rows as a model scores them; they may be measured elsewhere than they were read."""

    scores: Float64s
    labels: Float32s  # as written
    weights: Float32s
    values: list[str] | None = None  # in the column by which slices are made
    texts: list[str] | None = None  # of labels, where these are texts and the model may not know all of them


def scored(
    model: Model, stream: Iterable[Batch], *, by: str | None = None, unknown_classes: str = "raise"
) -> Generator[Scored, None, None]:
    """All rows in pieces of bounded size, for `Measuring`; each is good until the next one is asked for."""
    step = max(PIECE // len(model.bias), 1) if model.many else PIECE
    with _unknown_accepted(stream, unknown_classes == "skip") as label_column:
        batches = iter(stream)
        with closing(batches) if isinstance(batches, Generator) else nullcontext():
            for batch in batches:
                values, texts = _kept(stream, by), _kept(stream, label_column)
                for start in range(0, batch.rows, step):
                    stop = min(start + step, batch.rows)
                    rows = batch.slice(start, stop)
                    kept = [None if column is None else column[start:stop] for column in (values, texts)]
                    yield Scored(model.scores(rows), rows.labels, rows.weights, *kept)


class Measuring:
    """Figures of rows that were scored, seen in the order of the data: how they are cut changes nothing."""

    def __init__(self, model: Model, *, by: str | None = None, unknown_classes: str = "raise") -> None:
        self._skip = unknown_classes == "skip"
        self._metrics = Metrics(model, by)
        self._labels = KnownLabels(model.class_map(), skip=self._skip)

    def see(self, rows: Scored) -> None:
        codes, known = self._labels.encode(rows.labels, rows.texts)
        scores, weights, values = rows.scores, rows.weights, rows.values
        if not known.all():
            scores, codes, weights = scores[known], codes[known], weights[known]
            values = list(compress(values, known)) if values is not None else None
        self._metrics.update(scores, codes, weights, values)

    def result(self) -> Measured:
        if not self._metrics.examples:
            raise DataError("there is no row to evaluate on")
        left_out = {"unknown_class_rows": self._labels.left_out, "unknown_classes": self._labels.unknown}
        return Measured(self._metrics.result() | (left_out if self._skip else {}), self._metrics)


def measure_scores(model: Model, scores: Float64s, codes: Float32s, weights: Float32s) -> Measured | None:
    """The same of rows that were scored before; codes are in the order of the model's classes.

    Rows that have no score for some class, which came later, are left out. None if there is no row.
    """
    whole = ~np.isnan(scores.reshape(len(codes), -1)).any(axis=1)
    if not whole.any():
        return None
    metrics = Metrics(model)
    metrics.update(scores[whole].astype(np.float64), codes[whole], weights[whole])
    return Measured(metrics.result(), metrics)


def _kept(stream: Iterable[Batch], column: str | None) -> list[str] | None:
    """What the rows of the last batch have in a column that the stream keeps."""
    if column is None:
        return None
    keep = stream.dialect.keep if isinstance(stream, Stream) and isinstance(stream.dialect, TableDialect) else ()
    if not isinstance(stream, Stream) or column not in keep:
        raise ConfigError(f"the stream does not keep column {column}, so there are no slices by it")
    return stream.kept[keep.index(column)]


@contextmanager
def _unknown_accepted(stream: Iterable[Batch], wanted: bool) -> Iterator[str | None]:
    """Where labels are texts, let unknown ones come through, as NaN; the column that has them."""
    if not wanted or not isinstance(stream, Stream) or not isinstance(stream.dialect, TableDialect):
        yield None
        return
    dialect, recipe = stream.dialect, stream.dialect.recipe
    if recipe.label is None or recipe.label_classes is None:
        yield None
        return
    keep = tuple(dict.fromkeys([*dialect.keep, recipe.label]))
    stream.dialect = dialect._replace(labelled=False, keep=keep)
    try:
        yield recipe.label
    finally:
        stream.dialect = dialect
