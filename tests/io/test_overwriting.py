"""No output may be an input or another output, by whatever name: nothing is lost, whichever command it is."""

import os
import subprocess
import sys

import pytest

from streamsvm import follow, load_settings, train, tune
from streamsvm.errors import ConfigError
from streamsvm.io.overwriting import refuse_overwriting

ROWS = "label,a,b\n" + "".join(f"{row % 2},{row},{row % 7}\n" for row in range(60))
OTHER = ("symbolic", "hard", "relative", "absolute", "url", "link to the directory")


@pytest.fixture
def place(run, tmp_path):
    """A table, a model of it, a log, settings and a directory of data, in the directory in which commands run."""
    (tmp_path / "x.csv").write_text(ROWS)
    (tmp_path / "log").write_text("1 1:2\n0 1:3\n" * 20)
    (tmp_path / "days").mkdir()
    (tmp_path / "days" / "a.csv").write_text(ROWS)
    (tmp_path / "conf.yaml").write_text("data: {train: x.csv}\noutput: {model: conf.yaml}\n")
    code, _, err = run("train", "x.csv", "-o", "m", "--quiet")
    assert code == 0, err
    (tmp_path / "m.onnx").write_bytes((tmp_path / "m").read_bytes())
    return tmp_path


def files(directory):
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("train x.csv -o x.csv", "x.csv: the model (output.model) would overwrite the training data (data.train)"),
        ("train days -o days/a.csv", "days/a.csv: the model (output.model) would overwrite the training data"),
        ("train days/*.csv -o days/a.csv", "days/a.csv: the model (output.model) would overwrite the training data"),
        ("train days --test x.csv -o x.csv", "x.csv: the model (output.model) would overwrite the test data"),
        ("train x.csv --report x.csv -o new", "x.csv: the report (output.report) would overwrite the training data"),
        ("train x.csv --cache x.csv --passes 2 -o new", "x.csv: the cache (run.cache) would overwrite the training"),
        ("train x.csv --checkpoint new -o new", "new: the model (output.model) and the directory of checkpoints"),
        ("train x.csv -o same --report same", "same: the model (output.model) and the report (output.report) cannot"),
        ("train x.csv -o same --report ./same", "./same: the model (output.model) and the report (output.report)"),
        ("train x.csv --init m -o m", "m: the model (output.model) would overwrite the model to begin with"),
        ("train x.csv conf.yaml", "conf.yaml: the model (output.model) would overwrite the settings (CONFIG.yaml)"),
        ("tune x.csv -o x.csv", "x.csv: the model (output.model) would overwrite the training data (data.train)"),
        ("predict m x.csv -o x.csv", "x.csv: the output (-o) would overwrite the data (DATA); choose another name"),
        ("predict m x.csv -o m", "m: the output (-o) would overwrite the model (MODEL)"),
        ("predict m days/*.csv -o days/a.csv", "days/a.csv: the output (-o) would overwrite the data (DATA) days/*"),
        ("evaluate m x.csv --report x.csv", "x.csv: the report (--report) would overwrite the data (DATA)"),
        ("evaluate m x.csv --report m", "m: the report (--report) would overwrite the model (MODEL)"),
        ("convert x.csv x.csv --to jsonl", "x.csv: the output (OUT) would overwrite the input (IN); choose another"),
        ("export m.onnx m.onnx", "m.onnx: the output (OUT) would overwrite the model (MODEL); choose another name"),
        ("follow log -o log --until-idle", "log: the model (output.model) would overwrite the training data"),
        ("follow log -o log.1 --until-idle", "log.1: the model (output.model) would overwrite the training data"),
        ("follow days/* -o days/m --until-idle", "days/m: the model (output.model) would overwrite the training data"),
        ("follow days -o days/m --until-idle", "days/m: the model (output.model) would overwrite the training data"),
        ("follow log --checkpoint log -o new --until-idle", "log: the directory of checkpoints (checkpoint.dir) would"),
    ],
)
def test_an_output_that_is_an_input_is_refused_and_nothing_is_touched(run, place, command, told):
    before = files(place)
    code, out, err = run(*command.split())
    lines = [line for line in err.splitlines() if not line.startswith(("# ", "compiling ", "features: "))]
    assert (code, out, len(lines)) == (2, "", 1) and lines[0].startswith(f"streamsvm: {told}"), err
    assert files(place) == before


@pytest.mark.parametrize("name", OTHER)
@pytest.mark.parametrize("command", ["train", "predict"])
def test_another_name_of_the_input_is_the_input(run, place, command, name):
    if name == "symbolic":
        os.symlink("x.csv", place / "y.csv")
    elif name == "hard":
        os.link(place / "x.csv", place / "y.csv")
    elif name == "link to the directory":
        os.symlink(place, place / "here")
    names = {"relative": "days/../x.csv", "absolute": str(place / "x.csv"), "url": f"file://{place}/x.csv"}
    output = names.get(name, "here/x.csv" if name.startswith("link to") else "y.csv")
    given = ["train", "x.csv"] if command == "train" else ["predict", "m", "x.csv"]
    code, _, err = run(*given, "-o", output)
    assert code == 2 and "would overwrite" in err and (place / "x.csv").read_text() == ROWS


def test_standard_streams_that_lead_to_a_file_are_that_file(run, place):
    def ended(command):
        command = command.replace("streamsvm", f"{sys.executable} -m streamsvm")
        done = subprocess.run(command, shell=True, cwd=place, capture_output=True, text=True)
        return done.returncode, done.stderr

    assert ended("streamsvm predict m - -o x.csv < x.csv")[0] == 2
    assert ended("streamsvm predict m x.csv >> x.csv")[0] == 2
    assert (place / "x.csv").read_text() == ROWS
    assert ended("streamsvm predict m x.csv > y.txt") == (0, "")


def test_the_rule_holds_in_python_too(place):
    given = {"data.train": "x.csv", "output.model": "./x.csv"}
    for command in (train, tune):
        with pytest.raises(ConfigError, match=r"\./x\.csv: the model \(output\.model\) would overwrite"):
            command(load_settings(overrides=given))
    with pytest.raises(ConfigError, match=r"would overwrite"):
        follow(load_settings(overrides={**given, "data.train": "*.csv", "output.model": "new.csv"}))
    assert (place / "x.csv").read_text() == ROWS


def test_objects_are_told_by_their_bucket_and_key(bucket):
    bucket.pipe("/b/days/a.csv", ROWS.encode())
    for read in ("memory://b/days/a.csv", "memory:///b/days/a.csv", "memory://b/days", "memory://b/days/*.csv"):
        with pytest.raises(ConfigError, match="would overwrite"):
            refuse_overwriting([("the output", "memory://b/days/a.csv")], [("the data", read)])
    refuse_overwriting([("the output", "memory://b/days/b.csv")], [("the data", "memory://b/days")])
    refuse_overwriting([("the output", "memory://b/days/b.csv")], [("the data", "b/days")])


def test_parts_of_an_output_are_each_a_place(tmp_path):
    (tmp_path / "part-00001.csv").write_text(ROWS)
    data = [("the data", str(tmp_path / "part-00001.csv"))]
    for read in (data, [("the data", str(tmp_path))]):
        with pytest.raises(ConfigError, match="would overwrite"):
            refuse_overwriting([("the output", str(tmp_path / "part-*.csv"))], read)
    refuse_overwriting([("the output", str(tmp_path / "other-*.csv"))], data)


def test_what_cannot_be_overwritten_may_be_named_twice(run, place):
    assert run("train", "x.csv", "-o", "/dev/null", "--report", "/dev/null", "--quiet")[0] == 0
    assert run("predict", "m", "x.csv", "-o", "days/new.txt")[0] == 0


def test_references_to_the_environment_are_followed_and_never_printed(run, place, monkeypatch):
    monkeypatch.setenv("WHERE", "x.csv")
    code, _, err = run("train", "x.csv", "-o", "${WHERE}")
    assert code == 2 and "${WHERE}: the model (output.model) would overwrite" in err
