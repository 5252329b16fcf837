"""The README's commands and code, and the examples, are executed as they stand."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]}
README = PAGES["README.md"]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A directory that has what the README's commands name, and a `streamsvm` command on the path."""
    for name in ("configs", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name)
    tools = tmp_path / "bin"
    tools.mkdir()
    command = tools / "streamsvm"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "from streamsvm.cli import main; main()" "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def blocks(language, page=README):
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


@pytest.mark.timeout(900)  # where nothing is compiled yet, every command compiles its kernels
@pytest.mark.skipif(os.name != "posix", reason="shell")
@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if "```sh" in text])
def test_commands(project, page):
    lines = [line for block in blocks("sh", PAGES[page]) for line in block.splitlines() if line.strip()]
    for line in lines:
        line = line.removeprefix("pip install . && ")
        done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, (line, done.stderr)
    if page == "README.md":
        assert len(lines) >= 6
        assert len((project / "out/scores.txt").read_text().splitlines()) == 16281
        assert len((project / "out/labels.txt").read_text().splitlines()) == 16281


def test_readme_output_is_what_is_printed(project):
    done = subprocess.run(
        ["streamsvm", "train", "configs/quickstart.yaml"], capture_output=True, text=True, timeout=120, check=True
    )
    shown = next(block for block in blocks("text") if "trained" in block).splitlines()
    printed = done.stdout.splitlines()
    assert [line for line in shown if line.startswith(("train ", "chances ", "test ", "model "))] == printed[1:]
    assert any(line.startswith("step size") for line in shown)
    assert next(line for line in shown if line.startswith("step size")) in done.stderr.splitlines()


@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if "```python" in text])
def test_python(project, page):
    (project / "out").mkdir()
    code = "\n".join(blocks("python", PAGES[page]))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_examples(project, example):
    done = subprocess.run(
        [sys.executable, f"examples/{example}"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "identical, bit for bit: True" in done.stdout or "test error 1" in done.stdout


def test_doctests(monkeypatch):
    """Every example in a docstring is true, and every public function and class has one."""
    import doctest
    import importlib
    import pkgutil

    import streamsvm

    monkeypatch.chdir(ROOT)
    tried = {}
    for module in pkgutil.walk_packages(streamsvm.__path__, "streamsvm."):
        if ">>> " in (ROOT / (module.name.replace(".", "/") + ("/__init__.py" if module.ispkg else ".py"))).read_text():
            result = doctest.testmod(importlib.import_module(module.name))
            assert result.failed == 0, module.name
            tried[module.name] = result.attempted
    assert sum(tried.values()) > 40
    unshown = {name for name in streamsvm.__all__ if ">>> " not in (getattr(streamsvm, name).__doc__ or "")}
    assert unshown == {"Settings", "__version__"}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    home = ROOT if page == "README.md" else ROOT / "docs"
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGES[page])
    assert all((home / target).exists() for target in targets if "://" not in target), targets


def test_every_page_can_be_found():
    assert all(f"docs/{name}" in README for name in PAGES if name != "README.md")


def test_every_solver_and_loss_is_documented():
    from streamsvm.losses import LOSSES
    from streamsvm.solvers import SOLVERS

    assert all(f"`{name}`" in README for name in [*SOLVERS, *LOSSES])


def test_examples_are_listed():
    listed = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    assert all(f"`{path.name}`" in listed for path in (ROOT / "examples").glob("*.py"))
