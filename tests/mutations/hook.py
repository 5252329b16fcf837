"""What a process of the collecting run records: which functions of the package it enters.

The sources stay as they are. When Python compiles one of the package's modules, a call is put at the beginning of each
function that is not numba's; such code is kept apart from the usual one by PYTHONPYCACHEPREFIX. That costs some 40 ns a
call, on all threads, where a profiler costs more than the rest of the tests. numba's dispatchers are given a class that
records who is called from Python.

Processes that tests start have this hook as well, because it is loaded by a `sitecustomize` on PYTHONPATH. They write
down each function when they first enter it, so that it is known even of a process that is killed.
"""

import ast
import builtins
import importlib.machinery
import os
import secrets
from pathlib import Path
from typing import Any

ROOT, INTO, FIXTURE = "MUTATIONS_ROOT", "MUTATIONS_INTO", "MUTATIONS_FIXTURE"  # variables of the environment
NAME = "__reached__"  # a builtin function while recording
JIT = "streamsvm.jit"


class Reached(dict[str, None]):
    """The functions entered so far. As a dictionary that is asked for a name, because that takes no time."""

    def __init__(self) -> None:
        super().__init__()
        self._file: int | None = None

    def __missing__(self, name: str) -> None:
        self[name] = None
        if self._file is not None:
            os.write(self._file, f"{name}\n".encode())

    def write_down(self) -> None:
        """From now on, in a file of this process, which begins with whom it works for."""
        self.clear()
        place = Path(os.environ[INTO]) / f"child-{os.getpid()}-{secrets.token_hex(4)}.txt"
        self._file = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        os.write(self._file, f"{os.environ.get(FIXTURE, '')}\n{test}\n".encode())


reached = Reached()


def install() -> None:
    """In this process: code of the package that is loaded from now on is recorded."""
    if hasattr(builtins, NAME):
        return
    setattr(builtins, NAME, reached.__getitem__)
    builtins.__watched__ = _watch  # type: ignore[attr-defined]
    usual = importlib.machinery.SourceFileLoader.source_to_code
    root = Path(os.environ[ROOT])
    package = str(root / "streamsvm") + os.sep

    def source_to_code(self: Any, data: Any, path: Any, **options: Any) -> Any:
        if str(path).startswith(package) and isinstance(data, bytes):
            parts = Path(path).relative_to(root).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            data = instrumented(ast.parse(data), module)
        return usual(self, data, path, **options)

    importlib.machinery.SourceFileLoader.source_to_code = source_to_code  # type: ignore[method-assign]
    if "PYTEST_CURRENT_TEST" in os.environ:
        reached.write_down()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reached.write_down)


def instrumented(tree: ast.Module, module: str) -> ast.Module:
    """The tree of a module whose functions say that they are entered."""
    from mutations.sources import compiled

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                visit(child, f"{prefix}{child.name}.")
                if not compiled(child):
                    call = ast.parse(f"{NAME}({f'{module}:{prefix}{child.name}'!r})").body[0]
                    documented = ast.get_docstring(child, clean=False) is not None
                    for part in ast.walk(call):
                        if hasattr(part, "lineno"):
                            ast.copy_location(part, child.body[0])
                    child.body.insert(1 if documented else 0, call)
            else:
                visit(child, f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix)

    visit(tree, "")
    if module == JIT:
        tree.body += ast.parse("__watched__(globals())").body
    return ast.fix_missing_locations(tree)


def _watch(names: dict[str, Any]) -> None:
    """Let the compilers of jit.py make dispatchers that record calls from Python."""
    from functools import wraps

    from numba.core.registry import CPUDispatcher

    class Watched(CPUDispatcher):  # type: ignore[misc]
        def __call__(self, *arguments: Any, **named: Any) -> Any:
            reached[self.__dict__["reached_as"]]
            return CPUDispatcher.__call__(self, *arguments, **named)

    def watching(usual: Any) -> Any:
        @wraps(usual)
        def compiler(function: Any) -> Any:
            made = usual(function)
            if type(made) is CPUDispatcher:
                name = function.__qualname__.replace("<locals>.", "")
                made.__dict__["reached_as"] = f"{function.__module__}:{name}"
                made.__class__ = Watched
            return made

        return compiler

    for name in ("kernel", "quick", "inlined", "cold"):
        names[name] = watching(names[name])
