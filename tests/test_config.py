"""Settings: what is accepted, who wins, what an error says, and that nothing is lost in printing."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pydantic import ValidationError
from tiers import examples

from streamsvm import config
from streamsvm.config import (
    DEFAULT_L2,
    SOLVER_SETTINGS,
    Settings,
    expand,
    format_duration,
    format_size,
    load_settings,
    parse_duration,
    parse_size,
    redact_url,
    schema,
    template,
    to_json_dict,
    to_yaml,
)
from streamsvm.config.wording import listed
from streamsvm.errors import ConfigError
from streamsvm.offered import LOSSES, ONLINE, SOLVERS


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a file into the current directory and returns its name, as it should stand in errors."""
    monkeypatch.chdir(tmp_path)

    def write(text, name="conf.yaml"):
        Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return name

    return write


def load(*files, **kwargs):
    return load_settings(files, **{"environ": {}, **kwargs})


def errors(*files, **kwargs):
    """The lines of the one error that loading must raise."""
    with pytest.raises(ConfigError) as caught:
        load(*files, **kwargs)
    return str(caught.value).splitlines()


def value(found, path):
    for key in path.split("."):
        found = getattr(found, key)
    return found


# What is accepted


def test_defaults():
    assert to_json_dict(load()) == {
        "data": {
            "train": None, "test": None, "format": "auto", "label": None, "weight": None, "columns": None,
            "header": "auto", "delimiter": "auto", "quote": True, "encoding": "utf-8", "decimal": "auto",
            "missing_columns": "raise", "on_bad_row": "raise", "max_bad_rows": 1000,
            "classes": None, "shuffle": "auto", "limit": None, "sample": None, "holdout": None,
            "class_weights": None, "rows": None, "max_expansion": 1000, "max_line": 16_000_000,
            "retries": 5,
        },
        "features": {
            "numeric": None, "categorical": None, "text": None, "ignore": None, "log1p": None, "bucketize": None,
            "dates": None, "interactions": None, "ngrams": 1, "names": False, "hash_bits": None,
            "missing": "indicator", "dim": None, "scale": "auto",
        },
        "map": {
            "kind": "none", "size": None, "gamma": "auto", "degree": 2, "coef0": 1.0, "landmarks": "kmeans",
        },
        "loss": "squared_hinge",
        "multiclass": "auto",
        "calibration": "auto",
        "threshold": {"by": "none", "costs": None},
        "penalty": {"l2": None, "C": None, "l1": None, "path": None},
        "bias": {"kind": "penalised", "scale": 1.0},
        "solver": {"name": "asgd", "passes": 1, "early_stop": None, "init": None, "eta0": "auto", "revisit": True},
        "run": {"memory": 10**9, "threads": "auto", "seed": 0, "objective": False, "cache": "auto"},
        "output": {"model": "model.safetensors", "report": None},
        "checkpoint": {"dir": None, "every": 60.0, "every_rows": None, "patience": 3600.0, "resume": False},
        "cluster": {"at": None, "shards": None, "sweeps": 2, "storage": None, "timeout": 600.0},
        "tune": {
            "l2": "1e-07..0.01", "l1": None, "candidates": 16, "solver": None, "loss": None, "by": "auto"
        },
        "follow": {
            "until_idle": False, "idle": 5.0, "stop_after": None, "rotate_wait": 5.0, "poll": 0.25,
            "compressed": False, "window": 100_000, "forget": None, "metrics": None,
        },
    }  # fmt: skip


ACCEPTED = [
    ("data: {train: a.svm}", "data.train", ("a.svm",)),
    ("data: {train: [b.svm, a.svm]}", "data.train", ("b.svm", "a.svm")),
    ("data: {train: '-'}", "data.train", ("-",)),
    ("data: {train: 's3://${BUCKET}/x'}", "data.train", ("s3://${BUCKET}/x",)),
    ("data:\n  train:\n  - a\n  - b", "data.train", ("a", "b")),
    ("data: {classes: [yes, no, on, off]}", "data.classes", ("yes", "no", "on", "off")),
    ("data: {classes: [1, 2.5, a, '3', 01, 2026-11-16, 1:30]}", "data.classes",
     (1, 2.5, "a", "3", "01", "2026-11-16", "1:30")),
    ("data: {columns: 'click, ad,user'}", "data.columns", ("click", "ad", "user")),
    ("data: {header: false}", "data.header", False),
    ("features: {numeric: age}", "features.numeric", ("age",)),
    ("features: {log1p: [I*, clicks]}", "features.log1p", ("I*", "clicks")),
    ("features: {interactions: [[ad, user], [ad, user, hour]]}", "features.interactions",
     (("ad", "user"), ("ad", "user", "hour"))),
    ("features: {interactions: 'ad*user,a*b*c'}", "features.interactions", (("ad", "user"), ("a", "b", "c"))),
    ("features: {bucketize: {age: [18, 30.5]}}", "features.bucketize", {"age": (18.0, 30.5)}),
    ("data: {limit: 1e6}", "data.limit", 10**6),
    ("data: {limit: 1_000}", "data.limit", 1000),
    ("data: {limit: null}", "data.limit", None),
    ("data: {max_line: 1kB}", "data.max_line", 1000),
    ("features: {hash_bits: 31}", "features.hash_bits", 31),
    ("map: rbf", "map.kind", "rbf"),
    ("map: {kind: nystroem, size: 500, gamma: 0.5}", "map.gamma", 0.5),
    ("map: {kind: polynomial, degree: 3}", "map.degree", 3),
    ("features: {dim: 4294967295}", "features.dim", 2**32 - 1),
    ("penalty: {l2: 1e-4}", "penalty.l2", 1e-4),
    ("penalty: {l2: 1E5}", "penalty.l2", 1e5),
    ("penalty: {l2: 1.0e-4}", "penalty.l2", 1e-4),
    ("penalty: {l2: .5}", "penalty.l2", 0.5),
    ("penalty: {C: 1}", "penalty.C", 1.0),
    ("{penalty: {l1: 1e-5}, solver: ftrl}", "penalty.kind", "l1"),
    ("{penalty: {l1: 1e-5, l2: 1e-6}, solver: ftrl}", "penalty.kind", "elastic_net"),
    ("{penalty: {l2: 0}, solver: adagrad}", "penalty.kind", "none"),
    ("penalty: {C: 1}", "penalty.kind", "l2"),
    ("{}", "penalty.kind", "l2"),
    ("data: {class_weights: balanced}", "data.class_weights", "balanced"),
    ("data: {class_weights: {1: 5, -1: 1, 2.0: 0.5, spam: 2}}", "data.class_weights",
     {"1": 5.0, "-1": 1.0, "2": 0.5, "spam": 2.0}),
    ("data: {sample: 1e-1}", "data.sample", 0.1),
    ("tune: {l2: 1e-7..1e-2}", "tune.l2", "1e-07..0.01"),
    ("tune: {l2: '1e-7,1e-6'}", "tune.l2", (1e-7, 1e-6)),
    ("tune: {l2: [1e-7, 1e-6, 1e-6]}", "tune.l2", (1e-7, 1e-6)),
    ("tune: {l2: 3}", "tune.l2", (3.0,)),
    ("tune: {solver: 'asgd,ftrl'}", "tune.solver", ("asgd", "ftrl")),
    ("tune: {loss: hinge}", "tune.loss", ("hinge",)),
    ("bias: free", "bias.kind", "free"),
    ("bias: none", "bias.kind", "none"),
    ("bias: {scale: 2}", "bias.scale", 2.0),
    ("solver: sgd", "solver.name", "sgd"),
    ("solver: {passes: 3}", "solver.name", "asgd"),
    ("solver: {eta0: 1e-1}", "solver.eta0", 0.1),
    ("solver: {name: pegasos, project: no}", "solver.project", False),
    ("solver: {name: pegasos, project: off}", "solver.project", False),
    ("run: {memory: 512MiB}", "run.memory", 2**29),
    ("run: {memory: 1e9}", "run.memory", 10**9),
    ("run: {threads: 2}", "run.threads", 2),
    ("run: {seed: 9223372036854775807}", "run.seed", 2**63 - 1),
    ("run: {cache: off}", "run.cache", "off"),
    ("run: {cache: OFF}", "run.cache", "off"),
    ("run: {cache: false}", "run.cache", "off"),
    ("run: {cache: rows.arrow}", "run.cache", "rows.arrow"),
    ("data: {train: &x [a], test: *x}", "data.test", ("a",)),
    ("output: {model: !!str 2024}", "output.model", "2024"),
    ("output: {report: r.html}", "output.report", "r.html"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "path", "expected"), ACCEPTED)
def test_accepted(write, text, path, expected):
    found = value(load(write(text)), path)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "text", ["", "\n", "# only a comment\n", "---\n", "null", "data:\n", "data: null\nsolver: ~\nbias:\n", "{}"]
)
def test_nothing_set(write, text):
    assert load(write(text)) == Settings()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bom.yaml", b"\xef\xbb\xbfloss: logistic\r\nsolver:\r\n  passes: 2\r\n"),
        ("conf.json", b'{\n\t"loss": "logistic",\n\t"solver": {"name": "asgd",\t"passes": 2}\n}\n'),
    ],
)
def test_file_dialects(write, name, content):
    found = load(write(content, name))
    assert (found.loss, found.solver.passes) == ("logistic", 2)


def test_settings_from_python():
    assert Settings(solver="sgd", bias="free", data=None, run={"cache": False}).run.cache == "off"
    assert Settings(data={"train": Path("a/b")}).data.train == ("a/b",)
    with pytest.raises(ValidationError):
        Settings(penalty={"l2": 1, "C": 1})
    with pytest.raises(ValidationError):
        Settings(features={"dim": 1, "hash_bits": 1})
    with pytest.raises(ValidationError):
        Settings().run.seed = 3
    assert hash(Settings(data={"train": ["a", "b"]})) == hash(Settings(data={"train": ("a", "b")}))


def test_default_penalty():
    assert Settings().penalty.is_default
    assert not Settings(penalty={"l2": DEFAULT_L2}).penalty.is_default
    assert not Settings(penalty={"C": 1}).penalty.is_default


# What is refused, and how

REFUSED = [
    ("solver: {passes: 0}", "solver.passes: must be at least 1 (got 0)"),
    ("solver: {passes: 1.5}", "solver.passes: must be a whole number (got 1.5)"),
    ("solver: {passes: true}", "solver.passes: must be a number (got true)"),
    ("solver: {passes: many}", "solver.passes: must be a whole number (got 'many')"),
    ("solver: {passes: }", "solver.passes: must be a whole number (got null)"),
    ("solver: {name: pegasos, batch_size: 0}", "solver.batch_size: must be at least 1 (got 0)"),
    ("solver: {name: pegasos, project: 3}", "solver.project: must be true or false (got 3)"),
    ("solver: {eta0: -1}", "solver.eta0: must be auto or a number greater than 0 (got -1)"),
    ("solver: {eta0: true}", "solver.eta0: must be auto or a number greater than 0 (got true)"),
    ("solver: {init: ''}", "solver.init: must not be empty (got '')"),
    ("solver: sdg",
     f"solver.name: must be one of {', '.join(SOLVERS)} (got 'sdg'); did you mean 'sgd'?"),
    ("solver: {name: [sgd]}",
     f"solver.name: must be one of {', '.join(SOLVERS)} (got ['sgd'])"),
    ("solver: [sgd]", "solver: must be a single word for solver.name or a section with keys such as 'average'"
                      " (got ['sgd'])"),
    ("data: 5", "data: must be a section with keys such as 'class_weights' (got 5)"),
    ("data: a.svm", "data: must be a section with keys such as 'class_weights' (got 'a.svm')"),
    ("data: {max_bad_rows: -1}", "data.max_bad_rows: must be at least 0 (got -1)"),
    ("data: {shuffle: 99999999999999999999}",
     "data.shuffle: must be auto or a whole number of at least 0 (got 99999999999999999999)"),
    ("data: {limit: 0}", "data.limit: must be at least 1 (got 0)"),
    ("data: {max_expansion: 0}", "data.max_expansion: must be at least 1 (got 0)"),
    ("data: {on_bad_row: ignore}", "data.on_bad_row: must be one of raise, skip (got 'ignore')"),
    ("data: {train: []}", "data.train: must be a path or url, or a list of them, as text (in quotes if it looks"
                          " like a number) (got [])"),
    ("data: {train: [a, 2024]}", "data.train: must be a path or url, or a list of them, as text (in quotes if it"
                                 " looks like a number) (got ['a', 2024])"),
    ("data: {classes: [a]}", "data.classes: must be a list of at least two different classes (got ['a'])"),
    ("data: {classes: [1, 1.0]}", "data.classes: must be a list of at least two different classes (got [1, 1.0])"),
    ("data: {classes: [1, '1']}", "data.classes: must be a list of at least two different classes (got [1, '1'])"),
    ("data: {classes: a}", "data.classes: must be a list of classes such as [spam, ham] (got 'a')"),
    ("data: {classes: [true, false]}", "data.classes: must hold numbers or text only, found true (quotes make it"
                                       " text) (got [true, false])"),
    ("features: {ngrams: 4}", "features.ngrams: must be at most 3 (got 4)"),
    ("features: {interactions: [[ad]]}",
     "features.interactions: must have two or three columns in each interaction (got [['ad']])"),
    ("features: {bucketize: {age: [3, 2]}}",
     "features.bucketize: age must have a list of rising numbers, such as [18, 30, 50] (got {'age': [3, 2]})"),
    ("features: {numeric: 5}", "features.numeric: must be the name of a column, or a list of names (got 5)"),
    ("data: {header: maybe}", "data.header: must be auto, true or false (got 'maybe')"),
    ("features: {hash_bits: 32}", "features.hash_bits: must be at most 31 (got 32)"),
    ("features: {hash_bits: 0}", "features.hash_bits: must be at least 1 (got 0)"),
    ("features: {dim: 4294967296}", "features.dim: must be at most 4294967295 (got 4294967296)"),
    ("loss: hinges",
     f"loss: must be one of {', '.join(LOSSES)} (got 'hinges'); did you mean 'hinge'?"),
    ("loss: squared-hinge", f"loss: must be one of {', '.join(LOSSES)} (got 'squared-hinge');"
                            " did you mean 'squared_hinge'?"),
    ("loss: log",
     f"loss: must be one of {', '.join(LOSSES)} (got 'log'); did you mean 'logistic'?"),
    ("loss: 5", f"loss: must be one of {', '.join(LOSSES)} (got 5)"),
    ("penalty: {l2: -1}", "penalty.l2: must be at least 0.0 (got -1)"),
    ("penalty: {l2: 0}",
     "penalty.l2: solver asgd cannot go without penalty.l2; solvers that can: folos, adagrad, ftrl"),
    ("penalty: {l1: 1e-5}",
     "penalty.l1: solver asgd cannot have an L1 penalty; solvers that can: folos, adagrad, ftrl"),
    ("{penalty: {C: 1, l1: 1}, solver: sgd}",
     "penalty.l1: solver sgd cannot have an L1 penalty; solvers that can: folos, adagrad, ftrl"),
    ("solver: {early_stop: 2}", "solver.early_stop: needs held-out rows: set data.holdout (--holdout 10)"),
    ("data: {holdout: 1}", "data.holdout: must be at least 2 (got 1)"),
    ("data: {sample: 0}", "data.sample: must be greater than 0 (got 0)"),
    ("data: {sample: 1.5}", "data.sample: must be at most 1.0 (got 1.5)"),
    ("data: {class_weights: even}", "data.class_weights: must be balanced, or weights by class such as {1: 5, -1: 1}"
                                    " (got 'even')"),
    ("data: {class_weights: {1: -5}}", "data.class_weights: class '1' must have one weight, a number of at least 0"
                                       " (got {'1': -5})"),
    ("features: {scale: max}", "features.scale: must be one of auto, none, maxabs, standard (got 'max');"
                               " did you mean 'maxabs'?"),
    ("tune: {l2: 1e-2..1e-7}", "tune.l2: must be a range from a smaller to a larger number (got '1e-2..1e-7')"),
    ("tune: {l2: [1, x]}", "tune.l2: must be a range such as 1e-7..1e-2, or a list of numbers greater than 0"
                           " (got [1, 'x'])"),
    ("tune: {solver: [asgd, ftrl, sdg]}",
     f"tune.solver: must be one of {', '.join(ONLINE)} (got 'sdg'); did you mean 'sgd'?"),
    ("penalty: {C: -1}", "penalty.C: must be greater than 0 (got -1)"),
    ("penalty: {l2: small}", "penalty.l2: must be a number (got 'small')"),
    ("penalty: {l2: .nan}", "penalty.l2: must be a finite number (got '.nan')"),
    ("penalty: {l2: -.INF}", "penalty.l2: must be a finite number (got '-.INF')"),
    ("penalty: {l2: 1e999}", "penalty.l2: must be a finite number (got '1e999')"),
    ("penalty: {l2: 'nan'}", "penalty.l2: must be a finite number (got 'nan')"),
    ("data: {classes: [.inf, 1]}", "data.classes.0: must be a finite number (got '.inf')"),
    ("bias: fre", "bias.kind: must be one of penalised, free, none (got 'fre'); did you mean 'free'?"),
    ("bias: {scale: 0}", "bias.scale: must be greater than 0 (got 0)"),
    ("bias: false", "bias: must be a single word for bias.kind or a section with keys such as 'kind' (got false)"),
    ("run: {memory: 31MB}", "run.memory: must be at least 32MB (got '31MB')"),
    ("run: {memory: lots}", "run.memory: must be a size such as 256MB or 1.5GiB (got 'lots')"),
    ("run: {memory: true}", "run.memory: must be a size such as 256MB or 1.5GiB (got true)"),
    ("data: {max_line: 0}", "data.max_line: must be at least 1 (got 0)"),
    ("run: {threads: 0}", "run.threads: must be auto or a whole number of at least 1 (got 0)"),
    ("run: {threads: 1.5}", "run.threads: must be auto or a whole number of at least 1 (got 1.5)"),
    ("run: {threads: true}", "run.threads: must be auto or a whole number of at least 1 (got true)"),
    ("run: {seed: -1}", "run.seed: must be at least 0 (got -1)"),
    ("run: {seed: 9223372036854775808}",
     "run.seed: must be at most 9223372036854775807 (got 9223372036854775808)"),
    ("run: {cache: true}", "run.cache: must be auto, off or a path (got true)"),
    ("output: {model: 2024}", "output.model: must be text (quotes make it text) (got 2024)"),
    ("penalty: {l2: 1, C: 1}", "penalty.l2: cannot be combined with penalty.C (given by conf.yaml:1)"),
    ("features: {dim: 5, hash_bits: 3}",
     "features.hash_bits: cannot be combined with features.dim (given by conf.yaml:1)"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line"), REFUSED)
def test_refused(write, text, line):
    assert errors(write(text)) == [f"conf.yaml:1: {line}"]


UNKNOWN = [
    ("lamda: 1", "lamda", "did you mean 'penalty.l2'?"),
    ("penalty: {lambda: 1}", "penalty.lambda", "did you mean 'penalty.l2'?"),
    ("solver: {alpha: 1}", "solver.alpha", "did you mean 'penalty.l2'?"),
    ("reg: 1", "reg", "did you mean 'penalty.l2'?"),
    ("penalty: {c: 1}", "penalty.c", "did you mean 'penalty.C'?"),
    ("solver: {pases: 1}", "solver.pases", "did you mean 'solver.passes'?"),
    ("solver: {epochs: 1}", "solver.epochs", "did you mean 'solver.passes'?"),
    ("max_iter: 1", "max_iter", "did you mean 'solver.passes'?"),
    ("solver: {lr: 1}", "solver.lr", "did you mean 'solver.eta0'?"),
    ("learning_rate: 1", "learning_rate", "did you mean 'solver.eta0'?"),
    ("threads: 1", "threads", "did you mean 'run.threads'?"),
    ("n_jobs: 1", "n_jobs", "did you mean 'run.threads'?"),
    ("classes: [a, b]", "classes", "did you mean 'data.classes'?"),
    ("solver: {classes: [a, b]}", "solver.classes", "did you mean 'data.classes'?"),  # and not the similar 'passes'
    ("hash_bits: 3", "hash_bits", "did you mean 'features.hash_bits'?"),
    ("run: {memry: 3}", "run.memry", "did you mean 'run.memory'?"),
    ("Loss: hinge", "Loss", "did you mean 'loss'?"),
    ("solvers: sgd", "solvers", "did you mean 'solver'?"),
    ("output: {zzz: 1}", "output.zzz", "known here: model, report"),
    ("zzz: 1", "zzz", "known here: data, features, map, loss, multiclass, calibration, threshold, "
     "penalty, bias, solver, run, output, checkpoint, cluster, tune, follow, storage_options"),
    ("3: 1", "3", "known here: data, features, map, loss, multiclass, calibration, threshold, "
     "penalty, bias, solver, run, output, checkpoint, cluster, tune, follow, storage_options"),
    ("solver: {name: sgd, batch_size: 3}", "solver.batch_size",
     "solver sgd has no such setting, it belongs to pegasos"),
    ("solver: {name: pegasos, eta0: 3}", "solver.eta0",
     "solver pegasos has no such setting, it belongs to "
     f"{listed([*(name for name in ONLINE if name != 'pegasos'), 'norma'])}"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "path", "hint"), UNKNOWN)
def test_unknown_keys(write, text, path, hint):
    assert errors(write(text)) == [f"conf.yaml:1: {path}: unknown key '{path.rpartition('.')[2]}'; {hint}"]


def test_all_errors_at_once_in_reading_order(write):
    text = "run:\n  seed: -1\ndata:\n  shuffel: 3\n  limit: 0\nsolver:\n  name: sgd\n\n  passes: 0\n"
    assert errors(write(text), "missing.yaml", sets=["loss=x"], environ={"STREAMSVM__BIAS": "y"}) == [
        "conf.yaml:2: run.seed: must be at least 0 (got -1)",
        "conf.yaml:4: data.shuffel: unknown key 'shuffel'; did you mean 'data.shuffle'?",
        "conf.yaml:5: data.limit: must be at least 1 (got 0)",
        "conf.yaml:9: solver.passes: must be at least 1 (got 0)",
        "missing.yaml: no such file",
        "STREAMSVM__BIAS: bias.kind: must be one of penalised, free, none (got 'y')",
        f"--set loss=x: loss: must be one of {', '.join(LOSSES)} (got 'x')",
    ]


def test_the_file_that_is_to_blame_is_named(write):
    a, b = write("solver:\n  passes: 1\n", "a.yaml"), write("\n\nsolver: {passes: 0}\n", "b.yaml")
    assert errors(a, b) == ["b.yaml:3: solver.passes: must be at least 1 (got 0)"]
    assert errors(b, write("solver: {init: ''}", "c.yaml")) == [
        "b.yaml:3: solver.passes: must be at least 1 (got 0)",
        "c.yaml:1: solver.init: must not be empty (got '')",
    ]
    assert load(b, a).solver.passes == 1  # an overwritten value is nobody's problem


SYNTAX = [
    ("- a\n- b\n", r"conf.yaml:1: must hold 'key: value' lines \(got \['a', 'b'\]\)"),
    ("just text", r"conf.yaml:1: must hold 'key: value' lines \(got 'just text'\)"),
    ("data:\n\ttrain: a\n", "conf.yaml:2: not valid YAML: a tab cannot indent; use spaces"),
    ("data: [a\nloss: x\n", "conf.yaml:2: not valid YAML: .*"),
    ("data:\n  train: *.svm\n", "conf.yaml:2: not valid YAML: .*needs quotes"),
    ("data:\n  train: *all\n", "conf.yaml:2: not valid YAML: found undefined alias.*needs quotes"),
    ("data:\n  train: -\n", "conf.yaml:2: not valid YAML: .*needs quotes"),
    ("data:\n  train: @x\n", "conf.yaml:2: not valid YAML: .*needs quotes"),
    ("loss: hinge\n---\nloss: hinge\n", "conf.yaml:2: not valid YAML: .*"),
    ("loss: hinge\nsolver: 1\n\nloss: hinge\n", r"conf.yaml:4: loss: given twice \(first on line 1\)"),
    ("run:\n  seed: 1\n  seed: 2\n", r"conf.yaml:3: run.seed: given twice \(first on line 2\)"),
    ("\nloss: !!python/name:os.system\n", "conf.yaml:2: loss: unknown tag '!!python/name:os.system'; .*"),
    ("data: !!python/object:os.x {}\n", "conf.yaml:1: data: unknown tag '!!python/object:os.x'; .*"),
    ("data: !mine [a]\n", "conf.yaml:1: data: unknown tag '!mine'; .*"),
    ("run: {seed: !!int x}\n", r"conf.yaml:1: run.seed: is not a usable number or word \(got 'x'\)"),
    ("run: {seed: %s}\n" % ("9" * 5000), "conf.yaml:1: run.seed: .*"),
    ("? [a, b]\n: 1\n", "conf.yaml:1: a key must be plain text"),
    (b"loss: hinge\n\xff\xfe\n", "conf.yaml:2: is not UTF-8 text"),
    (b"loss: hinge\n\x00\n", "conf.yaml:2: has a character that YAML does not allow .*"),
    ("data: " + "[" * 3000, "conf.yaml:1: is nested more than 20 levels deep"),
    ("data: " + "[" * 30 + "]" * 30, "conf.yaml:1: is nested more than 20 levels deep"),
    ("data: &a [*a]", "conf.yaml:1: is nested more than 20 levels deep"),
    ("<<: {loss: hinge}", "conf.yaml:1: <<: unknown key '<<'; known here: .*"),
    (b"#" * 1_000_001, "conf.yaml: is larger than 1MB; is it a settings file[?]"),
    ('"\\e[31m": 1', r"conf.yaml:1: \?\[31m: unknown key '\\x1b\[31m'; .*"),
]


@pytest.mark.parametrize(("text", "pattern"), SYNTAX)
def test_syntax(write, text, pattern):
    lines = errors(write(text))
    assert any(re.fullmatch(pattern, line) for line in lines), lines
    assert lines[0].startswith("conf.yaml:")


def test_alias_bomb_is_refused_quickly(write):
    levels = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))
    assert errors(write("a0: &a0 [x]\n" + levels))[0].endswith("holds more than 100000 values "
                                                               "(aliases count each time they are used)")  # fmt: skip


def test_unreadable_files(write, tmp_path):
    write("loss: squared_hinge", "secret.yaml")
    Path("secret.yaml").chmod(0)
    assert errors("none.yaml") == ["none.yaml: no such file"]
    assert errors(str(tmp_path)) == [f"{tmp_path}: is a directory, not a settings file"]
    assert errors("a\0b")[0].startswith("a?b: cannot be read")
    local = "is a url, and only local files can be read here: download it first"
    assert errors("https://user:secret@host/conf.yaml?token=1") == [f"https://host/conf.yaml: {local}"]
    try:
        Path("secret.yaml").read_bytes()
    except PermissionError:
        assert errors("secret.yaml") == ["secret.yaml: cannot be read: permission denied"]


def test_errors_are_short_and_keep_secrets(write):
    url = "https://user:hunter2@host/path?token=hunter3#hunter4"
    text = f"loss: '{url}'\nrun: {{seed: ['{url}'], threads: {{a: '{url}'}}}}\n'{url}': 1\nbias: {'x' * 500}\n"
    lines = errors(
        write(text),
        sets=[f"data.limit={url}", f"data.shuffle=[{url}", f"{url}", "penalty.l2=" + "y" * 500],
        environ={"STREAMSVM__DATA__ROWS": url},
        overrides={"features.dim": url},
    )
    assert len(lines) == 11
    assert "hunter" not in "\n".join(lines)
    assert all(len(line) < 250 for line in lines)
    assert f"conf.yaml:1: loss: must be one of {', '.join(LOSSES)} (got 'https://host/path')" in lines


# Who wins


def test_files_merge_in_order(write):
    a = write("data: {train: [a, b], limit: 5}\nsolver: {passes: 3, eta0: 0.5}\nbias: free\n", "a.yaml")
    b = write("data: {train: [c], limit: null}\nsolver: {passes: 4}\nbias: {scale: 2}\nrun:\n", "b.yaml")
    found = load(a, b)
    assert found.data.train == ("c",)
    assert found.data.limit is None
    assert (found.solver.passes, found.solver.eta0) == (4, 0.5)
    assert (found.bias.kind, found.bias.scale) == ("free", 2.0)
    assert load(b, a).solver.passes == 3


def test_an_empty_section_resets_nothing(write):
    assert load(write("run: {seed: 3}", "a.yaml"), write("run:\n", "b.yaml")).run.seed == 3


def test_precedence(write):
    name = write("solver: {passes: 2}")
    env = {"STREAMSVM__SOLVER__PASSES": "3"}
    assert load(name).solver.passes == 2
    assert load(name, environ=env).solver.passes == 3
    assert load(name, environ=env, sets=["solver.passes=4"]).solver.passes == 4
    assert load(name, environ=env, overrides={"solver.passes": 5}).solver.passes == 5
    assert load(sets=["solver.passes=4", "solver.passes=6"]).solver.passes == 6


def test_environment(monkeypatch):
    env = {
        "STREAMSVM__PENALTY__C": "1e-4",
        "STREAMSVM__DATA__TRAIN": "[a, 's3://b/*.gz']",
        "streamsvm__data__Max_Bad_Rows": "7",
        "STREAMSVM__RUN__CACHE": "off",
        "STREAMSVM__SOLVER": "{name: pegasos, batch_size: 5}",
        "STREAMSVM__OUTPUT__MODEL": "",
        "STREAMSVM_CACHE_DIR": "/tmp",
        "STREAMSVM": "x",
        "OTHER__LOSS": "x",
    }
    found = load(environ=env)
    assert found.penalty.C == 1e-4
    assert found.data.train == ("a", "s3://b/*.gz")
    assert found.data.max_bad_rows == 7
    assert found.run.cache == "off"
    assert (found.solver.name, found.solver.batch_size) == ("pegasos", 5)
    assert found.output.model is None
    monkeypatch.setenv("STREAMSVM__LOSS", "logistic")
    assert load_settings().loss == "logistic"
    assert load().loss == "squared_hinge"


def test_environment_errors():
    assert errors(environ={"STREAMSVM__SOLVER__PASSES": "0"}) == [
        "STREAMSVM__SOLVER__PASSES: solver.passes: must be at least 1 (got 0)"
    ]
    assert errors(environ={"STREAMSVM__PASSES": "0"}) == [
        "STREAMSVM__PASSES: passes: unknown key 'passes'; did you mean 'solver.passes'?"
    ]
    assert errors(environ={"STREAMSVM__LOSS": "hinge", "streamsvm__loss": "logistic"}) == [
        "streamsvm__loss: loss: also given by STREAMSVM__LOSS, with another value"
    ]
    assert errors(environ={"STREAMSVM__DATA__TRAIN": "[a"})[0].startswith(
        "STREAMSVM__DATA__TRAIN: data.train: not valid YAML: "
    )


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("data.train=*.svm", "data.train", ("*.svm",)),
        ("data.train=-", "data.train", ("-",)),
        ("data.train=a=b", "data.train", ("a=b",)),
        ("data.train=a: b # c", "data.train", ("a: b # c",)),
        ("data.train=[a, b]", "data.train", ("a", "b")),
        ("data.train='2024'", "data.train", ("2024",)),
        ("data={train: a, limit: 3}", "data.limit", 3),
        ("penalty.l2 = 1e-4", "penalty.l2", 1e-4),
        ("penalty.l2=", "penalty.l2", None),
        ("run.cache=off", "run.cache", "off"),
        ("solver=sgd", "solver.name", "sgd"),
        ("bias=free", "bias.kind", "free"),
    ],
)
def test_set(text, path, expected):
    assert value(load(sets=[text]), path) == expected


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("solver.passes=0", "--set solver.passes=0: solver.passes: must be at least 1 (got 0)"),
        ("solver.passes", "--set solver.passes: must look like section.key=value"),
        ("=3", "--set =3: must look like section.key=value"),
        ("solver..passes=3", "--set solver..passes=3: must look like section.key=value"),
        ("solver={passes: 0}", "--set solver={passes: 0}: solver.passes: must be at least 1 (got 0)"),
        ("penalty.l2=.inf", "--set penalty.l2=.inf: penalty.l2: must be a finite number (got '.inf')"),
        (
            "loss.x=1",
            f"--set loss.x=1: loss: must be one of {', '.join(LOSSES)} (got {{'x': 1}})",
        ),
    ],
)
def test_set_errors(write, text, line):
    assert errors(write("solver: {passes: 1}"), sets=[text]) == [line]


def test_flags_name_themselves():
    over = {"solver.passes": 0}
    assert errors(overrides=over) == ["solver.passes: must be at least 1 (got 0)"]
    assert errors(overrides=over, flags={"solver.passes": "--passes"}) == [
        "--passes: solver.passes: must be at least 1 (got 0)"
    ]


def test_flag_values_are_taken_as_they_are():
    assert load(overrides={"data.train": ["[a]", "*b"]}).data.train == ("[a]", "*b")


def test_flag_and_set_have_the_same_rank():
    flags = {"solver.name": "--solver"}
    assert load(overrides={"solver.name": "sgd"}, sets=["solver=sgd"]).solver.name == "sgd"
    assert errors(overrides={"solver.name": "sgd"}, sets=["solver=asgd"], flags=flags) == [
        "--solver: solver.name: also given by --set solver=asgd, with another value"
    ]


@pytest.mark.parametrize(("low", "high"), [("l2", "C"), ("C", "l2")])
def test_the_higher_penalty_wins(write, low, high):
    file, other = write(f"penalty: {{{low}: 2}}"), write(f"penalty: {{{high}: 3}}", "other.yaml")
    for found in (
        load(file, other),
        load(file, environ={f"STREAMSVM__PENALTY__{high}": "3"}),
        load(file, sets=[f"penalty.{high}=3"]),
        load(file, overrides={f"penalty.{high}": 3}),
        load(sets=[f"penalty.{high}=3"], environ={f"STREAMSVM__PENALTY__{low}": "2"}),
    ):
        assert (getattr(found.penalty, low), getattr(found.penalty, high)) == (None, 3)
    assert getattr(load(file, sets=[f"penalty.{high}=null"]).penalty, low) == 2


def test_two_penalties_in_one_layer():
    flags = {"penalty.C": "--C", "penalty.l2": "--l2"}
    wanted = "penalty.l2: cannot be combined with penalty.C (given by"
    assert errors(overrides={"penalty.C": 1, "penalty.l2": 1}, flags=flags) == [f"--l2: {wanted} --C)"]
    assert errors(overrides={"penalty.l2": 1}, sets=["penalty.C=1"], flags=flags) == [
        f"--l2: {wanted} --set penalty.C=1)"
    ]
    env = {"STREAMSVM__PENALTY__C": "1", "STREAMSVM__PENALTY__L2": "1"}
    assert errors(environ=env) == [f"STREAMSVM__PENALTY__L2: {wanted} STREAMSVM__PENALTY__C)"]


def test_a_file_with_both_penalties_is_wrong_even_if_overruled(write):
    assert len(errors(write("penalty: {l2: 1, C: 1}"), overrides={"penalty.l2": 2})) == 1


def test_hash_bits_over_dim(write):
    found = load(write("features: {dim: 100}"), sets=["features.hash_bits=8"]).features
    assert (found.dim, found.hash_bits) == (None, 8)


def test_another_solver_keeps_what_it_knows(write):
    pegasos = write("solver: {name: pegasos, passes: 3, init: m, batch_size: 7, project: false}", "pegasos.yaml")
    sgd = write("solver: {passes: 4, eta0: 0.5}", "sgd.yaml")
    for found in (
        load(pegasos, overrides={"solver.name": "sgd"}),
        load(pegasos, sets=["solver=sgd"]),
        load(pegasos, environ={"STREAMSVM__SOLVER__NAME": "sgd"}),
        load(pegasos, write("solver: sgd", "b.yaml")),
    ):
        assert to_json_dict(found)["solver"] == {
            "name": "sgd", "passes": 3, "early_stop": None, "init": "m", "eta0": "auto"
        }  # fmt: skip
    found = load(sgd, overrides={"solver.name": "pegasos"}).solver
    assert (found.name, found.passes, found.batch_size) == ("pegasos", 4, 1)
    assert load(sgd, overrides={"solver.name": "sgd"}).solver.eta0 == 0.5


def test_another_solver_does_not_hide_mistakes(write):
    name = write("solver: {name: pegasos, pases: 3}")
    assert errors(name, overrides={"solver.name": "sgd"}) == [
        "conf.yaml:1: solver.pases: unknown key 'pases'; did you mean 'solver.passes'?"
    ]
    assert len(errors(sets=["solver.eta0=1"], overrides={"solver.name": "pegasos"})) == 1


# References and urls


def test_expand():
    env = {"NAME": "${OTHER}", "B2_": "x"}
    assert expand("s3://${NAME}/${B2_}${B2_}", env) == "s3://${OTHER}/xx"
    assert expand("$NAME ${1} ${a-b} ${", env) == "$NAME ${1} ${a-b} ${"
    with pytest.raises(ConfigError, match=r"^environment variable GONE is not set \(needed by 'a/\$\{GONE\}'\)$"):
        expand("a/${GONE}", env)
    with pytest.raises(ConfigError, match="variables GONE, LOST are not set"):
        expand("${LOST}${GONE}${LOST}", env)


def test_expand_uses_the_environment(monkeypatch):
    monkeypatch.setenv("STREAMSVM_TEST_NAME", "x")
    assert expand("${STREAMSVM_TEST_NAME}") == "x"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("scheme://user:pass@host/path?query", "scheme://host/path"),
        ("https://user@host:80/a/b#frag", "https://host:80/a/b"),
        ("https://host?token=1", "https://host"),
        ("https://host/a?u=http://x:y@z", "https://host/a"),
        ("s3://bucket/a@b/*.gz", "s3://bucket/a@b/*.gz"),
        ("https://host:8080/a@b", "https://host:8080/a@b"),
        ("https://[::1]:80/a@b", "https://[::1]:80/a@b"),
        ("https://u:p@[::1]:80/a", "https://[::1]:80/a"),
        ("s3://key:se/cr+et@bucket/x", "s3://bucket/x"),
        ("https://u:p?ss#w@host/x", "https://host/x"),
        ("simplecache::https://u:p@host/x?y", "simplecache::https://host/x"),
        ("s3://${KEY}:${SECRET}@bucket/x", "s3://bucket/x"),
        ("-", "-"),
        ("data/part-?.svm", "data/part-?.svm"),
        ("data/me@home/#1?.svm", "data/me@home/#1?.svm"),
        ("C:\\data\\a?.svm", "C:\\data\\a?.svm"),
        ("", ""),
    ],
)
def test_redact_url(url, expected):
    assert redact_url(url) == expected
    assert redact_url(expected) == expected


# Sizes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (0, 0), (4096, 4096), ("4096", 4096), ("7B", 7), ("1kB", 1000), ("1KB", 1000), ("1KiB", 1024),
        ("256MB", 256 * 10**6), ("1.5GB", 1_500_000_000), (" 1 GiB ", 2**30), ("512mib", 2**29), ("2TB", 2 * 10**12),
        ("1TiB", 2**40), ("0.5KiB", 512), ("1e9", 10**9), ("0.001kB", 1),
    ],
)  # fmt: skip
def test_parse_size(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(30, 30.0), (0.5, 0.5), ("60s", 60.0), ("10m", 600.0), ("10 min", 600.0), ("1.5h", 5400.0), ("2D", 172800.0)]
    + [("250ms", 0.25), ("0", 0.0), (" 7s ", 7.0)],
)
def test_parse_duration(text, seconds):
    assert parse_duration(text) == seconds
    assert parse_duration(format_duration(seconds)) == seconds
    assert load(overrides={"checkpoint.every": text}).checkpoint.every == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1e9s", "5 weeks", "1h30m", True, [60], "1" * 20, "inf"])
def test_parse_duration_refuses(text):
    with pytest.raises(ConfigError, match="must be a duration such as 60s, 10m or 1.5h"):
        parse_duration(text)
    assert "checkpoint.every: must be a duration" in errors(overrides={"checkpoint.every": text})[0]


@pytest.mark.parametrize(
    ("seconds", "text"), [(60.0, "1m"), (90.0, "90s"), (3600.0, "1h"), (86400.0, "1d"), (0.25, "0.25s"), (0.0, "0s")]
)
def test_format_duration(seconds, text):
    assert format_duration(seconds) == text


def test_checkpoints_in_a_file_and_in_short(write):
    assert load(write("checkpoint: s3://b/run\n")).checkpoint.dir == "s3://b/run"
    found = load(write("checkpoint: {dir: out/cp, every: 10m, every_rows: 100000, patience: null}\n"))
    assert found.checkpoint.model_dump() == {
        "dir": "out/cp", "every": 600.0, "every_rows": 100000, "patience": None, "resume": False
    }  # fmt: skip
    assert "  every: 10m" in to_yaml(found).splitlines()
    assert load(write(to_yaml(found))) == found
    assert load(write("checkpoint: {dir: x, every: null}\n")).checkpoint.every is None
    assert errors(write("checkpoint: {resume: true}\n")) == [
        "conf.yaml:1: checkpoint.resume: needs the directory of the checkpoints: --checkpoint DIR"
    ]


@pytest.mark.parametrize(
    "text",
    ["", "GB", "1G", "-1", "-1MB", "1.5", "0.0001kB", "1 0MB", "1,5GB", "nan", "inf", "1e99", "9" * 30, "٣MB", True, -1,
     2**63, 1.5, None],
)  # fmt: skip
def test_parse_size_refuses(text):
    with pytest.raises(ConfigError, match=r"\(got "):
        parse_size(text)


@given(
    st.integers(0, 2**63 - 1)
    | st.builds(lambda n, unit: n * unit, st.integers(0, 5000), st.sampled_from([10**6, 2**20]))
)
def test_sizes_round_trip(size):
    assert parse_size(format_size(size)) == size
    assert parse_size(str(size)) == size


@pytest.mark.parametrize("text", ["1GB", "256MB", "1.5GB", "512MiB", "1.5GiB", "33000001", "2kB", "0"])
def test_sizes_are_written_as_people_do(text):
    assert format_size(parse_size(text)) == text


# Printing


def test_to_yaml(write):
    name = write(
        "data: {train: [a, 's3://k:s@b/x?q'], classes: ['1e-4', 'off', 'null', 'x: y', 2.0]}\n"
        "penalty: {l2: 1e-5}\nsolver: pegasos\nrun: {memory: 256MB, cache: off}\n"
    )
    lines = to_yaml(load(name)).splitlines()
    assert lines[:2] == ["data:", "  train: [a, 's3://b/x']"]
    for line in (
        "  classes: ['1e-4', 'off', 'null', 'x: y', 2.0]",
        "  l2: 1.0e-05",
        "  memory: 256MB",
        "  max_line: 16MB",
        "  cache: 'off'",
        "  name: pegasos",
        "loss: squared_hinge",
    ):
        assert line in lines
    assert [line[:-1] for line in lines if line.endswith(":")] == [
        "data", "features", "map", "threshold", "penalty", "bias", "solver", "run", "output", "checkpoint", "cluster",
        "tune",
        "follow",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["\x85", "a\nb", " \u2028", "\xa0", "\ufeffa", "\t", "a\r\n", "\x1b[0m", "\U0001f600"])
def test_rare_characters_survive(write, text):
    found = Settings(data={"train": text, "classes": [text, "b"]})
    assert load(write(to_yaml(found))) == found


def test_long_lists_get_a_line_each():
    text = to_yaml(Settings(data={"train": [f"part-{i:05}.svm" for i in range(20)]}))
    assert "\n  train:\n  - part-00000.svm\n  - part-00001.svm\n" in text


def test_to_yaml_without_defaults(write):
    name = write("data: {train: a}\nsolver: {name: sgd, passes: 2}\nloss: logistic\nbias: {kind: penalised}\n")
    assert to_yaml(load(name), defaults=False) == (
        "data:\n  train: a\nloss: logistic\nsolver:\n  name: sgd\n  passes: 2\n"
    )
    assert to_yaml(Settings(solver="pegasos"), defaults=False) == "solver:\n  name: pegasos\n"
    assert load(write(to_yaml(Settings(), defaults=False))) == Settings()


def test_json_is_redacted_and_loads_back(write):
    found = Settings(
        data={"train": "s3://k:s@b/x?q", "test": ["https://u:p@h/y", "z"], "classes": ["http://a?b", "c"]},
        solver={"init": "https://u:p@h/m"},
        run={"memory": "64MB", "cache": "s3://u:p@h/c"},
        output={"model": "s3://u:p@h/m?x", "report": "s3://u:p@h/r.html?x"},
    )
    tree = to_json_dict(found)
    assert tree["data"]["train"] == "s3://b/x"
    assert tree["data"]["test"] == ["https://h/y", "z"]
    assert tree["data"]["classes"] == ["http://a?b", "c"]
    assert (tree["solver"]["init"], tree["run"]["cache"]) == ("https://h/m", "s3://h/c")
    assert (tree["output"]["model"], tree["output"]["report"]) == ("s3://h/m", "s3://h/r.html")
    assert tree["run"]["memory"] == 64 * 10**6
    again = load(write(json.dumps(tree), "conf.json"))
    assert to_json_dict(again) == tree


def test_references_stay_unexpanded(write, monkeypatch):
    monkeypatch.setenv("BUCKET", "private")
    found = load(write("data: {train: 's3://${BUCKET}/x'}\noutput: {model: '${BUCKET}'}"))
    assert "private" not in to_yaml(found) + json.dumps(to_json_dict(found)) + repr(found)
    assert "s3://${BUCKET}/x" in to_yaml(found)


def texts():
    """Text of every kind but what redaction would change."""
    odd = st.sampled_from(
        ["1e-4", "off", "null", "~", "010", "2026-11-16", "-", "*", "a: b", " x ", "1_0", "=", "<<", "\ud800"]
    )
    return (odd | st.text(min_size=1, max_size=20)).filter(lambda text: "://" not in text)


def numbers():
    return st.floats(min_value=0, exclude_min=True, allow_infinity=False)


def plain_texts():
    """What pydantic takes for text, too."""
    return texts().filter(lambda text: "\ud800" not in text)


def solvers():
    shared = {"passes": st.integers(1, 2**63 - 1), "init": st.none() | plain_texts()}
    step = st.just("auto") | st.floats(min_value=1e-300, max_value=1e18)
    return st.fixed_dictionaries({"name": st.sampled_from(["sgd", "asgd"])}, optional={**shared, "eta0": step}) | (
        st.fixed_dictionaries(
            {"name": st.just("pegasos")},
            optional={**shared, "batch_size": st.integers(1, 99), "project": st.booleans()},
        )
    )


def label(item):
    return str(int(item)) if isinstance(item, float) and item.is_integer() else str(item)


def trees():
    counts, classes = (
        st.integers(1, 2**63 - 1),
        st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts(),
    )
    return st.fixed_dictionaries(
        {},
        optional={
            "data": st.fixed_dictionaries(
                {},
                optional={
                    "train": st.none() | texts() | st.lists(texts(), min_size=1, max_size=5),
                    "on_bad_row": st.sampled_from(["raise", "skip"]),
                    "max_bad_rows": st.integers(0, 2**63 - 1),
                    "classes": st.lists(classes, min_size=2, max_size=6, unique_by=label),
                    "limit": st.none() | counts,
                    "max_line": counts,
                },
            ),
            "features": st.builds(lambda key, n: {key: n}, st.sampled_from(["hash_bits", "dim"]), st.integers(1, 31)),
            "loss": st.sampled_from(["hinge", "squared_hinge", "logistic"]),
            "penalty": st.builds(lambda key, x: {key: x}, st.sampled_from(["l2", "C"]), st.none() | numbers()),
            "bias": st.fixed_dictionaries({"kind": st.sampled_from(["free", "none"])}, optional={"scale": numbers()}),
            "solver": solvers(),
            "run": st.fixed_dictionaries(
                {},
                optional={
                    "memory": st.integers(32 * 10**6, 2**62),
                    "threads": st.just("auto") | st.integers(1, 999),
                    "cache": texts(),
                },
            ),
            "output": st.fixed_dictionaries({"model": plain_texts()}, optional={"report": st.none() | plain_texts()}),
        },
    )


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("config") / "conf.yaml"


@examples(150)
@given(tree=trees(), defaults=st.booleans())
def test_yaml_round_trip(scratch, tree, defaults):
    found = Settings.model_validate(tree)
    scratch.write_bytes(to_yaml(found, defaults=defaults).encode())
    assert load(str(scratch)) == found
    assert Settings.model_validate(json.loads(json.dumps(to_json_dict(found)))) == found


FRAGMENTS = [
    "data:", "solver:", "penalty:", "run:", "bias:", "loss: ", "train: ", "name: ", "l2: ", "C: ", "memory: ",
    "passes: ", "\n", "\n  ", "- ", "[", "]", "{", "}", ": ", ", ", '"', "'", "\\uD800", '"\\U00110000"', "&a ", "*a",
    "? ", "| ", "!!str ", "!!int ", "!!float ", "!!null ", "!!python/x ", "!x ", "#", "---\n", "...\n", "%YAML 1.1\n",
    "\t", "<<: ", "1e-4", ".inf", "off", "sgd", "pegasos", "1GB", "0", "1", "9" * 30, "~", "\0", "\u2028", "é",
]  # fmt: skip


@examples(300, suppress_health_check=[HealthCheck.too_slow])
@given(
    content=st.binary(max_size=60)
    | st.lists(st.sampled_from(FRAGMENTS), max_size=25).map(lambda x: "".join(x).encode())
)
def test_any_bytes_give_settings_or_one_error(scratch, content):
    scratch.write_bytes(content)
    text = content.decode(errors="replace")
    try:
        assert isinstance(load(str(scratch)), Settings)
    except ConfigError as error:
        assert all(line.startswith(str(scratch)) for line in str(error).split("\n"))
    for key in ("data.train", "solver", "penalty.l2"):
        try:
            assert isinstance(load(sets=[f"{key}={text}"], environ={"STREAMSVM__BIAS": text}), Settings)
        except ConfigError as error:
            str(error).encode()


# Schema, template, imports


def test_schema():
    found = schema()
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert found["title"] == "streamsvm settings"
    assert json.loads(json.dumps(found)) == found
    assert {"enum": list(SOLVER_SETTINGS)} in found["properties"]["solver"]["anyOf"]
    assert {"enum": ["penalised", "free", "none"]} in found["properties"]["bias"]["anyOf"]
    assert {"type": "null"} in found["properties"]["data"]["anyOf"]
    assert found["$defs"]["PegasosSettings"]["required"] == ["name"]
    for part in [found, *found["$defs"].values()]:
        assert part["additionalProperties"] is False
        assert part["title"] and part["description"]
        for name, entry in part["properties"].items():
            assert len(entry["description"]) > 10, name
            assert "title" not in entry


def test_schema_has_the_defaults_of_sizes_and_words():
    properties = schema()["$defs"]["RunSettings"]["properties"]
    assert properties["memory"]["default"] == 10**9
    assert properties["threads"]["anyOf"] == [{"const": "auto"}, {"type": "integer", "minimum": 1}]


def test_template_loads_and_shows_every_key(write):
    text = template()
    found = load(write(text))
    assert found.data.train is not None
    assert found.output.model is not None
    everything = re.sub(r"^( *)#(?! )", r"\1", text, flags=re.MULTILINE)
    assert load(write(everything)) == found  # what is commented out are the defaults
    for section, keys in to_json_dict(Settings()).items():
        assert re.search(rf"^#?{section}:", text, re.MULTILINE), section
        for key in keys if isinstance(keys, dict) else ():
            assert re.search(rf"^  #?{key}:", text, re.MULTILINE), key
    unwrapped = re.sub(r"\n *# ", " ", text)
    assert f"One of {', '.join(SOLVERS)}." in unwrapped
    assert max(map(len, text.splitlines())) <= 120


def test_public_names():
    assert all(hasattr(config, name) for name in config.__all__)


def test_heavy_libraries_are_not_imported():
    script = "import sys, streamsvm.config; print({'numba', 'numpy', 'pyarrow', 'fsspec'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "set()\n"
    )
