"""Build the C sources in `workers/` where a C compiler is present."""

import os
import shutil
from pathlib import Path

from peers.peer import WORKERS
from process import Command, run


def compiler() -> str | None:
    return shutil.which(os.environ.get("CC", "cc"))


def build(source: str, folder: Path, *, shared: bool = False) -> Path:
    """Compile one source for this very machine; returns the program or, if asked, the shared library."""
    path = folder / (Path(source).stem + (".so" if shared else ""))
    flags = ["-O3", "-march=native"] + (["-shared", "-fPIC"] if shared else [])
    folder.mkdir(parents=True, exist_ok=True)
    run(Command([str(compiler()), *flags, "-o", str(path), str(WORKERS / source)]))
    return path
