"""The story of a training run: source -> rows -> solver -> model, and the test data after it."""

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from streamsvm import __version__
from streamsvm.batch import Batch
from streamsvm.classes import ClassMap, UndeclaredClassError, classes_from
from streamsvm.config import DEFAULT_L2, Settings, expand, to_json_dict
from streamsvm.errors import ConfigError, DataError, DivergedError, ModelError
from streamsvm.evaluate import evaluate
from streamsvm.io.compression import Limits
from streamsvm.io.libsvm import LARGEST_INDEX, Dialect, index_mask
from streamsvm.io.source import Source
from streamsvm.losses import make_loss
from streamsvm.model import Model, load_model
from streamsvm.passes import Passes
from streamsvm.penalties import make_penalty
from streamsvm.progress import Listener, Progress, Silent
from streamsvm.solvers import OnlineSolver, make_solver
from streamsvm.solvers.base import LOSS, SEEN, WEIGHT, WRONG, Problem, T, make_bias
from streamsvm.stream import SHARES, Reading, Stream

FIXED_MEMORY = 24 << 20  # buffers and machine code that every run has
FIRST_ROWS = 1000  # rows after which a single class is suspicious


class Outcome(NamedTuple):
    """What came of a run: the model, and its figures as `--json` prints them."""

    model: Model
    result: dict[str, Any]


def train(settings: Settings, listener: Listener = Silent()) -> Outcome:
    """Learn what the settings describe, save the model if they name a file, evaluate it if they name test data."""
    if not settings.data.train:
        raise ConfigError("there is no training data: name a file, or set data.train")
    started = time.perf_counter()
    stream = open_training_stream(settings)
    if settings.data.test:  # a typing error in its name should not be found after hours of training
        open_test = make_source(settings, settings.data.test)
    with Passes(
        stream,
        cache=settings.run.cache,
        passes=settings.solver.passes,
        mix_later=settings.data.shuffle != 0,
        note=listener.note,
    ) as passes:
        run = _Run(settings, passes, listener, started)
        run.learn()
    model = run.model()
    result = run.result()
    if settings.output.model:
        model.save(expand(settings.output.model))
        result["model"] = settings.output.model
    if settings.data.test:
        result["test"] = evaluate(model, test_stream(settings, open_test, model))
    return Outcome(model, result)


# Streams from settings.


def make_source(settings: Settings, urls: tuple[str, ...]) -> Source:
    window = min(Limits().window, settings.run.memory // 3)
    return Source(
        [expand(url) for url in urls],
        limits=Limits(window, settings.data.max_expansion),
        max_line=settings.data.max_line,
    )


def make_reading(settings: Settings) -> Reading:
    threads = settings.run.threads
    return Reading(memory=settings.run.memory, threads=0 if threads == "auto" else threads)


def buffer_rows(settings: Settings) -> int:
    """Rows in the shuffle buffer of the first pass."""
    shuffle = settings.data.shuffle
    return 0 if shuffle == "auto" else shuffle


def open_training_stream(settings: Settings) -> Stream:
    data, features = settings.data, settings.features
    return Stream(
        make_source(settings, data.train or ()),
        Dialect(limit=features.dim or LARGEST_INDEX + 1, mask=index_mask(features.hash_bits)),
        skip_bad=data.on_bad_row == "skip",
        max_bad_rows=data.max_bad_rows,
        limit=data.limit,
        shuffle=buffer_rows(settings),
        seed=settings.run.seed,
        reading=make_reading(settings),
    )


def test_stream(settings: Settings, source: Source, model: Model, *, labelled: bool = True) -> Stream:
    """Data for a trained model: features as the model's recipe makes them, unknown ones accepted."""
    return Stream(
        source,
        Dialect(labelled=labelled, mask=index_mask(model.recipe.get("hash_bits"))),
        skip_bad=settings.data.on_bad_row == "skip",
        max_bad_rows=settings.data.max_bad_rows,
        limit=settings.data.limit if labelled is False else None,
        reading=make_reading(settings),
    )


class _Run:
    """One training run: the solver, its classes, and what is told about it."""

    def __init__(self, settings: Settings, passes: Passes, listener: Listener, started: float) -> None:
        self.settings = settings
        self.passes = passes
        self.listener = listener
        self.started = started
        self.initial = load_model(expand(settings.solver.init)) if settings.solver.init else None
        self.classes = self._classes()
        self.rows = settings.data.rows
        self._prepare()
        self.solver = self._solver()
        self.features = 0
        self.bytes = 0
        self._told = False

    # Before the first row.

    def _classes(self) -> ClassMap:
        declared = self.settings.data.classes
        if self.initial is not None:
            if declared and list(declared) != self.initial.classes:
                raise ConfigError(f"data.classes differ from those of the initial model: {self.initial.classes}")
            return self.initial.class_map()
        if declared and len(declared) > 2:
            raise ConfigError(_two_only(len(declared)))
        return ClassMap(list(declared)) if declared else ClassMap()

    def _prepare(self) -> None:
        """Find out from the cache what must be known before the first step."""
        if self.settings.penalty.C is not None and self.rows is None:
            if not self.passes.will_cache:
                raise ConfigError(
                    "penalty.C needs the number of rows: set data.rows, keep a cache (--cache PATH), or use --l2"
                )
            if not self.passes.cached:
                self.listener.note("reading the data once to count its rows, because C depends on their number")
            self.passes.fill()
        if self.passes.cached:
            self._ask_cache()

    def _ask_cache(self) -> None:
        """What a complete cache knows: the number of rows, and the classes if they are still open."""
        rows, labels = self.passes.summary()
        if self.rows is None:
            self.rows = rows
        if not self.classes.open:
            return
        names = classes_from(labels)
        if len(names) > 2:
            raise DataError(_two_only(len(names), names))
        if len(names) == 2:
            self.classes = ClassMap(names)

    def _l2(self) -> float:
        penalty = self.settings.penalty
        if penalty.C is not None:
            return 1.0 / (penalty.C * (self.rows or 1))
        return penalty.l2 if penalty.l2 is not None else DEFAULT_L2

    def _solver(self) -> OnlineSolver:
        settings = self.settings
        bias = make_bias(settings.bias.kind, settings.bias.scale)
        problem = Problem(make_loss(settings.loss), make_penalty(self._l2()), bias)
        features = settings.features
        options: dict[str, Any] = settings.solver.model_dump(exclude={"name", "passes", "init"})
        if "eta0" in options:
            eta0 = options["eta0"]
            if eta0 == "auto":
                eta0 = self.initial.online.get("eta0") if self.initial else None
            options["eta0"] = eta0
        shares = 2 if buffer_rows(settings) else 1
        memory = settings.run.memory - shares * (settings.run.memory // SHARES) - FIXED_MEMORY
        dim = features.dim or (1 << features.hash_bits if features.hash_bits else 0)
        solver = make_solver(settings.solver.name, problem, dim=dim, memory=max(memory, 1 << 20), **options)
        if self.initial is not None:
            self._continue_from(self.initial, solver)
        return solver

    def _continue_from(self, model: Model, solver: OnlineSolver) -> None:
        if model.recipe != self._recipe():
            raise ModelError(
                f"the initial model has features {model.recipe}, this run has {self._recipe()}; they must agree"
            )
        solver.start_from(model.weights, model.bias)
        solver.scalars[T] = float(model.online.get("t", 0.0))

    def _recipe(self) -> dict[str, Any]:
        features = self.settings.features
        return {"format": "libsvm", "hash_bits": features.hash_bits, "dim": features.dim}

    # The passes.

    def learn(self) -> None:
        number, last = 1, self.settings.solver.passes
        while number <= last:
            if self._pass(number):
                number += 1
            else:  # the cache is full now, and knows all classes
                self.passes.fill()
                self._ask_cache()
                self.solver = self._solver()
                self.features = self.bytes = 0
                self._told = False
        self.solver.finish()
        self._report_bad_rows()
        if self.solver.scalars[SEEN] == 0:
            raise DataError("there is no row to learn from")

    def _place(self, row: int) -> str:
        """Where row `row` of the pass was read, as well as that can be told."""
        origin = self.passes.stream.tally.origin
        if not origin.url:
            return f"row {row}"
        return f"{origin.url}: before line {origin.line}, row {row}"

    def _pass(self, number: int) -> bool:
        """Learn every row of a pass; False when it must be done again, because there are other classes."""
        solver = self.solver
        rows = 0
        solver.begin_pass(number)
        watch = _FirstRows(self.listener.note, buffer_rows(self.settings)) if number == 1 else None
        from_cache = self.passes.cached
        before = self.bytes
        with closing(self.passes.visits(number)) as visits:
            for batch, order in visits:
                try:
                    coded = self.classes.encode(batch)
                except UndeclaredClassError as error:
                    if number > 1 or not self.classes.open or not self.passes.will_cache:
                        raise DataError(f"{self._place(rows + error.row + 1)}: {error}") from error
                    self.listener.note(
                        f"found label {error.label:g}: reading on to find all classes, then starting over"
                    )
                    for _ in visits:
                        pass
                    return False
                if watch is not None:
                    watch.look(coded)
                try:
                    solver.learn(coded, order)
                except DivergedError as error:
                    raise DivergedError(f"{self.passes.stream.tally.origin.url}: {error}") from error
                rows += coded.rows
                self._tell_step_size()
                self.features += coded.features
                read = self.passes.stream.tally.bytes
                self.bytes = self.bytes + 8 * coded.features if from_cache else before + read
                self.listener.progress(self._progress(number))
        solver.end_pass()
        self._tell_step_size()
        if watch is not None:
            watch.end()
        return True

    def _tell_step_size(self) -> None:
        if not self._told and self.solver.step_size is not None:
            self._told = True
            chosen = getattr(self.settings.solver, "eta0", None) == "auto" and self.initial is None
            how = "chosen by trial on the first rows" if chosen else "as given"
            self.listener.note(f"step size eta0 = {self.solver.step_size:g}, {how}")

    def _progress(self, number: int) -> Progress:
        scalars = self.solver.scalars
        weight = float(scalars[WEIGHT])
        return Progress(
            pass_number=number,
            passes=self.settings.solver.passes,
            examples=int(scalars[SEEN]),
            bytes=self.bytes,
            features=self.features,
            loss=float(scalars[LOSS]) / weight if weight else None,
            error=float(scalars[WRONG]) / weight if weight else None,
            weight=weight,
            seconds=time.perf_counter() - self.started,
            fraction=self.passes.fraction,
        )

    def _report_bad_rows(self) -> None:
        tally = self.passes.stream.tally
        if tally.bad_rows:
            shown = "; ".join(tally.faults)
            self.listener.note(f"skipped {tally.bad_rows} malformed rows: {shown}")

    # After the last row.

    def model(self) -> Model:
        weights, bias = self.solver.weights()
        stream = self.passes.stream
        return Model(
            weights=weights,
            bias=bias,
            classes=self.classes.names or [-1, 1],
            loss=self.settings.loss,
            recipe=self._recipe(),
            config=to_json_dict(self.settings),
            provenance={
                "streamsvm": __version__,
                "sources": [part.shown for part in stream.source.parts],
                "examples": int(self.solver.scalars[SEEN]),
                "passes": self.settings.solver.passes,
                "l2": self.solver.problem.l2,
                "eta0": self.solver.step_size,
                "objective": None,
                "gap": None,
            },
            online={"solver": self.solver.name, "t": float(self.solver.scalars[T]), "eta0": self.solver.step_size},
        )

    def result(self) -> dict[str, Any]:
        final = self._progress(self.settings.solver.passes)
        return {
            "examples": final.examples,
            "passes": final.passes,
            "features": final.features,
            "dim": self.solver.width,
            "seconds": final.seconds,
            "loss": final.loss,
            "error": final.error,
            "objective": None,
            "dual": None,
            "gap": None,
            "solver": self.solver.name,
            "l2": self.solver.problem.l2,
            "eta0": self.solver.step_size,
            "bad_rows": self.passes.stream.tally.bad_rows,
            "model": None,
        }


def _two_only(count: int, names: list[Any] | None = None) -> str:
    shown = f" ({', '.join(map(str, names[:5]))}{', ...' if len(names) > 5 else ''})" if names else ""
    return f"{count} classes{shown}: only two classes can be learned by this version"


class _FirstRows:
    """Notices data sorted by class, which ruins online learning."""

    def __init__(self, note: Callable[[str], None], shuffle: int) -> None:
        self._note = note
        self._shuffle = shuffle
        self._seen = 0
        self._code: float | None = None
        self._done = False

    def look(self, batch: Batch) -> None:
        if self._done:
            return
        labels = batch.labels[: FIRST_ROWS - self._seen]
        if self._code is None and len(labels):
            self._code = float(labels[0])
        if not bool(np.all(labels == self._code)):
            self._done = True
            return
        self._seen += len(labels)
        if self._seen >= FIRST_ROWS:
            self._warn(f"the first {self._seen} rows")

    def end(self) -> None:
        if not self._done and self._seen > 1:
            self._warn(f"all {self._seen} rows", hopeless=True)

    def _warn(self, which: str, *, hopeless: bool = False) -> None:
        self._done = True
        remedy = "a larger --shuffle" if self._shuffle else "--shuffle 100000 (data.shuffle)"
        advice = "there is nothing to tell apart" if hopeless else f"if the data is sorted by class, use {remedy}"
        self._note(f"warning: {which} have one class; {advice}")
