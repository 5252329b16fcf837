"""Functions of the package found by their names, and mutations put into them. Reads sources, imports nothing of them.

A function is known by its qualified name (`Hinge.slope`, `train`, `outer.inner`), so a catalogue survives that modules
are moved. Only where two modules have functions of the same name a word of the module's name is needed as well.
"""

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

PACKAGE = "streamsvm"
COMPILERS = {"kernel", "quick", "inlined", "cold"}  # the decorators of jit.py

Definition = ast.FunctionDef | ast.AsyncFunctionDef


class Mutation(NamedTuple):
    """A fault: in the function `name`, the text `old`, which stands there once, becomes `new`."""

    name: str
    old: str
    new: str
    module: str = ""  # a word of the module's name, where several modules have such a function

    def __str__(self) -> str:
        return self.name


class MismatchError(Exception):
    """A mutation does not fit the sources; says why."""


@dataclass(frozen=True)
class Function:
    """A function of the package."""

    module: str  # streamsvm.io.csv
    name: str  # Hinge.slope
    path: Path
    node: Definition
    term: bool  # a method of a NamedTuple, which numba may compile

    @property
    def key(self) -> str:
        return f"{self.module}:{self.name}"

    @property
    def compiled(self) -> bool:
        return compiled(self.node)


def compiled(node: Definition) -> bool:
    """Whether it is numba that runs a function: those alone have no type of what they return."""
    names = {getattr(decorator, "id", "") for decorator in node.decorator_list}
    return bool(names & COMPILERS) or node.returns is None


class Module(NamedTuple):
    name: str
    path: Path
    text: str
    tree: ast.Module


class Sources:
    """The modules of a package, and its functions."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def modules(self) -> dict[str, Module]:
        found = {}
        for path in sorted((self.root / PACKAGE).rglob("*.py")):
            parts = path.relative_to(self.root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            text = path.read_text(encoding="utf-8")
            found[name] = Module(name, path, text, ast.parse(text))
        return found

    @cached_property
    def functions(self) -> dict[str, Function]:
        """By `module:qualified.name`."""
        return {
            function.key: function for module in self.modules.values() for function in _functions(module, module.tree)
        }

    def find(self, mutation: Mutation) -> Function:
        found = [
            function
            for function in self.functions.values()
            if function.name == mutation.name and mutation.module in function.module
        ]
        if len(found) != 1:
            places = ", ".join(function.module for function in found) or "no module"
            raise MismatchError(f"{mutation}: one function of this name is needed, it is in {places}")
        return found[0]

    def mutated(self, mutation: Mutation) -> tuple[Function, str]:
        """The function, and the text of its module with the fault in it."""
        function = self.find(mutation)
        text = self.modules[function.module].text
        lines = text.splitlines(keepends=True)
        first = min([function.node.lineno, *(one.lineno for one in function.node.decorator_list)])
        begin, end = sum(map(len, lines[: first - 1])), sum(map(len, lines[: function.node.end_lineno]))
        body = text[begin:end]
        if body.count(mutation.old) != 1:
            raise MismatchError(f"{mutation}: {mutation.old!r} stands there {body.count(mutation.old)} times, not once")
        changed = body.replace(mutation.old, mutation.new)
        try:  # the function alone, because whole modules take seconds
            before, after = (ast.dump(ast.parse(textwrap.dedent(one))) for one in (body, changed))
        except SyntaxError as error:
            raise MismatchError(f"{mutation}: does not parse: {error}") from error
        if before == after:
            raise MismatchError(f"{mutation}: changes nothing but comments or spaces")
        return function, text[:begin] + changed + text[end:]


def _functions(module: Module, node: ast.AST, prefix: str = "", term: bool = False) -> Iterator[Function]:
    """All functions below a node, however deep; of two with one name (as in `if` and `else`) the last one counts."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            yield Function(module.name, prefix + child.name, module.path, child, term)
            yield from _functions(module, child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            inner_term = any(getattr(base, "id", "") == "NamedTuple" for base in child.bases)
            yield from _functions(module, child, f"{prefix}{child.name}.", inner_term)
        else:
            yield from _functions(module, child, prefix, term)


def faults(sources: Sources, catalogue: list[Mutation]) -> list[str]:
    """What is wrong with a catalogue, one sentence for each mutation that does not fit."""
    found = []
    seen: set[tuple[str, str]] = set()
    for mutation in catalogue:
        try:
            function, changed = sources.mutated(mutation)
        except MismatchError as error:
            found.append(str(error))
            continue
        if (function.module, changed) in seen:
            found.append(f"{mutation}: is in the catalogue twice")
        seen.add((function.module, changed))
    return found
