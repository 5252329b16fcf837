"""The commands. Heavy modules are imported when a command runs, so that `--help` and config errors come at once."""

import json
import sys
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamsvm import __version__
from streamsvm.cli.config_commands import config_app
from streamsvm.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from streamsvm.config import Settings
    from streamsvm.model import Model

SHORTEST = """\
streamsvm trains linear support vector machines on data that does not fit in memory.

  streamsvm train data.svm.gz -o model.safetensors       learn from LIBSVM text, in one pass
  streamsvm evaluate model.safetensors test.svm.gz       how good it is
  streamsvm predict model.safetensors new.svm            one label a line

streamsvm --help lists all commands; streamsvm COMMAND --help has examples."""

app = typer.Typer(
    help="Linear support vector machines trained on streams that do not fit in memory.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.add_typer(config_app, name="config")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"streamsvm {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(SHORTEST)


def _complete(*words: str) -> Any:
    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


# Flags of `train` and the settings they stand for.
FLAGS = {
    "output": "output.model",
    "solver": "solver.name",
    "loss": "loss",
    "l2": "penalty.l2",
    "c": "penalty.C",
    "passes": "solver.passes",
    "eta0": "solver.eta0",
    "init": "solver.init",
    "test": "data.test",
    "format": "data.format",
    "classes": "data.classes",
    "shuffle": "data.shuffle",
    "limit": "data.limit",
    "on_bad_row": "data.on_bad_row",
    "hash_bits": "features.hash_bits",
    "dim": "features.dim",
    "bias": "bias.kind",
    "memory": "run.memory",
    "threads": "run.threads",
    "seed": "run.seed",
    "cache": "run.cache",
}

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
Memory = Annotated[str | None, typer.Option(help="Ceiling for memory, such as 256MB or 2GB. [default: 1GB]")]
Threads = Annotated[str | None, typer.Option(help="Threads that parse. [default: one for each core]")]
Format = Annotated[str | None, typer.Option(help="auto or libsvm.", autocompletion=_complete("auto", "libsvm"))]
OnBadRow = Annotated[
    str | None, typer.Option(help="raise or skip malformed rows.", autocompletion=_complete("raise", "skip"))
]
Sources = Annotated[list[str], typer.Argument(help="Paths, globs, directories, urls, or - for standard input.")]
ModelFile = Annotated[str, typer.Argument(help="A model file.")]


@app.command(
    epilog="Example: streamsvm train 'data/part-*.svm.gz' -o model.safetensors --test test.svm.gz --passes 5",
)
def train(
    inputs: Annotated[
        list[str], typer.Argument(metavar="CONFIG.yaml | DATA...", help="Config files, or data to train on.")
    ],
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Where to write the model. [default: model.safetensors]")
    ] = None,
    solver: Annotated[
        str | None,
        typer.Option(help="asgd, sgd or pegasos. [default: asgd]", autocompletion=_complete("asgd", "sgd", "pegasos")),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="squared_hinge, hinge, smoothed_hinge or logistic. [default: squared_hinge]",
            autocompletion=_complete("squared_hinge", "hinge", "smoothed_hinge", "logistic"),
        ),
    ] = None,
    l2: Annotated[str | None, typer.Option(help="Penalty against the mean loss. [default: 1e-6]")] = None,
    c: Annotated[
        str | None, typer.Option("--C", help="LIBLINEAR's scale of the penalty, instead of --l2: l2 = 1/(C rows).")
    ] = None,
    passes: Annotated[str | None, typer.Option(help="Sweeps over the data. [default: 1]")] = None,
    eta0: Annotated[str | None, typer.Option(help="First step size. [default: chosen on the first rows]")] = None,
    init: Annotated[str | None, typer.Option(help="Model to continue from.")] = None,
    test: Annotated[list[str] | None, typer.Option(help="Data to evaluate on afterwards; may be repeated.")] = None,
    format: Format = None,
    classes: Annotated[str | None, typer.Option(help="The class labels, such as 1,2; the first is negative.")] = None,
    shuffle: Annotated[
        str | None,
        typer.Option(help="Rows in a seeded shuffle buffer; 0 keeps the order in all passes. [default: auto]"),
    ] = None,
    limit: Annotated[str | None, typer.Option(help="Only the first N rows.")] = None,
    on_bad_row: OnBadRow = None,
    hash_bits: Annotated[str | None, typer.Option(help="Fold indices into 2^N weights.")] = None,
    dim: Annotated[str | None, typer.Option(help="Number of weights. [default: grows with the data]")] = None,
    bias: Annotated[
        str | None,
        typer.Option(
            help="penalised, free or none. [default: penalised]",
            autocompletion=_complete("penalised", "free", "none"),
        ),
    ] = None,
    memory: Memory = None,
    threads: Threads = None,
    seed: Annotated[str | None, typer.Option(help="Seed of the shuffling. [default: 0]")] = None,
    cache: Annotated[
        str | None, typer.Option(help="Parsed rows for later passes: auto, off, or a path to keep them at.")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting, as in --set data.max_line=64MB; may be repeated.")
    ] = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print the settings and exit.")] = False,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but results and errors.")] = False,
) -> None:
    """Train a model, from files, urls or standard input, in one streaming pass or several."""
    given = {name: value for name, value in locals().items() if name in FLAGS and value is not None}
    from streamsvm.config import summary_lines, to_yaml

    settings = settings_from(inputs, given, sets or [])
    if print_config:
        typer.echo(to_yaml(settings), nl=False)
        return
    if not settings.data.train:
        raise ConfigError("there is no training data: name a file, or set data.train in the config")
    from streamsvm.cli.show import listener_for, summary

    if not quiet:
        print("\n".join(f"# {line}" for line in summary_lines(settings)), file=sys.stderr, flush=True)
    _say_if_compiling(quiet)
    from streamsvm.training import train as run

    listener = listener_for(as_json=as_json, quiet=quiet)
    try:
        outcome = run(settings, listener)
        listener.end()
    except KeyboardInterrupt:
        listener.close()
        print("streamsvm: interrupted; no model was written", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        listener.close()
    if as_json:
        print(json.dumps(outcome.result))
    else:
        where = outcome.result["model"] or "not saved"
        model = f"{where} ({outcome.model.dim:,} weights, classes {_class_names(outcome.model)})"
        print(summary(outcome.result, model))


def settings_from(inputs: list[str], given: dict[str, Any], sets: list[str]) -> "Settings":
    """Settings from config files, data files and flags."""
    from streamsvm.config import load_settings

    files = [name for name in inputs if name.lower().endswith((".yaml", ".yml"))]
    data = [name for name in inputs if name not in files]
    overrides: dict[str, object] = {FLAGS[name]: value for name, value in given.items()}
    if "data.classes" in overrides:
        overrides["data.classes"] = [_number_or_text(name) for name in str(overrides["data.classes"]).split(",")]
    if data:
        overrides["data.train"] = data
    flags = {FLAGS[name]: "--" + ("C" if name == "c" else name.replace("_", "-")) for name in FLAGS}
    return load_settings(files, overrides=overrides, flags=flags, sets=sets)


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip()


def _say_if_compiling(quiet: bool = False) -> None:
    from streamsvm.jit import compiled_before

    if not quiet and not compiled_before():
        print("compiling kernels for this machine, once (about 10 s)", file=sys.stderr, flush=True)


def _class_names(model: "Model") -> str:
    return " and ".join(model.class_text(code) for code in range(len(model.classes)))


@app.command(epilog="Example: zcat new.svm.gz | streamsvm predict model.safetensors - > labels.txt")
def predict(
    model_file: ModelFile,
    inputs: Sources,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="File to write. [default: standard output]")
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Write scores instead of labels.")] = False,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write the probability of the second class (logistic models).")
    ] = False,
    format: Format = None,
    on_bad_row: OnBadRow = None,
    memory: Memory = None,
    threads: Threads = None,
) -> None:
    """Predict each row: one line a row, in order. Labels in the data are ignored and may be missing."""
    if scores and probabilities:
        raise ConfigError("--scores and --probabilities cannot be combined")
    settings = _reading_settings(format, on_bad_row, memory, threads)
    _say_if_compiling()
    from streamsvm.config import expand
    from streamsvm.io.files import written_atomically
    from streamsvm.model import load_model
    from streamsvm.training import make_source, test_stream

    model = load_model(expand(model_file))
    if probabilities and model.loss != "logistic":
        raise ModelError(f"{model_file}: probabilities need --loss logistic; this model was trained with {model.loss}")
    stream = test_stream(settings, make_source(settings, tuple(inputs)), model, labelled=False)
    what = "scores" if scores else "probabilities" if probabilities else "labels"
    target: Any = written_atomically(expand(output)) if output else nullcontext(sys.stdout.buffer)
    try:
        with target as out, closing(stream.in_order()) as batches:
            for batch in batches:
                out.write(model.prediction_text(batch, what))
                out.flush()
    except BrokenPipeError:
        _forget_stdout()
    if stream.tally.bad_rows:
        shown = "; ".join(stream.tally.faults)
        print(f"warning: skipped {stream.tally.bad_rows} malformed rows: {shown}", file=sys.stderr)


def _forget_stdout() -> None:
    """The reader is gone: end quietly, also when Python flushes at exit."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.command(epilog="Example: streamsvm evaluate model.safetensors test.svm.gz --json")
def evaluate(
    model_file: ModelFile,
    inputs: Sources,
    format: Format = None,
    on_bad_row: OnBadRow = None,
    memory: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Measure a model on labelled data: error, loss, AUC, confusion."""
    settings = _reading_settings(format, on_bad_row, memory, threads)
    _say_if_compiling()
    from streamsvm.config import expand
    from streamsvm.evaluate import evaluate as run
    from streamsvm.model import load_model
    from streamsvm.training import make_source, test_stream

    model = load_model(expand(model_file))
    stream = test_stream(settings, make_source(settings, tuple(inputs)), model)
    metrics = run(model, stream)
    if stream.tally.bad_rows:
        metrics["bad_rows"] = stream.tally.bad_rows
    if as_json:
        print(json.dumps(metrics))
        return
    from streamsvm.cli.show import metrics_line

    names = [model.class_text(code) for code in range(2)]
    print(metrics_line(metrics))
    print(f"\n{'true / predicted':>18} {names[0]:>12} {names[1]:>12}")
    for name, counts in zip(names, metrics["confusion"], strict=True):
        print(f"{name:>18} {counts[0]:>12,.0f} {counts[1]:>12,.0f}")
    if stream.tally.bad_rows:
        print(f"\nskipped {stream.tally.bad_rows} malformed rows: {'; '.join(stream.tally.faults)}", file=sys.stderr)


def _reading_settings(
    format: str | None, on_bad_row: str | None, memory: str | None, threads: str | None
) -> "Settings":
    given = {"format": format, "on_bad_row": on_bad_row, "memory": memory, "threads": threads}
    return settings_from([], {name: value for name, value in given.items() if value is not None}, [])


@app.command(epilog="Example: streamsvm inspect model.safetensors --top 20")
def inspect(
    file: Annotated[str, typer.Argument(help="A model or a cache.")],
    top: Annotated[int, typer.Option(help="How many of the largest weights to show.", min=0)] = 10,
    as_json: Json = False,
) -> None:
    """Show what is inside a model or a cache."""
    from streamsvm.cli.inspect import describe, render
    from streamsvm.config import expand

    found = describe(expand(file), top)
    print(json.dumps(found) if as_json else render(found))
