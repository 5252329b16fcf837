"""Fixtures for every room. The kernels' cache is the user's own (STREAMSVM_CACHE_DIR), kept between tests and runs."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from tiers import pytest_addoption, pytest_collection_modifyitems, pytest_configure  # noqa: F401

import streamsvm.cli

# Processes that tests start, in whatever directory, have the copy of the package that the tests have: another one would
# compile its kernels once more.
HOME = Path(__file__).parents[1]
if Path(streamsvm.__file__).parents[1] == HOME:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HOME), os.environ.get("PYTHONPATH")]))


def crew() -> list[str]:
    """The names of this package's threads that are running."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("streamsvm")]


@pytest.fixture(autouse=True)
def no_stray_threads() -> Iterator[None]:
    """No test leaves a thread of ours behind."""
    yield
    assert crew() == []


@pytest.fixture
def threads() -> Callable[[], list[str]]:
    return crew


@pytest.fixture
def put(tmp_path: Path) -> Callable[[str, bytes], str]:
    """Writes a file into the test's directory and returns its path."""

    def put(name: str, content: bytes) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return str(path)

    return put


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Writes lines of text into a file of the test's directory and returns its path."""

    def write(lines: list[str], name: str = "rows.svm") -> str:
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    return write


@pytest.fixture
def bucket() -> Iterator[Any]:
    """fsspec's memory:// file system, empty before and after."""
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    yield filesystem
    filesystem.store.clear()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    """Runs a command in this process, in an empty directory; returns exit code, output, errors."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["streamsvm", *map(str, arguments)])
        capfd.readouterr()
        code = streamsvm.cli.run()
        sys.stdout.flush()
        out, err = capfd.readouterr()
        return code, out, err

    return run
