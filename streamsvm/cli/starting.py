"""What a run says before it begins."""

import sys
from typing import TYPE_CHECKING

import typer

from streamsvm.errors import ConfigError

if TYPE_CHECKING:
    from streamsvm.config import Settings


def printed(settings: "Settings", print_config: bool, quiet: bool, *, without: tuple[str, ...]) -> bool:
    """Show the settings, all of them on demand, or in short before a run; True when that is all."""
    from streamsvm.config import expand, summary_lines, to_yaml
    from streamsvm.io.files import refuse_unwritable

    if print_config:
        typer.echo(to_yaml(settings), nl=False)
        return True
    if not settings.data.train:
        raise ConfigError("there is no training data: name a file, or set data.train in the config")
    if settings.output.model:
        refuse_unwritable(expand(settings.output.model))
    if not quiet:
        print("\n".join(f"# {line}" for line in summary_lines(settings, without)), file=sys.stderr, flush=True)
    say_if_compiling(quiet)
    return False


def say_if_compiling(quiet: bool = False) -> None:
    from streamsvm.jit import compiled_before

    if not quiet and not compiled_before():
        print("compiling kernels for this machine, once (about 10 s)", file=sys.stderr, flush=True)
