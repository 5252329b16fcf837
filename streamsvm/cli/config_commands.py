"""`streamsvm config`: show, validate, schema, init."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from streamsvm.errors import ConfigError

config_app = typer.Typer(
    help="Show, check and start configuration files.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Files = Annotated[list[str] | None, typer.Argument(help="YAML files; later ones override earlier ones.")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="Any setting, as in --set solver.passes=5.")]


@config_app.command(epilog="Example: streamsvm config show configs/quickstart.yaml --set solver.passes=5")
def show(
    files: Files = None,
    sets: Sets = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what differs from the defaults.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the resolved settings: defaults, files, STREAMSVM__A__B variables and --set together."""
    from streamsvm.cli.flags import fetched
    from streamsvm.config import load_settings, to_json_dict, to_yaml

    settings = load_settings(files or [], sets=sets or [], fetch=fetched)
    if as_json:
        print(json.dumps(to_json_dict(settings)))
    else:
        typer.echo(to_yaml(settings, defaults=not changed), nl=False)


@config_app.command(epilog="Example: streamsvm config validate configs/*.yaml")
def validate(files: Annotated[list[str], typer.Argument(help="YAML files, checked one by one.")]) -> None:
    """Check files; every mistake is listed with its line."""
    from streamsvm.cli.flags import fetched
    from streamsvm.config import load_settings

    wrong: list[str] = []
    for file in files:
        try:
            load_settings([file], environ={}, fetch=fetched)
        except ConfigError as error:
            wrong.append(str(error))
        else:
            print(f"{file}: ok")
    if wrong:
        sys.stdout.flush()
        raise ConfigError("\n".join(wrong))


@config_app.command("schema", epilog="Example: streamsvm config schema > streamsvm.schema.json")
def print_schema() -> None:
    """Print the JSON schema of configuration files, for editors."""
    from streamsvm.config import schema

    print(json.dumps(schema(), indent=2))


@config_app.command(epilog="Example: streamsvm config init train.yaml")
def init(file: Annotated[str | None, typer.Argument(help="File to write. [default: standard output]")] = None) -> None:
    """Start a configuration file: the common settings, and all others as comments."""
    from streamsvm.config import template

    if file is None:
        typer.echo(template(), nl=False)
        return
    path = Path(file)
    try:
        with path.open("x", encoding="utf-8") as out:
            out.write(template())
    except FileExistsError as error:
        raise ConfigError(f"{file}: exists already") from error
    except OSError as error:
        raise ConfigError(f"{file}: cannot write: {error.strerror or error}") from error
    print(f"wrote {file}; now: streamsvm train {file}")
