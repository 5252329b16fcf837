"""Mistakes of new users: each is told in one line that names the place and what to do, with the right exit code."""

import os
import pickle
import random
import re
import sqlite3
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsvm.cli import mistaken
from streamsvm.cli.app import app
from streamsvm.cli.flags import FORMATS
from streamsvm.offered import LOSSES, SOLVERS

ROOT = Path(__file__).parents[1]
CSV = "clicked,age,city\n" + "".join(f"{row % 2},{row},{'abc'[row % 3]}\n" for row in range(60))


def libsvm(rows: int = 60) -> str:
    draw = random.Random(1)
    return "".join(f"{draw.choice(['+1', '-1'])} 1:{draw.random():.2f} 7:1\n" for _ in range(rows))


@pytest.fixture
def place(run, tmp_path):
    """A directory with the files that people have, right and wrong."""
    texts = {
        "a.svm": libsvm(),
        "t.csv": CSV,
        "no_header.csv": CSV.split("\n", 1)[1],
        "svm.csv": libsvm(),
        "csv.parquet": CSV,
        "list.json": '[{"clicked":1,"age":3},{"clicked":0,"age":4}]\n',
        "page.svm": "<!DOCTYPE html>\n<html><body>404</body></html>\n",
        "t.arff": "% a comment\n@RELATION clicks\n@attribute age numeric\n@data\n1,0\n",
        "indent.yaml": "data:\n  train: a.svm\n label: x\n",
        "colon.yaml": "output:\n  model: a: b\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "utf16.csv").write_bytes(CSV.encode("utf-16"))
    pq.write_table(pa.table({"clicked": [0, 1] * 30, "age": [1.0, 2.0] * 30}), tmp_path / "t.parquet")
    (tmp_path / "parquet.svm").write_bytes((tmp_path / "t.parquet").read_bytes())
    np.save(tmp_path / "t.npy", np.eye(3))
    (tmp_path / "t.pkl").write_bytes(pickle.dumps({"a": [1, 2]}))
    with sqlite3.connect(tmp_path / "t.db") as database:
        database.execute("create table t (a)")
    database.close()
    with zipfile.ZipFile(tmp_path / "t.xlsx", "w") as book:
        book.writestr("[Content_Types].xml", "<Types/>")
    for name, mode in (("t.tar", "w"), ("t.tar.gz", "w:gz")):
        with tarfile.open(tmp_path / name, mode) as archive:
            archive.add(tmp_path / "a.svm", "a.svm")
    (tmp_path / "directory").mkdir()
    return tmp_path


def told(run, command: str) -> tuple[int, str]:
    """The exit code and the one line that is told; nothing is printed beside it, and there is no traceback."""
    code, out, err = run(*command.split())
    lines = [line for line in err.splitlines() if not line.startswith(("# ", "compiling ", "features: "))]
    assert out == "" and len(lines) == 1, err
    assert lines[0].startswith("streamsvm: ")
    return code, lines[0].removeprefix("streamsvm: ")


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        # Files that are no rows, or not those that they seem to be.
        ("train utf16.csv --label clicked", 3, "utf16.csv: this is text in UTF-16; convert it: iconv"),
        ("train t.xlsx", 3, "t.xlsx: this is a zip archive, not text; unpack it; of a workbook (.xlsx) save"),
        ("train t.npy", 3, "t.npy: this is a NumPy array, not text; write it as Parquet or CSV"),
        ("train t.pkl", 3, "t.pkl: this is a Python pickle, which is never opened; write Parquet or CSV"),
        ("train t.db", 3, "t.db: this is an SQLite database, not text; export a table of it as CSV"),
        ("train t.tar", 3, "t.tar: this is a tar archive, not text; unpack it"),
        ("train t.tar.gz", 3, "t.tar.gz: this is a tar archive, not text; unpack it"),
        ("train page.svm", 3, "page.svm: this is a web page, not data; is this the right address?"),
        ("train t.arff", 3, "t.arff: this is an ARFF file; delete all up to @data, and name it .csv"),
        ("train list.json --label clicked", 4, "list.json:1: this is not a JSON object but a list; put"),
        ("train a.svm --format parquet", 3, "a.svm: cannot read this Parquet file: it begins with b'"),
        ("train csv.parquet", 3, "csv.parquet: cannot read this Parquet file: it begins with b'clicked,age,'; leave"),
        ("train parquet.svm", 3, "parquet.svm: this is a Parquet file, not text; name or convert files of one"),
        ("train svm.csv", 2, "svm.csv: this looks like LIBSVM text, not CSV: use --format libsvm, or name it .svm"),
        ("train a.svm --format csv", 2, "a.svm: this looks like LIBSVM text, not CSV"),
        ("train no_header.csv --label clicked", 2, "data.label: there is no column clicked: without a header columns"),
        ("train b.svm", 3, "b.svm: no such file or directory (did you mean a.svm?)"),
        ("train something_else.svm", 3, "something_else.svm: no such file or directory"),
        # Models and data, and where models go.
        ("predict a.svm a.svm", 5, "a.svm: not a streamsvm model; the model is named first, then the data"),
        ("evaluate t.csv a.svm", 5, "t.csv: not a streamsvm model; the model is named first, then the data"),
        ("train a.svm -o directory", 3, "directory: cannot write: this is a directory; name a file in it"),
        ("train a.svm -o t.csv/model.st", 3, "t.csv/model.st: cannot write: "),
        # Settings.
        ("train indent.yaml", 2, "indent.yaml:3: not valid YAML: this line is indented neither like the one above"),
        ("train colon.yaml", 2, "colon.yaml:2: not valid YAML: mapping values are not allowed here; is the line above"),
        # Words of other programs.
        ("train a.svm --lr 0.1", 2, "--lr: the first step size is --eta0"),
        ("train a.svm --learning_rate=0.1", 2, "--learning-rate: the first step size is --eta0"),
        ("train a.svm --epochs 3", 2, "--epochs: sweeps over the data are --passes"),
        ("tune a.svm --alpha 3", 2, "--alpha: the penalty is --l2, or --C on the scale of LIBLINEAR"),
        ("train a.svm -c 1", 2, "-c: the penalty of LIBLINEAR is --C"),
        ("train --config a.yaml", 2, "--config: settings are named without a flag, as in: streamsvm train my.yaml"),
        ("predict --model m.st a.svm", 2, "--model: a model is named without a flag"),
        ("fit a.svm", 2, "fit: that is called train here"),
        ("a.svm", 2, "a.svm: a command comes first, as in: streamsvm train a.svm"),
        ("m.safetensors", 2, "m.safetensors: a command comes first, as in: streamsvm inspect m.safetensors"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_in_one_line(run, place, command, code, text):
    found = told(run, command)
    assert found[0] == code and found[1].startswith(text), found
    assert list(place.glob("model.safetensors")) == []


def test_a_file_that_is_not_there_is_not_taken_for_any_other(run, place):
    assert "did you mean" not in told(run, "train something_else.svm")[1]


def test_a_model_is_no_data(run, place):
    assert run("train", "a.svm", "-o", "m.safetensors", "-q")[0] == 0
    told_text = "m.safetensors: this is a model (safetensors), not data; the model is named first, then the data"
    assert told(run, "train m.safetensors") == (3, told_text)
    assert told(run, "predict m.safetensors m.safetensors") == (3, told_text)


def test_a_label_of_libsvm_text_is_told_to_be_useless(run, place):
    code, _, err = run("train", "a.svm", "--label", "click", "-o", "m.safetensors")
    assert code == 0 and "warning: --label click is not used: a row of LIBSVM text begins with its label\n" in err


def test_follow_names_the_command_that_a_checkpoint_is_of(run, place):
    assert run("train", "a.svm", "--checkpoint", "kept", "-o", "m.safetensors", "-q")[0] == 0
    code, text = told(run, "follow a.svm --checkpoint kept -o live.safetensors --until-idle")
    assert code == 5
    assert "this checkpoint is of streamsvm train, not follow; name another directory with --checkpoint" in text


def test_typos_are_corrected(run):
    code, _, err = run("trian", "a.svm")
    assert code == 2 and "Did you mean 'train'?" in err
    code, _, err = run("train", "a.svm", "--solvr", "sgd")
    assert code == 2 and "--solver" in err


def commands():
    """Each command with its options, as typer has them."""
    import typer.main

    group = typer.main.get_command(app)
    return {name: {option for p in found.params for option in p.opts} for name, found in group.commands.items()}


def test_words_of_other_programs_are_none_of_ours():
    ours = commands()
    assert set(mistaken.COMMANDS) == set(ours)
    assert not set(mistaken.OTHER_COMMANDS) & set(ours)
    assert set(mistaken.OTHER_COMMANDS.values()) <= set(ours)
    for name, options in ours.items():
        assert not options & set(mistaken.OTHER_FLAGS), name
    every = set().union(*ours.values())
    for text in mistaken.OTHER_FLAGS.values():
        assert set(re.findall(r"--[A-Za-z0-9-]+", text)) <= every, text


def test_values_and_paths_are_no_words_of_other_programs():
    assert mistaken.advice([]) is None
    assert mistaken.advice(["train", "a.svm", "--loss=hinge", "-o", "x"]) is None
    assert mistaken.advice(["train", "--", "--lr"]) is None
    assert mistaken.advice(["--help"]) is None and mistaken.advice(["trian"]) is None


@pytest.mark.parametrize("command", sorted([*mistaken.COMMANDS, "config show", "config validate", "config init"]))
def test_help_has_an_example(run, command):
    code, out, _ = run(*command.split(), "--help")
    assert code == 0
    assert command == "config" or f"Example: streamsvm {command} " in " ".join(out.split()).replace(
        "zcat new.svm.gz | ", ""
    )


# Tab completion, in processes of their own, as shells do it.


@pytest.fixture
def completed(tmp_path, monkeypatch):
    """What tab offers after some words."""
    script = tmp_path / "streamsvm"
    script.write_text(
        "import os, sys\n"
        "exit = os._exit\n"
        "def ended(code):\n"
        "    heavy = {'numba', 'pyarrow', 'numpy', 'streamsvm.config'} & set(sys.modules)\n"
        "    exit(99 if heavy else code)\n"
        "os._exit = ended\n"
        "from streamsvm.cli import main\n"
        "main()\n"
    )

    def completed(shell: str, words: str) -> str:
        asked = {
            "_STREAMSVM_COMPLETE": f"complete_{shell}",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
            "_TYPER_COMPLETE_ARGS": words,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        }
        done = subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, **asked},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 and done.stderr == "", done
        return done.stdout

    return completed


def test_bash_completes_commands_flags_and_values(completed):
    assert set(completed("bash", "streamsvm ").split()) == set(mistaken.COMMANDS)
    assert completed("bash", "streamsvm train --sol").split() == ["--solver"]
    assert completed("bash", "streamsvm train --solver ").split() == list(SOLVERS)
    assert completed("bash", "streamsvm train a.svm --loss ").split() == list(LOSSES)
    assert completed("bash", "streamsvm predict m.safetensors a.svm --format ").split() == list(FORMATS)
    assert completed("bash", "streamsvm tune --loss hinge,l").split() == ["hinge,logistic"]


@pytest.mark.full
def test_zsh_and_fish_complete_too(completed):
    assert '"newton"' in completed("zsh", "streamsvm train --solver n")
    assert '"train":"' in completed("zsh", "streamsvm tr")
    assert completed("fish", "streamsvm train --solver ne").split() == ["newton"]
    assert completed("fish", "streamsvm tr").startswith("train\t")


def test_a_run_does_not_wait_for_libraries_that_it_does_not_need(place):
    """SciPy is imported by numba wherever it is installed, but for the command."""
    ended = (
        "import os, sys\nos._exit = lambda code: print(sorted(sys.modules)) or sys.stdout.flush() or sys.exit(code)\n"
    )
    command = ended + "from streamsvm.cli import main\nmain()\n"
    words = [sys.executable, "-c", command, "train", "a.svm", "-o", "m.safetensors", "-q"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "'numba'" in done.stdout
    for name in ("scipy.linalg", "pandas", "sklearn", "matplotlib", "pyarrow"):
        assert f"'{name}'" not in done.stdout, name
