"""The story of `follow`: logs that are still being written -> solver -> a model that is always there and up to date.

It is a training run whose first pass never ends. Every line is learned once: the checkpoint holds what was learned and
the places in all logs up to which it was, so a run that was killed goes on as if it had not been. Together with each
checkpoint the model is written anew, under a temporary name first, so that a reader never sees half of one.

The model is the one that `train` would give on the rows so far, but for what is measured on the most recent rows:
probabilities, and the loss, AUC and calibration that are told.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np

from streamsvm import interrupts
from streamsvm.checkpoint import Checkpoints, Snapshot, Tree, kept_config, state_of, understood
from streamsvm.config import Settings, expand, to_json_dict
from streamsvm.dialects import Plan, plan_of_model, training_plan
from streamsvm.errors import ConfigError, DataError, ModelError, SourceError
from streamsvm.exposition import Exposition
from streamsvm.follow_settings import follow_settings
from streamsvm.holdout import Holdout
from streamsvm.interrupts import Interrupted
from streamsvm.io.generations import Generations
from streamsvm.io.log_source import LogSource
from streamsvm.io.logs import Options
from streamsvm.io.marks import Counts, Marks
from streamsvm.judging import judge, wanted
from streamsvm.model import Model, model_of
from streamsvm.offered import LINES
from streamsvm.online_training import TrainingRun
from streamsvm.passes import Passes
from streamsvm.progress import Listener, Progress, Silent
from streamsvm.reading import initial_model, make_limits, make_reading, reach_storage, training_passes
from streamsvm.recent import Recent
from streamsvm.report.recording import Recording
from streamsvm.report.writing import recorded, report_run
from streamsvm.score_sample import ScoreSample
from streamsvm.solvers import OnlineSolver
from streamsvm.stream import Stream, Tally
from streamsvm.tables import TableDialect
from streamsvm.training import Outcome, judged_figures

PUBLISH = 1.0  # seconds between two looks at how it goes

Note = Callable[[str], None]
Ended = Callable[[dict[str, Any]], None]


def follow(settings: Settings, listener: Listener = Silent(), *, ended: Ended = lambda result: None) -> Outcome:
    """Learn from logs, as their lines come, until a signal, `follow.stop_after` or `follow.until_idle` ends it.

    It goes on from its checkpoint, if there is one. Ctrl-C and SIGTERM raise `interrupts.Interrupted`, a
    KeyboardInterrupt, after a last checkpoint. Whatever ends it, `ended` gets its figures.

    >>> import gzip, pathlib, tempfile
    >>> from streamsvm import follow, load_settings
    >>> home = pathlib.Path(tempfile.mkdtemp())
    >>> lines = gzip.decompress(pathlib.Path("examples/data/a9a.train.svm.gz").read_bytes())
    >>> _ = (home / "clicks.log").write_bytes(lines)
    >>> given = {"data.train": str(home / "clicks.log"), "output.model": str(home / "live.safetensors")}
    >>> given |= {"follow.until_idle": True, "follow.idle": "0.2s"}
    >>> follow(load_settings(overrides=given)).result["examples"]
    32561
    """
    started = time.perf_counter()
    settings.refuse_cluster("follow")
    settings = follow_settings(settings)
    listener = recorded(settings, listener)
    board = Board()
    with interrupts.noted(), served(board, settings.follow.metrics, listener.note):
        try:
            with followed(settings, listener, board, started) as (passes, checkpoints):
                run = board.run = Following(settings, passes, checkpoints, listener, started, initial_model(settings))
                run.learn()
        except Interrupted:
            if board.run is None:
                ended(nothing_yet(settings))
            raise
        finally:
            if board.run is not None and board.run.begun:
                ended(board.run.result())
    return Outcome(run.final, run.result())


def nothing_yet(settings: Settings) -> dict[str, Any]:
    """The figures of a run that ended before a row came."""
    return {
        "examples": 0,
        "bad_rows": 0,
        "recent": {},
        "figures_from": None,
        "follow": Counts()._asdict(),
        "classes": list(settings.data.classes or ()),
        "dim": 0,
        "model": None,
        "provisional": True,
    }


class Board:
    """What is told to whoever asks, from another thread: before the first lines have come, only that it is there."""

    run: "Following | None" = None

    def read(self) -> dict[str, float | None]:
        return self.run.metrics() if self.run is not None else {"up": 1.0}


@contextmanager
def served(board: Board, port: int | None, note: Note) -> Iterator[None]:
    """The figures on a port of this machine, if one is asked for."""
    if port is None:
        yield
        return
    with Exposition(port, board.read) as exposition:
        note(f"metrics on http://127.0.0.1:{exposition.port}/metrics")
        yield


# What is read.


@contextmanager
def followed(
    settings: Settings, listener: Listener, board: Board, started: float
) -> Iterator[tuple[Passes, Checkpoints]]:
    """The one endless pass, and the checkpoints of the run; first of all, what is needed to begin is waited for."""
    source = log_source(settings, listener.note)
    plan = _plan_before(settings, source)
    with (
        closing(source),
        Checkpoints(settings, "follow", source, listener.note) as checkpoints,
    ):
        if plan is None:
            plan = Waiting(settings, source, checkpoints, listener, board, started).plan()
        stream = log_stream(settings, source, plan)
        with training_passes(settings, stream, checkpoints, listener.note) as passes:
            yield passes, checkpoints


def log_source(settings: Settings, note: Note) -> LogSource:
    reach_storage(settings)
    follow, data = settings.follow, settings.data
    return LogSource(
        [expand(url) for url in data.train or ()],
        Options(follow.rotate_wait or 0.0, follow.compressed, make_limits(settings)),
        max_line=data.max_line,
        skip_long=data.on_bad_row == "skip",
        until_idle=(follow.idle or 0.0) if follow.until_idle else None,
        poll=max(follow.poll or 0.0, 0.01),
        note=note,
    )


def log_stream(settings: Settings, source: LogSource, plan: Plan) -> Stream:
    """The rows of the logs, read as the run before did, or else as the first lines suggest."""
    if isinstance(plan.dialect, TableDialect) and plan.dialect.format not in LINES:
        raise ConfigError(f"follow: {plan.dialect.format} files do not grow line by line")
    data = settings.data
    return Stream(
        source,
        plan.dialect,
        skip_bad=data.on_bad_row == "skip",
        max_bad_rows=data.max_bad_rows,
        limit=settings.follow.stop_after,
        sample=data.sample,
        seed=settings.run.seed,
        reading=make_reading(settings),
        features=plan.features,
    )


class Waiting:
    """Before the lines are there that decide how the rest is read.

    What is there at the first look is kept durably before anything is read, so that whatever comes later is learned,
    under whatever name. A model is written all the same, a provisional one: learned from scratch from the lines so far.
    When enough have come learning begins with the first of them, as if nothing had been learned before.
    """

    def __init__(
        self,
        settings: Settings,
        source: LogSource,
        checkpoints: Checkpoints,
        listener: Listener,
        board: Board,
        started: float,
    ) -> None:
        self._settings = settings
        self._source = source
        self._checkpoints = checkpoints
        self._listener = listener
        self._board = board
        self._started = started
        self._learned = 0  # lines of which there is a provisional model
        self._told = self._told_why = False

    def plan(self) -> Plan:
        """How to read the logs, decided by their first lines; that is waited for."""
        state, self._checkpoints.state = self._checkpoints.state, None
        marks = Marks()
        if state is not None:
            with understood(self._checkpoints.found):
                marks = Marks.restored(state["passes"]["tally"]["position"])
        self._source.look(marks, stopped)
        self._keep(None)
        try:
            self._wait()
        except Interrupted:
            with interrupts.put_off():
                self._provisional()
            raise
        if not self._source.head(1):
            raise DataError("there is no row to learn from")
        return _new_plan(self._settings, self._source, self._listener.note)

    def _wait(self) -> None:
        every = self._settings.checkpoint.every or 0.0
        next_time = time.monotonic() + every
        for lines in self._source.first_lines(self._settings.follow.stop_after):
            if not lines and not self._told:
                self._told = True
                logs = ", ".join(part.shown for part in self._source.parts)
                self._listener.note(f"waiting for the first lines of {logs}")
            if time.monotonic() >= next_time and lines > self._learned:
                self._learned = lines
                self._provisional()
                next_time = time.monotonic() + every

    def _provisional(self) -> None:
        """Write a model of the lines that are there, and where reading begins."""
        if not self._source.head(1):
            return
        try:
            run = self._rehearsed()
        except (ConfigError, DataError, ModelError) as error:
            if not self._told_why:
                self._listener.note(f"warning: there is no provisional model yet: {error}")
            self._told_why = True
            self._keep(None)
            return
        self._keep(run.final)
        self._listener.progress(run.progress())
        self._board.run = run

    def _rehearsed(self) -> "Following":
        """A run over the lines that are there, of which nothing is kept but its model."""
        aside = self._settings.checkpoint.model_copy(update={"dir": None})
        settings = self._settings.model_copy(update={"checkpoint": aside})
        source = self._source.rehearsal()
        stream = log_stream(settings, source, _new_plan(settings, source, Silent().note))
        checkpoints = Checkpoints(settings, "follow", source, Silent().note)
        with training_passes(settings, stream, checkpoints, Silent().note) as passes:
            run = Following(settings, passes, checkpoints, Silent(), self._started, initial_model(settings))
            run.rehearse()
        return run

    def _keep(self, model: Model | None) -> None:
        """A checkpoint of where reading begins, and the model in its place."""
        tally = Tally(self._source.beginning)
        standing = {"stage": "wait", "pass": 1, "passes": 0, "inside": False, "examples": 0, "fraction": 0.0}
        standing |= {"seconds": time.perf_counter() - self._started, "loss": None, "error": None}
        passes = {"caching": False, "rows": 0, "groups": 0, "tally": tally.state()}
        nothing = Model(np.zeros(0, np.float32), 0.0, [-1, 1], self._settings.loss, config=kept_config(self._settings))

        def serve() -> None:
            if model is not None:
                model.save(expand(self._settings.output.model or ""))

        self._checkpoints.keep(lambda: Snapshot(model or nothing, {"standing": standing, "passes": passes}, serve))


def stopped() -> bool:
    """Whether reading is to end: a signal is an exception."""
    interrupts.check()
    return False


def _new_plan(settings: Settings, source: LogSource, note: Note) -> Plan:
    """How to read the logs, decided by their first lines."""
    plan = training_plan(settings, source, initial_model(settings), note)
    if not isinstance(plan.dialect, TableDialect) or plan.dialect.format != "csv" or plan.dialect.csv.fields:
        return plan
    from streamsvm.io.csv import first_row

    csv = plan.dialect.csv  # later files may have no header: then they go on with the columns of the first
    names, _, _ = first_row(source.head(1 << 24), csv.delimiter, csv.quote)
    return plan._replace(dialect=plan.dialect._replace(csv=csv._replace(fields=tuple(names))))


def _plan_before(settings: Settings, source: LogSource) -> Plan | None:
    """How the run before read them, if there was one; `Checkpoints` will tell of damaged ones."""
    found = Generations(expand(settings.checkpoint.dir or "")).newest(lambda text: None)
    if found is None:
        return None
    with understood(found.shown):
        state = state_of(found.content)
        if state["standing"]["stage"] == "wait":
            return None
        if (command := state["run"]["command"]) != "follow":
            raise ModelError(
                f"{found.shown}: this checkpoint is of streamsvm {command}, not follow; name another directory with "
                "--checkpoint, or begin with that model: --init"
            )
        read = state["own"]["reading"]
        known = settings.data.model_copy(update=read["data"])
        model = model_of(found.content, found.shown)
        plan = plan_of_model(settings.model_copy(update={"data": known}), source, model)
        dialect = plan.dialect
        if isinstance(dialect, TableDialect):
            csv = dialect.csv._replace(fields=tuple(read["fields"]))
            dialect = dialect._replace(csv=csv, limit=settings.features.dim, spelled=settings.features.names)
        elif getattr(dialect, "spelled", None) is not None:
            dialect = dialect._replace(spelled=settings.features.names)  # type: ignore[call-arg]
        return plan._replace(dialect=dialect)


def how_it_is_read(stream: Stream) -> Tree:
    """What was decided by the first lines and is not in the model, for `_plan_before`."""
    dialect = stream.dialect
    if not isinstance(dialect, TableDialect):
        return {"data": {"format": "vw" if stream.features.recipe["format"] == "vw" else "libsvm"}, "fields": []}
    data: Tree = {"format": dialect.format}
    if dialect.format == "csv":
        data |= {"delimiter": chr(dialect.csv.delimiter), "header": dialect.csv.header}
        if not dialect.csv.header:
            data["columns"] = list(dialect.csv.fields)
    return {"data": data, "fields": list(dialect.csv.fields)}


# What is learned.


class Following(TrainingRun):
    """A training run in one pass without an end."""

    def __init__(self, settings: Settings, *others: Any) -> None:
        super().__init__(settings, *others)
        self.final = self.nothing_learned()
        self._ending = False
        self._rehearsal = False  # whether all is learned anew when more lines have come
        self._kept: Any = None  # where reading stood at the last checkpoint
        self._served = True  # whether the last attempt to write the model went well
        self._served_at: float | None = None
        self._row_at: float | None = None  # when the last row came
        self._bytes_before = 0  # that were learned by the runs before
        self._published: dict[str, float | None] = {}
        self._publish_at = 0.0
        self._told_bad = 0

    def start(self) -> None:
        self.solver = self._watched(self._new_solver(), self.listener.note)
        self.holdout = Holdout([self.solver.problem.loss], self.rule, None)
        self._told = False

    def _watched(self, solver: OnlineSolver, note: Note) -> OnlineSolver:
        follow = self.settings.follow
        many, loss = self.feed.classes.many, solver.problem.loss
        solver.watch = Recent(follow.window, many=many, loss=loss, forget=follow.forget, note=note)
        return solver

    @property
    def unfinished(self) -> bool:
        return True

    @property
    def begun(self) -> bool:
        """Whether there is a solver, and so anything to tell."""
        return hasattr(self, "solver")

    def learn(self) -> None:
        resumed = self._resumed()
        try:
            if not resumed:
                self._begin()
            self.make_passes()
        except Interrupted:
            self._end()
            raise
        self._end()

    def rehearse(self) -> None:
        """Learn what is there, for a provisional model."""
        self._begin()
        self.make_passes()
        self._ending = self._rehearsal = True
        self._publish(now=True)
        self.final = self.model()

    def _begin(self) -> None:
        """Start, and note at once which files are read: they may have other names when this is killed and goes on."""
        self.feed.prepare(self._tick)
        self.start()
        self.begin_pass()
        self.feed.begin_pass(1)
        self._inside = True
        self._checkpoints.keep(self._snapshot)

    def make_passes(self) -> None:
        self._bytes_before = self.passes.stream.tally.bytes
        with closing(self.feed.visits(1)) as visits:
            for visit in visits:
                if visit.batch.rows:
                    self._row_at = time.monotonic()
                    self.learn_mapped(visit)
                self._tell_bad_rows()
                self._publish()
                self._tick(self.feed.rows_since())

    def _end(self) -> None:
        """A last checkpoint, and the model with rows that waited to be scored, or for a step size, learned."""
        self._ending = True
        self._publish(now=True)
        self._checkpoints.keep(self._snapshot)

    def _tell_bad_rows(self) -> None:
        tally = self.passes.stream.tally
        if tally.bad_rows > self._told_bad:
            self.listener.note(f"warning: {tally.bad_rows:,} malformed rows skipped so far; {tally.faults[-1]}")
            self._told_bad = 2 * tally.bad_rows

    # Checkpoints, and the model.

    def _tick(self, rows: int) -> None:
        last = self.passes.stream.tally.position == self._kept and self._checkpoints.settled
        if not last or not self._served:  # else the last one says it all
            super()._tick(rows)

    def _snapshot(self) -> Snapshot:
        snapshot = super()._snapshot()
        snapshot.state["standing"] |= {"passes": 0, "examples": self.passes.stream.tally.rows}
        self._kept = self.passes.stream.tally.position
        self.final = snapshot.model
        report = self._report(snapshot.model)

        def sync() -> None:
            self._serve(snapshot.model)
            report()

        return snapshot._replace(sync=sync)

    def _report(self, model: Model) -> Callable[[], object]:
        """What writes the report anew, with the figures of now."""
        listener, rows = self.listener, model.provenance.get("examples")
        if not isinstance(listener, Recording) or self.settings.output.report is None or not rows:
            return lambda: None
        result, sample = self.result(), self._judged_by(self.solver)
        return lambda: report_run("follow", self.settings, model, result, listener, None, sample)

    def _serve(self, model: Model) -> None:
        """Put the model in the place of the last; that may fail on a full disk, and is tried again next time."""
        if not model.provenance["examples"]:
            return  # there may be a better one of another run
        self._served = False
        try:
            model.save(expand(self.settings.output.model or ""))
            self._served_at, self._served = time.monotonic(), True
        except SourceError as error:
            self.listener.note(f"warning: the model could not be written: {error}; the last one is kept")

    def model(self) -> Model:
        solver, scaling = self.solver, self.feed.scaling
        if self._ending or self.solver.step_size is None:
            solver, scaling = self.finished()
        model = self.model_of(self.settings, solver, solver.weights(), scaling)
        judge(model, self._judged_by(solver), self.settings, lambda text: None)
        if self._ending:
            model.named = self.passes.stream.named()
        if self._rehearsal or (self.solver.step_size is None and not self._ending):
            model.provenance["provisional"] = True
        return model

    def _judged_by(self, solver: OnlineSolver) -> ScoreSample | None:
        rows = self.passes.stream.tally.rows
        if not rows or not wanted(self.settings) or not isinstance(solver.watch, Recent):
            return None
        return self.to_judge_by(solver.watch.recent())

    def state(self) -> Tree:
        return {**super().state(), "reading": how_it_is_read(self.passes.stream)}

    # How it goes.

    def progress(self) -> Progress:
        return super().progress()._replace(recent=self._published)

    def _publish(self, *, now: bool = False) -> None:
        """Find out how it goes, from time to time; others may look at what was found."""
        clock = time.monotonic()
        if clock < self._publish_at and not now:
            return
        self._publish_at = clock + PUBLISH
        tally, watch, counts = self.passes.stream.tally, self.solver.watch, self._counts
        source = self.passes.stream.source
        assert isinstance(watch, Recent) and isinstance(source, LogSource)
        on_the_way = source.handed_on - (tally.bytes - self._bytes_before)
        self._published = {
            **watch.figures(),
            "rows_total": float(tally.rows),
            "bytes_total": float(tally.bytes),
            "lag_bytes": float(max(0, on_the_way) + source.lag),
            "skipped_rows_total": float(tally.bad_rows + self.feed.unknown + counts.too_long + counts.unfinished),
            "truncations_total": float(counts.truncated),
            "lost_files_total": float(counts.lost),
            "read_errors_total": float(counts.errors),
            "files": float(counts.files),
        }
        self.listener.progress(self.progress())

    @property
    def _counts(self) -> Counts:
        """What has happened to the files that were learned from."""
        position = self.passes.stream.tally.position
        assert isinstance(position, Marks)
        return position.counts

    def metrics(self) -> dict[str, float | None]:
        """What is told to whoever asks, from another thread."""
        now = time.monotonic()
        ages = {
            "checkpoint_age_seconds": self._checkpoints.kept_at,
            "model_age_seconds": self._served_at,
            "last_row_age_seconds": self._row_at,
        }
        return {
            **self._published,
            **{name: now - then if then is not None else None for name, then in ages.items()},
            "up": 1.0,
        }

    def result(self) -> dict[str, Any]:
        figures = {name: value for name, value in self._published.items() if not name.endswith("_total")}
        tally, watch = self.passes.stream.tally, self.solver.watch
        return {
            **super().result(),
            "examples": tally.rows,
            "passes": 1,
            "dim": self.final.dim,
            "eta0": self.final.provenance.get("eta0"),
            "recent": figures,
            "classes": list(self.final.classes),
            "figures_from": watch.first_figures if isinstance(watch, Recent) else None,
            "follow": self._counts._asdict(),
            "bad_rows": tally.bad_rows + self.feed.unknown,
            "model": self.settings.output.model,
            "provisional": bool(self.final.provenance.get("provisional")),
            **judged_figures(self.final),
            "config": to_json_dict(self.settings)["follow"],
        }
