"""`streamsvm export`: a model for another program, and how it is used there."""

import json
import sys
from typing import Annotated, Any

import typer

from streamsvm.cli.flags import complete
from streamsvm.errors import ConfigError
from streamsvm.io.urls import redact_url

FORMATS = ("auto", "liblinear", "onnx")
ENDINGS = {"model": "liblinear", "txt": "liblinear", "onnx": "onnx"}
EPILOG = (
    "Example: streamsvm export model.safetensors model.onnx; "
    "streamsvm export model.safetensors heart.model --format liblinear"
)


def export(
    model_file: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model, a checkpoint, or a directory of checkpoints.")
    ],
    output: Annotated[
        str, typer.Argument(metavar="OUT", help="File or url to write: .onnx, or .model and .txt for LIBLINEAR.")
    ],
    format: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(FORMATS)}. [default: by the ending of OUT]",
            show_default=False,
            autocompletion=complete(*FORMATS),
        ),
    ] = "auto",
    zero_based: Annotated[
        bool | None,
        typer.Option(
            "--zero-based/--one-based",
            help="Whether the first column is index 0 or 1. [default: 1 for LIBSVM text without an index 0]",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Write a model for another program: as LIBLINEAR's text, or as an ONNX graph.

    What the other program cannot be told is printed as a note, or refused. OUT has its name when all of it is written,
    and not before. The other way round, LIBLINEAR's models can be used as they are in predict, evaluate and --init.
    """
    kind = format_for(output, format)
    from streamsvm.config import expand
    from streamsvm.exchange import save_liblinear, save_onnx
    from streamsvm.exchange.columns import first_index
    from streamsvm.io.overwriting import refuse_overwriting
    from streamsvm.model import load_model

    refuse_overwriting([("the output (OUT)", output)], [("the model (MODEL)", model_file)], expand)
    notes: list[str] = []
    model = load_model(expand(model_file), lambda text: print(text, file=sys.stderr, flush=True))
    if kind == "onnx":
        save_onnx(model, expand(output), zero_based=zero_based)
    else:
        save_liblinear(model, expand(output), zero_based=zero_based, note=notes.append)
    first = first_index(model, zero_based)
    result = {
        "model": redact_url(model_file),
        "output": redact_url(output),
        "format": kind,
        "features": model.dim - first,
        "classes": model.classes,
        "first_index": first,
        "notes": notes,
    }
    if as_json:
        print(json.dumps(result))
        return
    for text in notes:
        print(f"note: {text}", file=sys.stderr)
    print(f"wrote {result['output']} ({model.dim - first:,} features): {_use(result)}")


def format_for(output: str, format: str) -> str:
    """The format that is asked for, or that the ending of a name speaks of."""
    if format not in FORMATS:
        raise ConfigError(f"--format {format}: must be one of {', '.join(FORMATS)}")
    if format != "auto":
        return format
    found = ENDINGS.get(redact_url(output).rpartition(".")[2].lower())
    if found is None:
        raise ConfigError(
            f"{redact_url(output)}: the name does not say which format to write; "
            "use an ending (.onnx, or .model for LIBLINEAR) or --format"
        )
    return found


def _use(result: dict[str, Any]) -> str:
    """How the file is used, in a few words."""
    name = result["output"]
    if result["format"] == "liblinear":
        return f"LIBLINEAR's `predict data.svm {name} labels.txt`"
    first = result["first_index"]
    return f"onnxruntime.InferenceSession({name!r}).run(None, {{'features': rows}}), column 0 is index {first}"
