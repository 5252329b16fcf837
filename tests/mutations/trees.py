"""Copies of the sources to put faults into, and the compiled kernels that such a copy may use.

The kernels' cache is named by a hash of the sources, so with any fault in it everything would be compiled anew, which
takes many minutes. So the directory of that name is filled, before tests run, with the kernels of the copy as it is:

    the fault is in Python code                    all of them: numba itself drops those of the file that was edited
    it is in a compiled function, in a method of   those of modules that do not import the edited one, by whatever way;
    a term, or in what runs during an import       numba would not notice that a helper has changed in another file

A copy has always the same path and the same times of files: numba asks for both.
"""

import ast
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

from mutations.reach import Reach
from mutations.sources import PACKAGE, Function

LATER = 1000  # seconds by which the file with a fault is newer, and one more for each further fault


class Tree:
    """A copy. `cache` is STREAMSVM_CACHE_DIR of whoever works in it."""

    def __init__(self, place: Path, number: int) -> None:
        self.root = place / f"tree-{number}"
        self.cache = place / f"cache-{number}"
        self._faults = 0

    # The copy.

    def sync(self, source: Path) -> None:
        """Make it a copy of what is under version control, or could be, with the times of files."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=source, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        wanted = {name for name in listed.split("\0") if name and (source / name).is_file()}
        for name in wanted:
            old, new = source / name, self.root / name
            new.parent.mkdir(parents=True, exist_ok=True)
            if not new.exists() or _stamp(new) != _stamp(old) or new.read_bytes() != old.read_bytes():
                shutil.copy2(old, new)
        for path in self.root.rglob("*.py"):
            if path.relative_to(self.root).as_posix() not in wanted:
                path.unlink()

    def environment(self, **more: str) -> dict[str, str]:
        self.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        paths = [str(self.root), str(self.root / "tests")]
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
            "PYTHONPATH": os.pathsep.join(paths),
            "STREAMSVM_CACHE_DIR": str(self.cache),
            **more,
        }

    # Kernels.

    @property
    def kernels(self) -> Path:
        """The directory in which kernels of the sources as they stand are kept."""
        return self.cache / "kernels" / sources_hash(self.root)

    def share(self, other: "Tree") -> None:
        """Take over the kernels of another copy: to numba a directory of sources is another under another path."""
        begin, end = other.kernels, self.kernels
        if not begin.is_dir():
            return
        for folder in (path.parent for path in _sources(other.root)):
            old = begin / subpath(folder)
            new = end / subpath(self.root / folder.relative_to(other.root))
            if old.is_dir():
                _make_private(new)
                for file in old.iterdir():
                    if not (new / file.name).exists():
                        os.link(file, new / file.name)

    def put(self, function: Function, text: str, reach: Reach) -> "Fault":
        """The fault, with kernels that do not have the code as it was."""
        warm = self.kernels
        self._faults += 1
        fault = Fault(self, self.root / function.path.relative_to(reach.sources.root), text, self._faults)
        stale = reach.dependants(function.module) if reach.baked_in(function) else set()
        try:
            self._fill(warm, self.kernels, stale)
        except BaseException:
            fault.remove()
            raise
        return fault

    def _fill(self, warm: Path, kernels: Path, stale: set[str]) -> None:
        if not warm.is_dir() or kernels == warm:
            return
        shutil.rmtree(kernels, ignore_errors=True)
        _make_private(kernels)
        packages = {subpath(path.parent): path.parent.relative_to(self.root) for path in _sources(self.root)}
        for folder in warm.iterdir():
            package = packages.get(folder.name)
            if package is None or (package.parts[0] != PACKAGE and stale):  # kernels of tests are made of helpers, too
                continue
            _make_private(kernels / folder.name)
            for file in folder.iterdir():
                stem = file.name.partition(".")[0]
                module = ".".join(package.parts if stem == "__init__" else (*package.parts, stem))
                if module not in stale:
                    os.link(file, kernels / folder.name / file.name)


class Fault:
    """A fault that is in a copy until it is removed."""

    def __init__(self, tree: Tree, path: Path, text: str, number: int) -> None:
        self._tree = tree
        self._path = path
        self._bytes, self._times = path.read_bytes(), path.stat()
        self._warm = tree.kernels
        later = self._times.st_mtime_ns + (LATER + number) * 10**9
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=(self._times.st_atime_ns, later))

    def remove(self) -> None:
        """Put back the file as it was, with its time, and forget kernels that were compiled with the fault."""
        try:
            faulty: Path | None = self._tree.kernels
        except Exception:  # the fault may be in what is asked
            faulty = None
        self._path.write_bytes(self._bytes)
        os.utime(self._path, ns=(self._times.st_atime_ns, self._times.st_mtime_ns))
        if faulty is not None and faulty != self._warm:
            shutil.rmtree(faulty, ignore_errors=True)


def sources_hash(root: Path) -> str:
    """What `sources_hash` of jit.py in that copy would say, without the seconds that it takes to import numba."""
    path = root / PACKAGE / "jit.py"
    wanted = ("WITHOUT_KERNELS", "sources_hash")
    body = [
        node
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if getattr(node, "name", "") in wanted
        or (isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in wanted)
    ]
    names = {
        "hashlib": hashlib,
        "Path": Path,
        "numba": SimpleNamespace(__version__=importlib.metadata.version("numba")),
        "__file__": str(path),
    }
    exec(compile(ast.Module(body, []), str(path), "exec"), names)
    return str(names["sources_hash"]())  # type: ignore[operator]


def subpath(folder: Path) -> str:
    """The directory that numba has for kernels whose sources are in a folder."""
    return f"{folder.name}_{hashlib.sha1(str(folder).encode()).hexdigest()}"


def _sources(root: Path) -> list[Path]:
    return [*(root / PACKAGE).rglob("*.py"), *(root / "tests").rglob("*.py")]


def _make_private(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
