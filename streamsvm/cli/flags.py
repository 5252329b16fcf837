"""Flags that are settings: one table, from which `train` and `tune` take their options."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from streamsvm import offered
from streamsvm.io.urls import redact_url
from streamsvm.offered import KERNEL, LINES, LOSSES, MAPS, ONLINE, SOLVERS

if TYPE_CHECKING:
    from streamsvm.config import Settings

FORMATS = ("auto", *offered.FORMATS)


class Flag(NamedTuple):
    """A flag, the setting it stands for, and what its help says."""

    setting: str
    help: str
    words: tuple[str, ...] = ()  # what tab completion offers
    spelled: tuple[str, ...] = ()  # if it is not --name
    repeated: bool = False
    switch: bool = False  # there or not, without a value

    def parameter(self, name: str) -> inspect.Parameter:
        option = typer.Option(
            *(self.spelled or (f"--{name.replace('_', '-')}",)),
            help=self.help,
            autocompletion=complete(*self.words) if self.words else None,
        )
        given = list[str] | None if self.repeated else bool | None if self.switch else str | None
        kind = Annotated[given, option]  # type: ignore[valid-type]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def complete(*words: str) -> Any:
    def offer(incomplete: str) -> list[str]:
        """The words that begin like this; in a list, after the last comma."""
        done, comma, last = incomplete.rpartition(",")
        return [done + comma + word for word in words if word.startswith(last)]

    return offer


FLAGS = {
    "output": Flag(
        "output.model", "Where to write the model. [default: model.safetensors]", spelled=("--output", "-o")
    ),
    "report": Flag("output.report", "Where to write a report of the run, an HTML page: curves, tables, settings."),
    "solver": Flag("solver.name", f"{', '.join(SOLVERS)}. [default: asgd]", SOLVERS),
    "loss": Flag("loss", f"{', '.join(LOSSES)}. [default: squared_hinge]", LOSSES),
    "l2": Flag("penalty.l2", "Penalty against the mean loss. [default: 1e-6]"),
    "c": Flag(
        "penalty.C", "LIBLINEAR's scale of the penalty, instead of --l2: l2 = 1/(C rows).", spelled=("--C",)
    ),
    "l1": Flag("penalty.l1", "Penalty that makes weights exactly zero (folos, adagrad, ftrl)."),
    "path": Flag("penalty.path", "Several l2, such as 1e-6..1e-2, one after the other (exact solvers)."),
    "passes": Flag("solver.passes", "Sweeps over the data. [default: 1; exact solvers: at most 1000]"),
    "tol": Flag("solver.tol", "Exact solvers stop at this relative gap, which is proven. [default: 1e-3]"),
    "time": Flag("solver.time", "Exact solvers stop after so long, such as 10m."),
    "eta0": Flag("solver.eta0", "First step size. [default: chosen on the first rows]"),
    "init": Flag("solver.init", "Model to continue from."),
    "test": Flag("data.test", "Data to evaluate on afterwards; may be repeated.", repeated=True),
    "format": Flag("data.format", f"{', '.join(FORMATS)}. [default: auto]", FORMATS),
    "label": Flag("data.label", "Column of the label. [default: one called label, target, click, ...]"),
    "weight": Flag("data.weight", "Column with the weight of each row."),
    "columns": Flag("data.columns", "Names of the columns of CSV without a header, such as click,ad,user."),
    "delimiter": Flag("data.delimiter", "What stands between the fields of CSV. [default: found in the data]"),
    "classes": Flag("data.classes", "The class labels, such as 1,2; the first is negative."),
    "class_weights": Flag("data.class_weights", "balanced, or weights by class such as 1:5,-1:1.", ("balanced",)),
    "multiclass": Flag("multiclass", "More than two classes: ova or crammer_singer. [default: ova]",
                       ("auto", "ova", "crammer_singer")),
    "calibrate": Flag("calibration", "Probabilities: platt, isotonic or none. [default: platt, if free of cost]",
                      ("auto", "none", "platt", "isotonic")),
    "threshold": Flag("threshold.by", "Decide where f1 is largest, or cost is least. [default: none]",
                      ("none", "f1", "cost")),
    "costs": Flag("threshold.costs", "Costs of mistakes by class, such as 1:10,-1:1, for --threshold cost."),
    "shuffle": Flag("data.shuffle", "Rows in a seeded shuffle buffer; 0 keeps the order in all passes."),
    "limit": Flag("data.limit", "Only the first N rows."),
    "sample": Flag("data.sample", "Only this share of the rows, such as 0.1, picked at random."),
    "holdout": Flag("data.holdout", "Keep one of every N rows from learning and measure loss and error on it."),
    "early_stop": Flag("solver.early_stop", "Stop after N passes without a smaller loss on held-out rows."),
    "on_bad_row": Flag("data.on_bad_row", "raise or skip malformed rows.", ("raise", "skip")),
    "numeric": Flag("features.numeric", "Columns of numbers, used as they are; names or patterns such as I*."),
    "categorical": Flag("features.categorical", "Columns each value of which is a feature, such as ad,user."),
    "text": Flag("features.text", "Columns of texts, whose words are features."),
    "log1p": Flag("features.log1p", "Columns of numbers to take the logarithm of, such as I*."),
    "ignore": Flag("features.ignore", "Columns that are no features."),
    "interactions": Flag("features.interactions", "Columns that count together, such as ad*user,ad*user*hour."),
    "names": Flag("features.names", "Keep the names of hashed features, for inspect.", switch=True),
    "hash_bits": Flag("features.hash_bits", "Fold the features into 2^N weights. [default: 22 for tables]"),
    "dim": Flag("features.dim", "Number of weights. [default: grows with the data]"),
    "scale": Flag("features.scale", "Bring features to one size: none, maxabs or standard. [default: by itself, where "
                  "a solver learns row by row]", ("auto", "none", "maxabs", "standard")),
    "map": Flag("map.kind", "Learn as a kernel machine does: rbf, or a map such as nystroem. [default: none]", MAPS),
    "map_size": Flag("map.size", "Grids, landmarks or waves of the map. [default: 256, 1000 or 2048]"),
    "gamma": Flag("map.gamma", "How fast nearness fades with distance. [default: by the distances of rows]"),
    "degree": Flag("map.degree", "Degree of --map polynomial. [default: 2]"),
    "bias": Flag("bias.kind", "penalised, free or none. [default: penalised]", ("penalised", "free", "none")),
    "memory": Flag("run.memory", "Ceiling for memory, such as 256MB or 2GB. [default: 1GB]"),
    "threads": Flag("run.threads", "Threads that parse. [default: one for each core]"),
    "seed": Flag("run.seed", "Seed of everything random. [default: 0]"),
    "cache": Flag("run.cache", "Parsed rows for later passes: auto, off, or a path to keep them at."),
    "cluster": Flag("cluster.at", "Work on a Dask cluster: tcp://scheduler:8786, or local:4 for four processes."),
    "shards": Flag("cluster.shards", "Parts of the data on a cluster. [default: one for each of its threads]"),
    "checkpoint": Flag("checkpoint.dir", "Directory or url for checkpoints, from which --resume goes on."),
    "every": Flag("checkpoint.every", "Time between two checkpoints, such as 30s or 10m. [default: 60s]"),
    "every_rows": Flag("checkpoint.every_rows", "Rows between two checkpoints, if that comes first."),
    "resume": Flag("checkpoint.resume", "Go on from the last checkpoint, or begin if there is none yet.", switch=True),
}  # fmt: skip

OF_PASSES = (
    "solver",
    "c",
    "path",
    "passes",
    "tol",
    "time",
    "test",
    "shuffle",
    "limit",
    "holdout",
    "early_stop",
    "cache",
    "cluster",
    "shards",
    "report",
)
FOLLOW_FLAGS = {
    "output": FLAGS["output"]._replace(help="Where to keep the model, always whole. [default: model.safetensors]"),
    "until_idle": Flag("follow.until_idle", "End when all is read and no line comes any more.", switch=True),
    "stop_after": Flag("follow.stop_after", "End after N rows, those before a restart included."),
    "forget": Flag("follow.forget", "What is older than about N rows fades, for targets that move."),
    "window": Flag("follow.window", "Recent rows over which loss, AUC, ... are measured. [default: 100000]"),
    "metrics": Flag("follow.metrics", "Port of this machine on which Prometheus can read how it goes."),
    "rotate_wait": Flag("follow.rotate_wait", "How long a renamed log may still get lines. [default: 5s]"),
    "compressed": Flag("follow.compressed", "Read compressed rotated files too, but no line twice.", switch=True),
    "solver": Flag("solver.name", f"{', '.join((*ONLINE, *KERNEL))}. [default: asgd]", (*ONLINE, *KERNEL)),
    **{name: flag for name, flag in FLAGS.items() if name not in (*OF_PASSES, "cache", "output", "resume")},
    "report": FLAGS["report"]._replace(help="Where to write a report, an HTML page, anew with each model."),
    "checkpoint": FLAGS["checkpoint"]._replace(help="Where checkpoints are kept. [default: beside the model]"),
    "every": Flag("checkpoint.every", "Time between two checkpoints, and models, such as 30s. [default: 30s]"),
    "on_bad_row": FLAGS["on_bad_row"]._replace(help="raise or skip malformed rows. [default: skip]"),
    "format": FLAGS["format"]._replace(help=f"auto, {', '.join(LINES)}. [default: auto]", words=("auto", *LINES)),
}

OF_ONE_RUN = ("l2", "c", "l1", "path", "solver", "loss", "init", "early_stop", "tol", "time")
TUNE_FLAGS = {
    "l2": Flag("tune.l2", "Penalties to try: a range or a list. [default: 1e-7..1e-2]"),
    "l1": Flag("tune.l1", "L1 penalties to try, each with every l2 (folos, adagrad, ftrl)."),
    "candidates": Flag("tune.candidates", "Values to try of a range. [default: 16]"),
    "solver": Flag("tune.solver", "A solver, or several such as asgd,ftrl. [default: asgd]", ONLINE),
    "loss": Flag("tune.loss", "A loss, or several such as hinge,logistic. [default: squared_hinge]", LOSSES),
    "by": Flag("tune.by", "What the best has least of: loss or error. [default: loss]", ("loss", "error")),
    **{name: flag for name, flag in FLAGS.items() if name not in OF_ONE_RUN},
}
TUNE_FLAGS["holdout"] = FLAGS["holdout"]._replace(help="One of every N rows decides which is best. [default: 10]")


def with_flags(flags: dict[str, Flag]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of the table; it receives those that were used as `given`."""

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command)
        kept = [parameter for name, parameter in own.parameters.items() if name != "given"]

        @wraps(command)
        def run(**arguments: Any) -> None:
            given = {name: arguments.pop(name) for name in flags}
            command(given={name: value for name, value in given.items() if value is not None}, **arguments)

        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in kept]
        parameters[1:1] = [flag.parameter(name) for name, flag in flags.items()]
        run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return wrap


def settings_from(inputs: list[str], given: dict[str, Any], sets: list[str], flags: dict[str, Flag]) -> "Settings":
    """Settings from config files, data files and flags."""
    from streamsvm.config import expand, load_settings
    from streamsvm.io.overwriting import refuse_overwriting
    from streamsvm.io.parts import Access, use_access

    files = [name for name in inputs if redact_url(name).lower().endswith((".yaml", ".yml"))]
    data = [name for name in inputs if name not in files]
    overrides: dict[str, object] = {flags[name].setting: value for name, value in given.items()}
    if "data.classes" in overrides:
        overrides["data.classes"] = [_number_or_text(name) for name in str(overrides["data.classes"]).split(",")]
    for by_class in ("data.class_weights", "threshold.costs"):
        if ":" in str(overrides.get(by_class, "")):
            pairs = [pair.rpartition(":") for pair in str(overrides[by_class]).split(",")]
            overrides[by_class] = {label.strip(): weight for label, _, weight in pairs}
    if data:
        overrides["data.train"] = data
    spelled = {flag.setting: (flag.spelled or (f"--{name.replace('_', '-')}",))[0] for name, flag in flags.items()}
    settings = load_settings(files, overrides=overrides, flags=spelled, sets=sets, fetch=fetched)
    use_access(Access(settings.storage_options or {}, expand, settings.data.retries, settings.run.memory))
    if files:
        refuse_overwriting(settings.outputs(), [("the settings (CONFIG.yaml)", file) for file in files], expand)
    return settings


def fetched(url: str) -> bytes:
    """The content of a settings file in a bucket, or on a web server."""
    from streamsvm.config import expand
    from streamsvm.io.files import read_whole

    return read_whole(expand(url))


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip()
