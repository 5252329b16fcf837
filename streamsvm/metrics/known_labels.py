"""Class codes of labels; and rows whose class the model does not know, which are an error, or left out and counted."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from streamsvm.batch import Float32s
from streamsvm.classes import ClassMap, UndeclaredClassError, shown_label
from streamsvm.errors import DataError

MOST_NAMES, LONGEST = 100, 100  # of unknown classes that are told, and of letters of each
Known = npt.NDArray[np.bool_]


class KnownLabels:
    """Labels as written become codes, some rows after the other."""

    def __init__(self, classes: ClassMap, *, skip: bool) -> None:
        self._classes = classes
        self._skip = skip
        self._rows = 0
        self._names: dict[str, int] = {}
        self.left_out = 0

    def encode(self, labels: Float32s, texts: Sequence[str] | None = None) -> tuple[Float32s, Known]:
        """The codes of the next rows, and which of these have one.

        Of labels that are texts rows have codes already, and NaN for other texts: `texts` tells which.
        """
        known: Known = np.ones(len(labels), np.bool_)
        if self._skip:
            labels, known = self._without_unknown(labels, texts)
        try:
            codes = self._classes.codes(labels)
        except UndeclaredClassError as error:
            more = "; streamsvm evaluate --unknown-classes skip leaves such rows out"
            raise DataError(f"row {self._rows + error.row + 1}: {error}{more}") from error
        missing = np.isnan(codes) & known
        if missing.any():
            row = self._rows + int(np.argmax(missing)) + 1
            raise DataError(f"row {row} has no label: there is nothing to compare the prediction with")
        self._rows += len(labels)
        return codes, known

    def _without_unknown(self, labels: Float32s, texts: Sequence[str] | None) -> tuple[Float32s, Known]:
        """The labels with NaN for those that are unknown, and which rows are not such."""
        if texts is None:
            known: Known = np.isin(labels, self._classes.numbers) | np.isnan(labels)
        else:
            known = ~np.isnan(labels) | np.array([not text for text in texts], np.bool_)
        if known.all():
            return labels, known
        for row in np.flatnonzero(~known).tolist():
            self._note(shown_label(float(labels[row])) if texts is None else texts[row])
        return np.where(known, labels, np.float32(np.nan)), known

    def _note(self, name: str) -> None:
        self.left_out += 1
        name = name[:LONGEST]
        if name in self._names or len(self._names) < MOST_NAMES:
            self._names[name] = self._names.get(name, 0) + 1

    @property
    def unknown(self) -> dict[str, int]:
        """How many rows were left out, by class, the most frequent first; of very many classes the first that came."""
        return dict(sorted(self._names.items(), key=lambda item: -item[1]))
