"""Rows as solvers want them: with class codes, weighted, scaled, some of them held out.

    passes --batches--> class codes --> class weights --> scaling --> Visit --map--> Visits, to a solver or to several

What must be known before the first step (the number of rows for C, the weight of each class, the scale of each
feature) is counted in the cache, where there is one: then it is exact from the first row. On a stream that is read
once, class weights and scales are those of the rows so far. A map is made from a sample of all rows, or there from the
first batch; mapped rows are made batch by batch, so that a run can be stopped between any two.
"""

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import Batch, Float32s, Int64s, concatenate, empty_batch
from streamsvm.classes import ClassMap, UndeclaredClassError, class_map_of, classes_from, refuse_texts, shown_label
from streamsvm.config import DEFAULT_L2, BatchSettings, Settings
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.features.autoscale import AutoScaling
from streamsvm.features.held_back import HeldBack, Rows
from streamsvm.features.scaling import Scaling
from streamsvm.first_rows import FirstRows
from streamsvm.holdout import Bools
from streamsvm.mapping import FEWEST_ROWS, chosen_rows, first_rows, map_of, map_restored, map_state, map_wish
from streamsvm.model import Model
from streamsvm.offered import KERNEL
from streamsvm.passes import Passes, Tick, held_rows
from streamsvm.shuffle import taken
from streamsvm.weighting import ClassWeights

Note = Callable[[str], None]
State = dict[str, Any]

MAP_SHARE = 8  # of the memory that pieces of mapped rows may take


class StartOver(Exception):  # noqa: N818  (not an error: the classes are known now)
    """The data has other classes than it seemed; they are known now, and learning begins again with pass 1."""


class Visit(NamedTuple):
    """A batch on its way to a solver: its rows in their order, and which of them are held out (None: none)."""

    batch: Batch
    order: Int64s | None
    held: Bools | None


class Feed:
    """All passes of a run, prepared for learning: `prepare` first, or `restore` to go on with an interrupted run."""

    def __init__(self, settings: Settings, passes: Passes, note: Note, initial: Model | None, memory: int) -> None:
        self._settings = settings
        self._passes = passes
        self._note = note
        self.classes = self._declared_classes(initial)
        self.rows = settings.data.rows
        self._totals: dict[float, float] | None = None  # weight of each label as written, where counted
        self.wish = map_wish(settings)
        self.map = map_of(self.wish, initial)
        self._fit_map()
        self._late_map = False  # whether it was made after the first step, so that solvers did not know its width
        self.scaling = self._new_scaling(initial, memory)
        self._held_back = HeldBack()
        self.class_weights: ClassWeights | None = None
        self.features = 0
        self.bytes = 0
        self._bytes_before = 0  # those of earlier passes
        self._pass_rows = self._asked_rows = 0
        self.unknown = 0  # rows of unknown classes that were skipped
        self._watch: FirstRows | None = None
        self.preparing = True  # whether data is read to find out something, and not to learn
        self._begun = False  # whether the next visits go on with a pass

    # Before the first row.

    def _declared_classes(self, initial: Model | None) -> ClassMap:
        declared, multiclass = self._settings.data.classes, self._settings.multiclass
        features = self._passes.stream.features
        if initial is not None:
            if declared and list(declared) != initial.classes:
                raise ConfigError(f"data.classes differ from those of the initial model: {initial.classes}")
            return initial.class_map()
        if features.label_classes is not None:
            return ClassMap(list(features.label_classes), many=multiclass != "auto")
        if declared:
            refuse_texts(declared)
            return ClassMap(list(declared), many=multiclass != "auto")
        return class_map_of(features.labels, multiclass)

    def _new_scaling(self, initial: Model | None, memory: int) -> Scaling | AutoScaling | None:
        kind = self._settings.features.scale
        if kind == "none" or self.mapped:
            return None
        if kind == "auto":
            return self._new_auto_scaling(initial)
        if initial is not None:
            if initial.scale is None:
                raise ModelError(f"the initial model was trained without features.scale, this run has {kind}")
            return Scaling.from_factors(kind, initial.scale)
        features = self._passes.stream.features
        return Scaling(kind, dim=features.width, memory=memory, dense=features.dense)

    def _new_auto_scaling(self, initial: Model | None) -> Scaling | AutoScaling | None:
        """For solvers that learn row by row: others mean by C what it means for features as written."""
        settings, features = self._settings, self._passes.stream.features
        if isinstance(settings.solver, BatchSettings) or settings.solver.name in KERNEL:
            return None
        if initial is not None:  # which keeps what it has
            kind = initial.recipe.get("scale")
            if initial.scale is None or kind is None:
                return None
            if kind != "auto":
                return Scaling.from_factors(kind, initial.scale)
            return AutoScaling.of_model(
                initial.scale, initial.centre, features.indicators, initial.online.get("usual_factor", 1.0)
            )
        return AutoScaling(limit=features.dense, centred=settings.bias.kind != "none", indicators=features.indicators)

    def prepare(self, tick: Tick, *, whole: bool = False) -> None:
        """Find out from the cache what must be known before the first step; `tick` is called while that is filled.

        With `whole` it is filled in any case, for a solver that needs `groups`.
        """
        self._prepare(tick, whole)
        self.class_weights = self._new_class_weights()
        self.preparing = False

    def _prepare(self, tick: Tick, whole: bool) -> None:
        scaling = self.scaling if isinstance(self.scaling, Scaling) and not self.scaling.frozen else None
        needs_rows = self._settings.penalty.C is not None and self.rows is None
        needs_map = self.wish is not None and self.map is None
        if needs_rows and not self._passes.will_cache:
            raise ConfigError(
                "penalty.C needs the number of rows: set data.rows, keep a cache (--cache PATH), or use --l2"
            )
        reasons = [
            *(["C depends on the number of rows"] if needs_rows else []),
            *(["balanced weights depend on the number in each class"] if self._balanced else []),
            *(["scaling depends on all values"] if scaling else []),
            *(["the map is made from a sample of all rows"] if needs_map else []),
        ]
        if self._passes.filling or ((reasons or whole) and self._passes.will_cache and not self._passes.cached):
            if reasons and not whole:
                self._note(f"reading the data once before learning, because {' and '.join(reasons)}")
            self._passes.fill(tick)
        if self._passes.cached:
            self._ask_cache()
            self._collect_names(tick)
            if scaling is not None:
                self.count_scales(scaling, tick)
                scaling.freeze()
            if needs_map:
                self._make_map(self.sample())
            if isinstance(self.scaling, AutoScaling) and not self.scaling.decided:
                self.decide_scales(self.scaling)

    def decide_scales(self, scaling: AutoScaling) -> None:
        """Decide by all rows, where they can be asked before the first step; else the first rows decide."""

    def count_scales(self, scaling: Scaling, tick: Tick) -> None:
        """Have the sizes of all features counted."""
        with closing(self._passes.batches(2)) as batches:
            for batch in batches:
                scaling.see(batch._replace(weights=np.abs(batch.weights)))
                tick(batch.rows)

    # The map.

    @property
    def mapped(self) -> bool:
        """Whether there is a map, made or to be made."""
        return self.map is not None or self.wish is not None

    @property
    def width(self) -> int:
        """The number of weights, if it is known; else 0."""
        if self.mapped:
            return self.map.width if self.map is not None and not self._late_map else 0
        return self._passes.stream.features.width

    def sample(self) -> Batch:
        """Rows from everywhere in the cache, but those that are not to be learned from."""
        return self.rows_at(chosen_rows(self._settings.run.seed, int(self._passes.starts()[-1])))

    def rows_at(self, rows: Int64s) -> Batch:
        """The rows of the cache that have these numbers, which rise, and a weight."""
        starts = self._passes.starts()
        places = np.searchsorted(rows, starts)
        parts = []
        for group, (a, b) in enumerate(zip(places[:-1], places[1:], strict=True)):
            if b > a:
                batch = self._passes.group(group)
                own = rows[a:b] - starts[group]
                parts.append(taken(batch, own[batch.weights[own] > 0.0]))
        return concatenate(parts)

    def _make_map(self, sample: Batch) -> None:
        from streamsvm.features.maps.make import make_map

        assert self.wish is not None
        total = self.rows or sample.rows
        self.map = make_map(self.wish, sample, total, len(self.classes.names))
        self._fit_map()
        self._note(f"map {self.map.summary()}, made from {sample.rows:,} rows")

    def _fit_map(self) -> None:
        """Pieces of mapped rows take a part of the memory that reading has, and no more."""
        if self.map is not None:
            self.map.fit_into(self._passes.stream.reading.memory // MAP_SHARE)

    @property
    def map_bytes(self) -> int:
        """What the map takes of the memory of the solver."""
        return self.map.bytes_for(self._passes.stream.reading.workers) if self.map is not None else 0

    def _first_rows(self, batch: Batch, held: Bools | None) -> Batch:
        """Rows of the first batch for a map, where no others can be had; DataError if a log has too few of them yet."""
        rows = first_rows(batch, held)
        if rows.rows < FEWEST_ROWS:
            few = f"a map is made from rows, and the first batch has {rows.rows}"
            if self._passes.stream.source.endless:
                raise DataError(f"{few}: train a model on rows that are there already, and go on with it (--init)")
            self._note(f"warning: {few}; more would make a better one")
        return rows

    def mapped_visits(self, visit: Visit) -> Generator[Visit, None, None]:
        """The visit, or, where there is a map, its rows mapped, piece by piece in their order."""
        if not self.mapped or not visit.batch.rows:
            yield visit
            return
        batch, order, held = visit
        if order is not None:
            batch, held = taken(batch, order), held[order] if held is not None else None
        if self.map is None:
            self._late_map = True
            self._make_map(self._first_rows(batch, held))
        assert self.map is not None
        with closing(self.map.pieces(batch, self._passes.stream.reading.workers)) as pieces:
            for part, rows in pieces:
                yield Visit(rows, None, held[part] if held is not None else None)

    def _collect_names(self, tick: Tick) -> None:
        """Read the source for the names of features, if the rows come from a cache that was there before."""
        stream = self._passes.stream
        if stream.names is not None and not len(stream.names):
            self._note("reading the data once for the names of features, which the cache does not have")
            with closing(stream.in_order()) as batches:
                for batch in batches:
                    tick(batch.rows)

    @property
    def _balanced(self) -> bool:
        return self._settings.data.class_weights == "balanced"

    def _ask_cache(self) -> None:
        """What a complete cache knows: the number of rows, and the classes if they are still open."""
        rows, self._totals = self._passes.summary()
        if self.rows is None:
            self.rows = rows
        if self.classes.open or self.classes.growing or self.classes.guessed:
            names = classes_from(self._totals)
            if len(names) == 1:
                raise DataError(f"all rows have the class {names[0]}: there is nothing to tell apart")
            if len(names) >= 2:
                self.classes = ClassMap(names, many=self._settings.multiclass != "auto")

    def _new_class_weights(self) -> ClassWeights | None:
        given = self._settings.data.class_weights
        if given is None:
            return None
        if given == "balanced":
            if self._totals is None:
                self._note("class weights are balanced by the rows so far, because the data is read only once")
                return ClassWeights.balanced(classes=max(2, len(self.classes.names)))
            return ClassWeights.balanced(self._by_code(self._totals))
        assert isinstance(given, dict)
        names = [shown_label(float(label)) for label in self.classes.numbers]
        strange = set(given) - set(names) - {str(name) for name in self.classes.names}
        if strange and not self.classes.open and not self.classes.growing:
            raise ConfigError(f"data.class_weights: {', '.join(sorted(strange))} is not one of the classes ({names})")
        return ClassWeights.given(self._given_factors(given, names) or [1.0])

    def _given_factors(self, given: dict[str, float], names: list[str]) -> list[float]:
        if self.classes.open:  # {-1, +1} or {0, 1}, not known yet which
            return [given.get("-1", given.get("0", 1.0)), given.get("1", 1.0)]
        written = [str(name) for name in self.classes.names]
        return [given.get(name, given.get(text, 1.0)) for name, text in zip(names, written, strict=True)]

    def _by_code(self, totals: dict[float, float]) -> list[float]:
        return [totals.get(float(label), 0.0) for label in self.classes.numbers]

    # The penalty, which may depend on the rows.

    def l2(self) -> float:
        penalty = self._settings.penalty
        given = penalty.C
        if self.map is not None and self.rows is not None and penalty.is_default:
            given = self.map.usual_c
        if given is not None:
            return 1.0 / (given * max(self._learned_weight(), 1e-300))
        return DEFAULT_L2 if penalty.is_default else penalty.l2 or 0.0

    def _learned_weight(self) -> float:
        """The sum of c_i over the rows that are learned, as far as it is known before they are read."""
        rows = float(self.rows or 1)
        every = self._settings.data.holdout
        share = 1.0 - held_rows(int(rows), every) / rows if every else 1.0
        if self._totals is None or self._settings.data.rows is not None:
            return rows * share
        totals = self._by_code(self._totals)
        given = self._settings.data.class_weights
        if isinstance(given, dict):
            names = [shown_label(float(label)) for label in self.classes.numbers]
            totals = [f * total for f, total in zip(self._given_factors(given, names), totals, strict=True)]
        return sum(totals) * share

    # The rows.

    @property
    def fixed_weights(self) -> bool:
        """Whether a row has the same weight in every pass."""
        return self.class_weights is None or not self.class_weights.running

    def visits(self, number: int, tick: Tick = lambda rows: None) -> Generator[Visit, None, None]:
        """Pass `number`; raises StartOver when classes turn up that can be found in the cache.

        `tick` is called for every batch that is read to find them.
        """
        if not self._begun:
            self.begin_pass(number)
        self._begun = False
        from_cache = self._passes.cached
        with closing(self._passes.visits(number)) as visits:
            for batch, order in visits:
                try:
                    visit = self._prepared(batch, order)
                except UndeclaredClassError as error:
                    unsure = self.classes.open or self.classes.guessed
                    again = self._passes.will_cache or self._passes.stream.repeatable
                    if number > 1 or not (unsure and again):
                        raise DataError(f"{self.place(self._pass_rows + error.row + 1)}: {error}") from error
                    self._find_classes(error.label, visits, tick)
                    raise StartOver from None
                self._count(batch, visit.batch)
                if from_cache:
                    self.bytes += 8 * batch.features
                else:
                    self.bytes = self._bytes_before + self._passes.stream.tally.bytes
                yield visit
        if self._passes.stream.source.endless:
            return  # there may be more later
        if self._held_back.rows:
            visit = self._released(None)
            if self._watch is not None:
                self._watch.look(visit.batch)
            yield visit
        if self.scaling is not None:
            self.scaling.freeze()
        if self._watch is not None:
            self._watch.end()

    def visit(self, batch: Batch) -> Visit:
        """A further batch of a pass that has begun, from whoever has it."""
        try:
            visit = self._prepared(batch, None)
        except UndeclaredClassError as error:
            raise DataError(f"row {self._pass_rows + error.row + 1}: {error}") from error
        self._count(batch, visit.batch)
        return visit

    def _count(self, batch: Batch, learned: Batch) -> None:
        if self._watch is not None:
            self._watch.look(learned)
        self._pass_rows += batch.rows
        self.features += batch.features

    def rows_since(self) -> int:
        """Rows that were read since this was asked last; they may wait to be scaled."""
        rows, self._asked_rows = self._pass_rows - self._asked_rows, self._pass_rows
        return rows

    def begin_pass(self, number: int) -> None:
        """Be ready for the visits of a pass; for whoever wants the state before the first of them."""
        self._begun = True
        self._watch = self._new_watch() if number == 1 else None
        self._bytes_before = self.bytes
        self._pass_rows = self._asked_rows = 0

    def _new_watch(self) -> FirstRows:
        shuffled = self._settings.data.shuffle not in ("auto", 0)
        names = self._passes.stream.features.names
        scaled = self.scaling is not None or self.mapped
        return FirstRows(self._note, shuffled=shuffled, scaled=scaled, names=names)

    def _prepared(self, batch: Batch, order: Int64s | None) -> Visit:
        batch, held = self._coded(batch)
        if isinstance(self.scaling, AutoScaling):
            return self._auto_scaled(self.scaling, Visit(batch, order, held))
        if self.scaling is not None:
            batch = self.scaling.apply(batch, order)
        return Visit(batch, order, held)

    def _auto_scaled(self, scaling: AutoScaling, visit: Visit) -> Visit:
        """The visit scaled; or without rows, while there are too few of them to know how."""
        if not scaling.decided:
            rest = self._held_back.take(*visit)
            if self._held_back.enough:
                return self._released(rest)
            return Visit(empty_batch(), None, None if visit.held is None else visit.held[:0])
        batch, order, held = visit
        if scaling.frozen or scaling.idle:
            return Visit(scaling.apply(batch), order, held)
        if order is not None:
            batch, held = taken(batch, order), None if held is None else held[order]
        return Visit(scaling.apply(batch, counted(batch, held)), None, held)

    def _released(self, rest: Rows | None) -> Visit:
        """The rows that waited, scaled, and behind them those that came with the last."""
        assert isinstance(self.scaling, AutoScaling)
        rows = self._held_back.release()
        self.scaling.decide(rows.learned)
        self.tell_scales(self.scaling)
        first = Visit(self.scaling.scaled(rows.batch), None, self._marks(rows))
        if rest is None:
            return first
        batch = concatenate([first.batch, self.scaling.apply(rest.batch, counted(*rest))])
        marks = [part for part in (first.held, self._marks(rest)) if part is not None]
        return Visit(batch, None, np.concatenate(marks) if marks else None)

    def _marks(self, rows: Rows) -> Bools | None:
        """Which of the rows are held out; None only where none ever is."""
        if rows.held is None and self._settings.data.holdout:
            return np.zeros(rows.batch.rows, np.bool_)
        return rows.held

    def tell_scales(self, scaling: AutoScaling) -> None:
        if scaling.summary:
            self._note(f"scale    {scaling.summary}")

    def settled(self) -> tuple[Visit | None, Scaling | AutoScaling | None]:
        """If learning ended here: the rows that wait, scaled, and how; nothing changes by it."""
        if not self._held_back.rows or not isinstance(self.scaling, AutoScaling):
            return None, self.scaling
        rows, scaling = self._held_back.waiting(), self.scaling.copy()
        scaling.decide(rows.learned)
        return Visit(scaling.scaled(rows.batch), None, rows.held), scaling

    def _coded(self, batch: Batch) -> tuple[Batch, Bools | None]:
        """The batch with class codes and weights, and its held-out rows."""
        held = None
        if self._settings.data.holdout:
            held = np.signbit(batch.weights)
            batch = batch._replace(weights=np.abs(batch.weights))
        before = len(self.classes.names)
        stream = self._passes.stream
        batch = self._known_only(batch) if stream.source.endless and stream.skip_bad else self.classes.encode(batch)
        if self.class_weights is not None:
            if self.classes.growing and len(self.classes.names) > before:
                self._weigh_more_classes()
            batch = self.class_weights.apply(batch)
        return batch, held

    def _known_only(self, batch: Batch) -> Batch:
        """The batch with class codes; rows of a class that is not known have no weight, and are counted as bad."""
        while True:
            try:
                return self.classes.encode(batch)
            except UndeclaredClassError as error:
                strange = batch.labels == np.float32(error.label)
                if not self.unknown:
                    self._note(f"warning: {self.place(self._pass_rows + error.row + 1)}: skipped: {error}")
                self.unknown += int(strange.sum())
                batch = batch._replace(
                    labels=np.where(strange, np.float32(np.nan), batch.labels),
                    weights=np.where(strange, np.float32(0.0), batch.weights),
                )

    def _weigh_more_classes(self) -> None:
        if self._balanced and self.class_weights is not None:
            self.class_weights.admit(len(self.classes.names))
        else:
            self.class_weights = self._new_class_weights()

    def _find_classes(self, label: float, rest: Generator[Any, None, None], tick: Tick) -> None:
        """There are more classes than it seemed: begin again, knowing them all or taking them as they come."""
        if self._passes.will_cache:
            self._note(f"found label {shown_label(label)}: reading on to find all classes, then starting over")
            self.preparing = True
            for more, _ in rest:
                tick(more.rows)
            self._passes.fill()
            self._ask_cache()
        else:
            self._note(f"found label {shown_label(label)}: starting over, to learn classes as they come")
            self.classes = ClassMap(growing=True)
        self.class_weights = self._new_class_weights()
        if isinstance(self.scaling, AutoScaling):
            self.scaling = self._new_auto_scaling(None)  # with an initial model all classes are known
            self._held_back = HeldBack()
        self.features = self.bytes = 0
        self.preparing = False

    def coded(self, number: int) -> tuple[Batch, Bools | None]:
        """A group of the cache with class codes and weights, and its held-out rows; any thread may ask."""
        return self._coded(self._passes.group(number))

    # Going on later.

    def state(self) -> State:
        """Everything that later visits depend on, copied."""
        state: State = {
            "classes": None if self.classes.open else list(self.classes.names),
            "signs": self.classes.state(),
            "rows": self.rows,
            "totals": list(self._totals.items()) if self._totals is not None else None,
            "features": self.features,
            "bytes": self.bytes,
            "bytes_before": self._bytes_before,
            "pass_rows": self._pass_rows,
            "unknown": self.unknown,
        }
        if self.scaling is not None:
            state["scaling"] = self.scaling.state()
        if self._held_back.rows:
            state["held_back"] = self._held_back.state()
        if self.map is not None:
            state["map"] = {**map_state(self.map), "late": self._late_map}
        if self.class_weights is not None:
            state["class_weights"] = self.class_weights.state()
        if self._watch is not None:
            state["first_rows"] = self._watch.state()
        return state

    def restore(self, state: State, *, inside: bool) -> None:
        """Go on where `state` was taken, `inside` a pass or between two; takes the place of `prepare`."""
        self.classes = ClassMap.restored(state["classes"], state["signs"])
        self.rows = state["rows"]
        self._totals = dict(state["totals"]) if state["totals"] is not None else None
        self.features, self.bytes = state["features"], state["bytes"]
        self._bytes_before, self._pass_rows = state["bytes_before"], state["pass_rows"]
        self._asked_rows = self._pass_rows
        self.unknown = state["unknown"]
        if "scaling" not in state:  # the model that it began with had none
            self.scaling = None
        if self.scaling is not None:
            self.scaling.restore(state["scaling"])
        if "held_back" in state:
            self._held_back.restore(state["held_back"])
        if "map" in state:
            self.map, self._late_map = map_restored(state["map"]), state["map"]["late"]
            self._fit_map()
        self.class_weights = self._new_class_weights()
        if self.class_weights is not None:
            self.class_weights.restore(state["class_weights"])
        if "first_rows" in state:
            self._watch = self._new_watch()
            self._watch.restore(state["first_rows"])
        self._begun = inside
        self.preparing = False

    def place(self, row: int) -> str:
        """Where row `row` of the pass was read, as well as that can be told."""
        origin = self._passes.stream.tally.origin
        if not origin.url:
            return f"row {row}"
        return f"{origin.url}: before line {origin.line}, row {row}"

    @property
    def declared_count(self) -> int:
        """The number of classes, if it is known for good; else 0."""
        return 0 if self.classes.growing else len(self.classes.names)

    # The recipe, for the model.

    def recipe(self, scaling: Scaling | AutoScaling | None = None) -> dict[str, Any]:
        scaling = self.scaling if scaling is None else scaling
        idle = isinstance(scaling, AutoScaling) and scaling.idle
        scale = {} if scaling is None or idle else {"scale": scaling.kind}
        return {**self._passes.stream.features.recipe, **scale}


def counted(batch: Batch, held: Bools | None) -> Float32s:
    """The weights of rows where features are counted: those that are held out have none."""
    return batch.weights if held is None else np.where(held, np.float32(0.0), batch.weights)
