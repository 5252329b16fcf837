"""The settings: what can be set, what each accepts, what it defaults to. `kinds` has the kinds of values.

A setting is added by adding a field: merging, error messages, schema and template follow from it.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails

from streamsvm.config.kinds import (
    BYTES,
    LARGEST,
    SIZE,
    Buckets,
    Cache,
    Classes,
    ClassWeights,
    Columns,
    Count,
    Dates,
    Dimension,
    Duration,
    Every,
    Fraction,
    Grid,
    HashBits,
    Header,
    Interactions,
    Ngrams,
    NotNegative,
    Positive,
    Shuffle,
    Sources,
    Step,
    StorageOptions,
    Text,
    Threads,
    Whole,
    names_among,
    size_of,
)
from streamsvm.config.layers import Shape, unknown_key
from streamsvm.config.solvers import (
    DEFAULT_SOLVER,
    SOLVER_SETTINGS,
    AsgdSettings,
    AutoSettings,
    BatchSettings,
    Section,
    SolverSettings,
    solver_tree,
)
from streamsvm.config.wording import one_of, show
from streamsvm.errors import ConfigError
from streamsvm.io.urls import names_place
from streamsvm.offered import FORMATS, KERNEL, LOSSES, MAPS, ONLINE

ANY_FORMAT = ("auto", *FORMATS)
ANY_MAP = ("none", *MAPS)
MAPPED_TOL = 5e-2  # of solvers with a proof, if none is named: a map itself is no closer to its kernel
DEFAULT_L2 = 1e-6


class DataSettings(Section, title="data"):
    """Where the rows come from and how they are read."""

    train: Sources = Field(
        default=None,
        description="Training data: path, glob, directory, url or - (standard input); or a list, read in its order.",
    )
    test: Sources = Field(default=None, description="Data to evaluate on after training; written like train.")
    format: Literal[ANY_FORMAT] = Field(  # type: ignore[valid-type]
        default="auto", description="File format; auto goes by the names of the files, and by what they begin with."
    )
    label: Text | None = Field(
        default=None, description="Column of the label; null takes one that is called label, target, click, ..."
    )
    weight: Text | None = Field(default=None, description="Column with the weight of each row; null weighs all alike.")
    columns: Columns = Field(
        default=None, description="Names of the columns of CSV without a header; null calls them c1, c2, ..."
    )
    header: Header = Field(default="auto", description="Whether CSV begins with the names of its columns.")
    delimiter: Text = Field(default="auto", description="What stands between the fields of CSV: a character, or tab.")
    quote: bool = Field(default=True, description="Whether fields of CSV may stand in quotes.")
    encoding: Literal["utf-8", "bytes"] = Field(
        default="utf-8",
        description="Text of tables is UTF-8, and refused where it begins otherwise; bytes takes it as it is.",
    )
    decimal: Literal["auto", ".", ","] = Field(
        default="auto",
        description="What stands before the decimals of numbers in CSV; auto goes by the first rows, where the comma "
        "does not stand between fields.",
    )
    missing_columns: Literal["raise", "absent"] = Field(
        default="raise", description="Refuse files that lack a column, or take its values to be missing there."
    )
    on_bad_row: Literal["raise", "skip"] = Field(
        default="raise", description="Stop at a malformed row, or skip and count it."
    )
    max_bad_rows: Whole = Field(default=1000, description="With on_bad_row: skip, how many rows may be skipped.")
    classes: Classes = Field(
        default=None, description="All class labels, such as [a, b, c]; needed to learn them in a single pass."
    )
    shuffle: Shuffle = Field(
        default="auto",
        description="Rows held in a seeded shuffle buffer on the first pass; auto has none. Later passes read the "
        "cache in a new random order each; 0 keeps the order of the data in all passes.",
    )
    limit: Count | None = Field(default=None, description="Read only the first so many rows.")
    sample: Fraction | None = Field(
        default=None, description="Learn from this share of the rows, such as 0.1, picked at random by run.seed."
    )
    holdout: Every | None = Field(
        default=None, description="Keep one of every so many rows from learning, to measure loss and error on it."
    )
    class_weights: ClassWeights = Field(
        default=None,
        description="Weights of the classes' rows: balanced (rare classes count as much as frequent ones), or by "
        "class, such as {1: 5, -1: 1}.",
    )
    rows: Count | None = Field(
        default=None, description="Number of training rows, if known; penalty.C needs it on a stream."
    )
    max_expansion: Count = Field(
        default=1000, description="Bytes of text that a byte of a compressed file may become, beyond the first GB."
    )
    max_line: Annotated[int, size_of(1), BYTES, SIZE] = Field(
        default=16 * 10**6, description="Longest line accepted, such as 16MB."
    )
    retries: Whole = Field(
        default=5, description="How often to try again when a remote object breaks off and not a byte more comes."
    )


class FeatureSettings(Section, title="features"):
    """What becomes of the columns of a table, and how many weights there are. Names may be patterns such as I*."""

    numeric: Columns = Field(default=None, description="Columns whose numbers are used as they are.")
    categorical: Columns = Field(default=None, description="Columns each value of which is a feature of its own.")
    text: Columns = Field(default=None, description="Columns of texts: their words are features.")
    ignore: Columns = Field(default=None, description="Columns that are no features.")
    log1p: Columns = Field(default=None, description="Columns of numbers, such as counts, to take the logarithm of.")
    bucketize: Buckets = Field(
        default=None, description="Columns of numbers to cut into categories, such as {age: [18, 30, 50]}."
    )
    dates: Dates = Field(
        default=None,
        description="What is taken of columns of dates, such as {when: [hour, weekday, day, month, time]}, of which "
        "time is a number; by itself a column has the first four.",
    )
    interactions: Interactions = Field(
        default=None,
        description="Pairs and triples of columns, or of namespaces of VW text, whose values together are features, "
        "such as [[ad, user]].",
    )
    ngrams: Ngrams = Field(default=1, description="Also take 2 (or 3) neighbouring words of a text as a feature.")
    names: bool = Field(
        default=False, description="Keep the names of hashed features in a file beside the model, for inspect."
    )
    hash_bits: HashBits | None = Field(
        default=None,
        description="Fold the features into 2^hash_bits weights. null: 22 for columns and names, for indices all.",
    )
    missing: Literal["indicator", "zero"] = Field(
        default="indicator",
        description="A missing number of a table is a feature of its own, or as good as zero.",
    )
    dim: Dimension | None = Field(default=None, description="Number of weights; null grows with the largest index.")
    scale: Literal["auto", "none", "maxabs", "standard"] = Field(
        default="auto",
        description="Divide features by their largest absolute value or standard deviation; part of the model. auto: "
        "solvers that learn row by row standardise dense features and bring others of another size to the usual one, "
        "by the first rows and on; exact solvers scale nothing; where there is a map by their range.",
    )

    @property
    def given_width(self) -> int:
        """The number of weights, where it does not grow with the data; else 0."""
        return self.dim or (1 << self.hash_bits if self.hash_bits else 0)

    @model_validator(mode="after")
    def _one_way(self) -> "FeatureSettings":
        if self.hash_bits is not None and self.dim is not None:
            raise ValueError("hash_bits and dim cannot be combined")
        return self


class MapSettings(Section, title="map"):
    """A map of the rows, from which a linear model learns what a kernel would; made from a sample of the rows."""

    short = "kind"
    kind: Literal[ANY_MAP] = Field(  # type: ignore[valid-type]
        default="none",
        description="rbf: whichever of bins (few features in a row) and nystroem (many) suits the rows.",
    )
    size: Count | None = Field(
        default=None,
        description="Grids of bins (null: 256), landmarks (1000), waves of fourier (2048, fourier_fast 4096), or the "
        "most products that a polynomial may have before they are hashed (4096).",
    )
    gamma: Step = Field(
        default="auto", description="How fast nearness fades with distance; auto goes by the distances between rows."
    )
    degree: Annotated[int, Field(ge=2, le=4)] = Field(default=2, description="Of a polynomial.")
    coef0: NotNegative = Field(default=1.0, description="Of a polynomial (gamma x.y + coef0)^degree.")
    landmarks: Literal["kmeans", "sample"] = Field(
        default="kmeans", description="Landmarks are rows of a sample, or the means of the rows around them."
    )


class PenaltySettings(Section, title="penalty"):
    """The weight of the penalty against that of the loss, in one of two customary scales."""

    l2: NotNegative | None = Field(
        default=None,
        description=f"Weight of the squared norm against the mean loss; {DEFAULT_L2:g} if nothing else is set. With "
        "a map of rows that can be counted C is set instead: to 1 for bins, else to 3.",
    )
    C: Positive | None = Field(
        default=None, description="Weight of the summed loss against the squared norm: l2 = 1 / (C * rows)."
    )
    l1: NotNegative | None = Field(
        default=None, description="Weight of the sum of absolute weights, which makes many of them exactly zero."
    )
    path: Grid = Field(
        default=None,
        description="Several values of l2, such as 1e-6..1e-2 or a list, each learned from where the one before ended; "
        "the best on held-out rows (data.holdout) is kept.",
    )

    @property
    def is_default(self) -> bool:
        """Nothing was chosen, so DEFAULT_L2 applies."""
        return self.l2 is None and self.C is None and not self.l1 and self.path is None

    @property
    def kind(self) -> str:
        """What a solver must be able to minimise."""
        squared = self.C is not None or self.is_default or bool(self.l2) or self.path is not None
        return ("elastic_net" if squared else "l1") if self.l1 else "l2" if squared else "none"

    @model_validator(mode="after")
    def _one_scale(self) -> "PenaltySettings":
        if self.l2 is not None and self.C is not None:
            raise ValueError("l2 and C cannot be combined")
        if self.path is not None and (self.l2 is not None or self.C is not None):
            raise ValueError("path takes the place of l2 and C, and cannot be combined with them")
        return self


class BiasSettings(Section, title="bias"):
    """The constant term of the score."""

    short = "kind"
    kind: Literal["penalised", "free", "none"] = Field(
        default="penalised", description="A bias inside the penalty, outside of it, or no bias."
    )
    scale: Positive = Field(default=1.0, description="Value of the constant feature that the bias multiplies.")


class ThresholdSettings(Section, title="threshold"):
    """Where the decision between classes lies; chosen on held-out rows (data.holdout), or on rows not yet learned."""

    short = "by"
    by: Literal["none", "f1", "cost"] = Field(
        default="none",
        description="Put it where F1 is largest (the mean over the classes, if there are more than two), or where "
        "mistakes cost least; none keeps it where the scores say.",
    )
    costs: ClassWeights = Field(
        default=None,
        description="With by: cost, what it costs to give a row of a class another one, such as {1: 10, -1: 1}.",
    )


class RunSettings(Section, title="run"):
    """What the run may use of the machine; none of it but the seed changes the result."""

    memory: Annotated[int, size_of(32 * 10**6), BYTES, SIZE] = Field(
        default=10**9, description="Ceiling for memory, such as 256MB, 1.5GB or 1GiB."
    )
    threads: Threads = Field(default="auto", description="Threads that parse; auto takes what the machine has.")
    seed: Whole = Field(default=0, description="Seed of everything random.")
    objective: bool = Field(
        default=False,
        description="Read the training data once more at the end for the objective, and the gap if a bound is known.",
    )
    cache: Cache = Field(
        default="auto", description="Parsed rows for later passes: auto (temporary), off, or a path to keep them at."
    )


class OutputSettings(Section, title="output"):
    """What is written at the end."""

    model: Text | None = Field(default="model.safetensors", description="File for the trained model; null keeps none.")
    report: Text | None = Field(
        default=None, description="File for a report of the run, an HTML page with curves and tables; null writes none."
    )


class CheckpointSettings(Section, title="checkpoint"):
    """How a run notes where it stands, so that it can go on after it was killed; none of it changes the result."""

    short = "dir"
    dir: Text | None = Field(
        default=None, description="Directory or url for checkpoints, of which the last two are kept; null keeps none."
    )
    every: Duration = Field(
        default=60.0, description="Time between two checkpoints, such as 30s, 10m or 1h; null goes by rows alone."
    )
    every_rows: Count | None = Field(default=None, description="Rows between two checkpoints, if that comes first.")
    patience: Duration = Field(
        default=3600.0,
        description="How long the run goes on while no checkpoint can be written, such as on a full disk; null for "
        "ever, 0 not at all.",
    )
    resume: bool = Field(
        default=False, description="Go on from the last checkpoint; from the beginning if there is none yet."
    )


class ClusterSettings(Section, title="cluster"):
    """Workers of a Dask cluster that read and learn, each its own shards of the data."""

    short = "at"
    at: Text | None = Field(
        default=None,
        description="Where the cluster is: its scheduler, such as tcp://host:8786, or local:4 for four processes of "
        "this machine; null works without one.",
    )
    shards: Count | None = Field(
        default=None,
        description="Parts into which the data is cut; null takes one for each thread of the cluster. The same shards "
        "and seed give the same result, however many workers there are.",
    )
    sweeps: Count = Field(default=2, description="Passes over its rows that a shard makes in each round of solver dcd.")
    storage: Text | None = Field(
        default=None,
        description="Directory or url that all workers see, for the dual variables of solver dcd; null takes "
        "checkpoint.dir, or with local:N a temporary one.",
    )
    timeout: Duration = Field(
        default=600.0,
        description="How long a worker may be silent before its shards go to others, such as 30s; null for ever.",
    )


class FollowSettings(Section, title="follow"):
    """How `streamsvm follow` reads logs that are still being written, and how it learns from them."""

    until_idle: bool = Field(
        default=False, description="End when everything has been read, and no line has come for the time of idle."
    )
    idle: Duration = Field(default=5.0, description="Time without a new line after which logs count as idle.")
    stop_after: Count | None = Field(
        default=None, description="End after so many rows, those before a restart included."
    )
    rotate_wait: Duration = Field(
        default=5.0, description="How long a renamed log may still get lines before the next file is begun."
    )
    poll: Duration = Field(default=0.25, description="Time between two looks at logs to which nothing happens.")
    compressed: bool = Field(
        default=False,
        description="Read rotated files that are compressed too, if their lines were not learned before.",
    )
    window: Count = Field(
        default=100_000, description="The recent rows over which loss, AUC and calibration are measured."
    )
    forget: Count | None = Field(
        default=None,
        description="Rows after which what was learned fades, for targets that move; null learns from all rows alike.",
    )
    metrics: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        default=None, description="Port of this machine on which Prometheus can read how it goes; 0 takes a free one."
    )


class TuneSettings(Section, title="tune"):
    """What `streamsvm tune` tries, all of it side by side in one reading of the data."""

    l2: Grid = Field(default="1e-07..0.01", description="Values of penalty.l2: a range, or a list.")
    l1: Grid = Field(default=None, description="Values of penalty.l1, each with every l2; null keeps penalty.l1.")
    candidates: Count = Field(default=16, description="How many values of a range to try, evenly on a log scale.")
    solver: names_among(ONLINE) = Field(  # type: ignore[valid-type]
        default=None, description="Solvers to compare; null takes solver.name alone."
    )
    loss: names_among(LOSSES) = Field(  # type: ignore[valid-type]
        default=None, description="Losses to compare; null takes loss alone."
    )
    by: Literal["auto", "loss", "error"] = Field(
        default="auto", description="What the best has least of; auto takes loss, or error if losses are compared."
    )


class Settings(Section, title="streamsvm settings"):
    """Everything a training run needs to know."""

    data: DataSettings = Field(default=DataSettings(), description="Where the rows come from and how they are read.")
    features: FeatureSettings = Field(default=FeatureSettings(), description="How many weights there are.")
    map: MapSettings = Field(default=MapSettings(), description="A map of the rows, or in short its kind.")
    loss: Literal[LOSSES] = Field(  # type: ignore[valid-type]
        default="squared_hinge", description="What a wrong or uncertain score costs."
    )
    multiclass: Literal["auto", "ova", "crammer_singer"] = Field(
        default="auto",
        description="How more than two classes are learned: each against all others (ova; what auto takes), or all at "
        "once by the margin to the next best (crammer_singer). ova on a stream: whichever classes come.",
    )
    calibration: Literal["auto", "none", "platt", "isotonic"] = Field(
        default="auto",
        description="How scores become probabilities: a sigmoid (platt) or any rising curve (isotonic), learned from "
        "rows before they are learned from, or from held-out rows. auto: platt where that costs nothing.",
    )
    threshold: ThresholdSettings = Field(
        default=ThresholdSettings(), description="Where the decision lies, or in short what it is chosen by."
    )
    penalty: PenaltySettings = Field(default=PenaltySettings(), description="Penalty on large weights: l2 or C, l1.")
    bias: BiasSettings = Field(default=BiasSettings(), description="The constant term, or in short its kind.")
    solver: Annotated[
        Annotated[SolverSettings, Field(discriminator="name")],
        BeforeValidator(solver_tree),
    ] = Field(default=AsgdSettings(), description="The algorithm and its settings, or in short its name.")
    run: RunSettings = Field(default=RunSettings(), description="What the run may use of the machine.")
    output: OutputSettings = Field(default=OutputSettings(), description="What is written at the end.")
    checkpoint: CheckpointSettings = Field(
        default=CheckpointSettings(), description="How a run can go on after a kill, or in short the directory."
    )
    cluster: ClusterSettings = Field(
        default=ClusterSettings(), description="A Dask cluster to work on, or in short where it is."
    )
    tune: TuneSettings = Field(default=TuneSettings(), description="What streamsvm tune tries.")
    follow: FollowSettings = Field(default=FollowSettings(), description="How streamsvm follow follows logs.")
    storage_options: StorageOptions = Field(
        default=None,
        repr=False,
        description="Options for the file systems of urls, by protocol, such as {s3: {anon: true}}; secrets as "
        "references to the environment, such as ${SECRET}. Never printed, and never stored.",
    )

    @property
    def multiclass_rule(self) -> str:
        """How more than two classes are learned."""
        return "ova" if self.multiclass == "auto" else self.multiclass

    def outputs(self) -> list[tuple[str, str]]:
        """What a run writes: what it is, and where."""
        output, cache = self.output, self.run.cache
        named = names_place(output.model) if output.model and self.features.names else None
        found = {
            "the model (output.model)": output.model,
            "the names of features (features.names)": named,
            "the report (output.report)": output.report,
            "the cache (run.cache)": None if cache in ("auto", "off") else cache,
            "the directory of checkpoints (checkpoint.dir)": self.checkpoint.dir,
        }
        return [(what, url) for what, url in found.items() if url]

    def inputs(self) -> list[tuple[str, str]]:
        """What a run reads: what it is, and where."""
        found = [("the training data (data.train)", url) for url in self.data.train or ()]
        found += [("the test data (data.test)", url) for url in self.data.test or ()]
        init = self.solver.init
        return [*found, ("the model to begin with (solver.init)", init)] if init else found

    def refuse_cluster(self, command: str) -> None:
        """ConfigError if a command that works on one machine is to work on a cluster."""
        if self.cluster.at is not None:
            raise ConfigError(
                f"cluster.at: {command} works on one machine; train, tune, evaluate and predict may have several"
            )

    @property
    def mapped(self) -> bool:
        """Whether rows go through a map, or to a kernel learner: for either they are looked at beforehand."""
        return self.map.kind != "none" or self.solver.name in KERNEL


def with_usual(settings: Settings) -> Settings:
    """What is usual in training with a map, or with a kernel learner, where nothing is said of it."""
    chosen = settings.model_fields_set
    if settings.map.kind != "none" and "solver" not in chosen:
        return settings.model_copy(update={"solver": AutoSettings(tol=MAPPED_TOL)})
    if settings.solver.name == "kernel_pegasos" and "loss" not in chosen:  # others are steep, and first steps long
        return settings.model_copy(update={"loss": "hinge"})
    return settings


SHAPE = Shape(
    keys={
        name: tuple(dict.fromkeys(key for model in SOLVER_SETTINGS.values() for key in model.model_fields))
        if name == "solver"
        else tuple(getattr(field.annotation, "model_fields", ()))
        for name, field in Settings.model_fields.items()
    },
    short={"bias": "kind", "checkpoint": "dir", "map": "kind", "solver": "name", "threshold": "by"},
    exclusive=(("penalty", "l2", "C"), ("features", "hash_bits", "dim")),
    variants={name: tuple(model.model_fields) for name, model in SOLVER_SETTINGS.items()},
    default_variant=DEFAULT_SOLVER,
    foreign={
        **dict.fromkeys(("lambda", "alpha", "reg", "regularization", "weight_decay"), "penalty.l2"),
        **dict.fromkeys(("class_weight", "weights"), "data.class_weights"),
        **dict.fromkeys(("early_stopping", "patience"), "solver.early_stop"),
        **dict.fromkeys(("validation_fraction", "holdout_period"), "data.holdout"),
        **dict.fromkeys(("scaling", "normalize", "standardize"), "features.scale"),
        **dict.fromkeys(("l1_ratio", "sparsity"), "penalty.l1"),
        **dict.fromkeys(("lr", "learning_rate", "step_size", "eta"), "solver.eta0"),
        **dict.fromkeys(("tolerance", "epsilon", "eps", "stopping_criterion"), "solver.tol"),
        **dict.fromkeys(("max_time", "time_limit", "timeout"), "solver.time"),
        **dict.fromkeys(("epochs", "max_iter", "iterations", "n_iter"), "solver.passes"),
        **dict.fromkeys(("algorithm", "optimizer", "method"), "solver.name"),
        **dict.fromkeys(("n_jobs", "workers", "num_threads"), "run.threads"),
        **dict.fromkeys(("random_state", "random_seed"), "run.seed"),
        **dict.fromkeys(("intercept", "fit_intercept"), "bias.kind"),
        **dict.fromkeys(("input", "files", "path", "train_data"), "data.train"),
        **dict.fromkeys(("test_data", "validation"), "data.test"),
        **dict.fromkeys(("labels", "n_classes"), "data.classes"),
        **dict.fromkeys(("bits", "bit_precision"), "features.hash_bits"),
        **dict.fromkeys(("quadratic", "cubic", "crosses", "crossed"), "features.interactions"),
        **dict.fromkeys(("cat", "categories", "categorical_columns", "string"), "features.categorical"),
        **dict.fromkeys(("drop", "exclude", "skip_columns"), "features.ignore"),
        **dict.fromkeys(("target", "label_column", "y"), "data.label"),
        **dict.fromkeys(("sample_weight", "weight_column", "importance"), "data.weight"),
        **dict.fromkeys(("sep", "separator"), "data.delimiter"),
        **dict.fromkeys(("n_features", "num_features"), "features.dim"),
        **dict.fromkeys(("max_memory", "memory_limit"), "run.memory"),
        **dict.fromkeys(("checkpoint_dir", "save_dir", "snapshot"), "checkpoint.dir"),
        **dict.fromkeys(("interval", "save_every", "save_steps"), "checkpoint.every"),
        **dict.fromkeys(("save_resume", "resume_from"), "checkpoint.resume"),
        **dict.fromkeys(("multi_class", "strategy"), "multiclass"),
        **dict.fromkeys(("probability", "calibrate", "calibrator"), "calibration"),
        **dict.fromkeys(("cutoff", "decision_threshold"), "threshold.by"),
        **dict.fromkeys(("html", "html_report", "plots"), "output.report"),
        **dict.fromkeys(("max_retries", "attempts"), "data.retries"),
        **dict.fromkeys(("credentials", "filesystem_options", "fsspec"), "storage_options"),
        **dict.fromkeys(("kernel", "feature_map", "kernel_map", "rff", "rbf"), "map.kind"),
        **dict.fromkeys(("n_components", "components", "grids"), "map.size"),
        "loss_function": "loss",
    },
)

_WORDS = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    "int_parsing_size": f"must be at most {LARGEST}",
    "finite_number": "must be a finite number",
    "string_type": "must be text (quotes make it text)",
    "string_unicode": "must be valid text",
    "string_too_short": "must not be empty",
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
}


def check(tree: Mapping[str, Any]) -> tuple[Settings, list[tuple[tuple[str | int, ...], str]]]:
    """The settings in a tree of plain values, and what is wrong with it as (key path, plain English)."""
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as error:
        return Settings(), [_explain(details) for details in error.errors(include_url=False)]
    return settings, _contradictions(settings)


def _contradictions(settings: Settings) -> list[tuple[tuple[str | int, ...], str]]:
    """What is wrong although every value by itself is right."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    solver, kind = with_usual(settings).solver, settings.penalty.kind
    if kind not in solver.penalties:
        able = ", ".join(name for name, other in SOLVER_SETTINGS.items() if kind in other.penalties)
        wish = "have an L1 penalty" if settings.penalty.l1 else "go without penalty.l2"
        key = "l1" if settings.penalty.l1 else "l2"
        found.append((("penalty", key), f"solver {solver.name} cannot {wish}; solvers that can: {able}"))
    for wish, able, what in (("loss", "losses", "learn loss"), ("bias", "biases", "have bias")):
        chosen = settings.loss if wish == "loss" else settings.bias.kind
        if chosen not in getattr(solver, able):
            others = ", ".join(name for name, other in SOLVER_SETTINGS.items() if chosen in getattr(other, able))
            ways = " or ".join(getattr(solver, able))
            found.append(
                ((wish,), f"solver {solver.name} cannot {what} {chosen}: use {ways}, or one of the solvers {others}")
            )
    if solver.name in KERNEL and settings.map.kind != "none":
        found.append((("map", "kind"), f"solver {solver.name} has a kernel of its own: leave out map, or use another"))
    found += _wrong_for_classes(settings)
    if isinstance(solver, BatchSettings) and settings.run.cache == "off":
        found.append((("run", "cache"), f"solver {solver.name} reads the data many times, and needs the cache"))
    if settings.penalty.path is not None and not isinstance(solver, BatchSettings):
        able = ", ".join(name for name, other in SOLVER_SETTINGS.items() if issubclass(other, BatchSettings))
        found.append(
            (("penalty", "path"), f"solver {solver.name} cannot follow a path: use streamsvm tune, or one of {able}")
        )
    elif settings.penalty.path is not None and not settings.data.holdout:
        found.append((("penalty", "path"), "needs held-out rows to choose by: set data.holdout (--holdout 10)"))
    if solver.early_stop and not settings.data.holdout:
        found.append((("solver", "early_stop"), "needs held-out rows: set data.holdout (--holdout 10)"))
    if settings.threshold.by == "cost" and not isinstance(settings.threshold.costs, Mapping):
        found.append((("threshold", "costs"), "needs the costs of mistakes by class, such as --costs 1:10,-1:1"))
    if settings.checkpoint.resume and settings.checkpoint.dir is None:
        found.append((("checkpoint", "resume"), "needs the directory of the checkpoints: --checkpoint DIR"))
    return found


def _wrong_for_classes(settings: Settings) -> list[tuple[tuple[str | int, ...], str]]:
    """What cannot be had with more than two classes."""
    solver, rule = settings.solver, settings.multiclass_rule
    wanted = settings.multiclass != "auto" or len(settings.data.classes or ()) > 2
    if wanted and rule not in solver.rules:
        able = ", ".join(name for name, other in SOLVER_SETTINGS.items() if rule in other.rules)
        what = "more than two classes" if rule == "ova" else "classes by crammer_singer"
        return [(("multiclass",), f"solver {solver.name} cannot learn {what}; solvers that can: {able}")]
    if rule == "crammer_singer" and isinstance(solver, BatchSettings) and settings.loss != "hinge":
        return [(("loss",), f"solver {solver.name} with crammer_singer has the hinge loss: use --loss hinge")]
    return []


def _explain(error: ErrorDetails) -> tuple[tuple[str | int, ...], str]:
    path, kind, given, context = error["loc"], error["type"], error["input"], error.get("ctx", {})
    variant = None
    if path[:1] == ("solver",) and len(path) > 1:  # pydantic puts the solver's name into the path of its keys
        variant, path = str(path[1]), ("solver", *path[2:])
    if kind == "extra_forbidden":
        return path, unknown_key(path, variant, SHAPE)
    if kind == "union_tag_invalid":
        return (*path, "name"), one_of(given["name"], SOLVER_SETTINGS)
    if kind == "literal_error":
        return path, one_of(given, re.findall(r"'([^']+)'", context["expected"]))
    message = str(context["error"]) if kind == "value_error" else _WORDS.get(kind, error["msg"]).format(**context)
    return path, message if "(got " in message else f"{message} (got {show(given)})"


class _Untitled(GenerateJsonSchema):
    """Without the titles made from key names, which only repeat them."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a settings file, for editors; a section may be empty, some a single word."""
    found = Settings.model_json_schema(schema_generator=_Untitled)
    for name, model in SOLVER_SETTINGS.items():
        if name != DEFAULT_SOLVER:
            found["$defs"][model.__name__]["required"] = ["name"]
    words: dict[str, dict[str, Any]] = {
        "solver": {"enum": list(SOLVER_SETTINGS)},
        "bias": {"enum": list(found["$defs"]["BiasSettings"]["properties"]["kind"]["enum"])},
        "map": {"enum": list(found["$defs"]["MapSettings"]["properties"]["kind"]["enum"])},
        "checkpoint": {"type": "string", "minLength": 1},
        "threshold": {"enum": list(found["$defs"]["ThresholdSettings"]["properties"]["by"]["enum"])},
    }
    for name, entry in found["properties"].items():
        if not SHAPE.keys[name]:
            continue
        kinds = entry.pop("oneOf", None) or entry.pop("allOf", None) or [{"$ref": entry.pop("$ref")}]
        entry.pop("discriminator", None)
        entry.pop("default", None)  # repeats those of the keys
        entry["description"] = Settings.model_fields[name].description
        entry["anyOf"] = [*kinds, *([words[name]] if name in words else []), {"type": "null"}]
    return {"$schema": GenerateJsonSchema.schema_dialect, **found}
