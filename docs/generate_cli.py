"""Writes docs/cli.md, the reference of the command line, from the commands themselves.

usage: python docs/generate_cli.py

What a command says of itself (`--help`) is taken from the same place, but laid out here: neither the terminal nor the
version of a library changes a character. A test compares the file with what this makes of the commands.
"""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from streamsvm.cli.app import app

TARGET = Path(__file__).with_name("cli.md")
WIDTH = 118
# In the order in which a user meets them; a command that is not named here comes after them.
ORDER = ("train", "predict", "evaluate", "inspect", "tune", "follow", "convert", "export", "config")
TITLE = """\
# The command line

Every command has `--help`, and `--json` where a program may want to read what it prints. A flag of `train`, `tune` and
`follow` is a setting of a YAML file (`streamsvm config init` writes one with all of them), and any setting is a flag by
`--set`. Data is a path, a glob, a directory, a url, or `-` for standard input. Exit codes: 0 fine, 2 configuration,
3 source, 4 data, 5 model, 6 behind, 130 and 143 interrupted.

This page is made by `python docs/generate_cli.py`.
"""


def commands() -> list[tuple[str, Any]]:
    """Every command with its whole name, such as `config show`, in the order of the page."""
    return list(_below(typer.main.get_command(app), ""))


def _below(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    known = [name for name in ORDER if name in group.commands] if not path else []
    for name in [*known, *(name for name in group.commands if name not in known)]:
        command = group.commands[name]
        whole = f"{path} {name}".strip()
        if hasattr(command, "commands"):
            yield from _below(command, whole)
        else:
            yield whole, command


def examples(command: Any) -> list[str]:
    """The examples at the end of a command's help."""
    _, found, rest = (command.epilog or "").partition("Example: ")
    return [example.strip() for example in rest.split("; ")] if found else []


def render() -> str:
    """The whole page."""
    parts = [TITLE]
    for name, command in commands():
        parts.append(f"## streamsvm {name}\n\n{_paragraphs(command.help)}\n")
        parts.append(f"```text\n{_usage(name, command)}\n\n{_parameters(command)}\n```\n")
        parts.append("```text\n" + "\n".join(examples(command)) + "\n```\n")
    return "\n".join(parts)


def _paragraphs(text: str) -> str:
    return "\n\n".join(textwrap.fill(" ".join(part.split()), WIDTH + 2) for part in text.split("\n\n"))


def _usage(name: str, command: Any) -> str:
    words = ["streamsvm", name, "[OPTIONS]"]
    for parameter in _of_kind(command, "argument"):
        name = _called(parameter) + (" ..." if _several(parameter) else "")
        words.append(name if parameter.required else f"[{name}]")
    return " ".join(words)


def _parameters(command: Any) -> str:
    rows = [(_called(parameter), parameter.help) for parameter in _of_kind(command, "argument")]
    rows += [(_spelled(parameter), _told(parameter)) for parameter in _of_kind(command, "option")]
    rows.append(("-h, --help", "Show what a command does, and exit."))
    width = max(len(left) for left, _ in rows) + 2
    lines = []
    for left, right in rows:
        first, *more = textwrap.wrap(right, WIDTH - width) or [""]
        lines += [f"{left:<{width}}{first}".rstrip(), *(" " * width + line for line in more)]
    return "\n".join(lines)


def _of_kind(command: Any, kind: str) -> list[Any]:
    return [p for p in command.params if p.param_type_name == kind and "--help" not in p.opts]


def _several(parameter: Any) -> bool:
    return parameter.nargs == -1 and "..." not in _called(parameter)


def _called(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _spelled(option: Any) -> str:
    names = ", ".join(sorted(option.opts, key=len))
    if option.secondary_opts:
        names += f" / {', '.join(option.secondary_opts)}"
    return names if option.is_flag else f"{names} {'N' if isinstance(option.default, int) else 'VALUE'}"


def _told(option: Any) -> str:
    text = " ".join((option.help or "").split())
    plain = isinstance(option.default, int | str) and not option.is_flag
    return f"{text} [default: {option.default}]" if plain and "[default:" not in text else text


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
    print(f"wrote {TARGET}")
