"""The commands. Heavy modules are imported when a command runs, so that `--help` and config errors come at once."""

import json
import shlex
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamsvm import __version__
from streamsvm.cli.config_commands import config_app
from streamsvm.cli.convert import EPILOG, convert
from streamsvm.cli.export import EPILOG as EXPORTS
from streamsvm.cli.export import export
from streamsvm.cli.flags import FLAGS, FORMATS, TUNE_FLAGS, complete, settings_from, with_flags
from streamsvm.cli.follow import EXAMPLES, follow
from streamsvm.cli.inspect_data import DATA_FLAGS
from streamsvm.cli.starting import printed, say_if_compiling
from streamsvm.errors import ConfigError, ModelError, SourceError
from streamsvm.offered import PLAIN

if TYPE_CHECKING:
    from streamsvm.config import Settings
    from streamsvm.evaluate import Measured
    from streamsvm.io.source import Source
    from streamsvm.model import Model
    from streamsvm.predicting import Wish
    from streamsvm.stream import Tally
    from streamsvm.training import Outcome

SHORTEST = """\
streamsvm trains support vector machines on data that does not fit in memory.

  streamsvm train data.svm.gz -o model.safetensors       learn in one pass
  streamsvm train clicks.parquet --label click           the same from a table: Parquet, CSV, JSON lines
  streamsvm follow clicks.log -o model.safetensors       learn from a log while it is written, for months
  streamsvm tune data.svm.gz -o model.safetensors        learn with many penalties at once, keep the best
  streamsvm evaluate model.safetensors test.svm.gz       how good it is
  streamsvm predict model.safetensors new.svm            one label a line

streamsvm --help lists all commands; streamsvm COMMAND --help has examples."""

UNKNOWN = ("raise", "skip")  # what becomes of rows whose class a model does not know

app = typer.Typer(
    help="Linear support vector machines trained on streams that do not fit in memory.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.add_typer(config_app, name="config")
app.command(epilog=EPILOG)(convert)
app.command(epilog=EXAMPLES)(follow)
app.command(epilog=EXPORTS)(export)


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


Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
Memory = Annotated[str | None, typer.Option(help=FLAGS["memory"].help)]
Threads = Annotated[str | None, typer.Option(help=FLAGS["threads"].help)]
Format = Annotated[str | None, typer.Option(help=FLAGS["format"].help, autocompletion=complete(*FORMATS))]
OnBadRow = Annotated[str | None, typer.Option(help=FLAGS["on_bad_row"].help, autocompletion=complete("raise", "skip"))]
Sources = Annotated[
    list[str], typer.Argument(metavar="DATA...", help="Paths, globs, directories, urls, or - for standard input.")
]
ModelFile = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A model (also one of LIBLINEAR's), a checkpoint, or a directory of checkpoints."
    ),
]
Inputs = Annotated[
    list[str], typer.Argument(metavar="CONFIG.yaml | DATA...", help="Config files, or data to train on.")
]
AtCluster = Annotated[str | None, typer.Option(help=FLAGS["cluster"].help)]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="Any setting, as in --set data.max_line=64MB; may be repeated.")
]
PrintConfig = Annotated[bool, typer.Option("--print-config", help="Print the settings and exit.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but results and errors.")]


@app.command(
    epilog="Example: streamsvm train 'data/part-*.svm.gz' -o model.safetensors --test test.svm.gz --passes 5",
)
@with_flags(FLAGS)
def train(
    inputs: Inputs,
    given: dict[str, Any],
    objective: Annotated[
        bool, typer.Option("--objective", help="Read the data once more for the objective, and a gap if one is known.")
    ] = False,
    sets: Sets = None,
    print_config: PrintConfig = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model, from files, urls or standard input, in one streaming pass or several."""
    sets = [*(sets or []), *(["run.objective=true"] if objective else [])]
    from streamsvm.config import with_usual

    settings = with_usual(settings_from(inputs, given, sets, FLAGS))
    if printed(settings, print_config, quiet, without=("tune", "follow")):
        return
    from streamsvm.cli.show import summary
    from streamsvm.training import train as run

    outcome = _listened(run, settings, as_json=as_json, quiet=quiet)
    if as_json:
        print(json.dumps(outcome.result))
    else:
        print(summary(outcome.result, _model_text(outcome)))
    _tell_report(outcome, as_json=as_json)


@app.command(
    epilog="Example: streamsvm tune data.svm.gz --l2 1e-8..1e-3 --passes 3 -o best.safetensors; "
    "streamsvm tune 's3://logs/*.svm' --cluster tcp://scheduler:8786 --passes 3 -o best.safetensors",
)
@with_flags(TUNE_FLAGS)
def tune(
    inputs: Inputs,
    given: dict[str, Any],
    sets: Sets = None,
    print_config: PrintConfig = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train many penalties (and solvers, and losses) side by side in one reading of the data, and keep the best."""
    settings = settings_from(inputs, given, sets or [], TUNE_FLAGS)
    if printed(settings, print_config, quiet, without=("penalty", "follow")):
        return
    from streamsvm.cli.show import tune_summary
    from streamsvm.tuning import tune as run

    outcome = _listened(run, settings, as_json=as_json, quiet=quiet)
    if as_json:
        print(json.dumps(outcome.result))
    else:
        print(tune_summary(outcome.result, _model_text(outcome)))
    _tell_report(outcome, as_json=as_json)


def _listened(run: Any, settings: "Settings", *, as_json: bool, quiet: bool) -> "Outcome":
    """Run with a display that is put away however the run ends; of a run that can go on, say how."""
    from streamsvm.cli.show import listener_for
    from streamsvm.interrupts import Interrupted
    from streamsvm.report.recording import Recording

    listener = listener_for(as_json=as_json, quiet=quiet)
    try:
        heard = Recording(listener, shown_command(sys.argv)) if settings.output.report else listener
        outcome: Outcome = run(settings, heard)
        listener.end()
        return outcome
    except Interrupted as stop:
        listener.close()
        kept = f"kept: {stop.kept}" if stop.kept else "no checkpoint could be written"
        print(f"streamsvm: {stop}; {kept}" if settings.checkpoint.dir else "streamsvm: interrupted", file=sys.stderr)
        if stop.kept:
            print(f"to go on: {_resume_command(sys.argv)}", file=sys.stderr)
        raise typer.Exit(128 + stop.number) from None
    except KeyboardInterrupt:
        listener.close()
        print("streamsvm: interrupted", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        listener.close()


def _resume_command(arguments: list[str]) -> str:
    """The command that goes on with the run that this one began."""
    return shown_command([*(word for word in arguments if word != "--resume"), "--resume"])


def shown_command(arguments: list[str]) -> str:
    """A command as it was typed, without its secrets."""
    from streamsvm.io.urls import redact_setting

    return shlex.join(["streamsvm", *(redact_setting(word) for word in arguments[1:])])


def _tell_report(outcome: "Outcome", *, as_json: bool) -> None:
    """Where the report is. A run that could not write it has failed, although there is a model; why was said before."""
    if outcome.result.get("report", "") is None:
        raise typer.Exit(SourceError.exit_code)
    if outcome.result.get("report") and not as_json:
        print(f"report   {outcome.result['report']}")


def _model_text(outcome: "Outcome") -> str:
    where = outcome.result["model"] or "not saved"
    model = outcome.model
    count = f"{model.dim:,} x {len(model.classes):,}" if model.many else f"{model.dim:,}"
    return f"{where} ({count} weights, classes {class_names(model)})"


def class_names(model: "Model") -> str:
    """a and b, or a, b, c, ... z"""
    names = [model.class_text(code) for code in range(len(model.classes))]
    if len(names) > 10:
        names[5:-1] = ["..."]
    return (" and " if len(names) == 2 else ", ").join(names)


@app.command(
    epilog="Example: zcat new.svm.gz | streamsvm predict model.safetensors - > labels.txt; "
    "streamsvm predict model.safetensors new.parquet --keep id --scores -o scored.parquet; "
    "streamsvm predict model.safetensors 's3://logs/*.svm' --cluster tcp://scheduler:8786 -o 's3://out/part-*.txt'"
)
def predict(
    model_file: ModelFile,
    inputs: Sources,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="File to write; .csv, .tsv, .jsonl, .parquet: a table. With --cluster parts that all workers can "
            "write, with a * for the number: out/part-*.csv. [default: standard output]",
        ),
    ] = None,
    keep: Annotated[
        str | None, typer.Option(help="Write a table: these columns of the data, as in id,day, then the prediction.")
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Write scores; in a table, beside the labels.")] = False,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write probabilities; of two classes that of the second.")
    ] = False,
    format: Format = None,
    on_bad_row: OnBadRow = None,
    memory: Memory = None,
    threads: Threads = None,
    cluster: AtCluster = None,
    sets: Sets = None,
) -> None:
    """Predict each row: one line a row, in order. Labels in the data are ignored and may be missing.

    With --keep, or an output that is a table (.csv, .tsv, .jsonl, .parquet, .arrow), a table instead of plain lines.

    With --cluster the workers write parts, numbered in the order of the data: put together, parts of text are the file
    that is written without a cluster. So of CSV only the first part has a header.
    """
    if scores and probabilities and not keep and not output:
        raise ConfigError("--scores and --probabilities cannot be combined, but in a table (--keep, or -o out.csv)")
    settings = _reading_settings(format, on_bad_row, memory, threads, cluster, sets)
    say_if_compiling()
    from streamsvm.config import expand
    from streamsvm.io.overwriting import refuse_overwriting
    from streamsvm.predicting import Wish, kept_columns
    from streamsvm.reading import make_source

    wish = Wish(kept_columns(keep), scores, probabilities)
    where = expand(output) if output else None
    refuse_overwriting([("the output (-o)", output or "-")], _read_by(model_file, inputs), expand)
    model = _named_first(model_file)
    if probabilities and not model.probable:
        raise ModelError(f"{model_file}: {model.why_improbable}")
    run = _predict_on_cluster if settings.cluster.at else _predict_here
    tally = run(settings, model, make_source(settings, tuple(inputs)), wish, where)
    if tally.bad_rows:
        print(f"warning: skipped {tally.bad_rows} malformed rows: {'; '.join(tally.faults)}", file=sys.stderr)


def _read_by(model_file: str, inputs: list[str]) -> list[tuple[str, str]]:
    """What predict and evaluate read: what it is, and where."""
    return [("the model (MODEL)", model_file), *(("the data (DATA)", url) for url in inputs)]


def _predict_here(settings: "Settings", model: "Model", source: "Source", wish: "Wish", output: str | None) -> "Tally":
    from streamsvm.io.files import written_atomically
    from streamsvm.predicting import layout_of, table_target, write_predictions
    from streamsvm.reading import test_stream

    stream = test_stream(settings, source, model, labelled=False, keep=wish.keep)
    layout = layout_of(model, source, settings, wish, table_target(output, wish.keep))
    target: Any = written_atomically(output) if output else nullcontext(sys.stdout.buffer)
    try:
        with target as out:
            write_predictions(model, stream, layout, out)
    except BrokenPipeError:
        _forget_stdout()
    return stream.tally


def _predict_on_cluster(
    settings: "Settings", model: "Model", source: "Source", wish: "Wish", output: str | None
) -> "Tally":
    from streamsvm.distributed.opening import opened_cluster
    from streamsvm.distributed.serving import predict_on, refuse_unnumbered

    refuse_unnumbered(output)
    with opened_cluster(settings.cluster.at or "", None, settings.cluster.timeout, _warn) as cluster:
        return predict_on(cluster, settings, model, source, output, wish, _warn)


def _named_first(model_file: str) -> "Model":
    from streamsvm.config import expand
    from streamsvm.model import load_model

    try:
        return load_model(expand(model_file), _warn)
    except ModelError as error:
        if ": not a " in str(error):
            raise ModelError(f"{error}; the model is named first, then the data") from None
        raise


def _warn(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _forget_stdout() -> None:
    """The reader is gone: end quietly, also when Python flushes at exit."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.command(
    epilog="Example: streamsvm evaluate model.safetensors test.svm.gz --json; "
    "streamsvm evaluate model.safetensors clicks.parquet --by site; "
    "streamsvm evaluate model.safetensors 's3://logs/*.parquet' --cluster tcp://scheduler:8786"
)
def evaluate(
    model_file: ModelFile,
    inputs: Sources,
    by: Annotated[
        str | None, typer.Option(help="Column of the data: figures for each of its values, up to 1000, as well.")
    ] = None,
    unknown_classes: Annotated[
        str,
        typer.Option(
            help="raise or skip rows whose class the model does not know; rows that are skipped are counted.",
            autocompletion=complete(*UNKNOWN),
        ),
    ] = "raise",
    report_to: Annotated[
        str | None, typer.Option("--report", help="Where to write a report, an HTML page: curves, tables, weights.")
    ] = None,
    format: Format = None,
    on_bad_row: OnBadRow = None,
    memory: Memory = None,
    threads: Threads = None,
    cluster: AtCluster = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Measure a model on labelled data: error, loss, AUC, confusion, F1, and how good its probabilities are."""
    if unknown_classes not in UNKNOWN:
        raise ConfigError(f"--unknown-classes: must be {' or '.join(UNKNOWN)}, not {unknown_classes!r}")
    settings = _reading_settings(format, on_bad_row, memory, threads, cluster, sets)
    say_if_compiling()
    from streamsvm.config import expand
    from streamsvm.io.overwriting import refuse_overwriting
    from streamsvm.io.sniffing import format_of
    from streamsvm.reading import make_source

    if report_to is not None:
        from streamsvm.report.writing import refuse_if_impossible

        refuse_overwriting([("the report (--report)", report_to)], _read_by(model_file, inputs), expand)
        refuse_if_impossible(report_to)
    model = _named_first(model_file)
    source = make_source(settings, tuple(inputs))
    if by is not None and (found := format_of(source, settings.data.format)) in PLAIN:
        raise ConfigError(
            f"--by {by}: {found} data has no columns; slices need a table (CSV, JSON lines, Parquet, Arrow)"
        )
    measured, tally = _measured(settings, model, source, by, unknown_classes)
    metrics = measured.figures
    if tally.bad_rows:
        metrics["bad_rows"] = tally.bad_rows
    if report_to is not None:
        from streamsvm.report.writing import report_evaluation

        sources = [part.shown for part in source.parts]
        metrics["report"] = report_evaluation(
            report_to, settings, expand(model_file), model, sources, measured, shown_command(sys.argv), _warn
        )
    if as_json:
        print(json.dumps(metrics))
        return
    from streamsvm.cli.show_metrics import report

    print(report(metrics, [model.class_text(code) for code in range(len(model.classes))]))
    if report_to is not None:
        print(f"\nreport {metrics['report']}")
    if tally.bad_rows:
        print(f"\nskipped {tally.bad_rows} malformed rows: {'; '.join(tally.faults)}", file=sys.stderr)


def _measured(
    settings: "Settings", model: "Model", source: "Source", by: str | None, unknown_classes: str
) -> "tuple[Measured, Tally]":
    """The figures of a model, made here or on a cluster, and what was read for them."""
    if settings.cluster.at:
        from streamsvm.distributed.opening import opened_cluster
        from streamsvm.distributed.serving import measure_on

        with opened_cluster(settings.cluster.at, None, settings.cluster.timeout, _warn) as cluster:
            return measure_on(cluster, settings, model, source, by=by, unknown_classes=unknown_classes, note=_warn)
    from streamsvm.evaluate import measure
    from streamsvm.reading import test_stream

    stream = test_stream(settings, source, model, keep=(by,) if by is not None else ())
    return measure(model, stream, by=by, unknown_classes=unknown_classes), stream.tally


def _reading_settings(
    format: str | None,
    on_bad_row: str | None,
    memory: str | None,
    threads: str | None,
    cluster: str | None,
    sets: list[str] | None,
) -> "Settings":
    given = {"format": format, "on_bad_row": on_bad_row, "memory": memory, "threads": threads, "cluster": cluster}
    return settings_from([], {name: value for name, value in given.items() if value is not None}, sets or [], FLAGS)


@app.command(
    epilog="Example: streamsvm inspect model.safetensors --top 20; streamsvm inspect clicks.csv.gz --label click"
)
@with_flags(DATA_FLAGS)
def inspect(
    file: Annotated[str, typer.Argument(help="A model, a checkpoint (or the directory of several), a cache, or data.")],
    given: dict[str, Any],
    top: Annotated[int, typer.Option(help="How many of the largest weights of a model to show.", min=0)] = 10,
    behind: Annotated[
        str | None, typer.Option(help="Exit with code 6 if a run of follow is further behind its logs, such as 10MB.")
    ] = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Show what is inside a model, a checkpoint, a cache or data.

    Of data: its columns and what they would become, how its labels are spread, and its first rows as features. The
    options say how to read it, as those of train do. Of a checkpoint of follow: where each log stands.
    """
    from streamsvm.cli.inspect import describe, refuse_behind, render
    from streamsvm.config import expand

    found = describe(expand(file), top, _warn, given, sets or [])
    print(json.dumps(found) if as_json else render(found))
    if behind is not None:
        refuse_behind(found, behind)
