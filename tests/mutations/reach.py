"""What follows from the sources alone: which functions a compiled one consists of, and which modules import which.

Nobody sees a kernel call its helpers, because numba has compiled them into it. So what a function calls is taken from
the names in it: those of functions of its module, those it imports, and for an attribute `loss.slope` every method of
that name of a NamedTuple. That may be more than is called, never less.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

from mutations.sources import PACKAGE, Function, Module, Sources


class Reach:
    """Questions about the sources."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

    @cached_property
    def _terms(self) -> dict[str, set[str]]:
        """Methods of terms by their last name."""
        found = defaultdict(set)
        for key, function in self.sources.functions.items():
            if function.term and function.compiled:
                found[function.name.rpartition(".")[2]].add(key)
        return found

    @cached_property
    def _scopes(self) -> dict[str, dict[str, tuple[str, str]]]:
        """For each module, what a name in it means: a name of a module."""
        return {name: self._scope(module) for name, module in self.sources.modules.items()}

    def _scope(self, module: Module) -> dict[str, tuple[str, str]]:
        scope = {}
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PACKAGE):
                for alias in node.names:
                    scope[alias.asname or alias.name] = (node.module, alias.name)
        for key in self.sources.functions:
            place, _, name = key.partition(":")
            if place == module.name and "." not in name:
                scope[name] = (module.name, name)
        return scope

    def _meant(self, module: str, name: str) -> str | None:
        """The function that a name stands for, also where a module only hands it on."""
        for _ in range(5):
            if f"{module}:{name}" in self.sources.functions:
                return f"{module}:{name}"
            if name not in self._scopes.get(module, {}):
                return None
            module, name = self._scopes[module][name]
        return None

    def _named(self, module: str, nodes: Iterable[ast.AST]) -> set[str]:
        found: set[str] = set()
        for node in nodes:
            for part in ast.walk(node):
                if isinstance(part, ast.Name) and (meant := self._meant(module, part.id)):
                    found.add(meant)
                elif isinstance(part, ast.Attribute):
                    found |= self._terms.get(part.attr, set())
        return found

    @cached_property
    def calls(self) -> dict[str, set[str]]:
        """What the names in each function stand for."""
        return {
            key: self._named(function.module, [function.node]) - {key}
            for key, function in self.sources.functions.items()
        }

    @cached_property
    def _callers(self) -> dict[str, set[str]]:
        """For a compiled function, those that name it; for others none: whoever runs them is recorded."""
        callers = defaultdict(set)
        for key, called in self.calls.items():
            for other in called:
                if self.sources.functions[other].compiled:
                    callers[other].add(key)
        return callers

    def entries(self, function: Function) -> set[str]:
        """Functions that run this one, as far as it cannot be recorded; itself among them."""
        return _closure({function.key}, self._callers)

    def baked_in(self, function: Function) -> bool:
        """Whether kernels may hold what it does: it is compiled, or runs when a module is imported."""
        return function.compiled or function.key in self._at_import

    @cached_property
    def _at_import(self) -> set[str]:
        begun: set[str] = set()
        for module in self.sources.modules.values():
            begun |= self._named(module.name, _outside_functions(module.tree))
        return _closure(begun, self.calls)

    @cached_property
    def _importers(self) -> dict[str, set[str]]:
        importers = defaultdict(set)
        for module in self.sources.modules.values():
            for node in ast.walk(module.tree):
                for name in _imported(node):
                    for known in (name, name.rpartition(".")[0]):
                        if known in self.sources.modules:
                            importers[known].add(module.name)
        return importers

    def dependants(self, module: str) -> set[str]:
        """The module, and all that import it, by whatever way."""
        return _closure({module}, self._importers)


def _closure(begun: set[str], following: dict[str, set[str]]) -> set[str]:
    found, todo = set(begun), list(begun)
    while todo:
        more = following.get(todo.pop(), set()) - found
        found |= more
        todo += more
    return found


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom) and node.module:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def _outside_functions(node: ast.AST) -> list[ast.AST]:
    """What runs when a module is imported: decorators and defaults among it, bodies of functions not."""
    found: list[ast.AST] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            found += [*child.decorator_list, *child.args.defaults, *filter(None, child.args.kw_defaults)]
        elif isinstance(child, ast.ClassDef):
            found += [*child.decorator_list, *_outside_functions(child)]
        elif isinstance(child, ast.If | ast.Try | ast.With):
            found += _outside_functions(child)
        else:
            found.append(child)
    return found
