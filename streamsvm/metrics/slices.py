"""The figures of a model in each slice of the data: the rows that have the same value in some column.

Values are told apart in the order in which they come, up to a number that bounds the memory; rows with further ones are
counted together, as "(others)", and those without a value as "(missing)". Values that begin with the same 100 letters
are the same. For two classes there is an AUC, from fewer bins than that of all rows has; see class_ranking.py.
"""

from typing import Any

import numpy as np

from streamsvm.batch import Float64s, Int64s
from streamsvm.metrics.class_ranking import SliceRankings
from streamsvm.metrics.ranking import Ranks
from streamsvm.metrics.reliability import Reliability
from streamsvm.metrics.tally import Decided, Tally

MOST_SLICES = 1000
COUNTS = 1 << 22  # slices x classes
LONGEST = 100
OTHERS, MISSING = "(others)", "(missing)"


def slices_for(classes: int) -> int:
    """How many slices there is room for, with the two that are no values."""
    return min(MOST_SLICES, max(COUNTS // classes, 1)) + 2


class Slices:
    """Figures by the value of a column; the tally and the sums of probabilities have a part for each."""

    def __init__(self, column: str, tally: Tally, reliability: Reliability | None, *, ranked: bool) -> None:
        self.column = column
        self._tally = tally
        self._reliability = reliability
        self._rankings = SliceRankings(tally.parts) if ranked else None
        self._places = {OTHERS: 0, MISSING: 1}

    def see(self, rows: Decided, probabilities: Float64s | None, values: list[str]) -> None:
        places: Int64s = np.fromiter((self._place(value) for value in values), np.int64, len(values))
        self._tally.see(rows, places)
        if self._rankings is not None:
            self._rankings.see(rows.scores, places, rows.labels, rows.weights)
        if self._reliability is not None and probabilities is not None:
            self._reliability.see(probabilities, rows.labels, rows.weights, places)

    def _place(self, value: str) -> int:
        if len(value) > LONGEST:
            value = value[:LONGEST] + "..."
        place = self._places.get(value or MISSING)
        if place is None:
            if len(self._places) == self._tally.parts:
                return 0
            place = self._places[value] = len(self._places)
        return place

    def result(self) -> dict[str, Any]:
        """By value, the heaviest first."""
        count = len(self._places)
        ranks = self._rankings.result(count) if self._rankings is not None else [None] * count
        tally = self._tally
        found = {
            value: self._figures(place, ranks[place]) for value, place in self._places.items() if tally.examples(place)
        }
        return dict(sorted(found.items(), key=lambda item: -float(item[1]["weight"])))

    def _figures(self, place: int, ranks: Ranks | None) -> dict[str, Any]:
        tally = self._tally
        figures: dict[str, Any] = {"examples": tally.examples(place), "weight": tally.weight(place)}
        figures |= {"error": tally.error(place), "loss": tally.loss(place)}
        by_class = tally.by_class(place)
        if ranks is not None:
            figures |= {"auc": ranks.auc, "auc_error": ranks.auc_error, "f1": by_class.of(1)["f1"]}
        else:
            figures["macro_f1"] = by_class.macro_f1
        if self._reliability is not None:
            told = self._reliability.result(place)
            figures |= {"brier": told["brier"], "ece": told["ece"]}
        return figures
