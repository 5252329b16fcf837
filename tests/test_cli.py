"""The command line as a user meets it."""

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from signals import heard

from streamsvm import load_model

ROOT = Path(__file__).parents[1]
TRAIN, TEST = ROOT / "examples/data/a9a.train.svm.gz", ROOT / "examples/data/a9a.test.svm.gz"
COMMAND = [sys.executable, "-c", "from streamsvm.cli import main; main()"]


def write(name, text):
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return name


def small(rows=400, seed=0, labels=("-1", "1"), features=30):
    """Text of a learnable problem."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal(features)
    lines = []
    for _ in range(rows):
        indices = np.sort(rng.choice(features, 6, replace=False))
        values = rng.standard_normal(6).round(4)
        label = labels[int(truth[indices] @ values > 0)]
        lines.append(label + " " + " ".join(f"{j + 1}:{v}" for j, v in zip(indices, values, strict=True)))
    return "\n".join(lines) + "\n"


def weights(name):
    model = load_model(str(name))
    return model.weights.tobytes() + np.float64(model.bias).tobytes()


# Training and what comes after


def test_train_evaluate_predict_inspect(run):
    code, out, err = run("train", TRAIN, "--test", TEST, "-o", "m.safetensors")
    assert code == 0
    assert "error 1" in out and "m.safetensors" in out
    assert err.startswith("# data: {train:") and "step size eta0 = " in err and "l2: 1.0e-06" in err

    code, out, _ = run("evaluate", "m.safetensors", TEST, "--json")
    metrics = json.loads(out)
    assert code == 0 and metrics["examples"] == 16281
    assert metrics["error"] < 0.155 and metrics["auc"] > 0.895 and 0.3 < metrics["log_loss"] < 0.34
    assert np.sum(metrics["confusion"]) == 16281

    code, out, _ = run("predict", "m.safetensors", TEST)
    predicted = out.split("\n")[:-1]
    assert set(predicted) == {"-1", "1"}
    with gzip.open(TEST, "rt") as text:
        wrong = np.mean([p != line.split()[0].lstrip("+") for p, line in zip(predicted, text, strict=True)])
    assert wrong == pytest.approx(metrics["error"])

    code, out, _ = run("predict", "m.safetensors", TEST, "--scores", "-o", "scores.txt")
    assert out == ""
    scores = np.loadtxt("scores.txt")
    assert ["1" if score > 0 else "-1" for score in scores] == predicted

    code, out, _ = run("inspect", "m.safetensors", "--json")
    found = json.loads(out)
    assert found["weights"] == 124 and found["classes"] == [-1, 1] and len(found["top"]) == 10
    assert "norm" in run("inspect", "m.safetensors")[1]


def test_json_lines(run):
    write("a.svm", small())
    code, out, _ = run("train", "a.svm", "--test", "a.svm", "--json", "--passes", 3)
    *progress, result = map(json.loads, out.splitlines())
    assert code == 0
    assert [line["pass"] for line in progress][-1] == 3
    assert progress[0].keys() >= {
        "pass", "examples", "bytes", "features", "loss", "error", "seconds", "objective", "gap"
    }  # fmt: skip
    assert result.keys() >= {
        "examples", "passes", "features", "seconds", "loss", "error", "objective", "dual", "gap", "model", "test"
    }  # fmt: skip
    assert result["examples"] == 1200 and result["passes"] == 3 and result["features"] == 7200
    assert result["objective"] is None and result["model"] == "model.safetensors"
    assert result["test"]["examples"] == 400 and result["test"]["error"] < 0.1


def test_quiet_prints_results_only(run):
    write("a.svm", small())
    code, out, err = run("train", "a.svm", "--quiet")
    assert (code, err) == (0, "") and out.startswith("trained")
    code, out, err = run("train", "a.svm", "-q", "--json")
    assert err == "" and len(out.splitlines()) >= 1


def test_probabilities(run):
    write("a.svm", small())
    run("train", "a.svm", "--loss", "logistic", "-o", "l.st")
    chances = np.array(run("predict", "l.st", "a.svm", "--probabilities")[1].split(), float)
    scores = np.array(run("predict", "l.st", "a.svm", "--scores")[1].split(), float)
    np.testing.assert_allclose(chances, 1 / (1 + np.exp(-scores)))
    assert json.loads(run("evaluate", "l.st", "a.svm", "--json")[1])["log_loss"] < 0.5
    run("train", "a.svm", "--loss", "hinge", "--calibrate", "none", "-o", "h.st")
    code, _, err = run("predict", "h.st", "a.svm", "--probabilities")
    assert code == 5 and "--loss logistic" in err


def test_rows_without_labels_and_unknown_features(run):
    write("a.svm", small())
    run("train", "a.svm")
    write("new.svm", "1:1.5 3:2\n\n5:1 999999:3 # unseen\n-1 2:1\n0\n")
    assert len(run("predict", "model.safetensors", "new.svm")[1].splitlines()) == 4
    code, _, err = run("evaluate", "model.safetensors", "new.svm")
    assert code == 4 and "new.svm:1: the row has no label" in err


# The order of rows alone decides


@pytest.mark.parametrize("solver", ["asgd", "sgd", "pegasos"])
def test_same_bits_whatever_the_machine(run, solver):
    text = small(3000)
    write("a.svm", text)
    write("a.svm.gz", gzip.compress(text.encode()))
    half = text.index("\n", len(text) // 2) + 1
    write("part-1.svm", text[:half])
    write("part-2.svm", text[half:].replace("\n", "\r\n").rstrip("\r\n"))
    wanted = None
    for number, options in enumerate(
        (["a.svm"], ["a.svm.gz", "--threads", 1], ["part-*.svm", "--memory", "64MB"], ["part-1.svm", "part-2.svm"])
    ):
        assert run("train", *options, "--solver", solver, "-o", f"{number}.st", "--passes", 2)[0] == 0
        wanted = wanted or weights(f"{number}.st")
        assert weights(f"{number}.st") == wanted


def test_cache_changes_nothing_but_time(run):
    write("a.svm", small(2000))
    for name, cache in (("auto", "auto"), ("off", "off"), ("kept", "rows.arrow"), ("again", "rows.arrow")):
        options = ["--passes", 3, "--cache", cache, "-o"]
        assert run("train", "a.svm", "--shuffle", 0, *options, f"{name}.st")[0] == 0
        assert run("train", "a.svm", *options, f"{name}-mixed.st")[0] == 0
    assert weights("auto.st") == weights("off.st") == weights("kept.st") == weights("again.st")
    assert weights("auto-mixed.st") == weights("kept-mixed.st") == weights("again-mixed.st") != weights("auto.st")
    assert weights("off-mixed.st") == weights("off.st")  # without a cache, the order of the source
    shuffled = ["--passes", 3, "--shuffle", 300]
    run("train", "a.svm", *shuffled, "-o", "s1.st")
    run("train", "a.svm", *shuffled, "--cache", "rows.arrow", "-o", "s2.st")
    run("train", "a.svm", *shuffled, "--seed", 1, "-o", "s3.st")
    assert weights("s1.st") == weights("s2.st") != weights("s3.st")
    assert "2,000 rows" in run("inspect", "rows.arrow")[1]
    write("a.svm", small(2001))
    code, _, err = run("train", "a.svm", "--cache", "rows.arrow")
    assert code == 5 and "stale cache" in err and "a.svm has changed" in err


def test_temporary_cache_is_removed(run, monkeypatch, tmp_path):
    write("a.svm", small())
    from streamsvm.places import user_cache_directory

    monkeypatch.setenv("STREAMSVM_CACHE_DIR", str(tmp_path / "cache"))  # which no other test writes to meanwhile
    place = user_cache_directory() / "passes"
    assert str(place).startswith(str(tmp_path))
    assert run("train", "a.svm", "--passes", 2)[0] == 0
    assert list(place.glob("*")) == []


def test_limit_and_init(run):
    text = small(3000)
    write("a.svm", text)
    lines = text.splitlines(keepends=True)
    write("first.svm", "".join(lines[:1000]))
    write("rest.svm", "".join(lines[1000:]))
    run("train", "a.svm", "--limit", 1000, "-o", "limited.st")
    run("train", "first.svm", "-o", "first.st")
    assert weights("limited.st") == weights("first.st")
    code, out, err = run("train", "rest.svm", "--init", "first.st", "-o", "more.st", "--json")
    assert code == 0
    model, start = load_model("more.st"), load_model("first.st")
    assert model.online["t"] == start.online["t"] + 2000 and model.online["eta0"] == start.online["eta0"]
    code, _, err = run("train", "rest.svm", "--init", "first.st", "--hash-bits", 8)
    assert code == 5 and "must agree" in err


# Labels and penalties


def test_two_other_classes(run):
    write("a.svm", small(labels=("2", "1")))
    assert run("train", "a.svm", "-o", "first.st")[0] == 0
    assert load_model("first.st").classes == [1, 2] and load_model("first.st").weights.ndim == 1
    assert run("train", "a.svm", "--classes", "2,1", "-o", "declared.st")[0] == 0
    assert load_model("declared.st").classes == [2, 1]
    assert set(run("predict", "declared.st", "a.svm")[1].split()) == {"1", "2"}
    assert run("train", "a.svm", "--passes", 2, "-o", "found.st")[0] == 0
    assert load_model("found.st").classes == [1, 2]
    error = json.loads(run("evaluate", "found.st", "a.svm", "--json")[1])["error"]
    assert error < 0.1
    run("train", "a.svm", "--passes", 2, "--classes", "1,2", "-o", "same.st")
    assert weights("same.st") == weights("found.st")


@pytest.mark.full
def test_two_other_classes_on_standard_input(run):
    write("a.svm", small(labels=("2", "1")))
    assert run("train", "a.svm", "--passes", 2, "-o", "found.st")[0] == 0
    with start("train", "-", "--passes", 2, "-o", "piped.st") as process:
        process.communicate(Path("a.svm").read_bytes(), timeout=60)
    assert weights("piped.st") == weights("found.st")


def test_zero_and_one(run):
    write("a.svm", small(labels=("0", "1")))
    run("train", "a.svm")
    assert set(run("predict", "model.safetensors", "a.svm")[1].split()) == {"0", "1"}


def test_many_classes_where_two_can_be_learned_are_refused_clearly(run):
    write("a.svm", small(labels=("3", "7")) + "5 1:1\n")
    code, _, err = run("train", "a.svm", "--solver", "newton")
    assert code == 2 and "solver newton cannot learn more than two classes" in err
    code, _, err = run("train", "a.svm", "--classes", "3,5,7", "--solver", "bmrm")
    assert code == 2 and "solver bmrm cannot learn more than two classes" in err


def test_c_needs_rows(run):
    write("a.svm", small())
    code, _, err = run("train", "a.svm", "--C", 1)
    assert code == 2 and "--l2" in err and "data.rows" in err
    run("train", "a.svm", "--C", 2, "--set", "data.rows=400", "-o", "rows.st", "--passes", 2)
    run("train", "a.svm", "--C", 2, "-o", "counted.st", "--passes", 2)
    run("train", "a.svm", "--l2", 1 / 800, "-o", "l2.st", "--passes", 2)
    assert weights("rows.st") == weights("counted.st") == weights("l2.st")
    code, _, err = run("train", "a.svm", "--C", 1, "--l2", 1)
    assert code == 2 and "cannot be combined" in err


def test_sorted_data_is_noticed(run):
    lines = small(3000).splitlines(keepends=True)
    write("sorted.svm", "".join(sorted(lines, key=lambda line: line.split()[0])))
    assert "warning: the first 1000 rows have one class" in run("train", "sorted.svm")[2]
    assert "--shuffle" in run("train", "sorted.svm", "-q")[2]
    code, _, err = run("train", "sorted.svm", "--shuffle", 3000)
    assert code == 0 and "warning" not in err
    write("one.svm", "1 1:1\n" * 5)
    assert "all 5 rows have one class" in run("train", "one.svm")[2]


# What goes wrong


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["train", "missing.svm"], 3, ["missing.svm: no such file"]),
        (["train", "empty.svm"], 4, ["no row to learn from"]),
        (["train", "bad.svm"], 4, ["bad.svm:2: '3a:1' is not index:value"]),
        (["train", "cut.svm.gz"], 3, ["cut.svm.gz: truncated"]),
        (["train", "good.svm", "--solver", "sdg"], 2, ["--solver", "did you mean 'sgd'"]),
        (["train", "good.svm", "--passes", "0"], 2, ["--passes", "at least 1"]),
        (["train", "good.svm", "--set", "penalty.lambda=1"], 2, ["penalty.l2"]),
        (["train", "wrong.yaml"], 2, ["wrong.yaml:2: solver.passes", "wrong.yaml:3"]),
        (["train", "missing.yaml"], 2, ["missing.yaml"]),
        (["train", "empty.yaml"], 2, ["no training data"]),
        (["train", "good.svm", "--dim", "3"], 4, ["good.svm:1", "index is too large"]),
        (["train", "huge.svm"], 4, ["4000000000", "hash_bits", "--memory"]),
        (["train", "good.svm", "-o", "/proc/nope/m.st"], 3, ["cannot write"]),
        (["train", "good.svm", "--init", "bad.svm"], 5, ["bad.svm"]),
        (
            ["train", "explode.svm", "--eta0", "1e30", "--scale", "none"],
            4,
            ["diverged in pass 1 at row", "step size 1e+30"],
        ),
        (["train", "table.parquet"], 3, ["table.parquet: cannot read this Parquet file"]),
        (["train", "reference://x"], 3, ["not supported"]),
        (["train", "simplecache::s3://b/x"], 3, ["not supported"]),
        (["train", "-", "-"], 2, ["standard input"]),
        (["predict", "bad.svm", "good.svm"], 5, ["not a streamsvm model"]),
        (["evaluate", "missing.st", "good.svm"], 3, ["missing.st: no such file"]),
        (["inspect", "missing.svm"], 3, ["missing.svm: no such file"]),
        (["config", "validate", "wrong.yaml"], 2, ["wrong.yaml:2"]),
    ],
)
def test_errors_are_one_clear_line(run, arguments, code, words):
    write("good.svm", small(50))
    write("bad.svm", "1 1:1\n1 3a:1\n")
    write("empty.svm", "")
    write("cut.svm.gz", gzip.compress(small().encode())[:-20])
    write("wrong.yaml", "solver:\n  passes: zero\nlos: hinge\ndata: {train: good.svm}\n")
    write("empty.yaml", "")
    write("table.parquet", b"PAR1" + bytes(100))
    write("huge.svm", "1 1:1\n-1 4000000000:1\n")
    write("explode.svm", "1 1:1\n-1 1:1e31\n" * 10)
    found, out, err = run(*arguments)
    assert found == code, err
    assert out == ""
    assert "Traceback" not in err
    errors = [line for line in err.splitlines() if line.startswith("streamsvm: ")]
    assert errors and all(any(word in line for line in errors) for word in words), err
    assert not Path("model.safetensors").exists()


def test_bad_rows_are_skipped_and_reported(run):
    text = small().splitlines()
    text[10] = "1 nonsense"
    text[20] = "1 7:nan"
    write("a.svm", "\n".join(text))
    code, out, err = run("train", "a.svm", "--on-bad-row", "skip", "--json")
    assert code == 0
    assert "skipped 2 malformed rows: a.svm:11: 'nonsense'" in err
    assert json.loads(out.splitlines()[-1])["bad_rows"] == 2
    code, _, err = run("train", "a.svm", "--on-bad-row", "skip", "--set", "data.max_bad_rows=1")
    assert code == 4 and "more than 1 bad row" in err and "a.svm:21" in err


def test_secrets_stay_secret(run, monkeypatch):
    monkeypatch.setenv("BUCKET_TOKEN", "hunter2")
    import fsspec

    with fsspec.open("memory://secrets/a.svm", "wb") as out:
        out.write(small().encode())
    monkeypatch.setenv("DIRECTORY", "secrets")
    code, _, err = run("train", "memory://${DIRECTORY}/a.svm", "-o", "m.st")
    assert code == 0 and "${DIRECTORY}" in err
    assert load_model("m.st").config["data"]["train"] == "memory://${DIRECTORY}/a.svm"
    code, out, err = run("train", "https://user:hunter2@host.invalid/a.svm?token=${BUCKET_TOKEN}")
    assert code == 3 and "hunter2" not in out + err and "token=" not in err
    code, _, err = run("train", "${UNSET_NAME}/a.svm")
    assert code == 2 and "UNSET_NAME" in err


# Configuration


def test_config_commands(run):
    assert json.loads(run("config", "schema")[1])["properties"]["solver"]
    assert run("config", "init", "new.yaml")[0] == 0
    assert run("config", "init", "new.yaml")[0] == 2
    assert run("config", "validate", "new.yaml")[1] == "new.yaml: ok\n"
    shown = run("config", "show", "new.yaml", "--set", "solver.passes=7")[1]
    assert "  passes: 7" in shown
    write("shown.yaml", shown)
    assert run("config", "show", "shown.yaml")[1] == shown
    assert json.loads(run("config", "show", "--json")[1])["loss"] == "squared_hinge"
    assert "passes: 9" in run("train", "new.yaml", "--passes", 9, "--print-config")[1]


def test_every_preset_is_valid(run):
    for path in (ROOT / "configs").glob("*.yaml"):
        assert run("config", "validate", path)[0] == 0


def test_config_trains(run, monkeypatch):
    write("a.svm", small())
    write("c.yaml", "data: {train: a.svm, test: a.svm}\nsolver: sgd\npenalty: {l2: 1e-4}\noutput: {model: out/m.st}\n")
    monkeypatch.setenv("STREAMSVM__SOLVER__PASSES", "2")
    code, out, err = run("train", "c.yaml", "--loss", "hinge")
    assert code == 0 and "name: sgd" in err
    model = load_model("out/m.st")
    assert model.config["solver"]["passes"] == 2 and model.loss == "hinge" and model.provenance["l2"] == 1e-4


@pytest.mark.parametrize("command", ["", "train", "predict", "evaluate", "inspect", "convert", "config", "config show"])
def test_help_has_an_example(run, command):
    code, out, _ = run(*command.split(), "--help")
    assert code == 0
    assert command in ("", "config") or "Example: " in out


def test_no_arguments_show_the_shortest_way(run):
    code, out, _ = run()
    assert code == 0 and "streamsvm train data.svm.gz" in out
    assert run("--version")[1].startswith("streamsvm 0.")
    assert run("trian")[0] == 2


# As processes


def start(*arguments, **kwargs):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | kwargs
    return subprocess.Popen([*COMMAND, *map(str, arguments)], **pipes)


def test_predict_flushes_line_by_line(run):
    write("a.svm", small())
    run("train", "a.svm")
    process = start("predict", "model.safetensors", "-")
    for line in (b"1 1:1 2:3\n", b"3:1\n"):
        process.stdin.write(line)
        process.stdin.flush()
        assert process.stdout.readline().strip() in (b"-1", b"1")
    process.stdin.write(b"5:1")  # no newline at the end
    assert len(process.communicate(timeout=60)[0].splitlines()) == 1
    assert process.returncode == 0


def test_closed_pipe_ends_quietly(run):
    write("a.svm", small(20000))
    run("train", "a.svm", "--limit", 500)
    with start("predict", "model.safetensors", "a.svm") as process:
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(60) == 0
        assert b"Error" not in err and b"streamsvm:" not in err


def test_standard_input_in_several_passes(run):
    text = small()
    write("a.svm", text)
    run("train", "a.svm", "--passes", 3, "-o", "file.st")
    process = start("train", "-", "--passes", 3, "-o", "pipe.st")
    _, err = process.communicate(text.encode(), timeout=60)
    assert process.returncode == 0, err
    assert weights("pipe.st") == weights("file.st")
    process = start("train", "-", "--passes", 3, "--cache", "off")
    _, err = process.communicate(text.encode(), timeout=60)
    assert process.returncode == 2 and b"only once" in err


@pytest.mark.full
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_interrupt_leaves_nothing(run):
    with heard():
        process = start("train", "-", "-o", "m.st")
    process.stdin.write(small(20000).encode())  # enough rows for a step size: then it is learning
    process.stdin.flush()
    while b"step size" not in (line := process.stderr.readline()):
        assert line, "ended by itself"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"interrupted" in err and b"Traceback" not in err
    assert not list(Path().glob("*m.st*"))


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_is_bounded(run):
    """Anonymous memory above an idle interpreter stays within the budget and does not grow with the rows."""
    script = """
import sys, threading, time, re
import numba, pyarrow, streamsvm.training, streamsvm.cli.app
def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
from streamsvm.config import load_settings
from streamsvm.training import train
settings = {"data.train": sys.argv[1], "output.model": None, "run.memory": sys.argv[2]}
train(load_settings(overrides=settings | {"data.limit": 100}))  # machine code in place
base = anonymous()
peak = [0]
def watch():
    while True:
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.001)
threading.Thread(target=watch, daemon=True).start()
train(load_settings(overrides=settings))
print(peak[0] - base)
"""
    text = small(20000, features=200)
    write("once.svm", text)
    for number in range(12):
        write(f"many-{number}.svm", text)
    peaks = []
    for data in ("once.svm", "many-*.svm"):
        done = subprocess.run(
            [sys.executable, "-c", script, data, "48MB"], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        peaks.append(int(done.stdout.split()[-1]))
    assert peaks[1] < 48e6
    assert peaks[1] < peaks[0] * 1.1 + 2e6
