"""The pages in docs/: the reference is what the commands say, and what stands in `sh` and `python` blocks runs."""

import gzip
import re
import shlex
import subprocess
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from streamsvm.config import load_settings

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
FROM_OTHERS = [page for page in PAGES if page.name.startswith("from-")]
SHARE = 8  # one row of a9a in so many is learned in the core
FLAG = re.compile(r"--?[A-Za-z][A-Za-z0-9-]*")


def generator() -> Any:
    spec = spec_from_file_location("generate_cli", ROOT / "docs/generate_cli.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CLI = generator()
COMMANDS = CLI.commands()
REFERENCE = (ROOT / "docs/cli.md").read_text(encoding="utf-8")


def own_flags(command: Any) -> set[str]:
    return {flag for p in command.params for flag in (*p.opts, *p.secondary_opts) if flag.startswith("-")}


# The reference.


def test_the_reference_is_what_the_commands_say() -> None:
    assert CLI.render() == REFERENCE, "run: python docs/generate_cli.py"
    assert "\x1b" not in REFERENCE and max(map(len, REFERENCE.splitlines())) <= 120


def test_every_command_and_flag_is_in_it() -> None:
    from streamsvm.cli.app import app
    from streamsvm.cli.config_commands import config_app

    names = {name for name, _ in COMMANDS}
    registered = [c.name or c.callback.__name__ for c in app.registered_commands if c.callback]
    inside = [f"config {c.name or c.callback.__name__}" for c in config_app.registered_commands if c.callback]
    assert names == {*registered, *inside} and {"train", "export", "config show"} <= names
    sections = dict(re.findall(r"^## streamsvm (.*?)\n(.*?)(?=^## |\Z)", REFERENCE, re.DOTALL | re.MULTILINE))
    for name, command in COMMANDS:
        assert own_flags(command) <= set(FLAG.findall(sections[name])) | {"--help", "-h"}, name


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_every_command_has_examples_that_parse(run: Any, name: str, command: Any) -> None:
    found = CLI.examples(command)
    assert found, f"{name} has no example"
    for example in found:
        words = arguments_of(example, name)
        command.make_context(name, list(words))
        if name in ("train", "tune", "follow"):
            code, out, err = run(name, *words, "--print-config")
            assert code == 0 and "data:" in out, (example, err)
    with pytest.raises(Exception, match="no such option|No such option"):
        command.make_context(name, ["--no-such-flag"])


def arguments_of(example: str, name: str) -> list[str]:
    """The words of a line of shell that come after `streamsvm NAME`, up to the next command or redirection."""
    ours = next(part for part in re.split(r" \| ", example) if part.startswith("streamsvm "))
    words = shlex.split(re.split(r" > ", ours)[0])
    assert words[: 1 + len(name.split())] == ["streamsvm", *name.split()], example
    return words[1 + len(name.split()) :]


# The pages.


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def commands_of(page: Path) -> list[str]:
    return [line for block in blocks(page, "sh") for line in block.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def few_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of examples where a9a has fewer rows to learn from; what is quick anyway is as it is."""
    place = tmp_path_factory.mktemp("examples")
    (place / "data").mkdir()
    for file in (ROOT / "examples/data").iterdir():
        if file.name == "a9a.train.svm.gz":
            lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
            some = [line for k, line in enumerate(lines) if k % SHARE == 0 or b" 123:" in line]  # with the last feature
            (place / "data" / file.name).write_bytes(gzip.compress(b"".join(some)))
        else:
            (place / "data" / file.name).symlink_to(file)
    return place


def test_commands_and_code_of_every_page_are_understood(run: Any) -> None:
    """Also of pages that take long to run: every flag and setting is known, and all code is Python."""
    known = dict(COMMANDS)
    checked = 0
    for page in [*PAGES, ROOT / "README.md"]:
        for line in commands_of(page):
            for part in re.split(r" (?:\||&&) ", line):
                if part.startswith("streamsvm "):
                    name = " ".join(part.split()[1 : 3 if part.startswith("streamsvm config ") else 2])
                    words = arguments_of(part, name)
                    known[name].make_context(name, list(words))
                    if name in ("train", "tune", "follow") and "configs/" not in part:
                        code, out, err = run(name, *words, "--print-config")
                        assert code == 0 and "data:" in out, (page.name, line, err)
                    checked += 1
        for code_block in blocks(page, "python"):
            compile(code_block, page.name, "exec")
    assert checked > 50


@pytest.mark.timeout(900)  # where nothing is compiled yet, every command compiles its kernels
@pytest.mark.whole
@pytest.mark.parametrize(
    ("page", "rows"),
    [
        pytest.param(page, rows, marks=[pytest.mark.full] * (rows == "all"), id=f"{page.stem} {rows}")
        for page in PAGES
        for rows in ("few", "all")
        if rows == "all" or page.stem != "cluster"  # whose workers take their time to come, for any rows
    ],
)
def test_commands_and_code_of_a_page_run(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_rows: Path, page: Path, rows: str
) -> None:
    if page.stem in ("cluster", "report"):
        pytest.importorskip("matplotlib", reason="a report needs matplotlib")
    if rows == "few":
        monkeypatch.setenv("STREAMSVM__FOLLOW__IDLE", "100ms")
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "examples").symlink_to(few_rows if rows == "few" else ROOT / "examples")
    (tmp_path / "out").mkdir()
    lines = commands_of(page)
    for line in lines:
        program, *words = shlex.split(line)
        if program != "streamsvm":
            subprocess.run(line, shell=True, check=True, timeout=120)
            continue
        code, _, err = run(*words)
        assert code == 0, (line, err)
    for code_block in blocks(page, "python"):
        exec(compile(code_block, page.name, "exec"), {})
    if page in FROM_OTHERS:
        assert len(lines) >= 6


@pytest.mark.parametrize("page", FROM_OTHERS, ids=lambda page: page.stem)
def test_flags_and_settings_that_a_page_names_exist(page: Path) -> None:
    """In the columns of tables that say what is here; an exact word of another program stands in the other one."""
    known = set().union(*(own_flags(command) for _, command in COMMANDS))
    settings = load_settings()
    checked = 0
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        if len(cells) == 2 and "---" not in line:
            ours = re.findall(r"`([^`]*)`", cells[1])
        elif len(cells) in (4, 5, 6) and "---" not in line:
            ours = re.findall(r"`([^`]*)`", cells[-3 if len(cells) == 6 else -2])
        else:
            continue
        for code in ours:
            assert set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", code)) <= known, (page.name, code)
            checked += 1
            for name in re.findall(r"--set '?([a-z_.0-9]+)=", code):
                section, key = name.split(".")
                assert hasattr(getattr(settings, section), key) or name == "solver.beta", (page.name, name)
    assert checked > 30


def test_pages_are_written_as_the_rest() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        prose = [line for line in re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines() if line[:1] != "|"]
        assert max(map(len, prose)) <= 120 and text.endswith("\n") and "\t" not in text, page.name
