"""The README's commands and code, and the examples, are executed as they stand."""

import ast
import importlib
import os
import re
import runpy
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]}
README = PAGES["README.md"]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A directory that has what the README's commands name, and a `streamsvm` command on the path."""
    for name in ("configs", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    tools = tmp_path / "bin"
    tools.mkdir()
    command = tools / "streamsvm"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "from streamsvm.cli import main; main()" "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.timeout(900)  # where nothing is compiled yet, every command compiles its kernels
@pytest.mark.skipif(os.name != "posix", reason="shell")
@pytest.mark.whole
@pytest.mark.parametrize("shell", [False, pytest.param(True, marks=pytest.mark.full)], ids=["quickly", "as typed"])
def test_readme_commands(project, run, shell):
    """Quickly: in this process, but for what only a shell can do; the first command has a test of its own."""
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.strip()]
    assert len(lines) >= 6
    assert lines[0] == "pip install . && streamsvm train configs/quickstart.yaml"
    for line in lines if shell else lines[1:]:
        line = line.removeprefix("pip install . && ")
        if shell or "|" in line or ">" in line:
            done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=120, check=False)
            code, err = done.returncode, done.stderr
        else:
            code, _, err = run(*shlex.split(line)[1:])
        assert code == 0, (line, err)
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


def test_readme_python(project):
    exec(compile("\n".join(blocks("python")), "README.md", "exec"), {})


EXAMPLES = {  # what each must print, as patterns
    "quickstart.py": [
        r"test error 1[45]\.\d\d %, AUC 0\.90\d\d on 16,281 rows",
        r"largest weights: (feature \d+: .*, )?feature 61: \+",
    ],
    "out_of_core.py": [
        r"data     122 MB",
        r"at once: MemoryError",
        r"asgd     test error 11\.\d\d %; 3 passes, .* peak memory [1-5]?\d MB",
        r"dcd      test error 1[01]\.\d\d %, at most 0\.\d % above the optimum; .* peak memory [1-5]?\d MB",
    ],
    "follow.py": [r'lines such as\n\{"id":"v000000","click":0', r"16,000 lines of [45] files", r"bit for bit: True"],
    "kill_and_resume.py": [r"(killed; stands   pass \d+ of 500.*\n){3}identical, bit for bit: True"],
    "parquet_categories.py": [
        r"site=forum \* ad=ad55",
        r"id +user +ad +click  prediction probability\n +v016000 +u0 +ad59 +0 +0 +0\.\d{3}\n",
        r"AUC 0\.81\d\d on 4,000 examples\nParquet and CSV give the same figures: True",
    ],
    "s3.py": [
        r"test error 1[45]\.\d\d %",
        r"shop/checkpoints/checkpoint-\d+\.safetensors\n(.*\n)*.*shop/models/income",
        r"is the same: True\ncredentials in the bucket: False",
    ],
    "compare_solvers.py": [
        r"the least objective is 0\.42205\d\d",
        *(rf"\n{name} .*e-0\d" for name in ("asgd", "sgd", "sgdqn", "zhang", "folos", "adagrad", "ftrl")),
        *(rf"\n{name} " for name in ("pegasos", "dcd", "newton", "ocas", "bmrm")),  # how far is a matter of time
    ],
    "beyond_linear.py": [
        r"linear +test error [45]\d\.\d\d %; rows as they are",
        r"\nrbf +test error  0\.\d\d %; bins, 3 columns become",
        r"\nnystroem +test error  [12]\.\d\d %",
        r"\npolynomial +test error  0\.\d\d %",
    ],
    "pegasos_surprise.py": [r"(?s)test error is 16 %.* times less work.*test error is 18 %.* times less work"],
    "sklearn_pipeline.py": [r"test error 1[45]\.\d\d %", r"AUC 0\.7[89]\d on 4,000 rows", r"bit for bit: True"],
    "stream_from_memory.py": [r"124 weights", r"identical, bit for bit: True"],
}  # fmt: skip


QUICK = ("quickstart.py", "stream_from_memory.py", "beyond_linear.py", "sklearn_pipeline.py", "follow.py")


@pytest.mark.parametrize("example", QUICK)
def test_quick_examples_in_this_process(project, capfd, example):
    runpy.run_path(f"examples/{example}", run_name="__main__")
    sys.stdout.flush()
    printed, err = capfd.readouterr()
    assert err == ""
    for wanted in EXAMPLES[example]:
        assert re.search(wanted, printed), (wanted, printed)


@pytest.mark.full
@pytest.mark.timeout(900)  # where nothing is compiled yet, every example compiles its kernels
@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_examples(project, example):
    if example == "out_of_core.py" and not sys.platform.startswith("linux"):
        pytest.skip("RLIMIT_DATA")
    done = subprocess.run(
        [sys.executable, f"examples/{example}"], capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for wanted in EXAMPLES[example]:
        assert re.search(wanted, done.stdout), (wanted, done.stdout)
    if example in ("compare_solvers.py", "pegasos_surprise.py") and find_spec("matplotlib"):
        assert (project / "out" / example.replace(".py", ".svg")).read_text().rstrip().endswith("</svg>")


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_name_what_there_is(example):
    """Those that take long are at least read: what they import of this package, and the files they open, exist."""
    text = (ROOT / "examples" / example).read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text, example)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("streamsvm"):
            module = importlib.import_module(str(node.module))
            assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)
    assert all((ROOT / name).exists() for name in re.findall(r"examples/data/[\w.]+gz", text))


def test_exact_solvers_come_as_close_as_is_compared(project, monkeypatch):
    """What compare_solvers.py shows after a second, without a clock: both that prove a gap of a millionth have it."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    import compare_solvers as comparison

    optimum = comparison.run("newton", **{"solver.tol": 1e-8})["objective"]
    assert f"{optimum:.7f}".startswith("0.42205")
    for name in ("dcd", "newton"):
        watch = comparison.Watch()
        comparison.run(name, watch, **{"solver.tol": 1e-6})
        assert watch.curve[-1][1] / optimum - 1 < 1e-5
        assert comparison.time_to(1e-3, watch.curve, optimum).strip() != "-"


@pytest.mark.full
def test_pegasos_needs_less_work_with_more_rows(project, monkeypatch):
    """Counted in examples: from the fewest rows that are enough to the most, less and less."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    import pegasos_surprise as surprise

    sizes = (700, 1400, 4000, 16000)
    works = [
        surprise.least_work([surprise.draw_sample(size, seed) for seed in surprise.SEEDS], 0.18).examples
        for size in sizes
    ]
    assert works == sorted(works, reverse=True)
    assert works[0] > 4 * works[1] > 6 * works[-1]
    too_few = [surprise.draw_sample(300, seed) for seed in surprise.SEEDS]
    assert surprise.least_work(too_few, 0.18) == surprise.Work()


def test_doctests(project):
    """Every example in a docstring is true, and every public function and class has one."""
    import doctest
    import pkgutil

    import streamsvm

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


PRESETS = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
def test_presets_say_how_they_are_used_and_work(run, tmp_path, preset):
    """The command in the comment, as it stands, on the data it names."""
    for name in ("configs", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    comment = [line for line in preset.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    (command,) = [line.removeprefix("#   ") for line in comment if line.startswith("#   streamsvm ")]
    _, *words = shlex.split(command)
    assert f"configs/{preset.name}" in words
    if words[0] == "follow":
        assert run("convert", "examples/data/clicks.train.csv.gz", "clicks.log", "--to", "jsonl")[0] == 0
        words += ["--until-idle", "--set", "follow.idle=100ms", "--set", "follow.metrics=null"]
    code, out, err = run(*words)
    assert code == 0, err
    assert "\nmodel    " in out
