"""streamsvm on many sets in one process, by its command line: WORK_FOLDER [OPTION...], sets as JSON on standard input.

For each set `streamsvm train` reads the training file and `streamsvm predict` the test file. What was predicted goes to
WORK_FOLDER/NAME.parquet; a JSON line says how the run ended.
"""

import io
import json
import os
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from streamsvm import load_model
from streamsvm.cli.app import app


def command(*words: str) -> tuple[str, str]:
    """Standard output and standard error of a command; an error that it expects is raised."""
    out, err = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        app(list(words), standalone_mode=False)
    return out.buffer.getvalue().decode(), err.getvalue()  # type: ignore[attr-defined]


def trained(folder: str, options: list[str], one: dict[str, Any]) -> dict[str, Any]:
    model = os.path.join(folder, f"{one['name']}.safetensors")
    started = time.perf_counter()
    out, notes = command("train", one["train"], *one["words"], *options, "-o", model, "--json")
    seconds = time.perf_counter() - started
    result = json.loads(out.strip().splitlines()[-1])
    predictions = os.path.join(folder, f"{one['name']}.parquet")
    figures = ["--scores", *["--probabilities"] * load_model(model).probable]
    command("predict", model, one["test"], *figures, "-o", predictions)
    told = [line for line in notes.splitlines() if not line.startswith("#")]
    return {"result": result, "seconds": seconds, "notes": told}


def main(folder: str, *options: str) -> None:
    for one in json.loads(sys.stdin.read()):
        try:
            found = trained(folder, list(options), one)
        except (Exception, SystemExit) as error:  # one set that fails must not end the others
            found = {"failure": f"{type(error).__name__}: {error}"}
        print(json.dumps({"name": one["name"], **found}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
