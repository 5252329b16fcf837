"""The rooms of the package: who may open which door, read from the sources without importing them."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

import streamsvm

ROOT = Path(__file__).parents[1] / "streamsvm"
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))
TREES = {module: ast.parse((ROOT / module).read_text(encoding="utf-8")) for module in MODULES}

# Third-party libraries enter by one door each.
DOORS = {
    "numba": ("jit.py", "lanes.py", "wide_lanes.py"),
    "llvmlite": ("jit.py", "lanes.py"),
    "fsspec": ("io/parts.py",),
    "pyarrow": ("io/",),
    "isal": ("io/compression.py",),
    "backports": ("io/compression.py",),
    "compression": ("io/compression.py",),
    "pydantic": ("config/",),
    "pydantic_core": ("config/",),
    "yaml": ("config/",),
    "typer": ("cli/",),
    "rich": ("cli/",),
    "safetensors": ("io/tensors.py",),
    "prometheus_client": ("exposition.py",),
    "sklearn": ("estimators/", "exchange/scikit_learn.py"),
    "scipy": ("estimators/",),
    "onnx": ("exchange/onnx_graph.py",),
    "threadpoolctl": ("features/maps/make.py",),
    "matplotlib": ("report/figures.py",),
    "dask": ("distributed/opening.py",),
    "distributed": ("distributed/opening.py", "distributed/job.py"),
    "numpy": ("",),
}

# Imports run one way. A room is a folder or a module of the package; every room stands here with those it may open.
SMALL = {"batch", "errors", "jit", "places"}
TERMS = {"losses", "penalties", "schedules", "rows"}
ROOMS = {
    "__main__": {"cli"},
    "errors": set(),
    "places": set(),
    "offered": set(),
    "progress": set(),
    "crew": set(),
    "interrupts": set(),
    "pool": {"interrupts"},
    "mapping": SMALL | {"config", "features/maps", "model", "offered", "shuffle"},
    "mapped_groups": SMALL | {"cached_groups", "features/maps", "groups", "passes"},
    "io/urls": set(),
    "jit": {"places"},
    "batch": {"jit"},
    "lanes": {"jit"},
    "wide_lanes": {"jit", "lanes", "rows"},
    "rows": {"jit", "lanes"},
    "exponentials": {"jit", "lanes"},
    "losses": {"jit"},
    "penalties": {"jit"},
    "schedules": {"jit"},
    "classes": SMALL,
    "scoring": SMALL | {"losses", "rows"},
    "score_sample": SMALL,
    "calibration": SMALL | {"score_sample"},
    "thresholds": SMALL | {"score_sample"},
    "hashing": {"jit"},
    "cells": {"batch", "jit"},
    "io": SMALL | {"cells", "hashing", "interrupts", "io/urls", "rows"},
    "io/files": {"errors", "io", "io/urls"},
    "io/overwriting": {"errors", "io", "io/files", "io/urls"},
    "io/tensors": {"errors", "version"},
    "io/generations": {"errors", "io", "io/files", "io/tensors", "io/urls", "places"},
    "io/model_schema": {"features", "offered"},
    "io/names_file": {"errors", "io/files", "io/urls"},
    "io/liblinear_text": {"batch", "errors"},
    "io/cache": SMALL | {"io", "io/files", "io/urls"},
    "groups": SMALL | {"interrupts", "pool"},
    "solvers": SMALL | TERMS | {"exponentials", "groups", "lanes", "pool", "scoring", "shuffle", "wide_lanes"},
    "features": SMALL | {"cells", "hashing", "offered", "rows", "shuffle"},
    "features/maps": SMALL | {"exponentials", "hashing", "lanes", "pool", "rows", "shuffle"},
    "tables": SMALL | {"cells", "features", "hashing", "io"},
    "readers": SMALL | {"cells", "features", "io", "pool", "tables"},
    "shuffle": SMALL,
    "weighting": SMALL,
    "stream": SMALL | {"features", "io", "pool", "readers", "shuffle"},
    "memory_stream": SMALL | {"interrupts", "io", "shuffle", "stream"},
    "frames": {"batch", "errors", "io", "tables"},
    "cache_place": {"errors", "io/files", "io/urls", "places", "stream"},
    "passes": SMALL | {"cache_place", "io", "io/cache", "io/files", "io/urls", "pool", "readers", "shuffle", "stream"},
    "model": SMALL
    | {
        "io",
        "io/files",
        "io/generations",
        "io/liblinear_text",
        "io/model_schema",
        "io/names_file",
        "io/tensors",
        "io/urls",
        "classes",
    }
    | {"calibration", "features/maps", "pool", "scoring"},
    "checkpoint": SMALL
    | {"config", "interrupts", "io", "io/files", "io/generations", "io/tensors", "io/urls", "model", "version"},
    "metrics": SMALL | {"classes", "losses"},
    "evaluate": SMALL | {"losses", "metrics", "model", "stream", "tables"},
    "exchange": SMALL | {"calibration", "features", "io/files", "io/liblinear_text", "model", "version"},
    "weight_names": SMALL | {"features", "io/names_file", "model"},
    "config": {"errors", "io/urls", "offered"},
    "holdout": SMALL | {"losses", "score_sample", "scoring", "shuffle", "solvers"},
    "progressive": {"batch", "score_sample", "scoring", "shuffle"},
    "drift": set(),
    "recent": SMALL
    | {"calibration", "drift", "losses", "metrics", "progressive", "score_sample", "shuffle", "solvers"},
    "exposition": {"errors"},
    "judging": {"batch", "calibration", "config", "errors", "model", "score_sample", "thresholds"},
    "report/recording": {"crew", "progress"},
    "report": SMALL
    | {
        "config",
        "crew",
        "evaluate",
        "io",
        "io/files",
        "io/urls",
        "judging",
        "metrics",
        "model",
        "pool",
        "progress",
        "report/recording",
    }
    | {"score_sample", "stream", "version", "weight_names"},
    "fold_groups": SMALL | {"groups", "shuffle"},
    "first_rows": SMALL,
    "dialects": SMALL
    | {"cells", "classes", "config", "features", "io", "model", "offered", "readers", "stream", "tables"},
    "reading": {"cache_place", "checkpoint", "config", "dialects", "io", "io/urls", "model", "passes", "stream"},
    "whole_tables": {"config", "dialects", "errors", "io", "pool", "reading", "stream", "tables"},
    "converting": {"config", "dialects", "errors", "features", "io", "io/files", "io/urls", "pool", "reading", "stream"}
    | {"io/overwriting", "offered", "tables", "whole_tables"},
    "predicting": {"batch", "config", "converting", "errors", "io", "model", "offered", "stream"},
    "inspecting": {"batch", "cells", "classes", "config", "dialects", "errors", "features", "hashing", "io", "reading"}
    | {"offered", "stream", "tables"},
    "feed": {"classes", "config", "features", "first_rows", "holdout", "model", "passes", "weighting"}
    | SMALL
    | {"features/maps", "mapping", "offered", "shuffle"},
    "cached_groups": SMALL | {"feed", "groups", "passes"},
    "runs": {
        "checkpoint",
        "config",
        "features",
        "feed",
        "mapping",
        "model",
        "offered",
        "passes",
        "progress",
        "reading",
        "score_sample",
        "scoring",
        "solvers",
    }
    | {"version"}
    | SMALL
    | TERMS,
    "fitting": {"cached_groups", "checkpoint", "config", "interrupts", "model", "passes", "progress", "reading", "runs"}
    | {"features/maps", "fold_groups", "groups", "judging", "mapped_groups", "score_sample", "scoring", "solvers"}
    | {"holdout"}
    | SMALL
    | TERMS,
    "array_rows": SMALL,
    "estimators": SMALL
    | {"array_rows", "classes", "config", "dialects", "exchange", "features", "frames", "incremental", "io"}
    | {"memory_stream", "model", "progress", "reading", "stream", "tables", "training"},
    "incremental": SMALL
    | {"checkpoint", "config", "judging", "memory_stream", "model", "passes", "progress", "progressive", "reading"}
    | {"online_training", "solvers", "stream"},
    "training": {
        "io/overwriting",
        "distributed",
        "online_training",
        "checkpoint",
        "config",
        "evaluate",
        "feed",
        "fitting",
        "holdout",
        "interrupts",
        "model",
        "passes",
    }
    | {
        "report",
        "report/recording",
        "judging",
        "mapping",
        "progress",
        "progressive",
        "reading",
        "runs",
        "score_sample",
        "scoring",
        "solvers",
        "stream",
        "version",
    }
    | SMALL
    | TERMS,
    "online_training": {
        "checkpoint",
        "config",
        "features",
        "feed",
        "holdout",
        "judging",
        "mapping",
        "model",
        "progress",
        "progressive",
    }
    | {"report/recording", "runs", "score_sample", "scoring", "solvers"}
    | SMALL,
    "distributed": {"cache_place", "cached_groups", "checkpoint", "config", "features", "feed", "fitting", "groups"}
    | {"contest", "crew", "holdout", "losses", "report/recording", "tuning_run"}
    | {"evaluate", "predicting"}
    | {
        "interrupts",
        "io",
        "io/files",
        "io/tensors",
        "io/urls",
        "judging",
        "model",
        "offered",
        "online_training",
        "passes",
    }
    | {"pool", "progress", "readers", "reading", "runs", "score_sample", "scoring", "shuffle", "solvers", "stream"}
    | {"tables"}
    | SMALL,
    "follow_settings": {"config", "errors", "io/overwriting", "offered"},
    "following": {
        "offered",
        "follow_settings",
        "checkpoint",
        "config",
        "dialects",
        "exposition",
        "feed",
        "holdout",
        "interrupts",
        "io",
        "judging",
    }
    | {"io/generations", "model", "passes", "progress", "reading", "recent", "score_sample", "solvers", "stream"}
    | {"online_training", "report", "report/recording", "tables", "training"}
    | SMALL,
    "contest": {"checkpoint", "config", "feed", "holdout", "online_training", "runs", "solvers"} | SMALL,
    "tuning_run": {"checkpoint", "config", "contest", "feed", "holdout", "judging", "model", "passes", "progress"}
    | {"runs", "score_sample"}
    | SMALL,
    "tuning": {"checkpoint", "config", "contest", "distributed", "passes", "progress", "report", "runs", "solvers"}
    | {"io/overwriting", "training", "tuning_run"}
    | SMALL,
    "cli": {
        "offered",
        "follow_settings",
        "following",
        "checkpoint",
        "classes",
        "config",
        "converting",
        "distributed",
        "evaluate",
        "exchange",
        "inspecting",
        "predicting",
        "stream",
    }
    | {"interrupts", "io", "io/cache", "io/files", "io/generations", "io/overwriting"}
    | {"io/tensors", "io/urls", "model", "progress", "reading", "training", "tuning", "version", "weight_names"}
    | {"report", "report/recording"}
    | SMALL,
    "": {"config", "estimators", "following", "model", "reading", "stream", "training", "tuning"},  # the public names
}


def room_of(module: str) -> str:
    """`io` of io/source.py, `io/urls` of io/urls.py, `features/maps` of all in that folder, `model` of model.py.

    Nothing of the package's own __init__.py."""
    whole = module.removesuffix(".py")
    folder = whole.rpartition("/")[0]
    if whole in ROOMS or folder in ROOMS:
        return whole if whole in ROOMS else folder
    return whole.split("/")[0].replace("__init__", "")


def imports(module: str) -> Iterator[tuple[str, int]]:
    """Dotted names a module imports, wherever in it; names taken from the package itself are modules or the version."""
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: imports are absolute"
            if node.module == "streamsvm":
                yield from ((f"streamsvm.{alias.name}", node.lineno) for alias in node.names)
            elif node.module:
                yield node.module, node.lineno


def opened_room(name: str) -> str:
    """The room of a dotted name inside the package."""
    return "version" if name == "streamsvm.__version__" else room_of("/".join(name.split(".")[1:]))


def test_this_test_sees_the_package() -> None:
    assert len(MODULES) > 20 and "solvers/base.py" in MODULES
    assert (
        next(name for name, _ in imports("solvers/sgd.py") if name.endswith("rows")),
        next(name for name, _ in imports("jit.py") if name == "numba"),
    ) == ("streamsvm.rows", "numba")


def test_third_party_libraries_enter_by_one_door() -> None:
    for module in MODULES:
        for name, line in imports(module):
            library = name.split(".")[0]
            if library == "streamsvm" or library in sys.stdlib_module_names - {"compression"}:
                continue
            assert library in DOORS, f"{module}:{line}: {library} is not a library of this package"
            assert any(module.startswith(door) for door in DOORS[library]), f"{module}:{line} imports {library}"


def test_imports_run_one_way() -> None:
    for module in MODULES:
        room = room_of(module)
        assert room in ROOMS, f"{module} is a new room: say in this test what it may import"
        for name, line in imports(module):
            if name.startswith("streamsvm."):
                opened = opened_room(name)
                assert opened == room or opened in ROOMS[room], (
                    f"{module}:{line}: {room or 'the package'} opens {opened}"
                )


def test_the_table_itself_has_no_circles_and_keeps_the_rules_of_the_design() -> None:
    reached: dict[str, set[str]] = {}

    def reach(room: str, above: tuple[str, ...] = ()) -> set[str]:
        assert room not in above, f"circle: {' -> '.join([*above, room])}"
        if room not in reached:
            opened = ROOMS.get(room, set())
            reached[room] = opened.union(*(reach(other, (*above, room)) for other in opened - {"version"}))
        return reached[room]

    for room in set(ROOMS) - {"__main__"}:
        assert "cli" not in reach(room), f"nothing imports cli, but {room} does"
    assert "io" not in reach("solvers") and "solvers" not in reach("io")
    assert not reach("solvers") & {"stream", "training", "passes", "config"}
    assert not reach("config") & {"jit", "batch", "io"}
    assert "jit" not in reach("io/urls")

    from streamsvm.jit import WITHOUT_KERNELS

    marks = {"kernel", "quick", "inlined", "cold", "expose"}
    for module, tree in TREES.items():
        taken = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "streamsvm.jit"]
        if any(alias.name in marks for node in taken for alias in node.names):
            needed = {room_of(module)} | reach(room_of(module))
            assert not {room.split("/")[0] for room in needed} & set(WITHOUT_KERNELS), f"{module} has kernels"


def test_names_that_are_offered_are_those_that_there_are() -> None:
    from streamsvm import offered
    from streamsvm.config.solvers import SOLVER_SETTINGS, OnlineSettings
    from streamsvm.io.sniffing import ENDINGS
    from streamsvm.losses import LOSSES, smooth
    from streamsvm.solvers import BATCH_SOLVERS, SOLVERS
    from streamsvm.solvers.kernel_solvers import KERNEL_SOLVERS
    from streamsvm.solvers.similarity import SIMILARITIES
    from streamsvm.solvers.upkeep import UPKEEP

    assert set(offered.LOSSES) == set(LOSSES)
    assert [name for name in offered.LOSSES if smooth(name)] == list(offered.SMOOTH_LOSSES)
    assert list(offered.ONLINE) == list(SOLVERS)
    assert list(offered.EXACT) == [*BATCH_SOLVERS, "auto"]
    assert list(offered.KERNEL) == list(KERNEL_SOLVERS)
    for name in KERNEL_SOLVERS:
        fields = SOLVER_SETTINGS[name].model_fields
        assert get_args(fields["kernel"].annotation) == SIMILARITIES
        assert set(get_args(fields["upkeep"].annotation)) == set(UPKEEP)
    assert list(offered.SOLVERS) == list(SOLVER_SETTINGS)
    assert all(issubclass(SOLVER_SETTINGS[name], OnlineSettings) == (name in SOLVERS) for name in SOLVER_SETTINGS)
    assert set(ENDINGS.values()) == set(offered.FORMATS)
    assert set(offered.LINES) | set(offered.WRITTEN) <= set(offered.FORMATS)


def test_every_room_in_the_table_exists() -> None:
    assert {room_of(module) for module in MODULES} == set(ROOMS)


# How modules read.


def test_every_module_says_what_it_is() -> None:
    for module in MODULES:
        assert ast.get_docstring(TREES[module]), f"{module} has no docstring"


def test_no_module_is_a_drawer() -> None:
    names = {Path(module).stem for module in MODULES}
    assert not names & {"utils", "util", "helpers", "helper", "common", "misc", "tools"}
    classes = [node.name for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert not [name for name in classes if name.startswith("Base")]


COMPILED = {"kernel", "quick", "inlined", "cold", "intrinsic"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def decorators(node: Function) -> set[str]:
    found = set()
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        found.add(called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", ""))
    return found


TERM_MODULES = (
    "losses.py",
    "penalties.py",
    "schedules.py",
    "features/scaling.py",
    "features/maps/fourier.py",
    "features/maps/nearness.py",
    "features/maps/product.py",
    "solvers/similarity.py",
)


def is_term(node: ast.AST, module: str) -> bool:
    """A NamedTuple of such a module, whose methods numba types."""
    return (
        isinstance(node, ast.ClassDef)
        and module in TERM_MODULES
        and any(isinstance(base, ast.Name) and base.id == "NamedTuple" for base in node.bases)
    )


@cache
def stubs(module: str) -> set[str]:
    """Functions handed to `expose`."""
    calls = (node for node in ast.walk(TREES[module]) if isinstance(node, ast.Call))
    return {
        call.args[1].id
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "expose" and isinstance(call.args[1], ast.Name)
    }


def typed_functions(node: ast.AST, module: str) -> Iterator[tuple[Function, bool]]:
    """Functions that must be annotated, and whether each is a method; compiled ones are left out with all inside."""
    for child in ast.iter_child_nodes(node):
        if is_term(child, module):
            continue
        if isinstance(child, Function):
            if decorators(child) & COMPILED or child.name in stubs(module):
                continue
            yield child, isinstance(node, ast.ClassDef) and "staticmethod" not in decorators(child)
        yield from typed_functions(child, module)


def test_everything_but_kernels_is_typed() -> None:
    for module in MODULES:
        for function, is_method in typed_functions(TREES[module], module):
            where = f"{module}:{function.lineno}: {function.name}"
            given = function.args
            arguments = [*given.posonlyargs, *given.args][1 if is_method else 0 :]
            arguments += [*given.kwonlyargs, *filter(None, [given.vararg, given.kwarg])]
            assert not [argument.arg for argument in arguments if argument.annotation is None], where
            assert function.returns is not None, f"{where} has no return type"


def test_kernels_and_only_kernels_are_untyped() -> None:
    """The rule above would be empty if everything counted as a kernel."""
    typed = [function.name for module in MODULES for function, _ in typed_functions(TREES[module], module)]
    assert len(typed) > 150 and {"load_model", "learn", "expose"} <= set(typed)
    assert not {"sgd_pass", "row_dot", "slope", "_slope", "generate"} & set(typed)


# What is light stays light.

HEAVY = {"numba", "llvmlite", "pyarrow", "numpy", "fsspec", "safetensors", "scipy", "sklearn", "matplotlib"}


def loaded_by(code: str, directory: Path) -> set[str]:
    """Top-level modules that a fresh interpreter has after running `code`."""
    script = f"import sys\n{code}\nprint('LOADED', *sys.modules, file=sys.stderr)"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAMSVM__")}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=directory, env=environment, capture_output=True, text=True, timeout=120
    )
    loaded = re.search(r"^LOADED (.*)$", done.stderr, re.MULTILINE)
    assert loaded, done.stderr
    return {name.split(".")[0] for name in loaded[1].split()}


def command(*arguments: str) -> str:
    return f"sys.argv = {['streamsvm', *arguments]!r}\nfrom streamsvm.cli import run\nrun()"


@pytest.mark.parametrize(
    "code",
    [
        "import streamsvm",
        command("--help"),
        command("train", "--help"),
        command("--version"),
        command("train", "wrong.yaml"),
        command("train", "--passes", "0", "data.svm"),
        command("config", "validate", "wrong.yaml"),
        command("config", "show"),
    ],
    ids=["import", "help", "train help", "version", "wrong config", "wrong flag", "validate", "show"],
)
def test_what_needs_no_numbers_loads_no_numbers(code: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("los: hinge\nsolver: {passes: 0}\n")
    loaded = loaded_by(code, tmp_path)
    assert "streamsvm" in loaded and not loaded & HEAVY
    if code == "import streamsvm":
        assert not loaded & {"pydantic", "yaml", "typer", "rich"}


# What is public.


def test_public_names_are_those_in_all_and_each_resolves() -> None:
    assert sorted(streamsvm.__all__) == streamsvm.__all__ == sorted(dir(streamsvm))
    assert len(set(streamsvm.__all__)) == len(streamsvm.__all__)
    for name in streamsvm.__all__:
        assert getattr(streamsvm, name) is not None
    assert {"Model", "Stream", "load_model", "open_stream", "train"} <= set(streamsvm.__all__)
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = streamsvm.trian


def test_public_names_are_known_to_type_checkers_too() -> None:
    typed = {
        alias.name
        for node in ast.walk(TREES["__init__.py"])
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for statement in node.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert typed | {"__version__"} == set(streamsvm.__all__)


def test_the_version_is_the_one_that_is_packaged() -> None:
    packaged = (ROOT.parent / "pyproject.toml").read_text()
    assert f'version = "{streamsvm.__version__}"' in packaged or "dynamic" in packaged


def test_every_module_list_of_public_names_is_true() -> None:
    """A module with __all__ defines or imports all of it."""
    for module, tree in TREES.items():
        listed = [
            ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
        ]
        if not listed or module == "__init__.py":
            continue
        defined: set[str] = set()
        for node in tree.body:
            if isinstance(node, Function | ast.ClassDef):
                defined.add(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                defined |= {alias.asname or alias.name for alias in node.names}
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                defined |= {target.id for target in targets if isinstance(target, ast.Name)}
        assert set(listed[0]) <= defined, module
