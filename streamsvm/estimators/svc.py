"""StreamSVC: a scikit-learn classifier over the same engine, for arrays, frames, and data that does not fit in memory.

    fit          arrays, sparse matrices, frames  --> one batch in memory --+
    fit_stream   urls, streams, iterators of batches ---------------------- +--> training.train --> Model
    partial_fit  batch after batch --> incremental.Incremental, one pass that goes on ------------> Model

Nothing is learned here: parameters become settings, what is given becomes rows (given.py), and a Model answers.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from streamsvm.batch import Batch, Float64s
from streamsvm.classes import ClassMap
from streamsvm.config import MAPPED_TOL, SOLVER_SETTINGS, BatchSettings, Settings, load_settings
from streamsvm.errors import ConfigError, DataError
from streamsvm.estimators.given import (
    Again,
    Array,
    Reader,
    Told,
    as_value_errors,
    class_names,
    codes_among,
    features_of_model,
    labelled,
    read_first,
    reader_of,
    refuse_missing,
    weights_of,
    whole_name,
)
from streamsvm.exchange.columns import first_index
from streamsvm.features.recipe import Recipe
from streamsvm.incremental import Incremental
from streamsvm.memory_stream import MemoryStream
from streamsvm.model import Model
from streamsvm.reading import feature_overrides
from streamsvm.stream import Stream
from streamsvm.training import train

ENOUGH_ROWS = 1_000_000  # that an online solver sees in `fit` where the number of passes is left open
MOST_PASSES = 100
SHUFFLED = 100_000  # rows that are mixed before the first pass of an online solver in `fit`


class StreamSVC(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Support vector classifier, linear or with a map, for arrays and for data that does not fit in memory.

    `fit` finds the optimum that LinearSVC looks for, with a proof of how close it is (`gap_`). `partial_fit` learns
    batch after batch; `fit_stream` learns from files, urls, streams and iterators, in bounded memory.

    Parameters
    ----------
    solver : "auto", or any name that `streamsvm train --solver` takes
        "auto" is newton or dcd in `fit`, asgd in `partial_fit` and `fit_stream`.
    loss : "squared_hinge", "hinge", "smoothed_hinge" or "logistic"
    C, l2, l1 : float, optional
        The penalty: C as in LinearSVC (summed loss), or l2 and l1 against the mean loss; l2 = 1 / (C rows). Where none
        is given, C = 1 in `fit` (3 with a map other than bins), and l2 = 1e-6 where rows are not counted beforehand.
    bias : "penalised" (as in LinearSVC), "free" or "none"
    multiclass : "auto" (each class against all others), "ova" or "crammer_singer"
    passes : int, optional
        Readings of the data; of solvers with a proof the most. An online solver has one in `fit_stream`, and in `fit`
        as many as show it a million rows, up to 100.
    tol : float, optional
        Solvers with a proof stop when the objective is at most this share of itself above the least possible. Where it
        is not given, 1e-3, and 5e-2 with a map.
    scale : "auto", "none", "maxabs" or "standard"
        Divide features by their largest absolute value or standard deviation. Sparse rows stay sparse. "auto": not at
        all, but with a map by their range.
    map : "none", "rbf", or any name that `streamsvm train --map` takes
        Learn from mapped rows what a kernel machine would: "rbf" is a fast SVC.
    gamma : "auto" or float
        How fast nearness fades with distance in a map.
    class_weight : "balanced", or a dict of class to weight, optional
    calibrate : "auto", "none", "platt" or "isotonic"
        How probabilities are learned. "auto": where it costs nothing (`partial_fit`, one pass of `fit_stream`); "platt"
        makes `fit` learn again without some of the rows, to judge by these.
    threshold : "none" or "f1"
        Where `predict` decides; `decision_function` is not changed by it.
    features : dict, optional
        What becomes of the columns of frames and tables, such as `{"categorical": ["hour"], "ignore": ["id"],
        "interactions": [["ad", "site"]], "hash_bits": 20}`. Without it numbers are numbers, and texts are categories.
    shuffle : bool
        Whether online solvers in `fit` see the rows in random order, a new one in each pass.
    warm_start : bool
        Whether `fit` and `fit_stream` begin with the weights of the last fit, if classes and features are the same.
    memory : str or int
        Ceiling for what a run takes beside the rows that are given, such as "512MB".
    random_state : int, RandomState or None
        Seed of everything random; None is 0, so that results can be repeated.
    settings : dict, optional
        Any other setting by its name, such as `{"solver.eta0": 0.1, "data.on_bad_row": "skip"}`.
    verbose : int
        Above 0, what is decided on the way is printed to standard error.

    Attributes
    ----------
    classes_, coef_, intercept_, n_features_in_, feature_names_in_, n_iter_
        As scikit-learn has them. Of hashed columns `coef_` has a number for each hash; with a map there is none.
    model_ : streamsvm.Model
        What was learned; `model_.save("m.safetensors")` keeps it for the command line.
    gap_ : float or None
        How far the objective is above the least possible, at most, relative to itself.
    result_ : dict
        The figures of the run, as `streamsvm train --json` prints them; not after `partial_fit`.

    Notes
    -----
    Column j of an array is index j of the model; where LIBSVM text was learned from that has no index 0, it is index
    j + 1, as `sklearn.datasets.load_svmlight_file` has it.

    `fit` stops within `tol` of the optimum, in single precision. So a row of weight 2 and the same row twice
    give the same model within that tolerance only, and two of scikit-learn's checks, which ask for seven digits, fail
    (`expected_failed_checks`).

    Numbers are single precision, as are the weights. `predict_proba` is there if the loss is logistic or the model is
    calibrated. Calibrated probabilities and `predict` need not agree at one half: the sign of the score decides.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import StreamSVC
    >>> X = np.array([[0.0, 1.0], [0.2, 0.9], [1.0, 0.0], [0.8, 0.1]])
    >>> clf = StreamSVC().fit(X, ["no", "no", "yes", "yes"])
    >>> clf.predict([[0.9, 0.2]]).tolist(), clf.gap_ < 1e-3
    (['yes'], True)
    """

    expected_failed_checks: ClassVar[dict[str, str]] = dict.fromkeys(
        ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
        "seven digits are asked for, but fit stops within tol of the optimum, in single precision",
    )
    classes_: Array
    feature_names_in_: Array
    _model: Model | None  # None while a run goes on whose model nobody has asked for
    _run: Any  # of partial_fit: an Incremental, or what a copy was made of
    _recipe: dict[str, Any]  # how features are made of what is given
    _first = 0  # the index of the first column of an array

    def __init__(
        self,
        *,
        solver: str = "auto",
        loss: str = "squared_hinge",
        C: float | None = None,  # noqa: N803
        l2: float | None = None,
        l1: float | None = None,
        bias: str = "penalised",
        multiclass: str = "auto",
        passes: int | None = None,
        tol: float | None = None,
        scale: str = "auto",
        map: str = "none",
        gamma: float | str = "auto",
        class_weight: str | Mapping[Any, float] | None = None,
        calibrate: str = "auto",
        threshold: str = "none",
        features: Mapping[str, Any] | None = None,
        shuffle: bool = True,
        warm_start: bool = False,
        memory: str | int = "1GB",
        random_state: Any = None,
        settings: Mapping[str, Any] | None = None,
        verbose: int = 0,
    ) -> None:
        self.solver = solver
        self.loss = loss
        self.C = C
        self.l2 = l2
        self.l1 = l1
        self.bias = bias
        self.multiclass = multiclass
        self.passes = passes
        self.tol = tol
        self.scale = scale
        self.map = map
        self.gamma = gamma
        self.class_weight = class_weight
        self.calibrate = calibrate
        self.threshold = threshold
        self.features = features
        self.shuffle = shuffle
        self.warm_start = warm_start
        self.memory = memory
        self.random_state = random_state
        self.settings = settings
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @classmethod
    def from_model(cls, model: Model) -> "StreamSVC":
        """A fitted estimator around a model, such as `load_model("m.safetensors")` gives."""
        made = cls(loss=model.loss)
        made._keep(model, np.array(model.classes))
        made._describe_features(model)
        return made

    # Learning.

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "StreamSVC":  # noqa: N803
        """Learn from arrays, a sparse matrix, or a frame of pandas or polars."""
        with as_value_errors():
            before = self.model_ if self.warm_start and self._fitted else None
            reader, rows = self._read_first(X, y)
            classes, codes = self._classes_of(y)
            if len(classes) < 2:
                raise DataError(f"there is one class only ({classes[0]}), and nothing to tell it from")
            names = class_names(classes)
            rows = labelled(rows, ClassMap(names).numbers[codes], weights_of(sample_weight, X, rows))
            settings = self._settings(rows=rows.rows)
            shuffle = settings.data.shuffle if isinstance(settings.data.shuffle, int) else 0
            features = reader.features._replace(label_classes=names)
            stream = MemoryStream([rows], shuffle=shuffle, seed=settings.run.seed, features=features)
            self._train(settings, stream, classes, before)
        return self

    def fit_stream(
        self,
        source: Any,
        *,
        label: str | None = None,
        classes: Any = None,
        format: str = "auto",
    ) -> "StreamSVC":
        """Learn from data that need not fit in memory.

        `source` is a path, glob or url, or a list of them (`label` is the column of the label in a table, as in
        `streamsvm train`); a Stream; or batches: a list, a generator or anything else that gives (X, y) or (X, y,
        sample_weight), of which all have the same columns. Batches with labels that are texts need `classes`.
        """
        with as_value_errors():
            before = self.model_ if self.warm_start and self._fitted else None
            if isinstance(source, (str, list)) and all(isinstance(url, str) for url in source):
                given: dict[str, object] = {"data.train": source, "data.label": label, "data.format": format}
                given |= feature_overrides(self.features)
                given["data.classes"] = None if classes is None else class_names(np.asarray(classes))
                self._train(self._settings(streaming=True, given=given), None, None, before)
            elif isinstance(source, Stream):
                self._train(self._settings(streaming=True), source, None, before)
            else:
                self._fit_batches(source, classes, before)
        return self

    def _fit_batches(self, source: Iterable[Any], given: Any, before: Model | None) -> None:
        iterator = iter(source)
        first = next(iterator, None)
        if first is None:
            raise DataError("there is no batch to learn from")
        reader, _ = self._read_first(first[0], first[1] if given is None else given)
        if given is not None:
            classes = np.unique(column_or_1d(given))
            names = class_names(classes)
            features = reader.features._replace(label_classes=names)
        else:
            classes, names = None, []
            found = np.unique(column_or_1d(first[1]))
            if found.dtype.kind not in "biuf":
                raise ConfigError("labels are texts: name them all, as in fit_stream(batches, classes=['no', 'yes'])")
            features = reader.features._replace(labels=tuple(found.astype(float).tolist()))

        def rows_of(batches: Iterable[Any]) -> Iterator[Batch]:
            for X, y, *weight in batches:  # noqa: N806
                rows = reader.read(self, X, reset=False)
                y = column_or_1d(y)
                numbers = y if classes is None else ClassMap(names).numbers[codes_among(y, classes)]
                yield labelled(rows, numbers, weights_of(weight[0] if weight else None, X, rows))

        settings = self._settings(streaming=True)
        once = iterator is source  # and its first batch was looked at
        batches = rows_of(itertools.chain([first], iterator)) if once else Again(rows_of, source)
        stream = MemoryStream(batches, seed=settings.run.seed, features=features)
        self._train(settings, stream, classes, before)

    def partial_fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
    ) -> "StreamSVC":
        """Learn from a further batch, each row once. The first call names all `classes`, unless `fit` came before.

        The model is the one that a single pass over all rows so far gives, however they were cut into batches.
        """
        with as_value_errors():
            fresh = not self._fitted
            reader, rows = self._read_first(X, classes) if fresh else self._read(X)
            if fresh and classes is None:
                raise ConfigError("classes must be named in the first call of partial_fit")
            known = np.unique(column_or_1d(classes)) if fresh else self.classes_
            if not fresh and classes is not None and not np.array_equal(np.unique(classes), known):
                raise ConfigError(f"classes={classes} are not those of the calls before, {known}")
            y = column_or_1d(y)
            refuse_missing(y)
            check_classification_targets(y)
            names = class_names(known)
            rows = labelled(rows, ClassMap(names).numbers[codes_among(y, known)], weights_of(sample_weight, X, rows))
            run = self._revived()
            if run is None:
                settings = self._settings(streaming=True, given={"solver.passes": 1})
                if isinstance(settings.solver, BatchSettings):
                    raise ConfigError(f"solver {settings.solver.name} needs all rows at once: use fit, or asgd")
                before = None if fresh else self.model_
                features = reader.features if before is None else features_of_model(before)
                run = Incremental(settings, features._replace(label_classes=names), self._listener(), before)
                self._recipe = features.recipe
            run.learn_rows(rows)
            self.classes_, self.n_iter_ = known, 1
            self._run, self._model = run, None
        return self

    def _train(
        self,
        settings: Settings,
        stream: Stream | None,
        classes: Array | None,
        before: Model | None,
    ) -> None:
        """Learn; `classes` as the caller has them, None to take them as the model has them."""
        if before is not None and classes is not None and before.classes != class_names(classes):
            before = None
        outcome = train(settings, self._listener(), data=stream, initial=before)
        model = outcome.model
        self._keep(model, np.array(model.classes) if classes is None else classes)
        if stream is None or not isinstance(stream, MemoryStream):
            self._describe_features(model)
        self.result_ = outcome.result
        self.gap_ = outcome.result["gap"]
        self.n_iter_ = int(outcome.result["passes"])

    def _keep(self, model: Model, classes: Array) -> None:
        self.classes_ = classes
        self._model = model
        self._recipe = model.recipe
        self._first = first_index(model)
        self._run = None

    def _describe_features(self, model: Model) -> None:
        """Tell of the features of a model that was not learned from arrays."""
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        columns = model.map.spread.columns if model.map is not None else None
        self.n_features_in_ = (model.dim if columns is None else int(columns[-1]) + 1) - self._first
        if model.recipe.get("format") == "table":
            names = [column.name for column in Recipe.of_model(model.recipe).columns]
            self.n_features_in_ = len(names)
            self.feature_names_in_ = np.array(names, object)

    # Settings.

    def _settings(self, *, rows: int = 0, streaming: bool = False, given: Mapping[str, Any] = {}) -> Settings:
        """The settings that the parameters stand for, given the number of rows where it is known."""
        solver = "asgd" if streaming and self.solver == "auto" else self.solver
        exact = issubclass(SOLVER_SETTINGS.get(solver, BatchSettings), BatchSettings)
        open_penalty = self.C is None and self.l2 is None and self.l1 is None
        tol = (1e-3 if self.map == "none" else MAPPED_TOL) if self.tol is None else self.tol
        passes = self.passes
        if passes is None and rows and not exact:
            passes = min(MOST_PASSES, -(-ENOUGH_ROWS // rows))
        chosen = {
            "solver.name": solver,
            "solver.passes": passes,
            "solver.tol": tol if exact else None,
            "loss": self.loss,
            "penalty.C": 1.0 if open_penalty and rows and self.map == "none" else self.C,
            "penalty.l2": self.l2,
            "penalty.l1": self.l1,
            "bias.kind": self.bias,
            "multiclass": self.multiclass,
            "features.scale": self.scale,
            "map.kind": self.map,
            "map.gamma": self.gamma,
            "data.class_weights": self._class_weights(),
            "calibration": self.calibrate,
            "threshold.by": self.threshold,
            "data.shuffle": None if exact or not rows else min(rows, SHUFFLED) if self.shuffle else 0,
            "run.memory": self.memory,
            "run.seed": self._seed(),
        }
        chosen = {name: value for name, value in chosen.items() if value is not None}
        given = {name: value for name, value in given.items() if value is not None}
        overrides = {**chosen, "output.model": None, **given, **(self.settings or {})}
        return load_settings(overrides=overrides, environ={})

    def _seed(self) -> int:
        if self.random_state is None or isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state or 0)
        return int(check_random_state(self.random_state).randint(1 << 31))

    def _class_weights(self) -> Any:
        """By the names that classes have in a model."""
        if not isinstance(self.class_weight, Mapping):
            return self.class_weight
        return {str(whole_name(name)): float(weight) for name, weight in self.class_weight.items()}

    def _listener(self) -> Told:
        return Told(self.verbose)

    # What is given.

    def _read(self, X: Any) -> tuple[Reader, Batch]:  # noqa: N803
        """What is given after learning has begun, as rows without labels."""
        reader = reader_of(self._recipe, self._first)
        return reader, reader.read(self, X, reset=False)

    def _read_first(self, X: Any, y: Any) -> tuple[Reader, Batch]:  # noqa: N803
        return read_first(self, X, self.features, self._listener().note, y)

    def _classes_of(self, y: Any) -> tuple[Array, Array]:
        """The different labels in their order, and which of these each is."""
        if y is None:
            raise DataError("this classifier requires y to be passed, but the target y is None")
        y = column_or_1d(y, warn=True)
        refuse_missing(y)
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        return classes, codes

    # What was learned.

    @property
    def _fitted(self) -> bool:
        return getattr(self, "_model", None) is not None or getattr(self, "_run", None) is not None

    def __sklearn_is_fitted__(self) -> bool:
        return self._fitted

    @property
    def model_(self) -> Model:
        """What was learned, as the command line has it."""
        if not self._fitted:
            raise AttributeError("there is no model yet: call fit, partial_fit or fit_stream")
        if self._model is None:
            run = self._revived()
            assert run is not None
            self._model = run.model()
        return self._model

    @property
    def coef_(self) -> Float64s:
        if self.model_.map is not None:
            raise AttributeError("with a map weights are those of mapped features, not of the columns")
        weights = self.model_.weights[self._first :].astype(np.float64)
        return np.ascontiguousarray(weights.T) if self.model_.many else weights[None, :]

    @property
    def intercept_(self) -> Float64s:
        return np.array(self.model_.bias, np.float64, ndmin=1)

    def _scores(self, X: Any) -> Float64s:  # noqa: N803
        check_is_fitted(self)
        with as_value_errors():
            return self.model_.scores(self._read(X)[1])

    def decision_function(self, X: Any) -> Float64s:  # noqa: N803
        """Scores: one for each row, positive for the second class; with more than two classes one for each of them."""
        return self._scores(X)

    def predict(self, X: Any) -> Array:  # noqa: N803
        """The class of each row."""
        scores = self._scores(X)
        return np.asarray(self.classes_[self.model_.codes(scores)])

    def _probable(self) -> bool:
        if self._fitted:
            probable = self.model_.probable
        else:
            probable = self.loss == "logistic" or self.calibrate in ("platt", "isotonic")
        if not probable:
            raise AttributeError("there are no probabilities: use calibrate='platt', or loss='logistic'")
        return True

    @available_if(_probable)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Float64s:  # noqa: N803
        """The probability of each class, in the order of `classes_`; each row adds up to 1."""
        scores = self._scores(X)
        found = self.model_.probabilities(scores)
        return found if found.ndim == 2 else np.column_stack([1.0 - found, found])

    @available_if(_probable)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Float64s:  # noqa: N803
        with np.errstate(divide="ignore"):
            found: Float64s = np.log(self.predict_proba(X))
            return found

    # Copies, and other processes.

    def _revived(self) -> Incremental | None:
        run = getattr(self, "_run", None)
        if isinstance(run, dict):
            run = self._run = Incremental.revived(run)
        return run

    def __getstate__(self) -> dict[str, Any]:
        """Plain values and arrays in place of what goes on."""
        state: dict[str, Any] = dict(super().__getstate__())
        if isinstance(state.get("_run"), Incremental):
            state["_run"] = state["_run"].saved()
        return state
